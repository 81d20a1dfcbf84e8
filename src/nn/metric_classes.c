/* clang-format off */
/* Metrics with sums for each of C classes or outputs:
 *   R2                   [C] weight * t, [C] weight * t^2, [C] weight * (t - p)^2, then the sum of weights and the
 *                        number of targets
 *   F scores             [C] weights of true positives, [C] of false positives, [C] of false negatives
 *   IoU, confusion       [C][C] weights by target and predicted class */
/* clang-format on */
#include "nn/metric_classes.h"

#include <math.h>

#include "graph/rules.h"
#include "nn/parts.h"

#define EPSILON 1e-7 /* keras.config.epsilon() */

int64_t ls_class_count(const ls_metric *metric)
{
    return metric->kind == LS_METRIC_BINARY_IOU ? 2 : metric->num_classes;
}

static bool is_f_score(const ls_metric *metric)
{
    return metric->kind == LS_METRIC_F1_SCORE || metric->kind == LS_METRIC_FBETA_SCORE;
}

size_t ls_class_sums_count(const ls_metric *metric)
{
    size_t classes = (size_t)ls_class_count(metric);
    if (metric->kind == LS_METRIC_R2_SCORE)
        return 3 * classes + 2;
    return is_f_score(metric) ? 3 * classes : classes * classes;
}

/* ---- Rows of outputs ---- */

static ls_tensor *wrong_shape(const char *name, const ls_tensor *x, int64_t classes)
{
    char text[LS_SHAPE_TEXT];
    return ls_spec_error(x->graph, name, LS_ERR_SHAPE,
                         "predictions have shape %s; with num_classes %lld they must be "
                         "[batch, %lld]",
                         ls_shape_format(&x->shape, text), (long long)classes, (long long)classes);
}

static bool are_rows(const ls_tensor *x, int64_t classes)
{
    return x->shape.rank == 2 && x->shape.dims[1] == classes;
}

/* Sums columns over the batch, each row weighted; the parts follow one another. */
static ls_tensor *column_sums(ls_tensor *const *parts, size_t count, ls_tensor *weights)
{
    ls_tensor *all = ls_op_concat(parts, count, 1);
    if (weights)
        all = ls_op_mul(all, weights->shape.rank == 1 ? ls_op_with_last_axis(weights) : weights);
    return ls_op_reduce_sum(all, LS_AXES(0), false);
}

static ls_tensor *r2_sums(const char *name, int64_t classes, ls_tensor *targets, ls_tensor *predictions,
                          ls_tensor *weights)
{
    ls_tensor *error = ls_match_pair(name, &targets, &predictions);
    if (error)
        return error;
    if (!are_rows(predictions, classes))
        return wrong_shape(name, predictions, classes);
    ls_tensor *t = ls_op_cast(targets, LS_F64), *p = ls_op_cast(predictions, LS_F64);
    ls_tensor *one = ls_op_slice(t, LS_AXES(0, 0), LS_AXES(-1, 1)); /* [N,1] of ones */
    one = ls_op_broadcast_like(ls_scalar_like(t, 1), one);
    ls_tensor *weighted[] = { t, ls_op_square(t), ls_op_square(ls_op_sub(t, p)), one };
    ls_tensor *counted = ls_op_scale(one, (double)classes);
    ls_tensor *sums[] = { column_sums(weighted, 4, weights), column_sums(&counted, 1, NULL) };
    return ls_op_concat(sums, 2, 0);
}

/* Keras's rule for the highest score: ties count, zeros do not. */
static ls_tensor *found_classes(ls_tensor *p, double threshold)
{
    if (threshold != 0)
        return ls_op_cast(ls_op_compare(p, LS_GREATER, ls_scalar_like(p, ls_spec_number(threshold, 0))), LS_F64);
    ls_tensor *highest = ls_op_compare(p, LS_GREATER_EQUAL, ls_op_reduce_max(p, LS_AXES(-1), true));
    ls_tensor *is_there = ls_op_compare(ls_op_abs(p), LS_GREATER, ls_scalar_like(p, 1e-9));
    return ls_op_mul(ls_op_cast(highest, LS_F64), ls_op_cast(is_there, LS_F64));
}

static ls_tensor *f_sums(const ls_metric *metric, const char *name, ls_tensor *targets, ls_tensor *predictions,
                         ls_tensor *weights)
{
    int64_t classes = metric->num_classes;
    if (!are_rows(predictions, classes))
        return wrong_shape(name, predictions, classes);
    if (ls_targets_are_labels(targets, predictions)) {
        ls_tensor *labels = ls_match_labels(name, targets, predictions);
        targets = ls_tensor_is_error(labels) ? labels : ls_op_one_hot(ls_op_cast(labels, LS_I64), LS_F64, classes);
    }
    ls_tensor *error = ls_match_pair(name, &targets, &predictions);
    if (error)
        return error;
    ls_tensor *t = ls_op_cast(targets, LS_F64), *p = found_classes(predictions, metric->threshold);
    ls_tensor *one = ls_scalar_like(t, 1);
    ls_tensor *parts[] = { ls_op_mul(p, t), ls_op_mul(p, ls_op_sub(one, t)), ls_op_mul(ls_op_sub(one, p), t) };
    return column_sums(parts, 3, weights);
}

/* ---- Matrices ---- */

/* One-hot rows [N, positions, classes] of labels, or of the highest of `classes` scores. A tensor
 * with fewer axes than `other` has labels. Rows of the ignored class (0: none) are zeros. */
static ls_tensor *class_rows(ls_tensor *x, const ls_tensor *other, int64_t classes, double threshold, double ignored)
{
    int rank = x->shape.rank;
    bool scores = rank > 1 && rank >= other->shape.rank && classes > 1 && x->shape.dims[rank - 1] == classes;
    ls_tensor *counts = NULL;
    if (scores)
        x = ls_op_argmax(x, -1);
    if (ignored != 0) {
        ls_tensor *labels = ls_op_cast(x, LS_I64), *zero = ls_scalar_like(labels, 0);
        counts = ls_op_compare(labels, LS_NOT_EQUAL, ls_scalar_like(labels, ls_spec_number(ignored, 0)));
        x = ls_op_cast(ls_op_select(counts, labels, zero), ls_dtype_is_real(x->dtype) ? x->dtype : LS_I64);
    }
    if (scores)
        ;
    else if (classes == 2 && ls_dtype_is_real(x->dtype))
        x = ls_op_cast(ls_op_compare(x, LS_GREATER, ls_scalar_like(x, threshold)), LS_I64);
    else
        x = ls_op_cast(x, LS_I64);
    ls_shape flat = LS_SHAPE(x->shape.dims[0], LS_REMAINING);
    ls_tensor *hot = ls_op_one_hot(ls_op_reshape(x, flat), LS_F64, classes);
    return counts ? ls_op_mul(hot, ls_op_with_last_axis(ls_op_cast(ls_op_reshape(counts, flat), LS_F64))) : hot;
}

/* Products of one-hot rows count pairs: over the batch, or over the positions of each sample. */
static ls_tensor *matrix_sums(const ls_metric *metric, const char *name, ls_tensor *targets, ls_tensor *predictions,
                              ls_tensor *weights)
{
    int64_t classes = ls_class_count(metric);
    double threshold = ls_spec_number(metric->threshold, 0.5);
    char a[LS_SHAPE_TEXT], b[LS_SHAPE_TEXT];
    ls_tensor *t = class_rows(targets, predictions, classes, threshold, metric->ignore_class);
    ls_tensor *p = class_rows(predictions, targets, classes, threshold, 0);
    if (ls_tensor_is_error(t) || ls_tensor_is_error(p))
        return ls_tensor_is_error(t) ? t : p;
    if (!ls_shape_equal(&t->shape, &p->shape) || t->per_sample != p->per_sample)
        return ls_spec_error(predictions->graph, name, LS_ERR_SHAPE,
                             "targets of shape %s do not fit predictions of shape %s with num_classes %lld",
                             ls_shape_format(&targets->shape, a), ls_shape_format(&predictions->shape, b),
                             (long long)classes);
    if (weights && weights->shape.rank == 1)
        weights = ls_op_with_last_axis(ls_op_with_last_axis(weights));
    if (weights)
        t = ls_op_mul(t, weights);
    ls_tensor *each;
    if (t->shape.dims[1] == 1) {
        ls_shape rows = LS_SHAPE(t->shape.dims[0], classes);
        each = ls_op_matmul(ls_op_reshape(t, rows), .b = ls_op_reshape(p, rows), .transpose_a = true);
    } else {
        each = ls_op_reduce_sum(ls_op_matmul(t, .b = p, .transpose_a = true), LS_AXES(0), false);
    }
    return ls_op_reshape(each, LS_SHAPE(classes * classes));
}

ls_tensor *ls_class_sums(const ls_metric *metric, const char *name, ls_tensor *targets, ls_tensor *predictions,
                         ls_tensor *weights)
{
    if (metric->kind == LS_METRIC_R2_SCORE)
        return r2_sums(name, metric->num_classes, targets, predictions, weights);
    if (is_f_score(metric))
        return f_sums(metric, name, targets, predictions, weights);
    return matrix_sums(metric, name, targets, predictions, weights);
}

/* ---- Results ---- */

static double share(double part, double whole)
{
    return whole == 0 ? 0 : part / whole;
}

static double r2_total(const double *sums, int64_t classes, int64_t i)
{
    return sums[classes + i] - sums[i] * share(sums[i], sums[3 * classes]);
}

static double f_score(const ls_metric *metric, double hits, double extra, double missed)
{
    double beta = metric->kind == LS_METRIC_FBETA_SCORE ? ls_spec_number(metric->beta, 1) : 1, square = beta * beta;
    double precision = hits / (hits + extra + EPSILON), recall = hits / (hits + missed + EPSILON);
    return precision * recall / (square * precision + recall + EPSILON) * (1 + square);
}

/* Row plus column less the hits; 0: the class occurs nowhere. */
static double class_union(const double *matrix, int64_t classes, int64_t i)
{
    double sum = -matrix[i * classes + i];
    for (int64_t k = 0; k < classes; k++)
        sum += matrix[i * classes + k] + matrix[k * classes + i];
    return sum;
}

static double class_value(const ls_metric *metric, const double *sums, int64_t i)
{
    int64_t classes = ls_class_count(metric);
    double row = 0;
    if (metric->kind == LS_METRIC_R2_SCORE) {
        double total = r2_total(sums, classes, i);
        return total == 0 ? 0 : 1 - sums[2 * classes + i] / total;
    }
    if (is_f_score(metric))
        return f_score(metric, sums[i], sums[classes + i], sums[2 * classes + i]);
    for (int64_t k = 0; k < classes; k++)
        row += sums[i * classes + k];
    return share(sums[i * classes + i], metric->kind == LS_METRIC_CONFUSION ? row : class_union(sums, classes, i));
}

void ls_class_values(const ls_metric *metric, const double *sums, double *out)
{
    for (int64_t i = 0; i < ls_class_count(metric); i++)
        out[i] = class_value(metric, sums, i);
}

/* How much class i counts in the mean. */
static double class_weight(const ls_metric *metric, const double *sums, int64_t i)
{
    int64_t classes = ls_class_count(metric);
    bool weighted = metric->average == LS_AVERAGE_WEIGHTED;
    if (metric->kind == LS_METRIC_R2_SCORE)
        return weighted ? r2_total(sums, classes, i) : 1;
    if (is_f_score(metric))
        return weighted ? sums[i] + sums[2 * classes + i] : 1;
    double all = class_union(sums, classes, i);
    return metric->kind == LS_METRIC_CONFUSION ? 1 : all != 0;
}

static double micro_f_score(const ls_metric *metric, const double *sums)
{
    double parts[3] = { 0 };
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < metric->num_classes; i++)
            parts[k] += sums[k * metric->num_classes + i];
    return f_score(metric, parts[0], parts[1], parts[2]);
}

static double accuracy(const double *matrix, int64_t classes)
{
    double hits = 0, all = 0;
    for (int64_t i = 0; i < classes * classes; i++) {
        all += matrix[i];
        hits += i % (classes + 1) == 0 ? matrix[i] : 0;
    }
    return share(hits, all);
}

/* R2 with a penalty for the number of regressors. */
static double adjusted(const ls_metric *metric, double r2, double samples)
{
    double regressors = (double)metric->num_regressors;
    if (regressors == 0 || regressors >= samples - 1)
        return r2;
    return 1 - (1 - r2) * (samples - 1) / (samples - regressors - 1);
}

double ls_class_result(const ls_metric *metric, const double *sums)
{
    int64_t classes = ls_class_count(metric);
    double sum = 0, weights = 0;
    if (is_f_score(metric) && metric->average == LS_AVERAGE_MICRO)
        return micro_f_score(metric, sums);
    if (metric->kind == LS_METRIC_CONFUSION)
        return accuracy(sums, classes);
    for (int64_t i = 0; i < classes; i++) {
        double weight = class_weight(metric, sums, i);
        sum += weight * class_value(metric, sums, i);
        weights += weight;
    }
    double result = share(sum, weights);
    return metric->kind == LS_METRIC_R2_SCORE ? adjusted(metric, result, sums[3 * classes + 1]) : result;
}
