/* Keras's classes. The table of each class maps the keys of its config to options, or to the value
 * that a key must have. */
#include <stddef.h>

#include "nn/keras_keys.h"

#define AT(family, field) offsetof(ls_##family##_options, field)
#define COMMON                                                                                                         \
    { "name", NAME, 0 }, { "trainable", NOT, AT(layer, frozen) },                                                      \
    {                                                                                                                  \
        "dtype", DTYPE, 0                                                                                              \
    }
#define WINDOW(family)                                                                                                 \
    { "padding", PADDING, AT(family, padding) },                                                                       \
    {                                                                                                                  \
        "data_format", MUST_BE_LAST, 0                                                                                 \
    }
#define BIAS(family)                                                                                                   \
    { "activation", ACTIVATION, AT(family, activation) }, { "use_bias", NOT, AT(family, no_bias) },                    \
        { "bias_initializer", INITIALIZER, AT(family, bias_initializer) },                                             \
        { "bias_regularizer", REGULARIZER, AT(family, bias_regularizer) },                                             \
        { "bias_constraint", CONSTRAINT, AT(family, bias_constraint) },                                                \
    {                                                                                                                  \
        "activity_regularizer", MUST_BE_NULL, 0                                                                        \
    }
#define KERNEL(family, prefix)                                                                                         \
    { prefix "_initializer", INITIALIZER, AT(family, kernel_initializer) },                                            \
        { prefix "_regularizer", REGULARIZER, AT(family, kernel_regularizer) },                                        \
    {                                                                                                                  \
        prefix "_constraint", CONSTRAINT, AT(family, kernel_constraint)                                                \
    }
#define NORM                                                                                                           \
    { "epsilon", F64, AT(norm, epsilon) }, { "center", NOT, AT(norm, no_center) },                                     \
        { "scale", NOT, AT(norm, no_scale) }, { "beta_initializer", INITIALIZER, AT(norm, beta_initializer) },         \
        { "gamma_initializer", INITIALIZER, AT(norm, gamma_initializer) },                                             \
        { "beta_regularizer", REGULARIZER, AT(norm, beta_regularizer) },                                               \
        { "gamma_regularizer", REGULARIZER, AT(norm, gamma_regularizer) },                                             \
        { "beta_constraint", CONSTRAINT, AT(norm, beta_constraint) },                                                  \
    {                                                                                                                  \
        "gamma_constraint", CONSTRAINT, AT(norm, gamma_constraint)                                                     \
    }
#define END                                                                                                            \
    {                                                                                                                  \
        NULL, NAME, 0                                                                                                  \
    }

/* clang-format off */
static const ls_keras_key dense_keys[] = {
    COMMON,
    { "units", ARGUMENT, AT(dense, first) },
    BIAS(dense),
    KERNEL(dense, "kernel"),
    { "quantization_config", MUST_BE_NULL, 0 },
    END
};
static const ls_keras_key conv_keys[] = {
    COMMON,
    { "filters", ARGUMENT, AT(conv, first) },
    { "kernel_size", PAIR, AT(conv, kernel_size) },
    { "strides", PAIR, AT(conv, strides) },
    WINDOW(conv),
    { "dilation_rate", PAIR, AT(conv, dilation_rate) },
    { "groups", I64, AT(conv, groups) },
    BIAS(conv),
    KERNEL(conv, "kernel"),
    END
};
static const ls_keras_key depthwise_keys[] = {
    COMMON,
    { "kernel_size", PAIR, AT(conv, kernel_size) },
    { "strides", PAIR, AT(conv, strides) },
    WINDOW(conv),
    { "dilation_rate", PAIR, AT(conv, dilation_rate) },
    { "depth_multiplier", I64, AT(conv, depth_multiplier) },
    BIAS(conv),
    KERNEL(conv, "depthwise"),
    END
};
static const ls_keras_key pool_keys[] = {
    COMMON,
    { "pool_size", PAIR, AT(pool, pool_size) },
    { "strides", PAIR_OR_NULL, AT(pool, strides) },
    WINDOW(pool),
    END
};
static const ls_keras_key global_keys[] = {
    COMMON,
    { "data_format", MUST_BE_LAST, 0 },
    { "keepdims", BOOL, AT(pool, keepdims) },
    END
};
static const ls_keras_key pad_keys[] = {
    COMMON,
    { "padding", SIDES, AT(pad, zero_padding) },
    { "data_format", MUST_BE_LAST, 0 },
    END
};
static const ls_keras_key flatten_keys[] = {
    COMMON,
    { "data_format", MUST_BE_LAST, 0 },
    END
};
static const ls_keras_key reshape_keys[] = {
    COMMON,
    { "target_shape", SIZES, AT(reshape, shape) },
    END
};
static const ls_keras_key dropout_keys[] = {
    COMMON,
    { "rate", F64, AT(dropout, rate) },
    { "seed", MUST_BE_NULL, 0 },
    { "noise_shape", MUST_BE_NULL, 0 },
    END
};
static const ls_keras_key batch_norm_keys[] = {
    COMMON,
    { "axis", AXIS, AT(norm, axis) },
    { "momentum", F64, AT(norm, momentum) },
    NORM,
    { "moving_mean_initializer", INITIALIZER, AT(norm, moving_mean_initializer) },
    { "moving_variance_initializer", INITIALIZER, AT(norm, moving_variance_initializer) },
    { "synchronized", MUST_BE_FALSE, 0 },
    { "renorm", MUST_BE_FALSE, 0 },
    { "renorm_clipping", ANY, 0 },
    { "renorm_momentum", ANY, 0 },
    END
};
static const ls_keras_key layer_norm_keys[] = {
    COMMON,
    { "axis", LAST_AXES, AT(norm, last_axes) },
    NORM,
    { "rms_scaling", MUST_BE_FALSE, 0 },
    END
};
static const ls_keras_key embedding_keys[] = {
    COMMON,
    { "input_dim", ARGUMENT, AT(embedding, first) },
    { "output_dim", ARGUMENT, AT(embedding, second) },
    KERNEL(embedding, "embeddings"),
    { "activity_regularizer", MUST_BE_NULL, 0 },
    { "mask_zero", MUST_BE_FALSE, 0 },
    { "input_length", MUST_BE_NULL, 0 },
    { "quantization_config", MUST_BE_NULL, 0 },
    END
};
static const ls_keras_key activation_keys[] = {
    COMMON,
    { "activation", ACTIVATION, AT(activation, activation) },
    END
};
static const ls_keras_key relu_keys[] = {
    COMMON,
    { "max_value", F64_OR_NULL, AT(activation, max_value) },
    { "negative_slope", F64, AT(activation, negative_slope) },
    { "threshold", F64, AT(activation, threshold) },
    END
};
static const ls_keras_key leaky_keys[] = {
    COMMON,
    { "negative_slope", F64, AT(activation, negative_slope) },
    END
};
static const ls_keras_key softmax_keys[] = {
    COMMON,
    { "axis", AXIS, AT(activation, axis) },
    END
};
static const ls_keras_key merge_keys[] = {
    COMMON,
    END
};
static const ls_keras_key concatenate_keys[] = {
    COMMON,
    { "axis", AXIS, AT(merge, axis) },
    END
};
static const ls_keras_key rescaling_keys[] = {
    COMMON,
    { "scale", F64, AT(rescaling, scale_by) },
    { "offset", F64, AT(rescaling, offset) },
    END
};
/* clang-format on */

const ls_keras_class ls_keras_classes[] = {
    { "InputLayer", LS_LAYER_INPUT, NULL },
    { "Dense", LS_LAYER_DENSE, dense_keys },
    { "Conv2D", LS_LAYER_CONV2D, conv_keys },
    { "DepthwiseConv2D", LS_LAYER_DEPTHWISE_CONV2D, depthwise_keys },
    { "MaxPooling2D", LS_LAYER_MAX_POOL2D, pool_keys },
    { "AveragePooling2D", LS_LAYER_AVERAGE_POOL2D, pool_keys },
    { "GlobalMaxPooling2D", LS_LAYER_GLOBAL_MAX_POOL2D, global_keys },
    { "GlobalAveragePooling2D", LS_LAYER_GLOBAL_AVERAGE_POOL2D, global_keys },
    { "Flatten", LS_LAYER_FLATTEN, flatten_keys },
    { "Reshape", LS_LAYER_RESHAPE, reshape_keys },
    { "Dropout", LS_LAYER_DROPOUT, dropout_keys },
    { "BatchNormalization", LS_LAYER_BATCH_NORMALIZATION, batch_norm_keys },
    { "LayerNormalization", LS_LAYER_LAYER_NORMALIZATION, layer_norm_keys },
    { "Activation", LS_LAYER_ACTIVATION, activation_keys },
    { "ReLU", LS_LAYER_RELU, relu_keys },
    { "LeakyReLU", LS_LAYER_LEAKY_RELU, leaky_keys },
    { "Softmax", LS_LAYER_SOFTMAX, softmax_keys },
    { "Add", LS_LAYER_ADD, merge_keys },
    { "Multiply", LS_LAYER_MULTIPLY, merge_keys },
    { "Concatenate", LS_LAYER_CONCATENATE, concatenate_keys },
    { "ZeroPadding2D", LS_LAYER_ZERO_PADDING2D, pad_keys },
    { "Embedding", LS_LAYER_EMBEDDING, embedding_keys },
    { "Rescaling", LS_LAYER_RESCALING, rescaling_keys },
};
const size_t ls_keras_class_count = sizeof(ls_keras_classes) / sizeof(ls_keras_classes[0]);

const ls_keras_class *ls_keras_class_of(ls_layer_kind kind)
{
    for (size_t i = 0; i < ls_keras_class_count; i++)
        if (ls_keras_classes[i].kind == kind)
            return &ls_keras_classes[i];
    return NULL;
}
