/* The calls around fit: evaluate and predict on arrays and with options, one step by hand, several
 * outputs, a learning rate that is set, names that are copied. Each against a loop by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "base/status.h"
#include "lockstep.h"
#include "machine.h"
#include "samples.h"

#define SAMPLES 60
#define WIDTH   6
#define CLASSES 3

static float x[SAMPLES * WIDTH], amounts[SAMPLES], weights[SAMPLES];
static int32_t kinds[SAMPLES];

static void make_data(void)
{
    samples_fill_floats(x, kinds, SAMPLES, WIDTH, CLASSES);
    for (int s = 0; s < SAMPLES; s++) {
        weights[s] = (float)(1 + s % 4) / 2;
        amounts[s] = x[s * WIDTH] - 0.5F * x[s * WIDTH + 1];
    }
}

static ls_array features(int64_t from, int64_t count)
{
    return ls_array_of(LS_F32, LS_SHAPE(count, WIDTH), x + from * WIDTH);
}

static ls_array labels(int64_t from, int64_t count)
{
    return ls_array_of(LS_I32, LS_SHAPE(count), kinds + from);
}

static ls_array targets(int64_t from, int64_t count)
{
    return ls_array_of(LS_F32, LS_SHAPE(count), amounts + from);
}

static ls_model *classifier(ls_context *ctx, ls_optimizer optimizer)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(WIDTH), ls_dense(8, .activation = LS_RELU), ls_dropout(0.25),
                     ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    OK(ls_compile(model, .optimizer = optimizer, .loss = ls_sparse_categorical_crossentropy(),
                  .metrics = ls_metrics(ls_accuracy())));
    return model;
}

/* ---- Arrays, and options of predict ---- */

static void arrays_work_like_datasets(void **state)
{
    (void)state;
    ls_context *ctx = open_two_cpus();
    ls_model *model = classifier(ctx, ls_adam());
    ls_dataset *d = ls_from_tensor_slices(features(0, SAMPLES), labels(0, SAMPLES));
    ls_results from_data, from_arrays;
    ls_array p[4];
    OK(ls_evaluate(model, d, &from_data, .batch_size = 16));
    OK(ls_evaluate_arrays(model, features(0, SAMPLES), labels(0, SAMPLES), &from_arrays, .batch_size = 16));
    assert_true(from_data.count == 2 && from_arrays.count == 2 && from_arrays.samples == SAMPLES);
    for (size_t i = 0; i < 2; i++)
        assert_true(from_data.values[i] == from_arrays.values[i]);
    OK(ls_predict(model, d, &p[0]));
    OK(ls_predict(model, d, &p[1], .batch_size = 7, .lanes = 3, .strategy = ls_one_device(.devices = "cpu:1")));
    OK(ls_predict_array(model, features(0, SAMPLES), &p[2], .strategy = ls_mirrored(.devices = "cpu:0,cpu:1")));
    OK(ls_predict_array(model, features(0, 10), &p[3], .batch_size = 3));
    assert_true(p[2].shape.rank == 2 && p[2].shape.dims[0] == SAMPLES && p[2].shape.dims[1] == CLASSES);
    assert_true(p[3].shape.dims[0] == 10);
    for (int i = 1; i < 4; i++) {
        assert_memory_equal(p[0].data, p[i].data, (size_t)p[i].shape.dims[0] * CLASSES * sizeof(float));
        free(p[i].data);
    }
    free(p[0].data);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void predictions_show_progress_and_refuse_nonsense(void **state)
{
    (void)state;
    ls_context *ctx = open_two_cpus();
    ls_model *model = classifier(ctx, ls_adam());
    ls_array out = { .data = NULL };
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    OK(ls_predict_array(model, features(0, 10), &out, .batch_size = 3, .verbose = LS_VERBOSE_LINES, .output = file));
    fclose(file);
    assert_non_null(strstr(text, "4/4"));
    free(text);
    free(out.data);
    out.data = NULL;
    assert_int_equal(ls_predict_array(model, features(0, 10), NULL, .batch_size = 3), LS_ERR_INVALID);
    assert_int_equal(ls_predict_array(model, features(0, 10), &out, .batch_size = -1), LS_ERR_INVALID);
    assert_int_equal(ls_predict_array(model, features(0, 10), &out, .lanes = -1), LS_ERR_INVALID);
    assert_int_equal(ls_predict_array(model, features(0, 10), &out, .index = 1), LS_ERR_INVALID);
    assert_int_equal(ls_predict_array(model, features(0, 10), &out, .strategy = ls_one_device(.devices = "cpu:9")),
                     LS_ERR_NOT_FOUND);
    assert_null(out.data);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- One step by hand ---- */

static void steps_by_hand_are_those_of_fit(void **state)
{
    (void)state;
    char hashes[2][65];
    ls_results results, epoch = { .count = 0 };
    double sum = 0;
    ls_history *history = NULL;
    ls_context *ctx = open_two_cpus();
    ls_model *model = classifier(ctx, ls_adam());
    OK(ls_fit_arrays(model, features(0, SAMPLES), labels(0, SAMPLES), .batch_size = 25, .keep_order = true, .lanes = 4,
                     .verbose = LS_VERBOSE_SILENT, .history = &history));
    OK(ls_model_state_sha256(model, hashes[0]));
    ls_model_destroy(model);
    model = classifier(ctx, ls_adam());
    for (int64_t from = 0; from < SAMPLES; from += 25) {
        int64_t count = SAMPLES - from < 25 ? SAMPLES - from : 25, step;
        OK(ls_train_on_batch(model, features(from, count), labels(from, count), &results, .lanes = 4));
        OK(ls_model_steps(model, &step));
        assert_true(step == from / 25 + 1 && results.samples == count && results.count == 2);
        sum += results.values[0] * (double)count;
    }
    OK(ls_model_state_sha256(model, hashes[1]));
    assert_string_equal(hashes[0], hashes[1]);
    OK(ls_history_value(history, "loss", 0, &epoch.values[0]));
    assert_true(sum / SAMPLES == epoch.values[0]);
    assert_int_equal(ls_train_on_batch(model, features(0, 5), labels(0, 4), &results), LS_ERR_SHAPE);
    assert_int_equal(ls_train_on_batch(model, features(0, 5), labels(0, 5), .class_count = 3), LS_ERR_INVALID);
    OK(ls_model_state_sha256(model, hashes[0]));
    assert_string_equal(hashes[0], hashes[1]);
    ls_history_destroy(history);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* Weights of samples and of classes are two ways to say the same: other data, the same slots. */
static void batches_may_be_of_several_kinds(void **state)
{
    (void)state;
    const double classes[] = { 1, 2, 0.5 };
    float by_class[SAMPLES];
    char hashes[2][65];
    for (int s = 0; s < SAMPLES; s++)
        by_class[s] = (float)classes[kinds[s]];
    ls_context *ctx = open_two_cpus();
    for (int way = 0; way < 2; way++) {
        ls_model *model = classifier(ctx, ls_sgd(.momentum = 0.9));
        OK(ls_train_on_batch(model, features(0, 20), labels(0, 20), .lanes = 4));
        if (way)
            OK(ls_train_on_batch(model, features(20, 20), labels(20, 20), .lanes = 4,
                                 .sample_weights = ls_array_of(LS_F32, LS_SHAPE(20), by_class + 20)));
        else
            OK(ls_train_on_batch(model, features(20, 20), labels(20, 20), .lanes = 4, .class_weights = classes,
                                 .class_count = CLASSES));
        OK(ls_train_on_batch(model, features(40, 20), labels(40, 20), .lanes = 4));
        OK(ls_model_state_sha256(model, hashes[way]));
        ls_model_destroy(model);
    }
    assert_string_equal(hashes[0], hashes[1]);
    ls_context_close(ctx);
}

static ls_status trains(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    (void)user, (void)logs, (void)stop;
    assert_int_equal(ls_train_on_batch(model, features(0, 5), labels(0, 5), .lanes = 1), LS_ERR_STATE);
    return LS_OK;
}

static void a_step_inside_a_fit_is_refused(void **state)
{
    (void)state;
    const ls_callback callback = { .on_batch_end = trains };
    ls_context *ctx = open_two_cpus();
    ls_model *model = classifier(ctx, ls_adam());
    OK(ls_fit_arrays(model, features(0, SAMPLES), labels(0, SAMPLES), .verbose = LS_VERBOSE_SILENT,
                     .callbacks = &callback, .callback_count = 1));
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Several outputs ---- */

static ls_model *two_outputs(ls_context *ctx)
{
    ls_model *model = NULL;
    OK(ls_functional_begin(ctx, "two", &model));
    ls_symbol in = ls_symbol_input(model, ls_input(WIDTH, .name = "x"));
    ls_symbol h = ls_symbol_call(model, ls_dense(8, .activation = LS_SILU, .kernel_regularizer = { .l2 = 0.01 }), in);
    ls_symbol kind = ls_symbol_call(model, ls_dense(CLASSES, .activation = LS_SOFTMAX, .name = "kind"), h);
    ls_symbol amount = ls_symbol_call(model, ls_dense(1, .name = "amount"), h);
    OK(ls_functional_end(model, kind, amount));
    return model;
}

#define BATCH 20
#define LANES 4

/* The same steps in the library's other calls: returns what an epoch would report of each step's
 * loss parts. */
static void train_two_by_hand(ls_model *model, ls_loss first, ls_loss second, double by, double *total, double *parts)
{
    ls_graph *g = ls_model_graph(model);
    OK(ls_graph_set_lanes(g, LANES));
    LS_SCOPE(g)
    {
        ls_tensor *in = ls_op_input(g, NULL, LS_F32, LS_SHAPE(LS_BATCH, WIDTH)), *out[2], *variables[8];
        ls_tensor *label = ls_op_input(g, NULL, LS_I32, LS_SHAPE(LS_BATCH)), *gradients[8];
        ls_tensor *target = ls_op_input(g, NULL, LS_F32, LS_SHAPE(LS_BATCH));
        ls_tensor *weight = ls_op_input(g, NULL, LS_F32, LS_SHAPE(LS_BATCH));
        ls_trace trace;
        OK(ls_model_trace(model, &in, true, out, &trace));
        ls_tensor *a = ls_loss_value(first, label, out[0], weight), *b = ls_loss_value(second, target, out[1], weight);
        ls_tensor *loss = ls_op_add(ls_op_add(a, ls_op_scale(b, by)), trace.regularization);
        size_t count = ls_model_variable_count(model);
        for (size_t i = 0; i < count; i++)
            variables[i] = ls_model_variable(model, i);
        OK(ls_gradients(loss, variables, count, gradients));
        ls_tensor *step = ls_apply_gradients(ls_adam(), gradients, variables, count, NULL);
        free(trace.updates);
        for (int64_t from = 0; from < SAMPLES; from += BATCH) {
            const ls_feed feeds[] = { { in, features(from, BATCH) },
                                      { label, labels(from, BATCH) },
                                      { target, targets(from, BATCH) },
                                      { weight, ls_array_of(LS_F32, LS_SHAPE(BATCH), weights + from) } };
            double values[3];
            OK(ls_eval(g, feeds, 4, (ls_tensor *[]){ loss, a, b, step }, 4));
            OK(ls_read_scalar(loss, &values[0]));
            OK(ls_read_scalar(a, &values[1]));
            OK(ls_read_scalar(b, &values[2]));
            *total += values[0] * BATCH / SAMPLES;
            parts[0] += values[1] * BATCH / SAMPLES;
            parts[1] += values[2] * BATCH / SAMPLES;
        }
    }
}

static double value_of(const ls_history *history, const char *name)
{
    double value;
    OK(ls_history_value(history, name, 0, &value));
    return value;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static ls_dataset *two_targets(void)
{
    return ls_from_tensor_slices(features(0, SAMPLES), .weights = ls_array_of(LS_F32, LS_SHAPE(SAMPLES), weights),
                                 .targets = (const ls_array[]){ labels(0, SAMPLES), targets(0, SAMPLES) },
                                 .target_count = 2);
}

static void several_outputs_are_trained_together(void **state)
{
    (void)state;
    char hashes[2][65];
    double total = 0, parts[2] = { 0 };
    ls_history *history = NULL;
    ls_results results;
    ls_context *ctx = open_two_cpus();
    ls_model *model = two_outputs(ctx);
    train_two_by_hand(model, ls_sparse_categorical_crossentropy(), ls_mean_squared_error(), 0.3, &total, parts);
    OK(ls_model_weights_sha256(model, hashes[0]));
    ls_model_destroy(model);
    model = two_outputs(ctx);
    ls_dataset *d = two_targets();
    OK(ls_compile(model, .optimizer = ls_adam(),
                  .outputs =
                      ls_outputs({ .loss = ls_sparse_categorical_crossentropy(), .metrics = ls_metrics(ls_accuracy()) },
                                 { .loss = ls_mean_squared_error(),
                                   .weight = 0.3,
                                   .metrics = ls_metrics(ls_metric_of(LS_METRIC_MEAN_ABSOLUTE_ERROR)) })));
    OK(ls_fit(model, d, .batch_size = BATCH, .lanes = LANES, .keep_order = true, .verbose = LS_VERBOSE_SILENT,
              .history = &history, .validation = d));
    OK(ls_model_weights_sha256(model, hashes[1]));
    assert_string_equal(hashes[0], hashes[1]);
    const char *names[] = { "loss", "kind_loss", "amount_loss", "kind_accuracy", "amount_mean_absolute_error" };
    assert_true(ls_history_count(history) == 10);
    OK(ls_evaluate(model, d, &results, .batch_size = BATCH, .lanes = LANES));
    assert_true(results.count == 5);
    for (size_t i = 0; i < 5; i++) {
        char with_val[64];
        snprintf(with_val, sizeof(with_val), "val_%s", names[i]);
        assert_string_equal(ls_history_name(history, i), names[i]);
        assert_string_equal(results.names[i], names[i]);
        assert_true(results.values[i] == value_of(history, with_val));
    }
    assert_true(near(value_of(history, "loss"), total));
    assert_true(near(value_of(history, "kind_loss"), parts[0]));
    assert_true(near(value_of(history, "amount_loss"), parts[1]));
    ls_history_destroy(history);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* A loss for all, one alone, and what makes no sense. */
static void outputs_are_checked(void **state)
{
    (void)state;
    ls_results results;
    ls_context *ctx = open_two_cpus();
    ls_model *model = two_outputs(ctx);
    ls_array none = { .data = NULL }, p = { .data = NULL };
    const ls_array both[] = { targets(0, 10), targets(0, 10) };
    assert_int_equal(ls_compile(model, .optimizer = ls_adam(), .loss = ls_mean_squared_error(),
                                .metrics = ls_metrics(ls_accuracy())),
                     LS_ERR_INVALID); /* which output's accuracy is ambiguous */
    assert_int_equal(ls_compile(model, .outputs = ls_outputs({ .loss = ls_mean_squared_error() })), LS_ERR_INVALID);
    assert_int_equal(ls_compile(model, .outputs = ls_outputs({ .weight = 1 }, { .weight = 1 })), LS_ERR_INVALID);
    assert_int_equal(ls_compile(model, .outputs = ls_outputs({ .loss = ls_mean_squared_error(), .weight = -1 },
                                                             { .loss = ls_mean_squared_error() })),
                     LS_ERR_INVALID);
    /* Only the second output is trained: the first has no label, and names are those of one. */
    OK(ls_compile(model, .optimizer = ls_adam(),
                  .outputs = ls_outputs({ .weight = 0 }, { .loss = ls_mean_squared_error() })));
    OK(ls_train_on_batch(model, features(0, 10), targets(0, 10), &results));
    assert_true(results.count == 1 && strcmp(results.names[0], "loss") == 0);
    OK(ls_predict_array(model, features(0, 10), &p, .index = 1));
    assert_true(p.shape.rank == 2 && p.shape.dims[1] == 1);
    free(p.data);
    OK(ls_predict_array(model, features(0, 10), &p));
    assert_true(p.shape.dims[1] == CLASSES);
    free(p.data);
    OK(ls_compile(model, .optimizer = ls_adam(),
                  .loss = ls_mean_absolute_error())); /* the loss is that of each output */
    assert_int_equal(ls_train_on_batch(model, features(0, 10), targets(0, 10), &results), LS_ERR_SHAPE);
    assert_int_equal(ls_train_on_batch(model, features(0, 10), none, &results, .targets = both, .target_count = 2),
                     LS_ERR_SHAPE); /* three classes against one number */
    assert_non_null(ls_last_error());
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- The learning rate ---- */

static ls_status halves(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    double rate, *seen = user;
    (void)stop;
    LS_TRY(ls_learning_rate(model, &rate));
    seen[logs->step] = rate;
    return ls_set_learning_rate(model, rate / 2);
}

static void a_callback_may_set_the_rate(void **state)
{
    (void)state;
    char hashes[2][65];
    double seen[8] = { 0 }, rate;
    const ls_callback callback = { .user = seen, .on_batch_end = halves };
    ls_context *ctx = open_two_cpus();
    ls_model *model = classifier(ctx, ls_sgd(.learning_rate = 0.5, .momentum = 0.9));
    OK(ls_fit_arrays(model, features(0, SAMPLES), labels(0, SAMPLES), .batch_size = BATCH, .keep_order = true,
                     .verbose = LS_VERBOSE_SILENT, .callbacks = &callback, .callback_count = 1));
    OK(ls_model_state_sha256(model, hashes[0]));
    assert_true(seen[1] == 0.5 && seen[2] == 0.25 && seen[3] == 0.125);
    OK(ls_learning_rate(model, &rate));
    assert_true(rate == 0.0625);
    ls_model_destroy(model);
    /* The same rates by a schedule: it cannot be set. */
    model = classifier(ctx, ls_sgd(.schedule = ls_exponential_decay(0.5, 1, 0.5, false), .momentum = 0.9));
    assert_int_equal(ls_set_learning_rate(model, 0.1), LS_ERR_STATE);
    assert_int_equal(ls_set_learning_rate(model, NAN), LS_ERR_INVALID);
    OK(ls_fit_arrays(model, features(0, SAMPLES), labels(0, SAMPLES), .batch_size = BATCH, .keep_order = true,
                     .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_state_sha256(model, hashes[1]));
    assert_string_equal(hashes[0], hashes[1]);
    OK(ls_learning_rate(model, &rate));
    assert_true(rate == 0.0625);
    OK(ls_compile(model, .loss = ls_sparse_categorical_crossentropy()));
    assert_int_equal(ls_learning_rate(model, &rate), LS_ERR_STATE);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* A table by batch size is asked with the batch size of this fit, not of the first. */
static void rates_by_batch_size_follow_the_batch(void **state)
{
    (void)state;
    double rate;
    ls_context *ctx = open_two_cpus();
    const ls_schedule table = ls_rates_by_batch_size((const int64_t[]){ 20, 30 }, (const double[]){ 0.25, 0.5 }, 2);
    ls_model *model = classifier(ctx, ls_sgd(.schedule = table));
    for (int64_t batch = 20; batch <= 30; batch += 10) {
        OK(ls_fit_arrays(model, features(0, SAMPLES), labels(0, SAMPLES), .batch_size = batch,
                         .verbose = LS_VERBOSE_SILENT));
        OK(ls_learning_rate(model, &rate));
        assert_true(rate == (batch == 20 ? 0.25 : 0.5));
    }
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Averages of weights ---- */

static void fit_averages(ls_model *model, ls_history **history)
{
    OK(ls_fit_arrays(model, features(0, SAMPLES), labels(0, SAMPLES), .batch_size = 20, .epochs = 2,
                     .validation_split = 0.25, .history = history, .verbose = LS_VERBOSE_SILENT));
}

/* Validation uses the averages, and the model has them in the end. */
static void averages_are_validated_and_kept(void **state)
{
    (void)state;
    float weight[WIDTH * 8], average[WIDTH * 8], plain[WIDTH * 8];
    double validated;
    ls_results results;
    ls_tensor *found = NULL;
    ls_history *history = NULL;
    ls_context *ctx = open_two_cpus();
    ls_model *model = classifier(ctx, ls_adam(.learning_rate = 0.1, .use_ema = true, .ema_momentum = 0.9));
    ls_model *other = classifier(ctx, ls_adam(.learning_rate = 0.1));
    fit_averages(model, &history);
    OK(ls_graph_find(ls_model_graph(model), "adam/dense/kernel/average", &found));
    OK(ls_variable_get(found, average, sizeof(average)));
    OK(ls_variable_get(ls_model_variable(model, 0), weight, sizeof(weight)));
    assert_memory_equal(weight, average, sizeof(weight));
    OK(ls_history_value(history, "val_loss", 1, &validated));
    ls_history_destroy(history);
    OK(ls_evaluate_arrays(model, features(45, 15), labels(45, 15), &results, .batch_size = 20));
    assert_true(fabs(results.values[0] - validated) < 1e-6);
    fit_averages(other, NULL);
    OK(ls_variable_get(ls_model_variable(other, 0), plain, sizeof(plain)));
    assert_memory_not_equal(plain, weight, sizeof(plain));
    ls_model_destroy(other);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* A checkpoint has the variables themselves: a resumed fit has the bits of an uninterrupted one. */
static void averages_resume_bit_for_bit(void **state)
{
    (void)state;
    char folder[] = "/tmp/lockstep-averages-XXXXXX", hash[3][65];
    assert_non_null(mkdtemp(folder));
    ls_context *ctx = open_two_cpus();
    for (int part = 0; part < 3; part++) { /* two epochs at once; the first; the second after it */
        ls_model *model = classifier(ctx, ls_sgd(.learning_rate = 0.1, .use_ema = true, .ema_overwrite_frequency = 4));
        OK(ls_fit_arrays(model, features(0, SAMPLES), labels(0, SAMPLES), .batch_size = 20, .epochs = part == 1 ? 1 : 2,
                         .checkpoint = part ? folder : NULL, .resume = part == 2 ? folder : NULL,
                         .verbose = LS_VERBOSE_SILENT));
        OK(ls_model_weights_sha256(model, hash[part]));
        ls_model_destroy(model);
    }
    assert_string_equal(hash[0], hash[2]);
    assert_string_not_equal(hash[0], hash[1]);
    ls_context_close(ctx);
    char command[80];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- Confusion ---- */

static void confusion_counts_every_sample(void **state)
{
    (void)state;
    double matrix[CLASSES * CLASSES], hits = 0;
    ls_results results;
    ls_array predictions;
    ls_context *ctx = open_two_cpus();
    ls_model *model = classifier(ctx, ls_adam());
    assert_int_equal(ls_evaluate_arrays(model, features(0, SAMPLES), labels(0, SAMPLES), &results, .confusion = matrix,
                                        .confusion_count = CLASSES * CLASSES),
                     LS_ERR_INVALID);
    OK(ls_compile(model, .loss = ls_sparse_categorical_crossentropy(),
                  .metrics = ls_metrics(ls_accuracy(), { .kind = LS_METRIC_CONFUSION })));
    assert_int_equal(ls_evaluate_arrays(model, features(0, SAMPLES), labels(0, SAMPLES), &results, .confusion = matrix,
                                        .confusion_count = 4),
                     LS_ERR_INVALID);
    OK(ls_evaluate_arrays(model, features(0, SAMPLES), labels(0, SAMPLES), &results, .confusion = matrix,
                          .confusion_count = CLASSES * CLASSES, .batch_size = 7));
    OK(ls_predict_array(model, features(0, SAMPLES), &predictions));
    for (int s = 0; s < SAMPLES; s++) {
        const float *p = (const float *)predictions.data + (ptrdiff_t)s * CLASSES;
        int best = p[1] > p[0] ? 1 : 0;
        best = p[2] > p[best] ? 2 : best;
        matrix[kinds[s] * CLASSES + best] -= 1;
        hits += best == kinds[s];
    }
    for (int i = 0; i < CLASSES * CLASSES; i++)
        assert_true(matrix[i] == 0);
    assert_true(results.values[1] == hits / SAMPLES && results.values[2] == hits / SAMPLES);
    free(predictions.data);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Names ---- */

static void names_are_copied(void **state)
{
    (void)state;
    char metric[] = "hits", optimizer[] = "mine";
    ls_results results;
    ls_tensor *found = NULL;
    ls_context *ctx = open_two_cpus();
    ls_model *model = classifier(ctx, ls_adam());
    OK(ls_compile(model, .optimizer = ls_adam(.name = optimizer), .loss = ls_sparse_categorical_crossentropy(),
                  .metrics = ls_metrics({ .kind = LS_METRIC_ACCURACY, .name = metric })));
    memset(metric, '!', sizeof(metric) - 1);
    memset(optimizer, '!', sizeof(optimizer) - 1);
    OK(ls_train_on_batch(model, features(0, 10), labels(0, 10), &results));
    assert_string_equal(results.names[1], "hits");
    OK(ls_graph_find(ls_model_graph(model), "mine/iterations", &found));
    assert_int_equal(ls_graph_find(ls_model_graph(model), "!!!!/iterations", &found), LS_ERR_NOT_FOUND);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

int main(void)
{
    make_data();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_work_like_datasets),
        cmocka_unit_test(predictions_show_progress_and_refuse_nonsense),
        cmocka_unit_test(steps_by_hand_are_those_of_fit),
        cmocka_unit_test(batches_may_be_of_several_kinds),
        cmocka_unit_test(a_step_inside_a_fit_is_refused),
        cmocka_unit_test(several_outputs_are_trained_together),
        cmocka_unit_test(outputs_are_checked),
        cmocka_unit_test(a_callback_may_set_the_rate),
        cmocka_unit_test(rates_by_batch_size_follow_the_batch),
        cmocka_unit_test(names_are_copied),
        cmocka_unit_test(averages_are_validated_and_kept),
        cmocka_unit_test(averages_resume_bit_for_bit),
        cmocka_unit_test(confusion_counts_every_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
