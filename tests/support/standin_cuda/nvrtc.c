/* libnvrtc.so of the stand-in. It accepts only the sources of the modules that the build compiled,
 * and returns the name of the module instead of its code. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, COMPILATION = 6 };

typedef struct program {
    unsigned long long hash;
    char log[256], cubin[128], ptx[128];
} program;

static const struct {
    const char *name;
    unsigned long long hash;
} modules[] = {
#define MODULE(name, hash) { #name, hash },
#include "modules.inc"
#undef MODULE
};

API int nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return SUCCESS;
}

API int nvrtcCreateProgram(program **out, const char *source, const char *name, int headers, const char *const *texts,
                           const char *const *names)
{
    (void)name, (void)texts, (void)names;
    program *p = headers == 0 ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return INVALID_INPUT;
    p->hash = standin_hash(source);
    *out = p;
    return SUCCESS;
}

API int nvrtcDestroyProgram(program **p)
{
    free(*p);
    *p = NULL;
    return SUCCESS;
}

static int has(int count, const char *const *options, const char *begin)
{
    for (int i = 0; i < count; i++)
        if (strncmp(options[i], begin, strlen(begin)) == 0)
            return 1;
    return 0;
}

API int nvrtcCompileProgram(program *p, int count, const char *const *options)
{
    static const char *const needed[] = { "--fmad=false",  "--prec-div=true", "--prec-sqrt=true",   "--ftz=false",
                                          "-DLS_VECTOR=1", "-DLS_ROWS=4",     "--gpu-architecture=" };
    bool text = has(count, options, "--gpu-architecture=compute_90"); /* the newest supported architecture */
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!has(count, options, needed[i])) {
            snprintf(p->log, sizeof p->log, "stand-in: option %s is missing", needed[i]);
            return COMPILATION;
        }
    if (!text && !has(count, options, "--gpu-architecture=sm_75") && !has(count, options, "--gpu-architecture=sm_80") &&
        !has(count, options, "--gpu-architecture=sm_90")) {
        snprintf(p->log, sizeof p->log, "stand-in: no such architecture");
        return COMPILATION;
    }
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (modules[i].hash == p->hash) {
            snprintf(text ? p->ptx : p->cubin, sizeof p->cubin, "%s %s", text ? "stand-in-ptx" : "stand-in",
                     modules[i].name);
            return SUCCESS;
        }
    snprintf(p->log, sizeof p->log, "stand-in: the build has not compiled this source");
    return COMPILATION;
}

API int nvrtcGetNumSupportedArchs(int *count)
{
    *count = 3;
    return SUCCESS;
}

API int nvrtcGetSupportedArchs(int *archs)
{
    archs[0] = 75;
    archs[1] = 80;
    archs[2] = 90;
    return SUCCESS;
}

API int nvrtcGetPTXSize(program *p, size_t *bytes)
{
    *bytes = p->ptx[0] ? strlen(p->ptx) + 1 : 0;
    return SUCCESS;
}

API int nvrtcGetPTX(program *p, char *out)
{
    if (!p->ptx[0])
        return INVALID_PROGRAM;
    memcpy(out, p->ptx, strlen(p->ptx) + 1);
    return SUCCESS;
}

API int nvrtcGetCUBINSize(program *p, size_t *bytes)
{
    *bytes = p->cubin[0] ? strlen(p->cubin) + 1 : 0;
    return SUCCESS;
}

API int nvrtcGetCUBIN(program *p, char *out)
{
    if (!p->cubin[0])
        return INVALID_PROGRAM;
    memcpy(out, p->cubin, strlen(p->cubin) + 1);
    return SUCCESS;
}

API int nvrtcGetProgramLogSize(program *p, size_t *bytes)
{
    *bytes = strlen(p->log) + 1;
    return SUCCESS;
}

API int nvrtcGetProgramLog(program *p, char *out)
{
    memcpy(out, p->log, strlen(p->log) + 1);
    return SUCCESS;
}
