/* Everything that ls_fit does before its first step. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "device/cores.h"
#include "fabric/mesh/cluster.h"
#include "lockstep/cluster.h"
#include "run/peers.h"
#include "run/timeline.h"
#include "train/checkpoint/compare_workers.h"
#include "train/fit/fit.h"
#include "train/job/broadcast_dataset.h"
#include "train/job/results.h"
#include "train/job/setup.h"
#include "train/job/times.h"

/* ---- The method ---- */

static ls_status check_method(const ls_fit_state *f, const ls_dataset *data)
{
    const ls_fit_options *o = f->options;
    bool asynchronous = f->method == &ls_fit_asynchronous;
    if (asynchronous && (ls_comes_from_worker(data) || ls_comes_from_worker(o->validation)))
        return ls_fail(LS_ERR_INVALID, "ls_fit: asynchronous parameter servers cannot use data of ls_from_worker: each "
                                       "worker must read its own batches");
    if (o->record.path && !asynchronous && !ls_is_evaluator(ls_fit_context(f)))
        return ls_fail(LS_ERR_INVALID,
                       "ls_fit: a record ('%s') needs asynchronous parameter servers: set a strategy with staleness "
                       "above 0, in a cluster with servers",
                       o->record.path);
    return LS_OK;
}

ls_status ls_fit_prepare(ls_fit_state *f, ls_dataset *data)
{
    ls_context *ctx = ls_fit_context(f);
    bool asynchronous = ls_server_session_is(ctx, &f->options->strategy);
    f->method = asynchronous ? &ls_fit_asynchronous : &ls_fit_synchronous;
    ls_status status = check_method(f, data);
    if (status == LS_OK && ctx->cluster && !asynchronous)
        status = ls_library_hooks.meet_cluster(ctx);
    f->chief = ls_is_chief(ctx);
    if (ctx->peers)
        ctx->peers->fit++;
    return status;
}

/* ---- Data and position ---- */

static ls_status open_passes(ls_fit_state *f, ls_dataset *data)
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

static void open_progress(ls_fit_state *f)
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

ls_status ls_fit_open_data(ls_fit_state *f, ls_dataset *data)
{
    open_progress(f);
    return open_passes(f, data);
}

/* on_train_begin of a callback may change the position later. */
void ls_fit_begin_job(ls_fit_state *f)
{
    const ls_fit_options *o = f->options;
    ls_job *job = f->job;
    if (!o->continue_last) {
        job->position = (ls_position){ .epoch = o->initial_epoch, .pass = o->initial_epoch };
        ls_tally_clear(&job->tally, job);
    }
    job->times = (ls_times){ 0 };
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

/* ---- Reports ---- */

static void open_timeline(ls_fit_state *f)
{
    const ls_fit_options *o = f->options;
    if (o->trace.path && !f->job->timeline &&
        ls_timeline_create(ls_model_graph(f->job->model), o->trace.first_step, o->trace.last_step, &f->job->timeline) !=
            LS_OK)
        ls_log_write(&ls_fit_context(f)->log, LS_LOG_WARNING, "cannot start the timeline '%s': %s", o->trace.path,
                     ls_last_error());
}

static void open_status(ls_fit_state *f)
{
    if (f->chief && f->options->status)
        ls_fit_status_open(f->options->status, f->job, f->options->log, &f->status);
}

void ls_fit_open_as_chief(ls_fit_state *f)
{
    open_timeline(f);
    open_progress(f);
    open_status(f);
}

/* Returns whether lanes run on the device; any active CPU may help with joins and updates. */
static bool has_tasks(const ls_placement *placement, int device)
{
    bool found = placement->plan->segment_count == 0 && placement->places[device].active;
    for (int s = 0; s < placement->plan->segment_count && !found; s++)
        found = ls_runs_on(placement, s, device);
    return found;
}

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

/* Compiles the plan to log its lanes and devices; if that fails, logs what was requested. */
static ls_status log_start(ls_fit_state *f)
{
    ls_graph *graph = ls_model_graph(f->job->model);
    const ls_placement *placement;
    int *working = NULL;
    if (!f->log)
        return LS_OK;
    ls_start_facts facts = { .batch_size = f->data.spec.batch,
                             .epochs = f->epochs,
                             .seed = f->options->seed,
                             .data = f->data.dataset,
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

/* ---- Opening ---- */

/* Inside an epoch, the remaining batches must be the same. */
static ls_status check_continuation(const ls_fit_state *f)
{
    const ls_job *job = f->job;
    if (f->options->initial_epoch > 0)
        return ls_fail(LS_ERR_INVALID,
                       "ls_fit: continue_last and initial_epoch cannot be combined: set only one of them");
    if (job->fitted > 0 && job->lanes != f->options->lanes)
        return ls_fail(LS_ERR_INVALID,
                       "ls_fit: cannot continue, because another number of lanes changes the results: the last fit had "
                       "lanes = %" PRId64 " (0: chosen), this one has %d",
                       job->lanes, f->options->lanes);
    if (job->position.batch == 0 || (job->data_seed == f->options->seed && job->fitted == f->data.spec.batch))
        return LS_OK;
    return ls_fail(
        LS_ERR_INVALID,
        "ls_fit: cannot continue inside an epoch with other batches: the last fit stopped after step %" PRId64
        " of epoch %" PRId64 ", with batches of %" PRId64 " and data seed %" PRIu64 "; this one has batches of %" PRId64
        " and seed %" PRIu64,
        job->position.step, job->position.epoch + 1, job->fitted, job->data_seed, f->data.spec.batch, f->options->seed);
}

static ls_status open_callbacks(ls_fit_state *f)
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

/* Checks now that the file of the timeline can be written. */
static ls_status open_times(ls_fit_state *f)
{
    const ls_fit_options *o = f->options;
    ls_graph *graph = ls_model_graph(f->job->model);
    ls_fit_seconds *seconds = NULL;
    LS_TRY(ls_fit_seconds_make(graph->context, &f->settings.run.plan.map, &seconds));
    f->job->seconds = seconds;
    f->job->fitting = true;
    if (o->profile)
        LS_TRY(ls_profile_make(&f->job->profile));
    if (!o->trace.path)
        return LS_OK;
    if (f->chief)
        LS_TRY(ls_fail_within(ls_file_try(o->trace.path), "the timeline"));
    return ls_timeline_create(graph, o->trace.first_step, o->trace.last_step, &f->job->timeline);
}

static ls_status open_all(ls_fit_state *f, ls_dataset *data)
{
    const ls_fit_options *o = f->options;
    ls_fit_seconds_free(f->job->seconds); /* left by the last fit */
    f->job->seconds = NULL;
    ls_profile_free(f->job->profile);
    f->job->profile = NULL;
    LS_TRY(ls_fit_open_data(f, data));
    LS_TRY(open_callbacks(f));
    if (o->continue_last)
        LS_TRY(check_continuation(f));
    LS_TRY(open_times(f));
    ls_fit_begin_job(f);
    LS_TRY(ls_checkpoint_writer_open(f->job, &f->job->writer));
    if (o->log)
        LS_TRY(ls_train_log_open(
            o->log, (ls_log_mode){ .append = ls_checkpoint_writer_resumes(f->job->writer), .quiet = !f->chief },
            ls_fit_context(f), &f->log));
    open_status(f);
    return ls_job_step(f->job, &f->step);
}

static void introduce_cluster(ls_fit_state *f)
{
    char line[800];
    if ((f->progress.bar || f->progress.lines) && ls_cluster_introduce(ls_fit_context(f), line, sizeof(line)))
        fprintf(f->progress.terminal.out, "%s\n", line);
}

static ls_status join(ls_fit_state *f)
{
    ls_answer answer;
    LS_TRY(ls_job_join(f->job, f->log, f->options->stop, &answer));
    if (answer == LS_ANSWER_JOINED)
        return ls_fit_welcome(f); /* as the other workers do */
    f->over = true;
    if (answer == LS_ANSWER_WAIT)
        ls_fit_stop(f, "interrupted");
    return LS_OK;
}

ls_status ls_fit_open(ls_fit_state *f, ls_dataset *data)
{
    LS_TRY(open_all(f, data));
    if (f->method->check)
        LS_TRY(f->method->check(f));
    if (!f->method->has_state && ls_callbacks_want_gradients(&f->callbacks, 0))
        return ls_fail(LS_ERR_UNSUPPORTED, "tensorboard: asynchronous parameter servers have no histograms; set "
                                           ".histogram_freq = 0");
    introduce_cluster(f);
    LS_TRY(ls_fit_call_back(f, LS_TRAIN_BEGIN, f->options->initial_epoch));
    const ls_peers *peers = ls_fit_context(f)->peers;
    f->joins = peers && peers->joins;
    return f->joins ? join(f) : ls_checkpoint_writer_resume(f->job->writer);
}

/* An epoch that is resumed only for its validation has no other rate. */
static ls_status find_last_rate(ls_fit_state *f)
{
    const ls_job *job = f->job;
    if (!isnan(job->rate) || f->step == 0)
        return ls_job_rate(job, &f->rate);
    return ls_optimizer_rate(&job->optimizer, f->step - 1, job->batch_size, &f->rate);
}

/* Resuming or joining may have changed the step. */
static ls_status find_start(ls_fit_state *f)
{
    LS_TRY(ls_job_step(f->job, &f->step));
    LS_TRY(find_last_rate(f));
    return f->joins ? LS_OK : log_start(f);
}

/* Without joining workers: the others did this when they began. */
static ls_status begin_together(ls_fit_state *f, bool *ends)
{
    bool interrupted = false;
    LS_TRY(ls_workers_compare(f->job));
    LS_TRY(ls_job_begins(f->job, f->options->stop, &interrupted));
    if (interrupted || ls_checkpoint_writer_resumes(f->job->writer))
        *ends = ls_fit_should_stop(f);
    return LS_OK;
}

ls_status ls_fit_start(ls_fit_state *f, bool *ends)
{
    f->clean = true;
    ls_worker_times_begin(&f->pace, ls_fit_context(f));
    f->start = ls_clock_now();
    f->delay = ls_cores_delay("");
    ls_status status = find_start(f);
    ls_checkpoint_writer_log(f->job->writer, f->log);
    LS_TRY(status);
    if (!f->joins)
        LS_TRY(begin_together(f, ends));
    return f->method->open ? f->method->open(f) : LS_OK;
}
