/* A driver runs the units of one device that is not a CPU, through its backend: it copies inputs to
 * the device, runs programs (programs.c), joins partials there, and copies back what others need.
 * One thread of the pool calls it. Every unit ends with a sync, so an error of queued work belongs
 * to its unit. */
#ifndef LS_RUN_DRIVER_H
#define LS_RUN_DRIVER_H

#include "plan/placement.h"
#include "run/state.h"

struct ls_executor;
struct ls_unit;
typedef struct ls_driver ls_driver;

/* Creates the programs and memory for what the placement assigns to this device. `states`: by
 * device; this device's is created if missing. Sets *out to NULL if there is no work. */
ls_status ls_driver_create(const ls_placement *placement, int device, ls_state **states, ls_driver **out);
void ls_driver_destroy(ls_driver *driver);

/* ls_driver_begin, before a run: invalidates what was copied for the previous run and makes the
 * state current. ls_driver_commit, after a successful run: a variable was updated here. */
ls_status ls_driver_begin(ls_driver *driver);
void ls_driver_commit(ls_driver *driver, const ls_variable *variable);

ls_status ls_driver_run(ls_driver *driver, struct ls_executor *e, const ls_phase *phase, const struct ls_unit *unit,
                        int thread);

/* Copies a lane's partials of a segment to host memory; only in plans that join on the host. */
ls_status ls_driver_bring_home(ls_driver *driver, struct ls_executor *e, int segment, int lane);

/* Runs several units of a phase of lanes: the same segments of different lanes, all on this device,
 * at most `together` of the place. *failed: which of them failed, if any. */
ls_status ls_driver_run_lanes(ls_driver *driver, struct ls_executor *e, const struct ls_unit *const *units, int count,
                              int thread, int *failed);

/* Joins the partials of a block of lanes, all on this device, into the first lane that has any. */
ls_status ls_driver_join_lanes(ls_driver *driver, struct ls_executor *e, int segment, int first, int count, int thread);

/* Joins the partials of two blocks on this device into those of the left block. */
ls_status ls_driver_join_siblings(ls_driver *driver, struct ls_executor *e, int segment, int left, int right);

#endif
