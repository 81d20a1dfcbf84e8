/* Copies between the host, other devices and the device of a driver. */
#include "run/driver_copies.h"

#include "base/clock.h"
#include "device/calls.h"
#include "run/partials.h"

ls_status ls_driver_upload(ls_driver *d, size_t offset, const void *from, size_t bytes)
{
    d->copy_start = ls_clock_now();
    return ls_device_upload(d->device, d->block->region, d->block->offset + offset, from, bytes);
}

static ls_status download_from(const ls_driver *d, size_t offset, void *to, size_t bytes)
{
    return ls_device_download(d->device, d->block->region, d->block->offset + offset, to, bytes);
}

ls_status ls_driver_download(ls_driver *d, size_t offset, void *to, size_t bytes)
{
    d->copy_start = ls_clock_now();
    return download_from(d, offset, to, bytes);
}

void ls_driver_count_copy(const ls_driver *d, int value, int from, int to, size_t bytes)
{
    char label[LS_NODE_TEXT];
    ls_context_count_copy(ls_driver_plan(d)->graph->context, ls_node_label(ls_driver_plan(d)->nodes[value].node, label),
                          from, to, bytes);
    ls_meter *meter = &d->executor->meters[d->thread];
    double seconds = ls_clock_now() - d->copy_start;
    meter->copies += seconds;
    if (from != d->device->index && d->placement->ctx->devices[from].kind != LS_CPU)
        meter->between += seconds;
    if (d->executor->timeline)
        ls_timeline_copy(d->executor, d->thread, value, from, to, bytes, d->copy_start);
}

ls_status ls_driver_fetch(ls_driver *d, int value, const ls_driver *other, size_t there, size_t here, void *host,
                          size_t bytes)
{
    d->copy_start = ls_clock_now();
    if (d->device->backend->copy) {
        ls_memory_place to = ls_driver_at(d, here), from = ls_driver_at(other, there);
        return ls_device_copy(d->device, to.memory, to.offset, other->device, from.memory, from.offset, bytes);
    }
    LS_TRY(download_from(other, there, host, bytes));
    ls_driver_count_copy(d, value, other->device->index, d->placement->home, bytes);
    return ls_driver_upload(d, here, host, bytes);
}

/* A constant of this device is no copy. Other leaves are on CPUs, whatever was requested. */
static int leaf_device(const ls_driver *d, const ls_tensor *node)
{
    bool asked = node->device != LS_ANY_DEVICE;
    if (node->op == LS_OP_constant)
        return asked ? node->device : d->device->index;
    return asked && d->placement->ctx->devices[node->device].kind == LS_CPU ? node->device : d->placement->home;
}

ls_status ls_driver_bring_whole(ls_driver *d, ls_executor *e, const ls_operand *o, int thread)
{
    const ls_tensor *node = ls_driver_plan(d)->nodes[o->value].node;
    bool leaf = ls_driver_plan(d)->nodes[o->value].group < 0;
    uint64_t *fresh = &d->fresh[o->value];
    if (*fresh == d->now || (node->op == LS_OP_constant && *fresh > 0) || (leaf && node->op == LS_OP_variable))
        return LS_OK;
    /* The plain value: a CPU kernel may read it in a format of its own. */
    o = &ls_driver_plan(d)->value_of[o->value];
    LS_TRY(ls_driver_upload(d, d->place->whole[o->value], ls_executor_locate(e, o, thread, 0, 0), o->unit));
    *fresh = d->now;
    d->copied[o->value] = true;
    int from = leaf ? leaf_device(d, node) : d->placement->home;
    if (from != d->device->index)
        ls_driver_count_copy(d, o->value, from, d->device->index, o->unit);
    return LS_OK;
}

size_t ls_driver_task_at(const ls_driver *d, const ls_driver_task *t)
{
    return d->place->tasks_at + (size_t)t->number * d->place->task_bytes;
}

/* Samples that were fed, or are rows of a gathered value. */
static ls_status bring_samples(ls_driver *d, ls_executor *e, const ls_operand *o, int thread, const ls_driver_task *t)
{
    size_t bytes = o->unit * (size_t)t->samples;
    if (o->storage == LS_EXTERNAL && e->external[o->value].rows)
        ls_executor_pick_rows(e, o, thread, t->first, t->samples);
    LS_TRY(ls_driver_upload(d, ls_driver_task_at(d, t) + d->place->staging[o->value],
                            ls_executor_locate(e, o, thread, 0, t->first), bytes));
    ls_driver_count_copy(d, o->value, d->placement->home, d->device->index, bytes);
    return LS_OK;
}

size_t ls_driver_frame_at(const ls_driver *d, const ls_executor *e, int lane)
{
    int frame = e->frame_of[(size_t)d->device->index * (size_t)ls_driver_plan(d)->lanes + (size_t)lane];
    return d->place->frames_at + (size_t)(frame < 0 ? 0 : frame) * d->place->frame_bytes;
}

static size_t kept_at(const ls_driver *d, const ls_executor *e, size_t kept, int lane)
{
    const ls_kept *k = &ls_driver_plan(d)->kept[kept];
    if (k->framed)
        return ls_driver_frame_at(d, e, lane) + d->place->kept[kept];
    return d->place->kept_at + d->place->kept[kept] + k->unit * (size_t)d->place->row[lane];
}

static ls_status bring_kept(ls_driver *d, ls_executor *e, const ls_operand *o, int lane, int64_t samples)
{
    const ls_placement *p = d->placement;
    size_t index = o->offset * (size_t)ls_driver_plan(d)->lanes + (size_t)lane;
    size_t bytes = ls_kept_bytes(&ls_driver_plan(d)->kept[o->offset], samples);
    size_t here = kept_at(d, e, o->offset, lane);
    int made = p->made[index];
    if (made == d->device->index || d->arrived[index] == d->now)
        return LS_OK;
    if (p->ctx->devices[made].kind == d->device->kind && d->device->backend->copy) {
        LS_TRY(ls_driver_fetch(d, o->value, e->drivers[made], kept_at(e->drivers[made], e, o->offset, lane), here, NULL,
                               bytes));
    } else {
        int64_t first = ls_lane_first(ls_driver_plan(d)->batch, ls_driver_plan(d)->lanes, lane);
        LS_TRY(ls_driver_upload(d, here, ls_executor_locate(e, o, 0, lane, first), bytes));
    }
    d->arrived[index] = d->now;
    ls_driver_count_copy(d, o->value, made, d->device->index, bytes);
    return LS_OK;
}

ls_status ls_driver_bring_inputs(ls_driver *d, ls_executor *e, const ls_step *step, int thread, const ls_driver_task *t)
{
    for (int k = 0; k < step->group->in_count; k++) {
        const ls_operand *o = &step->in[k];
        if (ls_is_staged(o))
            LS_TRY(bring_samples(d, e, o, thread, t));
        else if (o->storage == LS_EXTERNAL || o->storage == LS_WHOLE)
            LS_TRY(ls_driver_bring_whole(d, e, o, thread));
        else if (o->storage == LS_KEPT)
            LS_TRY(bring_kept(d, e, o, t->lane, t->samples));
    }
    return LS_OK;
}

static ls_status take_back(ls_driver *d, ls_executor *e, const ls_operand *o, const ls_driver_task *t)
{
    int host = d->placement->host[o->offset * (size_t)ls_driver_plan(d)->lanes + (size_t)t->lane];
    size_t bytes = ls_kept_bytes(&ls_driver_plan(d)->kept[o->offset], t->samples);
    if (host < 0)
        return LS_OK;
    LS_TRY(ls_driver_download(d, kept_at(d, e, o->offset, t->lane), ls_executor_locate(e, o, 0, t->lane, t->first),
                              bytes));
    ls_driver_count_copy(d, o->value, d->device->index, host, bytes);
    return LS_OK;
}

size_t ls_driver_partials_at(const ls_driver *d, const ls_executor *e, int segment, int lane)
{
    return d->place->partials_at + ls_partials_offset(e, segment, lane);
}

/* Copies the lane's own partial for its readers: the original will be joined with others. */
static ls_status keep_lane_part(ls_driver *d, ls_executor *e, const ls_step *step, int lane)
{
    const ls_kept *kept = &ls_driver_plan(d)->kept[step->group->lane_kept];
    size_t from = ls_driver_partials_at(d, e, step->group->segment, lane) + step->out.offset;
    return ls_driver_fetch(d, kept->value, d, from, kept_at(d, e, (size_t)step->group->lane_kept, lane), d->transit,
                           kept->unit);
}

ls_status ls_driver_give_kept(ls_driver *d, ls_executor *e, const ls_step *step, const ls_driver_task *t)
{
    if (step->group->lane_kept >= 0) {
        ls_operand part = { .value = step->group->value,
                            .storage = LS_KEPT,
                            .offset = (size_t)step->group->lane_kept,
                            .unit = ls_driver_plan(d)->kept[step->group->lane_kept].unit };
        LS_TRY(keep_lane_part(d, e, step, t->lane));
        return take_back(d, e, &part, t);
    }
    return step->out.storage == LS_KEPT ? take_back(d, e, &step->out, t) : LS_OK;
}
