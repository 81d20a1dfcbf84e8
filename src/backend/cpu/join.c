/* Joins on the host, by vector kernels if they exist. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "lockstep/backend.h"

#define CHUNK 64 /* elements that pass through the tree together */
#define DEPTH 15 /* height of the tree over LS_MAX_LANES lanes, including the lanes */

typedef struct joining {
    ls_join_kind kind;
    ls_dtype dtype;
    const void *const *lane;
    size_t skip; /* bytes before the chunk */
    int64_t count;
} joining;

/* T[a,b) of a chunk: a lane's own elements, or the result in room[0]. NULL: no lane has a value. */
static const void *tree(const joining *j, int a, int b, double (*room)[CHUNK])
{
    if (b - a == 1)
        return j->lane[a] ? (const char *)j->lane[a] + j->skip : NULL;
    int k = 1;
    while (k * 2 < b - a)
        k *= 2;
    const void *left = tree(j, a, a + k, room);
    const void *right = tree(j, a + k, b, left ? room + 1 : room);
    if (!left || !right)
        return left ? left : right;
    ls_reference_join(j->kind, j->dtype, left, right, j->count, room);
    return room;
}

static ls_range range_f64(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * 0; /* infinity or NaN makes the sum NaN */
    return sum == 0 ? LS_RANGE_LARGE : LS_RANGE_INFINITE;
}

ls_range ls_cpu_range(const ls_simd *simd, ls_dtype dtype, const void *x, size_t count)
{
    if (dtype == LS_F32)
        return simd->range(x, count);
    return dtype == LS_F64 ? range_f64(x, count) : LS_RANGE_SAFE;
}

/* For types and extremes without a vector kernel. */
static ls_range join_chunks(const ls_simd *simd, joining j, void *dst, int lanes, size_t from, size_t to)
{
    size_t unit = ls_dtype_bytes(j.dtype);
    double room[DEPTH][CHUNK]; /* for any element type */
    ls_range range = LS_RANGE_SAFE;
    for (size_t at = from; at < to; at += CHUNK) {
        size_t count = to - at < CHUNK ? to - at : CHUNK;
        j.skip = at * unit;
        j.count = (int64_t)count;
        const void *joined = tree(&j, 0, lanes, room);
        if (joined)
            memmove((char *)dst + j.skip, joined, count * unit);
        else
            memset((char *)dst + j.skip, 0, count * unit);
        ls_range of_chunk = ls_cpu_range(simd, j.dtype, (char *)dst + j.skip, count);
        range = of_chunk > range ? of_chunk : range;
    }
    return range;
}

ls_range ls_cpu_join_lanes(const ls_simd *simd, ls_join_kind kind, ls_dtype dtype, void *dst, const void *const *lane,
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
    return join_chunks(simd, (joining){ .kind = kind, .dtype = dtype, .lane = lane }, dst, lanes, from, to);
}

void ls_cpu_join_next(const ls_simd *simd, ls_join_kind kind, ls_dtype dtype, void *dst, const void *src, size_t count)
{
    if (kind == LS_JOIN_SUM && dtype == LS_F32)
        simd->accumulate_f32(dst, src, count);
    else if (kind == LS_JOIN_SUM && dtype == LS_F64)
        simd->accumulate_f64(dst, src, count);
    else
        ls_reference_join(kind, dtype, dst, src, (int64_t)count, dst);
}
