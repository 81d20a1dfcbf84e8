/* Making an executor: the units of every phase, and all memory a run will touch. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "run/executor_private.h"

#define JOIN_CHUNK 16384 /* elements; the layout of chunks changes no bit */

static ls_status no_memory(void)
{
    return ls_fail(LS_ERR_MEMORY, "no memory for an executor");
}

/* Cuts `count` elements into pieces. */
static void add_pieces(ls_work *w, int index, int64_t count, int64_t piece)
{
    for (int64_t from = 0; from < count; from += piece)
        w->units[w->count++] =
            (ls_unit){ .device = -1, .index = index, .from = from, .to = from + piece < count ? from + piece : count };
}

static int64_t pieces(int64_t count, int64_t piece)
{
    return (count + piece - 1) / piece;
}

static int64_t elements_of(const ls_plan *plan, const ls_tensor *node)
{
    return (int64_t)(ls_plan_unit(plan, node) / ls_dtype_bytes(node->dtype));
}

static int64_t update_piece(const ls_step *step, int64_t elements)
{
    return step->group->kernel->tiled ? LS_TILE : elements > 0 ? elements : 1;
}

static int64_t count_units(const ls_plan *plan, const ls_phase *phase)
{
    int64_t count = 0;
    for (int i = phase->first; i < phase->first + phase->count; i++)
        switch (phase->kind) {
        case LS_PHASE_WHOLE:
            return 1;
        case LS_PHASE_LANES:
            return (int64_t)plan->lanes * phase->count;
        case LS_PHASE_TILES:
            count +=
                pieces(elements_of(plan, plan->whole_steps[i].group->root), ls_plan_tile(plan->whole_steps[i].group));
            break;
        case LS_PHASE_JOIN:
            count += pieces(plan->joins[i].count, JOIN_CHUNK);
            break;
        case LS_PHASE_CHECK:
        case LS_PHASE_UPDATE:
            count += pieces(elements_of(plan, plan->updates[i].group->root), LS_TILE) + 1;
            break;
        default:
            count++;
        }
    return count;
}

/* Lane by lane: runs of segments that stay on one device. */
static void add_lanes(const ls_plan *plan, const ls_phase *phase, const ls_map *map, ls_work *w)
{
    for (int lane = 0; lane < plan->lanes; lane++)
        for (int s = 0; s < phase->count;) {
            int device = map->devices > 1 ? map->device(map->user, phase->first + s, lane) : 0, first = s++;
            while (s < phase->count && (map->devices <= 1 || map->device(map->user, phase->first + s, lane) == device))
                s++;
            w->units[w->count++] =
                (ls_unit){ .device = device, .index = phase->first + first, .count = s - first, .lane = lane };
        }
}

static ls_status make_units(const ls_plan *plan, const ls_phase *phase, const ls_map *map, ls_work *w)
{
    w->units = calloc((size_t)count_units(plan, phase) + 1, sizeof(*w->units));
    if (!w->units)
        return no_memory();
    if (phase->kind == LS_PHASE_LANES)
        add_lanes(plan, phase, map, w);
    else if (phase->kind == LS_PHASE_WHOLE)
        w->units[w->count++] = (ls_unit){ .device = -1, .index = phase->first, .count = phase->count };
    else
        for (int i = phase->first; i < phase->first + phase->count; i++) {
            int64_t count;
            switch (phase->kind) {
            case LS_PHASE_TILES:
                add_pieces(w, i, elements_of(plan, plan->whole_steps[i].group->root),
                           ls_plan_tile(plan->whole_steps[i].group));
                break;
            case LS_PHASE_JOIN:
                add_pieces(w, i, plan->joins[i].count, JOIN_CHUNK);
                break;
            case LS_PHASE_CHECK:
                add_pieces(w, i, elements_of(plan, plan->updates[i].group->root), LS_TILE);
                break;
            case LS_PHASE_UPDATE:
                count = elements_of(plan, plan->updates[i].group->root);
                add_pieces(w, i, count, update_piece(&plan->updates[i], count));
                break;
            default:
                w->units[w->count++] = (ls_unit){ .device = -1, .index = i };
            }
        }
    return LS_OK;
}

/* Every device must have workers, or its lanes would wait for ever. */
static ls_status check_map(const ls_executor *e)
{
    for (int p = 0; p < e->plan->phase_count; p++)
        for (int i = 0; i < e->phases[p].count; i++) {
            int device = e->phases[p].units[i].device;
            bool found = device < 0;
            for (int w = 0; w < e->workers && !found; w++)
                found = e->device_of[w] == device;
            if (!found)
                return ls_fail(LS_ERR_INVALID, "the map gives work to device %d, which has no worker", device);
        }
    return LS_OK;
}

static char *room(size_t bytes)
{
    return aligned_alloc(LS_ALIGN, ls_size_align(bytes ? bytes : 1, LS_ALIGN));
}

static ls_status make_worker(ls_executor *e, int w)
{
    const ls_plan *plan = e->plan;
    e->arena[w] = room(plan->worker_bytes + plan->scratch_bytes);
    e->inputs[w] = calloc((size_t)plan->max_inputs + 8, sizeof(**e->inputs));
    e->lanes[w] = calloc((size_t)plan->lanes, sizeof(**e->lanes));
    return e->arena[w] && e->inputs[w] && e->lanes[w] ? LS_OK : no_memory();
}

/* Names the largest value: that is what to look at first. */
static ls_status no_room(const ls_plan *plan)
{
    const ls_tensor *largest = NULL;
    double most = -1, total = (double)plan->whole_bytes + (double)plan->kept_bytes + (double)plan->partial_bytes;
    for (int i = 0; i < plan->node_count; i++) {
        const ls_operand *value = &plan->value_of[i];
        double bytes = (double)value->unit * (value->home == LS_HOME_KEPT ? (double)plan->batch : 1);
        if (value->home != LS_HOME_OUTSIDE && bytes > most) {
            most = bytes;
            largest = plan->nodes[i].node;
        }
    }
    char label[LS_NODE_TEXT];
    return ls_fail(LS_ERR_MEMORY,
                   "no memory for a plan that needs %.1f MiB; its largest value is %s (op %s) with %.1f MiB",
                   total / 1048576, largest ? ls_node_label(largest, label) : "none",
                   largest ? ls_tensor_op(largest) : "none", most / 1048576);
}

/* Room for one micro-batch of every fed input, behind the scratch. */
static ls_status make_stage(ls_executor *e)
{
    ls_plan *plan = e->plan;
    size_t base = ls_size_align(plan->worker_bytes + plan->scratch_bytes, LS_ALIGN), bytes = 0;
    int64_t micro = 0;
    e->stage = calloc((size_t)plan->node_count + 1, sizeof(*e->stage));
    if (!e->stage)
        return no_memory();
    for (int s = 0; s < plan->segment_count; s++)
        micro = plan->segments[s].micro > micro ? plan->segments[s].micro : micro;
    for (int i = 0; i < plan->node_count; i++) {
        const ls_tensor *node = plan->nodes[i].node;
        if (node->op != LS_OP_input || !node->per_sample)
            continue;
        e->stage[i] = base + bytes;
        bytes += ls_size_align(ls_plan_unit(plan, node) * (size_t)micro, LS_ALIGN);
    }
    plan->scratch_bytes = base + bytes - plan->worker_bytes; /* so that the plan's numbers are what is allocated */
    return LS_OK;
}

static ls_status make_memory(ls_executor *e)
{
    const ls_plan *plan = e->plan;
    size_t workers = (size_t)e->workers;
    LS_TRY(make_stage(e));
    e->whole = room(plan->whole_bytes);
    e->kept = room(plan->kept_bytes);
    e->partial = room(plan->partial_bytes);
    e->outside = calloc((size_t)plan->node_count + 1, sizeof(*e->outside));
    e->arena = calloc(workers, sizeof(*e->arena));
    e->inputs = calloc(workers, sizeof(*e->inputs));
    e->lanes = calloc(workers, sizeof(*e->lanes));
    e->lane_done = calloc((size_t)plan->lanes, sizeof(*e->lane_done));
    e->units_of = calloc((size_t)e->devices, sizeof(*e->units_of));
    e->phase_seconds = calloc(workers * LS_PHASE_KINDS, sizeof(*e->phase_seconds));
    if (!e->whole || !e->kept || !e->partial || !e->outside || !e->arena || !e->inputs || !e->lanes || !e->lane_done ||
        !e->units_of || !e->phase_seconds)
        return no_room(plan);
    for (int w = 0; w < e->workers; w++)
        LS_TRY(make_worker(e, w));
    return LS_OK;
}

static ls_status make_phases(ls_executor *e, const ls_map *map)
{
    int most = 1;
    e->phases = calloc((size_t)e->plan->phase_count + 1, sizeof(*e->phases));
    if (!e->phases)
        return no_memory();
    e->phase_count = e->plan->phase_count;
    for (int p = 0; p < e->plan->phase_count; p++) {
        LS_TRY(make_units(e->plan, &e->plan->phases[p], map, &e->phases[p]));
        most = e->phases[p].count > most ? e->phases[p].count : most;
    }
    e->claimed = calloc((size_t)most, sizeof(*e->claimed));
    return e->claimed ? LS_OK : no_memory();
}

ls_status ls_executor_create(ls_plan *plan, ls_crew *crew, const int *device_of_worker, const ls_map *map,
                             const ls_simd *simd, ls_executor **out)
{
    ls_executor *e = calloc(1, sizeof(*e));
    if (!e)
        return no_memory();
    e->plan = plan;
    e->crew = crew;
    e->simd = simd;
    e->workers = crew ? ls_crew_workers(crew) : 1;
    e->devices = crew && map->devices > 1 ? map->devices : 1;
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->progress, NULL);
    e->device_of = calloc((size_t)e->workers, sizeof(*e->device_of));
    ls_map alone = { .devices = 1 };
    ls_status status = e->device_of ? make_memory(e) : no_memory();
    if (status == LS_OK) {
        for (int w = 0; crew && w < e->workers; w++)
            e->device_of[w] = e->devices > 1 ? device_of_worker[w] : 0;
        status = make_phases(e, crew ? map : &alone);
    }
    if (status == LS_OK)
        status = check_map(e);
    if (status != LS_OK) {
        e->plan = NULL; /* still the caller's */
        ls_executor_destroy(e);
        return status;
    }
    *out = e;
    return LS_OK;
}

void ls_executor_destroy(ls_executor *e)
{
    if (!e)
        return;
    for (int w = 0; w < e->workers; w++) {
        if (e->arena)
            free(e->arena[w]);
        if (e->inputs)
            free(e->inputs[w]);
        if (e->lanes)
            free(e->lanes[w]);
    }
    for (int p = 0; e->phases && p < e->phase_count; p++)
        free(e->phases[p].units);
    free(e->arena);
    free(e->inputs);
    free(e->lanes);
    free(e->lane_done);
    free(e->units_of);
    free(e->group_seconds);
    free(e->phase_seconds);
    free(e->claimed);
    free(e->phases);
    free(e->outside);
    free(e->stage);
    free(e->whole);
    free(e->kept);
    free(e->partial);
    free(e->device_of);
    pthread_cond_destroy(&e->progress);
    pthread_mutex_destroy(&e->mutex);
    ls_plan_destroy(e->plan);
    free(e);
}

ls_plan *ls_executor_plan(ls_executor *e)
{
    return e->plan;
}

ls_outside *ls_executor_outside(ls_executor *e)
{
    return e->outside;
}

int64_t ls_executor_units_of(const ls_executor *e, int device)
{
    return device < e->devices ? e->units_of[device] : 0;
}

void ls_executor_mutate(ls_executor *e, ls_mutation mutation)
{
    e->mutation = mutation;
}
