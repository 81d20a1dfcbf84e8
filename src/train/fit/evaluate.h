/* One pass of evaluation, inside fit and outside of it. */
#ifndef LS_TRAIN_FIT_EVALUATE_H
#define LS_TRAIN_FIT_EVALUATE_H

#include "train/callback/callback.h"
#include "train/job/passes.h"
#include "train/report/progress.h"
#include "train/job/job.h"

/* Who watches a pass of evaluation. `progress` may be NULL; without a bar of its own it is told as work, by the name
 * `verb`. `callbacks` (callback.h) may be NULL, too. `stop` likewise; when it becomes not 0 the pass ends early:
 * out->count is 0. */
typedef struct ls_watchers {
    const char *verb;
    ls_progress *progress;
    ls_callback_list *callbacks;
    const volatile int *stop;
} ls_watchers;
ls_status ls_job_evaluate(ls_job *job, const ls_settings *settings, ls_passes *passes, const ls_watchers *watch,
                          ls_results *out);

#endif
