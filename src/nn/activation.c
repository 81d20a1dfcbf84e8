/* Activations by Keras's names, for the layer Activation and the option `activation` of others. */
#include <stdlib.h>

#include "base/fpmode.h"
#include "graph/claim.h"
#include "graph/rules.h"
#include "nn/layer.h"

/* ---- Formulas ---- */

static ls_tensor *linear(ls_tensor *x)
{
    return x;
}

static ls_tensor *softmax(ls_tensor *x)
{
    return ls_op_softmax(x, -1);
}

static ls_tensor *log_softmax(ls_tensor *x)
{
    return ls_op_log_softmax(x, -1);
}

static ls_tensor *gelu(ls_tensor *x)
{
    return ls_op_gelu(x, false);
}

static ls_tensor *gelu_tanh(ls_tensor *x)
{
    return ls_op_gelu(x, true);
}

/* Also celu: both have alpha 1. */
static ls_tensor *elu(ls_tensor *x)
{
    return ls_op_elu(x, 1);
}

static ls_tensor *leaky_relu(ls_tensor *x)
{
    return ls_op_leaky_relu(x, 0.2);
}

static ls_tensor *relu6(ls_tensor *x)
{
    return ls_op_capped_relu(x, 6);
}

static ls_tensor *hard_sigmoid(ls_tensor *x)
{
    return ls_op_scale(relu6(ls_op_shift(x, 3)), 1.0 / 6);
}

static ls_tensor *hard_silu(ls_tensor *x)
{
    return ls_op_mul(x, hard_sigmoid(x));
}

static ls_tensor *mish(ls_tensor *x)
{
    return ls_op_mul(x, ls_op_tanh(ls_op_softplus(x)));
}

static ls_tensor *selu(ls_tensor *x)
{
    return ls_op_scale(ls_op_elu(x, LS_SELU_ALPHA), LS_SELU_SCALE);
}

static ls_tensor *softsign(ls_tensor *x)
{
    return ls_op_div(x, ls_op_shift(ls_op_abs(x), 1));
}

static ls_tensor *log_sigmoid(ls_tensor *x)
{
    return ls_op_neg(ls_op_softplus(ls_op_neg(x)));
}

static ls_tensor *tanh_shrink(ls_tensor *x)
{
    return ls_op_sub(x, ls_op_tanh(x));
}

static ls_tensor *soft_shrink(ls_tensor *x)
{
    return ls_op_sub(ls_op_relu(ls_op_shift(x, -0.5)), ls_op_relu(ls_op_shift(ls_op_neg(x), -0.5)));
}

static ls_tensor *hard_shrink(ls_tensor *x)
{
    ls_tensor *far = ls_op_compare(ls_op_abs(x), LS_GREATER, ls_scalar_like(x, 0.5));
    return ls_op_select(far, x, ls_scalar_like(x, 0));
}

static ls_tensor *hard_tanh(ls_tensor *x)
{
    return ls_op_clip(x, -1, 1);
}

static ls_tensor *squareplus(ls_tensor *x)
{
    return ls_op_scale(ls_op_add(x, ls_op_sqrt(ls_op_shift(ls_op_square(x), 4))), 0.5);
}

/* 0 up to -1, (x + 1)^2 / 4 up to 1, then x */
static ls_tensor *sparse_plus(ls_tensor *x)
{
    ls_tensor *curve = ls_op_scale(ls_op_square(ls_op_relu(ls_op_shift(x, 1))), 0.25);
    return ls_op_select(ls_op_compare(x, LS_LESS, ls_scalar_like(x, 1)), curve, x);
}

static ls_tensor *sparse_sigmoid(ls_tensor *x)
{
    return ls_op_clip(ls_op_scale(ls_op_shift(x, 1), 0.5), 0, 1);
}

/* The first half of the last axis times the sigmoid of the second. */
static ls_tensor *glu(ls_tensor *x)
{
    ls_tensor *half[2];
    int64_t size = x->shape.dims[x->shape.rank - 1];
    if (x->shape.rank < 2 || size % 2 != 0)
        return ls_node_error(
            x->graph,
            ls_fail(LS_ERR_SHAPE, "glu halves the last axis, so its size must be even (got %lld)", (long long)size),
            NULL);
    ls_op_split(x, -1, LS_AXES(size / 2, size / 2), half);
    return ls_op_mul(half[0], ls_op_sigmoid(half[1]));
}

/* The numbers 1 to n. */
static ls_tensor *numbers_to(const ls_tensor *x, int64_t n)
{
    double *list = malloc((size_t)n * sizeof(*list));
    if (!list)
        return ls_node_error(x->graph, ls_fail(LS_ERR_MEMORY, "no memory for %lld numbers", (long long)n), NULL);
    for (int64_t i = 0; i < n; i++)
        list[i] = (double)(i + 1);
    ls_tensor *numbers = ls_op_cast(ls_op_constant(x->graph, LS_F64, LS_SHAPE(n), list), x->dtype);
    free(list);
    return numbers;
}

/* Keras 3's formula: with x sorted and summed up, sums[k] = x[0] + ... + x[k - 1], the k
 * largest are inside for which x[k - 1] > (sums[k] - 1) / k, and the threshold is (the sum of
 * their sums[k] - 1) / their number. Martins and Astudillo have the last of these sums in place
 * of all, so that the result sums up to 1; Keras's does if one element is inside. */
static ls_tensor *sparsemax(ls_tensor *x)
{
    int64_t n = x->shape.rank > 0 ? x->shape.dims[x->shape.rank - 1] : 0;
    if (x->shape.rank < 2)
        return ls_node_error(
            x->graph, ls_fail(LS_ERR_SHAPE, "sparsemax needs an axis besides the batch (got rank %d)", x->shape.rank),
            NULL);
    ls_tensor *k = numbers_to(x, n), *sorted = ls_op_top_k(x, n);
    ls_tensor *triangle = ls_op_cast(ls_op_compare(ls_op_reshape(k, LS_SHAPE(n, 1)), LS_LESS_EQUAL, k), x->dtype);
    ls_tensor *sums = ls_op_matmul(sorted, triangle);
    ls_tensor *inside = ls_op_compare(sorted, LS_GREATER, ls_op_div(ls_op_shift(sums, -1), k));
    ls_tensor *count = ls_op_reduce_sum(ls_op_cast(inside, x->dtype), LS_AXES(-1), true);
    ls_tensor *all = ls_op_reduce_sum(ls_op_select(inside, sums, ls_scalar_like(x, 0)), LS_AXES(-1), true);
    return ls_op_relu(ls_op_sub(x, ls_op_div(ls_op_shift(all, -1), count)));
}

/* ---- By number ---- */

static const struct {
    const char *name;
    ls_tensor *(*formula)(ls_tensor *x);
} activations[] = {
    [LS_LINEAR] = { "linear", linear },
    [LS_RELU] = { "relu", ls_op_relu },
    [LS_SOFTMAX] = { "softmax", softmax },
    [LS_SIGMOID] = { "sigmoid", ls_op_sigmoid },
    [LS_TANH] = { "tanh", ls_op_tanh },
    [LS_GELU] = { "gelu", gelu },
    [LS_GELU_TANH] = { "gelu_tanh", gelu_tanh }, /* not a Keras name: JSON cannot express approximate=True */
    [LS_SILU] = { "silu", ls_op_silu },
    [LS_ELU] = { "elu", elu },
    [LS_SOFTPLUS] = { "softplus", ls_op_softplus },
    [LS_LEAKY_RELU] = { "leaky_relu", leaky_relu },
    [LS_LOG_SOFTMAX] = { "log_softmax", log_softmax },
    [LS_EXPONENTIAL] = { "exponential", ls_op_exp },
    [LS_RELU6] = { "relu6", relu6 },
    [LS_HARD_SIGMOID] = { "hard_sigmoid", hard_sigmoid },
    [LS_HARD_SILU] = { "hard_silu", hard_silu },
    [LS_MISH] = { "mish", mish },
    [LS_SELU] = { "selu", selu },
    [LS_SOFTSIGN] = { "softsign", softsign },
    [LS_LOG_SIGMOID] = { "log_sigmoid", log_sigmoid },
    [LS_TANH_SHRINK] = { "tanh_shrink", tanh_shrink },
    [LS_SOFT_SHRINK] = { "soft_shrink", soft_shrink },
    [LS_HARD_SHRINK] = { "hard_shrink", hard_shrink },
    [LS_HARD_TANH] = { "hard_tanh", hard_tanh },
    [LS_SQUAREPLUS] = { "squareplus", squareplus },
    [LS_SPARSE_PLUS] = { "sparse_plus", sparse_plus },
    [LS_SPARSE_SIGMOID] = { "sparse_sigmoid", sparse_sigmoid },
    [LS_CELU] = { "celu", elu },
    [LS_GLU] = { "glu", glu },
    [LS_SPARSEMAX] = { "sparsemax", sparsemax },
};

const char *ls_activation_name(ls_activation activation)
{
    return (unsigned)activation < sizeof(activations) / sizeof(activations[0]) ? activations[activation].name : NULL;
}

ls_tensor *ls_activate(ls_tensor *x, ls_activation activation)
{
    return ls_tensor_is_error(x) || !ls_activation_name(activation) ? x : activations[activation].formula(x);
}

ls_tensor *ls_threshold(ls_tensor *x, double threshold, double value)
{
    LS_CLAIM_TENSORS(x);
    LS_OWN_FP_MODE;
    if (!x || ls_tensor_is_error(x))
        return x;
    ls_tensor *above = ls_op_compare(x, LS_GREATER, ls_scalar_like(x, threshold));
    return ls_op_select(above, x, ls_scalar_like(x, value));
}
