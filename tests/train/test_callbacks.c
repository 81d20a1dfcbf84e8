/* Callbacks: moments and built-in ones do what Keras's do (tests/reference/callbacks.json has what
 * those did), their state is the job's, and errors in them are reported before training. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/file.h"
#include "base/status.h"
#include "folder.h"
#include "lockstep.h"
#include "machine.h"
#include "nn/model.h"
#include "train/callback/callback.h"
#include "training.h"
#include "train/checkpoint/state_list.h"
#include "train/fit/evaluate.h"
#include "train/job/step.h"

#define SAMPLES 40

static json_t *reference;
static float x[SAMPLES * 3], y[SAMPLES];
static int32_t kinds[SAMPLES];

static int set_up(void **state)
{
    (void)state;
    json_error_t error;
    reference = json_load_file("tests/reference/callbacks.json", 0, &error);
    assert_non_null(reference);
    assert_int_equal(make_folder(state), 0);
    for (int i = 0; i < SAMPLES; i++) {
        kinds[i] = i * 7 % 3;
        y[i] = (float)(i % 5) / 5;
        for (int k = 0; k < 3; k++)
            x[i * 3 + k] = (float)((i * 31 + k * 17) % 100) / 100 + (float)(k == kinds[i]) / 2;
    }
    return 0;
}

static int tear_down(void **state)
{
    json_decref(reference);
    return remove_folder(state);
}

static ls_context *open_context(ls_log_sink sink, void *user)
{
    ls_context *ctx = NULL;
    OK(ls_context_open(&(ls_context_options){ .threads = 2, .cpu_devices = 2, .log_sink = sink, .log_user = user },
                       &ctx));
    return ctx;
}

static char *read_text(const char *path)
{
    char *text = NULL;
    size_t bytes;
    OK(ls_file_read(path, 1 << 20, &text, &bytes));
    assert_true(strlen(text) == bytes);
    return text;
}

/* ---- Against what Keras did ---- */

/* One weight: it is set to the number of the epoch. */
static ls_model *one_weight(ls_context *ctx)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(1), ls_dense(1, .no_bias = true)));
    OK(ls_compile(model, .optimizer = ls_sgd(0.1), .loss = ls_mean_squared_error(),
                  .metrics = ls_metrics(ls_accuracy())));
    return model;
}

static float *weight_of(ls_model *model)
{
    ls_variable *v = ls_model_variable(model, 0)->attr.variable.variable;
    OK(ls_variable_sync_to_host(v));
    return v->data;
}

static double value_of(const json_t *row, const char *name, double otherwise)
{
    const json_t *value = json_object_get(row, name);
    if (json_is_string(value))
        return strtod(json_string_value(value), NULL); /* nan, inf */
    return value ? json_number_value(value) : otherwise;
}

typedef struct driven {
    int64_t epochs;
    int64_t weight;    /* at the end */
    double rates[32];  /* in each epoch */
    const json_t *row; /* the epoch's values; or: */
    const char *monitor;
    const json_t *values;
} driven;

static void fill(const driven *d, size_t epoch, bool validation, ls_results *out)
{
    static const char *const names[] = { "loss", "accuracy" };
    static const double usual[2][2] = { { 0.5, 0.25 }, { 0.75, 0.125 } }; /* those of make_callbacks.py */
    *out = (ls_results){ .samples = 1 };
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s%s", validation ? "val_" : "", names[i]);
        if (d->row && !json_object_get(d->row, name))
            continue;
        double value = d->row ? value_of(d->row, name, 0) : usual[validation][i];
        if (!d->row && strcmp(name, d->monitor) == 0)
            value = json_number_value(json_array_get(d->values, epoch));
        out->names[out->count] = names[i];
        out->values[out->count++] = value;
    }
}

/* Calls as ls_fit does, with values that are given. */
static void drive(ls_callback_list *list, ls_model *model, const json_t *epochs, driven *d)
{
    bool stop = false;
    OK(ls_callbacks_call(list, LS_TRAIN_BEGIN, &(ls_callback_event){ .epoch = 0 }, NULL));
    ls_callback_event told = { .epoch = 0 };
    for (size_t epoch = 0; epoch < json_array_size(epochs) && !stop; epoch++) {
        ls_results results, validation;
        told = (ls_callback_event){ .epoch = (int64_t)epoch };
        OK(ls_callbacks_call(list, LS_EPOCH_BEGIN, &told, NULL));
        *weight_of(model) = (float)epoch;
        ls_variable_written(ls_model_variable(model, 0)->attr.variable.variable, true);
        OK(ls_job_rate(model->job, &d->rates[epoch]));
        d->row = d->monitor ? NULL : json_array_get(epochs, epoch);
        fill(d, epoch, false, &results);
        fill(d, epoch, true, &validation);
        told.results = &results;
        told.validation = &validation;
        OK(ls_callbacks_call(list, LS_EPOCH_END, &told, &stop));
        d->epochs++;
    }
    told.results = told.validation = NULL;
    OK(ls_callbacks_call(list, LS_TRAIN_END, &told, NULL));
    d->weight = (int64_t)*weight_of(model);
}

static ls_monitor_mode mode_of(const json_t *options)
{
    const char *mode = json_string_value(json_object_get(options, "mode"));
    return !mode || strcmp(mode, "auto") == 0 ? LS_MODE_AUTO : strcmp(mode, "min") == 0 ? LS_MODE_MIN : LS_MODE_MAX;
}

static double or_zero(const json_t *options, const char *key)
{
    const json_t *value = json_object_get(options, key);
    return !value || json_is_null(value) ? 0 : json_number_value(value);
}

/* Runs the callbacks over a case that has one monitored value for each epoch. */
static driven run_case(const json_t *c, const ls_callback *callbacks, size_t count)
{
    const json_t *options = json_object_get(c, "options"), *values = json_object_get(c, "values");
    ls_context *ctx = open_context(NULL, NULL);
    ls_model *model = one_weight(ctx);
    ls_callback_list list;
    const ls_callback_facts facts = { .job = model->job, .call = "test", .trains = true, .validates = true };
    driven d = { .monitor = json_string_value(json_object_get(options, "monitor")), .values = values };
    OK(ls_callbacks_open(&list, callbacks, count, &facts));
    drive(&list, model, values, &d);
    OK(ls_callbacks_close(&list, LS_OK));
    ls_model_destroy(model);
    ls_context_close(ctx);
    return d;
}

static void early_stopping_is_keras_s(void **state)
{
    (void)state;
    size_t i;
    const json_t *c;
    json_array_foreach(json_object_get(reference, "early_stopping"), i, c)
    {
        const json_t *o = json_object_get(c, "options");
        const ls_callback callback =
            ls_early_stopping(.monitor = json_string_value(json_object_get(o, "monitor")),
                              .min_delta = or_zero(o, "min_delta"), .patience = (int64_t)or_zero(o, "patience"),
                              .mode = mode_of(o), .baseline = or_zero(o, "baseline"),
                              .restore_best_weights = json_is_true(json_object_get(o, "restore_best_weights")),
                              .start_from_epoch = (int64_t)or_zero(o, "start_from_epoch"));
        driven d = run_case(c, &callback, 1);
        if (d.epochs != (int64_t)training_number(c, "epochs", -1) ||
            d.weight != (int64_t)training_number(c, "weights_of", -1))
            fail_msg("case %zu: %d epochs, weights of %d; Keras %g and %g", i, (int)d.epochs, (int)d.weight,
                     training_number(c, "epochs", -1), training_number(c, "weights_of", -1));
    }
    assert_true(i == 48);
}

static void rates_on_a_plateau_are_keras_s(void **state)
{
    (void)state;
    size_t i, k;
    const json_t *c, *rate;
    json_array_foreach(json_object_get(reference, "reduce_lr_on_plateau"), i, c)
    {
        const json_t *o = json_object_get(c, "options");
        const ls_callback callback =
            ls_reduce_lr_on_plateau(.monitor = json_string_value(json_object_get(o, "monitor")),
                                    .factor = or_zero(o, "factor"), .patience = (int64_t)or_zero(o, "patience"),
                                    .min_delta = or_zero(o, "min_delta"), .cooldown = (int64_t)or_zero(o, "cooldown"),
                                    .min_lr = or_zero(o, "min_lr"));
        driven d = run_case(c, &callback, 1);
        json_array_foreach(json_object_get(c, "rates"), k, rate)
        {
            if ((float)d.rates[k] != (float)json_number_value(rate))
                fail_msg("case %zu, epoch %zu: %.9g, Keras %.9g", i, k, d.rates[k], json_number_value(rate));
        }
    }
    assert_true(i == 32);
}

static int by_letters(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of the files that a case leaves, but for their ending. */
static void files_are_keras_s(void **state)
{
    (void)state;
    size_t i, k;
    const json_t *c, *name;
    json_array_foreach(json_object_get(reference, "model_checkpoint"), i, c)
    {
        const json_t *o = json_object_get(c, "options");
        char where[160], path[512];
        snprintf(where, sizeof(where), "%s/saved-%zu", folder, i);
        snprintf(path, sizeof(path), "%s/%s.safetensors", where, json_string_value(json_object_get(c, "pattern")));
        const ls_callback callback =
            ls_model_checkpoint(path, .monitor = json_string_value(json_object_get(o, "monitor")), .mode = mode_of(o),
                                .save_best_only = json_is_true(json_object_get(o, "save_best_only")),
                                .initial_value_threshold = or_zero(o, "initial_value_threshold"));
        run_case(c, &callback, 1);
        char *found[32];
        size_t count = 0;
        DIR *list = opendir(where);
        assert_non_null(list);
        for (struct dirent *entry; (entry = readdir(list));)
            if (strstr(entry->d_name, ".safetensors") && count < LENGTH(found))
                found[count++] = strndup(entry->d_name, strlen(entry->d_name) - strlen(".safetensors"));
        closedir(list);
        qsort(found, count, sizeof(*found), by_letters);
        assert_int_equal(count, json_array_size(json_object_get(c, "files")));
        json_array_foreach(json_object_get(c, "files"), k, name)
        {
            assert_string_equal(found[k], json_string_value(name));
            free(found[k]);
        }
    }
    assert_true(i == 16);
}

static void a_csv_log_has_keras_s_bytes(void **state)
{
    (void)state;
    size_t i;
    const json_t *c;
    json_array_foreach(json_object_get(reference, "csv_logger"), i, c)
    {
        const char *path = in_folder("keras.csv"), *before = json_string_value(json_object_get(c, "before"));
        const json_t *o = json_object_get(c, "options"), *epochs = json_object_get(c, "epochs");
        remove(path);
        if (before)
            OK(ls_file_write(path, before, strlen(before)));
        const ls_callback callbacks[] = { ls_reduce_lr_on_plateau("loss"),
                                          ls_csv_logger(path,
                                                        .separator = json_string_value(json_object_get(o, "separator")),
                                                        .append = json_is_true(json_object_get(o, "append"))) };
        bool rate = json_is_true(json_object_get(c, "rate"));
        ls_context *ctx = open_context(NULL, NULL);
        ls_model *model = one_weight(ctx);
        ls_callback_list list;
        const ls_callback_facts facts = { .job = model->job,
                                          .call = "test",
                                          .trains = true,
                                          .validates = json_object_get(json_array_get(epochs, 0), "val_loss") };
        driven d = { .epochs = 0 };
        OK(ls_callbacks_open(&list, callbacks + !rate, 1 + (size_t)rate, &facts));
        drive(&list, model, epochs, &d);
        OK(ls_callbacks_close(&list, LS_OK));
        char *text = read_text(path);
        assert_string_equal(text, json_string_value(json_object_get(c, "text")));
        free(text);
        ls_model_destroy(model);
        ls_context_close(ctx);
    }
    assert_true(i == 7);
}

/* ---- Moments ---- */

typedef struct seen {
    ls_model *model;
    json_t *list;
} seen;

static ls_status see(void *user, ls_model *model, const char *name, int64_t number)
{
    seen *s = user;
    assert_ptr_equal(model, s->model);
    json_array_append_new(s->list, json_pack("[s, I]", name, (json_int_t)number));
    return LS_OK;
}

#define SEES(moment, number)                                                                                           \
    static ls_status see_##moment(void *user, ls_model *model, const ls_logs *logs)                                    \
    {                                                                                                                  \
        return see(user, model, #moment, number);                                                                      \
    }
#define SEES_AND_STOPS(moment, number)                                                                                 \
    static ls_status see_##moment(void *user, ls_model *model, const ls_logs *logs, bool *stop)                        \
    {                                                                                                                  \
        assert_false(*stop);                                                                                           \
        return see(user, model, #moment, number);                                                                      \
    }
SEES(epoch_begin, logs->epoch)
SEES(train_batch_begin, logs->batch)
SEES_AND_STOPS(train_batch_end, logs->batch)
SEES_AND_STOPS(epoch_end, logs->epoch)
SEES(train_end, (logs->count > 0 ? 0 : 1))
SEES(test_begin, (int64_t)logs->count)
SEES(test_batch_begin, logs->batch)
SEES(test_batch_end, (logs->count == 2 && strcmp(logs->names[0], "loss") == 0 ? logs->batch : -1))
SEES(test_end, (logs->count == 2 && logs->samples == 6 ? 0 : -1))
SEES(predict_begin, (int64_t)logs->count)
SEES(predict_batch_begin, logs->batch)
SEES(predict_batch_end, logs->batch)
SEES(predict_end, (int64_t)logs->count)

static ls_status see_train_begin(void *user, ls_model *model)
{
    return see(user, model, "train_begin", 0);
}

static ls_callback recorder(seen *s)
{
    return (ls_callback){ .user = s,
                          .on_train_begin = see_train_begin,
                          .on_epoch_begin = see_epoch_begin,
                          .on_batch_begin = see_train_batch_begin,
                          .on_batch_end = see_train_batch_end,
                          .on_epoch_end = see_epoch_end,
                          .on_train_end = see_train_end,
                          .on_test_begin = see_test_begin,
                          .on_test_batch_begin = see_test_batch_begin,
                          .on_test_batch_end = see_test_batch_end,
                          .on_test_end = see_test_end,
                          .on_predict_begin = see_predict_begin,
                          .on_predict_batch_begin = see_predict_batch_begin,
                          .on_predict_batch_end = see_predict_batch_end,
                          .on_predict_end = see_predict_end };
}

static ls_dataset *numbers(int64_t count)
{
    return ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(count, 1), x), ls_array_of(LS_F32, LS_SHAPE(count, 1), y),
                                 .keep = LS_KEEP_BORROWED);
}

static void moments_come_in_keras_s_order(void **state)
{
    (void)state;
    ls_context *ctx = open_context(NULL, NULL);
    seen s = { .model = one_weight(ctx), .list = json_array() };
    ls_dataset *ten = numbers(10), *six = numbers(6);
    ls_array out;
    OK(ls_fit(s.model, ten, .epochs = 2, .batch_size = 4, .validation = six, .verbose = LS_VERBOSE_SILENT,
              .callbacks = ls_callbacks(recorder(&s))));
    OK(ls_evaluate(s.model, six, .batch_size = 4, .callbacks = ls_callbacks(recorder(&s))));
    OK(ls_predict(s.model, six, &out, .batch_size = 4, .callbacks = ls_callbacks(recorder(&s))));
    free(out.data);
    char *found = json_dumps(s.list, 0), *expected = json_dumps(json_object_get(reference, "moments"), 0);
    assert_string_equal(found, expected);
    free(found);
    free(expected);
    json_decref(s.list);
    ls_dataset_destroy(ten);
    ls_dataset_destroy(six);
    ls_model_destroy(s.model);
    ls_context_close(ctx);
}

static ls_status refuses(void *user, ls_model *model, const ls_logs *logs)
{
    (void)user, (void)model, (void)logs;
    return LS_ERR_DATA;
}

static void a_failure_in_a_test_is_the_call_s(void **state)
{
    (void)state;
    ls_context *ctx = open_context(NULL, NULL);
    ls_model *model = one_weight(ctx);
    ls_dataset *d = numbers(6);
    ls_array out = { .data = NULL };
    ls_results results = { .count = 77 };
    FAILS(ls_evaluate(model, d, &results, .callbacks = ls_callbacks({ 0 }, { .on_test_batch_end = refuses })),
          LS_ERR_DATA, "callback 1", "on_test_batch_end");
    assert_true(results.count == 77);
    FAILS(ls_fit(model, d, .validation = d, .verbose = LS_VERBOSE_SILENT,
                 .callbacks = ls_callbacks({ .on_test_end = refuses })),
          LS_ERR_DATA, "callback 0", "on_test_end", "epoch 1");
    FAILS(ls_predict(model, d, &out, .callbacks = ls_callbacks({ .on_predict_begin = refuses })), LS_ERR_DATA,
          "on_predict_begin");
    assert_null(out.data);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Errors are reported before training ---- */

static void wrong_specs_are_refused(void **state)
{
    (void)state;
    ls_context *ctx = open_context(NULL, NULL);
    ls_model *model = one_weight(ctx);
    ls_dataset *d = numbers(10);
    int64_t steps = -1;
#define REFUSES(status, callback, ...)                                                                                 \
    FAILS(ls_fit(model, d, .validation = d, .verbose = LS_VERBOSE_SILENT, .callbacks = ls_callbacks(callback)),        \
          status, __VA_ARGS__)
    REFUSES(LS_ERR_NOT_FOUND, ls_early_stopping("val_acc"), "early_stopping", "val_acc",
            "loss, accuracy, val_loss, val_accuracy");
    REFUSES(LS_ERR_INVALID, ls_early_stopping(.patience = -1), "must not be negative (got -1 and 0)");
    REFUSES(LS_ERR_INVALID, ls_early_stopping(.min_delta = NAN), "min_delta");
    REFUSES(LS_ERR_INVALID, ls_early_stopping(.baseline = INFINITY), "baseline");
    REFUSES(LS_ERR_INVALID, ls_early_stopping(.mode = (ls_monitor_mode)7), "unknown mode 7");
    REFUSES(LS_ERR_INVALID, ((ls_callback){ .kind = (ls_callback_kind)99 }), "unknown callback kind 99");
    REFUSES(LS_ERR_INVALID, ls_csv_logger(NULL), "needs a file name");
    REFUSES(LS_ERR_INVALID, ls_csv_logger("x", .separator = "ab"), "separator must be one character, got \"ab\"");
    REFUSES(LS_ERR_INVALID, ls_reduce_lr_on_plateau(.factor = 1), "factor must be at least 0 and below 1, got 1");
    REFUSES(LS_ERR_INVALID, ls_reduce_lr_on_plateau(.cooldown = -1), "must not be negative (got 0 and -1)");
    REFUSES(LS_ERR_INVALID, ls_reduce_lr_on_plateau(.min_lr = NAN), "min_lr");
    REFUSES(LS_ERR_NOT_FOUND, ls_reduce_lr_on_plateau("auc"), "\"auc\"", "val_accuracy");
    REFUSES(LS_ERR_INVALID, ls_learning_rate_scheduler(NULL), "needs a function");
    REFUSES(LS_ERR_INVALID, ls_model_checkpoint(NULL), "needs a file name");
    REFUSES(LS_ERR_NOT_FOUND, ls_model_checkpoint("{epoch}-{val_los:.3f}"), "{val_los}",
            "epoch, loss, accuracy, val_loss, val_accuracy");
    REFUSES(LS_ERR_NOT_FOUND, ls_model_checkpoint("{batch}"), "{batch}");
    REFUSES(LS_ERR_NOT_FOUND, ls_model_checkpoint("{batch}{val_loss}", .save_freq = 2), "{val_loss}", "batch, loss");
    REFUSES(LS_ERR_NOT_FOUND, ls_model_checkpoint(in_folder("x"), .save_best_only = true, .save_freq = 2), "val_loss");
    REFUSES(LS_ERR_UNSUPPORTED, ls_model_checkpoint(in_folder("x.pt")), "x.pt");
    REFUSES(LS_ERR_INVALID, ls_model_checkpoint(in_folder("x.npy")), "x.npy");
    REFUSES(LS_ERR_INVALID, ls_model_checkpoint("{val_loss:02d}"), "not a whole number");
    REFUSES(LS_ERR_INVALID, ls_model_checkpoint("{epoch:.2f}"), "a whole number");
    REFUSES(LS_ERR_INVALID, ls_model_checkpoint("{val_loss:9}"), "not a whole number");
    REFUSES(LS_ERR_INVALID, ls_model_checkpoint("{epoch"), "{epoch}");
    REFUSES(LS_ERR_INVALID, ls_model_checkpoint("{epoch:999d}"), "{epoch}");
    REFUSES(LS_ERR_INVALID, ls_model_checkpoint("{}"), "must be followed by a name");
    REFUSES(LS_ERR_INVALID, ls_model_checkpoint("x}y"), "'}' without '{'");
    REFUSES(LS_ERR_IO, ls_model_checkpoint("/dev/null/x"), "model_checkpoint", "/dev/null");
    REFUSES(LS_ERR_IO, ls_csv_logger(in_folder("nowhere/x.csv")), "nowhere/x.csv");
    FAILS(ls_fit(model, d, .verbose = LS_VERBOSE_SILENT, .callbacks = ls_callbacks(ls_early_stopping())),
          LS_ERR_NOT_FOUND, "val_loss", "loss, accuracy", "give validation data");
    OK(ls_model_steps(model, &steps));
    assert_true(steps == 0);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- In a fit ---- */

/* A model whose validation gets worse soon: it learns 30 samples by heart. */
static ls_model *classifier(ls_context *ctx)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(3), ls_dense(16, .activation = LS_RELU), ls_dropout(0.25),
                     ls_dense(3)));
    OK(ls_compile(model, .optimizer = ls_sgd(0.9, .momentum = 0.9),
                  .loss = ls_sparse_categorical_crossentropy(.from_logits = true),
                  .metrics = ls_metrics(ls_accuracy())));
    return model;
}

static ls_dataset *samples(int64_t from, int64_t count)
{
    return ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(count, 3), x + from * 3),
                                 ls_array_of(LS_I32, LS_SHAPE(count), kinds + from), .keep = LS_KEEP_BORROWED);
}

static void the_best_weights_are_restored_and_reported(void **state)
{
    (void)state;
    ls_context *ctx = open_context(NULL, NULL);
    ls_model *model = classifier(ctx);
    ls_dataset *train = samples(0, 30), *test = samples(30, 10);
    ls_history *history = NULL;
    ls_results results;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    OK(ls_fit(model, train, .epochs = 40, .batch_size = 8, .validation = test, .verbose = LS_VERBOSE_LINES,
              .output = out, .history = &history,
              .callbacks =
                  ls_callbacks(ls_early_stopping(.patience = 3, .restore_best_weights = true, .verbose = true))));
    fclose(out);
    size_t epochs = ls_history_epochs(history), best = 0;
    double least = INFINITY, value;
    char words[64];
    assert_in_range(epochs, 4, 39);
    for (size_t i = 0; i < epochs; i++) {
        OK(ls_history_value(history, "val_loss", i, &value));
        if (value < least) {
            least = value;
            best = i;
        }
    }
    assert_true(epochs == best + 4);
    snprintf(words, sizeof(words), "Epoch %zu: early stopping\n", epochs);
    machine_has(text, words);
    snprintf(words, sizeof(words), "best epoch: %zu.\n", best + 1);
    machine_has(text, words);
    OK(ls_evaluate(model, test, &results, .batch_size = 8));
    assert_true(results.values[0] == least);
    free(text);
    ls_history_destroy(history);
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* A NaN is neither better than a number nor than nothing; a number is better than nothing. */
static void a_nan_is_never_better(void **state)
{
    (void)state;
    const ls_monitor falls = { .name = "loss" }, rises = { .name = "accuracy", .rises = true };
    const ls_monitor *both[] = { &falls, &rises };
    for (int i = 0; i < 2; i++) {
        assert_false(ls_monitor_is_better(both[i], NAN, NAN));
        assert_false(ls_monitor_is_better(both[i], NAN, 1));
        assert_true(ls_monitor_is_better(both[i], 1, NAN));
        assert_false(ls_monitor_is_better(both[i], 1, 1));
    }
    assert_true(ls_monitor_is_better(&falls, 0.5, 1) && !ls_monitor_is_better(&rises, 0.5, 1));
}

static void keep_line(void *user, ls_log_level level, const char *line)
{
    char *text = user;
    if (level == LS_LOG_WARNING)
        snprintf(text + strlen(text), 4096 - strlen(text), "%s\n", line);
}

/* A full disk: one warning, and training goes on with the same weights. */
static void a_full_disk_is_a_warning(void **state)
{
    (void)state;
    char text[4096] = "", hashes[2][65];
    ls_context *ctx = open_context(keep_line, text);
    ls_dataset *d = numbers(10);
    for (int full = 0; full < 2; full++) {
        ls_model *model = one_weight(ctx);
        OK(ls_fit(model, d, .epochs = 3, .verbose = LS_VERBOSE_SILENT,
                  .callbacks = ls_callbacks(ls_csv_logger(full ? "/dev/full" : "/dev/null"))));
        OK(ls_model_weights_sha256(model, hashes[full]));
        ls_model_destroy(model);
    }
    assert_string_equal(hashes[0], hashes[1]);
    machine_has(text, "csv_logger: cannot write '/dev/full': No space left on device");
    assert_true(machine_count(text, "csv_logger") == 1);
    ls_dataset_destroy(d);
    ls_context_close(ctx);
}

static double halve(void *user, int64_t epoch, double rate)
{
    *(int64_t *)user += epoch;
    return epoch == 0 ? rate : rate / 2;
}

static void a_scheduler_is_asked_each_epoch(void **state)
{
    (void)state;
    int64_t sum = 0;
    double rate;
    const char *path = in_folder("rates.csv");
    ls_context *ctx = open_context(NULL, NULL);
    ls_model *model = one_weight(ctx);
    ls_dataset *d = numbers(10);
    OK(ls_fit(model, d, .epochs = 3, .verbose = LS_VERBOSE_SILENT,
              .callbacks = ls_callbacks(ls_learning_rate_scheduler(halve, &sum), ls_csv_logger(path))));
    OK(ls_learning_rate(model, &rate));
    assert_true(sum == 0 + 1 + 2 && (float)rate == 0.1F / 4);
    char *text = read_text(path);
    machine_has(text, "epoch,accuracy,learning_rate,loss,");
    machine_has(text, ",0.05000000074505806,");
    free(text);
    ls_model_destroy(model);
    OK(ls_sequential(ctx, "m", &model, ls_input(1), ls_dense(1)));
    OK(ls_compile(model, .optimizer = ls_sgd(.schedule = ls_exponential_decay(0.1, 10, 0.5, false)),
                  .loss = ls_mean_squared_error()));
    FAILS(ls_fit(model, d, .verbose = LS_VERBOSE_SILENT, .callbacks = ls_callbacks(ls_reduce_lr_on_plateau("loss"))),
          LS_ERR_INVALID, "reduce_lr_on_plateau", "schedule");
    FAILS(ls_fit(model, d, .verbose = LS_VERBOSE_SILENT,
                 .callbacks = ls_callbacks(ls_learning_rate_scheduler(halve, &sum))),
          LS_ERR_INVALID, "learning_rate_scheduler", "schedule");
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* Three steps an epoch: saved after 2, 4 and 6, whatever the epochs. */
static void steps_are_saved_by_their_number(void **state)
{
    (void)state;
    const char *pattern = in_folder("by-{epoch}-{batch:03d}.safetensors");
    const char *names[] = { "by-1-002.safetensors", "by-2-001.safetensors", "by-2-003.safetensors" };
    ls_context *ctx = open_context(NULL, NULL);
    ls_model *model = one_weight(ctx), *other = one_weight(ctx);
    ls_dataset *d = numbers(10);
    char hashes[2][65];
    OK(ls_fit(model, d, .epochs = 2, .batch_size = 4, .verbose = LS_VERBOSE_SILENT,
              .callbacks = ls_callbacks(ls_model_checkpoint(pattern, .save_freq = 2))));
    for (size_t i = 0; i < LENGTH(names); i++)
        OK(ls_model_load_weights(other, in_folder(names[i])));
    OK(ls_model_weights_sha256(model, hashes[0]));
    OK(ls_model_weights_sha256(other, hashes[1]));
    assert_string_equal(hashes[0], hashes[1]);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_model_destroy(other);
    ls_context_close(ctx);
}

static ls_status block_and_free(void *user, ls_model *model, const ls_logs *logs)
{
    const char *path = user;
    (void)model;
    if (logs->epoch == 0)
        assert_int_equal(mkdir(path, 0777), 0); /* a folder in its place */
    if (logs->epoch == 2)
        assert_int_equal(rmdir(path), 0);
    return LS_OK;
}

/* A file that cannot be written: warnings, and training goes on; when it can be again, the best is
 * saved. */
static void a_save_that_fails_is_a_warning(void **state)
{
    (void)state;
    char text[4096] = "", path[128];
    snprintf(path, sizeof(path), "%s/blocked.safetensors", folder);
    ls_context *ctx = open_context(keep_line, text);
    ls_model *model = one_weight(ctx);
    ls_dataset *d = numbers(10);
    OK(ls_fit(model, d, .epochs = 3, .verbose = LS_VERBOSE_SILENT,
              .callbacks = ls_callbacks({ .user = path, .on_epoch_begin = block_and_free },
                                        ls_model_checkpoint(path, .monitor = "loss", .save_best_only = true))));
    assert_true(machine_count(text, "model_checkpoint: cannot write") == 2);
    OK(ls_model_load_weights(model, path));
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* The third step is not finite, as its data is not: the first of an epoch of two, the last of an
 * epoch of three. */
static void a_step_that_is_not_finite_ends_training(void **state)
{
    (void)state;
    char text[4096] = "", hashes[2][65];
    float bad[12], labels[12] = { 0 };
    for (int i = 0; i < 12; i++)
        bad[i] = i < 8 ? 1 : NAN;
    ls_context *ctx = open_context(keep_line, text);
    ls_dataset *d = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(12, 1), bad),
                                          ls_array_of(LS_F32, LS_SHAPE(12, 1), labels), .keep = LS_KEEP_BORROWED);
    for (int ends = 0; ends < 2; ends++)
        for (int64_t steps = 2; steps <= 3; steps++) {
            ls_model *model = one_weight(ctx);
            ls_history *history = NULL;
            int64_t done;
            ls_status status = ls_fit(model, d, .epochs = 3, .steps_per_epoch = steps, .batch_size = 4,
                                      .keep_order = true, .verbose = LS_VERBOSE_SILENT, .history = &history,
                                      .callbacks = ls_callbacks(ends ? ls_terminate_on_nan() : (ls_callback){ 0 }));
            assert_int_equal(status, ends ? LS_OK : LS_ERR_NOT_FINITE);
            OK(ls_model_steps(model, &done));
            assert_true(done == 2);
            if (ends)
                assert_int_equal(ls_history_epochs(history), 1);
            OK(ls_model_weights_sha256(model, hashes[ends]));
            ls_history_destroy(history);
            ls_model_destroy(model);
        }
    assert_string_equal(hashes[0], hashes[1]);
    assert_true(machine_count(text, "training ends with the weights of step 2") == 2);
    ls_dataset_destroy(d);
    ls_context_close(ctx);
}

/* ---- State ---- */

typedef struct saver {
    ls_snapshot *snapshot; /* taken at this step, or loaded when training begins */
    int64_t at;
    bool loads;
    bool signals;        /* a signal comes at that step, and the state is saved at the end of its epoch */
    volatile int signal; /* its number; 0: none came */
} saver;

static ls_status save_at(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    saver *s = user;
    if (s->loads || logs->step != s->at)
        return LS_OK;
    s->signal = s->signals;
    *stop = !s->signals;
    return s->signals ? LS_OK : ls_job_save(model->job, &s->snapshot);
}

static ls_status save_at_signal(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    saver *s = user;
    (void)stop;
    assert_true(logs->interrupted == (s->signal != 0));
    if (!logs->interrupted)
        return LS_OK;
    assert_true(logs->cut);
    return ls_job_save(model->job, &s->snapshot);
}

static ls_status load_at_start(void *user, ls_model *model)
{
    saver *s = user;
    return s->loads ? ls_job_load(model->job, s->snapshot) : LS_OK;
}

typedef struct ended {
    char state[65];
    char *csv;
    int64_t steps;
} ended;

static ended fit_with_state(saver *s, const char *monitor, const char *path)
{
    ended e;
    ls_context *ctx = open_context(NULL, NULL);
    ls_model *model = classifier(ctx);
    ls_dataset *train = samples(0, 30), *test = samples(30, 10);
    s->signal = 0;
    OK(ls_fit(
        model, train, .epochs = 40, .batch_size = 8, .validation = test, .verbose = LS_VERBOSE_SILENT, .seed = 3,
        .stop = &s->signal,
        .callbacks = ls_callbacks(
            ls_reduce_lr_on_plateau(monitor, .patience = 2, .cooldown = 1, .factor = 0.7),
            ls_early_stopping(monitor, .patience = 5, .restore_best_weights = true), ls_csv_logger(path),
            { .user = s, .on_train_begin = load_at_start, .on_batch_end = save_at, .on_epoch_end = save_at_signal })));
    OK(ls_model_state_sha256(model, e.state));
    OK(ls_model_steps(model, &e.steps));
    e.csv = read_text(path);
    ls_dataset_destroy(train);
    ls_dataset_destroy(test);
    ls_model_destroy(model);
    ls_context_close(ctx);
    return e;
}

/* Stopped at any step, inside an epoch and at its last one, by a callback and by a signal, and gone
 * on with: the end is that of the run that was not stopped: the same weights, the same epoch, the
 * same log. */
static void resume_with(const char *monitor)
{
    saver none = { .at = -1 };
    ended whole = fit_with_state(&none, monitor, in_folder("whole.csv"));
    assert_in_range(whole.steps, 16, 40 * 4);
    const int64_t at[] = { 1, 8, whole.steps / 4 * 2 + 1, whole.steps - 4, whole.steps - 2, whole.steps };
    for (size_t i = 0; i < 2 * LENGTH(at); i++) {
        saver s = { .at = at[i / 2], .signals = i % 2 };
        free(fit_with_state(&s, monitor, in_folder("part.csv")).csv);
        assert_non_null(s.snapshot);
        s.loads = true;
        ended resumed = fit_with_state(&s, monitor, in_folder("part.csv"));
        assert_string_equal(resumed.state, whole.state);
        assert_string_equal(resumed.csv, whole.csv);
        free(resumed.csv);
        ls_snapshot_destroy(s.snapshot);
    }
    free(whole.csv);
}

/* A log that is appended to: what was there before stays, and the first epoch, cut and gone on
 * with, is there once. */
static void an_appended_log_has_no_epoch_twice(void **state)
{
    (void)state;
    char *text[2];
    for (int in_parts = 0; in_parts < 2; in_parts++) {
        const char *path = in_folder("appended.csv");
        ls_dataset *train = samples(0, 30);
        char folder_of_checkpoints[128];
        snprintf(folder_of_checkpoints, sizeof(folder_of_checkpoints), "%s", in_folder("appended.ck"));
        FILE *file = fopen(path, "w");
        assert_true(file && fputs("epoch,accuracy,loss\r\n0,1,1\r\n", file) >= 0 && fclose(file) == 0);
        for (int part = !in_parts; part < 2; part++) {
            ls_context *ctx = open_context(NULL, NULL);
            ls_model *model = classifier(ctx);
            OK(ls_fit(model, train, .epochs = 3, .batch_size = 8, .verbose = LS_VERBOSE_SILENT,
                      .max_steps = part ? 0 : 2, .checkpoint = in_parts ? folder_of_checkpoints : NULL,
                      .resume = in_parts ? "auto" : NULL,
                      .callbacks = ls_callbacks(ls_csv_logger(in_folder("appended.csv"), .append = true))));
            ls_model_destroy(model);
            ls_context_close(ctx);
        }
        text[in_parts] = read_text(in_folder("appended.csv"));
        ls_dataset_destroy(train);
    }
    assert_string_equal(text[0], text[1]);
    free(text[0]);
    free(text[1]);
}

static void a_resumed_run_ends_as_the_other(void **state)
{
    (void)state;
    resume_with("val_loss");
    resume_with("loss"); /* which an epoch that was cut has, too */
}

/* Training that a signal ended keeps its last weights, not the best: it may go on. */
static void a_signal_restores_nothing(void **state)
{
    (void)state;
    char hashes[2][65];
    for (int stops = 0; stops < 2; stops++) {
        saver s = { .at = 30, .signals = true };
        ls_context *ctx = open_context(NULL, NULL);
        ls_model *model = classifier(ctx);
        ls_dataset *train = samples(0, 30), *test = samples(30, 10);
        OK(ls_fit(model, train, .epochs = 40, .batch_size = 8, .validation = test, .verbose = LS_VERBOSE_SILENT,
                  .max_steps = stops ? 0 : 30, .stop = &s.signal,
                  .callbacks = ls_callbacks(stops ? ls_early_stopping(.patience = 30, .restore_best_weights = true)
                                                  : (ls_callback){ 0 },
                                            { .user = &s, .on_batch_end = save_at })));
        OK(ls_model_state_sha256(model, hashes[stops]));
        ls_dataset_destroy(train);
        ls_dataset_destroy(test);
        ls_model_destroy(model);
        ls_context_close(ctx);
    }
    assert_string_equal(hashes[0], hashes[1]);
}

static ls_status save_at_end(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    saver *s = user;
    (void)logs, (void)stop;
    if (s->loads)
        return LS_OK;
    ls_snapshot_destroy(s->snapshot);
    s->snapshot = NULL;
    return ls_job_save(model->job, &s->snapshot);
}

/* Saved after the epoch that early stopping ended: the job is done, unless there is more
 * patience. */
static void training_that_was_stopped_does_not_continue(void **state)
{
    (void)state;
    saver s = { .loads = false };
    int64_t steps[3];
    char hashes[3][65];
    const int64_t patience[] = { 2, 2, 4 };
    for (int run = 0; run < 3; run++) {
        ls_context *ctx = open_context(NULL, NULL);
        ls_model *model = classifier(ctx);
        ls_dataset *train = samples(0, 30), *test = samples(30, 10);
        s.loads = run > 0;
        OK(ls_fit(model, train, .epochs = 40, .batch_size = 8, .validation = test, .verbose = LS_VERBOSE_SILENT,
                  .callbacks =
                      ls_callbacks(ls_early_stopping(.patience = patience[run], .restore_best_weights = true),
                                   { .user = &s, .on_train_begin = load_at_start, .on_epoch_end = save_at_end })));
        OK(ls_model_steps(model, &steps[run]));
        OK(ls_model_weights_sha256(model, hashes[run]));
        ls_dataset_destroy(train);
        ls_dataset_destroy(test);
        ls_model_destroy(model);
        ls_context_close(ctx);
    }
    assert_true(steps[0] == steps[1] && steps[2] > steps[1]);
    assert_string_equal(hashes[0], hashes[1]);
    ls_snapshot_destroy(s.snapshot);
}

static void a_state_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    ls_context *ctx = open_context(NULL, NULL);
    ls_model *model = one_weight(ctx);
    ls_callback_list list;
    const ls_callback_facts facts = { .job = model->job, .call = "test", .trains = true, .validates = true };
    const ls_callback specs[] = { ls_early_stopping("loss", .restore_best_weights = true), ls_early_stopping("loss"),
                                  ls_early_stopping("val_loss", .restore_best_weights = true),
                                  ls_csv_logger("/dev/null") };
    void *bytes = NULL;
    size_t count = 0;
    OK(ls_callbacks_open(&list, specs, 4, &facts));
    OK(list.all[0].save(list.all[0].user, &bytes, &count));
    OK(list.all[0].load(list.all[0].user, bytes, count));
    FAILS(list.all[1].load(list.all[1].user, bytes, count), LS_ERR_INVALID, "early_stopping", "bytes");
    FAILS(list.all[2].load(list.all[2].user, bytes, count), LS_ERR_INVALID, "monitored \"loss\"", "\"val_loss\"");
    for (size_t cut = 0; cut < count; cut++)
        assert_int_not_equal(list.all[0].load(list.all[0].user, bytes, cut), LS_OK);
    FAILS(list.all[3].load(list.all[3].user, bytes, count), LS_ERR_INVALID, "csv_logger");
    free(bytes);
    OK(ls_callbacks_close(&list, LS_OK));
    ls_model_destroy(model);
    ls_context_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(early_stopping_is_keras_s),
        cmocka_unit_test(rates_on_a_plateau_are_keras_s),
        cmocka_unit_test(files_are_keras_s),
        cmocka_unit_test(a_csv_log_has_keras_s_bytes),
        cmocka_unit_test(moments_come_in_keras_s_order),
        cmocka_unit_test(a_failure_in_a_test_is_the_call_s),
        cmocka_unit_test(wrong_specs_are_refused),
        cmocka_unit_test(the_best_weights_are_restored_and_reported),
        cmocka_unit_test(a_nan_is_never_better),
        cmocka_unit_test(a_full_disk_is_a_warning),
        cmocka_unit_test(a_scheduler_is_asked_each_epoch),
        cmocka_unit_test(steps_are_saved_by_their_number),
        cmocka_unit_test(a_save_that_fails_is_a_warning),
        cmocka_unit_test(a_step_that_is_not_finite_ends_training),
        cmocka_unit_test(a_resumed_run_ends_as_the_other),
        cmocka_unit_test(an_appended_log_has_no_epoch_twice),
        cmocka_unit_test(a_signal_restores_nothing),
        cmocka_unit_test(training_that_was_stopped_does_not_continue),
        cmocka_unit_test(a_state_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
