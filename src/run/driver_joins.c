/* Joins partials on the device of a driver, and moves partials and results between devices. */
#include "run/driver_joins.h"

#include <string.h>

#include "base/clock.h"
#include "base/grow.h"
#include "device/calls.h"
#include "run/driver_copies.h"
#include "run/driver_updates.h"
#include "run/host_joins.h"
#include "run/partials.h"

static ls_status explain_join(const ls_driver *d, const ls_join *join, const char *what, ls_status status)
{
    return ls_driver_explain(d, &(ls_step){ .group = join->group }, what, status);
}

ls_status ls_driver_join_siblings(ls_driver *d, ls_executor *e, int segment, int left, int right)
{
    const ls_plan *plan = ls_driver_plan(d);
    ls_memory_place to = ls_driver_at(d, ls_driver_partials_at(d, e, segment, left)),
                    from = ls_driver_at(d, ls_driver_partials_at(d, e, segment, right));
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
    return ls_driver_recover(d, ls_fail_within(status, "lanes %d and %d", left, right));
}

/* Converts to the format of the host's kernel. */
static ls_status bring_home(ls_driver *d, ls_executor *e, int segment, int lane)
{
    const ls_plan *plan = ls_driver_plan(d);
    char *room = ls_partials_of(e, segment, lane);
    for (int i = 0; room && i < plan->join_count; i++) {
        const ls_join *join = &plan->joins[i];
        ls_kernel *kernel = join->group->kernel;
        size_t bytes = (size_t)join->plain * ls_dtype_bytes(join->dtype);
        if (join->group->segment != segment)
            continue;
        char *to = room + join->partial;
        LS_TRY(explain_join(d, join, "copying from",
                            ls_driver_download(d, ls_driver_partials_at(d, e, segment, lane) + join->partial,
                                               kernel->pack ? d->transit : to, bytes)));
        if (kernel->pack)
            kernel->pack(kernel, d->transit, to);
        ls_driver_count_copy(d, join->group->value, d->device->index, d->placement->home, bytes);
    }
    return LS_OK;
}

ls_status ls_driver_bring_home(ls_driver *d, ls_executor *e, int segment, int lane)
{
    return ls_driver_recover(d, bring_home(d, e, segment, lane));
}

ls_status ls_driver_bring_all_home(ls_driver *d, ls_executor *e, const ls_unit *u)
{
    for (int s = u->index; s < u->index + u->count; s++)
        for (int lane = 0; lane < ls_driver_plan(d)->lanes; lane++)
            if (ls_task_device(ls_driver_plan(d), s, lane) == d->device->index)
                LS_TRY(bring_home(d, e, s, lane));
    return LS_OK;
}

ls_status ls_driver_join_lanes(ls_driver *d, ls_executor *e, int segment, int first, int count, int thread)
{
    const ls_plan *plan = ls_driver_plan(d);
    ls_memory_place *lane = e->places[thread];
    const ls_join *last = NULL;
    ls_status status = LS_OK;
    for (int i = 0; i < plan->join_count && status == LS_OK; i++) {
        const ls_join *join = &plan->joins[i];
        ls_join_lanes_call call = { join->kind, join->dtype, join->plain, lane, count, { NULL, 0 } };
        if (join->group->segment != segment)
            continue;
        for (int v = 0; v < count; v++) {
            bool here = ls_partials_slot(e, segment, first + v) >= 0;
            lane[v] = here ? ls_driver_at(d, ls_driver_partials_at(d, e, segment, first + v) + join->partial)
                           : (ls_memory_place){ NULL, 0 };
            call.to = here && !call.to.memory ? lane[v] : call.to;
        }
        status = explain_join(d, last = join, "joining on", ls_device_join_lanes(d->device, &call));
    }
    if (status == LS_OK && last)
        status = explain_join(d, last, "joining on", ls_device_sync(d->device));
    return ls_driver_recover(d, ls_fail_within(status, "lanes %d to %d", first, first + count - 1));
}

/* A part of a join, with each lane's partial, own or received. */
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

/* Computes T[a,b) into `to`, or into its left operand if that has no memory. *out has no memory if
 * all lanes are empty. / */
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
    return d->place->receive + d->place->received[join - ls_driver_plan(d)->joins] + n * ls_size_align(bytes, LS_ALIGN);
}

/* Copies this range of the partials of other devices. */
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
        const ls_driver *made = e->drivers[ls_task_device(ls_driver_plan(d), segment, g->first + v)];
        size_t there = ls_driver_partials_at(made, e, segment, g->first + v) + skip;
        if (made == d) {
            lane[v] = ls_driver_at(d, there);
            continue;
        }
        size_t here = received_at(d, join, received++, bytes);
        lane[v] = ls_driver_at(d, here);
        if (g->here)
            continue;
        LS_TRY(ls_driver_fetch(d, join->group->value, made, there, here, g->host, bytes));
        ls_driver_count_copy(d, join->group->value, made->device->index, d->device->index, bytes);
    }
    return LS_OK;
}

/* Into the partials of its first lane, which is on this device. */
ls_status ls_driver_join_pair(ls_driver *d, ls_executor *e, const ls_unit *u, int thread)
{
    const ls_plan *plan = ls_driver_plan(d);
    ls_memory_place *lane = e->places[thread], out;
    for (int i = 0; i < plan->join_count; i++) {
        const ls_join *join = &plan->joins[i];
        gathering g = { .join = join, .to = join->count, .first = u->lane, .count = u->count, .host = d->transit };
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

static ls_status join_part(ls_driver *d, ls_executor *e, int index, const ls_join_part *part, int thread)
{
    const ls_join *join = &ls_driver_plan(d)->joins[index];
    int value = join->group->value;
    size_t element = ls_dtype_bytes(join->dtype), skip = (size_t)part->from * element;
    size_t bytes = (size_t)(part->to - part->from) * element;
    ls_memory_place *lane = e->places[thread], to = ls_driver_at(d, d->place->whole[value] + skip);
    char *host = e->whole + join->out.offset + skip;
    gathering g = { .join = join, .from = part->from, .to = part->to, .count = ls_driver_plan(d)->lanes };
    g.host = e->whole + join->joined + skip;
    g.here = ls_plan_transfers(ls_driver_plan(d), d->device->kind);
    LS_TRY(gather_partials(d, e, &g, lane));
    joining j = { .driver = d, .join = join, .count = part->to - part->from, .lane = lane };
    bool empty = true;
    for (int v = 0; v < ls_driver_plan(d)->lanes; v++)
        empty = empty && !lane[v].memory;
    if (!empty)
        LS_TRY(join_all(&j, ls_driver_plan(d)->lanes, to));
    if (empty) { /* No samples at all: the sum is zero. */
        memset(host, 0, bytes);
        LS_TRY(ls_driver_upload(d, d->place->whole[value] + skip, host, bytes));
    }
    d->fresh[value] = d->now;
    return is_gradient(ls_driver_plan(d), index) ? ls_driver_add_check(d, join->dtype, to, part->to - part->from)
                                                 : LS_OK;
}

/* Copies the result to the host if needed, and records its range. *check: the next result. */
static ls_status end_part(ls_driver *d, ls_executor *e, int index, const ls_join_part *part, size_t *check)
{
    const ls_join *join = &ls_driver_plan(d)->joins[index];
    int value = join->group->value;
    size_t element = ls_dtype_bytes(join->dtype), skip = (size_t)part->from * element;
    size_t bytes = (size_t)(part->to - part->from) * element;
    if (is_gradient(ls_driver_plan(d), index))
        ls_executor_note_range(e, index, d->finite[(*check)++] ? LS_RANGE_LARGE : LS_RANGE_INFINITE);
    if (!d->placement->comes_home[value])
        return LS_OK;
    LS_TRY(ls_driver_download(d, d->place->whole[value] + skip, e->whole + join->out.offset + skip, bytes));
    ls_driver_count_copy(d, value, d->device->index, d->placement->home, bytes);
    return LS_OK;
}

/* Makes one call to the device for all checks. */
ls_status ls_driver_join_parts(ls_driver *d, ls_executor *e, const ls_unit *u, int thread)
{
    const ls_plan *plan = ls_driver_plan(d);
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
                                     pass == 0 ? join_part(d, e, i, part, thread) : end_part(d, e, i, part, &check)));
            }
        }
        if (pass == 0)
            LS_TRY(explain_join(d, &plan->joins[u->index], "joining on", ls_driver_check_finite(d)));
    }
    return explain_join(d, &plan->joins[u->index], "joining on", ls_device_sync(d->device));
}

static ls_status share(ls_driver *d, ls_executor *e, const ls_unit *u)
{
    const ls_join *join = &ls_driver_plan(d)->joins[u->index];
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
            LS_TRY(ls_driver_fetch(d, value, owner, owner->place->whole[value] + skip, here + skip, NULL, bytes));
        else /* The owner copied it to the host. */
            LS_TRY(ls_driver_upload(d, here + skip, e->whole + join->out.offset + skip, bytes));
        ls_driver_count_copy(d, value, part->owner, d->device->index, bytes);
    }
    d->fresh[value] = d->now;
    return ls_device_sync(d->device);
}

ls_status ls_driver_share(ls_driver *d, ls_executor *e, const ls_unit *u)
{
    return explain_join(d, &ls_driver_plan(d)->joins[u->index], "copying to", share(d, e, u));
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
                                                       .from = ls_driver_at(from, there),
                                                       .to = ls_driver_at(to, here),
                                                       .bytes = bytes };
    return LS_OK;
}

/* In the order in which gather_partials expects them. */
static ls_status list_gathered(ls_driver *d, ls_executor *e, const ls_join *join, const ls_join_part *part)
{
    const ls_driver *owner = e->drivers[part->owner];
    size_t element = ls_dtype_bytes(join->dtype), skip = join->partial + (size_t)part->from * element;
    size_t bytes = (size_t)(part->to - part->from) * element, received = 0;
    int segment = join->group->segment;
    for (int lane = 0; lane < ls_driver_plan(d)->lanes; lane++) {
        const ls_driver *made = e->drivers[ls_task_device(ls_driver_plan(d), segment, lane)];
        if (made == owner || ls_partials_slot(e, segment, lane) < 0)
            continue;
        LS_TRY(add_transfer(d, made, ls_driver_partials_at(made, e, segment, lane) + skip, owner,
                            received_at(owner, join, received++, bytes), bytes));
        ls_driver_count_copy(d, join->group->value, made->device->index, part->owner, bytes);
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
        if (!reader || reader->device->kind != d->device->kind || !ls_is_read_on(d->placement, value, i))
            continue;
        reader->fresh[value] = reader->now;
        if (reader == owner)
            continue;
        LS_TRY(add_transfer(d, owner, owner->place->whole[value] + skip, reader, reader->place->whole[value] + skip,
                            bytes));
        ls_driver_count_copy(d, value, part->owner, i, bytes);
    }
    return LS_OK;
}

/* All devices of the kind are idle meanwhile. */
ls_status ls_driver_transfer_all(ls_driver *d, ls_executor *e, const ls_phase *phase, const ls_unit *u)
{
    ls_context *ctx = ls_driver_plan(d)->graph->context;
    d->transfer_count = 0;
    d->copy_start = ls_clock_now();
    for (int i = u->index; i < u->index + u->count; i++) {
        const ls_join *join = &ls_driver_plan(d)->joins[i];
        for (int n = 0; join->group->kind == d->device->kind && n < d->placement->joins[i].part_count; n++)
            LS_TRY((phase->kind == LS_PHASE_GATHER ? list_gathered : list_shared)(d, e, join,
                                                                                  &d->placement->joins[i].parts[n]));
    }
    return explain_join(
        d, &ls_driver_plan(d)->joins[u->index], "moving joins between devices by",
        ls_devices_transfer(ctx->devices, ctx->device_count, d->device->kind, d->transfers, (int)d->transfer_count));
}
