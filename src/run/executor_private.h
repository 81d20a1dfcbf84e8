/* The executor's own struct, shared by the files of src/run that make and run it:
 *   executor.c    creating, destroying, one run from outside
 *   units.c       the units of each phase
 *   dispatcher.c  who does which unit when, and what happens when one fails
 *   host.c        units that a CPU worker does
 *   driver.c      units that another device does
 *   partials.c    slots of lanes, and joins of siblings
 *   audit.c       a lane that two workers of a cluster compute */
#ifndef LS_RUN_EXECUTOR_PRIVATE_H
#define LS_RUN_EXECUTOR_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "run/driver.h"
#include "run/executor.h"

/* A piece of a phase. */
typedef struct ls_unit {
    int device; /* that must do it; -1: any CPU */
    int index;  /* of a step, join, prepared weight, update or pair's segment; of the first segment of a lane's run */
    int count;  /* segments; steps; updates; lanes of a pair of blocks */
    int lane;
    int64_t from, to; /* elements */
    double flops;     /* of a lane's run */
} ls_unit;

/* The units of a phase. Of a phase of lanes they are in the order of lanes, and a lane's run from device to device. */
typedef struct ls_phase_units {
    ls_unit *units;
    int count;
    int *first, *end;           /* by lane: its first unit, and behind its last */
    int *visits, *visits_first; /* by lane: the devices where it needs a frame */
    int *order, *order_end;     /* by device: the lanes that visit it, in order, from device * lanes on */
    int *queue, *queue_first;   /* of other phases, by device: its units; last those of any CPU */
} ls_phase_units;

/* A lane in a phase of lanes. */
typedef struct ls_lane {
    bool begun, running;
    int done; /* units */
} ls_lane;

/* Seconds of a worker in the run at hand: see ls_device_seconds. A cache line each. */
typedef struct ls_meter {
    double busy, joins, copies, between, lanes, idle, waiting, present;
} ls_meter;

/* Workers of a device that wait for progress. */
typedef struct ls_sleepers {
    pthread_cond_t wake;
    int count;
} ls_sleepers;

/* The slots of a segment on a device that are not in use. */
typedef struct ls_pool {
    int *free, count;
} ls_pool;

typedef struct ls_exchange ls_exchange;

/* An update of the CPU, in the run before: its state is LS_RANGE_SAFE as long as it has these versions. */
typedef struct ls_last_update {
    uint64_t versions[LS_MAX_WRITES]; /* 0: not known to be safe */
    atomic_bool large;                /* the run under way wrote a number that is not LS_RANGE_SAFE */
} ls_last_update;

struct ls_executor {
    ls_plan *plan;
    ls_placement *placement;
    ls_thread_pool *crew;
    int workers, devices;
    int *device_of;      /* by worker */
    bool *wanted;        /* by worker: its device takes part */
    ls_driver **drivers; /* by device; NULL: a CPU, or it has nothing to do */
    ls_phase_units *phases;
    int phase_count;
    ls_external *outside;
    char *whole;
    char **kept, **frames, **partials; /* by device; NULL: not in the host's memory */
    char **arena; /* by worker: a micro-batch's values, scratch, picked rows; of a driver: picked rows alone */
    char **stage; /* by worker: the picked rows in it */
    ls_block *whole_block, **arena_block, **kept_block, **frame_block, **partial_block;
    const void ***inputs;     /* by worker: pointers of the step at hand */
    const void ***lanes;      /* by worker: pointers of the partials at hand */
    ls_memory_place **places; /* by worker that drives a device: the same there */
    ls_state **states;        /* of the graph, by device: the runs' */
    ls_exchange *exchange;    /* with other workers of a cluster; NULL: this process is alone */
    ls_mutation mutation;
    int64_t *units_of;                 /* by device */
    double *group_seconds;             /* by worker and group; NULL: not measured */
    double *phase_seconds;             /* by worker and phase kind, over all runs */
    double *lane_flops, *lane_seconds; /* by device: of the run at hand */

    /* the run at hand */
    ls_meter *meters;         /* by worker */
    double begin_seconds;     /* that bringing state to devices took */
    ls_timeline *timeline;    /* NULL: none is kept */
    uint64_t timeline_number; /* of the timeline that has its names, from this one on: */
    int names;
    uint64_t seed, run;
    bool committed;     /* with the other workers of a cluster */
    bool audits;        /* the next run is audited (audit.c): */
    int audited;        /* the lane that is computed twice; -1: none */
    int owner, auditor; /* places of the workers that do */
    uint64_t audit[2];  /* sums of hashes of what this one made of it */
    char *audit_room;   /* for a part of a join in the value's format */
    pthread_mutex_t mutex;
    ls_sleepers *sleepers; /* by device */
    int phase, done;
    int *next;              /* by device, and of any CPU: which of its queue comes next */
    atomic_int *ranges;     /* by join: ls_range of its results, as far as they are known */
    ls_last_update *before; /* by update */
    ls_lane *lane;
    int *in_flight, in_flight_count; /* lanes that are begun and not at their end */
    int *taken;                      /* by worker and number: units that it does at once */
    const ls_unit **together;        /* by worker and number: the same */
    int *complete;                   /* by worker and number: lanes whose partials are complete */
    int *next_begin;                 /* by device: which of its lanes comes next */
    int *frame_of;                   /* by device and lane; -1: it has none there */
    int *free_frames, *frame_count;  /* by device: a list of lanes' length, and how many are in it */
    ls_pool *pools;                  /* by device and segment */
    int *slot_of;     /* by segment and lane: where its partials are; -1: nowhere, or joined with others */
    int *block;       /* by segment and lane: see partials.c */
    atomic_int moved; /* changes with every progress: what spinning looks at */
    ls_error failure; /* the first in the order of units, whoever met it */
    int failed_phase, failed_unit;
};

/* ---- Making (units.c) ---- */

ls_status ls_units_make(const ls_executor *e, const ls_phase *phase, ls_phase_units *work);
void ls_units_free(ls_phase_units *work);

/* One more lane in a phase of lanes, behind the others; and without it again. */
void ls_units_add_lane(const ls_executor *e, const ls_phase *phase, ls_phase_units *work, int lane);
void ls_units_drop_lane(ls_phase_units *work, int lane);

/* ---- Running ---- */

/* A run on the crew's workers, or by the caller alone; what failed is in e->failure. */
void ls_dispatch(ls_executor *e);

/* T of a block of lanes, or of a pair of blocks, in place of its first partials. */
/* Elements of a join, from what is here of all lanes. */
ls_status ls_host_join(ls_executor *e, int join, int worker, int64_t from, int64_t to);
void ls_host_join_block(ls_executor *e, int segment, int first, int count, int worker);

/* One unit, by a CPU worker. */
ls_status ls_host_run(ls_executor *e, const ls_phase *phase, const ls_unit *unit, int worker);

/* Where an operand is in the host's memory, at a sample of a lane. */
char *ls_executor_locate(const ls_executor *e, const ls_operand *o, int worker, int lane, int64_t first);

/* The gradient of an update is not finite. */
ls_status ls_executor_not_finite(const ls_step *update);

/* The new value of a variable or slot would not be finite. */
ls_status ls_executor_overflows(const ls_variable *variable);

/* A result of a join was found to be in that range. */
void ls_executor_note_range(ls_executor *e, int join, ls_range range);

/* Copies the rows of a fed set that make up some samples next to each other, into the worker's arena. */
void ls_executor_pick_rows(ls_executor *e, const ls_operand *in, int worker, int64_t first, int64_t samples);

#endif
