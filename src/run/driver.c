/* Creates the driver of a device that is not a CPU, and runs the programs of lanes and whole
 * values. Copies, joins and updates have their own files. */
#include "run/driver.h"

#include <stdlib.h>

#include "base/clock.h"
#include "device/calls.h"
#include "run/driver_copies.h"
#include "run/driver_joins.h"
#include "run/driver_updates.h"

ls_status ls_driver_explain(const ls_driver *d, const ls_step *step, const char *what, ls_status status)
{
    return ls_programs_explain(&d->programs, step, what, status);
}

ls_status ls_driver_recover(ls_driver *d, ls_status status)
{
    ls_error failure;
    if (status == LS_OK)
        return LS_OK;
    ls_error_keep(&failure, status);
    (void)ls_device_sync(d->device);
    for (int i = 0; i < ls_driver_plan(d)->node_count; i++)
        if (d->copied[i])
            d->fresh[i] = 0;
    return ls_error_give(&failure);
}

/* ---- Creation ---- */

/* A driver exists only if there is a step. */
static const ls_step *first_step(const ls_driver *d)
{
    const ls_plan *plan = ls_driver_plan(d);
    for (int s = 0; s < plan->segment_count; s++)
        if (ls_runs_on(d->placement, s, d->device->index))
            return plan->segments[s].steps;
    for (int i = 0; i < plan->whole_count; i++)
        if (ls_whole_runs_on(d->placement, i, d->device->index))
            return &plan->whole_steps[i];
    return plan->updates;
}

/* The largest partial that is copied via the host. */
static size_t transit_bytes(const ls_plan *plan)
{
    size_t most = 1;
    for (int i = 0; i < plan->kept_count; i++)
        most = plan->kept[i].by_lane && plan->kept[i].unit > most ? plan->kept[i].unit : most;
    bool pairs = plan->options.map.owners == LS_OWNERS_PAIRS;
    for (int i = 0; (pairs || plan->at_home) && i < plan->join_count; i++)
        most = plan->joins[i].bytes > most ? plan->joins[i].bytes : most;
    return most;
}

static ls_status fill(ls_driver *d)
{
    const ls_plan *plan = ls_driver_plan(d);
    int device = d->device->index;
    d->fresh = calloc((size_t)plan->node_count + 1, sizeof(*d->fresh));
    d->copied = calloc((size_t)plan->node_count + 1, sizeof(*d->copied));
    d->arrived = calloc((size_t)plan->kept_count * (size_t)plan->lanes + 1, sizeof(*d->arrived));
    d->transit = malloc(transit_bytes(plan));
    d->runs = calloc((size_t)d->place->together, sizeof(*d->runs));
    if (!d->fresh || !d->copied || !d->arrived || !d->transit || !d->runs)
        return ls_fail(LS_ERR_MEMORY, "no memory to drive %s", d->device->name);
    if (!d->states[device])
        LS_TRY(ls_state_create(plan->graph, device, &d->states[device]));
    d->state = d->states[device];
    d->programs = (ls_programs){ .placement = d->placement, .device = d->device, .place = d->place, .state = d->state };
    LS_TRY(ls_driver_explain(d, first_step(d), "state on",
                             ls_state_add(d->state, d->place->state, d->place->state_count)));
    LS_TRY(ls_driver_explain(d, first_step(d), "memory of",
                             ls_memory_take(d->device->memory, d->place->total_bytes, "plan", &d->block)));
    return ls_programs_make(&d->programs);
}

ls_status ls_driver_create(const ls_placement *placement, int device, ls_state **states, ls_driver **out)
{
    *out = NULL;
    if (placement->places[device].total_bytes == 0)
        return LS_OK;
    ls_driver *d = calloc(1, sizeof(*d));
    if (!d)
        return ls_fail(LS_ERR_MEMORY, "no memory for a driver");
    d->placement = placement;
    d->device = &placement->ctx->devices[device];
    d->place = &placement->places[device];
    d->states = states;
    ls_status status = fill(d);
    if (status != LS_OK) {
        ls_driver_destroy(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

void ls_driver_destroy(ls_driver *d)
{
    if (!d)
        return;
    if (d->programs.placement)
        ls_programs_free(&d->programs);
    ls_memory_give(d->device->memory, d->block);
    free(d->fresh);
    free(d->copied);
    free(d->arrived);
    free(d->transfers);
    free(d->checks);
    free(d->finite);
    free(d->transit);
    free(d->runs);
    free(d);
}

ls_status ls_driver_begin(ls_driver *d)
{
    d->now++;
    return ls_driver_recover(
        d, ls_state_bring(d->state, d->states, d->place->state, d->place->state_count, d->place->written_count));
}

void ls_driver_commit(ls_driver *d, const ls_variable *variable)
{
    ls_state_commit(d->state, variable);
}

/* ---- Programs ---- */

static ls_program_run any_run(const ls_driver *d, const ls_executor *e)
{
    ls_program_run run = { .samples = 1, .batch = ls_driver_plan(d)->batch, .seed = e->seed, .run = e->run };
    run.room[LS_ROOM_PLAN] = ls_driver_at(d, 0);
    run.room[LS_ROOM_STATE] = ls_state_read(d->state);
    run.room[LS_ROOM_NEW_STATE] = ls_state_written(d->state);
    return run;
}

ls_status ls_driver_run_program(const ls_driver *d, const ls_executor *e, const ls_compiled *p)
{
    ls_program_run run = any_run(d, e);
    return ls_device_plan_run(d->device, p->plan, &run);
}

static ls_driver_task task_of(const ls_plan *plan, int segment, int lane)
{
    int64_t first = ls_lane_first(plan->batch, plan->lanes, lane);
    return (ls_driver_task){ .segment = segment,
                             .lane = lane,
                             .first = first,
                             .samples = ls_lane_first(plan->batch, plan->lanes, lane + 1) - first };
}

static ls_program_run run_of(const ls_driver *d, const ls_executor *e, const ls_driver_task *t)
{
    ls_program_run run = any_run(d, e);
    run.samples = t->samples;
    run.row = d->place->row[t->lane];
    run.first = t->first;
    run.room[LS_ROOM_LANE] = ls_driver_at(d, ls_driver_frame_at(d, e, t->lane));
    run.room[LS_ROOM_TASK] = ls_driver_at(d, ls_driver_task_at(d, t));
    if (ls_driver_plan(d)->segments[t->segment].slot_bytes > 0)
        run.room[LS_ROOM_PARTIALS] = ls_driver_at(d, ls_driver_partials_at(d, e, t->segment, t->lane));
    return run;
}

static ls_status bring_task(ls_driver *d, ls_executor *e, const ls_driver_task *t, int thread)
{
    const ls_segment *s = &ls_driver_plan(d)->segments[t->segment];
    for (int i = 0; i < s->step_count; i++)
        LS_TRY(ls_driver_explain(d, &s->steps[i], "copying to", ls_driver_bring_inputs(d, e, &s->steps[i], thread, t)));
    return LS_OK;
}

static ls_status give_task(ls_driver *d, ls_executor *e, const ls_driver_task *t)
{
    const ls_segment *s = &ls_driver_plan(d)->segments[t->segment];
    for (int i = 0; i < s->step_count; i++)
        LS_TRY(ls_driver_explain(d, &s->steps[i], "copying from", ls_driver_give_kept(d, e, &s->steps[i], t)));
    return LS_OK;
}

static ls_status launch_task(ls_driver *d, ls_executor *e, int segment, int thread, int lane)
{
    const ls_segment *s = &ls_driver_plan(d)->segments[segment];
    ls_driver_task t = task_of(ls_driver_plan(d), segment, lane);
    if (t.samples == 0)
        return LS_OK;
    LS_TRY(bring_task(d, e, &t, thread));
    ls_program_run run = run_of(d, e, &t);
    LS_TRY(ls_driver_explain(d, &s->steps[0], "running on",
                             ls_device_plan_run(d->device, d->programs.segments[segment].plan, &run)));
    LS_TRY(give_task(d, e, &t));
    return ls_driver_explain(d, &s->steps[s->step_count - 1], "running on", ls_device_sync(d->device));
}

/* Waits for the segment and notes its time, if the run is profiled. */
static ls_status charge(ls_driver *d, ls_executor *e, int segment, int thread, double start, double samples)
{
    const ls_segment *s = &ls_driver_plan(d)->segments[segment];
    if (!e->segment_times)
        return LS_OK;
    LS_TRY(ls_driver_explain(d, &s->steps[s->step_count - 1], "running on", ls_device_sync(d->device)));
    ls_op_time *t = &e->segment_times[thread * e->plan->segment_count + segment];
    t->seconds += ls_clock_now() - start;
    t->calls++;
    for (int i = 0; i < s->step_count; i++)
        for (int k = 0; k < s->steps[i].group->node_count; k++)
            t->flops += samples * ls_node_flops(s->steps[i].group->nodes[k]);
    return LS_OK;
}

static ls_status run_lane(ls_driver *d, ls_executor *e, const ls_unit *u, int thread)
{
    ls_status status = LS_OK;
    for (int i = u->index; i < u->index + u->count && status == LS_OK; i++) {
        double start = e->timeline || e->segment_times ? ls_clock_now() : 0;
        status = launch_task(d, e, i, thread, u->lane);
        if (status == LS_OK)
            status = charge(d, e, i, thread, start, (double)task_of(ls_driver_plan(d), i, u->lane).samples);
        if (e->timeline)
            ls_timeline_task(e, thread, i, u->lane, start);
    }
    return ls_fail_within(status, "lane %d", u->lane);
}

/* ---- Lanes together ---- */

/* Copies the inputs of each lane, then runs all in one call. */
static ls_status launch_tasks(ls_driver *d, ls_executor *e, int segment, const ls_unit *const *units, int count,
                              int thread)
{
    const ls_step *steps = ls_driver_plan(d)->segments[segment].steps;
    int runs = 0;
    for (int i = 0; i < count; i++) {
        ls_driver_task t = task_of(ls_driver_plan(d), segment, units[i]->lane);
        if (t.samples == 0)
            continue;
        t.number = runs;
        LS_TRY(bring_task(d, e, &t, thread));
        d->runs[runs++] = run_of(d, e, &t);
    }
    if (runs > 0)
        LS_TRY(
            ls_driver_explain(d, &steps[0], "running on",
                              ls_device_plan_run_lanes(d->device, d->programs.segments[segment].plan, d->runs, runs)));
    for (int i = 0; i < count; i++) {
        ls_driver_task t = task_of(ls_driver_plan(d), segment, units[i]->lane);
        if (t.samples > 0)
            LS_TRY(give_task(d, e, &t));
    }
    return LS_OK;
}

static ls_status run_lanes(ls_driver *d, ls_executor *e, const ls_unit *const *units, int count, int thread)
{
    int first = units[0]->index, end = first + units[0]->count;
    for (int s = first; s < end; s++) {
        double start = e->timeline || e->segment_times ? ls_clock_now() : 0, samples = 0;
        for (int i = 0; i < count; i++)
            samples += (double)task_of(ls_driver_plan(d), s, units[i]->lane).samples;
        LS_TRY(ls_fail_within(launch_tasks(d, e, s, units, count, thread), "lanes %d to %d", units[0]->lane,
                              units[count - 1]->lane));
        LS_TRY(charge(d, e, s, thread, start, samples));
        if (e->timeline)
            ls_timeline_tasks(e, thread, s, units, count, start);
    }
    const ls_segment *last = &ls_driver_plan(d)->segments[end - 1];
    return ls_fail_within(
        ls_driver_explain(d, &last->steps[last->step_count - 1], "running on", ls_device_sync(d->device)),
        "lanes %d to %d", units[0]->lane, units[count - 1]->lane);
}

/* After a data error: runs the lanes one by one to find the bad one. */
static ls_status find_bad_lane(ls_driver *d, ls_executor *e, const ls_unit *const *units, int count, int thread,
                               int *failed)
{
    ls_error failure;
    ls_error_keep(&failure, LS_ERR_DATA);
    for (int i = 0; i < count; i++) {
        ls_status status = ls_driver_recover(d, run_lane(d, e, units[i], thread));
        *failed = i;
        if (status != LS_OK)
            return status;
    }
    *failed = 0;
    return ls_error_give(&failure);
}

ls_status ls_driver_run_lanes(ls_driver *d, ls_executor *e, const ls_unit *const *units, int count, int thread,
                              int *failed)
{
    d->executor = e;
    d->thread = thread;
    *failed = 0;
    ls_status status = ls_driver_recover(d, run_lanes(d, e, units, count, thread));
    return status == LS_ERR_DATA ? find_bad_lane(d, e, units, count, thread, failed) : status;
}

/* ---- Whole values ---- */

/* If several devices compute the same whole value, the first copies it to the host. */
static bool gives_whole(const ls_driver *d, int step)
{
    int first = d->placement->ctx->cpu_count;
    while (!ls_whole_runs_on(d->placement, step, first))
        first++;
    return first == d->device->index;
}

static ls_status run_whole_step(ls_driver *d, ls_executor *e, int index, int thread)
{
    const ls_step *step = &ls_driver_plan(d)->whole_steps[index];
    LS_TRY(ls_driver_explain(d, step, "copying to",
                             ls_driver_bring_inputs(d, e, step, thread, &(ls_driver_task){ .samples = 1 })));
    LS_TRY(ls_driver_explain(d, step, "running on", ls_driver_run_program(d, e, &d->programs.wholes[index])));
    d->fresh[step->out.value] = d->now;
    if (!d->placement->comes_home[step->out.value] || !gives_whole(d, index))
        return LS_OK;
    LS_TRY(ls_driver_explain(d, step, "copying from",
                             ls_driver_download(d, d->place->whole[step->out.value],
                                                ls_executor_locate(e, &step->out, thread, 0, 0), step->out.unit)));
    ls_driver_count_copy(d, step->out.value, d->device->index, d->placement->home, step->out.unit);
    return LS_OK;
}

static ls_status run_whole(ls_driver *d, ls_executor *e, const ls_unit *u, int thread)
{
    for (int i = u->index; i < u->index + u->count; i++)
        LS_TRY(run_whole_step(d, e, i, thread));
    return ls_driver_explain(d, &ls_driver_plan(d)->whole_steps[u->index + u->count - 1], "running on",
                             ls_device_sync(d->device));
}

/* ---- Units ---- */

static ls_status run(ls_driver *d, ls_executor *e, const ls_phase *phase, const ls_unit *u, int thread)
{
    switch (phase->kind) {
    case LS_PHASE_LANES:
        return run_lane(d, e, u, thread);
    case LS_PHASE_WHOLE:
        return run_whole(d, e, u, thread);
    case LS_PHASE_HOME:
        return ls_driver_bring_all_home(d, e, u);
    case LS_PHASE_PAIR:
        return ls_driver_join_pair(d, e, u, thread);
    case LS_PHASE_JOIN:
        return ls_driver_join_parts(d, e, u, thread);
    case LS_PHASE_GATHER:
        return ls_driver_transfer_all(d, e, phase, u);
    case LS_PHASE_SHARE:
        if (ls_plan_transfers(ls_driver_plan(d), d->device->kind))
            return ls_driver_transfer_all(d, e, phase, u);
        return ls_driver_share(d, e, u);
    case LS_PHASE_CHECK:
        return ls_driver_run_check(d, e, u, thread);
    case LS_PHASE_UPDATE:
        return ls_driver_run_updates(d, e, u, thread);
    default:
        return ls_fail(LS_ERR_INTERNAL, "%s cannot run a unit of phase %d", d->device->name, (int)phase->kind);
    }
}

ls_status ls_driver_run(ls_driver *d, ls_executor *e, const ls_phase *phase, const ls_unit *u, int thread)
{
    d->executor = e;
    d->thread = thread;
    return ls_driver_recover(d, run(d, e, phase, u, thread));
}
