/* Backend calls under their device's lock. Calls for 0 bytes or elements return at once. */
#include "device/calls.h"

#define LOCKED(device, call)                                                                                           \
    do {                                                                                                               \
        pthread_mutex_lock(&(device)->mutex);                                                                          \
        ls_status locked_status_ = (call);                                                                             \
        pthread_mutex_unlock(&(device)->mutex);                                                                        \
        return locked_status_;                                                                                         \
    } while (0)

ls_status ls_device_alloc(ls_device *device, size_t bytes, void **memory)
{
    LOCKED(device, device->backend->alloc(device->handle, bytes, memory));
}

void ls_device_free(ls_device *device, void *memory)
{
    pthread_mutex_lock(&device->mutex);
    device->backend->free(device->handle, memory);
    pthread_mutex_unlock(&device->mutex);
}

ls_status ls_device_upload(ls_device *device, void *memory, size_t offset, const void *from, size_t bytes)
{
    if (bytes == 0)
        return LS_OK;
    LOCKED(device, device->backend->upload(device->handle, memory, offset, from, bytes));
}

ls_status ls_device_download(ls_device *device, void *memory, size_t offset, void *to, size_t bytes)
{
    if (bytes == 0)
        return LS_OK;
    LOCKED(device, device->backend->download(device->handle, memory, offset, to, bytes));
}

ls_status ls_device_copy(ls_device *to_device, void *to, size_t to_offset, ls_device *from_device, void *from,
                         size_t from_offset, size_t bytes)
{
    if (bytes == 0)
        return LS_OK;
    LOCKED(to_device,
           to_device->backend->copy(to_device->handle, to, to_offset, from_device->handle, from, from_offset, bytes));
}

ls_status ls_device_plan_create(ls_device *device, const ls_program *program, void **plan)
{
    LOCKED(device, device->backend->plan_create(device->handle, program, plan));
}

void ls_device_plan_scratch(ls_device *device, const void *plan, ls_plan_scratch *out)
{
    *out = (ls_plan_scratch){ .bytes = 0 };
    if (!device->backend->plan_scratch || !device->backend->use_scratch)
        return;
    pthread_mutex_lock(&device->mutex);
    device->backend->plan_scratch(device->handle, plan, out);
    pthread_mutex_unlock(&device->mutex);
}

ls_status ls_device_use_scratch(ls_device *device, ls_memory_place at, size_t bytes)
{
    LOCKED(device, device->backend->use_scratch(device->handle, at, bytes));
}

/* Programs do not run while scratch memory moves. */
static void lock_to_run(ls_device *device)
{
    pthread_mutex_lock(&device->mutex);
    while (device->scratch_moves)
        pthread_cond_wait(&device->moved, &device->mutex);
}

ls_status ls_device_plan_run(ls_device *device, void *plan, const ls_program_run *run)
{
    lock_to_run(device);
    ls_status status = device->backend->plan_run(device->handle, plan, run);
    pthread_mutex_unlock(&device->mutex);
    return status;
}

ls_status ls_device_plan_run_lanes(ls_device *device, void *plan, const ls_program_run *runs, int count)
{
    lock_to_run(device);
    ls_status status = device->backend->plan_run_lanes(device->handle, plan, runs, count);
    pthread_mutex_unlock(&device->mutex);
    return status;
}

void ls_device_plan_destroy(ls_device *device, void *plan)
{
    pthread_mutex_lock(&device->mutex);
    device->backend->plan_destroy(device->handle, plan);
    pthread_mutex_unlock(&device->mutex);
}

ls_status ls_device_sync(ls_device *device)
{
    if (!device->backend->sync)
        return LS_OK;
    LOCKED(device, device->backend->sync(device->handle));
}

ls_status ls_device_join(ls_device *device, const ls_join_call *call)
{
    if (call->count == 0)
        return LS_OK;
    LOCKED(device, device->backend->join(device->handle, call));
}

ls_status ls_device_join_lanes(ls_device *device, const ls_join_lanes_call *call)
{
    if (call->count == 0)
        return LS_OK;
    LOCKED(device, device->backend->join_lanes(device->handle, call));
}

ls_status ls_device_finite(ls_device *device, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out)
{
    LOCKED(device, device->backend->finite(device->handle, dtype, from, count, out));
}

ls_status ls_device_finite_all(ls_device *device, const ls_finite_call *list, int count, bool *out)
{
    if (count == 0)
        return LS_OK;
    if (device->backend->finite_all)
        LOCKED(device, device->backend->finite_all(device->handle, list, count, out));
    for (int i = 0; i < count; i++)
        LS_TRY(ls_device_finite(device, list[i].dtype, list[i].from, list[i].count, &out[i]));
    return LS_OK;
}

/* Locks in the order of devices; no other function holds more than one of these locks. */
ls_status ls_devices_transfer(ls_device *devices, int count, int kind, const ls_transfer *list, int transfers)
{
    const ls_backend *backend = NULL;
    for (int d = 0; d < count; d++)
        if (devices[d].kind == kind) {
            backend = devices[d].backend;
            pthread_mutex_lock(&devices[d].mutex);
        }
    ls_status status = transfers > 0 ? backend->transfer(backend->user, list, transfers) : LS_OK;
    for (int d = count; d-- > 0;)
        if (devices[d].kind == kind)
            pthread_mutex_unlock(&devices[d].mutex);
    return status;
}
