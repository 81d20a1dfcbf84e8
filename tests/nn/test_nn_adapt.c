/* ls_model_adapt: mean and variance of datasets against plain sums, and its errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "folder.h"
#include "graph_cases.h"
#include "lockstep.h"

enum { SAMPLES = 50, ROWS = 4, COLUMNS = 3, EACH = ROWS * COLUMNS, ALL = SAMPLES * EACH };

static ls_context *ctx;
static float x[ALL], labels[SAMPLES];

static int open_context(void **state)
{
    double numbers[ALL];
    test_random(numbers, ALL, 7, -1, 1);
    for (int i = 0; i < ALL; i++) /* a large mean hides nothing */
        x[i] = (float)(1000 + 10 * (i % COLUMNS) + (1 + i % EACH) * numbers[i]);
    return make_folder(state) != 0 || ls_context_open(NULL, &ctx) != LS_OK;
}

static int close_context(void **state)
{
    ls_context_close(ctx);
    return remove_folder(state);
}

static ls_dataset *dataset(void)
{
    return ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(SAMPLES, ROWS, COLUMNS), x),
                                 ls_array_of(LS_F32, LS_SHAPE(SAMPLES), labels));
}

static ls_model *model_of(ls_layer input, ls_layer layer)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "adapt", &model, input, layer));
    return model;
}

/* Two passes over the elements whose index modulo `modulo`, divided by `of`, is p. */
static void expect(const ls_model *model, int positions, int modulo, int of)
{
    float mean[EACH], variance[EACH];
    OK(ls_variable_get(ls_model_variable(model, 0), mean, (size_t)positions * sizeof(float)));
    OK(ls_variable_get(ls_model_variable(model, 1), variance, (size_t)positions * sizeof(float)));
    for (int p = 0; p < positions; p++) {
        double sum = 0, squares = 0, count = 0;
        for (int i = 0; i < ALL; i++)
            if (i % modulo / of == p)
                sum += x[i], count++;
        for (int i = 0; i < ALL; i++)
            if (i % modulo / of == p)
                squares += (x[i] - sum / count) * (x[i] - sum / count);
        if (!test_is_near(mean[p], sum / count, 1e-7) || !test_is_near(variance[p], squares / count, 1e-6))
            fail_msg("position %d of %d: mean %.9g and variance %.9g, expected %.9g and %.9g", p, positions, mean[p],
                     variance[p], sum / count, squares / count);
    }
}

static void statistics_are_those_of_the_data(void **state)
{
    (void)state;
    const struct {
        ls_layer layer;
        int positions, modulo, of;
    } rows[] = {
        { ls_normalization(), COLUMNS, COLUMNS, 1 },
        { ls_normalization(.axes = LS_AXES(1)), ROWS, EACH, COLUMNS },
        { ls_normalization(.axes = LS_AXES(-1, 1)), EACH, EACH, 1 },
        { ls_normalization(.no_axis = true), 1, ALL, ALL },
    };
    for (size_t r = 0; r < LENGTH(rows); r++) {
        ls_model *model = model_of(ls_input(ROWS, COLUMNS), rows[r].layer);
        ls_dataset *data = dataset(), *batches = ls_batch(ls_dataset_share(data), 7, false);
        char first[65], second[65];
        OK(ls_model_adapt(model, data));
        expect(model, rows[r].positions, rows[r].modulo, rows[r].of);
        OK(ls_model_weights_sha256(model, first));
        OK(ls_model_initialize(model, 1));
        OK(ls_model_adapt(model, batches)); /* the same bits, however the samples are batched */
        OK(ls_model_weights_sha256(model, second));
        assert_string_equal(first, second);
        ls_dataset_destroy(data);
        ls_dataset_destroy(batches);
        ls_model_destroy(model);
    }
}

/* The bits are a promise: sums of float64 in the order of the data. */
static void the_bits_are_known(void **state)
{
    (void)state;
    float data[6] = { 0.1f, 3, 0.2f, -7, 0.4f, 11 }, mean[2], variance[2];
    ls_model *model = model_of(ls_input(2), ls_normalization());
    ls_dataset *set = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(3, 2), data));
    OK(ls_model_adapt(model, set));
    OK(ls_variable_get(ls_model_variable(model, 0), mean, sizeof(mean)));
    OK(ls_variable_get(ls_model_variable(model, 1), variance, sizeof(variance)));
    for (int p = 0; p < 2; p++) {
        double sum = 0, squares = 0, first = data[p];
        for (int i = 0; i < 3; i++) {
            double difference = data[2 * i + p] - first;
            sum += difference;
            squares += difference * difference;
        }
        double offset = sum / 3;
        assert_true(mean[p] == (float)(first + offset));
        assert_true(variance[p] == (float)(squares / 3 - offset * offset));
    }
    ls_dataset_destroy(set);
    ls_model_destroy(model);
}

/* Integers count with their values, also images in uint8: a Normalization takes them as they
 * are. */
static void bytes_keep_their_values(void **state)
{
    (void)state;
    uint8_t bytes[2 * 4] = { 0, 10, 20, 30, 255, 0, 0, 1 };
    float mean[1];
    ls_model *model = model_of(ls_input(2, 2, 1), ls_normalization());
    ls_array images = ls_array_of(LS_U8, LS_SHAPE(2, 2, 2, 1), bytes), out;
    ls_dataset *data = ls_from_tensor_slices(images);
    OK(ls_model_adapt(model, data));
    OK(ls_variable_get(ls_model_variable(model, 0), mean, sizeof(mean)));
    assert_true(mean[0] == 316 / 8.0f);
    OK(ls_predict_array(model, images, &out));
    double sum = 0;
    for (int i = 0; i < 8; i++)
        sum += ((float *)out.data)[i];
    assert_true(fabs(sum) < 1e-5);
    free(out.data);
    ls_dataset_destroy(data);
    ls_model_destroy(model);
}

/* Keras's file has the statistics and an integer count; both come back. */
static void adapted_models_are_saved_and_loaded(void **state)
{
    (void)state;
    static const char *const names[] = { "a.keras", "a.weights.h5", "a.safetensors", "a.npz" };
    char before[65], after[65];
    ls_model *model = model_of(ls_input(ROWS, COLUMNS), ls_normalization());
    ls_dataset *data = dataset();
    OK(ls_model_adapt(model, data));
    OK(ls_model_weights_sha256(model, before));
    for (size_t i = 0; i < LENGTH(names); i++) {
        ls_model *other = model_of(ls_input(ROWS, COLUMNS), ls_normalization());
        OK(ls_model_save_weights(model, in_folder(names[i])));
        OK(ls_model_load_weights(other, in_folder(names[i])));
        OK(ls_model_weights_sha256(other, after));
        assert_string_equal(before, after);
        ls_model_destroy(other);
    }
    ls_dataset_destroy(data);
    ls_model_destroy(model);
}

static void refused(ls_status status, ls_status expected, const char *words)
{
    if (status != expected || !strstr(ls_last_error(), words))
        fail_msg("%s, expected %s with \"%s\": %s", ls_status_name(status), ls_status_name(expected), words,
                 ls_last_error());
}

static void what_cannot_be_adapted_is_refused(void **state)
{
    (void)state;
    const double one = 1;
    ls_model *plain = model_of(ls_input(ROWS, COLUMNS), ls_dense(2)), *deep, *other;
    ls_model *given = model_of(ls_input(ROWS, COLUMNS), ls_normalization(.mean = { 1, &one }, .variance = { 1, &one }));
    ls_model *model = model_of(ls_input(ROWS, COLUMNS), ls_normalization());
    OK(ls_sequential(ctx, "deep", &deep, ls_input(ROWS, COLUMNS), ls_dense(2), ls_normalization()));
    OK(ls_sequential(ctx, "other", &other, ls_input(COLUMNS), ls_normalization()));
    ls_dataset *data = dataset(), *endless = ls_repeat(dataset(), -1), *empty = ls_take(dataset(), 0);
    refused(ls_model_adapt(plain, data), LS_ERR_INVALID, "no Normalization layer");
    refused(ls_model_adapt(given, data), LS_ERR_INVALID, "no Normalization layer without a given mean");
    refused(ls_model_adapt(deep, data), LS_ERR_UNSUPPORTED, "layer \"normalization\"");
    refused(ls_model_adapt(other, data), LS_ERR_SHAPE, "(4, 3)");
    refused(ls_model_adapt(model, endless), LS_ERR_INVALID, "endless");
    refused(ls_model_adapt(model, empty), LS_ERR_DATA, "no samples");
    float old = x[5];
    x[5] = NAN;
    ls_dataset *wrong = dataset();
    refused(ls_model_adapt(model, wrong), LS_ERR_DATA, "mean 2 is nan");
    x[5] = old;
    ls_dataset *sets[] = { data, endless, empty, wrong };
    for (size_t i = 0; i < LENGTH(sets); i++)
        ls_dataset_destroy(sets[i]);
    ls_model *models[] = { plain, deep, given, model, other };
    for (size_t i = 0; i < LENGTH(models); i++)
        ls_model_destroy(models[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_those_of_the_data),  cmocka_unit_test(the_bits_are_known),
        cmocka_unit_test(bytes_keep_their_values),           cmocka_unit_test(adapted_models_are_saved_and_loaded),
        cmocka_unit_test(what_cannot_be_adapted_is_refused),
    };
    return cmocka_run_group_tests_name("adapt", tests, open_context, close_context);
}
