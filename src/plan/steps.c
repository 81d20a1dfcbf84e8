/* Pass 6: lists joins, prepared weights, whole steps and updates, all but the last by level. */
#include <stdlib.h>

#include "base/size.h"
#include "plan/plan.h"

static ls_join_kind join_kind(const ls_group *group)
{
    return ls_node_is(group->root, LS_TRAIT_JOIN_MAX)   ? LS_JOIN_MAX
           : ls_node_is(group->root, LS_TRAIT_JOIN_MIN) ? LS_JOIN_MIN
                                                        : LS_JOIN_SUM;
}

/* Groups that want the same form share one prepared weight. */
static int find_prepared(const ls_plan *plan, const ls_group *group, int value)
{
    const ls_prepare *want = &group->kernel->prepare;
    for (int i = 0; i < plan->prepared_count; i++) {
        const ls_kernel *other = plan->prepared[i].group->kernel;
        if (plan->prepared[i].value == value && other->prepare.run == want->run && want->same(other, group->kernel))
            return i;
    }
    return -1;
}

static void list_prepared(ls_plan *plan, ls_group *group)
{
    if (!group->kernel || group->kernel->prepare.bytes == 0)
        return;
    int value = ls_plan_source_value(plan, group->in[group->kernel->prepare.input]);
    int from = ls_plan_source(plan, value), at = find_prepared(plan, group, value);
    int level = from < 0 ? 0 : plan->groups[from].level + (plan->groups[from].reduces ? 1 : 0);
    if (at < 0) {
        at = plan->prepared_count++;
        plan->prepared[at] = (ls_prepared){ .group = group, .value = value, .level = level, .last = group->level };
    }
    if (plan->prepared[at].last < group->level)
        plan->prepared[at].last = group->level;
    group->prepared = at;
}

static int by_level(const void *a, const void *b)
{
    const ls_join *x = a, *y = b;
    if (x->level != y->level)
        return (x->level > y->level) - (x->level < y->level);
    if (x->late != y->late)
        return x->late - y->late;
    return (x->group > y->group) - (x->group < y->group);
}

/* Levels as if nothing were fused. Fusion depends on the kind of device, and workers with different
 * kinds must agree which joins are late. */
static void set_node_levels(const ls_plan *plan, int *level, int *latest)
{
    const ls_plan_node *nodes = plan->nodes;
    for (int i = 0; i < plan->node_count; i++) {
        level[i] = 0;
        latest[i] = plan->levels - 1;
        for (int k = 0; nodes[i].in && k < nodes[i].node->input_count; k++) {
            const ls_tensor *in = nodes[nodes[i].in[k]].node;
            bool by_lane = ls_node_is_by_lane(in) && ls_node_is_by_lane(nodes[i].node);
            int after = level[nodes[i].in[k]] + (in->use == LS_USE_REDUCES && nodes[nodes[i].in[k]].in && !by_lane);
            level[i] = after > level[i] ? after : level[i];
        }
    }
    for (int i = plan->node_count; i-- > 0;) { /* Whole nodes are computed as late as possible. */
        if (nodes[i].node->use == LS_USE_WHOLE && !nodes[i].node->per_sample)
            level[i] = latest[i];
        for (int k = 0; nodes[i].in && k < nodes[i].node->input_count; k++)
            if (latest[nodes[i].in[k]] > level[i])
                latest[nodes[i].in[k]] = level[i];
    }
}

/* By node: the first level that reads it; the number of levels: read at the end. */
static ls_status find_first_reads(ls_plan *plan, int **out)
{
    int *level = ls_plan_alloc(plan, (size_t)plan->node_count, sizeof(*level));
    int *first_read = ls_plan_alloc(plan, (size_t)plan->node_count, sizeof(*first_read));
    if (!level || !first_read)
        return LS_ERR_MEMORY;
    set_node_levels(plan, level, first_read);
    for (int i = 0; i < plan->node_count; i++)
        first_read[i] = plan->levels;
    for (int i = plan->node_count; i-- > 0;) {
        const ls_plan_node *reader = &plan->nodes[i];
        const ls_group *group = reader->group >= 0 ? &plan->groups[reader->group] : NULL;
        int when = group && group->in_place ? plan->levels : group && group->alias ? first_read[i] : level[i];
        for (int k = 0; reader->in && !ls_node_is(reader->node, LS_TRAIT_ORDERS) && k < reader->node->input_count;
             k++) {
            int in = reader->in[k];
            bool by_lane = ls_node_is_by_lane(plan->nodes[in].node) && ls_node_is_by_lane(reader->node);
            first_read[in] = when < first_read[in] && !by_lane ? when : first_read[in];
        }
    }
    *out = first_read;
    return LS_OK;
}

static ls_status list_joins(ls_plan *plan)
{
    int *first_read = NULL;
    LS_TRY(find_first_reads(plan, &first_read));
    for (int g = 0; g < plan->group_count; g++) {
        ls_group *group = &plan->groups[g];
        if (!group->reduces || !group->needed || ls_node_is(group->root, LS_TRAIT_GATHERS) || !group->kernel)
            continue;
        size_t own = group->kernel->partial_bytes, bytes = own ? own : ls_plan_unit(plan, group->root);
        plan->joins[plan->join_count++] =
            (ls_join){ .group = group,
                       .kind = join_kind(group),
                       .dtype = group->root->dtype,
                       .level = group->level,
                       /* Partials are sent during the next level, results during the one after. */
                       .late = plan->options.workers > 1 && first_read[group->value] > group->level + 2,
                       .bytes = bytes,
                       .plain = (int64_t)(ls_plan_unit(plan, group->root) / ls_dtype_bytes(group->root->dtype)),
                       .count = (int64_t)(bytes / ls_dtype_bytes(group->root->dtype)),
                       .stride = ls_size_align(bytes ? bytes : 1, LS_ALIGN) + (plan->options.guards ? LS_ALIGN : 0) };
    }
    qsort(plan->joins, (size_t)plan->join_count, sizeof(*plan->joins), by_level);
    for (int i = 0; i < plan->join_count; i++)
        plan->joins[i].group->join = i;
    return LS_OK;
}

static int steps_by_level(const void *a, const void *b)
{
    const ls_group *x = ((const ls_step *)a)->group, *y = ((const ls_step *)b)->group;
    if (x->level != y->level)
        return (x->level > y->level) - (x->level < y->level);
    return (x > y) - (x < y);
}

static int prepared_by_level(const void *a, const void *b)
{
    const ls_prepared *x = a, *y = b;
    if (x->level != y->level)
        return (x->level > y->level) - (x->level < y->level);
    return (x->group > y->group) - (x->group < y->group);
}

/* Puts the CPU's last. */
static int updates_by_kind(const void *a, const void *b)
{
    const ls_group *x = ((const ls_step *)a)->group, *y = ((const ls_step *)b)->group;
    return x->kind != y->kind ? (x->kind < y->kind) - (x->kind > y->kind) : (x > y) - (x < y);
}

static void list_whole(ls_plan *plan)
{
    for (int g = 0; g < plan->group_count; g++) {
        ls_group *group = &plan->groups[g];
        if (group->per_sample || !group->needed || group->alias)
            continue;
        if (group->in_place)
            plan->updates[plan->update_count++] = (ls_step){ .group = group };
        else
            plan->whole_steps[plan->whole_count++] = (ls_step){ .group = group };
    }
    qsort(plan->whole_steps, (size_t)plan->whole_count, sizeof(*plan->whole_steps), steps_by_level);
    qsort(plan->updates, (size_t)plan->update_count, sizeof(*plan->updates), updates_by_kind);
}

/* Losses of a run that updates variables, and values that it assigns (moving averages). */
static ls_status list_guards(ls_plan *plan)
{
    plan->guards = ls_plan_alloc(plan, (size_t)plan->node_count, sizeof(*plan->guards));
    if (!plan->guards)
        return LS_ERR_MEMORY;
    for (int i = 0; plan->update_count > 0 && i < plan->node_count; i++)
        if (plan->nodes[i].node->guards && !plan->nodes[i].node->per_sample && plan->nodes[i].group >= 0)
            plan->guards[plan->guard_count++] = i;
    for (int i = 0; plan->guard_count > 0 && i < plan->node_count; i++) {
        const ls_tensor *node = plan->nodes[i].node;
        if (ls_node_is(node, LS_TRAIT_WRITES) && !ls_node_is(node, LS_TRAIT_UPDATES) && plan->nodes[i].group >= 0)
            plan->guards[plan->guard_count++] = i;
    }
    return LS_OK;
}

ls_status ls_plan_steps(ls_plan *plan)
{
    size_t groups = (size_t)plan->group_count;
    plan->joins = ls_plan_alloc(plan, groups, sizeof(*plan->joins));
    plan->prepared = ls_plan_alloc(plan, groups, sizeof(*plan->prepared));
    plan->whole_steps = ls_plan_alloc(plan, groups, sizeof(*plan->whole_steps));
    plan->updates = ls_plan_alloc(plan, groups, sizeof(*plan->updates));
    plan->value_of = ls_plan_alloc(plan, (size_t)plan->node_count, sizeof(*plan->value_of));
    if (!plan->joins || !plan->prepared || !plan->whole_steps || !plan->updates || !plan->value_of)
        return LS_ERR_MEMORY;
    LS_TRY(list_joins(plan));
    for (int g = 0; g < plan->group_count; g++)
        list_prepared(plan, &plan->groups[g]);
    qsort(plan->prepared, (size_t)plan->prepared_count, sizeof(*plan->prepared), prepared_by_level);
    for (int g = 0; g < plan->group_count; g++) { /* Sorting moved them. */
        ls_group *group = &plan->groups[g];
        if (group->kernel && group->kernel->prepare.bytes)
            group->prepared =
                find_prepared(plan, group, ls_plan_source_value(plan, group->in[group->kernel->prepare.input]));
    }
    list_whole(plan);
    return list_guards(plan);
}

int ls_plan_join_of(const ls_plan *plan, const ls_step *update)
{
    int g = plan->nodes[update->group->in[0]].group;
    const ls_group *group = g >= 0 ? &plan->groups[g] : NULL;
    bool straight = group && group->reduces && !ls_node_is(group->root, LS_TRAIT_GATHERS) && !group->kernel->finish;
    return straight ? group->join : -1;
}
