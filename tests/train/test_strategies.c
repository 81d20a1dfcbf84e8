/* Strategies: every one of them, on CPUs and on the tests' GPUs, gives the bits of one device:
 * weights, slots, step, epoch losses, metrics and sample counts. And each does what it says: where
 * its work goes, who joins and updates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amount.h"
#include "base/sha256.h"
#include "lockstep.h"
#include "machine.h"
#include "run/strategy.h"
#include "samples.h"

#define SAMPLES 50
#define SIDE    8
#define CLASSES 4

/* ---- One training ---- */

typedef enum net { PLAIN, NORMED, NORMED_BY_LANE, NETS } net;

typedef struct job {
    ls_strategy strategy;
    int gpus, cpus;
    net net;
    int64_t batch;
    int lanes;
    bool copies;
    bool of_graph; /* the strategy is the graph's, and calls have none */
} job;

typedef struct outcome {
    char hash[65];
    double loss, accuracy, validation;
    int64_t steps;
} outcome;

static ls_model *make_model(ls_context *ctx, net kind)
{
    ls_model *model = NULL;
    ls_norm_statistics by = kind == NORMED_BY_LANE ? LS_PER_LANE : LS_PER_BATCH;
    OK(kind == PLAIN ? samples_plain_model(ctx, SIDE, CLASSES, &model)
                     : samples_normed_model(ctx, SIDE, CLASSES, by, &model));
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy(),
                  .metrics = ls_metrics(ls_accuracy())));
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
                               .options = { .cpu_devices = j->cpus, .threads = j->cpus > 2 ? j->cpus : 2 } });
}

/* Two epochs with validation, an evaluation and a prediction. */
static void train(const job *j, outcome *out)
{
    machine m;
    ls_results results = { .count = 0 };
    ls_history *history = NULL;
    ls_array predicted = { .data = NULL };
    open_machine(&m, j);
    ls_model *model = make_model(m.ctx, j->net);
    ls_dataset *set = data(), *validation = data();
    ls_strategy told = j->of_graph ? (ls_strategy){ .kind = LS_STRATEGY_DEFAULT } : j->strategy;
    if (j->of_graph)
        OK(ls_graph_set_strategy(ls_model_graph(model), j->strategy));
    OK(ls_fit(model, set, .epochs = 2, .batch_size = j->batch ? j->batch : 16, .lanes = j->lanes ? j->lanes : 5,
              .verbose = LS_VERBOSE_SILENT, .strategy = told, .validation = validation, .history = &history));
    OK(ls_evaluate(model, set, &results, .strategy = told, .batch_size = 16));
    assert_int_equal(results.samples, SAMPLES);
    OK(ls_predict(model, set, &predicted, .strategy = told, .batch_size = 20));
    OK(ls_model_state_sha256(model, out->hash));
    OK(ls_model_steps(model, &out->steps));
    OK(ls_history_value(history, "loss", 1, &out->loss));
    OK(ls_history_value(history, "accuracy", 1, &out->accuracy));
    OK(ls_history_value(history, "val_loss", 1, &out->validation));
    free(predicted.data);
    ls_history_destroy(history);
    ls_dataset_destroy(set);
    ls_dataset_destroy(validation);
    ls_model_destroy(model);
    machine_close(&m);
}

static void must_equal(const outcome *expected, const job *j)
{
    outcome found;
    train(j, &found);
    if (strcmp(found.hash, expected->hash) != 0 || found.steps != expected->steps ||
        !(found.loss == expected->loss && found.accuracy == expected->accuracy &&
          found.validation == expected->validation))
        fail_msg("strategy %d with %d stages, all-reduce %d, order %d, split %s, %d GPUs, %d CPUs, net %d, batch %lld, "
                 "%d lanes: %s instead of %s, loss %.17g instead of %.17g",
                 (int)j->strategy.kind, j->strategy.stages, (int)j->strategy.all_reduce, (int)j->strategy.order,
                 j->strategy.work_split ? j->strategy.work_split : "even", j->gpus, j->cpus, (int)j->net,
                 (long long)j->batch, j->lanes, found.hash, expected->hash, found.loss, expected->loss);
}

/* Every strategy for this number of devices. */
static size_t list_strategies(int devices, ls_strategy *out)
{
    size_t count = 0;
    out[count++] = ls_one_device();
    for (int r = LS_ALL_REDUCE_SHARDED; r <= LS_ALL_REDUCE_TO_ONE; r++)
        out[count++] = ls_mirrored(.all_reduce = (ls_all_reduce)r);
    out[count++] = ls_data_parallel();
    out[count++] = ls_model_parallel();
    out[count++] = ls_pipeline();
    out[count++] = ls_pipeline(.order = LS_FILL_DRAIN);
    if (devices % 2 == 0) {
        out[count++] = ls_pipeline(.stages = devices / 2);
        out[count++] =
            ls_pipeline(.stages = devices / 2, .order = LS_FILL_DRAIN, .all_reduce = LS_ALL_REDUCE_HIERARCHICAL_COPY);
        out[count++] = ls_model_parallel(.stages = devices / 2, .all_reduce = LS_ALL_REDUCE_TO_ONE);
    }
    out[count++] = ls_mirrored(.work_split = "auto");
    if (devices == 2)
        out[count++] = ls_mirrored(.work_split = "3:1");
    if (devices == 3)
        out[count++] = ls_data_parallel(.work_split = "1:5:2");
    return count;
}

#define MOST_STRATEGIES 16

static void every_strategy_has_one_devices_bits(const job *base, const int *devices, size_t count, bool gpus)
{
    outcome expected;
    job one = *base;
    one.strategy = ls_one_device();
    one.cpus = 1;
    one.gpus = gpus ? 1 : 0;
    train(&one, &expected);
    for (size_t i = 0; i < count; i++) {
        ls_strategy list[MOST_STRATEGIES];
        size_t strategies = list_strategies(devices[i], list);
        for (size_t k = 0; k < strategies; k++) {
            if (test_is_sample() && (i + k) % 2 != 0)
                continue;
            job j = *base;
            j.strategy = list[k];
            j.gpus = gpus ? devices[i] : 0;
            j.cpus = gpus ? 1 : devices[i];
            must_equal(&expected, &j);
        }
    }
}

static void strategies_on_cpus_have_the_bits_of_one(void **state)
{
    (void)state;
    static const int devices[] = { 1, 2, 3, 4, 8 };
    for (net n = 0; n < NETS; n++)
        every_strategy_has_one_devices_bits(&(job){ .net = n }, devices, LENGTH(devices), false);
    every_strategy_has_one_devices_bits(&(job){ .batch = 33, .lanes = 8 }, devices + 1, 2, false);
    every_strategy_has_one_devices_bits(&(job){ .batch = 7, .lanes = 1 }, devices + 1, 1, false);
    every_strategy_has_one_devices_bits(&(job){ .net = NORMED, .lanes = 16, .of_graph = true }, devices + 3, 1, false);
}

static void strategies_on_gpus_have_the_bits_of_one(void **state)
{
    (void)state;
    static const int devices[] = { 1, 2, 3, 4 };
    for (net n = 0; n < NETS; n++)
        every_strategy_has_one_devices_bits(&(job){ .net = n }, devices, LENGTH(devices), true);
    every_strategy_has_one_devices_bits(&(job){ .copies = true, .batch = 33, .lanes = 8 }, devices + 1, 3, true);
}

/* Devices of several kinds are replicas, or stages, of one another. */
static void strategies_on_mixed_kinds_have_the_bits_of_one(void **state)
{
    (void)state;
    static const struct {
        const char *devices;
        int count, cpus, gpus;
    } mixed[] = { { "cpu:0,gpu:0", 2, 1, 1 }, { "gpu:1,cpu:0,gpu:0", 3, 1, 2 }, { "cpu:1,gpu:0-1,cpu:0", 4, 2, 2 } };
    static const job jobs[] = { { .net = PLAIN },
                                { .net = NORMED, .batch = 33, .lanes = 8, .copies = true },
                                { .net = NORMED_BY_LANE, .batch = 7, .lanes = 9 } };
    for (size_t n = 0; n < LENGTH(jobs); n++) {
        outcome expected;
        job one = jobs[n];
        one.cpus = 1;
        one.strategy = ls_one_device();
        train(&one, &expected);
        for (size_t i = 0; i < LENGTH(mixed); i++) {
            ls_strategy list[MOST_STRATEGIES];
            size_t strategies = list_strategies(mixed[i].count, list);
            for (size_t k = 0; k < strategies; k++) {
                if (test_is_sample() && (n + i + k) % 2 != 0)
                    continue;
                job j = jobs[n];
                j.strategy = list[k];
                j.strategy.devices = mixed[i].devices;
                j.gpus = mixed[i].gpus;
                j.cpus = mixed[i].cpus;
                if (j.strategy.kind != LS_STRATEGY_ONE_DEVICE)
                    must_equal(&expected, &j);
            }
        }
    }
}

/* The graph's strategy is another after every step; a fit keeps the one it began with. */
static ls_status set_another(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    static const char *const devices[] = { "cpu:1", "cpu:0-1", "cpu:2,cpu:0,cpu:1" };
    int *calls = user;
    (void)logs;
    (void)stop;
    return ls_graph_set_strategy(ls_model_graph(model), ls_mirrored(.devices = devices[(*calls)++ % 3]));
}

static void a_fit_keeps_the_graphs_strategy(void **state)
{
    (void)state;
    char hash[2][65];
    for (int i = 0; i < 2; i++) {
        machine m;
        int calls = 0;
        ls_dataset *set = data();
        open_machine(&m, &(job){ .cpus = 3 });
        ls_model *model = make_model(m.ctx, NORMED);
        OK(ls_graph_set_strategy(ls_model_graph(model), ls_pipeline()));
        OK(ls_fit(model, set, .epochs = 2, .batch_size = 12, .lanes = 5, .verbose = LS_VERBOSE_SILENT,
                  .callbacks = ls_callbacks({ .user = &calls, .on_batch_end = i ? set_another : NULL })));
        assert_int_equal(calls, i * 10);
        OK(ls_model_state_sha256(model, hash[i]));
        ls_dataset_destroy(set);
        ls_model_destroy(model);
        machine_close(&m);
    }
    assert_string_equal(hash[0], hash[1]);
}

/* ---- Layers with devices of their own ---- */

static ls_model *make_placed(ls_context *ctx, const char *first, const char *second)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "placed", &model, ls_input(SIDE, SIDE, 1),
                     ls_conv2d(8, 3, .activation = LS_RELU, .device = first), ls_max_pool2d(2), ls_flatten(),
                     ls_dense(16, .activation = LS_RELU, .device = second),
                     ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy()));
    return model;
}

/* They are the stages, whatever else has none goes with what it reads, and no device beside them
 * works. */
static void layers_with_devices_are_the_stages(void **state)
{
    (void)state;
    char expected[65] = "", found[65];
    for (int i = 0; i < 4; i++) {
        machine m;
        ls_memory_info idle;
        ls_dataset *set = data();
        open_machine(&m, &(job){ .gpus = 3 });
        ls_model *model = i == 0 ? make_placed(m.ctx, NULL, NULL) : make_placed(m.ctx, "gpu:2", "gpu:0");
        ls_strategy strategy = i == 0   ? ls_one_device(.devices = "gpu:0")
                               : i == 1 ? ls_model_parallel(.devices = "gpu:0-2")
                               : i == 2 ? ls_pipeline(.devices = "gpu:0-2")
                                        : ls_pipeline(.devices = "gpu:0,gpu:2", .order = LS_FILL_DRAIN);
        OK(ls_fit(model, set, .batch_size = 25, .lanes = 4, .verbose = LS_VERBOSE_SILENT, .strategy = strategy));
        OK(ls_model_state_sha256(model, found));
        if (i == 0)
            strcpy(expected, found);
        assert_string_equal(found, expected);
        idle = machine_memory(m.ctx, "gpu:1");
        assert_int_equal(idle.peak, 0);
        ls_dataset_destroy(set);
        ls_model_destroy(model);
        machine_close(&m);
    }
}

static void placed_layers_have_no_replicas(void **state)
{
    (void)state;
    machine m;
    ls_dataset *set = data();
    open_machine(&m, &(job){ .cpus = 4 });
    ls_model *model = make_placed(m.ctx, "cpu:1", "cpu:0");
    FAILS(ls_fit(model, set, .verbose = LS_VERBOSE_SILENT, .strategy = ls_pipeline(.stages = 2)), LS_ERR_INVALID,
          "2 replicas", "4 devices");
    OK(ls_fit(model, set, .verbose = LS_VERBOSE_SILENT, .strategy = ls_pipeline(.devices = "cpu:0-1")));
    ls_dataset_destroy(set);
    ls_model_destroy(model);
    machine_close(&m);
}

/* ---- Samples that look at each other ---- */

/* Every sample reads all others, so that the gradient of what is gathered is joined, and its rows
 * go to devices that have no room for all of it. */
static void train_pairs(int gpus, bool copies, char hash[65])
{
    machine m;
    ls_graph *g = NULL;
    ls_sha256 *sha = NULL;
    static float samples[9 * 8];
    static int32_t classes[9];
    for (int i = 0; i < 9 * 8; i++)
        samples[i] = (float)(i * 37 % 64) / 64 - 0.5F;
    for (int i = 0; i < 9; i++)
        classes[i] = i % CLASSES;
    machine_create(&m, (machine_settings){ .gpu = { .devices = gpus, .copies = copies, .delay = -1 },
                                           .options = { .threads = 1 } });
    OK(ls_graph_create(m.ctx, &g, .seed = 1));
    OK(ls_graph_set_lanes(g, 4));
    OK(ls_graph_set_strategy(g, ls_mirrored()));
    ls_initializer normal = { .kind = LS_INIT_NORMAL, .b = 0.5 };
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 8));
    ls_tensor *y = ls_op_input(g, "y", LS_I32, LS_SHAPE(LS_BATCH));
    ls_tensor *first = ls_op_matmul(x, ls_op_variable(g, "first", LS_F32, LS_SHAPE(8, 6), .initializer = normal));
    ls_tensor *h = ls_op_sub(first, ls_op_reduce_mean(first, LS_AXES(0), true));
    ls_tensor *pairs = ls_op_softmax(ls_op_matmul(h, ls_op_gather_batch(h), .transpose_b = true), -1);
    h = ls_op_matmul(pairs, ls_op_gather_batch(h));
    h = ls_op_matmul(h, ls_op_variable(g, "second", LS_F32, LS_SHAPE(6, CLASSES), .initializer = normal));
    ls_tensor *loss = ls_op_reduce_mean(ls_op_sparse_cross_entropy(y, h, LS_LOGITS), LS_ALL_AXES, false);
    ls_tensor *fetches[] = { loss, ls_minimize(ls_sgd(.learning_rate = 0.5), loss, "step") };
    OK(ls_sha256_begin(&sha));
    for (int step = 0; step < 4; step++) {
        ls_array value;
        const ls_feed feeds[] = { { x, ls_array_of(LS_F32, LS_SHAPE(9, 8), samples) },
                                  { y, ls_array_of(LS_I32, LS_SHAPE(9), classes) } };
        OK(ls_eval(g, feeds, 2, fetches, 2));
        OK(ls_strategy_check(g, NULL));
        OK(ls_value(loss, &value));
        OK(ls_sha256_add(sha, value.data, sizeof(float)));
    }
    OK(ls_sha256_end(sha, hash));
    ls_graph_destroy(g);
    machine_close(&m);
}

static void samples_that_see_each_other_have_one_devices_bits(void **state)
{
    (void)state;
    char expected[65], found[65];
    train_pairs(1, false, expected);
    for (int i = 0; i < 6; i++) {
        train_pairs(2 + i / 2, i % 2, found);
        assert_string_equal(found, expected);
    }
}

/* ---- Who joins what, and who updates ---- */

/* Trains a wide layer on 4 GPUs for one step; copies between GPUs are counted by pair. */
static double count_copies_of(int64_t samples, ls_strategy strategy, int64_t steps, int64_t copies[4][4],
                              const char *of)
{
    machine m;
    ls_model *model = NULL;
    static float x[32 * 64];
    static int32_t y[32];
    machine_create(&m, (machine_settings){ .gpu = { .devices = 4, .copies = true, .memory = LS_MIB(8), .delay = -1 },
                                           .options = { .threads = 1 } });
    OK(ls_sequential(m.ctx, "wide", &model, ls_input(64), ls_dense(512, .name = "wide"),
                     ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    OK(ls_compile(model, .optimizer = ls_sgd(), .loss = ls_sparse_categorical_crossentropy()));
    OK(ls_fit_arrays(model, ls_array_of(LS_F32, LS_SHAPE(samples, 64), x), ls_array_of(LS_I32, LS_SHAPE(samples), y),
                     .batch_size = 32, .lanes = 8, .strategy = strategy, .epochs = steps,
                     .verbose = LS_VERBOSE_SILENT));
    double moved = ls_model_times(model).moved_bytes / (double)steps;
    ls_copy_info *list = NULL;
    size_t count = 0;
    memset(copies, 0, 16 * sizeof(copies[0][0]));
    OK(ls_list_copies(m.ctx, &list, &count));
    for (size_t i = 0; i < count; i++)
        if (list[i].from > 0 && list[i].to > 0 && (!of || strcmp(list[i].tensor, of) == 0))
            copies[list[i].from - 1][list[i].to - 1] += list[i].times;
    free(list);
    ls_model_destroy(model);
    machine_close(&m);
    return moved;
}

static double count_copies(ls_strategy strategy, int64_t steps, int64_t copies[4][4], const char *of)
{
    return count_copies_of(32, strategy, steps, copies, of);
}

static void must_copy(int64_t copies[4][4], const char *expected)
{
    char found[64] = "";
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++)
            if (copies[from][to] > 0)
                sprintf(found + strlen(found), "%d%d ", from, to);
    assert_string_equal(found, expected);
}

static void all_reduces_join_where_they_say(void **state)
{
    (void)state;
    int64_t copies[4][4];
    double sharded = count_copies(ls_mirrored(), 1, copies, NULL);
    must_copy(copies, "01 02 03 10 12 13 20 21 23 30 31 32 ");
    double pairs = count_copies(ls_mirrored(.all_reduce = LS_ALL_REDUCE_HIERARCHICAL_COPY), 1, copies, NULL);
    must_copy(copies, "01 02 03 10 20 32 "); /* 1 to 0 and 3 to 2, then 2 to 0, which sends to all */
    double one = count_copies(ls_mirrored(.all_reduce = LS_ALL_REDUCE_TO_ONE), 1, copies, NULL);
    must_copy(copies, "01 02 03 10 20 30 ");
    /* each device sends and gets all but its own quarter; the others move as much, over fewer
     * devices */
    assert_true(sharded > 0 && sharded == one && pairs == one);
}

/* With one sample in the last of 8 lanes one part moves, and its result to three devices; with 32
 * samples three parts. / */
static void lanes_without_samples_move_nothing(void **state)
{
    (void)state;
    int64_t copies[4][4];
    ls_strategy to_one = ls_mirrored(.all_reduce = LS_ALL_REDUCE_TO_ONE);
    double all = count_copies(to_one, 1, copies, NULL), last = count_copies_of(1, to_one, 1, copies, NULL);
    must_copy(copies, "01 02 03 30 ");
    assert_true(last > 0 && last * 6 == all * 4);
}

/* The first device has the weights and their updates; the others get them from it before every
 * step. */
static void data_parallel_updates_on_one_device(void **state)
{
    (void)state;
    int64_t copies[4][4];
    (void)count_copies(ls_data_parallel(), 3, copies, NULL);
    for (int to = 1; to < 4; to++)
        for (int from = 1; from < 4; from++)
            assert_int_equal(copies[from][to], 0);
    (void)count_copies(ls_data_parallel(), 3, copies, "wide/kernel");
    for (int to = 1; to < 4; to++)
        assert_int_equal(copies[0][to], 3); /* before each step */
    (void)count_copies(ls_mirrored(), 3, copies, "wide/kernel");
    for (int to = 1; to < 4; to++)
        assert_int_equal(copies[0][to], 1); /* at the beginning alone */
}

/* Stages of lanes that meet in mid-step wait for each other: that is said. */
static void meetings_of_a_pipeline_are_reported(void **state)
{
    (void)state;
    for (int by_lane = 0; by_lane < 2; by_lane++) {
        machine m;
        open_machine(&m, &(job){ .cpus = 2 });
        ls_model *model = make_model(m.ctx, by_lane ? NORMED_BY_LANE : NORMED);
        ls_dataset *set = data();
        OK(ls_fit(model, set, .batch_size = 25, .verbose = LS_VERBOSE_SILENT, .strategy = ls_pipeline()));
        (by_lane ? machine_lacks : machine_has)(m.log, "all lanes wait for each other 4 times within a step");
        ls_dataset_destroy(set);
        ls_model_destroy(model);
        machine_close(&m);
    }
}

/* ---- What each says, and what is refused ---- */

static void replicas_are_counted(void **state)
{
    (void)state;
    machine m;
    int count = 0;
    open_machine(&m, &(job){ .cpus = 4 });
    static const struct {
        ls_strategy strategy;
        int replicas;
    } rows[] = {
        { { .kind = LS_STRATEGY_DEFAULT }, 4 },
        { { .kind = LS_STRATEGY_ONE_DEVICE }, 1 },
        { { .kind = LS_STRATEGY_MIRRORED, .devices = "cpu:1,cpu:3" }, 2 },
        { { .kind = LS_STRATEGY_DATA_PARALLEL }, 4 },
        { { .kind = LS_STRATEGY_MODEL_PARALLEL }, 1 },
        { { .kind = LS_STRATEGY_PIPELINE, .stages = 2 }, 2 },
        { { .kind = LS_STRATEGY_PIPELINE, .stages = 4 }, 1 },
        { { .kind = LS_STRATEGY_MULTI_WORKER }, 4 },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        OK(ls_strategy_replicas(m.ctx, rows[i].strategy, &count));
        assert_int_equal(count, rows[i].replicas);
    }
    ls_device_info *list = NULL;
    size_t listed = 0;
    OK(ls_list_logical_devices(m.ctx, "CPU", &list, &listed));
    OK(ls_strategy_replicas(m.ctx, ls_mirrored(.list = list, .list_count = listed), &count));
    assert_int_equal(count, 4);
    OK(ls_strategy_replicas(m.ctx, ls_mirrored(.list = list + 1, .list_count = 2), &count));
    assert_int_equal(count, 2);
    free(list);
    machine_close(&m);
}

/* Lanes follow the shares; a device without any is possible. */
static void work_is_split_as_requested(void **state)
{
    (void)state;
    static const struct {
        int shares[4], replicas, lanes;
        const char *expected;
    } rows[] = {
        { { 3, 1 }, 2, 8, "00000011" },
        { { 1, 3 }, 2, 8, "00111111" },
        { { 1, 1 }, 2, 5, "00011" },
        { { 1, 5, 2 }, 3, 8, "01111122" },
        { { 1, 1000, 1 }, 3, 4, "1111" },
        { { 1, 1, 1, 1 }, 4, 4, "0123" },
        { { 16, 8, 1, 7 }, 4, 32, "00000000000000001111111123333333" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        ls_task_map map = { .shares = rows[i].shares, .share_count = rows[i].replicas };
        char found[40] = "";
        for (int lane = 0; lane < rows[i].lanes; lane++)
            sprintf(found + lane, "%d", ls_task_map_replica(&map, rows[i].replicas, lane, rows[i].lanes));
        assert_string_equal(found, rows[i].expected);
    }
}

static void shares_follow_the_speed_of_devices(void **state)
{
    (void)state;
    machine m;
    int *lists = NULL;
    ls_task_map map;
    ls_strategy split = ls_mirrored(.work_split = "auto");
    open_machine(&m, &(job){ .cpus = 3 });
    assert_int_equal(machine_devices(m.ctx, "CPU"), 3);
    OK(ls_strategy_map(m.ctx, &split, &lists, &map));
    for (int i = 0; i < 3; i++)
        assert_int_equal(map.shares[i], 16); /* nothing is known yet */
    free(lists);
    static const double seconds[] = { 1, 2, 1000 };
    for (int i = 0; i < 3; i++) {
        m.ctx->devices[i].flops = 1e9;
        m.ctx->devices[i].seconds = seconds[i];
    }
    OK(ls_strategy_map(m.ctx, &split, &lists, &map));
    assert_int_equal(map.shares[0], 16);
    assert_int_equal(map.shares[1], 8);
    assert_int_equal(map.shares[2], 1);
    free(lists);
    machine_close(&m);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    machine m;
    int count = 77;
    open_machine(&m, &(job){ .cpus = 3, .gpus = 1 });
#define REFUSED(strategy, ...) FAILS(ls_strategy_replicas(m.ctx, strategy, &count), LS_ERR_INVALID, __VA_ARGS__)
    REFUSED(ls_pipeline(.devices = "cpu:0-2", .stages = 2), "3 devices", "2 stages");
    REFUSED(ls_pipeline(.devices = "cpu:0-2", .stages = 4), "3 devices", "4 stages");
    REFUSED(ls_one_device(.devices = "cpu:0-1"), "one-device", "2 devices");
    REFUSED(ls_mirrored(.stages = 2), "mirrored", "2 stages");
    REFUSED(ls_mirrored(.order = LS_FILL_DRAIN), "mirrored", "pipeline");
    REFUSED(ls_mirrored(.devices = "cpu:0-1", .work_split = "3:1:1"), "3:1:1", "2 numbers");
    REFUSED(ls_mirrored(.devices = "cpu:0-1", .work_split = "3"), "\"3\"", "1 numbers", "2 replicas");
    REFUSED(ls_mirrored(.devices = "cpu:0-1", .work_split = "3:0"), "3:0");
    REFUSED(ls_mirrored(.devices = "cpu:0-1", .work_split = "3:x"), "3:x");
    REFUSED(ls_mirrored(.devices = "cpu:0-1", .work_split = "-1:2"), "-1:2");
    REFUSED(ls_mirrored(.devices = "cpu:0-1", .work_split = ""), "\"\"");
    REFUSED(((ls_strategy){ .kind = (ls_strategy_kind)17 }), "17");
    assert_int_equal(count, 77);
    machine_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies_on_cpus_have_the_bits_of_one),
        cmocka_unit_test(strategies_on_gpus_have_the_bits_of_one),
        cmocka_unit_test(strategies_on_mixed_kinds_have_the_bits_of_one),
        cmocka_unit_test(a_fit_keeps_the_graphs_strategy),
        cmocka_unit_test(layers_with_devices_are_the_stages),
        cmocka_unit_test(placed_layers_have_no_replicas),
        cmocka_unit_test(samples_that_see_each_other_have_one_devices_bits),
        cmocka_unit_test(all_reduces_join_where_they_say),
        cmocka_unit_test(lanes_without_samples_move_nothing),
        cmocka_unit_test(data_parallel_updates_on_one_device),
        cmocka_unit_test(meetings_of_a_pipeline_are_reported),
        cmocka_unit_test(replicas_are_counted),
        cmocka_unit_test(work_is_split_as_requested),
        cmocka_unit_test(shares_follow_the_speed_of_devices),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
