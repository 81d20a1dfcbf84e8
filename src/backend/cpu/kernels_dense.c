/* Dense layers with a large weight by our own products. A lane has few rows there, so that the weight's way through the
 * cache is what costs: each kernel goes through it once, in pieces that are fetched ahead, and packs the small operand
 * instead wherever it can.
 *
 *   y = x W [+ bias] [, ReLU]     pieces of W's panels are copied close together, rows of x broadcast
 *   dx = dy W^T                   computed as its transpose: rows of W broadcast, dy transposed as the panel
 *   dW = x^T dy                   both packed as panels; dW is written past the cache
 *
 * Every element is one chain over its sum's index, whatever the number of rows. */
#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"

#define MIN_WEIGHT  ((int64_t)128 << 10) /* elements: smaller ones stay in the cache, and oneDNN does well */
#define MIN_SAMPLES 8
#define MAX_SAMPLES 256
#define PIECE       512 /* rows of a panel of W: 128 KiB */

typedef enum kind { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT } kind;

typedef struct dense {
    ls_cpu_kernel base;
    int64_t in, out; /* W is [in][out] */
} dense;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t vectors_for(int64_t columns)
{
    return (least(columns, LS_GEMM_PANEL) + LS_GEMM_VECTOR - 1) / LS_GEMM_VECTOR;
}

/* ---- y = x W ---- */

typedef struct forward {
    const float *x[MAX_SAMPLES + LS_GEMM_MOST_ROWS];
    float *y[MAX_SAMPLES + LS_GEMM_MOST_ROWS];
    float nowhere[LS_GEMM_PANEL]; /* where rows go that fill up the last tile */
    float piece[PIECE * LS_GEMM_PANEL];
} forward;

/* A piece of a panel for all rows; the first tiles fetch the next piece, each a line of all its rows. */
static void multiply_piece(const forward *f, int64_t rows, int64_t vectors, ls_gemm_rows t, const float *next,
                           int64_t step)
{
    for (int64_t i = 0, tile = 0, size; i < rows; i += size, tile++) {
        size = ls_gemm_rows_tile_size(rows - i, vectors);
        t.in = f->x + i, t.out = f->y + i;
        t.ahead = tile < LS_GEMM_VECTORS ? next + tile * LS_GEMM_VECTOR : t.b;
        t.ahead_step = tile < LS_GEMM_VECTORS ? step : 0;
        ls_gemm_rows_tile(size, vectors, &t);
    }
}

static void place_rows(forward *f, const dense *d, const float *x, float *y, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        f->x[i] = x + i * d->in, f->y[i] = y + i * d->out;
    for (int64_t i = rows; i < rows + LS_GEMM_MOST_ROWS; i++)
        f->x[i] = x, f->y[i] = f->nowhere;
}

static ls_status run_forward(ls_kernel *kernel, const ls_kernel_call *call)
{
    const dense *d = (const dense *)kernel;
    const ls_group *group = d->base.group;
    const float *x = call->in[0], *w = call->in[1], *bias = group->bias ? call->in[2] : NULL;
    forward *f = call->scratch;
    for (int64_t column = 0; column < d->out; column += LS_GEMM_PANEL) {
        int64_t width = least(d->out - column, LS_GEMM_PANEL);
        for (int64_t k = 0; k < d->in; k += PIECE) {
            int64_t count = least(d->in - k, PIECE);
            bool last = k + count == d->in;
            place_rows(f, d, x + k, (float *)call->out + column, call->samples);
            ls_gemm_copy_panel(f->piece, w + k * d->out + column, d->out, count, width);
            const float *next =
                last ? w + least(column + LS_GEMM_PANEL, d->out - LS_GEMM_VECTOR) : w + (k + count) * d->out + column;
            ls_gemm_rows t = { .runs = &(ls_gemm_run){ .count = (int32_t)count }, .run_count = 1, .b = f->piece };
            t.add = k > 0, t.bias = last && bias ? bias + column : NULL, t.relu = last && group->relu;
            multiply_piece(f, call->samples, width / LS_GEMM_VECTOR, t, next, d->out);
        }
    }
    return LS_OK;
}

/* ---- dx = dy W^T ---- */

/* dx^T = W dy^T for up to 64 samples: rows of W by one panel. */
static void multiply_rows(const dense *d, const float *w, const float *panel, float *transposed, int64_t vectors)
{
    const float *in[LS_GEMM_MOST_ROWS];
    float *out[LS_GEMM_MOST_ROWS], nowhere[LS_GEMM_PANEL];
    ls_gemm_run all = { .count = (int32_t)d->out };
    ls_gemm_rows t = { .runs = &all, .run_count = 1, .in = in, .out = out, .b = panel, .ahead_step = LS_GEMM_VECTOR };
    for (int64_t i = 0, size; i < d->in; i += size) {
        size = ls_gemm_rows_tile_size(d->in - i, vectors);
        for (int64_t k = 0; k < size; k++) {
            bool there = i + k < d->in;
            in[k] = w + (there ? i + k : i) * d->out;
            out[k] = there ? transposed + (i + k) * vectors * LS_GEMM_VECTOR : nowhere;
        }
        t.ahead = i + size < d->in ? w + (i + size) * d->out : panel;
        ls_gemm_rows_tile(size, vectors, &t);
    }
}

static ls_status run_input_gradient(ls_kernel *kernel, const ls_kernel_call *call)
{
    const dense *d = (const dense *)kernel;
    const float *dy = call->in[0], *w = call->in[1];
    float *panel = call->scratch, *transposed = panel + d->out * LS_GEMM_PANEL;
    for (int64_t first = 0; first < call->samples; first += LS_GEMM_PANEL) {
        int64_t rows = least(call->samples - first, LS_GEMM_PANEL), vectors = vectors_for(rows);
        for (int64_t i = 0; rows % LS_GEMM_VECTOR != 0 && i < d->out; i++) /* what fills it up is multiplied, too */
            for (int64_t k = rows; k < vectors * LS_GEMM_VECTOR; k++)
                panel[i * vectors * LS_GEMM_VECTOR + k] = 0;
        ls_gemm_transpose(panel, vectors * LS_GEMM_VECTOR, dy + first * d->out, d->out, rows, d->out);
        multiply_rows(d, w, panel, transposed, vectors);
        ls_gemm_transpose((float *)call->out + first * d->in, d->in, transposed, vectors * LS_GEMM_VECTOR, d->in, rows);
    }
    return LS_OK;
}

/* ---- dW = x^T dy ---- */

/* All panels of an operand, [panels][samples][64]; a narrower last one is filled up to whole vectors. */
static void pack_panels(float *to, const float *from, int64_t samples, int64_t columns)
{
    for (int64_t column = 0; column < columns; column += LS_GEMM_PANEL) {
        int64_t width = least(columns - column, LS_GEMM_PANEL);
        ls_gemm_copy_panel(to + column * samples, from + column, columns, samples, width);
    }
}

static ls_status run_weight_gradient(ls_kernel *kernel, const ls_kernel_call *call)
{
    const dense *d = (const dense *)kernel;
    int64_t samples = call->samples;
    float *x = call->scratch, *dy = x + d->in * samples, *out = call->out;
    bool lines = (uintptr_t)out % (LS_GEMM_VECTOR * sizeof(float)) == 0;
    ls_gemm_run all = { .count = (int32_t)samples };
    ls_gemm_outer t = { .runs = &all, .run_count = 1, .c_step = d->out, .stream = lines };
    pack_panels(x, call->in[0], samples, d->in);
    pack_panels(dy, call->in[1], samples, d->out);
    for (int64_t row = 0; row < d->in; row += LS_GEMM_PANEL)
        for (int64_t column = 0; column < d->out; column += LS_GEMM_PANEL) {
            int64_t height = least(d->in - row, LS_GEMM_PANEL), width = least(d->out - column, LS_GEMM_PANEL);
            int64_t vectors = width / LS_GEMM_VECTOR, most = ls_gemm_outer_rows(vectors);
            t.a_step = height, t.b_step = width;
            t.b = t.ahead = dy + column * samples;
            for (int64_t i = 0; i < height; i += most) {
                t.a = x + row * samples + i;
                t.c = out + (row + i) * d->out + column;
                ls_gemm_outer_tile(least(height - i, most), vectors, &t);
            }
        }
    ls_gemm_stream_end();
    return LS_OK;
}

/* ---- Making ---- */

static kind kind_of(const ls_tensor *node)
{
    return node->use == LS_USE_REDUCES ? WEIGHT_GRADIENT : node->attr.matmul.transpose_b ? INPUT_GRADIENT : FORWARD;
}

static bool takes(const ls_tensor *node, const int64_t *samples, int kinds)
{
    bool reduces = node->use == LS_USE_REDUCES, ta = node->attr.matmul.transpose_a, tb = node->attr.matmul.transpose_b;
    if (!node->in[0]->per_sample || node->in[1]->per_sample != reduces || ta != reduces || (reduces && tb))
        return false;
    const int64_t *weight = reduces ? node->shape.dims : node->in[1]->shape.dims;
    for (int i = 0; i < kinds; i++)
        if (samples[i] < MIN_SAMPLES || samples[i] > MAX_SAMPLES)
            return false;
    return weight[0] % LS_GEMM_VECTOR == 0 && weight[1] % LS_GEMM_VECTOR == 0 &&
           weight[1] < INT32_MAX / LS_GEMM_PANEL && weight[0] < INT32_MAX / LS_GEMM_PANEL &&
           weight[0] * weight[1] >= MIN_WEIGHT;
}

static size_t scratch_bytes(const dense *d, kind k, int64_t most)
{
    switch (k) {
    case FORWARD:
        return sizeof(forward);
    case INPUT_GRADIENT:
        return (size_t)((d->in + d->out) * LS_GEMM_PANEL) * sizeof(float);
    default:
        return (size_t)((d->in + d->out) * most) * sizeof(float);
    }
}

ls_status ls_cpu_make_dense(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    const ls_tensor *node = group->nodes[0];
    if (!ls_cpu_takes_matmul(node) || !group->per_sample || !ls_dnn_has_avx512() || !takes(node, samples, kinds))
        return ls_cpu_pass();
    kind k = kind_of(node);
    dense *d = ls_cpu_kernel_new(cpu, group, sizeof(*d), "rows by panels", run_forward);
    if (!d)
        return LS_ERR_MEMORY;
    ls_kernel *base = &d->base.base;
    const int64_t *weight = k == WEIGHT_GRADIENT ? node->shape.dims : node->in[1]->shape.dims;
    int64_t most = 0;
    for (int i = 0; i < kinds; i++)
        most = samples[i] > most ? samples[i] : most;
    d->in = weight[0], d->out = weight[1];
    if (k != FORWARD)
        base->run = k == INPUT_GRADIENT ? run_input_gradient : run_weight_gradient;
    if (k == WEIGHT_GRADIENT)
        base->name = "outer products";
    base->scratch_bytes = scratch_bytes(d, k, most);
    *out = base;
    return LS_OK;
}
