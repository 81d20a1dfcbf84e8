/* Walks, fills and stores that the kernels share. */
#include "backend/ref/array.h"

#include <math.h>
#include <string.h>

int64_t ls_ref_extent(const ls_shape *shape, int first, int end)
{
    int64_t n = 1;
    for (int i = first; i < end; i++)
        n *= shape->dims[i];
    return n;
}

void ls_ref_samples(const ls_ref_call *call, int64_t *samples, int64_t *each)
{
    const ls_shape *shape = &call->out.shape;
    bool split = call->node->per_sample && shape->rank > 0;
    *samples = split ? shape->dims[0] : 1;
    *each = ls_ref_extent(shape, split ? 1 : 0, shape->rank);
}

void ls_ref_walk_begin(ls_ref_walk *walk, const ls_shape *shape)
{
    memset(walk, 0, sizeof *walk);
    walk->rank = shape->rank;
    memcpy(walk->size, shape->dims, sizeof walk->size);
    walk->row = -1;
}

void ls_ref_walk_add(ls_ref_walk *walk, int64_t start, const int64_t strides[LS_MAX_RANK])
{
    int k = walk->operands++;
    walk->start[k] = start;
    for (int i = 0; i < walk->rank; i++)
        walk->stride[k][i] = strides[i];
}

void ls_ref_walk_restart(ls_ref_walk *walk)
{
    walk->row = -1;
}

/* One step along `outer` equals a whole pass along `inner` in every operand. */
static bool side_by_side(const ls_ref_walk *walk, int outer, int inner)
{
    for (int k = 0; k < walk->operands; k++)
        if (walk->stride[k][outer] != walk->stride[k][inner] * walk->size[inner])
            return false;
    return true;
}

/* Drops axes of size 1 and merges adjacent axes. */
static void merge_axes(ls_ref_walk *walk)
{
    int kept = 0;
    for (int i = 0; i < walk->rank; i++) {
        if (walk->size[i] == 1)
            continue;
        bool merge = kept > 0 && side_by_side(walk, kept - 1, i);
        int to = merge ? kept - 1 : kept++;
        walk->size[to] = merge ? walk->size[to] * walk->size[i] : walk->size[i];
        for (int k = 0; k < walk->operands; k++)
            walk->stride[k][to] = walk->stride[k][i];
    }
    walk->rank = kept;
}

static void first_row(ls_ref_walk *walk)
{
    merge_axes(walk);
    int inner = walk->rank - 1;
    walk->length = inner >= 0 ? walk->size[inner] : 1;
    walk->rows = walk->length > 0;
    for (int i = 0; i < inner; i++)
        walk->rows *= walk->size[i];
    for (int k = 0; k < walk->operands; k++) {
        walk->offset[k] = walk->start[k];
        walk->step[k] = inner >= 0 ? walk->stride[k][inner] : 0;
    }
    memset(walk->at, 0, sizeof walk->at);
}

static void next_row(ls_ref_walk *walk)
{
    for (int i = walk->rank - 2; i >= 0; i--) {
        bool carry = ++walk->at[i] == walk->size[i];
        for (int k = 0; k < walk->operands; k++)
            walk->offset[k] += walk->stride[k][i] * (carry ? 1 - walk->size[i] : 1);
        if (!carry)
            return;
        walk->at[i] = 0;
    }
}

bool ls_ref_walk_row(ls_ref_walk *walk)
{
    if (walk->row < 0)
        first_row(walk);
    else
        next_row(walk);
    return ++walk->row < walk->rows;
}

void ls_ref_broadcast_strides(const ls_shape *shape, const ls_shape *over, int64_t strides[LS_MAX_RANK])
{
    int64_t stride = 1;
    for (int i = over->rank - 1, j = shape->rank - 1; i >= 0; i--, j--) {
        bool repeats = j < 0 || shape->dims[j] == 1;
        strides[i] = repeats ? 0 : stride;
        stride *= j < 0 ? 1 : shape->dims[j];
    }
}

void ls_ref_walk_broadcast(ls_ref_walk *walk, const ls_shape *over, const ls_ref_array *arrays, int count)
{
    ls_ref_walk_begin(walk, over);
    for (int k = 0; k < count; k++) {
        int64_t strides[LS_MAX_RANK];
        ls_ref_broadcast_strides(&arrays[k].shape, over, strides);
        ls_ref_walk_add(walk, 0, strides);
    }
}

int64_t ls_ref_to_integer(double value, int64_t low, int64_t high)
{
    if (value != value)
        return 0;
    if (value >= 0x1p63)
        return high;
    if (value < -0x1p63)
        return low;
    int64_t whole = (int64_t)value;
    return whole < low ? low : whole > high ? high : whole;
}

void ls_ref_store(void *to, ls_dtype dtype, double value)
{
    switch (dtype) {
    case LS_F32:
        *(float *)to = (float)value;
        return;
    case LS_F64:
        *(double *)to = value;
        return;
    case LS_I32:
        *(int32_t *)to = (int32_t)ls_ref_to_integer(value, INT32_MIN, INT32_MAX);
        return;
    case LS_I64:
        *(int64_t *)to = ls_ref_to_integer(value, INT64_MIN, INT64_MAX);
        return;
    case LS_U8:
        *(uint8_t *)to = (uint8_t)ls_ref_to_integer(value, 0, UINT8_MAX);
        return;
    case LS_BOOL:
        *(uint8_t *)to = value != 0;
        return;
    case LS_DTYPE_COUNT:
        return;
    }
}

void ls_ref_set(const ls_ref_array *array, double value)
{
    size_t bytes = ls_dtype_bytes(array->dtype);
    char *to = array->data;
    if (value == 0 && !signbit(value)) {
        ls_ref_clear(array);
        return;
    }
    for (int64_t i = 0, n = ls_ref_elements(array); i < n; i++)
        ls_ref_store(to + (size_t)i * bytes, array->dtype, value);
}

void ls_ref_clear(const ls_ref_array *array)
{
    size_t bytes = (size_t)ls_ref_elements(array) * ls_dtype_bytes(array->dtype);
    if (bytes > 0)
        memset(array->data, 0, bytes);
}

ls_status ls_ref_copy(const ls_ref_call *call, int64_t start)
{
    size_t width = ls_dtype_bytes(call->out.dtype);
    size_t bytes = (size_t)ls_ref_elements(&call->out) * width;
    if (bytes > 0)
        memcpy(call->out.data, (const char *)call->in[0].data + (size_t)start * width, bytes);
    return LS_OK;
}

int64_t ls_ref_index(const ls_ref_array *array, int64_t i)
{
    switch (array->dtype) {
    case LS_I32:
        return ((const int32_t *)array->data)[i];
    case LS_I64:
        return ((const int64_t *)array->data)[i];
    default:
        return ((const uint8_t *)array->data)[i];
    }
}

ls_status ls_ref_index_within(const ls_ref_call *call, int input, int64_t i, int64_t size, int64_t *out)
{
    const ls_ref_array *indices = &call->in[input];
    int64_t index = ls_ref_index(indices, i);
    if (index < 0 || index >= size) {
        int64_t before = call->node->in[input]->per_sample ? ls_ref_extent(&indices->shape, 1, indices->shape.rank) : 0;
        return ls_fail(LS_ERR_DATA, "index %lld at position %lld is outside 0..%lld", (long long)index,
                       (long long)(i + call->first * before), (long long)size - 1);
    }
    *out = index;
    return LS_OK;
}
