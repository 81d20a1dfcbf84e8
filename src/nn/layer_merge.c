/* Layers of several inputs: Add, Subtract, Multiply, Average, Maximum, Minimum, CustomScaleLayer,
 * Concatenate and Dot. */
#include <math.h>

#include "nn/layer_family.h"

/* ---- Element by element ---- */

static ls_tensor *merge(const ls_layer *layer, ls_tensor *y, ls_tensor *x)
{
    switch (layer->kind) {
    case LS_LAYER_SUBTRACT:
        return ls_op_sub(y, x);
    case LS_LAYER_MULTIPLY:
        return ls_op_mul(y, x);
    case LS_LAYER_MAXIMUM:
        return ls_op_maximum(y, x);
    case LS_LAYER_MINIMUM:
        return ls_op_minimum(y, x);
    case LS_LAYER_CUSTOM_SCALE:
        return ls_op_add(y, ls_op_scale(x, layer->merge.scale));
    default: /* Add, Average */
        return ls_op_add(y, x);
    }
}

static ls_status need_two(const ls_layer_pass *pass)
{
    return pass->input_count == 2
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "the layer takes two inputs; %zu were given", pass->input_count);
}

/* Inputs of lower rank get axes of size 1 after the batch axis, as in Keras. */
static ls_status call_merge(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    int rank = 0;
    for (size_t i = 0; i < pass->input_count; i++)
        rank = pass->inputs[i]->shape.rank > rank ? pass->inputs[i]->shape.rank : rank;
    ls_tensor *y = NULL;
    for (size_t i = 0; i < pass->input_count; i++) {
        ls_tensor *x = ls_layer_real(pass->inputs[i]);
        int missing = rank - x->shape.rank;
        if (missing > 0) {
            ls_shape sizes = { .rank = rank - 1 };
            for (int a = 0; a < sizes.rank; a++)
                sizes.dims[a] = a < missing ? 1 : x->shape.dims[a - missing + 1];
            x = ls_reshape_samples(x, &sizes);
        }
        y = y ? merge(layer, y, x) : x;
    }
    *out = layer->kind == LS_LAYER_AVERAGE ? ls_op_scale(y, 1.0 / (double)pass->input_count) : y;
    return LS_OK;
}

static ls_status call_two(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    LS_TRY(need_two(pass));
    return call_merge(layer, pass, out);
}

static ls_status resolve_scale(ls_layer *layer)
{
    double *scale = &layer->merge.scale;
    if (*scale == 0 || !(isfinite(*scale)))
        return ls_fail(LS_ERR_INVALID, "scale is %g; it must be finite, and LS_ZERO if you mean 0", *scale);
    ls_resolve_number(scale, 0);
    return LS_OK;
}

/* ---- Concatenate ---- */

static ls_status resolve_concatenate(ls_layer *layer)
{
    if (layer->merge.axis == 0)
        layer->merge.axis = -1;
    return LS_OK;
}

static ls_status call_concatenate(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    int64_t axis = layer->merge.axis;
    ls_tensor *parts[256];
    if (pass->input_count > sizeof(parts) / sizeof(parts[0]))
        return ls_fail(LS_ERR_UNSUPPORTED, "the layer has %zu inputs; it can have %zu", pass->input_count,
                       sizeof(parts) / sizeof(parts[0]));
    LS_TRY(ls_check_axis(&axis, &pass->inputs[0]->shape));
    for (size_t i = 0; i < pass->input_count; i++) {
        parts[i] = ls_layer_real(pass->inputs[i]);
        if (pass->inputs[i]->mask && axis != pass->inputs[i]->shape.rank - 1)
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "input %zu has a mask; masked inputs can be joined along the last axis only", i);
    }
    *out = ls_op_concat(parts, pass->input_count, (int)axis);
    return LS_OK;
}

/* ---- Dot ---- */

static ls_status resolve_dot(ls_layer *layer)
{
    if (layer->merge.first == 0)
        return ls_fail(LS_ERR_INVALID, "the axis is 0, the batch axis, or missing; write ls_dot(1), ls_dot(-1), ...");
    return LS_OK;
}

/* Moves `axis` to the end, and makes one axis of those before it: [N,rows,size]. The sizes of the
 * rows are added to `sizes`. */
static ls_tensor *rows_of(ls_tensor *x, int64_t axis, ls_shape *sizes)
{
    ls_axes order = { .count = x->shape.rank };
    int next = 0;
    for (int i = 0; i < x->shape.rank; i++)
        if (i != axis)
            order.axis[next++] = i;
    order.axis[next] = axis;
    for (int i = 1; i < next; i++)
        sizes->dims[sizes->rank++] = x->shape.dims[order.axis[i]];
    int64_t size = x->shape.dims[axis];
    return ls_reshape_samples(axis == x->shape.rank - 1 ? x : ls_op_transpose(x, order), &LS_SHAPE(LS_REMAINING, size));
}

/* Multiplies the rows of both inputs; its shape has the other axes of the first, then those of the
 * second, or 1 if there are none. */
static ls_status call_dot(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_merge_options *o = &layer->merge;
    int64_t axis[2] = { o->first, o->second ? o->second : o->first };
    ls_shape sizes = { .rank = 0 };
    ls_tensor *rows[2];
    LS_TRY(need_two(pass));
    if (pass->inputs[0]->shape.rank + pass->inputs[1]->shape.rank - 3 > LS_MAX_RANK)
        return ls_fail(LS_ERR_UNSUPPORTED, "the output would have more than %d axes", LS_MAX_RANK);
    for (int i = 0; i < 2; i++) {
        ls_tensor *x = ls_layer_real(pass->inputs[i]);
        LS_TRY(ls_check_axis(&axis[i], &x->shape));
        if (o->normalize)
            x = ls_unit_length(x, (ls_axes){ 1, { axis[i] } }, 1e-7);
        rows[i] = rows_of(x, axis[i], &sizes);
    }
    if (sizes.rank == 0)
        sizes = LS_SHAPE(1);
    *out = ls_reshape_samples(ls_op_matmul(rows[0], rows[1], .transpose_b = true), &sizes);
    return LS_OK;
}

/* ---- Tables ---- */

static const ls_layer_option options[] = {
    LS_OPTION_OF(merge, I64, axis, LS_LAYER_CONCATENATE),
    LS_OPTION_OF(merge, FLAG, normalize, LS_LAYER_DOT),
    LS_OPTION_OF(merge, F64, scale, LS_LAYER_CUSTOM_SCALE),
};

#define MERGE(KIND, class, snake, our, function_)                                                                      \
    {                                                                                                                  \
        .kind = LS_LAYER_##KIND, .class_name = class, .base = snake, .function = our, .call = function_, .many = true, \
        .mask = LS_MASK_JOINS                                                                                          \
    }

static const ls_layer_info kinds[] = {
    MERGE(ADD, "Add", "add", "ls_add", call_merge),
    MERGE(SUBTRACT, "Subtract", "subtract", "ls_subtract", call_two),
    MERGE(MULTIPLY, "Multiply", "multiply", "ls_multiply", call_merge),
    MERGE(AVERAGE, "Average", "average", "ls_average", call_merge),
    MERGE(MAXIMUM, "Maximum", "maximum", "ls_maximum", call_merge),
    MERGE(MINIMUM, "Minimum", "minimum", "ls_minimum", call_merge),
    { .kind = LS_LAYER_CUSTOM_SCALE,
      .class_name = "CustomScaleLayer",
      .base = "custom_scale_layer",
      .function = "ls_custom_scale",
      .resolve = resolve_scale,
      .call = call_two,
      .many = true },
    { .kind = LS_LAYER_DOT,
      .class_name = "Dot",
      .base = "dot",
      .function = "ls_dot",
      .positional = { "axis", "axis of the second input" },
      .resolve = resolve_dot,
      .call = call_dot,
      .many = true },
    { .kind = LS_LAYER_CONCATENATE,
      .class_name = "Concatenate",
      .base = "concatenate",
      .function = "ls_concatenate",
      .resolve = resolve_concatenate,
      .call = call_concatenate,
      .many = true,
      .mask = LS_MASK_JOINS },
};

const ls_layer_family ls_merge_family = LS_LAYER_FAMILY(options, kinds);
