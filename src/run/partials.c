/* Slots of lanes, and joins of siblings. A *block* is the lanes that T[a,b) covers: `size` lanes,
 * or fewer at the end, from a multiple of `size` on. block[a] is the size of a complete block;
 * JOINING while it is joined; otherwise 0. */
#include "run/partials.h"

#include "base/clock.h"

#define JOINING (-1)

static size_t at(const ls_executor *e, int segment, int lane)
{
    return (size_t)segment * (size_t)e->plan->lanes + (size_t)lane;
}

static ls_pool *pool_of(const ls_executor *e, int device, int segment)
{
    return &e->pools[(size_t)device * (size_t)e->plan->segment_count + (size_t)segment];
}

static bool is_empty(const ls_plan *plan, int lane)
{
    return ls_lane_first(plan->batch, plan->lanes, lane) == ls_lane_first(plan->batch, plan->lanes, lane + 1);
}

void ls_partials_begin(ls_executor *e, int first, int count)
{
    for (int s = first; s < first + count; s++) {
        for (int lane = 0; lane < e->plan->lanes; lane++) {
            e->slot_of[at(e, s, lane)] = -1;
            e->block[at(e, s, lane)] = 0;
        }
        for (int d = 0; d < e->devices; d++) {
            ls_pool *pool = pool_of(e, d, s);
            pool->count = e->placement->places[d].slots[s];
            for (int slot = 0; slot < pool->count; slot++)
                pool->free[slot] = pool->count - 1 - slot;
        }
    }
}

void ls_partials_claim(ls_executor *e, int device, int first, int count, int lane)
{
    for (int s = first; s < first + count; s++) {
        ls_pool *pool = pool_of(e, device, s);
        if (e->plan->segments[s].slot_bytes > 0 && !is_empty(e->plan, lane))
            e->slot_of[at(e, s, lane)] = pool->free[--pool->count];
    }
}

static void free_slot(ls_executor *e, int segment, int lane)
{
    ls_pool *pool = pool_of(e, ls_task_device(e->plan, segment, lane), segment);
    int *slot = &e->slot_of[at(e, segment, lane)];
    if (*slot >= 0)
        pool->free[pool->count++] = *slot;
    *slot = -1;
}

void ls_partials_drop(ls_executor *e, int segment, int lane)
{
    free_slot(e, segment, lane);
}

int ls_partials_slot(const ls_executor *e, int segment, int lane)
{
    return e->slot_of[at(e, segment, lane)];
}

size_t ls_partials_offset(const ls_executor *e, int segment, int lane)
{
    const ls_place *place = &e->placement->places[ls_task_device(e->plan, segment, lane)];
    return place->pool[segment] + (size_t)ls_partials_slot(e, segment, lane) * e->plan->segments[segment].slot_bytes;
}

char *ls_partials_of(const ls_executor *e, int segment, int lane)
{
    if (ls_partials_slot(e, segment, lane) < 0)
        return NULL;
    return e->partials[ls_task_device(e->plan, segment, lane)] + ls_partials_offset(e, segment, lane);
}

static void join_on_host(ls_executor *e, int segment, int left, int right)
{
    const ls_kernel_source *host = &e->plan->source;
    char *to = ls_partials_of(e, segment, left), *from = ls_partials_of(e, segment, right);
    for (int i = 0; i < e->plan->join_count; i++) {
        const ls_join *join = &e->plan->joins[i];
        if (join->group->segment == segment)
            host->join_next(host->backend, join->kind, join->dtype, to + join->partial, from + join->partial,
                            (size_t)join->count);
    }
}

/* No other thread uses either block meanwhile. After a failure it joins nothing but still frees
 * slots: lanes before the failed one need them. */
static ls_status join_siblings(ls_executor *e, int segment, int left, int right, int thread)
{
    int *to = &e->slot_of[at(e, segment, left)], *from = &e->slot_of[at(e, segment, right)];
    ls_status status = LS_OK;
    if (*from < 0)
        return LS_OK;
    if (*to < 0) { /* The left block is empty: take over the right one's slot. */
        *to = *from;
        *from = -1;
        return LS_OK;
    }
    if (e->failure.status == LS_OK) {
        ls_driver *driver = e->drivers[ls_task_device(e->plan, segment, left)];
        pthread_mutex_unlock(&e->mutex);
        double start = ls_clock_now();
        if (driver)
            status = ls_driver_join_siblings(driver, e, segment, left, right);
        else
            join_on_host(e, segment, left, right);
        e->meters[thread].joins += ls_clock_now() - start;
        if (e->timeline)
            ls_timeline_siblings(e, thread, segment, left, start);
        pthread_mutex_lock(&e->mutex);
    }
    free_slot(e, segment, right);
    return status;
}

/* CPUs leave joins for which they have enough slots to the phase that joins in chunks on all
 * threads, and always the last one. */
static bool joins_now(const ls_executor *e, int segment, int device, int size)
{
    const ls_plan *plan = e->plan;
    if (plan->options.every_partial)
        return false;
    if (e->drivers[device])
        return size < plan->lanes;
    return size * 2 < plan->lanes && e->placement->places[device].slots[segment] < plan->lanes;
}

ls_status ls_partials_complete(ls_executor *e, int segment, int lane, int thread)
{
    int lanes = e->plan->lanes, device = ls_task_device(e->plan, segment, lane), start = lane;
    int *block = e->block + at(e, segment, 0);
    if (e->plan->segments[segment].slot_bytes == 0)
        return LS_OK;
    block[start] = 1;
    for (int size = 1; joins_now(e, segment, device, size); size *= 2) {
        int left = start / (size * 2) * (size * 2), right = left + size;
        if (right < lanes) {
            if (block[left] != size || block[right] != size || ls_task_device(e->plan, segment, left) != device ||
                ls_task_device(e->plan, segment, right) != device)
                return LS_OK;
            block[left] = block[right] = JOINING;
            ls_status status = join_siblings(e, segment, left, right, thread);
            block[right] = 0;
            if (status != LS_OK) {
                block[left] = 0;
                return status;
            }
        }
        start = left;
        block[start] = size * 2;
    }
    return LS_OK;
}

/* Extends the block of a complete lane while siblings are complete; joins nothing yet. */
static void grow_block(ls_executor *e, int segment, int lane)
{
    int device = ls_task_device(e->plan, segment, lane), start = lane, *block = e->block + at(e, segment, 0);
    block[start] = 1;
    for (int size = 1; joins_now(e, segment, device, size); size *= 2) {
        int left = start / (size * 2) * (size * 2), right = left + size;
        if (right < e->plan->lanes) {
            if (block[left] != size || block[right] != size || ls_task_device(e->plan, segment, left) != device ||
                ls_task_device(e->plan, segment, right) != device)
                return;
            block[right] = 0;
        }
        start = left;
        block[start] = size * 2;
    }
}

static ls_status join_block(ls_executor *e, int segment, int first, int count, int thread)
{
    int *slot = e->slot_of + at(e, segment, first), *block = e->block + at(e, segment, first), size = *block;
    int have = 0, kept = -1;
    for (int v = 0; v < count; v++) {
        kept = kept < 0 && slot[v] >= 0 ? v : kept;
        have += slot[v] >= 0;
    }
    ls_status status = LS_OK;
    if (have > 1 && e->failure.status == LS_OK) {
        for (int v = 0; v < count; v++)
            block[v] = JOINING;
        pthread_mutex_unlock(&e->mutex);
        double start = ls_clock_now();
        status =
            ls_driver_join_lanes(e->drivers[ls_task_device(e->plan, segment, first)], e, segment, first, count, thread);
        e->meters[thread].joins += ls_clock_now() - start;
        if (e->timeline)
            ls_timeline_siblings(e, thread, segment, first, start);
        pthread_mutex_lock(&e->mutex);
        for (int v = 0; v < count; v++)
            block[v] = 0;
        block[0] = status == LS_OK ? size : 0;
    }
    for (int v = kept + 1; v < count; v++)
        free_slot(e, segment, first + v);
    if (kept > 0) { /* The first lanes are empty: move the slot to the first one. */
        slot[0] = slot[kept];
        slot[kept] = -1;
    }
    return status;
}

ls_status ls_partials_complete_lanes(ls_executor *e, int segment, const int *lanes, int count, int thread)
{
    int total = e->plan->lanes;
    if (e->plan->segments[segment].slot_bytes == 0 || count == 0)
        return LS_OK;
    for (int i = 0; i < count; i++)
        grow_block(e, segment, lanes[i]);
    for (int i = 0; i < count; i++) {
        int first = lanes[i], *block = e->block + at(e, segment, 0);
        while (first > 0 && block[first] == 0)
            first--;
        int size = block[first], end = first + size < total ? first + size : total;
        if (size > 1 && ls_task_device(e->plan, segment, first) == ls_task_device(e->plan, segment, lanes[i]))
            LS_TRY(join_block(e, segment, first, end - first, thread));
    }
    return LS_OK;
}

void ls_partials_fail(ls_executor *e, int first, int count, int lane)
{
    for (int s = first; s < first + count; s++)
        for (int v = lane; v < e->plan->lanes; v++)
            if (e->block[at(e, s, v)] != JOINING && !e->lane[v].running)
                free_slot(e, s, v);
}

void ls_partials_merge(ls_executor *e, int segment, int first, int count)
{
    bool kept = false;
    pthread_mutex_lock(&e->mutex);
    for (int lane = first; lane < first + count; lane++) {
        if (kept)
            free_slot(e, segment, lane);
        kept = kept || ls_partials_slot(e, segment, lane) >= 0;
    }
    pthread_mutex_unlock(&e->mutex);
}
