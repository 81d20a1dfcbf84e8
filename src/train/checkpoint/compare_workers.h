/* Comparison of what the workers of a cluster are about to train. */
#ifndef LS_TRAIN_CHECKPOINT_COMPARE_WORKERS_H
#define LS_TRAIN_CHECKPOINT_COMPARE_WORKERS_H

#include "train/job/job.h"

/* All workers compare what they are about to train, and on which data: what differs is named, on all of them. One line
 * tells which of them have no lanes. Nothing where this process is alone. */
ls_status ls_workers_compare(ls_job *job);
/* What they compare, as a text to free(). */
ls_status ls_workers_describe(ls_job *job, char **out);

#endif
