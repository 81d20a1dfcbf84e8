/* Helpers of shape rules (failures, broadcasting, axes), and rules of many rows of ops.def. */
#include "graph/rules.h"

ls_status ls_need_real(const ls_tensor *node, int input)
{
    ls_dtype dtype = node->in[input]->dtype;
    if (ls_dtype_is_real(dtype))
        return LS_OK;
    return ls_fail(LS_ERR_DTYPE, "input %d is %s; it must be float32 or float64: cast it first", input,
                   ls_dtype_name(dtype));
}

ls_status ls_need_same_dtype(const ls_tensor *node)
{
    for (int i = 1; i < node->input_count; i++)
        if (node->in[i]->dtype != node->in[0]->dtype)
            return ls_fail(LS_ERR_DTYPE, "types differ: input 0 is %s, input %d is %s; cast one of them",
                           ls_dtype_name(node->in[0]->dtype), i, ls_dtype_name(node->in[i]->dtype));
    return LS_OK;
}

ls_status ls_need_rank(const ls_tensor *node, int input, int rank)
{
    if (node->in[input]->shape.rank == rank)
        return LS_OK;
    return ls_fail(LS_ERR_SHAPE, "input %d has %d axes; expected %d", input, node->in[input]->shape.rank, rank);
}

ls_status ls_need_whole(const ls_tensor *node, int input, const char *what)
{
    if (!node->in[input]->per_sample)
        return LS_OK;
    return ls_fail(LS_ERR_SHAPE, "%s must be whole, but input %d has a batch axis", what, input);
}

ls_status ls_mixes(const char *how)
{
    return ls_fail(LS_ERR_SHAPE,
                   "this would mix samples: %s; use ls_op_gather_batch first to make the batch one whole tensor", how);
}

void ls_rule_like_first(ls_tensor *node)
{
    const ls_tensor *x = node->in[0];
    node->dtype = x->dtype;
    node->shape = x->shape;
    node->per_sample = x->per_sample;
    node->use = x->per_sample ? LS_USE_KEEPS : LS_USE_WHOLE;
}

/* A whole tensor may also have LS_BATCH sizes, after a gather of the batch. */
static ls_status broadcast_one(ls_tensor *node, const ls_tensor *x)
{
    ls_shape *out = &node->shape;
    int rank = out->rank > x->shape.rank ? out->rank : x->shape.rank;
    ls_shape merged = { .rank = rank };
    for (int i = 0; i < rank; i++) {
        int oi = i - (rank - out->rank), xi = i - (rank - x->shape.rank);
        int64_t a = oi >= 0 ? out->dims[oi] : 1, b = xi >= 0 ? x->shape.dims[xi] : 1;
        if (a != b && a != 1 && b != 1) {
            char ta[LS_SHAPE_TEXT], tb[LS_SHAPE_TEXT];
            return ls_fail(LS_ERR_SHAPE, "shapes %s and %s do not broadcast", ls_shape_format(out, ta),
                           ls_shape_format(&x->shape, tb));
        }
        merged.dims[i] = a == 1 ? b : a;
    }
    bool out_batch = node->per_sample, x_batch = x->per_sample;
    if ((out_batch && out->rank < rank) || (x_batch && x->shape.rank < rank))
        return ls_mixes("broadcasting would move the batch axis away from axis 0 (reshape to the same number of axes)");
    bool out_whole_batch = !out_batch && out->rank == rank && rank > 0 && out->dims[0] == LS_BATCH;
    bool x_whole_batch = !x_batch && x->shape.rank == rank && rank > 0 && x->shape.dims[0] == LS_BATCH;
    if ((out_batch && x_whole_batch) || (x_batch && out_whole_batch))
        return ls_mixes(
            "a gathered batch is combined with single samples (ls_op_scatter_batch gives each sample its row)");
    node->per_sample = out_batch || x_batch;
    *out = merged;
    return LS_OK;
}

ls_status ls_rule_broadcast(ls_tensor *node, int first_input, int count)
{
    node->shape = node->in[first_input]->shape;
    node->per_sample = node->in[first_input]->per_sample;
    for (int i = first_input + 1; i < first_input + count; i++)
        LS_TRY(broadcast_one(node, node->in[i]));
    node->use = node->per_sample ? LS_USE_KEEPS : LS_USE_WHOLE;
    return LS_OK;
}

ls_status ls_rule_axis(const ls_shape *shape, int64_t axis, int64_t *out)
{
    int64_t plain = axis < 0 ? axis + shape->rank : axis;
    if (plain < 0 || plain >= shape->rank)
        return ls_fail(LS_ERR_SHAPE, "there is no axis %lld in %d axes", (long long)axis, shape->rank);
    *out = plain;
    return LS_OK;
}

ls_tensor *ls_scalar_like(ls_tensor *x, double value)
{
    return ls_op_scalar(x->graph, x->dtype, value);
}

ls_axes ls_axes_of_mask(int64_t mask)
{
    ls_axes axes = { .count = 0 };
    for (int i = 0; i < LS_MAX_RANK; i++)
        if (mask >> i & 1)
            axes.axis[axes.count++] = i;
    return axes;
}

ls_status ls_shape_same(ls_tensor *node)
{
    ls_rule_like_first(node);
    return LS_OK;
}

/* autodiff.c compares a rule's address with these. */
void ls_grad_zero(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    (void)y, (void)dy, (void)dx;
}

void ls_grad_missing(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    (void)y, (void)dy, (void)dx;
}

static double elements(const ls_tensor *node)
{
    int64_t count;
    return ls_shape_count(&node->shape, 1, &count) ? (double)count : 0;
}

double ls_flops_none(const ls_tensor *node)
{
    (void)node;
    return 0;
}

double ls_flops_each(const ls_tensor *node)
{
    double most = elements(node);
    for (int i = 0; i < node->input_count; i++)
        most = elements(node->in[i]) > most ? elements(node->in[i]) : most;
    return most;
}

double ls_flops_softmax(const ls_tensor *node)
{
    return 5 * elements(node->in[0]);
}

/* A softmax, and about 30 operations for a state of a frame. */
double ls_flops_ctc(const ls_tensor *node)
{
    const ls_shape *logits = &node->in[0]->shape, *labels = &node->in[1]->shape;
    double states = 2 * (double)labels->dims[1] + 1;
    return elements(node->in[0]) * (5 + 30 * states / (double)logits->dims[2]);
}

double ls_flops_norm(const ls_tensor *node)
{
    return 4 * elements(node->in[0]);
}

double ls_flops_update(const ls_tensor *node)
{
    return 8 * elements(node);
}
