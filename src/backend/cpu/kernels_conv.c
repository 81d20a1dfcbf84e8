/* Convolutions by oneDNN: forward with bias and ReLU, backward to the input, backward to the kernel. Weights are packed
 * once a step; the kernel's gradient is joined packed and unpacked once. */
#include <stdlib.h>

#include "backend/cpu/cpu.h"

#define MAX_KINDS 8

typedef struct conv {
    ls_cpu_kernel base;
    int64_t samples[MAX_KINDS];
    ls_dnn_op *ops[MAX_KINDS];
    int kinds;
    ls_dnn_op *reorder; /* HWIO to packed, or back; NULL: packed is HWIO */
    char name[64];
} conv;

static ls_dnn_op *op_for(const conv *c, int64_t samples)
{
    for (int i = 0; i < c->kinds; i++)
        if (c->samples[i] == samples)
            return c->ops[i];
    return NULL;
}

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    conv *c = (conv *)kernel;
    const ls_group *group = c->base.group;
    ls_dnn_op *op = op_for(c, call->samples);
    if (!op)
        return ls_fail(LS_ERR_INTERNAL, "no convolution was made for %lld samples", (long long)call->samples);
    switch (group->nodes[0]->op) {
    case LS_OP_conv2d:
        return ls_dnn_run_forward(op, call->worker, call->in[0], call->in[1], group->bias ? call->in[2] : NULL,
                                  call->out, call->scratch);
    case LS_OP_conv2d_grad_input:
        return ls_dnn_run_backward_data(op, call->worker, call->in[1], call->in[0], call->out, call->scratch);
    default:
        return ls_dnn_run_backward_weights(op, call->worker, call->in[0], call->in[1], call->out, NULL, call->scratch);
    }
}

static ls_status repack(ls_kernel *kernel, const void *from, void *to, int worker, void *scratch)
{
    return ls_dnn_run_reorder(((conv *)kernel)->reorder, worker, from, to, scratch);
}

static bool same_packing(const ls_kernel *a, const ls_kernel *b)
{
    return ls_dnn_same_weights(((const conv *)a)->ops[0], ((const conv *)b)->ops[0]);
}

static void destroy(ls_kernel *kernel)
{
    conv *c = (conv *)kernel;
    for (int i = 0; i < c->kinds; i++)
        ls_dnn_op_destroy(c->ops[i]);
    ls_dnn_op_destroy(c->reorder);
    free(c);
}

ls_dnn_conv ls_cpu_conv_sizes(const ls_group *group, int64_t samples)
{
    const ls_tensor *node = group->nodes[0];
    const ls_tensor *x = node->op == LS_OP_conv2d_grad_input ? node : node->in[0];
    const ls_tensor *kernel = node->op == LS_OP_conv2d              ? node->in[1]
                              : node->op == LS_OP_conv2d_grad_input ? node->in[0]
                                                                    : node;
    const ls_tensor *y = node->op == LS_OP_conv2d ? node : node->in[1];
    const int64_t *k = kernel->shape.dims;
    ls_dnn_conv c = { .n = samples, .h = x->shape.dims[1], .w = x->shape.dims[2], .c = x->shape.dims[3] };
    c.kh = k[0], c.kw = k[1], c.o = k[3], c.oh = y->shape.dims[1], c.ow = y->shape.dims[2];
    for (int i = 0; i < 2; i++) {
        c.stride[i] = node->attr.window.stride[i];
        c.dilation[i] = node->attr.window.dilation[i];
    }
    for (int i = 0; i < 4; i++)
        c.pad[i] = node->attr.window.pad[i];
    c.groups = node->attr.window.groups;
    c.bias = group->bias;
    c.relu = group->relu;
    return c;
}

static ls_status make_op(conv *c, const ls_group *group, int64_t samples, const ls_dnn_op *like, ls_dnn_op **out)
{
    ls_dnn *dnn = c->base.cpu->dnn;
    ls_dnn_conv size = ls_cpu_conv_sizes(group, samples);
    switch (group->nodes[0]->op) {
    case LS_OP_conv2d:
        return ls_dnn_conv_forward(dnn, &size, like, out);
    case LS_OP_conv2d_grad_input:
        return ls_dnn_conv_backward_data(dnn, &size, like, out);
    default:
        return ls_dnn_conv_backward_weights(dnn, &size, like, out);
    }
}

/* The common size decides the format; the others follow it. */
static ls_status make_ops(conv *c, const ls_group *group, const int64_t *samples, int kinds)
{
    for (int i = 0; i < kinds; i++) {
        LS_TRY(make_op(c, group, samples[i], i ? c->ops[0] : NULL, &c->ops[i]));
        c->samples[i] = samples[i];
        c->kinds = i + 1;
        size_t scratch = ls_dnn_op_scratch_bytes(c->ops[i]);
        if (scratch > c->base.base.scratch_bytes)
            c->base.base.scratch_bytes = scratch;
    }
    return LS_OK;
}

static ls_status make_reorder(conv *c, const ls_group *group)
{
    ls_kernel *base = &c->base.base;
    ls_dnn *dnn = c->base.cpu->dnn;
    bool gradient = group->nodes[0]->op == LS_OP_conv2d_grad_kernel;
    if (ls_dnn_op_weights_are_hwio(c->ops[0]))
        return LS_OK;
    LS_TRY(gradient ? ls_dnn_reorder_to_hwio(dnn, c->ops[0], &c->reorder)
                    : ls_dnn_reorder_from_hwio(dnn, c->ops[0], &c->reorder));
    size_t bytes = ls_dnn_op_weights_bytes(c->ops[0]), scratch = ls_dnn_op_scratch_bytes(c->reorder);
    if (scratch > base->scratch_bytes)
        base->scratch_bytes = scratch;
    if (gradient) {
        base->partial_bytes = bytes;
        base->finish = repack;
    } else {
        base->prepare = (ls_prepare){
            .input = group->nodes[0]->op == LS_OP_conv2d ? 1 : 0, .bytes = bytes, .run = repack, .same = same_packing
        };
    }
    return LS_OK;
}

bool ls_cpu_takes_conv(const ls_tensor *node)
{
    bool ours = node->op == LS_OP_conv2d || node->op == LS_OP_conv2d_grad_input || node->op == LS_OP_conv2d_grad_kernel;
    if (!ours || node->dtype != LS_F32 || node->use == LS_USE_WHOLE)
        return false;
    for (int k = 0; k < 3; k++) { /* no empty images, no empty kernels */
        const ls_shape *shape = k < 2 ? &node->in[k]->shape : &node->shape;
        for (int i = 0; i < shape->rank; i++)
            if (shape->dims[i] == 0)
                return false;
    }
    return true;
}

ls_status ls_cpu_make_conv(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    if (!ls_cpu_takes_conv(group->nodes[0]) || kinds > MAX_KINDS)
        return ls_cpu_pass();
    conv *c = ls_cpu_kernel_new(cpu, group, sizeof(*c), "", run);
    if (!c)
        return LS_ERR_MEMORY;
    c->base.base.destroy = destroy;
    c->base.base.any_order = false;
    ls_status status = make_ops(c, group, samples, kinds);
    if (status == LS_OK)
        status = make_reorder(c, group);
    if (status != LS_OK) {
        destroy(&c->base.base);
        return status;
    }
    snprintf(c->name, sizeof(c->name), "onednn %s", ls_dnn_op_name(c->ops[0]));
    c->base.base.name = c->name;
    c->base.base.layout = c->reorder ? "packed" : "";
    *out = &c->base.base;
    return LS_OK;
}
