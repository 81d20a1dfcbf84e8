/* Matrix products by oneDNN's sgemm, with a bias and a ReLU as a second pass over what is still in the cache. */
#include "backend/cpu/cpu.h"

typedef struct matmul {
    ls_cpu_kernel base;
    int64_t m, n, k;      /* -1: as many as samples */
    int64_t lda, ldb;
    bool ta, tb;
} matmul;

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const matmul *p = (const matmul *)kernel;
    const ls_group *group = p->base.group;
    int64_t m = p->m < 0 ? call->samples : p->m, k = p->k < 0 ? call->samples : p->k;
    float *out = call->out;
    LS_TRY(ls_dnn_sgemm(p->ta, p->tb, m, p->n, k, call->in[0], p->lda, call->in[1], p->ldb, 0, out, p->n));
    const ls_simd *simd = ls_simd_of(kernel);
    if (group->bias)
        (group->relu ? simd->add_row_relu : simd->add_row)(out, out, call->in[2], (size_t)m, (size_t)p->n);
    else if (group->relu)
        simd->relu(out, out, (size_t)(m * p->n));
    return LS_OK;
}

/* A size, or -1 where it is the batch's. */
static int64_t rows_of(const ls_tensor *x)
{
    return x->per_sample ? -1 : x->shape.dims[0];
}

ls_status ls_cpu_make_matmul(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    const ls_tensor *node = group->nodes[0];
    (void)samples, (void)kinds;
    if (node->op != LS_OP_matmul || node->dtype != LS_F32)
        return ls_cpu_pass();
    const ls_tensor *a = node->in[0], *b = node->in[1];
    if (a->shape.rank != 2 || b->shape.rank != 2)
        return ls_cpu_pass();
    for (int i = 0; i < 2; i++) /* a gathered batch has sizes that only the run knows */
        if ((!a->per_sample && a->shape.dims[i] == LS_BATCH) || (!b->per_sample && b->shape.dims[i] == LS_BATCH))
            return ls_cpu_pass();
    if (node->shape.dims[1] == 0 || a->shape.dims[1] == 0 || b->shape.dims[1] == 0 || a->shape.dims[0] == 0 ||
        b->shape.dims[0] == 0)
        return ls_cpu_pass(); /* sgemm does not take empty matrices */
    matmul *p = ls_cpu_kernel_new(cpu, group, sizeof(*p), "onednn sgemm", run);
    if (!p)
        return LS_ERR_MEMORY;
    p->ta = node->attr.matmul.transpose_a;
    p->tb = node->attr.matmul.transpose_b;
    p->m = p->ta ? a->shape.dims[1] : rows_of(a);
    p->k = p->ta ? rows_of(a) : a->shape.dims[1];
    p->n = node->shape.dims[1];
    p->lda = a->shape.dims[1];
    p->ldb = b->shape.dims[1];
    p->base.base.any_order = false;
    *out = &p->base.base;
    return LS_OK;
}
