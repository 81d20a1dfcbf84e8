/* Lifetimes of objects: calls inside callbacks, failures of callbacks, scopes that are open,
 * children that were forked, and things destroyed in the wrong order. Nothing here may crash, hang
 * or touch what is freed (the address sanitizer looks). */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lockstep.h"
#include "lockstep/backend.h"
#include "machine.h"

#define SAMPLES 24
static float x[SAMPLES * 3], y[SAMPLES];

static ls_array inputs(void)
{
    return ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 3), x);
}

static ls_array targets(void)
{
    return ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), y);
}

static ls_dataset *data(void)
{
    return ls_from_tensor_slices(inputs(), targets(), .keep = LS_KEEP_BORROWED);
}

/* Errors in the log. */
static int complaints;

static void count_errors(void *user, ls_log_level level, const char *line)
{
    (void)user, (void)line;
    complaints += level == LS_LOG_ERROR;
}

static ls_context *open_context(void)
{
    ls_context *ctx = NULL;
    complaints = 0;
    OK(ls_context_open(&(ls_context_options){ .threads = 2, .log_sink = count_errors }, &ctx));
    return ctx;
}

static ls_status compile(ls_model *model)
{
    return ls_compile(model, .optimizer = ls_sgd(), .loss = ls_mean_squared_error());
}

static ls_model *make_model(ls_context *ctx)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(3), ls_dense(4, .activation = LS_TANH), ls_dense(1)));
    OK(compile(model));
    return model;
}

static ls_status fit(ls_model *model, const ls_callback *callback)
{
    ls_dataset *d = data();
    ls_status status = ls_fit(model, d, .epochs = 2, .batch_size = 8, .verbose = LS_VERBOSE_SILENT,
                              .callbacks = callback, .callback_count = callback ? 1 : 0);
    ls_dataset_destroy(d);
    return status;
}

/* The last call was refused for its moment, and the message has these words. */
static void assert_says(ls_status status, const char *word, const char *other)
{
    assert_int_equal(status, LS_ERR_STATE);
    if (!strstr(ls_last_error(), word) || !strstr(ls_last_error(), other))
        fail_msg("\"%s\" names not both %s and %s", ls_last_error(), word, other);
}

/* ---- Callbacks that fail ---- */

static ls_status fails_with_a_message(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    (void)user, (void)model, (void)stop;
    return logs->step < 5 ? LS_OK : ls_backend_fail(LS_ERR_IO, "the disk is full");
}

static ls_status fails_without(void *user, ls_model *model)
{
    (void)user, (void)model;
    return LS_ERR_PEER;
}

static void a_callback_fails_as_itself(void **state)
{
    (void)state;
    ls_context *ctx = open_context();
    ls_model *model = make_model(ctx);
    const ls_callback loud = { .on_batch_end = fails_with_a_message }, quiet = { .on_train_begin = fails_without };
    assert_int_equal(fit(model, &loud), LS_ERR_IO);
    assert_string_equal(ls_last_error(), "callback 0, on_batch_end in epoch 2, step 5: the disk is full");
    assert_int_equal(fit(model, &quiet), LS_ERR_PEER); /* and the message is not the last callback's */
    assert_string_equal(ls_last_error(), "callback 0, on_train_begin in epoch 1, step 5: LS_ERR_PEER");
    assert_int_equal(ls_fit_arrays(model, inputs(), targets(), .callback_count = 2), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "callbacks is NULL but callback_count is 2"));
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Calls inside callbacks ---- */

static int refused;

static ls_status tries_everything(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    (void)logs, (void)stop;
    ls_dataset *d = data();
    char *text = NULL;
    ls_array out;
    assert_says(compile(model), "ls_compile", "ls_fit");
    assert_says(fit(model, NULL), "ls_fit", "is running");
    assert_says(ls_fit_arrays(model, inputs(), targets(), .epochs = 1), "ls_fit", "is running");
    assert_says(ls_explain_fit(model, d, NULL, &text, .epochs = 1), "ls_explain_fit", "ls_fit");
    int before = complaints;
    ls_model_destroy(model);
    assert_says(LS_ERR_STATE, "ls_model_destroy", "ls_fit");
    ls_graph_destroy(ls_model_graph(model));
    assert_says(LS_ERR_STATE, "ls_graph_destroy", "ls_model_destroy");
    ls_context_close(user);
    assert_says(LS_ERR_STATE, "ls_context_close", "ls_fit");
    assert_int_equal(complaints - before, 3);
    OK(ls_evaluate(model, d, .batch_size = 5)); /* these are welcome */
    OK(ls_predict(model, d, &out, .batch_size = 5));
    free(out.data);
    ls_dataset_destroy(d);
    refused++;
    return LS_OK;
}

static void what_would_end_a_fit_is_refused_inside_it(void **state)
{
    (void)state;
    ls_context *ctx = open_context();
    ls_model *model = make_model(ctx);
    const ls_callback callback = { .user = ctx, .on_batch_end = tries_everything, .on_epoch_end = tries_everything };
    char alone[65], tried[65];
    refused = 0;
    OK(fit(model, &callback));
    assert_int_equal(refused, 8);
    OK(ls_model_weights_sha256(model, tried));
    OK(compile(model)); /* afterwards everything may be done again */
    OK(ls_model_initialize(model, 0));
    OK(fit(model, NULL));
    OK(ls_model_weights_sha256(model, alone));
    assert_string_equal(alone, tried);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Scopes ---- */

static void nothing_is_compiled_in_a_scope_that_ends(void **state)
{
    (void)state;
    ls_context *ctx = open_context();
    ls_model *model = make_model(ctx);
    ls_graph *graph = ls_model_graph(model);
    LS_SCOPE(graph)
    {
        assert_says(compile(model), "ls_compile", "scope");
        assert_says(fit(model, NULL), "ls_fit", "scope");
    }
    OK(fit(model, NULL));
    LS_SCOPE(graph)
    {
        OK(fit(model, NULL)); /* it was traced before */
    }
    OK(compile(model));
    OK(fit(model, NULL));
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Children ---- */

static int in_child(ls_context *ctx, ls_model *model, ls_graph *graph, ls_tensor *sum)
{
    ls_graph *other = NULL;
    ls_model *more = NULL;
    ls_dataset *d = data();
    ls_array out;
    ls_memory_info info;
    ls_device_info *list = NULL;
    size_t count = 0;
    double value;
    char hex[65], *text = NULL;
    const ls_status all[] = { compile(model),
                              fit(model, NULL),
                              ls_evaluate(model, d, .batch_size = 4),
                              ls_predict(model, d, &out, .batch_size = 4),
                              ls_eval(graph, NULL, 0, &sum, 1),
                              ls_read_scalar(sum, &value),
                              ls_explain(graph, &sum, 1, -1, &text),
                              ls_graph_set_lanes(graph, 3),
                              ls_graph_create(ctx, &other),
                              ls_model_builtin(ctx, "mlp", &more),
                              ls_list_physical_devices(ctx, NULL, &list, &count),
                              ls_list_logical_devices(ctx, NULL, &list, &count),
                              ls_get_memory_info(ctx, "cpu:0", &info),
                              ls_bit_class(ctx, &text),
                              ls_model_state_sha256(model, hex) };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i] != LS_ERR_STATE)
            return 10 + (int)i;
    LS_SCOPE(graph)
    {
        ls_op_scalar(graph, LS_F32, 1);
    }
    ls_dataset_destroy(d);
    ls_graph_destroy(graph);
    ls_model_destroy(model);
    ls_context_close(ctx);
    OK(ls_context_open(NULL, &ctx)); /* one of its own works */
    model = make_model(ctx);
    OK(fit(model, NULL));
    ls_model_destroy(model);
    ls_context_close(ctx);
    return 0;
}

static void a_forked_child_gets_an_error(void **state)
{
    (void)state;
    ls_context *ctx = open_context();
    ls_model *model = make_model(ctx);
    ls_graph *graph = NULL;
    OK(ls_graph_create(ctx, &graph));
    ls_tensor *sum = ls_op_add(ls_op_scalar(graph, LS_F32, 1), ls_op_scalar(graph, LS_F32, 2));
    OK(fit(model, NULL)); /* the workers are there */
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        _exit(in_child(ctx, model, graph, sum));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the child ended with status %#x", (unsigned)status);
    OK(fit(model, NULL)); /* the parent goes on */
    ls_graph_destroy(graph);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Orders ---- */

static void a_context_closed_first_ends_with_its_last_graph(void **state)
{
    (void)state;
    ls_context *ctx = open_context();
    ls_model *model = make_model(ctx), *other = NULL;
    ls_graph *graph = NULL;
    double value;
    OK(ls_graph_create(ctx, &graph));
    OK(fit(model, NULL));
    ls_context_close(ctx);
    assert_says(fit(model, NULL), "ls_fit", "closed");
    assert_says(ls_read_scalar(ls_op_add(ls_op_scalar(graph, LS_F32, 1), ls_op_scalar(graph, LS_F32, 1)), &value),
                "reading", "closed");
    assert_says(ls_model_builtin(ctx, "mlp", &other), "ls_model_builtin", "closed");
    ls_context_close(ctx);
    assert_says(LS_ERR_STATE, "ls_context_close", "already");
    ls_model_destroy(model);
    ls_graph_destroy(graph);
}

static void a_models_graph_ends_with_the_model(void **state)
{
    (void)state;
    ls_context *ctx = open_context();
    ls_model *model = make_model(ctx);
    ls_graph_destroy(ls_model_graph(model));
    assert_says(LS_ERR_STATE, "ls_graph_destroy", "ls_model_destroy");
    OK(fit(model, NULL));
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void data_outlives_its_handle_while_it_is_read(void **state)
{
    (void)state;
    ls_context *ctx = open_context();
    ls_model *model = make_model(ctx);
    ls_dataset *d = ls_prefetch(ls_batch(data(), 5, false), 2);
    ls_iterator *iterator = NULL;
    ls_rows *rows = NULL;
    const ls_element *element = NULL;
    const int64_t *list;
    int64_t count;
    ls_history *history = NULL;
    OK(ls_fit(model, d, .verbose = LS_VERBOSE_SILENT, .history = &history));
    OK(ls_iterator_create(d, 0, &iterator));
    ls_dataset_destroy(d);
    d = ls_batch(data(), 5, false);
    OK(ls_rows_create(d, 0, &rows));
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
    OK(ls_iterator_next(iterator, &element));
    assert_non_null(element);
    OK(ls_rows_next(rows, &list, &count));
    assert_int_equal(count, 5);
    assert_int_equal(ls_history_epochs(history), 1);
    ls_history_destroy(history);
    ls_iterator_destroy(iterator);
    ls_rows_destroy(rows);
}

int main(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        x[i * 3] = (float)(i % 5);
        x[i * 3 + 1] = (float)(i % 3);
        y[i] = (float)(i % 2);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_callback_fails_as_itself),
        cmocka_unit_test(what_would_end_a_fit_is_refused_inside_it),
        cmocka_unit_test(nothing_is_compiled_in_a_scope_that_ends),
        cmocka_unit_test(a_forked_child_gets_an_error),
        cmocka_unit_test(a_context_closed_first_ends_with_its_last_graph),
        cmocka_unit_test(a_models_graph_ends_with_the_model),
        cmocka_unit_test(data_outlives_its_handle_while_it_is_read),
    };
    return cmocka_run_group_tests_name("lifetimes", tests, NULL, NULL);
}
