/* Functions of one float, rounded once; s and t are attributes of the op. Used by kernels of single
 * nodes and of chains. */
#define ONE(name, expression)                                                                                          \
    FUNCTION float one_##name(float x, double s, double t)                                                             \
    {                                                                                                                  \
        return (float)(expression);                                                                                    \
    }
ONE(sqrt, ROOT(x))
ONE(leaky_relu, x > 0 ? x : (float)s * x)
ONE(capped_relu, x <= 0 ? 0 : x > (float)s ? (float)s : x)
ONE(clip, (x < (float)s ? (float)s : x) > (float)t ? (float)t : (x < (float)s ? (float)s : x))
ONE(exp, wide_exp(x))
ONE(log, wide_log(x))
ONE(rsqrt, 1 / sqrt((double)x))
ONE(erf, wide_erf(x))
ONE(tanh, wide_tanh(x))
ONE(sigmoid, wide_sigmoid(x))
ONE(softplus, (x > 0 ? x : 0) + wide_log1p(wide_exp(-magnitude(x))))
ONE(silu, x *wide_sigmoid(x))
ONE(gelu, wide_gelu(x))
ONE(gelu_tanh, wide_gelu_tanh(x))
ONE(elu, x > 0 ? x : (float)((double)(float)s * wide_expm1(x)))
#define ALL_ONE(X)                                                                                                     \
    X(sqrt) X(leaky_relu) X(capped_relu) X(clip) X(exp) X(log) X(rsqrt) X(erf) X(tanh) X(sigmoid) X(softplus) X(silu)  \
    X(gelu) X(gelu_tanh) X(elu)

/* The sigmoid in float32, each operation rounded, for gradients; NaN gives any number. */
FUNCTION float slope_sigmoid(float x)
{
    const float c[] = LS_EXP_POLYNOMIAL_F32;
    float low = x < 0 ? x : -x;
    float t = low * LS_INVERSE_LN2_F32 + LS_ROUND_F32, k = t - LS_ROUND_F32;
    float r = (low - k * LS_LN2_HI_F32) - k * LS_LN2_LO_F32, q = c[5];
    for (int i = 4; i >= 0; i--)
        q = q * r + c[i];
    float square = r * r, e = 1 + (r + square * q);
    bool tiny = !(low >= -86.0f); /* also NaN */
    e = tiny ? 0 : TO_FLOAT((double)e * NUMBER_OF((u64)((i64)(tiny ? 0 : k) + 1023) << 52)); /* times 2^k */
    return DIVIDE(x < 0 ? e : 1.0f, 1 + e);
}

/* The gradient of silu, each operation rounded. */
FUNCTION float silu_grad_of(float dy, float x)
{
    float s = slope_sigmoid(x), product = x * s;
    float curve = product * (1 - s);
    return dy * (s + curve);
}
