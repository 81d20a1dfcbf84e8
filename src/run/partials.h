/* Partials of lanes while a level runs. Each task has a slot: memory on its device for the lane's
 * partials of the segment's reductions. Siblings of the tree on one device are joined as soon as
 * both are complete, so far fewer slots than lanes suffice (src/plan/inflight.c counts them).
 * Callers hold the executor's mutex unless stated otherwise. */
#ifndef LS_RUN_PARTIALS_H
#define LS_RUN_PARTIALS_H

#include "run/executor_private.h"

/* Begins a level: frees every slot. */
void ls_partials_begin(ls_executor *e, int first, int count);

/* Claims slots for the tasks of a lane about to start: `count` segments from `first`, on one
 * device. A free slot always exists (inflight.c). */
void ls_partials_claim(ls_executor *e, int device, int first, int count, int lane);

/* Records that a task has computed all its partials, and joins the blocks that it completes.
 * Releases the mutex while joining. */
ls_status ls_partials_complete(ls_executor *e, int segment, int lane, int thread);

/* The same for several lanes of one device whose backend joins lanes: joins each completed block in
 * one call. */
ls_status ls_partials_complete_lanes(ls_executor *e, int segment, const int *lanes, int count, int thread);

/* Discards the partials of a lane. */
void ls_partials_drop(ls_executor *e, int segment, int lane);

/* Records that a pair of blocks was joined into the slot of the first lane that has one; frees the
 * other slots. Takes the mutex itself. */
void ls_partials_merge(ls_executor *e, int segment, int first, int count);

/* Frees what the failed lane and the lanes after it hold: it is not needed any more. */
void ls_partials_fail(ls_executor *e, int first, int count, int lane);

/* Where the partials of the block that begins with this lane are. ls_partials_slot: -1 if they were
 * joined into another lane's slot or do not exist. ls_partials_of: address in host memory; NULL for
 * slot -1. ls_partials_offset: offset on a device that is not a CPU. */
int ls_partials_slot(const ls_executor *e, int segment, int lane);
char *ls_partials_of(const ls_executor *e, int segment, int lane);
size_t ls_partials_offset(const ls_executor *e, int segment, int lane);

#endif
