/* Training with asynchronous parameter servers, in the chief. It counts batches in the order in
 * which workers finish them, and has the servers' state only when it halts them: at the end of an
 * epoch, to save, or to stop. */
#include <math.h>

#include "fabric/mesh/cluster.h"
#include "train/fit/fit.h"
#include "train/job/results.h"

static ls_status check(const ls_fit_state *f)
{
    if (f->steps < 0)
        return ls_fail(LS_ERR_INVALID, "ls_fit: the number of batches per epoch is unknown, and asynchronous "
                                       "parameter servers need to know: set steps_per_epoch");
    if (f->options->audit > 0 || f->options->trace.path)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "ls_fit: asynchronous parameter servers do not support %s, which needs workers that run in step",
                       f->options->trace.path ? "a timeline" : "an audit");
    return ls_optimizer_check_elementwise(&f->job->optimizer, f->function->step.variables, f->function->step.count);
}

static void open_session(ls_fit_state *f)
{
    f->async.session = (ls_server_session){
        .job = f->job, .function = f->function, .settings = &f->settings, .options = f->options, .data = &f->data
    };
}

static ls_status open_chief(ls_fit_state *f)
{
    open_session(f);
    return ls_chief_open(&f->async.session, f->steps, &f->async.chief);
}

ls_status ls_fit_serve(ls_fit_state *f, ls_dataset *data)
{
    LS_TRY(ls_fit_open_data(f, data));
    LS_TRY(check(f));
    ls_fit_begin_job(f);
    open_session(f);
    return ls_is_server(ls_fit_context(f)) ? ls_serve_as_server(&f->async.session)
                                           : ls_serve_as_worker(&f->async.session);
}

static void drop_results(ls_fit_async *a)
{
    ls_payload_drop(a->done.results);
    a->done.results = NULL;
}

static int64_t last_batch(const ls_fit_state *f)
{
    int64_t left = f->steps - f->job->position.step, most = f->options->max_steps - f->step;
    return f->made + (f->options->max_steps > 0 && most < left ? most : left);
}

static bool allow_more(ls_fit_state *f)
{
    int64_t last = last_batch(f);
    if (f->options->max_steps > 0 && f->step >= f->options->max_steps)
        ls_fit_stop(f, "max_steps");
    if (f->stopped || last <= f->made)
        return false;
    f->async.allowed = last;
    ls_chief_allow(f->async.chief, last);
    return true;
}

/* Gets a batch that some worker has computed. */
static ls_status get(ls_fit_state *f, ls_fit_batch *batch, bool *end)
{
    ls_fit_async *a = &f->async;
    drop_results(a);
    *end = f->made >= a->allowed && !allow_more(f);
    if (*end)
        return LS_OK;
    ls_status status = ls_chief_next(a->chief, &a->done);
    if (status == LS_ERR_NOT_FINITE) { /* not pushed, but others still compute */
        *end = true;
        LS_TRY(ls_fit_refuse_step(f));
        return ls_chief_collect_state(a->chief, true);
    }
    LS_TRY(status);
    f->clean = false;
    batch->samples = a->done.samples;
    batch->lanes = a->done.lanes;
    return LS_OK;
}

/* The batch is computed already; finds the servers' rate. */
static ls_status run(ls_fit_state *f, ls_fit_batch *batch)
{
    (void)batch;
    if (isnan(f->job->rate))
        return ls_optimizer_rate(&f->job->optimizer, f->step, f->job->batch_size, &f->rate);
    f->rate = f->job->rate;
    return LS_OK;
}

static ls_status count(ls_fit_state *f, ls_fit_batch *batch)
{
    const double *values = ls_payload_bytes(f->async.done.results);
    ls_tally_add_values(&f->job->tally, f->job, values, batch->samples);
    f->job->position.step++;
    f->job->position.batch++;
    f->made++;
    f->step++;
    batch->loss = values[0];
    return LS_OK;
}

static ls_status finish(ls_fit_state *f)
{
    ls_fit_async *a = &f->async;
    bool stops = ls_fit_should_stop(f);
    if (!a->halting && (stops || ls_checkpoint_writer_wants(f->job->writer, f->step))) {
        a->allowed = ls_chief_stop(a->chief);
        a->halting = true;
    }
    if (f->made < a->allowed)
        return LS_OK;
    a->halting = false;
    LS_TRY(ls_chief_collect_state(a->chief, false));
    f->clean = true;
    LS_TRY(ls_job_step(f->job, &f->step));
    ls_checkpoint_writer_step(f->job->writer, f->stopped);
    return LS_OK;
}

/* Tries to rescue the servers' weights after a failure. */
static void close_chief(ls_fit_state *f, const ls_error *failure)
{
    ls_fit_async *a = &f->async;
    drop_results(a);
    if (!a->chief)
        return;
    if (failure->status != LS_OK && failure->status != LS_ERR_PEER && ls_chief_collect_state(a->chief, true) != LS_OK)
        ls_clear_error();
    ls_chief_close(a->chief, failure->status, failure->status == LS_OK ? "" : failure->message);
    a->chief = NULL;
}

const ls_fit_method ls_fit_asynchronous = {
    .check = check, .open = open_chief, .get = get, .run = run, .count = count, .finish = finish, .close = close_chief
};
