/* lockstep/run.h: running graphs and reading tensors.
 *
 * A run reads every variable as it was when the run began. Its writes appear together at
 * its end; a run that fails writes nothing. Every ls_eval computes again. Reading a tensor
 * returns the value it holds, even if variables have changed since; a tensor without a
 * value is run first, with everything it needs, and keeps the result. A tensor keeps its
 * value until it is run again or its scope ends. A variable has no kept value: reading it
 * returns its current value. */
#ifndef LOCKSTEP_RUN_H
#define LOCKSTEP_RUN_H

#include "lockstep/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A dense row-major array in memory. */
typedef struct ls_array {
    void *data;
    ls_dtype dtype;
    ls_shape shape; /* every size known */
} ls_array;

/* Makes an ls_array: ls_array_of(LS_F32, LS_SHAPE(32, 784), pixels). Calls only read the data,
 * and only until they return. */
#define ls_array_of(element, sizes, values) ((ls_array){ .data = (void *)(values), .dtype = element, .shape = sizes })

typedef struct ls_feed {
    ls_tensor *input; /* made by ls_op_input */
    /* Value to feed. All per-sample inputs of a run have the same size
     * on axis 0, the batch size. */
    ls_array value;
} ls_feed;

/* Runs everything that `fetches` need, once. Read the results with ls_value or ls_read. */
LS_API ls_status ls_eval(ls_graph *graph, const ls_feed *feeds, size_t feed_count, ls_tensor *const *fetches,
                         size_t fetch_count);

/* Runs like ls_eval on a batch selected from larger arrays: sample i is row rows[i] of every
 * value fed to a per-sample input. Tasks read the rows in place, without copying the batch. */
LS_API ls_status ls_eval_rows(ls_graph *graph, const ls_feed *feeds, size_t feed_count, const int64_t *rows,
                              int64_t row_count, ls_tensor *const *fetches, size_t fetch_count);

/* Sets the number of lanes of this graph's runs (default 0: chosen from the amount of work). The
 * number of lanes affects the bits of results; the number of devices does not. */
LS_API ls_status ls_graph_set_lanes(ls_graph *graph, int lanes);

/* Describes what a run of these fetches would do with that batch size: each node's kernel and
 * micro-batch, and the memory. batch -1: no batch axis. The caller frees the text. */
LS_API ls_status ls_explain(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count, int64_t batch, char **out);

/* Describes where such a run would compute each node: a table of node, op, device and reason.
 * The caller frees the text. */
LS_API ls_status ls_explain_placement(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count, int64_t batch,
                                      char **out);

/* Describes the memory that such a run would need on each device, the memory there is, and the
 * largest values. Sets *fits (may be NULL) to whether it fits; if not, the text has the largest
 * batch that does. The caller frees the text. */
LS_API ls_status ls_explain_memory(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count, int64_t batch,
                                   bool *fits, char **out);

/* Returns the bit class as text: the number of the definition (docs/bits.md), the hash of a small
 * training step, and the kinds of devices whose step differs from the CPU's or whose self-check
 * fails. Contexts with equal texts compute equal bits for the same graph, data and lanes. Computed
 * once per context. The caller frees the text. */
LS_API ls_status ls_bit_class(ls_context *ctx, char **out);

/* Returns a view of the value, valid until the tensor is run again, its scope ends
 * or its graph is destroyed. */
LS_API ls_status ls_value(ls_tensor *tensor, ls_array *out);

/* Copies the value to `data`; `bytes` must be its size. */
LS_API ls_status ls_read(ls_tensor *tensor, void *data, size_t bytes);

/* Returns the value of a tensor with one element, of any type, as a double. */
LS_API ls_status ls_read_scalar(ls_tensor *tensor, double *out);

/* Returns the value as TensorFlow prints it: "[[22. 28.]\n [49. 64.]], shape=(2, 2),
 * dtype=float32". The caller frees the text. */
LS_API ls_status ls_format(ls_tensor *tensor, char **out);

/* Prints the value as TensorFlow does, with a newline. out NULL: standard output. */
LS_API ls_status ls_print(ls_tensor *tensor, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
