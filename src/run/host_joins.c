/* Joins of partials in host memory, by CPU threads. */
#include "run/host_joins.h"

#include "run/partials.h"

/* Lists the partials of a join, NULL for empty lanes. A mutation swaps two of them. */
static void list_lanes(ls_executor *e, const ls_join *join, const void **lanes)
{
    int count = e->plan->lanes;
    char *const *received = e->received ? e->received + (size_t)(join - e->plan->joins) * (size_t)count : NULL;
    for (int v = 0; v < count; v++) {
        /* Joined lanes have one slot, at the first of them. */
        char *slot = ls_partials_of(e, join->group->segment, v);
        lanes[v] = slot ? slot + join->partial : received ? received[v] : NULL;
    }
    if ((e->mutation != LS_MUTATE_SWAP && e->mutation != LS_MUTATE_ARRIVAL) || count < 3)
        return;
    int a = e->mutation == LS_MUTATE_SWAP ? 1 : 0, b = e->mutation == LS_MUTATE_SWAP ? 2 : count - 1;
    const void *swap = lanes[a];
    lanes[a] = lanes[b];
    lanes[b] = swap;
}

void ls_host_join_block(ls_executor *e, int segment, int first, int count, int thread)
{
    const void **lanes = e->lanes[thread];
    const ls_kernel_source *host = &e->plan->source;
    for (int i = 0; i < e->plan->join_count; i++) {
        const ls_join *join = &e->plan->joins[i];
        char *to = NULL;
        if (join->group->segment != segment)
            continue;
        for (int v = 0; v < count; v++) {
            char *slot = ls_partials_of(e, segment, first + v);
            lanes[v] = slot ? slot + join->partial : NULL;
            to = to || !slot ? to : slot + join->partial;
        }
        if (to)
            host->join_lanes(host->backend, join->kind, join->dtype, to, lanes, count, 0, (size_t)join->count);
    }
    ls_partials_merge(e, segment, first, count);
}

ls_status ls_host_join(ls_executor *e, int index, int thread, int64_t from, int64_t to)
{
    const ls_join *join = &e->plan->joins[index];
    const void **lanes = e->lanes[thread];
    const ls_kernel_source *host = &e->plan->source;
    list_lanes(e, join, lanes);
    ls_executor_note_range(e, index,
                           host->join_lanes(host->backend, join->kind, join->dtype, e->whole + join->joined, lanes,
                                            e->plan->lanes, (size_t)from, (size_t)to));
    return LS_OK;
}

void ls_executor_note_range(ls_executor *e, int join, ls_range range)
{
    int seen = atomic_load_explicit(&e->ranges[join], memory_order_relaxed);
    while (seen < (int)range && !atomic_compare_exchange_weak_explicit(&e->ranges[join], &seen, (int)range,
                                                                       memory_order_relaxed, memory_order_relaxed))
        ;
}
