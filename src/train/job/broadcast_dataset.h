/* Data that only one worker of a cluster can read (ls_from_worker). */
#ifndef LS_TRAIN_JOB_BROADCAST_DATASET_H
#define LS_TRAIN_JOB_BROADCAST_DATASET_H

#include "train/job/identity.h"

bool ls_is_from_worker(const ls_dataset *dataset);
/* It, or what it is built on; also of NULL. */
bool ls_comes_from_worker(const ls_dataset *dataset);

/* What it is made of; NULL: another worker has it. */
ls_dataset *ls_from_worker_data(const ls_dataset *dataset);

/* As ls_identify_data, of what that worker has. */
ls_status ls_from_worker_identity(ls_dataset *dataset, ls_data_identity *out);

/* The same of other data of that worker, which is taken over; NULL on the others. */
ls_dataset *ls_from_worker_over(const ls_dataset *dataset, ls_dataset *data);

#endif
