/* A model's weights as a file has them. */
#ifndef LS_NN_WEIGHTS_H
#define LS_NN_WEIGHTS_H

#include "data/tensors.h"
#include "nn/model.h"

/* A file's arrays as the variables of a model: in their order, under their names, in their shapes and types. */
typedef struct ls_weights {
    ls_tensors file;
    ls_safetensors_entry *entries; /* one for each variable; the data is the file's */
} ls_weights;

/* Fails as loading would, and is closed by ls_weights_close if not. */
ls_status ls_weights_open(const ls_model *model, const char *path, ls_layout layout, ls_weights *out);
void ls_weights_close(ls_weights *weights);

#endif
