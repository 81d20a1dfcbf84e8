/* Placement: what each device must have for its part of a plan. The map has said which device runs each task; from that
 * follow where kept values are, who joins what, which devices hold which state, and how much room everything takes. It
 * can change no kernel and no sum.
 *
 * placement.c  tasks, whole values, joins and updates to devices
 * rooms.c      offsets and bytes on each device
 * inflight.c   how many lanes are in flight, and so how many frames and slots there are
 * moves.c      what joins move between devices */
#ifndef LS_PLAN_PLACEMENT_H
#define LS_PLAN_PLACEMENT_H

#include "base/size.h"
#include "device/context.h"
#include "plan/plan.h"

#define LS_NOT_HERE SIZE_MAX

/* Blocks of a plan are whole pages: so they take of a device what was counted. */
#define LS_PAGE 4096
static inline size_t ls_block_bytes(size_t bytes)
{
    return ls_size_align(bytes, LS_PAGE);
}

/* What one device has of a plan. */
typedef struct ls_place {
    bool active;     /* it takes part: with tasks, with what any CPU may do, or whole values that were given to it */
    int64_t *row;    /* by lane: where its samples begin among those that come here; -1: none do */
    int64_t samples; /* of all lanes that come here */
    bool *here;      /* by kept value */
    size_t *kept;    /* by kept value: its offset among those of the batch, or in a frame */
    size_t kept_bytes;
    int frames; /* lanes that are in flight here at once, at most */
    size_t frame_bytes;
    int together; /* lanes that one call of its backend runs, at most; at least 1 */
    int *slots;   /* by segment: lanes that have partials of it here at once, at most */
    size_t *pool; /* by segment: where its slots begin among the partials */
    size_t partial_bytes;
    /* of devices that are not CPUs: everything in one block, state apart */
    size_t *whole;             /* by plan node: the offset of a whole value that is looked at or made here */
    size_t *stage;             /* by plan node: of a lane's samples that were fed, in the room of its task */
    size_t kept_at, frames_at; /* offsets of the parts */
    size_t partials_at;
    size_t tasks_at,
        task_bytes; /* rooms of `together` tasks: fed samples, and what a segment needs for itself, from: */
    size_t micro;
    size_t receive;      /* partials of other devices, for the part of a join that is owned here */
    size_t *received;    /* by join: where in there; 0, where joins come one after the other */
    size_t total_bytes;  /* of the block; 0: nothing runs here */
    ls_variable **state; /* variables and slots that are updated here, then those that are only read */
    int state_count, written_count;
    size_t needed_bytes;  /* on this device, in all, state apart */
    size_t sent_bytes;    /* of them for what other workers of a cluster send (src/run) */
    size_t fetched_bytes; /* beside these, for the values that a run is to hold */
} ls_place;

/* A range of a join's elements and the device that joins it. */
typedef struct ls_join_part {
    int owner;
    int64_t from, to;
} ls_join_part;

typedef struct ls_join_place {
    ls_join_part *parts;
    int part_count;
} ls_join_place;

typedef struct ls_placement {
    ls_arena arena;
    const ls_plan *plan;
    const ls_context *ctx;
    bool crewed;       /* all workers take part */
    int together;      /* upper bound of places' */
    ls_place *places;  /* by device */
    int *whole_device; /* by whole step; -1: any CPU, or every active device of its kind */
    int home;          /* the CPU device that has whole values */
    int *made;         /* by kept value and lane: where it is computed */
    int *host;         /* by kept value and lane: the CPU device that has it; -1: none needs to */
    bool *looked_at;   /* by plan node and device: a whole value that is read there; all CPUs are `home` */
    bool *comes_home;  /* by plan node: a whole value made elsewhere that the host must have */
    ls_join_place *joins;
    bool *updates;      /* by update and device: it is computed there */
    double moved_bytes; /* between devices, by the joins of a step */
} ls_placement;

/* crewed: all workers take part, and need room; otherwise the caller does everything. together: upper bound of the
 * lanes that a call of a backend runs; each has room of its own. */
ls_status ls_placement_make(const ls_plan *plan, bool crewed, int together, ls_placement **out);
void ls_placement_destroy(ls_placement *placement);

/* Steps of making one. */
ls_status ls_placement_rooms(ls_placement *p);
ls_status ls_placement_in_flight(ls_placement *p);
ls_status ls_placement_count_moves(ls_placement *p);

/* Memory of the placement's own arena; the failure is reported. */
void *ls_placement_alloc(ls_placement *p, size_t count, size_t bytes);

static inline int ls_kind_of(const ls_placement *p, int device)
{
    return p->ctx->devices[device].kind;
}

/* Whether any lane of the segment is this device's. */
bool ls_runs_on(const ls_placement *p, int segment, int device);

/* Whether a whole step is computed on this device, which is no CPU. */
static inline bool ls_whole_runs_on(const ls_placement *p, int step, int device)
{
    const ls_group *group = p->plan->whole_steps[step].group;
    return p->whole_device[step] == LS_ANY_DEVICE ? group->kind == ls_kind_of(p, device) && p->places[device].active
                                                  : p->whole_device[step] == device;
}

static inline bool ls_is_looked_at(const ls_placement *p, int value, int device)
{
    return p->looked_at[(size_t)value * (size_t)p->ctx->device_count + (size_t)device];
}

static inline bool ls_updates_on(const ls_placement *p, int update, int device)
{
    return p->updates[(size_t)update * (size_t)p->ctx->device_count + (size_t)device];
}

/* Samples that a device which is not a CPU gets anew for each task: fed, or rows of a gathered value. */
static inline bool ls_is_staged(const ls_operand *o)
{
    return o->per_sample && (o->storage == LS_OUTSIDE || o->storage == LS_WHOLE);
}

/* ---- Lanes in flight (inflight.c) ---- */

/* Slots that `lanes` of a segment need on one device, begun in this order, when at most `in_flight` of them are begun
 * and not complete: see the proof there. total: lanes of the whole tree. */
int ls_slots_needed(const int *lanes, int count, int total, int in_flight);

/* Whether a lane needs a frame on a device in the level of these segments: a task of it is there, or a copy of a framed
 * value that another kind of device made. */
bool ls_lane_visits(const ls_placement *p, int first, int end, int lane, int device);

/* The maximal complete blocks of a segment's lanes on one device: the subtrees of the tree that it can make alone. */
int ls_placement_blocks(const ls_placement *p, int segment, int device);

/* ---- For people ---- */

/* Why, for each node and device: a table; and a line of the log for each, as TensorFlow has it. */
ls_status ls_placement_print(const ls_placement *placement, ls_text *text);
void ls_placement_log(const ls_placement *placement, ls_logger *log);

/* Tells every node where it will run. */
void ls_placement_mark(const ls_placement *placement);

#endif
