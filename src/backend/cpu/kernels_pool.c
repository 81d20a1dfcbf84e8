/* Pools and their gradients, optionally fused with a ReLU. */
#include "backend/cpu/cpu.h"

typedef struct pool {
    ls_cpu_kernel base;
    ls_simd_pool size; /* n is set by each call */
} pool;

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const pool *p = (const pool *)kernel;
    const ls_simd *simd = ls_simd_of(kernel);
    bool relu = p->base.group->relu;
    ls_simd_pool size = p->size;
    size.n = p->size.n < 0 ? call->samples : p->size.n;
    const ls_group *group = p->base.group;
    switch (group->fusion == LS_FUSE_RELU_POOL ? LS_OP_max_pool2d : group->nodes[0]->op) {
    case LS_OP_max_pool2d:
        simd->max_pool2d(call->out, call->in[0], &size, relu);
        break;
    case LS_OP_max_pool2d_grad:
        simd->max_pool2d_grad(call->out, call->in[0], call->in[1], &size, relu);
        break;
    case LS_OP_average_pool2d:
        simd->average_pool2d(call->out, call->in[0], &size);
        break;
    default:
        simd->average_pool2d_grad(call->out, call->in[0], &size);
        break;
    }
    return LS_OK;
}

ls_status ls_cpu_make_pool(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    const ls_tensor *node = group->nodes[group->fusion == LS_FUSE_RELU_POOL ? 1 : 0], *x, *y;
    switch (node->op) {
    case LS_OP_max_pool2d:
    case LS_OP_average_pool2d:
        x = node->in[0], y = node;
        break;
    case LS_OP_max_pool2d_grad:
        x = node, y = node->in[1];
        break;
    case LS_OP_average_pool2d_grad:
        x = node, y = node->in[0];
        break;
    default:
        return ls_cpu_pass();
    }
    if (node->dtype != LS_F32)
        return ls_cpu_pass();
    pool *p = ls_cpu_kernel_new(cpu, group, sizeof(*p), group->relu ? "simd pool+relu" : "simd pool", run);
    if (!p)
        return LS_ERR_MEMORY;
    const int64_t *in = x->shape.dims, *window = node->attr.window.window, *stride = node->attr.window.stride;
    /* -1: the call's samples */
    int64_t images = x->per_sample ? -1 : in[0] == LS_BATCH ? group->plan->batch : in[0];
    p->size = (ls_simd_pool){ .n = images, .h = in[1], .w = in[2], .c = in[3] };
    p->size.oh = y->shape.dims[1], p->size.ow = y->shape.dims[2];
    p->size.kh = window[0], p->size.kw = window[1], p->size.sh = stride[0], p->size.sw = stride[1];
    p->size.pad_top = node->attr.window.pad[0], p->size.pad_left = node->attr.window.pad[2];
    p->size.count_padding = node->attr.window.count_padding;
    *out = &p->base.base;
    return LS_OK;
}
