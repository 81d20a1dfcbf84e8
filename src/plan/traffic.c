/* Pass 8: counts the bytes that a step moves through memory, to help find what limits it. */
#include "plan/plan.h"

/* A lower bound: kept values written and read once a segment, weights, and partials. */
ls_status ls_plan_count_traffic(ls_plan *plan)
{
    double bytes = 0;
    /* Last segment that read it, plus 1. */
    int *read_by = ls_plan_alloc(plan, (size_t)plan->node_count, sizeof(*read_by));
    if (!read_by)
        return LS_ERR_MEMORY;
    for (int s = 0; s < plan->segment_count; s++)
        for (int i = 0; i < plan->segments[s].step_count; i++) {
            const ls_step *step = &plan->segments[s].steps[i];
            if (step->out.storage == LS_KEPT)
                bytes += (double)step->out.unit * (double)plan->batch;
            for (int k = 0; k < step->group->in_count; k++) {
                const ls_operand *in = &step->in[k];
                bool far = in->per_sample && (in->storage == LS_KEPT || in->storage == LS_EXTERNAL);
                if (far && read_by[in->value] != s + 1)
                    bytes += (double)in->unit * (double)plan->batch;
                if (far)
                    read_by[in->value] = s + 1;
            }
            if (step->out.storage == LS_KEPT)
                /* Later steps of this segment find it in the cache. */
                read_by[step->out.value] = s + 1;
        }
    for (int i = 0; i < plan->join_count; i++)
        bytes += (2.0 * plan->lanes + 1) * (double)plan->joins[i].stride;
    for (int i = 0; i < plan->prepared_count; i++)
        bytes += 2.0 * (double)plan->prepared[i].group->kernel->prepare.bytes;
    for (int i = 0; i < plan->update_count; i++)
        bytes += 4.0 * (double)ls_plan_unit(plan, plan->updates[i].group->root);
    plan->traffic_bytes = bytes;
    return LS_OK;
}
