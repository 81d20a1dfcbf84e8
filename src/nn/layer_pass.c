/* The variables of each kind of layer, and the nodes of one call. Specs are settled (layer.c). */
#include "nn/layer.h"

#include <math.h>
#include <string.h>

#include "graph/rules.h"

ls_status ls_tensor_check(const ls_tensor *tensor)
{
    if (!tensor)
        return ls_fail(LS_ERR_INVALID, "a tensor is NULL");
    return tensor->op == LS_OP_ERROR ? ls_fail(tensor->status, "%s", tensor->message) : LS_OK;
}

/* ---- Activations ---- */

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
    };
    return (unsigned)activation < sizeof(names) / sizeof(names[0]) ? names[activation] : NULL;
}

static ls_tensor *activate(ls_tensor *x, ls_activation activation)
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
    }
    return x;
}

/* ---- Variables ---- */

/* Checks the rank of a call's input, which includes the batch axis. */
static ls_status need_axes(const ls_shape *x, int least, int most, const char *what)
{
    if (x->rank < least || x->rank > most)
        return ls_fail(LS_ERR_SHAPE, "%s is needed", what);
    return LS_OK;
}

static ls_status need_image(const ls_shape *x)
{
    return need_axes(x, 4, 4, "an input of 4 axes (batch, height, width, channels)");
}

static void add_weight(ls_weight *out, size_t *count, const char *name, ls_shape shape, ls_initializer initializer,
                       ls_regularizer regularizer, bool trainable)
{
    out[(*count)++] = (ls_weight){
        .name = name, .shape = shape, .initializer = initializer, .regularizer = regularizer, .trainable = trainable
    };
}

static void add_bias(const ls_layer *layer, int64_t width, ls_weight *out, size_t *count)
{
    const ls_layer_options *o = &layer->options;
    if (!o->no_bias)
        add_weight(out, count, "bias", LS_SHAPE(width), o->bias_initializer, o->bias_regularizer, !o->frozen);
}

static ls_status norm_weights(const ls_layer *layer, const ls_shape *x, ls_weight *out, size_t *count)
{
    const ls_layer_options *o = &layer->options;
    bool batch = layer->kind == LS_LAYER_BATCH_NORMALIZATION, trained = !o->frozen;
    LS_TRY(need_axes(x, 2, LS_MAX_RANK, "an input of at least 2 axes (batch, ..., channels)"));
    if (batch && o->axis != -1 && o->axis != x->rank - 1)
        return ls_fail(LS_ERR_UNSUPPORTED, "axis %lld: only the last axis can hold the channels", (long long)o->axis);
    if (!batch && o->last_axes > x->rank - 1)
        return ls_fail(LS_ERR_SHAPE, "last_axes is %d; the input has %d besides its batch axis", o->last_axes,
                       x->rank - 1);
    ls_shape shape = { .rank = batch ? 1 : o->last_axes };
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = x->dims[x->rank - shape.rank + i];
    if (!o->no_scale)
        add_weight(out, count, "gamma", shape, o->gamma_initializer, o->gamma_regularizer, trained);
    if (!o->no_center)
        add_weight(out, count, "beta", shape, o->beta_initializer, o->beta_regularizer, trained);
    if (batch) {
        add_weight(out, count, "moving_mean", shape, o->moving_mean_initializer, (ls_regularizer){ 0 }, false);
        add_weight(out, count, "moving_variance", shape, o->moving_variance_initializer, (ls_regularizer){ 0 }, false);
    }
    return LS_OK;
}

ls_status ls_layer_weights(const ls_layer *layer, const ls_shape *x, ls_weight out[LS_MAX_WEIGHTS], size_t *count)
{
    const ls_layer_options *o = &layer->options;
    bool trained = !o->frozen;
    *count = 0;
    switch (layer->kind) {
    case LS_LAYER_DENSE:
        LS_TRY(need_axes(x, 2, LS_MAX_RANK, "an input of at least 2 axes (batch, ..., width)"));
        add_weight(out, count, "kernel", LS_SHAPE(x->dims[x->rank - 1], o->first), o->kernel_initializer,
                   o->kernel_regularizer, trained);
        add_bias(layer, o->first, out, count);
        return LS_OK;
    case LS_LAYER_CONV2D:
        LS_TRY(need_image(x));
        if (x->dims[3] % o->groups != 0)
            return ls_fail(LS_ERR_SHAPE, "%lld channels cannot be cut into groups %lld", (long long)x->dims[3],
                           (long long)o->groups);
        add_weight(out, count, "kernel",
                   LS_SHAPE(o->kernel_size[0], o->kernel_size[1], x->dims[3] / o->groups, o->first),
                   o->kernel_initializer, o->kernel_regularizer, trained);
        add_bias(layer, o->first, out, count);
        return LS_OK;
    case LS_LAYER_DEPTHWISE_CONV2D:
        LS_TRY(need_image(x));
        add_weight(out, count, "kernel",
                   LS_SHAPE(o->kernel_size[0], o->kernel_size[1], x->dims[3], o->depth_multiplier),
                   o->kernel_initializer, o->kernel_regularizer, trained);
        add_bias(layer, x->dims[3] * o->depth_multiplier, out, count);
        return LS_OK;
    case LS_LAYER_BATCH_NORMALIZATION:
    case LS_LAYER_LAYER_NORMALIZATION:
        return norm_weights(layer, x, out, count);
    case LS_LAYER_EMBEDDING:
        add_weight(out, count, "embeddings", LS_SHAPE(o->first, o->second), o->kernel_initializer,
                   o->kernel_regularizer, trained);
        return LS_OK;
    default:
        return LS_OK;
    }
}

/* ---- Calls ---- */

/* Layers compute in float32. */
static ls_tensor *real(ls_tensor *x)
{
    return ls_tensor_dtype(x) == LS_F32 ? x : ls_op_cast(x, LS_F32);
}

static ls_tensor *finish(const ls_layer *layer, ls_tensor *y, ls_tensor *bias)
{
    return activate(layer->options.no_bias ? y : ls_op_add(y, bias), layer->options.activation);
}

/* If x is zero-padded by less than the kernel size, lets the convolution use the zeros as its own
 * padding: returns true, sets *x to the unpadded input and fills `pad`. */
static bool fold_zeros(ls_tensor **x, const ls_layer_options *o, int64_t pad[4])
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

static ls_tensor *convolve(const ls_layer *layer, const ls_layer_pass *pass)
{
    const ls_layer_options *o = &layer->options;
    ls_tensor *x = real(pass->inputs[0]), *kernel = pass->weights[0];
    bool depthwise = layer->kind == LS_LAYER_DEPTHWISE_CONV2D;
    int64_t channels = x->shape.dims[3], groups = depthwise ? channels : o->groups;
    if (depthwise) /* [H,W,C,M] and [H,W,1,C M] have the same elements in the same order */
        kernel =
            ls_op_reshape(kernel, LS_SHAPE(o->kernel_size[0], o->kernel_size[1], 1, channels * o->depth_multiplier));
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
    return finish(layer, ls_op_conv2d_with(x, conv), pass->weights[1]);
}

static ls_tensor *pool(const ls_layer *layer, ls_tensor *x)
{
    const ls_layer_options *o = &layer->options;
    ls_pool2d_op op = { .window = { o->pool_size[0], o->pool_size[1] },
                        .stride = { o->strides[0], o->strides[1] },
                        .padding = o->padding };
    if (o->padding == LS_EXPLICIT)
        memcpy(op.pad, o->zero_padding, sizeof op.pad);
    return layer->kind == LS_LAYER_MAX_POOL2D ? ls_op_max_pool2d_with(x, op) : ls_op_average_pool2d_with(x, op);
}

static ls_tensor *global_pool(const ls_layer *layer, ls_tensor *x)
{
    ls_axes axes = LS_AXES(1, 2);
    return layer->kind == LS_LAYER_GLOBAL_MAX_POOL2D ? ls_op_reduce_max(x, axes, layer->options.keepdims)
                                                     : ls_op_reduce_mean(x, axes, layer->options.keepdims);
}

/* Reshapes the samples of x. */
static ls_tensor *reshape(ls_tensor *x, const ls_shape *sizes)
{
    ls_shape shape = { .rank = sizes->rank + 1, .dims = { x->shape.dims[0] } };
    for (int i = 0; i < sizes->rank; i++)
        shape.dims[i + 1] = sizes->dims[i];
    return ls_op_reshape(x, shape);
}

/* Encodes a number for an op that takes 0 as "default". */
static double not_default(double value)
{
    return value == 0 ? 0x1p-1022 : value;
}

static ls_tensor *batch_norm(const ls_layer *layer, ls_layer_pass *pass)
{
    const ls_layer_options *o = &layer->options;
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
    return ls_op_batch_norm_with(real(pass->inputs[0]), op);
}

static ls_tensor *layer_norm(const ls_layer *layer, const ls_layer_pass *pass)
{
    const ls_layer_options *o = &layer->options;
    ls_tensor *const *next = pass->weights;
    ls_layer_norm_op op = { .axes = o->last_axes, .epsilon = not_default(o->epsilon) };
    op.gamma = !o->no_scale ? *next++ : NULL;
    op.beta = !o->no_center ? *next : NULL;
    return ls_op_layer_norm_with(real(pass->inputs[0]), op);
}

/* Keras's formula: max_value above it, x from the threshold on, negative_slope (x - threshold)
 * below. */
static ls_tensor *relu(const ls_layer_options *o, ls_tensor *x)
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

/* Inputs of lower rank get axes of size 1 after the batch axis, as in Keras. */
static ls_tensor *merge(const ls_layer *layer, const ls_layer_pass *pass)
{
    int rank = 0;
    for (size_t i = 0; i < pass->input_count; i++)
        rank = pass->inputs[i]->shape.rank > rank ? pass->inputs[i]->shape.rank : rank;
    ls_tensor *y = NULL;
    for (size_t i = 0; i < pass->input_count; i++) {
        ls_tensor *x = real(pass->inputs[i]);
        int missing = rank - x->shape.rank;
        if (missing > 0) {
            ls_shape sizes = { .rank = rank - 1 };
            for (int a = 0; a < sizes.rank; a++)
                sizes.dims[a] = a < missing ? 1 : x->shape.dims[a - missing + 1];
            x = reshape(x, &sizes);
        }
        y = !y ? x : layer->kind == LS_LAYER_ADD ? ls_op_add(y, x) : ls_op_mul(y, x);
    }
    return y;
}

static ls_status check_axis(int64_t *axis, const ls_shape *shape)
{
    int64_t plain = *axis < 0 ? *axis + shape->rank : *axis;
    if (plain < 0 || plain >= shape->rank)
        return ls_fail(LS_ERR_SHAPE, "axis %lld of %d axes", (long long)*axis, shape->rank);
    if (plain == 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "axis %lld is the batch axis", (long long)*axis);
    *axis = plain;
    return LS_OK;
}

static ls_status concatenate(const ls_layer *layer, const ls_layer_pass *pass, ls_tensor **out)
{
    int64_t axis = layer->options.axis;
    ls_tensor *parts[256];
    if (pass->input_count > sizeof(parts) / sizeof(parts[0]))
        return ls_fail(LS_ERR_UNSUPPORTED, "%zu inputs are too many: at most %zu", pass->input_count,
                       sizeof(parts) / sizeof(parts[0]));
    LS_TRY(check_axis(&axis, &pass->inputs[0]->shape));
    for (size_t i = 0; i < pass->input_count; i++)
        parts[i] = real(pass->inputs[i]);
    *out = ls_op_concat(parts, pass->input_count, (int)axis);
    return LS_OK;
}

static ls_tensor *zero_pad(const ls_layer_options *o, ls_tensor *x)
{
    const int64_t *side = o->zero_padding;
    return ls_op_pad(x, LS_AXES(0, side[0], side[2], 0), LS_AXES(0, side[1], side[3], 0), 0);
}

static ls_tensor *embed(const ls_layer_pass *pass)
{
    ls_tensor *x = pass->inputs[0];
    if (x->dtype != LS_I32 && x->dtype != LS_I64)
        x = ls_op_cast(x, LS_I32);
    return ls_op_gather(pass->weights[0], x, 0);
}

static ls_tensor *drop(const ls_layer_options *o, const ls_layer_pass *pass)
{
    ls_tensor *x = real(pass->inputs[0]);
    if (!pass->training || o->rate == 0)
        return x;
    return ls_op_dropout_keyed(x, ls_scalar_like(x, o->rate), pass->random_layer, pass->random_call);
}

static ls_status make(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_layer_options *o = &layer->options;
    ls_tensor *x = pass->inputs[0];
    int64_t axis = o->axis;
    switch (layer->kind) {
    case LS_LAYER_DENSE:
        *out = finish(layer, ls_op_matmul(real(x), pass->weights[0]), pass->weights[1]);
        return LS_OK;
    case LS_LAYER_CONV2D:
    case LS_LAYER_DEPTHWISE_CONV2D:
        *out = convolve(layer, pass);
        return LS_OK;
    case LS_LAYER_MAX_POOL2D:
    case LS_LAYER_AVERAGE_POOL2D:
        LS_TRY(need_image(&x->shape));
        *out = pool(layer, real(x));
        return LS_OK;
    case LS_LAYER_GLOBAL_MAX_POOL2D:
    case LS_LAYER_GLOBAL_AVERAGE_POOL2D:
        LS_TRY(need_image(&x->shape));
        *out = global_pool(layer, real(x));
        return LS_OK;
    case LS_LAYER_FLATTEN:
        *out = reshape(x, &LS_SHAPE(LS_REMAINING));
        return LS_OK;
    case LS_LAYER_RESHAPE:
        *out = reshape(x, &o->shape);
        return LS_OK;
    case LS_LAYER_DROPOUT:
        *out = drop(o, pass);
        return LS_OK;
    case LS_LAYER_BATCH_NORMALIZATION:
        *out = batch_norm(layer, pass);
        return LS_OK;
    case LS_LAYER_LAYER_NORMALIZATION:
        *out = layer_norm(layer, pass);
        return LS_OK;
    case LS_LAYER_ACTIVATION:
        *out = activate(real(x), o->activation);
        return LS_OK;
    case LS_LAYER_RELU:
    case LS_LAYER_LEAKY_RELU:
        *out = relu(o, real(x));
        return LS_OK;
    case LS_LAYER_SOFTMAX:
        LS_TRY(check_axis(&axis, &x->shape));
        *out = ls_op_softmax(real(x), (int)axis);
        return LS_OK;
    case LS_LAYER_ADD:
    case LS_LAYER_MULTIPLY:
        *out = merge(layer, pass);
        return LS_OK;
    case LS_LAYER_CONCATENATE:
        return concatenate(layer, pass, out);
    case LS_LAYER_ZERO_PADDING2D:
        LS_TRY(need_image(&x->shape));
        *out = zero_pad(o, x);
        return LS_OK;
    case LS_LAYER_EMBEDDING:
        *out = embed(pass);
        return LS_OK;
    case LS_LAYER_RESCALING:
        x = ls_op_scale(real(x), o->scale_by);
        *out = o->offset != 0 ? ls_op_shift(x, o->offset) : x;
        return LS_OK;
    default:
        return ls_fail(LS_ERR_INVALID, "a layer of kind %d cannot be called", (int)layer->kind);
    }
}

/* Checks that the variables of a shared layer fit the shape of this call. */
static ls_status check_fit(const ls_layer *layer, const ls_layer_pass *pass)
{
    ls_weight need[LS_MAX_WEIGHTS];
    size_t count;
    char want[LS_SHAPE_TEXT], have[LS_SHAPE_TEXT];
    LS_TRY(ls_layer_weights(layer, &pass->inputs[0]->shape, need, &count));
    for (size_t i = 0; i < count; i++)
        if (!ls_shape_equal(&need[i].shape, &pass->weights[i]->shape))
            return ls_fail(LS_ERR_SHAPE, "this input needs %s %s, the layer was made with %s", need[i].name,
                           ls_shape_format(&need[i].shape, want), ls_shape_format(&pass->weights[i]->shape, have));
    return LS_OK;
}

ls_status ls_layer_pass_make(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_layer_info *info = ls_layer_info_of(layer->kind);
    pass->updates[0] = pass->updates[1] = NULL;
    if (pass->input_count == 0)
        return ls_fail(LS_ERR_INVALID, "it is called on nothing");
    if (!info->many && pass->input_count > 1)
        return ls_fail(LS_ERR_INVALID, "it takes one input; %zu were given", pass->input_count);
    for (size_t i = 0; i < pass->input_count; i++)
        if (pass->inputs[i]->shape.rank == 0)
            return ls_fail(LS_ERR_SHAPE, "input %zu is a scalar; axis 0 of an input is the batch axis", i);
    LS_TRY(check_fit(layer, pass));
    ls_tensor *y = NULL;
    LS_TRY(make(layer, pass, &y));
    LS_TRY(ls_tensor_check(y));
    for (int i = 0; i < 2; i++)
        if (pass->updates[i])
            LS_TRY(ls_tensor_check(pass->updates[i]));
    *out = y;
    return LS_OK;
}
