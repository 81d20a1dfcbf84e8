/* The executor: runs a plan's phases on a crew. A phase is a list of units of work; what a unit computes is fixed by
 * the plan, who takes it is not. Which device takes a lane's segments is the map's word, and all that a strategy says.
 */
#ifndef LS_RUN_EXECUTOR_H
#define LS_RUN_EXECUTOR_H

#include "device/thread_pool.h"
#include "plan/placement.h"
#include "run/state.h"
#include "run/timeline.h"

typedef struct ls_executor ls_executor;

/* crew NULL: everything is done by the caller. states: of the graph, by device, kept by the caller (state.h). Takes
 * plan and placement over, also when it fails. */
ls_status ls_executor_create(ls_plan *plan, ls_placement *placement, ls_thread_pool *crew, ls_state **states,
                             ls_executor **out);
void ls_executor_destroy(ls_executor *executor);
ls_plan *ls_executor_plan(ls_executor *executor);
const ls_placement *ls_executor_placement(const ls_executor *executor);

/* Where values that come from outside are, by plan node; set those of fed inputs, constants and variables before a run.
 */
typedef struct ls_external {
    const void *data;
    const int64_t *rows; /* sample i is row rows[i] of the data; NULL: row i */
} ls_external;
ls_external *ls_executor_outside(ls_executor *executor);

/* One run, up to the point where everything is known to be good: updates are done, assignments are not. Variables that
 * CPUs read or write must be in the host's memory. */
ls_status ls_executor_run(ls_executor *executor, uint64_t seed, uint64_t run);

/* After a good run: variables have their new values. */
void ls_executor_commit(ls_executor *executor);

/* After a run: where a whole value is; a copy of a fetched one, sample by sample where it has samples. */
const void *ls_executor_operand(ls_executor *executor, const ls_operand *operand);
void ls_executor_copy_value(ls_executor *executor, int value, void *to);

/* Counts for tests: units done by each device in the last run. */
int64_t ls_executor_units_of(const ls_executor *executor, int device);

/* Where the time goes, summed over runs and workers: seconds by phase kind and, most expensive first, by group. */
void ls_executor_profile(ls_executor *executor, bool on);
ls_status ls_executor_print_profile(const ls_executor *executor, ls_text *text);

/* Where the last run's time went on a device, in seconds: of its average worker. */
typedef struct ls_device_seconds {
    double busy;    /* computing: tasks of lanes, values of the whole batch, weights in their kernels' formats */
    double lanes;   /* of it: tasks of lanes */
    double joins;   /* joins, checks and updates, with the waiting among them */
    double copies;  /* of both: copying from and to other devices */
    double between; /* of copies: from another device, through the host or not; one device alone would make none */
    double idle;    /* nothing to do while lanes were under way */
    double waiting; /* all the waiting, */
    double present; /* of all the time that it took part */
} ls_device_seconds;
void ls_executor_add_seconds(const ls_executor *executor, ls_device_seconds *by_device);

/* Time that all runs so far took for joins, checks and updates: of the average worker. */
double ls_executor_join_seconds(const ls_executor *executor);

/* The next run of a worker of a cluster is audited: see audit.h. */
void ls_executor_audit(ls_executor *executor);

/* Tests make the tree, or a bit of each partial, wrong with these, to see that it is noticed. */
typedef enum ls_mutation {
    LS_MUTATE_NOTHING,
    LS_MUTATE_SWAP,
    LS_MUTATE_ARRIVAL,
    LS_MUTATE_BIT,
    LS_MUTATE_LAST_BIT
} ls_mutation;
void ls_executor_mutate(ls_executor *executor, ls_mutation mutation);

#endif
