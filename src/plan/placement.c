/* Placement: which device computes each value, and which devices read it. */
#include "plan/placement.h"

#include <stdlib.h>

#define PART_ELEMENTS 16384 /* A join with fewer elements has one owner. */

void *ls_placement_alloc(ls_placement *p, size_t count, size_t bytes)
{
    size_t total;
    void *memory = ls_size_mul(count ? count : 1, bytes, &total) ? ls_arena_alloc(&p->arena, total) : NULL;
    if (!memory)
        ls_fail(LS_ERR_MEMORY, "no memory to place a plan");
    return memory;
}

bool ls_runs_on(const ls_placement *p, int segment, int device)
{
    for (int lane = 0; lane < p->plan->lanes; lane++)
        if (ls_task_device(p->plan, segment, lane) == device)
            return true;
    return false;
}

/* ---- Participating devices ---- */

static ls_status first_of_kind(ls_placement *p, int kind, int *out)
{
    int *list = ls_placement_alloc(p, (size_t)p->ctx->device_count, sizeof(*list));
    if (!list)
        return LS_ERR_MEMORY;
    *out = ls_task_map_devices(&p->plan->options.map, p->ctx, kind, list) > 0 ? list[0] : 0;
    return LS_OK;
}

static bool has_active(const ls_placement *p, int kind)
{
    for (int d = 0; d < p->ctx->device_count; d++)
        if (p->places[d].active && ls_kind_of(p, d) == kind)
            return true;
    return false;
}

static ls_status find_active(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    for (int i = 0; i < plan->segment_count * plan->lanes; i++)
        p->places[plan->task_device[i]].active = true;
    for (int i = 0; i < plan->whole_count + plan->update_count; i++) {
        bool whole = i < plan->whole_count;
        const ls_group *group = whole ? plan->whole_steps[i].group : plan->updates[i - plan->whole_count].group;
        int device = group->device;
        if (whole)
            p->whole_device[i] = device;
        if (device == LS_ANY_DEVICE && group->kind != LS_CPU && !has_active(p, group->kind))
            LS_TRY(first_of_kind(p, group->kind, &device));
        if (device != LS_ANY_DEVICE)
            p->places[device].active = true;
    }
    LS_TRY(first_of_kind(p, LS_CPU, &p->home));
    for (int d = p->ctx->cpu_count; d-- > 0;) {
        for (int s = 0; s < plan->segment_count; s++)
            if (ls_runs_on(p, s, d))
                p->home = d;
        if (ls_task_map_takes_part(&plan->options.map, p->ctx, d))
            p->places[d].active = true; /* For work that any CPU may do. */
    }
    return LS_OK;
}

/* ---- Readers of whole values ---- */

/* All CPUs read host memory. Staged rows need no memory for the whole value. */
static void add_reader(ls_placement *p, const ls_operand *o, int device)
{
    int at = ls_kind_of(p, device) == LS_CPU ? p->home : device;
    if (ls_kind_of(p, device) != LS_CPU && ls_is_staged(o))
        return;
    if (o->storage == LS_EXTERNAL || o->storage == LS_WHOLE)
        p->read_on[(size_t)o->value * (size_t)p->ctx->device_count + (size_t)at] = true;
}

static void look_step(ls_placement *p, const ls_step *step, int device)
{
    for (int k = 0; k < step->group->in_count; k++)
        add_reader(p, &step->in[k], device);
}

/* On every device of its kind that trains with a copy of the state. */
static void place_update(ls_placement *p, int update)
{
    const ls_plan *plan = p->plan;
    const ls_step *step = &plan->updates[update];
    int kind = step->group->kind, join = ls_plan_join_of(plan, step), devices = p->ctx->device_count;
    bool *on = p->updates + (size_t)update * (size_t)devices, any = false;
    if (kind == LS_CPU) {
        look_step(p, step, p->home);
        return;
    }
    const ls_variable *variable = step->group->root->attr.apply.variable;
    for (int d = p->ctx->cpu_count; d < devices; d++) {
        if (ls_kind_of(p, d) != kind || !p->places[d].active)
            continue;
        on[d] = join >= 0 && ls_runs_on(p, plan->joins[join].group->segment, d);
        for (int i = 0; i < plan->node_count && !on[d]; i++)
            on[d] = plan->nodes[i].node == variable->node && ls_is_read_on(p, i, d);
        any = any || on[d];
    }
    bool taken = false;
    for (int d = p->ctx->cpu_count; d < devices; d++) {
        if (!any && p->places[d].active && ls_kind_of(p, d) == kind)
            any = on[d] = true; /* The variable has no readers: the first device holds it. */
        /* The other devices get the new value from the first. */
        on[d] = on[d] && !(plan->options.map.first_updates && taken);
        taken = taken || on[d];
        if (on[d])
            look_step(p, step, d);
    }
}

static void find_readers(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    for (int s = 0; s < plan->segment_count; s++)
        for (int d = 0; d < p->ctx->device_count; d++)
            if (ls_runs_on(p, s, d))
                for (int i = 0; i < plan->segments[s].step_count; i++)
                    look_step(p, &plan->segments[s].steps[i], d);
    for (int i = 0; i < plan->whole_count; i++)
        for (int d = 0; d < p->ctx->device_count; d++)
            if (ls_kind_of(p, d) == LS_CPU ? plan->whole_steps[i].group->kind == LS_CPU && d == p->home
                                           : ls_whole_runs_on(p, i, d))
                look_step(p, &plan->whole_steps[i], d);
    for (int i = 0; i < plan->prepared_count; i++)
        add_reader(p, &plan->value_of[plan->prepared[i].value], p->home);
    for (int i = 0; i < plan->update_count; i++)
        place_update(p, i);
}

static bool has_whole(const ls_placement *p, int value, int device)
{
    const ls_plan *plan = p->plan;
    int g = plan->nodes[value].group;
    const ls_group *group = &plan->groups[g];
    if (group->reduces)
        return group->kind == ls_kind_of(p, device) &&
               !plan->at_home; /* Its owners send it to all readers of their kind. */
    for (int i = 0; i < plan->whole_count; i++)
        if (plan->whole_steps[i].group == group)
            return ls_whole_runs_on(p, i, device);
    return false;
}

/* The host needs values that are fetched, or read by a device without them. */
static void find_home_values(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    for (int i = 0; i < plan->fetch_count; i++)
        p->comes_home[ls_plan_source_value(plan, plan->fetches[i])] = true;
    for (int i = 0; i < plan->guard_count; i++)
        p->comes_home[ls_plan_source_value(plan, plan->guards[i])] = true;
    for (int i = 0; i < plan->node_count; i++) {
        int g = plan->nodes[i].group;
        if (g < 0 || plan->groups[g].kind == LS_CPU)
            continue;
        bool copies = p->ctx->kinds[plan->groups[g].kind].backend.copy != NULL;
        /* The host passes it on to the other devices. */
        p->comes_home[i] = p->comes_home[i] || (plan->groups[g].reduces && !copies);
        for (int d = 0; d < p->ctx->device_count && !p->comes_home[i]; d++)
            p->comes_home[i] = ls_is_read_on(p, i, d) && (ls_kind_of(p, d) == LS_CPU || !has_whole(p, i, d));
        /* Rows of a gathered value are staged from the host. */
        for (int s = 0; s < plan->segment_count && !p->comes_home[i]; s++)
            for (int t = 0; t < plan->segments[s].step_count; t++)
                for (int k = 0; k < plan->segments[s].steps[t].group->in_count; k++) {
                    const ls_operand *o = &plan->segments[s].steps[t].in[k];
                    p->comes_home[i] = p->comes_home[i] || (o->value == i && ls_is_staged(o));
                }
    }
}

/* ---- Joins ---- */

/* It owns what it need not copy. */
static int largest_maker(const ls_placement *p, int segment, const int *makers, int count)
{
    int best = 0, most = 0;
    for (int i = 0; i < count; i++) {
        int blocks = ls_placement_blocks(p, segment, makers[i]);
        best = blocks > most ? i : best;
        most = blocks > most ? blocks : most;
    }
    return best;
}

/* The devices that compute partials share a large join; a small one has one owner. */
static ls_status place_join(ls_placement *p, int join)
{
    const ls_plan *plan = p->plan;
    const ls_join *j = &plan->joins[join];
    ls_join_place *at = &p->joins[join];
    int *makers = ls_placement_alloc(p, (size_t)p->ctx->device_count, sizeof(*makers)), count = 0;
    if (!makers)
        return LS_ERR_MEMORY;
    for (int lane = 0; lane < plan->lanes; lane++) { /* In the order of their first lanes. */
        int device = ls_task_device(plan, j->group->segment, lane), i = 0;
        while (i < count && makers[i] != device)
            i++;
        if (i == count)
            makers[count++] = device;
    }
    if (plan->at_home) { /* In chunks, by any CPU. */
        at->parts = ls_placement_alloc(p, at->part_count = 1, sizeof(*at->parts));
        if (!at->parts)
            return LS_ERR_MEMORY;
        at->parts[0] = (ls_join_part){ .owner = p->home, .to = j->count };
        return LS_OK;
    }
    at->part_count = j->count < PART_ELEMENTS || plan->options.map.owners != LS_OWNERS_ALL ? 1 : count;
    at->parts = ls_placement_alloc(p, (size_t)at->part_count, sizeof(*at->parts));
    if (!at->parts)
        return LS_ERR_MEMORY;
    for (int i = 0; i < at->part_count; i++) {
        int64_t from = j->count / at->part_count * i / 16 * 16, to = j->count / at->part_count * (i + 1) / 16 * 16;
        int part = at->part_count > 1 ? i : largest_maker(p, j->group->segment, makers, count);
        int owner = ls_task_map_owner(&plan->options.map, makers, count, part);
        bool makes = false;
        for (int k = 0; k < count; k++)
            makes = makes || makers[k] == owner;
        if (!makes)
            return ls_fail(LS_ERR_INVALID, "the map assigns a join to device %d, which computes no part of it", owner);
        at->parts[i] = (ls_join_part){ .owner = owner, .from = from, .to = i + 1 < at->part_count ? to : j->count };
    }
    return LS_OK;
}

/* ---- Locations of kept values ---- */

static void keep_copy_on(ls_placement *p, int device, int kept, int lane)
{
    p->places[device].here[kept] = true;
    p->places[device].row[lane] = 0;
}

/* A reader uses a value in place or gets a copy, via the host unless its backend copies
 * directly. */
static void read_kept(ls_placement *p, int kept, int lane, int reader)
{
    size_t at = (size_t)kept * (size_t)p->plan->lanes + (size_t)lane;
    int made = p->made[at];
    bool cpu = ls_kind_of(p, reader) == LS_CPU;
    if (reader == made || (cpu && ls_kind_of(p, made) == LS_CPU))
        return;
    if (!cpu)
        keep_copy_on(p, reader, kept, lane);
    bool copies = !cpu && ls_kind_of(p, made) == ls_kind_of(p, reader) && p->ctx->devices[made].backend->copy;
    if (p->host[at] < 0 && !copies) {
        p->host[at] = cpu ? reader : p->home;
        keep_copy_on(p, p->host[at], kept, lane);
    }
}

static void place_kept(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    for (int s = 0; s < plan->segment_count; s++)
        for (int lane = 0; lane < plan->lanes; lane++)
            p->places[ls_task_device(plan, s, lane)].row[lane] = 0;
    for (int i = 0; i < plan->kept_count; i++)
        for (int lane = 0; lane < plan->lanes; lane++) {
            size_t at = (size_t)i * (size_t)plan->lanes + (size_t)lane;
            int segment = plan->groups[plan->nodes[plan->kept[i].value].group].segment;
            p->made[at] = ls_task_device(plan, segment, lane);
            p->host[at] = ls_kind_of(p, p->made[at]) == LS_CPU ? p->made[at] : -1;
            keep_copy_on(p, p->made[at], i, lane);
        }
    for (int s = 0; s < plan->segment_count; s++)
        for (int i = 0; i < plan->segments[s].step_count; i++) {
            const ls_step *step = &plan->segments[s].steps[i];
            for (int k = 0; k < step->group->in_count; k++)
                for (int lane = 0; step->in[k].storage == LS_KEPT && lane < plan->lanes; lane++)
                    read_kept(p, (int)step->in[k].offset, lane, ls_task_device(plan, s, lane));
        }
    for (int i = 0; i < plan->fetch_count; i++) {
        const ls_operand *value = &plan->value_of[plan->fetches[i]];
        for (int lane = 0; value->storage == LS_KEPT && lane < plan->lanes; lane++) {
            size_t at = value->offset * (size_t)plan->lanes + (size_t)lane;
            if (p->host[at] < 0) {
                p->host[at] = p->home;
                keep_copy_on(p, p->home, (int)value->offset, lane);
            }
        }
    }
}

/* ---- State ---- */

static void add_state(ls_place *place, ls_variable *variable)
{
    for (int i = 0; i < place->state_count; i++)
        if (place->state[i] == variable)
            return;
    place->state[place->state_count++] = variable;
}

static ls_status place_state(ls_placement *p, int device)
{
    const ls_plan *plan = p->plan;
    ls_place *place = &p->places[device];
    place->state = ls_placement_alloc(p, plan->graph->variable_count, sizeof(*place->state));
    if (!place->state)
        return LS_ERR_MEMORY;
    for (int i = 0; i < plan->update_count; i++) {
        ls_variable *written[LS_MAX_WRITES];
        int count = ls_updates_on(p, i, device) ? ls_node_writes(plan->updates[i].group->root, written) : 0;
        for (int k = 0; k < count; k++)
            add_state(place, written[k]);
    }
    place->written_count = place->state_count;
    for (int i = 0; i < plan->node_count; i++)
        if (plan->nodes[i].node->op == LS_OP_variable && plan->nodes[i].group < 0 && ls_is_read_on(p, i, device))
            add_state(place, plan->nodes[i].node->attr.variable.variable);
    return LS_OK;
}

/* ---- Complete placement ---- */

static ls_status make_lists(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    size_t lanes = (size_t)plan->lanes, kept = (size_t)plan->kept_count, nodes = (size_t)plan->node_count;
    size_t devices = (size_t)p->ctx->device_count, segments = (size_t)plan->segment_count;
    p->places = ls_placement_alloc(p, devices, sizeof(*p->places));
    p->whole_device = ls_placement_alloc(p, (size_t)plan->whole_count, sizeof(int));
    p->made = ls_placement_alloc(p, kept * lanes, sizeof(int));
    p->host = ls_placement_alloc(p, kept * lanes, sizeof(int));
    p->read_on = ls_placement_alloc(p, nodes * devices, sizeof(bool));
    p->comes_home = ls_placement_alloc(p, nodes, sizeof(bool));
    p->joins = ls_placement_alloc(p, (size_t)plan->join_count, sizeof(*p->joins));
    p->updates = ls_placement_alloc(p, (size_t)plan->update_count * devices, sizeof(bool));
    if (!p->places || !p->whole_device || !p->made || !p->host || !p->read_on || !p->comes_home || !p->joins ||
        !p->updates)
        return LS_ERR_MEMORY;
    for (size_t d = 0; d < devices; d++) {
        ls_place *place = &p->places[d];
        bool cpu = ls_kind_of(p, (int)d) == LS_CPU;
        place->row = ls_placement_alloc(p, lanes, sizeof(int64_t));
        place->here = ls_placement_alloc(p, kept, sizeof(bool));
        place->kept = ls_placement_alloc(p, kept, sizeof(size_t));
        place->slots = ls_placement_alloc(p, segments, sizeof(int));
        place->pool = ls_placement_alloc(p, segments, sizeof(size_t));
        place->whole = cpu ? NULL : ls_placement_alloc(p, nodes, sizeof(size_t));
        place->staging = cpu ? NULL : ls_placement_alloc(p, nodes, sizeof(size_t));
        place->received = cpu ? NULL : ls_placement_alloc(p, (size_t)plan->join_count, sizeof(size_t));
        if (!place->row || !place->here || !place->kept || !place->slots || !place->pool ||
            (!cpu && (!place->whole || !place->staging || !place->received)))
            return LS_ERR_MEMORY;
        for (size_t lane = 0; lane < lanes; lane++)
            place->row[lane] = -1;
        for (size_t i = 0; !cpu && i < nodes; i++)
            place->whole[i] = place->staging[i] = LS_NOT_HERE;
    }
    return LS_OK;
}

static ls_status make(ls_placement *p)
{
    LS_TRY(make_lists(p));
    LS_TRY(find_active(p));
    place_kept(p);
    find_readers(p);
    if (ls_context_has_others(p->ctx))
        find_home_values(p);
    for (int i = 0; i < p->plan->join_count; i++)
        LS_TRY(place_join(p, i));
    for (int d = p->ctx->cpu_count; d < p->ctx->device_count; d++)
        LS_TRY(place_state(p, d));
    LS_TRY(ls_placement_in_flight(p));
    LS_TRY(ls_placement_count_moves(p));
    return ls_placement_memory(p);
}

ls_status ls_placement_make(const ls_plan *plan, bool threaded, int together, ls_placement **out)
{
    ls_placement *p = calloc(1, sizeof(*p));
    if (!p)
        return ls_fail(LS_ERR_MEMORY, "no memory to place a plan");
    p->plan = plan;
    p->ctx = plan->graph->context;
    p->threaded = threaded;
    p->together = together;
    ls_status status = make(p);
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
