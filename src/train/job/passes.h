/* Passes over a dataset, batch by batch. */
#ifndef LS_TRAIN_JOB_PASSES_H
#define LS_TRAIN_JOB_PASSES_H

#include "train/job/step.h"

typedef struct ls_passes {
    ls_dataset *dataset; /* batched; owned */
    ls_element_spec spec;
    int64_t steps;           /* per pass; LS_UNKNOWN, LS_INFINITE */
    int64_t first;           /* samples in the first batch of a pass */
    bool in_rows, on_demand; /* neither: an iterator */
    ls_rows *rows;
    struct ls_on_demand *makes;
    ls_iterator *iterator;
} ls_passes;

#define LS_DEFAULT_BATCH 32

/* A dataset that is already batched keeps its batches and order. */
typedef struct ls_batching {
    const char *option; /* name of the option for `asked`, for messages */
    /* Batch size; 0: not given. A batched dataset must have this size. */
    int64_t asked;
    int64_t otherwise; /* if `asked` is 0; 0: LS_DEFAULT_BATCH */
    bool shuffle;      /* if the dataset can be shuffled */
    uint64_t seed;
} ls_batching;

/* In a cluster, samples are created on demand where possible. `ctx` may be NULL. */
ls_status ls_passes_open(ls_passes *passes, const ls_context *ctx, ls_dataset *data, const ls_batching *batching);
ls_status ls_passes_begin(ls_passes *passes, uint64_t epoch);
ls_status ls_passes_next(ls_passes *passes, ls_batch_view *out, bool *end);
void ls_passes_close(ls_passes *passes);

#endif
