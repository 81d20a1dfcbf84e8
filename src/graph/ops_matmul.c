/* Matrix products of the last two axes. Weight gradients contract the batch axis, a batch
 * reduction. */
#include "graph/claim.h"
#include "graph/rules.h"

/* Last two axes after the transpose. */
typedef struct operand {
    int64_t rows, columns;
    /* A per-sample matrix of rank 2: its axis 0 is the batch. */
    bool rows_are_batch, columns_are_batch;
} operand;

static operand read_operand(const ls_tensor *x, bool transpose)
{
    int rank = x->shape.rank;
    int64_t rows = x->shape.dims[rank - 2], columns = x->shape.dims[rank - 1];
    bool batch_matrix = x->per_sample && rank == 2;
    operand result = { transpose ? columns : rows, transpose ? rows : columns, batch_matrix && !transpose,
                       batch_matrix && transpose };
    return result;
}

/* Broadcasts with the rules of the batch axis. */
static ls_status leading_axes(ls_tensor *node, ls_shape *leading, bool *per_sample)
{
    ls_tensor parts[2] = { *node->in[0], *node->in[1] };
    ls_tensor *in[2] = { &parts[0], &parts[1] };
    for (int i = 0; i < 2; i++) {
        parts[i].shape.rank -= 2;
        if (parts[i].shape.rank == 0)
            parts[i].per_sample = false;
    }
    ls_tensor merged = { .in = in, .input_count = 2 };
    LS_TRY(ls_rule_broadcast(&merged, 0, 2));
    *leading = merged.shape;
    *per_sample = merged.per_sample;
    return LS_OK;
}

ls_status ls_shape_matmul(ls_tensor *node)
{
    LS_TRY(ls_need_real(node, 0));
    LS_TRY(ls_need_same_dtype(node));
    for (int i = 0; i < 2; i++)
        if (node->in[i]->shape.rank < 2)
            return ls_fail(LS_ERR_SHAPE, "input %d has %d axes; it must have at least 2", i, node->in[i]->shape.rank);
    operand a = read_operand(node->in[0], node->attr.matmul.transpose_a);
    operand b = read_operand(node->in[1], node->attr.matmul.transpose_b);
    if (a.columns != b.rows)
        return ls_fail(LS_ERR_SHAPE, "the inner sizes differ: %lld and %lld", (long long)a.columns, (long long)b.rows);
    if (a.columns_are_batch != b.rows_are_batch)
        return ls_mixes("a batch axis is contracted with an axis that is not one");
    if (b.columns_are_batch)
        return ls_mixes("the batch axis would become the last axis");
    ls_shape leading;
    bool leading_batch, sum = node->attr.matmul.sum_leading;
    LS_TRY(leading_axes(node, &leading, &leading_batch));
    if ((a.rows_are_batch || a.columns_are_batch) && leading.rank > 0)
        return ls_mixes("the batch axis would come after leading axes");
    if (sum)
        leading.rank = 0;
    if (leading.rank + 2 > LS_MAX_RANK)
        return ls_fail(LS_ERR_SHAPE, "the result would have %d axes; the maximum is %d", leading.rank + 2, LS_MAX_RANK);
    node->dtype = node->in[0]->dtype;
    node->shape = leading;
    node->shape.dims[node->shape.rank++] = a.rows;
    node->shape.dims[node->shape.rank++] = b.columns;
    bool reduces = a.columns_are_batch || (sum && leading_batch);
    node->per_sample = a.rows_are_batch || (leading_batch && !sum);
    node->use = reduces ? LS_USE_REDUCES : node->per_sample ? LS_USE_KEEPS : LS_USE_WHOLE;
    return LS_OK;
}

static ls_tensor *matmul(ls_tensor *a, ls_tensor *b, bool transpose_a, bool transpose_b, bool sum_leading)
{
    ls_attrs attr = { .matmul = {
                          .transpose_a = transpose_a, .transpose_b = transpose_b, .sum_leading = sum_leading } };
    return ls_node_make2(LS_OP_matmul, a, b, attr);
}

ls_tensor *ls_op_matmul_with(ls_tensor *a, ls_matmul_op options)
{
    LS_CLAIM_TENSORS(a);
    return matmul(a, options.b, options.transpose_a, options.transpose_b, false);
}

/* dA = dy B^T, dB = A^T dy, transposed back. The gradient of an operand of rank 2 is summed over
 * the other's leading axes. */
void ls_grad_matmul(ls_tensor *y, ls_tensor *dy, ls_tensor **dx)
{
    ls_tensor *a = y->in[0], *b = y->in[1];
    bool ta = y->attr.matmul.transpose_a, tb = y->attr.matmul.transpose_b;
    bool sum_a = a->shape.rank == 2 && b->shape.rank > 2, sum_b = b->shape.rank == 2 && a->shape.rank > 2;
    dx[0] = ta ? matmul(b, dy, tb, true, sum_a) : matmul(dy, b, false, !tb, sum_a);
    dx[1] = tb ? matmul(dy, a, true, ta, sum_b) : matmul(a, dy, !ta, false, sum_b);
}

static double size_or_one(int64_t size)
{
    return size == LS_BATCH ? 1 : (double)size;
}

/* Counted from the last leading axis; 1 if there is none. */
static double leading_size(const ls_tensor *x, int i)
{
    int at = x->shape.rank - 3 - i;
    return at < 0 ? 1 : size_or_one(x->shape.dims[at]);
}

double ls_flops_matmul(const ls_tensor *node)
{
    const ls_tensor *a = node->in[0], *b = node->in[1];
    operand left = read_operand(a, node->attr.matmul.transpose_a),
            right = read_operand(b, node->attr.matmul.transpose_b);
    double flops = 2 * size_or_one(left.rows) * size_or_one(left.columns) * size_or_one(right.columns);
    for (int i = 0; i < LS_MAX_RANK; i++) { /* either operand may lack axes */
        double in_a = leading_size(a, i), in_b = leading_size(b, i);
        flops *= in_a == 1 ? in_b : in_a;
    }
    return flops;
}
