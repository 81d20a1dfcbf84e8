/* Which samples a step of ls_fit sees, what weights of classes and samples make of them, and what
 * stays when a step fails. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lockstep.h"
#include "machine.h"

/* ---- The order of data ---- */

#define SAMPLES 10
#define BATCH   4
#define MOST    200

static float numbers[SAMPLES], doubled[SAMPLES];

/* Samples in the order in which they came. */
typedef struct record {
    int count, sample[MOST];
} record;

static ls_status note(void *user, const ls_element *in, ls_element *out)
{
    record *r = user;
    if (r->count < MOST)
        r->sample[r->count++] = (int)*(const float *)in->component[0].data;
    for (int i = 0; i < in->count; i++)
        *(float *)out->component[i].data = *(const float *)in->component[i].data;
    return LS_OK;
}

static ls_dataset *slices(void)
{
    return ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), numbers),
                                 ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), doubled));
}

static ls_dataset *noting(record *r)
{
    return ls_batch(ls_map(ls_shuffle(slices(), SAMPLES, 3), note, .user = r), BATCH, false);
}

/* The samples of one pass. */
static void walk(uint64_t epoch, record *r)
{
    ls_dataset *d = noting(r);
    ls_iterator *iterator = NULL;
    const ls_element *element = NULL;
    OK(ls_iterator_create(d, epoch, &iterator));
    do
        OK(ls_iterator_next(iterator, &element));
    while (element);
    ls_iterator_destroy(iterator);
    ls_dataset_destroy(d);
}

static void fit_line(ls_context *ctx, ls_dataset *d, ls_fit_options options, char hex[65])
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "line", &model, ls_input(1), ls_dense(1)));
    OK(ls_compile(model, .optimizer = ls_sgd(.learning_rate = 0.01), .loss = ls_mean_squared_error()));
    options.verbose = LS_VERBOSE_SILENT;
    options.batch_size = BATCH;
    options.seed = 3;
    OK(ls_fit_with(model, d, options));
    OK(ls_model_weights_sha256(model, hex));
    ls_model_destroy(model);
    ls_dataset_destroy(d);
}

/* The same samples in the same order, whether they are recorded by a map or taken as rows of the
 * arrays. */
static void assert_order(ls_fit_options options, const int *samples, int count)
{
    ls_context *ctx = open_two_cpus();
    record seen = { .count = 0 };
    char mapped[65], rows[65];
    fit_line(ctx, noting(&seen), options, mapped);
    fit_line(ctx, slices(), options, rows);
    assert_string_equal(mapped, rows);
    assert_true(seen.count >= count); /* a pass may have been read ahead */
    for (int i = 0; i < count; i++)
        if (seen.sample[i] != samples[i])
            fail_msg("sample %d of the training is %d, not %d", i, seen.sample[i], samples[i]);
    ls_context_close(ctx);
}

static void an_epoch_is_its_own_pass(void **state)
{
    (void)state;
    record r = { .count = 0 };
    walk(2, &r);
    walk(3, &r);
    assert_int_equal(r.count, 2 * SAMPLES);
    assert_order((ls_fit_options){ .initial_epoch = 2, .epochs = 4 }, r.sample, r.count);
}

/* Passes of 3 batches, epochs of 2 or 4 steps: passes go on from epoch to epoch. */
static void epochs_of_some_steps_continue_the_pass(void **state)
{
    (void)state;
    record r = { .count = 0 };
    for (uint64_t pass = 1; pass < 6; pass++)
        walk(pass, &r);
    assert_order((ls_fit_options){ .initial_epoch = 1, .epochs = 4, .steps_per_epoch = 2 }, r.sample, 2 * SAMPLES);
    assert_order((ls_fit_options){ .initial_epoch = 1, .epochs = 4, .steps_per_epoch = 4 }, r.sample, 4 * SAMPLES);
}

/* ---- Weights of classes and samples ---- */

#define ROWS    6
#define INPUTS  2
#define CLASSES 3

static const float x[ROWS][INPUTS] = { { 1, 2 }, { -1, 0.5f }, { 0.25f, -2 }, { 3, 1 }, { -0.5f, -1 }, { 2, -0.75f } };
static const int32_t label[ROWS] = { 0, 1, 2, 1, 0, 2 };
static const float sample_weight[ROWS] = { 1, 0.5f, 2, 0.25f, 3, 0 };
static const double class_weight[CLASSES] = { 0.5, 4, 1.5 };

/* Mean over the samples of weight times cross-entropy, and its gradient by the kernel, for a kernel
 * of zeros. */
static double by_hand(bool samples, bool classes, double gradient[INPUTS][CLASSES])
{
    double loss = 0;
    memset(gradient, 0, INPUTS * sizeof(*gradient));
    for (int s = 0; s < ROWS; s++) {
        double weight = (samples ? sample_weight[s] : 1) * (classes ? class_weight[label[s]] : 1) / ROWS;
        loss += weight * log(CLASSES);
        for (int i = 0; i < INPUTS; i++)
            for (int c = 0; c < CLASSES; c++)
                gradient[i][c] += weight * x[s][i] * (1.0 / CLASSES - (c == label[s]));
    }
    return loss;
}

static void assert_weighted(ls_context *ctx, bool samples, bool classes)
{
    ls_model *model = NULL;
    ls_history *history = NULL;
    double gradient[INPUTS][CLASSES], loss = 0, expected = by_hand(samples, classes, gradient);
    float kernel[INPUTS][CLASSES];
    ls_array weights = ls_array_of(LS_F32, LS_SHAPE(ROWS), sample_weight);
    ls_dataset *d = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(ROWS, INPUTS), x),
                                          ls_array_of(LS_I32, LS_SHAPE(ROWS), label),
                                          .weights = samples ? weights : (ls_array){ .data = NULL });
    OK(ls_sequential(ctx, "softmax", &model, ls_input(INPUTS),
                     ls_dense(CLASSES, .no_bias = true, .kernel_initializer = { .kind = LS_INIT_ZEROS })));
    OK(ls_compile(model, .optimizer = ls_sgd(.learning_rate = 1),
                  .loss = ls_sparse_categorical_crossentropy(.from_logits = true)));
    OK(ls_fit(model, d, .batch_size = ROWS, .lanes = 2, .verbose = LS_VERBOSE_SILENT, .history = &history,
              .class_weights = classes ? class_weight : NULL, .class_count = classes ? CLASSES : 0));
    OK(ls_history_value(history, "loss", 0, &loss));
    if (!(fabs(loss - expected) <= 1e-6))
        fail_msg("loss %.9g, not %.9g", loss, expected);
    OK(ls_variable_get(ls_model_variable(model, 0), kernel, sizeof(kernel)));
    for (int i = 0; i < INPUTS; i++)
        for (int c = 0; c < CLASSES; c++)
            if (!(fabs(kernel[i][c] + gradient[i][c]) <= 1e-6))
                fail_msg("kernel[%d][%d] is %.9g, not %.9g", i, c, kernel[i][c], -gradient[i][c]);
    ls_history_destroy(history);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
}

static void weights_of_classes_and_samples_multiply(void **state)
{
    (void)state;
    ls_context *ctx = open_two_cpus();
    assert_weighted(ctx, false, false);
    assert_weighted(ctx, true, false);
    assert_weighted(ctx, false, true);
    assert_weighted(ctx, true, true);
    ls_context_close(ctx);
}

/* ---- A step that fails ---- */

#define MANY 40

/* Ten samples a step; the one with the bad value is in the third. */
static ls_model *train_on(ls_context *ctx, float bad, int64_t steps, ls_status *status)
{
    static float features[MANY][3], targets[MANY];
    ls_model *model = NULL;
    for (int s = 0; s < MANY; s++) {
        for (int i = 0; i < 3; i++)
            features[s][i] = (float)((s * 7 + i * 5) % 11) / 11;
        targets[s] = (float)(s % 3);
    }
    features[27][1] = bad;
    OK(ls_sequential(ctx, "m", &model, ls_input(3), ls_dense(4), ls_batch_normalization(), ls_dropout(0.25),
                     ls_dense(1)));
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_mean_squared_error()));
    *status = ls_fit_arrays(model, ls_array_of(LS_F32, LS_SHAPE(MANY, 3), features),
                            ls_array_of(LS_F32, LS_SHAPE(MANY, 1), targets), .batch_size = 10, .lanes = 3,
                            .max_steps = steps, .keep_order = true, .verbose = LS_VERBOSE_SILENT);
    return model;
}

/* Weights, moving statistics, slots and the step are those of the last good step, and training can
 * go on from there. */
static void a_step_that_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    const float bad[] = { NAN, INFINITY, -INFINITY };
    ls_context *ctx = open_two_cpus();
    char good[65], failed[65];
    ls_status status;
    ls_model *model = train_on(ctx, 1, 2, &status);
    OK(status);
    OK(ls_model_state_sha256(model, good));
    ls_model_destroy(model);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        model = train_on(ctx, bad[i], 0, &status);
        assert_int_equal(status, LS_ERR_NOT_FINITE);
        assert_non_null(strstr(ls_last_error(), "step 3"));
        OK(ls_model_state_sha256(model, failed));
        if (strcmp(good, failed) != 0)
            fail_msg("a sample of %g: the state is not that of the last good step", bad[i]);
        ls_model_destroy(model);
    }
    ls_context_close(ctx);
}

/* A weight that is not finite before a step, moving statistics among them, is reported, and nothing
 * is changed. */
static void a_weight_that_is_not_finite_is_reported(void **state)
{
    (void)state;
    const float bad[] = { NAN, INFINITY, -INFINITY };
    ls_context *ctx = open_two_cpus();
    for (size_t w = 0; w < 8; w++)
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
            char before[65], after[65];
            float features[10][3] = { { 0.5f, 1, -1 }, { 0.25f, 0, 2 } }, targets[10] = { 1 };
            ls_model *model = NULL;
            OK(ls_sequential(ctx, "m", &model, ls_input(3), ls_dense(4, .activation = LS_RELU),
                             ls_batch_normalization(), ls_dense(1)));
            OK(ls_compile(model, .optimizer = ls_sgd(.learning_rate = 0.1), .loss = ls_mean_squared_error()));
            assert_int_equal(ls_model_variable_count(model), 8);
            ls_tensor *variable = ls_model_variable(model, w);
            float values[64];
            ls_shape shape = ls_tensor_shape(variable);
            size_t bytes = sizeof(float) * (size_t)(shape.dims[0] * (shape.rank > 1 ? shape.dims[1] : 1));
            assert_true(bytes <= sizeof(values));
            OK(ls_variable_get(variable, values, bytes));
            values[bytes / sizeof(float) - 1] = bad[i];
            OK(ls_variable_set(variable, values, bytes));
            OK(ls_model_weights_sha256(model, before));
            ls_status status = ls_fit_arrays(model, ls_array_of(LS_F32, LS_SHAPE(10, 3), features),
                                             ls_array_of(LS_F32, LS_SHAPE(10, 1), targets), .batch_size = 10,
                                             .verbose = LS_VERBOSE_SILENT);
            if (status != LS_ERR_NOT_FINITE)
                fail_msg("%g in %s: %s", (double)bad[i], ls_model_variable_name(model, w), ls_status_name(status));
            assert_non_null(strstr(ls_last_error(), "no variable was changed"));
            OK(ls_model_weights_sha256(model, after));
            assert_string_equal(after, before);
            ls_model_destroy(model);
        }
    ls_context_close(ctx);
}

int main(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        numbers[i] = (float)i;
        doubled[i] = (float)(2 * i);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_is_its_own_pass),
        cmocka_unit_test(epochs_of_some_steps_continue_the_pass),
        cmocka_unit_test(weights_of_classes_and_samples_multiply),
        cmocka_unit_test(a_step_that_is_not_finite_changes_nothing),
        cmocka_unit_test(a_weight_that_is_not_finite_is_reported),
    };
    return cmocka_run_group_tests_name("steps", tests, NULL, NULL);
}
