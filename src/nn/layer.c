/* Layer specs: the options of each kind, the meaning of positional arguments, defaults, and
 * checks. */
#include "nn/layer.h"

#include <math.h>

#include "graph/init.h"

#define K(kind) (UINT32_C(1) << LS_LAYER_##kind)

static const ls_layer_info infos[LS_LAYER_KINDS] = {
    [LS_LAYER_NONE] = { "?", "layer", "?", { 0 }, false },
    [LS_LAYER_INPUT] = { "InputLayer", "input_layer", "ls_input", { "size", "size", "size", "size" }, false },
    [LS_LAYER_DENSE] = { "Dense", "dense", "ls_dense", { "units" }, false },
    [LS_LAYER_CONV2D] = { "Conv2D", "conv2d", "ls_conv2d", { "filters", "kernel_size", "strides" }, false },
    [LS_LAYER_DEPTHWISE_CONV2D] = { "DepthwiseConv2D",
                                    "depthwise_conv2d",
                                    "ls_depthwise_conv2d",
                                    { "kernel_size", "strides" },
                                    false },
    [LS_LAYER_MAX_POOL2D] = { "MaxPooling2D", "max_pooling2d", "ls_max_pool2d", { "pool_size", "strides" }, false },
    [LS_LAYER_AVERAGE_POOL2D] = { "AveragePooling2D",
                                  "average_pooling2d",
                                  "ls_average_pool2d",
                                  { "pool_size", "strides" },
                                  false },
    [LS_LAYER_GLOBAL_MAX_POOL2D] = { "GlobalMaxPooling2D",
                                     "global_max_pooling2d",
                                     "ls_global_max_pool2d",
                                     { 0 },
                                     false },
    [LS_LAYER_GLOBAL_AVERAGE_POOL2D] = { "GlobalAveragePooling2D",
                                         "global_average_pooling2d",
                                         "ls_global_average_pool2d",
                                         { 0 },
                                         false },
    [LS_LAYER_FLATTEN] = { "Flatten", "flatten", "ls_flatten", { 0 }, false },
    [LS_LAYER_RESHAPE] = { "Reshape", "reshape", "ls_reshape", { "size", "size", "size", "size" }, false },
    [LS_LAYER_DROPOUT] = { "Dropout", "dropout", "ls_dropout", { 0 }, false },
    [LS_LAYER_BATCH_NORMALIZATION] = { "BatchNormalization",
                                       "batch_normalization",
                                       "ls_batch_normalization",
                                       { 0 },
                                       false },
    [LS_LAYER_LAYER_NORMALIZATION] = { "LayerNormalization",
                                       "layer_normalization",
                                       "ls_layer_normalization",
                                       { 0 },
                                       false },
    [LS_LAYER_ACTIVATION] = { "Activation", "activation", "ls_activation_layer", { 0 }, false },
    [LS_LAYER_RELU] = { "ReLU", "re_lu", "ls_relu", { 0 }, false },
    [LS_LAYER_LEAKY_RELU] = { "LeakyReLU", "leaky_re_lu", "ls_leaky_relu", { 0 }, false },
    [LS_LAYER_SOFTMAX] = { "Softmax", "softmax", "ls_softmax", { 0 }, false },
    [LS_LAYER_ADD] = { "Add", "add", "ls_add", { 0 }, true },
    [LS_LAYER_MULTIPLY] = { "Multiply", "multiply", "ls_multiply", { 0 }, true },
    [LS_LAYER_CONCATENATE] = { "Concatenate", "concatenate", "ls_concatenate", { 0 }, true },
    [LS_LAYER_ZERO_PADDING2D] = { "ZeroPadding2D", "zero_padding2d", "ls_zero_padding2d", { "padding" }, false },
    [LS_LAYER_EMBEDDING] = { "Embedding", "embedding", "ls_embedding", { "input_dim", "output_dim" }, false },
    [LS_LAYER_RESCALING] = { "Rescaling", "rescaling", "ls_rescaling", { 0 }, false },
};

const ls_layer_info *ls_layer_info_of(ls_layer_kind kind)
{
    return &infos[(unsigned)kind < LS_LAYER_KINDS ? kind : LS_LAYER_NONE];
}

/* ---- Which layers have an option ---- */

#define CONVS    (K(CONV2D) | K(DEPTHWISE_CONV2D))
#define POOLS    (K(MAX_POOL2D) | K(AVERAGE_POOL2D))
#define NORMS    (K(BATCH_NORMALIZATION) | K(LAYER_NORMALIZATION))
#define PRODUCTS (K(DENSE) | CONVS)

typedef enum field_type { T_I64, T_INT, T_F64, T_FLAG, T_INITIALIZER, T_REGULARIZER, T_SHAPE } field_type;

static const struct field {
    const char *name;
    field_type type;
    size_t offset, bytes;
    uint32_t kinds;
} fields[] = {
#define FIELD(type, field, kinds)                                                                                      \
    {                                                                                                                  \
#field, type, offsetof(ls_layer_options, field), sizeof(((ls_layer_options *)0)->field), kinds                 \
    }
    FIELD(T_INT, activation, PRODUCTS | K(ACTIVATION)),
    FIELD(T_FLAG, no_bias, PRODUCTS),
    FIELD(T_INITIALIZER, kernel_initializer, PRODUCTS | K(EMBEDDING)),
    FIELD(T_INITIALIZER, bias_initializer, PRODUCTS),
    FIELD(T_REGULARIZER, kernel_regularizer, PRODUCTS | K(EMBEDDING)),
    FIELD(T_REGULARIZER, bias_regularizer, PRODUCTS),
    FIELD(T_REGULARIZER, activity_regularizer, 0),
    FIELD(T_I64, kernel_size, CONVS),
    FIELD(T_I64, strides, CONVS | POOLS),
    FIELD(T_I64, dilation_rate, CONVS),
    FIELD(T_I64, pool_size, POOLS),
    FIELD(T_I64, groups, K(CONV2D)),
    FIELD(T_I64, depth_multiplier, K(DEPTHWISE_CONV2D)),
    FIELD(T_INT, padding, CONVS | POOLS | K(ZERO_PADDING2D)),
    FIELD(T_I64, zero_padding, CONVS | POOLS | K(ZERO_PADDING2D)),
    FIELD(T_FLAG, keepdims, K(GLOBAL_MAX_POOL2D) | K(GLOBAL_AVERAGE_POOL2D)),
    FIELD(T_F64, momentum, K(BATCH_NORMALIZATION)),
    FIELD(T_INT, statistics, K(BATCH_NORMALIZATION)),
    FIELD(T_F64, epsilon, NORMS),
    FIELD(T_FLAG, no_center, NORMS),
    FIELD(T_FLAG, no_scale, NORMS),
    FIELD(T_INITIALIZER, beta_initializer, NORMS),
    FIELD(T_INITIALIZER, gamma_initializer, NORMS),
    FIELD(T_INITIALIZER, moving_mean_initializer, K(BATCH_NORMALIZATION)),
    FIELD(T_INITIALIZER, moving_variance_initializer, K(BATCH_NORMALIZATION)),
    FIELD(T_REGULARIZER, beta_regularizer, NORMS),
    FIELD(T_REGULARIZER, gamma_regularizer, NORMS),
    FIELD(T_INT, last_axes, K(LAYER_NORMALIZATION)),
    FIELD(T_F64, rate, K(DROPOUT)),
    FIELD(T_F64, negative_slope, K(RELU) | K(LEAKY_RELU)),
    FIELD(T_F64, max_value, K(RELU)),
    FIELD(T_F64, threshold, K(RELU)),
    FIELD(T_F64, scale_by, K(RESCALING)),
    FIELD(T_F64, offset, K(RESCALING)),
    FIELD(T_I64, axis, K(SOFTMAX) | K(CONCATENATE) | K(BATCH_NORMALIZATION)),
    FIELD(T_SHAPE, shape, K(INPUT) | K(RESHAPE)),
    FIELD(T_INT, dtype, K(INPUT)),
#undef FIELD
};
#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

static bool is_set(const struct field *field, const ls_layer_options *options)
{
    const char *at = (const char *)options + field->offset;
    switch (field->type) {
    case T_I64:
        for (size_t i = 0; i < field->bytes / sizeof(int64_t); i++)
            if (((const int64_t *)at)[i] != 0)
                return true;
        return false;
    case T_INT:
        return *(const int *)at != 0;
    case T_F64:
        return *(const double *)at != 0;
    case T_FLAG:
        return *(const bool *)at;
    case T_INITIALIZER:
        return ((const ls_initializer *)at)->kind != LS_INIT_DEFAULT;
    case T_REGULARIZER:
        return ((const ls_regularizer *)at)->l1 != 0 || ((const ls_regularizer *)at)->l2 != 0;
    case T_SHAPE:
        return ((const ls_shape *)at)->rank != 0;
    }
    return true;
}

static ls_status check_options(const ls_layer *spec)
{
    const ls_layer_info *info = ls_layer_info_of(spec->kind);
    const int64_t place[] = { spec->options.first, spec->options.second, spec->options.third, spec->options.fourth };
    int places = 0;
    while (places < 4 && info->places[places])
        places++;
    for (int i = places; i < 4; i++)
        if (place[i] != 0)
            return ls_fail(LS_ERR_INVALID, "%s takes %d numbers before its options; number %d was given as %lld",
                           info->function, places, i + 1, (long long)place[i]);
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (!(fields[i].kinds >> spec->kind & 1) && is_set(&fields[i], &spec->options))
            return fields[i].kinds ? ls_fail(LS_ERR_INVALID, "this layer has no option %s", fields[i].name)
                                   : ls_fail(LS_ERR_UNSUPPORTED, "%s is not supported", fields[i].name);
    return LS_OK;
}

/* ---- Values ---- */

static void settle_number(double *value, double preset)
{
    *value = *value == 0 ? preset : *value == LS_ZERO ? 0 : *value;
}

static ls_status check_regularizer(const char *name, const ls_regularizer *value)
{
    if (!(value->l1 >= 0 && isfinite(value->l1) && value->l2 >= 0 && isfinite(value->l2)))
        return ls_fail(LS_ERR_INVALID, "%s: l1 is %g and l2 is %g; neither can be negative", name, value->l1,
                       value->l2);
    return LS_OK;
}

ls_status ls_weight_check(const ls_weight *weight)
{
    char text[LS_SHAPE_TEXT];
    if (weight->shape.rank < 0 || weight->shape.rank > LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "it has %d axes; %d is the most", weight->shape.rank, LS_MAX_RANK);
    for (int i = 0; i < weight->shape.rank; i++)
        if (weight->shape.dims[i] < 1)
            return ls_fail(LS_ERR_SHAPE, "it has shape %s; every size is known and at least 1",
                           ls_shape_format(&weight->shape, text));
    return check_regularizer("regularizer", &weight->regularizer);
}

/* Settles a pair: if only one value is given, both are equal; if none is, uses `place`, then
 * `preset`. */
static ls_status settle_pair(const char *name, int64_t pair[2], int64_t place, int64_t preset)
{
    if (pair[0] != 0 || pair[1] != 0) {
        if (place != 0)
            return ls_fail(LS_ERR_INVALID, "%s is given twice: as %lld and as { %lld, %lld }", name, (long long)place,
                           (long long)pair[0], (long long)pair[1]);
        pair[0] = pair[0] ? pair[0] : pair[1];
        pair[1] = pair[1] ? pair[1] : pair[0];
    } else {
        pair[0] = pair[1] = place ? place : preset;
    }
    if (pair[0] < 1 || pair[1] < 1)
        return ls_fail(LS_ERR_INVALID, "%s is (%lld, %lld); both are at least 1", name, (long long)pair[0],
                       (long long)pair[1]);
    return LS_OK;
}

static ls_status check_padding(const ls_layer_options *o)
{
    if (o->padding != LS_VALID && o->padding != LS_SAME && o->padding != LS_EXPLICIT)
        return ls_fail(LS_ERR_INVALID, "padding is %d; it is LS_VALID, LS_SAME or LS_EXPLICIT", (int)o->padding);
    for (int i = 0; i < 4; i++)
        if (o->zero_padding[i] < 0 || (o->padding != LS_EXPLICIT && o->zero_padding[i] != 0))
            return ls_fail(LS_ERR_INVALID,
                           "zero_padding is (%lld, %lld, %lld, %lld); it goes with padding = LS_EXPLICIT and "
                           "is not negative",
                           (long long)o->zero_padding[0], (long long)o->zero_padding[1], (long long)o->zero_padding[2],
                           (long long)o->zero_padding[3]);
    return LS_OK;
}

static ls_status need_positive(const char *name, int64_t value)
{
    if (value < 1)
        return ls_fail(LS_ERR_INVALID, "%s is %lld; it is at least 1", name, (long long)value);
    return LS_OK;
}

/* ---- Kinds ---- */

static const ls_initializer zeros = { .kind = LS_INIT_ZEROS }, ones = { .kind = LS_INIT_ONES },
                            glorot = { .kind = LS_INIT_GLOROT_UNIFORM }, uniform = { .kind = LS_INIT_UNIFORM };

/* Takes the sizes from the positional arguments if `shape` is not given. */
static ls_status settle_shape(ls_layer_options *o)
{
    const int64_t place[] = { o->first, o->second, o->third, o->fourth };
    int count = 4;
    while (count > 0 && place[count - 1] == 0)
        count--;
    if (o->shape.rank < 0 || o->shape.rank > LS_MAX_RANK - 1)
        return ls_fail(LS_ERR_SHAPE, "shape has %d axes; %d is the most besides the batch axis", o->shape.rank,
                       LS_MAX_RANK - 1);
    if (o->shape.rank > 0 && count > 0)
        return ls_fail(LS_ERR_INVALID, "the shape is given twice: by numbers and as .shape");
    for (int i = 0; i < count; i++)
        o->shape.dims[o->shape.rank++] = place[i];
    return LS_OK;
}

static ls_status settle_input(ls_layer_options *o)
{
    LS_TRY(settle_shape(o));
    if ((unsigned)o->dtype >= LS_DTYPE_COUNT)
        return ls_fail(LS_ERR_DTYPE, "there is no type number %d", (int)o->dtype);
    for (int i = 0; i < o->shape.rank; i++)
        LS_TRY(need_positive("a size", o->shape.dims[i]));
    return LS_OK;
}

static ls_status settle_reshape(ls_layer_options *o)
{
    LS_TRY(settle_shape(o));
    int rest = 0;
    for (int i = 0; i < o->shape.rank; i++) {
        if (o->shape.dims[i] == -1)
            o->shape.dims[i] = LS_REMAINING;
        if (o->shape.dims[i] == LS_REMAINING)
            rest++;
        else
            LS_TRY(need_positive("a size", o->shape.dims[i]));
    }
    if (rest > 1)
        return ls_fail(LS_ERR_INVALID, "%d sizes are -1; only one can be the rest", rest);
    return LS_OK;
}

static ls_status settle_product(ls_layer_options *o)
{
    LS_TRY(ls_init_resolve("kernel_initializer", &o->kernel_initializer, glorot));
    LS_TRY(ls_init_resolve("bias_initializer", &o->bias_initializer, zeros));
    LS_TRY(check_regularizer("kernel_regularizer", &o->kernel_regularizer));
    return check_regularizer("bias_regularizer", &o->bias_regularizer);
}

static ls_status settle_conv(ls_layer_options *o, bool depthwise)
{
    int64_t size = depthwise ? o->first : o->second, stride = depthwise ? o->second : o->third;
    LS_TRY(settle_product(o));
    if (!depthwise)
        LS_TRY(need_positive("filters", o->first));
    LS_TRY(settle_pair("kernel_size", o->kernel_size, size, 0));
    LS_TRY(settle_pair("strides", o->strides, stride, 1));
    LS_TRY(settle_pair("dilation_rate", o->dilation_rate, 0, 1));
    bool strided = o->strides[0] > 1 || o->strides[1] > 1, dilated = o->dilation_rate[0] > 1 || o->dilation_rate[1] > 1;
    if (strided && dilated) /* as in Keras */
        return ls_fail(LS_ERR_INVALID, "strides (%lld, %lld) do not go with dilation_rate (%lld, %lld)",
                       (long long)o->strides[0], (long long)o->strides[1], (long long)o->dilation_rate[0],
                       (long long)o->dilation_rate[1]);
    o->groups = o->groups ? o->groups : 1;
    o->depth_multiplier = o->depth_multiplier ? o->depth_multiplier : 1;
    LS_TRY(need_positive("groups", o->groups));
    LS_TRY(need_positive("depth_multiplier", o->depth_multiplier));
    if (!depthwise && o->first % o->groups != 0)
        return ls_fail(LS_ERR_INVALID, "filters %lld cannot be cut into groups %lld", (long long)o->first,
                       (long long)o->groups);
    return check_padding(o);
}

static ls_status settle_pool(ls_layer_options *o)
{
    LS_TRY(settle_pair("pool_size", o->pool_size, o->first, 2));
    if (o->second == 0 && o->strides[0] == 0 && o->strides[1] == 0)
        o->strides[0] = o->pool_size[0], o->strides[1] = o->pool_size[1];
    LS_TRY(settle_pair("strides", o->strides, o->second, 0));
    return check_padding(o);
}

static ls_status settle_norm(ls_layer_options *o)
{
    settle_number(&o->momentum, 0.99);
    settle_number(&o->epsilon, 1e-3);
    if (!(o->momentum >= 0 && o->momentum <= 1))
        return ls_fail(LS_ERR_INVALID, "momentum is %g; it goes from 0 to 1", o->momentum);
    if (!(o->epsilon >= 0 && isfinite(o->epsilon)))
        return ls_fail(LS_ERR_INVALID, "epsilon is %g; it is not negative", o->epsilon);
    if ((unsigned)o->statistics > LS_PER_LANE)
        return ls_fail(LS_ERR_INVALID, "there are no statistics %d", (int)o->statistics);
    o->last_axes = o->last_axes ? o->last_axes : 1;
    LS_TRY(need_positive("last_axes", o->last_axes));
    LS_TRY(ls_init_resolve("beta_initializer", &o->beta_initializer, zeros));
    LS_TRY(ls_init_resolve("gamma_initializer", &o->gamma_initializer, ones));
    LS_TRY(ls_init_resolve("moving_mean_initializer", &o->moving_mean_initializer, zeros));
    LS_TRY(ls_init_resolve("moving_variance_initializer", &o->moving_variance_initializer, ones));
    LS_TRY(check_regularizer("beta_regularizer", &o->beta_regularizer));
    return check_regularizer("gamma_regularizer", &o->gamma_regularizer);
}

static ls_status settle_relu(ls_layer_options *o, bool leaky)
{
    settle_number(&o->negative_slope, leaky ? 0.3 : 0);
    settle_number(&o->threshold, 0);
    settle_number(&o->max_value, INFINITY);
    if (!(o->negative_slope >= 0 && isfinite(o->negative_slope)))
        return ls_fail(LS_ERR_INVALID, "negative_slope is %g; it is not negative", o->negative_slope);
    if (!(o->max_value >= 0))
        return ls_fail(LS_ERR_INVALID, "max_value is %g; it is not negative", o->max_value);
    if (!(o->threshold >= 0 && isfinite(o->threshold)))
        return ls_fail(LS_ERR_INVALID, "threshold is %g; it is not negative", o->threshold);
    return LS_OK;
}

static ls_status settle_zero_padding(ls_layer_options *o)
{
    bool sides = o->zero_padding[0] || o->zero_padding[1] || o->zero_padding[2] || o->zero_padding[3] ||
                 o->padding == LS_EXPLICIT; /* distinguishes four zeros from unset */
    if (o->padding == LS_SAME)
        return ls_fail(LS_ERR_INVALID, "padding is LS_SAME; .zero_padding says how much");
    if (sides && o->first != 0)
        return ls_fail(LS_ERR_INVALID, "padding is given twice: as %lld and as .zero_padding", (long long)o->first);
    for (int i = 0; i < 4; i++) {
        if (!sides)
            o->zero_padding[i] = o->first ? o->first : 1;
        if (o->zero_padding[i] < 0)
            return ls_fail(LS_ERR_INVALID, "padding is %lld; it is not negative", (long long)o->zero_padding[i]);
    }
    return LS_OK;
}

static ls_status settle_rescaling(ls_layer_options *o)
{
    if (o->scale_by == 0) /* an explicit 0 is LS_ZERO */
        return ls_fail(LS_ERR_INVALID, "scale is 0, which makes every input the same number. 1/255 is 0 in C, a "
                                       "division of integers: write 1.0/255. Write LS_ZERO if you mean 0");
    settle_number(&o->scale_by, 0);
    settle_number(&o->offset, 0);
    if (!isfinite(o->scale_by) || !isfinite(o->offset))
        return ls_fail(LS_ERR_INVALID, "scale is %g and offset is %g; both are finite", o->scale_by, o->offset);
    return LS_OK;
}

static ls_status settle_kind(ls_layer *layer)
{
    ls_layer_options *o = &layer->options;
    switch (layer->kind) {
    case LS_LAYER_INPUT:
        return settle_input(o);
    case LS_LAYER_DENSE:
        LS_TRY(need_positive("units", o->first));
        return settle_product(o);
    case LS_LAYER_CONV2D:
    case LS_LAYER_DEPTHWISE_CONV2D:
        return settle_conv(o, layer->kind == LS_LAYER_DEPTHWISE_CONV2D);
    case LS_LAYER_MAX_POOL2D:
    case LS_LAYER_AVERAGE_POOL2D:
        return settle_pool(o);
    case LS_LAYER_RESHAPE:
        return settle_reshape(o);
    case LS_LAYER_DROPOUT:
        settle_number(&o->rate, 0);
        if (!(o->rate >= 0 && o->rate < 1))
            return ls_fail(LS_ERR_INVALID, "rate is %g; it goes from 0 up to, not including, 1", o->rate);
        return LS_OK;
    case LS_LAYER_BATCH_NORMALIZATION:
    case LS_LAYER_LAYER_NORMALIZATION:
        return settle_norm(o);
    case LS_LAYER_RELU:
    case LS_LAYER_LEAKY_RELU:
        return settle_relu(o, layer->kind == LS_LAYER_LEAKY_RELU);
    case LS_LAYER_ZERO_PADDING2D:
        return settle_zero_padding(o);
    case LS_LAYER_EMBEDDING:
        LS_TRY(need_positive("input_dim", o->first));
        LS_TRY(need_positive("output_dim", o->second));
        LS_TRY(ls_init_resolve("embeddings_initializer", &o->kernel_initializer, uniform));
        return check_regularizer("embeddings_regularizer", &o->kernel_regularizer);
    case LS_LAYER_RESCALING:
        return settle_rescaling(o);
    default: /* nothing to settle */
        return LS_OK;
    }
}

ls_status ls_layer_settle(const ls_layer *spec, ls_layer *out)
{
    if ((unsigned)spec->kind >= LS_LAYER_KINDS || spec->kind == LS_LAYER_NONE)
        return ls_fail(LS_ERR_INVALID, "there is no layer of kind %d", (int)spec->kind);
    LS_TRY(check_options(spec));
    ls_layer layer = *spec;
    if (!ls_activation_name(layer.options.activation))
        return ls_fail(LS_ERR_INVALID, "there is no activation number %d", (int)layer.options.activation);
    LS_TRY(settle_kind(&layer));
    if (layer.options.axis == 0)
        layer.options.axis = -1;
    *out = layer;
    return LS_OK;
}
