/* How sums over positions and samples are split (docs/bits.md); the shape alone decides. Each block
 * is one chain of additions; a lane's blocks are added in order. A block that a call, which has
 * some samples of a lane, does not finish stays open in `chain`. */
#ifndef LS_BACKEND_BLOCKS_H
#define LS_BACKEND_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#define LS_BLOCK 256 /* maximum positions */

typedef struct ls_blocks {
    int64_t sample;  /* positions per sample */
    int64_t width;   /* positions per row */
    int64_t samples; /* samples per block; 0: smaller than a sample */
    int64_t rows;    /* rows per block; 0: smaller than a row */
    int64_t columns; /* columns per block, if smaller than a row */
} ls_blocks;

/* The part of a block in one call; `first` is relative to the call's first position. */
typedef struct ls_block_part {
    int64_t first, count;
    bool opens;  /* starts from zero; otherwise continues `chain` */
    bool closes; /* ends in `out`; otherwise is saved in `chain` */
    bool adds;   /* closing adds to `out` instead of storing */
} ls_block_part;

/* Size of pieces of nearly equal size, at most `most`. */
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

/* Maximum positions of a block. */
static inline int64_t ls_blocks_most(const ls_blocks *b)
{
    return b->samples > 0 ? b->samples * b->sample : b->rows > 0 ? b->rows * b->width : b->columns;
}

static inline int64_t ls_blocks_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* End of the block with position `at` of a lane. */
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

/* Advances to the next part of a call with `samples` samples, after `from` earlier ones of the
 * lane. Start with a zeroed part. Returns false at the end. */
static inline bool ls_blocks_next(const ls_blocks *b, int64_t from, int64_t samples, bool ends_lane,
                                  ls_block_part *block)
{
    int64_t first = from * b->sample, end = samples * b->sample, at = block->first + block->count;
    if (at >= end)
        return false;
    int64_t block_end = ls_blocks_end(b, first + at) - first;
    if (block->count > 0) /* the previous part closed its block */
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
