/* Updates of optimizers by the rules of graph/apply.def, which is inserted after the first half of
 * this file. One item computes the scalars once, with powers of wide.cl; the rules then run for
 * each element, with every operation rounded. */
typedef struct scalars {
    float rate, step, momentum, rho, epsilon, beta_1, beta_2;
    float one_minus_rho, one_minus_beta_1, one_minus_beta_2;
    float decay, alpha, alpha_g, correction;
    float l1, ftrl, twice_shrinkage;
    float keeps; /* if not 0, the update changes nothing */
} scalars;

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
