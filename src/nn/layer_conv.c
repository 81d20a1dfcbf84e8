/* Convolutions: plain, depthwise, separable and transposed ones. A layer over sequences [N,T,C] is
 * one over images [N,1,T,C]. */
#include "nn/constraint.h"
#include "nn/layer_family.h"

#include <string.h>

#include "graph/rules.h"

static bool is_1d(const ls_layer *layer)
{
    return layer->kind == LS_LAYER_CONV1D || layer->kind == LS_LAYER_CONV1D_TRANSPOSE ||
           layer->kind == LS_LAYER_DEPTHWISE_CONV1D || layer->kind == LS_LAYER_SEPARABLE_CONV1D;
}

/* ---- Options ---- */

static ls_status resolve_conv(ls_layer *layer, int64_t size, int64_t stride)
{
    ls_conv_options *o = &layer->conv;
    int axes = is_1d(layer) ? 1 : 2;
    LS_TRY(ls_resolve_sizes("kernel_size", o->kernel_size, axes, size, 0));
    LS_TRY(ls_resolve_sizes("strides", o->strides, axes, stride, 1));
    LS_TRY(ls_resolve_sizes("dilation_rate", o->dilation_rate, axes, 0, 1));
    bool strided = o->strides[0] > 1 || o->strides[1] > 1, dilated = o->dilation_rate[0] > 1 || o->dilation_rate[1] > 1;
    if (strided && dilated) /* as in Keras */
        return ls_fail(LS_ERR_INVALID,
                       "strides (%lld, %lld) cannot be combined with dilation_rate (%lld, %lld); one of them must be 1",
                       (long long)o->strides[0], (long long)o->strides[1], (long long)o->dilation_rate[0],
                       (long long)o->dilation_rate[1]);
    o->groups = o->groups ? o->groups : 1;
    o->depth_multiplier = o->depth_multiplier ? o->depth_multiplier : 1;
    LS_TRY(ls_check_positive("groups", o->groups));
    LS_TRY(ls_check_positive("depth_multiplier", o->depth_multiplier));
    if (layer->kind == LS_LAYER_CONV1D && o->padding == LS_CAUSAL)
        return ls_check_padding(LS_VALID, o->zero_padding, axes);
    return ls_check_padding(o->padding, o->zero_padding, axes);
}

/* Conv1D, Conv2D and the transposed ones */
static ls_status resolve_filters(ls_layer *layer)
{
    ls_conv_options *o = &layer->conv;
    LS_TRY(ls_resolve_kernel(layer));
    LS_TRY(ls_check_positive("filters", o->first));
    LS_TRY(resolve_conv(layer, o->second, o->third));
    if (o->first % o->groups != 0)
        return ls_fail(LS_ERR_INVALID, "filters %lld is not a multiple of groups %lld", (long long)o->first,
                       (long long)o->groups);
    return LS_OK;
}

static ls_status resolve_depthwise(ls_layer *layer)
{
    LS_TRY(ls_resolve_kernel(layer));
    return resolve_conv(layer, layer->options.first, layer->options.second);
}

static ls_status resolve_separable(ls_layer *layer)
{
    static const ls_initializer glorot = { .kind = LS_INIT_GLOROT_UNIFORM };
    ls_conv_options *o = &layer->conv;
    LS_TRY(resolve_filters(layer));
    LS_TRY(ls_init_resolve("pointwise_initializer", &o->pointwise_initializer, glorot));
    LS_TRY(ls_check_constraint("pointwise_constraint", &o->pointwise_constraint, -1));
    return ls_check_regularizer("pointwise_regularizer", &o->pointwise_regularizer);
}

static ls_status resolve_transpose(ls_layer *layer)
{
    ls_conv_options *o = &layer->conv;
    int64_t *extra = o->output_padding;
    LS_TRY(resolve_filters(layer));
    if (o->padding != LS_VALID && o->padding != LS_SAME)
        return ls_fail(LS_ERR_INVALID, "padding is %d; it must be LS_VALID or LS_SAME", (int)o->padding);
    if (is_1d(layer) && extra[1] != 0)
        return ls_fail(LS_ERR_INVALID, "output_padding is (%lld, %lld); this layer takes one number",
                       (long long)extra[0], (long long)extra[1]);
    if (!is_1d(layer) && (extra[0] == 0) != (extra[1] == 0))
        extra[0] = extra[1] = extra[0] ? extra[0] : extra[1];
    for (int i = 0; i < 2; i++)
        if (extra[i] != 0 && (extra[i] < -1 || extra[i] >= o->strides[i]))
            return ls_fail(LS_ERR_INVALID,
                           "output_padding is %lld; it must be less than strides, %lld, or -1, which means 0",
                           (long long)extra[i], (long long)o->strides[i]);
    return LS_OK;
}

/* ---- Weights ---- */

/* [size, in, out] or [height, width, in, out] */
static ls_shape kernel_shape(const ls_layer *layer, int64_t in, int64_t out)
{
    const int64_t *size = layer->conv.kernel_size;
    return is_1d(layer) ? LS_SHAPE(size[0], in, out) : LS_SHAPE(size[0], size[1], in, out);
}

static ls_status check_input(const ls_layer *layer, const ls_shape *x)
{
    return is_1d(layer) ? ls_check_sequence(x) : ls_check_image(x);
}

static ls_status conv_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    const ls_conv_options *o = &layer->conv;
    LS_TRY(check_input(layer, x));
    int64_t channels = x->dims[x->rank - 1];
    if (channels % o->groups != 0)
        return ls_fail(LS_ERR_SHAPE, "the input has %lld channels, which is not a multiple of groups %lld",
                       (long long)channels, (long long)o->groups);
    ls_add_kernel(layer, kernel_shape(layer, channels / o->groups, o->first), o->first, out, count);
    return LS_OK;
}

static ls_status transpose_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    int64_t filters = layer->options.first;
    LS_TRY(check_input(layer, x));
    ls_add_kernel(layer, kernel_shape(layer, filters, x->dims[x->rank - 1]), filters, out, count);
    return LS_OK;
}

static ls_status depthwise_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    int64_t multiplier = layer->conv.depth_multiplier;
    LS_TRY(check_input(layer, x));
    int64_t channels = x->dims[x->rank - 1];
    ls_add_kernel(layer, kernel_shape(layer, channels, multiplier), channels * multiplier, out, count);
    return LS_OK;
}

static ls_status separable_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    const ls_conv_options *o = &layer->conv;
    LS_TRY(check_input(layer, x));
    int64_t channels = x->dims[x->rank - 1], width = channels * o->depth_multiplier;
    ls_add_weight(layer, "depthwise_kernel", kernel_shape(layer, channels, o->depth_multiplier), o->kernel_initializer,
                  o->kernel_regularizer, out, count);
    out[*count - 1].constraint = o->kernel_constraint;
    ls_add_weight(layer, "pointwise_kernel",
                  is_1d(layer) ? LS_SHAPE(1, width, o->first) : LS_SHAPE(1, 1, width, o->first),
                  o->pointwise_initializer, o->pointwise_regularizer, out, count);
    out[*count - 1].constraint = o->pointwise_constraint;
    if (!o->no_bias) {
        ls_add_weight(layer, "bias", LS_SHAPE(o->first), o->bias_initializer, o->bias_regularizer, out, count);
        out[*count - 1].constraint = o->bias_constraint;
    }
    return LS_OK;
}

/* ---- Calls ---- */

/* If x is zero-padded by less than the kernel size, lets the convolution pad: sets *x to the
 * unpadded input and fills `pad`. */
static bool fold_zeros(ls_tensor **x, const ls_conv_options *o, int64_t pad[4])
{
    const ls_tensor *node = *x;
    if (o->padding != LS_VALID || node->op != LS_OP_pad || node->attr.pad.value != 0 || node->attr.pad.before[0] != 0 ||
        node->attr.pad.after[0] != 0 || node->attr.pad.before[3] != 0 || node->attr.pad.after[3] != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        pad[2 * i] = node->attr.pad.before[i + 1];
        pad[2 * i + 1] = node->attr.pad.after[i + 1];
        if (pad[2 * i] >= o->kernel_size[i] || pad[2 * i + 1] >= o->kernel_size[i])
            return false;
    }
    *x = node->in[0];
    return true;
}

/* Options of the op; for a sequence those of an image of height 1. */
static ls_conv2d_op window_of(const ls_layer *layer)
{
    const ls_conv_options *o = &layer->conv;
    ls_conv2d_op conv = { .padding = o->padding };
    if (!is_1d(layer)) {
        memcpy(conv.stride, o->strides, sizeof conv.stride);
        memcpy(conv.dilation, o->dilation_rate, sizeof conv.dilation);
        memcpy(conv.pad, o->zero_padding, sizeof conv.pad);
        return conv;
    }
    conv.stride[0] = conv.dilation[0] = 1;
    conv.stride[1] = o->strides[0];
    conv.dilation[1] = o->dilation_rate[0];
    memcpy(conv.pad + 2, o->zero_padding, 2 * sizeof *conv.pad);
    if (o->padding == LS_CAUSAL) {
        conv.padding = LS_EXPLICIT;
        conv.pad[2] = (o->kernel_size[0] - 1) * o->dilation_rate[0];
    }
    return conv;
}

static ls_tensor *image_of(const ls_layer *layer, const ls_layer_pass *pass)
{
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    return is_1d(layer) ? ls_sequence_to_image(x) : x;
}

/* A kernel as the op needs it: [height, width, in, out]. */
static ls_tensor *image_kernel(const ls_layer *layer, ls_tensor *kernel, int64_t in, int64_t out)
{
    const int64_t *size = layer->conv.kernel_size;
    ls_shape shape = is_1d(layer) ? LS_SHAPE(1, size[0], in, out) : LS_SHAPE(size[0], size[1], in, out);
    return ls_shape_equal(&kernel->shape, &shape) ? kernel : ls_op_reshape(kernel, shape);
}

static ls_tensor *convolve(const ls_layer *layer, ls_tensor *x, ls_tensor *kernel, int64_t groups)
{
    ls_conv2d_op conv = window_of(layer);
    conv.kernel = kernel;
    conv.groups = groups;
    if (!is_1d(layer) && fold_zeros(&x, &layer->conv, conv.pad))
        conv.padding = LS_EXPLICIT;
    return ls_op_conv2d_with(x, conv);
}

/* Adds the bias, applies the activation and returns a sequence for a sequence. */
static void finish(const ls_layer *layer, const ls_layer_pass *pass, ls_tensor *y, size_t bias, ls_tensor **out)
{
    y = ls_finish_kernel(layer, pass, y, bias);
    *out = is_1d(layer) ? ls_image_to_sequence(y) : y;
}

static ls_status call_conv(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_conv_options *o = &layer->conv;
    ls_tensor *x = image_of(layer, pass);
    ls_tensor *kernel = image_kernel(layer, pass->weights[0], x->shape.dims[3] / o->groups, o->first);
    finish(layer, pass, convolve(layer, x, kernel, o->groups), 1, out);
    return LS_OK;
}

static ls_tensor *convolve_depthwise(const ls_layer *layer, const ls_layer_pass *pass)
{
    ls_tensor *x = image_of(layer, pass);
    int64_t channels = x->shape.dims[3];
    /* [H,W,C,M] and [H,W,1,C M] have the same elements in the same order */
    ls_tensor *kernel = image_kernel(layer, pass->weights[0], 1, channels * layer->conv.depth_multiplier);
    return convolve(layer, x, kernel, channels);
}

static ls_status call_depthwise(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    finish(layer, pass, convolve_depthwise(layer, pass), 1, out);
    return LS_OK;
}

static ls_status call_separable(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = convolve_depthwise(layer, pass), *points = pass->weights[1];
    if (is_1d(layer))
        points = ls_op_reshape(points, LS_SHAPE(1, 1, points->shape.dims[1], points->shape.dims[2]));
    finish(layer, pass, ls_op_conv2d(x, points), 2, out);
    return LS_OK;
}

/* Size of the output along an axis, and the padding before and after it. */
static int64_t transposed_size(const ls_conv_options *o, int axis, int64_t size, int64_t pad[2])
{
    int64_t stride = o->strides[axis], extra = o->output_padding[axis];
    int64_t span = (o->kernel_size[axis] - 1) * o->dilation_rate[axis] + 1, steps = (size - 1) * stride, total = 0;
    pad[0] = pad[1] = 0;
    if (o->padding == LS_VALID)
        return steps + span + (extra > 0 ? extra : extra < 0 || span > stride ? 0 : stride - span);
    size = extra == 0 ? steps + stride : steps + span % 2 + (extra > 0 ? extra : 0);
    total = steps + span - size > 0 ? steps + span - size : 0;
    pad[0] = total / 2;
    pad[1] = total - pad[0];
    return size;
}

static ls_status call_transpose(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_conv_options *o = &layer->conv;
    ls_tensor *x = image_of(layer, pass);
    ls_conv2d_op conv = window_of(layer);
    int64_t size[2] = { 1, 1 };
    int axes = is_1d(layer) ? 1 : 2;
    memset(conv.pad, 0, sizeof conv.pad);
    for (int i = 0, at = 2 - axes; i < axes; i++, at++)
        size[at] = transposed_size(o, i, x->shape.dims[at + 1], conv.pad + 2 * at);
    conv.padding = LS_EXPLICIT;
    conv.kernel = image_kernel(layer, pass->weights[0], o->first, x->shape.dims[3]);
    finish(layer, pass, ls_op_conv2d_transpose(x, conv, size), 1, out);
    return LS_OK;
}

#define CONVS      LS_LAYER_CONV2D, LS_LAYER_CONV1D
#define SEPARABLES LS_LAYER_SEPARABLE_CONV1D, LS_LAYER_SEPARABLE_CONV2D
#define TRANSPOSES LS_LAYER_CONV1D_TRANSPOSE, LS_LAYER_CONV2D_TRANSPOSE

static const ls_layer_option options[] = {
    LS_OPTIONS_KERNEL(conv),
    LS_OPTION(conv, I64, kernel_size),
    LS_OPTION(conv, I64, strides),
    LS_OPTION(conv, I64, dilation_rate),
    LS_OPTION_OF(conv, I64, groups, CONVS),
    LS_OPTION_OF(conv, I64, depth_multiplier, LS_LAYER_DEPTHWISE_CONV2D, LS_LAYER_DEPTHWISE_CONV1D, SEPARABLES),
    LS_OPTION(conv, INT, padding),
    LS_OPTION(conv, I64, zero_padding),
    LS_OPTION_OF(conv, I64, output_padding, TRANSPOSES),
    LS_OPTION_OF(conv, INITIALIZER, pointwise_initializer, SEPARABLES),
    LS_OPTION_OF(conv, REGULARIZER, pointwise_regularizer, SEPARABLES),
    LS_OPTION_OF(conv, CONSTRAINT, pointwise_constraint, SEPARABLES),
};

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_CONV2D,
      .class_name = "Conv2D",
      .base = "conv2d",
      .function = "ls_conv2d",
      .positional = { "filters", "kernel_size", "strides" },
      .resolve = resolve_filters,
      .weights = conv_weights,
      .call = call_conv },
    { .kind = LS_LAYER_CONV1D,
      .class_name = "Conv1D",
      .base = "conv1d",
      .function = "ls_conv1d",
      .positional = { "filters", "kernel_size", "strides" },
      .resolve = resolve_filters,
      .weights = conv_weights,
      .call = call_conv },
    { .kind = LS_LAYER_DEPTHWISE_CONV2D,
      .class_name = "DepthwiseConv2D",
      .base = "depthwise_conv2d",
      .function = "ls_depthwise_conv2d",
      .positional = { "kernel_size", "strides" },
      .resolve = resolve_depthwise,
      .weights = depthwise_weights,
      .call = call_depthwise },
    { .kind = LS_LAYER_DEPTHWISE_CONV1D,
      .class_name = "DepthwiseConv1D",
      .base = "depthwise_conv1d",
      .function = "ls_depthwise_conv1d",
      .positional = { "kernel_size", "strides" },
      .resolve = resolve_depthwise,
      .weights = depthwise_weights,
      .call = call_depthwise },
    { .kind = LS_LAYER_SEPARABLE_CONV1D,
      .class_name = "SeparableConv1D",
      .base = "separable_conv1d",
      .function = "ls_separable_conv1d",
      .positional = { "filters", "kernel_size", "strides" },
      .resolve = resolve_separable,
      .weights = separable_weights,
      .call = call_separable },
    { .kind = LS_LAYER_SEPARABLE_CONV2D,
      .class_name = "SeparableConv2D",
      .base = "separable_conv2d",
      .function = "ls_separable_conv2d",
      .positional = { "filters", "kernel_size", "strides" },
      .resolve = resolve_separable,
      .weights = separable_weights,
      .call = call_separable },
    { .kind = LS_LAYER_CONV1D_TRANSPOSE,
      .class_name = "Conv1DTranspose",
      .base = "conv1d_transpose",
      .function = "ls_conv1d_transpose",
      .positional = { "filters", "kernel_size", "strides" },
      .resolve = resolve_transpose,
      .weights = transpose_weights,
      .call = call_transpose },
    { .kind = LS_LAYER_CONV2D_TRANSPOSE,
      .class_name = "Conv2DTranspose",
      .base = "conv2d_transpose",
      .function = "ls_conv2d_transpose",
      .positional = { "filters", "kernel_size", "strides" },
      .resolve = resolve_transpose,
      .weights = transpose_weights,
      .call = call_transpose },
};

const ls_layer_family ls_conv_family = LS_LAYER_FAMILY(options, kinds);
