/* Fused multiply-add of floats (a * b + c, rounded once) for processors without one. The product is
 * exact in double; the sum is rounded to odd, so that rounding it to float is the only rounding
 * that counts. It has no branches so that loops vectorize, and needs round-to-nearest and no
 * flush-to-zero (base/fpmode.h). */
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
    /* rest is exact, or NaN if the sum is not finite */
    double added = sum - product, rest = (product - (sum - added)) + ((double)c - added);
    int64_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    int64_t nearer_zero = (rest > 0) != (sum > 0), inexact = (rest > 0) | (rest < 0);
    bits += (1 - 2 * nearer_zero) & -(inexact & ~bits & 1);
    memcpy(&sum, &bits, sizeof(sum));
    return (float)sum;
#endif
}

#endif
