/* The fallback: a group of one node by its reference kernel, or by the functions of a program. */
#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "backend/ref/ref.h"

typedef struct reference {
    ls_cpu_kernel base;
    ls_ref_array *arrays; /* by thread: one array per input */
} reference;

/* in: buffer for one array per input */
static ls_status run_node(const ls_tensor *node, int in_count, ls_ref_array *in, const ls_kernel_call *call)
{
    for (int i = 0; i < in_count; i++) {
        const ls_tensor *input = node->in[i];
        in[i] = (ls_ref_array){ (void *)call->in[i], input->dtype, ls_ref_shape(input, call->batch, call->samples) };
    }
    ls_ref_call ref = { .node = node,
                        .in = in,
                        .out = { call->out, node->dtype, ls_ref_shape(node, call->batch, call->samples) },
                        .batch = call->batch < 0 ? 1 : call->batch,
                        .lane = call->lane,
                        .first = call->first,
                        .from_lane = call->from_lane,
                        .goes_on = !call->ends_lane,
                        .chain = call->chain,
                        .seed = call->seed,
                        .run = call->run };
    if (ls_node_is(node, LS_TRAIT_GATHERS))
        ref.out.shape.dims[0] = call->samples;
    if (ls_node_is(node, LS_TRAIT_UPDATES)) {
        ref.state[0] = node->attr.apply.variable->data;
        for (int i = 0; i < 2; i++)
            ref.state[1 + i] = node->attr.apply.slot[i] ? node->attr.apply.slot[i]->data : NULL;
        ref.slots[0] = call->slots[0];
        ref.slots[1] = call->slots[1];
    }
    if (call->large) /* not checked: the next update is tried first */
        *call->large = true;
    return ls_ref_run(&ref);
}

static ls_status run(ls_kernel *kernel, const ls_kernel_call *call)
{
    const reference *r = (const reference *)kernel;
    const ls_group *group = r->base.group;
    size_t inputs = (size_t)group->root->input_count + 1;
    return run_node(group->root, group->in_count, r->arrays + (size_t)call->thread * inputs, call);
}

static void destroy(ls_kernel *kernel)
{
    free(((reference *)kernel)->arrays);
    free(kernel);
}

ls_status ls_cpu_make_reference(ls_cpu *cpu, const ls_group *group, const int64_t *samples, int kinds, ls_kernel **out)
{
    (void)samples, (void)kinds;
    bool custom = ls_node_is(group->root, LS_TRAIT_CUSTOM);
    reference *r = ls_cpu_kernel_new(cpu, group, sizeof(*r), custom ? "custom" : "reference", run);
    if (!r)
        return LS_ERR_MEMORY;
    size_t inputs = (size_t)group->root->input_count + 1;
    r->arrays = calloc(inputs * (size_t)cpu->threads, sizeof(*r->arrays));
    if (!r->arrays) {
        free(r);
        return ls_fail(LS_ERR_MEMORY, "no memory for a kernel of %zu inputs", inputs);
    }
    r->base.base.destroy = destroy;
    r->base.base.chains = ls_ref_chains(group->root);
    r->base.base.falls_back = !cpu->reference && !custom;
    *out = &r->base.base;
    return LS_OK;
}
