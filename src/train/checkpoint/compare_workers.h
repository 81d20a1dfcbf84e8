/* Agreement between the workers of a cluster before and during training. */
#ifndef LS_TRAIN_CHECKPOINT_COMPARE_WORKERS_H
#define LS_TRAIN_CHECKPOINT_COMPARE_WORKERS_H

#include "train/job/job.h"

/* Whether this or another worker received a signal. After each run, all workers get the same
 * answer. */
bool ls_job_interrupted(const ls_job *job, const volatile int *stop);

/* Synchronizes all workers at the beginning of a fit. *interrupted: one of them received a signal
 * before. */
ls_status ls_job_begins(const ls_job *job, const volatile int *stop, bool *interrupted);

/* Compares job and data of all workers; on a difference, all fail with a message that names it.
 * Logs a warning if some workers have no lanes. Does nothing without a cluster.
 * (compare_workers.c) */
ls_status ls_workers_compare(ls_job *job);
/* The text that ls_workers_compare compares; free() it. */
ls_status ls_workers_describe(ls_job *job, char **out);

#endif
