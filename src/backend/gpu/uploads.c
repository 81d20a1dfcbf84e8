/* Uploads of host memory to the device (device.h). */
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/device.h"

static void *host_alloc(device *d, size_t bytes)
{
    return d->driver->host_alloc ? d->driver->host_alloc(d->own_device, bytes) : malloc(bytes);
}

static void host_free(device *d, void *bytes)
{
    if (!d->driver->host_free)
        free(bytes);
    else if (bytes)
        d->driver->host_free(d->own_device, bytes);
}

void ls_gpu_free_uploads(device *d)
{
    for (int i = 0; i < STAGES; i++) {
        if (d->stages[i].done)
            d->driver->wait(d->own_device, d->stages[i].done);
        host_free(d, d->stages[i].bytes);
    }
    if (d->in.memory)
        d->driver->free(d->own_device, d->in.memory);
}

ls_status ls_gpu_next_stage(device *d, size_t bytes, stage **out)
{
    stage *s = &d->stages[d->next_stage];
    d->next_stage = (d->next_stage + 1) % STAGES;
    if (s->done) {
        void *done = s->done;
        s->done = NULL;
        LS_TRY(d->driver->wait(d->own_device, done));
    }
    if (s->room < bytes) {
        host_free(d, s->bytes);
        s->bytes = host_alloc(d, bytes);
        s->room = s->bytes ? bytes : 0;
        if (!s->bytes)
            return ls_fail(LS_ERR_MEMORY, "no host memory to upload %zu bytes to %s", bytes, d->name);
    }
    *out = s;
    return LS_OK;
}

/* Keeps the list of pieces, which the caller still reads. */
void ls_gpu_empty_inbox(inbox *in)
{
    in->host = NULL;
    in->to = NULL;
    in->used = 0;
    in->end = 0;
    in->count = 0;
}

/* One entry per piece, as for lanes. Returns the maximum work items of a piece. */
static int64_t write_pieces(const inbox *in, int count, int which, unsigned char *to)
{
    int64_t most = 1;
    for (int i = 0; i < count; i++) {
        i64 offset[LS_GPU_PLACES] = { (i64)in->piece[i].offset, (i64)in->piece[i].at, [LS_GPU_WHICH] = which };
        ls_gpu_flat p = { .n = (i64)in->piece[i].bytes };
        int64_t items = (p.n + 63) / 64;
        memcpy(to + (size_t)i * INBOX_ENTRY, offset, sizeof(offset));
        memcpy(to + (size_t)i * INBOX_ENTRY + sizeof(offset), &p, sizeof(p));
        most = items > most ? items : most;
    }
    return most;
}

ls_status ls_gpu_send_uploads(device *d)
{
    inbox *in = &d->in;
    stage *host = in->host;
    void *to = in->to;
    size_t used = in->used;
    int count = in->count;
    ls_gpu_kernel_of kernel;
    bool first;
    if (!host)
        return LS_OK;
    ls_gpu_empty_inbox(in);
    if (count == 1)
        return d->driver->write(d->own_device, to, in->piece[0].offset, host->bytes, in->piece[0].bytes, &host->done);
    LS_TRY(ls_gpu_kernel(d->kernels, LS_GPU_MOVES, "scatter", &kernel, &first));
    ls_gpu_grid grid = { .kernel = "scatter",
                         .memory = { to, in->memory, to, to },
                         .places = kernel.places,
                         .table = { in->memory, used },
                         .entry = INBOX_ENTRY,
                         .lanes = count,
                         .group = d->tuning->group };
    grid.items[0] = write_pieces(in, count, kernel.which, (unsigned char *)host->bytes + used);
    grid.items[1] = 1;
    LS_TRY(
        d->driver->write(d->own_device, in->memory, 0, host->bytes, used + (size_t)count * INBOX_ENTRY, &host->done));
    return d->driver->launch(d->own_device, kernel.handle, &grid);
}

/* Pieces are copied in no particular order, so they must not overlap. Most uploads have increasing
 * offsets, so the first test decides. */
static bool meets(const inbox *in, size_t offset, size_t bytes)
{
    if (offset >= in->end)
        return false;
    for (int i = 0; i < in->count; i++)
        if (offset < in->piece[i].offset + in->piece[i].bytes && in->piece[i].offset < offset + bytes)
            return true;
    return false;
}

/* For exactly the same bytes, such as labels that are fed twice. */
static bool replace_piece(const inbox *in, const void *memory, size_t offset, const void *from, size_t bytes)
{
    if (!in->host || in->to != memory || offset >= in->end)
        return false;
    for (int i = in->count - 1; i >= 0; i--)
        if (in->piece[i].offset == offset && in->piece[i].bytes == bytes) {
            memcpy((unsigned char *)in->host->bytes + in->piece[i].at, from, bytes);
            return true;
        }
    return false;
}

static ls_status open_inbox(device *d, void *memory, size_t offset, size_t bytes)
{
    inbox *in = &d->in;
    if (in->host &&
        (in->to != memory || in->count == INBOX_PIECES || in->used + bytes > INBOX_BYTES || meets(in, offset, bytes)))
        LS_TRY(ls_gpu_send_uploads(d));
    if (!in->memory)
        LS_TRY(d->driver->alloc(d->own_device, INBOX_BYTES + INBOX_PIECES * INBOX_ENTRY, &in->memory));
    if (!in->host)
        LS_TRY(ls_gpu_next_stage(d, INBOX_BYTES + INBOX_PIECES * INBOX_ENTRY, &in->host));
    in->to = memory;
    return LS_OK;
}

ls_status ls_gpu_upload(void *device_, void *memory, size_t offset, const void *from, size_t bytes)
{
    device *d = device_;
    stage *s;
    LS_TRY(ls_gpu_send_launches(d));
    if (bytes > INBOX_PIECE) {
        LS_TRY(ls_gpu_send_uploads(d));
        LS_TRY(ls_gpu_next_stage(d, bytes, &s));
        memcpy(s->bytes, from, bytes);
        return d->driver->write(d->own_device, memory, offset, s->bytes, bytes, &s->done);
    }
    inbox *in = &d->in;
    if (replace_piece(in, memory, offset, from, bytes))
        return LS_OK;
    LS_TRY(open_inbox(d, memory, offset, bytes));
    memcpy((unsigned char *)in->host->bytes + in->used, from, bytes);
    in->piece[in->count].offset = offset;
    in->piece[in->count].at = in->used;
    in->piece[in->count++].bytes = bytes;
    in->used += (bytes + 15) / 16 * 16;
    in->end = offset + bytes > in->end ? offset + bytes : in->end;
    return LS_OK;
}
