/* The kinds of devices that the library brings, beside the CPU, and what was found of their drivers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/opencl/opencl.h"
#include "device/context.h"

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
    add(ctx, &ls_cuda_backend, ls_cuda_is_expected()); /* later: preferred */
}

ls_status ls_format_drivers(char **out)
{
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_format_drivers: no place for the text was given");
    ls_text lines = { 0 };
    ls_cuda_describe(&lines);
    ls_opencl_describe(&lines);
    return ls_text_take(&lines, out);
}
