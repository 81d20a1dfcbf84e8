/* Dense layers: rows of all samples times one matrix. If the weight is large and a lane has few
 * rows, moving the weight through the cache dominates: each kernel then reads it once, in
 * prefetched pieces, and packs the small operand where possible.
 *
 *   y = x W [+ bias] [, ReLU]   packs pieces of W's panels, broadcasts rows of x
 *   dx = dy W^T                 computes the transpose: broadcasts rows of W, packs dy^T as a panel
 *
 * A small weight is packed into panels once per step, and dx is computed like y.
 * kernels_matmul_sum.c computes dW.
 *
 * Every element is one chain over the index of its sum. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"

#define ROWS  256                  /* rows of x that are multiplied at once */
#define PIECE 512                  /* rows of a panel of W: 128 KiB */
#define LARGE ((int64_t)128 << 10) /* elements; larger weights are not packed */

typedef struct dense {
    ls_cpu_kernel base;
    int64_t rows;       /* rows per sample */
    int64_t in, out;    /* W is [in][out] */
    int64_t k, columns; /* W as used; transposed for dx */
    bool turned;
    bool packed; /* W is small and is packed once per step */
} dense;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

typedef struct forward {
    const float *x[ROWS + LS_GEMM_MOST_ROWS];
    float *y[ROWS + LS_GEMM_MOST_ROWS];
    float nowhere[LS_GEMM_PANEL]; /* output of rows that fill the last tile */
    float piece[PIECE * LS_GEMM_PANEL];
} forward;

/* Each of the first tiles prefetches one cache line of every row of the next piece. */
static void multiply_piece(const ls_gemm *gemm, const forward *f, int64_t rows, int64_t vectors, ls_gemm_rows t,
                           const float *next, int64_t step)
{
    for (int64_t i = 0, tile = 0, size; i < rows; i += size, tile++) {
        size = gemm->rows_tile_size(rows - i, vectors);
        t.in = f->x + i, t.out = f->y + i;
        t.ahead = tile < LS_GEMM_VECTORS ? next + tile * LS_GEMM_VECTOR : t.b;
        t.ahead_step = tile < LS_GEMM_VECTORS ? step : 0;
        gemm->rows_tile(size, vectors, &t);
    }
}

static void place_rows(forward *f, const dense *d, const float *x, float *y, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        f->x[i] = x + i * d->k, f->y[i] = y + i * d->columns;
    for (int64_t i = rows; i < rows + LS_GEMM_MOST_ROWS; i++)
        f->x[i] = x, f->y[i] = f->nowhere;
}

/* Multiplies up to ROWS rows of x by W. */
static void multiply_forward(const dense *d, const float *x, const float *w, const float *bias, float *y, int64_t rows,
                             forward *f)
{
    const ls_gemm *gemm = d->base.cpu->gemm;
    for (int64_t column = 0; column < d->columns; column += LS_GEMM_PANEL) {
        int64_t width = least(d->columns - column, LS_GEMM_PANEL);
        for (int64_t k = 0; k < d->k; k += PIECE) {
            int64_t count = least(d->k - k, PIECE);
            bool last = k + count == d->k;
            place_rows(f, d, x + k, y + column, rows);
            if (!d->packed)
                gemm->copy_panel(f->piece, w + k * d->out + column, d->out, count, width);
            const float *next = d->packed ? w
                                : last    ? w + least(column + LS_GEMM_PANEL, d->out - 1)
                                          : w + (k + count) * d->out + column;
            ls_gemm_rows t = { .runs = &(ls_gemm_run){ .count = (int32_t)count }, .run_count = 1 };
            t.b = d->packed ? w + column * d->k + k * ls_gemm_padded(width) : f->piece;
            t.columns = width % LS_GEMM_VECTOR ? width : 0;
            t.add = k > 0, t.bias = last && bias ? bias + column : NULL, t.relu = last && d->base.group->relu;
            multiply_piece(gemm, f, rows, ls_gemm_vectors(width), t, next, d->packed ? 0 : d->out);
        }
    }
}

static ls_status pack(ls_kernel *kernel, const void *from, void *to, int thread, void *scratch)
{
    (void)thread, (void)scratch;
    const dense *d = (const dense *)kernel;
    const ls_gemm *gemm = d->base.cpu->gemm;
    const float *w = from;
    float *panel = to;
    for (int64_t column = 0, width; column < d->columns; column += LS_GEMM_PANEL, panel += d->k * LS_GEMM_PANEL) {
        width = least(d->columns - column, LS_GEMM_PANEL);
        if (!d->turned) {
            gemm->copy_panel(panel, w + column, d->out, d->k, width);
            continue;
        }
        if (width % LS_GEMM_VECTOR != 0)
            memset(panel, 0, (size_t)(d->k * ls_gemm_padded(width)) * sizeof(*panel));
        gemm->transpose(panel, ls_gemm_padded(width), w + column * d->out, d->out, width, d->k);
    }
    return LS_OK;
}

static bool same_packing(const ls_kernel *a, const ls_kernel *b)
{
    const dense *x = (const dense *)a, *y = (const dense *)b;
    /* a reshaped weight has different panels */
    return x->turned == y->turned && x->in == y->in && x->out == y->out;
}

static ls_status run_forward(ls_kernel *kernel, const ls_kernel_call *call)
{
    const dense *d = (const dense *)kernel;
    const float *x = call->in[0], *bias = d->base.group->bias ? call->in[2] : NULL;
    int64_t rows = call->samples * d->rows;
    for (int64_t first = 0; first < rows; first += ROWS)
        multiply_forward(d, x + first * d->k, call->in[1], bias, (float *)call->out + first * d->columns,
                         least(rows - first, ROWS), call->scratch);
    return LS_OK;
}

/* Computes dx^T = W dy^T for up to 64 rows of dy: multiplies rows of W by one panel. */
static void multiply_rows(const dense *d, const float *w, const float *panel, float *transposed, int64_t vectors)
{
    const ls_gemm *gemm = d->base.cpu->gemm;
    const float *in[LS_GEMM_MOST_ROWS];
    float *out[LS_GEMM_MOST_ROWS], nowhere[LS_GEMM_PANEL];
    ls_gemm_run all = { .count = (int32_t)d->out };
    ls_gemm_rows t = { .runs = &all, .run_count = 1, .in = in, .out = out, .b = panel, .ahead_step = LS_GEMM_VECTOR };
    for (int64_t i = 0, size; i < d->in; i += size) {
        size = gemm->rows_tile_size(d->in - i, vectors);
        for (int64_t k = 0; k < size; k++) {
            bool there = i + k < d->in;
            in[k] = w + (there ? i + k : i) * d->out;
            out[k] = there ? transposed + (i + k) * vectors * LS_GEMM_VECTOR : nowhere;
        }
        t.ahead = i + size < d->in ? w + (i + size) * d->out : panel;
        gemm->rows_tile(size, vectors, &t);
    }
}

static ls_status run_turned(ls_kernel *kernel, const ls_kernel_call *call)
{
    const dense *d = (const dense *)kernel;
    const ls_gemm *gemm = d->base.cpu->gemm;
    const ls_group *group = d->base.group;
    const float *dy = call->in[0], *w = call->in[1];
    float *panel = call->scratch, *transposed = panel + d->out * LS_GEMM_PANEL, *out = call->out;
    int64_t all = call->samples * d->rows;
    for (int64_t first = 0; first < all; first += LS_GEMM_PANEL) {
        int64_t rows = least(all - first, LS_GEMM_PANEL), vectors = ls_gemm_vectors(rows);
        /* Clear the padding: tiles multiply it, too. */
        for (int64_t i = 0; rows % LS_GEMM_VECTOR != 0 && i < d->out; i++)
            for (int64_t k = rows; k < vectors * LS_GEMM_VECTOR; k++)
                panel[i * vectors * LS_GEMM_VECTOR + k] = 0;
        gemm->transpose(panel, vectors * LS_GEMM_VECTOR, dy + first * d->out, d->out, rows, d->out);
        multiply_rows(d, w, panel, transposed, vectors);
        gemm->transpose(out + first * d->in, d->in, transposed, vectors * LS_GEMM_VECTOR, d->in, rows);
    }
    if (group->bias)
        d->base.cpu->simd->add_row(out, out, call->in[2], (size_t)all, (size_t)d->in);
    if (group->relu)
        d->base.cpu->simd->relu(out, out, (size_t)(all * d->in));
    return LS_OK;
}

/* Returns whether a node multiplies rows of [N,K] or [N,...,K] by one matrix for all samples, [K,M]
 * or its transpose, and all sizes are known and positive. */
static bool is_dense(const ls_tensor *node)
{
    if (!ls_cpu_takes_matmul(node))
        return false;
    const ls_tensor *x = node->in[0], *w = node->in[1];
    if (node->use != LS_USE_KEEPS || node->attr.matmul.transpose_a || !x->per_sample || w->shape.rank != 2)
        return false;
    for (int i = 0; i < 2; i++)
        if (w->shape.dims[i] < 1 || w->shape.dims[i] >= INT32_MAX / LS_GEMM_PANEL)
            return false;
    for (int i = 1; i < x->shape.rank - 1; i++)
        if (x->shape.dims[i] < 1)
            return false;
    return true;
}

ls_status ls_cpu_make_dense(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    const ls_tensor *node = group->nodes[0];
    if (!is_dense(node))
        return ls_cpu_pass();
    dense *d = ls_cpu_kernel_new(cpu, group, sizeof(*d), "rows by panels", run_forward);
    if (!d)
        return LS_ERR_MEMORY;
    ls_kernel *base = &d->base.base;
    const ls_shape *x = &node->in[0]->shape, *w = &node->in[1]->shape;
    d->rows = 1;
    for (int i = 1; i < x->rank - 1; i++)
        d->rows *= x->dims[i];
    d->in = w->dims[0], d->out = w->dims[1];
    d->turned = node->attr.matmul.transpose_b;
    d->k = d->turned ? d->out : d->in;
    d->columns = d->turned ? d->in : d->out;
    d->packed = d->in * d->out < LARGE;
    if (d->packed) {
        size_t bytes = (size_t)(d->k * ls_gemm_padded(d->columns)) * sizeof(float);
        base->scratch_bytes = offsetof(forward, piece);
        base->prepare = (ls_prepare){ .input = 1, .bytes = bytes, .run = pack, .same = same_packing };
        base->layout = "panels";
    } else if (d->turned) {
        base->run = run_turned;
        base->scratch_bytes = (size_t)((d->in + d->out) * LS_GEMM_PANEL) * sizeof(float);
    } else {
        base->scratch_bytes = sizeof(forward);
    }
    *out = base;
    return LS_OK;
}
