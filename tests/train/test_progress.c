/* Progress on a terminal, which a pseudo-terminal plays: a small screen goes through all that is
 * written to it. No line is ever wider than the terminal, whatever its width, whatever metrics are
 * called, and when the width changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/terminal.h"
#include "base/work.h"
#include "lockstep.h"
#include "machine.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint.h"

enum { SAMPLES = 40, BATCH = 4, MOST_BYTES = 1 << 20 };

/* ---- A terminal ---- */

typedef struct terminal {
    int master;
    FILE *out; /* the end that programs write to */
    pthread_t reader;
    char *text; /* all that was written */
    size_t length;
} terminal;

/* Reads until the other end is closed, so that writers never wait for room. */
static void *read_all(void *user)
{
    terminal *t = user;
    for (;;) {
        ssize_t got = read(t->master, t->text + t->length, MOST_BYTES - 1 - t->length);
        if (got <= 0)
            return NULL;
        t->length += (size_t)got;
    }
}

static void resize(terminal *t, int columns)
{
    struct winsize size = { .ws_row = 24, .ws_col = (unsigned short)columns };
    assert_int_equal(ioctl(t->master, TIOCSWINSZ, &size), 0);
}

static terminal open_terminal(int columns)
{
    int slave;
    terminal t = { .text = calloc(1, MOST_BYTES) };
    assert_non_null(t.text);
    assert_int_equal(openpty(&t.master, &slave, NULL, NULL, NULL), 0);
    resize(&t, columns);
    t.out = fdopen(slave, "w");
    return t;
}

/* After which t->reader must find a `t` that stays where it is. */
static void start_reading(terminal *t)
{
    assert_int_equal(pthread_create(&t->reader, NULL, read_all, t), 0);
}

static void stop_reading(terminal *t)
{
    fclose(t->out);
    pthread_join(t->reader, NULL);
    close(t->master);
}

/* ---- What is seen on it ---- */

typedef struct screen {
    size_t rows, widest; /* lines that were ended; columns of the widest one */
    char line[4096];     /* the line of the cursor: its text since it was last erased */
    size_t bytes;
} screen;

/* A sequence that colours or erases: the library never moves the cursor. Returns its end. */
static const char *skip_escape(const char *at, screen *s)
{
    if (at[1] != '[')
        fail_msg("an escape sequence that is not ours: %.10s", at + 1);
    at += 2 + strspn(at + 2, "0123456789;");
    if (*at == 'K')
        s->line[s->bytes] = '\0';
    else if (*at != 'm')
        fail_msg("an escape sequence that is not ours: %c", *at);
    return at + 1;
}

static void begin_line(screen *s)
{
    s->bytes = 0;
}

/* Fails at the first character beyond the last column. */
static screen watch(const char *text, size_t columns)
{
    screen s = { .rows = 0 };
    for (const char *at = text; *at;) {
        if (*at == '\33') {
            at = skip_escape(at, &s);
        } else if (*at == '\r' || *at == '\n') {
            s.rows += *at == '\n';
            if (*at == '\n')
                s.line[0] = '\0';
            begin_line(&s);
            at++;
        } else {
            assert_true((unsigned char)*at >= 32 && s.bytes < sizeof s.line - 1);
            s.line[s.bytes++] = *at++;
            s.line[s.bytes] = '\0';
            size_t wide = ((unsigned char)*at & 0xc0) == 0x80 ? 0 : ls_columns(s.line); /* whole characters */
            s.widest = wide > s.widest ? wide : s.widest;
            if (wide > columns)
                fail_msg("%zu columns of %zu: %s", wide, columns, s.line);
        }
    }
    return s;
}

static size_t count(const char *text, const char *word)
{
    size_t found = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word))
        found++;
    return found;
}

/* ---- A model to train ---- */

typedef struct fixture {
    ls_context *ctx;
    ls_model *model;
    ls_array x, y;
} fixture;

static void open_fixture(fixture *f, const char *metric)
{
    static float x[SAMPLES], y[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        x[i] = y[i] = (float)i / SAMPLES;
    f->x = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), x);
    f->y = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), y);
    ls_metric named = { .kind = LS_METRIC_MEAN_ABSOLUTE_ERROR, .name = metric };
    OK(ls_context_open(NULL, &f->ctx));
    OK(ls_sequential(f->ctx, "line", &f->model, ls_input(1), ls_dense(1)));
    OK(ls_compile(f->model, .optimizer = ls_sgd(), .loss = ls_mean_squared_error(), .metrics = ls_metrics(named)));
}

static void close_fixture(fixture *f)
{
    ls_model_destroy(f->model);
    ls_context_close(f->ctx);
}

/* Terminals as most people have them. */
static int usual_terminal(void **state)
{
    (void)state;
    setenv("TERM", "xterm-256color", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
    return 0;
}

#define EPOCHS 2

/* Two epochs with validation on a terminal of that width; the caller frees t.text. */
static terminal train_on(int columns, const char *metric)
{
    fixture f;
    open_fixture(&f, metric);
    terminal t = open_terminal(columns);
    start_reading(&t);
    OK(ls_fit_arrays(f.model, f.x, f.y, .epochs = EPOCHS, .batch_size = BATCH, .validation_split = 0.2,
                     .output = t.out));
    stop_reading(&t);
    close_fixture(&f);
    return t;
}

/* ---- Tests ---- */

static void no_line_is_wider_than_the_terminal(void **state)
{
    (void)state;
    static const int widths[] = { 200, 120, 80, 60, 40, 20, 12, 5, 2, 1 };
    static const char *const names[] = { "mae", "a_metric_with_quite_a_long_name_that_somebody_thought_was_clear",
                                         "\xe7\xb2\xbe\xe5\xba\xa6\xe7\xb2\xbe\xe5\xba\xa6", "e\xcc\x81t\xcc\x82",
                                         "x\33[2J\r\n\x9b" };
    for (size_t i = 0; i < LENGTH(widths); i++)
        for (size_t k = 0; k < LENGTH(names); k++) {
            terminal t = train_on(widths[i], names[k]);
            screen s = watch(t.text, (size_t)widths[i]);
            assert_true(count(t.text, "\r") > 2 * EPOCHS);
            if (widths[i] == 200 && k != 1)
                assert_int_equal(s.rows, 1 + 2 * EPOCHS); /* the rate; a title and a bar each: nothing else scrolls */
            if (widths[i] >= 20)
                assert_int_equal(count(t.text, " loss: ") + count(t.text, "\nloss: ") > 0, 1);
            if (widths[i] >= 20 && k == 0) /* every value of the end is there, whole */
                for (const char *const *word = (const char *const[]){ "Epoch 2/2", "mae: ", "val_mae: ", NULL }; *word;
                     word++)
                    assert_non_null(strstr(t.text, *word));
            assert_string_equal(s.line, "");
            free(t.text);
        }
}

static void a_bar_looks_as_in_keras(void **state)
{
    (void)state;
    terminal t = train_on(200, "mae");
    assert_non_null(strstr(t.text, "Epoch 1/2\r\n"));
    /* the last one: all of it finished; earlier ones have unfinished parts */
    assert_non_null(strstr(t.text, "\33[1m8/8\33[0m \33[32m\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501"
                                   "\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\33[0m \33[1m"));
    assert_non_null(strstr(t.text, "\33[1m1/8\33[0m \33[32m\u2501\u2501\33[0m\33[37m\u2501\u2501"));
    assert_non_null(strstr(t.text, "s/step - loss: 0."));
    assert_null(strstr(t.text, "\u2500"));
    free(t.text);
}

static void colours_and_utf8_only_where_they_are_wanted(void **state)
{
    setenv("NO_COLOR", "1", 1);
    terminal t = train_on(100, "mae");
    assert_null(strstr(t.text, "m\u2501")); /* a bar, but no colours */
    assert_null(strstr(t.text, "\33[1m"));
    assert_non_null(strstr(t.text, "1/8 \u2501\u2501\u2500\u2500"));
    free(t.text);
    setenv("NO_COLOR", "", 1); /* as if it were not set: no-color.org */
    setenv("LC_ALL", "C", 1);
    t = train_on(100, "pr\xc3\xa9"
                      "cision");
    for (const char *at = t.text; *at; at++)
        assert_true((unsigned char)*at < 128);
    assert_non_null(strstr(t.text, "\33[32m==\33[0m\33[37m.................."));
    assert_non_null(strstr(t.text, "pr?cision: 0."));
    free(t.text);
    setenv("TERM", "dumb", 1);
    t = train_on(100, "mae");
    assert_null(strchr(t.text, '\33'));
    assert_non_null(strstr(t.text, "8/8 - "));
    free(t.text);
    usual_terminal(state);
}

static ls_status make_narrow(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    (void)model, (void)stop;
    if (logs->epoch == 0)
        resize(user, 24);
    return LS_OK;
}

static void a_width_that_changes_is_noticed(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, "mae");
    terminal t = open_terminal(120);
    start_reading(&t);
    const ls_callback callback = { .user = &t, .on_epoch_end = make_narrow };
    OK(ls_fit_arrays(f.model, f.x, f.y, .epochs = 2, .batch_size = BATCH, .output = t.out, .callbacks = &callback,
                     .callback_count = 1));
    stop_reading(&t);
    const char *second = strstr(t.text, "Epoch 2/2");
    assert_non_null(second);
    assert_true(watch(t.text, 120).widest > 24);
    watch(second, 24);
    free(t.text);
    close_fixture(&f);
}

static void evaluate_and_predict_have_bars(void **state)
{
    (void)state;
    fixture f;
    ls_array out;
    open_fixture(&f, "mae");
    terminal t = open_terminal(100);
    start_reading(&t);
    OK(ls_evaluate_arrays(f.model, f.x, f.y, .batch_size = BATCH, .verbose = LS_VERBOSE_BAR, .output = t.out));
    OK(ls_predict_array(f.model, f.x, &out, .batch_size = BATCH, .verbose = LS_VERBOSE_BAR, .output = t.out));
    free(out.data);
    stop_reading(&t);
    assert_int_equal(watch(t.text, 100).rows, 2);
    assert_true(count(t.text, " 1/10\33[0m") == 2 && count(t.text, "10/10\33[0m") == 2);
    free(t.text);
    close_fixture(&f);
}

/* ---- What takes longer than a second ---- */

/* Samples that come slowly: 1.2 seconds for all of them. */
static ls_status slowly(void *user, const ls_element *in, ls_element *out)
{
    (void)user;
    usleep(1200000 / SAMPLES);
    for (int i = 0; i < in->count; i++)
        memcpy(out->component[i].data, in->component[i].data, sizeof(float));
    return LS_OK;
}

static void slow_evaluations_are_shown(void **state)
{
    (void)state;
    fixture f;
    ls_results results;
    ls_array out;
    open_fixture(&f, "mae");
    ls_dataset *slow = ls_map(ls_from_tensor_slices(f.x, f.y), slowly);
    terminal t = open_terminal(40);
    start_reading(&t);
    ls_show_work(t.out);
    OK(ls_evaluate_arrays(f.model, f.x, f.y, &results, .batch_size = BATCH));
    fflush(t.out);
    assert_int_equal(t.length, 0); /* quick work */
    OK(ls_evaluate(f.model, slow, &results, .batch_size = 1));
    OK(ls_predict(f.model, slow, &out, .batch_size = 1));
    free(out.data);
    ls_show_work(NULL);
    OK(ls_evaluate(f.model, slow, &results, .batch_size = 10)); /* the display is off */
    stop_reading(&t);
    screen s = watch(t.text, 40);
    assert_int_equal(s.rows, 0);
    assert_string_equal(s.line, ""); /* it goes when it is done */
    const char *predicting = strstr(t.text, "predicting ");
    assert_true(strstr(t.text, "evaluating ") && predicting && !strstr(predicting, "evaluating"));
    free(t.text);
    ls_dataset_destroy(slow);
    close_fixture(&f);
}

static void slow_validation_is_shown_with_the_bar(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, "mae");
    ls_dataset *data = ls_from_tensor_slices(f.x, f.y), *slow = ls_map(ls_from_tensor_slices(f.x, f.y), slowly);
    terminal t = open_terminal(60);
    start_reading(&t);
    OK(ls_fit(f.model, data, .batch_size = 10, .validation = slow, .validation_batch_size = 1, .output = t.out));
    stop_reading(&t);
    watch(t.text, 60);
    assert_non_null(strstr(t.text, " - validating "));
    assert_non_null(strstr(t.text, "val_mae: "));
    free(t.text);
    ls_dataset_destroy(data);
    ls_dataset_destroy(slow);
    close_fixture(&f);
}

static void *write_slowly(void *user)
{
    int fd = open(user, O_WRONLY);
    for (int i = 0; i < 13; i++) {
        if (write(fd, "1,2,3\n", 6) != 6)
            break;
        usleep(100000);
    }
    close(fd);
    return NULL;
}

static void slow_files_are_shown(void **state)
{
    (void)state;
    char folder[] = "/tmp/lockstep-progress-XXXXXX", path[64];
    ls_array x, y;
    pthread_t writer;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/\33[2Jslow.csv", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    terminal t = open_terminal(20);
    start_reading(&t);
    ls_show_work(t.out);
    assert_int_equal(pthread_create(&writer, NULL, write_slowly, path), 0);
    OK(ls_csv_read(path, &x, &y));
    pthread_join(writer, NULL);
    ls_show_work(NULL);
    stop_reading(&t);
    screen s = watch(t.text, 20);
    assert_string_equal(s.line, "");
    assert_non_null(strstr(t.text, "reading ?[2Jslow"));
    free(x.data);
    free(y.data);
    free(t.text);
    unlink(path);
    rmdir(folder);
}

/* A disk that takes its time over one file. */
static int slow_fsync(void *user, int fd)
{
    bool *slept = user;
    if (!*slept)
        usleep(1700000);
    *slept = true;
    return ls_system_file_ops.fsync(NULL, fd);
}

static void slow_checkpoints_are_shown(void **state)
{
    (void)state;
    fixture f;
    bool slept = false;
    char folder[] = "/tmp/lockstep-progress-XXXXXX", command[80];
    ls_file_ops ops = ls_system_file_ops;
    ops.user = &slept;
    ops.fsync = slow_fsync;
    assert_non_null(mkdtemp(folder));
    open_fixture(&f, "mae");
    f.model->job->file_ops = &ops;
    terminal t = open_terminal(60);
    start_reading(&t);
    ls_show_work(t.out);
    OK(ls_fit_arrays(f.model, f.x, f.y, .batch_size = 10, .checkpoint = folder, .verbose = LS_VERBOSE_SILENT));
    ls_show_work(NULL);
    stop_reading(&t);
    assert_string_equal(watch(t.text, 60).line, "");
    assert_non_null(strstr(t.text, "saving to lockstep-progress-"));
    free(t.text);
    close_fixture(&f);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* Any width, any part, any name. */
static void work_fits_any_terminal(void **state)
{
    (void)state;
    const ls_work works[] = { { "saving", "step-00000500", 3, 7, 1.5 },
                              { "reading", "/data/\xe7\xb2\xbe\xe5\xba\xa6.npz", 0, 0, 2.5 },
                              { "evaluating", NULL, 9, 9, 1e6 },
                              { "reading", "grown.csv", 20, 9, 3 } };
    for (int columns = 1; columns < 90; columns++) {
        terminal t = open_terminal(columns);
        start_reading(&t);
        ls_terminal on = ls_terminal_of(t.out);
        for (size_t i = 0; i < LENGTH(works); i++)
            ls_work_draw(&on, &works[i]);
        ls_line_erase(&on);
        stop_reading(&t);
        assert_string_equal(watch(t.text, (size_t)columns).line, "");
        if (columns >= 60)
            assert_true(strstr(t.text, "saving step-00000500 \33[32m\u2501") && strstr(t.text, " 43% 2s"));
        free(t.text);
    }
}

static void columns_are_counted_not_bytes(void **state)
{
    (void)state;
    assert_int_equal(ls_columns("abc"), 3);
    assert_int_equal(ls_columns("\u2501\u2501"), 2);
    assert_int_equal(ls_columns("\xe7\xb2\xbe\xe5\xba\xa6"), 4);
    assert_int_equal(ls_columns("e\xcc\x81"), 1);
    assert_int_equal(ls_columns("\xff\xc3"), 2); /* no UTF-8: a column a byte */
    assert_int_equal(ls_bytes_within("\xe7\xb2\xbe\xe5\xba\xa6", 3), 3);
    assert_int_equal(ls_bytes_within("e\xcc\x81x", 1), 3);
    assert_int_equal(ls_bytes_within("abc", 9), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_line_is_wider_than_the_terminal),
        cmocka_unit_test(a_bar_looks_as_in_keras),
        cmocka_unit_test(colours_and_utf8_only_where_they_are_wanted),
        cmocka_unit_test(a_width_that_changes_is_noticed),
        cmocka_unit_test(evaluate_and_predict_have_bars),
        cmocka_unit_test(slow_evaluations_are_shown),
        cmocka_unit_test(slow_validation_is_shown_with_the_bar),
        cmocka_unit_test(slow_files_are_shown),
        cmocka_unit_test(slow_checkpoints_are_shown),
        cmocka_unit_test(work_fits_any_terminal),
        cmocka_unit_test(columns_are_counted_not_bytes),
    };
    return cmocka_run_group_tests(tests, usual_terminal, NULL);
}
