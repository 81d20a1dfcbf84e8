/* Shared by exchange.c and slices.c. */
#ifndef LS_RUN_EXCHANGE_PRIVATE_H
#define LS_RUN_EXCHANGE_PRIVATE_H

#include "run/exchange.h"
#include "run/peers.h"

typedef struct ls_piece_list {
    ls_piece *pieces; /* Room for the longest list. */
    size_t count;
    char *ranges; /* By worker and join: ls_range of the results. */
} ls_piece_list;

/* A maximal complete subtree within one worker's lanes that has samples. */
typedef struct ls_subtree {
    int worker, first, end;
} ls_subtree;

/* Progress through a list of slices. */
typedef struct ls_slice_place {
    int join;
    int64_t at; /* Elements done, counted from the start of the part. */
} ls_slice_place;

struct ls_exchange {
    ls_peers *peers;
    ls_subtree *subtrees; /* In the order of lanes. */
    int subtree_count;
    ls_piece_list now, posted;
    atomic_bool moves; /* Something is posted and not settled. */
    /* By join and lane: where to receive the subtree that begins with it; NULL: none. */
    char **received;
    ls_memory *device;
    ls_block *block; /* NULL: nothing is received. */
    char *memory;    /* In the block: data that is received whole. */
    char *slices;    /* Two slices per subtree: one being received, one being joined. */
    /* By worker: progress of sending parts, joining them, and sending sums. */
    ls_slice_place *places[3];
};

static inline size_t ls_exchange_index(const ls_plan *plan, int join, int lane)
{
    return (size_t)join * (size_t)plan->lanes + (size_t)lane;
}

/* Adds a piece, unless it is between two other workers. Workers are given by place; `to` may be
 * LS_ALL_WORKERS. */
void ls_exchange_add(const ls_executor *e, ls_piece_list *list, int from, int to, void *data, size_t bytes);

/* Returns a subtree's partial: this worker's own, or where it is received. */
char *ls_exchange_subtree_at(const ls_executor *e, int join, const ls_subtree *subtree);

/* Ranges of shared joins: sends each worker's finding to all, and records what was received. */
void ls_exchange_add_ranges(const ls_executor *e, int first, int joins, ls_piece_list *list);
void ls_exchange_take_ranges(ls_executor *e, int first, int joins, const ls_piece_list *list);

typedef enum ls_exchange_point {
    LS_AT_PARTS,
    LS_AT_LATE,
    LS_AT_FETCHES,
    LS_AT_AUDIT,
    LS_AT_SLICES /* One more for each further slice. */
} ls_exchange_point;

/* Posts the list `posted`. */
ls_status ls_exchange_post_list(ls_executor *e, int level, int point, const char *what);

/* ---- slices.c ---- */

size_t ls_slices_bytes(const ls_exchange *exchange, const ls_plan *plan);
ls_status ls_slices_create(ls_exchange *exchange, const ls_plan *plan, char *room);
void ls_slices_destroy(ls_exchange *exchange);

#endif
