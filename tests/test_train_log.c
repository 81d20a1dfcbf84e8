/* What a fit writes beside its weights: a log that stays proper JSON whatever metrics are called, whose failure does
 * not end training; a progress bar that fits the terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <pty.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep.h"
#include "skip.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != LS_OK)                                                                                           \
            fail_msg("%s", ls_last_error());                                                                           \
    } while (0)

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
    assert_non_null(strstr(ls_last_error(), "FIFO that nobody reads"));
    close_fixture(&f);
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
    char line[4096], last[4096] = "";
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
    FILE *log = fopen(f.path, "r");
    while (fgets(line, sizeof line, log))
        if (strstr(line, "\"event\":\"epoch\""))
            strcpy(last, line);
    fclose(log);
    assert_non_null(strstr(last, "\"epoch\":2"));
    assert_null(strstr(last, "val_"));
    ls_history_destroy(history);
    ls_dataset_destroy(data);
    close_fixture(&f);
}

/* ---- Progress ---- */

/* What a fit draws on a terminal of that many columns. */
static void draw_on(int columns, fixture *f, char *out, size_t room)
{
    int master, slave;
    struct winsize size = { .ws_row = 24, .ws_col = (unsigned short)columns };
    size_t length = 0;
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    FILE *terminal = fdopen(slave, "w");
    OK(ls_fit_arrays(f->model, f->x, f->y, .epochs = 2, .batch_size = 4, .output = terminal));
    fflush(terminal);
    struct pollfd ready = { .fd = master, .events = POLLIN };
    while (length < room - 1 && poll(&ready, 1, 0) > 0) {
        ssize_t got = read(master, out + length, room - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    out[length] = '\0';
    fclose(terminal);
    close(master);
}

static size_t columns_of(const char *from, const char *to)
{
    size_t count = 0;
    for (; from < to; from++)
        count += ((unsigned char)*from & 0xc0) != 0x80;
    return count;
}

static void a_bar_fits_the_terminal(void **state)
{
    (void)state;
    static const int widths[] = { 200, 60, 40, 12 };
    static char drawn[1 << 16];
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        fixture f;
        int bars = 0;
        open_fixture(&f);
        draw_on(widths[i], &f, drawn, sizeof drawn);
        for (const char *at = drawn; (at = strstr(at, "\r")) != NULL;) {
            const char *begin = ++at, *end = strstr(begin, "\33[K");
            if (end == NULL || strncmp(end + 3, "\r\n", 2) == 0 || memchr(begin, '\n', (size_t)(end - begin)))
                continue; /* the last line of an epoch, which is whole */
            if (columns_of(begin, end) >= (size_t)widths[i])
                fail_msg("%zu columns of %d: %.*s", columns_of(begin, end), widths[i], (int)(end - begin), begin);
            bars++;
        }
        assert_true(bars > 0);
        assert_non_null(strstr(drawn, "loss: ")); /* of the last line, however narrow */
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_metrics_are_escaped),     cmocka_unit_test(a_log_that_fails_does_not_end_training),
        cmocka_unit_test(a_log_that_cannot_be_opened_does), cmocka_unit_test(an_interrupted_epoch_has_no_validation),
        cmocka_unit_test(a_bar_fits_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
