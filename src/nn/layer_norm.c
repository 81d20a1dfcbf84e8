/* BatchNormalization, LayerNormalization, GroupNormalization, RMSNormalization,
 * UnitNormalization. */
#include <math.h>

#include "nn/layer_family.h"

/* `last_axes` is the short form of `axes`. As in Keras, the sizes of the weights are in the
 * order of the sorted axes, negative ones first. */
static ls_status resolve_axes(ls_norm_options *o)
{
    if (o->last_axes != 0 && o->axes.count != 0)
        return ls_fail(LS_ERR_INVALID, "last_axes and axes are both given; remove one of them");
    for (int i = 1; i < o->axes.count && i < LS_MAX_RANK; i++)
        for (int k = i; k > 0 && o->axes.axis[k] < o->axes.axis[k - 1]; k--) {
            int64_t axis = o->axes.axis[k];
            o->axes.axis[k] = o->axes.axis[k - 1];
            o->axes.axis[k - 1] = axis;
        }
    if (o->axes.count != 0)
        return LS_OK;
    o->last_axes = o->last_axes ? o->last_axes : 1;
    LS_TRY(ls_check_positive("last_axes", o->last_axes));
    for (int i = -o->last_axes; i < 0 && o->axes.count < LS_MAX_RANK; i++)
        o->axes.axis[o->axes.count++] = i;
    return LS_OK;
}

static ls_status resolve_groups(ls_norm_options *o)
{
    if (o->first != 0 && o->groups != 0)
        return ls_fail(LS_ERR_INVALID, "groups is given twice: as %lld and as %lld", (long long)o->first,
                       (long long)o->groups);
    o->groups = o->groups ? o->groups : o->first ? o->first : 32;
    return o->groups == -1 ? LS_OK : ls_check_positive("groups", o->groups);
}

static ls_status resolve_norm(ls_layer *layer)
{
    ls_norm_options *o = &layer->norm;
    ls_resolve_number(&o->momentum, 0.99);
    ls_resolve_number(&o->epsilon, layer->kind == LS_LAYER_RMS_NORMALIZATION ? 1e-6 : 1e-3);
    if (!(o->momentum >= 0 && o->momentum <= 1))
        return ls_fail(LS_ERR_INVALID, "momentum is %g; it must be from 0 to 1", o->momentum);
    if (!(o->epsilon >= 0 && isfinite(o->epsilon)))
        return ls_fail(LS_ERR_INVALID, "epsilon is %g; it must be finite and at least 0", o->epsilon);
    if ((unsigned)o->statistics > LS_PER_LANE)
        return ls_fail(LS_ERR_INVALID, "there are no statistics %d; use LS_PER_BATCH or LS_PER_LANE",
                       (int)o->statistics);
    o->axis = o->axis ? o->axis : -1;
    LS_TRY(resolve_axes(o));
    LS_TRY(resolve_groups(o));
    LS_TRY(ls_init_resolve("beta_initializer", &o->beta_initializer, ls_zeros));
    LS_TRY(ls_init_resolve("gamma_initializer", &o->gamma_initializer, ls_ones));
    LS_TRY(ls_init_resolve("moving_mean_initializer", &o->moving_mean_initializer, ls_zeros));
    LS_TRY(ls_init_resolve("moving_variance_initializer", &o->moving_variance_initializer, ls_ones));
    LS_TRY(ls_check_regularizer("beta_regularizer", &o->beta_regularizer));
    return ls_check_regularizer("gamma_regularizer", &o->gamma_regularizer);
}

static bool has_gamma(const ls_norm_options *o)
{
    return !o->no_scale || o->rms_scaling;
}

static bool has_beta(const ls_norm_options *o)
{
    return !o->no_center && !o->rms_scaling;
}

/* Adds gamma and beta for the elements of `axes`; returns their shape. */
static ls_shape add_affine(const ls_layer *layer, const ls_shape *x, const ls_axes *axes, ls_weight *out, size_t *count)
{
    const ls_norm_options *o = &layer->norm;
    ls_shape shape = ls_sizes_of_axes(x, axes);
    if (has_gamma(o))
        ls_add_weight(layer, "gamma", shape, o->gamma_initializer, o->gamma_regularizer, out, count);
    if (has_beta(o))
        ls_add_weight(layer, "beta", shape, o->beta_initializer, o->beta_regularizer, out, count);
    return shape;
}

/* Multiplies by gamma and adds beta, the weights of add_affine. */
static ls_tensor *apply_affine(const ls_norm_options *o, ls_tensor *y, const ls_axes *axes, ls_tensor *const *weights)
{
    if (has_gamma(o))
        y = ls_op_mul(y, ls_along_axes(*weights++, y, axes));
    return has_beta(o) ? ls_op_add(y, ls_along_axes(*weights, y, axes)) : y;
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
    ls_shape shape = add_affine(layer, x, &(ls_axes){ 1, { x->rank - 1 } }, out, count);
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
    op.moving_mean = training && pass->earlier[0] ? pass->earlier[0] : next[0];
    op.moving_variance = training && pass->earlier[1] ? pass->earlier[1] : next[1];
    op.updates = training && pass->update ? pass->updates : NULL;
    *out = ls_op_batch_norm_with(ls_layer_real(pass->inputs[0]), op);
    return LS_OK;
}

/* ---- Layer normalization ---- */

static ls_status check_axes(const ls_norm_options *o, const ls_shape *x, ls_axes *out)
{
    LS_TRY(ls_check_rank(x, 2, LS_MAX_RANK, "an input of at least 2 axes (batch, ..., channels)"));
    if (o->last_axes > x->rank - 1)
        return ls_fail(LS_ERR_SHAPE, "last_axes is %d; the input has %d besides its batch axis", o->last_axes,
                       x->rank - 1);
    return ls_check_axes(&o->axes, x, out);
}

static ls_status layer_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    ls_axes axes;
    LS_TRY(check_axes(&layer->norm, x, &axes));
    add_affine(layer, x, &layer->norm.axes, out, count);
    return LS_OK;
}

/* Returns x times the inverse deviation over `axes`, minus the mean if `centred`. */
static ls_tensor *standardize(ls_tensor *x, ls_axes axes, double epsilon, bool centred)
{
    ls_tensor *difference = ls_op_sub(x, ls_op_reduce_mean(x, axes, true));
    ls_tensor *variance = ls_op_reduce_mean(ls_op_square(difference), axes, true);
    return ls_op_mul(centred ? difference : x, ls_op_rsqrt(ls_op_shift(variance, epsilon)));
}

/* Axes given both from the front and from the end may be in another order than the weight's. */
static ls_tensor *in_order(ls_tensor *weight, const ls_shape *sizes)
{
    return ls_shape_equal(&weight->shape, sizes) ? weight : ls_op_reshape(weight, *sizes);
}

static ls_status call_layer(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_norm_options *o = &layer->norm;
    ls_tensor *x = ls_layer_real(pass->inputs[0]), *const *next = pass->weights;
    ls_axes axes;
    LS_TRY(check_axes(o, &x->shape, &axes));
    if (o->rms_scaling || axes.axis[0] != x->shape.rank - axes.count) {
        *out = apply_affine(o, standardize(x, axes, o->epsilon, !o->rms_scaling), &axes, next);
        return LS_OK;
    }
    ls_shape sizes = ls_sizes_of_axes(&x->shape, &axes);
    ls_layer_norm_op op = { .axes = axes.count, .epsilon = not_default(o->epsilon) };
    op.gamma = has_gamma(o) ? in_order(*next++, &sizes) : NULL;
    op.beta = has_beta(o) ? in_order(*next, &sizes) : NULL;
    *out = ls_op_layer_norm_with(x, op);
    return LS_OK;
}

/* ---- Group normalization ---- */

static ls_status group_axis(const ls_norm_options *o, const ls_shape *x, int64_t *axis, int64_t *groups)
{
    *axis = o->axis;
    LS_TRY(ls_check_rank(x, 2, LS_MAX_RANK - 1, "an input of 2 to 7 axes (batch, ..., channels)"));
    LS_TRY(ls_check_axis(axis, x));
    int64_t channels = x->dims[*axis];
    *groups = o->groups == -1 ? channels : o->groups;
    if (channels % *groups != 0)
        return ls_fail(LS_ERR_SHAPE, "groups is %lld; the %lld channels of axis %lld are not a multiple of it",
                       (long long)*groups, (long long)channels, (long long)*axis);
    return LS_OK;
}

static ls_status group_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    int64_t axis, groups;
    LS_TRY(group_axis(&layer->norm, x, &axis, &groups));
    add_affine(layer, x, &(ls_axes){ 1, { axis } }, out, count);
    return LS_OK;
}

/* The channels become two axes, groups and channels of a group; a group is normalized over all axes
 * but the batch and the groups. */
static ls_status call_group(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_norm_options *o = &layer->norm;
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    int64_t axis, groups;
    LS_TRY(group_axis(o, &x->shape, &axis, &groups));
    ls_shape grouped = { .rank = x->shape.rank + 1 };
    ls_axes axes = { .count = 0 };
    for (int i = 0; i < grouped.rank; i++) {
        grouped.dims[i] = x->shape.dims[i > axis ? i - 1 : i];
        if (i != 0 && i != axis)
            axes.axis[axes.count++] = i;
    }
    grouped.dims[axis] = groups;
    grouped.dims[axis + 1] = x->shape.dims[axis] / groups;
    ls_tensor *y = ls_op_reshape(standardize(ls_op_reshape(x, grouped), axes, o->epsilon, true), x->shape);
    *out = apply_affine(o, y, &(ls_axes){ 1, { axis } }, pass->weights);
    return LS_OK;
}

/* ---- RMS normalization ---- */

static ls_status rms_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    ls_axes axes;
    LS_TRY(check_axes(&layer->norm, x, &axes));
    ls_add_weight(layer, "scale", ls_sizes_of_axes(x, &layer->norm.axes), ls_ones, (ls_regularizer){ 0 }, out, count);
    return LS_OK;
}

/* As in Keras, the scale is always along the last axes. */
static ls_status call_rms(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    ls_axes axes;
    LS_TRY(check_axes(&layer->norm, &x->shape, &axes));
    ls_tensor *mean = ls_op_reduce_mean(ls_op_square(x), axes, true);
    *out = ls_op_mul(ls_op_mul(x, ls_op_rsqrt(ls_op_shift(mean, layer->norm.epsilon))), pass->weights[0]);
    return LS_OK;
}

/* ---- Unit normalization ---- */

static ls_status call_unit(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    ls_axes axes;
    LS_TRY(check_axes(&layer->norm, &x->shape, &axes));
    *out = ls_unit_length(x, axes, 1e-12);
    return LS_OK;
}

/* ---- Tables ---- */

#define WITH_AFFINE LS_LAYER_BATCH_NORMALIZATION, LS_LAYER_LAYER_NORMALIZATION, LS_LAYER_GROUP_NORMALIZATION
static const ls_layer_option options[] = {
    LS_OPTION_OF(norm, F64, momentum, LS_LAYER_BATCH_NORMALIZATION),
    LS_OPTION_OF(norm, INT, statistics, LS_LAYER_BATCH_NORMALIZATION),
    LS_OPTION_OF(norm, F64, epsilon, WITH_AFFINE, LS_LAYER_RMS_NORMALIZATION),
    LS_OPTION_OF(norm, FLAG, no_center, WITH_AFFINE),
    LS_OPTION_OF(norm, FLAG, no_scale, WITH_AFFINE),
    LS_OPTION_OF(norm, INITIALIZER, beta_initializer, WITH_AFFINE),
    LS_OPTION_OF(norm, INITIALIZER, gamma_initializer, WITH_AFFINE),
    LS_OPTION_OF(norm, INITIALIZER, moving_mean_initializer, LS_LAYER_BATCH_NORMALIZATION),
    LS_OPTION_OF(norm, INITIALIZER, moving_variance_initializer, LS_LAYER_BATCH_NORMALIZATION),
    LS_OPTION_OF(norm, REGULARIZER, beta_regularizer, WITH_AFFINE),
    LS_OPTION_OF(norm, REGULARIZER, gamma_regularizer, WITH_AFFINE),
    LS_OPTION_OF(norm, INT, last_axes, LS_LAYER_LAYER_NORMALIZATION),
    LS_OPTION_OF(norm, AXES, axes, LS_LAYER_LAYER_NORMALIZATION, LS_LAYER_RMS_NORMALIZATION,
                 LS_LAYER_UNIT_NORMALIZATION),
    LS_OPTION_OF(norm, I64, axis, LS_LAYER_BATCH_NORMALIZATION, LS_LAYER_GROUP_NORMALIZATION),
    LS_OPTION_OF(norm, I64, groups, LS_LAYER_GROUP_NORMALIZATION),
    LS_OPTION_OF(norm, FLAG, rms_scaling, LS_LAYER_LAYER_NORMALIZATION),
};

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_BATCH_NORMALIZATION,
      .class_name = "BatchNormalization",
      .base = "batch_normalization",
      .function = "ls_batch_normalization",
      .resolve = resolve_norm,
      .weights = batch_weights,
      .call = call_batch,
      .mask = LS_MASK_REFUSES },
    { .kind = LS_LAYER_LAYER_NORMALIZATION,
      .class_name = "LayerNormalization",
      .base = "layer_normalization",
      .function = "ls_layer_normalization",
      .resolve = resolve_norm,
      .weights = layer_weights,
      .call = call_layer,
      .mask = LS_MASK_PASSES },
    { .kind = LS_LAYER_GROUP_NORMALIZATION,
      .class_name = "GroupNormalization",
      .base = "group_normalization",
      .function = "ls_group_normalization",
      .positional = { "groups" },
      .resolve = resolve_norm,
      .weights = group_weights,
      .call = call_group,
      .mask = LS_MASK_PASSES },
    { .kind = LS_LAYER_RMS_NORMALIZATION,
      .class_name = "RMSNormalization",
      .base = "rms_normalization",
      .function = "ls_rms_normalization",
      .resolve = resolve_norm,
      .weights = rms_weights,
      .call = call_rms,
      .mask = LS_MASK_PASSES },
    { .kind = LS_LAYER_UNIT_NORMALIZATION,
      .class_name = "UnitNormalization",
      .base = "unit_normalization",
      .function = "ls_unit_normalization",
      .resolve = resolve_norm,
      .call = call_unit,
      .mask = LS_MASK_PASSES },
};

const ls_layer_family ls_norm_family = LS_LAYER_FAMILY(options, kinds);
