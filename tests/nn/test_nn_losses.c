/* Losses against Keras: values, reductions, sample weights, types and shapes of targets, gradients;
 * and what is refused. tests/reference/training_losses.json has the cases. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph_cases.h"
#include "training.h"

#define TOLERANCE 2e-6

static ls_loss loss_of(const json_t *spec)
{
    const char *name = training_string(spec, "kind");
    const json_t *options = json_object_get(spec, "options");
    ls_loss loss = { .kind = LS_LOSS_SPARSE_CATEGORICAL_CROSSENTROPY };
    while (loss.kind < LS_LOSS_CUSTOM && strcmp(ls_loss_name(&loss), name) != 0)
        loss.kind++;
    assert_true(loss.kind < LS_LOSS_CUSTOM);
    ls_loss_options *o = &loss.options;
    o->from_logits = training_number(options, "from_logits", 0) != 0;
    o->delta = training_number(options, "delta", 0);
    o->label_smoothing = training_number(options, "label_smoothing", 0);
    const json_t *ignored = json_object_get(options, "ignore_class");
    o->ignore_class = !ignored ? 0 : json_number_value(ignored) == 0 ? LS_ZERO : json_number_value(ignored);
    o->alpha = training_number(options, "alpha", 0);
    o->gamma = training_number(options, "gamma", 0);
    o->beta = training_number(options, "beta", 0);
    o->apply_class_balancing = training_number(options, "apply_class_balancing", 0) != 0;
    const json_t *axis = json_object_get(options, "axis");
    o->axis.count = json_is_array(axis) ? (int)json_array_size(axis) : axis ? 1 : 0;
    for (int i = 0; i < o->axis.count; i++)
        o->axis.axis[i] = json_integer_value(json_is_array(axis) ? json_array_get(axis, (size_t)i) : axis);
    return loss;
}

typedef enum form { AS_BATCH, AS_WHOLE, GATHERED } form;

/* One case: its values, all reductions and the gradient; returns what is wrong. */
static size_t run_case(ls_context *ctx, const json_t *spec, form as, double skew)
{
    const char *name = training_string(spec, "name");
    ls_loss loss = loss_of(spec);
    ls_graph *graph;
    assert_int_equal(ls_graph_create(ctx, &graph), LS_OK);
    training_array array[3];
    ls_tensor *in[3] = { NULL };
    ls_feed feeds[3];
    size_t count = 0;
    static const char *const fields[] = { "targets", "predictions", "weights" };
    for (int i = 0; i < 3; i++) {
        const json_t *described = json_object_get(spec, fields[i]);
        if (json_is_null(described))
            continue;
        array[i] = training_array_of(described);
        in[i] = training_input(graph, &array[i], as != AS_WHOLE);
        feeds[count++] = (ls_feed){ in[i], ls_array_of(array[i].dtype, array[i].shape, array[i].data) };
    }
    for (size_t i = 0; i < array[1].count; i++)
        ((float *)array[1].data)[i] += (float)skew * ((float)(1 + i * i % 11) + 0.13F * (float)(i % 7));
    ls_tensor *x[3] = { in[0], in[1], in[2] }, *fetches[4];
    for (int i = 0; i < 3 && as == GATHERED; i++)
        x[i] = in[i] ? ls_op_gather_batch(in[i]) : NULL;
    static const ls_reduction reductions[] = { LS_REDUCE_MEAN, LS_REDUCE_SUM, LS_REDUCE_NONE };
    for (int i = 0; i < 3; i++) {
        loss.options.reduction = reductions[i];
        fetches[i] = ls_loss_value(loss, x[0], x[1], x[2]);
    }
    size_t wrong = 0;
    if (ls_gradients(fetches[0], &in[1], 1, &fetches[3]) != LS_OK ||
        ls_eval(graph, feeds, count, fetches, 4) != LS_OK) {
        print_message("%s: %s\n", name, ls_last_error());
        wrong++;
    } else {
        static const char *const results[] = { "mean", "sum", "per_sample", "gradient" };
        for (int i = 0; i < 4; i++) {
            ls_array value;
            char what[128];
            json_t *expected = json_incref(json_object_get(spec, results[i]));
            if (!json_is_array(expected)) {
                json_t *list = json_array();
                json_array_append_new(list, expected);
                expected = list;
            }
            snprintf(what, sizeof(what), "%s (form %d): %s", name, (int)as, results[i]);
            assert_int_equal(ls_value(fetches[i], &value), LS_OK);
            int64_t elements;
            assert_true(ls_shape_count(&value.shape, 0, &elements));
            assert_int_equal(elements, json_array_size(expected));
            wrong += training_compare(skew == 0 ? what : NULL, value.data, value.dtype, expected, TOLERANCE);
            json_decref(expected);
        }
    }
    for (int i = 0; i < 3; i++)
        if (in[i])
            free(array[i].data);
    ls_graph_destroy(graph);
    return wrong;
}

static void losses_are_those_of_keras(void **state)
{
    (void)state;
    json_t *cases = training_read("losses");
    assert_true(json_array_size(cases) >= 118);
    for (ls_loss loss = { .kind = LS_LOSS_NONE + 1 }; loss.kind < LS_LOSS_CUSTOM; loss.kind++) {
        size_t seen = 0;
        for (size_t i = 0; i < json_array_size(cases); i++)
            seen += strcmp(training_string(json_array_get(cases, i), "kind"), ls_loss_name(&loss)) == 0;
        if (seen == 0)
            fail_msg("no case of %s", ls_loss_name(&loss));
    }
    for (int reference = 0; reference < 2; reference++) {
        ls_context *ctx;
        ls_context_options options = { .reference = reference };
        assert_int_equal(ls_context_open(&options, &ctx), LS_OK);
        size_t wrong = 0;
        for (size_t i = 0; i < json_array_size(cases); i++)
            for (form as = AS_BATCH; as <= GATHERED; as++)
                wrong += run_case(ctx, json_array_get(cases, i), as, 0);
        ls_context_close(ctx);
        assert_int_equal(wrong, 0);
    }
    json_decref(cases);
}

static void another_prediction_is_noticed(void **state)
{
    (void)state;
    json_t *cases = training_read("losses");
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    for (size_t i = 0; i < json_array_size(cases); i++)
        if (!run_case(ctx, json_array_get(cases, i), AS_BATCH, 0.001))
            fail_msg("%s: not noticed", training_string(json_array_get(cases, i), "name"));
    ls_context_close(ctx);
    json_decref(cases);
}

/* ---- Weights in other shapes ---- */

static void weights_may_be_a_column_or_a_scalar(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 6);
    ls_tensor *y = test_add(&t, "N,3", TEST_FED)->tensor, *p = test_add(&t, "N,3", TEST_FED)->tensor;
    ls_tensor *w = test_add(&t, "+N", TEST_FED)->tensor, *scalar = ls_op_scalar(t.graph, LS_F32, 3);
    ls_tensor *column = ls_op_reshape(w, LS_SHAPE(LS_BATCH, 1));
    ls_tensor *fetches[] = { ls_loss_value(ls_mean_squared_error(), y, p, w),
                             ls_loss_value(ls_mean_squared_error(), y, p, column),
                             ls_loss_value(ls_mean_squared_error(), y, p, NULL),
                             ls_loss_value(ls_mean_squared_error(), y, p, scalar) };
    assert_int_equal(test_run(&t, fetches, 4), LS_OK);
    assert_true(test_scalar(fetches[0]) == test_scalar(fetches[1]));
    assert_true(test_is_near(test_scalar(fetches[3]), 3 * test_scalar(fetches[2]), 1e-12));
    assert_true(test_scalar(fetches[0]) != test_scalar(fetches[2]));
    test_graph_close(&t);
}

/* The mean with weights divides by the number of samples, not by the sum of weights. */
static void weighted_mean_divides_by_the_count(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 4);
    ls_tensor *y = ls_op_constant(t.graph, LS_F32, LS_SHAPE(4, 1), (float[]){ 1, 2, 3, 4 });
    ls_tensor *p = ls_op_constant(t.graph, LS_F32, LS_SHAPE(4, 1), (float[]){ 0, 0, 0, 0 });
    ls_tensor *w = ls_op_constant(t.graph, LS_F32, LS_SHAPE(4), (float[]){ 0, 2, 0, 0.5f });
    ls_tensor *mean = ls_loss_value(ls_mean_squared_error(), y, p, w);
    assert_int_equal(test_run(&t, &mean, 1), LS_OK);
    assert_true(test_scalar(mean) == (2 * 4 + 0.5 * 16) / 4);
    test_graph_close(&t);
}

/* A batch without any label that counts has the loss 0, and so has its gradient, not NaN. */
static void ignored_labels_count_for_nothing(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 3);
    ls_tensor *y = ls_op_constant(t.graph, LS_I64, LS_SHAPE(3, 2), (int64_t[]){ -1, -1, -1, -1, -1, -1 });
    ls_tensor *p = test_add(&t, "3,2,4", TEST_FED)->tensor;
    ls_loss loss = ls_sparse_categorical_crossentropy(.ignore_class = -1, .from_logits = true);
    ls_tensor *fetches[] = { ls_loss_value(loss, y, p, NULL), NULL };
    assert_int_equal(ls_gradients(fetches[0], &p, 1, &fetches[1]), LS_OK);
    fetches[1] = ls_op_reduce_max(ls_op_abs(fetches[1]), LS_ALL_AXES, false);
    assert_int_equal(test_run(&t, fetches, 2), LS_OK);
    assert_true(test_scalar(fetches[0]) == 0 && test_scalar(fetches[1]) == 0);
    test_refused(ls_loss_value(ls_sparse_categorical_crossentropy(.ignore_class = 0.5), y, p, NULL),
                 "ignore_class is 0.5; it must be the number of a class");
    test_refused(ls_loss_value(ls_huber(.ignore_class = 1), p, p, NULL), "huber has no option ignore_class");
    test_graph_close(&t);
}

/* ---- Refused ---- */

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    test_graph t;
    test_graph_open(&t, 4);
    ls_graph *g = t.graph;
    ls_tensor *p = ls_op_input(g, "p", LS_F32, LS_SHAPE(LS_BATCH, 3));
    ls_tensor *y = ls_op_input(g, "y", LS_F32, LS_SHAPE(LS_BATCH, 2));
    ls_tensor *labels = ls_op_input(g, "labels", LS_I64, LS_SHAPE(LS_BATCH, 2));
    ls_tensor *column = ls_op_input(g, "column", LS_F32, LS_SHAPE(LS_BATCH, 1));
    ls_tensor *whole = ls_op_input(g, "whole", LS_F32, LS_SHAPE(4, 3));
    ls_tensor *w = ls_op_input(g, "w", LS_F32, LS_SHAPE(LS_BATCH, 3));
    test_refused(ls_loss_value(ls_mean_squared_error(), y, p, NULL),
                 "targets of shape (batch, 2) do not fit predictions of shape (batch, 3)");
    test_refused(ls_loss_value(ls_mean_squared_error(), column, p, NULL), "do not fit");
    test_refused(ls_loss_value(ls_mean_squared_error(), whole, p, NULL), "do not fit");
    test_refused(ls_loss_value(ls_sparse_categorical_crossentropy(), labels, p, NULL), "do not fit");
    test_refused(ls_loss_value(ls_mean_squared_error(), labels, labels, NULL), "predictions are int64");
    test_refused(ls_loss_value(ls_huber(.from_logits = true), p, p, NULL), "has no option from_logits");
    test_refused(ls_loss_value(ls_mean_squared_error(.delta = 2), p, p, NULL), "has no option delta");
    test_refused(ls_loss_value(ls_huber(.label_smoothing = 0.1), p, p, NULL), "huber has no option label_smoothing");
    test_refused(ls_loss_value(ls_dice(.alpha = 0.1), p, p, NULL), "dice has no option alpha");
    test_refused(ls_loss_value(ls_poisson(.axis = LS_AXES(1)), p, p, NULL), "poisson has no option axis");
    test_refused(ls_loss_value(ls_tversky(.gamma = 1), p, p, NULL), "tversky has no option gamma");
    test_refused(ls_loss_value(ls_hinge(.beta = 1), p, p, NULL), "hinge has no option beta");
    test_refused(ls_loss_value(ls_categorical_focal_crossentropy(.apply_class_balancing = true), p, p, NULL),
                 "has no option apply_class_balancing");
    test_refused(ls_loss_value(ls_binary_crossentropy(.label_smoothing = 1.5), p, p, NULL), "label_smoothing is 1.5");
    test_refused(ls_loss_value(ls_categorical_focal_crossentropy(.gamma = -1), p, p, NULL), "gamma is -1");
    test_refused(ls_loss_value(ls_dice(.axis = LS_AXES(0)), p, p, NULL), "axis 0 is the batch");
    test_refused(ls_loss_value(ls_cosine_similarity(.axis = LS_AXES(-2)), p, p, NULL), "axis -2 is the batch");
    test_refused(ls_loss_value(ls_cosine_similarity(.axis = LS_AXES(2)), p, p, NULL), "2");
    test_refused(ls_loss_value(ls_huber(.delta = -2), p, p, NULL), "delta must be above 0 (got -2)");
    test_refused(ls_loss_value(ls_huber(.reduction = (ls_reduction)9), p, p, NULL), "no reduction number 9");
    test_refused(ls_loss_value((ls_loss){ .kind = 77 }, p, p, NULL), "no loss number 77");
    test_refused(ls_loss_value((ls_loss){ .kind = LS_LOSS_NONE }, p, p, NULL), "no loss number 0");
    test_refused(ls_loss_value(ls_mean_squared_error(), p, p, w), "one weight per sample");
    test_refused(ls_loss_value(ls_mean_squared_error(), NULL, p, NULL), "the targets are NULL");
    test_refused(ls_loss_value(ls_mean_squared_error(), p, NULL, NULL), "the predictions are NULL");
    assert_null(ls_loss_value(ls_mean_squared_error(), NULL, NULL, NULL));
    test_graph_close(&t);
}

static void count_lines(void *user, ls_log_level level, const char *line)
{
    (void)level;
    if (strstr(line, "come from a softmax"))
        ++*(int *)user;
}

static void logits_that_are_probabilities_are_warned_of(void **state)
{
    (void)state;
    int warnings = 0;
    ls_context *ctx;
    ls_context_options options = { .log_sink = count_lines, .log_user = &warnings };
    assert_int_equal(ls_context_open(&options, &ctx), LS_OK);
    test_graph t;
    test_graph_open_in(&t, ctx, 4, LS_F32);
    ls_tensor *p = ls_op_input(t.graph, "p", LS_F32, LS_SHAPE(LS_BATCH, 3));
    ls_tensor *labels = ls_op_input(t.graph, "labels", LS_U8, LS_SHAPE(LS_BATCH));
    ls_tensor *soft = ls_op_softmax(p, -1);
    ls_loss_value(ls_sparse_categorical_crossentropy(), labels, soft, NULL);
    ls_loss_value(ls_sparse_categorical_crossentropy(.from_logits = true), labels, p, NULL);
    assert_int_equal(warnings, 0);
    ls_loss_value(ls_sparse_categorical_crossentropy(.from_logits = true), labels, soft, NULL);
    assert_int_equal(warnings, 1);
    test_graph_close(&t);
    ls_context_close(ctx);
}

int main(void)
{
    TEST_SUITE_ADD(losses_are_those_of_keras);
    TEST_SUITE_ADD(another_prediction_is_noticed);
    TEST_SUITE_ADD(weights_may_be_a_column_or_a_scalar);
    TEST_SUITE_ADD(weighted_mean_divides_by_the_count);
    TEST_SUITE_ADD(ignored_labels_count_for_nothing);
    TEST_SUITE_ADD(wrong_calls_are_refused);
    TEST_SUITE_ADD(logits_that_are_probabilities_are_warned_of);
    return test_suite_run("losses");
}
