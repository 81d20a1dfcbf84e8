/* Helpers for kernels: counting elements, walking several arrays at once, storing numbers. */
#ifndef LS_BACKEND_REF_ARRAY_H
#define LS_BACKEND_REF_ARRAY_H

#include "backend/ref/ref.h"

/* Product of sizes first to end-1. */
int64_t ls_ref_extent(const ls_shape *shape, int first, int end);

static inline int64_t ls_ref_elements(const ls_ref_array *array)
{
    return ls_ref_extent(&array->shape, 0, array->shape.rank);
}

static inline int64_t ls_ref_at_most(int64_t n, int64_t limit)
{
    return n < limit ? n : limit;
}

/* Samples of the slice and elements of each; a whole output is one sample. */
void ls_ref_samples(const ls_ref_call *call, int64_t *samples, int64_t *each);

/* A walk over a shape, row by row. A row is the innermost axis, after merging axes that are
 * adjacent in every operand. An operand is an array mapped to the shape by strides; 0 where it
 * repeats.
 *
 *     ls_ref_walk_begin(&walk, &shape);
 *     ls_ref_walk_add(&walk, 0, strides);
 *     while (ls_ref_walk_row(&walk))
 *         for (int64_t i = 0; i < walk.length; i++)
 *             ... x[walk.offset[0] + i * walk.step[0]] ...
 *
 * This is element walk.row * walk.length + i of the shape. */
#define LS_REF_OPERANDS 3
typedef struct ls_ref_walk {
    int64_t length;                  /* elements per row */
    int64_t row;                     /* index of the current row */
    int64_t offset[LS_REF_OPERANDS]; /* index of the row's first element */
    int64_t step[LS_REF_OPERANDS];   /* distance between elements of a row */
    /* private */
    int rank, operands;
    int64_t rows;
    int64_t size[LS_MAX_RANK], at[LS_MAX_RANK];
    int64_t start[LS_REF_OPERANDS], stride[LS_REF_OPERANDS][LS_MAX_RANK];
} ls_ref_walk;

void ls_ref_walk_begin(ls_ref_walk *walk, const ls_shape *shape);
void ls_ref_walk_add(ls_ref_walk *walk, int64_t start, const int64_t strides[LS_MAX_RANK]);
void ls_ref_walk_restart(ls_ref_walk *walk);
/* Returns false after the last row. */
bool ls_ref_walk_row(ls_ref_walk *walk);

/* As in NumPy. */
void ls_ref_broadcast_strides(const ls_shape *shape, const ls_shape *over, int64_t strides[LS_MAX_RANK]);

void ls_ref_walk_broadcast(ls_ref_walk *walk, const ls_shape *over, const ls_ref_array *arrays, int count);

/* Truncates toward zero and clamps to low..high; NaN gives 0. */
int64_t ls_ref_to_integer(double value, int64_t low, int64_t high);

/* Integers by ls_ref_to_integer, bool as value != 0. */
void ls_ref_store(void *to, ls_dtype dtype, double value);
void ls_ref_set(const ls_ref_array *array, double value);
void ls_ref_clear(const ls_ref_array *array);

/* Consecutive elements of input 0, from element `start` on. */
ls_status ls_ref_copy(const ls_ref_call *call, int64_t start);

/* The array must be i32, i64 or u8. */
int64_t ls_ref_index(const ls_ref_array *array, int64_t i);

/* Fails unless the index is within 0..size-1, with a message that names both. input: which input of
 * the node holds the indices. */
ls_status ls_ref_index_within(const ls_ref_call *call, int input, int64_t i, int64_t size, int64_t *out);

#endif
