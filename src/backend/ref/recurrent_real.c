/* Recurrent cells by their definition (docs/bits.md), sample by sample and step by step. */
#include <stdlib.h>
#include <string.h>

#include "backend/ref/array.h"
#include "backend/ref/functions.h"
#include "backend/ref/real.h"
#include "graph/recurrent.h"

static real activate(ls_gate gate, real x)
{
    switch (gate) {
    case LS_GATE_TANH:
        return (real)wide_tanh(x);
    case LS_GATE_SIGMOID:
        return (real)wide_sigmoid(x);
    case LS_GATE_RELU:
        return x <= 0 ? 0 : x;
    case LS_GATE_HARD_SIGMOID:
        x = x / 6 + (real)0.5;
        return x < 0 ? 0 : x > 1 ? 1 : x;
    default:
        return x;
    }
}

/* The derivative where the activation's value is y. */
static real slope(ls_gate gate, real y)
{
    switch (gate) {
    case LS_GATE_TANH:
        return 1 - y * y;
    case LS_GATE_SIGMOID:
        return y * (1 - y);
    case LS_GATE_RELU:
        return y > 0 ? 1 : 0;
    case LS_GATE_HARD_SIGMOID:
        return y > 0 && y < 1 ? (real)(1.0 / 6) : 0;
    default:
        return 1;
    }
}

/* One sample: numbers of a step of each array, and the steps in their order. */
typedef struct sequence {
    ls_cell cell;
    ls_gate activation, recurrent;
    int64_t steps, units, columns; /* columns of the kernel */
    int64_t value, gradient;       /* numbers in a step */
    const real *kernel, *bias;
    const uint8_t *mask;
    bool reverse;
} sequence;

static sequence read_sequence(const ls_ref_call *call)
{
    const ls_tensor *node = call->node;
    bool masked = node->attr.recurrent.masked;
    sequence s = { .cell = (ls_cell)node->attr.recurrent.cell,
                   .activation = (ls_gate)node->attr.recurrent.activation,
                   .recurrent = (ls_gate)node->attr.recurrent.recurrent_activation,
                   .steps = call->in[0].shape.dims[1],
                   .units = call->in[1].shape.dims[0],
                   .columns = call->in[1].shape.dims[1],
                   .kernel = call->in[1].data,
                   .mask = masked ? call->in[node->input_count - 1].data : NULL,
                   .reverse = node->attr.recurrent.reverse };
    s.value = s.units * ls_cell_parts_of(s.cell).value;
    s.gradient = s.units * ls_cell_parts_of(s.cell).gradient;
    return s;
}

/* Index of the step that comes i-th; of the one before it, -1: none. */
static int64_t step_at(const sequence *s, int64_t i)
{
    return i < 0 ? -1 : s->reverse ? s->steps - 1 - i : i;
}

/* sums[j] continue over k with state[k] * kernel[k][first + j]. */
static void add_products(const sequence *s, const real *state, int64_t first, int64_t count, real *sums)
{
    for (int64_t k = 0; state && k < s->units; k++)
        for (int64_t j = 0; j < count; j++)
            sums[j] = real_madd(state[k], s->kernel[k * s->columns + first + j], sums[j]);
}

/* sums[k] continue over j with gates[j] * kernel[k][first + j]. */
static void add_gradients(const sequence *s, const real *gates, int64_t first, int64_t count, real *sums)
{
    for (int64_t k = 0; k < s->units; k++)
        for (int64_t j = 0; j < count; j++)
            sums[k] = real_madd(gates[j], s->kernel[k * s->columns + first + j], sums[k]);
}

/* ---- One step; y: its value, before: the value of the step before, NULL: none ---- */

static void step_simple(const sequence *s, const real *p, const real *before, real *y)
{
    memcpy(y, p, (size_t)s->units * sizeof(*y));
    add_products(s, before, 0, s->units, y);
    for (int64_t u = 0; u < s->units; u++)
        y[u] = activate(s->activation, y[u]);
}

static void step_lstm(const sequence *s, const real *p, const real *before, real *y)
{
    int64_t n = s->units;
    real *h = y, *c = y + n, *i = y + 2 * n, *f = y + 3 * n, *g = y + 4 * n, *o = y + 5 * n, *a = y + 6 * n;
    memcpy(i, p, (size_t)(4 * n) * sizeof(*y));
    add_products(s, before, 0, 4 * n, i);
    for (int64_t u = 0; u < n; u++) {
        i[u] = activate(s->recurrent, i[u]);
        f[u] = activate(s->recurrent, f[u]);
        g[u] = activate(s->activation, g[u]);
        o[u] = activate(s->recurrent, o[u]);
        real kept = f[u] * (before ? before[n + u] : 0), added = i[u] * g[u];
        c[u] = kept + added;
        a[u] = activate(s->activation, c[u]);
        h[u] = o[u] * a[u];
    }
}

static void step_gru(const sequence *s, const real *p, const real *before, real *y)
{
    int64_t n = s->units;
    real *h = y, *z = y + n, *r = y + 2 * n, *part = y + 3 * n, *g = y + 4 * n;
    bool after = s->cell == LS_CELL_GRU_RESET_AFTER;
    if (after && s->bias)
        memcpy(z, s->bias, (size_t)(3 * n) * sizeof(*y));
    else if (after)
        memset(z, 0, (size_t)(3 * n) * sizeof(*y));
    else
        memcpy(z, p, (size_t)(2 * n) * sizeof(*y));
    add_products(s, before, 0, after ? 3 * n : 2 * n, z);
    for (int64_t u = 0; u < n; u++) {
        z[u] = activate(s->recurrent, after ? p[u] + z[u] : z[u]);
        r[u] = activate(s->recurrent, after ? p[n + u] + r[u] : r[u]);
        real reset = r[u] * (after ? part[u] : before ? before[u] : 0);
        g[u] = after ? p[2 * n + u] + reset : p[2 * n + u];
        if (!after)
            part[u] = reset;
    }
    if (!after)
        add_products(s, before ? part : NULL, 2 * n, n, g);
    for (int64_t u = 0; u < n; u++) {
        g[u] = activate(s->activation, g[u]);
        real kept = z[u] * (before ? before[u] : 0), added = (1 - z[u]) * g[u];
        h[u] = kept + added;
    }
}

/* A masked step copies the state; its other parts are 0. */
static void copy_state(const sequence *s, const real *before, real *y)
{
    size_t state = (size_t)(s->units * (s->cell == LS_CELL_LSTM ? 2 : 1));
    memset(y, 0, (size_t)s->value * sizeof(*y));
    if (before)
        memcpy(y, before, state * sizeof(*y));
}

/* in: p, kernel, [bias], [mask] */
ls_status LS_REF(recurrent)(const ls_ref_call *call)
{
    static void (*const step[LS_CELLS])(const sequence *, const real *, const real *,
                                        real *) = { step_simple, step_lstm, step_gru, step_gru };
    sequence s = read_sequence(call);
    const real *p = call->in[0].data;
    real *y = call->out.data;
    s.bias = call->node->attr.recurrent.biased ? call->in[2].data : NULL;
    for (int64_t n = 0; n < call->in[0].shape.dims[0]; n++) {
        for (int64_t i = 0; i < s.steps; i++) {
            int64_t t = step_at(&s, i), last = step_at(&s, i - 1);
            const real *before = last < 0 ? NULL : y + last * s.value;
            if (s.mask && !s.mask[n * s.steps + t])
                copy_state(&s, before, y + t * s.value);
            else
                step[s.cell](&s, p + t * s.columns, before, y + t * s.value);
        }
        p += s.steps * s.columns;
        y += s.steps * s.value;
    }
    return LS_OK;
}

/* ---- Gradients of one step: d becomes the gradient of its gates; dh: of its state, which becomes
 * what the state before gets without the kernel; dc: of an LSTM's c ---- */

static void back_simple(const sequence *s, const real *y, const real *before, real *dh, real *dc, real *d)
{
    (void)before, (void)dc;
    for (int64_t u = 0; u < s->units; u++) {
        d[u] = dh[u] * slope(s->activation, y[u]);
        dh[u] = 0;
    }
}

static void back_lstm(const sequence *s, const real *y, const real *before, real *dh, real *dc, real *d)
{
    int64_t n = s->units;
    const real *i = y + 2 * n, *f = y + 3 * n, *g = y + 4 * n, *o = y + 5 * n, *a = y + 6 * n;
    for (int64_t u = 0; u < n; u++) {
        real through = (dh[u] * o[u]) * slope(s->activation, a[u]), all = dc[u] + through;
        d[u] = (all * g[u]) * slope(s->recurrent, i[u]);
        d[n + u] = (all * (before ? before[n + u] : 0)) * slope(s->recurrent, f[u]);
        d[2 * n + u] = (all * i[u]) * slope(s->activation, g[u]);
        d[3 * n + u] = (dh[u] * a[u]) * slope(s->recurrent, o[u]);
        dc[u] = all * f[u];
        dh[u] = 0;
    }
}

static void back_gru(const sequence *s, const real *y, const real *before, real *dh, real *dc, real *d)
{
    int64_t n = s->units;
    const real *z = y + n, *r = y + 2 * n, *part = y + 3 * n, *g = y + 4 * n;
    bool after = s->cell == LS_CELL_GRU_RESET_AFTER;
    real *reset = dc; /* gradient of r times the state; a GRU has no c */
    for (int64_t u = 0; u < n; u++) {
        d[u] = (dh[u] * ((before ? before[u] : 0) - g[u])) * slope(s->recurrent, z[u]);
        d[2 * n + u] = (dh[u] * (1 - z[u])) * slope(s->activation, g[u]);
        dh[u] = dh[u] * z[u];
        reset[u] = 0;
    }
    if (!after)
        add_gradients(s, d + 2 * n, 2 * n, n, reset);
    for (int64_t u = 0; u < n; u++) {
        real by = after ? d[2 * n + u] * part[u] : reset[u] * (before ? before[u] : 0), direct = reset[u] * r[u];
        d[n + u] = by * slope(s->recurrent, r[u]);
        if (after)
            d[3 * n + u] = d[2 * n + u] * r[u];
        else
            dh[u] = dh[u] + direct;
    }
}

/* dh continues with what the gates of the step give the state before it. */
static void back_through_kernel(const sequence *s, const real *d, real *dh)
{
    int64_t n = s->units;
    if (s->cell == LS_CELL_GRU || s->cell == LS_CELL_GRU_RESET_AFTER)
        add_gradients(s, d, 0, 2 * n, dh);
    else
        add_gradients(s, d, 0, s->columns, dh);
    if (s->cell == LS_CELL_GRU_RESET_AFTER)
        add_gradients(s, d + 3 * n, 2 * n, n, dh);
}

/* in: gradient of h, kernel, value of `recurrent`, [mask] */
ls_status LS_REF(recurrent_grad)(const ls_ref_call *call)
{
    static void (*const back[LS_CELLS])(const sequence *, const real *, const real *, real *, real *,
                                        real *) = { back_simple, back_lstm, back_gru, back_gru };
    sequence s = read_sequence(call);
    const real *dy = call->in[0].data, *y = call->in[2].data;
    real *d = call->out.data, *state = malloc((size_t)(2 * s.units) * sizeof(*state));
    if (!state)
        return ls_fail(LS_ERR_MEMORY, "recurrent_grad: no memory for the gradient of %lld units", (long long)s.units);
    real *dh = state, *dc = state + s.units;
    for (int64_t n = 0; n < call->in[0].shape.dims[0]; n++) {
        memset(state, 0, (size_t)(2 * s.units) * sizeof(*state));
        for (int64_t i = s.steps; i-- > 0;) {
            int64_t t = step_at(&s, i), last = step_at(&s, i - 1);
            real *step = d + t * s.gradient;
            for (int64_t u = 0; u < s.units; u++)
                dh[u] = dy[t * s.units + u] + dh[u];
            if (s.mask && !s.mask[n * s.steps + t])
                memset(step, 0, (size_t)s.gradient * sizeof(*step));
            else
                back[s.cell](&s, y + t * s.value, last < 0 ? NULL : y + last * s.value, dh, dc, step);
            if (last >= 0)
                back_through_kernel(&s, step, dh);
        }
        dy += s.steps * s.units, y += s.steps * s.value, d += s.steps * s.gradient;
    }
    free(state);
    return LS_OK;
}
