/* Each kernels_*.c has makers, which source.c tries from fastest to reference; the first that
 * accepts a group wins. A maker rejects a group with LS_ERR_UNSUPPORTED. */
#ifndef LS_BACKEND_CPU_CPU_H
#define LS_BACKEND_CPU_CPU_H

#include <string.h>

#include "backend/blocks.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/simd.h"
#include "base/log.h"
#include "plan/plan.h"

typedef struct ls_cpu {
    const ls_simd *simd;
    const ls_gemm *gemm; /* has the same instruction set */
    ls_logger *log;
    int threads;
    /* Ops whose fallback to the reference kernel has been logged. */
    _Atomic uint64_t announced[(LS_OP_COUNT + 63) / 64];
    bool reference; /* only reference kernels */
} ls_cpu;

/* join.c; see ls_kernel_source */
ls_range ls_cpu_join_lanes(const ls_simd *simd, ls_join_kind kind, ls_dtype dtype, void *dst, const void *const *lane,
                           int lanes, size_t from, size_t to);
void ls_cpu_join_next(const ls_simd *simd, ls_join_kind kind, ls_dtype dtype, void *dst, const void *src, size_t count);
ls_range ls_cpu_range(const ls_simd *simd, ls_dtype dtype, const void *x, size_t count);

/* kernels_update.c; see ls_kernel_source */
bool ls_cpu_update_is_safe(void *backend, const ls_tensor *node, const void *const *in);
int ls_cpu_try_update(void *backend, const ls_tensor *node, const void *const *in, int64_t from, int64_t to);

typedef struct ls_cpu_kernel {
    ls_kernel base;
    ls_cpu *cpu;
    const ls_group *group;
} ls_cpu_kernel;

typedef ls_status (*ls_cpu_maker)(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds,
                                  ls_kernel **out);

ls_status ls_cpu_make_conv_gradient(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds,
                                    ls_kernel **out);
ls_status ls_cpu_make_conv_rows(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_dense(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_matmul(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_matmul_sum(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds,
                                 ls_kernel **out);
ls_status ls_cpu_make_recurrent(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_attention(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_norm(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_pool(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_elementwise(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds,
                                  ls_kernel **out);
ls_status ls_cpu_make_reduce(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_whole(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_update(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_reference(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);

/* Whether a maker accepts this node's family. Only nodes with a kernel may be fused. */
bool ls_cpu_takes_conv(const ls_tensor *node);
bool ls_cpu_takes_matmul(const ls_tensor *node);
bool ls_cpu_takes_norm(const ls_tensor *x); /* x: the normalized tensor */

/* Sizes of a convolution or of a gradient of one. */
typedef struct ls_conv {
    int64_t n, h, w, c; /* input */
    int64_t kh, kw;
    int64_t o, oh, ow;              /* output: channels, height, width */
    int64_t stride[2], dilation[2]; /* 1: dense */
    int64_t pad[4];                 /* top, bottom, left, right */
    /* Kernels are [kh, kw, c / groups, o]; the output channels of a group are adjacent. */
    int64_t groups;
} ls_conv;

ls_conv ls_cpu_conv_sizes(const ls_group *group, int64_t samples);

/* A leading axis of a matrix product: size, and floats between consecutive matrices (0: the same
 * matrix). */
typedef struct ls_cpu_leading {
    int64_t size, a, b;
} ls_cpu_leading;

/* out [..., m, n] = a [..., m, k] b [..., k, n] after the transposes, with row and column strides
 * in floats. */
typedef struct ls_cpu_product {
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column;
    int rank; /* leading axes */
    ls_cpu_leading leading[LS_MAX_RANK];
} ls_cpu_product;

/* Sizes of a matmul node for `samples` samples of a batch (kernels_matmul.c). */
ls_cpu_product ls_cpu_product_of(const ls_tensor *node, int64_t batch, int64_t samples);

int64_t ls_cpu_product_matrices(const ls_cpu_product *p);

/* Offset of a matrix in each operand, in floats. No leading axis may be empty. */
void ls_cpu_product_at(const ls_cpu_product *p, int64_t matrix, int64_t *a, int64_t *b);

/* Allocates a kernel of `bytes` and fills in its common part. Destroyed by free(). */
void *ls_cpu_kernel_new(ls_cpu *cpu, const ls_group *group, size_t bytes, const char *name,
                        ls_status (*run)(ls_kernel *, const ls_kernel_call *));

static inline ls_status ls_cpu_pass(void)
{
    return LS_ERR_UNSUPPORTED;
}

static inline const ls_simd *ls_simd_of(const ls_kernel *kernel)
{
    return ((const ls_cpu_kernel *)kernel)->cpu->simd;
}

/* Fills the chains of a part of a block with zeros or the saved ones. */
static inline void ls_cpu_open_block(const ls_kernel_call *call, const ls_block_part *block, void *chains, size_t bytes)
{
    if (bytes > 0 && block->opens)
        memset(chains, 0, bytes);
    else if (bytes > 0)
        memcpy(chains, call->chain, bytes);
}

/* Returns whether the block ends here, so that the caller adds its chains; otherwise saves them in
 * call->chain. */
static inline bool ls_cpu_close_block(const ls_kernel_call *call, const ls_block_part *block, const void *chains,
                                      size_t bytes)
{
    if (!block->closes && bytes > 0)
        memcpy(call->chain, chains, bytes);
    return block->closes;
}

/* Elements of a sample of a per-sample node, or of a whole node. */
int64_t ls_cpu_elements(const ls_plan *plan, const ls_tensor *node);

#endif
