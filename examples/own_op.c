/* An op of one's own: C functions compute its values and gradients, sample by sample. Here it is a
 * wavelet with a trained width for each unit: y = (1 - t^2) exp(-t^2 / 2), t = w x. It is planned
 * like any other op: two devices give the weights of one.
 *     own_op [EPOCHS] */
#include <lockstep.h>

#include <math.h>

#define UNITS   24
#define SAMPLES 512

static ls_status wavelet(const ls_custom_sample *sample, void *output, void *user)
{
    (void)user;
    const float *x = sample->inputs[0], *w = sample->inputs[1]; /* one sample, and the whole variable */
    float *y = output;
    for (int i = 0; i < UNITS; i++) {
        float t = w[i] * x[i];
        y[i] = (1 - t * t) * expf(-t * t / 2);
    }
    return LS_OK;
}

/* Called for one input at a time; the library sums the gradients of w over the samples. */
static ls_status wavelet_gradient(const ls_custom_sample *sample, const void *output_gradient, int input,
                                  void *input_gradient, void *user)
{
    (void)user;
    const float *x = sample->inputs[0], *w = sample->inputs[1], *dy = output_gradient;
    float *dx = input_gradient;
    for (int i = 0; i < UNITS; i++) {
        float t = w[i] * x[i], slope = (t * t - 3) * t * expf(-t * t / 2);
        dx[i] = dy[i] * slope * (input == 0 ? w[i] : x[i]);
    }
    return LS_OK;
}

static void call(ls_call *c, ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    (void)user;
    ls_tensor *x = ls_layer_call(c, ls_dense(UNITS, .name = "places"), inputs[0]);
    ls_tensor *w =
        ls_call_variable(c, "widths", LS_SHAPE(UNITS), .initializer = { .kind = LS_INIT_UNIFORM, .a = 1, .b = 9 });
    x = ls_op_custom("wavelet", .inputs = { x, w }, .forward = wavelet, .gradient = wavelet_gradient);
    outputs[0] = ls_layer_call(c, ls_dense(1, .name = "sum"), x);
}

int main(int argc, char **argv)
{
    static float x[SAMPLES], y[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        x[i] = (float)i / SAMPLES * 2 - 1;
        y[i] = sinf(9 * x[i] * x[i]);
    }
    for (int devices = 1; devices <= 2; devices++) {
        ls_context *ctx;
        ls_model *model;
        ls_results results;
        char hash[65];
        ls_array inputs = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), x),
                 targets = ls_array_of(LS_F32, LS_SHAPE(SAMPLES), y);
        LS_CHECK(ls_context_open(&(ls_context_options){ .cpu_devices = devices }, &ctx));
        LS_CHECK(ls_custom(ctx, "wavelets", (ls_layer[]){ ls_input(1) }, 1, 1, call, NULL, &model));
        LS_CHECK(ls_compile(model, .optimizer = ls_adam(0.01), .loss = ls_mean_squared_error()));
        LS_CHECK(ls_fit_arrays(model, inputs, targets, .epochs = argc > 1 ? atoll(argv[1]) : 200, .batch_size = 64,
                               .verbose = LS_VERBOSE_SILENT));
        LS_CHECK(ls_evaluate_arrays(model, inputs, targets, &results));
        LS_CHECK(ls_model_weights_sha256(model, hash));
        printf("on %d: loss %.4f, weights %s\n", devices, results.values[0], hash);
        ls_model_destroy(model);
        ls_context_close(ctx);
    }
    return 0;
}
