/* Layers of several inputs: Add, Multiply and Concatenate. */
#include "nn/layer_family.h"

/* Add and Multiply: inputs of lower rank get axes of size 1 after the batch axis, as in Keras. */
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
        y = !y ? x : layer->kind == LS_LAYER_ADD ? ls_op_add(y, x) : ls_op_mul(y, x);
    }
    *out = y;
    return LS_OK;
}

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

static const ls_layer_option options[] = { LS_OPTION_OF(merge, I64, axis, LS_LAYER_CONCATENATE) };

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_ADD,
      .class_name = "Add",
      .base = "add",
      .function = "ls_add",
      .call = call_merge,
      .many = true,
      .mask = LS_MASK_JOINS },
    { .kind = LS_LAYER_MULTIPLY,
      .class_name = "Multiply",
      .base = "multiply",
      .function = "ls_multiply",
      .call = call_merge,
      .many = true,
      .mask = LS_MASK_JOINS },
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
