/* The executor runs a plan's phases on a thread pool. The plan fixes what a unit of a phase
 * computes, but not which thread runs it. The map decides which device runs the segments of a
 * lane. */
#ifndef LS_RUN_EXECUTOR_H
#define LS_RUN_EXECUTOR_H

#include "device/thread_pool.h"
#include "plan/placement.h"
#include "run/state.h"
#include "run/timeline.h"

typedef struct ls_executor ls_executor;

/* Takes ownership of plan and placement, even on failure; the caller keeps `states` (state.h).
 * thread_pool NULL: the calling thread does all work. */
ls_status ls_executor_create(ls_plan *plan, ls_placement *placement, ls_thread_pool *thread_pool, ls_state **states,
                             ls_executor **out);
void ls_executor_destroy(ls_executor *executor);
ls_plan *ls_executor_plan(ls_executor *executor);
const ls_placement *ls_executor_placement(const ls_executor *executor);

/* Addresses of fed inputs, constants and variables, by plan node. Set them before each run. */
typedef struct ls_external {
    const void *data;
    const int64_t *rows; /* Sample i is row rows[i] of the data; NULL: row i. */
} ls_external;
ls_external *ls_executor_external(ls_executor *executor);

/* Runs all phases of the plan. On success all results are finite and updates are written, but
 * assigned values are not yet copied to their variables (ls_executor_commit). Variables that CPUs
 * read or write must be in host memory. */
ls_status ls_executor_run(ls_executor *executor, uint64_t seed, uint64_t run);

/* After a successful run: makes updated and assigned values current. */
void ls_executor_commit(ls_executor *executor);

/* Copies a fetched value. */
void ls_executor_copy_value(ls_executor *executor, int value, void *to);

/* Times of ops and kernels, and of other work, over runs and threads of any executors. */
typedef struct ls_profile ls_profile;
ls_status ls_profile_make(ls_profile **out);
void ls_profile_free(ls_profile *profile);
/* Measures all runs of the executor from now on. */
ls_status ls_executor_profile(ls_executor *executor);
/* Adds what a profiled executor measured since the last call. */
ls_status ls_profile_add(ls_profile *profile, ls_executor *executor);
/* Adds a table; nothing if nothing was measured. */
ls_status ls_profile_print(const ls_profile *profile, ls_text *text);

/* Seconds of the last run on a device, as the average over its threads. */
typedef struct ls_device_seconds {
    /* Tasks of lanes, whole values, and preparing weights. */
    double busy;
    double lanes;  /* The part of `busy` for tasks of lanes. */
    double joins;  /* Joins, checks and updates, including waiting between them. */
    double copies; /* The part of busy and joins that is copying. */
    /* The part of copies that comes from another device. */
    double between;
    double idle;    /* Waiting for a unit during phases of lanes. */
    double waiting; /* All waiting. */
    double present; /* Total time in the run. */
} ls_device_seconds;
void ls_executor_add_seconds(const ls_executor *executor, ls_device_seconds *by_device);

/* Time of joins, checks and updates so far, averaged over threads. */
double ls_executor_join_seconds(const ls_executor *executor);

/* Audits the next run, in a cluster: see audit.h. */
void ls_executor_audit(ls_executor *executor);

/* Deliberate errors for tests: in the order of the tree, or in one bit of each partial. */
typedef enum ls_mutation {
    LS_MUTATE_NOTHING,
    LS_MUTATE_SWAP,
    LS_MUTATE_ARRIVAL,
    LS_MUTATE_BIT,
    LS_MUTATE_LAST_BIT
} ls_mutation;
void ls_executor_mutate(ls_executor *executor, ls_mutation mutation);

#endif
