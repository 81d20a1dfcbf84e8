/* lockstep/data.h: data to train on: files, arrays and functions as datasets; pipelines; iteration by hand.
 *
 * A dataset is a recipe for a sequence of elements; an element has one or more components, each an array: features,
 * then labels, then sample weights. Datasets do not change once made and may be used by several threads. *Builders*
 * (ls_from_*, ls_shuffle, ls_batch, ...) take over the dataset they are given and always return one; a wrong call
 * returns a dataset that keeps the error, and the first call that iterates or asks it reports the message.
 *     d = ls_batch(ls_shuffle(ls_from_tensor_slices(x, y), 60000, 1), 256, false);
 * Files are read, and specs are checked, when a dataset is first iterated or asked. */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include "lockstep/base.h"
#include "lockstep/graph.h"
#include "lockstep/run.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_dataset ls_dataset;
typedef struct ls_iterator ls_iterator;
typedef struct ls_rows ls_rows;

#define LS_MAX_COMPONENTS 8
#define LS_INFINITE       (-1) /* of a count of elements */
#define LS_UNKNOWN        (-2)

/* One element. The arrays are the library's: views that last until the next element is asked for. */
typedef struct ls_element {
    int count;
    ls_array component[LS_MAX_COMPONENTS];
    uint64_t epoch; /* of this pass over the data: the number that keys its order */
    int64_t number; /* of this element within the pass, from 0 */
} ls_element;

typedef struct ls_spec {
    ls_dtype dtype;
    ls_shape shape; /* dims[0] is LS_BATCH where the last batch may be smaller than the others */
} ls_spec;

/* What the elements of a dataset look like. The counts of features, labels and weights say which components are which,
 * in that order; left 0 they mean (features), (features, labels) or (features, labels, weights). */
typedef struct ls_element_spec {
    int count;
    ls_spec component[LS_MAX_COMPONENTS];
    int features, labels, weights;
    int64_t batch; /* samples in a full batch; 0: an element is one sample */
} ls_element_spec;

/* LS_ELEMENT(LS_SPEC(LS_F32, LS_SHAPE(28, 28, 1)), LS_SPEC(LS_I32, LS_SCALAR)) */
#define LS_SPEC(element, sizes) ((ls_spec){ .dtype = element, .shape = sizes })
#define LS_ELEMENT(...)                                                                                                \
    ((ls_element_spec){ .count = (int)(sizeof((const ls_spec[]){ __VA_ARGS__ }) / sizeof(ls_spec)),                    \
                        .component = { __VA_ARGS__ } })

/* ---- Data by name ---- */

/* name: "fashion-mnist" or "mnist" (looked for in $LOCKSTEP_DATA/name, $LOCKSTEP_DATA, the user's cache folder and
 * where Debian's package puts it), a folder of IDX files, FILE.npz (x_train y_train x_test y_test), FILE.csv (the last
 * column is the label) or "synthetic:224x224x3,classes=1000,count=64,seed=1" (or other sizes; random bytes). The
 * training set is read now, the test set when first used. Either output may be NULL: that set is then not looked for.
 * *test is set to NULL when there is none (.csv, an .npz without x_test). u8 images stay u8; images without a channel
 * axis get one: [60000,28,28,1]. ctx is for the log and may be NULL. */
LS_API ls_status ls_load_data(ls_context *ctx, const char *name, ls_dataset **train, ls_dataset **test);

/* ---- Files to arrays, the caller frees out->data with free(); and back ---- */

LS_API ls_status ls_idx_read(const char *path, ls_array *out); /* gzip or not */
LS_API ls_status ls_npy_read(const char *path, ls_array *out);
LS_API ls_status ls_npz_read(const char *path, const char *name, ls_array *out); /* one array of the archive */
LS_API ls_status ls_csv_read(const char *path, ls_array *features, ls_array *labels);

/* The bytes that numpy.save writes. The file appears when it is complete; an old one is replaced. */
LS_API ls_status ls_npy_write(const char *path, ls_array array);
/* An archive of arrays, as numpy.savez writes them: not packed, in the order given, without dates, so that equal arrays
 * give equal files. Less than 4 GiB. */
LS_API ls_status ls_npz_write(const char *path, const char *const *names, const ls_array *arrays, size_t count);

/* ---- Sources ---- */

typedef enum ls_keep {
    LS_KEEP_COPY = 0, /* the arrays are copied */
    LS_KEEP_BORROWED, /* they stay the caller's and must outlive the dataset and its iterators */
    LS_KEEP_OWNED,    /* the dataset frees each with free(), also when the call is wrong */
} ls_keep;

typedef struct ls_arrays_options {
    int ls_first;
    ls_array features, labels, weights; /* labels and weights may be left out */
    const ls_array *inputs;             /* several features, in place of `features` */
    int input_count;
    const ls_array *targets; /* several labels, in place of `labels` */
    int target_count;
    ls_keep keep;
} ls_arrays_options;

/* An element for each index of axis 0, which must be equal in all arrays: ls_from_tensor_slices(x, y, .weights = w) */
#define ls_from_tensor_slices(...) ls_from_tensor_slices_with((ls_arrays_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_dataset *ls_from_tensor_slices_with(ls_arrays_options options);

/* One element: the arrays themselves. */
#define ls_from_tensors(...) ls_from_tensors_with((ls_arrays_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_dataset *ls_from_tensors_with(ls_arrays_options options);

/* Fills out's arrays, which have the sizes of the spec, for element out->number of pass out->epoch, or sets *end.
 * Called in order, from number 0 in each pass, by one thread at a time for one iterator. Another status than LS_OK ends
 * the pass. */
typedef ls_status (*ls_generator)(void *user, ls_element *out, bool *end);
LS_API ls_dataset *ls_from_generator(ls_generator generator, void *user, ls_element_spec spec);

/* ---- Pipelines, as tf.data has them: each takes over `source` ---- */

LS_API ls_dataset *ls_repeat(ls_dataset *source, int64_t count); /* -1: for ever */
LS_API ls_dataset *ls_take(ls_dataset *source, int64_t count);   /* -1: all */
LS_API ls_dataset *ls_skip(ls_dataset *source, int64_t count);   /* -1: all */

/* Elements index, index + count, index + 2 count, ...: one of `count` parts. It is a part of the job, the same on all
 * workers of a cluster: each of them already computes its own rows of every batch, and a dataset that is sharded by
 * rank is refused as other data. */
LS_API ls_dataset *ls_shard(ls_dataset *source, int64_t count, int64_t index);

/* Each element is drawn from a window of the next `buffer` ones; a window that holds the whole set gives a uniform
 * permutation. The order depends on (seed, epoch) alone, and each repetition is an epoch of its own. */
LS_API ls_dataset *ls_shuffle(ls_dataset *source, int64_t buffer, uint64_t seed);

/* Elements put together along a new axis 0. */
LS_API ls_dataset *ls_batch(ls_dataset *source, int64_t size, bool drop_remainder);

/* Writes `out`, whose arrays have the sizes of the output spec, from `in`. Called by several threads at once; in->epoch
 * and in->number may key random numbers, so that they do not depend on the threads. */
typedef ls_status (*ls_map_function)(void *user, const ls_element *in, ls_element *out);

typedef struct ls_map_options {
    int ls_first;
    ls_map_function function;
    void *user;
    ls_element_spec output; /* left out: like the input */
    int threads;            /* 0 or 1: the thread that iterates calls the function itself */
} ls_map_options;

/* ls_map(d, augment, .user = &settings, .threads = 4). The order of elements is kept. In a cluster a map of single
 * samples over arrays is called for the samples that this worker computes, and not for the others of a batch. */
#define ls_map(source, ...) ls_map_with(source, (ls_map_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_dataset *ls_map_with(ls_dataset *source, ls_map_options options);

/* A thread that runs up to `count` elements ahead of the iterating one. */
LS_API ls_dataset *ls_prefetch(ls_dataset *source, int count);

/* ---- Asking and ending ---- */

/* LS_OK, or the error the dataset keeps. Reads what is not read yet. */
LS_API ls_status ls_dataset_status(ls_dataset *dataset);
LS_API ls_status ls_dataset_spec(ls_dataset *dataset, ls_element_spec *out);
LS_API ls_status ls_dataset_count(ls_dataset *dataset, int64_t *out); /* elements; LS_INFINITE; LS_UNKNOWN */

/* Another handle on the same dataset: to build on one and keep the other. Each is destroyed or taken over once. */
LS_API ls_dataset *ls_dataset_share(ls_dataset *dataset);
LS_API void ls_dataset_destroy(ls_dataset *dataset);

/* Cuts off the last `fraction` of the samples, as Keras's validation_split: of n samples the first floor(n * (1 -
 * fraction)) are *train, the others *validation. `dataset` stays the caller's. It must have a known count, and be
 * neither shuffled nor batched yet. */
LS_API ls_status ls_dataset_split(ls_dataset *dataset, double fraction, ls_dataset **train, ls_dataset **validation);

/* ---- Iterating by hand ---- */

/* One pass; `epoch` keys the order of shuffled data. The iterator keeps what it needs of the dataset alive. One thread
 * at a time uses it. */
LS_API ls_status ls_iterator_create(ls_dataset *dataset, uint64_t epoch, ls_iterator **out);

/* *out is NULL at the end; otherwise valid until the next call. After an error every call reports it again. */
LS_API ls_status ls_iterator_next(ls_iterator *iterator, const ls_element **out);
LS_API void ls_iterator_destroy(ls_iterator *iterator); /* stops its threads */

/* ---- Rows in place ---- */

/* Whether the elements are rows of arrays in memory: slices or tensors with any of repeat, take, skip, shard,
 * shuffle, prefetch and one batch on top, but no map or generator. Then a pass can be had as lists of row numbers,
 * without copying. */
LS_API ls_status ls_dataset_has_rows(ls_dataset *dataset, bool *out);

/* One pass over such a dataset, in the order an iterator of the same epoch would have. */
LS_API ls_status ls_rows_create(ls_dataset *dataset, uint64_t epoch, ls_rows **out);

/* The arrays that the rows belong to, sizes of axis 0 included; valid as long as `rows`. */
LS_API const ls_element *ls_rows_base(const ls_rows *rows);

/* The rows of the next element: of a batch, its samples; else one. *count is 0 at the end. The list is valid until the
 * next call. */
LS_API ls_status ls_rows_next(ls_rows *rows, const int64_t **list, int64_t *count);
LS_API void ls_rows_destroy(ls_rows *rows);

#ifdef __cplusplus
}
#endif
#endif
