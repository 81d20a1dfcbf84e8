/* Vectorized CPU kernels on plain arrays: single-threaded, no allocation, cannot fail.
 *
 * Every instruction set has a table, all with the same bits: the order of every sum is independent
 * of the vector width (per channel: pixel after pixel; along contiguous elements: 16 interleaved
 * partial sums, joined by a fixed tree). Operations are not contracted, subnormals are kept. Only
 * payload and sign of a NaN may differ.
 *
 * Arrays are contiguous float32, aligned to their elements, unless noted; images are channels-last.
 * `n` counts elements; any count may be 0. An output may be an input of the same shape unless the
 * comment says "apart"; other overlaps are not allowed. */
#ifndef LS_BACKEND_CPU_SIMD_H
#define LS_BACKEND_CPU_SIMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/ref/update.h"
#include "base/philox.h"
#include "graph/recurrent.h"
#include "plan/plan.h"

/* Windows over images: x [n,h,w,c], y [n,oh,ow,c]. */
typedef struct ls_simd_pool {
    int64_t n, h, w, c;
    int64_t oh, ow;
    int64_t kh, kw, sh, sw; /* window, stride */
    int64_t pad_top, pad_left;
    bool count_padding; /* average: padding counts as zeros */
} ls_simd_pool;

/* A recurrent cell. */
typedef struct ls_simd_cell {
    size_t units;
    ls_gate activation, inner; /* inner: of the gates */
} ls_simd_cell;

/* The gradient of one step of a sample. */
typedef struct ls_simd_back {
    const float *dy;         /* gradient of its h */
    const float *y, *before; /* its value, and that of the step before; NULL: none */
    float *dh, *dc; /* gradients of the state without dy; become those of the state before, without the kernel */
    float *d;
} ls_simd_back;

typedef void ls_simd_unary(float *dst, const float *x, size_t n);
typedef void ls_simd_binary(float *dst, const float *a, const float *b, size_t n);
typedef void ls_simd_with_scalar(float *dst, const float *x, float s, size_t n);
typedef void ls_simd_with_row(float *dst, const float *x, const float *row, size_t rows, size_t cols);

typedef struct ls_simd {
    const char *name; /* "base", "avx2", "avx512" */

    /* ---- Elementwise ---- */
    ls_simd_binary *add, *sub, *mul, *div;
    ls_simd_binary *maximum, *minimum; /* NaN wins; the first of equal values */
    ls_simd_with_scalar *scale;        /* x * s */
    ls_simd_with_scalar *add_scalar;   /* x + s */
    ls_simd_with_scalar *div_scalar;   /* x / s */
    ls_simd_with_scalar *leaky_relu;   /* x > 0 ? x : s * x */
    ls_simd_with_scalar *elu;          /* x > 0 ? x : s * (exp(x) - 1) */
    ls_simd_with_scalar *capped_relu;  /* at least 0, at most s; NaN is kept */
    ls_simd_unary *relu;               /* NaN is kept */
    ls_simd_unary *neg, *abs, *square, *sqrt, *rsqrt;
    ls_simd_unary *exp, *log, *tanh, *erf, *sigmoid, *silu, *softplus, *gelu, *gelu_tanh;
    void (*clip)(float *dst, const float *x, float low, float high, size_t n);             /* NaN is kept */
    void (*relu_grad)(float *dst, const float *dy, const float *x, float slope, size_t n); /* x > 0 ? dy : slope * dy */
    void (*capped_relu_grad)(float *dst, const float *dy, const float *x, float limit, size_t n); /* 0 < x <= limit */
    ls_simd_binary *silu_grad;                                                                    /* inputs dy and x */

    /* One row for all rows: x [rows,cols], row [cols]. */
    ls_simd_with_row *add_row, *mul_row;

    /* ---- Casts; u8_to_f32 also multiplies by `scale` (1: plain cast) ---- */
    void (*u8_to_f32)(float *dst, const uint8_t *x, float scale, size_t n);
    void (*i32_to_f32)(float *dst, const int32_t *x, size_t n);
    void (*f32_to_f64)(double *dst, const float *x, size_t n);
    void (*f64_to_f32)(float *dst, const double *x, size_t n);

    /* ---- dst += src ---- */
    void (*accumulate_f32)(float *dst, const float *src, size_t n);
    void (*accumulate_f64)(double *dst, const double *src, size_t n);

    ls_range (*range)(const float *x, size_t n);
    float (*largest)(const float *x, size_t n); /* largest magnitude; NaN if there is one */

    /* Sum of squares in f64: 16 interleaved partial sums per 4,096 elements; these blocks are added
     * in order. A vector may therefore be split at multiples of 4,096. */
    double (*sum_squares)(const float *x, size_t n);
    double (*sum_wide)(const float *x, size_t n); /* sum_squares without squaring */

    /* ---- Tree of lanes: dst[i] = T[0,lanes) of lane[.][i] for from <= i < to ----
     * T[a,b) is the lane's own value if b-a is 1, else T[a,a+k) + T[a+k,b), where k is the largest
     * power of two below b-a. A NULL lane has no value; if all are NULL, dst becomes 0. dst may be
     * a lane. Returns the range of all results (f64: never safe; i64: always safe). At most
     * LS_MAX_LANES (plan.h) lanes. */
    ls_range (*join_f32)(float *dst, const float *const *lane, int lanes, size_t from, size_t to);
    ls_range (*join_f64)(double *dst, const double *const *lane, int lanes, size_t from, size_t to);
    /* wraps around */
    ls_range (*join_i64)(int64_t *dst, const int64_t *const *lane, int lanes, size_t from, size_t to);
    /* like maximum */
    ls_range (*join_max_f32)(float *dst, const float *const *lane, int lanes, size_t from, size_t to);
    ls_range (*join_min_f32)(float *dst, const float *const *lane, int lanes, size_t from, size_t to);

    /* ---- Sums over positions of a block or part (backend/blocks.h), x [positions,channels] ----
     * Each channel is a chain that continues from `to`. */
    /* to [blocks,channels]: sums of 1 to 4 consecutive blocks of positions[i] positions each */
    void (*channel_sum)(float *to, const float *x, const size_t *positions, size_t blocks, size_t channels);
    /* to [2,channels]: sums and sums of squares, in f64 */
    void (*moments)(double *to, const float *x, size_t positions, size_t channels);
    /* dst [n,channels]: sum over x [n,pixels,channels] in f64, pixel after pixel; with one channel,
     * like sum_wide */
    void (*spatial_sum)(float *dst, const float *x, size_t n, size_t pixels, size_t channels);
    /* dst [n,pixels,channels] = dy [n,channels]; apart */
    void (*spread)(float *dst, const float *dy, size_t n, size_t pixels, size_t channels);

    /* ---- Batch norm: x, dy, dst [pixels,channels]; mean, scale, ... [channels] ---- y = (x -
     * mean) * scale + beta, where scale = gamma * inv and inv = 1/sqrt(variance + epsilon). */
    void (*batch_norm)(float *dst, const float *x, const float *mean, const float *scale, const float *beta,
                       size_t pixels, size_t channels, bool relu);
    /* y + residual, then the optional ReLU */
    void (*batch_norm_add)(float *dst, const float *x, const float *mean, const float *scale, const float *beta,
                           const float *residual, size_t pixels, size_t channels, bool relu);
    /* y, at least 0 and at most the limit; silu(y); the gradient of silu(y) */
    void (*batch_norm_capped)(float *dst, const float *x, const float *mean, const float *scale, const float *beta,
                              float limit, size_t pixels, size_t channels);
    void (*batch_norm_silu)(float *dst, const float *x, const float *mean, const float *scale, const float *beta,
                            size_t pixels, size_t channels);
    void (*batch_norm_silu_grad)(float *dst, const float *dy, const float *x, const float *mean, const float *scale,
                                 const float *beta, size_t pixels, size_t channels);
    /* If a ReLU follows the norm, counts dy only where its output is above 0: y if given;
     * otherwise, if beta (with scale) is given, (x - mean) * scale + beta, and there only
     * where that is at most the limit (NAN: no limit). to [2,channels], like
     * `moments` but in f32: sums of dy and of dy * ((x - mean) * inv). */
    void (*batch_norm_grad_moments)(float *to, const float *dy, const float *x, const float *mean, const float *inv,
                                    const float *scale, const float *beta, float limit, const float *y,
                                    size_t positions, size_t channels);
    /* dst = scale * (dy - (g0 + (x - mean) * inv * g1)). g0 and g1 are the sums above divided by
     * the elements per channel in the whole batch. */
    void (*batch_norm_grad_input)(float *dst, const float *dy, const float *x, const float *mean, const float *inv,
                                  const float *scale, const float *beta, float limit, const float *y, const float *g0,
                                  const float *g1, size_t pixels, size_t channels);
    /* dst = (y > 0 ? dy : 0) + other */
    void (*relu_grad_add)(float *dst, const float *dy, const float *y, const float *other, size_t n);

    /* ---- Pooling; outputs apart from inputs ----
     * Maximum: NaN wins; the first of equal values in row-major order; padding never wins. relu:
     * dst = relu(maximum), and the gradient passes only where the maximum is > 0. Gradients are
     * written completely. */
    void (*max_pool2d)(float *y, const float *x, const ls_simd_pool *pool, bool relu);
    void (*max_pool2d_grad)(float *dx, const float *x, const float *dy, const ls_simd_pool *pool, bool relu);
    void (*average_pool2d)(float *y, const float *x, const ls_simd_pool *pool);
    void (*average_pool2d_grad)(float *dx, const float *dy, const ls_simd_pool *pool);

    /* ---- Softmax over rows of `cols` ---- */
    void (*softmax_rows)(float *dst, const float *x, size_t rows, size_t cols);
    void (*log_softmax_rows)(float *dst, const float *x, size_t rows, size_t cols);
    /* loss [rows] and gradient [rows,cols] = (softmax - one_hot) * weight[row]; either may be NULL.
     * Labels are LS_U8, LS_I32 or LS_I64; weight NULL: 1. Returns the first row whose label is
     * outside 0..cols-1 (outputs are then invalid), or -1. */
    int64_t (*sparse_cross_entropy)(float *loss, float *grad, const float *logits, const void *labels, ls_dtype kind,
                                    const float *weight, size_t rows, size_t cols);

    /* ---- Random: same bits as the reference kernels; x, dst [samples,per_sample] ----
     * Samples first_sample, first_sample + 1, ... of the batch; a whole tensor is sample 0. */
    void (*dropout)(float *dst, const float *x, ls_philox_key key, uint64_t run, uint32_t first_sample, size_t samples,
                    size_t per_sample, float rate);
    /* n elements of one sample from element `first`, a multiple of 4. */
    void (*dropout_from)(float *dst, const float *x, ls_philox_key key, uint64_t run, uint32_t sample, uint64_t first,
                         size_t n, float rate);

    /* ---- Recurrent cells: a step of one sample (graph/recurrent.h), whose chains are in the places of
     * their gates; before: the value of the step before, NULL: none ---- */
    void (*simple_step)(const ls_simd_cell *cell, float *y);
    void (*lstm_step)(const ls_simd_cell *cell, float *y, const float *before);
    /* The gates of a GRU that resets before its product, and where the candidate's chain starts. */
    void (*gru_gates)(const ls_simd_cell *cell, const float *p, float *y, const float *before);
    /* The rest of it (p NULL), or all of a GRU that resets after its product. */
    void (*gru_step)(const ls_simd_cell *cell, const float *p, float *y, const float *before);
    void (*simple_back)(const ls_simd_cell *cell, const ls_simd_back *b);
    void (*lstm_back)(const ls_simd_cell *cell, const ls_simd_back *b);
    /* after: resets after its product; otherwise without the gradient of r, and dc becomes 0 for the
     * chain that gru_back_reset then reads */
    void (*gru_back)(const ls_simd_cell *cell, const ls_simd_back *b, bool after);
    void (*gru_back_reset)(const ls_simd_cell *cell, const ls_simd_back *b);

    /* ---- Optimizer, in place on elements from .. to-1: same bits as the reference kernel ----
     * Slots in the order of ls_apply_rule's formulas: momentum m; Adam m, v; RMSprop v and, with
     * momentum, m; Adagrad a. Returns whether everything written is LS_RANGE_SAFE. */
    bool (*update)(ls_apply_rule rule, float *w, const float *g, float *slot0, float *slot1, size_t from, size_t to,
                   const ls_ref_update_f32 *params);
} ls_simd;

/* The best table that this CPU and system can run, or the lower one of LOCKSTEP_ISA (base, avx2,
 * avx512). Ignores other values, which ls_check_environment rejects. */
const ls_simd *ls_simd_choose(void);

/* NULL if it does not exist or this CPU cannot run it. */
const ls_simd *ls_simd_named(const char *name);

#endif
