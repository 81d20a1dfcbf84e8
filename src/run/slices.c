/* Joins that workers share out. A worker's part is cut into slices that fit in the cache. While one
 * is joined, the partials of the next are received and the results of the previous are sent. Slices
 * depend only on the plan and the transport. */
#include <stdlib.h>

#include "base/size.h"
#include "run/exchange_private.h"
#include "run/host_joins.h"

#define GRAIN 64 /* Ranges begin at multiples of this many elements. */

enum { PARTS, JOINS, SUMS };

/* A range of a join's elements, and its position in the slice. */
typedef struct range {
    int join;
    int64_t from, to;
    size_t offset, size; /* Bytes: position in the slice, and size of an element. */
} range;

static bool is_sliced(const ls_join *join)
{
    return join->shared && !join->late;
}

static size_t slice_bytes(const ls_exchange *x)
{
    size_t most = x->peers->slice;
    return most < GRAIN * 16 ? GRAIN * 16 : most / (GRAIN * 16) * (GRAIN * 16);
}

/* `used`: bytes of the slice that are already listed. Returns false at its end. */
static bool next_range(const ls_exchange *x, const ls_plan *plan, const ls_phase *phase, int owner, ls_slice_place *at,
                       size_t *used, range *out)
{
    for (; at->join < phase->first + phase->count; at->join++, at->at = 0) {
        const ls_join *join = &plan->joins[at->join];
        size_t size = ls_dtype_bytes(join->dtype);
        int64_t from, to, room = (int64_t)((slice_bytes(x) - *used) / size) / GRAIN * GRAIN;
        ls_plan_owned(plan, join, owner, &from, &to);
        from += at->at;
        if (from >= to)
            continue;
        if (room == 0)
            return false;
        to = to - from < room ? to : from + room;
        *out = (range){ .join = at->join, .from = from, .to = to, .offset = *used, .size = size };
        at->at += to - from;
        *used += ls_size_align((size_t)(to - from) * size, LS_ALIGN);
        return true;
    }
    return false;
}

static char *slice_at(const ls_exchange *x, int subtree, int64_t slice)
{
    return x->slices + ((size_t)subtree * 2 + (size_t)(slice % 2)) * slice_bytes(x);
}

static void add_parts(ls_executor *e, const ls_phase *phase, int64_t slice)
{
    ls_exchange *x = e->exchange;
    int own = e->plan->options.worker;
    for (int w = 0; w < e->plan->options.workers; w++) {
        size_t used = 0;
        range r;
        while (next_range(x, e->plan, phase, w, &x->places[PARTS][w], &used, &r))
            for (int t = 0; t < x->subtree_count; t++) {
                const ls_subtree *subtree = &x->subtrees[t];
                if ((w == own) == (subtree->worker == own))
                    continue;
                char *data = w == own ? slice_at(x, t, slice) + r.offset
                                      : ls_exchange_subtree_at(e, r.join, subtree) + (size_t)r.from * r.size;
                ls_exchange_add(e, &x->posted, subtree->worker, w, data, (size_t)(r.to - r.from) * r.size);
            }
    }
}

static ls_status join_slice(ls_executor *e, const ls_phase *phase, int64_t slice, int thread)
{
    ls_exchange *x = e->exchange;
    int own = e->plan->options.worker;
    size_t used = 0;
    range r;
    while (next_range(x, e->plan, phase, own, &x->places[JOINS][own], &used, &r)) {
        for (int t = 0; t < x->subtree_count; t++)
            /* Address of the whole partial, as if all of it had been received. */
            if (x->subtrees[t].worker != own)
                x->received[ls_exchange_index(e->plan, r.join, x->subtrees[t].first)] =
                    (char *)((uintptr_t)(slice_at(x, t, slice) + r.offset) - (size_t)r.from * r.size);
        LS_TRY(ls_host_join(e, r.join, thread, r.from, r.to));
    }
    return LS_OK;
}

static void add_sums(ls_executor *e, const ls_phase *phase)
{
    ls_exchange *x = e->exchange;
    for (int w = 0; w < e->plan->options.workers; w++) {
        size_t used = 0;
        range r;
        while (next_range(x, e->plan, phase, w, &x->places[SUMS][w], &used, &r))
            ls_exchange_add(e, &x->posted, w, LS_ALL_WORKERS,
                            e->whole + e->plan->joins[r.join].joined + (size_t)r.from * r.size,
                            (size_t)(r.to - r.from) * r.size);
    }
}

static void begin(ls_exchange *x, const ls_plan *plan, const ls_phase *phase)
{
    for (int i = PARTS; i <= SUMS; i++)
        for (int w = 0; w < plan->options.workers; w++)
            x->places[i][w] = (ls_slice_place){ .join = phase->first };
}

/* The number of slices of the worker that has the most. */
static int64_t count_slices(ls_exchange *x, const ls_plan *plan, const ls_phase *phase)
{
    int64_t most = 0;
    for (int w = 0; w < plan->options.workers; w++) {
        ls_slice_place at = { .join = phase->first };
        int64_t slices = 0;
        for (bool any = true; any; slices += any) {
            size_t used = 0;
            range r;
            while (next_range(x, plan, phase, w, &at, &used, &r))
                ;
            any = used > 0;
        }
        most = slices > most ? slices : most;
    }
    return most;
}

/* Round k receives partials of slice k, joins slice k - 1, and sends results of slice k - 2. */
ls_status ls_exchange_reduce(ls_executor *e, const ls_phase *phase, int thread)
{
    ls_exchange *x = e->exchange;
    int64_t slices = count_slices(x, e->plan, phase);
    begin(x, e->plan, phase);
    for (int64_t k = 0; k < slices + 2; k++) {
        x->posted.count = 0;
        add_parts(e, phase, k);
        if (k >= 2)
            add_sums(e, phase);
        if (k == slices + 1)
            ls_exchange_add_ranges(e, phase->first, phase->count, &x->posted);
        LS_TRY(ls_exchange_post_list(e, phase->level, LS_AT_SLICES + (int)k, "the joins"));
        if (k >= 1 && k <= slices)
            LS_TRY(join_slice(e, phase, k - 1, thread));
        LS_TRY(x->peers->settle(x->peers));
    }
    ls_exchange_take_ranges(e, phase->first, phase->count, &x->posted);
    return LS_OK;
}

size_t ls_slices_bytes(const ls_exchange *x, const ls_plan *plan)
{
    for (int i = 0; i < plan->join_count; i++)
        if (is_sliced(&plan->joins[i]))
            return (size_t)x->subtree_count * 2 * slice_bytes(x);
    return 0;
}

ls_status ls_slices_create(ls_exchange *x, const ls_plan *plan, char *room)
{
    bool all = true;
    x->slices = room;
    for (int i = PARTS; i <= SUMS; i++)
        all &= (x->places[i] = calloc((size_t)plan->options.workers, sizeof(*x->places[i]))) != NULL;
    return all ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the data that workers exchange");
}

void ls_slices_destroy(ls_exchange *x)
{
    for (int i = PARTS; i <= SUMS; i++)
        free(x->places[i]);
}
