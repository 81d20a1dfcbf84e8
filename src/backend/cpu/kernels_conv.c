/* Convolutions by oneDNN: forward with bias and ReLU, backward to the input, backward to the kernel. Weights are packed
 * once a step; the kernel's gradient is joined packed and unpacked once.
 *
 * NaN and infinities. oneDNN's ReLU makes 0 of NaN, and kernels that copy windows to a matrix multiply the zeros of the
 * padding by whatever the weight is. Both are right as long as nothing can overflow: a *guarded* convolution looks at
 * the largest magnitudes of its inputs first, and has the reference kernel compute what is not bounded. Where looking
 * at the inputs is more than a sweep over the output, a ReLU is our own sweep instead. */
#include <float.h>
#include <stdlib.h>

#include "backend/cpu/cpu.h"

#define MAX_KINDS 8

typedef struct conv {
    ls_cpu_kernel base;
    int64_t samples[MAX_KINDS];
    ls_dnn_op *ops[MAX_KINDS];
    int kinds;
    ls_dnn_op *reorder; /* HWIO to packed, or back; NULL: packed is HWIO */
    ls_dnn_op *unpack;  /* packed to HWIO, of a guarded convolution forward; NULL likewise */
    bool guarded;
    bool relu_behind; /* as our own sweep */
    char name[64];
} conv;

/* Of the kernel as users have it, in whole lines. */
static size_t hwio_bytes(const ls_dnn_conv *v)
{
    size_t bytes = (size_t)(v->kh * v->kw * (v->c / v->groups) * v->o) * sizeof(float);
    return (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
}

static ls_dnn_op *op_for(const conv *c, int64_t samples)
{
    for (int i = 0; i < c->kinds; i++)
        if (c->samples[i] == samples)
            return c->ops[i];
    return NULL;
}

/* ---- Running ---- */

static ls_dnn_conv sizes_of(const conv *c, const ls_kernel_call *call)
{
    return ls_cpu_conv_sizes(c->base.group, call->samples);
}

/* No sum of products of the inputs, nor a part of one, can be NaN or infinite. */
static bool is_bounded(const conv *c, const ls_kernel_call *call)
{
    const ls_simd *simd = c->base.cpu->simd;
    ls_dnn_conv v = sizes_of(c, call);
    bool forward = c->base.group->nodes[0]->op == LS_OP_conv2d;
    int64_t kernel = v.kh * v.kw * (v.c / v.groups), y = v.n * v.oh * v.ow; /* elements by output channel */
    size_t second = forward ? ls_dnn_op_weights_bytes(c->ops[0]) / sizeof(float) : (size_t)(y * v.o);
    double sum = (double)(forward ? kernel : y) * simd->largest(call->in[0], (size_t)(v.n * v.h * v.w * v.c)) *
                 simd->largest(call->in[1], second);
    if (v.bias)
        sum += simd->largest(call->in[2], (size_t)v.o);
    return sum < FLT_MAX / 2; /* not of NaN */
}

/* As the reference has it. The scratch holds the kernel in HWIO, and then the reorder's own. */
static ls_status run_unbounded(const conv *c, const ls_kernel_call *call)
{
    const ls_group *group = c->base.group;
    const ls_simd *simd = c->base.cpu->simd;
    ls_dnn_conv v = sizes_of(c, call);
    const void *in[2] = { call->in[0], call->in[1] };
    if (c->unpack) {
        LS_TRY(ls_dnn_run_reorder(c->unpack, call->worker, call->in[1], call->scratch,
                                  (char *)call->scratch + hwio_bytes(&v)));
        in[1] = call->scratch;
    }
    LS_TRY(ls_cpu_run_reference(group->nodes[0], in, call));
    size_t pixels = (size_t)(v.n * v.oh * v.ow), channels = (size_t)v.o;
    if (v.bias)
        simd->add_row(call->out, call->out, call->in[2], pixels, channels);
    if (v.relu)
        simd->relu(call->out, call->out, pixels * channels);
    return LS_OK;
}

static ls_status run_forward(const conv *c, ls_dnn_op *op, const ls_kernel_call *call)
{
    const float *bias = c->base.group->bias ? call->in[2] : NULL;
    LS_TRY(ls_dnn_run_forward(op, call->worker, call->in[0], call->in[1], bias, call->out, call->scratch));
    ls_dnn_conv v = sizes_of(c, call);
    if (c->relu_behind)
        c->base.cpu->simd->relu(call->out, call->out, (size_t)(v.n * v.oh * v.ow * v.o));
    return LS_OK;
}

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    conv *c = (conv *)kernel;
    const ls_group *group = c->base.group;
    ls_dnn_op *op = op_for(c, call->samples);
    if (!op)
        return ls_fail(LS_ERR_INTERNAL, "no convolution was made for %lld samples", (long long)call->samples);
    if (c->guarded && !is_bounded(c, call))
        return run_unbounded(c, call);
    switch (group->nodes[0]->op) {
    case LS_OP_conv2d:
        return run_forward(c, op, call);
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
    ls_dnn_op_destroy(c->unpack);
    free(c);
}

/* ---- Making ---- */

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
    size.relu = size.relu && !c->relu_behind;
    switch (group->nodes[0]->op) {
    case LS_OP_conv2d:
        return ls_dnn_conv_forward(dnn, &size, like, out);
    case LS_OP_conv2d_grad_input:
        return ls_dnn_conv_backward_data(dnn, &size, like, out);
    default:
        return ls_dnn_conv_backward_weights(dnn, &size, like, out);
    }
}

static void need_scratch(conv *c, size_t bytes)
{
    if (bytes > c->base.base.scratch_bytes)
        c->base.base.scratch_bytes = bytes;
}

/* A ReLU is inside only where the inputs are less to look at than the output. */
static void place_relu(conv *c, const ls_group *group, int64_t samples)
{
    ls_dnn_conv v = ls_cpu_conv_sizes(group, samples);
    bool forward = group->nodes[0]->op == LS_OP_conv2d;
    int64_t inputs = v.n * v.h * v.w * v.c + v.kh * v.kw * (v.c / v.groups) * v.o;
    c->relu_behind = forward && v.relu && inputs > v.n * v.oh * v.ow * v.o;
}

static ls_status place_guard(conv *c, const ls_group *group)
{
    ls_dnn_conv v = ls_cpu_conv_sizes(group, 1);
    ls_op op = group->nodes[0]->op;
    bool padded = false;
    for (int i = 0; i < 4; i++)
        padded = padded || v.pad[i] > 0;
    for (int i = 0; i < c->kinds; i++)
        c->guarded = c->guarded || (padded && ls_dnn_op_multiplies_padding(c->ops[i]));
    bool hwio = ls_dnn_op_weights_are_hwio(c->ops[0]);
    if (op == LS_OP_conv2d_grad_input || (op == LS_OP_conv2d_grad_kernel && !hwio))
        c->guarded = false; /* sums of what is there alone */
    c->guarded = c->guarded || (op == LS_OP_conv2d && v.relu && !c->relu_behind);
    if (!c->guarded || hwio)
        return LS_OK;
    LS_TRY(ls_dnn_reorder_to_hwio(c->base.cpu->dnn, c->ops[0], &c->unpack));
    need_scratch(c, hwio_bytes(&v) + ls_dnn_op_scratch_bytes(c->unpack));
    return LS_OK;
}

/* The common size decides the format; the others follow it. */
static ls_status make_ops(conv *c, const ls_group *group, const int64_t *samples, int kinds)
{
    for (int i = 0; i < kinds; i++) {
        LS_TRY(make_op(c, group, samples[i], i ? c->ops[0] : NULL, &c->ops[i]));
        c->samples[i] = samples[i];
        c->kinds = i + 1;
        need_scratch(c, ls_dnn_op_scratch_bytes(c->ops[i]));
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
    size_t bytes = ls_dnn_op_weights_bytes(c->ops[0]);
    need_scratch(c, ls_dnn_op_scratch_bytes(c->reorder));
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
    place_relu(c, group, samples[0]);
    ls_status status = make_ops(c, group, samples, kinds);
    if (status == LS_OK)
        status = make_reorder(c, group);
    if (status == LS_OK)
        status = place_guard(c, group);
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
