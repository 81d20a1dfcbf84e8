/* Runs one pass of evaluation, in fit and outside of it. */
#ifndef LS_TRAIN_FIT_EVALUATE_H
#define LS_TRAIN_FIT_EVALUATE_H

#include "train/callback/callback.h"
#include "train/job/passes.h"
#include "train/report/progress.h"
#include "train/job/job.h"

typedef struct ls_watchers {
    const char *verb;            /* for ls_work_report, without a progress bar */
    ls_progress *progress;       /* may be NULL */
    ls_callback_list *callbacks; /* may be NULL */
    /* May be NULL. The pass ends early when it becomes nonzero; then out->count is 0. */
    const volatile int *stop;
    /* Output: the confusion matrix, if the job has one (ls_evaluate_options); may be NULL. */
    double *confusion;
    size_t confusion_count;
} ls_watchers;
ls_status ls_job_evaluate(ls_job *job, const ls_settings *settings, ls_passes *passes, const ls_watchers *watch,
                          ls_results *out);

#endif
