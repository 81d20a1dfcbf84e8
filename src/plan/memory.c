/* Pass 7: offsets from lifetimes. Whole and kept values live from level to level, values of a
 * micro-batch from step to step in the thread's arena. */
#include <stdlib.h>

#include "base/size.h"
#include "device/context.h"
#include "plan/pack.h"
#include "plan/plan.h"

/* ---- Values ---- */

typedef struct placer {
    ls_plan *plan;
    ls_packer packer;
    int *kept_first, *kept_last; /* By group: segments. */
    /* By group: last segment that reads lanes' own partials; -1: none. */
    int *lane_last;
    int *step_of; /* By group: its step in the current segment, plus 1. */
} placer;

/* Lifetimes: by level for whole values, by segment for kept values. */
static void find_lifetimes(placer *p)
{
    ls_plan *plan = p->plan;
    for (int g = 0; g < plan->group_count; g++) {
        plan->whole_last[g] = plan->groups[g].level + (plan->groups[g].reduces ? 1 : 0);
        p->kept_first[g] = plan->groups[g].segment;
        p->kept_last[g] = plan->groups[g].segment;
        p->lane_last[g] = -1;
    }
    for (int g = 0; g < plan->group_count; g++) {
        const ls_group *group = &plan->groups[g];
        if (group->per_sample || !group->needed)
            continue;
        for (int k = 0; k < group->in_count; k++) {
            int from = ls_plan_source(plan, group->in[k]);
            int level = group->in_place ? plan->levels : group->level;
            if (from >= 0 && plan->whole_last[from] < level)
                plan->whole_last[from] = level;
        }
    }
    for (int s = 0; s < plan->segment_count; s++)
        for (int i = 0; i < plan->segments[s].step_count; i++) {
            const ls_group *group = plan->segments[s].steps[i].group;
            for (int k = 0; k < group->in_count; k++) {
                int from = ls_plan_source(plan, group->in[k]);
                if (from < 0)
                    continue;
                if (plan->whole_last[from] < plan->segments[s].level)
                    plan->whole_last[from] = plan->segments[s].level;
                if (p->kept_last[from] < s)
                    p->kept_last[from] = s;
                if (ls_plan_reads_lane(plan, group, k))
                    p->lane_last[from] = s;
            }
        }
    for (int i = 0; i < plan->guard_count; i++)
        plan->whole_last[ls_plan_source(plan, plan->guards[i])] = plan->levels;
    for (int i = 0; i < plan->fetch_count; i++) {
        int from = ls_plan_source(plan, plan->fetches[i]);
        if (from >= 0) {
            plan->whole_last[from] = plan->levels;
            p->kept_last[from] = plan->segment_count;
        }
    }
}

static bool is_gather_batch(const ls_group *group)
{
    return ls_node_is(group->root, LS_TRAIT_GATHERS);
}

/* Whole values, joined partials and prepared weights share one arena. */
static ls_status place_whole(placer *p)
{
    ls_plan *plan = p->plan;
    for (int g = 0; g < plan->group_count; g++) {
        ls_group *group = &plan->groups[g];
        bool whole = !group->per_sample || group->reduces;
        if (!whole || !group->needed || group->alias || group->in_place)
            continue;
        int last = plan->whole_last[g];
        if (ls_node_is(group->root, LS_TRAIT_WRITES))
            last = plan->levels; /* Copied to the variable at the end. */
        ls_operand *value = &plan->value_of[group->value];
        *value = (ls_operand){ .value = group->value, .storage = LS_WHOLE, .unit = ls_plan_unit(plan, group->root) };
        LS_TRY(ls_packer_add(&p->packer, group->level, last, value->unit, &value->offset));
    }
    for (int i = 0; i < plan->join_count; i++) {
        ls_join *join = &plan->joins[i];
        if (join->group->kernel->finish)
            LS_TRY(ls_packer_add(&p->packer, join->level, join->level + (join->late ? 2 : 0), join->stride,
                                 &join->joined));
    }
    for (int i = 0; i < plan->prepared_count; i++) {
        ls_prepared *prepared = &plan->prepared[i];
        bool keeps = plan->options.keeps_prepared;
        LS_TRY(ls_packer_add(&p->packer, keeps ? 0 : prepared->level, keeps ? plan->levels : prepared->last,
                             prepared->group->kernel->prepare.bytes, &prepared->offset));
    }
    for (int i = 0; i < plan->whole_count; i++) {
        ls_step *step = &plan->whole_steps[i];
        if (ls_node_is(step->group->root, LS_TRAIT_UPDATES))
            for (int k = 0; k < 2; k++)
                LS_TRY(ls_packer_add(&p->packer, step->group->level, plan->levels,
                                     ls_plan_unit(plan, step->group->root), &step->slots[k]));
    }
    return ls_packer_pack(&p->packer, &plan->whole_bytes);
}

/* last == segment_count: live until the end. */
static void add_kept(ls_plan *plan, ls_kept kept, int first, int last)
{
    int from = plan->segments[first].level, to = last < plan->segment_count ? plan->segments[last].level : -1;
    kept.framed = from == to;
    kept.first = kept.framed ? first : from;
    kept.last = kept.framed ? last : to >= 0 ? to : plan->levels;
    plan->kept[plan->kept_count++] = kept;
}

/* A lane's own partial that is read separately: the original is soon joined with others. */
static ls_status list_lane_parts(placer *p)
{
    ls_plan *plan = p->plan;
    for (int g = 0; g < plan->group_count; g++) {
        ls_group *group = &plan->groups[g];
        if (p->lane_last[g] < 0)
            continue;
        if (group->kernel->finish || group->segment < 0)
            return ls_fail(LS_ERR_INTERNAL, "the lanes of %s have no value of their own", ls_tensor_op(group->root));
        group->lane_kept = plan->kept_count;
        add_kept(plan, (ls_kept){ .value = group->value, .unit = ls_plan_unit(plan, group->root), .by_lane = true },
                 p->kept_first[g], p->lane_last[g]);
    }
    return LS_OK;
}

/* Values that cross a join live by levels, because lanes may be several segments apart. Values
 * within a level live by segments, the lane's own time. */
static ls_status list_kept(placer *p)
{
    ls_plan *plan = p->plan;
    plan->kept = ls_plan_alloc(plan, 2 * (size_t)plan->group_count, sizeof(*plan->kept));
    if (!plan->kept)
        return LS_ERR_MEMORY;
    for (int g = 0; g < plan->group_count; g++) {
        ls_group *group = &plan->groups[g];
        if (!group->kept || group->alias || group->reduces || !group->per_sample || group->segment < 0)
            continue;
        size_t unit = ls_plan_unit(plan, group->root), bytes;
        if (!ls_size_mul(unit, (size_t)plan->batch, &bytes) || bytes > PTRDIFF_MAX / 4)
            return ls_fail(LS_ERR_OVERFLOW, "%lld samples of %zu bytes overflow", (long long)plan->batch, unit);
        plan->value_of[group->value] = (ls_operand){ .value = group->value,
                                                     .storage = LS_KEPT,
                                                     .offset = (size_t)plan->kept_count,
                                                     .unit = unit,
                                                     .per_sample = true };
        add_kept(plan, (ls_kept){ .value = group->value, .unit = unit }, p->kept_first[g], p->kept_last[g]);
    }
    return list_lane_parts(p);
}

/* Packs framed values for one lane, or the others for `samples` samples. */
static ls_status pack(const ls_plan *plan, bool framed, int64_t samples, const bool *here, size_t *offsets,
                      size_t *bytes)
{
    ls_packer packer = { .guard = plan->options.guards ? LS_ALIGN : 0 };
    ls_status status = LS_OK;
    for (int i = 0; i < plan->kept_count && status == LS_OK; i++) {
        const ls_kept *kept = &plan->kept[i];
        size_t bytes = framed ? ls_kept_bytes(kept, samples) : kept->unit * (size_t)samples;
        if (kept->framed == framed && (!here || here[i]))
            status = ls_packer_add(&packer, kept->first, kept->last, bytes, &offsets[i]);
    }
    if (status == LS_OK)
        status = ls_packer_pack(&packer, bytes);
    ls_packer_free(&packer);
    return status;
}

ls_status ls_plan_pack_kept(const ls_plan *plan, int64_t samples, const bool *here, size_t *offsets, size_t *bytes,
                            size_t *frame_bytes)
{
    LS_TRY(pack(plan, true, ls_plan_lane_samples(plan), here, offsets, frame_bytes));
    *frame_bytes = ls_size_align(*frame_bytes, LS_ALIGN);
    return pack(plan, false, samples, here, offsets, bytes);
}

/* A lane's partials in one segment are contiguous: its slot. */
static ls_status place_partials(ls_plan *plan)
{
    size_t used = 0, all;
    for (int i = 0; i < plan->join_count; i++) {
        ls_join *join = &plan->joins[i];
        size_t *slot = &plan->segments[join->group->segment].slot_bytes;
        join->partial = *slot;
        if (i == 0 || plan->joins[i - 1].level != join->level)
            used = 0;
        if (!ls_size_add(used, join->stride, &used) || !ls_size_mul(used, (size_t)plan->lanes, &all))
            return ls_fail(LS_ERR_OVERFLOW, "partials of %d lanes overflow", plan->lanes);
        *slot += join->stride;
        if (used > plan->slot_bytes)
            plan->slot_bytes = used;
    }
    return LS_OK;
}

/* ---- Operands ---- */

/* For steps outside segments, and kept values. */
static ls_operand location_of(const ls_plan *plan, int value)
{
    int source = ls_plan_source_value(plan, value);
    const ls_tensor *node = plan->nodes[value].node;
    ls_operand operand = plan->value_of[source];
    if (plan->nodes[source].group < 0)
        operand = (ls_operand){ .value = source, .storage = LS_EXTERNAL };
    operand.per_sample = node->per_sample;
    operand.unit = ls_plan_unit(plan, node);
    return operand;
}

static ls_status settle_step(ls_plan *plan, ls_step *step)
{
    ls_group *group = step->group;
    step->in = ls_plan_alloc(plan, (size_t)group->in_count, sizeof(*step->in));
    if (!step->in)
        return LS_ERR_MEMORY;
    for (int k = 0; k < group->in_count; k++) {
        step->in[k] = location_of(plan, group->in[k]);
        if (ls_plan_reads_lane(plan, group, k)) {
            step->in[k].storage = LS_KEPT;
            step->in[k].offset = (size_t)plan->groups[plan->nodes[group->in[k]].group].lane_kept;
        }
    }
    step->out = plan->value_of[group->value];
    return LS_OK;
}

static void use_prepared(const ls_plan *plan, ls_step *step)
{
    const ls_prepare *want = &step->group->kernel->prepare;
    if (want->bytes == 0)
        return;
    ls_operand *in = &step->in[want->input];
    in->storage = LS_WHOLE;
    in->offset = plan->prepared[step->group->prepared].offset;
}

/* A step that can work in place overwrites its first input if that was computed in this segment and
 * is not needed any more. */
static void overwrite_input(placer *p, ls_segment *segment, int i, int *last)
{
    const ls_plan *plan = p->plan;
    ls_step *step = &segment->steps[i];
    const ls_group *group = step->group;
    step->room = i;
    if (!group->kernel->in_place || group->spread || group->kept || group->reduces || group->in_count == 0)
        return;
    int from = ls_plan_source(plan, group->in[0]), made = from >= 0 ? p->step_of[from] - 1 : -1;
    if (made < 0 || plan->groups[from].kept || plan->groups[from].reduces || last[made] != i ||
        ls_plan_unit(plan, plan->groups[from].root) != ls_plan_unit(plan, group->root))
        return;
    for (int k = 1; k < group->in_count; k++) /* The same value twice: not in place. */
        if (ls_plan_source(plan, group->in[k]) == from)
            return;
    step->room = segment->steps[made].room;
    if (last[step->room] < last[i])
        last[step->room] = last[i];
}

/* Steps that another kind of device may fuse: the last must not overwrite what the first reads. */
#define AT_ONCE 3

static ls_status place_segment(placer *p, ls_segment *segment)
{
    ls_plan *plan = p->plan;
    int *last = ls_plan_alloc(plan, (size_t)segment->step_count, sizeof(*last));
    if (!last)
        return LS_ERR_MEMORY;
    for (int i = 0; i < segment->step_count; i++) {
        ls_step *step = &segment->steps[i];
        LS_TRY(settle_step(plan, step));
        use_prepared(plan, step);
        last[i] = i;
        for (int k = 0; k < step->group->in_count; k++) {
            int g = ls_plan_source(plan, step->group->in[k]);
            if (g >= 0 && p->step_of[g] > 0)
                last[p->step_of[g] - 1] = i;
        }
        p->step_of[step->group - plan->groups] = i + 1;
    }
    for (int i = 0; i < segment->step_count; i++)
        overwrite_input(p, segment, i, last);
    for (int i = 0; i < segment->step_count; i++) {
        ls_step *step = &segment->steps[i];
        ls_group *group = step->group;
        if (is_gather_batch(group)) {
            step->out.per_sample = true;
            step->out.unit = ls_plan_unit(plan, group->root->in[0]);
        } else if (group->reduces) {
            const ls_join *join = &plan->joins[group->join];
            step->out = (ls_operand){
                .value = group->value, .storage = LS_PARTIAL, .offset = join->partial, .unit = join->stride
            };
            /* There is no later micro-batch. */
            bool once = segment->micro * plan->lanes >= plan->batch;
            /* Stays from one micro-batch to the next. */
            if (!once && group->kernel->chains)
                LS_TRY(ls_packer_add(&p->packer, 0, segment->step_count - 1, join->stride, &step->chain));
        } else if (!group->kept) {
            size_t unit = ls_plan_unit(plan, group->root);
            step->out = (ls_operand){ .value = group->value, .storage = LS_MICRO, .unit = unit, .per_sample = true };
            int end = last[i] + (segment->kind == LS_CPU ? 0 : AT_ONCE - 1);
            end = end < segment->step_count ? end : segment->step_count - 1;
            if (step->room == i)
                LS_TRY(ls_packer_add(&p->packer, i, end, unit * (size_t)segment->micro, &step->out.offset));
        }
    }
    LS_TRY(ls_packer_pack(&p->packer, &segment->micro_bytes));
    if (segment->micro_bytes > plan->thread_bytes)
        plan->thread_bytes = segment->micro_bytes;
    for (int i = 0; i < segment->step_count; i++)
        if (segment->steps[i].room != i)
            segment->steps[i].out.offset = segment->steps[segment->steps[i].room].out.offset;
    for (int i = 0; i < segment->step_count; i++) { /* Inputs computed in this segment. */
        ls_step *step = &segment->steps[i];
        for (int k = 0; k < step->group->in_count; k++) {
            int g = ls_plan_source(plan, step->group->in[k]);
            if (g < 0 || p->step_of[g] == 0 || plan->groups[g].kept || plan->groups[g].reduces)
                continue;
            const ls_operand *made = &segment->steps[p->step_of[g] - 1].out;
            step->in[k].storage = LS_MICRO;
            step->in[k].offset = made->offset;
        }
    }
    for (int i = 0; i < segment->step_count; i++) {
        ls_step *step = &segment->steps[i];
        for (int k = 0; k < step->group->in_count; k++)
            if (step->in[k].storage == LS_EXTERNAL && step->in[k].per_sample)
                step->reads_input = true;
        p->step_of[step->group - plan->groups] = 0;
    }
    return LS_OK;
}

/* One micro-batch of every fed input, after the scratch. */
static ls_status place_staging(ls_plan *plan)
{
    int64_t micro = 0;
    plan->staging = ls_plan_alloc(plan, (size_t)plan->node_count, sizeof(*plan->staging));
    if (!plan->staging)
        return LS_ERR_MEMORY;
    for (int s = 0; s < plan->segment_count; s++)
        micro = plan->segments[s].micro > micro ? plan->segments[s].micro : micro;
    for (int i = 0; i < plan->node_count; i++) {
        const ls_tensor *node = plan->nodes[i].node;
        if (node->op != LS_OP_input || !node->per_sample)
            continue;
        plan->staging[i] = plan->staging_bytes;
        plan->staging_bytes += ls_size_align(ls_plan_unit(plan, node) * (size_t)micro, LS_ALIGN);
    }
    return LS_OK;
}

size_t ls_plan_thread_bytes(const ls_plan *plan)
{
    return ls_size_align(plan->thread_bytes + plan->scratch_bytes, LS_ALIGN) + plan->staging_bytes;
}

static ls_status settle_all(placer *p)
{
    ls_plan *plan = p->plan;
    for (int i = 0; i < plan->whole_count; i++) {
        LS_TRY(settle_step(plan, &plan->whole_steps[i]));
        use_prepared(plan, &plan->whole_steps[i]);
    }
    for (int i = 0; i < plan->update_count; i++)
        LS_TRY(settle_step(plan, &plan->updates[i]));
    for (int i = 0; i < plan->join_count; i++) {
        ls_join *join = &plan->joins[i];
        join->out = plan->value_of[join->group->value];
        if (!join->group->kernel->finish)
            join->joined = join->out.offset;
    }
    for (int s = 0; s < plan->segment_count; s++)
        LS_TRY(place_segment(p, &plan->segments[s]));
    /* Also for aliases and leaves: they may be fetched. */
    for (int i = 0; i < plan->node_count; i++)
        plan->value_of[i] = location_of(plan, i);
    return LS_OK;
}

ls_status ls_plan_memory(ls_plan *plan)
{
    placer p = { .plan = plan, .packer = { .guard = plan->options.guards ? LS_ALIGN : 0 } };
    size_t groups = (size_t)plan->group_count;
    plan->whole_last = ls_plan_alloc(plan, groups, sizeof(*plan->whole_last));
    p.kept_first = ls_plan_alloc(plan, groups, sizeof(*p.kept_first));
    p.kept_last = ls_plan_alloc(plan, groups, sizeof(*p.kept_last));
    p.lane_last = ls_plan_alloc(plan, groups, sizeof(*p.lane_last));
    p.step_of = ls_plan_alloc(plan, groups, sizeof(*p.step_of));
    if (!plan->whole_last || !p.kept_first || !p.kept_last || !p.lane_last || !p.step_of)
        return LS_ERR_MEMORY;
    find_lifetimes(&p);
    ls_status status = place_whole(&p);
    if (status == LS_OK)
        status = list_kept(&p);
    if (status == LS_OK)
        status = place_partials(plan);
    if (status == LS_OK)
        status = settle_all(&p);
    ls_packer_free(&p.packer);
    LS_TRY(status);
    LS_TRY(place_staging(plan));
    size_t *offsets = ls_plan_alloc(plan, (size_t)plan->kept_count, sizeof(*offsets));
    if (!offsets)
        return LS_ERR_MEMORY;
    return ls_plan_pack_kept(plan, plan->batch > 0 ? plan->batch : 0, NULL, offsets, &plan->kept_bytes,
                             &plan->frame_bytes);
}
