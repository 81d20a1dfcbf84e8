/* ls_fit: epochs of steps, with callbacks, validation, progress and a log. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fpmode.h"
#include "device/cores.h"
#include "fabric/mesh/cluster.h"
#include "graph/claim.h"
#include "lockstep/cluster.h"
#include "run/peers.h"
#include "run/timeline.h"
#include "train/fit/evaluate.h"
#include "train/fit/fit.h"
#include "train/job/results.h"
#include "train/job/setup.h"
#include "train/job/times.h"

/* ---- Stopping ---- */

void ls_fit_stop(ls_fit_state *f, const char *reason)
{
    f->stopped = true;
    f->reason = reason;
}

static bool is_stopped_by(const ls_fit_state *f, const char *reason)
{
    return f->stopped && strcmp(f->reason, reason) == 0;
}

static bool is_interrupted(const ls_fit_state *f)
{
    return is_stopped_by(f, "interrupted");
}

bool ls_fit_should_stop(ls_fit_state *f)
{
    if (ls_job_interrupted(f->job, f->options->stop))
        ls_fit_stop(f, "interrupted");
    if (f->options->max_steps > 0 && f->step >= f->options->max_steps)
        ls_fit_stop(f, "max_steps");
    return f->stopped;
}

ls_status ls_fit_refuse_step(ls_fit_state *f)
{
    ls_status status = ls_fail_within(LS_ERR_NOT_FINITE, "step %" PRId64, f->step + 1);
    if (!ls_callbacks_have(&f->callbacks, LS_CALLBACK_TERMINATE_ON_NAN))
        return status;
    ls_fit_stop(f, "not_finite");
    ls_log_write(ls_callback_log(&f->callbacks.facts), LS_LOG_WARNING,
                 "%s; training ends with the weights of step %" PRId64, ls_last_error(), f->step);
    ls_clear_error();
    return LS_OK;
}

/* ---- Callbacks ---- */

/* End events carry the results of the epoch so far. */
ls_status ls_fit_call_back(ls_fit_state *f, ls_moment when, int64_t epoch)
{
    bool ends = when == LS_EPOCH_END || when == LS_TRAIN_END, stop = false;
    const ls_callback_event event = { .results = ends || when == LS_BATCH_END ? &f->results : NULL,
                                      .validation = ends && f->validated ? &f->val_results : NULL,
                                      .epoch = epoch,
                                      .batch = f->job->position.step - (when == LS_BATCH_END),
                                      .step = f->step,
                                      .cut = ends && !f->whole,
                                      .interrupted = ends && is_interrupted(f) };
    f->callbacks.epoch = epoch;
    LS_TRY(ls_callbacks_call(&f->callbacks, when, &event, &stop));
    if (stop)
        ls_fit_stop(f, "callback");
    return LS_OK;
}

/* ---- When the chief is lost ---- */

/* Called after each collective operation, where the loss of a worker is noticed. The oldest member
 * continues the chief's log and files. */
static ls_status promote_to_chief(ls_fit_state *f)
{
    const ls_peers *peers = ls_fit_context(f)->peers;
    if (f->chief && peers && peers->generation != f->generation) {
        ls_train_log_renew_lease(f->log);
        ls_checkpoint_writer_renew_lease(f->job->writer);
    }
    f->generation = peers ? peers->generation : 0;
    if (ls_peers_is_deposed(peers))
        return ls_fail(LS_ERR_PEER, "another worker continues this job: worker %d of %d ends and writes nothing more",
                       peers->rank, peers->size);
    if (f->chief || !ls_is_chief(ls_fit_context(f)))
        return LS_OK;
    f->chief = true;
    ls_log_always(&ls_fit_context(f)->log,
                  "worker %d is the chief after step %" PRId64
                  ", because the old chief is lost: it prints, logs and saves from now on",
                  ls_cluster_rank(ls_fit_context(f)), f->step);
    ls_train_log_take_over(f->log);
    ls_checkpoint_writer_take_over(f->job->writer);
    ls_callbacks_take_over(&f->callbacks);
    ls_fit_open_as_chief(f);
    return LS_OK;
}

/* ---- Workers that join ---- */

ls_status ls_fit_welcome(ls_fit_state *f)
{
    const ls_peers *peers = ls_fit_context(f)->peers;
    bool too_few = false;
    LS_TRY(ls_job_welcome(f->job, f->log, &too_few));
    LS_TRY(promote_to_chief(f));
    if (!too_few)
        return LS_OK;
    ls_checkpoint_writer_step(f->job->writer, true);
    return ls_fail(
        LS_ERR_PEER,
        "%d worker%s left, at least %d are needed, and no other joined in time: training ends after step %" PRId64 "%s",
        ls_peers_workers(peers), ls_peers_workers(peers) == 1 ? " is" : "s are", peers->least, f->step,
        f->job->writer ? ", which is saved" : "");
}

/* ---- Synchronous steps ---- */

/* Skips the batches of the pass that were already used. */
static ls_status begin_pass(ls_fit_state *f)
{
    const ls_position *at = &f->job->position;
    LS_TRY(ls_passes_begin(&f->data, (uint64_t)at->pass));
    for (int64_t i = 0; i < at->batch; i++) {
        ls_batch_view batch;
        bool end = false;
        LS_TRY(ls_passes_next(&f->data, &batch, &end));
        if (end)
            return ls_fail(LS_ERR_DATA,
                           "cannot continue after %" PRId64 " batches of a pass: this data has only %" PRId64
                           "; use the data of the training that stopped",
                           at->batch, i);
    }
    f->in_pass = true;
    return LS_OK;
}

/* With steps_per_epoch, passes follow each other; otherwise each epoch is a pass. */
static ls_status next_batch(ls_fit_state *f, ls_batch_view *batch, bool *end)
{
    ls_position *at = &f->job->position;
    if (!f->in_pass)
        LS_TRY(begin_pass(f));
    LS_TRY(ls_passes_next(&f->data, batch, end));
    if (!*end || f->options->steps_per_epoch == 0)
        return LS_OK;
    at->pass++;
    at->batch = 0;
    LS_TRY(begin_pass(f));
    return ls_passes_next(&f->data, batch, end);
}

static ls_status wait_for_batch(ls_fit_state *f, ls_fit_batch *batch, bool *end)
{
    ls_timeline_step(f->job->timeline, f->step + 1);
    double start = ls_clock_now();
    ls_status status = next_batch(f, &batch->view, end);
    ls_error failure;
    ls_error_keep(&failure, status);
    /* The worker that supplies the data may be lost. */
    ls_status followed = promote_to_chief(f);
    status = status != LS_OK ? ls_error_give(&failure) : followed;
    double now = ls_clock_now();
    f->job->times.data += now - start;
    ls_timeline_call(f->job->timeline, LS_CALL_DATA, start, now);
    return status;
}

static ls_status get_batch(ls_fit_state *f, ls_fit_batch *batch, bool *end)
{
    const ls_position *at = &f->job->position;
    *end = f->stopped || (f->steps >= 0 && at->step >= f->steps);
    if (!*end)
        LS_TRY(wait_for_batch(f, batch, end));
    if (*end && at->step == 0 && !f->stopped)
        return ls_fail(LS_ERR_DATA, "epoch %" PRId64 ": the data gave no batch; it must have at least one",
                       at->epoch + 1);
    batch->samples = batch->view.samples;
    return LS_OK;
}

static ls_status run_step(ls_fit_state *f, ls_fit_batch *batch)
{
    LS_TRY(ls_job_rate(f->job, &f->rate));
    double start = ls_clock_now();
    ls_status status = ls_function_run(f->job, f->function, &f->settings, &batch->view, f->options->class_weights);
    double end = ls_clock_now();
    f->job->times.compute += end - start;
    ls_timeline_call(f->job->timeline, LS_CALL_STEP, start, end);
    if (status == LS_ERR_NOT_FINITE)
        return ls_fit_refuse_step(f);
    return status == LS_ERR_DEVICE ? ls_fail_within(status, "step %" PRId64, f->step + 1) : status;
}

#define MEASURED_STEPS 5 /* steps after which the speed of devices is known */

static ls_status add_step(ls_fit_state *f, int64_t samples)
{
    f->clean = false;
    LS_TRY(ls_tally_add(&f->job->tally, f->job, f->function, samples));
    f->job->position.step++;
    f->job->position.batch++;
    f->clean = true;
    if (++f->made == MEASURED_STEPS)
        LS_TRY(ls_settings_follow(f->job, &f->options->strategy, &f->settings));
    return ls_job_step(f->job, &f->step);
}

#define SPLIT_EVERY 100 /* steps; also at the end of an epoch */

/* With work_split "auto", distributes lanes by the speed of workers. */
static ls_status split_lanes(ls_fit_state *f, bool now)
{
    const char *split = f->options->strategy.work_split;
    ls_worker_times_step(&f->pace, f->job->used_lanes);
    if (!now || !split || strcmp(split, "auto") != 0)
        return LS_OK;
    LS_TRY(ls_worker_times_split(&f->pace, ls_fit_context(f)));
    return promote_to_chief(f);
}

static ls_status count_step(ls_fit_state *f, ls_fit_batch *batch)
{
    LS_TRY(add_step(f, batch->samples));
    batch->lanes = f->job->used_lanes;
    ls_worker_times_step(&f->workers, batch->lanes);
    LS_TRY(split_lanes(f, f->step % SPLIT_EVERY == 0));
    LS_TRY(promote_to_chief(f));
    return f->log ? ls_read_scalar(f->function->loss, &batch->loss) : LS_OK;
}

static ls_status finish_step(ls_fit_state *f)
{
    bool stops = ls_fit_should_stop(f);
    LS_TRY(promote_to_chief(f));
    ls_checkpoint_writer_step(f->job->writer, stops);
    return stops ? LS_OK : ls_fit_welcome(f); /* joining workers start from this state */
}

const ls_fit_method ls_fit_synchronous = {
    .get = get_batch, .run = run_step, .count = count_step, .finish = finish_step, .has_state = true
};

/* ---- Steps and epochs ---- */

static ls_status log_step(ls_fit_state *f, const ls_fit_batch *batch)
{
    char hex[65];
    bool hash = f->options->log_hash && f->method->has_state;
    if (!f->log)
        return LS_OK;
    if (hash)
        LS_TRY(ls_model_state_sha256(f->job->model, hex));
    ls_train_log_step(f->log, &(ls_step_facts){ .step = f->step,
                                                .loss = batch->loss,
                                                .samples = batch->samples,
                                                .lanes = batch->lanes,
                                                .learning_rate = f->rate,
                                                .hash = hash ? hex : NULL });
    return LS_OK;
}

#define LOOK 0.25 /* seconds */

static void show(ls_fit_state *f, const char *doing)
{
    const ls_position *at = &f->job->position;
    double now = ls_clock_now();
    int64_t made = at->step - f->progress.before;
    const ls_fit_at facts = { .doing = doing,
                              .epoch = at->epoch + 1,
                              .epochs = f->epochs,
                              .step = at->step,
                              .steps = f->steps,
                              .step_seconds = made > 0 ? (now - f->epoch_start) / (double)made : 0,
                              .loss = f->results.count > 0 ? f->results.values[0] : NAN };
    ls_fit_status_note(f->status, &facts);
    if (!f->chief || now - f->shown_at < LOOK)
        return;
    f->shown_at = now;
    ls_worker_times_take(&f->workers, ls_fit_context(f));
    ls_worker_times_text(&f->workers, f->progress.about);
    ls_fit_status_workers(f->status, &f->workers, made);
}

/* Computes the gradients of the first step of the epoch, before it, for the callbacks that take
 * them. The step draws the same random numbers, and its bits do not change. */
static ls_status take_gradients(ls_fit_state *f, const ls_fit_batch *batch)
{
    const ls_position *at = &f->job->position;
    const ls_step_nodes *step = &f->function->step;
    if (at->step > 0 || !ls_callbacks_want_gradients(&f->callbacks, at->epoch))
        return LS_OK;
    ls_tensor **fetches = calloc(step->count + 1, sizeof(*fetches));
    size_t count = 0;
    if (!fetches)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu gradients", step->count);
    for (size_t i = 0; i < step->count; i++)
        if (step->gradients[i])
            fetches[count++] = step->gradients[i];
    ls_status status =
        ls_job_fetch(f->job, f->function, &f->settings, &batch->view, f->options->class_weights, fetches, count);
    status = ls_explain_failure(f->job, f->function, &batch->view, status);
    free(fetches);
    LS_TRY(status);
    LS_TRY(promote_to_chief(f));
    return ls_callbacks_gradients(&f->callbacks, at->epoch, step);
}

static ls_status train_batch(ls_fit_state *f, ls_fit_batch *batch)
{
    const ls_position *at = &f->job->position;
    LS_TRY(ls_fit_call_back(f, LS_BATCH_BEGIN, at->epoch));
    LS_TRY(take_gradients(f, batch));
    LS_TRY(f->method->run(f, batch));
    if (is_stopped_by(f, "not_finite"))
        return LS_OK;
    LS_TRY(f->method->count(f, batch));
    ls_tally_results(&f->job->tally, f->job, &f->results);
    LS_TRY(log_step(f, batch));
    show(f, "training");
    ls_progress_step(&f->progress, at->step, &f->results);
    LS_TRY(ls_fit_call_back(f, LS_BATCH_END, at->epoch));
    return f->method->finish(f);
}

static ls_status train_epoch(ls_fit_state *f)
{
    ls_fit_batch batch = { .samples = 0 };
    bool end = false;
    LS_TRY(f->method->get(f, &batch, &end));
    while (!end) {
        LS_TRY(train_batch(f, &batch));
        LS_TRY(f->method->get(f, &batch, &end));
    }
    bool all = f->steps >= 0 && f->job->position.step >= f->steps;
    f->whole = !f->stopped || (all && !is_interrupted(f));
    return LS_OK;
}

/* Keeps f->results. */
static void begin_next_epoch(ls_fit_state *f)
{
    ls_position *at = &f->job->position;
    at->epoch++;
    at->step = 0;
    ls_tally_clear(&f->job->tally, f->job);
    if (f->options->steps_per_epoch == 0) {
        at->pass = at->epoch;
        at->batch = 0;
        f->in_pass = false;
    }
}

/* Evaluates with the averages of the weights, if the optimizer has them. */
static ls_status evaluate_averages(ls_fit_state *f, const ls_watchers *watch)
{
    LS_TRY(ls_optimizer_state_swap(&f->job->state, true));
    ls_status status = ls_job_evaluate(f->job, &f->settings, &f->validation, watch, &f->val_results);
    LS_TRY(status);
    return ls_optimizer_state_swap(&f->job->state, false);
}

/* Callbacks that keep or save weights see the averages. */
static ls_status end_epoch(ls_fit_state *f, int64_t epoch)
{
    LS_TRY(ls_optimizer_state_swap(&f->job->state, true));
    LS_TRY(ls_fit_call_back(f, LS_EPOCH_END, epoch));
    return ls_optimizer_state_swap(&f->job->state, false);
}

/* An interrupted epoch must not report the validation of the epoch before. A signal during the
 * validation leaves the epoch incomplete: a resumed fit begins with it. */
static ls_status validate(ls_fit_state *f, double *seconds)
{
    bool interrupted = is_interrupted(f);
    double start = ls_clock_now();
    const ls_watchers watch = { .verb = "validating", .callbacks = &f->callbacks, .stop = f->options->stop };
    if (!f->validates)
        return LS_OK;
    show(f, "validating");
    if (!interrupted)
        LS_TRY(evaluate_averages(f, &watch));
    bool cut = !interrupted && f->val_results.count == 0;
    bool stops = false;
    if (cut)
        stops = ls_fit_should_stop(f);
    if (stops)
        ls_checkpoint_writer_step(f->job->writer, true);
    f->whole = f->whole && !cut;
    interrupted |= cut;
    for (size_t i = 0; interrupted && i < f->val_results.count; i++)
        f->val_results.values[i] = NAN;
    f->validated = !interrupted;
    *seconds = ls_clock_now() - start;
    ls_timeline_call(f->job->timeline, LS_CALL_VALIDATION, start, start + *seconds);
    return LS_OK;
}

/* seconds: all time that passed. */
static ls_times times_since(const ls_times *now, const ls_times *before, double seconds)
{
    ls_times t = { .data = now->data - before->data,
                   .compute = now->compute - before->compute,
                   .join = now->join - before->join,
                   .moved_bytes = now->moved_bytes - before->moved_bytes };
    t.other = seconds - t.data - t.compute;
    return t;
}

/* Called after the first callbacks, which may set the rate. */
static ls_status show_rate(ls_fit_state *f)
{
    double rate;
    if (f->rate_shown)
        return LS_OK;
    f->rate_shown = true;
    LS_TRY(ls_job_rate(f->job, &rate));
    ls_progress_rate(&f->progress, ls_optimizer_name(&f->job->optimizer), rate);
    return LS_OK;
}

static ls_status run_epoch(ls_fit_state *f)
{
    int64_t epoch = f->job->position.epoch;
    double start = ls_clock_now(), validation_seconds = 0;
    f->epoch_start = start;
    const ls_times before = f->job->times;
    f->whole = false;
    ls_fit_seconds_begin_epoch(f->job->seconds);
    ls_worker_times_begin(&f->workers, ls_fit_context(f));
    if (f->job->position.step == 0)
        LS_TRY(ls_fit_call_back(f, LS_EPOCH_BEGIN, epoch));
    LS_TRY(show_rate(f));
    ls_progress_epoch(&f->progress, epoch, f->epochs, f->steps, f->job->position.step);
    if (f->job->tally.steps > 0)
        ls_tally_results(&f->job->tally, f->job, &f->results);
    LS_TRY(train_epoch(f));
    if (f->job->position.step == 0) /* the first step was not finite */
        return LS_OK;
    double seconds = ls_clock_now() - start;
    const ls_times times = times_since(&f->job->times, &before, seconds);
    ls_worker_times_take(&f->workers, ls_fit_context(f));
    LS_TRY(split_lanes(f, true));
    LS_TRY(validate(f, &validation_seconds));
    LS_TRY(promote_to_chief(f));
    const ls_results *validation = f->validates && f->val_results.count ? &f->val_results : NULL;
    const ls_results *shown = f->validated ? validation : NULL;
    ls_progress_end(&f->progress, &f->results, shown);
    if (f->chief)
        ls_worker_times_report(&f->workers, ls_fit_context(f), epoch);
    ls_train_log_epoch(f->log, &(ls_epoch_facts){ .job = f->job,
                                                  .epoch = epoch,
                                                  .steps = f->job->position.step,
                                                  .whole = f->whole,
                                                  .seconds = seconds,
                                                  .learning_rate = f->rate,
                                                  .times = &times,
                                                  .workers = &f->workers,
                                                  .results = &f->results,
                                                  .validation = shown,
                                                  .validation_seconds = validation_seconds });
    f->clean = false;
    LS_TRY(ls_history_add(&f->history, &f->results, validation));
    if (f->whole)
        begin_next_epoch(f);
    LS_TRY(end_epoch(f, epoch));
    f->clean = f->whole;
    if (f->whole)
        ls_checkpoint_writer_epoch(f->job->writer, &f->results, shown);
    return LS_OK;
}

/* ---- The whole fit ---- */

static ls_status evaluate_checkpoints(ls_fit_state *f, ls_dataset *data)
{
    const ls_fit_options *o = f->options;
    LS_TRY(ls_fit_open_data(f, data));
    if (!f->validates || !o->checkpoint)
        return ls_fail(LS_ERR_INVALID, "ls_fit: an evaluator needs %s",
                       o->checkpoint ? "validation data" : "the folder of the checkpoints to evaluate");
    ls_fit_begin_job(f);
    return ls_evaluate_checkpoints(f->job, &f->settings, &f->validation, f->epochs, &f->history);
}

static ls_status gather_timelines(ls_fit_state *f)
{
    ls_peers *peers = ls_fit_context(f)->peers;
    if (!f->options->trace.path || !peers)
        return LS_OK;
    LS_TRY(ls_timeline_gather(f->job->timeline, peers));
    return promote_to_chief(f);
}

static ls_status train(ls_fit_state *f, ls_dataset *data)
{
    bool ends = false;
    LS_TRY(ls_fit_open(f, data));
    ls_status status = f->over ? LS_OK : ls_fit_start(f, &ends);
    if (f->over || ends)
        return ls_fit_call_back(f, LS_TRAIN_END, f->job->position.epoch);
    while (f->job->position.epoch < f->epochs && status == LS_OK && !f->stopped)
        status = run_epoch(f);
    if (status == LS_OK)
        ls_checkpoint_writer_finish(f->job->writer);
    if (status == LS_OK)
        status = gather_timelines(f);
    double wall = ls_clock_now() - f->start;
    f->job->times.other = wall - f->job->times.data - f->job->times.compute;
    ls_fit_seconds_note(f->job->seconds, &f->job->times, wall, f->made, ls_cores_delay("") - f->delay);
    if (status == LS_OK && !is_interrupted(f))
        status = ls_optimizer_state_finalize(&f->job->state);
    return status == LS_OK ? ls_fit_call_back(f, LS_TRAIN_END, f->epochs - 1) : status;
}

static ls_status run_fit(ls_fit_state *f, ls_dataset *data)
{
    ls_cluster_warn_unused(ls_fit_context(f));
    if (ls_is_evaluator(ls_fit_context(f)))
        return evaluate_checkpoints(f, data);
    if (f->method == &ls_fit_asynchronous && !f->chief)
        return ls_fit_serve(f, data);
    return train(f, data);
}

/* Workers stay until the chief has written everything, to take over if it is lost. */
static ls_status wait_for_chief(ls_fit_state *f)
{
    LS_TRY(ls_cluster_barrier(ls_fit_context(f), "the end of ls_fit"));
    return promote_to_chief(f);
}

/* ---- Closing ---- */

static void close_times(ls_fit_state *f, const ls_error *failure)
{
    ls_job *job = f->job;
    ls_logger *log = &ls_model_graph(job->model)->context->log;
    int64_t kept = 0;
    job->fitting = false;
    if (!job->timeline)
        return;
    if (failure->status != LS_OK)
        ls_timeline_failed(job->timeline, failure->message);
    bool writes = f->chief && !ls_peers_is_deposed(ls_fit_context(f)->peers);
    bool written = writes && ls_timeline_write(job->timeline, f->options->trace.path, &kept) == LS_OK;
    if (!written && writes)
        ls_log_write(log, LS_LOG_WARNING, "the timeline '%s' was not written: %s", f->options->trace.path,
                     ls_last_error());
    else if (written && kept < f->step && (f->options->trace.last_step == 0 || kept < f->options->trace.last_step))
        ls_log_write(log, LS_LOG_WARNING,
                     "the timeline '%s' is full after step %" PRId64 " of %" PRId64
                     ": to see later steps, choose the first and last step to trace",
                     f->options->trace.path, kept, f->step);
    ls_timeline_destroy(job->timeline);
    job->timeline = NULL;
}

static void close_log(ls_fit_state *f, const ls_error *failure)
{
    ls_end_facts facts = { .reason = f->reason, .times = &f->job->times };
    if (failure->status != LS_OK) {
        facts.reason = "failed";
        facts.error = failure->message;
    }
    facts.seconds = f->start > 0 ? ls_clock_now() - f->start : 0;
    ls_train_log_close(f->log, f->job, &facts);
}

/* unsaved: why the last checkpoint was not written. */
static void close_fit(ls_fit_state *f, const ls_error *failure, ls_error *unsaved)
{
    ls_job *job = f->job;
    if (f->method->close)
        f->method->close(f, failure);
    ls_progress_close(&f->progress);
    ls_fit_status_close(f->status);
    if (failure->status != LS_OK && f->clean)
        ls_checkpoint_writer_finish(job->writer);
    ls_error_keep(unsaved, ls_checkpoint_writer_close(job->writer));
    job->writer = NULL;
    job->fit = NULL;
    job->callback_count = 0;
    ls_callbacks_close(&f->callbacks, LS_OK);
    close_times(f, failure);
    close_log(f, failure);
    ls_passes_close(&f->data);
    ls_passes_close(&f->validation);
    ls_settings_free(&f->settings);
}

ls_status ls_fit_with(ls_model *model, ls_dataset *data, ls_fit_options options)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_fit_state f = { .options = &options, .reason = "done" };
    ls_error failure, unsaved;
    ls_use use;
    LS_TRY(ls_use_begin(&use, model, "ls_fit", true));
    f.job = use.job;
    ls_status status = ls_fit_prepare(&f, data);
    if (status == LS_OK)
        status = run_fit(&f, data);
    bool waits = !f.chief;
    if (status == LS_OK && waits && !f.over)
        status = wait_for_chief(&f);
    ls_error_keep(&failure, status);
    if (ls_optimizer_state_swap(&f.job->state, false) != LS_OK && status == LS_OK) /* after a failure amid a swap */
        ls_error_keep(&failure, LS_ERR_INTERNAL);
    close_fit(&f, &failure, &unsaved);
    if (status == LS_OK && !waits)
        status = ls_cluster_barrier(ls_model_graph(model)->context, "the end of ls_fit");
    if (failure.status == LS_OK)
        ls_error_keep(&failure, status);
    /* After the barrier: other workers do not wait for a disk. */
    if (failure.status == LS_OK)
        failure = unsaved;
    ls_use_end(&use);
    if (status == LS_OK && options.history)
        *options.history = f.history;
    else
        ls_history_destroy(f.history);
    return ls_error_give(&failure);
}

ls_status ls_explain_fit_with(ls_model *model, ls_dataset *data, ls_fit_options options, bool *fits, char **out)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_use use;
    ls_fit_setup setup;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_explain_fit: out is NULL");
    LS_TRY(ls_use_begin(&use, model, "ls_explain_fit", true));
    ls_status status = ls_fit_set_up(use.job, data, &options, "ls_fit", &setup);
    if (status == LS_OK) {
        status = ls_run_explain_memory(ls_model_graph(model), &setup.settings.run, setup.function->fetches,
                                       setup.function->fetch_count, setup.data.spec.batch, fits, out);
        ls_fit_setup_free(&setup);
    }
    ls_use_end(&use);
    return status;
}

ls_status ls_fit_arrays_with(ls_model *model, ls_array x, ls_array y, ls_fit_options options)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    if (model)
        LS_TRY(ls_context_check(ls_model_graph(model)->context, "ls_fit_arrays"));
    ls_dataset *data = ls_from_tensor_slices(x, y, .keep = LS_KEEP_BORROWED);
    ls_status status = ls_fit_with(model, data, options);
    ls_dataset_destroy(data);
    return status;
}

/* ---- Queries ---- */

ls_status ls_model_steps(ls_model *model, int64_t *out)
{
    LS_CLAIM(ls_model_claimed(model));
    ls_use use;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_model_steps: out is NULL");
    LS_TRY(ls_use_begin(&use, model, "ls_model_steps", false));
    ls_status status = ls_job_step(use.job, out);
    ls_use_end(&use);
    return status;
}

ls_times ls_model_times(const ls_model *model)
{
    LS_CLAIM_OR(ls_model_claimed(model), (ls_times){ 0 });
    return model && model->job ? model->job->times : (ls_times){ 0 };
}
