/* One layer, independent of models. A spec must be *resolved* before use: positional arguments
 * moved to their options and defaults filled in. */
#ifndef LS_NN_LAYER_H
#define LS_NN_LAYER_H

#include "graph/node.h"
#include "lockstep/nn.h"

#define LS_MAX_WEIGHTS 8

typedef struct ls_weight {
    const char *name; /* "kernel" */
    ls_shape shape;
    ls_initializer initializer; /* never LS_INIT_DEFAULT */
    ls_regularizer regularizer;
    ls_constraint constraint;
    double rate; /* factor of ls_variable */
    bool trainable;
    /* Where Keras has the weight inside its layer: in a cell ("lstm_cell"); if the layer is a
     * wrapper, in the layer `inner` ("forward_lstm"), the wrapper's attribute `slot`
     * ("forward_layer"). NULL: none. */
    const char *cell, *inner, *slot;
    int64_t ones_from, ones; /* elements that begin with 1 in spite of the initializer */
    ls_dtype dtype;          /* default float32 */
} ls_weight;

typedef struct ls_layer_pass {
    ls_tensor *const *inputs;
    size_t input_count;
    ls_tensor *const *weights; /* in the order of ls_layer_weights */
    bool training;
    bool update; /* also build the assignments of moving statistics */
    int64_t random_layer, random_call;
    ls_tensor *earlier[2]; /* updates of the layer's previous call in this trace; NULL: none */
    ls_tensor *updates[2]; /* output, instead of the earlier ones; NULL: none */
    ls_tensor *penalty;    /* output: the activity regularizer's; NULL: none */
    ls_tensor *mask;       /* output of layers of LS_MASK_OWN; NULL: none */
} ls_layer_pass;

/* What a layer does with the mask of its input (ls_tensor.mask). */
typedef enum ls_mask_rule {
    LS_MASK_DEFAULT, /* elementwise layers pass it on, others drop it */
    LS_MASK_PASSES,
    LS_MASK_REFUSES, /* a masked input is an error */
    LS_MASK_JOINS,   /* a step counts where one of the inputs' masks says so; none if an input has none */
    LS_MASK_OWN,     /* the layer's call sets pass->mask */
} ls_mask_rule;

/* A row of a table in layer_*.c. Messages of its functions name option and value; the caller adds
 * the layer. */
typedef struct ls_layer_info {
    ls_layer_kind kind;
    const char *class_name;    /* Keras's name: "MaxPooling2D" */
    const char *base;          /* prefix of default names: "max_pooling2d" */
    const char *function;      /* our constructor: "ls_max_pool2d" */
    const char *positional[4]; /* names of the positional arguments */
    /* Checks the options and fills in defaults; NULL: it has none. */
    ls_status (*resolve)(ls_layer *layer);
    /* Lists the variables for an input of shape x; axis 0 is the batch. NULL: none. */
    ls_status (*weights)(const ls_layer *layer, const ls_shape *x, ls_weight out[LS_MAX_WEIGHTS], size_t *count);
    /* Adds the nodes of one call; *out may be an error tensor. NULL: an input. */
    ls_status (*call)(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out);
    bool many;        /* takes several inputs */
    bool elementwise; /* computes each element by itself and has no weights */
    bool random;      /* draws random numbers in training */
    ls_mask_rule mask;
} ls_layer_info;

/* Returns the row of a kind. LS_LAYER_NONE and unknown kinds have the class name "?". */
const ls_layer_info *ls_layer_info_of(ls_layer_kind kind);

ls_status ls_layer_resolve(const ls_layer *spec, ls_layer *out);

/* Copies the layers inside a wrapper to the arena, with their final names. inner_name: of a layer
 * inside that has none. Does nothing for other layers. */
ls_status ls_wrapper_own(ls_layer *layer, const char *inner_name, ls_arena *arena);
/* The layer inside a wrapper; NULL: it is not one. */
const ls_layer *ls_wrapper_inner(const ls_layer *layer);

/* Replaces the caller's numbers and texts of options by copies. */
ls_status ls_layer_keep_options(ls_layer *layer, ls_arena *arena);

/* Whether a layer is registered by this name; returns its class without the package, and the
 * prefix of Keras's default names (registered.c). */
bool ls_registered_find(const char *name, const char **class_name, const char **base);

/* Ignores names, devices, initializers, regularizers and constraints. */
bool ls_layer_is_same(const ls_layer *a, const ls_layer *b);

/* Checks a weight that a custom model requests directly. */
ls_status ls_weight_check(const ls_weight *weight);

/* Lists the variables of a resolved layer called on `input` (merging layers: the first input). */
ls_status ls_layer_weights(const ls_layer *layer, const ls_shape *input, ls_weight out[LS_MAX_WEIGHTS], size_t *count);

ls_status ls_layer_pass_make(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out);

/* ---- Activations (activation.c) ---- */

/* Numbers of SELU and AlphaDropout, which keep mean 0 and variance 1. */
#define LS_SELU_ALPHA 1.6732632423543772848170429916717
#define LS_SELU_SCALE 1.0507009873554804934193349852946

ls_tensor *ls_activate(ls_tensor *x, ls_activation activation);
/* Keras's name; NULL: unknown activation */
const char *ls_activation_name(ls_activation activation);

/* Adds l1 sum|x| + l2 sum x^2 to `sum`; NULL: nothing, also as the result. */
ls_tensor *ls_penalty(const ls_regularizer *regularizer, ls_tensor *x, ls_tensor *sum);

/* Returns LS_OK, or fails with the message of an error tensor. */
ls_status ls_tensor_check(const ls_tensor *tensor);

#endif
