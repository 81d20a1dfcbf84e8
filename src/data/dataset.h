/* Datasets and passes over them.
 *
 * A dataset is a node with at most one source. Each kind of node is a row of functions (ls_dataset_type). A *cursor* is
 * one pass over a node; it has a cursor of the source. Elements travel in *slots*, which belong to whoever asks: what a
 * cursor puts into a slot stays good until the slot is used again, whatever happens to the cursor. So elements can wait
 * in a window or a ring without being copied.
 *
 * As long as nothing but order has changed, an element is a row number of the base arrays, and is made into views only
 * where somebody wants to see them. */
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/status.h"
#include "lockstep/data.h"

typedef struct ls_cursor ls_cursor;

/* ---- Slots ---- */

#define LS_MOST_MAPS 4 /* of a dataset whose samples are made on demand (on_demand.h) */

/* What a map's function is called with, beside the arrays. */
typedef struct ls_element_key {
    uint64_t epoch;
    int64_t number;
} ls_element_key;

typedef struct ls_slot {
    ls_element element;            /* views; not set when is_row or list_count say otherwise */
    void *room[LS_MAX_COMPONENTS]; /* memory of the slot's own, where elements are made */
    size_t room_bytes[LS_MAX_COMPONENTS];
    bool is_row; /* the element is row `row` of the base */
    int64_t row;
    int64_t *list; /* in a pass over rows: the rows of a batch */
    int64_t list_count;
    size_t list_room;
    ls_element_key keys[LS_MOST_MAPS]; /* in a pass over rows: of each map that the row has yet to go through */
    ls_element_key *key_list;          /* of the rows of a batch, LS_MOST_MAPS each */
    size_t key_count, key_room;
} ls_slot;

void ls_slot_free(ls_slot *slot);
void ls_slot_swap(ls_slot *a, ls_slot *b);

/* Memory for component `index`: at least `bytes`, of which the first `keep` stay as they were. */
ls_status ls_slot_reserve(ls_slot *slot, int index, size_t bytes, size_t keep);
ls_status ls_slot_append_row(ls_slot *slot, int64_t row);
ls_status ls_slot_append_keys(ls_slot *slot, const ls_element_key keys[LS_MOST_MAPS]);

/* The slot's own arrays in the shapes of `spec`, with `batch` for LS_BATCH. */
ls_status ls_slot_make(ls_slot *slot, const ls_element_spec *spec, int64_t batch);

/* Views, where the slot holds only a row number. */
void ls_slot_show(ls_slot *slot, const ls_element *base);

/* ---- Nodes ---- */

typedef struct ls_dataset_type {
    const char *name; /* of the builder, for messages */
    /* Sets spec, count and base from those of the source, which is prepared. May take long: files are read here. */
    ls_status (*prepare)(ls_dataset *dataset);
    void (*destroy)(ls_dataset *dataset);                           /* NULL: nothing to do */
    size_t state_bytes;                                             /* of a cursor */
    ls_status (*begin)(ls_cursor *cursor);                          /* NULL: nothing to do; the state is zeroed */
    ls_status (*next)(ls_cursor *cursor, ls_slot *slot, bool *end); /* not called again after the end or an error */
    void (*end)(ls_cursor *cursor);                                 /* NULL: nothing to do; also after a failed begin */
} ls_dataset_type;

/* Reads arrays when they are first needed; `out` has spec.features and so on set. */
typedef ls_status (*ls_loader)(void *state, ls_element *out);

struct ls_dataset {
    const ls_dataset_type *type;
    atomic_int handles;
    ls_dataset *source;    /* a handle of ours; NULL for sources */
    pthread_mutex_t mutex; /* of preparing */
    bool prepared;
    ls_status status; /* the error it keeps, with its message */
    char *message;
    /* set by prepare */
    ls_element_spec spec;
    int64_t count;            /* of elements */
    const ls_element *base;   /* NULL: elements are no rows of arrays in memory */
    const ls_element *origin; /* rows that elements are, or that maps make them of, one by one; NULL: there are none */
    int maps;                 /* in it and below, as long as there is an origin */
    int shuffles;             /* in it and below */
    bool together;            /* all workers of a cluster iterate at once, on the calling thread: see ls_from_worker */
    union {
        struct {
            ls_element arrays; /* with the axis of samples */
            ls_keep keep;
            ls_loader load; /* NULL: the arrays are there */
            void *state;    /* the loader's, freed with free() */
        } arrays;
        struct {
            ls_generator function;
            void *user;
        } generator;
        struct {
            int64_t count;
        } order; /* repeat, take, skip */
        struct {
            int64_t count, index;
        } shard;
        struct {
            int64_t buffer;
            uint64_t seed;
        } shuffle;
        struct {
            int64_t size;
            bool drop_remainder;
        } batch;
        ls_map_options map;
        struct {
            int count;
        } prefetch;
        struct {
            ls_context *ctx;
            int rank;
            ls_dataset *data; /* a handle of ours; NULL: another worker has it */
            /* what tells its data from other data, as train/identity.h has it */
            int64_t samples;
            char sha256[65];
        } worker;
    } u;
};

/* A new node over `source` (which it takes over; NULL: none), or the source itself if it keeps an error already. */
ls_dataset *ls_dataset_node(const ls_dataset_type *type, ls_dataset *source);

/* The same for builders that need a source. *built: it is a new node whose fields may be set. */
ls_dataset *ls_dataset_over(const ls_dataset_type *type, ls_dataset *source, bool *built);

/* Makes the node keep an error: builders return ls_dataset_fail(d, LS_ERR_INVALID, "..."). */
ls_dataset *ls_dataset_fail(ls_dataset *dataset, ls_status status, const char *format, ...) LS_PRINTF(3, 4);

/* What cannot be made for want of memory. */
bool ls_dataset_is_lost(const ls_dataset *dataset);

/* Makes spec, count and base known, of the sources first. */
ls_status ls_dataset_prepare(ls_dataset *dataset);

/* Arrays that `load` reads when first needed; takes over `state`, memory freed with free(). */
ls_dataset *ls_dataset_from_loader(ls_loader load, void *state);

/* Fills in what was left 0: which components are which; checks counts, types and shapes. */
ls_status ls_element_spec_check(ls_element_spec *spec, bool batch_axis, const char *what);

/* ---- Cursors ---- */

struct ls_cursor {
    ls_dataset *dataset; /* the iterator holds it alive */
    ls_cursor *source;
    uint64_t epoch;
    bool as_rows; /* give row numbers, never views or data; of a map, the row that it would be called with */
    void *state;
};

ls_status ls_cursor_create(ls_dataset *dataset, uint64_t epoch, bool as_rows, ls_cursor **out);
void ls_cursor_destroy(ls_cursor *cursor);

static inline ls_status ls_cursor_next(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    return cursor->dataset->type->next(cursor, slot, end);
}

/* ---- Kinds of node that more than one file asks for ---- */

extern const ls_dataset_type ls_type_repeat, ls_type_prefetch, ls_type_map;

/* Calls the function of an ls_map: `in` becomes `out`, in arrays of its own. */
ls_status ls_map_call(const ls_dataset *map, ls_element_key key, ls_slot *in, ls_slot *out);

#endif
