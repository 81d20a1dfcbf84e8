/* Files that a fit writes beside its weights: a log that stays proper JSON whatever metrics are
 * called, whose failure does not end training; and the log is true. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep.h"
#include "machine.h"
#include "skip.h"

#define ODD_NAME "a\"b\\\33[2J"

enum { SAMPLES = 40 };

typedef struct fixture {
    ls_context *ctx;
    ls_model *model;
    ls_array x, y;
    int warnings;
    char last[256], path[64];
} fixture;

static void count_warnings(void *user, ls_log_level level, const char *line)
{
    fixture *f = user;
    f->warnings += level == LS_LOG_WARNING;
    snprintf(f->last, sizeof f->last, "%s", line);
}

static void open_fixture(fixture *f)
{
    static float x[SAMPLES], y[SAMPLES];
    *f = (fixture){ .path = "/tmp/lockstep-log-XXXXXX" };
    for (int i = 0; i < SAMPLES; i++)
        x[i] = y[i] = (float)i / SAMPLES;
    f->x = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), x);
    f->y = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), y);
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    close(fd);
    ls_metric odd = { .kind = LS_METRIC_MEAN_ABSOLUTE_ERROR, .name = ODD_NAME };
    OK(ls_context_open(&(ls_context_options){ .log_level = LS_LOG_WARNING, .log_sink = count_warnings, .log_user = f },
                       &f->ctx));
    OK(ls_sequential(f->ctx, "line", &f->model, ls_input(1), ls_dense(1)));
    OK(ls_compile(f->model, .optimizer = ls_sgd(), .loss = ls_mean_squared_error(), .metrics = ls_metrics(odd)));
}

static void close_fixture(fixture *f)
{
    unlink(f->path);
    ls_model_destroy(f->model);
    ls_context_close(f->ctx);
}

static void names_of_metrics_are_escaped(void **state)
{
    (void)state;
    fixture f;
    char line[4096];
    int lines = 0, found = 0;
    open_fixture(&f);
    FILE *shown = tmpfile();
    OK(ls_fit_arrays(f.model, f.x, f.y, .batch_size = 10, .log = f.path, .verbose = LS_VERBOSE_LINES, .output = shown));
    FILE *log = fopen(f.path, "r");
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        json_error_t error;
        json_t *event = json_loads(line, 0, &error);
        if (!json_is_object(event))
            fail_msg("%s: %s", error.text, line);
        found += json_is_number(json_object_get(event, ODD_NAME));
        json_decref(event);
        lines++;
    }
    fclose(log);
    assert_int_equal(lines, 7); /* start, 4 steps, an epoch, end */
    assert_int_equal(found, 1);
    rewind(shown);
    bool named = false;
    while (fgets(line, sizeof line, shown)) {
        assert_null(strchr(line, 27));
        named = named || strstr(line, " - a\"b\\?[2J: ");
    }
    assert_true(named);
    fclose(shown);
    close_fixture(&f);
}

static void a_log_that_fails_does_not_end_training(void **state)
{
    (void)state;
    fixture f;
    char before[65], after[65];
    if (access("/dev/full", W_OK) != 0)
        SKIP("there is no /dev/full");
    open_fixture(&f);
    OK(ls_model_weights_sha256(f.model, before));
    OK(ls_fit_arrays(f.model, f.x, f.y, .epochs = 3, .log = "/dev/full", .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_weights_sha256(f.model, after));
    assert_string_not_equal(before, after);
    assert_int_equal(f.warnings, 2); /* at once, and at the end */
    assert_non_null(strstr(f.last, "/dev/full"));
    close_fixture(&f);
}

static void a_log_that_cannot_be_opened_does(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    assert_int_equal(ls_fit_arrays(f.model, f.x, f.y, .log = "/no/such/folder/log", .verbose = LS_VERBOSE_SILENT),
                     LS_ERR_IO);
    unlink(f.path);
    assert_int_equal(mkfifo(f.path, 0600), 0);
    assert_int_equal(ls_fit_arrays(f.model, f.x, f.y, .log = f.path, .verbose = LS_VERBOSE_SILENT), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "FIFO that no process reads"));
    close_fixture(&f);
}

/* ---- What the log says is so ---- */

/* The lines of the log, as an array of objects. */
static json_t *read_log(const fixture *f)
{
    static char line[1 << 14];
    json_t *events = json_array();
    FILE *log = fopen(f->path, "r");
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        json_t *event = json_loads(line, 0, NULL);
        if (!json_is_object(event))
            fail_msg("not JSON: %s", line);
        json_array_append_new(events, event);
    }
    fclose(log);
    return events;
}

/* The n-th event of that kind, from 0; NULL: there are fewer. */
static json_t *event_of(json_t *events, const char *kind, int n)
{
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) if (strcmp(json_string_value(json_object_get(event, "event")), kind) == 0 &&
                                             n-- == 0) return event;
    return NULL;
}

static double number(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    if (!json_is_number(value))
        fail_msg("no number \"%s\" in the log", key);
    return json_number_value(value);
}

static const char *string(const json_t *event, const char *key)
{
    const char *value = json_string_value(json_object_get(event, key));
    if (!value)
        fail_msg("no string \"%s\" in the log", key);
    return value;
}

static volatile int stop;

static ls_status stop_in_second_epoch(void *user, ls_model *model, const ls_logs *logs, bool *end)
{
    (void)user, (void)model, (void)end;
    stop = logs->epoch == 1;
    return LS_OK;
}

/* Validation of the epoch before is not that of an epoch that was cut short. */
static void an_interrupted_epoch_has_no_validation(void **state)
{
    (void)state;
    fixture f;
    ls_history *history = NULL;
    double first = NAN, second = 0;
    const char *key;
    json_t *value;
    open_fixture(&f);
    ls_dataset *data = ls_from_tensor_slices(f.x, f.y);
    const ls_callback callback = { .on_batch_end = stop_in_second_epoch };
    stop = 0;
    OK(ls_fit(f.model, data, .epochs = 9, .batch_size = 10, .validation = data, .log = f.path, .stop = &stop,
              .callbacks = &callback, .callback_count = 1, .history = &history, .verbose = LS_VERBOSE_SILENT));
    assert_int_equal(ls_history_epochs(history), 2);
    OK(ls_history_value(history, "val_loss", 0, &first));
    OK(ls_history_value(history, "val_loss", 1, &second));
    assert_true(isfinite(first));
    assert_true(isnan(second));
    json_t *events = read_log(&f), *whole = event_of(events, "epoch", 0), *cut = event_of(events, "epoch", 1);
    json_t *end = event_of(events, "end", 0);
    assert_true(json_is_true(json_object_get(whole, "complete")));
    assert_true(number(whole, "val_loss") == first);
    assert_int_equal(number(whole, "validation_samples"), SAMPLES);
    assert_true(json_is_false(json_object_get(cut, "complete")));
    assert_int_equal(number(cut, "epoch"), 2);
    assert_int_equal(number(cut, "steps"), 1);
    assert_int_equal(number(cut, "samples"), 10);
    json_object_foreach(cut, key, value) assert_true(strncmp(key, "val", 3) != 0);
    assert_string_equal(string(end, "reason"), "interrupted");
    assert_int_equal(number(end, "epochs_done"), 1);
    assert_int_equal(number(end, "steps_done"), 5);
    json_decref(events);
    ls_history_destroy(history);
    ls_dataset_destroy(data);
    close_fixture(&f);
}

/* Times of an epoch are its own: they add up to those of the end, each with its parts. */
static void times_are_the_epochs_own(void **state)
{
    (void)state;
    static const char *const sums[] = { "data_seconds", "compute_seconds", "join_seconds" };
    enum { EPOCHS = 5 };
    fixture f;
    open_fixture(&f);
    OK(ls_fit_arrays(f.model, f.x, f.y, .epochs = EPOCHS, .batch_size = 10, .validation_split = 0.25, .log = f.path,
                     .verbose = LS_VERBOSE_SILENT));
    json_t *events = read_log(&f), *end = event_of(events, "end", 0);
    double all = 0;
    for (int i = 0; i < EPOCHS; i++) {
        json_t *epoch = event_of(events, "epoch", i);
        double parts =
            number(epoch, "data_seconds") + number(epoch, "compute_seconds") + number(epoch, "other_seconds");
        assert_true(fabs(parts - number(epoch, "seconds")) <= 1e-9);
        assert_true(number(epoch, "other_seconds") >= 0);
        assert_true(number(epoch, "join_seconds") <= number(epoch, "compute_seconds"));
        all += number(epoch, "seconds") + number(epoch, "validation_seconds");
    }
    for (size_t k = 0; k < LENGTH(sums); k++) {
        double sum = 0;
        for (int i = 0; i < EPOCHS; i++)
            sum += number(event_of(events, "epoch", i), sums[k]);
        if (!(fabs(sum - number(end, sums[k])) <= 1e-9))
            fail_msg("%s: %g in all epochs, %g at the end", sums[k], sum, number(end, sums[k]));
    }
    assert_true(all <= number(end, "seconds"));
    json_decref(events);
    close_fixture(&f);
}

/* A short last batch has lanes of its own; devices that no lane goes to are not used. */
static void lanes_and_devices_are_those_used(void **state)
{
    (void)state;
    fixture f;
    ls_context *four;
    ls_model *model;
    open_fixture(&f);
    OK(ls_fit_arrays(f.model, f.x, f.y, .batch_size = SAMPLES - 3, .log = f.path, .verbose = LS_VERBOSE_SILENT));
    json_t *events = read_log(&f), *start = event_of(events, "start", 0), *devices = json_object_get(start, "devices");
    assert_int_equal(number(start, "lanes"), 4);
    assert_int_equal(number(event_of(events, "step", 0), "lanes"), 4);
    assert_int_equal(number(event_of(events, "step", 1), "lanes"), 3);
    assert_int_equal(json_array_size(devices), 1);
    assert_string_equal(json_string_value(json_array_get(devices, 0)), "cpu:0");
    json_decref(events);

    OK(ls_context_open(&(ls_context_options){ .cpu_devices = 4, .log_level = LS_LOG_ERROR }, &four));
    OK(ls_sequential(four, "line", &model, ls_input(1), ls_dense(1)));
    OK(ls_compile(model, .optimizer = ls_sgd(), .loss = ls_mean_squared_error()));
    OK(ls_fit_arrays(model, f.x, f.y, .batch_size = 20, .lanes = 2, .log = f.path, .verbose = LS_VERBOSE_SILENT));
    events = read_log(&f), start = event_of(events, "start", 0), devices = json_object_get(start, "devices");
    assert_int_equal(number(start, "lanes"), 2);
    assert_int_equal(json_array_size(devices), 2);
    assert_string_not_equal(json_string_value(json_array_get(devices, 0)),
                            json_string_value(json_array_get(devices, 1)));
    json_decref(events);
    ls_model_destroy(model);
    ls_context_close(four);
    close_fixture(&f);
}

static void every_target_has_its_loss(void **state)
{
    (void)state;
    fixture f;
    ls_model *model;
    open_fixture(&f);
    OK(ls_functional_begin(f.ctx, "two", &model));
    ls_symbol x = ls_symbol_input(model, ls_input(1));
    ls_symbol near = ls_symbol_call(model, ls_dense(1, .name = "near"), x);
    ls_symbol far = ls_symbol_call(model, ls_dense(1, .name = "far"), x);
    OK(ls_functional_end(model, near, far));
    OK(ls_compile(model, .optimizer = ls_sgd(),
                  .outputs = ls_outputs({ .loss = ls_mean_squared_error() },
                                        { .loss = ls_mean_absolute_error(), .weight = 0.25 })));
    ls_dataset *data = ls_from_tensor_slices_with(
        (ls_arrays_options){ .features = f.x, .targets = (const ls_array[]){ f.y, f.y }, .target_count = 2 });
    OK(ls_fit(model, data, .batch_size = 20, .log = f.path, .verbose = LS_VERBOSE_SILENT));
    json_t *events = read_log(&f), *losses = json_object_get(event_of(events, "start", 0), "losses");
    assert_int_equal(json_array_size(losses), 2);
    assert_string_equal(string(json_array_get(losses, 0), "output"), "near");
    assert_string_equal(string(json_array_get(losses, 0), "loss"), "mean_squared_error");
    assert_true(number(json_array_get(losses, 0), "weight") == 1);
    assert_string_equal(string(json_array_get(losses, 1), "output"), "far");
    assert_string_equal(string(json_array_get(losses, 1), "loss"), "mean_absolute_error");
    assert_true(number(json_array_get(losses, 1), "weight") == 0.25);
    json_t *results = json_object_get(event_of(events, "start", 0), "results"), *epoch = event_of(events, "epoch", 0);
    assert_int_equal(json_array_size(results), 3);
    for (size_t i = 0; i < 3; i++)
        number(epoch, json_string_value(json_array_get(results, i)));
    json_decref(events);
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    close_fixture(&f);
}

static ls_status another_rate(void *user, ls_model *model, const ls_logs *logs)
{
    (void)user;
    return logs->epoch == 1 ? ls_set_learning_rate(model, 0.5) : LS_OK;
}

/* Where a fit starts and ends, and the rate of each step. */
static void a_second_fit_starts_where_the_first_ended(void **state)
{
    (void)state;
    fixture f;
    char before[65], after[65];
    open_fixture(&f);
    OK(ls_fit_arrays(f.model, f.x, f.y, .batch_size = 10, .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_weights_sha256(f.model, before));
    const ls_callback callback = { .on_epoch_begin = another_rate };
    OK(ls_fit_arrays(f.model, f.x, f.y, .epochs = 2, .initial_epoch = 1, .batch_size = 10, .log = f.path,
                     .callbacks = &callback, .callback_count = 1, .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_weights_sha256(f.model, after));
    json_t *events = read_log(&f), *start = event_of(events, "start", 0), *end = event_of(events, "end", 0);
    assert_int_equal(number(start, "epochs_done"), 1);
    assert_int_equal(number(start, "steps_done"), 4);
    assert_string_equal(string(start, "weights_sha256"), before);
    assert_int_equal(number(event_of(events, "step", 0), "step"), 5);
    assert_true(number(event_of(events, "step", 0), "learning_rate") == 0.5);
    assert_true(number(event_of(events, "epoch", 0), "learning_rate") == 0.5);
    assert_int_equal(number(end, "epochs_done"), 2);
    assert_int_equal(number(end, "steps_done"), 8);
    assert_string_equal(string(end, "weights_sha256"), after);
    json_decref(events);
    close_fixture(&f);
}

static void a_failure_is_reported_in_the_log(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    float bad[SAMPLES] = { 0 };
    bad[30] = INFINITY;
    f.x.data = bad;
    assert_int_equal(ls_fit_arrays(f.model, f.x, f.y, .batch_size = 10, .keep_order = true, .log = f.path,
                                   .verbose = LS_VERBOSE_SILENT),
                     LS_ERR_NOT_FINITE);
    json_t *events = read_log(&f), *end = event_of(events, "end", 0);
    assert_string_equal(string(end, "reason"), "failed");
    assert_string_equal(string(end, "error"), ls_last_error());
    assert_int_equal(number(end, "steps_done"), 3);
    assert_null(event_of(events, "epoch", 0));
    json_decref(events);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_metrics_are_escaped),     cmocka_unit_test(a_log_that_fails_does_not_end_training),
        cmocka_unit_test(a_log_that_cannot_be_opened_does), cmocka_unit_test(an_interrupted_epoch_has_no_validation),
        cmocka_unit_test(times_are_the_epochs_own),         cmocka_unit_test(lanes_and_devices_are_those_used),
        cmocka_unit_test(every_target_has_its_loss),        cmocka_unit_test(a_second_fit_starts_where_the_first_ended),
        cmocka_unit_test(a_failure_is_reported_in_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
