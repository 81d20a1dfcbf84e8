/* clang-format off */
/* Metrics: a fixed vector of sums over samples, joined like any other reduction, and a result
 * computed from it. Sums of several runs are added elementwise, so a metric over an epoch or
 * several devices is that of all their samples.
 *
 * The sums of each kind are:
 *   accuracies, top-k, mean, errors, custom   sum of weight * value, sum of weights
 *   precision                                 weights of true positives, of false positives
 *   recall                                    weights of true positives, of false negatives
 *   AUC                                       for each of 200 buckets of predictions the weights of
 *                                             positives, then of negatives
 *   R2, F scores, IoU, confusion              see metric_classes.c */
/* clang-format on */
#include <math.h>
#include <stdlib.h>

#include "base/fpmode.h"
#include "graph/claim.h"
#include "graph/rules.h"
#include "nn/metric_classes.h"
#include "nn/parts.h"

#define BUCKETS LS_AUC_THRESHOLDS

typedef struct metric_info {
    const char *name;
    bool takes_k;
    bool threshold;
    bool classes, average, beta, regressors, ignore;
} metric_info;

static const metric_info kinds[] = {
    [LS_METRIC_ACCURACY] = { .name = "accuracy", .threshold = true },
    [LS_METRIC_BINARY_ACCURACY] = { .name = "binary_accuracy", .threshold = true },
    [LS_METRIC_CATEGORICAL_ACCURACY] = { .name = "categorical_accuracy" },
    [LS_METRIC_SPARSE_CATEGORICAL_ACCURACY] = { .name = "sparse_categorical_accuracy" },
    [LS_METRIC_TOP_K] = { .name = "top_k_categorical_accuracy", .takes_k = true },
    [LS_METRIC_MEAN] = { .name = "mean" },
    [LS_METRIC_MEAN_SQUARED_ERROR] = { .name = "mean_squared_error" },
    [LS_METRIC_MEAN_ABSOLUTE_ERROR] = { .name = "mean_absolute_error" },
    [LS_METRIC_PRECISION] = { .name = "precision", .threshold = true },
    [LS_METRIC_RECALL] = { .name = "recall", .threshold = true },
    [LS_METRIC_AUC] = { .name = "auc" },
    [LS_METRIC_ROOT_MEAN_SQUARED_ERROR] = { .name = "root_mean_squared_error" },
    [LS_METRIC_COSINE_SIMILARITY] = { .name = "cosine_similarity" },
    [LS_METRIC_LOSS] = { .name = "loss" },
    [LS_METRIC_R2_SCORE] = { .name = "r2_score", .classes = true, .average = true, .regressors = true },
    [LS_METRIC_F1_SCORE] = { .name = "f1_score", .threshold = true, .classes = true, .average = true },
    [LS_METRIC_FBETA_SCORE] = { .name = "fbeta_score",
                                .threshold = true,
                                .classes = true,
                                .average = true,
                                .beta = true },
    [LS_METRIC_MEAN_IOU] = { .name = "mean_io_u", .classes = true, .ignore = true },
    [LS_METRIC_BINARY_IOU] = { .name = "binary_io_u", .threshold = true },
    [LS_METRIC_CONFUSION] = { .name = "confusion", .classes = true, .ignore = true },
    [LS_METRIC_CUSTOM] = { .name = "metric" },
};

static bool is_known(const ls_metric *metric)
{
    return metric && metric->kind > LS_METRIC_NONE && (size_t)metric->kind < sizeof(kinds) / sizeof(*kinds);
}

const char *ls_metric_name(const ls_metric *metric)
{
    if (metric && metric->name)
        return metric->name;
    if (metric && metric->kind == LS_METRIC_LOSS)
        return ls_loss_name(&metric->loss);
    return is_known(metric) ? kinds[metric->kind].name : "metric";
}

bool ls_metric_has_classes(const ls_metric *metric)
{
    return is_known(metric) && kinds[metric->kind].classes;
}

static bool by_class(const ls_metric *metric)
{
    return ls_metric_has_classes(metric) || metric->kind == LS_METRIC_BINARY_IOU;
}

size_t ls_metric_sums_count(const ls_metric *metric)
{
    if (!is_known(metric))
        return 0;
    return metric->kind == LS_METRIC_AUC ? 2 * BUCKETS : by_class(metric) ? ls_class_sums_count(metric) : 2;
}

#define MOST_CLASSES 65536 /* whose square is a number of sums */

static ls_status check_classes(const ls_metric *metric, const metric_info *info)
{
    const struct {
        const char *name;
        bool given, taken;
    } options[] = {
        { "num_classes", metric->num_classes != 0, info->classes },
        { "average", metric->average != LS_AVERAGE_MACRO, info->average },
        { "beta", metric->beta != 0, info->beta },
        { "num_regressors", metric->num_regressors != 0, info->regressors },
        { "ignore_class", metric->ignore_class != 0, info->ignore },
        { "loss", metric->loss.kind != LS_LOSS_NONE, metric->kind == LS_METRIC_LOSS },
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
        if (options[i].given && !options[i].taken)
            return ls_fail(LS_ERR_INVALID, "%s has no option %s", info->name, options[i].name);
    LS_TRY(ls_check_ignored(info->name, metric->ignore_class));
    if (metric->kind == LS_METRIC_LOSS && metric->loss.kind == LS_LOSS_NONE)
        return ls_fail(LS_ERR_INVALID, "the metric has no loss; use ls_loss_metric");
    if (info->classes && (metric->num_classes < 1 || metric->num_classes > MOST_CLASSES))
        return ls_fail(LS_ERR_INVALID, "%s: num_classes is %lld; it must be from 1 to %d", info->name,
                       (long long)metric->num_classes, MOST_CLASSES);
    if ((unsigned)metric->average > LS_AVERAGE_WEIGHTED ||
        (metric->kind == LS_METRIC_R2_SCORE && metric->average == LS_AVERAGE_MICRO))
        return ls_fail(LS_ERR_INVALID, "%s has no average number %d", info->name, (int)metric->average);
    if (!(metric->beta >= 0 && metric->beta <= 1e30) || metric->num_regressors < 0)
        return ls_fail(LS_ERR_INVALID, "%s: beta is %g and num_regressors %lld; they must not be negative", info->name,
                       metric->beta, (long long)metric->num_regressors);
    return LS_OK;
}

static ls_status check_spec(const ls_metric *metric)
{
    if (!is_known(metric))
        return ls_fail(LS_ERR_INVALID, "there is no metric number %d; use LS_METRIC_ACCURACY, ...", (int)metric->kind);
    const metric_info *info = &kinds[metric->kind];
    if ((metric->function != NULL) != (metric->kind == LS_METRIC_CUSTOM))
        return metric->function ? ls_fail(LS_ERR_INVALID, "%s takes no function; use ls_custom_metric", info->name)
                                : ls_fail(LS_ERR_INVALID, "the function of a custom metric is NULL");
    if (metric->k != 0 && !info->takes_k)
        return ls_fail(LS_ERR_INVALID, "%s has no option k; only ls_top_k has it", info->name);
    if (metric->k < 0)
        return ls_fail(LS_ERR_INVALID, "%s: k is %lld; it must be at least 1", info->name, (long long)metric->k);
    LS_TRY(check_classes(metric, info));
    if (metric->threshold != 0 && !info->threshold)
        return ls_fail(LS_ERR_INVALID, "%s has no option threshold", info->name);
    if (!(metric->threshold >= -1e30 && metric->threshold <= 1e30))
        return ls_fail(LS_ERR_INVALID, "%s: the threshold is %g; it must be a finite number", info->name,
                       metric->threshold);
    return LS_OK;
}

/* ---- Sums ---- */

static ls_tensor *column(ls_tensor *x)
{
    return ls_op_with_last_axis(x);
}

/* Returns the sums of two [N] as a vector of two. */
static ls_tensor *two_sums(ls_tensor *a, ls_tensor *b)
{
    ls_tensor *columns[] = { column(a), column(b) };
    return ls_op_reduce_sum(ls_op_concat(columns, 2, 1), LS_AXES(0), false);
}

/* Averages the axes after the first. weights NULL: 1 each. */
static ls_tensor *weighted_mean_sums(ls_tensor *values, ls_tensor *weights)
{
    values = ls_sample_means(ls_op_cast(values, LS_F64));
    if (ls_tensor_is_error(values))
        return values;
    if (values->shape.rank == 0)
        values = ls_op_reshape(values, LS_SHAPE(1));
    ls_tensor *each = ls_op_broadcast_like(weights ? weights : ls_scalar_like(values, 1), values);
    return two_sums(weights ? ls_op_mul(values, each) : values, each);
}

static ls_tensor *above(ls_tensor *x, double threshold)
{
    return ls_op_cast(ls_op_compare(x, LS_GREATER, ls_scalar_like(x, threshold)), LS_F64);
}

static ls_tensor *is_positive(ls_tensor *targets)
{
    return ls_op_cast(ls_op_compare(targets, LS_NOT_EQUAL, ls_scalar_like(targets, 0)), LS_F64);
}

static ls_tensor *one_minus(ls_tensor *x)
{
    return ls_op_sub(ls_scalar_like(x, 1), x);
}

/* ---- Values a sample ---- */

static ls_tensor *binary_matches(const char *what, ls_tensor *targets, ls_tensor *predictions, double threshold)
{
    ls_tensor *error = ls_match_pair(what, &targets, &predictions);
    if (error)
        return error;
    return ls_op_compare(ls_op_cast(targets, LS_F64), LS_EQUAL, above(predictions, threshold));
}

/* Returns int64 labels, also from one-hot rows. */
static ls_tensor *labels_of(const char *what, bool sparse, ls_tensor *targets, ls_tensor *predictions)
{
    if (sparse) {
        ls_tensor *labels = ls_match_labels(what, targets, predictions);
        return ls_tensor_is_error(labels) ? labels : ls_op_cast(labels, LS_I64);
    }
    ls_tensor *error = ls_match_pair(what, &targets, &predictions);
    return error ? error : ls_op_argmax(targets, -1);
}

static ls_tensor *class_matches(const char *what, bool sparse, ls_tensor *targets, ls_tensor *predictions)
{
    ls_tensor *labels = labels_of(what, sparse, targets, predictions);
    return ls_tensor_is_error(labels) ? labels : ls_op_compare(labels, LS_EQUAL, ls_op_argmax(predictions, -1));
}

/* The label's class is among the first k if fewer than k others score higher, so ties count as
 * hits. A NaN score or an invalid label is a miss. */
static ls_tensor *top_k_matches(const char *what, int64_t k, ls_tensor *targets, ls_tensor *predictions)
{
    ls_tensor *labels = labels_of(what, ls_targets_are_labels(targets, predictions), targets, predictions);
    if (ls_tensor_is_error(labels))
        return labels;
    int64_t classes = predictions->shape.dims[predictions->shape.rank - 1];
    if (k > classes)
        k = classes;
    ls_tensor *one_hot = ls_op_one_hot(labels, LS_F64, classes), *zero = ls_scalar_like(predictions, 0);
    ls_tensor *is_label = ls_op_compare(one_hot, LS_EQUAL, ls_scalar_like(one_hot, 1));
    ls_tensor *score = ls_op_reduce_sum(ls_op_select(is_label, predictions, zero), LS_AXES(-1), true);
    ls_tensor *not_above = ls_op_cast(ls_op_compare(predictions, LS_LESS_EQUAL, score), LS_F64);
    ls_tensor *hit = above(ls_op_reduce_sum(not_above, LS_AXES(-1), false), (double)(classes - k));
    return ls_op_mul(hit, ls_op_reduce_sum(one_hot, LS_AXES(-1), false));
}

static ls_tensor *accuracy(const ls_metric *metric, ls_tensor *targets, ls_tensor *predictions, double threshold)
{
    ls_metric_kind kind = metric->kind;
    const char *what = kinds[kind].name;
    if (kind == LS_METRIC_ACCURACY) {
        int rank = predictions->shape.rank;
        bool binary = rank < 2 || predictions->shape.dims[rank - 1] == 1;
        kind = binary                                        ? LS_METRIC_BINARY_ACCURACY
               : ls_targets_are_labels(targets, predictions) ? LS_METRIC_SPARSE_CATEGORICAL_ACCURACY
                                                             : LS_METRIC_CATEGORICAL_ACCURACY;
        if (!binary && metric->threshold != 0)
            return ls_spec_error(predictions->graph, what, LS_ERR_INVALID,
                                 "a threshold is set, but the predictions are classes; remove it");
    }
    if (kind == LS_METRIC_BINARY_ACCURACY)
        return binary_matches(what, targets, predictions, threshold);
    return class_matches(what, kind == LS_METRIC_SPARSE_CATEGORICAL_ACCURACY, targets, predictions);
}

static ls_tensor *distance(const ls_metric *metric, ls_tensor *targets, ls_tensor *predictions)
{
    ls_tensor *error = ls_match_pair(kinds[metric->kind].name, &targets, &predictions);
    if (error)
        return error;
    return metric->kind == LS_METRIC_MEAN_ABSOLUTE_ERROR ? ls_op_mean_absolute_error(targets, predictions)
                                                         : ls_op_mean_squared_error(targets, predictions);
}

/* ---- Positives and negatives ---- */

static ls_tensor *rows(ls_tensor *x)
{
    return ls_tensor_is_error(x) ? x : ls_op_reshape(x, LS_SHAPE(x->shape.dims[0], LS_REMAINING));
}

static ls_tensor *sample_weight(ls_tensor *counts, ls_tensor *weights)
{
    ls_tensor *sums = ls_sample_sums(counts);
    return weights ? ls_op_mul(sums, weights) : sums;
}

static ls_tensor *confusion_sums(const ls_metric *metric, ls_tensor *targets, ls_tensor *predictions,
                                 ls_tensor *weights, double threshold)
{
    ls_tensor *error = ls_match_pair(kinds[metric->kind].name, &targets, &predictions);
    if (error)
        return error;
    ls_tensor *positive = is_positive(targets), *found = above(predictions, threshold);
    ls_tensor *right = ls_op_mul(positive, found);
    ls_tensor *wrong = metric->kind == LS_METRIC_PRECISION ? ls_op_mul(one_minus(positive), found)
                                                           : ls_op_mul(positive, one_minus(found));
    return two_sums(sample_weight(right, weights), sample_weight(wrong, weights));
}

/* Bucket max(0, ceil(p * 199) - 1) of a prediction p, in float32 as in Keras: a value equal to a
 * threshold is below it. */
static ls_tensor *bucket_of(ls_tensor *predictions)
{
    ls_tensor *x = ls_op_scale(ls_op_clip(ls_op_cast(predictions, LS_F32), 0, 1), BUCKETS - 1);
    ls_tensor *whole = ls_op_cast(x, LS_I64);
    ls_tensor *is_whole = ls_op_cast(ls_op_compare(ls_op_cast(whole, LS_F32), LS_EQUAL, x), LS_I64);
    return ls_op_maximum(ls_op_sub(whole, is_whole), ls_scalar_like(whole, 0));
}

static ls_tensor *bucket_sums(ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights)
{
    ls_tensor *error = ls_match_pair("auc", &targets, &predictions);
    if (error)
        return error;
    ls_tensor *positive = ls_op_with_last_axis(rows(is_positive(targets)));
    if (weights && weights->shape.rank == 1)
        weights = ls_op_with_last_axis(column(weights));
    ls_tensor *parts[] = { positive, one_minus(positive) };
    ls_tensor *which = ls_op_concat(parts, 2, 2); /* [N,L,2] */
    if (weights)
        which = ls_op_mul(which, weights);
    ls_tensor *buckets = ls_op_one_hot(rows(bucket_of(predictions)), LS_F64, BUCKETS); /* [N,L,200] */
    if (ls_tensor_is_error(buckets))
        return buckets;
    ls_shape shape = buckets->shape;
    shape.dims[2] = 1;
    shape.dims[shape.rank++] = BUCKETS;
    ls_tensor *each = ls_op_mul(ls_op_with_last_axis(which), ls_op_reshape(buckets, shape));
    return ls_op_reshape(ls_op_reduce_sum(each, LS_AXES(0, 1), false), LS_SHAPE(2 * BUCKETS));
}

static ls_tensor *make_sums(ls_metric metric, ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights)
{
    LS_OWN_FP_MODE;
    ls_tensor *error =
        ls_pair_error(ls_metric_name(&metric), metric.kind == LS_METRIC_MEAN ? predictions : targets, predictions);
    if (error || !predictions)
        return error;
    if (check_spec(&metric) != LS_OK)
        return ls_node_error(predictions->graph, LS_ERR_INVALID, "metric");
    double threshold = ls_spec_number(metric.threshold, 0.5);
    if (weights)
        weights = ls_match_weights(kinds[metric.kind].name, weights, LS_F64);
    if (weights && weights->op == LS_OP_ERROR)
        return weights;
    switch (metric.kind) {
    case LS_METRIC_TOP_K:
        return weighted_mean_sums(top_k_matches(kinds[metric.kind].name, metric.k ? metric.k : 5, targets, predictions),
                                  weights);
    case LS_METRIC_MEAN:
        return weighted_mean_sums(predictions, weights);
    case LS_METRIC_CUSTOM:
        return weighted_mean_sums(
            ls_sample_means(ls_own_values(ls_metric_name(&metric), metric.function(targets, predictions, metric.user),
                                          predictions)),
            weights);
    case LS_METRIC_LOSS:
        return weighted_mean_sums(ls_loss_per_sample(metric.loss, targets, predictions), weights);
    case LS_METRIC_COSINE_SIMILARITY:
        return weighted_mean_sums(ls_op_neg(ls_loss_per_sample(ls_cosine_similarity(), targets, predictions)), weights);
    case LS_METRIC_R2_SCORE:
    case LS_METRIC_F1_SCORE:
    case LS_METRIC_FBETA_SCORE:
    case LS_METRIC_MEAN_IOU:
    case LS_METRIC_BINARY_IOU:
    case LS_METRIC_CONFUSION:
        return ls_class_sums(&metric, kinds[metric.kind].name, targets, predictions, weights);
    case LS_METRIC_MEAN_SQUARED_ERROR:
    case LS_METRIC_MEAN_ABSOLUTE_ERROR:
    case LS_METRIC_ROOT_MEAN_SQUARED_ERROR:
        return weighted_mean_sums(distance(&metric, targets, predictions), weights);
    case LS_METRIC_PRECISION:
    case LS_METRIC_RECALL:
        return confusion_sums(&metric, targets, predictions, weights, threshold);
    case LS_METRIC_AUC:
        return bucket_sums(targets, predictions, weights);
    default:
        return weighted_mean_sums(accuracy(&metric, targets, predictions, threshold), weights);
    }
}

ls_tensor *ls_metric_sums(ls_metric metric, ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights)
{
    LS_CLAIM_TENSORS(targets, predictions, weights);
    ls_tensor *sums = make_sums(metric, targets, predictions, weights);
    if (!ls_tensor_is_error(sums))
        sums->aside = true;
    return sums;
}

/* ---- Results ---- */

/* Keras's divide_no_nan. */
static double share(double part, double whole)
{
    return whole == 0 ? 0 : part / whole;
}

/* By trapezoids between thresholds. */
static double area(const double *positives, const double *negatives)
{
    double all_positives = 0, all_negatives = 0, area = 0;
    for (int i = 0; i < BUCKETS; i++) {
        all_positives += positives[i];
        all_negatives += negatives[i];
    }
    double tp = 0, fp = 0, y = 0, x = 0; /* from the highest threshold down */
    for (int i = BUCKETS - 1; i >= 0; i--) {
        tp += positives[i];
        fp += negatives[i];
        double next_y = share(tp, all_positives), next_x = share(fp, all_negatives);
        if (i < BUCKETS - 1)
            area += (next_x - x) * (y + next_y) / 2;
        x = next_x;
        y = next_y;
    }
    return area;
}

double ls_metric_result(const ls_metric *metric, const double *sums)
{
    LS_OWN_FP_MODE;
    if (!is_known(metric) || !sums)
        return 0;
    switch (metric->kind) {
    case LS_METRIC_PRECISION:
    case LS_METRIC_RECALL:
        return share(sums[0], sums[0] + sums[1]);
    case LS_METRIC_AUC:
        return area(sums, sums + BUCKETS);
    case LS_METRIC_ROOT_MEAN_SQUARED_ERROR:
        return sqrt(share(sums[0], sums[1]));
    default:
        return by_class(metric) ? ls_class_result(metric, sums) : share(sums[0], sums[1]);
    }
}

ls_status ls_metric_class_values(const ls_metric *metric, const double *sums, double *out, size_t count)
{
    LS_OWN_FP_MODE;
    if (!metric || !sums || !out)
        return ls_fail(LS_ERR_INVALID, "ls_metric_class_values: the metric, the sums or the values (out) are NULL");
    LS_TRY(check_spec(metric));
    if (!by_class(metric))
        return ls_fail(LS_ERR_INVALID, "%s has one value, not one for each class; use ls_metric_result",
                       ls_metric_name(metric));
    if (count != (size_t)ls_class_count(metric))
        return ls_fail(LS_ERR_INVALID, "%s: count is %zu, but there are %lld classes", ls_metric_name(metric), count,
                       (long long)ls_class_count(metric));
    ls_class_values(metric, sums, out);
    return LS_OK;
}

/* ---- State ---- */

ls_metric_state ls_metric_state_make(ls_graph *graph, ls_metric metric)
{
    LS_CLAIM_OR(graph, ((ls_metric_state){ .metric = metric, .sums = ls_claim_error() }));
    LS_OWN_FP_MODE;
    ls_metric_state state = { .metric = metric };
    char *name = NULL, *full = NULL;
    if (!graph)
        return state;
    ls_status status = check_spec(&metric);
    if (status == LS_OK)
        status = ls_free_name(graph, ls_metric_name(&metric), "sums", &name);
    if (status == LS_OK)
        status = ls_state_name(name, NULL, "sums", &full);
    ls_shape shape = LS_SHAPE((int64_t)ls_metric_sums_count(&metric));
    state.sums =
        status == LS_OK ? ls_state_variable(graph, full, LS_F64, shape, 0) : ls_node_error(graph, status, "metric");
    free(name);
    free(full);
    return state;
}

ls_tensor *ls_metric_state_update(const ls_metric_state *state, ls_tensor *targets, ls_tensor *predictions,
                                  ls_tensor *weights)
{
    LS_CLAIM_TENSORS(targets, predictions, weights);
    LS_OWN_FP_MODE;
    if (!state || !state->sums)
        return predictions && !ls_tensor_is_error(predictions)
                   ? ls_spec_error(predictions->graph, "metric", LS_ERR_INVALID,
                                   "the state of the metric is NULL; make it with ls_metric_state_make")
                   : predictions;
    if (ls_tensor_is_error(state->sums))
        return state->sums;
    ls_tensor *sums = ls_metric_sums(state->metric, targets, predictions, weights);
    return ls_tensor_is_error(sums) ? sums : ls_op_assign_add(state->sums, sums);
}

ls_metric_state ls_metric_state_of(ls_metric metric, ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights)
{
    LS_CLAIM_OR(ls_graph_of((ls_tensor *const[]){ targets, predictions }, 2),
                ((ls_metric_state){ .metric = metric, .update = ls_claim_error() }));
    LS_OWN_FP_MODE;
    ls_metric_state state = { .metric = metric };
    ls_tensor *sums = ls_metric_sums(metric, targets, predictions, weights);
    state.update = sums;
    if (ls_tensor_is_error(sums))
        return state;
    state = ls_metric_state_make(sums->graph, metric);
    state.update = ls_tensor_is_error(state.sums) ? state.sums : ls_op_assign_add(state.sums, sums);
    return state;
}

/* The caller frees *out. */
static ls_status read_sums(const ls_metric_state *state, double **out)
{
    const ls_tensor *wrong = !state ? NULL : state->sums ? state->sums : state->update;
    if (!wrong)
        return ls_fail(LS_ERR_INVALID,
                       "the state of the metric is NULL; make it with ls_metric_state_of or ls_metric_state_make");
    if (wrong->op == LS_OP_ERROR)
        return ls_fail(wrong->status, "%s", wrong->message);
    if (!state->sums)
        return ls_fail(LS_ERR_INVALID,
                       "the state of the metric has no sums; make it with ls_metric_state_of or ls_metric_state_make");
    size_t count = ls_metric_sums_count(&state->metric);
    double *sums = calloc(count, sizeof(*sums));
    if (!sums)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu sums", count);
    ls_status status = ls_variable_get(state->sums, sums, count * sizeof(*sums));
    if (status != LS_OK) {
        free(sums);
        return status;
    }
    *out = sums;
    return LS_OK;
}

ls_status ls_metric_state_result(const ls_metric_state *state, double *out)
{
    LS_CLAIM(state ? ls_graph_of(&state->sums, 1) : NULL);
    LS_OWN_FP_MODE;
    double *sums = NULL;
    LS_TRY(read_sums(state, &sums));
    if (out)
        *out = ls_metric_result(&state->metric, sums);
    free(sums);
    return out ? LS_OK : ls_fail(LS_ERR_INVALID, "ls_metric_state_result: the result pointer (out) is NULL");
}

ls_status ls_metric_state_reset(const ls_metric_state *state)
{
    LS_CLAIM(state ? ls_graph_of(&state->sums, 1) : NULL);
    double *sums = NULL;
    LS_TRY(read_sums(state, &sums));
    size_t count = ls_metric_sums_count(&state->metric);
    for (size_t i = 0; i < count; i++)
        sums[i] = 0;
    ls_status status = ls_variable_set(state->sums, sums, count * sizeof(*sums));
    free(sums);
    return status;
}
