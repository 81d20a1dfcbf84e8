/* The executor's struct, shared by the files of src/run that create and run executors:
 *   executor.c    creates and destroys an executor; public entry of a run
 *   units.c       lists the units of each phase
 *   dispatcher.c  decides which thread runs which unit and when; handles failures
 *   host.c        runs units on CPU threads, with host_joins.c
 *   addresses.c   addresses of values in host memory
 *   driver.c      runs units on other devices, with driver_copies.c, driver_joins.c and
 *                 driver_updates.c
 *   partials.c    slots of lanes, and joins of siblings
 *   audit.c       compares a lane that two workers of a cluster compute
 *
 * `thread` is an index in `thread_pool`. */
#ifndef LS_RUN_EXECUTOR_PRIVATE_H
#define LS_RUN_EXECUTOR_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "run/driver.h"
#include "run/executor.h"

typedef struct ls_unit {
    int device; /* Device that must run it; -1: any CPU. */
    /* Index of the segment (the first one in a phase of lanes), step or update. */
    int index;
    int count; /* Segments, steps or updates; lanes in a pair of blocks. */
    int lane;
    int64_t from, to; /* Range of elements. */
    double flops;     /* 0 except for units of lanes. */
} ls_unit;

/* Units of a phase; those of lanes are sorted by lane, then from device to device. */
typedef struct ls_phase_units {
    ls_unit *units;
    int count;
    int *first, *end;           /* By lane: range of its units. */
    int *visits, *visits_first; /* By lane: devices on which it needs a frame. */
    /* By device: lanes that visit it, from device * lanes on. */
    int *order, *order_end;
    /* Other phases, by device: its units; the last queue is for any CPU. */
    int *queue, *queue_first;
} ls_phase_units;

typedef struct ls_lane {
    bool begun, running;
    int done;
} ls_lane;

/* One thread's ls_device_seconds. One cache line each. */
typedef struct ls_meter {
    double busy, joins, copies, between, lanes, idle, waiting, present;
} ls_meter;

/* Threads of a device that sleep until there is progress. */
typedef struct ls_sleepers {
    pthread_cond_t wake;
    int count;
} ls_sleepers;

/* Free slots of a segment on a device. */
typedef struct ls_pool {
    int *free, count;
} ls_pool;

typedef struct ls_exchange ls_exchange;

/* The state of a CPU update is LS_RANGE_SAFE while it has these versions. */
typedef struct ls_last_update {
    uint64_t versions[LS_MAX_WRITES]; /* 0: not known to be safe. */
    /* The run wrote a number that is not LS_RANGE_SAFE. */
    atomic_bool large;
} ls_last_update;

/* Measured for a profile. */
typedef struct ls_op_time {
    double seconds, flops;
    int64_t calls;
} ls_op_time;

struct ls_executor {
    ls_plan *plan;
    ls_placement *placement;
    ls_thread_pool *thread_pool;
    int threads, devices;
    int *device_of;      /* By thread. */
    bool *wanted;        /* By thread: its device takes part. */
    ls_driver **drivers; /* By device; NULL: a CPU, or no work. */
    ls_phase_units *phases;
    int phase_count;
    ls_external *external;
    ls_variable **written; /* Variables that updates and assignments write. */
    size_t written_count;
    bool is_prepared; /* Prepared weights are those of the last run, and still valid. */
    char *whole;
    char **kept, **frames, **partials; /* By device; NULL: not in host memory. */
    /* By thread: micro-batch values, scratch, picked rows; for drivers picked rows alone. */
    char **arena;
    char **staging; /* By thread: picked rows. */
    ls_block *whole_block, **arena_block, **kept_block, **frame_block, **partial_block;
    const void ***inputs; /* By thread: inputs of the current step. */
    const void ***lanes;  /* By thread: the partials being joined. */
    /* By thread of a driver: the same on its device. */
    ls_memory_place **places;
    ls_state **states;     /* By device; owned by ls_runs. */
    ls_exchange *exchange; /* NULL: no cluster. */
    /* By join and lane: the received partial of the subtree that begins with the lane; NULL: none.
     * Owned by `exchange`; NULL: no cluster. */
    char *const *received;
    ls_mutation mutation;
    ls_op_time *group_times;           /* By thread and group; NULL: not measured. */
    ls_op_time *segment_times;         /* By thread of a driver and segment; NULL: not measured. */
    double profiled[LS_PHASE_KINDS];   /* Sums of phase_seconds that a profile already has. */
    double *phase_seconds;             /* By thread and phase kind, over all runs. */
    double *lane_flops, *lane_seconds; /* By device. */

    /* The current run. */
    ls_meter *meters;      /* By thread. */
    double begin_seconds;  /* Time to copy the state to devices. */
    ls_timeline *timeline; /* NULL: not recorded. */
    /* The timeline with this executor's names, from index `names` on. */
    uint64_t timeline_number;
    int names;
    uint64_t seed, run;
    bool committed; /* All workers have committed this run. */
    bool writes;    /* ls_writes_begin was called for this run. */
    bool audits;    /* The next run is audited (audit.c). */
    int audited;    /* The lane that two workers compute; -1: none. */
    /* Places of the two workers among the members. */
    int owner, auditor;
    uint64_t audit[2];  /* Sum of hashes of this worker's partials. */
    char *audit_buffer; /* For a partial in the value's format. */
    pthread_mutex_t mutex;
    ls_sleepers *sleepers; /* By device. */
    int phase, done;
    int *next;                    /* By device, then for any CPU: position in its queue. */
    atomic_int *ranges;           /* By join: largest ls_range so far. */
    ls_last_update *last_updates; /* By update. */
    ls_lane *lane;
    int *in_flight, in_flight_count; /* Lanes begun and not ended. */
    int *taken;                      /* By thread and position: units to run together. */
    const ls_unit **together;        /* Pointers to the same units. */
    /* By thread and position: lanes whose partials are complete. */
    int *complete;
    int *next_begin; /* By device: position in `order`. */
    int *frame_of;   /* By device and lane; -1: none. */
    /* By device: stack of free frames, and its height. */
    int *free_frames, *frame_count;
    ls_pool *pools; /* By device and segment. */
    /* By segment and lane; -1: none, or joined into another lane's. */
    int *slot_of;
    int *block;          /* By segment and lane: see partials.c. */
    atomic_int progress; /* Counts progress; spinning threads poll it. */
    /* The first failure in the order of units. */
    ls_error failure;
    int failed_phase, failed_unit;
};

/* ---- Create units (units.c) ---- */

ls_status ls_units_make(const ls_executor *e, const ls_phase *phase, ls_phase_units *work);
void ls_units_free(ls_phase_units *work);

/* Add a lane after all others of a phase, and remove it. */
void ls_units_add_lane(const ls_executor *e, const ls_phase *phase, ls_phase_units *work, int lane);
void ls_units_drop_lane(ls_phase_units *work, int lane);

/* ---- Run ---- */

/* Before the first write of a run to the memory of variables; does nothing at later calls. */
ls_status ls_executor_begin_writes(ls_executor *e);

/* Runs all phases. Leaves the error in e->failure. */
void ls_dispatch(ls_executor *e);

ls_status ls_host_run(ls_executor *e, const ls_phase *phase, const ls_unit *unit, int thread);

/* Errors: a gradient is not finite; a new value would not be. */
ls_status ls_executor_not_finite(const ls_step *update);

ls_status ls_executor_overflows(const ls_variable *variable);

/* ---- Host memory (addresses.c) ---- */

/* Address of an operand, at sample `first` of a lane. */
char *ls_executor_locate(const ls_executor *e, const ls_operand *o, int thread, int lane, int64_t first);

/* First sample of a lane's kept value, in its frame or among those of the batch. */
char *ls_executor_kept(const ls_executor *e, size_t kept, int lane);

/* Copies rows of consecutive samples to the thread's staging memory. */
void ls_executor_pick_rows(ls_executor *e, const ls_operand *in, int thread, int64_t first, int64_t samples);

#endif
