/* Passes over a dataset, batch by batch. */
#ifndef LS_TRAIN_JOB_PASSES_H
#define LS_TRAIN_JOB_PASSES_H

#include "train/job/step.h"

/* One pass after another over a dataset, as batches. */
typedef struct ls_passes {
    ls_dataset *dataset; /* batched; its own handle */
    ls_element_spec spec;
    int64_t steps;           /* of a pass; LS_UNKNOWN, LS_INFINITE */
    int64_t first;           /* samples of a pass's first batch */
    bool in_rows, on_demand; /* how batches come; otherwise by an iterator */
    ls_rows *rows;
    struct ls_on_demand *makes;
    ls_iterator *iterator;
} ls_passes;

#define LS_DEFAULT_BATCH 32

/* How samples become batches. A dataset that is batched already keeps its batches and its order. */
typedef struct ls_batching {
    const char *option; /* the name of the user's option for `asked`, for messages */
    int64_t asked;      /* samples a batch, as the user asked; 0: not said. Batched data must have this size */
    int64_t otherwise;  /* samples a batch where nothing was asked; 0: LS_DEFAULT_BATCH */
    bool shuffle;       /* where the dataset can be shuffled */
    uint64_t seed;
} ls_batching;

/* In a cluster (of the context, which may be NULL) samples are made on demand, where that is possible. */
ls_status ls_passes_open(ls_passes *passes, const ls_context *ctx, ls_dataset *data, const ls_batching *batching);
ls_status ls_passes_begin(ls_passes *passes, uint64_t epoch);
ls_status ls_passes_next(ls_passes *passes, ls_batch_view *out, bool *end);
void ls_passes_close(ls_passes *passes);

#endif
