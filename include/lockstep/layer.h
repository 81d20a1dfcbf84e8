/* lockstep/layer.h: layers and their options.
 *
 * A layer is a *spec*: a plain struct, passed by value, which needs no freeing and cannot fail.
 * Names, options, defaults and meanings are Keras's. Errors in a spec are reported when a model is
 * made with it. */
#ifndef LOCKSTEP_LAYER_H
#define LOCKSTEP_LAYER_H

#include "lockstep/graph.h"

typedef enum ls_activation {
    LS_LINEAR = 0,
    LS_RELU,
    LS_SOFTMAX,
    LS_SIGMOID,
    LS_TANH,
    LS_GELU,      /* exact */
    LS_GELU_TANH, /* approximate=True */
    LS_SILU,
    LS_ELU,
    LS_SOFTPLUS,
    LS_LEAKY_RELU, /* slope 0.2 */
    LS_LOG_SOFTMAX,
    LS_EXPONENTIAL,
} ls_activation;

typedef struct ls_regularizer {
    /* Adds l1 sum|w| + l2 sum w^2 to the loss, once per step on any number of devices. */
    double l1, l2;
    /* OrthogonalRegularizer of a matrix: adds orthogonal times the mean of |cosine| of all pairs of
     * rows, or of columns (default 0: none; Keras's factor is 0.01) */
    double orthogonal;
    bool orthogonal_columns; /* mode="columns" (default false: "rows") */
} ls_regularizer;

typedef enum ls_layer_kind {
    LS_LAYER_NONE = 0,
    LS_LAYER_INPUT,
    LS_LAYER_DENSE,
    LS_LAYER_CONV2D,
    LS_LAYER_DEPTHWISE_CONV2D,
    LS_LAYER_MAX_POOL2D,
    LS_LAYER_AVERAGE_POOL2D,
    LS_LAYER_GLOBAL_MAX_POOL2D,
    LS_LAYER_GLOBAL_AVERAGE_POOL2D,
    LS_LAYER_FLATTEN,
    LS_LAYER_RESHAPE,
    LS_LAYER_DROPOUT,
    LS_LAYER_BATCH_NORMALIZATION,
    LS_LAYER_LAYER_NORMALIZATION,
    LS_LAYER_ACTIVATION,
    LS_LAYER_RELU,
    LS_LAYER_LEAKY_RELU,
    LS_LAYER_SOFTMAX,
    LS_LAYER_ADD,
    LS_LAYER_MULTIPLY,
    LS_LAYER_CONCATENATE,
    LS_LAYER_ZERO_PADDING2D,
    LS_LAYER_EMBEDDING,
    LS_LAYER_RESCALING,
    LS_LAYER_KINDS,
} ls_layer_kind;

/* ---- Options ---- */

/* Each family of layers has a struct of options, so an option of another family does not compile.
 * An option of the family that a layer does not have is an error when the model is made.
 *
 * Every struct begins with the fields of ls_layer_options. ls_first and similar fields mark where
 * the positional arguments of a constructor begin; nothing reads them. */
#define LS_LAYER_OPTIONS_                                                                                              \
    int ls_first;                                                                                                      \
    int64_t first, second, third, fourth; /* positional arguments of a constructor */                                  \
    const char *name;                                                                                                  \
    bool frozen;                                                                                                       \
    const char *device;

/* Options of every layer:
 * name    default "conv2d", "conv2d_1", ..., counted as in Keras
 * frozen  Keras: trainable=False. No gradient; a batch norm runs in inference mode
 * device  of its variables and nodes, such as "/gpu:1" (default: that of the surrounding block) */
typedef struct ls_layer_options {
    LS_LAYER_OPTIONS_
} ls_layer_options;

typedef struct ls_input_options {
    LS_LAYER_OPTIONS_
    ls_shape shape; /* without the batch axis, for more axes than positional arguments */
    ls_dtype dtype; /* default float32 */
} ls_input_options;

/* Options of layers with a kernel and a bias:
 * activation            applied to the output; softmax: over the last axis (default linear)
 * no_bias               Keras: use_bias=False
 * kernel_initializer    also of depthwise kernels (default Glorot uniform)
 * bias_initializer      default zeros
 * activity_regularizer  unsupported; setting it is an error
 * kernel_constraint     applied after each update; so is bias_constraint */
#define LS_KERNEL_OPTIONS_                                                                                             \
    ls_activation activation;                                                                                          \
    bool no_bias;                                                                                                      \
    ls_initializer kernel_initializer, bias_initializer;                                                               \
    ls_regularizer kernel_regularizer, bias_regularizer, activity_regularizer;                                         \
    ls_constraint kernel_constraint, bias_constraint;

typedef struct ls_dense_options {
    LS_LAYER_OPTIONS_
    LS_KERNEL_OPTIONS_
} ls_dense_options;

/* If one number of a pair (kernel_size, ...) is 0, it equals the other. */
typedef struct ls_conv_options {
    LS_LAYER_OPTIONS_
    LS_KERNEL_OPTIONS_
    int64_t kernel_size[2], strides[2], dilation_rate[2];
    int64_t groups;           /* Conv2D (default 1) */
    int64_t depth_multiplier; /* DepthwiseConv2D (default 1) */
    ls_padding padding;       /* default LS_VALID */
    int64_t zero_padding[4];  /* LS_EXPLICIT: top, bottom, left, right, in pixels */
} ls_conv_options;

typedef struct ls_pool_options {
    LS_LAYER_OPTIONS_
    int64_t pool_size[2], strides[2]; /* default 2; strides: default pool_size */
    ls_padding padding;               /* default LS_VALID */
    int64_t zero_padding[4];          /* LS_EXPLICIT: top, bottom, left, right, in pixels */
    bool keepdims;                    /* global pools return [N,1,1,C] instead of [N,C] */
} ls_pool_options;

/* ZeroPadding2D. */
typedef struct ls_pad_options {
    LS_LAYER_OPTIONS_
    ls_padding padding;      /* LS_EXPLICIT: zero_padding counts even if it is four zeros */
    int64_t zero_padding[4]; /* top, bottom, left, right, in pixels (default: equal sides) */
} ls_pad_options;

typedef struct ls_norm_options {
    LS_LAYER_OPTIONS_
    double momentum, epsilon; /* default 0.99, 1e-3; momentum: batch norm only */
    bool no_center, no_scale; /* Keras: center=False, scale=False */
    /* batch norm in training: statistics of the whole batch (default) or of each lane */
    ls_norm_statistics statistics;
    ls_initializer beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer;
    ls_regularizer beta_regularizer, gamma_regularizer;
    ls_constraint beta_constraint, gamma_constraint;
    int last_axes; /* layer normalization: number of last axes (default 1) */
    int64_t axis;  /* batch norm (default -1, the last axis) */
} ls_norm_options;

/* kernel_initializer, kernel_regularizer and kernel_constraint are those of the table. */
typedef struct ls_embedding_options {
    LS_LAYER_OPTIONS_
    ls_initializer kernel_initializer; /* default: uniform */
    ls_regularizer kernel_regularizer;
    ls_constraint kernel_constraint;
} ls_embedding_options;

/* Activation, ReLU, LeakyReLU, Softmax. */
typedef struct ls_activation_options {
    LS_LAYER_OPTIONS_
    int ls_first_activation;
    ls_activation activation;
    int ls_first_slope;
    double negative_slope; /* leaky ReLU (default 0.3); ReLU (default 0) */
    double max_value;      /* ReLU: upper limit (default 0: none) */
    /* ReLU: inputs below it become 0, or negative_slope (x - threshold) (default 0) */
    double threshold;
    int64_t axis; /* softmax (default -1, the last axis); axis 0 is the batch */
} ls_activation_options;

typedef struct ls_dropout_options {
    LS_LAYER_OPTIONS_
    int ls_first_rate;
    double rate; /* fraction dropped, 0 <= rate < 1 */
} ls_dropout_options;

/* Flatten, Reshape. */
typedef struct ls_reshape_options {
    LS_LAYER_OPTIONS_
    ls_shape shape; /* without the batch axis, for more axes than positional arguments */
} ls_reshape_options;

/* Add, Multiply, Concatenate. */
typedef struct ls_merge_options {
    LS_LAYER_OPTIONS_
    int64_t axis; /* concatenate (default -1, the last axis); axis 0 is the batch */
} ls_merge_options;

typedef struct ls_rescaling_options {
    LS_LAYER_OPTIONS_
    int ls_first_scale;
    double scale_by, offset; /* x scale_by + offset; LS_ZERO for a scale of 0 */
} ls_rescaling_options;

/* ---- Layers ---- */

typedef struct ls_layer {
    ls_layer_kind kind;
    union {
        ls_layer_options options; /* the fields that all others begin with */
        ls_input_options input;
        ls_dense_options dense;
        ls_conv_options conv;
        ls_pool_options pool;
        ls_pad_options pad;
        ls_norm_options norm;
        ls_embedding_options embedding;
        ls_activation_options activation;
        ls_dropout_options dropout;
        ls_reshape_options reshape;
        ls_merge_options merge;
        ls_rescaling_options rescaling;
    };
} ls_layer;

/* clang-format off */
/* Layer constructors take Keras's positional arguments, then options by name:
 *     ls_conv2d(64, 3, 2, .padding = LS_SAME, .no_bias = true, .name = "conv1")
 * A kernel, stride or pool given as one number is square; use .kernel_size = { 3, 5 } for others.
 *     ls_input                    sizes of one sample; none: a sample is a number
 *     ls_dense                    units
 *     ls_conv2d                   filters, kernel size, strides
 *     ls_depthwise_conv2d         kernel size, strides
 *     ls_max_pool2d               pool size (default 2), strides
 *     ls_average_pool2d           pool size (default 2), strides
 *     ls_reshape                  sizes of one sample; one of them may be -1: the rest
 *     ls_dropout                  rate: fraction dropped
 *     ls_activation_layer         LS_RELU, ...
 *     ls_leaky_relu               negative slope (default 0.3)
 *     ls_zero_padding2d           pixels on every side (default 1); .zero_padding for each side
 *     ls_embedding                rows (input_dim), width (output_dim)
 *     ls_rescaling                scale (1.0/255; 1/255 is 0, an error); .offset = -1 */
#ifndef __cplusplus /* cplusplus.h has them as functions */
#define LS_LAYER_(KIND, family, ...) LS_LAYER_FROM_(KIND, family, ls_first, __VA_ARGS__)
#define LS_LAYER_FROM_(KIND, family, mark, ...) ((ls_layer){ .kind = LS_LAYER_##KIND, .family = { .mark = 0, __VA_ARGS__ } })

#define ls_input(...)                 LS_LAYER_(INPUT, input, __VA_ARGS__)
#define ls_dense(...)                 LS_LAYER_(DENSE, dense, __VA_ARGS__)
#define ls_conv2d(...)                LS_LAYER_(CONV2D, conv, __VA_ARGS__)
#define ls_depthwise_conv2d(...)      LS_LAYER_(DEPTHWISE_CONV2D, conv, __VA_ARGS__)
#define ls_max_pool2d(...)            LS_LAYER_(MAX_POOL2D, pool, __VA_ARGS__)
#define ls_average_pool2d(...)        LS_LAYER_(AVERAGE_POOL2D, pool, __VA_ARGS__)
#define ls_global_max_pool2d(...)     LS_LAYER_(GLOBAL_MAX_POOL2D, pool, __VA_ARGS__)
#define ls_global_average_pool2d(...) LS_LAYER_(GLOBAL_AVERAGE_POOL2D, pool, __VA_ARGS__)
#define ls_zero_padding2d(...)        LS_LAYER_(ZERO_PADDING2D, pad, __VA_ARGS__)
#define ls_batch_normalization(...)   LS_LAYER_(BATCH_NORMALIZATION, norm, __VA_ARGS__)
#define ls_layer_normalization(...)   LS_LAYER_(LAYER_NORMALIZATION, norm, __VA_ARGS__)
#define ls_embedding(...)             LS_LAYER_(EMBEDDING, embedding, __VA_ARGS__)
#define ls_activation_layer(...)      LS_LAYER_FROM_(ACTIVATION, activation, ls_first_activation, __VA_ARGS__)
#define ls_relu(...)                  LS_LAYER_(RELU, activation, __VA_ARGS__)
#define ls_leaky_relu(...)            LS_LAYER_FROM_(LEAKY_RELU, activation, ls_first_slope, __VA_ARGS__)
#define ls_softmax(...)               LS_LAYER_(SOFTMAX, activation, __VA_ARGS__)
#define ls_dropout(...)               LS_LAYER_FROM_(DROPOUT, dropout, ls_first_rate, __VA_ARGS__)
#define ls_flatten(...)               LS_LAYER_(FLATTEN, reshape, __VA_ARGS__)
#define ls_reshape(...)               LS_LAYER_(RESHAPE, reshape, __VA_ARGS__)
#define ls_add(...)                   LS_LAYER_(ADD, merge, __VA_ARGS__)
#define ls_multiply(...)              LS_LAYER_(MULTIPLY, merge, __VA_ARGS__)
#define ls_concatenate(...)           LS_LAYER_(CONCATENATE, merge, __VA_ARGS__)
#define ls_rescaling(...)             LS_LAYER_FROM_(RESCALING, rescaling, ls_first_scale, __VA_ARGS__)
#endif
/* clang-format on */

#endif
