/* Batch norm: statistics, normalisation (with a residual and a ReLU), and both parts of the gradient. The statistics
 * come as f64 sums of the whole batch or the lane; each call turns them into rows of float32 first, which costs little
 * beside its pixels. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

typedef struct norm {
    ls_cpu_kernel base;
    int64_t channels, rows, row_len; /* of one sample */
    double epsilon;
    bool by_lane;
} norm;

/* Rows of [channels] in the scratch. */
typedef struct rows {
    float *mean, *inv, *scale, *g0, *g1;
} rows;

static rows in_scratch(const norm *p, void *scratch)
{
    float *at = scratch;
    size_t c = (size_t)p->channels;
    return (rows){ at, at + c, at + 2 * c, at + 3 * c, at + 4 * c };
}

/* Elements of a channel in what the statistics are of: the whole batch, or the lane. */
static double channel_count(const norm *p, const ls_kernel_call *call)
{
    double samples = (double)(p->by_lane ? call->lane : call->batch);
    return samples * (double)p->rows * (double)p->row_len;
}

static void read_moments(const norm *p, const ls_kernel_call *call, const double *sums, const float *gamma, rows *r)
{
    double count = channel_count(p, call);
    const double *squares = sums + p->channels;
    for (int64_t i = 0; i < p->channels; i++) {
        double mean = sums[i] / count, variance = squares[i] / count - mean * mean;
        variance = variance > 0 ? variance : variance <= 0 ? 0 : variance; /* a NaN stays */
        r->mean[i] = (float)mean;
        r->inv[i] = (float)(1 / sqrt(variance + p->epsilon));
        r->scale[i] = gamma ? gamma[i] * r->inv[i] : r->inv[i];
    }
}

static size_t pixels(const norm *p, const ls_kernel_call *call)
{
    return (size_t)(call->samples * p->rows * p->row_len);
}

static ls_status run_moments(ls_kernel *kernel, const ls_kernel_call *call)
{
    const norm *p = (const norm *)kernel;
    ls_simd_of(kernel)->moments(call->out, call->in[0], (size_t)(call->samples * p->rows), (size_t)p->row_len,
                                (size_t)p->channels);
    return LS_OK;
}

/* in: x, moments, gamma, beta, residual */
static ls_status run_norm(ls_kernel *kernel, const ls_kernel_call *call)
{
    const norm *p = (const norm *)kernel;
    const ls_group *group = p->base.group;
    const ls_simd *simd = ls_simd_of(kernel);
    rows r = in_scratch(p, call->scratch);
    read_moments(p, call, call->in[1], call->in[2], &r);
    if (group->residual)
        simd->batch_norm_add(call->out, call->in[0], r.mean, r.scale, call->in[3], call->in[4], pixels(p, call),
                             (size_t)p->channels, group->relu);
    else
        simd->batch_norm(call->out, call->in[0], r.mean, r.scale, call->in[3], pixels(p, call), (size_t)p->channels,
                         group->relu);
    return LS_OK;
}

/* in: dy, x, moments, and with a ReLU gamma, beta, or its output */
static ls_status run_grad_moments(ls_kernel *kernel, const ls_kernel_call *call)
{
    const norm *p = (const norm *)kernel;
    bool relu = p->base.group->relu, masked = p->base.group->masked;
    rows r = in_scratch(p, call->scratch);
    read_moments(p, call, call->in[2], relu ? call->in[3] : NULL, &r);
    ls_simd_of(kernel)->batch_norm_grad_moments(
        call->out, call->in[0], call->in[1], r.mean, r.inv, relu ? r.scale : NULL, relu ? call->in[4] : NULL,
        masked ? call->in[3] : NULL, (size_t)(call->samples * p->rows), (size_t)p->row_len, (size_t)p->channels);
    return LS_OK;
}

/* in: dy, x, moments, gamma, sums, and with a ReLU beta, or its output */
static ls_status run_grad_input(ls_kernel *kernel, const ls_kernel_call *call)
{
    const norm *p = (const norm *)kernel;
    bool relu = p->base.group->relu, masked = p->base.group->masked;
    rows r = in_scratch(p, call->scratch);
    read_moments(p, call, call->in[2], call->in[3], &r);
    const double *sums = call->in[4];
    double count = channel_count(p, call);
    for (int64_t i = 0; i < p->channels; i++) {
        r.g0[i] = (float)(sums[i] / count);
        r.g1[i] = (float)(sums[p->channels + i] / count);
    }
    ls_simd_of(kernel)->batch_norm_grad_input(call->out, call->in[0], call->in[1], r.mean, r.inv, r.scale,
                                              relu ? call->in[5] : NULL, masked ? call->in[5] : NULL, r.g0, r.g1,
                                              pixels(p, call), (size_t)p->channels);
    return LS_OK;
}

/* The tensor whose pixels are normalised. */
static const ls_tensor *image_of(const ls_group *group)
{
    return group->nodes[0]->in[0];
}

bool ls_cpu_takes_norm(const ls_tensor *x)
{
    return x->dtype == LS_F32 && x->per_sample;
}

ls_status ls_cpu_make_norm(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    const ls_tensor *last = group->nodes[group->fusion == LS_FUSE_NORM ? 0 : group->node_count - 1];
    ls_status (*run)(ls_kernel *, const ls_kernel_call *) = last->op == LS_OP_moments      ? run_moments
                                                            : last->op == LS_OP_batch_norm ? run_norm
                                                            : last->op == LS_OP_batch_norm_grad_moments
                                                                ? run_grad_moments
                                                            : last->op == LS_OP_batch_norm_grad_input ? run_grad_input
                                                                                                      : NULL;
    const ls_tensor *x = run ? image_of(group) : NULL; /* other ops may have no input to look at */
    if (!run || !ls_cpu_takes_norm(x))
        return ls_cpu_pass();
    norm *p =
        ls_cpu_kernel_new(cpu, group, sizeof(*p), group->relu || group->masked ? "simd norm+relu" : "simd norm", run);
    if (!p)
        return LS_ERR_MEMORY;
    int rank = x->shape.rank;
    p->channels = x->shape.dims[rank - 1];
    p->row_len = rank > 2 ? x->shape.dims[rank - 2] : 1;
    p->rows = 1;
    for (int i = 1; i < rank - 2; i++)
        p->rows *= x->shape.dims[i];
    p->epsilon = last->op == LS_OP_moments ? 0 : last->attr.norm.epsilon;
    p->by_lane = ls_node_is_by_lane(last);
    p->base.base.in_place = run == run_norm || run == run_grad_input;
    p->base.base.scratch_bytes = 5 * (size_t)p->channels * sizeof(float);
    *out = &p->base.base;
    return LS_OK;
}
