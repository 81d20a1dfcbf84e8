/* Formulas of losses that are made of other ops. */
#ifndef LS_NN_LOSS_VALUES_H
#define LS_NN_LOSS_VALUES_H

#include "graph/node.h"
#include "lockstep/nn.h"

/* Each gets targets and predictions of one type and shape (ls_match_pair) and returns a value for
 * each element of all axes but the last; Dice and Tversky also a scalar, for the whole batch. */
typedef ls_tensor *ls_loss_formula(const ls_loss_options *options, ls_tensor *targets, ls_tensor *predictions);

ls_loss_formula ls_categorical_values, ls_binary_values, ls_squared_values, ls_absolute_values, ls_huber_values,
    ls_percentage_values, ls_logarithmic_values, ls_log_cosh_values, ls_cosine_values, ls_kl_values, ls_poisson_values,
    ls_hinge_values, ls_squared_hinge_values, ls_categorical_hinge_values, ls_binary_focal_values,
    ls_categorical_focal_values, ls_dice_values, ls_tversky_values;

/* The sparse cross-entropy of labels of one axis less. */
ls_tensor *ls_sparse_values(const ls_loss_options *options, ls_tensor *labels, ls_tensor *predictions);

#endif
