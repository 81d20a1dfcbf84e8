/* Metrics against Keras, over several batches of different sizes; as sums added by hand and as
 * state in the graph; on any devices; and what is refused. tests/reference/training_metrics.json
 * has the cases. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph_cases.h"
#include "training.h"

#define TOLERANCE 2e-6 /* Keras adds in float32 */

static const struct {
    const char *name;
    ls_metric_kind kind;
} kinds[] = {
    { "accuracy", LS_METRIC_ACCURACY },
    { "binary_accuracy", LS_METRIC_BINARY_ACCURACY },
    { "categorical_accuracy", LS_METRIC_CATEGORICAL_ACCURACY },
    { "sparse_categorical_accuracy", LS_METRIC_SPARSE_CATEGORICAL_ACCURACY },
    { "top_k", LS_METRIC_TOP_K },
    { "mean", LS_METRIC_MEAN },
    { "mean_squared_error", LS_METRIC_MEAN_SQUARED_ERROR },
    { "mean_absolute_error", LS_METRIC_MEAN_ABSOLUTE_ERROR },
    { "precision", LS_METRIC_PRECISION },
    { "recall", LS_METRIC_RECALL },
    { "auc", LS_METRIC_AUC },
    { "root_mean_squared_error", LS_METRIC_ROOT_MEAN_SQUARED_ERROR },
    { "cosine_similarity", LS_METRIC_COSINE_SIMILARITY },
    { "hinge", LS_METRIC_LOSS },
    { "kl_divergence", LS_METRIC_LOSS },
    { "binary_crossentropy", LS_METRIC_LOSS },
    { "r2_score", LS_METRIC_R2_SCORE },
    { "f1_score", LS_METRIC_F1_SCORE },
    { "fbeta_score", LS_METRIC_FBETA_SCORE },
    { "mean_io_u", LS_METRIC_MEAN_IOU },
    { "binary_io_u", LS_METRIC_BINARY_IOU },
    { "confusion", LS_METRIC_CONFUSION },
};

/* The loss of that name. */
static ls_loss loss_of(const char *name)
{
    ls_loss loss = { .kind = LS_LOSS_NONE + 1 };
    while (loss.kind < LS_LOSS_CUSTOM && strcmp(ls_loss_name(&loss), name) != 0)
        loss.kind++;
    return loss;
}

static ls_metric metric_of(const json_t *spec)
{
    const char *name = training_string(spec, "kind");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return (ls_metric){ .kind = kinds[i].kind,
                                .k = (int64_t)training_number(spec, "k", 0),
                                .threshold = training_number(spec, "threshold", 0),
                                .num_classes = (int64_t)training_number(spec, "num_classes", 0),
                                .average = (ls_metric_average)training_number(spec, "average", 0),
                                .beta = training_number(spec, "beta", 0),
                                .ignore_class = json_object_get(spec, "ignore_class")
                                                    ? training_number(spec, "ignore_class", 0) == 0
                                                          ? LS_ZERO
                                                          : training_number(spec, "ignore_class", 0)
                                                    : 0,
                                .num_regressors = (int64_t)training_number(spec, "num_regressors", 0),
                                .loss = kinds[i].kind == LS_METRIC_LOSS ? loss_of(name) : (ls_loss){ 0 } };
    fail_msg("no metric is called %s", name);
    return (ls_metric){ 0 };
}

static const char *const fields[] = { "targets", "predictions", "weights" };

/* The arrays of one batch; missing ones have no data. */
static void read_batch(const json_t *spec, size_t b, training_array out[3])
{
    const json_t *batch = json_array_get(json_object_get(spec, "batches"), b);
    for (int i = 0; i < 3; i++) {
        const json_t *described = json_object_get(batch, fields[i]);
        out[i] = json_is_null(described) ? (training_array){ .data = NULL } : training_array_of(described);
    }
}

typedef struct trial {
    ls_graph *graph;
    ls_metric metric;
    ls_tensor *in[3];
    ls_tensor *sums;
    ls_metric_state state;
} trial;

/* gathered: the batch as one whole tensor */
static void open_trial(trial *t, ls_context *ctx, const json_t *spec, int lanes, bool gathered)
{
    training_array first[3];
    *t = (trial){ .metric = metric_of(spec) };
    assert_int_equal(ls_graph_create(ctx, &t->graph), LS_OK);
    assert_int_equal(ls_graph_set_lanes(t->graph, lanes), LS_OK);
    read_batch(spec, 0, first);
    ls_tensor *x[3] = { NULL };
    for (int i = 0; i < 3; i++) {
        if (!first[i].data)
            continue;
        t->in[i] = training_input(t->graph, &first[i], true);
        x[i] = gathered ? ls_op_gather_batch(t->in[i]) : t->in[i];
        free(first[i].data);
    }
    ls_tensor *targets = t->metric.kind == LS_METRIC_MEAN ? NULL : x[0];
    t->sums = ls_metric_sums(t->metric, targets, x[1], x[2]);
    t->state = ls_metric_state_of(t->metric, targets, x[1], x[2]);
}

static ls_status run_batch(trial *t, const json_t *spec, size_t b, double *sums)
{
    training_array data[3];
    ls_feed feeds[3];
    size_t count = 0;
    read_batch(spec, b, data);
    for (int i = 0; i < 3; i++)
        if (data[i].data)
            feeds[count++] = (ls_feed){ t->in[i], ls_array_of(data[i].dtype, data[i].shape, data[i].data) };
    ls_tensor *fetches[] = { t->sums, t->state.update };
    ls_status status = ls_eval(t->graph, feeds, count, fetches, 2);
    if (status == LS_OK)
        status = ls_read(t->sums, sums, ls_metric_sums_count(&t->metric) * sizeof(*sums));
    for (int i = 0; i < 3; i++)
        free(data[i].data);
    return status;
}

/* Keras's average=None, where the case has it. */
static size_t wrong_class_values(const ls_metric *metric, const double *sums, const json_t *expected, const char *name)
{
    double values[16];
    size_t count = json_array_size(expected);
    if (!expected)
        return 0;
    assert_true(count <= 16);
    if (ls_metric_class_values(metric, sums, values, count) != LS_OK)
        fail_msg("%s: %s", name, ls_last_error());
    return training_compare(name, values, LS_F64, expected, TOLERANCE);
}

/* Every batch in turn; the result after each, from sums added here and from the state. Returns what
 * is wrong. */
static size_t run_case(ls_context *ctx, const json_t *spec, int lanes, bool gathered)
{
    const char *name = training_string(spec, "name");
    const json_t *results = json_object_get(spec, "results");
    double sums[2 * LS_AUC_THRESHOLDS] = { 0 }, batch[2 * LS_AUC_THRESHOLDS], from_state = NAN;
    size_t wrong = 0;
    trial t;
    open_trial(&t, ctx, spec, lanes, gathered);
    for (size_t b = 0; b < json_array_size(results) && !wrong; b++) {
        if (run_batch(&t, spec, b, batch) != LS_OK) {
            print_message("%s: %s\n", name, ls_last_error());
            wrong++;
            break;
        }
        for (size_t i = 0; i < ls_metric_sums_count(&t.metric); i++)
            sums[i] += batch[i];
        double result = ls_metric_result(&t.metric, sums), expected = json_number_value(json_array_get(results, b));
        assert_int_equal(ls_metric_state_result(&t.state, &from_state), LS_OK);
        if (!test_is_near(result, expected, TOLERANCE) || !test_is_near(from_state, result, 1e-13)) {
            print_message("%s, batch %zu: %.9g, state %.9g; %.9g was expected\n", name, b, result, from_state,
                          expected);
            wrong++;
        }
    }
    wrong += wrong_class_values(&t.metric, sums, json_object_get(spec, "class_values"), name);
    assert_int_equal(ls_metric_state_reset(&t.state), LS_OK);
    assert_int_equal(ls_metric_state_result(&t.state, &from_state), LS_OK);
    assert_true(from_state == 0 || t.metric.kind == LS_METRIC_R2_SCORE);
    ls_graph_destroy(t.graph);
    return wrong;
}

static void metrics_are_those_of_keras(void **state)
{
    (void)state;
    json_t *cases = training_read("metrics");
    assert_true(json_array_size(cases) >= 81);
    for (int reference = 0; reference < 2; reference++) {
        ls_context *ctx;
        ls_context_options options = { .reference = reference };
        assert_int_equal(ls_context_open(&options, &ctx), LS_OK);
        size_t wrong = 0;
        for (size_t i = 0; i < json_array_size(cases); i++) {
            wrong += run_case(ctx, json_array_get(cases, i), reference ? 1 : 3, false);
            wrong += run_case(ctx, json_array_get(cases, i), 2, true);
        }
        ls_context_close(ctx);
        assert_int_equal(wrong, 0);
    }
    json_decref(cases);
}

/* Each kind of case has some whose results are not all alike: a metric that always said 0 or 1
 * would not pass. */
static void results_distinguish_metrics(void **state)
{
    (void)state;
    json_t *cases = training_read("metrics");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t told = 0;
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *spec = json_array_get(cases, i), *results = json_object_get(spec, "results");
            if (strcmp(training_string(spec, "kind"), kinds[k].name) != 0)
                continue;
            double first = json_number_value(json_array_get(results, 0));
            double last = json_number_value(json_array_get(results, json_array_size(results) - 1));
            told += first != last && last != 0 && last != 1;
        }
        if (!told)
            fail_msg("%s is told from nothing", kinds[k].name);
    }
    json_decref(cases);
}

/* Sums of one batch with equal lanes on any devices, bit for bit. */
static void sums_are_equal_on_any_devices(void **state)
{
    (void)state;
    json_t *cases = training_read("metrics");
    static const int devices[] = { 1, 2, 3, 5 };
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *spec = json_array_get(cases, i);
        double first[2 * LS_AUC_THRESHOLDS], sums[2 * LS_AUC_THRESHOLDS];
        for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
            ls_context *ctx;
            ls_context_options options = { .threads = devices[d], .cpu_devices = devices[d] };
            assert_int_equal(ls_context_open(&options, &ctx), LS_OK);
            trial t;
            open_trial(&t, ctx, spec, 4, false);
            if (run_batch(&t, spec, 0, d ? sums : first) != LS_OK)
                fail_msg("%s", ls_last_error());
            if (d && memcmp(first, sums, ls_metric_sums_count(&t.metric) * sizeof(*sums)) != 0)
                fail_msg("%s: other bits on %d devices", training_string(spec, "name"), devices[d]);
            ls_graph_destroy(t.graph);
            ls_context_close(ctx);
        }
    }
    json_decref(cases);
}

/* ---- By hand ---- */

static double result_of(test_graph *t, ls_metric metric, ls_tensor *targets, ls_tensor *predictions)
{
    double sums[2 * LS_AUC_THRESHOLDS];
    ls_tensor *fetch = ls_metric_sums(metric, targets, predictions, NULL);
    if (test_run(t, &fetch, 1) != LS_OK || ls_read(fetch, sums, ls_metric_sums_count(&metric) * sizeof(*sums)) != LS_OK)
        fail_msg("%s", ls_last_error());
    return ls_metric_result(&metric, sums);
}

/* A label without a class and a NaN score are misses; minus infinity is a score like any other. */
static void strange_scores_are_misses(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 4);
    float scores[] = { NAN, NAN, NAN, -1, -2, -3, -INFINITY, 0, 1, -INFINITY, -1, -2 };
    ls_tensor *p = ls_op_constant(t.graph, LS_F32, LS_SHAPE(4, 3), scores);
    ls_tensor *labels = ls_op_constant(t.graph, LS_I64, LS_SHAPE(4), (int64_t[]){ 0, 7, 2, 1 });
    assert_true(result_of(&t, ls_top_k(1), labels, p) == 0.5);
    assert_true(result_of(&t, ls_top_k(3), labels, p) == 0.5);
    assert_true(result_of(&t, ls_top_k(9), labels, p) == 0.5); /* more places than classes */
    test_graph_close(&t);
}

/* Everything right, everything wrong, and nothing to be found: Keras's 1, 0 and 0. */
static void edges_of_areas(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 4);
    ls_tensor *y = ls_op_constant(t.graph, LS_F32, LS_SHAPE(4), (float[]){ 0, 0, 1, 1 });
    ls_tensor *none = ls_op_constant(t.graph, LS_F32, LS_SHAPE(4), (float[]){ 0, 0, 0, 0 });
    ls_tensor *right = ls_op_constant(t.graph, LS_F32, LS_SHAPE(4), (float[]){ 0, 0.1f, 0.9f, 1 });
    ls_tensor *wrong = ls_op_constant(t.graph, LS_F32, LS_SHAPE(4), (float[]){ 1, 0.9f, 0.1f, 0 });
    ls_tensor *beyond = ls_op_constant(t.graph, LS_F32, LS_SHAPE(4), (float[]){ 7, -2, 0.9f, 0.95f });
    assert_true(result_of(&t, ls_metric_of(LS_METRIC_AUC), y, right) == 1);
    assert_true(result_of(&t, ls_metric_of(LS_METRIC_AUC), y, wrong) == 0);
    assert_true(result_of(&t, ls_metric_of(LS_METRIC_AUC), none, right) == 0);
    assert_true(result_of(&t, ls_metric_of(LS_METRIC_AUC), y, beyond) == 0.5); /* beyond 1 is 1, below 0 is 0 */
    assert_true(result_of(&t, ls_metric_of(LS_METRIC_PRECISION), none, none) == 0);
    assert_true(result_of(&t, ls_metric_of(LS_METRIC_RECALL), none, right) == 0);
    assert_true(result_of(&t, (ls_metric){ .kind = LS_METRIC_RECALL, .threshold = LS_ZERO }, y, wrong) == 0.5);
    test_graph_close(&t);
}

static void means_take_scalars(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 4);
    assert_true(result_of(&t, ls_metric_of(LS_METRIC_MEAN), NULL, ls_op_scalar(t.graph, LS_F32, 2.5)) == 2.5);
    assert_true(result_of(&t, ls_metric_of(LS_METRIC_MEAN), NULL,
                          ls_op_constant(t.graph, LS_I32, LS_SHAPE(2), (int32_t[]){ 1, 4 })) == 2.5);
    test_graph_close(&t);
}

static void names_are_those_of_keras(void **state)
{
    (void)state;
    static const struct {
        ls_metric_kind kind;
        const char *name;
    } rows[] = {
        { LS_METRIC_ACCURACY, "accuracy" },
        { LS_METRIC_BINARY_ACCURACY, "binary_accuracy" },
        { LS_METRIC_CATEGORICAL_ACCURACY, "categorical_accuracy" },
        { LS_METRIC_SPARSE_CATEGORICAL_ACCURACY, "sparse_categorical_accuracy" },
        { LS_METRIC_TOP_K, "top_k_categorical_accuracy" },
        { LS_METRIC_MEAN, "mean" },
        { LS_METRIC_MEAN_SQUARED_ERROR, "mean_squared_error" },
        { LS_METRIC_MEAN_ABSOLUTE_ERROR, "mean_absolute_error" },
        { LS_METRIC_PRECISION, "precision" },
        { LS_METRIC_RECALL, "recall" },
        { LS_METRIC_AUC, "auc" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(ls_metric_name(&ls_metric_of(rows[i].kind)), rows[i].name);
    assert_string_equal(ls_metric_name(&(ls_metric){ .kind = LS_METRIC_AUC, .name = "mine" }), "mine");
    ls_metrics_list list = ls_metrics(ls_accuracy(), ls_top_k(3));
    assert_int_equal(list.count, 2);
    assert_int_equal(list.metric[1].k, 3);
}

/* Two of one name have state of their own. */
static void states_have_names(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 4);
    ls_tensor *x = ls_op_scalar(t.graph, LS_F32, 2);
    ls_metric_state a, b;
    LS_NAME_SCOPE(t.graph, "scope")
    {
        a = ls_metric_state_of(ls_metric_of(LS_METRIC_MEAN), NULL, x, NULL);
        b = ls_metric_state_of(ls_metric_of(LS_METRIC_MEAN), NULL, x, NULL);
    }
    assert_string_equal(ls_tensor_name(a.sums), "mean/sums");
    assert_string_equal(ls_tensor_name(b.sums), "mean_1/sums");
    test_graph_close(&t);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 4);
    ls_tensor *p = ls_op_input(t.graph, "p", LS_F32, LS_SHAPE(LS_BATCH, 3));
    ls_tensor *y = ls_op_input(t.graph, "y", LS_F32, LS_SHAPE(LS_BATCH, 2));
    ls_tensor *labels = ls_op_input(t.graph, "labels", LS_I64, LS_SHAPE(LS_BATCH));
    ls_metric auc = ls_metric_of(LS_METRIC_AUC);
    test_refused(ls_metric_sums(ls_accuracy(), y, p, NULL), "do not fit predictions of shape (batch, 3)");
    test_refused(ls_metric_sums(auc, y, p, NULL), "do not fit");
    test_refused(ls_metric_sums(ls_metric_of(LS_METRIC_PRECISION), labels, p, NULL), "do not fit");
    test_refused(ls_metric_sums(ls_top_k(-1), labels, p, NULL), "k is -1");
    test_refused(ls_metric_sums((ls_metric){ .kind = LS_METRIC_AUC, .k = 3 }, p, p, NULL), "auc has no option k");
    test_refused(ls_metric_sums((ls_metric){ .kind = LS_METRIC_AUC, .threshold = 0.3 }, p, p, NULL),
                 "has no option threshold");
    test_refused(ls_metric_sums((ls_metric){ .kind = LS_METRIC_RECALL, .threshold = NAN }, p, p, NULL), "threshold is");
    test_refused(ls_metric_sums((ls_metric){ .kind = LS_METRIC_ACCURACY, .threshold = 0.3 }, labels, p, NULL),
                 "the predictions are classes");
    test_refused(ls_metric_sums(ls_metric_of((ls_metric_kind)99), p, p, NULL), "no metric number 99");
    test_refused(ls_metric_sums(ls_metric_of(LS_METRIC_F1_SCORE), labels, p, NULL), "num_classes is 0");
    test_refused(ls_metric_sums((ls_metric){ .kind = LS_METRIC_F1_SCORE, .num_classes = 4 }, labels, p, NULL),
                 "with num_classes 4");
    test_refused(ls_metric_sums((ls_metric){ .kind = LS_METRIC_AUC, .num_classes = 4 }, p, p, NULL),
                 "auc has no option num_classes");
    test_refused(ls_metric_sums((ls_metric){ .kind = LS_METRIC_F1_SCORE, .num_classes = 3, .beta = 2 }, p, p, NULL),
                 "f1_score has no option beta");
    test_refused(ls_metric_sums((ls_metric){ .kind = LS_METRIC_R2_SCORE, .num_classes = 3, .average = 1 }, p, p, NULL),
                 "no average number 1");
    test_refused(ls_metric_sums(ls_metric_of(LS_METRIC_LOSS), p, p, NULL), "has no loss");
    test_refused(ls_metric_sums(ls_loss_metric(ls_huber(.alpha = 1)), p, p, NULL), "huber has no option alpha");
    const ls_metric one = ls_metric_of(LS_METRIC_AUC), iou = { .kind = LS_METRIC_MEAN_IOU, .num_classes = 3 };
    double values[9] = { 1, 2, 3 };
    assert_int_equal(ls_metric_class_values(&one, values, values, 1), LS_ERR_INVALID);
    assert_int_equal(ls_metric_class_values(&iou, values, values, 2), LS_ERR_INVALID);
    test_refused(ls_metric_sums(auc, NULL, p, NULL), "the targets are NULL");
    test_refused(ls_metric_sums(auc, p, p, p), "one weight per sample");
    ls_metric_state bad = ls_metric_state_of(auc, y, p, NULL);
    double result = 7;
    assert_int_equal(ls_metric_state_result(&bad, &result), LS_ERR_SHAPE);
    assert_int_equal(ls_metric_state_reset(&bad), LS_ERR_SHAPE);
    assert_true(result == 7);
    test_graph_close(&t);
}

int main(void)
{
    TEST_SUITE_ADD(metrics_are_those_of_keras);
    TEST_SUITE_ADD(results_distinguish_metrics);
    TEST_SUITE_ADD(sums_are_equal_on_any_devices);
    TEST_SUITE_ADD(strange_scores_are_misses);
    TEST_SUITE_ADD(edges_of_areas);
    TEST_SUITE_ADD(means_take_scalars);
    TEST_SUITE_ADD(names_are_those_of_keras);
    TEST_SUITE_ADD(states_have_names);
    TEST_SUITE_ADD(wrong_calls_are_refused);
    return test_suite_run("metrics");
}
