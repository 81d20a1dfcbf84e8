/* The final weights of a training do not depend on anything done between two steps (validation,
 * evaluation, prediction, values that are read), nor on measurements. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lockstep.h"
#include "machine.h"
#include "nn/model.h"
#include "run/runs.h"
#include "samples.h"

#define SAMPLES 128
#define SIDE    8
#define CLASSES 4

static float pixels[SAMPLES * SIDE * SIDE], rows[SAMPLES * CLASSES], bits[SAMPLES];
static int32_t labels[SAMPLES];

static void make_data(void)
{
    samples_fill_floats(pixels, labels, SAMPLES, SIDE * SIDE, CLASSES);
    for (int s = 0; s < SAMPLES; s++) {
        rows[s * CLASSES + labels[s]] = 1;
        bits[s] = (float)(labels[s] % 2);
    }
}

/* ---- Between two steps ---- */

static ls_model *with_dropout(ls_context *ctx, ls_optimizer optimizer)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(SIDE, SIDE, 1), ls_conv2d(4, 3, .activation = LS_RELU),
                     ls_batch_normalization(), ls_flatten(), ls_dropout(0.5), ls_dense(CLASSES)));
    OK(ls_compile(model, .optimizer = optimizer, .loss = ls_sparse_categorical_crossentropy(.from_logits = true)));
    return model;
}

static ls_status evaluates(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    (void)stop;
    return logs->step % 2 ? ls_evaluate(model, user, .batch_size = 50) : LS_OK;
}

/* With lanes and devices of its own. */
static ls_status evaluates_otherwise(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    (void)stop, (void)logs;
    return ls_evaluate(model, user, .batch_size = 50, .lanes = 7, .strategy = ls_one_device(.devices = "cpu:1"));
}

static ls_status predicts(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    (void)stop, (void)logs;
    ls_array out;
    ls_status status = ls_predict(model, user, &out, .batch_size = 7);
    if (status == LS_OK)
        free(out.data);
    return status;
}

/* Values that are read one by one, some of them random. */
static ls_status reads(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    (void)stop, (void)logs, (void)user;
    ls_graph *graph = ls_model_graph(model);
    double value;
    ls_status status = LS_ERR_STATE;
    LS_SCOPE(graph)
    {
        ls_tensor *weight = ls_model_variable(model, 0);
        ls_tensor *dropped = ls_op_dropout(weight, ls_op_scalar(graph, LS_F32, 0.5));
        status = ls_read_scalar(ls_op_reduce_sum(dropped, LS_ALL_AXES, false), &value);
    }
    return status;
}

static void fit_hash(ls_fit_options options, char hex[65])
{
    ls_context *ctx = open_two_cpus();
    ls_model *model = with_dropout(ctx, ls_adam());
    ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
    options.epochs = 2;
    options.batch_size = 24;
    options.verbose = LS_VERBOSE_SILENT;
    OK(ls_fit_with(model, d, options));
    OK(ls_model_state_sha256(model, hex));
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void what_is_done_between_steps_changes_none(void **state)
{
    (void)state;
    char alone[65], other[65];
    ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
    const ls_callback evaluating = { .user = d, .on_batch_end = evaluates };
    const ls_callback predicting = { .user = d, .on_batch_end = predicts };
    const ls_callback otherwise = { .user = d, .on_batch_end = evaluates_otherwise };
    const ls_callback reading = { .on_batch_end = reads };
    const struct {
        const char *what;
        ls_fit_options options;
    } ways[] = { { "validation", { .validation = d } },
                 { "validation in small batches", { .validation = d, .validation_batch_size = 5 } },
                 { "evaluate in a callback", { .callbacks = &evaluating, .callback_count = 1 } },
                 { "evaluate with other lanes", { .callbacks = &otherwise, .callback_count = 1 } },
                 { "predict in a callback", { .callbacks = &predicting, .callback_count = 1 } },
                 { "a random value read in a callback", { .callbacks = &reading, .callback_count = 1 } } };
    fit_hash((ls_fit_options){ .ls_first = 0 }, alone);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        fit_hash(ways[i].options, other);
        if (strcmp(alone, other) != 0)
            fail_msg("%s changes the weights: %s, not %s", ways[i].what, other, alone);
    }
    ls_dataset_destroy(d);
}

/* Training before an evaluation, or after one, is the same, too; and every step has masks of its
 * own. */
static void steps_have_a_counter_of_their_own(void **state)
{
    (void)state;
    ls_context *ctx = open_two_cpus();
    ls_model *model = with_dropout(ctx, ls_adam());
    ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
    OK(ls_evaluate(model, d, .batch_size = 32));
    assert_int_equal(ls_model_graph(model)->step, 0);
    OK(ls_fit(model, d, .batch_size = 32, .max_steps = 3, .verbose = LS_VERBOSE_SILENT));
    assert_int_equal(ls_model_graph(model)->step, 3);
    OK(ls_evaluate(model, d, .batch_size = 32));
    assert_int_equal(ls_model_graph(model)->step, 3);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* Training that goes on from a file draws the masks that it would have drawn. */
static void the_counter_is_saved_with_the_weights(void **state)
{
    (void)state;
    char whole[65], resumed[65], path[] = "/tmp/lockstep-independence-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    ls_context *ctx = open_two_cpus();
    ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
    ls_model *first = with_dropout(ctx, ls_sgd()), *second = with_dropout(ctx, ls_sgd());
    OK(ls_fit(first, d, .batch_size = 32, .max_steps = 3, .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_save_weights(first, path));
    OK(ls_fit(first, d, .batch_size = 32, .max_steps = 5, .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_load_weights(second, path));
    OK(ls_fit(second, d, .batch_size = 32, .max_steps = 2, .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_weights_sha256(first, whole));
    OK(ls_model_weights_sha256(second, resumed));
    assert_string_equal(whole, resumed);
    remove(path);
    ls_dataset_destroy(d);
    ls_model_destroy(first);
    ls_model_destroy(second);
    ls_context_close(ctx);
}

/* ---- What is only measured ---- */

/* The lanes of the plan that updates something. */
static int training_lanes(const ls_model *model)
{
    const ls_runs *runs = model->graph->runs;
    for (int i = 0; i < runs->count; i++)
        if (ls_executor_plan(runs->cached[i].executor)->update_count > 0)
            return ls_executor_plan(runs->cached[i].executor)->lanes;
    return 0;
}

typedef struct outcome {
    char hash[65];
    int lanes;
    double loss; /* from an evaluation */
} outcome;

static outcome train_once(ls_model *model, ls_dataset *d, int lanes)
{
    outcome out = { .lanes = 0 };
    ls_results results;
    OK(ls_fit(model, d, .epochs = 2, .batch_size = SAMPLES, .lanes = lanes, .verbose = LS_VERBOSE_SILENT));
    out.lanes = training_lanes(model);
    OK(ls_model_state_sha256(model, out.hash));
    OK(ls_evaluate(model, d, &results, .batch_size = SAMPLES, .lanes = lanes));
    out.loss = results.values[0];
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    return out;
}

/* So little work a sample that the buckets of an AUC are more. */
static outcome small_model(ls_context *ctx, ls_metrics_list metrics)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(4), ls_dense(1, .activation = LS_SIGMOID)));
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_binary_crossentropy(), .metrics = metrics));
    return train_once(model,
                      ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 4), pixels),
                                            ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), bits)),
                      0);
}

/* Large lanes, whose micro-batches are cut by what a sample needs. */
static outcome large_lanes(ls_context *ctx, ls_metrics_list metrics)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(SIDE, SIDE, 1), ls_conv2d(4, 3, .activation = LS_RELU), ls_flatten(),
                     ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_categorical_crossentropy(), .metrics = metrics));
    return train_once(model,
                      ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(SAMPLES, SIDE, SIDE, 1), pixels),
                                            ls_array_of(LS_F32, LS_SHAPE(SAMPLES, CLASSES), rows)),
                      1);
}

static void metrics_change_neither_lanes_nor_weights(void **state)
{
    (void)state;
    outcome (*const models[])(ls_context *, ls_metrics_list) = { small_model, large_lanes };
    ls_context *ctx = open_two_cpus();
    for (int m = 0; m < 2; m++) {
        const ls_metrics_list measured[] = { ls_metrics(ls_metric_of(LS_METRIC_AUC)), ls_metrics(ls_accuracy()),
                                             ls_metrics(ls_accuracy(), ls_metric_of(LS_METRIC_AUC)) };
        outcome none = models[m](ctx, (ls_metrics_list){ .count = 0 });
        assert_int_equal(none.lanes, m == 0 ? 4 : 1);
        for (size_t i = 0; i < sizeof(measured) / sizeof(measured[0]); i++) {
            outcome some = models[m](ctx, measured[i]);
            assert_int_equal(some.lanes, none.lanes);
            assert_string_equal(some.hash, none.hash);
            assert_true(some.loss == none.loss);
        }
    }
    ls_context_close(ctx);
}

int main(void)
{
    make_data();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_done_between_steps_changes_none),
        cmocka_unit_test(steps_have_a_counter_of_their_own),
        cmocka_unit_test(the_counter_is_saved_with_the_weights),
        cmocka_unit_test(metrics_change_neither_lanes_nor_weights),
    };
    return cmocka_run_group_tests_name("independence", tests, NULL, NULL);
}
