/* A driver runs the units of one device that is not a CPU: copies inputs to it, runs programs
 * (programs.c), joins partials, and copies back what others need. One thread calls it. Every unit
 * ends with a sync, so an error of queued work belongs to its unit. */
#ifndef LS_RUN_DRIVER_H
#define LS_RUN_DRIVER_H

#include "plan/placement.h"
#include "run/state.h"

struct ls_executor;
struct ls_unit;
typedef struct ls_driver ls_driver;

/* Creates programs and memory for this device's part of a placement. `states`: by device; created
 * if missing. *out is NULL if there is no work. */
ls_status ls_driver_create(const ls_placement *placement, int device, ls_state **states, ls_driver **out);
void ls_driver_destroy(ls_driver *driver);

/* ls_driver_begin, before a run: invalidates copies of the previous run and makes the state
 * current. ls_driver_commit, after it: a variable was updated here. */
ls_status ls_driver_begin(ls_driver *driver);
void ls_driver_commit(ls_driver *driver, const ls_variable *variable);

ls_status ls_driver_run(ls_driver *driver, struct ls_executor *e, const ls_phase *phase, const struct ls_unit *unit,
                        int thread);

/* Copies a lane's partials to host memory, in plans that join there. */
ls_status ls_driver_bring_home(ls_driver *driver, struct ls_executor *e, int segment, int lane);

/* Runs the same segments of different lanes, at most `together` of the place. *failed: which
 * failed, if any. */
ls_status ls_driver_run_lanes(ls_driver *driver, struct ls_executor *e, const struct ls_unit *const *units, int count,
                              int thread, int *failed);

/* Joins the partials of a block of lanes into the first that has any. */
ls_status ls_driver_join_lanes(ls_driver *driver, struct ls_executor *e, int segment, int first, int count, int thread);

/* Joins two blocks into the left one. */
ls_status ls_driver_join_siblings(ls_driver *driver, struct ls_executor *e, int segment, int left, int right);

#endif
