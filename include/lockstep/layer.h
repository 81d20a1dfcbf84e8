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
    LS_RELU6,
    LS_HARD_SIGMOID, /* x / 6 + 0.5, from 0 to 1 */
    LS_HARD_SILU,    /* Keras: also hard_swish */
    LS_MISH,
    LS_SELU,
    LS_SOFTSIGN,
    LS_LOG_SIGMOID,
    LS_TANH_SHRINK,
    LS_SOFT_SHRINK, /* threshold 0.5 */
    LS_HARD_SHRINK, /* threshold 0.5 */
    LS_HARD_TANH,
    LS_SQUAREPLUS, /* b 4 */
    LS_SPARSE_PLUS,
    LS_SPARSE_SIGMOID,
    LS_CELU,               /* alpha 1 */
    LS_GLU,                /* halves the last axis */
    LS_SPARSEMAX,          /* over the last axis; Keras 3's formula, see docs/reference.md */
    LS_NO_ACTIVATION = -1, /* linear, where linear is not the default (recurrent layers) */
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
    LS_LAYER_MODEL,
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
    LS_LAYER_SIMPLE_RNN,
    LS_LAYER_LSTM,
    LS_LAYER_GRU,
    LS_LAYER_MASKING,
    LS_LAYER_BIDIRECTIONAL,
    LS_LAYER_TIME_DISTRIBUTED,
    LS_LAYER_NORMALIZATION,
    LS_LAYER_GROUP_NORMALIZATION,
    LS_LAYER_RMS_NORMALIZATION,
    LS_LAYER_UNIT_NORMALIZATION,
    LS_LAYER_PRELU,
    LS_LAYER_ELU,
    LS_LAYER_SPATIAL_DROPOUT1D,
    LS_LAYER_SPATIAL_DROPOUT2D,
    LS_LAYER_GAUSSIAN_NOISE,
    LS_LAYER_GAUSSIAN_DROPOUT,
    LS_LAYER_ALPHA_DROPOUT,
    LS_LAYER_STOCHASTIC_DEPTH,
    LS_LAYER_AVERAGE,
    LS_LAYER_MAXIMUM,
    LS_LAYER_MINIMUM,
    LS_LAYER_SUBTRACT,
    LS_LAYER_DOT,
    LS_LAYER_CUSTOM_SCALE,
    LS_LAYER_LAYER_SCALE,
    LS_LAYER_ACTIVITY_REGULARIZATION,
    LS_LAYER_REGISTERED,
    LS_LAYER_CONV1D,
    LS_LAYER_CONV1D_TRANSPOSE,
    LS_LAYER_CONV2D_TRANSPOSE,
    LS_LAYER_DEPTHWISE_CONV1D,
    LS_LAYER_SEPARABLE_CONV1D,
    LS_LAYER_SEPARABLE_CONV2D,
    LS_LAYER_MAX_POOL1D,
    LS_LAYER_AVERAGE_POOL1D,
    LS_LAYER_GLOBAL_MAX_POOL1D,
    LS_LAYER_GLOBAL_AVERAGE_POOL1D,
    LS_LAYER_ZERO_PADDING1D,
    LS_LAYER_CROPPING1D,
    LS_LAYER_CROPPING2D,
    LS_LAYER_PERMUTE,
    LS_LAYER_REPEAT_VECTOR,
    LS_LAYER_UP_SAMPLING1D,
    LS_LAYER_UP_SAMPLING2D,
    LS_LAYER_RESIZING,
    LS_LAYER_CENTER_CROP,
    LS_LAYER_RANDOM_FLIP,
    LS_LAYER_RANDOM_TRANSLATION,
    LS_LAYER_RANDOM_CROP,
    LS_LAYER_RANDOM_ZOOM,
    LS_LAYER_RANDOM_ROTATION,
    LS_LAYER_RANDOM_CONTRAST,
    LS_LAYER_RANDOM_BRIGHTNESS,
    LS_LAYER_RANDOM_ERASING,
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
    const char *device;                                                                                                \
    ls_regularizer activity_regularizer;

/* Options of every layer:
 * name    default "conv2d", "conv2d_1", ..., counted as in Keras
 * frozen  Keras: trainable=False. No gradient; a batch norm runs in inference mode
 * device  of its variables and nodes, such as "/gpu:1" (default: that of the surrounding block)
 * activity_regularizer  of the layer's output: adds its mean over the batch to the loss */
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
 * kernel_constraint     applied after each update; so is bias_constraint */
#define LS_KERNEL_OPTIONS_                                                                                             \
    ls_activation activation;                                                                                          \
    bool no_bias;                                                                                                      \
    ls_initializer kernel_initializer, bias_initializer;                                                               \
    ls_regularizer kernel_regularizer, bias_regularizer;                                                               \
    ls_constraint kernel_constraint, bias_constraint;

typedef struct ls_dense_options {
    LS_LAYER_OPTIONS_
    LS_KERNEL_OPTIONS_
} ls_dense_options;

/* If one number of a pair (kernel_size, ...) is 0, it equals the other. Layers over sequences
 * (Conv1D, ...) have one number: .kernel_size = { 3 }.
 * kernel_initializer and kernel_regularizer of separable convolutions are the depthwise ones. */
typedef struct ls_conv_options {
    LS_LAYER_OPTIONS_
    LS_KERNEL_OPTIONS_
    int64_t kernel_size[2], strides[2], dilation_rate[2];
    int64_t groups;           /* Conv1D, Conv2D (default 1) */
    int64_t depth_multiplier; /* depthwise and separable convolutions (default 1) */
    ls_padding padding;       /* default LS_VALID; LS_CAUSAL: Conv1D */
    int64_t zero_padding[4];  /* LS_EXPLICIT: top, bottom, left, right; sequences: begin, end */
    /* transposed convolutions: extra size of the output (default: Keras's None; -1 means 0) */
    int64_t output_padding[2];
    ls_initializer pointwise_initializer; /* separable convolutions (default Glorot uniform) */
    ls_regularizer pointwise_regularizer; /* separable convolutions */
    ls_constraint pointwise_constraint;   /* separable convolutions */
} ls_conv_options;

typedef struct ls_pool_options {
    LS_LAYER_OPTIONS_
    int64_t pool_size[2], strides[2]; /* default 2; strides: default pool_size; sequences: { n } */
    ls_padding padding;               /* default LS_VALID */
    int64_t zero_padding[4];          /* LS_EXPLICIT: top, bottom, left, right; sequences: begin, end */
    /* global pools return [N,1,1,C] (sequences: [N,1,C]) instead of [N,C] */
    bool keepdims;
} ls_pool_options;

/* ZeroPadding1D, ZeroPadding2D, Cropping1D, Cropping2D. */
typedef struct ls_pad_options {
    LS_LAYER_OPTIONS_
    ls_padding padding; /* LS_EXPLICIT: zero_padding or cropping counts even if all numbers are 0 */
    /* top, bottom, left, right; sequences: begin, end (default: equal sides) */
    int64_t zero_padding[4];
    int64_t cropping[4]; /* Cropping1D, Cropping2D, in the same order */
} ls_pad_options;

typedef struct ls_norm_options {
    LS_LAYER_OPTIONS_
    /* default 0.99, 1e-3 (RMS normalization: 1e-6); momentum: batch norm only */
    double momentum, epsilon;
    bool no_center, no_scale; /* Keras: center=False, scale=False */
    /* batch norm in training: statistics of the whole batch (default) or of each lane */
    ls_norm_statistics statistics;
    ls_initializer beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer;
    ls_regularizer beta_regularizer, gamma_regularizer;
    ls_constraint beta_constraint, gamma_constraint;
    int last_axes; /* layer normalization: number of last axes (default 1) */
    int64_t axis;  /* batch and group norm (default -1, the last axis) */
    /* layer, RMS and unit normalization: axes that are normalized together (default: the last) */
    ls_axes axes;
    int64_t groups;   /* group norm (default 32; -1: as many as channels) */
    bool rms_scaling; /* layer normalization: divides by the deviation, without subtracting the mean */
} ls_norm_options;

/* Numbers of an option, which a model copies: .mean = { 3, (double[]){ 0.5, 0.4, 0.4 } } */
typedef struct ls_numbers {
    int64_t count;
    const double *values;
} ls_numbers;

/* Normalization: (x - mean) / deviation. Without mean and variance they are weights, which
 * ls_model_adapt computes from data. */
typedef struct ls_normalization_options {
    LS_LAYER_OPTIONS_
    ls_axes axes; /* axes whose elements have statistics of their own (default: the last) */
    bool no_axis; /* one mean and variance of all elements; Keras: axis=None */
    bool invert;  /* undoes the normalization: x deviation + mean */
    /* One number, one for each element of `axes`, or of the last of them (default: weights) */
    ls_numbers mean, variance;
} ls_normalization_options;

/* kernel_initializer, kernel_regularizer and kernel_constraint are those of the table. */
typedef struct ls_embedding_options {
    LS_LAYER_OPTIONS_
    ls_initializer kernel_initializer; /* default: uniform */
    ls_regularizer kernel_regularizer;
    ls_constraint kernel_constraint;
    bool mask_zero; /* index 0 is padding: the output has a mask (see ls_masking) */
} ls_embedding_options;

/* SimpleRNN, LSTM, GRU. Activations: tanh, sigmoid, relu, hard_sigmoid, LS_NO_ACTIVATION. */
typedef struct ls_recurrent_options {
    LS_LAYER_OPTIONS_
    ls_activation activation;             /* default tanh */
    ls_activation recurrent_activation;   /* gates of LSTM and GRU (default sigmoid) */
    bool no_bias;                         /* Keras: use_bias=False */
    bool return_sequences;                /* [N,T,units], the output of every step, not [N,units], the last */
    bool go_backwards;                    /* from the last step to the first; sequences come out in that order */
    bool unroll;                          /* has no effect: a sequence is one op in any case */
    bool zero_output_for_mask;            /* outputs of masked steps are 0, not those of the step before */
    bool no_unit_forget_bias;             /* LSTM: the bias of the forget gate does not begin with 1 */
    bool reset_before;                    /* GRU; Keras: reset_after=False */
    double dropout;                       /* fraction of the inputs that is dropped, the same in all steps */
    ls_initializer kernel_initializer;    /* default Glorot uniform */
    ls_initializer recurrent_initializer; /* default orthogonal */
    ls_initializer bias_initializer;      /* default zeros */
    ls_regularizer kernel_regularizer, recurrent_regularizer, bias_regularizer;
    ls_constraint kernel_constraint, recurrent_constraint, bias_constraint; /* applied after each update */
} ls_recurrent_options;

typedef struct ls_masking_options {
    LS_LAYER_OPTIONS_
    int ls_first_value;
    double mask_value; /* default 0 */
} ls_masking_options;

typedef enum ls_merge_mode { LS_MERGE_CONCAT = 0, LS_MERGE_SUM, LS_MERGE_MUL, LS_MERGE_AVE } ls_merge_mode;

/* Bidirectional, TimeDistributed. The model copies the layers inside. */
typedef struct ls_wrapper_options {
    LS_LAYER_OPTIONS_
    int ls_first_layer;
    const struct ls_layer *layer;
    /* Bidirectional: from the last step to the first (default: like `layer`) */
    const struct ls_layer *backward_layer;
    ls_merge_mode merge_mode; /* Bidirectional (default LS_MERGE_CONCAT) */
} ls_wrapper_options;

/* Activation, ReLU, LeakyReLU, ELU, PReLU, Softmax. */
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
    int ls_first_alpha;
    double alpha;                     /* ELU: factor of negative values (default 1) */
    ls_initializer alpha_initializer; /* PReLU (default zeros) */
    ls_regularizer alpha_regularizer; /* PReLU */
    ls_axes shared_axes;              /* PReLU: axes along which alpha is the same (default none) */
} ls_activation_options;

/* Dropout, SpatialDropout1D and 2D, GaussianDropout, AlphaDropout, StochasticDepth,
 * GaussianNoise. */
typedef struct ls_dropout_options {
    LS_LAYER_OPTIONS_
    int ls_first_rate;
    double rate; /* fraction dropped, 0 <= rate < 1 */
    /* Dropout: sizes of a sample's mask; 1: one choice for the whole axis, -1: the input's size
     * (default: those of the input) */
    ls_shape noise_shape;
    int ls_first_stddev;
    double stddev; /* GaussianNoise: deviation of the noise, 0 to 1 */
} ls_dropout_options;

/* Flatten, Reshape, Permute, RepeatVector. */
typedef struct ls_reshape_options {
    LS_LAYER_OPTIONS_
    /* Reshape: sizes without the batch axis; Permute: the dims. For more axes than positional
     * arguments */
    ls_shape shape;
} ls_reshape_options;

/* UpSampling1D, UpSampling2D, Resizing, CenterCrop. Resized images are float32 and not rounded,
 * also those of uint8 images. */
typedef struct ls_resize_options {
    LS_LAYER_OPTIONS_
    int64_t size[2];                /* UpSampling2D: factors (default 2) */
    ls_interpolation interpolation; /* UpSampling2D, Resizing */
    /* Resizing keeps the aspect ratio: crops the image before resizing, or pads it */
    bool crop_to_aspect_ratio, pad_to_aspect_ratio;
    double fill_value; /* value of the padding (default 0) */
} ls_resize_options;

typedef enum ls_flip_mode {
    LS_FLIP_DEFAULT = 0, /* horizontal and vertical */
    LS_HORIZONTAL,
    LS_VERTICAL,
    LS_HORIZONTAL_AND_VERTICAL, /* both or none, as Keras 3 does */
} ls_flip_mode;

/* RandomFlip, RandomTranslation, RandomCrop, RandomZoom, RandomRotation, RandomContrast,
 * RandomBrightness, RandomErasing: change images in training, each by its own random numbers, and
 * nothing in inference. RandomCrop also crops in inference: the largest centered window of the
 * aspect ratio, resized.
 * A factor { 0.1 } is a number, with Keras's meaning (-0.1 to 0.1; contrast and erasing: 0 to 0.1);
 * { a, b } is a range. Use LS_ZERO for a second number that is 0. */
typedef struct ls_augment_options {
    LS_LAYER_OPTIONS_
    int ls_first_mode;
    ls_flip_mode mode; /* RandomFlip */
    double factor[2];  /* rotation (of a full turn), contrast, brightness, erasing (default { 1 }) */
    /* translation, zoom (default width: that of the height, keeping the aspect ratio) */
    double height_factor[2], width_factor[2];
    ls_fill_mode fill_mode;         /* translation, zoom, rotation (default reflect) */
    ls_interpolation interpolation; /* translation, zoom, rotation (default bilinear) */
    /* translation, zoom, rotation with LS_FILL_CONSTANT: one number (default 0); erasing: one or
     * three, LS_ZERO for 0 (default: random) */
    double fill_value[3];
    double value_range[2]; /* contrast, brightness, erasing (default 0 to 255) */
    double scale[2];       /* erasing: part of the image's area (default 0.02 to 0.33) */
    /* Layers with equal seeds draw equal numbers, wherever they are in a model; -1 means 0
     * (default: numbers of its own) */
    int64_t seed;
} ls_augment_options;

/* Add, Subtract, Multiply, Average, Maximum, Minimum, Concatenate, Dot, CustomScaleLayer. */
typedef struct ls_merge_options {
    LS_LAYER_OPTIONS_
    int64_t axis;   /* concatenate (default -1, the last axis); axis 0 is the batch */
    bool normalize; /* dot: of rows of length 1, the cosine similarity */
    int ls_first_scale;
    double scale; /* custom scale: factor of the second input; LS_ZERO for 0 */
} ls_merge_options;

/* LayerScale of ConvNeXt: x times a trained factor for each channel. */
typedef struct ls_layer_scale_options {
    LS_LAYER_OPTIONS_
    double init_values; /* initial factor (default 1e-6); LS_ZERO for 0 */
} ls_layer_scale_options;

typedef struct ls_rescaling_options {
    LS_LAYER_OPTIONS_
    int ls_first_scale;
    double scale_by, offset; /* x scale_by + offset; LS_ZERO for a scale of 0 */
} ls_rescaling_options;

/* A model as a layer of another model. */
typedef struct ls_nested_options {
    LS_LAYER_OPTIONS_
    int ls_first_model;
    struct ls_model *model; /* Sequential or Functional */
} ls_nested_options;

/* A layer of a class that the program registered (ls_register_layer in nn.h). */
typedef struct ls_registered_options {
    LS_LAYER_OPTIONS_
    int ls_first_class;
    const char *class_name; /* as registered: "MyPackage>Scale" */
    const char *config;     /* its config as JSON text: "{\"factor\": 2}" (default "{}") */
} ls_registered_options;

/* ---- Layers ---- */

typedef struct ls_layer {
    ls_layer_kind kind;
    union {
        ls_layer_options options; /* the fields that all others begin with */
        ls_input_options input;
        ls_nested_options nested;
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
        ls_recurrent_options recurrent;
        ls_masking_options masking;
        ls_wrapper_options wrapper;
        ls_normalization_options normalization;
        ls_layer_scale_options layer_scale;
        ls_registered_options registered;
        ls_resize_options resize;
        ls_augment_options augment;
    };
} ls_layer;

/* clang-format off */
/* Layer constructors take Keras's positional arguments, then options by name:
 *     ls_conv2d(64, 3, 2, .padding = LS_SAME, .no_bias = true, .name = "conv1")
 * A kernel, stride or pool given as one number is square; use .kernel_size = { 3, 5 } for others.
 *     ls_input                    sizes of one sample; none: a sample is a number
 *     ls_nested                   a finished model, which is copied with its weights (default name: its own)
 *     ls_dense                    units
 *     ls_conv1d, ls_conv2d        filters, kernel size, strides
 *     ls_conv1d_transpose, ls_conv2d_transpose, ls_separable_conv1d, ls_separable_conv2d: the same
 *     ls_depthwise_conv1d, ls_depthwise_conv2d: kernel size, strides
 *     ls_max_pool1d, ls_max_pool2d, ls_average_pool1d, ls_average_pool2d: pool size (default 2), strides
 *     ls_reshape                  sizes of one sample; one of them may be -1: the rest
 *     ls_dropout                  rate: fraction dropped
 *     ls_activation_layer         LS_RELU, ...
 *     ls_leaky_relu               negative slope (default 0.3)
 *     ls_zero_padding1d, ls_zero_padding2d: pixels on every side (default 1); .zero_padding for each side
 *     ls_cropping1d, ls_cropping2d: pixels on every side (default 1, 0); .cropping for each side
 *     ls_permute                  dims: ls_permute(2, 1) swaps the two axes of a sample
 *     ls_repeat_vector            n
 *     ls_up_sampling1d, ls_up_sampling2d: size (default 2)
 *     ls_resizing, ls_center_crop height, width
 *     ls_random_flip              LS_HORIZONTAL, ...
 *     ls_random_crop              height, width
 *     ls_embedding                rows (input_dim), width (output_dim)
 *     ls_rescaling                scale (1.0/255; 1/255 is 0, an error); .offset = -1
 *     ls_simple_rnn, ls_lstm, ls_gru  units
 *     ls_masking                  value: a step whose numbers all have it is masked (default 0)
 *     ls_bidirectional            a recurrent layer: ls_bidirectional(ls_lstm(64), .merge_mode = LS_MERGE_SUM)
 *     ls_time_distributed         the layer that each step is given to: ls_time_distributed(ls_dense(10))
 *     ls_group_normalization      groups (default 32)
 *     ls_elu                      alpha (default 1)
 *     ls_spatial_dropout2d        rate: fraction of channels dropped; also ls_spatial_dropout1d
 *     ls_gaussian_dropout         rate: multiplies by noise of mean 1; also ls_alpha_dropout
 *     ls_gaussian_noise           stddev: deviation of the noise that is added
 *     ls_stochastic_depth         rate: fraction of samples dropped
 *     ls_dot                      axis of both inputs, or the axis of each
 *     ls_custom_scale             scale: first input + scale times the second
 *     ls_layer_scale              channels (projection_dim)
 *     ls_registered               class name of a layer of the program, its config as JSON text
 *     ls_activity_regularization  none: the output is the input; .activity_regularizer = { .l2 = 0.01 }
 *
 * The masks of ls_masking and ls_embedding(.mask_zero = true) go with the tensors, as in Keras:
 * recurrent layers skip masked steps, and losses leave them out. docs/recurrent.md lists what
 * passes a mask on. */
#ifndef __cplusplus /* cplusplus.h has them as functions */
#define LS_LAYER_(KIND, family, ...) LS_LAYER_FROM_(KIND, family, ls_first, __VA_ARGS__)
#define LS_LAYER_FROM_(KIND, family, mark, ...) ((ls_layer){ .kind = LS_LAYER_##KIND, .family = { .mark = 0, __VA_ARGS__ } })

#define ls_input(...)                 LS_LAYER_(INPUT, input, __VA_ARGS__)
#define ls_nested(...)                LS_LAYER_FROM_(MODEL, nested, ls_first_model, __VA_ARGS__)
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
#define ls_simple_rnn(...)            LS_LAYER_(SIMPLE_RNN, recurrent, __VA_ARGS__)
#define ls_lstm(...)                  LS_LAYER_(LSTM, recurrent, __VA_ARGS__)
#define ls_gru(...)                   LS_LAYER_(GRU, recurrent, __VA_ARGS__)
#define ls_masking(...)               LS_LAYER_FROM_(MASKING, masking, ls_first_value, __VA_ARGS__)
/* The address of the first argument, a layer that lives as long as the block around the call. */
#define ls_bidirectional(...)         LS_LAYER_FROM_(BIDIRECTIONAL, wrapper, ls_first_layer, &__VA_ARGS__)
#define ls_time_distributed(...)      LS_LAYER_FROM_(TIME_DISTRIBUTED, wrapper, ls_first_layer, &__VA_ARGS__)
#define ls_normalization(...)         LS_LAYER_(NORMALIZATION, normalization, __VA_ARGS__)
#define ls_group_normalization(...)   LS_LAYER_(GROUP_NORMALIZATION, norm, __VA_ARGS__)
#define ls_rms_normalization(...)     LS_LAYER_(RMS_NORMALIZATION, norm, __VA_ARGS__)
#define ls_unit_normalization(...)    LS_LAYER_(UNIT_NORMALIZATION, norm, __VA_ARGS__)
#define ls_prelu(...)                 LS_LAYER_(PRELU, activation, __VA_ARGS__)
#define ls_elu(...)                   LS_LAYER_FROM_(ELU, activation, ls_first_alpha, __VA_ARGS__)
#define ls_spatial_dropout1d(...)     LS_LAYER_FROM_(SPATIAL_DROPOUT1D, dropout, ls_first_rate, __VA_ARGS__)
#define ls_spatial_dropout2d(...)     LS_LAYER_FROM_(SPATIAL_DROPOUT2D, dropout, ls_first_rate, __VA_ARGS__)
#define ls_gaussian_noise(...)        LS_LAYER_FROM_(GAUSSIAN_NOISE, dropout, ls_first_stddev, __VA_ARGS__)
#define ls_gaussian_dropout(...)      LS_LAYER_FROM_(GAUSSIAN_DROPOUT, dropout, ls_first_rate, __VA_ARGS__)
#define ls_alpha_dropout(...)         LS_LAYER_FROM_(ALPHA_DROPOUT, dropout, ls_first_rate, __VA_ARGS__)
#define ls_stochastic_depth(...)      LS_LAYER_FROM_(STOCHASTIC_DEPTH, dropout, ls_first_rate, __VA_ARGS__)
#define ls_average(...)               LS_LAYER_(AVERAGE, merge, __VA_ARGS__)
#define ls_maximum(...)               LS_LAYER_(MAXIMUM, merge, __VA_ARGS__)
#define ls_minimum(...)               LS_LAYER_(MINIMUM, merge, __VA_ARGS__)
#define ls_subtract(...)              LS_LAYER_(SUBTRACT, merge, __VA_ARGS__)
#define ls_dot(...)                   LS_LAYER_(DOT, merge, __VA_ARGS__)
#define ls_custom_scale(...)          LS_LAYER_FROM_(CUSTOM_SCALE, merge, ls_first_scale, __VA_ARGS__)
#define ls_layer_scale(...)           LS_LAYER_(LAYER_SCALE, layer_scale, __VA_ARGS__)
#define ls_activity_regularization(...) LS_LAYER_(ACTIVITY_REGULARIZATION, rescaling, __VA_ARGS__)
#define ls_registered(...)            LS_LAYER_FROM_(REGISTERED, registered, ls_first_class, __VA_ARGS__)
#define ls_conv1d(...)                LS_LAYER_(CONV1D, conv, __VA_ARGS__)
#define ls_conv1d_transpose(...)      LS_LAYER_(CONV1D_TRANSPOSE, conv, __VA_ARGS__)
#define ls_conv2d_transpose(...)      LS_LAYER_(CONV2D_TRANSPOSE, conv, __VA_ARGS__)
#define ls_depthwise_conv1d(...)      LS_LAYER_(DEPTHWISE_CONV1D, conv, __VA_ARGS__)
#define ls_separable_conv1d(...)      LS_LAYER_(SEPARABLE_CONV1D, conv, __VA_ARGS__)
#define ls_separable_conv2d(...)      LS_LAYER_(SEPARABLE_CONV2D, conv, __VA_ARGS__)
#define ls_max_pool1d(...)            LS_LAYER_(MAX_POOL1D, pool, __VA_ARGS__)
#define ls_average_pool1d(...)        LS_LAYER_(AVERAGE_POOL1D, pool, __VA_ARGS__)
#define ls_global_max_pool1d(...)     LS_LAYER_(GLOBAL_MAX_POOL1D, pool, __VA_ARGS__)
#define ls_global_average_pool1d(...) LS_LAYER_(GLOBAL_AVERAGE_POOL1D, pool, __VA_ARGS__)
#define ls_zero_padding1d(...)        LS_LAYER_(ZERO_PADDING1D, pad, __VA_ARGS__)
#define ls_cropping1d(...)            LS_LAYER_(CROPPING1D, pad, __VA_ARGS__)
#define ls_cropping2d(...)            LS_LAYER_(CROPPING2D, pad, __VA_ARGS__)
#define ls_permute(...)               LS_LAYER_(PERMUTE, reshape, __VA_ARGS__)
#define ls_repeat_vector(...)         LS_LAYER_(REPEAT_VECTOR, reshape, __VA_ARGS__)
#define ls_up_sampling1d(...)         LS_LAYER_(UP_SAMPLING1D, resize, __VA_ARGS__)
#define ls_up_sampling2d(...)         LS_LAYER_(UP_SAMPLING2D, resize, __VA_ARGS__)
#define ls_resizing(...)              LS_LAYER_(RESIZING, resize, __VA_ARGS__)
#define ls_center_crop(...)           LS_LAYER_(CENTER_CROP, resize, __VA_ARGS__)
#define ls_random_flip(...)           LS_LAYER_FROM_(RANDOM_FLIP, augment, ls_first_mode, __VA_ARGS__)
#define ls_random_translation(...)    LS_LAYER_(RANDOM_TRANSLATION, augment, __VA_ARGS__)
#define ls_random_crop(...)           LS_LAYER_(RANDOM_CROP, augment, __VA_ARGS__)
#define ls_random_zoom(...)           LS_LAYER_(RANDOM_ZOOM, augment, __VA_ARGS__)
#define ls_random_rotation(...)       LS_LAYER_(RANDOM_ROTATION, augment, __VA_ARGS__)
#define ls_random_contrast(...)       LS_LAYER_(RANDOM_CONTRAST, augment, __VA_ARGS__)
#define ls_random_brightness(...)     LS_LAYER_(RANDOM_BRIGHTNESS, augment, __VA_ARGS__)
#define ls_random_erasing(...)        LS_LAYER_(RANDOM_ERASING, augment, __VA_ARGS__)
#endif
/* clang-format on */

#endif
