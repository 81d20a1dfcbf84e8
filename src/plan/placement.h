/* Placement: what each device needs for its part of a plan. The map has chosen the device of each
 * task. From that follow the devices of kept values, the owners of joins, which devices hold which
 * state, and the memory for everything. Placement changes no kernel and no sum.
 *
 * placement.c      assigns tasks, whole values, joins and updates to devices
 * device_memory.c  offsets and bytes on each device
 * inflight.c       number of lanes in flight, and thus of frames and slots
 * moves.c          bytes that joins move between devices */
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

/* A device's part of a plan. */
typedef struct ls_place {
    /* It takes part: with tasks, as a CPU for work of any CPU, or with whole values assigned to
     * it. */
    bool active;
    /* By lane: index of its first sample among those on this device; -1: none here. */
    int64_t *row;
    int64_t samples; /* Samples of all lanes that come here. */
    bool *here;      /* By kept value: whether it is stored here. */
    size_t *kept;    /* By kept value: offset among the values of the batch, or in a frame. */
    size_t kept_bytes;
    int frames; /* Largest number of lanes in flight here. */
    size_t frame_bytes;
    int together; /* Largest number of lanes in one call of its backend; at least 1. */
    /* By segment: largest number of lanes with partials of it here at the same time. */
    int *slots;
    size_t *pool; /* By segment: offset of its slots among the partials. */
    size_t partial_bytes;
    /* Fields below, for devices that are not CPUs: everything except state is in one block. */

    /* By plan node: offset of a whole value that is read or computed here. */
    size_t *whole;
    /* By plan node: offset of a lane's fed samples, in the memory of its task. */
    size_t *staging;
    size_t kept_at, frames_at; /* Offsets in the block. */
    size_t partials_at;
    /* Memory of `together` tasks: fed samples, then, from offset `micro`, the segment's own
     * values. */
    size_t tasks_at, task_bytes;
    size_t micro;
    /* Offset for partials of other devices, for the parts of joins that this device owns. */
    size_t receive;
    size_t *received;    /* By join: offset from `receive`; 0 if joins come one after the other. */
    size_t total_bytes;  /* Size of the block; 0: nothing runs here. */
    ls_variable **state; /* Variables and slots updated here, then those only read here. */
    int state_count, written_count;
    size_t needed_bytes; /* Total bytes on this device, without state. */
    /* The part of needed_bytes for what other workers of a cluster send (src/run). */
    size_t sent_bytes;
    size_t fetched_bytes; /* Additional bytes for the values that a run returns. */
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
    bool threaded;     /* All threads take part. */
    int together;      /* Upper bound of `together` of the places. */
    ls_place *places;  /* By device. */
    int *whole_device; /* By whole step; -1: any CPU, or every active device of its kind. */
    int home;          /* The CPU device that holds whole values. */
    int *made;         /* By kept value and lane: device that computes it. */
    int *host;         /* By kept value and lane: CPU device that holds it; -1: none needs it. */
    /* By plan node and device: a whole value that the device reads; `home` represents all CPUs. */
    bool *read_on;
    bool *comes_home; /* By plan node: a whole value computed elsewhere that the host needs. */
    ls_join_place *joins;
    bool *updates;      /* By update and device: whether the device computes it. */
    double moved_bytes; /* Bytes that the joins of a step move between devices. */
} ls_placement;

/* threaded: all threads take part and need memory; otherwise the calling thread does all work.
 * together: upper bound of the lanes in one call of a backend; each needs memory of its own. */
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

/* Returns whether the device runs any lane of the segment. */
bool ls_runs_on(const ls_placement *p, int segment, int device);

/* Returns whether this device, which is not a CPU, computes a whole step. */
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

/* Samples that are copied to a device other than a CPU for each task: fed samples, or rows of a
 * gathered value. */
static inline bool ls_is_staged(const ls_operand *o)
{
    return o->per_sample && (o->storage == LS_EXTERNAL || o->storage == LS_WHOLE);
}

/* ---- Lanes in flight (inflight.c) ---- */

/* Returns the slots that `lanes` of a segment need on one device if they begin in this order and at
 * most `in_flight` of them are begun and not complete; inflight.c has the proof. total: lanes of
 * the whole tree. */
int ls_slots_needed(const int *lanes, int count, int total, int in_flight);

/* Returns whether a lane needs a frame on a device in the level of these segments: it has a task
 * there, or a copy of a framed value that another kind of device computed. */
bool ls_lane_visits(const ls_placement *p, int first, int end, int lane, int device);

/* Returns the number of maximal complete blocks of a segment's lanes on one device: subtrees that
 * the device can join alone. */
int ls_placement_blocks(const ls_placement *p, int segment, int device);

/* ---- Output ---- */

/* ls_placement_print writes a table with the reason for each node and device. ls_placement_log logs
 * a line for each, in TensorFlow's format. */
ls_status ls_placement_print(const ls_placement *placement, ls_text *text);
void ls_placement_log(const ls_placement *placement, ls_logger *log);

/* Stores in every node the device on which it will run. */
void ls_placement_mark(const ls_placement *placement);

#endif
