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
 * `thread` is an index in `thread_pool`. Backends call it `worker`. */
#ifndef LS_RUN_EXECUTOR_PRIVATE_H
#define LS_RUN_EXECUTOR_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "run/driver.h"
#include "run/executor.h"

/* A piece of work of a phase. */
typedef struct ls_unit {
    int device; /* Device that must run it; -1: any CPU. */
    /* Step, join, prepared weight, update or pair's segment; in a phase of lanes the first
     * segment. */
    int index;
    int count; /* Segments, steps or updates; lanes in a pair of blocks. */
    int lane;
    int64_t from, to; /* Range of elements. */
    double flops;     /* FLOPs of a lane's unit; 0 for other units. */
} ls_unit;

/* Units of a phase. In a phase of lanes they are sorted by lane, a lane's units from device to
 * device. */
typedef struct ls_phase_units {
    ls_unit *units;
    int count;
    int *first, *end;           /* By lane: its units are first[lane] .. end[lane] - 1. */
    int *visits, *visits_first; /* By lane: devices on which it needs a frame. */
    /* By device: lanes that visit it, in order, starting at device * lanes. */
    int *order, *order_end;
    /* Other phases, by device: indices of its units; the last queue is for any CPU. */
    int *queue, *queue_first;
} ls_phase_units;

/* Progress of a lane in a phase of lanes. */
typedef struct ls_lane {
    bool begun, running;
    int done; /* Number of units that are done. */
} ls_lane;

/* Seconds of one thread in the current run: see ls_device_seconds. One cache line each. */
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

/* A CPU update in the previous run: its state is LS_RANGE_SAFE while it has these versions. */
typedef struct ls_last_update {
    uint64_t versions[LS_MAX_WRITES]; /* 0: the state is not known to be safe. */
    /* The current run wrote a number that is not LS_RANGE_SAFE. */
    atomic_bool large;
} ls_last_update;

struct ls_executor {
    ls_plan *plan;
    ls_placement *placement;
    ls_thread_pool *thread_pool;
    int threads, devices;
    int *device_of;      /* By thread. */
    bool *wanted;        /* By thread: its device takes part. */
    ls_driver **drivers; /* By device; NULL: a CPU, or a device without work. */
    ls_phase_units *phases;
    int phase_count;
    ls_external *external;
    char *whole;
    char **kept, **frames, **partials; /* By device; NULL: not in host memory. */
    /* By thread: micro-batch values, scratch, picked rows; a driver's thread has only picked
     * rows. */
    char **arena;
    char **staging; /* By thread: the picked rows in its arena. */
    ls_block *whole_block, **arena_block, **kept_block, **frame_block, **partial_block;
    const void ***inputs; /* By thread: input pointers of the current step. */
    const void ***lanes;  /* By thread: pointers to the partials being joined. */
    /* By thread that drives a device: the same addresses on that device. */
    ls_memory_place **places;
    ls_state **states;     /* State of the graph by device; owned by ls_runs. */
    ls_exchange *exchange; /* Exchange with other workers of a cluster; NULL: no cluster. */
    /* By join and lane: the partial that another worker sent for the subtree that begins with the
     * lane; NULL: none. NULL without a cluster; owned by `exchange`. */
    char *const *received;
    ls_mutation mutation;
    double *group_seconds;             /* By thread and group; NULL: not measured. */
    double *phase_seconds;             /* By thread and phase kind, summed over all runs. */
    double *lane_flops, *lane_seconds; /* By device, in the current run. */

    /* The current run. */
    ls_meter *meters;      /* By thread. */
    double begin_seconds;  /* Time to bring the state to the devices. */
    ls_timeline *timeline; /* NULL: no timeline is recorded. */
    /* The timeline that has this executor's names, from index `names` on. */
    uint64_t timeline_number;
    int names;
    uint64_t seed, run;
    bool committed; /* All workers of the cluster have committed this run. */
    bool audits;    /* The next run is audited (audit.c). */
    int audited;    /* The lane that two workers compute; -1: none. */
    /* Places, among the members, of the two workers that compute it. */
    int owner, auditor;
    uint64_t audit[2];  /* Sum of hashes of what this worker computed for it. */
    char *audit_buffer; /* Buffer for a partial of a join, in the value's format. */
    pthread_mutex_t mutex;
    ls_sleepers *sleepers; /* By device. */
    int phase, done;
    int *next;                    /* By device, then for any CPU: position in its queue. */
    atomic_int *ranges;           /* By join: largest ls_range found in its results so far. */
    ls_last_update *last_updates; /* By update. */
    ls_lane *lane;
    int *in_flight, in_flight_count; /* Lanes that have begun and not ended. */
    int *taken;                      /* By thread and position: units that it runs together. */
    const ls_unit **together;        /* By thread and position: pointers to the same units. */
    /* By thread and position: lanes whose partials are complete. */
    int *complete;
    int *next_begin; /* By device: position of its next lane in `order`. */
    int *frame_of;   /* By device and lane: index of its frame; -1: none. */
    /* By device: stack of free frames (room for `lanes`), and its height. */
    int *free_frames, *frame_count;
    ls_pool *pools; /* By device and segment. */
    /* By segment and lane: slot of its partials; -1: none, or joined into another lane's. */
    int *slot_of;
    int *block;          /* By segment and lane: see partials.c. */
    atomic_int progress; /* Increases with every progress; spinning threads poll it. */
    /* The first failure in the order of units. */
    ls_error failure;
    int failed_phase, failed_unit;
};

/* ---- Create units (units.c) ---- */

ls_status ls_units_make(const ls_executor *e, const ls_phase *phase, ls_phase_units *work);
void ls_units_free(ls_phase_units *work);

/* Adds a lane after all others of a phase of lanes, and removes it. */
void ls_units_add_lane(const ls_executor *e, const ls_phase *phase, ls_phase_units *work, int lane);
void ls_units_drop_lane(ls_phase_units *work, int lane);

/* ---- Run ---- */

/* Runs all phases, on the thread pool or on the calling thread. Leaves the error in e->failure. */
void ls_dispatch(ls_executor *e);

ls_status ls_host_run(ls_executor *e, const ls_phase *phase, const ls_unit *unit, int thread);

/* Reports that the gradient of an update is not finite. */
ls_status ls_executor_not_finite(const ls_step *update);

/* Reports that the new value of a variable or slot would not be finite. */
ls_status ls_executor_overflows(const ls_variable *variable);

/* ---- Host memory (addresses.c) ---- */

/* Address of an operand, at sample `first` of a lane. */
char *ls_executor_locate(const ls_executor *e, const ls_operand *o, int thread, int lane, int64_t first);

/* Address of the first sample of a lane's kept value: in its frame, or among those of the batch. */
char *ls_executor_kept(const ls_executor *e, size_t kept, int lane);

/* Copies the rows of consecutive samples of a fed data set into the thread's arena. */
void ls_executor_pick_rows(ls_executor *e, const ls_operand *in, int thread, int64_t first, int64_t samples);

#endif
