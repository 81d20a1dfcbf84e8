/* Optimizer updates by the rules of graph/apply.def. */
#include <string.h>

#include "backend/ref/array.h"
#include "backend/ref/real.h"
#include "backend/ref/update.h"

typedef LS_REF(update) scalars;

#define NADAM_DECAYS 1000 /* 0.96^1000 is below the last bit of 1 */

/* Product of u_1 to u_step, u_i = beta_1 (1 - 0.96^i / 2), and its last and next factors. Powers
 * are products, so that all devices round alike. */
static double nadam_product(double beta_1, double step, double *now, double *next)
{
    double product = 1, decay = 1, i = 1;
    for (; i <= step && i <= NADAM_DECAYS; i++) {
        decay *= 0.96;
        *now = beta_1 * (1 - 0.5 * decay);
        product *= *now;
    }
    *next = beta_1 * (1 - 0.5 * (decay * 0.96));
    return i <= step ? product * ls_pow(beta_1, step - NADAM_DECAYS) : product;
}

/* Keras rounds the betas to the variable's type before the power. */
static void correct_bias(ls_apply_rule rule, scalars *u)
{
    if (rule == LS_APPLY_ADAM)
        u->alpha = (real)(u->rate * sqrt(1 - ls_pow(u->beta_2, u->step)) / (1 - ls_pow(u->beta_1, u->step)));
    if (rule == LS_APPLY_ADAMAX)
        u->alpha = (real)(u->rate / (1 - ls_pow(u->beta_1, u->step)));
    if (rule == LS_APPLY_NADAM) {
        double now = 0, next = 0, product = nadam_product(u->beta_1, u->step, &now, &next);
        u->alpha = (real)(u->rate * next / (1 - product * next));
        u->alpha_g = (real)(u->rate * (1 - now) / (1 - product));
        u->correction = (real)(1 - ls_pow(u->beta_2, u->step));
    }
}

scalars LS_REF(update_scalars)(const ls_tensor *node, real rate, real step)
{
    double beta_1 = node->attr.apply.beta_1, beta_2 = node->attr.apply.beta_2, rho = node->attr.apply.rho;
    scalars u = {
        .rate = rate,
        .step = step,
        .momentum = (real)node->attr.apply.momentum,
        .rho = (real)rho,
        .epsilon = (real)node->attr.apply.epsilon,
        .beta_1 = (real)beta_1,
        .beta_2 = (real)beta_2,
        .one_minus_rho = (real)(1 - rho),
        .one_minus_beta_1 = (real)(1 - beta_1),
        .one_minus_beta_2 = (real)(1 - beta_2),
        .decay = rate * (real)node->attr.apply.weight_decay,
        .l1 = (real)node->attr.apply.l1,
        .ftrl = (real)node->attr.apply.beta / rate + (real)(2 * node->attr.apply.l2),
        .twice_shrinkage = (real)(2 * node->attr.apply.shrinkage),
    };
    correct_bias((ls_apply_rule)node->attr.apply.rule, &u);
    return u;
}

/* Old and new values may be at the same place. Slots that the rule does not have are NULL. */
typedef struct update {
    int64_t n;
    const real *g, *w, *slot[2];
    real *new_w, *new_slot[2];
} update;

#define V            real
#define root         real_sqrt
#define magnitude(x) ((real)fabs(x))
#define sign_of(x)   ((x) > 0 ? 1 : (x) < 0 ? -1 : (x))
#define larger       real_max
#define smaller      real_min
#define every(x)     (x)
#define RULE(id, slots, step, ...)                                                                                     \
    static void update_##id(const update *at, const scalars *u)                                                        \
    {                                                                                                                  \
        const bool momentum = u->momentum != 0;                                                                        \
        const int count = (slots);                                                                                     \
        (void)momentum;                                                                                                \
        for (int64_t i = 0; i < at->n; i++) {                                                                          \
            V w = at->w[i], g = at->g[i], a = count > 0 ? at->slot[0][i] : 0, b = count > 1 ? at->slot[1][i] : 0;      \
            if (u->decay != 0)                                                                                         \
                w = w - u->decay * w;                                                                                  \
            __VA_ARGS__;                                                                                               \
            at->new_w[i] = w;                                                                                          \
            if (count > 0)                                                                                             \
                at->new_slot[0][i] = a;                                                                                \
            if (count > 1)                                                                                             \
                at->new_slot[1][i] = b;                                                                                \
        }                                                                                                              \
    }
#include "graph/apply.def"
#undef RULE
#undef every
#undef smaller
#undef larger
#undef sign_of
#undef magnitude
#undef root
#undef V

static void keep(void *new, const void *old, int64_t n)
{
    if (new &&old &&new != old)
        memcpy(new, old, (size_t)n * sizeof(real));
}

/* in: gradient, learning rate [], step [] (if the rule needs one), bool [] predicate (if given) */
ls_status LS_REF(apply)(const ls_ref_call *call)
{
    const ls_tensor *node = call->node;
    int step = ls_apply_step(node), when = ls_apply_when(node);
    update at = {
        .n = ls_ref_elements(&call->out),
        .g = call->in[0].data,
        .w = call->state[0],
        .slot = { call->state[1], call->state[2] },
        .new_w = call->out.data,
        .new_slot = { call->slots[0], call->slots[1] },
    };
    if (when >= 0 && !*(const bool *)call->in[when].data) {
        keep(at.new_w, at.w, at.n);
        keep(at.new_slot[0], at.slot[0], at.n);
        keep(at.new_slot[1], at.slot[1], at.n);
        return LS_OK;
    }
    scalars u = LS_REF(update_scalars)(node, *(const real *)call->in[1].data,
                                       step >= 0 ? *(const real *)call->in[step].data : 0);
    switch ((ls_apply_rule)node->attr.apply.rule) {
#define RULE(id, slots, step, ...)                                                                                     \
    case LS_APPLY_##id:                                                                                                \
        update_##id(&at, &u);                                                                                          \
        break;
#include "graph/apply.def"
#undef RULE
    }
    return LS_OK;
}
