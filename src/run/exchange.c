/* Data that the workers of a cluster send each other within a run. Each worker joins the partials
 * of its range of lanes up to the maximal complete subtrees in it. If there is little data, every
 * worker receives all subtrees and does the joins itself; otherwise each receives and joins one
 * part and sends the result to all (slices.c). Joins follow the order of the tree, with the bits of
 * a single process. Workers also send their rows of gathered batches and fetched values.
 *
 * Joins that only updates read (gradients of weights) are late: their partials are posted after
 * their level and sent while lanes of the next level are computed. Their joined parts follow in the
 * same way, one level later.
 *
 * Lists of pieces depend only on batch, lanes and workers; pieces between two other workers are
 * left out. */
#include "run/exchange_private.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/size.h"
#include "run/host_joins.h"
#include "run/partials.h"

static int worker_of(const ls_plan *plan, int lane)
{
    int worker = 0;
    while (ls_plan_worker_first(plan, worker + 1) <= lane)
        worker++;
    return worker;
}

/* End of the largest subtree that begins with `lane` and stays within `end`. */
static int subtree_end(const ls_plan *plan, int lane, int end)
{
    int size = 1;
    while (lane % (size * 2) == 0) {
        int next = lane + size * 2 < plan->lanes ? lane + size * 2 : plan->lanes;
        if (next > end || (next == plan->lanes && lane + size >= plan->lanes))
            break;
        size *= 2;
    }
    return lane + size < plan->lanes ? lane + size : plan->lanes;
}

static int64_t samples_of(const ls_plan *plan, int first, int end)
{
    return ls_lane_first(plan->batch, plan->lanes, end) - ls_lane_first(plan->batch, plan->lanes, first);
}

/* ---- Creation ---- */

static void list_subtrees(ls_exchange *x, const ls_plan *plan)
{
    for (int w = 0; w < plan->options.workers; w++) {
        int end = ls_plan_worker_first(plan, w + 1);
        for (int a = ls_plan_worker_first(plan, w), b; a < end; a = b) {
            b = subtree_end(plan, a, end);
            if (samples_of(plan, a, b) > 0)
                x->subtrees[x->subtree_count++] = (ls_subtree){ w, a, b };
        }
    }
}

/* Whether a join's data is received at once; otherwise in slices. */
static bool comes_whole(const ls_join *join)
{
    return !join->shared || join->late;
}

/* Assigns memory to every received subtree or part; with memory NULL it only counts. An address is
 * that of the join's first element, even if that is not received. */
static size_t place_received(ls_exchange *x, const ls_plan *plan)
{
    size_t used = 0;
    for (int t = 0; t < x->subtree_count; t++)
        for (int i = 0; x->subtrees[t].worker != plan->options.worker && i < plan->join_count; i++) {
            const ls_join *join = &plan->joins[i];
            size_t size = ls_dtype_bytes(join->dtype);
            int64_t from, to;
            ls_plan_owned(plan, join, plan->options.worker, &from, &to);
            if (to <= from || !comes_whole(join))
                continue;
            if (x->memory)
                x->received[ls_exchange_index(plan, i, x->subtrees[t].first)] =
                    (char *)((uintptr_t)(x->memory + used) - (size_t)from * size);
            used += ls_size_align((size_t)(to - from) * size, LS_ALIGN);
        }
    return used;
}

/* A slice of a worker's part contains at most two ranges of each join. */
static size_t most_pieces(const ls_exchange *x, const ls_plan *plan)
{
    size_t workers = (size_t)plan->options.workers, ranges = (size_t)plan->join_count * 2 + 1, own = 0;
    for (int t = 0; t < x->subtree_count; t++)
        own += x->subtrees[t].worker == plan->options.worker;
    return ranges * (size_t)x->subtree_count + workers * ranges * (own + 1) + workers * (size_t)plan->group_count +
           (size_t)plan->lanes * (size_t)plan->fetch_count + workers + 2;
}

static bool make_list(const ls_exchange *x, const ls_plan *plan, ls_piece_list *list)
{
    list->pieces = calloc(most_pieces(x, plan), sizeof(*list->pieces));
    list->ranges = calloc((size_t)plan->options.workers * (size_t)plan->join_count + 1, 1);
    return list->pieces && list->ranges;
}

static ls_exchange *begin_making(const ls_plan *plan, ls_peers *peers)
{
    ls_exchange *x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->peers = peers;
    x->subtrees = calloc((size_t)plan->lanes + 1, sizeof(*x->subtrees));
    if (!x->subtrees) {
        free(x);
        return NULL;
    }
    list_subtrees(x, plan);
    return x;
}

static ls_status no_memory(void)
{
    return ls_fail(LS_ERR_MEMORY, "no memory for the data that workers exchange");
}

ls_status ls_exchange_bytes(const ls_plan *plan, ls_peers *peers, size_t *out)
{
    *out = 0;
    if (plan->options.workers == 0 || plan->segment_count == 0)
        return LS_OK;
    ls_exchange *x = begin_making(plan, peers);
    if (!x)
        return no_memory();
    *out = place_received(x, plan) + ls_slices_bytes(x, plan);
    ls_exchange_destroy(x);
    return LS_OK;
}

static ls_status make_memory(ls_exchange *x, const ls_plan *plan)
{
    size_t received = place_received(x, plan), slices = ls_slices_bytes(x, plan);
    x->received = calloc((size_t)plan->join_count * (size_t)plan->lanes + 1, sizeof(*x->received));
    if (!make_list(x, plan, &x->now) || !make_list(x, plan, &x->posted) || !x->received)
        return no_memory();
    if (received + slices > 0)
        LS_TRY(ls_memory_take(x->device, ls_block_bytes(received + slices), "data of other workers", &x->block));
    if (received > 0)
        x->memory = (char *)x->block->region + x->block->offset;
    place_received(x, plan);
    return slices > 0 ? ls_slices_create(x, plan, (char *)x->block->region + x->block->offset + received) : LS_OK;
}

ls_status ls_exchange_create(const ls_plan *plan, ls_peers *peers, ls_memory *device, ls_exchange **out)
{
    ls_exchange *x = begin_making(plan, peers);
    if (!x)
        return no_memory();
    x->device = device;
    ls_status status = make_memory(x, plan);
    if (status == LS_OK)
        *out = x;
    else
        ls_exchange_destroy(x);
    return status;
}

void ls_exchange_destroy(ls_exchange *x)
{
    if (!x)
        return;
    ls_slices_destroy(x);
    free(x->subtrees);
    free(x->now.pieces);
    free(x->now.ranges);
    free(x->posted.pieces);
    free(x->posted.ranges);
    free(x->received);
    if (x->block)
        ls_memory_give(x->device, x->block);
    free(x);
}

char *const *ls_exchange_received(const ls_exchange *x)
{
    return x->received;
}

/* ---- In a run ---- */

void ls_exchange_add(const ls_executor *e, ls_piece_list *list, int from, int to, void *data, size_t bytes)
{
    const ls_peers *peers = e->exchange->peers;
    int own = e->plan->options.worker;
    if (bytes == 0 || (from != own && to != own && to != LS_ALL_WORKERS) || from == to)
        return;
    list->pieces[list->count++] = (ls_piece){
        .from = peers->members[from], .to = to == LS_ALL_WORKERS ? to : peers->members[to], .data = data, .bytes = bytes
    };
}

/* Mixes in a value that must be the same on all workers. */
static uint64_t mix(uint64_t tag, uint64_t value)
{
    tag = (tag ^ value) * 0x9e3779b97f4a7c15;
    return tag ^ tag >> 29;
}

/* Identifies the run, and the point in it. */
static uint64_t tag_of(const ls_executor *e, int level, int point)
{
    const ls_plan *plan = e->plan;
    uint64_t tag = mix(mix(mix(mix(1, e->seed), e->run), (uint64_t)plan->batch), (uint64_t)plan->lanes);
    return mix(mix(mix(tag, (uint64_t)plan->node_count), (uint64_t)level), (uint64_t)point);
}

static ls_status send(ls_executor *e, int level, ls_exchange_point point, const char *what)
{
    ls_exchange *x = e->exchange;
    char text[96];
    snprintf(text, sizeof(text), "%s of a run with %lld samples", what, (long long)e->plan->batch);
    return x->peers->exchange(x->peers, tag_of(e, level, point), text, x->now.pieces, x->now.count);
}

ls_status ls_exchange_post_list(ls_executor *e, int level, int point, const char *what)
{
    ls_exchange *x = e->exchange;
    char text[96];
    snprintf(text, sizeof(text), "%s of a run with %lld samples", what, (long long)e->plan->batch);
    return x->peers->post(x->peers, tag_of(e, level, point), text, x->posted.pieces, x->posted.count);
}

/* Each into the slot of its first lane that has one. */
static void join_own(ls_executor *e, int segment, int thread)
{
    const ls_exchange *x = e->exchange;
    for (int t = 0; t < x->subtree_count; t++) {
        const ls_subtree *own = &x->subtrees[t];
        if (own->worker == e->plan->options.worker && own->end - own->first > 1)
            ls_host_join_block(e, segment, own->first, own->end - own->first, thread);
    }
}

char *ls_exchange_subtree_at(const ls_executor *e, int join, const ls_subtree *subtree)
{
    const ls_join *j = &e->plan->joins[join];
    for (int lane = subtree->first; lane < subtree->end; lane++) {
        char *slot = ls_partials_of(e, j->group->segment, lane);
        if (slot)
            return slot + j->partial;
    }
    return e->exchange->received[ls_exchange_index(e->plan, join, subtree->first)];
}

/* The batch is in host memory in the order of samples. */
static void add_rows(const ls_executor *e, const ls_step *step, ls_piece_list *list)
{
    const ls_plan *plan = e->plan;
    for (int w = 0; w < plan->options.workers; w++) {
        int first = ls_plan_worker_first(plan, w), end = ls_plan_worker_first(plan, w + 1);
        char *at =
            e->whole + step->out.offset + step->out.unit * (size_t)ls_lane_first(plan->batch, plan->lanes, first);
        ls_exchange_add(e, list, w, LS_ALL_WORKERS, at, step->out.unit * (size_t)samples_of(plan, first, end));
    }
}

/* Sends to all workers, or to each worker the part it joins. */
static void add_subtree(const ls_executor *e, int join, const ls_subtree *subtree, ls_piece_list *list)
{
    const ls_plan *plan = e->plan;
    const ls_join *j = &plan->joins[join];
    size_t size = ls_dtype_bytes(j->dtype);
    int64_t from, to;
    char *data = ls_exchange_subtree_at(e, join, subtree);
    if (!j->shared) {
        ls_exchange_add(e, list, subtree->worker, LS_ALL_WORKERS, data, j->bytes);
        return;
    }
    for (int w = 0; w < plan->options.workers; w++) {
        ls_plan_owned(plan, j, w, &from, &to);
        if (to > from && (w == plan->options.worker || subtree->worker == plan->options.worker))
            ls_exchange_add(e, list, subtree->worker, w, data + (size_t)from * size, (size_t)(to - from) * size);
    }
}

/* Those that are received whole: of late joins, or of the others. */
static void add_subtrees(const ls_executor *e, int level, bool late, ls_piece_list *list)
{
    const ls_plan *plan = e->plan;
    for (int t = 0; t < e->exchange->subtree_count; t++)
        for (int i = 0; i < plan->join_count; i++)
            if (plan->joins[i].level == level && plan->joins[i].late == late && comes_whole(&plan->joins[i]))
                add_subtree(e, i, &e->exchange->subtrees[t], list);
}

ls_status ls_exchange_level(ls_executor *e, const ls_phase *phase, int thread)
{
    const ls_plan *plan = e->plan;
    ls_piece_list *list = &e->exchange->now;
    for (int s = phase->first; s < phase->first + phase->count; s++)
        if (plan->segments[s].slot_bytes > 0)
            join_own(e, s, thread);
    list->count = 0;
    add_subtrees(e, phase->level, false, list);
    for (int s = phase->first; s < phase->first + phase->count; s++)
        for (int i = 0; i < plan->segments[s].step_count; i++)
            if (ls_node_is(plan->segments[s].steps[i].group->root, LS_TRAIT_GATHERS))
                add_rows(e, &plan->segments[s].steps[i], list);
    return list->count > 0 ? send(e, phase->level, LS_AT_PARTS, "the joins")
                           /* All workers agree whether the list is empty. */
                           : LS_OK;
}

void ls_exchange_add_ranges(const ls_executor *e, int first, int joins, ls_piece_list *list)
{
    for (int i = 0; i < joins; i++)
        list->ranges[e->plan->options.worker * joins + i] = (char)atomic_load(&e->ranges[first + i]);
    for (int w = 0; w < e->plan->options.workers; w++)
        ls_exchange_add(e, list, w, LS_ALL_WORKERS, list->ranges + w * joins, (size_t)joins);
}

void ls_exchange_take_ranges(ls_executor *e, int first, int joins, const ls_piece_list *list)
{
    for (int i = 0; i < joins * e->plan->options.workers; i++)
        ls_executor_note_range(e, first + i % joins, (ls_range)list->ranges[i]);
}

static void add_joined(const ls_executor *e, int first, int joins, ls_piece_list *list)
{
    const ls_plan *plan = e->plan;
    for (int w = 0; w < plan->options.workers; w++)
        for (int i = first; i < first + joins; i++) {
            size_t size = ls_dtype_bytes(plan->joins[i].dtype);
            int64_t from, to;
            ls_plan_owned(plan, &plan->joins[i], w, &from, &to);
            ls_exchange_add(e, list, w, LS_ALL_WORKERS, e->whole + plan->joins[i].joined + (size_t)from * size,
                            (size_t)(to - from) * size);
        }
    ls_exchange_add_ranges(e, first, joins, list);
}

/* The late joins whose results are sent after `level`: those of the level before. */
static int late_spread(const ls_plan *plan, int level, int *first)
{
    int count = ls_plan_late(plan, level - 1, first);
    return count > 0 && plan->joins[*first].shared ? count : 0;
}

ls_status ls_exchange_post(ls_executor *e, int level)
{
    ls_exchange *x = e->exchange;
    int first, joins = late_spread(e->plan, level, &first);
    x->posted.count = 0;
    add_subtrees(e, level, true, &x->posted);
    add_joined(e, first, joins, &x->posted);
    LS_TRY(ls_exchange_post_list(e, level, LS_AT_LATE, "late joins"));
    atomic_store(&x->moves, true);
    return LS_OK;
}

ls_status ls_exchange_settle(ls_executor *e, int level)
{
    ls_exchange *x = e->exchange;
    int first, joins = late_spread(e->plan, level - 1, &first);
    atomic_store(&x->moves, false);
    LS_TRY(x->peers->settle(x->peers));
    ls_exchange_take_ranges(e, first, joins, &x->posted);
    return LS_OK;
}

void ls_exchange_move_on(ls_exchange *x)
{
    if (x && atomic_load_explicit(&x->moves, memory_order_relaxed))
        x->peers->move_on(x->peers);
}

ls_status ls_exchange_fetches(ls_executor *e)
{
    const ls_plan *plan = e->plan;
    ls_piece_list *list = &e->exchange->now;
    list->count = 0;
    for (int i = 0; i < plan->fetch_count; i++) {
        const ls_operand *o = &plan->value_of[plan->fetches[i]];
        for (int lane = 0; o->storage == LS_KEPT && lane < plan->lanes; lane++) {
            int64_t first = ls_lane_first(plan->batch, plan->lanes, lane);
            if (samples_of(plan, lane, lane + 1) > 0)
                ls_exchange_add(e, list, worker_of(plan, lane), LS_ALL_WORKERS,
                                ls_executor_locate(e, o, 0, lane, first),
                                o->unit * (size_t)samples_of(plan, lane, lane + 1));
        }
    }
    return list->count > 0 ? send(e, plan->levels, LS_AT_FETCHES, "the fetched samples") : LS_OK;
}

ls_status ls_exchange_audit(ls_executor *e, uint64_t found[2][2])
{
    ls_piece_list *list = &e->exchange->now;
    list->count = 0;
    ls_exchange_add(e, list, e->owner, LS_ALL_WORKERS, found[0], sizeof(found[0]));
    ls_exchange_add(e, list, e->auditor, LS_ALL_WORKERS, found[1], sizeof(found[1]));
    return send(e, e->plan->levels, LS_AT_AUDIT, "the audit");
}

/* Hashes the joins still in memory (gradients and losses), and the state. The memory of other joins
 * may hold values that only some kinds of devices have in host memory. */
static void hash_run(const ls_executor *e, uint64_t out[2])
{
    const ls_plan *plan = e->plan;
    ls_hash hash;
    ls_hash_begin(&hash);
    for (int i = 0; i < plan->join_count; i++) {
        const ls_join *join = &plan->joins[i];
        if (plan->whole_last[join->group - plan->groups] >= plan->levels)
            ls_hash_add(&hash, e->whole + join->out.offset, join->out.unit);
    }
    for (int i = 0; i < plan->update_count; i++) {
        const ls_attrs *attr = &plan->updates[i].group->root->attr;
        const ls_variable *state[] = { attr->apply.variable, attr->apply.slot[0], attr->apply.slot[1] };
        for (size_t k = 0; k < sizeof(state) / sizeof(*state); k++)
            if (state[k])
                ls_hash_add(&hash, state[k]->data, state[k]->bytes);
    }
    ls_hash_end(&hash, out);
}

ls_status ls_exchange_commit(ls_executor *e)
{
    ls_peers *peers = e->exchange->peers;
    uint64_t hash[2];
    char text[96];
    hash_run(e, hash);
    snprintf(text, sizeof(text), "a run with %lld samples", (long long)e->plan->batch);
    LS_TRY(peers->commit(peers, hash, text));
    e->committed = true;
    return LS_OK;
}
