/* A device with the kernels of this folder, as a backend (lockstep/backend.h). */
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/device.h"

void ls_gpu_close(void *device_)
{
    device *d = device_;
    d->driver->finish(d->own_device);
    ls_gpu_free_uploads(d);
    if (d->own)
        d->driver->free(d->own_device, d->own);
    if (d->table)
        d->driver->free(d->own_device, d->table);
    ls_gpu_record_destroy(d->record);
    ls_gpu_kernels_destroy(d->kernels);
    d->driver->close(d->own_device);
    free(d);
}

ls_status ls_gpu_write_now(device *d, void *memory, size_t offset, const void *from, size_t bytes)
{
    void *done = NULL;
    LS_TRY(d->driver->write(d->own_device, memory, offset, from, bytes, &done));
    return d->driver->wait(d->own_device, done);
}

ls_status ls_gpu_open(const ls_gpu_opening *opening, void **out)
{
    static const char zeros[FLAGS_AT];
    device *d = calloc(1, sizeof(*d));
    if (!d) {
        opening->driver->close(opening->device);
        return ls_fail(LS_ERR_MEMORY, "no memory for %s", opening->name);
    }
    d->driver = opening->driver;
    d->own_device = opening->device;
    d->name = opening->name;
    d->tuning = opening->tuning;
    d->kernels = ls_gpu_kernels_create(opening);
    d->record = ls_gpu_record_create();
    ls_status status = d->kernels && d->record ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for kernels");
    if (status == LS_OK)
        status = d->driver->alloc(d->own_device, OWN_BYTES, &d->own);
    if (status == LS_OK)
        status = ls_gpu_write_now(d, d->own, 0, zeros, FLAGS_AT);
    if (status != LS_OK) {
        ls_gpu_close(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

ls_status ls_gpu_alloc(void *device_, size_t bytes, void **memory)
{
    device *d = device_;
    return ls_fail_within(d->driver->alloc(d->own_device, bytes, memory), "%zu bytes", bytes);
}

void ls_gpu_free(void *device_, void *memory)
{
    device *d = device_;
    if (d->in.to == memory) /* pending uploads to it are obsolete */
        ls_gpu_empty_inbox(&d->in);
    (void)ls_gpu_send_waiting(d);
    d->driver->finish(d->own_device);
    d->driver->free(d->own_device, memory);
}

ls_status ls_gpu_send_waiting(device *d)
{
    LS_TRY(ls_gpu_send_uploads(d));
    return ls_gpu_send_launches(d);
}

ls_status ls_gpu_download(void *device_, void *memory, size_t offset, void *to, size_t bytes)
{
    device *d = device_;
    LS_TRY(ls_gpu_send_waiting(d));
    LS_TRY(ls_gpu_report_faults(d));
    return d->driver->read(d->own_device, memory, offset, to, bytes);
}

ls_status ls_gpu_copy_from(void *to_device, void *to, size_t to_offset, void *from_device, void *from,
                           size_t from_offset, size_t bytes)
{
    device *d = to_device, *other = from_device;
    stage *s;
    LS_TRY(ls_gpu_send_waiting(d)); /* the other queue is done */
    if (!d->driver->reaches || d->driver->reaches(d->own_device, other->own_device))
        return d->driver->copy(d->own_device, to, to_offset, other->own_device, from, from_offset, bytes);
    LS_TRY(ls_gpu_next_stage(d, bytes, &s));
    LS_TRY(d->driver->read(other->own_device, from, from_offset, s->bytes, bytes));
    return d->driver->write(d->own_device, to, to_offset, s->bytes, bytes, &s->done);
}

/* Copies one by one, then waits for all receiving devices. */
static ls_status copy_all(const ls_transfer *list, int count)
{
    for (int i = 0; i < count; i++)
        LS_TRY(ls_gpu_copy_from(list[i].to_device, list[i].to.memory, list[i].to.offset, list[i].from_device,
                                list[i].from.memory, list[i].from.offset, list[i].bytes));
    for (int i = 0; i < count; i++) {
        const device *d = list[i].to_device;
        bool waited = false;
        for (int k = 0; k < i && !waited; k++)
            waited = list[k].to_device == d;
        if (!waited)
            LS_TRY(d->driver->finish(d->own_device));
    }
    return LS_OK;
}

ls_status ls_gpu_transfer(void *user, const ls_transfer *list, int count)
{
    const device *first = list[0].from_device;
    bool can = false;
    (void)user;
    ls_transfer *own = first->driver->transfer ? malloc((size_t)count * sizeof(*own)) : NULL;
    for (int i = 0; own && i < count; i++) {
        own[i] = list[i];
        own[i].from_device = ((const device *)list[i].from_device)->own_device;
        own[i].to_device = ((const device *)list[i].to_device)->own_device;
    }
    ls_status status = own ? first->driver->transfer(own, count, &can) : LS_OK;
    free(own);
    return status != LS_OK || can ? status : copy_all(list, count);
}

ls_status ls_gpu_sync(void *device_)
{
    device *d = device_;
    LS_TRY(ls_gpu_send_waiting(d));
    LS_TRY(d->driver->finish(d->own_device));
    return ls_gpu_report_faults(d);
}
