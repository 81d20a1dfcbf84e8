/* lockstep/nn.h: layers, models, losses, metrics, optimizers and schedules.
 *
 * Layers, losses, metrics, optimizers and schedules are *specs*: plain structs by value, nothing to free, nothing
 * fails. Names, options, defaults and meanings are Keras's. A model is made from layers; what is wrong with a spec is
 * reported when the model is made or compiled. */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include "lockstep/graph.h"
#include "lockstep/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Parts of layers ---- */

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
    double l1, l2; /* adds l1 sum|w| + l2 sum w^2 to the loss, once a step on any number of devices */
} ls_regularizer;

/* ---- Layers ---- */

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

/* One struct for every kind. An option that a layer does not have is an error that names it, when the model is made.
 * ls_first and the like are where a constructor's positional arguments begin; nothing else looks at them. */
typedef struct ls_layer_options {
    int ls_first;
    int64_t first, second, third, fourth; /* the positional arguments of a constructor */
    const char *name;                     /* NULL: "conv2d", "conv2d_1", ... as Keras counts them */
    int ls_first_activation;
    ls_activation activation;                            /* softmax: over the last axis */
    bool no_bias;                                        /* Keras: use_bias=False */
    ls_initializer kernel_initializer, bias_initializer; /* kernel: of a depthwise kernel and of embeddings, too */
    ls_regularizer kernel_regularizer, bias_regularizer;
    ls_regularizer activity_regularizer; /* not honoured: an error */
    bool frozen;                         /* Keras: trainable=False. No gradient, and a batch norm in inference mode */
    /* images; where one of a pair is 0, it is as the other */
    int64_t kernel_size[2], strides[2], dilation_rate[2], pool_size[2]; /* strides of a pool: default the pool_size */
    int64_t groups, depth_multiplier;                                   /* 0: 1 */
    ls_padding padding;
    int64_t zero_padding[4]; /* top, bottom, left, right: of a ZeroPadding2D; of other layers with LS_EXPLICIT */
    bool keepdims;           /* global pools: [N,1,1,C], not [N,C] */
    /* normalisation */
    double momentum, epsilon;      /* 0: 0.99, 1e-3 */
    bool no_center, no_scale;      /* Keras: center=False, scale=False */
    ls_norm_statistics statistics; /* of a batch norm in training: of the whole batch, or of each lane */
    ls_initializer beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer;
    ls_regularizer beta_regularizer, gamma_regularizer;
    int last_axes; /* layer normalisation: over how many; 0: 1 */
    /* others */
    int ls_first_rate;
    double rate; /* dropout: from 0 up to, not including, 1 */
    int ls_first_slope;
    double negative_slope; /* leaky ReLU: 0: 0.3; ReLU: 0 */
    double max_value;      /* ReLU: 0: none */
    double threshold;      /* ReLU */
    int ls_first_scale;
    double scale_by, offset; /* rescaling: x scale_by + offset; a scale of 0 is LS_ZERO */
    int64_t axis;            /* of softmax, concatenate, batch norm; 0: -1, the last. Axis 0 is the batch's */
    ls_shape shape;          /* of an input (without the batch axis), of a reshape: where four places are too few */
    ls_dtype dtype;          /* of an input */
    const char *device;      /* "/gpu:1": where its variables and nodes belong; NULL: as the scope around it says */
} ls_layer_options;

typedef struct ls_layer {
    ls_layer_kind kind;
    ls_layer_options options;
} ls_layer;

#define LS_LAYER_FROM_(layer_kind, mark, ...) ((ls_layer){ .kind = layer_kind, .options = { .mark = 0, __VA_ARGS__ } })
#define LS_LAYER_(layer_kind, ...)            LS_LAYER_FROM_(layer_kind, ls_first, __VA_ARGS__)

/* clang-format off */
/* Keras's positional arguments, then options by name:
 *     ls_conv2d(64, 3, 2, .padding = LS_SAME, .no_bias = true, .name = "conv1")
 * A kernel, a stride or a pool given as one number is square; .kernel_size = { 3, 5 } is not.
 *     ls_input                    sizes of one sample; none: a sample is a number
 *     ls_dense                    units
 *     ls_conv2d                   filters, kernel size, strides
 *     ls_depthwise_conv2d         kernel size, strides
 *     ls_max_pool2d               pool size (none: 2), strides; ls_average_pool2d likewise
 *     ls_reshape                  sizes of one sample, of which one may be -1: the rest
 *     ls_dropout                  rate: the part that is dropped
 *     ls_activation_layer         LS_RELU, ...
 *     ls_leaky_relu               negative slope (none: 0.3)
 *     ls_zero_padding2d           rows and columns on every side (none: 1); .zero_padding: of each side
 *     ls_embedding                rows (input_dim), width (output_dim)
 *     ls_rescaling                scale (1.0/255: 1/255 is 0 in C, and 0 is an error); .offset = -1 */
#define ls_input(...)                 LS_LAYER_(LS_LAYER_INPUT, __VA_ARGS__)
#define ls_dense(...)                 LS_LAYER_(LS_LAYER_DENSE, __VA_ARGS__)
#define ls_conv2d(...)                LS_LAYER_(LS_LAYER_CONV2D, __VA_ARGS__)
#define ls_depthwise_conv2d(...)      LS_LAYER_(LS_LAYER_DEPTHWISE_CONV2D, __VA_ARGS__)
#define ls_max_pool2d(...)            LS_LAYER_(LS_LAYER_MAX_POOL2D, __VA_ARGS__)
#define ls_average_pool2d(...)        LS_LAYER_(LS_LAYER_AVERAGE_POOL2D, __VA_ARGS__)
#define ls_global_max_pool2d(...)     LS_LAYER_(LS_LAYER_GLOBAL_MAX_POOL2D, __VA_ARGS__)
#define ls_global_average_pool2d(...) LS_LAYER_(LS_LAYER_GLOBAL_AVERAGE_POOL2D, __VA_ARGS__)
#define ls_flatten(...)               LS_LAYER_(LS_LAYER_FLATTEN, __VA_ARGS__)
#define ls_reshape(...)               LS_LAYER_(LS_LAYER_RESHAPE, __VA_ARGS__)
#define ls_dropout(...)               LS_LAYER_FROM_(LS_LAYER_DROPOUT, ls_first_rate, __VA_ARGS__)
#define ls_batch_normalization(...)   LS_LAYER_(LS_LAYER_BATCH_NORMALIZATION, __VA_ARGS__)
#define ls_layer_normalization(...)   LS_LAYER_(LS_LAYER_LAYER_NORMALIZATION, __VA_ARGS__)
#define ls_activation_layer(...)      LS_LAYER_FROM_(LS_LAYER_ACTIVATION, ls_first_activation, __VA_ARGS__)
#define ls_relu(...)                  LS_LAYER_(LS_LAYER_RELU, __VA_ARGS__)
#define ls_leaky_relu(...)            LS_LAYER_FROM_(LS_LAYER_LEAKY_RELU, ls_first_slope, __VA_ARGS__)
#define ls_softmax(...)               LS_LAYER_(LS_LAYER_SOFTMAX, __VA_ARGS__)
#define ls_add(...)                   LS_LAYER_(LS_LAYER_ADD, __VA_ARGS__)
#define ls_multiply(...)              LS_LAYER_(LS_LAYER_MULTIPLY, __VA_ARGS__)
#define ls_concatenate(...)           LS_LAYER_(LS_LAYER_CONCATENATE, __VA_ARGS__)
#define ls_zero_padding2d(...)        LS_LAYER_(LS_LAYER_ZERO_PADDING2D, __VA_ARGS__)
#define ls_embedding(...)             LS_LAYER_(LS_LAYER_EMBEDDING, __VA_ARGS__)
#define ls_rescaling(...)             LS_LAYER_FROM_(LS_LAYER_RESCALING, ls_first_scale, __VA_ARGS__)
/* clang-format on */

/* ---- Models ---- */

/* A model owns a graph with its variables, made with initial values when the model is. Nothing else is in that graph
 * until the model is traced. */
typedef struct ls_model ls_model;

/* ls_sequential(ctx, "cnn", &cnn, ls_input(28, 28, 1), ls_conv2d(16, 3, .activation = LS_RELU), ...) */
#define ls_sequential(ctx, name, out, ...)                                                                             \
    ls_sequential_with(ctx, name, (const ls_layer[]){ __VA_ARGS__ },                                                   \
                       sizeof((const ls_layer[]){ __VA_ARGS__ }) / sizeof(ls_layer), out)
LS_API ls_status ls_sequential_with(ls_context *ctx, const char *name, const ls_layer *layers, size_t count,
                                    ls_model **out);

/* clang-format off */
/* Functional models: layers called on symbols.
 *     ls_functional_begin(ctx, "net", &model);
 *     ls_symbol a = ls_symbol_input(model, ls_input(8, .name = "a"));
 *     ls_symbol b = ls_symbol_call(model, ls_dense(8, .activation = LS_RELU), a);
 *     ls_symbol c = ls_symbol_call(model, ls_add(), b, a);
 *     ls_functional_end(model, c);
 * Several outputs: ls_functional_end(model, b, c). A wrong call gives a symbol that stands for the error, as does every
 * call on such a symbol; ls_functional_end reports the first error. The caller destroys the model, from
 * ls_functional_begin on; it can be used after ls_functional_end. */
/* clang-format on */
typedef struct ls_symbol {
    ls_model *model;
    int index; /* -1: an error */
} ls_symbol;

#define LS_SYMBOLS_(...)                                                                                               \
    (const ls_symbol[]){ __VA_ARGS__ }, sizeof((const ls_symbol[]){ __VA_ARGS__ }) / sizeof(ls_symbol)
LS_API ls_status ls_functional_begin(ls_context *ctx, const char *name, ls_model **out);
LS_API ls_symbol ls_symbol_input(ls_model *model, ls_layer input);
#define ls_symbol_call(model, layer, ...) ls_symbol_call_with(model, layer, LS_SYMBOLS_(__VA_ARGS__))
LS_API ls_symbol ls_symbol_call_with(ls_model *model, ls_layer layer, const ls_symbol *inputs, size_t count);
/* The layer that made `symbol`, called again on other inputs: its weights are shared. */
#define ls_symbol_share(symbol, ...) ls_symbol_share_with(symbol, LS_SYMBOLS_(__VA_ARGS__))
LS_API ls_symbol ls_symbol_share_with(ls_symbol symbol, const ls_symbol *inputs, size_t count);
#define ls_functional_end(model, ...) ls_functional_end_with(model, LS_SYMBOLS_(__VA_ARGS__))
LS_API ls_status ls_functional_end_with(ls_model *model, const ls_symbol *outputs, size_t count);

/* Custom models: a C function that calls layers, as a subclassed Keras model's `call`. It may use ls_op_... on the
 * tensors, too. It is called once for every trace, for training and for inference, and first when the model is made, on
 * a graph that is thrown away (so constants belong to ls_tensor_graph(inputs[0])). A layer is known by its name: the
 * same name is the same layer, in one call of the function (its weights are shared) and in the next. Layers without a
 * name are counted in the order they are called in ("conv2d", "conv2d_1"), so that order must not change. */
typedef struct ls_call ls_call;
typedef void (*ls_call_function)(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user);
LS_API ls_status ls_custom(ls_context *ctx, const char *name, const ls_layer *inputs, size_t input_count,
                           size_t output_count, ls_call_function function, void *user, ls_model **out);
LS_API ls_tensor *ls_layer_call(ls_call *call, ls_layer layer, ls_tensor *x);
LS_API ls_tensor *ls_layer_call_many(ls_call *call, ls_layer layer, ls_tensor *const *inputs, size_t count);
LS_API bool ls_call_is_training(const ls_call *call);

/* A weight of the model's own, as Keras's add_weight: float32, known by its name, made when the model is, and then
 * trained, saved, loaded and hashed like those of layers.
 *     ls_tensor *scale = ls_call_variable(call, "scale", LS_SHAPE(10), .initializer = { .kind = LS_INIT_ONES });
 * The same name gives the same weight, in one call of the function and in the next. */
typedef struct ls_weight_options {
    int ls_first;
    ls_shape shape;
    ls_initializer initializer; /* left out: Glorot uniform */
    ls_regularizer regularizer;
    bool frozen; /* Keras: trainable=False */
} ls_weight_options;
#define ls_call_variable(call, name, ...)                                                                              \
    ls_call_variable_with(call, name, (ls_weight_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_call_variable_with(ls_call *call, const char *name, ls_weight_options options);

/* clang-format off */
/* Built-in models, by name. Images are float32 from 0 to 1; classifiers end in softmax (a cross-entropy takes the logits
 * before it).
 *     linear          Dense 1 of one number
 *     mlp             28x28x1, flattened, Dense 128 ReLU, Dense 10
 *     mnist-cnn       28x28x1, Conv 16 3x3 ReLU, pool, Conv 32 3x3 ReLU, pool, Dense 10
 *     mnist-cnn-wide  28x28x1, three 3x3 convolutions 64-64-128 with pools and dropout, Dense 2400 ReLU, Dense 10;
 *                     no biases
 *     resnet18        224x224x3, basic blocks 2-2-2-2, Dense 1000
 *     resnet50        224x224x3, bottlenecks 3-4-6-3 with the stride in the 3x3 convolution ("v1.5", as torchvision's),
 *                     Dense 1000 */
/* clang-format on */
typedef struct ls_builtin_options {
    int ls_first;
    ls_shape input;  /* sizes of one sample, in place of those above: LS_SHAPE(32, 32, 3) */
    int64_t classes; /* of a classifier; 0: those above */
} ls_builtin_options;

/* ls_model_builtin(ctx, "resnet18", &model, .input = LS_SHAPE(32, 32, 3), .classes = 10): mnist-cnn takes images of at
 * least 10x10, the other networks of convolutions any; linear and mlp take samples of any axes. */
#define ls_model_builtin(...)                                                                                          \
    ls_model_builtin_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                \
                          (ls_builtin_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) },                           \
                          LS_ARGUMENT_3_(__VA_ARGS__, ))
LS_API ls_status ls_model_builtin_with(ls_context *ctx, const char *name, ls_builtin_options options, ls_model **out);
/* The names of the built-in models, in order; NULL past the last. */
LS_API const char *ls_model_builtin_name(size_t index);

/* What model.to_json() of Keras 3 writes, Sequential or Functional. What we do not honour is an error that names it. */
LS_API ls_status ls_model_from_keras_json(ls_context *ctx, const char *path, ls_model **out);
/* What model.save("FILE.keras") of Keras 3 writes: the model, as from its JSON, with its weights. The optimizer's state
 * is passed over. */
LS_API ls_status ls_model_from_keras(ls_context *ctx, const char *path, ls_model **out);
LS_API void ls_model_destroy(ls_model *model);

/* Layers in the order they were made in, inputs among them; names as the summary has them. Past the last: "". */
LS_API size_t ls_model_layer_count(const ls_model *model);
LS_API const char *ls_model_layer_name(const ls_model *model, size_t index);

/* The layers from `first_layer` to `last_layer`, both included, belong to that device, as with a layer's own .device:
 * built-in models and Keras's files are spread so, too. NULL: from the model's first, to its last layer. Where ranges
 * overlap, the last call counts. Before the model is compiled, predicts or is traced; LS_ERR_STATE after it.
 *     ls_model_set_device(resnet, NULL, "conv3_block4_out", "/gpu:0");
 *     ls_model_set_device(resnet, "conv4_block1_0_conv", NULL, "/gpu:1"); */
LS_API ls_status ls_model_set_device(ls_model *model, const char *first_layer, const char *last_layer,
                                     const char *device);

/* All batch norms of the model normalise by those statistics in training, whatever its layers said; a part of what the
 * job is, so other statistics are other bits. When it may be called: as ls_model_set_device. Not of a custom model,
 * whose function says it. */
LS_API ls_status ls_model_set_norm_statistics(ls_model *model, ls_norm_statistics statistics);
/* How many batch norms of the model have those statistics; frozen ones, which have none, do not count.
 */
LS_API size_t ls_model_norm_count(const ls_model *model, ls_norm_statistics statistics);

LS_API const char *ls_model_name(const ls_model *model);
LS_API ls_graph *ls_model_graph(ls_model *model);
LS_API size_t ls_model_input_count(const ls_model *model);
LS_API size_t ls_model_output_count(const ls_model *model);
LS_API ls_shape ls_model_input_shape(const ls_model *model, size_t input); /* LS_BATCH first */
LS_API ls_dtype ls_model_input_dtype(const ls_model *model, size_t input);
LS_API const char *ls_model_input_name(const ls_model *model, size_t input); /* of the input layer; "" past the last */
LS_API ls_shape ls_model_output_shape(const ls_model *model, size_t output);
/* The name of the layer that made the output; of a custom model "output_1", "output_2", ... */
LS_API const char *ls_model_output_name(const ls_model *model, size_t output);

/* Variables in creation order; names as Keras has them: "conv2d/kernel". Past the last: NULL, "", false. */
LS_API size_t ls_model_variable_count(const ls_model *model);
LS_API ls_tensor *ls_model_variable(const ls_model *model, size_t index);
LS_API const char *ls_model_variable_name(const ls_model *model, size_t index);
LS_API bool ls_model_variable_is_trainable(const ls_model *model, size_t index);
/* Those that are trained, in that order; the list is the model's. For ls_gradients and ls_apply_gradients. */
LS_API ls_tensor *const *ls_model_trainable_variables(ls_model *model, size_t *count);
LS_API int64_t ls_model_parameter_count(const ls_model *model); /* elements of all variables, trainable or not */

/* Starts the model anew with that seed: every variable gets its initial value, and random numbers (dropout) are drawn
 * from their beginning. The same seed gives the same bits anywhere. A model is made with seed 0. */
LS_API ls_status ls_model_initialize(ls_model *model, uint64_t seed);

/* ls_model_trace adds the nodes of one pass over the model to its graph, and gives their outputs. Besides them: the
 * regularisers' loss (NULL: none), and the assignments of moving statistics that belong to a training step. Every trace
 * of a layer draws the same dropout masks in the same run. */
typedef struct ls_trace {
    ls_tensor *regularization; /* a scalar to be added to the loss */
    ls_tensor **updates;       /* free() the array; NULL when there are none */
    size_t update_count;
} ls_trace;
/* inputs: of the model's graph, in the types and, but for axis 0, the shapes of its inputs. trace may be NULL in
 * inference. */
LS_API ls_status ls_model_trace(ls_model *model, ls_tensor *const *inputs, bool training, ls_tensor **outputs,
                                ls_trace *trace);

/* The same for a model with one input and one output, as model(x, training=True): a builder, for use in a step
 * (ls_loop_step_create), which runs the moving statistics' assignments with everything else that it writes. Elsewhere
 * they would be lost: there ls_model_trace is for training. */
LS_API ls_tensor *ls_model_apply(ls_model *model, ls_tensor *x, bool training);

/* As Keras prints it, and below the FLOPs and activation bytes of a sample; free() the text. */
LS_API ls_status ls_model_summary(ls_model *model, char **out);

/* ---- Weights in files ---- */

/* clang-format off */
/* How weights are named and laid out in a file.
 *     Keras's    "conv2d/kernel" [H,W,I,O], "dense/kernel" [in,out], "batch_normalization/moving_mean"
 *     PyTorch's  "conv2d.weight" [O,I,H,W], "dense.weight" [out,in], "batch_normalization.running_mean"
 * PyTorch's names of a residual network with Keras's layer names (resnet18, resnet50) are torchvision's. A dense layer
 * behind a Flatten has its inputs in the order of PyTorch's images, [C,H,W]. */
/* clang-format on */
typedef enum ls_layout {
    LS_LAYOUT_AUTO = 0, /* saving: Keras's; loading: whichever names the file has */
    LS_LAYOUT_KERAS,
    LS_LAYOUT_TORCH,
} ls_layout;

typedef struct ls_weights_options {
    int ls_first;
    ls_layout layout;
    bool dry_run; /* saving: everything but the writing, to know beforehand that it can be done */
} ls_weights_options;

/* The ending of the name is the format: .safetensors, .npz, .weights.h5 (Keras's) or .keras (the model, too);
 * safetensors where it is another, unless that is one of some other format, which is refused, as is a file that is not
 * what its name says. Files by others load, too: F16 and BF16 become float32, PyTorch's num_batches_tracked and Keras's
 * optimizer are passed over. Saving replaces a file when the new one is complete; equal weights give equal files.
 * Loading wants every variable in its shape; what is missing or left over is named, and then no variable has changed. A
 * safetensors file also has the number of training steps, which keys random numbers (dropout): training that goes on
 * does not draw the same ones again.
 *     ls_model_save_weights(model, "model.safetensors", .layout = LS_LAYOUT_TORCH) */
#define ls_model_save_weights(...)                                                                                     \
    ls_model_save_weights_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                           \
                               (ls_weights_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) })
LS_API ls_status ls_model_save_weights_with(const ls_model *model, const char *path, ls_weights_options options);
#define ls_model_load_weights(...)                                                                                     \
    ls_model_load_weights_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                           \
                               (ls_weights_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) })
LS_API ls_status ls_model_load_weights_with(ls_model *model, const char *path, ls_weights_options options);
/* Compares two files of weights, of any formats: names, types, shapes and bits. *equal: no bit differs. The text has a
 * line for each array that differs, with the largest difference and where it is, and a line that sums up; free() it. A
 * NaN equals a NaN of the same bits, and differs from any number by more than numbers can. Files of different layouts
 * are compared as weights of `model`, as loading would read them; the model's own weights do not matter, and stay.
 * model may be NULL: names are then compared as they stand. */
LS_API ls_status ls_weights_diff(const char *a, const char *b, const ls_model *model, bool *equal, char **out);

/* Of all variables: the trainable ones in creation order, then the others; little-endian, without padding. */
LS_API ls_status ls_model_weights_sha256(const ls_model *model, char hex[65]);

/* ---- Schedules: the learning rate of a step, counted from 0 ---- */

/* Formulas are Keras's, computed in double. What is wrong with a schedule is reported by ls_schedule_rate. */

typedef enum ls_schedule_kind {
    LS_SCHEDULE_CONSTANT = 0,
    LS_SCHEDULE_EXPONENTIAL, /* rate * decay ^ (step / steps), staircase: floor of the exponent */
    LS_SCHEDULE_COSINE,      /* warm-up from `from` to `rate` in `warmup` steps, then cosine to alpha * rate in `steps`:
                              * CosineDecay(from, steps, alpha, warmup_target=rate, warmup_steps=warmup) */
    LS_SCHEDULE_PIECEWISE,   /* values[i] up to and including step boundaries[i], the last value after them */
    LS_SCHEDULE_BY_BATCH,    /* values[i] for the batch size boundaries[i] */
} ls_schedule_kind;

#define LS_SCHEDULE_POINTS 16
typedef struct ls_schedule {
    ls_schedule_kind kind;
    double rate, decay, alpha, from;
    int64_t steps, warmup;
    bool staircase;
    int count; /* of values; a piecewise schedule has one boundary less */
    int64_t boundaries[LS_SCHEDULE_POINTS];
    double values[LS_SCHEDULE_POINTS];
} ls_schedule;

LS_API ls_schedule ls_exponential_decay(double rate, int64_t steps, double decay, bool staircase);
LS_API ls_schedule ls_cosine_decay(double rate, int64_t steps, double alpha, double warmup_from, int64_t warmup_steps);
LS_API ls_schedule ls_piecewise_decay(const int64_t *boundaries, const double *values, int values_count);
LS_API ls_schedule ls_rates_by_batch_size(const int64_t *batch_sizes, const double *rates, int count);
/* batch_size is looked at by a table by batch size alone; one that it does not know is an error. */
LS_API ls_status ls_schedule_rate(const ls_schedule *schedule, int64_t step, int64_t batch_size, double *out);

/* ---- Optimizers ---- */

typedef enum ls_optimizer_kind {
    LS_OPTIMIZER_NONE = 0,
    LS_OPTIMIZER_SGD,         /* learning rate 0.01; slot momentum, if there is one */
    LS_OPTIMIZER_ADAM,        /* 0.001; slots momentum, velocity */
    LS_OPTIMIZER_ADAMW,       /* Adam with a weight decay of 0.004 */
    LS_OPTIMIZER_RMSPROP,     /* 0.001; slots velocity and, if there is one, momentum */
    LS_OPTIMIZER_RMSPROP_TF1, /* TensorFlow 1's: the learning rate must be given, velocity starts at 1, epsilon 1e-10 */
    LS_OPTIMIZER_ADAGRAD,     /* 0.001; slot accumulator */
} ls_optimizer_kind;

/* An option that a kind does not have is an error, and so are two that contradict each other. */
typedef struct ls_optimizer_options {
    int ls_first;
    double learning_rate; /* 0: the optimizer's own default, Keras's; LS_ZERO: 0. ls_fit prints the rate it uses */
    ls_schedule schedule; /* where its kind is not constant, instead of learning_rate */
    double momentum;
    bool nesterov;                       /* SGD, with a momentum */
    double beta_1, beta_2, rho, epsilon; /* 0: 0.9, 0.999, 0.9, 1e-7; LS_ZERO: 0 */
    double weight_decay;                 /* decoupled, before the update; AdamW: 0: 0.004, LS_ZERO: none */
    /* One of them at most; 0: none. Norms are of the joined gradients, over the whole batch, summed in double. */
    double clipvalue, clipnorm, global_clipnorm;
    /* One update for that many runs; 0: 1. The other runs only add to sums: they change no weight, no slot and not the
     * step. The update is made from the mean over all samples of those runs. For a loss that is a mean over its batch
     * this is the update of one big batch, whatever the sizes of the parts. (Keras takes the mean of the batches'
     * means, which is the same when all batches have one size.) */
    int64_t gradient_accumulation_steps;
    double initial_accumulator_value; /* Adagrad: 0: 0.1; LS_ZERO: 0 */
    const char *name;                 /* of its state, see ls_apply_gradients; NULL: "adam", "adam_1", ... */
} ls_optimizer_options;

typedef struct ls_optimizer {
    ls_optimizer_kind kind;
    ls_optimizer_options options;
} ls_optimizer;

#define ls_sgd(...)     ((ls_optimizer){ .kind = LS_OPTIMIZER_SGD, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_adam(...)    ((ls_optimizer){ .kind = LS_OPTIMIZER_ADAM, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_adamw(...)   ((ls_optimizer){ .kind = LS_OPTIMIZER_ADAMW, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_rmsprop(...) ((ls_optimizer){ .kind = LS_OPTIMIZER_RMSPROP, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_rmsprop_tf1(...)                                                                                            \
    ((ls_optimizer){ .kind = LS_OPTIMIZER_RMSPROP_TF1, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_adagrad(...) ((ls_optimizer){ .kind = LS_OPTIMIZER_ADAGRAD, .options = { .ls_first = 0, __VA_ARGS__ } })

LS_API const char *ls_optimizer_name(const ls_optimizer *optimizer);
/* The learning rate of a step: the schedule's, or the constant one. */
LS_API ls_status ls_optimizer_rate(const ls_optimizer *optimizer, int64_t step, int64_t batch_size, double *out);

/* clang-format off */
/* The update of all variables from their gradients, as one tensor to be fetched.
 *
 * The optimizer's state is kept in variables of the graph that are not trained, made in this order:
 *     adam/<variable>/momentum, ...               for each variable, its slots
 *     adam/<variable>/gradient_accumulator        for each variable, with accumulation
 *     adam/accumulated_batches                    with accumulation
 *     adam/accumulated_samples                    with accumulation
 *     adam/iterations                             i64: updates made
 * With global_clipnorm the norm before clipping is a tensor named adam/global_norm (f64).
 *
 * An optimizer with a name goes on with the state of that name, if the graph has it: one optimizer can be applied in
 * several tensors, of which a run fetches one. Without a name each call has its own state.
 *
 * learning_rate: a scalar (f32). NULL: the constant rate of the spec; where that has a schedule, an input named
 * adam/learning_rate is made, to be fed with what ls_optimizer_rate gives. A gradient that is NULL (the loss does not
 * depend on the variable) leaves its variable as it is, with a warning. */
/* clang-format on */
LS_API ls_tensor *ls_apply_gradients(ls_optimizer optimizer, ls_tensor *const *gradients, ls_tensor *const *variables,
                                     size_t count, ls_tensor *learning_rate);
/* Gradients of the loss by every trainable variable of the graph it depends on, and their update, named `name` (or
 * NULL). */
LS_API ls_tensor *ls_minimize(ls_optimizer optimizer, ls_tensor *loss, const char *name);

/* ---- Losses: one value for each sample, and how these are reduced ---- */

typedef enum ls_loss_kind {
    LS_LOSS_NONE = 0,
    LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY,
    LS_LOSS_CATEGORICAL_CROSSENTROPY,
    LS_LOSS_BINARY_CROSSENTROPY,
    LS_LOSS_MEAN_SQUARED_ERROR,
    LS_LOSS_MEAN_ABSOLUTE_ERROR,
    LS_LOSS_HUBER,
    LS_LOSS_CUSTOM,
} ls_loss_kind;

typedef enum ls_reduction { LS_REDUCE_MEAN = 0, LS_REDUCE_SUM, LS_REDUCE_NONE } ls_reduction; /* over the batch */

/* A loss of the user's own, as a function of tensors: it gives one value for each sample, [N]; values for further axes
 * are averaged. Targets and predictions come as the data and the model have them (ls_op_cast, ls_op_reshape). It is
 * called when a step is traced, never while one runs; gradients are found by themselves. */
typedef ls_tensor *(*ls_loss_function)(ls_tensor *targets, ls_tensor *predictions, void *user);

typedef struct ls_loss_options {
    int ls_first;
    bool from_logits; /* of a cross-entropy */
    ls_reduction reduction;
    double delta; /* Huber: 0: 1 */
    int ls_first_function;
    ls_loss_function function; /* of a custom loss, with what it is given, and the loss's name; NULL: "loss" */
    void *user;
    const char *name;
} ls_loss_options;

typedef struct ls_loss {
    ls_loss_kind kind;
    ls_loss_options options;
} ls_loss;

#define ls_sparse_categorical_crossentropy(...)                                                                        \
    ((ls_loss){ .kind = LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_categorical_crossentropy(...)                                                                               \
    ((ls_loss){ .kind = LS_LOSS_CATEGORICAL_CROSSENTROPY, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_binary_crossentropy(...)                                                                                    \
    ((ls_loss){ .kind = LS_LOSS_BINARY_CROSSENTROPY, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_mean_squared_error(...)                                                                                     \
    ((ls_loss){ .kind = LS_LOSS_MEAN_SQUARED_ERROR, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_mean_absolute_error(...)                                                                                    \
    ((ls_loss){ .kind = LS_LOSS_MEAN_ABSOLUTE_ERROR, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_huber(...) ((ls_loss){ .kind = LS_LOSS_HUBER, .options = { .ls_first = 0, __VA_ARGS__ } })
/* ls_custom_loss(function, user, "name"); user and name may be left out */
#define ls_custom_loss(...) ((ls_loss){ .kind = LS_LOSS_CUSTOM, .options = { .ls_first_function = 0, __VA_ARGS__ } })

LS_API const char *ls_loss_name(const ls_loss *loss); /* Keras's: "mean_squared_error" */

/* One value a sample: [batch]. Axes beside the batch's and the classes' are averaged (Keras gives a value for each of
 * their elements; a mean over the batch is the same, a sum is theirs divided by the number of those elements). Axis 0
 * is that of the samples, in whole tensors too. Targets are taken as Keras takes them: of any type; labels of a sparse
 * loss as [N] or [N,1]; elsewhere [N] against [N,1] either way. Other shapes must be equal: nothing is broadcast. */
LS_API ls_tensor *ls_loss_per_sample(ls_loss loss, ls_tensor *targets, ls_tensor *predictions);
/* The values of all samples, reduced as the spec says. weights may be NULL, or one number for each sample ([N], [N,1]
 * or a scalar, of any type). A mean is the sum over samples divided once by their number, on any number of devices;
 * with weights, too, it is divided by the number of samples, not by the sum of weights, as Keras's sum_over_batch_size.
 */
LS_API ls_tensor *ls_loss_value(ls_loss loss, ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights);

/* The sum of all values divided by the size of a whole batch, as tf.nn.compute_average_loss: a smaller batch at the end
 * of the data counts for less. */
LS_API ls_tensor *ls_average_loss(ls_tensor *values, int64_t global_batch_size);

/* ---- Metrics: a fixed vector of sums over samples, and a result ---- */

#define LS_AUC_THRESHOLDS 200

typedef enum ls_metric_kind {
    LS_METRIC_NONE = 0,
    LS_METRIC_ACCURACY, /* binary, categorical or sparse, by the shapes of targets and predictions */
    LS_METRIC_BINARY_ACCURACY,
    LS_METRIC_CATEGORICAL_ACCURACY,
    LS_METRIC_SPARSE_CATEGORICAL_ACCURACY,
    LS_METRIC_TOP_K, /* k: 0: 5; categorical or sparse, by the shapes; of equal scores at place k all are in */
    LS_METRIC_MEAN,  /* of the predictions; there are no targets (NULL) */
    LS_METRIC_MEAN_SQUARED_ERROR,
    LS_METRIC_MEAN_ABSOLUTE_ERROR,
    LS_METRIC_PRECISION,
    LS_METRIC_RECALL,
    LS_METRIC_AUC, /* under the ROC curve, by 200 thresholds and trapezoids */
    LS_METRIC_CUSTOM,
} ls_metric_kind;

/* A metric of the user's own: a value for each sample, as in ls_loss_function; the result is their mean. */
typedef ls_tensor *(*ls_metric_function)(ls_tensor *targets, ls_tensor *predictions, void *user);

typedef struct ls_metric {
    ls_metric_kind kind;
    int64_t k;
    double threshold; /* of binary accuracy, precision and recall; 0: 0.5, LS_ZERO: 0 */
    int ls_first;
    ls_metric_function function; /* of a custom metric, with what it is given */
    void *user;
    const char *name; /* NULL: Keras's: "accuracy", "top_k_categorical_accuracy", ... */
} ls_metric;

#define ls_accuracy()             ((ls_metric){ .kind = LS_METRIC_ACCURACY })
#define ls_top_k(places)          ((ls_metric){ .kind = LS_METRIC_TOP_K, .k = places })
#define ls_metric_of(metric_kind) ((ls_metric){ .kind = metric_kind })
/* ls_custom_metric(function, user, "name"); user and name may be left out */
#define ls_custom_metric(...) ((ls_metric){ .kind = LS_METRIC_CUSTOM, .ls_first = 0, __VA_ARGS__ })

#define LS_MAX_METRICS 16
typedef struct ls_metrics_list {
    size_t count;
    ls_metric metric[LS_MAX_METRICS];
} ls_metrics_list;
#define ls_metrics(...)                                                                                                \
    ((ls_metrics_list){ .count = sizeof((const ls_metric[]){ __VA_ARGS__ }) / sizeof(ls_metric),                       \
                        .metric = { __VA_ARGS__ } })

LS_API const char *ls_metric_name(const ls_metric *metric);
/* A vector of sums over the samples of the batch (f64, joined once a step); result: what it means. Sums of several
 * batches are added element by element before the result is taken. Targets, weights and shapes as for losses; a mean is
 * the sum of weight * value over the sum of weights, and 0 where that is 0. */
LS_API ls_tensor *ls_metric_sums(ls_metric metric, ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights);
LS_API size_t ls_metric_sums_count(const ls_metric *metric);
LS_API double ls_metric_result(const ls_metric *metric, const double *sums);

/* A metric that is kept up to date: fetching `update` together with a step adds the step's batch to the variable
 * `sums`; the result is that of all batches since the last reset. Errors are error tensors, reported by what runs or
 * reads them. */
typedef struct ls_metric_state {
    ls_metric metric;
    ls_tensor *update, *sums; /* update: of ls_metric_state_of; else NULL */
} ls_metric_state;
LS_API ls_metric_state ls_metric_state_of(ls_metric metric, ls_tensor *targets, ls_tensor *predictions,
                                          ls_tensor *weights);
/* In two parts: the sums first, and then any number of updates, as Keras's update_state. A step runs those that are
 * made in it. */
LS_API ls_metric_state ls_metric_state_make(ls_graph *graph, ls_metric metric);
LS_API ls_tensor *ls_metric_state_update(const ls_metric_state *state, ls_tensor *targets, ls_tensor *predictions,
                                         ls_tensor *weights);
LS_API ls_status ls_metric_state_result(const ls_metric_state *state, double *out);
LS_API ls_status ls_metric_state_reset(const ls_metric_state *state);

#ifdef __cplusplus
}
#endif
#endif
