/* lockstep/graph.h: tensors, ops and gradients.
 *
 * A tensor is symbolic: an op adds a node to a graph, and nothing is computed until the tensor
 * is run or read (lockstep/run.h). Ops are *builders*: they always return a tensor, which the
 * graph owns. A wrong call returns an error tensor, and every op on an error tensor returns one
 * too; the first call that runs or differentiates it reports the message.
 *
 * Axis 0 of a tensor may be the batch axis, with size LS_BATCH until a run knows it. Such a
 * tensor is *per-sample*; any other is *whole*. An op keeps the batch axis (sample by sample) or
 * reduces it. An op that would mix samples is refused, unless the tensor went through
 * ls_op_gather_batch. Layouts are Keras's: images [N,H,W,C], kernels [H,W,in,out]. */
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
#define LS_BATCH     (-1) /* size of a batch axis; each run's feeds set it */
#define LS_REMAINING (-2) /* in a reshape: the remaining elements */

typedef struct ls_shape {
    int rank; /* 0: a scalar */
    int64_t dims[LS_MAX_RANK];
} ls_shape;

#ifndef __cplusplus /* cplusplus.h has them as functions */
#define LS_COUNT_(...) ((int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))
#define LS_SHAPE(...)  ((ls_shape){ .rank = LS_COUNT_(__VA_ARGS__), .dims = { __VA_ARGS__ } })
#define LS_SCALAR      ((ls_shape){ .rank = 0 })
#define LS_AXES(...)   ((ls_axes){ .count = LS_COUNT_(__VA_ARGS__), .axis = { __VA_ARGS__ } })
#define LS_ALL_AXES    ((ls_axes){ .count = -1 })
#endif

/* Axes to operate on; negative axes count from the end. */
typedef struct ls_axes {
    int count; /* -1: all axes */
    int64_t axis[LS_MAX_RANK];
} ls_axes;

/* Means the number 0 for options where 0 selects the default. */
#define LS_ZERO (-0x1p-1022)

/* ---- Graphs ---- */

typedef struct ls_graph_options {
    int ls_first;
    uint64_t seed; /* seed of all random numbers of the graph (default 0) */
} ls_graph_options;

/* Only one thread at a time may use a graph or its model; different threads may use different
 * graphs. While one thread's call runs, calls of other threads on that graph fail with
 * LS_ERR_STATE: builders return an error tensor, scopes do not open, counts are 0. A callback may
 * use the graph of the call that runs it. ls_tensor_... and queries of a finished model (names,
 * shapes, variables, counts) are always allowed. */

/* Creates a graph: ls_graph_create(ctx, &graph, .seed = 1). The context must outlive the graph,
 * and the caller destroys the graph. */
#define ls_graph_create(...)                                                                                           \
    ls_graph_create_with(LS_ARGUMENT_1_(__VA_ARGS__, ),                                                                \
                         (ls_graph_options){ .ls_first = 0, LS_AFTER_2_(__VA_ARGS__, ) },                              \
                         LS_ARGUMENT_2_(__VA_ARGS__, ))
LS_API ls_status ls_graph_create_with(ls_context *ctx, ls_graph_options options, ls_graph **out);
/* Destroys a graph with its tensors, variables and values. */
LS_API void ls_graph_destroy(ls_graph *graph);

/* Returns LS_OK, or the first error of a builder of this graph, whose
 * message becomes the last error. */
LS_API ls_status ls_graph_status(ls_graph *graph);

/* A scope owns what is made inside: nodes, variables, values, names.
 * They are freed when it ends.
 *     LS_SCOPE(graph) { ... }        break and return end it too */
typedef struct ls_scope {
    ls_graph *graph;
    bool open;
} ls_scope;

/* Open and close a scope; LS_SCOPE calls both. */
LS_API ls_scope ls_scope_open(ls_graph *graph);
LS_API void ls_scope_close(ls_scope *scope);
#define LS_SCOPE(graph)                                                                                                \
    for (ls_scope ls_scope_ __attribute__((cleanup(ls_scope_close))) = ls_scope_open(graph); ls_scope_.open;           \
         ls_scope_close(&ls_scope_))

/* Puts "name/" before the names of nodes made inside. */
typedef struct ls_name_scope {
    ls_graph *graph;
    const char *outer; /* the prefix outside this scope */
    bool open;
} ls_name_scope;

/* Open and close a name scope; LS_NAME_SCOPE calls both. */
LS_API ls_name_scope ls_name_scope_open(ls_graph *graph, const char *name);
LS_API void ls_name_scope_close(ls_name_scope *scope);
#define LS_NAME_SCOPE(graph, name)                                                                                     \
    for (ls_name_scope ls_name_scope_ __attribute__((cleanup(ls_name_scope_close))) = ls_name_scope_open(graph, name); \
         ls_name_scope_.open; ls_name_scope_close(&ls_name_scope_))

/* Names `tensor` within the open name scopes and returns it. Names are unique in a graph. */
LS_API ls_tensor *ls_named(ls_tensor *tensor, const char *name);

/* Finds a tensor by its full name, "g1/cross_entropy"; TensorFlow's suffix ":0" is accepted. */
LS_API ls_status ls_graph_find(ls_graph *graph, const char *name, ls_tensor **out);

typedef enum ls_dump_format { LS_DUMP_TEXT, LS_DUMP_GRAPHVIZ } ls_dump_format;

/* Returns a listing of the graph that the caller frees. In Graphviz format, nodes that were
 * run are coloured by device. */
LS_API ls_status ls_graph_dump(const ls_graph *graph, ls_dump_format format, char **out);
/* Returns the number of nodes of the graph. */
LS_API size_t ls_graph_node_count(const ls_graph *graph);

/* ---- Properties of a tensor; strings and tensors belong to the graph ---- */

/* Return the element type, the shape (LS_BATCH for a batch axis), whether there is a value per
 * sample, and whether the call that made the tensor failed. */
LS_API ls_dtype ls_tensor_dtype(const ls_tensor *tensor);
LS_API ls_shape ls_tensor_shape(const ls_tensor *tensor);
LS_API bool ls_tensor_is_per_sample(const ls_tensor *tensor);
LS_API bool ls_tensor_is_error(const ls_tensor *tensor);
/* Returns the name of the op, such as "matmul". */
LS_API const char *ls_tensor_op(const ls_tensor *tensor);
/* Returns the name, such as "g1/cross_entropy", or "". */
LS_API const char *ls_tensor_name(const ls_tensor *tensor);
/* Return the graph that owns the tensor, and the number of its inputs. */
LS_API ls_graph *ls_tensor_graph(const ls_tensor *tensor);
LS_API int ls_tensor_input_count(const ls_tensor *tensor);
/* Returns input i; NULL if there is no such input. */
LS_API const ls_tensor *ls_tensor_input(const ls_tensor *tensor, int i);
/* Returns whether the op reduces the batch axis of an input. */
LS_API bool ls_tensor_reduces(const ls_tensor *tensor);

/* Returns the numbers of an attribute, named as in a dump of the graph ("stride",
 * "slope"); flags are 0 and 1. Sets *count to how many there are and writes the first
 * `room` of them to `values`. */
LS_API ls_status ls_tensor_attribute(const ls_tensor *tensor, const char *name, int room, double *values, int *count);

/* ---- Gradients ---- */

typedef struct ls_gradients_options {
    /* gradient of the loss itself (default: ones, which sums a loss that is not a scalar) */
    ls_tensor *cotangent;
    /* returns zeros instead of NULL if the loss does not depend on a variable */
    bool zeros;
} ls_gradients_options;

/* Adds the backward nodes of `loss`. Sets out[i] to the gradient of variables[i] (any tensor),
 * or NULL if the loss does not depend on it. May be called again, for other losses and variables
 * or for gradients of gradients. */
LS_API ls_status ls_gradients(ls_tensor *loss, ls_tensor *const *variables, size_t count, ls_tensor **out);
/* The same, with options. */
LS_API ls_status ls_gradients_with(ls_tensor *loss, ls_tensor *const *variables, size_t count,
                                   ls_gradients_options options, ls_tensor **out);

/* ---- Constants, inputs and variables ---- */

/* Returns a constant. The data is copied. */
LS_API ls_tensor *ls_op_constant(ls_graph *graph, ls_dtype dtype, ls_shape shape, const void *data);
/* Returns a constant scalar. */
LS_API ls_tensor *ls_op_scalar(ls_graph *graph, ls_dtype dtype, double value);
/* Returns a tensor filled with one value; the shape may be per-sample. */
LS_API ls_tensor *ls_op_fill(ls_graph *graph, ls_dtype dtype, ls_shape shape, double value);

/* Returns an input, which each run must feed. */
LS_API ls_tensor *ls_op_input(ls_graph *graph, const char *name, ls_dtype dtype, ls_shape shape);

/* Returns the number of samples in the batch of the run, a scalar. */
LS_API ls_tensor *ls_op_count(ls_graph *graph, ls_dtype dtype);

/* Initial values of variables, with Keras's formulas. Equal seeds give equal bits everywhere. */
typedef enum ls_initializer_kind {
    /* The layer's default: Glorot uniform for kernels, zeros for biases and ls_op_variable. */
    LS_INIT_DEFAULT = 0,
    LS_INIT_GLOROT_UNIFORM,
    LS_INIT_GLOROT_NORMAL,
    LS_INIT_HE_UNIFORM,
    LS_INIT_HE_NORMAL,
    LS_INIT_LECUN_UNIFORM,
    LS_INIT_LECUN_NORMAL,
    LS_INIT_ZEROS,
    LS_INIT_ONES,
    LS_INIT_CONSTANT,         /* value a */
    LS_INIT_UNIFORM,          /* from a to b */
    LS_INIT_NORMAL,           /* mean a, standard deviation b */
    LS_INIT_TRUNCATED_NORMAL, /* the same, redrawn beyond two deviations */
    LS_INIT_ORTHOGONAL,       /* gain a */
    /* VarianceScaling with scale a and fan b: uniform, truncated normal, and normal. */
    LS_INIT_VARIANCE_UNIFORM,
    LS_INIT_VARIANCE_NORMAL,
    LS_INIT_VARIANCE_UNTRUNCATED,
} ls_initializer_kind;

typedef enum ls_fan { LS_FAN_IN = 0, LS_FAN_OUT, LS_FAN_AVG } ls_fan;

/* .initializer = { .kind = LS_INIT_NORMAL, .b = 0.01 }. Numbers that are not set are Keras's:
 * deviation 0.05, range -0.05 to 0.05, gain and scale 1. */
typedef struct ls_initializer {
    ls_initializer_kind kind;
    double a, b;
    /* seed of these values (default 0: derived from the seed of the model or graph) */
    uint64_t seed;
} ls_initializer;

typedef enum ls_constraint_kind {
    LS_CONSTRAINT_NONE = 0,
    LS_MAX_NORM,     /* norms above max_value become max_value (default 2) */
    LS_NON_NEG,      /* numbers below 0 become 0 */
    LS_UNIT_NORM,    /* norms become 1 */
    LS_MIN_MAX_NORM, /* norms come from min_value (default 0) to max_value (default 1) */
} ls_constraint_kind;

/* What an optimizer does with a variable after each update, as in Keras:
 * .kernel_constraint = { .kind = LS_MAX_NORM, .max_value = 3 } */
typedef struct ls_constraint {
    ls_constraint_kind kind;
    double max_value, min_value; /* LS_ZERO: 0 */
    double rate;                 /* min-max: how far to go, from 0 to 1 (default 1) */
    ls_axes axis;                /* axes that a norm sums over (default LS_AXES(0)) */
} ls_constraint;

/* Returns a variable: state that outlives a run. A variable is always whole.
 *     ls_op_variable(graph, "w", LS_F32, LS_SHAPE(3, 4), .data = values)
 *     ls_op_variable(graph, "w", LS_F32, LS_SHAPE(3, 4),
 *                    .initializer = { .kind = LS_INIT_GLOROT_UNIFORM })
 * Integer and bool variables start with data, zeros, ones or a constant. */
typedef struct ls_variable_op {
    int ls_first;
    ls_shape shape;
    const void *data;           /* initial value, copied (default: from the initializer) */
    ls_initializer initializer; /* initial values without data (default zeros) */
    bool frozen;                /* excludes it from ls_minimize (default false) */
    ls_constraint constraint;   /* applied by optimizers after each update (default none) */
} ls_variable_op;
#define ls_op_variable(graph, name, dtype, ...)                                                                        \
    ls_op_variable_with(graph, name, dtype, (ls_variable_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_variable_with(ls_graph *graph, const char *name, ls_dtype dtype, ls_variable_op options);
/* Write and read the value of a variable; `bytes` must be its size. */
LS_API ls_status ls_variable_set(ls_tensor *variable, const void *data, size_t bytes);
LS_API ls_status ls_variable_get(const ls_tensor *variable, void *data, size_t bytes);

/* Return a node that writes a variable, and whose value is the new value. All writes of a run
 * take effect together when the run has succeeded. */
LS_API ls_tensor *ls_op_assign(ls_tensor *variable, ls_tensor *value);
LS_API ls_tensor *ls_op_assign_add(ls_tensor *variable, ls_tensor *delta);

/* Update of one variable and its slots by an optimizer, in a single node. */
typedef enum ls_apply_rule {
    /* w -= lr g */
    LS_APPLY_SGD,
    /* Keras: slot m = momentum m - lr g;  w += m */
    LS_APPLY_MOMENTUM,
    /* Keras: slot m as for momentum;  w += momentum m - lr g */
    LS_APPLY_NESTEROV,
    /* Keras: slots m, v; step from 1;  w -= lr sqrt(1-b2^t)/(1-b1^t) m / (sqrt(v) + epsilon) */
    LS_APPLY_ADAM,
    /* Keras: slot v = rho v + (1-rho) g^2;  w -= lr g / sqrt(v + epsilon). With momentum, a second
     * slot m = momentum m + lr g / sqrt(v + epsilon);  w -= m */
    LS_APPLY_RMSPROP,
    /* TensorFlow 1: slots v, m;  m = momentum m + lr g / sqrt(v + epsilon);  w -= m */
    LS_APPLY_RMSPROP_TF1,
    /* slot a += g^2;  w -= lr g / sqrt(a + epsilon) */
    LS_APPLY_ADAGRAD,
    /* w = step w + lr g: a running sum of gradients; step 0 restarts it. */
    LS_APPLY_SUM,
    /* Keras: slots a = rho a + (1-rho) g^2, b = rho b + (1-rho) d^2;  w -= lr d, where
     * d = g sqrt(b + epsilon) / sqrt(a + epsilon) with the old b */
    LS_APPLY_ADADELTA,
    /* Keras: slots m, n = max(b2 n, |g|); step from 1;  w -= lr m / ((1-b1^t) (n + epsilon)) */
    LS_APPLY_ADAMAX,
    /* Keras: slots m, v; step from 1. u_t = b1 (1 - 0.96^t / 2), P_t is the product of u_1 to u_t;
     * w -= lr (u_t+1 m / (1 - P_t+1) + (1 - u_t) g / (1 - P_t)) / (sqrt(v / (1-b2^t)) + epsilon) */
    LS_APPLY_NADAM,
    /* Keras: slots a, z; a' = a + g^2;  z += g + 2 shrinkage w - (sqrt(a') - sqrt(a)) / lr w;
     * w = (clip(z, -l1, l1) - z) / ((sqrt(a') + beta) / lr + 2 l2) */
    LS_APPLY_FTRL,
    /* Keras: slot m;  w -= lr sign(b1 m + (1-b1) g);  then m = b2 m + (1-b2) g */
    LS_APPLY_LION,
} ls_apply_rule;

typedef struct ls_apply_op {
    int ls_first;
    ls_apply_rule rule;
    ls_tensor *learning_rate; /* scalar of the variable's dtype */
    /* scalar; for Adam, Adamax and Nadam the step, counted from 1, and for SUM its factor;
     * otherwise unused */
    ls_tensor *step;
    ls_tensor *slots[2]; /* variables of the same shape and dtype */
    double momentum, beta_1, beta_2, rho, epsilon;
    double weight_decay;            /* decoupled: w -= lr weight_decay w, before the update (default 0) */
    double l1, l2, shrinkage, beta; /* FTRL (default 0) */
    /* bool scalar: false leaves the variable and its slots unchanged
     * (default NULL: always update) */
    ls_tensor *when;
} ls_apply_op;
/* Returns a node that updates a variable and its slots from a gradient. */
#define ls_op_apply(variable, gradient, ...)                                                                           \
    ls_op_apply_with(variable, gradient, (ls_apply_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_apply_with(ls_tensor *variable, ls_tensor *gradient, ls_apply_op options);

/* Returns a node that runs all its parts, for the variables they write. Its
 * own value is a scalar 0. */
LS_API ls_tensor *ls_op_group(ls_tensor *const *parts, size_t count);

/* Return random numbers that are new in every run, and equal for equal seed, run,
 * sample and node (Philox). */
LS_API ls_tensor *ls_op_random_uniform(ls_graph *graph, ls_dtype dtype, ls_shape shape, double low, double high);
LS_API ls_tensor *ls_op_random_normal(ls_graph *graph, ls_dtype dtype, ls_shape shape, double mean, double deviation);

/* ---- Batch ---- */

/* Makes a per-sample tensor whole: all samples of the batch, in order. */
LS_API ls_tensor *ls_op_gather_batch(ls_tensor *x);
/* Makes a whole tensor [LS_BATCH,...] per-sample: row i becomes sample i. */
LS_API ls_tensor *ls_op_scatter_batch(ls_tensor *x);
/* Returns x, but no gradient flows through it. */
LS_API ls_tensor *ls_op_stop_gradient(ls_tensor *x);

/* ---- Elementwise ops: shapes broadcast as in NumPy; types must be equal ---- */

LS_API ls_tensor *ls_op_cast(ls_tensor *x, ls_dtype dtype);
LS_API ls_tensor *ls_op_add(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_op_sub(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_op_mul(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_op_div(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_op_pow(ls_tensor *a, ls_tensor *b);
/* Where both are equal, the gradient goes to a. */
LS_API ls_tensor *ls_op_maximum(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_op_minimum(ls_tensor *a, ls_tensor *b);
/* Return x * factor and x + amount. */
LS_API ls_tensor *ls_op_scale(ls_tensor *x, double factor);
LS_API ls_tensor *ls_op_shift(ls_tensor *x, double amount);

typedef enum ls_relation { LS_EQUAL, LS_NOT_EQUAL, LS_LESS, LS_LESS_EQUAL, LS_GREATER, LS_GREATER_EQUAL } ls_relation;
/* Returns a bool tensor. */
LS_API ls_tensor *ls_op_compare(ls_tensor *a, ls_relation relation, ls_tensor *b);
/* Returns condition ? a : b for each element. */
LS_API ls_tensor *ls_op_select(ls_tensor *condition, ls_tensor *a, ls_tensor *b);

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
LS_API ls_tensor *ls_op_capped_relu(ls_tensor *x, double limit); /* min(relu(x), limit): with 6, relu6 */
LS_API ls_tensor *ls_op_sigmoid(ls_tensor *x);
LS_API ls_tensor *ls_op_tanh(ls_tensor *x);
LS_API ls_tensor *ls_op_softplus(ls_tensor *x);
LS_API ls_tensor *ls_op_gelu(ls_tensor *x, bool tanh_form);
LS_API ls_tensor *ls_op_silu(ls_tensor *x);
LS_API ls_tensor *ls_op_elu(ls_tensor *x, double alpha);

/* ---- Shapes ---- */

/* Changes the shape. The batch axis stays axis 0: LS_SHAPE(LS_BATCH, ...). */
LS_API ls_tensor *ls_op_reshape(ls_tensor *x, ls_shape shape);
/* Returns [N, everything else]; for a whole tensor [everything]. */
LS_API ls_tensor *ls_op_flatten(ls_tensor *x);
LS_API ls_tensor *ls_op_transpose(ls_tensor *x, ls_axes permutation);
LS_API ls_tensor *ls_op_broadcast(ls_tensor *x, ls_shape shape);
LS_API ls_tensor *ls_op_concat(ls_tensor *const *parts, size_t count, int axis);
/* Returns `size` elements from `begin` on for each axis; size -1: to the end. */
LS_API ls_tensor *ls_op_slice(ls_tensor *x, ls_axes begin, ls_axes size);
/* Returns Python's x[begin:end:step] with step > 0. A batch axis must be complete: begin
 * 0, end LS_BATCH, step 1. */
LS_API ls_tensor *ls_op_strided_slice(ls_tensor *x, ls_axes begin, ls_axes end, ls_axes step);
/* Splits `axis` into parts of the given sizes. The caller provides `out` with room for
 * sizes.count tensors. On failure they are error tensors. */
LS_API void ls_op_split(ls_tensor *x, int axis, ls_axes sizes, ls_tensor **out);
LS_API ls_tensor *ls_op_pad(ls_tensor *x, ls_axes before, ls_axes after, double value);
/* Selects elements along an axis by i32 or i64 indices; an embedding is axis 0. */
LS_API ls_tensor *ls_op_gather(ls_tensor *x, ls_tensor *indices, int axis);
LS_API ls_tensor *ls_op_one_hot(ls_tensor *indices, ls_dtype dtype, int64_t depth);

/* ---- Products ---- */

typedef struct ls_matmul_op {
    int ls_first;
    ls_tensor *b;
    bool transpose_a, transpose_b; /* default false */
} ls_matmul_op;
/* Multiplies the last two axes; axes before them broadcast. Contracting the batch axis reduces
 * it (a weight's gradient).
 *     ls_op_matmul(a, b, .transpose_b = true) */
#define ls_op_matmul(a, ...) ls_op_matmul_with(a, (ls_matmul_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_matmul_with(ls_tensor *a, ls_matmul_op options);

typedef struct ls_attention_op {
    int ls_first;
    ls_tensor *k, *v;
    int64_t heads;           /* heads of q, each with an equal share of its columns */
    int64_t kv_heads;        /* heads of k and v, each shared by heads / kv_heads heads of q (default heads) */
    bool causal;             /* query i sees keys 0 to i only (default false) */
    ls_tensor *mask;         /* bool; true: the query sees the key (default NULL: all) */
    double scale;            /* factor of the scores (default 1 / sqrt(columns of a head)) */
    ls_tensor *dropout_rate; /* scalar of q's type (default NULL: no dropout) */
} ls_attention_op;
/* softmax(scale q k^T) v for each head: q [N,Tq,H D], k [N,Tk,G D], v [N,Tk,G V] give [N,Tq,H V].
 * The mask is [N,Tk], [N,Tq,Tk] or [N,1 or H,1 or Tq,Tk], or [Tq,Tk] for all samples. A query that
 * sees no key gives 0. Memory grows with the positions, not with their square.
 *     ls_op_attention(q, k, v, .heads = 12, .causal = true) */
#define ls_op_attention(q, ...) ls_op_attention_with(q, (ls_attention_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_attention_with(ls_tensor *q, ls_attention_op options);

/* ---- Reductions, also over the batch axis ---- */

LS_API ls_tensor *ls_op_reduce_sum(ls_tensor *x, ls_axes axes, bool keepdims);
LS_API ls_tensor *ls_op_reduce_mean(ls_tensor *x, ls_axes axes, bool keepdims);
LS_API ls_tensor *ls_op_reduce_max(ls_tensor *x, ls_axes axes, bool keepdims);
LS_API ls_tensor *ls_op_reduce_min(ls_tensor *x, ls_axes axes, bool keepdims);
/* Returns the index of the maximum, an i64; the first of equal values. */
LS_API ls_tensor *ls_op_argmax(ls_tensor *x, int axis);
/* Returns the k largest values of the last axis, largest first. */
LS_API ls_tensor *ls_op_top_k(ls_tensor *x, int64_t k);
/* Returns the indices of the k largest values of the last axis, i64. */
LS_API ls_tensor *ls_op_top_k_indices(ls_tensor *x, int64_t k);
LS_API ls_tensor *ls_op_softmax(ls_tensor *x, int axis);
LS_API ls_tensor *ls_op_log_softmax(ls_tensor *x, int axis);

/* ---- Images ---- */

/* LS_SAME follows TensorFlow's rule. LS_EXPLICIT uses the numbers of pixels in `pad`. The
 * four sides are always in the order top, bottom, left, right, as in Keras's ((top,
 * bottom), (left, right)). LS_CAUSAL is for layers over sequences (layer.h), not for ops. */
typedef enum ls_padding { LS_VALID, LS_SAME, LS_EXPLICIT, LS_CAUSAL } ls_padding;

typedef struct ls_conv2d_op {
    int ls_first;
    ls_tensor *kernel;              /* [H,W,in/groups,out] */
    int64_t stride[2], dilation[2]; /* default 1 */
    int64_t groups;                 /* default 1; depthwise: the number of channels */
    ls_padding padding;             /* default LS_VALID */
    int64_t pad[4];                 /* with LS_EXPLICIT: top, bottom, left, right */
} ls_conv2d_op;
#define ls_op_conv2d(x, ...) ls_op_conv2d_with(x, (ls_conv2d_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_conv2d_with(ls_tensor *x, ls_conv2d_op options);

typedef struct ls_pool2d_op {
    int ls_first;
    int64_t window[2];  /* pixels, [height, width] */
    int64_t stride[2];  /* default: the window */
    ls_padding padding; /* default LS_VALID */
    int64_t pad[4];     /* with LS_EXPLICIT: top, bottom, left, right */
    bool count_padding; /* average pool: includes padding as zeros */
} ls_pool2d_op;
#define ls_op_max_pool2d(x, ...)     ls_op_max_pool2d_with(x, (ls_pool2d_op){ .ls_first = 0, __VA_ARGS__ })
#define ls_op_average_pool2d(x, ...) ls_op_average_pool2d_with(x, (ls_pool2d_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_max_pool2d_with(ls_tensor *x, ls_pool2d_op options);
LS_API ls_tensor *ls_op_average_pool2d_with(ls_tensor *x, ls_pool2d_op options);
typedef enum ls_interpolation {
    LS_INTERPOLATION_DEFAULT = 0, /* UpSampling2D: nearest; others: bilinear */
    LS_NEAREST,
    LS_BILINEAR, /* UpSampling2D, Resizing: half-pixel centers, without antialiasing */
} ls_interpolation;

/* What lies outside of an image whose row is abcd. */
typedef enum ls_fill_mode {
    LS_FILL_DEFAULT = 0, /* op: constant; layers: reflect */
    LS_FILL_CONSTANT,    /* kkkk|abcd|kkkk */
    LS_FILL_NEAREST,     /* aaaa|abcd|dddd */
    LS_FILL_REFLECT,     /* dcba|abcd|dcba */
    LS_FILL_WRAP,        /* abcd|abcd|abcd */
} ls_fill_mode;

typedef struct ls_warp_op {
    int ls_first;
    ls_tensor *matrix; /* [N,6], of x's type */
    ls_interpolation interpolation;
    ls_fill_mode fill_mode;
    double fill_value; /* LS_FILL_CONSTANT (default 0) */
    int64_t size[2];   /* output size, [height, width] (default: the input's) */
} ls_warp_op;
/* Moves the pixels of images [N,H,W,C]. Pixel (x, y) of an output is what its image has at
 * (m0 x + m1 y + m2, m3 x + m4 y + m5), as Keras's affine_transform. No gradient flows to the
 * matrix. */
#define ls_op_warp(x, ...) ls_op_warp_with(x, (ls_warp_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_warp_with(ls_tensor *x, ls_warp_op options);
/* Reduces [N,H,W,C] to [N,C]. */
LS_API ls_tensor *ls_op_global_max_pool2d(ls_tensor *x);
LS_API ls_tensor *ls_op_global_average_pool2d(ls_tensor *x);

/* ---- Normalisation and dropout ---- */

/* Samples from which a batch norm in training computes its statistics. */
typedef enum ls_norm_statistics {
    /* The whole batch, as on one device. All lanes synchronize at every norm. */
    LS_PER_BATCH = 0,
    /* Each lane by itself, without synchronization. Moving averages are those of the batch. */
    LS_PER_LANE,
} ls_norm_statistics;

typedef struct ls_batch_norm_op {
    int ls_first;
    ls_tensor *gamma, *beta; /* [C]; NULL: ones, zeros */
    /* Variables [C]. Inference needs them; training updates them if they are set. In training also
     * updates of another call, which must then not run: the new ones continue from their values. */
    ls_tensor *moving_mean, *moving_variance;
    bool training;                 /* normalizes by the statistics of the batch */
    ls_norm_statistics statistics; /* default LS_PER_BATCH */
    double epsilon;                /* default 1e-3 */
    double momentum;               /* default 0.99 */
    /* uses PyTorch's n/(n-1) for the moving variance, not Keras's formula */
    bool unbiased;
    /* Output, in training: the two assignments of the moving statistics,
     * which must run with the step. */
    ls_tensor **updates;
} ls_batch_norm_op;
/* Normalizes over all axes but the last: ls_op_batch_norm(x, .training = true, ...) */
#define ls_op_batch_norm(...)                                                                                          \
    ls_op_batch_norm_with(LS_ARGUMENT_1_(__VA_ARGS__, ),                                                               \
                          (ls_batch_norm_op){ .ls_first = 0, LS_AFTER_1_(__VA_ARGS__, ) })
LS_API ls_tensor *ls_op_batch_norm_with(ls_tensor *x, ls_batch_norm_op options);

typedef struct ls_layer_norm_op {
    int ls_first;
    ls_tensor *gamma, *beta; /* shaped as the normalized axes; NULL: ones, zeros */
    int axes;                /* number of last axes to normalize (default 1) */
    double epsilon;          /* default 1e-3 */
} ls_layer_norm_op;
/* Normalizes each sample over its last axes: ls_op_layer_norm(x, .gamma = gamma, .beta = beta) */
#define ls_op_layer_norm(...)                                                                                          \
    ls_op_layer_norm_with(LS_ARGUMENT_1_(__VA_ARGS__, ),                                                               \
                          (ls_layer_norm_op){ .ls_first = 0, LS_AFTER_1_(__VA_ARGS__, ) })
LS_API ls_tensor *ls_op_layer_norm_with(ls_tensor *x, ls_layer_norm_op options);

/* Replaces each element by 0 with probability `rate`, otherwise by x / (1 - rate). `rate` is a
 * scalar of x's type, constant or fed. */
LS_API ls_tensor *ls_op_dropout(ls_tensor *x, ls_tensor *rate);

/* ---- Losses ---- */

/* Losses take targets first, then predictions, as in Keras, and return one value per sample,
 * reduced over the last axis. The labels of the sparse cross-entropy are integers with one axis
 * less than the scores; other targets have the shape and type of the predictions. */
typedef enum ls_scores { LS_LOGITS, LS_PROBABILITIES } ls_scores;
/* If the probabilities come from a softmax or sigmoid node, the loss uses that node's logits
 * instead. Other probabilities are clipped to 1e-7 .. 1 - 1e-7, as in Keras: cross_entropy divides
 * them by their sum before clipping, sparse_cross_entropy normalizes them after it. */
LS_API ls_tensor *ls_op_sparse_cross_entropy(ls_tensor *labels, ls_tensor *scores, ls_scores kind);
LS_API ls_tensor *ls_op_cross_entropy(ls_tensor *labels, ls_tensor *scores, ls_scores kind);
LS_API ls_tensor *ls_op_binary_cross_entropy(ls_tensor *labels, ls_tensor *scores, ls_scores kind);
LS_API ls_tensor *ls_op_mean_squared_error(ls_tensor *targets, ls_tensor *predictions);
LS_API ls_tensor *ls_op_mean_absolute_error(ls_tensor *targets, ls_tensor *predictions);
LS_API ls_tensor *ls_op_huber(ls_tensor *targets, ls_tensor *predictions, double delta);
/* Connectionist temporal classification: labels [N,L], logits [N,T,C]. Class 0 is the blank. A
 * sample's labels are its first n, where n of its L labels are not 0: shorter ones are padded with
 * 0. Labels that need more than T frames, one each and one more between equal ones, give Keras's
 * number, a loss of about 700. */
LS_API ls_tensor *ls_op_ctc(ls_tensor *labels, ls_tensor *logits);

/* ---- An op of one's own ---- */

#define LS_MAX_CUSTOM_INPUTS    8
#define LS_CUSTOM_MESSAGE_BYTES 256

/* What the functions of a custom op get: one sample of each input that has a batch axis, and the
 * whole of every other input, dense and row-major. Shapes have no batch axis. */
typedef struct ls_custom_sample {
    int input_count;
    const void *const *inputs; /* NULL in the function `shape` */
    const ls_dtype *dtypes;
    const ls_shape *shapes;
    ls_shape output; /* shape of the output; not set in the function `shape` */
    int64_t index;   /* number of the sample in the batch */
    char *message;   /* error text of a function that fails: LS_CUSTOM_MESSAGE_BYTES bytes, "" before */
} ls_custom_sample;

/* Sets type and shape of the output of a sample, which are those of input 0 before. Called when
 * the op is built. */
typedef ls_status (*ls_custom_shape)(const ls_custom_sample *sample, ls_dtype *dtype, ls_shape *shape, void *user);
/* Computes the output of a sample. */
typedef ls_status (*ls_custom_forward)(const ls_custom_sample *sample, void *output, void *user);
/* Computes what a sample contributes to the gradient of input number `input`, in that input's
 * type and shape, from the gradient of its output. */
typedef ls_status (*ls_custom_gradient)(const ls_custom_sample *sample, const void *output_gradient, int input,
                                        void *input_gradient, void *user);

typedef struct ls_custom_op {
    int ls_first;
    ls_tensor *inputs[LS_MAX_CUSTOM_INPUTS]; /* at least one; those after the last are NULL */
    ls_custom_forward forward;
    ls_custom_gradient gradient; /* default NULL: a gradient through the op is an error */
    ls_custom_shape shape;       /* default NULL: the output is like input 0 */
    void *user;                  /* passed to the functions; must stay valid as long as the graph */
    double flops;                /* floating-point operations of a sample (default: one an element) */
} ls_custom_op;
/* Returns an op whose values and gradients C functions compute, sample by sample, on the CPU:
 *     ls_op_custom("swish", .inputs = { x }, .forward = swish, .gradient = swish_gradient)
 * It is planned like any other op, and its results have the same bits on any devices if the
 * functions are pure: they depend on their arguments alone. Several threads call them at once, in
 * the library's floating-point mode; they must not use the graph. Outputs are 0 before each call.
 * A function that fails stops the run, which changes nothing. The gradient of an input without a
 * batch axis is the sum over the samples. Integer and bool inputs have no gradient; there are no
 * second derivatives. The name may have letters, digits and underscores. docs/own-op.md */
#define ls_op_custom(name, ...) ls_op_custom_with(name, (ls_custom_op){ .ls_first = 0, __VA_ARGS__ })
LS_API ls_tensor *ls_op_custom_with(const char *name, ls_custom_op options);

#ifdef __cplusplus
}
#endif
#endif
