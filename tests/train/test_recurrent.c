/* Recurrent layers and masks in whole models: losses of masked sequences as Keras trains them,
 * names of weights, one hash under every strategy, and graphs that do not grow with the length of
 * sequences. test_keras_layers compares the layers themselves. tests/reference/make_masks.py made
 * masks.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/safetensors.h"
#include "folder.h"
#include "graph/node.h"
#include "lockstep.h"
#include "machine.h"

#ifndef LS_TEST_DATA
#define LS_TEST_DATA "tests/reference"
#endif

static ls_context *ctx;

/* ---- Losses of masked sequences ---- */

static ls_array array_of(const json_t *the_case, const char *key)
{
    char shape_key[16];
    const json_t *list = json_object_get(the_case, key), *size;
    ls_array out = { .dtype = LS_I32 };
    size_t i;
    snprintf(shape_key, sizeof shape_key, "%s_shape", key);
    json_array_foreach(json_object_get(the_case, shape_key), i, size) out.shape.dims[out.shape.rank++] =
        json_integer_value(size);
    out.data = calloc(json_array_size(list), sizeof(int32_t));
    if (json_is_real(json_array_get(list, 0)))
        out.dtype = LS_F32;
    for (i = 0; i < json_array_size(list); i++)
        if (out.dtype == LS_F32)
            ((float *)out.data)[i] = (float)json_number_value(json_array_get(list, i));
        else
            ((int32_t *)out.data)[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return out;
}

static void set_weights(ls_model *model, const json_t *weights)
{
    float data[512];
    assert_int_equal(ls_model_variable_count(model), json_object_size(weights));
    for (size_t i = 0; i < ls_model_variable_count(model); i++) {
        const json_t *list = json_object_get(weights, ls_model_variable_name(model, i));
        if (!list)
            fail_msg("Keras has no %s", ls_model_variable_name(model, i));
        for (size_t k = 0; k < json_array_size(list); k++)
            data[k] = (float)json_number_value(json_array_get(list, k));
        OK(ls_variable_set(ls_model_variable(model, i), data, json_array_size(list) * sizeof(float)));
    }
}

static void train_case(const json_t *the_case, size_t number)
{
    ls_model *model;
    const json_t *losses = json_object_get(the_case, "losses"), *expected;
    ls_array x = array_of(the_case, "x"), y = array_of(the_case, "y");
    bool sparse = strncmp(json_string_value(json_object_get(the_case, "loss")), "sparse", 6) == 0;
    ls_loss loss = sparse ? ls_sparse_categorical_crossentropy() : ls_mean_squared_error();
    size_t step;
    assert_int_equal(json_dump_file(json_object_get(the_case, "model"), in_folder("model.json"), 0), 0);
    OK(ls_model_from_keras_json(ctx, in_folder("model.json"), &model));
    set_weights(model, json_object_get(the_case, "weights"));
    OK(ls_compile(model, .optimizer = ls_sgd(0.1), .loss = loss));
    json_array_foreach(losses, step, expected)
    {
        ls_results results;
        double want = json_number_value(expected);
        OK(ls_train_on_batch(model, x, y, &results));
        if (!(fabs(results.values[0] - want) <= 2e-6 * (1 + fabs(want))))
            fail_msg("case %zu, step %zu: the loss is %.9g, Keras has %.9g", number, step, results.values[0], want);
    }
    ls_model_destroy(model);
    free(x.data);
    free(y.data);
}

static void masked_losses_are_keras_s(void **state)
{
    (void)state;
    json_t *cases = json_load_file(LS_TEST_DATA "/masks.json", 0, NULL), *the_case;
    size_t i;
    assert_non_null(cases);
    assert_true(json_array_size(cases) >= 8);
    json_array_foreach(cases, i, the_case) train_case(the_case, i);
    json_decref(cases);
}

/* ---- Names ---- */

static void weights_have_keras_s_names(void **state)
{
    (void)state;
    static const char *const names[] = {
        "lstm/lstm_cell/kernel",
        "lstm/lstm_cell/recurrent_kernel",
        "lstm/lstm_cell/bias",
        "bidirectional/forward_lstm_1/lstm_cell/kernel",
        "bidirectional/forward_lstm_1/lstm_cell/recurrent_kernel",
        "bidirectional/forward_lstm_1/lstm_cell/bias",
        "bidirectional/backward_lstm_1/lstm_cell/kernel",
        "bidirectional/backward_lstm_1/lstm_cell/recurrent_kernel",
        "bidirectional/backward_lstm_1/lstm_cell/bias",
        "time_distributed/dense/kernel",
        "time_distributed/dense/bias",
        "simple_rnn/simple_rnn_cell/kernel",
        "simple_rnn/simple_rnn_cell/recurrent_kernel",
        "dense_1/kernel",
        "dense_1/bias",
    };
    ls_model *model;
    ls_array bias;
    OK(ls_sequential(ctx, "net", &model, ls_input(5, 3), ls_lstm(4, .return_sequences = true),
                     ls_bidirectional(ls_lstm(2, .return_sequences = true)), ls_time_distributed(ls_dense(3)),
                     ls_simple_rnn(4, .no_bias = true), ls_dense(2)));
    assert_int_equal(ls_model_variable_count(model), LENGTH(names));
    for (size_t i = 0; i < LENGTH(names); i++)
        assert_string_equal(ls_model_variable_name(model, i), names[i]);
    OK(ls_model_initialize(model, 3));
    OK(ls_value(ls_model_variable(model, 2), &bias)); /* the forget gate's begins with 1 */
    for (int i = 0; i < 16; i++)
        assert_true(((const float *)bias.data)[i] == (i / 4 == 1 ? 1.0f : 0.0f));
    ls_model_destroy(model);
}

/* ---- PyTorch's layout ---- */

static float element(const ls_safetensors *file, const char *name, int64_t rows, int64_t columns, int64_t i)
{
    const ls_safetensors_entry *entry = ls_safetensors_find(file, name);
    ls_shape shape = columns ? LS_SHAPE(rows, columns) : LS_SHAPE(rows);
    if (!entry)
        fail_msg("no %s", name);
    assert_true(ls_shape_equal(&entry->shape, &shape));
    return ((const float *)entry->data)[i];
}

/* Element i of a variable is i. */
static void number_weights(ls_model *model)
{
    float data[512];
    for (int i = 0; i < 512; i++)
        data[i] = (float)i;
    for (size_t i = 0; i < ls_model_variable_count(model); i++) {
        int64_t count = 0;
        ls_shape shape = ls_tensor_shape(ls_model_variable(model, i));
        assert_true(ls_shape_count(&shape, 1, &count) && count <= 512);
        OK(ls_variable_set(ls_model_variable(model, i), data, (size_t)count * sizeof(float)));
    }
}

/* A kernel [3, gates of 2] is [gates of 2, 3] there; a GRU's gates z, r, h are r, z, n. */
static void pytorch_has_other_gates_and_two_biases(void **state)
{
    (void)state;
    ls_model *model, *other;
    ls_safetensors *file;
    ls_array read;
    const char *path = in_folder("torch.safetensors");
    OK(ls_sequential(ctx, "net", &model, ls_input(5, 3), ls_bidirectional(ls_gru(2, .return_sequences = true)),
                     ls_lstm(2)));
    number_weights(model);
    OK(ls_model_save_weights(model, path, .layout = LS_LAYOUT_TORCH));
    OK(ls_safetensors_open(path, &file));
    assert_int_equal(ls_safetensors_count(file), 12);
    assert_true(element(file, "bidirectional.weight_ih_l0", 6, 3, 0) == 2);          /* r of unit 0, input 0 */
    assert_true(element(file, "bidirectional.weight_ih_l0", 6, 3, 2 * 3) == 0);      /* z */
    assert_true(element(file, "bidirectional.weight_ih_l0", 6, 3, 5 * 3 + 2) == 17); /* n of unit 1, input 2 */
    assert_true(element(file, "bidirectional.weight_hh_l0_reverse", 6, 2, 1) == 6 + 2);
    assert_true(element(file, "bidirectional.bias_ih_l0", 6, 0, 0) == 2);
    assert_true(element(file, "bidirectional.bias_hh_l0_reverse", 6, 0, 2) == 6);
    assert_true(element(file, "lstm.weight_ih_l0", 8, 4, 4 + 1) == 8 + 1);
    assert_true(element(file, "lstm.bias_ih_l0", 8, 0, 7) == 7);
    assert_true(element(file, "lstm.bias_hh_l0", 8, 0, 7) == 0);
    ls_safetensors_close(file);
    OK(ls_sequential(ctx, "net", &other, ls_input(5, 3), ls_bidirectional(ls_gru(2, .return_sequences = true)),
                     ls_lstm(2)));
    OK(ls_model_load_weights(other, path));
    for (size_t i = 0; i < ls_model_variable_count(other); i++) {
        OK(ls_value(ls_model_variable(other, i), &read));
        for (int64_t k = 0; k < read.shape.dims[0]; k++)
            assert_true(((const float *)read.data)[k] == (float)k);
    }
    ls_model_destroy(other);
    ls_model_destroy(model);
    OK(ls_sequential(ctx, "net", &model, ls_input(5, 3), ls_gru(2, .reset_before = true, .no_bias = true)));
    FAILS(ls_model_save_weights(model, path, .layout = LS_LAYOUT_TORCH), LS_ERR_UNSUPPORTED, "GRU", "reset_after");
    ls_model_destroy(model);
}

/* ---- What takes no mask ---- */

static void a_mask_that_a_layer_cannot_use_is_refused(void **state)
{
    (void)state;
    ls_model *model;
    FAILS(ls_sequential(ctx, "net", &model, ls_input(5, 3), ls_masking(), ls_batch_normalization()), LS_ERR_UNSUPPORTED,
          "BatchNormalization", "the input has a mask");
    FAILS(ls_sequential(ctx, "net", &model, ls_input(5, 3), ls_masking(), ls_softmax()), LS_ERR_UNSUPPORTED, "Softmax",
          "the input has a mask");
    OK(ls_sequential(ctx, "net", &model, ls_input(5, 3), ls_masking(), ls_flatten(), ls_dense(3), ls_softmax()));
    ls_model_destroy(model);
    OK(ls_sequential(ctx, "net", &model, ls_input(5, 3), ls_masking(), ls_gru(3), ls_batch_normalization()));
    ls_model_destroy(model);
}

/* ---- The length of sequences ---- */

static size_t nodes_of_training(int64_t steps)
{
    ls_model *model;
    size_t count;
    OK(ls_sequential(ctx, "net", &model, ls_input(steps, 3), ls_masking(),
                     ls_bidirectional(ls_lstm(4, .return_sequences = true)), ls_gru(3), ls_dense(1)));
    float *x = calloc((size_t)(2 * steps * 3), sizeof *x), y[2] = { 0 };
    OK(ls_compile(model, .optimizer = ls_sgd(0.1), .loss = ls_mean_squared_error()));
    OK(ls_train_on_batch(model, ls_array_of(LS_F32, LS_SHAPE(2, steps, 3), x), ls_array_of(LS_F32, LS_SHAPE(2, 1), y)));
    count = ls_model_graph(model)->node_count;
    free(x);
    ls_model_destroy(model);
    return count;
}

static void graphs_do_not_grow_with_the_length(void **state)
{
    (void)state;
    assert_int_equal(nodes_of_training(3), nodes_of_training(300));
}

/* ---- One hash ---- */

#define SAMPLES        21
#define LENGTH_OF_TEXT 6

typedef struct who {
    ls_strategy strategy;
    int cpus, gpus;
} who;

static void train_text(const who *w, char hash[65])
{
    static int32_t words[SAMPLES * LENGTH_OF_TEXT], labels[SAMPLES];
    machine m;
    ls_model *model;
    for (int i = 0; i < SAMPLES * LENGTH_OF_TEXT; i++)
        words[i] = i * 7 % 3 == 0 ? 0 : i * 5 % 11;
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i % 3;
    machine_create(&m, (machine_settings){ .gpu = { .devices = w->gpus, .memory = LS_MIB(4), .delay = -1 },
                                           .options = { .cpu_devices = w->cpus, .threads = 2 } });
    OK(ls_sequential(m.ctx, "text", &model, ls_input(LENGTH_OF_TEXT, .dtype = LS_I32),
                     ls_embedding(11, 5, .mask_zero = true),
                     ls_bidirectional(ls_lstm(7, .return_sequences = true, .dropout = 0.2)), ls_gru(6),
                     ls_dense(3, .activation = LS_SOFTMAX)));
    OK(ls_compile(model, .optimizer = ls_adam(0.01), .loss = ls_sparse_categorical_crossentropy()));
    OK(ls_fit_arrays(model, ls_array_of(LS_I32, LS_SHAPE(SAMPLES, LENGTH_OF_TEXT), words),
                     ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels), .epochs = 2, .batch_size = 8, .lanes = 4,
                     .strategy = w->strategy, .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_state_sha256(model, hash));
    ls_model_destroy(model);
    machine_close(&m);
}

static void one_hash_under_every_strategy(void **state)
{
    (void)state;
    static const who all[] = {
        { { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "cpu:0" }, 1, 0 },
        { { .kind = LS_STRATEGY_MIRRORED }, 3, 0 },
        { { .kind = LS_STRATEGY_DATA_PARALLEL }, 2, 0 },
        { { .kind = LS_STRATEGY_MODEL_PARALLEL }, 2, 0 },
        { { .kind = LS_STRATEGY_PIPELINE }, 2, 0 },
        { { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "gpu:0" }, 1, 1 },
        { { .kind = LS_STRATEGY_MIRRORED }, 1, 2 },
        { { .kind = LS_STRATEGY_PIPELINE }, 1, 2 },
    };
    char first[65], other[65];
    train_text(&all[0], first);
    for (size_t i = 1; i < LENGTH(all); i++) {
        train_text(&all[i], other);
        if (strcmp(first, other) != 0)
            fail_msg("strategy %zu: %s instead of %s", i, other, first);
    }
}

static int set_up(void **state)
{
    return make_folder(state) != 0 || ls_context_open(NULL, &ctx) != LS_OK;
}

static int tear_down(void **state)
{
    ls_context_close(ctx);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masked_losses_are_keras_s),
        cmocka_unit_test(weights_have_keras_s_names),
        cmocka_unit_test(pytorch_has_other_gates_and_two_biases),
        cmocka_unit_test(a_mask_that_a_layer_cannot_use_is_refused),
        cmocka_unit_test(graphs_do_not_grow_with_the_length),
        cmocka_unit_test(one_hash_under_every_strategy),
    };
    return cmocka_run_group_tests_name("recurrent", tests, set_up, tear_down);
}
