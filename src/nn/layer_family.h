/* Families of layers, each with a table of options and a table of kinds in layer_*.c. */
#ifndef LS_NN_LAYER_FAMILY_H
#define LS_NN_LAYER_FAMILY_H

#include <stddef.h>

#include "graph/init.h"
#include "nn/layer.h"

typedef enum ls_layer_option_type {
    LS_LAYER_OPTION_I64, /* also arrays */
    LS_LAYER_OPTION_INT, /* also enums */
    LS_LAYER_OPTION_F64, /* also arrays */
    LS_LAYER_OPTION_FLAG,
    LS_LAYER_OPTION_INITIALIZER,
    LS_LAYER_OPTION_REGULARIZER,
    LS_LAYER_OPTION_SHAPE,
    LS_LAYER_OPTION_LAYER,
    LS_LAYER_OPTION_AXES,
    LS_LAYER_OPTION_NUMBERS,
    LS_LAYER_OPTION_TEXT,
} ls_layer_option_type;

/* An option of a family that is not in ls_layer_options. */
typedef struct ls_layer_option {
    const char *name;
    ls_layer_option_type type;
    size_t offset, bytes; /* in the family's struct */
    /* Kinds that have it; LS_LAYER_NONE first: all kinds of the family */
    ls_layer_kind only[8];
} ls_layer_option;

/* Options of all kinds of the family, and of some. */
#define LS_OPTION(family, type, field)                                                                                 \
    {                                                                                                                  \
#field, LS_LAYER_OPTION_##type, offsetof(ls_##family##_options, field),                                        \
            sizeof(((ls_##family##_options *)0)->field),                                                               \
        {                                                                                                              \
            LS_LAYER_NONE                                                                                              \
        }                                                                                                              \
    }
#define LS_OPTION_OF(family, type, field, ...)                                                                         \
    {                                                                                                                  \
#field, LS_LAYER_OPTION_##type, offsetof(ls_##family##_options, field),                                        \
            sizeof(((ls_##family##_options *)0)->field),                                                               \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
/* Rows for LS_KERNEL_OPTIONS_. */
#define LS_OPTIONS_KERNEL(family)                                                                                      \
    LS_OPTION(family, INT, activation), LS_OPTION(family, FLAG, no_bias),                                              \
        LS_OPTION(family, INITIALIZER, kernel_initializer), LS_OPTION(family, INITIALIZER, bias_initializer),          \
        LS_OPTION(family, REGULARIZER, kernel_regularizer), LS_OPTION(family, REGULARIZER, bias_regularizer)

typedef struct ls_layer_family {
    const ls_layer_option *options;
    size_t option_count;
    const ls_layer_info *kinds;
    size_t kind_count;
} ls_layer_family;
#define LS_LAYER_FAMILY(options, kinds)                                                                                \
    {                                                                                                                  \
        options, sizeof(options) / sizeof(options[0]), kinds, sizeof(kinds) / sizeof(kinds[0])                         \
    }

extern const ls_layer_family ls_input_family, ls_nested_family, ls_dense_family, ls_conv_family, ls_pool_family,
    ls_pad_family, ls_norm_family, ls_embedding_family, ls_activation_family, ls_dropout_family, ls_reshape_family,
    ls_merge_family, ls_rescaling_family, ls_normalization_family, ls_registered_family, ls_layer_scale_family,
    ls_recurrent_family, ls_masking_family, ls_wrapper_family, ls_resize_family, ls_augment_family;

/* ---- Checks and defaults (layer_checks.c) ---- */

extern const ls_initializer ls_zeros, ls_ones;

/* Replaces 0 by the default and LS_ZERO by 0. */
void ls_resolve_number(double *value, double preset);
ls_status ls_resolve_activation(ls_activation activation);
/* If only one value is given, both are equal; if none is, uses `argument`, then `preset`. With one
 * axis only one value can be given, and the other becomes 1. */
ls_status ls_resolve_sizes(const char *name, int64_t pair[2], int axes, int64_t argument, int64_t preset);
/* Uses the positional arguments if `shape` is not given. */
ls_status ls_resolve_sample(const ls_layer_options *o, ls_shape *shape);
ls_status ls_check_regularizer(const char *name, const ls_regularizer *value);
ls_status ls_check_padding(ls_padding padding, const int64_t zero_padding[4], int axes);
ls_status ls_check_positive(const char *name, int64_t value);

/* Check the rank of a call's input, which includes the batch axis. */
ls_status ls_check_rank(const ls_shape *x, int least, int most, const char *what);
ls_status ls_check_image(const ls_shape *x);
ls_status ls_check_sequence(const ls_shape *x);
/* Counts a negative axis from the front; fails for the batch axis. */
ls_status ls_check_axis(int64_t *axis, const ls_shape *shape);
/* The same for a list; sorts it, and fails for an axis that is given twice. */
ls_status ls_check_axes(const ls_axes *axes, const ls_shape *shape, ls_axes *out);
/* Returns the sizes of such axes. */
ls_shape ls_sizes_of_axes(const ls_shape *shape, const ls_axes *axes);

/* ---- Layers with a kernel, a bias and an activation (layer_dense.c) ---- */

/* layer->dense reads the options of every layer with a kernel. */
ls_status ls_resolve_kernel(ls_layer *layer);
void ls_add_kernel(const ls_layer *layer, ls_shape shape, int64_t bias_width, ls_weight *out, size_t *count);
/* Adds the bias, weights[bias], and applies the activation. */
ls_tensor *ls_finish_kernel(const ls_layer *layer, const ls_layer_pass *pass, ls_tensor *y, size_t bias);

/* ---- Masks (layer_masking.c) ---- */

/* Fails if the layer refuses the mask of an input; gives the output of a call its mask. */
ls_status ls_mask_check(const ls_layer_info *info, const ls_layer_pass *pass);
ls_status ls_mask_set(const ls_layer_info *info, const ls_layer_pass *pass, ls_tensor **y);

/* ---- Recurrent layers (layer_recurrent.c) ---- */

bool ls_layer_is_recurrent(const ls_layer *layer);
/* y [N,T,units] stays in the order of the input's steps. */
ls_status ls_recurrent_call(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **y);
/* The output of the step that is computed last. */
ls_tensor *ls_recurrent_last(const ls_layer *layer, ls_tensor *y);
/* The steps from the last to the first. */
ls_tensor *ls_recurrent_turn(ls_tensor *y);

/* ---- Parts of calls ---- */

/* The variable is trained unless the layer is frozen. */
void ls_add_weight(const ls_layer *layer, const char *name, ls_shape shape, ls_initializer initializer,
                   ls_regularizer regularizer, ls_weight *out, size_t *count);
/* Converts to float32, in which layers compute. */
ls_tensor *ls_layer_real(ls_tensor *x);
ls_tensor *ls_reshape_samples(ls_tensor *x, const ls_shape *sizes);
/* Gives a weight of `axes`, or of the last of them, the rank of x. */
ls_tensor *ls_along_axes(ls_tensor *weight, const ls_tensor *x, const ls_axes *axes);
/* Divides by the square root of the sum of squares over `axes`, which counts as at least
 * epsilon. */
ls_tensor *ls_unit_length(ls_tensor *x, ls_axes axes, double epsilon);
/* [N,T,C] as [N,1,T,C], and back. */
ls_tensor *ls_sequence_to_image(ls_tensor *x);
ls_tensor *ls_image_to_sequence(ls_tensor *x);
/* Resizes images [N,H,W,C] along W, then along H (layer_resize.c). */
ls_status ls_resize_images(ls_tensor **x, const int64_t size[2], ls_interpolation interpolation);

#endif
