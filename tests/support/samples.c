#include "samples.h"

#include "base/philox.h"

static int32_t label_of(int sample, int classes)
{
    return sample * 7 % classes;
}

void samples_of_floats(float *pixels, int32_t *labels, int samples, int each, int classes)
{
    ls_philox_key key = ls_random_key(1, LS_RANDOM_TEST, 0, 0);
    for (int s = 0; s < samples; s++) {
        labels[s] = label_of(s, classes);
        for (int i = 0; i < each; i++)
            pixels[s * each + i] = (float)(ls_random_block(key, 0, (uint32_t)s, (uint32_t)i).word[0] % 1000) / 1000 +
                                   (float)(i % classes == labels[s]);
    }
}

void samples_of_bytes(uint8_t *pixels, int32_t *labels, int samples, int each, int classes)
{
    for (int i = 0; i < samples * each; i++)
        pixels[i] = (uint8_t)(i * 2654435761u >> 24);
    for (int s = 0; s < samples; s++)
        labels[s] = label_of(s, classes);
}

ls_dataset *samples_dataset(ls_dtype dtype, const void *pixels, const int32_t *labels, int samples, int side)
{
    return ls_from_tensor_slices(ls_array_of(dtype, LS_SHAPE(samples, side, side, 1), (void *)pixels),
                                 ls_array_of(LS_I32, LS_SHAPE(samples), (void *)labels), .keep = LS_KEEP_BORROWED);
}
