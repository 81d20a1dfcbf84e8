/* A backend for tests: see gpu.h. From the top: what a backend has, a device's queue, the thread that works it off, and
 * the functions of the table. It knows the library by its public headers alone, as any backend does. */
#include "gpu.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE 512
#define SPOILED ((size_t)8 << 20) /* bytes of a new buffer that are made NaNs: more would only take time */

typedef struct failure {
    int in; /* calls until it comes; 0: never */
    bool late;
} failure;

/* A device that will be lost, or is. */
typedef struct loss {
    gpu_call call;
    int in; /* calls of that kind until it comes; 0: never */
    bool lost;
} loss;

struct gpu {
    gpu_settings settings;
    ls_backend table;
    char *deny;
    size_t *used;          /* memory of each device, by number */
    pthread_mutex_t mutex; /* of all that follows, and of used */
    pthread_cond_t let_go;
    gpu_counts counts;
    failure failures[GPU_CALLS];
    struct loss *losses; /* by device */
    bool held;
};

/* Two mappings: the handle, which is never accessible, and the bytes, whose place only this file knows. A handle stays
 * mapped until the device is closed, so that no later buffer has the same one. */
typedef struct buffer {
    struct buffer *next;
    void *handle;
    unsigned char *bytes; /* NULL: freed */
    size_t size, mapped;
} buffer;

typedef struct device device;

typedef struct plan {
    device *owner;
    ls_program program;
    const void **in, **state; /* room for those of any step; the thread's own */
    void **new_state;
} plan;

typedef enum kind { UPLOAD, DOWNLOAD, COPY, JOIN, FINITE, RUN } kind;

/* What waits in a queue. Its staging grows and is kept, so that calls soon allocate nothing. */
typedef struct command {
    kind kind;
    bool fails; /* it was told to, late */
    buffer *at;
    size_t offset, bytes;
    unsigned char *staging; /* upload */
    size_t staging_bytes;
    void *to;     /* download: host memory */
    buffer *from; /* copy: of any device; join: what is on the left */
    size_t from_offset;
    buffer *right; /* join; NULL: nothing is */
    ls_join_call join;
    ls_dtype dtype; /* finite */
    bool *finite;
    plan *plan;
    buffer *room[LS_ROOM_COUNT];
    ls_program_run run;
} command;

struct device {
    gpu *gpu;
    int number;
    atomic_bool inside; /* a call is under way */
    buffer *buffers;
    command *ring;
    uint64_t length;
    uint32_t random;
    pthread_t thread;
    pthread_mutex_t mutex; /* of all that follows, and of buffers */
    pthread_cond_t changed;
    uint64_t asked, done; /* commands so far; the next goes to ring[asked % length] */
    bool closing;
    ls_status status; /* of the first that failed since it was last told */
    char message[MESSAGE];
};

/* ---- What it counts ---- */

static const char *const call_names[GPU_CALLS] = { "open", "alloc",  "upload",      "download", "copy",
                                                   "join", "finite", "plan_create", "plan_run", "sync" };

const char *gpu_call_name(gpu_call call)
{
    return call_names[call];
}

gpu_counts gpu_counted(gpu *g)
{
    pthread_mutex_lock(&g->mutex);
    gpu_counts counts = g->counts;
    pthread_mutex_unlock(&g->mutex);
    return counts;
}

static void set_failure(gpu *g, gpu_call call, failure f)
{
    pthread_mutex_lock(&g->mutex);
    g->failures[call] = f;
    pthread_mutex_unlock(&g->mutex);
}

void gpu_fail_next(gpu *g, gpu_call call, int nth)
{
    set_failure(g, call, (failure){ .in = nth });
}

void gpu_fail_late(gpu *g, gpu_call call, int nth)
{
    bool queued = call == GPU_UPLOAD || call == GPU_COPY || call == GPU_JOIN || call == GPU_RUN;
    set_failure(g, call, (failure){ .in = nth, .late = queued });
}

void gpu_lose(gpu *g, int device, gpu_call call, int nth)
{
    pthread_mutex_lock(&g->mutex);
    g->losses[device] = (loss){ .call = call, .in = nth };
    pthread_mutex_unlock(&g->mutex);
}

/* A call to a device that is lost, or is lost by it. */
static bool is_lost(gpu *g, int device, gpu_call call)
{
    pthread_mutex_lock(&g->mutex);
    loss *l = &g->losses[device];
    l->lost = l->lost || (l->in > 0 && l->call == call && --l->in == 0);
    bool lost = l->lost;
    pthread_mutex_unlock(&g->mutex);
    return lost;
}

/* Counts a call. Is it to fail; or, with *late, when it is carried out? */
static bool count_call(gpu *g, gpu_call call, size_t bytes, bool *late)
{
    pthread_mutex_lock(&g->mutex);
    g->counts.calls[call]++;
    g->counts.bytes[call] += bytes;
    failure *f = &g->failures[call];
    bool fails = f->in > 0 && --f->in == 0;
    *late = fails && f->late;
    pthread_mutex_unlock(&g->mutex);
    return fails && !*late;
}

static void count_change(gpu *g, int *count, int by)
{
    pthread_mutex_lock(&g->mutex);
    *count += by;
    pthread_mutex_unlock(&g->mutex);
}

/* Memory of a device is taken, or given back. False: there is not enough. */
static bool count_memory(device *d, size_t bytes, bool taken)
{
    gpu *g = d->gpu;
    size_t *used = &g->used[d->number];
    pthread_mutex_lock(&g->mutex);
    bool fits = !taken || bytes <= g->settings.memory - *used;
    if (fits) {
        *used += taken ? bytes : 0 - bytes;
        g->counts.memory += taken ? bytes : 0 - bytes;
        g->counts.buffers += taken ? 1 : -1;
    }
    pthread_mutex_unlock(&g->mutex);
    return fits;
}

LS_PRINTF(2, 3) static ls_status misuse(device *d, const char *format, ...)
{
    char text[MESSAGE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    count_change(d->gpu, &d->gpu->counts.misuses, 1);
    return ls_backend_fail(LS_ERR_INTERNAL, "GPU:%d is misused: %s", d->number, text);
}

void gpu_hold(gpu *g, bool held)
{
    pthread_mutex_lock(&g->mutex);
    g->held = held;
    pthread_cond_broadcast(&g->let_go);
    pthread_mutex_unlock(&g->mutex);
}

static void wait_while_held(gpu *g)
{
    pthread_mutex_lock(&g->mutex);
    while (g->held)
        pthread_cond_wait(&g->let_go, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

/* ---- A device's queue, as callers see it ---- */

/* The next command, when there is room for it. Nobody else looks at it until it is posted. */
static command *claim(device *d, kind kind)
{
    pthread_mutex_lock(&d->mutex);
    while (d->asked - d->done == d->length)
        pthread_cond_wait(&d->changed, &d->mutex);
    command *c = &d->ring[d->asked % d->length];
    pthread_mutex_unlock(&d->mutex);
    *c = (command){ .kind = kind, .staging = c->staging, .staging_bytes = c->staging_bytes };
    return c;
}

static void post(device *d)
{
    pthread_mutex_lock(&d->mutex);
    d->asked++;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mutex);
}

static void wait_idle(device *d)
{
    pthread_mutex_lock(&d->mutex);
    while (d->done < d->asked)
        pthread_cond_wait(&d->changed, &d->mutex);
    pthread_mutex_unlock(&d->mutex);
}

/* What went wrong until now, once. */
static ls_status wait_and_tell(device *d)
{
    wait_idle(d);
    pthread_mutex_lock(&d->mutex);
    ls_status status = d->status;
    d->status = LS_OK;
    pthread_mutex_unlock(&d->mutex);
    return status == LS_OK ? LS_OK : ls_backend_fail(status, "%s", d->message); /* idle: nobody writes it */
}

static ls_status stage(device *d, command *c, size_t bytes)
{
    if (bytes > c->staging_bytes) {
        unsigned char *staging = realloc(c->staging, bytes);
        if (!staging)
            return ls_backend_fail(LS_ERR_MEMORY, "GPU:%d: no host memory for %zu bytes on the way", d->number, bytes);
        c->staging = staging;
        c->staging_bytes = bytes;
    }
    return LS_OK;
}

/* ---- The thread ---- */

/* The first failure is kept; what comes after it is carried out all the same. */
LS_PRINTF(3, 4) static void record(device *d, ls_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&d->mutex);
    if (d->status == LS_OK) {
        d->status = status;
        vsnprintf(d->message, sizeof d->message, format, arguments);
    }
    pthread_mutex_unlock(&d->mutex);
    va_end(arguments);
}

static bool has_failed(device *d)
{
    pthread_mutex_lock(&d->mutex);
    bool failed = d->status != LS_OK;
    pthread_mutex_unlock(&d->mutex);
    return failed;
}

static const char *node_name(const ls_tensor *node)
{
    const char *name = ls_tensor_name(node);
    return *name ? name : ls_tensor_op(node);
}

static size_t slot_begin(const ls_program_slot *slot, const ls_program_run *run)
{
    return run->room[slot->room].offset + slot->offset +
           (slot->per_sample && slot->kept ? slot->unit * (size_t)run->row : 0);
}

static size_t slot_end(const ls_program_slot *slot, const ls_program_run *run)
{
    return slot_begin(slot, run) + slot->unit * (slot->per_sample ? (size_t)run->samples : 1);
}

static void *slot_bytes(const command *c, const ls_program_slot *slot)
{
    return c->room[slot->room]->bytes + slot_begin(slot, &c->run);
}

static ls_status run_step(const command *c, const ls_program_step *step)
{
    const plan *p = c->plan;
    for (int i = 0; i < ls_tensor_input_count(step->node); i++)
        p->in[i] = slot_bytes(c, &step->in[i]);
    for (int i = 0; i < step->state_count; i++) {
        p->state[i] = slot_bytes(c, &step->state[i]);
        p->new_state[i] = slot_bytes(c, &step->new_state[i]);
    }
    return ls_reference_run(step->node, &c->run, p->in, p->state, slot_bytes(c, &step->out), p->new_state);
}

static void run_program(device *d, const command *c)
{
    const ls_program *program = &c->plan->program;
    for (int i = 0; i < program->step_count; i++) {
        const ls_program_step *step = &program->steps[i];
        ls_status status = run_step(c, step);
        if (status != LS_OK) {
            record(d, status, "GPU:%d: %s: %s", d->number, node_name(step->node), ls_last_error());
            return;
        }
    }
}

static void run_join(const command *c)
{
    ls_reference_join(c->join.kind, c->join.dtype, c->from->bytes + c->from_offset,
                      c->right ? c->right->bytes + c->join.right.offset : NULL, c->join.count,
                      c->at->bytes + c->offset);
}

/* Integers always are. */
static bool all_finite(const command *c)
{
    const void *at = c->at->bytes + c->offset;
    bool finite = true;
    for (size_t i = 0; c->dtype == LS_F32 && i < c->bytes / sizeof(float); i++)
        finite = finite && isfinite(((const float *)at)[i]);
    for (size_t i = 0; c->dtype == LS_F64 && i < c->bytes / sizeof(double); i++)
        finite = finite && isfinite(((const double *)at)[i]);
    return finite;
}

static void fail_as_told(device *d, const command *c)
{
    if (c->kind == RUN)
        record(d, LS_ERR_DEVICE, "GPU:%d: %s failed, as it was told to", d->number,
               c->plan->program.step_count > 0 ? node_name(c->plan->program.steps[0].node) : "a program of no steps");
    else
        record(d, LS_ERR_DEVICE, "GPU:%d: %s failed, as it was told to", d->number,
               c->kind == UPLOAD ? "an upload"
               : c->kind == COPY ? "a copy"
                                 : "a join");
}

static void carry_out(device *d, const command *c)
{
    if (c->fails) {
        fail_as_told(d, c);
        return;
    }
    switch (c->kind) {
    case UPLOAD:
        memcpy(c->at->bytes + c->offset, c->staging, c->bytes);
        break;
    case DOWNLOAD:
        if (!has_failed(d)) /* outputs are set on success alone */
            memcpy(c->to, c->at->bytes + c->offset, c->bytes);
        break;
    case COPY:
        memmove(c->at->bytes + c->offset, c->from->bytes + c->from_offset, c->bytes);
        break;
    case JOIN:
        run_join(c);
        break;
    case FINITE:
        if (!has_failed(d))
            *c->finite = all_finite(c);
        break;
    case RUN:
        run_program(d, c);
        break;
    }
}

static command *next_command(device *d)
{
    pthread_mutex_lock(&d->mutex);
    while (d->done == d->asked && !d->closing)
        pthread_cond_wait(&d->changed, &d->mutex);
    command *c = d->done < d->asked ? &d->ring[d->done % d->length] : NULL;
    pthread_mutex_unlock(&d->mutex);
    return c;
}

static void end_command(device *d)
{
    pthread_mutex_lock(&d->mutex);
    d->done++;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mutex);
}

/* Sometimes at once, sometimes after others had a turn, sometimes later. */
static void dawdle(device *d)
{
    int delay = d->gpu->settings.delay;
    d->random ^= d->random << 13;
    d->random ^= d->random >> 17;
    d->random ^= d->random << 5;
    if (delay > 0 && d->random % 4 == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 1000L * (long)(d->random / 4 % (uint32_t)delay) }, NULL);
    else if (delay > 0 && d->random % 4 == 1)
        sched_yield();
}

static void *work(void *argument)
{
    device *d = argument;
    command *c;
    while ((c = next_command(d))) {
        dawdle(d);
        wait_while_held(d->gpu);
        carry_out(d, c);
        end_command(d);
    }
    return NULL;
}

/* ---- Calls: what begins and ends each ---- */

static ls_status enter(device *d)
{
    return atomic_exchange(&d->inside, true) ? misuse(d, "two threads call it at once") : LS_OK;
}

static void leave(device *d)
{
    atomic_store(&d->inside, false);
}

/* enter, and the call is counted and fails if it was told to. */
static ls_status enter_call(device *d, gpu_call call, size_t bytes, bool *late)
{
    ls_status status = enter(d);
    if (status == LS_OK && count_call(d->gpu, call, bytes, late)) {
        leave(d);
        status = ls_backend_fail(call == GPU_ALLOC ? LS_ERR_MEMORY : LS_ERR_DEVICE,
                                 "GPU:%d: %s failed, as it was told to", d->number, gpu_call_name(call));
    }
    if (status == LS_OK && is_lost(d->gpu, d->number, call)) {
        wait_idle(d); /* it reads nobody's memory any more */
        leave(d);
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
        misuse(d, "%p is no buffer of it", handle);
    return b;
}

static buffer *find_bytes(device *d, void *handle, size_t offset, size_t bytes)
{
    buffer *b = find_buffer(d, handle);
    if (b && (offset > b->size || bytes > b->size - offset)) {
        misuse(d, "%zu bytes at %zu of a buffer of %zu", bytes, offset, b->size);
        b = NULL;
    }
    return b;
}

/* Bytes of a buffer. */
typedef struct range {
    const buffer *at;
    size_t begin, end;
} range;

static bool overlap(range a, range b)
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
    if (!count_memory(d, bytes, true))
        return ls_backend_fail(LS_ERR_MEMORY, "GPU:%d: %zu bytes are more than is left of %zu", d->number, bytes,
                               d->gpu->settings.memory);
    buffer *b = make_buffer(bytes);
    if (!b) {
        count_memory(d, bytes, false);
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
    ls_status status = enter_call(d, GPU_ALLOC, bytes, &late);
    if (status == LS_OK) {
        status = take_buffer(d, bytes, handle);
        leave(d);
    }
    return status;
}

static void gpu_free(void *device_, void *handle)
{
    device *d = device_;
    if (enter(d) != LS_OK)
        return;
    buffer *b = find_buffer(d, handle);
    if (b) {
        wait_idle(d);
        unmap(b->bytes, b->mapped);
        pthread_mutex_lock(&d->mutex);
        b->bytes = NULL;
        pthread_mutex_unlock(&d->mutex);
        count_memory(d, b->size, false);
    }
    leave(d);
}

/* ---- Bytes in and out ---- */

static ls_status queue_upload(device *d, void *handle, size_t offset, const void *from, size_t bytes, bool late)
{
    buffer *b = find_bytes(d, handle, offset, bytes);
    if (!b || bytes == 0)
        return b ? LS_OK : LS_ERR_INTERNAL;
    command *c = claim(d, UPLOAD);
    ls_status status = stage(d, c, bytes);
    if (status != LS_OK)
        return status;
    memcpy(c->staging, from, bytes);
    c->fails = late;
    c->at = b;
    c->offset = offset;
    c->bytes = bytes;
    post(d);
    return LS_OK;
}

static ls_status gpu_upload(void *device_, void *handle, size_t offset, const void *from, size_t bytes)
{
    device *d = device_;
    bool late;
    ls_status status = enter_call(d, GPU_UPLOAD, bytes, &late);
    if (status == LS_OK) {
        status = queue_upload(d, handle, offset, from, bytes, late);
        leave(d);
    }
    return status;
}

static ls_status queue_download(device *d, void *handle, size_t offset, void *to, size_t bytes)
{
    buffer *b = find_bytes(d, handle, offset, bytes);
    if (!b)
        return LS_ERR_INTERNAL;
    if (bytes > 0) {
        command *c = claim(d, DOWNLOAD);
        c->at = b;
        c->offset = offset;
        c->bytes = bytes;
        c->to = to;
        post(d);
    }
    return wait_and_tell(d);
}

static ls_status gpu_download(void *device_, void *handle, size_t offset, void *to, size_t bytes)
{
    device *d = device_;
    bool late;
    ls_status status = enter_call(d, GPU_DOWNLOAD, bytes, &late);
    if (status == LS_OK) {
        status = queue_download(d, handle, offset, to, bytes);
        leave(d);
    }
    return status;
}

typedef struct copy_call {
    device *to_device, *from_device;
    void *to, *from;
    size_t to_offset, from_offset, bytes;
} copy_call;

/* The bytes are read when the copy's turn comes, on the thread of the device that they go to. Nothing of the other
 * device is waited for or kept from changing: that is the library's part. */
static ls_status queue_copy(const copy_call *call, bool late)
{
    buffer *to = find_bytes(call->to_device, call->to, call->to_offset, call->bytes);
    buffer *from = find_bytes(call->from_device, call->from, call->from_offset, call->bytes);
    if (!to || !from)
        return LS_ERR_INTERNAL;
    command *c = claim(call->to_device, COPY);
    c->fails = late;
    c->at = to;
    c->offset = call->to_offset;
    c->from = from;
    c->from_offset = call->from_offset;
    c->bytes = call->bytes;
    post(call->to_device);
    return LS_OK;
}

static ls_status gpu_copy(void *to_device, void *to, size_t to_offset, void *from_device, void *from,
                          size_t from_offset, size_t bytes)
{
    copy_call call = { to_device, from_device, to, from, to_offset, from_offset, bytes };
    bool late;
    ls_status status = enter_call(to_device, GPU_COPY, bytes, &late);
    if (status == LS_OK) {
        const device *from = from_device;
        status = is_lost(from->gpu, from->number, GPU_CALLS)
                     ? ls_backend_fail(LS_ERR_DEVICE, "GPU:%d is lost, and cannot be copied from", from->number)
                     : queue_copy(&call, late);
        leave(to_device);
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
        return misuse(d, "a join of kind %d, of %lld elements of %s", (int)call->kind, (long long)call->count,
                      ls_dtype_name(call->dtype));
    if (overlap(to, left) && to.begin != left.begin)
        return misuse(d, "a join's result lies over a part of its left operand");
    if (right.at && overlap(to, right))
        return misuse(d, "a join's result lies over its right operand");
    return LS_OK;
}

static ls_status queue_join(device *d, const ls_join_call *call, bool late)
{
    const ls_memory_place *right_at = &call->right;
    size_t bytes = bytes_of(call->dtype, call->count);
    buffer *to = find_bytes(d, call->to.memory, call->to.offset, bytes);
    buffer *left = to ? find_bytes(d, call->left.memory, call->left.offset, bytes) : NULL;
    buffer *right = left && right_at->memory ? find_bytes(d, right_at->memory, right_at->offset, bytes) : NULL;
    if (!left || (right_at->memory && !right))
        return LS_ERR_INTERNAL;
    ls_status status = check_join(d, call, (range){ to, call->to.offset, call->to.offset + bytes },
                                  (range){ left, call->left.offset, call->left.offset + bytes },
                                  (range){ right, right_at->offset, right_at->offset + bytes });
    if (status != LS_OK)
        return status;
    command *c = claim(d, JOIN);
    c->fails = late;
    c->at = to;
    c->offset = call->to.offset;
    c->from = left;
    c->from_offset = call->left.offset;
    c->right = right;
    c->join = *call;
    post(d);
    return LS_OK;
}

static ls_status gpu_join(void *device_, const ls_join_call *call)
{
    device *d = device_;
    bool late;
    ls_status status = enter_call(d, GPU_JOIN, bytes_of(call->dtype, call->count), &late);
    if (status == LS_OK) {
        status = queue_join(d, call, late);
        leave(d);
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
        return misuse(device_, "%d lanes are joined, and none has anything", call->lanes);
    if (status != LS_OK || (out.memory == call->to.memory && out.offset == call->to.offset))
        return status;
    return gpu_join(device_, &(ls_join_call){ call->kind, call->dtype, call->count, call->to, out, { NULL, 0 } });
}

static ls_status queue_finite(device *d, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out)
{
    size_t bytes = bytes_of(dtype, count);
    buffer *b = find_bytes(d, from.memory, from.offset, bytes);
    if (!b)
        return LS_ERR_INTERNAL;
    command *c = claim(d, FINITE);
    c->at = b;
    c->offset = from.offset;
    c->bytes = bytes;
    c->dtype = dtype;
    c->finite = out;
    post(d);
    return wait_and_tell(d);
}

static ls_status gpu_finite(void *device_, ls_dtype dtype, ls_memory_place from, int64_t count, bool *out)
{
    device *d = device_;
    bool late;
    ls_status status = enter_call(d, GPU_FINITE, bytes_of(dtype, count), &late);
    if (status == LS_OK) {
        status = queue_finite(d, dtype, from, count, out);
        leave(d);
    }
    return status;
}

/* ---- Programs ---- */

static void free_plan(plan *p)
{
    free(p->in);
    free(p->state);
    free(p->new_state);
    free(p);
}

/* Every step can be done. The most inputs and the most values of state that one has. */
static ls_status check_program(device *d, const ls_program *program, int *most_inputs, int *most_state)
{
    *most_inputs = *most_state = 0;
    for (int i = 0; i < program->step_count; i++) {
        const ls_tensor *node = program->steps[i].node;
        int inputs = ls_tensor_input_count(node), count = program->steps[i].state_count;
        if (!d->gpu->table.supports(d->gpu, node))
            return misuse(d, "%s: it has no %s", node_name(node), ls_tensor_op(node));
        if ((strcmp(ls_tensor_op(node), "apply") == 0) != (count > 0))
            return misuse(d, "%s: %s with %d values of state", node_name(node), ls_tensor_op(node), count);
        *most_inputs = inputs > *most_inputs ? inputs : *most_inputs;
        *most_state = count > *most_state ? count : *most_state;
    }
    return LS_OK;
}

static plan *allocate_plan(int inputs, int state)
{
    plan *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->in = calloc((size_t)inputs + 1, sizeof *p->in);
    p->state = calloc((size_t)state + 1, sizeof *p->state);
    p->new_state = calloc((size_t)state + 1, sizeof *p->new_state);
    if (!p->in || !p->state || !p->new_state) {
        free_plan(p);
        return NULL;
    }
    return p;
}

static ls_status make_plan(device *d, const ls_program *program, void **out)
{
    int inputs, state;
    ls_status status = check_program(d, program, &inputs, &state);
    if (status != LS_OK)
        return status;
    plan *p = allocate_plan(inputs, state);
    if (!p)
        return ls_backend_fail(LS_ERR_MEMORY, "GPU:%d: no memory for a plan of %d steps", d->number,
                               program->step_count);
    p->owner = d;
    p->program = *program;
    count_change(d->gpu, &d->gpu->counts.plans, 1);
    *out = p;
    return LS_OK;
}

static ls_status gpu_plan_create(void *device_, const ls_program *program, void **out)
{
    device *d = device_;
    bool late;
    ls_status status = enter_call(d, GPU_PLAN, 0, &late);
    if (status == LS_OK) {
        status = make_plan(d, program, out);
        leave(d);
    }
    return status;
}

static void gpu_plan_destroy(void *device_, void *plan_)
{
    device *d = device_;
    plan *p = plan_;
    if (enter(d) != LS_OK)
        return;
    if (p->owner != d) {
        misuse(d, "a plan of another device is destroyed");
    } else {
        wait_idle(d);
        free_plan(p);
        count_change(d->gpu, &d->gpu->counts.plans, -1);
    }
    leave(d);
}

/* A run that is looked at before it is queued. */
typedef struct check {
    device *d;
    const ls_program_run *run;
    buffer *room[LS_ROOM_COUNT];
    range used[LS_ROOM_COUNT]; /* of each room, from the first byte to the last */
} check;

static range range_of(const check *k, const ls_program_slot *slot)
{
    return (range){ k->room[slot->room], slot_begin(slot, k->run), slot_end(slot, k->run) };
}

/* Its room has memory, and it lies in it. */
static ls_status check_slot(check *k, const ls_tensor *node, const char *what, int number, const ls_program_slot *slot)
{
    if ((int)slot->room < 0 || slot->room >= LS_ROOM_COUNT || !k->room[slot->room])
        return misuse(k->d, "%s: %s %d is in room %d, which has no memory", node_name(node), what, number,
                      (int)slot->room);
    range r = range_of(k, slot), *used = &k->used[slot->room];
    if (r.end > r.at->size)
        return misuse(k->d, "%s: %s %d ends at %zu of a buffer of %zu", node_name(node), what, number, r.end,
                      r.at->size);
    if (!used->at)
        *used = r;
    used->begin = r.begin < used->begin ? r.begin : used->begin;
    used->end = r.end > used->end ? r.end : used->end;
    return LS_OK;
}

static ls_status check_slots(check *k, const ls_tensor *node, const char *what, const ls_program_slot *slots, int count)
{
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < count; i++)
        status = check_slot(k, node, what, i, &slots[i]);
    return status;
}

/* Kernels do not write what they read, and nothing of a run writes the state that it reads. */
static ls_status check_write(const check *k, const ls_program_step *step, const char *what, int number,
                             const ls_program_slot *slot)
{
    const char *name = node_name(step->node);
    range to = range_of(k, slot);
    if (slot->room == LS_ROOM_STATE)
        return misuse(k->d, "%s: %s %d is in the room of the state that the run reads", name, what, number);
    for (int i = 0; i < ls_tensor_input_count(step->node); i++)
        if (overlap(to, range_of(k, &step->in[i])))
            return misuse(k->d, "%s: %s %d lies over input %d", name, what, number, i);
    for (int i = 0; i < step->state_count; i++)
        if (overlap(to, range_of(k, &step->state[i])))
            return misuse(k->d, "%s: %s %d lies over state %d", name, what, number, i);
    return LS_OK;
}

/* The new state of a step: of `apply` alone. Its output is the first of it. */
static ls_status check_new_state(const check *k, const ls_program_step *step)
{
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < step->state_count; i++) {
        range to = range_of(k, &step->new_state[i]), out = range_of(k, &step->out);
        if (i == 0 && (to.at != out.at || to.begin != out.begin || to.end != out.end))
            return misuse(k->d, "%s: its output is not its new state 0", node_name(step->node));
        for (int j = 0; j < i; j++)
            if (overlap(to, range_of(k, &step->new_state[j])))
                return misuse(k->d, "%s: new state %d lies over new state %d", node_name(step->node), i, j);
        status = check_write(k, step, "new state", i, &step->new_state[i]);
    }
    return status;
}

static ls_status check_step(check *k, const ls_program_step *step)
{
    const ls_tensor *node = step->node;
    ls_status status = check_slot(k, node, "output", 0, &step->out);
    if (status == LS_OK)
        status = check_slots(k, node, "input", step->in, ls_tensor_input_count(node));
    if (status == LS_OK)
        status = check_slots(k, node, "state", step->state, step->state_count);
    if (status == LS_OK)
        status = check_slots(k, node, "new state", step->new_state, step->state_count);
    if (status == LS_OK)
        status = check_write(k, step, "output", 0, &step->out);
    return status == LS_OK ? check_new_state(k, step) : status;
}

static ls_status find_rooms(check *k)
{
    for (int i = 0; i < LS_ROOM_COUNT; i++) {
        const ls_memory_place *at = &k->run->room[i];
        if (at->memory && !(k->room[i] = find_bytes(k->d, at->memory, at->offset, 0)))
            return LS_ERR_INTERNAL;
    }
    return LS_OK;
}

static ls_status check_run(check *k, const plan *p)
{
    const ls_program_run *run = k->run;
    ls_status status = find_rooms(k);
    if (status != LS_OK)
        return status;
    if (p->owner != k->d)
        return misuse(k->d, "a plan of another device is run");
    if (run->samples < 0 || run->samples > p->program.samples || run->row < 0)
        return misuse(k->d, "%lld samples at row %lld, of a program for %lld", (long long)run->samples,
                      (long long)run->row, (long long)p->program.samples);
    for (int i = 0; status == LS_OK && i < p->program.step_count; i++)
        status = check_step(k, &p->program.steps[i]);
    range old = k->used[LS_ROOM_STATE], new = k->used[LS_ROOM_NEW_STATE];
    if (status == LS_OK && old.at && overlap(old, new))
        status = misuse(k->d, "a run's new state, from %zu to %zu, lies over its state, from %zu to %zu", new.begin,
                        new.end, old.begin, old.end);
    return status;
}

static ls_status queue_run(device *d, plan *p, const ls_program_run *run, bool late)
{
    check k = { .d = d, .run = run };
    ls_status status = check_run(&k, p);
    if (status != LS_OK)
        return status;
    command *c = claim(d, RUN);
    c->fails = late;
    c->plan = p;
    memcpy(c->room, k.room, sizeof c->room);
    c->run = *run;
    post(d);
    return LS_OK;
}

static ls_status gpu_plan_run(void *device_, void *plan_, const ls_program_run *run)
{
    device *d = device_;
    bool late;
    ls_status status = enter_call(d, GPU_RUN, 0, &late);
    if (status == LS_OK) {
        status = queue_run(d, plan_, run, late);
        leave(d);
    }
    return status;
}

/* The last lane first: none may need another's room. */
static ls_status gpu_plan_run_lanes(void *device_, void *plan_, const ls_program_run *runs, int count)
{
    device *d = device_;
    plan *p = plan_;
    ls_status status = LS_OK;
    if (count < 1 || count > p->program.lanes)
        return misuse(d, "%d lanes of a program for %d", count, p->program.lanes);
    for (int i = count; i-- > 0 && status == LS_OK;)
        status = gpu_plan_run(d, p, &runs[i]);
    return status;
}

static ls_status gpu_sync(void *device_)
{
    device *d = device_;
    bool late;
    ls_status status = enter_call(d, GPU_SYNC, 0, &late);
    if (status == LS_OK) {
        status = wait_and_tell(d);
        leave(d);
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
    int failed = pthread_create(&d->thread, NULL, work, d);
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
    if (count_call(g, GPU_OPEN, 0, &late))
        return ls_backend_fail(LS_ERR_DEVICE, "GPU:%d: open failed, as it was told to", number);
    if (number < 0 || number >= g->settings.devices)
        return ls_backend_fail(LS_ERR_NOT_FOUND, "GPU:%d: there are %d", number, g->settings.devices);
    device *d = make_device(g, number);
    if (!d)
        return ls_backend_fail(LS_ERR_MEMORY, "GPU:%d: no memory or no thread for it", number);
    count_change(g, &g->counts.devices, 1);
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
    count_change(d->gpu, &d->gpu->counts.devices, -1);
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
