/* Attention by its definition (docs/bits.md), query by query. Keys that a query does not see are
 * left out of every sum. */
#include <stdlib.h>
#include <string.h>

#include "backend/ref/array.h"
#include "backend/ref/functions.h"
#include "backend/ref/interleaved.h"
#include "backend/ref/real.h"
#include "base/philox.h"
#include "graph/attention.h"

#define SUM_BLOCK 4096 /* elements of a block of a long sum */

/* One sample: its operands, and the numbers of one query by key. */
typedef struct attention {
    const ls_tensor *node;
    ls_attention_sizes s;
    const real *q, *k, *v;
    const uint8_t *mask; /* the sample's; NULL: none */
    real scale, rate;
    ls_philox_key key;
    uint64_t run;
    uint32_t sample;
    int64_t head, query;
    bool *seen;
    real *p, *dropped, *ds; /* dropped: p after dropout */
} attention;

static const real *q_row(const attention *a)
{
    return a->q + a->query * a->s.row[0] + a->head * a->s.width;
}

static const real *k_row(const attention *a, int64_t key)
{
    return a->k + key * a->s.row[1] + a->head / a->s.shared * a->s.width;
}

static const real *v_row(const attention *a, int64_t key)
{
    return a->v + key * a->s.row[2] + a->head / a->s.shared * a->s.value_width;
}

static real multiply(const real *x, const real *y, int64_t n)
{
    real sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum = real_madd(x[i], y[i], sum);
    return sum;
}

/* x after dropout, as the number of this query and key. */
static real drop(const attention *a, int64_t key, real x)
{
    if (a->rate == 0)
        return x;
    uint64_t element = (uint64_t)((a->head * a->s.queries + a->query) * a->s.keys + key);
    ls_philox_block block = ls_random_block(a->key, a->run, a->sample, (uint32_t)(element / 4));
    return (real)ls_random_unit_f32(block.word[element % 4]) >= a->rate ? x * (1 / (1 - a->rate)) : 0;
}

/* Sets `seen`, `p` and `dropped` of the current head and query. Returns whether it sees a key. */
static bool find_weights(attention *a)
{
    double largest = -INFINITY;
    bool any = false;
    ls_ref_interleaved sums = { { 0 } };
    const uint8_t *mask = a->mask ? a->mask + a->head * a->s.mask_head + a->query * a->s.mask_query : NULL;
    int64_t visible = ls_attention_visible(a->node, &a->s, a->query);
    for (int64_t j = 0; j < a->s.keys; j++) {
        a->seen[j] = j < visible && (!mask || mask[j]);
        if (!a->seen[j])
            continue;
        any = true;
        a->p[j] = multiply(q_row(a), k_row(a, j), a->s.width) * a->scale;
        largest = a->p[j] > largest ? a->p[j] : largest;
    }
    for (int64_t j = 0; j < a->s.keys; j++) /* NaN, which comparisons ignore, shows up here */
        if (a->seen[j])
            sums.part[j % LS_REF_PARTS] += wide_exp(a->p[j] - largest);
    double sum = ls_ref_interleaved_total(&sums);
    for (int64_t j = 0; j < a->s.keys; j++)
        if (a->seen[j]) {
            a->p[j] = (real)(wide_exp(a->p[j] - largest) / sum);
            a->dropped[j] = drop(a, j, a->p[j]);
        }
    return any;
}

/* ---- Forward ---- */

static void compute_output(const attention *a, real *out)
{
    for (int64_t e = 0; e < a->s.value_width; e++) {
        real sum = 0;
        for (int64_t j = 0; j < a->s.keys; j++)
            if (a->seen[j])
                sum = real_madd(a->dropped[j], v_row(a, j)[e], sum);
        out[e] = sum + 0;
    }
}

/* ---- Gradient ---- */

/* Sum of p dp over the keys, each product rounded, in the order of sums of contiguous elements. */
static real sum_products(const attention *a, const real *dp)
{
    double sum = 0;
    for (int64_t first = 0; first < a->s.keys; first += SUM_BLOCK) {
        ls_ref_interleaved sums = { { 0 } };
        for (int64_t j = first; j < ls_ref_at_most(a->s.keys, first + SUM_BLOCK); j++)
            if (a->seen[j])
                sums.part[(j - first) % LS_REF_PARTS] += (real)(a->p[j] * dp[j]);
        sum += ls_ref_interleaved_total(&sums);
    }
    return (real)sum;
}

/* Continues the chains of the gradients with the current head and query. */
static void add_gradients(attention *a, const real *dy, real *dq, real *dk, real *dv)
{
    const real *q = q_row(a);
    for (int64_t j = 0; j < a->s.keys; j++)
        if (a->seen[j])
            a->ds[j] = drop(a, j, multiply(dy, v_row(a, j), a->s.value_width));
    real delta = sum_products(a, a->ds);
    for (int64_t j = 0; j < a->s.keys; j++) {
        if (!a->seen[j])
            continue;
        const real *k = k_row(a, j);
        real ds = a->p[j] * (a->ds[j] - delta) * a->scale;
        for (int64_t e = 0; e < a->s.width; e++) {
            dq[e] = real_madd(ds, k[e], dq[e]);
            dk[j * a->s.gradient_row[1] + e] = real_madd(ds, q[e], dk[j * a->s.gradient_row[1] + e]);
        }
        for (int64_t e = 0; e < a->s.value_width; e++)
            dv[j * a->s.gradient_row[2] + e] = real_madd(a->dropped[j], dy[e], dv[j * a->s.gradient_row[2] + e]);
    }
}

static void compute_gradients(attention *a, const real *dy, real *out)
{
    for (a->head = 0; a->head < a->s.heads; a->head++)
        for (a->query = 0; a->query < a->s.queries; a->query++) {
            int64_t shared = a->head / a->s.shared;
            if (find_weights(a))
                add_gradients(a, dy + (a->query * a->s.heads + a->head) * a->s.value_width,
                              out + a->s.gradient_at[0] + a->query * a->s.gradient_row[0] + a->head * a->s.width,
                              out + a->s.gradient_at[1] + shared * a->s.width,
                              out + a->s.gradient_at[2] + shared * a->s.value_width);
        }
    for (int64_t i = 0; i < a->s.gradient_sample; i++)
        out[i] += 0;
}

/* ---- Calls ---- */

static ls_status open_rows(attention *a)
{
    size_t keys = (size_t)a->s.keys;
    a->seen = calloc(keys, sizeof(*a->seen));
    a->p = calloc(3 * keys, sizeof(*a->p));
    if (!a->seen || !a->p) {
        free(a->seen);
        free(a->p);
        return ls_fail(LS_ERR_MEMORY, "no memory for a row of %zu keys", keys);
    }
    a->dropped = a->p + keys;
    a->ds = a->dropped + keys;
    return LS_OK;
}

static ls_status open_attention(const ls_ref_call *call, attention *a)
{
    const ls_tensor *node = call->node;
    *a = (attention){ .node = node, .s = ls_attention_sizes_of(node), .run = call->run };
    a->scale = (real)node->attr.attention.scale;
    if (node->attr.attention.drops) {
        a->rate = *(const real *)call->in[ls_attention_rate(node)].data;
        if (!(a->rate >= 0 && a->rate < 1))
            return ls_fail(LS_ERR_DATA, "a dropout rate of %.9g is outside [0, 1)", (double)a->rate);
        a->key = ls_random_key(call->seed, LS_RANDOM_DROPOUT, (uint32_t)node->attr.attention.layer,
                               (uint32_t)node->attr.attention.call);
    }
    return open_rows(a);
}

static void open_sample(const ls_ref_call *call, attention *a, int64_t sample)
{
    const ls_tensor *node = call->node;
    a->q = (const real *)call->in[ls_attention_q(node)].data + sample * a->s.sample[0] + a->s.at[0];
    a->k = (const real *)call->in[ls_attention_k(node)].data + sample * a->s.sample[1] + a->s.at[1];
    a->v = (const real *)call->in[ls_attention_v(node)].data + sample * a->s.sample[2] + a->s.at[2];
    if (node->attr.attention.masked)
        a->mask = (const uint8_t *)call->in[ls_attention_mask(node)].data + sample * a->s.mask_sample;
    a->sample = (uint32_t)(node->per_sample ? call->first + sample : sample);
}

static void close_attention(attention *a)
{
    free(a->seen);
    free(a->p);
}

ls_status LS_REF(attention)(const ls_ref_call *call)
{
    attention a;
    LS_TRY(open_attention(call, &a));
    real *out = call->out.data;
    for (int64_t sample = 0; sample < call->out.shape.dims[0]; sample++) {
        open_sample(call, &a, sample);
        for (a.query = 0; a.query < a.s.queries; a.query++)
            for (a.head = 0; a.head < a.s.heads; a.head++, out += a.s.value_width) {
                find_weights(&a);
                compute_output(&a, out);
            }
    }
    close_attention(&a);
    return LS_OK;
}

ls_status LS_REF(attention_grad)(const ls_ref_call *call)
{
    attention a;
    LS_TRY(open_attention(call, &a));
    ls_ref_clear(&call->out);
    for (int64_t sample = 0; sample < call->out.shape.dims[0]; sample++) {
        open_sample(call, &a, sample);
        compute_gradients(&a, (const real *)call->in[0].data + sample * a.s.queries * a.s.heads * a.s.value_width,
                          (real *)call->out.data + sample * a.s.gradient_sample);
    }
    close_attention(&a);
    return LS_OK;
}
