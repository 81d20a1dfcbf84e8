/* ls_fit on devices: layers that belong to devices, strategies, and what each really uses. Bits are
 * compared by the hash of parameters and optimizer state. */
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
#include "samples.h"

#define SAMPLES 40
#define SIDE    8
#define CLASSES 4

/* ---- One training ---- */

typedef struct job {
    const char *first, *second; /* devices of the halves */
    ls_strategy strategy;
    int gpus, cpus;
    bool copies;
    int64_t batch;
    ls_optimizer optimizer; /* none: Adam */
    bool resizing, noisy;   /* the model of make_resizing_model or make_noisy_model */
} job;

/* Layers that are made of ops of other layers: sequences, transposed and separable convolutions,
 * resizing. */
static ls_model *make_resizing_model(ls_context *ctx, const job *j)
{
    ls_model *model = NULL;
    OK(ls_sequential(
        ctx, "resizing", &model, ls_input(SIDE, SIDE, 1),
        ls_resizing(6, 5, .crop_to_aspect_ratio = true, .device = j->first),
        ls_conv2d_transpose(5, 3, 2, .padding = LS_SAME, .activation = LS_RELU, .device = j->first),
        ls_up_sampling2d(.size = { 1, 2 }, .interpolation = LS_BILINEAR, .device = j->first),
        ls_separable_conv2d(4, 3, 2, .device = j->first), ls_up_sampling2d(.size = { 2, 1 }, .device = j->second),
        ls_cropping2d(.cropping = { 1, 0, 0, 1 }, .device = j->second), ls_permute(2, 1, 3, .device = j->second),
        ls_reshape(-1, 6, .device = j->second), ls_zero_padding1d(1, .device = j->second),
        ls_conv1d(6, 3, .padding = LS_CAUSAL, .dilation_rate = { 2 }, .groups = 2, .device = j->second),
        ls_average_pool1d(2, .device = j->second), ls_conv1d_transpose(4, 3, 2, .device = j->second),
        ls_max_pool1d(3, 2, .device = j->second), ls_depthwise_conv1d(2, .device = j->second),
        ls_separable_conv1d(6, 2, .device = j->second), ls_up_sampling1d(2, .device = j->second),
        ls_global_average_pool1d(.device = j->second), ls_repeat_vector(3, .device = j->second),
        ls_global_max_pool1d(.device = j->second), ls_dense(CLASSES, .activation = LS_SOFTMAX, .device = j->second)));
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy()));
    return model;
}

static ls_symbol call(const job *j, ls_layer layer, ls_symbol x, bool second)
{
    layer.options.device = second ? j->second : j->first;
    return ls_symbol_call(x.model, layer, x);
}

/* Norms, layers that draw random numbers, merges and an activity regularizer. */
static ls_model *make_noisy_model(ls_context *ctx, const job *j)
{
    const double mean = 0.5, variance = 0.25;
    ls_model *model = NULL;
    OK(ls_functional_begin(ctx, "noisy", &model));
    ls_symbol x = ls_symbol_input(model, ls_input(SIDE, SIDE, 1)), parts[5];
    x = call(j, ls_normalization(.mean = { 1, &mean }, .variance = { 1, &variance }), x, false);
    x = call(j, ls_gaussian_noise(0.1), x, false);
    x = call(j, ls_conv2d(8, 3, .activation = LS_HARD_SILU), x, false);
    x = call(j, ls_spatial_dropout2d(0.25), call(j, ls_group_normalization(4), x, false), false);
    ls_symbol y = call(j, ls_stochastic_depth(0.5), call(j, ls_layer_scale(8, .init_values = 0.5), x, false), false);
    x = ls_symbol_call(model, ls_custom_scale(0.5, .device = j->first), x, y);
    x = call(j, ls_prelu(.shared_axes = LS_AXES(1, 2)), call(j, ls_max_pool2d(2), x, false), false);
    x = call(j, ls_spatial_dropout1d(0.25), call(j, ls_reshape(-1, 8), x, true), true);
    x = call(j, ls_rms_normalization(), call(j, ls_gaussian_dropout(0.25), x, true), true);
    x = call(j, ls_dense(12, .activation = LS_GLU), call(j, ls_flatten(), x, true), true);
    parts[0] = call(j, ls_alpha_dropout(0.25), call(j, ls_dense(6, .activation = LS_SELU), x, true), true);
    parts[1] = call(j, ls_dense(6, .activation = LS_MISH, .activity_regularizer = { .l1 = 0.01, .l2 = 0.1 }), x, true);
    parts[2] = call(j, ls_elu(0.5), x, true);
    parts[3] = ls_symbol_call(model, ls_maximum(.device = j->second), parts[0], parts[1], parts[2]);
    parts[4] = ls_symbol_call(model, ls_dot(1, .normalize = true, .device = j->second), parts[1], parts[2]);
    x = ls_symbol_call(model, ls_concatenate(.device = j->second), parts[3], parts[4]);
    x = call(j, ls_dense(CLASSES, .activation = LS_SOFTMAX), call(j, ls_unit_normalization(), x, true), true);
    OK(ls_functional_end(model, x));
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy()));
    return model;
}

static ls_model *make_model(ls_context *ctx, const job *j)
{
    ls_model *model = NULL;
    if (j->resizing)
        return make_resizing_model(ctx, j);
    if (j->noisy)
        return make_noisy_model(ctx, j);
    OK(ls_sequential(ctx, "halves", &model, ls_input(SIDE, SIDE, 1),
                     ls_conv2d(8, 3, .activation = LS_RELU, .device = j->first),
                     ls_batch_normalization(.device = j->first), ls_max_pool2d(2, .device = j->first),
                     ls_flatten(.device = j->second), ls_dropout(0.25, .device = j->second),
                     ls_dense(16, .activation = LS_RELU, .device = j->second),
                     ls_dense(CLASSES, .activation = LS_SOFTMAX, .device = j->second)));
    OK(ls_compile(model, .optimizer = j->optimizer.kind ? j->optimizer : ls_adam(),
                  .loss = ls_sparse_categorical_crossentropy(), .metrics = ls_metrics(ls_accuracy())));
    return model;
}

static ls_dataset *data(void)
{
    return samples_of_bytes(SAMPLES, SIDE, CLASSES);
}

static void open_machine(machine *m, const job *j)
{
    machine_create(
        m, (machine_settings){ .gpu = { .devices = j->gpus, .copies = j->copies, .memory = LS_MIB(2), .delay = -1 },
                               .options = { .cpu_devices = j->cpus, .threads = 2 } });
}

static ls_status fit(ls_model *model, ls_dataset *train, ls_dataset *validation, const job *j)
{
    return ls_fit(model, train, .epochs = 2, .batch_size = j->batch ? j->batch : 16, .lanes = 3,
                  .verbose = LS_VERBOSE_SILENT, .strategy = j->strategy, .validation = validation);
}

/* Fits and evaluates; the hash of the result. */
static void hash_of(const job *j, char hex[65], gpu_counts *counts)
{
    machine m;
    ls_results results = { .count = 0 };
    open_machine(&m, j);
    ls_model *model = make_model(m.ctx, j);
    ls_dataset *train = data(), *validation = data();
    OK(fit(model, train, validation, j));
    OK(ls_evaluate(model, train, &results, .strategy = j->strategy, .batch_size = 16));
    assert_int_equal(results.samples, SAMPLES);
    OK(ls_model_state_sha256(model, hex));
    if (counts)
        *counts = gpu_counted(m.g);
    ls_dataset_destroy(train);
    ls_dataset_destroy(validation);
    ls_model_destroy(model);
    machine_close(&m);
}

static void must_equal(const char *expected, const job *j)
{
    char found[65];
    hash_of(j, found, NULL);
    if (strcmp(found, expected) != 0)
        fail_msg("halves on %s and %s, strategy %d on %s, %d GPUs, %d CPUs: %s instead of %s",
                 j->first ? j->first : "any", j->second ? j->second : "any", (int)j->strategy.kind,
                 j->strategy.devices ? j->strategy.devices : "all", j->gpus, j->cpus, found, expected);
}

/* ---- Layers on devices ---- */

static void halves_on_gpus_have_the_bits_of_one(void **state)
{
    (void)state;
    char expected[65];
    static const job jobs[] = {
        { "gpu:0", "gpu:1", .gpus = 2 },
        { "gpu:1", "gpu:0", .gpus = 2, .copies = true },
        { "/gpu:1", NULL, .gpus = 3 },
        { NULL, GPU(2), .gpus = 3, .copies = true },
        { "gpu:0", "gpu:4", .gpus = 5, .cpus = 2, .copies = true },
        { NULL, NULL, .gpus = 5 },
    };
    for (int64_t batch = 7; batch <= 16; batch += 9) {
        hash_of(&(job){ .gpus = 1, .batch = batch }, expected, NULL);
        for (size_t i = 0; i < LENGTH(jobs); i++) {
            job j = jobs[i];
            j.batch = batch;
            must_equal(expected, &j);
        }
    }
}

static void halves_on_cpus_have_the_bits_of_one(void **state)
{
    (void)state;
    char expected[65];
    static const job jobs[] = {
        { "cpu:0", "cpu:1", .cpus = 2 },
        { "cpu:1", "cpu:0", .cpus = 3 },
        { NULL, "cpu:7", .cpus = 8 },
    };
    hash_of(&(job){ .cpus = 1 }, expected, NULL);
    for (size_t i = 0; i < LENGTH(jobs); i++)
        must_equal(expected, &jobs[i]);
}

static void halves_on_both_kinds_have_the_bits_of_one_each(void **state)
{
    (void)state;
    char expected[65];
    static const job jobs[] = {
        { "cpu:0", "gpu:1", .gpus = 2, .cpus = 1 },
        { "cpu:1", "gpu:0", .gpus = 1, .cpus = 2, .copies = true },
        { "cpu:2", "gpu:2", .gpus = 3, .cpus = 3 },
    };
    hash_of(&(job){ "cpu:0", "gpu:0", .gpus = 1, .cpus = 1 }, expected, NULL);
    for (size_t i = 0; i < LENGTH(jobs); i++)
        must_equal(expected, &jobs[i]);
}

static void a_layer_on_no_device_is_refused(void **state)
{
    (void)state;
    machine m;
    ls_model *model = NULL;
    open_machine(&m, &(job){ .gpus = 2 });
    assert_int_not_equal(ls_sequential(m.ctx, "m", &model, ls_input(4), ls_dense(2, .device = "gpu:2", .name = "far")),
                         LS_OK);
    machine_has(ls_last_error(), "gpu:2");
    machine_has(ls_last_error(), "far");
    machine_has(ls_last_error(), "GPU:0 to GPU:1");
    machine_close(&m);
}

/* ---- Strategies ---- */

static void strategies_change_no_bit(void **state)
{
    (void)state;
    char expected[65];
    static const job jobs[] = {
        { .strategy = { .kind = LS_STRATEGY_MIRRORED }, .gpus = 2 },
        { .strategy = { .kind = LS_STRATEGY_MIRRORED, .devices = "gpu:0,gpu:1" }, .gpus = 2 },
        { .strategy = { .kind = LS_STRATEGY_MIRRORED, .devices = "gpu:0,gpu:1" }, .gpus = 4, .copies = true },
        { .strategy = { .kind = LS_STRATEGY_MIRRORED, .devices = "gpu:2,gpu:0" }, .gpus = 3 },
        { .strategy = { .kind = LS_STRATEGY_MIRRORED, .devices = "gpu:1-3" }, .gpus = 5 },
        { .strategy = { .kind = LS_STRATEGY_ONE_DEVICE }, .gpus = 3 },
        { .strategy = { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "gpu:1" }, .gpus = 2 },
    };
    hash_of(&(job){ .gpus = 1 }, expected, NULL);
    for (size_t i = 0; i < LENGTH(jobs); i++)
        must_equal(expected, &jobs[i]);
}

static void layers_made_of_other_ops_change_no_bit(void **state)
{
    (void)state;
    char expected[65];
    static const job jobs[][6] = {
        { { .strategy = { .kind = LS_STRATEGY_MIRRORED }, .gpus = 2 },
          { .strategy = { .kind = LS_STRATEGY_DATA_PARALLEL }, .gpus = 3, .copies = true },
          { .strategy = { .kind = LS_STRATEGY_MODEL_PARALLEL }, .gpus = 2 },
          { .strategy = { .kind = LS_STRATEGY_PIPELINE }, .gpus = 3, .copies = true },
          { .strategy = { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "gpu:1" }, .gpus = 2 },
          { "gpu:1", "gpu:0", .gpus = 2 } },
        { { .strategy = { .kind = LS_STRATEGY_MIRRORED }, .cpus = 2 },
          { .strategy = { .kind = LS_STRATEGY_DATA_PARALLEL }, .cpus = 3 },
          { .strategy = { .kind = LS_STRATEGY_MODEL_PARALLEL }, .cpus = 2 },
          { .strategy = { .kind = LS_STRATEGY_PIPELINE }, .cpus = 3 },
          { .strategy = { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "cpu:1" }, .cpus = 2 },
          { "cpu:1", "cpu:0", .cpus = 2 } },
    };
    for (size_t kind = 0; kind < LENGTH(jobs); kind++)
        for (int noisy = 0; noisy < 2; noisy++) {
            hash_of(&(job){ .gpus = kind == 0, .cpus = kind == 1, .resizing = !noisy, .noisy = noisy }, expected, NULL);
            for (size_t i = 0; i < LENGTH(jobs[kind]); i++) {
                job j = jobs[kind][i];
                j.resizing = !noisy;
                j.noisy = noisy;
                must_equal(expected, &j);
            }
        }
}

/* Two batches of three change no weight and no slot, wherever they are; the third makes the
 * update. */
static void updates_on_devices_wait_for_the_last_batch(void **state)
{
    (void)state;
    for (int gpus = 0; gpus <= 2; gpus++) {
        machine m;
        ls_graph *graph = NULL;
        open_machine(&m, &(job){ .gpus = gpus });
        OK(ls_graph_create(m.ctx, &graph));
        OK(ls_graph_set_lanes(graph, 2));
        const float start[] = { 10, 20 }, x[] = { 1, 2, 3, 4, 5, 6, 7, 8 }; /* the means of 4 samples are 4, 5 */
        ls_tensor *in = ls_op_input(graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 2));
        ls_tensor *w = ls_op_variable(graph, "w", LS_F32, LS_SHAPE(2), .data = start);
        ls_tensor *loss = ls_op_reduce_sum(ls_op_reduce_mean(ls_op_mul(in, w), LS_AXES(0), false), LS_ALL_AXES, false);
        ls_tensor *step =
            ls_minimize(ls_sgd(.learning_rate = 1, .momentum = 0.5, .gradient_accumulation_steps = 3), loss, "step");
        ls_tensor *slot = NULL;
        OK(ls_graph_status(graph));
        OK(ls_graph_find(graph, "sgd/w/momentum", &slot));
        ls_feed feed = { in, ls_array_of(LS_F32, LS_SHAPE(4, 2), x) };
        for (int run = 1; run <= 6; run++) { /* m = -4 at first, then -4 / 2 - 4 */
            float now[2], momentum[2], down = run < 3 ? 0 : run < 6 ? -1 : -2.5F, m4 = run < 3 ? 0 : run < 6 ? -4 : -6;
            OK(ls_eval(graph, &feed, 1, &step, 1));
            OK(ls_variable_get(w, now, sizeof(now)));
            OK(ls_variable_get(slot, momentum, sizeof(momentum)));
            if (now[0] != 10 + 4 * down || now[1] != 20 + 5 * down || momentum[0] != m4 || momentum[1] != m4 / 4 * 5)
                fail_msg("%d GPUs, run %d: w is (%g, %g), m is (%g, %g)", gpus, run, (double)now[0], (double)now[1],
                         (double)momentum[0], (double)momentum[1]);
        }
        ls_graph_destroy(graph);
        machine_close(&m);
    }
}

/* Updates that wait for the last of several batches, on devices that keep the state; and norms of
 * joined gradients. */
static void accumulation_and_clipping_have_the_same_bits(void **state)
{
    (void)state;
    char expected[65], last[65] = "";
    const ls_optimizer list[] = { ls_adam(.gradient_accumulation_steps = 2),
                                  ls_sgd(.momentum = 0.9, .gradient_accumulation_steps = 3, .global_clipnorm = 0.1),
                                  ls_rmsprop(.momentum = 0.5, .gradient_accumulation_steps = 2, .clipnorm = 0.1),
                                  ls_adagrad(.clipvalue = 0.001) };
    for (size_t i = 0; i < LENGTH(list); i++) {
        const job jobs[] = { { .gpus = 2, .optimizer = list[i] },
                             { .gpus = 3, .copies = true, .optimizer = list[i] },
                             { "gpu:0", "gpu:1", .gpus = 2, .copies = true, .optimizer = list[i] } };
        hash_of(&(job){ .gpus = 1, .optimizer = list[i] }, expected, NULL);
        assert_string_not_equal(expected, last);
        for (size_t k = 0; k < LENGTH(jobs); k++)
            must_equal(expected, &jobs[k]);
        hash_of(&(job){ .optimizer = list[i] }, expected, NULL);
        must_equal(expected, &(job){ .cpus = 2, .optimizer = list[i] });
        memcpy(last, expected, sizeof(last));
    }
}

static void a_strategy_of_cpus_uses_no_gpu(void **state)
{
    (void)state;
    char expected[65];
    static const job jobs[] = {
        { .strategy = { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "cpu:0" }, .gpus = 2, .cpus = 1 },
        { .strategy = { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "/CPU:1" }, .gpus = 1, .cpus = 2 },
        { .strategy = { .kind = LS_STRATEGY_MIRRORED, .devices = "cpu:0-1" }, .gpus = 2, .cpus = 3 },
    };
    hash_of(&(job){ .cpus = 1 }, expected, NULL);
    for (size_t i = 0; i < LENGTH(jobs); i++) {
        char found[65];
        gpu_counts counts;
        hash_of(&jobs[i], found, &counts);
        assert_string_equal(found, expected);
        assert_int_equal(counts.calls[GPU_RUN] + counts.calls[GPU_UPLOAD] + counts.calls[GPU_PLAN], 0);
    }
}

/* Only what a strategy names computes: seen by what is copied where. */
static void a_strategy_uses_its_devices_alone(void **state)
{
    (void)state;
    machine m;
    ls_copy_info *list = NULL;
    size_t count = 0;
    bool used[5] = { false }; /* the CPU, then GPUs */
    job j = { .strategy = ls_mirrored(.devices = "gpu:1,gpu:3"), .gpus = 4, .cpus = 1 };
    open_machine(&m, &j);
    ls_model *model = make_model(m.ctx, &j);
    ls_dataset *train = data();
    OK(fit(model, train, NULL, &j));
    OK(ls_list_copies(m.ctx, &list, &count));
    for (size_t i = 0; i < count; i++)
        used[list[i].to] = used[list[i].from] = true;
    assert_true(used[0] && !used[1] && used[2] && !used[3] && used[4]);
    assert_int_equal(machine_memory(m.ctx, "gpu:0").peak, 0);
    assert_true(machine_memory(m.ctx, "gpu:3").peak > 0);
    free(list);
    ls_dataset_destroy(train);
    ls_model_destroy(model);
    machine_close(&m);
}

static void bad_strategies_are_refused(void **state)
{
    (void)state;
    static const struct {
        ls_strategy strategy;
        const char *words;
    } bad[] = {
        { { .kind = LS_STRATEGY_MIRRORED, .devices = "gpu:7" }, "gpu:7" },
        { { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "tpu:0" }, "tpu:0" },
        { { .kind = LS_STRATEGY_MIRRORED, .devices = "gpu:0,gpu:0" }, "gpu:0,gpu:0" },
        { { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "gpu:0-1" }, "2 devices" },
    };
    machine m;
    job j = { .gpus = 2 };
    open_machine(&m, &j);
    ls_model *model = make_model(m.ctx, &j);
    ls_dataset *train = data();
    for (size_t i = 0; i < LENGTH(bad); i++) {
        j.strategy = bad[i].strategy;
        assert_int_not_equal(fit(model, train, NULL, &j), LS_OK);
        machine_has(ls_last_error(), bad[i].words);
    }
    j.strategy = (ls_strategy){ .kind = LS_STRATEGY_DEFAULT };
    OK(fit(model, train, NULL, &j));
    ls_dataset_destroy(train);
    ls_model_destroy(model);
    machine_close(&m);
}

/* ---- Memory ---- */

/* The plans of validation do not displace those of training, nor the other way round. */
static void training_and_validation_fit_one_after_the_other(void **state)
{
    (void)state;
    for (int gpus = 0; gpus < 2; gpus++) {
        size_t train_need = 0;
        for (int validated = 0; validated < 2; validated++) {
            machine m;
            job j = { .gpus = gpus, .batch = 40 };
            const char *device = gpus ? "gpu:0" : "cpu:0";
            open_machine(&m, &j);
            if (gpus || train_need)
                OK(ls_set_logical_devices(m.ctx, device, &(ls_logical_device){ train_need * 11 / 10 }, 1));
            if (gpus)
                OK(ls_set_memory_growth(m.ctx, device, true));
            ls_model *model = make_model(m.ctx, &j);
            ls_dataset *train = data(), *validation = data();
            OK(fit(model, train, validated ? validation : NULL, &j));
            train_need = machine_memory(m.ctx, device).peak;
            ls_dataset_destroy(train);
            ls_dataset_destroy(validation);
            ls_model_destroy(model);
            assert_int_equal(machine_memory(m.ctx, device).in_use, 0);
            machine_close(&m);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_on_gpus_have_the_bits_of_one),
        cmocka_unit_test(halves_on_cpus_have_the_bits_of_one),
        cmocka_unit_test(halves_on_both_kinds_have_the_bits_of_one_each),
        cmocka_unit_test(a_layer_on_no_device_is_refused),
        cmocka_unit_test(strategies_change_no_bit),
        cmocka_unit_test(layers_made_of_other_ops_change_no_bit),
        cmocka_unit_test(updates_on_devices_wait_for_the_last_batch),
        cmocka_unit_test(accumulation_and_clipping_have_the_same_bits),
        cmocka_unit_test(a_strategy_of_cpus_uses_no_gpu),
        cmocka_unit_test(a_strategy_uses_its_devices_alone),
        cmocka_unit_test(bad_strategies_are_refused),
        cmocka_unit_test(training_and_validation_fit_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
