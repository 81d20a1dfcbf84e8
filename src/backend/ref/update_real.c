/* Optimizer updates: one node writes a variable and its slots. The formulas are those beside ls_apply_rule. */
#include "backend/ref/array.h"
#include "backend/ref/real.h"

/* Everything an update of n elements reads and writes; old values are read, new ones written elsewhere. */
typedef struct update {
    int64_t n;
    const real *g, *w, *slot[2];
    real *new_w, *new_slot[2];
    real rate, momentum, rho, one_minus_rho, epsilon;
    real decay; /* learning rate times weight decay */
} update;

static real decayed(const update *u, int64_t i)
{
    return u->decay != 0 ? u->w[i] - u->decay * u->w[i] : u->w[i];
}

static void sgd(const update *u)
{
    for (int64_t i = 0; i < u->n; i++)
        u->new_w[i] = decayed(u, i) - u->rate * u->g[i];
}

static void momentum(const update *u, bool nesterov)
{
    for (int64_t i = 0; i < u->n; i++) {
        real down = u->rate * u->g[i];
        real m = u->momentum * u->slot[0][i] - down;
        u->new_slot[0][i] = m;
        u->new_w[i] = decayed(u, i) + (nesterov ? u->momentum * m - down : m);
    }
}

static void adam(const update *u, double step, double beta1, double beta2)
{
    /* Keras rounds the betas to the variable's type before it raises them. */
    real alpha = (real)(u->rate * sqrt(1 - ls_pow((real)beta2, step)) / (1 - ls_pow((real)beta1, step)));
    real one_minus_beta1 = (real)(1 - beta1), one_minus_beta2 = (real)(1 - beta2);
    for (int64_t i = 0; i < u->n; i++) {
        real g = u->g[i], m = u->slot[0][i], v = u->slot[1][i];
        m += (g - m) * one_minus_beta1;
        v += (g * g - v) * one_minus_beta2;
        u->new_slot[0][i] = m;
        u->new_slot[1][i] = v;
        u->new_w[i] = decayed(u, i) - m * alpha / (real_sqrt(v) + u->epsilon);
    }
}

static void rmsprop(const update *u, bool tf1)
{
    bool has_momentum = tf1 || u->momentum != 0;
    for (int64_t i = 0; i < u->n; i++) {
        real g = u->g[i], v = u->slot[0][i];
        v = tf1 ? v + (g * g - v) * u->one_minus_rho : u->rho * v + u->one_minus_rho * (g * g);
        u->new_slot[0][i] = v;
        real down = u->rate * g / real_sqrt(v + u->epsilon);
        if (has_momentum) {
            down = u->momentum * u->slot[1][i] + down;
            u->new_slot[1][i] = down;
        }
        u->new_w[i] = decayed(u, i) - down;
    }
}

static void adagrad(const update *u)
{
    for (int64_t i = 0; i < u->n; i++) {
        real g = u->g[i], a = u->slot[0][i] + g * g;
        u->new_slot[0][i] = a;
        u->new_w[i] = decayed(u, i) - u->rate * g / real_sqrt(a + u->epsilon);
    }
}

/* in: gradient, learning rate [], step [] (Adam) */
ls_status LS_REF(apply)(const ls_ref_call *call)
{
    const ls_tensor *node = call->node;
    real rate = *(const real *)call->in[1].data;
    update u = {
        .n = ls_ref_elements(&call->out),
        .g = call->in[0].data,
        .w = call->state[0],
        .slot = { call->state[1], call->state[2] },
        .new_w = call->out.data,
        .new_slot = { call->slots[0], call->slots[1] },
        .rate = rate,
        .momentum = (real)node->attr.apply.momentum,
        .rho = (real)node->attr.apply.rho,
        .one_minus_rho = (real)(1 - node->attr.apply.rho),
        .epsilon = (real)node->attr.apply.epsilon,
        .decay = rate * (real)node->attr.apply.weight_decay,
    };
    switch ((ls_apply_rule)node->attr.apply.rule) {
    case LS_APPLY_SGD:
        sgd(&u);
        break;
    case LS_APPLY_MOMENTUM:
        momentum(&u, false);
        break;
    case LS_APPLY_NESTEROV:
        momentum(&u, true);
        break;
    case LS_APPLY_ADAM:
        adam(&u, *(const real *)call->in[2].data, node->attr.apply.beta1, node->attr.apply.beta2);
        break;
    case LS_APPLY_RMSPROP:
        rmsprop(&u, false);
        break;
    case LS_APPLY_RMSPROP_TF1:
        rmsprop(&u, true);
        break;
    case LS_APPLY_ADAGRAD:
        adagrad(&u);
        break;
    }
    return LS_OK;
}
