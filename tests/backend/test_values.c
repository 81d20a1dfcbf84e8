/* Values and gradients of every op against TensorFlow, Keras and PyTorch.
 *
 * tests/reference/ops_*.json has the cases and describes their fields; make_ops.py beside them made
 * them. Here each case becomes a graph through the public builders, twice where it can: once with
 * the batch axis (inputs marked "batch" are fed sample by sample, the others are constants), once
 * whole (fed as whole tensors, the others are variables). Start reading at run_case. To cover a new
 * op: a case in make_ops.py, a line in `builders`. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "graph/node.h"
#include "graph_cases.h"
#include "lockstep.h"
#include "skip.h"

#ifndef LS_TEST_DATA
#define LS_TEST_DATA "tests/reference"
#endif

#define MOST         8  /* inputs, outputs */
#define MOST_FEEDS   32 /* inputs, cotangents, directions */
#define MOST_FETCHES 32 /* outputs, gradients, second derivatives */

static ls_context *context;
static bool covered[LS_OP_COUNT]; /* by a value that was compared */

/* One graph made of one case. */
typedef struct trial {
    json_t *spec;
    const char *name;
    bool whole; /* no batch axis */
    int64_t batch;
    ls_graph *graph;
    int in_count;
    ls_tensor *in[MOST];
    const char *in_name[MOST];
    json_t *in_data[MOST];
    int out_count;
    ls_tensor *out[MOST];
    size_t feed_count;
    ls_feed feeds[MOST_FEEDS];
    size_t fetch_count;
    ls_tensor *fetches[MOST_FETCHES];
    int failures;
} trial;

#define COMPLAIN(t, ...)                                                                                               \
    do {                                                                                                               \
        print_error("%s (%s): ", (t)->name, (t)->whole ? "whole" : "batch");                                           \
        print_error(__VA_ARGS__);                                                                                      \
        print_error("\n");                                                                                             \
        (t)->failures++;                                                                                               \
    } while (0)

/* ---- Numbers ---- */

/* The caller frees it. */
static void *numbers(const json_t *list, ls_dtype dtype)
{
    size_t count = json_array_size(list);
    void *data = calloc(count + 1, ls_dtype_bytes(dtype));
    assert_non_null(data);
    for (size_t i = 0; i < count; i++)
        test_put_number(data, dtype, i, json_number_value(json_array_get(list, i)));
    return data;
}

static ls_shape shape_of(const json_t *list)
{
    ls_shape shape = { .rank = (int)json_array_size(list) };
    assert_true(shape.rank <= LS_MAX_RANK);
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = json_integer_value(json_array_get(list, (size_t)i));
    return shape;
}

/* The allowed difference from exact arithmetic: types' own rounding, times a little for sums. A
 * case may say otherwise. / */
static double tolerance_for(const trial *t, ls_dtype dtype)
{
    const json_t *said = json_object_get(t->spec, "tolerance");
    if (said)
        return json_number_value(said);
    return dtype == LS_F64 ? 1e-11 : dtype == LS_F32 ? 2e-6 : 0;
}

static void compare(trial *t, const char *what, const void *found, ls_dtype dtype, const json_t *expected,
                    double tolerance)
{
    size_t wrong = 0, first = 0, count = json_array_size(expected);
    for (size_t i = 0; i < count; i++) {
        double a = test_number(found, dtype, i), b = json_number_value(json_array_get(expected, i));
        if (!(fabs(a - b) <= tolerance * (1 + fabs(b))) && wrong++ == 0)
            first = i;
    }
    if (wrong)
        COMPLAIN(t, "%s[%zu]: expected %.17g, found %.17g (%zu of %zu differ)", what, first,
                 json_number_value(json_array_get(expected, first)), test_number(found, dtype, first), wrong, count);
}

/* A tensor of the last run. `shape` may be NULL: only the count is known. */
static void compare_tensor(trial *t, const char *what, ls_tensor *tensor, const json_t *shape, const json_t *expected,
                           ls_dtype dtype)
{
    ls_array found;
    if (ls_value(tensor, &found) != LS_OK) {
        COMPLAIN(t, "%s: %s", what, ls_last_error());
        return;
    }
    int64_t count = 1;
    bool same = !shape || found.shape.rank == (int)json_array_size(shape);
    for (int i = 0; i < found.shape.rank; i++) {
        count *= found.shape.dims[i];
        if (shape && same)
            same = found.shape.dims[i] == json_integer_value(json_array_get(shape, (size_t)i));
    }
    if (!same || count != (int64_t)json_array_size(expected) || found.dtype != dtype)
        COMPLAIN(t, "%s: shape or type is wrong: %lld elements of %s, rank %d; expected %zu of %s", what,
                 (long long)count, ls_dtype_name(found.dtype), found.shape.rank, json_array_size(expected),
                 ls_dtype_name(dtype));
    else
        compare(t, what, found.data, dtype, expected, tolerance_for(t, dtype));
}

/* ---- Inputs and options ---- */

static void feed(trial *t, ls_tensor *tensor, const json_t *data, ls_shape shape)
{
    assert_true(t->feed_count < MOST_FEEDS);
    ls_array value = { .data = numbers(data, ls_tensor_dtype(tensor)),
                       .dtype = ls_tensor_dtype(tensor),
                       .shape = shape };
    t->feeds[t->feed_count++] = (ls_feed){ .input = tensor, .value = value };
}

/* A fed tensor with the shape and type of `like`; the data give the batch axis its size. */
static ls_tensor *fed_like(trial *t, ls_tensor *like, const json_t *data)
{
    ls_shape shape = ls_tensor_shape(like);
    ls_tensor *tensor = ls_op_input(t->graph, NULL, ls_tensor_dtype(like), shape);
    bool batch = ls_tensor_is_per_sample(tensor);
    if (batch)
        shape.dims[0] = t->batch;
    feed(t, tensor, data, shape);
    return batch && !ls_tensor_is_per_sample(like) ? ls_op_gather_batch(tensor) : tensor;
}

static void add_input(trial *t, const json_t *spec)
{
    assert_true(t->in_count < MOST);
    const json_t *list = json_object_get(spec, "data");
    ls_dtype dtype = test_dtype(json_string_value(json_object_get(spec, "dtype")));
    ls_shape shape = shape_of(json_object_get(spec, "shape")), asked = shape;
    const char *name = json_string_value(json_object_get(spec, "name"));
    ls_tensor *tensor;
    if (json_is_true(json_object_get(spec, "batch"))) {
        if (!t->whole)
            asked.dims[0] = LS_BATCH;
        t->batch = shape.dims[0];
        tensor = ls_op_input(t->graph, name, dtype, asked);
        feed(t, tensor, list, shape);
    } else {
        void *data = numbers(list, dtype);
        bool variable = t->whole || strncmp(name, "moving", 6) == 0;
        tensor = variable ? ls_op_variable(t->graph, name, dtype, .shape = shape, .data = data)
                          : ls_op_constant(t->graph, dtype, shape, data);
        free(data);
    }
    t->in[t->in_count] = tensor;
    t->in_name[t->in_count] = name;
    t->in_data[t->in_count++] = json_object_get(spec, "data");
}

/* NULL when the case has none of that name. */
static ls_tensor *input(const trial *t, const char *name)
{
    for (int i = 0; i < t->in_count; i++)
        if (strcmp(t->in_name[i], name) == 0)
            return t->in[i];
    return NULL;
}

static json_t *option(const trial *t, const char *name)
{
    return json_object_get(json_object_get(t->spec, "options"), name);
}

static double number(const trial *t, const char *name)
{
    return json_number_value(option(t, name));
}

static int64_t integer(const trial *t, const char *name)
{
    return json_integer_value(option(t, name));
}

static bool flag(const trial *t, const char *name)
{
    return json_is_true(option(t, name));
}

static ls_axes axes(const trial *t, const char *name)
{
    const json_t *list = option(t, name);
    if (json_is_string(list))
        return LS_ALL_AXES;
    ls_shape shape = shape_of(list);
    ls_axes result = { .count = shape.rank };
    memcpy(result.axis, shape.dims, sizeof(result.axis));
    return result;
}

/* A whole tensor has the batch's size where the case says LS_BATCH. */
static ls_shape asked_shape(const trial *t)
{
    ls_shape shape = shape_of(option(t, "shape"));
    if (t->whole && shape.rank > 0 && shape.dims[0] == LS_BATCH)
        shape.dims[0] = t->batch;
    return shape;
}

static ls_dtype asked_dtype(const trial *t)
{
    return test_dtype(json_string_value(option(t, "dtype")));
}

static void fill_integers(const trial *t, const char *name, int64_t *to, size_t count)
{
    const json_t *list = option(t, name);
    for (size_t i = 0; i < count && i < json_array_size(list); i++)
        to[i] = json_integer_value(json_array_get(list, i));
}

/* Which of `names` the option is. */
static int choice(const trial *t, const char *name, const char *const *names, int count)
{
    const char *text = json_string_value(option(t, name));
    for (int i = 0; text && i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    fail_msg("%s: %s is %s", t->name, name, text ? text : "missing");
    return 0;
}
#define CHOICE(t, name, ...)                                                                                           \
    choice(t, name, (const char *const[]){ __VA_ARGS__ },                                                              \
           (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)))

/* ---- Builders: from a case to a tensor ---- */

#define OP1(op)                                                                                                        \
    static ls_tensor *build_##op(trial *t)                                                                             \
    {                                                                                                                  \
        return ls_op_##op(t->in[0]);                                                                                   \
    }
#define OP1_WITH(op, ...)                                                                                              \
    static ls_tensor *build_##op(trial *t)                                                                             \
    {                                                                                                                  \
        return ls_op_##op(t->in[0], __VA_ARGS__);                                                                      \
    }
#define OP2(op) OP1_WITH(op, t->in[1])

OP2(add)
OP2(sub)
OP2(mul)
OP2(div)
OP2(pow)
OP2(maximum)
OP2(minimum)
OP1_WITH(scale, number(t, "factor"))
OP1_WITH(shift, number(t, "amount"))
OP1_WITH(cast, asked_dtype(t))
OP1_WITH(select, t->in[1], t->in[2])
OP1(neg)
OP1(abs)
OP1(sign)
OP1(exp)
OP1(log)
OP1(sqrt)
OP1(rsqrt)
OP1(square)
OP1(erf)
OP1_WITH(clip, number(t, "low"), number(t, "high"))
OP1(relu)
OP1_WITH(leaky_relu, number(t, "slope"))
OP1_WITH(capped_relu, number(t, "limit"))
OP1(sigmoid)
OP1(tanh)
OP1(softplus)
OP1_WITH(gelu, flag(t, "tanh_form"))
OP1(silu)
OP1_WITH(elu, number(t, "alpha"))

OP1_WITH(reshape, asked_shape(t))
OP1(flatten)
OP1_WITH(transpose, axes(t, "permutation"))
OP1_WITH(broadcast, asked_shape(t))
OP1_WITH(slice, axes(t, "begin"), axes(t, "size"))
OP1_WITH(pad, axes(t, "before"), axes(t, "after"), number(t, "value"))
OP1_WITH(gather, t->in[1], (int)integer(t, "axis"))
OP1_WITH(one_hot, asked_dtype(t), integer(t, "depth"))

OP1_WITH(matmul, .b = t->in[1], .transpose_a = flag(t, "transpose_a"), .transpose_b = flag(t, "transpose_b"))
OP1_WITH(reduce_sum, axes(t, "axes"), flag(t, "keepdims"))
OP1_WITH(reduce_mean, axes(t, "axes"), flag(t, "keepdims"))
OP1_WITH(reduce_max, axes(t, "axes"), flag(t, "keepdims"))
OP1_WITH(reduce_min, axes(t, "axes"), flag(t, "keepdims"))
OP1_WITH(argmax, (int)integer(t, "axis"))
OP1_WITH(top_k, integer(t, "k"))
OP1_WITH(top_k_indices, integer(t, "k"))
OP1_WITH(softmax, (int)integer(t, "axis"))
OP1_WITH(log_softmax, (int)integer(t, "axis"))

OP1(gather_batch)
OP1(global_max_pool2d)
OP1(global_average_pool2d)
OP1_WITH(layer_norm, .gamma = input(t, "gamma"), .beta = input(t, "beta"), .axes = (int)integer(t, "axes"),
         .epsilon = number(t, "epsilon"))

/* Distances: their cases have predictions first, then targets. */
#define DISTANCE(op, ...)                                                                                              \
    static ls_tensor *build_##op(trial *t)                                                                             \
    {                                                                                                                  \
        return ls_op_##op(__VA_ARGS__);                                                                                \
    }
DISTANCE(mean_squared_error, t->in[1], t->in[0])
DISTANCE(mean_absolute_error, t->in[1], t->in[0])
DISTANCE(huber, t->in[1], t->in[0], number(t, "delta"))

static ls_tensor *build_compare(trial *t)
{
    int relation = CHOICE(t, "relation", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal");
    return ls_op_compare(t->in[0], (ls_relation)relation, t->in[1]);
}

static ls_tensor *build_concat(trial *t)
{
    return ls_op_concat(t->in, (size_t)t->in_count, (int)integer(t, "axis"));
}

static ls_tensor *build_strided_slice(trial *t)
{
    ls_axes end = axes(t, "end");
    if (t->whole && end.axis[0] == LS_BATCH)
        end.axis[0] = t->batch;
    return ls_op_strided_slice(t->in[0], axes(t, "begin"), end, axes(t, "step"));
}

static ls_tensor *build_split(trial *t)
{
    ls_axes sizes = axes(t, "sizes");
    ls_op_split(t->in[0], (int)integer(t, "axis"), sizes, t->out);
    t->out_count = sizes.count;
    return t->out[0];
}

static ls_tensor *build_scatter_batch(trial *t)
{
    return ls_op_scatter_batch(ls_op_gather_batch(t->in[0]));
}

/* x times what is tested, where that alone would have no inputs or no gradient. */
static ls_tensor *build_stop_gradient(trial *t)
{
    return ls_op_mul(t->in[0], ls_op_stop_gradient(t->in[0]));
}

static ls_tensor *build_count(trial *t)
{
    return ls_op_mul(t->in[0], ls_op_count(t->graph, ls_tensor_dtype(t->in[0])));
}

static ls_tensor *build_fill(trial *t)
{
    return ls_op_mul(t->in[0], ls_op_fill(t->graph, ls_tensor_dtype(t->in[0]), asked_shape(t), number(t, "value")));
}

static ls_tensor *build_dropout(trial *t)
{
    return ls_op_dropout(t->in[0], ls_op_scalar(t->graph, ls_tensor_dtype(t->in[0]), number(t, "rate")));
}

static ls_padding padding(const trial *t)
{
    return (ls_padding)CHOICE(t, "padding", "valid", "same", "explicit");
}

static ls_tensor *build_conv2d(trial *t)
{
    ls_conv2d_op options = { .kernel = t->in[1], .groups = integer(t, "groups"), .padding = padding(t) };
    fill_integers(t, "stride", options.stride, 2);
    fill_integers(t, "dilation", options.dilation, 2);
    fill_integers(t, "pad", options.pad, 4);
    return ls_op_conv2d_with(t->in[0], options);
}

static ls_pool2d_op pool_options(const trial *t)
{
    ls_pool2d_op options = { .padding = padding(t), .count_padding = flag(t, "count_padding") };
    fill_integers(t, "window", options.window, 2);
    fill_integers(t, "stride", options.stride, 2);
    fill_integers(t, "pad", options.pad, 4);
    return options;
}

static ls_tensor *build_max_pool2d(trial *t)
{
    return ls_op_max_pool2d_with(t->in[0], pool_options(t));
}

static ls_tensor *build_average_pool2d(trial *t)
{
    return ls_op_average_pool2d_with(t->in[0], pool_options(t));
}

static ls_tensor *build_warp(trial *t)
{
    ls_warp_op options = { .matrix = t->in[1],
                           .interpolation = LS_NEAREST + CHOICE(t, "interpolation", "nearest", "bilinear"),
                           .fill_mode =
                               LS_FILL_CONSTANT + CHOICE(t, "fill_mode", "constant", "nearest", "reflect", "wrap"),
                           .fill_value = number(t, "fill_value") };
    fill_integers(t, "size", options.size, 2);
    return ls_op_warp_with(t->in[0], options);
}

/* In training the new moving statistics are outputs 1 and 2. */
static ls_tensor *build_batch_norm(trial *t)
{
    bool training = flag(t, "training");
    ls_tensor *updates[2];
    ls_tensor *y = ls_op_batch_norm(
        t->in[0], .gamma = input(t, "gamma"), .beta = input(t, "beta"), .moving_mean = input(t, "moving_mean"),
        .moving_variance = input(t, "moving_variance"), .training = training, .epsilon = number(t, "epsilon"),
        .momentum = number(t, "momentum"), .unbiased = flag(t, "unbiased"), .updates = updates);
    if (training) {
        t->out[1] = updates[0];
        t->out[2] = updates[1];
        t->out_count = 3;
    }
    return y;
}

typedef ls_tensor *cross_entropy(ls_tensor *, ls_tensor *, ls_scores);

static ls_tensor *build_any_cross_entropy(trial *t, cross_entropy *loss)
{
    ls_tensor *scores = t->in[0];
    const char *through = json_string_value(option(t, "through"));
    if (through)
        scores = strcmp(through, "softmax") == 0 ? ls_op_softmax(scores, -1) : ls_op_sigmoid(scores);
    return loss(t->in[1], scores, (ls_scores)CHOICE(t, "kind", "logits", "probabilities"));
}

static ls_tensor *build_sparse_cross_entropy(trial *t)
{
    return build_any_cross_entropy(t, ls_op_sparse_cross_entropy);
}

static ls_tensor *build_cross_entropy(trial *t)
{
    return build_any_cross_entropy(t, ls_op_cross_entropy);
}

static ls_tensor *build_binary_cross_entropy(trial *t)
{
    return build_any_cross_entropy(t, ls_op_binary_cross_entropy);
}

/* clang-format off */
#define ROW(op) { #op, build_##op, 0 }
static struct builder {
    const char *op;
    ls_tensor *(*build)(trial *);
    int cases;
} builders[] = {
    ROW(add), ROW(sub), ROW(mul), ROW(div), ROW(pow), ROW(maximum), ROW(minimum), ROW(scale), ROW(shift), ROW(compare),
    ROW(select), ROW(cast), ROW(neg), ROW(abs), ROW(sign), ROW(exp), ROW(log), ROW(sqrt), ROW(rsqrt), ROW(square),
    ROW(erf), ROW(clip), ROW(relu), ROW(leaky_relu), ROW(capped_relu), ROW(sigmoid), ROW(tanh), ROW(softplus), ROW(gelu), ROW(silu),
    ROW(elu), ROW(reshape), ROW(flatten), ROW(transpose), ROW(broadcast), ROW(concat), ROW(slice), ROW(strided_slice),
    ROW(split), ROW(pad), ROW(gather), ROW(one_hot), ROW(gather_batch), ROW(scatter_batch), ROW(stop_gradient),
    ROW(count), ROW(fill), ROW(matmul), ROW(reduce_sum), ROW(reduce_mean), ROW(reduce_max), ROW(reduce_min),
    ROW(argmax), ROW(top_k), ROW(top_k_indices), ROW(softmax), ROW(log_softmax), ROW(conv2d), ROW(max_pool2d),
    ROW(average_pool2d), ROW(warp), ROW(global_max_pool2d), ROW(global_average_pool2d), ROW(batch_norm), ROW(layer_norm),
    ROW(dropout), ROW(sparse_cross_entropy), ROW(cross_entropy), ROW(binary_cross_entropy), ROW(mean_squared_error),
    ROW(mean_absolute_error), ROW(huber),
};
/* clang-format on */
#define BUILDER_COUNT (sizeof(builders) / sizeof(*builders))

/* ---- Derivatives ---- */

static ls_tensor *sum(ls_tensor *total, ls_tensor *more)
{
    return total && more ? ls_op_add(total, more) : total ? total : more;
}

/* The float inputs, in the order of the case. */
static size_t float_inputs(const trial *t, ls_tensor **out, const char **names)
{
    size_t count = 0;
    for (int i = 0; i < t->in_count; i++) {
        ls_dtype dtype = ls_tensor_dtype(t->in[i]);
        if (dtype == LS_F32 || dtype == LS_F64) {
            names[count] = t->in_name[i];
            out[count++] = t->in[i];
        }
    }
    return count;
}

/* Adds to total[] the gradients of y times a fed cotangent. */
static bool add_gradients(trial *t, const char *what, ls_tensor *y, const json_t *cotangent, ls_tensor **in,
                          size_t count, ls_tensor **total)
{
    ls_tensor *found[MOST];
    ls_gradients_options options = { .cotangent = fed_like(t, y, cotangent), .zeros = true };
    if (ls_gradients_with(y, in, count, options, found) != LS_OK) {
        COMPLAIN(t, "%s: %s", what, ls_last_error());
        return false;
    }
    for (size_t i = 0; i < count; i++)
        total[i] = sum(total[i], found[i]);
    return true;
}

/* A tensor that a run fetches, and its expected value. */
typedef struct question {
    char what[64];
    ls_tensor *tensor;
    const json_t *shape, *data;
    ls_dtype dtype;
} question;

static void ask(trial *t, question *questions, const char *what, const char *of, ls_tensor *tensor, const json_t *shape,
                const json_t *data, ls_dtype dtype)
{
    assert_true(t->fetch_count < MOST_FETCHES);
    question *q = &questions[t->fetch_count];
    *q = (question){ .tensor = tensor, .shape = shape, .data = data, .dtype = dtype };
    snprintf(q->what, sizeof(q->what), "%s %s", what, of);
    t->fetches[t->fetch_count++] = tensor;
}

/* The shape of the input of that name. */
static const json_t *input_shape(const trial *t, const char *name)
{
    size_t i;
    json_t *each;
    json_array_foreach(json_object_get(t->spec, "inputs"), i,
                       each) if (strcmp(json_string_value(json_object_get(each, "name")), name) ==
                                 0) return json_object_get(each, "shape");
    return NULL;
}

static void ask_each(trial *t, question *questions, const char *what, const json_t *expected, ls_tensor **tensors,
                     const char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *data = json_object_get(expected, names[i]);
        if (data)
            ask(t, questions, what, names[i], tensors[i], input_shape(t, names[i]), data,
                ls_tensor_dtype(input(t, names[i])));
    }
}

static void ask_derivatives(trial *t, question *questions)
{
    const json_t *cotangents = json_object_get(t->spec, "cotangents"), *second = json_object_get(t->spec, "second");
    ls_tensor *in[MOST], *first[MOST] = { NULL }, *again[MOST] = { NULL };
    const char *names[MOST];
    size_t count = float_inputs(t, in, names);
    for (int i = 0; i < t->out_count; i++) {
        const json_t *cotangent = json_array_get(cotangents, (size_t)i);
        if (json_is_array(cotangent) && !add_gradients(t, "gradient", t->out[i], cotangent, in, count, first))
            return;
    }
    ask_each(t, questions, "gradient of", json_object_get(t->spec, "gradients"), first, names, count);
    if (!second)
        return;
    for (size_t i = 0; i < count; i++) {
        const json_t *v = json_object_get(json_object_get(second, "v"), names[i]);
        if (!add_gradients(t, "second derivative", first[i], v, in, count, again))
            return;
    }
    ask_each(t, questions, "second derivative by", json_object_get(second, "gradients"), again, names, count);
}

/* ---- Running a case ---- */

static void mark_covered(trial *t)
{
    ls_tensor **order = NULL;
    size_t count = 0;
    if (ls_graph_order(t->graph, t->fetches, t->fetch_count, NULL, NULL, &order, &count) == LS_OK)
        for (size_t i = 0; i < count; i++)
            covered[order[i]->op] = true;
    free(order);
}

static void open_trial(trial *t, json_t *spec, bool whole)
{
    size_t i;
    json_t *each;
    *t = (trial){ .spec = spec, .name = json_string_value(json_object_get(spec, "name")), .whole = whole };
    assert_int_equal(ls_graph_create(context, &t->graph), LS_OK);
    json_array_foreach(json_object_get(spec, "inputs"), i, each) add_input(t, each);
}

static int close_trial(trial *t)
{
    for (size_t i = 0; i < t->feed_count; i++)
        free(t->feeds[i].value.data);
    ls_graph_destroy(t->graph);
    return t->failures;
}

static void ask_outputs(trial *t, question *questions)
{
    const json_t *expected = json_object_get(t->spec, "outputs");
    if ((size_t)t->out_count != json_array_size(expected))
        COMPLAIN(t, "%d outputs, expected %zu", t->out_count, json_array_size(expected));
    for (int i = 0; i < t->out_count; i++) {
        const json_t *record = json_array_get(expected, (size_t)i);
        const char number[] = { (char)('0' + i), 0 };
        ask(t, questions, "output", number, t->out[i], json_object_get(record, "shape"),
            json_object_get(record, "data"), test_dtype(json_string_value(json_object_get(record, "dtype"))));
    }
}

static int run_case(json_t *spec, struct builder *builder, bool whole)
{
    trial t;
    question questions[MOST_FETCHES];
    open_trial(&t, spec, whole);
    t.out_count = 1;
    t.out[0] = builder->build(&t);
    bool wrong = false;
    for (int i = 0; i < t.out_count; i++)
        wrong |= ls_tensor_is_error(t.out[i]);
    if (wrong) {
        ls_graph_status(t.graph);
        COMPLAIN(&t, "%s", ls_last_error());
        return close_trial(&t);
    }
    ask_outputs(&t, questions);
    ask_derivatives(&t, questions);
    if (ls_eval(t.graph, t.feeds, t.feed_count, t.fetches, t.fetch_count) != LS_OK) {
        COMPLAIN(&t, "%s", ls_last_error());
        return close_trial(&t);
    }
    for (size_t i = 0; i < t.fetch_count; i++)
        compare_tensor(&t, questions[i].what, questions[i].tensor, questions[i].shape, questions[i].data,
                       questions[i].dtype);
    mark_covered(&t);
    return close_trial(&t);
}

static bool has_batch(const json_t *spec)
{
    size_t i;
    json_t *each;
    json_array_foreach(json_object_get(spec, "inputs"), i,
                       each) if (json_is_true(json_object_get(each, "batch"))) return true;
    return false;
}

static int run_modes(json_t *spec)
{
    const char *op = json_string_value(json_object_get(spec, "op"));
    int failures = 0;
    for (size_t i = 0; i < BUILDER_COUNT; i++)
        if (strcmp(builders[i].op, op) == 0) {
            builders[i].cases++;
            if (has_batch(spec))
                failures += run_case(spec, &builders[i], false);
            if (!json_is_false(json_object_get(spec, "whole")))
                failures += run_case(spec, &builders[i], true);
            return failures;
        }
    print_error("%s: nothing here builds the op %s\n", json_string_value(json_object_get(spec, "name")), op);
    return 1;
}

/* ---- Updates: several runs that write variables ---- */

static void compare_variable(trial *t, const char *what, int i, int step, const json_t *expected, double tolerance)
{
    char label[64];
    ls_dtype dtype = ls_tensor_dtype(t->in[i]);
    size_t bytes = json_array_size(expected) * ls_dtype_bytes(dtype);
    void *data = calloc(1, bytes + 1);
    snprintf(label, sizeof(label), "%s after step %d", what, step);
    if (ls_variable_get(t->in[i], data, bytes) != LS_OK)
        COMPLAIN(t, "%s: %s", label, ls_last_error());
    else
        compare(t, label, data, dtype, expected, tolerance);
    free(data);
}

static ls_tensor *make_apply(trial *t, ls_tensor *gradient, ls_tensor *step)
{
    ls_dtype dtype = ls_tensor_dtype(t->in[0]);
    int rule = CHOICE(t, "rule", "sgd", "momentum", "nesterov", "adam", "rmsprop", "rmsprop_tf1", "adagrad");
    return ls_op_apply(t->in[0], gradient, .rule = (ls_apply_rule)rule,
                       .learning_rate = ls_op_scalar(t->graph, dtype, number(t, "learning_rate")),
                       .step = rule == LS_APPLY_ADAM ? step : NULL, .slots = { input(t, "slot0"), input(t, "slot1") },
                       .momentum = number(t, "momentum"), .beta_1 = number(t, "beta_1"), .beta_2 = number(t, "beta_2"),
                       .rho = number(t, "rho"), .epsilon = number(t, "epsilon"),
                       .weight_decay = number(t, "weight_decay"));
}

static int run_apply(json_t *spec)
{
    trial t;
    open_trial(&t, spec, true);
    json_t *one = json_pack("[i]", 0), *steps = json_object_get(spec, "steps"), *each;
    ls_dtype dtype = ls_tensor_dtype(t.in[0]);
    double tolerance = dtype == LS_F64 ? 1e-12 : 2e-6, count = 0; /* the peer's float32 rounds in its own places */
    ls_tensor *gradient = fed_like(&t, t.in[0], json_object_get(json_array_get(steps, 0), "gradient"));
    ls_tensor *step = ls_op_input(t.graph, NULL, dtype, LS_SCALAR);
    feed(&t, step, one, LS_SCALAR);
    ls_tensor *apply = make_apply(&t, gradient, step);
    bool adam = strcmp(json_string_value(option(&t, "rule")), "adam") == 0;
    size_t i, k;
    json_array_foreach(steps, i, each)
    {
        free(t.feeds[0].value.data);
        t.feeds[0].value.data = numbers(json_object_get(each, "gradient"), dtype);
        test_put_number(t.feeds[1].value.data, dtype, 0, ++count);
        if (ls_eval(t.graph, t.feeds, adam ? 2 : 1, &apply, 1) != LS_OK) {
            COMPLAIN(&t, "step %zu: %s", i + 1, ls_last_error());
            break;
        }
        compare_tensor(&t, "the new value", apply, NULL, json_object_get(each, "variable"), dtype);
        compare_variable(&t, "variable", 0, (int)i + 1, json_object_get(each, "variable"), tolerance);
        json_t *slots = json_object_get(each, "slots"), *slot;
        json_array_foreach(slots, k, slot)
            compare_variable(&t, k == 0 ? "slot 0" : "slot 1", (int)k + 1, (int)i + 1, slot, tolerance);
    }
    t.fetches[t.fetch_count++] = apply;
    mark_covered(&t);
    json_decref(one);
    return close_trial(&t);
}

static int run_assign(json_t *spec, ls_tensor *(*assign)(ls_tensor *, ls_tensor *))
{
    trial t;
    open_trial(&t, spec, true);
    const json_t *data = json_object_get(json_array_get(json_object_get(spec, "outputs"), 0), "data");
    ls_tensor *node = assign(t.in[0], t.in[1]);
    ls_dtype dtype = ls_tensor_dtype(t.in[0]);
    if (ls_eval(t.graph, NULL, 0, &node, 1) != LS_OK) {
        COMPLAIN(&t, "%s", ls_last_error());
        return close_trial(&t);
    }
    compare_tensor(&t, "the new value", node, NULL, data, dtype);
    compare_variable(&t, "variable", 0, 1, data, tolerance_for(&t, dtype));
    compare_variable(&t, "the value given", 1, 1, t.in_data[1], tolerance_for(&t, dtype));
    t.fetches[t.fetch_count++] = node;
    mark_covered(&t);
    return close_trial(&t);
}

static int run_update(json_t *spec)
{
    const char *op = json_string_value(json_object_get(spec, "op"));
    if (strcmp(op, "apply") == 0)
        return run_apply(spec);
    return run_assign(spec, strcmp(op, "assign") == 0 ? ls_op_assign : ls_op_assign_add);
}

/* ---- Tests ---- */

/* LS_TEST_CASE in the environment: only the case of that name. */
static void run_family(const char *family, int (*run)(json_t *))
{
    char path[512];
    json_error_t error;
    json_t *each;
    size_t i, failed = 0, count = 0;
    const char *only = getenv("LS_TEST_CASE");
    snprintf(path, sizeof(path), "%s/ops_%s.json", LS_TEST_DATA, family);
    json_t *cases = json_load_file(path, 0, &error);
    if (!cases)
        fail_msg("%s: line %d: %s", path, error.line, error.text);
    json_array_foreach(cases, i, each)
    {
        if (only && strcmp(only, json_string_value(json_object_get(each, "name"))) != 0)
            continue;
        count++;
        failed += run(each) > 0;
    }
    json_decref(cases);
    if (failed)
        fail_msg("%s: %zu of %zu cases failed", family, failed, count);
    if (!only)
        assert_true(count > 0);
}

#define FAMILY(family, run)                                                                                            \
    static void values_of_##family(void **state)                                                                       \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        run_family(#family, run);                                                                                      \
    }
FAMILY(elementwise, run_modes)
FAMILY(shape, run_modes)
FAMILY(reduce, run_modes)
FAMILY(matmul, run_modes)
FAMILY(image, run_modes)
FAMILY(norm, run_modes)
FAMILY(loss, run_modes)
FAMILY(update, run_update)

/* Ops that no peer can have values for, and those whose values test_keras_layers and test_nn_losses
 * compare. */
static const char *const without_values[] = { "random_uniform", "random_normal", "group",          "recurrent",
                                              "recurrent_grad", "attention",     "attention_grad", "ctc",
                                              "ctc_grad",       "custom",        "custom_grad" };

static void every_op_has_values(void **state)
{
    (void)state;
    int missing = 0;
    if (getenv("LS_TEST_CASE"))
        SKIP("one case was asked for");
    for (int op = 0; op < LS_OP_COUNT; op++) {
        bool excused = false;
        for (size_t i = 0; i < sizeof(without_values) / sizeof(*without_values); i++)
            excused |= strcmp(without_values[i], ls_ops[op].name) == 0;
        if (covered[op] == excused) {
            print_error("%s: %s\n", ls_ops[op].name, excused ? "has values and is excused" : "has no value case");
            missing++;
        }
    }
    for (size_t i = 0; i < BUILDER_COUNT; i++)
        if (builders[i].cases == 0) {
            print_error("%s: no case builds it\n", builders[i].op);
            missing++;
        }
    assert_int_equal(missing, 0);
}

static int open_context(void **state)
{
    (void)state;
    return ls_context_open(NULL, &context) != LS_OK;
}

static int close_context(void **state)
{
    (void)state;
    ls_context_close(context);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_elementwise), cmocka_unit_test(values_of_shape),
        cmocka_unit_test(values_of_reduce),      cmocka_unit_test(values_of_matmul),
        cmocka_unit_test(values_of_image),       cmocka_unit_test(values_of_norm),
        cmocka_unit_test(values_of_loss),        cmocka_unit_test(values_of_update),
        cmocka_unit_test(every_op_has_values),
    };
    return cmocka_run_group_tests_name("values", tests, open_context, close_context);
}
