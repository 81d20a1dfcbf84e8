/* What workers of a cluster give each other within a run. Each runs its own range of lanes; then it joins what it has
 * to the maximal complete subtrees of the tree. For little data every worker gets the subtrees of all others and does
 * the joins of the level for itself; for much, each gets and joins a part, and sends that to all. In both cases joins
 * are done in the order of the tree, with the bits of one process that had all lanes. Rows of gathered batches and of
 * fetched per-sample values go from each worker to all.
 *
 * What only updates look at, weights' gradients, is late: its parts are posted behind their level, and go while lanes
 * of the next are computed, by whoever computes them; what is joined of them likewise, a level later.
 *
 * Lists of pieces are functions of batch, lanes and workers; those between two others are left out. */
#include "run/exchange.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/size.h"
#include "run/audit.h"
#include "run/partials.h"
#include "run/peers.h"

typedef struct piece_list {
    ls_piece *pieces; /* room for the longest */
    size_t count;
    char *broken; /* by worker and join: a result of it is not finite */
} piece_list;

struct ls_exchange {
    ls_peers *peers;
    piece_list now, posted;
    atomic_bool moves; /* something was posted, and is not settled */
    char **received;   /* by join and lane: where the subtree that begins there comes to; NULL: none does */
    char *memory;      /* that they are in */
};

/* The worker that has a lane. */
static int worker_of(const ls_plan *plan, int lane)
{
    int worker = 0;
    while (ls_plan_worker_first(plan, worker + 1) <= lane)
        worker++;
    return worker;
}

/* The first lane behind the largest subtree that begins with `lane` and does not reach beyond `end`. */
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

/* ---- Making ---- */

static size_t index_of(const ls_plan *plan, int join, int lane)
{
    return (size_t)join * (size_t)plan->lanes + (size_t)lane;
}

/* Room for every subtree of others, or the part of it that is joined here, one behind the other; with memory NULL it is
 * only counted. An address is that of the join's first element, whether that has room or not. */
static size_t place_received(ls_exchange *x, const ls_plan *plan)
{
    size_t used = 0;
    for (int w = 0; w < plan->options.workers; w++) {
        int end = ls_plan_worker_first(plan, w + 1);
        for (int a = ls_plan_worker_first(plan, w), b; w != plan->options.worker && a < end; a = b) {
            b = subtree_end(plan, a, end);
            for (int i = 0; samples_of(plan, a, b) > 0 && i < plan->join_count; i++) {
                const ls_join *join = &plan->joins[i];
                size_t size = ls_dtype_bytes(join->dtype);
                int64_t from, to;
                ls_plan_owned(plan, join, plan->options.worker, &from, &to);
                if (x->memory && to > from)
                    x->received[index_of(plan, i, a)] = (char *)((uintptr_t)(x->memory + used) - (size_t)from * size);
                used += ls_size_align((size_t)(to - from) * size, LS_ALIGN);
            }
        }
    }
    return used;
}

static size_t most_pieces(const ls_plan *plan)
{
    size_t workers = (size_t)plan->options.workers, joins = (size_t)plan->join_count;
    return (size_t)plan->lanes * (joins + (size_t)plan->fetch_count + 1) * 2 + workers * (joins * 2 + 1) +
           workers * (size_t)plan->lanes * joins + workers * (size_t)plan->group_count + 1;
}

static bool make_list(const ls_plan *plan, piece_list *list)
{
    list->pieces = calloc(most_pieces(plan), sizeof(*list->pieces));
    list->broken = calloc((size_t)plan->options.workers * (size_t)plan->join_count + 1, 1);
    return list->pieces && list->broken;
}

ls_status ls_exchange_create(const ls_plan *plan, ls_peers *peers, ls_exchange **out)
{
    ls_exchange *x = calloc(1, sizeof(*x));
    if (!x)
        return ls_fail(LS_ERR_MEMORY, "no memory for what workers exchange");
    x->peers = peers;
    size_t bytes = place_received(x, plan);
    x->received = calloc((size_t)plan->join_count * (size_t)plan->lanes + 1, sizeof(*x->received));
    x->memory = aligned_alloc(LS_ALIGN, bytes + LS_ALIGN);
    if (!make_list(plan, &x->now) || !make_list(plan, &x->posted) || !x->received || !x->memory) {
        ls_exchange_destroy(x);
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes that other workers send in a run", bytes);
    }
    place_received(x, plan);
    *out = x;
    return LS_OK;
}

void ls_exchange_destroy(ls_exchange *x)
{
    if (!x)
        return;
    free(x->now.pieces);
    free(x->now.broken);
    free(x->posted.pieces);
    free(x->posted.broken);
    free(x->received);
    free(x->memory);
    free(x);
}

char *ls_exchange_received(const ls_exchange *x, const ls_plan *plan, int join, int lane)
{
    return x ? x->received[index_of(plan, join, lane)] : NULL;
}

/* ---- In a run ---- */

/* Workers by their places; to LS_ALL_WORKERS or one. What goes between two others is not listed. */
static void add_piece(const ls_executor *e, piece_list *list, int from, int to, void *data, size_t bytes)
{
    const ls_peers *peers = e->exchange->peers;
    int own = e->plan->options.worker;
    if (bytes == 0 || (from != own && to != own && to != LS_ALL_WORKERS) || from == to)
        return;
    list->pieces[list->count++] = (ls_piece){
        .from = peers->members[from], .to = to == LS_ALL_WORKERS ? to : peers->members[to], .data = data, .bytes = bytes
    };
}

/* Mixes what must be the same on all workers into one number. */
static uint64_t mix(uint64_t tag, uint64_t value)
{
    tag = (tag ^ value) * 0x9e3779b97f4a7c15;
    return tag ^ tag >> 29;
}

/* What is compared: the run, and the point in it. */
static uint64_t tag_of(const ls_executor *e, int level, int point)
{
    const ls_plan *plan = e->plan;
    uint64_t tag = mix(mix(mix(mix(1, e->seed), e->run), (uint64_t)plan->batch), (uint64_t)plan->lanes);
    return mix(mix(mix(tag, (uint64_t)plan->node_count), (uint64_t)level), (uint64_t)point);
}

typedef enum point { AT_PARTS, AT_JOINED, AT_LATE, AT_FETCHES, AT_AUDIT } point;

static ls_status send(ls_executor *e, int level, point point, const char *what)
{
    ls_exchange *x = e->exchange;
    char text[96];
    snprintf(text, sizeof(text), "%s of a run with %lld samples", what, (long long)e->plan->batch);
    return x->peers->exchange(x->peers, tag_of(e, level, point), text, x->now.pieces, x->now.count);
}

/* Own lanes to subtrees, each in the slot of its first lane that has one. */
static void join_own(ls_executor *e, int segment, int worker)
{
    const ls_plan *plan = e->plan;
    int end = ls_plan_worker_first(plan, plan->options.worker + 1);
    for (int a = ls_plan_worker_first(plan, plan->options.worker), b; a < end; a = b) {
        b = subtree_end(plan, a, end);
        if (b - a > 1 && samples_of(plan, a, b) > 0)
            ls_host_join_block(e, segment, a, b - a, worker);
    }
}

/* Where the subtree's part of a join is: own or to come. */
static char *subtree_at(const ls_executor *e, int join, int first, int end)
{
    const ls_join *j = &e->plan->joins[join];
    for (int lane = first; lane < end; lane++) {
        char *slot = ls_partials_of(e, j->group->segment, lane);
        if (slot)
            return slot + j->partial;
    }
    return e->exchange->received[index_of(e->plan, join, first)];
}

/* Every worker's rows of a gathered batch, which is in the host's memory in the order of samples. */
static void add_rows(const ls_executor *e, const ls_step *step, piece_list *list)
{
    const ls_plan *plan = e->plan;
    for (int w = 0; w < plan->options.workers; w++) {
        int first = ls_plan_worker_first(plan, w), end = ls_plan_worker_first(plan, w + 1);
        char *at =
            e->whole + step->out.offset + step->out.unit * (size_t)ls_lane_first(plan->batch, plan->lanes, first);
        add_piece(e, list, w, LS_ALL_WORKERS, at, step->out.unit * (size_t)samples_of(plan, first, end));
    }
}

/* A subtree's part of a join: to all, or each worker's part of it to that worker. */
static void add_subtree(const ls_executor *e, int join, int worker, int first, int end, piece_list *list)
{
    const ls_plan *plan = e->plan;
    const ls_join *j = &plan->joins[join];
    size_t size = ls_dtype_bytes(j->dtype);
    int64_t from, to;
    if (!j->shared) {
        add_piece(e, list, worker, LS_ALL_WORKERS, subtree_at(e, join, first, end), j->bytes);
        return;
    }
    for (int w = 0; w < plan->options.workers; w++) {
        ls_plan_owned(plan, j, w, &from, &to);
        if (to > from && (w == plan->options.worker || worker == plan->options.worker))
            add_piece(e, list, worker, w, subtree_at(e, join, first, end) + (size_t)from * size,
                      (size_t)(to - from) * size);
    }
}

/* Subtrees of a level's joins, of late ones or of the others. */
static void add_subtrees(const ls_executor *e, int level, bool late, piece_list *list)
{
    const ls_plan *plan = e->plan;
    for (int w = 0; w < plan->options.workers; w++) {
        int end = ls_plan_worker_first(plan, w + 1);
        for (int a = ls_plan_worker_first(plan, w), b; a < end; a = b) {
            b = subtree_end(plan, a, end);
            for (int i = 0; samples_of(plan, a, b) > 0 && i < plan->join_count; i++)
                if (plan->joins[i].level == level && plan->joins[i].late == late)
                    add_subtree(e, i, w, a, b, list);
        }
    }
}

ls_status ls_exchange_level(ls_executor *e, const ls_phase *phase, int worker)
{
    const ls_plan *plan = e->plan;
    piece_list *list = &e->exchange->now;
    bool shared = false;
    for (int s = phase->first; s < phase->first + phase->count; s++)
        if (plan->segments[s].slot_bytes > 0)
            join_own(e, s, worker);
    for (int i = 0; i < plan->join_count; i++)
        shared |= plan->joins[i].level == phase->level && plan->joins[i].shared && !plan->joins[i].late;
    list->count = 0;
    add_subtrees(e, phase->level, false, list);
    for (int s = phase->first; s < phase->first + phase->count; s++)
        for (int i = 0; i < plan->segments[s].step_count; i++)
            if (ls_node_is(plan->segments[s].steps[i].group->root, LS_TRAIT_GATHERS))
                add_rows(e, &plan->segments[s].steps[i], list);
    /* what goes to all, every worker has in its list; parts of shared joins it may have none of */
    return list->count > 0 || shared ? send(e, phase->level, AT_PARTS, "the joins") : LS_OK;
}

/* What each has joined, and whether it is finite. */
static void add_joined(const ls_executor *e, int first, int joins, piece_list *list)
{
    const ls_plan *plan = e->plan;
    for (int i = 0; i < joins; i++)
        list->broken[plan->options.worker * joins + i] = atomic_load(&e->broken[first + i]);
    for (int w = 0; w < plan->options.workers; w++) {
        for (int i = first; i < first + joins; i++) {
            size_t size = ls_dtype_bytes(plan->joins[i].dtype);
            int64_t from, to;
            ls_plan_owned(plan, &plan->joins[i], w, &from, &to);
            add_piece(e, list, w, LS_ALL_WORKERS, e->whole + plan->joins[i].joined + (size_t)from * size,
                      (size_t)(to - from) * size);
        }
        add_piece(e, list, w, LS_ALL_WORKERS, list->broken + w * joins, (size_t)joins);
    }
}

static void take_broken(ls_executor *e, int first, int joins, const piece_list *list)
{
    for (int i = 0; i < joins * e->plan->options.workers; i++)
        if (list->broken[i])
            atomic_store(&e->broken[first + i % joins], true);
}

ls_status ls_exchange_joined(ls_executor *e, const ls_phase *phase)
{
    piece_list *list = &e->exchange->now;
    list->count = 0;
    add_joined(e, phase->first, phase->count, list);
    LS_TRY(send(e, phase->level, AT_JOINED, "what was joined"));
    take_broken(e, phase->first, phase->count, list);
    return LS_OK;
}

/* The late joins that are spread behind a level: those of the level before it. */
static int late_spread(const ls_plan *plan, int level, int *first)
{
    int count = ls_plan_late(plan, level - 1, first);
    return count > 0 && plan->joins[*first].shared ? count : 0;
}

ls_status ls_exchange_post(ls_executor *e, int level)
{
    ls_exchange *x = e->exchange;
    ls_peers *peers = x->peers;
    int first, joins = late_spread(e->plan, level, &first);
    char text[96];
    x->posted.count = 0;
    add_subtrees(e, level, true, &x->posted);
    add_joined(e, first, joins, &x->posted);
    snprintf(text, sizeof(text), "late joins of a run with %lld samples", (long long)e->plan->batch);
    LS_TRY((peers->post ? peers->post : peers->exchange)(peers, tag_of(e, level, AT_LATE), text, x->posted.pieces,
                                                         x->posted.count));
    atomic_store(&x->moves, peers->post != NULL);
    return LS_OK;
}

ls_status ls_exchange_settle(ls_executor *e, int level)
{
    ls_exchange *x = e->exchange;
    int first, joins = late_spread(e->plan, level - 1, &first);
    atomic_store(&x->moves, false);
    if (x->peers->settle)
        LS_TRY(x->peers->settle(x->peers));
    take_broken(e, first, joins, &x->posted);
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
    piece_list *list = &e->exchange->now;
    list->count = 0;
    for (int i = 0; i < plan->fetch_count; i++) {
        const ls_operand *o = &plan->value_of[plan->fetches[i]];
        for (int lane = 0; o->storage == LS_KEPT && lane < plan->lanes; lane++) {
            int64_t first = ls_lane_first(plan->batch, plan->lanes, lane);
            if (samples_of(plan, lane, lane + 1) > 0)
                add_piece(e, list, worker_of(plan, lane), LS_ALL_WORKERS, ls_executor_locate(e, o, 0, lane, first),
                          o->unit * (size_t)samples_of(plan, lane, lane + 1));
        }
    }
    return list->count > 0 ? send(e, plan->levels, AT_FETCHES, "the fetched samples") : LS_OK;
}

ls_status ls_exchange_audit(ls_executor *e, uint64_t found[2][2])
{
    piece_list *list = &e->exchange->now;
    list->count = 0;
    add_piece(e, list, e->owner, LS_ALL_WORKERS, found[0], sizeof(found[0]));
    add_piece(e, list, e->auditor, LS_ALL_WORKERS, found[1], sizeof(found[1]));
    return send(e, e->plan->levels, AT_AUDIT, "the audit");
}

/* What every worker has joined, as far as it is still there (gradients are, and losses: others may have given way to
 * values that only some kinds of devices have in the host's memory), and what the last update left of the state. */
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
    LS_TRY(ls_audit_compare(e));
    hash_run(e, hash);
    snprintf(text, sizeof(text), "a run with %lld samples", (long long)e->plan->batch);
    LS_TRY(peers->commit(peers, hash, text));
    e->committed = true;
    return LS_OK;
}
