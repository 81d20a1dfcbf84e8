/* lockstep/data.h: datasets from files, arrays and functions; pipelines; iteration by hand.
 *
 * A dataset describes a sequence of elements. An element has one or more components, each an
 * array: features, then labels, then sample weights. Datasets are immutable, and several threads
 * may use one. *Builders* (ls_from_*, ls_shuffle, ls_batch, ...) take ownership of the dataset
 * they are given and always return one. A wrong call returns a dataset that keeps the error; the
 * first call that iterates or queries it reports the message.
 *     d = ls_batch(ls_shuffle(ls_from_tensor_slices(x, y), 60000, 1), 256, false);
 * Files are read, and specs are checked, when a dataset is first iterated or queried. */
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
#define LS_INFINITE       (-1) /* number of elements: endless */
/* Number of elements that cannot be known without iterating. */
#define LS_UNKNOWN (-2)

/* One element. The library owns the arrays, which are valid until the next element is requested. */
typedef struct ls_element {
    int count;
    ls_array component[LS_MAX_COMPONENTS];
    uint64_t epoch; /* number of the pass over the data; it decides the order of shuffled data */
    int64_t number; /* index of this element in the pass, from 0 */
} ls_element;

typedef struct ls_spec {
    ls_dtype dtype;
    ls_shape shape; /* dims[0] is LS_BATCH if the last batch may be smaller than the others */
} ls_spec;

/* Types and shapes of a dataset's elements. Components are features, labels and weights, in
 * this order. If all three counts are 0, they are (features), (features, labels) or
 * (features, labels, weights). */
typedef struct ls_element_spec {
    int count;
    ls_spec component[LS_MAX_COMPONENTS];
    int features, labels, weights;
    int64_t batch; /* samples in a full batch; 0: an element is one sample */
} ls_element_spec;

/* LS_ELEMENT(LS_SPEC(LS_F32, LS_SHAPE(28, 28, 1)), LS_SPEC(LS_I32, LS_SCALAR)) */
#ifndef __cplusplus /* cplusplus.h has them as functions */
#define LS_SPEC(element, sizes) ((ls_spec){ .dtype = element, .shape = sizes })
#define LS_ELEMENT(...)                                                                                                \
    ((ls_element_spec){ .count = (int)(sizeof((const ls_spec[]){ __VA_ARGS__ }) / sizeof(ls_spec)),                    \
                        .component = { __VA_ARGS__ } })
#endif

/* ---- Loading datasets by name ---- */

/* Names of datasets: "fashion-mnist" or "mnist" (searched in $LOCKSTEP_DATA/name, $LOCKSTEP_DATA,
 * the user's cache folder and the folder of Debian's package), a folder of IDX files, a folder of
 * images (photos/{train,test}/CLASS/FILE, or photos/CLASS/FILE), FILE.npz (x_train y_train x_test
 * y_test), "x.npy,y.npy" (ls_from_array_files), FILE.csv or FILE.tsv (a table, or only numbers with
 * the labels in the last column), "shards-{000..009}.tar", "text:FILE,context=256" (text.h), or
 * random bytes: "synthetic:224x224x3,classes=1000,count=64,seed=1", also with other sizes. u8
 * images stay u8; images without a channel axis get one: [60000,28,28,1]. docs/data.md describes
 * each. */

/* How images become arrays of one size. */
typedef struct ls_image_options {
    int ls_first;
    int64_t size[2];  /* height and width; 0: those of the first image */
    int64_t channels; /* 1: grey, 3: red, green and blue; 0: those of the first image */
    int threads;      /* number of threads that decode images; 0: one for each CPU core, at most 16 */
    /* Decodes every image when the dataset is opened, and leaves broken ones out
     * (ls_dataset_left_out). Without it, a broken image is an error when it is needed. */
    bool skip_broken;
    /* Names of the classes in the order of their numbers (default: the folders, sorted by name) */
    const char *const *classes;
    int64_t class_count;
} ls_image_options;

typedef enum ls_missing {
    LS_MISSING_FILL = 0, /* the median of a column of numbers; a category of its own for texts */
    LS_MISSING_ERROR,    /* an error that names line and column */
} ls_missing;

/* What a table learns from a CSV or TSV file. */
typedef struct ls_table_options {
    int ls_first;
    const char *label; /* name of the column with the labels (default: the last column) */
    const char *drop;  /* comma-separated names of columns to leave out */
    /* comma-separated names of columns whose numbers are names of categories, such as codes */
    const char *text;
    ls_missing missing; /* what to do with empty fields */
    int64_t take;       /* learns from the first `take` rows; 0: all */
    /* learns from all but this last part of the rows, as ls_dataset_split divides them */
    double validation_split;
} ls_table_options;

/* How the columns of a file become features and labels: vocabularies, medians, means and standard
 * deviations of the training part. Immutable. */
typedef struct ls_table ls_table;

typedef struct ls_load_options {
    int ls_first;
    ls_dataset **train, **test; /* outputs; one that is NULL is not searched for */
    ls_image_options image;
    ls_table_options columns; /* what to learn from a table */
    const ls_table *table;    /* reads a table as another file was read; NULL: learns from the file */
    /* receives the table that was learned, or NULL; the caller destroys it */
    ls_table **learned;
} ls_load_options;

/* Reads a training set now, and its test set when it is first used: ls_load_data(ctx, "photos",
 * &train, &test, .image = { .size = { 96, 96 } }). The caller owns both. *test becomes NULL if
 * there is no test set (a table, or .npz without x_test). ctx is used for the log and may be NULL.
 * */
#define ls_load_data(ctx, name, ...) ls_load_data_with(ctx, name, (ls_load_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_status ls_load_data_with(ls_context *ctx, const char *name, ls_load_options options);

/* ---- Tables ---- */

/* Learns from a CSV or TSV file with a header: ls_table_create("iris.csv", &table, .label =
 * "kind"). The caller destroys the result. */
#define ls_table_create(...)                                                                                           \
    ls_table_create_with(LS_ARGUMENT_1_(__VA_ARGS__, ),                                                                \
                         (ls_table_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) },                              \
                         LS_ARGUMENT_2_(__VA_ARGS__, ))
LS_API ls_status ls_table_create_with(const char *path, ls_table_options options, ls_table **out);
/* Writes a table as JSON; ls_table_load reads it. */
LS_API ls_status ls_table_save(const ls_table *table, const char *path);
/* Reads a table that ls_table_save wrote. The caller destroys it. */
LS_API ls_status ls_table_load(const char *path, ls_table **out);
/* Describes the columns, one per line. The caller frees the text. */
LS_API ls_status ls_table_describe(const ls_table *table, char **out);
/* Frees a table. Datasets of it keep what they need. */
LS_API void ls_table_destroy(ls_table *table);
/* Makes a dataset of a file with the same columns: [N,features] of float32, and labels if the file
 * has them: int64 classes or float32 numbers. The caller owns it. */
LS_API ls_dataset *ls_from_table(const ls_table *table, const char *path);

/* ---- Reading and writing array files; the caller frees out->data with free() ---- */

/* Reads an IDX file, compressed by gzip or not. */
LS_API ls_status ls_idx_read(const char *path, ls_array *out);
/* Reads a .npy file. */
LS_API ls_status ls_npy_read(const char *path, ls_array *out);
/* Reads one array of an .npz archive. */
LS_API ls_status ls_npz_read(const char *path, const char *name, ls_array *out);
/* Reads a CSV file with labels in the last column. */
LS_API ls_status ls_csv_read(const char *path, ls_array *features, ls_array *labels);

/* Writes the bytes that numpy.save writes. The file appears when it is complete,
 * and replaces an older one. */
LS_API ls_status ls_npy_write(const char *path, ls_array array);
/* Writes an archive like numpy.savez: uncompressed, in the given order and without dates, so
 * that equal arrays give equal files. Smaller than 4 GiB. */
LS_API ls_status ls_npz_write(const char *path, const char *const *names, const ls_array *arrays, size_t count);

/* ---- Sources ---- */

typedef enum ls_keep {
    LS_KEEP_COPY = 0, /* copies the arrays */
    /* the caller keeps the arrays, which must outlive the dataset and its iterators */
    LS_KEEP_BORROWED,
    LS_KEEP_OWNED, /* the dataset frees each array with free(), also if the call is wrong */
} ls_keep;

typedef struct ls_arrays_options {
    int ls_first;
    ls_array features, labels, weights; /* labels and weights are optional */
    const ls_array *inputs;             /* several features, instead of `features` */
    int input_count;
    const ls_array *targets; /* several labels, instead of `labels` */
    int target_count;
    ls_keep keep; /* ownership of the arrays (default: copies them) */
} ls_arrays_options;

/* Makes one element for each index of axis 0, which must have the same size in all arrays:
 * ls_from_tensor_slices(x, y, .weights = w). The caller owns the dataset. */
#define ls_from_tensor_slices(...) ls_from_tensor_slices_with((ls_arrays_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_dataset *ls_from_tensor_slices_with(ls_arrays_options options);

/* Makes a dataset of one element: the arrays themselves. */
#define ls_from_tensors(...) ls_from_tensors_with((ls_arrays_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_dataset *ls_from_tensors_with(ls_arrays_options options);

/* Fills the arrays of `out`, which have the sizes of the spec, for element out->number of pass
 * out->epoch, or sets *end. Called in order, from number 0 in each pass, by one thread at a time
 * for an iterator. Any status but LS_OK ends the pass with that error. */
typedef ls_status (*ls_generator)(void *user, ls_element *out, bool *end);
/* Makes a dataset from a function. `user` must outlive the dataset and its iterators. */
LS_API ls_dataset *ls_from_generator(ls_generator generator, void *user, ls_element_spec spec);

/* Fills the arrays of `out`, which have the sizes of the spec, for element out->number. Several
 * threads may call it at once, in any order, and again for the same element, which must then be the
 * same. */
typedef ls_status (*ls_element_function)(void *user, ls_element *out);
/* Makes a dataset of `count` elements from a function that makes any of them on request. Shuffling
 * draws numbers of elements, not elements, and a worker of a cluster makes only the samples that it
 * computes. `user` must outlive the dataset and its iterators. */
LS_API ls_dataset *ls_from_function(int64_t count, ls_element_spec spec, ls_element_function function, void *user);

/* Makes a dataset of a folder that has a folder of .jpg, .jpeg and .png files for each class:
 * ls_from_image_folder("photos/train", .size = { 224, 224 }, .channels = 3). Elements are u8 images
 * [height,width,channels] and the int64 number of their class; files are decoded when they are
 * needed. */
#define ls_from_image_folder(...)                                                                                      \
    ls_from_image_folder_with(LS_ARGUMENT_1_(__VA_ARGS__, ),                                                           \
                              (ls_image_options){ .ls_first = 0, LS_AFTER_1_(__VA_ARGS__, ) })
LS_API ls_dataset *ls_from_image_folder_with(const char *path, ls_image_options options);

/* The same for tar files in WebDataset's layout, with KEY.jpg, .jpeg or .png and KEY.cls, the
 * number of the class, for each sample: ls_from_image_shards("shards-{000..009}.tar"). */
#define ls_from_image_shards(...)                                                                                      \
    ls_from_image_shards_with(LS_ARGUMENT_1_(__VA_ARGS__, ),                                                           \
                              (ls_image_options){ .ls_first = 0, LS_AFTER_1_(__VA_ARGS__, ) })
LS_API ls_dataset *ls_from_image_shards_with(const char *pattern, ls_image_options options);

/* Makes a dataset of arrays in files, which are mapped into memory, not read: the system loads the
 * rows that are used, and drops them when it needs memory. Each is FILE.npy, an IDX file of bytes
 * without compression, or FILE.safetensors:NAME. `labels` may be NULL. The files must not change
 * while the dataset exists. */
LS_API ls_dataset *ls_from_array_files(const char *features, const char *labels);

/* ---- Pipelines, as in tf.data: each takes ownership of `source` and returns a new dataset ---- */

/* Repeats the elements `count` times; -1: endlessly. */
LS_API ls_dataset *ls_repeat(ls_dataset *source, int64_t count);
/* Keeps the first `count` elements; -1: all. */
LS_API ls_dataset *ls_take(ls_dataset *source, int64_t count);
/* Skips the first `count` elements; -1: all. */
LS_API ls_dataset *ls_skip(ls_dataset *source, int64_t count);

/* Keeps elements index, index + count, index + 2 count, ... In a cluster, all workers must use
 * the same shard: each already computes only its own rows of every batch, and workers with
 * different data are refused. */
LS_API ls_dataset *ls_shard(ls_dataset *source, int64_t count, int64_t index);

/* Gives the elements of the first dataset, then those of the second. Takes ownership of both, whose
 * specs must be equal. */
LS_API ls_dataset *ls_concatenate_datasets(ls_dataset *first, ls_dataset *second);

/* Draws each element from a window of the next `buffer` elements; a window as large as the
 * dataset gives a uniform permutation. The order depends only on seed and epoch. Each
 * repetition is another epoch. */
LS_API ls_dataset *ls_shuffle(ls_dataset *source, int64_t buffer, uint64_t seed);

/* Combines `size` elements along a new axis 0. drop_remainder drops a
 * last batch that is smaller. */
LS_API ls_dataset *ls_batch(ls_dataset *source, int64_t size, bool drop_remainder);

/* Computes `out`, whose arrays have the sizes of the output spec, from `in`. Several
 * threads may call it at once. Seed random numbers with in->epoch and in->number, so that
 * they do not depend on threads. */
typedef ls_status (*ls_map_function)(void *user, const ls_element *in, ls_element *out);

typedef struct ls_map_options {
    int ls_first;
    ls_map_function function; /* called for each element */
    void *user;               /* passed to the function */
    ls_element_spec output;   /* types and shapes of the result (default: those of the input) */
    int threads;              /* number of threads that call it; 0 or 1: the iterating thread */
} ls_map_options;

/* Applies a function to each element, and keeps the order: ls_map(d, augment, .user = &settings,
 * .threads = 4). In a cluster, a worker calls a map of single samples over arrays only for the
 * samples that it computes. */
#define ls_map(source, ...) ls_map_with(source, (ls_map_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_dataset *ls_map_with(ls_dataset *source, ls_map_options options);

/* Prepares up to `count` elements ahead in a thread of its own. */
LS_API ls_dataset *ls_prefetch(ls_dataset *source, int count);

/* ---- Queries and lifetime ---- */

/* Returns LS_OK, or the error that the dataset keeps. Reads files that were not read yet. */
LS_API ls_status ls_dataset_status(ls_dataset *dataset);
/* Returns the types and shapes of the elements. */
LS_API ls_status ls_dataset_spec(ls_dataset *dataset, ls_element_spec *out);
/* Returns the number of elements, LS_INFINITE or LS_UNKNOWN. */
LS_API ls_status ls_dataset_count(ls_dataset *dataset, int64_t *out);

/* Returns another handle on the same dataset, to build on one and keep the other. Each handle is
 * destroyed, or passed to a builder, once. */
LS_API ls_dataset *ls_dataset_share(ls_dataset *dataset);
/* Releases a handle. */
LS_API void ls_dataset_destroy(ls_dataset *dataset);

/* Splits off the last `fraction` of the samples, as Keras's validation_split: the first floor(n
 * * (1 - fraction)) samples are *train, the others *validation. The caller keeps `dataset`,
 * which must have a known count and must not be shuffled or batched yet, and owns both results. */
LS_API ls_status ls_dataset_split(ls_dataset *dataset, double fraction, ls_dataset **train, ls_dataset **validation);

/* Splits for cross-validation: of n samples in order, *validation gets those from n * index / folds
 * to n * (index + 1) / folds - 1, *train the others. The same rules as for ls_dataset_split. */
LS_API ls_status ls_dataset_fold(ls_dataset *dataset, int64_t folds, int64_t index, ls_dataset **train,
                                 ls_dataset **validation);

/* Returns the names of the classes of image folders and of tables with text labels, valid as long
 * as the dataset; *count is 0 if there are none. */
LS_API ls_status ls_dataset_classes(ls_dataset *dataset, const char *const **names, int64_t *count);
/* Returns the number of files that .skip_broken left out, and a line for each of the first 20,
 * valid as long as the dataset. */
LS_API ls_status ls_dataset_left_out(ls_dataset *dataset, int64_t *count, const char **lines);

/* ---- Iteration by hand ---- */

/* Starts one pass. `epoch` decides the order of shuffled data. The iterator keeps what it needs
 * of the dataset alive. Only one thread at a time may use it. The caller destroys it. */
LS_API ls_status ls_iterator_create(ls_dataset *dataset, uint64_t epoch, ls_iterator **out);

/* Returns the next element, valid until the next call, or NULL at the end. After an error
 * every call returns it again. */
LS_API ls_status ls_iterator_next(ls_iterator *iterator, const ls_element **out);
/* Stops the threads of an iterator and frees it. */
LS_API void ls_iterator_destroy(ls_iterator *iterator);

/* ---- Row numbers instead of copies ---- */

/* Returns whether the elements are rows of arrays in memory: tensors or slices with any of
 * repeat, take, skip, shard, shuffle, prefetch and one batch on top, but no map or generator. A
 * pass over such a dataset is available as lists of row numbers, without copies. */
LS_API ls_status ls_dataset_has_rows(ls_dataset *dataset, bool *out);

/* Starts one pass over such a dataset, in the order of an iterator of that
 * epoch. The caller destroys it. */
LS_API ls_status ls_rows_create(ls_dataset *dataset, uint64_t epoch, ls_rows **out);

/* Returns the arrays that the rows index, with their full size of axis 0;
 * valid as long as `rows`. */
LS_API const ls_element *ls_rows_base(const ls_rows *rows);

/* Returns the rows of the next element: the samples of a batch, or one row. *count is 0 at the
 * end. The list is valid until the next call. */
LS_API ls_status ls_rows_next(ls_rows *rows, const int64_t **list, int64_t *count);
/* Frees it. */
LS_API void ls_rows_destroy(ls_rows *rows);

#ifdef __cplusplus
}
#endif
#endif
