/* Datasets and passes over them. A dataset is a node with at most one source. A *cursor* is one
 * pass over a node and owns a cursor of the source. Elements are passed in *slots*, which the
 * caller owns: an element stays valid until its slot is used again, so it can wait in a window or a
 * ring buffer without being copied. As long as nodes change only the order, an element is just a
 * row number of the base arrays. */
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/status.h"
#include "lockstep/data.h"

typedef struct ls_cursor ls_cursor;

/* ---- Slots ---- */

#define LS_MOST_MAPS 4 /* maps of a dataset whose samples are made on demand (on_demand.h) */

/* Arguments of a map's function. */
typedef struct ls_element_key {
    uint64_t epoch;
    int64_t number;
} ls_element_key;

typedef struct ls_slot {
    ls_element element;              /* views; unset if the slot holds rows (is_row, list_count) */
    void *memory[LS_MAX_COMPONENTS]; /* memory owned by the slot, for elements that are computed */
    size_t memory_bytes[LS_MAX_COMPONENTS];
    bool is_row; /* the element is row `row` of the base arrays */
    int64_t row;
    int64_t *list; /* when iterating rows: row numbers of a batch */
    int64_t list_count;
    size_t list_capacity;
    /* When iterating rows: key of each map that the row still has to pass. */
    ls_element_key keys[LS_MOST_MAPS];
    ls_element_key *key_list; /* keys of the rows of a batch, LS_MOST_MAPS for each */
    size_t key_count, key_capacity;
} ls_slot;

void ls_slot_free(ls_slot *slot);
void ls_slot_swap(ls_slot *a, ls_slot *b);

/* Ensures that component `index` has at least `bytes` bytes; preserves the first `keep`. */
ls_status ls_slot_reserve(ls_slot *slot, int index, size_t bytes, size_t keep);
ls_status ls_slot_append_row(ls_slot *slot, int64_t row);
ls_status ls_slot_append_keys(ls_slot *slot, const ls_element_key keys[LS_MOST_MAPS]);

/* Allocates the slot's own arrays; `batch` is the size of LS_BATCH. */
ls_status ls_slot_make(ls_slot *slot, const ls_element_spec *spec, int64_t batch);

/* Shows the element of a slot that holds a row of dataset `d`: a view of its arrays, or made in the
 * slot's own memory. Nothing to do for other slots. */
ls_status ls_slot_show(ls_slot *slot, const ls_dataset *d);

/* ---- Nodes ---- */

typedef struct ls_dataset_type {
    const char *name; /* name of the builder function, for messages */
    /* Sets spec, count and base; the source is already prepared. May read files. */
    ls_status (*prepare)(ls_dataset *dataset);
    void (*destroy)(ls_dataset *dataset);  /* NULL: nothing to destroy */
    size_t state_bytes;                    /* size of a cursor's state */
    ls_status (*begin)(ls_cursor *cursor); /* NULL: zeroed state is enough */
    /* Not called again after the end or an error. */
    ls_status (*next)(ls_cursor *cursor, ls_slot *slot, bool *end);
    void (*end)(ls_cursor *cursor); /* NULL: nothing to do; also called after a failed begin */
    /* For nodes that make rows on request: makes one in the slot's own memory. Several threads may
     * call it at once. NULL: the node makes none. */
    ls_status (*make)(const ls_dataset *dataset, int64_t row, ls_slot *slot);
    /* Returns which element of the source, or which row of a node without one, element `index` is.
     * NULL: the order depends on the epoch, or elements are not rows. */
    int64_t (*index_of)(const ls_dataset *dataset, int64_t index);
} ls_dataset_type;

typedef ls_status (*ls_loader)(void *state, ls_element *out);

struct ls_dataset {
    const ls_dataset_type *type;
    atomic_int handles;
    ls_dataset *source;    /* owned reference; NULL for nodes without a source */
    pthread_mutex_t mutex; /* protects prepare */
    bool prepared;
    ls_status status; /* first error, with its message; the node keeps it */
    char *message;
    /* The next fields are set by prepare. */
    ls_element_spec spec;
    int64_t count;          /* number of elements */
    const ls_element *base; /* NULL: elements are not rows of arrays in memory */
    /* Arrays whose rows are the elements, or the input of maps that make them; NULL: none. */
    const ls_element *origin;
    /* Node that makes those rows on request instead; NULL: none. */
    const ls_dataset *maker;
    int make_threads; /* number of threads that make rows ahead; 0: the iterating thread */
    int maps;         /* maps in this node and its sources, if there is an origin or a maker */
    int shuffles;     /* shuffles in this node and its sources */
    /* All workers of a cluster must iterate together (ls_from_worker). */
    bool together;
    /* Owned by a node without a source. */
    const char *const *classes;
    int64_t class_count, left_out;
    const char *left_out_lines;
    union {
        struct {
            ls_element arrays; /* axis 0 counts samples */
            ls_keep keep;
            ls_loader load; /* NULL: the arrays are already loaded */
            void *state;    /* argument of the loader */
            void (*free_state)(void *state);
        } arrays;
        struct {
            ls_generator function;
            void *user;
        } generator;
        struct {
            ls_element_function function;
            void *user;
            int64_t count;
        } function;
        struct ls_image_set *images; /* image_set.h */
        struct ls_text_set *text;    /* text_set.c */
        struct {
            ls_dataset *second; /* owned reference */
        } concatenation;
        struct {
            int64_t first, end;
        } gap; /* elements that are left out */
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
            ls_dataset *data; /* owned reference; NULL: another worker has the data */
            /* Identify the data (src/train/job/identity.h). */
            int64_t samples;
            char sha256[65];
        } worker;
    } u;
};

/* Takes ownership of `source` (NULL: none). Returns the source itself if that has an error. */
ls_dataset *ls_dataset_node(const ls_dataset_type *type, ls_dataset *source);

/* For builders that require a source. *built: the result is a new node whose fields may be set. */
ls_dataset *ls_dataset_over(const ls_dataset_type *type, ls_dataset *source, bool *built);

/* Whether elements are rows: of arrays in memory, or of a node that makes them on request. */
static inline bool ls_dataset_in_rows(const ls_dataset *d)
{
    return d->spec.batch == 0 && (d->base || (d->maker && d->maps == 0));
}

/* Returns the row of element `index`; false if the order of elements depends on the epoch. */
bool ls_dataset_row_of(const ls_dataset *d, int64_t index, int64_t *row);

/* For nodes without a source: gives row numbers in order. The state is an int64_t. */
ls_status ls_next_row(ls_cursor *cursor, ls_slot *slot, bool *end);
int64_t ls_same_index(const ls_dataset *d, int64_t index);

/* Leaves out the elements from `first` to `end` - 1. */
ls_dataset *ls_leave_out(ls_dataset *source, int64_t first, int64_t end);

/* Copies spec, count, base and maps of the source. */
void ls_dataset_copy_source(ls_dataset *d);

/* Stores an error in the node. Builders return ls_dataset_fail(d, LS_ERR_INVALID, "..."). */
ls_dataset *ls_dataset_fail(ls_dataset *dataset, ls_status status, const char *format, ...) LS_PRINTF(3, 4);

/* Returns whether this is the dataset that builders return when memory runs out. */
bool ls_dataset_is_lost(const ls_dataset *dataset);

/* Prepares the sources and then the node. */
ls_status ls_dataset_prepare(ls_dataset *dataset);

/* Creates a dataset of arrays that `load` reads on first use. Takes ownership of `state`, freed
 * with free_state, after the arrays. */
ls_dataset *ls_dataset_from_loader(ls_loader load, void *state, void (*free_state)(void *state));

/* Derives the roles of the components if they are 0; checks them. */
ls_status ls_element_spec_check(ls_element_spec *spec, bool batch_axis, const char *what);

/* ---- Cursors ---- */

struct ls_cursor {
    ls_dataset *dataset; /* the iterator holds a reference */
    ls_cursor *source;
    uint64_t epoch;
    bool as_rows; /* row numbers, never views or data; for maps, rows of the map's input */
    void *state;
};

ls_status ls_cursor_create(ls_dataset *dataset, uint64_t epoch, bool as_rows, ls_cursor **out);
void ls_cursor_destroy(ls_cursor *cursor);

static inline ls_status ls_cursor_next(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    return cursor->dataset->type->next(cursor, slot, end);
}

/* ---- Node types used by several files ---- */

extern const ls_dataset_type ls_type_repeat, ls_type_prefetch, ls_type_map;

ls_status ls_map_call(const ls_dataset *map, ls_element_key key, ls_slot *in, ls_slot *out);

#endif
