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
#define TILE static inline __attribute__((always_inline)) void

/* A cache line that will be written at the end is asked for at the start. */
#define EXPECT_WRITE(p) __builtin_prefetch(p, 1, 3)

TILE outer(const int rows, const int vectors, const ls_gemm_outer *t)
{
    __m512 sum[LS_GEMM_VECTORS * 8], b[LS_GEMM_VECTORS];
    const float *ahead = t->ahead;
    const int64_t a_step = t->a_step, b_step = t->b_step, ahead_step = t->ahead_step;
    float *c = t->c;
    UNROLL for (int i = 0; i < rows * vectors; i++)
    {
        sum[i] = _mm512_setzero_ps();
        EXPECT_WRITE(c + 16 * i);
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
    if (t->add)
        UNROLL for (int i = 0; i < rows * vectors; i++) sum[i] = _mm512_add_ps(_mm512_loadu_ps(c + 16 * i), sum[i]);
    UNROLL for (int i = 0; i < rows * vectors; i++) _mm512_storeu_ps(c + 16 * i, sum[i]);
}

#define OUTER(rows, vectors)                                                                                           \
    static void outer_##rows##_##vectors(const ls_gemm_outer *t)                                                       \
    {                                                                                                                  \
        outer(rows, vectors, t);                                                                                       \
    }
#define EACH_ROWS_TO_6(tile, v) tile(1, v) tile(2, v) tile(3, v) tile(4, v) tile(5, v) tile(6, v)
#define EACH_ROWS_TO_8(tile, v) EACH_ROWS_TO_6(tile, v) tile(7, v) tile(8, v)
#define EACH_OUTER(tile)        EACH_ROWS_TO_8(tile, 1) EACH_ROWS_TO_8(tile, 2) EACH_ROWS_TO_8(tile, 3) EACH_ROWS_TO_6(tile, 4)
EACH_OUTER(OUTER)

#define OUTER_ENTRY(rows, vectors) [vectors][rows] = outer_##rows##_##vectors,
typedef void outer_tile(const ls_gemm_outer *t);
static outer_tile *const outer_tiles[LS_GEMM_VECTORS + 1][9] = { EACH_OUTER(OUTER_ENTRY) };

void ls_gemm_outer_tile(int64_t rows, int64_t vectors, const ls_gemm_outer *t)
{
    outer_tiles[vectors][rows](t);
}

TILE copy(const int vectors, float *to, const float *from, int64_t step, int64_t count, __mmask16 last)
{
    for (int64_t p = 0; p < count; p++, from += step, to += 16 * vectors) {
        UNROLL for (int v = 0; v < vectors - 1; v++) _mm512_storeu_ps(to + 16 * v, _mm512_loadu_ps(from + 16 * v));
        _mm512_storeu_ps(to + 16 * (vectors - 1), _mm512_maskz_loadu_ps(last, from + 16 * (vectors - 1)));
    }
}

void ls_gemm_copy_panel(float *to, const float *from, int64_t step, int64_t count, int64_t columns)
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

void ls_gemm_copy_panel(float *to, const float *from, int64_t step, int64_t count, int64_t columns)
{
    (void)to, (void)from, (void)step, (void)count, (void)columns;
}
#endif
