/* The coefficients of the elementary functions of float32 (docs/bits.md), lowest power first: the
 * reference kernels (functions.h) and the vector kernels (backend/cpu/simd_math.inc) share them. */
#ifndef LS_BACKEND_REF_POLYNOMIALS_H
#define LS_BACKEND_REF_POLYNOMIALS_H

#define LS_LN2_HI         0x1.62e42feep-1 /* 32 bits: times an integer below 2^20 exact */
#define LS_LN2_LO         0x1.a39ef35793c76p-33
#define LS_INVERSE_LN2    0x1.71547652b82fep+0
#define LS_ROUND          0x1.8p52 /* x + LS_ROUND - LS_ROUND is x rounded to an integer, the low bits of x + LS_ROUND */
#define LS_ROOT_HALF      0x1.6a09e667f3bcdp-1
#define LS_2_BY_ROOT_PI   0x1.20dd750429b6dp+0
#define LS_2_ROOT_2_BY_PI 0x1.9884533d43651p+0 /* 2 sqrt(2 / pi) */

/* clang-format off */

/* exp(r) is 1 + r q(r), |r| <= ln2 / 2; q fitted with mpmath's chebyfit */
#define LS_EXP_POLYNOMIAL { \
    0x1.0000000000000p+0,  0x1.fffffffff71cfp-2,  0x1.5555555553b7dp-3,  0x1.5555557428e4ap-5,  0x1.1111111c45d9fp-7, \
    0x1.6c164df426e43p-10, 0x1.a019adabe6699p-13, 0x1.a15a4fc103094p-16, 0x1.72c720d005e4bp-19 }

/* In float32: exp(r) is 1 + (r + r^2 q(r)), |r| <= ln2 / 2; ln2 in two parts, the first of which
 * times an integer below 2^15 is exact */
#define LS_EXP_POLYNOMIAL_F32 { \
    5.0000001201e-1f, 1.6666665459e-1f, 4.1665795894e-2f, 8.3334519073e-3f, 1.3981999507e-3f, 1.9875691500e-4f }
#define LS_LN2_HI_F32      0.693359375f
#define LS_LN2_LO_F32      -2.12194440e-4f
#define LS_INVERSE_LN2_F32 1.44269504f
#define LS_ROUND_F32       12582912.0f /* 1.5 * 2^23 */

/* log(m) is 2 s + 2 s z q(z), s = (m - 1) / (m + 1), z = s^2 */
#define LS_LOG_POLYNOMIAL { 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15 }

/* log(1 + x) is x q(x), 0 <= x < 2^-7 */
#define LS_LOG1P_POLYNOMIAL { 1, -1.0 / 2, 1.0 / 3, -1.0 / 4, 1.0 / 5, -1.0 / 6, 1.0 / 7 }

/* erf(x) is 2 / sqrt(pi) x q(x^2), |x| < 0.5 */
#define LS_ERF_POLYNOMIAL { \
    1.0, -1.0 / 3, 1.0 / 10, -1.0 / 42, 1.0 / 216, -1.0 / 1320, 1.0 / 9360, -1.0 / 75600, 1.0 / 685440, -1.0 / 6894720 }

/* erfc(z) exp(z^2) (1 + 2 z) is q(t), t = (z - 4) / (z + 4) within [-1, 1]; fitted with mpmath's
 * chebyfit */
#define LS_ERFC_POLYNOMIAL { \
    0x1.3ba5916e9fd7fp+0,  -0x1.1df1ad10fffc5p-3,  0x1.f7f5df6460753p-7,   0x1.16ecee32b1620p-4,  -0x1.9ddb23b40d90bp-4, \
    0x1.7fee170a3964dp-4,  -0x1.0fb06ee258f31p-4,  0x1.3078cccfe645bp-5,   -0x1.0962211278512p-6, 0x1.49e5232e8e910p-8, \
    -0x1.8d55183977a42p-11, -0x1.a959efb4a2dbdp-13, 0x1.3c38e8183e6dep-13, -0x1.5559efb4785f3p-16, -0x1.7fa78b482ea0bp-17, \
    0x1.a381674578464p-19, 0x1.ec7a1c5ba5fabp-22 }

/* clang-format on */

#endif
