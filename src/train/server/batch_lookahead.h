/* Delivers batches in almost the order of the data, for replays, which know in advance the batches
 * they need. Reads each pass once, in order, and keeps batches that it read too early. */
#ifndef LS_TRAIN_SERVER_BATCH_LOOKAHEAD_H
#define LS_TRAIN_SERVER_BATCH_LOOKAHEAD_H

#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/step.h"

/* Position of a batch in the data, and how many times it will be requested. */
typedef struct ls_batch_lookahead_batch {
    int64_t epoch, batch; /* only for error messages */
    int64_t pass, index;
    size_t uses;
} ls_batch_lookahead_batch;

typedef struct ls_batch_lookahead ls_batch_lookahead;

/* `list` is in the order of the data and has each batch once. `list` and `data` must outlive
 * *out. */
ls_status ls_batch_lookahead_make(ls_passes *data, const ls_batch_lookahead_batch *list, size_t count,
                                  ls_batch_lookahead **out);
void ls_batch_lookahead_free(ls_batch_lookahead *lookahead);

/* Returns batch `number` of the list. The view is valid until the next call. The caller requests
 * each batch exactly `uses` times. */
ls_status ls_batch_lookahead_get(ls_batch_lookahead *lookahead, size_t number, ls_batch_view *out);

#endif
