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

/* Cuts `count` elements into pieces; device -1: of any CPU. */
static void add_pieces(ls_work *w, int device, int index, int64_t count, int64_t piece)
{
    for (int64_t from = 0; from < count; from += piece)
        w->units[w->count++] = (ls_unit){
            .device = device, .index = index, .from = from, .to = from + piece < count ? from + piece : count
        };
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
            count += pieces(ls_plan_tiled_elements(plan, plan->whole_steps[i].group),
                            ls_plan_tile(plan->whole_steps[i].group));
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
static void add_lanes(const ls_executor *e, const ls_phase *phase, ls_work *w)
{
    for (int lane = 0; lane < e->plan->lanes; lane++)
        for (int s = 0; s < phase->count;) {
            int device = ls_task_device(e->placement, phase->first + s, lane), first = s++;
            while (s < phase->count && ls_task_device(e->placement, phase->first + s, lane) == device)
                s++;
            w->units[w->count++] =
                (ls_unit){ .device = device, .index = phase->first + first, .count = s - first, .lane = lane };
        }
}

static ls_status make_units(const ls_executor *e, const ls_phase *phase, ls_work *w)
{
    const ls_plan *plan = e->plan;
    const int *whole_device = e->placement->whole_device;
    w->units = calloc((size_t)count_units(plan, phase) + 1, sizeof(*w->units));
    if (!w->units)
        return no_memory();
    if (phase->kind == LS_PHASE_LANES)
        add_lanes(e, phase, w);
    else if (phase->kind == LS_PHASE_WHOLE)
        w->units[w->count++] =
            (ls_unit){ .device = whole_device[phase->first], .index = phase->first, .count = phase->count };
    else
        for (int i = phase->first; i < phase->first + phase->count; i++) {
            int64_t count;
            switch (phase->kind) {
            case LS_PHASE_TILES:
                add_pieces(w, whole_device[i], i, ls_plan_tiled_elements(plan, plan->whole_steps[i].group),
                           ls_plan_tile(plan->whole_steps[i].group));
                break;
            case LS_PHASE_JOIN:
                add_pieces(w, -1, i, plan->joins[i].count, JOIN_CHUNK);
                break;
            case LS_PHASE_CHECK:
                count = elements_of(plan, plan->updates[i].group->root);
                add_pieces(w, -1, i, count, ls_executor_join_of(e, &plan->updates[i]) >= 0 && count ? count : LS_TILE);
                break;
            case LS_PHASE_UPDATE:
                count = elements_of(plan, plan->updates[i].group->root);
                add_pieces(w, -1, i, count, update_piece(&plan->updates[i], count));
                break;
            default:
                w->units[w->count++] = (ls_unit){ .device = -1, .index = i };
            }
        }
    return LS_OK;
}

/* A block of a device's memory; none for no bytes. */
static ls_status take(const ls_executor *e, int device, size_t bytes, const char *what, ls_block **block, char **data)
{
    if (bytes == 0)
        return LS_OK;
    LS_TRY(ls_memory_take(e->placement->ctx->devices[device].memory, ls_block_bytes(bytes), what, block));
    *data = (char *)(*block)->region + (*block)->offset;
    return LS_OK;
}

static ls_status make_worker(ls_executor *e, int w)
{
    const ls_plan *plan = e->plan;
    int device = e->device_of[w];
    bool cpu = e->placement->ctx->devices[device].kind == LS_CPU;
    size_t bytes = cpu ? ls_plan_worker_bytes(plan) : e->drivers[device] ? plan->stage_bytes : 0;
    LS_TRY(take(e, cpu ? device : e->placement->home, bytes, "workspace", &e->arena_block[w], &e->arena[w]));
    e->stage[w] = cpu && e->arena[w] ? e->arena[w] + bytes - plan->stage_bytes : e->arena[w];
    e->inputs[w] = calloc((size_t)plan->max_inputs + 8, sizeof(**e->inputs));
    e->lanes[w] = calloc((size_t)plan->lanes, sizeof(**e->lanes));
    return e->inputs[w] && e->lanes[w] ? LS_OK : no_memory();
}

/* "activations of conv2d:12, relu:30 and 14 more": the largest kept values of a device. */
static void name_kept(const ls_executor *e, int device, char text[160])
{
    const ls_plan *plan = e->plan;
    const bool *here = e->placement->places[device].here;
    int best[2] = { -1, -1 }, count = 0;
    for (int i = 0; i < plan->kept_count; i++) {
        if (!here[i])
            continue;
        count++;
        if (best[0] < 0 || plan->kept[i].unit > plan->kept[best[0]].unit) {
            best[1] = best[0];
            best[0] = i;
        } else if (best[1] < 0 || plan->kept[i].unit > plan->kept[best[1]].unit) {
            best[1] = i;
        }
    }
    int used = snprintf(text, 160, "activations");
    for (int k = 0; k < 2 && best[k] >= 0; k++) {
        char label[LS_NODE_TEXT];
        used += snprintf(text + used, 160 - (size_t)used, "%s%.50s", k ? ", " : " of ",
                         ls_node_label(plan->nodes[plan->kept[best[k]].value].node, label));
    }
    if (count > 2)
        snprintf(text + used, 160 - (size_t)used, " and %d more", count - 2);
}

/* "whole values, dense/kernel_gradient the largest" */
static void name_whole(const ls_plan *plan, char text[160])
{
    const ls_operand *largest = NULL;
    char label[LS_NODE_TEXT];
    for (int i = 0; i < plan->node_count; i++)
        if (plan->value_of[i].home == LS_HOME_WHOLE && (!largest || plan->value_of[i].unit > largest->unit))
            largest = &plan->value_of[i];
    if (largest)
        snprintf(text, 160, "whole values, %.100s (op %s) the largest",
                 ls_node_label(plan->nodes[largest->value].node, label),
                 ls_tensor_op(plan->nodes[largest->value].node));
    else
        snprintf(text, 160, "whole values");
}

/* The kept values of each CPU device, and where each lane's samples of them begin. */
static ls_status make_kept(ls_executor *e)
{
    const ls_plan *plan = e->plan;
    const ls_placement *p = e->placement;
    size_t count = (size_t)plan->kept_count * (size_t)plan->lanes;
    e->kept = calloc(count + 1, sizeof(*e->kept));
    e->kept_block = calloc((size_t)e->devices, sizeof(*e->kept_block));
    char **base = calloc((size_t)e->devices, sizeof(*base));
    ls_status status = e->kept && e->kept_block && base ? LS_OK : no_memory();
    for (int d = 0; d < p->ctx->cpu_count && status == LS_OK; d++) {
        char what[160];
        name_kept(e, d, what);
        status = take(e, d, p->places[d].kept_bytes, what, &e->kept_block[d], &base[d]);
    }
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        int host = p->host[i], lane = (int)(i % (size_t)plan->lanes);
        size_t value = i / (size_t)plan->lanes;
        if (host >= 0)
            e->kept[i] =
                base[host] + p->places[host].kept[value] + plan->kept[value].unit * (size_t)p->places[host].row[lane];
    }
    free(base);
    return status;
}

static ls_status make_drivers(ls_executor *e)
{
    const ls_context *ctx = e->placement->ctx;
    for (int d = ctx->cpu_count; d < e->devices; d++)
        LS_TRY(ls_driver_create(e->placement, d, &e->drivers[d]));
    return LS_OK;
}

static ls_status make_memory(ls_executor *e)
{
    const ls_plan *plan = e->plan;
    size_t workers = (size_t)e->workers;
    e->outside = calloc((size_t)plan->node_count + 1, sizeof(*e->outside));
    e->arena = calloc(workers, sizeof(*e->arena));
    e->stage = calloc(workers, sizeof(*e->stage));
    e->arena_block = calloc(workers, sizeof(*e->arena_block));
    e->inputs = calloc(workers, sizeof(*e->inputs));
    e->lanes = calloc(workers, sizeof(*e->lanes));
    e->lane_done = calloc((size_t)plan->lanes, sizeof(*e->lane_done));
    e->slot_of = calloc((size_t)plan->lanes, sizeof(*e->slot_of));
    e->block = calloc((size_t)plan->lanes, sizeof(*e->block));
    e->free_slots = calloc((size_t)e->placement->slots + 1, sizeof(*e->free_slots));
    e->units_of = calloc((size_t)e->devices, sizeof(*e->units_of));
    e->drivers = calloc((size_t)e->devices, sizeof(*e->drivers));
    e->broken = calloc((size_t)plan->join_count + 1, sizeof(*e->broken));
    e->phase_seconds = calloc(workers * LS_PHASE_KINDS, sizeof(*e->phase_seconds));
    if (!e->outside || !e->arena || !e->stage || !e->arena_block || !e->inputs || !e->lanes || !e->lane_done ||
        !e->slot_of || !e->block || !e->free_slots || !e->units_of || !e->drivers || !e->broken || !e->phase_seconds)
        return no_memory();
    char what[160];
    name_whole(plan, what);
    LS_TRY(take(e, e->placement->home, plan->whole_bytes, what, &e->whole_block, &e->whole));
    LS_TRY(take(e, e->placement->home, ls_placement_partial_bytes(e->placement), "partials", &e->partial_block,
                &e->partial));
    LS_TRY(make_kept(e));
    LS_TRY(make_drivers(e));
    for (int w = 0; w < e->workers; w++)
        LS_TRY(make_worker(e, w));
    return LS_OK;
}

static ls_status make_phases(ls_executor *e)
{
    int most = 1;
    e->phases = calloc((size_t)e->plan->phase_count + 1, sizeof(*e->phases));
    if (!e->phases)
        return no_memory();
    e->phase_count = e->plan->phase_count;
    for (int p = 0; p < e->plan->phase_count; p++) {
        LS_TRY(make_units(e, &e->plan->phases[p], &e->phases[p]));
        most = e->phases[p].count > most ? e->phases[p].count : most;
    }
    e->claimed = calloc((size_t)most, sizeof(*e->claimed));
    return e->claimed ? LS_OK : no_memory();
}

/* Which device each worker belongs to; the caller alone is the first CPU. */
static void assign_workers(ls_executor *e)
{
    const ls_context *ctx = e->placement->ctx;
    for (int d = 0; e->crew && d < ctx->device_count; d++)
        for (int w = 0; w < ctx->devices[d].worker_count; w++)
            e->device_of[ctx->devices[d].first_worker + w] = d;
    if (!e->crew)
        e->device_of[0] = e->placement->home;
}

ls_status ls_executor_create(ls_plan *plan, ls_placement *placement, ls_crew *crew, const ls_simd *simd,
                             ls_executor **out)
{
    ls_executor *e = calloc(1, sizeof(*e));
    if (!e) {
        ls_placement_destroy(placement);
        ls_plan_destroy(plan);
        return no_memory();
    }
    e->plan = plan;
    e->placement = placement;
    e->crew = crew;
    e->simd = simd;
    e->workers = crew ? ls_crew_workers(crew) : 1;
    e->devices = placement->ctx->device_count;
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->progress, NULL);
    e->device_of = calloc((size_t)e->workers, sizeof(*e->device_of));
    ls_status status = e->device_of ? LS_OK : no_memory();
    if (status == LS_OK) {
        assign_workers(e);
        status = make_memory(e);
    }
    if (status == LS_OK)
        status = make_phases(e);
    if (status != LS_OK) {
        ls_executor_destroy(e);
        return status;
    }
    *out = e;
    return LS_OK;
}

static void give(const ls_executor *e, int device, ls_block *block)
{
    ls_memory_give(e->placement->ctx->devices[device].memory, block);
}

static void free_worker(ls_executor *e, int w)
{
    bool cpu = e->placement->ctx->devices[e->device_of[w]].kind == LS_CPU;
    if (e->arena_block)
        give(e, cpu ? e->device_of[w] : e->placement->home, e->arena_block[w]);
    if (e->inputs)
        free(e->inputs[w]);
    if (e->lanes)
        free(e->lanes[w]);
}

void ls_executor_destroy(ls_executor *e)
{
    if (!e)
        return;
    for (int w = 0; e->device_of && w < e->workers; w++)
        free_worker(e, w);
    for (int p = 0; e->phases && p < e->phase_count; p++)
        free(e->phases[p].units);
    for (int d = 0; d < e->devices; d++) {
        if (e->kept_block)
            give(e, d, e->kept_block[d]);
        if (e->drivers)
            ls_driver_destroy(e->drivers[d]);
    }
    give(e, e->placement->home, e->whole_block);
    give(e, e->placement->home, e->partial_block);
    free(e->arena);
    free(e->stage);
    free(e->arena_block);
    free(e->inputs);
    free(e->lanes);
    free(e->lane_done);
    free(e->slot_of);
    free(e->block);
    free(e->free_slots);
    free(e->units_of);
    free(e->drivers);
    free(e->broken);
    free(e->group_seconds);
    free(e->phase_seconds);
    free(e->claimed);
    free(e->phases);
    free(e->outside);
    free(e->kept);
    free(e->kept_block);
    free(e->device_of);
    pthread_cond_destroy(&e->progress);
    pthread_mutex_destroy(&e->mutex);
    ls_placement_destroy(e->placement);
    ls_plan_destroy(e->plan);
    free(e);
}

const ls_placement *ls_executor_placement(const ls_executor *e)
{
    return e->placement;
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
