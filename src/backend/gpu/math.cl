/* Elementary functions of a float as docs/bits.md defines them: computed in double, each operation
 * rounded, as in backend/ref/functions.h, with the coefficients of the reference
 * (polynomials.h). */
TABLE double exp_c[] = LS_EXP_POLYNOMIAL;
TABLE double log_c[] = LS_LOG_POLYNOMIAL;
TABLE double log1p_c[] = LS_LOG1P_POLYNOMIAL;
TABLE double erf_c[] = LS_ERF_POLYNOMIAL;
TABLE double erfc_c[] = LS_ERFC_POLYNOMIAL;

#define HORNER(value, c, x)                                                                                            \
    do {                                                                                                               \
        const int last_ = (int)(sizeof(c) / sizeof(c[0])) - 1;                                                         \
        value = c[last_];                                                                                              \
        for (int i_ = last_ - 1; i_ >= 0; i_--)                                                                        \
            value = value * (x) + c[i_];                                                                               \
    } while (0)

FUNCTION double magnitude(double x)
{
    return NUMBER_OF(BITS_OF(x) & ~((u64)1 << 63));
}

FUNCTION double with_sign_of(double x, double sign)
{
    return NUMBER_OF(BITS_OF(magnitude(x)) | (BITS_OF(sign) & ((u64)1 << 63)));
}

FUNCTION double wide_exp(double x)
{
    double t = x * LS_INVERSE_LN2 + LS_ROUND, k = t - LS_ROUND;
    double r = (x - k * LS_LN2_HI) - k * LS_LN2_LO, p;
    HORNER(p, exp_c, r);
    double y = NUMBER_OF(BITS_OF(1 + r * p) + (BITS_OF(t) << 52)); /* times 2^k */
    return x > 700 ? ENDLESS : x < -700 ? 0 : y;
}

FUNCTION double wide_expm1(double x)
{
    if (magnitude(x) < 0x1p-7)
        return x * (1 + x * (0.5 + x * (1.0 / 6 + x * (1.0 / 24 + x * (1.0 / 120)))));
    return wide_exp(x) - 1;
}

FUNCTION double wide_log(double x)
{
    const u64 one = (u64)0x3ff0000000000000, low = (u64)0x3fe6a09e00000000;
    double p;
    if (x == 0)
        return -ENDLESS;
    if (!(x > 0 && x < ENDLESS))
        return x < 0 ? NO_NUMBER : x;
    u64 bits = BITS_OF(x) + (one - low);
    double k = (double)(i64)(bits >> 52) - 1023, f = NUMBER_OF((bits & (u64)0x000fffffffffffff) + low) - 1;
    double s = f / (2 + f), z = s * s;
    HORNER(p, log_c, z);
    return k * LS_LN2_HI + (2 * s + (2 * s * z * p + k * LS_LN2_LO));
}

FUNCTION double wide_log1p(double x)
{
    double p;
    HORNER(p, log1p_c, x);
    return x < 0x1p-7 ? x * p : wide_log(1 + x);
}

FUNCTION double wide_tanh(double x)
{
    if (magnitude(x) < 0x1p-7) {
        double square = x * x;
        return x * (1 + square * (-1.0 / 3 + square * (2.0 / 15)));
    }
    double e = wide_exp(-2 * magnitude(x));
    return with_sign_of((1 - e) / (1 + e), x);
}

FUNCTION double wide_sigmoid(double x)
{
    double e = wide_exp(-magnitude(x));
    return (x < 0 ? e : 1) / (1 + e);
}

FUNCTION double wide_erfc(double z)
{
    double p;
    z = z > 40 ? 40 : z;
    double t = (z - 4) / (z + 4);
    HORNER(p, erfc_c, t);
    return wide_exp(-(z * z)) * p / (1 + 2 * z);
}

FUNCTION double wide_erf(double x)
{
    double p;
    if (magnitude(x) < 0.5) {
        HORNER(p, erf_c, x * x);
        return LS_2_BY_ROOT_PI * x * p;
    }
    return with_sign_of(1 - wide_erfc(magnitude(x)), x);
}

FUNCTION double wide_gelu(double x)
{
    double tail = 0.5 * wide_erfc(magnitude(x) * LS_ROOT_HALF);
    return x * (x < 0 ? tail : 1 - tail);
}

FUNCTION double wide_gelu_tanh(double x)
{
    return x * wide_sigmoid(LS_2_ROOT_2_BY_PI * (x + 0.044715 * x * x * x));
}

/* Sums adjacent elements in 16 interleaved chains, then adds the upper half to the lower until one
 * is left. */
FUNCTION double interleaved_total(double *part)
{
    for (int half_ = 8; half_ > 0; half_ /= 2)
        for (int i = 0; i < half_; i++)
            part[i] += part[i + half_];
    return part[0];
}
