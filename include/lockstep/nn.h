/* lockstep/nn.h: models, losses, metrics, optimizers and schedules; includes layer.h.
 *
 * Losses, metrics, optimizers and schedules are *specs* like layers: plain structs passed by value,
 * which need no freeing and cannot fail. Names, options, defaults and meanings are Keras's.
 * Errors in a spec are reported when a model is made or compiled with it. */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include "lockstep/data.h"
#include "lockstep/layer.h"
#include "lockstep/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Models ---- */

/* A model owns a graph with its variables, which have their initial values from the start. The
 * graph has no other nodes until the model is traced. */
typedef struct ls_model ls_model;

/* Makes a model of a stack of layers, which the caller destroys: ls_sequential(ctx, "cnn", &cnn,
 * ls_input(28, 28, 1), ls_conv2d(16, 3, .activation = LS_RELU), ...) */
#define ls_sequential(ctx, name, out, ...)                                                                             \
    ls_sequential_with(ctx, name, (const ls_layer[]){ __VA_ARGS__ },                                                   \
                       sizeof((const ls_layer[]){ __VA_ARGS__ }) / sizeof(ls_layer), out)
LS_API ls_status ls_sequential_with(ls_context *ctx, const char *name, const ls_layer *layers, size_t count,
                                    ls_model **out);

/* clang-format off */
/* Functional models call layers on symbols:
 *     ls_functional_begin(ctx, "net", &model);
 *     ls_symbol a = ls_symbol_input(model, ls_input(8, .name = "a"));
 *     ls_symbol b = ls_symbol_call(model, ls_dense(8, .activation = LS_RELU), a);
 *     ls_symbol c = ls_symbol_call(model, ls_add(), b, a);
 *     ls_functional_end(model, c);
 * Pass several outputs as ls_functional_end(model, b, c). A wrong call, or a call on its
 * result, returns an error symbol; ls_functional_end reports the first error. The model
 * can be used after ls_functional_end. The caller destroys it, also if ls_functional_end
 * fails or is never called. */
/* clang-format on */
typedef struct ls_symbol {
    ls_model *model;
    int index; /* -1: an error */
} ls_symbol;

#define LS_SYMBOLS_(...)                                                                                               \
    (const ls_symbol[]){ __VA_ARGS__ }, sizeof((const ls_symbol[]){ __VA_ARGS__ }) / sizeof(ls_symbol)
/* Begins a functional model, which the caller destroys. */
LS_API ls_status ls_functional_begin(ls_context *ctx, const char *name, ls_model **out);
/* Adds an input, made by ls_input. */
LS_API ls_symbol ls_symbol_input(ls_model *model, ls_layer input);
/* Adds a layer and calls it on one or several symbols. */
#define ls_symbol_call(model, layer, ...) ls_symbol_call_with(model, layer, LS_SYMBOLS_(__VA_ARGS__))
LS_API ls_symbol ls_symbol_call_with(ls_model *model, ls_layer layer, const ls_symbol *inputs, size_t count);
/* Calls the layer that made `symbol` again on other inputs, with the same weights. */
#define ls_symbol_share(symbol, ...) ls_symbol_share_with(symbol, LS_SYMBOLS_(__VA_ARGS__))
LS_API ls_symbol ls_symbol_share_with(ls_symbol symbol, const ls_symbol *inputs, size_t count);
/* Returns output `output` (from 0) of a call of a model with several outputs; `symbol` is any of
 * them, such as the first, which ls_symbol_call returns. */
LS_API ls_symbol ls_symbol_output(ls_symbol symbol, size_t output);
/* Copies the layers of a finished model that lead to the output of its layer `layer`, with their
 * names and weights, into the functional model that is being built, and returns this output. The
 * inputs among them become inputs of the model. Several layers of one model share what they need:
 *     ls_symbol features = ls_symbol_from(model, resnet, "avg_pool");
 *     ls_symbol classes = ls_symbol_call(model, ls_dense(5, .activation = LS_SOFTMAX), features);
 *     ls_functional_end(model, classes); */
LS_API ls_symbol ls_symbol_from(ls_model *model, ls_model *source, const char *layer);
/* Ends the model with its outputs; returns the first error of its calls. */
#define ls_functional_end(model, ...) ls_functional_end_with(model, LS_SYMBOLS_(__VA_ARGS__))
LS_API ls_status ls_functional_end_with(ls_model *model, const ls_symbol *outputs, size_t count);

/* clang-format off */
/* A model can be a layer of another one, in Sequential, Functional and custom models:
 *     ls_symbol y = ls_symbol_call(model, ls_nested(encoder), x);
 *     ls_symbol z = ls_symbol_share(y, other);
 *     ls_sequential(ctx, "net", &net, ls_nested(backbone, .frozen = true), ls_dense(5));
 * The new model gets a copy of the layers and of the weights; the nested model does not change
 * and can be destroyed (for a custom model: after it). Its layers are named "encoder/dense", its
 * weights "encoder/dense/kernel". .frozen freezes all of them. */
/* clang-format on */

/* A custom model is a C function that calls layers and ls_op_..., like `call` of a subclassed
 * Keras model. It is called when the model is made, on a temporary graph, and for every trace, so
 * make constants in ls_tensor_graph(inputs[0]). Layers with equal names are the same layer, also
 * in later calls. Layers without a name are counted in the order of calls ("conv2d", "conv2d_1"),
 * so this order must not change. The caller destroys the model. */
typedef struct ls_call ls_call;
typedef void (*ls_call_function)(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user);
LS_API ls_status ls_custom(ls_context *ctx, const char *name, const ls_layer *inputs, size_t input_count,
                           size_t output_count, ls_call_function function, void *user, ls_model **out);
/* Call a layer on one or several tensors; for use in such a function. */
LS_API ls_tensor *ls_layer_call(ls_call *call, ls_layer layer, ls_tensor *x);
LS_API ls_tensor *ls_layer_call_many(ls_call *call, ls_layer layer, ls_tensor *const *inputs, size_t count);
/* Returns whether this trace is for training. */
LS_API bool ls_call_is_training(const ls_call *call);

/* Returns a weight of the model's own, as Keras's add_weight: a float32 variable that is
 * trained, saved, loaded and hashed like the weights of layers. Equal names return the same
 * weight, in one call of the function and in later ones.
 *     ls_tensor *scale = ls_call_variable(call, "scale", LS_SHAPE(10),
 *                                         .initializer = { .kind = LS_INIT_ONES }); */
typedef struct ls_weight_options {
    int ls_first;
    ls_shape shape;
    ls_initializer initializer; /* default: Glorot uniform */
    ls_regularizer regularizer;
    ls_constraint constraint;
    bool frozen; /* Keras: trainable=False */
} ls_weight_options;
#define ls_call_variable(call, name, ...)                                                                              \
    ls_call_variable_with(call, name, (ls_weight_options){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_call_variable_with(ls_call *call, const char *name, ls_weight_options options);

/* ---- Layers of one's own, by Keras's class name ---- */

/* The config of a layer. Getters fail if the key is absent or its value has another type;
 * strings are valid until the function returns. */
typedef struct ls_layer_config ls_layer_config;
LS_API ls_status ls_config_number(const ls_layer_config *config, const char *key, double *out);
LS_API ls_status ls_config_integer(const ls_layer_config *config, const char *key, int64_t *out);
LS_API ls_status ls_config_bool(const ls_layer_config *config, const char *key, bool *out);
LS_API ls_status ls_config_string(const ls_layer_config *config, const char *key, const char **out);

#define LS_MAX_LAYER_WEIGHTS 4
typedef struct ls_layer_weight {
    const char *name; /* "kernel"; a string literal, or another that stays valid */
    ls_weight_options options;
} ls_layer_weight;

typedef struct ls_layer_definition {
    /* Keys of the config that the functions read, ending with NULL; any other key is an error */
    const char *const *keys;
    /* Lists the weights for an input of this shape (axis 0 is the batch) in the order of Keras's
     * file; `out` has room for LS_MAX_LAYER_WEIGHTS (default NULL: none) */
    ls_status (*weights)(const ls_layer_config *config, const ls_shape *input, ls_layer_weight *out, size_t *count,
                         void *user);
    /* Returns the output of a call, made of ls_op_...; an error tensor fails the model with its
     * message. Called for every trace */
    ls_tensor *(*call)(const ls_layer_config *config, ls_tensor *const *inputs, size_t input_count,
                       ls_tensor *const *weights, bool training, void *user);
    bool many_inputs; /* takes several inputs (default false) */
    void *user;       /* passed to the functions; must stay valid as long as the process */
} ls_layer_definition;
/* Registers a layer for all models that the process reads or makes from now on, under the
 * registered_name of Keras's JSON ("MyPackage>Scale"), or its class_name ("Scale"). A class can be
 * registered once. */
LS_API ls_status ls_register_layer(const char *class_name, ls_layer_definition definition);

/* clang-format off */
/* Built-in models. Images are float32 from 0 to 1. Classifiers end in softmax (a cross-entropy
 * uses the logits before it).
 *     linear          Dense 1 of one number
 *     mlp             28x28x1, flattened, Dense 128 ReLU, Dense 10
 *     mnist-cnn       28x28x1, Conv 16 3x3 ReLU, pool, Conv 32 3x3 ReLU, pool, Dense 10
 *     mnist-cnn-wide  28x28x1, three 3x3 convolutions 64-64-128 with pools and dropout,
 *                     Dense 2400 ReLU, Dense 10; no biases
 * and the networks of torchvision.models under its names, for 1000 classes, of 224x224x3 except
 * where another size is given. torchvision's weights give its predictions:
 *     resnet18, resnet34, resnet50, resnet101, resnet152
 *     vgg11, vgg13, vgg16, vgg19
 *     mobilenet_v2
 *     densenet121, densenet169, densenet201
 *     efficientnet_b0, efficientnet_b1 (240x240), efficientnet_b2 (288x288),
 *     efficientnet_b3 (300x300), efficientnet_b4 (380x380)
 *     convnext_tiny, convnext_small, convnext_base
 * Layers with weights have torchvision's names ("features.0.0"); residual networks have Keras's
 * ("conv2_block1_1_conv"). */
/* clang-format on */
typedef struct ls_builtin_options {
    int ls_first;
    ls_shape input;  /* sizes of one sample (default: as above): LS_SHAPE(32, 32, 3) */
    int64_t classes; /* number of classes of a classifier (default: as above) */
} ls_builtin_options;

/* Makes a built-in model, which the caller destroys: ls_model_builtin(ctx, "resnet18", &model,
 * .input = LS_SHAPE(32, 32, 3), .classes = 10). mnist-cnn needs images of at least 10x10, densenet
 * 29x29, vgg and convnext 32x32; vgg pools to 7x7, for which not every size will do. Other
 * convolutional networks accept any size, and linear and mlp any axes. */
#define ls_model_builtin(...)                                                                                          \
    ls_model_builtin_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                                \
                          (ls_builtin_options){ .ls_first = 0, LS_AFTER_3_(__VA_ARGS__, ) },                           \
                          LS_ARGUMENT_3_(__VA_ARGS__, ))
LS_API ls_status ls_model_builtin_with(ls_context *ctx, const char *name, ls_builtin_options options, ls_model **out);
/* Returns the name of a built-in model; NULL after the last. */
LS_API const char *ls_model_builtin_name(size_t index);

/* Makes a model from the JSON of Keras 3's model.to_json(), Sequential or Functional. An
 * unsupported feature is an error that names it. The caller destroys the model. */
LS_API ls_status ls_model_from_keras_json(ls_context *ctx, const char *path, ls_model **out);
/* Makes a model with its weights from a file of Keras 3's model.save("FILE.keras"). Ignores the
 * state of the optimizer. The caller destroys the model. */
LS_API ls_status ls_model_from_keras(ls_context *ctx, const char *path, ls_model **out);
/* Destroys a model with its graph. */
LS_API void ls_model_destroy(ls_model *model);

/* Return the number of layers and their names, in the order they were made, with
 * inputs; "" after the last. */
LS_API size_t ls_model_layer_count(const ls_model *model);
LS_API const char *ls_model_layer_name(const ls_model *model, size_t index);

/* Makes a functional model of the layers and weights of a finished one, except that its last layer,
 * which must be Dense, has `units` units and initial weights. The caller destroys both models. */
LS_API ls_status ls_model_replace_head(ls_model *model, int64_t units, ls_model **out);
/* Freezes (false) or unfreezes the layers whose names match a pattern, in which * matches any
 * characters and ? one: ls_model_set_trainable(model, "conv5_*", false). A nested model that
 * matches stands for all of its layers. Fails with LS_ERR_NOT_FOUND if no layer matches, and at
 * the same times as ls_model_set_device. */
LS_API ls_status ls_model_set_trainable(ls_model *model, const char *pattern, bool trainable);
/* Multiplies the learning rate of the layers whose names match a pattern, as for
 * ls_model_set_trainable: ls_model_set_rate(model, "conv5_*", 0.1). If patterns overlap, the last
 * call counts. Every optimizer then uses rate * factor for their variables, also with a schedule
 * and in a weight decay that is multiplied by the rate, as PyTorch's parameter groups do. The
 * factor must be positive and finite: freeze layers that must not change. Copies of a layer have
 * its factor; files of the model do not. Asynchronous parameter servers refuse it. */
LS_API ls_status ls_model_set_rate(ls_model *model, const char *pattern, double factor);

/* Places the layers from `first_layer` to `last_layer`, inclusive, on a device, like .device of
 * a layer. NULL: the model's first or last layer. If ranges overlap, the last call counts.
 * Returns LS_ERR_STATE once the model has been compiled, traced or used to predict.
 *     ls_model_set_device(resnet, NULL, "conv3_block4_out", "/gpu:0");
 *     ls_model_set_device(resnet, "conv4_block1_0_conv", NULL, "/gpu:1"); */
LS_API ls_status ls_model_set_device(ls_model *model, const char *first_layer, const char *last_layer,
                                     const char *device);

/* Sets the statistics of all batch norms of the model in training, overriding its layers; this
 * changes the bits of results. Returns LS_ERR_STATE at the same times as ls_model_set_device.
 * Unsupported for custom models, whose function sets the statistics. */
LS_API ls_status ls_model_set_norm_statistics(ls_model *model, ls_norm_statistics statistics);
/* Returns the number of batch norms with those statistics, without frozen ones. */
LS_API size_t ls_model_norm_count(const ls_model *model, ls_norm_statistics statistics);

/* Queries; strings and the graph belong to the model. */
LS_API const char *ls_model_name(const ls_model *model);
LS_API ls_graph *ls_model_graph(ls_model *model);
LS_API size_t ls_model_input_count(const ls_model *model);
LS_API size_t ls_model_output_count(const ls_model *model);
/* Returns the shape of an input, LS_BATCH first. */
LS_API ls_shape ls_model_input_shape(const ls_model *model, size_t input);
LS_API ls_dtype ls_model_input_dtype(const ls_model *model, size_t input);
/* Returns the name of an input layer; "" after the last. */
LS_API const char *ls_model_input_name(const ls_model *model, size_t input);
LS_API ls_shape ls_model_output_shape(const ls_model *model, size_t output);
/* Returns the name of the layer that made the output; for a custom model
 * "output_1", "output_2", ... */
LS_API const char *ls_model_output_name(const ls_model *model, size_t output);

/* Return variables in creation order, with Keras's names: "conv2d/kernel". After the last: NULL,
 * "", false. The model owns them. */
LS_API size_t ls_model_variable_count(const ls_model *model);
LS_API ls_tensor *ls_model_variable(const ls_model *model, size_t index);
LS_API const char *ls_model_variable_name(const ls_model *model, size_t index);
LS_API bool ls_model_variable_is_trainable(const ls_model *model, size_t index);
/* Returns the trainable variables in creation order, for ls_gradients and ls_apply_gradients.
 * The model owns the list. */
LS_API ls_tensor *const *ls_model_trainable_variables(ls_model *model, size_t *count);
/* Returns the number of elements of all variables, trainable or not. */
LS_API int64_t ls_model_parameter_count(const ls_model *model);

/* Resets the model with a seed: all variables get their initial values, and random
 * numbers (dropout) start from the beginning. Equal seeds give equal bits
 * everywhere. New models have seed 0. */
LS_API ls_status ls_model_initialize(ls_model *model, uint64_t seed);

/* Computes mean and variance of the Normalization layers that are called on an input of the
 * model, from one pass over a dataset of samples or batches; component i belongs to input i.
 * Layers with a given mean keep it. Equal data in equal order gives equal bits: every worker of
 * a cluster calls it with the whole dataset. The caller keeps the dataset. */
LS_API ls_status ls_model_adapt(ls_model *model, ls_dataset *data);

/* Results of ls_model_trace in addition to the outputs. Every trace of a layer draws the same
 * dropout masks in the same run. */
typedef struct ls_trace {
    ls_tensor *regularization; /* scalar to add to the loss; NULL: none */
    /* Assignments of moving statistics, which must run with a training step; NULL: none.
     * The caller frees the array. */
    ls_tensor **updates;
    size_t update_count;
} ls_trace;
/* Adds the nodes of one pass over the model to its graph and returns their outputs. inputs:
 * tensors of the model's graph with the types and, except for axis 0, the shapes of its inputs.
 * trace may be NULL for inference. */
LS_API ls_status ls_model_trace(ls_model *model, ls_tensor *const *inputs, bool training, ls_tensor **outputs,
                                ls_trace *trace);

/* Traces a model with one input and one output, like model(x, training=True). This is a builder
 * for a step (ls_loop_step_create), which also runs the assignments of moving statistics.
 * Outside a step they would be lost: use ls_model_trace for training there. */
LS_API ls_tensor *ls_model_apply(ls_model *model, ls_tensor *x, bool training);

/* clang-format off */
/* Moves a model to the graph of another, so that one step can use both, as a GAN needs:
 *     ls_model_join(discriminator, generator);
 *     static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
 *     {
 *         ls_tensor *fake = ls_model_apply(generator, noise, true);
 *         ls_tensor *on_real = ls_model_apply(discriminator, inputs[0], true);
 *         ls_tensor *on_fake = ls_model_apply(discriminator, fake, true);
 *         ...
 *         ls_model_minimize(discriminator, ls_adam(), d_loss);
 *         ls_model_minimize(generator, ls_adam(), g_loss);
 *     }
 * Both remain models of their own: layers, names and files of weights do not change. In the graph
 * the names of the first model's variables begin with its name ("discriminator/dense/kernel").
 * ls_model_graph of both returns the graph of `other`, which also has the strategy, the seed and
 * the number of steps. Both can predict; one of them can be compiled, and then the other cannot
 * predict. Trace steps before that. Call it before the model is traced or compiled. The models may
 * be destroyed in any order; the graph ends with the last. */
/* clang-format on */
LS_API ls_status ls_model_join(ls_model *model, ls_model *other);

/* Returns Keras's summary, followed by the FLOPs and activation bytes of a sample.
 * The caller frees the text. */
LS_API ls_status ls_model_summary(ls_model *model, char **out);

/* ---- Weight files ---- */

/* clang-format off */
/* Names and layouts of weights in a file.
 *     Keras    "conv2d/kernel" [H,W,I,O], "dense/kernel" [in,out],
 *              "batch_normalization/moving_mean"
 *     PyTorch  "conv2d.weight" [O,I,H,W], "dense.weight" [out,in],
 *              "batch_normalization.running_mean"
 * Residual networks with Keras's layer names (resnet18, ...) get torchvision's names. A
 * dense layer after a Flatten has its inputs in the order of PyTorch's images, [C,H,W]. */
/* clang-format on */
typedef enum ls_layout {
    LS_LAYOUT_AUTO = 0, /* saving: Keras's; loading: detected from the names in the file */
    LS_LAYOUT_KERAS,
    LS_LAYOUT_TORCH,
} ls_layout;

typedef struct ls_weights_options {
    int ls_first;
    ls_layout layout; /* names and layouts (default LS_LAYOUT_AUTO) */
    bool dry_run;     /* saving: checks everything but writes nothing (default false) */
    /* loading: load what fits in name, shape and type, and leave the other variables as they are;
     * at least one must fit (default false) */
    bool skip_mismatch;
    /* loading with skip_mismatch: receives a line for each variable that was not loaded and each
     * array that was not used, or NULL if there are none; the caller frees it (default NULL) */
    char **skipped;
} ls_weights_options;

/* The suffix of a weight file selects its format: .safetensors, .npz, .weights.h5 (Keras's) or
 * .keras (with the model); a suffix that belongs to no known format means safetensors. A suffix
 * of an unsupported format, or contents that do not match the suffix, are errors. A safetensors
 * file also has the number of training steps, which seeds random numbers (dropout), so that
 * continued training draws new ones. */

/* Saves weights: ls_model_save_weights(model, "model.safetensors", .layout = LS_LAYOUT_TORCH).
 * Replaces a file when the new one is complete. Equal weights give equal files. */
#define ls_model_save_weights(...)                                                                                     \
    ls_model_save_weights_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                           \
                               (ls_weights_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) })
LS_API ls_status ls_model_save_weights_with(const ls_model *model, const char *path, ls_weights_options options);
/* Loads weights. Every variable must be in the file in its shape: if one is missing, or an array
 * is left over, the error names it and no variable changes. F16 and BF16 become float32;
 * PyTorch's num_batches_tracked and Keras's optimizer are ignored. */
#define ls_model_load_weights(...)                                                                                     \
    ls_model_load_weights_with(LS_ARGUMENT_1_(__VA_ARGS__, ), LS_ARGUMENT_2_(__VA_ARGS__, ),                           \
                               (ls_weights_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) })
LS_API ls_status ls_model_load_weights_with(ls_model *model, const char *path, ls_weights_options options);
/* Compares two weight files of any formats: names, types, shapes and bits. Sets *equal if no bit
 * differs; a NaN equals only a NaN of the same bits. The text, which the caller frees, has a line
 * for each array that differs, with the largest difference and its position, and a summary. Files
 * of different layouts are compared as weights of `model`, which does not change; NULL: names are
 * compared as they are. */
LS_API ls_status ls_weights_diff(const char *a, const char *b, const ls_model *model, bool *equal, char **out);

/* Returns the SHA-256 of all variables: the trainable ones in creation order, then the others;
 * little-endian, without padding. */
LS_API ls_status ls_model_weights_sha256(const ls_model *model, char hex[65]);

/* ---- Schedules: the learning rate of a step, counted from 0 ---- */

/* Formulas are Keras's, computed in double. ls_schedule_rate reports errors in a schedule. */
typedef enum ls_schedule_kind {
    LS_SCHEDULE_CONSTANT = 0,
    LS_SCHEDULE_EXPONENTIAL, /* rate * decay ^ (step / steps); staircase: floor of the exponent */
    /* Warm-up from `from` to `rate` in `warmup` steps, then cosine to alpha * rate in `steps`:
     * CosineDecay(from, steps, alpha, warmup_target=rate, warmup_steps=warmup). */
    LS_SCHEDULE_COSINE,
    /* values[i] up to and including step boundaries[i], then the last value */
    LS_SCHEDULE_PIECEWISE,
    LS_SCHEDULE_BY_BATCH, /* values[i] for the batch size boundaries[i] */
    /* (rate - end) * (1 - step / steps) ^ power + end, and `end` after `steps`; cycle: steps grows
     * to the next multiple that is not below the step */
    LS_SCHEDULE_POLYNOMIAL,
    LS_SCHEDULE_INVERSE_TIME, /* rate / (1 + decay * step / steps); staircase: floor of step / steps */
    /* Cosine to alpha * rate, again and again: each period has t_mul times the steps and m_mul
     * times the rate of the one before. */
    LS_SCHEDULE_COSINE_RESTARTS,
    /* PyTorch's OneCycleLR: rises from rate / div_factor to rate, then falls to
     * rate / div_factor / final_div_factor at step `steps` - 1, and stays there. */
    LS_SCHEDULE_ONE_CYCLE,
} ls_schedule_kind;

#define LS_SCHEDULE_POINTS 16
typedef struct ls_schedule {
    ls_schedule_kind kind;
    double rate, decay, alpha, from;
    int64_t steps, warmup;
    bool staircase;
    int count; /* number of values; a piecewise schedule has one boundary less */
    int64_t boundaries[LS_SCHEDULE_POINTS];
    double values[LS_SCHEDULE_POINTS];
    double end, power; /* polynomial */
    bool cycle;
    double t_mul, m_mul; /* cosine with restarts */
    double pct_start, div_factor, final_div_factor;
    bool linear, three_phase; /* one cycle */
} ls_schedule;

/* Return the schedules of these names. Arrays are copied. */
LS_API ls_schedule ls_exponential_decay(double rate, int64_t steps, double decay, bool staircase);
LS_API ls_schedule ls_cosine_decay(double rate, int64_t steps, double alpha, double warmup_from, int64_t warmup_steps);
LS_API ls_schedule ls_piecewise_decay(const int64_t *boundaries, const double *values, int values_count);
LS_API ls_schedule ls_rates_by_batch_size(const int64_t *batch_sizes, const double *rates, int count);
LS_API ls_schedule ls_polynomial_decay(double rate, int64_t steps, double end_rate, double power, bool cycle);
LS_API ls_schedule ls_inverse_time_decay(double rate, int64_t steps, double decay, bool staircase);
LS_API ls_schedule ls_cosine_decay_restarts(double rate, int64_t first_steps, double t_mul, double m_mul, double alpha);
/* pct_start: part of the steps that rise (default 0.3); div_factor: default 25; final_div_factor:
 * default 1e4; 0: the default. linear: straight lines instead of cosines. three_phase: falls to the
 * start first, as fast as it rose. */
LS_API ls_schedule ls_one_cycle(double max_rate, int64_t steps, double pct_start, double div_factor,
                                double final_div_factor, bool linear, bool three_phase);
/* Returns the rate of a step. Only a table by batch size reads batch_size; a size that the table
 * does not have is an error. */
LS_API ls_status ls_schedule_rate(const ls_schedule *schedule, int64_t step, int64_t batch_size, double *out);

/* ---- Optimizers ---- */

typedef enum ls_optimizer_kind {
    LS_OPTIMIZER_NONE = 0,
    LS_OPTIMIZER_SGD,     /* learning rate 0.01; slot momentum, if momentum is set */
    LS_OPTIMIZER_ADAM,    /* learning rate 0.001; slots momentum, velocity */
    LS_OPTIMIZER_ADAMW,   /* Adam with a weight decay of 0.004 */
    LS_OPTIMIZER_RMSPROP, /* learning rate 0.001; slot velocity, and momentum if set */
    /* TensorFlow 1's: the learning rate must be set, velocity starts at 1, epsilon 1e-10. */
    LS_OPTIMIZER_RMSPROP_TF1,
    LS_OPTIMIZER_ADAGRAD,  /* learning rate 0.001; slot accumulator */
    LS_OPTIMIZER_ADADELTA, /* 0.001, rho 0.95; slots accumulated_grad, accumulated_delta_var */
    LS_OPTIMIZER_ADAMAX,   /* learning rate 0.001; slots momentum, norm */
    LS_OPTIMIZER_NADAM,    /* learning rate 0.001; slots momentum, velocity */
    /* learning rate 0.001; slots accumulator, linear */
    LS_OPTIMIZER_FTRL,
    LS_OPTIMIZER_LION, /* learning rate 0.001, beta_2 0.99; slot momentum */
    LS_OPTIMIZER_LAMB, /* learning rate 0.001; slots momentum, velocity */
    /* Learning rate 0.001, momentum 0.95, weight decay 0.004; slot momentum. Matrices are updated
     * by Newton-Schulz; other variables, and those that exclude_layers selects, by AdamW, which has
     * the slot velocity, too. */
    LS_OPTIMIZER_MUON,
} ls_optimizer_kind;

/* An option that the kind does not have, or that contradicts another one, is an error. */
typedef struct ls_optimizer_options {
    int ls_first;
    /* Learning rate (default 0: Keras's default; LS_ZERO: 0). ls_fit prints the rate it uses. */
    double learning_rate;
    ls_schedule schedule;                /* replaces learning_rate, if its kind is not constant */
    double momentum;                     /* SGD and RMSprop (default 0), Muon (default 0.95) */
    bool nesterov;                       /* SGD with momentum only */
    double beta_1, beta_2, rho, epsilon; /* default 0.9, 0.999, 0.9, 1e-7; LS_ZERO: 0 */
    /* decoupled, before the update (default 0; AdamW and Muon: 0.004, LS_ZERO: none) */
    double weight_decay;
    /* Comma-separated parts of names, such as "bias,gamma": variables whose name contains one have
     * no weight decay (default NULL: none). Keras's exclude_from_weight_decay(var_names=...). */
    const char *exclude_from_weight_decay;
    /* Clip gradients; set at most one (default 0: none). Norms are those of the joined gradients
     * of the whole batch, summed in double. */
    double clipvalue, clipnorm, global_clipnorm;
    /* Number of runs per update (default 1). The other runs only accumulate gradients and change
     * no weight, slot or step. The update uses the mean over all samples of these runs: for a
     * loss that is a mean over its batch, the update of one large batch. (Keras uses the mean of
     * the batches' means, which is equal if all batches have one size.) */
    int64_t gradient_accumulation_steps;
    double initial_accumulator_value; /* Adagrad, Ftrl: default 0.1; LS_ZERO: 0 */
    /* Ftrl: not above 0 (default -0.5; LS_ZERO: 0). Another one than -0.5 leaves the in-place update. */
    double learning_rate_power;
    /* Ftrl (default 0) */
    double l1_regularization_strength, l2_regularization_strength, l2_shrinkage_regularization_strength, beta;
    /* Muon: weight decay of the variables that AdamW updates (default 0.004; LS_ZERO: none), and
     * their learning rate divided by that of the others (default 1) */
    double adam_weight_decay, adam_lr_ratio;
    double muon_a, muon_b, muon_c; /* Muon: the polynomial (default 3.4445, -4.775, 2.0315) */
    int64_t ns_steps;              /* Muon: steps of Newton-Schulz (default 5) */
    bool no_nesterov;              /* Muon (default false: Nesterov momentum) */
    /* Muon: updates have rms_rate times the size of the longer side's root (default 0.2; LS_ZERO:
     * not scaled, Keras's None) */
    double rms_rate;
    /* Muon: comma-separated parts of names: AdamW updates these variables. Names with "embedding"
     * are among them unless include_embeddings is set (Keras: exclude_embeddings=False). */
    const char *exclude_layers;
    bool include_embeddings;
    /* Keeps an average of each variable: average = ema_momentum * average + (1 - ema_momentum) *
     * variable after each update (default: none; ema_momentum 0.99). Validation, saved weights and
     * the end of ls_fit use the averages. ema_overwrite_frequency: every N updates the variables
     * become their averages (default 0: never). */
    bool use_ema;
    double ema_momentum;
    int64_t ema_overwrite_frequency;
    /* name of its state, see ls_apply_gradients (default "adam", "adam_1", ...) */
    const char *name;
} ls_optimizer_options;

typedef struct ls_optimizer {
    ls_optimizer_kind kind;
    ls_optimizer_options options;
} ls_optimizer;

#ifndef __cplusplus /* cplusplus.h has them as functions */
#define ls_sgd(...)     ((ls_optimizer){ .kind = LS_OPTIMIZER_SGD, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_adam(...)    ((ls_optimizer){ .kind = LS_OPTIMIZER_ADAM, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_adamw(...)   ((ls_optimizer){ .kind = LS_OPTIMIZER_ADAMW, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_rmsprop(...) ((ls_optimizer){ .kind = LS_OPTIMIZER_RMSPROP, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_rmsprop_tf1(...)                                                                                            \
    ((ls_optimizer){ .kind = LS_OPTIMIZER_RMSPROP_TF1, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_adagrad(...)  ((ls_optimizer){ .kind = LS_OPTIMIZER_ADAGRAD, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_adadelta(...) ((ls_optimizer){ .kind = LS_OPTIMIZER_ADADELTA, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_adamax(...)   ((ls_optimizer){ .kind = LS_OPTIMIZER_ADAMAX, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_nadam(...)    ((ls_optimizer){ .kind = LS_OPTIMIZER_NADAM, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_ftrl(...)     ((ls_optimizer){ .kind = LS_OPTIMIZER_FTRL, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_lion(...)     ((ls_optimizer){ .kind = LS_OPTIMIZER_LION, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_lamb(...)     ((ls_optimizer){ .kind = LS_OPTIMIZER_LAMB, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_muon(...)     ((ls_optimizer){ .kind = LS_OPTIMIZER_MUON, .options = { .ls_first = 0, __VA_ARGS__ } })
#endif

/* Returns the name of the kind, such as "adam"; never free it. */
LS_API const char *ls_optimizer_name(const ls_optimizer *optimizer);
/* Returns the learning rate of a step: the schedule's, or the constant one. */
LS_API ls_status ls_optimizer_rate(const ls_optimizer *optimizer, int64_t step, int64_t batch_size, double *out);

/* clang-format off */
/* The state of an optimizer is in variables of the graph that are not trained, made in this order:
 *     adam/<variable>/momentum, ...               for each variable, its slots
 *     adam/<variable>/gradient_accumulator        for each variable, with accumulation
 *     adam/accumulated_batches                    with accumulation
 *     adam/accumulated_samples                    with accumulation
 *     adam/iterations                             i64: number of updates
 * With global_clipnorm, the norm before clipping is a tensor named adam/global_norm (f64). An
 * optimizer with a name continues with the state of that name, if the graph has it, so that
 * several tensors, of which a run fetches one, can use it. Without a name each call has its own
 * state. */

/* Returns a tensor that updates all variables from their gradients when it is fetched.
 * learning_rate: a scalar (f32). NULL: the constant rate of the spec, or with a schedule a new
 * input named adam/learning_rate, to be fed with the result of ls_optimizer_rate. If a gradient is
 * NULL (the loss does not depend on the variable), its variable does not change, and a warning is
 * logged. */
/* clang-format on */
LS_API ls_tensor *ls_apply_gradients(ls_optimizer optimizer, ls_tensor *const *gradients, ls_tensor *const *variables,
                                     size_t count, ls_tensor *learning_rate);
/* Returns an update of every trainable variable of the graph that the loss depends on, from its
 * gradient. name: name of the tensor, or NULL. */
LS_API ls_tensor *ls_minimize(ls_optimizer optimizer, ls_tensor *loss, const char *name);
/* The same for the trainable variables of one model: others stay as they are, also if the loss
 * depends on them, and gradients flow through them. */
LS_API ls_tensor *ls_model_minimize(ls_model *model, ls_optimizer optimizer, ls_tensor *loss);

/* Returns x where it is above the threshold, else `value`: Keras's activation threshold, for custom
 * models and layers. */
LS_API ls_tensor *ls_threshold(ls_tensor *x, double threshold, double value);

/* ---- Losses: one value per sample, and a reduction ---- */

typedef enum ls_loss_kind {
    LS_LOSS_NONE = 0,
    LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY,
    LS_LOSS_CATEGORICAL_CROSSENTROPY,
    LS_LOSS_BINARY_CROSSENTROPY,
    LS_LOSS_MEAN_SQUARED_ERROR,
    LS_LOSS_MEAN_ABSOLUTE_ERROR,
    LS_LOSS_HUBER,
    LS_LOSS_MEAN_ABSOLUTE_PERCENTAGE_ERROR,
    LS_LOSS_MEAN_SQUARED_LOGARITHMIC_ERROR,
    LS_LOSS_LOG_COSH,
    LS_LOSS_COSINE_SIMILARITY, /* -1 where both point the same way */
    LS_LOSS_KL_DIVERGENCE,
    LS_LOSS_POISSON,
    /* Targets -1 and 1; if all targets of the batch are 0 or 1, 0 counts as -1. */
    LS_LOSS_HINGE,
    LS_LOSS_SQUARED_HINGE,
    LS_LOSS_CATEGORICAL_HINGE,
    LS_LOSS_BINARY_FOCAL_CROSSENTROPY,
    LS_LOSS_CATEGORICAL_FOCAL_CROSSENTROPY,
    LS_LOSS_DICE,    /* one value for the whole batch, unless axis is set */
    LS_LOSS_TVERSKY, /* the same */
    LS_LOSS_CTC,     /* integer labels [N,L], padded with 0, which is the blank; logits [N,T,C] */
    LS_LOSS_CUSTOM,
} ls_loss_kind;

/* Over the batch. A sum is over all values: those of the steps of a sequence, too. */
typedef enum ls_reduction { LS_REDUCE_MEAN = 0, LS_REDUCE_SUM, LS_REDUCE_NONE } ls_reduction;

/* A custom loss, as a function of tensors. It returns one value per sample, [N]; values of
 * further axes are averaged. Targets and predictions have the types and shapes of the data and
 * the model (ls_op_cast, ls_op_reshape). It is called when a step is traced, not while one runs;
 * gradients are derived automatically. */
typedef ls_tensor *(*ls_loss_function)(ls_tensor *targets, ls_tensor *predictions, void *user);

typedef struct ls_loss_options {
    int ls_first;
    /* cross-entropy: predictions are logits (default false: probabilities) */
    bool from_logits;
    ls_reduction reduction; /* over the batch (default mean) */
    double delta;           /* Huber (default 1) */
    /* Cross-entropies: takes this part of the target's weight and gives it to all classes evenly:
     * t (1 - s) + s / classes; binary: t (1 - s) + s / 2. Sparse: as if the labels were
     * one-hot rows. From 0 to 1 (default 0). */
    double label_smoothing;
    /* Sparse cross-entropy: labels of this class count for nothing, in sums and in means; it need not
     * be a class of the model: -1, 255 (default: none; LS_ZERO: class 0) */
    double ignore_class;
    /* Focal cross-entropies: alpha is the weight, gamma the power (default 0.25, 2). Tversky: 1 - I
     * / (I + alpha sum t (1 - p) + beta sum p (1 - t)) with I = sum t p (default 0.5, 0.5).
     * LS_ZERO: 0 */
    double alpha, gamma, beta;
    /* binary focal cross-entropy: weighs class 1 by alpha, class 0 by 1 - alpha (default false) */
    bool apply_class_balancing;
    /* Cosine similarity: LS_AXES(-1) (default). Dice, Tversky: axes that one value covers, such as
     * LS_AXES(1, 2, 3) for one value per image (default: all, with the batch). */
    ls_axes axis;
    int ls_first_function;
    /* Custom loss: the function, the pointer passed to it, and the name of
     * the loss (default "loss"). */
    ls_loss_function function;
    void *user;
    const char *name;
} ls_loss_options;

typedef struct ls_loss {
    ls_loss_kind kind;
    ls_loss_options options;
} ls_loss;

#ifndef __cplusplus /* cplusplus.h has them as functions */
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
#define ls_mean_absolute_percentage_error(...)                                                                         \
    ((ls_loss){ .kind = LS_LOSS_MEAN_ABSOLUTE_PERCENTAGE_ERROR, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_mean_squared_logarithmic_error(...)                                                                         \
    ((ls_loss){ .kind = LS_LOSS_MEAN_SQUARED_LOGARITHMIC_ERROR, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_log_cosh(...) ((ls_loss){ .kind = LS_LOSS_LOG_COSH, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_cosine_similarity(...)                                                                                      \
    ((ls_loss){ .kind = LS_LOSS_COSINE_SIMILARITY, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_kl_divergence(...) ((ls_loss){ .kind = LS_LOSS_KL_DIVERGENCE, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_poisson(...)       ((ls_loss){ .kind = LS_LOSS_POISSON, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_hinge(...)         ((ls_loss){ .kind = LS_LOSS_HINGE, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_squared_hinge(...) ((ls_loss){ .kind = LS_LOSS_SQUARED_HINGE, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_categorical_hinge(...)                                                                                      \
    ((ls_loss){ .kind = LS_LOSS_CATEGORICAL_HINGE, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_binary_focal_crossentropy(...)                                                                              \
    ((ls_loss){ .kind = LS_LOSS_BINARY_FOCAL_CROSSENTROPY, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_categorical_focal_crossentropy(...)                                                                         \
    ((ls_loss){ .kind = LS_LOSS_CATEGORICAL_FOCAL_CROSSENTROPY, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_dice(...)    ((ls_loss){ .kind = LS_LOSS_DICE, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_tversky(...) ((ls_loss){ .kind = LS_LOSS_TVERSKY, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_ctc(...)     ((ls_loss){ .kind = LS_LOSS_CTC, .options = { .ls_first = 0, __VA_ARGS__ } })
/* ls_custom_loss(function, user, "name"); user and name are optional */
#define ls_custom_loss(...) ((ls_loss){ .kind = LS_LOSS_CUSTOM, .options = { .ls_first_function = 0, __VA_ARGS__ } })
#endif

/* Returns Keras's name, such as "mean_squared_error". */
LS_API const char *ls_loss_name(const ls_loss *loss);

/* Returns one value per sample, [batch]. Axes other than batch and classes are averaged, or
 * with LS_REDUCE_SUM summed (Keras returns a value for each of their elements). Axis 0 is the
 * samples, in whole tensors too. Targets may have any type; sparse labels may be [N] or [N,1];
 * for other losses [N] and [N,1] match. Other shapes must be equal. */
LS_API ls_tensor *ls_loss_per_sample(ls_loss loss, ls_tensor *targets, ls_tensor *predictions);
/* Returns the values of all samples, reduced as the spec says. weights: NULL, or one
 * number per sample ([N], [N,1] or a scalar, of any type). A mean is the sum over samples
 * divided once by their number (not by the sum of weights), on any number of devices, as
 * Keras's sum_over_batch_size. */
LS_API ls_tensor *ls_loss_value(ls_loss loss, ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights);

/* Returns the sum of all values divided by the size of a full batch, as
 * tf.nn.compute_average_loss: a smaller last batch has less weight. */
LS_API ls_tensor *ls_average_loss(ls_tensor *values, int64_t global_batch_size);

/* ---- Metrics: a fixed vector of sums over samples, and a result ---- */

#define LS_AUC_THRESHOLDS 200

typedef enum ls_metric_kind {
    LS_METRIC_NONE = 0,
    LS_METRIC_ACCURACY, /* binary, categorical or sparse, depending on the shapes */
    LS_METRIC_BINARY_ACCURACY,
    LS_METRIC_CATEGORICAL_ACCURACY,
    LS_METRIC_SPARSE_CATEGORICAL_ACCURACY,
    /* k: default 5. Categorical or sparse, depending on the shapes. Scores
     * equal to the k-th all count. */
    LS_METRIC_TOP_K,
    LS_METRIC_MEAN, /* mean of the predictions; targets must be NULL */
    LS_METRIC_MEAN_SQUARED_ERROR,
    LS_METRIC_MEAN_ABSOLUTE_ERROR,
    LS_METRIC_PRECISION,
    LS_METRIC_RECALL,
    LS_METRIC_AUC, /* area under the ROC curve, by 200 thresholds and trapezoids */
    LS_METRIC_ROOT_MEAN_SQUARED_ERROR,
    LS_METRIC_COSINE_SIMILARITY, /* over the last axis; 1 where both point the same way */
    LS_METRIC_LOSS,              /* mean of the values of `loss` */
    /* The metrics below need num_classes; with ls_compile the model's output has it. */
    LS_METRIC_R2_SCORE, /* num_classes: number of outputs, [N, outputs] */
    /* Targets [N, classes] of 0 and 1, one-hot or several labels a sample; or labels [N]. Without a
     * threshold the class with the highest score counts. */
    LS_METRIC_F1_SCORE,
    LS_METRIC_FBETA_SCORE,
    /* Targets and predictions are labels or scores of classes (the last axis has num_classes
     * elements), of samples or pixels. */
    LS_METRIC_MEAN_IOU,
    LS_METRIC_BINARY_IOU, /* the mean over both classes of predictions above the threshold */
    /* The number (or weight) of samples of each class, by predicted class; its sums are a matrix
     * [target][prediction], its result the accuracy. Shapes as for the mean IoU. */
    LS_METRIC_CONFUSION,
    LS_METRIC_CUSTOM,
} ls_metric_kind;

/* A custom metric: one value per sample, as in ls_loss_function. The result is their mean. */
typedef ls_tensor *(*ls_metric_function)(ls_tensor *targets, ls_tensor *predictions, void *user);

/* How values of classes become one. Keras's None is ls_metric_class_values. */
typedef enum ls_metric_average {
    LS_AVERAGE_MACRO = 0, /* the mean; R2: uniform_average */
    LS_AVERAGE_MICRO,     /* F scores: from the sums over all classes */
    LS_AVERAGE_WEIGHTED,  /* by the weight of each class; R2: variance_weighted_average */
} ls_metric_average;

typedef struct ls_metric {
    ls_metric_kind kind;
    int64_t k; /* top-k: number of places (default 5) */
    /* binary accuracy, precision, recall, binary IoU (default 0.5; LS_ZERO: 0); F scores (default:
     * the highest score) */
    double threshold;
    int64_t num_classes;       /* R2, F scores, IoU, confusion */
    ls_metric_average average; /* R2, F scores (default macro) */
    double beta;               /* FBeta score (default 1) */
    int64_t num_regressors;    /* R2: adjusted for this many (default 0) */
    /* mean IoU, confusion: targets of this class count for nothing (default: none; LS_ZERO: class 0) */
    double ignore_class;
    ls_loss loss; /* LS_METRIC_LOSS */
    int ls_first;
    /* custom metric: the function, and in `user` the pointer passed to it */
    ls_metric_function function;
    void *user;
    const char *name; /* default Keras's: "accuracy", "top_k_categorical_accuracy", ... */
} ls_metric;

#ifndef __cplusplus /* cplusplus.h has them as functions */
#define ls_accuracy()             ((ls_metric){ .kind = LS_METRIC_ACCURACY })
#define ls_top_k(places)          ((ls_metric){ .kind = LS_METRIC_TOP_K, .k = places })
#define ls_metric_of(metric_kind) ((ls_metric){ .kind = metric_kind })
#define ls_loss_metric(of_loss)   ((ls_metric){ .kind = LS_METRIC_LOSS, .loss = of_loss })
/* ls_custom_metric(function, user, "name"); user and name are optional */
#define ls_custom_metric(...) ((ls_metric){ .kind = LS_METRIC_CUSTOM, .ls_first = 0, __VA_ARGS__ })
#endif

#define LS_MAX_METRICS 16
typedef struct ls_metrics_list {
    size_t count;
    ls_metric metric[LS_MAX_METRICS];
} ls_metrics_list;
#ifndef __cplusplus /* cplusplus.h has them as functions */
#define ls_metrics(...)                                                                                                \
    ((ls_metrics_list){ .count = sizeof((const ls_metric[]){ __VA_ARGS__ }) / sizeof(ls_metric),                       \
                        .metric = { __VA_ARGS__ } })
#endif

/* Returns the name of a metric's result: its own, or Keras's. */
LS_API const char *ls_metric_name(const ls_metric *metric);
/* ls_metric_sums returns a vector of sums over the samples of the batch (f64, joined once per
 * step), and ls_metric_result the metric's value. Add the sums of several batches element by
 * element before taking the result. Targets, weights and shapes are as for losses. A mean is the
 * sum of weight * value divided by the sum of weights, or 0 if that is 0. */
LS_API ls_tensor *ls_metric_sums(ls_metric metric, ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights);
LS_API size_t ls_metric_sums_count(const ls_metric *metric);
LS_API double ls_metric_result(const ls_metric *metric, const double *sums);
/* Sets `out` to the values of the classes (R2: of the outputs), Keras's average=None. count:
 * num_classes, binary IoU: 2. */
LS_API ls_status ls_metric_class_values(const ls_metric *metric, const double *sums, double *out, size_t count);

/* A metric that accumulates: fetching `update` with a step adds the batch to the variable
 * `sums`. The result covers all batches since the last reset. The graph owns the tensors; errors
 * are error tensors, reported when they are run or read. */
typedef struct ls_metric_state {
    ls_metric metric;
    ls_tensor *update, *sums; /* update: NULL unless made by ls_metric_state_of */
} ls_metric_state;
LS_API ls_metric_state ls_metric_state_of(ls_metric metric, ls_tensor *targets, ls_tensor *predictions,
                                          ls_tensor *weights);
/* Make the sums first, then any number of updates, as Keras's update_state. A step runs the
 * updates that are made in it. */
LS_API ls_metric_state ls_metric_state_make(ls_graph *graph, ls_metric metric);
LS_API ls_tensor *ls_metric_state_update(const ls_metric_state *state, ls_tensor *targets, ls_tensor *predictions,
                                         ls_tensor *weights);
/* Return the result of all batches since the last reset, and reset the sums. */
LS_API ls_status ls_metric_state_result(const ls_metric_state *state, double *out);
LS_API ls_status ls_metric_state_reset(const ls_metric_state *state);

/* ---- Names here, in Keras and in PyTorch ---- */

typedef enum ls_reference_list {
    LS_REFERENCE_LAYERS = 0,
    LS_REFERENCE_ACTIVATIONS,
    LS_REFERENCE_OPS, /* those with kernels; lockstep/graph.h has more, made of them */
    LS_REFERENCE_LOSSES,
    LS_REFERENCE_METRICS,
    LS_REFERENCE_OPTIMIZERS,
    LS_REFERENCE_SCHEDULES,
} ls_reference_list;

/* Strings are constants. */
typedef struct ls_reference_row {
    const char *name;            /* in C: "ls_conv2d" */
    const char *keras, *pytorch; /* "keras.layers.Conv2D", "torch.nn.Conv2d"; "": none */
} ls_reference_row;
/* Returns the name of a list, such as "layers"; NULL after the last. */
LS_API const char *ls_reference_name(ls_reference_list list);
/* Sets *out to a row of a list; returns false after the last. */
LS_API bool ls_reference(ls_reference_list list, size_t index, ls_reference_row *out);

#ifdef __cplusplus
}
#endif
#endif
