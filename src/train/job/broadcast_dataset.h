/* A dataset that only one worker of a cluster can read and that broadcasts its elements
 * (ls_from_worker). */
#ifndef LS_TRAIN_JOB_BROADCAST_DATASET_H
#define LS_TRAIN_JOB_BROADCAST_DATASET_H

#include "train/job/identity.h"

bool ls_is_from_worker(const ls_dataset *dataset);
/* Whether the dataset or one of its sources is such a dataset. `dataset` may be NULL. */
bool ls_comes_from_worker(const ls_dataset *dataset);

/* The dataset on the worker that reads it; NULL on the others. */
ls_dataset *ls_from_worker_data(const ls_dataset *dataset);

/* As ls_identify_data, for the dataset on the worker that reads it. */
ls_status ls_from_worker_identity(ls_dataset *dataset, ls_data_identity *out);

/* A dataset from the same worker that broadcasts `data` instead. Takes ownership of `data`, which
 * is NULL on the other workers. */
ls_dataset *ls_from_worker_over(const ls_dataset *dataset, ls_dataset *data);

#endif
