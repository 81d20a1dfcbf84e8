/* Runs units on a device that is not a CPU, and makes the copies that they need. */
#include "run/driver.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/grow.h"
#include "device/calls.h"
#include "run/executor_private.h"
#include "run/partials.h"
#include "run/programs.h"

struct ls_driver {
    ls_programs programs;
    const ls_placement *placement;
    ls_device *device;
    const ls_place *place;
    ls_block *block;
    ls_state **states; /* By device. */
    ls_state *state;   /* State on this device; NULL: it has no variables. */
    uint64_t now;      /* Number of the current run. */
    /* By plan node: the run that copied or computed its whole value here. */
    uint64_t *fresh;
    bool *brought;          /* By plan node: copied from the host; false: computed here. */
    uint64_t *arrived;      /* By kept value and lane: the run that copied it here. */
    ls_transfer *transfers; /* List for one call of the backend's `transfer`. */
    size_t transfer_count, transfer_room;
    ls_finite_call *checks; /* Arrays to check in one call; `finite` has the results. */
    bool *finite;
    size_t check_count, check_room, finite_room;
    void *part;           /* Host buffer for a partial in transit. */
    ls_program_run *runs; /* Lanes that run together. */

    /* Executor and thread of the current unit: copies count as their time. */
    ls_executor *executor;
    int worker;
    double began; /* Start time of the last copy. */
};

static const ls_plan *plan_of(const ls_driver *d)
{
    return d->placement->plan;
}

static ls_status explain(const ls_driver *d, const ls_step *step, const char *what, ls_status status)
{
    return ls_programs_explain(&d->programs, step, what, status);
}

/* After a failure: drains the queue, discards later errors, and marks copied values as stale. Keeps
 * values that were computed here: the host does not have them, and lanes before the failed one
 * still need them. */
static ls_status settle(ls_driver *d, ls_status status)
{
    ls_error failure;
    if (status == LS_OK)
        return LS_OK;
    ls_error_keep(&failure, status);
    (void)ls_device_sync(d->device);
    for (int i = 0; i < plan_of(d)->node_count; i++)
        if (d->brought[i])
            d->fresh[i] = 0;
    return ls_error_give(&failure);
}

/* ---- Creation ---- */

/* A driver exists only if there is a step. */
static const ls_step *first_step(const ls_driver *d)
{
    const ls_plan *plan = plan_of(d);
    for (int s = 0; s < plan->segment_count; s++)
        if (ls_runs_on(d->placement, s, d->device->index))
            return plan->segments[s].steps;
    for (int i = 0; i < plan->whole_count; i++)
        if (ls_whole_runs_on(d->placement, i, d->device->index))
            return &plan->whole_steps[i];
    return plan->updates;
}

/* The largest partial that is copied via the host. */
static size_t part_bytes(const ls_plan *plan)
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
    const ls_plan *plan = plan_of(d);
    int device = d->device->index;
    d->fresh = calloc((size_t)plan->node_count + 1, sizeof(*d->fresh));
    d->brought = calloc((size_t)plan->node_count + 1, sizeof(*d->brought));
    d->arrived = calloc((size_t)plan->kept_count * (size_t)plan->lanes + 1, sizeof(*d->arrived));
    d->part = malloc(part_bytes(plan));
    d->runs = calloc((size_t)d->place->together, sizeof(*d->runs));
    if (!d->fresh || !d->brought || !d->arrived || !d->part || !d->runs)
        return ls_fail(LS_ERR_MEMORY, "no memory to drive %s", d->device->name);
    if (!d->states[device])
        LS_TRY(ls_state_create(plan->graph, device, &d->states[device]));
    d->state = d->states[device];
    d->programs = (ls_programs){ .placement = d->placement, .device = d->device, .place = d->place, .state = d->state };
    LS_TRY(explain(d, first_step(d), "state on", ls_state_add(d->state, d->place->state, d->place->state_count)));
    LS_TRY(explain(d, first_step(d), "memory of",
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
    free(d->brought);
    free(d->arrived);
    free(d->transfers);
    free(d->checks);
    free(d->finite);
    free(d->part);
    free(d->runs);
    free(d);
}

ls_status ls_driver_begin(ls_driver *d)
{
    d->now++;
    return settle(d,
                  ls_state_bring(d->state, d->states, d->place->state, d->place->state_count, d->place->written_count));
}

void ls_driver_commit(ls_driver *d, const ls_variable *variable)
{
    ls_state_commit(d->state, variable);
}

/* ---- Copies ---- */

static ls_memory_place at(const ls_driver *d, size_t offset)
{
    return (ls_memory_place){ d->block->region, d->block->offset + offset };
}

static ls_status upload(ls_driver *d, size_t offset, const void *from, size_t bytes)
{
    d->began = ls_clock_now();
    return ls_device_upload(d->device, d->block->region, d->block->offset + offset, from, bytes);
}

static ls_status download_from(const ls_driver *d, size_t offset, void *to, size_t bytes)
{
    return ls_device_download(d->device, d->block->region, d->block->offset + offset, to, bytes);
}

static ls_status download(ls_driver *d, size_t offset, void *to, size_t bytes)
{
    d->began = ls_clock_now();
    return download_from(d, offset, to, bytes);
}

static void count(const ls_driver *d, int value, int from, int to, size_t bytes)
{
    char label[LS_NODE_TEXT];
    ls_context_count_copy(plan_of(d)->graph->context, ls_node_label(plan_of(d)->nodes[value].node, label), from, to,
                          bytes);
    ls_meter *meter = &d->executor->meters[d->worker];
    double seconds = ls_clock_now() - d->began;
    meter->copies += seconds;
    if (from != d->device->index && d->placement->ctx->devices[from].kind != LS_CPU)
        meter->between += seconds;
    if (d->executor->timeline)
        ls_timeline_copy(d->executor, d->worker, value, from, to, bytes, d->began);
}

/* Copies from another device of the same backend; via `host` if the backend cannot copy
 * directly. */
static ls_status fetch_from(ls_driver *d, int value, const ls_driver *other, size_t there, size_t here, void *host,
                            size_t bytes)
{
    d->began = ls_clock_now();
    if (d->device->backend->copy) {
        ls_memory_place to = at(d, here), from = at(other, there);
        return ls_device_copy(d->device, to.memory, to.offset, other->device, from.memory, from.offset, bytes);
    }
    LS_TRY(download_from(other, there, host, bytes));
    count(d, value, other->device->index, d->placement->home, bytes);
    return upload(d, here, host, bytes);
}

/* A constant created for this device counts as no copy. Other leaves are on CPUs, no matter which
 * device was requested. */
static int leaf_device(const ls_driver *d, const ls_tensor *node)
{
    bool asked = node->device != LS_ANY_DEVICE;
    if (node->op == LS_OP_constant)
        return asked ? node->device : d->device->index;
    return asked && d->placement->ctx->devices[node->device].kind == LS_CPU ? node->device : d->placement->home;
}

/* A whole value is copied once a run, a constant only once. State is already there. */
static ls_status bring_whole(ls_driver *d, ls_executor *e, const ls_operand *o, int worker)
{
    const ls_tensor *node = plan_of(d)->nodes[o->value].node;
    bool leaf = plan_of(d)->nodes[o->value].group < 0;
    uint64_t *fresh = &d->fresh[o->value];
    if (*fresh == d->now || (node->op == LS_OP_constant && *fresh > 0) || (leaf && node->op == LS_OP_variable))
        return LS_OK;
    /* The plain value: a CPU kernel may read it in a format of its own. */
    o = &plan_of(d)->value_of[o->value];
    LS_TRY(upload(d, d->place->whole[o->value], ls_executor_locate(e, o, worker, 0, 0), o->unit));
    *fresh = d->now;
    d->brought[o->value] = true;
    int from = leaf ? leaf_device(d, node) : d->placement->home;
    if (from != d->device->index)
        count(d, o->value, from, d->device->index, o->unit);
    return LS_OK;
}

/* A lane's task, and the index of its task memory. Unused for whole values. */
typedef struct task {
    int segment, lane, number;
    int64_t first, samples;
} task;

static size_t task_at(const ls_driver *d, const task *t)
{
    return d->place->tasks_at + (size_t)t->number * d->place->task_bytes;
}

/* Samples that were fed, or are rows of a gathered value. */
static ls_status bring_samples(ls_driver *d, ls_executor *e, const ls_operand *o, int worker, const task *t)
{
    size_t bytes = o->unit * (size_t)t->samples;
    if (o->storage == LS_OUTSIDE && e->outside[o->value].rows)
        ls_executor_pick_rows(e, o, worker, t->first, t->samples);
    LS_TRY(upload(d, task_at(d, t) + d->place->stage[o->value], ls_executor_locate(e, o, worker, 0, t->first), bytes));
    count(d, o->value, d->placement->home, d->device->index, bytes);
    return LS_OK;
}

static size_t frame_at(const ls_driver *d, const ls_executor *e, int lane)
{
    int frame = e->frame_of[(size_t)d->device->index * (size_t)plan_of(d)->lanes + (size_t)lane];
    return d->place->frames_at + (size_t)(frame < 0 ? 0 : frame) * d->place->frame_bytes;
}

static size_t kept_at(const ls_driver *d, const ls_executor *e, size_t kept, int lane)
{
    const ls_kept *k = &plan_of(d)->kept[kept];
    if (k->framed)
        return frame_at(d, e, lane) + d->place->kept[kept];
    return d->place->kept_at + d->place->kept[kept] + k->unit * (size_t)d->place->row[lane];
}

static ls_status bring_kept(ls_driver *d, ls_executor *e, const ls_operand *o, int lane, int64_t samples)
{
    const ls_placement *p = d->placement;
    size_t index = o->offset * (size_t)plan_of(d)->lanes + (size_t)lane;
    size_t bytes = ls_kept_bytes(&plan_of(d)->kept[o->offset], samples);
    size_t here = kept_at(d, e, o->offset, lane);
    int made = p->made[index];
    if (made == d->device->index || d->arrived[index] == d->now)
        return LS_OK;
    if (p->ctx->devices[made].kind == d->device->kind && d->device->backend->copy) {
        LS_TRY(fetch_from(d, o->value, e->drivers[made], kept_at(e->drivers[made], e, o->offset, lane), here, NULL,
                          bytes));
    } else {
        int64_t first = ls_lane_first(plan_of(d)->batch, plan_of(d)->lanes, lane);
        LS_TRY(upload(d, here, ls_executor_locate(e, o, 0, lane, first), bytes));
    }
    d->arrived[index] = d->now;
    count(d, o->value, made, d->device->index, bytes);
    return LS_OK;
}

static ls_status bring_inputs(ls_driver *d, ls_executor *e, const ls_step *step, int worker, const task *t)
{
    for (int k = 0; k < step->group->in_count; k++) {
        const ls_operand *o = &step->in[k];
        if (ls_is_staged(o))
            LS_TRY(bring_samples(d, e, o, worker, t));
        else if (o->storage == LS_OUTSIDE || o->storage == LS_WHOLE)
            LS_TRY(bring_whole(d, e, o, worker));
        else if (o->storage == LS_KEPT)
            LS_TRY(bring_kept(d, e, o, t->lane, t->samples));
    }
    return LS_OK;
}

static ls_status take_back(ls_driver *d, ls_executor *e, const ls_operand *o, const task *t)
{
    int host = d->placement->host[o->offset * (size_t)plan_of(d)->lanes + (size_t)t->lane];
    size_t bytes = ls_kept_bytes(&plan_of(d)->kept[o->offset], t->samples);
    if (host < 0)
        return LS_OK;
    LS_TRY(download(d, kept_at(d, e, o->offset, t->lane), ls_executor_locate(e, o, 0, t->lane, t->first), bytes));
    count(d, o->value, d->device->index, host, bytes);
    return LS_OK;
}

/* ---- Programs ---- */

static ls_program_run any_run(const ls_driver *d, const ls_executor *e)
{
    ls_program_run run = { .samples = 1, .batch = plan_of(d)->batch, .seed = e->seed, .run = e->run };
    run.room[LS_ROOM_PLAN] = at(d, 0);
    run.room[LS_ROOM_STATE] = ls_state_read(d->state);
    run.room[LS_ROOM_NEW_STATE] = ls_state_written(d->state);
    return run;
}

static ls_status run_program(const ls_driver *d, const ls_executor *e, const ls_compiled *p)
{
    ls_program_run run = any_run(d, e);
    return ls_device_plan_run(d->device, p->plan, &run);
}

static size_t partials_at(const ls_driver *d, const ls_executor *e, int segment, int lane)
{
    return d->place->partials_at + ls_partials_offset(e, segment, lane);
}

/* Copies the lane's own partial for its readers: the original will be joined with others. */
static ls_status keep_lane_part(ls_driver *d, ls_executor *e, const ls_step *step, int lane)
{
    const ls_kept *kept = &plan_of(d)->kept[step->group->lane_kept];
    size_t from = partials_at(d, e, step->group->segment, lane) + step->out.offset;
    return fetch_from(d, kept->value, d, from, kept_at(d, e, (size_t)step->group->lane_kept, lane), d->part,
                      kept->unit);
}

static ls_status give_kept(ls_driver *d, ls_executor *e, const ls_step *step, const task *t)
{
    if (step->group->lane_kept >= 0) {
        ls_operand part = { .value = step->group->value,
                            .storage = LS_KEPT,
                            .offset = (size_t)step->group->lane_kept,
                            .unit = plan_of(d)->kept[step->group->lane_kept].unit };
        LS_TRY(keep_lane_part(d, e, step, t->lane));
        return take_back(d, e, &part, t);
    }
    return step->out.storage == LS_KEPT ? take_back(d, e, &step->out, t) : LS_OK;
}

static task task_of(const ls_plan *plan, int segment, int lane)
{
    int64_t first = ls_lane_first(plan->batch, plan->lanes, lane);
    return (task){ .segment = segment,
                   .lane = lane,
                   .first = first,
                   .samples = ls_lane_first(plan->batch, plan->lanes, lane + 1) - first };
}

static ls_program_run run_of(const ls_driver *d, const ls_executor *e, const task *t)
{
    ls_program_run run = any_run(d, e);
    run.samples = t->samples;
    run.row = d->place->row[t->lane];
    run.first = t->first;
    run.room[LS_ROOM_LANE] = at(d, frame_at(d, e, t->lane));
    run.room[LS_ROOM_TASK] = at(d, task_at(d, t));
    if (plan_of(d)->segments[t->segment].slot_bytes > 0)
        run.room[LS_ROOM_PARTIALS] = at(d, partials_at(d, e, t->segment, t->lane));
    return run;
}

static ls_status bring_task(ls_driver *d, ls_executor *e, const task *t, int worker)
{
    const ls_segment *s = &plan_of(d)->segments[t->segment];
    for (int i = 0; i < s->step_count; i++)
        LS_TRY(explain(d, &s->steps[i], "copying to", bring_inputs(d, e, &s->steps[i], worker, t)));
    return LS_OK;
}

static ls_status give_task(ls_driver *d, ls_executor *e, const task *t)
{
    const ls_segment *s = &plan_of(d)->segments[t->segment];
    for (int i = 0; i < s->step_count; i++)
        LS_TRY(explain(d, &s->steps[i], "copying from", give_kept(d, e, &s->steps[i], t)));
    return LS_OK;
}

static ls_status launch_task(ls_driver *d, ls_executor *e, int segment, int worker, int lane)
{
    const ls_segment *s = &plan_of(d)->segments[segment];
    task t = task_of(plan_of(d), segment, lane);
    if (t.samples == 0)
        return LS_OK;
    LS_TRY(bring_task(d, e, &t, worker));
    ls_program_run run = run_of(d, e, &t);
    LS_TRY(explain(d, &s->steps[0], "running on",
                   ls_device_plan_run(d->device, d->programs.segments[segment].plan, &run)));
    LS_TRY(give_task(d, e, &t));
    return explain(d, &s->steps[s->step_count - 1], "running on", ls_device_sync(d->device));
}

static ls_status run_lane(ls_driver *d, ls_executor *e, const ls_unit *u, int worker)
{
    ls_status status = LS_OK;
    for (int i = u->index; i < u->index + u->count && status == LS_OK; i++) {
        double start = e->timeline ? ls_clock_now() : 0;
        status = launch_task(d, e, i, worker, u->lane);
        if (e->timeline)
            ls_timeline_task(e, worker, i, u->lane, start);
    }
    return ls_fail_within(status, "lane %d", u->lane);
}

/* ---- Lanes together ---- */

/* First copies the inputs of each lane, then runs all in one call. */
static ls_status launch_tasks(ls_driver *d, ls_executor *e, int segment, const ls_unit *const *units, int count,
                              int worker)
{
    const ls_step *steps = plan_of(d)->segments[segment].steps;
    int runs = 0;
    for (int i = 0; i < count; i++) {
        task t = task_of(plan_of(d), segment, units[i]->lane);
        if (t.samples == 0)
            continue;
        t.number = runs;
        LS_TRY(bring_task(d, e, &t, worker));
        d->runs[runs++] = run_of(d, e, &t);
    }
    if (runs > 0)
        LS_TRY(explain(d, &steps[0], "running on",
                       ls_device_plan_run_lanes(d->device, d->programs.segments[segment].plan, d->runs, runs)));
    for (int i = 0; i < count; i++) {
        task t = task_of(plan_of(d), segment, units[i]->lane);
        if (t.samples > 0)
            LS_TRY(give_task(d, e, &t));
    }
    return LS_OK;
}

static ls_status run_lanes(ls_driver *d, ls_executor *e, const ls_unit *const *units, int count, int worker)
{
    int first = units[0]->index, end = first + units[0]->count;
    for (int s = first; s < end; s++) {
        double start = e->timeline ? ls_clock_now() : 0;
        LS_TRY(ls_fail_within(launch_tasks(d, e, s, units, count, worker), "lanes %d to %d", units[0]->lane,
                              units[count - 1]->lane));
        if (e->timeline)
            ls_timeline_tasks(e, worker, s, units, count, start);
    }
    const ls_segment *last = &plan_of(d)->segments[end - 1];
    return ls_fail_within(explain(d, &last->steps[last->step_count - 1], "running on", ls_device_sync(d->device)),
                          "lanes %d to %d", units[0]->lane, units[count - 1]->lane);
}

/* After a data error: runs the lanes one by one to find the bad one. */
static ls_status find_bad_lane(ls_driver *d, ls_executor *e, const ls_unit *const *units, int count, int worker,
                               int *failed)
{
    ls_error failure;
    ls_error_keep(&failure, LS_ERR_DATA);
    for (int i = 0; i < count; i++) {
        ls_status status = settle(d, run_lane(d, e, units[i], worker));
        *failed = i;
        if (status != LS_OK)
            return status;
    }
    *failed = 0;
    return ls_error_give(&failure);
}

ls_status ls_driver_run_lanes(ls_driver *d, ls_executor *e, const ls_unit *const *units, int count, int worker,
                              int *failed)
{
    d->executor = e;
    d->worker = worker;
    *failed = 0;
    ls_status status = settle(d, run_lanes(d, e, units, count, worker));
    return status == LS_ERR_DATA ? find_bad_lane(d, e, units, count, worker, failed) : status;
}

/* ---- Whole values, and updates ---- */

/* If several devices compute the same whole value, the first copies it to the host. */
static bool gives_whole(const ls_driver *d, int step)
{
    int first = d->placement->ctx->cpu_count;
    while (!ls_whole_runs_on(d->placement, step, first))
        first++;
    return first == d->device->index;
}

static ls_status run_whole_step(ls_driver *d, ls_executor *e, int index, int worker)
{
    const ls_step *step = &plan_of(d)->whole_steps[index];
    LS_TRY(explain(d, step, "copying to", bring_inputs(d, e, step, worker, &(task){ .samples = 1 })));
    LS_TRY(explain(d, step, "running on", run_program(d, e, &d->programs.wholes[index])));
    d->fresh[step->out.value] = d->now;
    if (!d->placement->comes_home[step->out.value] || !gives_whole(d, index))
        return LS_OK;
    LS_TRY(explain(d, step, "copying from",
                   download(d, d->place->whole[step->out.value], ls_executor_locate(e, &step->out, worker, 0, 0),
                            step->out.unit)));
    count(d, step->out.value, d->device->index, d->placement->home, step->out.unit);
    return LS_OK;
}

static ls_status run_whole(ls_driver *d, ls_executor *e, const ls_unit *u, int worker)
{
    for (int i = u->index; i < u->index + u->count; i++)
        LS_TRY(run_whole_step(d, e, i, worker));
    return explain(d, &plan_of(d)->whole_steps[u->index + u->count - 1], "running on", ls_device_sync(d->device));
}

/* ---- Checks for finite values ---- */

static ls_status add_check(ls_driver *d, ls_dtype dtype, ls_memory_place from, int64_t count)
{
    LS_TRY(ls_grow(&d->checks, d->check_count, &d->check_room, sizeof(*d->checks)));
    LS_TRY(ls_grow(&d->finite, d->check_count, &d->finite_room, sizeof(*d->finite)));
    d->checks[d->check_count++] = (ls_finite_call){ dtype, from, count };
    return LS_OK;
}

static ls_status look(ls_driver *d)
{
    return ls_device_finite_all(d->device, d->checks, (int)d->check_count, d->finite);
}

/* The new values are not the current state yet. */
static ls_status add_written(ls_driver *d, const ls_step *update)
{
    ls_variable *written[LS_MAX_WRITES];
    int count = ls_node_writes(update->group->root, written);
    for (int k = 0; k < count; k++) {
        ls_memory_place at = ls_state_written(d->state);
        ls_dtype dtype = written[k]->node->dtype;
        at.offset += ls_state_offset(d->state, written[k]);
        LS_TRY(add_check(d, dtype, at, (int64_t)(written[k]->bytes / ls_dtype_bytes(dtype))));
    }
    return LS_OK;
}

static ls_status check_written(const ls_driver *d, const ls_step *update, size_t first)
{
    ls_variable *written[LS_MAX_WRITES];
    int count = ls_node_writes(update->group->root, written);
    for (int k = 0; k < count; k++)
        if (!d->finite[first + (size_t)k])
            return ls_executor_overflows(written[k]);
    return LS_OK;
}

static ls_status check_updates(ls_driver *d, const ls_unit *u, const ls_step *last)
{
    const ls_plan *plan = plan_of(d);
    ls_variable *written[LS_MAX_WRITES];
    size_t first = 0;
    d->check_count = 0;
    for (int i = u->index; i < u->index + u->count; i++)
        if (ls_updates_on(d->placement, i, d->device->index))
            LS_TRY(add_written(d, &plan->updates[i]));
    LS_TRY(explain(d, last, "checking on", look(d)));
    for (int i = u->index; i < u->index + u->count; i++)
        if (ls_updates_on(d->placement, i, d->device->index)) {
            LS_TRY(check_written(d, &plan->updates[i], first));
            first += (size_t)ls_node_writes(plan->updates[i].group->root, written);
        }
    return LS_OK;
}

static ls_status run_updates(ls_driver *d, ls_executor *e, const ls_unit *u, int worker)
{
    const ls_plan *plan = plan_of(d);
    const ls_step *last = NULL;
    for (int i = u->index; i < u->index + u->count; i++)
        if (ls_updates_on(d->placement, i, d->device->index)) {
            last = &plan->updates[i];
            LS_TRY(explain(d, last, "copying to", bring_inputs(d, e, last, worker, &(task){ .samples = 1 })));
        }
    LS_TRY(explain(d, last, "updating on", run_program(d, e, &d->programs.updates)));
    LS_TRY(check_updates(d, u, last));
    return explain(d, last, "updating on", ls_device_sync(d->device));
}

static ls_status run_check(ls_driver *d, ls_executor *e, const ls_unit *u, int worker)
{
    const ls_step *step = &plan_of(d)->updates[u->index];
    bool finite = false;
    LS_TRY(explain(d, step, "copying to", bring_whole(d, e, &step->in[0], worker)));
    LS_TRY(explain(d, step, "checking on",
                   ls_device_finite(d->device, step->group->root->dtype, at(d, d->place->whole[step->in[0].value]),
                                    u->to, &finite)));
    return finite ? LS_OK : ls_executor_not_finite(step);
}

/* ---- Joins ---- */

static ls_status explain_join(const ls_driver *d, const ls_join *join, const char *what, ls_status status)
{
    return explain(d, &(ls_step){ .group = join->group }, what, status);
}

ls_status ls_driver_join_siblings(ls_driver *d, ls_executor *e, int segment, int left, int right)
{
    const ls_plan *plan = plan_of(d);
    ls_memory_place to = at(d, partials_at(d, e, segment, left)), from = at(d, partials_at(d, e, segment, right));
    const ls_join *last = NULL;
    ls_status status = LS_OK;
    for (int i = 0; i < plan->join_count && status == LS_OK; i++) {
        const ls_join *join = &plan->joins[i];
        if (join->group->segment != segment)
            continue;
        ls_join_call call = { .kind = join->kind, .dtype = join->dtype, .count = join->plain };
        call.to = call.left = (ls_memory_place){ to.memory, to.offset + join->partial };
        call.right = (ls_memory_place){ from.memory, from.offset + join->partial };
        status = explain_join(d, last = join, "joining on", ls_device_join(d->device, &call));
    }
    if (status == LS_OK && last)
        status = explain_join(d, last, "joining on", ls_device_sync(d->device));
    return settle(d, ls_fail_within(status, "lanes %d and %d", left, right));
}

/* Converts to the format of the host's kernel. */
static ls_status bring_home(ls_driver *d, ls_executor *e, int segment, int lane)
{
    const ls_plan *plan = plan_of(d);
    char *room = ls_partials_of(e, segment, lane);
    for (int i = 0; room && i < plan->join_count; i++) {
        const ls_join *join = &plan->joins[i];
        ls_kernel *kernel = join->group->kernel;
        size_t bytes = (size_t)join->plain * ls_dtype_bytes(join->dtype);
        if (join->group->segment != segment)
            continue;
        char *to = room + join->partial;
        LS_TRY(explain_join(
            d, join, "copying from",
            download(d, partials_at(d, e, segment, lane) + join->partial, kernel->pack ? d->part : to, bytes)));
        if (kernel->pack)
            kernel->pack(kernel, d->part, to);
        count(d, join->group->value, d->device->index, d->placement->home, bytes);
    }
    return LS_OK;
}

ls_status ls_driver_bring_home(ls_driver *d, ls_executor *e, int segment, int lane)
{
    return settle(d, bring_home(d, e, segment, lane));
}

static ls_status bring_all_home(ls_driver *d, ls_executor *e, const ls_unit *u)
{
    for (int s = u->index; s < u->index + u->count; s++)
        for (int lane = 0; lane < plan_of(d)->lanes; lane++)
            if (ls_task_device(plan_of(d), s, lane) == d->device->index)
                LS_TRY(bring_home(d, e, s, lane));
    return LS_OK;
}

ls_status ls_driver_join_lanes(ls_driver *d, ls_executor *e, int segment, int first, int count, int worker)
{
    const ls_plan *plan = plan_of(d);
    ls_memory_place *lane = e->places[worker];
    const ls_join *last = NULL;
    ls_status status = LS_OK;
    for (int i = 0; i < plan->join_count && status == LS_OK; i++) {
        const ls_join *join = &plan->joins[i];
        ls_join_lanes_call call = { join->kind, join->dtype, join->plain, lane, count, { NULL, 0 } };
        if (join->group->segment != segment)
            continue;
        for (int v = 0; v < count; v++) {
            bool here = ls_partials_slot(e, segment, first + v) >= 0;
            lane[v] =
                here ? at(d, partials_at(d, e, segment, first + v) + join->partial) : (ls_memory_place){ NULL, 0 };
            call.to = here && !call.to.memory ? lane[v] : call.to;
        }
        status = explain_join(d, last = join, "joining on", ls_device_join_lanes(d->device, &call));
    }
    if (status == LS_OK && last)
        status = explain_join(d, last, "joining on", ls_device_sync(d->device));
    return settle(d, ls_fail_within(status, "lanes %d to %d", first, first + count - 1));
}

/* A part of a join being computed: addresses of each lane's partial, own or received. */
typedef struct joining {
    ls_driver *driver;
    const ls_join *join;
    int64_t count;
    const ls_memory_place *lane; /* Memory NULL: the lane has none. */
} joining;

static ls_status join_two(const joining *j, ls_memory_place to, ls_memory_place left, ls_memory_place right)
{
    ls_join_call call = { j->join->kind, j->join->dtype, j->count, to, left, right };
    return ls_device_join(j->driver->device, &call);
}

/* Computes T[a,b) into its left operand. `to`: where the result must be; without memory: anywhere.
 * *out has no memory if all lanes are empty. */
static ls_status join_tree(const joining *j, int a, int b, ls_memory_place to, ls_memory_place *out)
{
    ls_memory_place nowhere = { NULL, 0 }, left = { NULL, 0 }, right = { NULL, 0 };
    if (b - a == 1) {
        left = j->lane[a];
    } else {
        int k = 1;
        while (k * 2 < b - a)
            k *= 2;
        LS_TRY(join_tree(j, a, a + k, nowhere, &left));
        LS_TRY(join_tree(j, a + k, b, nowhere, &right));
    }
    if (!left.memory) {
        left = right;
        right = nowhere;
    }
    *out = to.memory ? to : left;
    if (left.memory && (right.memory || to.memory))
        return join_two(j, *out, left, right);
    return LS_OK;
}

/* At least one lane is not empty. */
static ls_status join_all(const joining *j, int lanes, ls_memory_place to)
{
    ls_join_lanes_call call = { j->join->kind, j->join->dtype, j->count, j->lane, lanes, to };
    ls_memory_place out;
    return j->driver->device->backend->join_lanes ? ls_device_join_lanes(j->driver->device, &call)
                                                  : join_tree(j, 0, lanes, to, &out);
}

/* A range of a join's elements, for some lanes. */
typedef struct gathering {
    const ls_join *join;
    int64_t from, to;
    int first, count; /* Range of lanes. */
    void *host;       /* Buffer for copies via the host. */
    bool here;        /* Already copied here. */
} gathering;

static size_t received_at(const ls_driver *d, const ls_join *join, size_t n, size_t bytes)
{
    return d->place->receive + d->place->received[join - plan_of(d)->joins] + n * ls_size_align(bytes, LS_ALIGN);
}

/* Own partials stay in place; this range of the others' is copied here. */
static ls_status gather_partials(ls_driver *d, ls_executor *e, const gathering *g, ls_memory_place *lane)
{
    const ls_join *join = g->join;
    size_t element = ls_dtype_bytes(join->dtype), skip = join->partial + (size_t)g->from * element;
    size_t bytes = (size_t)(g->to - g->from) * element, received = 0;
    int segment = join->group->segment;
    for (int v = 0; v < g->count; v++) {
        lane[v] = (ls_memory_place){ NULL, 0 };
        if (ls_partials_slot(e, segment, g->first + v) < 0)
            continue;
        const ls_driver *made = e->drivers[ls_task_device(plan_of(d), segment, g->first + v)];
        size_t there = partials_at(made, e, segment, g->first + v) + skip;
        if (made == d) {
            lane[v] = at(d, there);
            continue;
        }
        size_t here = received_at(d, join, received++, bytes);
        lane[v] = at(d, here);
        if (g->here)
            continue;
        LS_TRY(fetch_from(d, join->group->value, made, there, here, g->host, bytes));
        count(d, join->group->value, made->device->index, d->device->index, bytes);
    }
    return LS_OK;
}

/* Computes T of a pair of blocks into the partials of its first lane, which is on this device. */
static ls_status join_pair(ls_driver *d, ls_executor *e, const ls_unit *u, int worker)
{
    const ls_plan *plan = plan_of(d);
    ls_memory_place *lane = e->places[worker], out;
    for (int i = 0; i < plan->join_count; i++) {
        const ls_join *join = &plan->joins[i];
        gathering g = { .join = join, .to = join->count, .first = u->lane, .count = u->count, .host = d->part };
        joining j = { .driver = d, .join = join, .count = join->count, .lane = lane };
        if (join->group->segment != u->index)
            continue;
        LS_TRY(explain_join(d, join, "copying to", gather_partials(d, e, &g, lane)));
        LS_TRY(explain_join(d, join, "joining on", join_tree(&j, 0, u->count, (ls_memory_place){ NULL, 0 }, &out)));
        LS_TRY(explain_join(d, join, "joining on", ls_device_sync(d->device)));
    }
    ls_partials_merge(e, u->index, u->lane, u->count);
    return LS_OK;
}

static bool is_gradient(const ls_plan *plan, int join)
{
    for (int i = 0; i < plan->update_count; i++)
        if (ls_plan_join_of(plan, &plan->updates[i]) == join)
            return true;
    return false;
}

static ls_status join_part(ls_driver *d, ls_executor *e, int index, const ls_join_part *part, int worker)
{
    const ls_join *join = &plan_of(d)->joins[index];
    int value = join->group->value;
    size_t element = ls_dtype_bytes(join->dtype), skip = (size_t)part->from * element;
    size_t bytes = (size_t)(part->to - part->from) * element;
    ls_memory_place *lane = e->places[worker], to = at(d, d->place->whole[value] + skip);
    char *host = e->whole + join->out.offset + skip;
    gathering g = { .join = join, .from = part->from, .to = part->to, .count = plan_of(d)->lanes };
    g.host = e->whole + join->joined + skip;
    g.here = ls_plan_transfers(plan_of(d), d->device->kind);
    LS_TRY(gather_partials(d, e, &g, lane));
    joining j = { .driver = d, .join = join, .count = part->to - part->from, .lane = lane };
    bool empty = true;
    for (int v = 0; v < plan_of(d)->lanes; v++)
        empty = empty && !lane[v].memory;
    if (!empty)
        LS_TRY(join_all(&j, plan_of(d)->lanes, to));
    if (empty) { /* No samples at all: the sum is zero. */
        memset(host, 0, bytes);
        LS_TRY(upload(d, d->place->whole[value] + skip, host, bytes));
    }
    d->fresh[value] = d->now;
    return is_gradient(plan_of(d), index) ? add_check(d, join->dtype, to, part->to - part->from) : LS_OK;
}

/* Copies the result to the host if needed and records its range. *check: index of the next
 * result. */
static ls_status end_part(ls_driver *d, ls_executor *e, int index, const ls_join_part *part, size_t *check)
{
    const ls_join *join = &plan_of(d)->joins[index];
    int value = join->group->value;
    size_t element = ls_dtype_bytes(join->dtype), skip = (size_t)part->from * element;
    size_t bytes = (size_t)(part->to - part->from) * element;
    if (is_gradient(plan_of(d), index))
        ls_executor_note_range(e, index, d->finite[(*check)++] ? LS_RANGE_LARGE : LS_RANGE_INFINITE);
    if (!d->placement->comes_home[value])
        return LS_OK;
    LS_TRY(download(d, d->place->whole[value] + skip, e->whole + join->out.offset + skip, bytes));
    count(d, value, d->device->index, d->placement->home, bytes);
    return LS_OK;
}

/* Makes one call to the device for all checks. */
static ls_status join_parts(ls_driver *d, ls_executor *e, const ls_unit *u, int worker)
{
    const ls_plan *plan = plan_of(d);
    size_t check = 0;
    d->check_count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = u->index; i < u->index + u->count; i++) {
            const ls_join_place *place = &d->placement->joins[i];
            for (int n = 0; n < place->part_count; n++) {
                const ls_join_part *part = &place->parts[n];
                if (part->owner == d->device->index && part->from < part->to)
                    LS_TRY(
                        explain_join(d, &plan->joins[i], "joining on",
                                     pass == 0 ? join_part(d, e, i, part, worker) : end_part(d, e, i, part, &check)));
            }
        }
        if (pass == 0)
            LS_TRY(explain_join(d, &plan->joins[u->index], "joining on", look(d)));
    }
    return explain_join(d, &plan->joins[u->index], "joining on", ls_device_sync(d->device));
}

static ls_status share(ls_driver *d, ls_executor *e, const ls_unit *u)
{
    const ls_join *join = &plan_of(d)->joins[u->index];
    const ls_join_place *place = &d->placement->joins[u->index];
    int value = join->group->value;
    size_t element = ls_dtype_bytes(join->dtype), here = d->place->whole[value];
    for (int i = 0; i < place->part_count; i++) {
        const ls_join_part *part = &place->parts[i];
        size_t skip = (size_t)part->from * element, bytes = (size_t)(part->to - part->from) * element;
        const ls_driver *owner = e->drivers[part->owner];
        if (owner == d)
            continue;
        if (d->device->backend->copy)
            LS_TRY(fetch_from(d, value, owner, owner->place->whole[value] + skip, here + skip, NULL, bytes));
        else /* The owner copied it to the host. */
            LS_TRY(upload(d, here + skip, e->whole + join->out.offset + skip, bytes));
        count(d, value, part->owner, d->device->index, bytes);
    }
    d->fresh[value] = d->now;
    return ls_device_sync(d->device);
}

/* ---- One transfer for all joins ---- */

static ls_status add_transfer(ls_driver *d, const ls_driver *from, size_t there, const ls_driver *to, size_t here,
                              size_t bytes)
{
    if (bytes == 0)
        return LS_OK;
    LS_TRY(ls_grow(&d->transfers, d->transfer_count, &d->transfer_room, sizeof(*d->transfers)));
    d->transfers[d->transfer_count++] = (ls_transfer){ .from_device = from->device->handle,
                                                       .to_device = to->device->handle,
                                                       .from = at(from, there),
                                                       .to = at(to, here),
                                                       .bytes = bytes };
    return LS_OK;
}

/* Lists them in the order in which gather_partials expects them. */
static ls_status list_gathered(ls_driver *d, ls_executor *e, const ls_join *join, const ls_join_part *part)
{
    const ls_driver *owner = e->drivers[part->owner];
    size_t element = ls_dtype_bytes(join->dtype), skip = join->partial + (size_t)part->from * element;
    size_t bytes = (size_t)(part->to - part->from) * element, received = 0;
    int segment = join->group->segment;
    for (int lane = 0; lane < plan_of(d)->lanes; lane++) {
        const ls_driver *made = e->drivers[ls_task_device(plan_of(d), segment, lane)];
        if (made == owner || ls_partials_slot(e, segment, lane) < 0)
            continue;
        LS_TRY(add_transfer(d, made, partials_at(made, e, segment, lane) + skip, owner,
                            received_at(owner, join, received++, bytes), bytes));
        count(d, join->group->value, made->device->index, part->owner, bytes);
    }
    return LS_OK;
}

static ls_status list_shared(ls_driver *d, ls_executor *e, const ls_join *join, const ls_join_part *part)
{
    const ls_driver *owner = e->drivers[part->owner];
    int value = join->group->value;
    size_t skip = (size_t)part->from * ls_dtype_bytes(join->dtype);
    size_t bytes = (size_t)(part->to - part->from) * ls_dtype_bytes(join->dtype);
    for (int i = d->placement->ctx->cpu_count; i < e->devices; i++) {
        ls_driver *reader = e->drivers[i];
        if (!reader || reader->device->kind != d->device->kind || !ls_is_looked_at(d->placement, value, i))
            continue;
        reader->fresh[value] = reader->now;
        if (reader == owner)
            continue;
        LS_TRY(add_transfer(d, owner, owner->place->whole[value] + skip, reader, reader->place->whole[value] + skip,
                            bytes));
        count(d, value, part->owner, i, bytes);
    }
    return LS_OK;
}

/* Makes the transfers of all devices of this one's kind, which are idle meanwhile. */
static ls_status transfer_all(ls_driver *d, ls_executor *e, const ls_phase *phase, const ls_unit *u)
{
    ls_context *ctx = plan_of(d)->graph->context;
    d->transfer_count = 0;
    d->began = ls_clock_now();
    for (int i = u->index; i < u->index + u->count; i++) {
        const ls_join *join = &plan_of(d)->joins[i];
        for (int n = 0; join->group->kind == d->device->kind && n < d->placement->joins[i].part_count; n++)
            LS_TRY((phase->kind == LS_PHASE_GATHER ? list_gathered : list_shared)(d, e, join,
                                                                                  &d->placement->joins[i].parts[n]));
    }
    return explain_join(
        d, &plan_of(d)->joins[u->index], "moving joins between devices by",
        ls_devices_transfer(ctx->devices, ctx->device_count, d->device->kind, d->transfers, (int)d->transfer_count));
}

/* ---- Units ---- */

static ls_status run(ls_driver *d, ls_executor *e, const ls_phase *phase, const ls_unit *u, int worker)
{
    switch (phase->kind) {
    case LS_PHASE_LANES:
        return run_lane(d, e, u, worker);
    case LS_PHASE_WHOLE:
        return run_whole(d, e, u, worker);
    case LS_PHASE_HOME:
        return bring_all_home(d, e, u);
    case LS_PHASE_PAIR:
        return join_pair(d, e, u, worker);
    case LS_PHASE_JOIN:
        return join_parts(d, e, u, worker);
    case LS_PHASE_GATHER:
        return transfer_all(d, e, phase, u);
    case LS_PHASE_SHARE:
        if (ls_plan_transfers(plan_of(d), d->device->kind))
            return transfer_all(d, e, phase, u);
        return explain_join(d, &plan_of(d)->joins[u->index], "copying to", share(d, e, u));
    case LS_PHASE_CHECK:
        return run_check(d, e, u, worker);
    case LS_PHASE_UPDATE:
        return run_updates(d, e, u, worker);
    default:
        return ls_fail(LS_ERR_INTERNAL, "%s cannot do a unit of phase %d", d->device->name, (int)phase->kind);
    }
}

ls_status ls_driver_run(ls_driver *d, ls_executor *e, const ls_phase *phase, const ls_unit *u, int worker)
{
    d->executor = e;
    d->worker = worker;
    return settle(d, run(d, e, phase, u, worker));
}
