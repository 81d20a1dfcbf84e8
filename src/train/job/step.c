/* Runs the functions of a job. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/on_demand.h"
#include "lockstep/cluster.h"
#include "nn/model.h"
#include "run/peers.h"
#include "run/strategy.h"
#include "train/job/job.h"
#include "train/job/step.h"
#include "train/job/times.h"

/* ---- Settings ---- */

/* Workers of one cluster must not train separately. */
static ls_status check_cluster(const ls_context *ctx, const ls_strategy *strategy)
{
    ls_cluster_options found;
    bool servers = strategy->kind == LS_STRATEGY_PARAMETER_SERVER;
    const char *name = servers ? "parameter-server" : "multi-worker";
    if (servers && ls_cluster_size(ctx) > 1 && ls_cluster_servers(ctx) == 0)
        return ls_fail(
            LS_ERR_STATE,
            "the strategy parameter-server needs servers, but none of the %d workers is one; start them with `lockstep "
            "launch --servers 1`, with \"ps\" tasks in TF_CONFIG, or with LOCKSTEP_SERVERS",
            ls_cluster_size(ctx));
    if ((!servers && strategy->kind != LS_STRATEGY_MULTI_WORKER) || ctx->joined)
        return LS_OK;
    LS_TRY(ls_fail_within(ls_cluster_environment(&found), "the strategy %s", name));
    if (found.size == 1)
        return LS_OK;
    return ls_fail(
        LS_ERR_STATE,
        "the strategy %s: the environment says that this is worker %d of %d, but the context did not join the "
        "cluster; call ls_cluster_join(ctx, NULL) after ls_context_create, before the first call that opens it",
        name, found.rank, found.size);
}

ls_status ls_settings_make(const ls_job *job, const ls_strategy *strategy, int lanes, ls_settings *out)
{
    ls_graph *graph = ls_model_graph(job->model);
    ls_runs *runs = NULL;
    if (lanes < 0 || lanes > LS_MAX_LANES)
        return ls_fail(LS_ERR_INVALID, "lanes must be 0 (automatic) to %d, got %d", LS_MAX_LANES, lanes);
    LS_TRY(check_cluster(graph->context, strategy));
    LS_TRY(ls_runs_of(graph, &runs));
    ls_run_settings run = runs->settings;
    *out = (ls_settings){ .of_graph = strategy->kind == LS_STRATEGY_DEFAULT && runs->lists };
    if (!out->of_graph)
        LS_TRY(ls_strategy_map(graph->context, strategy, &out->lists, &run.plan.map));
    else /* a copy, because a callback may change the graph's map */
        LS_TRY(ls_task_map_copy(&runs->settings.plan.map, &out->lists, &run.plan.map));
    if (lanes > 0)
        run.plan.lanes = lanes;
    out->run = run;
    return LS_OK;
}

ls_status ls_settings_follow(const ls_job *job, const ls_strategy *strategy, ls_settings *settings)
{
    int *lists = NULL;
    ls_task_map map;
    if (!strategy->work_split || strcmp(strategy->work_split, "auto") != 0 || settings->of_graph)
        return LS_OK;
    LS_TRY(ls_strategy_map(ls_model_graph(job->model)->context, strategy, &lists, &map));
    free(settings->lists);
    settings->lists = lists;
    settings->run.plan.map = map;
    return LS_OK;
}

void ls_settings_free(ls_settings *settings)
{
    free(settings->lists);
    settings->lists = NULL;
}

bool ls_job_interrupted(const ls_job *job, const volatile int *stop)
{
    bool out = stop && *stop;
    ls_peers_stops(ls_model_graph(job->model)->context->peers, &out);
    return out;
}

ls_status ls_job_begins(const ls_job *job, const volatile int *stop, bool *interrupted)
{
    *interrupted = stop && *stop;
    return ls_peers_any(ls_model_graph(job->model)->context->peers, "the start of a fit", interrupted);
}

/* ---- Step and rate ---- */

ls_status ls_job_step(const ls_job *job, int64_t *out)
{
    return ls_optimizer_state_step(&job->state, out);
}

ls_status ls_job_rate(const ls_job *job, double *out)
{
    int64_t step = 0;
    if (!isnan(job->rate)) {
        *out = job->rate;
        return LS_OK;
    }
    LS_TRY(ls_job_step(job, &step));
    return ls_optimizer_rate(&job->optimizer, step, job->batch_size, out);
}

/* ---- Feeds ---- */

typedef struct feeds {
    ls_feed feed[LS_MAX_COMPONENTS + 2];
    size_t count;
    float rate, *classes;
} feeds;

static ls_status feed_classes(feeds *to, const ls_function *f, const double *class_weights)
{
    to->classes = malloc((f->class_count + 1) * sizeof(*to->classes));
    if (!to->classes)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu class weights", f->class_count);
    for (size_t i = 0; i < f->class_count; i++)
        to->classes[i] = (float)class_weights[i];
    to->feed[to->count++] =
        (ls_feed){ f->class_weights, ls_array_of(LS_F32, LS_SHAPE((int64_t)f->class_count), to->classes) };
    return LS_OK;
}

static ls_status check_labels(const ls_job *job, const ls_function *f, const ls_batch_view *batch, int64_t first,
                              int64_t end)
{
    for (size_t i = 0; i < job->target_count && f->kind != LS_FUNCTION_PREDICT; i++)
        if (job->targets[i].loss.kind == LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY || f->class_weights)
            LS_TRY(ls_check_class_labels(&batch->element->component[(size_t)f->spec.features + i],
                                         ls_job_ignored(job, i), batch->rows, first, end));
    return LS_OK;
}

/* Creates samples on demand and then checks their labels. */
typedef struct maker {
    const ls_job *job;
    const ls_function *function;
    const ls_batch_view *batch;
} maker;

static ls_status make_samples(void *user, int64_t first, int64_t end)
{
    const maker *m = user;
    LS_TRY(ls_on_demand_make(m->batch->on_demand, first, end));
    return check_labels(m->job, m->function, m->batch, first, end);
}

/* Feeds everything except the learning rate. */
static ls_status feed_batch(feeds *to, const ls_job *job, const ls_function *f, const ls_batch_view *batch,
                            const double *class_weights)
{
    if (!batch->on_demand)
        LS_TRY(check_labels(job, f, batch, 0, batch->samples));
    for (int i = 0; i < LS_MAX_COMPONENTS && f->inputs[i]; i++)
        to->feed[to->count++] = (ls_feed){ f->inputs[i], batch->element->component[i] };
    return f->class_weights ? feed_classes(to, f, class_weights) : LS_OK;
}

static ls_status find_rate(const ls_job *job, float *out)
{
    double exact;
    LS_TRY(ls_job_rate(job, &exact));
    *out = (float)exact;
    return LS_OK;
}

static void note_times(ls_job *job, const ls_run_report *report)
{
    job->times.join += report->join_seconds;
    job->times.moved_bytes += report->moved_bytes;
}

/* NULL for runs that are not steps of a fit. */
static ls_device_seconds *seconds_of(const ls_job *job, const ls_function *f)
{
    return job->fitting && f->kind == LS_FUNCTION_TRAIN ? ls_fit_seconds_list(job->seconds) : NULL;
}

/* Depends on the step number only, which is the same on all workers. */
static bool is_audited(const ls_job *job, const ls_function *f)
{
    int64_t step;
    return job->fitting && job->audit > 0 && f->kind == LS_FUNCTION_TRAIN && ls_job_step(job, &step) == LS_OK &&
           (step + 1) % job->audit == 0;
}

/* A step of a fit, or a part of it. */
static ls_profile *profile_of(const ls_job *job, const ls_function *f)
{
    return job->fitting && f->kind == LS_FUNCTION_TRAIN ? job->profile : NULL;
}

static ls_run_request request_of(const maker *m, const ls_settings *settings, const feeds *fed)
{
    const ls_job *job = m->job;
    const ls_function *f = m->function;
    const ls_batch_view *batch = m->batch;
    return (ls_run_request){ .graph = ls_model_graph(job->model),
                             .settings = &settings->run,
                             .feeds = fed->feed,
                             .feed_count = fed->count,
                             .rows = batch->rows,
                             .row_count = batch->samples,
                             .make = batch->on_demand ? make_samples : NULL,
                             .make_user = (void *)m,
                             .audit = is_audited(job, f),
                             .timeline = job->timeline,
                             .seconds = seconds_of(job, f),
                             .profile = profile_of(job, f) };
}

static ls_status run_function(ls_job *job, ls_function *f, const ls_settings *settings, const ls_batch_view *batch,
                              const double *class_weights)
{
    feeds fed = { .count = 0 };
    ls_run_report report;
    ls_status status = feed_batch(&fed, job, f, batch, class_weights);
    if (status == LS_OK && f->learning_rate) {
        status = find_rate(job, &fed.rate);
        fed.feed[fed.count++] = (ls_feed){ f->learning_rate, ls_array_of(LS_F32, LS_SCALAR, &fed.rate) };
    }
    maker m = { job, f, batch };
    ls_run_request request = request_of(&m, settings, &fed);
    request.fetches = f->fetches;
    request.fetch_count = f->fetch_count;
    if (status == LS_OK)
        status = ls_run(&request, &report);
    free(fed.classes);
    if (status == LS_OK && f->kind == LS_FUNCTION_TRAIN) {
        note_times(job, &report);
        job->used_lanes = report.lanes;
    }
    return status;
}

ls_status ls_job_fetch(ls_job *job, ls_function *f, const ls_settings *settings, const ls_batch_view *batch,
                       const double *class_weights, ls_tensor *const *fetches, size_t count)
{
    feeds fed = { .count = 0 };
    ls_run_report report;
    ls_status status = feed_batch(&fed, job, f, batch, class_weights);
    maker m = { job, f, batch };
    ls_run_request request = request_of(&m, settings, &fed);
    request.fetches = fetches;
    request.fetch_count = count;
    request.of_step = true;
    if (status == LS_OK)
        status = ls_run(&request, &report);
    free(fed.classes);
    LS_TRY(status);
    note_times(job, &report);
    job->used_lanes = report.lanes;
    return LS_OK;
}

ls_status ls_function_run(ls_job *job, ls_function *f, const ls_settings *settings, const ls_batch_view *batch,
                          const double *class_weights)
{
    return ls_explain_failure(job, f, batch, run_function(job, f, settings, batch, class_weights));
}
