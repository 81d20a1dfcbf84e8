/* Models: sequential, functional and custom ones, names, shared layers, seeds, traces, the built-in
 * ones, summaries, weights in files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "check.h"
#include "data/safetensors.h"
#include "folder.h"
#include "graph_cases.h"
#include "lockstep.h"

/* Fails unless the call gives `status` and a message with all of `words`, separated by |. */
#define REFUSED(call, status, words) refused(call, status, words, __LINE__)

static ls_context *ctx;

static int set_up(void **state)
{
    (void)state;
    return make_folder(state) != 0 || ls_context_open(NULL, &ctx) != LS_OK;
}

static int tear_down(void **state)
{
    (void)state;
    ls_context_close(ctx);
    return rmdir(folder); /* nothing is left in it */
}

static void refused(ls_status got, ls_status want, const char *words, int line)
{
    char list[512];
    if (got != want)
        fail_msg("line %d: %s, expected %s; the message is: %s", line, ls_status_name(got), ls_status_name(want),
                 ls_last_error());
    snprintf(list, sizeof(list), "%s", words);
    for (char *word = strtok(list, "|"); word; word = strtok(NULL, "|"))
        if (!strstr(ls_last_error(), word))
            fail_msg("line %d: \"%s\" is not in: %s", line, word, ls_last_error());
}

static ls_tensor *variable(const ls_model *model, const char *name)
{
    for (size_t i = 0; i < ls_model_variable_count(model); i++)
        if (strcmp(ls_model_variable_name(model, i), name) == 0)
            return ls_model_variable(model, i);
    fail_msg("no variable %s", name);
    return NULL;
}

static void expect_names(const ls_model *model, const char *names) /* separated by spaces */
{
    char text[1024] = "";
    for (size_t i = 0; i < ls_model_variable_count(model); i++) {
        strcat(text, i ? " " : "");
        strcat(text, ls_model_variable_name(model, i));
    }
    assert_string_equal(text, names);
}

static void hash_of(const ls_model *model, char hex[65])
{
    OK(ls_model_weights_sha256(model, hex));
}

static ls_tensor *input_of(ls_model *model, size_t i)
{
    return ls_op_input(ls_model_graph(model), NULL, ls_model_input_dtype(model, i), ls_model_input_shape(model, i));
}

/* ---- Sequential ---- */

static ls_status mnist_cnn(ls_model **out)
{
    return ls_sequential(ctx, "cnn", out, ls_input(28, 28, 1), ls_conv2d(16, 3, .activation = LS_RELU),
                         ls_max_pool2d(2), ls_conv2d(32, 3, .activation = LS_RELU), ls_max_pool2d(2), ls_flatten(),
                         ls_dense(10, .activation = LS_SOFTMAX));
}

static void the_first_seeds_model_is_keras_s(void **state)
{
    (void)state;
    ls_model *cnn;
    OK(mnist_cnn(&cnn));
    assert_string_equal(ls_model_name(cnn), "cnn");
    expect_names(cnn, "conv2d/kernel conv2d/bias conv2d_1/kernel conv2d_1/bias dense/kernel dense/bias");
    assert_int_equal(ls_model_parameter_count(cnn), 12810);
    assert_int_equal(ls_model_input_count(cnn), 1);
    assert_int_equal(ls_model_output_count(cnn), 1);
    assert_string_equal(ls_model_input_name(cnn, 0), "input_layer");
    assert_string_equal(ls_model_input_name(cnn, 1), "");
    assert_string_equal(ls_model_output_name(cnn, 0), "dense");
    ls_shape in = ls_model_input_shape(cnn, 0), out = ls_model_output_shape(cnn, 0);
    assert_true(ls_shape_equal(&in, &LS_SHAPE(LS_BATCH, 28, 28, 1)));
    assert_true(ls_shape_equal(&out, &LS_SHAPE(LS_BATCH, 10)));
    assert_null(ls_model_variable(cnn, 6));
    assert_string_equal(ls_model_variable_name(cnn, 6), "");
    assert_int_equal(ls_graph_node_count(ls_model_graph(cnn)), 6); /* variables, and nothing else */
    ls_model_destroy(cnn);
    ls_model_destroy(NULL);
}

static void names_are_counted_as_keras_does(void **state)
{
    (void)state;
    ls_model *m;
    OK(ls_sequential(ctx, NULL, &m, ls_input(8), ls_dense(8), ls_dense(8, .name = "dense_1"), ls_dense(8),
                     ls_dense(8, .name = "head"), ls_dense(8)));
    assert_string_equal(ls_model_name(m), "sequential");
    expect_names(
        m, "dense/kernel dense/bias dense_1/kernel dense_1/bias dense_2/kernel dense_2/bias head/kernel head/bias "
           "dense_3/kernel dense_3/bias");
    ls_model_destroy(m);
    m = NULL;
    REFUSED(ls_sequential(ctx, "m", &m, ls_input(8), ls_dense(8, .name = "a"), ls_dense(8, .name = "a")),
            LS_ERR_INVALID, "layer \"a\" (Dense)|has this name");
    REFUSED(ls_sequential(ctx, "m", &m, ls_dense(8)), LS_ERR_INVALID, "model \"m\"|ls_input|ls_dense");
    REFUSED(ls_sequential_with(ctx, "m", NULL, 0, &m), LS_ERR_INVALID, "must have layers");
    REFUSED(ls_sequential(NULL, "m", &m, ls_input(8), ls_dense(8)), LS_ERR_INVALID, "context");
    assert_null(m);
}

static void seeds_reproduce(void **state)
{
    (void)state;
    ls_model *a, *b;
    char first[65], second[65], other[65];
    OK(mnist_cnn(&a));
    OK(mnist_cnn(&b));
    hash_of(a, first);
    hash_of(b, second);
    assert_string_equal(first, second);
    OK(ls_model_initialize(a, 5));
    hash_of(a, other);
    assert_string_not_equal(first, other);
    OK(ls_model_initialize(b, 5));
    hash_of(b, second);
    assert_string_equal(other, second);
    OK(ls_model_initialize(a, 0));
    hash_of(a, second);
    assert_string_equal(first, second);
    ls_model_destroy(a);
    ls_model_destroy(b);
}

/* Every kernel has values of its own: no two layers of a shape are alike. */
static void layers_differ(void **state)
{
    (void)state;
    ls_model *m;
    float w[3][64];
    OK(ls_sequential(ctx, "m", &m, ls_input(8), ls_dense(8), ls_dense(8), ls_dense(8)));
    for (size_t i = 0; i < 3; i++)
        OK(ls_variable_get(ls_model_variable(m, 2 * i), w[i], sizeof(w[i])));
    assert_memory_not_equal(w[0], w[1], sizeof(w[0]));
    assert_memory_not_equal(w[1], w[2], sizeof(w[0]));
    ls_model_destroy(m);
}

/* ---- Functional ---- */

static void shared_layers_share(void **state)
{
    (void)state;
    ls_model *m;
    OK(ls_functional_begin(ctx, "shared", &m));
    ls_symbol a = ls_symbol_input(m, ls_input(3, .name = "a")), b = ls_symbol_input(m, ls_input(3, .name = "b"));
    ls_symbol x = ls_symbol_call(m, ls_dense(4, .name = "tower"), a), y = ls_symbol_share(x, b);
    ls_symbol sum = ls_symbol_call(m, ls_add(), x, y), side = ls_symbol_call(m, ls_concatenate(), x, y, sum);
    OK(ls_functional_end(m, sum, side));
    expect_names(m, "tower/kernel tower/bias");
    assert_int_equal(ls_model_input_count(m), 2);
    assert_int_equal(ls_model_output_count(m), 2);
    assert_string_equal(ls_model_input_name(m, 1), "b");
    assert_string_equal(ls_model_output_name(m, 0), "add");
    assert_string_equal(ls_model_output_name(m, 1), "concatenate");
    ls_shape shape = ls_model_output_shape(m, 1);
    assert_true(ls_shape_equal(&shape, &LS_SHAPE(LS_BATCH, 12)));

    /* sum = (a + b) W + 2 bias, and the gradient of the shared bias counts both calls */
    float w[12], bias[4] = { 1, 2, 3, 4 }, in[2][3] = { { 1, 2, 3 }, { -2, 0.5f, 4 } }, got[4], grad[4];
    for (int i = 0; i < 12; i++)
        w[i] = (float)(i - 5) / 4;
    OK(ls_variable_set(variable(m, "tower/kernel"), w, sizeof(w)));
    OK(ls_variable_set(variable(m, "tower/bias"), bias, sizeof(bias)));
    ls_tensor *inputs[] = { input_of(m, 0), input_of(m, 1) }, *out[2], *of = variable(m, "tower/bias"), *gradient;
    OK(ls_model_trace(m, inputs, false, out, NULL));
    OK(ls_gradients(out[0], &of, 1, &gradient));
    ls_feed feeds[] = { { inputs[0], ls_array_of(LS_F32, LS_SHAPE(1, 3), in[0]) },
                        { inputs[1], ls_array_of(LS_F32, LS_SHAPE(1, 3), in[1]) } };
    ls_tensor *fetches[] = { out[0], out[1], gradient };
    OK(ls_eval(ls_model_graph(m), feeds, 2, fetches, 3));
    OK(ls_read(out[0], got, sizeof(got)));
    OK(ls_read(gradient, grad, sizeof(grad)));
    for (int j = 0; j < 4; j++) {
        double want = 2 * bias[j];
        for (int i = 0; i < 3; i++)
            want += (in[0][i] + in[1][i]) * w[4 * i + j];
        assert_true(test_is_near(got[j], want, 1e-6));
        assert_true(grad[j] == 2);
    }
    ls_model_destroy(m);
}

/* Inputs of fewer axes are spread as Keras does it: axes of size 1 after the batch axis. */
static void merging_spreads(void **state)
{
    (void)state;
    ls_model *m;
    OK(ls_functional_begin(ctx, "merge", &m));
    ls_symbol image = ls_symbol_input(m, ls_input(2, 2, 3)), channels = ls_symbol_input(m, ls_input(3));
    OK(ls_functional_end(m, ls_symbol_call(m, ls_multiply(), image, channels)));
    float x[12], s[3] = { 2, 3, 5 }, y[12];
    for (int i = 0; i < 12; i++)
        x[i] = (float)i;
    ls_tensor *inputs[] = { input_of(m, 0), input_of(m, 1) }, *out;
    OK(ls_model_trace(m, inputs, false, &out, NULL));
    ls_feed feeds[] = { { inputs[0], ls_array_of(LS_F32, LS_SHAPE(1, 2, 2, 3), x) },
                        { inputs[1], ls_array_of(LS_F32, LS_SHAPE(1, 3), s) } };
    OK(ls_eval(ls_model_graph(m), feeds, 2, &out, 1));
    OK(ls_read(out, y, sizeof(y)));
    for (int i = 0; i < 12; i++)
        assert_true(y[i] == x[i] * s[i % 3]);
    ls_model_destroy(m);
}

static void wrong_functional_models_are_refused(void **state)
{
    (void)state;
    ls_model *m, *other;
    OK(ls_functional_begin(ctx, "f", &m));
    ls_symbol a = ls_symbol_input(m, ls_input(3)), b = ls_symbol_call(m, ls_dense(4), a);
    ls_symbol wrong = ls_symbol_call(m, ls_add(), a, b); /* 3 and 4 */
    assert_int_equal(wrong.index, -1);
    wrong = ls_symbol_call(m, ls_dense(-1), wrong); /* swallowed: the first message stays */
    assert_int_equal(wrong.index, -1);
    REFUSED(ls_functional_end(m, wrong), LS_ERR_SHAPE, "layer \"add\" (Add) on (batch, 3), (batch, 4)");
    ls_tensor *x = input_of(m, 0), *y;
    REFUSED(ls_model_trace(m, &x, false, &y, NULL), LS_ERR_SHAPE, "layer \"add\"");
    ls_model_destroy(m);

    OK(ls_functional_begin(ctx, "f", &m));
    OK(ls_functional_begin(ctx, "g", &other));
    a = ls_symbol_input(m, ls_input(3));
    b = ls_symbol_call(m, ls_dense(4, .name = "lost"), a);
    ls_symbol_call(other, ls_dense(2), a);
    REFUSED(ls_functional_end(other, a), LS_ERR_INVALID, "model \"g\"|another model");
    REFUSED(ls_functional_end(m, a), LS_ERR_INVALID, "layer \"lost\" (Dense) leads to no output");
    ls_model_destroy(m);
    ls_model_destroy(other);

    OK(ls_functional_begin(ctx, "f", &m));
    a = ls_symbol_input(m, ls_input(3));
    b = ls_symbol_call(m, ls_dense(4), a);
    ls_symbol_share(b, b); /* its kernel takes 3 */
    REFUSED(ls_functional_end(m, b), LS_ERR_SHAPE, "layer \"dense\" (Dense) on (batch, 4)|(4, 4)|(3, 4)");
    ls_model_destroy(m);

    OK(ls_functional_begin(ctx, "f", &m));
    REFUSED(ls_model_initialize(m, 1), LS_ERR_STATE, "ls_functional_end");
    REFUSED(ls_functional_end_with(m, NULL, 0), LS_ERR_INVALID, "model \"f\" has no input");
    ls_model_destroy(m);
    OK(ls_functional_begin(ctx, "f", &m));
    a = ls_symbol_input(m, ls_input(3));
    ls_symbol_call(m, ls_dense(3), a, a);
    REFUSED(ls_functional_end(m, a), LS_ERR_INVALID, "Dense|takes one input; 2 were given");
    ls_model_destroy(m);
    OK(ls_functional_begin(ctx, "f", &m));
    a = ls_symbol_input(m, ls_dense(3));
    REFUSED(ls_functional_end(m, a), LS_ERR_INVALID, "ls_input|Dense");
    ls_model_destroy(m);
    OK(ls_functional_begin(ctx, "f", &m));
    a = ls_symbol_input(m, ls_input(3));
    b = ls_symbol_call(m, ls_dense(3), a);
    OK(ls_functional_end(m, b));
    ls_symbol_call(m, ls_dense(3), b);
    REFUSED(ls_functional_end(m, b), LS_ERR_STATE, "finished");
    ls_model_destroy(m);
}

/* ---- Custom ---- */

/* The subclassed model of the first seed. */
static void seed_function(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    (void)user;
    ls_tensor *x = ls_layer_call(call, ls_conv2d(16, 3, .activation = LS_RELU), inputs[0]);
    x = ls_layer_call(call, ls_max_pool2d(), x);
    x = ls_layer_call(call, ls_conv2d(32, 3, .activation = LS_RELU), x);
    x = ls_layer_call(call, ls_max_pool2d(), x);
    x = ls_layer_call(call, ls_flatten(), x);
    outputs[0] = ls_layer_call(call, ls_dense(10, .activation = LS_SOFTMAX), x);
}

static void a_custom_model_is_the_sequential_one(void **state)
{
    (void)state;
    ls_model *a, *b;
    float *x = calloc(3 * 784, sizeof(float)), y[2][30];
    assert_non_null(x);
    for (int i = 0; i < 3 * 784; i++)
        x[i] = (float)(i % 97) / 97;
    OK(mnist_cnn(&a));
    OK(ls_custom(ctx, "build_model", &ls_input(28, 28, 1), 1, 1, seed_function, NULL, &b));
    assert_string_equal(ls_model_name(b), "build_model");
    assert_string_equal(ls_model_output_name(b, 0), "output_1");
    expect_names(b, "conv2d/kernel conv2d/bias conv2d_1/kernel conv2d_1/bias dense/kernel dense/bias");
    for (int training = 0; training < 2; training++)
        for (int i = 0; i < 2; i++) {
            ls_model *m = i ? b : a;
            ls_tensor *input = input_of(m, 0), *output;
            ls_trace trace;
            OK(ls_model_trace(m, &input, training, &output, &trace));
            OK(ls_eval(ls_model_graph(m), &(ls_feed){ input, ls_array_of(LS_F32, LS_SHAPE(3, 28, 28, 1), x) }, 1,
                       &output, 1));
            OK(ls_read(output, y[i], sizeof(y[i])));
        }
    assert_memory_equal(y[0], y[1], sizeof(y[0])); /* the same initial values, the same nodes: the same bits */
    assert_int_equal(ls_model_variable_count(b), 6);
    free(x);
    ls_model_destroy(a);
    ls_model_destroy(b);
}

typedef struct settings {
    int mode, calls;
} settings;

static void mode_function(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    settings *s = user;
    s->calls++;
    ls_tensor *x = ls_layer_call(call, ls_dense(4, .name = "d"), inputs[0]);
    if (s->mode == 1) /* shared by name */
        x = ls_layer_call(call, ls_dense(4, .name = "d"), x);
    else if (s->mode == 2)
        x = ls_layer_call(call, ls_dense(5, .name = "d"), x);
    else if (s->mode == 3)
        x = ls_layer_call(call, ls_dense(4, .name = "late"), x);
    else if (s->mode == 4)
        x = NULL;
    else if (s->mode == 5 && ls_call_is_training(call)) /* Keras's own way to write dropout */
        x = ls_op_mul(ls_layer_call(call, ls_dropout(0.5), x), ls_op_scalar(ls_tensor_graph(x), LS_F32, 2));
    else if (s->mode == 6)
        x = ls_layer_call(call, ls_conv2d(3, 3), x);
    outputs[0] = x;
}

static void custom_models_know_layers_by_name(void **state)
{
    (void)state;
    ls_model *m = NULL;
    settings s = { .mode = 1 };
    OK(ls_custom(ctx, "c", &ls_input(4), 1, 1, mode_function, &s, &m));
    expect_names(m, "d/kernel d/bias");
    int made = s.calls;
    s.mode = 3;
    ls_tensor *input = input_of(m, 0), *output;
    REFUSED(ls_model_trace(m, &input, false, &output, NULL), LS_ERR_STATE,
            "layer \"late\" (Dense)|when the model was made");
    assert_int_equal(s.calls, made + 1);
    ls_model_destroy(m);
    m = NULL;
    s.mode = 2;
    REFUSED(ls_custom(ctx, "c", &ls_input(4), 1, 1, mode_function, &s, &m), LS_ERR_INVALID,
            "layer \"d\" (Dense)|other options");
    s.mode = 4;
    REFUSED(ls_custom(ctx, "c", &ls_input(4), 1, 1, mode_function, &s, &m), LS_ERR_INVALID, "did not set output 0");
    s.mode = 6;
    REFUSED(ls_custom(ctx, "c", &ls_input(4), 1, 1, mode_function, &s, &m), LS_ERR_SHAPE,
            "layer \"conv2d\" (Conv2D) on (batch, 4)");
    REFUSED(ls_custom(ctx, "c", &ls_dense(4), 1, 1, mode_function, &s, &m), LS_ERR_INVALID, "ls_input");
    REFUSED(ls_custom(ctx, "c", &ls_input(4), 1, 1, NULL, &s, &m), LS_ERR_INVALID, "function");
    assert_null(m);
    s.mode = 5;
    OK(ls_custom(ctx, "c", &ls_input(4), 1, 1, mode_function, &s, &m));
    input = input_of(m, 0);
    ls_trace trace;
    OK(ls_model_trace(m, &input, true, &output, &trace));
    assert_true(test_has_op(ls_model_graph(m), "dropout"));
    ls_model_destroy(m);
}

/* ---- Traces ---- */

static ls_status norm_model(bool frozen, ls_model **out)
{
    return ls_sequential(ctx, "n", out, ls_input(2), ls_batch_normalization(.momentum = 0.9, .frozen = frozen));
}

static void batch_norm_trains_on_the_batch_and_moves(void **state)
{
    (void)state;
    const float x[] = { 1, 10, 3, 30 };
    for (int frozen = 0; frozen < 2; frozen++) {
        ls_model *m;
        OK(norm_model(frozen, &m));
        assert_int_equal(ls_model_variable_is_trainable(m, 0), !frozen);
        assert_false(ls_model_variable_is_trainable(m, 2));
        ls_tensor *input = input_of(m, 0), *output;
        ls_trace trace;
        OK(ls_model_trace(m, &input, true, &output, &trace));
        assert_int_equal(trace.update_count, frozen ? 0 : 2);
        ls_tensor *fetches[] = { output, frozen ? output : trace.updates[0], frozen ? output : trace.updates[1] };
        OK(ls_eval(ls_model_graph(m), &(ls_feed){ input, ls_array_of(LS_F32, LS_SHAPE(2, 2), x) }, 1, fetches, 3));
        free(trace.updates);
        float y[4], mean[2], variance[2];
        OK(ls_read(output, y, sizeof(y)));
        OK(ls_variable_get(variable(m, "batch_normalization/moving_mean"), mean, sizeof(mean)));
        OK(ls_variable_get(variable(m, "batch_normalization/moving_variance"), variance, sizeof(variance)));
        /* means 2 and 20, variances 1 and 100 */
        const double trained[] = { -1 / sqrt(1.001), -10 / sqrt(100.001), 1 / sqrt(1.001), 10 / sqrt(100.001) };
        for (int i = 0; i < 4; i++)
            assert_true(test_is_near(y[i], frozen ? x[i] / sqrt(1.001) : trained[i], 1e-5));
        assert_true(test_is_near(mean[1], frozen ? 0 : 2, 1e-6));
        assert_true(test_is_near(variance[1], frozen ? 1 : 0.9 + 10, 1e-5));
        OK(ls_model_trace(m, &input, false, &output, &trace));
        assert_int_equal(trace.update_count, 0);
        assert_null(trace.updates);
        ls_model_destroy(m);
    }
}

static void regularizers_count_each_variable_once(void **state)
{
    (void)state;
    ls_model *m;
    OK(ls_functional_begin(ctx, "r", &m));
    ls_symbol x = ls_symbol_input(m, ls_input(2));
    ls_symbol y = ls_symbol_call(
        m, ls_dense(2, .kernel_regularizer = { .l1 = 0.5, .l2 = 0.25 }, .bias_regularizer = { .l2 = 2 }), x);
    y = ls_symbol_share(y, y);
    y = ls_symbol_call(m, ls_dense(2, .kernel_regularizer = { .l2 = 100 }, .frozen = true), y);
    OK(ls_functional_end(m, y));
    const float w[] = { 1, -2, 3, -4 }, b[] = { 0.5f, -1 };
    OK(ls_variable_set(variable(m, "dense/kernel"), w, sizeof(w)));
    OK(ls_variable_set(variable(m, "dense/bias"), b, sizeof(b)));
    ls_tensor *input = input_of(m, 0), *output;
    for (int training = 0; training < 2; training++) {
        ls_trace trace;
        double loss;
        OK(ls_model_trace(m, &input, training, &output, &trace));
        assert_non_null(trace.regularization);
        OK(ls_read_scalar(trace.regularization, &loss));
        assert_true(test_is_near(loss, 0.5 * 10 + 0.25 * 30 + 2 * 1.25, 1e-6));
    }
    ls_model_destroy(m);
    OK(norm_model(false, &m));
    input = input_of(m, 0);
    ls_trace trace;
    OK(ls_model_trace(m, &input, false, &output, &trace));
    assert_null(trace.regularization);
    ls_model_destroy(m);
}

/* The mean of |cosine| of the pairs of rows (1, 0), (3, 4), (0, 2): 0.6, 0 and 0.8. */
static void orthogonal_regularizers_look_at_pairs(void **state)
{
    (void)state;
    for (int columns = 0; columns < 2; columns++) {
        const float rows[] = { 1, 0, 3, 4, 0, 2 }, turned[] = { 1, 3, 0, 0, 4, 2 };
        ls_model *m;
        OK(ls_functional_begin(ctx, "o", &m));
        ls_symbol x = ls_symbol_input(m, ls_input(columns ? 2 : 3));
        OK(ls_functional_end(
            m, ls_symbol_call(m,
                              ls_dense(columns ? 3 : 2,
                                       .kernel_regularizer = { .orthogonal = 0.5, .orthogonal_columns = columns }),
                              x)));
        OK(ls_variable_set(variable(m, "dense/kernel"), columns ? turned : rows, sizeof(rows)));
        ls_tensor *input = input_of(m, 0), *output;
        ls_trace trace;
        double loss;
        OK(ls_model_trace(m, &input, false, &output, &trace));
        OK(ls_read_scalar(trace.regularization, &loss));
        assert_true(test_is_near(loss, 0.5 * (0.6 + 0.8) / 3, 1e-6));
        ls_model_destroy(m);
    }
}

static void inputs_of_a_trace_must_fit(void **state)
{
    (void)state;
    ls_model *m, *other;
    OK(mnist_cnn(&m));
    OK(mnist_cnn(&other));
    ls_graph *g = ls_model_graph(m);
    ls_tensor *bad[] = { ls_op_input(g, NULL, LS_F32, LS_SHAPE(LS_BATCH, 28, 28)),
                         ls_op_input(g, NULL, LS_F32, LS_SHAPE(LS_BATCH, 28, 28, 3)),
                         ls_op_input(g, NULL, LS_U8, LS_SHAPE(LS_BATCH, 28, 28, 1)), input_of(other, 0), NULL };
    const char *words[] = { "model \"cnn\", input 0 (\"input_layer\")|(batch, 28, 28)|(batch, 28, 28, 1)",
                            "(batch, 28, 28, 3)|(batch, 28, 28, 1)", "uint8|float32", "another graph", "NULL" };
    ls_tensor *output = NULL;
    size_t nodes = ls_graph_node_count(g);
    for (size_t i = 0; i < LENGTH(bad); i++)
        REFUSED(ls_model_trace(m, &bad[i], false, &output, NULL),
                i < 2    ? LS_ERR_SHAPE
                : i == 2 ? LS_ERR_DTYPE
                         : LS_ERR_INVALID,
                words[i]);
    assert_null(output);
    assert_int_equal(ls_graph_node_count(g), nodes);
    ls_tensor *good = input_of(m, 0);
    REFUSED(ls_model_trace(m, &good, true, &output, NULL), LS_ERR_INVALID, "trace");
    REFUSED(ls_model_trace(NULL, &good, false, &output, NULL), LS_ERR_INVALID, "NULL");
    OK(ls_graph_status(g));
    /* a whole batch works like a per-sample one */
    ls_tensor *whole = ls_op_fill(g, LS_F32, LS_SHAPE(5, 28, 28, 1), 0.5);
    OK(ls_model_trace(m, &whole, false, &output, NULL));
    ls_array value;
    OK(ls_value(output, &value));
    assert_true(ls_shape_equal(&value.shape, &LS_SHAPE(5, 10)));
    ls_model_destroy(m);
    ls_model_destroy(other);
}

/* ---- Built-in models ---- */

/* A model that is only described takes no memory of its devices, and its weights are the same when
 * they come late. */
static void a_description_needs_no_weights(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    ls_model *model = NULL, *other = NULL;
    ls_memory_info memory;
    char *text = NULL, late[65], early[65];
    OK(ls_context_open(NULL, &ctx));
    OK(ls_model_builtin(ctx, "resnet50", &model));
    OK(ls_model_summary(model, &text));
    OK(ls_get_memory_info(ctx, "cpu:0", &memory));
    assert_int_equal(memory.peak, 0);
    assert_int_equal(ls_model_parameter_count(model), 25610152);
    ls_model_destroy(model);
    OK(ls_model_builtin(ctx, "mlp", &model));
    OK(ls_model_builtin(ctx, "mlp", &other));
    float bias[128];
    OK(ls_variable_get(ls_model_variable(other, 1), bias, sizeof(bias)));
    OK(ls_model_initialize(other, 5));
    OK(ls_model_weights_sha256(other, early));
    OK(ls_model_initialize(model, 5));
    OK(ls_model_weights_sha256(model, late));
    assert_string_equal(early, late);
    OK(ls_get_memory_info(ctx, "cpu:0", &memory));
    assert_true(memory.in_use >= 2 * 4 * (size_t)ls_model_parameter_count(model));
    free(text);
    ls_model_destroy(other);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void built_in_models_have_their_parameters(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int64_t all, trained;
        ls_shape in, out;
    } rows[] = {
        { "linear", 2, 2, LS_SHAPE(LS_BATCH, 1), LS_SHAPE(LS_BATCH, 1) },
        { "mlp", 101770, 101770, LS_SHAPE(LS_BATCH, 28, 28, 1), LS_SHAPE(LS_BATCH, 10) },
        { "mnist-cnn", 160 + 4640 + 8010, 12810, LS_SHAPE(LS_BATCH, 28, 28, 1), LS_SHAPE(LS_BATCH, 10) },
        { "mnist-cnn-wide", 5050368, 576 + 36864 + 73728 + 2048 * 2400 + 24000, LS_SHAPE(LS_BATCH, 28, 28, 1),
          LS_SHAPE(LS_BATCH, 10) },
#define IMAGES(size) LS_SHAPE(LS_BATCH, size, size, 3)
        /* torchvision's */
        { "resnet18", 11699112, 11689512, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "resnet34", 21814696, 21797672, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "resnet50", 25610152, 25557032, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "resnet101", 44654504, 44549160, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "resnet152", 60344232, 60192808, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "vgg11", 132863336, 132863336, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "vgg13", 133047848, 133047848, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "vgg16", 138357544, 138357544, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "vgg19", 143667240, 143667240, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "mobilenet_v2", 3538984, 3504872, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "densenet121", 8062504, 7978856, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "densenet169", 14307880, 14149480, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "densenet201", 20242984, 20013928, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "efficientnet_b0", 5330564, 5288548, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "efficientnet_b1", 7856232, 7794184, IMAGES(240), LS_SHAPE(LS_BATCH, 1000) },
        { "efficientnet_b2", 9177562, 9109994, IMAGES(288), LS_SHAPE(LS_BATCH, 1000) },
        { "efficientnet_b3", 12320528, 12233232, IMAGES(300), LS_SHAPE(LS_BATCH, 1000) },
        { "efficientnet_b4", 19466816, 19341616, IMAGES(380), LS_SHAPE(LS_BATCH, 1000) },
        { "convnext_tiny", 28589128, 28589128, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "convnext_small", 50223688, 50223688, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
        { "convnext_base", 88591464, 88591464, IMAGES(224), LS_SHAPE(LS_BATCH, 1000) },
#undef IMAGES
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        ls_model *m;
        int64_t trained = 0, count;
        assert_string_equal(ls_model_builtin_name(i), rows[i].name);
        OK(ls_model_builtin(ctx, rows[i].name, &m));
        assert_string_equal(ls_model_name(m), rows[i].name);
        ls_shape in = ls_model_input_shape(m, 0), out = ls_model_output_shape(m, 0);
        assert_true(ls_shape_equal(&in, &rows[i].in) && ls_shape_equal(&out, &rows[i].out));
        for (size_t v = 0; v < ls_model_variable_count(m); v++) {
            assert_true(ls_shape_count(&ls_model_variable(m, v)->shape, 1, &count));
            trained += ls_model_variable_is_trainable(m, v) ? count : 0;
        }
        assert_int_equal(ls_model_parameter_count(m), rows[i].all);
        assert_int_equal(trained, rows[i].trained);
        ls_model_destroy(m);
    }
    assert_null(ls_model_builtin_name(LENGTH(rows)));
    ls_model *m;
    REFUSED(ls_model_builtin(ctx, "resnet-50", &m), LS_ERR_NOT_FOUND, "resnet-50|resnet50");
    REFUSED(ls_model_builtin(ctx, NULL, &m), LS_ERR_INVALID, "NULL");
}

/* Images of any size, down to the least, and any number of classes; a forward pass of each. */
static void built_in_models_take_sizes_and_classes(void **state)
{
    (void)state;
    const struct {
        const char *name;
        ls_shape in;
        int64_t classes, parameters; /* 0: not looked at */
    } rows[] = {
        { "linear", LS_SHAPE(13), 0, 14 },
        { "mlp", LS_SHAPE(5), 3, 5 * 128 + 128 + 128 * 3 + 3 },
        { "mnist-cnn", LS_SHAPE(10, 13, 3), 7, 0 },
        { "mnist-cnn-wide", LS_SHAPE(1, 9, 2), 1, 0 },
        { "resnet18", LS_SHAPE(32, 32, 3), 10, 11699112 - 1000 * 513 + 10 * 513 },
        { "resnet18", LS_SHAPE(1, 1, 1), 2, 0 },
        { "resnet50", LS_SHAPE(33, 2, 4), 10, 0 },
        { "mobilenet_v2", LS_SHAPE(1, 1, 1), 2, 0 },
        { "densenet121", LS_SHAPE(29, 30, 1), 2, 0 },
        { "efficientnet_b0", LS_SHAPE(2, 1, 3), 2, 0 },
        { "convnext_tiny", LS_SHAPE(32, 40, 3), 2, 0 },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        ls_model *m;
        OK(ls_model_builtin(ctx, rows[i].name, &m, .input = rows[i].in, .classes = rows[i].classes));
        ls_shape whole = { .rank = rows[i].in.rank + 1, .dims = { 2 } }, out = LS_SHAPE(2, rows[i].classes);
        for (int a = 0; a < rows[i].in.rank; a++)
            whole.dims[a + 1] = rows[i].in.dims[a];
        out.dims[1] = rows[i].classes ? rows[i].classes : 1;
        if (rows[i].parameters)
            assert_int_equal(ls_model_parameter_count(m), rows[i].parameters);
        ls_tensor *x = ls_op_fill(ls_model_graph(m), LS_F32, whole, 0.5), *y;
        ls_array value;
        OK(ls_model_trace(m, &x, false, &y, NULL));
        OK(ls_value(y, &value));
        assert_true(ls_shape_equal(&value.shape, &out));
        for (int64_t k = 0; k < out.dims[0] * out.dims[1]; k++)
            assert_true(isfinite(((float *)value.data)[k]));
        ls_model_destroy(m);
    }
}

static void built_in_models_refuse_other_sizes(void **state)
{
    (void)state;
    ls_model *m;
    REFUSED(ls_model_builtin(ctx, "mnist-cnn", &m, .input = LS_SHAPE(9, 28, 1)), LS_ERR_SHAPE,
            "mnist-cnn|(9, 28, 1)|at least 10");
    REFUSED(ls_model_builtin(ctx, "resnet18", &m, .input = LS_SHAPE(32, 32)), LS_ERR_SHAPE,
            "resnet18|(32, 32)|height, width and channels");
    REFUSED(ls_model_builtin(ctx, "resnet18", &m, .input = LS_SHAPE(32, 0, 3)), LS_ERR_SHAPE,
            "every size must be at least 1");
    REFUSED(ls_model_builtin(ctx, "mlp", &m, .input = { .rank = 99 }), LS_ERR_SHAPE, "mlp|99");
    REFUSED(ls_model_builtin(ctx, "mlp", &m, .input = LS_SHAPE(LS_BATCH, 3)), LS_ERR_SHAPE,
            "every size must be at least 1");
    REFUSED(ls_model_builtin(ctx, "mlp", &m, .classes = -1), LS_ERR_INVALID, "mlp|classes is -1");
    REFUSED(ls_model_builtin(ctx, "linear", &m, .classes = 3), LS_ERR_INVALID, "linear|classes is 3|not a classifier");
    REFUSED(ls_model_builtin(ctx, "mlp", &m, .input = LS_SHAPE(INT64_MAX, INT64_MAX)), LS_ERR_OVERFLOW, "overflows");
}

/* ---- Summary ---- */

static void the_summary_is_keras_s(void **state)
{
    (void)state;
    static const char expected[] = "Model: \"cnn\"\n"
                                   "┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓\n"
                                   "┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃\n"
                                   "┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩\n"
                                   "│ conv2d (Conv2D)                 │ (None, 26, 26, 16)     │           160 │\n"
                                   "├─────────────────────────────────┼────────────────────────┼───────────────┤\n"
                                   "│ max_pooling2d (MaxPooling2D)    │ (None, 13, 13, 16)     │             0 │\n"
                                   "├─────────────────────────────────┼────────────────────────┼───────────────┤\n"
                                   "│ conv2d_1 (Conv2D)               │ (None, 11, 11, 32)     │         4,640 │\n"
                                   "├─────────────────────────────────┼────────────────────────┼───────────────┤\n"
                                   "│ max_pooling2d_1 (MaxPooling2D)  │ (None, 5, 5, 32)       │             0 │\n"
                                   "├─────────────────────────────────┼────────────────────────┼───────────────┤\n"
                                   "│ flatten (Flatten)               │ (None, 800)            │             0 │\n"
                                   "├─────────────────────────────────┼────────────────────────┼───────────────┤\n"
                                   "│ dense (Dense)                   │ (None, 10)             │         8,010 │\n"
                                   "└─────────────────────────────────┴────────────────────────┴───────────────┘\n"
                                   " Total params: 12,810 (50.04 KB)\n"
                                   " Trainable params: 12,810 (50.04 KB)\n"
                                   " Non-trainable params: 0 (0.00 B)\n"
                                   " FLOPs per sample, forward: ";
    ls_model *m;
    char *text;
    OK(mnist_cnn(&m));
    OK(ls_model_summary(m, &text));
    if (strncmp(text, expected, strlen(expected)) != 0)
        fail_msg("the summary is\n%s", text);
    /* convolutions 2 9 16 26^2 + 2 144 32 11^2, dense 2 800 10; biases, ReLUs, pools and softmax
     * are a few per cent */
    double flops = 0, least = 2 * 9 * 16 * 676 + 2 * 144 * 32 * 121 + 16000;
    for (const char *digit = text + strlen(expected); *digit != '\n'; digit++)
        flops = *digit == ',' ? flops : 10 * flops + (*digit - '0');
    assert_true(flops > least && flops < 1.06 * least);
    assert_non_null(strstr(text, "\n Activations per sample: "));
    assert_int_equal(ls_graph_node_count(ls_model_graph(m)), 6);
    free(text);
    ls_model_destroy(m);
}

static void the_summary_of_a_graph_has_its_connections(void **state)
{
    (void)state;
    ls_model *m;
    char *text;
    OK(ls_functional_begin(ctx, "g", &m));
    ls_symbol a = ls_symbol_input(m, ls_input(8, .name = "a")), b = ls_symbol_call(m, ls_dense(8), a);
    b = ls_symbol_share(b, b);
    b = ls_symbol_call(m, ls_batch_normalization(.name = "a_name_that_is_quite_a_bit_longer"), b);
    OK(ls_functional_end(m, ls_symbol_call(m, ls_add(), b, a)));
    OK(ls_model_summary(m, &text));
    const char *const lines[] = {
        "┃ Layer (type)                      ┃ Output Shape      ┃    Param # ┃ Connected to                           "
        "  ┃\n",
        "│ a (InputLayer)                    │ (None, 8)         │          0 │ -                                      "
        "  │\n",
        "│ dense (Dense)                     │ (None, 8)         │         72 │ a[0][0],                               "
        "  │\n"
        "│                                   │                   │            │ dense[0][0]                            "
        "  │\n",
        "│ a_name_that_is_quite_a_bit_longer │ (None, 8)         │         32 │ dense[1][0]                            "
        "  │\n"
        "│ (BatchNormalization)              │                   │            │                                        "
        "  │\n",
        "│ add (Add)                         │ (None, 8)         │          0 │ "
        "a_name_that_is_quite_a_bit_longer[0][0], │\n",
        " Total params: 104 (416.00 B)\n"
        " Trainable params: 88 (352.00 B)\n"
        " Non-trainable params: 16 (64.00 B)\n",
    };
    for (size_t i = 0; i < LENGTH(lines); i++)
        if (!strstr(text, lines[i]))
            fail_msg("there is no line\n%sin\n%s", lines[i], text);
    free(text);
    ls_model_destroy(m);
}

/* ---- Weights ---- */

static void weights_go_to_a_file_and_come_back(void **state)
{
    (void)state;
    ls_model *a, *b;
    char before[65], after[65];
    const char *path = in_folder("weights.safetensors");
    OK(ls_sequential(ctx, "w", &a, ls_input(6, 6, 2), ls_conv2d(3, 3), ls_batch_normalization(), ls_flatten(),
                     ls_dense(4)));
    OK(ls_sequential(ctx, "w", &b, ls_input(6, 6, 2), ls_conv2d(3, 3), ls_batch_normalization(), ls_flatten(),
                     ls_dense(4)));
    OK(ls_model_initialize(a, 3));
    const float moved[] = { 7, 8, 9 };
    OK(ls_variable_set(variable(a, "batch_normalization/moving_mean"), moved, sizeof(moved)));
    hash_of(a, before);
    hash_of(b, after);
    assert_string_not_equal(before, after);
    OK(ls_model_save_weights(a, path));
    OK(ls_model_load_weights(b, path));
    hash_of(b, after);
    assert_string_equal(before, after);

    ls_safetensors *file;
    OK(ls_safetensors_open(path, &file));
    assert_int_equal(ls_safetensors_count(file), 8);
    const ls_safetensors_entry *kernel = ls_safetensors_find(file, "conv2d/kernel");
    assert_non_null(kernel);
    assert_true(ls_shape_equal(&kernel->shape, &LS_SHAPE(3, 3, 2, 3)));
    assert_non_null(ls_safetensors_find(file, "batch_normalization/moving_variance"));
    ls_safetensors_close(file);

    ls_model *other;
    OK(ls_sequential(ctx, "o", &other, ls_input(6, 6, 2), ls_conv2d(3, 3), ls_flatten(), ls_dense(4, .name = "head")));
    hash_of(other, before);
    REFUSED(ls_model_load_weights(other, path), LS_ERR_NOT_FOUND,
            "does not fit model \"o\"|2 of its 4 variables|\"head/kernel\", \"head/bias\"|6 of the file's "
            "8|\"dense/kernel\"");
    ls_model_destroy(other);
    OK(ls_sequential(ctx, "o", &other, ls_input(6, 6, 2), ls_conv2d(3, 3), ls_batch_normalization(), ls_flatten(),
                     ls_dense(5, .name = "dense")));
    hash_of(other, before);
    REFUSED(ls_model_load_weights(other, path), LS_ERR_SHAPE, "\"dense/kernel\"|(48, 4)|(48, 5)");
    hash_of(other, after);
    assert_string_equal(before, after); /* nothing was changed */
    REFUSED(ls_model_load_weights(other, in_folder("none")), LS_ERR_NOT_FOUND, "none");
    REFUSED(ls_model_load_weights(other, NULL), LS_ERR_INVALID, "NULL");
    assert_int_equal(unlink(in_folder("weights.safetensors")), 0);
    REFUSED(ls_model_save_weights(other, "/nonexistent/folder/file"), LS_ERR_NOT_FOUND, "/nonexistent/folder/file");
    ls_model_destroy(a);
    ls_model_destroy(b);
    ls_model_destroy(other);
}

/* Elements of another type would be twice the bytes: they are refused before anything is copied. */
static void weights_of_another_type_are_refused(void **state)
{
    (void)state;
    const char *path = in_folder("double.safetensors");
    const double kernel[6] = { 1, 2, 3, 4, 5, 6 };
    const float bias[2] = { 7, 8 };
    const ls_safetensors_entry entries[] = {
        { .name = "dense/kernel", .dtype = LS_F64, .shape = LS_SHAPE(3, 2), .data = kernel },
        { .name = "dense/bias", .dtype = LS_F32, .shape = LS_SHAPE(2), .data = bias },
    };
    ls_model *model;
    char before[65], after[65];
    OK(ls_safetensors_write(path, entries, LENGTH(entries), NULL, 0));
    OK(ls_sequential(ctx, "m", &model, ls_input(3), ls_dense(2)));
    hash_of(model, before);
    REFUSED(ls_model_load_weights(model, path), LS_ERR_DTYPE, "\"dense/kernel\"|float64|float32");
    hash_of(model, after);
    assert_string_equal(before, after);
    assert_int_equal(unlink(path), 0);
    ls_model_destroy(model);
}

/* Trainable variables in creation order, then the others. */
static void the_hash_is_over_trainable_variables_first(void **state)
{
    (void)state;
    ls_model *m;
    char got[65], want[65];
    OK(ls_sequential(ctx, "h", &m, ls_input(3), ls_batch_normalization(), ls_dense(2, .frozen = true), ls_dense(2)));
    const char *const order[] = { "batch_normalization/gamma",
                                  "batch_normalization/beta",
                                  "dense_1/kernel",
                                  "dense_1/bias",
                                  "batch_normalization/moving_mean",
                                  "batch_normalization/moving_variance",
                                  "dense/kernel",
                                  "dense/bias" };
    float values[64];
    size_t count = 0;
    for (size_t i = 0; i < LENGTH(order); i++) {
        ls_tensor *v = variable(m, order[i]);
        int64_t elements;
        assert_true(ls_shape_count(&v->shape, 1, &elements));
        OK(ls_variable_get(v, values + count, (size_t)elements * sizeof(float)));
        count += (size_t)elements;
    }
    OK(ls_sha256_of(values, count * sizeof(float), want));
    hash_of(m, got);
    assert_string_equal(got, want);
    ls_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_seeds_model_is_keras_s),
        cmocka_unit_test(names_are_counted_as_keras_does),
        cmocka_unit_test(seeds_reproduce),
        cmocka_unit_test(layers_differ),
        cmocka_unit_test(shared_layers_share),
        cmocka_unit_test(merging_spreads),
        cmocka_unit_test(wrong_functional_models_are_refused),
        cmocka_unit_test(a_custom_model_is_the_sequential_one),
        cmocka_unit_test(custom_models_know_layers_by_name),
        cmocka_unit_test(batch_norm_trains_on_the_batch_and_moves),
        cmocka_unit_test(regularizers_count_each_variable_once),
        cmocka_unit_test(orthogonal_regularizers_look_at_pairs),
        cmocka_unit_test(inputs_of_a_trace_must_fit),
        cmocka_unit_test(a_description_needs_no_weights),
        cmocka_unit_test(built_in_models_have_their_parameters),
        cmocka_unit_test(built_in_models_take_sizes_and_classes),
        cmocka_unit_test(built_in_models_refuse_other_sizes),
        cmocka_unit_test(the_summary_is_keras_s),
        cmocka_unit_test(the_summary_of_a_graph_has_its_connections),
        cmocka_unit_test(weights_go_to_a_file_and_come_back),
        cmocka_unit_test(weights_of_another_type_are_refused),
        cmocka_unit_test(the_hash_is_over_trainable_variables_first),
    };
    return cmocka_run_group_tests_name("models", tests, set_up, tear_down);
}
