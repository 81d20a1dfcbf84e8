/* The gradient of a convolution's kernel: for each tap an outer product of the channels of input
 * and output gradient, summed over the pixels for which the tap lies inside the image, block after
 * block (backend/blocks.h).
 *
 * The channels of one side are packed for each block into panels of 64; those of the other side are
 * broadcast from their place. Panels hold the output's channels or, for a 1x1 kernel with more
 * input than output channels, the input's: the wider side gains more from packing. With few input
 * channels or without padding, the adjacent channels of a row of taps are broadcast together; in
 * some cases those of all taps. A partial is [groups][panels][taps * rows][64] and is joined in
 * that layout. */
#include <stdlib.h>
#include <string.h>

#include "backend/blocks.h"
#include "backend/cpu/cpu.h"

#define FEW           16 /* with fewer input channels, taps are combined */
#define GATHERED_ROWS 12 /* maximum channels of all taps: bits of ls_gemm_run.to */
/* More vectors of output channels leave too few registers for rows. */
#define GATHERED_VECTORS 2

typedef struct gradient {
    ls_cpu_kernel base;
    ls_conv conv; /* n is unused */
    ls_blocks blocks;
    bool swapped;  /* the panels hold the input's channels */
    bool merged;   /* taps of a kernel row are combined */
    bool gathered; /* all taps are combined: few, or no padding and few output channels */
    bool padded;
    int32_t *at;                            /* gathered: offsets of a pixel's rows */
    bool threes;                            /* gathered: groups of three rows are adjacent */
    int64_t rows;                           /* channels that are broadcast */
    int64_t columns;                        /* channels that are in panels */
    int64_t taps;                           /* number of taps, or of groups of combined taps */
    int64_t part;                           /* floats in the partial of one group */
    int64_t tap_runs;                       /* maximum runs of a tap in a block */
    bool in_place;                          /* the output gradient is a panel already */
    bool by_channel;                        /* depthwise: one channel per group */
    int64_t tile_rows[LS_GEMM_VECTORS + 1]; /* by a tile's width in vectors */
    struct tap_place *places;               /* by tap, if not combined */
} gradient;

/* A tap's offset from a pixel, and the output columns from..end-1 for which it lies inside a
 * row. */
typedef struct tap_place {
    int64_t down, right;
    int64_t from, end;
} tap_place;

typedef struct work {
    const gradient *g;
    const ls_gemm *gemm;
    const float *x, *dy;
    float *out, *chain;
    float *panel;      /* [pixels][64] */
    ls_gemm_run *runs; /* runs of a block: [taps][tap_runs] */
    int64_t *run_count;
    int64_t rows; /* rows of output pixels of all samples */
} work;

/* Part of a block: whole rows of output pixels, or a piece of one. */
typedef struct block {
    int64_t first, rows;     /* first row of output pixels, and number of rows */
    int64_t sample, row;     /* sample of the first row, and its row in that sample */
    int64_t column, length;  /* first column of each row, and number of columns */
    int64_t pixel, pixels;   /* first pixel, and number of pixels */
    bool opens, closes, add; /* as in ls_block_part */
} block;

/* Number of output columns, from *first on, for which the tap at `offset` lies inside a row of
 * `size`. */
static int64_t inside(int64_t offset, int64_t stride, int64_t size, int64_t outputs, int64_t *first)
{
    int64_t from = offset < 0 ? (-offset + stride - 1) / stride : 0;
    int64_t to = offset < size ? (size - offset + stride - 1) / stride : 0;
    to = to < outputs ? to : outputs;
    *first = from;
    return to > from ? to - from : 0;
}

/* Appends a run, or extends the last one if `next` continues it: a block of a 1x1 kernel is one
 * run. */
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

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t greatest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Finds the runs of one tap: `a` is an offset in x, `b` a pixel of the block. */
static int64_t find_runs(const work *w, const block *b, int64_t tap, ls_gemm_run *runs)
{
    const ls_conv *c = &w->g->conv;
    const tap_place *place = &w->g->places[tap];
    int64_t from = greatest(place->from, b->column), end = least(place->end, b->column + b->length);
    int64_t count = 0, n = b->sample, row = b->row;
    for (int64_t r = 0; end > from && r < b->rows; r++, row++) {
        if (row == c->oh)
            row = 0, n++;
        int64_t y = row * c->stride[0] + place->down;
        int64_t at = ((n * c->h + y) * c->w + from * c->stride[1] + place->right) * c->c;
        ls_gemm_run run = { .a = (int32_t)at, .b = (int32_t)(r * b->length + from - b->column) };
        run.count = (int32_t)(end - from);
        if (y >= 0 && y < c->h)
            count = add_run(runs, count, run, c->stride[1] * c->c);
    }
    return count;
}

/* A row of output pixels for which taps may lie outside. */
typedef struct line {
    int64_t a, b;        /* offsets of its pixel in column 0, as in ls_gemm_run */
    int64_t top, bottom; /* gathered: kernel rows that lie inside */
} line;

/* Appends pixels of a line from column i on, for which taps from .. to - 1 of a kernel row lie
 * inside. */
static int64_t add_pixels(const gradient *g, const line *l, int64_t i, int64_t pixels, int64_t from, int64_t to,
                          ls_gemm_run *runs, int64_t count)
{
    const ls_conv *c = &g->conv;
    ls_gemm_run run = { .b = (int32_t)(l->b + i), .count = (int32_t)pixels };
    run.a = (int32_t)(l->a + i * c->stride[1] * c->c);
    bool all = from == 0 && to == c->kw;
    if (!g->gathered && !all)
        run.from = (int16_t)(from * c->c), run.to = (int16_t)(to * c->c);
    for (int64_t y = l->top; g->gathered && !(all && l->bottom - l->top == c->kh) && y < l->bottom; y++)
        run.to |= (int16_t)(((1 << (to - from) * c->c) - 1) << (y * c->kw + from) * c->c);
    bool meets = !g->gathered || l->bottom > l->top; /* an empty mask would mean all taps */
    if (pixels > 0 && to > from && meets)
        runs[count++] = run;
    return count;
}

/* Appends the pixels at a border one by one. */
static int64_t add_borders(const gradient *g, const line *l, int64_t i, int64_t end, ls_gemm_run *runs, int64_t count)
{
    for (; i < end; i++) {
        int64_t x = i * g->conv.stride[1] - g->conv.pad[2];
        count = add_pixels(g, l, i, 1, greatest(-x, 0), least(g->conv.w - x, g->conv.kw), runs, count);
    }
    return count;
}

/* Finds the runs of a row of taps, or of all taps. The pixels of a row for which all taps lie
 * inside are one run. */
static int64_t find_merged_runs(const work *w, const block *b, int64_t tap, ls_gemm_run *runs)
{
    const ls_conv *c = &w->g->conv;
    int64_t count = 0, step = c->stride[1], begin = b->column, end = begin + b->length;
    int64_t left = greatest(begin, least(end, (c->pad[2] + step - 1) / step));
    int64_t right = c->w + c->pad[2] < c->kw ? left : greatest(left, least(end, (c->w + c->pad[2] - c->kw) / step + 1));
    int64_t n = b->sample, row = b->row;
    for (int64_t r = 0; r < b->rows; r++, row++) {
        if (row == c->oh)
            row = 0, n++;
        int64_t y = row * c->stride[0] + tap * c->dilation[0] - c->pad[0];
        line l = { .a = ((n * c->h + y) * c->w - c->pad[2]) * c->c, .b = r * b->length - begin };
        if (w->g->gathered)
            l.bottom = inside(y, c->dilation[0], c->h, c->kh, &l.top) + l.top;
        else if (y < 0 || y >= c->h)
            continue;
        count = add_borders(w->g, &l, begin, left, runs, count);
        count = add_pixels(w->g, &l, left, right - left, 0, c->kw, runs, count);
        count = add_borders(w->g, &l, right, end, runs, count);
    }
    return count;
}

static void copy_panel(const work *w, const block *b, int64_t column, int64_t count, int64_t width)
{
    const ls_conv *c = &w->g->conv;
    if (!w->g->swapped && !w->g->in_place)
        w->gemm->copy_panel(w->panel, w->dy + b->pixel * c->o + column, c->o, b->pixels, count);
    for (int64_t i = 0; w->g->swapped && i < w->run_count[0]; i++)
        w->gemm->copy_panel(w->panel + w->runs[i].b * width, w->x + w->runs[i].a + column, c->stride[1] * c->c,
                            w->runs[i].count, count);
}

/* Returns the operands of a tap's outer product. If swapped, the panel has the pixels in the order
 * of dy, as one run. */
static ls_gemm_outer sides(const work *w, const block *b, int64_t tap, ls_gemm_run *all, int64_t width)
{
    const ls_conv *c = &w->g->conv;
    ls_gemm_outer t = { .b = w->panel, .b_step = width, .c_step = width, .add = b->closes && b->add };
    t.borders = w->g->merged && w->g->padded, t.at = w->g->at, t.threes = w->g->threes;
    if (w->g->swapped) {
        *all = (ls_gemm_run){ .count = (int32_t)b->pixels };
        t.runs = all, t.run_count = 1;
        t.a = w->dy + b->pixel * c->o, t.a_step = c->o;
    } else {
        t.runs = w->runs + tap * w->g->tap_runs, t.run_count = w->run_count[tap];
        t.a = w->x, t.a_step = c->stride[1] * c->c;
        t.b = w->g->in_place ? w->dy + b->pixel * c->o : w->panel;
    }
    return t;
}

/* Memory to prefetch while the tiles of a panel are computed. Each tile first prefetches one cache
 * line of every pixel of the next panel. After that, the tiles of a block's last panel prefetch the
 * channels that the next block broadcasts. */
typedef struct ahead {
    const float *panel, *broadcast; /* NULL: nothing */
    int64_t panel_step, panel_lines;
    int64_t pixels; /* pixels of a tile, one prefetch each */
    int64_t broadcast_lines;
} ahead;

static ahead look_ahead(const work *w, const block *b, int64_t column)
{
    const gradient *g = w->g;
    const ls_conv *c = &g->conv;
    bool last = column + LS_GEMM_PANEL >= g->columns;
    int64_t next = last ? b->first + b->rows : b->first; /* row of the next panel */
    int64_t sample = b->sample, row = last ? b->row + b->rows : b->row;
    for (; row >= c->oh; row -= c->oh)
        sample++;
    ahead a = { .pixels = b->pixels, .panel_lines = LS_GEMM_VECTORS };
    if (next >= w->rows || b->length < c->ow || c->groups > 1 || (g->taps == 1 && c->stride[0] * c->stride[1] > 1))
        return a; /* nothing follows, or strides would waste most lines */
    const float *x = w->x + (sample * c->h + row * c->stride[0]) * c->w * c->c, *dy = w->dy + next * c->ow * c->o;
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

static void multiply_panel(const work *w, const block *b, int64_t column, int64_t part)
{
    const gradient *g = w->g;
    int64_t count = g->columns - column < LS_GEMM_PANEL ? g->columns - column : LS_GEMM_PANEL;
    int64_t vectors = ls_gemm_vectors(count), width = vectors * LS_GEMM_VECTOR;
    int64_t strip = g->gathered ? least(vectors, GATHERED_VECTORS) : vectors, most = g->tile_rows[strip];
    ahead a = look_ahead(w, b, column);
    copy_panel(w, b, column, count, width);
    for (int64_t tap = 0, v = 0; tap < g->taps; v = v + strip < vectors ? v + strip : 0, tap += v == 0) {
        ls_gemm_run all;
        ls_gemm_outer t = sides(w, b, tap, &all, width);
        int64_t at = part + (column * g->taps + tap * width) * g->rows + v * LS_GEMM_VECTOR;
        t.b += v * LS_GEMM_VECTOR;
        t.c = (b->closes ? w->out : w->chain) + at;
        t.start = b->opens ? NULL : w->chain + at;
        for (int64_t i = 0; i < g->rows; i += most) {
            int64_t rows = g->rows - i < most ? g->rows - i : most;
            fetch_ahead(&a, &t);
            w->gemm->outer_tile(rows, least(strip, vectors - v), &t);
            t.a += g->gathered ? 0 : rows, t.c += rows * width, t.row += rows;
            t.at = t.at ? t.at + rows : NULL;
            t.start = t.start ? t.start + rows * width : NULL;
        }
    }
}

/* Lines of pixels of a block for which the taps of a kernel row lie inside in y. */
static int64_t find_lines(const work *w, const block *b, int64_t down, ls_gemm_run *lines)
{
    const ls_conv *c = &w->g->conv;
    int64_t count = 0, n = b->sample, row = b->row;
    for (int64_t r = 0; r < b->rows; r++, row++) {
        if (row == c->oh)
            row = 0, n++;
        int64_t y = row * c->stride[0] + down, x = b->column * c->stride[1] - c->pad[2];
        if (y >= 0 && y < c->h)
            lines[count++] =
                (ls_gemm_run){ .a = (int32_t)(((n * c->h + y) * c->w + x) * c->c), .b = (int32_t)(r * b->length) };
    }
    return count;
}

/* Depthwise: the taps of a kernel row together, at most LS_GEMM_MOST_TAPS. */
static void multiply_channels(const work *w, const block *b)
{
    const gradient *g = w->g;
    const ls_conv *c = &g->conv;
    ls_gemm_tap_sums t = { .lines = w->runs, .in = w->x, .pixels = b->length, .channels = c->o };
    t.in_step = c->stride[1] * c->c, t.tap_step = c->dilation[1] * c->c;
    t.b = w->dy + b->pixel * c->o, t.b_step = c->o;
    t.add = b->closes && b->add;
    for (int64_t tap = 0; tap < g->taps; tap += t.taps) {
        int64_t left = c->kw - tap % c->kw;
        t.taps = least(left, LS_GEMM_MOST_TAPS);
        t.line_count = find_lines(w, b, g->places[tap].down, w->runs);
        t.in = w->x + tap % c->kw * t.tap_step;
        for (int64_t k = 0; k < t.taps; k++) {
            const tap_place *place = &g->places[tap + k];
            t.first[k] = greatest(place->from - b->column, 0);
            t.end[k] = greatest(least(place->end - b->column, b->length), t.first[k]);
        }
        t.out = (b->closes ? w->out : w->chain) + tap * c->o;
        t.start = b->opens ? NULL : w->chain + tap * c->o;
        w->gemm->tap_sums(&t);
    }
}

static void multiply_block(const work *w, const block *b)
{
    const gradient *g = w->g;
    bool plain = !g->merged && !(g->gathered && g->padded);
    if (g->by_channel) {
        multiply_channels(w, b);
        return;
    }
    for (int64_t tap = 0; tap < g->taps; tap++)
        w->run_count[tap] = (plain ? find_runs : find_merged_runs)(w, b, tap, w->runs + tap * g->tap_runs);
    work of_group = *w;
    for (int64_t i = 0; i < g->conv.groups; i++) {
        for (int64_t column = 0; column < g->columns; column += LS_GEMM_PANEL)
            multiply_panel(&of_group, b, column, i * g->part);
        of_group.x += g->conv.c / g->conv.groups;
        of_group.dy += g->conv.o / g->conv.groups;
    }
}

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const gradient *g = (const gradient *)kernel;
    int64_t ow = g->conv.ow;
    work w = { .g = g, .gemm = g->base.cpu->gemm, .x = call->in[0], .dy = call->in[1] };
    w.out = call->out, w.chain = call->chain, w.panel = call->scratch;
    w.runs = (ls_gemm_run *)(w.panel + ls_blocks_most(&g->blocks) * LS_GEMM_PANEL);
    w.run_count = (int64_t *)(w.runs + g->taps * g->tap_runs);
    w.rows = call->samples * g->conv.oh;
    for (ls_block_part p = { 0 }; ls_blocks_next(&g->blocks, call->from_lane, call->samples, call->ends_lane, &p);) {
        block b = { .first = p.first / ow, .pixel = p.first, .pixels = p.count };
        b.column = p.first - b.first * ow, b.sample = b.first / g->conv.oh, b.row = b.first - b.sample * g->conv.oh;
        b.rows = p.count < ow ? 1 : p.count / ow, b.length = p.count < ow ? p.count : ow;
        b.opens = p.opens, b.closes = p.closes, b.add = p.adds;
        multiply_block(&w, &b);
    }
    return LS_OK;
}

/* ---- From panels to HWIO ---- */

/* Packs a lane's HWIO value that was computed elsewhere; pads with zeros. */
static void pack_panel(const gradient *g, const float *from, float *to, int64_t column, int64_t count)
{
    int64_t rows = g->taps * g->rows, width = ls_gemm_padded(count);
    memset(to, 0, (size_t)(rows * width) * sizeof(*to));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < count; i++)
            to[r * width + i] = g->swapped ? from[(column + i) * g->conv.o + r] : from[r * g->conv.o + column + i];
}

static void pack(ls_kernel *kernel, const void *value, void *to)
{
    const gradient *g = (const gradient *)kernel;
    for (int64_t i = 0; i < g->conv.groups; i++)
        for (int64_t column = 0; column < g->columns; column += LS_GEMM_PANEL) {
            int64_t count = g->columns - column < LS_GEMM_PANEL ? g->columns - column : LS_GEMM_PANEL;
            pack_panel(g, (const float *)value + i * (g->conv.o / g->conv.groups),
                       (float *)to + i * g->part + column * g->taps * g->rows, column, count);
        }
}

/* Copies `count` columns to rows of HWIO, or to columns if swapped. */
static void unpack_panel(const gradient *g, const float *from, float *to, int64_t column, int64_t count)
{
    int64_t rows = g->taps * g->rows, width = ls_gemm_padded(count);
    if (g->swapped)
        g->base.cpu->gemm->transpose(to + column * g->conv.o, g->conv.o, from, width, rows, count);
    for (int64_t r = 0; !g->swapped && r < rows; r++)
        memcpy(to + r * g->conv.o + column, from + r * width, (size_t)count * sizeof(*to));
}

static ls_status unpack(ls_kernel *kernel, const void *joined, void *out, int thread, void *scratch)
{
    (void)thread, (void)scratch;
    const gradient *g = (const gradient *)kernel;
    for (int64_t i = 0; i < g->conv.groups; i++)
        for (int64_t column = 0; column < g->columns; column += LS_GEMM_PANEL) {
            int64_t count = g->columns - column < LS_GEMM_PANEL ? g->columns - column : LS_GEMM_PANEL;
            unpack_panel(g, (const float *)joined + i * g->part + column * g->taps * g->rows,
                         (float *)out + i * (g->conv.o / g->conv.groups), column, count);
        }
    return LS_OK;
}

/* Offsets into x must fit in 32 bits. */
static bool takes(const ls_conv *c)
{
    return c->n * c->h * c->w * c->c < INT32_MAX && c->n * c->oh * c->ow < INT32_MAX && c->kw * c->c < INT32_MAX / 64;
}

static void set_sizes(gradient *g)
{
    const ls_conv *c = &g->conv;
    int64_t in = c->c / c->groups, out = c->o / c->groups;
    g->blocks = ls_blocks_of(c->oh, c->ow);
    g->by_channel = c->groups > 1 && in == 1 && out == 1;
    g->padded = c->pad[0] || c->pad[1] || c->pad[2] || c->pad[3];
    g->swapped = c->kh * c->kw == 1 && !g->padded && in > out && c->groups == 1;
    bool together = c->kh * c->kw > 1 && c->groups == 1, side_by_side = together && c->dilation[1] == 1;
    g->gathered = together && in < FEW && out <= GATHERED_VECTORS * LS_GEMM_VECTOR && !g->padded;
    g->gathered = g->gathered || (side_by_side && c->kh * c->kw * in <= GATHERED_ROWS);
    g->merged = !g->gathered && side_by_side && c->kw > 1 && c->kw * in < INT16_MAX;
    g->merged = g->merged && (in < FEW || (c->pad[2] == 0 && c->pad[3] == 0));
    g->taps = g->gathered ? 1 : g->merged ? c->kh : c->kh * c->kw;
    g->rows = g->swapped ? out : g->gathered ? c->kh * c->kw * in : g->merged ? c->kw * in : in;
    g->columns = g->swapped ? in : out;
    g->threes = g->gathered && c->dilation[1] == 1 && c->kw * in % 3 == 0;
    for (int64_t v = 1, most; v <= LS_GEMM_VECTORS; v++) {
        most = g->base.cpu->gemm->outer_rows[v];
        g->tile_rows[v] = g->threes ? 3 * ls_blocks_even(g->rows / 3, most / 3) : ls_blocks_even(g->rows, most);
    }
    g->part = g->taps * g->rows * ls_gemm_padded(g->columns);
    g->in_place = c->groups == 1 && !g->swapped && out <= LS_GEMM_PANEL && out % LS_GEMM_VECTOR == 0;
    int64_t most = ls_blocks_most(&g->blocks), rows = (most + c->ow - 1) / c->ow;
    g->tap_runs = g->merged || g->gathered ? rows * ((2 * c->kw < c->ow ? 2 * c->kw : c->ow) + 1) : rows;
    g->tap_runs += g->tap_runs % 2;
    ls_kernel *base = &g->base.base;
    base->chains = true;
    base->scratch_bytes = (size_t)(most * LS_GEMM_PANEL) * sizeof(float) +
                          (size_t)(g->taps * g->tap_runs) * sizeof(ls_gemm_run) + (size_t)g->taps * sizeof(int64_t);
    if (!g->in_place && !g->by_channel) { /* otherwise a partial is HWIO already */
        base->partial_bytes = (size_t)(c->groups * g->part) * sizeof(float);
        base->finish = unpack;
        base->pack = pack;
    }
}

static void destroy(ls_kernel *kernel)
{
    gradient *g = (gradient *)kernel;
    free(g->at);
    free(g->places);
    free(g);
}

static ls_status place_rows(gradient *g)
{
    const ls_conv *c = &g->conv;
    g->at = malloc((size_t)g->rows * sizeof(*g->at));
    if (!g->at)
        return ls_fail(LS_ERR_MEMORY, "no memory for %lld taps", (long long)g->rows);
    for (int64_t i = 0; i < g->rows; i++) {
        int64_t tap = i / c->c, y = tap / c->kw * c->dilation[0], x = tap % c->kw * c->dilation[1];
        g->at[i] = (int32_t)((y * c->w + x) * c->c + i % c->c);
    }
    return LS_OK;
}

static ls_status place_taps(gradient *g)
{
    const ls_conv *c = &g->conv;
    g->places = malloc((size_t)g->taps * sizeof(*g->places));
    if (!g->places)
        return ls_fail(LS_ERR_MEMORY, "no memory for %lld taps", (long long)g->taps);
    for (int64_t tap = 0; tap < g->taps; tap++) {
        tap_place *p = &g->places[tap];
        p->down = tap / c->kw * c->dilation[0] - c->pad[0], p->right = tap % c->kw * c->dilation[1] - c->pad[2];
        p->end = inside(p->right, c->stride[1], c->w, c->ow, &p->from);
        p->end += p->from;
    }
    return g->gathered ? place_rows(g) : LS_OK;
}

ls_status ls_cpu_make_conv_gradient(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds,
                                    ls_kernel **out)
{
    const ls_tensor *node = group->nodes[0];
    if (node->op != LS_OP_conv2d_grad_kernel || !ls_cpu_takes_conv(node))
        return ls_cpu_pass();
    int64_t most = 0;
    for (int i = 0; i < kinds; i++)
        most = samples[i] > most ? samples[i] : most;
    ls_conv conv = ls_cpu_conv_sizes(group, most);
    if (!takes(&conv))
        return ls_cpu_pass();
    gradient *g = ls_cpu_kernel_new(cpu, group, sizeof(*g), "outer products", run);
    if (!g)
        return LS_ERR_MEMORY;
    g->conv = conv;
    g->base.base.destroy = destroy;
    set_sizes(g);
    ls_status status = place_taps(g);
    if (status != LS_OK) {
        destroy(&g->base.base);
        return status;
    }
    *out = &g->base.base;
    return LS_OK;
}
