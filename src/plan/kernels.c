/* Pass 5: creates a kernel for every group that computes something, for the sample counts it will
 * get. */
#include <stdlib.h>

#include "device/context.h"
#include "plan/plan.h"

#define MAX_KINDS 64

typedef struct kinds {
    int64_t samples[MAX_KINDS];
    int count;
} kinds;

static void add_kind(kinds *k, int64_t samples)
{
    for (int i = 0; i < k->count; i++)
        if (k->samples[i] == samples)
            return;
    if (samples > 0 && k->count < MAX_KINDS)
        k->samples[k->count++] = samples;
}

/* Sizes of micro-batches of lanes of both sizes, the common one first. */
static void micro_kinds(const ls_plan *plan, const ls_segment *segment, kinds *k)
{
    int64_t small = plan->batch / plan->lanes, lanes[2] = { small + (plan->batch % plan->lanes != 0), small };
    for (int i = 0; i < 2; i++) {
        if (lanes[i] >= segment->micro)
            add_kind(k, segment->micro);
        add_kind(k, lanes[i] % segment->micro);
    }
}

static void destroy_foreign(ls_kernel *kernel)
{
    free(kernel);
}

/* A group of another kind of device: its backend computes it as a step of a program. */
static ls_status make_foreign(ls_plan *plan, ls_group *group)
{
    ls_kernel *kernel = calloc(1, sizeof(*kernel));
    if (!kernel)
        return ls_fail(LS_ERR_MEMORY, "no memory for a kernel");
    *kernel = (ls_kernel){
        .name = plan->graph->context->kinds[group->kind].name, .layout = "", .destroy = destroy_foreign, .group = group
    };
    group->kernel = kernel;
    return LS_OK;
}

static ls_status make_kernel(ls_plan *plan, ls_group *group, kinds *k)
{
    if (group->kernel)
        return LS_OK;
    /* Otherwise the host joins, in its kernel's format. */
    if (group->kind != LS_CPU && !(plan->at_home && group->reduces))
        return make_foreign(plan, group);
    if (k->count == 0)
        add_kind(k, 1); /* Empty batch: the kernel only supplies its formats and is not run. */
    LS_TRY(plan->source.make(plan->source.backend, group, k->samples, k->count, &group->kernel));
    group->kernel->group = group;
    if (group->kernel->scratch_bytes > plan->scratch_bytes)
        plan->scratch_bytes = group->kernel->scratch_bytes;
    return LS_OK;
}

/* A group of a segment gets that segment's sizes; a group computed wherever it is needed gets all
 * sizes. */
ls_status ls_plan_kernels(ls_plan *plan)
{
    for (int s = 0; s < plan->segment_count; s++) {
        const ls_segment *segment = &plan->segments[s];
        for (int i = 0; i < segment->step_count; i++) {
            ls_group *group = segment->steps[i].group;
            kinds k = { .count = 0 };
            if (group->segment >= 0)
                micro_kinds(plan, segment, &k);
            for (int other = 0; group->segment < 0 && !group->kernel && other < plan->segment_count; other++)
                micro_kinds(plan, &plan->segments[other], &k);
            LS_TRY(make_kernel(plan, group, &k));
        }
    }
    kinds whole = { .samples = { 1 }, .count = 1 };
    for (int g = 0; g < plan->group_count; g++)
        if (!plan->groups[g].per_sample && plan->groups[g].needed && !plan->groups[g].alias)
            LS_TRY(make_kernel(plan, &plan->groups[g], &whole));
    for (int g = 0; g < plan->group_count; g++)
        plan->flops += ls_node_flops(plan->groups[g].nodes[0]) * (plan->groups[g].per_sample ? (double)plan->batch : 1);
    return LS_OK;
}
