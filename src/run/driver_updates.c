/* Updates of variables on the device of a driver, and checks that numbers are finite. */
#include "run/driver_updates.h"

#include "base/grow.h"
#include "device/calls.h"
#include "run/driver_copies.h"

ls_status ls_driver_add_check(ls_driver *d, ls_dtype dtype, ls_memory_place from, int64_t count)
{
    LS_TRY(ls_grow(&d->checks, d->check_count, &d->check_room, sizeof(*d->checks)));
    LS_TRY(ls_grow(&d->finite, d->check_count, &d->finite_room, sizeof(*d->finite)));
    d->checks[d->check_count++] = (ls_finite_call){ dtype, from, count };
    return LS_OK;
}

ls_status ls_driver_check_finite(ls_driver *d)
{
    return ls_device_finite_all(d->device, d->checks, (int)d->check_count, d->finite);
}

/* The new values are not the current state yet. */
static ls_status add_written(ls_driver *d, const ls_step *update)
{
    ls_variable *written[LS_MAX_WRITES];
    int count = ls_node_writes(update->group->root, written);
    for (int k = 0; k < count; k++) {
        ls_memory_place at = ls_state_written(d->state);
        ls_dtype dtype = written[k]->node->dtype;
        at.offset += ls_state_offset(d->state, written[k]);
        LS_TRY(ls_driver_add_check(d, dtype, at, (int64_t)(written[k]->bytes / ls_dtype_bytes(dtype))));
    }
    return LS_OK;
}

static ls_status check_written(const ls_driver *d, const ls_step *update, size_t first)
{
    ls_variable *written[LS_MAX_WRITES];
    int count = ls_node_writes(update->group->root, written);
    for (int k = 0; k < count; k++)
        if (!d->finite[first + (size_t)k])
            return ls_executor_overflows(written[k]);
    return LS_OK;
}

static ls_status check_updates(ls_driver *d, const ls_unit *u, const ls_step *last)
{
    const ls_plan *plan = ls_driver_plan(d);
    ls_variable *written[LS_MAX_WRITES];
    size_t first = 0;
    d->check_count = 0;
    for (int i = u->index; i < u->index + u->count; i++)
        if (ls_updates_on(d->placement, i, d->device->index))
            LS_TRY(add_written(d, &plan->updates[i]));
    LS_TRY(ls_driver_explain(d, last, "checking on", ls_driver_check_finite(d)));
    for (int i = u->index; i < u->index + u->count; i++)
        if (ls_updates_on(d->placement, i, d->device->index)) {
            LS_TRY(check_written(d, &plan->updates[i], first));
            first += (size_t)ls_node_writes(plan->updates[i].group->root, written);
        }
    return LS_OK;
}

ls_status ls_driver_run_updates(ls_driver *d, ls_executor *e, const ls_unit *u, int thread)
{
    const ls_plan *plan = ls_driver_plan(d);
    const ls_step *last = NULL;
    for (int i = u->index; i < u->index + u->count; i++)
        if (ls_updates_on(d->placement, i, d->device->index)) {
            last = &plan->updates[i];
            LS_TRY(ls_driver_explain(d, last, "copying to",
                                     ls_driver_bring_inputs(d, e, last, thread, &(ls_driver_task){ .samples = 1 })));
        }
    LS_TRY(ls_driver_explain(d, last, "updating on", ls_driver_run_program(d, e, &d->programs.updates)));
    LS_TRY(check_updates(d, u, last));
    return ls_driver_explain(d, last, "updating on", ls_device_sync(d->device));
}

ls_status ls_driver_run_check(ls_driver *d, ls_executor *e, const ls_unit *u, int thread)
{
    const ls_step *step = &ls_driver_plan(d)->updates[u->index];
    bool finite = false;
    LS_TRY(ls_driver_explain(d, step, "copying to", ls_driver_bring_whole(d, e, &step->in[0], thread)));
    LS_TRY(ls_driver_explain(d, step, "checking on",
                             ls_device_finite(d->device, step->group->root->dtype,
                                              ls_driver_at(d, d->place->whole[step->in[0].value]), u->to, &finite)));
    return finite ? LS_OK : ls_executor_not_finite(step);
}
