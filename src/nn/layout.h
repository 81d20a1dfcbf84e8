/* Layout of a model's variables in a weights file: names, shapes and element order of Keras,
 * PyTorch or Keras's HDF5 files. */
#ifndef LS_NN_LAYOUT_H
#define LS_NN_LAYOUT_H

#include "nn/model.h"

typedef enum ls_weight_style {
    LS_STYLE_KERAS, /* "conv2d/kernel", stored like the variable */
    LS_STYLE_TORCH, /* "conv2d.weight", [O,I,H,W] and [out,in] */
    LS_STYLE_HDF5,  /* "layers/conv2d/vars/0" */
} ls_weight_style;

typedef struct ls_stored_weight {
    char *name;
    ls_shape shape; /* in the file */
    /* Axes of the variable's row-major elements. Rank 0: the file has the same element order. */
    ls_shape view;
    int axes[LS_MAX_RANK]; /* axis i' of the file is axis axes[i'] of `view` */
    int swapped;           /* axis of the file, plus 1, whose indices 0 and 1 change places; 0: none */
    /* Another array of the same shape that belongs to the variable: its second row or, if `sums`,
     * what is added to the first. NULL: none. */
    char *second;
    bool sums;
} ls_stored_weight;

/* Returns one entry per variable of the model; free with ls_stored_weights_free. */
ls_status ls_stored_weights_make(const ls_model *model, ls_weight_style style, ls_stored_weight **out);
void ls_stored_weights_free(ls_stored_weight *stored, const ls_model *model);

/* Copies elements of `item` bytes from the variable's order to the file's (to_file), or back. */
void ls_stored_weight_copy(const ls_stored_weight *stored, size_t item, const void *from, void *to, bool to_file);

/* Whether an array of this name is a counter or optimizer state instead of a weight. */
bool ls_weight_style_ignores(ls_weight_style style, const char *name);

/* Fill in one style. Fail if it cannot represent a weight. */
ls_status ls_torch_weights(const ls_model *model, ls_stored_weight *stored);
ls_status ls_hdf5_weights(const ls_model *model, ls_stored_weight *stored);

/* Return the order of Keras's model.layers, as layer numbers, without layers of nested models; and
 * the layers' groups in HDF5 files ("layers/dense_1") by layer number, NULL: none. `order` has room
 * for all layers of the root. The caller frees each group, even after a failure. */
ls_status ls_keras_order(const ls_model *model, size_t *order, size_t *count);
ls_status ls_keras_groups(const ls_model *model, char **groups);

#endif
