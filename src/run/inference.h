/* Runs formulas without writes in the calling thread, again and again: after the first run of a
 * batch size nothing is allocated, no other thread takes part, and prepared weights are kept. */
#ifndef LS_RUN_INFERENCE_H
#define LS_RUN_INFERENCE_H

#include "lockstep/run.h"
#include "run/executor.h"

typedef struct ls_inference ls_inference;

/* Uses a graph in which all nodes are placed on the first CPU; the caller owns it and destroys it
 * after the inference. Lists are copied. */
ls_status ls_inference_create(ls_graph *graph, ls_tensor *const *inputs, size_t input_count, ls_tensor *const *outputs,
                              size_t output_count, ls_inference **out);
void ls_inference_destroy(ls_inference *inference);

/* The variables have other values, or other memory, than at the last run. */
void ls_inference_forget_weights(ls_inference *inference);

/* Computes the outputs of `batch` samples into memory of the caller. The arrays have the types and
 * shapes of inputs and outputs. */
ls_status ls_inference_run(ls_inference *inference, const ls_array *inputs, const ls_array *outputs, int64_t batch);

#endif
