/* Our own matrix products: tiles of the output that stay in registers while a sum runs. One thread, no allocation,
 * nothing that fails.
 *
 * One source (gemm.inc), compiled for each instruction set, gives tables of functions with the same bits: every element
 * of an output is a chain of fused multiply-adds in the order of its runs, from +0 or from where an earlier part of it
 * stopped; tiles and vectors do not matter to it. docs/bits.md has the orders. */
#ifndef LS_BACKEND_CPU_GEMM_H
#define LS_BACKEND_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#define LS_GEMM_VECTOR    16 /* floats: what the widths of panels are multiples of, on any instruction set */
#define LS_GEMM_VECTORS   4  /* that a tile is wide, at most */
#define LS_GEMM_MOST_ROWS 8  /* of a tile */
#define LS_GEMM_PANEL     (LS_GEMM_VECTOR * LS_GEMM_VECTORS)

/* ---- Outer products: c[i][j] = sum over pixels of a[pixel][i] * b[pixel][j] ---- */

/* Pixels in a row: their places in a (in floats) and in b (in rows), and how many they are. Of outer products, `from`
 * and `to` are the rows that have these pixels (to 0: all): at borders some taps of a kernel are outside. With `at`,
 * `to` has a bit for each of them. */
typedef struct ls_gemm_run {
    int32_t a, b, count;
    int16_t from, to;
} ls_gemm_run;

typedef struct ls_gemm_outer {
    const ls_gemm_run *runs;
    int64_t run_count;
    const float *a, *b;
    int64_t a_step, b_step; /* floats from pixel to pixel */
    float *c;
    int64_t c_step;     /* floats from row to row */
    int64_t columns;    /* of c; 0: all of the vectors */
    bool borders;       /* some runs have from and to */
    int64_t row;        /* their number of the tile's first row */
    const int32_t *at;  /* where a pixel's rows are in a, anywhere; NULL: close to each other */
    bool threes;        /* each three of them are close to each other, the first row's being the first of a three */
    const float *start; /* where the chains go on from, as far apart as c; NULL: +0 */
    bool add;           /* to what c has */
    bool stream;        /* c, which starts at whole lines, goes past the cache; not with add or columns */
    const float *ahead; /* fetched into the cache meanwhile: a line for each pixel, ahead_step apart */
    int64_t ahead_step;
} ls_gemm_outer;

/* ---- Rows by a panel: out[r][j] = sum over runs of in[r][a + k] * b[row k][j] ---- */

typedef struct ls_gemm_rows {
    const ls_gemm_run *runs; /* a: floats from where a row's `in` points to; b: rows of the panel */
    int64_t run_count;
    const float *const *in;
    float *const *out;
    const float *b;     /* a panel: rows of 16 * vectors floats, close to each other */
    int64_t columns;    /* of out; 0: all of the vectors */
    const float *bias;  /* added at the end, so many; NULL: none */
    bool relu;          /* at the very end */
    bool single;        /* each run is one step: faster where runs are short */
    bool add;           /* goes on from what out has */
    const float *ahead; /* fetched into the cache meanwhile: a line for each step (a narrow tile: for several steps) */
    int64_t ahead_step;
} ls_gemm_rows;

/* ---- Lines of pixels by a panel: out[i][j] = sum over runs of in[a + i] * b[row][j], each run one step ---- */

typedef struct ls_gemm_line {
    const ls_gemm_run *runs; /* a: floats from `in`; b: rows of the panel */
    int64_t run_count;
    const float *in; /* of the first pixel; the others are beside it */
    float *out;
    int64_t out_step; /* floats from pixel to pixel */
    int64_t pixels;
    int64_t lines, in_line, out_line; /* floats from line to line */
    const float *b;                   /* a panel: rows of 16 * vectors floats, close to each other */
    int64_t columns;                  /* of out; 0: all of the vectors */
    const float *bias;                /* added at the end, so many; NULL: none */
    bool relu;                        /* at the very end */
} ls_gemm_line;

/* ---- One product for each channel: out[r][c] = sum over runs of in[r][a + k * step + c] * b[b + k][c] ---- */

typedef struct ls_gemm_channels {
    const ls_gemm_run *runs; /* a: floats from `in`; b: rows */
    int64_t run_count;
    const float *in, *b;
    int64_t in_step, b_step; /* floats from pixel to pixel, from row to row */
    float *out;
    int64_t channels;
    const float *start; /* where the chains go on from; NULL: +0 */
    bool add;           /* to what out has */
    const float *bias;  /* NULL: none */
    bool relu;
} ls_gemm_channels;

typedef struct ls_gemm {
    const char *name;
    int8_t outer_rows[LS_GEMM_VECTORS + 1]; /* of a tile so many vectors wide, at most */

    /* One tile: `rows` of c by 16 * vectors. */
    void (*outer_tile)(int64_t rows, int64_t vectors, const ls_gemm_outer *t);

    /* The rows of a tile where so many are left: there are tiles of few sizes only, so `in` and `out` must go on. */
    int64_t (*rows_tile_size)(int64_t left, int64_t vectors);
    /* One tile: `rows` (a tile's size) of out by 16 * vectors. */
    void (*rows_tile)(int64_t rows, int64_t vectors, const ls_gemm_rows *t);

    /* All pixels of lines, in tiles, by 16 * vectors. */
    void (*line)(int64_t vectors, const ls_gemm_line *t);

    void (*channels)(const ls_gemm_channels *t);

    /* to[j][i] = from[i][j] for i < rows, j < columns; steps from row to row of each. */
    void (*transpose)(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t columns);

    /* Columns of `count` pixels that are `step` apart, close to each other and filled up with zeros to whole vectors.
     * At most a panel's columns. */
    void (*copy_panel)(float *to, const float *from, int64_t step, int64_t count, int64_t columns);

    void (*stream_end)(void); /* what was streamed is there for other threads */
} ls_gemm;

/* The table for an instruction set of ls_simd, by its name. */
const ls_gemm *ls_gemm_named(const char *name);

extern const ls_gemm ls_gemm_base;
#if defined(__x86_64__) || defined(__i386__)
extern const ls_gemm ls_gemm_avx2, ls_gemm_avx512;
#endif

static inline int64_t ls_gemm_vectors(int64_t columns)
{
    int64_t vectors = (columns + LS_GEMM_VECTOR - 1) / LS_GEMM_VECTOR;
    return vectors < LS_GEMM_VECTORS ? vectors : LS_GEMM_VECTORS;
}

/* Floats of a row of all panels: the last is filled up to whole vectors. */
static inline int64_t ls_gemm_padded(int64_t columns)
{
    return (columns + LS_GEMM_VECTOR - 1) / LS_GEMM_VECTOR * LS_GEMM_VECTOR;
}

#endif
