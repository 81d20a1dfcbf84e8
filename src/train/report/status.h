/* Live progress of a fit in a small file, for `lockstep top`. */
#ifndef LS_TRAIN_REPORT_STATUS_H
#define LS_TRAIN_REPORT_STATUS_H

#include "train/report/worker_times.h"
#include "train/job/job.h"

/* A small file, written anew each second by a thread of its own and removed at the end. One that cannot be written is a
 * warning, and nothing else. */
typedef struct ls_fit_status ls_fit_status;
typedef struct ls_fit_at {
    const char *doing;                  /* "training" */
    int64_t epoch, epochs, step, steps; /* step: done of the epoch; steps: -1: not known */
    double step_seconds;
    double loss;
} ls_fit_at;
void ls_fit_status_open(const char *path, ls_job *job, const char *log, ls_fit_status **out);
void ls_fit_status_note(ls_fit_status *status, const ls_fit_at *at); /* status may be NULL */
void ls_fit_status_workers(ls_fit_status *status, const ls_worker_times *times, int64_t steps);
void ls_fit_status_close(ls_fit_status *status);

#endif
