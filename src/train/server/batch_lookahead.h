/* Batches in any order near that of the data: each pass is read once, in order, and what comes before the batch that is
 * wanted is kept until it is. For replays, which know which batches they will want, and how often. */
#ifndef LS_TRAIN_SERVER_BATCH_LOOKAHEAD_H
#define LS_TRAIN_SERVER_BATCH_LOOKAHEAD_H

#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/step.h"

/* A batch: where it is in the data, and how often it will be asked for. */
typedef struct ls_upcoming_batch {
    int64_t epoch, batch; /* for messages */
    int64_t pass, index;  /* the batch of that number in that pass */
    size_t uses;
} ls_upcoming_batch;

typedef struct ls_upcoming ls_upcoming;

/* `list` is in the order of the data, each batch once; it and the passes must outlive the result. */
ls_status ls_upcoming_make(ls_passes *data, const ls_upcoming_batch *list, size_t count, ls_upcoming **out);
void ls_upcoming_free(ls_upcoming *upcoming);

/* Batch `number` of the list; the view lasts until the next call. It is asked for `uses` times. */
ls_status ls_upcoming_get(ls_upcoming *upcoming, size_t number, ls_batch_view *out);

#endif
