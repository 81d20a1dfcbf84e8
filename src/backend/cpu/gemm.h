/* Matrix products: output tiles that stay in registers during a sum. Single-threaded, no
 * allocation, cannot fail.
 *
 * Every instruction set gives the same bits: each output element is one chain of fused
 * multiply-adds in the order of its runs (docs/bits.md), starting from +0 or from the end of an
 * earlier part. */
#ifndef LS_BACKEND_CPU_GEMM_H
#define LS_BACKEND_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#define LS_GEMM_VECTOR    16 /* floats; panel widths are multiples of it everywhere */
#define LS_GEMM_VECTORS   4  /* maximum tile width in vectors */
#define LS_GEMM_MOST_ROWS 8  /* maximum height of a rows_tile */
#define LS_GEMM_PANEL     (LS_GEMM_VECTOR * LS_GEMM_VECTORS)

/* ---- Outer products: c[i][j] = sum over pixels of a[pixel][i] * b[pixel][j] ---- */

/* Consecutive pixels: offset in a (floats) and in b (rows), and number. In outer products, only
 * rows from..to-1 have these pixels (to 0: all rows); taps at a border lie outside. With `at`, `to`
 * is a bit mask of rows. */
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
    int64_t c_step;    /* floats from row to row */
    int64_t columns;   /* 0: all columns of the vectors */
    bool borders;      /* some runs use from and to */
    int64_t row;       /* first row of the tile, in the numbering of from and to */
    const int32_t *at; /* Offsets in a of each row of a pixel; NULL: adjacent rows. */
    /* The tile's rows are groups of three adjacent ones. */
    bool threes;
    const float *start; /* initial chains, laid out like c; NULL: +0 */
    bool add;           /* add to c instead of storing */
    /* Write c, which is aligned to cache lines, without caching. Not with add or columns. */
    bool stream;
    const float *ahead; /* Prefetched: one cache line per pixel, ahead_step floats apart. */
    int64_t ahead_step;
} ls_gemm_outer;

/* ---- Rows by a panel: out[r][j] = sum over runs of in[r][a + k] * b[row k][j] ---- */

typedef struct ls_gemm_rows {
    const ls_gemm_run *runs; /* a: offset in floats from a row's `in`; b: row of the panel */
    int64_t run_count;
    const float *const *in;
    float *const *out;
    const float *b;    /* a panel: contiguous rows of 16 * vectors floats */
    int64_t columns;   /* 0: all columns of the vectors */
    const float *bias; /* one per column; NULL: none */
    bool relu;         /* applied last */
    bool single;       /* every run has one step; faster for short runs */
    bool add;          /* continue from the values in out */
    /* Prefetched: one cache line per step (narrow tiles: per several steps). */
    const float *ahead;
    int64_t ahead_step;
} ls_gemm_rows;

/* ---- Lines of pixels by a panel, one step per run:
 * out[i][j] = sum over runs of in[a + i] * b[row][j] ---- */

typedef struct ls_gemm_line {
    const ls_gemm_run *runs; /* a: offset in floats from `in`; b: row of the panel */
    int64_t run_count;
    const float *in; /* first pixel; the others are adjacent */
    float *out;
    int64_t out_step; /* floats from pixel to pixel */
    int64_t pixels;
    int64_t lines, in_line, out_line; /* floats from line to line */
    const float *b;                   /* a panel */
    int64_t columns;                  /* 0: all columns of the vectors */
    const float *bias;                /* one per column, added at the end; NULL: none */
    bool relu;                        /* applied last */
} ls_gemm_line;

/* ---- Depthwise: a line of pixels, one step per run:
 * out[p][c] = sum over runs of in[p][a + c] * b[row][c] ---- */

typedef struct ls_gemm_taps {
    const ls_gemm_run *runs; /* a: offset in floats from a pixel's `in`; b: row */
    int64_t run_count;
    const float *in, *b;
    float *out;
    int64_t in_step, out_step; /* floats from pixel to pixel */
    int64_t b_step;            /* floats from row to row */
    int64_t pixels, channels;
    const float *bias; /* NULL: none */
    bool relu;         /* applied last */
} ls_gemm_taps;

/* ---- Depthwise, the sums of a row of taps over lines of pixels:
 * out[t][c] = sum over lines, pixels p of in[a + p * in_step + t * tap_step + c] * b[row + p][c],
 * p from first[t] to end[t] - 1 ---- */

#define LS_GEMM_MOST_TAPS 5

typedef struct ls_gemm_tap_sums {
    const ls_gemm_run *lines; /* a: offset in floats from `in`, possibly below 0; b: row of the first pixel */
    int64_t line_count;
    const float *in, *b;
    int64_t in_step, tap_step, b_step;
    int64_t pixels; /* number in each line */
    int64_t taps;   /* at most LS_GEMM_MOST_TAPS */
    int64_t first[LS_GEMM_MOST_TAPS], end[LS_GEMM_MOST_TAPS];
    float *out;         /* [taps][channels] */
    const float *start; /* initial chains, laid out like out; NULL: +0 */
    bool add;           /* add to out instead of storing */
    int64_t channels;
} ls_gemm_tap_sums;

typedef struct ls_gemm {
    const char *name;
    /* Maximum rows of an outer tile, by its width in vectors. */
    int8_t outer_rows[LS_GEMM_VECTORS + 1];

    /* `rows` of c by 16 * vectors columns. */
    void (*outer_tile)(int64_t rows, int64_t vectors, const ls_gemm_outer *t);

    /* Height of the next tile when `left` rows remain. Only few heights exist, so it may exceed
     * `left`: `in` and `out` must have that many entries. */
    int64_t (*rows_tile_size)(int64_t left, int64_t vectors);
    /* `rows` (from rows_tile_size) of out by 16 * vectors columns. */
    void (*rows_tile)(int64_t rows, int64_t vectors, const ls_gemm_rows *t);

    /* All pixels of the lines by 16 * vectors columns. */
    void (*line)(int64_t vectors, const ls_gemm_line *t);

    void (*taps)(const ls_gemm_taps *t);
    void (*tap_sums)(const ls_gemm_tap_sums *t);

    /* to[j][i] = from[i][j] for i < rows, j < columns; steps are distances between rows. */
    void (*transpose)(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t columns);

    /* Copies columns of `count` pixels, `step` floats apart, to one contiguous panel, padded with
     * zeros to whole vectors. */
    void (*copy_panel)(float *to, const float *from, int64_t step, int64_t count, int64_t columns);

    void (*stream_end)(void); /* makes streamed data visible to others */
} ls_gemm;

/* By the name of an instruction set of ls_simd. */
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

/* Floats in a row of all panels, the last padded to whole vectors. */
static inline int64_t ls_gemm_padded(int64_t columns)
{
    return (columns + LS_GEMM_VECTOR - 1) / LS_GEMM_VECTOR * LS_GEMM_VECTOR;
}

#endif
