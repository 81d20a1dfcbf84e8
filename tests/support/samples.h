/* Small images with labels, the same in every run. Linked into every test program. */
#ifndef TESTS_SAMPLES_H
#define TESTS_SAMPLES_H

#include <stdint.h>

#include "lockstep/data.h"

/* Noise, brighter at every `classes`-th pixel from the label on: a network can learn that. */
void samples_of_floats(float *pixels, int32_t *labels, int samples, int each, int classes);

/* Noise alone. */
void samples_of_bytes(uint8_t *pixels, int32_t *labels, int samples, int each, int classes);

/* Of images of side x side pixels, which stay the caller's. */
ls_dataset *samples_dataset(ls_dtype dtype, const void *pixels, const int32_t *labels, int samples, int side);

#endif
