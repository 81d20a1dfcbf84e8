/* lockstep/run.h: running graphs and reading tensors.
 *
 * A run reads every variable as it was at the run's start. Its writes appear together at its end; a run that fails
 * writes nothing. ls_eval runs: every call computes again. Reading is eager: a tensor that holds a value gives it,
 * whatever has happened to variables since; one that holds none is run first, with everything it needs, and holds what
 * came out. A value is held until the tensor is run again or its scope ends. A variable holds nothing: reading it gives
 * its value now. */
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

/* ls_array_of(LS_F32, LS_SHAPE(32, 784), pixels); the data is borrowed for the call, and only read. */
#define ls_array_of(element, sizes, values) ((ls_array){ .data = (void *)(values), .dtype = element, .shape = sizes })

typedef struct ls_feed {
    ls_tensor *input; /* made by ls_op_input */
    ls_array value;   /* per-sample inputs of one run all have the same size on axis 0: that is the batch */
} ls_feed;

/* Runs what `fetches` need, once. Their values are then held: read them with ls_value or ls_read. */
LS_API ls_status ls_eval(ls_graph *graph, const ls_feed *feeds, size_t feed_count, ls_tensor *const *fetches,
                         size_t fetch_count);

/* The same with a batch picked from sets in memory: sample i is row rows[i] of every value fed to a per-sample input.
 * The rows are read where they are, by the task that needs them. */
LS_API ls_status ls_eval_rows(ls_graph *graph, const ls_feed *feeds, size_t feed_count, const int64_t *rows,
                              int64_t row_count, ls_tensor *const *fetches, size_t fetch_count);

/* How many lanes the batch of this graph's runs is cut into; 0: chosen from the size of the work. The number of lanes
 * is part of what decides the bits; the number of devices is not. */
LS_API ls_status ls_graph_set_lanes(ls_graph *graph, int lanes);

/* What a run of these fetches would do and need with that many samples: each node's kernel and micro-batch, and the
 * memory; the caller frees the text. batch -1: there is no batch axis. */
LS_API ls_status ls_explain(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count, int64_t batch, char **out);

/* Where such a run would compute each node, as text: a table of node, op, device and reason. */
LS_API ls_status ls_explain_placement(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count, int64_t batch,
                                      char **out);

/* What memory such a run would need of each device and what there is, with the largest values, as text; *fits (may be
 * NULL): whether it fits. If not, the text has the largest batch that would. */
LS_API ls_status ls_explain_memory(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count, int64_t batch,
                                   bool *fits, char **out);

/* What decides the bits of this context's runs, beside graph, data and lanes: the number of their definition
 * (docs/bits.md), and the hash of a canary, a small training step that is run for it on the first device of each kind.
 * A kind whose canary is not the CPU's is named beside it. So is a kind with a device that fails a self-check: every
 * distinct device runs some (subnormals, division, functions, Adam, batch norm), which are compared with the CPU's
 * reference kernels. Contexts with equal texts compute equal bits. The class is found once for each context. free()
 * the text. */
LS_API ls_status ls_bit_class(ls_context *ctx, char **out);

/* A view of the value; valid until the tensor is run again, its scope ends, or its graph is destroyed. */
LS_API ls_status ls_value(ls_tensor *tensor, ls_array *out);

/* A copy of the value; `bytes` must be its size. */
LS_API ls_status ls_read(ls_tensor *tensor, void *data, size_t bytes);

/* The value of a tensor with one element, of any type. */
LS_API ls_status ls_read_scalar(ls_tensor *tensor, double *out);

/* The value as text, TensorFlow's way: "[[22. 28.]\n [49. 64.]], shape=(2, 2), dtype=float32"; free() it. */
LS_API ls_status ls_format(ls_tensor *tensor, char **out);

/* Prints it as TensorFlow prints a tensor, with a newline; out NULL: to standard output. */
LS_API ls_status ls_print(ls_tensor *tensor, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
