/* Placement: tasks to devices, and what each device must have for them. */
#include "plan/placement.h"

#include <stdlib.h>

#include "base/size.h"
#include "plan/pack.h"

static void *room(ls_placement *p, size_t count, size_t bytes)
{
    size_t total;
    void *memory = ls_size_mul(count ? count : 1, bytes, &total) ? ls_arena_alloc(&p->arena, total) : NULL;
    if (!memory)
        ls_fail(LS_ERR_MEMORY, "no memory to place a plan");
    return memory;
}

static int kind_of(const ls_placement *p, int device)
{
    return p->ctx->devices[device].kind;
}

/* ---- Which device ---- */

/* The devices of a kind that share its lanes. */
static int sharers(const ls_context *ctx, ls_share share, int kind, int *out)
{
    int count = 0;
    for (int i = 0; i < share.count; i++)
        if (ctx->devices[share.list[i]].kind == kind)
            out[count++] = share.list[i];
    for (int d = 0; count == 0 && d < ctx->device_count; d++)
        if (ctx->devices[d].kind == kind) {
            int first = d;
            for (; d < ctx->device_count && ctx->devices[d].kind == kind; d++)
                out[d - first] = d;
            count = d - first;
        }
    return count;
}

static ls_status place_tasks(ls_placement *p, const ls_map *map, ls_share share)
{
    const ls_plan *plan = p->plan;
    const ls_context *ctx = p->ctx;
    int *of_kind = room(p, (size_t)ctx->kind_count * (size_t)ctx->device_count, sizeof(int)), count[LS_MAX_KINDS];
    if (!of_kind)
        return LS_ERR_MEMORY;
    for (int k = 0; k < ctx->kind_count; k++)
        count[k] = sharers(ctx, share, k, of_kind + k * ctx->device_count);
    for (int s = 0; s < plan->segment_count; s++)
        for (int lane = 0; lane < plan->lanes; lane++) {
            const ls_segment *segment = &plan->segments[s];
            int k = segment->kind, device = segment->device;
            if (device == LS_ANY_DEVICE && k == LS_CPU && map->devices > 0)
                device = map->device(map->user, s, lane);
            else if (device == LS_ANY_DEVICE)
                device = of_kind[k * ctx->device_count + (int)((int64_t)lane * count[k] / plan->lanes)];
            if (device < 0 || device >= ctx->device_count)
                return ls_fail(LS_ERR_INVALID, "the map gives work to device %d; there are %d", device,
                               ctx->device_count);
            p->task_device[(size_t)s * (size_t)plan->lanes + (size_t)lane] = device;
        }
    for (int i = 0; i < plan->whole_count; i++) {
        const ls_group *group = plan->whole_steps[i].group;
        bool first = group->device == LS_ANY_DEVICE && group->kind != LS_CPU;
        p->whole_device[i] = first ? of_kind[group->kind * ctx->device_count] : group->device;
    }
    p->home = ctx->device_count;
    for (int i = 0; i < plan->segment_count * plan->lanes; i++)
        if (kind_of(p, p->task_device[i]) == LS_CPU && p->task_device[i] < p->home)
            p->home = p->task_device[i];
    if (p->home == ctx->device_count)
        p->home = count[LS_CPU] > 0 ? of_kind[0] : 0;
    return LS_OK;
}

/* ---- Where kept values are ---- */

static void come(ls_placement *p, int device, int kept, int lane)
{
    p->places[device].here[kept] = true;
    p->places[device].row[lane] = 0;
}

/* A reader finds a value where it is, or gets a copy of its own; by way of the host, unless its backend copies. */
static void read_kept(ls_placement *p, int kept, int lane, int reader)
{
    size_t at = (size_t)kept * (size_t)p->plan->lanes + (size_t)lane;
    int made = p->made[at];
    bool cpu = kind_of(p, reader) == LS_CPU;
    if (reader == made || (cpu && kind_of(p, made) == LS_CPU))
        return;
    if (!cpu)
        come(p, reader, kept, lane);
    bool copies = !cpu && kind_of(p, made) == kind_of(p, reader) && p->ctx->devices[made].backend->copy;
    if (p->host[at] < 0 && !copies) {
        p->host[at] = cpu ? reader : p->home;
        come(p, p->host[at], kept, lane);
    }
}

static void place_kept(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    for (int s = 0; s < plan->segment_count; s++)
        for (int lane = 0; lane < plan->lanes; lane++)
            p->places[ls_task_device(p, s, lane)].row[lane] = 0;
    for (int i = 0; i < plan->kept_count; i++)
        for (int lane = 0; lane < plan->lanes; lane++) {
            size_t at = (size_t)i * (size_t)plan->lanes + (size_t)lane;
            int home = plan->groups[plan->nodes[plan->kept[i].value].group].home;
            p->made[at] = ls_task_device(p, home, lane);
            p->host[at] = kind_of(p, p->made[at]) == LS_CPU ? p->made[at] : -1;
            come(p, p->made[at], i, lane);
        }
    for (int s = 0; s < plan->segment_count; s++)
        for (int i = 0; i < plan->segments[s].step_count; i++) {
            const ls_step *step = &plan->segments[s].steps[i];
            for (int k = 0; k < step->group->in_count; k++)
                for (int lane = 0; step->in[k].home == LS_HOME_KEPT && lane < plan->lanes; lane++)
                    read_kept(p, (int)step->in[k].offset, lane, ls_task_device(p, s, lane));
        }
    for (int i = 0; i < plan->fetch_count; i++) {
        const ls_operand *value = &plan->value_of[plan->fetches[i]];
        for (int lane = 0; value->home == LS_HOME_KEPT && lane < plan->lanes; lane++) {
            size_t at = value->offset * (size_t)plan->lanes + (size_t)lane;
            if (p->host[at] < 0) {
                p->host[at] = p->home;
                come(p, p->home, (int)value->offset, lane);
            }
        }
    }
}

static ls_status pack_kept(ls_placement *p, int device)
{
    const ls_plan *plan = p->plan;
    ls_place *place = &p->places[device];
    for (int lane = 0; lane < plan->lanes; lane++)
        if (place->row[lane] >= 0) {
            place->row[lane] = place->samples;
            place->samples +=
                ls_lane_first(plan->batch, plan->lanes, lane + 1) - ls_lane_first(plan->batch, plan->lanes, lane);
        }
    return ls_plan_pack_kept(plan, place->samples, place->here, place->kept, &place->kept_bytes);
}

/* ---- Whole values on devices that are not CPUs ---- */

typedef struct packing {
    ls_placement *p;
    ls_place *place;
    ls_packer packer;
    size_t stage_bytes;
} packing;

static ls_status add_whole(packing *k, const ls_operand *o)
{
    const ls_plan *plan = k->p->plan;
    size_t *offset = &k->place->whole[o->value];
    int group = plan->nodes[o->value].group;
    if (ls_is_staged(o)) {
        int64_t lane = (plan->batch + plan->lanes - 1) / plan->lanes;
        if (k->place->stage[o->value] == LS_NOT_HERE) {
            k->place->stage[o->value] = k->stage_bytes;
            k->stage_bytes += ls_size_align(o->unit * (size_t)lane, LS_ALIGN);
        }
        return LS_OK;
    }
    if ((o->home != LS_HOME_OUTSIDE && o->home != LS_HOME_WHOLE) || *offset != LS_NOT_HERE)
        return LS_OK;
    *offset = 0;
    return group < 0 ? ls_packer_add(&k->packer, 0, plan->levels, o->unit, offset)
                     : ls_packer_add(&k->packer, plan->groups[group].level, plan->whole_last[group], o->unit, offset);
}

static ls_status add_step(packing *k, const ls_step *step)
{
    for (int i = 0; i < step->group->in_count; i++)
        LS_TRY(add_whole(k, &step->in[i]));
    return step->out.home == LS_HOME_WHOLE ? add_whole(k, &step->out) : LS_OK;
}

bool ls_runs_on(const ls_placement *p, int segment, int device)
{
    for (int lane = 0; lane < p->plan->lanes; lane++)
        if (ls_task_device(p, segment, lane) == device)
            return true;
    return false;
}

/* The block of a device: whole values, kept values, what a segment needs for itself, samples that were fed. */
static ls_status place_block(ls_placement *p, int device)
{
    const ls_plan *plan = p->plan;
    packing k = { .p = p, .place = &p->places[device] };
    size_t micro = 0, whole = 0;
    bool used = false;
    ls_status status = LS_OK;
    for (int s = 0; s < plan->segment_count; s++) {
        if (!ls_runs_on(p, s, device))
            continue;
        used = true;
        micro = plan->segments[s].micro_bytes > micro ? plan->segments[s].micro_bytes : micro;
        for (int i = 0; i < plan->segments[s].step_count && status == LS_OK; i++)
            status = add_step(&k, &plan->segments[s].steps[i]);
    }
    for (int i = 0; i < plan->whole_count && status == LS_OK; i++)
        if (p->whole_device[i] == device) {
            used = true;
            status = add_step(&k, &plan->whole_steps[i]);
        }
    if (status == LS_OK)
        status = ls_packer_pack(&k.packer, &whole);
    ls_packer_free(&k.packer);
    LS_TRY(status);
    size_t kept = ls_size_align(whole, LS_ALIGN);
    k.place->micro = kept + ls_size_align(k.place->kept_bytes, LS_ALIGN);
    size_t stage = k.place->micro + ls_size_align(micro, LS_ALIGN);
    for (int i = 0; i < plan->kept_count; i++)
        k.place->kept[i] += kept;
    for (int i = 0; i < plan->node_count; i++)
        if (k.place->stage[i] != LS_NOT_HERE)
            k.place->stage[i] += stage;
    k.place->total_bytes = used ? ls_block_bytes(stage + k.stage_bytes + LS_ALIGN) : 0;
    return LS_OK;
}

/* Whole values that are made elsewhere come to the host if anybody but their own device looks at them. */
static void find_crossing(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    for (int i = 0; i < plan->whole_count; i++) {
        int made = p->whole_device[i], value = plan->whole_steps[i].out.value;
        if (made < 0 || kind_of(p, made) == LS_CPU)
            continue;
        bool cross = false;
        for (int k = 0; k < plan->fetch_count; k++)
            cross = cross || plan->value_of[plan->fetches[k]].value == value;
        for (int k = 0; k < plan->update_count; k++)
            for (int n = 0; n < plan->updates[k].group->in_count; n++)
                cross = cross || plan->updates[k].in[n].value == value;
        for (int k = 0; k < plan->whole_count; k++)
            for (int n = 0; n < plan->whole_steps[k].group->in_count; n++)
                cross = cross || (p->whole_device[k] != made && plan->whole_steps[k].in[n].value == value);
        for (int k = 0; k < plan->prepared_count; k++)
            cross = cross || plan->prepared[k].value == value;
        for (int s = 0; s < plan->segment_count && !cross; s++)
            for (int t = 0; t < plan->segments[s].step_count; t++)
                for (int n = 0; n < plan->segments[s].steps[t].group->in_count; n++)
                    for (int lane = 0; lane < plan->lanes; lane++)
                        cross =
                            cross ||
                            (plan->segments[s].steps[t].in[n].value == value &&
                             (ls_task_device(p, s, lane) != made || ls_is_staged(&plan->segments[s].steps[t].in[n])));
        p->whole_host[value] = cross;
    }
}

/* ---- All together ---- */

static ls_status make_rooms(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    size_t lanes = (size_t)plan->lanes, kept = (size_t)plan->kept_count, nodes = (size_t)plan->node_count;
    p->places = room(p, (size_t)p->ctx->device_count, sizeof(*p->places));
    p->task_device = room(p, (size_t)plan->segment_count * lanes, sizeof(int));
    p->whole_device = room(p, (size_t)plan->whole_count, sizeof(int));
    p->made = room(p, kept * lanes, sizeof(int));
    p->host = room(p, kept * lanes, sizeof(int));
    p->whole_host = room(p, nodes, sizeof(bool));
    if (!p->places || !p->task_device || !p->whole_device || !p->made || !p->host || !p->whole_host)
        return LS_ERR_MEMORY;
    for (int d = 0; d < p->ctx->device_count; d++) {
        ls_place *place = &p->places[d];
        bool cpu = kind_of(p, d) == LS_CPU;
        place->row = room(p, lanes, sizeof(int64_t));
        place->here = room(p, kept, sizeof(bool));
        place->kept = room(p, kept, sizeof(size_t));
        place->whole = cpu ? NULL : room(p, nodes, sizeof(size_t));
        place->stage = cpu ? NULL : room(p, nodes, sizeof(size_t));
        if (!place->row || !place->here || !place->kept || (!cpu && (!place->whole || !place->stage)))
            return LS_ERR_MEMORY;
        for (int lane = 0; lane < plan->lanes; lane++)
            place->row[lane] = -1;
        for (int i = 0; !cpu && i < plan->node_count; i++)
            place->whole[i] = place->stage[i] = LS_NOT_HERE;
    }
    return LS_OK;
}

/* What a run's fetched values will take of the CPU devices, beside the plan. Room that they have serves again. */
static void count_fetches(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    for (int i = 0; i < plan->fetch_count; i++) {
        const ls_tensor *node = plan->nodes[plan->fetches[i]].node;
        size_t bytes = ls_plan_unit(plan, node) * (node->per_sample && plan->batch > 0 ? (size_t)plan->batch : 1);
        if (node->op == LS_OP_variable || (node->held.data && node->held.bytes == bytes))
            continue;
        int device = node->device > 0 && node->device < p->ctx->cpu_count ? node->device : 0;
        p->places[device].fetched_bytes +=
            bytes < LS_PAGE ? ls_size_align(bytes ? bytes : 1, LS_ALIGN) : ls_block_bytes(bytes);
    }
}

static void count_needs(ls_placement *p, bool crewed)
{
    const ls_plan *plan = p->plan;
    for (int d = 0; d < p->ctx->device_count; d++) {
        ls_place *place = &p->places[d];
        const ls_device *device = &p->ctx->devices[d];
        size_t workers = crewed ? (size_t)device->worker_count : d == p->home ? 1 : 0;
        if (device->kind != LS_CPU) {
            place->needed_bytes = place->total_bytes;
            if (place->total_bytes > 0) /* rows that its driver picks, in the host's memory; CPUs come first */
                p->places[p->home].needed_bytes += ls_block_bytes(plan->stage_bytes);
            continue;
        }
        place->needed_bytes = ls_block_bytes(place->kept_bytes) + workers * ls_block_bytes(ls_plan_worker_bytes(plan));
        if (d == p->home)
            place->needed_bytes += ls_block_bytes(plan->whole_bytes) + ls_block_bytes(ls_placement_partial_bytes(p));
    }
}

/* Whether each lane stays on one device, and the lanes of a device are neighbours. */
static bool shares_lanes(const ls_placement *p)
{
    for (int s = 1; s < p->plan->segment_count; s++)
        for (int lane = 0; lane < p->plan->lanes; lane++)
            if (ls_task_device(p, s, lane) != ls_task_device(p, 0, lane))
                return false;
    for (int lane = 2; lane < p->plan->lanes; lane++)
        for (int other = 0; other + 1 < lane; other++)
            if (ls_task_device(p, 0, other) == ls_task_device(p, 0, lane) &&
                ls_task_device(p, 0, lane - 1) != ls_task_device(p, 0, lane))
                return false;
    return true;
}

/* How many lanes have partials at once. A worker has one lane at a time and a device begins its lanes in order. So what
 * is complete is a stretch of lanes, less those at work: at each of its ends a block for every level of the tree at
 * most, and as many for each hole. The stretch of the first lanes has one such end. Lanes that wander between devices
 * all have room. */
static int count_slots(const ls_placement *p, bool crewed)
{
    int64_t levels = 1, lanes = p->plan->lanes, slots = 0;
    while ((int64_t)1 << levels < lanes)
        levels++;
    if (p->plan->options.every_partial || p->plan->segment_count == 0 || !shares_lanes(p))
        return (int)lanes;
    for (int d = 0; d < p->ctx->device_count; d++)
        if (ls_runs_on(p, 0, d))
            slots += (crewed ? p->ctx->devices[d].worker_count : 1) * levels + 2 +
                     (ls_task_device(p, 0, 0) == d ? 0 : levels);
    return (int)(slots < lanes ? slots : lanes);
}

static ls_status make(ls_placement *p, const ls_map *map, ls_share share, bool crewed)
{
    LS_TRY(make_rooms(p));
    LS_TRY(place_tasks(p, map, share));
    place_kept(p);
    for (int d = 0; d < p->ctx->device_count; d++) {
        LS_TRY(pack_kept(p, d));
        if (kind_of(p, d) != LS_CPU)
            LS_TRY(place_block(p, d));
    }
    if (p->ctx->kind_count > 1)
        find_crossing(p);
    p->slots = count_slots(p, crewed);
    count_needs(p, crewed);
    count_fetches(p);
    return LS_OK;
}

ls_status ls_placement_make(const ls_plan *plan, const ls_map *map, ls_share share, bool crewed, ls_placement **out)
{
    ls_placement *p = calloc(1, sizeof(*p));
    if (!p)
        return ls_fail(LS_ERR_MEMORY, "no memory to place a plan");
    p->plan = plan;
    p->ctx = plan->graph->context;
    ls_status status = make(p, map, share, crewed);
    if (status != LS_OK) {
        ls_placement_destroy(p);
        return status;
    }
    *out = p;
    return LS_OK;
}

void ls_placement_destroy(ls_placement *placement)
{
    if (!placement)
        return;
    ls_arena_free(&placement->arena);
    free(placement);
}
