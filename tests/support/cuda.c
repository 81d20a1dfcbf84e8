/* The stand-in for CUDA: see cuda.h. */
#include "cuda.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beside the test program: <build>/tests/standin_cuda. */
static bool folder(char out[PATH_MAX])
{
    char self[PATH_MAX] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0 || !strrchr(self, '/'))
        return false;
    *strrchr(self, '/') = '\0';
    return snprintf(out, PATH_MAX, "%.*s/standin_cuda", PATH_MAX - 32, self) > 0;
}

static void *library(void)
{
    char path[PATH_MAX], file[PATH_MAX + 16];
    if (!folder(path))
        return NULL;
    snprintf(file, sizeof file, "%s/libcuda.so.1", path);
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

bool cuda_stand_in(void)
{
    char path[PATH_MAX];
    if (!library() || !folder(path)) {
        const char *why = dlerror();
        printf("[   WHY    ] no stand-in for CUDA (make test builds it): %s\n", why ? why : "");
        return false;
    }
    setenv("LOCKSTEP_CUDA_PATH", path, 1);
    setenv("LOCKSTEP_CACHE", "", 1);
    setenv("LOCKSTEP_OPENCL_PARTS", "0", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return true;
}

bool cuda_open(const ls_context_options *options, const char *devices, ls_context **out)
{
    ls_context *ctx = NULL;
    ls_status status = ls_context_create(options, &ctx);
    if (status == LS_OK)
        status = ls_set_visible_devices(ctx, devices);
    if (status != LS_OK) {
        printf("[   WHY    ] %s: no such devices: %s\n", devices, ls_last_error());
        ls_context_close(ctx);
        return false;
    }
    *out = ctx;
    return true;
}

cuda_controls cuda_control(void)
{
    cuda_controls c = { 0 };
    void *from = library();
    *(void **)&c.fail_next = dlsym(from, "standin_fail");
    *(void **)&c.lose = dlsym(from, "standin_lose");
    *(void **)&c.count = dlsym(from, "standin_count");
    *(void **)&c.break_device = dlsym(from, "standin_break");
    *(void **)&c.held = dlsym(from, "standin_held");
    *(void **)&c.misuses = dlsym(from, "standin_misuses");
    return c;
}
