/* The executor's own struct, shared by the files that run it (executor.c), make it (executor_make.c) and print where
 * its time went (executor_profile.c). */
#ifndef LS_RUN_EXECUTOR_PRIVATE_H
#define LS_RUN_EXECUTOR_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "run/executor.h"

/* A piece of a phase. */
typedef struct ls_unit {
    int device; /* that must take it; -1: any */
    int index;  /* of a step, join, prepared weight or update; of the first segment of a lane's run */
    int count;  /* segments */
    int lane;
    int64_t from, to; /* elements */
} ls_unit;

typedef struct ls_work {
    ls_unit *units;
    int count;
} ls_work;

struct ls_executor {
    ls_plan *plan;
    ls_crew *crew;
    const ls_simd *simd;
    int workers, devices;
    int *device_of; /* by worker */
    ls_work *phases;
    int phase_count;
    ls_outside *outside;
    size_t *stage; /* by plan node: where rows picked from a fed input go, in a worker's arena behind scratch */
    char *whole, *kept, *partial, **arena; /* arena: by worker: a micro-batch's values, then scratch */
    const void ***inputs;                  /* by worker: pointers of the step at hand */
    const void ***lanes;                   /* by worker: pointers of the partials at hand */
    ls_mutation mutation;
    int64_t *units_of;     /* by device */
    double *group_seconds; /* by worker and group; NULL: not measured */
    double *phase_seconds; /* by worker and phase kind, over all runs */

    /* the run at hand */
    uint64_t seed, run;
    pthread_mutex_t mutex;
    pthread_cond_t progress;
    int phase, next, done;
    int *claimed;     /* by unit of a LANES phase: taken */
    int *lane_done;   /* by lane: segments of this phase that are done */
    atomic_int moved; /* changes with every progress: what spinning looks at */
    bool waiting;
    ls_status status; /* the first failure in the order of units, whoever met it */
    int failed_phase, failed_unit;
    char message[1024];
};

#endif
