/* Pass 4: levels, segments, and kept values. A level is the work between two joins. Its per-sample
 * groups are divided into segments, which a micro-batch goes through together. A value that another
 * segment needs is kept for the whole batch, or recomputed there if it is cheap. Cheap groups have
 * no segment; they are computed where they are needed. */
#include <string.h>

#include "device/context.h"
#include "plan/plan.h"

#define HEAVY_BYTES                                                                                                    \
    ((size_t)512 << 10) /* A weight of this size is read as rarely as possible:                                        \
                         * its micro-batch is the whole lane. */

typedef struct cutter {
    ls_plan *plan;
    bool *needed; /* By group: its value is used, or it writes. */
    bool *kept;   /* By group. */
    int kind;     /* Kind of the segment being built. */
    bool spread;
    int *step_of; /* By group: its step in the segment being built, plus 1. */
    int *touched; /* Groups to reset in `step_of`. */
    int touched_count;
    ls_step *steps;
    int step_count;
    /* By step: bytes of a sample that become live at it; `freed`: that end after it. */
    size_t *size;
    size_t *freed;
} cutter;

/* The division without regard to devices, and the map's devices for each lane. */
typedef struct natural {
    int *segment; /* By group. */
    int64_t *micro;
    int *device; /* By group and lane. */
} natural;

#define CHEAP_DEPTH 4 /* Longest chain of cheap groups that is recomputed: keeps the work linear. */

static void set_levels(ls_plan *plan)
{
    for (int i = 0; i < plan->group_count; i++) {
        ls_group *group = &plan->groups[i];
        int depth = 1;
        group->level = 0;
        for (int k = 0; k < group->in_count; k++) {
            int input = plan->nodes[group->in[k]].group;
            if (input < 0)
                continue;
            const ls_group *before = &plan->groups[input];
            int level = before->level + (before->reduces && !ls_plan_reads_lane(plan, group, k) ? 1 : 0);
            group->level = level > group->level ? level : group->level;
            if (before->per_sample && before->cheap_depth >= depth)
                depth = before->cheap_depth + (before->alias ? 0 : 1);
        }
        group->cheap = group->cheap && depth <= CHEAP_DEPTH;
        group->cheap_depth = group->cheap || group->alias ? depth : 0;
        if (group->level + 1 > plan->levels)
            plan->levels = group->level + 1;
    }
    if (plan->levels == 0)
        plan->levels = 1;
}

/* Delays whole groups, so that joins are also read late (ls_join.late). */
static ls_status delay_whole(ls_plan *plan)
{
    int *latest = ls_plan_alloc(plan, (size_t)plan->group_count, sizeof(*latest));
    if (!latest)
        return LS_ERR_MEMORY;
    for (int g = 0; g < plan->group_count; g++)
        latest[g] = plan->levels - 1;
    for (int g = plan->group_count; g-- > 0;) {
        ls_group *group = &plan->groups[g];
        if (!group->per_sample)
            group->level = latest[g];
        for (int k = 0; k < group->in_count; k++) {
            int input = plan->nodes[group->in[k]].group;
            if (input >= 0 && latest[input] > group->level)
                latest[input] = group->level;
        }
    }
    return LS_OK;
}

static void find_needed(cutter *c)
{
    ls_plan *plan = c->plan;
    for (int i = plan->group_count; i-- > 0;) {
        const ls_group *group = &plan->groups[i];
        if (ls_node_is(group->root, LS_TRAIT_WRITES) || plan->nodes[group->value].fetched)
            c->needed[i] = true;
        for (int k = 0; c->needed[i] && k < group->in_count; k++)
            if (plan->nodes[group->in[k]].group >= 0)
                c->needed[plan->nodes[group->in[k]].group] = true;
    }
}

/* A per-sample group that is computed once, in its own level. */
static bool has_home(const cutter *c, int g)
{
    const ls_group *group = &c->plan->groups[g];
    return group->per_sample && c->needed[g] && !group->alias && (!group->cheap || c->kept[g]);
}

static void add_step(cutter *c, int g)
{
    c->steps[c->step_count] = (ls_step){ .group = &c->plan->groups[g] };
    c->step_of[g] = ++c->step_count;
    c->touched[c->touched_count++] = g;
}

/* Keeps the value in its own segment, or computes it in this one. */
static void demand(cutter *c, int value)
{
    ls_plan *plan = c->plan;
    int g = ls_plan_source(plan, value);
    if (g < 0 || !plan->groups[g].per_sample || plan->groups[g].reduces || c->step_of[g])
        return;
    ls_group *group = &plan->groups[g];
    if (!group->cheap || c->kept[g]) {
        c->kept[g] = true;
        return;
    }
    for (int k = 0; k < group->in_count; k++)
        demand(c, group->in[k]);
    add_step(c, g);
}

static size_t weight_bytes(const ls_plan *plan, const ls_group *group)
{
    const ls_tensor *weights = ls_node_weights(group->nodes[0]);
    return weights ? ls_plan_unit(plan, weights) : 0;
}

/* Preferred size of micro-batch. Groups without weights follow their neighbours. */
typedef enum preference { NO_PREFERENCE, SMALL, WHOLE_LANE } preference;

static preference preference_of(const ls_plan *plan, const ls_group *group)
{
    size_t bytes = weight_bytes(plan, group);
    if (group->kind != LS_CPU || group->spread)
        return WHOLE_LANE; /* No cache to fit in. */
    bool often = ls_node_is(group->nodes[0], LS_TRAIT_REREADS);
    return bytes == 0 ? NO_PREFERENCE : bytes >= HEAVY_BYTES || often ? WHOLE_LANE : SMALL;
}

/* Returns 0 for a whole value. */
static size_t unit_here(const ls_plan *plan, int value)
{
    const ls_tensor *node = plan->nodes[value].node;
    return node->per_sample ? ls_plan_unit(plan, node) : 0;
}

/* Bytes of one sample at the busiest step, for which the nominal cache should suffice. */
static size_t busiest_bytes(cutter *c)
{
    ls_plan *plan = c->plan;
    size_t live = 0, most = 1;
    for (int i = 0; i <= c->step_count; i++)
        c->size[i] = c->freed[i] = 0;
    for (int i = c->step_count; i-- > 0;) {
        const ls_group *group = c->steps[i].group;
        for (int k = 0; k < group->in_count; k++) {
            int g = ls_plan_source(plan, group->in[k]);
            size_t bytes = unit_here(plan, group->in[k]);
            if (g >= 0 && c->step_of[g] > 0) {
                c->freed[i] += bytes; /* Its last use: the walk is backward. */
                c->step_of[g] = -c->step_of[g];
            } else if (g < 0 || c->step_of[g] == 0) {
                c->size[i] += bytes; /* External: live only for this step. */
                c->freed[i] += bytes;
            }
        }
        c->size[i] += unit_here(plan, group->value);
    }
    for (int i = 0; i < c->step_count; i++) {
        live += c->size[i];
        most = live > most ? live : most;
        live -= c->freed[i] < live ? c->freed[i] : live;
    }
    for (int i = 0; i < c->touched_count; i++)
        if (c->step_of[c->touched[i]] < 0)
            c->step_of[c->touched[i]] = -c->step_of[c->touched[i]];
    return most;
}

static int64_t micro_size(cutter *c, bool heavy)
{
    const ls_plan *plan = c->plan;
    int64_t lane = ls_plan_lane_samples(plan);
    if (lane < 1)
        return 1;
    int64_t micro = (int64_t)(LS_MICRO_BYTES / busiest_bytes(c));
    if (plan->options.micro > 0 && c->kind == LS_CPU && !c->spread)
        micro = plan->options.micro;
    else if (heavy)
        micro = lane;
    else if (micro < 2)
        micro = 2; /* A single image leaves kernels half empty. */
    micro = micro > lane ? lane : micro;
    int64_t pieces = (lane + micro - 1) / micro;
    return (lane + pieces - 1) / pieces;
}

static ls_status end_segment(cutter *c, int level, bool heavy, int64_t micro)
{
    ls_plan *plan = c->plan;
    if (c->step_count == 0)
        return LS_OK;
    ls_segment *segment = &plan->segments[plan->segment_count];
    *segment = (ls_segment){ .level = level, .index = plan->segment_count, .step_count = c->step_count };
    segment->kind = c->kind;
    segment->spread = c->spread;
    segment->steps = ls_plan_alloc(plan, (size_t)c->step_count, sizeof(*segment->steps));
    if (!segment->steps)
        return LS_ERR_MEMORY;
    for (int i = 0; i < c->step_count; i++)
        segment->steps[i] = c->steps[i];
    segment->micro = micro ? micro : micro_size(c, heavy);
    plan->segment_count++;
    for (int i = 0; i < c->touched_count; i++)
        c->step_of[c->touched[i]] = 0;
    c->touched_count = 0;
    c->step_count = 0;
    return LS_OK;
}

static void add_own(cutter *c, int g)
{
    ls_group *group = &c->plan->groups[g];
    c->kind = group->kind;
    c->spread = group->spread;
    for (int k = 0; k < group->in_count; k++)
        demand(c, group->in[k]);
    add_step(c, g);
    group->segment = c->plan->segment_count;
}

static bool is_aside(const ls_plan *plan, int g)
{
    return plan->nodes[plan->groups[g].value].aside;
}

/* Whether a group, directly or through cheap groups, reads a partial that the segment being built
 * is still adding up. / */
static bool waits_for_lane(const cutter *c, int g)
{
    const ls_plan *plan = c->plan;
    const ls_group *group = &plan->groups[g];
    for (int k = 0; k < group->in_count; k++) {
        if (ls_plan_reads_lane(plan, group, k) && c->step_of[plan->nodes[group->in[k]].group])
            return true;
        int from = ls_plan_source(plan, group->in[k]);
        if (from >= 0 && plan->groups[from].per_sample && !plan->groups[from].reduces && plan->groups[from].cheap &&
            !c->kept[from] && !c->step_of[from] && waits_for_lane(c, from))
            return true;
    }
    return false;
}

/* Natural segments: series of groups of one kind that prefer the same micro-batch. Metrics are
 * apart, and readers of a lane's partial come after the segment that computes it. */
static ls_status cut_level(cutter *c, const int *groups, int count, int level)
{
    preference now = NO_PREFERENCE;
    for (int i = 0; i < count; i++) {
        const ls_group *group = &c->plan->groups[groups[i]];
        preference next = preference_of(c->plan, group);
        bool other = c->step_count > 0 &&
                     (group->kind != c->kind || group->spread != c->spread ||
                      is_aside(c->plan, groups[i]) != is_aside(c->plan, groups[i - 1]) || waits_for_lane(c, groups[i]));
        if (other || (next != NO_PREFERENCE && now != NO_PREFERENCE && next != now))
            LS_TRY(end_segment(c, level, now == WHOLE_LANE, 0));
        now = other ? NO_PREFERENCE : now;
        now = next != NO_PREFERENCE ? next : now;
        add_own(c, groups[i]);
    }
    return end_segment(c, level, now == WHOLE_LANE, 0);
}

/* Cuts where the map moves a lane to another device, or everywhere. */
static bool is_cut(const ls_plan *plan, const natural *n, int g, int next)
{
    if (plan->options.cut_everywhere || n->segment[g] != n->segment[next])
        return true;
    const int *here = n->device + (size_t)g * (size_t)plan->lanes;
    const int *there = n->device + (size_t)next * (size_t)plan->lanes;
    return memcmp(here, there, (size_t)plan->lanes * sizeof(*here)) != 0;
}

/* Each part keeps the micro-batch of the whole. */
static ls_status cut_finely(cutter *c, const int *groups, int count, int level, const natural *n)
{
    for (int i = 0; i < count; i++) {
        add_own(c, groups[i]);
        if (i + 1 == count || is_cut(c->plan, n, groups[i], groups[i + 1]))
            LS_TRY(end_segment(c, level, false, n->micro[groups[i]]));
    }
    return LS_OK;
}

/* Sorts by level, with metrics last; level l begins at start[l]. */
static int sort_by_level(cutter *c, int *sorted, int *start)
{
    ls_plan *plan = c->plan;
    for (int l = 0; l <= plan->levels; l++)
        start[l] = 0;
    for (int g = 0; g < plan->group_count; g++)
        if (has_home(c, g))
            start[plan->groups[g].level + 1]++;
    for (int l = 0; l < plan->levels; l++)
        start[l + 1] += start[l];
    int *next = c->touched; /* Free at this time. */
    for (int l = 0; l < plan->levels; l++)
        next[l] = start[l];
    for (int aside = 0; aside < 2; aside++)
        for (int g = 0; g < plan->group_count; g++)
            if (has_home(c, g) && is_aside(plan, g) == (aside == 1))
                sorted[next[plan->groups[g].level]++] = g;
    return start[plan->levels];
}

static ls_status cut_all(cutter *c, const int *sorted, const int *start, const natural *n)
{
    ls_plan *plan = c->plan;
    plan->segment_count = 0;
    for (int l = 0; l < plan->levels; l++) {
        int count = start[l + 1] - start[l];
        LS_TRY(n ? cut_finely(c, sorted + start[l], count, l, n) : cut_level(c, sorted + start[l], count, l));
    }
    return LS_OK;
}

/* Fetched cheap groups need a segment. */
static void keep_fetches(cutter *c)
{
    for (int i = 0; i < c->plan->fetch_count; i++) {
        int g = ls_plan_source(c->plan, c->plan->fetches[i]);
        if (g >= 0 && c->plan->groups[g].per_sample && !c->plan->groups[g].reduces)
            c->kept[g] = true;
    }
}

/* A kernel runs only on its own kind, so other kinds cannot recompute the value. */
static void keep_across_kinds(cutter *c)
{
    const ls_plan *plan = c->plan;
    for (int i = 0; i < plan->group_count; i++)
        for (int k = 0; c->needed[i] && k < plan->groups[i].in_count; k++) {
            int g = ls_plan_source(plan, plan->groups[i].in[k]);
            if (g >= 0 && plan->groups[g].per_sample && !plan->groups[g].reduces && !plan->groups[i].alias &&
                (plan->groups[g].kind != plan->groups[i].kind || plan->groups[g].spread != plan->groups[i].spread))
                c->kept[g] = true;
        }
}

/* Asks about each lane of a group with a segment, or about a whole value. */
static ls_status ask_map(ls_plan *plan, natural *n)
{
    const ls_task_map *map = &plan->options.map;
    const ls_context *ctx = plan->graph->context;
    int *stage = ls_plan_alloc(plan, (size_t)plan->group_count, sizeof(*stage));
    int *asked = ls_plan_alloc(plan, (size_t)plan->group_count, sizeof(*asked));
    if (!stage || !asked)
        return LS_ERR_MEMORY;
    LS_TRY(ls_plan_stages(plan, stage, asked));
    for (int g = 0; g < plan->group_count; g++) {
        ls_group *group = &plan->groups[g];
        ls_task_map_point at = { .kind = group->spread ? LS_ANY_KIND : group->kind,
                                 .asked = asked[g],
                                 .group = g,
                                 .segment = -1,
                                 .stage = stage[g],
                                 .lane = -1 };
        if (!group->per_sample)
            LS_TRY(ls_task_map_device(map, ctx, &at, &group->device));
        if (group->segment < 0)
            continue;
        n->segment[g] = at.segment = group->segment;
        n->micro[g] = plan->segments[group->segment].micro;
        int first = ls_plan_own_first(plan), end = ls_plan_own_end(plan);
        at.lanes = end > first ? end - first : 1;
        for (int lane = 0; lane < plan->lanes; lane++) {
            /* Lanes of other workers get the device of the first own lane. */
            at.lane = lane >= first && lane < end ? lane - first : 0;
            LS_TRY(ls_task_map_device(map, ctx, &at, &n->device[(size_t)g * (size_t)plan->lanes + (size_t)lane]));
        }
    }
    return LS_OK;
}

/* Cuts natural segments as the map requires, and records the devices. */
static ls_status cut_by_map(cutter *c, const int *sorted, const int *start)
{
    ls_plan *plan = c->plan;
    size_t groups = (size_t)plan->group_count, lanes = (size_t)plan->lanes;
    natural n = { .segment = ls_plan_alloc(plan, groups, sizeof(*n.segment)),
                  .micro = ls_plan_alloc(plan, groups, sizeof(*n.micro)),
                  .device = ls_plan_alloc(plan, groups * lanes, sizeof(*n.device)) };
    if (!n.segment || !n.micro || !n.device)
        return LS_ERR_MEMORY;
    LS_TRY(ask_map(plan, &n));
    LS_TRY(cut_all(c, sorted, start, &n));
    plan->task_device = ls_plan_alloc(plan, (size_t)plan->segment_count * lanes, sizeof(*plan->task_device));
    if (!plan->task_device)
        return LS_ERR_MEMORY;
    for (int s = 0; s < plan->segment_count; s++) {
        const ls_segment *segment = &plan->segments[s];
        /* The last group has a segment. */
        size_t last = (size_t)(segment->steps[segment->step_count - 1].group - plan->groups);
        memcpy(plan->task_device + (size_t)s * lanes, n.device + last * lanes, lanes * sizeof(int));
    }
    return LS_OK;
}

static ls_status cutter_prepare(cutter *c)
{
    ls_plan *plan = c->plan;
    size_t groups = (size_t)plan->group_count + (size_t)plan->levels + 1;
    c->needed = ls_plan_alloc(plan, groups, sizeof(*c->needed));
    c->kept = ls_plan_alloc(plan, groups, sizeof(*c->kept));
    c->step_of = ls_plan_alloc(plan, groups, sizeof(*c->step_of));
    c->touched = ls_plan_alloc(plan, groups, sizeof(*c->touched));
    c->steps = ls_plan_alloc(plan, groups, sizeof(*c->steps));
    c->size = ls_plan_alloc(plan, groups, sizeof(*c->size));
    c->freed = ls_plan_alloc(plan, groups, sizeof(*c->freed));
    plan->segments = ls_plan_alloc(plan, groups, sizeof(*plan->segments));
    bool all = c->needed && c->kept && c->step_of && c->touched && c->steps && c->size && c->freed && plan->segments;
    return all ? LS_OK : LS_ERR_MEMORY;
}

ls_status ls_plan_segments(ls_plan *plan)
{
    cutter c = { .plan = plan };
    set_levels(plan);
    LS_TRY(delay_whole(plan));
    LS_TRY(cutter_prepare(&c));
    find_needed(&c);
    keep_fetches(&c);
    keep_across_kinds(&c);
    int *sorted = ls_plan_alloc(plan, (size_t)plan->group_count, sizeof(*sorted));
    int *start = ls_plan_alloc(plan, (size_t)plan->levels + 1, sizeof(*start));
    if (!sorted || !start)
        return LS_ERR_MEMORY;
    sort_by_level(&c, sorted, start);
    LS_TRY(cut_all(&c, sorted, start, NULL));
    LS_TRY(cut_by_map(&c, sorted, start));
    for (int g = 0; g < plan->group_count; g++) {
        plan->groups[g].kept = c.kept[g];
        plan->groups[g].needed = c.needed[g];
    }
    return LS_OK;
}
