/* Counts the bytes that joins move between devices in a step: partials to their owners, and results
 * to the devices that computed partials. Depends only on the placement. CPU devices share one
 * memory, but what another CPU device's cores computed still counts. */
#include <stdlib.h>

#include "plan/placement.h"

static bool has_samples(const ls_plan *plan, int lane)
{
    return ls_lane_first(plan->batch, plan->lanes, lane) < ls_lane_first(plan->batch, plan->lanes, lane + 1);
}

/* Lanes that hold partials of a segment after its tasks: siblings on one device have been
 * joined. */
static void list_live(const ls_placement *p, int segment, bool *live)
{
    const ls_plan *plan = p->plan;
    for (int lane = 0; lane < plan->lanes; lane++)
        live[lane] = has_samples(plan, lane);
    for (int size = 2; size / 2 < plan->lanes; size *= 2)
        for (int a = 0; a + size / 2 < plan->lanes; a += size) {
            int device = ls_task_device(plan, segment, a), end = a + size < plan->lanes ? a + size : plan->lanes;
            bool one = true;
            for (int lane = a; lane < end; lane++)
                one = one && ls_task_device(plan, segment, lane) == device;
            if (one) {
                /* An empty left block takes over the right one's partials. */
                live[a] = live[a] || live[a + size / 2];
                live[a + size / 2] = false;
            }
        }
}

static int first_live(const bool *live, int from, int to)
{
    while (from < to && !live[from])
        from++;
    return from < to ? from : -1;
}

static int count_foreign(const ls_placement *p, int segment, const bool *live, int from, int to, int device)
{
    int count = 0;
    for (int lane = from; lane < to; lane++)
        count += live[lane] && ls_task_device(p->plan, segment, lane) != device;
    return count;
}

/* Rounds of joins in pairs, as in src/run/units.c. */
static int count_pairs(const ls_placement *p, int segment, bool *live)
{
    const ls_plan *plan = p->plan;
    int moved = 0;
    for (int size = 2; size < plan->lanes; size *= 2)
        for (int a = 0; a + size / 2 < plan->lanes; a += size) {
            int end = a + size < plan->lanes ? a + size : plan->lanes;
            int left = first_live(live, a, a + size / 2), right = first_live(live, a + size / 2, end);
            if (left < 0 || right < 0)
                continue;
            int device = ls_task_device(plan, segment, left);
            if (device == ls_task_device(plan, segment, right))
                continue;
            moved += count_foreign(p, segment, live, a, end, device);
            for (int lane = left + 1; lane < end; lane++)
                live[lane] = false;
        }
    return moved;
}

static int count_makers(const ls_placement *p, int segment)
{
    int makers = 0;
    for (int d = 0; d < p->ctx->device_count; d++)
        makers += ls_runs_on(p, segment, d);
    return makers;
}

ls_status ls_placement_count_moves(ls_placement *p)
{
    const ls_plan *plan = p->plan;
    bool *live = ls_placement_alloc(p, (size_t)plan->lanes, sizeof(*live));
    if (!live)
        return LS_ERR_MEMORY;
    for (int i = 0; i < plan->join_count; i++) {
        const ls_join *join = &plan->joins[i];
        int segment = join->group->segment, makers = count_makers(p, segment);
        if (makers < 2)
            continue;
        list_live(p, segment, live);
        if (plan->options.map.owners == LS_OWNERS_PAIRS)
            p->moved_bytes += (double)count_pairs(p, segment, live) * (double)join->bytes;
        for (int n = 0; n < p->joins[i].part_count; n++) {
            const ls_join_part *part = &p->joins[i].parts[n];
            int times = count_foreign(p, segment, live, 0, plan->lanes, part->owner) + makers - 1;
            p->moved_bytes += (double)times * (double)(part->to - part->from) * (double)ls_dtype_bytes(join->dtype);
        }
    }
    return LS_OK;
}
