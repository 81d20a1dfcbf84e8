/* A backend for tests: see gpu.h and gpu_private.h. It knows the library by its public headers
 * alone, as any backend does. */
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu_private.h"

/* ---- Calls: what begins and ends each ---- */

ls_status gpu_enter(device *d)
{
    return atomic_exchange(&d->inside, true) ? gpu_misuse(d, "two threads call it at once") : LS_OK;
}

void gpu_leave(device *d)
{
    atomic_store(&d->inside, false);
}

ls_status gpu_enter_call(device *d, gpu_call call, size_t bytes, bool *late)
{
    ls_status status = gpu_enter(d);
    if (status == LS_OK && gpu_count_call(d->gpu, call, bytes, late)) {
        gpu_leave(d);
        status = ls_backend_fail(call == GPU_ALLOC ? LS_ERR_MEMORY : LS_ERR_DEVICE,
                                 "GPU:%d: %s failed, as it was told to", d->number, gpu_call_name(call));
    }
    if (status == LS_OK && gpu_is_lost(d->gpu, d->number, call)) {
        gpu_wait_idle(d); /* it reads no more memory of callers */
        gpu_leave(d);
        status = ls_backend_fail(LS_ERR_DEVICE, "GPU:%d is lost (%s)", d->number, gpu_call_name(call));
    }
    return status;
}

/* NULL: it has none such. Copies to other devices ask too, so the list is guarded. */
static buffer *find_buffer(device *d, void *handle)
{
    pthread_mutex_lock(&d->mutex);
    buffer *b = d->buffers;
    while (b && (b->handle != handle || !b->bytes))
        b = b->next;
    pthread_mutex_unlock(&d->mutex);
    if (!b)
        gpu_misuse(d, "%p is no buffer of it", handle);
    return b;
}

buffer *gpu_find_bytes(device *d, void *handle, size_t offset, size_t bytes)
{
    buffer *b = find_buffer(d, handle);
    if (b && (offset > b->size || bytes > b->size - offset)) {
        gpu_misuse(d, "%zu bytes at %zu of a buffer of %zu", bytes, offset, b->size);
        b = NULL;
    }
    return b;
}

bool gpu_overlap(range a, range b)
{
    return a.at == b.at && a.begin < b.end && b.begin < a.end;
}

/* ---- Memory ---- */

static void *map(size_t bytes, int access)
{
    void *at = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void unmap(void *at, size_t bytes)
{
    if (at)
        munmap(at, bytes);
}

static buffer *make_buffer(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    buffer *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->size = bytes;
    b->mapped = (bytes / page + 1) * page;
    b->handle = map(b->mapped, PROT_NONE);
    b->bytes = map(b->mapped, PROT_READ | PROT_WRITE);
    if (!b->handle || !b->bytes) {
        unmap(b->handle, b->mapped);
        unmap(b->bytes, b->mapped);
        free(b);
        return NULL;
    }
    memset(b->bytes, 0xff, bytes < SPOILED ? bytes : SPOILED);
    return b;
}

static ls_status take_buffer(device *d, size_t bytes, void **handle)
{
    if (!gpu_count_memory(d, bytes, true))
        return ls_backend_fail(LS_ERR_MEMORY, "GPU:%d: %zu bytes are more than is left of %zu", d->number, bytes,
                               d->gpu->settings.memory);
    buffer *b = make_buffer(bytes);
    if (!b) {
        gpu_count_memory(d, bytes, false);
        return ls_backend_fail(LS_ERR_MEMORY, "GPU:%d: the host has no memory for %zu bytes", d->number, bytes);
    }
    pthread_mutex_lock(&d->mutex);
    b->next = d->buffers;
    d->buffers = b;
    pthread_mutex_unlock(&d->mutex);
    *handle = b->handle;
    return LS_OK;
}

static ls_status gpu_alloc(void *device_, size_t bytes, void **handle)
{
    device *d = device_;
    bool late;
    ls_status status = gpu_enter_call(d, GPU_ALLOC, bytes, &late);
    if (status == LS_OK) {
        status = take_buffer(d, bytes, handle);
        gpu_leave(d);
    }
    return status;
}

static void gpu_free(void *device_, void *handle)
{
    device *d = device_;
    if (gpu_enter(d) != LS_OK)
        return;
    buffer *b = find_buffer(d, handle);
    if (b) {
        gpu_wait_idle(d);
        unmap(b->bytes, b->mapped);
        pthread_mutex_lock(&d->mutex);
        b->bytes = NULL;
        pthread_mutex_unlock(&d->mutex);
        gpu_count_memory(d, b->size, false);
    }
    gpu_leave(d);
}

/* ---- Bytes in and out ---- */

static ls_status queue_upload(device *d, void *handle, size_t offset, const void *from, size_t bytes, bool late)
{
    buffer *b = gpu_find_bytes(d, handle, offset, bytes);
    if (!b || bytes == 0)
        return b ? LS_OK : LS_ERR_INTERNAL;
    command *c = gpu_claim(d, UPLOAD);
    ls_status status = gpu_stage(d, c, bytes);
    if (status != LS_OK)
        return status;
    memcpy(c->staging, from, bytes);
    c->fails = late;
    c->at = b;
    c->offset = offset;
    c->bytes = bytes;
    gpu_post(d);
    return LS_OK;
}

static ls_status gpu_upload(void *device_, void *handle, size_t offset, const void *from, size_t bytes)
{
    device *d = device_;
    bool late;
    ls_status status = gpu_enter_call(d, GPU_UPLOAD, bytes, &late);
    if (status == LS_OK) {
        status = queue_upload(d, handle, offset, from, bytes, late);
        gpu_leave(d);
    }
    return status;
}

static ls_status queue_download(device *d, void *handle, size_t offset, void *to, size_t bytes)
{
    buffer *b = gpu_find_bytes(d, handle, offset, bytes);
    if (!b)
        return LS_ERR_INTERNAL;
    if (bytes > 0) {
        command *c = gpu_claim(d, DOWNLOAD);
        c->at = b;
        c->offset = offset;
        c->bytes = bytes;
        c->to = to;
        gpu_post(d);
    }
    return gpu_wait_and_tell(d);
}

static ls_status gpu_download(void *device_, void *handle, size_t offset, void *to, size_t bytes)
{
    device *d = device_;
    bool late;
    ls_status status = gpu_enter_call(d, GPU_DOWNLOAD, bytes, &late);
    if (status == LS_OK) {
        status = queue_download(d, handle, offset, to, bytes);
        gpu_leave(d);
    }
    return status;
}

typedef struct copy_call {
    device *to_device, *from_device;
    void *to, *from;
    size_t to_offset, from_offset, bytes;
} copy_call;

/* The bytes are read when the copy's turn comes, on the thread of the device that they go to. It
 * does not wait for the other device, and does not keep its bytes from changing: the library
 * must. */
static ls_status queue_copy(const copy_call *call, bool late)
{
    buffer *to = gpu_find_bytes(call->to_device, call->to, call->to_offset, call->bytes);
    buffer *from = gpu_find_bytes(call->from_device, call->from, call->from_offset, call->bytes);
    if (!to || !from)
        return LS_ERR_INTERNAL;
    command *c = gpu_claim(call->to_device, COPY);
    c->fails = late;
    c->at = to;
    c->offset = call->to_offset;
    c->from = from;
    c->from_offset = call->from_offset;
    c->bytes = call->bytes;
    gpu_post(call->to_device);
    return LS_OK;
}

static ls_status gpu_copy(void *to_device, void *to, size_t to_offset, void *from_device, void *from,
                          size_t from_offset, size_t bytes)
{
    copy_call call = { to_device, from_device, to, from, to_offset, from_offset, bytes };
    bool late;
    ls_status status = gpu_enter_call(to_device, GPU_COPY, bytes, &late);
    if (status == LS_OK) {
        const device *from = from_device;
        status = gpu_is_lost(from->gpu, from->number, GPU_CALLS)
                     ? ls_backend_fail(LS_ERR_DEVICE, "GPU:%d is lost, and cannot be copied from", from->number)
                     : queue_copy(&call, late);
        gpu_leave(to_device);
    }
    return status;
}

/* ---- Joins, and what is asked of numbers ---- */

static size_t bytes_of(ls_dtype dtype, int64_t count)
{
    return count > 0 ? (size_t)count * ls_dtype_bytes(dtype) : 0;
}

/* The result may be where the left operand is, exactly, and nowhere else that is read. */
static ls_status check_join(device *d, const ls_join_call *call, range to, range left, range right)
{
    if ((int)call->kind < LS_JOIN_SUM || call->kind > LS_JOIN_MIN || call->dtype > LS_I64 || call->count < 0)
        return gpu_misuse(d, "a join of kind %d, of %lld elements of %s", (int)call->kind, (long long)call->count,
                          ls_dtype_name(call->dtype));
    if (gpu_overlap(to, left) && to.begin != left.begin)
        return gpu_misuse(d, "a join's result lies over a part of its left operand");
    if (right.at && gpu_overlap(to, right))
        return gpu_misuse(d, "a join's result lies over its right operand");
    return LS_OK;
}

static ls_status queue_join(device *d, const ls_join_call *call, bool late)
{
    const ls_memory_place *right_at = &call->right;
    size_t bytes = bytes_of(call->dtype, call->count);
    buffer *to = gpu_find_bytes(d, call->to.memory, call->to.offset, bytes);
    buffer *left = to ? gpu_find_bytes(d, call->left.memory, call->left.offset, bytes) : NULL;
    buffer *right = left && right_at->memory ? gpu_find_bytes(d, right_at->memory, right_at->offset, bytes) : NULL;
    if (!left || (right_at->memory && !right))
        return LS_ERR_INTERNAL;
    ls_status status = check_join(d, call, (range){ to, call->to.offset, call->to.offset + bytes },
                                  (range){ left, call->left.offset, call->left.offset + bytes },
                                  (range){ right, right_at->offset, right_at->offset + bytes });
    if (status != LS_OK)
        return status;
    command *c = gpu_claim(d, JOIN);
    c->fails = late;
    c->at = to;
    c->offset = call->to.offset;
    c->from = left;
    c->from_offset = call->left.offset;
    c->right = right;
    c->join = *call;
    gpu_post(d);
    return LS_OK;
}

static ls_status gpu_join(void *device_, const ls_join_call *call)
{
    device *d = device_;
    bool late;
    ls_status status = gpu_enter_call(d, GPU_JOIN, bytes_of(call->dtype, call->count), &late);
    if (status == LS_OK) {
        status = queue_join(d, call, late);
        gpu_leave(d);
    }
    return status;
}

/* T[a,b), in place of its left part. */
static ls_status join_part(device *d, const ls_join_lanes_call *call, int a, int b, ls_memory_place *out)
{
    ls_memory_place left = call->lane[a], right = { NULL, 0 };
    if (b - a > 1) {
        int k = 1;
        while (k * 2 < b - a)
            k *= 2;
        ls_status status = join_part(d, call, a, a + k, &left);
        if (status == LS_OK)
            status = join_part(d, call, a + k, b, &right);
        if (status != LS_OK)
            return status;
    }
    *out = left.memory ? left : right;
    if (!left.memory || !right.memory)
        return LS_OK;
    return gpu_join(d, &(ls_join_call){ call->kind, call->dtype, call->count, left, left, right });
}

static ls_status gpu_join_lanes(void *device_, const ls_join_lanes_call *call)
{
    ls_memory_place out = { NULL, 0 };
    ls_status status = join_part(device_, call, 0, call->lanes, &out);
    if (status == LS_OK && !out.memory)
        return gpu_misuse(device_, "%d lanes are joined, and none has anything", call->lanes);
    if (status != LS_OK || (out.memory == call->to.memory && out.offset == call->to.offset))
        return status;
    return gpu_join(device_, &(ls_join_call){ call->kind, call->dtype, call->count, call->to, out, { NULL, 0 } });
}

static ls_status queue_finite(device *d, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out)
{
    size_t bytes = bytes_of(dtype, count);
    buffer *b = gpu_find_bytes(d, from.memory, from.offset, bytes);
    if (!b)
        return LS_ERR_INTERNAL;
    command *c = gpu_claim(d, FINITE);
    c->at = b;
    c->offset = from.offset;
    c->bytes = bytes;
    c->dtype = dtype;
    c->finite = out;
    gpu_post(d);
    return gpu_wait_and_tell(d);
}

static ls_status gpu_finite(void *device_, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out)
{
    device *d = device_;
    bool late;
    ls_status status = gpu_enter_call(d, GPU_FINITE, bytes_of(dtype, count), &late);
    if (status == LS_OK) {
        status = queue_finite(d, dtype, from, count, out);
        gpu_leave(d);
    }
    return status;
}

/* ---- Devices ---- */

static int gpu_probe(void *user)
{
    return ((gpu *)user)->settings.devices;
}

static ls_status gpu_query(void *user, int number, ls_backend_device *out)
{
    gpu *g = user;
    snprintf(out->about, sizeof out->about, "test device %d", number);
    out->memory = g->settings.memory;
    return LS_OK;
}

static bool gpu_supports(void *user, const ls_tensor *node)
{
    const char *op = ls_tensor_op(node), *list = ((gpu *)user)->deny;
    size_t length = strlen(op);
    while (*list) {
        size_t word = strcspn(list, ",");
        if (word == length && strncmp(list, op, word) == 0)
            return false;
        list += word + (list[word] == ',');
    }
    return true;
}

/* Signals belong to the program's own threads. */
static int start_thread(device *d)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&d->thread, NULL, gpu_work, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static void free_device(device *d)
{
    for (buffer *b = d->buffers, *next; b; b = next) {
        next = b->next;
        unmap(b->handle, b->mapped);
        unmap(b->bytes, b->mapped);
        free(b);
    }
    for (uint64_t i = 0; d->ring && i < d->length; i++)
        free(d->ring[i].staging);
    pthread_mutex_destroy(&d->mutex);
    pthread_cond_destroy(&d->changed);
    free(d->ring);
    free(d);
}

static device *make_device(gpu *g, int number)
{
    device *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->gpu = g;
    d->number = number;
    d->random = (g->settings.seed + (uint32_t)number) * 2654435761u | 1; /* never 0: it would stay so */
    d->length = (uint64_t)g->settings.queue;
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->changed, NULL);
    d->ring = calloc(d->length, sizeof *d->ring);
    if (!d->ring || start_thread(d) != 0) {
        free_device(d);
        return NULL;
    }
    return d;
}

static ls_status gpu_open(void *user, int number, void **out)
{
    gpu *g = user;
    bool late;
    if (gpu_count_call(g, GPU_OPEN, 0, &late))
        return ls_backend_fail(LS_ERR_DEVICE, "GPU:%d: open failed, as it was told to", number);
    if (number < 0 || number >= g->settings.devices)
        return ls_backend_fail(LS_ERR_NOT_FOUND, "GPU:%d: there are %d", number, g->settings.devices);
    device *d = make_device(g, number);
    if (!d)
        return ls_backend_fail(LS_ERR_MEMORY, "GPU:%d: no memory or no thread for it", number);
    gpu_count_change(g, &g->counts.devices, 1);
    *out = d;
    return LS_OK;
}

/* Buffers that were not given back end here, but stay counted; so do plans, which stay lost. */
static void gpu_close(void *device_)
{
    device *d = device_;
    pthread_mutex_lock(&d->mutex);
    d->closing = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mutex);
    pthread_join(d->thread, NULL);
    gpu_count_change(d->gpu, &d->gpu->counts.devices, -1);
    free_device(d);
}

/* ---- The backend ---- */

static const ls_backend functions = {
    .size = sizeof(ls_backend),
    .kind = "GPU",
    .probe = gpu_probe,
    .query = gpu_query,
    .supports = gpu_supports,
    .open = gpu_open,
    .close = gpu_close,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .upload = gpu_upload,
    .download = gpu_download,
    .join = gpu_join,
    .finite = gpu_finite,
    .plan_create = gpu_plan_create,
    .plan_run = gpu_plan_run,
    .plan_destroy = gpu_plan_destroy,
    .sync = gpu_sync,
};

static gpu_settings with_defaults(gpu_settings s)
{
    s.memory = s.memory ? s.memory : (size_t)64 << 20;
    s.deny = s.deny ? s.deny : GPU_DENY;
    s.queue = s.queue ? s.queue : 16;
    s.delay = s.delay ? s.delay : 100;
    return s;
}

gpu *gpu_create(gpu_settings settings)
{
    gpu *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->let_go, NULL);
    g->settings = with_defaults(settings);
    g->table = functions;
    g->table.user = g;
    g->table.copy = settings.copies ? gpu_copy : NULL;
    g->table.plan_run_lanes = settings.copies ? gpu_plan_run_lanes : NULL;
    g->table.join_lanes = settings.copies ? gpu_join_lanes : NULL;
    g->used = calloc((size_t)settings.devices + 1, sizeof *g->used);
    g->losses = calloc((size_t)settings.devices + 1, sizeof *g->losses);
    g->deny = strdup(g->settings.deny);
    if (!g->used || !g->losses || !g->deny) {
        gpu_destroy(g);
        return NULL;
    }
    return g;
}

void gpu_destroy(gpu *g)
{
    if (!g)
        return;
    pthread_mutex_destroy(&g->mutex);
    pthread_cond_destroy(&g->let_go);
    free(g->used);
    free(g->losses);
    free(g->deny);
    free(g);
}

const ls_backend *gpu_backend(gpu *g)
{
    return &g->table;
}
