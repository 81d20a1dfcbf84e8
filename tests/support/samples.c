/* Small images with labels, and models for them: see samples.h. */
#include "samples.h"

#include <stdlib.h>

#include "base/philox.h"
#include "base/status.h"

static int32_t label_of(int sample, int classes)
{
    return sample * 7 % classes;
}

void samples_fill_floats(float *pixels, int32_t *labels, int samples, int each, int classes)
{
    ls_philox_key key = ls_random_key(1, LS_RANDOM_TEST, 0, 0);
    for (int s = 0; s < samples; s++) {
        labels[s] = label_of(s, classes);
        for (int i = 0; i < each; i++)
            pixels[s * each + i] = (float)(ls_random_block(key, 0, (uint32_t)s, (uint32_t)i).word[0] % 1000) / 1000 +
                                   (float)(i % classes == labels[s]);
    }
}

void samples_fill_bytes(uint8_t *pixels, int32_t *labels, int samples, int each, int classes)
{
    for (int i = 0; i < samples * each; i++)
        pixels[i] = (uint8_t)(i * 2654435761u >> 24);
    for (int s = 0; s < samples; s++)
        labels[s] = label_of(s, classes);
}

static ls_dataset *dataset_of(ls_dtype dtype, void *pixels, int32_t *labels, int samples, int side)
{
    return ls_from_tensor_slices(ls_array_of(dtype, LS_SHAPE(samples, side, side, 1), pixels),
                                 ls_array_of(LS_I32, LS_SHAPE(samples), labels), .keep = LS_KEEP_OWNED);
}

ls_dataset *samples_of_floats(int samples, int side, int classes)
{
    float *pixels = malloc((size_t)(samples * side * side) * sizeof(*pixels));
    int32_t *labels = malloc((size_t)samples * sizeof(*labels));
    samples_fill_floats(pixels, labels, samples, side * side, classes);
    return dataset_of(LS_F32, pixels, labels, samples, side);
}

ls_dataset *samples_of_bytes(int samples, int side, int classes)
{
    uint8_t *pixels = malloc((size_t)(samples * side * side));
    int32_t *labels = malloc((size_t)samples * sizeof(*labels));
    samples_fill_bytes(pixels, labels, samples, side * side, classes);
    return dataset_of(LS_U8, pixels, labels, samples, side);
}

ls_status samples_plain_model(ls_context *ctx, int side, int classes, ls_model **out)
{
    return ls_sequential(ctx, "plain", out, ls_input(side, side, 1), ls_conv2d(8, 3, .activation = LS_RELU),
                         ls_max_pool2d(2), ls_flatten(), ls_dropout(0.25), ls_dense(16, .activation = LS_RELU),
                         ls_dense(classes, .activation = LS_SOFTMAX));
}

ls_status samples_normed_model(ls_context *ctx, int side, int classes, ls_norm_statistics statistics, ls_model **out)
{
    return ls_sequential(ctx, "normed", out, ls_input(side, side, 1), ls_conv2d(8, 3),
                         ls_batch_normalization(.statistics = statistics), ls_relu(), ls_conv2d(8, 3),
                         ls_batch_normalization(.statistics = statistics), ls_relu(), ls_global_average_pool2d(),
                         ls_dense(classes, .activation = LS_SOFTMAX));
}

ls_status samples_full_model(ls_context *ctx, int side, int classes, ls_optimizer optimizer, ls_model **out)
{
    LS_TRY(ls_sequential(ctx, "m", out, ls_input(side, side, 1), ls_conv2d(4, 3, .activation = LS_RELU),
                         ls_batch_normalization(), ls_flatten(), ls_dropout(0.5),
                         ls_dense(classes, .kernel_regularizer = { .l2 = 0.01 })));
    return ls_compile(*out, .optimizer = optimizer, .loss = ls_sparse_categorical_crossentropy(.from_logits = true),
                      .metrics = ls_metrics(ls_accuracy()));
}
