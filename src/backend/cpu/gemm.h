/* Our own matrix products, for AVX-512: tiles of the output that stay in registers while a sum runs. One thread, no
 * allocation, nothing that fails.
 *
 * They have their own bits, other than oneDNN's, so whether they are used is decided with oneDNN's instruction set
 * (ls_dnn_has_avx512), which the bit class names, and not by LOCKSTEP_ISA. Every element of an output is a chain of
 * fused multiply-adds in the order of its runs, or, with `add`, what was there before plus such a chain; tiles and
 * vectors do not matter to it. (Rows go on from what was there: one chain in several parts.) */
#ifndef LS_BACKEND_CPU_GEMM_H
#define LS_BACKEND_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#define LS_GEMM_VECTOR    16 /* floats */
#define LS_GEMM_VECTORS   4  /* that a tile is wide, at most */
#define LS_GEMM_MOST_ROWS 8  /* of a tile */
#define LS_GEMM_PANEL     (LS_GEMM_VECTOR * LS_GEMM_VECTORS)

/* ---- Outer products: c[i][j] = sum over pixels of a[pixel][i] * b[pixel][j] ---- */

/* Pixels in a row: their places in a (in floats) and in b (in rows), and how many they are. */
typedef struct ls_gemm_run {
    int32_t a, b, count;
} ls_gemm_run;

typedef struct ls_gemm_outer {
    const ls_gemm_run *runs;
    int64_t run_count;
    const float *a, *b;
    int64_t a_step, b_step; /* floats from pixel to pixel */
    float *c;
    int64_t c_step;     /* floats from row to row */
    bool add;           /* to what c has */
    bool stream;        /* c, which starts at whole lines, goes past the cache; not with add */
    const float *ahead; /* fetched into the cache meanwhile: a line for each pixel, ahead_step apart */
    int64_t ahead_step;
} ls_gemm_outer;

/* The rows a tile may have at most. */
static inline int64_t ls_gemm_outer_rows(int64_t vectors)
{
    return vectors > 3 ? 6 : 8;
}

/* One tile: `rows` of c by 16 * vectors. */
void ls_gemm_outer_tile(int64_t rows, int64_t vectors, const ls_gemm_outer *t);

/* ---- Rows by a panel: out[r][j] = sum over runs of in[r][a + k] * b[row k][j] ---- */

typedef struct ls_gemm_rows {
    const ls_gemm_run *runs; /* a: floats from where a row's `in` points to; b: rows of the panel */
    int64_t run_count;
    const float *const *in;
    float *const *out;
    const float *b;     /* a panel: rows of 16 * vectors floats, close to each other */
    const float *bias;  /* added at the end; NULL: none */
    bool relu;          /* at the very end */
    bool add;           /* goes on from what out has */
    const float *ahead; /* fetched into the cache meanwhile: a line for each step (a narrow tile: for several steps) */
    int64_t ahead_step;
} ls_gemm_rows;

/* The rows of a tile where so many are left: there are tiles of few sizes only, so `in` and `out` must go on. */
static inline int64_t ls_gemm_rows_tile_size(int64_t left, int64_t vectors)
{
    return left <= 4 || (left == 8 && vectors > 3) ? 4 : vectors > 3 ? 6 : 8;
}

/* One tile: `rows` (a tile's size) of out by 16 * vectors. */
void ls_gemm_rows_tile(int64_t rows, int64_t vectors, const ls_gemm_rows *t);

/* ---- Panels ---- */

/* to[j][i] = from[i][j] for i < rows, j < columns; steps from row to row of each. */
void ls_gemm_transpose(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t columns);

/* What was streamed is there for other threads. */
void ls_gemm_stream_end(void);

/* Columns of `count` pixels that are `step` apart, close to each other and filled up with zeros to whole vectors. At
 * most a panel's columns. */
void ls_gemm_copy_panel(float *to, const float *from, int64_t step, int64_t count, int64_t columns);

#endif
