/* The keys of Keras's classes: keras_layer.c reads by them, keras_write.c writes. Nobody else includes this. */
#ifndef LS_NN_KERAS_KEYS_H
#define LS_NN_KERAS_KEYS_H

#include "nn/keras.h"

typedef enum ls_keras_rule {
    NAME,      /* read before the others */
    DTYPE,     /* float32 */
    I64,       /* a whole number from 1 on */
    I64_FIRST, /* likewise, to the places of a spec */
    I64_SECOND,
    PAIR,         /* [3, 3], or 3 */
    PAIR_OR_NULL, /* likewise; null: the default */
    BOOL,         /* to a bool */
    NOT,          /* to a bool that says the opposite */
    F64,          /* a number */
    F64_OR_NULL,  /* likewise; null: the default */
    PADDING,
    SIDES, /* [[1, 1], [1, 1]] */
    ACTIVATION,
    INITIALIZER,
    REGULARIZER,
    AXIS,      /* -1, or [-1] */
    LAST_AXES, /* [-2, -1]: all up to the last */
    SIZES,     /* [7, 7, 64], one may be -1 */
    MUST_BE_NULL,
    MUST_BE_FALSE,
    MUST_BE_LAST, /* "channels_last" */
    ANY,          /* whatever: it means something only beside a key that must be false */
} ls_keras_rule;

typedef struct ls_keras_key {
    const char *name;
    ls_keras_rule rule;
    size_t offset; /* in ls_layer_options */
} ls_keras_key;

typedef struct ls_keras_class {
    const char *name;
    ls_layer_kind kind;
    const ls_keras_key *keys; /* up to one without a name; NULL: an input, which has others */
} ls_keras_class;

typedef struct ls_keras_initializer {
    const char *name, *snake;
    ls_initializer_kind kind;
    const char *a, *b; /* keys of its numbers; NULL: none */
} ls_keras_initializer;

/* NULL: there is none. */
const ls_keras_class *ls_keras_class_of(ls_layer_kind kind);
const ls_keras_initializer *ls_keras_initializer_of(ls_initializer_kind kind); /* not of VarianceScaling */

#endif
