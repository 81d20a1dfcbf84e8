/* Batches for replays, which need them in almost the order of the data. Reads each pass once and
 * keeps batches that it read too early. */
#ifndef LS_TRAIN_SERVER_BATCH_LOOKAHEAD_H
#define LS_TRAIN_SERVER_BATCH_LOOKAHEAD_H

#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/step.h"

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

/* Returns batch `number` of the list, which must be requested exactly `uses` times. The view is
 * valid until the next call. */
ls_status ls_batch_lookahead_get(ls_batch_lookahead *lookahead, size_t number, ls_batch_view *out);

#endif
