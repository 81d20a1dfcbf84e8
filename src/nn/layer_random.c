/* Layers that draw random numbers in training: dropout of elements, channels and samples, and
 * Gaussian noise. The numbers are a function of seed, layer, call, run, sample and element. */
#include <math.h>

#include "graph/rules.h"
#include "nn/layer_family.h"

static ls_status resolve_dropout(ls_layer *layer)
{
    double *rate = &layer->dropout.rate, *deviation = &layer->dropout.stddev;
    ls_resolve_number(rate, 0);
    ls_resolve_number(deviation, 0);
    if (!(*rate >= 0 && *rate < 1))
        return ls_fail(LS_ERR_INVALID, "rate is %g; it must be at least 0 and less than 1", *rate);
    if (!(*deviation >= 0 && *deviation <= 1))
        return ls_fail(LS_ERR_INVALID, "stddev is %g; it must be from 0 to 1", *deviation);
    return LS_OK;
}

/* ---- Masks ---- */

static ls_tensor *drop(const ls_layer *layer, const ls_layer_pass *pass, ls_tensor *x)
{
    return ls_op_dropout_keyed(x, ls_scalar_like(x, layer->dropout.rate), pass->random_layer, pass->random_call);
}

/* Returns 0 for what is dropped and 1 / (1 - rate) for what is kept, for each sample with the sizes
 * of x at `axes` and 1 elsewhere. */
static ls_tensor *mask(const ls_layer *layer, const ls_layer_pass *pass, const ls_tensor *x, const ls_axes *axes)
{
    ls_shape shape = { .rank = x->shape.rank, .dims = { x->shape.dims[0] } };
    for (int i = 1; i < shape.rank; i++)
        shape.dims[i] = 1;
    for (int i = 0; i < axes->count; i++)
        shape.dims[axes->axis[i]] = x->shape.dims[axes->axis[i]];
    return drop(layer, pass, ls_op_fill(x->graph, LS_F32, shape, 1));
}

static bool is_active(const ls_layer *layer, const ls_layer_pass *pass)
{
    return pass->training && (layer->dropout.rate != 0 || layer->dropout.stddev != 0);
}

/* Finds the axes that a mask has from the input. */
static ls_status noise_axes(const ls_shape *noise, const ls_shape *x, ls_axes *out)
{
    char want[LS_SHAPE_TEXT], have[LS_SHAPE_TEXT];
    bool fits = noise->rank == 0 || noise->rank == x->rank - 1;
    for (int i = 0; fits && i < noise->rank; i++) {
        if (noise->dims[i] != 1)
            out->axis[out->count++] = i + 1;
        fits = noise->dims[i] == 1 || noise->dims[i] == -1 || noise->dims[i] == x->dims[i + 1];
    }
    return fits ? LS_OK
                : ls_fail(LS_ERR_SHAPE, "noise_shape is %s; each size must be 1, -1 or that of the input, %s",
                          ls_shape_format(noise, want), ls_shape_format(x, have));
}

static ls_status call_dropout(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    ls_axes axes = { 0, { 0 } };
    LS_TRY(noise_axes(&layer->dropout.noise_shape, &x->shape, &axes));
    if (!is_active(layer, pass))
        *out = x;
    else if (layer->dropout.noise_shape.rank == 0)
        *out = drop(layer, pass, x);
    else
        *out = ls_op_mul(x, mask(layer, pass, x, &axes));
    return LS_OK;
}

/* Drops channels, the last axis, of a sample. */
static ls_status call_spatial(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    if (layer->kind == LS_LAYER_SPATIAL_DROPOUT1D)
        LS_TRY(ls_check_rank(&x->shape, 3, 3, "an input of 3 axes (batch, steps, channels)"));
    else
        LS_TRY(ls_check_image(&x->shape));
    const ls_axes channels = { 1, { x->shape.rank - 1 } };
    *out = is_active(layer, pass) ? ls_op_mul(x, mask(layer, pass, x, &channels)) : x;
    return LS_OK;
}

/* Drops samples. */
static ls_status call_depth(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    *out = is_active(layer, pass) ? ls_op_mul(x, mask(layer, pass, x, &(ls_axes){ 0, { 0 } })) : x;
    return LS_OK;
}

/* Replaces dropped elements by SELU's lowest value, then restores mean and variance (Klambauer et
 * al. 2017). */
static ls_status call_alpha(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    *out = x;
    if (!is_active(layer, pass))
        return LS_OK;
    const double rate = layer->dropout.rate, low = -LS_SELU_ALPHA * LS_SELU_SCALE;
    const double a = 1 / sqrt((1 - rate) * (1 + rate * low * low)), b = -a * low * rate;
    ls_tensor *drawn = drop(layer, pass, ls_op_fill(x->graph, LS_F32, x->shape, 1)), *zero = ls_scalar_like(x, 0);
    ls_tensor *kept = ls_op_select(ls_op_compare(drawn, LS_GREATER, zero), x, ls_scalar_like(x, low));
    *out = ls_op_shift(ls_op_scale(kept, a), b);
    return LS_OK;
}

/* ---- Noise ---- */

static ls_status call_noise(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    double rate = layer->dropout.rate;
    *out = x;
    if (!is_active(layer, pass))
        return LS_OK;
    bool adds = layer->kind == LS_LAYER_GAUSSIAN_NOISE;
    ls_tensor *noise = ls_op_random_normal_keyed(x->graph, x->shape, adds ? 0 : 1,
                                                 adds ? layer->dropout.stddev : sqrt(rate / (1 - rate)),
                                                 pass->random_layer, pass->random_call);
    *out = adds ? ls_op_add(x, noise) : ls_op_mul(x, noise);
    return LS_OK;
}

/* ---- Tables ---- */

static const ls_layer_option options[] = {
    LS_OPTION_OF(dropout, F64, rate, LS_LAYER_DROPOUT, LS_LAYER_SPATIAL_DROPOUT1D, LS_LAYER_SPATIAL_DROPOUT2D,
                 LS_LAYER_GAUSSIAN_DROPOUT, LS_LAYER_ALPHA_DROPOUT, LS_LAYER_STOCHASTIC_DEPTH),
    LS_OPTION_OF(dropout, SHAPE, noise_shape, LS_LAYER_DROPOUT),
    LS_OPTION_OF(dropout, F64, stddev, LS_LAYER_GAUSSIAN_NOISE),
};

#define RANDOM(KIND, class, snake, our, function_, each)                                                               \
    {                                                                                                                  \
        .kind = LS_LAYER_##KIND, .class_name = class, .base = snake, .function = our, .resolve = resolve_dropout,      \
        .call = function_, .elementwise = each, .random = true                                                         \
    }
static const ls_layer_info kinds[] = {
    RANDOM(DROPOUT, "Dropout", "dropout", "ls_dropout", call_dropout, true),
    RANDOM(SPATIAL_DROPOUT1D, "SpatialDropout1D", "spatial_dropout1d", "ls_spatial_dropout1d", call_spatial, false),
    RANDOM(SPATIAL_DROPOUT2D, "SpatialDropout2D", "spatial_dropout2d", "ls_spatial_dropout2d", call_spatial, false),
    RANDOM(GAUSSIAN_NOISE, "GaussianNoise", "gaussian_noise", "ls_gaussian_noise", call_noise, true),
    RANDOM(GAUSSIAN_DROPOUT, "GaussianDropout", "gaussian_dropout", "ls_gaussian_dropout", call_noise, true),
    RANDOM(ALPHA_DROPOUT, "AlphaDropout", "alpha_dropout", "ls_alpha_dropout", call_alpha, true),
    RANDOM(STOCHASTIC_DEPTH, "StochasticDepth", "stochastic_depth", "ls_stochastic_depth", call_depth, true),
};

const ls_layer_family ls_dropout_family = LS_LAYER_FAMILY(options, kinds);
