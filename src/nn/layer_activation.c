/* Activations, and the layers Activation, ReLU, LeakyReLU and Softmax. */
#include "nn/layer_family.h"

#include <math.h>

#include "graph/rules.h"

const char *ls_activation_name(ls_activation activation)
{
    static const char *const names[] = {
        [LS_LINEAR] = "linear",
        [LS_RELU] = "relu",
        [LS_SOFTMAX] = "softmax",
        [LS_SIGMOID] = "sigmoid",
        [LS_TANH] = "tanh",
        [LS_GELU] = "gelu",
        [LS_GELU_TANH] = "gelu_tanh", /* not a Keras name: JSON cannot express approximate=True */
        [LS_SILU] = "silu",
        [LS_ELU] = "elu",
        [LS_SOFTPLUS] = "softplus",
        [LS_LEAKY_RELU] = "leaky_relu",
        [LS_LOG_SOFTMAX] = "log_softmax",
        [LS_EXPONENTIAL] = "exponential",
        [LS_HARD_SIGMOID] = "hard_sigmoid",
    };
    return (unsigned)activation < sizeof(names) / sizeof(names[0]) ? names[activation] : NULL;
}

ls_tensor *ls_activate(ls_tensor *x, ls_activation activation)
{
    switch (activation) {
    case LS_LINEAR:
        return x;
    case LS_RELU:
        return ls_op_relu(x);
    case LS_SOFTMAX:
        return ls_op_softmax(x, -1);
    case LS_SIGMOID:
        return ls_op_sigmoid(x);
    case LS_TANH:
        return ls_op_tanh(x);
    case LS_GELU:
    case LS_GELU_TANH:
        return ls_op_gelu(x, activation == LS_GELU_TANH);
    case LS_SILU:
        return ls_op_silu(x);
    case LS_ELU:
        return ls_op_elu(x, 1);
    case LS_SOFTPLUS:
        return ls_op_softplus(x);
    case LS_LEAKY_RELU:
        return ls_op_leaky_relu(x, 0.2);
    case LS_LOG_SOFTMAX:
        return ls_op_log_softmax(x, -1);
    case LS_EXPONENTIAL:
        return ls_op_exp(x);
    case LS_HARD_SIGMOID:
        return ls_op_clip(ls_op_shift(ls_op_scale(x, 1.0 / 6), 0.5), 0, 1);
    case LS_NO_ACTIVATION:
        break;
    }
    return x;
}

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
    ls_tensor *y = plain ? ls_op_relu(x) : ls_op_select(ls_op_compare(x, LS_GREATER, threshold), x, zero);
    if (capped)
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
    { .kind = LS_LAYER_SOFTMAX,
      .class_name = "Softmax",
      .base = "softmax",
      .function = "ls_softmax",
      .resolve = resolve_softmax,
      .call = call_softmax,
      .mask = LS_MASK_REFUSES },
};

const ls_layer_family ls_activation_family = LS_LAYER_FAMILY(options, kinds);
