/* Softmax and ops based on it: subtract the largest element, sums and exponentials in double, round
 * once. */
#include "backend/ref/array.h"
#include "backend/ref/functions.h"
#include "backend/ref/interleaved.h"
#include "backend/ref/real.h"

/* n elements, `step` apart: the largest, and the sum of exp(x - largest). */
typedef struct row_sum {
    double largest, sum;
} row_sum;

static row_sum sum_row(const real *x, int64_t n, int64_t step)
{
    row_sum row = { -INFINITY, 0 };
    ls_ref_interleaved sums = { { 0 } };
    for (int64_t i = 0; i < n; i++)
        row.largest = x[i * step] > row.largest ? x[i * step] : row.largest;
    for (int64_t i = 0; i < n; i++) /* NaN, which comparisons ignore, shows up here */
        sums.part[i % LS_REF_PARTS] += wide_exp(x[i * step] - row.largest);
    row.sum = ls_ref_interleaved_total(&sums);
    return row;
}

static ls_status along_axis(const ls_ref_call *call, bool logarithm)
{
    const ls_shape *shape = &call->out.shape; /* [outer, n, inner] */
    int axis = (int)call->node->attr.axis.axis;
    int64_t outer = ls_ref_extent(shape, 0, axis), n = shape->dims[axis];
    int64_t inner = ls_ref_extent(shape, axis + 1, shape->rank);
    for (int64_t r = 0; r < outer * inner; r++) {
        int64_t start = r / inner * n * inner + r % inner;
        const real *x = (const real *)call->in[0].data + start;
        real *y = (real *)call->out.data + start;
        row_sum row = sum_row(x, n, inner);
        double log_sum = logarithm ? wide_log(row.sum) : 0;
        for (int64_t i = 0; i < n * inner; i += inner) {
            double shifted = x[i] - row.largest;
            y[i] = (real)(logarithm ? shifted - log_sum : wide_exp(shifted) / row.sum);
        }
    }
    return LS_OK;
}

ls_status LS_REF(softmax)(const ls_ref_call *call)
{
    return along_axis(call, false);
}

ls_status LS_REF(log_softmax)(const ls_ref_call *call)
{
    return along_axis(call, true);
}

/* ---- Cross-entropy of logits with a class number ---- */

/* Fails unless label i of in[1] is within 0 .. classes-1. */
static ls_status label_within(const ls_ref_call *call, int64_t i, int64_t classes, int64_t *out)
{
    const ls_ref_array *labels = &call->in[1];
    int64_t label = ls_ref_index(labels, i);
    if (label < 0 || label >= classes) {
        int64_t each = ls_ref_extent(&labels->shape, 1, labels->shape.rank);
        return ls_fail(LS_ERR_DATA, "label %lld of sample %lld is outside 0..%lld", (long long)label,
                       (long long)(call->first + i / each), (long long)classes - 1);
    }
    *out = label;
    return LS_OK;
}

/* in: logits [..., C], labels [...]; out [...]: log(sum(exp(logits))) - logits[label] */
ls_status LS_REF(sparse_cross_entropy)(const ls_ref_call *call)
{
    int64_t classes = call->in[0].shape.dims[call->in[0].shape.rank - 1], rows = ls_ref_elements(&call->out);
    const real *x = call->in[0].data;
    real *out = call->out.data;
    for (int64_t i = 0; i < rows; i++, x += classes) {
        int64_t label;
        LS_TRY(label_within(call, i, classes, &label));
        row_sum row = sum_row(x, classes, 1);
        out[i] = (real)(wide_log(row.sum) - (x[label] - row.largest));
    }
    return LS_OK;
}

/* in: logits [..., C], labels [...], dy [...]; out [..., C]: (softmax - one_hot) * dy */
ls_status LS_REF(sparse_cross_entropy_grad)(const ls_ref_call *call)
{
    int64_t classes = call->in[0].shape.dims[call->in[0].shape.rank - 1], rows = ls_ref_elements(&call->in[1]);
    const real *x = call->in[0].data, *dy = call->in[2].data;
    real *out = call->out.data;
    for (int64_t i = 0; i < rows; i++, x += classes, out += classes) {
        int64_t label;
        LS_TRY(label_within(call, i, classes, &label));
        row_sum row = sum_row(x, classes, 1);
        for (int64_t c = 0; c < classes; c++)
            out[c] = (real)((wide_exp(x[c] - row.largest) / row.sum - (c == label)) * dy[i]);
    }
    return LS_OK;
}
