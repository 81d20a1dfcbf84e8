/* The element type `real` of *_real.c and *_number.c, and the names of its kernels. */
#ifndef LS_BACKEND_REF_REAL_H
#define LS_BACKEND_REF_REAL_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fma.h"
#include "base/math.h"

#if defined(LS_REAL_F32)
typedef float real;
#define LS_REF(op)     ls_ref_##op##_f32
#define real_pow       ls_powf
#define real_sqrt      sqrtf
#define real_nextafter nextafterf
#elif defined(LS_REAL_F64)
typedef double real;
#define LS_REF(op)     ls_ref_##op##_f64
#define real_pow       ls_pow
#define real_sqrt      sqrt
#define real_nextafter nextafter
#elif defined(LS_REAL_I32)
typedef int32_t real;
#define LS_REF(op) ls_ref_##op##_i32
#elif defined(LS_REAL_I64)
typedef int64_t real;
#define LS_REF(op) ls_ref_##op##_i64
#else
#error "compiled once for each type: define one of LS_REAL_F32, LS_REAL_F64, LS_REAL_I32, LS_REAL_I64"
#endif

/* real_bits: for addition and multiplication, so that integers wrap around; real_sum: for sums of
 * many elements; REAL_LOWEST, REAL_HIGHEST: maximum and minimum of an empty set. */
#if defined(LS_REAL_F32) || defined(LS_REAL_F64)
#define LS_REAL_IS_FLOAT 1
typedef real real_bits;
typedef double real_sum;
#define REAL_LOWEST  ((real)-INFINITY)
#define REAL_HIGHEST ((real)INFINITY)
#elif defined(LS_REAL_I32)
#define LS_REAL_IS_FLOAT 0
typedef uint32_t real_bits;
typedef uint64_t real_sum;
#define REAL_LOWEST      INT32_MIN
#define REAL_HIGHEST     INT32_MAX
#else
#define LS_REAL_IS_FLOAT 0
typedef uint64_t real_bits;
typedef uint64_t real_sum;
#define REAL_LOWEST      INT64_MIN
#define REAL_HIGHEST     INT64_MAX
#endif

/* One step of a chain of products: fused in float, by definition; double only measures its
 * error. */
#if defined(LS_REAL_F32)
static inline real real_madd(real a, real b, real c)
{
    return ls_fmaf(a, b, c);
}
#elif defined(LS_REAL_F64)
static inline real real_madd(real a, real b, real c)
{
    return a * b + c;
}
#endif

static inline bool real_is_nan(real x)
{
#if LS_REAL_IS_FLOAT
    return x != x;
#else
    (void)x;
    return false;
#endif
}

/* NaN wins; the first of equal values. */
static inline real real_max(real a, real b)
{
    return a >= b || real_is_nan(a) ? a : b;
}

static inline real real_min(real a, real b)
{
    return a <= b || real_is_nan(a) ? a : b;
}

/* Descending order; NaN comes first. */
static inline bool real_before(real x, real y)
{
    return x > y || (real_is_nan(x) && !real_is_nan(y));
}

#endif
