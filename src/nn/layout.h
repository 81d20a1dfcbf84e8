/* Where a model's variables are in a file of weights: their names, shapes and order of elements, as Keras, PyTorch or
 * Keras's HDF5 files have them. */
#ifndef LS_NN_LAYOUT_H
#define LS_NN_LAYOUT_H

#include "nn/model.h"

typedef enum ls_weight_style {
    LS_STYLE_KERAS, /* "conv2d/kernel", as the variable is */
    LS_STYLE_TORCH, /* "conv2d.weight", [O,I,H,W] and [out,in] */
    LS_STYLE_HDF5,  /* "layers/conv2d/vars/0" */
} ls_weight_style;

/* A variable in a file. */
typedef struct ls_weight_place {
    char *name;
    ls_shape shape;        /* in the file */
    ls_shape view;         /* the variable's elements, row by row; rank 0: the file has them in the same order */
    int axes[LS_MAX_RANK]; /* in the file, axis i of the view is at i' where axes[i'] is i */
} ls_weight_place;

/* One for each variable of the model; freed by ls_places_free. */
ls_status ls_places_make(const ls_model *model, ls_weight_style style, ls_weight_place **out);
void ls_places_free(ls_weight_place *places, const ls_model *model);

/* Copies the elements of `item` bytes from the variable's order to the file's, or back. */
void ls_place_copy(const ls_weight_place *place, size_t item, const void *from, void *to, bool to_file);

/* Whether such files have arrays of this name that are no weights of ours: counters, the optimizer's state. */
bool ls_weight_style_ignores(ls_weight_style style, const char *name);

/* The two other styles' places (layout_torch.c, layout_hdf5.c). Fail where a model's weights have none there. */
ls_status ls_torch_places(const ls_model *model, ls_weight_place *places);
ls_status ls_hdf5_places(const ls_model *model, ls_weight_place *places);

/* The order of Keras's model.layers, and the groups of these layers in Keras's HDF5 files: "layers/dense_1", by the
 * layers' numbers; NULL: it has none. Each is to be freed, also where the call fails (layout_hdf5.c). */
ls_status ls_keras_order(const ls_model *model, size_t *order);
ls_status ls_keras_groups(const ls_model *model, char **groups);

#endif
