/* Chooses kernels for groups, and opens the backend. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/host.h"
#include "lockstep/device.h"

static const ls_cpu_maker makers[] = {
    ls_cpu_make_conv_rows, ls_cpu_make_conv_gradient, ls_cpu_make_dense,  ls_cpu_make_matmul, ls_cpu_make_matmul_sum,
    ls_cpu_make_recurrent, ls_cpu_make_attention,     ls_cpu_make_norm,   ls_cpu_make_pool,   ls_cpu_make_elementwise,
    ls_cpu_make_reduce,    ls_cpu_make_whole,         ls_cpu_make_update,
};

int64_t ls_cpu_elements(const ls_plan *plan, const ls_tensor *node)
{
    return (int64_t)(ls_plan_unit(plan, node) / ls_dtype_bytes(node->dtype));
}

static void destroy(ls_kernel *kernel)
{
    free(kernel);
}

void *ls_cpu_kernel_new(ls_cpu *cpu, const ls_group *group, size_t bytes, const char *name,
                        ls_status (*run)(ls_kernel *, const ls_kernel_call *))
{
    ls_cpu_kernel *kernel = calloc(1, bytes);
    if (!kernel) {
        ls_fail(LS_ERR_MEMORY, "no memory for a kernel");
        return NULL;
    }
    kernel->base = (ls_kernel){ .name = name, .layout = "", .run = run, .destroy = destroy };
    kernel->cpu = cpu;
    kernel->group = group;
    return kernel;
}

/* Only for float32 and if a maker accepts the group. */
static bool can_fuse(void *backend, const ls_group *group)
{
    const ls_cpu *cpu = backend;
    const ls_tensor *first = group->nodes[0];
    if (cpu->reference)
        return false;
    if (group->fusion == LS_FUSE_SQUARES)
        return first->in[0]->dtype == LS_F32;
    if (first->dtype == LS_F64 || group->root->in[0]->dtype != LS_F32)
        return false;
    switch (group->fusion) {
    case LS_FUSE_CONV:
        return ls_cpu_takes_conv(first);
    case LS_FUSE_DENSE:
        return ls_cpu_takes_matmul(first);
    case LS_FUSE_NORM:
    case LS_FUSE_NORM_AND:
    case LS_FUSE_NORM_GRAD_MOMENTS:
    case LS_FUSE_NORM_GRAD_INPUT:
        return ls_cpu_takes_norm(first->in[0]);
    default:
        return true;
    }
}

/* Logs each op without a kernel once. Graphs may be planned concurrently. */
static void announce(ls_cpu *cpu, const ls_tensor *node)
{
    uint64_t bit = (uint64_t)1 << (node->op % 64);
    if (cpu->reference || node->dtype != LS_F32 || atomic_fetch_or(&cpu->announced[node->op / 64], bit) & bit)
        return;
    ls_log_write(cpu->log, LS_LOG_INFO, "%s %s: no CPU kernel for this use, the reference kernel runs",
                 ls_dtype_name(node->dtype), ls_tensor_op(node));
}

static ls_status make(void *backend, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    ls_cpu *cpu = backend;
    if (ls_node_is(group->root, LS_TRAIT_CUSTOM))
        return ls_cpu_make_reference(cpu, group, samples, kinds, out);
    for (size_t i = 0; !cpu->reference && i < sizeof(makers) / sizeof(makers[0]); i++) {
        ls_status status = makers[i](cpu, group, samples, kinds, out);
        if (status != LS_ERR_UNSUPPORTED)
            return status;
    }
    if (group->node_count > 1)
        return ls_fail(LS_ERR_INTERNAL, "no kernel for a fused group that ends in %s", ls_tensor_op(group->root));
    announce(cpu, group->root);
    return ls_cpu_make_reference(cpu, group, samples, kinds, out);
}

static ls_range join_lanes(void *backend, ls_join_kind kind, ls_dtype dtype, void *dst, const void *const *lane,
                           int lanes, size_t from, size_t to)
{
    return ls_cpu_join_lanes(((const ls_cpu *)backend)->simd, kind, dtype, dst, lane, lanes, from, to);
}

static void join_next(void *backend, ls_join_kind kind, ls_dtype dtype, void *dst, const void *src, size_t count)
{
    ls_cpu_join_next(((const ls_cpu *)backend)->simd, kind, dtype, dst, src, count);
}

static ls_range range(void *backend, ls_dtype dtype, const void *x, size_t count)
{
    return ls_cpu_range(((const ls_cpu *)backend)->simd, dtype, x, count);
}

static void close_cpu(void *backend)
{
    free(backend);
}

ls_status ls_host_open(int threads, ls_logger *log, bool reference, ls_kernel_source *out)
{
    LS_TRY(ls_check_environment());
    ls_cpu *cpu = calloc(1, sizeof(*cpu));
    if (!cpu)
        return ls_fail(LS_ERR_MEMORY, "no memory for the CPU backend");
    cpu->simd = ls_simd_choose();
    cpu->gemm = ls_gemm_named(cpu->simd->name);
    cpu->log = log;
    cpu->threads = threads;
    cpu->reference = reference;
    *out = (ls_kernel_source){ .backend = cpu,
                               .close = close_cpu,
                               .can_fuse = can_fuse,
                               .make = make,
                               .join_lanes = join_lanes,
                               .join_next = join_next,
                               .range = range,
                               .update_is_safe = ls_cpu_update_is_safe,
                               .try_update = ls_cpu_try_update };
    return LS_OK;
}
