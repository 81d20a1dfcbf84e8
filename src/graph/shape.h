/* Shapes: counting, comparing, printing. LS_BATCH equals only itself until a run sets the batch
 * size. */
#ifndef LS_GRAPH_SHAPE_H
#define LS_GRAPH_SHAPE_H

#include "lockstep/graph.h"

#define LS_SHAPE_TEXT 192 /* enough for any shape */

/* Counts the elements; LS_BATCH counts as `batch`. Returns false on overflow or a negative size. */
bool ls_shape_count(const ls_shape *shape, int64_t batch, int64_t *count);

/* Replaces LS_BATCH by `batch`. */
ls_shape ls_shape_at(const ls_shape *shape, int64_t batch);

bool ls_shape_equal(const ls_shape *a, const ls_shape *b);

/* Formats "(batch, 28, 28, 1)"; returns `text`. */
const char *ls_shape_format(const ls_shape *shape, char text[LS_SHAPE_TEXT]);

/* Computes row-major strides, in elements. */
void ls_shape_strides(const ls_shape *shape, int64_t strides[LS_MAX_RANK]);

#endif
