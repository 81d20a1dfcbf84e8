/* Contexts with OpenCL devices: see opencl.h. */
#include "opencl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sanitized.h"

static void keep_kernels(void)
{
    char path[256];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/lockstep-kernels-%ld", folder ? folder : "/tmp", (long)getuid());
    setenv("POCL_CACHE_DIR", path, 0);
    setenv("LOCKSTEP_CACHE", path, 0);
}

void opencl_cut(int parts)
{
    char number[16];
    snprintf(number, sizeof(number), "%d", parts);
    setenv("LOCKSTEP_OPENCL_PARTS", number, 1);
}

bool opencl_open(const ls_context_options *options, const char *devices, ls_context **out)
{
    ls_context *ctx = NULL;
    keep_kernels();
    if (!getenv("LOCKSTEP_OPENCL_PARTS") || strcmp(getenv("LOCKSTEP_OPENCL_PARTS"), "0") == 0)
        opencl_cut(1);
    ls_status status = ls_context_create(options, &ctx);
    if (status == LS_OK)
        status = ls_set_visible_devices(ctx, devices);
    if (status != LS_OK) {
        printf("[   WHY    ] %s: no such OpenCL devices: %s\n", devices, ls_last_error());
        ls_context_close(ctx);
        return false;
    }
    *out = ctx;
    return true;
}
