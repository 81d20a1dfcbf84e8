/* The built-in device kinds besides the CPU, and a description of their drivers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/kinds.h"
#include "backend/opencl/opencl.h"

static void add(ls_context *ctx, const ls_backend *backend, bool expected)
{
    ls_kind *kind = &ctx->kinds[ctx->kind_count++];
    kind->backend = *backend;
    kind->asleep = !expected;
    snprintf(kind->name, sizeof(kind->name), "%s", backend->kind);
}

void ls_context_add_own_kinds(ls_context *ctx)
{
    add(ctx, &ls_opencl_backend, ls_opencl_is_expected());
    bool vendor = ctx->options.kernels == LS_KERNELS_VENDOR;
    /* Preferred over OpenCL. */
    add(ctx, vendor ? &ls_cuda_vendor_backend : &ls_cuda_backend, vendor || ls_cuda_is_expected());
    ctx->kinds[ctx->kind_count - 1].vendor = vendor;
}

static const ls_device *vendor_device(const ls_context *ctx)
{
    int kind = ls_context_vendor_kind(ctx);
    for (int d = 0; d < ctx->device_count; d++)
        if (ctx->devices[d].kind == kind)
            return &ctx->devices[d];
    return NULL;
}

static const ls_cuda_device *hardware(const ls_device *device)
{
    return &ls_cuda_get()->devices[device->physical];
}

/* The memory limit decides the workspace size, which decides the algorithms and so the bits. */
static ls_status check_limits(const ls_device *first, const ls_device *other)
{
    size_t most = ls_gpu_workspace_limit(first->limit), others = ls_gpu_workspace_limit(other->limit);
    if (most == others)
        return LS_OK;
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "the vendor's kernels give other bits with smaller workspaces: CUDA:%d (limit %zu "
                   "MiB) has up to %zu KiB, CUDA:%d (%zu MiB) up to %zu KiB; give the devices the same limit, or use "
                   "the library's own kernels",
                   first->number, first->limit >> 20, most >> 10, other->number, other->limit >> 20, others >> 10);
}

/* NVIDIA guarantees the same bits only for the same architecture and number of multiprocessors. */
ls_status ls_context_check_vendor(const ls_context *ctx)
{
    const ls_device *device = vendor_device(ctx);
    const ls_cuda *all = ls_cuda_get();
    if (!device)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "the vendor's kernels (cuBLAS and cuDNN) need CUDA devices, and this context has "
                       "none (%s); the library's own kernels run on all devices",
                       all->count > 0 ? "the devices of the machine are not visible" : all->problem);
    const ls_cuda_device *first = hardware(device);
    for (int d = 0; d < ctx->device_count; d++) {
        const ls_device *at = ctx->devices[d].kind == device->kind ? &ctx->devices[d] : device;
        const ls_cuda_device *other = hardware(at);
        if (other->major != first->major || other->minor != first->minor ||
            other->multiprocessors != first->multiprocessors)
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "the vendor's kernels give other bits on other GPUs: CUDA:%d (sm_%d%d, %d multiprocessors) "
                           "and CUDA:%d (sm_%d%d, %d) cannot be used together; make devices of one kind visible, or "
                           "use the library's own kernels",
                           first->number, first->major, first->minor, first->multiprocessors, other->number,
                           other->major, other->minor, other->multiprocessors);
        LS_TRY(check_limits(device, at));
    }
    return LS_OK;
}

void ls_context_describe_vendor(const ls_context *ctx, ls_text *out)
{
    ls_text_put(out, "vendor: ");
    const ls_device *device = vendor_device(ctx);
    ls_vendor_describe(hardware(device), device->limit, out);
}

ls_status ls_format_drivers(char **out)
{
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_format_drivers: out is NULL");
    ls_text lines = { 0 };
    ls_cuda_describe(&lines);
    ls_opencl_describe(&lines);
    return ls_text_take(&lines, out);
}
