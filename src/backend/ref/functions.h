/* Elementary functions for the type being compiled (real.h). They take and return doubles, which
 * the kernels round once to `real`.
 *
 * float32: these functions define the results (docs/bits.md). Each line is a sequence of separate
 * operations in double, none fused; backend/cpu/simd_math.inc gives the same bits. Errors are far
 * below a float's last place; a subnormal float is a normal double. float64: base/math.h, with
 * different formulas where possible; used to check float32. */
#ifndef LS_BACKEND_REF_FUNCTIONS_H
#define LS_BACKEND_REF_FUNCTIONS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/ref/polynomials.h"
#include "base/math.h"

#if defined(LS_REAL_F32)

/* c[0] + c[1] x + ..., n coefficients */
static inline double polynomial(const double *c, int n, double x)
{
    double value = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        value = value * x + c[i];
    return value;
}

#define POLYNOMIAL(c, x) polynomial(c, (int)(sizeof(c) / sizeof *(c)), x)

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline double number_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline double wide_exp(double x)
{
    static const double c[] = LS_EXP_POLYNOMIAL;
    double t = x * LS_INVERSE_LN2 + LS_ROUND, k = t - LS_ROUND;
    double r = (x - k * LS_LN2_HI) - k * LS_LN2_LO;
    double y = number_of(bits_of(1 + r * POLYNOMIAL(c, r)) + (bits_of(t) << 52)); /* times 2^k */
    return x > 700 ? (double)INFINITY : x < -700 ? 0 : y;
}

/* exp(x) - 1 */
static inline double wide_expm1(double x)
{
    if (fabs(x) < 0x1p-7)
        /* -0 is kept */
        return x * (1 + x * (0.5 + x * (1.0 / 6 + x * (1.0 / 24 + x * (1.0 / 120)))));
    return wide_exp(x) - 1;
}

/* x: any float, or a normal double. x = 2^k m with m within [0.7071, 1.4142]. */
static inline double wide_log(double x)
{
    static const double c[] = LS_LOG_POLYNOMIAL;
    const uint64_t one = UINT64_C(0x3ff0000000000000), low = UINT64_C(0x3fe6a09e00000000);
    if (x == 0)
        return -(double)INFINITY;
    if (!(x > 0 && x < (double)INFINITY))
        return x < 0 ? (double)NAN : x; /* infinity and NaN are kept */
    uint64_t bits = bits_of(x) + (one - low);
    double k = (double)(int64_t)(bits >> 52) - 1023, f = number_of((bits & UINT64_C(0x000fffffffffffff)) + low) - 1;
    double s = f / (2 + f), z = s * s;
    return k * LS_LN2_HI + (2 * s + (2 * s * z * POLYNOMIAL(c, z) + k * LS_LN2_LO));
}

/* log(1 + x) for x within [0, 1] */
static inline double wide_log1p(double x)
{
    static const double c[] = LS_LOG1P_POLYNOMIAL;
    return x < 0x1p-7 ? x * POLYNOMIAL(c, x) : wide_log(1 + x);
}

static inline double wide_tanh(double x)
{
    if (fabs(x) < 0x1p-7) {
        double square = x * x;
        return x * (1 + square * (-1.0 / 3 + square * (2.0 / 15))); /* -0 is kept */
    }
    double e = wide_exp(-2 * fabs(x));
    return copysign((1 - e) / (1 + e), x);
}

static inline double wide_sigmoid(double x)
{
    double e = wide_exp(-fabs(x)); /* at most 1: never overflows */
    return (x < 0 ? e : 1) / (1 + e);
}

/* The sigmoid in float32, each operation rounded, for gradients: an error of some last places. NaN
 * gives any number. */
static inline float slope_sigmoid(float x)
{
    static const float c[] = LS_EXP_POLYNOMIAL_F32;
    float low = -fabsf(x), t = low * LS_INVERSE_LN2_F32 + LS_ROUND_F32, k = t - LS_ROUND_F32;
    float r = (low - k * LS_LN2_HI_F32) - k * LS_LN2_LO_F32, q = c[5];
    for (int i = 4; i >= 0; i--)
        q = q * r + c[i];
    float square = r * r, e = 1 + (r + square * q);
    uint32_t bits, exponent;
    memcpy(&bits, &e, sizeof(bits));
    memcpy(&exponent, &t, sizeof(exponent));
    bits += exponent << 23; /* times 2^k */
    memcpy(&e, &bits, sizeof(e));
    e = low < -86 ? 0 : e;
    return (x < 0 ? e : 1) / (1 + e);
}

/* 1 - erf(z) for z >= 0 */
static inline double wide_erfc(double z)
{
    static const double c[] = LS_ERFC_POLYNOMIAL;
    z = z > 40 ? 40 : z; /* exp(-1600) is 0 */
    double t = (z - 4) / (z + 4);
    return wide_exp(-(z * z)) * POLYNOMIAL(c, t) / (1 + 2 * z);
}

static inline double wide_erf(double x)
{
    static const double c[] = LS_ERF_POLYNOMIAL;
    if (fabs(x) < 0.5)
        return LS_2_BY_ROOT_PI * x * POLYNOMIAL(c, x * x);
    return copysign(1 - wide_erfc(fabs(x)), x);
}

/* without the cancellation of 1 + erf far below 0 */
static inline double wide_gelu(double x)
{
    double tail = 0.5 * wide_erfc(fabs(x) * LS_ROOT_HALF);
    return x * (x < 0 ? tail : 1 - tail);
}

/* 0.5 x (1 + tanh(u)) = x sigmoid(2u) */
static inline double wide_gelu_tanh(double x)
{
    return x * wide_sigmoid(LS_2_ROOT_2_BY_PI * (x + 0.044715 * x * x * x));
}

#elif defined(LS_REAL_F64)

#define wide_exp   ls_exp
#define wide_expm1 ls_expm1
#define wide_log   ls_log
#define wide_log1p ls_log1p
#define wide_tanh  ls_tanh
#define wide_erf   ls_erf

static inline double wide_sigmoid(double x)
{
    double e = ls_exp(-fabs(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

#define slope_sigmoid wide_sigmoid

static inline double wide_gelu(double x)
{
    return 0.5 * x * (1 + ls_erf(x * LS_ROOT_HALF));
}

static inline double wide_gelu_tanh(double x)
{
    return 0.5 * x * (1 + ls_tanh(0.5 * LS_2_ROOT_2_BY_PI * (x + 0.044715 * x * x * x)));
}

#endif

#endif
