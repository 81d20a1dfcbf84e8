/* Walks over shapes, and blocks of positions (backend/blocks.h): what kernels of any family share. */

/* Where element i of the walk is in array k. A walk has fewer than 2^31 elements of a sample, but may have many samples:
 * the first axis alone is divided as 64 bits. */
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

/* The same for walks of at most two axes (magic is not 0), without a division. */
FUNCTION i64 rows_at(GLOBAL const ls_gpu_walk *walk, int k, i64 i)
{
    i64 outer = (i64)((u64)i * (u64)walk->magic >> walk->shift);
    return walk->start[k] + outer * walk->stride[k][0] + (i - outer * walk->size[1]) * walk->stride[k][1];
}

/* Positions first .. end-1 of block number `number` of a lane. */
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

/* The item's elements of n, one behind the other: some of them, so that what comes before is worth it. */
#define EACH_OF_SOME(i, n)                                                                                             \
    for (i64 i = ITEM(0) * LS_GPU_SOME(LS_VECTOR), end_ = least(i + LS_GPU_SOME(LS_VECTOR), n); i < end_; i++)
