/* Creates a plan: runs the passes in order and computes the default number of lanes. */
#include "plan/plan.h"

#include <stdlib.h>

#include "base/size.h"

void *ls_plan_alloc(ls_plan *plan, size_t count, size_t bytes)
{
    size_t total;
    void *memory = ls_size_mul(count ? count : 1, bytes, &total) ? ls_arena_alloc(&plan->arena, total) : NULL;
    if (!memory)
        ls_fail(LS_ERR_MEMORY, "no memory for a plan: %zu entries of %zu bytes", count, bytes);
    return memory;
}

int ls_plan_source(const ls_plan *plan, int value)
{
    int group = plan->nodes[value].group;
    while (group >= 0 && plan->groups[group].alias)
        group = plan->nodes[plan->groups[group].in[0]].group;
    return group;
}

int ls_plan_source_value(const ls_plan *plan, int value)
{
    while (plan->nodes[value].group >= 0 && plan->groups[plan->nodes[value].group].alias)
        value = plan->groups[plan->nodes[value].group].in[0];
    return value;
}

bool ls_plan_reads_lane(const ls_plan *plan, const ls_group *group, int k)
{
    int from = plan->nodes[group->in[k]].group;
    if (from < 0 || !plan->groups[from].reduces || !ls_node_is_by_lane(plan->groups[from].root))
        return false;
    for (int i = 0; i < group->node_count; i++)
        if (ls_node_is_by_lane(group->nodes[i]))
            return true;
    return false;
}

bool ls_plan_transfers(const ls_plan *plan, int kind)
{
    return kind != LS_CPU && !plan->at_home && plan->options.map.owners != LS_OWNERS_PAIRS &&
           plan->graph->context->kinds[kind].backend.transfer;
}

size_t ls_plan_unit(const ls_plan *plan, const ls_tensor *node)
{
    int64_t count = 0;
    ls_shape shape = node->shape;
    if (node->per_sample) {
        shape.dims[0] = 1;
        ls_shape_count(&shape, plan->batch, &count);
    } else {
        ls_shape_count(&shape, plan->batch < 0 ? 0 : plan->batch, &count);
    }
    return (size_t)count * ls_dtype_bytes(node->dtype);
}

/* s: the smallest power of two with s x FLOPs >= 2048 x parameters, within 4 to 32. V: the largest
 * power of two, at most 32, that leaves s samples a lane, but at least min(4, batch). */
int ls_plan_lanes(double flops_per_sample, double parameters, int64_t batch)
{
    int64_t s = 4, lanes = 1, least = batch < 4 ? (batch < 1 ? 1 : batch) : 4;
    while (s < 32 && (double)s * flops_per_sample < 2048 * parameters)
        s *= 2;
    while (lanes < 32 && lanes * 2 * s <= batch)
        lanes *= 2;
    return (int)(lanes < least ? least : lanes);
}

/* Parameters are the variables that the plan updates, or all that it reads if it updates none.
 * Metrics do not count, so lanes, and thus the bits of the weights, are the same with and without
 * them. */
static int default_lanes(const ls_plan *plan)
{
    double flops = 0, updated = 0, read = 0;
    for (int i = 0; i < plan->node_count; i++) {
        const ls_tensor *node = plan->nodes[i].node;
        int64_t count = 0;
        if (plan->nodes[i].aside)
            continue;
        if (node->use != LS_USE_WHOLE)
            flops += ls_node_flops(node);
        ls_shape_count(&node->shape, 1, &count);
        if (node->op == LS_OP_variable)
            read += (double)count;
        if (ls_node_is(node, LS_TRAIT_UPDATES))
            updated += (double)count;
    }
    return ls_plan_lanes(flops, updated > 0 ? updated : read, plan->batch);
}

void ls_share_lanes(const uint32_t *weights, int workers, int lanes, int *first)
{
    for (int w = 0; w <= workers; w++)
        first[w] = weights ? 0 : (int)((int64_t)w * lanes / workers);
    for (int lane = 0; weights && lane < lanes; lane++) {
        /* Gives the lane to the worker that would then have the least work; first[w+1] counts the
         * lanes of w. */
        int best = 0;
        for (int w = 1; w < workers; w++)
            if ((uint64_t)(first[w + 1] + 1) * weights[best] < (uint64_t)(first[best + 1] + 1) * weights[w])
                best = w;
        first[best + 1]++;
    }
    for (int w = 0; weights && w < workers; w++)
        first[w + 1] += first[w];
}

/* Servers join if there are any, otherwise all workers. */
static ls_status share_parts(ls_plan *plan)
{
    ls_plan_options *o = &plan->options;
    plan->join_part = ls_plan_alloc(plan, (size_t)o->workers, sizeof(*plan->join_part));
    if (!plan->join_part)
        return LS_ERR_MEMORY;
    for (int w = 0; w < o->workers; w++)
        plan->has_servers |= o->weights && o->weights[w] == 0;
    for (int w = 0; w < o->workers; w++)
        plan->join_part[w] = plan->has_servers && o->weights[w] > 0 ? -1 : plan->join_parts++;
    o->weights = NULL;
    return LS_OK;
}

static ls_status share_lanes(ls_plan *plan)
{
    ls_plan_options *o = &plan->options;
    if (o->workers == 0)
        return LS_OK;
    plan->worker_first = ls_plan_alloc(plan, (size_t)o->workers + 1, sizeof(*plan->worker_first));
    if (!plan->worker_first)
        return LS_ERR_MEMORY;
    ls_share_lanes(o->weights, o->workers, plan->lanes, plan->worker_first);
    return share_parts(plan);
}

ls_status ls_plan_create(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count,
                         bool (*stop)(const ls_tensor *, void *), void *user, ls_plan_options options,
                         ls_kernel_source source, ls_plan **out)
{
    ls_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return ls_fail(LS_ERR_MEMORY, "no memory for a plan");
    plan->graph = graph;
    plan->options = options;
    plan->source = source;
    plan->batch = options.batch;
    plan->lanes = 1;
    plan->at_home = options.workers > 0 || ls_task_map_is_mixed(&options.map, graph->context);
    ls_tensor **order = NULL;
    size_t count = 0;
    ls_status status = ls_graph_order(graph, fetches, fetch_count, stop, user, &order, &count);
    if (status == LS_OK)
        status = ls_plan_nodes(plan, order, count, fetches, fetch_count, stop, user);
    free(order);
    if (status == LS_OK)
        status = ls_plan_kinds(plan);
    if (status == LS_OK && plan->batch >= 0)
        plan->lanes = options.lanes > 0 ? options.lanes : default_lanes(plan);
    if (status == LS_OK)
        status = share_lanes(plan);
    if (status == LS_OK)
        status = ls_plan_fuse(plan);
    if (status == LS_OK)
        status = ls_plan_segments(plan);
    if (status == LS_OK)
        status = ls_plan_kernels(plan);
    if (status == LS_OK)
        status = ls_plan_steps(plan);
    if (status == LS_OK)
        status = ls_plan_memory(plan);
    if (status == LS_OK)
        status = ls_plan_count_traffic(plan);
    if (status == LS_OK)
        status = ls_plan_phases(plan);
    if (status != LS_OK) {
        ls_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return LS_OK;
}

void ls_plan_destroy(ls_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < plan->group_count; i++)
        if (plan->groups[i].kernel)
            plan->groups[i].kernel->destroy(plan->groups[i].kernel);
    ls_arena_free(&plan->arena);
    free(plan);
}
