/* Shared by exchange.c and slices.c. */
#ifndef LS_RUN_EXCHANGE_PRIVATE_H
#define LS_RUN_EXCHANGE_PRIVATE_H

#include "run/exchange.h"
#include "run/peers.h"

typedef struct ls_piece_list {
    ls_piece *pieces; /* room for the longest */
    size_t count;
    char *ranges; /* by worker and join: ls_range of its results */
} ls_piece_list;

/* A maximal complete subtree of the tree that lies in a worker's range of lanes, and has samples. */
typedef struct ls_subtree {
    int worker, first, end;
} ls_subtree;

/* How far a list of slices has come. */
typedef struct ls_slice_place {
    int join;
    int64_t at; /* elements of its part, from the part's first */
} ls_slice_place;

struct ls_exchange {
    ls_peers *peers;
    ls_subtree *subtrees; /* in the order of lanes */
    int subtree_count;
    ls_piece_list now, posted;
    atomic_bool moves; /* something was posted, and is not settled */
    char **received;   /* by join and lane: where the subtree that begins there comes to; NULL: none does */
    ls_memory *device;
    ls_block *block;           /* of its memory; NULL: nothing comes */
    char *memory;              /* of it: what comes as a whole */
    char *slices;              /* two for each subtree: the one that comes, and the one that is joined */
    ls_slice_place *places[3]; /* by worker: of parts that go out, parts that are joined, and sums */
};

static inline size_t ls_exchange_index(const ls_plan *plan, int join, int lane)
{
    return (size_t)join * (size_t)plan->lanes + (size_t)lane;
}

/* Workers by their places; to LS_ALL_WORKERS or one. What goes between two others is not listed. */
void ls_exchange_add(const ls_executor *e, ls_piece_list *list, int from, int to, void *data, size_t bytes);

/* Where the subtree's part of a join is: own or to come. */
char *ls_exchange_subtree_at(const ls_executor *e, int join, const ls_subtree *subtree);

/* What workers have found of joins that are shared out: whether what each has joined is finite, from each to all; and
 * when that is here. */
void ls_exchange_add_ranges(const ls_executor *e, int first, int joins, ls_piece_list *list);
void ls_exchange_take_ranges(ls_executor *e, int first, int joins, const ls_piece_list *list);

typedef enum ls_exchange_point {
    LS_AT_PARTS,
    LS_AT_LATE,
    LS_AT_FETCHES,
    LS_AT_AUDIT,
    LS_AT_SLICES /* and so on, with each slice */
} ls_exchange_point;

/* Posts x->posted. */
ls_status ls_exchange_post_list(ls_executor *e, int level, int point, const char *what);

/* ---- slices.c ---- */

size_t ls_slices_bytes(const ls_exchange *exchange, const ls_plan *plan);
ls_status ls_slices_create(ls_exchange *exchange, const ls_plan *plan, char *room);
void ls_slices_destroy(ls_exchange *exchange);

#endif
