/* Reductions, and softmax, which also works along an axis. Over the batch axis a node computes each
 * lane's partial, and the run joins them. */
#include "base/fpmode.h"
#include "graph/claim.h"
#include "graph/rules.h"

ls_status ls_shape_reduce(ls_tensor *node)
{
    const ls_tensor *x = node->in[0];
    int64_t axes = node->attr.reduce.axes;
    if (x->dtype == LS_U8 || x->dtype == LS_BOOL)
        return ls_fail(LS_ERR_DTYPE, "input 0 is %s; it must be float32, float64, int32 or int64: cast it first",
                       ls_dtype_name(x->dtype));
    ls_shape shape = { .rank = 0 };
    for (int i = 0; i < x->shape.rank; i++) {
        if (!(axes >> i & 1))
            shape.dims[shape.rank++] = x->shape.dims[i];
        else if (node->attr.reduce.keepdims)
            shape.dims[shape.rank++] = 1;
        if (node->op != LS_OP_reduce_sum && (axes >> i & 1) && x->shape.dims[i] == 0)
            return ls_fail(LS_ERR_SHAPE, "axis %d is empty, so it has no maximum or minimum", i);
    }
    node->dtype = x->dtype;
    node->shape = shape;
    node->per_sample = x->per_sample && !(axes & 1);
    node->use = !x->per_sample ? LS_USE_WHOLE : node->per_sample ? LS_USE_KEEPS : LS_USE_REDUCES;
    return LS_OK;
}

/* A count of -1 means all axes. */
static ls_status axes_mask(const ls_tensor *x, const ls_axes *axes, int64_t *mask)
{
    *mask = 0;
    if (axes->count < 0) {
        *mask = ((int64_t)1 << x->shape.rank) - 1;
        return LS_OK;
    }
    if (axes->count > LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "got %d axes, but the tensor has %d", axes->count, x->shape.rank);
    for (int i = 0; i < axes->count; i++) {
        int64_t axis;
        LS_TRY(ls_rule_axis(&x->shape, axes->axis[i], &axis));
        if (*mask >> axis & 1)
            return ls_fail(LS_ERR_SHAPE, "axis %lld is given twice", (long long)axes->axis[i]);
        *mask |= (int64_t)1 << axis;
    }
    return LS_OK;
}

static ls_tensor *reduce(ls_op op, ls_tensor *x, ls_axes axes, bool keepdims)
{
    int64_t mask;
    if (ls_tensor_is_error(x))
        return x;
    ls_status status = axes_mask(x, &axes, &mask);
    if (status != LS_OK)
        return ls_node_error(x->graph, status, ls_ops[op].name);
    return ls_node_make1(op, x, (ls_attrs){ .reduce = { .axes = mask, .keepdims = keepdims } });
}

ls_tensor *ls_op_reduce_sum(ls_tensor *x, ls_axes axes, bool keepdims)
{
    LS_CLAIM_TENSORS(x);
    return reduce(LS_OP_reduce_sum, x, axes, keepdims);
}

ls_tensor *ls_op_reduce_max(ls_tensor *x, ls_axes axes, bool keepdims)
{
    LS_CLAIM_TENSORS(x);
    return reduce(LS_OP_reduce_max, x, axes, keepdims);
}

ls_tensor *ls_op_reduce_min(ls_tensor *x, ls_axes axes, bool keepdims)
{
    LS_CLAIM_TENSORS(x);
    return reduce(LS_OP_reduce_min, x, axes, keepdims);
}

/* Returns t, a reduction of y's input, with the reduced axes kept, so that it broadcasts against
 * it. */
static ls_tensor *with_kept_axes(ls_tensor *y, ls_tensor *t)
{
    ls_shape shape = y->in[0]->shape;
    for (int i = 0; i < shape.rank; i++)
        if (y->attr.reduce.axes >> i & 1)
            shape.dims[i] = 1;
    return ls_op_reshape(t, shape);
}

void ls_grad_reduce_sum(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    dx[0] = ls_op_broadcast_like(with_kept_axes(y, dy), y->in[0]);
}

/* Equal extreme values share the gradient evenly. */
void ls_grad_reduce_extreme(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *x = y->in[0];
    ls_tensor *winners = ls_op_cast(ls_op_compare(x, LS_EQUAL, with_kept_axes(y, y)), x->dtype);
    ls_tensor *count = ls_op_reduce_sum(winners, ls_axes_of_mask(y->attr.reduce.axes), true);
    dx[0] = ls_op_mul(winners, ls_op_div(with_kept_axes(y, dy), count));
}

/* Elements per result: product of known sizes; *batch: times the batch size. */
static double known_count(const ls_tensor *x, int64_t mask, bool *batch)
{
    double known = 1;
    *batch = false;
    for (int i = 0; i < x->shape.rank; i++) {
        if (!(mask >> i & 1))
            continue;
        if (x->shape.dims[i] == LS_BATCH)
            *batch = true;
        else
            known *= (double)x->shape.dims[i];
    }
    return known;
}

ls_tensor *ls_op_reduce_mean(ls_tensor *x, ls_axes axes, bool keepdims)
{
    LS_CLAIM_TENSORS(x);
    LS_OWN_FP_MODE;
    int64_t mask;
    bool batch;
    if (ls_tensor_is_error(x))
        return x;
    ls_status status = axes_mask(x, &axes, &mask);
    if (status == LS_OK && !ls_dtype_is_real(x->dtype))
        status = ls_fail(LS_ERR_DTYPE, "cannot compute the mean of %s values: cast them to a float type first",
                         ls_dtype_name(x->dtype));
    if (status != LS_OK)
        return ls_node_error(x->graph, status, "reduce_mean");
    double known = known_count(x, mask, &batch);
    ls_tensor *sum = ls_op_reduce_sum(x, axes, keepdims);
    if (!batch && known == 1)
        return sum;
    ls_tensor *one_over = ls_scalar_like(x, 1 / known);
    return ls_op_mul(sum, batch ? ls_op_div(one_over, ls_op_count(x->graph, x->dtype)) : one_over);
}

static ls_status along_axis(ls_tensor *node, int64_t *axis)
{
    LS_TRY(ls_rule_axis(&node->in[0]->shape, *axis, axis));
    if (node->in[0]->per_sample && *axis == 0)
        return ls_mixes("working along the batch axis");
    ls_rule_like_first(node);
    return LS_OK;
}

ls_status ls_shape_argmax(ls_tensor *node)
{
    int64_t *axis = &node->attr.axis.axis;
    LS_TRY(along_axis(node, axis));
    if (node->in[0]->dtype == LS_U8 || node->in[0]->dtype == LS_BOOL)
        return ls_fail(LS_ERR_DTYPE, "input 0 is %s; it must be float32, float64, int32 or int64: cast it first",
                       ls_dtype_name(node->in[0]->dtype));
    if (node->shape.dims[*axis] == 0)
        return ls_fail(LS_ERR_SHAPE, "axis %lld is empty, so it has no maximum", (long long)*axis);
    node->dtype = LS_I64;
    for (int i = (int)*axis; i + 1 < node->shape.rank; i++)
        node->shape.dims[i] = node->shape.dims[i + 1];
    node->shape.rank--;
    return LS_OK;
}

ls_tensor *ls_op_argmax(ls_tensor *x, int axis)
{
    LS_CLAIM_TENSORS(x);
    return ls_node_make1(LS_OP_argmax, x, (ls_attrs){ .axis = { .axis = axis } });
}

ls_status ls_shape_top_k(ls_tensor *node)
{
    int64_t axis = -1, k = node->attr.count.count;
    LS_TRY(along_axis(node, &axis));
    if (node->dtype == LS_U8 || node->dtype == LS_BOOL)
        return ls_fail(LS_ERR_DTYPE, "input 0 is %s; it must be float32, float64, int32 or int64: cast it first",
                       ls_dtype_name(node->dtype));
    if (node->shape.dims[axis] == LS_BATCH)
        return ls_fail(LS_ERR_UNSUPPORTED, "the last axis is the batch axis, whose size is not known");
    if (k < 1 || k > node->shape.dims[axis])
        return ls_fail(LS_ERR_SHAPE, "k is %lld; it must be from 1 to %lld, the size of the last axis", (long long)k,
                       (long long)node->shape.dims[axis]);
    node->shape.dims[axis] = k;
    return LS_OK;
}

ls_status ls_shape_top_k_indices(ls_tensor *node)
{
    LS_TRY(ls_shape_top_k(node));
    node->dtype = LS_I64;
    return LS_OK;
}

ls_tensor *ls_op_top_k(ls_tensor *x, int64_t k)
{
    LS_CLAIM_TENSORS(x);
    return ls_node_make1(LS_OP_top_k, x, (ls_attrs){ .count = { .count = k } });
}

ls_tensor *ls_op_top_k_indices(ls_tensor *x, int64_t k)
{
    LS_CLAIM_TENSORS(x);
    return ls_node_make1(LS_OP_top_k_indices, x, (ls_attrs){ .count = { .count = k } });
}

/* Each of the k values is one element: sum over k of one_hot [..,k,D] times dy [..,k,1]. */
void ls_grad_top_k(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *x = y->in[0];
    if (!ls_dtype_is_real(x->dtype))
        return;
    int64_t depth = x->shape.dims[x->shape.rank - 1];
    ls_tensor *places = ls_op_one_hot(ls_op_top_k_indices(x, y->attr.count.count), x->dtype, depth);
    dx[0] = ls_op_reduce_sum(ls_op_mul(places, ls_op_with_last_axis(dy)), LS_AXES(-2), false);
}

ls_status ls_shape_softmax(ls_tensor *node)
{
    LS_TRY(ls_need_real(node, 0));
    return along_axis(node, &node->attr.axis.axis);
}

ls_tensor *ls_op_softmax(ls_tensor *x, int axis)
{
    LS_CLAIM_TENSORS(x);
    return ls_node_make1(LS_OP_softmax, x, (ls_attrs){ .axis = { .axis = axis } });
}

/* y (dy - sum(y dy)) */
void ls_grad_softmax(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *sum = ls_op_reduce_sum(ls_op_mul(y, dy), LS_AXES(y->attr.axis.axis), true);
    dx[0] = ls_op_mul(y, ls_op_sub(dy, sum));
}

ls_tensor *ls_op_log_softmax(ls_tensor *x, int axis)
{
    LS_CLAIM_TENSORS(x);
    return ls_node_make1(LS_OP_log_softmax, x, (ls_attrs){ .axis = { .axis = axis } });
}

/* dy - e^y sum(dy) */
void ls_grad_log_softmax(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *sum = ls_op_reduce_sum(dy, LS_AXES(y->attr.axis.axis), true);
    dx[0] = ls_op_sub(dy, ls_op_mul(ls_op_exp(y), sum));
}
