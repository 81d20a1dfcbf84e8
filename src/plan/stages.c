/* Stages: a model divided over devices. A group belongs to the forward node that it computes or is
 * the gradient of, so it goes backward where it went forward. Stages are ranges of forward nodes
 * with costs as even as possible, or the devices that layers request. */
#include "plan/plan.h"

/* FLOPs that a core does while it moves a byte. Affects only the balance of stages. */
#define FLOPS_A_BYTE 12.0

/* A forward node with all its work, forward and backward. */
typedef struct part {
    uint32_t origin;
    double cost;
    int stage;
} part;

static uint32_t origin_of(const ls_group *group)
{
    return group->nodes[0]->origin;
}

static double cost_of(const ls_plan *plan, const ls_group *group)
{
    double bytes = (double)ls_plan_unit(plan, group->root), flops = 0;
    for (int k = 0; k < group->in_count; k++) {
        const ls_tensor *in = plan->nodes[group->in[k]].node;
        bytes += in->per_sample ? (double)ls_plan_unit(plan, in) : 0;
    }
    for (int i = 0; i < group->node_count; i++)
        flops += ls_node_flops(group->nodes[i]);
    return flops / FLOPS_A_BYTE + bytes;
}

static part *part_of(part *parts, int count, uint32_t origin)
{
    int low = 0, high = count - 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (parts[middle].origin < origin)
            low = middle + 1;
        else
            high = middle;
    }
    return &parts[low];
}

/* Lists forward nodes in order, each once. */
static int list_parts(const ls_plan *plan, part *parts)
{
    int count = 0;
    for (int g = 0; g < plan->group_count; g++) {
        if (plan->groups[g].segment < 0)
            continue;
        uint32_t origin = origin_of(&plan->groups[g]);
        int at = count;
        while (at > 0 && parts[at - 1].origin > origin)
            at--;
        if (at > 0 && parts[at - 1].origin == origin)
            continue;
        for (int i = count++; i > at; i--)
            parts[i] = parts[i - 1];
        parts[at] = (part){ .origin = origin };
    }
    for (int g = 0; g < plan->group_count; g++)
        if (plan->groups[g].segment >= 0)
            part_of(parts, count, origin_of(&plan->groups[g]))->cost += cost_of(plan, &plan->groups[g]);
    return count;
}

/* Each stage gets at least one part. Returns whether all parts fit. */
static bool fill_stages(part *parts, int count, int stages, double most)
{
    int stage = 0;
    double cost = 0;
    for (int i = 0; i < count; i++) {
        /* Every remaining stage needs a part. */
        bool last_chance = count - i == stages - stage - 1;
        if (i > 0 && (cost + parts[i].cost > most || last_chance)) {
            stage++;
            cost = 0;
        }
        cost += parts[i].cost;
        parts[i].stage = stage;
    }
    return stage < stages;
}

static void balance(part *parts, int count, int stages)
{
    double low = 0, high = 0;
    for (int i = 0; i < count; i++) {
        low = parts[i].cost > low ? parts[i].cost : low;
        high += parts[i].cost;
    }
    for (int i = 0; i < 50; i++) {
        double middle = (low + high) / 2;
        if (fill_stages(parts, count, stages, middle))
            high = middle;
        else
            low = middle;
    }
    fill_stages(parts, count, stages, high);
}

/* Groups without a request take the device of their inputs, or the first requested one. */
static bool follow_layers(const ls_plan *plan, int *asked)
{
    int first = LS_ANY_DEVICE;
    for (int g = 0; g < plan->group_count && first == LS_ANY_DEVICE; g++)
        if (plan->groups[g].segment >= 0)
            first = plan->groups[g].device;
    if (first == LS_ANY_DEVICE)
        return false;
    for (int g = 0; g < plan->group_count; g++) {
        const ls_group *group = &plan->groups[g];
        asked[g] = group->device;
        for (int k = 0; k < group->in_count && asked[g] == LS_ANY_DEVICE; k++) {
            int from = ls_plan_source(plan, group->in[k]);
            if (from >= 0 && plan->groups[from].per_sample && plan->groups[from].kind == group->kind)
                asked[g] = asked[from];
        }
        if (asked[g] == LS_ANY_DEVICE && plan->graph->context->devices[first].kind == group->kind)
            asked[g] = first;
    }
    return true;
}

ls_status ls_plan_stages(ls_plan *plan, int *stage, int *asked)
{
    for (int g = 0; g < plan->group_count; g++) {
        asked[g] = plan->groups[g].device;
        stage[g] = 0;
    }
    const ls_task_map *map = &plan->options.map;
    if (map->stages < 2)
        return LS_OK;
    if (follow_layers(plan, asked))
        return map->count <= map->stages ? LS_OK
                                         : ls_fail(LS_ERR_INVALID,
                                                   "layers are placed on devices, so there cannot be %d replicas "
                                                   "of them on %d devices: use as many stages as devices",
                                                   map->count / map->stages, map->count);
    part *parts = ls_plan_alloc(plan, (size_t)plan->group_count, sizeof(*parts));
    if (!parts)
        return LS_ERR_MEMORY;
    int count = list_parts(plan, parts);
    balance(parts, count, plan->options.map.stages < count ? plan->options.map.stages : count);
    for (int g = 0; g < plan->group_count; g++)
        if (plan->groups[g].segment >= 0)
            stage[g] = part_of(parts, count, origin_of(&plan->groups[g]))->stage;
    return LS_OK;
}
