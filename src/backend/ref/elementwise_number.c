/* Elementwise ops that also support integers, which wrap around. NaN wins every maximum and
 * minimum. */
#include "backend/ref/elementwise.h"

BINARY(add, (real_bits)a + (real_bits)b)
BINARY(sub, (real_bits)a - (real_bits)b)
BINARY(mul, (real_bits)a *(real_bits)b)
BINARY(maximum, real_max(a, b))
BINARY(minimum, real_min(a, b))

#if LS_REAL_IS_FLOAT
UNARY(neg, -x)
UNARY(abs, fabs(x))
#else
UNARY(neg, 0 - (real_bits)x)
UNARY(abs, x < 0 ? 0 - (real_bits)x : (real_bits)x)
#endif
UNARY(sign, x > 0 ? 1 : x < 0 ? -1 : x) /* zeros and NaN are kept */
UNARY(square, (real_bits)x *(real_bits)x)

static real from_double(double value)
{
#if LS_REAL_IS_FLOAT
    return (real)value;
#else
    return (real)ls_ref_to_integer(value, REAL_LOWEST, REAL_HIGHEST);
#endif
}

ls_status LS_REF(clip)(const ls_ref_call *call)
{
    const real *in = call->in[0].data;
    real *out = call->out.data;
    real low = from_double(call->node->attr.range.low), high = from_double(call->node->attr.range.high);
    for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++) {
        real x = in[i] < low ? low : in[i]; /* NaN fails both comparisons and is kept */
        out[i] = x > high ? high : x;
    }
    return LS_OK;
}

ls_status LS_REF(assign_add)(const ls_ref_call *call)
{
    const real *old = call->node->attr.variable.variable->data;
    const real *delta = call->in[0].data;
    real *out = call->out.data;
    for (int64_t i = 0, n = ls_ref_elements(&call->out); i < n; i++)
        out[i] = (real)((real_bits)old[i] + (real_bits)delta[i]);
    return LS_OK;
}

static bool holds(ls_relation relation, real a, real b)
{
    switch (relation) {
    case LS_EQUAL:
        return a == b;
    case LS_NOT_EQUAL:
        return a != b;
    case LS_LESS:
        return a < b;
    case LS_LESS_EQUAL:
        return a <= b;
    case LS_GREATER:
        return a > b;
    case LS_GREATER_EQUAL:
        return a >= b;
    }
    return false;
}

ls_status LS_REF(compare)(const ls_ref_call *call)
{
    ls_relation relation = (ls_relation)call->node->attr.relation.relation;
    uint8_t *out = call->out.data;
    ls_ref_walk walk;
    ls_ref_walk_broadcast(&walk, &call->out.shape, call->in, 2);
    while (ls_ref_walk_row(&walk)) {
        const real *a = (const real *)call->in[0].data + walk.offset[0];
        const real *b = (const real *)call->in[1].data + walk.offset[1];
        for (int64_t i = 0; i < walk.length; i++)
            *out++ = holds(relation, a[i * walk.step[0]], b[i * walk.step[1]]);
    }
    return LS_OK;
}
