/* Programs for another kind of device, and what has to be copied around them. */
#include "run/driver.h"

#include <stdlib.h>
#include <string.h>

#include "device/calls.h"
#include "run/executor_private.h"

/* The steps of a segment, or one whole step, as its backend sees them. */
typedef struct program {
    ls_program program;
    ls_program_step *steps;
    ls_program_slot *slots; /* inputs of all steps */
    void *plan;             /* the backend's; NULL: nothing of it runs here */
} program;

struct ls_driver {
    const ls_placement *placement;
    ls_device *device;
    const ls_place *place;
    ls_block *block;
    program *segments; /* by segment */
    program *wholes;   /* by whole step */
    uint64_t now;      /* number of the run at hand */
    uint64_t *fresh;   /* by plan node: the run that brought its whole value here */
    uint64_t *arrived; /* by kept value and lane: the run that brought it here */
};

static const ls_plan *plan_of(const ls_driver *d)
{
    return d->placement->plan;
}

/* ---- Failing ---- */

/* The backend's message, with the node and the device it was about. */
static ls_status explain(const ls_driver *d, const ls_step *step, const char *what, ls_status status)
{
    char label[LS_NODE_TEXT], message[512];
    if (status == LS_OK)
        return LS_OK;
    snprintf(message, sizeof(message), "%s", ls_last_error());
    return ls_fail(status, "%s (op %s): %s %s: %s", ls_node_label(step->group->root, label),
                   ls_tensor_op(step->group->root), what, d->device->name, message);
}

/* After a failure the device is left with nothing to do and nothing to tell, and what was brought in vain is forgotten:
 * the next run begins anew. */
static ls_status settle(ls_driver *d, ls_status status)
{
    char message[1024];
    if (status == LS_OK)
        return LS_OK;
    snprintf(message, sizeof(message), "%s", ls_last_error());
    (void)ls_device_sync(d->device);
    memset(d->fresh, 0, (size_t)plan_of(d)->node_count * sizeof(*d->fresh));
    return ls_fail(status, "%s", message);
}

/* ---- Making programs ---- */

static ls_program_slot slot_of(const ls_driver *d, const ls_operand *o)
{
    ls_program_slot slot = { .unit = o->unit, .per_sample = o->per_sample };
    if (ls_is_staged(o)) {
        slot.offset = d->place->stage[o->value];
    } else if (o->home == LS_HOME_KEPT) {
        slot.offset = d->place->kept[o->offset];
        slot.kept = true;
    } else if (o->home == LS_HOME_MICRO) {
        slot.offset = d->place->micro + o->offset;
    } else {
        slot.offset = d->place->whole[o->value];
    }
    return slot;
}

static ls_program_slot out_slot(const ls_driver *d, const ls_step *step)
{
    if (step->out.home == LS_HOME_PARTIAL)
        return (ls_program_slot){ .offset = d->place->micro + step->temp, .unit = step->out.unit };
    return slot_of(d, &step->out);
}

static ls_status make_program(ls_driver *d, const ls_step *steps, int count, int64_t samples, program *out)
{
    int inputs = 0;
    for (int i = 0; i < count; i++)
        inputs += steps[i].group->in_count;
    out->steps = calloc((size_t)count + 1, sizeof(*out->steps));
    out->slots = calloc((size_t)inputs + 1, sizeof(*out->slots));
    if (!out->steps || !out->slots)
        return ls_fail(LS_ERR_MEMORY, "no memory for a program of %d steps", count);
    ls_program_slot *slot = out->slots;
    for (int i = 0; i < count; i++) {
        const ls_group *group = steps[i].group;
        out->steps[i] = (ls_program_step){ .node = group->root, .in = slot, .out = out_slot(d, &steps[i]) };
        for (int k = 0; k < group->in_count; k++)
            *slot++ = slot_of(d, &steps[i].in[k]);
    }
    out->program = (ls_program){ .steps = out->steps, .step_count = count, .samples = samples };
    return explain(d, &steps[0], "planning for", ls_device_plan_create(d->device, &out->program, &out->plan));
}

static ls_status make_programs(ls_driver *d)
{
    const ls_plan *plan = plan_of(d);
    for (int s = 0; s < plan->segment_count; s++)
        if (ls_runs_on(d->placement, s, d->device->index))
            LS_TRY(make_program(d, plan->segments[s].steps, plan->segments[s].step_count, plan->segments[s].micro,
                                &d->segments[s]));
    for (int i = 0; i < plan->whole_count; i++)
        if (d->placement->whole_device[i] == d->device->index)
            LS_TRY(make_program(d, &plan->whole_steps[i], 1, 1, &d->wholes[i]));
    return LS_OK;
}

/* There is one: a driver is made for a device that has something to do. */
static const ls_step *first_step(const ls_driver *d)
{
    const ls_plan *plan = plan_of(d);
    for (int s = 0; s < plan->segment_count; s++)
        if (ls_runs_on(d->placement, s, d->device->index))
            return plan->segments[s].steps;
    int i = 0;
    while (i < plan->whole_count - 1 && d->placement->whole_device[i] != d->device->index)
        i++;
    return &plan->whole_steps[i];
}

static ls_status fill(ls_driver *d)
{
    const ls_plan *plan = plan_of(d);
    d->segments = calloc((size_t)plan->segment_count + 1, sizeof(*d->segments));
    d->wholes = calloc((size_t)plan->whole_count + 1, sizeof(*d->wholes));
    d->fresh = calloc((size_t)plan->node_count + 1, sizeof(*d->fresh));
    d->arrived = calloc((size_t)plan->kept_count * (size_t)plan->lanes + 1, sizeof(*d->arrived));
    if (!d->segments || !d->wholes || !d->fresh || !d->arrived)
        return ls_fail(LS_ERR_MEMORY, "no memory to drive %s", d->device->name);
    LS_TRY(explain(d, first_step(d), "memory of",
                   ls_memory_take(d->device->memory, d->place->total_bytes, "plan", &d->block)));
    return make_programs(d);
}

ls_status ls_driver_create(const ls_placement *placement, int device, ls_driver **out)
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
    ls_status status = fill(d);
    if (status != LS_OK) {
        ls_driver_destroy(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

static void free_programs(const ls_driver *d, program *programs, int count)
{
    for (int i = 0; programs && i < count; i++) {
        if (programs[i].plan)
            ls_device_plan_destroy(d->device, programs[i].plan);
        free(programs[i].steps);
        free(programs[i].slots);
    }
    free(programs);
}

void ls_driver_destroy(ls_driver *d)
{
    if (!d)
        return;
    free_programs(d, d->segments, plan_of(d)->segment_count);
    free_programs(d, d->wholes, plan_of(d)->whole_count);
    ls_memory_give(d->device->memory, d->block);
    free(d->fresh);
    free(d->arrived);
    free(d);
}

void ls_driver_begin(ls_driver *d)
{
    d->now++;
}

/* ---- Copies ---- */

static size_t in_region(const ls_driver *d, size_t offset)
{
    return d->block->offset + offset;
}

static ls_status upload(const ls_driver *d, size_t offset, const void *from, size_t bytes)
{
    return ls_device_upload(d->device, d->block->region, in_region(d, offset), from, bytes);
}

static ls_status download(const ls_driver *d, size_t offset, void *to, size_t bytes)
{
    return ls_device_download(d->device, d->block->region, in_region(d, offset), to, bytes);
}

static void count(const ls_driver *d, int value, int from, int to, size_t bytes)
{
    char label[LS_NODE_TEXT];
    ls_context_count_copy(plan_of(d)->graph->context, ls_node_label(plan_of(d)->nodes[value].node, label), from, to,
                          bytes);
}

/* Which device a leaf came from; a constant that was made for this device is no copy. Other leaves live with CPUs,
 * whatever was asked for. */
static int leaf_home(const ls_driver *d, const ls_tensor *node)
{
    bool asked = node->device != LS_ANY_DEVICE;
    if (node->op == LS_OP_constant)
        return asked ? node->device : d->device->index;
    return asked && d->placement->ctx->devices[node->device].kind == LS_CPU ? node->device : d->placement->home;
}

/* A whole value comes once a run; a constant once for all. */
static ls_status bring_whole(ls_driver *d, ls_executor *e, const ls_operand *o, int worker)
{
    const ls_tensor *node = plan_of(d)->nodes[o->value].node;
    bool leaf = plan_of(d)->nodes[o->value].group < 0;
    uint64_t *fresh = &d->fresh[o->value];
    if (*fresh == d->now || (node->op == LS_OP_constant && *fresh > 0))
        return LS_OK;
    LS_TRY(upload(d, d->place->whole[o->value], ls_executor_locate(e, o, worker, 0, 0), o->unit));
    *fresh = d->now;
    int from = leaf ? leaf_home(d, node) : d->placement->home;
    if (from != d->device->index)
        count(d, o->value, from, d->device->index, o->unit);
    return LS_OK;
}

/* The samples of a lane that were fed, or are rows of a gathered value. */
static ls_status bring_samples(ls_driver *d, ls_executor *e, const ls_operand *o, int worker, int64_t first,
                               int64_t samples)
{
    size_t bytes = o->unit * (size_t)samples;
    if (o->home == LS_HOME_OUTSIDE && e->outside[o->value].rows)
        ls_executor_pick_rows(e, o, worker, first, samples);
    LS_TRY(upload(d, d->place->stage[o->value], ls_executor_locate(e, o, worker, 0, first), bytes));
    count(d, o->value, d->placement->home, d->device->index, bytes);
    return LS_OK;
}

/* A kept value of a lane that another device computed. */
static ls_status bring_kept(ls_driver *d, ls_executor *e, const ls_operand *o, int lane, int64_t samples)
{
    const ls_placement *p = d->placement;
    size_t at = o->offset * (size_t)plan_of(d)->lanes + (size_t)lane, bytes = o->unit * (size_t)samples;
    size_t here = d->place->kept[o->offset] + o->unit * (size_t)d->place->row[lane];
    int made = p->made[at];
    if (made == d->device->index || d->arrived[at] == d->now)
        return LS_OK;
    if (p->ctx->devices[made].kind == d->device->kind && d->device->backend->copy) {
        const ls_driver *other = e->drivers[made];
        size_t there = other->place->kept[o->offset] + o->unit * (size_t)other->place->row[lane];
        LS_TRY(ls_device_copy(d->device, d->block->region, in_region(d, here), other->device, other->block->region,
                              in_region(other, there), bytes));
    } else {
        int64_t first = ls_lane_first(plan_of(d)->batch, plan_of(d)->lanes, lane);
        LS_TRY(upload(d, here, ls_executor_locate(e, o, 0, lane, first), bytes));
    }
    d->arrived[at] = d->now;
    count(d, o->value, made, d->device->index, bytes);
    return LS_OK;
}

/* ---- Running ---- */

static ls_status run_program(const ls_driver *d, const ls_executor *e, const program *p, int64_t samples, int64_t row,
                             int64_t first)
{
    ls_program_run run = { .memory = d->block->region,
                           .base = d->block->offset,
                           .samples = samples,
                           .row = row,
                           .first = first,
                           .batch = plan_of(d)->batch,
                           .seed = e->seed,
                           .run = e->run };
    return ls_device_plan_run(d->device, p->plan, &run);
}

static ls_status bring_inputs(ls_driver *d, ls_executor *e, const ls_step *step, int worker, int lane, int64_t first,
                              int64_t samples)
{
    for (int k = 0; k < step->group->in_count; k++) {
        const ls_operand *o = &step->in[k];
        if (ls_is_staged(o))
            LS_TRY(bring_samples(d, e, o, worker, first, samples));
        else if (o->home == LS_HOME_OUTSIDE || o->home == LS_HOME_WHOLE)
            LS_TRY(bring_whole(d, e, o, worker));
        else if (o->home == LS_HOME_KEPT)
            LS_TRY(bring_kept(d, e, o, lane, samples));
    }
    return LS_OK;
}

/* What a step made and somebody else needs. */
static ls_status take_back(ls_driver *d, ls_executor *e, const ls_step *step, int lane, int64_t first, int64_t samples)
{
    const ls_operand *o = &step->out;
    ls_program_slot slot = out_slot(d, step);
    if (o->home == LS_HOME_PARTIAL) {
        size_t bytes = plan_of(d)->joins[step->group->join].bytes;
        LS_TRY(download(d, slot.offset, ls_executor_locate(e, o, 0, lane, first), bytes));
        count(d, o->value, d->device->index, d->placement->home, bytes);
    } else if (o->home == LS_HOME_KEPT) {
        int host = d->placement->host[o->offset * (size_t)plan_of(d)->lanes + (size_t)lane];
        size_t bytes = o->unit * (size_t)samples;
        if (host < 0)
            return LS_OK;
        LS_TRY(download(d, slot.offset + o->unit * (size_t)d->place->row[lane],
                        ls_executor_locate(e, o, 0, lane, first), bytes));
        count(d, o->value, d->device->index, host, bytes);
    }
    return LS_OK;
}

static ls_status run_task(ls_driver *d, ls_executor *e, int segment, int worker, int lane)
{
    const ls_plan *plan = plan_of(d);
    const ls_segment *s = &plan->segments[segment];
    int64_t first = ls_lane_first(plan->batch, plan->lanes, lane);
    int64_t samples = ls_lane_first(plan->batch, plan->lanes, lane + 1) - first;
    if (samples == 0)
        return LS_OK;
    for (int i = 0; i < s->step_count; i++)
        LS_TRY(explain(d, &s->steps[i], "copying to", bring_inputs(d, e, &s->steps[i], worker, lane, first, samples)));
    LS_TRY(explain(d, &s->steps[0], "running on",
                   run_program(d, e, &d->segments[segment], samples, d->place->row[lane], first)));
    for (int i = 0; i < s->step_count; i++)
        LS_TRY(explain(d, &s->steps[i], "copying from", take_back(d, e, &s->steps[i], lane, first, samples)));
    return explain(d, &s->steps[s->step_count - 1], "running on", ls_device_sync(d->device));
}

ls_status ls_driver_run_task(ls_driver *d, ls_executor *e, int segment, int worker, int lane)
{
    return settle(d, run_task(d, e, segment, worker, lane));
}

static ls_status run_whole_step(ls_driver *d, ls_executor *e, int index, int worker)
{
    const ls_step *step = &plan_of(d)->whole_steps[index];
    LS_TRY(explain(d, step, "copying to", bring_inputs(d, e, step, worker, 0, 0, 1)));
    LS_TRY(explain(d, step, "running on", run_program(d, e, &d->wholes[index], 1, 0, 0)));
    d->fresh[step->out.value] = d->now;
    if (!d->placement->whole_host[step->out.value])
        return LS_OK;
    LS_TRY(explain(d, step, "copying from",
                   download(d, d->place->whole[step->out.value], ls_executor_locate(e, &step->out, worker, 0, 0),
                            step->out.unit)));
    count(d, step->out.value, d->device->index, d->placement->home, step->out.unit);
    return LS_OK;
}

static ls_status run_whole(ls_driver *d, ls_executor *e, int first, int number, int worker)
{
    for (int i = first; i < first + number; i++)
        LS_TRY(run_whole_step(d, e, i, worker));
    return explain(d, &plan_of(d)->whole_steps[first + number - 1], "running on", ls_device_sync(d->device));
}

ls_status ls_driver_run_whole(ls_driver *d, ls_executor *e, int first, int number, int worker)
{
    return settle(d, run_whole(d, e, first, number, worker));
}
