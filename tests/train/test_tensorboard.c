/* Event files: their checksums and framing, read again by a small reader of our own; tags and steps
 * are Keras's; full disks and runs that go on leave whole files. (test_tensorboard_package.sh has
 * the real package read them.) */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "folder.h"
#include "lockstep.h"
#include "machine.h"
#include "nn/model.h"
#include "train/callback/callback.h"
#include "train/checkpoint/state_list.h"
#include "train/fit/evaluate.h"

static float x[10];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        x[i] = (float)(i % 4) / 4;
    return make_folder(state);
}

static void checksums_are_castagnoli_s(void **state)
{
    (void)state;
    unsigned char bytes[32] = { 0 };
    assert_true(ls_crc32c("", 0) == 0);
    assert_true(ls_crc32c("123456789", 9) == 0xE3069283U);
    assert_true(ls_crc32c(bytes, 32) == 0x8A9136AAU); /* these four: RFC 3720, B.4 */
    memset(bytes, 255, 32);
    assert_true(ls_crc32c(bytes, 32) == 0x62A8AB43U);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_true(ls_crc32c(bytes, 32) == 0x46DD794EU);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)(31 - i);
    assert_true(ls_crc32c(bytes, 32) == 0x113FDB5CU);
    assert_true(ls_crc32c_masked("123456789", 9) == (0x2507C60DU + 0xA282EAD8U)); /* rotated by 15, and added */
}

/* ---- A small reader ---- */

typedef struct bytes {
    const unsigned char *at, *end;
} bytes;

static uint64_t fixed(bytes *b, int count)
{
    uint64_t value = 0;
    assert_true(b->end - b->at >= count);
    for (int i = 0; i < count; i++)
        value |= (uint64_t)b->at[i] << (8 * i);
    b->at += count;
    return value;
}

static uint64_t varint(bytes *b)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint64_t byte = fixed(b, 1);
        value |= (byte & 127) << shift;
        if (byte < 128)
            return value;
    }
    fail_msg("a number of more than 64 bits");
    return 0;
}

static bytes part(bytes *b)
{
    uint64_t count = varint(b);
    assert_true(count <= (uint64_t)(b->end - b->at));
    bytes found = { b->at, b->at + count };
    b->at += count;
    return found;
}

static double number(bytes *b)
{
    uint64_t raw = fixed(b, 8);
    double value;
    memcpy(&value, &raw, 8);
    return value;
}

/* Checks the buckets, and returns [min, max, number, sum, sum of squares, buckets]. */
static json_t *read_histogram(bytes h)
{
    double head[5], counted = 0, before = -INFINITY;
    for (uint64_t i = 0; i < 5; i++) {
        assert_true(varint(&h) == ((i + 1) << 3 | 1));
        head[i] = number(&h);
    }
    assert_true(varint(&h) == (6 << 3 | 2));
    bytes limits = part(&h);
    assert_true(varint(&h) == (7 << 3 | 2));
    bytes counts = part(&h);
    ptrdiff_t buckets = (limits.end - limits.at) / 8;
    assert_true(h.at == h.end && buckets == (counts.end - counts.at) / 8);
    while (limits.at < limits.end) {
        double limit = number(&limits);
        assert_true(limit > before);
        before = limit;
        counted += number(&counts);
    }
    assert_true(before == head[1] && counted == head[2]);
    return json_pack("[f,f,f,f,f,i]", head[0], head[1], head[2], head[3], head[4], (int)buckets);
}

/* {"tag": {"steps": [..], "values": [..]}, ...} of one Event; anything that we do not write
 * fails. */
static void read_event(bytes event, bool first, json_t *out)
{
    int64_t step = 0;
    double time = 0;
    bool versioned = false;
    while (event.at < event.end) {
        uint64_t key = varint(&event);
        if (key == (1 << 3 | 1)) {
            uint64_t raw = fixed(&event, 8);
            memcpy(&time, &raw, 8);
        } else if (key == (2 << 3)) {
            step = (int64_t)varint(&event);
        } else if (key == (3 << 3 | 2)) {
            bytes text = part(&event);
            assert_memory_equal(text.at, "brain.Event:2", (size_t)(text.end - text.at));
            versioned = true;
        } else {
            assert_true(key == (5 << 3 | 2));
            bytes summary = part(&event);
            assert_true(varint(&summary) == (1 << 3 | 2));
            bytes item = part(&summary);
            assert_true(summary.at == summary.end && varint(&item) == (1 << 3 | 2));
            bytes tag = part(&item);
            char name[128];
            json_t *value;
            uint64_t kind = varint(&item);
            if (kind == (5 << 3 | 2)) {
                value = read_histogram(part(&item));
            } else {
                assert_true(kind == (2 << 3 | 5));
                uint32_t raw = (uint32_t)fixed(&item, 4);
                float single;
                memcpy(&single, &raw, 4);
                value = json_real((double)single);
            }
            assert_true(item.at == item.end);
            snprintf(name, sizeof(name), "%.*s", (int)(tag.end - tag.at), (const char *)tag.at);
            if (!json_object_get(out, name))
                json_object_set_new(out, name, json_pack("{s:[], s:[]}", "steps", "values"));
            json_t *entry = json_object_get(out, name);
            json_array_append_new(json_object_get(entry, "steps"), json_integer(step));
            json_array_append_new(json_object_get(entry, "values"), value);
        }
    }
    assert_true(versioned == first);
    assert_true(time > 1.6e9 && time < 1e11);
}

/* Every byte of the file belongs to a record whose checksums are right. */
static void read_file(const char *path, json_t *out)
{
    char *data = NULL;
    size_t count = 0;
    OK(ls_file_read(path, 1 << 24, &data, &count));
    bytes b = { (unsigned char *)data, (unsigned char *)data + count };
    for (bool first = true; b.at < b.end; first = false) {
        const unsigned char *start = b.at;
        uint64_t length = fixed(&b, 8);
        assert_true(fixed(&b, 4) == ls_crc32c_masked(start, 8));
        assert_true(length <= (uint64_t)(b.end - b.at));
        bytes event = { b.at, b.at + length };
        b.at += length;
        assert_true(fixed(&b, 4) == ls_crc32c_masked(event.at, length));
        read_event(event, first, out);
    }
    free(data);
}

/* All event files of a folder, one after the other; counts them. */
static json_t *read_folder(const char *run, const char *name, int *files)
{
    char path[512];
    json_t *out = json_object();
    snprintf(path, sizeof(path), "%s/%s/%s", folder, run, name);
    DIR *list = opendir(path);
    *files = 0;
    for (struct dirent *entry; list && (entry = readdir(list));) {
        if (entry->d_name[0] == '.')
            continue;
        assert_true(strncmp(entry->d_name, "events.out.tfevents.", 20) == 0);
        snprintf(path, sizeof(path), "%s/%s/%s/%s", folder, run, name, entry->d_name);
        read_file(path, out);
        ++*files;
    }
    if (list)
        closedir(list);
    return out;
}

/* ---- Training ---- */

static ls_model *make_model(ls_context *ctx)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(1), ls_dense(1)));
    OK(ls_compile(model, .optimizer = ls_sgd(0.125), .loss = ls_mean_squared_error(),
                  .metrics = ls_metrics(ls_accuracy())));
    return model;
}

static ls_dataset *numbers(int64_t count)
{
    return ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(count, 1), x), ls_array_of(LS_F32, LS_SHAPE(count, 1), x),
                                 .keep = LS_KEEP_BORROWED);
}

/* Two epochs of three steps with validation; `more` is called after the log. */
static void fit(const char *run, int64_t every, ls_callback more, ls_log_sink sink, char *log, ls_history **history)
{
    char path[256];
    ls_context *ctx = NULL;
    OK(ls_context_open(&(ls_context_options){ .threads = 2, .log_sink = sink, .log_user = log }, &ctx));
    ls_model *model = make_model(ctx);
    ls_dataset *ten = numbers(10), *six = numbers(6);
    snprintf(path, sizeof(path), "%s/%s", folder, run);
    OK(ls_fit(model, ten, .epochs = 2, .batch_size = 4, .validation = six, .verbose = LS_VERBOSE_SILENT,
              .history = history, .callbacks = ls_callbacks(ls_tensorboard(path, .update_freq = every), more)));
    ls_dataset_destroy(ten);
    ls_dataset_destroy(six);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static json_t *steps_of(json_t *found)
{
    const char *tag;
    json_t *entry, *out = json_object();
    json_object_foreach(found, tag, entry) json_object_set(out, tag, json_object_get(entry, "steps"));
    return out;
}

static void tags_and_steps_are_keras_s(void **state)
{
    (void)state;
    size_t i;
    const json_t *c;
    json_t *reference = json_load_file("tests/reference/callbacks.json", 0, NULL);
    assert_non_null(reference);
    json_array_foreach(json_object_get(reference, "tensorboard"), i, c)
    {
        static const char *const parts[] = { "train", "validation" };
        const char *run = i ? "steps/of/it" : "epochs";
        fit(run, json_integer_value(json_object_get(c, "update_freq")), (ls_callback){ 0 }, NULL, NULL, NULL);
        for (int p = 0; p < 2; p++) {
            int files;
            json_t *read = read_folder(run, parts[p], &files), *found = steps_of(read);
            assert_int_equal(files, 1);
            char *text = json_dumps(found, JSON_SORT_KEYS);
            char *expected = json_dumps(json_object_get(json_object_get(c, "found"), parts[p]), JSON_SORT_KEYS);
            assert_string_equal(text, expected);
            free(text);
            free(expected);
            json_decref(found);
            json_decref(read);
        }
    }
    assert_true(i == 2);
    json_decref(reference);
}

static void values_are_those_of_the_history(void **state)
{
    (void)state;
    int files;
    ls_history *history = NULL;
    fit("values", 2, (ls_callback){ 0 }, NULL, NULL, &history);
    json_t *train = read_folder("values", "train", &files), *val = read_folder("values", "validation", &files);
    for (size_t epoch = 0; epoch < 2; epoch++) {
        double expected;
        OK(ls_history_value(history, "loss", epoch, &expected));
        const json_t *values = json_object_get(json_object_get(train, "epoch_loss"), "values");
        assert_true(json_real_value(json_array_get(values, epoch)) == (double)(float)expected);
        OK(ls_history_value(history, "val_loss", epoch, &expected));
        values = json_object_get(json_object_get(val, "epoch_loss"), "values");
        assert_true(json_real_value(json_array_get(values, epoch)) == (double)(float)expected);
        values = json_object_get(json_object_get(train, "epoch_learning_rate"), "values");
        assert_true(json_real_value(json_array_get(values, epoch)) == 0.125);
    }
    char *steps = json_dumps(json_object_get(json_object_get(train, "batch_loss"), "steps"), 0);
    assert_string_equal(steps, "[2, 4, 6]");
    free(steps);
    json_decref(train);
    json_decref(val);
    ls_history_destroy(history);
}

static void an_evaluation_is_logged_alone(void **state)
{
    (void)state;
    int files;
    char path[256];
    ls_context *ctx = NULL;
    OK(ls_context_open(NULL, &ctx));
    ls_model *model = make_model(ctx);
    ls_dataset *d = numbers(6);
    snprintf(path, sizeof(path), "%s/alone", folder);
    OK(ls_evaluate(model, d, .callbacks = ls_callbacks(ls_tensorboard(path))));
    json_t *found = read_folder("alone", "validation", &files), *none = read_folder("alone", "train", &files);
    assert_true(files == 0 && json_object_size(none) == 0);
    assert_true(json_object_size(found) == 2 && json_object_get(found, "evaluation_loss_vs_iterations"));
    json_decref(found);
    json_decref(none);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Going on ---- */

typedef struct saver {
    ls_snapshot *snapshot;
    int64_t at;
    bool loads;
} saver;

static ls_status save_and_stop(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    saver *s = user;
    if (s->loads || logs->step != s->at)
        return LS_OK;
    *stop = true;
    return ls_job_save(model->job, &s->snapshot);
}

static ls_status load_at_start(void *user, ls_model *model)
{
    saver *s = user;
    return s->loads ? ls_job_load(model->job, s->snapshot) : LS_OK;
}

/* Events written after the state that a run continues from are not there twice. */
static void a_resumed_run_has_one_log(void **state)
{
    (void)state;
    int files;
    fit("whole", 1, (ls_callback){ 0 }, NULL, NULL, NULL);
    for (int64_t at = 1; at <= 6; at++) {
        char run[32];
        snprintf(run, sizeof(run), "part-%d", (int)at);
        saver s = { .at = at };
        ls_callback saves = { .user = &s, .on_train_begin = load_at_start, .on_batch_end = save_and_stop };
        fit(run, 1, saves, NULL, NULL, NULL);
        s.loads = true;
        fit(run, 1, saves, NULL, NULL, NULL);
        json_t *expected = read_folder("whole", "train", &files), *found = read_folder(run, "train", &files);
        assert_int_equal(files, 1);
        assert_true(json_equal(expected, found));
        json_decref(expected);
        json_decref(found);
        ls_snapshot_destroy(s.snapshot);
    }
}

static void a_damaged_state_is_refused(void **state)
{
    (void)state;
    char path[256];
    ls_context *ctx = NULL;
    OK(ls_context_open(NULL, &ctx));
    ls_model *model = make_model(ctx);
    ls_callback_list list;
    snprintf(path, sizeof(path), "%s/state", folder);
    const ls_callback spec = ls_tensorboard(path);
    OK(ls_callbacks_open(&list, &spec, 1, &(ls_callback_facts){ .job = model->job, .call = "test", .trains = true }));
    void *saved = NULL;
    size_t count = 0;
    OK(list.all[0].save(list.all[0].user, &saved, &count));
    OK(list.all[0].load(list.all[0].user, saved, count));
    memset((char *)saved + 1, 'a', count - 1); /* a name without an end, a length below zero */
    assert_int_equal(list.all[0].load(list.all[0].user, saved, count), LS_ERR_DATA);
    assert_int_equal(list.all[0].load(list.all[0].user, saved, count - 1), LS_ERR_INVALID);
    memset((char *)saved + 1, 0, count - 1);
    strcpy((char *)saved + 9, "../x"); /* after the empty name and the length */
    assert_int_equal(list.all[0].load(list.all[0].user, saved, count), LS_ERR_DATA);
    free(saved);
    OK(ls_callbacks_close(&list, LS_OK));
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Disks ---- */

static void keep_line(void *user, ls_log_level level, const char *line)
{
    char *text = user;
    if (level == LS_LOG_WARNING)
        snprintf(text + strlen(text), 4096 - strlen(text), "%s\n", line);
}

static ls_status limit_files(void *user, ls_model *model, const ls_logs *logs)
{
    (void)user, (void)model;
    if (logs->step == 2) /* there are 240 bytes: the next event is cut in its middle */
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){ .rlim_cur = 280, .rlim_max = RLIM_INFINITY });
    return LS_OK;
}

/* A file that cannot grow: whole events, one warning a file, and training goes on. */
static void a_full_disk_leaves_whole_events(void **state)
{
    (void)state;
    int files;
    char log[4096] = "";
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    fit("full", 1, (ls_callback){ .on_batch_begin = limit_files }, keep_line, log, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, old);
    machine_has(log, "tensorboard: cannot write");
    assert_in_range(machine_count(log, "\n"), 1, 2);
    json_t *found = read_folder("full", "train", &files);
    assert_int_equal(json_array_size(json_object_get(json_object_get(found, "batch_loss"), "steps")), 2);
    json_decref(found);
}

static void a_folder_that_cannot_be_made_is_reported_first(void **state)
{
    (void)state;
    char path[256];
    ls_context *ctx = NULL;
    OK(ls_context_open(NULL, &ctx));
    ls_model *model = make_model(ctx);
    ls_dataset *d = numbers(6);
    snprintf(path, sizeof(path), "%s/file", folder);
    OK(ls_file_write(path, "x", 1));
    FAILS(ls_fit(model, d, .verbose = LS_VERBOSE_SILENT, .callbacks = ls_callbacks(ls_tensorboard(path))), LS_ERR_IO,
          "tensorboard", "a file has this name");
    FAILS(ls_fit(model, d, .verbose = LS_VERBOSE_SILENT,
                 .callbacks = ls_callbacks(ls_tensorboard(path, .update_freq = -1))),
          LS_ERR_INVALID, "update_freq must not be negative, got -1");
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Histograms ---- */

static double of_histogram(json_t *found, const char *tag, size_t epoch, size_t which)
{
    json_t *values = json_object_get(json_object_get(found, tag), "values");
    return json_number_value(json_array_get(json_array_get(values, epoch), which));
}

/* A kernel w and a bias b of one number each: histograms have one bucket. The gradients are
 * those of the first step, 2 mean((w x + b - x) x) and 2 mean(w x + b - x), and the bits stay
 * the same. */
static void histograms_have_weights_and_gradients(void **state)
{
    (void)state;
    char path[256], hex[2][65];
    for (int with = 0; with < 2; with++) {
        ls_context *ctx = NULL;
        OK(ls_context_open(&(ls_context_options){ .threads = 2 }, &ctx));
        ls_model *model = make_model(ctx);
        ls_dataset *ten = numbers(10);
        float w = 0;
        double slope = 0, offset = 0;
        OK(ls_read(ls_model_variable(model, 0), &w, sizeof(w)));
        for (int i = 0; i < 4; i++) {
            slope += 2 * (double)(w * x[i] - x[i]) * (double)x[i] / 4;
            offset += 2 * (double)(w * x[i] - x[i]) / 4;
        }
        snprintf(path, sizeof(path), "%s/histograms-%d", folder, with);
        OK(ls_fit(model, ten, .epochs = 3, .batch_size = 4, .keep_order = true, .verbose = LS_VERBOSE_SILENT,
                  .callbacks = ls_callbacks(ls_tensorboard(path, .histogram_freq = with ? 2 : 0))));
        OK(ls_model_weights_sha256(model, hex[with]));
        OK(ls_read(ls_model_variable(model, 0), &w, sizeof(w)));
        int files;
        snprintf(path, sizeof(path), "histograms-%d", with);
        json_t *found = read_folder(path, "train", &files);
        assert_int_equal(files, 1);
        if (!with) {
            assert_null(json_object_get(found, "dense/kernel/histogram"));
        } else {
            static const char *const tags[] = { "dense/kernel/histogram", "dense/bias/histogram",
                                                "dense/kernel/gradient/histogram", "dense/bias/gradient/histogram" };
            for (int i = 0; i < 4; i++) {
                json_t *steps = json_object_get(json_object_get(found, tags[i]), "steps"),
                       *wanted = json_pack("[i,i]", 0, 2);
                assert_true(json_equal(steps, wanted));
                json_decref(wanted);
                assert_true(of_histogram(found, tags[i], 1, 2) == 1 && of_histogram(found, tags[i], 1, 5) == 1);
            }
            assert_true(of_histogram(found, tags[0], 1, 0) == (double)w);
            assert_true(fabs(of_histogram(found, tags[2], 0, 3) - slope) <= 1e-6);
            assert_true(fabs(of_histogram(found, tags[3], 0, 3) - offset) <= 1e-6);
        }
        json_decref(found);
        ls_dataset_destroy(ten);
        ls_model_destroy(model);
        ls_context_close(ctx);
    }
    assert_string_equal(hex[0], hex[1]);
}

static void a_histogram_has_thirty_buckets(void **state)
{
    (void)state;
    char path[256];
    float data[8] = { 0, 0.25F, 0.5F, 1, 1, 0.5F, 0.25F, 0 };
    ls_context *ctx = NULL;
    ls_model *model = NULL;
    OK(ls_context_open(NULL, &ctx));
    OK(ls_sequential(ctx, "m", &model, ls_input(4), ls_dense(7), ls_dense(4)));
    OK(ls_compile(model, .optimizer = ls_sgd(0.125), .loss = ls_mean_squared_error()));
    ls_array rows = ls_array_of(LS_F32, LS_SHAPE(2, 4), data);
    ls_dataset *two = ls_from_tensor_slices(rows, rows);
    snprintf(path, sizeof(path), "%s/buckets", folder);
    OK(ls_fit(model, two, .batch_size = 2, .verbose = LS_VERBOSE_SILENT,
              .callbacks = ls_callbacks(ls_tensorboard(path, .histogram_freq = 1))));
    int files;
    float kernel[28];
    double sum = 0;
    OK(ls_read(ls_model_variable(model, 0), kernel, sizeof(kernel)));
    for (int i = 0; i < 28; i++)
        sum += (double)kernel[i];
    json_t *found = read_folder("buckets", "train", &files);
    assert_true(of_histogram(found, "dense/kernel/histogram", 0, 2) == 28);
    assert_true(of_histogram(found, "dense/kernel/histogram", 0, 5) == 30);
    assert_true(of_histogram(found, "dense/kernel/histogram", 0, 3) == sum);
    json_decref(found);
    FAILS(ls_fit(model, two, .batch_size = 2, .verbose = LS_VERBOSE_SILENT,
                 .callbacks = ls_callbacks(ls_tensorboard(path, .histogram_freq = -1))),
          LS_ERR_INVALID, "histogram_freq must not be negative", "-1");
    ls_dataset_destroy(two);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histograms_have_weights_and_gradients),
        cmocka_unit_test(a_histogram_has_thirty_buckets),
        cmocka_unit_test(checksums_are_castagnoli_s),
        cmocka_unit_test(tags_and_steps_are_keras_s),
        cmocka_unit_test(values_are_those_of_the_history),
        cmocka_unit_test(an_evaluation_is_logged_alone),
        cmocka_unit_test(a_resumed_run_has_one_log),
        cmocka_unit_test(a_damaged_state_is_refused),
        cmocka_unit_test(a_full_disk_leaves_whole_events),
        cmocka_unit_test(a_folder_that_cannot_be_made_is_reported_first),
    };
    return cmocka_run_group_tests(tests, set_up, remove_folder);
}
