/* Small images with labels, the same in every run, and models for them. Nothing here asserts: any
 * thread may call it. Linked into every test program. */
#ifndef TESTS_SAMPLES_H
#define TESTS_SAMPLES_H

#include <stdint.h>

#include "lockstep/data.h"
#include "lockstep/train.h"

/* Datasets of images of side x side x 1 pixels, and int32 labels. Floats are noise, brighter at
 * every `classes`-th pixel from the label on, which a network can learn; bytes are noise alone. */
ls_dataset *samples_of_floats(int samples, int side, int classes);
ls_dataset *samples_of_bytes(int samples, int side, int classes);

/* The same numbers in arrays of the caller; `each` is the number of pixels of a sample. */
void samples_fill_floats(float *pixels, int32_t *labels, int samples, int each, int classes);
void samples_fill_bytes(uint8_t *pixels, int32_t *labels, int samples, int each, int classes);

/* A convolution, pooling, dropout and two dense layers. */
ls_status samples_plain_model(ls_context *ctx, int side, int classes, ls_model **out);

/* Two convolutions with batch norms. */
ls_status samples_normed_model(ls_context *ctx, int side, int classes, ls_norm_statistics statistics, ls_model **out);

/* Compiled, with accuracy; batch norm, dropout and a regularizer: a step that has everything. */
ls_status samples_full_model(ls_context *ctx, int side, int classes, ls_optimizer optimizer, ls_model **out);

#endif
