/* The CPU backend: where its kernels come from. Each kernels_*.c has makers, tried in turn from fastest to reference
 * (source.c); the first that accepts a group wins. A maker that does not want a group says LS_ERR_UNSUPPORTED, which is
 * not an error: the next is asked. */
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
    const ls_gemm *gemm; /* of the same instruction set */
    ls_logger *log;
    int workers;
    _Atomic uint64_t announced[(LS_OP_COUNT + 63) / 64]; /* ops whose fall-back to the reference was logged */
    bool reference;                                      /* every group by its reference kernel */
} ls_cpu;

/* Joins and checks (join.c): ls_kernel_source says what they do. */
ls_range ls_cpu_join_lanes(const ls_simd *simd, ls_join_kind kind, ls_dtype dtype, void *dst, const void *const *lane,
                           int lanes, size_t from, size_t to);
void ls_cpu_join_next(const ls_simd *simd, ls_join_kind kind, ls_dtype dtype, void *dst, const void *src, size_t count);
ls_range ls_cpu_range(const ls_simd *simd, ls_dtype dtype, const void *x, size_t count);

/* Updates (kernels_update.c): likewise. */
bool ls_cpu_update_is_safe(void *backend, const ls_tensor *node, const void *const *in);
int ls_cpu_try_update(void *backend, const ls_tensor *node, const void *const *in, int64_t from, int64_t to);

/* A kernel and what it knows. */
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
ls_status ls_cpu_make_norm(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_pool(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_elementwise(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds,
                                  ls_kernel **out);
ls_status ls_cpu_make_reduce(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_whole(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_update(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);
ls_status ls_cpu_make_reference(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out);

/* Whether a maker takes groups of this node's family: what is fused must find its kernel. */
bool ls_cpu_takes_conv(const ls_tensor *node);
bool ls_cpu_takes_matmul(const ls_tensor *node);
bool ls_cpu_takes_norm(const ls_tensor *x); /* what is normalised */

/* What a group with a convolution, or a gradient of one, is about. */
typedef struct ls_conv {
    int64_t n, h, w, c; /* the input */
    int64_t kh, kw;
    int64_t o, oh, ow;              /* the output's channels, height and width */
    int64_t stride[2], dilation[2]; /* 1: dense */
    int64_t pad[4];                 /* top, bottom, left, right */
    int64_t groups;                 /* kernels are [kh, kw, c / groups, o], a group's output channels side by side */
} ls_conv;

ls_conv ls_cpu_conv_sizes(const ls_group *group, int64_t samples);

/* A leading axis of a matrix product: its size, and floats from one matrix of each operand to the next (0: the same
 * matrix again). */
typedef struct ls_cpu_leading {
    int64_t size, a, b;
} ls_cpu_leading;

/* A matrix product: out [..., m, n] = a [..., m, k] b [..., k, n] after the transposes, with floats from row to row and
 * from column to column of each operand. */
typedef struct ls_cpu_product {
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column;
    int rank; /* number of leading axes */
    ls_cpu_leading leading[LS_MAX_RANK];
} ls_cpu_product;

/* Returns the sizes of a matmul node for `samples` samples of a batch (kernels_matmul.c). */
ls_cpu_product ls_cpu_product_of(const ls_tensor *node, int64_t batch, int64_t samples);

/* Returns the number of matrices: the product of the leading sizes. */
int64_t ls_cpu_product_matrices(const ls_cpu_product *p);

/* Finds matrix number `matrix` of each operand, in floats from the first. No leading axis may be empty. */
void ls_cpu_product_at(const ls_cpu_product *p, int64_t matrix, int64_t *a, int64_t *b);

/* A kernel of `bytes` (at least an ls_cpu_kernel) with its common part filled in; destroyed by free(). */
void *ls_cpu_kernel_new(ls_cpu *cpu, const ls_group *group, size_t bytes, const char *name,
                        ls_status (*run)(ls_kernel *, const ls_kernel_call *));

/* Not for this maker. */
static inline ls_status ls_cpu_pass(void)
{
    return LS_ERR_UNSUPPORTED;
}

static inline const ls_simd *ls_simd_of(const ls_kernel *kernel)
{
    return ((const ls_cpu_kernel *)kernel)->cpu->simd;
}

/* The chains of a block's part (backend/blocks.h): as they are before it. Tensors without elements have none. */
static inline void ls_cpu_open_block(const ls_kernel_call *call, const ls_block_part *block, void *chains, size_t bytes)
{
    if (bytes > 0 && block->opens)
        memset(chains, 0, bytes);
    else if (bytes > 0)
        memcpy(chains, call->chain, bytes);
}

/* Whether the block ends with this part, and its chains are to be added; otherwise they are put by. */
static inline bool ls_cpu_close_block(const ls_kernel_call *call, const ls_block_part *block, const void *chains,
                                      size_t bytes)
{
    if (!block->closes && bytes > 0)
        memcpy(call->chain, chains, bytes);
    return block->closes;
}

/* Elements of one sample of a per-sample node, of all of a whole one. */
int64_t ls_cpu_elements(const ls_plan *plan, const ls_tensor *node);

/* The node behind input i of a group. */
static inline const ls_tensor *ls_group_input(const ls_group *group, int i)
{
    return group->plan->nodes[group->in[i]].node;
}

#endif
