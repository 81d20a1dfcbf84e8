/* The command `lockstep train`. */
#include "tool/tool.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ls_status check(const ls_options *options, tool_settings *settings)
{
    LS_TRY(tool_check_data(settings));
    LS_TRY(tool_check_loss(options, settings));
    LS_TRY(tool_check_optimizer(options, settings));
    LS_TRY(tool_check_batch(options, settings));
    LS_TRY(tool_check_devices(options, settings));
    LS_TRY(tool_check_log(options, settings));
    LS_TRY(tool_check_callbacks(options, settings));
    LS_TRY(tool_check_checkpoints(options, settings));
    LS_TRY(tool_check_trace(options, settings));
    return tool_check_outputs(settings);
}

/* ---- Length of training ---- */

static ls_status steps_of_epoch(const tool_settings *settings, tool_session *session, int64_t *out)
{
    int64_t count, batch = tool_batch_size(settings, session);
    LS_TRY(ls_dataset_count(session->train, &count));
    int64_t kept = (int64_t)((double)count * (1 - settings->validation_split));
    *out = kept > 0 ? (kept - 1) / batch + 1 : 1;
    return LS_OK;
}

static ls_status count_epochs(const tool_settings *settings, tool_session *session, int64_t *out)
{
    int64_t steps;
    *out = settings->epochs;
    if (settings->max_steps == 0 || settings->epochs_given)
        return LS_OK;
    LS_TRY(steps_of_epoch(settings, session, &steps));
    *out = (settings->max_steps - 1) / steps + 1;
    return LS_OK;
}

static ls_status measure(const tool_settings *settings, tool_session *session, tool_length *out)
{
    int64_t epochs;
    LS_TRY(steps_of_epoch(settings, session, &out->epoch));
    LS_TRY(count_epochs(settings, session, &epochs));
    out->all = epochs > INT64_MAX / out->epoch ? INT64_MAX : epochs * out->epoch;
    if (settings->max_steps > 0 && settings->max_steps < out->all)
        out->all = settings->max_steps;
    return LS_OK;
}

/* ---- Steps of the command ---- */

ls_status tool_open_training(const tool_settings *settings, tool_session *session)
{
    /* The worker that writes files fails now, not after hours of training. */
    if (!tool_is_muted()) {
        LS_TRY(tool_check_writable("--save", settings->save));
        LS_TRY(tool_check_log_file(settings->log));
        LS_TRY(tool_check_writable("--trace", settings->trace));
    }
    LS_TRY(tool_open_context(settings, session));
    LS_TRY(tool_open_model(settings, session));
    LS_TRY(tool_open_data(settings, session, TOOL_SET_TRAIN));
    LS_TRY(tool_check_weights(settings->save, session->model));
    LS_TRY(tool_choose_loss(settings, session, session->train));
    ls_optimizer optimizer = tool_optimizer(settings);
    tool_length length;
    LS_TRY(measure(settings, session, &length));
    LS_TRY(tool_schedule(settings, length, &optimizer.options.schedule));
    if (settings->schedule)
        optimizer.options.learning_rate = 0; /* the schedule contains it */
    return ls_compile(session->model, .optimizer = optimizer, .loss = session->loss, .metrics = session->metrics);
}

/* Prints "; pipeline, 2 replicas of 3 stages" for more than one device. */
static void introduce_strategy(const tool_session *session)
{
    const ls_strategy *s = &session->strategy;
    if (s->kind == LS_STRATEGY_ONE_DEVICE || session->devices == 1) {
        printf("\n");
        return;
    }
    printf("; %s", tool_strategy_name(s->kind));
    if (s->stages > 0) {
        printf(", ");
        if (session->replicas > 1)
            printf("%d replicas of ", session->replicas);
        printf("%d stage%s", s->stages, s->stages == 1 ? "" : "s");
    }
    printf("\n");
}

ls_status tool_introduce(const tool_settings *settings, tool_session *session)
{
    int64_t count;
    char number[32];
    ls_cpu_info cpu;
    ls_device_info *list;
    size_t opened;
    LS_TRY(ls_dataset_count(session->train, &count));
    LS_TRY(ls_get_cpu_info(session->ctx, &cpu));
    LS_TRY(ls_list_logical_devices(session->ctx, NULL, &list, &opened));
    free(list);
    char name[64]; /* from a file: may contain control characters */
    snprintf(name, sizeof name, "%s", ls_model_name(session->model));
    ls_make_printable(name, strlen(name));
    printf("%s: %s parameters; ", name, tool_number(ls_model_parameter_count(session->model), number));
    printf("%s: %s samples; batches of %lld; %s; %s%s\n", settings->data, tool_number(count, number),
           (long long)tool_batch_size(settings, session), tool_optimizer_name(settings),
           tool_loss_name(session->loss.kind), session->loss.options.from_logits ? " from logits" : "");
    printf("%d", session->devices);
    if ((size_t)session->devices < opened)
        printf(" of %zu", opened);
    printf(" device%s on %s", opened == 1 ? "" : "s", cpu.reason);
    introduce_strategy(session);
    return tool_print_data(session);
}

ls_status tool_fit_options(const tool_settings *settings, tool_session *session, ls_fit_options *out)
{
    if (settings->class_weights && !session->class_weights)
        LS_TRY(tool_class_weights(settings->class_weights, &session->class_weights, &session->class_count));
    *out = (ls_fit_options){
        .batch_size = tool_batch_size(settings, session),
        .class_weights = session->class_weights,
        .class_count = session->class_count,
        .max_steps = settings->max_steps,
        .validation_split = settings->validation_split,
        .validation = settings->validation_split > 0 ? NULL : session->test,
        .keep_order = !settings->shuffle,
        .seed = settings->seed,
        .verbose = (ls_verbose)settings->verbose,
        .strategy = session->strategy,
        .lanes = (int)settings->lanes,
        .log = settings->log,
        .log_hash = settings->log_hash,
        .checkpoint = settings->checkpoint,
        .save_every = settings->save_every,
        .keep = settings->keep ? (int)settings->keep : LS_KEEP_ALL,
        .monitor = settings->best_by,
        .resume = settings->resume,
        .allow_other_bits = settings->allow_other_bits,
        .audit = settings->audit,
        .profile = settings->profile,
        .trace = { settings->trace, settings->trace_first, settings->trace_last },
        .record.path = settings->record,
        .async.journal = settings->journal,
    };
    return count_epochs(settings, session, &out->epochs);
}

/* Returns the file for live progress; NULL: none. */
static const char *status_file(const tool_settings *settings, char path[PATH_MAX])
{
    if (settings->status)
        return strcmp(settings->status, "none") == 0 ? NULL : settings->status;
    return tool_status_file(path) ? path : NULL;
}

/* Describes this command for the record, so that `lockstep replay` can build the job again; NULL
 * without --record. */
static ls_status describe_call(const tool_settings *settings, char **out)
{
    char folder[PATH_MAX];
    *out = NULL;
    if (!settings->record)
        return LS_OK;
    json_t *list = json_array(), *all;
    for (int i = 0; i < settings->argument_count; i++)
        json_array_append_new(list, json_string(settings->arguments[i]));
    all = json_pack("{s:s,s:o,s:s}", "command", "train", "arguments", list, "folder",
                    getcwd(folder, sizeof folder) ? folder : "");
    *out = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return *out ? LS_OK : ls_fail(LS_ERR_INVALID, "--record: the arguments of this command are not UTF-8");
}

static ls_status fit(const tool_settings *settings, tool_session *session, ls_history **history)
{
    ls_fit_options options;
    char status_path[PATH_MAX];
    tool_callbacks callbacks = { .count = 0 };
    bool validates = settings->validation_split > 0 || session->test;
    char *call = NULL;
    LS_TRY(tool_fit_options(settings, session, &options));
    LS_TRY(describe_call(settings, &call));
    ls_status status = tool_make_callbacks(settings, validates, &callbacks);
    if (status == LS_OK) {
        options.record.own = call;
        options.callbacks = callbacks.list;
        options.callback_count = callbacks.count;
        options.history = history;
        options.stop = tool_catch_signals();
        options.save = tool_save_requests();
        options.status = status_file(settings, status_path);
        status = ls_fit_with(session->model, session->train, options);
        if (options.status == status_path)
            tool_remove_status_file(status_path);
    }
    if (callbacks.restores) { /* the last epoch's results may not match the weights */
        ls_history_destroy(*history);
        *history = NULL;
    }
    tool_free_callbacks(&callbacks);
    free(call);
    return status;
}

static ls_status explain(const tool_settings *settings, tool_session *session)
{
    ls_fit_options options;
    char *text;
    bool fits;
    LS_TRY(tool_fit_options(settings, session, &options));
    LS_TRY(ls_explain_fit_with(session->model, session->train, options, &fits, &text));
    printf("%s", text);
    free(text);
    return fits ? LS_OK : ls_fail(LS_ERR_MEMORY, "training does not fit into the memory of the devices");
}

/* Gets the results of the last validation if it used the test set. */
static bool known_results(const ls_history *history, const ls_metrics_list *metrics, ls_dataset *test, ls_results *out)
{
    size_t epochs = history ? ls_history_epochs(history) : 0;
    char name[96];
    *out = (ls_results){ .count = metrics->count + 1, .names = { "loss" } };
    for (size_t i = 0; i < out->count; i++) {
        if (i > 0)
            out->names[i] = ls_metric_name(&metrics->metric[i - 1]);
        snprintf(name, sizeof name, "val_%s", out->names[i]);
        if (epochs == 0 || ls_history_value(history, name, epochs - 1, &out->values[i]) != LS_OK)
            return false;
    }
    return ls_dataset_count(test, &out->samples) == LS_OK && out->samples >= 0;
}

static void print_times(const ls_model *model)
{
    ls_times times = ls_model_times(model);
    double sum = times.data + times.compute + times.other;
    if (!(sum > 0))
        return;
    printf("time: %.1f s: data %.1f %%, compute %.1f %% (joins and updates %.1f %%), other %.1f %%", sum,
           100 * times.data / sum, 100 * times.compute / sum, 100 * times.join / sum, 100 * times.other / sum);
    if (times.moved_bytes > 0)
        printf("; joins moved %.1f MB between devices", times.moved_bytes / 1e6);
    printf("\n");
}

typedef struct outcome {
    const tool_settings *settings;
    const tool_session *session;
    int stopped_by; /* signal, or 0 */
    bool unsaved;   /* the last checkpoint could not be saved */
    bool tested;
    ls_results results; /* on the test set */
} outcome;

static ls_status find_results(outcome *out, const ls_history *history)
{
    const tool_settings *settings = out->settings;
    const tool_session *session = out->session;
    /* Only the chief has results. */
    bool apart = session->strategy.staleness > 0 && !ls_is_chief(session->ctx);
    if (out->stopped_by != 0 || !session->test || apart)
        return LS_OK;
    out->tested = true;
    if (settings->validation_split == 0 && known_results(history, &session->metrics, session->test, &out->results))
        return LS_OK;
    LS_TRY(ls_evaluate(session->model, session->test, &out->results, .batch_size = tool_batch_size(settings, session),
                       .strategy = session->strategy, .lanes = (int)settings->lanes));
    tool_update_mute(session->ctx);
    return LS_OK;
}

static ls_status print_results(void *user)
{
    const outcome *out = user;
    const tool_settings *settings = out->settings;
    ls_model *model = out->session->model;
    char hex[65];
    if (settings->verbose != LS_VERBOSE_SILENT) {
        ls_times times = ls_model_times(model);
        print_times(model);
        if (settings->checkpoint)
            printf("checkpoints: %s; training waited %.3f s for copies of its state, %.2f s at the end\n",
                   settings->checkpoint, times.save, times.flush);
        char *text = NULL;
        LS_TRY(ls_explain_times(model, &text));
        printf("%s", text);
        free(text);
    }
    if (settings->profile) {
        char *table = NULL;
        LS_TRY(ls_explain_profile(model, &table));
        printf("%s", table);
        free(table);
    }
    if (out->stopped_by != 0)
        printf("stopped by a signal (%s)%s\n", strsignal(out->stopped_by),
               settings->checkpoint && !out->unsaved ? "; --resume continues from here" : "");
    if (out->tested)
        tool_print_results("test", &out->results);
    LS_TRY(ls_model_weights_sha256(model, hex));
    printf("weights sha256: %s\n", hex);
    if (settings->save)
        printf("saved: %s\n", settings->save);
    return LS_OK;
}

/* Saves the weights of the last good step, also after a failure. Keeps the old file if there was no
 * good step, or if this worker lost the others, which may write it. */
static ls_status save(const tool_settings *settings, const tool_session *session, ls_status trained)
{
    char reason[1024];
    if (settings->save == NULL || !ls_is_chief(session->ctx) || ls_is_evaluator(session->ctx) || trained == LS_ERR_PEER)
        return trained;
    snprintf(reason, sizeof reason, "%s", ls_last_error());
    int64_t step = 0;
    if (ls_model_steps(session->model, &step) != LS_OK) /* not even compiled */
        step = 0;
    if (trained != LS_OK && step == 0)
        return ls_fail(trained, "%s", reason);
    ls_status saved = tool_save_learned(settings, session, settings->save);
    if (saved == LS_OK)
        saved = ls_model_save_weights(session->model, settings->save);
    if (trained == LS_OK)
        return saved;
    if (saved != LS_OK)
        return ls_fail(trained, "%.800s; the weights could not be saved either: %.800s", reason, ls_last_error());
    return ls_fail(trained, "%s; the weights of step %lld, the last good one, are in %s", reason, (long long)step,
                   settings->save);
}

static ls_status train(const tool_settings *settings, tool_session *session, int *stopped_by)
{
    ls_history *history = NULL;
    ls_error unsaved = { .status = LS_OK };
    ls_status status = fit(settings, session, &history);
    /* Training is complete: save and print results first, then fail. */
    if (status == LS_ERR_UNSAVED) {
        ls_error_keep(&unsaved, status);
        status = LS_OK;
    }
    status = save(settings, session, status);
    bool muted = tool_is_muted();
    /* Nothing left to save: the next signal ends the process. */
    *stopped_by = tool_release_signals();
    if (status == LS_OK)
        status = tool_largest_of_workers(session->ctx, "how training ended", stopped_by);
    /* The worker that should have saved is lost. */
    if (status == LS_OK && muted && !tool_is_muted())
        status = save(settings, session, LS_OK);
    outcome out = {
        .settings = settings, .session = session, .stopped_by = *stopped_by, .unsaved = unsaved.status != LS_OK
    };
    if (status == LS_OK)
        status = find_results(&out, history);
    if (status == LS_OK)
        status = tool_print_once(session->ctx, print_results, &out);
    ls_history_destroy(history);
    return status == LS_OK ? ls_error_give(&unsaved) : status;
}

/* Checkpoints and weights of epochs are written during training; what was learned, before it. */
static ls_status save_learned(const tool_settings *settings, const tool_session *session)
{
    if (settings->checkpoint && (session->table || tool_learns_characters(settings))) {
        if (mkdir(settings->checkpoint, 0777) != 0 && errno != EEXIST)
            return ls_fail(LS_ERR_IO, "--checkpoint: cannot create '%s': %s", settings->checkpoint, strerror(errno));
        LS_TRY(tool_save_learned(settings, session, settings->checkpoint));
    }
    bool is_pattern = settings->save_best && strchr(settings->save_best, '{');
    return settings->save_best && !is_pattern ? tool_save_learned(settings, session, settings->save_best) : LS_OK;
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    tool_session session = { 0 };
    tool_ignore_signal(SIGPIPE); /* the reader of the progress may exit before training ends */
    ls_status status = tool_open_training(settings, &session);
    tool_update_mute(session.ctx);
    if (status == LS_OK && settings->verbose != LS_VERBOSE_SILENT)
        status = tool_introduce(settings, &session);
    if (status == LS_OK && !settings->dry_run && !tool_is_muted())
        status = save_learned(settings, &session);
    if (status == LS_OK)
        status = settings->dry_run ? explain(settings, &session) : train(settings, &session, stopped_by);
    tool_close(&session);
    return status;
}

const tool_command tool_train = {
    .name = "train",
    .arguments = "MODEL --data DATA",
    .summary = "train a model, evaluate it on the test set, save its weights",
    .details = "Trains a model, with the test set of the data for validation. On Ctrl+C, SIGTERM or SIGHUP, training "
               "ends after the\n"
               "current step, saves weights and a checkpoint, completes the log, and exits with status 130, 143 or "
               "129; a second\n"
               "signal ends it at once. SIGUSR1 saves a checkpoint, and training continues. A run that fails also "
               "saves the weights\n"
               "of its last good step.",
    .takes_model = true,
    .tables = { &tool_data_flags, &tool_model_flags, &tool_shape_flags, &tool_loss_flags, &tool_optimizer_flags,
                &tool_batch_flags, &tool_training_flags, &tool_callback_flags, &tool_count_flags, &tool_device_flags,
                &tool_placement_flags, &tool_save_flags, &tool_checkpoint_flags },
    .check = check,
    .run = run,
};
