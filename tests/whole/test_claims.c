/* One thread at a time uses a graph and its model. While one thread trains, every public call of
 * another is refused with an error that names both calls, except those that read what never
 * changes. The list of calls comes from the headers: a new one is either in claimed_calls.def or
 * the test fails. `make test SANITIZE=thread TESTS=test_claims` looks for races. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "graph/claim.h"
#include "lockstep.h"
#include "lockstep/backend.h"
#include "machine.h"
#include "nn/model.h"

#define SAMPLES 8

/* All that calls of claimed_calls.def need; all of it is in the graph of one model. */
typedef struct world {
    ls_context *ctx;
    ls_model *model;
    ls_graph *graph;
    ls_tensor *x, *y, *whole, *variable, *loss;
    ls_symbol symbol;
    ls_call call;
    ls_metric_state metric;
    ls_loop_step *step;
    ls_dataset *data;
    ls_array features, targets;
    ls_element element;
    float rows[SAMPLES][3], labels[SAMPLES][1], number;
    ls_tensor *parts[4];
    char hex[65];
    atomic_int phase; /* state of the threads: which one works */
    char wrong[4096]; /* results of the other thread */
} world;

static void loop_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    (void)user;
    outputs[0] = inputs[0];
}

static void say_nothing(void *user, ls_log_level level, const char *line)
{
    (void)user, (void)level, (void)line;
}

static void begin(world *w)
{
    memset(w, 0, sizeof(*w));
    OK(ls_context_open(&(ls_context_options){ .threads = 2, .log_sink = say_nothing }, &w->ctx));
    OK(ls_sequential(w->ctx, "m", &w->model, ls_input(3), ls_dense(4, .activation = LS_RELU), ls_dense(1)));
    OK(ls_compile(w->model, .optimizer = ls_adam(), .loss = ls_mean_squared_error()));
    w->graph = ls_model_graph(w->model);
    w->x = ls_op_input(w->graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 3));
    w->y = ls_op_leaky_relu(w->x, 0.5);
    w->variable = ls_op_variable(w->graph, "v", LS_F32, LS_SCALAR);
    w->whole = ls_op_add(w->variable, ls_op_scalar(w->graph, LS_F32, 1));
    w->loss = ls_op_reduce_sum(ls_op_mul(w->y, w->variable), LS_ALL_AXES, false);
    w->symbol = (ls_symbol){ w->model, 0 };
    w->call = (ls_call){ .model = w->model, .graph = w->graph };
    w->metric = ls_metric_state_make(w->graph, ls_accuracy());
    OK(ls_loop_step_create(w->graph, loop_step, NULL, 1, &w->step));
    for (int i = 0; i < SAMPLES; i++)
        w->rows[i][i % 3] = w->labels[i][0] = (float)i / SAMPLES;
    w->features = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 3), w->rows);
    w->targets = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), w->labels);
    w->data = ls_from_tensor_slices(w->features, w->targets);
    OK(ls_dataset_status(w->data));
    OK(ls_graph_status(w->graph));
}

static void end(world *w)
{
    ls_loop_step_destroy(w->step);
    ls_dataset_destroy(w->data);
    ls_model_destroy(w->model);
    ls_context_close(w->ctx);
}

/* ---- The other thread ---- */

typedef enum kind { STATUS, TENSOR, OTHER } kind;

static void is_wrong(world *w, const char *call, const char *what)
{
    size_t used = strlen(w->wrong);
    snprintf(w->wrong + used, sizeof(w->wrong) - used, "%s: %s (last error: %.200s)\n", call, what, ls_last_error());
}

/* As messages name it. */
static void short_name(const char *call, char name[64])
{
    snprintf(name, 64, "%s", call);
    size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, "_with") == 0)
        name[length - 5] = '\0';
}

static void check_refused(world *w, const char *call, kind kind, ls_status status, const ls_tensor *tensor,
                          const char *holder)
{
    char name[64], expected[128];
    short_name(call, name);
    snprintf(expected, sizeof(expected), "%s: %s is using ", name, holder);
    if (strncmp(ls_last_error(), expected, strlen(expected)) != 0)
        is_wrong(w, call, "the message does not name both calls");
    if (kind == STATUS && status != LS_ERR_STATE)
        is_wrong(w, call, ls_status_name(status));
    if (kind == TENSOR && (!ls_tensor_is_error(tensor) || ls_tensor_graph(tensor)))
        is_wrong(w, call, "it gave no error tensor of its own");
}

#define STATUS_OF(expression) status = (expression)
#define TENSOR_OF(expression) tensor = (expression)
#define OTHER_OF(expression)  (void)(expression)

/* Every call that claims. */
static void walk_claimed(world *w, const char *holder)
{
    ls_status status = LS_OK;
    const ls_tensor *tensor = NULL;
#define CALL(kind, name, ...)                                                                                          \
    status = LS_OK;                                                                                                    \
    tensor = NULL;                                                                                                     \
    ls_clear_error();                                                                                                  \
    kind##_OF((__VA_ARGS__));                                                                                          \
    check_refused(w, #name, kind, status, tensor, holder);
#define CONSTANT(name, ...)
#define NONE(name)
#include "claimed_calls.def"
#undef CALL
#undef CONSTANT
#undef NONE
}

/* Every call that reads what never changes: it works. */
static void walk_constant(world *w)
{
#define CALL(kind, name, ...)
#define CONSTANT(name, ...)                                                                                            \
    ls_clear_error();                                                                                                  \
    (void)(__VA_ARGS__);                                                                                               \
    if (*ls_last_error())                                                                                              \
        is_wrong(w, #name, "it failed");
#define NONE(name)
#include "claimed_calls.def"
#undef CALL
#undef CONSTANT
#undef NONE
}

enum { BEFORE, WALK, WALKED };

static void *walk(void *user)
{
    world *w = user;
    while (atomic_load(&w->phase) == BEFORE)
        sched_yield();
    walk_claimed(w, "ls_fit");
    walk_constant(w);
    atomic_store(&w->phase, WALKED);
    return NULL;
}

/* Training goes on until the other thread has tried everything. The callback's own calls are the
 * claim holder's. */
static ls_status after_batch(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    world *w = user;
    double rate;
    ls_array predicted = { 0 };
    (void)logs;
    int before = BEFORE;
    atomic_compare_exchange_strong(&w->phase, &before, WALK);
    *stop = atomic_load(&w->phase) == WALKED;
    LS_TRY(ls_learning_rate(model, &rate));
    LS_TRY(ls_set_learning_rate(model, rate));
    LS_TRY(ls_predict_array(model, w->features, &predicted));
    free(predicted.data);
    return LS_OK;
}

static void *predict(void *user)
{
    world *w = user;
    ls_array out = { 0 };
    ls_status status = ls_predict_array(w->model, w->features, &out);
    if (status == LS_OK)
        free(out.data);
    else
        is_wrong(w, "ls_predict_array", ls_status_name(status));
    return NULL;
}

static void every_call_of_another_thread_is_refused(void **state)
{
    (void)state;
    world w;
    pthread_t other;
    begin(&w);
    OK(ls_train_on_batch(w.model, w.features, w.targets));
    OK(ls_fit(w.model, w.data, .epochs = 1, .batch_size = 4, .verbose = LS_VERBOSE_SILENT));
    predict(&w); /* all nodes that the callback needs are there */
    size_t nodes = ls_graph_node_count(w.graph);
    assert_int_equal(pthread_create(&other, NULL, walk, &w), 0);
    const ls_callback callback = { .user = &w, .on_batch_end = after_batch };
    OK(ls_fit(w.model, w.data, .epochs = 1000000, .batch_size = 4, .verbose = LS_VERBOSE_SILENT,
              .callbacks = ls_callbacks(callback)));
    assert_int_equal(pthread_join(other, NULL), 0);
    if (*w.wrong)
        fail_msg("%s", w.wrong);
    OK(ls_graph_status(w.graph));
    assert_int_equal(ls_graph_node_count(w.graph), nodes);
    end(&w);
}

/* ---- A thread after another, and builders that were refused ---- */

static void threads_may_follow_each_other(void **state)
{
    (void)state;
    world w;
    begin(&w);
    for (int i = 0; i < 3; i++) {
        pthread_t other;
        assert_int_equal(pthread_create(&other, NULL, predict, &w), 0);
        assert_int_equal(pthread_join(other, NULL), 0);
        predict(&w);
    }
    if (*w.wrong)
        fail_msg("%s", w.wrong);
    end(&w);
}

/* Many threads predict with one model at the same time: each gets numbers or LS_ERR_STATE, and the
 * first is right. */
static void *predict_often(void *user)
{
    world *w = user;
    for (int i = 0; i < 200; i++) {
        ls_array out = { 0 };
        ls_status status = ls_predict_array(w->model, w->features, &out);
        if (status == LS_OK)
            free(out.data);
        else if (status != LS_ERR_STATE)
            is_wrong(w, "ls_predict_array", ls_status_name(status));
        atomic_fetch_add(&w->phase, status == LS_OK);
    }
    return NULL;
}

static void threads_that_meet_do_not_crash(void **state)
{
    (void)state;
    world w;
    pthread_t others[3];
    begin(&w);
    predict(&w);
    for (size_t i = 0; i < LENGTH(others); i++)
        assert_int_equal(pthread_create(&others[i], NULL, predict_often, &w), 0);
    for (size_t i = 0; i < LENGTH(others); i++)
        assert_int_equal(pthread_join(others[i], NULL), 0);
    if (*w.wrong)
        fail_msg("%s", w.wrong);
    assert_true(atomic_load(&w.phase) > 0);
    predict(&w);
    end(&w);
}

static void *build(void *user)
{
    world *w = user;
    w->parts[0] = ls_op_relu(w->x);
    return NULL;
}

/* A tensor built on a refused one is the same error, and runs report it. */
static void a_refused_tensor_swallows_what_is_built_on_it(void **state)
{
    (void)state;
    world w;
    pthread_t other;
    begin(&w);
    ls_claim claim = ls_claim_begin(w.graph, "ls_fit_with");
    assert_int_equal(pthread_create(&other, NULL, build, &w), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    ls_claim_end(&claim);
    ls_tensor *refused = w.parts[0];
    assert_true(ls_tensor_is_error(refused));
    OK(ls_graph_status(w.graph));
    ls_tensor *built[] = { ls_op_add(refused, w.x),    ls_op_add(w.x, refused),
                           ls_op_gelu(refused, false), ls_op_concat((ls_tensor *[]){ w.x, refused }, 2, 1),
                           ls_named(refused, "r"),     ls_model_apply(w.model, refused, false),
                           ls_op_group(&refused, 1),   ls_op_apply(w.variable, refused, LS_APPLY_SGD, w.whole) };
    for (size_t i = 0; i < LENGTH(built); i++) {
        assert_true(ls_tensor_is_error(built[i]));
        FAILS(ls_eval(w.graph, NULL, 0, &built[i], 1), LS_ERR_STATE, "another thread used the graph");
    }
    FAILS(ls_gradients(refused, &w.variable, 1, w.parts), LS_ERR_STATE, "another thread used the graph");
    FAILS(ls_read_scalar(refused, &(double){ 0 }), LS_ERR_STATE, "another thread used the graph");
    end(&w);
}

/* ---- The list of calls ---- */

static const char *const listed[] = {
#define CALL(kind, name, ...) #name,
#define CONSTANT(name, ...)   #name,
#define NONE(name)            #name,
#include "claimed_calls.def"
#undef CALL
#undef CONSTANT
#undef NONE
};

static char *read_header(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "include/lockstep/%s.h", name);
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s cannot be read: tests run in the project's folder", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    for (char *c = strstr(text, "/*"); c; c = strstr(c, "/*")) /* comments become spaces */
        for (char *stop = strstr(c, "*/") + 2; c < stop; c++)
            *c = ' ';
    return text;
}

/* Whether a declaration has a type that belongs to a graph. */
static bool has_graph(const char *declaration)
{
    static const char *const types[] = { "ls_graph *",  "ls_tensor *",      "ls_model *",        "ls_call *",
                                         "ls_scope ",   "ls_scope *",       "ls_name_scope ",    "ls_name_scope *",
                                         "ls_symbol ",  "ls_loop_step *",   "ls_device_scope *", "ls_device_scope ",
                                         "ls_symbol *", "ls_metric_state ", "ls_metric_state *" };
    for (size_t i = 0; i < LENGTH(types); i++)
        if (strstr(declaration, types[i]))
            return true;
    return false;
}

static bool is_listed(const char *name)
{
    for (size_t i = 0; i < LENGTH(listed); i++)
        if (strcmp(listed[i], name) == 0)
            return true;
    return false;
}

static void every_public_call_is_listed(void **state)
{
    (void)state;
    static const char *const headers[] = { "base",  "graph", "device", "run",      "strategy", "cluster", "data",
                                           "layer", "nn",    "train",  "callback", "loop",     "backend" };
    size_t found = 0;
    for (size_t h = 0; h < LENGTH(headers); h++) {
        char *text = read_header(headers[h]);
        for (char *at = strstr(text, "\nLS_API "); at; at = strstr(at + 1, "\nLS_API ")) {
            char declaration[1024], name[64];
            size_t length = strcspn(at, ";");
            assert_true(length < sizeof(declaration));
            memcpy(declaration, at, length);
            declaration[length] = '\0';
            char *after = strchr(declaration, '('), *before = after;
            assert_non_null(after);
            while (before[-1] == '_' || (before[-1] >= 'a' && before[-1] <= 'z') ||
                   (before[-1] >= '0' && before[-1] <= '9'))
                before--;
            snprintf(name, sizeof(name), "%.*s", (int)(after - before), before);
            if (!has_graph(declaration))
                continue;
            found++;
            if (!is_listed(name))
                fail_msg("%s is not in tests/whole/claimed_calls.def: does it begin with LS_CLAIM (src/graph/claim.h)?",
                         name);
        }
        free(text);
    }
    assert_int_equal(found, LENGTH(listed)); /* none is listed twice, or of the past */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_public_call_is_listed),
        cmocka_unit_test(every_call_of_another_thread_is_refused),
        cmocka_unit_test(threads_may_follow_each_other),
        cmocka_unit_test(threads_that_meet_do_not_crash),
        cmocka_unit_test(a_refused_tensor_swallows_what_is_built_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
