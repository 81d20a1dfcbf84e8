/* Pooling, channels innermost. Padding never wins a maximum and counts in an average only if
 * requested. */
#include "backend/ref/array.h"
#include "backend/ref/real.h"

#define TILE 128

/* x [n,h,w,c], y [n,yh,yw,c] */
typedef struct pool {
    int64_t n, h, w, c, yh, yw;
    int64_t window[2], stride[2], pad[2]; /* pad: top, left */
    bool count_padding;
} pool;

static pool pool_of(const ls_ref_call *call, const ls_shape *x, const ls_shape *y)
{
    const ls_attrs *attr = &call->node->attr;
    return (pool){
        .n = x->dims[0],
        .h = x->dims[1],
        .w = x->dims[2],
        .c = x->dims[3],
        .yh = y->dims[1],
        .yw = y->dims[2],
        .window = { attr->window.window[0], attr->window.window[1] },
        .stride = { attr->window.stride[0], attr->window.stride[1] },
        .pad = { attr->window.pad[0], attr->window.pad[2] },
        .count_padding = attr->window.count_padding,
    };
}

/* A part of an image, or of window positions. */
typedef struct box {
    int64_t top, bottom, left, right; /* bottom and right are exclusive */
} box;

static void span_seen(const pool *v, int axis, int64_t y, int64_t size, int64_t *first, int64_t *end)
{
    int64_t from = y * v->stride[axis] - v->pad[axis];
    *first = from > 0 ? from : 0;
    *end = ls_ref_at_most(from + v->window[axis], size);
}

/* Returns the pixels that the window at (y, x) covers. */
static box box_seen(const pool *v, int64_t y, int64_t x)
{
    box b;
    span_seen(v, 0, y, v->h, &b.top, &b.bottom);
    span_seen(v, 1, x, v->w, &b.left, &b.right);
    return b;
}

static void span_seeing(const pool *v, int axis, int64_t x, int64_t places, int64_t *first, int64_t *end)
{
    /* Windows that start in before+1 .. last. */
    int64_t last = x + v->pad[axis], before = last - v->window[axis];
    *first = before < 0 ? 0 : before / v->stride[axis] + 1;
    *end = ls_ref_at_most(last / v->stride[axis] + 1, places);
}

/* Window positions that cover (h, w). */
static box box_seeing(const pool *v, int64_t h, int64_t w)
{
    box b;
    span_seeing(v, 0, h, v->yh, &b.top, &b.bottom);
    span_seeing(v, 1, w, v->yw, &b.left, &b.right);
    return b;
}

/* in: x */
ls_status LS_REF(max_pool2d)(const ls_ref_call *call)
{
    pool v = pool_of(call, &call->in[0].shape, &call->out.shape);
    const real *in = call->in[0].data;
    real *out = call->out.data;
    for (int64_t p = 0; p < v.n * v.yh * v.yw; p++, out += v.c) {
        box seen = box_seen(&v, p / v.yw % v.yh, p % v.yw);
        const real *image = in + p / (v.yh * v.yw) * v.h * v.w * v.c;
        for (int64_t c = 0; c < v.c; c++)
            out[c] = REAL_LOWEST;
        for (int64_t h = seen.top; h < seen.bottom; h++)
            for (int64_t w = seen.left; w < seen.right; w++)
                for (int64_t c = 0; c < v.c; c++)
                    out[c] = real_max(out[c], image[(h * v.w + w) * v.c + c]);
    }
    return LS_OK;
}

/* Offset of the first largest pixel of channel c in the box; -1: an empty box. */
static int64_t first_largest(const pool *v, const box *seen, const real *image, int64_t c)
{
    int64_t best = -1;
    for (int64_t h = seen->top; h < seen->bottom; h++) {
        for (int64_t w = seen->left; w < seen->right; w++) {
            int64_t at = (h * v->w + w) * v->c + c;
            if (best < 0 || real_before(image[at], image[best]))
                best = at;
        }
    }
    return best;
}

/* in: x, dy; out: like x */
ls_status LS_REF(max_pool2d_grad)(const ls_ref_call *call)
{
    pool v = pool_of(call, &call->in[0].shape, &call->in[1].shape);
    const real *dy = call->in[1].data;
    ls_ref_clear(&call->out);
    for (int64_t p = 0; p < v.n * v.yh * v.yw; p++, dy += v.c) {
        box seen = box_seen(&v, p / v.yw % v.yh, p % v.yw);
        int64_t start = p / (v.yh * v.yw) * v.h * v.w * v.c;
        const real *image = (const real *)call->in[0].data + start;
        real *out = (real *)call->out.data + start;
        for (int64_t c = 0; c < v.c; c++) {
            int64_t at = first_largest(&v, &seen, image, c);
            if (at >= 0)
                out[at] += dy[c];
        }
    }
    return LS_OK;
}

static double divisor(const pool *v, int64_t y, int64_t x)
{
    box seen = box_seen(v, y, x);
    if (v->count_padding)
        return (double)(v->window[0] * v->window[1]);
    if (seen.bottom <= seen.top || seen.right <= seen.left)
        return 1; /* only padding: the result is 0 */
    return (double)((seen.bottom - seen.top) * (seen.right - seen.left));
}

/* in: x */
ls_status LS_REF(average_pool2d)(const ls_ref_call *call)
{
    pool v = pool_of(call, &call->in[0].shape, &call->out.shape);
    const real *in = call->in[0].data;
    real *out = call->out.data;
    for (int64_t p = 0; p < v.n * v.yh * v.yw; p++) {
        int64_t y = p / v.yw % v.yh, x = p % v.yw;
        box seen = box_seen(&v, y, x);
        double by = divisor(&v, y, x);
        const real *image = in + p / (v.yh * v.yw) * v.h * v.w * v.c;
        for (int64_t first = 0; first < v.c; first += TILE) {
            double sum[TILE] = { 0 };
            int64_t count = ls_ref_at_most(v.c - first, TILE);
            for (int64_t h = seen.top; h < seen.bottom; h++)
                for (int64_t w = seen.left; w < seen.right; w++)
                    for (int64_t c = 0; c < count; c++)
                        sum[c] += image[(h * v.w + w) * v.c + first + c];
            for (int64_t c = 0; c < count; c++)
                *out++ = (real)(sum[c] / by);
        }
    }
    return LS_OK;
}

/* in: dy; out: like x, sums over the windows that cover each pixel. */
ls_status LS_REF(average_pool2d_grad)(const ls_ref_call *call)
{
    pool v = pool_of(call, &call->out.shape, &call->in[0].shape);
    const real *dy = call->in[0].data;
    real *out = call->out.data;
    for (int64_t p = 0; p < v.n * v.h * v.w; p++) {
        box seeing = box_seeing(&v, p / v.w % v.h, p % v.w);
        const real *image = dy + p / (v.h * v.w) * v.yh * v.yw * v.c;
        for (int64_t first = 0; first < v.c; first += TILE) {
            double sum[TILE] = { 0 };
            int64_t count = ls_ref_at_most(v.c - first, TILE);
            for (int64_t y = seeing.top; y < seeing.bottom; y++) {
                for (int64_t x = seeing.left; x < seeing.right; x++) {
                    double by = divisor(&v, y, x);
                    for (int64_t c = 0; c < count; c++)
                        sum[c] += image[(y * v.yw + x) * v.c + first + c] / by;
                }
            }
            for (int64_t c = 0; c < count; c++)
                *out++ = (real)sum[c];
        }
    }
    return LS_OK;
}
