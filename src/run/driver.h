/* A driver: does the units of a device that is not a CPU, through its backend. It brings inputs to the device, runs
 * programs (programs.c makes them), joins partials there, and brings back what others need. One worker of the crew
 * calls it. Every unit ends in a sync, so that an error of queued work belongs to its unit. */
#ifndef LS_RUN_DRIVER_H
#define LS_RUN_DRIVER_H

#include "plan/placement.h"
#include "run/state.h"

struct ls_executor;
struct ls_unit;
typedef struct ls_driver ls_driver;

/* Programs for everything that the placement gives to this device, and their memory. states: by device; of this one it
 * is made when it is not there yet. *out is NULL if there is nothing to do. */
ls_status ls_driver_create(const ls_placement *placement, int device, ls_state **states, ls_driver **out);
void ls_driver_destroy(ls_driver *driver);

/* Before a run: what was brought for the run before is old; state is made current. After a good one: a variable
 * was updated here. */
ls_status ls_driver_begin(ls_driver *driver);
void ls_driver_commit(ls_driver *driver, const ls_variable *variable);

ls_status ls_driver_run(ls_driver *driver, struct ls_executor *e, const ls_phase *phase, const struct ls_unit *unit,
                        int worker);

/* A lane's partials of a segment to the host's room for them, which a plan that joins at home has. */
ls_status ls_driver_bring_home(ls_driver *driver, struct ls_executor *e, int segment, int lane);

/* Several units of a phase of lanes, at most as many as the place runs together: the same segments of different lanes,
 * which are all here. *failed: which of them did, if one did. */
ls_status ls_driver_run_lanes(ls_driver *driver, struct ls_executor *e, const struct ls_unit *const *units, int count,
                              int worker, int *failed);

/* The partials of a block of lanes that are all here become one, at the first that has any. */
ls_status ls_driver_join_lanes(ls_driver *driver, struct ls_executor *e, int segment, int first, int count, int worker);

/* The partials of two blocks of lanes that are both here become one, at the left one's. */
ls_status ls_driver_join_siblings(ls_driver *driver, struct ls_executor *e, int segment, int left, int right);

#endif
