/* Chains: several elementwise nodes, each computed from the ones before it, as one kernel. The host
 * generates its source (chains.c) from the functions here. chain_steps runs any chain node by node,
 * for drivers whose compiler refuses that source. An item has a vector of each value. */

/* Loads elements from i on of an operand. Its period is n (the size of the output), 1 (one number),
 * or the length of a part that repeats, such as a bias. */
FUNCTION vec operand(GLOBAL const float *at, i64 period, i64 n, i64 i, i64 count)
{
    if (period == n)
        return load(at + i, count);
    if (period == 1)
        return (vec)at[0];
#if LS_VECTOR == 1
    return at[i % period];
#else
    if (period % LS_VECTOR == 0)
        return LOAD(at + i % period);
    float some[LS_VECTOR];
    for (int k = 0; k < LS_VECTOR; k++)
        some[k] = at[(i + k) % period];
    return LOAD(some);
#endif
}

/* A node is a function of two values, of which some use only the first, and of two attributes. */
#define CHAIN(name, expression)                                                                                        \
    FUNCTION vec chain_##name(vec a, vec b, double s, double t)                                                        \
    {                                                                                                                  \
        return expression;                                                                                             \
    }
CHAIN(add, a + b)
CHAIN(sub, a - b)
CHAIN(mul, a *b)
CHAIN(neg, -a)
CHAIN(square, a *a)
CHAIN(maximum, CHOOSE((a >= b) | (a != a), a, b))
CHAIN(minimum, CHOOSE((a <= b) | (a != a), a, b))
CHAIN(relu, CHOOSE(a <= (vec)0.0f, (vec)0.0f, a))
CHAIN(relu_grad, CHOOSE(b > (vec)0.0f, a, (float)s == 0 ? (vec)0.0f : (vec)(float)s *a))
CHAIN(capped_relu_grad, CHOOSE((b > (vec)0.0f) & (b <= (vec)(float)s), a, (vec)0.0f))

#if LS_VECTOR == 1
CHAIN(silu_grad, silu_grad_of(a, b))
#else
FUNCTION vec chain_silu_grad(vec a, vec b, double s, double t)
{
    float dy[LS_VECTOR], x[LS_VECTOR];
    STORE(a, dy);
    STORE(b, x);
    for (int k = 0; k < LS_VECTOR; k++)
        dy[k] = silu_grad_of(dy[k], x[k]);
    return LOAD(dy);
}
#endif

/* Applies the function to one number at a time. */
#if LS_VECTOR == 1
#define CHAIN_ONE(name) CHAIN(name, one_##name(a, s, t))
#else
#define CHAIN_ONE(name)                                                                                                \
    FUNCTION vec chain_##name(vec a, vec b, double s, double t)                                                        \
    {                                                                                                                  \
        float some[LS_VECTOR];                                                                                         \
        STORE(a, some);                                                                                                \
        for (int k = 0; k < LS_VECTOR; k++)                                                                            \
            some[k] = one_##name(some[k], s, t);                                                                       \
        return LOAD(some);                                                                                             \
    }
#endif
ALL_ONE(CHAIN_ONE)

#ifndef LS_CHAIN
/* places: operands, then stored values */
#define LOOK(k)                                                                                                        \
    if (p->inputs > k)                                                                                                 \
        value[k] = operand(IN(float, k), p->period[k], p->n, i, count);
#define KEEP(k)                                                                                                        \
    if (p->inputs <= k && k < p->inputs + p->outputs)                                                                  \
        store(value[p->kept[k]], OUT(float, k) + i, count);
#define CASE(name)                                                                                                     \
    case LS_CHAIN_##name:                                                                                              \
        value[at] = chain_##name(a, b, p->s[k], p->t[k]);                                                              \
        break;
KERNEL_APART(chain_steps, 8)
{
    LANE(ls_gpu_chain, p);
    i64 i = ITEM(0) * LS_VECTOR, count = p->n - i;
    vec value[LS_GPU_PLACES + LS_GPU_CHAIN];
    if (count <= 0)
        return;
    LOOK(0) LOOK(1) LOOK(2) LOOK(3) LOOK(4) LOOK(5) LOOK(6)
    for (i64 k = 0; k < p->steps; k++) {
        i64 at = p->inputs + k;
        vec a = value[p->from[k][0]], b = value[p->from[k][1]];
        switch ((int)p->op[k]) {
            LS_GPU_CHAIN_OPS(CASE)
        }
    }
    KEEP(1) KEEP(2) KEEP(3) KEEP(4) KEEP(5) KEEP(6) KEEP(7)
}
#endif
