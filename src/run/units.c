/* Lists the units of a phase: the plan's work, divided as the placement requires. */
#include <stdlib.h>

#include "run/executor_private.h"

#define JOIN_CHUNK 16384 /* Elements per chunk; does not affect any bits. */

static ls_status no_memory(void)
{
    return ls_fail(LS_ERR_MEMORY, "no memory for the units of a run");
}

/* Divides elements into pieces; device -1: for any CPU. */
static void add_pieces(ls_phase_units *w, int device, int index, int64_t from, int64_t to, int64_t piece)
{
    for (; from < to; from += piece)
        w->units[w->count++] =
            (ls_unit){ .device = device, .index = index, .from = from, .to = from + piece < to ? from + piece : to };
}

static int64_t pieces(int64_t count, int64_t piece)
{
    return (count + piece - 1) / piece;
}

static int64_t elements_of(const ls_plan *plan, const ls_step *step)
{
    const ls_tensor *node = step->group->root;
    return (int64_t)(ls_plan_unit(plan, node) / ls_dtype_bytes(node->dtype));
}

static int64_t update_piece(const ls_step *step, int64_t elements)
{
    return step->group->kernel->tiled ? LS_TILE : elements > 0 ? elements : 1;
}

/* Upper bound of a phase's units. */
static int64_t count_units(const ls_plan *plan, const ls_phase *phase, int devices)
{
    int64_t count = devices;
    for (int i = phase->first; i < phase->first + phase->count; i++)
        switch (phase->kind) {
        case LS_PHASE_LANES:
        case LS_PHASE_PAIR:
            return (int64_t)plan->lanes * phase->count;
        case LS_PHASE_TILES:
            count += pieces(ls_plan_tiled_elements(plan, plan->whole_steps[i].group),
                            ls_plan_tile(plan->whole_steps[i].group));
            break;
        case LS_PHASE_JOIN:
            count += pieces(plan->joins[i].count, JOIN_CHUNK) + devices;
            break;
        case LS_PHASE_CHECK:
        case LS_PHASE_UPDATE:
            count += pieces(elements_of(plan, &plan->updates[i]), LS_TILE) + 1;
            break;
        case LS_PHASE_SHARE:
            count += devices;
            break;
        case LS_PHASE_HOME:
        case LS_PHASE_GATHER:
            return devices;
        case LS_PHASE_EXCHANGE:
        case LS_PHASE_REDUCE:
        case LS_PHASE_COLLECT:
        case LS_PHASE_COMMIT:
            return 1;
        default:
            count++;
        }
    return count;
}

/* ---- Lanes ---- */

static double flops_of(const ls_plan *plan, int segment, int count, int lane)
{
    double flops = 0;
    for (int s = segment; s < segment + count; s++)
        for (int i = 0; i < plan->segments[s].step_count; i++)
            flops += ls_node_flops(plan->segments[s].steps[i].group->nodes[0]);
    return flops *
           (double)(ls_lane_first(plan->batch, plan->lanes, lane + 1) - ls_lane_first(plan->batch, plan->lanes, lane));
}

static void list_visits(const ls_executor *e, const ls_phase *phase, ls_phase_units *w)
{
    int lanes = e->plan->lanes, first = phase->first, end = first + phase->count, count = 0;
    for (int lane = 0; lane < lanes; lane++) {
        w->visits_first[lane] = count;
        for (int d = 0; d < e->devices; d++)
            if (ls_lane_visits(e->placement, first, end, lane, d))
                w->visits[count++] = d;
    }
    w->visits_first[lanes] = count;
    for (int d = 0; d < e->devices; d++)
        w->order_end[d] = d * lanes;
}

void ls_units_add_lane(const ls_executor *e, const ls_phase *phase, ls_phase_units *w, int lane)
{
    w->first[lane] = w->count;
    for (int s = 0; s < phase->count;) {
        int device = ls_task_device(e->plan, phase->first + s, lane), first = s++;
        while (s < phase->count && ls_task_device(e->plan, phase->first + s, lane) == device)
            s++;
        w->units[w->count++] = (ls_unit){ .device = device,
                                          .index = phase->first + first,
                                          .count = s - first,
                                          .lane = lane,
                                          .flops = flops_of(e->plan, phase->first + first, s - first, lane) };
    }
    w->end[lane] = w->count;
    for (int i = w->visits_first[lane]; i < w->visits_first[lane + 1]; i++)
        w->order[w->order_end[w->visits[i]]++] = lane;
}

void ls_units_drop_lane(ls_phase_units *w, int lane)
{
    w->count = w->first[lane];
    w->end[lane] = w->first[lane];
    for (int i = w->visits_first[lane]; i < w->visits_first[lane + 1]; i++)
        w->order_end[w->visits[i]]--;
}

static ls_status make_lanes(const ls_executor *e, const ls_phase *phase, ls_phase_units *w)
{
    size_t lanes = (size_t)e->plan->lanes, devices = (size_t)e->devices;
    w->first = calloc(lanes, sizeof(*w->first));
    w->end = calloc(lanes, sizeof(*w->end));
    w->visits = calloc(lanes * devices, sizeof(*w->visits));
    w->visits_first = calloc(lanes + 1, sizeof(*w->visits_first));
    w->order = calloc(lanes * devices, sizeof(*w->order));
    w->order_end = calloc(devices, sizeof(*w->order_end));
    if (!w->first || !w->end || !w->visits || !w->visits_first || !w->order || !w->order_end)
        return no_memory();
    list_visits(e, phase, w);
    for (int lane = ls_plan_own_first(e->plan); lane < ls_plan_own_end(e->plan); lane++)
        ls_units_add_lane(e, phase, w, lane);
    return LS_OK;
}

/* ---- Joins in pairs ---- */

/* Device of the first lane with samples, which holds the joined value; -1: none. */
static int holder_of(const ls_plan *plan, int segment, int from, int to)
{
    for (int lane = from; lane < to && lane < plan->lanes; lane++)
        if (ls_lane_first(plan->batch, plan->lanes, lane) < ls_lane_first(plan->batch, plan->lanes, lane + 1))
            return ls_task_device(plan, segment, lane);
    return -1;
}

/* Pairs of blocks on two devices, for the left one's. Blocks on one device are joined there. */
static void add_pairs(const ls_executor *e, const ls_phase *phase, ls_phase_units *w)
{
    for (int s = phase->first; s < phase->first + phase->count; s++)
        for (int lane = 0; e->plan->segments[s].slot_bytes > 0 && lane < e->plan->lanes; lane += phase->size) {
            int middle = lane + phase->size / 2, end = lane + phase->size;
            int left = holder_of(e->plan, s, lane, middle), right = holder_of(e->plan, s, middle, end);
            if (left >= 0 && right >= 0 && left != right)
                w->units[w->count++] = (ls_unit){ .device = left,
                                                  .index = s,
                                                  .lane = lane,
                                                  .count = (end < e->plan->lanes ? end : e->plan->lanes) - lane };
        }
}

/* ---- Other phases ---- */

/* One unit for a CPU; on other kinds, one for each device. */
static void add_whole(const ls_executor *e, const ls_phase *phase, ls_phase_units *w)
{
    ls_unit unit = { .device = e->placement->whole_device[phase->first], .index = phase->first, .count = phase->count };
    if (e->plan->whole_steps[phase->first].group->kind == LS_CPU || unit.device != LS_ANY_DEVICE) {
        w->units[w->count++] = unit;
        return;
    }
    for (int d = e->placement->ctx->cpu_count; d < e->devices; d++)
        if (ls_whole_runs_on(e->placement, phase->first, d)) {
            unit.device = d;
            w->units[w->count++] = unit;
        }
}

/* One for each device that has partials in its own memory. */
static void add_home(const ls_executor *e, const ls_phase *phase, ls_phase_units *w)
{
    for (int d = e->placement->ctx->cpu_count; d < e->devices; d++) {
        bool has = false;
        for (int s = phase->first; s < phase->first + phase->count; s++)
            has = has || (e->plan->segments[s].slot_bytes > 0 && ls_runs_on(e->placement, s, d));
        if (has)
            w->units[w->count++] = (ls_unit){ .device = d, .index = phase->first, .count = phase->count };
    }
}

/* One for each kind with `transfer`, on the first device with partials. */
static void add_transfers(const ls_executor *e, const ls_phase *phase, ls_phase_units *w)
{
    for (int kind = 1; kind < e->placement->ctx->kind_count; kind++) {
        ls_unit unit = { .device = -1, .index = phase->first, .count = phase->count };
        for (int i = phase->first; i < phase->first + phase->count && unit.device < 0; i++)
            for (int d = e->placement->ctx->cpu_count; d < e->devices && unit.device < 0; d++)
                if (e->plan->joins[i].group->kind == kind && ls_kind_of(e->placement, d) == kind &&
                    ls_runs_on(e->placement, e->plan->joins[i].group->segment, d))
                    unit.device = d;
        if (unit.device >= 0 && ls_plan_transfers(e->plan, kind))
            w->units[w->count++] = unit;
    }
}

/* Chunks of what CPUs own; in a cluster, of what this process joins. */
static void add_join(const ls_executor *e, int join, ls_phase_units *w)
{
    const ls_join_place *place = &e->placement->joins[join];
    if (e->plan->at_home) {
        int64_t from, to;
        ls_plan_owned(e->plan, &e->plan->joins[join], e->plan->options.worker, &from, &to);
        add_pieces(w, -1, join, from, to, JOIN_CHUNK);
        return;
    }
    for (int i = 0; e->plan->joins[join].group->kind == LS_CPU && i < place->part_count; i++)
        add_pieces(w, place->parts[i].owner, join, place->parts[i].from, place->parts[i].to, JOIN_CHUNK);
}

/* Other kinds: one unit for everything that a device owns. */
static void add_joins(const ls_executor *e, const ls_phase *phase, ls_phase_units *w)
{
    for (int d = e->placement->ctx->cpu_count; !e->plan->at_home && d < e->devices; d++) {
        bool owns = false;
        for (int i = phase->first; i < phase->first + phase->count; i++) {
            const ls_join_place *place = &e->placement->joins[i];
            for (int n = 0; n < place->part_count; n++)
                owns = owns || (place->parts[n].owner == d && place->parts[n].from < place->parts[n].to);
        }
        if (owns)
            w->units[w->count++] = (ls_unit){ .device = d, .index = phase->first, .count = phase->count };
    }
}

/* One for each device that reads a join which others own. */
static void add_share(const ls_executor *e, int join, ls_phase_units *w)
{
    const ls_join_place *place = &e->placement->joins[join];
    int value = e->plan->joins[join].group->value;
    if (ls_plan_transfers(e->plan, e->plan->joins[join].group->kind))
        return; /* One transfer moves everything. */
    for (int d = e->placement->ctx->cpu_count; d < e->devices; d++) {
        bool foreign = false;
        for (int i = 0; i < place->part_count; i++)
            foreign = foreign || place->parts[i].owner != d;
        if (foreign && e->plan->joins[join].group->kind == ls_kind_of(e->placement, d) &&
            ls_is_read_on(e->placement, value, d))
            w->units[w->count++] = (ls_unit){ .device = d, .index = join };
    }
}

/* A gradient that comes from a join was checked there. Otherwise the first device that has it
 * checks it. */
static void add_check(const ls_executor *e, int update, ls_phase_units *w)
{
    const ls_step *step = &e->plan->updates[update];
    int64_t count = elements_of(e->plan, step);
    if (step->group->kind == LS_CPU || ls_plan_join_of(e->plan, step) >= 0) {
        add_pieces(w, -1, update, 0, count, ls_plan_join_of(e->plan, step) >= 0 && count ? count : LS_TILE);
        return;
    }
    int d = e->placement->ctx->cpu_count;
    while (!ls_updates_on(e->placement, update, d))
        d++;
    w->units[w->count++] = (ls_unit){ .device = d, .index = update, .to = count };
}

/* Tiles for any CPU, or for the first; elsewhere one unit for a device. */
static void add_updates(const ls_executor *e, const ls_phase *phase, ls_phase_units *w)
{
    const ls_plan *plan = e->plan;
    bool cpu = plan->updates[phase->first].group->kind == LS_CPU;
    int device = plan->options.map.first_updates ? e->placement->home : -1;
    for (int i = phase->first; cpu && i < phase->first + phase->count; i++) {
        int64_t count = elements_of(plan, &plan->updates[i]);
        add_pieces(w, device, i, 0, count, update_piece(&plan->updates[i], count));
    }
    for (int d = e->placement->ctx->cpu_count; !cpu && d < e->devices; d++)
        for (int i = phase->first; i < phase->first + phase->count; i++)
            if (ls_updates_on(e->placement, i, d)) {
                w->units[w->count++] = (ls_unit){ .device = d, .index = phase->first, .count = phase->count };
                break;
            }
}

static ls_status list_units(const ls_executor *e, const ls_phase *phase, ls_phase_units *w)
{
    const ls_plan *plan = e->plan;
    switch (phase->kind) {
    case LS_PHASE_LANES:
        return make_lanes(e, phase, w);
    case LS_PHASE_PAIR:
        add_pairs(e, phase, w);
        return LS_OK;
    case LS_PHASE_HOME:
        add_home(e, phase, w);
        return LS_OK;
    case LS_PHASE_GATHER:
        add_transfers(e, phase, w);
        return LS_OK;
    case LS_PHASE_EXCHANGE:
    case LS_PHASE_REDUCE:
    case LS_PHASE_SETTLE:
    case LS_PHASE_POST:
    case LS_PHASE_COLLECT:
    case LS_PHASE_COMMIT:
        w->units[w->count++] = (ls_unit){ .device = -1 };
        return LS_OK;
    case LS_PHASE_WHOLE:
        add_whole(e, phase, w);
        return LS_OK;
    case LS_PHASE_UPDATE:
        add_updates(e, phase, w);
        return LS_OK;
    default:
        break;
    }
    if (phase->kind == LS_PHASE_SHARE)
        add_transfers(e, phase, w);
    if (phase->kind == LS_PHASE_JOIN)
        add_joins(e, phase, w);
    for (int i = phase->first; i < phase->first + phase->count; i++)
        if (phase->kind == LS_PHASE_TILES)
            add_pieces(w, e->placement->whole_device[i], i, 0, ls_plan_tiled_elements(plan, plan->whole_steps[i].group),
                       ls_plan_tile(plan->whole_steps[i].group));
        else if (phase->kind == LS_PHASE_JOIN)
            add_join(e, i, w);
        else if (phase->kind == LS_PHASE_SHARE)
            add_share(e, i, w);
        else if (phase->kind == LS_PHASE_CHECK)
            add_check(e, i, w);
        else
            w->units[w->count++] = (ls_unit){ .device = -1, .index = i };
    return LS_OK;
}

static ls_status make_queues(const ls_executor *e, ls_phase_units *w)
{
    int count = 0;
    w->queue = calloc((size_t)w->count + 1, sizeof(*w->queue));
    w->queue_first = calloc((size_t)e->devices + 2, sizeof(*w->queue_first));
    if (!w->queue || !w->queue_first)
        return no_memory();
    for (int d = 0; d <= e->devices; d++) {
        w->queue_first[d] = count;
        for (int i = 0; i < w->count; i++)
            if (w->units[i].device == (d < e->devices ? d : -1))
                w->queue[count++] = i;
    }
    w->queue_first[e->devices + 1] = count;
    return LS_OK;
}

ls_status ls_units_make(const ls_executor *e, const ls_phase *phase, ls_phase_units *w)
{
    w->units = calloc((size_t)count_units(e->plan, phase, e->devices) + 1, sizeof(*w->units));
    if (!w->units)
        return no_memory();
    LS_TRY(list_units(e, phase, w));
    return phase->kind == LS_PHASE_LANES ? LS_OK : make_queues(e, w);
}

void ls_units_free(ls_phase_units *w)
{
    void *lists[] = { w->units, w->first,     w->end,   w->visits,     w->visits_first,
                      w->order, w->order_end, w->queue, w->queue_first };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        free(lists[i]);
}
