/* Wrong calls: each gives the right status and a message that names op, tensors and sizes; the
 * graph stays usable, outputs stay unset, and nothing crashes or leaks (`make test
 * SANITIZE=address,undefined`). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "graph/recurrent.h"
#include "lockstep.h"
#include "with_graph.h"

/* Sizes that no machine has are asked for below: the sanitizer, too, shall answer NULL, as malloc
 * does. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static ls_tensor *whole(ls_dtype dtype, ls_shape shape)
{
    return ls_op_fill(g, dtype, shape, 1);
}
#define F32(...) whole(LS_F32, LS_SHAPE(__VA_ARGS__))
#define I32(...) whole(LS_I32, LS_SHAPE(__VA_ARGS__))

static ls_tensor *number(double value)
{
    return ls_op_scalar(g, LS_F32, value);
}

/* The call failed with `status`, and its message has every word of a list separated by '|'. */
static void check_message(ls_status got, ls_status status, const char *words, int line)
{
    if (got != status)
        fail_msg("line %d: %s, expected %s: %s", line, ls_status_name(got), ls_status_name(status), ls_last_error());
    char list[512];
    snprintf(list, sizeof(list), "%s", words);
    for (char *next, *word = strtok_r(list, "|", &next); word; word = strtok_r(NULL, "|", &next))
        if (!strstr(ls_last_error(), word))
            fail_msg("line %d: \"%s\" is not in: %s", line, word, ls_last_error());
}
#define FAILS(call, status, words) check_message(call, status, words, __LINE__)

/* A builder refused: an error tensor that keeps its message, swallows what is built on it, and
 * leaves the graph usable. / */
static void check_refused(ls_tensor *t, ls_status status, const char *words, int line)
{
    if (!t || !ls_tensor_is_error(t))
        fail_msg("line %d: a %s was made", line, ls_tensor_op(t));
    assert_string_equal(ls_tensor_op(t), "error");
    check_message(ls_eval(g, NULL, 0, &t, 1), status, words, line);
    assert_ptr_equal(ls_op_neg(t), t);
    assert_ptr_equal(ls_op_add(number(1), t), t);
    assert_ptr_equal(ls_op_matmul(F32(2, 2), ls_op_softmax(ls_op_reduce_sum(t, LS_AXES(9), true), 7)), t);
    double value;
    check_message(ls_read_scalar(t, &value), status, words, line);
    OK(ls_read_scalar(ls_op_shift(number(1), 1), &value));
    assert_true(value == 2);
}
#define REFUSED(tensor, status, words) check_refused(tensor, status, words, __LINE__)

/* ---- Wrong shapes, types, axes ---- */

static void wrong_shapes(void **state)
{
    (void)state;
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 3)), *w = ls_named(F32(4, 5), "w");
    REFUSED(ls_op_matmul(x, w), LS_ERR_SHAPE,
            "matmul(|x: float32 (batch, 3)|w: float32 (4, 5)|inner sizes differ: 3 and 4");
    REFUSED(ls_op_matmul(number(1), w), LS_ERR_SHAPE, "matmul|fill:|()|input 0 has 0 axes; it must have at least 2");
    REFUSED(ls_op_add(w, F32(4, 4)), LS_ERR_SHAPE, "add(w: float32 (4, 5)|(4, 4)|do not broadcast");
    REFUSED(ls_op_select(ls_op_compare(w, LS_LESS, w), w, F32(3)), LS_ERR_SHAPE, "select|(4, 5)|(3,)");
    REFUSED(ls_op_reshape(w, LS_SHAPE(3, 7)), LS_ERR_SHAPE, "reshape(w|20 elements|(3, 7)");
    REFUSED(ls_op_reshape(w, LS_SHAPE(LS_REMAINING, LS_REMAINING)), LS_ERR_SHAPE, "reshape(w|only one");
    REFUSED(ls_op_reshape(w, LS_SHAPE(LS_REMAINING, 7)), LS_ERR_SHAPE, "reshape(w|20 elements");
    REFUSED(ls_op_reshape(w, LS_SHAPE(4, -5)), LS_ERR_SHAPE, "reshape(w|-5");
    REFUSED(ls_op_reshape(w, ((ls_shape){ .rank = 9 })), LS_ERR_SHAPE, "reshape(w|rank 9");
    REFUSED(ls_op_reshape(w, ((ls_shape){ .rank = -1 })), LS_ERR_SHAPE, "reshape(w|rank -1");
    REFUSED(ls_op_broadcast(w, LS_SHAPE(4, 6)), LS_ERR_SHAPE, "broadcast(w|(4, 5)|(4, 6)");
    REFUSED(ls_op_broadcast(w, LS_SHAPE(5)), LS_ERR_SHAPE, "broadcast(w|(5,)");
    REFUSED(ls_op_broadcast(w, ((ls_shape){ .rank = 9 })), LS_ERR_SHAPE, "broadcast(w");
    REFUSED(ls_op_concat((ls_tensor *[]){ w, F32(4, 6), F32(3, 5) }, 3, 1), LS_ERR_SHAPE, "concat(w|input 2|axis 1");
    REFUSED(ls_op_slice(w, LS_AXES(0), LS_AXES(1)), LS_ERR_SHAPE, "slice|1 axes|2");
    REFUSED(ls_op_slice(w, LS_AXES(0, 3), LS_AXES(1, 3)), LS_ERR_SHAPE, "slice(w|axis 1|3 elements from 3|0..4");
    REFUSED(ls_op_slice(w, LS_AXES(0, -1), LS_AXES(1, 1)), LS_ERR_SHAPE, "slice(w|axis 1|from -1");
    REFUSED(ls_op_slice(w, LS_AXES(INT64_MIN, 0), LS_AXES(-1, 1)), LS_ERR_SHAPE, "slice(w|axis 0");
    REFUSED(ls_op_strided_slice(w, LS_AXES(0, 0), LS_AXES(4, 5), LS_AXES(1, 0)), LS_ERR_SHAPE,
            "slice(w|axis 1|steps of 0");
    REFUSED(ls_op_strided_slice(w, LS_AXES(0, 0), LS_AXES(4, 6), LS_AXES(1, 1)), LS_ERR_SHAPE, "slice(w|axis 1");
    REFUSED(ls_op_pad(w, LS_AXES(1, 1), LS_AXES(1, -1), 0), LS_ERR_SHAPE, "pad(w|axis 1|1 and -1");
    REFUSED(ls_op_pad(w, LS_AXES(1), LS_AXES(1, 1), 0), LS_ERR_SHAPE, "pad|1 axes|2");
    REFUSED(ls_op_one_hot(I32(2), LS_F32, 0), LS_ERR_SHAPE, "one_hot(|depth must be at least 1 (got 0)");
    REFUSED(ls_op_top_k(w, 6), LS_ERR_SHAPE, "top_k(w|k is 6|from 1 to 5");
    REFUSED(ls_op_top_k_indices(w, 0), LS_ERR_SHAPE, "top_k_indices(w|k is 0");
    REFUSED(ls_op_reduce_max(F32(3, 0), LS_AXES(1), false), LS_ERR_SHAPE, "reduce_max(|(3, 0)|axis 1 is empty");
    REFUSED(ls_op_argmax(F32(3, 0), 1), LS_ERR_SHAPE, "argmax(|axis 1 is empty");
    REFUSED(ls_op_fill(g, LS_F32, ((ls_shape){ .rank = 9 }), 0), LS_ERR_SHAPE, "fill|rank 9");
    REFUSED(ls_op_fill(g, LS_F32, LS_SHAPE(3, -4), 0), LS_ERR_SHAPE, "fill|axis 1 has size -4");
    REFUSED(ls_op_input(g, "bad", LS_F32, LS_SHAPE(LS_BATCH, -3)), LS_ERR_SHAPE, "input|axis 1 has size -3");
    ls_tensor *rank8 = F32(1, 1, 1, 1, 1, 1, 1, 1);
    REFUSED(ls_op_one_hot(ls_op_cast(rank8, LS_I32), LS_F32, 3), LS_ERR_SHAPE, "one_hot(|9 axes");
    REFUSED(ls_op_gather(rank8, I32(2, 2), 0), LS_ERR_SHAPE, "gather(|9 axes");
    float data[6] = { 0 };
    REFUSED(ls_op_constant(g, LS_F32, ((ls_shape){ .rank = 9 }), data), LS_ERR_SHAPE, "constant|rank 9");
    REFUSED(ls_op_constant(g, LS_F32, LS_SHAPE(2, -3), data), LS_ERR_SHAPE, "constant|axis 1 has size -3");
    REFUSED(ls_op_constant(g, LS_F32, LS_SHAPE(2, 3), NULL), LS_ERR_INVALID, "constant|data is NULL");
    REFUSED(ls_op_variable(g, "v", LS_F32, LS_SHAPE(-2)), LS_ERR_SHAPE, "v|axis 0 has size -2");
}

static void splits(void **state)
{
    (void)state;
    ls_tensor *w = F32(4, 5), *parts[8] = { NULL };
    ls_op_split(w, 1, LS_AXES(2, 2), parts);
    REFUSED(parts[0], LS_ERR_SHAPE, "split|add up to 4|axis 1 has 5");
    assert_ptr_equal(parts[1], parts[0]);
    ls_op_split(w, 2, LS_AXES(2, 3), parts);
    REFUSED(parts[0], LS_ERR_SHAPE, "split|no axis 2");
    ls_op_split(w, 1, LS_AXES(7, -2), parts);
    REFUSED(parts[1], LS_ERR_SHAPE, "split");
    ls_op_split(w, 1, LS_AXES(INT64_MAX, INT64_MAX, 7), parts);
    REFUSED(parts[2], LS_ERR_SHAPE, "split");
    ls_op_split(w, 1, LS_AXES(2, 3), NULL);
    ls_op_split(w, 1, ((ls_axes){ .count = -1 }), parts);
    ls_op_split(parts[0], 0, LS_AXES(1), parts);
    REFUSED(parts[0], LS_ERR_SHAPE, "split");
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 3));
    ls_op_split(x, 0, LS_AXES(1, 2), parts);
    REFUSED(parts[0], LS_ERR_SHAPE, "split");
}

static void wrong_types(void **state)
{
    (void)state;
    ls_tensor *f = ls_named(F32(2, 2), "f"), *i = ls_named(I32(2, 2), "i"), *d = whole(LS_F64, LS_SHAPE(2, 2));
    ls_tensor *u = whole(LS_U8, LS_SHAPE(2, 2)), *b = whole(LS_BOOL, LS_SHAPE(2, 2));
    REFUSED(ls_op_add(f, i), LS_ERR_DTYPE, "add(f: float32 (2, 2), i: int32 (2, 2))|types differ|float32|int32|cast");
    REFUSED(ls_op_mul(f, d), LS_ERR_DTYPE, "mul(f|float32|float64");
    REFUSED(ls_op_div(i, i), LS_ERR_DTYPE, "div(i|int32");
    REFUSED(ls_op_exp(i), LS_ERR_DTYPE, "exp(i|int32|cast");
    REFUSED(ls_op_neg(u), LS_ERR_DTYPE, "neg(|uint8");
    REFUSED(ls_op_relu(b), LS_ERR_DTYPE, "relu(|bool");
    REFUSED(ls_op_matmul(i, i), LS_ERR_DTYPE, "matmul(i|int32");
    REFUSED(ls_op_matmul(f, d), LS_ERR_DTYPE, "matmul(f|float64");
    REFUSED(ls_op_select(f, f, f), LS_ERR_DTYPE, "select(f|condition is float32");
    REFUSED(ls_op_select(b, f, i), LS_ERR_DTYPE, "select(|float32 and int32");
    REFUSED(ls_op_reduce_sum(u, LS_ALL_AXES, false), LS_ERR_DTYPE, "reduce_sum(|uint8");
    REFUSED(ls_op_reduce_mean(i, LS_ALL_AXES, false), LS_ERR_DTYPE, "reduce_mean|int32");
    REFUSED(ls_op_argmax(b, 0), LS_ERR_DTYPE, "argmax(|bool");
    REFUSED(ls_op_softmax(i, 0), LS_ERR_DTYPE, "softmax(i|int32");
    REFUSED(ls_op_gather(f, f, 0), LS_ERR_DTYPE, "gather(f|indices are float32");
    REFUSED(ls_op_one_hot(f, LS_F32, 3), LS_ERR_DTYPE, "one_hot(f|float32");
    REFUSED(ls_op_one_hot(i, (ls_dtype)99, 3), LS_ERR_DTYPE, "one_hot(i|99");
    REFUSED(ls_op_cast(f, (ls_dtype)99), LS_ERR_DTYPE, "cast|99");
    REFUSED(ls_op_fill(g, (ls_dtype)-1, LS_SHAPE(2), 0), LS_ERR_DTYPE, "fill|-1");
    REFUSED(ls_op_input(g, "bad", LS_DTYPE_COUNT, LS_SHAPE(2)), LS_ERR_DTYPE, "input|6");
    REFUSED(ls_op_variable(g, "bad", LS_DTYPE_COUNT, LS_SHAPE(2)), LS_ERR_DTYPE, "bad|6");
    REFUSED(ls_op_constant(g, LS_DTYPE_COUNT, LS_SHAPE(2), "data"), LS_ERR_DTYPE, "constant|6");
    REFUSED(ls_op_count(g, LS_DTYPE_COUNT), LS_ERR_DTYPE, "count|6");
    REFUSED(ls_op_random_normal(g, LS_I32, LS_SHAPE(2), 0, 1), LS_ERR_DTYPE, "random_normal");
    REFUSED(ls_op_random_uniform(g, LS_DTYPE_COUNT, LS_SHAPE(2), 0, 1), LS_ERR_DTYPE, "random_uniform");
    REFUSED(ls_op_compare(f, (ls_relation)9, f), LS_ERR_INVALID, "compare|unknown relation 9");
    REFUSED(ls_op_clip(f, 2, 1), LS_ERR_INVALID, "clip|from 2 to 1");
    REFUSED(ls_op_capped_relu(f, -1), LS_ERR_INVALID, "capped_relu|limit is -1");
    REFUSED(ls_op_capped_relu(f, NAN), LS_ERR_INVALID, "capped_relu|nan");
    REFUSED(ls_op_clip(f, NAN, 1), LS_ERR_INVALID, "clip|nan");
    REFUSED(ls_op_dropout(f, ls_op_scalar(g, LS_F64, 0.5)), LS_ERR_DTYPE, "dropout(f|float64");
    REFUSED(ls_op_dropout(f, f), LS_ERR_SHAPE, "dropout(f|scalar");
}

static void wrong_axes(void **state)
{
    (void)state;
    ls_tensor *w = ls_named(F32(4, 5), "w");
    REFUSED(ls_op_softmax(w, 2), LS_ERR_SHAPE, "softmax(w|no axis 2 in 2 axes");
    REFUSED(ls_op_log_softmax(w, -3), LS_ERR_SHAPE, "log_softmax(w|no axis -3");
    REFUSED(ls_op_argmax(w, 2), LS_ERR_SHAPE, "argmax(w|no axis 2");
    REFUSED(ls_op_reduce_sum(w, LS_AXES(0, 2), false), LS_ERR_SHAPE, "reduce_sum|no axis 2");
    REFUSED(ls_op_reduce_mean(w, LS_AXES(-3), false), LS_ERR_SHAPE, "reduce_mean|no axis -3");
    REFUSED(ls_op_reduce_min(w, LS_AXES(1, -1), false), LS_ERR_SHAPE, "reduce_min|given twice");
    REFUSED(ls_op_reduce_max(w, ((ls_axes){ .count = 9, .axis = { 0, 1 } }), false), LS_ERR_SHAPE, "reduce_max");
    REFUSED(ls_op_concat(&w, 1, 2), LS_ERR_SHAPE, "concat(w|no axis 2");
    REFUSED(ls_op_gather(w, I32(2), 2), LS_ERR_SHAPE, "gather(w|no axis 2");
    REFUSED(ls_op_transpose(w, LS_AXES(0)), LS_ERR_SHAPE, "transpose|1 axes|has 2");
    REFUSED(ls_op_transpose(w, LS_AXES(0, 0)), LS_ERR_SHAPE, "transpose(w|axis 0 is given twice");
    REFUSED(ls_op_transpose(w, LS_AXES(0, 5)), LS_ERR_SHAPE, "transpose(w|no axis 5");
    REFUSED(ls_op_layer_norm(w, .axes = 3), LS_ERR_SHAPE, "layer_norm|last 3 axes");
    REFUSED(ls_op_softmax(number(1), 0), LS_ERR_SHAPE, "softmax(|no axis 0 in 0 axes");
}

/* ---- Images, norms, losses ---- */

static ls_tensor *recurrent(ls_cell cell, ls_tensor *p, ls_tensor *kernel, ls_tensor *bias, ls_tensor *mask)
{
    return ls_op_recurrent(p, &(ls_recurrent){ .cell = cell, .kernel = kernel, .bias = bias, .mask = mask });
}

static void attention_has_its_shapes(void **state)
{
    (void)state;
    ls_tensor *q = F32(2, 5, 6), *k = F32(2, 4, 6);
    REFUSED(ls_op_attention(q, k, k, .heads = 0), LS_ERR_INVALID, "attention|0 heads");
    REFUSED(ls_op_attention(q, k, k, .heads = 4, .kv_heads = 3), LS_ERR_INVALID, "4 heads of q|3 heads of k");
    REFUSED(ls_op_attention(q, k, k, .heads = 4), LS_ERR_SHAPE, "q has 6 columns|4 heads");
    REFUSED(ls_op_attention(q, k, k, .heads = 2, .kv_heads = 1), LS_ERR_SHAPE, "k has 6 columns|1 heads of 3 need 3");
    REFUSED(ls_op_attention(q, k, F32(2, 4, 5), .heads = 2), LS_ERR_SHAPE, "v has 5 columns|2 heads");
    REFUSED(ls_op_attention(q, k, F32(2, 3, 6), .heads = 2), LS_ERR_SHAPE, "k has 4 positions and v has 3");
    REFUSED(ls_op_attention(q, F32(3, 4, 6), k, .heads = 2), LS_ERR_SHAPE, "k has 3 samples, but q has 2");
    REFUSED(ls_op_attention(F32(5, 6), k, k, .heads = 2), LS_ERR_SHAPE, "attention|3");
    REFUSED(ls_op_attention(q, k, k, .heads = 2, .mask = F32(5, 4)), LS_ERR_SHAPE,
            "the mask is float32|5 queries|4 keys");
    REFUSED(ls_op_attention(q, k, k, .heads = 2, .scale = INFINITY), LS_ERR_INVALID, "the scale is inf");
    REFUSED(ls_op_attention(q, k, k, .heads = 2, .dropout_rate = F32(1)), LS_ERR_SHAPE,
            "the dropout rate must be a scalar");
}

static void recurrent_cells_have_their_shapes(void **state)
{
    (void)state;
    ls_tensor *p = F32(4, 5, 6), *mask = ls_op_compare(F32(4, 5), LS_GREATER, number(0));
    REFUSED(recurrent(LS_CELL_LSTM, p, F32(2, 8), NULL, NULL), LS_ERR_SHAPE,
            "recurrent|5 steps of 6 numbers|4 numbers");
    REFUSED(recurrent(LS_CELL_SIMPLE, F32(4, 6), F32(6, 6), NULL, NULL), LS_ERR_SHAPE, "recurrent|3");
    REFUSED(recurrent(LS_CELL_SIMPLE, F32(4, 0, 6), F32(6, 6), NULL, NULL), LS_ERR_SHAPE, "0 steps");
    REFUSED(recurrent(LS_CELL_SIMPLE, p, F32(5, 6), NULL, NULL), LS_ERR_SHAPE,
            "the recurrent kernel is float32 (5, 6); expected float32 (6, 6)");
    REFUSED(recurrent(LS_CELL_GRU_RESET_AFTER, p, F32(2, 6), F32(5), NULL), LS_ERR_SHAPE, "the recurrent bias is|(6,)");
    REFUSED(recurrent(LS_CELL_SIMPLE, p, F32(6, 6), NULL, F32(4, 5)), LS_ERR_SHAPE, "the mask is float32|bool (4, 5)");
    REFUSED(recurrent(LS_CELL_SIMPLE, F32(4, 3, 6), F32(6, 6), NULL, mask), LS_ERR_SHAPE, "the mask is bool (4, 5)");
}

static void wrong_images(void **state)
{
    (void)state;
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 8, 8, 6)), *k = F32(3, 3, 6, 4);
    REFUSED(ls_op_conv2d(F32(8, 8, 6), k), LS_ERR_SHAPE, "conv2d|4 axes|3");
    REFUSED(ls_op_conv2d(x, F32(3, 3, 6)), LS_ERR_SHAPE, "conv2d|4 axes|3");
    REFUSED(ls_op_conv2d(x, F32(3, 3, 5, 4)), LS_ERR_SHAPE, "conv2d(x|5 input channels|6");
    REFUSED(ls_op_conv2d(x, F32(9, 3, 6, 4)), LS_ERR_SHAPE, "conv2d|axis 1|window of 9|8 pixels");
    REFUSED(ls_op_conv2d(x, k, .groups = 4), LS_ERR_SHAPE, "conv2d(x|4 groups|6 channels");
    REFUSED(ls_op_conv2d(x, k, .groups = -1), LS_ERR_SHAPE, "conv2d(x|-1 groups");
    REFUSED(ls_op_conv2d(x, k, .stride = { 1, -1 }), LS_ERR_SHAPE, "conv2d|axis 2|stride -1");
    REFUSED(ls_op_conv2d(x, k, .dilation = { -1, 1 }), LS_ERR_SHAPE, "conv2d|axis 1|dilation -1");
    REFUSED(ls_op_conv2d(x, k, .dilation = { 4, 4 }), LS_ERR_SHAPE, "conv2d|axis 1|dilation 4");
    REFUSED(ls_op_conv2d(x, k, .padding = LS_EXPLICIT, .pad = { 0, 0, -1, 0 }), LS_ERR_SHAPE,
            "conv2d|axis 2|padding|-1 and 0");
    REFUSED(ls_op_conv2d(x, k, .padding = (ls_padding)7), LS_ERR_INVALID, "conv2d|unknown padding 7");
    REFUSED(ls_op_conv2d(x, whole(LS_F64, LS_SHAPE(3, 3, 6, 4))), LS_ERR_DTYPE, "conv2d(x|float64");
    REFUSED(ls_op_conv2d(whole(LS_U8, LS_SHAPE(1, 8, 8, 6)), k), LS_ERR_DTYPE, "conv2d|uint8");
    REFUSED(ls_op_conv2d(x, ls_op_input(g, NULL, LS_F32, LS_SHAPE(LS_BATCH, 3, 6, 4))), LS_ERR_SHAPE, "conv2d");
    REFUSED(ls_op_max_pool2d(x, { 0, 2 }), LS_ERR_SHAPE, "max_pool2d|axis 1|window 0");
    REFUSED(ls_op_max_pool2d(x, { 9, 2 }), LS_ERR_SHAPE, "max_pool2d|window of 9|8 pixels");
    REFUSED(ls_op_average_pool2d(x, { 2, 2 }, .stride = { 1, -2 }), LS_ERR_SHAPE, "average_pool2d|axis 2|stride -2");
    REFUSED(ls_op_average_pool2d(x, { 2, 2 }, .padding = LS_EXPLICIT, .pad = { 2, 0, 0, 0 }), LS_ERR_SHAPE,
            "average_pool2d|axis 1|padding of 2");
    REFUSED(ls_op_max_pool2d(F32(8, 8), { 2, 2 }), LS_ERR_SHAPE, "max_pool2d|4 axes|2");
    REFUSED(ls_op_warp(F32(8, 8), F32(8, 6)), LS_ERR_SHAPE, "warp|4 axes|2");
    REFUSED(ls_op_warp(I32(1, 8, 8, 3), I32(1, 6)), LS_ERR_DTYPE, "warp|int32");
    REFUSED(ls_op_warp(x, whole(LS_F64, LS_SHAPE(1, 6))), LS_ERR_DTYPE, "warp|float64");
    REFUSED(ls_op_warp(x, F32(6)), LS_ERR_SHAPE, "warp|1 axes|expected 2");
    REFUSED(ls_op_warp(x, F32(1, 8)), LS_ERR_SHAPE, "warp|6 numbers|8");
    REFUSED(ls_op_warp(x, F32(2, 6)), LS_ERR_SHAPE, "warp|one matrix per image");
    REFUSED(ls_op_warp(x, F32(1, 6), .interpolation = (ls_interpolation)3), LS_ERR_INVALID, "warp|interpolation 3");
    REFUSED(ls_op_warp(x, F32(1, 6), .fill_mode = (ls_fill_mode)5), LS_ERR_INVALID, "warp|fill mode 5");
    REFUSED(ls_op_warp(x, F32(1, 6), .fill_value = INFINITY), LS_ERR_INVALID, "warp|fill value is inf");
    REFUSED(ls_op_warp(x, F32(1, 6), .size = { 4, -1 }), LS_ERR_SHAPE, "warp|axis 2|-1 pixels");
    REFUSED(ls_op_warp(F32(1, 0, 8, 3), F32(1, 6), .size = { 4, 4 }), LS_ERR_SHAPE, "warp|axis 1|no pixels");
    REFUSED(ls_op_global_max_pool2d(F32(8, 8)), LS_ERR_SHAPE, "global_max_pool2d|4 axes");
    REFUSED(ls_op_global_average_pool2d(I32(1, 8, 8, 3)), LS_ERR_DTYPE, "global_average_pool2d|int32");
}

static void wrong_norms(void **state)
{
    (void)state;
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 6)), *updates[2];
    ls_tensor *mean = ls_op_variable(g, "mean", LS_F32, LS_SHAPE(6)),
              *variance = ls_op_variable(g, "variance", LS_F32, LS_SHAPE(6));
    REFUSED(ls_op_batch_norm(F32(6), .training = true), LS_ERR_SHAPE, "batch_norm|2 axes|1");
    REFUSED(ls_op_batch_norm(x, .training = true, .gamma = F32(5)), LS_ERR_SHAPE, "batch_norm(x|gamma|(5,)|(6,)");
    REFUSED(ls_op_batch_norm(x, .training = true, .beta = x), LS_ERR_SHAPE, "batch_norm(x|beta|batch axis");
    REFUSED(ls_op_batch_norm(x, .training = false), LS_ERR_INVALID, "batch_norm|moving_mean");
    REFUSED(ls_op_batch_norm(x, .moving_mean = mean, .moving_variance = variance, .epsilon = -1), LS_ERR_INVALID,
            "batch_norm|epsilon must be at least 0 (got -1)");
    REFUSED(ls_op_batch_norm(x, .training = true, .momentum = NAN), LS_ERR_INVALID, "batch_norm|momentum must be");
    REFUSED(ls_op_batch_norm(I32(3, 6), .training = true), LS_ERR_DTYPE, "moments|int32");
    ls_op_batch_norm(x, .training = true, .moving_mean = F32(6), .moving_variance = variance, .updates = updates);
    REFUSED(updates[0], LS_ERR_INVALID, "assign|not a variable");
    /* An error has updates of its own: running them reports it. */
    ls_tensor *error = ls_op_batch_norm(ls_op_add(x, F32(5)), .training = true, .moving_mean = mean,
                                        .moving_variance = variance, .updates = updates);
    REFUSED(error, LS_ERR_SHAPE, "add(x");
    assert_ptr_equal(updates[0], error);
    assert_ptr_equal(updates[1], error);
    error = ls_op_batch_norm(x, .training = true, .gamma = F32(5), .moving_mean = mean, .updates = updates);
    assert_ptr_equal(updates[0], error);
    REFUSED(ls_op_layer_norm(x, .axes = 2), LS_ERR_SHAPE, "layer_norm|last 2 axes");
    REFUSED(ls_op_layer_norm(x, .epsilon = NAN), LS_ERR_INVALID, "layer_norm|epsilon");
    REFUSED(ls_op_layer_norm(I32(3, 6), .axes = 1), LS_ERR_DTYPE, "layer_norm|int32");
    REFUSED(ls_op_layer_norm(x, .gamma = F32(5)), LS_ERR_SHAPE, "mul(|(5,)");
}

static void wrong_losses(void **state)
{
    (void)state;
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 6)),
              *labels = ls_op_input(g, "y", LS_I32, LS_SHAPE(LS_BATCH));
    REFUSED(ls_op_sparse_cross_entropy(I32(6), x, LS_LOGITS), LS_ERR_SHAPE, "sparse_cross_entropy(x|(6,)|(batch,)");
    REFUSED(ls_op_sparse_cross_entropy(x, x, LS_LOGITS), LS_ERR_DTYPE, "sparse_cross_entropy(x|labels are float32");
    REFUSED(ls_op_sparse_cross_entropy(labels, ls_op_cast(labels, LS_F32), LS_LOGITS), LS_ERR_SHAPE,
            "sparse_cross_entropy(|classes");
    REFUSED(ls_op_ctc(F32(2, 3), F32(2, 5, 4)), LS_ERR_DTYPE, "ctc(|labels are float32");
    REFUSED(ls_op_ctc(I32(3), F32(2, 5, 4)), LS_ERR_SHAPE, "ctc(|labels have shape (3,) and logits (2, 5, 4)");
    REFUSED(ls_op_ctc(I32(2, 3), F32(5, 4)), LS_ERR_SHAPE, "ctc(|labels have shape (2, 3) and logits (5, 4)");
    REFUSED(ls_op_ctc(I32(2, 3), F32(3, 5, 4)), LS_ERR_SHAPE, "ctc(|(2, 3)|(3, 5, 4)");
    REFUSED(ls_op_ctc(I32(2, 3), F32(2, 0, 4)), LS_ERR_SHAPE, "ctc(|there must be a frame and a class");
    REFUSED(ls_op_cross_entropy(F32(3, 6), x, LS_LOGITS), LS_ERR_SHAPE,
            "cross_entropy|targets have shape (3, 6)|predictions (batch, 6)");
    REFUSED(ls_op_binary_cross_entropy(F32(6), x, LS_PROBABILITIES), LS_ERR_SHAPE,
            "binary_cross_entropy|targets have shape (6,)|predictions (batch, 6)");
    REFUSED(ls_op_mean_squared_error(ls_op_cast(labels, LS_F32), ls_op_cast(labels, LS_F32)), LS_ERR_SHAPE,
            "mean_squared_error|(batch,)|no axis to reduce");
    REFUSED(ls_op_mean_absolute_error(F32(3, 1), F32(3)), LS_ERR_SHAPE,
            "mean_absolute_error|targets have shape (3, 1)|predictions (3,)");
    REFUSED(ls_op_huber(F32(3), F32(3), 0), LS_ERR_INVALID, "huber|delta must be above 0 (got 0)");
    REFUSED(ls_op_huber(F32(3), F32(3), NAN), LS_ERR_INVALID, "huber|delta must be above 0");
    REFUSED(ls_op_mean_squared_error(whole(LS_F64, LS_SHAPE(3)), F32(3)), LS_ERR_DTYPE, "sub(|float64");
}

/* ---- The batch axis where none may be ---- */

static void batch_axis_where_none_may_be(void **state)
{
    (void)state;
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 3)), *v = ls_op_variable(g, "v", LS_F32, LS_SHAPE(3));
    float data[3] = { 0 };
    REFUSED(ls_op_constant(g, LS_F32, LS_SHAPE(LS_BATCH, 3), data), LS_ERR_SHAPE, "constant|(batch, 3)|batch axis");
    REFUSED(ls_op_variable(g, "w", LS_F32, LS_SHAPE(LS_BATCH)), LS_ERR_SHAPE, "w|(batch,)|batch axis");
    REFUSED(ls_op_input(g, "late", LS_F32, LS_SHAPE(3, LS_BATCH)), LS_ERR_SHAPE, "input|axis 1");
    REFUSED(ls_op_fill(g, LS_F32, LS_SHAPE(3, LS_BATCH), 0), LS_ERR_SHAPE, "fill|axis 1");
    REFUSED(ls_op_assign(v, ls_op_reshape(x, LS_SHAPE(LS_BATCH, 3))), LS_ERR_SHAPE, "assign(x|whole");
    REFUSED(ls_op_apply(v, x, .rule = LS_APPLY_SGD, .learning_rate = number(1)), LS_ERR_SHAPE, "apply(x|whole");
    REFUSED(ls_op_transpose(x, LS_AXES(1, 0)), LS_ERR_SHAPE,
            "transpose(x: float32 (batch, 3))|mix samples|gather_batch");
    REFUSED(ls_op_reshape(x, LS_SHAPE(LS_REMAINING)), LS_ERR_SHAPE, "reshape(x|mix samples|LS_BATCH");
    REFUSED(ls_op_concat((ls_tensor *[]){ x, x }, 2, 0), LS_ERR_SHAPE, "concat(x|mix samples");
    REFUSED(ls_op_slice(x, LS_AXES(1, 0), LS_AXES(-1, -1)), LS_ERR_SHAPE, "slice(x|mix samples");
    REFUSED(ls_op_pad(x, LS_AXES(1, 0), LS_AXES(0, 0), 0), LS_ERR_SHAPE, "pad(x|mix samples");
    REFUSED(ls_op_softmax(x, 0), LS_ERR_SHAPE, "softmax(x|mix samples");
    REFUSED(ls_op_argmax(x, 0), LS_ERR_SHAPE, "argmax(x|mix samples");
    REFUSED(ls_op_gather(x, I32(2), 0), LS_ERR_SHAPE, "gather(x|mix samples");
    REFUSED(ls_op_matmul(x, x, .transpose_b = true), LS_ERR_SHAPE, "matmul(x|mix samples");
    REFUSED(ls_op_matmul(F32(2, 3), x, .transpose_b = true), LS_ERR_SHAPE, "matmul(|mix samples");
    REFUSED(ls_op_add(x, F32(2, 1, 1)), LS_ERR_SHAPE, "add(x|mix samples");
    REFUSED(ls_op_add(x, ls_op_gather_batch(x)), LS_ERR_SHAPE, "add(x|mix samples|scatter_batch");
    REFUSED(ls_op_gather_batch(v), LS_ERR_SHAPE, "gather_batch(v|no batch axis");
    REFUSED(ls_op_scatter_batch(x), LS_ERR_SHAPE, "scatter_batch(x");
    REFUSED(ls_op_scatter_batch(v), LS_ERR_SHAPE, "scatter_batch(v");
}

/* ---- Sizes that overflow, or that no machine has ---- */

static void sizes_that_overflow(void **state)
{
    (void)state;
    const int64_t huge = (int64_t)1 << 40, most = INT64_MAX;
    char byte = 0;
    REFUSED(ls_op_constant(g, LS_F32, LS_SHAPE(huge, huge), &byte), LS_ERR_OVERFLOW, "constant|overflows");
    REFUSED(ls_op_constant(g, LS_F64, LS_SHAPE(most), &byte), LS_ERR_OVERFLOW, "constant|(9223372036854775807,)");
    REFUSED(ls_op_variable(g, "v", LS_F32, LS_SHAPE(huge, huge)), LS_ERR_OVERFLOW, "v|overflows");
    REFUSED(ls_op_variable(g, "v", LS_F64, LS_SHAPE(most)), LS_ERR_OVERFLOW, "v|overflows");
    REFUSED(ls_op_variable(g, "v", LS_F32, LS_SHAPE(huge, huge, 0)), LS_ERR_OVERFLOW, "v|overflows");
    REFUSED(ls_op_variable(g, "v", LS_U8, LS_SHAPE(most)), LS_ERR_MEMORY, "v");
    REFUSED(ls_op_fill(g, LS_F32, LS_SHAPE(huge, huge), 0), LS_ERR_OVERFLOW, "fill|overflows");
    REFUSED(ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, huge, huge)), LS_ERR_OVERFLOW, "input|overflows");
    REFUSED(ls_op_random_normal(g, LS_F32, LS_SHAPE(most, most), 0, 1), LS_ERR_OVERFLOW, "random_normal|overflows");
    REFUSED(ls_op_broadcast(number(1), LS_SHAPE(huge, huge)), LS_ERR_OVERFLOW, "broadcast(|overflows");
    ls_tensor *column = F32(huge, 1), *row = F32(1, huge);
    REFUSED(ls_op_add(column, row), LS_ERR_OVERFLOW, "add(|(1099511627776, 1099511627776) overflows");
    REFUSED(ls_op_matmul(column, row), LS_ERR_OVERFLOW, "matmul(|overflows");
    REFUSED(ls_op_one_hot(I32(huge), LS_F32, huge), LS_ERR_OVERFLOW, "one_hot(|overflows");
    REFUSED(ls_op_one_hot(I32(2), LS_F32, most), LS_ERR_OVERFLOW, "one_hot(|overflows");
    REFUSED(ls_op_gather(column, I32(huge), 1), LS_ERR_OVERFLOW, "gather(|overflows");
    REFUSED(ls_op_pad(column, LS_AXES(0, huge), LS_AXES(0, huge), 0), LS_ERR_OVERFLOW, "pad(|overflows");
    REFUSED(ls_op_pad(column, LS_AXES(0, most), LS_AXES(0, most), 0), LS_ERR_SHAPE, "pad(|axis 1");
    REFUSED(ls_op_reshape(column, LS_SHAPE(huge, huge, most)), LS_ERR_SHAPE, "reshape(");
    REFUSED(ls_op_reshape(column, LS_SHAPE(most, LS_REMAINING)), LS_ERR_SHAPE, "reshape(");
    assert_false(ls_tensor_is_error(ls_op_strided_slice(row, LS_AXES(0, 1), LS_AXES(1, most), LS_AXES(1, most))));
    REFUSED(ls_op_strided_slice(row, LS_AXES(INT64_MIN, 0), LS_AXES(1, 1), LS_AXES(1, 1)), LS_ERR_SHAPE, "slice(");
    REFUSED(ls_op_slice(row, LS_AXES(0, most), LS_AXES(1, most)), LS_ERR_SHAPE, "slice(");
    ls_tensor *image = F32(1, (int64_t)1 << 31, 1, 1), *kernel = F32(1, 1, 1, (int64_t)1 << 26);
    REFUSED(ls_op_conv2d(image, kernel), LS_ERR_OVERFLOW, "conv2d(|overflows");
    REFUSED(ls_op_conv2d(F32(1, huge, 1, 1), kernel), LS_ERR_SHAPE, "conv2d|axis 1|2^31");
    REFUSED(ls_op_conv2d(image, F32(1, 1, 1, 1), .stride = { most, 1 }), LS_ERR_SHAPE, "conv2d|stride");
    REFUSED(ls_op_conv2d(image, F32(2, 1, 1, 1), .dilation = { most, 1 }), LS_ERR_SHAPE, "conv2d|dilation");
    REFUSED(ls_op_conv2d(image, F32(2, 1, 1, 1), .padding = LS_EXPLICIT, .pad = { most, most, 0, 0 }), LS_ERR_SHAPE,
            "conv2d|padding");
    REFUSED(ls_op_max_pool2d(image, { most, most }, .padding = LS_SAME), LS_ERR_SHAPE, "max_pool2d|window");
}

static void sizes_that_no_machine_has(void **state)
{
    (void)state;
    const int64_t much = (int64_t)1 << 52; /* more than the address space */
    REFUSED(ls_op_variable(g, "v", LS_U8, LS_SHAPE(much)), LS_ERR_MEMORY, "v|has no memory for v, 4294967296.00 MiB");
    ls_tensor *big = ls_named(whole(LS_U8, LS_SHAPE(much)), "big"), *v = ls_op_variable(g, "v", LS_F32, LS_SCALAR);
    ls_tensor *write = ls_op_assign(v, number(2));
    FAILS(ls_eval(g, NULL, 0, (ls_tensor *[]){ write, big }, 2), LS_ERR_MEMORY, "big|fill|4294967296.00 MiB");
    double value;
    OK(ls_read_scalar(v, &value));
    assert_true(value == 0); /* nothing was written */
    ls_tensor *x = ls_op_input(g, "x", LS_U8, LS_SHAPE(LS_BATCH, 1)),
              *wide = ls_op_broadcast(x, LS_SHAPE(LS_BATCH, much));
    uint8_t bytes[4096] = { 0 };
    FAILS(ls_eval(g, &(ls_feed){ x, ls_array_of(LS_U8, LS_SHAPE(4096, 1), bytes) }, 1, &wide, 1), LS_ERR_OVERFLOW,
          "broadcast:|(batch, 4503599627370496)|4096 samples");
}

/* ---- Names ---- */

static void wrong_names(void **state)
{
    (void)state;
    const char *bad[] = { "", " ", "a b", "a/", "/a", "a//b", "a:0", "a\"b", "a\n", "/", NULL };
    for (int i = 0; i < 11; i++) {
        ls_tensor *x = number(1);
        REFUSED(ls_named(x, bad[i]), LS_ERR_INVALID, "is not a valid name");
        double value;
        OK(ls_read_scalar(x, &value)); /* the tensor itself is unchanged */
        if (bad[i])
            REFUSED(ls_op_input(g, bad[i], LS_F32, LS_SHAPE(2)), LS_ERR_INVALID, "is not a valid name");
        if (bad[i])
            REFUSED(ls_op_variable(g, bad[i], LS_F32, LS_SHAPE(2)), LS_ERR_INVALID, "is not a valid name");
        bool inside = false;
        LS_NAME_SCOPE(g, bad[i])
        {
            inside = true; /* the body still builds, without a prefix */
            LS_SCOPE(g) assert_string_equal(ls_tensor_name(ls_named(number(1), "z")), "z");
        }
        assert_true(inside);
    }
    assert_int_equal(ls_graph_status(g), LS_ERR_INVALID);
}

static void a_bad_name_scope_is_kept_as_the_error(void **state)
{
    (void)state;
    LS_NAME_SCOPE(g, "a b") number(1);
    FAILS(ls_graph_status(g), LS_ERR_INVALID, "name scope|a b");
}

static void names_that_are_taken(void **state)
{
    (void)state;
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(2)), *found = NULL;
    REFUSED(ls_op_variable(g, "x", LS_F32, LS_SHAPE(2)), LS_ERR_INVALID, "\"x\" belongs to another tensor|input");
    REFUSED(ls_named(number(1), "x"), LS_ERR_INVALID, "\"x\" belongs to another tensor");
    REFUSED(ls_named(x, "y"), LS_ERR_STATE, "\"x\" cannot also be named \"y\"");
    REFUSED(ls_named(x, "x"), LS_ERR_STATE, "\"x\" cannot also be named");
    OK(ls_graph_find(g, "x", &found));
    assert_ptr_equal(found, x);
    FAILS(ls_graph_find(g, "y", &found), LS_ERR_NOT_FOUND, "\"y\"");
    assert_ptr_equal(found, x); /* unset on failure */
    LS_NAME_SCOPE(g, "s") assert_string_equal(ls_tensor_name(ls_op_input(g, "x", LS_F32, LS_SHAPE(2))), "s/x");
}

/* A node's inputs exist before it does, and a name belongs to one tensor: there is no way to name a
 * cycle. */
static void a_cycle_of_names_cannot_be_made(void **state)
{
    (void)state;
    ls_tensor *a = ls_named(number(1), "a"), *found = a;
    FAILS(ls_graph_find(g, "b", &found), LS_ERR_NOT_FOUND, "\"b\""); /* b, to be made from a, is not there yet */
    ls_tensor *b = ls_named(ls_op_shift(a, 1), "b");
    ls_tensor *again = ls_named(ls_op_shift(b, 1), "a"); /* a, made from b, made from a */
    REFUSED(again, LS_ERR_INVALID, "\"a\" belongs to another tensor of the graph, the fill");
    OK(ls_graph_find(g, "a", &found));
    assert_ptr_equal(found, a);
    double value;
    OK(ls_read_scalar(b, &value));
    assert_true(value == 2);
    LS_NAME_SCOPE(g, "a")
    LS_NAME_SCOPE(g, "b") assert_string_equal(ls_tensor_name(ls_named(ls_op_add(a, b), "a")), "a/b/a");
    float zero = 0;
    ls_tensor *v = ls_op_variable(g, "v", LS_F32, LS_SCALAR, .data = &zero);
    ls_tensor *write = ls_op_assign(v, ls_op_shift(v, 1)); /* no cycle either: v is read before it is written */
    for (int i = 1; i <= 3; i++) {
        OK(ls_eval(g, NULL, 0, &write, 1));
        OK(ls_read_scalar(v, &value));
        assert_true(value == i);
    }
    ls_tensor *after = ls_op_assign(v, ls_op_shift(write, 1)); /* a write made from a write of the same variable */
    FAILS(ls_eval(g, NULL, 0, &after, 1), LS_ERR_INVALID, "v is written twice");
}

/* ---- NULL ---- */

static void null_graphs(void **state)
{
    (void)state;
    float data[2] = { 0 };
    ls_tensor *t = F32(2);
    assert_null(ls_op_constant(NULL, LS_F32, LS_SHAPE(2), data));
    assert_null(ls_op_scalar(NULL, LS_F32, 1));
    assert_null(ls_op_fill(NULL, LS_F32, LS_SHAPE(2), 1));
    assert_null(ls_op_input(NULL, "x", LS_F32, LS_SHAPE(2)));
    assert_null(ls_op_input(NULL, NULL, LS_F32, LS_SHAPE(2)));
    assert_null(ls_op_count(NULL, LS_F32));
    assert_null(ls_op_variable(NULL, "x", LS_F32, LS_SHAPE(2)));
    assert_null(ls_op_random_uniform(NULL, LS_F32, LS_SHAPE(2), 0, 1));
    assert_null(ls_op_random_normal(NULL, LS_F32, LS_SHAPE(2), 0, 1));
    LS_SCOPE(NULL) fail();
    LS_NAME_SCOPE(NULL, "x") fail();
    ls_scope_close(NULL);
    ls_name_scope_close(NULL);
    ls_graph_destroy(NULL);
    ls_context_close(NULL);
    FAILS(ls_context_open(NULL, NULL), LS_ERR_INVALID, "ls_context_open");
    FAILS(ls_context_open(&(ls_context_options){ .log_level = (ls_log_level)9 }, &ctx), LS_ERR_INVALID, "log level 9");
    ls_graph *unset = g;
    FAILS(ls_graph_create(NULL, &unset), LS_ERR_INVALID, "ls_graph_create|context");
    assert_ptr_equal(unset, g);
    FAILS(ls_graph_create(ctx, NULL), LS_ERR_INVALID, "ls_graph_create");
    FAILS(ls_graph_status(NULL), LS_ERR_INVALID, "ls_graph_status");
    assert_int_equal(ls_graph_node_count(NULL), 0);
    char *text = NULL;
    FAILS(ls_graph_dump(NULL, LS_DUMP_TEXT, &text), LS_ERR_INVALID, "ls_graph_dump");
    FAILS(ls_graph_dump(g, LS_DUMP_TEXT, NULL), LS_ERR_INVALID, "ls_graph_dump");
    FAILS(ls_graph_dump(g, (ls_dump_format)5, &text), LS_ERR_INVALID, "ls_graph_dump|5");
    assert_null(text);
    FAILS(ls_graph_find(NULL, "x", &t), LS_ERR_INVALID, "ls_graph_find");
    FAILS(ls_graph_find(g, NULL, &t), LS_ERR_INVALID, "ls_graph_find");
    FAILS(ls_graph_find(g, "x", NULL), LS_ERR_INVALID, "ls_graph_find");
    FAILS(ls_eval(NULL, NULL, 0, &t, 1), LS_ERR_INVALID, "ls_eval|NULL");
    FAILS(ls_eval(g, NULL, 1, &t, 1), LS_ERR_INVALID, "ls_eval|feeds is NULL|feed_count is 1");
    FAILS(ls_eval(g, NULL, 0, NULL, 2), LS_ERR_INVALID, "ls_eval|fetch_count is 2");
    OK(ls_eval(g, NULL, 0, NULL, 0));
}

/* With every tensor NULL there is no graph to own an error: NULL comes back. */
static void null_tensors(void **state)
{
    (void)state;
    ls_shape shape = LS_SHAPE(2);
    ls_axes axes = LS_AXES(0);
    ls_tensor *n = NULL, *none[3] = { NULL };
    ls_tensor *const got[] = {
        ls_named(n, "x"),
        ls_op_assign(n, n),
        ls_op_assign_add(n, n),
        ls_op_apply(n, n, .rule = LS_APPLY_ADAM),
        ls_op_gather_batch(n),
        ls_op_scatter_batch(n),
        ls_op_stop_gradient(n),
        ls_op_cast(n, LS_F32),
        ls_op_add(n, n),
        ls_op_sub(n, n),
        ls_op_mul(n, n),
        ls_op_div(n, n),
        ls_op_pow(n, n),
        ls_op_maximum(n, n),
        ls_op_minimum(n, n),
        ls_op_scale(n, 2),
        ls_op_shift(n, 2),
        ls_op_compare(n, LS_LESS, n),
        ls_op_select(n, n, n),
        ls_op_neg(n),
        ls_op_abs(n),
        ls_op_sign(n),
        ls_op_exp(n),
        ls_op_log(n),
        ls_op_sqrt(n),
        ls_op_rsqrt(n),
        ls_op_square(n),
        ls_op_erf(n),
        ls_op_clip(n, 0, 1),
        ls_op_relu(n),
        ls_op_leaky_relu(n, 0.1),
        ls_op_capped_relu(n, 6),
        ls_op_sigmoid(n),
        ls_op_tanh(n),
        ls_op_softplus(n),
        ls_op_gelu(n, true),
        ls_op_silu(n),
        ls_op_elu(n, 1),
        ls_op_reshape(n, shape),
        ls_op_flatten(n),
        ls_op_transpose(n, axes),
        ls_op_broadcast(n, shape),
        ls_op_concat(NULL, 2, 0),
        ls_op_concat(none, 3, 0),
        ls_op_concat(none, 0, 0),
        ls_op_slice(n, axes, axes),
        ls_op_strided_slice(n, axes, axes, axes),
        ls_op_pad(n, axes, axes, 0),
        ls_op_gather(n, n, 0),
        ls_op_one_hot(n, LS_F32, 3),
        ls_op_matmul(n, n),
        ls_op_custom("own", .inputs = { n }),
        ls_op_reduce_sum(n, axes, false),
        ls_op_reduce_mean(n, axes, false),
        ls_op_reduce_max(n, axes, false),
        ls_op_reduce_min(n, axes, false),
        ls_op_argmax(n, 0),
        ls_op_top_k(n, 1),
        ls_op_top_k_indices(n, 1),
        ls_op_softmax(n, 0),
        ls_op_log_softmax(n, 0),
        ls_op_conv2d(n, n),
        ls_op_max_pool2d(n, { 2, 2 }),
        ls_op_average_pool2d(n, { 2, 2 }),
        ls_op_warp(n, n),
        ls_op_global_max_pool2d(n),
        ls_op_global_average_pool2d(n),
        ls_op_batch_norm(n, .training = true),
        ls_op_layer_norm(n, .axes = 1),
        ls_op_dropout(n, n),
        ls_op_sparse_cross_entropy(n, n, LS_LOGITS),
        ls_op_cross_entropy(n, n, LS_LOGITS),
        ls_op_binary_cross_entropy(n, n, LS_LOGITS),
        ls_op_mean_squared_error(n, n),
        ls_op_mean_absolute_error(n, n),
        ls_op_huber(n, n, 1),
        ls_op_ctc(n, n),
    };
    for (size_t i = 0; i < sizeof(got) / sizeof(got[0]); i++)
        if (got[i])
            fail_msg("call %zu of NULL gave a %s", i, ls_tensor_op(got[i]));
    ls_tensor *parts[2] = { F32(1), F32(1) }, *updates[2] = { F32(1), F32(1) };
    ls_op_split(n, 0, LS_AXES(1, 1), parts);
    assert_null(parts[0]);
    assert_null(parts[1]);
    ls_op_batch_norm(n, .training = true, .updates = updates);
    assert_null(updates[0]);
    assert_true(ls_tensor_is_error(n));
    assert_false(ls_tensor_is_per_sample(n));
    assert_int_equal(ls_tensor_shape(n).rank, 0);
    assert_int_equal(ls_tensor_dtype(n), LS_F32);
    assert_string_equal(ls_tensor_op(n), "error");
    assert_string_equal(ls_tensor_name(n), "");
    assert_null(ls_tensor_graph(n));
}

/* Beside a tensor that is there, a missing one is an error of its graph that names it. */
static void one_null_among_tensors(void **state)
{
    (void)state;
    ls_tensor *t = F32(2, 2), *n = NULL, *v = ls_op_variable(g, "v", LS_F32, LS_SHAPE(2, 2));
    ls_tensor *image = F32(1, 4, 4, 1), *parts[] = { t, n };
    REFUSED(ls_op_add(t, n), LS_ERR_INVALID, "add|input 1 is NULL");
    REFUSED(ls_op_add(n, t), LS_ERR_INVALID, "add|input 0 is NULL");
    REFUSED(ls_op_select(n, t, t), LS_ERR_INVALID, "select|input 0 is NULL");
    REFUSED(ls_op_compare(t, LS_LESS, n), LS_ERR_INVALID, "compare|input 1 is NULL");
    REFUSED(ls_op_matmul(t, n), LS_ERR_INVALID, "matmul|input 1 is NULL");
    REFUSED(ls_op_matmul(n, t), LS_ERR_INVALID, "matmul|input 0 is NULL");
    REFUSED(ls_op_gather(t, n, 0), LS_ERR_INVALID, "gather|input 1 is NULL");
    REFUSED(ls_op_concat(parts, 2, 0), LS_ERR_INVALID, "concat|input 1 is NULL");
    REFUSED(ls_op_conv2d(image, n), LS_ERR_INVALID, "conv2d|input 1 is NULL");
    REFUSED(ls_op_conv2d(n, image), LS_ERR_INVALID, "conv2d|input 0 is NULL");
    REFUSED(ls_op_dropout(t, n), LS_ERR_INVALID, "dropout|input 1 is NULL");
    REFUSED(ls_op_sparse_cross_entropy(n, t, LS_LOGITS), LS_ERR_INVALID, "sparse_cross_entropy|input 1 is NULL");
    REFUSED(ls_op_cross_entropy(n, t, LS_LOGITS), LS_ERR_INVALID, "cross_entropy|NULL");
    REFUSED(ls_op_binary_cross_entropy(n, t, LS_LOGITS), LS_ERR_INVALID, "binary_cross_entropy|NULL");
    REFUSED(ls_op_mean_squared_error(n, t), LS_ERR_INVALID, "mean_squared_error|NULL");
    REFUSED(ls_op_mean_absolute_error(n, t), LS_ERR_INVALID, "mean_absolute_error|NULL");
    REFUSED(ls_op_huber(n, t, 1), LS_ERR_INVALID, "huber|NULL");
    REFUSED(ls_op_ctc(n, t), LS_ERR_INVALID, "ctc|input 1 is NULL");
    REFUSED(ls_op_assign(n, t), LS_ERR_INVALID, "assign|variable is NULL");
    REFUSED(ls_op_assign(v, n), LS_ERR_INVALID, "assign|input 0 is NULL");
    REFUSED(ls_op_assign_add(n, t), LS_ERR_INVALID, "assign_add|variable is NULL");
    REFUSED(ls_op_apply(n, t, .rule = LS_APPLY_SGD), LS_ERR_INVALID, "apply|variable is NULL");
    REFUSED(ls_op_apply(v, n, .rule = LS_APPLY_SGD, .learning_rate = number(1)), LS_ERR_INVALID,
            "apply|input 0 is NULL");
    ls_op_mean_squared_error(t, n);
    ls_op_cross_entropy(t, n, LS_LOGITS); /* these may also answer NULL: there is nothing to run */
}

static void null_gradients(void **state)
{
    (void)state;
    ls_tensor *v = ls_op_variable(g, "v", LS_F32, LS_SHAPE(2)), *loss = ls_op_square(v), *out = v, *n = NULL;
    FAILS(ls_gradients(NULL, &v, 1, &out), LS_ERR_INVALID, "ls_gradients");
    FAILS(ls_gradients(loss, NULL, 1, &out), LS_ERR_INVALID, "ls_gradients");
    FAILS(ls_gradients(loss, &v, 1, NULL), LS_ERR_INVALID, "ls_gradients");
    FAILS(ls_gradients(loss, &n, 1, &out), LS_ERR_INVALID, "ls_gradients|variable 0 is NULL");
    OK(ls_gradients(loss, NULL, 0, NULL));
    ls_tensor *ints = I32(2), *error = ls_op_add(v, ints), *argmax = ls_op_argmax(v, 0);
    FAILS(ls_gradients(error, &v, 1, &out), LS_ERR_DTYPE, "add(v");
    FAILS(ls_gradients(loss, &error, 1, &out), LS_ERR_DTYPE, "add(v");
    FAILS(ls_gradients(argmax, &v, 1, &out), LS_ERR_DTYPE, "ls_gradients|int64");
    FAILS(ls_gradients(loss, &ints, 1, &out), LS_ERR_DTYPE, "ls_gradients|int32");
    FAILS(ls_gradients_with(loss, &v, 1, (ls_gradients_options){ .cotangent = F32(3) }, &out), LS_ERR_SHAPE,
          "cotangent");
    FAILS(ls_gradients_with(loss, &v, 1, (ls_gradients_options){ .cotangent = error }, &out), LS_ERR_DTYPE, "add(v");
    ls_tensor *write = ls_op_reduce_sum(ls_op_assign(v, loss), LS_ALL_AXES, false);
    FAILS(ls_gradients(write, &v, 1, &out), LS_ERR_UNSUPPORTED, "ls_gradients|no gradient rule|assign");
    assert_ptr_equal(out, v); /* unset on failure */
    OK(ls_gradients(loss, &v, 1, &out));
    assert_ptr_not_equal(out, v);
}

static void null_reads(void **state)
{
    (void)state;
    ls_tensor *t = F32(2), *v = ls_op_variable(g, "v", LS_F32, LS_SHAPE(2));
    ls_array view = { 0 };
    double value = -1;
    char *text = NULL;
    float data[2] = { 5, 6 };
    FAILS(ls_value(NULL, &view), LS_ERR_INVALID, "NULL");
    FAILS(ls_value(t, NULL), LS_ERR_INVALID, "NULL");
    FAILS(ls_read(NULL, data, sizeof(data)), LS_ERR_INVALID, "NULL");
    FAILS(ls_read(t, NULL, sizeof(data)), LS_ERR_INVALID, "8 bytes");
    FAILS(ls_read_scalar(NULL, &value), LS_ERR_INVALID, "NULL");
    FAILS(ls_read_scalar(number(1), NULL), LS_ERR_INVALID, "NULL");
    FAILS(ls_format(NULL, &text), LS_ERR_INVALID, "NULL");
    FAILS(ls_format(t, NULL), LS_ERR_INVALID, "NULL");
    FAILS(ls_variable_set(NULL, data, sizeof(data)), LS_ERR_INVALID, "ls_variable_set|NULL");
    FAILS(ls_variable_get(NULL, data, sizeof(data)), LS_ERR_INVALID, "ls_variable_get|NULL");
    FAILS(ls_variable_set(v, NULL, sizeof(data)), LS_ERR_INVALID, "ls_variable_set|v|8 bytes");
    FAILS(ls_variable_get(v, NULL, sizeof(data)), LS_ERR_INVALID, "ls_variable_get|v|8 bytes");
    assert_null(view.data);
    assert_null(text);
    assert_true(value == -1 && data[0] == 5);
    assert_string_equal(ls_status_name((ls_status)12345), "LS_ERR_(unknown)");
    assert_int_equal(ls_dtype_bytes((ls_dtype)99), 0);
    assert_non_null(ls_dtype_name((ls_dtype)99));
}

/* ---- Two graphs ---- */

static void tensors_of_two_graphs(void **state)
{
    (void)state;
    ls_graph *h;
    OK(ls_graph_create(ctx, &h));
    ls_tensor *here = ls_named(F32(2, 2), "here"), *there = ls_named(ls_op_fill(h, LS_F32, LS_SHAPE(2, 2), 1), "there");
    ls_tensor *v = ls_op_variable(g, "v", LS_F32, LS_SHAPE(2, 2)), *w = ls_op_variable(h, "w", LS_F32, LS_SHAPE(2, 2));
    ls_tensor *x = ls_op_input(h, "x", LS_F32, LS_SHAPE(2, 2)), *out = here;
    float data[4] = { 0 };
    REFUSED(ls_op_add(here, there), LS_ERR_INVALID, "add|input 1 belongs to another graph");
    REFUSED(ls_op_matmul(here, there), LS_ERR_INVALID, "matmul|another graph");
    REFUSED(ls_op_concat((ls_tensor *[]){ here, there }, 2, 0), LS_ERR_INVALID, "concat|another graph");
    REFUSED(ls_op_assign(v, there), LS_ERR_INVALID, "assign|another graph");
    REFUSED(ls_op_mean_squared_error(there, here), LS_ERR_INVALID, "another graph");
    REFUSED(ls_op_apply(v, here, .rule = LS_APPLY_SGD, .learning_rate = ls_op_scalar(h, LS_F32, 1)), LS_ERR_INVALID,
            "apply|another graph");
    REFUSED(ls_op_apply(v, here, .rule = LS_APPLY_MOMENTUM, .learning_rate = number(1), .slots = { w }), LS_ERR_INVALID,
            "apply|slot 0");
    FAILS(ls_eval(g, NULL, 0, (ls_tensor *[]){ here, there }, 2), LS_ERR_INVALID, "fetch 1|there|another graph");
    FAILS(ls_eval(g, &(ls_feed){ x, ls_array_of(LS_F32, LS_SHAPE(2, 2), data) }, 1, &here, 1), LS_ERR_INVALID,
          "feed 0|x|another graph");
    FAILS(ls_gradients(ls_op_square(v), &w, 1, &out), LS_ERR_INVALID, "ls_gradients|variable 0|another graph");
    assert_ptr_equal(out, here);
    OK(ls_graph_status(h)); /* the other graph has no error */
    ls_graph_destroy(h);
}

/* ---- Feeds and fetches ---- */

static void wrong_feeds(void **state)
{
    (void)state;
    float data[12] = { 0 };
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 3)),
              *y = ls_op_input(g, "y", LS_F32, LS_SHAPE(LS_BATCH, 3));
    ls_tensor *sum = ls_named(ls_op_add(x, y), "sum"), *v = ls_op_variable(g, "v", LS_F32, LS_SHAPE(3));
    ls_feed good[] = { { x, ls_array_of(LS_F32, LS_SHAPE(4, 3), data) },
                       { y, ls_array_of(LS_F32, LS_SHAPE(4, 3), data) } };
#define FEED_Y(...) ls_eval(g, (ls_feed[]){ good[0], { __VA_ARGS__ } }, 2, &sum, 1)
    OK(ls_eval(g, good, 2, &sum, 1));
    FAILS(ls_eval(g, good, 1, &sum, 1), LS_ERR_INVALID, "y is needed but was not fed");
    FAILS(ls_eval(g, NULL, 0, &sum, 1), LS_ERR_INVALID, "needed but was not fed");
    FAILS(FEED_Y(y, ls_array_of(LS_F32, LS_SHAPE(4, 2), data)), LS_ERR_SHAPE, "feed 1|y|(batch, 3)|(4, 2)");
    FAILS(FEED_Y(y, ls_array_of(LS_F32, LS_SHAPE(4), data)), LS_ERR_SHAPE, "feed 1|y|(batch, 3)|(4,)");
    FAILS(FEED_Y(y, ls_array_of(LS_F32, LS_SHAPE(-4, 3), data)), LS_ERR_SHAPE, "feed 1|y|(-4, 3)");
    FAILS(FEED_Y(y, ls_array_of(LS_F32, LS_SHAPE(LS_BATCH, 3), data)), LS_ERR_SHAPE, "feed 1|y|(batch, 3)");
    FAILS(FEED_Y(y, ls_array_of(LS_F32, ((ls_shape){ .rank = 100 }), data)), LS_ERR_SHAPE, "feed 1|y");
    FAILS(FEED_Y(y, ls_array_of(LS_F32, ((ls_shape){ .rank = -1 }), data)), LS_ERR_SHAPE, "feed 1|y");
    FAILS(FEED_Y(y, ls_array_of(LS_F32, LS_SHAPE(INT64_MAX, 3), data)), LS_ERR_OVERFLOW,
          "feed 1|(9223372036854775807, 3)");
    FAILS(FEED_Y(y, ls_array_of(LS_F64, LS_SHAPE(4, 3), data)), LS_ERR_DTYPE, "feed 1|y is float32|float64");
    FAILS(FEED_Y(y, ls_array_of((ls_dtype)77, LS_SHAPE(4, 3), data)), LS_ERR_DTYPE, "feed 1|y is float32");
    FAILS(FEED_Y(x, ls_array_of(LS_F32, LS_SHAPE(4, 3), data)), LS_ERR_INVALID, "x is fed twice");
    FAILS(FEED_Y(v, ls_array_of(LS_F32, LS_SHAPE(3), data)), LS_ERR_INVALID, "feed 1|v is not an input");
    FAILS(FEED_Y(sum, ls_array_of(LS_F32, LS_SHAPE(4, 3), data)), LS_ERR_INVALID, "feed 1|sum is not an input");
    FAILS(FEED_Y(NULL, ls_array_of(LS_F32, LS_SHAPE(4, 3), data)), LS_ERR_INVALID, "feed 1|NULL");
    FAILS(FEED_Y(y, ls_array_of(LS_F32, LS_SHAPE(4, 3), NULL)), LS_ERR_INVALID, "feed 1|the data for y is NULL");
    FAILS(FEED_Y(y, ls_array_of(LS_F32, LS_SHAPE(2, 3), data)), LS_ERR_SHAPE, "4 samples in x but 2 in y");
    ls_tensor *error = ls_op_add(x, I32(2));
    FAILS(FEED_Y(error, ls_array_of(LS_F32, LS_SHAPE(4, 3), data)), LS_ERR_DTYPE, "add(x");
    OK(ls_eval(g, good, 2, &sum, 1));
#undef FEED_Y
}

static void wrong_fetches(void **state)
{
    (void)state;
    ls_tensor *v = ls_op_variable(g, "v", LS_F32, LS_SCALAR), *write = ls_op_assign(v, number(2));
    ls_tensor *error = ls_op_add(v, I32(2));
    FAILS(ls_eval(g, NULL, 0, (ls_tensor *[]){ write, NULL }, 2), LS_ERR_INVALID, "fetch 1 is NULL");
    FAILS(ls_eval(g, NULL, 0, (ls_tensor *[]){ write, error }, 2), LS_ERR_DTYPE, "add(v: float32 ()");
    double value;
    OK(ls_read_scalar(v, &value));
    assert_true(value == 0);
    ls_tensor *count = ls_op_count(g, LS_F32), *per_sample = ls_op_fill(g, LS_F32, LS_SHAPE(LS_BATCH), 1);
    FAILS(ls_read_scalar(count, &value), LS_ERR_STATE, "count:|no input with a batch axis");
    FAILS(ls_read_scalar(per_sample, &value), LS_ERR_SHAPE, "fill:|batch size is not known");
    OK(ls_eval(g, NULL, 0, &write, 1));
}

static void wrong_reads(void **state)
{
    (void)state;
    ls_tensor *t = ls_named(F32(2, 3), "t"), *v = ls_op_variable(g, "v", LS_F32, LS_SHAPE(2, 3));
    float data[7] = { 9 };
    double value = 9;
    FAILS(ls_read(t, data, 20), LS_ERR_SHAPE, "t of shape (2, 3) has 24 bytes|20");
    FAILS(ls_read(t, data, 28), LS_ERR_SHAPE, "24 bytes|28");
    FAILS(ls_read_scalar(t, &value), LS_ERR_SHAPE, "t has 6 elements");
    FAILS(ls_read_scalar(F32(0), &value), LS_ERR_SHAPE, "0 elements");
    FAILS(ls_variable_set(v, data, 20), LS_ERR_SHAPE, "ls_variable_set|v has 24 bytes, got 20");
    FAILS(ls_variable_get(v, data, 28), LS_ERR_SHAPE, "ls_variable_get|v has 24 bytes, got 28");
    FAILS(ls_variable_set(t, data, 24), LS_ERR_INVALID, "ls_variable_set|t is not a variable");
    FAILS(ls_variable_get(t, data, 24), LS_ERR_INVALID, "ls_variable_get|t is not a variable");
    ls_tensor *error = ls_op_add(t, I32(2));
    FAILS(ls_variable_set(error, data, 24), LS_ERR_DTYPE, "add(t");
    char *text = NULL;
    FAILS(ls_format(error, &text), LS_ERR_DTYPE, "add(t");
    FAILS(ls_read(error, data, 24), LS_ERR_DTYPE, "add(t");
    assert_true(data[0] == 9 && value == 9 && !text);
    OK(ls_read_scalar(F32(1, 1, 1), &value)); /* one element is one element */
    assert_true(value == 1);
}

/* ---- Values found bad by a run ---- */

static void labels_and_indices_out_of_range(void **state)
{
    (void)state;
    ls_tensor *logits = F32(4, 3), *table = F32(5, 2), *labels = ls_op_input(g, "labels", LS_I32, LS_SHAPE(4));
    ls_tensor *loss = ls_named(ls_op_sparse_cross_entropy(labels, logits, LS_LOGITS), "loss");
    ls_tensor *rows = ls_named(ls_op_gather(table, labels, 0), "rows");
    for (int bad = -1; bad <= 5; bad += 6) {
        int32_t data[] = { 0, 2, bad, 1 };
        ls_feed feed = { labels, ls_array_of(LS_I32, LS_SHAPE(4), data) };
        FAILS(ls_eval(g, &feed, 1, &loss, 1), LS_ERR_DATA, "loss|sparse_cross_entropy|label|of sample 2|0..2");
        assert_non_null(strstr(ls_last_error(), bad < 0 ? "-1" : "5"));
        FAILS(ls_eval(g, &feed, 1, &rows, 1), LS_ERR_DATA, "rows|gather|index|position 2|0..4");
        data[2] = 2;
        OK(ls_eval(g, &feed, 1, (ls_tensor *[]){ loss, rows }, 2));
    }
}

static void dropout_rate_out_of_range(void **state)
{
    (void)state;
    double rates[] = { -0.1, 1, 2, NAN, INFINITY };
    for (int i = 0; i < 5; i++) {
        ls_tensor *y = ls_named(ls_op_dropout(F32(3), number(rates[i])), "thin");
        LS_SCOPE(g)
        {
            ls_tensor *scoped = ls_op_dropout(F32(3), number(rates[i]));
            FAILS(ls_eval(g, NULL, 0, &scoped, 1), LS_ERR_DATA, "dropout:|op dropout");
        }
        if (i == 0)
            FAILS(ls_eval(g, NULL, 0, &y, 1), LS_ERR_DATA, "thin|op dropout|-0.1");
    }
}

/* ---- Updates ---- */

static void wrong_updates(void **state)
{
    (void)state;
    ls_tensor *v = ls_op_variable(g, "v", LS_F32, LS_SHAPE(2)), *m = ls_op_variable(g, "m", LS_F32, LS_SHAPE(2));
    ls_tensor *k = ls_op_variable(g, "k", LS_F32, LS_SHAPE(2)), *wide = ls_op_variable(g, "wide", LS_F32, LS_SHAPE(3));
    ls_tensor *ints = ls_op_variable(g, "ints", LS_I32, LS_SHAPE(2)), *grad = F32(2), *lr = number(1);
    REFUSED(ls_op_assign(v, F32(3)), LS_ERR_SHAPE, "assign|v has shape (2,)|(3,)");
    REFUSED(ls_op_assign(v, number(1)), LS_ERR_SHAPE, "assign|v|()");
    REFUSED(ls_op_assign(v, I32(2)), LS_ERR_DTYPE, "assign|v is float32|int32");
    REFUSED(ls_op_assign(grad, grad), LS_ERR_INVALID, "assign|is not a variable");
    REFUSED(ls_op_assign_add(v, F32(1)), LS_ERR_SHAPE, "assign_add|v");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_SGD), LS_ERR_INVALID, "apply|learning rate is missing");
    REFUSED(ls_op_apply(v, F32(3), .rule = LS_APPLY_SGD, .learning_rate = lr), LS_ERR_SHAPE,
            "apply|v has shape (2,)|(3,)");
    REFUSED(ls_op_apply(v, I32(2), .rule = LS_APPLY_SGD, .learning_rate = lr), LS_ERR_DTYPE,
            "apply|v is float32|int32");
    REFUSED(ls_op_apply(ints, I32(2), .rule = LS_APPLY_SGD, .learning_rate = lr), LS_ERR_DTYPE,
            "apply|float32 and float64");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_SGD, .learning_rate = grad), LS_ERR_SHAPE,
            "apply|learning rate|scalar");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_SGD, .learning_rate = ls_op_scalar(g, LS_F64, 1)), LS_ERR_SHAPE,
            "apply|learning rate|float32");
    REFUSED(ls_op_apply(grad, grad, .rule = LS_APPLY_SGD, .learning_rate = lr), LS_ERR_INVALID,
            "apply|is not a variable");
    REFUSED(ls_op_apply(v, grad, .rule = (ls_apply_rule)99, .learning_rate = lr), LS_ERR_INVALID,
            "apply|unknown rule 99");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_MOMENTUM, .learning_rate = lr), LS_ERR_INVALID, "apply|slot 0");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_NESTEROV, .learning_rate = lr, .slots = { grad }), LS_ERR_INVALID,
            "apply|slot 0");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_ADAGRAD, .learning_rate = lr, .slots = { wide }), LS_ERR_SHAPE,
            "apply|slot 0");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_RMSPROP, .learning_rate = lr, .slots = { v }), LS_ERR_INVALID,
            "apply|slot 0 is used twice");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_ADAM, .learning_rate = lr, .slots = { m }), LS_ERR_INVALID,
            "apply|slot 1");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_ADAM, .learning_rate = lr, .step = lr, .slots = { m, m }),
            LS_ERR_INVALID, "apply|slot 1 is used twice");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_ADAM, .learning_rate = lr, .slots = { m, k }), LS_ERR_INVALID,
            "apply|ADAM needs the step");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_ADAM, .learning_rate = lr, .step = grad, .slots = { m, k }),
            LS_ERR_SHAPE, "apply|step|scalar");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_SUM, .learning_rate = lr), LS_ERR_INVALID,
            "apply|SUM needs the step");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_SGD, .learning_rate = lr, .when = lr), LS_ERR_SHAPE,
            "apply|input 2, the predicate, must be a scalar of type bool");
    REFUSED(ls_op_apply(v, grad, .rule = LS_APPLY_ADAM, .learning_rate = lr, .step = lr, .slots = { m, k },
                        .when = ls_op_compare(grad, LS_EQUAL, grad)),
            LS_ERR_SHAPE, "apply|input 3, the predicate, must be a scalar of type bool");
    ls_tensor *error = ls_op_add(v, ints);
    assert_ptr_equal(ls_op_apply(v, error, .rule = LS_APPLY_SGD), error);
    assert_ptr_equal(ls_op_apply(error, grad, .rule = LS_APPLY_SGD), error);
    assert_ptr_equal(ls_op_apply(v, grad, .rule = LS_APPLY_SGD, .learning_rate = error), error);
    assert_ptr_equal(ls_op_apply(v, grad, .rule = LS_APPLY_MOMENTUM, .learning_rate = lr, .slots = { error }), error);
    assert_ptr_equal(ls_op_assign(v, error), error);
    assert_ptr_equal(ls_op_assign(error, grad), error);
}

/* ---- Errors as tensors ---- */

static void the_first_message_is_kept(void **state)
{
    (void)state;
    OK(ls_graph_status(g));
    ls_tensor *first = ls_op_add(F32(2), F32(3)), *second = ls_op_add(F32(4), F32(5));
    assert_ptr_not_equal(first, second);
    assert_ptr_equal(ls_op_mul(second, first), second); /* the first among the inputs goes on */
    assert_ptr_equal(ls_op_mul(first, second), first);
    FAILS(ls_graph_status(g), LS_ERR_SHAPE, "(2,)|(3,)");
    FAILS(ls_eval(g, NULL, 0, &second, 1), LS_ERR_SHAPE, "(4,)|(5,)");
    FAILS(ls_graph_status(g), LS_ERR_SHAPE, "(2,)|(3,)"); /* other failures in between change nothing */
    ls_tensor *parts[3];
    ls_op_split(first, 0, LS_AXES(1, 1, 1), parts);
    assert_true(parts[0] == first && parts[1] == first && parts[2] == first);
    assert_ptr_equal(ls_named(first, "name"), first);
    assert_ptr_equal(ls_op_batch_norm(first, .training = true), first);
    assert_ptr_equal(ls_op_batch_norm(F32(3, 2), .training = true, .gamma = first), first);
    assert_ptr_equal(ls_op_conv2d(F32(1, 4, 4, 1), first), first);
    assert_ptr_equal(ls_op_dropout(F32(2), first), first);
    assert_ptr_equal(ls_op_sparse_cross_entropy(first, F32(2, 2), LS_PROBABILITIES), first);
    assert_ptr_equal(ls_op_mean_squared_error(first, F32(2)), first);
    assert_ptr_equal(ls_op_layer_norm(F32(2, 2), .gamma = first), first);
    assert_ptr_equal(ls_op_concat((ls_tensor *[]){ F32(2), first }, 2, 0), first);
    assert_ptr_equal(ls_tensor_graph(first), g);
    assert_int_equal(ls_tensor_shape(first).rank, 0);
}

static void long_names_are_cut_in_messages(void **state)
{
    (void)state;
    char name[3001];
    memset(name, 'n', 3000);
    name[3000] = '\0';
    ls_tensor *x = ls_named(F32(2), name);
    assert_string_equal(ls_tensor_name(x), name);
    REFUSED(ls_op_add(x, F32(3)), LS_ERR_SHAPE, "add(nnn|(2,)|(3,)");
    name[2999] = '\0';
    ls_tensor *parts[40];
    for (int i = 0; i < 40; i++)
        parts[i] = x;
    parts[39] = F32(2, 2);
    REFUSED(ls_op_concat(parts, 40, 0), LS_ERR_SHAPE, "concat(nnn|input 39");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_GRAPH(wrong_shapes),
        WITH_GRAPH(splits),
        WITH_GRAPH(wrong_types),
        WITH_GRAPH(wrong_axes),
        WITH_GRAPH(recurrent_cells_have_their_shapes),
        WITH_GRAPH(attention_has_its_shapes),
        WITH_GRAPH(wrong_images),
        WITH_GRAPH(wrong_norms),
        WITH_GRAPH(wrong_losses),
        WITH_GRAPH(batch_axis_where_none_may_be),
        WITH_GRAPH(sizes_that_overflow),
        WITH_GRAPH(sizes_that_no_machine_has),
        WITH_GRAPH(wrong_names),
        WITH_GRAPH(a_bad_name_scope_is_kept_as_the_error),
        WITH_GRAPH(names_that_are_taken),
        WITH_GRAPH(a_cycle_of_names_cannot_be_made),
        WITH_GRAPH(null_graphs),
        WITH_GRAPH(null_tensors),
        WITH_GRAPH(one_null_among_tensors),
        WITH_GRAPH(null_gradients),
        WITH_GRAPH(null_reads),
        WITH_GRAPH(tensors_of_two_graphs),
        WITH_GRAPH(wrong_feeds),
        WITH_GRAPH(wrong_fetches),
        WITH_GRAPH(wrong_reads),
        WITH_GRAPH(labels_and_indices_out_of_range),
        WITH_GRAPH(dropout_rate_out_of_range),
        WITH_GRAPH(wrong_updates),
        WITH_GRAPH(the_first_message_is_kept),
        WITH_GRAPH(long_names_are_cut_in_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
