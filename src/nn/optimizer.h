/* An optimizer's state as the train layer sees it, and its update in parts. */
#ifndef LS_NN_OPTIMIZER_H
#define LS_NN_OPTIMIZER_H

#include "graph/node.h"
#include "lockstep/nn.h"

/* Variables of the graph that are not trained, in creation order: slots and sums of each variable, and last the step.
 * Tensors are the graph's. */
typedef struct ls_optimizer_state {
    char *name; /* that the state has in the graph */
    ls_tensor **all;
    size_t count;
    ls_tensor *iterations; /* updates made; the last of `all` */
    ls_tensor *position;   /* accumulation: batches since the last update; NULL: every batch makes one */
    int64_t every;         /* batches an update is made of */
} ls_optimizer_state;

/* Whether the spec is one that can be applied. */
ls_status ls_optimizer_check(const ls_optimizer *optimizer);

/* Makes the state for these variables, all of them, before any gradient is known. An optimizer of that name, applied
 * later to some or all of them, goes on with it. */
ls_status ls_optimizer_state_make(const ls_optimizer *optimizer, ls_tensor *const *variables, size_t count,
                                  ls_optimizer_state *out);
void ls_optimizer_state_free(ls_optimizer_state *state);

/* Batches that it was applied to: the step that schedules count. */
ls_status ls_optimizer_state_step(const ls_optimizer_state *state, int64_t *out);

/* ls_apply_gradients where gradients are not made in the same run, so that their samples cannot be counted there:
 * `samples` is their number, an i64 scalar. NULL: they are counted. */
ls_tensor *ls_apply_gradients_of(ls_optimizer optimizer, ls_tensor *const *gradients, ls_tensor *const *variables,
                                 size_t count, ls_tensor *learning_rate, ls_tensor *samples);

/* Clips gradients as the optimizer would, norms over all of them: where they are applied elsewhere, in parts. NULL ones
 * stay. An optimizer that is applied to what comes out must not clip again: ls_optimizer_without_clipping. */
ls_status ls_optimizer_clip(const ls_optimizer *optimizer, ls_tensor **gradients, size_t count);
ls_optimizer ls_optimizer_without_clipping(ls_optimizer optimizer);

#endif
