/* A fused multiply-add of floats, a * b + c rounded once, for processors that have none: the product of two floats is
 * exact in double; it is added rounded to odd, so that rounding to float afterwards is as if there had been one
 * rounding only. Without branches: loops over it become vectors. Needs rounding to nearest and no FTZ, as all our
 * arithmetic. */
#ifndef LS_BASE_FMA_H
#define LS_BASE_FMA_H

#include <stdint.h>
#include <string.h>

static inline float ls_fmaf(float a, float b, float c)
{
#ifdef __FP_FAST_FMAF
    return __builtin_fmaf(a, b, c);
#else
    double product = (double)a * (double)b, sum = product + (double)c;
    double added = sum - product, rest = (product - (sum - added)) + ((double)c - added); /* exact; NaN: not finite */
    int64_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    int64_t nearer_zero = (rest > 0) != (sum > 0), inexact = (rest > 0) | (rest < 0);
    bits += (1 - 2 * nearer_zero) & -(inexact & ~bits & 1);
    memcpy(&sum, &bits, sizeof(sum));
    return (float)sum;
#endif
}

#endif
