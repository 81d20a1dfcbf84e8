/* Helpers that optimizers, losses and metrics share. */
#include "nn/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "device/context.h"
#include "graph/rules.h"

ls_tensor *ls_spec_error(ls_graph *graph, const char *what, ls_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ls_fail_v(status, format, args);
    va_end(args);
    return ls_node_error(graph, status, what);
}

void ls_spec_warn(const ls_graph *graph, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    ls_log_write(&graph->context->log, LS_LOG_WARNING, "%s", line);
}

ls_status ls_free_name(ls_graph *graph, const char *base, const char *part, char **out)
{
    for (int number = 0;; number++) {
        ls_text name = { 0 }, probe = { 0 };
        ls_tensor *taken = NULL;
        ls_text_put(&name, base);
        if (number)
            ls_text_add(&name, "_%d", number);
        ls_text_add(&probe, "%s/%s", ls_text_get(&name), part);
        bool is_free = ls_graph_find(graph, ls_text_get(&probe), &taken) != LS_OK;
        ls_text_free(&probe);
        if (is_free)
            return ls_text_take(&name, out);
        ls_text_free(&name);
    }
}

ls_status ls_state_name(const char *owner, const char *of, const char *what, char **out)
{
    ls_text name = { 0 };
    ls_text_add(&name, "%s/%s%s%s", owner, of ? of : "", of ? "/" : "", what);
    return ls_text_take(&name, out);
}

ls_status ls_name_state(ls_tensor *tensor, const char *name)
{
    if (ls_tensor_is_error(tensor))
        return tensor ? ls_fail(tensor->status, "%s", tensor->message) : ls_fail(LS_ERR_INVALID, "%s is NULL", name);
    const char *prefix = tensor->graph->prefix;
    tensor->graph->prefix = "";
    ls_status status = ls_graph_name(tensor->graph, tensor, name);
    tensor->graph->prefix = prefix;
    return status;
}

static void fill(void *data, ls_dtype dtype, int64_t count, double value)
{
    for (int64_t i = 0; i < count; i++) {
        if (dtype == LS_F32)
            ((float *)data)[i] = (float)value;
        else if (dtype == LS_F64)
            ((double *)data)[i] = value;
        else
            ((int64_t *)data)[i] = (int64_t)value;
    }
}

ls_tensor *ls_state_variable(ls_graph *graph, const char *name, ls_dtype dtype, ls_shape shape, double start)
{
    int64_t count = 0;
    void *data = NULL;
    if (start != 0 && ls_shape_count(&shape, 0, &count)) {
        data = calloc((size_t)count + 1, ls_dtype_bytes(dtype));
        if (!data)
            return ls_spec_error(graph, name, LS_ERR_MEMORY, "no memory for %lld elements", (long long)count);
        fill(data, dtype, count, start);
    }
    const char *prefix = graph->prefix;
    graph->prefix = "";
    ls_tensor *variable = ls_op_variable(graph, name, dtype, shape, .data = data, .frozen = true);
    graph->prefix = prefix;
    free(data);
    return variable;
}

/* ---- Targets and predictions ---- */

ls_tensor *ls_pair_error(const char *what, ls_tensor *targets, ls_tensor *predictions)
{
    ls_graph *graph = ls_graph_of((ls_tensor *[]){ targets, predictions }, 2);
    if (targets && targets->op == LS_OP_ERROR)
        return targets;
    if (predictions && predictions->op == LS_OP_ERROR)
        return predictions;
    if (!targets || !predictions)
        return graph
                   ? ls_spec_error(graph, what, LS_ERR_INVALID, "the %s are NULL", targets ? "predictions" : "targets")
                   : NULL;
    return NULL;
}

static int64_t last_size(const ls_tensor *x)
{
    return x->shape.rank ? x->shape.dims[x->shape.rank - 1] : 0;
}

/* Axis 0 holds the samples: it never counts as a last axis of size 1. */
static bool has_single_last_axis(const ls_tensor *x)
{
    return x->shape.rank > 1 && last_size(x) == 1;
}

static ls_tensor *without_last_axis(ls_tensor *x)
{
    ls_shape shape = x->shape;
    shape.rank--;
    return ls_op_reshape(x, shape);
}

/* Names the loss or metric that accepts these targets, if they are class numbers or one-hot rows by
 * mistake. */
static void advise_form(const char *what, const ls_tensor *targets, const ls_tensor *predictions, char text[160])
{
    bool sparse = strncmp(what, "sparse_", 7) == 0, one_hot = strncmp(what, "categorical_", 12) == 0;
    int rank = targets->shape.rank - has_single_last_axis(targets);
    text[0] = '\0';
    if (sparse && ls_shape_equal(&targets->shape, &predictions->shape))
        snprintf(text, 160, "; %.50s takes class numbers: for one-hot targets use %.50s", what, what + 7);
    else if (one_hot && last_size(predictions) > 1 && rank == predictions->shape.rank - 1)
        snprintf(text, 160, "; %.50s takes one-hot targets: for class numbers use sparse_%.50s", what, what);
}

static ls_tensor *shapes_differ(const char *what, const ls_tensor *targets, const ls_tensor *predictions)
{
    char t[LS_SHAPE_TEXT], p[LS_SHAPE_TEXT], advice[160];
    advise_form(what, targets, predictions, advice);
    return ls_spec_error(predictions->graph, what, LS_ERR_SHAPE,
                         "targets of shape %s do not fit predictions of shape %s%s",
                         ls_shape_format(&targets->shape, t), ls_shape_format(&predictions->shape, p), advice);
}

ls_tensor *ls_match_pair(const char *what, ls_tensor **targets, ls_tensor **predictions)
{
    ls_tensor *error = ls_pair_error(what, *targets, *predictions), *t = *targets, *p = *predictions;
    if (error || !t || !p)
        return error;
    if (!ls_dtype_is_real(p->dtype))
        return ls_spec_error(p->graph, what, LS_ERR_DTYPE, "predictions are %s; they must be float32 or float64",
                             ls_dtype_name(p->dtype));
    t = ls_op_cast(t, p->dtype);
    if (t->shape.rank == p->shape.rank + 1 && has_single_last_axis(t))
        p = ls_op_with_last_axis(p);
    else if (p->shape.rank == t->shape.rank + 1 && has_single_last_axis(p))
        t = ls_op_with_last_axis(t);
    if (!ls_shape_equal(&t->shape, &p->shape) || t->per_sample != p->per_sample || p->shape.rank == 0)
        return shapes_differ(what, *targets, *predictions);
    *targets = p->shape.rank == 1 ? ls_op_with_last_axis(t) : t;
    *predictions = p->shape.rank == 1 ? ls_op_with_last_axis(p) : p;
    return NULL;
}

ls_tensor *ls_whole_labels(ls_tensor *t)
{
    if (t->dtype == LS_BOOL)
        return ls_op_cast(t, LS_I64);
    if (t->dtype != LS_F32 && t->dtype != LS_F64)
        return t;
    ls_tensor *cast = ls_op_cast(t, LS_I64);
    ls_tensor *whole = ls_op_compare(ls_op_cast(cast, t->dtype), LS_EQUAL, t);
    return ls_op_select(whole, cast, ls_scalar_like(cast, -1));
}

ls_tensor *ls_match_labels(const char *what, ls_tensor *labels, ls_tensor *predictions)
{
    ls_tensor *error = ls_pair_error(what, labels, predictions), *t = labels;
    if (error || !labels || !predictions)
        return error;
    if (t->shape.rank == predictions->shape.rank && has_single_last_axis(t))
        t = without_last_axis(t);
    ls_shape wanted = predictions->shape;
    wanted.rank--;
    if (predictions->shape.rank < 2 || !ls_shape_equal(&t->shape, &wanted) || t->per_sample != predictions->per_sample)
        return shapes_differ(what, labels, predictions);
    return ls_whole_labels(t);
}

bool ls_targets_are_labels(const ls_tensor *targets, const ls_tensor *predictions)
{
    return targets->shape.rank < predictions->shape.rank ||
           (has_single_last_axis(targets) && last_size(predictions) > 1);
}

ls_tensor *ls_match_weights(const char *what, ls_tensor *weights, ls_dtype dtype)
{
    char text[LS_SHAPE_TEXT];
    if (ls_tensor_is_error(weights))
        return weights;
    if (weights->shape.rank == 2 && has_single_last_axis(weights))
        weights = without_last_axis(weights);
    if (weights->shape.rank > 1)
        return ls_spec_error(weights->graph, what, LS_ERR_SHAPE,
                             "weights have shape %s; there must be one weight per sample",
                             ls_shape_format(&weights->shape, text));
    return ls_op_cast(weights, dtype);
}

static ls_axes all_but_first(const ls_tensor *x)
{
    ls_axes axes = { .count = x->shape.rank - 1 };
    for (int i = 0; i < axes.count; i++)
        axes.axis[i] = i + 1;
    return axes;
}

ls_tensor *ls_sample_means(ls_tensor *values)
{
    if (ls_tensor_is_error(values) || values->shape.rank < 2)
        return values;
    return ls_op_reduce_mean(values, all_but_first(values), false);
}

ls_tensor *ls_sample_sums(ls_tensor *values)
{
    if (ls_tensor_is_error(values) || values->shape.rank < 2)
        return values;
    return ls_op_reduce_sum(values, all_but_first(values), false);
}

/* Total / valid, a scalar; no step counts: any finite number. */
static ls_tensor *mask_scale(ls_tensor *mask)
{
    ls_tensor *valid = ls_op_reduce_sum(mask, LS_ALL_AXES, false);
    double each = 1;
    for (int i = 1; i < mask->shape.rank; i++)
        each *= (double)mask->shape.dims[i];
    int64_t samples = mask->shape.dims[0];
    ls_tensor *count = samples == LS_BATCH ? ls_op_count(mask->graph, LS_F32) : ls_scalar_like(mask, (double)samples);
    ls_tensor *total = ls_op_scale(count, each);
    return ls_op_div(total, ls_op_maximum(valid, ls_scalar_like(valid, 1)));
}

ls_tensor *ls_mask_and(ls_tensor *mask, ls_tensor *counts)
{
    if (!mask || ls_tensor_is_error(counts))
        return counts;
    mask = ls_op_cast(mask, LS_F32);
    while (mask->shape.rank < counts->shape.rank)
        mask = ls_op_with_last_axis(mask);
    return ls_op_mul(mask, ls_op_cast(counts, LS_F32));
}

ls_tensor *ls_mask_values(const char *what, ls_tensor *values, ls_tensor *given, bool scaled)
{
    char have[LS_SHAPE_TEXT], need[LS_SHAPE_TEXT];
    if (!values || ls_tensor_is_error(values) || !given)
        return values;
    ls_tensor *mask = ls_op_cast(given, LS_F32);
    if (ls_tensor_is_error(mask))
        return mask;
    ls_shape leading = values->shape;
    leading.rank = mask->shape.rank;
    if (values->shape.rank < mask->shape.rank || !ls_shape_equal(&leading, &mask->shape))
        return ls_spec_error(values->graph, what, LS_ERR_SHAPE,
                             "the values are %s, which the mask of the predictions, %s, does not fit",
                             ls_shape_format(&values->shape, have), ls_shape_format(&mask->shape, need));
    ls_tensor *weights = scaled ? ls_op_mul(mask, mask_scale(mask)) : mask;
    while (weights->shape.rank < values->shape.rank)
        weights = ls_op_with_last_axis(weights);
    return ls_op_mul(values, weights->dtype == values->dtype ? weights : ls_op_cast(weights, values->dtype));
}

ls_tensor *ls_own_values(const char *what, ls_tensor *values, const ls_tensor *predictions)
{
    char text[LS_SHAPE_TEXT];
    if (!values)
        return ls_spec_error(predictions->graph, what, LS_ERR_INVALID, "the function returned NULL");
    if (ls_tensor_is_error(values))
        return values;
    if (values->graph != predictions->graph)
        return ls_spec_error(predictions->graph, what, LS_ERR_INVALID,
                             "the function returned a tensor of another graph");
    bool samples = values->shape.rank > 0 && predictions->shape.rank > 0 &&
                   values->per_sample == predictions->per_sample && values->shape.dims[0] == predictions->shape.dims[0];
    if (!samples)
        return ls_spec_error(predictions->graph, what, LS_ERR_SHAPE,
                             "the function returned a value of shape %s; it must return one for each sample",
                             ls_shape_format(&values->shape, text));
    if (!ls_dtype_is_real(values->dtype) && values->dtype != LS_BOOL)
        return ls_spec_error(predictions->graph, what, LS_ERR_DTYPE,
                             "the function returned values of type %s; they must be float32 or float64",
                             ls_dtype_name(values->dtype));
    return values->dtype == LS_BOOL ? ls_op_cast(values, LS_F32) : values;
}

ls_status ls_check_ignored(const char *what, double ignore_class)
{
    double number = ls_spec_number(ignore_class, 0);
    if (number >= -0x1p31 && number <= 0x1p31 && number == (double)(int64_t)number)
        return LS_OK;
    return ls_fail(LS_ERR_INVALID, "%s: ignore_class is %g; it must be the number of a class", what, number);
}
