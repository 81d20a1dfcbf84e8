/* Lanes in flight: numbers of frames and slots.
 *
 * A lane begins a level when every device that it visits there has a free frame for it, and takes
 * all of them at once; each device begins its lanes in order. A lane in flight never waits for
 * memory, so it always completes. The lowest lane that has not begun is always the next of all its
 * devices. So there is no deadlock.
 *
 * Frames of a device: as many as there are threads on the devices that its lanes visit, so that no
 * thread is idle for lack of a frame; one for each lane if the map fills; and at least as many as
 * one call of its backend runs together.
 *
 * Slots of a segment on a device: a lane has a slot from the start of its task. When both siblings
 * of the tree are complete and on this device, the right one's slot becomes free. Let the lanes
 * begun here be a prefix of its list, and B the largest number of maximal complete blocks (subtrees
 * entirely on this device) of any prefix. If all begun lanes were complete, B slots would suffice.
 * A lane that is begun and not complete is a hole in at most one block of 2^k lanes, k <= K: that
 * leaves at most k complete blocks of it, and the lane's own slot, so k more than the single block.
 * (A thread that joins siblings counts as still having its lane.) With at most F lanes in flight, B
 * + F K slots suffice; and never more than the number of lanes. */
#include <stdlib.h>

#include "plan/placement.h"

typedef struct block {
    int start, size;
} block;

/* Maximal complete blocks of lanes that are added in order. */
typedef struct blocks {
    int total; /* Lanes of the tree. */
    /* Blocks of the current stretch of adjacent lanes: at most two of each size. */
    block stack[64];
    int depth;
    /* Blocks before the last gap, which are not joined with later lanes. */
    int apart;
    int next;   /* The lane that would continue the stretch. */
    int most;   /* Largest number of blocks so far. */
    int levels; /* Levels of the largest block so far. */
} blocks;

static void add_lane(blocks *b, int lane)
{
    block now = { lane, 1 };
    if (lane != b->next) {
        b->apart += b->depth;
        b->depth = 0;
    }
    b->next = lane + 1;
    for (int level = 1; now.size < b->total; level++) {
        const block *before = b->depth > 0 ? &b->stack[b->depth - 1] : NULL;
        bool right = now.start / now.size % 2 == 1;
        if (right && (!before || before->size != now.size || before->start != now.start - now.size))
            break;
        if (!right && now.start + now.size < b->total)
            break; /* Otherwise it has no right neighbour and already is the larger block. */
        if (right)
            now.start = b->stack[--b->depth].start;
        now.size *= 2;
        b->levels = level > b->levels ? level : b->levels;
    }
    b->stack[b->depth++] = now;
    b->most = b->apart + b->depth > b->most ? b->apart + b->depth : b->most;
}

int ls_slots_needed(const int *lanes, int count, int total, int in_flight)
{
    blocks b = { .total = total, .next = -1 };
    for (int i = 0; i < count; i++)
        add_lane(&b, lanes[i]);
    int64_t slots = b.most + (int64_t)in_flight * b.levels;
    return (int)(slots < count ? slots : count);
}

int ls_placement_blocks(const ls_placement *p, int segment, int device)
{
    blocks b = { .total = p->plan->lanes, .next = -1 };
    for (int lane = 0; lane < p->plan->lanes; lane++)
        if (ls_task_device(p->plan, segment, lane) == device)
            add_lane(&b, lane);
    return b.apart + b.depth;
}

bool ls_lane_visits(const ls_placement *p, int first, int end, int lane, int device)
{
    const ls_plan *plan = p->plan;
    for (int s = first; s < end; s++)
        if (ls_task_device(plan, s, lane) == device)
            return true;
    for (int i = 0; ls_context_has_others(p->ctx) && i < plan->kept_count; i++)
        if (plan->kept[i].framed && plan->kept[i].first >= first && plan->kept[i].first < end &&
            p->host[(size_t)i * (size_t)plan->lanes + (size_t)lane] == device)
            return true;
    return false;
}

/* Devices that some lane visits in the same level as `device`. */
static void find_neighbours(const ls_placement *p, int device, bool *neighbour)
{
    const ls_plan *plan = p->plan;
    for (int first = 0, end = 0; first < plan->segment_count; first = end) {
        while (end < plan->segment_count && plan->segments[end].level == plan->segments[first].level)
            end++;
        for (int lane = 0; lane < plan->lanes; lane++)
            if (ls_lane_visits(p, first, end, lane, device))
                for (int s = first; s < end; s++)
                    neighbour[ls_task_device(plan, s, lane)] = true;
    }
}

static int threads_of(const ls_placement *p, int device)
{
    return p->threaded ? p->ctx->devices[device].thread_count : 1;
}

/* Lanes that stay on the device throughout a level can run together; another device would have to
 * wait for all of them. / */
static int count_together(const ls_placement *p, int device)
{
    const ls_plan *plan = p->plan;
    const ls_backend *backend = p->ctx->devices[device].backend;
    int most = 1;
    if (ls_kind_of(p, device) == LS_CPU || !backend->plan_run_lanes || !backend->join_lanes || plan->options.map.fills)
        return 1;
    for (int first = 0, end = 0; first < plan->segment_count; first = end) {
        int count = 0;
        while (end < plan->segment_count && plan->segments[end].level == plan->segments[first].level)
            end++;
        for (int lane = 0; lane < plan->lanes; lane++) {
            int tasks = 0;
            for (int s = first; s < end; s++)
                tasks += ls_task_device(plan, s, lane) == device;
            count += tasks == end - first;
        }
        most = count > most ? count : most;
    }
    return most < p->together ? most : p->together;
}

static ls_status count_frames(ls_placement *p)
{
    int devices = p->ctx->device_count;
    for (int d = 0; d < devices; d++) {
        bool *neighbour = ls_placement_alloc(p, (size_t)devices, sizeof(*neighbour));
        if (!neighbour)
            return LS_ERR_MEMORY;
        find_neighbours(p, d, neighbour);
        int frames = 0;
        for (int other = 0; other < devices; other++)
            frames += neighbour[other] ? threads_of(p, other) : 0;
        if (p->plan->options.map.fills)
            frames = p->plan->lanes;
        p->places[d].together = count_together(p, d);
        frames = frames > p->places[d].together ? frames : p->places[d].together;
        p->places[d].frames = frames < p->plan->lanes ? frames : p->plan->lanes;
    }
    return LS_OK;
}

static bool has_late_joins(const ls_plan *plan)
{
    for (int i = 0; i < plan->join_count; i++)
        if (plan->joins[i].late)
            return true;
    return false;
}

/* Levels share memory. With late joins only every other level does: partials of a level are still
 * in use during the next. */
static void count_slots(ls_placement *p, int device, int *lanes)
{
    const ls_plan *plan = p->plan;
    ls_place *place = &p->places[device];
    bool late = has_late_joins(plan);
    size_t used = 0, most[2] = { 0 };
    for (int s = 0; s < plan->segment_count; s++) {
        const ls_segment *segment = &plan->segments[s];
        int count = 0;
        for (int lane = 0; lane < plan->lanes; lane++)
            if (ls_task_device(plan, s, lane) == device)
                lanes[count++] = lane;
        if (s == 0 || segment->level != plan->segments[s - 1].level)
            used = 0;
        bool joins = segment->slot_bytes > 0 && count > 0;
        place->slots[s] = !joins                        ? 0
                          : plan->options.every_partial ? count
                                                        : ls_slots_needed(lanes, count, plan->lanes, place->frames);
        if (plan->options.audits && joins && place->slots[s] < count)
            place->slots[s]++;
        place->pool[s] = used;
        used += (size_t)place->slots[s] * segment->slot_bytes;
        size_t *room = &most[late ? segment->level % 2 : 0];
        *room = used > *room ? used : *room;
    }
    for (int s = 0; s < plan->segment_count; s++)
        place->pool[s] += late && plan->segments[s].level % 2 ? most[0] : 0;
    place->partial_bytes = most[0] + most[1];
}

ls_status ls_placement_in_flight(ls_placement *p)
{
    int *lanes = ls_placement_alloc(p, (size_t)p->plan->lanes, sizeof(*lanes));
    if (!lanes)
        return LS_ERR_MEMORY;
    LS_TRY(count_frames(p));
    for (int d = 0; d < p->ctx->device_count; d++)
        count_slots(p, d, lanes);
    return LS_OK;
}
