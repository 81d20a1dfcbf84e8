/* lockstep/graph.h: tensors, ops and gradients.
 *
 * A tensor is a formula: an op makes a node of a graph, and nothing is computed until the tensor is run or read
 * (lockstep/run.h). Ops are *builders*: they return a tensor always. A wrong call returns an error tensor that the
 * graph owns and that swallows whatever is built on it; the first call that runs or differentiates it reports the
 * message.
 *
 * Axis 0 of a tensor may be the batch axis: its size is LS_BATCH until a run knows it. Such a tensor is *per-sample*;
 * any other is *whole*. An op keeps the batch axis (sample by sample), or reduces it, or would mix samples: that is
 * refused, unless the tensor went through ls_op_gather_batch. Layouts are Keras's: images [N,H,W,C], kernels
 * [H,W,in,out]. */
#ifndef LOCKSTEP_GRAPH_H
#define LOCKSTEP_GRAPH_H

#include "lockstep/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_context ls_context;
typedef struct ls_graph ls_graph;
typedef struct ls_tensor ls_tensor;

#define LS_MAX_RANK  8
#define LS_BATCH     (-1) /* the size of a batch axis, known when a run is fed */
#define LS_REMAINING (-2) /* in a reshape: whatever is left */

typedef struct ls_shape {
    int rank; /* 0: a scalar */
    int64_t dims[LS_MAX_RANK];
} ls_shape;

#define LS_COUNT_(...) ((int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))
#define LS_SHAPE(...)  ((ls_shape){ .rank = LS_COUNT_(__VA_ARGS__), .dims = { __VA_ARGS__ } })
#define LS_SCALAR      ((ls_shape){ .rank = 0 })
#define LS_AXES(...)   ((ls_axes){ .count = LS_COUNT_(__VA_ARGS__), .axis = { __VA_ARGS__ } })
#define LS_ALL_AXES    ((ls_axes){ .count = -1 })

/* Axes to work over; negative ones count from the end. */
typedef struct ls_axes {
    int count; /* -1: all */
    int64_t axis[LS_MAX_RANK];
} ls_axes;

/* For options where 0 stands for the default: LS_ZERO says that 0 itself is meant. */
#define LS_ZERO (-0x1p-1022)

/* ---- Graphs ---- */

typedef struct ls_graph_options {
    int ls_first;
    uint64_t seed; /* of every random number the graph draws */
} ls_graph_options;

/* ls_graph_create(ctx, &graph, .seed = 1). The context must outlive the graph.
 *
 * One thread at a time uses a graph, or the model that it belongs to; different threads may use different graphs. While
 * a call of one thread is at work, calls of other threads on the same graph fail with LS_ERR_STATE: builders return an
 * error tensor, scopes do not open, counts are 0. Inside its own callbacks and functions the thread may go on using the
 * graph. ls_tensor_... and the calls that ask a finished model for names, shapes, variables and counts work at any
 * time. */
#define ls_graph_create(...)                                                                                           \
    ls_graph_create_with(LS_ARGUMENT_1_(__VA_ARGS__, ),                                                                \
                         (ls_graph_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) },                              \
                         LS_ARGUMENT_2_(__VA_ARGS__, ))
LS_API ls_status ls_graph_create_with(ls_context *ctx, ls_graph_options options, ls_graph **out);
LS_API void ls_graph_destroy(ls_graph *graph);

/* LS_OK, or the first error that a builder of this graph met (its message becomes the last error). */
LS_API ls_status ls_graph_status(ls_graph *graph);

/* What is made inside a scope ends with it: nodes, variables, held values, names.
 *     LS_SCOPE(graph) { ... }        also ends on break and return. */
typedef struct ls_scope {
    ls_graph *graph;
    bool open;
} ls_scope;

LS_API ls_scope ls_scope_open(ls_graph *graph);
LS_API void ls_scope_close(ls_scope *scope);
#define LS_SCOPE(graph)                                                                                                \
    for (ls_scope ls_scope_ __attribute__((cleanup(ls_scope_close))) = ls_scope_open(graph); ls_scope_.open;           \
         ls_scope_close(&ls_scope_))

/* Nodes named inside get "name/" in front. */
typedef struct ls_name_scope {
    ls_graph *graph;
    const char *outer; /* what was in front before */
    bool open;
} ls_name_scope;

LS_API ls_name_scope ls_name_scope_open(ls_graph *graph, const char *name);
LS_API void ls_name_scope_close(ls_name_scope *scope);
#define LS_NAME_SCOPE(graph, name)                                                                                     \
    for (ls_name_scope ls_name_scope_ __attribute__((cleanup(ls_name_scope_close))) = ls_name_scope_open(graph, name); \
         ls_name_scope_.open; ls_name_scope_close(&ls_name_scope_))

/* Names `tensor` within the open name scopes and returns it. A name belongs to one tensor of a graph. */
LS_API ls_tensor *ls_named(ls_tensor *tensor, const char *name);

/* By full name ("g1/cross_entropy"; TensorFlow's ":0" at the end is taken too). */
LS_API ls_status ls_graph_find(ls_graph *graph, const char *name, ls_tensor **out);

typedef enum ls_dump_format { LS_DUMP_TEXT, LS_DUMP_GRAPHVIZ } ls_dump_format;

/* A readable listing of the graph in a string that the caller frees with free(). In Graphviz's, nodes that were run
 * have a colour for their device. */
LS_API ls_status ls_graph_dump(const ls_graph *graph, ls_dump_format format, char **out);
LS_API size_t ls_graph_node_count(const ls_graph *graph);

/* ---- Asking a tensor ---- */

LS_API ls_dtype ls_tensor_dtype(const ls_tensor *tensor);
LS_API ls_shape ls_tensor_shape(const ls_tensor *tensor);
LS_API bool ls_tensor_is_per_sample(const ls_tensor *tensor);
LS_API bool ls_tensor_is_error(const ls_tensor *tensor);
LS_API const char *ls_tensor_op(const ls_tensor *tensor);   /* "matmul" */
LS_API const char *ls_tensor_name(const ls_tensor *tensor); /* "g1/cross_entropy", or "" */
LS_API ls_graph *ls_tensor_graph(const ls_tensor *tensor);
LS_API int ls_tensor_input_count(const ls_tensor *tensor);
LS_API const ls_tensor *ls_tensor_input(const ls_tensor *tensor, int i); /* NULL: there is no such input */
LS_API bool ls_tensor_reduces(const ls_tensor *tensor); /* whether it reduces the batch axis of an input */

/* The numbers of an attribute, as a dump of the graph names it ("stride", "slope"); flags are 0 and 1. *count is how
 * many there are; the first `room` of them are written to `values`. */
LS_API ls_status ls_tensor_attribute(const ls_tensor *tensor, const char *name, int room, double *values, int *count);

/* ---- Gradients ---- */

typedef struct ls_gradients_options {
    ls_tensor *cotangent; /* the loss's own gradient; NULL: ones, so a loss that is no scalar is summed */
    bool zeros;           /* a variable that the loss does not depend on gets zeros, not NULL */
} ls_gradients_options;

/* Appends the backward nodes of `loss`; out[i] is the gradient of variables[i] (any tensor), or NULL when the loss does
 * not depend on it. May be called again, for other losses, other variables, or gradients of gradients. */
LS_API ls_status ls_gradients(ls_tensor *loss, ls_tensor *const *variables, size_t count, ls_tensor **out);
LS_API ls_status ls_gradients_with(ls_tensor *loss, ls_tensor *const *variables, size_t count,
                                   ls_gradients_options options, ls_tensor **out);

/* ---- Leaves ---- */

LS_API ls_tensor *ls_op_constant(ls_graph *graph, ls_dtype dtype, ls_shape shape, const void *data); /* data: copied */
LS_API ls_tensor *ls_op_scalar(ls_graph *graph, ls_dtype dtype, double value);
/* shape may be per-sample */
LS_API ls_tensor *ls_op_fill(ls_graph *graph, ls_dtype dtype, ls_shape shape, double value);

/* A value to be fed to each run. */
LS_API ls_tensor *ls_op_input(ls_graph *graph, const char *name, ls_dtype dtype, ls_shape shape);

/* Samples in the batch of the run, a scalar. */
LS_API ls_tensor *ls_op_count(ls_graph *graph, ls_dtype dtype);

/* Initial values of variables, by Keras's formulas; the same seed gives the same bits anywhere. */
typedef enum ls_initializer_kind {
    LS_INIT_DEFAULT = 0, /* a layer's own: Glorot uniform for kernels, zeros for biases; of ls_op_variable zeros */
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
    LS_INIT_VARIANCE_UNIFORM, /* VarianceScaling: scale a, fan b; uniform, truncated normal, or normal */
    LS_INIT_VARIANCE_NORMAL,
    LS_INIT_VARIANCE_UNTRUNCATED,
} ls_initializer_kind;

typedef enum ls_fan { LS_FAN_IN = 0, LS_FAN_OUT, LS_FAN_AVG } ls_fan;

/* .initializer = { .kind = LS_INIT_NORMAL, .b = 0.01 }, .kernel_initializer = { .kind = LS_INIT_HE_NORMAL }. Numbers
 * left out are Keras's: deviation 0.05, -0.05 to 0.05, gain and scale 1. */
typedef struct ls_initializer {
    ls_initializer_kind kind;
    double a, b;
    uint64_t seed; /* 0: values come from the seed of the model or graph; else from this one alone */
} ls_initializer;

/* State that outlives a run; it is whole.
 *     ls_op_variable(graph, "w", LS_F32, LS_SHAPE(3, 4), .data = values)
 *     ls_op_variable(graph, "w", LS_F32, LS_SHAPE(3, 4), .initializer = { .kind = LS_INIT_GLOROT_UNIFORM })
 * Integers and bools begin as data, zeros, ones or a constant. */
typedef struct ls_variable_op {
    int ls_first;
    ls_shape shape;
    const void *data; /* copied; NULL: as the initializer says */
    ls_initializer initializer;
    bool frozen; /* ls_minimize leaves it alone */
} ls_variable_op;
#define ls_op_variable(graph, name, dtype, ...)                                                                        \
    ls_op_variable_with(graph, name, dtype, (ls_variable_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_variable_with(ls_graph *graph, const char *name, ls_dtype dtype, ls_variable_op options);
LS_API ls_status ls_variable_set(ls_tensor *variable, const void *data, size_t bytes);
LS_API ls_status ls_variable_get(const ls_tensor *variable, void *data, size_t bytes);

/* Writes of a run appear together when the run has succeeded; the tensor's value is the new value. */
LS_API ls_tensor *ls_op_assign(ls_tensor *variable, ls_tensor *value);
LS_API ls_tensor *ls_op_assign_add(ls_tensor *variable, ls_tensor *delta);

/* An optimizer's update of one variable and its slots, done as one node. */
typedef enum ls_apply_rule {
    LS_APPLY_SGD,         /* w -= lr g */
    LS_APPLY_MOMENTUM,    /* slot m = momentum m - lr g;  w += m      (Keras) */
    LS_APPLY_NESTEROV,    /* slot m likewise;  w += momentum m - lr g */
    LS_APPLY_ADAM,        /* slots m, v; step from 1; w -= lr sqrt(1-b2^t)/(1-b1^t) m / (sqrt(v) + epsilon)   (Keras) */
    LS_APPLY_RMSPROP,     /* slot v = rho v + (1-rho) g^2;  w -= lr g / sqrt(v + epsilon)                  (Keras);
                           * with momentum a second slot m = momentum m + lr g / sqrt(v + epsilon);  w -= m */
    LS_APPLY_RMSPROP_TF1, /* slots v, m;  m = momentum m + lr g / sqrt(v + epsilon);  w -= m              (TF 1) */
    LS_APPLY_ADAGRAD,     /* slot a += g^2;  w -= lr g / sqrt(a + epsilon) */
    LS_APPLY_SUM,         /* w = step w + lr g: a running sum of gradients; a step of 0 begins it anew */
} ls_apply_rule;

typedef struct ls_apply_op {
    int ls_first;
    ls_apply_rule rule;
    ls_tensor *learning_rate; /* scalar of the variable's dtype */
    ls_tensor *step;          /* scalar, counted from 1; Adam alone, and SUM's factor */
    ls_tensor *slots[2];      /* variables of the same shape and dtype */
    double momentum, beta_1, beta_2, rho, epsilon;
    double weight_decay; /* decoupled: w -= lr weight_decay w, first */
    ls_tensor *when;     /* bool scalar: false leaves the variable and its slots as they are; NULL: always */
} ls_apply_op;
#define ls_op_apply(variable, gradient, ...)                                                                           \
    ls_op_apply_with(variable, gradient, (ls_apply_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_apply_with(ls_tensor *variable, ls_tensor *gradient, ls_apply_op options);

/* Fetching the group runs all its parts, for the variables they write. Its own value is a scalar 0. */
LS_API ls_tensor *ls_op_group(ls_tensor *const *parts, size_t count);

/* New numbers every run, the same for the same (seed, run, sample, node): Philox. */
LS_API ls_tensor *ls_op_random_uniform(ls_graph *graph, ls_dtype dtype, ls_shape shape, double low, double high);
LS_API ls_tensor *ls_op_random_normal(ls_graph *graph, ls_dtype dtype, ls_shape shape, double mean, double deviation);

/* ---- Batch ---- */

LS_API ls_tensor *ls_op_gather_batch(ls_tensor *x);  /* per-sample to whole: all samples of the batch, in order */
LS_API ls_tensor *ls_op_scatter_batch(ls_tensor *x); /* back: row i of a whole [LS_BATCH,...] to sample i */
LS_API ls_tensor *ls_op_stop_gradient(ls_tensor *x);

/* ---- Elementwise: shapes broadcast as in NumPy, types must be equal ---- */

LS_API ls_tensor *ls_op_cast(ls_tensor *x, ls_dtype dtype);
LS_API ls_tensor *ls_op_add(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_op_sub(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_op_mul(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_op_div(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_op_pow(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_op_maximum(ls_tensor *a, ls_tensor *b); /* equal: the gradient goes to a */
LS_API ls_tensor *ls_op_minimum(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_op_scale(ls_tensor *x, double factor);
LS_API ls_tensor *ls_op_shift(ls_tensor *x, double amount);

typedef enum ls_relation { LS_EQUAL, LS_NOT_EQUAL, LS_LESS, LS_LESS_EQUAL, LS_GREATER, LS_GREATER_EQUAL } ls_relation;
LS_API ls_tensor *ls_op_compare(ls_tensor *a, ls_relation relation, ls_tensor *b); /* bool */
LS_API ls_tensor *ls_op_select(ls_tensor *condition, ls_tensor *a, ls_tensor *b);  /* condition ? a : b */

LS_API ls_tensor *ls_op_neg(ls_tensor *x);
LS_API ls_tensor *ls_op_abs(ls_tensor *x);
LS_API ls_tensor *ls_op_sign(ls_tensor *x);
LS_API ls_tensor *ls_op_exp(ls_tensor *x);
LS_API ls_tensor *ls_op_log(ls_tensor *x);
LS_API ls_tensor *ls_op_sqrt(ls_tensor *x);
LS_API ls_tensor *ls_op_rsqrt(ls_tensor *x);
LS_API ls_tensor *ls_op_square(ls_tensor *x);
LS_API ls_tensor *ls_op_erf(ls_tensor *x);
LS_API ls_tensor *ls_op_clip(ls_tensor *x, double low, double high);
LS_API ls_tensor *ls_op_relu(ls_tensor *x);
LS_API ls_tensor *ls_op_leaky_relu(ls_tensor *x, double slope);
LS_API ls_tensor *ls_op_sigmoid(ls_tensor *x);
LS_API ls_tensor *ls_op_tanh(ls_tensor *x);
LS_API ls_tensor *ls_op_softplus(ls_tensor *x);
LS_API ls_tensor *ls_op_gelu(ls_tensor *x, bool tanh_form);
LS_API ls_tensor *ls_op_silu(ls_tensor *x);
LS_API ls_tensor *ls_op_elu(ls_tensor *x, double alpha);

/* ---- Shapes ---- */

/* The batch axis stays axis 0: LS_SHAPE(LS_BATCH, ...). */
LS_API ls_tensor *ls_op_reshape(ls_tensor *x, ls_shape shape);
LS_API ls_tensor *ls_op_flatten(ls_tensor *x); /* [N, everything else]; a whole tensor: [everything] */
LS_API ls_tensor *ls_op_transpose(ls_tensor *x, ls_axes permutation);
LS_API ls_tensor *ls_op_broadcast(ls_tensor *x, ls_shape shape);
LS_API ls_tensor *ls_op_concat(ls_tensor *const *parts, size_t count, int axis);
LS_API ls_tensor *ls_op_slice(ls_tensor *x, ls_axes begin, ls_axes size); /* size -1: to the end */
/* Python's x[begin:end:step]; step > 0. A batch axis is taken whole: begin 0, end LS_BATCH, step 1. */
LS_API ls_tensor *ls_op_strided_slice(ls_tensor *x, ls_axes begin, ls_axes end, ls_axes step);
/* Cuts `axis` into parts of the given sizes; `out` has room for sizes.count tensors. Errors are error tensors. */
LS_API void ls_op_split(ls_tensor *x, int axis, ls_axes sizes, ls_tensor **out);
LS_API ls_tensor *ls_op_pad(ls_tensor *x, ls_axes before, ls_axes after, double value);
LS_API ls_tensor *ls_op_gather(ls_tensor *x, ls_tensor *indices, int axis); /* indices i32 or i64; embedding: axis 0 */
LS_API ls_tensor *ls_op_one_hot(ls_tensor *indices, ls_dtype dtype, int64_t depth);

/* ---- Products ---- */

typedef struct ls_matmul_op {
    int ls_first;
    ls_tensor *b;
    bool transpose_a, transpose_b;
} ls_matmul_op;
/* Of the last two axes; axes before them broadcast. Contracting the batch axis reduces it (a weight's gradient).
 *     ls_op_matmul(a, b, .transpose_b = true) */
#define ls_op_matmul(a, ...) ls_op_matmul_with(a, (ls_matmul_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_matmul_with(ls_tensor *a, ls_matmul_op options);

/* ---- Reductions; over the batch axis too ---- */

LS_API ls_tensor *ls_op_reduce_sum(ls_tensor *x, ls_axes axes, bool keepdims);
LS_API ls_tensor *ls_op_reduce_mean(ls_tensor *x, ls_axes axes, bool keepdims);
LS_API ls_tensor *ls_op_reduce_max(ls_tensor *x, ls_axes axes, bool keepdims);
LS_API ls_tensor *ls_op_reduce_min(ls_tensor *x, ls_axes axes, bool keepdims);
LS_API ls_tensor *ls_op_argmax(ls_tensor *x, int axis);         /* i64; the first of equals */
LS_API ls_tensor *ls_op_top_k(ls_tensor *x, int64_t k);         /* of the last axis, largest first */
LS_API ls_tensor *ls_op_top_k_indices(ls_tensor *x, int64_t k); /* i64 */
LS_API ls_tensor *ls_op_softmax(ls_tensor *x, int axis);
LS_API ls_tensor *ls_op_log_softmax(ls_tensor *x, int axis);

/* ---- Images ---- */

/* LS_SAME: TensorFlow's rule. LS_EXPLICIT: as many pixels as `pad` says. Everywhere in the library the four sides stand
 * in the order top, bottom, left, right, as in Keras's ((top, bottom), (left, right)). */
typedef enum ls_padding { LS_VALID, LS_SAME, LS_EXPLICIT } ls_padding;

typedef struct ls_conv2d_op {
    int ls_first;
    ls_tensor *kernel;              /* [H,W,in/groups,out] */
    int64_t stride[2], dilation[2]; /* 0: 1 */
    int64_t groups;                 /* 0: 1; as many as channels: depthwise */
    ls_padding padding;
    int64_t pad[4]; /* with LS_EXPLICIT: top, bottom, left, right */
} ls_conv2d_op;
#define ls_op_conv2d(x, ...) ls_op_conv2d_with(x, (ls_conv2d_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_conv2d_with(ls_tensor *x, ls_conv2d_op options);

typedef struct ls_pool2d_op {
    int ls_first;
    int64_t window[2];
    int64_t stride[2]; /* 0: the window */
    ls_padding padding;
    int64_t pad[4];     /* with LS_EXPLICIT: top, bottom, left, right */
    bool count_padding; /* average: padding counts as zeros */
} ls_pool2d_op;
#define ls_op_max_pool2d(x, ...)     ls_op_max_pool2d_with(x, (ls_pool2d_op){ .ls_first = 0, __VA_ARGS__ })
#define ls_op_average_pool2d(x, ...) ls_op_average_pool2d_with(x, (ls_pool2d_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_max_pool2d_with(ls_tensor *x, ls_pool2d_op options);
LS_API ls_tensor *ls_op_average_pool2d_with(ls_tensor *x, ls_pool2d_op options);
LS_API ls_tensor *ls_op_global_max_pool2d(ls_tensor *x);     /* [N,H,W,C] to [N,C] */
LS_API ls_tensor *ls_op_global_average_pool2d(ls_tensor *x); /* [N,H,W,C] to [N,C] */

/* ---- Normalisation and dropout ---- */

/* What a batch norm in training normalises a sample by. */
typedef enum ls_norm_statistics {
    LS_PER_BATCH = 0, /* the whole batch: what one device would have seen. All lanes meet at every norm */
    LS_PER_LANE,      /* its own lane: lanes need not wait for each other. Moving averages are those of the batch */
} ls_norm_statistics;

typedef struct ls_batch_norm_op {
    int ls_first;
    ls_tensor *gamma, *beta;                  /* [C]; NULL: ones, zeros */
    ls_tensor *moving_mean, *moving_variance; /* variables [C]; needed for inference, updated in training if given */
    bool training;                            /* normalise by the statistics of the batch */
    ls_norm_statistics statistics;
    double epsilon;      /* 0: 1e-3 */
    double momentum;     /* 0: 0.99 */
    bool unbiased;       /* the moving variance is PyTorch's n/(n-1) one, not Keras's */
    ls_tensor **updates; /* out, in training: two assignments of the moving statistics, to be run with the step */
} ls_batch_norm_op;
/* Over all axes but the last: ls_op_batch_norm(x, .training = true, ...) */
#define ls_op_batch_norm(...)                                                                                          \
    ls_op_batch_norm_with(LS_ARGUMENT_1_(__VA_ARGS__, ),                                                               \
                          (ls_batch_norm_op){ .ls_first = 0, LS_AFTER_1_(__VA_ARGS__, ) })
LS_API ls_tensor *ls_op_batch_norm_with(ls_tensor *x, ls_batch_norm_op options);

typedef struct ls_layer_norm_op {
    int ls_first;
    ls_tensor *gamma, *beta; /* shaped as the normalised axes; NULL: ones, zeros */
    int axes;                /* how many last axes; 0: 1 */
    double epsilon;          /* 0: 1e-3 */
} ls_layer_norm_op;
/* ls_op_layer_norm(x, .gamma = gamma, .beta = beta) */
#define ls_op_layer_norm(...)                                                                                          \
    ls_op_layer_norm_with(LS_ARGUMENT_1_(__VA_ARGS__, ),                                                               \
                          (ls_layer_norm_op){ .ls_first = 0, LS_AFTER_1_(__VA_ARGS__, ) })
LS_API ls_tensor *ls_op_layer_norm_with(ls_tensor *x, ls_layer_norm_op options);

/* Zero with probability `rate`, else x / (1 - rate). rate: a scalar of x's type, constant or fed. */
LS_API ls_tensor *ls_op_dropout(ls_tensor *x, ls_tensor *rate);

/* ---- Losses ---- */

/* Targets first, then predictions, as everywhere in the library and in Keras. Each gives one value a sample, over the
 * last axis, to be reduced as one likes. Labels of the sparse cross-entropy are integers, one axis less than the
 * scores; all other targets have the shape and type of the predictions. */
typedef enum ls_scores { LS_LOGITS, LS_PROBABILITIES } ls_scores;
/* Probabilities that come straight from a softmax or sigmoid use its logits; others are clipped to 1e-7 .. 1 - 1e-7 as
 * Keras does: cross_entropy divides by their sum first, sparse_cross_entropy renormalises after. */
LS_API ls_tensor *ls_op_sparse_cross_entropy(ls_tensor *labels, ls_tensor *scores, ls_scores kind);
LS_API ls_tensor *ls_op_cross_entropy(ls_tensor *labels, ls_tensor *scores, ls_scores kind);
LS_API ls_tensor *ls_op_binary_cross_entropy(ls_tensor *labels, ls_tensor *scores, ls_scores kind);
LS_API ls_tensor *ls_op_mean_squared_error(ls_tensor *targets, ls_tensor *predictions);
LS_API ls_tensor *ls_op_mean_absolute_error(ls_tensor *targets, ls_tensor *predictions);
LS_API ls_tensor *ls_op_huber(ls_tensor *targets, ls_tensor *predictions, double delta);

#ifdef __cplusplus
}
#endif
#endif
