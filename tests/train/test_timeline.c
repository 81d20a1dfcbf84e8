/* Timelines and times by device: what a fit writes for ui.perfetto.dev has every step, task, join,
 * copy and update, on the row of who did it; and what is said of devices follows from what was
 * measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "lockstep.h"
#include "machine.h"
#include "nn/model.h"
#include "train/job/job.h"
#include "train/job/times.h"

#define SAMPLES 20
#define BATCH   5
#define STEPS   4 /* in an epoch */
#define LANES   5

static float x[SAMPLES * 6], y[SAMPLES];

static int make_data(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES * 6; i++)
        x[i] = (float)(i * 2654435761u >> 24) / 256;
    for (int i = 0; i < SAMPLES; i++)
        y[i] = (float)(i % 3);
    return 0;
}

typedef struct fitted {
    machine m;
    ls_model *model;
    ls_dataset *data;
    char path[64];
    json_t *root, *events;
} fitted;

static void open_fitted(fitted *f, int gpus, int cpus, bool copies)
{
    *f = (fitted){ .path = "/tmp/lockstep-timeline-XXXXXX" };
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    close(fd);
    machine_create(&f->m, (machine_settings){ .gpu = { .devices = gpus, .copies = copies, .delay = -1 },
                                              .options = { .cpu_devices = cpus, .threads = 2 } });
    OK(ls_sequential(f->m.ctx, "small", &f->model, ls_input(6), ls_dense(8, .activation = LS_RELU), ls_dense(8),
                     ls_dense(1)));
    OK(ls_compile(f->model, .optimizer = ls_adam(), .loss = ls_mean_squared_error()));
    f->data = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 6), x),
                                    ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), y), .keep = LS_KEEP_BORROWED);
}

static void close_fitted(fitted *f)
{
    json_decref(f->root);
    ls_dataset_destroy(f->data);
    ls_model_destroy(f->model);
    machine_close(&f->m);
    unlink(f->path);
}

static ls_fit_options options(const fitted *f, ls_strategy strategy)
{
    return (ls_fit_options){ .epochs = 2,
                             .batch_size = BATCH,
                             .lanes = LANES,
                             .verbose = LS_VERBOSE_SILENT,
                             .strategy = strategy,
                             .trace.path = f->path };
}

/* ---- Reading ---- */

static void read_file(fitted *f)
{
    json_error_t error;
    json_decref(f->root);
    f->root = json_load_file(f->path, 0, &error);
    if (!f->root)
        fail_msg("line %d: %s", error.line, error.text);
    f->events = json_object_get(f->root, "traceEvents");
    assert_true(json_is_array(f->events));
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static double number_of(const json_t *event, const char *key)
{
    const json_t *number = json_object_get(event, key);
    assert_true(json_is_number(number));
    return json_number_value(number);
}

static int64_t argument(const json_t *event, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(event, "args"), key));
}

static const char *argument_text(const json_t *event, const char *key)
{
    return text_of(json_object_get(event, "args"), key);
}

/* Spans of a category, with that step (0: any) and beginning of a name (NULL: any). */
static int count(const fitted *f, const char *category, int64_t step, const char *name)
{
    int found = 0;
    size_t i;
    json_t *event;
    json_array_foreach(f->events, i, event)
    {
        found += strcmp(text_of(event, "ph"), "X") == 0 && strcmp(text_of(event, "cat"), category) == 0 &&
                 (step == 0 || argument(event, "step") == step) &&
                 (!name || strncmp(text_of(event, "name"), name, strlen(name)) == 0);
    }
    return found;
}

/* The name that metadata gives to a process or thread. */
static const char *row_name(const fitted *f, const char *what, const json_t *like)
{
    size_t i;
    json_t *event;
    bool thread = strcmp(what, "thread_name") == 0;
    json_array_foreach(f->events, i, event)
    {
        if (strcmp(text_of(event, "ph"), "M") == 0 && strcmp(text_of(event, "name"), what) == 0 &&
            number_of(event, "pid") == number_of(like, "pid") &&
            (!thread || number_of(event, "tid") == number_of(like, "tid")))
            return argument_text(event, "name");
    }
    fail_msg("no %s for pid %g, tid %g", what, number_of(like, "pid"), number_of(like, "tid"));
    return "";
}

/* Every span has a place on a named row; on a row, spans follow or contain each other. */
static void check_rows(const fitted *f)
{
    size_t i, k;
    json_t *a, *b;
    json_array_foreach(f->events, i, a)
    {
        if (strcmp(text_of(a, "ph"), "X") != 0)
            continue;
        double start = number_of(a, "ts"), end = start + number_of(a, "dur");
        assert_true(start >= 0 && end >= start);
        assert_true(row_name(f, "process_name", a)[0] && row_name(f, "thread_name", a)[0]);
        json_array_foreach(f->events, k, b)
        {
            if (k <= i || strcmp(text_of(b, "ph"), "X") != 0 || number_of(a, "tid") != number_of(b, "tid") ||
                number_of(a, "pid") != number_of(b, "pid"))
                continue;
            double from = number_of(b, "ts"), to = from + number_of(b, "dur"), near = 0.002; /* rounded to 1 ns */
            bool apart = to <= start + near || from >= end - near, inside = from >= start - near && to <= end + near;
            bool around = start >= from - near && end <= to + near;
            if (!apart && !inside && !around)
                fail_msg("%s from %.3f to %.3f and %s from %.3f to %.3f overlap", text_of(a, "name"), start, end,
                         text_of(b, "name"), from, to);
        }
    }
}

/* Each lane's tasks in each step, on the device that the strategy gives the lane to. */
static void check_tasks(const fitted *f, int devices, const char *kind)
{
    size_t i;
    json_t *event;
    int tasks = count(f, "task", 1, NULL);
    assert_true(tasks >= LANES && tasks % LANES == 0);
    for (int64_t step = 1; step <= 2 * STEPS; step++) {
        char name[32];
        snprintf(name, sizeof name, "step %d", (int)step);
        assert_int_equal(count(f, "step", step, name), 1);
        assert_int_equal(count(f, "data", step, "waiting for data"), 1);
        assert_int_equal(count(f, "task", step, NULL), tasks);
        assert_int_equal(count(f, "task", step, "dense"), tasks); /* layers, not nodes */
        assert_true(count(f, "join", step, NULL) >= 1);
        assert_true(count(f, "update", step, "update") >= 1);
        assert_true(count(f, "check", step, "check") >= 1);
        int by_lane[LANES] = { 0 };
        json_array_foreach(f->events, i, event)
        {
            if (strcmp(text_of(event, "cat"), "task") != 0 || argument(event, "step") != step)
                continue;
            int lane = (int)argument(event, "lane");
            char expected[32], lane_text[32];
            snprintf(lane_text, sizeof lane_text, ", lane %d", lane);
            machine_has(text_of(event, "name"), lane_text);
            snprintf(expected, sizeof expected, "%s:%d", kind, lane * devices / LANES);
            assert_string_equal(row_name(f, "process_name", event), expected);
            by_lane[lane]++;
        }
        for (int lane = 0; lane < LANES; lane++)
            assert_int_equal(by_lane[lane], tasks / LANES);
    }
}

/* ---- Timelines ---- */

static void every_task_is_on_its_row(void **state)
{
    (void)state;
    fitted f;
    open_fitted(&f, 0, 2, false);
    ls_fit_options o = options(&f, ls_mirrored());
    o.validation = f.data;
    OK(ls_fit_with(f.model, f.data, o));
    read_file(&f);
    check_rows(&f);
    assert_int_equal(count(&f, "validation", 0, NULL), 2);
    assert_true(count(&f, "plan", 1, "planning") >= 1);
    assert_int_equal(count(&f, "copy", 0, NULL), 0);
    close_fitted(&f);
}

static void lanes_are_where_the_strategy_says(void **state)
{
    (void)state;
    for (int gpus = 0; gpus <= 2; gpus++) {
        fitted f;
        open_fitted(&f, gpus, gpus ? 1 : 2, true);
        OK(ls_fit_with(f.model, f.data, options(&f, ls_mirrored())));
        read_file(&f);
        check_rows(&f);
        check_tasks(&f, gpus ? gpus : 2, gpus ? "gpu" : "cpu");
        close_fitted(&f);
    }
}

static void copies_are_listed_with_their_places(void **state)
{
    (void)state;
    for (int copies = 0; copies < 2; copies++) {
        fitted f;
        size_t i;
        json_t *event;
        int between = 0;
        open_fitted(&f, 2, 1, copies);
        OK(ls_fit_with(f.model, f.data, options(&f, ls_mirrored())));
        read_file(&f);
        check_rows(&f);
        assert_true(count(&f, "state", 2, "copying variables") == 1);
        json_array_foreach(f.events, i, event)
        {
            if (strcmp(text_of(event, "cat"), "copy") != 0)
                continue;
            assert_true(argument(event, "bytes") > 0 && argument_text(event, "of")[0]);
            machine_has(text_of(event, "name"), argument_text(event, "of"));
            between +=
                strcmp(argument_text(event, "from"), "gpu:0") == 0 && strcmp(argument_text(event, "to"), "gpu:1") == 0;
        }
        assert_true(between >= 2 * STEPS);
        close_fitted(&f);
    }
}

/* Joins by twos, and a first device that joins all: their work is on rows, too. */
static void every_way_to_join_is_there(void **state)
{
    (void)state;
    const ls_strategy ways[] = { ls_mirrored(.all_reduce = LS_ALL_REDUCE_HIERARCHICAL_COPY),
                                 ls_mirrored(.all_reduce = LS_ALL_REDUCE_TO_ONE), ls_data_parallel(),
                                 ls_model_parallel(), ls_pipeline(.order = LS_FILL_DRAIN) };
    for (size_t i = 0; i < LENGTH(ways); i++)
        for (int gpus = 0; gpus <= 3; gpus += 3) {
            fitted f;
            open_fitted(&f, gpus, gpus ? 1 : 3, true);
            OK(ls_fit_with(f.model, f.data, options(&f, ways[i])));
            read_file(&f);
            check_rows(&f);
            for (int64_t step = 1; step <= 2 * STEPS; step++)
                assert_true(count(&f, "task", step, NULL) >= LANES && count(&f, "join", step, NULL) >= 1 &&
                            count(&f, "update", step, NULL) >= 1);
            close_fitted(&f);
        }
}

static void some_steps_alone(void **state)
{
    (void)state;
    fitted f;
    open_fitted(&f, 0, 2, false);
    ls_fit_options o = options(&f, ls_mirrored());
    o.trace.first_step = 3;
    o.trace.last_step = 5;
    OK(ls_fit_with(f.model, f.data, o));
    read_file(&f);
    for (int64_t step = 1; step <= 2 * STEPS; step++) {
        assert_int_equal(count(&f, "step", step, NULL), step >= 3 && step <= 5);
        assert_int_equal(count(&f, "task", step, NULL) > 0, step >= 3 && step <= 5);
    }
    machine_lacks(f.m.log, "room for");
    o.trace.first_step = 6;
    FAILS(ls_fit_with(f.model, f.data, o), LS_ERR_INVALID, "trace.first_step is 6, trace.last_step 5");
    o.trace.first_step = -1;
    FAILS(ls_fit_with(f.model, f.data, o), LS_ERR_INVALID, "trace.first_step");
    close_fitted(&f);
}

/* A fit that fails has its timeline, too, with the reason; and so has one that is stopped. */
static void whatever_ends_it_the_file_is_written(void **state)
{
    (void)state;
    fitted f;
    size_t i;
    json_t *event;
    bool told = false;
    open_fitted(&f, 2, 1, true);
    ls_fit_options o = options(&f, ls_mirrored());
    o.max_steps = 3;
    OK(ls_fit_with(f.model, f.data, o));
    read_file(&f);
    assert_int_equal(count(&f, "step", 0, NULL), 3);
    o.max_steps = 0;
    gpu_lose(f.m.g, 1, GPU_RUN, 30);
    FAILS(ls_fit_with(f.model, f.data, o), LS_ERR_DEVICE, GPU(1));
    read_file(&f);
    check_rows(&f);
    json_array_foreach(f.events, i, event)
    {
        told = told || (strcmp(text_of(event, "ph"), "i") == 0 && strstr(argument_text(event, "message"), GPU(1)));
    }
    assert_true(told);
    close_fitted(&f);
}

static void a_file_that_cannot_be_written(void **state)
{
    (void)state;
    fitted f;
    char before[65], after[65];
    open_fitted(&f, 0, 1, false);
    OK(ls_model_state_sha256(f.model, before));
    ls_fit_options o = options(&f, ls_one_device());
    o.trace.path = "/no/such/folder/trace.json";
    FAILS(ls_fit_with(f.model, f.data, o), LS_ERR_NOT_FOUND, "the timeline", "/no/such/folder");
    OK(ls_model_state_sha256(f.model, after));
    assert_string_equal(after, before);
    o.trace.path = NULL; /* and the next fit knows nothing of it */
    OK(ls_fit_with(f.model, f.data, o));
    close_fitted(&f);
}

static void bits_do_not_depend_on_it(void **state)
{
    (void)state;
    char hex[2][65];
    for (int traced = 0; traced < 2; traced++) {
        fitted f;
        open_fitted(&f, 0, 2, false);
        ls_fit_options o = options(&f, ls_mirrored());
        o.trace.path = traced ? f.path : NULL;
        OK(ls_fit_with(f.model, f.data, o));
        OK(ls_model_state_sha256(f.model, hex[traced]));
        close_fitted(&f);
    }
    assert_string_equal(hex[0], hex[1]);
}

/* With room for this number of events, the file has whole steps and reports what it leaves out. */
static void missing_room_is_reported(void **state)
{
    (void)state;
    fitted f;
    static float many[1024 * 6], labels[1024];
    char end[256] = "", *at;
    open_fitted(&f, 0, 1, false);
    ls_fit_options o = options(&f, ls_one_device());
    o.lanes = o.batch_size = 1024;
    o.epochs = 400;
    ls_dataset *data = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(1024, 6), many),
                                             ls_array_of(LS_F32, LS_SHAPE(1024, 1), labels), .keep = LS_KEEP_BORROWED);
    OK(ls_fit_with(f.model, data, o));
    ls_dataset_destroy(data);
    machine_has(f.m.log, "is full after step");
    machine_has(f.m.log, "of 400");
    FILE *file = fopen(f.path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, -200, SEEK_END), 0);
    assert_int_equal(fread(end, 1, 200, file), 200);
    fclose(file);
    machine_has(end, "\"left_out\":\"steps from ");
    assert_non_null(at = strstr(end, "\"last_step\":"));
    int64_t last = atoll(at + strlen("\"last_step\":")), cut = atoll(strstr(at, "from ") + strlen("from "));
    assert_true(last >= 1 && cut == last + 1);
    close_fitted(&f);
}

/* ---- Times by device ---- */

static void times_of_devices_add_up(void **state)
{
    (void)state;
    for (int gpus = 0; gpus <= 2; gpus += 2) {
        fitted f;
        ls_device_times *list = NULL;
        size_t n = 0;
        open_fitted(&f, gpus, gpus ? 1 : 2, false);
        OK(ls_model_device_times(f.model, &list, &n));
        assert_true(n == 0 && !list);
        OK(ls_fit_with(f.model, f.data, options(&f, ls_mirrored())));
        OK(ls_model_device_times(f.model, &list, &n));
        ls_times times = ls_model_times(f.model);
        double wall = times.data + times.compute + times.other;
        int used = 0;
        double joins = 0; /* of all devices: a thread that finds no chunk left joins nothing */
        for (size_t i = 0; i < n; i++) {
            const ls_device_times *t = &list[i];
            double steps = t->busy + t->joins + t->idle, all = steps + t->data + t->other;
            assert_true(t->busy >= 0 && t->joins >= 0 && t->idle >= 0 && t->other >= 0 && t->copies >= 0);
            assert_true(steps <= times.compute + 1e-4);
            assert_true(all <= wall + 1e-4 && all >= wall - 1e-4);
            assert_true(t->data == times.data && t->stage == -1);
            if (strstr(t->name, gpus ? "GPU:" : "CPU:")) {
                used++;
                assert_true(t->busy > 0);
                joins += t->joins;
                assert_true((t->copies > 0) == (gpus > 0));
            }
        }
        assert_int_equal(used, 2);
        assert_true(joins > 0);
        free(list);
        close_fitted(&f);
    }
}

/* Each epoch's own in its line of the log; all of them in the last line. */
static void the_log_has_them(void **state)
{
    (void)state;
    fitted f;
    char line[4096];
    double sums[2] = { 0, 0 };
    int epochs = 0, ends = 0;
    open_fitted(&f, 0, 2, false);
    ls_fit_options o = options(&f, ls_mirrored());
    o.trace.path = NULL;
    o.log = f.path;
    OK(ls_fit_with(f.model, f.data, o));
    FILE *log = fopen(f.path, "r");
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        json_error_t error;
        json_t *event = json_loads(line, 0, &error);
        bool epoch = strcmp(text_of(event, "event"), "epoch") == 0, end = strcmp(text_of(event, "event"), "end") == 0;
        const json_t *devices = json_object_get(event, "devices");
        epochs += epoch;
        ends += end;
        double all_joins = 0;
        for (size_t i = 0; (epoch || end) && i < 2; i++) {
            const json_t *one = json_array_get(devices, i);
            assert_int_equal(json_array_size(devices), 2);
            assert_string_equal(text_of(one, "name"), i ? "cpu:1" : "cpu:0");
            double busy = number_of(one, "busy"), joins = number_of(one, "joins"), idle = number_of(one, "idle");
            assert_true(busy > 0 && joins >= 0 && idle >= 0);
            all_joins += joins;
            assert_true(busy + joins + idle <= number_of(event, "compute_seconds") + 1e-4);
            assert_true(number_of(one, "data") == number_of(event, "data_seconds"));
            sums[i] += epoch ? busy : -busy;
        }
        assert_true(!(epoch || end) || all_joins > 0);
        json_decref(event);
    }
    fclose(log);
    assert_true(epochs == 2 && ends == 1);
    for (int i = 0; i < 2; i++)
        assert_true(sums[i] < 1e-9 && sums[i] > -1e-9);
    close_fitted(&f);
}

static void stages_report_their_bubble(void **state)
{
    (void)state;
    fitted f;
    ls_device_times *list = NULL;
    size_t n = 0;
    char *text = NULL;
    open_fitted(&f, 0, 2, false);
    OK(ls_fit_with(f.model, f.data, options(&f, ls_pipeline())));
    OK(ls_model_device_times(f.model, &list, &n));
    assert_int_equal(n, 2);
    assert_int_equal(list[0].stage, 0);
    assert_int_equal(list[1].stage, 1);
    OK(ls_explain_times(f.model, &text));
    machine_has(text, "stage 0 on cpu:0: busy ");
    machine_has(text, "stage 1 on cpu:1: busy ");
    assert_int_equal(machine_count(text, "; the bubble is "), 2);
    assert_int_equal(machine_count(text, "; of which copies "), 2);
    assert_true(list[0].lanes > 0 && list[0].lanes <= list[0].busy && list[1].lanes > 0);
    read_file(&f);
    check_rows(&f);
    free(list);
    free(text);
    close_fitted(&f);
}

/* The report on made-up times of two or more devices; with workers, the times are those of each. */
static double delay; /* seconds that threads waited for a processor */

static const char *advice(int devices, int workers, double data, int64_t steps, const ls_device_seconds *each)
{
    static char kept[256];
    machine m;
    int list[] = { 0, 1, 2, 3 };
    ls_fit_seconds *s = NULL;
    ls_text text = { 0 };
    machine_create(&m, (machine_settings){ .options = { .cpu_devices = devices, .threads = devices * workers } });
    assert_int_equal(machine_devices(m.ctx, NULL), devices);
    OK(ls_fit_seconds_make(m.ctx, &(ls_task_map){ .devices = list, .count = devices }, &s));
    for (int d = 0; d < devices; d++)
        ls_fit_seconds_list(s)[d] = each[d];
    ls_fit_seconds_note(s, &(ls_times){ .data = data }, data + each[0].present, steps, delay);
    ls_fit_seconds_advise(s, &text);
    snprintf(kept, sizeof kept, "%s", ls_text_get(&text));
    ls_text_free(&text);
    ls_fit_seconds_free(s);
    machine_close(&m);
    return kept;
}

static void devices_that_do_not_help_are_reported(void **state)
{
    (void)state;
    /* 10 seconds; each device works for 2: a single one would take 4 */
    ls_device_seconds slow = { .busy = 1, .joins = 6.1, .idle = 1, .waiting = 8, .present = 10 };
    ls_device_seconds two[] = { slow, slow };
    assert_string_equal(advice(2, 1, 0, 100, two), "2 devices are slower than 1 for this model: joins 61 %\n");
    assert_string_equal(advice(2, 1, 0, 5, two), ""); /* too few steps to say */
    delay = 0.6; /* other work had the cores: what was measured is not the model's */
    assert_string_equal(advice(2, 1, 0, 100, two), "");
    delay = 0;
    assert_string_equal(advice(1, 1, 0, 100, two), "");
    /* with several workers each device would wait within itself, too: it need not be slower */
    assert_string_equal(advice(2, 2, 0, 100, two), "");
    /* waiting for data as long as working: another device helps, if not by much */
    ls_device_seconds good = { .busy = 8, .joins = 1, .idle = 1, .waiting = 1.5, .present = 10 };
    two[0] = two[1] = good;
    assert_string_equal(advice(2, 1, 0, 100, two), "");
    assert_string_equal(advice(2, 1, 10, 100, two), "");
    assert_string_equal(advice(2, 1, 90, 100, two),
                        "2 devices are hardly faster than 1 for this model: waiting for data 90 %\n");
    /* fewer lanes than devices: one does all the work */
    ls_device_seconds lazy = { .idle = 9, .waiting = 9.9, .present = 10 };
    ls_device_seconds some[] = { { .busy = 9, .joins = 0.5, .waiting = 0.3, .present = 10 }, lazy, lazy };
    machine_has(advice(3, 1, 0, 100, some), "3 devices are hardly faster than 1 for this model: idle");
    /* copies that one alone would not make are no work of its own */
    ls_device_seconds copying = { .busy = 3, .joins = 6.5, .copies = 6, .between = 6, .waiting = 0.5, .present = 10 };
    two[0] = two[1] = copying;
    assert_string_equal(advice(2, 1, 0, 100, two), "2 devices are slower than 1 for this model: joins 65 %\n");
}

/* ---- Times by op ---- */

/* The shares of all rows; `rows` counts them. */
static double all_shares(const char *text, int *rows)
{
    double sum = 0, share;
    *rows = 0;
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strstr(line, " % ") && sscanf(line, " %lf %%", &share) == 1) {
            sum += share;
            ++*rows;
        }
    return sum;
}

/* The number of calls of an op: "  0.1 %     0.000 s        96     6.8  apply: simd update". */
static long long calls_of(const char *text, const char *op)
{
    long long calls = -1;
    const char *line = strstr(text, op);
    assert_non_null(line);
    while (line > text && line[-1] != '\n')
        line--;
    assert_int_equal(sscanf(line, " %*f %% %*f s %lld", &calls), 1);
    return calls;
}

static void a_profile_has_every_op(void **state)
{
    (void)state;
    for (int gpus = 0; gpus <= 2; gpus += 2) {
        char hex[2][65];
        for (int with = 0; with < 2; with++) {
            fitted f;
            char *text = NULL;
            int rows;
            open_fitted(&f, gpus, gpus ? 1 : 2, false);
            ls_fit_options o = options(&f, ls_mirrored());
            o.profile = with;
            OK(ls_fit_with(f.model, f.data, o));
            OK(ls_model_weights_sha256(f.model, hex[with]));
            OK(ls_explain_profile(f.model, &text));
            if (with) {
                double shares = all_shares(text, &rows);
                machine_has(text, "profile: ");
                machine_has(text, gpus ? "matmul and " : "matmul: ");
                machine_has(text, gpus ? "more: gpu:1" : "apply: ");
                machine_has(text, "joins, and exchange");
                if (!gpus) /* one for each of six variables */
                    assert_int_equal(calls_of(text, "apply: "), 6 * 2 * ((SAMPLES + BATCH - 1) / BATCH));
                assert_true(rows >= 4 && rows <= 21 && shares > 98 && shares < 102);
            } else {
                assert_string_equal(text, "");
            }
            free(text);
            /* The next fit without it has none. */
            o.profile = false;
            OK(ls_fit_with(f.model, f.data, o));
            OK(ls_explain_profile(f.model, &text));
            assert_string_equal(text, "");
            free(text);
            close_fitted(&f);
        }
        assert_string_equal(hex[0], hex[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_is_on_its_row),
        cmocka_unit_test(lanes_are_where_the_strategy_says),
        cmocka_unit_test(copies_are_listed_with_their_places),
        cmocka_unit_test(every_way_to_join_is_there),
        cmocka_unit_test(some_steps_alone),
        cmocka_unit_test(whatever_ends_it_the_file_is_written),
        cmocka_unit_test(a_file_that_cannot_be_written),
        cmocka_unit_test(bits_do_not_depend_on_it),
        cmocka_unit_test(missing_room_is_reported),
        cmocka_unit_test(times_of_devices_add_up),
        cmocka_unit_test(a_profile_has_every_op),
        cmocka_unit_test(the_log_has_them),
        cmocka_unit_test(stages_report_their_bubble),
        cmocka_unit_test(devices_that_do_not_help_are_reported),
    };
    return cmocka_run_group_tests(tests, make_data, NULL);
}
