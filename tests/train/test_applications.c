/* The networks of keras.applications and nested models, against Keras: parameters, predictions,
 * names of weights, losses, and files that are written and read again.
 * tests/reference/make_applications.py made the files and describes manifest.json; its --compare
 * trains and saves the networks beside Keras. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "fixed.h"
#include "folder.h"
#include "lockstep.h"
#include "machine.h"

#define FOLDER "tests/reference/applications/"

enum { SAMPLES = 2 };

static json_t *manifest;
static ls_context *ctx;

static int set_up(void **state)
{
    return make_folder(state) != 0 || ls_json_read_file(FOLDER "manifest.json", &manifest) != LS_OK ||
           ls_context_open(NULL, &ctx) != LS_OK;
}

static int tear_down(void **state)
{
    json_decref(manifest);
    ls_context_close(ctx);
    return remove_folder(state);
}

static const char *path_of(const json_t *record)
{
    static char path[256];
    snprintf(path, sizeof(path), FOLDER "%s", json_string_value(json_object_get(record, "file")));
    return path;
}

/* ---- Fixed values: fixed_weight() of the script ---- */

static double weight_value(const char *kind, const ls_shape *shape, double gain, double u)
{
    if (strstr(kind, "kernel")) {
        int axes = shape->rank == 4 && shape->dims[3] == 1 ? 2 : shape->rank - 1;
        double fan = 1;
        for (int i = 0; i < axes; i++)
            fan *= (double)shape->dims[i];
        return u * gain * sqrt(3 / fan);
    }
    if (strcmp(kind, "gamma") == 0)
        return 1 + u / 4;
    return strstr(kind, "variance") ? 1 + u / 2 : u / 8;
}

/* Variables are counted within their layer: "conv1/0". */
static void fill_weights(ls_model *model, double gain)
{
    char key[300], layer[256] = "";
    int index = 0;
    for (size_t v = 0; v < ls_model_variable_count(model); v++) {
        ls_tensor *variable = ls_model_variable(model, v);
        const char *name = ls_model_variable_name(model, v), *kind = strrchr(name, '/') + 1;
        int length = (int)(kind - name - 1);
        index = strncmp(layer, name, (size_t)length) == 0 && layer[length] == 0 ? index + 1 : 0;
        snprintf(layer, sizeof(layer), "%.*s", length, name);
        snprintf(key, sizeof(key), "%s/%d", layer, index);
        if (ls_tensor_dtype(variable) != LS_F32)
            continue; /* a counter, which predictions do not use */
        ls_shape shape = ls_tensor_shape(variable);
        size_t count = 1;
        for (int i = 0; i < shape.rank; i++)
            count *= (size_t)shape.dims[i];
        float *values = malloc(count * sizeof(float));
        assert_non_null(values);
        uint64_t from = fixed_key(key);
        for (size_t i = 0; i < count; i++)
            values[i] = (float)weight_value(kind, &shape, gain, fixed_at(from, i));
        OK(ls_variable_set(variable, values, count * sizeof(float)));
        free(values);
    }
}

/* ---- Predictions ---- */

static ls_array zeros_of(ls_shape shape, size_t *count)
{
    *count = SAMPLES;
    shape.dims[0] = SAMPLES;
    for (int a = 1; a < shape.rank; a++)
        *count *= (size_t)shape.dims[a];
    float *values = calloc(*count, sizeof(float));
    assert_non_null(values);
    return ls_array_of(LS_F32, shape, values);
}

/* Fixed inputs, and zeros as labels of each output. name: with %d for the number of the input */
static ls_dataset *dataset_of(const ls_model *model, bool raw, const char *name)
{
    ls_array inputs[2], labels[2];
    size_t count = ls_model_input_count(model), label_count = ls_model_output_count(model), elements;
    assert_true(count <= LENGTH(inputs) && label_count <= LENGTH(labels));
    for (size_t i = 0; i < label_count; i++)
        labels[i] = zeros_of(ls_model_output_shape(model, i), &elements);
    for (size_t i = 0; i < count; i++) {
        char key[32];
        inputs[i] = zeros_of(ls_model_input_shape(model, i), &elements);
        float *values = inputs[i].data;
        snprintf(key, sizeof(key), name, (int)i);
        for (size_t k = 0; k < elements; k++) {
            double u = fixed(key, k);
            values[k] = (float)(raw ? (u + 1) * 127.5 : u);
        }
    }
    ls_dataset *data = ls_from_tensor_slices(.inputs = inputs, .input_count = (int)count, .targets = labels,
                                             .target_count = (int)label_count, .keep = LS_KEEP_OWNED);
    OK(ls_dataset_status(data));
    return data;
}

static void check_predictions(const char *name, ls_model *model, ls_dataset *data, int output, const json_t *expected,
                              double tolerance)
{
    ls_array found;
    OK(ls_predict(model, data, &found, .index = output));
    size_t count = json_array_size(expected);
    assert_int_equal(found.shape.dims[0], SAMPLES);
    for (size_t i = 0; i < count; i++) {
        double want = json_number_value(json_array_get(expected, i)), have = ((const float *)found.data)[i];
        if (!(fabs(have - want) <= tolerance * (fabs(want) + 0.01)))
            fail_msg("%s: output %d, element %zu is %.9g; Keras has %.9g", name, output, i, have, want);
    }
    free(found.data);
}

/* ---- Nested models ---- */

static ls_model *read_nested(const json_t *record)
{
    ls_model *model = NULL;
    OK(ls_model_from_keras(ctx, path_of(record), &model));
    return model;
}

static void nested_models_have_kerass_weights_and_predictions(void **state)
{
    (void)state;
    const char *name;
    json_t *record, *outputs, *entry;
    size_t i;
    json_object_foreach(json_object_get(manifest, "nested"), name, record)
    {
        ls_model *model = read_nested(record);
        ls_dataset *data = dataset_of(model, false, "input%d");
        assert_int_equal(ls_model_parameter_count(model), json_integer_value(json_object_get(record, "parameters")));
        json_t *weights = json_object_get(record, "weights");
        assert_int_equal(ls_model_variable_count(model), json_array_size(weights));
        for (size_t v = 0; v < ls_model_variable_count(model); v++) {
            bool found = false;
            json_array_foreach(weights, i, entry) found =
                found || strcmp(json_string_value(entry), ls_model_variable_name(model, v)) == 0;
            if (!found)
                fail_msg("%s: Keras has no weight %s", name, ls_model_variable_name(model, v));
        }
        outputs = json_object_get(record, "predictions");
        assert_int_equal(ls_model_output_count(model), json_array_size(outputs));
        json_array_foreach(outputs, i, entry) check_predictions(name, model, data, (int)i, entry, 1e-5);
        ls_dataset_destroy(data);
        ls_model_destroy(model);
    }
}

/* Every format, and for .keras the model too, gives the predictions again. */
static void nested_models_are_written_and_read_again(void **state)
{
    (void)state;
    static const char *const files[] = { "again.keras", "again.weights.h5", "again.safetensors", "again.npz" };
    const char *name;
    json_t *record, *entry;
    size_t i;
    json_object_foreach(json_object_get(manifest, "nested"), name, record)
    {
        for (size_t f = 0; f < LENGTH(files) + 1; f++) {
            ls_model *model = read_nested(record), *again = NULL;
            bool torch = f == LENGTH(files);
            const char *file = in_folder(torch ? "torch.safetensors" : files[f]);
            OK(ls_model_save_weights(model, file, .layout = torch ? LS_LAYOUT_TORCH : LS_LAYOUT_AUTO));
            if (f == 0) {
                OK(ls_model_from_keras(ctx, file, &again));
            } else {
                again = read_nested(record);
                OK(ls_model_initialize(again, 7));
                OK(ls_model_load_weights(again, file));
            }
            ls_dataset *data = dataset_of(again, false, "input%d");
            json_array_foreach(json_object_get(record, "predictions"), i, entry)
                check_predictions(name, again, data, (int)i, entry, 1e-5);
            char *before = NULL, *after = NULL;
            OK(ls_model_summary(model, &before));
            OK(ls_model_summary(again, &after));
            assert_string_equal(before, after);
            free(before);
            free(after);
            ls_dataset_destroy(data);
            ls_model_destroy(model);
            ls_model_destroy(again);
        }
    }
}

/* Shared models get the gradients of all calls; a frozen model keeps its weights. */
static void nested_models_train_like_keras(void **state)
{
    (void)state;
    const char *name;
    json_t *record;
    json_object_foreach(json_object_get(manifest, "nested"), name, record)
    {
        ls_model *model = read_nested(record);
        ls_history *history = NULL;
        ls_output outputs[2] = { { .loss = ls_mean_squared_error() }, { .loss = ls_mean_squared_error() } };
        ls_dataset *data = dataset_of(model, false, "input%d");
        size_t count = ls_model_output_count(model);
        OK(ls_compile(model, .optimizer = ls_sgd(0.1), .outputs = outputs, .output_count = count));
        OK(ls_fit(model, data, .epochs = 3, .batch_size = SAMPLES, .keep_order = true, .history = &history,
                  .verbose = LS_VERBOSE_SILENT));
        for (size_t e = 0; e < 3; e++) {
            double want = json_number_value(json_array_get(json_object_get(record, "losses"), e)), have = NAN;
            OK(ls_history_value(history, "loss", e, &have));
            if (!(fabs(have - want) <= 1e-5 * want))
                fail_msg("%s: loss of step %zu is %.9g; Keras has %.9g", name, e + 1, have, want);
        }
        ls_history_destroy(history);
        ls_dataset_destroy(data);
        ls_model_destroy(model);
    }
}

/* ---- Networks ---- */

static ls_model *read_network(const json_t *record)
{
    const char *path = in_folder("network.json");
    ls_model *model = NULL;
    size_t bytes;
    char *text = unpack(path_of(record), &bytes);
    OK(ls_file_write(path, text, bytes));
    free(text);
    OK(ls_model_from_keras_json(ctx, path, &model));
    unlink(path);
    return model;
}

static void networks_have_kerass_parameters_and_predictions(void **state)
{
    (void)state;
    const char *name;
    json_t *record;
    json_object_foreach(json_object_get(manifest, "networks"), name, record)
    {
        ls_model *model = read_network(record);
        const json_t *parameters = json_object_get(record, "parameters");
        int64_t trained = 0;
        for (size_t v = 0; v < ls_model_variable_count(model); v++) {
            ls_shape shape = ls_tensor_shape(ls_model_variable(model, v));
            int64_t count = 1;
            for (int i = 0; i < shape.rank; i++)
                count *= shape.dims[i];
            trained += ls_model_variable_is_trainable(model, v) ? count : 0;
        }
        if (ls_model_parameter_count(model) != json_integer_value(json_array_get(parameters, 0)) ||
            trained != json_integer_value(json_array_get(parameters, 1)))
            fail_msg("%s: %lld parameters, %lld of them trainable; Keras has %lld and %lld", name,
                     (long long)ls_model_parameter_count(model), (long long)trained,
                     (long long)json_integer_value(json_array_get(parameters, 0)),
                     (long long)json_integer_value(json_array_get(parameters, 1)));
        fill_weights(model, json_number_value(json_object_get(record, "gain")));
        ls_dataset *data = dataset_of(model, json_is_true(json_object_get(record, "raw")), "inputs");
        check_predictions(name, model, data, 0, json_object_get(record, "predictions"), 1e-4);
        ls_dataset_destroy(data);
        ls_model_destroy(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_models_have_kerass_weights_and_predictions),
        cmocka_unit_test(nested_models_are_written_and_read_again),
        cmocka_unit_test(nested_models_train_like_keras),
        cmocka_unit_test(networks_have_kerass_parameters_and_predictions),
    };
    return cmocka_run_group_tests_name("applications", tests, set_up, tear_down);
}
