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

/* One variable in a file. */
typedef struct ls_weight_place {
    char *name;
    ls_shape shape; /* in the file */
    /* Axes of the variable's row-major elements. Rank 0: the file has the same element order. */
    ls_shape view;
    int axes[LS_MAX_RANK]; /* axis i' of the file is axis axes[i'] of `view` */
} ls_weight_place;

/* Creates one entry per variable of the model. Free with ls_places_free. */
ls_status ls_places_make(const ls_model *model, ls_weight_style style, ls_weight_place **out);
void ls_places_free(ls_weight_place *places, const ls_model *model);

/* Copies elements of `item` bytes from the variable's order to the file's (to_file), or back. */
void ls_place_copy(const ls_weight_place *place, size_t item, const void *from, void *to, bool to_file);

/* Whether files of this style may have an array of this name that is not a weight, such as a
 * counter or optimizer state. */
bool ls_weight_style_ignores(ls_weight_style style, const char *name);

/* Fill in the other two styles (layout_torch.c, layout_hdf5.c). Fail if the style cannot represent
 * a weight. */
ls_status ls_torch_places(const ls_model *model, ls_weight_place *places);
ls_status ls_hdf5_places(const ls_model *model, ls_weight_place *places);

/* The order of Keras's model.layers, and the layers' groups in Keras's HDF5 files
 * ("layers/dense_1"), indexed by layer number; NULL: the layer has no group. The caller frees each
 * group, even after a failure (layout_hdf5.c). */
ls_status ls_keras_order(const ls_model *model, size_t *order);
ls_status ls_keras_groups(const ls_model *model, char **groups);

#endif
