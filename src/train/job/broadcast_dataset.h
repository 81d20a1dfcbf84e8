/* A dataset that one worker reads and broadcasts (ls_from_worker). */
#ifndef LS_TRAIN_JOB_BROADCAST_DATASET_H
#define LS_TRAIN_JOB_BROADCAST_DATASET_H

#include "train/job/identity.h"

bool ls_is_from_worker(const ls_dataset *dataset);
/* Whether the dataset (may be NULL) or one of its sources is such a dataset. */
bool ls_comes_from_worker(const ls_dataset *dataset);

/* NULL on the workers that do not read it. */
ls_dataset *ls_from_worker_data(const ls_dataset *dataset);

/* ls_identify_data of the dataset on the worker that reads it. */
ls_status ls_from_worker_identity(ls_dataset *dataset, ls_data_identity *out);

/* The same with `data`, which it owns and which is NULL on the other workers. */
ls_dataset *ls_from_worker_over(const ls_dataset *dataset, ls_dataset *data);

#endif
