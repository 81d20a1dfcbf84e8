/* Live progress of a fit in a small file, for `lockstep top`. */
#ifndef LS_TRAIN_REPORT_STATUS_H
#define LS_TRAIN_REPORT_STATUS_H

#include "train/report/worker_times.h"
#include "train/job/job.h"

/* A thread rewrites the file every second; ls_fit_status_close removes it. Write errors are
 * warnings. */
typedef struct ls_fit_status ls_fit_status;
typedef struct ls_fit_at {
    const char *doing;                  /* "training" */
    int64_t epoch, epochs, step, steps; /* step: done in the epoch; steps: -1 if unknown */
    double step_seconds;
    double loss;
} ls_fit_at;
void ls_fit_status_open(const char *path, ls_job *job, const char *log, ls_fit_status **out);
/* `status` may be NULL. */
void ls_fit_status_note(ls_fit_status *status, const ls_fit_at *at);
void ls_fit_status_workers(ls_fit_status *status, const ls_worker_times *times, int64_t steps);
void ls_fit_status_close(ls_fit_status *status);

#endif
