/* The built-in networks of torchvision: names and shapes of its state dicts, its predictions from a
 * file with its names, and the same file written again (tests/reference/make_torchvision.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "data/tensors.h"
#include "fixed.h"
#include "folder.h"
#include "lockstep.h"
#include "nn/layout.h"

enum { SAMPLES = 2, SIZE = 64, CLASSES = 10 };

static json_t *networks;
static ls_context *ctx;

static int set_up(void **state)
{
    size_t bytes;
    char *text = unpack("tests/reference/torchvision.json.gz", &bytes);
    networks = json_loadb(text, bytes, 0, NULL);
    free(text);
    return make_folder(state) != 0 || !networks || ls_context_open(NULL, &ctx) != LS_OK;
}

static int tear_down(void **state)
{
    json_decref(networks);
    ls_context_close(ctx);
    return remove_folder(state);
}

/* ---- Names ---- */

static void check_name(const char *network, const ls_stored_weight *stored, const json_t *state)
{
    const json_t *sizes = json_object_get(state, stored->name);
    bool same = json_array_size(sizes) == (size_t)stored->shape.rank;
    for (int i = 0; i < stored->shape.rank && same; i++)
        same = json_integer_value(json_array_get(sizes, (size_t)i)) == stored->shape.dims[i];
    char text[LS_SHAPE_TEXT];
    if (!sizes || !same)
        fail_msg("%s: torchvision has no \"%s\" %s", network, stored->name, ls_shape_format(&stored->shape, text));
}

/* Weights are not needed for that, so none are made. */
static void networks_have_torchvisions_names_and_shapes(void **state)
{
    (void)state;
    const char *name;
    json_t *record;
    json_object_foreach(networks, name, record)
    {
        ls_model *model;
        ls_stored_weight *stored;
        const json_t *names = json_object_get(record, "state");
        OK(ls_model_builtin(ctx, name, &model));
        OK(ls_stored_weights_make(model, LS_STYLE_TORCH, &stored));
        assert_int_equal(ls_model_variable_count(model), json_object_size(names));
        for (size_t i = 0; i < ls_model_variable_count(model); i++)
            check_name(name, &stored[i], names);
        ls_stored_weights_free(stored, model);
        ls_model_destroy(model);
    }
}

/* ---- Weights and predictions ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* fixed_weight() of the script. */
static float *values_of(const char *name, const ls_shape *shape, double gain)
{
    bool kernel = shape->rank == 2 || shape->rank == 4;
    bool factor = ends_with(name, ".weight") || ends_with(name, "layer_scale"),
         variance = ends_with(name, "running_var");
    double fan = 1, count = (double)shape->dims[0];
    for (int i = 1; i < shape->rank; i++)
        fan *= (double)shape->dims[i];
    count *= fan;
    double spread = sqrt(3 / fan);
    uint64_t key = fixed_key(name);
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < (size_t)count; i++) {
        double u = fixed_at(key, i);
        values[i] = (float)(kernel ? u * gain * spread : factor ? 1 + u / 4 : variance ? 1 + u / 2 : u / 8);
    }
    return values;
}

/* A file as torch would save it: names and shapes are torchvision's, of CLASSES classes, and the
 * counters of batches are there. */
static void write_state(const char *path, const json_t *state, double gain)
{
    static const int64_t batches = 7;
    size_t count = 0, room = json_object_size(state) * 2;
    ls_safetensors_entry *entries = calloc(room, sizeof *entries);
    char(*counters)[128] = calloc(room, sizeof *counters);
    const char *name;
    json_t *sizes;
    assert_true(entries && counters);
    json_object_foreach((json_t *)state, name, sizes)
    {
        ls_safetensors_entry *e = &entries[count++];
        *e = (ls_safetensors_entry){ .name = name, .dtype = LS_F32, .shape.rank = (int)json_array_size(sizes) };
        for (int i = 0; i < e->shape.rank; i++)
            e->shape.dims[i] = json_integer_value(json_array_get(sizes, (size_t)i));
        e->shape.dims[0] = e->shape.dims[0] == 1000 ? CLASSES : e->shape.dims[0];
        e->data = values_of(name, &e->shape, gain);
        if (!ends_with(name, "running_var"))
            continue;
        snprintf(counters[count], sizeof *counters, "%.*s.num_batches_tracked", (int)strlen(name) - 12, name);
        entries[count] =
            (ls_safetensors_entry){ .name = counters[count], .dtype = LS_I64, .shape.rank = 0, .data = &batches };
        count++;
    }
    OK(ls_tensors_write(path, LS_TENSORS_SAFETENSORS, entries, count, NULL, 0));
    for (size_t i = 0; i < count; i++)
        if (entries[i].dtype == LS_F32)
            free((void *)entries[i].data);
    free(counters);
    free(entries);
}

static ls_array images(void)
{
    size_t count = SAMPLES * SIZE * SIZE * 3;
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((fixed("images", i) + 1) / 2);
    return ls_array_of(LS_F32, LS_SHAPE(SAMPLES, SIZE, SIZE, 3), values);
}

static void check_predictions(const char *name, ls_model *model, const json_t *expected)
{
    ls_array x = images(), y;
    OK(ls_predict_array(model, x, &y));
    assert_int_equal(json_array_size(expected), SAMPLES * CLASSES);
    for (size_t i = 0; i < SAMPLES * CLASSES; i++) {
        double want = json_number_value(json_array_get(expected, i)), have = ((float *)y.data)[i];
        if (!(fabs(have - want) <= 2e-5 * (want + 0.01)))
            fail_msg("%s: element %zu is %.9g; torchvision has %.9g", name, i, have, want);
    }
    free(x.data);
    free(y.data);
}

/* A step with another rate for the head than for the rest must change both. */
static void train_one_step(const char *name, ls_model *model)
{
    char before[65], after[65];
    ls_array x = images();
    int32_t labels[SAMPLES] = { 1, 3 };
    ls_array y = ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels);
    ls_dataset *data = ls_from_tensor_slices(.inputs = &x, .input_count = 1, .targets = &y, .target_count = 1);
    ls_history *history = NULL;
    double loss = NAN;
    OK(ls_model_weights_sha256(model, before));
    OK(ls_compile(model, .optimizer = ls_sgd(0.01), .loss = ls_sparse_categorical_crossentropy()));
    OK(ls_fit(model, data, .batch_size = SAMPLES, .epochs = 1, .history = &history, .verbose = LS_VERBOSE_SILENT));
    OK(ls_history_value(history, "loss", 0, &loss));
    OK(ls_model_weights_sha256(model, after));
    if (!(loss > 0 && loss < 50) || strcmp(before, after) == 0)
        fail_msg("%s: the loss of a step is %g", name, loss);
    ls_history_destroy(history);
    ls_dataset_destroy(data);
    free(x.data);
}

static void torchvisions_weights_give_its_predictions(void **state)
{
    (void)state;
    const char *name;
    json_t *record;
    json_object_foreach(networks, name, record)
    {
        ls_model *model;
        bool equal;
        char *text;
        const json_t *expected = json_object_get(record, "predictions");
        if (!expected)
            continue;
        const char *file = in_folder("theirs.safetensors");
        write_state(file, json_object_get(record, "state"), json_number_value(json_object_get(record, "gain")));
        OK(ls_model_builtin(ctx, name, &model, .input = LS_SHAPE(SIZE, SIZE, 3), .classes = CLASSES));
        OK(ls_model_load_weights(model, file));
        check_predictions(name, model, expected);
        OK(ls_model_save_weights(model, in_folder("ours.safetensors"), .layout = LS_LAYOUT_TORCH));
        OK(ls_weights_diff(file, in_folder("ours.safetensors"), NULL, &equal, &text));
        for (const char *line = text; strchr(line, '\n'); line = strchr(line, '\n') + 1)
            if (strncmp(line, "different: ", 11) != 0 && strncmp(line, "equal bits", 10) != 0 &&
                !strstr(line, ".num_batches_tracked\" (): only in "))
                fail_msg("%s: %s", name, line);
        free(text);
        ls_model_destroy(model);
    }
}

/* The smallest network, with everything that differs in training: dropout, stochastic depth, batch
 * norm. */
static void a_network_trains(void **state)
{
    (void)state;
    ls_model *model;
    OK(ls_model_builtin(ctx, "efficientnet_b0", &model, .input = LS_SHAPE(SIZE, SIZE, 3), .classes = CLASSES));
    OK(ls_model_initialize(model, 3));
    train_one_step("efficientnet_b0", model);
    ls_model_destroy(model);
}

/* VGG's features are pooled to 7x7, which PyTorch does in a way of its own for most sizes. */
static void vgg_names_the_sizes_that_it_supports(void **state)
{
    (void)state;
    static const int64_t good[] = { 32, 64, 95, 224, 255, 448 }, bad[] = { 96, 223, 256, 447 };
    ls_model *model;
    for (size_t i = 0; i < LENGTH(good); i++) {
        OK(ls_model_builtin(ctx, "vgg11", &model, .input = LS_SHAPE(good[i], 32, 3)));
        ls_model_destroy(model);
    }
    for (size_t i = 0; i < LENGTH(bad); i++)
        FAILS(ls_model_builtin(ctx, "vgg11", &model, .input = LS_SHAPE(32, bad[i], 3)), LS_ERR_SHAPE, "vgg11",
              "32 to 95, 224 to 255");
    FAILS(ls_model_builtin(ctx, "vgg11", &model, .input = LS_SHAPE(31, 32, 3)), LS_ERR_SHAPE, "vgg11", "at least 32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_have_torchvisions_names_and_shapes),
        cmocka_unit_test(torchvisions_weights_give_its_predictions),
        cmocka_unit_test(a_network_trains),
        cmocka_unit_test(vgg_names_the_sizes_that_it_supports),
    };
    return cmocka_run_group_tests_name("torchvision", tests, set_up, tear_down);
}
