/* Partials of lanes while a level runs. A lane at work has a slot: room for its parts of the level's reductions.
 * Siblings of the tree are joined as soon as both are there, so that slots can be far fewer than lanes; the last joins
 * are left to the phase that does them in chunks, on all workers. The executor's mutex is held in every call. */
#ifndef LS_RUN_PARTIALS_H
#define LS_RUN_PARTIALS_H

#include "run/executor_private.h"

/* A level begins: every slot is free. */
void ls_partials_begin(ls_executor *e);

/* A slot for a lane that begins; false: there is none now, but there will be. */
bool ls_partials_claim(ls_executor *e, int lane);

/* A lane has all its parts; joins what it completes, for which the mutex is given up for a while. */
void ls_partials_complete(ls_executor *e, int lane, int level);

/* A lane has failed: what it and the lanes behind it have made is not needed any more. */
void ls_partials_fail(ls_executor *e, int lane);

/* The parts of the lanes that are joined in this lane's slot; NULL: its own are joined in another's, or it has none. */
char *ls_partials_of(const ls_executor *e, int lane);

#endif
