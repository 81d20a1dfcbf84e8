/* Units that CPU threads run. A lane's micro-batches go through a segment in order; a reduction
 * continues from one to the next. Nothing is allocated during a run. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "run/audit.h"
#include "run/exchange.h"
#include "run/host_joins.h"

/* Scratch memory, after the micro-batch values; NULL: the plan needs neither. */
static void *scratch_of(const ls_executor *e, int thread)
{
    return e->arena[thread] ? e->arena[thread] + e->plan->thread_bytes : NULL;
}

static ls_kernel_call call_for(ls_executor *e, const ls_step *step, int thread, int lane, int64_t first)
{
    for (int k = 0; k < step->group->in_count; k++)
        e->inputs[thread][k] = ls_executor_locate(e, &step->in[k], thread, lane, first);
    return (ls_kernel_call){ .in = e->inputs[thread],
                             .samples = 1,
                             .first = first,
                             .batch = e->plan->batch,
                             .lane = ls_lane_first(e->plan->batch, e->plan->lanes, lane + 1) -
                                     ls_lane_first(e->plan->batch, e->plan->lanes, lane),
                             .ends_lane = true,
                             .seed = e->seed,
                             .run = e->run,
                             .thread = thread,
                             .scratch = scratch_of(e, thread) };
}

static ls_status explain(ls_status status, const ls_group *group)
{
    char label[LS_NODE_TEXT];
    return ls_fail_within(status, "%s (op %s)", ls_node_label(group->root, label), ls_tensor_op(group->root));
}

/* ---- Profile ---- */

/* Runs a kernel. part: samples of the call, or the part of a whole value. */
static ls_status run_kernel(ls_executor *e, const ls_group *group, const ls_kernel_call *call, double part)
{
    if (!e->group_times)
        return group->kernel->run(group->kernel, call);
    double start = ls_clock_now();
    LS_TRY(group->kernel->run(group->kernel, call));
    ls_op_time *t = &e->group_times[call->thread * e->plan->group_count + (int)(group - e->plan->groups)];
    t->seconds += ls_clock_now() - start;
    t->calls++;
    for (int i = 0; i < group->node_count; i++)
        t->flops += part * ls_node_flops(group->nodes[i]);
    return LS_OK;
}

/* The part of a whole value of `bytes` bytes that a call computes. */
static double part_of(const ls_group *group, const ls_kernel_call *call, size_t bytes)
{
    double all = (double)(bytes / ls_dtype_bytes(group->root->dtype));
    return call->to > 0 && all > 0 ? (double)(call->to - call->from) / all : 1;
}

/* ---- Guards: bytes after every value that reveal a kernel that writes too far ---- */

#define GUARD_BYTE 0x5a

static ls_status run_guarded(ls_executor *e, ls_group *group, const ls_kernel_call *call, size_t bytes, double part)
{
    if (!e->plan->options.guards)
        return run_kernel(e, group, call, part);
    unsigned char *guard = (unsigned char *)call->out + bytes;
    memset(guard, GUARD_BYTE, LS_ALIGN);
    LS_TRY(run_kernel(e, group, call, part));
    for (int i = 0; i < LS_ALIGN; i++)
        if (guard[i] != GUARD_BYTE)
            return ls_fail(LS_ERR_INTERNAL, "the kernel %s wrote past the end of its output", group->kernel->name);
    return LS_OK;
}

/* ---- Units ---- */

static ls_status run_whole_step(ls_executor *e, const ls_step *step, int thread, int64_t from, int64_t to)
{
    ls_kernel_call call = call_for(e, step, thread, 0, 0);
    void *slots[2] = { e->whole + step->slots[0], e->whole + step->slots[1] };
    call.out = ls_executor_locate(e, &step->out, thread, 0, 0);
    call.slots = slots;
    call.from = from;
    call.to = to;
    if (to > 0) /* The next bytes belong to another tile. */
        return explain(run_kernel(e, step->group, &call, part_of(step->group, &call, step->out.unit)), step->group);
    return explain(run_guarded(e, step->group, &call, step->out.unit, 1), step->group);
}

static ls_status run_update(ls_executor *e, const ls_step *step, int thread, int64_t from, int64_t to)
{
    const ls_attrs *attr = &step->group->root->attr;
    ls_kernel_call call = call_for(e, step, thread, 0, 0);
    void *slots[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++)
        if (attr->apply.slot[i])
            slots[i] = attr->apply.slot[i]->data;
    bool large = false;
    call.out = attr->apply.variable->data;
    call.slots = slots;
    call.from = from;
    call.to = to;
    call.large = &large;
    double part = part_of(step->group, &call, attr->apply.variable->bytes);
    LS_TRY(explain(run_kernel(e, step->group, &call, part), step->group));
    if (large)
        atomic_store_explicit(&e->last_updates[step - e->plan->updates].large, true, memory_order_relaxed);
    return LS_OK;
}

/* Reductions continue the partial of the previous samples. */
static ls_status run_lane_step(ls_executor *e, const ls_step *step, int thread, int lane, int64_t first,
                               int64_t samples)
{
    ls_group *group = step->group;
    ls_kernel_call call = call_for(e, step, thread, lane, first);
    call.samples = samples;
    call.out = ls_executor_locate(e, &step->out, thread, lane, first);
    call.from_lane = first - ls_lane_first(e->plan->batch, e->plan->lanes, lane);
    call.ends_lane = call.from_lane + samples == call.lane;
    call.chain = e->arena[thread] ? e->arena[thread] + step->chain : NULL;
    bool last = first + samples == e->plan->batch || step->out.storage == LS_MICRO;
    size_t bytes = step->out.per_sample ? step->out.unit * (size_t)samples : e->plan->joins[group->join].bytes;
    ls_status status = last || !step->out.per_sample
                           /* Otherwise a neighbour's samples follow. */
                           ? run_guarded(e, group, &call, bytes, (double)samples)
                           : run_kernel(e, group, &call, (double)samples);
    return status == LS_OK ? LS_OK : explain(status, group);
}

static void pick_inputs(ls_executor *e, const ls_step *step, int thread, int64_t first, int64_t samples)
{
    for (int k = 0; k < step->group->in_count; k++) {
        const ls_operand *in = &step->in[k];
        if (in->storage == LS_EXTERNAL && in->per_sample && e->external[in->value].rows)
            ls_executor_pick_rows(e, in, thread, first, samples);
    }
}

/* Copies the lane's own partial for its readers: the original will be joined with others. */
static void keep_lane_part(ls_executor *e, const ls_step *step, int thread, int lane)
{
    const ls_group *group = step->group;
    if (group->lane_kept >= 0)
        memcpy(ls_executor_kept(e, (size_t)group->lane_kept, lane), ls_executor_locate(e, &step->out, thread, lane, 0),
               e->plan->kept[group->lane_kept].unit);
}

static ls_status compute_task(ls_executor *e, const ls_segment *segment, int thread, int lane)
{
    int64_t first = ls_lane_first(e->plan->batch, e->plan->lanes, lane);
    int64_t end = ls_lane_first(e->plan->batch, e->plan->lanes, lane + 1);
    for (int64_t at = first; at < end; at += segment->micro) {
        int64_t samples = end - at < segment->micro ? end - at : segment->micro;
        for (int i = 0; i < segment->step_count; i++) {
            if (segment->steps[i].reads_input)
                pick_inputs(e, &segment->steps[i], thread, at, samples);
            LS_TRY(run_lane_step(e, &segment->steps[i], thread, lane, at, samples));
        }
        ls_exchange_move_on(e->exchange);
    }
    for (int i = 0; first < end && i < segment->step_count; i++)
        keep_lane_part(e, &segment->steps[i], thread, lane);
    return LS_OK;
}

static ls_status run_finish(ls_executor *e, const ls_join *join, int thread)
{
    ls_kernel *kernel = join->group->kernel;
    if (!kernel->finish)
        return LS_OK;
    return explain(
        kernel->finish(kernel, e->whole + join->joined, e->whole + join->out.offset, thread, scratch_of(e, thread)),
        join->group);
}

static ls_status run_prepare(ls_executor *e, const ls_prepared *prepared, int thread)
{
    ls_kernel *kernel = prepared->group->kernel;
    const void *from = ls_executor_locate(e, &e->plan->value_of[prepared->value], 0, 0, 0);
    return explain(kernel->prepare.run(kernel, from, e->whole + prepared->offset, thread, scratch_of(e, thread)),
                   prepared->group);
}

/* ---- Checks for finite values ---- */

static ls_range range_of(const ls_executor *e, ls_dtype dtype, const char *x, int64_t from, int64_t to)
{
    const ls_kernel_source *host = &e->plan->source;
    return host->range(host->backend, dtype, x + (size_t)from * ls_dtype_bytes(dtype), (size_t)(to - from));
}

ls_status ls_executor_not_finite(const ls_step *update)
{
    char label[LS_NODE_TEXT];
    return ls_fail(LS_ERR_NOT_FINITE, "the gradient of %s is not finite: no variable was changed",
                   ls_node_label(update->group->root->attr.apply.variable->node, label));
}

ls_status ls_executor_overflows(const ls_variable *variable)
{
    char label[LS_NODE_TEXT];
    return ls_fail(LS_ERR_NOT_FINITE,
                   "the step would leave %s with values that are not finite: no variable was changed",
                   ls_node_label(variable->node, label));
}

/* The join has already checked a gradient that comes from it unchanged. */
static ls_range gradient_range(const ls_executor *e, const ls_step *step, int64_t from, int64_t to)
{
    int join = ls_plan_join_of(e->plan, step);
    if (join >= 0)
        return (ls_range)atomic_load_explicit(&e->ranges[join], memory_order_relaxed);
    return range_of(e, step->group->root->dtype, ls_executor_locate(e, &step->in[0], 0, 0, 0), from, to);
}

/* Whether the last run of this update wrote the state, and only safe numbers. */
static bool has_safe_state(const ls_executor *e, const ls_step *step)
{
    ls_variable *written[LS_MAX_WRITES];
    const uint64_t *versions = e->last_updates[step - e->plan->updates].versions;
    for (int k = ls_node_writes(step->group->root, written); k-- > 0;)
        if (versions[k] == 0 || versions[k] != written[k]->version)
            return false;
    return true;
}

/* Checks an in-place update before anything is written. The CPU computes the new values on trial,
 * unless the numbers are too small to overflow. Other devices write the new state beside the old
 * one and then check it. */
static ls_status run_check(ls_executor *e, const ls_step *step, int thread, int64_t from, int64_t to)
{
    const ls_kernel_source *host = &e->plan->source;
    const ls_tensor *node = step->group->root;
    ls_range range = gradient_range(e, step, from, to);
    if (range == LS_RANGE_INFINITE)
        return ls_executor_not_finite(step);
    if (step->group->kind != LS_CPU)
        return LS_OK;
    ls_kernel_call call = call_for(e, step, thread, 0, 0);
    bool safe = has_safe_state(e, step);
    if (ls_apply_is_left_out(node, call.in)) {
        /* The state and its range stay as they are. */
        if (!safe)
            atomic_store_explicit(&e->last_updates[step - e->plan->updates].large, true, memory_order_relaxed);
        return LS_OK;
    }
    if (range == LS_RANGE_SAFE && safe && host->update_is_safe(host->backend, node, call.in))
        return LS_OK;
    ls_variable *written[LS_MAX_WRITES];
    ls_node_writes(node, written);
    int broken = host->try_update(host->backend, node, call.in, from, to);
    return broken < 0 ? LS_OK : ls_executor_overflows(written[broken]);
}

/* An update whose value is used: its variable gets the new values later. */
static ls_status run_update_apart(ls_executor *e, const ls_step *step, int thread)
{
    const ls_tensor *node = step->group->root;
    int64_t count = (int64_t)(step->in[0].unit / ls_dtype_bytes(node->dtype));
    ls_variable *written[LS_MAX_WRITES];
    if (gradient_range(e, step, 0, count) == LS_RANGE_INFINITE)
        return ls_executor_not_finite(step);
    LS_TRY(run_whole_step(e, step, thread, 0, 0));
    for (int k = 0, writes = ls_node_writes(node, written); k < writes; k++) {
        const char *value = k == 0 ? ls_executor_locate(e, &step->out, thread, 0, 0) : e->whole + step->slots[k - 1];
        if (range_of(e, node->dtype, value, 0, count) == LS_RANGE_INFINITE)
            return ls_executor_overflows(written[k]);
    }
    return LS_OK;
}

/* Checks a loss, or a value to assign. */
static ls_status run_guard(ls_executor *e, int node)
{
    const ls_operand *o = &e->plan->value_of[node];
    const ls_tensor *tensor = e->plan->nodes[node].node;
    const char *value = ls_executor_locate(e, o, 0, 0, 0);
    int64_t count = (int64_t)(o->unit / ls_dtype_bytes(tensor->dtype));
    char label[LS_NODE_TEXT];
    /* Integers are always finite. */
    bool real = tensor->dtype == LS_F32 || tensor->dtype == LS_F64;
    if (!real || range_of(e, tensor->dtype, value, 0, count) != LS_RANGE_INFINITE)
        return LS_OK;
    if (ls_node_is(tensor, LS_TRAIT_WRITES))
        return ls_fail(LS_ERR_NOT_FINITE, "the new value of %s is not finite: no variable was changed",
                       ls_node_label(tensor->attr.variable.variable->node, label));
    return ls_fail(LS_ERR_NOT_FINITE, "the loss (%s) is not finite: no variable was changed",
                   ls_node_label(tensor, label));
}

ls_status ls_host_run(ls_executor *e, const ls_phase *phase, const ls_unit *u, int thread)
{
    const ls_plan *plan = e->plan;
    switch (phase->kind) {
    case LS_PHASE_WHOLE:
        for (int i = u->index; i < u->index + u->count; i++) {
            const ls_step *step = &plan->whole_steps[i];
            bool updates = ls_node_is(step->group->root, LS_TRAIT_UPDATES);
            LS_TRY(updates ? run_update_apart(e, step, thread) : run_whole_step(e, step, thread, 0, 0));
        }
        return LS_OK;
    case LS_PHASE_TILES:
        return run_whole_step(e, &plan->whole_steps[u->index], thread, u->from, u->to);
    case LS_PHASE_PREPARE:
        return run_prepare(e, &plan->prepared[u->index], thread);
    case LS_PHASE_LANES:
        for (int i = u->index; i < u->index + u->count; i++) {
            double start = e->timeline ? ls_clock_now() : 0;
            LS_TRY(compute_task(e, &plan->segments[i], thread, u->lane));
            if (e->timeline)
                ls_timeline_task(e, thread, i, u->lane, start);
        }
        return LS_OK;
    case LS_PHASE_PAIR:
        ls_host_join_block(e, u->index, u->lane, u->count, thread);
        return LS_OK;
    case LS_PHASE_EXCHANGE:
        return ls_exchange_level(e, phase, thread);
    case LS_PHASE_REDUCE:
        return ls_exchange_reduce(e, phase, thread);
    case LS_PHASE_SETTLE:
        return ls_exchange_settle(e, phase->level);
    case LS_PHASE_POST:
        return ls_exchange_post(e, phase->level);
    case LS_PHASE_COLLECT:
        return ls_exchange_fetches(e);
    case LS_PHASE_COMMIT:
        LS_TRY(ls_audit_compare(e));
        return ls_exchange_commit(e);
    case LS_PHASE_JOIN:
        return ls_host_join(e, u->index, thread, u->from, u->to);
    case LS_PHASE_FINISH:
        return run_finish(e, &plan->joins[u->index], thread);
    case LS_PHASE_GUARD:
        return run_guard(e, plan->guards[u->index]);
    case LS_PHASE_CHECK:
        return run_check(e, &plan->updates[u->index], thread, u->from, u->to);
    case LS_PHASE_UPDATE:
        return run_update(e, &plan->updates[u->index], thread, u->from, u->to);
    case LS_PHASE_HOME:
    case LS_PHASE_GATHER:
    case LS_PHASE_SHARE:
    case LS_PHASE_KINDS:
        break;
    }
    return LS_OK;
}
