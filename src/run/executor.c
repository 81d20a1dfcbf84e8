/* Running a plan. Phases follow each other; the units of a phase are taken by whoever is free and allowed. A lane's
 * micro-batches go through a segment in order; a reduction's partial is stored by the first and joined by the next.
 * Nothing is allocated here while a run goes on. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "run/executor_private.h"
#include "run/join.h"
#include "run/partials.h"

#define SPINS 2000

/* ---- Where things are ---- */

char *ls_executor_locate(const ls_executor *e, const ls_operand *o, int worker, int lane, int64_t first)
{
    const ls_plan *plan = e->plan;
    size_t skip = o->per_sample ? o->unit * (size_t)first : 0;
    switch (o->home) {
    case LS_HOME_OUTSIDE:
        if (o->per_sample && e->outside[o->value].rows)
            return e->stage[worker] + plan->stage[o->value];
        return (char *)e->outside[o->value].data + skip;
    case LS_HOME_WHOLE:
        return e->whole + o->offset + skip;
    case LS_HOME_KEPT:
        return e->kept[o->offset * (size_t)plan->lanes + (size_t)lane] +
               o->unit * (size_t)(first - ls_lane_first(plan->batch, plan->lanes, lane));
    case LS_HOME_MICRO:
        return e->arena[worker] + o->offset;
    case LS_HOME_PARTIAL:
        return ls_partials_of(e, lane) + o->offset;
    }
    return NULL;
}

const void *ls_executor_operand(ls_executor *e, const ls_operand *operand)
{
    return ls_executor_locate(e, operand, 0, 0, 0);
}

void ls_executor_copy_value(ls_executor *e, int value, void *to)
{
    const ls_plan *plan = e->plan;
    const ls_operand *o = &plan->value_of[value];
    if (o->home != LS_HOME_KEPT) {
        memcpy(to, ls_executor_operand(e, o), o->unit * (o->per_sample ? (size_t)plan->batch : 1));
        return;
    }
    for (int lane = 0; lane < plan->lanes; lane++) { /* lanes may be on different devices */
        int64_t first = ls_lane_first(plan->batch, plan->lanes, lane);
        int64_t end = ls_lane_first(plan->batch, plan->lanes, lane + 1);
        if (end > first)
            memcpy((char *)to + o->unit * (size_t)first, ls_executor_locate(e, o, 0, lane, first),
                   o->unit * (size_t)(end - first));
    }
}

/* Behind a micro-batch's values; a plan that needs neither has no arena. */
static void *scratch_of(const ls_executor *e, int worker)
{
    return e->arena[worker] ? e->arena[worker] + e->plan->worker_bytes : NULL;
}

static ls_kernel_call call_for(ls_executor *e, const ls_step *step, int worker, int lane, int64_t first)
{
    for (int k = 0; k < step->group->in_count; k++)
        e->inputs[worker][k] = ls_executor_locate(e, &step->in[k], worker, lane, first);
    return (ls_kernel_call){ .in = e->inputs[worker],
                             .samples = 1,
                             .first = first,
                             .batch = e->plan->batch,
                             .seed = e->seed,
                             .run = e->run,
                             .worker = worker,
                             .scratch = scratch_of(e, worker) };
}

/* A kernel's message, with the node it was about. */
static ls_status explain(ls_status status, const ls_group *group)
{
    char label[LS_NODE_TEXT], message[512];
    if (status == LS_OK)
        return LS_OK;
    snprintf(message, sizeof(message), "%s", ls_last_error());
    return ls_fail(status, "%s (op %s): %s", ls_node_label(group->root, label), ls_tensor_op(group->root), message);
}

/* ---- Profile ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void charge(ls_executor *e, const ls_group *group, int worker, double start)
{
    e->group_seconds[(size_t)worker * (size_t)e->plan->group_count + (size_t)(group - e->plan->groups)] +=
        now() - start;
}

/* ---- Guards: with room behind every value, a kernel that writes too far is caught ---- */

#define GUARD_BYTE 0x5a

static ls_status run_guarded(ls_executor *e, ls_group *group, const ls_kernel_call *call, size_t bytes)
{
    if (!e->plan->options.guards)
        return group->kernel->run(group->kernel, call);
    unsigned char *guard = (unsigned char *)call->out + bytes;
    memset(guard, GUARD_BYTE, LS_ALIGN);
    LS_TRY(group->kernel->run(group->kernel, call));
    for (int i = 0; i < LS_ALIGN; i++)
        if (guard[i] != GUARD_BYTE)
            return ls_fail(LS_ERR_INTERNAL, "the kernel %s wrote behind its output", group->kernel->name);
    return LS_OK;
}

/* ---- Units ---- */

static ls_status run_whole_step(ls_executor *e, const ls_step *step, int worker, int64_t from, int64_t to)
{
    ls_kernel_call call = call_for(e, step, worker, 0, 0);
    void *slots[2] = { e->whole + step->slots[0], e->whole + step->slots[1] };
    call.out = ls_executor_locate(e, &step->out, worker, 0, 0);
    call.slots = slots;
    call.from = from;
    call.to = to;
    if (to > 0) /* a tile: what follows is another's */
        return explain(step->group->kernel->run(step->group->kernel, &call), step->group);
    return explain(run_guarded(e, step->group, &call, step->out.unit), step->group);
}

static ls_status run_update(ls_executor *e, const ls_step *step, int worker, int64_t from, int64_t to)
{
    const ls_attrs *attr = &step->group->root->attr;
    ls_kernel_call call = call_for(e, step, worker, 0, 0);
    void *slots[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++)
        if (attr->apply.slot[i])
            slots[i] = attr->apply.slot[i]->data;
    call.out = attr->apply.variable->data;
    call.slots = slots;
    call.from = from;
    call.to = to;
    return explain(step->group->kernel->run(step->group->kernel, &call), step->group);
}

/* A step for some samples of a lane. later: the lane's first micro-batch is done, partials are joined to it. */
static ls_status run_lane_step(ls_executor *e, const ls_step *step, int worker, int lane, int64_t first,
                               int64_t samples, bool later)
{
    ls_group *group = step->group;
    ls_kernel_call call = call_for(e, step, worker, lane, first);
    call.samples = samples;
    call.out = ls_executor_locate(e, &step->out, worker, lane, first);
    bool join = later && step->out.home == LS_HOME_PARTIAL;
    void *partial = call.out;
    if (join)
        call.out = e->arena[worker] + step->temp;
    bool last = first + samples == e->plan->batch || step->out.home == LS_HOME_MICRO;
    size_t bytes = step->out.per_sample ? step->out.unit * (size_t)samples : e->plan->joins[group->join].bytes;
    double start = e->group_seconds ? now() : 0;
    ls_status status = last || !step->out.per_sample
                           ? run_guarded(e, group, &call, bytes) /* else a neighbour follows */
                           : group->kernel->run(group->kernel, &call);
    if (status != LS_OK)
        return explain(status, group);
    if (join) {
        const ls_join *j = &e->plan->joins[group->join];
        ls_join_next(e->simd, j->kind, j->dtype, partial, call.out, (size_t)j->count);
    }
    if (e->group_seconds)
        charge(e, group, worker, start);
    return LS_OK;
}

void ls_executor_pick_rows(ls_executor *e, const ls_operand *in, int worker, int64_t first, int64_t samples)
{
    const ls_outside *from = &e->outside[in->value];
    size_t unit = ls_plan_unit(e->plan, e->plan->nodes[in->value].node);
    char *to = e->stage[worker] + e->plan->stage[in->value];
    for (int64_t i = 0; i < samples; i++)
        memcpy(to + unit * (size_t)i, (const char *)from->data + unit * (size_t)from->rows[first + i], unit);
}

static void pick_inputs(ls_executor *e, const ls_step *step, int worker, int64_t first, int64_t samples)
{
    for (int k = 0; k < step->group->in_count; k++) {
        const ls_operand *in = &step->in[k];
        if (in->home == LS_HOME_OUTSIDE && in->per_sample && e->outside[in->value].rows)
            ls_executor_pick_rows(e, in, worker, first, samples);
    }
}

static ls_status run_task(ls_executor *e, const ls_segment *segment, int worker, int lane)
{
    int64_t first = ls_lane_first(e->plan->batch, e->plan->lanes, lane);
    int64_t end = ls_lane_first(e->plan->batch, e->plan->lanes, lane + 1);
    for (int64_t at = first; at < end; at += segment->micro) {
        int64_t samples = end - at < segment->micro ? end - at : segment->micro;
        for (int i = 0; i < segment->step_count; i++) {
            if (segment->steps[i].reads_input)
                pick_inputs(e, &segment->steps[i], worker, at, samples);
            LS_TRY(run_lane_step(e, &segment->steps[i], worker, lane, at, samples, at > first));
        }
    }
    return LS_OK;
}

/* The partials of a join, empty lanes without; a mutated tree has them in another order. */
static void list_lanes(ls_executor *e, const ls_join *join, const void **lanes)
{
    int count = e->plan->lanes;
    for (int v = 0; v < count; v++) {
        char *slot = ls_partials_of(e, v); /* of several lanes, where they were joined: at the first of them */
        lanes[v] = slot ? slot + join->partial : NULL;
    }
    if (e->mutation == LS_MUTATE_NOTHING || count < 3)
        return;
    int a = e->mutation == LS_MUTATE_SWAP ? 1 : 0, b = e->mutation == LS_MUTATE_SWAP ? 2 : count - 1;
    const void *swap = lanes[a];
    lanes[a] = lanes[b];
    lanes[b] = swap;
}

static ls_status run_join(ls_executor *e, const ls_join *join, int worker, int64_t from, int64_t to)
{
    const void **lanes = e->lanes[worker];
    list_lanes(e, join, lanes);
    if (!ls_join_lanes(e->simd, join->kind, join->dtype, e->whole + join->joined, lanes, e->plan->lanes, (size_t)from,
                       (size_t)to))
        atomic_store_explicit(&e->broken[join - e->plan->joins], true, memory_order_relaxed);
    return LS_OK;
}

static ls_status run_finish(ls_executor *e, const ls_join *join, int worker)
{
    ls_kernel *kernel = join->group->kernel;
    if (!kernel->finish)
        return LS_OK;
    return explain(
        kernel->finish(kernel, e->whole + join->joined, e->whole + join->out.offset, worker, scratch_of(e, worker)),
        join->group);
}

static ls_status run_prepare(ls_executor *e, const ls_prepared *prepared, int worker)
{
    ls_kernel *kernel = prepared->group->kernel;
    const void *from = ls_executor_operand(e, &e->plan->value_of[prepared->value]);
    return explain(kernel->prepare.run(kernel, from, e->whole + prepared->offset, worker, scratch_of(e, worker)),
                   prepared->group);
}

int ls_executor_join_of(const ls_executor *e, const ls_step *update)
{
    int g = e->plan->nodes[update->in[0].value].group;
    const ls_group *group = g >= 0 ? &e->plan->groups[g] : NULL;
    bool straight = group && group->reduces && !ls_node_is(group->root, LS_TRAIT_GATHERS) && !group->kernel->finish;
    return straight ? group->join : -1;
}

static bool is_finite_f64(const double *x, int64_t from, int64_t to)
{
    double sum = 0;
    for (int64_t i = from; i < to; i++)
        sum += x[i] * 0; /* an infinity or NaN leaves NaN */
    return sum == 0;
}

/* Sweep 1: the gradient of an update. What comes straight from a join was looked at there. */
static ls_status run_check(ls_executor *e, const ls_step *step, int64_t from, int64_t to)
{
    const ls_tensor *node = step->group->root;
    const char *gradient = ls_executor_locate(e, &step->in[0], 0, 0, 0);
    int join = ls_executor_join_of(e, step);
    bool good = join >= 0               ? !atomic_load_explicit(&e->broken[join], memory_order_relaxed)
                : node->dtype == LS_F32 ? e->simd->finite((const float *)gradient + from, (size_t)(to - from))
                                        : is_finite_f64((const double *)gradient, from, to);
    if (good)
        return LS_OK;
    char label[LS_NODE_TEXT];
    return ls_fail(LS_ERR_NOT_FINITE, "the gradient of %s is not finite: no variable was changed",
                   ls_node_label(node->attr.apply.variable->node, label));
}

static ls_status run_unit(ls_executor *e, const ls_phase *phase, const ls_unit *u, int worker)
{
    const ls_plan *plan = e->plan;
    ls_driver *driver = u->device >= 0 ? e->drivers[u->device] : NULL;
    switch (phase->kind) {
    case LS_PHASE_WHOLE:
        if (driver)
            return ls_driver_run_whole(driver, e, u->index, u->count, worker);
        for (int i = u->index; i < u->index + u->count; i++) {
            const ls_step *step = &plan->whole_steps[i];
            const ls_tensor *node = step->group->root;
            /* not in place, somebody looks at its value: checked all the same */
            if (ls_node_is(node, LS_TRAIT_UPDATES))
                LS_TRY(run_check(e, step, 0, (int64_t)(step->in[0].unit / ls_dtype_bytes(node->dtype))));
            LS_TRY(run_whole_step(e, step, worker, 0, 0));
        }
        return LS_OK;
    case LS_PHASE_TILES:
        return run_whole_step(e, &plan->whole_steps[u->index], worker, u->from, u->to);
    case LS_PHASE_PREPARE:
        return run_prepare(e, &plan->prepared[u->index], worker);
    case LS_PHASE_LANES:
        for (int i = 0; i < u->count; i++)
            LS_TRY(driver ? ls_driver_run_task(driver, e, u->index + i, worker, u->lane)
                          : run_task(e, &plan->segments[u->index + i], worker, u->lane));
        return LS_OK;
    case LS_PHASE_JOIN:
        return run_join(e, &plan->joins[u->index], worker, u->from, u->to);
    case LS_PHASE_FINISH:
        return run_finish(e, &plan->joins[u->index], worker);
    case LS_PHASE_CHECK:
        return run_check(e, &plan->updates[u->index], u->from, u->to);
    case LS_PHASE_UPDATE:
        return run_update(e, &plan->updates[u->index], worker, u->from, u->to);
    case LS_PHASE_KINDS:
        break;
    }
    return LS_OK;
}

/* ---- Taking units ---- */

static void tell(ls_executor *e)
{
    atomic_fetch_add_explicit(&e->moved, 1, memory_order_release);
    if (e->waiting) {
        e->waiting = false;
        pthread_cond_broadcast(&e->progress);
    }
}

static void start_phase(ls_executor *e)
{
    e->next = 0;
    e->done = 0;
    while (e->phase < e->plan->phase_count && e->phases[e->phase].count == 0)
        e->phase++;
    if (e->phase < e->plan->phase_count && e->plan->phases[e->phase].kind == LS_PHASE_LANES) {
        memset(e->claimed, 0, (size_t)e->phases[e->phase].count * sizeof(*e->claimed));
        memset(e->lane_done, 0, (size_t)e->plan->lanes * sizeof(*e->lane_done));
        ls_partials_begin(e);
    }
}

/* A lane's run of segments may start when the lane has come that far. */
static int find_lane_unit(ls_executor *e, int device)
{
    const ls_work *w = &e->phases[e->phase];
    int first = e->plan->phases[e->phase].first;
    int end = e->status == LS_OK ? w->count : e->failed_unit;
    while (e->next < end && e->claimed[e->next])
        e->next++;
    for (int i = e->next; i < end; i++)
        if (!e->claimed[i] && w->units[i].device == device &&
            e->lane_done[w->units[i].lane] == w->units[i].index - first && ls_partials_claim(e, w->units[i].lane)) {
            e->claimed[i] = 1;
            return i;
        }
    return -1;
}

static bool is_cpu(const ls_executor *e, int device)
{
    return e->placement->ctx->devices[device].kind == LS_CPU;
}

/* The unit this worker should do next; -1: none at the moment. */
static int find_unit(ls_executor *e, int device)
{
    const ls_work *w = &e->phases[e->phase];
    if (e->plan->phases[e->phase].kind == LS_PHASE_LANES)
        return find_lane_unit(e, device);
    if (e->next == w->count)
        return -1;
    int wanted = w->units[e->next].device;
    return wanted == device || (wanted < 0 && is_cpu(e, device)) ? e->next++ : -1;
}

/* Waits until something has moved; the mutex is held on entry and exit. */
static void wait_for_progress(ls_executor *e, bool spin)
{
    int seen = atomic_load_explicit(&e->moved, memory_order_relaxed);
    if (spin && !ls_crew_is_crowded(e->crew)) {
        pthread_mutex_unlock(&e->mutex);
        for (int i = 0; i < SPINS && atomic_load_explicit(&e->moved, memory_order_acquire) == seen; i++)
            __builtin_ia32_pause();
        pthread_mutex_lock(&e->mutex);
    }
    while (atomic_load_explicit(&e->moved, memory_order_relaxed) == seen) {
        e->waiting = true;
        pthread_cond_wait(&e->progress, &e->mutex);
    }
}

static void note_failure(ls_executor *e, int phase, int unit_index, ls_status status)
{
    if (e->status != LS_OK && (e->failed_phase < phase || (e->failed_phase == phase && e->failed_unit <= unit_index)))
        return;
    e->status = status;
    e->failed_phase = phase;
    e->failed_unit = unit_index;
    snprintf(e->message, sizeof(e->message), "%s", ls_last_error());
}

/* After a failure only what comes before it is still done, so that the failure reported is the first in the order of
 * units, whoever met it. Only lanes are taken out of order. */
static bool has_more(const ls_executor *e, int device)
{
    if (e->phase >= e->plan->phase_count)
        return false;
    if (e->status == LS_OK)
        return true;
    if (e->phase != e->failed_phase || e->plan->phases[e->phase].kind != LS_PHASE_LANES)
        return false;
    for (int i = e->next; i < e->failed_unit; i++)
        if (!e->claimed[i] && e->phases[e->phase].units[i].device == device)
            return true;
    return false;
}

/* A lane that has come to the end of its level is joined with its neighbours. */
static void end_lane_unit(ls_executor *e, const ls_phase *phase, const ls_unit *u)
{
    e->lane_done[u->lane] += u->count;
    if (e->lane_done[u->lane] == phase->count)
        ls_partials_complete(e, u->lane, phase->level);
    if (e->status != LS_OK)
        ls_partials_fail(e, e->phases[e->failed_phase].units[e->failed_unit].lane);
}

/* A worker's part of a run. */
static void take_part(void *user, int worker)
{
    ls_executor *e = user;
    int device = e->device_of[worker];
    pthread_mutex_lock(&e->mutex);
    while (has_more(e, device)) {
        int index = find_unit(e, device), phase = e->phase;
        if (index < 0) {
            wait_for_progress(e, is_cpu(e, device));
            continue;
        }
        const ls_unit *u = &e->phases[phase].units[index];
        pthread_mutex_unlock(&e->mutex);
        double start = now();
        ls_status status = run_unit(e, &e->plan->phases[phase], u, worker);
        e->phase_seconds[worker * LS_PHASE_KINDS + (int)e->plan->phases[phase].kind] += now() - start;
        pthread_mutex_lock(&e->mutex);
        e->units_of[device]++;
        if (status != LS_OK)
            note_failure(e, phase, index, status);
        bool lanes = e->plan->phases[phase].kind == LS_PHASE_LANES;
        if (lanes)
            end_lane_unit(e, &e->plan->phases[phase], u);
        if (++e->done == e->phases[phase].count) {
            e->phase++;
            start_phase(e);
            tell(e);
        } else if (status != LS_OK || (lanes && (e->devices > 1 || e->placement->slots < e->plan->lanes))) {
            tell(e);
        }
    }
    pthread_mutex_unlock(&e->mutex);
}

/* Without a crew: every unit in order, which is allowed for any device. */
static void run_alone(ls_executor *e)
{
    pthread_mutex_lock(&e->mutex); /* nobody else wants it; joins of partials give it up */
    for (int p = 0; p < e->plan->phase_count && e->status == LS_OK; p++) {
        const ls_phase *phase = &e->plan->phases[p];
        e->phase = p;
        start_phase(e);
        for (int i = 0; i < e->phases[p].count && e->status == LS_OK; i++) {
            const ls_unit *u = &e->phases[p].units[i];
            if (phase->kind == LS_PHASE_LANES)
                ls_partials_claim(e, u->lane); /* lanes come one after the other: there is one */
            ls_status status = run_unit(e, phase, u, 0);
            e->units_of[0]++;
            if (status != LS_OK)
                note_failure(e, p, i, status);
            else if (phase->kind == LS_PHASE_LANES)
                end_lane_unit(e, phase, u);
        }
    }
    pthread_mutex_unlock(&e->mutex);
}

ls_status ls_executor_run(ls_executor *e, uint64_t seed, uint64_t run)
{
    e->seed = seed;
    e->run = run;
    e->status = LS_OK;
    memset(e->units_of, 0, (size_t)e->devices * sizeof(*e->units_of));
    for (int d = 0; d < e->devices; d++)
        if (e->drivers[d])
            ls_driver_begin(e->drivers[d]);
    for (int i = 0; i < e->plan->join_count; i++)
        atomic_store_explicit(&e->broken[i], false, memory_order_relaxed);
    if (e->crew) {
        e->phase = 0;
        start_phase(e);
        ls_crew_run(e->crew, take_part, e);
    } else {
        run_alone(e);
    }
    return e->status == LS_OK ? LS_OK : ls_fail(e->status, "%s", e->message);
}
