/* A driver: runs the tasks of a device that is not a CPU, through its backend. It brings inputs to the device, runs a
 * program for each segment, and brings back what others need. One worker of the crew calls it. */
#ifndef LS_RUN_DRIVER_H
#define LS_RUN_DRIVER_H

#include "plan/placement.h"

struct ls_executor;
typedef struct ls_driver ls_driver;

/* Programs for everything that the placement gives to this device, and their memory. *out is NULL if that is nothing.
 */
ls_status ls_driver_create(const ls_placement *placement, int device, ls_driver **out);
void ls_driver_destroy(ls_driver *driver);

/* Before a run: what was brought for the run before is old. */
void ls_driver_begin(ls_driver *driver);

/* One segment for one lane; some whole steps. */
ls_status ls_driver_run_task(ls_driver *driver, struct ls_executor *e, int segment, int worker, int lane);
ls_status ls_driver_run_whole(ls_driver *driver, struct ls_executor *e, int first, int count, int worker);

#endif
