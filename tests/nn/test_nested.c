/* Models as layers of other models in C: ls_nested in Sequential, Functional and custom models, outputs of a nested
 * model, copies of layers (ls_symbol_from), freezing; and what is refused. Values against Keras: test_applications.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lockstep.h"
#include "machine.h"

static ls_context *ctx;

static int open_context(void **state)
{
    (void)state;
    return ls_context_open(NULL, &ctx) != LS_OK;
}

static int close_context(void **state)
{
    (void)state;
    ls_context_close(ctx);
    return 0;
}

/* Prediction for one sample of ones. */
static float *predict(ls_model *model, int output)
{
    ls_array found;
    ls_shape shape = ls_model_input_shape(model, 0);
    float ones[256];
    for (size_t i = 0; i < LENGTH(ones); i++)
        ones[i] = 1 + (float)i / 8;
    shape.dims[0] = 1;
    OK(ls_predict_array(model, ls_array_of(LS_F32, shape, ones), &found, .index = output));
    return found.data;
}

static void same_predictions(ls_model *a, int output_a, ls_model *b, int output_b, size_t count)
{
    float *x = predict(a, output_a), *y = predict(b, output_b);
    assert_memory_equal(x, y, count * sizeof(float));
    free(x);
    free(y);
}

static ls_model *make_encoder(void)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "encoder", &model, ls_input(4), ls_dense(3, .activation = LS_TANH, .name = "d1"),
                     ls_dropout(0.5), ls_dense(2, .name = "d2")));
    OK(ls_model_initialize(model, 5));
    return model;
}

static ls_model *make_pair(void)
{
    ls_model *model = NULL;
    OK(ls_functional_begin(ctx, "pair", &model));
    ls_symbol x = ls_symbol_input(model, ls_input(4, .name = "x"));
    ls_symbol a = ls_symbol_call(model, ls_dense(3, .name = "a"), x);
    ls_symbol b = ls_symbol_call(model, ls_dense(2, .name = "b"), a);
    OK(ls_functional_end(model, a, b));
    OK(ls_model_initialize(model, 6));
    return model;
}

static void has_names(const ls_model *model, const char *const *names, size_t count)
{
    assert_int_equal(ls_model_variable_count(model), count);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(ls_model_variable_name(model, i), names[i]);
}

/* ---- Copies ---- */

static void a_nested_model_is_a_copy_with_its_weights(void **state)
{
    (void)state;
    static const char *const names[] = { "encoder/d1/kernel", "encoder/d1/bias", "encoder/d2/kernel",
                                         "encoder/d2/bias" };
    static const char *const layers[] = { "input_layer", "encoder",         "encoder/input_layer",
                                          "encoder/d1",  "encoder/dropout", "encoder/d2",
                                          "softmax" };
    ls_model *encoder = make_encoder(), *net = NULL, *plain = NULL;
    OK(ls_sequential(ctx, "net", &net, ls_nested(encoder), ls_softmax()));
    has_names(net, names, LENGTH(names));
    assert_int_equal(ls_model_layer_count(net), LENGTH(layers));
    for (size_t i = 0; i < LENGTH(layers); i++)
        assert_string_equal(ls_model_layer_name(net, i), layers[i]);
    OK(ls_functional_begin(ctx, "plain", &plain));
    ls_symbol y = ls_symbol_from(plain, encoder, "d2");
    OK(ls_functional_end(plain, ls_symbol_call(plain, ls_softmax(), y)));
    same_predictions(net, 0, plain, 0, 2);
    OK(ls_model_initialize(encoder, 9)); /* changes nothing in the copies */
    same_predictions(net, 0, plain, 0, 2);
    ls_model_destroy(encoder);
    same_predictions(net, 0, plain, 0, 2);
    ls_model_destroy(plain);
    ls_model_destroy(net);
}

static void outputs_of_a_nested_model_are_symbols(void **state)
{
    (void)state;
    ls_model *pair = make_pair(), *net = NULL;
    OK(ls_functional_begin(ctx, "net", &net));
    ls_symbol x = ls_symbol_input(net, ls_input(4));
    ls_symbol first = ls_symbol_call(net, ls_nested(pair, .name = "p"), x);
    ls_symbol second = ls_symbol_output(first, 1);
    ls_symbol again = ls_symbol_share(second, x);
    ls_symbol sum = ls_symbol_call(net, ls_add(), second, ls_symbol_output(again, 1));
    OK(ls_functional_end(net, ls_symbol_output(second, 0), second, sum));
    assert_string_equal(ls_model_output_name(net, 1), "p");
    assert_int_equal(ls_model_output_shape(net, 0).dims[1], 3);
    assert_int_equal(ls_model_output_shape(net, 1).dims[1], 2);
    same_predictions(net, 0, pair, 0, 3);
    same_predictions(net, 1, pair, 1, 2);
    float *once = predict(net, 1), *twice = predict(net, 2);
    for (int i = 0; i < 2; i++)
        assert_true(twice[i] == once[i] + once[i]);
    free(once);
    free(twice);
    char *text = NULL;
    OK(ls_model_summary(net, &text));
    assert_non_null(strstr(text, "p (Functional)"));
    assert_non_null(strstr(text, "p[1][1]"));
    assert_null(strstr(text, "p/a"));
    free(text);
    ls_model_destroy(net);
    ls_model_destroy(pair);
}

static void nested_call(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    ls_tensor *h = ls_layer_call(call, ls_nested(user), inputs[0]);
    outputs[0] = ls_op_add(h, ls_layer_call(call, ls_nested(user), inputs[0]));
}

/* Equal names are the same layer, as for any layer of a custom model. */
static void custom_models_call_nested_ones(void **state)
{
    (void)state;
    ls_model *encoder = make_encoder(), *net = NULL;
    ls_layer input = ls_input(4);
    OK(ls_custom(ctx, "net", &input, 1, 1, nested_call, encoder, &net));
    assert_int_equal(ls_model_variable_count(net), 4);
    float *once = predict(encoder, 0), *twice = predict(net, 0);
    for (int i = 0; i < 2; i++)
        assert_true(twice[i] == once[i] + once[i]);
    free(once);
    free(twice);
    ls_model_destroy(net);
    ls_model_destroy(encoder);
}

static void models_without_a_name_are_counted(void **state)
{
    (void)state;
    ls_model *a = NULL, *net = NULL;
    OK(ls_sequential(ctx, NULL, &a, ls_input(4), ls_dense(4)));
    OK(ls_sequential(ctx, "net", &net, ls_input(4), ls_nested(a), ls_nested(a),
                     ls_nested(a, .name = "c", .frozen = true)));
    assert_string_equal(ls_model_variable_name(net, 0), "sequential/dense/kernel");
    assert_string_equal(ls_model_variable_name(net, 2), "sequential_1/dense/kernel");
    assert_string_equal(ls_model_variable_name(net, 4), "c/dense/kernel");
    assert_true(ls_model_variable_is_trainable(net, 2));
    assert_false(ls_model_variable_is_trainable(net, 4));
    ls_model_destroy(net);
    ls_model_destroy(a);
}

static ls_dataset *samples(void)
{
    float x[40][6];
    int32_t y[40];
    for (int i = 0; i < 40; i++) {
        y[i] = i % 3;
        for (int k = 0; k < 6; k++)
            x[i][k] = (float)((i * 7 + k * 3) % 11) / 11;
    }
    ls_dataset *data =
        ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(40, 6), x), ls_array_of(LS_I32, LS_SHAPE(40), y));
    OK(ls_dataset_status(data));
    return data;
}

/* Dropout of both copies draws numbers of its own; the hash does not depend on the devices. */
static void training_has_the_same_bits_on_any_devices(void **state)
{
    (void)state;
    char hex[2][65];
    for (int devices = 1; devices <= 2; devices++) {
        ls_context *own = NULL;
        ls_model *inner = NULL, *net = NULL;
        OK(ls_context_open(&(ls_context_options){ .cpu_devices = devices, .threads = 2 }, &own));
        OK(ls_sequential(own, "inner", &inner, ls_input(6), ls_dense(6, .activation = LS_RELU), ls_dropout(0.5)));
        OK(ls_sequential(own, "net", &net, ls_nested(inner, .name = "a"), ls_nested(inner, .name = "b"), ls_dense(3)));
        if (devices == 2)
            OK(ls_model_set_device(net, "b", "b", "cpu:1"));
        ls_dataset *data = samples();
        OK(ls_compile(net, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy(.from_logits = true)));
        OK(ls_fit(net, data, .batch_size = 16, .lanes = 4, .verbose = LS_VERBOSE_SILENT));
        OK(ls_model_state_sha256(net, hex[devices - 1]));
        ls_dataset_destroy(data);
        ls_model_destroy(net);
        ls_model_destroy(inner);
        ls_context_close(own);
    }
    assert_string_equal(hex[0], hex[1]);
}

/* ---- Parts of a model ---- */

static void layers_of_a_model_lead_to_new_ones(void **state)
{
    (void)state;
    static const char *const names[] = { "a/kernel", "a/bias", "b/kernel", "b/bias", "dense/kernel", "dense/bias" };
    ls_model *pair = make_pair(), *net = NULL, *one = NULL;
    OK(ls_functional_begin(ctx, "net", &net));
    ls_symbol a = ls_symbol_from(net, pair, "a");
    ls_symbol b = ls_symbol_from(net, pair, "b"); /* shares a */
    OK(ls_functional_end(net, a, b, ls_symbol_call(net, ls_dense(5), b)));
    has_names(net, names, LENGTH(names));
    assert_int_equal(ls_model_input_count(net), 1);
    same_predictions(net, 0, pair, 0, 3);
    same_predictions(net, 1, pair, 1, 2);
    OK(ls_functional_begin(ctx, "one", &one));
    OK(ls_functional_end(one, ls_symbol_from(one, pair, "a")));
    assert_int_equal(ls_model_variable_count(one), 2);
    ls_model_destroy(one);
    ls_model_destroy(net);
    ls_model_destroy(pair);
}

static void a_head_is_replaced(void **state)
{
    (void)state;
    ls_model *net = NULL, *other = NULL, *soft = NULL;
    float old[12], new[12];
    OK(ls_sequential(ctx, "net", &net, ls_input(4), ls_dense(3, .name = "a"),
                     ls_dense(2, .name = "b", .activation = LS_TANH)));
    OK(ls_model_initialize(net, 3));
    OK(ls_model_replace_head(net, 5, &other));
    assert_int_equal(ls_model_output_shape(other, 0).dims[1], 5);
    assert_string_equal(ls_model_output_name(other, 0), "b");
    OK(ls_variable_get(ls_model_variable(net, 0), old, sizeof(old)));
    OK(ls_variable_get(ls_model_variable(other, 0), new, sizeof(new)));
    assert_memory_equal(old, new, sizeof(old));
    float *y = predict(other, 0);
    for (int i = 0; i < 5; i++)
        assert_true(y[i] > -1 && y[i] < 1 && y[i] != 0);
    free(y);
    ls_model *none = NULL;
    assert_int_equal(ls_model_replace_head(net, 0, &none), LS_ERR_INVALID);
    OK(ls_sequential(ctx, "soft", &soft, ls_nested(net), ls_softmax()));
    assert_int_equal(ls_model_replace_head(soft, 5, &none), LS_ERR_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "\"softmax\" (Softmax)"));
    ls_model_destroy(soft);
    ls_model_destroy(other);
    ls_model_destroy(net);
}

/* Variables that fit are loaded, the others keep their values and are named. */
static void weights_that_fit_are_loaded(void **state)
{
    (void)state;
    ls_model *net = NULL, *other = NULL;
    char *skipped = NULL, path[] = "/tmp/lockstep-nested-XXXXXX";
    float a[12], b[12];
    assert_true(close(mkstemp(path)) == 0);
    OK(ls_sequential(ctx, "net", &net, ls_input(4), ls_dense(3, .name = "a"), ls_dense(2, .name = "b")));
    OK(ls_sequential(ctx, "other", &other, ls_input(4), ls_dense(3, .name = "a"), ls_dense(5, .name = "b"),
                     ls_dense(1, .name = "c")));
    OK(ls_model_initialize(net, 3));
    OK(ls_model_save_weights(net, path));
    assert_int_not_equal(ls_model_load_weights(other, path), LS_OK);
    OK(ls_model_load_weights(other, path, .skip_mismatch = true, .skipped = &skipped));
    OK(ls_variable_get(ls_model_variable(net, 0), a, sizeof(a)));
    OK(ls_variable_get(ls_model_variable(other, 0), b, sizeof(b)));
    assert_memory_equal(a, b, sizeof(a));
    assert_non_null(strstr(skipped, "b/kernel: "));
    assert_non_null(strstr(skipped, "has shape (3, 2); the model needs (3, 5)"));
    assert_non_null(strstr(skipped, "c/bias: not in the file"));
    free(skipped);
    OK(ls_model_load_weights(net, path, .skip_mismatch = true, .skipped = &skipped));
    assert_null(skipped);
    ls_model_destroy(net);
    OK(ls_sequential(ctx, "net", &net, ls_input(4), ls_dense(9, .name = "z")));
    assert_int_equal(ls_model_load_weights(net, path, .skip_mismatch = true), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_last_error(), "no array fits"));
    unlink(path);
    ls_model_destroy(other);
    ls_model_destroy(net);
}

static void a_pattern_freezes_layers(void **state)
{
    (void)state;
    ls_model *encoder = make_encoder(), *net = NULL;
    OK(ls_sequential(ctx, "net", &net, ls_nested(encoder), ls_batch_normalization(.name = "bn"),
                     ls_dense(3, .name = "d1")));
    OK(ls_model_set_trainable(net, "enc*", false));
    size_t count;
    (void)ls_model_trainable_variables(net, &count);
    assert_int_equal(count, 4); /* gamma, beta, kernel, bias */
    OK(ls_model_set_trainable(net, "*", false));
    (void)ls_model_trainable_variables(net, &count);
    assert_int_equal(count, 0);
    OK(ls_model_set_trainable(net, "encoder/d?", true));
    (void)ls_model_trainable_variables(net, &count);
    assert_int_equal(count, 4);
    OK(ls_model_set_trainable(net, "bn", true));
    for (size_t i = 0; i < ls_model_variable_count(net); i++)
        if (strstr(ls_model_variable_name(net, i), "moving"))
            assert_false(ls_model_variable_is_trainable(net, i));
    assert_int_equal(ls_model_set_trainable(net, "conv*", false), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_model_set_trainable(net, "d2", false), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_last_error(), "has no layer \"d2\""));
    ls_model_destroy(net);
    ls_model_destroy(encoder);
}

/* Frozen layers keep their bits, also the statistics of a batch norm. */
static void frozen_layers_are_not_trained(void **state)
{
    (void)state;
    ls_model *net = NULL;
    float before[36], after[36], mean[2][6] = { { 0 }, { 0 } };
    OK(ls_sequential(ctx, "net", &net, ls_input(6), ls_dense(6, .name = "a"), ls_batch_normalization(.name = "bn"),
                     ls_dense(3, .name = "b")));
    OK(ls_model_set_trainable(net, "a", false));
    OK(ls_model_set_trainable(net, "bn", false));
    OK(ls_variable_get(ls_model_variable(net, 0), before, sizeof(before)));
    OK(ls_variable_get(ls_model_variable(net, 4), mean[0], sizeof(mean[0])));
    ls_dataset *data = samples();
    OK(ls_compile(net, .optimizer = ls_sgd(0.1), .loss = ls_sparse_categorical_crossentropy(.from_logits = true)));
    assert_int_equal(ls_model_set_trainable(net, "a", true), LS_ERR_STATE);
    OK(ls_fit(net, data, .batch_size = 16, .verbose = LS_VERBOSE_SILENT));
    OK(ls_variable_get(ls_model_variable(net, 0), after, sizeof(after)));
    OK(ls_variable_get(ls_model_variable(net, 4), mean[1], sizeof(mean[1])));
    assert_memory_equal(before, after, sizeof(before));
    assert_memory_equal(mean[0], mean[1], sizeof(mean[0]));
    ls_dataset_destroy(data);
    ls_model_destroy(net);
}

/* ---- What is refused ---- */

static void refused_symbol(ls_model *model, ls_symbol symbol, const char *words)
{
    assert_int_equal(symbol.index, -1);
    assert_int_not_equal(ls_functional_end(model, symbol), LS_OK);
    if (!strstr(ls_last_error(), words))
        fail_msg("\"%s\" is not in: %s", words, ls_last_error());
    ls_model_destroy(model);
}

static ls_symbol begin(ls_model **model)
{
    OK(ls_functional_begin(ctx, "net", model));
    return ls_symbol_input(*model, ls_input(4));
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    ls_model *encoder = make_encoder(), *pair = make_pair(), *custom = NULL, *net, *other_net = NULL;
    ls_layer input = ls_input(4);
    ls_context *other = NULL;
    OK(ls_custom(ctx, "own", &input, 1, 1, nested_call, encoder, &custom));
    ls_symbol x = begin(&net);
    refused_symbol(net, ls_symbol_call(net, ls_nested(NULL), x), "the model is NULL");
    x = begin(&net);
    refused_symbol(net, ls_symbol_call(net, ls_nested(net), x), "is not finished");
    x = begin(&net);
    refused_symbol(net, ls_symbol_call(net, ls_nested(custom), x), "is a custom model");
    x = begin(&net);
    ls_symbol wide = ls_symbol_call(net, ls_dense(7), x);
    refused_symbol(net, ls_symbol_call(net, ls_nested(encoder), wide),
                   "the tensor is (batch, 7); the model takes (batch, 4)");
    x = begin(&net);
    refused_symbol(net, ls_symbol_call(net, ls_nested(encoder), x, x), "has 1 inputs; 2 were given");
    x = begin(&net);
    ls_symbol y = ls_symbol_call(net, ls_nested(encoder), x);
    refused_symbol(net, ls_symbol_call(net, ls_nested(encoder), y), "another layer of the model has this name");
    x = begin(&net);
    refused_symbol(net, ls_symbol_output(ls_symbol_call(net, ls_nested(pair), x), 2),
                   "has 2 outputs; there is no output 2");
    x = begin(&net);
    refused_symbol(net, ls_symbol_output(x, 1), "has 1 output; there is no output 1");
    (void)begin(&net);
    refused_symbol(net, ls_symbol_from(net, pair, "c"), "has no layer \"c\"");
    (void)begin(&net);
    refused_symbol(net, ls_symbol_from(net, pair, NULL), "the layer is NULL");
    (void)begin(&net);
    refused_symbol(net, ls_symbol_from(net, NULL, "a"), "the model is NULL");
    (void)begin(&net);
    refused_symbol(net, ls_symbol_from(net, custom, "a"), "is a custom model");
    OK(ls_context_open(NULL, &other));
    OK(ls_functional_begin(other, "net", &other_net));
    refused_symbol(other_net, ls_symbol_from(other_net, pair, "a"), "another context");
    ls_context_close(other);
    ls_model_destroy(custom);
    ls_model_destroy(encoder);
    ls_model_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nested_model_is_a_copy_with_its_weights),
        cmocka_unit_test(outputs_of_a_nested_model_are_symbols),
        cmocka_unit_test(custom_models_call_nested_ones),
        cmocka_unit_test(models_without_a_name_are_counted),
        cmocka_unit_test(training_has_the_same_bits_on_any_devices),
        cmocka_unit_test(layers_of_a_model_lead_to_new_ones),
        cmocka_unit_test(a_head_is_replaced),
        cmocka_unit_test(weights_that_fit_are_loaded),
        cmocka_unit_test(a_pattern_freezes_layers),
        cmocka_unit_test(frozen_layers_are_not_trained),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests_name("nested", tests, open_context, close_context);
}
