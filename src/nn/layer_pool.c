/* Pools, and ZeroPadding2D. */
#include "nn/layer_family.h"

#include <string.h>

/* ---- Pools ---- */

static ls_status resolve_pool(ls_layer *layer)
{
    ls_pool_options *o = &layer->pool;
    LS_TRY(ls_resolve_pair("pool_size", o->pool_size, o->first, 2));
    if (o->second == 0 && o->strides[0] == 0 && o->strides[1] == 0)
        o->strides[0] = o->pool_size[0], o->strides[1] = o->pool_size[1];
    LS_TRY(ls_resolve_pair("strides", o->strides, o->second, 0));
    return ls_check_padding(o->padding, o->zero_padding);
}

static ls_status call_pool(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_pool_options *o = &layer->pool;
    ls_pool2d_op op = { .window = { o->pool_size[0], o->pool_size[1] },
                        .stride = { o->strides[0], o->strides[1] },
                        .padding = o->padding };
    if (o->padding == LS_EXPLICIT)
        memcpy(op.pad, o->zero_padding, sizeof op.pad);
    LS_TRY(ls_check_image(&pass->inputs[0]->shape));
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    *out = layer->kind == LS_LAYER_MAX_POOL2D ? ls_op_max_pool2d_with(x, op) : ls_op_average_pool2d_with(x, op);
    return LS_OK;
}

static ls_status call_global_pool(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_axes axes = LS_AXES(1, 2);
    LS_TRY(ls_check_image(&pass->inputs[0]->shape));
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    *out = layer->kind == LS_LAYER_GLOBAL_MAX_POOL2D ? ls_op_reduce_max(x, axes, layer->pool.keepdims)
                                                     : ls_op_reduce_mean(x, axes, layer->pool.keepdims);
    return LS_OK;
}

#define WINDOWS LS_LAYER_MAX_POOL2D, LS_LAYER_AVERAGE_POOL2D
#define GLOBALS LS_LAYER_GLOBAL_MAX_POOL2D, LS_LAYER_GLOBAL_AVERAGE_POOL2D

static const ls_layer_option pool_options[] = {
    LS_OPTION_OF(pool, I64, pool_size, WINDOWS), LS_OPTION_OF(pool, I64, strides, WINDOWS),
    LS_OPTION_OF(pool, INT, padding, WINDOWS),   LS_OPTION_OF(pool, I64, zero_padding, WINDOWS),
    LS_OPTION_OF(pool, FLAG, keepdims, GLOBALS),
};

static const ls_layer_info pool_kinds[] = {
    { .kind = LS_LAYER_MAX_POOL2D,
      .class_name = "MaxPooling2D",
      .base = "max_pooling2d",
      .function = "ls_max_pool2d",
      .positional = { "pool_size", "strides" },
      .resolve = resolve_pool,
      .call = call_pool },
    { .kind = LS_LAYER_AVERAGE_POOL2D,
      .class_name = "AveragePooling2D",
      .base = "average_pooling2d",
      .function = "ls_average_pool2d",
      .positional = { "pool_size", "strides" },
      .resolve = resolve_pool,
      .call = call_pool },
    { .kind = LS_LAYER_GLOBAL_MAX_POOL2D,
      .class_name = "GlobalMaxPooling2D",
      .base = "global_max_pooling2d",
      .function = "ls_global_max_pool2d",
      .call = call_global_pool },
    { .kind = LS_LAYER_GLOBAL_AVERAGE_POOL2D,
      .class_name = "GlobalAveragePooling2D",
      .base = "global_average_pooling2d",
      .function = "ls_global_average_pool2d",
      .call = call_global_pool },
};

const ls_layer_family ls_pool_family = LS_LAYER_FAMILY(pool_options, pool_kinds);

/* ---- Zero padding ---- */

static ls_status resolve_pad(ls_layer *layer)
{
    ls_pad_options *o = &layer->pad;
    bool sides = o->zero_padding[0] || o->zero_padding[1] || o->zero_padding[2] || o->zero_padding[3] ||
                 o->padding == LS_EXPLICIT; /* distinguishes four zeros from unset */
    if (o->padding == LS_SAME)
        return ls_fail(LS_ERR_INVALID, "padding is LS_SAME; give the number of pixels in .zero_padding instead");
    if (sides && o->first != 0)
        return ls_fail(LS_ERR_INVALID, "padding is given twice: as %lld and as .zero_padding", (long long)o->first);
    for (int i = 0; i < 4; i++) {
        if (!sides)
            o->zero_padding[i] = o->first ? o->first : 1;
        if (o->zero_padding[i] < 0)
            return ls_fail(LS_ERR_INVALID, "padding is %lld; it must be at least 0", (long long)o->zero_padding[i]);
    }
    return LS_OK;
}

static ls_status call_pad(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const int64_t *side = layer->pad.zero_padding;
    LS_TRY(ls_check_image(&pass->inputs[0]->shape));
    *out = ls_op_pad(pass->inputs[0], LS_AXES(0, side[0], side[2], 0), LS_AXES(0, side[1], side[3], 0), 0);
    return LS_OK;
}

static const ls_layer_option pad_options[] = {
    LS_OPTION(pad, INT, padding),
    LS_OPTION(pad, I64, zero_padding),
};

static const ls_layer_info pad_kinds[] = {
    { .kind = LS_LAYER_ZERO_PADDING2D,
      .class_name = "ZeroPadding2D",
      .base = "zero_padding2d",
      .function = "ls_zero_padding2d",
      .positional = { "padding" },
      .resolve = resolve_pad,
      .call = call_pad },
};

const ls_layer_family ls_pad_family = LS_LAYER_FAMILY(pad_options, pad_kinds);
