/* Layers that change images randomly in training: RandomFlip, RandomTranslation, RandomCrop,
 * RandomZoom, RandomRotation, RandomContrast, RandomBrightness and RandomErasing. A random number
 * depends on the run's seed, the layer (or its own seed), the call and the sample's index in the
 * whole batch, as those of Dropout. */
#include <math.h>
#include <stdlib.h>

#include "graph/rules.h"
#include "nn/layer_family.h"

/* ---- Options ---- */

static double number(double value)
{
    return value == LS_ZERO ? 0 : value;
}

/* Sets an ordered pair, in which LS_ZERO is 0, so that {0, 0} remains unset. */
static void set_pair(double pair[2], double a, double b)
{
    double low = a < b ? a : b, high = a < b ? b : a;
    pair[0] = low == 0 ? LS_ZERO : low;
    pair[1] = high == 0 ? LS_ZERO : high;
}

/* Resolves { f } to -f..f, but not below `low`, and { a, b } to a..b. */
static ls_status resolve_factor(const char *name, double pair[2], double low, double high)
{
    if (pair[0] == 0 && pair[1] == 0)
        return ls_fail(LS_ERR_INVALID, "%s is missing; use .%s = { 0.1 }, or { low, high }", name, name);
    double a = number(pair[0]), b = number(pair[1]);
    if (!(a >= low && a <= high && b >= low && b <= high))
        return ls_fail(LS_ERR_INVALID, "%s is { %g, %g }; both must be from %g to %g", name, a, b, low, high);
    if (pair[1] == 0)
        b = fabs(a), a = low < 0 ? -b : 0;
    set_pair(pair, a, b);
    return LS_OK;
}

static ls_status resolve_seed(ls_layer *layer)
{
    int64_t seed = layer->augment.seed;
    return seed >= -1 ? LS_OK
                      : ls_fail(LS_ERR_INVALID, "seed is %lld; it must be at least 0 (-1 means 0)", (long long)seed);
}

static ls_status resolve_range(ls_layer *layer)
{
    double *range = layer->augment.value_range;
    if (range[0] == 0 && range[1] == 0)
        range[1] = 255;
    double a = number(range[0]), b = number(range[1]);
    if (!(isfinite(a) && isfinite(b) && a != b))
        return ls_fail(LS_ERR_INVALID, "value_range is { %g, %g }; it must be two different finite numbers", a, b);
    set_pair(range, a, b);
    return LS_OK;
}

static ls_status resolve_flip(ls_layer *layer)
{
    ls_flip_mode *mode = &layer->augment.mode;
    *mode = *mode == LS_FLIP_DEFAULT ? LS_HORIZONTAL_AND_VERTICAL : *mode;
    if (*mode < LS_HORIZONTAL || *mode > LS_HORIZONTAL_AND_VERTICAL)
        return ls_fail(LS_ERR_INVALID,
                       "mode is %d; it must be LS_HORIZONTAL, LS_VERTICAL or LS_HORIZONTAL_AND_VERTICAL", (int)*mode);
    return resolve_seed(layer);
}

/* Options of layers that interpolate. */
static ls_status resolve_moved(ls_layer *layer)
{
    ls_augment_options *o = &layer->augment;
    o->fill_mode = o->fill_mode == LS_FILL_DEFAULT ? LS_FILL_REFLECT : o->fill_mode;
    o->interpolation = o->interpolation == LS_INTERPOLATION_DEFAULT ? LS_BILINEAR : o->interpolation;
    if (o->fill_mode < LS_FILL_CONSTANT || o->fill_mode > LS_FILL_WRAP)
        return ls_fail(LS_ERR_INVALID,
                       "fill_mode is %d; it must be LS_FILL_CONSTANT, LS_FILL_NEAREST, LS_FILL_REFLECT or LS_FILL_WRAP",
                       (int)o->fill_mode);
    if (o->interpolation != LS_NEAREST && o->interpolation != LS_BILINEAR)
        return ls_fail(LS_ERR_INVALID, "interpolation is %d; it must be LS_NEAREST or LS_BILINEAR",
                       (int)o->interpolation);
    if (!isfinite(o->fill_value[0]) || o->fill_value[1] != 0 || o->fill_value[2] != 0)
        return ls_fail(LS_ERR_INVALID, "fill_value is { %g, %g, %g }; this layer takes one finite number",
                       o->fill_value[0], number(o->fill_value[1]), number(o->fill_value[2]));
    o->fill_value[0] = o->fill_value[0] == 0 ? LS_ZERO : o->fill_value[0];
    return resolve_seed(layer);
}

static ls_status resolve_translation(ls_layer *layer)
{
    LS_TRY(resolve_factor("height_factor", layer->augment.height_factor, -1, 1));
    LS_TRY(resolve_factor("width_factor", layer->augment.width_factor, -1, 1));
    return resolve_moved(layer);
}

static bool is_set(const double pair[2])
{
    return pair[0] != 0 || pair[1] != 0;
}

static ls_status resolve_zoom(ls_layer *layer)
{
    ls_augment_options *o = &layer->augment;
    LS_TRY(resolve_factor("height_factor", o->height_factor, -1, 1));
    if (is_set(o->width_factor))
        LS_TRY(resolve_factor("width_factor", o->width_factor, -1, 1));
    if (o->height_factor[0] <= -1 || o->width_factor[0] <= -1)
        return ls_fail(LS_ERR_INVALID, "%s reaches -1, a zoom to nothing; it must be more than -1",
                       o->height_factor[0] <= -1 ? "height_factor" : "width_factor");
    return resolve_moved(layer);
}

static ls_status resolve_rotation(ls_layer *layer)
{
    LS_TRY(resolve_factor("factor", layer->augment.factor, -1, 1));
    return resolve_moved(layer);
}

static ls_status resolve_crop(ls_layer *layer)
{
    LS_TRY(ls_check_positive("height", layer->options.first));
    LS_TRY(ls_check_positive("width", layer->options.second));
    if (layer->options.first > INT32_MAX || layer->options.second > INT32_MAX)
        return ls_fail(LS_ERR_INVALID, "height is %lld and width is %lld; both must be less than 2^31",
                       (long long)layer->options.first, (long long)layer->options.second);
    return resolve_seed(layer);
}

static ls_status resolve_color(ls_layer *layer)
{
    double low = layer->kind == LS_LAYER_RANDOM_BRIGHTNESS ? -1 : 0;
    LS_TRY(resolve_factor("factor", layer->augment.factor, low, 1));
    LS_TRY(resolve_range(layer));
    return resolve_seed(layer);
}

static ls_status resolve_erasing(ls_layer *layer)
{
    ls_augment_options *o = &layer->augment;
    const double *fill = o->fill_value;
    if (!is_set(o->factor))
        o->factor[0] = 1;
    if (!is_set(o->scale))
        o->scale[0] = 0.02, o->scale[1] = 0.33;
    LS_TRY(resolve_factor("scale", o->scale, 0, 1));
    int given = (fill[0] != 0) + (fill[1] != 0) + (fill[2] != 0);
    if (given == 2 || (given == 1 && fill[0] == 0) || !isfinite(fill[0] + fill[1] + fill[2]))
        return ls_fail(LS_ERR_INVALID,
                       "fill_value is { %g, %g, %g }; it must be one finite number or three (LS_ZERO for 0)",
                       number(fill[0]), number(fill[1]), number(fill[2]));
    return resolve_color(layer);
}

/* ---- Random numbers ---- */

/* Numbers of one stream of the call; `sizes` are those of a sample. */
static ls_tensor *draw(const ls_layer *layer, const ls_layer_pass *pass, ls_op op, ls_shape sizes, double a, double b,
                       int stream)
{
    const ls_tensor *x = pass->inputs[0];
    int64_t seed = layer->augment.seed;
    uint32_t own = (uint32_t)(seed < 0 ? 0 : seed ^ seed >> 31) & 0x7fffffff;
    ls_shape shape = { .rank = sizes.rank + 1, .dims = { x->shape.dims[0] } };
    for (int i = 0; i < sizes.rank; i++)
        shape.dims[i + 1] = sizes.dims[i];
    return ls_op_random_keyed(x->graph, op, shape, a, b, seed ? 0x80000000 | own : pass->random_layer,
                              pass->random_call | (int64_t)stream << 31);
}

/* [N,count], from 0 to 1 */
static ls_tensor *units(const ls_layer *layer, const ls_layer_pass *pass, int count)
{
    return draw(layer, pass, LS_OP_random_uniform, LS_SHAPE(count), 0, 1, 0);
}

/* Column i of [N,count] as [N,1]. */
static ls_tensor *column(ls_tensor *x, int i)
{
    return ls_op_slice(x, LS_AXES(0, i), LS_AXES(x->shape.dims[0], 1));
}

/* pair[0] + u (pair[1] - pair[0]) */
static ls_tensor *within(ls_tensor *u, const double pair[2])
{
    double low = number(pair[0]), high = number(pair[1]);
    return ls_op_shift(ls_op_scale(u, high - low), low);
}

/* ---- Layers that move pixels ---- */

/* A matrix of ls_op_warp that is base + v0 by[0] + v1 by[1]. */
typedef struct linear {
    float base[6], by[2][6];
} linear;

/* Warps by `values` [N,1] or [N,2]. */
static ls_tensor *warp_by(ls_tensor *x, ls_tensor *values, const linear *m, ls_warp_op options)
{
    ls_tensor *by = ls_op_constant(x->graph, LS_F32, LS_SHAPE(ls_tensor_shape(values).dims[1], 6), m->by);
    ls_tensor *base = ls_op_constant(x->graph, LS_F32, LS_SHAPE(6), m->base);
    options.matrix = ls_op_add(ls_op_matmul(values, by), base);
    return ls_op_warp_with(x, options);
}

static ls_warp_op warp_options(const ls_augment_options *o)
{
    return (ls_warp_op){ .interpolation = o->interpolation,
                         .fill_mode = o->fill_mode,
                         .fill_value = number(o->fill_value[0]) };
}

/* One number decides about both axes, as in Keras. */
static ls_status call_flip(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    ls_flip_mode mode = layer->augment.mode;
    LS_TRY(ls_check_image(&x->shape));
    *out = x;
    if (!pass->training)
        return LS_OK;
    linear m = { .base = { 1, 0, 0, 0, 1, 0 } };
    if (mode != LS_VERTICAL)
        m.by[0][0] = -2, m.by[0][2] = (float)(x->shape.dims[2] - 1);
    if (mode != LS_HORIZONTAL)
        m.by[0][4] = -2, m.by[0][5] = (float)(x->shape.dims[1] - 1);
    ls_tensor *u = units(layer, pass, 1);
    ls_tensor *flips = ls_op_cast(ls_op_compare(u, LS_LESS, ls_scalar_like(u, 0.5)), LS_F32);
    *out = warp_by(x, flips, &m, (ls_warp_op){ .interpolation = LS_NEAREST });
    return LS_OK;
}

static ls_status call_translation(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_augment_options *o = &layer->augment;
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    LS_TRY(ls_check_image(&x->shape));
    *out = x;
    if (!pass->training)
        return LS_OK;
    linear m = { .base = { 1, 0, 0, 0, 1, 0 } };
    for (int i = 0; i < 2; i++) {
        const double *factor = i == 0 ? o->height_factor : o->width_factor;
        double low = number(factor[0]), high = number(factor[1]), size = (double)x->shape.dims[i + 1];
        m.base[i == 0 ? 5 : 2] = (float)(-low * size);
        m.by[i][i == 0 ? 5 : 2] = (float)(-(high - low) * size);
    }
    *out = warp_by(x, units(layer, pass, 2), &m, warp_options(o));
    return LS_OK;
}

/* Zooms around the center; without a width_factor the aspect ratio remains. */
static ls_status call_zoom(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_augment_options *o = &layer->augment;
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    LS_TRY(ls_check_image(&x->shape));
    *out = x;
    if (!pass->training)
        return LS_OK;
    linear m = { .base = { 0 } };
    int numbers = is_set(o->width_factor) ? 2 : 1;
    for (int i = 0; i < 2; i++) {
        const double *factor = i == 0 || numbers == 1 ? o->height_factor : o->width_factor;
        double low = number(factor[0]), spread = number(factor[1]) - low;
        double center = (double)(x->shape.dims[i + 1] - 1) / 2;
        int scale = i == 0 ? 4 : 0, offset = i == 0 ? 5 : 2, from = numbers == 1 ? 0 : i;
        m.base[scale] = (float)(1 + low);
        m.base[offset] = (float)(-center * low);
        m.by[from][scale] = (float)spread;
        m.by[from][offset] = (float)(-center * spread);
    }
    *out = warp_by(x, units(layer, pass, numbers), &m, warp_options(o));
    return LS_OK;
}

/* c[0] + z (c[1] + z (...)) */
static ls_tensor *polynomial(ls_tensor *z, const double c[5])
{
    ls_tensor *sum = ls_op_shift(ls_op_scale(z, c[4]), c[3]);
    for (int i = 2; i >= 0; i--)
        sum = ls_op_shift(ls_op_mul(sum, z), c[i]);
    return sum;
}

/* Sine and cosine of `turns` [N,1], from -1 to 1, as [N,2]. The nearest quarter turn is exact; the
 * rest, up to an eighth of a turn, is a power series. */
static ls_tensor *sine_and_cosine(ls_tensor *turns)
{
    static const float quarters[9][2] = { { 0, 1 }, { 1, 0 },  { 0, -1 }, { -1, 0 }, { 0, 1 },
                                          { 1, 0 }, { 0, -1 }, { -1, 0 }, { 0, 1 } };
    static const double sines[] = { 1.5707963267948966, -0.64596409750624625, 0.079692626246167046,
                                    -0.0046817541353186881, 0.00016044118478735982 };
    static const double cosines[] = { 1, -1.2337005501361697, 0.25366950790104802, -0.020863480763352961,
                                      0.00091926027483942659 };
    ls_tensor *t = ls_op_scale(turns, 4), *index = ls_op_cast(ls_op_shift(t, 4.5), LS_I32);
    ls_tensor *rest = ls_op_sub(t, ls_op_shift(ls_op_cast(index, LS_F32), -4)), *z = ls_op_square(rest);
    ls_tensor *s = ls_op_mul(rest, polynomial(z, sines)), *c = polynomial(z, cosines);
    ls_tensor *table = ls_op_constant(t->graph, LS_F32, LS_SHAPE(9, 2), quarters);
    ls_tensor *quarter = ls_reshape_samples(ls_op_gather(table, index, 0), &LS_SHAPE(2));
    ls_tensor *qs = column(quarter, 0), *qc = column(quarter, 1);
    ls_tensor *both[] = { ls_op_add(ls_op_mul(s, qc), ls_op_mul(c, qs)),
                          ls_op_sub(ls_op_mul(c, qc), ls_op_mul(s, qs)) };
    return ls_op_concat(both, 2, 1);
}

static ls_status call_rotation(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_augment_options *o = &layer->augment;
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    LS_TRY(ls_check_image(&x->shape));
    *out = x;
    if (!pass->training)
        return LS_OK;
    float cy = (float)(x->shape.dims[1] - 1) / 2, cx = (float)(x->shape.dims[2] - 1) / 2;
    linear m = { .base = { 0, 0, cx, 0, 0, cy },
                 .by = { { 0, -1, cy, 1, 0, -cx }, /* sine */
                         { 1, 0, -cx, 0, 1, -cy } } };
    ls_tensor *angle = sine_and_cosine(within(units(layer, pass, 1), o->factor));
    *out = warp_by(x, angle, &m, warp_options(o));
    return LS_OK;
}

/* Each image has its own window. Without training, and for images that are not larger, the largest
 * centered window of the aspect ratio is resized, as Resizing does. */
static ls_status call_crop(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const int64_t size[2] = { layer->options.first, layer->options.second };
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    LS_TRY(ls_check_image(&x->shape));
    const int64_t *dims = x->shape.dims;
    if (!pass->training || dims[1] <= size[0] || dims[2] <= size[1]) {
        ls_layer resizing = { .kind = LS_LAYER_RESIZING,
                              .resize = { .first = size[0],
                                          .second = size[1],
                                          .interpolation = LS_BILINEAR,
                                          .crop_to_aspect_ratio = true } };
        return ls_layer_pass_make(&resizing, pass, out);
    }
    const float places[2] = { (float)(dims[1] - size[0] + 1), (float)(dims[2] - size[1] + 1) };
    ls_tensor *u = ls_op_mul(units(layer, pass, 2), ls_op_constant(x->graph, LS_F32, LS_SHAPE(2), places));
    ls_tensor *starts = ls_op_cast(ls_op_cast(u, LS_I32), LS_F32);
    const linear m = { .base = { 1, 0, 0, 0, 1, 0 }, .by = { { [5] = 1 }, { [2] = 1 } } };
    *out = warp_by(x, starts, &m, (ls_warp_op){ .interpolation = LS_NEAREST, .size = { size[0], size[1] } });
    return LS_OK;
}

/* ---- Layers that change values ---- */

static ls_tensor *clip_values(ls_tensor *x, const ls_augment_options *o)
{
    return ls_op_clip(x, number(o->value_range[0]), number(o->value_range[1]));
}

/* (x - mean) f + mean, with the mean of the image's channel. */
static ls_status call_contrast(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_augment_options *o = &layer->augment;
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    LS_TRY(ls_check_image(&x->shape));
    *out = x;
    if (!pass->training)
        return LS_OK;
    ls_tensor *mean = ls_op_reduce_mean(x, LS_AXES(1, 2), true);
    ls_tensor *factor = draw(layer, pass, LS_OP_random_uniform, LS_SHAPE(1, 1, 1), 1 - number(o->factor[0]),
                             1 + number(o->factor[1]), 0);
    *out = clip_values(ls_op_add(ls_op_mul(ls_op_sub(x, mean), factor), mean), o);
    return LS_OK;
}

static ls_status call_brightness(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_augment_options *o = &layer->augment;
    ls_tensor *x = ls_layer_real(pass->inputs[0]);
    LS_TRY(ls_check_image(&x->shape));
    *out = x;
    if (!pass->training)
        return LS_OK;
    double range = number(o->value_range[1]) - number(o->value_range[0]);
    ls_tensor *delta = draw(layer, pass, LS_OP_random_uniform, LS_SHAPE(1, 1, 1), number(o->factor[0]) * range,
                            number(o->factor[1]) * range, 0);
    *out = clip_values(ls_op_add(x, delta), o);
    return LS_OK;
}

/* Returns 1 where start <= i < start + length, else 0, as [N,size]. */
static ls_status span(ls_tensor *u_length, ls_tensor *u_start, const double scale[2], int64_t size, ls_tensor **out)
{
    ls_tensor *length = ls_op_scale(ls_op_sqrt(within(u_length, scale)), (double)size);
    ls_tensor *start = ls_op_mul(u_start, ls_op_shift(ls_op_neg(length), (double)size));
    float *places = malloc((size_t)size * sizeof *places + 1);
    if (!places)
        return ls_fail(LS_ERR_MEMORY, "no memory for %lld pixels", (long long)size);
    for (int64_t k = 0; k < size; k++)
        places[k] = (float)k;
    ls_tensor *i = ls_op_constant(u_start->graph, LS_F32, LS_SHAPE(size), places);
    free(places);
    *out = ls_op_mul(ls_op_cast(ls_op_compare(i, LS_GREATER_EQUAL, start), LS_F32),
                     ls_op_cast(ls_op_compare(i, LS_LESS, ls_op_add(start, length)), LS_F32));
    return ls_tensor_check(*out);
}

/* What an erased box is filled with: normal random numbers, or the given ones. */
static ls_status erased_values(const ls_layer *layer, const ls_layer_pass *pass, ls_tensor *x, ls_tensor **out)
{
    const ls_augment_options *o = &layer->augment;
    const int64_t *dims = x->shape.dims;
    bool one = o->fill_value[1] == 0;
    double low = number(o->value_range[0]), high = number(o->value_range[1]);
    float values[3];
    if (o->fill_value[0] == 0) {
        *out = clip_values(draw(layer, pass, LS_OP_random_normal, LS_SHAPE(dims[1], dims[2], dims[3]), 0, high, 1), o);
        return LS_OK;
    }
    if (!one && dims[3] != 3)
        return ls_fail(LS_ERR_SHAPE, "fill_value has 3 numbers, but the images have %lld channels", (long long)dims[3]);
    for (int i = 0; i < 3; i++)
        values[i] = (float)fmin(fmax(number(o->fill_value[one ? 0 : i]), low), high);
    *out = ls_op_constant(x->graph, LS_F32, one ? LS_SHAPE(1) : LS_SHAPE(3), values);
    return LS_OK;
}

static ls_status call_erasing(const ls_layer *layer, ls_layer_pass *pass, ls_tensor **out)
{
    const ls_augment_options *o = &layer->augment;
    ls_tensor *x = ls_layer_real(pass->inputs[0]), *rows, *columns, *values;
    LS_TRY(ls_check_image(&x->shape));
    *out = x;
    if (!pass->training)
        return LS_OK;
    ls_tensor *u = units(layer, pass, 6);
    const int64_t *dims = x->shape.dims;
    LS_TRY(span(column(u, 0), column(u, 2), o->scale, dims[2], &columns));
    LS_TRY(span(column(u, 1), column(u, 3), o->scale, dims[1], &rows));
    ls_tensor *erases = ls_op_compare(column(u, 5), LS_LESS, within(column(u, 4), o->factor));
    rows = ls_op_mul(rows, ls_op_cast(erases, LS_F32));
    ls_tensor *box = ls_op_mul(ls_reshape_samples(rows, &LS_SHAPE(dims[1], 1, 1)),
                               ls_reshape_samples(columns, &LS_SHAPE(1, dims[2], 1)));
    LS_TRY(erased_values(layer, pass, x, &values));
    *out = ls_op_select(ls_op_compare(box, LS_GREATER, ls_scalar_like(box, 0)), values, x);
    return LS_OK;
}

/* ---- Tables ---- */

#define MOVES LS_LAYER_RANDOM_TRANSLATION, LS_LAYER_RANDOM_ZOOM, LS_LAYER_RANDOM_ROTATION

static const ls_layer_option options[] = {
    LS_OPTION_OF(augment, INT, mode, LS_LAYER_RANDOM_FLIP),
    LS_OPTION_OF(augment, F64, factor, LS_LAYER_RANDOM_ROTATION, LS_LAYER_RANDOM_CONTRAST, LS_LAYER_RANDOM_BRIGHTNESS,
                 LS_LAYER_RANDOM_ERASING),
    LS_OPTION_OF(augment, F64, height_factor, LS_LAYER_RANDOM_TRANSLATION, LS_LAYER_RANDOM_ZOOM),
    LS_OPTION_OF(augment, F64, width_factor, LS_LAYER_RANDOM_TRANSLATION, LS_LAYER_RANDOM_ZOOM),
    LS_OPTION_OF(augment, INT, fill_mode, MOVES),
    LS_OPTION_OF(augment, INT, interpolation, MOVES),
    LS_OPTION_OF(augment, F64, fill_value, MOVES, LS_LAYER_RANDOM_ERASING),
    LS_OPTION_OF(augment, F64, value_range, LS_LAYER_RANDOM_CONTRAST, LS_LAYER_RANDOM_BRIGHTNESS,
                 LS_LAYER_RANDOM_ERASING),
    LS_OPTION_OF(augment, F64, scale, LS_LAYER_RANDOM_ERASING),
    LS_OPTION(augment, I64, seed),
};

#define LAYER(KIND, class, name, resolver, caller)                                                                     \
    .kind = LS_LAYER_RANDOM_##KIND, .class_name = class, .base = name, .function = "ls_" name, .resolve = resolver,    \
    .call = caller, .random = true

static const ls_layer_info kinds[] = {
    { LAYER(FLIP, "RandomFlip", "random_flip", resolve_flip, call_flip) },
    { LAYER(TRANSLATION, "RandomTranslation", "random_translation", resolve_translation, call_translation) },
    { LAYER(CROP, "RandomCrop", "random_crop", resolve_crop, call_crop), .positional = { "height", "width" } },
    { LAYER(ZOOM, "RandomZoom", "random_zoom", resolve_zoom, call_zoom) },
    { LAYER(ROTATION, "RandomRotation", "random_rotation", resolve_rotation, call_rotation) },
    { LAYER(CONTRAST, "RandomContrast", "random_contrast", resolve_color, call_contrast) },
    { LAYER(BRIGHTNESS, "RandomBrightness", "random_brightness", resolve_color, call_brightness) },
    { LAYER(ERASING, "RandomErasing", "random_erasing", resolve_erasing, call_erasing) },
};

const ls_layer_family ls_augment_family = LS_LAYER_FAMILY(options, kinds);
