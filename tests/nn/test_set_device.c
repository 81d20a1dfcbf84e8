/* Changes of a finished model. ls_model_set_device: built-in models and Keras's files, spread over
 * devices by ranges of layers, have the bits of the unspread ones; memory moves with the variables;
 * what is refused, and that it changes nothing. ls_model_set_norm_statistics: the bits are those of
 * layers that say it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"
#include "machine.h"

/* A range of layers, and where it goes. */
typedef struct range {
    const char *first, *last, *device;
} range;

typedef struct job {
    const char *model; /* built-in, or a folder of tests/reference/keras */
    ls_shape shape;
    range ranges[3];
    int gpus, cpus;
    const char *runs; /* in the log of placement */
} job;

static void make_model(ls_context *ctx, const job *j, ls_model **out)
{
    char path[128];
    if (strncmp(j->model, "keras/", 6) == 0) {
        snprintf(path, sizeof(path), "tests/reference/%s/model.json", j->model);
        OK(ls_model_from_keras_json(ctx, path, out));
    } else {
        OK(ls_model_builtin(ctx, j->model, out, .input = j->shape, .classes = 4));
    }
    for (size_t i = 0; i < LENGTH(j->ranges) && j->ranges[i].device; i++)
        OK(ls_model_set_device(*out, j->ranges[i].first, j->ranges[i].last, j->ranges[i].device));
}

/* Samples for every input, of which the last batch has fewer; labels are classes. */
static ls_dataset *make_data(const ls_model *model)
{
    enum { SAMPLES = 7 };
    ls_array inputs[2], label = ls_array_of(LS_I32, LS_SHAPE(SAMPLES), NULL);
    int32_t classes[SAMPLES];
    size_t count = ls_model_input_count(model);
    assert_true(count <= LENGTH(inputs));
    for (size_t i = 0; i < count; i++) {
        size_t elements = SAMPLES;
        ls_shape shape = ls_model_input_shape(model, i);
        shape.dims[0] = SAMPLES;
        for (int a = 1; a < shape.rank; a++)
            elements *= (size_t)shape.dims[a];
        float *values = malloc(elements * sizeof(float));
        assert_non_null(values);
        for (size_t k = 0; k < elements; k++)
            values[k] = (float)((uint32_t)(k * 2654435761u + i) >> 8) / 16777216;
        inputs[i] = ls_array_of(LS_F32, shape, values);
    }
    for (int i = 0; i < SAMPLES; i++)
        classes[i] = i % 3;
    label.data = classes;
    ls_dataset *data = ls_from_tensor_slices(.inputs = inputs, .input_count = (int)count, .labels = label);
    for (size_t i = 0; i < count; i++)
        free(inputs[i].data);
    OK(ls_dataset_status(data));
    return data;
}

static void hash_of(const job *j, char hex[65])
{
    machine m;
    ls_model *model = NULL;
    machine_create(&m, (machine_settings){ .gpu = { .devices = j->gpus, .memory = LS_MIB(200), .delay = -1 },
                                           .options = { .cpu_devices = j->cpus, .threads = 2 } });
    OK(ls_set_log_placement(m.ctx, true));
    make_model(m.ctx, j, &model);
    ls_dataset *data = make_data(model);
    OK(ls_compile(model, .optimizer = ls_sgd(0.01, .momentum = 0.9), .loss = ls_sparse_categorical_crossentropy()));
    OK(ls_fit(model, data, .batch_size = 4, .lanes = 3, .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_state_sha256(model, hex));
    if (j->runs)
        machine_has(m.log, j->runs); /* it was really there */
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    machine_close(&m);
}

static void must_equal(const char *expected, const job *j)
{
    char found[65];
    hash_of(j, found);
    if (strcmp(found, expected) != 0)
        fail_msg("%s with %s..%s on %s: %s instead of %s", j->model, j->ranges[0].first ? j->ranges[0].first : "",
                 j->ranges[0].last ? j->ranges[0].last : "", j->ranges[0].device, found, expected);
}

static void spread_models_have_the_bits_of_one_device(void **state)
{
    (void)state;
    static const job jobs[] = {
        { .model = "mnist-cnn",
          .shape = { 3, { 12, 12, 1 } },
          .ranges = { { NULL, "max_pooling2d", "cpu:0" }, { "conv2d_1", NULL, "cpu:1" } },
          .cpus = 2,
          .runs = "Conv2D in device " CPU(1) },
        { .model = "mnist-cnn",
          .shape = { 3, { 12, 12, 1 } },
          .ranges = { { "conv2d_1", "conv2d_1", "/gpu:1" } },
          .gpus = 2,
          .runs = "Conv2D in device " GPU(1) },
        { .model = "resnet18",
          .shape = { 3, { 8, 8, 2 } },
          .ranges = { { NULL, "conv3_block2_out", "cpu:1" }, { "conv4_block1_0_conv", NULL, "cpu:2" } },
          .cpus = 3,
          .runs = "Conv2D in device " CPU(2) },
        { .model = "keras/residual",
          .ranges = { { NULL, NULL, "cpu:0" }, { "block1_conv1", NULL, "cpu:1" } },
          .cpus = 2,
          .runs = "Conv2D in device " CPU(1) },
        { .model = "keras/two_inputs",
          .ranges = { { "a", "a", "cpu:1" }, { "product", NULL, "cpu:2" } },
          .cpus = 3,
          .runs = "MatMul in device " CPU(2) },
    };
    for (size_t i = 0; i < LENGTH(jobs); i++) {
        char expected[65];
        job one = { .model = jobs[i].model, .shape = jobs[i].shape, .gpus = jobs[i].gpus > 0, .cpus = 1 };
        hash_of(&one, expected);
        must_equal(expected, &jobs[i]);
    }
}

/* A device's limit counts the variables that belong to it, also if they had memory before they were
 * moved. */
static void memory_moves_with_the_variables(void **state)
{
    (void)state;
    machine m;
    ls_model *model = NULL, *still = NULL;
    char before[65], after[65];
    machine_create(&m, (machine_settings){ .options = { .cpu_devices = 2 } });
    OK(ls_model_builtin(m.ctx, "mlp", &model));
    OK(ls_model_builtin(m.ctx, "mlp", &still));
    OK(ls_model_initialize(model, 3));
    OK(ls_model_initialize(still, 3));
    size_t all = machine_memory(m.ctx, "cpu:0").in_use;
    OK(ls_model_weights_sha256(model, before));
    OK(ls_model_set_device(model, "dense", "dense", "/cpu:1"));
    OK(ls_model_weights_sha256(model, after));
    assert_string_equal(before, after);
    OK(ls_model_weights_sha256(still, after));
    assert_string_equal(before, after);
    size_t moved = machine_memory(m.ctx, "cpu:1").in_use;
    assert_true(moved >= (784 * 128 + 128) * sizeof(float));
    assert_true(machine_memory(m.ctx, "cpu:0").in_use + moved <= all + 4096);
    OK(ls_model_set_device(model, NULL, NULL, "/cpu:0"));
    assert_int_equal(machine_memory(m.ctx, "cpu:1").in_use, 0);
    ls_model_destroy(still);
    ls_model_destroy(model);
    machine_close(&m);
}

/* Where there is no room, nothing has moved. */
static void a_device_without_room_changes_nothing(void **state)
{
    (void)state;
    ls_context *ctx;
    ls_model *model = NULL;
    const ls_logical_device parts[2] = { { LS_MIB(8) }, { LS_MIB(1) } };
    OK(ls_context_create(NULL, &ctx));
    OK(ls_set_logical_devices(ctx, "cpu:0", parts, 2));
    OK(ls_model_builtin(ctx, "mlp", &model, .input = LS_SHAPE(3000)));
    OK(ls_model_initialize(model, 1));
    size_t in_use = machine_memory(ctx, "cpu:0").in_use;
    FAILS(ls_model_set_device(model, NULL, NULL, "/cpu:1"), LS_ERR_MEMORY, "dense/kernel");
    assert_int_equal(machine_memory(ctx, "cpu:0").in_use, in_use);
    assert_int_equal(machine_memory(ctx, "cpu:1").in_use, 0);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    machine m;
    ls_model *model = NULL;
    machine_create(&m, (machine_settings){ .options = { .cpu_devices = 2 } });
    OK(ls_model_builtin(m.ctx, "resnet50", &model));
    FAILS(ls_model_set_device(model, NULL, "conv3_blok4_out", "cpu:0"), LS_ERR_NOT_FOUND, "conv3_blok4_out",
          "did you mean conv3_block4_out?");
    FAILS(ls_model_set_device(model, "conv2_block1_out", "pool1", "cpu:0"), LS_ERR_INVALID, "conv2_block1_out",
          "comes after \"pool1\"");
    FAILS(ls_model_set_device(model, NULL, NULL, "cpu:2"), LS_ERR_NOT_FOUND, "CPU:2");
    assert_int_equal(ls_model_layer_count(model), 175);
    assert_string_equal(ls_model_layer_name(model, 1), "conv1_conv");
    assert_string_equal(ls_model_layer_name(model, 175), "");
    ls_model_destroy(model);
    machine_close(&m);
}

static void a_model_in_use_is_refused(void **state)
{
    (void)state;
    machine m;
    ls_model *model = NULL;
    ls_tensor *x, *y;
    machine_create(&m, (machine_settings){ .options = { .cpu_devices = 2 } });
    OK(ls_model_builtin(m.ctx, "linear", &model));
    LS_SCOPE(ls_model_graph(model))
    {
        x = ls_op_input(ls_model_graph(model), NULL, LS_F32, LS_SHAPE(LS_BATCH, 1));
        OK(ls_model_trace(model, &x, false, &y, NULL));
        FAILS(ls_model_set_device(model, NULL, NULL, "cpu:1"), LS_ERR_STATE, "linear", "before the model is traced");
    }
    OK(ls_model_set_device(model, NULL, NULL, "cpu:1")); /* the trace is gone */
    OK(ls_compile(model, .optimizer = ls_sgd(0.1), .loss = ls_mean_squared_error()));
    FAILS(ls_model_set_device(model, NULL, NULL, "cpu:0"), LS_ERR_STATE, "linear", "is compiled");
    ls_model_destroy(model);
    machine_close(&m);
}

/* ---- Statistics of batch norms ---- */

typedef enum said { SAID_NOTHING, SAID_BY_LAYERS, SAID_BY_MODEL, SAID_BATCH } said;

static void norm_hash(said how, const char *file, int cpus, ls_strategy strategy, char hex[65])
{
    machine m;
    ls_model *model = NULL;
    ls_norm_statistics own = how == SAID_BY_LAYERS || how == SAID_BATCH ? LS_PER_LANE : LS_PER_BATCH;
    machine_create(&m, (machine_settings){ .options = { .cpu_devices = cpus, .threads = 2 } });
    if (file)
        OK(ls_model_from_keras_json(m.ctx, file, &model));
    else
        OK(ls_sequential(m.ctx, "normed", &model, ls_input(6, 6, 2), ls_conv2d(4, 3),
                         ls_batch_normalization(.statistics = own), ls_relu(), ls_flatten(),
                         ls_batch_normalization(.statistics = own), ls_dense(4, .activation = LS_SOFTMAX)));
    if (how == SAID_BY_MODEL || how == SAID_BATCH)
        OK(ls_model_set_norm_statistics(model, how == SAID_BY_MODEL ? LS_PER_LANE : LS_PER_BATCH));
    bool by_lane = how == SAID_BY_LAYERS || how == SAID_BY_MODEL;
    assert_int_equal(ls_model_norm_count(model, by_lane ? LS_PER_BATCH : LS_PER_LANE), 0);
    assert_true(ls_model_norm_count(model, by_lane ? LS_PER_LANE : LS_PER_BATCH) >= 2);
    ls_dataset *data = make_data(model);
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy()));
    OK(ls_fit(model, data, .batch_size = 4, .lanes = 2, .strategy = strategy, .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_state_sha256(model, hex));
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    machine_close(&m);
}

static void statistics_are_set_for_all_norms(void **state)
{
    (void)state;
    char batch[65], found[65], lane[65];
    norm_hash(SAID_NOTHING, NULL, 1, ls_one_device(), batch);
    norm_hash(SAID_BY_LAYERS, NULL, 1, ls_one_device(), lane);
    assert_string_not_equal(batch, lane);
    norm_hash(SAID_BY_MODEL, NULL, 1, ls_one_device(), found);
    assert_string_equal(found, lane);
    norm_hash(SAID_BATCH, NULL, 1, ls_one_device(), found);
    assert_string_equal(found, batch);
    norm_hash(SAID_BY_MODEL, NULL, 3, ls_pipeline(), found);
    assert_string_equal(found, lane);
    norm_hash(SAID_BY_MODEL, NULL, 2, ls_mirrored(), found);
    assert_string_equal(found, lane);
}

static void statistics_of_a_file(void **state)
{
    (void)state;
    static const char path[] = "tests/reference/keras/residual/model.json";
    char batch[65], lane[65], found[65];
    norm_hash(SAID_NOTHING, path, 1, ls_one_device(), batch);
    norm_hash(SAID_BY_MODEL, path, 1, ls_one_device(), lane);
    norm_hash(SAID_BY_MODEL, path, 2, ls_pipeline(), found);
    assert_string_not_equal(batch, lane);
    assert_string_equal(found, lane);
}

static void one_norm(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    (void)user;
    outputs[0] = ls_layer_call(call, ls_batch_normalization(), inputs[0]);
}

static void statistics_that_are_refused(void **state)
{
    (void)state;
    ls_context *ctx;
    ls_model *model = NULL;
    const ls_layer input = ls_input(3);
    OK(ls_context_open(NULL, &ctx));
    OK(ls_custom(ctx, "own", &input, 1, 1, one_norm, NULL, &model));
    FAILS(ls_model_set_norm_statistics(model, LS_PER_LANE), LS_ERR_UNSUPPORTED, "own", "custom");
    ls_model_destroy(model);
    OK(ls_model_builtin(ctx, "linear", &model));
    FAILS(ls_model_set_norm_statistics(model, (ls_norm_statistics)7), LS_ERR_INVALID, "7");
    OK(ls_model_set_norm_statistics(model, LS_PER_LANE)); /* there are none */
    OK(ls_compile(model, .loss = ls_mean_squared_error()));
    FAILS(ls_model_set_norm_statistics(model, LS_PER_LANE), LS_ERR_STATE, "linear", "compiled");
    ls_model_destroy(model);
    ls_context_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread_models_have_the_bits_of_one_device),
        cmocka_unit_test(memory_moves_with_the_variables),
        cmocka_unit_test(a_device_without_room_changes_nothing),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(a_model_in_use_is_refused),
        cmocka_unit_test(statistics_are_set_for_all_norms),
        cmocka_unit_test(statistics_of_a_file),
        cmocka_unit_test(statistics_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
