/* Matrix products by oneDNN. Products that keep the batch axis are made as operations, with the bias inside; a ReLU is
 * our own sweep behind it, because oneDNN's makes 0 of NaN. Weight gradients, which reduce it, go through
 * sgemm. Measured, on one thread: with the second operand transposed (a dense layer's data gradient) the operation is
 * up to twice as fast as sgemm; for weight gradients sgemm is as fast or faster. */
#include <stdlib.h>

#include "backend/cpu/cpu.h"

#define MAX_KINDS 8
#define TILE_ROWS 64 /* of a product without a batch axis */

typedef struct matmul {
    ls_cpu_kernel base;
    ls_dnn_matmul size;      /* m or k is -1 where it is the number of samples */
    int64_t rows[MAX_KINDS]; /* of each operation */
    ls_dnn_op *ops[MAX_KINDS];
    int kinds;
    char name[64];
} matmul;

static ls_status run_rows(const matmul *p, const ls_kernel_call *call, int64_t rows, const float *a, float *out)
{
    int i = 0;
    while (i < p->kinds && p->rows[i] != rows)
        i++;
    if (i == p->kinds)
        return ls_fail(LS_ERR_INTERNAL, "no product was made for %lld rows", (long long)rows);
    LS_TRY(ls_dnn_run_matmul(p->ops[i], call->worker, a, call->in[1], p->size.bias ? call->in[2] : NULL, out,
                             call->scratch));
    if (p->base.group->relu)
        p->base.cpu->simd->relu(out, out, (size_t)(rows * p->size.n));
    return LS_OK;
}

static ls_status run_samples(ls_kernel *kernel, const ls_kernel_call *call)
{
    return run_rows((const matmul *)kernel, call, call->samples, call->in[0], call->out);
}

/* All rows of a whole product, or a tile of them. */
static ls_status run_whole(ls_kernel *kernel, const ls_kernel_call *call)
{
    const matmul *p = (const matmul *)kernel;
    int64_t first = call->from / p->size.n, rows = call->to > 0 ? (call->to - call->from) / p->size.n : p->size.m;
    const float *a = (const float *)call->in[0] + first * (p->size.ta ? 1 : p->size.lda);
    return run_rows(p, call, rows, a, (float *)call->out + call->from);
}

static ls_status run_sgemm(ls_kernel *kernel, const ls_kernel_call *call)
{
    const ls_dnn_matmul *s = &((const matmul *)kernel)->size;
    int64_t k = s->k < 0 ? call->samples : s->k;
    return ls_dnn_sgemm(s->ta, s->tb, s->m, s->n, k, call->in[0], s->lda, call->in[1], s->ldb, 0, call->out, s->n);
}

static void destroy(ls_kernel *kernel)
{
    matmul *p = (matmul *)kernel;
    for (int i = 0; i < p->kinds; i++)
        ls_dnn_op_destroy(p->ops[i]);
    free(p);
}

/* A size, or -1 where it is the batch's. */
static int64_t rows_of(const ls_tensor *x)
{
    return x->per_sample ? -1 : x->shape.dims[0];
}

bool ls_cpu_takes_matmul(const ls_tensor *node)
{
    if (node->op != LS_OP_matmul || node->dtype != LS_F32)
        return false;
    for (int i = 0; i < 2; i++) {
        const ls_tensor *x = node->in[i];
        if (x->shape.rank != 2)
            return false;
        for (int k = 0; k < 2;
             k++) /* a gathered batch has sizes that only the run knows; empty ones are the reference's */
            if (x->shape.dims[k] == 0 || (x->shape.dims[k] == LS_BATCH && !(x->per_sample && k == 0)))
                return false;
    }
    return true;
}

static ls_status make_operations(matmul *p, const int64_t *rows, int kinds)
{
    for (int i = 0; i < kinds; i++) {
        ls_dnn_matmul size = p->size;
        size.m = rows[i];
        LS_TRY(ls_dnn_matmul_create(p->base.cpu->dnn, &size, &p->ops[i]));
        p->rows[i] = rows[i];
        p->kinds = i + 1;
        size_t scratch = ls_dnn_op_scratch_bytes(p->ops[i]);
        if (scratch > p->base.base.scratch_bytes)
            p->base.base.scratch_bytes = scratch;
    }
    snprintf(p->name, sizeof(p->name), "onednn %s", ls_dnn_op_name(p->ops[0]));
    p->base.base.name = p->name;
    return LS_OK;
}

/* Whole products are cut into tiles of rows. */
static ls_status make_tiles(matmul *p)
{
    int64_t rows[2] = { p->size.m, 0 };
    if (p->size.m > TILE_ROWS) {
        rows[0] = TILE_ROWS;
        rows[1] = p->size.m % TILE_ROWS;
        p->base.base.tiled = true;
        p->base.base.tile = TILE_ROWS * p->size.n;
    }
    return make_operations(p, rows, rows[1] ? 2 : 1);
}

ls_status ls_cpu_make_matmul(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    const ls_tensor *node = group->nodes[0];
    if (!ls_cpu_takes_matmul(node) || kinds > MAX_KINDS)
        return ls_cpu_pass();
    const ls_tensor *a = node->in[0], *b = node->in[1];
    bool reduces = node->use == LS_USE_REDUCES, ta = node->attr.matmul.transpose_a;
    matmul *p = ls_cpu_kernel_new(cpu, group, sizeof(*p), "onednn sgemm",
                                  reduces             ? run_sgemm
                                  : group->per_sample ? run_samples
                                                      : run_whole);
    if (!p)
        return LS_ERR_MEMORY;
    p->base.base.destroy = destroy;
    p->size = (ls_dnn_matmul){ .ta = ta,
                               .tb = node->attr.matmul.transpose_b,
                               .m = ta ? a->shape.dims[1] : rows_of(a),
                               .k = ta ? rows_of(a) : a->shape.dims[1],
                               .n = node->shape.dims[1],
                               .lda = a->shape.dims[1],
                               .ldb = b->shape.dims[1],
                               .bias = group->bias };
    ls_status status = reduces ? LS_OK : group->per_sample ? make_operations(p, samples, kinds) : make_tiles(p);
    if (status != LS_OK) {
        destroy(&p->base.base);
        return status;
    }
    *out = &p->base.base;
    return LS_OK;
}
