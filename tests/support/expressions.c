/* The table of expressions: see expressions.h. */
#include <stddef.h>
#include <string.h>

#include "expressions.h"

/* ---- Builders of this table alone ---- */

static ls_tensor *by_random_numbers(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    ls_shape shape = ls_tensor_shape(x[0]);
    ls_tensor *normal = ls_op_random_normal(x[0]->graph, x[0]->dtype, shape, 0, 1);
    return ls_op_add(ls_op_mul(x[0], normal), ls_op_random_uniform(x[0]->graph, x[0]->dtype, shape, -1, 1));
}

static ls_tensor *third_power(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_pow(x[0], ls_op_scalar(x[0]->graph, x[0]->dtype, 3));
}

static ls_tensor *scale_and_shift(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_shift(ls_op_scale(x[0], -1.5), 0.25);
}

/* To [as before, 21], or with LS_REMAINING. */
static ls_tensor *reshape(const test_case *c, ls_tensor *const *x)
{
    int64_t first = ls_tensor_shape(x[0]).dims[0];
    return ls_op_reshape(x[0], LS_SHAPE(first, c->number ? LS_REMAINING : 7, 3));
}

static ls_tensor *reshape_scalar(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_reshape(x[0], LS_SHAPE(1, 1));
}

static ls_tensor *broadcast(const test_case *c, ls_tensor *const *x)
{
    return ls_op_broadcast(x[0], *(const ls_shape *)c->options);
}

/* [N,1,7] to [N,3,7] */
static ls_tensor *broadcast_middle(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_broadcast(x[0], LS_SHAPE(ls_tensor_shape(x[0]).dims[0], 3, 7));
}

static ls_tensor *broadcast_to_second(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_mul(ls_op_broadcast(x[0], ls_tensor_shape(x[1])), x[1]);
}

static ls_tensor *concat_with_itself(const test_case *c, ls_tensor *const *x)
{
    return ls_op_concat((ls_tensor *[]){ x[0], x[1], x[0] }, 3, c->number);
}

static ls_tensor *split(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *part[3];
    ls_op_split(x[0], c->number, LS_AXES(2, 2, 3), part);
    return ls_op_concat((ls_tensor *[]){ ls_op_scale(part[2], 2), ls_op_mul(part[0], part[1]) }, 2, c->number);
}

/* x against all samples of the batch: the pairs of a contrastive loss. */
static ls_tensor *pairs_weighted(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    ls_tensor *pairs = ls_op_matmul(x[0], ls_op_gather_batch(x[0]), .transpose_b = true);
    return ls_op_matmul(ls_op_softmax(pairs, -1), ls_op_gather_batch(x[1]));
}

/* Softmax over the samples, each taking its row back. */
static ls_tensor *softmax_over_batch(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_scatter_batch(ls_op_softmax(ls_op_gather_batch(x[0]), 0));
}

/* Sums of a gathered batch along each axis, and all. */
static ls_tensor *reduce_gathered(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *all = ls_op_square(ls_op_gather_batch(x[0]));
    if (c->number == 1)
        return ls_op_scatter_batch(ls_op_reduce_sum(all, LS_AXES(1), false));
    return ls_op_reduce_mean(all, c->number == 0 ? LS_AXES(0) : LS_ALL_AXES, false);
}

/* ---- The table ---- */

/* clang-format off */
static const test_case table[] = {
    { "gather_batch", "pairs weighted", { "N,3", "N,2" }, .build = pairs_weighted, .fed_only = true, .many = true },
    { "gather_batch", "mean over the batch", { "N,3" }, .build = reduce_gathered, .fed_only = true, .number = 0 },
    { "gather_batch", "sum of each row", { "N,3" }, .build = reduce_gathered, .fed_only = true, .number = 1 },
    { "gather_batch", "mean of all", { "N,3" }, .build = reduce_gathered, .fed_only = true, .number = 2 },
    { "scatter_batch", "softmax over the batch", { "N,3" }, .build = softmax_over_batch, .fed_only = true,
      .many = true },

    { "cast", "float32 and back", { "#N,7" }, .build = test_cast, .step = 0.125 },
    { "random_normal", "as factors", { "N,7" }, .build = by_random_numbers },
    { "random_uniform", "as factors", { "33" }, .build = by_random_numbers },
    { "pow", "negative bases, a whole exponent", { "N,7" }, .build = third_power },
    { "mul", "scale and shift", { "N,7" }, .build = scale_and_shift },
    { "capped_relu_grad", "", { "N,7", "N,7" }, .build = test_capped_relu_grad, .real = 0.8, .none = 2 },
    { "silu_grad", "", { "N,7", "N,7" }, .build = test_silu_grad },
    { "relu_grad", "slope 0", { "N,7", "N,7" }, .build = test_relu_grad, .none = 2 },
    { "relu_grad", "slope 0.2", { "33", "33" }, .build = test_relu_grad, .real = 0.2, .none = 2 },

    { "select", "one shape", { "b:N,7", "N,7", "N,7" }, .build = test_select },
    { "select", "a whole condition", { "b:7", "N,7", "N,7" }, .build = test_select },
    { "select", "a condition for each row", { "b:33,1", "33,7", "33,7" }, .build = test_select },
    { "select", "whole choices", { "b:N,7", "7", "" }, .build = test_select, .many = true, .batch = 33 },
    { "select", "all broadcast", { "b:N,1,7", "3,1", "N,3,7" }, .build = test_select, .many = true },

    { "reshape", "keeps axis 0", { "N,21" }, .build = reshape },
    { "reshape", "the remaining axis", { "N,3,7" }, .build = reshape, .number = 1 },
    { "reshape", "a scalar", { "" }, .build = reshape_scalar },
    { "reshape", "flatten", { "N,3,7" }, .one = ls_op_flatten },
    { "transpose", "last two", { "N,3,7" }, .build = test_transpose, .options = AXES(0, 2, 1) },
    { "transpose", "turn left", { "3,5,7" }, .build = test_transpose, .options = AXES(1, 2, 0) },
    { "transpose", "turn right", { "3,5,7" }, .build = test_transpose, .options = AXES(2, 0, 1) },
    { "transpose", "counted from the end", { "2,3,1,5" }, .build = test_transpose, .options = AXES(-1, -4, -2, -3) },
    { "transpose", "of a matrix", { "33,7" }, .build = test_transpose, .options = AXES(1, 0) },
    { "broadcast", "an inner axis", { "N,1,7" }, .build = broadcast_middle },
    { "broadcast", "new axes", { "7" }, .build = broadcast, .options = TO(3, 1, 7) },
    { "broadcast", "two axes of one", { "1,7,1" }, .build = broadcast, .options = TO(3, 7, 5) },
    { "broadcast", "a scalar", { "" }, .build = broadcast, .options = TO(3, 7) },
    { "broadcast", "to every sample", { "7", "N,7" }, .build = broadcast_to_second },
    { "concat", "last axis", { "N,3", "N,1", "N,7" }, .build = test_concat, .number = -1 },
    { "concat", "middle axis", { "N,3,2", "N,5,2" }, .build = test_concat, .number = 1 },
    { "concat", "axis 0", { "3,7", "1,7", "33,7" }, .build = test_concat, .number = 0 },
    { "concat", "one part", { "N,3" }, .build = test_concat, .number = 1 },
    { "concat", "a part twice", { "N,3", "N,2" }, .build = concat_with_itself, .number = 1 },
    { "slice", "split, last axis", { "N,7" }, .build = split, .number = 1 },
    { "slice", "split, axis 0", { "7,3" }, .build = split, .number = 0 },
    { "slice", "a box", { "N,5,7" }, .build = test_slice, .options = CUT(EACH(0, 1, 2), EACH(-1, 3, 4)) },
    { "slice", "to the end", { "33" }, .build = test_slice, .options = CUT(EACH(20), EACH(-1)) },
    { "slice", "steps 2 and 3", { "5,7" }, .build = test_slice, .options = CUT_BY(EACH(1, 0), EACH(5, 7), EACH(2, 3)) },
    { "slice", "ends counted from the end", { "7,33" }, .build = test_slice,
      .options = CUT_BY(EACH(-5, 2), EACH(-1, -2), EACH(1, 4)) },
    { "slice_grad", "a box", { "N,5,7", "N,3,4" }, .build = test_slice_grad, .none = 1,
      .options = CUT(EACH(0, 1, 2), EACH(-1, 3, 4)) },
    { "slice_grad", "steps", { "5,7", "2,3" }, .build = test_slice_grad, .none = 1,
      .options = CUT_BY(EACH(1, 0), EACH(5, 7), EACH(2, 3)) },
    { "pad", "zeros", { "N,3,7" }, .build = test_pad, .options = CUT(EACH(0, 1, 0), EACH(0, 2, 3)) },
    { "pad", "a value", { "5,1" }, .build = test_pad, .options = CUT(EACH(2, 1), EACH(0, 3)), .real = 1.5 },
    { "gather", "embedding", { "7,3", "i7:N,33" }, .build = test_gather, .batch = 3 },
    { "gather", "embedding, int32", { "33,3", "j33:N" }, .build = test_gather, .batch = 33, .many = true },
    { "gather", "axis 1", { "N,7,3", "i7:5" }, .build = test_gather, .number = 1 },
    { "gather", "last axis", { "N,3,7", "i7:2,3" }, .build = test_gather, .number = -1 },
    { "gather", "one index", { "N,7", "i7:" }, .build = test_gather, .number = 1 },
    { "gather_grad", "embedding", { "7,3", "i7:N,33", "N,33,3" }, .build = test_gather_grad, .none = 1, .batch = 3 },
    { "gather_grad", "axis 1", { "N,7,3", "i7:5", "N,5,3" }, .build = test_gather_grad, .none = 1, .number = 1 },

    { "matmul", "contracts the batch", { "N,7", "N,3" }, .build = test_matmul, .number = 1 },
    { "matmul", "33 rows", { "33,7", "7,1" }, .build = test_matmul },
    { "matmul", "33 inside", { "1,33", "33,7" }, .build = test_matmul },
    { "matmul", "leading axes spread both ways", { "2,1,3,4", "3,4,2" }, .build = test_matmul },
    { "matmul", "one leading axis of one", { "1,3,4", "N,4,2" }, .build = test_matmul },
    { "matmul", "two leading axes, one matrix", { "N,2,3,4", "4,5" }, .build = test_matmul, .batch = 3 },
    { "matmul", "one matrix, two leading axes", { "3,4", "N,2,4,5" }, .build = test_matmul, .batch = 3 },

    { "top_k", "the largest", { "N,7" }, .build = test_top_k, .number = 1 },
    { "top_k", "three of 33", { "33" }, .build = test_top_k, .number = 3, .mostly_zero = true },
    { "top_k", "all, three axes", { "N,3,5" }, .build = test_top_k, .number = 5, .batch = 3 },
    { "softmax", "last axis", { "N,7" }, .build = test_softmax, .number = -1 },
    { "softmax", "middle axis", { "N,3,5" }, .build = test_softmax, .number = 1, .batch = 3 },
    { "softmax", "axis 0", { "7,3" }, .build = test_softmax, .number = 0 },
    { "softmax", "33 numbers", { "33" }, .build = test_softmax },
    { "log_softmax", "last axis", { "N,7" }, .build = test_log_softmax, .number = -1 },
    { "log_softmax", "middle axis", { "N,3,5" }, .build = test_log_softmax, .number = 1, .batch = 3 },
    { "log_softmax", "axis 0", { "7,3" }, .build = test_log_softmax, .number = 0 },
    { "log_softmax", "33 numbers", { "33" }, .build = test_log_softmax },

    { "conv2d", "valid", { "N,7,5,2", "3,3,2,3" }, .build = test_conv2d, .batch = 3 },
    { "conv2d", "same", { "N,7,5,2", "3,3,2,3" }, .build = test_conv2d, .batch = 3,
      .options = CONV(.padding = LS_SAME) },
    { "conv2d", "same, even kernel", { "N,5,7,1", "2,4,1,2" }, .build = test_conv2d, .batch = 3,
      .options = CONV(.padding = LS_SAME) },
    { "conv2d", "valid, stride 2", { "N,7,7,2", "3,3,2,1" }, .build = test_conv2d, .batch = 3,
      .options = CONV(.stride = { 2, 2 }) },
    { "conv2d", "same, strides 2 and 3", { "N,7,7,2", "3,2,2,2" }, .build = test_conv2d, .batch = 3,
      .options = CONV(.stride = { 2, 3 }, .padding = LS_SAME) },
    { "conv2d", "same, stride 3 and kernel 1", { "N,7,7,2", "1,1,2,7" }, .build = test_conv2d, .batch = 1,
      .mostly_zero = true, .options = CONV(.stride = { 3, 3 }, .padding = LS_SAME) },
    { "conv2d", "explicit", { "N,4,5,1", "3,3,1,2" }, .build = test_conv2d, .batch = 3,
      .options = CONV(.stride = { 2, 1 }, .padding = LS_EXPLICIT, .pad = { 2, 1, 0, 3 }) },
    { "conv2d", "dilation, valid", { "N,7,7,1", "3,2,1,2" }, .build = test_conv2d, .batch = 3,
      .options = CONV(.dilation = { 2, 3 }) },
    { "conv2d", "dilation, same, stride 2", { "N,7,7,1", "3,3,1,1" }, .build = test_conv2d, .batch = 3,
      .options = CONV(.stride = { 2, 2 }, .dilation = { 2, 1 }, .padding = LS_SAME) },
    { "conv2d", "two groups", { "N,5,5,4", "3,3,2,6" }, .build = test_conv2d, .batch = 2,
      .options = CONV(.groups = 2) },
    { "conv2d", "depthwise", { "N,5,5,3", "3,3,1,3" }, .build = test_conv2d, .batch = 3,
      .options = CONV(.groups = 3, .padding = LS_SAME) },
    { "conv2d", "depthwise, two each", { "N,5,5,3", "2,2,1,6" }, .build = test_conv2d, .batch = 2,
      .options = CONV(.groups = 3, .stride = { 1, 2 }) },
    { "conv2d", "one pixel", { "N,1,1,3", "3,3,3,2" }, .build = test_conv2d, .batch = 3,
      .options = CONV(.padding = LS_SAME), .mostly_zero = true },
    { "conv2d", "a row of 33", { "N,1,33,1", "1,5,1,2" }, .build = test_conv2d, .batch = 2,
      .options = CONV(.stride = { 1, 3 }) },
    { "conv2d_grad_input", "same, stride 2", { "N,5,5,2", "3,3,2,3", "N,3,3,3" }, .build = test_conv2d_grad_input,
      .none = 1, .batch = 2, .options = CONV(.stride = { 2, 2 }, .padding = LS_SAME) },
    { "conv2d_grad_input", "groups, dilation", { "N,5,5,4", "2,2,2,2", "N,3,4,2" }, .build = test_conv2d_grad_input,
      .none = 1, .batch = 2, .options = CONV(.dilation = { 2, 1 }, .groups = 2) },
    { "conv2d_grad_kernel", "same, stride 2", { "N,5,5,2", "3,3,2,3", "N,3,3,3" }, .build = test_conv2d_grad_kernel,
      .none = 2, .batch = 2, .options = CONV(.stride = { 2, 2 }, .padding = LS_SAME) },
    { "conv2d_grad_kernel", "groups, dilation", { "N,5,5,4", "2,2,2,2", "N,3,4,2" }, .build = test_conv2d_grad_kernel,
      .none = 2, .batch = 2, .options = CONV(.dilation = { 2, 1 }, .groups = 2) },

    { "recurrent", "SimpleRNN", { "N,4,3", "3,3" }, .build = test_recurrent, .once = true, .batch = 3,
      .options = CELL(SIMPLE, TANH, SIGMOID, false) },
    { "recurrent", "SimpleRNN, one step", { "N,1,3", "3,3" }, .build = test_recurrent, .once = true, .fixed = 2,
      .options = CELL(SIMPLE, SIGMOID, SIGMOID, false) },
    { "recurrent", "SimpleRNN, backwards, a mask", { "N,5,2", "2,2", "b:N,5" }, .build = test_recurrent, .number = 2,
      .once = true, .batch = 3, .options = CELL(SIMPLE, TANH, SIGMOID, true) },
    { "recurrent", "LSTM", { "N,4,12", "3,12" }, .build = test_recurrent, .once = true, .batch = 2,
      .options = CELL(LSTM, TANH, SIGMOID, false) },
    { "recurrent", "LSTM, backwards, a mask", { "N,5,8", "2,8", "b:N,5" }, .build = test_recurrent, .number = 2,
      .once = true, .batch = 3, .options = CELL(LSTM, TANH, SIGMOID, true) },
    { "recurrent", "LSTM, other activations", { "N,3,8", "2,8" }, .build = test_recurrent, .once = true, .batch = 2,
      .options = CELL(LSTM, LINEAR, HARD_SIGMOID, false) },
    { "recurrent", "GRU", { "N,4,9", "3,9", "9" }, .build = test_recurrent, .number = 1, .once = true, .batch = 2,
      .options = CELL(GRU_RESET_AFTER, TANH, SIGMOID, false) },
    { "recurrent", "GRU, no bias, a mask", { "N,5,6", "2,6", "b:N,5" }, .build = test_recurrent, .number = 2,
      .once = true, .batch = 3, .options = CELL(GRU_RESET_AFTER, TANH, SIGMOID, true) },
    { "recurrent", "GRU, reset before", { "N,4,9", "3,9" }, .build = test_recurrent, .once = true, .batch = 2,
      .options = CELL(GRU, TANH, SIGMOID, false) },
    { "recurrent", "GRU, reset before, a mask", { "N,5,6", "2,6", "b:N,5" }, .build = test_recurrent, .number = 2,
      .once = true, .batch = 3, .options = CELL(GRU, TANH, TANH, false) },
    { "recurrent", "GRU, ReLU", { "+N,3,6", "2,6", "6" }, .build = test_recurrent, .number = 1, .once = true,
      .batch = 2, .options = CELL(GRU_RESET_AFTER, RELU, SIGMOID, false) },

    { "attention", "one head", { "N,3,2", "N,4,2", "N,4,3" }, .build = test_attention, .once = true, .batch = 2,
      .options = HEADS(.heads = 1) },
    { "attention", "causal, two heads", { "N,5,4", "N,5,4", "N,5,2" }, .build = test_attention, .once = true,
      .batch = 2, .options = HEADS(.heads = 2, .causal = true) },
    { "attention", "packed, causal", { "N,4,12" }, .build = test_attention, .number = 1, .once = true, .batch = 2,
      .options = HEADS(.heads = 2, .causal = true, .scale = 0.7) },
    { "attention", "shared heads, packed", { "N,3,8" }, .build = test_attention, .number = 1, .once = true, .batch = 2,
      .options = HEADS(.heads = 4, .kv_heads = 2) },
    { "attention", "shared heads, more queries than keys", { "N,5,4", "N,3,2", "N,3,2" }, .build = test_attention,
      .once = true, .batch = 2, .options = HEADS(.heads = 2, .kv_heads = 1, .causal = true) },
    { "attention", "a mask of keys", { "N,3,2", "N,9,2", "N,9,2", "b:N,1,1,9" }, .build = test_attention, .number = 2,
      .once = true, .mostly_zero = true, .batch = 3, .options = HEADS(.heads = 2) },
    { "attention", "a mask of pairs", { "N,3,12", "b:N,3,3" }, .build = test_attention, .number = 3, .once = true, .mostly_zero = true,
      .batch = 2, .options = HEADS(.heads = 2, .causal = true) },
    { "attention", "a mask of heads", { "N,3,2", "N,6,2", "N,6,2", "b:N,2,3,6" }, .build = test_attention, .number = 2,
      .once = true, .mostly_zero = true, .batch = 2, .options = HEADS(.heads = 2) },
    { "attention", "one mask for all", { "N,3,2", "N,6,2", "N,6,2", "b:3,6" }, .build = test_attention, .number = 2,
      .once = true, .mostly_zero = true, .batch = 2, .options = HEADS(.heads = 1) },

    { "custom", "two samples", { "N,2,3", "N,2,3" }, .build = test_custom, .once = true, .batch = 3 },
    { "custom", "a whole input", { "N,4", "4" }, .build = test_custom, .once = true, .batch = 5 },

    { "max_pool2d", "valid 2", { "N,7,7,2" }, .build = test_max_pool, .batch = 3, .once = true,
      .options = POOL(.window = { 2, 2 }) },
    { "max_pool2d", "same, window 3, stride 2", { "N,7,5,2" }, .build = test_max_pool, .batch = 3, .once = true,
      .options = POOL(.window = { 3, 3 }, .stride = { 2, 2 }, .padding = LS_SAME) },
    { "max_pool2d", "overlapping, stride 1", { "N,5,7,1" }, .build = test_max_pool, .batch = 3, .once = true,
      .options = POOL(.window = { 2, 3 }, .stride = { 1, 1 }) },
    { "max_pool2d", "explicit, stride 3", { "N,7,7,1" }, .build = test_max_pool, .batch = 3, .once = true,
      .options = POOL(.window = { 3, 2 }, .stride = { 3, 1 }, .padding = LS_EXPLICIT, .pad = { 2, 1, 0, 1 }) },
    { "max_pool2d", "one pixel", { "N,1,1,7" }, .build = test_max_pool, .once = true,
      .options = POOL(.window = { 2, 2 }, .padding = LS_SAME) },
    { "average_pool2d", "valid 2", { "N,7,7,2" }, .build = test_average_pool, .batch = 3,
      .options = POOL(.window = { 2, 2 }) },
    { "average_pool2d", "same, window 3, stride 2", { "N,7,5,2" }, .build = test_average_pool, .batch = 3,
      .options = POOL(.window = { 3, 3 }, .stride = { 2, 2 }, .padding = LS_SAME) },
    { "average_pool2d", "explicit, padding counted", { "N,5,7,1" }, .build = test_average_pool, .batch = 3,
      .options = POOL(.window = { 3, 2 }, .stride = { 1, 3 }, .padding = LS_EXPLICIT, .pad = { 2, 1, 0, 1 },
                      .count_padding = true) },
    { "average_pool2d", "explicit, padding left out", { "N,5,7,1" }, .build = test_average_pool, .batch = 3,
      .options = POOL(.window = { 3, 2 }, .stride = { 2, 2 }, .padding = LS_EXPLICIT, .pad = { 0, 2, 1, 0 }) },
    { "average_pool2d_grad", "same", { "N,5,5,2", "N,3,3,2" }, .build = test_average_pool_grad, .none = 1, .batch = 3,
      .options = POOL(.window = { 3, 3 }, .stride = { 2, 2 }, .padding = LS_SAME) },
    { "warp", "bilinear, constant", { "N,4,5,2", "N,6" }, .build = test_warp, .fixed = 2, .batch = 3,
      .options = WARP(.fill_value = 0.5) },
    { "warp", "bilinear, nearest, smaller", { "N,5,4,1", "N,6" }, .build = test_warp, .fixed = 2, .batch = 3,
      .options = WARP(.fill_mode = LS_FILL_NEAREST, .size = { 3, 2 }) },
    { "warp", "bilinear, reflect", { "N,3,4,2", "N,6" }, .build = test_warp, .fixed = 2, .batch = 3,
      .options = WARP(.fill_mode = LS_FILL_REFLECT) },
    { "warp", "bilinear, wrap, one row", { "N,1,5,2", "N,6" }, .build = test_warp, .fixed = 2, .batch = 3,
      .options = WARP(.fill_mode = LS_FILL_WRAP, .size = { 3, 6 }) },
    { "warp", "nearest, constant", { "N,5,4,3", "#N,6" }, .build = test_warp, .fixed = 2, .batch = 3,
      .options = WARP(.interpolation = LS_NEAREST, .fill_value = -2), .mostly_zero = true },
    { "warp", "nearest, reflect", { "N,3,3,1", "#N,6" }, .build = test_warp, .fixed = 2, .batch = 3,
      .options = WARP(.interpolation = LS_NEAREST, .fill_mode = LS_FILL_REFLECT), .mostly_zero = true },
    { "warp_grad", "bilinear, constant", { "N,4,5,2", "N,6", "N,4,5,2" }, .build = test_warp_grad, .none = 1,
      .fixed = 2, .batch = 3, .options = WARP(.fill_value = 0.5) },
    { "warp_grad", "bilinear, reflect, smaller", { "N,4,4,1", "N,6", "N,3,2,1" }, .build = test_warp_grad, .none = 1,
      .fixed = 2, .batch = 3, .options = WARP(.fill_mode = LS_FILL_REFLECT, .size = { 3, 2 }) },
    { "warp_grad", "nearest, wrap", { "N,3,4,2", "#N,6", "N,3,4,2" }, .build = test_warp_grad, .none = 1,
      .fixed = 2, .batch = 3, .options = WARP(.interpolation = LS_NEAREST, .fill_mode = LS_FILL_WRAP) },
    { "reduce_max", "global pool", { "N,3,5,2" }, .one = ls_op_global_max_pool2d, .batch = 3, .mostly_zero = true },
    { "reduce_sum", "global average pool", { "N,3,5,2" }, .one = ls_op_global_average_pool2d, .batch = 3 },

    { "batch_norm", "training", { "N,3", "+3", "3" }, .build = test_batch_norm_training, .once = true, .many = true },
    { "batch_norm", "training, images", { "N,2,3,2", "+2", "2" }, .build = test_batch_norm_training, .once = true,
      .batch = 3 },
    { "batch_norm", "training, no gamma or beta", { "N,7" }, .build = test_batch_norm_training, .once = true,
      .many = true },
    { "batch_norm", "training, 33 samples, epsilon 0.5", { "N,1", "+1", "1" }, .build = test_batch_norm_training,
      .once = true, .many = true, .batch = 33, .real = 0.5 },
    { "rsqrt", "batch norm, inference", { "N,7", "+7", "7", "7", "+7" }, .build = test_batch_norm_inference },
    { "rsqrt", "batch norm of images, inference", { "N,3,2,3", "+3", "3", "3", "+3" },
      .build = test_batch_norm_inference, .batch = 3 },
    { "rsqrt", "layer norm", { "N,7", "+7", "7" }, .build = test_layer_norm },
    { "rsqrt", "layer norm, two axes", { "N,3,5", "+3,5", "3,5" }, .build = test_layer_norm, .number = 2, .batch = 3 },
    { "rsqrt", "layer norm, no gamma or beta", { "33" }, .build = test_layer_norm },
    { "dropout", "rate 0.4", { "N,7" }, .build = test_dropout, .real = 0.4 },
    { "dropout", "a rate that is fed", { "N,7", "~" }, .build = test_dropout, .fixed = 2 },
    { "dropout", "rate 0", { "33" }, .build = test_dropout },

    { "sparse_cross_entropy", "logits", { "N,7", "i7:N" }, .build = test_sparse_cross_entropy },
    { "sparse_cross_entropy", "logits, int32", { "N,33", "j33:N" }, .build = test_sparse_cross_entropy, .batch = 3 },
    { "sparse_cross_entropy", "logits, uint8, a sequence", { "N,3,5", "u5:N,3" }, .build = test_sparse_cross_entropy,
      .batch = 3 },
    { "sparse_cross_entropy", "one sample, no batch", { "7", "i7:" }, .build = test_sparse_cross_entropy },
    { "sparse_cross_entropy", "probabilities", { "~N,7", "i7:N" }, .build = test_sparse_cross_entropy, .number = 1 },
    { "sparse_cross_entropy", "softmax", { "N,7", "i7:N" }, .build = test_sparse_cross_entropy, .number = 2 },
    { "sparse_cross_entropy_grad", "", { "N,7", "i7:N", "N" }, .build = test_sparse_cross_entropy_grad },
    { "ctc", "two labels", { "N,5,4", "i4:N,2" }, .build = test_ctc, .once = true, .batch = 3 },
    { "ctc", "four labels, int32", { "N,9,3", "j3:N,4" }, .build = test_ctc, .once = true, .batch = 2 },
    { "ctc", "three labels, uint8", { "N,7,5", "u5:N,3" }, .build = test_ctc, .once = true, .batch = 2 },
    { "ctc", "one frame, no batch", { "3,1,3", "i3:3,1" }, .build = test_ctc, .once = true },
    { "log_softmax", "cross-entropy, logits", { "N,7", "~N,7" }, .build = test_cross_entropy },
    { "log", "cross-entropy, probabilities", { "~N,7", "~N,7" }, .build = test_cross_entropy, .number = 1 },
    { "log_softmax", "cross-entropy, softmax", { "N,7", "~N,7" }, .build = test_cross_entropy, .number = 2 },
    { "softplus", "binary cross-entropy, logits", { "N,7", "~N,7" }, .build = test_binary_cross_entropy },
    { "log", "binary cross-entropy, probabilities", { "~N,7", "~N,7" }, .build = test_binary_cross_entropy,
      .number = 1 },
    { "softplus", "binary cross-entropy, sigmoid", { "N,7", "~N,7" }, .build = test_binary_cross_entropy, .number = 2 },
    { "square", "mean squared error", { "N,7", "N,7" }, .two = ls_op_mean_squared_error },
    { "abs", "mean absolute error", { "N,7", "N,7" }, .two = ls_op_mean_absolute_error },
    { "select", "huber", { "N,7", "N,7" }, .build = test_huber, .real = 1.1 },
};
/* clang-format on */

/* ---- Rows that are made: every op of a family with every shape ---- */

static void add_unary(void)
{
    static const char *const shapes[] = { "N,7", "33", "1", "" };
    for (size_t i = 0; i < test_unary_count; i++) {
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            test_case c = test_unary[i];
            /* A single number is positive, so that relu and clip have a gradient there. */
            const char *domain = c.in[0] ? c.in[0] : k < 2 ? "" : "~";
            c.in[0] = test_text("%s%s", domain, shapes[k]);
            c.variant = test_text("number %d, shape (%s)", c.number, shapes[k]);
            test_cases_add(&c, 1);
        }
    }
}

static void add_binary(void)
{
    static const char *const shapes[][2] = {
        { "N,7", "N,7" }, { "33", "33" },     { "", "" },         { "7", "" },   { "", "7" },       { "33", "1" },
        { "N,7", "7" },   { "7", "N,7" },     { "N,7", "" },      { "", "N,7" }, { "N,7", "N,1" },  { "N,1", "N,7" },
        { "N,7", "1,7" }, { "N,1,5", "3,1" }, { "1,3", "N,7,1" }, { "N", "N" },  { "3,1", "1,33" }, { "2,1,3", "5,1" },
    };
    for (size_t i = 0; i < test_binary_count; i++) {
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            test_case c = test_binary[i];
            bool extreme = c.mostly_zero; /* with two single numbers only one has a gradient: use many */
            if (extreme && (strcmp(shapes[k][0], "") == 0 || strcmp(shapes[k][1], "") == 0))
                continue;
            c.many = extreme;
            c.variant = test_text("(%s) and (%s)", shapes[k][0], shapes[k][1]);
            for (int side = 0; side < 2; side++)
                c.in[side] = test_text("%s%s", c.in[side] ? c.in[side] : "", shapes[k][side]);
            test_cases_add(&c, 1);
        }
    }
}

/* All transposes of products of [m,k] and [k,n] behind leading axes. */
static void add_products(void)
{
    static const struct {
        const char *lead_a, *lead_b;
        int m, k, n;
    } products[] = {
        { "", "", 7, 3, 5 },   { "", "", 1, 7, 1 },   { "", "", 3, 33, 1 },      { "N,", "N,", 2, 3, 4 },
        { "N,", "", 2, 3, 4 }, { "", "N,", 2, 3, 4 }, { "2,1,", "3,", 2, 1, 3 }, { "N,1,", "2,", 2, 3, 1 },
    };
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        int m = products[i].m, k = products[i].k, n = products[i].n;
        for (int t = 0; t < 4; t++) {
            test_case c = { "matmul", .build = test_matmul, .number = t };
            c.in[0] = test_text("%s%d,%d", products[i].lead_a, t & 1 ? k : m, t & 1 ? m : k);
            c.in[1] = test_text("%s%d,%d", products[i].lead_b, t & 2 ? n : k, t & 2 ? k : n);
            c.variant = test_text("(%s)%s times (%s)%s", c.in[0], t & 1 ? " transposed" : "", c.in[1],
                                  t & 2 ? " transposed" : "");
            test_cases_add(&c, 1);
        }
    }
    for (int t = 0; t < 4; t += 2) /* every sample a row of the first */
        test_cases_add(&(test_case){ "matmul",
                                     test_text("(N,7) times (7,3), %d", t),
                                     { "N,7", t ? "3,7" : "7,3" },
                                     .build = test_matmul,
                                     .number = t },
                       1);
}

static void add_reductions(void)
{
    for (size_t i = 0; i < test_reduction_count; i++) {
        test_case c = { test_reductions[i].op, .build = test_reduce, .options = &test_reductions[i],
                        .mostly_zero = i >= 2, .batch = 3 };
        for (int axes = 0; axes < 8; axes++) {
            for (int keep = 0; keep <= 64; keep += 64) {
                c.in[0] = "N,3,5";
                c.number = axes | keep;
                c.variant = test_text("%s, axes %d, keep %d", test_reductions[i].name, axes, keep);
                test_cases_add(&c, 1);
            }
        }
        c.number = 1;
        c.in[0] = "33";
        c.variant = test_text("%s of 33", test_reductions[i].name);
        test_cases_add(&c, 1);
        c.in[0] = "1";
        c.variant = test_text("%s of one", test_reductions[i].name);
        test_cases_add(&c, 1);
    }
}

void test_expressions_add(void)
{
    test_cases_add(table, sizeof table / sizeof *table);
    add_unary();
    add_binary();
    add_products();
    add_reductions();
}
