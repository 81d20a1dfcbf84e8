/* Normalization: features are brought to mean 0 and variance 1 by statistics of a dataset, which
 * are options or, computed by ls_model_adapt (adapt.c), weights. */
#include <math.h>
#include <stdlib.h>

#include "graph/rules.h"
#include "nn/layer_family.h"

static ls_status check_numbers(const ls_normalization_options *o)
{
    if (o->mean.count < 0 || o->variance.count < 0 || (o->mean.count > 0 && !o->mean.values) ||
        (o->variance.count > 0 && !o->variance.values))
        return ls_fail(LS_ERR_INVALID, "mean or variance has a negative count, or no values");
    if (o->mean.count != o->variance.count)
        return ls_fail(LS_ERR_INVALID, "there are %lld means and %lld variances; give one variance for each mean",
                       (long long)o->mean.count, (long long)o->variance.count);
    for (int64_t i = 0; i < o->mean.count; i++)
        if (!isfinite(o->mean.values[i]) || !(o->variance.values[i] >= 0 && isfinite(o->variance.values[i])))
            return ls_fail(LS_ERR_INVALID,
                           "mean %lld is %g and variance %lld is %g; both must be finite, and a variance at least 0",
                           (long long)i, o->mean.values[i], (long long)i, o->variance.values[i]);
    return LS_OK;
}

static ls_status resolve_normalization(ls_layer *layer)
{
    ls_normalization_options *o = &layer->normalization;
    if (o->no_axis && o->axes.count != 0)
        return ls_fail(LS_ERR_INVALID, "axes are given with no_axis; remove one of them");
    if (!o->no_axis && o->axes.count == 0)
        o->axes = LS_AXES(-1);
    return check_numbers(o);
}

/* Keras has also a count, which is always 0. */
static ls_status normalization_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    ls_axes axes;
    LS_TRY(ls_check_axes(&layer->normalization.axes, x, &axes));
    ls_shape shape = ls_sizes_of_axes(x, &axes);
    if (layer->normalization.mean.count > 0)
        return LS_OK;
    ls_add_weight(layer, "mean", shape, ls_zeros, (ls_regularizer){ 0 }, out, count);
    ls_add_weight(layer, "variance", shape, ls_ones, (ls_regularizer){ 0 }, out, count);
    ls_add_weight(layer, "count", LS_SCALAR, ls_zeros, (ls_regularizer){ 0 }, out, count);
    out[2].dtype = LS_I64;
    out[0].trainable = out[1].trainable = out[2].trainable = false;
    return LS_OK;
}

/* Makes a constant of given numbers: one, one for each element of `shape`, or of its last axes. */
static ls_status given_tensor(ls_graph *graph, const ls_numbers *numbers, const ls_shape *shape, ls_tensor **out)
{
    char text[LS_SHAPE_TEXT];
    ls_shape own = { .rank = 0 };
    int64_t count = 1;
    for (int first = shape->rank; numbers->count != count; first--) {
        if (first == 0)
            return ls_fail(LS_ERR_SHAPE,
                           "there are %lld means and variances; the axes have %s elements: give 1, one for each "
                           "element, or one for each of the last axes",
                           (long long)numbers->count, ls_shape_format(shape, text));
        count *= shape->dims[first - 1];
        own.rank++;
    }
    for (int i = 0; i < own.rank; i++)
        own.dims[i] = shape->dims[shape->rank - own.rank + i];
    float *values = malloc((size_t)numbers->count * sizeof(float));
    if (!values)
        return ls_fail(LS_ERR_MEMORY, "no memory for %lld numbers", (long long)numbers->count);
    for (int64_t i = 0; i < numbers->count; i++)
        values[i] = (float)numbers->values[i];
    *out = ls_op_constant(graph, LS_F32, own, values);
    free(values);
    return LS_OK;
}

static ls_status call_normalization(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_normalization_options *o = &layer->normalization;
    ls_tensor *x = ls_layer_real(pass->inputs[0]), *mean, *variance;
    ls_axes axes;
    LS_TRY(ls_check_axes(&o->axes, &x->shape, &axes));
    ls_shape shape = ls_sizes_of_axes(&x->shape, &axes);
    if (o->mean.count > 0) {
        LS_TRY(given_tensor(x->graph, &o->mean, &shape, &mean));
        LS_TRY(given_tensor(x->graph, &o->variance, &shape, &variance));
    } else {
        mean = pass->weights[0];
        variance = pass->weights[1];
    }
    mean = ls_along_axes(mean, x, &axes);
    ls_tensor *deviation = ls_op_sqrt(ls_along_axes(variance, x, &axes));
    deviation = ls_op_maximum(deviation, ls_scalar_like(deviation, 1e-7)); /* Keras's epsilon */
    *out = o->invert ? ls_op_add(mean, ls_op_mul(x, deviation)) : ls_op_div(ls_op_sub(x, mean), deviation);
    return LS_OK;
}

static const ls_layer_option options[] = {
    LS_OPTION(normalization, AXES, axes),        LS_OPTION(normalization, FLAG, no_axis),
    LS_OPTION(normalization, FLAG, invert),      LS_OPTION(normalization, NUMBERS, mean),
    LS_OPTION(normalization, NUMBERS, variance),
};

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_NORMALIZATION,
      .class_name = "Normalization",
      .base = "normalization",
      .function = "ls_normalization",
      .resolve = resolve_normalization,
      .weights = normalization_weights,
      .call = call_normalization },
};

const ls_layer_family ls_normalization_family = LS_LAYER_FAMILY(options, kinds);
