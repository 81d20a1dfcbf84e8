/* Helpers that optimizers, losses and metrics share. */
#ifndef LS_NN_PARTS_H
#define LS_NN_PARTS_H

#include "graph/node.h"
#include "lockstep/nn.h"

/* Resolves an option: 0 (unset) means `otherwise`, LS_ZERO means 0. */
static inline double ls_spec_number(double given, double otherwise)
{
    return given == 0 ? otherwise : given == LS_ZERO ? 0 : given;
}

ls_tensor *ls_spec_error(ls_graph *graph, const char *what, ls_status status, const char *format, ...) LS_PRINTF(4, 5);

/* Returns "base", or the first of "base_1", "base_2", ... such that the graph has no tensor
 * "<name>/part". The caller frees it. */
ls_status ls_free_name(ls_graph *graph, const char *base, const char *part, char **out);

/* Returns "owner/of/what", or "owner/what" if `of` is NULL. The caller frees it. */
ls_status ls_state_name(const char *owner, const char *of, const char *what, char **out);

/* Names a tensor without the prefix of open name scopes. */
ls_status ls_name_state(ls_tensor *tensor, const char *name);

/* Creates an untrained variable with every element `start`, without a prefix of name scopes. */
ls_tensor *ls_state_variable(ls_graph *graph, const char *name, ls_dtype dtype, ls_shape shape, double start);

void ls_spec_warn(const ls_graph *graph, const char *format, ...) LS_PRINTF(2, 3);

/* Returns an error tensor if one of the two is an error or NULL, else NULL. */
ls_tensor *ls_pair_error(const char *what, ls_tensor *targets, ls_tensor *predictions);

/* Casts targets to the predictions' type and gives both the same rank, as Keras does: adds a last
 * axis of size 1 that only one has; [N] and [N] become [N,1]. */
ls_tensor *ls_match_pair(const char *what, ls_tensor **targets, ls_tensor **predictions);

/* Casts floats and bools to int64. Values that are not integers become -1, which every loss
 * rejects; a cast would turn NaN into class 0. */
ls_tensor *ls_whole_labels(ls_tensor *labels);

/* Drops a last axis of size 1; casts by ls_whole_labels. */
ls_tensor *ls_match_labels(const char *what, ls_tensor *labels, ls_tensor *predictions);

/* Whether the shapes suggest sparse labels rather than one-hot rows (Keras's rule). */
bool ls_targets_are_labels(const ls_tensor *targets, const ls_tensor *predictions);

/* Converts weights to [N], or a scalar, of `dtype`. */
ls_tensor *ls_match_weights(const char *what, ls_tensor *weights, ls_dtype dtype);

/* Checks what a user's function returned; returns one or more values per sample. */
ls_tensor *ls_own_values(const char *what, ls_tensor *values, const ls_tensor *predictions);

/* Whether a metric needs num_classes (metric.c). */
bool ls_metric_has_classes(const ls_metric *metric);

/* Mean or sum over all axes but the first. */
ls_tensor *ls_sample_means(ls_tensor *values);
ls_tensor *ls_sample_sums(ls_tensor *values);

/* Multiplies values [N,T,...] by a mask; NULL: none. scaled: and by the elements of the mask over
 * those that count, so that a mean is over those that count. */
ls_tensor *ls_mask_values(const char *what, ls_tensor *values, ls_tensor *mask, bool scaled);
/* Counts what both count. `mask`: of the predictions, or NULL. */
ls_tensor *ls_mask_and(ls_tensor *mask, ls_tensor *counts);

/* Checks the option ignore_class; 0: not given. */
ls_status ls_check_ignored(const char *what, double ignore_class);

#endif
