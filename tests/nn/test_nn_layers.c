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
        { "embedding with a mask", ls_input(5, .dtype = LS_I32), ls_embedding(10, 3, .mask_zero = true),
          "(batch, 5, 3)", 30 },
        { "simple_rnn", ls_input(5, 3), ls_simple_rnn(4), "(batch, 4)", 32 },
        { "lstm", ls_input(5, 3), ls_lstm(4), "(batch, 4)", 128 },
        { "lstm, sequences", ls_input(5, 3), ls_lstm(4, .return_sequences = true, .no_bias = true), "(batch, 5, 4)",
          112 },
        { "gru", ls_input(5, 3), ls_gru(4), "(batch, 4)", 108 },
        { "gru, reset before", ls_input(5, 3), ls_gru(4, .reset_before = true), "(batch, 4)", 96 },
        { "masking", ls_input(5, 3), ls_masking(0.5), "(batch, 5, 3)", 0 },
        { "bidirectional", ls_input(5, 3), ls_bidirectional(ls_lstm(4, .return_sequences = true)), "(batch, 5, 8)",
          256 },
        { "bidirectional, sum", ls_input(5, 3), ls_bidirectional(ls_gru(4), .merge_mode = LS_MERGE_SUM), "(batch, 4)",
          216 },
        { "time_distributed", ls_input(5, 3), ls_time_distributed(ls_dense(7)), "(batch, 5, 7)", 28 },
        { "time_distributed, images", ls_input(2, 8, 8, 1), ls_time_distributed(ls_conv2d(2, 3)), "(batch, 2, 6, 6, 2)",
          20 },
        { "embedding of numbers", ls_input(.dtype = LS_I64), ls_embedding(10, 3), "(batch, 3)", 30 },
        { "random_flip", ls_input(8, 9, 3, .dtype = LS_U8), ls_random_flip(LS_HORIZONTAL), "(batch, 8, 9, 3)", 0 },
        { "random_translation", ls_input(8, 9, 3),
          ls_random_translation(.height_factor = { 0.1 }, .width_factor = { 0, 0.1 }), "(batch, 8, 9, 3)", 0 },
        { "random_crop", ls_input(8, 9, 3), ls_random_crop(4, 5), "(batch, 4, 5, 3)", 0 },
        { "random_zoom", ls_input(8, 9, 3), ls_random_zoom(.height_factor = { 0.1 }), "(batch, 8, 9, 3)", 0 },
        { "random_rotation", ls_input(8, 9, 3), ls_random_rotation(.factor = { 0.1 }), "(batch, 8, 9, 3)", 0 },
        { "random_contrast", ls_input(8, 9, 3), ls_random_contrast(.factor = { 0.1 }), "(batch, 8, 9, 3)", 0 },
        { "random_brightness", ls_input(8, 9, 3), ls_random_brightness(.factor = { 0.1 }), "(batch, 8, 9, 3)", 0 },
        { "random_erasing", ls_input(8, 9, 3), ls_random_erasing(), "(batch, 8, 9, 3)", 0 },
        { "rescaling", ls_input(4, .dtype = LS_U8), ls_rescaling(1 / 255.0, .offset = -1), "(batch, 4)", 0 },
        { "conv1d", ls_input(9, 4), ls_conv1d(8, 3), "(batch, 7, 8)", 104 },
        { "conv1d, causal", ls_input(9, 4), ls_conv1d(8, .kernel_size = { 3 }, .strides = { 2 }, .padding = LS_CAUSAL),
          "(batch, 5, 8)", 104 },
        { "conv1d, groups", ls_input(9, 4), ls_conv1d(6, 3, .groups = 2, .dilation_rate = { 2 }, .no_bias = true),
          "(batch, 5, 6)", 36 },
        { "conv1d, explicit padding", ls_input(9, 4), ls_conv1d(8, 3, .padding = LS_EXPLICIT, .zero_padding = { 1, 3 }),
          "(batch, 11, 8)", 104 },
        { "conv1d_transpose", ls_input(5, 4), ls_conv1d_transpose(3, 2, 3), "(batch, 15, 3)", 27 },
        { "conv1d_transpose, output padding 0", ls_input(5, 4), ls_conv1d_transpose(3, 2, 3, .output_padding = { -1 }),
          "(batch, 14, 3)", 27 },
        { "conv2d_transpose", ls_input(5, 6, 4), ls_conv2d_transpose(3, 3, 2), "(batch, 11, 13, 3)", 111 },
        { "conv2d_transpose, same", ls_input(5, 6, 4), ls_conv2d_transpose(3, 3, 2, .padding = LS_SAME),
          "(batch, 10, 12, 3)", 111 },
        { "conv2d_transpose, output padding", ls_input(5, 6, 4),
          ls_conv2d_transpose(3, 3, 2, .padding = LS_SAME, .output_padding = { -1, 1 }), "(batch, 9, 12, 3)", 111 },
        { "depthwise_conv1d", ls_input(9, 4), ls_depthwise_conv1d(3, 2, .depth_multiplier = 2), "(batch, 4, 8)", 32 },
        { "separable_conv1d", ls_input(9, 4), ls_separable_conv1d(5, 3, .depth_multiplier = 2), "(batch, 7, 5)", 69 },
        { "separable_conv2d", ls_input(9, 9, 4), ls_separable_conv2d(5, 3, 2, .padding = LS_SAME), "(batch, 5, 5, 5)",
          61 },
        { "max_pool1d", ls_input(7, 3), ls_max_pool1d(), "(batch, 3, 3)", 0 },
        { "max_pool1d, strides", ls_input(7, 3), ls_max_pool1d(3, 1, .padding = LS_SAME), "(batch, 7, 3)", 0 },
        { "average_pool1d", ls_input(7, 3), ls_average_pool1d(3, .strides = { 2 }), "(batch, 3, 3)", 0 },
        { "global_max_pool1d", ls_input(7, 3), ls_global_max_pool1d(), "(batch, 3)", 0 },
        { "global_average_pool1d", ls_input(7, 3), ls_global_average_pool1d(.keepdims = true), "(batch, 1, 3)", 0 },
        { "zero_padding1d", ls_input(7, 3), ls_zero_padding1d(), "(batch, 9, 3)", 0 },
        { "cropping1d", ls_input(7, 3), ls_cropping1d(), "(batch, 5, 3)", 0 },
        { "cropping2d", ls_input(7, 8, 3), ls_cropping2d(), "(batch, 7, 8, 3)", 0 },
        { "cropping2d, sides", ls_input(7, 8, 3), ls_cropping2d(.cropping = { 1, 2, 0, 3 }), "(batch, 4, 5, 3)", 0 },
        { "permute", ls_input(2, 3, 4), ls_permute(3, 1, 2), "(batch, 4, 2, 3)", 0 },
        { "repeat_vector", ls_input(4), ls_repeat_vector(3), "(batch, 3, 4)", 0 },
        { "up_sampling1d", ls_input(4, 3), ls_up_sampling1d(), "(batch, 8, 3)", 0 },
        { "up_sampling2d", ls_input(4, 5, 3), ls_up_sampling2d(.size = { 2, 3 }), "(batch, 8, 15, 3)", 0 },
        { "up_sampling2d, bilinear", ls_input(4, 5, 3), ls_up_sampling2d(3, .interpolation = LS_BILINEAR),
          "(batch, 12, 15, 3)", 0 },
        { "resizing", ls_input(4, 5, 3, .dtype = LS_U8), ls_resizing(6, 2), "(batch, 6, 2, 3)", 0 },
        { "center_crop", ls_input(4, 5, 3), ls_center_crop(3, 3), "(batch, 3, 3, 3)", 0 },
        { "center_crop of less", ls_input(4, 5, 3), ls_center_crop(8, 3), "(batch, 8, 3, 3)", 0 },
        { "add of one", ls_input(4), ls_add(), "(batch, 4)", 0 },
        { "multiply of one", ls_input(4), ls_multiply(), "(batch, 4)", 0 },
        { "concatenate of one", ls_input(4), ls_concatenate(), "(batch, 4)", 0 },
        { "average of one", ls_input(4), ls_average(), "(batch, 4)", 0 },
        { "maximum of one", ls_input(4), ls_maximum(), "(batch, 4)", 0 },
        { "minimum of one", ls_input(4), ls_minimum(), "(batch, 4)", 0 },
        { "normalization", ls_input(4, 3), ls_normalization(), "(batch, 4, 3)", 7 },
        { "normalization, axes", ls_input(4, 3), ls_normalization(.axes = LS_AXES(1, 2)), "(batch, 4, 3)", 25 },
        { "normalization, no axis", ls_input(4, 3), ls_normalization(.no_axis = true), "(batch, 4, 3)", 3 },
        { "normalization with numbers", ls_input(4, 2),
          ls_normalization(.mean = { 2, (double[]){ 1, 2 } }, .variance = { 2, (double[]){ 1, 4 } }), "(batch, 4, 2)",
          0 },
        { "group_normalization", ls_input(8, 8, 32), ls_group_normalization(), "(batch, 8, 8, 32)", 64 },
        { "group_normalization, axis", ls_input(4, 6), ls_group_normalization(2, .axis = 1, .no_center = true),
          "(batch, 4, 6)", 4 },
        { "group_normalization, one each", ls_input(4, 6), ls_group_normalization(-1), "(batch, 4, 6)", 12 },
        { "rms_normalization", ls_input(3, 5), ls_rms_normalization(), "(batch, 3, 5)", 5 },
        { "rms_normalization, two axes", ls_input(3, 5), ls_rms_normalization(.axes = LS_AXES(1, 2)), "(batch, 3, 5)",
          15 },
        { "unit_normalization", ls_input(3, 5), ls_unit_normalization(), "(batch, 3, 5)", 0 },
        { "layer_normalization, first axis", ls_input(3, 5), ls_layer_normalization(.axes = LS_AXES(1)),
          "(batch, 3, 5)", 6 },
        { "layer_normalization, rms", ls_input(3, 5), ls_layer_normalization(.rms_scaling = true), "(batch, 3, 5)", 5 },
        { "prelu", ls_input(4, 3), ls_prelu(), "(batch, 4, 3)", 12 },
        { "prelu, shared", ls_input(4, 4, 3), ls_prelu(.shared_axes = LS_AXES(1, 2)), "(batch, 4, 4, 3)", 3 },
        { "elu", ls_input(4, 3), ls_elu(0.5), "(batch, 4, 3)", 0 },
        { "glu halves", ls_input(4, 6), ls_activation_layer(LS_GLU), "(batch, 4, 3)", 0 },
        { "dense with glu", ls_input(4), ls_dense(6, .activation = LS_GLU), "(batch, 3)", 30 },
        { "spatial_dropout1d", ls_input(4, 3), ls_spatial_dropout1d(0.5), "(batch, 4, 3)", 0 },
        { "spatial_dropout2d", ls_input(4, 4, 3), ls_spatial_dropout2d(0.5), "(batch, 4, 4, 3)", 0 },
        { "gaussian_noise", ls_input(4), ls_gaussian_noise(0.5), "(batch, 4)", 0 },
        { "gaussian_dropout", ls_input(4), ls_gaussian_dropout(0.5), "(batch, 4)", 0 },
        { "alpha_dropout", ls_input(4), ls_alpha_dropout(0.5), "(batch, 4)", 0 },
        { "stochastic_depth", ls_input(4, 3), ls_stochastic_depth(0.5), "(batch, 4, 3)", 0 },
        { "layer_scale", ls_input(4, 3), ls_layer_scale(3), "(batch, 4, 3)", 3 },
        { "activity_regularization", ls_input(4), ls_activity_regularization(), "(batch, 4)", 0 },
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
    /* They take two inputs: two_inputs_are_merged. */
    seen[LS_LAYER_SUBTRACT] = seen[LS_LAYER_DOT] = seen[LS_LAYER_CUSTOM_SCALE] = true;
    seen[LS_LAYER_REGISTERED] = true;                                  /* test_nn_registered */
    for (int kind = LS_LAYER_MODEL + 1; kind < LS_LAYER_KINDS; kind++) /* nested models: test_nested.c */
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

/* Layers that need two inputs, on rows of two numbers. */
static void two_inputs_are_merged(void **state)
{
    (void)state;
    const struct {
        const char *what;
        ls_layer layer;
        const char *shape;
        float y[4];
    } rows[] = {
        { "subtract", ls_subtract(), "(batch, 2)", { 1 - 3, 2 + 4, 3 - 0, 4 - 3 } },
        { "average", ls_average(), "(batch, 2)", { 2, -1, 1.5f, 3.5f } },
        { "maximum", ls_maximum(), "(batch, 2)", { 3, 2, 3, 4 } },
        { "minimum", ls_minimum(), "(batch, 2)", { 1, -4, 0, 3 } },
        { "custom scale", ls_custom_scale(0.5), "(batch, 2)", { 2.5f, 0, 3, 5.5f } },
        { "custom scale of 0", ls_custom_scale(LS_ZERO), "(batch, 2)", { 1, 2, 3, 4 } },
        { "dot", ls_dot(1), "(batch, 1)", { 3 - 8, 12 } },
        { "dot, of the last axis", ls_dot(-1), "(batch, 1)", { 3 - 8, 12 } },
        { "cosine", ls_dot(1, .normalize = true), "(batch, 1)", { -0.44721360f, 0.8f } },
    };
    const float x[2][4] = { { 1, 2, 3, 4 }, { 3, -4, 0, 3 } };
    for (size_t r = 0; r < LENGTH(rows); r++) {
        ls_model *model;
        OK(ls_functional_begin(ctx, "two", &model));
        ls_symbol a = ls_symbol_input(model, ls_input(2)), b = ls_symbol_input(model, ls_input(2));
        OK(ls_functional_end(model, ls_symbol_call(model, rows[r].layer, a, b)));
        char text[LS_SHAPE_TEXT];
        ls_shape shape = ls_model_output_shape(model, 0);
        assert_string_equal(ls_shape_format(&shape, text), rows[r].shape);
        ls_tensor *inputs[2], *output;
        ls_feed feeds[2];
        for (int i = 0; i < 2; i++) {
            inputs[i] = ls_op_input(ls_model_graph(model), NULL, LS_F32, LS_SHAPE(LS_BATCH, 2));
            feeds[i] = (ls_feed){ inputs[i], ls_array_of(LS_F32, LS_SHAPE(2, 2), x[i]) };
        }
        OK(ls_model_trace(model, inputs, false, &output, NULL));
        OK(ls_eval(ls_model_graph(model), feeds, 2, &output, 1));
        ls_array value;
        OK(ls_value(output, &value));
        for (int i = 0; i < 2 * shape.dims[1]; i++)
            if (!test_is_near(((float *)value.data)[i], rows[r].y[i], 1e-6))
                fail_msg("%s: element %d is %g, expected %g", rows[r].what, i, ((float *)value.data)[i], rows[r].y[i]);
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

/* A size of 1 is one choice for the whole axis. */
static void dropout_of_a_noise_shape_drops_whole_axes(void **state)
{
    (void)state;
    enum { SAMPLES = 100, A = 3, B = 4 };
    float x[SAMPLES * A * B], y[SAMPLES][A][B];
    for (size_t i = 0; i < LENGTH(x); i++)
        x[i] = 1;
    ls_model *model;
    ls_tensor *output;
    ls_trace trace;
    OK(ls_sequential(ctx, "d", &model, ls_input(A, B), ls_dropout(0.5, .noise_shape = LS_SHAPE(1, -1))));
    ls_graph *graph = ls_model_graph(model);
    ls_tensor *input = ls_op_input(graph, NULL, LS_F32, LS_SHAPE(LS_BATCH, A, B));
    OK(ls_model_trace(model, &input, true, &output, &trace));
    OK(ls_eval(graph, &(ls_feed){ input, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, A, B), x) }, 1, &output, 1));
    OK(ls_read(output, y, sizeof(y)));
    int kept = 0, apart = 0;
    for (int s = 0; s < SAMPLES; s++)
        for (int b = 0; b < B; b++) {
            assert_true(y[s][0][b] == 0 || y[s][0][b] == 2);
            for (int a = 1; a < A; a++)
                assert_true(y[s][a][b] == y[s][0][b]);
            kept += y[s][0][b] != 0;
            apart += y[s][0][b] != y[s][0][0];
        }
    assert_in_range(kept, 160, 240);
    assert_in_range(apart, 100, 200);
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
        { ls_input(4), ls_dense(3, .activity_regularizer = { .l2 = -1 }), LS_ERR_INVALID,
          "Dense|activity_regularizer|-1" },
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
        { ls_input(5, 3), ls_lstm(0), LS_ERR_INVALID, "layer \"lstm\" (LSTM)|units is 0" },
        { ls_input(5), ls_gru(4), LS_ERR_SHAPE, "GRU|(batch, 5)|3 axes" },
        { ls_input(5, 3), ls_lstm(4, .activation = LS_SOFTMAX), LS_ERR_UNSUPPORTED, "activation is softmax|tanh" },
        { ls_input(5, 3), ls_gru(4, .recurrent_activation = LS_GELU), LS_ERR_UNSUPPORTED,
          "recurrent_activation is gelu" },
        { ls_input(5, 3), ls_lstm(4, .dropout = 1), LS_ERR_INVALID, "dropout is 1" },
        { ls_input(5, 3), ls_lstm(4, .reset_before = true), LS_ERR_INVALID, "LSTM|no option reset_before" },
        { ls_input(5, 3), ls_gru(4, .no_unit_forget_bias = true), LS_ERR_INVALID, "no option no_unit_forget_bias" },
        { ls_input(5, 3), ls_simple_rnn(4, .recurrent_activation = LS_TANH), LS_ERR_INVALID,
          "SimpleRNN|no option recurrent_activation" },
        { ls_input(5, 3), ls_lstm(4, .recurrent_regularizer = { .l1 = -1 }), LS_ERR_INVALID,
          "recurrent_regularizer|-1" },
        { ls_input(5), ls_masking(), LS_ERR_SHAPE, "Masking|3 axes" },
        { ls_input(5, 3), ls_bidirectional(ls_dense(4)), LS_ERR_INVALID, "Bidirectional|a Dense|LSTM" },
        { ls_input(5, 3), ls_bidirectional(ls_lstm(0)), LS_ERR_INVALID, "the LSTM inside|units is 0" },
        { ls_input(5, 3), ls_bidirectional(ls_lstm(4), .merge_mode = (ls_merge_mode)7), LS_ERR_INVALID,
          "merge_mode is 7" },
        { ls_input(5, 3), ls_bidirectional(ls_lstm(4), .backward_layer = &ls_lstm(4)), LS_ERR_INVALID,
          "same go_backwards" },
        { ls_input(5, 3),
          ls_bidirectional(ls_lstm(4), .backward_layer = &ls_gru(4, .go_backwards = true, .return_sequences = true)),
          LS_ERR_INVALID, "same return_sequences" },
        { ls_input(5, 3), ls_bidirectional(ls_lstm(4, .device = "/cpu:0")), LS_ERR_INVALID, "has a device" },
        { ls_input(5, 3), (ls_layer){ .kind = LS_LAYER_TIME_DISTRIBUTED }, LS_ERR_INVALID, "no layer inside" },
        { ls_input(5, 3), ls_time_distributed(ls_batch_normalization()), LS_ERR_UNSUPPORTED,
          "TimeDistributed|BatchNormalization" },
        { ls_input(5, 3), ls_time_distributed(ls_lstm(4)), LS_ERR_SHAPE, "TimeDistributed|3 axes" },
        { ls_input(5), ls_time_distributed(ls_dense(4)), LS_ERR_SHAPE, "TimeDistributed|at least 3 axes" },
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
        { ls_input(8, 4), ls_layer_normalization(.last_axes = 2, .axes = LS_AXES(1)), LS_ERR_INVALID, "both given" },
        { ls_input(8, 4), ls_layer_normalization(.axes = LS_AXES(2, -1)), LS_ERR_INVALID, "axis 2 is given twice" },
        { ls_input(8, 4), ls_rms_normalization(.axes = LS_AXES(3)), LS_ERR_SHAPE, "RMSNormalization|axis 3 of 3" },
        { ls_input(8, 4), ls_rms_normalization(.axes = LS_AXES(1)), LS_ERR_SHAPE, "RMSNormalization|8" },
        { ls_input(8), ls_rms_normalization(.no_scale = true), LS_ERR_INVALID, "no option no_scale" },
        { ls_input(8), ls_unit_normalization(.epsilon = 1), LS_ERR_INVALID, "UnitNormalization|no option epsilon" },
        { ls_input(8, 4), ls_unit_normalization(.axes = LS_AXES(0)), LS_ERR_UNSUPPORTED, "axis 0 is the batch axis" },
        { ls_input(8, 4), ls_group_normalization(3), LS_ERR_SHAPE, "GroupNormalization|groups is 3|4 channels" },
        { ls_input(8, 4), ls_group_normalization(-2), LS_ERR_INVALID, "groups is -2" },
        { ls_input(8, 4), ls_group_normalization(2, .groups = 4), LS_ERR_INVALID, "groups is given twice" },
        { ls_input(4), ls_normalization(.mean = { 1, (double[]){ 1 } }), LS_ERR_INVALID, "1 means and 0 variances" },
        { ls_input(4), ls_normalization(.mean = { 3, (double[]){ 1, 2, 3 } }, .variance = { 3, (double[]){ 1, 2, 3 } }),
          LS_ERR_SHAPE, "Normalization|3 means|(4,)" },
        { ls_input(4), ls_normalization(.mean = { 1, (double[]){ 1 } }, .variance = { 1, (double[]){ -2 } }),
          LS_ERR_INVALID, "variance 0 is -2" },
        { ls_input(4), ls_normalization(.no_axis = true, .axes = LS_AXES(1)), LS_ERR_INVALID, "no_axis" },
        { ls_input(4, 4), ls_prelu(.shared_axes = LS_AXES(-1)), LS_ERR_INVALID, "PReLU|shared_axes is -1" },
        { ls_input(4, 4), ls_prelu(.shared_axes = LS_AXES(3)), LS_ERR_SHAPE, "PReLU|axis 3 of 3" },
        { ls_input(4), ls_elu(NAN), LS_ERR_INVALID, "ELU|alpha is nan" },
        { ls_input(5), ls_activation_layer(LS_GLU), LS_ERR_SHAPE, "Activation|even|5" },
        { ls_input(4), ls_gaussian_noise(1.5), LS_ERR_INVALID, "GaussianNoise|stddev is 1.5" },
        { ls_input(4), ls_gaussian_noise(.rate = 0.5), LS_ERR_INVALID, "GaussianNoise|no option rate" },
        { ls_input(4), ls_alpha_dropout(1), LS_ERR_INVALID, "AlphaDropout|rate is 1" },
        { ls_input(4), ls_spatial_dropout1d(0.5), LS_ERR_SHAPE, "SpatialDropout1D|3 axes" },
        { ls_input(4, 4), ls_spatial_dropout2d(0.5), LS_ERR_SHAPE, "SpatialDropout2D|4 axes" },
        { ls_input(4), ls_dot(1), LS_ERR_INVALID, "Dot|two inputs; 1" },
        { ls_input(4), ls_dot(), LS_ERR_INVALID, "Dot|batch axis, or missing" },
        { ls_input(4), ls_subtract(), LS_ERR_INVALID, "Subtract|two inputs; 1" },
        { ls_input(4), ls_custom_scale(0), LS_ERR_INVALID, "CustomScaleLayer|scale is 0|LS_ZERO" },
        { ls_input(4), ls_layer_scale(), LS_ERR_INVALID, "LayerScale|projection_dim is 0" },
        { ls_input(4), ls_layer_scale(3), LS_ERR_SHAPE, "LayerScale|3" },
        { ls_input(8), ls_relu(.max_value = -2), LS_ERR_INVALID, "ReLU|max_value is -2" },
        { ls_input(8), ls_leaky_relu(-2), LS_ERR_INVALID, "LeakyReLU|negative_slope is -2" },
        { ls_input(8), ls_softmax(.axis = 2), LS_ERR_SHAPE, "Softmax|axis 2 of 2" },
        { ls_input(8), ls_concatenate(.axis = -2), LS_ERR_UNSUPPORTED, "Concatenate|axis -2 is the batch axis" },
        { ls_input(8, 8, 4), ls_zero_padding2d(-1), LS_ERR_INVALID, "ZeroPadding2D|padding is -1" },
        { ls_input(8, 8), ls_zero_padding2d(1), LS_ERR_SHAPE, "ZeroPadding2D|(batch, 8, 8)" },
        { ls_input(8, 8, 4), ls_conv1d(4, 3), LS_ERR_SHAPE, "Conv1D|(batch, 8, 8, 4)|3 axes" },
        { ls_input(8, 4), ls_conv1d(4, .kernel_size = { 3, 3 }), LS_ERR_INVALID, "kernel_size|{ 3, 3 }|one number" },
        { ls_input(8, 4), ls_conv1d(4), LS_ERR_INVALID, "Conv1D|kernel_size" },
        { ls_input(8, 4), ls_conv1d(4, 3, .padding = LS_EXPLICIT, .zero_padding = { 1, 1, 1, 1 }), LS_ERR_INVALID,
          "zero_padding|{ begin, end }" },
        { ls_input(8, 4), ls_conv1d(4, 3, .padding = LS_CAUSAL, .zero_padding = { 1 }), LS_ERR_INVALID,
          "zero_padding|LS_EXPLICIT" },
        { ls_input(8, 8, 4), ls_conv2d(4, 3, .padding = LS_CAUSAL), LS_ERR_INVALID, "Conv2D|padding is 3" },
        { ls_input(8, 4), ls_depthwise_conv1d(3, .padding = LS_CAUSAL), LS_ERR_INVALID, "padding is 3" },
        { ls_input(8, 4), ls_separable_conv1d(0, 3), LS_ERR_INVALID, "SeparableConv1D|filters is 0" },
        { ls_input(8, 4), ls_conv1d(4, 3, .depth_multiplier = 2), LS_ERR_INVALID, "no option depth_multiplier" },
        { ls_input(8, 8, 4), ls_separable_conv2d(4, 3, .pointwise_regularizer = { .l1 = -1 }), LS_ERR_INVALID,
          "pointwise_regularizer|-1" },
        { ls_input(8, 8, 4), ls_conv2d(4, 3, .output_padding = { 1, 1 }), LS_ERR_INVALID, "no option output_padding" },
        { ls_input(8, 8, 4), ls_conv2d_transpose(4, 3, 2, .output_padding = { 2, 1 }), LS_ERR_INVALID,
          "Conv2DTranspose|output_padding is 2|strides, 2" },
        { ls_input(8, 4), ls_conv1d_transpose(4, 3, 2, .output_padding = { 1, 1 }), LS_ERR_INVALID,
          "output_padding is (1, 1)|one number" },
        { ls_input(8, 8, 4), ls_conv2d_transpose(4, 3, .padding = LS_EXPLICIT), LS_ERR_INVALID, "padding is 2" },
        { ls_input(1, 1, 4), ls_conv2d_transpose(4, 2, .padding = LS_SAME, .output_padding = { -1 }), LS_ERR_SHAPE,
          "Conv2DTranspose|0 pixels" },
        { ls_input(8), ls_max_pool1d(2), LS_ERR_SHAPE, "MaxPooling1D|(batch, 8)|3 axes" },
        { ls_input(8, 4), ls_average_pool1d(.pool_size = { 2, 2 }), LS_ERR_INVALID, "pool_size|one number" },
        { ls_input(8, 8, 4), ls_global_max_pool1d(), LS_ERR_SHAPE, "GlobalMaxPooling1D|3 axes" },
        { ls_input(8, 4), ls_zero_padding1d(1, .zero_padding = { 1, 2 }), LS_ERR_INVALID, "zero_padding|twice" },
        { ls_input(8, 4), ls_zero_padding1d(.zero_padding = { 1, 2, 3 }), LS_ERR_INVALID, "{ begin, end }" },
        { ls_input(8, 4), ls_cropping1d(.zero_padding = { 1, 2 }), LS_ERR_INVALID, "no option zero_padding" },
        { ls_input(8, 4), ls_cropping1d(4), LS_ERR_SHAPE, "Cropping1D|(4, 4)|8 elements" },
        { ls_input(8, 4), ls_cropping1d(-1), LS_ERR_INVALID, "cropping is -1" },
        { ls_input(8, 4, 1), ls_cropping2d(.cropping = { 0, 0, 2, 2 }), LS_ERR_SHAPE, "(2, 2)|4 elements|axis 2" },
        { ls_input(8, 4), ls_permute(2, 2), LS_ERR_INVALID, "Permute|dims|1 to 2" },
        { ls_input(8, 4), ls_permute(), LS_ERR_INVALID, "Permute|dims" },
        { ls_input(8, 4), ls_permute(1, 3, 2), LS_ERR_SHAPE, "Permute|3 numbers|2 axes" },
        { ls_input(8), ls_repeat_vector(), LS_ERR_INVALID, "RepeatVector|n is 0" },
        { ls_input(8, 4), ls_repeat_vector(3), LS_ERR_SHAPE, "RepeatVector|2 axes" },
        { ls_input(8, 4), ls_up_sampling1d(-2), LS_ERR_INVALID, "UpSampling1D|size is -2" },
        { ls_input(8, 8, 4), ls_up_sampling2d(2, .interpolation = (ls_interpolation)7), LS_ERR_INVALID,
          "interpolation is 7" },
        { ls_input(8, 8, 4), ls_up_sampling2d((int64_t)1 << 40), LS_ERR_SHAPE, "UpSampling2D|1099511627776" },
        { ls_input(8, 8, 4), ls_up_sampling2d(2, .fill_value = 1), LS_ERR_INVALID, "no option fill_value" },
        { ls_input(8, 8, 4), ls_resizing(8), LS_ERR_INVALID, "Resizing|width is 0" },
        { ls_input(8, 8, 4), ls_resizing((int64_t)1 << 40, 2), LS_ERR_INVALID, "less than 2^31" },
        { ls_input(8, 8, 4), ls_resizing(4, 4, .crop_to_aspect_ratio = true, .pad_to_aspect_ratio = true),
          LS_ERR_INVALID, "crop_to_aspect_ratio and pad_to_aspect_ratio" },
        { ls_input(8, 8, 4), ls_resizing(4, 4, .fill_value = NAN), LS_ERR_INVALID, "fill_value is" },
        { ls_input(8, 8), ls_center_crop(4, 4), LS_ERR_SHAPE, "CenterCrop|4 axes" },
        { ls_input(8), ls_embedding(10), LS_ERR_INVALID, "Embedding|output_dim is 0" },
        { ls_input(8), ls_random_flip(), LS_ERR_SHAPE, "RandomFlip|4 axes" },
        { ls_input(8, 8, 1), ls_random_flip((ls_flip_mode)4), LS_ERR_INVALID, "RandomFlip|mode is 4" },
        { ls_input(8, 8, 1), ls_random_flip(.seed = -2), LS_ERR_INVALID, "seed is -2" },
        { ls_input(8, 8, 1), ls_random_flip(.factor = { 0.1 }), LS_ERR_INVALID, "no option factor" },
        { ls_input(8, 8, 1), ls_random_flip(.value_range = { 0, 1 }), LS_ERR_INVALID, "no option value_range" },
        { ls_input(8, 8, 1), ls_random_rotation(), LS_ERR_INVALID, "RandomRotation|factor is missing" },
        { ls_input(8, 8, 1), ls_random_rotation(.factor = { -0.5, 1.5 }), LS_ERR_INVALID, "factor is { -0.5, 1.5 }" },
        { ls_input(8, 8, 1), ls_random_rotation(.factor = { 0.1 }, .fill_mode = (ls_fill_mode)5), LS_ERR_INVALID,
          "fill_mode is 5" },
        { ls_input(8, 8, 1), ls_random_rotation(.factor = { 0.1 }, .interpolation = (ls_interpolation)3),
          LS_ERR_INVALID, "interpolation is 3" },
        { ls_input(8, 8, 1), ls_random_rotation(.factor = { 0.1 }, .fill_value = { 1, 2, 3 }), LS_ERR_INVALID,
          "fill_value is { 1, 2, 3 }" },
        { ls_input(8, 8, 1), ls_random_translation(.height_factor = { 0.1 }), LS_ERR_INVALID,
          "width_factor is missing" },
        { ls_input(8, 8, 1), ls_random_zoom(.height_factor = { -1, 0.5 }), LS_ERR_INVALID, "height_factor reaches -1" },
        { ls_input(8, 8, 1), ls_random_crop(4), LS_ERR_INVALID, "RandomCrop|width is 0" },
        { ls_input(8, 8, 1), ls_random_contrast(.factor = { -0.5, 0.5 }), LS_ERR_INVALID, "factor is { -0.5, 0.5 }" },
        { ls_input(8, 8, 1), ls_random_brightness(.factor = { 0.1 }, .value_range = { 2, 2 }), LS_ERR_INVALID,
          "value_range is { 2, 2 }" },
        { ls_input(8, 8, 1), ls_random_erasing(.fill_value = { 1, 2 }), LS_ERR_INVALID, "fill_value is { 1, 2, 0 }" },
        { ls_input(8, 8, 1), ls_random_erasing(.scale = { 0.5, 2 }), LS_ERR_INVALID, "scale is { 0.5, 2 }" },
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
        if (kind == LS_LAYER_MODEL || kind == LS_LAYER_REGISTERED)
            continue; /* their classes are those of models and of the program */
        const ls_layer_info *info = ls_layer_info_of((ls_layer_kind)kind);
        if (info->kind != (ls_layer_kind)kind || !info->class_name || !info->base || !info->function)
            fail_msg("layer kind %d has no row in src/nn/layer_*.c", kind);
        json_t *json = json_pack("{s:s, s:{}}", "class_name", info->class_name, "config");
        assert_non_null(json);
        ls_json_at root = ls_json_root(json, "test");
        ls_layer layer = { .kind = (ls_layer_kind)kind };
        ls_arena arena = { 0 };
        if (ls_keras_layer(&root, &arena, &layer) != LS_OK && strstr(ls_last_error(), "layers of class"))
            fail_msg("%s", ls_last_error());
        assert_int_equal(layer.kind, kind);
        ls_arena_free(&arena);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_and_parameters_are_keras_s),
        cmocka_unit_test(every_kind_has_its_rows),
        cmocka_unit_test(values_are_the_formulas),
        cmocka_unit_test(two_inputs_are_merged),
        cmocka_unit_test(zeros_before_a_convolution_are_its_padding),
        cmocka_unit_test(dropout_in_training_drops),
        cmocka_unit_test(dropout_of_a_noise_shape_drops_whole_axes),
        cmocka_unit_test(initial_values_have_their_distribution),
        cmocka_unit_test(orthogonal_kernels_are),
        cmocka_unit_test(a_seed_of_its_own_is_all_that_counts),
        cmocka_unit_test(the_error_of_a_wrong_spec_has_layer_option_and_value),
    };
    return cmocka_run_group_tests_name("layers", tests, open_context, close_context);
}
