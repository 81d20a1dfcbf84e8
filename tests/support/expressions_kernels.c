/* Expressions that aim at the CPU's kernels: what is fused, broadcasts and sums of every pattern,
 * sizes that fill no vector, nothing at all. See expressions.h. */
#include <stddef.h>
#include <string.h>

#include "expressions.h"
#include "graph/rules.h"

/* ---- Builders ---- */

enum { RELU = 1, BIAS = 2, RESIDUAL = 2, POOLED = 4, SHARED = 8 };

/* number: RELU, POOLED (by windows of 3, one apart), and SHARED: what the ReLU takes is used beside
 * it */
static ls_tensor *finish(const test_case *c, ls_tensor *y)
{
    ls_tensor *before = y;
    if (c->number & RELU)
        y = ls_op_relu(y);
    if (c->number & POOLED)
        y = ls_op_max_pool2d(y, .window = { 3, 3 }, .stride = { 2, 2 }, .padding = LS_SAME);
    return c->number & SHARED ? ls_op_add(y, ls_op_scale(before, 0.5)) : y;
}

static ls_tensor *dense(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *y = ls_op_matmul(x[0], x[1]);
    return finish(c, c->number & BIAS ? ls_op_add(y, x[2]) : y);
}

static ls_tensor *bias_first(const test_case *c, ls_tensor *const *x)
{
    return finish(c, ls_op_add(x[2], ls_op_matmul(x[0], x[1])));
}

static ls_tensor *convolution(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *y = test_conv2d(c, x);
    return finish(c, c->number & BIAS ? ls_op_add(y, x[2]) : y);
}

/* in: x, gamma, beta, residual */
static ls_tensor *norm(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *y = ls_op_batch_norm(x[0], .gamma = x[1], .beta = x[2], .training = true, .epsilon = c->real);
    return finish(c, c->number & RESIDUAL ? ls_op_add(x[3], y) : y);
}

ls_tensor *test_residual_blocks(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *y = x[0];
    for (int i = 0; i < 2; i++) {
        ls_tensor *z = ls_op_conv2d(y, x[1], .padding = LS_SAME);
        z = ls_op_batch_norm(z, .gamma = x[2], .beta = x[3], .training = true, .epsilon = c->real);
        z = ls_op_conv2d(ls_op_relu(z), x[1], .padding = LS_SAME);
        z = ls_op_batch_norm(z, .gamma = x[2], .beta = x[3], .training = true, .epsilon = c->real);
        y = ls_op_relu(ls_op_add(z, y));
    }
    return y;
}

/* Convolution, ReLU, pool, dense: one after the other. in: x, kernel, bias, dense kernel, dense
 * bias */
static ls_tensor *small_network(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *y = ls_op_relu(ls_op_add(ls_op_conv2d(x[0], x[1]), x[2]));
    y = ls_op_max_pool2d(y, .window = { 2, 2 });
    y = ls_op_reshape(y, LS_SHAPE(ls_tensor_shape(y).dims[0], LS_REMAINING));
    y = ls_op_add(ls_op_matmul(y, x[3]), x[4]);
    return c->number & RELU ? ls_op_relu(y) : y;
}

static ls_tensor *pool_of_relu(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *y = ls_op_relu(x[0]), *p = test_max_pool(c, &y);
    return c->number & SHARED ? ls_op_mul(p, ls_op_reduce_mean(y, LS_AXES(1, 2), true)) : p;
}

/* Cross-entropy of every sample against all of the batch. */
static ls_tensor *pairs(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *all = ls_op_gather_batch(x[0]), *scores = ls_op_matmul(x[0], all, .transpose_b = true);
    scores = c->number & RELU ? ls_op_relu(scores) : scores;
    return c->number & BIAS ? ls_op_sparse_cross_entropy(x[1], scores, LS_LOGITS) : ls_op_softmax(scores, -1);
}

/* From one type to the other and on to float32: number is 8 times one plus the other. */
static ls_tensor *cast_both(const test_case *c, ls_tensor *const *x)
{
    ls_tensor *from = ls_op_cast(ls_op_scale(x[0], 70), (ls_dtype)(c->number / 8));
    return ls_op_cast(from, (ls_dtype)(c->number % 8));
}

static ls_tensor *relation(const test_case *c, ls_tensor *const *x)
{
    bool flags = x[0]->dtype == LS_BOOL;
    return ls_op_compare(flags ? ls_op_cast(x[0], LS_I32) : x[0], (ls_relation)c->number,
                         flags ? ls_op_cast(x[1], LS_I32) : x[1]);
}

static ls_tensor *argmax(const test_case *c, ls_tensor *const *x)
{
    return ls_op_argmax(x[0], c->number);
}

static ls_tensor *top_k_indices(const test_case *c, ls_tensor *const *x)
{
    return ls_op_top_k_indices(x[0], c->number);
}

static ls_tensor *filled(const test_case *c, ls_tensor *const *x)
{
    return ls_op_mul(x[0], ls_op_fill(x[0]->graph, x[0]->dtype, ls_tensor_shape(x[0]), c->real));
}

static ls_tensor *counted(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_mul(x[0], ls_op_count(x[0]->graph, x[0]->dtype));
}

static ls_tensor *stopped(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_op_mul(x[0], ls_op_stop_gradient(ls_op_relu(x[0])));
}

static ls_tensor *moments(const test_case *c, ls_tensor *const *x)
{
    (void)c;
    return ls_node_make1(LS_OP_moments, x[0], ls_no_attrs());
}

/* number 0: uniform */
static ls_tensor *random_numbers(const test_case *c, ls_tensor *const *x)
{
    ls_shape shape = ls_tensor_shape(x[0]);
    return c->number ? ls_op_random_normal(x[0]->graph, LS_F32, shape, 1, 2)
                     : ls_op_random_uniform(x[0]->graph, LS_F32, shape, -1, 2);
}

/* ---- Rows ---- */

/* clang-format off */
static const test_case table[] = {
    { "matmul", "dense: bias", { "N,17", "17,33", "33" }, .build = dense, .number = BIAS },
    { "matmul", "dense: bias, ReLU", { "N,64", "64,16", "16" }, .build = dense, .number = BIAS | RELU },
    { "matmul", "dense: ReLU", { "N,5", "5,19" }, .build = dense, .number = RELU },
    { "matmul", "dense: one in, one out", { "N,1", "1,1", "1" }, .build = dense, .number = BIAS | RELU },
    { "matmul", "dense: bias first", { "N,5", "5,3", "3" }, .build = bias_first, .number = RELU },
    { "matmul", "dense: shared before the ReLU", { "N,5", "5,7", "7" }, .build = dense,
      .number = BIAS | RELU | SHARED },
    { "matmul", "dense: a bias for each sample", { "N,5", "5,7", "N,7" }, .build = dense, .number = BIAS | RELU },
    { "matmul", "dense: one bias for all", { "N,5", "5,7", "1" }, .build = dense, .number = BIAS | RELU },
    { "matmul", "dense: a scalar bias", { "N,5", "5,7", "" }, .build = dense, .number = BIAS | RELU },
    { "matmul", "three axes: bias, ReLU", { "N,3,5", "5,7", "7" }, .build = dense, .number = BIAS | RELU },
    { "matmul", "nothing inside", { "N,0", "0,3" }, .build = dense },
    { "matmul", "nothing inside: bias, ReLU", { "N,0", "0,3", "3" }, .build = dense, .number = BIAS | RELU },
    { "matmul", "nothing out: bias", { "N,3", "3,0", "0" }, .build = dense, .number = BIAS },
    { "matmul", "large", { "N,130", "130,70", "70" }, .build = dense, .number = BIAS | RELU },
    { "gather_batch", "pairs: softmax", { "N,3" }, .build = pairs, .fed_only = true, .many = true },
    { "gather_batch", "pairs: ReLU", { "N,3" }, .build = pairs, .number = RELU, .fed_only = true, .many = true },
    { "gather_batch", "pairs: cross-entropy", { "N,3", "i1:N" }, .build = pairs, .number = BIAS, .fed_only = true,
      .many = true },

    { "matmul", "a large weight, bias, ReLU", { "N,512", "512,272", "272" }, .build = dense, .number = BIAS | RELU },
    { "matmul", "a large weight, several pieces", { "N,1040", "1040,144" }, .build = dense },
    { "matmul", "a large weight, more out than in", { "N,112", "112,1280" }, .build = dense, .number = RELU },

    { "conv2d", "bias", { "N,5,7,3", "3,3,3,5", "5" }, .build = convolution, .number = BIAS },
    { "conv2d", "bias, ReLU", { "N,6,5,1", "3,3,1,16", "16" }, .build = convolution, .number = BIAS | RELU },
    { "conv2d", "ReLU", { "N,5,5,16", "3,3,16,16" }, .build = convolution, .number = RELU,
      .options = CONV(.padding = LS_SAME) },
    { "conv2d", "bias, ReLU, pool", { "N,7,7,3", "3,3,3,32", "32" }, .build = convolution,
      .number = BIAS | RELU | POOLED, .options = CONV(.padding = LS_SAME) },
    { "conv2d", "bias, ReLU, shared before it", { "N,5,5,2", "2,2,2,3", "3" }, .build = convolution,
      .number = BIAS | RELU | SHARED, .options = CONV(.padding = LS_SAME, .stride = { 2, 1 }) },
    { "conv2d", "one by one, bias, ReLU", { "N,3,3,17", "1,1,17,33", "33" }, .build = convolution,
      .number = BIAS | RELU },
    { "conv2d", "groups, bias, ReLU", { "N,5,5,6", "3,3,3,4", "4" }, .build = convolution, .number = BIAS | RELU,
      .options = CONV(.groups = 2) },
    { "conv2d", "depthwise of 19, 5x5, stride 2", { "N,9,23,19", "5,5,1,19" }, .build = convolution,
      .options = CONV(.groups = 19, .padding = LS_SAME, .stride = { 2, 2 }) },
    { "conv2d", "depthwise of 35, 3x7, dilation", { "N,6,20,35", "3,7,1,35" }, .build = convolution,
      .options = CONV(.groups = 35, .padding = LS_SAME, .dilation = { 1, 2 }) },
    { "conv2d", "depthwise of 16, bias, ReLU", { "N,5,5,16", "3,3,1,16", "16" }, .build = convolution,
      .number = BIAS | RELU, .options = CONV(.groups = 16, .padding = LS_SAME) },
    { "conv2d", "dilation, bias, ReLU", { "N,7,7,3", "3,2,3,4", "4" }, .build = convolution, .number = BIAS | RELU,
      .options = CONV(.dilation = { 2, 3 }, .padding = LS_SAME) },
    { "conv2d", "explicit, stride 2, bias, ReLU", { "N,6,7,3", "3,3,3,4", "4" }, .build = convolution,
      .number = BIAS | RELU,
      .options = CONV(.stride = { 2, 2 }, .padding = LS_EXPLICIT, .pad = { 2, 1, 0, 3 }) },
    { "conv2d", "no pixels out, bias", { "N,2,2,3", "2,2,3,4", "4" }, .build = convolution, .number = BIAS,
      .options = CONV(.stride = { 2, 2 }) },
    { "conv2d", "no channels, bias, ReLU", { "N,3,3,0", "2,2,0,4", "4" }, .build = convolution, .number = BIAS | RELU },
    { "conv2d", "seven by seven, stride 2", { "N,15,15,3", "7,7,3,16" }, .build = convolution,
      .options = CONV(.stride = { 2, 2 }, .padding = LS_SAME), .batch = 7 },
    { "conv2d", "channels that fill no tile, bias, ReLU", { "N,6,5,22", "3,3,22,70", "70" }, .build = convolution,
      .number = BIAS | RELU, .options = CONV(.padding = LS_SAME) },
    { "conv2d", "a sum in two parts, bias, ReLU", { "N,3,3,80", "3,3,80,48", "48" }, .build = convolution,
      .number = BIAS | RELU, .options = CONV(.padding = LS_SAME) },
    { "conv2d", "one by one, more in than out", { "N,4,5,70", "1,1,70,19", "19" }, .build = convolution,
      .number = BIAS },
    { "conv2d", "one by one, stride 2", { "N,5,6,35", "1,1,35,16" }, .build = convolution,
      .options = CONV(.stride = { 2, 2 }) },
    { "conv2d", "one by one, strides 2 and 3, padded", { "N,5,6,16", "1,1,16,48" }, .build = convolution,
      .options = CONV(.stride = { 2, 3 }, .padding = LS_EXPLICIT, .pad = { 1, 0, 2, 3 }) },
    { "conv2d", "of 16, dilation, strides, explicit", { "N,9,8,16", "3,2,16,33" }, .build = convolution, .number = RELU,
      .options = CONV(.stride = { 2, 1 }, .dilation = { 1, 3 }, .padding = LS_EXPLICIT, .pad = { 4, 1, 0, 3 }) },
    { "conv2d", "of 16, rows longer than a block", { "N,2,300,16", "2,3,16,16" }, .build = convolution,
      .options = CONV(.padding = LS_SAME) },
    { "conv2d", "few taps, dilated past the image", { "N,2,1,1", "5,2,1,4" }, .build = convolution, .mostly_zero = true,
      .options = CONV(.dilation = { 3, 1 }, .padding = LS_EXPLICIT, .pad = { 4, 8, 0, 1 }) },
    { "conv2d", "a small network", { "N,8,8,1", "3,3,1,16", "16", "144,10", "10" }, .build = small_network },
    { "conv2d", "a small network, ReLU last", { "N,6,8,2", "3,3,2,5", "5", "30,7", "7" }, .build = small_network,
      .number = RELU },

    { "max_pool2d", "of ReLU", { "N,7,5,17" }, .build = pool_of_relu, .options = POOL(.window = { 2, 2 }) },
    { "max_pool2d", "of ReLU, same, overlapping", { "N,7,5,3" }, .build = pool_of_relu,
      .options = POOL(.window = { 3, 3 }, .stride = { 2, 2 }, .padding = LS_SAME) },
    { "max_pool2d", "of ReLU, explicit", { "N,5,6,2" }, .build = pool_of_relu,
      .options = POOL(.window = { 3, 2 }, .stride = { 1, 2 }, .padding = LS_EXPLICIT, .pad = { 1, 2, 0, 1 }) },
    { "max_pool2d", "of ReLU that is used beside it", { "N,4,6,3" }, .build = pool_of_relu, .number = SHARED,
      .options = POOL(.window = { 2, 2 }) },
    { "max_pool2d", "16 channels, stride 1", { "N,5,5,16" }, .build = test_max_pool,
      .options = POOL(.window = { 3, 3 }, .stride = { 1, 1 }, .padding = LS_SAME) },
    { "max_pool2d", "no channels", { "N,4,4,0" }, .build = test_max_pool, .options = POOL(.window = { 2, 2 }) },
    { "average_pool2d", "overlapping, 17 channels", { "N,6,5,17" }, .build = test_average_pool,
      .options = POOL(.window = { 3, 2 }, .stride = { 1, 1 }, .padding = LS_SAME) },
    { "average_pool2d", "no channels", { "N,4,4,0" }, .build = test_average_pool, .options = POOL(.window = { 2, 2 }) },
    { "reduce_sum", "global average pool, 17 channels", { "N,7,5,17" }, .one = ls_op_global_average_pool2d },
    { "reduce_sum", "global average pool, one pixel", { "N,1,1,5" }, .one = ls_op_global_average_pool2d },

    { "batch_norm", "ReLU", { "N,4,3,5", "+5", "5" }, .build = norm, .number = RELU, .many = true },
    { "batch_norm", "residual", { "N,4,3,5", "+5", "5", "N,4,3,5" }, .build = norm, .number = RESIDUAL, .many = true },
    { "batch_norm", "residual, ReLU", { "N,3,3,17", "+17", "17", "N,3,3,17" }, .build = norm,
      .number = RESIDUAL | RELU, .many = true },
    { "batch_norm", "ReLU, pool", { "N,5,5,3", "+3", "3" }, .build = norm, .number = RELU | POOLED, .many = true },
    { "batch_norm", "ReLU, shared before it", { "N,5,5,3", "+3", "3" }, .build = norm, .number = RELU | SHARED,
      .many = true },
    { "batch_norm", "rank 2, ReLU", { "N,19", "+19", "19" }, .build = norm, .number = RELU, .many = true },
    { "batch_norm", "rank 3, ReLU", { "N,3,7", "+7", "7" }, .build = norm, .number = RELU, .many = true },
    { "batch_norm", "rank 5, residual, ReLU", { "N,2,3,2,5", "+5", "5", "N,2,3,2,5" }, .build = norm,
      .number = RESIDUAL | RELU, .many = true },
    { "batch_norm", "a residual for all samples, ReLU", { "N,3,5", "+5", "5", "5" }, .build = norm,
      .number = RESIDUAL | RELU, .many = true },
    { "batch_norm", "no channels, ReLU", { "N,3,0", "+0", "0" }, .build = norm, .number = RELU },
    { "batch_norm", "two residual blocks", { "N,5,5,4", "3,3,4,4", "+4", "4" }, .build = test_residual_blocks,
      .real = 0.1, .many = true },
    { "moments", "images", { "N,3,5,7" }, .build = moments },
    { "moments", "rows", { "N,17" }, .build = moments },

    { "sparse_cross_entropy", "u8, 10 classes", { "N,10", "u10:N" }, .build = test_sparse_cross_entropy },
    { "sparse_cross_entropy", "i32, rank 3", { "N,3,17", "j17:N,3" }, .build = test_sparse_cross_entropy },
    { "sparse_cross_entropy", "i64, rank 4", { "N,3,2,5", "i5:N,3,2" }, .build = test_sparse_cross_entropy },
    { "sparse_cross_entropy", "no rows", { "N,0,5", "i5:N,0" }, .build = test_sparse_cross_entropy },
    { "softmax", "no columns", { "N,3,0" }, .build = test_softmax, .number = -1 },
    { "softmax", "no rows", { "N,0,3" }, .build = test_softmax, .number = -1 },
    { "softmax", "100 columns", { "N,100" }, .build = test_softmax, .number = -1 },
    { "log_softmax", "100 columns", { "N,2,100" }, .build = test_log_softmax, .number = -1 },
    { "softmax", "rank 4, axis 2", { "N,3,5,2" }, .build = test_softmax, .number = 2 },
    { "log_softmax", "rank 5, last", { "N,2,3,2,5" }, .build = test_log_softmax, .number = -1 },

    { "dropout", "images", { "N,3,5,7" }, .build = test_dropout, .real = 0.3 },
    { "dropout", "no elements", { "N,0" }, .build = test_dropout, .real = 0.3 },
    { "random_uniform", "per sample", { "N,7" }, .build = random_numbers },
    { "random_normal", "per sample", { "N,3,5" }, .build = random_numbers, .number = 1 },
    { "random_uniform", "33", { "33" }, .build = random_numbers },
    { "compare", "equal", { "b:N,7", "b:N,7" }, .build = relation, .number = LS_EQUAL, .many = true },
    { "compare", "not equal", { "#N,7", "#7" }, .build = relation, .number = LS_NOT_EQUAL },
    { "compare", "less", { "N,7", "N,7" }, .build = relation, .number = LS_LESS },
    { "compare", "less or equal", { "N,7", "7" }, .build = relation, .number = LS_LESS_EQUAL },
    { "compare", "greater", { "7", "N,7" }, .build = relation, .number = LS_GREATER },
    { "compare", "greater or equal", { "N,7", "N,1" }, .build = relation, .number = LS_GREATER_EQUAL },
    { "sign", "", { "N,7" }, .one = ls_op_sign },
    { "argmax", "last axis", { "N,3,7" }, .build = argmax, .number = -1 },
    { "argmax", "axis 1", { "N,3,7" }, .build = argmax, .number = 1 },
    { "top_k_indices", "three", { "N,7" }, .build = top_k_indices, .number = 3 },
    { "one_hot", "", { "N,7" }, .build = test_one_hot },
    { "fill", "", { "N,7" }, .build = filled, .real = -1.25 },
    { "count", "", { "N,7" }, .build = counted, .fed_only = true },
    { "stop_gradient", "", { "N,7" }, .build = stopped },
    { "mul", "one pixel and images", { "N,1,1,7", "N,3,5,7" }, .two = ls_op_mul },
    { "concat", "nothing and something", { "N,0", "N,3" }, .build = test_concat, .number = 1 },
};
/* clang-format on */

/* Ops by families with shapes that the table of expressions has not: more axes, rows and ones in
 * all places, nothing. / */
static void add_elementwise(void)
{
    static const char *const single[] = { "N,3,5,7", "N,17", "N,0", "0,3", "N" };
    static const char *const both[][2] = {
        { "N,3,5,7", "N,3,5,7" },
        { "N,3,5,7", "7" },
        { "5,7", "N,3,5,7" },
        { "N,3,5,7", "1,1,7" },
        { "1,3,5,7", "N,3,5,7" },
        { "N,3,5,7", "3,1,7" },
        { "3,5,1", "N,3,5,7" },
        { "N,3,5,7", "1,1" },
        { "1,1,1,1", "N,3,5,7" },
        { "N,1,1,7", "N,3,5,7" },
        { "N,3,5,7", "N,1,1,1" },
        { "N,2,3,2,3", "3" },
        { "N,17", "17" },
        { "1,17", "N,17" },
        { "N,1", "17" },
        { "N,0", "N,0" },
        { "N,3,0", "1" },
        { "0", "N,2,0" },
        { "N,17", "N" },
        { "2,1,17", "2,3,17" },
        { "N", "1" },
        { "", "N" },
        { "33,17", "17" },
        { "17", "33,17" },
    };
    for (size_t i = 0; i < test_unary_count; i++)
        for (size_t k = 0; k < sizeof single / sizeof *single; k++) {
            test_case c = test_unary[i];
            c.variant = test_text("number %d, shape (%s)", c.number, single[k]);
            c.in[0] = test_text("%s%s", c.in[0] ? c.in[0] : "", single[k]);
            test_cases_add(&c, 1);
        }
    for (size_t i = 0; i < test_binary_count; i++)
        for (size_t k = 0; k < sizeof both / sizeof *both; k++) {
            test_case c = test_binary[i];
            if (strcmp(both[k][1], "N") == 0 && strcmp(both[k][0], "N,17") == 0)
                continue; /* would add samples to features */
            c.variant = test_text("(%s) and (%s)", both[k][0], both[k][1]);
            for (int side = 0; side < 2; side++)
                c.in[side] = test_text("%s%s", c.in[side] ? c.in[side] : "", both[k][side]);
            test_cases_add(&c, 1);
        }
}

/* Sums, and extremes, over every set of axes. */
static void add_sums(void)
{
    static const char *const shapes[] = { "N", "N,17", "N,3,5,4", "N,2,3,2,5", "N,0", "N,3,0" };
    static const int ranks[] = { 1, 2, 4, 5, 2, 3 };
    for (size_t i = 0; i < test_reduction_count; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            for (int axes = 0; axes < 1 << ranks[k]; axes++) {
                bool extreme = i >= 2, nothing = k >= 4;
                if ((extreme && (nothing || k == 3)) || (i == 1 && nothing))
                    continue; /* an empty set has no extreme and no mean */
                test_case c = { test_reductions[i].op,
                                .in = { shapes[k] },
                                .build = test_reduce,
                                .options = &test_reductions[i],
                                .number = axes | (axes % 3 == 0 ? 64 : 0),
                                .mostly_zero = extreme };
                c.variant = test_text("%s of (%s), axes %d", test_reductions[i].name, shapes[k], axes);
                test_cases_add(&c, 1);
            }
}

static void add_casts(void)
{
    for (int from = 0; from < LS_DTYPE_COUNT; from++)
        for (int to = 0; to < LS_DTYPE_COUNT; to++) {
            if (from == LS_F32 && to == LS_F32)
                continue;
            test_case c = { "cast", .in = { "N,19" }, .build = cast_both, .number = 8 * from + to };
            c.variant = test_text("%s to %s", ls_dtype_name((ls_dtype)from), ls_dtype_name((ls_dtype)to));
            test_cases_add(&c, 1);
        }
}

void test_kernel_expressions_add(void)
{
    test_cases_add(table, sizeof table / sizeof *table);
    add_elementwise();
    add_sums();
    add_casts();
}
