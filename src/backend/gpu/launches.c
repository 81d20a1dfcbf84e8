/* Collects launches and submits them together (device.h). */
#include <string.h>

#include "backend/gpu/device.h"

ls_status ls_gpu_record_launch(void *user, const ls_gpu_launch *launch)
{
    device *d = user;
    ls_gpu_kernel_of kernel = { .which = -1 };
    bool first;
    if (!launch->is_call)
        LS_TRY(ls_gpu_kernel(d->kernels, launch->module, launch->kernel, &kernel, &first));
    return ls_gpu_record_add(d->record, kernel, launch, ls_gpu_group_of(d, launch));
}

static ls_status ask_library(void *user, ls_gpu_call *call, bool *can)
{
    device *d = user;
    return d->driver->ask(d->own_device, call, can);
}

static ls_status call_library(device *d, const ls_gpu_recorded *of)
{
    ls_memory_place at[LS_GPU_PLACES];
    for (int lane = 0; lane < of->grid.lanes; lane++) {
        const ls_gpu_call *call = ls_gpu_record_call(d->record, of, lane, at);
        LS_TRY(d->driver->call(d->own_device, call, at));
    }
    return LS_OK;
}

ls_status ls_gpu_need_table(device *d, size_t bytes)
{
    void *larger = NULL;
    if (bytes <= d->table_bytes)
        return LS_OK;
    bytes = bytes > 2 * d->table_bytes ? bytes : 2 * d->table_bytes;
    LS_TRY(
        ls_fail_within(d->driver->alloc(d->own_device, bytes, &larger), "no memory for %zu bytes of launches", bytes));
    d->driver->finish(d->own_device); /* queued work may still read the old table */
    if (d->table)
        d->driver->free(d->own_device, d->table);
    d->table = larger;
    d->table_bytes = bytes;
    return LS_OK;
}

ls_status ls_gpu_send_launches(device *d)
{
    size_t bytes;
    int count;
    stage *s;
    const void *table = ls_gpu_record_table(d->record, &bytes);
    const ls_gpu_recorded *list = ls_gpu_record_list(d->record, &count);
    bool waits = d->waits;
    d->waits = false;
    d->last.kind = ALONE;
    if (!waits || count == 0)
        return LS_OK;
    LS_TRY(ls_gpu_need_table(d, bytes));
    LS_TRY(ls_gpu_next_stage(d, bytes, &s));
    memcpy(s->bytes, table, bytes);
    LS_TRY(d->driver->write(d->own_device, d->table, 0, s->bytes, bytes, &s->done));
    for (int i = 0; i < count; i++) {
        if (!list[i].kernel.handle) {
            LS_TRY(call_library(d, &list[i]));
            continue;
        }
        ls_gpu_grid grid = list[i].grid;
        grid.kernel = list[i].name;
        grid.table = (ls_memory_place){ d->table, list[i].table_at };
        LS_TRY(d->driver->launch(d->own_device, list[i].kernel.handle, &grid));
    }
    ls_gpu_count_launches(count);
    return LS_OK;
}

ls_gpu_lowering ls_gpu_lowering_of(device *d, ls_gpu_launcher *launch, int lane)
{
    return (ls_gpu_lowering){ .tuning = d->tuning,
                              .launch = launch,
                              .ask = d->driver->ask ? ask_library : NULL,
                              .user = d,
                              .lanes = 1,
                              .scratch = d->scratch,
                              .first_scratch = d->scratch.offset,
                              .fault = { d->own, FAULTS_AT + (size_t)lane * sizeof(ls_gpu_fault) } };
}

ls_status ls_gpu_begin_launches(device *d, int lanes)
{
    d->last.kind = ALONE;
    LS_TRY(ls_gpu_send_uploads(d));
    if (d->waits)
        ls_gpu_record_more(d->record, lanes);
    else
        ls_gpu_record_begin(d->record, lanes);
    return LS_OK;
}

ls_status ls_gpu_end_launches(device *d, ls_status status)
{
    d->waits = d->waits || status == LS_OK;
    if (status != LS_OK) {
        ls_gpu_record_drop(d->record);
        d->last.kind = ALONE;
    }
    return status;
}
