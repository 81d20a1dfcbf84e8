/* Updates of optimizers by the rules of graph/apply.def, which is inserted after the first half of
 * this file. One item computes the scalars once; the rules then run for each element, with every
 * operation rounded. */
typedef struct scalars {
    float rate, step, momentum, rho, epsilon, beta_1, beta_2;
    float one_minus_rho, one_minus_beta_1, one_minus_beta_2;
    float decay, alpha, alpha_g, correction;
    float l1, ftrl, twice_shrinkage;
    float keeps; /* if not 0, the update changes nothing */
} scalars;

/* ---- x^y as in src/base/math.c, for positive x and y, for the bias correction of Adam ---- */

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

/* x must be positive and normal. */
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

/* Needs x in (0, 1] and y of at least 0, like betas and steps. Otherwise the result is NaN, and so
 * is the update. */
FUNCTION double power(double x, double y)
{
    if (x == 1.0 || y == 0.0)
        return 1.0;
    if (x == 0.0 && y > 0.0)
        return 0.0;
    if (!(x > 0.0 && x < 1.0 && y > 0.0 && y < ENDLESS))
        return NO_NUMBER;
    if (y == 1.0)
        return x;
    if (y == 2.0)
        return x * x;
    if (y < 0x1p-66)
        return 1.0;
    int e;
    wide l = log_wide(x), p = product_of(y, l.hi);
    if (p.hi < -746.0)
        return 0.0;
    wide result = exp_wide(p.hi, p.lo + y * l.lo, &e);
    return scaled(result.hi, e);
}

/* As nadam_product of backend/ref/update_real.c. */
FUNCTION double nadam_product(double beta_1, double step, double *now, double *next)
{
    double product = 1.0, decay = 1.0, i = 1.0;
    for (; i <= step && i <= 1000.0; i += 1.0) {
        decay *= 0.96;
        *now = beta_1 * (1.0 - 0.5 * decay);
        product *= *now;
    }
    *next = beta_1 * (1.0 - 0.5 * (decay * 0.96));
    return i <= step ? product * power(beta_1, step - 1000.0) : product;
}

/* Rates with bias correction. */
FUNCTION void correct_bias(GLOBAL scalars *u, i64 corrects, float rate, float step, float beta_1, float beta_2)
{
    u->alpha = u->alpha_g = u->correction = 0;
    if (corrects == LS_CORRECTS_ADAM)
        u->alpha = TO_FLOAT(rate * sqrt(1 - power(beta_2, step)) / (1 - power(beta_1, step)));
    if (corrects == LS_CORRECTS_ADAMAX)
        u->alpha = TO_FLOAT(rate / (1 - power(beta_1, step)));
    if (corrects == LS_CORRECTS_NADAM) {
        double now = 0.0, next = 0.0, product = nadam_product(beta_1, step, &now, &next);
        u->alpha = TO_FLOAT(rate * next / (1 - product * next));
        u->alpha_g = TO_FLOAT(rate * (1 - now) / (1 - product));
        u->correction = TO_FLOAT(1 - power(beta_2, step));
    }
}

/* places: learning rate, step, predicate, scalars */
KERNEL_APART(update_scalars, 4)
{
    LANE(ls_gpu_update, p);
    if (ITEM(0) > 0 || p->n == 0)
        return;
    GLOBAL scalars *u = OUT(scalars, 3);
    float rate = IN(float, 0)[0], step = p->has_step ? IN(float, 1)[0] : 0;
    float beta_1 = (float)p->beta_1, beta_2 = (float)p->beta_2;
    u->rate = rate;
    u->step = step;
    u->momentum = (float)p->momentum;
    u->rho = (float)p->rho;
    u->epsilon = (float)p->epsilon;
    u->beta_1 = beta_1;
    u->beta_2 = beta_2;
    u->one_minus_rho = (float)(1 - p->rho);
    u->one_minus_beta_1 = (float)(1 - p->beta_1);
    u->one_minus_beta_2 = (float)(1 - p->beta_2);
    u->decay = rate * (float)p->weight_decay;
    u->l1 = (float)p->l1;
    u->ftrl = (float)p->beta / rate + (float)(2 * p->l2);
    u->twice_shrinkage = (float)(2 * p->shrinkage);
    correct_bias(u, p->corrects, rate, step, beta_1, beta_2);
    u->keeps = p->has_when && IN(u8, 2)[0] == 0 ? 1 : 0;
}

#define V             float
#define root(x)       ROOT(x)
#define magnitude(x)  fabs(x)
#define sign_of(x)    ((x) > 0 ? 1 : (x) < 0 ? -1 : (x))
#define larger(x, y)  LARGER(x, y)
#define smaller(x, y) SMALLER(x, y)
#define every(x)      (x)
#define STEP          1
#define NO_STEP       0
/* places: gradient, variable, slots, new variable, new slots, scalars */
#define RULE(id, slots, has_step, ...)                                                                                 \
    KERNEL(update_##id, 8)                                                                                             \
    {                                                                                                                  \
        LANE(ls_gpu_flat, p);                                                                                          \
        i64 i = ITEM(0);                                                                                               \
        if (i >= p->n)                                                                                                 \
            return;                                                                                                    \
        scalars all = *IN(scalars, 7);                                                                                 \
        const scalars *u = &all;                                                                                       \
        const bool momentum = u->momentum != 0;                                                                        \
        const int count = (slots);                                                                                     \
        V w = IN(V, 1)[i], g = IN(V, 0)[i], a = count > 0 ? IN(V, 2)[i] : 0, b = count > 1 ? IN(V, 3)[i] : 0;          \
        if (u->keeps == 0) {                                                                                           \
            if (u->decay != 0)                                                                                         \
                w = w - u->decay * w;                                                                                  \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
        (void)momentum;                                                                                                \
        OUT(V, 4)[i] = w;                                                                                              \
        if (count > 0)                                                                                                 \
            OUT(V, 5)[i] = a;                                                                                          \
        if (count > 1)                                                                                                 \
            OUT(V, 6)[i] = b;                                                                                          \
    }
