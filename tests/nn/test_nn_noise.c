/* Layers that draw random numbers in training: which elements are drawn together, their mean,
 * deviation and the fraction that is kept. Inference is compared with Keras (test_keras_layers),
 * bits on devices in test_device_training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "check.h"
#include "graph/node.h"
#include "lockstep.h"

enum { SAMPLES = 64, ROWS = 6, COLUMNS = 5, CHANNELS = 8, EACH = ROWS * COLUMNS * CHANNELS, ALL = SAMPLES * EACH };

static ls_context *ctx;
static float x[ALL], y[2][ALL];

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

/* Runs a layer in training on samples whose elements are all `value`, and writes y[which]. */
static void train(ls_layer input, ls_layer layer, float value, int which)
{
    ls_model *model = NULL;
    ls_tensor *output;
    ls_trace trace;
    for (size_t i = 0; i < ALL; i++)
        x[i] = value;
    OK(ls_sequential(ctx, "noise", &model, input, layer));
    ls_shape shape = ls_model_input_shape(model, 0);
    ls_tensor *in = ls_op_input(ls_model_graph(model), NULL, LS_F32, shape);
    OK(ls_model_trace(model, &in, true, &output, &trace));
    shape.dims[0] = SAMPLES;
    OK(ls_eval(ls_model_graph(model), &(ls_feed){ in, ls_array_of(LS_F32, shape, x) }, 1, &output, 1));
    OK(ls_read(output, y[which], sizeof(y[which])));
    ls_model_destroy(model);
}

#define IMAGE    ls_input(ROWS, COLUMNS, CHANNELS)
#define SEQUENCE ls_input(ROWS *COLUMNS, CHANNELS)

static void moments(const float *values, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < ALL; i++) {
        sum += values[i];
        squares += (double)values[i] * values[i];
    }
    *mean = sum / ALL;
    *deviation = sqrt(squares / ALL - *mean * *mean);
}

static void near(const char *what, double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%s is %g, expected %g within %g", what, value, expected, tolerance);
}

/* Every pixel of a channel has the same fate, and about a quarter of the channels is dropped. */
static void spatial_dropout_drops_whole_channels(void **state)
{
    (void)state;
    for (int axes = 1; axes <= 2; axes++) {
        int kept = 0;
        if (axes == 1)
            train(SEQUENCE, ls_spatial_dropout1d(0.25), 3, 0);
        else
            train(IMAGE, ls_spatial_dropout2d(0.25), 3, 0);
        for (int s = 0; s < SAMPLES; s++)
            for (int c = 0; c < CHANNELS; c++) {
                float first = y[0][s * EACH + c];
                assert_true(first == 0 || first == 4);
                kept += first != 0;
                for (int p = 0; p < ROWS * COLUMNS; p++)
                    assert_true(y[0][s * EACH + p * CHANNELS + c] == first);
            }
        near("the fraction of channels kept", kept / (double)(SAMPLES * CHANNELS), 0.75, 0.06);
    }
}

static void stochastic_depth_drops_whole_samples(void **state)
{
    (void)state;
    int kept = 0;
    train(IMAGE, ls_stochastic_depth(0.5), 3, 0);
    for (int s = 0; s < SAMPLES; s++) {
        float first = y[0][s * EACH];
        assert_true(first == 0 || first == 6);
        kept += first != 0;
        for (int e = 0; e < EACH; e++)
            assert_true(y[0][s * EACH + e] == first);
    }
    near("the number of samples kept", kept, SAMPLES / 2, 14);
}

static void gaussian_layers_have_their_moments(void **state)
{
    (void)state;
    double mean, deviation;
    train(IMAGE, ls_gaussian_noise(0.5), 3, 0);
    moments(y[0], &mean, &deviation);
    near("the mean of x + noise", mean, 3, 0.02);
    near("the deviation of the noise", deviation, 0.5, 0.015);
    train(IMAGE, ls_gaussian_dropout(0.2), 3, 0);
    moments(y[0], &mean, &deviation);
    near("the mean of x times noise", mean, 3, 0.05);
    near("the deviation of x times noise", deviation, 3 * sqrt(0.2 / 0.8), 0.05);
}

/* x keeps mean 0 and variance 1: half of the inputs is 1, half is -1. */
static void alpha_dropout_keeps_mean_and_variance(void **state)
{
    (void)state;
    const double rate = 0.3, low = -1.6732632423543772 * 1.0507009873554805;
    const double a = 1 / sqrt((1 - rate) * (1 + rate * low * low)), b = -a * low * rate;
    double mean, deviation;
    int dropped = 0;
    train(IMAGE, ls_alpha_dropout(rate), 1, 0);
    train(IMAGE, ls_alpha_dropout(rate), -1, 1);
    for (size_t i = 0; i < ALL; i++) {
        bool drop = fabs(y[0][i] - (a * low + b)) < 1e-5;
        near("an element", y[0][i], drop ? a * low + b : a + b, 1e-5);
        near("the same element of the other input", y[1][i], drop ? a * low + b : b - a, 1e-5);
        dropped += drop;
    }
    near("the fraction dropped", dropped / (double)ALL, rate, 0.02);
    for (size_t i = 0; i < ALL; i += 2)
        y[0][i] = y[1][i];
    moments(y[0], &mean, &deviation);
    near("the mean", mean, 0, 0.02);
    near("the deviation", deviation, 1, 0.02);
}

/* A sample's numbers depend on its position, not on the other samples; layers and calls differ. */
static void numbers_belong_to_layer_call_and_sample(void **state)
{
    (void)state;
    const ls_layer layers[] = { ls_gaussian_noise(0.5), ls_gaussian_dropout(0.5), ls_alpha_dropout(0.5),
                                ls_spatial_dropout2d(0.5), ls_stochastic_depth(0.5) };
    for (size_t l = 0; l < LENGTH(layers); l++) {
        ls_model *model;
        ls_tensor *output;
        ls_trace trace;
        OK(ls_functional_begin(ctx, "keys", &model));
        ls_symbol in = ls_symbol_input(model, IMAGE), once = ls_symbol_call(model, layers[l], in);
        ls_symbol other = ls_symbol_call(model, layers[l], in), again = ls_symbol_share(once, in);
        OK(ls_functional_end(model, ls_symbol_call(model, ls_concatenate(), once, other, again)));
        ls_tensor *tensor = ls_op_input(ls_model_graph(model), NULL, LS_F32, ls_model_input_shape(model, 0));
        OK(ls_model_trace(model, &tensor, true, &output, &trace));
        static float all[3 * ALL], few[3 * ALL];
        for (size_t i = 0; i < ALL; i++)
            x[i] = 1;
        for (int run = 0; run < 2; run++) { /* with all samples, then with three of them */
            ls_array value = ls_array_of(LS_F32, LS_SHAPE(run ? 3 : SAMPLES, ROWS, COLUMNS, CHANNELS), x);
            ls_model_graph(model)->run = 0;
            OK(ls_eval(ls_model_graph(model), &(ls_feed){ tensor, value }, 1, &output, 1));
            OK(ls_read(output, run ? few : all, sizeof(float) * 3 * EACH * (run ? 3 : SAMPLES)));
        }
        assert_memory_equal(all, few, 3 * 3 * EACH * sizeof(float));
        int same_layer = 0, same_call = 0, same_sample = 0;
        for (size_t p = 0; p < ALL / CHANNELS; p++)
            for (int c = 0; c < CHANNELS; c++) {
                const float *pixel = all + 3 * CHANNELS * p;
                same_layer += pixel[c] == pixel[CHANNELS + c];
                same_call += pixel[c] == pixel[2 * CHANNELS + c];
                same_sample += p < ROWS * COLUMNS || pixel[c] == pixel[c - 3 * EACH];
            }
        assert_true(same_layer < ALL * 3 / 4 && same_call < ALL * 3 / 4 && same_sample < ALL * 3 / 4);
        ls_model_destroy(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spatial_dropout_drops_whole_channels),
        cmocka_unit_test(stochastic_depth_drops_whole_samples),
        cmocka_unit_test(gaussian_layers_have_their_moments),
        cmocka_unit_test(alpha_dropout_keeps_mean_and_variance),
        cmocka_unit_test(numbers_belong_to_layer_call_and_sample),
    };
    return cmocka_run_group_tests_name("noise", tests, open_context, close_context);
}
