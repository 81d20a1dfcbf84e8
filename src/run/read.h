/* Prints values. */
#ifndef LS_RUN_READ_H
#define LS_RUN_READ_H

#include "base/text.h"
#include "lockstep/run.h"

/* Appends a value in TensorFlow's format: "tf.Tensor(0.5, shape=(), dtype=float32)". */
void ls_put_tensor(ls_text *text, const ls_array *value);

#endif
