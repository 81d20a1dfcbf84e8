/* Recurrent cells: step by step, up to ROWS samples at once. The kernel is packed into panels once
 * per run; each step of a sequence multiplies the states of all samples by them, in place in the
 * value, and applies the gates in one pass over each row. docs/bits.md has the formulas, and
 * backend/ref/recurrent_real.c the same steps in plain C. */
#include <stddef.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/ref/ref.h"
#include "graph/recurrent.h"

#define ROWS 64

typedef struct recurrent {
    ls_cpu_kernel base;
    ls_cell cell;
    ls_simd_cell sizes;
    int64_t steps, units, columns; /* columns of the kernel */
    int64_t value, gradient;       /* numbers in a step */
    bool reverse, turned;          /* turned: the panels are those of the transposed kernel */
    bool packs;                    /* the panels are not prepared */
    int64_t own_panels;            /* their offset in room.numbers */
} recurrent;

/* Samples that are computed together. */
typedef struct room {
    const float *in[ROWS + LS_GEMM_MOST_ROWS];
    float *out[ROWS + LS_GEMM_MOST_ROWS];
    float nowhere[LS_GEMM_PANEL]; /* output of rows that fill the last tile */
    float numbers[];              /* gradients of the states; panels that are not prepared */
} room;

typedef struct batch {
    const recurrent *r;
    const ls_simd *simd;
    const float *panels, *bias;
    const uint8_t *mask; /* the first sample's; NULL: none */
    int64_t rows;
    room *room;
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

/* ---- Values ---- */

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

/* One step of values of all rows. */
typedef struct forth {
    const float *p; /* the first row's */
    float *y;
    int64_t t, last; /* the step, and the one before it, or -1 */
} forth;

static void finish_step(const batch *b, const float *p, float *y, const float *before)
{
    const ls_cell cell = b->r->cell;
    if (cell == LS_CELL_SIMPLE)
        b->simd->simple_step(&b->r->sizes, y);
    else if (cell == LS_CELL_LSTM)
        b->simd->lstm_step(&b->r->sizes, y, before);
    else
        b->simd->gru_step(&b->r->sizes, cell == LS_CELL_GRU_RESET_AFTER ? p : NULL, y, before);
}

/* The candidate's chains of a GRU that resets before its product. */
static void add_candidates(const batch *b, const forth *k)
{
    const recurrent *r = b->r;
    int64_t n = r->units, sample = r->steps * r->value;
    const ls_gemm_run all = { .count = (int32_t)n };
    for (int64_t i = 0; i < b->rows; i++) {
        float *y = k->y + i * sample + k->t * r->value;
        b->simd->gru_gates(&r->sizes, k->p + (i * r->steps + k->t) * r->columns, y,
                           k->last < 0 ? NULL : k->y + i * sample + k->last * r->value);
        b->room->in[i] = y + 3 * n;
        b->room->out[i] = y + 4 * n;
    }
    if (k->last >= 0)
        multiply(b, b->panels + n * ls_gemm_padded(2 * n), n, n, &all, 1);
}

static void compute_step(const batch *b, const forth *k)
{
    const recurrent *r = b->r;
    int64_t sample = r->steps * r->value;
    const ls_gemm_run all = { .count = (int32_t)r->units };
    for (int64_t i = 0; i < b->rows; i++) {
        float *at = k->y + i * sample + k->t * r->value + chain_offset(r);
        start_chains(b, k->p + (i * r->steps + k->t) * r->columns, at);
        b->room->in[i] = k->last < 0 ? at : k->y + i * sample + k->last * r->value;
        b->room->out[i] = at;
    }
    if (k->last >= 0)
        multiply(b, b->panels, r->units, first_columns(r), &all, 1);
    if (r->cell == LS_CELL_GRU)
        add_candidates(b, k);
    for (int64_t i = 0; i < b->rows; i++) {
        float *y = k->y + i * sample + k->t * r->value;
        const float *before = k->last < 0 ? NULL : k->y + i * sample + k->last * r->value;
        if (is_masked(b, i, k->t))
            copy_state(r, y, before);
        else
            finish_step(b, k->p + (i * r->steps + k->t) * r->columns, y, before);
    }
}

/* ---- Gradients ---- */

/* One step of gradients of all rows. */
typedef struct back {
    const float *dy, *y; /* the first row's */
    float *d, *dh, *dc;
    int64_t t, last; /* the step, and the one before it, or -1 */
} back;

static ls_simd_back back_of(const batch *b, const back *k, int64_t row)
{
    const recurrent *r = b->r;
    const float *y = k->y + row * r->steps * r->value;
    return (ls_simd_back){ .dy = k->dy + (row * r->steps + k->t) * r->units,
                           .y = y + k->t * r->value,
                           .before = k->last < 0 ? NULL : y + k->last * r->value,
                           .dh = k->dh + row * r->units,
                           .dc = k->dc + row * r->units,
                           .d = k->d + (row * r->steps + k->t) * r->gradient };
}

/* A GRU that resets before its product then lacks the gradient of r. */
static void back_gates(const batch *b, const back *k)
{
    const recurrent *r = b->r;
    for (int64_t i = 0; i < b->rows; i++) {
        ls_simd_back at = back_of(b, k, i);
        b->room->in[i] = at.d;
        b->room->out[i] = at.dc;
        if (is_masked(b, i, k->t)) {
            b->simd->add(at.dh, at.dy, at.dh, (size_t)r->units);
            memset(at.d, 0, (size_t)r->gradient * sizeof(*at.d));
        } else if (r->cell == LS_CELL_SIMPLE) {
            b->simd->simple_back(&r->sizes, &at);
        } else if (r->cell == LS_CELL_LSTM) {
            b->simd->lstm_back(&r->sizes, &at);
        } else {
            b->simd->gru_back(&r->sizes, &at, r->cell == LS_CELL_GRU_RESET_AFTER);
        }
    }
}

static void back_reset(const batch *b, const back *k)
{
    int32_t n = (int32_t)b->r->units;
    const ls_gemm_run candidate = { .a = 2 * n, .b = 2 * n, .count = n };
    multiply(b, b->panels, b->r->columns, n, &candidate, 1);
    for (int64_t i = 0; i < b->rows; i++) {
        ls_simd_back at = back_of(b, k, i);
        if (!is_masked(b, i, k->t))
            b->simd->gru_back_reset(&b->r->sizes, &at);
    }
}

static void back_step(const batch *b, const back *k)
{
    const recurrent *r = b->r;
    int32_t n = (int32_t)r->units;
    bool gru = r->cell == LS_CELL_GRU || r->cell == LS_CELL_GRU_RESET_AFTER;
    ls_gemm_run runs[2] = { { .count = gru ? 2 * n : (int32_t)r->columns }, { .a = 3 * n, .b = 2 * n, .count = n } };
    back_gates(b, k);
    if (r->cell == LS_CELL_GRU)
        back_reset(b, k);
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
    if (r->packs) {
        b.panels = b.room->numbers + r->own_panels;
        pack_panels(r, call->in[1], b.room->numbers + r->own_panels);
    }
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
        forth k = { .p = (const float *)call->in[0] + first * r->steps * r->columns,
                    .y = (float *)call->out + first * r->steps * r->value };
        for (int64_t i = 0; i < r->steps; i++) {
            k.t = step_at(r, i);
            k.last = i > 0 ? step_at(r, i - 1) : -1;
            compute_step(&b, &k);
        }
    }
    return LS_OK;
}

/* in: gradient of h, kernel, value of `recurrent`, [mask] */
static ls_status run_gradient(ls_kernel *kernel, const ls_kernel_call *call)
{
    const recurrent *r = (const recurrent *)kernel;
    batch b = open_batch(r, call);
    const uint8_t *mask = b.mask;
    float *states = b.room->numbers;
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
    r->steps = node->shape.dims[1], r->units = kernel->dims[0], r->columns = kernel->dims[1];
    r->value = r->units * ls_cell_parts_of(r->cell).value;
    r->gradient = r->units * ls_cell_parts_of(r->cell).gradient;
    r->sizes = (ls_simd_cell){ .units = (size_t)r->units,
                               .activation = (ls_gate)node->attr.recurrent.activation,
                               .inner = (ls_gate)node->attr.recurrent.recurrent_activation };
    r->reverse = node->attr.recurrent.reverse;
    r->turned = gradient;
    int64_t first = first_columns(r);
    int64_t floats = gradient ? r->columns * ls_gemm_padded(r->units)
                              : r->units * (ls_gemm_padded(first) + ls_gemm_padded(r->columns - first));
    int64_t numbers = gradient ? 2 * ROWS * r->units : 0;
    ls_kernel *base = &r->base.base;
    if (group->per_sample) {
        base->prepare =
            (ls_prepare){ .input = 1, .bytes = (size_t)floats * sizeof(float), .run = pack, .same = same_packing };
        base->layout = "panels";
    } else { /* computed once: nothing is prepared */
        r->packs = true;
        r->own_panels = numbers;
        numbers += floats;
    }
    base->scratch_bytes = offsetof(room, numbers) + (size_t)numbers * sizeof(float);
    *out = base;
    return LS_OK;
}
