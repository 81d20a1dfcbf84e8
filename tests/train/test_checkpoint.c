/* Checkpoints: a checkpoint has the whole state of a fit, so that a run that continues from any of
 * them, on any devices, has the bits of the uninterrupted run; what is not whole, or of another
 * job, is refused by name. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "folder.h"
#include "lockstep.h"
#include "machine.h"
#include "nn/model.h"
#include "samples.h"
#include "train/checkpoint/checkpoint.h"

#define SAMPLES 90
#define SIDE    5
#define CLASSES 4
#define STEPS   64

static float pixels[SAMPLES * SIDE * SIDE];
static int32_t labels[SAMPLES];

static ls_dataset *images(int first, int count)
{
    return ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(count, SIDE, SIDE, 1), pixels + first * SIDE * SIDE),
                                 ls_array_of(LS_I32, LS_SHAPE(count), labels + first), .keep = LS_KEEP_BORROWED);
}

/* ---- Folders ---- */

static bool exists(const char *name)
{
    struct stat info;
    return stat(in_folder(name), &info) == 0;
}

/* Names in the folder that are no checkpoints and no links. */
static int leftovers(void)
{
    int count = 0;
    DIR *list = opendir(folder);
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list));)
        count += strncmp(entry->d_name, ".step-", 6) == 0 || strstr(entry->d_name, ".old") != NULL;
    closedir(list);
    return count;
}

static size_t checkpoints(int64_t *newest)
{
    ls_named_checkpoint *list;
    size_t count;
    OK(ls_checkpoints_list(folder, &list, &count));
    if (newest)
        *newest = count ? list[0].step : -1;
    free(list);
    return count;
}

/* ---- A run with everything: batch norm, dropout, a regularizer, a callback with state ---- */

static char log_text[16384];

static void sink(void *user, ls_log_level level, const char *line)
{
    (void)user, (void)level;
    size_t length = strlen(log_text);
    snprintf(log_text + length, sizeof(log_text) - length, "%s\n", line);
}

static ls_context *open_context(int devices)
{
    ls_context *ctx = NULL;
    log_text[0] = '\0';
    OK(ls_context_open(&(ls_context_options){ .threads = devices < 2 ? 2 : devices,
                                              .cpu_devices = devices,
                                              .log_level = LS_LOG_WARNING,
                                              .log_sink = sink },
                       &ctx));
    return ctx;
}

typedef struct design {
    ls_optimizer optimizer;
    double rate; /* dropout rate */
    int units;
    ls_activation activation;
    const char *name;
    bool more_metrics;
} design;

static ls_model *make_model(ls_context *ctx, const design *d)
{
    ls_model *model = NULL;
    ls_metrics_list metrics = d->more_metrics ? ls_metrics(ls_accuracy(), ls_top_k(2)) : ls_metrics(ls_accuracy());
    OK(ls_sequential(ctx, d->name ? d->name : "m", &model, ls_input(SIDE, SIDE, 1),
                     ls_conv2d(4, 3, .activation = d->activation ? d->activation : LS_RELU), ls_batch_normalization(),
                     ls_flatten(), ls_dropout(d->rate ? d->rate : 0.5),
                     ls_dense(d->units ? d->units : CLASSES, .kernel_regularizer = { .l2 = 0.01 })));
    OK(ls_compile(model, .optimizer = d->optimizer, .loss = ls_sparse_categorical_crossentropy(.from_logits = true),
                  .metrics = metrics));
    return model;
}

typedef struct watcher {
    int64_t seen;
    bool sets_rate, large; /* large: it keeps more than fits into JSON */
    bool saves;            /* every step is saved by hand */
    int64_t stop_at;       /* a step; 0: never */
    int64_t fail_at;       /* a step; 0: never */
    volatile int stop;
    char hash[STEPS][65];
    double loss[STEPS], val_loss[STEPS]; /* mean of the epoch so far; by epoch */
} watcher;

static ls_status begins(void *user, ls_model *model)
{
    (void)model;
    ((watcher *)user)->seen = 0; /* as callbacks do; the checkpoint must come after it */
    return LS_OK;
}

static ls_status watch(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    watcher *w = user;
    double rate;
    (void)stop;
    assert_true(logs->step > 0 && logs->step < STEPS);
    LS_TRY(ls_learning_rate(model, &rate));
    if (++w->seen % 3 == 0 && w->sets_rate)
        LS_TRY(ls_set_learning_rate(model, rate * 0.7));
    w->loss[logs->step] = logs->values[0];
    LS_TRY(ls_model_state_sha256(model, w->hash[logs->step]));
    if (logs->step == w->stop_at)
        w->stop = 1;
    if (logs->step == w->fail_at)
        return ls_fail(LS_ERR_DEVICE, "it fails here");
    return w->saves ? ls_checkpoint_save(model, folder) : LS_OK;
}

static ls_status epoch_ends(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    (void)model, (void)stop;
    for (size_t i = 0; i < logs->count; i++)
        if (strcmp(logs->names[i], "val_loss") == 0)
            ((watcher *)user)->val_loss[logs->epoch] = logs->values[i];
    return LS_OK;
}

#define LARGE 10000

static ls_status save_watcher(void *user, void **bytes, size_t *count)
{
    const watcher *w = user;
    *count = w->large ? LARGE : sizeof(w->seen);
    *bytes = calloc(1, *count);
    memcpy(*bytes, &w->seen, sizeof(w->seen));
    return LS_OK;
}

static ls_status load_watcher(void *user, const void *bytes, size_t count)
{
    watcher *w = user;
    assert_true(count == (w->large ? LARGE : sizeof(w->seen)));
    memcpy(&w->seen, bytes, sizeof(w->seen));
    return LS_OK;
}

typedef struct way {
    design design;
    bool sets_rate, streamed, large;
    int64_t steps_per_epoch;
    int epochs;
    int devices;
    bool one_device;
    ls_fit_options options; /* other options */
} way;

/* 70 samples in batches of 20: 4 steps an epoch; 20 are for validation. */
static ls_fit_options options_of(const way *at, watcher *w, ls_dataset *validation, ls_callback *callback)
{
    ls_fit_options o = at->options;
    *callback = (ls_callback){ .user = w,
                               .on_train_begin = begins,
                               .on_batch_end = watch,
                               .on_epoch_end = epoch_ends,
                               .save = save_watcher,
                               .load = load_watcher };
    w->sets_rate = at->sets_rate;
    w->large = at->large;
    o.epochs = at->epochs ? at->epochs : 3;
    o.batch_size = o.batch_size ? o.batch_size : 20;
    o.lanes = o.lanes ? o.lanes : 5;
    o.seed = o.seed ? o.seed : 3;
    o.verbose = LS_VERBOSE_SILENT;
    o.steps_per_epoch = at->steps_per_epoch;
    o.validation = validation;
    o.callbacks = callback;
    o.callback_count = 1;
    o.stop = &w->stop;
    o.strategy = at->one_device ? ls_one_device() : ls_mirrored();
    return o;
}

static ls_status fit(ls_model *model, const way *at, watcher *w)
{
    ls_dataset *d = images(0, 70), *validation = images(70, 20);
    ls_callback callback;
    ls_fit_options o = options_of(at, w, validation, &callback);
    if (at->streamed) /* elements of an iterator, not rows */
        d = ls_batch(ls_prefetch(ls_shuffle(d, 50, 9), 2), 20, false);
    ls_status status = ls_fit_with(model, d, o);
    ls_dataset_destroy(d);
    ls_dataset_destroy(validation);
    return status;
}

/* One run in a context and a model of its own; *history may be NULL. */
static ls_status run(const way *at, watcher *w, ls_history **history)
{
    ls_context *ctx = open_context(at->devices ? at->devices : 2);
    ls_model *model = make_model(ctx, &at->design);
    way with = *at;
    with.options.history = history;
    ls_status status = fit(model, &with, w);
    ls_model_destroy(model);
    ls_context_close(ctx);
    return status;
}

static void same_histories(const ls_history *a, const ls_history *b)
{
    assert_true(ls_history_epochs(a) == ls_history_epochs(b) && ls_history_epochs(a) > 0);
    assert_true(ls_history_count(a) == ls_history_count(b) && ls_history_count(a) >= 4);
    for (size_t e = 0; e < ls_history_epochs(a); e++)
        for (size_t i = 0; i < ls_history_count(a); i++) {
            double x, y;
            assert_string_equal(ls_history_name(a, i), ls_history_name(b, i));
            OK(ls_history_value(a, ls_history_name(a, i), e, &x));
            OK(ls_history_value(b, ls_history_name(b, i), e, &y));
            assert_true(x == y); /* no NaN either */
        }
}

/* Steps after `from` up to `last` are those of the whole run, and no step before was made again. */
static void same_steps(const watcher *whole, const watcher *resumed, int64_t from, int64_t last)
{
    for (int64_t s = 1; s <= from; s++)
        assert_true(resumed->hash[s][0] == 0);
    for (int64_t s = from + 1; s <= last; s++) {
        assert_true(whole->hash[s][0] != 0);
        assert_string_equal(whole->hash[s], resumed->hash[s]);
        assert_true(whole->loss[s] == resumed->loss[s]);
    }
}

/* Saves every step by hand, on 4 devices; goes on from each, on 1, 2 and 3 devices. */
static void resume_from_every_step(const way *at)
{
    static watcher whole, again;
    ls_history *history = NULL, *found = NULL;
    way with = *at;
    whole = (watcher){ .saves = true };
    with.devices = 4;
    OK(run(&with, &whole, &history));
    int64_t last = 3 * (at->steps_per_epoch ? at->steps_per_epoch : 4);
    assert_true(checkpoints(NULL) == (size_t)last);
    for (int64_t s = 1; s < last; s++) {
        char from[160];
        snprintf(from, sizeof(from), "%s/step-%08" PRId64, folder, s);
        with.options.resume = from;
        with.devices = 1 + (int)(s % 3);
        with.one_device = s % 4 == 3;
        again = (watcher){ .saves = false };
        OK(run(&with, &again, &found));
        same_steps(&whole, &again, s, last);
        same_histories(history, found);
        assert_true(whole.val_loss[2] == again.val_loss[2]);
        ls_history_destroy(found);
        found = NULL;
    }
    ls_history_destroy(history);
    assert_int_equal(remove_tree(folder), 0);
}

static void a_run_resumes_from_any_step_on_any_devices(void **state)
{
    (void)state;
    const way ways[] = {
        { .design = { .optimizer = ls_adam() } },
        { .design = { .optimizer = ls_sgd(.momentum = 0.9) }, .sets_rate = true },
        { .design = { .optimizer = ls_adam(.gradient_accumulation_steps = 3, .global_clipnorm = 0.3) }, .large = true },
        { .design = { .optimizer = ls_rmsprop(.schedule = ls_exponential_decay(0.01, 4, 0.5, false)) },
          .steps_per_epoch = 5 },
        { .design = { .optimizer = ls_adam() }, .streamed = true },
    };
    for (size_t i = 0; i < LENGTH(ways); i++)
        resume_from_every_step(&ways[i]);
}

/* Equal state gives equal files, byte for byte: fixed order, no dates, nothing of devices. */
static void files_are_canonical(void **state)
{
    (void)state;
    static watcher w;
    const char *const names[] = { "model.safetensors", "optimizer.safetensors", "state.json" };
    char *data[3] = { NULL };
    size_t bytes[3] = { 0 };
    for (int devices = 1; devices <= 3; devices += 2) {
        way at = { .design = { .optimizer = ls_adam() }, .devices = devices, .epochs = 2 };
        w = (watcher){ .saves = true };
        OK(run(&at, &w, NULL));
        for (int i = 0; i < 3; i++) {
            char path[256], *now = NULL;
            size_t count = 0;
            snprintf(path, sizeof(path), "%s/step-00000006/%s", folder, names[i]);
            OK(ls_file_read(path, 1 << 20, &now, &count));
            assert_true(devices == 1 || (count == bytes[i] && memcmp(now, data[i], count) == 0));
            free(data[i]);
            data[i] = now;
            bytes[i] = count;
        }
        assert_int_equal(remove_tree(folder), 0);
    }
    for (int i = 0; i < 3; i++)
        free(data[i]);
}

/* ---- Saved by fit ---- */

/* Stopped in mid-epoch, gone on from what fit saved, twice; and more epochs than were planned at
 * first. */
static void fit_saves_and_resumes(void **state)
{
    (void)state;
    static watcher whole, parts;
    ls_history *history = NULL, *found = NULL;
    way at = { .design = { .optimizer = ls_adam() }, .sets_rate = true };
    whole = (watcher){ .seen = 0 };
    OK(run(&at, &whole, &history));
    at.options.checkpoint = folder;
    at.options.save_every = "1000";
    at.options.resume = "auto";
    const int64_t stops[] = { 3, 4, 9, 0 };
    int64_t from = 0;
    for (size_t i = 0; i < LENGTH(stops); i++) {
        at.epochs = i == 0 ? 1 : 3;
        parts = (watcher){ .stop_at = stops[i] };
        ls_history_destroy(found);
        found = NULL;
        OK(run(&at, &parts, &found));
        machine_has(log_text, i == 0 ? "yet: training starts at step 1" : "continuing from '");
        same_steps(&whole, &parts, from, stops[i] ? stops[i] : 12);
        from = stops[i];
    }
    same_histories(history, found);
    assert_int_equal(leftovers(), 0);
    parts = (watcher){ .seen = 0 };
    ls_history_destroy(found);
    found = NULL;
    OK(run(&at, &parts, &found)); /* all epochs are done: no step is made, the results are there */
    same_steps(&whole, &parts, 12, 12);
    same_histories(history, found);
    ls_history_destroy(found);
    ls_history_destroy(history);
}

/* A run that fails is also saved, with the state of callbacks. */
static void a_run_that_fails_can_resume(void **state)
{
    (void)state;
    static watcher whole, parts;
    way at = { .design = { .optimizer = ls_adam() }, .sets_rate = true };
    whole = (watcher){ .seen = 0 };
    OK(run(&at, &whole, NULL));
    at.options.checkpoint = folder;
    at.options.resume = "auto";
    at.options.save_every = "1h";
    parts = (watcher){ .fail_at = 7 };
    FAILS(run(&at, &parts, NULL), LS_ERR_DEVICE, "it fails here");
    parts = (watcher){ .fail_at = 0 };
    OK(run(&at, &parts, NULL));
    same_steps(&whole, &parts, 7, 12);
}

static void stop_in_validation(void **state)
{
    (void)state;
    static watcher whole, parts;
    ls_history *history = NULL, *found = NULL;
    way at = { .design = { .optimizer = ls_adam() } };
    whole = (watcher){ .seen = 0 };
    OK(run(&at, &whole, &history));
    at.options.checkpoint = folder;
    at.options.resume = "auto";
    parts = (watcher){ .stop_at = 8 }; /* the last step of an epoch: its validation is made by who goes on */
    OK(run(&at, &parts, NULL));
    parts = (watcher){ .stop_at = 0 };
    OK(run(&at, &parts, &found));
    same_steps(&whole, &parts, 8, 12);
    same_histories(history, found);
    ls_history_destroy(found);
    ls_history_destroy(history);
}

static json_t *state_of(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s/state.json", folder, name);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

static int64_t step_of(const char *name)
{
    json_t *root = state_of(name);
    int64_t step = json_integer_value(json_object_get(root, "step"));
    json_decref(root);
    return step;
}

/* The newest ones stay, and the best. */
static void old_ones_go_the_best_stays(void **state)
{
    (void)state;
    static watcher w;
    way at = { .design = { .optimizer = ls_sgd(.learning_rate = 0.5) }, .epochs = 6 };
    at.options.checkpoint = folder;
    at.options.keep = 1;
    at.options.monitor = "val_accuracy";
    w = (watcher){ .seen = 0 };
    ls_history *history = NULL;
    OK(run(&at, &w, &history));
    double best = -1, value;
    int64_t step = 0;
    for (size_t e = 0; e < 6; e++) {
        OK(ls_history_value(history, "val_accuracy", e, &value));
        if (value > best) {
            best = value;
            step = 4 * (int64_t)(e + 1);
        }
    }
    ls_history_destroy(history);
    assert_int_equal(step_of("best"), step);
    assert_int_equal(step_of("last"), 24);
    assert_int_equal(checkpoints(NULL), step == 24 ? 1 : 2);
    json_t *root = state_of("last"), *about = json_object_get(root, "best");
    assert_true(json_number_value(json_object_get(about, "value")) == best);
    assert_true(json_integer_value(json_object_get(about, "step")) == step);
    json_decref(root);
    assert_int_equal(leftovers(), 0);
}

static void all_may_stay(void **state)
{
    (void)state;
    static watcher w;
    way at = { .design = { .optimizer = ls_adam() } };
    at.options.checkpoint = folder;
    at.options.keep = LS_KEEP_ALL;
    w = (watcher){ .seen = 0 };
    volatile int save = 0; /* saved where it changes: as SIGUSR1 does */
    at.options.save = &save;
    at.options.save_every = "2epochs";
    OK(run(&at, &w, NULL));
    assert_true(exists("step-00000008") && exists("step-00000012"));
}

/* ---- Another job ---- */

static void refused(const way *at, const char *a, const char *b)
{
    static watcher w;
    w = (watcher){ .seen = 0 };
    ls_status status = run(at, &w, NULL);
    if (status != LS_ERR_INVALID || !strstr(ls_last_error(), a) || !strstr(ls_last_error(), b))
        fail_msg("%s: %s", ls_status_name(status), ls_last_error());
    assert_true(w.hash[5][0] == 0);
}

static void what_differs_is_named(void **state)
{
    (void)state;
    static watcher w;
    const way first = { .design = { .optimizer = ls_adam() }, .epochs = 1 };
    way at = first;
    at.options.checkpoint = folder;
    w = (watcher){ .seen = 0 };
    OK(run(&at, &w, NULL));
    at = first;
    at.epochs = 2;
    at.options.resume = folder;
    way other = at;
    other.options.batch_size = 21;
    refused(&other, "data/batch_size is 21 here, but 20 in the checkpoint", "step-00000004");
    other = at;
    other.options.seed = 8;
    refused(&other, "data/seed is \"8\" here, but \"3\" in the checkpoint", "");
    other = at;
    other.options.keep_order = true;
    refused(&other, "shuffle is false", "data/sha256");
    other = at;
    other.steps_per_epoch = 3;
    refused(&other, "steps_per_epoch is 3 here, but 0 in the checkpoint", "");
    other = at;
    other.design.optimizer = ls_adam(.learning_rate = 0.01);
    refused(&other, "optimizer/learning_rate is 0.01", "here, but 0");
    other = at;
    other.design.optimizer = ls_sgd(.momentum = 0.9);
    refused(&other, "optimizer is \"sgd\" here, but \"adam\" in the checkpoint", "");
    other = at;
    other.design.optimizer = ls_adam(.schedule = ls_exponential_decay(0.01, 4, 0.5, false));
    refused(&other, "schedule/kind", "schedule/decay is 0.5");
    other = at;
    other.design.rate = 0.25;
    refused(&other, "layers_and_loss_sha256", "");
    other = at;
    other.design.activation = LS_TANH;
    refused(&other, "layers_and_loss_sha256", "");
    other = at;
    other.design.units = 7;
    refused(&other, "\"dense/kernel\" is float32 (36, 7) here, but float32 (36, 4) in the checkpoint", "");
    other = at;
    other.design.more_metrics = true;
    refused(&other, "results is", "");
    other = at;
    other.design.name = "other";
    refused(&other, "model is \"other\" here, but \"m\" in the checkpoint", "");
    pixels[3]++; /* in a sample that the fingerprint covers */
    refused(&at, "data/sha256 is", "");
    pixels[3]--;
    OK(run(&at, &w, NULL)); /* nothing differs */
}

static void other_lanes_must_be_allowed(void **state)
{
    (void)state;
    static watcher w;
    way at = { .design = { .optimizer = ls_adam() }, .epochs = 1 };
    at.options.checkpoint = folder;
    w = (watcher){ .seen = 0 };
    OK(run(&at, &w, NULL));
    at.epochs = 2;
    at.options.resume = "auto";
    at.options.lanes = 4;
    refused(&at, "lanes is 4 here, but 5 in the checkpoint", "allow_other_bits");
    at.options.allow_other_bits = true;
    OK(run(&at, &w, NULL));
    machine_has(log_text, "other bits than in the saved run, from step 4 on: lanes is 4");
    json_t *root = state_of("last");
    const char *told = json_string_value(json_array_get(json_object_get(root, "other_bits"), 0));
    assert_non_null(told);
    machine_has(told, "from step 4 on: lanes is 4 here, but 5 in the checkpoint");
    json_decref(root);
    at.epochs = 3; /* the same lanes again: nothing to allow, but it stays noted */
    at.options.allow_other_bits = false;
    OK(run(&at, &w, NULL));
    root = state_of("last");
    assert_int_equal(json_array_size(json_object_get(root, "other_bits")), 1);
    json_decref(root);
}

/* An earlier run's checkpoints are neither overwritten nor mistaken for this run's. */
static void an_earlier_run_s_folder_is_refused(void **state)
{
    (void)state;
    static watcher w;
    way at = { .design = { .optimizer = ls_adam() }, .epochs = 1 };
    at.options.checkpoint = folder;
    w = (watcher){ .seen = 0 };
    OK(run(&at, &w, NULL));
    ls_status status = run(&at, &w, NULL);
    FAILS(status, LS_ERR_STATE, "has checkpoints of an earlier run, up to step 4", "--resume");
    at.options.resume = in_folder("step-00000009");
    assert_int_equal(run(&at, &w, NULL), LS_ERR_NOT_FOUND);
    at.options.resume = NULL;
    at.options.save_every = "5 parsecs";
    FAILS(run(&at, &w, NULL), LS_ERR_INVALID, "save_every is \"5 parsecs\"", "10min");
    at.options.save_every = NULL;
    at.options.monitor = "val_beauty";
    FAILS(run(&at, &w, NULL), LS_ERR_NOT_FOUND, "val_beauty");
    at.options.monitor = NULL;
    at.options.checkpoint = "/dev/null/x";
    assert_int_equal(run(&at, &w, NULL), LS_ERR_IO);
    at.options.checkpoint = NULL;
    at.options.resume = "auto";
    assert_int_equal(run(&at, &w, NULL), LS_ERR_INVALID);
}

/* ---- By hand ---- */

static void restoring_by_hand(void **state)
{
    (void)state;
    char before[65], after[65], kept[65];
    int64_t steps = 0;
    ls_context *ctx = open_context(2);
    const design d = { .optimizer = ls_adam() }, other = { .optimizer = ls_sgd() };
    ls_model *model = make_model(ctx, &d), *fresh = make_model(ctx, &d), *wrong = make_model(ctx, &other);
    ls_array x = ls_array_of(LS_F32, LS_SHAPE(30, SIDE, SIDE, 1), pixels),
             y = ls_array_of(LS_I32, LS_SHAPE(30), labels);
    for (int i = 0; i < 3; i++)
        OK(ls_train_on_batch(model, x, y));
    FAILS(ls_checkpoint_restore(fresh, folder), LS_ERR_NOT_FOUND, "no checkpoint found in");
    OK(ls_checkpoint_save(model, folder));
    OK(ls_checkpoint_restore(fresh, folder));
    OK(ls_model_steps(fresh, &steps));
    assert_int_equal(steps, 3);
    for (int i = 0; i < 2; i++) {
        OK(ls_train_on_batch(model, x, y));
        OK(ls_train_on_batch(fresh, x, y));
    }
    OK(ls_model_state_sha256(model, before));
    OK(ls_model_state_sha256(fresh, after));
    assert_string_equal(before, after); /* dropout, too */
    OK(ls_model_state_sha256(wrong, kept));
    FAILS(ls_checkpoint_restore(wrong, folder), LS_ERR_INVALID, "optimizer is \"sgd\"");
    OK(ls_model_state_sha256(wrong, after));
    assert_string_equal(kept, after);
    OK(ls_model_load_weights(wrong, in_folder("step-00000003/model.safetensors"))); /* weights alone fit */
    ls_model_destroy(model);
    ls_model_destroy(fresh);
    ls_model_destroy(wrong);
    ls_context_close(ctx);
}

int main(void)
{
    samples_fill_floats(pixels, labels, SAMPLES, SIDE * SIDE, CLASSES);
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(a_run_resumes_from_any_step_on_any_devices),
        TEST(files_are_canonical),
        TEST(fit_saves_and_resumes),
        TEST(a_run_that_fails_can_resume),
        TEST(stop_in_validation),
        TEST(old_ones_go_the_best_stays),
        TEST(all_may_stay),
        TEST(what_differs_is_named),
        TEST(other_lanes_must_be_allowed),
        TEST(an_earlier_run_s_folder_is_refused),
        TEST(restoring_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
