/* The chief's queue of batches. Hands each batch below a limit, as a number, to the next worker
 * that asks, and batches of a lost worker again. Thread-safe; `give` is called with the queue's
 * mutex held. */
#ifndef LS_TRAIN_SERVER_BATCH_QUEUE_H
#define LS_TRAIN_SERVER_BATCH_QUEUE_H

#include "base/status.h"

typedef struct ls_batch_queue ls_batch_queue;

/* ordinal: number of the batch among all batches of the job. */
typedef void (*ls_batch_queue_give)(void *user, int rank, int64_t ordinal);

/* first: ordinal of the first batch. */
ls_status ls_batch_queue_make(int processes, int64_t first, ls_batch_queue_give give, void *user, ls_batch_queue **out);
void ls_batch_queue_free(ls_batch_queue *queue);

/* Allows batches with ordinals below `limit`. */
void ls_batch_queue_set_limit(ls_batch_queue *queue, int64_t limit);
/* Hands out no new batches. Returns the resulting limit. */
int64_t ls_batch_queue_stop(ls_batch_queue *queue);

/* Requests one more batch for a process, which gets it when one is available. number: of the
 * request, from 1; a repeated number gets no second batch. */
ls_status ls_batch_queue_ask(ls_batch_queue *queue, int rank, int64_t number);
/* Returns false if the batch is not assigned to this process (any more): then its results do not
 * count. */
bool ls_batch_queue_done(ls_batch_queue *queue, int rank, int64_t ordinal);
/* Hands the batches of a lost process to others. */
void ls_batch_queue_lose(ls_batch_queue *queue, int rank);

bool ls_batch_queue_is_done(ls_batch_queue *queue);

#endif
