/* The gradient of gather. */
#include "backend/ref/array.h"
#include "backend/ref/real.h"

/* in: dy [outer, n, inner], indices [n]; out [outer, size, inner]. Rows with the same index are
 * added in order, after the lane's earlier samples. */
ls_status LS_REF(gather_grad)(const ls_ref_call *call)
{
    const ls_shape *shape = &call->out.shape;
    int axis = (int)call->node->attr.axis_size.axis;
    int64_t outer = ls_ref_extent(shape, 0, axis), size = shape->dims[axis], n = ls_ref_elements(&call->in[1]);
    int64_t inner = ls_ref_extent(shape, axis + 1, shape->rank);
    const real *dy = call->in[0].data;
    real *out = call->out.data;
    if (call->node->use != LS_USE_REDUCES || call->from_lane == 0)
        ls_ref_clear(&call->out);
    int64_t index;
    for (int64_t i = 0; i < n; i++)
        LS_TRY(ls_ref_index_within(call, 1, i, size, &index));
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < n; i++) {
            const real *from = dy + (o * n + i) * inner;
            real *to = out + (o * size + ls_ref_index(&call->in[1], i)) * inner;
            for (int64_t j = 0; j < inner; j++)
                to[j] += from[j];
        }
    return LS_OK;
}
