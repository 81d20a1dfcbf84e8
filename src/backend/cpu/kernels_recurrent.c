/* Recurrent cells: step by step, up to ROWS samples at once. The kernel is packed into panels once
 * per run; each step of a sequence multiplies the states of all samples by them, in place in the
 * value, and applies the gates row by row. docs/bits.md has the formulas, and
 * backend/ref/recurrent_real.c the same steps in plain C. */
#include <stddef.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/ref/ref.h"
#include "graph/recurrent.h"

#define ROWS  64
#define TEMPS 4 /* vectors of a unit each */

typedef struct recurrent {
    ls_cpu_kernel base;
    ls_cell cell;
    ls_gate activation, inner;
    int64_t steps, units, columns; /* columns of the kernel */
    int64_t value, gradient;       /* numbers in a step */
    bool reverse, turned;          /* turned: the panels are those of the transposed kernel */
    int64_t own_panels;            /* offset in room.numbers; 0: the panels are prepared */
} recurrent;

/* Samples that are computed together. */
typedef struct room {
    const float *in[ROWS + LS_GEMM_MOST_ROWS];
    float *out[ROWS + LS_GEMM_MOST_ROWS];
    float nowhere[LS_GEMM_PANEL]; /* output of rows that fill the last tile */
    float numbers[];              /* temps; of gradients also the states'; panels that are not prepared */
} room;

typedef struct batch {
    const recurrent *r;
    const ls_simd *simd;
    const float *panels, *bias;
    const uint8_t *mask; /* the first sample's; NULL: none */
    int64_t rows;
    room *room;
    float *temp[TEMPS], *ones;
} batch;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Index of the step that comes i-th. */
static int64_t step_at(const recurrent *r, int64_t i)
{
    return r->reverse ? r->steps - 1 - i : i;
}

static bool is_masked(const batch *b, int64_t row, int64_t step)
{
    return b->mask && !b->mask[row * b->r->steps + step];
}

/* ---- Products ---- */

/* Continues the chains of `columns` numbers of every row of room->out with products of room->in.
 * depth: rows of a panel. */
static void multiply(const batch *b, const float *panels, int64_t depth, int64_t columns, const ls_gemm_run *runs,
                     int64_t run_count)
{
    const ls_gemm *gemm = b->r->base.cpu->gemm;
    room *m = b->room;
    float *out[LS_GEMM_MOST_ROWS];
    for (int64_t i = b->rows; i < b->rows + LS_GEMM_MOST_ROWS; i++)
        m->in[i] = m->in[0];
    for (int64_t column = 0; column < columns; column += LS_GEMM_PANEL) {
        int64_t width = least(columns - column, LS_GEMM_PANEL), vectors = ls_gemm_vectors(width);
        ls_gemm_rows t = {
            .runs = runs, .run_count = run_count, .b = panels + column * depth, .out = out, .add = true
        };
        t.columns = width % LS_GEMM_VECTOR ? width : 0;
        t.ahead = t.b;
        for (int64_t i = 0, size; i < b->rows; i += size) {
            size = gemm->rows_tile_size(b->rows - i, vectors);
            for (int64_t k = 0; k < size; k++)
                out[k] = i + k < b->rows ? m->out[i + k] + column : m->nowhere;
            t.in = m->in + i;
            gemm->rows_tile(size, vectors, &t);
        }
    }
}

static void pack_columns(const recurrent *r, const float *kernel, int64_t first, int64_t count, float *to)
{
    const ls_gemm *gemm = r->base.cpu->gemm;
    for (int64_t column = 0; column < count; column += LS_GEMM_PANEL, to += r->units * LS_GEMM_PANEL)
        gemm->copy_panel(to, kernel + first + column, r->columns, r->units, least(count - column, LS_GEMM_PANEL));
}

/* Columns that are multiplied first; a GRU that resets before has others. */
static int64_t first_columns(const recurrent *r)
{
    return r->cell == LS_CELL_GRU ? 2 * r->units : r->columns;
}

static void pack_panels(const recurrent *r, const float *from, float *panel)
{
    const ls_gemm *gemm = r->base.cpu->gemm;
    int64_t first = first_columns(r);
    if (!r->turned) {
        pack_columns(r, from, 0, first, panel);
        pack_columns(r, from, first, r->columns - first, panel + r->units * ls_gemm_padded(first));
        return;
    }
    for (int64_t column = 0; column < r->units; column += LS_GEMM_PANEL, panel += r->columns * LS_GEMM_PANEL) {
        int64_t width = least(r->units - column, LS_GEMM_PANEL), padded = ls_gemm_padded(width);
        if (padded != width)
            memset(panel, 0, (size_t)(r->columns * padded) * sizeof(*panel));
        gemm->transpose(panel, padded, from + column * r->columns, r->columns, width, r->columns);
    }
}

static ls_status pack(ls_kernel *kernel, const void *from, void *to, int worker, void *scratch)
{
    (void)worker, (void)scratch;
    pack_panels((const recurrent *)kernel, from, to);
    return LS_OK;
}

static bool same_packing(const ls_kernel *a, const ls_kernel *b)
{
    const recurrent *x = (const recurrent *)a, *y = (const recurrent *)b;
    return x->turned == y->turned && x->units == y->units && x->columns == y->columns &&
           (x->turned || first_columns(x) == first_columns(y));
}

/* ---- Gates ---- */

static void activate(const batch *b, ls_gate gate, float *x, const float *from, int64_t n)
{
    size_t count = (size_t)n;
    switch (gate) {
    case LS_GATE_TANH:
        b->simd->tanh(x, from, count);
        break;
    case LS_GATE_SIGMOID:
        b->simd->sigmoid(x, from, count);
        break;
    case LS_GATE_RELU:
        b->simd->relu(x, from, count);
        break;
    case LS_GATE_HARD_SIGMOID:
        b->simd->div_scalar(x, from, 6, count);
        b->simd->add_scalar(x, x, 0.5f, count);
        b->simd->clip(x, x, 0, 1, count);
        break;
    default:
        memmove(x, from, count * sizeof(*x));
    }
}

/* d *= the derivative where the activation's value is y. */
static void apply_slope(const batch *b, ls_gate gate, float *d, const float *y)
{
    size_t n = (size_t)b->r->units;
    float *slope = b->temp[0];
    switch (gate) {
    case LS_GATE_TANH:
        b->simd->square(slope, y, n);
        b->simd->sub(slope, b->ones, slope, n);
        break;
    case LS_GATE_SIGMOID:
        b->simd->sub(slope, b->ones, y, n);
        b->simd->mul(slope, y, slope, n);
        break;
    case LS_GATE_RELU:
        for (size_t i = 0; i < n; i++)
            slope[i] = y[i] > 0 ? 1 : 0;
        break;
    case LS_GATE_HARD_SIGMOID:
        for (size_t i = 0; i < n; i++)
            slope[i] = y[i] > 0 && y[i] < 1 ? (float)(1.0 / 6) : 0;
        break;
    default:
        slope = b->ones;
    }
    b->simd->mul(d, d, slope, n);
}

/* x = a * b, where NULL is a vector of zeros. */
static void times(const batch *b, float *x, const float *a, const float *by, int64_t n)
{
    if (by)
        b->simd->mul(x, a, by, (size_t)n);
    else
        b->simd->scale(x, a, 0, (size_t)n);
}

/* ---- Values: y is a step of a sample, before the step before it or NULL ---- */

static void finish_lstm(const batch *b, float *y, const float *before)
{
    const ls_simd *simd = b->simd;
    int64_t n = b->r->units;
    size_t count = (size_t)n;
    float *h = y, *c = y + n, *i = y + 2 * n, *f = y + 3 * n, *g = y + 4 * n, *o = y + 5 * n, *a = y + 6 * n;
    activate(b, b->r->inner, i, i, 2 * n);
    activate(b, b->r->activation, g, g, n);
    activate(b, b->r->inner, o, o, n);
    times(b, c, f, before ? before + n : NULL, n);
    simd->mul(b->temp[0], i, g, count);
    simd->add(c, c, b->temp[0], count);
    activate(b, b->r->activation, a, c, n);
    simd->mul(h, o, a, count);
}

/* The gates z and r, and what is in front of the candidate's activation. */
static void finish_gates(const batch *b, const float *p, float *y, const float *before)
{
    int64_t n = b->r->units;
    float *z = y + n, *r = y + 2 * n, *part = y + 3 * n, *g = y + 4 * n;
    if (b->r->cell == LS_CELL_GRU_RESET_AFTER) {
        b->simd->add(z, p, z, (size_t)(2 * n));
        activate(b, b->r->inner, z, z, 2 * n);
        b->simd->mul(g, r, part, (size_t)n);
        b->simd->add(g, p + 2 * n, g, (size_t)n);
        return;
    }
    activate(b, b->r->inner, z, z, 2 * n);
    times(b, part, r, before, n);
    memcpy(g, p + 2 * n, (size_t)n * sizeof(*g));
}

static void finish_gru(const batch *b, float *y, const float *before)
{
    const ls_simd *simd = b->simd;
    int64_t n = b->r->units;
    size_t count = (size_t)n;
    float *h = y, *z = y + n, *g = y + 4 * n;
    activate(b, b->r->activation, g, g, n);
    times(b, h, z, before, n);
    simd->sub(b->temp[0], b->ones, z, count);
    simd->mul(b->temp[0], b->temp[0], g, count);
    simd->add(h, h, b->temp[0], count);
}

static void copy_state(const recurrent *r, float *y, const float *before)
{
    size_t state = (size_t)(r->units * (r->cell == LS_CELL_LSTM ? 2 : 1));
    memset(y, 0, (size_t)r->value * sizeof(*y));
    if (before)
        memcpy(y, before, state * sizeof(*y));
}

/* Where the chains of a step are in its value, and the numbers that they start from. */
static void start_chains(const batch *b, const float *p, float *y)
{
    const recurrent *r = b->r;
    bool after = r->cell == LS_CELL_GRU_RESET_AFTER;
    const float *from = after ? b->bias : p;
    size_t bytes = (size_t)first_columns(r) * sizeof(*y);
    if (from)
        memcpy(y, from, bytes);
    else
        memset(y, 0, bytes);
}

static int64_t chain_offset(const recurrent *r)
{
    return r->cell == LS_CELL_SIMPLE ? 0 : r->cell == LS_CELL_LSTM ? 2 * r->units : r->units;
}

/* Step t of all rows; last: the step before, or -1. */
static void compute_step(const batch *b, const float *p, float *y, int64_t t, int64_t last)
{
    const recurrent *r = b->r;
    int64_t n = r->units, sample = r->steps * r->value, input = r->steps * r->columns;
    const ls_gemm_run all = { .count = (int32_t)n };
    for (int64_t i = 0; i < b->rows; i++) {
        float *at = y + i * sample + t * r->value + chain_offset(r);
        start_chains(b, p + i * input + t * r->columns, at);
        b->room->in[i] = last < 0 ? at : y + i * sample + last * r->value;
        b->room->out[i] = at;
    }
    if (last >= 0)
        multiply(b, b->panels, n, first_columns(r), &all, 1);
    bool gru = r->cell == LS_CELL_GRU || r->cell == LS_CELL_GRU_RESET_AFTER;
    for (int64_t i = 0; i < b->rows && gru; i++) {
        float *at = y + i * sample + t * r->value;
        finish_gates(b, p + i * input + t * r->columns, at, last < 0 ? NULL : y + i * sample + last * r->value);
        b->room->in[i] = at + 3 * n;
        b->room->out[i] = at + 4 * n;
    }
    if (last >= 0 && r->cell == LS_CELL_GRU)
        multiply(b, b->panels + n * ls_gemm_padded(2 * n), n, n, &all, 1);
    for (int64_t i = 0; i < b->rows; i++) {
        float *at = y + i * sample + t * r->value;
        const float *before = last < 0 ? NULL : y + i * sample + last * r->value;
        if (is_masked(b, i, t))
            copy_state(r, at, before);
        else if (gru)
            finish_gru(b, at, before);
        else if (r->cell == LS_CELL_LSTM)
            finish_lstm(b, at, before);
        else
            activate(b, r->activation, at, at, n);
    }
}

/* ---- Gradients: d is a step of a sample; dh: of its state, dc: of an LSTM's c ---- */

static void back_lstm(const batch *b, const float *y, const float *before, float *dh, float *dc, float *d)
{
    const ls_simd *simd = b->simd;
    const recurrent *r = b->r;
    int64_t n = r->units;
    size_t count = (size_t)n;
    const float *i = y + 2 * n, *f = y + 3 * n, *g = y + 4 * n, *o = y + 5 * n, *a = y + 6 * n;
    float *through = b->temp[1];
    simd->mul(through, dh, o, count);
    apply_slope(b, r->activation, through, a);
    simd->add(dc, dc, through, count);
    simd->mul(d, dc, g, count);
    apply_slope(b, r->inner, d, i);
    times(b, d + n, dc, before ? before + n : NULL, n);
    apply_slope(b, r->inner, d + n, f);
    simd->mul(d + 2 * n, dc, i, count);
    apply_slope(b, r->activation, d + 2 * n, g);
    simd->mul(d + 3 * n, dh, a, count);
    apply_slope(b, r->inner, d + 3 * n, o);
    simd->mul(dc, dc, f, count);
    memset(dh, 0, count * sizeof(*dh));
}

/* Gradients of the candidate and of z. */
static void back_candidate(const batch *b, const float *y, const float *before, float *dh, float *reset, float *d)
{
    const ls_simd *simd = b->simd;
    int64_t n = b->r->units;
    size_t count = (size_t)n;
    const float *z = y + n, *g = y + 4 * n;
    if (before)
        simd->sub(d, before, g, count);
    else
        for (int64_t u = 0; u < n; u++)
            d[u] = 0 - g[u];
    simd->mul(d, dh, d, count);
    apply_slope(b, b->r->inner, d, z);
    simd->sub(d + 2 * n, b->ones, z, count);
    simd->mul(d + 2 * n, dh, d + 2 * n, count);
    apply_slope(b, b->r->activation, d + 2 * n, g);
    simd->mul(dh, dh, z, count);
    memset(reset, 0, count * sizeof(*reset));
}

/* Gradient of r; reset: of r times the state. */
static void back_reset(const batch *b, const float *y, const float *before, float *dh, const float *reset, float *d)
{
    const ls_simd *simd = b->simd;
    int64_t n = b->r->units;
    size_t count = (size_t)n;
    const float *gate = y + 2 * n, *part = y + 3 * n;
    if (b->r->cell == LS_CELL_GRU_RESET_AFTER) {
        simd->mul(d + n, d + 2 * n, part, count);
        simd->mul(d + 3 * n, d + 2 * n, gate, count);
    } else {
        times(b, d + n, reset, before, n);
        simd->mul(b->temp[1], reset, gate, count);
        simd->add(dh, dh, b->temp[1], count);
    }
    apply_slope(b, b->r->inner, d + n, gate);
}

/* One step of gradients of all rows. */
typedef struct back {
    const float *dy, *y; /* the first row's */
    float *d, *dh, *dc;
    int64_t t, last; /* the step, and the one that was computed before it, or -1 */
} back;

static const float *value_at(const batch *b, const back *k, int64_t row, int64_t step)
{
    return step < 0 ? NULL : k->y + (row * b->r->steps + step) * b->r->value;
}

static float *gradient_at(const batch *b, const back *k, int64_t row)
{
    return k->d + (row * b->r->steps + k->t) * b->r->gradient;
}

/* The first gates of a GRU; other cells: all. */
static void back_gates(const batch *b, const back *k)
{
    const recurrent *r = b->r;
    int64_t n = r->units;
    for (int64_t i = 0; i < b->rows; i++) {
        float *dh = k->dh + i * n, *dc = k->dc + i * n, *d = gradient_at(b, k, i);
        const float *y = value_at(b, k, i, k->t), *before = value_at(b, k, i, k->last);
        b->simd->add(dh, k->dy + (i * r->steps + k->t) * n, dh, (size_t)n);
        b->room->in[i] = d;
        b->room->out[i] = dc;
        if (is_masked(b, i, k->t)) {
            memset(d, 0, (size_t)r->gradient * sizeof(*d));
        } else if (r->cell == LS_CELL_LSTM) {
            back_lstm(b, y, before, dh, dc, d);
        } else if (r->cell == LS_CELL_SIMPLE) {
            memcpy(d, dh, (size_t)n * sizeof(*d));
            apply_slope(b, r->activation, d, y);
            memset(dh, 0, (size_t)n * sizeof(*dh));
        } else {
            back_candidate(b, y, before, dh, dc, d);
        }
    }
}

static void back_step(const batch *b, const back *k)
{
    const recurrent *r = b->r;
    int64_t n = r->units;
    bool gru = r->cell == LS_CELL_GRU || r->cell == LS_CELL_GRU_RESET_AFTER;
    const ls_gemm_run candidate = { .a = (int32_t)(2 * n), .b = (int32_t)(2 * n), .count = (int32_t)n };
    ls_gemm_run runs[2] = { { .count = (int32_t)(gru ? 2 * n : r->columns) },
                            { .a = (int32_t)(3 * n), .b = (int32_t)(2 * n), .count = (int32_t)n } };
    back_gates(b, k);
    if (r->cell == LS_CELL_GRU)
        multiply(b, b->panels, r->columns, n, &candidate, 1);
    for (int64_t i = 0; i < b->rows && gru; i++)
        if (!is_masked(b, i, k->t))
            back_reset(b, value_at(b, k, i, k->t), value_at(b, k, i, k->last), k->dh + i * n, k->dc + i * n,
                       gradient_at(b, k, i));
    for (int64_t i = 0; i < b->rows; i++)
        b->room->out[i] = k->dh + i * n;
    if (k->last >= 0)
        multiply(b, b->panels, r->columns, n, runs, r->cell == LS_CELL_GRU_RESET_AFTER ? 2 : 1);
}

/* ---- Calls ---- */

static batch open_batch(const recurrent *r, const ls_kernel_call *call)
{
    const ls_tensor *node = r->base.group->nodes[0];
    batch b = { .r = r, .simd = r->base.cpu->simd, .panels = call->in[1], .room = call->scratch };
    if (r->own_panels) {
        b.panels = b.room->numbers + r->own_panels;
        pack_panels(r, call->in[1], b.room->numbers + r->own_panels);
    }
    for (int i = 0; i < TEMPS; i++)
        b.temp[i] = b.room->numbers + i * r->units;
    b.ones = b.temp[TEMPS - 1];
    for (int64_t u = 0; u < r->units; u++)
        b.ones[u] = 1;
    memset(b.room->nowhere, 0, sizeof(b.room->nowhere));
    if (node->attr.recurrent.masked)
        b.mask = call->in[node->input_count - 1];
    return b;
}

static int64_t rows_of(const recurrent *r, const ls_kernel_call *call)
{
    return ls_ref_shape(r->base.group->nodes[0]->in[0], call->batch < 0 ? 0 : call->batch, call->samples).dims[0];
}

/* in: p, kernel, [bias], [mask] */
static ls_status run_forward(ls_kernel *kernel, const ls_kernel_call *call)
{
    const recurrent *r = (const recurrent *)kernel;
    batch b = open_batch(r, call);
    const uint8_t *mask = b.mask;
    b.bias = r->base.group->nodes[0]->attr.recurrent.biased ? call->in[2] : NULL;
    for (int64_t first = 0, all = rows_of(r, call); first < all; first += ROWS) {
        b.rows = least(all - first, ROWS);
        b.mask = mask ? mask + first * r->steps : NULL;
        for (int64_t i = 0; i < r->steps; i++)
            compute_step(&b, (const float *)call->in[0] + first * r->steps * r->columns,
                         (float *)call->out + first * r->steps * r->value, step_at(r, i),
                         i > 0 ? step_at(r, i - 1) : -1);
    }
    return LS_OK;
}

/* in: gradient of h, kernel, value of `recurrent`, [mask] */
static ls_status run_gradient(ls_kernel *kernel, const ls_kernel_call *call)
{
    const recurrent *r = (const recurrent *)kernel;
    batch b = open_batch(r, call);
    const uint8_t *mask = b.mask;
    float *states = b.room->numbers + TEMPS * r->units;
    for (int64_t first = 0, all = rows_of(r, call); first < all; first += ROWS) {
        b.rows = least(all - first, ROWS);
        b.mask = mask ? mask + first * r->steps : NULL;
        back k = { .dy = (const float *)call->in[0] + first * r->steps * r->units,
                   .y = (const float *)call->in[2] + first * r->steps * r->value,
                   .d = (float *)call->out + first * r->steps * r->gradient,
                   .dh = states,
                   .dc = states + ROWS * r->units };
        memset(states, 0, (size_t)(2 * ROWS * r->units) * sizeof(*states));
        for (int64_t i = r->steps; i-- > 0;) {
            k.t = step_at(r, i);
            k.last = i > 0 ? step_at(r, i - 1) : -1;
            back_step(&b, &k);
        }
    }
    return LS_OK;
}

ls_status ls_cpu_make_recurrent(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    const ls_tensor *node = group->nodes[0];
    bool gradient = node->op == LS_OP_recurrent_grad;
    if ((node->op != LS_OP_recurrent && !gradient) || node->dtype != LS_F32)
        return ls_cpu_pass();
    const ls_shape *kernel = &node->in[1]->shape;
    if (kernel->dims[1] >= INT32_MAX / LS_GEMM_PANEL)
        return ls_cpu_pass();
    recurrent *r = ls_cpu_kernel_new(cpu, group, sizeof(*r), "steps by panels", gradient ? run_gradient : run_forward);
    if (!r)
        return LS_ERR_MEMORY;
    r->cell = (ls_cell)node->attr.recurrent.cell;
    r->activation = (ls_gate)node->attr.recurrent.activation;
    r->inner = (ls_gate)node->attr.recurrent.recurrent_activation;
    r->steps = node->shape.dims[1], r->units = kernel->dims[0], r->columns = kernel->dims[1];
    r->value = r->units * ls_cell_parts_of(r->cell).value;
    r->gradient = r->units * ls_cell_parts_of(r->cell).gradient;
    r->reverse = node->attr.recurrent.reverse;
    r->turned = gradient;
    int64_t first = first_columns(r);
    int64_t floats = gradient ? r->columns * ls_gemm_padded(r->units)
                              : r->units * (ls_gemm_padded(first) + ls_gemm_padded(r->columns - first));
    int64_t numbers = (TEMPS + (gradient ? 2 * ROWS : 0)) * r->units;
    ls_kernel *base = &r->base.base;
    if (group->per_sample) {
        base->prepare =
            (ls_prepare){ .input = 1, .bytes = (size_t)floats * sizeof(float), .run = pack, .same = same_packing };
        base->layout = "panels";
    } else { /* computed once: nothing is prepared */
        r->own_panels = numbers;
        numbers += floats;
    }
    base->scratch_bytes = offsetof(room, numbers) + (size_t)numbers * sizeof(float);
    *out = base;
    return LS_OK;
}
