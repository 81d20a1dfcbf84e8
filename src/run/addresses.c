/* Addresses of values in host memory. */
#include <string.h>

#include "run/partials.h"

char *ls_executor_kept(const ls_executor *e, size_t value, int lane)
{
    const ls_kept *kept = &e->plan->kept[value];
    int host = e->placement->host[value * (size_t)e->plan->lanes + (size_t)lane];
    const ls_place *place = &e->placement->places[host];
    if (!kept->framed)
        return e->kept[host] + place->kept[value] + kept->unit * (size_t)place->row[lane];
    int frame = e->frame_of[(size_t)host * (size_t)e->plan->lanes + (size_t)lane];
    return e->frames[host] + (size_t)frame * place->frame_bytes + place->kept[value];
}

char *ls_executor_locate(const ls_executor *e, const ls_operand *o, int thread, int lane, int64_t first)
{
    const ls_plan *plan = e->plan;
    size_t skip = o->per_sample ? o->unit * (size_t)first : 0;
    switch (o->storage) {
    case LS_EXTERNAL:
        if (o->per_sample && e->external[o->value].rows)
            return e->staging[thread] + plan->staging[o->value];
        return (char *)e->external[o->value].data + skip;
    case LS_WHOLE:
        return e->whole + o->offset + skip;
    case LS_KEPT:
        if (o->per_sample)
            skip = o->unit * (size_t)(first - ls_lane_first(plan->batch, plan->lanes, lane));
        return ls_executor_kept(e, o->offset, lane) + skip;
    case LS_MICRO:
        return e->arena[thread] + o->offset;
    case LS_PARTIAL:
        return ls_partials_of(e, plan->groups[plan->nodes[o->value].group].segment, lane) + o->offset;
    }
    return NULL;
}

void ls_executor_copy_value(ls_executor *e, int value, void *to)
{
    const ls_plan *plan = e->plan;
    const ls_operand *o = &plan->value_of[value];
    if (o->storage != LS_KEPT) {
        memcpy(to, ls_executor_locate(e, o, 0, 0, 0), o->unit * (o->per_sample ? (size_t)plan->batch : 1));
        return;
    }
    for (int lane = 0; lane < plan->lanes; lane++) { /* Lanes may be on different devices. */
        int64_t first = ls_lane_first(plan->batch, plan->lanes, lane);
        int64_t end = ls_lane_first(plan->batch, plan->lanes, lane + 1);
        if (end > first)
            memcpy((char *)to + o->unit * (size_t)first, ls_executor_locate(e, o, 0, lane, first),
                   o->unit * (size_t)(end - first));
    }
}

void ls_executor_pick_rows(ls_executor *e, const ls_operand *in, int thread, int64_t first, int64_t samples)
{
    const ls_external *from = &e->external[in->value];
    size_t unit = ls_plan_unit(e->plan, e->plan->nodes[in->value].node);
    char *to = e->staging[thread] + e->plan->staging[in->value];
    for (int64_t i = 0; i < samples; i++)
        memcpy(to + unit * (size_t)i, (const char *)from->data + unit * (size_t)from->rows[first + i], unit);
}
