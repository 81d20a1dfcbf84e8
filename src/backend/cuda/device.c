/* The functions of backend/gpu/driver.h. A device uses its primary context, shared with other users
 * of CUDA in the process, and its own stream. The context is current in a thread only during a
 * call, so programs that use CUDA themselves keep theirs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

#define MOST_GRID 65535 /* along axes 1 and 2 */

typedef ls_cuda_opened device;

/* The binary is kept until it is on disk. */
typedef struct program {
    ls_cu_module module;
    void *cubin;
    size_t bytes;
} program;

static ls_status failed(const device *d, const char *what, int error)
{
    char why[96];
    return ls_fail(error == LS_CUDA_ERROR_OUT_OF_MEMORY ? LS_ERR_MEMORY : LS_ERR_DEVICE, "%s: %s: %s", d->what->name,
                   what, ls_cuda_error(d->cu, error, why));
}

#define WITHIN LS_CUDA_WITHIN

#define CU_TRY(d, what, call)                                                                                          \
    do {                                                                                                               \
        int cu_error_;                                                                                                 \
        WITHIN(d, cu_error_, call);                                                                                    \
        if (cu_error_ != LS_CUDA_SUCCESS)                                                                              \
            return failed(d, what, cu_error_);                                                                         \
    } while (0)

/* Memory is a number for the driver, a pointer for backends. */
static ls_cu_memory at(void *memory, size_t offset)
{
    return (ls_cu_memory)(uintptr_t)memory + offset;
}

static void cu_close(void *device_)
{
    device *d = device_;
    int ignored;
    ls_nccl_leave(d);
    ls_vendor_close(d);
    if (d->stream)
        WITHIN(d, ignored, d->cu->StreamDestroy(d->stream));
    (void)ignored;
    if (d->context)
        d->cu->DevicePrimaryCtxRelease(d->what->id);
    free(d);
}

static ls_status cu_alloc(void *device_, size_t bytes, void **memory)
{
    device *d = device_;
    ls_cu_memory found = 0;
    CU_TRY(d, "no memory", d->cu->MemAlloc(&found, bytes));
    *memory = (void *)(uintptr_t)found;
    return LS_OK;
}

static void cu_free(void *device_, void *memory)
{
    device *d = device_;
    int ignored;
    WITHIN(d, ignored, d->cu->MemFree(at(memory, 0)));
    (void)ignored;
}

/* Pinned: the device reads it while the host continues. */
static void *cu_host_alloc(void *device_, size_t bytes)
{
    device *d = device_;
    void *found = NULL;
    int error;
    WITHIN(d, error, d->cu->MemHostAlloc(&found, bytes, 0));
    return error == LS_CUDA_SUCCESS ? found : NULL;
}

static void cu_host_free(void *device_, void *bytes)
{
    device *d = device_;
    int ignored;
    WITHIN(d, ignored, d->cu->MemFreeHost(bytes));
    (void)ignored;
}

static ls_status cu_wait(void *device_, void *done)
{
    device *d = device_;
    int error, ignored;
    WITHIN(d, error, d->cu->EventSynchronize(done));
    WITHIN(d, ignored, d->cu->EventDestroy(done));
    (void)ignored;
    return error == LS_CUDA_SUCCESS ? LS_OK : failed(d, "writing", error);
}

static int write_and_record(device *d, ls_cu_memory to, const void *from, size_t bytes, ls_cu_event *event)
{
    int error = d->cu->EventCreate(event, LS_CU_EVENT_DISABLE_TIMING);
    if (error != LS_CUDA_SUCCESS)
        return error;
    error = d->cu->MemcpyHtoDAsync(to, from, bytes, d->stream);
    if (error == LS_CUDA_SUCCESS)
        error = d->cu->EventRecord(*event, d->stream);
    if (error != LS_CUDA_SUCCESS) {
        d->cu->StreamSynchronize(d->stream); /* started copies may still read it */
        d->cu->EventDestroy(*event);
    }
    return error;
}

static ls_status cu_write(void *device_, void *memory, size_t offset, const void *from, size_t bytes, void **done)
{
    device *d = device_;
    ls_cu_event event = NULL;
    CU_TRY(d, "writing", write_and_record(d, at(memory, offset), from, bytes, &event));
    *done = event;
    return LS_OK;
}

static ls_status cu_finish(void *device_)
{
    device *d = device_;
    CU_TRY(d, "waiting", d->cu->StreamSynchronize(d->stream));
    return LS_OK;
}

static ls_status cu_read(void *device_, void *memory, size_t offset, void *to, size_t bytes)
{
    device *d = device_;
    CU_TRY(d, "reading", d->cu->MemcpyDtoHAsync(to, at(memory, offset), bytes, d->stream));
    CU_TRY(d, "reading", d->cu->StreamSynchronize(d->stream));
    return LS_OK;
}

/* Direct access, once per pair of devices. Without hardware support the driver copies through the
 * host. */
static void reach(device *d, const device *other)
{
    int can = 0, ignored;
    if (d->asked >> other->what->number & 1)
        return;
    d->asked |= (uint64_t)1 << other->what->number;
    if (d->cu->DeviceCanAccessPeer(&can, d->what->id, other->what->id) == LS_CUDA_SUCCESS && can)
        /* Repeating it is a harmless error. */
        WITHIN(d, ignored, d->cu->CtxEnablePeerAccess(other->context, 0));
    (void)ignored;
}

static ls_status cu_copy(void *device_, void *to, size_t to_offset, void *other_, void *from, size_t from_offset,
                         size_t bytes)
{
    device *d = device_, *other = other_;
    if (d->context == other->context) {
        CU_TRY(d, "copying", d->cu->MemcpyDtoDAsync(at(to, to_offset), at(from, from_offset), bytes, d->stream));
        return LS_OK;
    }
    reach(d, other);
    CU_TRY(
        d, "copying",
        d->cu->MemcpyPeerAsync(at(to, to_offset), d->context, at(from, from_offset), other->context, bytes, d->stream));
    return LS_OK;
}

static void cu_release(void *device_, void *program_)
{
    device *d = device_;
    program *p = program_;
    int ignored;
    WITHIN(d, ignored, d->cu->ModuleUnload(p->module));
    (void)ignored;
    free(p->cubin);
    free(p);
}

static ls_status load(device *d, const void *cubin, program **out)
{
    ls_cu_module module = NULL;
    CU_TRY(d, "kernels cannot be loaded", d->cu->ModuleLoadData(&module, cubin));
    program *p = calloc(1, sizeof(*p));
    if (!p) {
        int ignored;
        WITHIN(d, ignored, d->cu->ModuleUnload(module));
        (void)ignored;
        return ls_fail(LS_ERR_MEMORY, "no memory for kernels");
    }
    p->module = module;
    *out = p;
    return LS_OK;
}

static ls_status cu_compile(void *device_, const char *source, const char *name, void **out)
{
    device *d = device_;
    void *cubin = NULL;
    size_t bytes = 0;
    program *p = NULL;
    LS_TRY(ls_fail_within(ls_cuda_compile(&ls_cuda_get()->nvrtc, source, name, d->what->major, d->what->minor,
                                          &ls_gpu_tuning_gpu, &cubin, &bytes),
                          "%s", d->what->name));
    ls_status status = load(d, cubin, &p);
    if (status != LS_OK) {
        free(cubin);
        return status;
    }
    p->cubin = cubin;
    p->bytes = bytes;
    *out = p;
    return LS_OK;
}

static bool cu_load(void *device_, const void *binary, size_t bytes, void **out)
{
    program *p = NULL;
    (void)bytes;
    if (load(device_, binary, &p) != LS_OK)
        return false;
    *out = p;
    return true;
}

static bool cu_binary(void *device_, void *program_, void **bytes, size_t *size)
{
    program *p = program_;
    (void)device_;
    if (!p->cubin)
        return false;
    *bytes = p->cubin;
    *size = p->bytes;
    p->cubin = NULL;
    return true;
}

static ls_status cu_kernel(void *device_, void *program_, const char *name, void **out)
{
    device *d = device_;
    ls_cu_function kernel = NULL;
    CU_TRY(d, name, d->cu->ModuleGetFunction(&kernel, ((program *)program_)->module, name));
    *out = kernel;
    return LS_OK;
}

static ls_status cu_launch(void *device_, void *kernel, const ls_gpu_grid *grid)
{
    device *d = device_;
    ls_cu_memory memory[LS_GPU_PLACES], table = at(grid->table.memory, 0);
    int64_t wide = (grid->items[0] + grid->group - 1) / grid->group, table_at = (int64_t)grid->table.offset;
    int64_t y = grid->items[1] < MOST_GRID ? grid->items[1] : MOST_GRID, depth = (grid->items[1] + y - 1) / y;
    void *arguments[LS_GPU_PLACES + 3];
    int count = 0;
    if (wide > INT32_MAX || depth > MOST_GRID)
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: %s: %lld by %lld work items exceed the largest grid", d->what->name,
                       grid->kernel, (long long)grid->items[0], (long long)grid->items[1]);
    for (int i = 0; i < grid->places; i++) {
        memory[i] = at(grid->memory[i], 0);
        arguments[count++] = &memory[i];
    }
    arguments[count++] = &table;
    arguments[count++] = &table_at;
    arguments[count] = &depth;
    for (int64_t lanes = grid->lanes, most = MOST_GRID / depth; lanes > 0; lanes -= most) {
        unsigned z = (unsigned)(depth * (lanes < most ? lanes : most));
        CU_TRY(d, grid->kernel,
               d->cu->LaunchKernel(kernel, (unsigned)wide, (unsigned)y, z, (unsigned)grid->group, 1, 1, 0, d->stream,
                                   arguments, NULL));
        table_at += most * (int64_t)grid->entry;
    }
    return LS_OK;
}

#define DRIVER                                                                                                         \
    .name = "cuda", .close = cu_close, .alloc = cu_alloc, .free = cu_free, .host_alloc = cu_host_alloc,                \
    .host_free = cu_host_free, .write = cu_write, .wait = cu_wait, .read = cu_read, .copy = cu_copy,                   \
    .transfer = ls_nccl_transfer, .finish = cu_finish, .compile = cu_compile, .load = cu_load, .binary = cu_binary,    \
    .release = cu_release, .kernel = cu_kernel, .launch = cu_launch

static const ls_gpu_driver driver = { DRIVER };
static const ls_gpu_driver vendor_driver = { DRIVER, .ask = ls_vendor_ask, .call = ls_vendor_call };

static int cuda_probe(void *user)
{
    (void)user;
    return ls_cuda_get()->count;
}

static ls_status cuda_query(void *user, int number, ls_backend_device *out)
{
    const ls_cuda *all = ls_cuda_get();
    const ls_cuda_device *d = &all->devices[number];
    (void)user;
    snprintf(out->about, sizeof(out->about), "%.100s; CUDA: sm_%d%d, driver %d.%d%s%s", d->name, d->major, d->minor,
             all->driver / 1000, all->driver % 1000 / 10, d->bus[0] ? ", bus " : "", d->bus);
    out->memory = d->memory;
    out->growth = true;
    return LS_OK;
}

static bool cuda_supports(void *user, const ls_tensor *node)
{
    (void)user;
    return ls_gpu_supports(node, true);
}

static ls_status open_stream(device *d)
{
    int error = d->cu->DevicePrimaryCtxRetain(&d->context, d->what->id);
    if (error != LS_CUDA_SUCCESS) {
        d->context = NULL;
        return failed(d, "no context", error);
    }
    CU_TRY(d, "no stream", d->cu->StreamCreate(&d->stream, LS_CU_STREAM_NON_BLOCKING));
    return LS_OK;
}

/* user: NULL, or `vendor` for the vendor's kernels. */
static ls_status cuda_open(void *user, int number, void **out)
{
    const ls_cuda *all = ls_cuda_get();
    char key[256];
    device *d = calloc(1, sizeof(*d));
    if (!d)
        return ls_fail(LS_ERR_MEMORY, "no memory for CUDA device %d", number);
    d->what = &all->devices[number];
    d->cu = &all->cu;
    ls_status status = open_stream(d);
    if (status == LS_OK && user)
        status = ls_vendor_open(d);
    if (status != LS_OK) {
        cu_close(d);
        return status;
    }
    snprintf(key, sizeof(key), "%d %d\nsm_%d%d\nNVRTC %d.%d\ndriver %d", ls_gpu_tuning_gpu.vector,
             ls_gpu_tuning_gpu.rows, d->what->major, d->what->minor, all->compiler[0], all->compiler[1], all->driver);
    return ls_gpu_open(&(ls_gpu_opening){ user ? &vendor_driver : &driver, d, &ls_gpu_tuning_gpu, d->what->name, key },
                       out);
}

#define TABLE                                                                                                          \
    .size = sizeof(ls_backend), .kind = "CUDA", .transfer = ls_gpu_transfer, .probe = cuda_probe, .query = cuda_query, \
    .supports = cuda_supports, .open = cuda_open, LS_GPU_FUNCTIONS

const ls_backend ls_cuda_backend = { TABLE };

/* The same devices with kernels of cuBLAS and cuDNN. */
static char vendor[1];
const ls_backend ls_cuda_vendor_backend = { TABLE, .user = vendor };
