/* The state of an optimizer as the train layer sees it, and helpers for partial updates. */
#ifndef LS_NN_OPTIMIZER_H
#define LS_NN_OPTIMIZER_H

#include "graph/node.h"
#include "lockstep/nn.h"

/* The state in creation order, the step last. The graph owns the tensors. */
typedef struct ls_optimizer_state {
    char *name;
    ls_tensor **all;
    size_t count;
    ls_tensor *iterations; /* number of updates; last element of `all` */
    /* Gradient accumulation: batches since the last update. NULL: each batch is an update. */
    ls_tensor *position;
    int64_t every; /* batches per update */
    /* With use_ema: variables and their averages. */
    ls_tensor **averaged, **averages;
    size_t average_count;
    bool swapped; /* variables have the values of their averages, and the other way round */
} ls_optimizer_state;

ls_status ls_optimizer_check(const ls_optimizer *optimizer);

/* Creates the state before gradients are known; an optimizer of the same name that is applied later
 * uses it. */
ls_status ls_optimizer_state_make(const ls_optimizer *optimizer, ls_tensor *const *variables, size_t count,
                                  ls_optimizer_state *out);
void ls_optimizer_state_free(ls_optimizer_state *state);

/* Gives variables the values of their averages (use_ema), or gives each its own back. */
ls_status ls_optimizer_state_swap(ls_optimizer_state *state, bool averages);
/* Makes variables equal to their averages for good, if there was an update. */
ls_status ls_optimizer_state_finalize(ls_optimizer_state *state);

/* Fails if an update needs more than single elements and their gradients: names of variables,
 * norms, averages, constraints. Asynchronous servers have flat pieces of variables. */
ls_status ls_optimizer_check_elementwise(const ls_optimizer *optimizer, ls_tensor *const *variables, size_t count);

/* Returns the number of batches applied so far, the step that schedules use. */
ls_status ls_optimizer_state_step(const ls_optimizer_state *state, int64_t *out);

/* ls_apply_gradients for gradients of another run with that number of samples, an i64 scalar. NULL:
 * count the samples of this run. */
ls_tensor *ls_apply_gradients_of(ls_optimizer optimizer, ls_tensor *const *gradients, ls_tensor *const *variables,
                                 size_t count, ls_tensor *learning_rate, ls_tensor *samples);

/* Clips gradients that are applied elsewhere in parts; skips NULL. Apply the result with
 * ls_optimizer_without_clipping, so that it is not clipped twice. */
ls_status ls_optimizer_clip(const ls_optimizer *optimizer, ls_tensor **gradients, size_t count);
ls_optimizer ls_optimizer_without_clipping(ls_optimizer optimizer);

#endif
