/* Partials of lanes while a level runs. A task has a slot: room for its lane's parts of the segment's reductions, on
 * the device that computes them. Siblings of the tree that are on one device are joined as soon as both are complete,
 * so that slots can be far fewer than lanes (inflight.c counts them). The executor's mutex is held in every call
 * but where it is said otherwise. */
#ifndef LS_RUN_PARTIALS_H
#define LS_RUN_PARTIALS_H

#include "run/executor_private.h"

/* A level begins: every slot is free. */
void ls_partials_begin(ls_executor *e, int first, int count);

/* Slots for the tasks of a lane that are about to begin: these segments, on one device. There are enough. */
void ls_partials_claim(ls_executor *e, int device, int first, int count, int lane);

/* A task has made all its parts; joins what it completes, for which the mutex is given up for a while. */
ls_status ls_partials_complete(ls_executor *e, int segment, int lane, int worker);

/* The same for several lanes of one device, whose backend joins lanes: what is complete then is joined at once. */
ls_status ls_partials_complete_lanes(ls_executor *e, int segment, const int *lanes, int count, int worker);

/* Nobody wants the parts of a lane. */
void ls_partials_drop(ls_executor *e, int segment, int lane);

/* A pair of blocks has been joined, in the slot of the first lane that has one: the others are free. Takes the mutex.
 */
void ls_partials_merge(ls_executor *e, int segment, int first, int count);

/* A lane has failed: what it and the lanes behind it have made is not needed any more. */
void ls_partials_fail(ls_executor *e, int first, int count, int lane);

/* The slot with the parts of the lanes that are joined with this one; -1: they are joined with another's, or there are
 * none. In the host's memory, and on a device of another kind. */
int ls_partials_slot(const ls_executor *e, int segment, int lane);
char *ls_partials_of(const ls_executor *e, int segment, int lane);
size_t ls_partials_offset(const ls_executor *e, int segment, int lane);

#endif
