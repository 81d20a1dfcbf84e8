/* Pools; zero padding and cropping. A pool over sequences [N,T,C] is one over images [N,1,T,C]. */
#include "graph/rules.h"
#include "nn/layer_family.h"

#include <string.h>

/* ---- Pools ---- */

static bool is_1d(const ls_layer *layer)
{
    return layer->kind == LS_LAYER_MAX_POOL1D || layer->kind == LS_LAYER_AVERAGE_POOL1D ||
           layer->kind == LS_LAYER_GLOBAL_MAX_POOL1D || layer->kind == LS_LAYER_GLOBAL_AVERAGE_POOL1D ||
           layer->kind == LS_LAYER_ZERO_PADDING1D || layer->kind == LS_LAYER_CROPPING1D;
}

static ls_status resolve_pool(ls_layer *layer)
{
    ls_pool_options *o = &layer->pool;
    int axes = is_1d(layer) ? 1 : 2;
    LS_TRY(ls_resolve_sizes("pool_size", o->pool_size, axes, o->first, 2));
    if (o->second == 0 && o->strides[0] == 0 && o->strides[1] == 0)
        memcpy(o->strides, o->pool_size, sizeof o->strides);
    else
        LS_TRY(ls_resolve_sizes("strides", o->strides, axes, o->second, 0));
    return ls_check_padding(o->padding, o->zero_padding, axes);
}

static ls_status call_pool(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_pool_options *o = &layer->pool;
    bool max = layer->kind == LS_LAYER_MAX_POOL2D || layer->kind == LS_LAYER_MAX_POOL1D;
    int axes = is_1d(layer) ? 1 : 2, at = 2 - axes; /* the first axis that has a window */
    ls_pool2d_op op = { .window = { 1, 1 }, .stride = { 1, 1 }, .padding = o->padding };
    memcpy(op.window + at, o->pool_size, (size_t)axes * sizeof *op.window);
    memcpy(op.stride + at, o->strides, (size_t)axes * sizeof *op.stride);
    memcpy(op.pad + 2 * at, o->zero_padding, (size_t)axes * 2 * sizeof *op.pad);
    LS_TRY(is_1d(layer) ? ls_check_sequence(&pass->inputs[0]->shape) : ls_check_image(&pass->inputs[0]->shape));
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    x = is_1d(layer) ? ls_sequence_to_image(x) : x;
    x = max ? ls_op_max_pool2d_with(x, op) : ls_op_average_pool2d_with(x, op);
    *out = is_1d(layer) ? ls_image_to_sequence(x) : x;
    return LS_OK;
}

/* Mean over the steps that count, as in Keras. */
static ls_tensor *masked_average(ls_tensor *x, ls_tensor *mask, bool keep)
{
    ls_tensor *counts = ls_op_with_last_axis(ls_op_cast(mask, LS_F32));
    return ls_op_div(ls_op_reduce_sum(ls_op_mul(x, counts), LS_AXES(1), keep),
                     ls_op_reduce_sum(counts, LS_AXES(1), keep));
}

static ls_status call_global_pool(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_axes axes = LS_AXES(1, 2);
    bool max = layer->kind == LS_LAYER_GLOBAL_MAX_POOL2D || layer->kind == LS_LAYER_GLOBAL_MAX_POOL1D;
    bool keep = layer->pool.keepdims;
    LS_TRY(is_1d(layer) ? ls_check_sequence(&pass->inputs[0]->shape) : ls_check_image(&pass->inputs[0]->shape));
    ls_tensor *x = ls_layer_real(pass->inputs[0]), *mask = pass->inputs[0]->mask;
    if (mask && layer->kind == LS_LAYER_GLOBAL_AVERAGE_POOL1D) {
        *out = masked_average(x, mask, keep);
        return LS_OK;
    }
    x = is_1d(layer) ? ls_sequence_to_image(x) : x;
    x = max ? ls_op_reduce_max(x, axes, keep) : ls_op_reduce_mean(x, axes, keep);
    *out = is_1d(layer) && keep ? ls_image_to_sequence(x) : x;
    return LS_OK;
}

#define WINDOWS LS_LAYER_MAX_POOL2D, LS_LAYER_AVERAGE_POOL2D, LS_LAYER_MAX_POOL1D, LS_LAYER_AVERAGE_POOL1D
#define GLOBALS                                                                                                        \
    LS_LAYER_GLOBAL_MAX_POOL2D, LS_LAYER_GLOBAL_AVERAGE_POOL2D, LS_LAYER_GLOBAL_MAX_POOL1D,                            \
        LS_LAYER_GLOBAL_AVERAGE_POOL1D

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
    { .kind = LS_LAYER_MAX_POOL1D,
      .class_name = "MaxPooling1D",
      .base = "max_pooling1d",
      .function = "ls_max_pool1d",
      .positional = { "pool_size", "strides" },
      .resolve = resolve_pool,
      .call = call_pool },
    { .kind = LS_LAYER_AVERAGE_POOL1D,
      .class_name = "AveragePooling1D",
      .base = "average_pooling1d",
      .function = "ls_average_pool1d",
      .positional = { "pool_size", "strides" },
      .resolve = resolve_pool,
      .call = call_pool },
    { .kind = LS_LAYER_GLOBAL_MAX_POOL1D,
      .class_name = "GlobalMaxPooling1D",
      .base = "global_max_pooling1d",
      .function = "ls_global_max_pool1d",
      .call = call_global_pool },
    { .kind = LS_LAYER_GLOBAL_AVERAGE_POOL1D,
      .class_name = "GlobalAveragePooling1D",
      .base = "global_average_pooling1d",
      .function = "ls_global_average_pool1d",
      .call = call_global_pool },
};

const ls_layer_family ls_pool_family = LS_LAYER_FAMILY(pool_options, pool_kinds);

/* ---- Zero padding and cropping ---- */

/* Resolves the numbers of a side: given each, by the argument, or the default. */
static ls_status resolve_sides(const ls_layer *layer, const char *name, int64_t sides[4], int64_t preset)
{
    const ls_pad_options *o = &layer->pad;
    int count = is_1d(layer) ? 2 : 4;
    bool given = o->padding == LS_EXPLICIT; /* distinguishes zeros from unset */
    for (int i = 0; i < 4; i++) {
        given = given || sides[i] != 0;
        if (i >= count && sides[i] != 0)
            return ls_fail(LS_ERR_INVALID, "%s has more than two numbers; this layer takes { begin, end }", name);
    }
    if (o->padding == LS_SAME || o->padding == LS_CAUSAL)
        return ls_fail(LS_ERR_INVALID, "padding is %s; give the number of pixels in .%s instead",
                       o->padding == LS_SAME ? "LS_SAME" : "LS_CAUSAL", name);
    if (given && o->first != 0)
        return ls_fail(LS_ERR_INVALID, "%s is given twice: as %lld and as .%s", name, (long long)o->first, name);
    for (int i = 0; i < count; i++) {
        if (!given)
            sides[i] = o->first ? o->first : preset;
        if (sides[i] < 0)
            return ls_fail(LS_ERR_INVALID, "%s is %lld; it must be at least 0", name, (long long)sides[i]);
    }
    return LS_OK;
}

static ls_status resolve_pad(ls_layer *layer)
{
    return resolve_sides(layer, "zero_padding", layer->pad.zero_padding, 1);
}

static ls_status resolve_crop(ls_layer *layer)
{
    return resolve_sides(layer, "cropping", layer->pad.cropping, is_1d(layer) ? 1 : 0);
}

static ls_status call_pad(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const int64_t *side = layer->pad.zero_padding;
    if (is_1d(layer)) {
        LS_TRY(ls_check_sequence(&pass->inputs[0]->shape));
        *out = ls_op_pad(pass->inputs[0], LS_AXES(0, side[0], 0), LS_AXES(0, side[1], 0), 0);
        return LS_OK;
    }
    LS_TRY(ls_check_image(&pass->inputs[0]->shape));
    *out = ls_op_pad(pass->inputs[0], LS_AXES(0, side[0], side[2], 0), LS_AXES(0, side[1], side[3], 0), 0);
    return LS_OK;
}

static ls_status call_crop(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_shape *x = &pass->inputs[0]->shape;
    const int64_t *side = layer->pad.cropping;
    LS_TRY(is_1d(layer) ? ls_check_sequence(x) : ls_check_image(x));
    ls_axes begin = { .count = x->rank }, size = { .count = x->rank, .axis = { x->dims[0], -1, -1, -1 } };
    for (int i = 1; i < x->rank - 1; i++, side += 2) {
        if (side[0] + side[1] >= x->dims[i])
            return ls_fail(LS_ERR_SHAPE, "cropping (%lld, %lld) leaves nothing of the %lld elements of axis %d",
                           (long long)side[0], (long long)side[1], (long long)x->dims[i], i);
        begin.axis[i] = side[0];
        size.axis[i] = x->dims[i] - side[0] - side[1];
    }
    *out = ls_op_slice(pass->inputs[0], begin, size);
    return LS_OK;
}

#define PADS  LS_LAYER_ZERO_PADDING1D, LS_LAYER_ZERO_PADDING2D
#define CROPS LS_LAYER_CROPPING1D, LS_LAYER_CROPPING2D

static const ls_layer_option pad_options[] = {
    LS_OPTION(pad, INT, padding),
    LS_OPTION_OF(pad, I64, zero_padding, PADS),
    LS_OPTION_OF(pad, I64, cropping, CROPS),
};

static const ls_layer_info pad_kinds[] = {
    { .kind = LS_LAYER_ZERO_PADDING2D,
      .class_name = "ZeroPadding2D",
      .base = "zero_padding2d",
      .function = "ls_zero_padding2d",
      .positional = { "padding" },
      .resolve = resolve_pad,
      .call = call_pad },
    { .kind = LS_LAYER_ZERO_PADDING1D,
      .class_name = "ZeroPadding1D",
      .base = "zero_padding1d",
      .function = "ls_zero_padding1d",
      .positional = { "padding" },
      .resolve = resolve_pad,
      .call = call_pad },
    { .kind = LS_LAYER_CROPPING1D,
      .class_name = "Cropping1D",
      .base = "cropping1d",
      .function = "ls_cropping1d",
      .positional = { "cropping" },
      .resolve = resolve_crop,
      .call = call_crop },
    { .kind = LS_LAYER_CROPPING2D,
      .class_name = "Cropping2D",
      .base = "cropping2d",
      .function = "ls_cropping2d",
      .positional = { "cropping" },
      .resolve = resolve_crop,
      .call = call_crop },
};

const ls_layer_family ls_pad_family = LS_LAYER_FAMILY(pad_options, pad_kinds);
