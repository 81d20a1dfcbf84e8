/* Attention, a block of queries at a time: the scores of a block against all keys that it may see
 * stay in the cache, and so do the weights made of them. The gradient computes both again.
 *
 * Sums leave out keys that a query does not see. Here such keys have the weight +0 and take part
 * where that is faster: a product with +0 changes no bit of a chain that ends in an addition of +0,
 * unless a factor is infinite or NaN. Samples that contain one go to the reference kernel.
 * docs/bits.md has the formulas, and backend/ref/attention_real.c the same steps in plain C. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/ref/ref.h"
#include "base/philox.h"
#include "graph/attention.h"

#define BLOCK 64 /* queries */

/* Offsets in room.numbers. Panels of keys or of columns follow each other; each has LS_GEMM_PANEL
 * columns, the last fewer, padded to whole vectors. */
typedef struct places {
    int64_t k_columns, v_columns; /* k and v transposed, [width][keys] */
    int64_t k_rows, v_rows;       /* k and v as they are, [keys][width] */
    int64_t q_block, dy_block;    /* rows of a block, [BLOCK][width] */
    int64_t dk, dv;               /* chains of the gradients, [keys][width] */
    int64_t p, dropped, ds;       /* weights, weights after dropout, gradients of scores, [BLOCK][keys] */
    int64_t row;                  /* one row of keys, and 4 numbers before it */
    int64_t end;
} places;

typedef struct attention {
    ls_cpu_kernel base;
    ls_attention_sizes s;
    int64_t keys, width, value_width; /* padded to whole vectors */
    places at;
    bool gradient;
} attention;

typedef struct room {
    const float *in[BLOCK + LS_GEMM_MOST_ROWS];
    float *out[BLOCK + LS_GEMM_MOST_ROWS];
    float nowhere[LS_GEMM_PANEL]; /* output of rows that fill the last tile */
    float zeros[LS_GEMM_PANEL];
    float numbers[];
} room;

/* One sample. */
typedef struct sample {
    const attention *a;
    const ls_tensor *node;
    const ls_simd *simd;
    const ls_gemm *gemm;
    room *room;
    const float *operand[3]; /* q, k, v */
    const float *dy;
    float *out;
    const uint8_t *mask;
    float scale, rate;
    ls_philox_key key;
    uint64_t run;
    uint32_t index;
} sample;

/* Consecutive queries of one head, and the keys that they may see. */
typedef struct block {
    int64_t head, first, rows, keys;
} block;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static float *numbers(const sample *t, int64_t at)
{
    return t->room->numbers + at;
}

/* ---- Panels ---- */

/* [rows][columns], `step` apart. */
static void pack_rows(const sample *t, const float *from, int64_t step, int64_t rows, int64_t columns, float *to)
{
    for (int64_t c = 0; c < columns; c += LS_GEMM_PANEL, to += rows * LS_GEMM_PANEL)
        t->gemm->copy_panel(to, from + c, step, rows, least(columns - c, LS_GEMM_PANEL));
}

/* The same transposed. */
static void pack_columns(const sample *t, const float *from, int64_t step, int64_t rows, int64_t columns, float *to)
{
    for (int64_t r = 0; r < rows; r += LS_GEMM_PANEL, to += columns * LS_GEMM_PANEL) {
        int64_t some = least(rows - r, LS_GEMM_PANEL), padded = ls_gemm_padded(some);
        if (some != padded)
            memset(to, 0, (size_t)(columns * padded) * sizeof(*to));
        t->gemm->transpose(to, padded, from + r * step, step, some, columns);
    }
}

/* out[r] = sum over k of in[r][k] * panel[k] for each row of a block. */
typedef struct product {
    const float *panels;
    int64_t depth, steps;    /* rows of a panel, and how many of them are used */
    int64_t columns, needed; /* columns of all panels, and how many are needed; the others are undefined */
    bool ends;               /* adds +0 and writes no column after the last */
} product;

static void multiply(const sample *t, const block *b, product x)
{
    room *m = t->room;
    float *out[LS_GEMM_MOST_ROWS];
    ls_gemm_run all = { .count = (int32_t)x.steps };
    for (int64_t i = b->rows; i < b->rows + LS_GEMM_MOST_ROWS; i++)
        m->in[i] = m->in[0];
    for (int64_t column = 0; column < x.needed; column += LS_GEMM_PANEL) {
        int64_t width = least(x.columns - column, LS_GEMM_PANEL), vectors = ls_gemm_vectors(width);
        ls_gemm_rows tile = { .runs = &all, .run_count = 1, .out = out, .bias = x.ends ? m->zeros : NULL };
        tile.b = tile.ahead = x.panels + column * x.depth;
        tile.columns = x.ends && width % LS_GEMM_VECTOR ? width : 0;
        for (int64_t i = 0, size; i < b->rows; i += size) {
            size = t->gemm->rows_tile_size(b->rows - i, vectors);
            for (int64_t r = 0; r < size; r++)
                out[r] = i + r < b->rows ? m->out[i + r] + column : m->nowhere;
            tile.in = m->in + i;
            t->gemm->rows_tile(size, vectors, &tile);
        }
    }
}

/* The sums over a head's columns, by key. */
static void multiply_by_key(const sample *t, const block *b, const float *panels, int64_t width)
{
    multiply(t, b, (product){ panels, width, width, t->a->s.keys, b->keys, false });
}

/* The sums over the keys, by column. */
static void multiply_by_column(const sample *t, const block *b, const float *panels, int64_t width)
{
    multiply(t, b, (product){ panels, t->a->s.keys, b->keys, width, width, true });
}

/* Continues the chains of c[key][column] over the queries of a block:
 * a[query][key] * b[query][column]. With causal attention, queries before a key do not see it. */
static void multiply_queries(const sample *t, const block *b, const float *a, const float *panels, int64_t columns,
                             float *c)
{
    bool causal = t->node->attr.attention.causal;
    for (int64_t column = 0; column < columns; column += LS_GEMM_PANEL) {
        int64_t width = least(columns - column, LS_GEMM_PANEL), vectors = ls_gemm_vectors(width);
        int64_t step = vectors * LS_GEMM_VECTOR, most = t->gemm->outer_rows[vectors];
        float *to = c + column * t->a->s.keys;
        for (int64_t key = 0, rows; key < b->keys; key += rows, to += rows * step) {
            int64_t skip = causal && key > b->first ? key - b->first : 0;
            rows = least(b->keys - key, most);
            ls_gemm_run run = { .count = (int32_t)(b->rows - skip) };
            ls_gemm_outer tile = { .runs = &run,
                                   .run_count = 1,
                                   .a = a + skip * t->a->keys + key,
                                   .b = panels + column * BLOCK + skip * step,
                                   .a_step = t->a->keys,
                                   .b_step = step,
                                   .c = to,
                                   .c_step = step,
                                   .start = to };
            t->gemm->outer_tile(rows, vectors, &tile);
        }
    }
}

/* ---- Weights ---- */

/* Rows of an operand: 0 q, 1 k, 2 v. */
static const float *operand_row(const sample *t, int i, int64_t head, int64_t row)
{
    const ls_attention_sizes *s = &t->a->s;
    int64_t column = i == 0 ? head * s->width : head / s->shared * (i == 1 ? s->width : s->value_width);
    return t->operand[i] + row * s->row[i] + column;
}

static void drop_row(const sample *t, const block *b, int64_t r, const float *x, int64_t n, float *to)
{
    const ls_attention_sizes *s = &t->a->s;
    uint64_t first = (uint64_t)((b->head * s->queries + b->first + r) * s->keys);
    float *row = numbers(t, t->a->at.row) + first % 4;
    memcpy(row, x, (size_t)n * sizeof(*x));
    t->simd->dropout_from(row - first % 4, row - first % 4, t->key, t->run, t->index, first - first % 4,
                          (size_t)n + first % 4, t->rate);
    memcpy(to, row, (size_t)n * sizeof(*x));
}

/* Hides the keys that the mask hides. Returns whether one is left. */
static bool hide(const uint8_t *mask, float *row, int64_t n, float with)
{
    bool any = false;
    for (int64_t j = 0; j < n; j++) {
        any = any || mask[j];
        row[j] = mask[j] ? row[j] : with;
    }
    return any;
}

static const uint8_t *mask_row(const sample *t, const block *b, int64_t r)
{
    return t->mask ? t->mask + b->head * t->a->s.mask_head + (b->first + r) * t->a->s.mask_query : NULL;
}

/* Makes weights of the scores of a query, +0 for keys that it does not see. */
static void find_weights(const sample *t, const block *b, int64_t r, float *row)
{
    int64_t n = ls_attention_visible(t->node, &t->a->s, b->first + r);
    const uint8_t *mask = mask_row(t, b, r);
    t->simd->scale(row, row, t->scale, (size_t)n);
    if (mask && !hide(mask, row, n, -INFINITY))
        n = 0;
    if (n > 0)
        t->simd->softmax_rows(row, row, 1, (size_t)n);
    if (mask && n > 0)
        hide(mask, row, n, 0);
    memset(row + n, 0, (size_t)(b->keys - n) * sizeof(*row));
}

/* Fills p and, with dropout, `dropped`. Returns what multiplies v. */
static float *weigh(const sample *t, const block *b)
{
    const places *at = &t->a->at;
    float *p = numbers(t, at->p), *dropped = numbers(t, at->dropped);
    for (int64_t r = 0; r < b->rows; r++) {
        t->room->in[r] = operand_row(t, 0, b->head, b->first + r);
        t->room->out[r] = p + r * t->a->keys;
    }
    multiply_by_key(t, b, numbers(t, at->k_columns), t->a->s.width);
    for (int64_t r = 0; r < b->rows; r++) {
        find_weights(t, b, r, p + r * t->a->keys);
        if (t->rate != 0)
            drop_row(t, b, r, p + r * t->a->keys, b->keys, dropped + r * t->a->keys);
    }
    return t->rate != 0 ? dropped : p;
}

/* ---- Forward ---- */

static void compute_block(const sample *t, const block *b)
{
    const ls_attention_sizes *s = &t->a->s;
    const float *weights = weigh(t, b);
    for (int64_t r = 0; r < b->rows; r++) {
        t->room->in[r] = weights + r * t->a->keys;
        t->room->out[r] = t->out + ((b->first + r) * s->heads + b->head) * s->value_width;
    }
    multiply_by_column(t, b, numbers(t, t->a->at.v_rows), s->value_width);
}

/* ---- Gradient ---- */

static void score_gradients(const sample *t, const block *b, int64_t r)
{
    const ls_simd *simd = t->simd;
    const float *p = numbers(t, t->a->at.p) + r * t->a->keys;
    float *ds = numbers(t, t->a->at.ds) + r * t->a->keys, *row = numbers(t, t->a->at.row);
    int64_t visible = ls_attention_visible(t->node, &t->a->s, b->first + r);
    const uint8_t *mask = mask_row(t, b, r);
    size_t n = (size_t)visible;
    if (t->rate != 0)
        drop_row(t, b, r, ds, visible, ds);
    simd->mul(row, p, ds, n);
    if (mask)
        hide(mask, row, visible, 0);
    simd->add_scalar(ds, ds, -(float)simd->sum_wide(row, n), n);
    simd->mul(ds, p, ds, n);
    simd->scale(ds, ds, t->scale, n);
    if (mask)
        hide(mask, ds, visible, 0);
    memset(ds + visible, 0, (size_t)(b->keys - visible) * sizeof(*ds));
}

static void compute_block_gradient(const sample *t, const block *b)
{
    const ls_attention_sizes *s = &t->a->s;
    const places *at = &t->a->at;
    const float *weights = weigh(t, b), *dy = t->dy + (b->first * s->heads + b->head) * s->value_width;
    float *ds = numbers(t, at->ds), *dq = t->out + s->gradient_at[0] + b->head * s->width;
    for (int64_t r = 0; r < b->rows; r++) {
        t->room->in[r] = dy + r * s->heads * s->value_width;
        t->room->out[r] = ds + r * t->a->keys;
    }
    multiply_by_key(t, b, numbers(t, at->v_columns), s->value_width);
    for (int64_t r = 0; r < b->rows; r++)
        score_gradients(t, b, r);
    for (int64_t c = 0; c < s->value_width; c += LS_GEMM_PANEL)
        t->gemm->copy_panel(numbers(t, at->dy_block) + c * BLOCK, dy + c, s->heads * s->value_width, b->rows,
                            least(s->value_width - c, LS_GEMM_PANEL));
    multiply_queries(t, b, weights, numbers(t, at->dy_block), s->value_width, numbers(t, at->dv));
    for (int64_t c = 0; c < s->width; c += LS_GEMM_PANEL)
        t->gemm->copy_panel(numbers(t, at->q_block) + c * BLOCK, operand_row(t, 0, b->head, b->first) + c, s->row[0],
                            b->rows, least(s->width - c, LS_GEMM_PANEL));
    multiply_queries(t, b, ds, numbers(t, at->q_block), s->width, numbers(t, at->dk));
    for (int64_t r = 0; r < b->rows; r++) {
        t->room->in[r] = ds + r * t->a->keys;
        t->room->out[r] = dq + (b->first + r) * s->gradient_row[0];
    }
    multiply_by_column(t, b, numbers(t, at->k_rows), s->width);
}

/* Ends the chains of k (operand 1) or v (2). */
static void end_chains(const sample *t, int operand, int64_t kv_head, const float *chains, int64_t width)
{
    const ls_attention_sizes *s = &t->a->s;
    for (int64_t column = 0; column < width; column += LS_GEMM_PANEL) {
        int64_t some = least(width - column, LS_GEMM_PANEL), step = ls_gemm_padded(some);
        float *to = t->out + s->gradient_at[operand] + kv_head * width + column;
        for (int64_t key = 0; key < s->keys; key++)
            t->simd->add_scalar(to + key * s->gradient_row[operand], chains + column * s->keys + key * step, 0,
                                (size_t)some);
    }
}

/* ---- Calls ---- */

static void open_head(const sample *t, int64_t head)
{
    const ls_attention_sizes *s = &t->a->s;
    const places *at = &t->a->at;
    const float *k = operand_row(t, 1, head, 0), *v = operand_row(t, 2, head, 0);
    pack_columns(t, k, s->row[1], s->keys, s->width, numbers(t, at->k_columns));
    if (!t->a->gradient) {
        pack_rows(t, v, s->row[2], s->keys, s->value_width, numbers(t, at->v_rows));
        return;
    }
    pack_columns(t, v, s->row[2], s->keys, s->value_width, numbers(t, at->v_columns));
    pack_rows(t, k, s->row[1], s->keys, s->width, numbers(t, at->k_rows));
    memset(numbers(t, at->dk), 0, (size_t)(s->keys * t->a->width) * sizeof(float));
    memset(numbers(t, at->dv), 0, (size_t)(s->keys * t->a->value_width) * sizeof(float));
}

static void compute_sample(const sample *t)
{
    const ls_attention_sizes *s = &t->a->s;
    for (int64_t head = 0; head < s->heads; head++) {
        if (head % s->shared == 0)
            open_head(t, head);
        for (int64_t first = 0; first < s->queries; first += BLOCK) {
            block b = { .head = head, .first = first, .rows = least(s->queries - first, BLOCK) };
            b.keys = ls_attention_visible(t->node, s, first + b.rows - 1);
            if (t->a->gradient)
                compute_block_gradient(t, &b);
            else
                compute_block(t, &b);
        }
        if (t->a->gradient && (head + 1) % s->shared == 0) {
            end_chains(t, 1, head / s->shared, numbers(t, t->a->at.dk), s->width);
            end_chains(t, 2, head / s->shared, numbers(t, t->a->at.dv), s->value_width);
        }
    }
}

static bool is_finite(const sample *t, const float *x, int64_t n)
{
    return isfinite(t->simd->largest(x, (size_t)n));
}

static bool all_finite(const sample *t)
{
    const ls_attention_sizes *s = &t->a->s;
    bool finite = !t->dy || is_finite(t, t->dy, s->queries * s->heads * s->value_width);
    for (int i = 0; i < (t->node->attr.attention.packed ? 1 : 3) && finite; i++)
        finite = is_finite(t, t->operand[i], s->sample[i]);
    return finite;
}

/* The sample by the reference kernel. */
static ls_status compute_slowly(const sample *t, const ls_kernel_call *call, int64_t index)
{
    ls_ref_array in[6];
    for (int i = 0; i < t->node->input_count; i++) {
        const ls_tensor *x = t->node->in[i];
        ls_shape shape = ls_ref_shape(x, 1, 1);
        bool one = x->shape.rank > 0 && (x->per_sample || x->shape.dims[0] != 1);
        if (one)
            shape.dims[0] = 1;
        size_t bytes = ls_dtype_bytes(x->dtype);
        for (int axis = 1; axis < shape.rank; axis++)
            bytes *= (size_t)shape.dims[axis];
        in[i] = (ls_ref_array){ (char *)call->in[i] + (one ? (size_t)index * bytes : 0), x->dtype, shape };
    }
    ls_shape shape = ls_ref_shape(t->node, 1, 1);
    shape.dims[0] = 1;
    ls_ref_call ref = { .node = t->node,
                        .in = in,
                        .out = { t->out, t->node->dtype, shape },
                        .batch = 1,
                        .lane = 1,
                        .first = t->index,
                        .seed = call->seed,
                        .run = call->run };
    return ls_ref_run(&ref);
}

static ls_status open_call(const attention *a, const ls_kernel_call *call, sample *t)
{
    const ls_tensor *node = a->base.group->nodes[0];
    *t = (sample){ .a = a,
                   .node = node,
                   .simd = a->base.cpu->simd,
                   .gemm = a->base.cpu->gemm,
                   .room = call->scratch,
                   .scale = (float)node->attr.attention.scale,
                   .run = call->run };
    memset(t->room->zeros, 0, sizeof(t->room->zeros));
    memset(t->room->nowhere, 0, sizeof(t->room->nowhere));
    if (!node->attr.attention.drops)
        return LS_OK;
    t->rate = *(const float *)call->in[ls_attention_rate(node)];
    if (!(t->rate >= 0 && t->rate < 1))
        return ls_fail(LS_ERR_DATA, "a dropout rate of %g is outside [0, 1)", (double)t->rate);
    t->key = ls_random_key(call->seed, LS_RANDOM_DROPOUT, (uint32_t)node->attr.attention.layer,
                           (uint32_t)node->attr.attention.call);
    return LS_OK;
}

static void open_sample(sample *t, const ls_kernel_call *call, int64_t index)
{
    const attention *a = t->a;
    const ls_tensor *node = t->node;
    int input[3] = { ls_attention_q(node), ls_attention_k(node), ls_attention_v(node) };
    int64_t values = a->s.queries * a->s.heads * a->s.value_width;
    for (int i = 0; i < 3; i++)
        t->operand[i] = (const float *)call->in[input[i]] + index * a->s.sample[i] + a->s.at[i];
    if (a->gradient)
        t->dy = (const float *)call->in[0] + index * values;
    t->out = (float *)call->out + index * (a->gradient ? a->s.gradient_sample : values);
    if (node->attr.attention.masked)
        t->mask = (const uint8_t *)call->in[ls_attention_mask(node)] + index * a->s.mask_sample;
    t->index = (uint32_t)(node->per_sample ? call->first + index : index);
}

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const attention *a = (const attention *)kernel;
    sample t;
    LS_TRY(open_call(a, call, &t));
    int64_t samples = ls_ref_shape(t.node, call->batch < 0 ? 0 : call->batch, call->samples).dims[0];
    for (int64_t i = 0; i < samples; i++) {
        open_sample(&t, call, i);
        if (all_finite(&t))
            compute_sample(&t);
        else
            LS_TRY(compute_slowly(&t, call, i));
    }
    return LS_OK;
}

static int64_t take(places *at, int64_t count)
{
    int64_t first = at->end;
    at->end += ls_gemm_padded(count);
    return first;
}

static void place_numbers(attention *a)
{
    const ls_attention_sizes *s = &a->s;
    places *at = &a->at;
    bool drops = a->base.group->nodes[0]->attr.attention.drops;
    at->k_columns = take(at, s->width * a->keys);
    at->p = take(at, BLOCK * a->keys);
    if (drops)
        at->dropped = take(at, BLOCK * a->keys);
    at->row = take(at, a->keys + 4);
    if (!a->gradient) {
        at->v_rows = take(at, s->keys * a->value_width);
        return;
    }
    at->v_columns = take(at, s->value_width * a->keys);
    at->k_rows = take(at, s->keys * a->width);
    at->dk = take(at, s->keys * a->width);
    at->dv = take(at, s->keys * a->value_width);
    at->q_block = take(at, BLOCK * a->width);
    at->dy_block = take(at, BLOCK * a->value_width);
    at->ds = take(at, BLOCK * a->keys);
}

ls_status ls_cpu_make_attention(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    const ls_tensor *node = group->nodes[0];
    bool gradient = node->op == LS_OP_attention_grad;
    if ((node->op != LS_OP_attention && !gradient) || node->dtype != LS_F32)
        return ls_cpu_pass();
    ls_attention_sizes s = ls_attention_sizes_of(node);
    if (s.keys < 1 || s.queries < 1 || s.keys >= INT32_MAX || s.width >= INT32_MAX || s.value_width >= INT32_MAX)
        return ls_cpu_pass();
    attention *a = ls_cpu_kernel_new(cpu, group, sizeof(*a), "blocks of queries", run);
    if (!a)
        return LS_ERR_MEMORY;
    a->s = s;
    a->keys = ls_gemm_padded(s.keys);
    a->width = ls_gemm_padded(s.width);
    a->value_width = ls_gemm_padded(s.value_width);
    a->gradient = gradient;
    place_numbers(a);
    a->base.base.scratch_bytes = offsetof(room, numbers) + (size_t)a->at.end * sizeof(float);
    *out = &a->base.base;
    return LS_OK;
}
