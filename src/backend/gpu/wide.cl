/* Functions of doubles to the last bit, as in src/base/math.c, with the tables of
 * base/math_tables.h: powers, and what normal random numbers need. A number that needs more than 53
 * bits is a sum hi + lo. */
typedef struct wide {
    double hi, lo;
} wide;

FUNCTION wide wide_of(double hi, double lo)
{
    wide w;
    w.hi = hi;
    w.lo = lo;
    return w;
}

FUNCTION double power_of_two(int e)
{
    return NUMBER_OF((u64)(e + 1023) << 52);
}

FUNCTION double scaled(double x, int e)
{
    if (e >= -1021 && e <= 1021)
        return x * power_of_two(e);
    if (e > 0)
        return x * power_of_two(1021) * power_of_two(e - 1021);
    return x * power_of_two(-1021) * power_of_two(e + 1021);
}

FUNCTION wide sum_of(double a, double b)
{
    double s = a + b, b_part = s - a;
    return wide_of(s, (a - (s - b_part)) + (b - b_part));
}

FUNCTION wide sum_ordered(double a, double b)
{
    double s = a + b;
    return wide_of(s, b - (s - a));
}

FUNCTION wide product_of(double a, double b)
{
    double a_big = a * 0x1.0000002p27, b_big = b * 0x1.0000002p27;
    double a_hi = a_big - (a_big - a), b_hi = b_big - (b_big - b);
    double a_lo = a - a_hi, b_lo = b - b_hi, p = a * b;
    return wide_of(p, a_lo * b_lo - (((p - a_hi * b_hi) - a_lo * b_hi) - a_hi * b_lo));
}

FUNCTION wide exp_wide(double x, double tail, int *e)
{
    double k = x * INV_LN2_128 + LS_ROUND - LS_ROUND;
    double r = (x - k * LN2_128_HI) - k * LN2_128_LO + tail;
    int j = (int)k & 127;
    *e = ((int)k - j) / 128;
    double series = r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720))));
    double p = r + r * r * (0.5 + series);
    return sum_ordered(exp2_table[j][0], exp2_table[j][1] + exp2_table[j][0] * p);
}

/* log(x); x must be positive and normal. */
FUNCTION wide log_wide(double x)
{
    u64 bits = BITS_OF(x);
    int exponent = (int)(bits >> 52) - 1023, j = (int)(bits >> 45) & 127;
    if (j >= 48)
        exponent++;
    int k = exponent;
    u64 m_bits = (bits & (((u64)1 << 52) - 1)) | (u64)(j >= 48 ? 1022 : 1023) << 52;
    double m = NUMBER_OF(m_bits), m_hi = NUMBER_OF(m_bits & ~(u64)0xffffffff), c = log_table[j][0];
    wide r = sum_of(m_hi * c - 1.0, (m - m_hi) * c);
    double known = k * LN2_HI + log_table[j][1];
    wide first = sum_of(known, r.hi), square = product_of(r.hi, r.hi), second = sum_of(first.hi, -0.5 * square.hi);
    double z = r.hi;
    double series =
        1.0 / 3 +
        z * (-1.0 / 4 + z * (1.0 / 5 + z * (-1.0 / 6 + z * (1.0 / 7 + z * (-1.0 / 8 + z * (1.0 / 9 - z * 0.1))))));
    double small = z * square.hi * series + (k * LN2_LO + log_table[j][2]) - 0.5 * square.lo - z * r.lo + r.lo;
    return sum_ordered(second.hi, second.lo + (first.lo + small));
}

FUNCTION double wide_power(double x, double y)
{
    int e;
    if (magnitude(y) < 0x1p-66)
        return 1.0;
    wide l = log_wide(x), p = product_of(y, l.hi);
    if (p.hi > 710.0)
        return ENDLESS;
    if (p.hi < -746.0)
        return 0.0;
    wide result = exp_wide(p.hi, p.lo + y * l.lo, &e);
    return scaled(result.hi, e);
}

FUNCTION bool is_whole(double y)
{
    return magnitude(y) >= 0x1p52 || (double)(i64)y == y;
}

FUNCTION bool is_odd(double y)
{
    return magnitude(y) < 0x1p53 && (double)(i64)y == y && ((i64)y & 1) != 0;
}

/* x^y for x and y that are floats: none is subnormal as a double. */
FUNCTION double power(double x, double y)
{
    double a = magnitude(x), result;
    if (x == 1.0 || y == 0.0)
        return 1.0;
    if (IS_NAN(x) || IS_NAN(y))
        return NO_NUMBER;
    if (y == 1.0)
        return x;
    if (y == 2.0)
        return x * x;
    if (magnitude(y) == ENDLESS)
        return a == 1.0 ? 1.0 : (a > 1.0) == (y > 0.0) ? ENDLESS : 0.0;
    if (a == 0.0 || a == ENDLESS)
        result = (a == 0.0) == (y > 0.0) ? 0.0 : ENDLESS;
    else if (x < 0.0 && !is_whole(y))
        return NO_NUMBER;
    else
        result = a == 1.0 ? 1.0 : wide_power(a, y);
    return is_odd(y) ? with_sign_of(result, x) : result;
}

/* x = *quarter pi/2 + result, for x from 0 to 2 pi. */
FUNCTION wide reduce_angle(double x, int *quarter)
{
    double k = x * INV_HALF_PI + LS_ROUND - LS_ROUND;
    *quarter = (int)k & 3;
    wide first = sum_of(x - k * HALF_PI_1, -k * HALF_PI_2), second = sum_of(first.hi, -k * HALF_PI_3);
    return sum_ordered(second.hi, second.lo + first.lo);
}

FUNCTION double sin_small_angle(wide r)
{
    double z = r.hi * r.hi, p;
    HORNER(p, sin_small, z);
    return r.hi + (r.hi * z * p + r.lo * (1.0 - 0.5 * z));
}

FUNCTION double cos_small_angle(wide r)
{
    double z = r.hi * r.hi, p;
    HORNER(p, cos_small, z);
    wide head = sum_ordered(1.0, -0.5 * z);
    return head.hi + (head.lo + z * z * p - r.hi * r.lo);
}

/* sin(x + shift pi/2), for x from 0 to 2 pi. */
FUNCTION double sin_shifted(double x, int shift)
{
    int quarter;
    wide r = reduce_angle(x, &quarter);
    quarter = (quarter + shift) & 3;
    double value = quarter & 1 ? cos_small_angle(r) : sin_small_angle(r);
    return quarter & 2 ? -value : value;
}
