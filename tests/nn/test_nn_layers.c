/* Layers one by one: output shapes and parameter counts as Keras has them, values of layers that
 * are a formula, initial values, and the errors for wrong specs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "graph_cases.h"
#include "lockstep.h"
#include "nn/keras.h"
#include "nn/layer.h"

#define INIT(...) .kernel_initializer = { .kind = __VA_ARGS__ }

static ls_context *ctx;

static int open_context(void **state)
{
    (void)state;
    return ls_context_open(NULL, &ctx) != LS_OK;
}

static int close_context(void **state)
{
    (void)state;
    ls_context_close(ctx);
    return 0;
}

static ls_model *model_of(ls_layer input, ls_layer layer)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "one", &model, input, layer));
    return model;
}

/* The model's output for one batch; free() it. */
static float *run_model(ls_model *model, const void *x, int64_t batch, bool training, size_t *count)
{
    ls_shape shape = ls_model_input_shape(model, 0);
    ls_dtype dtype = ls_model_input_dtype(model, 0);
    ls_tensor *input = ls_op_input(ls_model_graph(model), NULL, dtype, shape), *output;
    ls_trace trace;
    OK(ls_model_trace(model, &input, training, &output, &trace));
    free(trace.updates);
    shape.dims[0] = batch;
    OK(ls_eval(ls_model_graph(model), &(ls_feed){ input, ls_array_of(dtype, shape, x) }, 1, &output, 1));
    ls_array value;
    OK(ls_value(output, &value));
    *count = 1;
    for (int i = 0; i < value.shape.rank; i++)
        *count *= (size_t)value.shape.dims[i];
    float *copy = malloc((*count + 1) * sizeof(float));
    assert_non_null(copy);
    assert_int_equal(value.dtype, LS_F32);
    memcpy(copy, value.data, *count * sizeof(float));
    return copy;
}

/* ---- Shapes and parameters: every row was read from Keras 3.15 ---- */

typedef struct shape_row {
    const char *what;
    ls_layer input, layer;
    const char *shape;
    int64_t parameters;
} shape_row;

static void shapes_and_parameters_are_keras_s(void **state)
{
    (void)state;
    const shape_row shape_rows[] = {
        { "dense", ls_input(784), ls_dense(10), "(batch, 10)", 7850 },
        { "dense on rows", ls_input(5, 4), ls_dense(3, .no_bias = true), "(batch, 5, 3)", 12 },
        { "conv2d", ls_input(28, 28, 1), ls_conv2d(16, 3), "(batch, 26, 26, 16)", 160 },
        { "conv2d, not square", ls_input(9, 10, 4),
          ls_conv2d(8, .kernel_size = { 3, 5 }, .strides = { 2 }, .padding = LS_SAME), "(batch, 5, 5, 8)", 488 },
        { "conv2d, stride by place", ls_input(9, 9, 4), ls_conv2d(8, 3, 2), "(batch, 4, 4, 8)", 296 },
        { "conv2d, dilated", ls_input(9, 9, 4), ls_conv2d(8, 3, .dilation_rate = { 2, 2 }), "(batch, 5, 5, 8)", 296 },
        { "conv2d, groups", ls_input(8, 8, 4), ls_conv2d(8, 3, .groups = 2), "(batch, 6, 6, 8)", 152 },
        { "conv2d, explicit padding", ls_input(7, 7, 3),
          ls_conv2d(4, 3, 2, .padding = LS_EXPLICIT, .zero_padding = { 1, 1, 1, 1 }, .no_bias = true),
          "(batch, 4, 4, 4)", 108 },
        { "depthwise_conv2d", ls_input(8, 8, 4), ls_depthwise_conv2d(3, 2, .depth_multiplier = 2, .padding = LS_SAME),
          "(batch, 4, 4, 8)", 80 },
        { "max_pool2d", ls_input(5, 5, 3), ls_max_pool2d(), "(batch, 2, 2, 3)", 0 },
        { "max_pool2d, same", ls_input(5, 5, 3), ls_max_pool2d(2, .padding = LS_SAME), "(batch, 3, 3, 3)", 0 },
        { "max_pool2d, strides", ls_input(7, 7, 3), ls_max_pool2d(3, 2), "(batch, 3, 3, 3)", 0 },
        { "average_pool2d", ls_input(7, 8, 3), ls_average_pool2d(.pool_size = { 2, 3 }), "(batch, 3, 2, 3)", 0 },
        { "global_max_pool2d", ls_input(7, 8, 3), ls_global_max_pool2d(), "(batch, 3)", 0 },
        { "global_average_pool2d", ls_input(7, 8, 3), ls_global_average_pool2d(.keepdims = true), "(batch, 1, 1, 3)",
          0 },
        { "flatten", ls_input(4, 6, 2), ls_flatten(), "(batch, 48)", 0 },
        { "flatten of numbers", ls_input(), ls_flatten(), "(batch, 1)", 0 },
        { "reshape", ls_input(24), ls_reshape(4, -1), "(batch, 4, 6)", 0 },
        { "dropout", ls_input(5), ls_dropout(0.3), "(batch, 5)", 0 },
        { "batch_normalization", ls_input(8, 8, 4), ls_batch_normalization(), "(batch, 8, 8, 4)", 16 },
        { "batch_normalization of rows", ls_input(5), ls_batch_normalization(.no_scale = true), "(batch, 5)", 15 },
        { "batch_normalization, axis", ls_input(8, 8, 4), ls_batch_normalization(.axis = 3, .no_center = true),
          "(batch, 8, 8, 4)", 12 },
        { "layer_normalization", ls_input(3, 5), ls_layer_normalization(), "(batch, 3, 5)", 10 },
        { "layer_normalization, two axes", ls_input(3, 5), ls_layer_normalization(.last_axes = 2), "(batch, 3, 5)",
          30 },
        { "activation", ls_input(3), ls_activation_layer(LS_SOFTMAX), "(batch, 3)", 0 },
        { "relu", ls_input(3), ls_relu(), "(batch, 3)", 0 },
        { "leaky_relu", ls_input(3), ls_leaky_relu(0.1), "(batch, 3)", 0 },
        { "softmax", ls_input(3, 4), ls_softmax(.axis = 1), "(batch, 3, 4)", 0 },
        { "zero_padding2d", ls_input(4, 4, 2), ls_zero_padding2d(), "(batch, 6, 6, 2)", 0 },
        { "zero_padding2d, sides", ls_input(4, 4, 2), ls_zero_padding2d(.zero_padding = { 1, 2, 3, 4 }),
          "(batch, 7, 11, 2)", 0 },
        { "embedding", ls_input(5, .dtype = LS_I32), ls_embedding(10, 3), "(batch, 5, 3)", 30 },
        { "embedding of numbers", ls_input(.dtype = LS_I64), ls_embedding(10, 3), "(batch, 3)", 30 },
        { "rescaling", ls_input(4, .dtype = LS_U8), ls_rescaling(1 / 255.0, .offset = -1), "(batch, 4)", 0 },
        { "add of one", ls_input(4), ls_add(), "(batch, 4)", 0 },
        { "multiply of one", ls_input(4), ls_multiply(), "(batch, 4)", 0 },
        { "concatenate of one", ls_input(4), ls_concatenate(), "(batch, 4)", 0 },
    };
    bool seen[LS_LAYER_KINDS] = { false };
    for (size_t i = 0; i < LENGTH(shape_rows); i++) {
        const shape_row *row = &shape_rows[i];
        ls_model *model = model_of(row->input, row->layer);
        ls_shape shape = ls_model_output_shape(model, 0);
        char text[LS_SHAPE_TEXT];
        if (strcmp(ls_shape_format(&shape, text), row->shape) != 0 ||
            ls_model_parameter_count(model) != row->parameters)
            fail_msg("%s: %s and %lld parameters, expected %s and %lld", row->what, text,
                     (long long)ls_model_parameter_count(model), row->shape, (long long)row->parameters);
        assert_int_equal(ls_graph_node_count(ls_model_graph(model)), ls_model_variable_count(model));
        seen[row->layer.kind] = true;
        ls_model_destroy(model);
    }
    for (int kind = LS_LAYER_INPUT + 1; kind < LS_LAYER_KINDS; kind++)
        if (!seen[kind])
            fail_msg("layer kind %d has no row", kind);
}

/* ---- Values ---- */

#define SIX                                                                                                            \
    {                                                                                                                  \
        -4, -1, -0.5f, 0.5f, 2, 7                                                                                      \
    }
typedef struct value_row {
    const char *what;
    ls_layer layer;
    float x[6], y[6];
} value_row;

static void values_are_the_formulas(void **state)
{
    (void)state;
    const value_row value_rows[] = {
        { "relu", ls_relu(), SIX, { 0, 0, 0, 0.5f, 2, 7 } },
        { "relu to 6", ls_relu(.max_value = 6), SIX, { 0, 0, 0, 0.5f, 2, 6 } },
        { "relu to 0", ls_relu(.max_value = LS_ZERO), SIX, { 0, 0, 0, 0, 0, 0 } },
        { "relu with a slope", ls_relu(.negative_slope = 0.5), SIX, { -2, -0.5f, -0.25f, 0.5f, 2, 7 } },
        { "relu from 1", ls_relu(.threshold = 1), SIX, { 0, 0, 0, 0, 2, 7 } },
        { "relu with all",
          ls_relu(.threshold = 1, .max_value = 6, .negative_slope = 0.5),
          SIX,
          { -2.5f, -1, -0.75f, -0.25f, 2, 6 } },
        { "leaky relu", ls_leaky_relu(0), SIX, { -1.2f, -0.3f, -0.15f, 0.5f, 2, 7 } },
        { "leaky relu of 0", ls_leaky_relu(LS_ZERO), SIX, { 0, 0, 0, 0.5f, 2, 7 } },
        { "activation leaky relu", ls_activation_layer(LS_LEAKY_RELU), SIX, { -0.8f, -0.2f, -0.1f, 0.5f, 2, 7 } },
        { "activation elu",
          ls_activation_layer(LS_ELU),
          SIX,
          { -0.98168436f, -0.63212056f, -0.39346934f, 0.5f, 2, 7 } },
        { "activation silu",
          ls_activation_layer(LS_SILU),
          SIX,
          { -0.07194484f, -0.26894142f, -0.18877033f, 0.31122967f, 1.7615942f, 6.9936226f } },
        { "activation exponential",
          ls_activation_layer(LS_EXPONENTIAL),
          SIX,
          { 0.018315639f, 0.36787945f, 0.60653067f, 1.6487213f, 7.389056f, 1096.6332f } },
        { "activation softplus",
          ls_activation_layer(LS_SOFTPLUS),
          SIX,
          { 0.01814993f, 0.3132617f, 0.474077f, 0.974077f, 2.126928f, 7.0009117f } },
        { "activation gelu",
          ls_activation_layer(LS_GELU),
          SIX,
          { -0.00012668f, -0.15865526f, -0.15426877f, 0.34573123f, 1.9544997f, 7 } },
        { "activation gelu, approximate",
          ls_activation_layer(LS_GELU_TANH),
          SIX,
          { -0.0000702459f, -0.158808f, -0.154286f, 0.345714f, 1.9545977f, 7 } },
        { "activation log softmax",
          ls_activation_layer(LS_LOG_SOFTMAX),
          SIX,
          { -11.0091051f, -8.0091051f, -7.5091051f, -6.5091051f, -5.0091051f, -0.0091051f } },
        { "rescaling", ls_rescaling(0.5, .offset = 1), SIX, { -1, 0.5f, 0.75f, 1.25f, 2, 4.5f } },
        { "dropout in inference", ls_dropout(0.5), SIX, SIX },
        { "batch norm as made", ls_batch_normalization(.epsilon = LS_ZERO), SIX, SIX },
        { "layer norm",
          ls_layer_normalization(.epsilon = LS_ZERO),
          SIX,
          { -1.3879085f, -0.4956816f, -0.3469771f, -0.0495682f, 0.3965453f, 1.8835901f } },
    };
    for (size_t i = 0; i < LENGTH(value_rows); i++) {
        const value_row *row = &value_rows[i];
        ls_model *model = model_of(ls_input(6), row->layer);
        size_t count;
        float *y = run_model(model, row->x, 1, false, &count);
        assert_int_equal(count, 6);
        for (int j = 0; j < 6; j++)
            if (!test_is_near(y[j], row->y[j], 2e-6))
                fail_msg("%s of %g is %.9g, expected %.9g", row->what, row->x[j], y[j], row->y[j]);
        free(y);
        ls_model_destroy(model);
    }
}

/* Zeros before a convolution are folded into it; the numbers are those of the two layers. */
static void zeros_before_a_convolution_are_its_padding(void **state)
{
    (void)state;
    double numbers[2 * 5 * 5 * 3];
    float x[2 * 5 * 5 * 3];
    test_random(numbers, LENGTH(x), 3, -1, 1);
    for (size_t i = 0; i < LENGTH(x); i++)
        x[i] = (float)numbers[i];
    ls_model *folded, *direct;
    OK(ls_sequential(ctx, "a", &folded, ls_input(5, 5, 3), ls_zero_padding2d(.zero_padding = { 0, 1, 2, 1 }),
                     ls_conv2d(4, 3, 2)));
    OK(ls_sequential(ctx, "b", &direct, ls_input(5, 5, 3),
                     ls_conv2d(4, 3, 2, .padding = LS_EXPLICIT, .zero_padding = { 0, 1, 2, 1 }, .name = "conv2d")));
    for (size_t i = 0; i < 2; i++) {
        float values[3 * 3 * 3 * 4];
        size_t bytes = i ? 4 * sizeof(float) : sizeof(values);
        OK(ls_variable_get(ls_model_variable(folded, i), values, bytes));
        OK(ls_variable_set(ls_model_variable(direct, i), values, bytes));
    }
    size_t count, other;
    float *a = run_model(folded, x, 2, false, &count), *b = run_model(direct, x, 2, false, &other);
    assert_int_equal(count, other);
    for (size_t i = 0; i < count; i++)
        assert_true(test_is_near(a[i], b[i], 1e-6));
    free(a);
    free(b);
    ls_model_destroy(folded);
    ls_model_destroy(direct);
}

/* Dropout in training: the part that is kept is scaled, about half is gone, and tracing again gives
 * the same masks. */
static void dropout_in_training_drops(void **state)
{
    (void)state;
    float x[1000];
    for (size_t i = 0; i < LENGTH(x); i++)
        x[i] = 1;
    ls_model *model;
    OK(ls_sequential(ctx, "d", &model, ls_input(10), ls_dropout(0.5), ls_dropout(0.5)));
    ls_graph *graph = ls_model_graph(model);
    ls_tensor *input = ls_op_input(graph, NULL, LS_F32, LS_SHAPE(LS_BATCH, 10)), *output[2];
    for (int i = 0; i < 2; i++) {
        ls_trace trace;
        OK(ls_model_trace(model, &input, true, &output[i], &trace));
        assert_null(trace.updates);
    }
    OK(ls_eval(graph, &(ls_feed){ input, ls_array_of(LS_F32, LS_SHAPE(100, 10), x) }, 1, output, 2));
    float y[2][1000];
    OK(ls_read(output[0], y[0], sizeof(y[0])));
    OK(ls_read(output[1], y[1], sizeof(y[1])));
    assert_memory_equal(y[0], y[1], sizeof(y[0]));
    int kept = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(y[0][i] == 0 || y[0][i] == 4);
        kept += y[0][i] != 0;
    }
    assert_in_range(kept, 190, 310); /* a quarter: the two layers have masks of their own */
    ls_model_destroy(model);
}

/* ---- Initial values ---- */

typedef struct moments {
    double mean, deviation, low, high;
} moments;

static moments measure(const float *x, size_t n)
{
    moments m = { .low = INFINITY, .high = -INFINITY };
    for (size_t i = 0; i < n; i++) {
        m.mean += x[i] / (double)n;
        m.low = fmin(m.low, x[i]);
        m.high = fmax(m.high, x[i]);
    }
    for (size_t i = 0; i < n; i++)
        m.deviation += (x[i] - m.mean) * (x[i] - m.mean) / (double)n;
    m.deviation = sqrt(m.deviation);
    return m;
}

/* A 3x3 kernel from 20 channels to 50: fan in 180, out 450. */
static void initial_values_have_their_distribution(void **state)
{
    (void)state;
    const double cut = 0.87962566103423978; /* a normal's deviation, cut at two */
    const struct {
        const char *what;
        ls_layer layer;
        double mean, deviation, most; /* most: beyond it there is nothing, and near it there is something */
    } rows[] = {
        { "glorot uniform", ls_conv2d(50, 3), 0, sqrt(2 / 630.0), sqrt(6 / 630.0) },
        { "glorot normal", ls_conv2d(50, 3, INIT(LS_INIT_GLOROT_NORMAL)), 0, sqrt(2 / 630.0),
          2 * sqrt(2 / 630.0) / cut },
        { "he uniform", ls_conv2d(50, 3, INIT(LS_INIT_HE_UNIFORM)), 0, sqrt(2 / 180.0), sqrt(6 / 180.0) },
        { "he normal", ls_conv2d(50, 3, INIT(LS_INIT_HE_NORMAL)), 0, sqrt(2 / 180.0), 2 * sqrt(2 / 180.0) / cut },
        { "lecun uniform", ls_conv2d(50, 3, INIT(LS_INIT_LECUN_UNIFORM)), 0, sqrt(1 / 180.0), sqrt(3 / 180.0) },
        { "lecun normal", ls_conv2d(50, 3, INIT(LS_INIT_LECUN_NORMAL)), 0, sqrt(1 / 180.0), 2 * sqrt(1 / 180.0) / cut },
        { "fan out, uniform", ls_conv2d(50, 3, INIT(LS_INIT_VARIANCE_UNIFORM, .a = 2, .b = LS_FAN_OUT)), 0,
          sqrt(2 / 450.0), sqrt(6 / 450.0) },
        { "uniform", ls_conv2d(50, 3, INIT(LS_INIT_UNIFORM)), 0, 0.1 / sqrt(12), 0.05 },
        { "normal", ls_conv2d(50, 3, INIT(LS_INIT_NORMAL, .a = 1, .b = 0.25)), 1, 0.25, 0 },
        { "truncated normal", ls_conv2d(50, 3, INIT(LS_INIT_TRUNCATED_NORMAL, .b = 0.25)), 0, 0.25 * cut, 0.5 },
        { "constant", ls_conv2d(50, 3, INIT(LS_INIT_CONSTANT, .a = 0.75)), 0.75, 0, 0 },
        { "ones", ls_conv2d(50, 3, INIT(LS_INIT_ONES)), 1, 0, 0 },
        { "zeros", ls_conv2d(50, 3, INIT(LS_INIT_ZEROS)), 0, 0, 0 },
    };
    enum { N = 9000 };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        ls_model *model = model_of(ls_input(4, 4, 20), rows[i].layer);
        static float w[N];
        OK(ls_variable_get(ls_model_variable(model, 0), w, sizeof(w)));
        moments m = measure(w, N);
        if (fabs(m.mean - rows[i].mean) > 5 * rows[i].deviation / sqrt(N) + 1e-9 ||
            fabs(m.deviation - rows[i].deviation) > 0.03 * rows[i].deviation + 1e-9)
            fail_msg("%s: mean %g, deviation %g, expected %g and %g", rows[i].what, m.mean, m.deviation, rows[i].mean,
                     rows[i].deviation);
        if (rows[i].most > 0 &&
            (m.high > rows[i].most * 1.000001 || -m.low > rows[i].most * 1.000001 || m.high < 0.98 * rows[i].most))
            fail_msg("%s: from %g to %g, the limit is %g", rows[i].what, m.low, m.high, rows[i].most);
        ls_model_destroy(model);
    }
}

static void orthogonal_kernels_are(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        enum { A = 12, B = 20 };
        int rows = wide ? A : B, columns = wide ? B : A;
        ls_model *model =
            model_of(ls_input(rows), ls_dense(columns, .no_bias = true, INIT(LS_INIT_ORTHOGONAL, .a = 2)));
        float w[A * B];
        OK(ls_variable_get(ls_model_variable(model, 0), w, sizeof(w)));
        for (int i = 0; i < A; i++)
            for (int j = 0; j < A; j++) {
                double sum = 0;
                for (int k = 0; k < B; k++)
                    sum += wide ? (double)w[i * B + k] * w[j * B + k] : (double)w[k * A + i] * w[k * A + j];
                assert_true(fabs(sum - (i == j ? 4 : 0)) < 1e-5);
            }
        ls_model_destroy(model);
    }
}

static void a_seed_of_its_own_is_all_that_counts(void **state)
{
    (void)state;
    ls_model *model;
    float w[4][12], b[4];
    ls_layer seeded = ls_dense(3, INIT(LS_INIT_HE_NORMAL, .seed = 7)), plain = ls_dense(3);
    OK(ls_sequential(ctx, "s", &model, ls_input(4), seeded, ls_dense(4), seeded, ls_dense(4), plain));
    OK(ls_variable_get(ls_model_variable(model, 0), w[0], sizeof(w[0])));
    OK(ls_variable_get(ls_model_variable(model, 4), w[1], sizeof(w[1])));
    OK(ls_variable_get(ls_model_variable(model, 8), w[2], sizeof(w[2])));
    assert_memory_equal(w[0], w[1], sizeof(w[0]));
    assert_memory_not_equal(w[0], w[2], sizeof(w[0]));
    OK(ls_model_initialize(model, 99));
    OK(ls_variable_get(ls_model_variable(model, 0), w[1], sizeof(w[1])));
    OK(ls_variable_get(ls_model_variable(model, 8), w[3], sizeof(w[3])));
    assert_memory_equal(w[0], w[1], sizeof(w[0]));
    assert_memory_not_equal(w[2], w[3], sizeof(w[2]));
    OK(ls_variable_get(ls_model_variable(model, 3), b, sizeof(b)));
    for (int i = 0; i < 4; i++)
        assert_true(b[i] == 0);
    ls_model_destroy(model);
}

/* ---- Errors ---- */

typedef struct error_row {
    ls_layer input, layer;
    ls_status status;
    const char *words; /* separated by |, all of them in the message */
} error_row;

static void the_error_of_a_wrong_spec_has_layer_option_and_value(void **state)
{
    (void)state;
    const error_row error_rows[] = {
        { ls_input(4), ls_dense(0), LS_ERR_INVALID, "layer \"dense\" (Dense)|units is 0" },
        { ls_input(4), ls_dense(-3, .name = "head"), LS_ERR_INVALID, "layer \"head\" (Dense)|units is -3" },
        { ls_input(4), ls_dense(3, 4), LS_ERR_INVALID, "ls_dense takes 1 number before|4" },
        { ls_input(4), ls_dense(3, .activation = (ls_activation)99), LS_ERR_INVALID, "Dense|activation number 99" },
        { ls_input(4), ls_dense(3, .activity_regularizer = { .l2 = 1 }), LS_ERR_UNSUPPORTED,
          "Dense|activity_regularizer" },
        { ls_input(4), ls_dense(3, .kernel_regularizer = { .l2 = -1 }), LS_ERR_INVALID, "Dense|kernel_regularizer|-1" },
        { ls_input(4), ls_flatten(.shape = { 1, { 4 } }), LS_ERR_INVALID, "Flatten|no option shape" },
        { ls_input(4), ls_softmax(.threshold = 1), LS_ERR_INVALID, "Softmax|no option threshold" },
        { ls_input(8, 8, 4), ls_max_pool2d(2, .keepdims = true), LS_ERR_INVALID, "MaxPooling2D|no option keepdims" },
        { ls_input(8, 8, 4), ls_global_max_pool2d(.pool_size = { 2, 2 }), LS_ERR_INVALID, "no option pool_size" },
        { ls_input(4), ls_dense(3, INIT((ls_initializer_kind)77, .a = 0)), LS_ERR_INVALID, "kernel_initializer|77" },
        { ls_input(4), ls_dense(3, INIT(LS_INIT_UNIFORM, .a = 2, .b = 1)), LS_ERR_INVALID,
          "kernel_initializer|2 to 1" },
        { ls_input(4), ls_dense(3, INIT(LS_INIT_NORMAL, .b = NAN)), LS_ERR_INVALID, "kernel_initializer|nan" },
        { ls_input(4), ls_dense(3, .bias_initializer = { .kind = LS_INIT_ORTHOGONAL }), LS_ERR_SHAPE, "orthogonal" },
        { ls_input(4), ls_dense(3, .name = "a/b"), LS_ERR_INVALID, "\"a/b\" is not a valid name" },
        { ls_input(4), ls_dense(3, .name = ""), LS_ERR_INVALID, "is not a valid name" },
        { ls_input(), ls_dense(3), LS_ERR_SHAPE, "dense|(batch,)|at least 2 axes" },
        { ls_input(28, 28), ls_conv2d(16, 3), LS_ERR_SHAPE, "layer \"conv2d\" (Conv2D) on (batch, 28, 28)|4 axes" },
        { ls_input(28, 28, 1), ls_conv2d(16), LS_ERR_INVALID, "Conv2D|kernel_size is (0, 0)" },
        { ls_input(28, 28, 1), ls_conv2d(16, 3, .kernel_size = { 3, 3 }), LS_ERR_INVALID,
          "Conv2D|kernel_size is given twice" },
        { ls_input(2, 2, 1), ls_conv2d(16, 3), LS_ERR_SHAPE, "Conv2D|(batch, 2, 2, 1)|3" },
        { ls_input(8, 8, 3), ls_conv2d(4, 3, .groups = 2), LS_ERR_SHAPE, "Conv2D|3 channels|groups 2" },
        { ls_input(8, 8, 4), ls_conv2d(5, 3, .groups = 2), LS_ERR_INVALID, "Conv2D|filters 5|groups 2" },
        { ls_input(8, 8, 4), ls_conv2d(5, 3, 2, .dilation_rate = { 2, 2 }), LS_ERR_INVALID,
          "strides (2, 2)|dilation_rate (2, 2)" },
        { ls_input(8, 8, 4), ls_conv2d(5, 3, .padding = (ls_padding)9), LS_ERR_INVALID, "padding is 9" },
        { ls_input(8, 8, 4), ls_conv2d(5, 3, .zero_padding = { 1, 1, 1, 1 }), LS_ERR_INVALID,
          "zero_padding|LS_EXPLICIT" },
        { ls_input(8, 8, 4), ls_depthwise_conv2d(3, .depth_multiplier = -1), LS_ERR_INVALID, "depth_multiplier is -1" },
        { ls_input(8, 8, 4), ls_depthwise_conv2d(3, .groups = 2), LS_ERR_INVALID, "DepthwiseConv2D|no option groups" },
        { ls_input(8), ls_max_pool2d(2), LS_ERR_SHAPE, "MaxPooling2D|(batch, 8)|4 axes" },
        { ls_input(8, 8, 4), ls_average_pool2d(9), LS_ERR_SHAPE, "AveragePooling2D|(batch, 8, 8, 4)|9" },
        { ls_input(8, 8), ls_global_max_pool2d(), LS_ERR_SHAPE, "GlobalMaxPooling2D|(batch, 8, 8)" },
        { ls_input(8), ls_global_average_pool2d(), LS_ERR_SHAPE, "GlobalAveragePooling2D|(batch, 8)" },
        { ls_input(24), ls_reshape(5, 5), LS_ERR_SHAPE, "Reshape|(batch, 24)|5" },
        { ls_input(24), ls_reshape(-1, -1), LS_ERR_INVALID, "Reshape|2 sizes are -1" },
        { ls_input(24), ls_reshape(4, .shape = { 1, { 24 } }), LS_ERR_INVALID, "Reshape|given twice" },
        { ls_input(24), ls_dropout(1), LS_ERR_INVALID, "Dropout|rate is 1" },
        { ls_input(24), ls_dropout(-0.5), LS_ERR_INVALID, "Dropout|rate is -0.5" },
        { ls_input(24), ls_dropout(NAN), LS_ERR_INVALID, "Dropout|rate is" },
        { ls_input(8, 8, 4), ls_batch_normalization(.axis = 1), LS_ERR_UNSUPPORTED, "BatchNormalization|axis 1" },
        { ls_input(8, 8, 4), ls_batch_normalization(.momentum = 1.5), LS_ERR_INVALID, "momentum is 1.5" },
        { ls_input(8, 8, 4), ls_batch_normalization(.epsilon = -1), LS_ERR_INVALID, "epsilon is -1" },
        { ls_input(8), ls_layer_normalization(.last_axes = 2), LS_ERR_SHAPE, "LayerNormalization|last_axes is 2" },
        { ls_input(8), ls_layer_normalization(.momentum = 0.5), LS_ERR_INVALID,
          "LayerNormalization|no option momentum" },
        { ls_input(8), ls_relu(.max_value = -2), LS_ERR_INVALID, "ReLU|max_value is -2" },
        { ls_input(8), ls_leaky_relu(-2), LS_ERR_INVALID, "LeakyReLU|negative_slope is -2" },
        { ls_input(8), ls_softmax(.axis = 2), LS_ERR_SHAPE, "Softmax|axis 2 of 2" },
        { ls_input(8), ls_concatenate(.axis = -2), LS_ERR_UNSUPPORTED, "Concatenate|axis -2 is the batch axis" },
        { ls_input(8, 8, 4), ls_zero_padding2d(-1), LS_ERR_INVALID, "ZeroPadding2D|padding is -1" },
        { ls_input(8, 8), ls_zero_padding2d(1), LS_ERR_SHAPE, "ZeroPadding2D|(batch, 8, 8)" },
        { ls_input(8), ls_embedding(10), LS_ERR_INVALID, "Embedding|output_dim is 0" },
        { ls_input(8), ls_rescaling(INFINITY), LS_ERR_INVALID, "Rescaling|inf" },
        { ls_input(8), ls_rescaling(1 / 255), LS_ERR_INVALID, "Rescaling|scale is 0|1.0/255" },
        { ls_input(8), ls_input(8), LS_ERR_INVALID, "InputLayer|not called" },
        { ls_input(8), { .kind = LS_LAYER_NONE }, LS_ERR_INVALID, "no layer of kind 0" },
        { ls_input(8), { .kind = LS_LAYER_KINDS }, LS_ERR_INVALID, "no layer of kind" },
        { ls_input(-2), ls_dense(1), LS_ERR_INVALID, "InputLayer|-2" },
        { ls_input(8, .dtype = (ls_dtype)44), ls_dense(1), LS_ERR_DTYPE, "InputLayer|44" },
    };
    for (size_t i = 0; i < LENGTH(error_rows); i++) {
        const error_row *row = &error_rows[i];
        ls_model *model = NULL;
        ls_status status = ls_sequential(ctx, "wrong", &model, row->input, row->layer);
        if (status != row->status)
            fail_msg("row %zu (%s): %s: %s", i, row->words, ls_status_name(status), ls_last_error());
        assert_null(model);
        char words[256];
        snprintf(words, sizeof(words), "%s", row->words);
        for (char *word = strtok(words, "|"); word; word = strtok(NULL, "|"))
            if (!strstr(ls_last_error(), word))
                fail_msg("row %zu: \"%s\" is not in: %s", i, word, ls_last_error());
    }
}

/* A kind without a row would be named NULL in messages; without a class, no file of Keras's could
 * have it. */
static void every_kind_has_its_rows(void **state)
{
    (void)state;
    for (int kind = LS_LAYER_NONE + 1; kind < LS_LAYER_KINDS; kind++) {
        const ls_layer_info *info = ls_layer_info_of((ls_layer_kind)kind);
        if (info->kind != (ls_layer_kind)kind || !info->class_name || !info->base || !info->function)
            fail_msg("layer kind %d has no row in src/nn/layer_*.c", kind);
        json_t *json = json_pack("{s:s, s:{}}", "class_name", info->class_name, "config");
        assert_non_null(json);
        ls_json_at root = ls_json_root(json, "test");
        ls_layer layer = { .kind = (ls_layer_kind)kind };
        if (ls_keras_layer(&root, &layer) != LS_OK && strstr(ls_last_error(), "layers of class"))
            fail_msg("%s", ls_last_error());
        assert_int_equal(layer.kind, kind);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_and_parameters_are_keras_s),
        cmocka_unit_test(every_kind_has_its_rows),
        cmocka_unit_test(values_are_the_formulas),
        cmocka_unit_test(zeros_before_a_convolution_are_its_padding),
        cmocka_unit_test(dropout_in_training_drops),
        cmocka_unit_test(initial_values_have_their_distribution),
        cmocka_unit_test(orthogonal_kernels_are),
        cmocka_unit_test(a_seed_of_its_own_is_all_that_counts),
        cmocka_unit_test(the_error_of_a_wrong_spec_has_layer_option_and_value),
    };
    return cmocka_run_group_tests_name("layers", tests, open_context, close_context);
}
