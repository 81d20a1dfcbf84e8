/* Lowers convolutions, matrix products, pools and warps to launches. */
#include <stdio.h>

#include "backend/gpu/lower.h"

static int64_t ceiling(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* in and out: images. kernel NULL: a pool's window. */
static ls_gpu_window window_of(const lowering *x, const ls_shape *in, const ls_shape *kernel, const ls_shape *out)
{
    const ls_attrs *attr = &x->node->attr;
    ls_gpu_window v = {
        .n = in->dims[0],
        .h = in->dims[1],
        .w = in->dims[2],
        .c = in->dims[3],
        .kh = kernel ? kernel->dims[0] : attr->window.window[0],
        .kw = kernel ? kernel->dims[1] : attr->window.window[1],
        .yh = out->dims[1],
        .yw = out->dims[2],
        .out = out->dims[3],
        .groups = kernel ? attr->window.groups : 1,
        .stride = { attr->window.stride[0], attr->window.stride[1] },
        .dilation = { attr->window.dilation[0], attr->window.dilation[1] },
        .pad = { attr->window.pad[0], attr->window.pad[2] },
        .count_padding = attr->window.count_padding,
    };
    if (kernel) {
        v.group_in = kernel->dims[2];
        v.group_out = kernel->dims[3] / v.groups;
    }
    return v;
}

/* Adds a suffix to the kernel's name and returns the columns per item: two vectors if that computes
 * few columns twice. Without _wide or _whole there may be fewer columns than a vector has. */
static const char *with_columns(const lowering *x, const char *name, int64_t columns, char out[48], int64_t *each)
{
    const ls_gpu_tuning *t = x->l->tuning;
    bool wide = t->wide && (columns % (2 * t->vector) == 0 || columns > 6 * t->vector);
    snprintf(out, 48, "%s%s", name, wide ? "_wide" : columns >= t->vector ? "_whole" : "");
    *each = wide ? 2 * t->vector : t->vector;
    return out;
}

static bool is_padded(const lowering *x)
{
    const int64_t *pad = x->node->attr.window.pad;
    return pad[0] || pad[1] || pad[2] || pad[3];
}

/* The second axis are the pixels at which tiles may begin. */
static ls_status launch_conv(lowering *x, ls_gpu_conv *v, ls_memory_place in, ls_memory_place kernel)
{
    char name[48];
    int64_t each, pixels = v->n * ceiling(v->yh, v->out_step[0]) * ceiling(v->yw, v->out_step[1]);
    /* per element; with few products, locating a tile dominates */
    int64_t products = v->kh * v->kw * v->depth;
    v->run = x->l->tuning->vector == 1 ? 1 : products >= 1024 ? 1 : products >= 64 ? 4 : 8;
    (void)with_columns(x, "conv2d", v->columns, name, &each);
    return LAUNCH_HEAVY(x, LS_GPU_PRODUCTS, name, v,
                        ceiling(ceiling(pixels, x->l->tuning->rows), v->run) * v->groups * ceiling(v->columns, each),
                        v->out_step[0] * v->out_step[1], in, kernel, x->out, x->biased ? x->bias : x->out);
}

ls_status ls_gpu_conv2d(lowering *x)
{
    ls_shape in = ls_gpu_in_shape(x, 0), kernel = ls_gpu_in_shape(x, 1);
    ls_gpu_window v = window_of(x, &in, &kernel, &x->out_shape);
    bool done = false;
    LS_TRY(ls_gpu_library_conv(x, LS_GPU_CALL_CONV, &v, &done));
    if (done)
        return LS_OK;
    ls_gpu_conv p = {
        .n = v.n,
        .h = v.h,
        .w = v.w,
        .c = v.c,
        .kh = v.kh,
        .kw = v.kw,
        .yh = v.yh,
        .yw = v.yw,
        .out = v.out,
        .groups = v.groups,
        .depth = v.group_in,
        .columns = v.group_out,
        .pitch = v.out,
        .cell = v.group_in * v.out,
        .group_weights = v.group_out,
        .in_step = { v.stride[0], v.stride[1] },
        .out_step = { 1, 1 },
        .dilation = { v.dilation[0], v.dilation[1] },
        .start = { -v.pad[0], -v.pad[1] },
        .rows_lie = v.dilation[1] == 1 && v.groups == 1,
        .padded = is_padded(x),
        .biased = x->biased,
        .rectified = x->rectified,
    };
    return launch_conv(x, &p, ls_gpu_in(x, 0), ls_gpu_in(x, 1));
}

ls_status ls_gpu_swap_last(lowering *x, int input, int64_t matrices, int64_t rows, int64_t columns,
                           ls_memory_place *out)
{
    bool shared = ls_gpu_is_shared(x, input);
    ls_gpu_rows p = { .outer = matrices, .n = rows, .inner = columns };
    *out = ls_gpu_scratch(x, (size_t)(matrices * rows * columns) * sizeof(float));
    if (shared) /* use the first lane's scratch */
        out->offset -= x->l->scratch.offset - x->l->first_scratch;
    if (shared && !ls_gpu_makes(x, LS_GPU_MADE_SWAPPED))
        return LS_OK;
    int64_t each = x->l->tuning->vector;
    return LAUNCH(x, LS_GPU_MOVES, "swap_4", &p, ceiling(columns, each) * ceiling(rows, each), matrices, *out,
                  ls_gpu_in(x, input));
}

ls_status ls_gpu_conv2d_grad_input(lowering *x)
{
    ls_shape kernel = ls_gpu_in_shape(x, 0), dy = ls_gpu_in_shape(x, 1);
    ls_gpu_window v = window_of(x, &x->out_shape, &kernel, &dy);
    ls_memory_place swapped;
    bool done = false;
    LS_TRY(ls_gpu_library_conv(x, LS_GPU_CALL_CONV_GRAD_INPUT, &v, &done));
    if (done)
        return LS_OK;
    ls_gpu_conv p = {
        .n = v.n,
        .h = v.yh,
        .w = v.yw,
        .c = v.out,
        .kh = v.kh,
        .kw = v.kw,
        .yh = v.h,
        .yw = v.w,
        .out = v.c,
        .groups = v.groups,
        .depth = v.group_out,
        .columns = v.group_in,
        .pitch = v.group_in,
        .cell = -v.out * v.group_in,
        .first_cell = (v.kh * v.kw - 1) * v.out * v.group_in,
        .group_weights = v.group_out * v.group_in,
        .in_step = { 1, 1 },
        .out_step = { v.stride[0], v.stride[1] },
        .dilation = { v.dilation[0], v.dilation[1] },
        .start = { v.pad[0] - (v.kh - 1) * v.dilation[0], v.pad[1] - (v.kw - 1) * v.dilation[1] },
        .padded = v.kh * v.kw > 1 || is_padded(x),
    };
    LS_TRY(ls_gpu_swap_last(x, 0, v.kh * v.kw, v.group_in, v.out, &swapped));
    return launch_conv(x, &p, ls_gpu_in(x, 1), swapped);
}

ls_status ls_gpu_conv2d_grad_kernel(lowering *x)
{
    const ls_gpu_tuning *t = x->l->tuning;
    ls_shape in = ls_gpu_in_shape(x, 0), dy = ls_gpu_in_shape(x, 1);
    ls_gpu_correlate p = { .v = window_of(x, &in, &x->out_shape, &dy) };
    char name[48];
    int64_t count, each;
    bool done = false;
    LS_TRY(ls_gpu_library_conv(x, LS_GPU_CALL_CONV_GRAD_KERNEL, &p.v, &done));
    if (done)
        return LS_OK;
    p.b = ls_gpu_blocks_of(ls_blocks_of(p.v.yh, p.v.yw), p.v.n, &count);
    blocks_sum s = { .module = LS_GPU_PRODUCTS,
                     .kernel = with_columns(x, "conv2d_grad_kernel", p.v.group_out, name, &each),
                     .numbers = &p,
                     .size = sizeof(p),
                     .blocks = &p.b,
                     .heavy = true,
                     .places = 2,
                     .place = { ls_gpu_in(x, 0), ls_gpu_in(x, 1) },
                     .dtype = LS_F32,
                     .elements = ls_gpu_elements(&x->out_shape) };
    int64_t pixels = p.v.kh * p.v.kw, tiles = ceiling(pixels * p.v.group_in, t->rows);
    /* All cells of a tile cover the same positions: one check is enough. */
    if (is_padded(x) && p.v.group_in >= t->rows) {
        p.v.tiles = ceiling(p.v.group_in, t->rows);
        tiles = pixels * p.v.tiles;
    }
    s.items = p.v.groups * tiles * ceiling(p.v.group_out, each);
    return ls_gpu_sum_blocks(x, &s);
}

static ls_shape walk_leading(const ls_shape in[2], ls_gpu_walk *walk)
{
    ls_shape lead[2] = { in[0], in[1] };
    int64_t strides[2][LS_MAX_RANK] = { { 0 } };
    lead[0].rank -= 2;
    lead[1].rank -= 2;
    const ls_shape *longer = lead[0].rank >= lead[1].rank ? &lead[0] : &lead[1];
    const ls_shape *shorter = longer == &lead[0] ? &lead[1] : &lead[0];
    ls_shape over = *longer;
    for (int i = 0; i < shorter->rank; i++) {
        int64_t *size = &over.dims[longer->rank - shorter->rank + i];
        *size = *size == 1 ? shorter->dims[i] : *size;
    }
    for (int k = 0; k < 2; k++) {
        int64_t matrix = ls_gpu_extent(&in[k], lead[k].rank, in[k].rank);
        ls_gpu_broadcast_strides(&lead[k], &over, strides[k]);
        for (int i = 0; i < over.rank; i++)
            strides[k][i] *= matrix;
    }
    *walk = ls_gpu_walk_of(&over, 2, strides);
    return over;
}

static ls_status matmul_blocks(lowering *x, const ls_gpu_product *p, const ls_shape *over, ls_memory_place b)
{
    const ls_gpu_tuning *t = x->l->tuning;
    bool reduces = x->node->use == LS_USE_REDUCES && over->rank == 0;
    char name[48];
    int64_t count, each, rows = ls_gpu_extent(over, over->rank ? 1 : 0, over->rank);
    ls_gpu_product_blocks q = { .p = *p };
    q.p.sums = true;
    q.b = reduces ? ls_gpu_blocks_of(ls_blocks_of(1, 1), p->k, &count)
                  : ls_gpu_blocks_of(ls_blocks_of(rows, p->k), over->rank ? over->dims[0] : 1, &count);
    blocks_sum s = { .module = LS_GPU_PRODUCTS,
                     .kernel = with_columns(x, "matmul", p->n, name, &each),
                     .numbers = &q,
                     .size = sizeof(q),
                     .blocks = &q.b,
                     .heavy = true,
                     .places = 2,
                     .more_places = 1, /* place of the unused bias */
                     .place = { ls_gpu_in(x, 0), b },
                     .dtype = LS_F32,
                     .elements = p->m * p->n };
    s.items = ceiling(p->m, t->rows) * ceiling(p->n, each);
    return ls_gpu_sum_blocks(x, &s);
}

/* A product of two matrices is a convolution of one row of m pixels with a 1x1 kernel, which saves
 * a kernel to compile. */
static ls_status matmul_as_conv(lowering *x, const ls_gpu_product *p, ls_memory_place b)
{
    ls_gpu_conv v = {
        .n = 1,
        .h = 1,
        .w = p->m,
        .c = p->a_row,
        .kh = 1,
        .kw = 1,
        .yh = 1,
        .yw = p->m,
        .out = p->n,
        .groups = 1,
        .depth = p->k,
        .columns = p->n,
        .pitch = p->b_row,
        .in_step = { 1, 1 },
        .out_step = { 1, 1 },
        .dilation = { 1, 1 },
        .biased = p->biased,
        .rectified = p->rectified,
    };
    return launch_conv(x, &v, ls_gpu_in(x, 0), b);
}

ls_status ls_gpu_matmul(lowering *x)
{
    const ls_gpu_tuning *t = x->l->tuning;
    ls_shape in[2] = { ls_gpu_in_shape(x, 0), ls_gpu_in_shape(x, 1) };
    bool transpose_a = x->node->attr.matmul.transpose_a, transpose_b = x->node->attr.matmul.transpose_b;
    const int64_t *a_size = &in[0].dims[in[0].rank - 2], *b_size = &in[1].dims[in[1].rank - 2];
    ls_gpu_product p = { .m = a_size[transpose_a ? 1 : 0],
                         .k = a_size[transpose_a ? 0 : 1],
                         .n = b_size[transpose_b ? 0 : 1],
                         .a_row = transpose_a ? 1 : a_size[1],
                         .a_column = transpose_a ? a_size[1] : 1 };
    ls_shape over = walk_leading(in, &p.leading);
    ls_memory_place b = ls_gpu_in(x, 1);
    bool sums = x->node->attr.matmul.sum_leading || (x->node->use == LS_USE_REDUCES && over.rank == 0), done = false;
    p.b_row = p.n;
    LS_TRY(ls_gpu_library_matmul(x, &p, sums, &done));
    if (done)
        return LS_OK;
    if (transpose_b && p.n > 0 && p.k > 0)
        LS_TRY(ls_gpu_swap_last(x, 1, ls_gpu_elements(&in[1]) / (p.n * p.k), p.n, p.k, &b));
    if (sums)
        return matmul_blocks(x, &p, &over, b);
    char name[48];
    int64_t each;
    p.biased = x->biased;
    p.rectified = x->rectified;
    ls_gpu_product_blocks q = { .p = p, .b = { .count = p.leading.n } };
    (void)with_columns(x, "matmul", p.n, name, &each);
    if (each > t->vector && p.a_column == 1 && p.leading.n == 1)
        return matmul_as_conv(x, &p, b);
    return LAUNCH_HEAVY(x, LS_GPU_PRODUCTS, name, &q, ceiling(p.m, t->rows) * ceiling(p.n, each), p.leading.n,
                        ls_gpu_in(x, 0), b, x->out, x->biased ? x->bias : x->out);
}

static int64_t runs(const lowering *x, const ls_gpu_window *v, int64_t height, int64_t width)
{
    int64_t vector = x->l->tuning->vector;
    return height * ceiling(width, LS_GPU_RUN(vector)) * ceiling(v->c, vector);
}

ls_status ls_gpu_pool(lowering *x)
{
    ls_shape in = ls_gpu_in_shape(x, 0);
    ls_gpu_window v = window_of(x, &in, NULL, &x->out_shape);
    bool largest = x->node->op == LS_OP_max_pool2d;
    return LAUNCH(x, LS_GPU_POOLS, ls_tensor_op(x->node), &v, largest ? runs(x, &v, v.yh, v.yw) : v.yh * v.yw * v.c,
                  v.n, ls_gpu_in(x, 0), x->out);
}

/* Inputs: x, dy for a maximum; dy for an average. */
ls_status ls_gpu_pool_grad(lowering *x)
{
    bool largest = x->node->op == LS_OP_max_pool2d_grad;
    ls_shape dy = ls_gpu_in_shape(x, largest);
    ls_gpu_window v = window_of(x, &x->out_shape, NULL, &dy);
    v.rectified = x->rectified;
    bool apart = v.stride[0] == v.kh && v.stride[1] == v.kw && v.pad[0] == 0 && v.pad[1] == 0 && v.yh * v.kh <= v.h &&
                 v.yw * v.kw <= v.w; /* no window covers padding */
    if (largest && apart)
        return LAUNCH(x, LS_GPU_POOLS, "max_pool2d_grad_apart", &v, runs(x, &v, ceiling(v.h, v.kh), ceiling(v.w, v.kw)),
                      v.n, ls_gpu_in(x, 0), ls_gpu_in(x, 1), x->out);
    if (largest)
        return LAUNCH(x, LS_GPU_POOLS, "max_pool2d_grad", &v, v.h * v.w * ceiling(v.c, x->l->tuning->vector), v.n,
                      ls_gpu_in(x, 0), ls_gpu_in(x, 1), x->out);
    return LAUNCH(x, LS_GPU_POOLS, "average_pool2d_grad", &v, v.h * v.w * v.c, v.n, ls_gpu_in(x, 0), x->out);
}

/* from, to: shapes of the image and of what it becomes */
static ls_gpu_warped warp_of(const lowering *x, const ls_shape *from, const ls_shape *to)
{
    const ls_attrs *attr = &x->node->attr;
    return (ls_gpu_warped){ .n = from->dims[0],
                            .h = from->dims[1],
                            .w = from->dims[2],
                            .c = from->dims[3],
                            .yh = to->dims[1],
                            .yw = to->dims[2],
                            .nearest = attr->warp.interpolation == LS_NEAREST,
                            .fill_mode = attr->warp.fill_mode,
                            .fill_value = (float)attr->warp.fill_value };
}

ls_status ls_gpu_warp(lowering *x)
{
    ls_shape in = ls_gpu_in_shape(x, 0);
    ls_gpu_warped p = warp_of(x, &in, &x->out_shape);
    return LAUNCH(x, LS_GPU_WARP, "warp", &p, p.yh * p.yw, p.n, ls_gpu_in(x, 0), ls_gpu_in(x, 1), x->out);
}

ls_status ls_gpu_warp_grad(lowering *x)
{
    ls_shape dy = ls_gpu_in_shape(x, 0);
    ls_gpu_warped p = warp_of(x, &x->out_shape, &dy);
    return LAUNCH(x, LS_GPU_WARP, "warp_grad", &p, p.c, p.n, ls_gpu_in(x, 0), ls_gpu_in(x, 1), x->out);
}
