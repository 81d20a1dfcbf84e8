/* The tiles of our matrix products. Each size is a function of its own, so that the tile's elements are registers;
 * loops over them must be unrolled for that. */
#include "backend/cpu/gemm.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
/* The false stack that gcc's address sanitizer gives functions is not aligned for these vectors (see simd_vector.inc).
 */
#if defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#define UNCHECKED __attribute__((no_sanitize_address))
#else
#define UNCHECKED
#endif
#define TILE UNCHECKED static inline __attribute__((always_inline)) void

/* A cache line that will be written at the end is asked for at the start. */
#define EXPECT_WRITE(p) __builtin_prefetch(p, 1, 3)

TILE outer_end(const int rows, const int vectors, const ls_gemm_outer *t, __m512 *sum)
{
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
    {
        float *c = t->c + i * t->c_step + 16 * v;
        if (t->stream)
            _mm512_stream_ps(c, sum[i * vectors + v]);
        else if (t->add)
            _mm512_storeu_ps(c, _mm512_add_ps(_mm512_loadu_ps(c), sum[i * vectors + v]));
        else
            _mm512_storeu_ps(c, sum[i * vectors + v]);
    }
}

TILE outer_tile(const int rows, const int vectors, const ls_gemm_outer *t)
{
    __m512 sum[LS_GEMM_VECTORS * 8], b[LS_GEMM_VECTORS];
    const float *ahead = t->ahead;
    const int64_t a_step = t->a_step, b_step = t->b_step, ahead_step = t->ahead_step;
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
    {
        sum[i * vectors + v] = _mm512_setzero_ps();
        if (!t->stream)
            EXPECT_WRITE(t->c + i * t->c_step + 16 * v);
    }
    for (const ls_gemm_run *run = t->runs, *end = run + t->run_count; run < end; run++) {
        const float *pa = t->a + run->a, *pb = t->b + run->b * b_step;
        for (int32_t n = run->count; n > 0; n--, pa += a_step, pb += b_step, ahead += ahead_step) {
            _mm_prefetch((const char *)ahead, _MM_HINT_T1);
            UNROLL for (int v = 0; v < vectors; v++) b[v] = _mm512_loadu_ps(pb + 16 * v);
            UNROLL for (int i = 0; i < rows; i++)
            {
                __m512 a = _mm512_set1_ps(pa[i]);
                UNROLL for (int v = 0; v < vectors; v++) sum[i * vectors + v] =
                    _mm512_fmadd_ps(a, b[v], sum[i * vectors + v]);
            }
        }
    }
    outer_end(rows, vectors, t, sum);
}

#define OUTER(rows, vectors)                                                                                           \
    UNCHECKED static void outer_##rows##_##vectors(const ls_gemm_outer *t)                                             \
    {                                                                                                                  \
        outer_tile(rows, vectors, t);                                                                                  \
    }
#define EACH_ROWS_TO_6(tile, v) tile(1, v) tile(2, v) tile(3, v) tile(4, v) tile(5, v) tile(6, v)
#define EACH_ROWS_TO_8(tile, v) EACH_ROWS_TO_6(tile, v) tile(7, v) tile(8, v)
#define EACH_OUTER(tile)        EACH_ROWS_TO_8(tile, 1) EACH_ROWS_TO_8(tile, 2) EACH_ROWS_TO_8(tile, 3) EACH_ROWS_TO_6(tile, 4)
EACH_OUTER(OUTER)

#define OUTER_ENTRY(rows, vectors) [vectors][rows] = outer_##rows##_##vectors,
typedef void outer_function(const ls_gemm_outer *t);
static outer_function *const outer_tiles[LS_GEMM_VECTORS + 1][9] = { EACH_OUTER(OUTER_ENTRY) };

void ls_gemm_outer_tile(int64_t rows, int64_t vectors, const ls_gemm_outer *t)
{
    outer_tiles[vectors][rows](t);
}

/* `deep` steps of a run for all rows: where tiles are narrow, a row's place is looked up once for several steps. */
TILE rows_step(const int rows, const int vectors, const int deep, const float *const *in, const float *pb, __m512 *sum)
{
    __m512 b[LS_GEMM_VECTORS];
    UNROLL for (int v = 0; v < vectors * deep; v++) b[v] = _mm512_loadu_ps(pb + 16 * v);
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int d = 0; d < deep; d++)
    {
        __m512 a = _mm512_set1_ps(in[i][d]);
        UNROLL for (int v = 0; v < vectors; v++) sum[i * vectors + v] =
            _mm512_fmadd_ps(a, b[d * vectors + v], sum[i * vectors + v]);
    }
}

TILE rows_end(const int rows, const int vectors, const ls_gemm_rows *t, __m512 *sum)
{
    if (t->bias)
        UNROLL for (int v = 0; v < vectors; v++)
        {
            __m512 bias = _mm512_loadu_ps(t->bias + 16 * v);
            UNROLL for (int i = 0; i < rows; i++) sum[i * vectors + v] = _mm512_add_ps(sum[i * vectors + v], bias);
        }
    if (t->relu) /* x <= 0 ? 0 : x, so NaN stays */
        UNROLL for (int i = 0; i < rows * vectors; i++) sum[i] =
            _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(sum[i], _mm512_setzero_ps(), _CMP_NLE_UQ), sum[i]);
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
        _mm512_storeu_ps(t->out[i] + 16 * v, sum[i * vectors + v]);
}

TILE rows_tile(const int rows, const int vectors, const ls_gemm_rows *t)
{
    __m512 sum[LS_GEMM_VECTORS * 8];
    const int deep = LS_GEMM_VECTORS / vectors;
    const float *in[8], *ahead = t->ahead;
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
    {
        if (!t->add)
            EXPECT_WRITE(t->out[i] + 16 * v);
        sum[i * vectors + v] = t->add ? _mm512_loadu_ps(t->out[i] + 16 * v) : _mm512_setzero_ps();
    }
    for (const ls_gemm_run *run = t->runs, *end = run + t->run_count; run < end; run++) {
        const float *pb = t->b + (int64_t)run->b * 16 * vectors;
        UNROLL for (int i = 0; i < rows; i++) in[i] = t->in[i] + run->a;
        int32_t left = run->count;
        for (; left >= deep; left -= deep, pb += 16 * vectors * deep, ahead += t->ahead_step) {
            _mm_prefetch((const char *)ahead, _MM_HINT_T1);
            rows_step(rows, vectors, deep, in, pb, sum);
            UNROLL for (int i = 0; i < rows; i++) in[i] += deep;
        }
        for (; left > 0; left--, pb += 16 * vectors) {
            rows_step(rows, vectors, 1, in, pb, sum);
            UNROLL for (int i = 0; i < rows; i++) in[i]++;
        }
    }
    rows_end(rows, vectors, t, sum);
}

#define ROWS(size, vectors)                                                                                            \
    UNCHECKED static void rows_##size##_##vectors(const ls_gemm_rows *t)                                               \
    {                                                                                                                  \
        rows_tile(size, vectors, t);                                                                                   \
    }
#define EACH_ROWS(tile) tile(4, 1) tile(8, 1) tile(4, 2) tile(8, 2) tile(4, 3) tile(8, 3) tile(4, 4) tile(6, 4)
EACH_ROWS(ROWS)

#define ROWS_ENTRY(size, vectors) [vectors][size] = rows_##size##_##vectors,
typedef void rows_function(const ls_gemm_rows *t);
static rows_function *const rows_tiles[LS_GEMM_VECTORS + 1][9] = { EACH_ROWS(ROWS_ENTRY) };

void ls_gemm_rows_tile(int64_t rows, int64_t vectors, const ls_gemm_rows *t)
{
    rows_tiles[vectors][rows](t);
}

void ls_gemm_stream_end(void)
{
    _mm_sfence();
}

/* Pairs, then fours of rows are interleaved, then quarters of vectors change places. */
UNCHECKED static void transpose_16(float *to, int64_t to_step, const float *from, int64_t from_step)
{
    __m512 a[16], b[16];
    UNROLL for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_ps(from + i * from_step);
    UNROLL for (int i = 0; i < 16; i += 2)
    {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4) /* a[i + k]: column k of every quarter, of rows i .. i + 3 */
    {
        a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    UNROLL for (int k = 0; k < 4; k++)
    {
        __m512 low = _mm512_shuffle_f32x4(a[k], a[k + 4], 0x88), high = _mm512_shuffle_f32x4(a[k], a[k + 4], 0xdd);
        __m512 low2 = _mm512_shuffle_f32x4(a[k + 8], a[k + 12], 0x88);
        __m512 high2 = _mm512_shuffle_f32x4(a[k + 8], a[k + 12], 0xdd);
        _mm512_storeu_ps(to + k * to_step, _mm512_shuffle_f32x4(low, low2, 0x88));
        _mm512_storeu_ps(to + (k + 4) * to_step, _mm512_shuffle_f32x4(high, high2, 0x88));
        _mm512_storeu_ps(to + (k + 8) * to_step, _mm512_shuffle_f32x4(low, low2, 0xdd));
        _mm512_storeu_ps(to + (k + 12) * to_step, _mm512_shuffle_f32x4(high, high2, 0xdd));
    }
}

void ls_gemm_transpose(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i += 16)
        for (int64_t j = 0; j < columns; j += 16) {
            if (i + 16 <= rows && j + 16 <= columns) {
                transpose_16(to + j * to_step + i, to_step, from + i * from_step + j, from_step);
                continue;
            }
            for (int64_t k = i; k < rows && k < i + 16; k++)
                for (int64_t l = j; l < columns && l < j + 16; l++)
                    to[l * to_step + k] = from[k * from_step + l];
        }
}

TILE copy(const int vectors, float *to, const float *from, int64_t step, int64_t count, __mmask16 last)
{
    for (int64_t p = 0; p < count; p++, from += step, to += 16 * vectors) {
        UNROLL for (int v = 0; v < vectors - 1; v++) _mm512_storeu_ps(to + 16 * v, _mm512_loadu_ps(from + 16 * v));
        _mm512_storeu_ps(to + 16 * (vectors - 1), _mm512_maskz_loadu_ps(last, from + 16 * (vectors - 1)));
    }
}

UNCHECKED void ls_gemm_copy_panel(float *to, const float *from, int64_t step, int64_t count, int64_t columns)
{
    __mmask16 last = (__mmask16)(0xffff >> (15 - (columns - 1) % 16));
    switch ((columns + 15) / 16) {
    case 1:
        copy(1, to, from, step, count, last);
        break;
    case 2:
        copy(2, to, from, step, count, last);
        break;
    case 3:
        copy(3, to, from, step, count, last);
        break;
    default:
        copy(4, to, from, step, count, last);
    }
}
#else
void ls_gemm_outer_tile(int64_t rows, int64_t vectors, const ls_gemm_outer *t)
{
    (void)rows, (void)vectors, (void)t; /* ls_dnn_has_avx512 says no */
}

void ls_gemm_rows_tile(int64_t rows, int64_t vectors, const ls_gemm_rows *t)
{
    (void)rows, (void)vectors, (void)t;
}

void ls_gemm_stream_end(void)
{
}

void ls_gemm_transpose(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t columns)
{
    (void)to, (void)to_step, (void)from, (void)from_step, (void)rows, (void)columns;
}

void ls_gemm_copy_panel(float *to, const float *from, int64_t step, int64_t count, int64_t columns)
{
    (void)to, (void)from, (void)step, (void)count, (void)columns;
}
#endif
