/* ls_fit: epochs of steps, with callbacks, validation, progress and a log. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/fpmode.h"
#include "device/context.h"
#include "device/cores.h"
#include "fabric/mesh/cluster.h"
#include "graph/claim.h"
#include "lockstep/cluster.h"
#include "nn/model.h"
#include "run/peers.h"
#include "run/timeline.h"
#include "train/callback/callback.h"
#include "train/checkpoint/checkpoint.h"
#include "train/job/broadcast_dataset.h"
#include "train/server/servers.h"
#include "train/checkpoint/compare_workers.h"
#include "train/fit/evaluate.h"
#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/results.h"
#include "train/job/setup.h"
#include "train/job/step.h"
#include "train/job/times.h"
#include "train/report/log.h"
#include "train/report/progress.h"
#include "train/report/status.h"
#include "train/report/worker_times.h"

typedef struct fit {
    ls_job *job;
    ls_function *function;
    ls_settings settings;
    const ls_fit_options *options;
    ls_passes data, validation;
    bool validates;
    int64_t epochs, steps; /* steps: per epoch; negative: until the data ends */
    bool in_pass;          /* a pass over the data is open */
    int64_t step;          /* steps since the model was compiled */
    int64_t made;          /* steps of this fit */
    ls_progress progress;
    ls_train_log *log;
    ls_history *history;
    ls_results results, val_results;
    bool stopped, validated;
    bool whole; /* the last epoch is complete */
    ls_callback_list callbacks;
    const char *reason;
    bool rate_shown;               /* the first line of progress was printed */
    double start, rate;            /* time when training began; learning rate of the last step */
    double delay;                  /* ls_cores_delay at that time */
    ls_fit_facts facts;            /* for checkpoints */
    bool clean;                    /* the state is consistent: it may be saved if the fit fails */
    bool chief;                    /* this worker prints, logs and saves */
    unsigned generation;           /* generation of the membership when last checked */
    bool over;                     /* joined after the fit had ended, or was stopped before */
    ls_worker_times workers, pace; /* of this epoch; since lanes were last distributed */
    ls_fit_status *status;
    double epoch_start, looked; /* time when the epoch began; time of the last look at workers */
    bool asynchronous;          /* parameter servers apply gradients as they arrive (servers.h) */
    ls_server_session served;   /* if asynchronous */
    ls_chief *dealer;           /* if asynchronous, in the chief */
} fit;

static ls_context *context_of(const fit *f)
{
    return ls_model_graph(f->job->model)->context;
}

/* ---- Callbacks ---- */

static bool is_interrupted(const fit *f)
{
    return f->stopped && strcmp(f->reason, "interrupted") == 0;
}

/* End events carry the results of the epoch so far; the ends of an epoch and of training also those
 * of the validation. */
static ls_status call_back(fit *f, ls_moment when, int64_t epoch)
{
    bool ends = when == LS_EPOCH_END || when == LS_TRAIN_END, stop = false;
    const ls_callback_event told = { .results = ends || when == LS_BATCH_END ? &f->results : NULL,
                                     .validation = ends && f->validated ? &f->val_results : NULL,
                                     .epoch = epoch,
                                     .batch = f->job->position.step - (when == LS_BATCH_END),
                                     .step = f->step,
                                     .cut = ends && !f->whole,
                                     .interrupted = ends && is_interrupted(f) };
    f->callbacks.epoch = epoch;
    LS_TRY(ls_callbacks_call(&f->callbacks, when, &told, &stop));
    if (stop) {
        f->stopped = true;
        f->reason = "callback";
    }
    return LS_OK;
}

/* ---- When the chief is lost ---- */

static void open_progress(fit *f)
{
    const ls_progress before = f->progress;
    ls_progress_open(&f->progress, f->options->output, f->chief ? f->options->verbose : LS_VERBOSE_SILENT);
    f->progress.steps = before.steps;
    f->progress.done = before.done;
    f->progress.before = before.before;
    f->progress.start = before.start;
    f->progress.first_step = before.first_step;
    ls_progress_watch(&f->progress);
}

static void open_timeline(fit *f)
{
    const ls_fit_options *o = f->options;
    if (o->trace && !f->job->timeline &&
        ls_timeline_create(ls_model_graph(f->job->model), o->trace_first, o->trace_last, &f->job->timeline) != LS_OK)
        ls_log_write(&context_of(f)->log, LS_LOG_WARNING, "there is no timeline '%s': %s", o->trace, ls_last_error());
}

static void open_status(fit *f)
{
    if (f->chief && f->options->status)
        ls_fit_status_open(f->options->status, f->job, f->options->log, &f->status);
}

/* The oldest remaining member becomes chief and continues the same log and files. Called after each
 * collective operation, where the loss of a worker is noticed. */
static ls_status promote_to_chief(fit *f)
{
    const ls_peers *peers = context_of(f)->peers;
    if (f->chief && peers && peers->epoch != f->generation) {
        ls_train_log_renew_lease(f->log);
        ls_checkpoint_writer_renew_lease(f->job->writer);
    }
    f->generation = peers ? peers->epoch : 0;
    if (ls_peers_is_deposed(peers))
        return ls_fail(LS_ERR_PEER,
                       "another worker goes on with this job: worker %d of %d ends and writes nothing more",
                       peers->rank, peers->size);
    if (f->chief || !ls_is_chief(context_of(f)))
        return LS_OK;
    f->chief = true;
    ls_log_always(&context_of(f)->log,
                  "worker %d goes on in the place of the lost one behind step %" PRId64
                  ": it prints, logs and saves from now on",
                  ls_cluster_rank(context_of(f)), f->step);
    ls_train_log_take_over(f->log);
    ls_checkpoint_writer_take_over(f->job->writer);
    ls_callbacks_take_over(&f->callbacks);
    open_timeline(f);
    open_progress(f);
    open_status(f);
    return LS_OK;
}

/* ---- Workers that join ---- */

static ls_status welcome(fit *f)
{
    const ls_peers *peers = context_of(f)->peers;
    bool too_few = false;
    LS_TRY(ls_job_welcome(f->job, f->log, &too_few));
    LS_TRY(promote_to_chief(f));
    if (!too_few)
        return LS_OK;
    ls_checkpoint_writer_step(f->job->writer, true);
    return ls_fail(LS_ERR_PEER,
                   "%d worker%s left, at least %d are needed, and no other came in time; training ends "
                   "behind step %" PRId64 "%s",
                   ls_peers_workers(peers), ls_peers_workers(peers) == 1 ? " is" : "s are", peers->least, f->step,
                   f->job->writer ? ", which is saved" : "");
}

/* Joins a running fit at the others' current step. */
static ls_status join(fit *f)
{
    ls_answer answer;
    LS_TRY(ls_job_join(f->job, f->log, f->options->stop, &answer));
    if (answer == LS_ANSWER_JOINED)
        return welcome(f); /* as the other workers do */
    f->over = true;
    if (answer == LS_ANSWER_WAIT) {
        f->stopped = true;
        f->reason = "interrupted";
    }
    return LS_OK;
}

/* All workers stay until the chief has written everything: if it is lost meanwhile, another one
 * takes over. */
static ls_status wait_for_chief(fit *f)
{
    LS_TRY(ls_cluster_barrier(context_of(f), "the end of ls_fit"));
    return promote_to_chief(f);
}

/* ---- Steps and epochs ---- */

static ls_status log_step(fit *f, double loss, int64_t samples, int lanes)
{
    char hex[65];
    /* An asynchronous chief has the state only at a halt. */
    bool hash = f->options->log_hash && !f->asynchronous;
    if (!f->log)
        return LS_OK;
    if (hash)
        LS_TRY(ls_model_state_sha256(f->job->model, hex));
    ls_train_log_step(f->log, &(ls_step_facts){ .step = f->step,
                                                .loss = loss,
                                                .samples = samples,
                                                .lanes = lanes,
                                                .learning_rate = f->rate,
                                                .hash = hash ? hex : NULL });
    return LS_OK;
}

static ls_status log_own_step(fit *f, int64_t samples)
{
    double loss = 0;
    if (f->log)
        LS_TRY(ls_read_scalar(f->function->loss, &loss));
    return log_step(f, loss, samples, f->job->used_lanes);
}

/* A step that is not finite changed nothing. Fails, or with ls_terminate_on_nan ends training
 * before that step. */
static ls_status refuse_step(fit *f)
{
    ls_status status = ls_fail_within(LS_ERR_NOT_FINITE, "step %" PRId64, f->step + 1);
    if (!ls_callbacks_have(&f->callbacks, LS_CALLBACK_TERMINATE_ON_NAN))
        return status;
    f->stopped = true;
    f->reason = "not_finite";
    ls_log_write(ls_callback_log(&f->callbacks.facts), LS_LOG_WARNING,
                 "%s; training ends with the weights of step %" PRId64, ls_last_error(), f->step);
    ls_clear_error();
    return LS_OK;
}

static ls_status run_step(fit *f, const ls_batch_view *batch)
{
    LS_TRY(ls_job_rate(f->job, &f->rate));
    double start = ls_clock_now();
    ls_status status = ls_function_run(f->job, f->function, &f->settings, batch, f->options->class_weights);
    double end = ls_clock_now();
    f->job->times.compute += end - start;
    ls_timeline_call(f->job->timeline, LS_CALL_STEP, start, end);
    if (status == LS_ERR_NOT_FINITE)
        return refuse_step(f);
    return status == LS_ERR_DEVICE ? ls_fail_within(status, "step %" PRId64, f->step + 1) : status;
}

/* In a cluster, a signal to one worker stops all workers at the same step. */
static bool should_stop(fit *f)
{
    if (ls_job_interrupted(f->job, f->options->stop)) {
        f->stopped = true;
        f->reason = "interrupted";
    }
    if (f->options->max_steps > 0 && f->step >= f->options->max_steps) {
        f->stopped = true;
        f->reason = "max_steps";
    }
    return f->stopped;
}

/* Begins the pass at the job's position: skips the batches that were already used. */
static ls_status begin_pass(fit *f)
{
    const ls_position *at = &f->job->position;
    LS_TRY(ls_passes_begin(&f->data, (uint64_t)at->pass));
    for (int64_t i = 0; i < at->batch; i++) {
        ls_batch_view batch;
        bool end = false;
        LS_TRY(ls_passes_next(&f->data, &batch, &end));
        if (end)
            return ls_fail(LS_ERR_DATA,
                           "training was stopped behind %" PRId64 " batches of a pass; this data has %" PRId64,
                           at->batch, i);
    }
    f->in_pass = true;
    return LS_OK;
}

/* Gets the next batch. If steps_per_epoch is given, the next pass follows the end of a pass;
 * otherwise each epoch is a pass. */
static ls_status next_batch(fit *f, ls_batch_view *batch, bool *end)
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

static ls_status wait_for_batch(fit *f, ls_batch_view *batch, bool *end)
{
    ls_timeline_step(f->job->timeline, f->step + 1);
    double start = ls_clock_now();
    ls_status status = next_batch(f, batch, end);
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

#define MEASURED_STEPS 5 /* steps after which the speed of devices is known */

/* Counts a step. The state is not clean until all that is saved agrees. */
static ls_status count_step(fit *f, int64_t samples)
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

/* With work_split "auto", distributes lanes by the speed of workers; at the same step on all
 * workers. */
static ls_status split_lanes(fit *f, bool now)
{
    const char *split = f->options->strategy.work_split;
    ls_worker_times_step(&f->pace, f->job->used_lanes);
    if (!now || !split || strcmp(split, "auto") != 0)
        return LS_OK;
    LS_TRY(ls_worker_times_split(&f->pace, context_of(f)));
    return promote_to_chief(f);
}

#define LOOK 0.25 /* seconds */

/* Updates the progress that others can watch. */
static void show(fit *f, const char *doing)
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
    if (!f->chief || now - f->looked < LOOK)
        return;
    f->looked = now;
    ls_worker_times_take(&f->workers, context_of(f));
    ls_worker_times_text(&f->workers, f->progress.about);
    ls_fit_status_workers(f->status, &f->workers, made);
}

static ls_status train_epoch(fit *f)
{
    ls_position *at = &f->job->position;
    int64_t epoch = at->epoch;
    while (f->steps < 0 || at->step < f->steps) {
        ls_batch_view batch;
        bool end = false;
        LS_TRY(wait_for_batch(f, &batch, &end));
        if (end)
            break;
        LS_TRY(call_back(f, LS_BATCH_BEGIN, epoch));
        LS_TRY(run_step(f, &batch));
        if (f->stopped) /* the step was not finite, and was not made */
            return LS_OK;
        LS_TRY(count_step(f, batch.samples));
        ls_worker_times_step(&f->workers, f->job->used_lanes);
        LS_TRY(split_lanes(f, f->step % SPLIT_EVERY == 0));
        LS_TRY(promote_to_chief(f));
        ls_tally_results(&f->job->tally, f->job, &f->results);
        LS_TRY(log_own_step(f, batch.samples));
        show(f, "training");
        ls_progress_step(&f->progress, at->step, &f->results);
        LS_TRY(call_back(f, LS_BATCH_END, epoch));
        bool stops = should_stop(f);
        LS_TRY(promote_to_chief(f));
        ls_checkpoint_writer_step(f->job->writer, stops);
        if (stops) {
            f->whole = f->steps >= 0 && at->step >= f->steps && !is_interrupted(f);
            return LS_OK;
        }
        LS_TRY(welcome(f)); /* last: a worker that joins starts from this state */
    }
    f->whole = true;
    if (at->step == 0)
        return ls_fail(LS_ERR_DATA, "epoch %" PRId64 ": the data gave no batch", epoch + 1);
    return LS_OK;
}

/* ---- Steps of asynchronous parameter servers ---- */

/* Finds the rate that servers use for the next step. */
static ls_status find_server_rate(fit *f)
{
    if (isnan(f->job->rate))
        return ls_optimizer_rate(&f->job->optimizer, f->step, f->job->batch_size, &f->rate);
    f->rate = f->job->rate;
    return LS_OK;
}

/* Counts a batch that some worker has computed. */
static ls_status count_done(fit *f, const ls_chief_done *done)
{
    ls_position *at = &f->job->position;
    const double *values = ls_payload_bytes(done->results);
    f->clean = false;
    LS_TRY(call_back(f, LS_BATCH_BEGIN, at->epoch));
    LS_TRY(find_server_rate(f));
    ls_tally_add_values(&f->job->tally, f->job, values, done->samples);
    at->step++;
    at->batch++;
    f->made++;
    f->step++;
    ls_tally_results(&f->job->tally, f->job, &f->results);
    LS_TRY(log_step(f, values[0], done->samples, done->lanes));
    show(f, "training");
    ls_progress_step(&f->progress, at->step, &f->results);
    return call_back(f, LS_BATCH_END, at->epoch);
}

/* Copies the servers' state into the job while no batch is being computed. */
static ls_status settle(fit *f)
{
    LS_TRY(ls_chief_settle(f->dealer, false));
    f->clean = true;
    return ls_job_step(f->job, &f->step);
}

static ls_status next_done(fit *f)
{
    ls_chief_done done;
    ls_status status = ls_chief_next(f->dealer, &done);
    /* It was not pushed; other batches are still being computed. */
    if (status == LS_ERR_NOT_FINITE) {
        LS_TRY(refuse_step(f));
        return ls_chief_settle(f->dealer, true);
    }
    LS_TRY(status);
    status = count_done(f, &done);
    ls_payload_drop(done.results);
    return status;
}

/* Runs the epoch's batches until all that were handed out are done. Halts within it for
 * checkpoints. */
static ls_status serve_epoch(fit *f)
{
    ls_position *at = &f->job->position;
    int64_t most = f->options->max_steps, end = f->made + f->steps - at->step;
    if (most > 0 && end > f->made + most - f->step)
        end = f->made + most - f->step;
    int64_t all = end;
    ls_chief_allow(f->dealer, all);
    while (f->made < all) {
        bool stopped = f->stopped;
        LS_TRY(next_done(f));
        if (f->stopped && strcmp(f->reason, "not_finite") == 0)
            return LS_OK;
        bool stops = should_stop(f);
        if ((stops && !stopped) || (all == end && ls_checkpoint_writer_wants(f->job->writer, f->step)))
            all = ls_chief_stop(f->dealer);
        if (f->made < all)
            continue;
        LS_TRY(settle(f));
        ls_checkpoint_writer_step(f->job->writer, f->stopped);
        if (!f->stopped)
            ls_chief_allow(f->dealer, all = end);
    }
    f->whole = at->step >= f->steps && !is_interrupted(f);
    return LS_OK;
}

/* Leaves the results of the epoch before in f->results. */
static void begin_next_epoch(fit *f)
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

/* An interrupted epoch has no validation results, and must not report those of the epoch before. A
 * signal after the last step or during validation leaves the epoch incomplete: a resumed fit begins
 * with this validation. */
static ls_status validate(fit *f, double *seconds)
{
    bool interrupted = is_interrupted(f);
    double start = ls_clock_now();
    const ls_watchers watch = { .verb = "validating", .callbacks = &f->callbacks, .stop = f->options->stop };
    if (!f->validates)
        return LS_OK;
    show(f, "validating");
    if (!interrupted)
        LS_TRY(ls_job_evaluate(f->job, &f->settings, &f->validation, &watch, &f->val_results));
    bool cut = !interrupted && f->val_results.count == 0;
    bool stops = false;
    if (cut)
        stops = should_stop(f);
    if (stops) /* saved as before it: a resumed fit validates again */
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

/* Returns the difference. `seconds`: all time that passed; what is neither data nor compute is
 * other. */
static ls_times times_since(const ls_times *now, const ls_times *before, double seconds)
{
    ls_times t = { .data = now->data - before->data,
                   .compute = now->compute - before->compute,
                   .join = now->join - before->join,
                   .moved_bytes = now->moved_bytes - before->moved_bytes };
    t.other = seconds - t.data - t.compute;
    return t;
}

/* Prints the rate once, after the first epoch-begin callbacks, which may set it. */
static ls_status show_rate(fit *f)
{
    double rate;
    if (f->rate_shown)
        return LS_OK;
    f->rate_shown = true;
    LS_TRY(ls_job_rate(f->job, &rate));
    ls_progress_rate(&f->progress, ls_optimizer_name(&f->job->optimizer), rate);
    return LS_OK;
}

static ls_status run_epoch(fit *f)
{
    int64_t epoch = f->job->position.epoch;
    double start = ls_clock_now(), validation_seconds = 0;
    f->epoch_start = start;
    const ls_times before = f->job->times;
    f->whole = false;
    ls_fit_seconds_begin_epoch(f->job->seconds);
    ls_worker_times_begin(&f->workers, context_of(f));
    if (f->job->position.step == 0)
        LS_TRY(call_back(f, LS_EPOCH_BEGIN, epoch));
    LS_TRY(show_rate(f));
    ls_progress_epoch(&f->progress, epoch, f->epochs, f->steps, f->job->position.step);
    if (f->job->tally.steps > 0)
        ls_tally_results(&f->job->tally, f->job, &f->results);
    LS_TRY(f->asynchronous ? serve_epoch(f) : train_epoch(f));
    if (f->job->position.step == 0) /* its first step was not finite: nothing to report */
        return LS_OK;
    double seconds = ls_clock_now() - start;
    const ls_times times = times_since(&f->job->times, &before, seconds);
    ls_worker_times_take(&f->workers, context_of(f));
    LS_TRY(split_lanes(f, true));
    LS_TRY(validate(f, &validation_seconds));
    LS_TRY(promote_to_chief(f));
    const ls_results *validation = f->validates && f->val_results.count ? &f->val_results : NULL;
    const ls_results *shown = f->validated ? validation : NULL;
    ls_progress_end(&f->progress, &f->results, shown);
    if (f->chief)
        ls_worker_times_report(&f->workers, context_of(f), epoch);
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
    LS_TRY(call_back(f, LS_EPOCH_END, epoch));
    f->clean = f->whole;
    if (f->whole)
        ls_checkpoint_writer_epoch(f->job->writer, &f->results, shown);
    return LS_OK;
}

/* ---- Setting up ---- */

static ls_status open_passes(fit *f, ls_dataset *data)
{
    ls_fit_setup setup;
    LS_TRY(ls_fit_set_up(f->job, data, f->options, "ls_fit", &setup));
    f->settings = setup.settings;
    f->data = setup.data;
    f->validation = setup.validation;
    f->validates = setup.validates;
    f->epochs = setup.epochs;
    f->steps = setup.steps;
    f->function = setup.function;
    return LS_OK;
}

/* Returns whether lanes run on the device. Joins and updates alone, with which any active CPU may
 * help, do not count. */
static bool has_tasks(const ls_placement *placement, int device)
{
    bool found = placement->plan->segment_count == 0 && placement->places[device].active;
    for (int s = 0; s < placement->plan->segment_count && !found; s++)
        found = ls_runs_on(placement, s, device);
    return found;
}

/* Lists the devices that have work in the plan. The caller frees the list. */
static ls_status working_devices(const ls_placement *placement, int **out, int *count)
{
    int all = placement->ctx->device_count, *list = calloc((size_t)all, sizeof(*list));
    if (!list)
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %d devices", all);
    for (int d = 0; d < all; d++)
        if (has_tasks(placement, d))
            list[(*count)++] = d;
    *out = list;
    return LS_OK;
}

/* Logs the start with the lanes and devices of the plan, which is compiled here. If that fails,
 * logs what was requested. */
static ls_status log_start(fit *f)
{
    ls_graph *graph = ls_model_graph(f->job->model);
    const ls_placement *placement;
    int *working = NULL;
    if (!f->log)
        return LS_OK;
    ls_start_facts facts = { .batch_size = f->data.spec.batch,
                             .epochs = f->epochs,
                             .seed = f->options->seed,
                             .lanes = f->options->lanes,
                             .devices = f->settings.run.plan.map.devices,
                             .device_count = f->settings.run.plan.map.count };
    ls_status planned = ls_run_placement(graph, &f->settings.run, f->function->fetches, f->function->fetch_count,
                                         f->data.first, &placement);
    if (planned == LS_OK) {
        facts.lanes = placement->plan->lanes;
        facts.device_count = 0;
        planned = working_devices(placement, &working, &facts.device_count);
        facts.devices = working;
    }
    ls_error failure;
    ls_error_keep(&failure, planned);
    ls_status status = ls_train_log_start(f->log, f->job, &facts);
    free(working);
    LS_TRY(status);
    return ls_error_give(&failure);
}

/* A fit that resumes within an epoch uses the remaining batches of that epoch, so they must be the
 * same. */
static ls_status check_going_on(const fit *f)
{
    const ls_job *job = f->job;
    if (f->options->initial_epoch > 0)
        return ls_fail(LS_ERR_INVALID, "ls_fit: go_on and initial_epoch contradict each other");
    if (job->fitted > 0 && job->lanes != f->options->lanes)
        return ls_fail(LS_ERR_INVALID,
                       "ls_fit: the last fit was asked for %" PRId64
                       " lanes (0: chosen), this one for %d: going on with "
                       "others would give other bits",
                       job->lanes, f->options->lanes);
    if (job->position.batch == 0 || (job->data_seed == f->options->seed && job->fitted == f->data.spec.batch))
        return LS_OK;
    return ls_fail(
        LS_ERR_INVALID,
        "ls_fit: the last fit stopped behind step %" PRId64 " of epoch %" PRId64 ", with batches of %" PRId64
        " and data seed %" PRIu64 "; this one cannot go on there with batches of %" PRId64 " and seed %" PRIu64,
        job->position.step, job->position.epoch + 1, job->fitted, job->data_seed, f->data.spec.batch, f->options->seed);
}

/* Puts the job at the start of its first epoch, or where the last fit ended. A callback's
 * on_train_begin may change the position. */
static void begin_job(fit *f)
{
    const ls_fit_options *o = f->options;
    ls_job *job = f->job;
    if (!o->go_on) {
        job->position = (ls_position){ .epoch = o->initial_epoch, .pass = o->initial_epoch };
        ls_tally_clear(&job->tally, job);
    }
    job->data_seed = o->seed;
    job->fitted = f->data.spec.batch;
    job->lanes = o->lanes;
    job->callbacks = f->callbacks.all;
    job->callback_count = f->callbacks.count;
    f->facts = (ls_fit_facts){ .data = &f->data,
                               .validation = f->validates ? &f->validation : NULL,
                               .options = o,
                               .function = f->function,
                               .settings = &f->settings,
                               .history = &f->history };
    job->fit = &f->facts;
}

/* Reports errors in callbacks before training begins. */
static ls_status open_callbacks(fit *f)
{
    const ls_fit_options *o = f->options;
    const ls_callback_facts facts = { .job = f->job,
                                      .call = "ls_fit",
                                      .trains = true,
                                      .validates = f->validates,
                                      .ends = &f->stopped,
                                      .out = o->verbose == LS_VERBOSE_SILENT ? NULL
                                             : o->output                     ? o->output
                                                                             : stdout };
    return ls_callbacks_open(&f->callbacks, o->callbacks, o->callback_count, &facts);
}

/* Starts device times and, on request, a timeline. Checks now that its file can be written. */
static ls_status open_times(fit *f)
{
    const ls_fit_options *o = f->options;
    ls_graph *graph = ls_model_graph(f->job->model);
    ls_fit_seconds *seconds = NULL;
    LS_TRY(ls_fit_seconds_make(graph->context, &f->settings.run.plan.map, &seconds));
    f->job->seconds = seconds;
    f->job->fitting = true;
    if (!o->trace)
        return LS_OK;
    if (f->chief)
        LS_TRY(ls_fail_within(ls_file_try(o->trace), "the timeline"));
    return ls_timeline_create(graph, o->trace_first, o->trace_last, &f->job->timeline);
}

/* Writes the timeline. As with the log, failure is only a warning. */
static void close_times(fit *f, const ls_error *failure)
{
    ls_job *job = f->job;
    ls_logger *log = &ls_model_graph(job->model)->context->log;
    int64_t kept = 0;
    job->fitting = false;
    if (!job->timeline)
        return;
    if (failure->status != LS_OK)
        ls_timeline_failed(job->timeline, failure->message);
    bool writes = f->chief && !ls_peers_is_deposed(context_of(f)->peers);
    bool written = writes && ls_timeline_write(job->timeline, f->options->trace, &kept) == LS_OK;
    if (!written && writes)
        ls_log_write(log, LS_LOG_WARNING, "the timeline '%s' was not written: %s", f->options->trace, ls_last_error());
    else if (written && kept < f->step && (f->options->trace_last == 0 || kept < f->options->trace_last))
        ls_log_write(log, LS_LOG_WARNING,
                     "the timeline '%s' has room for the steps up to %" PRId64 " of %" PRId64
                     "; the first and last step of a timeline can be chosen",
                     f->options->trace, kept, f->step);
    ls_timeline_destroy(job->timeline);
    job->timeline = NULL;
}

/* Collects the timelines of the other workers in the chief. */
static ls_status gather_timelines(fit *f)
{
    ls_peers *peers = context_of(f)->peers;
    if (!f->options->trace || !peers)
        return LS_OK;
    LS_TRY(ls_timeline_gather(f->job->timeline, peers));
    return promote_to_chief(f);
}

static ls_status open_fit(fit *f, ls_dataset *data)
{
    const ls_fit_options *o = f->options;
    ls_fit_seconds_free(f->job->seconds); /* from the fit before */
    f->job->seconds = NULL;
    open_progress(f);
    LS_TRY(open_passes(f, data));
    LS_TRY(open_callbacks(f));
    if (o->go_on)
        LS_TRY(check_going_on(f));
    f->job->times = (ls_times){ 0 };
    LS_TRY(open_times(f));
    begin_job(f);
    LS_TRY(ls_checkpoint_writer_open(f->job, &f->job->writer));
    if (o->log)
        LS_TRY(ls_train_log_open(
            o->log, (ls_log_mode){ .append = ls_checkpoint_writer_resumes(f->job->writer), .quiet = !f->chief },
            context_of(f), &f->log));
    open_status(f);
    return ls_job_step(f->job, &f->step);
}

/* Finds the rate of the last step made. An epoch that is resumed only for its validation has no
 * other. */
static ls_status find_last_rate(fit *f)
{
    const ls_job *job = f->job;
    if (!isnan(job->rate) || f->step == 0)
        return ls_job_rate(job, &f->rate);
    return ls_optimizer_rate(&job->optimizer, f->step - 1, job->batch_size, &f->rate);
}

/* ---- Asynchronous parameter servers ---- */

static ls_status open_fit_data(fit *f, ls_dataset *data)
{
    open_progress(f);
    return open_passes(f, data);
}

static ls_status check_served(const fit *f)
{
    if (f->steps < 0)
        return ls_fail(LS_ERR_INVALID, "ls_fit: batches are dealt out by their numbers, so parameter servers have to "
                                       "know how many an epoch has: give steps_per_epoch");
    if (f->options->audit > 0 || f->options->trace)
        return ls_fail(LS_ERR_UNSUPPORTED, "ls_fit: %s is for processes that run together; asynchronous workers do not",
                       f->options->trace ? "a timeline" : "an audit");
    return LS_OK;
}

static void set_served(fit *f)
{
    f->served = (ls_server_session){
        .job = f->job, .function = f->function, .settings = &f->settings, .options = f->options, .data = &f->data
    };
}

/* Runs a server, or a worker that is not the chief: it prints, logs and saves nothing. */
static ls_status serve_fit(fit *f, ls_dataset *data)
{
    LS_TRY(open_fit_data(f, data));
    LS_TRY(check_served(f));
    f->job->times = (ls_times){ 0 };
    begin_job(f);
    set_served(f);
    return ls_is_server(context_of(f)) ? ls_serve_as_server(&f->served) : ls_serve_as_worker(&f->served);
}

/* ---- Evaluating checkpoints ---- */

static ls_status follow_fit(fit *f, ls_dataset *data)
{
    const ls_fit_options *o = f->options;
    LS_TRY(open_fit_data(f, data));
    if (!f->validates || !o->checkpoint)
        return ls_fail(LS_ERR_INVALID, "ls_fit: an evaluator needs %s",
                       o->checkpoint ? "data for validation" : "the folder of checkpoints that it follows");
    f->job->times = (ls_times){ 0 };
    begin_job(f);
    return ls_evaluate_checkpoints(f->job, &f->settings, &f->validation, f->epochs, &f->history);
}

/* After a failure, tries to get the servers' weights into the model. */
static void close_served(fit *f, ls_error *failure)
{
    if (failure->status != LS_OK && failure->status != LS_ERR_PEER && ls_chief_settle(f->dealer, true) != LS_OK)
        ls_clear_error();
    ls_chief_close(f->dealer, failure->status, failure->status == LS_OK ? "" : failure->message);
    f->dealer = NULL;
}

/* ---- The whole fit ---- */

static void introduce_cluster(fit *f)
{
    char line[800];
    if ((f->progress.bar || f->progress.lines) && ls_cluster_introduce(context_of(f), line, sizeof(line)))
        fprintf(f->progress.terminal.out, "%s\n", line);
}

static ls_status run_fit(fit *f, ls_dataset *data)
{
    ls_cluster_warn_unused(context_of(f));
    if (ls_is_evaluator(context_of(f)))
        return follow_fit(f, data);
    if (f->asynchronous && !f->chief)
        return serve_fit(f, data);
    LS_TRY(open_fit(f, data));
    if (f->asynchronous)
        LS_TRY(check_served(f));
    introduce_cluster(f);
    LS_TRY(call_back(f, LS_TRAIN_BEGIN, f->options->initial_epoch));
    const ls_peers *peers = context_of(f)->peers;
    bool joins = peers && peers->joins;
    LS_TRY(joins ? join(f) : ls_checkpoint_writer_resume(f->job->writer));
    if (f->over)
        return call_back(f, LS_TRAIN_END, f->job->position.epoch);
    f->clean = true;
    ls_worker_times_begin(&f->pace, context_of(f));
    f->start = ls_clock_now();
    f->delay = ls_cores_delay("");
    /* again: resuming or joining may have changed it */
    ls_status status = ls_job_step(f->job, &f->step);
    if (status == LS_OK)
        status = find_last_rate(f);
    if (status == LS_OK && !joins)
        status = log_start(f); /* only now is the start position known */
    ls_checkpoint_writer_log(f->job->writer, f->log);
    bool resumes = ls_checkpoint_writer_resumes(f->job->writer), interrupted = false, stops = false;
    if (status == LS_OK && !joins)
        status = ls_workers_compare(f->job);
    if (status == LS_OK && !joins)
        status = ls_job_begins(f->job, f->options->stop, &interrupted);
    if (status == LS_OK && !joins && (resumes || interrupted))
        stops = should_stop(f);
    if (status == LS_OK && f->asynchronous) {
        set_served(f);
        status = ls_chief_open(&f->served, f->steps, &f->dealer);
    }
    if (stops) /* a signal came before the first step, or all steps are done */
        return call_back(f, LS_TRAIN_END, f->job->position.epoch);
    while (f->job->position.epoch < f->epochs && status == LS_OK && !f->stopped)
        status = run_epoch(f);
    if (status == LS_OK)
        ls_checkpoint_writer_finish(f->job->writer);
    if (status == LS_OK)
        status = gather_timelines(f);
    double wall = ls_clock_now() - f->start;
    f->job->times.other = wall - f->job->times.data - f->job->times.compute;
    ls_fit_seconds_note(f->job->seconds, &f->job->times, wall, f->made, ls_cores_delay("") - f->delay);
    return status == LS_OK ? call_back(f, LS_TRAIN_END, f->epochs - 1) : status;
}

static void close_log(fit *f, const ls_error *failure)
{
    ls_end_facts facts = { .reason = f->reason, .times = &f->job->times };
    if (failure->status != LS_OK) {
        facts.reason = "failed";
        facts.error = failure->message;
    }
    facts.seconds = f->start > 0 ? ls_clock_now() - f->start : 0;
    ls_train_log_close(f->log, f->job, &facts);
}

ls_status ls_fit_with(ls_model *model, ls_dataset *data, ls_fit_options options)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    fit f = { .options = &options, .reason = "done" };
    ls_use use;
    LS_TRY(ls_use_begin(&use, model, "ls_fit", true));
    f.job = use.job;
    f.asynchronous = ls_server_session_is(context_of(&f), &options.strategy);
    ls_status status = LS_OK;
    if (options.record && !f.asynchronous && !ls_is_evaluator(context_of(&f)))
        status = ls_fail(LS_ERR_INVALID,
                         "ls_fit: a record ('%s') is of asynchronous parameter servers: the strategy is "
                         "another, its staleness is 0, or the cluster has no servers",
                         options.record);
    if (f.asynchronous && (ls_comes_from_worker(data) || ls_comes_from_worker(options.validation)))
        status = ls_fail(LS_ERR_INVALID, "ls_fit: workers of asynchronous parameter servers read batches of their own: "
                                         "data that only one worker has is not for them");
    if (status == LS_OK && context_of(&f)->cluster && !f.asynchronous)
        status = ls_context_meet_cluster(context_of(&f));
    f.chief = ls_is_chief(context_of(&f));
    if (context_of(&f)->peers)
        context_of(&f)->peers->fit++;
    if (status == LS_OK)
        status = run_fit(&f, data);
    bool waits = !f.chief;
    if (status == LS_OK && waits && !f.over)
        status = wait_for_chief(&f);
    ls_error failure;
    ls_error_keep(&failure, status);
    if (f.dealer)
        close_served(&f, &failure);
    ls_progress_close(&f.progress);
    ls_fit_status_close(f.status);
    if (status != LS_OK && f.clean)
        ls_checkpoint_writer_finish(f.job->writer); /* keep the last good step */
    ls_error unsaved;
    ls_error_keep(&unsaved, ls_checkpoint_writer_close(f.job->writer));
    f.job->writer = NULL;
    f.job->fit = NULL;
    f.job->callback_count = 0;
    ls_callbacks_close(&f.callbacks, LS_OK);
    close_times(&f, &failure);
    close_log(&f, &failure);
    ls_passes_close(&f.data);
    ls_passes_close(&f.validation);
    ls_settings_free(&f.settings);
    if (status == LS_OK && !waits)
        status = ls_cluster_barrier(ls_model_graph(model)->context, "the end of ls_fit");
    if (failure.status == LS_OK)
        ls_error_keep(&failure, status);
    /* Reported after the barrier: other workers do not wait for a disk. */
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
    fit f = { .options = &options };
    ls_use use;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_explain_fit: a place for the text is needed");
    LS_TRY(ls_use_begin(&use, model, "ls_explain_fit", true));
    f.job = use.job;
    ls_status status = open_passes(&f, data);
    if (status == LS_OK)
        status = ls_run_explain_memory(ls_model_graph(model), &f.settings.run, f.function->fetches,
                                       f.function->fetch_count, f.data.spec.batch, fits, out);
    ls_passes_close(&f.data);
    ls_passes_close(&f.validation);
    ls_settings_free(&f.settings);
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
        return ls_fail(LS_ERR_INVALID, "ls_model_steps: a place for the number is needed");
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
