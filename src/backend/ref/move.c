/* Ops that only move elements, by their width. */
#include <string.h>

#include "backend/ref/array.h"

/* Steps are in elements. Constant widths let the compiler emit plain moves. */
static void copy_row(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, size_t width)
{
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, (size_t)n * width);
        return;
    }
    to_step *= (int64_t)width;
    from_step *= (int64_t)width;
    switch (width) {
    case 1:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step, from + i * from_step, 1);
        return;
    case 4:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step, from + i * from_step, 4);
        return;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step, from + i * from_step, 8);
    }
}

/* Operand 0 of the walk is the output, operand 1 the input. */
static ls_status copy_walk(const ls_ref_call *call, ls_ref_walk *walk)
{
    size_t width = ls_dtype_bytes(call->out.dtype);
    char *out = call->out.data;
    const char *in = call->in[0].data;
    while (ls_ref_walk_row(walk))
        copy_row(out + walk->offset[0] * (int64_t)width, walk->step[0], in + walk->offset[1] * (int64_t)width,
                 walk->step[1], walk->length, width);
    return LS_OK;
}

ls_status ls_ref_reshape(const ls_ref_call *call)
{
    return ls_ref_copy(call, 0);
}

/* Element (i, j, ...) of the output is the input's at start + i strides[0] + j strides[1] + ... */
static ls_status copy_view(const ls_ref_call *call, int64_t start, const int64_t strides[LS_MAX_RANK])
{
    int64_t dense[LS_MAX_RANK];
    ls_ref_walk walk;
    ls_shape_strides(&call->out.shape, dense);
    ls_ref_walk_begin(&walk, &call->out.shape);
    ls_ref_walk_add(&walk, 0, dense);
    ls_ref_walk_add(&walk, start, strides);
    return copy_walk(call, &walk);
}

ls_status ls_ref_transpose(const ls_ref_call *call)
{
    int64_t dense[LS_MAX_RANK], strides[LS_MAX_RANK];
    ls_shape_strides(&call->in[0].shape, dense);
    for (int i = 0; i < call->out.shape.rank; i++)
        strides[i] = dense[call->node->attr.permutation.of[i]];
    return copy_view(call, 0, strides);
}

ls_status ls_ref_broadcast(const ls_ref_call *call)
{
    int64_t strides[LS_MAX_RANK];
    ls_ref_broadcast_strides(&call->in[0].shape, &call->out.shape, strides);
    return copy_view(call, 0, strides);
}

ls_status ls_ref_slice(const ls_ref_call *call)
{
    int64_t strides[LS_MAX_RANK], start = 0;
    ls_shape_strides(&call->in[0].shape, strides);
    for (int i = 0; i < call->out.shape.rank; i++) {
        start += call->node->attr.slice.begin[i] * strides[i];
        strides[i] *= call->node->attr.slice.step[i];
    }
    return copy_view(call, start, strides);
}

/* Element (i, j, ...) of the input goes to start + i strides[0] + j strides[1] + ... of the
 * output. */
static ls_status copy_into(const ls_ref_call *call, int64_t start, const int64_t strides[LS_MAX_RANK])
{
    int64_t dense[LS_MAX_RANK];
    ls_ref_walk walk;
    ls_shape_strides(&call->in[0].shape, dense);
    ls_ref_walk_begin(&walk, &call->in[0].shape);
    ls_ref_walk_add(&walk, start, strides);
    ls_ref_walk_add(&walk, 0, dense);
    return copy_walk(call, &walk);
}

ls_status ls_ref_slice_grad(const ls_ref_call *call)
{
    int64_t strides[LS_MAX_RANK], start = 0;
    ls_shape_strides(&call->out.shape, strides);
    for (int i = 0; i < call->out.shape.rank; i++) {
        start += call->node->attr.slice.begin[i] * strides[i];
        strides[i] *= call->node->attr.slice.step[i];
    }
    ls_ref_clear(&call->out);
    return copy_into(call, start, strides);
}

ls_status ls_ref_pad(const ls_ref_call *call)
{
    int64_t strides[LS_MAX_RANK], start = 0;
    ls_shape_strides(&call->out.shape, strides);
    for (int i = 0; i < call->out.shape.rank; i++)
        start += call->node->attr.pad.before[i] * strides[i];
    ls_ref_set(&call->out, call->node->attr.pad.value);
    return copy_into(call, start, strides);
}

ls_status ls_ref_concat(const ls_ref_call *call)
{
    const ls_shape *shape = &call->out.shape; /* [outer, axis, inner] */
    int axis = (int)call->node->attr.axis.axis;
    int64_t outer = ls_ref_extent(shape, 0, axis);
    size_t inner = (size_t)ls_ref_extent(shape, axis + 1, shape->rank) * ls_dtype_bytes(call->out.dtype);
    size_t pitch = (size_t)shape->dims[axis] * inner;
    char *out = call->out.data;
    for (int k = 0; k < call->node->input_count; k++) {
        size_t part = (size_t)call->in[k].shape.dims[axis] * inner;
        const char *in = call->in[k].data;
        for (int64_t i = 0; i < outer && part > 0; i++)
            memcpy(out + (size_t)i * pitch, in + (size_t)i * part, part);
        out += part;
    }
    return LS_OK;
}

/* in: x [outer, size, inner], indices [n]; out [outer, n, inner] */
ls_status ls_ref_gather(const ls_ref_call *call)
{
    const ls_shape *shape = &call->in[0].shape;
    int axis = (int)call->node->attr.axis.axis;
    int64_t outer = ls_ref_extent(shape, 0, axis), size = shape->dims[axis], n = ls_ref_elements(&call->in[1]);
    size_t inner = (size_t)ls_ref_extent(shape, axis + 1, shape->rank) * ls_dtype_bytes(call->out.dtype);
    const char *in = call->in[0].data;
    char *out = call->out.data;
    int64_t index;
    for (int64_t i = 0; i < n; i++)
        LS_TRY(ls_ref_index_within(call, 1, i, size, &index));
    for (int64_t o = 0; o < outer && inner > 0; o++)
        for (int64_t i = 0; i < n; i++) {
            index = ls_ref_index(&call->in[1], i);
            memcpy(out + (size_t)(o * n + i) * inner, in + (size_t)(o * size + index) * inner, inner);
        }
    return LS_OK;
}

/* in: indices [...]; out [..., depth]. An index out of range gives zeros. */
ls_status ls_ref_one_hot(const ls_ref_call *call)
{
    int64_t depth = call->out.shape.dims[call->out.shape.rank - 1];
    size_t width = ls_dtype_bytes(call->out.dtype);
    char *out = call->out.data;
    ls_ref_clear(&call->out);
    for (int64_t i = 0, n = ls_ref_elements(&call->in[0]); i < n; i++) {
        int64_t index = ls_ref_index(&call->in[0], i);
        if (index >= 0 && index < depth)
            ls_ref_store(out + (size_t)(i * depth + index) * width, call->out.dtype, 1);
    }
    return LS_OK;
}

/* in: condition, a, b, broadcast to the output */
ls_status ls_ref_select(const ls_ref_call *call)
{
    int64_t width = (int64_t)ls_dtype_bytes(call->out.dtype);
    char *out = call->out.data;
    ls_ref_walk walk;
    ls_ref_walk_broadcast(&walk, &call->out.shape, call->in, 3);
    while (ls_ref_walk_row(&walk)) {
        const uint8_t *condition = (const uint8_t *)call->in[0].data + walk.offset[0];
        const char *a = (const char *)call->in[1].data + walk.offset[1] * width;
        const char *b = (const char *)call->in[2].data + walk.offset[2] * width;
        for (int64_t i = 0; i < walk.length; i++, out += width) {
            bool first = condition[i * walk.step[0]] != 0;
            memcpy(out, first ? a + i * walk.step[1] * width : b + i * walk.step[2] * width, (size_t)width);
        }
    }
    return LS_OK;
}
