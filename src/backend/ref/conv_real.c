/* Convolutions by their definition (docs/bits.md), channels innermost, in tiles of channels so that
 * the sums stay on the stack. */
#include <string.h>

#include "backend/blocks.h"
#include "backend/ref/array.h"
#include "backend/ref/real.h"

#define TILE  128
#define INPUT 16 /* channels of a tile of the kernel's gradient */

/* x [n,h,w,c], kernel [kh,kw,group_in,out], y [n,yh,yw,out] */
typedef struct conv {
    int64_t n, h, w, c, kh, kw, yh, yw, out;
    int64_t groups, group_in, group_out;
    int64_t stride[2], dilation[2], pad[2]; /* pad: top, left; the image is zero outside */
} conv;

static conv conv_of(const ls_ref_call *call, const ls_shape *x, const ls_shape *kernel, const ls_shape *y)
{
    const ls_attrs *attr = &call->node->attr;
    int64_t groups = attr->window.groups;
    return (conv){
        .n = x->dims[0],
        .h = x->dims[1],
        .w = x->dims[2],
        .c = x->dims[3],
        .kh = kernel->dims[0],
        .kw = kernel->dims[1],
        .yh = y->dims[1],
        .yw = y->dims[2],
        .out = y->dims[3],
        .groups = groups,
        .group_in = kernel->dims[2],
        .group_out = kernel->dims[3] / groups,
        .stride = { attr->window.stride[0], attr->window.stride[1] },
        .dilation = { attr->window.dilation[0], attr->window.dilation[1] },
        .pad = { attr->window.pad[0], attr->window.pad[2] },
    };
}

/* Row (column) that cell k of the window at position y covers. */
static int64_t seen(const conv *v, int axis, int64_t y, int64_t k)
{
    return y * v->stride[axis] + k * v->dilation[axis] - v->pad[axis];
}

/* Window whose cell k covers row (column) x; -1: none. */
static int64_t place(const conv *v, int axis, int64_t x, int64_t k, int64_t places)
{
    int64_t from = x - k * v->dilation[axis] + v->pad[axis];
    if (from < 0 || from % v->stride[axis] != 0 || from / v->stride[axis] >= places)
        return -1;
    return from / v->stride[axis];
}

/* Output channels first .. first+count-1 of one group at (image, y, x). */
static void convolve(const conv *v, const real *in, const real *kernel, const int64_t at[3], int64_t first,
                     int64_t count, real *out)
{
    real sum[TILE] = { 0 };
    int64_t group = first / v->group_out;
    for (int64_t i = 0; i < v->kh; i++) {
        int64_t h = seen(v, 0, at[1], i);
        for (int64_t j = 0; j < v->kw && h >= 0 && h < v->h; j++) {
            int64_t w = seen(v, 1, at[2], j);
            if (w < 0 || w >= v->w)
                continue;
            const real *pixel = in + ((at[0] * v->h + h) * v->w + w) * v->c + group * v->group_in;
            const real *weights = kernel + (i * v->kw + j) * v->group_in * v->out + first;
            for (int64_t c = 0; c < v->group_in; c++, weights += v->out) {
                for (int64_t o = 0; o < count; o++)
                    sum[o] = real_madd(pixel[c], weights[o], sum[o]);
            }
        }
    }
    for (int64_t o = 0; o < count; o++)
        out[o] = sum[o];
}

/* in: x, kernel */
ls_status LS_REF(conv2d)(const ls_ref_call *call)
{
    conv v = conv_of(call, &call->in[0].shape, &call->in[1].shape, &call->out.shape);
    real *out = call->out.data;
    for (int64_t p = 0; p < v.n * v.yh * v.yw; p++) {
        int64_t at[3] = { p / (v.yh * v.yw), p / v.yw % v.yh, p % v.yw };
        for (int64_t g = 0; g < v.groups; g++) {
            for (int64_t o = 0; o < v.group_out; o += TILE) {
                int64_t count = ls_ref_at_most(v.group_out - o, TILE);
                convolve(&v, call->in[0].data, call->in[1].data, at, g * v.group_out + o, count, out);
                out += count;
            }
        }
    }
    return LS_OK;
}

/* Input channels first .. first+count-1 of one group at (image, h, w), from every window that
 * covers them, in order. */
static void spread_back(const conv *v, const real *kernel, const real *dy, const int64_t at[3], int64_t first,
                        int64_t count, real *out)
{
    real sum[TILE] = { 0 };
    int64_t group = first / v->group_in, channel = first % v->group_in;
    for (int64_t i = v->kh; i-- > 0;) {
        int64_t y = place(v, 0, at[1], i, v->yh);
        for (int64_t j = y < 0 ? 0 : v->kw; j-- > 0;) {
            int64_t x = place(v, 1, at[2], j, v->yw);
            if (x < 0)
                continue;
            const real *pixel = dy + ((at[0] * v->yh + y) * v->yw + x) * v->out + group * v->group_out;
            const real *weights = kernel + ((i * v->kw + j) * v->group_in + channel) * v->out + group * v->group_out;
            for (int64_t o = 0; o < v->group_out; o++) {
                for (int64_t c = 0; c < count; c++)
                    sum[c] = real_madd(pixel[o], weights[c * v->out + o], sum[c]);
            }
        }
    }
    for (int64_t c = 0; c < count; c++)
        out[c] = sum[c];
}

/* in: kernel, dy; out: like x */
ls_status LS_REF(conv2d_grad_input)(const ls_ref_call *call)
{
    conv v = conv_of(call, &call->out.shape, &call->in[0].shape, &call->in[1].shape);
    real *out = call->out.data;
    for (int64_t p = 0; p < v.n * v.h * v.w; p++) {
        int64_t at[3] = { p / (v.h * v.w), p / v.w % v.h, p % v.w };
        for (int64_t g = 0; g < v.groups; g++) {
            for (int64_t c = 0; c < v.group_in; c += TILE) {
                int64_t count = ls_ref_at_most(v.group_in - c, TILE);
                spread_back(&v, call->in[0].data, call->in[1].data, at, g * v.group_in + c, count, out);
                out += count;
            }
        }
    }
    return LS_OK;
}

/* Channels of one group, for one cell of the kernel. */
typedef struct kernel_tile {
    int64_t i, j;      /* the cell */
    int64_t in, ins;   /* first and count, within the group */
    int64_t out, outs; /* first and count, of all output channels */
} kernel_tile;

static int64_t element(const conv *v, const kernel_tile *t, int64_t c, int64_t o)
{
    return ((t->i * v->kw + t->j) * v->group_in + t->in + c) * v->out + t->out + o;
}

static void correlate(const conv *v, const kernel_tile *t, const ls_ref_call *call, const ls_block_part *b)
{
    real sum[INPUT][TILE] = { { 0 } }, *out = call->out.data, *chain = call->chain;
    int64_t first = t->out / v->group_out * v->group_in + t->in;
    for (int64_t c = 0; !b->opens && c < t->ins; c++)
        for (int64_t o = 0; o < t->outs; o++)
            sum[c][o] = chain[element(v, t, c, o)];
    for (int64_t p = b->first; p < b->first + b->count; p++) {
        int64_t n = p / (v->yh * v->yw), h = seen(v, 0, p / v->yw % v->yh, t->i), w = seen(v, 1, p % v->yw, t->j);
        if (h < 0 || h >= v->h || w < 0 || w >= v->w)
            continue;
        const real *x = (const real *)call->in[0].data + ((n * v->h + h) * v->w + w) * v->c + first;
        const real *y = (const real *)call->in[1].data + p * v->out + t->out;
        for (int64_t c = 0; c < t->ins; c++)
            for (int64_t o = 0; o < t->outs; o++)
                sum[c][o] = real_madd(x[c], y[o], sum[c][o]);
    }
    for (int64_t c = 0; c < t->ins; c++)
        for (int64_t o = 0; o < t->outs; o++) {
            real *to = (b->closes ? out : chain) + element(v, t, c, o);
            *to = b->closes && b->adds ? *to + sum[c][o] : sum[c][o];
        }
}

/* in: x, dy; out: like the kernel */
ls_status LS_REF(conv2d_grad_kernel)(const ls_ref_call *call)
{
    conv v = conv_of(call, &call->in[0].shape, &call->out.shape, &call->in[1].shape);
    ls_blocks blocks = ls_blocks_of(v.yh, v.yw);
    if (v.n * v.yh * v.yw == 0 && call->from_lane == 0)
        memset(call->out.data, 0, (size_t)(v.kh * v.kw * v.group_in * v.out) * sizeof(real));
    for (int64_t k = 0; k < v.kh * v.kw * v.groups; k++) {
        int64_t cell = k / v.groups, group = k % v.groups;
        for (int64_t c = 0; c < v.group_in; c += INPUT) {
            for (int64_t o = 0; o < v.group_out; o += TILE) {
                kernel_tile t = { .i = cell / v.kw,
                                  .j = cell % v.kw,
                                  .in = c,
                                  .ins = ls_ref_at_most(v.group_in - c, INPUT),
                                  .out = group * v.group_out + o,
                                  .outs = ls_ref_at_most(v.group_out - o, TILE) };
                for (ls_block_part b = { 0 }; ls_blocks_next(&blocks, call->from_lane, v.n, !call->goes_on, &b);)
                    correlate(&v, &t, call, &b);
            }
        }
    }
    return LS_OK;
}
