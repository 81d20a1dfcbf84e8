/* What workers of a cluster give each other within a run. */
#ifndef LS_RUN_EXCHANGE_H
#define LS_RUN_EXCHANGE_H

#include "run/executor_private.h"

/* Room for what other workers send in a run of this plan, in a device's memory; the bytes of it. */
ls_status ls_exchange_create(const ls_plan *plan, struct ls_peers *peers, ls_memory *device, ls_exchange **out);
ls_status ls_exchange_bytes(const ls_plan *plan, struct ls_peers *peers, size_t *out);
void ls_exchange_destroy(ls_exchange *exchange);

/* The lanes of a level are done: subtrees of its joins, and rows of gathered batches, from each worker to all. */
ls_status ls_exchange_level(ls_executor *e, const ls_phase *phase, int worker);

/* All levels are: samples of fetched values. */
ls_status ls_exchange_fetches(ls_executor *e);

/* Joins that workers share out: parts to who joins them, and what is joined to all. */
ls_status ls_exchange_reduce(ls_executor *e, const ls_phase *phase, int worker);

/* Of late joins: this level's parts, and what was joined of the last level's, go to others while lanes are computed;
 * what was posted before is here. */
ls_status ls_exchange_post(ls_executor *e, int level);
ls_status ls_exchange_settle(ls_executor *e, int level);

/* Moves what can be moved at once of what was posted. NULL: there are no others. */
void ls_exchange_move_on(ls_exchange *exchange);

/* What owner and auditor of the audited lane have made of it goes to all. */
ls_status ls_exchange_audit(ls_executor *e, uint64_t found[2][2]);

/* All workers have all of this run, and the same. */
ls_status ls_exchange_commit(ls_executor *e);

/* The part of a join that came for the subtree which begins with this lane; NULL: none did. */
char *ls_exchange_received(const ls_exchange *exchange, const ls_plan *plan, int join, int lane);

#endif
