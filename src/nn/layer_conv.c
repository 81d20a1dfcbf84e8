/* Convolutions: Conv2D and DepthwiseConv2D. */
#include "nn/layer_family.h"

#include <string.h>

static ls_status resolve_conv(ls_layer *layer, int64_t size, int64_t stride)
{
    ls_conv_options *o = &layer->conv;
    LS_TRY(ls_resolve_pair("kernel_size", o->kernel_size, size, 0));
    LS_TRY(ls_resolve_pair("strides", o->strides, stride, 1));
    LS_TRY(ls_resolve_pair("dilation_rate", o->dilation_rate, 0, 1));
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
    return ls_check_padding(o->padding, o->zero_padding);
}

static ls_status resolve_conv2d(ls_layer *layer)
{
    const ls_conv_options *o = &layer->conv;
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

static ls_status conv2d_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    const ls_conv_options *o = &layer->conv;
    LS_TRY(ls_check_image(x));
    if (x->dims[3] % o->groups != 0)
        return ls_fail(LS_ERR_SHAPE, "the input has %lld channels, which is not a multiple of groups %lld",
                       (long long)x->dims[3], (long long)o->groups);
    ls_add_kernel(layer, LS_SHAPE(o->kernel_size[0], o->kernel_size[1], x->dims[3] / o->groups, o->first), o->first,
                  out, count);
    return LS_OK;
}

static ls_status depthwise_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    const ls_conv_options *o = &layer->conv;
    LS_TRY(ls_check_image(x));
    ls_add_kernel(layer, LS_SHAPE(o->kernel_size[0], o->kernel_size[1], x->dims[3], o->depth_multiplier),
                  x->dims[3] * o->depth_multiplier, out, count);
    return LS_OK;
}

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

static ls_tensor *convolve(const ls_layer *layer, const ls_layer_pass *pass, ls_tensor *kernel, int64_t groups)
{
    const ls_conv_options *o = &layer->conv;
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    ls_conv2d_op conv = { .kernel = kernel,
                          .stride = { o->strides[0], o->strides[1] },
                          .dilation = { o->dilation_rate[0], o->dilation_rate[1] },
                          .groups = groups,
                          .padding = o->padding };
    int64_t zeros[4];
    memcpy(zeros, o->zero_padding, sizeof zeros);
    if (fold_zeros(&x, o, zeros))
        conv.padding = LS_EXPLICIT;
    if (conv.padding == LS_EXPLICIT)
        memcpy(conv.pad, zeros, sizeof conv.pad);
    return ls_finish_kernel(layer, ls_op_conv2d_with(x, conv), pass);
}

static ls_status call_conv2d(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    *out = convolve(layer, pass, pass->weights[0], layer->conv.groups);
    return LS_OK;
}

static ls_status call_depthwise(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_conv_options *o = &layer->conv;
    int64_t channels = pass->inputs[0]->shape.dims[3];
    /* [H,W,C,M] and [H,W,1,C M] have the same elements in the same order */
    ls_shape shape = LS_SHAPE(o->kernel_size[0], o->kernel_size[1], 1, channels * o->depth_multiplier);
    *out = convolve(layer, pass, ls_op_reshape(pass->weights[0], shape), channels);
    return LS_OK;
}

static const ls_layer_option options[] = {
    LS_OPTIONS_KERNEL(conv),
    LS_OPTION(conv, I64, kernel_size),
    LS_OPTION(conv, I64, strides),
    LS_OPTION(conv, I64, dilation_rate),
    LS_OPTION_OF(conv, I64, groups, LS_LAYER_CONV2D),
    LS_OPTION_OF(conv, I64, depth_multiplier, LS_LAYER_DEPTHWISE_CONV2D),
    LS_OPTION(conv, INT, padding),
    LS_OPTION(conv, I64, zero_padding),
};

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_CONV2D,
      .class_name = "Conv2D",
      .base = "conv2d",
      .function = "ls_conv2d",
      .positional = { "filters", "kernel_size", "strides" },
      .resolve = resolve_conv2d,
      .weights = conv2d_weights,
      .call = call_conv2d },
    { .kind = LS_LAYER_DEPTHWISE_CONV2D,
      .class_name = "DepthwiseConv2D",
      .base = "depthwise_conv2d",
      .function = "ls_depthwise_conv2d",
      .positional = { "kernel_size", "strides" },
      .resolve = resolve_depthwise,
      .weights = depthwise_weights,
      .call = call_depthwise },
};

const ls_layer_family ls_conv_family = LS_LAYER_FAMILY(options, kinds);
