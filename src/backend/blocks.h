/* How sums over positions and samples are cut (docs/bits.md): by the shape alone into blocks, each of them one chain; a
 * lane's blocks are added from left to right, the first is stored. A call has some samples of a lane: a block that it
 * does not finish stays open, its chain in `chain`, where the lane's next call goes on. */
#ifndef LS_BACKEND_BLOCKS_H
#define LS_BACKEND_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#define LS_BLOCK 256 /* positions, at most */

typedef struct ls_blocks {
    int64_t sample;  /* positions of a sample */
    int64_t width;   /* of a row of them */
    int64_t samples; /* of a block; 0: a sample is cut */
    int64_t rows;    /* of a block; 0: rows are cut, too */
    int64_t columns; /* of a block, where rows are cut */
} ls_blocks;

/* Part of a block that one call has: positions first .. first + count - 1, counted from the call's first. */
typedef struct ls_block_part {
    int64_t first, count;
    bool opens;  /* it starts here: from zero. Otherwise from `chain` */
    bool closes; /* it ends here: to `out`. Otherwise to `chain` */
    bool adds;   /* where it closes: to what `out` has */
} ls_block_part;

/* Even pieces of `size`, none longer than `most`. */
static inline int64_t ls_blocks_even(int64_t size, int64_t most)
{
    int64_t pieces = (size + most - 1) / most;
    return (size + pieces - 1) / pieces;
}

static inline ls_blocks ls_blocks_of(int64_t rows, int64_t width)
{
    ls_blocks b = { .sample = rows * width, .width = width };
    if (b.sample <= LS_BLOCK) {
        b.samples = 1;
        while (b.samples < LS_BLOCK && 2 * b.samples * b.sample <= LS_BLOCK)
            b.samples *= 2;
    } else if (width <= LS_BLOCK) {
        b.rows = ls_blocks_even(rows, LS_BLOCK / width);
    } else {
        b.columns = ls_blocks_even(width, LS_BLOCK);
    }
    return b;
}

/* Positions that a block has at most. */
static inline int64_t ls_blocks_most(const ls_blocks *b)
{
    return b->samples > 0 ? b->samples * b->sample : b->rows > 0 ? b->rows * b->width : b->columns;
}

static inline int64_t ls_blocks_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Where the block of a lane's position ends. */
static inline int64_t ls_blocks_end(const ls_blocks *b, int64_t at)
{
    if (b->samples > 0)
        return (at / (b->samples * b->sample) + 1) * b->samples * b->sample;
    int64_t start = at / b->sample * b->sample, inside = at - start;
    if (b->rows > 0)
        return start + ls_blocks_least(b->sample, (inside / (b->rows * b->width) + 1) * b->rows * b->width);
    int64_t row = inside / b->width * b->width;
    return start + row + ls_blocks_least(b->width, ((inside - row) / b->columns + 1) * b->columns);
}

/* The next part that a call has: `from` samples of the lane came before its `samples`. Begin with a block of zeros;
 * false when there are no more. */
static inline bool ls_blocks_next(const ls_blocks *b, int64_t from, int64_t samples, bool ends_lane,
                                  ls_block_part *block)
{
    int64_t first = from * b->sample, end = samples * b->sample, at = block->first + block->count;
    if (at >= end)
        return false;
    int64_t block_end = ls_blocks_end(b, first + at) - first;
    if (block->count > 0) /* the part before ended its block, or it would be the last */
        block->opens = block->adds = true;
    else {
        block->opens = first == 0 || ls_blocks_end(b, first - 1) == first;
        block->adds = first >= ls_blocks_end(b, 0);
    }
    block->first = at;
    block->count = ls_blocks_least(end, block_end) - at;
    at += block->count;
    block->closes = at == block_end || (at == end && ends_lane);
    return true;
}

#endif
