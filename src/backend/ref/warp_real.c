/* Warps: images whose pixels are moved by an affine map (docs/bits.md). Positions and weights are
 * f64 for both types. */
#include "backend/ref/array.h"
#include "backend/ref/real.h"
#include "lockstep/graph.h"

/* x [n,h,w,c], y [n,yh,yw,c] */
typedef struct warp {
    int64_t n, h, w, c, yh, yw;
    bool nearest;
    ls_fill_mode mode;
    double fill;
} warp;

static warp warp_of(const ls_ref_call *call, const ls_shape *x, const ls_shape *y)
{
    const ls_attrs *attr = &call->node->attr;
    return (warp){ .n = x->dims[0],
                   .h = x->dims[1],
                   .w = x->dims[2],
                   .c = x->dims[3],
                   .yh = y->dims[1],
                   .yw = y->dims[2],
                   .nearest = attr->warp.interpolation == LS_NEAREST,
                   .mode = (ls_fill_mode)attr->warp.fill_mode,
                   .fill = (real)attr->warp.fill_value };
}

/* Where an output pixel lies along one axis: between pixels `first` and first + 1, `part` of the
 * way. */
typedef struct place {
    int64_t first;
    double part;
} place;

#define FARTHEST 0x1p30 /* positions beyond are not in any image */

/* The two mappings are TensorFlow's, with its seams: wrapping divides by n - 1 and stays at the
 * last pixel between it and the first. */
static double reflected(double at, double n)
{
    if (at < 0) {
        at += 2 * n * floor(-at / (2 * n));
        return at < -n ? at + 2 * n : -at - 1;
    }
    at -= 2 * n * floor(at / (2 * n));
    return at >= n ? 2 * n - at - 1 : at;
}

static double wrapped(double at, double n)
{
    return at < 0 ? at + n * (floor(-at / (n - 1)) + 1) : at - n * floor(at / (n - 1));
}

/* Moves a position of one axis into the image, unless the fill value is outside. */
static double inside(double at, int64_t n, ls_fill_mode mode)
{
    double last = (double)(n - 1);
    if (mode == LS_FILL_CONSTANT)
        return at;
    if (at < 0 || at > last) {
        if (mode != LS_FILL_NEAREST)
            at = n == 1 ? 0 : mode == LS_FILL_REFLECT ? reflected(at, (double)n) : wrapped(at, (double)n);
        at = at < 0 ? 0 : at > last ? last : at;
    }
    return at;
}

static place place_of(const warp *v, double at, int64_t n)
{
    at = inside(at, n, v->mode);
    double first = floor(at), part = at - first;
    if (v->nearest) { /* halves away from zero */
        first += part > 0.5 || (part == 0.5 && at > 0) ? 1 : 0;
        part = 0;
    }
    return (place){ (int64_t)first, part };
}

/* Finds where pixel (i, j) of the output is taken from; false: from outside of every image. */
static bool places_of(const warp *v, const real *m, int64_t i, int64_t j, place *y, place *x)
{
    double at_x = ((double)m[0] * (double)j + (double)m[1] * (double)i) + (double)m[2];
    double at_y = ((double)m[3] * (double)j + (double)m[4] * (double)i) + (double)m[5];
    if (!(fabs(at_x) < FARTHEST && fabs(at_y) < FARTHEST))
        return false;
    *y = place_of(v, at_y, v->h);
    *x = place_of(v, at_x, v->w);
    return true;
}

/* Offset of a pixel's first channel; -1: outside. */
static int64_t pixel(const warp *v, int64_t y, int64_t x)
{
    return y >= 0 && y < v->h && x >= 0 && x < v->w ? (y * v->w + x) * v->c : -1;
}

static double row(const warp *v, const real *image, int64_t y, place x, int64_t c)
{
    int64_t left = pixel(v, y, x.first), right = pixel(v, y, x.first + 1);
    double sum = (1 - x.part) * (left >= 0 ? image[left + c] : v->fill);
    if (x.part > 0)
        sum += x.part * (right >= 0 ? image[right + c] : v->fill);
    return sum;
}

/* in: x, matrix */
ls_status LS_REF(warp)(const ls_ref_call *call)
{
    warp v = warp_of(call, &call->in[0].shape, &call->out.shape);
    real *out = call->out.data;
    for (int64_t p = 0; p < v.n * v.yh * v.yw; p++) {
        int64_t sample = p / (v.yh * v.yw);
        const real *image = (const real *)call->in[0].data + sample * v.h * v.w * v.c;
        const real *matrix = (const real *)call->in[1].data + sample * 6;
        place y = { 0 }, x = { 0 };
        bool found = places_of(&v, matrix, p / v.yw % v.yh, p % v.yw, &y, &x);
        for (int64_t c = 0; c < v.c; c++) {
            double sum = found ? (1 - y.part) * row(&v, image, y.first, x, c) : v.fill;
            if (found && y.part > 0)
                sum += y.part * row(&v, image, y.first + 1, x, c);
            *out++ = (real)sum;
        }
    }
    return LS_OK;
}

static void add_pixel(const warp *v, real *dx, int64_t y, int64_t x, double weight, const real *dy)
{
    int64_t at = pixel(v, y, x);
    for (int64_t c = 0; c < v->c && at >= 0 && weight > 0; c++)
        dx[at + c] += (real)(weight * (double)dy[c]);
}

/* in: dy, matrix; out: like x */
ls_status LS_REF(warp_grad)(const ls_ref_call *call)
{
    warp v = warp_of(call, &call->out.shape, &call->in[0].shape);
    const real *dy = call->in[0].data;
    ls_ref_clear(&call->out);
    for (int64_t p = 0; p < v.n * v.yh * v.yw; p++, dy += v.c) {
        int64_t sample = p / (v.yh * v.yw);
        real *dx = (real *)call->out.data + sample * v.h * v.w * v.c;
        place y, x;
        if (!places_of(&v, (const real *)call->in[1].data + sample * 6, p / v.yw % v.yh, p % v.yw, &y, &x))
            continue;
        add_pixel(&v, dx, y.first, x.first, (1 - y.part) * (1 - x.part), dy);
        add_pixel(&v, dx, y.first, x.first + 1, (1 - y.part) * x.part, dy);
        add_pixel(&v, dx, y.first + 1, x.first, y.part * (1 - x.part), dy);
        add_pixel(&v, dx, y.first + 1, x.first + 1, y.part * x.part, dy);
    }
    return LS_OK;
}
