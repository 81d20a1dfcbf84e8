/* Shapes: counting, comparing, printing. Sizes may be LS_BATCH; it equals only itself until a run gives it a value. */
#ifndef LS_GRAPH_SHAPE_H
#define LS_GRAPH_SHAPE_H

#include "lockstep/graph.h"

#define LS_SHAPE_TEXT 192 /* room for any shape as text */

/* Elements when the batch has `batch` samples; false when that overflows or a size is negative. */
bool ls_shape_count(const ls_shape *shape, int64_t batch, int64_t *count);

/* The shape with LS_BATCH replaced by `batch`. */
ls_shape ls_shape_at(const ls_shape *shape, int64_t batch);

bool ls_shape_equal(const ls_shape *a, const ls_shape *b);

/* "(batch, 28, 28, 1)"; returns `text`. */
const char *ls_shape_format(const ls_shape *shape, char text[LS_SHAPE_TEXT]);

/* Row-major strides in elements. */
void ls_shape_strides(const ls_shape *shape, int64_t strides[LS_MAX_RANK]);

#endif
