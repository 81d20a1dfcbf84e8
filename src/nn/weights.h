/* Reads a file as the weights of a model. */
#ifndef LS_NN_WEIGHTS_H
#define LS_NN_WEIGHTS_H

#include "data/tensors.h"
#include "nn/model.h"

/* The arrays of a file, in the order and with the names, shapes and types of a model's
 * variables. */
typedef struct ls_weights {
    ls_tensors file;
    ls_safetensors_entry *entries; /* one per variable; the data belongs to the file, or to `joined` */
    void *joined;                  /* variables that are two arrays of the file */
} ls_weights;

/* Fails in the same cases as loading. On success, close with ls_weights_close. */
ls_status ls_weights_open(const ls_model *model, const char *path, ls_layout layout, ls_weights *out);
void ls_weights_close(ls_weights *weights);

#endif
