/* Walks over shapes, and blocks of positions (backend/blocks.h), for kernels of every family. */

/* Returns the offset of element i of the walk in array k. A walk has fewer than 2^31 elements per
 * sample, but may have many samples: only the first axis is divided in 64 bits. */
FUNCTION i64 walk_at(GLOBAL const ls_gpu_walk *walk, int k, i64 i)
{
    i64 at = walk->start[k];
    for (int axis = (int)walk->rank - 1; axis > 0; axis--) {
        i64 size = walk->size[axis], outer = (i | size) >> 31 ? i / size : (i64)((u32)i / (u32)size);
        at += (i - outer * size) * walk->stride[k][axis];
        i = outer;
    }
    return at + i * walk->stride[k][0];
}

/* The same without a division, for walks of at most two axes (magic is not 0). */
FUNCTION i64 rows_at(GLOBAL const ls_gpu_walk *walk, int k, i64 i)
{
    i64 outer = (i64)((u64)i * (u64)walk->magic >> walk->shift);
    return walk->start[k] + outer * walk->stride[k][0] + (i - outer * walk->size[1]) * walk->stride[k][1];
}

/* Sets the positions first .. end-1 of block `number` of a lane. */
FUNCTION void block_bounds(GLOBAL const ls_gpu_blocks *b, i64 number, i64 *first, i64 *end)
{
    if (b->samples > 0) {
        *first = number * b->samples * b->sample;
        *end = least(*first + b->samples * b->sample, b->positions);
        return;
    }
    i64 sample = number / b->per_sample, inside = number % b->per_sample;
    if (b->rows > 0) {
        i64 length = b->rows * b->width;
        *first = sample * b->sample + inside * length;
        *end = sample * b->sample + least(b->sample, (inside + 1) * length);
        return;
    }
    i64 row = inside / b->per_row, piece = inside % b->per_row, start = sample * b->sample + row * b->width;
    *first = start + piece * b->columns;
    *end = start + least(b->width, (piece + 1) * b->columns);
}

/* Consecutive elements of n that an item computes: several, to share the cost of its setup. */
#define EACH_OF_SOME(i, n)                                                                                             \
    for (i64 i = ITEM(0) * LS_GPU_SOME(LS_VECTOR), end_ = least(i + LS_GPU_SOME(LS_VECTOR), n); i < end_; i++)
