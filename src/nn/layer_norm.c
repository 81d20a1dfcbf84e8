/* BatchNormalization and LayerNormalization. */
#include <math.h>

#include "nn/constraint.h"
#include "nn/layer_family.h"

static ls_status resolve_norm(ls_layer *layer)
{
    ls_norm_options *o = &layer->norm;
    ls_resolve_number(&o->momentum, 0.99);
    ls_resolve_number(&o->epsilon, 1e-3);
    if (!(o->momentum >= 0 && o->momentum <= 1))
        return ls_fail(LS_ERR_INVALID, "momentum is %g; it must be from 0 to 1", o->momentum);
    if (!(o->epsilon >= 0 && isfinite(o->epsilon)))
        return ls_fail(LS_ERR_INVALID, "epsilon is %g; it must be finite and at least 0", o->epsilon);
    if ((unsigned)o->statistics > LS_PER_LANE)
        return ls_fail(LS_ERR_INVALID, "there are no statistics %d; use LS_PER_BATCH or LS_PER_LANE",
                       (int)o->statistics);
    o->last_axes = o->last_axes ? o->last_axes : 1;
    o->axis = o->axis ? o->axis : -1;
    LS_TRY(ls_check_positive("last_axes", o->last_axes));
    LS_TRY(ls_init_resolve("beta_initializer", &o->beta_initializer, ls_zeros));
    LS_TRY(ls_init_resolve("gamma_initializer", &o->gamma_initializer, ls_ones));
    LS_TRY(ls_init_resolve("moving_mean_initializer", &o->moving_mean_initializer, ls_zeros));
    LS_TRY(ls_init_resolve("moving_variance_initializer", &o->moving_variance_initializer, ls_ones));
    LS_TRY(ls_check_constraint("beta_constraint", &o->beta_constraint, -1));
    LS_TRY(ls_check_constraint("gamma_constraint", &o->gamma_constraint, -1));
    LS_TRY(ls_check_regularizer("beta_regularizer", &o->beta_regularizer));
    return ls_check_regularizer("gamma_regularizer", &o->gamma_regularizer);
}

/* Adds gamma and beta for the last `axes` axes; returns their shape. */
static ls_shape add_affine(const ls_layer *layer, const ls_shape *x, int axes, ls_weight *out, size_t *count)
{
    const ls_norm_options *o = &layer->norm;
    ls_shape shape = { .rank = axes };
    for (int i = 0; i < axes; i++)
        shape.dims[i] = x->dims[x->rank - axes + i];
    if (!o->no_scale) {
        ls_add_weight(layer, "gamma", shape, o->gamma_initializer, o->gamma_regularizer, out, count);
        out[*count - 1].constraint = o->gamma_constraint;
    }
    if (!o->no_center) {
        ls_add_weight(layer, "beta", shape, o->beta_initializer, o->beta_regularizer, out, count);
        out[*count - 1].constraint = o->beta_constraint;
    }
    return shape;
}

/* Encodes a number for an op that takes 0 as "default". */
static double not_default(double value)
{
    return value == 0 ? 0x1p-1022 : value;
}

/* ---- Batch normalization ---- */

static ls_status batch_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    const ls_norm_options *o = &layer->norm;
    LS_TRY(ls_check_rank(x, 2, LS_MAX_RANK, "an input of at least 2 axes (batch, ..., channels)"));
    if (o->axis != -1 && o->axis != x->rank - 1)
        return ls_fail(LS_ERR_UNSUPPORTED, "axis %lld: only the last axis, -1, can hold the channels",
                       (long long)o->axis);
    ls_shape shape = add_affine(layer, x, 1, out, count);
    ls_add_weight(layer, "moving_mean", shape, o->moving_mean_initializer, (ls_regularizer){ 0 }, out, count);
    ls_add_weight(layer, "moving_variance", shape, o->moving_variance_initializer, (ls_regularizer){ 0 }, out, count);
    out[*count - 2].trainable = out[*count - 1].trainable = false;
    return LS_OK;
}

static ls_status call_batch(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_norm_options *o = &layer->norm;
    ls_tensor *const *next = pass->weights;
    bool training = pass->training && !o->frozen;
    ls_batch_norm_op op = { .training = training,
                            .epsilon = not_default(o->epsilon),
                            .momentum = not_default(o->momentum),
                            .statistics = o->statistics };
    op.gamma = !o->no_scale ? *next++ : NULL;
    op.beta = !o->no_center ? *next++ : NULL;
    op.moving_mean = *next++;
    op.moving_variance = *next;
    op.updates = training && pass->update ? pass->updates : NULL;
    *out = ls_op_batch_norm_with(ls_layer_real(pass->inputs[0]), op);
    return LS_OK;
}

/* ---- Layer normalization ---- */

static ls_status layer_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    int axes = layer->norm.last_axes;
    LS_TRY(ls_check_rank(x, 2, LS_MAX_RANK, "an input of at least 2 axes (batch, ..., channels)"));
    if (axes > x->rank - 1)
        return ls_fail(LS_ERR_SHAPE, "last_axes is %d; the input has %d besides its batch axis", axes, x->rank - 1);
    add_affine(layer, x, axes, out, count);
    return LS_OK;
}

static ls_status call_layer(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_norm_options *o = &layer->norm;
    ls_tensor *const *next = pass->weights;
    ls_layer_norm_op op = { .axes = o->last_axes, .epsilon = not_default(o->epsilon) };
    op.gamma = !o->no_scale ? *next++ : NULL;
    op.beta = !o->no_center ? *next : NULL;
    *out = ls_op_layer_norm_with(ls_layer_real(pass->inputs[0]), op);
    return LS_OK;
}

/* ---- Tables ---- */

static const ls_layer_option options[] = {
    LS_OPTION_OF(norm, F64, momentum, LS_LAYER_BATCH_NORMALIZATION),
    LS_OPTION_OF(norm, INT, statistics, LS_LAYER_BATCH_NORMALIZATION),
    LS_OPTION(norm, F64, epsilon),
    LS_OPTION(norm, FLAG, no_center),
    LS_OPTION(norm, FLAG, no_scale),
    LS_OPTION(norm, INITIALIZER, beta_initializer),
    LS_OPTION(norm, INITIALIZER, gamma_initializer),
    LS_OPTION_OF(norm, INITIALIZER, moving_mean_initializer, LS_LAYER_BATCH_NORMALIZATION),
    LS_OPTION_OF(norm, INITIALIZER, moving_variance_initializer, LS_LAYER_BATCH_NORMALIZATION),
    LS_OPTION(norm, REGULARIZER, beta_regularizer),
    LS_OPTION(norm, REGULARIZER, gamma_regularizer),
    LS_OPTION(norm, CONSTRAINT, beta_constraint),
    LS_OPTION(norm, CONSTRAINT, gamma_constraint),
    LS_OPTION_OF(norm, INT, last_axes, LS_LAYER_LAYER_NORMALIZATION),
    LS_OPTION_OF(norm, I64, axis, LS_LAYER_BATCH_NORMALIZATION),
};

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_BATCH_NORMALIZATION,
      .class_name = "BatchNormalization",
      .base = "batch_normalization",
      .function = "ls_batch_normalization",
      .resolve = resolve_norm,
      .weights = batch_weights,
      .call = call_batch },
    { .kind = LS_LAYER_LAYER_NORMALIZATION,
      .class_name = "LayerNormalization",
      .base = "layer_normalization",
      .function = "ls_layer_normalization",
      .resolve = resolve_norm,
      .weights = layer_weights,
      .call = call_layer },
};

const ls_layer_family ls_norm_family = LS_LAYER_FAMILY(options, kinds);
