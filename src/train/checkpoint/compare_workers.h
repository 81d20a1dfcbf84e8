#ifndef LS_TRAIN_CHECKPOINT_COMPARE_WORKERS_H
#define LS_TRAIN_CHECKPOINT_COMPARE_WORKERS_H

#include "train/job/job.h"

/* Compares job and data of all workers; on a difference all fail with a message that names it.
 * Warns if some workers have no lanes. Does nothing without a cluster. */
ls_status ls_workers_compare(ls_job *job);
/* The text that ls_workers_compare compares; free() it. */
ls_status ls_workers_describe(ls_job *job, char **out);

#endif
