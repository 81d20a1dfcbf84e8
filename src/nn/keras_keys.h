/* Keys of Keras's classes, for keras_classes.c, keras_layer.c and keras_write.c. */
#ifndef LS_NN_KERAS_KEYS_H
#define LS_NN_KERAS_KEYS_H

#include "nn/keras.h"

typedef enum ls_keras_rule {
    NAME,         /* read first */
    DTYPE,        /* must be float32 */
    I64,          /* integer >= 1 */
    ARGUMENT,     /* integer, stored as a positional argument */
    PAIR,         /* [3, 3], or 3 */
    PAIR_OR_NULL, /* PAIR; null: the default */
    BOOL,         /* stored in a bool */
    NOT,          /* stored negated in a bool */
    F64,          /* a number */
    F64_OR_NULL,  /* F64; null: the default */
    PADDING,
    SIDES, /* [[1, 1], [1, 1]], of ls_pad_options */
    ACTIVATION,
    INITIALIZER,
    REGULARIZER,
    CONSTRAINT,
    AXIS,      /* -1, or [-1] */
    LAST_AXES, /* [-2, -1]: consecutive axes up to the last */
    SIZES,     /* [7, 7, 64]; one may be -1 */
    MUST_BE_NULL,
    MUST_BE_FALSE,
    MUST_BE_LAST, /* must be "channels_last" */
    ANY,          /* ignored: has an effect only with a key that must be false */
} ls_keras_rule;

typedef struct ls_keras_key {
    const char *name;
    ls_keras_rule rule;
    size_t offset; /* offset in the options of the layer's family */
} ls_keras_key;

typedef struct ls_keras_class {
    const char *name;
    ls_layer_kind kind;
    const ls_keras_key *keys; /* ends with a NULL name; NULL: an input, which is read separately */
} ls_keras_class;

typedef struct ls_keras_initializer {
    const char *name, *snake;
    ls_initializer_kind kind;
    const char *a, *b; /* keys of its numbers, or NULL */
} ls_keras_initializer;

extern const ls_keras_class ls_keras_classes[];
extern const size_t ls_keras_class_count;
/* Return NULL if Keras has no such class. */
const ls_keras_class *ls_keras_class_of(ls_layer_kind kind);
/* Not for VarianceScaling. */
const ls_keras_initializer *ls_keras_initializer_of(ls_initializer_kind kind);

#endif
