/* Shapes: counting, comparing, printing. */
#include "graph/shape.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/size.h"

bool ls_shape_count(const ls_shape *shape, int64_t batch, int64_t *count)
{
    int64_t n = 1;
    bool empty = false, fits = true;
    for (int i = 0; i < shape->rank; i++) {
        int64_t size = shape->dims[i] == LS_BATCH ? batch : shape->dims[i];
        if (size < 0)
            return false;
        if (size == 0)
            empty = true;
        else
            fits = fits && ls_i64_mul(n, size, &n);
    }
    if (!fits) /* even if empty: strides would overflow */
        return false;
    *count = empty ? 0 : n;
    return true;
}

ls_shape ls_shape_at(const ls_shape *shape, int64_t batch)
{
    ls_shape at = *shape;
    for (int i = 0; i < at.rank; i++)
        if (at.dims[i] == LS_BATCH)
            at.dims[i] = batch;
    return at;
}

bool ls_shape_equal(const ls_shape *a, const ls_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}

const char *ls_shape_format(const ls_shape *shape, char text[LS_SHAPE_TEXT])
{
    size_t used = (size_t)snprintf(text, LS_SHAPE_TEXT, "(");
    int rank = shape->rank < 0 ? 0 : shape->rank > LS_MAX_RANK ? LS_MAX_RANK : shape->rank;
    for (int i = 0; i < rank; i++) {
        const char *comma = i + 1 < rank ? ", " : rank == 1 ? "," : "";
        if (shape->dims[i] == LS_BATCH)
            used += (size_t)snprintf(text + used, LS_SHAPE_TEXT - used, "batch%s", comma);
        else
            used += (size_t)snprintf(text + used, LS_SHAPE_TEXT - used, "%" PRId64 "%s", shape->dims[i], comma);
    }
    snprintf(text + used, LS_SHAPE_TEXT - used, ")");
    return text;
}

void ls_shape_strides(const ls_shape *shape, int64_t strides[LS_MAX_RANK])
{
    int64_t stride = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= shape->dims[i];
    }
}
