/* Placement: what each device needs for its part of a plan. The map has chosen the device of each
 * task. From that follow the devices of kept values, the owners of joins, which devices hold which
 * state, and the memory for everything. Placement changes no kernel and no sum.
 *
 *   placement.c      assigns tasks, whole values, joins and updates to devices
 *   device_memory.c  offsets and bytes on each device
 *   inflight.c       number of lanes in flight, and thus of frames and slots
 *   moves.c          bytes that joins move between devices */
#ifndef LS_PLAN_PLACEMENT_H
#define LS_PLAN_PLACEMENT_H

#include "base/size.h"
#include "device/context.h"
#include "plan/plan.h"

#define LS_NOT_HERE SIZE_MAX

/* Blocks of a plan are whole pages, so they take exactly the device memory that was counted. */
#define LS_PAGE 4096
static inline size_t ls_block_bytes(size_t bytes)
{
    return ls_size_align(bytes, LS_PAGE);
}

typedef struct ls_place {
    /* Has tasks or whole values, or is a CPU that may take work of any CPU. */
    bool active;
    /* By lane: index of its first sample here; -1: not here. */
    int64_t *row;
    int64_t samples;
    bool *here;
    size_t *kept; /* By kept value: offset in the batch's memory, or in a frame. */
    size_t kept_bytes;
    int frames; /* Most lanes in flight. */
    size_t frame_bytes;
    int together; /* Most lanes in one call of its backend; at least 1. */
    /* By segment: most lanes with partials at the same time. */
    int *slots;
    size_t *pool; /* By segment: offset among the partials. */
    size_t partial_bytes;
    /* Devices that are not CPUs: everything except state is in one block. */

    /* By plan node: a whole value that is read or computed here. */
    size_t *whole;
    /* By plan node: a lane's fed samples, in the memory of its task. */
    size_t *staging;
    size_t kept_at, frames_at; /* Offsets in the block. */
    size_t partials_at;
    /* Memory of `together` tasks: fed samples, then, from offset `micro`, the segment's own
     * values. */
    size_t tasks_at, task_bytes;
    size_t micro;
    /* Partials of other devices, for parts of joins that this device owns. */
    size_t receive;
    size_t *received;    /* By join: offset from `receive`; 0 if joins come one after the other. */
    size_t total_bytes;  /* 0: nothing runs here. */
    ls_variable **state; /* Those updated here, then those only read here. */
    int state_count, written_count;
    size_t needed_bytes; /* Without state. */
    /* The part of it that other workers of a cluster send. */
    size_t sent_bytes;
    size_t fetched_bytes; /* For the values that a run returns; in addition. */
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
    bool threaded;
    int together;      /* Upper bound of `together` of the places. */
    ls_place *places;  /* By device. */
    int *whole_device; /* By whole step; -1: any CPU, or every active device of its kind. */
    int home;          /* The CPU device that holds whole values. */
    int *made;         /* By kept value and lane: device that computes it. */
    int *host;         /* By kept value and lane: CPU device that holds it; -1: none. */
    /* By plan node and device: the device reads this whole value; `home` stands for all CPUs. */
    bool *read_on;
    bool *comes_home; /* By plan node: a whole value computed elsewhere that the host needs. */
    ls_join_place *joins;
    bool *updates;      /* By update and device. */
    double moved_bytes; /* Bytes that joins move between devices in a step. */
} ls_placement;

/* threaded: all threads need memory; otherwise the calling thread does all work. together: upper
 * bound of the lanes in one call of a backend. */
ls_status ls_placement_make(const ls_plan *plan, bool threaded, int together, ls_placement **out);
void ls_placement_destroy(ls_placement *placement);

/* Steps of ls_placement_make. */
ls_status ls_placement_memory(ls_placement *p);
ls_status ls_placement_in_flight(ls_placement *p);
ls_status ls_placement_count_moves(ls_placement *p);

/* Allocates from the placement's arena; sets the error on failure. */
void *ls_placement_alloc(ls_placement *p, size_t count, size_t bytes);

static inline int ls_kind_of(const ls_placement *p, int device)
{
    return p->ctx->devices[device].kind;
}

bool ls_runs_on(const ls_placement *p, int segment, int device);

/* For devices that are not CPUs. */
static inline bool ls_whole_runs_on(const ls_placement *p, int step, int device)
{
    const ls_group *group = p->plan->whole_steps[step].group;
    return p->whole_device[step] == LS_ANY_DEVICE ? group->kind == ls_kind_of(p, device) && p->places[device].active
                                                  : p->whole_device[step] == device;
}

static inline bool ls_is_read_on(const ls_placement *p, int value, int device)
{
    return p->read_on[(size_t)value * (size_t)p->ctx->device_count + (size_t)device];
}

static inline bool ls_updates_on(const ls_placement *p, int update, int device)
{
    return p->updates[(size_t)update * (size_t)p->ctx->device_count + (size_t)device];
}

/* Whether samples are copied for each task: fed ones, or rows of a gathered value. */
static inline bool ls_is_staged(const ls_operand *o)
{
    return o->per_sample && (o->storage == LS_EXTERNAL || o->storage == LS_WHOLE);
}

/* ---- Lanes in flight (inflight.c) ---- */

/* Returns the slots that these lanes of a segment need on one device if they begin in this order,
 * with at most `in_flight` begun and not complete (proof: inflight.c). total: lanes of the tree. */
int ls_slots_needed(const int *lanes, int count, int total, int in_flight);

/* Returns whether a lane needs a frame on a device in this level: for a task, or for a framed value
 * that another kind of device computed. */
bool ls_lane_visits(const ls_placement *p, int first, int end, int lane, int device);

/* Returns the number of subtrees of a segment's lanes that the device can join alone. */
int ls_placement_blocks(const ls_placement *p, int segment, int device);

/* ---- Output ---- */

/* ls_placement_print writes a table with reasons. ls_placement_log logs lines in TensorFlow's
 * format. */
ls_status ls_placement_print(const ls_placement *placement, ls_text *text);
void ls_placement_log(const ls_placement *placement, ls_logger *log);

/* Stores in every node the device on which it will run. */
void ls_placement_mark(const ls_placement *placement);

#endif
