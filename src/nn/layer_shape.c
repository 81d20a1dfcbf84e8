/* Layers that declare or change the shape of samples: inputs, Flatten, Reshape, Permute and
 * RepeatVector. */
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

/* ---- Flatten, Reshape, Permute, RepeatVector ---- */

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

/* dims: a permutation of 1, 2, ... */
static ls_status resolve_permute(ls_layer *layer)
{
    ls_shape *dims = &layer->reshape.shape;
    char text[LS_SHAPE_TEXT];
    unsigned seen = 0;
    LS_TRY(ls_resolve_sample(&layer->options, dims));
    for (int i = 0; i < dims->rank; i++)
        if (dims->dims[i] >= 1 && dims->dims[i] <= dims->rank)
            seen |= 1U << (dims->dims[i] - 1);
    if (dims->rank == 0 || seen != (1U << dims->rank) - 1)
        return ls_fail(LS_ERR_INVALID, "dims is %s; it must have each of 1 to %d once", ls_shape_format(dims, text),
                       dims->rank > 0 ? dims->rank : 1);
    return LS_OK;
}

static ls_status call_permute(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_shape *dims = &layer->reshape.shape;
    ls_tensor *x = pass->inputs[0];
    ls_axes axes = { .count = dims->rank + 1 };
    if (x->shape.rank != axes.count)
        return ls_fail(LS_ERR_SHAPE, "dims has %d numbers, but a sample has %d axes", dims->rank, x->shape.rank - 1);
    for (int i = 0; i < dims->rank; i++)
        axes.axis[i + 1] = dims->dims[i];
    *out = ls_op_transpose(x, axes);
    return LS_OK;
}

static ls_status resolve_repeat(ls_layer *layer)
{
    return ls_check_positive("n", layer->options.first);
}

/* [N,C] becomes [N,n,C] */
static ls_status call_repeat(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = pass->inputs[0];
    LS_TRY(ls_check_rank(&x->shape, 2, 2, "an input of 2 axes (batch, features)"));
    int64_t batch = x->shape.dims[0], width = x->shape.dims[1];
    *out = ls_op_broadcast(ls_reshape_samples(x, &LS_SHAPE(1, width)), LS_SHAPE(batch, layer->options.first, width));
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

static const ls_layer_option reshape_options[] = {
    LS_OPTION_OF(reshape, SHAPE, shape, LS_LAYER_RESHAPE, LS_LAYER_PERMUTE),
};

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
    { .kind = LS_LAYER_PERMUTE,
      .class_name = "Permute",
      .base = "permute",
      .function = "ls_permute",
      .positional = { "dim", "dim", "dim", "dim" },
      .resolve = resolve_permute,
      .call = call_permute },
    { .kind = LS_LAYER_REPEAT_VECTOR,
      .class_name = "RepeatVector",
      .base = "repeat_vector",
      .function = "ls_repeat_vector",
      .positional = { "n" },
      .resolve = resolve_repeat,
      .call = call_repeat },
};

const ls_layer_family ls_reshape_family = LS_LAYER_FAMILY(reshape_options, reshape_kinds);
