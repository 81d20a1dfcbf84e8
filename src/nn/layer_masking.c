/* Masks: what layers do with those of their inputs, and the layer Masking. */
#include "graph/rules.h"
#include "nn/layer_family.h"

static bool any_mask(const ls_layer_pass *pass)
{
    for (size_t i = 0; i < pass->input_count; i++)
        if (pass->inputs[i]->mask)
            return true;
    return false;
}

ls_status ls_mask_check(const ls_layer_info *info, const ls_layer_pass *pass)
{
    if (info->mask == LS_MASK_REFUSES && any_mask(pass))
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "the input has a mask, which this layer cannot take into account; remove the mask (Masking, or "
                       "mask_zero of an Embedding), or put a layer between them that drops it");
    return LS_OK;
}

/* or(a, b) of bools */
static ls_tensor *either(ls_tensor *a, ls_tensor *b)
{
    return ls_op_select(a, a, b);
}

static ls_tensor *joined_mask(const ls_layer_pass *pass)
{
    ls_tensor *mask = pass->inputs[0]->mask;
    for (size_t i = 1; i < pass->input_count && mask; i++) {
        ls_tensor *other = pass->inputs[i]->mask;
        mask = !other ? NULL : other == mask ? mask : either(mask, other);
    }
    return mask;
}

ls_status ls_mask_set(const ls_layer_info *info, const ls_layer_pass *pass, ls_tensor **y)
{
    bool passes = info->mask == LS_MASK_PASSES || (info->mask == LS_MASK_DEFAULT && info->elementwise);
    ls_tensor *mask = info->mask == LS_MASK_OWN     ? pass->mask
                      : info->mask == LS_MASK_JOINS ? joined_mask(pass)
                      : passes                      ? pass->inputs[0]->mask
                                                    : NULL;
    if (mask)
        LS_TRY(ls_tensor_check(mask));
    if ((*y)->mask != mask && (*y)->mask) {
        /* The layer returns its input: another tensor of the same value. */
        *y = ls_op_reshape(*y, (*y)->shape);
        LS_TRY(ls_tensor_check(*y));
    }
    if (mask)
        (*y)->mask = mask;
    return LS_OK;
}

/* ---- Masking ---- */

static ls_status resolve_masking(ls_layer *layer)
{
    ls_resolve_number(&layer->masking.mask_value, 0);
    return LS_OK;
}

static ls_status call_masking(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    LS_TRY(ls_check_rank(&x->shape, 3, 3, "an input of 3 axes (batch, steps, numbers)"));
    ls_tensor *value = ls_scalar_like(x, layer->masking.mask_value), *zero = ls_scalar_like(x, 0);
    ls_tensor *differs = ls_op_cast(ls_op_compare(x, LS_NOT_EQUAL, value), LS_F32);
    ls_tensor *counts = ls_op_compare(ls_op_reduce_max(differs, LS_AXES(2), true), LS_GREATER, zero);
    *out = ls_op_select(counts, x, zero);
    pass->mask = ls_op_reshape(counts, LS_SHAPE(x->shape.dims[0], x->shape.dims[1]));
    return LS_OK;
}

static const ls_layer_option options[] = { LS_OPTION(masking, F64, mask_value) };

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_MASKING,
      .class_name = "Masking",
      .base = "masking",
      .function = "ls_masking",
      .resolve = resolve_masking,
      .call = call_masking,
      .mask = LS_MASK_OWN },
};

const ls_layer_family ls_masking_family = LS_LAYER_FAMILY(options, kinds);
