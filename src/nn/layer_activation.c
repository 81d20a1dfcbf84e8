/* The layers Activation, ReLU, LeakyReLU, ELU, PReLU and Softmax. */
#include "nn/layer_family.h"

#include <math.h>

#include "graph/rules.h"

/* ---- Activation ---- */

static ls_status resolve_activation(ls_layer *layer)
{
    return ls_resolve_activation(layer->activation.activation);
}

static ls_status call_activation(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    *out = ls_activate(ls_layer_real(pass->inputs[0]), layer->activation.activation);
    return LS_OK;
}

/* ---- ReLU and LeakyReLU ---- */

static ls_status resolve_relu(ls_layer *layer)
{
    ls_activation_options *o = &layer->activation;
    ls_resolve_number(&o->negative_slope, layer->kind == LS_LAYER_LEAKY_RELU ? 0.3 : 0);
    ls_resolve_number(&o->threshold, 0);
    ls_resolve_number(&o->max_value, INFINITY);
    if (!(o->negative_slope >= 0 && isfinite(o->negative_slope)))
        return ls_fail(LS_ERR_INVALID, "negative_slope is %g; it must be finite and at least 0", o->negative_slope);
    if (!(o->max_value >= 0))
        return ls_fail(LS_ERR_INVALID, "max_value is %g; it must be at least 0", o->max_value);
    if (!(o->threshold >= 0 && isfinite(o->threshold)))
        return ls_fail(LS_ERR_INVALID, "threshold is %g; it must be finite and at least 0", o->threshold);
    return LS_OK;
}

/* Keras's formula: max_value above it, x from the threshold on, negative_slope (x - threshold)
 * below. */
static ls_tensor *relu(const ls_activation_options *o, ls_tensor *x)
{
    bool plain = o->threshold == 0, capped = isfinite(o->max_value);
    if (plain && !capped)
        return o->negative_slope == 0 ? ls_op_relu(x) : ls_op_leaky_relu(x, o->negative_slope);
    ls_tensor *threshold = ls_scalar_like(x, o->threshold), *zero = ls_scalar_like(x, 0);
    ls_tensor *y =
        plain ? ls_op_capped_relu(x, o->max_value) : ls_op_select(ls_op_compare(x, LS_GREATER, threshold), x, zero);
    if (!plain && capped)
        y = ls_op_minimum(y, ls_scalar_like(x, o->max_value));
    if (o->negative_slope == 0)
        return y;
    ls_tensor *below = ls_op_relu(ls_op_sub(threshold, x));
    return ls_op_sub(y, ls_op_scale(below, o->negative_slope));
}

static ls_status call_relu(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    *out = relu(&layer->activation, ls_layer_real(pass->inputs[0]));
    return LS_OK;
}

/* ---- ELU ---- */

static ls_status resolve_elu(ls_layer *layer)
{
    double *alpha = &layer->activation.alpha;
    ls_resolve_number(alpha, 1);
    return isfinite(*alpha) ? LS_OK : ls_fail(LS_ERR_INVALID, "alpha is %g; it must be finite", *alpha);
}

static ls_status call_elu(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    *out = ls_op_elu(ls_layer_real(pass->inputs[0]), layer->activation.alpha);
    return LS_OK;
}

/* ---- PReLU ---- */

static ls_status resolve_prelu(ls_layer *layer)
{
    ls_activation_options *o = &layer->activation;
    for (int i = 0; i < o->shared_axes.count && i < LS_MAX_RANK; i++)
        LS_TRY(ls_check_positive("an axis of shared_axes", o->shared_axes.axis[i]));
    LS_TRY(ls_init_resolve("alpha_initializer", &o->alpha_initializer, ls_zeros));
    return ls_check_regularizer("alpha_regularizer", &o->alpha_regularizer);
}

static ls_status prelu_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    const ls_activation_options *o = &layer->activation;
    ls_shape sample = { .rank = x->rank - 1 };
    ls_axes shared;
    for (int i = 0; i < sample.rank; i++)
        sample.dims[i] = x->dims[i + 1];
    LS_TRY(ls_check_axes(&o->shared_axes, x, &shared));
    for (int i = 0; i < shared.count; i++)
        sample.dims[shared.axis[i] - 1] = 1;
    ls_add_weight(layer, "alpha", sample, o->alpha_initializer, o->alpha_regularizer, out, count);
    return LS_OK;
}

static ls_status call_prelu(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    (void)layer;
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    *out = ls_op_sub(ls_op_relu(x), ls_op_mul(pass->weights[0], ls_op_relu(ls_op_neg(x))));
    return LS_OK;
}

/* ---- Softmax ---- */

static ls_status resolve_softmax(ls_layer *layer)
{
    if (layer->activation.axis == 0)
        layer->activation.axis = -1;
    return LS_OK;
}

static ls_status call_softmax(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = pass->inputs[0];
    int64_t axis = layer->activation.axis;
    LS_TRY(ls_check_axis(&axis, &x->shape));
    *out = ls_op_softmax(ls_layer_real(x), (int)axis);
    return LS_OK;
}

/* ---- Tables ---- */

static const ls_layer_option options[] = {
    LS_OPTION_OF(activation, INT, activation, LS_LAYER_ACTIVATION),
    LS_OPTION_OF(activation, F64, negative_slope, LS_LAYER_RELU, LS_LAYER_LEAKY_RELU),
    LS_OPTION_OF(activation, F64, max_value, LS_LAYER_RELU),
    LS_OPTION_OF(activation, F64, threshold, LS_LAYER_RELU),
    LS_OPTION_OF(activation, I64, axis, LS_LAYER_SOFTMAX),
    LS_OPTION_OF(activation, F64, alpha, LS_LAYER_ELU),
    LS_OPTION_OF(activation, INITIALIZER, alpha_initializer, LS_LAYER_PRELU),
    LS_OPTION_OF(activation, REGULARIZER, alpha_regularizer, LS_LAYER_PRELU),
    LS_OPTION_OF(activation, AXES, shared_axes, LS_LAYER_PRELU),
};

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_ACTIVATION,
      .class_name = "Activation",
      .base = "activation",
      .function = "ls_activation_layer",
      .resolve = resolve_activation,
      .call = call_activation,
      .elementwise = true },
    { .kind = LS_LAYER_RELU,
      .class_name = "ReLU",
      .base = "re_lu",
      .function = "ls_relu",
      .resolve = resolve_relu,
      .call = call_relu,
      .elementwise = true },
    { .kind = LS_LAYER_LEAKY_RELU,
      .class_name = "LeakyReLU",
      .base = "leaky_re_lu",
      .function = "ls_leaky_relu",
      .resolve = resolve_relu,
      .call = call_relu,
      .elementwise = true },
    { .kind = LS_LAYER_ELU,
      .class_name = "ELU",
      .base = "elu",
      .function = "ls_elu",
      .resolve = resolve_elu,
      .call = call_elu,
      .elementwise = true },
    { .kind = LS_LAYER_PRELU,
      .class_name = "PReLU",
      .base = "p_re_lu",
      .function = "ls_prelu",
      .resolve = resolve_prelu,
      .weights = prelu_weights,
      .call = call_prelu },
    { .kind = LS_LAYER_SOFTMAX,
      .class_name = "Softmax",
      .base = "softmax",
      .function = "ls_softmax",
      .resolve = resolve_softmax,
      .call = call_softmax,
      .mask = LS_MASK_REFUSES },
};

const ls_layer_family ls_activation_family = LS_LAYER_FAMILY(options, kinds);
