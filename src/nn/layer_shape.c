/* Layers that declare or change the shape of samples: inputs, Flatten and Reshape. */
#include "nn/layer_family.h"

/* ---- Inputs ---- */

static ls_status resolve_input(ls_layer *layer)
{
    ls_input_options *o = &layer->input;
    LS_TRY(ls_resolve_sample(&layer->options, &o->shape));
    if ((unsigned)o->dtype >= LS_DTYPE_COUNT)
        return ls_fail(LS_ERR_DTYPE, "there is no type number %d; use LS_F32, LS_U8, ...", (int)o->dtype);
    for (int i = 0; i < o->shape.rank; i++)
        LS_TRY(ls_check_positive("a size", o->shape.dims[i]));
    return LS_OK;
}

static const ls_layer_option input_options[] = {
    LS_OPTION(input, SHAPE, shape),
    LS_OPTION(input, INT, dtype),
};

static const ls_layer_info input_kinds[] = {
    { .kind = LS_LAYER_INPUT,
      .class_name = "InputLayer",
      .base = "input_layer",
      .function = "ls_input",
      .positional = { "size", "size", "size", "size" },
      .resolve = resolve_input },
};

const ls_layer_family ls_input_family = LS_LAYER_FAMILY(input_options, input_kinds);

/* ---- Flatten and Reshape ---- */

static ls_status resolve_reshape(ls_layer *layer)
{
    ls_shape *shape = &layer->reshape.shape;
    LS_TRY(ls_resolve_sample(&layer->options, shape));
    int rest = 0;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] == -1)
            shape->dims[i] = LS_REMAINING;
        if (shape->dims[i] == LS_REMAINING)
            rest++;
        else
            LS_TRY(ls_check_positive("a size", shape->dims[i]));
    }
    if (rest > 1)
        return ls_fail(LS_ERR_INVALID, "%d sizes are -1; at most one can be", rest);
    return LS_OK;
}

static ls_status call_flatten(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    (void)layer;
    *out = ls_reshape_samples(pass->inputs[0], &LS_SHAPE(LS_REMAINING));
    return LS_OK;
}

static ls_status call_reshape(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    *out = ls_reshape_samples(pass->inputs[0], &layer->reshape.shape);
    return LS_OK;
}

static const ls_layer_option reshape_options[] = { LS_OPTION_OF(reshape, SHAPE, shape, LS_LAYER_RESHAPE) };

static const ls_layer_info reshape_kinds[] = {
    { .kind = LS_LAYER_FLATTEN,
      .class_name = "Flatten",
      .base = "flatten",
      .function = "ls_flatten",
      .call = call_flatten },
    { .kind = LS_LAYER_RESHAPE,
      .class_name = "Reshape",
      .base = "reshape",
      .function = "ls_reshape",
      .positional = { "size", "size", "size", "size" },
      .resolve = resolve_reshape,
      .call = call_reshape },
};

const ls_layer_family ls_reshape_family = LS_LAYER_FAMILY(reshape_options, reshape_kinds);
