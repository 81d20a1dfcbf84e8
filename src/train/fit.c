/* fit, evaluate, predict: loops over traced functions. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fpmode.h"
#include "base/sha256.h"
#include "nn/model.h"
#include "train/training.h"

/* One fit at work. */
typedef struct fit {
    ls_training *training;
    ls_function *function;
    const ls_fit_options *options;
    ls_passes data, validation;
    bool validates;
    int64_t epochs, steps; /* steps of an epoch; negative: as many as there are */
    uint64_t pass;         /* over the data: the epoch, unless epochs have steps of their own */
    ls_progress progress;
    ls_train_log *log;
    ls_history *history;
    ls_results results, val_results;
    bool stopped;
    const char *reason;
} fit;

/* ---- Callbacks ---- */

typedef struct named_logs {
    ls_logs logs;
    const char *names[2 * LS_MAX_RESULTS];
    double values[2 * LS_MAX_RESULTS];
    char val_names[LS_MAX_RESULTS][80];
} named_logs;

static void fill_logs(const fit *f, named_logs *l, int64_t epoch, bool with_validation)
{
    size_t n = 0;
    for (size_t i = 0; i < f->results.count; i++, n++) {
        l->names[n] = f->results.names[i];
        l->values[n] = f->results.values[i];
    }
    for (size_t i = 0; with_validation && i < f->val_results.count; i++, n++) {
        snprintf(l->val_names[i], sizeof(l->val_names[i]), "val_%s", f->val_results.names[i]);
        l->names[n] = l->val_names[i];
        l->values[n] = f->val_results.values[i];
    }
    l->logs = (ls_logs){ .count = n,
                         .names = l->names,
                         .values = l->values,
                         .epoch = epoch,
                         .step = f->training->step,
                         .samples = f->results.samples };
}

typedef enum moment { TRAIN_BEGIN, EPOCH_BEGIN, BATCH_END, EPOCH_END, TRAIN_END } moment;

static const char *const moments[] = { "on_train_begin", "on_epoch_begin", "on_batch_end", "on_epoch_end",
                                       "on_train_end" };

static ls_status call_one(const fit *f, const ls_callback *c, moment when, const ls_logs *logs, bool *stop)
{
    ls_model *model = f->training->model;
    if (when == TRAIN_BEGIN)
        return c->on_train_begin ? c->on_train_begin(c->user, model) : LS_OK;
    if (when == EPOCH_BEGIN)
        return c->on_epoch_begin ? c->on_epoch_begin(c->user, model, logs) : LS_OK;
    if (when == BATCH_END)
        return c->on_batch_end ? c->on_batch_end(c->user, model, logs, stop) : LS_OK;
    if (when == EPOCH_END)
        return c->on_epoch_end ? c->on_epoch_end(c->user, model, logs, stop) : LS_OK;
    return c->on_train_end ? c->on_train_end(c->user, model, logs) : LS_OK;
}

/* The failure of a callback is its own status and, where it left one, its own message. */
static ls_status blame_callback(const fit *f, size_t number, moment when, int64_t epoch, ls_status status)
{
    return ls_fail_within(status, "callback %zu, %s in epoch %" PRId64 ", step %" PRId64, number, moments[when],
                          epoch + 1, f->training->step);
}

static ls_status call_back(fit *f, moment when, int64_t epoch)
{
    named_logs l;
    if (f->options->callback_count == 0)
        return LS_OK;
    fill_logs(f, &l, epoch, f->validates && (when == EPOCH_END || when == TRAIN_END));
    for (size_t i = 0; i < f->options->callback_count; i++) {
        bool stop = false;
        ls_clear_error(); /* what a callback leaves here is its own */
        ls_status status = call_one(f, &f->options->callbacks[i], when, &l.logs, &stop);
        if (status != LS_OK)
            return blame_callback(f, i, when, epoch, status);
        if (stop) {
            f->stopped = true;
            f->reason = "callback";
        }
    }
    return LS_OK;
}

/* ---- Steps and epochs ---- */

static ls_status log_step(fit *f, int64_t samples)
{
    double loss;
    char hex[65];
    if (!f->log)
        return LS_OK;
    LS_TRY(ls_read_scalar(f->function->loss, &loss));
    if (f->options->log_hash)
        LS_TRY(ls_model_state_sha256(f->training->model, hex));
    ls_train_log_step(f->log, f->training->step, loss, samples, f->options->log_hash ? hex : NULL);
    return LS_OK;
}

/* Joins of the function's plan for that many samples, so far. */
static double join_seconds(const fit *f, int64_t samples)
{
    ls_graph *graph = ls_model_graph(f->training->model);
    ls_executor *executor = NULL;
    if (!graph->runs || !ls_runs_has(graph->runs, f->function->fetches, f->function->fetch_count, samples) ||
        ls_runs_get(graph, f->function->fetches, f->function->fetch_count, samples, &executor) != LS_OK)
        return 0;
    return ls_executor_join_seconds(executor);
}

static ls_status run_step(fit *f, const ls_batch_view *batch)
{
    double start = ls_clock_now(), joins = join_seconds(f, batch->samples);
    ls_status status =
        ls_function_run(f->training, f->function, batch, f->options->class_weights, f->options->class_count);
    f->training->times.compute += ls_clock_now() - start;
    f->training->times.join += join_seconds(f, batch->samples) - joins;
    return status == LS_ERR_NOT_FINITE ? ls_fail_within(status, "step %" PRId64, f->training->step + 1) : status;
}

static bool should_stop(fit *f)
{
    if (f->options->stop && *f->options->stop) {
        f->stopped = true;
        f->reason = "interrupted";
    }
    if (f->options->max_steps > 0 && f->training->step >= f->options->max_steps) {
        f->stopped = true;
        f->reason = "max_steps";
    }
    return f->stopped;
}

/* The next batch. Where an epoch has steps of its own, a pass that ends is followed by the next. */
static ls_status next_batch(fit *f, ls_batch_view *batch, bool *end)
{
    double start = ls_clock_now();
    ls_status status = ls_passes_next(&f->data, batch, end);
    if (status == LS_OK && *end && f->options->steps_per_epoch > 0) {
        status = ls_passes_begin(&f->data, ++f->pass);
        if (status == LS_OK)
            status = ls_passes_next(&f->data, batch, end);
    }
    f->training->times.data += ls_clock_now() - start;
    return status;
}

static ls_status train_epoch(fit *f, int64_t epoch, ls_tally *tally)
{
    int64_t done = 0;
    if (f->options->steps_per_epoch == 0 || epoch == f->options->initial_epoch) {
        f->pass = (uint64_t)epoch;
        LS_TRY(ls_passes_begin(&f->data, f->pass));
    }
    while (f->steps < 0 || done < f->steps) {
        ls_batch_view batch;
        bool end = false;
        LS_TRY(next_batch(f, &batch, &end));
        if (end)
            break;
        LS_TRY(run_step(f, &batch));
        LS_TRY(ls_tally_add(tally, f->function, batch.samples));
        ls_tally_results(tally, &f->results);
        LS_TRY(log_step(f, batch.samples));
        ls_progress_step(&f->progress, ++done, &f->results);
        LS_TRY(call_back(f, BATCH_END, epoch));
        if (should_stop(f))
            break;
    }
    if (done == 0)
        return ls_fail(LS_ERR_DATA, "epoch %" PRId64 ": the data gave no batch", epoch + 1);
    return LS_OK;
}

static ls_status run_epoch(fit *f, int64_t epoch)
{
    ls_tally tally;
    double start = ls_clock_now(), validation_seconds = 0;
    LS_TRY(call_back(f, EPOCH_BEGIN, epoch)); /* may fail: before there is something to free */
    LS_TRY(ls_tally_begin(&tally, &f->training->options));
    ls_progress_epoch(&f->progress, epoch, f->epochs, f->steps);
    ls_status status = train_epoch(f, epoch, &tally);
    double seconds = ls_clock_now() - start;
    ls_tally_end(&tally);
    bool interrupted = f->stopped && strcmp(f->reason, "interrupted") == 0;
    if (status == LS_OK && f->validates && !interrupted) {
        status = ls_training_evaluate(f->training, &f->validation, &f->val_results);
        validation_seconds = ls_clock_now() - start - seconds;
    }
    if (status != LS_OK)
        return status;
    for (size_t i = 0; interrupted && i < f->val_results.count; i++)
        f->val_results.values[i] = NAN; /* those of the epoch before are not this one's */
    const ls_results *validation = f->validates && f->val_results.count ? &f->val_results : NULL;
    const ls_results *shown = interrupted ? NULL : validation;
    ls_progress_end(&f->progress, &f->results, shown);
    ls_train_log_epoch(f->log, epoch + 1, seconds, validation_seconds, &f->results, shown, &f->training->times);
    LS_TRY(ls_history_add(&f->history, &f->results, validation));
    return call_back(f, EPOCH_END, epoch);
}

/* ---- Setting up ---- */

static ls_status check_options(const ls_fit_options *o)
{
    const struct {
        const char *name;
        int64_t value;
    } counts[] = { { "epochs", o->epochs },
                   { "batch_size", o->batch_size },
                   { "initial_epoch", o->initial_epoch },
                   { "steps_per_epoch", o->steps_per_epoch },
                   { "max_steps", o->max_steps },
                   { "validation_batch_size", o->validation_batch_size },
                   { "lanes", o->lanes } };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (counts[i].value < 0)
            return ls_fail(LS_ERR_INVALID, "ls_fit: %s is %" PRId64, counts[i].name, counts[i].value);
    if (!(o->validation_split >= 0 && o->validation_split < 1))
        return ls_fail(LS_ERR_INVALID, "ls_fit: validation_split is %g, it goes from 0 to below 1",
                       o->validation_split);
    if (o->validation && o->validation_split > 0)
        return ls_fail(LS_ERR_INVALID, "ls_fit: validation data and validation_split contradict each other");
    if (o->callback_count > 0 && !o->callbacks)
        return ls_fail(LS_ERR_INVALID, "ls_fit: %zu callbacks were announced, but not given", o->callback_count);
    if (o->class_count > 0 && !o->class_weights)
        return ls_fail(LS_ERR_INVALID, "ls_fit: %zu class weights were announced, but not given", o->class_count);
    return LS_OK;
}

/* Data for training and validation, split where asked. */
static ls_status open_data(fit *f, ls_dataset *data)
{
    const ls_fit_options *o = f->options;
    int64_t batch = o->batch_size ? o->batch_size : 32,
            val_batch = o->validation_batch_size ? o->validation_batch_size : batch;
    ls_dataset *train = data, *held_back = NULL;
    ls_status status = LS_OK;
    if (o->validation_split > 0)
        status = ls_dataset_split(data, o->validation_split, &train, &held_back);
    if (status == LS_OK)
        status = ls_passes_open(&f->data, train, batch, o->shuffle != LS_OFF, o->seed);
    ls_dataset *validation = held_back ? held_back : o->validation;
    if (status == LS_OK && validation) {
        status = ls_passes_open(&f->validation, validation, val_batch, false, 0);
        f->validates = status == LS_OK;
    }
    if (o->validation_split > 0 && train != data) {
        ls_dataset_destroy(train);
        ls_dataset_destroy(held_back);
    }
    return status;
}

/* Everything that decides what a step is. */
static ls_status open_passes(fit *f, ls_dataset *data)
{
    const ls_fit_options *o = f->options;
    LS_TRY(check_options(o));
    LS_TRY(ls_training_place(f->training, &o->strategy, o->lanes));
    LS_TRY(open_data(f, data));
    f->epochs = o->epochs ? o->epochs : 1;
    f->steps = o->steps_per_epoch ? o->steps_per_epoch : f->data.steps;
    if (f->steps == LS_INFINITE)
        return ls_fail(LS_ERR_INVALID, "ls_fit: data without an end needs steps_per_epoch");
    return ls_training_function(f->training, LS_FUNCTION_TRAIN, &f->data.spec, o->class_count, &f->function);
}

static ls_status open_fit(fit *f, ls_dataset *data)
{
    const ls_fit_options *o = f->options;
    LS_TRY(open_passes(f, data));
    ls_progress_open(&f->progress, o->output, o->verbose);
    if (o->log)
        LS_TRY(ls_train_log_open(o->log, &ls_model_graph(f->training->model)->context->log, &f->log));
    f->training->times = (ls_times){ 0 };
    return ls_train_log_start(f->log, f->training, o, f->data.spec.batch, f->epochs);
}

static ls_status run_fit(fit *f, ls_dataset *data)
{
    LS_TRY(open_fit(f, data));
    LS_TRY(call_back(f, TRAIN_BEGIN, f->options->initial_epoch));
    double start = ls_clock_now();
    ls_status status = LS_OK;
    for (int64_t epoch = f->options->initial_epoch; epoch < f->epochs && status == LS_OK && !f->stopped; epoch++)
        status = run_epoch(f, epoch);
    f->training->times.other = ls_clock_now() - start - f->training->times.data - f->training->times.compute;
    return status == LS_OK ? call_back(f, TRAIN_END, f->epochs - 1) : status;
}

ls_status ls_fit_with(ls_model *model, ls_dataset *data, ls_fit_options options)
{
    LS_OWN_FP_MODE;
    fit f = { .options = &options, .reason = "done" };
    ls_use use;
    LS_TRY(ls_use_begin(&use, model, "ls_fit", true));
    f.training = use.training;
    f.training->fitting = &options;
    ls_status status = run_fit(&f, data);
    f.training->fitting = NULL;
    ls_error failure;
    ls_error_keep(&failure, status);
    ls_progress_break(&f.progress);
    ls_train_log_close(f.log, model, status == LS_OK ? f.reason : "failed");
    ls_passes_close(&f.data);
    ls_passes_close(&f.validation);
    ls_use_end(&use);
    if (status == LS_OK && options.history)
        *options.history = f.history;
    else
        ls_history_destroy(f.history);
    return ls_error_give(&failure);
}

ls_status ls_explain_fit_with(ls_model *model, ls_dataset *data, ls_fit_options options, bool *fits, char **out)
{
    LS_OWN_FP_MODE;
    fit f = { .options = &options };
    ls_use use;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_explain_fit: a place for the text is needed");
    LS_TRY(ls_use_begin(&use, model, "ls_explain_fit", true));
    f.training = use.training;
    ls_status status = open_passes(&f, data);
    if (status == LS_OK)
        status = ls_explain_memory(ls_model_graph(model), f.function->fetches, f.function->fetch_count,
                                   f.data.spec.batch, fits, out);
    ls_passes_close(&f.data);
    ls_passes_close(&f.validation);
    ls_use_end(&use);
    return status;
}

ls_status ls_fit_arrays_with(ls_model *model, ls_array x, ls_array y, ls_fit_options options)
{
    LS_OWN_FP_MODE;
    ls_dataset *data = ls_from_tensor_slices(x, y, .keep = LS_KEEP_BORROWED);
    ls_status status = ls_fit_with(model, data, options);
    ls_dataset_destroy(data);
    return status;
}

/* ---- Evaluate and predict ---- */

ls_status ls_training_evaluate(ls_training *t, ls_passes *passes, ls_results *out)
{
    ls_tally tally;
    ls_function *function = NULL;
    LS_TRY(ls_training_function(t, LS_FUNCTION_EVALUATE, &passes->spec, 0, &function));
    if (passes->steps == LS_INFINITE)
        return ls_fail(LS_ERR_INVALID, "data without an end cannot be evaluated");
    LS_TRY(ls_tally_begin(&tally, &t->options));
    ls_status status = ls_passes_begin(passes, 0);
    for (bool end = false; status == LS_OK && !end;) {
        ls_batch_view batch;
        status = ls_passes_next(passes, &batch, &end);
        if (status == LS_OK && !end)
            status = ls_function_run(t, function, &batch, NULL, 0);
        if (status == LS_OK && !end)
            status = ls_tally_add(&tally, function, batch.samples);
    }
    if (status == LS_OK)
        ls_tally_results(&tally, out);
    ls_tally_end(&tally);
    return status;
}

/* What a fit at work has set is set again, so that an evaluation in a callback changes no later step. */
static ls_status place_again(ls_training *t)
{
    return t->fitting ? ls_training_place(t, &t->fitting->strategy, t->fitting->lanes) : LS_OK;
}

static ls_status evaluate(ls_training *training, ls_dataset *data, const ls_evaluate_options *options)
{
    ls_passes passes;
    ls_progress progress;
    ls_results results;
    LS_TRY(ls_passes_open(&passes, data, options->batch_size ? options->batch_size : 32, false, 0));
    ls_verbose verbose = options->verbose == LS_VERBOSE_AUTO ? LS_VERBOSE_SILENT : options->verbose;
    ls_progress_open(&progress, options->output, verbose);
    progress.steps = progress.done = passes.steps;
    progress.start = ls_clock_now();
    ls_status status = ls_training_evaluate(training, &passes, &results);
    if (status == LS_OK)
        ls_progress_end(&progress, &results, NULL);
    if (status == LS_OK && options->out)
        *options->out = results;
    ls_passes_close(&passes);
    return status;
}

ls_status ls_evaluate_with(ls_model *model, ls_dataset *data, ls_evaluate_options options)
{
    LS_OWN_FP_MODE;
    ls_use use;
    if (options.batch_size < 0 || options.lanes < 0)
        return ls_fail(LS_ERR_INVALID, "ls_evaluate: batch_size %" PRId64 ", lanes %d", options.batch_size,
                       options.lanes);
    LS_TRY(ls_use_begin(&use, model, "ls_evaluate", false));
    ls_status status = ls_training_place(use.training, &options.strategy, options.lanes);
    if (status == LS_OK)
        status = evaluate(use.training, data, &options);
    ls_status placed = place_again(use.training);
    ls_use_end(&use);
    return status == LS_OK ? placed : status;
}

/* Grows by doubling: how many samples there are may not be known. */
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

static ls_status predict_all(ls_training *t, ls_passes *passes, ls_array *out)
{
    ls_function *function = NULL;
    size_t room = 0;
    LS_TRY(ls_training_function(t, LS_FUNCTION_PREDICT, &passes->spec, 0, &function));
    if (passes->steps == LS_INFINITE)
        return ls_fail(LS_ERR_INVALID, "data without an end cannot be predicted");
    LS_TRY(ls_passes_begin(passes, 0));
    for (;;) {
        ls_batch_view batch;
        ls_array rows;
        bool end = false;
        LS_TRY(ls_passes_next(passes, &batch, &end));
        if (end)
            return LS_OK;
        LS_TRY(ls_function_run(t, function, &batch, NULL, 0));
        LS_TRY(ls_value(function->fetches[0], &rows));
        LS_TRY(append(out, &room, &rows));
    }
}

ls_status ls_predict(ls_model *model, ls_dataset *data, int64_t batch_size, ls_array *out)
{
    LS_OWN_FP_MODE;
    ls_use use;
    ls_passes passes;
    ls_array made = { .data = NULL };
    if (!out || batch_size < 0)
        return ls_fail(LS_ERR_INVALID,
                       "ls_predict: a place for the predictions is needed, and a batch size of 0 or more");
    LS_TRY(ls_use_for_prediction(&use, model, "ls_predict"));
    ls_status status = ls_passes_open(&passes, data, batch_size ? batch_size : 32, false, 0);
    if (status == LS_OK) {
        status = predict_all(use.training, &passes, &made);
        ls_passes_close(&passes);
    }
    ls_use_end(&use);
    if (status != LS_OK) {
        free(made.data);
        return status;
    }
    *out = made;
    return LS_OK;
}

/* ---- State ---- */

static bool is_iterations(const ls_tensor *node)
{
    const char *name = node ? ls_tensor_name(node) : "";
    size_t length = strlen(name);
    return length >= 10 && strcmp(name + length - 10, "iterations") == 0;
}

static ls_status hash_state(const ls_model *model, const ls_training *training, ls_sha256 *hash)
{
    const ls_graph *graph = model->graph;
    char weights[65];
    LS_TRY(ls_model_weights_sha256(model, weights));
    LS_TRY(ls_sha256_add(hash, weights, 64));
    for (size_t i = ls_model_variable_count(model); i < graph->variable_count; i++)
        if (!is_iterations(graph->variables[i]->node)) {
            LS_TRY(ls_variable_bring(graph->variables[i]));
            LS_TRY(ls_sha256_add(hash, graph->variables[i]->data, graph->variables[i]->bytes));
        }
    return ls_sha256_add(hash, &training->step, sizeof(training->step));
}

/* The model's variables as their own hash has them, then slots in creation order, then the step. */
ls_status ls_model_state_sha256(ls_model *model, char hex[65])
{
    ls_use use;
    ls_sha256 *hash = NULL;
    if (!hex)
        return ls_fail(LS_ERR_INVALID, "ls_model_state_sha256: no place for the hash was given");
    LS_TRY(ls_sha256_begin(&hash));
    ls_status status = ls_use_begin(&use, model, "ls_model_state_sha256", false);
    if (status == LS_OK) {
        status = hash_state(model, use.training, hash);
        ls_use_end(&use);
    }
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}

ls_times ls_model_times(const ls_model *model)
{
    const ls_training *training = model ? model->training : NULL;
    return training ? training->times : (ls_times){ 0 };
}
