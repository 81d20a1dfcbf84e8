/* Many models on many devices: graphs whose parts have the same names under other scopes, each on
 * its own devices, run by threads of their own at the same time, fed and fetched by name. Each has
 * the bits it has alone. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "base/sha256.h"
#include "graph/node.h"
#include "lockstep.h"
#include "machine.h"

#define BATCH   12
#define SIDE    8
#define CLASSES 4
#define MODELS  2

static const char *const scopes[MODELS] = { "g1", "g2" };
static int steps = SANITIZED ? 6 : 12;

/* ---- A network by ops ---- */

static ls_tensor *weight(ls_graph *g, ls_shape shape)
{
    return ls_op_variable(g, NULL, LS_F32, shape, .initializer = { .kind = LS_INIT_NORMAL, .b = 0.1 });
}

/* The part that is kept is fed. */
static ls_tensor *keep(ls_tensor *x, ls_tensor *p_keep)
{
    return ls_op_dropout(x, ls_op_shift(ls_op_neg(p_keep), 1));
}

static ls_graph *build(ls_context *ctx, int model)
{
    ls_graph *g = NULL;
    int64_t width = 16 * (model + 1);
    OK(ls_graph_create(ctx, &g, .seed = (uint64_t)model + 1));
    OK(ls_graph_set_lanes(g, 4));
    LS_NAME_SCOPE(g, scopes[model])
    {
        ls_tensor *x = ls_op_input(g, "input", LS_F32, LS_SHAPE(LS_BATCH, SIDE, SIDE, 1));
        ls_tensor *y = ls_op_input(g, "label", LS_F32, LS_SHAPE(LS_BATCH, CLASSES));
        ls_tensor *p_keep_conv = ls_op_input(g, "p_keep_conv", LS_F32, LS_SCALAR);
        ls_tensor *p_keep_hidden = ls_op_input(g, "p_keep_hidden", LS_F32, LS_SCALAR);
        x = ls_op_relu(ls_op_conv2d(x, weight(g, LS_SHAPE(3, 3, 1, 8)), .padding = LS_SAME));
        x = ls_op_flatten(keep(ls_op_max_pool2d(x, { 2, 2 }), p_keep_conv));
        x = ls_op_relu(ls_op_matmul(x, weight(g, LS_SHAPE(SIDE * SIDE / 4 * 8, width))));
        x = ls_op_matmul(keep(x, p_keep_hidden), weight(g, LS_SHAPE(width, CLASSES)));
        ls_tensor *cost = ls_op_reduce_mean(ls_op_cross_entropy(y, x, LS_LOGITS), LS_ALL_AXES, false);
        ls_named(cost, "cross_entropy");
        ls_minimize(ls_rmsprop_tf1(.learning_rate = 0.001, .rho = 0.9), cost, "train_step");
        ls_named(ls_op_argmax(x, 1), "predict_op");
    }
    OK(ls_graph_status(g));
    return g;
}

/* ---- Training by name ---- */

typedef struct trainee {
    ls_graph *graph;
    const char *scope;
    ls_status status;
    char message[256], hex[65];
} trainee;

static ls_tensor *by_name(trainee *t, const char *name)
{
    char full[64];
    ls_tensor *found = NULL;
    snprintf(full, sizeof(full), "%s/%s:0", t->scope, name);
    ls_status status = ls_graph_find(t->graph, full, &found);
    t->status = t->status == LS_OK ? status : t->status;
    return found;
}

static ls_status run(trainee *t, int step, float keep_conv, float keep_hidden, const char *const *names, size_t count)
{
    float x[BATCH * SIDE * SIDE], y[BATCH * CLASSES] = { 0 };
    ls_philox_key key = ls_random_key(2, LS_RANDOM_TEST, 0, 0);
    ls_tensor *fetches[2];
    for (int s = 0; s < BATCH; s++) {
        uint32_t label = ls_random_block(key, (uint64_t)step, (uint32_t)s, 1000).word[0] % CLASSES;
        y[s * CLASSES + (int)label] = 1;
        for (int i = 0; i < SIDE * SIDE; i++)
            x[s * SIDE * SIDE + i] =
                (float)(ls_random_block(key, (uint64_t)step, (uint32_t)s, (uint32_t)i).word[0] % 100) / 100;
    }
    ls_feed feeds[] = { { by_name(t, "input"), ls_array_of(LS_F32, LS_SHAPE(BATCH, SIDE, SIDE, 1), x) },
                        { by_name(t, "label"), ls_array_of(LS_F32, LS_SHAPE(BATCH, CLASSES), y) },
                        { by_name(t, "p_keep_conv"), ls_array_of(LS_F32, LS_SCALAR, &keep_conv) },
                        { by_name(t, "p_keep_hidden"), ls_array_of(LS_F32, LS_SCALAR, &keep_hidden) } };
    for (size_t i = 0; i < count; i++)
        fetches[i] = by_name(t, names[i]);
    return t->status == LS_OK ? ls_eval(t->graph, feeds, LENGTH(feeds), fetches, count) : t->status;
}

/* Threads other than the main one: nothing here asserts. */
static void *train(void *user)
{
    static const char *const training[] = { "cross_entropy", "train_step" }, *const testing[] = { "predict_op" };
    trainee *t = user;
    for (int i = 0; i < steps && t->status == LS_OK; i++) {
        t->status = run(t, i, 0.8F, 0.5F, training, 2);
        if (t->status == LS_OK && i % 4 == 3)
            t->status = run(t, i, 1, 1, testing, 1);
    }
    snprintf(t->message, sizeof(t->message), "%s", t->status == LS_OK ? "" : ls_last_error());
    return NULL;
}

static void hash(trainee *t)
{
    ls_sha256 *h = NULL;
    ls_array value;
    if (t->status != LS_OK)
        fail_msg("%s: %s", t->scope, t->message);
    OK(ls_sha256_begin(&h));
    for (size_t i = 0; i < t->graph->variable_count; i++) {
        OK(ls_value(t->graph->variables[i]->node, &value));
        OK(ls_sha256_add(h, value.data, t->graph->variables[i]->bytes));
    }
    OK(ls_value(by_name(t, "predict_op"), &value));
    OK(ls_sha256_add(h, value.data, BATCH * sizeof(int64_t)));
    OK(ls_sha256_end(h, t->hex));
}

/* ---- Alone and together ---- */

static void open_machine(machine *m)
{
    machine_create(m, (machine_settings){ .gpu = { .devices = 4, .copies = true, .delay = -1 },
                                          .options = { .cpu_devices = 4, .threads = 4 } });
}

static void alone(int model, ls_strategy strategy, char hex[65])
{
    machine m;
    open_machine(&m);
    trainee t = { .graph = build(m.ctx, model), .scope = scopes[model] };
    OK(ls_graph_set_strategy(t.graph, strategy));
    train(&t);
    hash(&t);
    memcpy(hex, t.hex, sizeof(t.hex));
    ls_graph_destroy(t.graph);
    machine_close(&m);
}

static void together(const ls_strategy strategies[MODELS], const char *const expected[MODELS])
{
    machine m;
    trainee t[MODELS];
    pthread_t threads[MODELS];
    open_machine(&m);
    for (int i = 0; i < MODELS; i++) {
        t[i] = (trainee){ .graph = build(m.ctx, i), .scope = scopes[i] };
        OK(ls_graph_set_strategy(t[i].graph, strategies[i]));
    }
    for (int i = 0; i < MODELS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, train, &t[i]), 0);
    for (int i = 0; i < MODELS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < MODELS; i++) {
        hash(&t[i]);
        assert_string_equal(t[i].hex, expected[i]);
        OK(ls_strategy_check(t[i].graph, NULL));
        ls_graph_destroy(t[i].graph);
    }
    machine_close(&m);
}

static void two_models_on_cpus_of_their_own(void **state)
{
    (void)state;
    char hex[MODELS][65];
    for (int i = 0; i < MODELS; i++)
        alone(i, ls_one_device(.devices = "cpu:0"), hex[i]);
    assert_string_not_equal(hex[0], hex[1]);
    const char *const expected[] = { hex[0], hex[1] };
    const ls_strategy places[][MODELS] = {
        { ls_one_device(.devices = "cpu:0"), ls_one_device(.devices = "cpu:1") },
        { ls_mirrored(.devices = "cpu:0-1"), ls_mirrored(.devices = "cpu:2-3") },
        { ls_one_device(.devices = "cpu:3"), ls_data_parallel(.devices = "cpu:0-2") },
        { ls_mirrored(.devices = "cpu:0-3"), ls_mirrored(.devices = "cpu:0-3") }, /* they take turns */
    };
    for (size_t i = 0; i < LENGTH(places); i++)
        together(places[i], expected);
}

static void two_models_on_gpus_of_their_own(void **state)
{
    (void)state;
    char hex[MODELS + 1][65];
    for (int i = 0; i < MODELS; i++)
        alone(i, ls_one_device(.devices = "gpu:0"), hex[i]);
    alone(0, ls_one_device(.devices = "cpu:0"), hex[2]);
    const char *const expected[] = { hex[0], hex[1] }, *const mixed[] = { hex[2], hex[1] };
    const ls_strategy places[][MODELS] = {
        { ls_one_device(.devices = "gpu:1"), ls_one_device(.devices = "gpu:2") },
        { ls_mirrored(.devices = "gpu:0-1"), ls_mirrored(.devices = "gpu:2-3") },
    };
    for (size_t i = 0; i < LENGTH(places); i++)
        together(places[i], expected);
    together((ls_strategy[]){ ls_one_device(.devices = "cpu:0"), ls_one_device(.devices = "gpu:3") }, mixed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_models_on_cpus_of_their_own),
        cmocka_unit_test(two_models_on_gpus_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
