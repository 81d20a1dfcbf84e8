/* Layers that a program registers by Keras's class name: read from Keras's JSON, made in C,
 * saved and loaded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "folder.h"
#include "lockstep.h"

static ls_context *ctx;

/* x times a trained factor for each feature, times `by` */
static ls_status scale_weights(const ls_layer_config *config, const ls_shape *input, ls_layer_weight *out,
                               size_t *count, void *user)
{
    double start;
    (void)user;
    ls_status status = ls_config_number(config, "start", &start);
    if (status != LS_OK)
        return status;
    out[(*count)++] = (ls_layer_weight){ "factor",
                                         { .shape = LS_SHAPE(input->dims[input->rank - 1]),
                                           .initializer = { .kind = LS_INIT_CONSTANT, .a = start } } };
    return LS_OK;
}

static ls_tensor *scale(const ls_layer_config *config, ls_tensor *const *inputs, size_t input_count,
                        ls_tensor *const *weights, bool training, void *user)
{
    int64_t by = 0;
    bool twice = false;
    const char *note = NULL;
    (void)training;
    if (input_count != 1 || ls_config_integer(config, "by", &by) != LS_OK ||
        ls_config_bool(config, "twice", &twice) != LS_OK || ls_config_string(config, "note", &note) != LS_OK)
        return NULL;
    ++*(int *)user;
    return ls_op_scale(ls_op_mul(inputs[0], weights[0]), (double)by * (twice ? 2 : 1));
}

static ls_tensor *swap(const ls_layer_config *config, ls_tensor *const *inputs, size_t input_count,
                       ls_tensor *const *weights, bool training, void *user)
{
    (void)config, (void)input_count, (void)weights, (void)training, (void)user;
    return ls_op_sub(inputs[1], inputs[0]);
}

static int calls;

static int set_up(void **state)
{
    static const char *const keys[] = { "start", "by", "twice", "note", NULL };
    OK(ls_register_layer(
        "MyPackage>MyScale",
        (ls_layer_definition){ .keys = keys, .weights = scale_weights, .call = scale, .user = &calls }));
    OK(ls_register_layer("Swap", (ls_layer_definition){ .call = swap, .many_inputs = true }));
    return make_folder(state) != 0 || ls_context_open(NULL, &ctx) != LS_OK;
}

static int tear_down(void **state)
{
    ls_context_close(ctx);
    return remove_folder(state);
}

#define CONFIG "\"start\":0.5,\"by\":3,\"twice\":true,\"note\":\"n\""
#define MODEL(class, registered, config)                                                                               \
    "{\"class_name\":\"Sequential\",\"config\":{\"layers\":[{\"class_name\":\"InputLayer\",\"config\":{"               \
    "\"batch_shape\":[null,2],\"name\":\"in\"}},{\"module\":null,\"class_name\":\"" class "\",\"registered_"           \
                                                                                          "name\":" registered         \
                                                                                          ",\"config\":{\"name\":"     \
                                                                                          "\"x\",\"trainable\":true,"  \
                                                                                          "\"dtype\":"                 \
                                                                                          "\"float32\"" config "}}]}}"

static ls_status read_text(const char *text, ls_model **out)
{
    FILE *file = fopen(in_folder("model.json"), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return ls_model_from_keras_json(ctx, in_folder("model.json"), out);
}

static void expect(ls_model *model, float factor)
{
    const float x[4] = { 1, -2, 3, 4 };
    ls_array out;
    OK(ls_predict_array(model, ls_array_of(LS_F32, LS_SHAPE(2, 2), x), &out));
    for (int i = 0; i < 4; i++)
        assert_true(((float *)out.data)[i] == factor * x[i]);
    free(out.data);
}

/* JSON, C, .keras and weights by name give the same layer. */
static void a_registered_class_is_read_made_and_saved(void **state)
{
    (void)state;
    ls_model *model, *made, *again, *nested;
    char *text;
    OK(read_text(MODEL("MyScale", "\"MyPackage>MyScale\"", "," CONFIG), &model));
    assert_string_equal(ls_model_variable_name(model, 0), "x/factor");
    expect(model, 3);
    assert_true(calls > 0);
    OK(ls_model_summary(model, &text));
    assert_non_null(strstr(text, "MyScale"));
    free(text);
    OK(ls_variable_set(ls_model_variable(model, 0), (float[]){ 2, 2 }, 2 * sizeof(float)));
    OK(ls_model_save_weights(model, in_folder("a.keras")));
    OK(ls_model_from_keras(ctx, in_folder("a.keras"), &again));
    expect(again, 12);
    OK(ls_sequential(ctx, "made", &made, ls_input(2),
                     ls_registered("MyPackage>MyScale", "{" CONFIG "}", .name = "x", .frozen = true)));
    assert_false(ls_model_variable_is_trainable(made, 0));
    expect(made, 3);
    OK(ls_model_load_weights(made, in_folder("a.keras")));
    expect(made, 12);
    OK(ls_sequential(ctx, "outer", &nested, ls_input(2), ls_nested(model)));
    ls_model_destroy(model); /* the copy keeps its own options */
    expect(nested, 12);
    ls_model_destroy(nested);
    ls_model_destroy(made);
    ls_model_destroy(again);
}

static void several_inputs_need_the_option(void **state)
{
    (void)state;
    ls_model *model;
    for (int i = 0; i < 2; i++) {
        OK(ls_functional_begin(ctx, "two", &model));
        ls_symbol a = ls_symbol_input(model, ls_input(2)), b = ls_symbol_input(model, ls_input(2));
        ls_layer layer = i ? ls_registered("MyPackage>MyScale", "{" CONFIG "}") : ls_registered("Swap");
        ls_status status = ls_functional_end(model, ls_symbol_call(model, layer, a, b));
        assert_int_equal(status, i ? LS_ERR_INVALID : LS_OK);
        ls_model_destroy(model);
    }
    assert_non_null(strstr(ls_last_error(), "one input; 2"));
}

static void refused(ls_status status, ls_status expected, const char *words)
{
    if (status != expected || !strstr(ls_last_error(), words))
        fail_msg("%s, expected %s with \"%s\": %s", ls_status_name(status), ls_status_name(expected), words,
                 ls_last_error());
}

static void wrong_classes_and_configs_are_refused(void **state)
{
    (void)state;
    ls_model *model = NULL;
    const ls_layer_definition definition = { .call = swap };
    refused(ls_register_layer("Dense", definition), LS_ERR_INVALID, "Dense is a class of the library");
    refused(ls_register_layer("Swap", definition), LS_ERR_INVALID, "Swap is registered already");
    refused(ls_register_layer("P>", definition), LS_ERR_INVALID, "class name");
    refused(ls_register_layer(NULL, definition), LS_ERR_INVALID, "class name");
    refused(ls_register_layer("None", (ls_layer_definition){ .many_inputs = true }), LS_ERR_INVALID, "call is missing");
    refused(read_text(MODEL("Lambda", "null", ""), &model), LS_ERR_UNSUPPORTED, "Python code");
    refused(read_text(MODEL("Other", "\"MyPackage>Other\"", ""), &model), LS_ERR_UNSUPPORTED, "ls_register_layer");
    refused(read_text(MODEL("MyScale", "\"MyPackage>MyScale\"", ",\"more\":1," CONFIG), &model), LS_ERR_DATA, "more");
    refused(read_text(MODEL("MyScale", "\"MyPackage>MyScale\"", ",\"by\":2"), &model), LS_ERR_DATA, "start");
    refused(read_text(MODEL("MyScale", "\"MyPackage>MyScale\"", ",\"start\":1"), &model), LS_ERR_INVALID,
            "returned NULL");
    refused(ls_sequential(ctx, "c", &model, ls_input(2), ls_registered("Nowhere")), LS_ERR_NOT_FOUND, "Nowhere");
    refused(ls_sequential(ctx, "c", &model, ls_input(2), ls_registered()), LS_ERR_NOT_FOUND, "NULL");
    refused(ls_sequential(ctx, "c", &model, ls_input(2), ls_registered("Swap", "{")), LS_ERR_DATA, "config");
    assert_null(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_registered_class_is_read_made_and_saved),
        cmocka_unit_test(several_inputs_need_the_option),
        cmocka_unit_test(wrong_classes_and_configs_are_refused),
    };
    return cmocka_run_group_tests_name("registered", tests, set_up, tear_down);
}
