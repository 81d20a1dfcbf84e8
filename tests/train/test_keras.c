/* Training against real Keras: models exported by Keras with its own initial weights, the same data
 * without shuffling. The loss of each of 50 steps and the final weights must agree.
 * tests/reference/make_keras.py made the files and describes manifest.json. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/json.h"
#include "data/safetensors.h"
#include "lockstep.h"
#include "machine.h"

#ifndef LS_TEST_DATA
#define LS_TEST_DATA "tests/reference"
#endif
#define FOLDER LS_TEST_DATA "/keras/"

static json_t *manifest;
static ls_context *ctx;
static int failures;

#define COMPLAIN(...)                                                                                                  \
    do {                                                                                                               \
        print_error(__VA_ARGS__);                                                                                      \
        print_error("\n");                                                                                             \
        failures++;                                                                                                    \
    } while (0)

static const char *path_of(const char *file)
{
    static char path[512];
    snprintf(path, sizeof(path), FOLDER "%s", file);
    return path;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static double number_of(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

/* ---- Models and data ---- */

static ls_model *load_model(const json_t *record)
{
    ls_model *model = NULL;
    const json_t *files = json_object_get(record, "files");
    OK(ls_model_from_keras_json(ctx, path_of(text_of(files, "model")), &model));
    OK(ls_model_load_weights(model, path_of(text_of(files, "weights"))));
    return model;
}

/* Features in the model's order, then labels, then weights. Pixels that Keras was fed divided by
 * 255 are fed as they are. */
static ls_dataset *load_data(const json_t *record, const char *part)
{
    ls_array inputs[8] = { { .data = NULL } }, labels = { .data = NULL }, weights = { .data = NULL };
    const json_t *files = json_object_get(record, "files"), *list = json_object_get(record, "inputs"), *input;
    size_t index;
    const char *file = text_of(files, "data");
    json_array_foreach(list, index, input)
    {
        OK(ls_npz_read(path_of(file), text_of(input, part), &inputs[index]));
        double divide = number_of(input, "divide", 1);
        assert_true(divide == 1 || (divide == 255 && inputs[index].dtype == LS_U8));
    }
    const json_t *label = json_object_get(record, "labels"), *weight = json_object_get(record, "sample_weights");
    if (label)
        OK(ls_npz_read(path_of(file), text_of(label, part), &labels));
    if (weight && text_of(weight, part))
        OK(ls_npz_read(path_of(file), text_of(weight, part), &weights));
    return ls_from_tensor_slices_with((ls_arrays_options){ .inputs = inputs,
                                                           .input_count = (int)json_array_size(list),
                                                           .labels = labels,
                                                           .weights = weights,
                                                           .keep = LS_KEEP_OWNED });
}

/* ---- Specs from Keras's configs ---- */

static ls_loss loss_of(const json_t *record)
{
    static const struct {
        const char *name;
        ls_loss_kind kind;
    } kinds[] = { { "SparseCategoricalCrossentropy", LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY },
                  { "CategoricalCrossentropy", LS_LOSS_CATEGORICAL_CROSSENTROPY },
                  { "BinaryCrossentropy", LS_LOSS_BINARY_CROSSENTROPY },
                  { "MeanSquaredError", LS_LOSS_MEAN_SQUARED_ERROR },
                  { "MeanAbsoluteError", LS_LOSS_MEAN_ABSOLUTE_ERROR },
                  { "Huber", LS_LOSS_HUBER } };
    const json_t *loss = json_object_get(record, "loss"), *config = json_object_get(loss, "config");
    ls_loss made = { .kind = LS_LOSS_NONE };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(text_of(loss, "class_name"), kinds[i].name) == 0)
            made.kind = kinds[i].kind;
    made.options.from_logits = json_is_true(json_object_get(config, "from_logits"));
    made.options.delta = number_of(config, "delta", 0);
    assert_true(made.kind != LS_LOSS_NONE);
    return made;
}

static ls_optimizer optimizer_of(const json_t *the_case)
{
    const json_t *c = json_object_get(the_case, "config");
    const char *name = text_of(the_case, "optimizer");
    ls_optimizer o = { .kind = strcmp(name, "adam") == 0      ? LS_OPTIMIZER_ADAM
                               : strcmp(name, "adamw") == 0   ? LS_OPTIMIZER_ADAMW
                               : strcmp(name, "rmsprop") == 0 ? LS_OPTIMIZER_RMSPROP
                                                              : LS_OPTIMIZER_SGD };
    o.options.learning_rate = number_of(c, "learning_rate", 0);
    o.options.momentum = number_of(c, "momentum", 0);
    o.options.nesterov = json_is_true(json_object_get(c, "nesterov"));
    o.options.beta_1 = number_of(c, "beta_1", 0);
    o.options.beta_2 = number_of(c, "beta_2", 0);
    o.options.rho = number_of(c, "rho", 0);
    o.options.epsilon = number_of(c, "epsilon", 0);
    o.options.weight_decay = number_of(c, "weight_decay", 0);
    return o;
}

/* ---- Comparing ---- */

static bool near(double a, double b, double relative, double absolute)
{
    return fabs(a - b) <= absolute + relative * fabs(b);
}

static void compare_losses(const char *what, const char *log, const json_t *expected, double tolerance)
{
    FILE *file = fopen(log, "r");
    char line[4096];
    size_t step = 0;
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        json_t *event = json_loads(line, 0, NULL);
        assert_non_null(event);
        if (strcmp(text_of(event, "event"), "step") == 0) {
            double want = json_number_value(json_array_get(expected, step)), got = number_of(event, "loss", NAN);
            if (!near(got, want, tolerance, 1e-7))
                COMPLAIN("%s: loss of step %zu is %.9g, Keras has %.9g", what, step + 1, got, want);
            step++;
        }
        json_decref(event);
    }
    fclose(file);
    if (step != json_array_size(expected))
        COMPLAIN("%s: %zu steps were taken, %zu expected", what, step, json_array_size(expected));
}

static void compare_weights(const char *what, const ls_model *model, const char *file, double tolerance)
{
    ls_safetensors *expected = NULL;
    OK(ls_safetensors_open(path_of(file), &expected));
    assert_int_equal(ls_safetensors_count(expected), ls_model_variable_count(model));
    for (size_t i = 0; i < ls_model_variable_count(model); i++) {
        const char *name = ls_model_variable_name(model, i);
        const ls_safetensors_entry *entry = ls_safetensors_find(expected, name);
        ls_array value;
        if (!entry) {
            COMPLAIN("%s: Keras has no %s", what, name);
            continue;
        }
        OK(ls_value(ls_model_variable(model, i), &value));
        double worst = 0;
        for (size_t k = 0; k < entry->bytes / sizeof(float); k++) {
            double a = ((const float *)value.data)[k], b = ((const float *)entry->data)[k];
            double scale = fabs(b) > 1 ? fabs(b) : 1, error = fabs(a - b) / scale;
            if (!(error <= worst))
                worst = error;
        }
        if (!(worst <= tolerance))
            COMPLAIN("%s: %s differs by %g, allowed is %g", what, name, worst, tolerance);
    }
    ls_safetensors_close(expected);
}

static void compare_output(const char *what, ls_model *model, const json_t *record, const char *label, size_t output,
                           double tolerance)
{
    const json_t *files = json_object_get(record, "files");
    ls_safetensors *expected = NULL;
    ls_dataset *test = load_data(record, "test");
    ls_array found = { .data = NULL };
    char name[256];
    OK(ls_safetensors_open(path_of(text_of(files, "predictions")), &expected));
    snprintf(name, sizeof(name), "%s/%s", label,
             json_string_value(json_array_get(json_object_get(record, "outputs"), output)));
    const ls_safetensors_entry *entry = ls_safetensors_find(expected, name);
    assert_non_null(entry);
    OK(ls_predict(model, test, &found, .batch_size = 5, .index = (int)output));
    assert_int_equal(found.shape.dims[0], entry->shape.dims[0]);
    for (size_t k = 0; k < entry->bytes / sizeof(float); k++) {
        double a = ((const float *)found.data)[k], b = ((const float *)entry->data)[k];
        if (!near(a, b, tolerance, tolerance)) {
            COMPLAIN("%s: prediction %zu is %.9g, Keras has %.9g", what, k, a, b);
            break;
        }
    }
    free(found.data);
    ls_dataset_destroy(test);
    ls_safetensors_close(expected);
}

static void compare_predictions(const char *what, ls_model *model, const json_t *record, const char *label,
                                double tolerance)
{
    for (size_t i = 0; i < ls_model_output_count(model); i++)
        compare_output(what, model, record, label, i, tolerance);
}

/* ---- Tests ---- */

static void every_case_trains_as_keras_does(void **state)
{
    (void)state;
    size_t index;
    json_t *the_case;
    failures = 0;
    json_array_foreach(json_object_get(manifest, "cases"), index, the_case)
    {
        const char *name = text_of(the_case, "model"), *optimizer = text_of(the_case, "optimizer");
        const json_t *record = json_object_get(json_object_get(manifest, "models"), name);
        const json_t *tolerance =
            json_object_get(json_object_get(manifest, "tolerances"), text_of(the_case, "tolerance"));
        const json_t *classes = json_object_get(record, "class_weights");
        double class_weights[16] = { 0 };
        char what[128], log[] = "/tmp/lockstep-keras-XXXXXX";
        int descriptor = mkstemp(log);
        assert_true(descriptor >= 0);
        close(descriptor);
        snprintf(what, sizeof(what), "%s with %s", name, optimizer);
        for (size_t i = 0; i < json_object_size(classes); i++) {
            char key[16];
            snprintf(key, sizeof(key), "%zu", i);
            class_weights[i] = number_of(classes, key, 0);
        }
        ls_model *model = load_model(record);
        ls_dataset *train = load_data(record, "train");
        OK(ls_compile(model, .optimizer = optimizer_of(the_case), .loss = loss_of(record)));
        ls_status status = ls_fit(model, train, .epochs = 1000,
                                  .batch_size = json_integer_value(json_object_get(record, "batch_size")),
                                  .max_steps = json_integer_value(json_object_get(record, "steps")), .keep_order = true,
                                  .verbose = LS_VERBOSE_SILENT, .log = log, .class_weights = class_weights,
                                  .class_count = json_object_size(classes));
        if (status != LS_OK) {
            COMPLAIN("%s: %s", what, ls_last_error());
        } else {
            compare_losses(what, log, json_object_get(the_case, "losses"), number_of(tolerance, "loss", 0));
            compare_weights(what, model, text_of(the_case, "weights"), number_of(tolerance, "weights", 0));
            compare_predictions(what, model, record, optimizer, 10 * number_of(tolerance, "weights", 0));
        }
        remove(log);
        ls_dataset_destroy(train);
        ls_model_destroy(model);
    }
    assert_true(index > 20);
    assert_int_equal(failures, 0);
}

static void every_model_predicts_as_keras_does(void **state)
{
    (void)state;
    const char *name;
    json_t *record;
    int count = 0;
    failures = 0;
    json_object_foreach(json_object_get(manifest, "models"), name, record)
    {
        ls_model *model = load_model(record);
        ls_loss loss = json_object_get(record, "loss") ? loss_of(record) : ls_mean_squared_error();
        OK(ls_compile(model, .loss = loss));
        compare_predictions(name, model, record, "initial", 1e-5);
        count += (int)ls_model_output_count(model);
        int64_t parameters = json_integer_value(json_array_get(json_object_get(record, "parameters"), 0)) +
                             json_integer_value(json_array_get(json_object_get(record, "parameters"), 1));
        if (ls_model_parameter_count(model) != parameters)
            COMPLAIN("%s has %lld parameters, Keras has %lld", name, (long long)ls_model_parameter_count(model),
                     (long long)parameters);
        ls_model_destroy(model);
    }
    assert_true(count > 8);
    assert_int_equal(failures, 0);
}

static void fit_reports_what_keras_reports(void **state)
{
    (void)state;
    size_t index;
    json_t *fit;
    failures = 0;
    json_array_foreach(json_object_get(manifest, "fits"), index, fit)
    {
        const char *name = text_of(fit, "model"), *key;
        const json_t *record = json_object_get(json_object_get(manifest, "models"), name);
        json_t *history = json_object_get(fit, "history"), *row;
        int64_t epochs = json_integer_value(json_object_get(fit, "epochs"));
        ls_model *model = load_model(record);
        ls_dataset *train = load_data(record, "train"), *test = load_data(record, "test");
        ls_history *found = NULL;
        ls_optimizer optimizer =
            strcmp(text_of(fit, "optimizer"), "adam") == 0 ? ls_adam() : ls_sgd(.learning_rate = 0.01);
        OK(ls_compile(model, .optimizer = optimizer, .loss = loss_of(record), .metrics = ls_metrics(ls_accuracy())));
        OK(ls_fit(model, train, .epochs = epochs,
                  .batch_size = json_integer_value(json_object_get(record, "batch_size")), .keep_order = true,
                  .validation = test, .verbose = LS_VERBOSE_SILENT, .history = &found));
        json_object_foreach(history, key, row)
        {
            for (int64_t e = 0; e < epochs; e++) {
                double got = NAN, want = json_number_value(json_array_get(row, (size_t)e));
                OK(ls_history_value(found, key, (size_t)e, &got));
                if (!near(got, want, 1e-3, 1e-6))
                    COMPLAIN("%s: %s of epoch %lld is %.9g, Keras has %.9g", name, key, (long long)e + 1, got, want);
            }
        }
        ls_history_destroy(found);
        ls_dataset_destroy(train);
        ls_dataset_destroy(test);
        ls_model_destroy(model);
    }
    assert_true(index >= 2);
    assert_int_equal(failures, 0);
}

static void what_is_not_honoured_is_named(void **state)
{
    (void)state;
    size_t index, word;
    json_t *entry, *name;
    failures = 0;
    json_array_foreach(json_object_get(manifest, "refused"), index, entry)
    {
        ls_model *model = NULL;
        const char *file = text_of(entry, "file");
        if (ls_model_from_keras_json(ctx, path_of(file), &model) == LS_OK) {
            COMPLAIN("%s was read", file);
            ls_model_destroy(model);
            continue;
        }
        json_array_foreach(json_object_get(entry, "names"), word,
                           name) if (!strstr(ls_last_error(), json_string_value(name)))
            COMPLAIN("%s: \"%s\" is not in: %s", file, json_string_value(name), ls_last_error());
    }
    json_array_foreach(json_object_get(manifest, "readable"), index, entry)
    {
        ls_model *model = NULL;
        const char *file = text_of(entry, "file");
        if (ls_model_from_keras_json(ctx, path_of(file), &model) != LS_OK)
            COMPLAIN("%s: %s", file, ls_last_error());
        ls_model_destroy(model);
    }
    assert_int_equal(failures, 0);
}

static int set_up(void **state)
{
    (void)state;
    return ls_json_read_file(FOLDER "manifest.json", &manifest) == LS_OK && ls_context_open(NULL, &ctx) == LS_OK ? 0
                                                                                                                 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    json_decref(manifest);
    ls_context_close(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_predicts_as_keras_does),
        cmocka_unit_test(every_case_trains_as_keras_does),
        cmocka_unit_test(fit_reports_what_keras_reports),
        cmocka_unit_test(what_is_not_honoured_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
