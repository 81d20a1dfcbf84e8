/* Float32 sums: over all axes but the last, in blocks; over an image's pixels (global pool), and
 * its gradient. */
#include "backend/cpu/cpu.h"

typedef struct reduce {
    ls_cpu_kernel base;
    int64_t rows, row_len, channels; /* sizes of one sample */
    ls_blocks blocks;
} reduce;

#define TOGETHER 4 /* blocks summed at once */

static void close_block(const reduce *r, const ls_kernel_call *call, const ls_block_part *block, const float *chains)
{
    size_t n = (size_t)r->channels;
    if (!ls_cpu_close_block(call, block, chains, n * sizeof(float)))
        return;
    if (block->adds)
        r->base.cpu->simd->accumulate_f32(call->out, chains, n);
    else
        memcpy(call->out, chains, n * sizeof(float));
}

static ls_status run_channel_sum(ls_kernel *kernel, const ls_kernel_call *call)
{
    const reduce *r = (const reduce *)kernel;
    ls_block_part block = { 0 }, part[TOGETHER];
    float *chains = call->scratch; /* [TOGETHER, channels] */
    if (r->channels == 0)
        return LS_OK;
    if (r->blocks.sample == 0 && call->from_lane == 0)
        memset(call->out, 0, (size_t)r->channels * sizeof(float)); /* empty sums */
    for (int count = TOGETHER; count == TOGETHER;) {
        size_t positions[TOGETHER];
        for (count = 0;
             count < TOGETHER && ls_blocks_next(&r->blocks, call->from_lane, call->samples, call->ends_lane, &block);
             count++) {
            part[count] = block;
            positions[count] = (size_t)block.count;
            ls_cpu_open_block(call, &block, chains + count * r->channels, (size_t)r->channels * sizeof(float));
        }
        if (count > 0)
            ls_simd_of(kernel)->channel_sum(chains, (const float *)call->in[0] + part[0].first * r->channels, positions,
                                            (size_t)count, (size_t)r->channels);
        for (int i = 0; i < count; i++)
            close_block(r, call, &part[i], chains + i * r->channels);
    }
    return LS_OK;
}

static ls_status run_spatial_sum(ls_kernel *kernel, const ls_kernel_call *call)
{
    const reduce *r = (const reduce *)kernel;
    ls_simd_of(kernel)->spatial_sum(call->out, call->in[0], (size_t)call->samples, (size_t)(r->rows * r->row_len),
                                    (size_t)r->channels);
    return LS_OK;
}

static ls_status run_spread(ls_kernel *kernel, const ls_kernel_call *call)
{
    const reduce *r = (const reduce *)kernel;
    ls_simd_of(kernel)->spread(call->out, call->in[0], (size_t)call->samples, (size_t)(r->rows * r->row_len),
                               (size_t)r->channels);
    return LS_OK;
}

/* Over the batch and all axes but the last, or over all axes. */
static bool is_channel_sum(const ls_tensor *node)
{
    const ls_shape *x = &node->in[0]->shape;
    int64_t all = ((int64_t)1 << x->rank) - 1, axes = node->attr.reduce.axes;
    return axes & 1 && (axes == all || axes == (all & ~((int64_t)1 << (x->rank - 1))));
}

static void image_sizes(reduce *r, const ls_tensor *x, bool everything)
{
    int rank = x->shape.rank, inner = everything ? rank : rank - 1; /* number of summed axes */
    r->channels = everything ? 1 : x->shape.dims[rank - 1];
    r->row_len = inner > 1 ? x->shape.dims[inner - 1] : 1;
    r->rows = 1;
    for (int i = 1; i < inner - 1; i++)
        r->rows *= x->shape.dims[i];
    r->blocks = ls_blocks_of(r->rows, r->row_len);
}

ls_status ls_cpu_make_reduce(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    const ls_tensor *node = group->root;
    if (group->node_count != 1 || node->dtype != LS_F32 || node->input_count < 1)
        return ls_cpu_pass();
    const ls_tensor *x = node->in[0];
    reduce probe = { .rows = 1 };
    ls_status (*run)(ls_kernel *, const ls_kernel_call *) = NULL;
    if (node->op == LS_OP_reduce_sum && x->per_sample && is_channel_sum(node)) {
        image_sizes(&probe, x, node->attr.reduce.axes >> (x->shape.rank - 1) & 1);
        run = run_channel_sum;
    } else if (node->op == LS_OP_reduce_sum && x->per_sample && x->shape.rank == 4 && node->attr.reduce.axes == 6) {
        image_sizes(&probe, x, false);
        run = run_spatial_sum;
    } else if (node->op == LS_OP_broadcast && x->per_sample && x->shape.rank == 4 && x->shape.dims[1] == 1 &&
               x->shape.dims[2] == 1 && x->shape.dims[3] == node->shape.dims[3]) {
        image_sizes(&probe, node, false);
        run = run_spread;
    }
    if (!run)
        return ls_cpu_pass();
    reduce *r = ls_cpu_kernel_new(cpu, group, sizeof(*r), "simd sum", run);
    if (!r)
        return LS_ERR_MEMORY;
    probe.base = r->base;
    *r = probe;
    r->base.base.chains = run == run_channel_sum;
    r->base.base.scratch_bytes = run == run_channel_sum ? TOGETHER * (size_t)r->channels * sizeof(float) : 0;
    *out = &r->base.base;
    return LS_OK;
}
