/* Losses: casts and reshapes targets to match predictions, as Keras does; the formulas are in
 * lockstep/graph.h. */
#include "base/fpmode.h"
#include "graph/claim.h"
#include "graph/rules.h"
#include "nn/parts.h"

typedef struct loss_info {
    const char *name;
    ls_op probability_op; /* op that turns logits into probabilities; LS_OP_COUNT: no logits */
} loss_info;

static const loss_info kinds[] = {
    [LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY] = { "sparse_categorical_crossentropy", LS_OP_softmax },
    [LS_LOSS_CATEGORICAL_CROSSENTROPY] = { "categorical_crossentropy", LS_OP_softmax },
    [LS_LOSS_BINARY_CROSSENTROPY] = { "binary_crossentropy", LS_OP_sigmoid },
    [LS_LOSS_MEAN_SQUARED_ERROR] = { "mean_squared_error", LS_OP_COUNT },
    [LS_LOSS_MEAN_ABSOLUTE_ERROR] = { "mean_absolute_error", LS_OP_COUNT },
    [LS_LOSS_HUBER] = { "huber", LS_OP_COUNT },
    [LS_LOSS_CUSTOM] = { "loss", LS_OP_COUNT },
};

const char *ls_loss_name(const ls_loss *loss)
{
    if (loss && loss->options.name)
        return loss->options.name;
    bool known = loss && loss->kind > LS_LOSS_NONE && (size_t)loss->kind < sizeof(kinds) / sizeof(*kinds);
    return known ? kinds[loss->kind].name : "loss";
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
    if (loss->options.delta != 0 && loss->kind != LS_LOSS_HUBER)
        return ls_fail(LS_ERR_INVALID, "%s has no option delta; only ls_huber has it", info->name);
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

static ls_tensor *pair_values(const ls_loss *loss, ls_tensor *targets, ls_tensor *predictions)
{
    ls_scores scores = loss->options.from_logits ? LS_LOGITS : LS_PROBABILITIES;
    switch (loss->kind) {
    case LS_LOSS_CATEGORICAL_CROSSENTROPY:
        return ls_op_cross_entropy(targets, predictions, scores);
    case LS_LOSS_BINARY_CROSSENTROPY:
        return ls_op_binary_cross_entropy(targets, predictions, scores);
    case LS_LOSS_MEAN_SQUARED_ERROR:
        return ls_op_mean_squared_error(targets, predictions);
    case LS_LOSS_MEAN_ABSOLUTE_ERROR:
        return ls_op_mean_absolute_error(targets, predictions);
    case LS_LOSS_HUBER:
        return ls_op_huber(targets, predictions, ls_spec_number(loss->options.delta, 1));
    case LS_LOSS_NONE:
    case LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY: /* has labels instead */
    case LS_LOSS_CUSTOM:
        break;
    }
    return ls_spec_error(predictions->graph, ls_loss_name(loss), LS_ERR_INTERNAL, "loss number %d has no formula",
                         (int)loss->kind);
}

ls_tensor *ls_loss_per_sample(ls_loss loss, ls_tensor *targets, ls_tensor *predictions)
{
    LS_CLAIM_TENSORS(targets, predictions);
    LS_OWN_FP_MODE;
    ls_tensor *error = ls_pair_error("loss", targets, predictions);
    if (error || !targets || !predictions)
        return error;
    if (check_spec(&loss) != LS_OK)
        return ls_node_error(predictions->graph, LS_ERR_INVALID, "loss");
    const char *name = ls_loss_name(&loss);
    const ls_tensor *masked = predictions;
    bool scaled = loss.options.reduction == LS_REDUCE_MEAN;
    if (loss.kind == LS_LOSS_CUSTOM) {
        ls_tensor *own = loss.options.function(targets, predictions, loss.options.user);
        return ls_own_values(name, ls_mask_values(name, own, masked, scaled), predictions);
    }
    warn_of_logits(&loss, predictions);
    if (loss.kind == LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY) {
        ls_scores scores = loss.options.from_logits ? LS_LOGITS : LS_PROBABILITIES;
        ls_tensor *labels = ls_match_labels(name, targets, predictions);
        ls_tensor *values =
            ls_tensor_is_error(labels) ? labels : ls_op_sparse_cross_entropy(labels, predictions, scores);
        return ls_sample_means(ls_mask_values(name, values, masked, scaled));
    }
    error = ls_match_pair(name, &targets, &predictions);
    if (error)
        return error;
    return ls_sample_means(ls_mask_values(name, pair_values(&loss, targets, predictions), masked, scaled));
}

ls_tensor *ls_loss_value(ls_loss loss, ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights)
{
    LS_CLAIM_TENSORS(targets, predictions, weights);
    LS_OWN_FP_MODE;
    ls_tensor *values = ls_loss_per_sample(loss, targets, predictions);
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
        return values;
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
