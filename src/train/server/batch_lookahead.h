/* Batches in any order near that of the data: each pass is read once, in order, and what comes before the batch that is
 * wanted is kept until it is. For replays, which know which batches they will want, and how often. */
#ifndef LS_TRAIN_SERVER_BATCH_LOOKAHEAD_H
#define LS_TRAIN_SERVER_BATCH_LOOKAHEAD_H

#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/step.h"

/* A batch: where it is in the data, and how often it will be asked for. */
typedef struct ls_batch_lookahead_batch {
    int64_t epoch, batch; /* for messages */
    int64_t pass, index;  /* the batch of that number in that pass */
    size_t uses;
} ls_batch_lookahead_batch;

typedef struct ls_batch_lookahead ls_batch_lookahead;

/* `list` is in the order of the data, each batch once; it and the passes must outlive the result. */
ls_status ls_batch_lookahead_make(ls_passes *data, const ls_batch_lookahead_batch *list, size_t count,
                                  ls_batch_lookahead **out);
void ls_batch_lookahead_free(ls_batch_lookahead *upcoming);

/* Batch `number` of the list; the view lasts until the next call. It is asked for `uses` times. */
ls_status ls_batch_lookahead_get(ls_batch_lookahead *upcoming, size_t number, ls_batch_view *out);

#endif
