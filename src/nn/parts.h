/* What optimizers, losses and metrics share: numbers with defaults, names that are free, targets brought to the shape
 * of predictions, weights of samples. */
#ifndef LS_NN_PARTS_H
#define LS_NN_PARTS_H

#include "graph/node.h"
#include "lockstep/nn.h"

/* An option as the user wrote it: unset (0) is `otherwise`, LS_ZERO is 0. */
static inline double ls_spec_number(double given, double otherwise)
{
    return given == 0 ? otherwise : given == LS_ZERO ? 0 : given;
}

/* Fails and gives the error tensor of `what`, as builders return it. */
ls_tensor *ls_spec_error(ls_graph *graph, const char *what, ls_status status, const char *format, ...) LS_PRINTF(4, 5);

/* "base", or the first of "base_1", "base_2", ... for which the graph has no tensor "<that>/part" yet; free() it. */
ls_status ls_free_name(ls_graph *graph, const char *base, const char *part, char **out);

/* "owner/of/what", or "owner/what" where `of` is NULL; free() it. */
ls_status ls_state_name(const char *owner, const char *of, const char *what, char **out);

/* Names a tensor so, without the open name scopes in front. */
ls_status ls_name_state(ls_tensor *tensor, const char *name);

/* State that is not trained, every element `start`, under this very name: open name scopes do not go in front of it. */
ls_tensor *ls_state_variable(ls_graph *graph, const char *name, ls_dtype dtype, ls_shape shape, double start);

/* A warning in the log of the graph's context. */
void ls_spec_warn(const ls_graph *graph, const char *format, ...) LS_PRINTF(2, 3);

/* An error among the two, or NULL when there is none; a NULL tensor is made one. */
ls_tensor *ls_pair_error(const char *what, ls_tensor *targets, ls_tensor *predictions);

/* Targets cast to the predictions' type, and both of one rank, by Keras's rule: a last axis of size 1 that the other
 * has not is added to it; [N] against [N] are both made [N,1]. Shapes that differ otherwise are an error. */
ls_tensor *ls_match_pair(const char *what, ls_tensor **targets, ls_tensor **predictions);

/* Labels for the classes of the predictions' last axis: a last axis of size 1 is dropped, floats and bools are cast to
 * int64. */
ls_tensor *ls_match_labels(const char *what, ls_tensor *labels, ls_tensor *predictions);

/* Whether the targets are labels (sparse) or one-hot rows, by their shapes: Keras's rule. */
bool ls_targets_are_labels(const ls_tensor *targets, const ls_tensor *predictions);

/* One weight a sample, [N] or [N,1] or a scalar, as [N] (or the scalar) of `dtype`. */
ls_tensor *ls_match_weights(const char *what, ls_tensor *weights, ls_dtype dtype);

/* What a user's own function made of these predictions, as one value a sample. */
ls_tensor *ls_own_values(const char *what, ls_tensor *values, const ls_tensor *predictions);

/* The mean or sum over all axes but the first. */
ls_tensor *ls_sample_means(ls_tensor *values);
ls_tensor *ls_sample_sums(ls_tensor *values);

#endif
