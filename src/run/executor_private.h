/* The executor's own struct, shared by the files that run it (executor.c), make it (executor_make.c) and print where
 * its time went (executor_profile.c). */
#ifndef LS_RUN_EXECUTOR_PRIVATE_H
#define LS_RUN_EXECUTOR_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "run/driver.h"
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
    ls_placement *placement;
    ls_crew *crew;
    const ls_simd *simd;
    int workers, devices;
    int *device_of;      /* by worker */
    ls_driver **drivers; /* by device; NULL: a CPU, or it has nothing to do */
    ls_work *phases;
    int phase_count;
    ls_outside *outside;
    char *whole, *partial;
    char **arena; /* by worker: a micro-batch's values, scratch, picked rows; of a driver: picked rows alone */
    char **stage; /* by worker: the picked rows in it */
    char **kept;  /* by kept value and lane: where its first sample is in the host's memory; NULL: not there */
    ls_block *whole_block, *partial_block, **arena_block, **kept_block; /* the last two by worker and by device */
    const void ***inputs;                                               /* by worker: pointers of the step at hand */
    const void ***lanes; /* by worker: pointers of the partials at hand */
    ls_mutation mutation;
    int64_t *units_of;     /* by device */
    double *group_seconds; /* by worker and group; NULL: not measured */
    double *phase_seconds; /* by worker and phase kind, over all runs */

    /* the run at hand */
    uint64_t seed, run;
    pthread_mutex_t mutex;
    pthread_cond_t progress;
    int phase, next, done;
    atomic_bool *broken; /* by join: a result of it is not finite */
    int *claimed;        /* by unit of a LANES phase: taken */
    int *lane_done;      /* by lane: segments of this phase that are done */
    int *slot_of;        /* by lane: where its partials are (partials.c); -1: nowhere, or joined with others */
    int *block;          /* by lane: the size of the complete block that begins with it; 0: none does */
    int *free_slots, free_count;
    atomic_int moved; /* changes with every progress: what spinning looks at */
    bool waiting;
    ls_status status; /* the first failure in the order of units, whoever met it */
    int failed_phase, failed_unit;
    char message[1024];
};

/* Where an operand is in the host's memory, at a sample of a lane. */
char *ls_executor_locate(const ls_executor *e, const ls_operand *o, int worker, int lane, int64_t first);

/* The join whose result, as it is, is the gradient of an update; -1: the gradient is something else. */
int ls_executor_join_of(const ls_executor *e, const ls_step *update);

/* Copies the rows of a fed set that make up some samples next to each other, into the worker's arena. */
void ls_executor_pick_rows(ls_executor *e, const ls_operand *in, int worker, int64_t first, int64_t samples);

#endif
