/* Elementary functions from additions, multiplications and divisions in one fixed order, so that
 * every compiler and machine with IEEE 754 doubles gives the same bits.
 *
 * Numbers that need more than 53 bits are a `wide`, a sum hi + lo. exp and log reduce their
 * argument to near 0 or 1 with a table (math_tables.h); after a short Taylor series the last
 * addition is almost the only rounding. The other functions use the wide forms of these two. fma is
 * not used: it is slow without hardware, and the compiler must not choose where to apply it. */
#include "base/math.h"

#include <float.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/math_tables.h"

#if FLT_EVAL_METHOD != 0
#error "doubles must be computed as doubles (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

#define INFINITE (0x1p1023 * 2.0)
#define ROUNDER  0x1.8p52 /* x + ROUNDER - ROUNDER is x rounded to an integer, |x| < 2^51 */

typedef struct wide {
    double hi, lo; /* lo| is at most half a unit in the last place of hi */
} wide;

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The one NaN used everywhere: 0/0 differs between compile time and run time. */
static double not_a_number(void)
{
    return from_bits(0x7ff8000000000000u);
}

static double magnitude(double x)
{
    return from_bits(bits_of(x) & ~(UINT64_C(1) << 63));
}

static double with_sign_of(double x, double sign)
{
    return from_bits(bits_of(magnitude(x)) | (bits_of(sign) & UINT64_C(1) << 63));
}

/* 2^e, e within -1022 .. 1023. */
static double power_of_two(int e)
{
    return from_bits((uint64_t)(e + 1023) << 52);
}

/* x 2^e for x within [1/2, 4), |e| <= 1100. Rounds at most once, if the result is subnormal. */
static double scale(double x, int e)
{
    if (e >= -1021 && e <= 1021)
        return x * power_of_two(e);
    if (e > 0)
        return x * power_of_two(1021) * power_of_two(e - 1021);
    return x * power_of_two(-1021) * power_of_two(e + 1021);
}

/* a + b exactly. */
static wide sum(double a, double b)
{
    double s = a + b;
    double b_part = s - a;
    return (wide){ s, (a - (s - b_part)) + (b - b_part) };
}

/* Same, if |a| >= |b| or a is 0. */
static wide sum_ordered(double a, double b)
{
    double s = a + b;
    return (wide){ s, b - (s - a) };
}

/* a b exactly, by Dekker's halves. If it overflows, or a or b is above 2^996, only hi is
 * correct. */
static wide product(double a, double b)
{
    double a_big = a * 0x1.0000002p27, b_big = b * 0x1.0000002p27;
    double a_hi = a_big - (a_big - a), b_hi = b_big - (b_big - b);
    double a_lo = a - a_hi, b_lo = b - b_hi;
    double p = a * b;
    return (wide){ p, a_lo * b_lo - (((p - a_hi * b_hi) - a_lo * b_hi) - a_hi * b_lo) };
}

/* c[0] + c[1] x + ... + c[n-1] x^(n-1). */
static inline double polynomial(const double *c, int n, double x)
{
    double value = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        value = value * x + c[i];
    return value;
}

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* exp(x + tail) = result 2^*e, hi within [0.99, 2.01), relative error about 2^-61, for |x| < 1000
 * and tiny |tail|. x = k ln2/128 + r with |r| <= ln2/256, and k = 128 e + j. */
static wide exp_wide(double x, double tail, int *e)
{
    double k = x * INV_LN2_128 + ROUNDER - ROUNDER;
    /* The difference in parentheses is exact. */
    double r = (x - k * LN2_128_HI) - k * LN2_128_LO + tail;
    int j = (int)k & 127;
    *e = ((int)k - j) / 128;
    double tail_of_series = r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720))));
    double p = r + r * r * (0.5 + tail_of_series);
    return sum_ordered(exp2_table[j][0], exp2_table[j][1] + exp2_table[j][0] * p);
}

double ls_exp(double x)
{
    if (x != x)
        return not_a_number();
    if (x > 710.0)
        return INFINITE;
    if (x < -746.0)
        return 0.0;
    int e;
    wide y = exp_wide(x, 0.0, &e);
    return scale(y.hi, e);
}

double ls_expm1(double x)
{
    if (x != x)
        return not_a_number();
    if (magnitude(x) < 0.25) {
        if (x == 0.0) /* keeps the sign of 0 */
            return x;
        return x + (x * x * 0.5 + x * x * x * polynomial(expm1_small, COUNT(expm1_small), x));
    }
    if (x > 60.0) /* the 1 is far below the last place */
        return ls_exp(x);
    if (x < -60.0)
        return -1.0;
    int e;
    wide y = exp_wide(x, 0.0, &e);
    double unit = power_of_two(e);
    wide less_one = sum(y.hi * unit, -1.0);
    return less_one.hi + (less_one.lo + y.lo * unit);
}

/* log(x + tail) for positive, finite x and |tail| at most a unit in its last place (0 unless x is
 * within 2^-60 .. 2^60): relative error about 2^-67. x = 2^k m, m near 1/c of the table; with r = m
 * c - 1, log = k ln2 - log(c) + log(1 + r). */
static wide log_wide(double x, double tail)
{
    uint64_t bits = bits_of(x);
    int k = 0;
    if (bits < UINT64_C(1) << 52) { /* subnormal; its tail is 0 */
        bits = bits_of(x * 0x1p54);
        k = -54;
    }
    int exponent = (int)(bits >> 52) - 1023;
    int j = (int)(bits >> 45) & 127;
    if (j >= 48)
        exponent++;
    k += exponent;
    uint64_t m_bits = (bits & ((UINT64_C(1) << 52) - 1)) | (uint64_t)(j >= 48 ? 1022 : 1023) << 52;
    double m = from_bits(m_bits);
    /* 21 bits; its product with c (10 bits) is exact. */
    double m_hi = from_bits(m_bits & ~UINT64_C(0xffffffff));
    double c = log_table[j][0];
    wide r = sum(m_hi * c - 1.0, (m - m_hi) * c);
    if (tail != 0.0)
        r = sum(r.hi, r.lo + tail * power_of_two(-exponent) * c);

    double known = k * LN2_HI + log_table[j][1]; /* exact: both are multiples of 2^-42 */
    wide first = sum(known, r.hi);
    wide square = product(r.hi, r.hi);
    wide second = sum(first.hi, -0.5 * square.hi);
    double z = r.hi;
    double series =
        1.0 / 3 +
        z * (-1.0 / 4 + z * (1.0 / 5 + z * (-1.0 / 6 + z * (1.0 / 7 + z * (-1.0 / 8 + z * (1.0 / 9 - z * 0.1))))));
    double small = z * square.hi * series + (k * LN2_LO + log_table[j][2]) - 0.5 * square.lo - z * r.lo + r.lo;
    return sum_ordered(second.hi, second.lo + (first.lo + small));
}

double ls_log(double x)
{
    if (!(x > 0.0)) /* also NaN */
        return x == 0.0 ? -INFINITE : not_a_number();
    if (x > DBL_MAX)
        return x;
    return log_wide(x, 0.0).hi;
}

double ls_log1p(double x)
{
    if (!(x > -1.0))
        return x == -1.0 ? -INFINITE : not_a_number();
    if (x > DBL_MAX)
        return x;
    if (magnitude(x) < 0x1p-54)
        return x;
    if (x > 0x1p60) /* the 1 is far below the last place */
        return log_wide(x, 0.0).hi;
    wide one_more = sum(1.0, x);
    return log_wide(one_more.hi, one_more.lo).hi;
}

/* tanh(x) = 1 - 2 / (exp(2 x) + 1), with a quotient of more than 53 bits because the subtraction
 * cancels. */
static double tanh_large(double x)
{
    int e;
    wide y = exp_wide(2.0 * x, 0.0, &e);
    double unit = power_of_two(e);
    wide below = sum(y.hi * unit, 1.0);
    below.lo += y.lo * unit;
    double q = 2.0 / below.hi;
    wide back = product(q, below.hi);
    double correction = ((2.0 - back.hi) - back.lo - q * below.lo) / below.hi;
    wide result = sum_ordered(1.0, -q);
    return result.hi + (result.lo - correction);
}

double ls_tanh(double x)
{
    if (x != x)
        return not_a_number();
    if (x == 0.0) /* keeps the sign of 0 */
        return x;
    double a = magnitude(x);
    if (a < 0.25)
        return x + x * x * x * polynomial(tanh_small, COUNT(tanh_small), x * x);
    return with_sign_of(a > 20.0 ? 1.0 : tanh_large(a), x);
}

double ls_erf(double x)
{
    if (x != x)
        return not_a_number();
    double a = magnitude(x);
    if (a < 0.5)
        return x + x * polynomial(erf_small, COUNT(erf_small), x * x);
    if (a >= 6.0)
        return with_sign_of(1.0, x);
    int j = (int)(a * 8.0);
    const double *row = erf_table[j - 4];
    double d = a - (j + 0.5) * 0.125;
    return with_sign_of(row[0] + (row[1] + d * polynomial(row + 2, 12, d)), x);
}

/* x^y for finite x > 0, x not 1, finite y not 0. */
static double pow_positive(double x, double y)
{
    if (magnitude(y) < 0x1p-66) /* 1 for every x; the product below would underflow */
        return 1.0;
    wide l = log_wide(x, 0.0);
    wide p = product(y, l.hi);
    if (p.hi > 710.0) /* p.lo may have overflowed to NaN */
        return INFINITE;
    if (p.hi < -746.0)
        return 0.0;
    double tail = p.lo + y * l.lo;
    int e;
    wide result = exp_wide(p.hi, tail, &e);
    return scale(result.hi, e);
}

static bool is_integer(double y)
{
    return magnitude(y) >= 0x1p52 || (double)(int64_t)y == y;
}

static bool is_odd(double y) /* all doubles from 2^53 on are even */
{
    return magnitude(y) < 0x1p53 && (double)(int64_t)y == y && ((int64_t)y & 1) != 0;
}

/* Special cases follow C99 F.9.4.4. */
double ls_pow(double x, double y)
{
    if (x == 1.0 || y == 0.0)
        return 1.0;
    if (x != x || y != y)
        return not_a_number();
    if (y == 1.0)
        return x;
    if (y == 2.0)
        return x * x;
    double a = magnitude(x);
    if (magnitude(y) > DBL_MAX) {
        if (a == 1.0)
            return 1.0;
        return (a > 1.0) == (y > 0.0) ? INFINITE : 0.0;
    }
    double result;
    if (a == 0.0 || a > DBL_MAX)
        result = (a == 0.0) == (y > 0.0) ? 0.0 : INFINITE;
    else if (x < 0.0 && !is_integer(y))
        return not_a_number();
    else
        result = a == 1.0 ? 1.0 : pow_positive(a, y);
    return is_odd(y) ? with_sign_of(result, x) : result;
}

/* x = *quarter pi/2 + result, |result| <= pi/4. |x| <= 1e5, so that two products are exact. */
static wide reduce_angle(double x, int *quarter)
{
    double k = x * INV_HALF_PI + ROUNDER - ROUNDER;
    *quarter = (int)k & 3;
    wide first = sum(x - k * HALF_PI_1, -k * HALF_PI_2);
    wide second = sum(first.hi, -k * HALF_PI_3);
    return sum_ordered(second.hi, second.lo + first.lo);
}

/* Sine and cosine to the first order in the lower part. */
static double sin_small_angle(wide r)
{
    double z = r.hi * r.hi;
    return r.hi + (r.hi * z * polynomial(sin_small, COUNT(sin_small), z) + r.lo * (1.0 - 0.5 * z));
}

static double cos_small_angle(wide r)
{
    double z = r.hi * r.hi;
    wide head = sum_ordered(1.0, -0.5 * z);
    return head.hi + (head.lo + z * z * polynomial(cos_small, COUNT(cos_small), z) - r.hi * r.lo);
}

/* sin(x + shift pi/2). */
static double sin_shifted(double x, int shift)
{
    int quarter;
    wide r = reduce_angle(x, &quarter);
    quarter = (quarter + shift) & 3;
    double value = quarter & 1 ? cos_small_angle(r) : sin_small_angle(r);
    return quarter & 2 ? -value : value;
}

double ls_sin(double x)
{
    if (!(magnitude(x) <= 1e5))
        return not_a_number();
    return x == 0.0 ? x : sin_shifted(x, 0);
}

double ls_cos(double x)
{
    if (!(magnitude(x) <= 1e5))
        return not_a_number();
    return sin_shifted(x, 1);
}
