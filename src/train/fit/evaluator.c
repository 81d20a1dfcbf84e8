/* An evaluator: does not train, but evaluates the checkpoints of another process as they appear. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/fit/evaluate.h"
#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/results.h"
#include "train/report/log.h"

#define LOOK_AGAIN 0.2 /* seconds */

typedef struct evaluator {
    ls_job *job;
    const ls_fit_options *options;
    const ls_settings *settings;
    ls_passes *validation;
    int64_t epochs, step; /* step: of the last checkpoint evaluated; -1: none */
    ls_train_log *log;
    ls_history **history;
    bool ended;
} evaluator;

static bool is_stopped(const evaluator *f)
{
    return f->options->stop && *f->options->stop;
}

static void print(const evaluator *f, const ls_results *results)
{
    FILE *out = f->options->output ? f->options->output : stdout;
    if (f->options->verbose == LS_VERBOSE_SILENT)
        return;
    fprintf(out, "step %" PRId64, f->step);
    for (size_t i = 0; i < results->count; i++)
        fprintf(out, " - val_%s: %.4f", results->names[i], results->values[i]);
    fprintf(out, "\n");
    fflush(out);
}

static ls_status put(evaluator *f, ls_checkpoint *found)
{
    LS_TRY(ls_checkpoint_fits(found, f->job, (ls_fits){ true, f->options->allow_other_bits }, NULL));
    LS_TRY(ls_checkpoint_put(found, f->job));
    f->step = found->step;
    f->ended =
        f->job->position.epoch >= f->epochs || (f->options->max_steps > 0 && found->step >= f->options->max_steps);
    return LS_OK;
}

static ls_status evaluate(evaluator *f)
{
    const ls_watchers watch = { .verb = "evaluating", .stop = f->options->stop };
    ls_results results;
    double start = ls_clock_now();
    LS_TRY(ls_job_evaluate(f->job, f->settings, f->validation, &watch, &results));
    if (results.count == 0) /* stopped early */
        return LS_OK;
    print(f, &results);
    ls_train_log_evaluation(f->log, f->step, ls_clock_now() - start, &results);
    return ls_history_add(f->history, &results, NULL);
}

/* A checkpoint that is deleted while it is read is no error: a newer one follows. */
static ls_status look(evaluator *f, bool *found_one)
{
    ls_logger *log = &ls_model_graph(f->job->model)->context->log;
    ls_named_checkpoint *list = NULL;
    ls_checkpoint *found = NULL;
    size_t count = 0;
    *found_one = false;
    LS_TRY(ls_checkpoints_list(f->options->checkpoint, &list, &count));
    bool newer = count > 0 && list[0].step > f->step;
    free(list);
    if (!newer)
        return LS_OK;
    LS_TRY(ls_checkpoint_find(f->options->checkpoint, log, &found));
    if (!found || found->step <= f->step) {
        ls_checkpoint_close(found);
        return LS_OK;
    }
    *found_one = true;
    ls_status status = put(f, found);
    ls_checkpoint_close(found);
    return status == LS_OK ? evaluate(f) : status;
}

static ls_status open_log(evaluator *f)
{
    char path[PATH_MAX];
    if (!f->options->log)
        return LS_OK;
    if (snprintf(path, sizeof(path), "%s.evaluator", f->options->log) >= (int)sizeof(path))
        return ls_fail(LS_ERR_IO, "the name of the log '%.100s...' is too long", f->options->log);
    LS_TRY(ls_train_log_open(path, (ls_log_mode){ .append = false }, ls_model_graph(f->job->model)->context, &f->log));
    const ls_start_facts facts = { .batch_size = f->job->batch_size, .epochs = f->epochs, .seed = f->options->seed };
    return ls_train_log_start(f->log, f->job, &facts);
}

ls_status ls_evaluate_checkpoints(ls_job *job, const ls_settings *settings, ls_passes *validation, int64_t epochs,
                                  ls_history **history)
{
    evaluator f = { .job = job,
                    .options = job->fit->options,
                    .settings = settings,
                    .validation = validation,
                    .epochs = epochs,
                    .step = -1,
                    .history = history };
    double start = ls_clock_now();
    ls_status status = open_log(&f);
    while (status == LS_OK && !f.ended && !is_stopped(&f)) {
        bool found = false;
        status = look(&f, &found);
        if (status == LS_OK && !found)
            nanosleep(&(struct timespec){ .tv_nsec = (long)(1e9 * LOOK_AGAIN) }, NULL);
    }
    ls_error why;
    ls_error_keep(&why, status);
    const ls_end_facts facts = { .reason = status != LS_OK  ? "failed"
                                           : is_stopped(&f) ? "interrupted"
                                                            : "done",
                                 .error = status != LS_OK ? why.message : NULL,
                                 .seconds = ls_clock_now() - start,
                                 .times = &job->times };
    ls_train_log_close(f.log, job, &facts);
    return ls_error_give(&why);
}
