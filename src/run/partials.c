/* Slots of lanes, and joins of siblings. A *block* is what T[a,b) of the tree covers when it is complete: lanes from a
 * multiple of its size on, so many as its size, or as there are. */
#include "run/partials.h"

#include "run/join.h"

static bool is_empty(const ls_plan *plan, int lane)
{
    return ls_lane_first(plan->batch, plan->lanes, lane) == ls_lane_first(plan->batch, plan->lanes, lane + 1);
}

void ls_partials_begin(ls_executor *e)
{
    for (int lane = 0; lane < e->plan->lanes; lane++) {
        e->slot_of[lane] = -1;
        e->block[lane] = 0;
    }
    e->free_count = e->placement->slots;
    for (int slot = 0; slot < e->free_count; slot++)
        e->free_slots[slot] = e->free_count - 1 - slot;
}

bool ls_partials_claim(ls_executor *e, int lane)
{
    if (e->slot_of[lane] >= 0 || is_empty(e->plan, lane))
        return true;
    if (e->free_count == 0)
        return false;
    e->slot_of[lane] = e->free_slots[--e->free_count];
    return true;
}

char *ls_partials_of(const ls_executor *e, int lane)
{
    return e->slot_of[lane] < 0 ? NULL : e->partial + (size_t)e->slot_of[lane] * e->plan->slot_bytes;
}

/* The right block's parts are joined to the left's; nobody else looks at either meanwhile. After a failure nothing is
 * added any more, but slots are freed all the same: lanes before the failed one still want them. */
static void join_slots(ls_executor *e, int left, int right, int level)
{
    if (e->slot_of[right] < 0)
        return;
    if (e->slot_of[left] < 0) { /* nothing and x is x */
        e->slot_of[left] = e->slot_of[right];
        e->slot_of[right] = -1;
        return;
    }
    char *to = ls_partials_of(e, left), *from = ls_partials_of(e, right);
    bool adds = e->status == LS_OK;
    pthread_mutex_unlock(&e->mutex);
    for (int i = 0; adds && i < e->plan->join_count; i++) {
        const ls_join *join = &e->plan->joins[i];
        if (join->level == level)
            ls_join_next(e->simd, join->kind, join->dtype, to + join->partial, from + join->partial,
                         (size_t)join->count);
    }
    pthread_mutex_lock(&e->mutex);
    e->free_slots[e->free_count++] = e->slot_of[right];
    e->slot_of[right] = -1;
}

void ls_partials_fail(ls_executor *e, int lane)
{
    for (int v = lane; v < e->plan->lanes; v++)
        if (e->slot_of[v] >= 0 && e->block[v] > 0) {
            e->free_slots[e->free_count++] = e->slot_of[v];
            e->slot_of[v] = -1;
        }
}

void ls_partials_complete(ls_executor *e, int lane, int level)
{
    int lanes = e->plan->lanes, start = lane;
    e->block[start] = 1;
    if (e->placement->slots >= lanes)
        return; /* room for all: every join is left to the chunks */
    for (int size = 1; size * 2 < lanes; size *= 2) {
        int left = start / (size * 2) * (size * 2), right = left + size;
        if (right < lanes) {
            if (e->block[left] != size || e->block[right] != size)
                return;
            e->block[left] = e->block[right] = 0; /* taken */
            join_slots(e, left, right, level);
        }
        start = left;
        e->block[start] = size * 2;
    }
}
