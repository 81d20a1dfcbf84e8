/* What the files of this layer share. */
#ifndef LS_RUN_RUN_H
#define LS_RUN_RUN_H

#include "base/text.h"
#include "graph/node.h"
#include "lockstep/run.h"

/* Makes sure that the tensor holds a value. Not for variables: they hold none. */
ls_status ls_run_eagerly(ls_tensor *tensor);

/* A value as TensorFlow prints a tensor: "tf.Tensor(0.5, shape=(), dtype=float32)". */
void ls_put_tensor(ls_text *text, const ls_array *value);

#endif
