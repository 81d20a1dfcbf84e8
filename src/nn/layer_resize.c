/* Layers that resize images: UpSampling1D, UpSampling2D, Resizing and CenterCrop. */
#include "nn/layer_family.h"

#include <math.h>
#include <stdlib.h>

/* ---- Resizing along an axis ---- */

/* Pixel i of the result lies between pixels low[i] and high[i], `part` of the way. */
typedef struct places {
    int32_t *low, *high;
    float *part;
} places;

static ls_status places_alloc(int64_t count, places *out)
{
    out->low = malloc((size_t)count * sizeof *out->low);
    out->high = malloc((size_t)count * sizeof *out->high);
    out->part = malloc((size_t)count * sizeof *out->part);
    return out->low && out->high && out->part ? LS_OK
                                              : ls_fail(LS_ERR_MEMORY, "no memory for %lld pixels", (long long)count);
}

static void places_free(places *p)
{
    free(p->low);
    free(p->high);
    free(p->part);
}

/* The pixel whose area contains the center, in TensorFlow's float arithmetic. */
static void find_nearest(int64_t from, int64_t to, places *p)
{
    float scale = (float)from / (float)to;
    for (int64_t i = 0; i < to; i++) {
        float place = floorf(((float)i + 0.5F) * scale);
        p->low[i] = place < (float)from ? (int32_t)place : (int32_t)from - 1;
    }
}

/* The center of pixel i is at (i + 1/2) from/to - 1/2, in pixels of the input. */
static void find_pairs(int64_t from, int64_t to, places *p)
{
    for (int64_t i = 0; i < to; i++) {
        int64_t place = (2 * i + 1) * from - to; /* times 2 to */
        int64_t low = place < 0 ? 0 : place / (2 * to);
        p->low[i] = (int32_t)low;
        p->high[i] = (int32_t)(place < 0 || low + 1 >= from ? low : low + 1);
        p->part[i] = p->high[i] == low ? 0 : (float)((double)(place % (2 * to)) / (double)(2 * to));
    }
}

static ls_tensor *gather_pixels(ls_tensor *x, int axis, int64_t to, const int32_t *indices)
{
    return ls_op_gather(x, ls_op_constant(x->graph, LS_I32, LS_SHAPE(to), indices), axis);
}

static ls_status resize_axis(ls_tensor **x, int axis, int64_t to, ls_interpolation interpolation)
{
    int64_t from = (*x)->shape.dims[axis];
    places p = { .low = NULL };
    if (from == to)
        return LS_OK;
    ls_status status = places_alloc(to, &p);
    if (status == LS_OK && interpolation == LS_NEAREST) {
        find_nearest(from, to, &p);
        *x = gather_pixels(*x, axis, to, p.low);
    } else if (status == LS_OK) {
        find_pairs(from, to, &p);
        ls_tensor *low = gather_pixels(*x, axis, to, p.low), *high = gather_pixels(*x, axis, to, p.high);
        ls_shape shape = axis == 1 ? LS_SHAPE(to, 1, 1) : LS_SHAPE(to, 1), whole = { .rank = shape.rank };
        for (int i = 0; i < shape.rank; i++)
            whole.dims[i] = low->shape.dims[axis + i];
        /* broadcast once for all samples: kernels multiply whole rows */
        ls_tensor *part = ls_op_broadcast(ls_op_constant((*x)->graph, LS_F32, shape, p.part), whole);
        *x = ls_op_add(low, ls_op_mul(ls_op_sub(high, low), part));
    }
    places_free(&p);
    return status;
}

ls_status ls_resize_images(ls_tensor **x, const int64_t size[2], ls_interpolation interpolation)
{
    LS_TRY(resize_axis(x, 2, size[1], interpolation));
    LS_TRY(ls_tensor_check(*x));
    return resize_axis(x, 1, size[0], interpolation);
}

/* ---- Upsampling ---- */

static ls_status resolve_interpolation(ls_interpolation *value, ls_interpolation preset)
{
    *value = *value == LS_INTERPOLATION_DEFAULT ? preset : *value;
    return *value == LS_NEAREST || *value == LS_BILINEAR
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "interpolation is %d; it must be LS_NEAREST or LS_BILINEAR", (int)*value);
}

static ls_status resolve_up_sampling1d(ls_layer *layer)
{
    layer->options.first = layer->options.first ? layer->options.first : 2;
    return ls_check_positive("size", layer->options.first);
}

static ls_status resolve_up_sampling2d(ls_layer *layer)
{
    ls_resize_options *o = &layer->resize;
    LS_TRY(ls_resolve_sizes("size", o->size, 2, o->first, 2));
    return resolve_interpolation(&o->interpolation, LS_NEAREST);
}

static ls_status call_up_sampling1d(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = pass->inputs[0];
    const int64_t *dims = x->shape.dims, times = layer->options.first;
    LS_TRY(ls_check_sequence(&x->shape));
    x = ls_op_broadcast(ls_reshape_samples(x, &LS_SHAPE(dims[1], 1, dims[2])),
                        LS_SHAPE(dims[0], dims[1], times, dims[2]));
    *out = ls_reshape_samples(x, &LS_SHAPE(LS_REMAINING, dims[2]));
    return LS_OK;
}

static ls_status call_up_sampling2d(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_resize_options *o = &layer->resize;
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    const int64_t *dims = x->shape.dims, *times = o->size;
    LS_TRY(ls_check_image(&x->shape));
    int64_t size[2];
    for (int i = 0; i < 2; i++)
        if (__builtin_mul_overflow(dims[i + 1], times[i], &size[i]) || size[i] > INT32_MAX)
            return ls_fail(LS_ERR_SHAPE, "size is %lld for %lld pixels; the result can have 2^31 - 1",
                           (long long)times[i], (long long)dims[i + 1]);
    if (o->interpolation == LS_BILINEAR) {
        LS_TRY(ls_resize_images(&x, size, LS_BILINEAR));
        *out = x;
        return LS_OK;
    }
    x = ls_op_broadcast(ls_reshape_samples(x, &LS_SHAPE(dims[1], 1, dims[2], 1, dims[3])),
                        LS_SHAPE(dims[0], dims[1], times[0], dims[2], times[1], dims[3]));
    *out = ls_reshape_samples(x, &LS_SHAPE(size[0], size[1], LS_REMAINING));
    return LS_OK;
}

/* ---- Resizing and CenterCrop ---- */

static ls_status resolve_center_crop(ls_layer *layer)
{
    LS_TRY(ls_check_positive("height", layer->options.first));
    LS_TRY(ls_check_positive("width", layer->options.second));
    if (layer->options.first > INT32_MAX || layer->options.second > INT32_MAX)
        return ls_fail(LS_ERR_INVALID, "height is %lld and width is %lld; both must be less than 2^31",
                       (long long)layer->options.first, (long long)layer->options.second);
    return LS_OK;
}

static ls_status resolve_resizing(ls_layer *layer)
{
    ls_resize_options *o = &layer->resize;
    LS_TRY(resolve_center_crop(layer));
    if (o->crop_to_aspect_ratio && o->pad_to_aspect_ratio)
        return ls_fail(LS_ERR_INVALID, "crop_to_aspect_ratio and pad_to_aspect_ratio are both set; choose one");
    ls_resolve_number(&o->fill_value, 0);
    if (!isfinite(o->fill_value))
        return ls_fail(LS_ERR_INVALID, "fill_value is %g; it must be finite", o->fill_value);
    return resolve_interpolation(&o->interpolation, LS_BILINEAR);
}

static ls_tensor *crop_pixels(ls_tensor *x, int64_t top, int64_t left, int64_t height, int64_t width)
{
    return ls_op_slice(x, LS_AXES(0, top, left, 0), LS_AXES(x->shape.dims[0], height, width, -1));
}

/* The size along one axis that gives the aspect ratio of the target, in TensorFlow's float
 * arithmetic: other_size target / other_target. */
static int64_t fitting_size(int64_t other_size, int64_t target, int64_t other_target)
{
    return (int64_t)((float)(other_size * target) / (float)other_target);
}

/* Crops the largest centered part that has the aspect ratio of the target. */
static ls_tensor *crop_to_ratio(ls_tensor *x, const int64_t target[2])
{
    int64_t keep[2];
    for (int i = 0; i < 2; i++) {
        int64_t size = x->shape.dims[i + 1], fits = fitting_size(x->shape.dims[2 - i], target[i], target[1 - i]);
        keep[i] = fits < 1 ? 1 : fits < size ? fits : size;
    }
    return crop_pixels(x, (x->shape.dims[1] - keep[0]) / 2, (x->shape.dims[2] - keep[1]) / 2, keep[0], keep[1]);
}

static ls_tensor *pad_to_ratio(ls_tensor *x, const int64_t target[2], double value)
{
    int64_t side[2];
    for (int i = 0; i < 2; i++) {
        int64_t size = x->shape.dims[i + 1], fits = fitting_size(x->shape.dims[2 - i], target[i], target[1 - i]);
        side[i] = fits > size ? (fits - size) / 2 : 0;
    }
    return ls_op_pad(x, LS_AXES(0, side[0], side[1], 0), LS_AXES(0, side[0], side[1], 0), value);
}

static ls_status call_resizing(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_resize_options *o = &layer->resize;
    const int64_t size[2] = { o->first, o->second };
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    LS_TRY(ls_check_image(&x->shape));
    if (o->crop_to_aspect_ratio)
        x = crop_to_ratio(x, size);
    else if (o->pad_to_aspect_ratio)
        x = pad_to_ratio(x, size, o->fill_value);
    LS_TRY(ls_tensor_check(x));
    LS_TRY(ls_resize_images(&x, size, o->interpolation));
    *out = x;
    return LS_OK;
}

/* A smaller image is cropped to the aspect ratio and enlarged, as in Keras. */
static ls_status call_center_crop(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const int64_t size[2] = { layer->options.first, layer->options.second };
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    LS_TRY(ls_check_image(&x->shape));
    int64_t rows = x->shape.dims[1] - size[0], columns = x->shape.dims[2] - size[1];
    if (rows >= 0 && columns >= 0) {
        *out = crop_pixels(x, rows / 2, columns / 2, size[0], size[1]);
        return LS_OK;
    }
    x = crop_to_ratio(x, size);
    LS_TRY(ls_tensor_check(x));
    LS_TRY(ls_resize_images(&x, size, LS_BILINEAR));
    *out = x;
    return LS_OK;
}

static const ls_layer_option options[] = {
    LS_OPTION_OF(resize, I64, size, LS_LAYER_UP_SAMPLING2D),
    LS_OPTION_OF(resize, INT, interpolation, LS_LAYER_UP_SAMPLING2D, LS_LAYER_RESIZING),
    LS_OPTION_OF(resize, FLAG, crop_to_aspect_ratio, LS_LAYER_RESIZING),
    LS_OPTION_OF(resize, FLAG, pad_to_aspect_ratio, LS_LAYER_RESIZING),
    LS_OPTION_OF(resize, F64, fill_value, LS_LAYER_RESIZING),
};

static const ls_layer_info kinds[] = {
    { .kind = LS_LAYER_UP_SAMPLING1D,
      .class_name = "UpSampling1D",
      .base = "up_sampling1d",
      .function = "ls_up_sampling1d",
      .positional = { "size" },
      .resolve = resolve_up_sampling1d,
      .call = call_up_sampling1d },
    { .kind = LS_LAYER_UP_SAMPLING2D,
      .class_name = "UpSampling2D",
      .base = "up_sampling2d",
      .function = "ls_up_sampling2d",
      .positional = { "size" },
      .resolve = resolve_up_sampling2d,
      .call = call_up_sampling2d },
    { .kind = LS_LAYER_RESIZING,
      .class_name = "Resizing",
      .base = "resizing",
      .function = "ls_resizing",
      .positional = { "height", "width" },
      .resolve = resolve_resizing,
      .call = call_resizing },
    { .kind = LS_LAYER_CENTER_CROP,
      .class_name = "CenterCrop",
      .base = "center_crop",
      .function = "ls_center_crop",
      .positional = { "height", "width" },
      .resolve = resolve_center_crop,
      .call = call_center_crop },
};

const ls_layer_family ls_resize_family = LS_LAYER_FAMILY(options, kinds);
