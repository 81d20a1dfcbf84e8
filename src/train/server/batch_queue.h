/* The batches of a job with parameter servers, dealt out by the chief as numbers. Each is dealt out once, to whoever
 * asks next; what a lost worker had goes to the next that asks. Nobody gets a batch beyond the limit, so that the chief
 * can let all come to an end: of an epoch, or for a checkpoint.
 *
 * Calls may come from any thread; `give` is called with the dealer's mutex held. */
#ifndef LS_TRAIN_SERVER_BATCH_QUEUE_H
#define LS_TRAIN_SERVER_BATCH_QUEUE_H

#include "base/status.h"

typedef struct ls_dealer ls_dealer;

/* ordinal: the number of the batch, of all batches of the job. */
typedef void (*ls_dealer_give)(void *user, int rank, int64_t ordinal);

/* first: the ordinal that is dealt out first. */
ls_status ls_dealer_make(int processes, int64_t first, ls_dealer_give give, void *user, ls_dealer **out);
void ls_dealer_free(ls_dealer *dealer);

/* Batches below `limit` may be dealt out. */
void ls_dealer_set_limit(ls_dealer *dealer, int64_t limit);
/* No more than those that were dealt out already; returns the limit that this is. */
int64_t ls_dealer_stop(ls_dealer *dealer);

/* A process wants one more batch; it is given one now, or when there is one. number: of its asks, from 1 on; who is
 * not sure that an ask was heard repeats it with its number, and gets one batch for it. */
ls_status ls_dealer_ask(ls_dealer *dealer, int rank, int64_t number);
/* It has computed one. false: that was not its own (any more); it does not count. */
bool ls_dealer_done(ls_dealer *dealer, int rank, int64_t ordinal);
/* It is lost: what it had goes to others. */
void ls_dealer_lose(ls_dealer *dealer, int rank);

/* Whether all batches below the limit are done. */
bool ls_dealer_is_done(ls_dealer *dealer);

#endif
