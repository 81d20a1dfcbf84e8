/* One layer: what its kind is called, what its spec means, which variables it has, and the nodes of one call of it.
 * Nothing here knows of models. A spec is used *settled*: positional arguments moved to their options, defaults filled
 * in. */
#ifndef LS_NN_LAYER_H
#define LS_NN_LAYER_H

#include "graph/node.h"
#include "lockstep/nn.h"

typedef struct ls_layer_info {
    const char *class_name; /* Keras's: "MaxPooling2D" */
    const char *base;       /* of the names Keras counts: "max_pooling2d" */
    const char *function;   /* ours: "ls_max_pool2d" */
    const char *places[4];  /* what the positional arguments are */
    bool many;              /* takes several inputs */
} ls_layer_info;

/* By kind; LS_LAYER_NONE and what is no kind have class name "?". */
const ls_layer_info *ls_layer_info_of(ls_layer_kind kind);

/* Checks the spec and writes the settled one. The message names option and value; the caller knows the layer. */
ls_status ls_layer_settle(const ls_layer *spec, ls_layer *out);

/* ---- Variables ---- */

#define LS_MAX_WEIGHTS 4

typedef struct ls_weight {
    const char *name; /* "kernel" */
    ls_shape shape;
    ls_initializer initializer; /* never LS_INIT_DEFAULT */
    ls_regularizer regularizer;
    bool trainable;
} ls_weight;

/* What is wrong with a weight that a custom model asked for itself. */
ls_status ls_weight_check(const ls_weight *weight);

/* The variables of a settled layer that is called on `input` (of merging layers: the first). */
ls_status ls_layer_weights(const ls_layer *layer, const ls_shape *input, ls_weight out[LS_MAX_WEIGHTS], size_t *count);

/* ---- Calls ---- */

typedef struct ls_layer_pass {
    ls_tensor *const *inputs;
    size_t input_count;
    ls_tensor *const *weights; /* in the order of ls_layer_weights */
    bool training;
    bool update; /* ask for the assignments of moving statistics */
    int64_t random_layer, random_call;
    ls_tensor *updates[2]; /* out; NULL: none */
} ls_layer_pass;

/* The nodes of one call of a settled layer. */
ls_status ls_layer_pass_make(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out);

ls_tensor *ls_activate(ls_tensor *x, ls_activation activation);
const char *ls_activation_name(ls_activation activation); /* Keras's; NULL: no such activation */

/* LS_OK, or the message of an error tensor. */
ls_status ls_tensor_check(const ls_tensor *tensor);

#endif
