/* Optimizer updates by the rules of graph/apply.def. */
#include <string.h>

#include "backend/ref/array.h"
#include "backend/ref/real.h"
#include "backend/ref/update.h"

typedef LS_REF(update) scalars;

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
    };
    /* Keras rounds the betas to the variable's type before the power */
    if (ls_apply_step(node) >= 0)
        u.alpha = (real)(rate * sqrt(1 - ls_pow(u.beta_2, step)) / (1 - ls_pow(u.beta_1, step)));
    return u;
}

/* Old and new values may be at the same place. Slots that the rule does not have are NULL. */
typedef struct update {
    int64_t n;
    const real *g, *w, *slot[2];
    real *new_w, *new_slot[2];
} update;

#define V    real
#define root real_sqrt
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
