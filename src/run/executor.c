/* Creates an executor with all memory that a run needs, and makes one run. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "graph/shared_weights.h"
#include "run/audit.h"
#include "run/exchange.h"
#include "run/peers.h"

static ls_status no_memory(void)
{
    return ls_fail(LS_ERR_MEMORY, "no memory for an executor");
}

static ls_status take(const ls_executor *e, int device, size_t bytes, const char *what, ls_block **block, char **data)
{
    if (bytes == 0)
        return LS_OK;
    LS_TRY(ls_memory_take(e->placement->ctx->devices[device].memory, ls_block_bytes(bytes), what, block));
    *data = (char *)(*block)->region + (*block)->offset;
    return LS_OK;
}

static ls_status make_thread(ls_executor *e, int w)
{
    const ls_plan *plan = e->plan;
    int device = e->device_of[w];
    bool cpu = e->placement->ctx->devices[device].kind == LS_CPU;
    size_t bytes = cpu ? ls_plan_thread_bytes(plan) : e->drivers[device] ? plan->staging_bytes : 0;
    if (e->thread_pool && !e->wanted[w])
        return LS_OK;
    LS_TRY(take(e, cpu ? device : e->placement->home, bytes, "workspace", &e->arena_block[w], &e->arena[w]));
    e->staging[w] = cpu && e->arena[w] ? e->arena[w] + bytes - plan->staging_bytes : e->arena[w];
    e->inputs[w] = calloc((size_t)plan->max_inputs + 8, sizeof(**e->inputs));
    e->lanes[w] = calloc((size_t)plan->lanes, sizeof(**e->lanes));
    e->places[w] = calloc(cpu ? 1 : (size_t)plan->lanes, sizeof(**e->places));
    return e->inputs[w] && e->lanes[w] && e->places[w] ? LS_OK : no_memory();
}

/* Example: "activations of conv2d:12, relu:30 and 14 more". */
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

/* Example: "whole values, dense/kernel_gradient the largest". */
static void name_whole(const ls_plan *plan, char text[160])
{
    const ls_operand *largest = NULL;
    char label[LS_NODE_TEXT];
    for (int i = 0; i < plan->node_count; i++)
        if (plan->value_of[i].storage == LS_WHOLE && (!largest || plan->value_of[i].unit > largest->unit))
            largest = &plan->value_of[i];
    if (largest)
        snprintf(text, 160, "whole values, %.100s (op %s) the largest",
                 ls_node_label(plan->nodes[largest->value].node, label),
                 ls_tensor_op(plan->nodes[largest->value].node));
    else
        snprintf(text, 160, "whole values");
}

/* CPU devices: values of the batch, frames and partials. Other devices: partials that the host
 * joins. */
static ls_status make_lane_memory(ls_executor *e)
{
    const ls_placement *p = e->placement;
    for (int d = 0; d < p->ctx->cpu_count; d++) {
        const ls_place *place = &p->places[d];
        char what[160];
        name_kept(e, d, what);
        LS_TRY(take(e, d, place->kept_bytes, what, &e->kept_block[d], &e->kept[d]));
        LS_TRY(take(e, d, (size_t)place->frames * place->frame_bytes, "activations of lanes in flight",
                    &e->frame_block[d], &e->frames[d]));
        LS_TRY(take(e, d, place->partial_bytes, "partials", &e->partial_block[d], &e->partials[d]));
    }
    for (int d = p->ctx->cpu_count; e->plan->at_home && d < e->devices; d++)
        LS_TRY(take(e, p->home, p->places[d].partial_bytes, "partials of other devices", &e->partial_block[d],
                    &e->partials[d]));
    return LS_OK;
}

static ls_status make_pools(ls_executor *e)
{
    size_t segments = (size_t)e->plan->segment_count, devices = (size_t)e->devices;
    e->pools = calloc(segments * devices + 1, sizeof(*e->pools));
    for (size_t i = 0; e->pools && i < segments * devices; i++) {
        e->pools[i].free =
            calloc((size_t)e->placement->places[i / segments].slots[i % segments] + 1, sizeof(*e->pools[i].free));
        if (!e->pools[i].free)
            return no_memory();
    }
    return e->pools ? LS_OK : no_memory();
}

static ls_status make_drivers(ls_executor *e)
{
    const ls_context *ctx = e->placement->ctx;
    for (int d = ctx->cpu_count; d < e->devices; d++)
        LS_TRY(ls_driver_create(e->placement, d, e->states, &e->drivers[d]));
    return LS_OK;
}

static ls_status make_lists(ls_executor *e)
{
    const ls_plan *plan = e->plan;
    size_t threads = (size_t)e->threads, devices = (size_t)e->devices, lanes = (size_t)plan->lanes;
    size_t tasks = (size_t)plan->segment_count * lanes;
    e->external = calloc((size_t)plan->node_count + 1, sizeof(*e->external));
    e->arena = calloc(threads, sizeof(*e->arena));
    e->staging = calloc(threads, sizeof(*e->staging));
    e->arena_block = calloc(threads, sizeof(*e->arena_block));
    e->inputs = calloc(threads, sizeof(*e->inputs));
    e->lanes = calloc(threads, sizeof(*e->lanes));
    e->places = calloc(threads, sizeof(*e->places));
    e->kept = calloc(devices, sizeof(*e->kept));
    e->frames = calloc(devices, sizeof(*e->frames));
    e->partials = calloc(devices, sizeof(*e->partials));
    e->kept_block = calloc(devices, sizeof(*e->kept_block));
    e->frame_block = calloc(devices, sizeof(*e->frame_block));
    e->partial_block = calloc(devices, sizeof(*e->partial_block));
    e->lane = calloc(lanes, sizeof(*e->lane));
    e->in_flight = calloc(lanes, sizeof(*e->in_flight));
    e->taken = calloc(threads * lanes, sizeof(*e->taken));
    e->together = calloc(threads * lanes, sizeof(*e->together));
    e->complete = calloc(threads * lanes, sizeof(*e->complete));
    e->next = calloc(devices + 1, sizeof(*e->next));
    e->next_begin = calloc(devices, sizeof(*e->next_begin));
    e->frame_of = calloc(devices * lanes, sizeof(*e->frame_of));
    e->free_frames = calloc(devices * lanes, sizeof(*e->free_frames));
    e->frame_count = calloc(devices, sizeof(*e->frame_count));
    e->slot_of = calloc(tasks + 1, sizeof(*e->slot_of));
    e->block = calloc(tasks + 1, sizeof(*e->block));
    e->sleepers = calloc(devices, sizeof(*e->sleepers));
    for (size_t d = 0; e->sleepers && d < devices; d++)
        pthread_cond_init(&e->sleepers[d].wake, NULL);
    e->drivers = calloc(devices, sizeof(*e->drivers));
    e->ranges = calloc((size_t)plan->join_count + 1, sizeof(*e->ranges));
    e->last_updates = calloc((size_t)plan->update_count + 1, sizeof(*e->last_updates));
    e->phase_seconds = calloc(threads * LS_PHASE_KINDS, sizeof(*e->phase_seconds));
    e->meters = calloc(threads, sizeof(*e->meters));
    e->lane_flops = calloc(devices, sizeof(*e->lane_flops));
    e->lane_seconds = calloc(devices, sizeof(*e->lane_seconds));
    size_t largest = 1;
    for (int i = 0; plan->options.audits && i < plan->join_count; i++) {
        size_t bytes = (size_t)plan->joins[i].plain * ls_dtype_bytes(plan->joins[i].dtype);
        largest = plan->joins[i].group->kernel->finish && bytes > largest ? bytes : largest;
    }
    e->audit_buffer = malloc(largest);
    bool all = e->audit_buffer && e->external && e->arena && e->staging && e->arena_block && e->inputs && e->lanes &&
               e->places && e->kept && e->frames && e->partials && e->kept_block && e->frame_block &&
               e->partial_block && e->lane && e->in_flight && e->next && e->next_begin && e->frame_of &&
               e->free_frames && e->frame_count && e->slot_of && e->block && e->sleepers && e->drivers && e->ranges &&
               e->last_updates && e->phase_seconds && e->meters && e->lane_flops && e->lane_seconds && e->taken &&
               e->together && e->complete;
    return all ? make_pools(e) : no_memory();
}

static ls_status make_memory(ls_executor *e)
{
    char what[160];
    LS_TRY(make_lists(e));
    name_whole(e->plan, what);
    LS_TRY(take(e, e->placement->home, e->plan->whole_bytes, what, &e->whole_block, &e->whole));
    LS_TRY(make_lane_memory(e));
    LS_TRY(make_drivers(e));
    for (int w = 0; w < e->threads; w++)
        LS_TRY(make_thread(e, w));
    return LS_OK;
}

static ls_status make_phases(ls_executor *e)
{
    e->phases = calloc((size_t)e->plan->phase_count + 1, sizeof(*e->phases));
    if (!e->phases)
        return no_memory();
    e->phase_count = e->plan->phase_count;
    for (int p = 0; p < e->plan->phase_count; p++)
        LS_TRY(ls_units_make(e, &e->plan->phases[p], &e->phases[p]));
    return LS_OK;
}

static ls_status list_written(ls_executor *e)
{
    const ls_plan *plan = e->plan;
    e->written = calloc((size_t)(plan->update_count * LS_MAX_WRITES + plan->write_count) + 1, sizeof(ls_variable *));
    if (!e->written)
        return no_memory();
    for (int i = 0; i < plan->update_count; i++)
        e->written_count += (size_t)ls_node_writes(plan->updates[i].group->root, e->written + e->written_count);
    for (int i = 0; i < plan->write_count; i++)
        e->written[e->written_count++] = plan->writes[i].variable;
    return LS_OK;
}

/* Without a thread pool, the calling thread belongs to `home`. */
static void assign_threads(ls_executor *e)
{
    const ls_context *ctx = e->placement->ctx;
    for (int d = 0; e->thread_pool && d < ctx->device_count; d++)
        for (int w = ctx->devices[d].first_thread; w < ctx->devices[d].first_thread + ctx->devices[d].thread_count;
             w++) {
            e->device_of[w] = d;
            e->wanted[w] = e->placement->places[d].active;
        }
    if (!e->thread_pool)
        e->device_of[0] = e->placement->home;
}

ls_status ls_executor_create(ls_plan *plan, ls_placement *placement, ls_thread_pool *thread_pool, ls_state **states,
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
    e->thread_pool = thread_pool;
    e->states = states;
    e->threads = thread_pool ? ls_thread_pool_count(thread_pool) : 1;
    e->devices = placement->ctx->device_count;
    e->audited = -1;
    pthread_mutex_init(&e->mutex, NULL);
    e->device_of = calloc((size_t)e->threads, sizeof(*e->device_of));
    e->wanted = calloc((size_t)e->threads, sizeof(*e->wanted));
    ls_status status = e->device_of && e->wanted ? LS_OK : no_memory();
    if (status == LS_OK) {
        assign_threads(e);
        status = make_memory(e);
    }
    if (status == LS_OK)
        status = list_written(e);
    if (status == LS_OK)
        status = make_phases(e);
    if (status == LS_OK && plan->options.workers > 0 && plan->segment_count > 0)
        status = ls_exchange_create(plan, placement->ctx->peers, placement->ctx->devices[placement->home].memory,
                                    &e->exchange);
    if (e->exchange)
        e->received = ls_exchange_received(e->exchange);
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

static void free_thread(ls_executor *e, int w)
{
    bool cpu = e->placement->ctx->devices[e->device_of[w]].kind == LS_CPU;
    if (e->arena_block)
        give(e, cpu ? e->device_of[w] : e->placement->home, e->arena_block[w]);
    if (e->inputs)
        free(e->inputs[w]);
    if (e->lanes)
        free(e->lanes[w]);
    if (e->places)
        free(e->places[w]);
}

void ls_executor_destroy(ls_executor *e)
{
    if (!e)
        return;
    for (int w = 0; e->device_of && w < e->threads; w++)
        free_thread(e, w);
    for (int p = 0; e->phases && p < e->phase_count; p++)
        ls_units_free(&e->phases[p]);
    ls_block **blocks[] = { e->kept_block, e->frame_block, e->partial_block };
    for (int d = 0; d < e->devices; d++) {
        for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
            if (blocks[i])
                give(e, d < e->placement->ctx->cpu_count ? d : e->placement->home, blocks[i][d]);
        if (e->drivers)
            ls_driver_destroy(e->drivers[d]);
        if (e->sleepers)
            pthread_cond_destroy(&e->sleepers[d].wake);
    }
    give(e, e->placement->home, e->whole_block);
    for (size_t i = 0; e->pools && i < (size_t)e->plan->segment_count * (size_t)e->devices; i++)
        free(e->pools[i].free);
    void *lists[] = { e->pools,         e->arena,         e->staging,    e->arena_block,  e->inputs,     e->lanes,
                      e->places,        e->kept,          e->frames,     e->partials,     e->kept_block, e->frame_block,
                      e->partial_block, e->lane,          e->in_flight,  e->next_begin,   e->frame_of,   e->free_frames,
                      e->frame_count,   e->slot_of,       e->block,      e->drivers,      e->ranges,     e->group_times,
                      e->segment_times, e->phase_seconds, e->phases,     e->external,     e->device_of,  e->next,
                      e->audit_buffer,  e->wanted,        e->lane_flops, e->lane_seconds, e->meters,     e->taken,
                      e->together,      e->complete,      e->sleepers,   e->last_updates, e->written };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        free(lists[i]);
    ls_exchange_destroy(e->exchange);
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

ls_external *ls_executor_external(ls_executor *e)
{
    return e->external;
}

void ls_executor_mutate(ls_executor *e, ls_mutation mutation)
{
    e->mutation = mutation;
}

void ls_executor_audit(ls_executor *e)
{
    e->audits = true;
}

/* ---- One run ---- */

/* Brings the state on other devices up to date before the threads start. */
static ls_status begin_run(ls_executor *e)
{
    for (int d = 0; d < e->devices; d++)
        if (e->drivers[d])
            LS_TRY(ls_driver_begin(e->drivers[d]));
    for (int i = 0; i < e->plan->join_count; i++)
        atomic_store_explicit(&e->ranges[i], LS_RANGE_SAFE, memory_order_relaxed);
    for (int i = 0; i < e->plan->update_count; i++)
        atomic_store_explicit(&e->last_updates[i].large, false, memory_order_relaxed);
    return LS_OK;
}

ls_status ls_executor_begin_writes(ls_executor *e)
{
    if (e->writes || e->written_count == 0)
        return LS_OK;
    LS_TRY(ls_writes_begin(e->plan->graph, e->written, e->written_count));
    e->writes = true;
    return LS_OK;
}

/* A work split of "auto" uses the speeds of devices. */
static void note_speed(ls_executor *e)
{
    for (int d = 0; d < e->devices; d++) {
        ls_device *device = &e->plan->graph->context->devices[d];
        pthread_mutex_lock(&device->mutex);
        device->flops += e->lane_flops[d];
        device->seconds += e->lane_seconds[d];
        pthread_mutex_unlock(&device->mutex);
        e->lane_flops[d] = e->lane_seconds[d] = 0;
    }
}

ls_status ls_executor_run(ls_executor *e, uint64_t seed, uint64_t run)
{
    memset(e->meters, 0, (size_t)e->threads * sizeof(*e->meters));
    e->seed = seed;
    e->run = run;
    e->committed = e->writes = false;
    ls_context *ctx = e->plan->graph->context;
    /* Without a thread pool it uses no other device. */
    bool alone = ls_context_has_others(ctx) && e->thread_pool;
    if (alone)
        pthread_mutex_lock(&ctx->devices_mutex);
    double start = ls_clock_now();
    ls_status status = begin_run(e);
    e->begin_seconds = alone ? ls_clock_now() - start : 0;
    if (alone)
        ls_timeline_call(e->timeline, LS_CALL_STATE, start, start + e->begin_seconds);
    if (status == LS_OK) {
        ls_audit_begin(e);
        ls_dispatch(e);
        ls_audit_end(e);
        note_speed(e);
        status = ls_error_give(&e->failure);
    }
    if (status == LS_OK)
        status = ls_executor_begin_writes(e);
    if (status != LS_OK && e->writes)
        ls_writes_end(e->plan->graph);
    if (alone)
        pthread_mutex_unlock(&ctx->devices_mutex);
    if (status != LS_OK && e->exchange && !e->committed && !ctx->peers->again)
        ctx->peers->give_up(ctx->peers); /* The others need not wait because of a local failure. */
    return status;
}

/* Updates have written host memory, or the new state of devices. */
static void commit_updates(ls_executor *e)
{
    for (int i = 0; i < e->plan->update_count; i++) {
        ls_variable *written[LS_MAX_WRITES];
        const ls_group *group = e->plan->updates[i].group;
        int count = ls_node_writes(group->root, written);
        for (int k = 0; k < count; k++) {
            ls_variable_written(written[k], group->kind == LS_CPU);
            for (int d = 0; d < e->devices; d++)
                if (ls_updates_on(e->placement, i, d))
                    ls_driver_commit(e->drivers[d], written[k]);
            e->last_updates[i].versions[k] = atomic_load(&e->last_updates[i].large) ? 0 : written[k]->version;
        }
    }
}

static void commit_assignments(ls_executor *e)
{
    for (int i = 0; i < e->plan->write_count; i++) {
        ls_variable *variable = e->plan->writes[i].variable;
        if (variable->bytes)
            memcpy(variable->data, ls_executor_locate(e, &e->plan->writes[i].from, 0, 0, 0), variable->bytes);
        ls_variable_written(variable, true);
    }
}

void ls_executor_commit(ls_executor *e)
{
    commit_updates(e);
    commit_assignments(e);
    if (e->writes)
        ls_writes_end(e->plan->graph);
}
