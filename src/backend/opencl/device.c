/* The functions of backend/gpu/driver.h, and the table of the backend. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/opencl.h"

#define MOST_LOG ((size_t)256 << 20) /* bytes */

typedef struct device {
    const ls_opencl_device *what;
    const ls_cl *cl;
    ls_cl_queue queue;
    char options[160]; /* options of the compiler */
} device;

static ls_status failed(const device *d, const char *what, int32_t error)
{
    char why[64];
    bool memory = error == LS_CL_MEM_OBJECT_ALLOCATION_FAILURE || error == LS_CL_OUT_OF_HOST_MEMORY;
    return ls_fail(memory ? LS_ERR_MEMORY : LS_ERR_DEVICE, "%s: %s: %s", d->what->name, what,
                   ls_opencl_error(error, why));
}

#define CL_TRY(d, what, call)                                                                                          \
    do {                                                                                                               \
        int32_t cl_error_ = (call);                                                                                    \
        if (cl_error_ != LS_CL_SUCCESS)                                                                                \
            return failed(d, what, cl_error_);                                                                         \
    } while (0)

static void cl_close(void *device_)
{
    device *d = device_;
    d->cl->ReleaseCommandQueue(d->queue);
    free(d);
}

static ls_status cl_alloc(void *device_, size_t bytes, void **memory)
{
    device *d = device_;
    int32_t error = 0;
    ls_cl_mem buffer = d->cl->CreateBuffer(d->what->context, LS_CL_MEM_READ_WRITE, bytes, NULL, &error);
    if (!buffer)
        return failed(d, "no buffer", error);
    *memory = buffer;
    return LS_OK;
}

static void cl_free(void *device_, void *memory)
{
    device *d = device_;
    d->cl->ReleaseMemObject(memory);
}

static ls_status cl_write(void *device_, void *memory, size_t offset, const void *from, size_t bytes, void **done)
{
    device *d = device_;
    ls_cl_event event = NULL;
    CL_TRY(d, "writing", d->cl->EnqueueWriteBuffer(d->queue, memory, 0, offset, bytes, from, 0, NULL, &event));
    *done = event;
    return LS_OK;
}

static ls_status cl_wait(void *device_, void *done)
{
    device *d = device_;
    ls_cl_event event = done;
    int32_t error = d->cl->WaitForEvents(1, &event);
    d->cl->ReleaseEvent(event);
    CL_TRY(d, "writing", error);
    return LS_OK;
}

static ls_status cl_read(void *device_, void *memory, size_t offset, void *to, size_t bytes)
{
    device *d = device_;
    CL_TRY(d, "reading", d->cl->EnqueueReadBuffer(d->queue, memory, 1, offset, bytes, to, 0, NULL, NULL));
    return LS_OK;
}

/* Devices of a platform can copy from each other. */
static bool cl_reaches(void *device_, void *other)
{
    return ((device *)device_)->what->context == ((device *)other)->what->context;
}

static ls_status cl_copy(void *device_, void *to, size_t to_offset, void *other, void *from, size_t from_offset,
                         size_t bytes)
{
    device *d = device_;
    (void)other;
    CL_TRY(d, "copying", d->cl->EnqueueCopyBuffer(d->queue, from, to, from_offset, to_offset, bytes, 0, NULL, NULL));
    return LS_OK;
}

static ls_status cl_flush(void *device_)
{
    device *d = device_;
    CL_TRY(d, "flushing", d->cl->Flush(d->queue));
    return LS_OK;
}

static ls_status cl_finish(void *device_)
{
    device *d = device_;
    CL_TRY(d, "waiting", d->cl->Finish(d->queue));
    return LS_OK;
}

/* Fails with the compiler's first message. */
static ls_status compiler_failed(const device *d, ls_cl_program program, const char *name, int32_t error)
{
    char message[400] = "", why[64], *log = NULL;
    size_t bytes = 0;
    if (d->cl->GetProgramBuildInfo(program, d->what->id, LS_CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) == LS_CL_SUCCESS &&
        bytes > 0 && bytes < MOST_LOG && (log = calloc(1, bytes + 1)) &&
        d->cl->GetProgramBuildInfo(program, d->what->id, LS_CL_PROGRAM_BUILD_LOG, bytes, log, NULL) == LS_CL_SUCCESS)
        snprintf(message, sizeof(message), ": %.390s", log);
    free(log);
    return ls_fail(LS_ERR_DEVICE, "%s: the kernels of %s do not compile: %s%s", d->what->name, name,
                   ls_opencl_error(error, why), message);
}

static ls_status cl_compile(void *device_, const char *source, const char *name, void **out)
{
    device *d = device_;
    int32_t error = 0;
    char why[64];
    ls_cl_program program = d->cl->CreateProgramWithSource(d->what->context, 1, &source, NULL, &error);
    if (!program)
        return ls_fail(LS_ERR_DEVICE, "%s: cannot create a program for %s: %s", d->what->name, name,
                       ls_opencl_error(error, why));
    error = d->cl->BuildProgram(program, 1, &d->what->id, d->options, NULL, NULL);
    if (error != LS_CL_SUCCESS) {
        ls_status status = compiler_failed(d, program, name, error);
        d->cl->ReleaseProgram(program);
        return status;
    }
    *out = program;
    return LS_OK;
}

static bool cl_load(void *device_, const void *binary, size_t bytes, void **out)
{
    device *d = device_;
    const unsigned char *from = binary;
    int32_t taken = 0, error = 0;
    ls_cl_program program =
        d->cl->CreateProgramWithBinary(d->what->context, 1, &d->what->id, &bytes, &from, &taken, &error);
    if (program && d->cl->BuildProgram(program, 1, &d->what->id, d->options, NULL, NULL) != LS_CL_SUCCESS) {
        d->cl->ReleaseProgram(program);
        program = NULL;
    }
    *out = program;
    return program != NULL;
}

static bool cl_binary(void *device_, void *program, void **out, size_t *size)
{
    device *d = device_;
    size_t bytes = 0;
    unsigned char *binary = NULL;
    if (d->cl->GetProgramInfo(program, LS_CL_PROGRAM_BINARY_SIZES, sizeof(bytes), &bytes, NULL) == LS_CL_SUCCESS &&
        bytes > 0)
        binary = malloc(bytes);
    if (!binary || d->cl->GetProgramInfo(program, LS_CL_PROGRAM_BINARIES, sizeof(binary), &binary, NULL)) {
        free(binary);
        return false;
    }
    *out = binary;
    *size = bytes;
    return true;
}

static void cl_release(void *device_, void *program)
{
    ((device *)device_)->cl->ReleaseProgram(program);
}

static ls_status cl_kernel(void *device_, void *program, const char *name, void **out)
{
    device *d = device_;
    int32_t error = 0;
    char why[64];
    ls_cl_kernel kernel = d->cl->CreateKernel(program, name, &error);
    if (!kernel)
        return ls_fail(LS_ERR_DEVICE, "%s: no kernel %s: %s", d->what->name, name, ls_opencl_error(error, why));
    *out = kernel;
    return LS_OK;
}

static void cl_release_kernel(void *device_, void *kernel)
{
    ((device *)device_)->cl->ReleaseKernel(kernel);
}

static ls_status cl_launch(void *device_, void *kernel, const ls_gpu_grid *grid)
{
    device *d = device_;
    uint32_t argument = 0;
    size_t group = (size_t)grid->group, local[3] = { group, 1, 1 };
    size_t global[3] = { ((size_t)grid->items[0] + group - 1) / group * group, (size_t)grid->items[1],
                         (size_t)grid->lanes };
    ls_cl_mem memory;
    int64_t table_at = (int64_t)grid->table.offset;
    for (int i = 0; i < grid->places; i++) {
        memory = grid->memory[i];
        CL_TRY(d, grid->kernel, d->cl->SetKernelArg(kernel, argument++, sizeof(memory), &memory));
    }
    memory = grid->table.memory;
    CL_TRY(d, grid->kernel, d->cl->SetKernelArg(kernel, argument++, sizeof(memory), &memory));
    CL_TRY(d, grid->kernel, d->cl->SetKernelArg(kernel, argument, sizeof(table_at), &table_at));
    CL_TRY(d, grid->kernel, d->cl->EnqueueNDRangeKernel(d->queue, kernel, 3, NULL, global, local, 0, NULL, NULL));
    return LS_OK;
}

static const ls_gpu_driver driver = {
    .name = "opencl",
    .close = cl_close,
    .alloc = cl_alloc,
    .free = cl_free,
    .write = cl_write,
    .wait = cl_wait,
    .read = cl_read,
    .copy = cl_copy,
    .reaches = cl_reaches,
    .flush = cl_flush,
    .finish = cl_finish,
    .compile = cl_compile,
    .load = cl_load,
    .binary = cl_binary,
    .release = cl_release,
    .kernel = cl_kernel,
    .release_kernel = cl_release_kernel,
    .launch = cl_launch,
};

static int opencl_probe(void *user)
{
    (void)user;
    return ls_opencl_get()->count;
}

static ls_status opencl_query(void *user, int number, ls_backend_device *out)
{
    const ls_opencl_device *d = &ls_opencl_get()->devices[number];
    (void)user;
    snprintf(out->about, sizeof(out->about), "%.70s; OpenCL: %.40s, driver %.20s%s%s", d->name, d->platform, d->driver,
             d->wide ? "" : "; no float64, so no kernels",
             d->subnormals ? "" : "; no float32 subnormals, so bits of its own");
    out->memory = d->memory;
    out->growth = true;
    out->only_named = d->cpu;
    out->gpu = d->gpu;
    return LS_OK;
}

/* Returns whether all devices support a node. */
static bool opencl_supports(void *user, const ls_tensor *node)
{
    const ls_opencl *all = ls_opencl_get();
    bool rounded = true, wide = true;
    (void)user;
    for (int i = 0; i < all->count; i++) {
        rounded = rounded && all->devices[i].rounded;
        wide = wide && all->devices[i].wide;
    }
    return wide && ls_gpu_supports(node, rounded);
}

static ls_status opencl_open(void *user, int number, void **out)
{
    const ls_opencl_device *what = &ls_opencl_get()->devices[number];
    int32_t error = 0;
    char key[600] = "";
    (void)user;
    device *d = calloc(1, sizeof(*d));
    if (!d)
        return ls_fail(LS_ERR_MEMORY, "no memory for OpenCL device %d", number);
    d->what = what;
    d->cl = &ls_opencl_get()->cl;
    snprintf(d->options, sizeof(d->options), "-cl-std=CL1.2 -DLS_VECTOR=%d -DLS_ROWS=%d%s", what->tuning->vector,
             what->tuning->rows, what->rounded ? " -DLS_ROUNDED -cl-fp32-correctly-rounded-divide-sqrt" : "");
    d->queue = d->cl->CreateCommandQueue(what->context, what->id, 0, &error);
    if (!d->queue) {
        ls_status status = failed(d, "no queue", error);
        free(d);
        return status;
    }
    /* PoCL has its own cache, per work group size */
    if (strcmp(what->platform, "Portable Computing Language") != 0)
        snprintf(key, sizeof(key), "%s\n%s\n%s\n%s", d->options, what->platform, what->name, what->driver);
    return ls_gpu_open(&(ls_gpu_opening){ &driver, d, what->tuning, what->name, key }, out);
}

const ls_backend ls_opencl_backend = {
    .size = sizeof(ls_backend),
    .kind = "OPENCL",
    .probe = opencl_probe,
    .query = opencl_query,
    .supports = opencl_supports,
    .open = opencl_open,
    LS_GPU_FUNCTIONS,
};
