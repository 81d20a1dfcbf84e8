/* Matrix products and convolutions that a vendor's library accepts: one call per lane. The request
 * depends only on the lane's shapes, so the bits depend neither on devices nor on the number of
 * lanes. */
#include <limits.h>
#include <string.h>

#include "backend/gpu/lower.h"

#define ALIGNED(bytes) (((size_t)(bytes) + 255) / 256 * 256) /* as libraries require */

/* The workspace follows the first `kept` bytes of the memory that all lanes share. */
static ls_status call(lowering *x, const char *name, ls_gpu_call *c, size_t kept, const ls_memory_place place[3])
{
    ls_memory_place shared = x->l->shared;
    size_t bytes = ALIGNED(kept) + c->workspace;
    ls_gpu_launch launch = {
        .kernel = name,
        .numbers = c,
        .size = sizeof(*c),
        .places = 4,
        .place = { place[0], place[1], place[2], { shared.memory, shared.offset + ALIGNED(kept) } },
        .items = { 1, 1 },
        .is_call = true
    };
    x->l->shared_needs = bytes > x->l->shared_needs ? bytes : x->l->shared_needs;
    return x->l->launch(x->l->user, &launch);
}

/* Whether padding both sides by `pad`, as libraries do, gives the same number of windows. */
static bool fits(int64_t size, int64_t window, int64_t dilation, int64_t stride, int64_t pad, int64_t out)
{
    int64_t room = size + 2 * pad - ((window - 1) * dilation + 1);
    return room >= 0 && room / stride + 1 == out;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* An image that contains its padding, with everything that windows read. */
static ls_gpu_window padded(const ls_gpu_window *v)
{
    ls_gpu_window p = *v;
    if (fits(v->h, v->kh, v->dilation[0], v->stride[0], v->pad[0], v->yh) &&
        fits(v->w, v->kw, v->dilation[1], v->stride[1], v->pad[1], v->yw))
        return p;
    p.h = larger(v->pad[0] + v->h, (v->yh - 1) * v->stride[0] + (v->kh - 1) * v->dilation[0] + 1);
    p.w = larger(v->pad[1] + v->w, (v->yw - 1) * v->stride[1] + (v->kw - 1) * v->dilation[1] + 1);
    p.pad[0] = p.pad[1] = 0;
    return p;
}

static int64_t image_elements(const ls_gpu_window *v)
{
    return v->n * v->h * v->w * v->c;
}

static bool takes_window(const ls_gpu_window *v)
{
    int64_t sizes[] = { v->n, v->h, v->w, v->c, v->kh, v->kw, v->yh, v->yw, v->out };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (sizes[i] == 0)
            return false;
    return image_elements(v) <= INT32_MAX && v->n * v->yh * v->yw * v->out <= INT32_MAX;
}

/* Into the larger images of p, or back (out). */
static ls_status copy_images(lowering *x, const ls_gpu_window *v, const ls_gpu_window *p, ls_memory_place images,
                             ls_memory_place in_padding, bool out)
{
    ls_shape shape = LS_SHAPE(v->n, v->h, v->w, v->c);
    int64_t plain[LS_MAX_RANK] = { v->h * v->w * v->c, v->w * v->c, v->c, 1 };
    int64_t around[LS_MAX_RANK] = { p->h * p->w * v->c, p->w * v->c, v->c, 1 };
    int64_t start = (v->pad[0] * p->w + v->pad[1]) * v->c;
    return out ? ls_gpu_copy(x, sizeof(float), &shape, images, 0, plain, in_padding, start, around)
               : ls_gpu_copy(x, sizeof(float), &shape, in_padding, start, around, images, 0, plain);
}

/* Transposes [rows, columns]. */
static ls_status swap(lowering *x, int64_t rows, int64_t columns, ls_memory_place from, ls_memory_place to)
{
    ls_gpu_rows p = { .outer = 1, .n = rows, .inner = columns };
    int64_t vector = x->l->tuning->vector;
    return LAUNCH(x, LS_GPU_MOVES, "swap_4", &p, columns * ((rows + vector - 1) / vector), 1, to, from);
}

/* [kh,kw,group_in,out] to [out,kh,kw,group_in]; only once if it is the same for all lanes. *kept:
 * bytes in the shared memory. */
static ls_status swap_kernel(lowering *x, const ls_gpu_window *v, int input, ls_memory_place *out, size_t *kept)
{
    int64_t rows = v->kh * v->kw * v->group_in;
    size_t bytes = (size_t)(rows * v->out) * sizeof(float);
    bool shared = ls_gpu_is_shared(x, input);
    *out = shared ? x->l->shared : ls_gpu_scratch(x, bytes);
    *kept = shared ? bytes : 0;
    if (shared && !ls_gpu_makes(x, LS_GPU_MADE_KERNEL))
        return LS_OK;
    return swap(x, rows, v->out, ls_gpu_in(x, input), *out);
}

/* images: x or dx, or a padded copy. */
static ls_status call_conv(lowering *x, ls_gpu_call *c, const ls_gpu_window *v, ls_memory_place images)
{
    static const char *const names[] = { [LS_GPU_CALL_CONV] = "conv2d",
                                         [LS_GPU_CALL_CONV_GRAD_INPUT] = "conv2d_grad_input",
                                         [LS_GPU_CALL_CONV_GRAD_KERNEL] = "conv2d_grad_kernel" };
    ls_memory_place place[3] = { ls_gpu_in(x, 0), ls_gpu_in(x, 1), x->out };
    bool of_kernel = c->kind == LS_GPU_CALL_CONV_GRAD_KERNEL, forward = c->kind == LS_GPU_CALL_CONV;
    size_t kept = 0;
    place[c->kind == LS_GPU_CALL_CONV_GRAD_INPUT ? 2 : 0] = images;
    if (of_kernel)
        place[2] = ls_gpu_scratch(x, (size_t)ls_gpu_elements(&x->out_shape) * sizeof(float));
    else
        LS_TRY(swap_kernel(x, v, forward, &place[forward], &kept));
    LS_TRY(call(x, names[c->kind], c, kept, place));
    return of_kernel ? swap(x, v->out, v->kh * v->kw * v->group_in, place[2], x->out) : LS_OK;
}

ls_status ls_gpu_library_conv(lowering *x, ls_gpu_call_kind kind, const ls_gpu_window *v, bool *done)
{
    ls_gpu_call c;
    bool makes_images = kind == LS_GPU_CALL_CONV_GRAD_INPUT;
    ls_memory_place images = makes_images ? x->out : ls_gpu_in(x, 0), around;
    *done = false;
    if (!x->l->ask)
        return LS_OK;
    memset(&c, 0, sizeof(c));
    c.kind = kind;
    c.workspace = x->l->workspace_limit;
    c.of.window = padded(v);
    const ls_gpu_window *p = &c.of.window;
    if (!takes_window(p))
        return LS_OK;
    LS_TRY(x->l->ask(x->l->user, &c, done));
    if (!*done)
        return LS_OK;
    if (p->h == v->h && p->w == v->w)
        return call_conv(x, &c, v, images);
    around = ls_gpu_scratch(x, (size_t)image_elements(p) * sizeof(float));
    if (!makes_images) {
        LS_TRY(ls_gpu_fill(x, around, LS_F32, image_elements(p), 0));
        LS_TRY(copy_images(x, v, p, images, around, false));
    }
    LS_TRY(call_conv(x, &c, v, around));
    return makes_images ? copy_images(x, v, p, images, around, true) : LS_OK;
}

/* Into one matrix with more rows or, for a sum, a larger k. */
static void fold(ls_gpu_matrices *m)
{
    const ls_gpu_walk *w = &m->leading;
    if (w->rank != 1 || w->stride[0][0] != m->m * m->k)
        return;
    if (m->sums && m->transpose_a && !m->transpose_b && w->stride[1][0] == m->k * m->n)
        m->k *= w->n;
    else if (!m->sums && !m->transpose_a && w->stride[1][0] == 0)
        m->m *= w->n;
    else
        return;
    memset(&m->leading, 0, sizeof(m->leading));
    m->leading.n = 1;
}

ls_status ls_gpu_library_matmul(lowering *x, const ls_gpu_product *p, bool sums, bool *done)
{
    ls_gpu_call c;
    ls_gpu_matrices *m = &c.of.matrices;
    *done = false;
    if (!x->l->ask || p->m <= 0 || p->n <= 0 || p->k <= 0 || p->leading.n <= 0)
        return LS_OK;
    memset(&c, 0, sizeof(c));
    c.kind = LS_GPU_CALL_PRODUCT;
    c.workspace = x->l->workspace_limit;
    m->m = p->m;
    m->n = p->n;
    m->k = p->k;
    m->transpose_a = x->node->attr.matmul.transpose_a;
    m->transpose_b = x->node->attr.matmul.transpose_b;
    m->sums = sums;
    m->leading = p->leading;
    fold(m);
    if (m->m > INT32_MAX || m->n > INT32_MAX || m->k > INT32_MAX || m->leading.n > INT32_MAX)
        return LS_OK;
    LS_TRY(x->l->ask(x->l->user, &c, done));
    if (!*done)
        return LS_OK;
    return call(x, "matmul", &c, 0, (ls_memory_place[]){ ls_gpu_in(x, 0), ls_gpu_in(x, 1), x->out });
}
