/* Batch normalisation over all axes but the last. The moments are plain sums, [2,C] in double, so that the slices of a
 * batch add up to the batch's own: row 0 the elements, row 1 their squares. */
#include "backend/ref/array.h"
#include "backend/ref/real.h"

#define TILE 64

/* x as [rows, channels], and how many elements a channel has in the whole batch, or the lane. */
typedef struct norm {
    int64_t rows, channels;
    double count;
    double epsilon;
} norm;

static norm norm_of(const ls_ref_call *call, const ls_ref_array *x)
{
    const ls_shape *shape = &x->shape;
    bool split = call->node->in[0]->per_sample;
    int64_t each = ls_ref_extent(shape, split ? 1 : 0, shape->rank - 1);
    int64_t samples = ls_node_is_by_lane(call->node) ? call->lane : call->batch;
    return (norm){
        .rows = ls_ref_extent(shape, 0, shape->rank - 1),
        .channels = shape->dims[shape->rank - 1],
        .count = (double)each * (split ? (double)samples : 1),
        .epsilon = call->node->op == LS_OP_moments ? 0 : call->node->attr.norm.epsilon,
    };
}

/* Mean and 1 / sqrt(variance + epsilon) of channels first .. first+count-1. */
typedef struct statistics {
    double mean[TILE], inverse[TILE];
} statistics;

static void statistics_of(const norm *v, const double *moments, int64_t first, int64_t count, statistics *out)
{
    for (int64_t c = 0; c < count; c++) {
        double mean = moments[first + c] / v->count;
        double variance = moments[v->channels + first + c] / v->count - mean * mean;
        variance = variance < 0 ? 0 : variance; /* NaN stays */
        out->mean[c] = mean;
        out->inverse[c] = 1 / sqrt(variance + v->epsilon);
    }
}

/* in: x [...,C]; out f64 [2,C] */
ls_status LS_REF(moments)(const ls_ref_call *call)
{
    norm v = norm_of(call, &call->in[0]);
    const real *x = call->in[0].data;
    double *sums = call->out.data, *squares = sums + v.channels;
    ls_ref_clear(&call->out);
    for (int64_t i = 0; i < v.rows; i++, x += v.channels) {
        for (int64_t c = 0; c < v.channels; c++) {
            sums[c] += x[c];
            squares[c] += (double)x[c] * x[c];
        }
    }
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
        real *out = (real *)call->out.data + first, mean[TILE], scale[TILE];
        statistics s;
        statistics_of(&v, call->in[1].data, first, count, &s);
        for (int64_t c = 0; c < count; c++) {
            mean[c] = (real)s.mean[c];
            scale[c] = gamma[c] * (real)s.inverse[c];
        }
        for (int64_t i = 0; i < v.rows; i++, x += v.channels, out += v.channels)
            for (int64_t c = 0; c < count; c++)
                out[c] = (x[c] - mean[c]) * scale[c] + beta[c];
    }
    return LS_OK;
}

/* in: dy, x [...,C], moments f64 [2,C]; out f64 [2,C]: the sums of dy and of dy times the normalised x */
ls_status LS_REF(batch_norm_grad_moments)(const ls_ref_call *call)
{
    norm v = norm_of(call, &call->in[1]);
    ls_ref_clear(&call->out);
    for (int64_t first = 0; first < v.channels; first += TILE) {
        int64_t count = ls_ref_at_most(v.channels - first, TILE);
        const real *dy = (const real *)call->in[0].data + first, *x = (const real *)call->in[1].data + first;
        double *sums = (double *)call->out.data + first, *products = sums + v.channels;
        statistics s;
        statistics_of(&v, call->in[2].data, first, count, &s);
        for (int64_t i = 0; i < v.rows; i++, x += v.channels, dy += v.channels) {
            for (int64_t c = 0; c < count; c++) {
                sums[c] += dy[c];
                products[c] += dy[c] * ((x[c] - s.mean[c]) * s.inverse[c]);
            }
        }
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
        real *out = (real *)call->out.data + first;
        statistics s;
        statistics_of(&v, call->in[2].data, first, count, &s);
        for (int64_t i = 0; i < v.rows; i++, x += v.channels, dy += v.channels, out += v.channels) {
            for (int64_t c = 0; c < count; c++) {
                double normal = (x[c] - s.mean[c]) * s.inverse[c];
                double centred = dy[c] - (sums[c] + normal * products[c]) / v.count;
                out[c] = (real)(gamma[c] * s.inverse[c] * centred);
            }
        }
    }
    return LS_OK;
}
