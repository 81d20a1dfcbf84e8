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
} job;

static ls_model *make_model(ls_context *ctx, const job *j)
{
    ls_model *model = NULL;
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
                                  ls_adagrad(.clipvalue = 0.001),
                                  ls_adadelta(.gradient_accumulation_steps = 2),
                                  ls_adamax(.clipnorm = 0.1),
                                  ls_nadam(),
                                  ls_ftrl(.l1_regularization_strength = 0.01, .beta = 0.1),
                                  ls_lion(.weight_decay = 0.01),
                                  ls_lamb(.weight_decay = 0.01),
                                  ls_muon(),
                                  ls_sgd(.momentum = 0.9, .use_ema = true, .ema_overwrite_frequency = 2) };
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
        cmocka_unit_test(updates_on_devices_wait_for_the_last_batch),
        cmocka_unit_test(accumulation_and_clipping_have_the_same_bits),
        cmocka_unit_test(a_strategy_of_cpus_uses_no_gpu),
        cmocka_unit_test(a_strategy_uses_its_devices_alone),
        cmocka_unit_test(bad_strategies_are_refused),
        cmocka_unit_test(training_and_validation_fit_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
