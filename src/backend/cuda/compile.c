/* Kernels of source, by NVRTC. Nothing is contracted, approximated or flushed to zero: docs/bits.md. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/cuda.h"

#define MOST_LOG ((size_t)64 << 20) /* bytes */

/* What the compiler said first. */
static ls_status compiler_failed(const ls_nvrtc *nvrtc, ls_nvrtc_program program, const char *name, const char *target,
                                 int error)
{
    char said[400] = "", *log = NULL;
    size_t bytes = 0;
    if (nvrtc->GetProgramLogSize(program, &bytes) == LS_NVRTC_SUCCESS && bytes > 1 && bytes < MOST_LOG &&
        (log = calloc(1, bytes + 1)) && nvrtc->GetProgramLog(program, log) == LS_NVRTC_SUCCESS)
        snprintf(said, sizeof(said), ": %.390s", log);
    free(log);
    return ls_fail(LS_ERR_DEVICE, "the kernels of %s do not compile for %s: NVRTC's error %d%s", name, target, error,
                   said);
}

static ls_status take_cubin(const ls_nvrtc *nvrtc, ls_nvrtc_program program, const char *name, void **out, size_t *size)
{
    size_t bytes = 0;
    char *cubin = NULL;
    if (nvrtc->GetCUBINSize(program, &bytes) != LS_NVRTC_SUCCESS || bytes == 0)
        return ls_fail(LS_ERR_DEVICE, "NVRTC made nothing of the kernels of %s", name);
    if (!(cubin = malloc(bytes)))
        return ls_fail(LS_ERR_MEMORY, "no memory for the kernels of %s", name);
    if (nvrtc->GetCUBIN(program, cubin) != LS_NVRTC_SUCCESS) {
        free(cubin);
        return ls_fail(LS_ERR_DEVICE, "NVRTC does not give the kernels of %s", name);
    }
    *out = cubin;
    *size = bytes;
    return LS_OK;
}

ls_status ls_cuda_compile(const ls_nvrtc *nvrtc, const char *source, const char *name, int major, int minor,
                          const ls_gpu_tuning *tuning, void **cubin, size_t *bytes)
{
    char target[48], vector[32], rows[32], file[64];
    const char *const options[] = {
        target, vector, rows, "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--std=c++17", "-w"
    };
    ls_nvrtc_program program = NULL;
    snprintf(target, sizeof(target), "--gpu-architecture=sm_%d%d", major, minor);
    snprintf(vector, sizeof(vector), "-DLS_VECTOR=%d", tuning->vector);
    snprintf(rows, sizeof(rows), "-DLS_ROWS=%d", tuning->rows);
    snprintf(file, sizeof(file), "%s.cu", name);
    int error = nvrtc->CreateProgram(&program, source, file, 0, NULL, NULL);
    if (error != LS_NVRTC_SUCCESS)
        return ls_fail(LS_ERR_DEVICE, "no program for the kernels of %s: NVRTC's error %d", name, error);
    error = nvrtc->CompileProgram(program, (int)(sizeof(options) / sizeof(*options)), options);
    ls_status status = error == LS_NVRTC_SUCCESS ? take_cubin(nvrtc, program, name, cubin, bytes)
                                                 : compiler_failed(nvrtc, program, name, target + 19, error);
    nvrtc->DestroyProgram(&program);
    return status;
}
