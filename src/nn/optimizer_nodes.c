/* Lamb, Muon, and Ftrl with another power than its rule has, in Keras's order of operations.
 * Norms are summed in double, as in clipping. */
#include "nn/optimizer_nodes.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "graph/rules.h"

static ls_tensor *norm(ls_tensor *x)
{
    return ls_op_sqrt(ls_op_reduce_sum(ls_op_square(ls_op_cast(x, LS_F64)), LS_ALL_AXES, false));
}

/* 1 - beta^step, from double, in the variable's type. */
static ls_tensor *correction(const ls_update_nodes *u, double beta)
{
    ls_tensor *step = ls_op_cast(u->step, LS_F64), *power = ls_op_pow(ls_scalar_like(step, beta), step);
    return ls_op_cast(ls_op_sub(ls_scalar_like(power, 1), power), u->variable->dtype);
}

/* a + (b - a) (1 - beta) */
static ls_tensor *moved(ls_tensor *a, ls_tensor *b, double beta)
{
    return ls_op_add(a, ls_op_scale(ls_op_sub(b, a), 1 - beta));
}

/* |w| / |update|, or 1 where one of them is 0. The weight is the decayed one. */
static ls_tensor *trust_ratio(const ls_update_nodes *u, ls_tensor *update)
{
    ls_tensor *w = u->variable;
    if (u->weight_decay != 0)
        w = ls_op_sub(w, ls_op_mul(ls_op_scale(u->rate, u->weight_decay), w));
    ls_tensor *w_norm = norm(w), *g_norm = norm(update), *zero = ls_scalar_like(w_norm, 0);
    ls_tensor *one = ls_scalar_like(w_norm, 1), *has_g = ls_op_compare(g_norm, LS_GREATER, zero);
    ls_tensor *ratio = ls_op_div(w_norm, ls_op_select(has_g, g_norm, one));
    ls_tensor *has_w = ls_op_compare(w_norm, LS_GREATER, zero);
    return ls_op_cast(ls_op_select(has_w, ls_op_select(has_g, ratio, one), one), update->dtype);
}

void ls_lamb_nodes(const ls_recipe *r, ls_update_nodes *u)
{
    u->new_slot[0] = moved(u->slot[0], u->gradient, r->apply.beta_1);
    u->new_slot[1] = moved(u->slot[1], ls_op_square(u->gradient), r->apply.beta_2);
    ls_tensor *m = ls_op_div(u->new_slot[0], correction(u, r->apply.beta_1));
    ls_tensor *v = ls_op_div(u->new_slot[1], correction(u, r->apply.beta_2));
    ls_tensor *update = ls_op_div(m, ls_op_shift(ls_op_sqrt(v), r->apply.epsilon));
    u->direction = ls_op_mul(trust_ratio(u, update), update);
}

/* ---- Muon ---- */

bool ls_has_part_of(const char *list, const char *name)
{
    while (list && name && *list) {
        size_t length = strcspn(list, ",");
        for (const char *at = name; length > 0 && *at; at++)
            if (strncmp(at, list, length) == 0)
                return true;
        list += length + (list[length] == ',');
    }
    return false;
}

static bool is_embedding(const char *name)
{
    static const char word[] = "embedding";
    for (; name && *name; name++) {
        size_t i = 0;
        while (word[i] && tolower((unsigned char)name[i]) == word[i])
            i++;
        if (!word[i])
            return true;
    }
    return false;
}

bool ls_muon_takes(const ls_recipe *r, const ls_tensor *variable)
{
    return variable->shape.rank == 2 && (r->muon.embeddings || !is_embedding(variable->name)) &&
           !ls_has_part_of(r->muon.excluded, variable->name);
}

/* Makes the singular values of x close to 1: x = a x + (b A + c A A) x with A = x x'. */
static ls_tensor *newton_schulz(const ls_recipe *r, ls_tensor *x)
{
    bool tall = x->shape.dims[0] > x->shape.dims[1];
    if (tall)
        x = ls_op_transpose(x, LS_AXES(1, 0));
    x = ls_op_div(x, ls_op_cast(ls_op_shift(norm(x), 1e-7), x->dtype));
    for (int64_t i = 0; i < r->muon.steps; i++) {
        ls_tensor *a = ls_op_matmul(x, .b = x, .transpose_b = true);
        ls_tensor *b = ls_op_add(ls_op_scale(a, r->muon.b), ls_op_matmul(ls_op_scale(a, r->muon.c), .b = a));
        x = ls_op_add(ls_op_scale(x, r->muon.a), ls_op_matmul(b, .b = x));
    }
    return tall ? ls_op_transpose(x, LS_AXES(1, 0)) : x;
}

void ls_muon_nodes(const ls_recipe *r, ls_update_nodes *u)
{
    const int64_t *sides = u->variable->shape.dims;
    double longer = (double)(sides[0] > sides[1] ? sides[0] : sides[1]), momentum = r->apply.momentum;
    ls_tensor *m = ls_op_add(u->slot[0], ls_op_add(u->gradient, ls_op_scale(u->slot[0], momentum - 1)));
    ls_tensor *x = r->muon.nesterov ? ls_op_add(u->gradient, ls_op_scale(m, momentum)) : m;
    u->new_slot[0] = m;
    u->direction = newton_schulz(r, x);
    if (r->muon.rms_rate != 0)
        u->direction = ls_op_scale(u->direction, sqrt(longer) * r->muon.rms_rate);
}

/* ---- Ftrl ---- */

static ls_tensor *raised(ls_tensor *x, double power)
{
    return ls_op_pow(x, ls_scalar_like(x, power));
}

/* The direction leads from the decayed weight to the new one: (w - new) / rate. */
void ls_ftrl_nodes(const ls_recipe *r, ls_update_nodes *u)
{
    const ls_apply_op *o = &r->apply;
    ls_tensor *w = u->variable, *g = u->gradient;
    if (u->weight_decay != 0)
        w = ls_op_sub(w, ls_op_mul(ls_op_scale(u->rate, u->weight_decay), w));
    ls_tensor *sum = ls_op_add(u->slot[0], ls_op_square(g));
    ls_tensor *power = raised(sum, -r->ftrl_power), *before = raised(u->slot[0], -r->ftrl_power);
    ls_tensor *used = o->shrinkage != 0 ? ls_op_add(g, ls_op_scale(w, 2 * o->shrinkage)) : g;
    ls_tensor *pull = ls_op_mul(ls_op_div(ls_op_sub(power, before), u->rate), w);
    ls_tensor *linear = ls_op_add(u->slot[1], ls_op_sub(used, pull));
    ls_tensor *half = ls_op_div(ls_scalar_like(u->rate, o->beta / 2), u->rate);
    ls_tensor *strength = ls_op_scale(ls_op_shift(half, o->l2), 2);
    ls_tensor *quadratic = ls_op_add(ls_op_div(power, u->rate), strength);
    ls_tensor *fresh = ls_op_div(ls_op_sub(ls_op_clip(linear, -o->l1, o->l1), linear), quadratic);
    u->new_slot[0] = sum;
    u->new_slot[1] = linear;
    u->direction = ls_op_div(ls_op_sub(w, fresh), u->rate);
}
