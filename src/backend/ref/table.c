/* The table of reference kernels, generated from ops.def; a missing kernel fails at link time. */
#include "backend/ref/ref.h"

#define DECLARE_NONE(id)
#define DECLARE_BYTES(id) ls_status ls_ref_##id(const ls_ref_call *call);
#define DECLARE_REAL(id)                                                                                               \
    ls_status ls_ref_##id##_f32(const ls_ref_call *call);                                                              \
    ls_status ls_ref_##id##_f64(const ls_ref_call *call);
#define DECLARE_NUMBER(id)                                                                                             \
    DECLARE_REAL(id)                                                                                                   \
    ls_status ls_ref_##id##_i32(const ls_ref_call *call);                                                              \
    ls_status ls_ref_##id##_i64(const ls_ref_call *call);

#define OP(id, inputs, attributes, batch, kernel, shape, gradient, flops, traits) DECLARE_##kernel(id)
#include "graph/ops.def"
#undef OP

typedef struct row {
    const char *name;
    ls_ref_kernel kernel[LS_DTYPE_COUNT];
} row;

#define KERNELS_NONE(id)                                                                                               \
    {                                                                                                                  \
        NULL                                                                                                           \
    }
#define KERNELS_REAL(id)                                                                                               \
    {                                                                                                                  \
        [LS_F32] = ls_ref_##id##_f32, [LS_F64] = ls_ref_##id##_f64                                                     \
    }
#define KERNELS_NUMBER(id)                                                                                             \
    {                                                                                                                  \
        [LS_F32] = ls_ref_##id##_f32, [LS_F64] = ls_ref_##id##_f64, [LS_I32] = ls_ref_##id##_i32,                      \
        [LS_I64] = ls_ref_##id##_i64                                                                                   \
    }
#define KERNELS_BYTES(id)                                                                                              \
    {                                                                                                                  \
        [LS_F32] = ls_ref_##id, [LS_F64] = ls_ref_##id, [LS_I32] = ls_ref_##id, [LS_I64] = ls_ref_##id,                \
        [LS_U8] = ls_ref_##id, [LS_BOOL] = ls_ref_##id                                                                 \
    }

static const row table[LS_OP_COUNT] = {
#define OP(id, inputs, attributes, batch, kernel, shape, gradient, flops, traits)                                      \
    [LS_OP_##id] = { #id, KERNELS_##kernel(id) },
#include "graph/ops.def"
#undef OP
};

ls_status ls_ref_run(const ls_ref_call *call)
{
    const ls_tensor *node = call->node;
    if ((unsigned)node->op >= LS_OP_COUNT)
        return ls_fail(LS_ERR_INTERNAL, "op %u has no kernel: there is no such op", (unsigned)node->op);
    const row *op = &table[node->op];
    ls_dtype dtype = node->input_count > 0 ? call->in[0].dtype : call->out.dtype;
    ls_ref_kernel kernel = (unsigned)dtype < LS_DTYPE_COUNT ? op->kernel[dtype] : NULL;
    if (!kernel)
        return ls_fail(LS_ERR_DTYPE, "%s: no reference kernel for %s", op->name, ls_dtype_name(dtype));
    return kernel(call);
}

bool ls_ref_chains(const ls_tensor *node)
{
    if (node->use != LS_USE_REDUCES)
        return false;
    switch (node->op) {
    case LS_OP_conv2d_grad_kernel:
    case LS_OP_matmul:
    case LS_OP_reduce_sum:
    case LS_OP_moments:
    case LS_OP_batch_norm_grad_moments:
        return true;
    default:
        return false;
    }
}
