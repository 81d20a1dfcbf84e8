/* Batch normalization over all axes but the last (docs/bits.md). The moments are plain sums in
 * double, [2,C], so that lanes add up to the batch: elements, then their squares. Values derived
 * from them are rounded to `real`. */
#include "backend/blocks.h"
#include "backend/ref/array.h"
#include "backend/ref/real.h"

#define TILE 64

/* x as [positions, channels], and the elements per channel in the batch or the lane. */
typedef struct norm {
    int64_t positions, channels, samples;
    ls_blocks blocks;
    double count;
    double epsilon;
} norm;

static norm norm_of(const ls_ref_call *call, const ls_ref_array *x)
{
    const ls_shape *shape = &x->shape;
    int rank = shape->rank;
    bool split = call->node->in[0]->per_sample;
    int64_t each = ls_ref_extent(shape, split ? 1 : 0, rank - 1);
    int64_t samples = ls_node_is_by_lane(call->node) ? call->lane : call->batch;
    return (norm){
        .positions = ls_ref_extent(shape, 0, rank - 1),
        .channels = shape->dims[rank - 1],
        .samples = rank > 1 ? shape->dims[0] : 1,
        .blocks =
            rank > 2 ? ls_blocks_of(ls_ref_extent(shape, 1, rank - 2), shape->dims[rank - 2]) : ls_blocks_of(1, 1),
        .count = (double)each * (split ? (double)samples : 1),
        .epsilon = call->node->op == LS_OP_moments ? 0 : call->node->attr.norm.epsilon,
    };
}

/* Statistics of channels first .. first+count-1. */
typedef struct statistics {
    real mean[TILE], inverse[TILE];
} statistics;

static void statistics_of(const norm *v, const double *moments, int64_t first, int64_t count, statistics *out)
{
    for (int64_t c = 0; c < count; c++) {
        double mean = moments[first + c] / v->count;
        double variance = moments[v->channels + first + c] / v->count - mean * mean;
        variance = variance < 0 ? 0 : variance; /* NaN is kept */
        out->mean[c] = (real)mean;
        out->inverse[c] = (real)(1 / sqrt(variance + v->epsilon));
    }
}

/* ---- Sums over the batch: two chains by channel and block; blocks are added in double ---- */

/* Continues both sums of a block for channels first .. first+count-1, from the block's first
 * position on. dy NULL: sums of x and x^2 in double; otherwise of dy and of dy * (normalized x) in
 * `real`. */
static void add_positions(const norm *v, const statistics *s, const real *x, const real *dy, int64_t positions,
                          int64_t count, double (*sum)[TILE])
{
    for (int64_t i = 0; i < positions; i++) {
        for (int64_t c = 0; c < count; c++) {
            int64_t at = i * v->channels + c;
            sum[0][c] = dy ? (real)sum[0][c] + dy[at] : sum[0][c] + x[at];
            sum[1][c] = dy ? (real)sum[1][c] + dy[at] * ((x[at] - s->mean[c]) * s->inverse[c])
                           : sum[1][c] + (double)x[at] * x[at];
        }
    }
}

static void load_chains(const norm *v, const double *from, int64_t count, double (*sum)[TILE])
{
    for (int row = 0; row < 2; row++)
        for (int64_t c = 0; c < count; c++)
            sum[row][c] = from ? from[row * v->channels + c] : 0;
}

static void store_chains(const norm *v, const ls_block_part *block, double (*sum)[TILE], int64_t count, double *to)
{
    for (int row = 0; row < 2; row++, to += v->channels)
        for (int64_t c = 0; c < count; c++)
            to[c] = block->closes && block->adds ? to[c] + sum[row][c] : sum[row][c];
}

static void sum_blocks(const ls_ref_call *call, const norm *v, const real *x, const real *dy, const double *moments)
{
    if (v->positions == 0 && call->from_lane == 0)
        ls_ref_clear(&call->out);
    for (int64_t first = 0; first < v->channels; first += TILE) {
        int64_t count = ls_ref_at_most(v->channels - first, TILE);
        double sum[2][TILE];
        statistics s = { .mean = { 0 } };
        if (moments)
            statistics_of(v, moments, first, count, &s);
        for (ls_block_part b = { 0 }; ls_blocks_next(&v->blocks, call->from_lane, v->samples, !call->goes_on, &b);) {
            int64_t at = b.first * v->channels + first;
            load_chains(v, b.opens ? NULL : (const double *)call->chain + first, count, sum);
            add_positions(v, &s, x + at, dy ? dy + at : NULL, b.count, count, sum);
            store_chains(v, &b, sum, count, (double *)(b.closes ? call->out.data : call->chain) + first);
        }
    }
}

/* in: x [...,C]; out f64 [2,C] */
ls_status LS_REF(moments)(const ls_ref_call *call)
{
    norm v = norm_of(call, &call->in[0]);
    sum_blocks(call, &v, call->in[0].data, NULL, NULL);
    return LS_OK;
}

/* in: dy, x [...,C], moments f64 [2,C]; out f64 [2,C]: sums of dy and of dy times the normalized
 * x */
ls_status LS_REF(batch_norm_grad_moments)(const ls_ref_call *call)
{
    norm v = norm_of(call, &call->in[1]);
    sum_blocks(call, &v, call->in[1].data, call->in[0].data, call->in[2].data);
    return LS_OK;
}

/* in: x [...,C], moments f64 [2,C], gamma [C], beta [C] */
ls_status LS_REF(batch_norm)(const ls_ref_call *call)
{
    norm v = norm_of(call, &call->in[0]);
    for (int64_t first = 0; first < v.channels; first += TILE) {
        int64_t count = ls_ref_at_most(v.channels - first, TILE);
        const real *x = (const real *)call->in[0].data + first;
        const real *gamma = (const real *)call->in[2].data + first, *beta = (const real *)call->in[3].data + first;
        real *out = (real *)call->out.data + first;
        statistics s;
        statistics_of(&v, call->in[1].data, first, count, &s);
        for (int64_t i = 0; i < v.positions; i++, x += v.channels, out += v.channels)
            for (int64_t c = 0; c < count; c++)
                out[c] = (x[c] - s.mean[c]) * (gamma[c] * s.inverse[c]) + beta[c];
    }
    return LS_OK;
}

/* in: dy, x [...,C], moments f64 [2,C], gamma [C], grad_moments f64 [2,C] */
ls_status LS_REF(batch_norm_grad_input)(const ls_ref_call *call)
{
    norm v = norm_of(call, &call->in[1]);
    for (int64_t first = 0; first < v.channels; first += TILE) {
        int64_t count = ls_ref_at_most(v.channels - first, TILE);
        const real *dy = (const real *)call->in[0].data + first, *x = (const real *)call->in[1].data + first;
        const real *gamma = (const real *)call->in[3].data + first;
        const double *sums = (const double *)call->in[4].data + first, *products = sums + v.channels;
        real *out = (real *)call->out.data + first, mean_dy[TILE], mean_product[TILE];
        statistics s;
        statistics_of(&v, call->in[2].data, first, count, &s);
        for (int64_t c = 0; c < count; c++) {
            mean_dy[c] = (real)(sums[c] / v.count);
            mean_product[c] = (real)(products[c] / v.count);
        }
        for (int64_t i = 0; i < v.positions; i++, x += v.channels, dy += v.channels, out += v.channels) {
            for (int64_t c = 0; c < count; c++) {
                real normal = (x[c] - s.mean[c]) * s.inverse[c];
                out[c] = gamma[c] * s.inverse[c] * (dy[c] - (mean_dy[c] + normal * mean_product[c]));
            }
        }
    }
    return LS_OK;
}
