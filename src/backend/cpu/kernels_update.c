/* Optimizer updates in place, in tiles. in: as graph/ops_leaf.c puts them; out: the variable. */
#include "backend/cpu/cpu.h"

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const ls_cpu_kernel *k = (const ls_cpu_kernel *)kernel;
    const ls_tensor *node = k->group->root;
    int step = ls_apply_step(node), when = ls_apply_when(node);
    if (when >= 0 && !*(const bool *)call->in[when])
        return LS_OK;
    ls_ref_update_f32 params =
        ls_ref_update_scalars_f32(node, *(const float *)call->in[1], step >= 0 ? *(const float *)call->in[step] : 0);
    bool finite = k->cpu->simd->update((ls_apply_rule)node->attr.apply.rule, call->out, call->in[0], call->slots[0],
                                       call->slots[1], (size_t)call->from, (size_t)call->to, &params);
    if (!finite && call->broken)
        *call->broken = true;
    return LS_OK;
}

ls_status ls_cpu_make_update(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    if (group->root->op != LS_OP_apply || group->root->dtype != LS_F32 || !group->in_place)
        return ls_cpu_pass();
    ls_cpu_kernel *k = ls_cpu_kernel_new(cpu, group, sizeof(*k), "simd update", run);
    if (!k)
        return LS_ERR_MEMORY;
    k->base.tiled = true;
    *out = &k->base;
    return LS_OK;
}
