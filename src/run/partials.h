/* Partials of lanes while a level runs. Each task has a slot: memory on its device for its
 * partials. Siblings of the tree on one device are joined as soon as both are complete, so far
 * fewer slots than lanes suffice (src/plan/inflight.c). Callers hold the executor's mutex unless
 * stated otherwise. */
#ifndef LS_RUN_PARTIALS_H
#define LS_RUN_PARTIALS_H

#include "run/executor_private.h"

/* Begins a level: frees every slot. */
void ls_partials_begin(ls_executor *e, int first, int count);

/* Claims slots for a lane about to start: `count` segments from `first`, on one device. A free slot
 * always exists. */
void ls_partials_claim(ls_executor *e, int device, int first, int count, int lane);

/* Joins the blocks that a finished task completes. Releases the mutex meanwhile. */
ls_status ls_partials_complete(ls_executor *e, int segment, int lane, int thread);

/* The same for several lanes of a device whose backend joins lanes: one call for each block. */
ls_status ls_partials_complete_lanes(ls_executor *e, int segment, const int *lanes, int count, int thread);

void ls_partials_drop(ls_executor *e, int segment, int lane);

/* Records that blocks were joined into the slot of the first lane that has one; frees the others.
 * Takes the mutex itself. */
void ls_partials_merge(ls_executor *e, int segment, int first, int count);

/* Frees what the failed lane and later lanes hold. */
void ls_partials_fail(ls_executor *e, int first, int count, int lane);

/* Location of the block that begins with this lane. ls_partials_slot: -1 if it was joined into
 * another lane's or does not exist. ls_partials_of: in host memory; NULL for slot -1.
 * ls_partials_offset: on another device. */
int ls_partials_slot(const ls_executor *e, int segment, int lane);
char *ls_partials_of(const ls_executor *e, int segment, int lane);
size_t ls_partials_offset(const ls_executor *e, int segment, int lane);

#endif
