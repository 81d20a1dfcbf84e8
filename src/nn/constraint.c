/* Constraints of variables, with Keras's formulas, made of ordinary ops. */
#include "nn/constraint.h"

#include "graph/rules.h"
#include "nn/parts.h"

#define EPSILON 1e-7 /* keras.config.epsilon() */

static double highest(const ls_constraint *c)
{
    return ls_spec_number(c->max_value, c->kind == LS_MAX_NORM ? 2 : 1);
}

ls_status ls_check_constraint(const char *name, const ls_constraint *c, int rank)
{
    bool ranged = c->kind == LS_MAX_NORM || c->kind == LS_MIN_MAX_NORM;
    double low = ls_spec_number(c->min_value, 0), rate = ls_spec_number(c->rate, 1);
    if ((unsigned)c->kind > LS_MIN_MAX_NORM)
        return ls_fail(LS_ERR_INVALID, "%s: there is no constraint number %d; use LS_MAX_NORM, ...", name,
                       (int)c->kind);
    if ((c->max_value != 0 && !ranged) || ((c->min_value != 0 || c->rate != 0) && c->kind != LS_MIN_MAX_NORM) ||
        (c->axis.count != 0 && (c->kind == LS_NON_NEG || c->kind == LS_CONSTRAINT_NONE)))
        return ls_fail(LS_ERR_INVALID,
                       "%s: max_value is %g, min_value %g and rate %g, with %d axes; this constraint does not have "
                       "all of them",
                       name, c->max_value, c->min_value, c->rate, c->axis.count);
    if (!(low >= 0 && highest(c) >= low && highest(c) <= 1e30 && rate >= 0 && rate <= 1))
        return ls_fail(LS_ERR_INVALID,
                       "%s: min_value is %g, max_value %g and rate %g; they must be at least 0, at least min_value, "
                       "and from 0 to 1",
                       name, low, highest(c), rate);
    for (int i = 0; i < c->axis.count && rank >= 0; i++)
        if (c->axis.axis[i] < -rank || c->axis.axis[i] >= rank)
            return ls_fail(LS_ERR_SHAPE, "%s: there is no axis %lld of %d axes", name, (long long)c->axis.axis[i],
                           rank);
    return LS_OK;
}

/* Scales w so that its norms become `wanted`. */
static ls_tensor *with_norms(ls_tensor *w, ls_tensor *norms, ls_tensor *wanted)
{
    return ls_op_mul(w, ls_op_div(wanted, ls_op_shift(norms, EPSILON)));
}

ls_tensor *ls_constrain(ls_tensor *w, const ls_constraint *c)
{
    if (c->kind == LS_CONSTRAINT_NONE || ls_tensor_is_error(w))
        return w;
    if (c->kind == LS_NON_NEG)
        return ls_op_relu(w);
    ls_axes axis = c->axis.count ? c->axis : LS_AXES(0);
    ls_tensor *norms = ls_op_sqrt(ls_op_reduce_sum(ls_op_square(w), axis, true));
    if (c->kind == LS_UNIT_NORM)
        return ls_op_div(w, ls_op_shift(norms, EPSILON));
    double rate = ls_spec_number(c->rate, 1);
    ls_tensor *wanted = ls_op_clip(norms, ls_spec_number(c->min_value, 0), highest(c));
    if (rate != 1)
        wanted = ls_op_add(ls_op_scale(wanted, rate), ls_op_scale(norms, 1 - rate));
    return with_norms(w, norms, wanted);
}
