/* Joins: sums by our vector kernels where they exist, other types and extremes element by element. */
#include "run/join.h"

#include <math.h>

/* An operation for each type that has no vector kernel. */
static double join_real(ls_join_kind kind, double a, double b)
{
    if (kind == LS_JOIN_SUM)
        return a + b;
    if (isnan(a) || isnan(b))
        return NAN;
    return kind == LS_JOIN_MAX ? (b > a ? b : a) : (b < a ? b : a);
}

static int64_t join_integer(ls_join_kind kind, int64_t a, int64_t b)
{
    if (kind == LS_JOIN_SUM)
        return (int64_t)((uint64_t)a + (uint64_t)b);
    return kind == LS_JOIN_MAX ? (b > a ? b : a) : (b < a ? b : a);
}

typedef struct number {
    double real;
    int64_t integer;
    bool there;
} number;

static number load(ls_dtype dtype, const void *from, size_t i)
{
    switch (dtype) {
    case LS_F32:
        return (number){ .real = ((const float *)from)[i], .there = true };
    case LS_F64:
        return (number){ .real = ((const double *)from)[i], .there = true };
    case LS_I32:
        return (number){ .integer = ((const int32_t *)from)[i], .there = true };
    default:
        return (number){ .integer = ((const int64_t *)from)[i], .there = true };
    }
}

static void store(ls_dtype dtype, void *to, size_t i, number n)
{
    switch (dtype) {
    case LS_F32:
        ((float *)to)[i] = (float)n.real;
        break;
    case LS_F64:
        ((double *)to)[i] = n.real;
        break;
    case LS_I32:
        ((int32_t *)to)[i] = (int32_t)(uint32_t)n.integer;
        break;
    default:
        ((int64_t *)to)[i] = n.integer;
        break;
    }
}

static number join_two(ls_join_kind kind, number a, number b)
{
    if (!a.there || !b.there)
        return a.there ? a : b;
    return (number){ join_real(kind, a.real, b.real), join_integer(kind, a.integer, b.integer), true };
}

static number tree(ls_join_kind kind, ls_dtype dtype, const void *const *lane, int a, int b, size_t i)
{
    if (b - a == 1)
        return lane[a] ? load(dtype, lane[a], i) : (number){ .there = false };
    int k = 1;
    while (k * 2 < b - a)
        k *= 2;
    return join_two(kind, tree(kind, dtype, lane, a, a + k, i), tree(kind, dtype, lane, a + k, b, i));
}

/* Types and extremes without a vector kernel. */
static bool join_elements(ls_join_kind kind, ls_dtype dtype, void *dst, const void *const *lane, int lanes, size_t from,
                          size_t to)
{
    bool finite = true;
    for (size_t i = from; i < to; i++) {
        number n = tree(kind, dtype, lane, 0, lanes, i);
        finite = finite && isfinite(n.real);
        store(dtype, dst, i, n);
    }
    return finite;
}

bool ls_join_lanes(const ls_simd *simd, ls_join_kind kind, ls_dtype dtype, void *dst, const void *const *lane,
                   int lanes, size_t from, size_t to)
{
    if (kind == LS_JOIN_SUM && dtype == LS_F32)
        return simd->join_f32(dst, (const float *const *)lane, lanes, from, to);
    if (kind == LS_JOIN_SUM && dtype == LS_F64)
        return simd->join_f64(dst, (const double *const *)lane, lanes, from, to);
    if (kind == LS_JOIN_SUM && dtype == LS_I64)
        return simd->join_i64(dst, (const int64_t *const *)lane, lanes, from, to);
    if (kind == LS_JOIN_MAX && dtype == LS_F32)
        return simd->join_max_f32(dst, (const float *const *)lane, lanes, from, to);
    if (kind == LS_JOIN_MIN && dtype == LS_F32)
        return simd->join_min_f32(dst, (const float *const *)lane, lanes, from, to);
    return join_elements(kind, dtype, dst, lane, lanes, from, to);
}

void ls_join_next(const ls_simd *simd, ls_join_kind kind, ls_dtype dtype, void *dst, const void *src, size_t count)
{
    if (kind == LS_JOIN_SUM && dtype == LS_F32)
        simd->accumulate_f32(dst, src, count);
    else if (kind == LS_JOIN_SUM && dtype == LS_F64)
        simd->accumulate_f64(dst, src, count);
    else
        for (size_t i = 0; i < count; i++)
            store(dtype, dst, i, join_two(kind, load(dtype, dst, i), load(dtype, src, i)));
}
