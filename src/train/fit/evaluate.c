/* evaluate and predict: one pass over data, by a function that changes no variables. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpmode.h"
#include "device/context.h"
#include "graph/claim.h"
#include "lockstep/cluster.h"
#include "nn/model.h"
#include "train/callback/callback.h"
#include "train/checkpoint/compare_workers.h"
#include "train/fit/evaluate.h"
#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/results.h"
#include "train/job/step.h"
#include "train/report/progress.h"

/* ---- Evaluate ---- */

/* Returns LS_VERBOSE_SILENT unless output was requested and this worker is the chief. */
static ls_verbose shown(const ls_job *job, ls_verbose verbose)
{
    bool chief = ls_is_chief(ls_model_graph(job->model)->context);
    return chief && verbose != LS_VERBOSE_AUTO ? verbose : LS_VERBOSE_SILENT;
}

static void report_step(ls_progress *progress, const char *verb, int64_t done, int64_t steps, const ls_results *results)
{
    if (progress)
        ls_progress_step(progress, done, results);
    if (!progress || !progress->bar)
        ls_work_report(verb, NULL, done, steps > 0 ? steps : 0);
}

typedef struct evaluation {
    ls_job *job;
    const ls_settings *settings;
    ls_function *function;
    ls_tally tally;
    const ls_watchers *watch;
    ls_callback_event event;
    ls_results results; /* so far */
    bool stopped;       /* watch->stop became nonzero */
} evaluation;

static ls_status evaluate_batch(evaluation *e, const ls_batch_view *batch)
{
    e->event.results = NULL;
    LS_TRY(ls_callbacks_call(e->watch->callbacks, LS_TEST_BATCH_BEGIN, &e->event, NULL));
    LS_TRY(ls_function_run(e->job, e->function, e->settings, batch, NULL));
    LS_TRY(ls_tally_add(&e->tally, e->job, e->function, batch->samples));
    ls_tally_results(&e->tally, e->job, &e->results);
    e->event.results = &e->results;
    LS_TRY(ls_callbacks_call(e->watch->callbacks, LS_TEST_BATCH_END, &e->event, NULL));
    e->event.batch++;
    return LS_OK;
}

static ls_status evaluate_batches(evaluation *e, ls_passes *passes)
{
    LS_TRY(ls_job_step(e->job, &e->event.step));
    LS_TRY(ls_callbacks_call(e->watch->callbacks, LS_TEST_BEGIN, &e->event, NULL));
    LS_TRY(ls_passes_begin(passes, 0));
    for (;;) {
        ls_batch_view batch;
        bool end = false;
        if (e->watch->stop)
            e->stopped = ls_job_interrupted(e->job, e->watch->stop);
        if (e->stopped)
            return LS_OK;
        LS_TRY(ls_passes_next(passes, &batch, &end));
        if (end)
            break;
        LS_TRY(evaluate_batch(e, &batch));
        report_step(e->watch->progress, e->watch->verb, e->tally.steps, passes->steps, &e->results);
    }
    ls_tally_results(&e->tally, e->job, &e->results);
    e->event.results = &e->results;
    return ls_callbacks_call(e->watch->callbacks, LS_TEST_END, &e->event, NULL);
}

/* Finds the confusion matrix among the metrics of a job that is asked for one. */
static ls_status find_confusion(const ls_job *job, const ls_watchers *watch, size_t *out)
{
    *out = job->metric_count;
    for (size_t i = 0; i < job->metric_count && watch->confusion; i++)
        if (job->metrics[i].kind == LS_METRIC_CONFUSION)
            *out = i;
    if (!watch->confusion)
        return LS_OK;
    if (*out == job->metric_count)
        return ls_fail(LS_ERR_INVALID,
                       "ls_evaluate: .confusion is set, but model \"%s\" is compiled without LS_METRIC_CONFUSION",
                       ls_model_name(job->model));
    size_t count = ls_metric_sums_count(&job->metrics[*out]);
    if (watch->confusion_count == count)
        return LS_OK;
    return ls_fail(LS_ERR_INVALID, "ls_evaluate: confusion_count is %zu, but the matrix has %zu numbers",
                   watch->confusion_count, count);
}

ls_status ls_job_evaluate(ls_job *job, const ls_settings *settings, ls_passes *passes, const ls_watchers *watch,
                          ls_results *out)
{
    evaluation e = { .job = job, .settings = settings, .watch = watch };
    size_t confusion = 0;
    LS_TRY(find_confusion(job, watch, &confusion));
    e.event.epoch = watch->callbacks ? watch->callbacks->epoch : 0;
    LS_TRY(ls_job_function(job, LS_FUNCTION_EVALUATE, &passes->spec, (ls_function_choice){ 0 }, &e.function));
    if (passes->steps == LS_INFINITE)
        return ls_fail(LS_ERR_INVALID, "cannot evaluate: the data has no end; limit it with ls_take");
    LS_TRY(ls_tally_begin(&e.tally, job));
    ls_status status = evaluate_batches(&e, passes);
    ls_work_end();
    if (status == LS_OK && !e.stopped)
        *out = e.results;
    if (status == LS_OK && watch->confusion)
        memcpy(watch->confusion, e.tally.sums[confusion], watch->confusion_count * sizeof(double));
    if (e.stopped)
        out->count = 0;
    ls_tally_end(&e.tally);
    return status;
}

static ls_status evaluate(ls_job *job, const ls_settings *settings, ls_dataset *data,
                          const ls_evaluate_options *options)
{
    ls_passes passes;
    ls_progress progress;
    ls_results results;
    ls_callback_list callbacks;
    const ls_callback_facts facts = { .job = job, .call = "ls_evaluate" };
    LS_TRY(ls_passes_open(&passes, ls_model_graph(job->model)->context, data,
                          &(ls_batching){ .option = "batch_size", .asked = options->batch_size }));
    ls_verbose verbose = shown(job, options->verbose);
    ls_progress_open(&progress, options->output, verbose);
    ls_progress_begin(&progress, passes.steps, 0);
    const ls_watchers watch = { .verb = "evaluating",
                                .progress = &progress,
                                .callbacks = &callbacks,
                                .confusion = options->confusion,
                                .confusion_count = options->confusion_count };
    ls_status status = ls_callbacks_open(&callbacks, options->callbacks, options->callback_count, &facts);
    if (status == LS_OK)
        status = ls_job_evaluate(job, settings, &passes, &watch, &results);
    /* May have become chief during the pass. */
    if (ls_is_chief(ls_model_graph(job->model)->context))
        ls_callbacks_take_over(&callbacks);
    status = ls_callbacks_close(&callbacks, status);
    if (status == LS_OK)
        ls_progress_end(&progress, &results, NULL);
    ls_progress_close(&progress);
    if (status == LS_OK && options->out)
        *options->out = results;
    ls_passes_close(&passes);
    return status;
}

static ls_status check_sizes(const char *call, int64_t batch_size, int lanes)
{
    if (batch_size < 0 || lanes < 0)
        return ls_fail(LS_ERR_INVALID, "%s: batch_size and lanes must not be negative (got %" PRId64 " and %d)", call,
                       batch_size, lanes);
    return LS_OK;
}

ls_status ls_evaluate_with(ls_model *model, ls_dataset *data, ls_evaluate_options options)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_use use;
    ls_settings settings = { .lists = NULL };
    LS_TRY(check_sizes("ls_evaluate", options.batch_size, options.lanes));
    LS_TRY(ls_use_begin(&use, model, "ls_evaluate", false));
    ls_status status = ls_settings_make(use.job, &options.strategy, options.lanes, &settings);
    if (status == LS_OK)
        status = evaluate(use.job, &settings, data, &options);
    ls_settings_free(&settings);
    ls_use_end(&use);
    return status;
}

ls_status ls_evaluate_arrays_with(ls_model *model, ls_array x, ls_array y, ls_evaluate_options options)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    if (model)
        LS_TRY(ls_context_check(ls_model_graph(model)->context, "ls_evaluate_arrays"));
    ls_dataset *data = ls_from_tensor_slices(x, y, .keep = LS_KEEP_BORROWED);
    ls_status status = ls_evaluate_with(model, data, options);
    ls_dataset_destroy(data);
    return status;
}

/* ---- Predict ---- */

/* The number of samples may be unknown. */
static ls_status append(ls_array *out, size_t *room, const ls_array *rows)
{
    int64_t count = 0, have = 0;
    ls_shape_count(&rows->shape, 0, &count);
    if (out->shape.rank == 0) {
        out->dtype = rows->dtype;
        out->shape = rows->shape;
        out->shape.dims[0] = 0;
    }
    ls_shape_count(&out->shape, 0, &have);
    size_t element = ls_dtype_bytes(rows->dtype), need = (size_t)(have + count) * element;
    if (need > *room) {
        size_t more = need * 2;
        void *grown = realloc(out->data, more);
        if (!grown)
            return ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes of predictions", more);
        out->data = grown;
        *room = more;
    }
    if (count)
        memcpy((char *)out->data + (size_t)have * element, rows->data, (size_t)count * element);
    out->shape.dims[0] += rows->shape.dims[0];
    return LS_OK;
}

typedef struct prediction {
    ls_job *job;
    ls_settings settings;
    ls_passes passes;
    ls_progress progress;
    const ls_predict_options *options;
    ls_callback_list callbacks;
    ls_array made;
    size_t room;
} prediction;

static ls_status predict_all(prediction *p)
{
    static const ls_results nothing = { .count = 0 };
    ls_function *function = NULL;
    ls_callback_event event = { .results = NULL };
    const ls_function_choice choice = { .output = (size_t)p->options->index };
    LS_TRY(ls_job_function(p->job, LS_FUNCTION_PREDICT, &p->passes.spec, choice, &function));
    if (p->passes.steps == LS_INFINITE)
        return ls_fail(LS_ERR_INVALID, "cannot predict: the data has no end; limit it with ls_take");
    LS_TRY(ls_job_step(p->job, &event.step));
    LS_TRY(ls_callbacks_call(&p->callbacks, LS_PREDICT_BEGIN, &event, NULL));
    LS_TRY(ls_passes_begin(&p->passes, 0));
    for (;; event.batch++) {
        ls_batch_view batch;
        ls_array rows;
        bool end = false;
        LS_TRY(ls_passes_next(&p->passes, &batch, &end));
        if (end)
            return ls_callbacks_call(&p->callbacks, LS_PREDICT_END, &event, NULL);
        LS_TRY(ls_callbacks_call(&p->callbacks, LS_PREDICT_BATCH_BEGIN, &event, NULL));
        LS_TRY(ls_function_run(p->job, function, &p->settings, &batch, NULL));
        LS_TRY(ls_value(function->fetches[0], &rows));
        LS_TRY(append(&p->made, &p->room, &rows));
        report_step(&p->progress, "predicting", event.batch + 1, p->passes.steps, &nothing);
        LS_TRY(ls_callbacks_call(&p->callbacks, LS_PREDICT_BATCH_END, &event, NULL));
    }
}

static ls_status run_prediction(prediction *p, ls_dataset *data)
{
    static const ls_results nothing = { .count = 0 };
    const ls_predict_options *o = p->options;
    LS_TRY(ls_settings_make(p->job, &o->strategy, o->lanes, &p->settings));
    LS_TRY(ls_passes_open(&p->passes, ls_model_graph(p->job->model)->context, data,
                          &(ls_batching){ .option = "batch_size", .asked = o->batch_size }));
    ls_progress_open(&p->progress, o->output, shown(p->job, o->verbose));
    ls_progress_begin(&p->progress, p->passes.steps, 0);
    const ls_callback_facts facts = { .job = p->job, .call = "ls_predict" };
    LS_TRY(ls_callbacks_open(&p->callbacks, o->callbacks, o->callback_count, &facts));
    ls_status status = predict_all(p);
    ls_work_end();
    LS_TRY(status);
    ls_progress_end(&p->progress, &nothing, NULL);
    return LS_OK;
}

static ls_status check_predict(const ls_model *model, const ls_predict_options *o, const ls_array *out)
{
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_predict: out is NULL");
    LS_TRY(check_sizes("ls_predict", o->batch_size, o->lanes));
    if (model && (o->index < 0 || (size_t)o->index >= ls_model_output_count(model)))
        return ls_fail(LS_ERR_INVALID, "ls_predict: index %d: model \"%s\" has %zu outputs, counted from 0", o->index,
                       ls_model_name(model), ls_model_output_count(model));
    return LS_OK;
}

ls_status ls_predict_with(ls_model *model, ls_dataset *data, ls_predict_options options, ls_array *out)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    ls_use use;
    LS_TRY(check_predict(model, &options, out));
    LS_TRY(ls_use_for_prediction(&use, model, "ls_predict"));
    prediction p = { .job = use.job, .options = &options };
    ls_status status = run_prediction(&p, data);
    ls_progress_close(&p.progress);
    status = ls_callbacks_close(&p.callbacks, status);
    ls_passes_close(&p.passes);
    ls_settings_free(&p.settings);
    ls_use_end(&use);
    if (status != LS_OK) {
        free(p.made.data);
        return status;
    }
    *out = p.made;
    return LS_OK;
}

ls_status ls_predict_array_with(ls_model *model, ls_array x, ls_predict_options options, ls_array *out)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    if (model)
        LS_TRY(ls_context_check(ls_model_graph(model)->context, "ls_predict_array"));
    ls_dataset *data = ls_from_tensor_slices(x, (ls_array){ .data = NULL }, .keep = LS_KEEP_BORROWED);
    ls_status status = ls_predict_with(model, data, options, out);
    ls_dataset_destroy(data);
    return status;
}
