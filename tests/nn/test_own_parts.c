/* Parts that users write themselves: initial values of variables, weights of a custom model, losses
 * and metrics that are C functions of tensors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/philox.h"
#include "lockstep.h"
#include "machine.h"

#define SAMPLES 48
#define WIDTH   6

static float x[SAMPLES * WIDTH], y[SAMPLES], sample_weights[SAMPLES];

static ls_context *open_context(int devices)
{
    ls_context *ctx = NULL;
    ls_philox_key key = ls_random_key(3, LS_RANDOM_TEST, 0, 0);
    for (int s = 0; s < SAMPLES; s++) {
        for (int i = 0; i < WIDTH; i++)
            x[s * WIDTH + i] = (float)(ls_random_block(key, 0, (uint32_t)s, (uint32_t)i).word[0] % 1000) / 500 - 1;
        y[s] = x[s * WIDTH] - 2 * x[s * WIDTH + 3];
        sample_weights[s] = (float)(1 + s % 3);
    }
    OK(ls_context_open(&(ls_context_options){ .cpu_devices = devices }, &ctx));
    return ctx;
}

static ls_dataset *make_data(bool weighted)
{
    ls_array features = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, WIDTH), x),
             targets = ls_array_of(LS_F32, LS_SHAPE(SAMPLES), y);
    ls_array weights = ls_array_of(LS_F32, LS_SHAPE(SAMPLES), sample_weights);
    return weighted ? ls_from_tensor_slices(features, targets, .weights = weights)
                    : ls_from_tensor_slices(features, targets);
}

/* ---- Initial values ---- */

static void variables_begin_as_asked(void **state)
{
    (void)state;
    ls_context *ctx = open_context(1);
    ls_graph *g[2];
    float w[2][3][32 * 32];
    double sum = 0, squares = 0, d[4];
    int32_t i[3];
    for (int k = 0; k < 2; k++) {
        OK(ls_graph_create(ctx, &g[k], .seed = 5));
        ls_shape shape = LS_SHAPE(32, 32);
        ls_tensor *v[] = {
            ls_op_variable(g[k], "a", LS_F32, shape, .initializer = { .kind = LS_INIT_NORMAL, .a = 3, .b = 0.5 }),
            ls_op_variable(g[k], "b", LS_F32, shape, .initializer = { .kind = LS_INIT_NORMAL, .a = 3, .b = 0.5 }),
            ls_op_variable(g[k], "c", LS_F32, shape, .initializer = { .kind = LS_INIT_GLOROT_UNIFORM, .seed = 9 }),
        };
        for (int n = 0; n < 3; n++)
            OK(ls_read(v[n], w[k][n], sizeof(w[k][n])));
    }
    assert_memory_equal(w[0], w[1], sizeof(w[0]));
    assert_memory_not_equal(w[0][0], w[0][1], sizeof(w[0][0])); /* each variable draws its own */
    for (int e = 0; e < 32 * 32; e++) {
        sum += w[0][0][e];
        squares += (w[0][0][e] - 3) * (w[0][0][e] - 3);
        assert_true(fabsf(w[0][2][e]) <= sqrtf(6.0F / 64));
    }
    assert_true(fabs(sum / 1024 - 3) < 0.06 && fabs(sqrt(squares / 1024) - 0.5) < 0.05);
    ls_tensor *f64 =
        ls_op_variable(g[0], NULL, LS_F64, LS_SHAPE(4), .initializer = { .kind = LS_INIT_CONSTANT, .a = 0.1 });
    ls_tensor *i32 =
        ls_op_variable(g[0], NULL, LS_I32, LS_SHAPE(3), .initializer = { .kind = LS_INIT_CONSTANT, .a = -7 });
    OK(ls_read(f64, d, sizeof(d)));
    OK(ls_read(i32, i, sizeof(i)));
    assert_true(d[3] == 0.1 && i[2] == -7);
    ls_graph_destroy(g[0]);
    ls_graph_destroy(g[1]);
    ls_context_close(ctx);
}

/* A dense layer's kernel is what a variable with the same initializer and seed is. */
static void layers_and_variables_draw_the_same(void **state)
{
    (void)state;
    ls_context *ctx = open_context(1);
    ls_model *model = NULL;
    float a[WIDTH * 4], b[WIDTH * 4];
    const ls_initializer he = { .kind = LS_INIT_HE_NORMAL, .seed = 77 };
    OK(ls_sequential(ctx, "m", &model, ls_input(WIDTH), ls_dense(4, .kernel_initializer = he)));
    ls_tensor *w = ls_op_variable(ls_model_graph(model), "w", LS_F32, LS_SHAPE(WIDTH, 4), .initializer = he);
    OK(ls_read(ls_model_variable(model, 0), a, sizeof(a)));
    OK(ls_read(w, b, sizeof(b)));
    assert_memory_equal(a, b, sizeof(a));
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void wrong_initializers_are_reported(void **state)
{
    (void)state;
    ls_context *ctx = open_context(1);
    ls_graph *g = NULL;
    float data[4] = { 0 };
    OK(ls_graph_create(ctx, &g));
    ls_tensor *wrong[] = {
        ls_op_variable(g, "i", LS_I64, LS_SHAPE(4), .initializer = { .kind = LS_INIT_NORMAL }),
        ls_op_variable(g, "b", LS_U8, LS_SHAPE(4), .initializer = { .kind = LS_INIT_CONSTANT, .a = 256 }),
        ls_op_variable(g, "d", LS_F32, LS_SHAPE(4), .data = data, .initializer = { .kind = LS_INIT_ONES }),
        ls_op_variable(g, "o", LS_F32, LS_SHAPE(4), .initializer = { .kind = LS_INIT_ORTHOGONAL }),
        ls_op_variable(g, "k", LS_F32, LS_SHAPE(4), .initializer = { .kind = (ls_initializer_kind)99 }),
    };
    FAILS(ls_read(wrong[0], data, 4), LS_ERR_DTYPE, "int64", "zeros, ones or a constant");
    FAILS(ls_read(wrong[1], data, 4), LS_ERR_INVALID, "256", "uint8");
    FAILS(ls_read(wrong[2], data, 4), LS_ERR_INVALID, "data and an initializer");
    FAILS(ls_read(wrong[3], data, 4), LS_ERR_SHAPE, "orthogonal");
    FAILS(ls_read(wrong[4], data, 4), LS_ERR_INVALID, "99");
    ls_graph_destroy(g);
    ls_context_close(ctx);
}

/* ---- Weights of a custom model ---- */

static ls_regularizer regularizer;

/* A dense layer written by hand, and a weight that is not trained. */
static void by_hand(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    (void)user;
    ls_tensor *kernel =
        ls_call_variable(call, "kernel", LS_SHAPE(WIDTH, 1), .initializer = { .seed = 4, .kind = LS_INIT_HE_NORMAL },
                         .regularizer = regularizer);
    ls_tensor *again = ls_call_variable(call, "kernel", LS_SHAPE(WIDTH, 1));
    ls_tensor *bias = ls_call_variable(call, "bias", LS_SHAPE(1), .initializer = { .kind = LS_INIT_ZEROS });
    ls_tensor *fixed =
        ls_call_variable(call, "fixed", LS_SHAPE(1), .initializer = { .kind = LS_INIT_ONES }, .frozen = true);
    assert_true(again == kernel);
    outputs[0] = ls_op_mul(ls_op_add(ls_op_matmul(inputs[0], kernel), bias), fixed);
}

static void compile(ls_model *model)
{
    OK(ls_compile(model, .optimizer = ls_adam(0.05), .loss = ls_mean_squared_error(),
                  .metrics = ls_metrics(ls_metric_of(LS_METRIC_MEAN_ABSOLUTE_ERROR))));
}

static double fit(ls_model *model, ls_dataset *data, double *metric)
{
    ls_history *history = NULL;
    double loss = NAN;
    OK(ls_fit(model, data, .epochs = 3, .batch_size = 8, .lanes = 4, .verbose = LS_VERBOSE_SILENT,
              .history = &history));
    OK(ls_history_value(history, "loss", 2, &loss));
    if (metric)
        OK(ls_history_value(history, ls_history_name(history, 1), 2, metric));
    ls_history_destroy(history);
    return loss;
}

static void a_model_has_weights_of_its_own(void **state)
{
    (void)state;
    char path[] = "/tmp/test_own_parts_XXXXXX", hex[3][65], *text = NULL;
    double loss[2];
    ls_dataset *data = NULL;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    for (int devices = 1; devices <= 2; devices++) {
        ls_context *ctx = open_context(devices);
        ls_model *own = NULL, *layers = NULL;
        data = make_data(false);
        const ls_layer input = ls_input(WIDTH);
        OK(ls_custom(ctx, "own", &input, 1, 1, by_hand, NULL, &own));
        assert_int_equal(ls_model_variable_count(own), 3);
        assert_string_equal(ls_model_variable_name(own, 0), "kernel");
        assert_false(ls_model_variable_is_trainable(own, 2));
        OK(ls_model_summary(own, &text));
        machine_has(text, "kernel (Weight)");
        machine_has(text, "Non-trainable params: 1 ");
        free(text);
        OK(ls_sequential(ctx, "layers", &layers, input,
                         ls_dense(1, .kernel_initializer = { .seed = 4, .kind = LS_INIT_HE_NORMAL })));
        compile(own);
        compile(layers);
        loss[0] = fit(own, data, NULL);
        loss[1] = fit(layers, data, NULL);
        assert_true(fabs(loss[0] - loss[1]) < 1e-6);
        OK(ls_model_weights_sha256(own, hex[devices - 1]));
        OK(ls_model_save_weights(own, path));
        OK(ls_model_initialize(own, 0));
        OK(ls_model_load_weights(own, path));
        OK(ls_model_weights_sha256(own, hex[2]));
        assert_string_equal(hex[2], hex[devices - 1]);
        ls_model_destroy(own);
        ls_model_destroy(layers);
        ls_dataset_destroy(data);
        ls_context_close(ctx);
    }
    assert_string_equal(hex[0], hex[1]);
    unlink(path);
}

static void weights_of_ones_own_are_regularised(void **state)
{
    (void)state;
    ls_context *ctx = open_context(1);
    ls_model *model = NULL;
    ls_trace trace = { .updates = NULL };
    const ls_layer input = ls_input(WIDTH);
    float w[WIDTH];
    double expected = 0, found = NAN;
    regularizer = (ls_regularizer){ .l2 = 0.5 };
    OK(ls_custom(ctx, "own", &input, 1, 1, by_hand, NULL, &model));
    regularizer = (ls_regularizer){ .l2 = 0 };
    ls_tensor *in = ls_op_input(ls_model_graph(model), NULL, LS_F32, LS_SHAPE(LS_BATCH, WIDTH)), *out;
    OK(ls_model_trace(model, &in, true, &out, &trace));
    OK(ls_read(ls_model_variable(model, 0), w, sizeof(w)));
    for (int i = 0; i < WIDTH; i++)
        expected += 0.5 * (double)w[i] * (double)w[i];
    OK(ls_read_scalar(trace.regularization, &found));
    assert_true(fabs(found - expected) < 1e-6);
    free(trace.updates);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void wrong(ls_call *call, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    int which = *(int *)user;
    ls_tensor *w = NULL;
    outputs[0] = ls_layer_call(call, ls_dense(1, .name = "last"), inputs[0]);
    if (which == 0)
        w = ls_call_variable(call, "last", LS_SHAPE(1));
    if (which == 1)
        w = ls_call_variable(call, "a/b", LS_SHAPE(1));
    if (which == 2)
        w = ls_call_variable(call, "w", LS_SHAPE(LS_BATCH, 1));
    if (which == 3)
        w = ls_op_reduce_sum(
            ls_op_add(ls_call_variable(call, "w", LS_SHAPE(2)), ls_call_variable(call, "w", LS_SHAPE(1))), LS_ALL_AXES,
            true);
    if (which == 4)
        w = ls_call_variable(call, ls_call_is_training(call) ? "w" : "v", LS_SHAPE(1));
    if (which == 5)
        w = ls_call_variable(call, NULL, LS_SHAPE(1));
    outputs[0] = ls_op_mul(outputs[0], w);
}

static void wrong_weights_are_reported(void **state)
{
    (void)state;
    static const char *const words[] = { "a layer (Dense) has this name",
                                         "\"a/b\" is not a valid name",
                                         "at least 1",
                                         "requested before",
                                         NULL,
                                         "name is NULL" };
    ls_context *ctx = open_context(1);
    const ls_layer input = ls_input(WIDTH);
    for (int which = 0; which < 6; which++) {
        ls_model *model = NULL;
        if (words[which]) {
            ls_status status = ls_custom(ctx, "m", &input, 1, 1, wrong, &which, &model);
            assert_true(status != LS_OK);
            machine_has(ls_last_error(), "weight \"");
            machine_has(ls_last_error(), words[which]);
        } else { /* weights of either pass are the model's */
            OK(ls_custom(ctx, "m", &input, 1, 1, wrong, &which, &model));
            assert_int_equal(ls_model_variable_count(model), 4);
            ls_model_destroy(model);
        }
    }
    ls_context_close(ctx);
}

/* ---- Losses and metrics ---- */

static ls_tensor *as_column(ls_tensor *targets)
{
    return ls_op_reshape(targets, LS_SHAPE(LS_BATCH, 1));
}

static ls_tensor *squared(ls_tensor *targets, ls_tensor *predictions, void *user)
{
    *(int *)user += 1;
    return ls_op_mean_squared_error(as_column(targets), predictions);
}

static ls_tensor *absolute(ls_tensor *targets, ls_tensor *predictions, void *user)
{
    assert_null(user);
    return ls_op_abs(ls_op_sub(as_column(targets), predictions)); /* [N,1]: averaged over the second axis */
}

static void own_losses_and_metrics_are_as_good(void **state)
{
    (void)state;
    ls_context *ctx = open_context(2);
    for (int weighted = 0; weighted < 2; weighted++) {
        char hex[2][65], name[16] = "gap";
        double loss[2], metric[2];
        int calls = 0;
        for (int own = 0; own < 2; own++) {
            ls_model *model = NULL;
            ls_dataset *data = make_data(weighted);
            OK(ls_sequential(ctx, "m", &model, ls_input(WIDTH), ls_dense(5, .activation = LS_TANH), ls_dense(1)));
            if (own)
                OK(ls_compile(model, .optimizer = ls_adam(0.05), .loss = ls_custom_loss(squared, &calls, "mine"),
                              .metrics = ls_metrics(ls_custom_metric(absolute, NULL, name))));
            else
                compile(model);
            memset(name, 0, sizeof(name)); /* was copied */
            loss[own] = fit(model, data, &metric[own]);
            OK(ls_model_state_sha256(model, hex[own]));
            if (own) {
                ls_results results;
                OK(ls_evaluate(model, data, &results));
                assert_string_equal(results.names[1], weighted ? "gap" : "gap");
            }
            strcpy(name, "gap");
            ls_dataset_destroy(data);
            ls_model_destroy(model);
        }
        assert_string_equal(hex[0], hex[1]);
        assert_true(loss[0] == loss[1] && metric[0] == metric[1] && isfinite(metric[0]));
        assert_int_equal(calls, 2); /* traced once for training, once for evaluation */
    }
    ls_context_close(ctx);
}

static ls_tensor *nothing(ls_tensor *targets, ls_tensor *predictions, void *user)
{
    (void)targets, (void)predictions, (void)user;
    return NULL;
}

static ls_tensor *whole(ls_tensor *targets, ls_tensor *predictions, void *user)
{
    return ls_op_reduce_mean(absolute(targets, predictions, user), LS_ALL_AXES, false);
}

static void wrong_functions_are_reported(void **state)
{
    (void)state;
    ls_context *ctx = open_context(1);
    ls_graph *g = NULL;
    double value;
    OK(ls_graph_create(ctx, &g));
    ls_tensor *t = ls_op_input(g, NULL, LS_F32, LS_SHAPE(LS_BATCH)),
              *p = ls_op_input(g, NULL, LS_F32, LS_SHAPE(LS_BATCH, 1));
    FAILS(ls_read_scalar(ls_loss_value(ls_custom_loss(nothing, NULL, "mine"), t, p, NULL), &value), LS_ERR_INVALID,
          "mine", "returned NULL");
    FAILS(ls_read_scalar(ls_loss_value(ls_custom_loss(whole), t, p, NULL), &value), LS_ERR_SHAPE,
          "one for each sample");
    FAILS(ls_read_scalar(ls_loss_value(ls_custom_loss(NULL), t, p, NULL), &value), LS_ERR_INVALID,
          "function of a custom loss is NULL");
    FAILS(ls_read_scalar(ls_loss_value(ls_mean_squared_error(.function = whole), t, p, NULL), &value), LS_ERR_INVALID,
          "ls_custom_loss");
    FAILS(ls_read_scalar(ls_metric_sums(ls_custom_metric(nothing), t, p, NULL), &value), LS_ERR_INVALID,
          "returned NULL");
    FAILS(ls_read_scalar(ls_metric_sums(ls_custom_metric(NULL), t, p, NULL), &value), LS_ERR_INVALID,
          "function of a custom metric is NULL");
    ls_graph_destroy(g);
    ls_context_close(ctx);
}

/* ---- Threshold and ignored classes ---- */

/* The numbers are those of keras.activations.threshold(x, 0.5, -2.0) and its gradient. */
static void a_threshold_replaces_what_is_not_above_it(void **state)
{
    (void)state;
    ls_context *ctx = open_context(1);
    ls_graph *g;
    const float from[] = { -1, 0.5F, 0.75F, 2 }, values[] = { -2, -2, 0.75F, 2 }, slopes[] = { 0, 0, 1, 1 };
    float found[2][4];
    OK(ls_graph_create(ctx, &g));
    ls_tensor *in = ls_op_constant(g, LS_F32, LS_SHAPE(4), from), *out = ls_threshold(in, 0.5, -2), *slope = NULL;
    OK(ls_gradients(ls_op_reduce_sum(out, LS_ALL_AXES, false), &in, 1, &slope));
    OK(ls_read(out, found[0], sizeof(values)));
    OK(ls_read(slope, found[1], sizeof(slopes)));
    assert_memory_equal(found[0], values, sizeof(values));
    assert_memory_equal(found[1], slopes, sizeof(slopes));
    ls_graph_destroy(g);
    ls_context_close(ctx);
}

/* Labels of the ignored class need not be classes, in any type; without the option they are an
 * error. Training is the same for all types of labels. */
static void ignored_labels_train(void **state)
{
    (void)state;
    static float reals[SAMPLES];
    static int32_t whole[SAMPLES];
    char hex[2][65];
    for (int i = 0; i < SAMPLES; i++)
        reals[i] = (float)(whole[i] = i % 4 - 1);
    for (int with = 0; with < 2; with++)
        for (int type = 0; type < 2; type++) {
            ls_context *ctx = open_context(1);
            ls_model *model = NULL;
            ls_shape shape = LS_SHAPE(SAMPLES);
            ls_array features = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, WIDTH), x);
            ls_array labels = type ? ls_array_of(LS_F32, shape, reals) : ls_array_of(LS_I32, shape, whole);
            ls_dataset *data = ls_from_tensor_slices(features, labels);
            ls_loss loss = ls_sparse_categorical_crossentropy(.ignore_class = with ? -1 : 0);
            OK(ls_sequential(ctx, "m", &model, ls_input(WIDTH), ls_dense(3, .activation = LS_SOFTMAX)));
            OK(ls_compile(model, .optimizer = ls_sgd(), .loss = loss));
            ls_status status = ls_fit(model, data, .batch_size = 16, .verbose = LS_VERBOSE_SILENT);
            assert_int_equal(status, with ? LS_OK : LS_ERR_DATA);
            if (!with)
                machine_has(ls_last_error(), "label -1 of row");
            OK(ls_model_weights_sha256(model, hex[type]));
            ls_dataset_destroy(data);
            ls_model_destroy(model);
            ls_context_close(ctx);
        }
    assert_string_equal(hex[0], hex[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_begin_as_asked),
        cmocka_unit_test(layers_and_variables_draw_the_same),
        cmocka_unit_test(wrong_initializers_are_reported),
        cmocka_unit_test(a_model_has_weights_of_its_own),
        cmocka_unit_test(weights_of_ones_own_are_regularised),
        cmocka_unit_test(wrong_weights_are_reported),
        cmocka_unit_test(own_losses_and_metrics_are_as_good),
        cmocka_unit_test(wrong_functions_are_reported),
        cmocka_unit_test(a_threshold_replaces_what_is_not_above_it),
        cmocka_unit_test(ignored_labels_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
