/* Optimizers: a spec and gradients become one tensor; running it updates every variable. The order
 * is Keras's: accumulate, clip, decay weights, update. Gradients are joined over all samples and
 * devices, so norms are those of the whole batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/text.h"
#include "graph/claim.h"
#include "graph/rules.h"
#include "graph/shared_weights.h"
#include "nn/constraint.h"
#include "nn/optimizer.h"
#include "nn/optimizer_nodes.h"
#include "nn/optimizer_spec.h"
#include "nn/parts.h"

/* ---- One call ---- */

typedef struct slot_set {
    ls_tensor *slot[2];
    ls_tensor *average; /* with use_ema */
    /* accumulation: sum becomes keep * sum + samples * gradient */
    ls_tensor *sum, *gradient, *samples, *keep;
    ls_tensor *rate; /* with the variable's factor */
} slot_set;

typedef struct application {
    ls_graph *graph;
    ls_recipe r;
    char *name;
    bool again;                         /* the graph already has the optimizer's state */
    ls_tensor **gradients, **variables; /* only pairs with a gradient */
    slot_set *state;
    size_t count;
    ls_tensor *iterations, *position, *samples; /* position and samples: accumulation only */
    ls_tensor *rate[2], *step[2];               /* for float32 and float64 variables */
    /* Accumulation: bool scalar, this batch completes an update. NULL: every batch does. */
    ls_tensor *last;
    /* Accumulation: number of samples of these gradients. NULL: counted in the run. */
    ls_tensor *batch_samples;
    ls_tensor **all; /* the state, in creation order */
    size_t all_count;
    ls_tensor **parts;
    size_t part_count;
} application;

static void add_part(application *app, ls_tensor *part)
{
    app->parts[app->part_count++] = part;
}

static int by_type(const ls_tensor *variable)
{
    return variable->dtype == LS_F64;
}

static ls_status check_variable(const application *app, size_t i, ls_tensor *gradient, ls_tensor *variable)
{
    char label[LS_NODE_TEXT], a[LS_SHAPE_TEXT], b[LS_SHAPE_TEXT];
    if (!variable)
        return ls_fail(LS_ERR_INVALID, "variable %zu is NULL", i);
    if (variable->op == LS_OP_ERROR)
        return ls_fail(variable->status, "%s", variable->message);
    if (variable->op != LS_OP_variable || !ls_dtype_is_real(variable->dtype))
        return ls_fail(LS_ERR_INVALID, "%s is not a variable of type float32 or float64",
                       ls_node_label(variable, label));
    if (variable->graph != app->graph || (gradient && gradient->graph && gradient->graph != app->graph))
        return ls_fail(LS_ERR_INVALID, "%s or its gradient belongs to another graph", ls_node_label(variable, label));
    if (!gradient)
        return LS_OK;
    if (gradient->op == LS_OP_ERROR)
        return ls_fail(gradient->status, "%s", gradient->message);
    if (gradient->per_sample || gradient->dtype != variable->dtype ||
        !ls_shape_equal(&gradient->shape, &variable->shape))
        return ls_fail(LS_ERR_SHAPE, "%s is %s %s, but its gradient is %s %s", ls_node_label(variable, label),
                       ls_dtype_name(variable->dtype), ls_shape_format(&variable->shape, a),
                       ls_dtype_name(gradient->dtype), ls_shape_format(&gradient->shape, b));
    return LS_OK;
}

static ls_status choose_pairs(application *app, ls_tensor *const *gradients, ls_tensor *const *variables, size_t count)
{
    char label[LS_NODE_TEXT];
    for (size_t i = 0; i < count; i++) {
        LS_TRY(check_variable(app, i, gradients[i], variables[i]));
        if (!gradients[i]) {
            ls_spec_warn(app->graph, "%s: %s has no gradient and does not change", app->name,
                         ls_node_label(variables[i], label));
            continue;
        }
        app->gradients[app->count] = gradients[i];
        app->variables[app->count++] = variables[i];
    }
    if (app->count == 0)
        return ls_fail(LS_ERR_INVALID, "none of %zu variables has a gradient", count);
    return LS_OK;
}

static ls_status allocate(application *app, size_t count)
{
    size_t room = count ? count : 1;
    app->gradients = calloc(room, sizeof(*app->gradients));
    app->variables = calloc(room, sizeof(*app->variables));
    app->state = calloc(room, sizeof(*app->state));
    /* Per variable: variable, its constraint, two slots, average, sum; then step, position,
     * samples. */
    app->parts = calloc(room * 6 + 3, sizeof(*app->parts));
    /* Per variable: two slots, average, sum; then step, position, samples. */
    app->all = calloc(room * 4 + 3, sizeof(*app->all));
    if (!app->gradients || !app->variables || !app->state || !app->parts || !app->all)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu variables", count);
    return LS_OK;
}

static void release(application *app)
{
    free(app->name);
    free(app->gradients);
    free(app->variables);
    free(app->state);
    free(app->parts);
    free(app->all);
}

/* ---- State ---- */

/* State with a name given by the user is reused; without one, each call creates new state. */
static ls_status choose_name(application *app, const ls_optimizer *optimizer)
{
    const char *given = optimizer->options.name;
    if (!given)
        return ls_free_name(app->graph, app->r.info->name, "iterations", &app->name);
    ls_text name = { 0 };
    char *step = NULL;
    ls_tensor *found = NULL;
    ls_text_put(&name, given);
    LS_TRY(ls_text_take(&name, &app->name));
    LS_TRY(ls_state_name(given, NULL, "iterations", &step));
    app->again = ls_graph_find(app->graph, step, &found) == LS_OK;
    free(step);
    return LS_OK;
}

/* Finds or creates the variable "<optimizer>/<of>/<what>". */
static ls_status get_state(application *app, const char *of, const char *what, ls_dtype dtype, ls_shape shape,
                           double start, ls_tensor **out)
{
    char *name = NULL;
    ls_tensor *found = NULL;
    LS_TRY(ls_state_name(app->name, of, what, &name));
    bool old = app->again && ls_graph_find(app->graph, name, &found) == LS_OK;
    if (!old)
        found = ls_state_variable(app->graph, name, dtype, shape, start);
    ls_status status = LS_OK;
    if (ls_tensor_is_error(found))
        status = ls_fail(found->status, "%s", found->message);
    else if (found->op != LS_OP_variable || found->dtype != dtype || !ls_shape_equal(&found->shape, &shape))
        status =
            ls_fail(LS_ERR_INVALID, "\"%s\" exists, but does not belong to this optimizer; choose another .name", name);
    free(name);
    *out = found;
    app->all[app->all_count++] = found;
    return status;
}

static ls_status get_slots(application *app, size_t i)
{
    const ls_tensor *v = app->variables[i];
    char number[32];
    snprintf(number, sizeof(number), "variable_%u", v->attr.variable.variable->number);
    const char *of = v->name ? v->name : number;
    int slots = app->r.way == LS_BY_MUON && ls_muon_takes(&app->r, v) ? 1 : app->r.slot_count;
    for (int s = 0; s < slots; s++)
        LS_TRY(get_state(app, of, app->r.info->slots[s], v->dtype, v->shape, s == 0 ? app->r.start : 0,
                         &app->state[i].slot[s]));
    if (app->r.ema_momentum >= 0)
        LS_TRY(get_state(app, of, "average", v->dtype, v->shape, 0, &app->state[i].average));
    if (app->r.every > 1)
        LS_TRY(get_state(app, of, "gradient_accumulator", v->dtype, v->shape, 0, &app->state[i].sum));
    return LS_OK;
}

/* Slots first, step last: the order in which the state is hashed. */
static ls_status get_all_state(application *app)
{
    for (size_t i = 0; i < app->count; i++)
        LS_TRY(get_slots(app, i));
    if (app->r.every > 1) {
        LS_TRY(get_state(app, NULL, "accumulated_batches", LS_I64, LS_SCALAR, 0, &app->position));
        LS_TRY(get_state(app, NULL, "accumulated_samples", LS_I64, LS_SCALAR, 0, &app->samples));
    }
    return get_state(app, NULL, "iterations", LS_I64, LS_SCALAR, 0, &app->iterations);
}

/* ---- Learning rate and step ---- */

/* NULL: a constant rate. With a schedule it is an input that must be fed. */
static ls_status find_rate(application *app, ls_tensor *given, ls_tensor **out)
{
    *out = given;
    if (given && given->op == LS_OP_ERROR)
        return ls_fail(given->status, "%s", given->message);
    if (given && (given->graph != app->graph || given->shape.rank != 0 || !ls_dtype_is_real(given->dtype)))
        return ls_fail(LS_ERR_SHAPE, "the learning rate must be a float scalar of the same graph");
    if (given || !app->r.scheduled)
        return LS_OK;
    char *name = NULL;
    ls_status status = LS_OK;
    LS_TRY(ls_state_name(app->name, NULL, "learning_rate", &name));
    if (!(app->again && ls_graph_find(app->graph, name, out) == LS_OK)) {
        *out = ls_op_input(app->graph, NULL, LS_F32, LS_SCALAR);
        status = ls_name_state(*out, name);
    }
    free(name);
    return status;
}

static double factor_of(const ls_tensor *variable)
{
    double factor = variable->attr.variable.variable->rate;
    return factor == 0 ? 1 : factor;
}

/* Variables of the same type and factor share a node. */
static ls_tensor *rate_of(const application *app, size_t i)
{
    const ls_tensor *v = app->variables[i];
    double factor = factor_of(v);
    if (factor == 1)
        return app->rate[by_type(v)];
    for (size_t k = 0; k < i; k++)
        if (app->variables[k]->dtype == v->dtype && factor_of(app->variables[k]) == factor)
            return app->state[k].rate;
    return ls_op_scale(app->rate[by_type(v)], factor);
}

static ls_status make_rates(application *app, ls_tensor *given)
{
    static const ls_dtype types[] = { LS_F32, LS_F64 };
    ls_tensor *rate = NULL, *step = ls_op_shift(app->iterations, 1);
    LS_TRY(find_rate(app, given, &rate));
    for (size_t i = 0; i < app->count; i++) {
        int t = by_type(app->variables[i]);
        if (!app->rate[t]) {
            app->rate[t] = rate ? ls_op_cast(rate, types[t]) : ls_op_scalar(app->graph, types[t], app->r.rate);
            app->step[t] = ls_op_cast(step, types[t]);
        }
        app->state[i].rate = rate_of(app, i);
    }
    return LS_OK;
}

/* ---- Accumulation ---- */

static ls_status has_batch(application *app, bool *out)
{
    ls_tensor **order = NULL;
    size_t count = 0;
    LS_TRY(ls_graph_order(app->graph, app->gradients, app->count, NULL, NULL, &order, &count));
    *out = false;
    for (size_t i = 0; i < count && !*out; i++)
        *out = order[i]->per_sample || order[i]->op == LS_OP_count;
    free(order);
    return LS_OK;
}

static ls_tensor *integer(const application *app, int64_t value)
{
    return ls_op_scalar(app->graph, LS_I64, (double)value);
}

static ls_tensor *when_last(const application *app, ls_tensor *done, ls_tensor *not_yet)
{
    return ls_op_select(app->last, done, not_yet);
}

/* Replaces gradients by means over all samples since the last update, so that batches may differ in
 * size. Gradients that depend on no batch count as one sample. The next batch, not the update,
 * resets the sums. */
static ls_status accumulate(application *app)
{
    bool counted = false;
    if (!app->batch_samples)
        LS_TRY(has_batch(app, &counted));
    ls_tensor *n = counted ? ls_op_count(app->graph, LS_I64) : integer(app, 1), *zero = integer(app, 0);
    n = app->batch_samples ? app->batch_samples : n;
    ls_tensor *is_first = ls_op_compare(app->position, LS_EQUAL, zero);
    ls_tensor *total = ls_op_add(ls_op_select(is_first, zero, app->samples), n);
    app->last = ls_op_compare(app->position, LS_EQUAL, integer(app, app->r.every - 1));
    for (size_t i = 0; i < app->count; i++) {
        slot_set *s = &app->state[i];
        s->gradient = app->gradients[i];
        s->samples = ls_op_cast(n, s->sum->dtype);
        s->keep = ls_op_select(is_first, ls_scalar_like(s->sum, 0), ls_scalar_like(s->sum, 1));
        ls_tensor *sum = ls_op_add(ls_op_mul(s->sum, s->keep), ls_op_mul(s->gradient, s->samples));
        app->gradients[i] = ls_op_div(sum, ls_op_cast(total, s->sum->dtype));
    }
    add_part(app, ls_op_assign(app->samples, total));
    add_part(app, ls_op_assign(app->position, when_last(app, zero, ls_op_shift(app->position, 1))));
    return LS_OK;
}

/* ---- Clipping ---- */

static ls_tensor *sum_of_squares(ls_tensor *gradient)
{
    return ls_op_reduce_sum(ls_op_square(ls_op_cast(gradient, LS_F64)), LS_ALL_AXES, false);
}

/* Returns most / norm if the norm is larger, else exactly 1. It is always finite, so that a
 * non-finite gradient does not spread and the run can name it. */
static ls_tensor *clip_factor(ls_tensor *norm, double most)
{
    ls_tensor *limit = ls_scalar_like(norm, most);
    return ls_op_select(ls_op_compare(norm, LS_GREATER, limit), ls_op_div(limit, norm), ls_scalar_like(norm, 1));
}

static ls_tensor *times(ls_tensor *gradient, ls_tensor *factor)
{
    return ls_op_mul(gradient, ls_op_cast(factor, gradient->dtype));
}

/* The norm before clipping can be fetched as "<optimizer>/global_norm". */
static ls_status clip_by_global_norm(application *app)
{
    char *name = NULL;
    ls_tensor *sum = sum_of_squares(app->gradients[0]);
    for (size_t i = 1; i < app->count; i++)
        sum = ls_op_add(sum, sum_of_squares(app->gradients[i]));
    ls_tensor *norm = ls_op_sqrt(sum), *factor = clip_factor(norm, app->r.global_clipnorm);
    for (size_t i = 0; i < app->count; i++)
        app->gradients[i] = times(app->gradients[i], factor);
    if (app->again)
        return LS_OK; /* registered by the first call */
    LS_TRY(ls_state_name(app->name, NULL, "global_norm", &name));
    ls_status status = ls_name_state(norm, name);
    free(name);
    return status;
}

static ls_status clip(application *app)
{
    if (app->r.global_clipnorm > 0)
        LS_TRY(clip_by_global_norm(app));
    for (size_t i = 0; i < app->count && app->r.clipnorm > 0; i++)
        app->gradients[i] =
            times(app->gradients[i], clip_factor(ls_op_sqrt(sum_of_squares(app->gradients[i])), app->r.clipnorm));
    for (size_t i = 0; i < app->count && app->r.clipvalue > 0; i++)
        app->gradients[i] = ls_op_clip(app->gradients[i], -app->r.clipvalue, app->r.clipvalue);
    return LS_OK;
}

ls_status ls_optimizer_clip(const ls_optimizer *optimizer, ls_tensor **gradients, size_t count)
{
    application app = { .again = true };
    size_t at = 0;
    LS_TRY(ls_optimizer_resolve(optimizer, &app.r));
    app.gradients = calloc(count + 1, sizeof(*app.gradients));
    if (!app.gradients)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu gradients", count);
    for (size_t i = 0; i < count; i++)
        if (gradients[i])
            app.gradients[app.count++] = gradients[i];
    ls_status status = app.count ? clip(&app) : LS_OK;
    for (size_t i = 0; i < count && status == LS_OK; i++)
        if (gradients[i])
            gradients[i] = app.gradients[at++];
    free(app.gradients);
    return status;
}

ls_optimizer ls_optimizer_without_clipping(ls_optimizer optimizer)
{
    ls_optimizer_options *o = &optimizer.options;
    o->clipvalue = o->clipnorm = o->global_clipnorm = 0;
    return optimizer;
}

/* ---- Updates ---- */

/* Returns whether this is update number N, 2 N, 3 N, ... */
static ls_tensor *is_every(application *app, int64_t every)
{
    ls_tensor *number = ls_op_cast(ls_op_shift(app->iterations, 1), LS_F64);
    ls_tensor *times = ls_op_cast(ls_op_div(number, ls_scalar_like(number, (double)every)), LS_I64);
    return ls_op_compare(ls_op_scale(ls_op_cast(times, LS_F64), (double)every), LS_EQUAL, number);
}

/* Adds the update of a variable's average, and returns the variable's new value. The first average
 * is the variable itself. */
static ls_tensor *average(application *app, size_t i, ls_tensor *updated)
{
    ls_tensor *old = app->state[i].average, *zero = ls_scalar_like(old, 0);
    ls_tensor *first = ls_op_compare(app->iterations, LS_EQUAL, integer(app, 0));
    ls_tensor *keep = ls_op_select(first, zero, ls_scalar_like(old, app->r.ema_momentum));
    ls_tensor *new = ls_op_add(ls_op_mul(keep, old), ls_op_mul(ls_op_sub(ls_scalar_like(old, 1), keep), updated));
    if (app->last)
        new = when_last(app, new, old);
    add_part(app, ls_op_assign(old, new));
    return app->r.ema_every ? ls_op_select(is_every(app, app->r.ema_every), new, updated) : updated;
}

/* Assigns slots that the rule does not write. */
static void write_slots(application *app, const ls_update_nodes *nodes)
{
    for (int s = 0; s < 2; s++)
        if (nodes->new_slot[s])
            add_part(app, ls_op_assign(nodes->slot[s], app->last ? when_last(app, nodes->new_slot[s], nodes->slot[s])
                                                                 : nodes->new_slot[s]));
}

/* Lamb, Muon, Ftrl with another power: nodes before plain descent. */
static void prepare(application *app, size_t i, ls_apply_op *apply)
{
    ls_update_nodes nodes = { .variable = app->variables[i],
                              .gradient = app->gradients[i],
                              .slot = { apply->slots[0], apply->slots[1] },
                              .rate = apply->learning_rate,
                              .step = apply->step,
                              .weight_decay = apply->weight_decay };
    if (app->r.way == LS_BY_LAMB)
        ls_lamb_nodes(&app->r, &nodes);
    else if (app->r.way == LS_BY_FTRL)
        ls_ftrl_nodes(&app->r, &nodes);
    else
        ls_muon_nodes(&app->r, &nodes);
    write_slots(app, &nodes);
    app->gradients[i] = nodes.direction;
    *apply = (ls_apply_op){ .rule = LS_APPLY_SGD,
                            .learning_rate = apply->learning_rate,
                            .weight_decay = apply->weight_decay,
                            .when = apply->when };
}

/* Muon's AdamW decays by the learning rate itself, without the ratio. */
static void use_adamw(const application *app, ls_apply_op *apply)
{
    double ratio = app->r.muon.adam_lr_ratio;
    apply->learning_rate = ls_op_scale(apply->learning_rate, ratio);
    apply->weight_decay = app->r.muon.adam_weight_decay / ratio;
}

static ls_apply_op rule_of(application *app, size_t i)
{
    const ls_tensor *v = app->variables[i];
    ls_apply_op apply = app->r.apply;
    bool by_muon = app->r.way == LS_BY_MUON;
    apply.learning_rate = app->state[i].rate;
    apply.step = app->step[by_type(v)];
    apply.slots[0] = app->state[i].slot[0];
    apply.slots[1] = app->state[i].slot[1];
    apply.when = app->last;
    if (by_muon && !ls_muon_takes(&app->r, v))
        use_adamw(app, &apply);
    if (ls_has_part_of(app->r.undecayed, v->name))
        apply.weight_decay = 0;
    if (app->r.way == LS_BY_LAMB || app->r.way == LS_BY_FTRL || (by_muon && ls_muon_takes(&app->r, v)))
        prepare(app, i, &apply);
    return apply;
}

static void update(application *app, size_t i)
{
    ls_tensor *v = app->variables[i];
    ls_apply_op apply = rule_of(app, i);
    ls_tensor *updated = ls_op_apply_with(v, app->gradients[i], apply), *value = updated;
    add_part(app, updated);
    if (app->state[i].average)
        value = average(app, i, updated);
    value = ls_constrain(value, &v->attr.variable.variable->constraint);
    if (value != updated)
        add_part(app, ls_op_assign(v, app->last ? when_last(app, value, updated) : value));
}

static void add_to_sum(application *app, const slot_set *s)
{
    add_part(app, ls_op_apply(s->sum, s->gradient, .rule = LS_APPLY_SUM, .learning_rate = s->samples, .step = s->keep));
}

static ls_status build(application *app, ls_tensor *learning_rate)
{
    LS_TRY(get_all_state(app));
    LS_TRY(make_rates(app, learning_rate));
    ls_tensor *one = integer(app, 1);
    if (app->r.every > 1)
        LS_TRY(accumulate(app));
    LS_TRY(clip(app));
    for (size_t i = 0; i < app->count; i++)
        update(app, i);
    /* After the updates, so that a bad gradient is reported by its weight's name. */
    for (size_t i = 0; i < app->count && app->last; i++)
        add_to_sum(app, &app->state[i]);
    add_part(app, ls_op_assign_add(app->iterations, app->last ? when_last(app, one, integer(app, 0)) : one));
    return LS_OK;
}

ls_tensor *ls_apply_gradients(ls_optimizer optimizer, ls_tensor *const *gradients, ls_tensor *const *variables,
                              size_t count, ls_tensor *learning_rate)
{
    LS_CLAIM_TO_BUILD(variables ? ls_graph_of(variables, (int)count) : NULL);
    return ls_apply_gradients_of(optimizer, gradients, variables, count, learning_rate, NULL);
}

ls_tensor *ls_apply_gradients_of(ls_optimizer optimizer, ls_tensor *const *gradients, ls_tensor *const *variables,
                                 size_t count, ls_tensor *learning_rate, ls_tensor *samples)
{
    LS_OWN_FP_MODE;
    application app = { .graph = variables && count ? ls_graph_of(variables, (int)count) : NULL,
                        .batch_samples = samples };
    ls_tensor *result = NULL;
    if (!app.graph)
        return NULL;
    ls_status status =
        gradients ? ls_optimizer_resolve(&optimizer, &app.r) : ls_fail(LS_ERR_INVALID, "the gradients are NULL");
    if (status == LS_OK)
        status = choose_name(&app, &optimizer);
    if (status == LS_OK)
        status = allocate(&app, count);
    if (status == LS_OK)
        status = choose_pairs(&app, gradients, variables, count);
    if (status == LS_OK)
        status = build(&app, learning_rate);
    result = status == LS_OK ? ls_op_group(app.parts, app.part_count)
                             : ls_node_error(app.graph, status, "ls_apply_gradients");
    release(&app);
    return result;
}

/* ---- State without updates ---- */

ls_status ls_optimizer_check(const ls_optimizer *optimizer)
{
    ls_recipe r;
    return ls_optimizer_resolve(optimizer, &r);
}

static ls_status make_all(application *app, const ls_optimizer *optimizer, ls_tensor *const *variables, size_t count)
{
    LS_TRY(ls_optimizer_resolve(optimizer, &app->r));
    LS_TRY(choose_name(app, optimizer));
    LS_TRY(allocate(app, count));
    for (size_t i = 0; i < count; i++) {
        LS_TRY(check_variable(app, i, NULL, variables[i]));
        app->variables[app->count++] = variables[i];
    }
    return get_all_state(app);
}

static ls_status list_averages(const application *app, ls_optimizer_state *out)
{
    if (app->r.ema_momentum < 0)
        return LS_OK;
    out->averaged = calloc(app->count + 1, sizeof(*out->averaged));
    out->averages = calloc(app->count + 1, sizeof(*out->averages));
    if (!out->averaged || !out->averages)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu averages", app->count);
    for (size_t i = 0; i < app->count; i++) {
        out->averaged[i] = app->variables[i];
        out->averages[i] = app->state[i].average;
    }
    out->average_count = app->count;
    return LS_OK;
}

ls_status ls_optimizer_state_make(const ls_optimizer *optimizer, ls_tensor *const *variables, size_t count,
                                  ls_optimizer_state *out)
{
    application app = { .graph = count ? ls_graph_of(variables, (int)count) : NULL };
    if (!app.graph)
        return ls_fail(LS_ERR_INVALID, "the graph has no trainable variable");
    ls_status status = make_all(&app, optimizer, variables, count);
    if (status == LS_OK) {
        *out = (ls_optimizer_state){ .name = app.name, .all = app.all, .count = app.all_count, .every = app.r.every };
        out->iterations = app.iterations;
        out->position = app.position;
        status = list_averages(&app, out);
        app.name = NULL;
        app.all = NULL;
    }
    release(&app);
    return status;
}

void ls_optimizer_state_free(ls_optimizer_state *state)
{
    free(state->name);
    free(state->all);
    free(state->averaged);
    free(state->averages);
    *state = (ls_optimizer_state){ .name = NULL };
}

static ls_status read_count(const ls_tensor *counter, int64_t *out)
{
    ls_variable *variable = counter->attr.variable.variable;
    LS_TRY(ls_variable_sync_to_host(variable));
    memcpy(out, variable->data, sizeof(*out));
    return LS_OK;
}

ls_status ls_optimizer_state_step(const ls_optimizer_state *state, int64_t *out)
{
    int64_t updates = 0, position = 0;
    if (state->iterations)
        LS_TRY(read_count(state->iterations, &updates));
    if (state->position)
        LS_TRY(read_count(state->position, &position));
    *out = updates * (state->every ? state->every : 1) + position;
    return LS_OK;
}

/* ---- Averages ---- */

static void exchange(char *a, char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

/* Before the first update there are no averages. */
static ls_status has_averages(const ls_optimizer_state *state, bool *out)
{
    int64_t updates = 0;
    if (state->average_count > 0)
        LS_TRY(read_count(state->iterations, &updates));
    *out = updates > 0;
    return LS_OK;
}

static ls_status bring_averages(const ls_optimizer_state *state)
{
    for (size_t i = 0; i < state->average_count; i++) {
        LS_TRY(ls_variable_sync_to_host(state->averaged[i]->attr.variable.variable));
        LS_TRY(ls_variable_sync_to_host(state->averages[i]->attr.variable.variable));
    }
    return LS_OK;
}

static ls_status begin_writes(const ls_optimizer_state *state)
{
    ls_graph *graph = state->iterations->graph;
    return ls_writes_begin(graph, graph->variables, graph->variable_count);
}

ls_status ls_optimizer_state_swap(ls_optimizer_state *state, bool averages)
{
    bool there = false;
    LS_TRY(has_averages(state, &there));
    if (!there || averages == state->swapped)
        return LS_OK;
    LS_TRY(bring_averages(state));
    LS_TRY(begin_writes(state));
    for (size_t i = 0; i < state->average_count; i++) {
        ls_variable *a = state->averaged[i]->attr.variable.variable, *b = state->averages[i]->attr.variable.variable;
        exchange(a->data, b->data, a->bytes);
        ls_variable_written(a, true);
        ls_variable_written(b, true);
    }
    ls_writes_end(state->iterations->graph);
    state->swapped = averages;
    return LS_OK;
}

ls_status ls_optimizer_state_finalize(ls_optimizer_state *state)
{
    bool there = false;
    LS_TRY(has_averages(state, &there));
    if (!there)
        return LS_OK;
    LS_TRY(bring_averages(state));
    LS_TRY(begin_writes(state));
    for (size_t i = 0; i < state->average_count; i++) {
        ls_variable *to = state->averaged[i]->attr.variable.variable;
        memcpy(to->data, state->averages[i]->attr.variable.variable->data, to->bytes);
        ls_variable_written(to, true);
    }
    ls_writes_end(state->iterations->graph);
    return LS_OK;
}

ls_status ls_optimizer_check_elementwise(const ls_optimizer *optimizer, ls_tensor *const *variables, size_t count)
{
    ls_recipe r;
    LS_TRY(ls_optimizer_resolve(optimizer, &r));
    const char *what = r.way != LS_BY_RULE   ? "norms or products of whole variables"
                       : r.undecayed         ? "exclude_from_weight_decay"
                       : r.ema_momentum >= 0 ? "use_ema"
                                             : NULL;
    for (size_t i = 0; i < count && !what; i++)
        what = variables[i]->attr.variable.variable->constraint.kind != LS_CONSTRAINT_NONE ? "constraints of variables"
               : factor_of(variables[i]) != 1 ? "rates of layers (ls_model_set_rate)"
                                              : NULL;
    if (!what)
        return LS_OK;
    return ls_fail(LS_ERR_UNSUPPORTED, "%s: asynchronous parameter servers do not support %s; set the staleness to 0",
                   r.info->name, what);
}

/* ---- Minimize ---- */

static ls_status find_gradients(ls_tensor *loss, ls_tensor **variables, ls_tensor **gradients, size_t *count)
{
    const ls_graph *graph = loss->graph;
    size_t trainable = 0, kept = 0;
    for (size_t i = 0; i < graph->variable_count; i++) {
        const ls_variable *v = graph->variables[i];
        if (v->trainable && v->node && ls_dtype_is_real(v->node->dtype))
            variables[trainable++] = v->node;
    }
    LS_TRY(ls_gradients(loss, variables, trainable, gradients));
    for (size_t i = 0; i < trainable; i++) {
        if (!gradients[i])
            continue;
        variables[kept] = variables[i];
        gradients[kept++] = gradients[i];
    }
    if (kept == 0)
        return ls_fail(LS_ERR_INVALID, "the loss depends on none of the graph's %zu trainable variables", trainable);
    *count = kept;
    return LS_OK;
}

ls_tensor *ls_minimize(ls_optimizer optimizer, ls_tensor *loss, const char *name)
{
    LS_CLAIM_TENSORS(loss);
    LS_OWN_FP_MODE;
    if (ls_tensor_is_error(loss))
        return loss;
    ls_graph *graph = loss->graph;
    size_t count = 0, room = graph->variable_count ? graph->variable_count : 1;
    ls_tensor **variables = calloc(room, sizeof(*variables)), **gradients = calloc(room, sizeof(*gradients));
    ls_status status = variables && gradients ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for %zu variables", room);
    if (status == LS_OK)
        status = find_gradients(loss, variables, gradients, &count);
    ls_tensor *step = status == LS_OK ? ls_apply_gradients(optimizer, gradients, variables, count, NULL)
                                      : ls_node_error(graph, status, "ls_minimize");
    free(variables);
    free(gradients);
    return name && !ls_tensor_is_error(step) ? ls_named(step, name) : step;
}
