/* The gradient of a convolution's kernel, by our own products: for each tap of the kernel an outer product of the
 * input's channels and the output gradient's, summed over the pixels that the tap meets inside the image.
 *
 * One side is cut into panels of 64 channels, which are copied close together block after block of pixels and loaded as
 * vectors; the other side's channels are broadcast from where they are. The output's channels are the panels', or, for
 * a 1x1 kernel with more channels in than out, the input's: the wide side gains more from being copied. A partial is
 * [panels][taps * rows][64], and joined as that. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"

#define BLOCK_PIXELS 256 /* of a panel: 64 KiB, to stay in the cache with what is broadcast */
#define MIN_CHANNELS 16  /* of both sides: with fewer the tiles are mostly empty */

typedef struct gradient {
    ls_cpu_kernel base;
    ls_dnn_conv conv; /* n: of the call it was made for; not used */
    bool swapped;     /* the input's channels are the panels' */
    int64_t rows;     /* channels that are broadcast */
    int64_t columns;  /* channels that are in panels */
    int64_t taps;
    bool in_place;      /* the output gradient's rows are a panel already */
    int64_t block_rows; /* of output pixels, in a block */
} gradient;

/* What one call works on. */
typedef struct work {
    const gradient *g;
    const float *x, *dy;
    float *out;
    float *panel;      /* [pixels][64] */
    ls_gemm_run *runs; /* of a block: [taps][block_rows] */
    int64_t *run_count;
    int64_t rows; /* of output pixels, over all samples */
} work;

typedef struct block {
    int64_t first, rows; /* of output pixels */
    bool add;
} block;

static int64_t vectors_of(int64_t columns)
{
    int64_t vectors = (columns + LS_GEMM_VECTOR - 1) / LS_GEMM_VECTOR;
    return vectors < LS_GEMM_VECTORS ? vectors : LS_GEMM_VECTORS;
}

/* Floats of a row of all panels: the last is filled up to whole vectors. */
static int64_t padded(int64_t columns)
{
    return (columns + LS_GEMM_VECTOR - 1) / LS_GEMM_VECTOR * LS_GEMM_VECTOR;
}

/* ---- Which pixels ---- */

/* Output columns whose tap at `offset` lies inside a row of `size`: from *first, so many. */
static int64_t inside(int64_t offset, int64_t stride, int64_t size, int64_t outputs, int64_t *first)
{
    int64_t from = offset < 0 ? (-offset + stride - 1) / stride : 0;
    int64_t to = offset < size ? (size - offset + stride - 1) / stride : 0;
    to = to < outputs ? to : outputs;
    *first = from;
    return to > from ? to - from : 0;
}

/* Adds a run, or makes the last one longer where it goes on: of a 1x1 kernel a block is one run. */
static int64_t add_run(ls_gemm_run *runs, int64_t count, ls_gemm_run next, int64_t a_step)
{
    ls_gemm_run *last = &runs[count - 1];
    if (count > 0 && last->a + last->count * a_step == next.a && last->b + last->count == next.b) {
        last->count += next.count;
        return count;
    }
    runs[count] = next;
    return count + 1;
}

/* The runs of one tap: a in x, b in the block's pixels. */
static int64_t find_runs(const work *w, const block *b, int64_t tap, ls_gemm_run *runs)
{
    const ls_dnn_conv *c = &w->g->conv;
    int64_t down = tap / c->kw * c->dilation[0] - c->pad[0], right = tap % c->kw * c->dilation[1] - c->pad[2];
    int64_t from, length = inside(right, c->stride[1], c->w, c->ow, &from), count = 0;
    for (int64_t r = 0; length > 0 && r < b->rows; r++) {
        int64_t n = (b->first + r) / c->oh, y = (b->first + r) % c->oh * c->stride[0] + down;
        int64_t at = ((n * c->h + y) * c->w + from * c->stride[1] + right) * c->c;
        if (y >= 0 && y < c->h)
            count = add_run(runs, count, (ls_gemm_run){ (int32_t)at, (int32_t)(r * c->ow + from), (int32_t)length },
                            c->stride[1] * c->c);
    }
    return count;
}

/* ---- Products ---- */

/* Columns of all the block's pixels, close together. */
static void copy_panel(const work *w, const block *b, int64_t column, int64_t count, int64_t width)
{
    const ls_dnn_conv *c = &w->g->conv;
    if (!w->g->swapped && !w->g->in_place)
        ls_gemm_copy_panel(w->panel, w->dy + b->first * c->ow * c->o + column, c->o, b->rows * c->ow, count);
    for (int64_t i = 0; w->g->swapped && i < w->run_count[0]; i++)
        ls_gemm_copy_panel(w->panel + w->runs[i].b * width, w->x + w->runs[i].a + column, c->stride[1] * c->c,
                           w->runs[i].count, count);
}

/* Where the pixels of a tile are. Swapped, the panel has them in the order of dy, as one run. */
static ls_gemm_outer sides(const work *w, const block *b, int64_t tap, ls_gemm_run *all, int64_t width)
{
    const ls_dnn_conv *c = &w->g->conv;
    ls_gemm_outer t = { .b = w->panel, .b_step = width, .c_step = width, .add = b->add };
    if (w->g->swapped) {
        *all = (ls_gemm_run){ .count = (int32_t)(b->rows * c->ow) };
        t.runs = all, t.run_count = 1;
        t.a = w->dy + b->first * c->ow * c->o, t.a_step = c->o;
    } else {
        t.runs = w->runs + tap * w->g->block_rows, t.run_count = w->run_count[tap];
        t.a = w->x, t.a_step = c->stride[1] * c->c;
        t.b = w->g->in_place ? w->dy + b->first * c->ow * c->o : w->panel;
    }
    return t;
}

/* What a panel's tiles fetch into the cache meanwhile: the next panel, a line of every pixel for each tile; then, with
 * a block's last panel, what the next block will broadcast, line after line. Bits do not depend on it. */
typedef struct ahead {
    const float *panel, *broadcast; /* NULL: nothing */
    int64_t panel_step, panel_lines;
    int64_t pixels; /* that a tile goes through */
    int64_t broadcast_lines;
} ahead;

/* Where the input of an output row begins. */
static const float *x_row(const work *w, int64_t row)
{
    const ls_dnn_conv *c = &w->g->conv;
    return w->x + (row / c->oh * c->h + row % c->oh * c->stride[0]) * c->w * c->c;
}

static ahead look_ahead(const work *w, const block *b, int64_t column)
{
    const gradient *g = w->g;
    const ls_dnn_conv *c = &g->conv;
    bool last = column + LS_GEMM_PANEL >= g->columns;
    int64_t next = last ? b->first + b->rows : b->first; /* row of the next panel */
    ahead a = { .pixels = b->rows * c->ow, .panel_lines = LS_GEMM_VECTORS };
    if (next >= w->rows || (g->taps == 1 && c->stride[0] * c->stride[1] > 1))
        return a; /* nothing is next, or most lines between strides would be in vain */
    const float *x = x_row(w, next), *dy = w->dy + next * c->ow * c->o;
    a.panel = (g->swapped ? x : dy) + (last ? 0 : column + LS_GEMM_PANEL);
    a.panel_step = g->columns;
    a.broadcast = last ? (g->swapped ? dy : x) : NULL;
    a.broadcast_lines = (g->swapped ? a.pixels * c->o : b->rows * c->stride[0] * c->w * c->c) / LS_GEMM_VECTOR;
    return a;
}

static void fetch_ahead(ahead *a, ls_gemm_outer *t)
{
    t->ahead = t->b, t->ahead_step = 0;
    if (a->panel && a->panel_lines-- > 0) {
        t->ahead = a->panel, t->ahead_step = a->panel_step;
        a->panel += LS_GEMM_VECTOR;
    } else if (a->broadcast && a->broadcast_lines > 0) {
        t->ahead = a->broadcast, t->ahead_step = LS_GEMM_VECTOR;
        a->broadcast += a->pixels * LS_GEMM_VECTOR;
        a->broadcast_lines -= a->pixels;
    }
}

static void multiply_panel(const work *w, const block *b, int64_t column, float *out)
{
    const gradient *g = w->g;
    int64_t count = g->columns - column < LS_GEMM_PANEL ? g->columns - column : LS_GEMM_PANEL;
    int64_t vectors = vectors_of(count), width = vectors * LS_GEMM_VECTOR, most = ls_gemm_outer_rows(vectors);
    ahead a = look_ahead(w, b, column);
    copy_panel(w, b, column, count, width);
    for (int64_t tap = 0; tap < g->taps; tap++) {
        ls_gemm_run all;
        ls_gemm_outer t = sides(w, b, tap, &all, width);
        t.c = out + tap * g->rows * width;
        for (int64_t i = 0; i < g->rows; i += most) {
            int64_t rows = g->rows - i < most ? g->rows - i : most;
            fetch_ahead(&a, &t);
            ls_gemm_outer_tile(rows, vectors, &t);
            t.a += rows;
            t.c += rows * width;
        }
    }
}

static void multiply_block(const work *w, const block *b)
{
    const gradient *g = w->g;
    for (int64_t tap = 0; tap < g->taps; tap++)
        w->run_count[tap] = find_runs(w, b, tap, w->runs + tap * g->block_rows);
    for (int64_t column = 0; column < g->columns; column += LS_GEMM_PANEL)
        multiply_panel(w, b, column, w->out + column * g->taps * g->rows);
}

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const gradient *g = (const gradient *)kernel;
    work w = { .g = g, .x = call->in[0], .dy = call->in[1], .out = call->out, .panel = call->scratch };
    w.runs = (ls_gemm_run *)(w.panel + g->block_rows * g->conv.ow * LS_GEMM_PANEL);
    w.run_count = (int64_t *)(w.runs + (g->taps * g->block_rows + 1) / 2 * 2);
    w.rows = call->samples * g->conv.oh;
    for (int64_t first = 0; first < w.rows; first += g->block_rows) {
        int64_t rows = w.rows - first < g->block_rows ? w.rows - first : g->block_rows;
        multiply_block(&w, &(block){ .first = first, .rows = rows, .add = first > 0 });
    }
    return LS_OK;
}

/* ---- From panels to HWIO ---- */

/* A panel of `count` columns to rows of HWIO, or, swapped, to columns. */
static void unpack_panel(const gradient *g, const float *from, float *to, int64_t column, int64_t count)
{
    int64_t rows = g->taps * g->rows, width = vectors_of(count) * LS_GEMM_VECTOR;
    if (g->swapped)
        ls_gemm_transpose(to + column * rows, rows, from, width, rows, count);
    for (int64_t r = 0; !g->swapped && r < rows; r++)
        memcpy(to + r * g->columns + column, from + r * width, (size_t)count * sizeof(*to));
}

static ls_status unpack(ls_kernel *kernel, const void *joined, void *out, int worker, void *scratch)
{
    (void)worker, (void)scratch;
    const gradient *g = (const gradient *)kernel;
    for (int64_t column = 0; column < g->columns; column += LS_GEMM_PANEL) {
        int64_t count = g->columns - column < LS_GEMM_PANEL ? g->columns - column : LS_GEMM_PANEL;
        unpack_panel(g, (const float *)joined + column * g->taps * g->rows, out, column, count);
    }
    return LS_OK;
}

/* ---- Making ---- */

/* Offsets into x are 32 bits wide. */
static bool takes(const ls_dnn_conv *c)
{
    return c->groups == 1 && c->c >= MIN_CHANNELS && c->o >= MIN_CHANNELS && c->n * c->h * c->w * c->c < INT32_MAX;
}

static void set_sizes(gradient *g)
{
    const ls_dnn_conv *c = &g->conv;
    g->taps = c->kh * c->kw;
    bool padding = c->pad[0] || c->pad[1] || c->pad[2] || c->pad[3];
    g->swapped = g->taps == 1 && !padding && c->c > c->o;
    g->rows = g->swapped ? c->o : c->c;
    g->columns = g->swapped ? c->c : c->o;
    g->in_place = !g->swapped && c->o <= LS_GEMM_PANEL && c->o % LS_GEMM_VECTOR == 0;
    g->block_rows = c->ow < BLOCK_PIXELS ? BLOCK_PIXELS / c->ow : 1;
    ls_kernel *base = &g->base.base;
    int64_t runs = (g->taps * g->block_rows + 1) / 2 * 2;
    base->scratch_bytes = (size_t)(g->block_rows * c->ow * LS_GEMM_PANEL) * sizeof(float) +
                          (size_t)runs * sizeof(ls_gemm_run) + (size_t)g->taps * sizeof(int64_t);
    if (!g->in_place) { /* otherwise a partial is HWIO itself */
        base->partial_bytes = (size_t)(g->taps * g->rows * padded(g->columns)) * sizeof(float);
        base->finish = unpack;
    }
}

ls_status ls_cpu_make_conv_gradient(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds,
                                    ls_kernel **out)
{
    const ls_tensor *node = group->nodes[0];
    if (node->op != LS_OP_conv2d_grad_kernel || !ls_cpu_takes_conv(node) || !ls_dnn_has_avx512())
        return ls_cpu_pass();
    int64_t most = 0;
    for (int i = 0; i < kinds; i++)
        most = samples[i] > most ? samples[i] : most;
    ls_dnn_conv conv = ls_cpu_conv_sizes(group, most);
    if (!takes(&conv))
        return ls_cpu_pass();
    gradient *g = ls_cpu_kernel_new(cpu, group, sizeof(*g), "outer products", run);
    if (!g)
        return LS_ERR_MEMORY;
    g->conv = conv;
    set_sizes(g);
    *out = &g->base.base;
    return LS_OK;
}
