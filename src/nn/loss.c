/* Losses: casts and reshapes targets to match predictions, as Keras does; the formulas are in
 * loss_values.c and lockstep/graph.h. */
#include "base/fpmode.h"
#include "graph/claim.h"
#include "graph/rules.h"
#include "nn/loss_values.h"
#include "nn/parts.h"

enum { DELTA = 1, SMOOTHING = 2, ALPHA = 4, GAMMA = 8, BETA = 16, BALANCING = 32, AXIS = 64, IGNORE = 128 };
enum { FOCAL = SMOOTHING | ALPHA | GAMMA };

typedef struct loss_info {
    const char *name;
    ls_op probability_op;     /* op that turns logits into probabilities; LS_OP_COUNT: no logits */
    ls_loss_formula *formula; /* takes pairs; NULL: takes labels, or is the user's */
    unsigned takes;           /* options beyond those that all kinds have */
} loss_info;

/* clang-format off */
static const loss_info kinds[] = {
    [LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY] = { "sparse_categorical_crossentropy", LS_OP_softmax, NULL, SMOOTHING | IGNORE },
    [LS_LOSS_CATEGORICAL_CROSSENTROPY] = { "categorical_crossentropy", LS_OP_softmax, ls_categorical_values, SMOOTHING },
    [LS_LOSS_BINARY_CROSSENTROPY] = { "binary_crossentropy", LS_OP_sigmoid, ls_binary_values, SMOOTHING },
    [LS_LOSS_MEAN_SQUARED_ERROR] = { "mean_squared_error", LS_OP_COUNT, ls_squared_values, 0 },
    [LS_LOSS_MEAN_ABSOLUTE_ERROR] = { "mean_absolute_error", LS_OP_COUNT, ls_absolute_values, 0 },
    [LS_LOSS_HUBER] = { "huber", LS_OP_COUNT, ls_huber_values, DELTA },
    [LS_LOSS_MEAN_ABSOLUTE_PERCENTAGE_ERROR] = { "mean_absolute_percentage_error", LS_OP_COUNT, ls_percentage_values, 0 },
    [LS_LOSS_MEAN_SQUARED_LOGARITHMIC_ERROR] = { "mean_squared_logarithmic_error", LS_OP_COUNT, ls_logarithmic_values, 0 },
    [LS_LOSS_LOG_COSH] = { "log_cosh", LS_OP_COUNT, ls_log_cosh_values, 0 },
    [LS_LOSS_COSINE_SIMILARITY] = { "cosine_similarity", LS_OP_COUNT, ls_cosine_values, AXIS },
    [LS_LOSS_KL_DIVERGENCE] = { "kl_divergence", LS_OP_COUNT, ls_kl_values, 0 },
    [LS_LOSS_POISSON] = { "poisson", LS_OP_COUNT, ls_poisson_values, 0 },
    [LS_LOSS_HINGE] = { "hinge", LS_OP_COUNT, ls_hinge_values, 0 },
    [LS_LOSS_SQUARED_HINGE] = { "squared_hinge", LS_OP_COUNT, ls_squared_hinge_values, 0 },
    [LS_LOSS_CATEGORICAL_HINGE] = { "categorical_hinge", LS_OP_COUNT, ls_categorical_hinge_values, 0 },
    [LS_LOSS_BINARY_FOCAL_CROSSENTROPY] = { "binary_focal_crossentropy", LS_OP_sigmoid, ls_binary_focal_values,
        FOCAL | BALANCING },
    [LS_LOSS_CATEGORICAL_FOCAL_CROSSENTROPY] = { "categorical_focal_crossentropy", LS_OP_softmax,
        ls_categorical_focal_values, FOCAL },
    [LS_LOSS_DICE] = { "dice", LS_OP_COUNT, ls_dice_values, AXIS },
    [LS_LOSS_TVERSKY] = { "tversky", LS_OP_COUNT, ls_tversky_values, ALPHA | BETA | AXIS },
    [LS_LOSS_CTC] = { "ctc", LS_OP_COUNT, NULL, 0 },
    [LS_LOSS_CUSTOM] = { "loss", LS_OP_COUNT, NULL, 0 },
};
/* clang-format on */

const char *ls_loss_name(const ls_loss *loss)
{
    if (loss && loss->options.name)
        return loss->options.name;
    bool known = loss && loss->kind > LS_LOSS_NONE && (size_t)loss->kind < sizeof(kinds) / sizeof(*kinds);
    return known ? kinds[loss->kind].name : "loss";
}

static ls_status check_options(const ls_loss_options *o, const loss_info *info)
{
    const struct {
        const char *name;
        bool given;
        unsigned flag;
    } options[] = {
        { "delta", o->delta != 0, DELTA },    { "label_smoothing", o->label_smoothing != 0, SMOOTHING },
        { "alpha", o->alpha != 0, ALPHA },    { "gamma", o->gamma != 0, GAMMA },
        { "beta", o->beta != 0, BETA },       { "apply_class_balancing", o->apply_class_balancing, BALANCING },
        { "axis", o->axis.count != 0, AXIS }, { "ignore_class", o->ignore_class != 0, IGNORE },
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
        if (options[i].given && !(info->takes & options[i].flag))
            return ls_fail(LS_ERR_INVALID, "%s has no option %s", info->name, options[i].name);
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1))
        return ls_fail(LS_ERR_INVALID, "%s: label_smoothing is %g; it must be from 0 to 1", info->name,
                       o->label_smoothing);
    LS_TRY(ls_check_ignored(info->name, o->ignore_class));
    const double numbers[] = { ls_spec_number(o->alpha, 0), ls_spec_number(o->gamma, 0), ls_spec_number(o->beta, 0) };
    for (int i = 0; i < 3; i++)
        if (!(numbers[i] >= 0 && numbers[i] <= 1e30))
            return ls_fail(LS_ERR_INVALID, "%s: %s is %g; it must be from 0 to 1e30", info->name,
                           (const char *[]){ "alpha", "gamma", "beta" }[i], numbers[i]);
    return LS_OK;
}

static ls_status check_spec(const ls_loss *loss)
{
    if (loss->kind <= LS_LOSS_NONE || (size_t)loss->kind >= sizeof(kinds) / sizeof(*kinds))
        return ls_fail(LS_ERR_INVALID, "there is no loss number %d; use a constructor such as ls_huber",
                       (int)loss->kind);
    const loss_info *info = &kinds[loss->kind];
    if (loss->options.from_logits && info->probability_op == LS_OP_COUNT)
        return ls_fail(LS_ERR_INVALID, "%s has no option from_logits; only cross-entropies have it", info->name);
    if ((loss->options.function != NULL) != (loss->kind == LS_LOSS_CUSTOM))
        return loss->options.function ? ls_fail(LS_ERR_INVALID, "%s takes no function; use ls_custom_loss", info->name)
                                      : ls_fail(LS_ERR_INVALID, "the function of a custom loss is NULL");
    LS_TRY(check_options(&loss->options, info));
    if ((unsigned)loss->options.reduction > LS_REDUCE_NONE)
        return ls_fail(LS_ERR_INVALID, "there is no reduction number %d; use LS_REDUCE_MEAN, _SUM or _NONE",
                       (int)loss->options.reduction);
    return LS_OK;
}

/* Warns about probabilities taken for logits: training would silently be poor. */
static void warn_of_logits(const ls_loss *loss, const ls_tensor *predictions)
{
    const loss_info *info = &kinds[loss->kind];
    char label[LS_NODE_TEXT];
    if (loss->options.from_logits && predictions->op == info->probability_op)
        ls_spec_warn(predictions->graph, "%s: from_logits is set, but the predictions (%s) come from a %s", info->name,
                     ls_node_label(predictions, label), ls_tensor_op(predictions));
}

/* Samples keep apart, unless the axes are left out. */
static ls_status check_axis(const ls_loss *loss, const ls_tensor *predictions)
{
    for (int i = 0; i < loss->options.axis.count; i++) {
        int64_t axis = 0;
        LS_TRY(ls_rule_axis(&predictions->shape, loss->options.axis.axis[i], &axis));
        if (axis == 0)
            return ls_fail(LS_ERR_INVALID, "axis %lld is the batch; leave .axis out for a value of the whole batch",
                           (long long)loss->options.axis.axis[i]);
    }
    return LS_OK;
}

/* Means over the steps of a sequence, or sums for a sum over the batch. */
static ls_tensor *by_sample(const ls_loss *loss, ls_tensor *values)
{
    return loss->options.reduction == LS_REDUCE_SUM ? ls_sample_sums(values) : ls_sample_means(values);
}

/* Labels of the ignored class become class 0, and their values 0 with no gradient. Means count the
 * others alone. */
static ls_tensor *sparse_values(const ls_loss *loss, ls_tensor *labels, ls_tensor *predictions, bool scaled)
{
    const char *name = ls_loss_name(loss);
    ls_tensor *mask = predictions->mask;
    if (loss->options.ignore_class == 0)
        return ls_mask_values(name, ls_sparse_values(&loss->options, labels, predictions), mask, scaled);
    labels = ls_op_cast(labels, LS_I64); /* uint8 has no -1 */
    ls_tensor *ignored = ls_scalar_like(labels, ls_spec_number(loss->options.ignore_class, 0));
    ls_tensor *counts = ls_op_compare(labels, LS_NOT_EQUAL, ignored), *zero = ls_scalar_like(labels, 0);
    ls_tensor *values = ls_sparse_values(&loss->options, ls_op_select(counts, labels, zero), predictions);
    if (ls_tensor_is_error(values))
        return values;
    values = ls_op_select(counts, values, ls_scalar_like(values, 0));
    return ls_mask_values(name, values, ls_mask_and(mask, counts), scaled);
}

/* Steps [N,T] and [N,T,1] are one value for Keras, not T. A mask needs the value of each step. */
static void drop_last_axis(ls_tensor **targets, ls_tensor **predictions)
{
    ls_shape shape = (*predictions)->shape;
    if (shape.rank < 3 || shape.dims[shape.rank - 1] != 1)
        return;
    shape.rank--;
    *targets = ls_op_reshape(*targets, shape);
    *predictions = ls_op_reshape(*predictions, shape);
}

/* CTC always takes logits. */
static ls_tensor *ctc_values(ls_tensor *targets, ls_tensor *predictions)
{
    char label[LS_NODE_TEXT];
    if (predictions->op == LS_OP_softmax)
        ls_spec_warn(predictions->graph, "ctc takes logits, but the predictions (%s) come from a softmax",
                     ls_node_label(predictions, label));
    return ls_op_ctc(ls_whole_labels(targets), predictions);
}

/* Returns one value per sample, or a scalar that is the value of the whole batch. */
static ls_tensor *values_of(const ls_loss *loss, ls_tensor *targets, ls_tensor *predictions)
{
    ls_tensor *error = ls_pair_error("loss", targets, predictions);
    if (error || !targets || !predictions)
        return error;
    if (check_spec(loss) != LS_OK)
        return ls_node_error(predictions->graph, LS_ERR_INVALID, "loss");
    const char *name = ls_loss_name(loss);
    ls_tensor *mask = predictions->mask;
    bool scaled = loss->options.reduction == LS_REDUCE_MEAN;
    if (loss->kind == LS_LOSS_CUSTOM) {
        ls_tensor *own = loss->options.function(targets, predictions, loss->options.user);
        return by_sample(loss, ls_own_values(name, ls_mask_values(name, own, mask, scaled), predictions));
    }
    warn_of_logits(loss, predictions);
    if (loss->kind == LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY) {
        ls_tensor *labels = ls_match_labels(name, targets, predictions);
        return ls_tensor_is_error(labels) ? labels : by_sample(loss, sparse_values(loss, labels, predictions, scaled));
    }
    if (loss->kind == LS_LOSS_CTC)
        return ls_mask_values(name, ctc_values(targets, predictions), mask, scaled);
    bool ranks_differ = targets->shape.rank != predictions->shape.rank;
    error = ls_match_pair(name, &targets, &predictions);
    if (!error && ranks_differ && !mask)
        drop_last_axis(&targets, &predictions);
    if (!error && check_axis(loss, predictions) != LS_OK)
        error = ls_node_error(predictions->graph, LS_ERR_INVALID, name);
    if (error)
        return error;
    ls_tensor *values = kinds[loss->kind].formula(&loss->options, targets, predictions);
    return by_sample(loss, ls_mask_values(name, values, mask, scaled));
}

/* Gives every sample the value of the batch. */
static ls_tensor *per_sample(ls_tensor *values, ls_tensor *predictions)
{
    if (ls_tensor_is_error(values) || values->shape.rank > 0)
        return values;
    return ls_op_broadcast_like(values, ls_sample_sums(predictions));
}

ls_tensor *ls_loss_per_sample(ls_loss loss, ls_tensor *targets, ls_tensor *predictions)
{
    LS_CLAIM_TENSORS(targets, predictions);
    LS_OWN_FP_MODE;
    return per_sample(values_of(&loss, targets, predictions), predictions);
}

ls_tensor *ls_loss_value(ls_loss loss, ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights)
{
    LS_CLAIM_TENSORS(targets, predictions, weights);
    LS_OWN_FP_MODE;
    ls_tensor *values = values_of(&loss, targets, predictions);
    if (ls_tensor_is_error(values))
        return values;
    if (weights) {
        weights = ls_match_weights(ls_loss_name(&loss), weights, values->dtype);
        values = ls_tensor_is_error(weights) ? weights : ls_op_mul(values, weights);
    }
    switch (loss.options.reduction) {
    case LS_REDUCE_SUM:
        return ls_op_reduce_sum(values, LS_ALL_AXES, false);
    case LS_REDUCE_NONE:
        return per_sample(values, predictions);
    case LS_REDUCE_MEAN:
        break;
    }
    return ls_op_reduce_mean(values, LS_ALL_AXES, false);
}

ls_tensor *ls_average_loss(ls_tensor *values, int64_t global_batch_size)
{
    LS_CLAIM_TENSORS(values);
    LS_OWN_FP_MODE;
    if (ls_tensor_is_error(values))
        return values;
    if (global_batch_size < 1)
        return ls_spec_error(values->graph, "ls_average_loss", LS_ERR_INVALID,
                             "global_batch_size is %lld; it must be at least 1", (long long)global_batch_size);
    return ls_op_scale(ls_op_reduce_sum(values, LS_ALL_AXES, false), 1.0 / (double)global_batch_size);
}
