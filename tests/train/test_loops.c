/* Loops by hand: steps that are traced once, on any devices and under any strategy, against
 * ls_fit's bits; what steps give, how it is reduced and looked at; data in passes; copies of
 * variables that are proven equal. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "base/sha256.h"
#include "device/calls.h"
#include "lockstep.h"
#include "machine.h"
#include "run/runs.h"
#include "samples.h"

#define SAMPLES 40
#define SIDE    6
#define CLASSES 4
#define EPOCHS  2

static float pixels[SAMPLES * SIDE * SIDE];
static int32_t kinds[SAMPLES];

static int make_data(void **state)
{
    (void)state;
    samples_fill_floats(pixels, kinds, SAMPLES, SIDE * SIDE, CLASSES);
    return 0;
}

static ls_dataset *data_of(int64_t batch)
{
    return ls_batch(samples_of_floats(SAMPLES, SIDE, CLASSES), batch, false);
}

static ls_model *make_model(ls_context *ctx)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(SIDE, SIDE, 1), ls_conv2d(8, 3, .activation = LS_RELU),
                     ls_batch_normalization(), ls_flatten(), ls_dropout(0.25), ls_dense(8, .activation = LS_RELU),
                     ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    OK(ls_graph_set_lanes(ls_model_graph(model), 8));
    return model;
}

/* ---- One training, by fit and by hand ---- */

typedef struct place {
    int cpus, gpus;
    ls_strategy strategy;
} place;

typedef struct result {
    char weights[65], slots[65];
    double loss, accuracy; /* in the last epoch */
} result;

static void open_machine(machine *m, const place *p)
{
    machine_create(m, (machine_settings){ .gpu = { .devices = p->gpus, .copies = true, .delay = -1 },
                                          .options = { .cpu_devices = p->cpus, .threads = p->cpus } });
}

/* The hash of every variable of the graph that the optimizer has. */
static void hash_slots(ls_graph *graph, char hex[65])
{
    ls_sha256 *hash = NULL;
    OK(ls_sha256_begin(&hash));
    int found = 0;
    for (size_t i = 0; i < graph->variable_count; i++) {
        ls_array value;
        ls_tensor *node = graph->variables[i]->node;
        if (strncmp(ls_tensor_name(node), "adam/", 5) != 0)
            continue;
        OK(ls_value(node, &value));
        OK(ls_sha256_add(hash, value.data, graph->variables[i]->bytes));
        found++;
    }
    assert_true(found > 10);
    OK(ls_sha256_end(hash, hex));
}

static void by_fit(const place *p, int64_t batch, result *out)
{
    machine m;
    ls_history *history = NULL;
    open_machine(&m, p);
    ls_model *model = make_model(m.ctx);
    ls_dataset *data = data_of(batch);
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy(),
                  .metrics = ls_metrics(ls_accuracy())));
    OK(ls_fit(model, data, .epochs = EPOCHS, .keep_order = true, .verbose = LS_VERBOSE_SILENT, .strategy = p->strategy,
              .history = &history));
    OK(ls_model_weights_sha256(model, out->weights));
    hash_slots(ls_model_graph(model), out->slots);
    OK(ls_history_value(history, "loss", EPOCHS - 1, &out->loss));
    OK(ls_history_value(history, "accuracy", EPOCHS - 1, &out->accuracy));
    ls_history_destroy(history);
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    machine_close(&m);
}

typedef struct trainee {
    ls_model *model;
    ls_metric_state loss, accuracy;
    int64_t global_batch; /* 0: the loss is the mean over the current batch */
    bool by_gradients;
    const char *name; /* the optimizer's */
    int traced;
} trainee;

static void apply(trainee *t, ls_tensor *loss)
{
    size_t count = 0;
    ls_tensor *gradients[16], *const *variables = ls_model_trainable_variables(t->model, &count);
    assert_int_equal(count, 8); /* not the moving averages */
    if (!t->by_gradients) {
        ls_minimize(ls_adam(.name = t->name), loss, NULL);
        return;
    }
    OK(ls_gradients(loss, variables, count, gradients));
    ls_apply_gradients(ls_adam(.name = t->name), gradients, variables, count, NULL);
}

static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    trainee *t = user;
    t->traced++;
    ls_tensor *predictions = ls_model_apply(t->model, inputs[0], true);
    ls_tensor *losses = ls_loss_per_sample(ls_sparse_categorical_crossentropy(), inputs[1], predictions);
    ls_tensor *loss =
        t->global_batch ? ls_average_loss(losses, t->global_batch) : ls_op_reduce_mean(losses, LS_ALL_AXES, false);
    apply(t, loss);
    ls_metric_state_update(&t->loss, NULL, losses, NULL);
    ls_metric_state_update(&t->accuracy, inputs[1], predictions, NULL);
    outputs[0] = ls_strategy_reduce(LS_REDUCE_SUM, loss, LS_NO_AXIS);
}

static void make_trainee(trainee *t, ls_context *ctx)
{
    t->model = make_model(ctx);
    t->loss = ls_metric_state_make(ls_model_graph(t->model), ls_metric_of(LS_METRIC_MEAN));
    t->accuracy = ls_metric_state_make(ls_model_graph(t->model), ls_accuracy());
}

static void by_hand(const place *p, int64_t batch, trainee *t, result *out)
{
    machine m;
    ls_loop_step *step = NULL;
    ls_distributed *passes = NULL;
    open_machine(&m, p);
    make_trainee(t, m.ctx);
    ls_graph *graph = ls_model_graph(t->model);
    OK(ls_graph_set_strategy(graph, p->strategy));
    ls_dataset *data = data_of(batch);
    OK(ls_distribute_dataset(data, &passes));
    OK(ls_loop_step_create(graph, train_step, t, 1, &step));
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        const ls_element *part = NULL;
        OK(ls_metric_state_reset(&t->loss));
        OK(ls_metric_state_reset(&t->accuracy));
        for (;;) {
            ls_tensor *loss = NULL;
            double value = NAN;
            OK(ls_distributed_next(passes, &part));
            if (!part)
                break;
            OK(ls_strategy_run(step, part, &loss));
            OK(ls_read_scalar(loss, &value));
            assert_true(isfinite(value));
        }
    }
    assert_int_equal(t->traced, 1);
    OK(ls_strategy_check(graph, NULL));
    OK(ls_metric_state_result(&t->loss, &out->loss));
    OK(ls_metric_state_result(&t->accuracy, &out->accuracy));
    OK(ls_model_weights_sha256(t->model, out->weights));
    hash_slots(graph, out->slots);
    ls_loop_step_destroy(step);
    ls_distributed_destroy(passes);
    ls_dataset_destroy(data);
    ls_model_destroy(t->model);
    machine_close(&m);
}

static void same(const result *a, const result *b, const char *what)
{
    if (strcmp(a->weights, b->weights) != 0 || strcmp(a->slots, b->slots) != 0)
        fail_msg("%s: weights or slots differ", what);
    if (!(fabs(a->loss - b->loss) < 1e-6) || a->accuracy != b->accuracy)
        fail_msg("%s: loss %.9g and %.9g, accuracy %.9g and %.9g", what, a->loss, b->loss, a->accuracy, b->accuracy);
}

/* On any devices of a kind: the bits of fit on one of them. */
static void a_loop_by_hand_has_the_bits_of_fit(void **state)
{
    (void)state;
    const place places[] = {
        { 1, 0, ls_one_device() },    { 2, 0, ls_mirrored() },
        { 3, 0, ls_data_parallel() }, { 8, 0, ls_mirrored(.devices = "cpu:0-7") },
        { 2, 0, ls_pipeline() },      { 2, 0, ls_mirrored(.work_split = "3:1") },
        { 1, 1, ls_mirrored() },      { 2, 2, ls_mirrored() },
        { 1, 2, ls_data_parallel() }, { 1, 2, ls_model_parallel() },
    };
    result fit[2], hand; /* by kind */
    by_fit(&places[0], 16, &fit[0]);
    by_fit(&places[6], 16, &fit[1]);
    for (size_t i = 0; i < LENGTH(places); i++) {
        char what[64];
        snprintf(what, sizeof(what), "case %zu: %d CPUs, %d GPUs", i, places[i].cpus, places[i].gpus);
        by_hand(&places[i], 16, &(trainee){ .by_gradients = i % 2 }, &hand);
        same(&fit[places[i].gpus > 0], &hand, what);
    }
}

/* Where all batches are full, a loss that is averaged by the global batch size is the mean. */
static void average_loss_by_global_batch_size(void **state)
{
    (void)state;
    const place one = { 1, 0, ls_one_device() }, two = { 2, 0, ls_mirrored() };
    result fit, hand;
    by_fit(&one, 8, &fit);
    by_hand(&two, 8, &(trainee){ .global_batch = 8 }, &hand);
    same(&fit, &hand, "batches of 8");
}

/* ---- Learning rates ---- */

/* One dense layer; the learning rate follows the batch's own components. */
static void rated_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    ls_model *model = user;
    size_t count = 0;
    ls_tensor *gradients[16], *const *variables = ls_model_trainable_variables(model, &count);
    outputs[0] =
        ls_loss_value(ls_sparse_categorical_crossentropy(), inputs[1], ls_model_apply(model, inputs[0], true), NULL);
    OK(ls_gradients(outputs[0], variables, count, gradients));
    ls_apply_gradients(ls_sgd(.momentum = 0.9), gradients, variables, count, inputs[2]);
}

static void train_with(ls_context *ctx, const ls_schedule *schedule, bool hand, char hex[65])
{
    int replicas = 0;
    ls_loop_step *step = NULL;
    ls_distributed *passes = NULL;
    ls_model *model = make_model(ctx);
    const ls_optimizer optimizer = ls_sgd(.schedule = *schedule, .momentum = 0.9);
    OK(ls_strategy_replicas(ctx, ls_mirrored(), &replicas));
    int64_t global_batch_size = 8 * replicas; /* 8 a replica */
    ls_dataset *data = data_of(global_batch_size);
    if (!hand) {
        OK(ls_compile(model, .optimizer = optimizer, .loss = ls_sparse_categorical_crossentropy()));
        OK(ls_fit(model, data, .keep_order = true, .verbose = LS_VERBOSE_SILENT, .strategy = ls_mirrored()));
    } else {
        const ls_element *batch = NULL;
        OK(ls_graph_set_strategy(ls_model_graph(model), ls_mirrored()));
        OK(ls_distribute_dataset(data, &passes));
        OK(ls_loop_step_create(ls_model_graph(model), rated_step, model, 1, &step));
        for (int64_t i = 0;; i++) {
            double exact = NAN;
            OK(ls_distributed_next(passes, &batch));
            if (!batch)
                break;
            OK(ls_optimizer_rate(&optimizer, i, global_batch_size, &exact));
            float rate = (float)exact;
            ls_element with = *batch;
            with.component[with.count++] = ls_array_of(LS_F32, LS_SCALAR, &rate);
            OK(ls_strategy_run(step, &with, NULL));
        }
        ls_loop_step_destroy(step);
        ls_distributed_destroy(passes);
    }
    OK(ls_model_weights_sha256(model, hex));
    ls_dataset_destroy(data);
    ls_model_destroy(model);
}

static void learning_rates_follow_a_schedule_by_hand(void **state)
{
    (void)state;
    const ls_schedule schedules[] = {
        ls_rates_by_batch_size((const int64_t[]){ 8, 16, 32 }, (const double[]){ 0.1, 0.15, 0.175 }, 3),
        ls_exponential_decay(0.1, 1, 0.5, false),
    };
    char hex[2][2][65];
    machine m;
    open_machine(&m, &(place){ .cpus = 2 });
    for (int i = 0; i < 2; i++)
        for (int hand = 0; hand < 2; hand++)
            train_with(m.ctx, &schedules[i], hand, hex[i][hand]);
    for (int i = 0; i < 2; i++)
        assert_string_equal(hex[i][0], hex[i][1]);
    assert_string_not_equal(hex[0][0], hex[1][0]);
    machine_close(&m);
}

/* ---- Tracing ---- */

static ls_element element_of(int64_t samples, ls_dtype dtype, const void *labels)
{
    return (ls_element){ .count = 2,
                         .component = { ls_array_of(LS_F32, LS_SHAPE(samples, SIDE, SIDE, 1), pixels),
                                        ls_array_of(dtype, LS_SHAPE(samples), labels) } };
}

static void steps_are_traced_once_for_a_kind_of_data(void **state)
{
    (void)state;
    static int64_t wide[SAMPLES];
    machine m;
    ls_loop_step *step[2] = { NULL, NULL };
    for (int i = 0; i < SAMPLES; i++)
        wide[i] = kinds[i];
    open_machine(&m, &(place){ .cpus = 2 });
    for (int named = 1; named >= 0; named--) {
        trainee t = { .name = named ? "adam" : NULL };
        make_trainee(&t, m.ctx);
        OK(ls_loop_step_create(ls_model_graph(t.model), train_step, &t, 1, &step[named]));
        ls_element narrow = element_of(16, LS_I32, kinds), fewer = element_of(7, LS_I32, kinds),
                   other = element_of(16, LS_I64, wide);
        ls_tensor *a = NULL, *b = NULL, *c = NULL;
        OK(ls_strategy_run(step[named], &narrow, &a));
        OK(ls_strategy_run(step[named], &fewer, &b));
        OK(ls_strategy_run(step[named], &narrow, NULL));
        assert_true(a == b && t.traced == 1);
        if (named) {
            OK(ls_strategy_run(step[named], &other, &c));
            OK(ls_strategy_run(step[named], &narrow, NULL));
            assert_true(c != a && t.traced == 2);
        } else {
            FAILS(ls_strategy_run(step[named], &other, &c), LS_ERR_STATE, "created variables a second time", "adam",
                  ".name");
        }
        ls_loop_step_destroy(step[named]);
        ls_model_destroy(t.model);
    }
    machine_close(&m);
}

typedef struct wrong {
    ls_graph *graph;
    ls_tensor *variable;
    int kind;
    ls_loop_step *self;
} wrong;

static void wrong_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    wrong *w = user;
    ls_tensor *sum = ls_op_reduce_sum(inputs[0], LS_ALL_AXES, false);
    ls_element none = { .count = 1 };
    switch (w->kind) {
    case 0: /* an output is forgotten */
        break;
    case 1: /* an update that fails, whose result is not checked */
        ls_op_assign(w->variable, inputs[0]);
        outputs[0] = sum;
        break;
    case 2:
        assert_int_equal(ls_strategy_run(w->self, &none, NULL), LS_ERR_STATE);
        outputs[0] = sum;
        break;
    default:
        outputs[0] = sum;
        break;
    }
}

static void wrong_steps_are_reported(void **state)
{
    (void)state;
    machine m;
    wrong w = { .kind = 0 };
    ls_loop_step *step = NULL;
    ls_element batch = element_of(4, LS_I32, kinds), none = { .count = 0 };
    ls_distributed *passes = NULL;
    ls_dataset *single = ls_from_tensor_slices(batch.component[0], batch.component[1]);
    open_machine(&m, &(place){ .cpus = 1 });
    for (int kind = 0; kind < 4; kind++) {
        w.kind = kind;
        OK(ls_graph_create(m.ctx, &w.graph));
        w.variable = ls_op_variable(w.graph, "w", LS_F32, LS_SHAPE(3));
        OK(ls_loop_step_create(w.graph, wrong_step, &w, 1, &step));
        w.self = step;
        if (kind == 0)
            FAILS(ls_strategy_run(step, &batch, NULL), LS_ERR_INVALID, "tracing the step", "output 0 of 1");
        if (kind == 1)
            FAILS(ls_strategy_run(step, &batch, NULL), LS_ERR_SHAPE, "the value of a variable must be whole");
        if (kind == 2)
            OK(ls_strategy_run(step, &batch, NULL));
        if (kind == 3) {
            FAILS(ls_strategy_run(step, &none, NULL), LS_ERR_INVALID, "0 components");
            LS_SCOPE(w.graph)
            {
                FAILS(ls_strategy_run(step, &batch, NULL), LS_ERR_STATE, "a scope is open");
            }
            OK(ls_strategy_run(step, &batch, NULL));
            LS_SCOPE(w.graph)
            {
                OK(ls_strategy_run(step, &batch, NULL)); /* traced already */
            }
        }
        ls_loop_step_destroy(step);
        if (kind < 3)
            ls_graph_destroy(w.graph);
    }
    LS_SCOPE(w.graph)
    {
        OK(ls_loop_step_create(w.graph, wrong_step, &w, 1, &step));
        OK(ls_strategy_run(step, &batch, NULL));
    }
    FAILS(ls_strategy_run(step, &batch, NULL), LS_ERR_STATE, "scope", "ended");
    ls_loop_step_destroy(step);
    FAILS(ls_distribute_dataset(single, &passes), LS_ERR_INVALID, "ls_batch");
    ls_dataset_destroy(single);
    ls_graph_destroy(w.graph);
    machine_close(&m);
}

/* A compile is a scope of the model's graph: a step that was made in it ends with the next
 * compile. */
static void steps_end_with_what_was_compiled(void **state)
{
    (void)state;
    machine m;
    trainee t = { .traced = 0 };
    ls_loop_step *before = NULL, *inside = NULL;
    ls_element batch = element_of(8, LS_I32, kinds);
    open_machine(&m, &(place){ .cpus = 1 });
    make_trainee(&t, m.ctx);
    ls_graph *graph = ls_model_graph(t.model);
    OK(ls_loop_step_create(graph, train_step, &t, 1, &before));
    OK(ls_strategy_run(before, &batch, NULL));
    OK(ls_compile(t.model, .loss = ls_sparse_categorical_crossentropy()));
    OK(ls_loop_step_create(graph, train_step, &t, 1, &inside));
    OK(ls_strategy_run(inside, &batch, NULL));
    OK(ls_compile(t.model, .loss = ls_sparse_categorical_crossentropy()));
    FAILS(ls_strategy_run(inside, &batch, NULL), LS_ERR_STATE, "scope", "ended");
    OK(ls_strategy_run(before, &batch, NULL));
    ls_loop_step_destroy(before);
    ls_loop_step_destroy(inside);
    ls_model_destroy(t.model);
    machine_close(&m);
}

/* ---- What steps give ---- */

enum { PER_SAMPLE, SUM, MEAN, WHOLE, WHOLE_SUM, WHOLE_AXIS, SUM_AXIS, MEAN_ALL, OUTPUTS };

static void many_outputs(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    (void)user;
    ls_tensor *x = inputs[0]; /* [N,2] */
    ls_tensor *total = ls_op_reshape(ls_op_reduce_sum(x, LS_ALL_AXES, false), LS_SHAPE(1));
    outputs[PER_SAMPLE] = ls_op_scale(x, 2);
    outputs[SUM] = ls_strategy_reduce(LS_REDUCE_SUM, x, LS_NO_AXIS);
    outputs[MEAN] = ls_strategy_reduce(LS_REDUCE_MEAN, x, 0);
    outputs[WHOLE] = total;
    outputs[WHOLE_SUM] = ls_strategy_reduce(LS_REDUCE_SUM, total, LS_NO_AXIS);
    outputs[WHOLE_AXIS] = ls_strategy_reduce(LS_REDUCE_MEAN, total, 0);
    outputs[SUM_AXIS] = ls_strategy_reduce(LS_REDUCE_SUM, x, 1);
    outputs[MEAN_ALL] = ls_strategy_reduce(LS_REDUCE_MEAN, x, -1);
}

static void read_floats(ls_tensor *tensor, float *out, size_t count)
{
    OK(ls_read(tensor, out, count * sizeof(*out)));
}

static void steps_give_what_was_asked_for(void **state)
{
    (void)state;
    machine m;
    ls_graph *graph = NULL;
    ls_loop_step *step = NULL;
    ls_tensor *out[OUTPUTS];
    float x[10], f[2];
    for (int i = 0; i < 10; i++)
        x[i] = (float)i;
    ls_element batch = { .count = 1, .component = { ls_array_of(LS_F32, LS_SHAPE(5, 2), x) } };
    open_machine(&m, &(place){ .cpus = 2 });
    OK(ls_graph_create(m.ctx, &graph));
    OK(ls_graph_set_strategy(graph, ls_mirrored()));
    OK(ls_loop_step_create(graph, many_outputs, NULL, OUTPUTS, &step));
    OK(ls_strategy_run(step, &batch, out));
    assert_true(ls_tensor_is_per_sample(out[PER_SAMPLE]) && out[WHOLE_SUM] == out[WHOLE]);
    read_floats(out[SUM], f, 2);
    assert_true(f[0] == 20 && f[1] == 25);
    read_floats(out[MEAN], f, 2);
    assert_true(f[0] == 4 && f[1] == 5);
    read_floats(out[WHOLE], f, 1); /* [1]: the same number on two devices is not counted twice */
    assert_true(f[0] == 45);
    read_floats(out[WHOLE_AXIS], f, 1);
    assert_true(f[0] == 45 && ls_tensor_shape(out[WHOLE_AXIS]).rank == 0);
    read_floats(out[SUM_AXIS], f, 1);
    assert_true(f[0] == 45 && ls_tensor_shape(out[SUM_AXIS]).rank == 0);
    read_floats(out[MEAN_ALL], f, 1);
    assert_true(f[0] == 4.5F);
    assert_true(ls_tensor_is_error(ls_strategy_reduce(LS_REDUCE_NONE, out[SUM], LS_NO_AXIS)));
    double eager = NAN; /* outside of a step, from values that are held */
    LS_SCOPE(graph)
    {
        ls_tensor *sum = ls_strategy_reduce(LS_REDUCE_SUM, out[PER_SAMPLE], 1);
        OK(ls_read_scalar(sum, &eager));
    }
    assert_true(eager == 90);
    ls_loop_step_destroy(step);
    ls_graph_destroy(graph);
    machine_close(&m);
}

static void replicas_can_be_looked_at(void **state)
{
    (void)state;
    machine m;
    ls_graph *graph = NULL;
    ls_loop_step *step = NULL;
    float x[10];
    char *text = NULL;
    ls_element part;
    ls_array value;
    for (int i = 0; i < 10; i++)
        x[i] = (float)i;
    ls_element batch = { .count = 1, .component = { ls_array_of(LS_F32, LS_SHAPE(5, 2), x) } };
    open_machine(&m, &(place){ .cpus = 3 });
    OK(ls_graph_create(m.ctx, &graph));
    OK(ls_graph_set_lanes(graph, 4));
    OK(ls_graph_set_strategy(graph, ls_mirrored(.devices = "cpu:0-1")));
    OK(ls_loop_step_create(graph, many_outputs, NULL, OUTPUTS, &step));
    FAILS(ls_replica_value(step, 0, 0, &value), LS_ERR_STATE, "not run");
    OK(ls_replica_element(step, &batch, 1, &part)); /* lanes of 1, 1, 1 and 2 samples; two of them here */
    assert_true(part.component[0].shape.dims[0] == 3 && part.component[0].data == x + 4);
    OK(ls_strategy_run(step, &batch, NULL));
    OK(ls_replica_value(step, PER_SAMPLE, 0, &value));
    assert_true(value.shape.dims[0] == 2 && ((float *)value.data)[3] == 6);
    FAILS(ls_replica_value(step, PER_SAMPLE, 2, &value), LS_ERR_INVALID, "there are 2");
    FAILS(ls_replica_value(step, OUTPUTS, 0, &value), LS_ERR_INVALID, "output 8");
    OK(ls_format_replicas(step, SUM, &text));
    assert_string_equal(text, "PerReplica:{\n  0: tf.Tensor([20. 25.], shape=(2,), dtype=float32),\n"
                              "  1: tf.Tensor([20. 25.], shape=(2,), dtype=float32)\n}");
    free(text);
    OK(ls_format_replicas(step, PER_SAMPLE, &text));
    machine_has(text, "0: tf.Tensor(\n[[0. 2.]\n [4. 6.]], shape=(2, 2), dtype=float32),");
    machine_has(text, "1: tf.Tensor(\n[[8. 10.]\n [12. 14.]\n [16. 18.]], shape=(3, 2), dtype=float32)\n}");
    free(text);
    OK(ls_graph_set_strategy(graph, ls_mirrored(.devices = "cpu:0-1", .work_split = "3:1")));
    OK(ls_strategy_run(step, &batch, NULL));
    OK(ls_replica_value(step, PER_SAMPLE, 0, &value));
    assert_int_equal(value.shape.dims[0], 3);
    OK(ls_graph_set_strategy(graph, ls_pipeline()));
    OK(ls_strategy_run(step, &batch, NULL));
    OK(ls_replica_value(step, PER_SAMPLE, 0, &value)); /* stages are no replicas */
    assert_int_equal(value.shape.dims[0], 5);
    FAILS(ls_replica_value(step, PER_SAMPLE, 1, &value), LS_ERR_INVALID, "there are 1");
    ls_loop_step_destroy(step);
    ls_graph_destroy(graph);
    machine_close(&m);
}

static void passes_have_orders_of_their_own(void **state)
{
    (void)state;
    ls_dataset *data = ls_batch(
        ls_shuffle(ls_from_tensor_slices(ls_array_of(LS_I32, LS_SHAPE(SAMPLES), kinds)), SAMPLES, 1), 16, false);
    ls_distributed *passes = NULL;
    const ls_element *batch = NULL;
    int32_t seen[2][SAMPLES] = { { 0 } };
    OK(ls_distribute_dataset(data, &passes));
    ls_dataset_destroy(data); /* it has its own handle */
    for (int pass = 0; pass < 2; pass++) {
        size_t count = 0, batches = 0;
        for (;; batches++) {
            OK(ls_distributed_next(passes, &batch));
            if (!batch)
                break;
            size_t here = (size_t)batch->component[0].shape.dims[0];
            memcpy(seen[pass] + count, batch->component[0].data, here * sizeof(int32_t));
            count += here;
        }
        assert_true(count == SAMPLES && batches == 3);
    }
    assert_memory_not_equal(seen[0], seen[1], sizeof(seen[0]));
    ls_distributed_destroy(passes);
}

/* ---- Copies of variables ---- */

static void spoil(ls_graph *graph, ls_variable *variable, int device)
{
    static const float wrong = 12345;
    ls_state *s = graph->runs->states[device];
    ls_memory_place places[] = { ls_state_read(s), ls_state_written(s) };
    for (int i = 0; i < 2; i++)
        OK(ls_device_upload(&graph->context->devices[device], places[i].memory,
                            places[i].offset + ls_state_offset(s, variable), &wrong, sizeof(wrong)));
}

static void copies_are_proven_equal(void **state)
{
    (void)state;
    machine m;
    trainee t = { .traced = 0 };
    ls_loop_step *step = NULL;
    int64_t copies = 0, alone = 0;
    ls_element batch = element_of(16, LS_I32, kinds);
    ls_tensor *slot = NULL;
    open_machine(&m, &(place){ .cpus = 1, .gpus = 2 });
    make_trainee(&t, m.ctx);
    ls_graph *graph = ls_model_graph(t.model);
    OK(ls_strategy_check(graph, &alone)); /* all in the host's memory */
    assert_int_equal(alone, (int64_t)graph->variable_count);
    OK(ls_graph_set_strategy(graph, ls_mirrored(.devices = "gpu:0,gpu:1")));
    OK(ls_loop_step_create(graph, train_step, &t, 1, &step));
    OK(ls_strategy_run(step, &batch, NULL));
    OK(ls_strategy_check(graph, &copies));
    assert_true(copies >= 2 * 8); /* kernels and biases on both GPUs, at least */
    OK(ls_graph_find(graph, "adam/conv2d/kernel/velocity", &slot));
    spoil(graph, slot->attr.variable.variable, 2);
    FAILS(ls_strategy_check(graph, &copies), LS_ERR_DEVICE, "adam/conv2d/kernel/velocity", "GPU:1", "GPU:0", "SHA-256");
    ls_variable *kernel = ls_model_variable(t.model, 0)->attr.variable.variable;
    spoil(graph, kernel, 1);
    FAILS(ls_strategy_check(graph, NULL), LS_ERR_DEVICE, "conv2d/kernel", "differs");
    /* Assigned once, it is the new value everywhere. */
    float zeros[3 * 3 * 8] = { 0 };
    OK(ls_variable_set(ls_model_variable(t.model, 0), zeros, sizeof(zeros)));
    OK(ls_variable_set(slot, zeros, sizeof(zeros)));
    OK(ls_strategy_run(step, &batch, NULL));
    OK(ls_strategy_check(graph, &copies));
    ls_loop_step_destroy(step);
    ls_model_destroy(t.model);
    machine_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_by_hand_has_the_bits_of_fit),
        cmocka_unit_test(average_loss_by_global_batch_size),
        cmocka_unit_test(learning_rates_follow_a_schedule_by_hand),
        cmocka_unit_test(steps_are_traced_once_for_a_kind_of_data),
        cmocka_unit_test(wrong_steps_are_reported),
        cmocka_unit_test(steps_end_with_what_was_compiled),
        cmocka_unit_test(steps_give_what_was_asked_for),
        cmocka_unit_test(replicas_can_be_looked_at),
        cmocka_unit_test(passes_have_orders_of_their_own),
        cmocka_unit_test(copies_are_proven_equal),
    };
    return cmocka_run_group_tests(tests, make_data, NULL);
}
