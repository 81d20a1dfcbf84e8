/* Keys of Keras's classes, for keras_classes.c, keras_layer.c and keras_write.c. */
#ifndef LS_NN_KERAS_KEYS_H
#define LS_NN_KERAS_KEYS_H

#include "nn/keras.h"

typedef enum ls_keras_rule {
    NAME,         /* read first */
    DTYPE,        /* must be float32 */
    I64,          /* integer >= 1; also [3] */
    ARGUMENT,     /* integer, stored as a positional argument */
    PAIR,         /* [3, 3], or 3 */
    PAIR_OR_NULL, /* PAIR; null: the default */
    I64_OR_NULL,  /* I64; null: the default */
    EXTRA,        /* [0], or 0; null: the default; 0 is stored as -1 */
    EXTRA_PAIR,   /* the same for [0, 1] */
    BOOL,         /* stored in a bool */
    NOT,          /* stored negated in a bool */
    F64,          /* a number */
    F64_OR_NULL,  /* F64; null: the default */
    PADDING,
    CAUSAL_PADDING, /* PADDING, or "causal" */
    SIDES,          /* [[1, 1], [1, 1]], of ls_pad_options */
    ENDS,           /* [1, 1], of ls_pad_options */
    INTERPOLATION,
    FILL_MODE,
    FLIP_MODE,
    FACTOR,         /* 0.1, or [0, 0.1]; of two doubles */
    FACTOR_OR_NULL, /* FACTOR; null: the default */
    LIMITS,         /* [0, 255] */
    FILL_VALUES,    /* 0.5, or [0, 0.5, 1]; null: the default */
    SEED,           /* an integer; null: the default; 0 is stored as -1 */
    ACTIVATION,
    GATE,  /* ACTIVATION of a recurrent layer, whose default is not linear */
    LAYER, /* a layer inside a wrapper; null: none */
    MERGE_MODE,
    INITIALIZER,
    REGULARIZER,
    CONSTRAINT,
    ACTIVITY,    /* a regularizer; written only if there is one, since not every class has the key */
    AXIS,        /* -1, or [-1] */
    AXES,        /* [-2, -1], -1, or null: none */
    DOT_AXES,    /* 1, or [1, 2]: an axis of each input, stored as positional arguments */
    NUMBERS,     /* [0.5, 1], 0.5, or null: none */
    SIZES,       /* [7, 7, 64]; one may be -1 */
    DIMS,        /* [2, 1]: a permutation */
    NOISE_SHAPE, /* [null, 1, 8], or null: the input's sizes */
    MUST_BE_NULL,
    MUST_BE_FALSE,
    MUST_BE_ZERO,
    MUST_BE_LAST,     /* must be "channels_last" */
    MUST_BE_CONSTANT, /* must be "constant" */
    ANY,              /* ignored: has an effect only with a key that must be false */
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

/* ---- Lists (keras_lists.c); writers return NULL if out of memory ---- */

ls_status ls_keras_read_axes(const ls_json_at *at, ls_axes *out);
json_t *ls_keras_write_axes(const ls_axes *axes);
ls_status ls_keras_read_dot_axes(const ls_json_at *at, ls_layer_options *out);
json_t *ls_keras_write_dot_axes(const ls_layer_options *options);
/* The numbers are valid as long as the root. */
ls_status ls_keras_read_numbers(const ls_json_at *at, ls_numbers *out);
json_t *ls_keras_write_numbers(const ls_numbers *numbers);
ls_status ls_keras_read_noise_shape(const ls_json_at *at, ls_shape *out);
json_t *ls_keras_write_noise_shape(const ls_shape *shape);

typedef struct ls_keras_initializer {
    const char *name, *snake;
    ls_initializer_kind kind;
    const char *a, *b; /* keys of its numbers, or NULL */
} ls_keras_initializer;

extern const ls_keras_class ls_keras_classes[];
extern const size_t ls_keras_class_count;
/* Keras's words by ls_fill_mode and ls_flip_mode, from 1 on; they end with NULL. */
extern const char *const ls_keras_fill_modes[], *const ls_keras_flip_modes[];
/* Return NULL if Keras has no such class. */
const ls_keras_class *ls_keras_class_of(ls_layer_kind kind);
/* By ls_merge_mode. */
extern const char *const ls_keras_merge_modes[4];
/* Not for VarianceScaling. */
const ls_keras_initializer *ls_keras_initializer_of(ls_initializer_kind kind);

/* Read values of configs (keras_objects.c). An explicit 0 becomes LS_ZERO. */
ls_status ls_keras_read_number(const ls_json_at *at, double *out);
ls_status ls_keras_read_initializer(const ls_json_at *at, ls_initializer *out);
ls_status ls_keras_read_regularizer(const ls_json_at *at, ls_regularizer *out);
ls_status ls_keras_read_constraint(const ls_json_at *at, ls_constraint *out);

#endif
