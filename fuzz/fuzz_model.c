/* Random models through fit: layers, optimizer, batch size and lanes come from the input; the
 * weights and the optimizer's state on 1, 2 and 3 devices have one hash, and predictions one set of
 * bits. */
#include "fuzz.h"

#define SIDE    6
#define SAMPLES 40
#define CLASSES 3
#define LAYERS  8

static uint8_t pixels[SAMPLES * SIDE * SIDE * 2];
static int32_t labels[SAMPLES];

typedef struct result {
    ls_status status;
    char hash[65];
    float predictions[SAMPLES * CLASSES];
} result;

static ls_layer take_layer(fuzz_input *in, bool *image)
{
    static const ls_activation activations[] = { LS_LINEAR, LS_RELU, LS_TANH, LS_SIGMOID, LS_GELU, LS_SILU };
    ls_activation activation = activations[fuzz_take(in, 6)];
    int64_t size = 1 + fuzz_take(in, 20), side = 1 + fuzz_take(in, 3);
    ls_padding padding = fuzz_take(in, 2) ? LS_SAME : LS_VALID;
    switch (fuzz_take(in, *image ? 10 : 5)) {
    case 0:
        return ls_dropout(0.25);
    case 1:
        return ls_batch_normalization();
    case 2:
        return ls_layer_normalization();
    case 3:
        return ls_activation_layer(activation);
    case 4:
        return ls_dense(size, .activation = activation);
    case 5:
        return ls_conv2d(size, side, .activation = activation, .padding = padding);
    case 6:
        return ls_depthwise_conv2d(side, .activation = activation, .padding = LS_SAME);
    case 7:
        return ls_max_pool2d(2, .padding = LS_SAME);
    case 8:
        return ls_average_pool2d(2, .padding = LS_SAME);
    default:
        *image = false;
        return ls_global_average_pool2d();
    }
}

static ls_status make_model(ls_context *ctx, fuzz_input *in, ls_model **out)
{
    ls_layer layers[LAYERS + 3];
    size_t count = 0, hidden = fuzz_take(in, LAYERS + 1);
    bool image = true;
    layers[count++] = ls_input(SIDE, SIDE, 2);
    for (size_t i = 0; i < hidden; i++)
        layers[count++] = take_layer(in, &image);
    if (image)
        layers[count++] = ls_flatten();
    layers[count++] = ls_dense(CLASSES, .activation = LS_SOFTMAX);
    return ls_sequential_with(ctx, "fuzz", layers, count, out);
}

static ls_status train(ls_model *model, fuzz_input *in, ls_dataset *data, result *out)
{
    const ls_optimizer optimizers[] = { ls_sgd(), ls_sgd(.momentum = 0.9), ls_adam(), ls_rmsprop() };
    ls_optimizer optimizer = optimizers[fuzz_take(in, 4)];
    ls_array predictions = { 0 };
    int64_t batch = 1 + fuzz_take(in, SAMPLES);
    int lanes = (int)fuzz_take(in, 40);
    ls_status status = ls_compile(model, .optimizer = optimizer, .loss = ls_sparse_categorical_crossentropy(),
                                  .metrics = ls_metrics(ls_accuracy()));
    if (status == LS_OK)
        status = ls_fit(model, data, .batch_size = batch, .lanes = lanes, .max_steps = 3, .epochs = 2, .seed = 3,
                        .verbose = LS_VERBOSE_SILENT);
    if (status == LS_OK)
        status = ls_model_state_sha256(model, out->hash);
    if (status == LS_OK)
        status = ls_predict(model, data, &predictions, .batch_size = batch);
    if (status == LS_OK)
        memcpy(out->predictions, predictions.data, sizeof out->predictions);
    free(predictions.data);
    return status;
}

static result run_on(int devices, const uint8_t *bytes, size_t size)
{
    fuzz_input in = { bytes, size };
    result out = { 0 };
    ls_model *model = NULL;
    ls_dataset *data = ls_from_tensor_slices(ls_array_of(LS_U8, LS_SHAPE(SAMPLES, SIDE, SIDE, 2), pixels),
                                             ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels), .keep = LS_KEEP_BORROWED);
    out.status = make_model(fuzz_context(devices, false), &in, &model);
    if (out.status == LS_OK)
        out.status = train(model, &in, data, &out);
    fuzz_status(out.status);
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 128)
        return 0;
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i * 7 % CLASSES;
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    result one = run_on(1, data, size);
    for (int devices = 2; devices <= 3; devices++) {
        result other = run_on(devices, data, size);
        FUZZ_CHECK(one.status == other.status, "1 device: %s, %d: %s", ls_status_name(one.status), devices,
                   ls_status_name(other.status));
        FUZZ_CHECK(strcmp(one.hash, other.hash) == 0, "weights differ on %d devices", devices);
        FUZZ_CHECK(memcmp(one.predictions, other.predictions, sizeof one.predictions) == 0,
                   "predictions differ on %d devices", devices);
    }
    return 0;
}
