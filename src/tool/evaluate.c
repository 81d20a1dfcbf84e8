/* The command `lockstep evaluate`. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tool/tool.h"

static ls_status check(const ls_options *options, tool_settings *settings)
{
    LS_TRY(tool_check_data(settings));
    LS_TRY(tool_check_loss(options, settings));
    if (settings->log && !settings->confusion) {
        if (ls_options_source(options, "--log") == LS_OPTION_FROM_COMMAND_LINE)
            return ls_fail(LS_ERR_INVALID, "evaluate: --log needs --confusion: the matrix goes there");
        settings->log = NULL; /* LOCKSTEP_LOG is for training */
    }
    return tool_check_devices(options, settings);
}

#define MOST_LOGGED 256 /* classes; more make a line that `report` does not read */

typedef struct outcome {
    const char *set, *log;
    const tool_session *session;
    ls_results results;
    double *confusion; /* [classes][classes]; NULL: not asked for */
    size_t classes;
    const char *const *names; /* names of classes, if the data has them */
    size_t named;
} outcome;

/* Rows are classes, columns predictions. */
static void print_confusion(const outcome *out)
{
    int width = 5;
    char name[64];
    for (size_t i = 0; i < out->classes * out->classes; i++) {
        int digits = snprintf(NULL, 0, "%.0f", out->confusion[i]);
        width = digits >= width ? digits + 1 : width;
    }
    printf("confusion matrix (rows: class, columns: prediction)\n%8s", "");
    for (size_t k = 0; k < out->classes; k++)
        printf("%*zu", width, k);
    for (size_t i = 0; i < out->classes; i++) {
        printf("\n%8zu", i);
        for (size_t k = 0; k < out->classes; k++)
            printf("%*.0f", width, out->confusion[i * out->classes + k]);
        if (i >= out->named)
            continue;
        snprintf(name, sizeof name, "%s", out->names[i]);
        ls_make_printable(name, strlen(name));
        printf("  %s", name);
    }
    printf("\n");
}

static json_t *matrix_of(const outcome *out)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < out->classes; i++) {
        json_t *row = json_array();
        for (size_t k = 0; k < out->classes; k++) {
            double value = out->confusion[i * out->classes + k];
            bool whole = value < 1e15 && value == (double)(int64_t)value;
            json_array_append_new(row, whole ? json_integer((json_int_t)value) : json_real(value));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

/* As docs/log.md describes. */
static ls_status describe_confusion(const outcome *out, char **line)
{
    char now[32];
    time_t seconds = time(NULL);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &parts);
    json_t *event =
        json_pack("{s:s,s:s,s:s,s:s,s:I}", "event", "confusion", "time", now, "model",
                  ls_model_name(out->session->model), "set", out->set, "samples", (json_int_t)out->results.samples);
    json_t *classes = out->named == out->classes ? json_array() : NULL;
    for (size_t i = 0; classes && i < out->named; i++)
        json_array_append_new(classes, json_string(out->names[i]));
    if (classes)
        json_object_set_new(event, "classes", classes);
    for (size_t i = 0; i < out->results.count; i++)
        json_object_set_new(event, out->results.names[i],
                            isfinite(out->results.values[i]) ? json_real(out->results.values[i]) : json_null());
    json_object_set_new(event, "matrix", matrix_of(out));
    *line = event ? json_dumps(event, JSON_COMPACT) : NULL;
    json_decref(event);
    return *line ? LS_OK : ls_fail(LS_ERR_MEMORY, "--log: no memory for %zu classes", out->classes);
}

static ls_status log_confusion(const outcome *out)
{
    char *line = NULL;
    LS_TRY(describe_confusion(out, &line));
    FILE *file = fopen(out->log, "ae");
    bool good = file && fprintf(file, "%s\n", line) > 0;
    good = file && fclose(file) == 0 && good;
    free(line);
    return good ? LS_OK : ls_fail(LS_ERR_IO, "--log: cannot write '%s': %s", out->log, strerror(errno));
}

static ls_status print_outcome(void *user)
{
    const outcome *out = user;
    tool_print_untrained(out->session);
    tool_print_results(out->set, &out->results);
    if (out->confusion)
        print_confusion(out);
    return out->log ? log_confusion(out) : LS_OK;
}

/* Adds the matrix to the metrics, with room for its numbers. */
static ls_status add_confusion(tool_session *session, outcome *out)
{
    ls_shape shape = ls_model_output_shape(session->model, 0);
    int64_t last = shape.rank > 1 ? shape.dims[shape.rank - 1] : 1;
    if (session->metrics.count == LS_MAX_METRICS)
        return ls_fail(LS_ERR_INVALID, "--confusion: there are already %d metrics; give fewer", LS_MAX_METRICS);
    out->classes = last > 1 ? (size_t)last : 2; /* one score: two classes */
    if (out->log && out->classes > MOST_LOGGED)
        return ls_fail(LS_ERR_UNSUPPORTED, "--log: the matrix has %zu classes; a log holds at most %d", out->classes,
                       MOST_LOGGED);
    out->confusion = calloc(out->classes * out->classes, sizeof *out->confusion);
    if (!out->confusion)
        return ls_fail(LS_ERR_MEMORY, "--confusion: no memory for %zu classes", out->classes);
    session->metrics.metric[session->metrics.count++] =
        (ls_metric){ .kind = LS_METRIC_CONFUSION, .num_classes = (int64_t)out->classes };
    return LS_OK;
}

static ls_status run_evaluation(const tool_settings *settings, tool_session *session, ls_dataset *data, outcome *out)
{
    LS_TRY(ls_compile(session->model, .loss = session->loss, .metrics = session->metrics));
    LS_TRY(ls_evaluate(session->model, data, &out->results, .batch_size = settings->batch_size,
                       .strategy = session->strategy, .lanes = (int)settings->lanes, .confusion = out->confusion,
                       .confusion_count = out->classes * out->classes));
    out->results.count -= out->confusion ? 1 : 0; /* the matrix itself is printed */
    tool_update_mute(session->ctx);
    return tool_print_once(session->ctx, print_outcome, out);
}

static ls_status evaluate(const tool_settings *settings, tool_session *session)
{
    ls_dataset *data;
    outcome out = { .session = session, .log = settings->log };
    if (!tool_is_muted())
        LS_TRY(tool_check_log_file(settings->log));
    LS_TRY(tool_open_context(settings, session));
    LS_TRY(tool_open_model(settings, session));
    LS_TRY(tool_open_set(settings, session, &data, &out.set));
    LS_TRY(tool_choose_loss(settings, session, data));
    int64_t named = 0;
    LS_TRY(ls_dataset_classes(data, &out.names, &named));
    out.named = (size_t)named;
    if (settings->confusion)
        LS_TRY(add_confusion(session, &out));
    ls_status status = run_evaluation(settings, session, data, &out);
    free(out.confusion);
    return status;
}

static ls_status run(const tool_settings *settings, int *stopped_by)
{
    (void)stopped_by;
    tool_session session = { 0 };
    ls_status status = evaluate(settings, &session);
    tool_close(&session);
    return status;
}

const tool_command tool_evaluate = {
    .name = "evaluate",
    .arguments = "MODEL --data DATA --weights FILE",
    .summary = "compute a model's loss and metrics on the test or training set",
    .details =
        "Computes loss and metrics over a set; each sample counts once. Without --weights, the model is untrained.",
    .takes_model = true,
    .tables = { &tool_data_flags, &tool_set_flags, &tool_confusion_flags, &tool_model_flags, &tool_shape_flags,
                &tool_loss_flags, &tool_batch_flags, &tool_count_flags, &tool_device_flags, &tool_placement_flags },
    .check = check,
    .run = run,
};
