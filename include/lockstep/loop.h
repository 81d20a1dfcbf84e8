/* lockstep/loop.h: training loops by hand, a batch or a step at a time. */
#ifndef LOCKSTEP_LOOP_H
#define LOCKSTEP_LOOP_H

#include "lockstep/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- One step by hand ---- */

typedef struct ls_batch_options {
    int ls_first;
    ls_results *out;             /* results of this batch, before its update */
    ls_array sample_weights;     /* one per sample (default none) */
    const double *class_weights; /* weight of each class, by label (default none) */
    size_t class_count;
    const ls_array *inputs; /* features of a model with several inputs; x is then (ls_array){ 0 } */
    int input_count;
    const ls_array *targets; /* labels of a model with several outputs; y is then (ls_array){ 0 } */
    int target_count;
    ls_strategy strategy; /* distribution of work (default: mirrored) */
    int lanes;            /* number of lanes (default: chosen from the amount of work) */
} ls_batch_options;

/* Makes one training step on all of these samples, as ls_fit does:
 * ls_train_on_batch(model, x, y, &results). */
#define ls_train_on_batch(...)                                                                                         \
    ls_train_on_batch_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                               \
                           LS_ARGUMENT_3_(__VA_ARGS__, ),                                                              \
                           (ls_batch_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) })
LS_API ls_status ls_train_on_batch_with(ls_model *model, ls_array x, ls_array y, ls_batch_options options);

/* ---- Loops by hand ---- */

/* clang-format off */
/* A step is a C function of tensors, written for the whole batch; it does not depend on the
 * number of devices. Like a tf.function it is traced: called once for each kind of data (types,
 * and shapes except the number of samples), and the resulting nodes are run on every batch.
 *     static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
 *     {
 *         trainee *t = user;                                      inputs: images, labels
 *         ls_tensor *predictions = ls_model_apply(t->cnn, inputs[0], true);
 *         ls_tensor *losses = ls_loss_per_sample(ls_sparse_categorical_crossentropy(), inputs[1],
 *                                                predictions);
 *         ls_tensor *loss = ls_average_loss(losses, GLOBAL_BATCH_SIZE);
 *         ls_minimize(ls_adam(), loss, NULL);                     or ls_apply_gradients
 *         ls_metric_state_update(&t->accuracy, inputs[1], predictions, NULL);
 *         outputs[0] = ls_strategy_reduce(LS_REDUCE_SUM, loss, LS_NO_AXIS);
 *     }
 *     ...
 *     ls_loop_step_create(ls_model_graph(cnn), train_step, &t, 1, &step);
 *     for (int epoch = 0; epoch < EPOCHS; epoch++)
 *         for (;;) {
 *             LS_CHECK(ls_distributed_next(data, &batch));
 *             if (!batch)
 *                 break;
 *             LS_CHECK(ls_strategy_run(step, batch, &loss));
 *             LS_CHECK(ls_read_scalar(loss, &value));
 *         }
 * All writes of the function (variables, moving averages, metrics) take effect together at the
 * end of the step. A step that fails changes nothing. Results do not depend on the devices, and
 * equal those of ls_fit bit for bit if the work is the same. */
/* clang-format on */
typedef void (*ls_loop_step_function)(ls_tensor *const *inputs, ls_tensor **outputs, void *user);
typedef struct ls_loop_step ls_loop_step;

/* Makes a step for a graph (of a model: ls_model_graph). `outputs` is the number of tensors that
 * the function returns, per-sample or whole, or 0. The step is freed with the current scope or
 * the graph. For a second kind of data the function must not make variables again: give
 * optimizers a name, and make metrics and variables before the step. */
LS_API ls_status ls_loop_step_create(ls_graph *graph, ls_loop_step_function function, void *user, size_t outputs,
                                     ls_loop_step **out);
/* Frees a step before its scope ends. */
LS_API void ls_loop_step_destroy(ls_loop_step *step);

/* Runs one step on a batch, on the devices of the graph's strategy. Components become the
 * function's inputs: those with axes have the batch axis; scalars are whole (for example a
 * learning rate for ls_apply_gradients, after the batch's own components). Sets outputs (may be
 * NULL) to the function's tensors with their values of this run; the graph owns them. */
LS_API ls_status ls_strategy_run(ls_loop_step *step, const ls_element *batch, ls_tensor **outputs);

/* Reduces a tensor like tf.distribute's reduce, inside a step or outside in an LS_SCOPE. Returns
 * the sum or mean over the samples of a per-sample tensor, and a whole tensor as it is, because
 * it has one value everywhere. Also reduces `axis`, unless it is LS_NO_AXIS. */
#define LS_NO_AXIS (-LS_MAX_RANK - 1)
LS_API ls_tensor *ls_strategy_reduce(ls_reduction reduction, ls_tensor *value, int axis);

/* Iterates a dataset by hand in passes; each pass has its own order if the data is shuffled.
 * The dataset must be batched (ls_batch), with the global batch size. The caller keeps
 * `dataset` and destroys *out. */
typedef struct ls_distributed ls_distributed;
LS_API ls_status ls_distribute_dataset(ls_dataset *dataset, ls_distributed **out);
/* Returns the next batch, valid until the next call. NULL: the pass has ended; the
 * next call begins another. */
LS_API ls_status ls_distributed_next(ls_distributed *data, const ls_element **out);
/* Frees the iterator, not its dataset. */
LS_API void ls_distributed_destroy(ls_distributed *data);

/* Return a replica's part as a view, for inspection. Replicas are numbered from 0
 * (ls_strategy_replicas). ls_replica_element returns the samples of a batch in the replica's
 * lanes; ls_replica_value returns an output of the last run for these samples, or the whole
 * value, which is the same everywhere. With fewer lanes than replicas, some replicas have no
 * samples. */
LS_API ls_status ls_replica_element(ls_loop_step *step, const ls_element *batch, int replica, ls_element *out);
LS_API ls_status ls_replica_value(ls_loop_step *step, size_t output, int replica, ls_array *out);
/* Formats per-replica values like TensorFlow: "PerReplica:{\n  0: tf.Tensor(0.5, shape=(),
 * dtype=float32),\n  1: ...}". The caller frees the text. */
LS_API ls_status ls_format_replicas(ls_loop_step *step, size_t output, char **out);

#ifdef __cplusplus
}
#endif
#endif
