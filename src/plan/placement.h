/* Placement: the last pass. Which device runs each task, and so where kept values are; it can change no kernel and no
 * sum. A strategy says no more than a map, or the devices that share the lanes. */
#ifndef LS_PLAN_PLACEMENT_H
#define LS_PLAN_PLACEMENT_H

#include "base/size.h"
#include "device/context.h"
#include "plan/plan.h"

/* Which CPU device runs task (segment, lane), of those that nothing else was asked for. */
typedef struct ls_map {
    int devices; /* 0: lanes are shared evenly */
    int (*device)(void *user, int segment, int lane);
    void *user;
} ls_map;

/* Devices (by index in the context) that share the lanes; kinds that are not in the list use all of theirs. */
typedef struct ls_share {
    const int *list;
    int count; /* 0: all devices */
} ls_share;

#define LS_NOT_HERE SIZE_MAX

/* Blocks of a plan are whole pages: so they take of a device what was counted. */
#define LS_PAGE 4096
static inline size_t ls_block_bytes(size_t bytes)
{
    return ls_size_align(bytes, LS_PAGE);
}

/* What one device has of a plan. */
typedef struct ls_place {
    int64_t *row;    /* by lane: where its samples begin among those that come here; -1: none do */
    int64_t samples; /* of all lanes that come here */
    bool *here;      /* by kept value */
    size_t *kept;    /* by kept value: its offset */
    size_t kept_bytes;
    /* of devices that are not CPUs: all in one block, kept values behind whole ones */
    size_t *whole;        /* by plan node: the offset of a whole value that is looked at or made here; LS_NOT_HERE */
    size_t *stage;        /* by plan node: of a lane's samples that were fed */
    size_t micro;         /* offset of what a segment needs for itself */
    size_t total_bytes;   /* of the block; 0: nothing runs here */
    size_t needed_bytes;  /* on this device, in all */
    size_t fetched_bytes; /* beside these, for the values that a run is to hold */
} ls_place;

typedef struct ls_placement {
    ls_arena arena;
    const ls_plan *plan;
    const ls_context *ctx;
    ls_place *places;  /* by device */
    int *task_device;  /* by segment and lane */
    int *whole_device; /* by whole step; -1: any CPU */
    int home;          /* the CPU device that has whole values and partials */
    int slots;         /* lanes whose partials are there at the same time, at most */
    int *made;         /* by kept value and lane: where it is computed */
    int *host;         /* by kept value and lane: the CPU device that has it; -1: none needs to */
    bool *whole_host;  /* by plan node: a whole value from elsewhere that must come to the host */
} ls_placement;

/* crewed: all workers take part, and need room; otherwise the caller does everything. */
ls_status ls_placement_make(const ls_plan *plan, const ls_map *map, ls_share share, bool crewed, ls_placement **out);
void ls_placement_destroy(ls_placement *placement);

static inline size_t ls_placement_partial_bytes(const ls_placement *p)
{
    return (size_t)p->slots * p->plan->slot_bytes;
}

static inline int ls_task_device(const ls_placement *p, int segment, int lane)
{
    return p->task_device[(size_t)segment * (size_t)p->plan->lanes + (size_t)lane];
}

/* Whether any lane of the segment is this device's. */
bool ls_runs_on(const ls_placement *p, int segment, int device);

/* Samples that a device which is not a CPU gets anew for each task: fed, or rows of a gathered value. */
static inline bool ls_is_staged(const ls_operand *o)
{
    return o->per_sample && (o->home == LS_HOME_OUTSIDE || o->home == LS_HOME_WHOLE);
}

/* Why, for each node and device: a table for people; and a line of the log for each, as TensorFlow has it. */
ls_status ls_placement_print(const ls_placement *placement, ls_text *text);
void ls_placement_log(const ls_placement *placement, ls_logger *log);

/* Tells every node where it will run. */
void ls_placement_mark(const ls_placement *placement);

#endif
