/* libcuda.so.1 of the stand-in: see standin.h. One lock for all; streams do their work without
 * it. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#define FLUSHES 0x8040u /* MXCSR: subnormal results become zeros, operands are taken as zeros */
#endif

#include "standin.h"

#define API __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    MOST_DEVICES = 16,
    MOST_PLACES = 16,
    DEEP = 16,
};

/* A device of the machine and its primary context. */
typedef struct context {
    int number, retained;
    size_t used;
    int error;           /* broken for good; 0: it is well */
    int lose, lose_with; /* at which launch, and how */
    bool rounds_twice, flushes;
} context;

typedef struct block {
    struct block *next;
    context *of; /* NULL: pinned memory of the host */
    char *at;
    size_t bytes;
} block;

typedef struct event {
    context *of;
    int waiting; /* records that are still to come */
} event;

typedef struct function {
    struct function *next;
    const standin_kernel *kernel;
} function;

typedef struct module {
    context *of;
    const standin_module *what;
    function *functions;
} module;

typedef struct command {
    struct command *next;
    void *to;
    const void *from;
    size_t bytes;                 /* of a copy */
    event *event;                 /* or a record, */
    const standin_kernel *kernel; /* or a launch */
    void *packed;
    standin_grid grid;
    void (*function)(const void *packed); /* or one of another library's, */
    const standin_area *areas;            /* which is in `packed`, with what it reads and writes */
    int area_count;
} command;

typedef struct stream {
    context *of;
    pthread_t thread;
    command *first, **last;
    bool busy, ends;
} stream;

extern const standin_module standin_modules[];
extern const int standin_module_count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* a queue, or how far one is */
static context contexts[MOST_DEVICES];
static int visible[MOST_DEVICES], visible_count;
static size_t memory_each;
static bool ready;
static block *blocks;
static int held, misuses;
static __thread context *stack[DEEP];
static __thread int depth;

/* ---- Calls: counted, and made to fail ---- */

static struct call {
    const char *name;
    long count;
    int nth, error;
} calls[128];

static struct call *call_of(const char *name)
{
    int i = 0;
    while (calls[i].name && strcmp(calls[i].name, name) != 0)
        i++;
    if (!calls[i].name)
        calls[i].name = name;
    return &calls[i];
}

static int misuse(int error)
{
    misuses++;
    return error;
}

/* Every call begins so, and has the lock until leave. current: it needs a context that is whole. */
static int enter(const char *name, bool current)
{
    pthread_mutex_lock(&lock);
    struct call *c = call_of(name);
    if (!ready && strcmp(name, "cuInit") != 0)
        return misuse(3);
    if (c->nth > 0 && --c->nth == 0)
        return c->error;
    if (current && (depth == 0 || stack[depth - 1]->retained == 0))
        return misuse(INVALID_CONTEXT);
    if (current && stack[depth - 1]->error)
        return stack[depth - 1]->error;
    return SUCCESS;
}

static int leave(const char *name, int error)
{
    if (error == SUCCESS)
        call_of(name)->count++;
    pthread_mutex_unlock(&lock);
    return error;
}

static context *current(void)
{
    return stack[depth - 1];
}

API bool standin_fail(const char *name, int nth, int error)
{
    pthread_mutex_lock(&lock);
    struct call *c = call_of(name);
    bool came = c->nth == 0;
    c->nth = nth;
    c->error = error;
    pthread_mutex_unlock(&lock);
    return came;
}

API void standin_lose(int device, int nth, int error)
{
    pthread_mutex_lock(&lock);
    contexts[device].lose = nth;
    contexts[device].lose_with = error;
    if (nth == 0)
        contexts[device].error = 0;
    pthread_mutex_unlock(&lock);
}

static bool break_device(context *c, const char *fault)
{
    c->rounds_twice = strcmp(fault, "fma") == 0;
    c->flushes = strcmp(fault, "subnormals") == 0;
#ifndef FLUSHES
    if (c->flushes)
        return false;
#endif
    return c->rounds_twice || c->flushes || !fault[0];
}

API bool standin_break(int device, const char *fault)
{
    pthread_mutex_lock(&lock);
    bool known = break_device(&contexts[device], fault);
    pthread_mutex_unlock(&lock);
    return known;
}

API long standin_count(const char *name)
{
    pthread_mutex_lock(&lock);
    long count = call_of(name)->count;
    pthread_mutex_unlock(&lock);
    return count;
}

API int standin_held(void)
{
    pthread_mutex_lock(&lock);
    int count = held;
    pthread_mutex_unlock(&lock);
    return count;
}

/* For the other libraries of the stand-in: one more thing held, or one less; a call that no program
 * may make. */
API void standin_hold(int count)
{
    pthread_mutex_lock(&lock);
    held += count;
    pthread_mutex_unlock(&lock);
}

API void standin_misuse(void)
{
    pthread_mutex_lock(&lock);
    misuses++;
    pthread_mutex_unlock(&lock);
}

/* A call of theirs: counted, or made to fail with the error that is returned. */
API int standin_call(const char *name)
{
    pthread_mutex_lock(&lock);
    struct call *c = call_of(name);
    int error = c->nth > 0 && --c->nth == 0 ? c->error : SUCCESS;
    return leave(name, error);
}

/* The context of a stream, and one by its device's number. */
API void *standin_context_of(const void *stream_)
{
    return ((const stream *)stream_)->of;
}

API void *standin_context(int number)
{
    return number >= 0 && number < visible_count ? &contexts[visible[number]] : NULL;
}

/* The thread's; NULL: none. */
API void *standin_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

API int standin_misuses(void)
{
    pthread_mutex_lock(&lock);
    int count = misuses;
    pthread_mutex_unlock(&lock);
    return count;
}

/* ---- Devices ---- */

static long number_of(const char *variable, long otherwise)
{
    const char *said = getenv(variable);
    return said ? strtol(said, NULL, 10) : otherwise;
}

/* "1,0": in this order, up to the first that is not there. */
static void look(void)
{
    long count = number_of("STANDIN_CUDA_DEVICES", 2);
    const char *said = getenv("CUDA_VISIBLE_DEVICES");
    memory_each = (size_t)number_of("STANDIN_CUDA_MEMORY", 256 << 20);
    const char *fault = getenv("STANDIN_CUDA_BROKEN");
    for (int i = 0; i < MOST_DEVICES; i++) {
        contexts[i].number = i;
        if (!ready && fault)
            break_device(&contexts[i], fault);
    }
    visible_count = 0;
    for (int i = 0; !said && i < count; i++)
        visible[visible_count++] = i;
    while (said && *said) {
        char *end;
        long number = strtol(said, &end, 10);
        if (end == said || number < 0 || number >= count)
            break;
        visible[visible_count++] = (int)number;
        said = *end == ',' ? end + 1 : end;
    }
    ready = true;
}

API int cuInit(unsigned flags)
{
    int error = enter("cuInit", false);
    if (error == SUCCESS) {
        look();
        error = flags ? INVALID_VALUE : visible_count == 0 ? NO_DEVICE : SUCCESS;
    }
    return leave("cuInit", error);
}

API int cuDriverGetVersion(int *version)
{
    *version = (int)number_of("STANDIN_CUDA_DRIVER", 13000);
    return SUCCESS;
}

API int cuGetErrorName(int error, const char **name)
{
    *name = error == OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == NO_DEVICE       ? "CUDA_ERROR_NO_DEVICE"
            : error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == 719             ? "CUDA_ERROR_LAUNCH_FAILED"
                                       : NULL;
    return *name ? SUCCESS : INVALID_VALUE;
}

API int cuDeviceGetCount(int *count)
{
    int error = enter("cuDeviceGetCount", false);
    if (error == SUCCESS) {
        *count = visible_count;
    }
    return leave("cuDeviceGetCount", error);
}

API int cuDeviceGet(int *device, int number)
{
    int error = enter("cuDeviceGet", false);
    if (error == SUCCESS) {
        error = number < 0 || number >= visible_count ? INVALID_DEVICE : SUCCESS;
        if (error == SUCCESS)
            *device = visible[number] + 100; /* a handle is no number */
    }
    return leave("cuDeviceGet", error);
}

API int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "Stand-in %d", device - 100);
    return SUCCESS;
}

API int cuDeviceGetPCIBusId(char *id, int size, int device)
{
    snprintf(id, (size_t)size, "0000:%02x:00.0", device - 100);
    return SUCCESS;
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = memory_each;
    return SUCCESS;
}

API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    long arch = number_of("STANDIN_CUDA_ARCH", 80), odd = number_of("STANDIN_CUDA_ODD", -1);
    *value = attribute == 75   ? (int)(arch / 10)
             : attribute == 76 ? (int)(arch % 10)
                               : 108 - (device - 100 == odd); /* multiprocessors */
    return attribute == 75 || attribute == 76 || attribute == 16 ? SUCCESS : INVALID_VALUE;
}

API int cuDeviceCanAccessPeer(int *can, int device, int other)
{
    *can = device != other;
    return SUCCESS;
}

/* ---- Contexts ---- */

API int cuDevicePrimaryCtxRetain(context **out, int device)
{
    int error = enter("cuDevicePrimaryCtxRetain", false);
    if (error == SUCCESS) {
        *out = &contexts[device - 100];
        (*out)->retained++;
        held++;
    }
    return leave("cuDevicePrimaryCtxRetain", error);
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
    int error = enter("cuDevicePrimaryCtxRelease", false);
    if (error == SUCCESS) {
        context *c = &contexts[device - 100];
        error = c->retained > 0 ? SUCCESS : misuse(INVALID_CONTEXT);
        c->retained -= error == SUCCESS;
        held -= error == SUCCESS;
    }
    return leave("cuDevicePrimaryCtxRelease", error);
}

API int cuCtxPushCurrent_v2(context *c)
{
    int error = enter("cuCtxPushCurrent", false);
    if (error == SUCCESS) {
        error = depth < DEEP && c ? SUCCESS : misuse(INVALID_CONTEXT);
        if (error == SUCCESS)
            stack[depth++] = c;
    }
    return leave("cuCtxPushCurrent", error);
}

API int cuCtxPopCurrent_v2(context **out)
{
    int error = enter("cuCtxPopCurrent", false);
    if (error == SUCCESS) {
        error = depth > 0 ? SUCCESS : INVALID_CONTEXT;
        depth -= error == SUCCESS;
        if (out && error == SUCCESS)
            *out = stack[depth];
    }
    return leave("cuCtxPopCurrent", error);
}

API int cuCtxEnablePeerAccess(context *other, unsigned flags)
{
    int error = enter("cuCtxEnablePeerAccess", true);
    if (error == SUCCESS) {
        error = flags || other == current() ? misuse(INVALID_VALUE) : SUCCESS;
    }
    return leave("cuCtxEnablePeerAccess", error);
}

/* ---- Memory ---- */

static block *find_block(const context *of, const void *at, size_t bytes)
{
    for (block *b = blocks; b; b = b->next)
        if (b->of == of && (const char *)at >= b->at && (const char *)at + bytes <= b->at + b->bytes)
            return b;
    return NULL;
}

static int add_block(context *of, size_t bytes, char **out)
{
    if (bytes == 0)
        return misuse(INVALID_VALUE);
    if (of && bytes > memory_each - of->used)
        return OUT_OF_MEMORY;
    block *b = malloc(sizeof *b);
    char *at = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!b || !at) {
        free(b);
        free(at);
        return OUT_OF_MEMORY;
    }
    memset(at, 0xff, bytes);
    *b = (block){ blocks, of, at, bytes };
    blocks = b;
    held++;
    if (of)
        of->used += bytes;
    *out = at;
    return SUCCESS;
}

static int drop_block(const void *at, bool pinned)
{
    block **to = &blocks;
    while (*to && (*to)->at != at)
        to = &(*to)->next;
    block *b = *to;
    if (!b || pinned != !b->of)
        return misuse(INVALID_VALUE);
    *to = b->next;
    if (b->of)
        b->of->used -= b->bytes;
    free(b->at);
    free(b);
    held--;
    return SUCCESS;
}

API int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
    char *at = NULL;
    int error = enter("cuMemAlloc", true);
    if (error == SUCCESS) {
        error = add_block(current(), bytes, &at);
        *out = (uint64_t)(uintptr_t)at;
    }
    return leave("cuMemAlloc", error);
}

/* A broken context gives back nothing on a GPU, until it goes; here it does, so that what is left
 * is counted. */
API int cuMemFree_v2(uint64_t memory)
{
    pthread_mutex_lock(&lock);
    return leave("cuMemFree", drop_block((void *)(uintptr_t)memory, false));
}

API int cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    char *at = NULL;
    (void)flags;
    int error = enter("cuMemHostAlloc", true);
    if (error == SUCCESS) {
        error = add_block(NULL, bytes, &at);
        *out = at;
    }
    return leave("cuMemHostAlloc", error);
}

API int cuMemFreeHost(void *memory)
{
    pthread_mutex_lock(&lock);
    return leave("cuMemFreeHost", drop_block(memory, true));
}

/* ---- Streams ---- */

/* A launch that is given a place of no memory of the device breaks the context. */
static int begin_launch(context *of, const command *c)
{
    const void *places[MOST_PLACES];
    int count = c->kernel ? c->kernel->places(c->packed, places) : 0;
    if (of->lose > 0 && --of->lose == 0)
        return of->lose_with;
    for (int i = 0; i < count; i++)
        if (!find_block(of, places[i], 1))
            return ILLEGAL_ADDRESS;
    for (int i = 0; i < c->area_count; i++)
        if (!find_block(of, c->areas[i].at, c->areas[i].bytes))
            return ILLEGAL_ADDRESS;
    return SUCCESS;
}

static void run_kernel(const command *c, bool flushes)
{
#ifdef FLUSHES
    unsigned mode = _mm_getcsr();
    _mm_setcsr(flushes ? mode | FLUSHES : mode);
    c->kernel->run(c->packed, &c->grid);
    _mm_setcsr(mode);
#else
    (void)flushes;
    c->kernel->run(c->packed, &c->grid);
#endif
}

static void *work(void *stream_)
{
    stream *s = stream_;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!s->first && !s->ends)
            pthread_cond_wait(&changed, &lock);
        command *c = s->first;
        if (!c)
            break;
        s->first = c->next;
        s->last = s->first ? s->last : &s->first;
        s->busy = true;
        if ((c->kernel || c->function) && !s->of->error)
            s->of->error = begin_launch(s->of, c);
        bool well = !s->of->error, flushes = s->of->flushes;
        c->grid.rounds_twice = s->of->rounds_twice;
        pthread_mutex_unlock(&lock);
        if (well && c->kernel)
            run_kernel(c, flushes);
        else if (well && c->function)
            c->function(c->packed);
        else if (well && c->to)
            memmove(c->to, c->from, c->bytes);
        pthread_mutex_lock(&lock);
        if (c->event)
            c->event->waiting--;
        free(c->packed);
        free(c);
        s->busy = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int put(stream *s, command what)
{
    command *c = s && s->of == current() ? malloc(sizeof *c) : NULL;
    if (!c)
        return misuse(INVALID_HANDLE);
    *c = what;
    c->next = NULL;
    *s->last = c;
    s->last = &c->next;
    pthread_cond_broadcast(&changed);
    return SUCCESS;
}

/* Work of another library's on a stream: `packed` is freed behind it, also where this fails. */
API int standin_enqueue(void *s, void (*function)(const void *), void *packed, const standin_area *areas, int count)
{
    pthread_mutex_lock(&lock);
    int error = depth == 0 || stack[depth - 1]->retained == 0 ? misuse(INVALID_CONTEXT) : current()->error;
    if (error == SUCCESS)
        error = put(s, (command){ .function = function, .packed = packed, .areas = areas, .area_count = count });
    if (error != SUCCESS)
        free(packed);
    pthread_mutex_unlock(&lock);
    return error;
}

static void drain(stream *s)
{
    while (s->first || s->busy)
        pthread_cond_wait(&changed, &lock);
}

API int cuStreamCreate(stream **out, unsigned flags)
{
    (void)flags;
    int error = enter("cuStreamCreate", true);
    if (error == SUCCESS) {
        stream *s = calloc(1, sizeof *s);
        if (s) {
            s->of = current();
            s->last = &s->first;
        }
        error = s && pthread_create(&s->thread, NULL, work, s) == 0 ? SUCCESS : OUT_OF_MEMORY;
        held += error == SUCCESS;
        *out = s;
    }
    return leave("cuStreamCreate", error);
}

API int cuStreamDestroy_v2(stream *s)
{
    pthread_mutex_lock(&lock);
    s->ends = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    free(s);
    pthread_mutex_lock(&lock);
    held--;
    return leave("cuStreamDestroy", SUCCESS);
}

API int cuStreamQuery(stream *s)
{
    int error = enter("cuStreamQuery", true);
    if (error == SUCCESS)
        error = s->first || s->busy ? NOT_READY : s->of->error;
    return leave("cuStreamQuery", error);
}

API int cuStreamSynchronize(stream *s)
{
    int error = enter("cuStreamSynchronize", true);
    if (error == SUCCESS) {
        drain(s);
        error = s->of->error;
    }
    return leave("cuStreamSynchronize", error);
}

API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, stream *s)
{
    int error = enter("cuMemcpyHtoDAsync", true);
    if (error == SUCCESS) {
        void *at = (void *)(uintptr_t)to;
        error = find_block(current(), at, bytes) ? put(s, (command){ .to = at, .from = from, .bytes = bytes })
                                                 : misuse(INVALID_VALUE);
    }
    return leave("cuMemcpyHtoDAsync", error);
}

API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, stream *s)
{
    int error = enter("cuMemcpyDtoHAsync", true);
    if (error == SUCCESS) {
        void *at = (void *)(uintptr_t)from;
        error = find_block(current(), at, bytes) ? put(s, (command){ .to = to, .from = at, .bytes = bytes })
                                                 : misuse(INVALID_VALUE);
    }
    return leave("cuMemcpyDtoHAsync", error);
}

static int copy_between(uint64_t to, const context *to_context, uint64_t from, const context *from_context,
                        size_t bytes, stream *s)
{
    void *to_at = (void *)(uintptr_t)to, *from_at = (void *)(uintptr_t)from;
    if (!find_block(to_context, to_at, bytes) || !find_block(from_context, from_at, bytes))
        return misuse(INVALID_VALUE);
    if (from_context->error)
        return from_context->error;
    return put(s, (command){ .to = to_at, .from = from_at, .bytes = bytes });
}

API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, stream *s)
{
    int error = enter("cuMemcpyDtoDAsync", true);
    if (error == SUCCESS) {
        error = copy_between(to, current(), from, current(), bytes, s);
    }
    return leave("cuMemcpyDtoDAsync", error);
}

API int cuMemcpyPeerAsync(uint64_t to, context *to_context, uint64_t from, context *from_context, size_t bytes,
                          stream *s)
{
    int error = enter("cuMemcpyPeerAsync", true);
    if (error == SUCCESS) {
        error = copy_between(to, to_context, from, from_context, bytes, s);
    }
    return leave("cuMemcpyPeerAsync", error);
}

/* ---- Events ---- */

API int cuEventCreate(event **out, unsigned flags)
{
    (void)flags;
    int error = enter("cuEventCreate", true);
    if (error == SUCCESS) {
        event *e = calloc(1, sizeof *e);
        error = e ? SUCCESS : OUT_OF_MEMORY;
        if (e)
            e->of = current();
        held += e != NULL;
        *out = e;
    }
    return leave("cuEventCreate", error);
}

API int cuEventRecord(event *e, stream *s)
{
    int error = enter("cuEventRecord", true);
    if (error == SUCCESS) {
        error = e->of == current() ? put(s, (command){ .event = e }) : misuse(INVALID_HANDLE);
        e->waiting += error == SUCCESS;
    }
    return leave("cuEventRecord", error);
}

API int cuEventSynchronize(event *e)
{
    int error = enter("cuEventSynchronize", true);
    if (error == SUCCESS) {
        while (e->waiting > 0)
            pthread_cond_wait(&changed, &lock);
        error = e->of->error;
    }
    return leave("cuEventSynchronize", error);
}

API int cuEventDestroy_v2(event *e)
{
    pthread_mutex_lock(&lock);
    while (e->waiting > 0)
        pthread_cond_wait(&changed, &lock);
    free(e);
    held--;
    return leave("cuEventDestroy", SUCCESS);
}

/* ---- Kernels ---- */

API int cuModuleLoadData(module **out, const char *image)
{
    /* machine code is for one architecture, and text for it and all newer ones */
    const char *begin = number_of("STANDIN_CUDA_ARCH", 80) > 90 ? "stand-in-ptx " : "stand-in ";
    int error = enter("cuModuleLoadData", true);
    if (error == SUCCESS) {
        const standin_module *what = NULL;
        for (int i = 0; strncmp(image, begin, strlen(begin)) == 0 && i < standin_module_count; i++)
            if (strcmp(image + strlen(begin), standin_modules[i].name) == 0)
                what = &standin_modules[i];
        module *m = what ? calloc(1, sizeof *m) : NULL;
        error = m ? SUCCESS : INVALID_IMAGE;
        if (m)
            *m = (module){ .of = current(), .what = what };
        held += m != NULL;
        *out = m;
    }
    return leave("cuModuleLoadData", error);
}

API int cuModuleUnload(module *m)
{
    pthread_mutex_lock(&lock);
    for (function *f = m->functions, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    free(m);
    held--;
    return leave("cuModuleUnload", SUCCESS);
}

API int cuModuleGetFunction(function **out, module *m, const char *name)
{
    int error = enter("cuModuleGetFunction", true);
    if (error == SUCCESS) {
        error = m->of == current() ? NOT_FOUND : misuse(INVALID_HANDLE);
        for (int i = 0; error == NOT_FOUND && i < m->what->count; i++) {
            function *f = strcmp(m->what->kernels[i].name, name) == 0 ? malloc(sizeof *f) : NULL;
            if (!f)
                continue;
            *f = (function){ m->functions, &m->what->kernels[i] };
            *out = m->functions = f;
            error = SUCCESS;
        }
    }
    return leave("cuModuleGetFunction", error);
}

static bool is_grid(const standin_grid *g)
{
    const unsigned *grid = g->grid, *block_ = g->block;
    return grid[0] > 0 && grid[0] <= 0x7fffffff && grid[1] > 0 && grid[1] <= 65535 && grid[2] > 0 && grid[2] <= 65535 &&
           block_[0] > 0 && block_[0] <= 1024 && block_[1] == 1 && block_[2] == 1;
}

API int cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, stream *s, void **arguments, void **extra)
{
    standin_grid g = { .grid = { gx, gy, gz }, .block = { bx, by, bz } };
    int error = enter("cuLaunchKernel", true);
    if (error == SUCCESS) {
        error = shared || extra || !is_grid(&g) ? misuse(INVALID_VALUE) : SUCCESS;
        void *packed = error == SUCCESS ? f->kernel->pack(arguments) : NULL;
        if (packed)
            error = put(s, (command){ .kernel = f->kernel, .packed = packed, .grid = g });
        if (error != SUCCESS)
            free(packed);
    }
    return leave("cuLaunchKernel", error);
}
