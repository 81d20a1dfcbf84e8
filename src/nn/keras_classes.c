/* Keras's classes. The table of each class maps the keys of its config to options, or to the value
 * that a key must have. */
#include <stddef.h>

#include "nn/keras_keys.h"

#define AT(family, field) offsetof(ls_##family##_options, field)
#define BASE                                                                                                           \
    { "name", NAME, 0 }, { "trainable", NOT, AT(layer, frozen) },                                                      \
    {                                                                                                                  \
        "dtype", DTYPE, 0                                                                                              \
    }
#define COMMON                                                                                                         \
    BASE,                                                                                                              \
    {                                                                                                                  \
        "activity_regularizer", ACTIVITY, AT(layer, activity_regularizer)                                              \
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
    {                                                                                                                  \
        "bias_constraint", MUST_BE_NULL, 0                                                                             \
    }
#define KERNEL(family, prefix)                                                                                         \
    { prefix "_initializer", INITIALIZER, AT(family, kernel_initializer) },                                            \
        { prefix "_regularizer", REGULARIZER, AT(family, kernel_regularizer) },                                        \
    {                                                                                                                  \
        prefix "_constraint", MUST_BE_NULL, 0                                                                          \
    }
#define SEPARABLE                                                                                                      \
    WINDOW(conv), { "depth_multiplier", I64, AT(conv, depth_multiplier) }, BIAS(conv), KERNEL(conv, "depthwise"),      \
        { "pointwise_initializer", INITIALIZER, AT(conv, pointwise_initializer) },                                     \
        { "pointwise_regularizer", REGULARIZER, AT(conv, pointwise_regularizer) },                                     \
    {                                                                                                                  \
        "pointwise_constraint", MUST_BE_NULL, 0                                                                        \
    }
#define NORM                                                                                                           \
    { "epsilon", F64, AT(norm, epsilon) }, { "center", NOT, AT(norm, no_center) },                                     \
        { "scale", NOT, AT(norm, no_scale) }, { "beta_initializer", INITIALIZER, AT(norm, beta_initializer) },         \
        { "gamma_initializer", INITIALIZER, AT(norm, gamma_initializer) },                                             \
        { "beta_regularizer", REGULARIZER, AT(norm, beta_regularizer) },                                               \
        { "gamma_regularizer", REGULARIZER, AT(norm, gamma_regularizer) }, { "beta_constraint", MUST_BE_NULL, 0 },     \
    {                                                                                                                  \
        "gamma_constraint", MUST_BE_NULL, 0                                                                            \
    }
#define RANDOM                                                                                                         \
    { "seed", SEED, AT(augment, seed) }, { "data_format", MUST_BE_LAST, 0 },                                           \
    {                                                                                                                  \
        "bounding_box_format", MUST_BE_NULL, 0                                                                         \
    }
#define MOVED                                                                                                          \
    { "fill_mode", FILL_MODE, AT(augment, fill_mode) },                                                                \
        { "interpolation", INTERPOLATION, AT(augment, interpolation) },                                                \
        { "fill_value", FILL_VALUES, AT(augment, fill_value) }, RANDOM
#define RECURRENT                                                                                                      \
    { "units", ARGUMENT, AT(recurrent, first) }, { "activation", GATE, AT(recurrent, activation) },                    \
        { "use_bias", NOT, AT(recurrent, no_bias) }, { "return_sequences", BOOL, AT(recurrent, return_sequences) },    \
        { "go_backwards", BOOL, AT(recurrent, go_backwards) }, { "unroll", BOOL, AT(recurrent, unroll) },              \
        { "zero_output_for_mask", BOOL, AT(recurrent, zero_output_for_mask) },                                         \
        { "dropout", F64, AT(recurrent, dropout) }, KERNEL(recurrent, "kernel"),                                       \
        { "recurrent_initializer", INITIALIZER, AT(recurrent, recurrent_initializer) },                                \
        { "recurrent_regularizer", REGULARIZER, AT(recurrent, recurrent_regularizer) },                                \
        { "recurrent_constraint", MUST_BE_NULL, 0 },                                                                   \
        { "bias_initializer", INITIALIZER, AT(recurrent, bias_initializer) },                                          \
        { "bias_regularizer", REGULARIZER, AT(recurrent, bias_regularizer) }, { "bias_constraint", MUST_BE_NULL, 0 },  \
        { "activity_regularizer", MUST_BE_NULL, 0 }, { "return_state", MUST_BE_FALSE, 0 },                             \
        { "stateful", MUST_BE_FALSE, 0 }, { "time_major", MUST_BE_FALSE, 0 },                                          \
        { "recurrent_dropout", MUST_BE_ZERO, 0 },                                                                      \
    {                                                                                                                  \
        "seed", MUST_BE_NULL, 0                                                                                        \
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
static const ls_keras_key conv1d_keys[] = {
    COMMON,
    { "filters", ARGUMENT, AT(conv, first) },
    { "kernel_size", I64, AT(conv, kernel_size) },
    { "strides", I64, AT(conv, strides) },
    { "padding", CAUSAL_PADDING, AT(conv, padding) },
    { "data_format", MUST_BE_LAST, 0 },
    { "dilation_rate", I64, AT(conv, dilation_rate) },
    { "groups", I64, AT(conv, groups) },
    BIAS(conv),
    KERNEL(conv, "kernel"),
    END
};
static const ls_keras_key depthwise1d_keys[] = {
    COMMON,
    { "kernel_size", I64, AT(conv, kernel_size) },
    { "strides", I64, AT(conv, strides) },
    WINDOW(conv),
    { "dilation_rate", I64, AT(conv, dilation_rate) },
    { "depth_multiplier", I64, AT(conv, depth_multiplier) },
    BIAS(conv),
    KERNEL(conv, "depthwise"),
    END
};
static const ls_keras_key separable1d_keys[] = {
    COMMON,
    { "filters", ARGUMENT, AT(conv, first) },
    { "kernel_size", I64, AT(conv, kernel_size) },
    { "strides", I64, AT(conv, strides) },
    { "dilation_rate", I64, AT(conv, dilation_rate) },
    SEPARABLE,
    END
};
static const ls_keras_key separable2d_keys[] = {
    COMMON,
    { "filters", ARGUMENT, AT(conv, first) },
    { "kernel_size", PAIR, AT(conv, kernel_size) },
    { "strides", PAIR, AT(conv, strides) },
    { "dilation_rate", PAIR, AT(conv, dilation_rate) },
    SEPARABLE,
    END
};
static const ls_keras_key transpose1d_keys[] = {
    COMMON,
    { "filters", ARGUMENT, AT(conv, first) },
    { "kernel_size", I64, AT(conv, kernel_size) },
    { "strides", I64, AT(conv, strides) },
    WINDOW(conv),
    { "output_padding", EXTRA, AT(conv, output_padding) },
    { "dilation_rate", I64, AT(conv, dilation_rate) },
    BIAS(conv),
    KERNEL(conv, "kernel"),
    END
};
static const ls_keras_key transpose2d_keys[] = {
    COMMON,
    { "filters", ARGUMENT, AT(conv, first) },
    { "kernel_size", PAIR, AT(conv, kernel_size) },
    { "strides", PAIR, AT(conv, strides) },
    WINDOW(conv),
    { "output_padding", EXTRA_PAIR, AT(conv, output_padding) },
    { "dilation_rate", PAIR, AT(conv, dilation_rate) },
    BIAS(conv),
    KERNEL(conv, "kernel"),
    END
};
static const ls_keras_key pool1d_keys[] = {
    COMMON,
    { "pool_size", I64, AT(pool, pool_size) },
    { "strides", I64_OR_NULL, AT(pool, strides) },
    WINDOW(pool),
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
static const ls_keras_key pad1d_keys[] = {
    COMMON,
    { "padding", ENDS, AT(pad, zero_padding) },
    { "data_format", MUST_BE_LAST, 0 },
    END
};
static const ls_keras_key crop1d_keys[] = {
    COMMON,
    { "cropping", ENDS, AT(pad, cropping) },
    END
};
static const ls_keras_key crop2d_keys[] = {
    COMMON,
    { "cropping", SIDES, AT(pad, cropping) },
    { "data_format", MUST_BE_LAST, 0 },
    END
};
static const ls_keras_key permute_keys[] = {
    COMMON,
    { "dims", DIMS, AT(reshape, shape) },
    END
};
static const ls_keras_key repeat_keys[] = {
    COMMON,
    { "n", ARGUMENT, AT(reshape, first) },
    END
};
static const ls_keras_key up_sampling1d_keys[] = {
    COMMON,
    { "size", I64, AT(resize, first) },
    END
};
static const ls_keras_key up_sampling2d_keys[] = {
    COMMON,
    { "size", PAIR, AT(resize, size) },
    { "data_format", MUST_BE_LAST, 0 },
    { "interpolation", INTERPOLATION, AT(resize, interpolation) },
    END
};
static const ls_keras_key resizing_keys[] = {
    COMMON,
    { "height", ARGUMENT, AT(resize, first) },
    { "width", ARGUMENT, AT(resize, second) },
    { "data_format", MUST_BE_LAST, 0 },
    { "interpolation", INTERPOLATION, AT(resize, interpolation) },
    { "crop_to_aspect_ratio", BOOL, AT(resize, crop_to_aspect_ratio) },
    { "pad_to_aspect_ratio", BOOL, AT(resize, pad_to_aspect_ratio) },
    { "fill_mode", MUST_BE_CONSTANT, 0 },
    { "fill_value", F64, AT(resize, fill_value) },
    { "antialias", MUST_BE_FALSE, 0 },
    END
};
static const ls_keras_key center_crop_keys[] = {
    COMMON,
    { "height", ARGUMENT, AT(resize, first) },
    { "width", ARGUMENT, AT(resize, second) },
    { "data_format", MUST_BE_LAST, 0 },
    END
};
static const ls_keras_key flip_keys[] = {
    COMMON,
    { "mode", FLIP_MODE, AT(augment, mode) },
    RANDOM,
    END
};
static const ls_keras_key random_crop_keys[] = {
    COMMON,
    { "height", ARGUMENT, AT(augment, first) },
    { "width", ARGUMENT, AT(augment, second) },
    RANDOM,
    END
};
static const ls_keras_key translation_keys[] = {
    COMMON,
    { "height_factor", FACTOR, AT(augment, height_factor) },
    { "width_factor", FACTOR, AT(augment, width_factor) },
    MOVED,
    END
};
static const ls_keras_key zoom_keys[] = {
    COMMON,
    { "height_factor", FACTOR, AT(augment, height_factor) },
    { "width_factor", FACTOR_OR_NULL, AT(augment, width_factor) },
    MOVED,
    END
};
static const ls_keras_key rotation_keys[] = {
    COMMON,
    { "factor", FACTOR, AT(augment, factor) },
    MOVED,
    END
};
static const ls_keras_key color_keys[] = {
    COMMON,
    { "factor", FACTOR, AT(augment, factor) },
    { "value_range", LIMITS, AT(augment, value_range) },
    RANDOM,
    END
};
static const ls_keras_key erasing_keys[] = {
    COMMON,
    { "factor", FACTOR, AT(augment, factor) },
    { "scale", FACTOR, AT(augment, scale) },
    { "fill_value", FILL_VALUES, AT(augment, fill_value) },
    { "value_range", LIMITS, AT(augment, value_range) },
    RANDOM,
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
    { "noise_shape", NOISE_SHAPE, AT(dropout, noise_shape) },
    END
};
static const ls_keras_key alpha_dropout_keys[] = {
    COMMON,
    { "rate", F64, AT(dropout, rate) },
    { "seed", MUST_BE_NULL, 0 },
    { "noise_shape", MUST_BE_NULL, 0 },
    END
};
/* Keras's class takes neither trainable nor a regularizer. */
static const ls_keras_key spatial_dropout_keys[] = {
    { "name", NAME, 0 },
    { "dtype", DTYPE, 0 },
    { "rate", F64, AT(dropout, rate) },
    { "seed", MUST_BE_NULL, 0 },
    END
};
static const ls_keras_key spatial_dropout2d_keys[] = {
    { "name", NAME, 0 },
    { "dtype", DTYPE, 0 },
    { "rate", F64, AT(dropout, rate) },
    { "seed", MUST_BE_NULL, 0 },
    { "data_format", MUST_BE_LAST, 0 },
    END
};
static const ls_keras_key gaussian_dropout_keys[] = {
    COMMON,
    { "rate", F64, AT(dropout, rate) },
    { "seed", MUST_BE_NULL, 0 },
    END
};
static const ls_keras_key gaussian_noise_keys[] = {
    COMMON,
    { "stddev", F64, AT(dropout, stddev) },
    { "seed", MUST_BE_NULL, 0 },
    END
};
static const ls_keras_key stochastic_depth_keys[] = {
    COMMON,
    { "drop_path_rate", F64, AT(dropout, rate) },
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
    { "axis", AXES, AT(norm, axes) },
    NORM,
    { "rms_scaling", BOOL, AT(norm, rms_scaling) },
    END
};
static const ls_keras_key group_norm_keys[] = {
    COMMON,
    { "groups", ARGUMENT, AT(norm, groups) },
    { "axis", AXIS, AT(norm, axis) },
    NORM,
    END
};
static const ls_keras_key rms_norm_keys[] = {
    COMMON,
    { "axis", AXES, AT(norm, axes) },
    { "epsilon", F64, AT(norm, epsilon) },
    END
};
static const ls_keras_key unit_norm_keys[] = {
    COMMON,
    { "axis", AXES, AT(norm, axes) },
    END
};
static const ls_keras_key normalization_keys[] = {
    COMMON,
    { "axis", AXES, AT(normalization, axes) },
    { "invert", BOOL, AT(normalization, invert) },
    { "mean", NUMBERS, AT(normalization, mean) },
    { "variance", NUMBERS, AT(normalization, variance) },
    END
};
static const ls_keras_key layer_scale_keys[] = {
    COMMON,
    { "init_values", F64, AT(layer_scale, init_values) },
    { "projection_dim", ARGUMENT, AT(layer_scale, first) },
    END
};
static const ls_keras_key embedding_keys[] = {
    COMMON,
    { "input_dim", ARGUMENT, AT(embedding, first) },
    { "output_dim", ARGUMENT, AT(embedding, second) },
    KERNEL(embedding, "embeddings"),
    { "mask_zero", BOOL, AT(embedding, mask_zero) },
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
static const ls_keras_key elu_keys[] = {
    COMMON,
    { "alpha", F64, AT(activation, alpha) },
    END
};
static const ls_keras_key prelu_keys[] = {
    COMMON,
    { "alpha_initializer", INITIALIZER, AT(activation, alpha_initializer) },
    { "alpha_regularizer", REGULARIZER, AT(activation, alpha_regularizer) },
    { "alpha_constraint", MUST_BE_NULL, 0 },
    { "shared_axes", AXES, AT(activation, shared_axes) },
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
static const ls_keras_key dot_keys[] = {
    COMMON,
    { "axes", DOT_AXES, 0 },
    { "normalize", BOOL, AT(merge, normalize) },
    END
};
static const ls_keras_key custom_scale_keys[] = {
    COMMON,
    { "scale", F64, AT(merge, scale) },
    END
};
static const ls_keras_key activity_keys[] = {
    BASE,
    { "l1", F64, AT(layer, activity_regularizer.l1) },
    { "l2", F64, AT(layer, activity_regularizer.l2) },
    END
};
static const ls_keras_key rescaling_keys[] = {
    COMMON,
    { "scale", F64, AT(rescaling, scale_by) },
    { "offset", F64, AT(rescaling, offset) },
    END
};
static const ls_keras_key simple_rnn_keys[] = {
    COMMON,
    RECURRENT,
    END
};
static const ls_keras_key lstm_keys[] = {
    COMMON,
    RECURRENT,
    { "recurrent_activation", GATE, AT(recurrent, recurrent_activation) },
    { "unit_forget_bias", NOT, AT(recurrent, no_unit_forget_bias) },
    { "implementation", ANY, 0 },
    END
};
static const ls_keras_key gru_keys[] = {
    COMMON,
    RECURRENT,
    { "recurrent_activation", GATE, AT(recurrent, recurrent_activation) },
    { "reset_after", NOT, AT(recurrent, reset_before) },
    { "implementation", ANY, 0 },
    END
};
static const ls_keras_key masking_keys[] = {
    COMMON,
    { "mask_value", F64, AT(masking, mask_value) },
    END
};
static const ls_keras_key bidirectional_keys[] = {
    COMMON,
    { "layer", LAYER, AT(wrapper, layer) },
    { "backward_layer", LAYER, AT(wrapper, backward_layer) },
    { "merge_mode", MERGE_MODE, AT(wrapper, merge_mode) },
    END
};
static const ls_keras_key time_distributed_keys[] = {
    COMMON,
    { "layer", LAYER, AT(wrapper, layer) },
    END
};
/* clang-format on */

const char *const ls_keras_merge_modes[4] = { "concat", "sum", "mul", "ave" };

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
    { "SimpleRNN", LS_LAYER_SIMPLE_RNN, simple_rnn_keys },
    { "LSTM", LS_LAYER_LSTM, lstm_keys },
    { "GRU", LS_LAYER_GRU, gru_keys },
    { "Masking", LS_LAYER_MASKING, masking_keys },
    { "Bidirectional", LS_LAYER_BIDIRECTIONAL, bidirectional_keys },
    { "TimeDistributed", LS_LAYER_TIME_DISTRIBUTED, time_distributed_keys },
    { "Normalization", LS_LAYER_NORMALIZATION, normalization_keys },
    { "GroupNormalization", LS_LAYER_GROUP_NORMALIZATION, group_norm_keys },
    { "RMSNormalization", LS_LAYER_RMS_NORMALIZATION, rms_norm_keys },
    { "UnitNormalization", LS_LAYER_UNIT_NORMALIZATION, unit_norm_keys },
    { "PReLU", LS_LAYER_PRELU, prelu_keys },
    { "ELU", LS_LAYER_ELU, elu_keys },
    { "SpatialDropout1D", LS_LAYER_SPATIAL_DROPOUT1D, spatial_dropout_keys },
    { "SpatialDropout2D", LS_LAYER_SPATIAL_DROPOUT2D, spatial_dropout2d_keys },
    { "GaussianNoise", LS_LAYER_GAUSSIAN_NOISE, gaussian_noise_keys },
    { "GaussianDropout", LS_LAYER_GAUSSIAN_DROPOUT, gaussian_dropout_keys },
    { "AlphaDropout", LS_LAYER_ALPHA_DROPOUT, alpha_dropout_keys },
    { "StochasticDepth", LS_LAYER_STOCHASTIC_DEPTH, stochastic_depth_keys },
    { "Average", LS_LAYER_AVERAGE, merge_keys },
    { "Maximum", LS_LAYER_MAXIMUM, merge_keys },
    { "Minimum", LS_LAYER_MINIMUM, merge_keys },
    { "Subtract", LS_LAYER_SUBTRACT, merge_keys },
    { "Dot", LS_LAYER_DOT, dot_keys },
    { "CustomScaleLayer", LS_LAYER_CUSTOM_SCALE, custom_scale_keys },
    { "LayerScale", LS_LAYER_LAYER_SCALE, layer_scale_keys },
    { "ActivityRegularization", LS_LAYER_ACTIVITY_REGULARIZATION, activity_keys },
    { "Conv1D", LS_LAYER_CONV1D, conv1d_keys },
    { "Conv1DTranspose", LS_LAYER_CONV1D_TRANSPOSE, transpose1d_keys },
    { "Conv2DTranspose", LS_LAYER_CONV2D_TRANSPOSE, transpose2d_keys },
    { "DepthwiseConv1D", LS_LAYER_DEPTHWISE_CONV1D, depthwise1d_keys },
    { "SeparableConv1D", LS_LAYER_SEPARABLE_CONV1D, separable1d_keys },
    { "SeparableConv2D", LS_LAYER_SEPARABLE_CONV2D, separable2d_keys },
    { "MaxPooling1D", LS_LAYER_MAX_POOL1D, pool1d_keys },
    { "AveragePooling1D", LS_LAYER_AVERAGE_POOL1D, pool1d_keys },
    { "GlobalMaxPooling1D", LS_LAYER_GLOBAL_MAX_POOL1D, global_keys },
    { "GlobalAveragePooling1D", LS_LAYER_GLOBAL_AVERAGE_POOL1D, global_keys },
    { "ZeroPadding1D", LS_LAYER_ZERO_PADDING1D, pad1d_keys },
    { "Cropping1D", LS_LAYER_CROPPING1D, crop1d_keys },
    { "Cropping2D", LS_LAYER_CROPPING2D, crop2d_keys },
    { "Permute", LS_LAYER_PERMUTE, permute_keys },
    { "RepeatVector", LS_LAYER_REPEAT_VECTOR, repeat_keys },
    { "UpSampling1D", LS_LAYER_UP_SAMPLING1D, up_sampling1d_keys },
    { "UpSampling2D", LS_LAYER_UP_SAMPLING2D, up_sampling2d_keys },
    { "Resizing", LS_LAYER_RESIZING, resizing_keys },
    { "CenterCrop", LS_LAYER_CENTER_CROP, center_crop_keys },
    { "RandomFlip", LS_LAYER_RANDOM_FLIP, flip_keys },
    { "RandomTranslation", LS_LAYER_RANDOM_TRANSLATION, translation_keys },
    { "RandomCrop", LS_LAYER_RANDOM_CROP, random_crop_keys },
    { "RandomZoom", LS_LAYER_RANDOM_ZOOM, zoom_keys },
    { "RandomRotation", LS_LAYER_RANDOM_ROTATION, rotation_keys },
    { "RandomContrast", LS_LAYER_RANDOM_CONTRAST, color_keys },
    { "RandomBrightness", LS_LAYER_RANDOM_BRIGHTNESS, color_keys },
    { "RandomErasing", LS_LAYER_RANDOM_ERASING, erasing_keys },
};
const char *const ls_keras_fill_modes[] = { "constant", "nearest", "reflect", "wrap", NULL };
const char *const ls_keras_flip_modes[] = { "horizontal", "vertical", "horizontal_and_vertical", NULL };
const size_t ls_keras_class_count = sizeof(ls_keras_classes) / sizeof(ls_keras_classes[0]);

const ls_keras_class *ls_keras_class_of(ls_layer_kind kind)
{
    for (size_t i = 0; i < ls_keras_class_count; i++)
        if (ls_keras_classes[i].kind == kind)
            return &ls_keras_classes[i];
    return NULL;
}
