/* Declarations that the files of src/run share. */
#ifndef LS_RUN_RUN_H
#define LS_RUN_RUN_H

#include "base/text.h"
#include "graph/node.h"
#include "lockstep/run.h"

/* Computes the tensor's value if it has none yet. Not for variables, which hold no value. */
ls_status ls_run_eagerly(ls_tensor *tensor);

/* Appends a value in TensorFlow's format: "tf.Tensor(0.5, shape=(), dtype=float32)". */
void ls_put_tensor(ls_text *text, const ls_array *value);

#endif
