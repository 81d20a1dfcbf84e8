/* lockstep/nn.h: layers, models, losses, metrics, optimizers and schedules.
 *
 * Layers, losses, metrics, optimizers and schedules are *specs*: plain structs by value, nothing to free, nothing fails.
 * Names, options, defaults and meanings are Keras's. A model is made from layers; what is wrong with a spec is reported
 * when the model is made or compiled. */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include "lockstep/graph.h"
#include "lockstep/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An option whose default is not simply "off". */
typedef enum ls_switch { LS_DEFAULT = 0, LS_ON, LS_OFF } ls_switch;

/* A number for which 0 means something: unset numbers take the default, LS_ZERO is 0. */
#define LS_ZERO (-0x1p-1022)

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

typedef enum ls_initializer_kind {
    LS_INIT_DEFAULT = 0, /* the layer's own: Glorot uniform for kernels, zeros for biases */
    LS_INIT_GLOROT_UNIFORM,
    LS_INIT_GLOROT_NORMAL,
    LS_INIT_HE_UNIFORM,
    LS_INIT_HE_NORMAL,
    LS_INIT_LECUN_UNIFORM,
    LS_INIT_LECUN_NORMAL,
    LS_INIT_ZEROS,
    LS_INIT_ONES,
    LS_INIT_CONSTANT,         /* a */
    LS_INIT_UNIFORM,          /* from a to b */
    LS_INIT_NORMAL,           /* mean a, deviation b */
    LS_INIT_TRUNCATED_NORMAL, /* mean a, deviation b, redrawn beyond two deviations */
    LS_INIT_ORTHOGONAL,       /* gain a */
} ls_initializer_kind;

typedef struct ls_initializer {
    ls_initializer_kind kind;
    double a, b;
} ls_initializer;

typedef struct ls_regularizer {
    double l1, l2; /* l1 sum|w| + l2 sum w^2, once a step, whatever the devices */
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

/* One struct for every kind: a layer uses the fields that its constructor below names. */
typedef struct ls_layer_options {
    int ls_first;
    int64_t first, second, third, fourth; /* the positional arguments of a constructor */
    const char *name;                     /* NULL: "conv2d", "conv2d_1", ... as Keras counts them */
    ls_activation activation;
    ls_switch use_bias; /* default on */
    ls_initializer kernel_initializer, bias_initializer;
    ls_regularizer kernel_regularizer, bias_regularizer, activity_regularizer;
    ls_switch trainable; /* default on; off: no gradient, and a batch norm in inference mode */
    /* images */
    int64_t kernel_size[2], strides[2], dilation_rate[2], pool_size[2];
    int64_t groups, depth_multiplier; /* 0: 1 */
    ls_padding padding;
    int64_t zero_padding[4]; /* top, bottom, left, right */
    /* normalisation */
    double momentum, epsilon; /* 0: 0.99, 1e-3 */
    ls_switch center, scale;  /* default on */
    ls_initializer beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer;
    /* others */
    double rate;         /* dropout */
    double slope;        /* leaky ReLU: 0: 0.3 */
    double max_value;    /* ReLU: 0: none */
    double threshold;
    double scale_by, offset; /* rescaling */
    int64_t axis;        /* of softmax, concatenate, normalisation: 0: -1 */
    ls_shape shape;      /* of an input (without the batch axis), of a reshape */
    ls_dtype dtype;      /* of an input */
    const char *device;  /* placement, when a strategy asks for it */
} ls_layer_options;

typedef struct ls_layer {
    ls_layer_kind kind;
    ls_layer_options options;
} ls_layer;

#define LS_LAYER_(layer_kind, ...) ((ls_layer){ .kind = layer_kind, .options = { .ls_first = 0, __VA_ARGS__ } })

/* ls_input(28, 28, 1): sizes of one sample; a pixel type other than float32 by ls_input(28, 28, 1, .dtype = LS_U8) */
#define ls_input(...) LS_LAYER_(LS_LAYER_INPUT, __VA_ARGS__)
#define ls_dense(...) LS_LAYER_(LS_LAYER_DENSE, __VA_ARGS__)                       /* units */
#define ls_conv2d(...) LS_LAYER_(LS_LAYER_CONV2D, __VA_ARGS__)                     /* filters, size of a square kernel */
#define ls_depthwise_conv2d(...) LS_LAYER_(LS_LAYER_DEPTHWISE_CONV2D, __VA_ARGS__) /* size of a square kernel */
#define ls_max_pool2d(...) LS_LAYER_(LS_LAYER_MAX_POOL2D, __VA_ARGS__)             /* size of a square window */
#define ls_average_pool2d(...) LS_LAYER_(LS_LAYER_AVERAGE_POOL2D, __VA_ARGS__)
#define ls_global_max_pool2d() LS_LAYER_(LS_LAYER_GLOBAL_MAX_POOL2D, .first = 0)
#define ls_global_average_pool2d() LS_LAYER_(LS_LAYER_GLOBAL_AVERAGE_POOL2D, .first = 0)
#define ls_flatten() LS_LAYER_(LS_LAYER_FLATTEN, .first = 0)
#define ls_reshape(...) LS_LAYER_(LS_LAYER_RESHAPE, .shape = LS_SHAPE(__VA_ARGS__))
#define ls_dropout(...) LS_LAYER_(LS_LAYER_DROPOUT, .rate = __VA_ARGS__)           /* rate */
#define ls_batch_normalization(...) ((ls_layer){ .kind = LS_LAYER_BATCH_NORMALIZATION, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_layer_normalization(...) ((ls_layer){ .kind = LS_LAYER_LAYER_NORMALIZATION, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_activation_layer(...) LS_LAYER_(LS_LAYER_ACTIVATION, .activation = __VA_ARGS__)
#define ls_relu() LS_LAYER_(LS_LAYER_RELU, .first = 0)
#define ls_leaky_relu(...) LS_LAYER_(LS_LAYER_LEAKY_RELU, .slope = __VA_ARGS__)
#define ls_softmax() LS_LAYER_(LS_LAYER_SOFTMAX, .first = 0)
#define ls_add() LS_LAYER_(LS_LAYER_ADD, .first = 0)
#define ls_multiply() LS_LAYER_(LS_LAYER_MULTIPLY, .first = 0)
#define ls_concatenate() LS_LAYER_(LS_LAYER_CONCATENATE, .first = 0)
#define ls_zero_padding2d(...) LS_LAYER_(LS_LAYER_ZERO_PADDING2D, __VA_ARGS__) /* on every side */
#define ls_embedding(...) LS_LAYER_(LS_LAYER_EMBEDDING, __VA_ARGS__)           /* rows, width */
#define ls_rescaling(...) LS_LAYER_(LS_LAYER_RESCALING, .scale_by = __VA_ARGS__)

/* ---- Models ---- */

typedef struct ls_model ls_model;

/* ls_sequential(ctx, "cnn", &cnn, ls_input(28, 28, 1), ls_conv2d(16, 3, .activation = LS_RELU), ...) */
#define ls_sequential(ctx, name, out, ...)                                                                             \
    ls_sequential_with(ctx, name, out, (const ls_layer[]){ __VA_ARGS__ },                                              \
                       sizeof((const ls_layer[]){ __VA_ARGS__ }) / sizeof(ls_layer))
LS_API ls_status ls_sequential_with(ls_context *ctx, const char *name, ls_model **out, const ls_layer *layers,
                                    size_t count);

/* Functional models: layers called on symbols. A wrong call gives a symbol that swallows further calls; ls_functional_end
 * reports the first. A layer called twice shares its weights.
 *     ls_functional_begin(ctx, "net", &model);
 *     ls_symbol a = ls_symbol_input(model, ls_input(8, .name = "a"));
 *     ls_symbol b = ls_symbol_call(model, ls_dense(4, .activation = LS_RELU), a);
 *     ls_symbol c = ls_symbol_call(model, ls_add(), b, a);
 *     ls_functional_end(model, c); */
typedef struct ls_symbol {
    ls_model *model;
    int index; /* -1: an error */
} ls_symbol;

#define LS_SYMBOLS_(...) (const ls_symbol[]){ __VA_ARGS__ }, sizeof((const ls_symbol[]){ __VA_ARGS__ }) / sizeof(ls_symbol)
LS_API ls_status ls_functional_begin(ls_context *ctx, const char *name, ls_model **out);
LS_API ls_symbol ls_symbol_input(ls_model *model, ls_layer input);
#define ls_symbol_call(model, layer, ...) ls_symbol_call_with(model, layer, LS_SYMBOLS_(__VA_ARGS__))
LS_API ls_symbol ls_symbol_call_with(ls_model *model, ls_layer layer, const ls_symbol *inputs, size_t count);
/* The layer that made `symbol`, called again: its weights are shared. */
#define ls_symbol_share(symbol, ...) ls_symbol_share_with(symbol, LS_SYMBOLS_(__VA_ARGS__))
LS_API ls_symbol ls_symbol_share_with(ls_symbol symbol, const ls_symbol *inputs, size_t count);
#define ls_functional_end(model, ...) ls_functional_end_with(model, LS_SYMBOLS_(__VA_ARGS__))
LS_API ls_status ls_functional_end_with(ls_model *model, const ls_symbol *outputs, size_t count);

/* Custom models: a C function that calls layers, as a subclassed Keras model's `call`. It is traced for training and for
 * inference; a layer is known by its name, so the function must give each its own. */
typedef struct ls_call ls_call;
typedef void (*ls_call_function)(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user);
LS_API ls_status ls_custom(ls_context *ctx, const char *name, ls_model **out, const ls_layer *inputs, size_t input_count,
                           size_t output_count, ls_call_function function, void *user);
LS_API ls_tensor *ls_layer_call(ls_call *call, ls_layer layer, ls_tensor *x);
LS_API ls_tensor *ls_layer_call_many(ls_call *call, ls_layer layer, ls_tensor *const *inputs, size_t count);
LS_API bool ls_call_is_training(const ls_call *call);

/* "linear", "mlp", "mnist-cnn" (first seed), "mnist-cnn-wide" (fifth seed), "resnet18", "resnet50" */
LS_API ls_status ls_model_builtin(ls_context *ctx, const char *name, ls_model **out);

/* What model.to_json() of Keras 3 writes, Sequential or Functional. What we do not honour is an error that names it. */
LS_API ls_status ls_model_from_keras_json(ls_context *ctx, const char *path, ls_model **out);
LS_API void ls_model_destroy(ls_model *model);

LS_API const char *ls_model_name(const ls_model *model);
LS_API ls_graph *ls_model_graph(ls_model *model);
LS_API size_t ls_model_input_count(const ls_model *model);
LS_API size_t ls_model_output_count(const ls_model *model);
LS_API ls_shape ls_model_input_shape(const ls_model *model, size_t input); /* LS_BATCH first */

/* Variables in creation order; names as Keras has them: "conv2d/kernel". The initial values come from `seed` by Philox. */
LS_API size_t ls_model_variable_count(const ls_model *model);
LS_API ls_tensor *ls_model_variable(const ls_model *model, size_t index);
LS_API const char *ls_model_variable_name(const ls_model *model, size_t index);
LS_API bool ls_model_variable_is_trainable(const ls_model *model, size_t index);
LS_API ls_status ls_model_initialize(ls_model *model, uint64_t seed); /* new initial values; made with seed 0 at first */

/* The model's nodes for these inputs: outputs, the regularisers' loss (NULL: none), and the assignments of moving statistics
 * that belong to a training step (count at most 2 for each batch norm; free() the array). */
typedef struct ls_trace {
    ls_tensor *regularization;
    ls_tensor **updates;
    size_t update_count;
} ls_trace;
LS_API ls_status ls_model_trace(ls_model *model, ls_tensor *const *inputs, bool training, ls_tensor **outputs,
                                ls_trace *trace);

/* As Keras prints it, with FLOPs and activation bytes of a sample; free() the text. */
LS_API ls_status ls_model_summary(ls_model *model, char **out);

/* Weights as safetensors, names as above. Loading wants every variable, in its shape; what is missing or left over is named. */
LS_API ls_status ls_model_save_weights(const ls_model *model, const char *path);
LS_API ls_status ls_model_load_weights(ls_model *model, const char *path);
LS_API ls_status ls_model_weights_sha256(const ls_model *model, char hex[65]);

/* ---- Schedules: the learning rate of a step, counted from 0 ---- */

typedef enum ls_schedule_kind {
    LS_SCHEDULE_CONSTANT = 0,
    LS_SCHEDULE_EXPONENTIAL, /* rate * decay ^ (step / steps), staircase: floor of the exponent */
    LS_SCHEDULE_COSINE,      /* warm-up from `from` to `rate` in `warmup` steps, then cosine to alpha * rate in `steps` */
    LS_SCHEDULE_PIECEWISE,   /* values[i] up to and including boundaries[i] */
    LS_SCHEDULE_BY_BATCH,    /* values[i] for the batch size boundaries[i]: the second seed's table */
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
LS_API ls_status ls_schedule_rate(const ls_schedule *schedule, int64_t step, int64_t batch_size, double *out);

/* ---- Optimizers ---- */

typedef enum ls_optimizer_kind {
    LS_OPTIMIZER_NONE = 0,
    LS_OPTIMIZER_SGD,
    LS_OPTIMIZER_ADAM,
    LS_OPTIMIZER_ADAMW,
    LS_OPTIMIZER_RMSPROP,
    LS_OPTIMIZER_RMSPROP_TF1,
    LS_OPTIMIZER_ADAGRAD,
} ls_optimizer_kind;

typedef struct ls_optimizer_options {
    int ls_first;
    double learning_rate; /* 0: the optimizer's own default, Keras's */
    ls_schedule schedule; /* where its kind is not constant, instead of learning_rate */
    double momentum;
    bool nesterov;
    double beta_1, beta_2, rho, epsilon; /* 0: 0.9, 0.999, 0.9, 1e-7 */
    double weight_decay;                 /* decoupled; AdamW: 0: 0.004 */
    double clipvalue, clipnorm, global_clipnorm; /* after the join; 0: none */
    int64_t gradient_accumulation_steps;         /* 0: 1 */
    double initial_accumulator_value;            /* Adagrad: 0: 0.1 */
    const char *name;
} ls_optimizer_options;

typedef struct ls_optimizer {
    ls_optimizer_kind kind;
    ls_optimizer_options options;
} ls_optimizer;

#define ls_sgd(...) ((ls_optimizer){ .kind = LS_OPTIMIZER_SGD, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_adam(...) ((ls_optimizer){ .kind = LS_OPTIMIZER_ADAM, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_adamw(...) ((ls_optimizer){ .kind = LS_OPTIMIZER_ADAMW, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_rmsprop(...) ((ls_optimizer){ .kind = LS_OPTIMIZER_RMSPROP, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_rmsprop_tf1(...) ((ls_optimizer){ .kind = LS_OPTIMIZER_RMSPROP_TF1, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_adagrad(...) ((ls_optimizer){ .kind = LS_OPTIMIZER_ADAGRAD, .options = { .ls_first = 0, __VA_ARGS__ } })

/* The update of all variables from their gradients, as one tensor to be fetched; its slots and its step are variables of the
 * graph. learning_rate: a scalar to be fed (f32), or NULL: the spec's constant rate. */
LS_API ls_tensor *ls_apply_gradients(ls_optimizer optimizer, ls_tensor *const *gradients, ls_tensor *const *variables,
                                     size_t count, ls_tensor *learning_rate);
/* Gradients of the loss by every trainable variable of the graph it depends on, and their update, named `name` (or NULL). */
LS_API ls_tensor *ls_minimize(ls_optimizer optimizer, ls_tensor *loss, const char *name);

/* ---- Losses: a value a sample, and how samples are put together ---- */

typedef enum ls_loss_kind {
    LS_LOSS_NONE = 0,
    LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY,
    LS_LOSS_CATEGORICAL_CROSSENTROPY,
    LS_LOSS_BINARY_CROSSENTROPY,
    LS_LOSS_MEAN_SQUARED_ERROR,
    LS_LOSS_MEAN_ABSOLUTE_ERROR,
    LS_LOSS_HUBER,
} ls_loss_kind;

typedef enum ls_reduction { LS_REDUCE_MEAN = 0, LS_REDUCE_SUM, LS_REDUCE_NONE } ls_reduction; /* over the batch */

typedef struct ls_loss_options {
    int ls_first;
    bool from_logits;
    ls_reduction reduction;
    double delta; /* Huber: 0: 1 */
} ls_loss_options;

typedef struct ls_loss {
    ls_loss_kind kind;
    ls_loss_options options;
} ls_loss;

#define ls_sparse_categorical_crossentropy(...)                                                                        \
    ((ls_loss){ .kind = LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_categorical_crossentropy(...) ((ls_loss){ .kind = LS_LOSS_CATEGORICAL_CROSSENTROPY, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_binary_crossentropy(...) ((ls_loss){ .kind = LS_LOSS_BINARY_CROSSENTROPY, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_mean_squared_error(...) ((ls_loss){ .kind = LS_LOSS_MEAN_SQUARED_ERROR, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_mean_absolute_error(...) ((ls_loss){ .kind = LS_LOSS_MEAN_ABSOLUTE_ERROR, .options = { .ls_first = 0, __VA_ARGS__ } })
#define ls_huber(...) ((ls_loss){ .kind = LS_LOSS_HUBER, .options = { .ls_first = 0, __VA_ARGS__ } })

/* One value a sample: [batch]. Axes beside the batch's and the classes' are averaged. */
LS_API ls_tensor *ls_loss_per_sample(ls_loss loss, ls_tensor *targets, ls_tensor *predictions);
/* Put together as the spec says; weights (one a sample, f32) may be NULL. Mean: the sum over samples divided once by their
 * number, for any number of devices; with weights Keras divides by the number of samples, too. */
LS_API ls_tensor *ls_loss_value(ls_loss loss, ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights);

/* ---- Metrics: a fixed vector of sums over samples, and a result ---- */

typedef enum ls_metric_kind {
    LS_METRIC_NONE = 0,
    LS_METRIC_ACCURACY, /* binary, categorical or sparse, by the shapes of targets and predictions */
    LS_METRIC_BINARY_ACCURACY,
    LS_METRIC_CATEGORICAL_ACCURACY,
    LS_METRIC_SPARSE_CATEGORICAL_ACCURACY,
    LS_METRIC_TOP_K, /* k: 0: 5 */
    LS_METRIC_MEAN,
    LS_METRIC_MEAN_SQUARED_ERROR,
    LS_METRIC_MEAN_ABSOLUTE_ERROR,
    LS_METRIC_PRECISION,
    LS_METRIC_RECALL,
    LS_METRIC_AUC,
} ls_metric_kind;

typedef struct ls_metric {
    ls_metric_kind kind;
    int64_t k;
    double threshold; /* 0: 0.5 */
    const char *name; /* NULL: Keras's: "accuracy", "top_k_categorical_accuracy", ... */
} ls_metric;

#define ls_accuracy() ((ls_metric){ .kind = LS_METRIC_ACCURACY })
#define ls_top_k(places) ((ls_metric){ .kind = LS_METRIC_TOP_K, .k = places })
#define ls_metric_of(metric_kind) ((ls_metric){ .kind = metric_kind })

#define LS_MAX_METRICS 16
typedef struct ls_metrics {
    size_t count;
    ls_metric metric[LS_MAX_METRICS];
} ls_metrics_list;
#define ls_metrics(...)                                                                                                \
    ((ls_metrics_list){ .count = sizeof((const ls_metric[]){ __VA_ARGS__ }) / sizeof(ls_metric), .metric = { __VA_ARGS__ } })

LS_API const char *ls_metric_name(const ls_metric *metric);
/* A vector of sums over the samples of the batch (f64, joined once a step); result: what it means. */
LS_API ls_tensor *ls_metric_sums(ls_metric metric, ls_tensor *targets, ls_tensor *predictions, ls_tensor *weights);
LS_API size_t ls_metric_sums_count(const ls_metric *metric);
LS_API double ls_metric_result(const ls_metric *metric, const double *sums);

#ifdef __cplusplus
}
#endif
#endif
