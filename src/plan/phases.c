/* Pass 9: the order of work. A training step ends with all checks for finite values, and only then
 * the updates. */
#include "device/context.h"
#include "plan/plan.h"

static void add_phase(ls_plan *plan, ls_phase_kind kind, int level, int first, int count)
{
    if (count > 0)
        plan->phases[plan->phase_count++] = (ls_phase){ kind, level, first, count, 0 };
}

/* Small steps share a phase; each large tiled step has its own. */
static void whole_phases(ls_plan *plan, int level, int first, int count)
{
    int run = first;
    for (int i = first; i < first + count; i++) {
        const ls_group *group = plan->whole_steps[i].group, *before = plan->whole_steps[run].group;
        if (group->kind != before->kind || group->device != before->device) {
            add_phase(plan, LS_PHASE_WHOLE, level, run, i - run);
            run = i;
        }
        if (!group->kernel->tiled || ls_plan_tiled_elements(plan, group) <= ls_plan_tile(group))
            continue;
        add_phase(plan, LS_PHASE_WHOLE, level, run, i - run);
        add_phase(plan, LS_PHASE_TILES, level, i, 1);
        /* Tiles of an input: a step that sums their results follows. */
        run = group->kernel->tiled_input ? i : i + 1;
    }
    add_phase(plan, LS_PHASE_WHOLE, level, run, first + count - run);
}

static bool has_finish(const ls_plan *plan, int first, int count)
{
    for (int i = first; i < first + count; i++)
        if (plan->joins[i].group->kernel->finish)
            return true;
    return false;
}

static bool is_shared(const ls_plan *plan, int first, int count)
{
    for (int i = first; i < first + count; i++)
        if (plan->joins[i].group->kind != LS_CPU && !plan->at_home)
            return true;
    return false;
}

static bool is_transferred(const ls_plan *plan, int first, int count)
{
    for (int i = first; i < first + count; i++)
        if (ls_plan_transfers(plan, plan->joins[i].group->kind))
            return true;
    return false;
}

/* Rounds of joins in pairs; the last pair, all lanes, is left to the join. */
static void pair_phases(ls_plan *plan, int level, int first, int count)
{
    /* Otherwise the host joins. */
    bool pairs = plan->options.map.owners == LS_OWNERS_PAIRS && !plan->at_home;
    for (int size = 2; size < plan->lanes && pairs; size *= 2) {
        add_phase(plan, LS_PHASE_PAIR, level, first, count);
        plan->phases[plan->phase_count - 1].size = size;
    }
}

static ls_status list_writes(ls_plan *plan)
{
    plan->writes = ls_plan_alloc(plan, (size_t)plan->group_count * LS_MAX_WRITES, sizeof(*plan->writes));
    if (!plan->writes)
        return LS_ERR_MEMORY;
    for (int i = 0; i < plan->whole_count; i++) {
        const ls_step *step = &plan->whole_steps[i];
        ls_variable *written[LS_MAX_WRITES];
        int count = ls_node_writes(step->group->root, written);
        for (int k = 0; k < count; k++) {
            ls_write *write = &plan->writes[plan->write_count++];
            *write = (ls_write){ .variable = written[k], .from = step->out, .writer = step->group->root };
            if (k > 0)
                write->from.offset = step->slots[k - 1];
        }
    }
    return LS_OK;
}

/* Bytes of a level up to which a second message costs more than it saves. */
#define LITTLE (1 << 16)
/* The same for two workers: sharing saves them no bytes, but half of the sums. */
#define MUCH  (1 << 19)
#define GRAIN 64 /* Elements: workers' parts begin at multiples of it. */

/* Workers (or servers, if there are any) share out the joins of a level. If they are small, every
 * worker joins everything itself, which saves a message. */
static bool share_joins(ls_plan *plan, int first, int count)
{
    size_t bytes = 0;
    for (int i = first; i < first + count; i++)
        bytes += plan->joins[i].bytes;
    bool shared =
        plan->options.workers > 1 && (plan->has_servers || bytes > (plan->options.workers > 2 ? LITTLE : MUCH));
    for (int i = first; i < first + count; i++)
        plan->joins[i].shared = shared;
    return shared;
}

void ls_plan_owned(const ls_plan *plan, const ls_join *join, int worker, int64_t *from, int64_t *to)
{
    int64_t grains = (join->count + GRAIN - 1) / GRAIN, parts = plan->join_parts;
    int part = join->shared ? plan->join_part[worker] : 0;
    *from = 0;
    *to = part < 0 ? 0 : join->count;
    if (!join->shared || part < 0)
        return;
    *from = grains * part / parts * GRAIN;
    *to = grains * (part + 1) / parts * GRAIN;
    *to = *to < join->count ? *to : join->count;
}

static void join_phases(ls_plan *plan, int level, int first, int count)
{
    if (is_transferred(plan, first, count))
        add_phase(plan, LS_PHASE_GATHER, level, first, count);
    add_phase(plan, share_joins(plan, first, count) ? LS_PHASE_REDUCE : LS_PHASE_JOIN, level, first, count);
    if (is_shared(plan, first, count))
        add_phase(plan, LS_PHASE_SHARE, level, first, count);
    if (has_finish(plan, first, count))
        add_phase(plan, LS_PHASE_FINISH, level, first, count);
}

int ls_plan_late(const ls_plan *plan, int level, int *first)
{
    int end = 0;
    while (end < plan->join_count && plan->joins[end].level <= level)
        end++;
    *first = end;
    while (*first > 0 && plan->joins[*first - 1].level == level && plan->joins[*first - 1].late)
        --*first;
    return end - *first;
}

/* Late joins, after the others of a level. Partials of this level are sent while the next is
 * computed; those of the previous level have arrived and are joined, and their results are sent in
 * the same way. */
static void late_phases(ls_plan *plan, int level)
{
    int now, last, before;
    int parts = ls_plan_late(plan, level, &now), sums = ls_plan_late(plan, level - 1, &last);
    int complete = ls_plan_late(plan, level - 2, &before);
    share_joins(plan, now, parts);
    bool spread = sums > 0 && plan->joins[last].shared;
    if (has_finish(plan, before, complete))
        add_phase(plan, LS_PHASE_FINISH, level, before, complete);
    add_phase(plan, LS_PHASE_JOIN, level, last, sums);
    if (parts > 0 || spread)
        add_phase(plan, LS_PHASE_POST, level, 0, 1);
}

static bool is_posted(const ls_plan *plan, int level)
{
    int last, before;
    return ls_plan_late(plan, level - 1, &last) > 0 ||
           (ls_plan_late(plan, level - 2, &before) > 0 && plan->joins[before].shared);
}

/* Inputs have smaller ids, so only nodes that are newer than `to` are visited. */
static bool depends_on(const ls_tensor *node, const ls_tensor *to)
{
    if (node == to)
        return true;
    for (int i = 0; i < node->input_count && node->id > to->id; i++)
        if (depends_on(node->in[i], to))
            return true;
    return false;
}

/* Returns whether the second write is computed from the update that is the first. */
static bool replaces(const ls_tensor *second, const ls_tensor *first)
{
    return ls_node_is(first, LS_TRAIT_UPDATES) && !ls_node_is(second, LS_TRAIT_UPDATES) && depends_on(second, first);
}

/* Two writes of one variable in a run would leave the result undefined, unless the second is an
 * assignment computed from an update: then the assignment counts (constraints of variables). */
static ls_status check_writes(ls_plan *plan)
{
    char a[LS_NODE_TEXT], b[LS_NODE_TEXT], c[LS_NODE_TEXT];
    size_t variables = plan->graph->variable_count;
    const ls_tensor **writer = ls_plan_alloc(plan, variables, sizeof(*writer));
    if (!writer)
        return LS_ERR_MEMORY;
    for (int g = 0; g < plan->group_count; g++) {
        ls_variable *written[LS_MAX_WRITES];
        int count = plan->groups[g].needed ? ls_node_writes(plan->groups[g].root, written) : 0;
        for (int k = 0; k < count; k++) {
            const ls_tensor **first = &writer[written[k]->number];
            if (*first && !replaces(plan->groups[g].root, *first))
                return ls_fail(LS_ERR_INVALID, "%s is written twice in one run, by %s and by %s",
                               ls_node_label(written[k]->node, a), ls_node_label(*first, b),
                               ls_node_label(plan->groups[g].root, c));
            *first = plan->groups[g].root;
        }
    }
    return LS_OK;
}

ls_status ls_plan_phases(ls_plan *plan)
{
    LS_TRY(check_writes(plan));
    LS_TRY(list_writes(plan));
    size_t most = (size_t)plan->levels * (14 + 13) + (size_t)plan->whole_count * 2 + LS_MAX_KINDS + 4;
    plan->phases = ls_plan_alloc(plan, most, sizeof(*plan->phases));
    if (!plan->phases)
        return LS_ERR_MEMORY;
    int whole = 0, prepared = 0, segment = 0, join = 0, late;
    for (int level = 0; level < plan->levels; level++) {
        int w = whole, p = prepared, s = segment, j = join;
        while (whole < plan->whole_count && plan->whole_steps[whole].group->level == level)
            whole++;
        while (prepared < plan->prepared_count && plan->prepared[prepared].level == level)
            prepared++;
        while (segment < plan->segment_count && plan->segments[segment].level == level)
            segment++;
        while (join < plan->join_count && plan->joins[join].level == level)
            join++;
        whole_phases(plan, level, w, whole - w);
        add_phase(plan, LS_PHASE_PREPARE, level, p, prepared - p);
        add_phase(plan, LS_PHASE_LANES, level, s, segment - s);
        if (plan->at_home && join > j)
            add_phase(plan, LS_PHASE_HOME, level, s, segment - s);
        if (is_posted(plan, level))
            add_phase(plan, LS_PHASE_SETTLE, level, 0, 1);
        if (plan->options.workers > 0)
            add_phase(plan, LS_PHASE_EXCHANGE, level, s, segment - s);
        if (join > j && segment > s)
            pair_phases(plan, level, s, segment - s);
        join_phases(plan, level, j, join - j - ls_plan_late(plan, level, &late));
        late_phases(plan, level);
    }
    if (plan->options.workers > 0 && plan->segment_count > 0)
        add_phase(plan, LS_PHASE_COLLECT, plan->levels, 0, plan->fetch_count);
    if (plan->options.workers > 0 && plan->segment_count > 0)
        add_phase(plan, LS_PHASE_COMMIT, plan->levels, 0, 1);
    add_phase(plan, LS_PHASE_GUARD, plan->levels, 0, plan->guard_count);
    add_phase(plan, LS_PHASE_CHECK, plan->levels, 0, plan->update_count);
    for (int i = 0, first = 0; i < plan->update_count; first = i) {
        /* Updates that can fail come first; those of the CPU cannot. */
        while (i < plan->update_count && plan->updates[i].group->kind == plan->updates[first].group->kind)
            i++;
        add_phase(plan, LS_PHASE_UPDATE, plan->levels, first, i - first);
    }
    return LS_OK;
}
