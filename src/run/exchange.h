/* Data that the workers of a cluster send each other within a run. */
#ifndef LS_RUN_EXCHANGE_H
#define LS_RUN_EXCHANGE_H

#include "run/executor_private.h"

/* Memory on a device for what other workers send, and its size. */
ls_status ls_exchange_create(const ls_plan *plan, struct ls_peers *peers, ls_memory *device, ls_exchange **out);
ls_status ls_exchange_bytes(const ls_plan *plan, struct ls_peers *peers, size_t *out);
void ls_exchange_destroy(ls_exchange *exchange);

/* After the lanes of a level: sends subtrees and rows of gathered batches to all. */
ls_status ls_exchange_level(ls_executor *e, const ls_phase *phase, int thread);

/* After all levels: sends samples of fetched values. */
ls_status ls_exchange_fetches(ls_executor *e);

/* Shared joins: sends each part to the worker that joins it, and the result to all. */
ls_status ls_exchange_reduce(ls_executor *e, const ls_phase *phase, int thread);

/* Late joins. ls_exchange_post starts sending this level's partials and the previous level's
 * results; ls_exchange_settle waits for them. */
ls_status ls_exchange_post(ls_executor *e, int level);
ls_status ls_exchange_settle(ls_executor *e, int level);

/* Makes progress without blocking; nothing for NULL. */
void ls_exchange_move_on(ls_exchange *exchange);

/* Sends the hashes of the audited lane to all. */
ls_status ls_exchange_audit(ls_executor *e, uint64_t found[2][2]);

/* Returns when all workers have finished this run with the same results. */
ls_status ls_exchange_commit(ls_executor *e);

/* See `received` of the executor. */
char *const *ls_exchange_received(const ls_exchange *exchange);

#endif
