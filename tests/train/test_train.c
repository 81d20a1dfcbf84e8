/* fit, evaluate and predict: the same bits on any devices and as a loop by hand, every sample
 * counted once, callbacks, history, validation, progress, logs, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/philox.h"
#include "lockstep.h"
#include "machine.h"

#define SAMPLES 100
#define SIDE    8
#define CLASSES 4

static uint8_t pixels[SAMPLES * SIDE * SIDE];
static int32_t labels[SAMPLES];

/* Images whose class shows: brighter in one quarter. */
static void make_data(void)
{
    ls_philox_key key = ls_random_key(1, LS_RANDOM_TEST, 0, 0);
    for (int s = 0; s < SAMPLES; s++) {
        labels[s] = s * 7 % CLASSES;
        for (int i = 0; i < SIDE * SIDE; i++) {
            int quarter = (i / SIDE >= SIDE / 2) * 2 + (i % SIDE >= SIDE / 2);
            uint32_t noise = ls_random_block(key, 0, (uint32_t)s, (uint32_t)i / 4).word[i % 4];
            pixels[s * SIDE * SIDE + i] = (uint8_t)(noise % 100 + (quarter == labels[s] ? 120 : 0));
        }
    }
}

static ls_array images(void)
{
    return ls_array_of(LS_U8, LS_SHAPE(SAMPLES, SIDE, SIDE, 1), pixels);
}

static ls_array classes(void)
{
    return ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels);
}

static ls_dataset *data(void)
{
    return ls_from_tensor_slices(images(), classes(), .keep = LS_KEEP_BORROWED);
}

static ls_model *cnn(ls_context *ctx, ls_optimizer optimizer)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "cnn", &model, ls_input(SIDE, SIDE, 1), ls_conv2d(16, 3, .activation = LS_RELU),
                     ls_batch_normalization(), ls_max_pool2d(2), ls_flatten(), ls_dropout(0.25),
                     ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    OK(ls_compile(model, .optimizer = optimizer, .loss = ls_sparse_categorical_crossentropy(),
                  .metrics = ls_metrics(ls_accuracy())));
    return model;
}

static ls_context *open_context(int devices, int threads)
{
    ls_context *ctx = NULL;
    OK(ls_context_open(&(ls_context_options){ .cpu_devices = devices, .threads = threads }, &ctx));
    return ctx;
}

static void fit_hash(int devices, int threads, ls_strategy strategy, char hex[65])
{
    ls_context *ctx = open_context(devices, threads);
    ls_model *model = cnn(ctx, ls_adam());
    ls_dataset *d = data();
    OK(ls_fit(model, d, .epochs = 3, .batch_size = 33, .lanes = 5, .seed = 4, .verbose = LS_VERBOSE_SILENT,
              .strategy = strategy));
    OK(ls_model_state_sha256(model, hex));
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void same_bits_on_any_devices(void **state)
{
    (void)state;
    char one[65], other[65];
    fit_hash(1, 1, ls_one_device(), one);
    const struct {
        int devices, threads;
        ls_strategy strategy;
    } ways[] = { { 1, 2, ls_mirrored() },
                 { 2, 2, ls_mirrored() },
                 { 3, 3, ls_mirrored(.devices = "cpu:0,cpu:2") },
                 { 8, 8, ls_mirrored(.devices = "cpu:1-7") },
                 { 2, 4, ls_one_device(.devices = "cpu:1") } };
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        fit_hash(ways[i].devices, ways[i].threads, ways[i].strategy, other);
        assert_string_equal(one, other);
    }
}

/* The same as ls_fit, in public calls. */
static void fit_by_hand(ls_model *model, ls_tensor **loss_out)
{
    ls_graph *g = ls_model_graph(model);
    ls_tensor *x = ls_op_input(g, NULL, LS_U8, LS_SHAPE(LS_BATCH, SIDE, SIDE, 1));
    ls_tensor *y = ls_op_input(g, NULL, LS_I32, LS_SHAPE(LS_BATCH)), *rate = ls_op_input(g, NULL, LS_F32, LS_SCALAR);
    ls_tensor *in = ls_op_div(ls_op_cast(x, LS_F32), ls_op_scalar(g, LS_F32, 255)), *out = NULL, *variables[16],
              *gradients[16];
    ls_trace trace;
    OK(ls_model_trace(model, &in, true, &out, &trace));
    ls_tensor *loss = ls_loss_value(ls_sparse_categorical_crossentropy(), y, out, NULL);
    size_t count = 0;
    for (size_t i = 0; i < ls_model_variable_count(model); i++)
        if (ls_model_variable_is_trainable(model, i))
            variables[count++] = ls_model_variable(model, i);
    OK(ls_gradients(loss, variables, count, gradients));
    ls_tensor *parts[3] = { ls_apply_gradients(ls_adam(), gradients, variables, count, rate), trace.updates[0],
                            trace.updates[1] };
    ls_tensor *step = ls_op_group(parts, 3), *fetches[] = { loss, step };
    OK(ls_graph_set_lanes(g, 5));
    ls_dataset *d = ls_batch(ls_shuffle(data(), SAMPLES, 4), 33, false);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        ls_rows *rows = NULL;
        const int64_t *list;
        int64_t samples;
        OK(ls_rows_create(d, epoch, &rows));
        for (;;) {
            OK(ls_rows_next(rows, &list, &samples));
            if (samples == 0)
                break;
            const ls_element *base = ls_rows_base(rows);
            ls_feed feeds[] = { { x, base->component[0] },
                                { y, base->component[1] },
                                { rate, ls_array_of(LS_F32, LS_SCALAR, &(float){ 0.001f }) } };
            OK(ls_eval_rows(g, feeds, 3, list, samples, fetches, 2));
        }
        ls_rows_destroy(rows);
    }
    ls_dataset_destroy(d);
    free(trace.updates);
    *loss_out = loss;
}

static void a_loop_by_hand_gives_the_bits_of_fit(void **state)
{
    (void)state;
    char one[65], other[65];
    ls_context *ctx = open_context(1, 2);
    ls_model *model = cnn(ctx, ls_adam()), *hand = cnn(ctx, ls_adam());
    ls_dataset *d = data();
    ls_tensor *loss;
    OK(ls_fit(model, d, .epochs = 3, .batch_size = 33, .lanes = 5, .seed = 4, .verbose = LS_VERBOSE_SILENT));
    fit_by_hand(hand, &loss);
    OK(ls_model_weights_sha256(model, one));
    OK(ls_model_weights_sha256(hand, other));
    assert_string_equal(one, other);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_model_destroy(hand);
    ls_context_close(ctx);
}

static void it_learns_and_counts_every_sample_once(void **state)
{
    (void)state;
    ls_context *ctx = open_context(0, 0);
    ls_model *model = cnn(ctx, ls_adam(.learning_rate = 0.01));
    ls_dataset *d = data();
    ls_results results;
    ls_history *history = NULL;
    OK(ls_fit(model, d, .epochs = 20, .batch_size = 32, .verbose = LS_VERBOSE_SILENT, .validation_split = 0.2,
              .history = &history));
    assert_int_equal(ls_history_epochs(history), 20);
    assert_int_equal(ls_history_count(history), 4);
    double first, last;
    OK(ls_history_value(history, "loss", 0, &first));
    OK(ls_history_value(history, "loss", 19, &last));
    assert_true(last < first / 2);
    OK(ls_history_value(history, "val_accuracy", 19, &last));
    assert_true(last > 0.9);
    ls_history_destroy(history);
    OK(ls_evaluate(model, d, &results, .batch_size = 7));
    assert_int_equal(results.samples, SAMPLES);
    assert_string_equal(results.names[0], "loss");
    assert_true(results.values[1] > 0.9 && results.values[1] <= 1);
    double other = results.values[0];
    OK(ls_evaluate(model, d, &results, .batch_size = 100));
    assert_true(fabs(results.values[0] - other) < 1e-5);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void predictions_are_in_order(void **state)
{
    (void)state;
    ls_context *ctx = open_context(0, 0);
    ls_model *model = NULL; /* never compiled */
    OK(ls_sequential(ctx, "m", &model, ls_input(SIDE, SIDE, 1), ls_conv2d(5, 3, .activation = LS_RELU), ls_flatten(),
                     ls_dropout(0.5), ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    ls_dataset *d = data();
    ls_array all = { .data = NULL }, some = { .data = NULL };
    OK(ls_predict(model, d, &all, .batch_size = 100));
    OK(ls_predict(model, d, &some, .batch_size = 9));
    assert_int_equal(all.shape.dims[0], SAMPLES);
    assert_int_equal(all.shape.dims[1], CLASSES);
    for (int i = 0; i < SAMPLES * CLASSES; i++)
        assert_true(fabsf(((float *)all.data)[i] - ((float *)some.data)[i]) < 1e-5f);
    free(all.data);
    free(some.data);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Callbacks ---- */

typedef struct seen {
    int train_begins, epochs, batches, train_ends;
    int64_t samples;
    int stop_at;
} seen;

static ls_status on_begin(void *user, ls_model *model)
{
    (void)model;
    ((seen *)user)->train_begins++;
    return LS_OK;
}

static ls_status on_batch(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    seen *s = user;
    (void)model;
    s->batches++;
    s->samples = logs->samples;
    *stop = s->batches == s->stop_at;
    return LS_OK;
}

static ls_status on_epoch(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    (void)model, (void)stop;
    assert_string_equal(logs->names[0], "loss");
    ((seen *)user)->epochs++;
    return LS_OK;
}

static ls_status on_end(void *user, ls_model *model, const ls_logs *logs)
{
    (void)model, (void)logs;
    ((seen *)user)->train_ends++;
    return LS_OK;
}

static void callbacks_see_and_stop(void **state)
{
    (void)state;
    seen s = { .stop_at = 0 };
    const ls_callback callback = { .user = &s,
                                   .on_train_begin = on_begin,
                                   .on_batch_end = on_batch,
                                   .on_epoch_end = on_epoch,
                                   .on_train_end = on_end };
    ls_context *ctx = open_context(0, 0);
    ls_model *model = cnn(ctx, ls_sgd(.momentum = 0.9));
    ls_dataset *d = data();
    OK(ls_fit(model, d, .epochs = 2, .batch_size = 32, .verbose = LS_VERBOSE_SILENT, .callbacks = &callback,
              .callback_count = 1));
    assert_int_equal(s.batches, 8);
    assert_int_equal(s.samples, SAMPLES);
    assert_int_equal(s.epochs, 2);
    assert_int_equal(s.train_begins + s.train_ends, 2);
    s = (seen){ .stop_at = 3 };
    OK(ls_fit(model, d, .epochs = 5, .batch_size = 32, .verbose = LS_VERBOSE_SILENT, .callbacks = &callback,
              .callback_count = 1));
    assert_int_equal(s.batches, 3);
    assert_int_equal(s.epochs, 1);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Progress and logs ---- */

static char *read_back(FILE *file)
{
    long size = ftell(file);
    char *text = calloc((size_t)size + 1, 1);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    return text;
}

static void progress_is_keras_like(void **state)
{
    (void)state;
    ls_context *ctx = open_context(0, 0);
    ls_model *model = cnn(ctx, ls_adam());
    ls_dataset *d = data();
    FILE *file = tmpfile();
    OK(ls_fit(model, d, .epochs = 2, .batch_size = 32, .output = file, .validation = d));
    char *text = read_back(file);
    assert_non_null(strstr(text, "Epoch 1/2\n4/4 - "));
    assert_non_null(strstr(text, "Epoch 2/2\n4/4 - "));
    const char *accuracy = strstr(text, " - accuracy: "), *loss = strstr(text, " - loss: ");
    assert_true(accuracy && loss && accuracy < loss && strstr(loss, " - val_accuracy: ") &&
                strstr(loss, " - val_loss: "));
    free(text);
    rewind(file);
    setenv("LC_ALL", "C.UTF-8", 1);
    OK(ls_fit(model, d, .epochs = 1, .batch_size = 32, .output = file, .verbose = LS_VERBOSE_BAR));
    text = read_back(file);
    assert_non_null(strstr(text, "\r4/4 \u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501"));
    free(text);
    fclose(file);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void logs_are_json_lines(void **state)
{
    (void)state;
    char path[] = "/tmp/lockstep-log-XXXXXX", line[4096], hex[65];
    int descriptor = mkstemp(path), lines = 0;
    assert_true(descriptor >= 0);
    ls_context *ctx = open_context(0, 0);
    ls_model *model = cnn(ctx, ls_adam());
    ls_dataset *d = data();
    OK(ls_fit(model, d, .epochs = 2, .batch_size = 32, .verbose = LS_VERBOSE_SILENT, .log = path, .log_hash = true));
    OK(ls_model_weights_sha256(model, hex));
    FILE *file = fopen(path, "r");
    const char *events[] = { "start", "step", "step", "step", "step",  "epoch",
                             "step",  "step", "step", "step", "epoch", "end" };
    while (fgets(line, sizeof(line), file)) {
        json_error_t error;
        json_t *json = json_loads(line, 0, &error);
        assert_non_null(json);
        assert_true(lines < 12);
        assert_string_equal(json_string_value(json_object_get(json, "event")), events[lines]);
        if (lines == 1)
            assert_int_equal(strlen(json_string_value(json_object_get(json, "hash"))), 64);
        if (lines == 5)
            assert_int_equal(json_integer_value(json_object_get(json, "samples")), SAMPLES);
        if (lines == 11)
            assert_string_equal(json_string_value(json_object_get(json, "weights_sha256")), hex);
        json_decref(json);
        lines++;
    }
    assert_int_equal(lines, 12);
    fclose(file);
    remove(path);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- What is refused ---- */

static void not_finite_stops_before_the_update(void **state)
{
    (void)state;
    float x[8] = { 1, 2, 3, INFINITY, 5, 6, 7, 8 }, y[8] = { 0 };
    char before[65], after[65];
    ls_context *ctx = open_context(0, 0);
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "line", &model, ls_input(1), ls_dense(3, .activation = LS_TANH), ls_dense(1)));
    OK(ls_compile(model, .optimizer = ls_sgd(), .loss = ls_mean_squared_error()));
    OK(ls_model_weights_sha256(model, before));
    ls_status status =
        ls_fit_arrays(model, ls_array_of(LS_F32, LS_SHAPE(8, 1), x), ls_array_of(LS_F32, LS_SHAPE(8, 1), y),
                      .batch_size = 8, .verbose = LS_VERBOSE_SILENT);
    assert_int_equal(status, LS_ERR_NOT_FINITE);
    assert_non_null(strstr(ls_last_error(), "dense/kernel"));
    assert_non_null(strstr(ls_last_error(), "step 1"));
    OK(ls_model_weights_sha256(model, after));
    assert_string_equal(before, after);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    ls_context *ctx = open_context(0, 0);
    ls_model *model = NULL;
    ls_dataset *d = data();
    ls_results results;
    OK(ls_sequential(ctx, "m", &model, ls_input(SIDE, SIDE, 1), ls_flatten(), ls_dense(CLASSES)));
    assert_int_equal(ls_fit(model, d, .epochs = 1), LS_ERR_STATE);              /* not compiled */
    assert_int_equal(ls_compile(model, .optimizer = ls_sgd()), LS_ERR_INVALID); /* no loss */
    OK(ls_compile(model, .loss = ls_sparse_categorical_crossentropy(.from_logits = true)));
    assert_int_equal(ls_fit(model, d, .verbose = LS_VERBOSE_SILENT), LS_ERR_STATE); /* no optimizer */
    OK(ls_evaluate(model, d, &results));
    OK(ls_compile(model, .optimizer = ls_sgd(), .loss = ls_sparse_categorical_crossentropy(.from_logits = true)));
    assert_int_equal(ls_fit(model, d, .epochs = -1), LS_ERR_INVALID);
    assert_int_equal(ls_fit(model, d, .validation_split = 1.5), LS_ERR_INVALID);
    assert_int_equal(ls_fit(model, d, .validation_split = 0.5, .validation = d), LS_ERR_INVALID);
    assert_int_equal(ls_fit(model, d, .strategy = ls_mirrored(.devices = "cpu:7")), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_fit(model, d, .strategy = ls_mirrored(.devices = "gpu:0")), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_fit(model, NULL, .epochs = 1), LS_ERR_INVALID);
    labels[3] = 9;
    ls_status status = ls_fit(model, d, .batch_size = 10, .keep_order = true, .verbose = LS_VERBOSE_SILENT);
    labels[3] = 3 * 7 % CLASSES;
    assert_int_equal(status, LS_ERR_DATA);
    assert_non_null(strstr(ls_last_error(), "label 9 of row 3"));
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void class_weights_weigh(void **state)
{
    (void)state;
    const double weights[CLASSES] = { 1, 0, 0, 0 };
    ls_context *ctx = open_context(0, 0);
    ls_model *model = NULL;
    ls_dataset *d = data();
    ls_history *history = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(SIDE, SIDE, 1), ls_flatten(), ls_dense(CLASSES)));
    OK(ls_compile(model, .optimizer = ls_adam(.learning_rate = 0.05),
                  .loss = ls_sparse_categorical_crossentropy(.from_logits = true),
                  .metrics = ls_metrics(ls_accuracy())));
    OK(ls_fit(model, d, .epochs = 30, .batch_size = 50, .verbose = LS_VERBOSE_SILENT, .class_weights = weights,
              .class_count = CLASSES, .history = &history));
    double accuracy;
    OK(ls_history_value(history, "accuracy", 29, &accuracy));
    assert_true(accuracy < 0.35); /* only class 0 counted: everything is called that */
    ls_history_destroy(history);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static int set_up(void **state)
{
    (void)state;
    make_data();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_on_any_devices),
        cmocka_unit_test(a_loop_by_hand_gives_the_bits_of_fit),
        cmocka_unit_test(it_learns_and_counts_every_sample_once),
        cmocka_unit_test(predictions_are_in_order),
        cmocka_unit_test(callbacks_see_and_stop),
        cmocka_unit_test(progress_is_keras_like),
        cmocka_unit_test(logs_are_json_lines),
        cmocka_unit_test(not_finite_stops_before_the_update),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(class_weights_weigh),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
