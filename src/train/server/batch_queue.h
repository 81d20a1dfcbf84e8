/* The batches of a job with parameter servers, dealt out by the chief as numbers. Each is dealt out once, to whoever
 * asks next; what a lost worker had goes to the next that asks. Nobody gets a batch beyond the limit, so that the chief
 * can let all come to an end: of an epoch, or for a checkpoint.
 *
 * Calls may come from any thread; `give` is called with the dealer's mutex held. */
#ifndef LS_TRAIN_SERVER_BATCH_QUEUE_H
#define LS_TRAIN_SERVER_BATCH_QUEUE_H

#include "base/status.h"

typedef struct ls_batch_queue ls_batch_queue;

/* ordinal: the number of the batch, of all batches of the job. */
typedef void (*ls_batch_queue_give)(void *user, int rank, int64_t ordinal);

/* first: the ordinal that is dealt out first. */
ls_status ls_batch_queue_make(int processes, int64_t first, ls_batch_queue_give give, void *user, ls_batch_queue **out);
void ls_batch_queue_free(ls_batch_queue *dealer);

/* Batches below `limit` may be dealt out. */
void ls_batch_queue_set_limit(ls_batch_queue *dealer, int64_t limit);
/* No more than those that were dealt out already; returns the limit that this is. */
int64_t ls_batch_queue_stop(ls_batch_queue *dealer);

/* A process wants one more batch; it is given one now, or when there is one. number: of its asks, from 1 on; who is
 * not sure that an ask was heard repeats it with its number, and gets one batch for it. */
ls_status ls_batch_queue_ask(ls_batch_queue *dealer, int rank, int64_t number);
/* It has computed one. false: that was not its own (any more); it does not count. */
bool ls_batch_queue_done(ls_batch_queue *dealer, int rank, int64_t ordinal);
/* It is lost: what it had goes to others. */
void ls_batch_queue_lose(ls_batch_queue *dealer, int rank);

/* Whether all batches below the limit are done. */
bool ls_batch_queue_is_done(ls_batch_queue *dealer);

#endif
