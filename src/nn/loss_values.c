/* Formulas of losses, made of ordinary ops in the order in which Keras writes them. */
#include "nn/loss_values.h"

#include "graph/rules.h"
#include "nn/parts.h"

#define EPSILON 1e-7 /* keras.config.epsilon() */
#define LOG_2   0.693147180559945309417

static ls_tensor *last_mean(ls_tensor *x)
{
    return ls_op_reduce_mean(x, LS_AXES(-1), false);
}

static ls_tensor *last_sum(ls_tensor *x)
{
    return ls_op_reduce_sum(x, LS_AXES(-1), false);
}

/* value - x */
static ls_tensor *less(double value, ls_tensor *x)
{
    return ls_op_sub(ls_scalar_like(x, value), x);
}

static ls_tensor *at_least(ls_tensor *x, double least)
{
    return ls_op_maximum(x, ls_scalar_like(x, least));
}

static ls_scores scores_of(const ls_loss_options *o)
{
    return o->from_logits ? LS_LOGITS : LS_PROBABILITIES;
}

/* ---- Cross-entropies ---- */

/* t (1 - s) + s share */
static ls_tensor *smooth(ls_tensor *targets, double smoothing, double share)
{
    return smoothing == 0 ? targets : ls_op_shift(ls_op_scale(targets, 1 - smoothing), smoothing * share);
}

static ls_tensor *smooth_classes(const ls_loss_options *o, ls_tensor *targets)
{
    return smooth(targets, o->label_smoothing, 1 / (double)targets->shape.dims[targets->shape.rank - 1]);
}

ls_tensor *ls_categorical_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    return ls_op_cross_entropy(smooth_classes(o, targets), predictions, scores_of(o));
}

ls_tensor *ls_binary_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    return ls_op_binary_cross_entropy(smooth(targets, o->label_smoothing, 0.5), predictions, scores_of(o));
}

/* The cross-entropy is linear in the targets: that of smoothed one-hot rows is a sum of that of the
 * label and that of equal targets. */
ls_tensor *ls_sparse_values(const ls_loss_options *o, ls_tensor *labels, ls_tensor *predictions)
{
    ls_tensor *values = ls_op_sparse_cross_entropy(labels, predictions, scores_of(o));
    if (o->label_smoothing == 0 || ls_tensor_is_error(values))
        return values;
    double share = 1 / (double)predictions->shape.dims[predictions->shape.rank - 1];
    ls_tensor *equal = ls_op_broadcast_like(ls_scalar_like(predictions, share), predictions);
    ls_tensor *spread = ls_op_cross_entropy(equal, predictions, scores_of(o));
    return ls_op_add(ls_op_scale(values, 1 - o->label_smoothing), ls_op_scale(spread, o->label_smoothing));
}

static ls_tensor *power(ls_tensor *x, double exponent)
{
    return exponent == 2 ? ls_op_square(x) : ls_op_pow(x, ls_scalar_like(x, exponent));
}

ls_tensor *ls_categorical_focal_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    double alpha = ls_spec_number(o->alpha, 0.25), gamma = ls_spec_number(o->gamma, 2);
    ls_tensor *p = o->from_logits ? ls_op_softmax(predictions, -1) : predictions;
    p = ls_op_div(p, ls_op_reduce_sum(p, LS_AXES(-1), true));
    p = ls_op_clip(p, EPSILON, 1 - EPSILON);
    ls_tensor *entropy = ls_op_mul(ls_op_neg(smooth_classes(o, targets)), ls_op_log(p));
    return last_sum(ls_op_mul(ls_op_scale(power(less(1, p), gamma), alpha), entropy));
}

ls_tensor *ls_binary_focal_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    double alpha = ls_spec_number(o->alpha, 0.25), gamma = ls_spec_number(o->gamma, 2);
    ls_tensor *t = smooth(targets, o->label_smoothing, 0.5), *not_t = less(1, t);
    ls_tensor *p = o->from_logits ? ls_op_sigmoid(predictions) : predictions;
    ls_tensor *clipped = ls_op_clip(p, EPSILON, 1 - EPSILON);
    ls_tensor *hit = ls_op_mul(t, ls_op_log(clipped)), *miss = ls_op_mul(not_t, ls_op_log(less(1, clipped)));
    ls_tensor *right = ls_op_add(ls_op_mul(t, p), ls_op_mul(not_t, less(1, p)));
    ls_tensor *values = ls_op_mul(power(less(1, right), gamma), ls_op_neg(ls_op_add(hit, miss)));
    if (o->apply_class_balancing)
        values = ls_op_mul(ls_op_add(ls_op_scale(t, alpha), ls_op_scale(not_t, 1 - alpha)), values);
    return last_mean(values);
}

/* ---- Errors ---- */

ls_tensor *ls_squared_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    (void)o;
    return ls_op_mean_squared_error(targets, predictions);
}

ls_tensor *ls_absolute_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    (void)o;
    return ls_op_mean_absolute_error(targets, predictions);
}

ls_tensor *ls_huber_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    return ls_op_huber(targets, predictions, ls_spec_number(o->delta, 1));
}

ls_tensor *ls_percentage_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    (void)o;
    ls_tensor *size = at_least(ls_op_abs(targets), EPSILON);
    return ls_op_scale(last_mean(ls_op_abs(ls_op_div(ls_op_sub(targets, predictions), size))), 100);
}

static ls_tensor *log_of(ls_tensor *x)
{
    return ls_op_log(ls_op_shift(at_least(x, EPSILON), 1));
}

ls_tensor *ls_logarithmic_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    (void)o;
    return last_mean(ls_op_square(ls_op_sub(log_of(predictions), log_of(targets))));
}

/* log cosh x = x + log(1 + e^-2x) - log 2 */
ls_tensor *ls_log_cosh_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    (void)o;
    ls_tensor *x = ls_op_sub(predictions, targets);
    return last_mean(ls_op_shift(ls_op_add(x, ls_op_softplus(ls_op_scale(x, -2))), -LOG_2));
}

/* A norm below EPSILON counts as EPSILON. */
static ls_tensor *unit(ls_tensor *x, ls_axes axis)
{
    ls_tensor *squares = ls_op_reduce_sum(ls_op_square(x), axis, true);
    return ls_op_mul(x, ls_op_rsqrt(at_least(squares, EPSILON * EPSILON)));
}

ls_tensor *ls_cosine_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    ls_axes axis = o->axis.count ? o->axis : LS_AXES(-1);
    ls_tensor *product = ls_op_mul(unit(targets, axis), unit(predictions, axis));
    return ls_op_neg(ls_op_reduce_sum(product, axis, false));
}

/* ---- Distributions and margins ---- */

ls_tensor *ls_kl_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    (void)o;
    ls_tensor *t = ls_op_clip(targets, EPSILON, 1), *p = ls_op_clip(predictions, EPSILON, 1);
    return last_sum(ls_op_mul(t, ls_op_log(ls_op_div(t, p))));
}

ls_tensor *ls_poisson_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    (void)o;
    ls_tensor *logs = ls_op_log(ls_op_shift(predictions, EPSILON));
    return last_mean(ls_op_sub(predictions, ls_op_mul(targets, logs)));
}

/* Targets as -1 and 1. Keras's rule looks at the whole batch, so all lanes synchronize here. */
static ls_tensor *signs(ls_tensor *targets)
{
    ls_tensor *zero = ls_scalar_like(targets, 0), *one = ls_scalar_like(targets, 1);
    ls_tensor *is_zero = ls_op_cast(ls_op_compare(targets, LS_EQUAL, zero), targets->dtype);
    ls_tensor *is_one = ls_op_cast(ls_op_compare(targets, LS_EQUAL, one), targets->dtype);
    ls_tensor *all = ls_op_reduce_min(ls_op_add(is_zero, is_one), LS_ALL_AXES, false);
    ls_tensor *binary = ls_op_compare(all, LS_EQUAL, ls_scalar_like(all, 1));
    return ls_op_select(binary, ls_op_shift(ls_op_scale(targets, 2), -1), targets);
}

static ls_tensor *margins(ls_tensor *targets, ls_tensor *predictions)
{
    return at_least(less(1, ls_op_mul(signs(targets), predictions)), 0);
}

ls_tensor *ls_hinge_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    (void)o;
    return last_mean(margins(targets, predictions));
}

ls_tensor *ls_squared_hinge_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    (void)o;
    return last_mean(ls_op_square(margins(targets, predictions)));
}

ls_tensor *ls_categorical_hinge_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    (void)o;
    ls_tensor *right = last_sum(ls_op_mul(targets, predictions));
    ls_tensor *wrong = ls_op_reduce_max(ls_op_mul(less(1, targets), predictions), LS_AXES(-1), false);
    return at_least(ls_op_shift(ls_op_sub(wrong, right), 1), 0);
}

/* ---- Overlap ---- */

static ls_tensor *sum_over(const ls_loss_options *o, ls_tensor *x)
{
    return ls_op_reduce_sum(x, o->axis.count ? o->axis : LS_ALL_AXES, false);
}

ls_tensor *ls_dice_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    ls_tensor *common = sum_over(o, ls_op_mul(targets, predictions));
    ls_tensor *all = ls_op_shift(ls_op_add(sum_over(o, targets), sum_over(o, predictions)), EPSILON);
    return less(1, ls_op_div(ls_op_scale(common, 2), all));
}

ls_tensor *ls_tversky_values(const ls_loss_options *o, ls_tensor *targets, ls_tensor *predictions)
{
    double alpha = ls_spec_number(o->alpha, 0.5), beta = ls_spec_number(o->beta, 0.5);
    ls_tensor *common = sum_over(o, ls_op_mul(targets, predictions));
    ls_tensor *missed = sum_over(o, ls_op_mul(less(1, predictions), targets));
    ls_tensor *extra = sum_over(o, ls_op_mul(predictions, less(1, targets)));
    ls_tensor *all = ls_op_add(ls_op_add(common, ls_op_scale(missed, alpha)), ls_op_scale(extra, beta));
    return less(1, ls_op_div(common, ls_op_shift(all, EPSILON)));
}
