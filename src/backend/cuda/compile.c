/* Compiles with NVRTC. Nothing is contracted, approximated or flushed to zero (docs/bits.md). */
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/cuda.h"

#define MOST_LOG   ((size_t)64 << 20) /* bytes */
#define MOST_ARCHS 128

/* Fails with the compiler's first message. */
static ls_status compiler_failed(const ls_nvrtc *nvrtc, ls_nvrtc_program program, const char *name, const char *target,
                                 int error)
{
    char message[400] = "", *log = NULL;
    size_t bytes = 0;
    if (nvrtc->GetProgramLogSize(program, &bytes) == LS_NVRTC_SUCCESS && bytes > 1 && bytes < MOST_LOG &&
        (log = calloc(1, bytes + 1)) && nvrtc->GetProgramLog(program, log) == LS_NVRTC_SUCCESS)
        snprintf(message, sizeof(message), ": %.390s", log);
    free(log);
    return ls_fail(LS_ERR_DEVICE, "the kernels of %s do not compile for %s: NVRTC's error %d%s", name, target, error,
                   message);
}

/* Machine code, or PTX that the driver translates (text). */
static ls_status take_made(const ls_nvrtc *nvrtc, ls_nvrtc_program program, bool text, const char *name, void **out,
                           size_t *size)
{
    size_t bytes = 0;
    char *made = NULL;
    int error = text ? nvrtc->GetPTXSize(program, &bytes) : nvrtc->GetCUBINSize(program, &bytes);
    if (error != LS_NVRTC_SUCCESS || bytes == 0)
        return ls_fail(LS_ERR_DEVICE, "NVRTC has no output for the kernels of %s", name);
    if (!(made = malloc(bytes)))
        return ls_fail(LS_ERR_MEMORY, "no memory for the kernels of %s", name);
    error = text ? nvrtc->GetPTX(program, made) : nvrtc->GetCUBIN(program, made);
    if (error != LS_NVRTC_SUCCESS) {
        free(made);
        return ls_fail(LS_ERR_DEVICE, "NVRTC does not return the compiled kernels of %s", name);
    }
    *out = made;
    *size = bytes;
    return LS_OK;
}

/* Whether the GPU is newer than NVRTC knows; *known is then the newest capability below it. The
 * target is "sm_90", or "compute_90" for such a GPU. */
static bool is_newer(const ls_nvrtc *nvrtc, int capability, int *known)
{
    int archs[MOST_ARCHS], count = 0;
    *known = 0;
    if (nvrtc->GetNumSupportedArchs(&count) != LS_NVRTC_SUCCESS || count < 1 || count > MOST_ARCHS ||
        nvrtc->GetSupportedArchs(archs) != LS_NVRTC_SUCCESS)
        return false;
    for (int i = 0; i < count; i++)
        if (archs[i] <= capability && archs[i] > *known)
            *known = archs[i];
    return *known > 0 && *known < capability;
}

ls_status ls_cuda_compile(const ls_nvrtc *nvrtc, const char *source, const char *name, int major, int minor,
                          const ls_gpu_tuning *tuning, void **made, size_t *bytes)
{
    char target[48], vector[32], rows[32], file[64];
    const char *const options[] = {
        target, vector, rows, "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--std=c++17", "-w"
    };
    ls_nvrtc_program program = NULL;
    int known;
    bool text = is_newer(nvrtc, major * 10 + minor, &known);
    snprintf(target, sizeof(target), "--gpu-architecture=%s_%d", text ? "compute" : "sm",
             text ? known : major * 10 + minor);
    snprintf(vector, sizeof(vector), "-DLS_VECTOR=%d", tuning->vector);
    snprintf(rows, sizeof(rows), "-DLS_ROWS=%d", tuning->rows);
    snprintf(file, sizeof(file), "%s.cu", name);
    int error = nvrtc->CreateProgram(&program, source, file, 0, NULL, NULL);
    if (error != LS_NVRTC_SUCCESS)
        return ls_fail(LS_ERR_DEVICE, "NVRTC cannot create a program for the kernels of %s: error %d", name, error);
    error = nvrtc->CompileProgram(program, (int)(sizeof(options) / sizeof(*options)), options);
    ls_status status = error == LS_NVRTC_SUCCESS ? take_made(nvrtc, program, text, name, made, bytes)
                                                 : compiler_failed(nvrtc, program, name, target + 19, error);
    nvrtc->DestroyProgram(&program);
    return status;
}
