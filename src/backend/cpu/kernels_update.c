/* Optimizer updates in place, in tiles. in: gradient, learning rate, and for Adam the step; out: the variable. */
#include "backend/cpu/cpu.h"

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const ls_cpu_kernel *k = (const ls_cpu_kernel *)kernel;
    const ls_attrs *attr = &k->group->root->attr;
    ls_apply_rule rule = (ls_apply_rule)attr->apply.rule;
    float rate = *(const float *)call->in[1], step = rule == LS_APPLY_ADAM ? *(const float *)call->in[2] : 1;
    ls_simd_update params =
        ls_simd_update_of(rule, rate, step, attr->apply.momentum, attr->apply.beta1, attr->apply.beta2, attr->apply.rho,
                          attr->apply.epsilon, attr->apply.weight_decay);
    bool finite = k->cpu->simd->update(rule, call->out, call->in[0], call->slots[0], call->slots[1], (size_t)call->from,
                                       (size_t)call->to, &params);
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
