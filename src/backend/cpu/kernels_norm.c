/* Batch norm: statistics, normalization (optionally with residual and ReLU), and both parts of the
 * gradient. Each call first converts the f64 sums of the batch or the lane to float32 rows. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

typedef struct norm {
    ls_cpu_kernel base;
    int64_t channels;
    ls_blocks blocks; /* over a sample's pixels */
    double epsilon;
    bool by_lane;
} norm;

/* Rows of [channels] in the scratch memory. g0 and g1 are adjacent, because the sums of a block use
 * both as one array of chains. */
typedef struct rows {
    double *sums; /* [2, channels] of a block */
    float *mean, *inv, *scale, *g0, *g1;
} rows;

static rows in_scratch(const norm *p, void *scratch)
{
    size_t c = (size_t)p->channels;
    double *sums = scratch;
    float *at = (float *)(sums + 2 * c);
    return (rows){ sums, at, at + c, at + 2 * c, at + 3 * c, at + 4 * c };
}

/* Elements per channel in the whole batch, or in the lane. */
static double channel_count(const norm *p, const ls_kernel_call *call)
{
    double samples = (double)(p->by_lane ? call->lane : call->batch);
    return samples * (double)p->blocks.sample;
}

static void read_moments(const norm *p, const ls_kernel_call *call, const double *sums, const float *gamma, rows *r)
{
    double count = channel_count(p, call);
    const double *squares = sums + p->channels;
    for (int64_t i = 0; i < p->channels; i++) {
        double mean = sums[i] / count, variance = squares[i] / count - mean * mean;
        variance = variance > 0 ? variance : variance <= 0 ? 0 : variance; /* NaN is kept */
        r->mean[i] = (float)mean;
        r->inv[i] = (float)(1 / sqrt(variance + p->epsilon));
        r->scale[i] = gamma ? gamma[i] * r->inv[i] : r->inv[i];
    }
}

static size_t pixels(const norm *p, const ls_kernel_call *call)
{
    return (size_t)(call->samples * p->blocks.sample);
}

static void add_block(const norm *p, const ls_kernel_call *call, const ls_block_part *block, const double *sums)
{
    size_t n = 2 * (size_t)p->channels;
    if (block->adds)
        p->base.cpu->simd->accumulate_f64(call->out, sums, n);
    else if (n > 0)
        memcpy(call->out, sums, n * sizeof(*sums));
}

/* Empty sums are 0. */
static bool next_block(const norm *p, const ls_kernel_call *call, ls_block_part *block)
{
    if (p->blocks.sample == 0 && call->from_lane == 0 && p->channels > 0)
        memset(call->out, 0, 2 * (size_t)p->channels * sizeof(double));
    return ls_blocks_next(&p->blocks, call->from_lane, call->samples, call->ends_lane, block);
}

static ls_status run_moments(ls_kernel *kernel, const ls_kernel_call *call)
{
    const norm *p = (const norm *)kernel;
    const float *x = call->in[0];
    double *sums = in_scratch(p, call->scratch).sums;
    size_t bytes = 2 * (size_t)p->channels * sizeof(*sums);
    for (ls_block_part b = { 0 }; next_block(p, call, &b);) {
        ls_cpu_open_block(call, &b, sums, bytes);
        ls_simd_of(kernel)->moments(sums, x + b.first * p->channels, (size_t)b.count, (size_t)p->channels);
        if (ls_cpu_close_block(call, &b, sums, bytes))
            add_block(p, call, &b, sums);
    }
    return LS_OK;
}

/* in: x, moments, gamma, beta; for silu_grad also dy */
static ls_status run_norm_and(ls_kernel *kernel, const ls_kernel_call *call)
{
    const norm *p = (const norm *)kernel;
    const ls_tensor *root = p->base.group->root;
    const ls_simd *simd = ls_simd_of(kernel);
    const float *x = call->in[0], *beta = call->in[3];
    size_t n = pixels(p, call), c = (size_t)p->channels;
    rows r = in_scratch(p, call->scratch);
    read_moments(p, call, call->in[1], call->in[2], &r);
    if (root->op == LS_OP_capped_relu)
        simd->batch_norm_capped(call->out, x, r.mean, r.scale, beta, (float)root->attr.number.value, n, c);
    else if (root->op == LS_OP_silu)
        simd->batch_norm_silu(call->out, x, r.mean, r.scale, beta, n, c);
    else
        simd->batch_norm_silu_grad(call->out, call->in[4], x, r.mean, r.scale, beta, n, c);
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

/* The limit of the ReLU whose gradient is fused in; NAN: none. */
static float limit_of(const norm *p)
{
    const ls_tensor *first = p->base.group->nodes[0];
    return first->op == LS_OP_capped_relu_grad ? (float)first->attr.number.value : NAN;
}

/* in: dy, x, moments; with a ReLU also gamma and beta, or the ReLU's output. Chains of a block are
 * f32; blocks are added in f64. */
static ls_status run_grad_moments(ls_kernel *kernel, const ls_kernel_call *call)
{
    const norm *p = (const norm *)kernel;
    const ls_simd *simd = ls_simd_of(kernel);
    bool relu = p->base.group->relu, masked = p->base.group->masked;
    const float *dy = call->in[0], *x = call->in[1], *y = masked ? call->in[3] : NULL;
    rows r = in_scratch(p, call->scratch);
    size_t n = 2 * (size_t)p->channels;
    read_moments(p, call, call->in[2], relu ? call->in[3] : NULL, &r);
    for (ls_block_part b = { 0 }; next_block(p, call, &b);) {
        int64_t at = b.first * p->channels;
        ls_cpu_open_block(call, &b, r.g0, n * sizeof(float));
        simd->batch_norm_grad_moments(r.g0, dy + at, x + at, r.mean, r.inv, relu ? r.scale : NULL,
                                      relu ? call->in[4] : NULL, limit_of(p), y ? y + at : NULL, (size_t)b.count,
                                      (size_t)p->channels);
        if (!ls_cpu_close_block(call, &b, r.g0, n * sizeof(float)))
            continue;
        simd->f32_to_f64(r.sums, r.g0, n);
        add_block(p, call, &b, r.sums);
    }
    return LS_OK;
}

/* in: dy, x, moments, gamma, sums; with a ReLU also beta, or the ReLU's output */
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
                                              relu ? call->in[5] : NULL, limit_of(p), masked ? call->in[5] : NULL, r.g0,
                                              r.g1, pixels(p, call), (size_t)p->channels);
    return LS_OK;
}

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
    bool followed = group->fusion == LS_FUSE_NORM_AND;
    const ls_tensor *last = group->nodes[group->fusion == LS_FUSE_NORM || followed ? 0 : group->node_count - 1];
    ls_status (*run)(ls_kernel *, const ls_kernel_call *) = last->op == LS_OP_moments      ? run_moments
                                                            : followed                     ? run_norm_and
                                                            : last->op == LS_OP_batch_norm ? run_norm
                                                            : last->op == LS_OP_batch_norm_grad_moments
                                                                ? run_grad_moments
                                                            : last->op == LS_OP_batch_norm_grad_input ? run_grad_input
                                                                                                      : NULL;
    const ls_tensor *x = run ? image_of(group) : NULL; /* other ops may have no inputs */
    if (!run || !ls_cpu_takes_norm(x))
        return ls_cpu_pass();
    norm *p =
        ls_cpu_kernel_new(cpu, group, sizeof(*p), group->relu || group->masked ? "simd norm+relu" : "simd norm", run);
    if (!p)
        return LS_ERR_MEMORY;
    int rank = x->shape.rank;
    p->channels = x->shape.dims[rank - 1];
    int64_t rows = 1;
    for (int i = 1; i < rank - 2; i++)
        rows *= x->shape.dims[i];
    p->blocks = ls_blocks_of(rows, rank > 2 ? x->shape.dims[rank - 2] : 1);
    p->epsilon = last->op == LS_OP_moments ? 0 : last->attr.norm.epsilon;
    p->by_lane = ls_node_is_by_lane(last);
    p->base.base.in_place = run == run_norm || run == run_norm_and || run == run_grad_input;
    p->base.base.chains = run == run_moments || run == run_grad_moments;
    p->base.base.scratch_bytes = (size_t)p->channels * (2 * sizeof(double) + 5 * sizeof(float));
    *out = &p->base.base;
    return LS_OK;
}
