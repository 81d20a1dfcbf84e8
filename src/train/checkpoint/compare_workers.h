/* What workers of a cluster agree on before and while they train. */
#ifndef LS_TRAIN_CHECKPOINT_COMPARE_WORKERS_H
#define LS_TRAIN_CHECKPOINT_COMPARE_WORKERS_H

#include "train/job/job.h"

/* Whether a signal came, here or to another worker of the cluster: the same on all of them after each run. */
bool ls_job_interrupted(const ls_job *job, const volatile int *stop);

/* All workers begin a fit together; whether a signal came to one of them before. */
ls_status ls_job_begins(const ls_job *job, const volatile int *stop, bool *interrupted);

/* All workers compare what they are about to train, and on which data: what differs is named, on all of them. One line
 * tells which of them have no lanes. Nothing where this process is alone. (workers.c) */
ls_status ls_workers_compare(ls_job *job);
/* What they compare, as a text to free(). */
ls_status ls_workers_describe(ls_job *job, char **out);

#endif
