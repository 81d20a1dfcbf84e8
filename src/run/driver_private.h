/* The driver's struct, shared by the driver_*.c files. */
#ifndef LS_RUN_DRIVER_PRIVATE_H
#define LS_RUN_DRIVER_PRIVATE_H

#include "run/driver.h"
#include "run/executor_private.h"
#include "run/programs.h"

struct ls_driver {
    ls_programs programs;
    const ls_placement *placement;
    ls_device *device;
    const ls_place *place;
    ls_block *block;
    ls_state **states; /* By device. */
    ls_state *state;   /* NULL: it has no variables. */
    uint64_t now;      /* Number of the current run. */
    /* By plan node: the run that copied or computed it here. */
    uint64_t *fresh;
    bool *copied;           /* By plan node: copied, not computed here. */
    uint64_t *arrived;      /* By kept value and lane: the run that copied it here. */
    ls_transfer *transfers; /* List for one call of the backend's `transfer`. */
    size_t transfer_count, transfer_room;
    ls_finite_call *checks; /* Arrays to check in one call; `finite` has the results. */
    bool *finite;
    size_t check_count, check_room, finite_room;
    void *transit;        /* Host buffer for a partial in transit. */
    ls_program_run *runs; /* Lanes that run together. */

    /* Executor and thread of the current unit: copies count as their time. */
    ls_executor *executor;
    int thread;
    double copy_start; /* Start time of the last copy. */
};

static inline const ls_plan *ls_driver_plan(const ls_driver *d)
{
    return d->placement->plan;
}

/* Address of an offset in the driver's block. */
static inline ls_memory_place ls_driver_at(const ls_driver *d, size_t offset)
{
    return (ls_memory_place){ d->block->region, d->block->offset + offset };
}

/* Adds the step's node and the device to an error message. */
ls_status ls_driver_explain(const ls_driver *d, const ls_step *step, const char *what, ls_status status);

/* Passes the status on. After a failure: drains the queue, discards later errors, and marks copies
 * as stale. Keeps computed values: the host does not have them, and lanes before the failed one
 * need them. */
ls_status ls_driver_recover(ls_driver *d, ls_status status);

/* Runs a program that belongs to no lane. */
ls_status ls_driver_run_program(const ls_driver *d, const ls_executor *e, const ls_compiled *p);

#endif
