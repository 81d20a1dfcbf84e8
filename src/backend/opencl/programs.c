/* Kernels of a device: modules are compiled when they are first needed, and kept on disk by what decides them: source,
 * options, device and driver. Several processes may do so at once: files are written whole, and checked when they are
 * read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/opencl/opencl.h"
#include "base/append.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"

#define MOST_BINARY ((size_t)256 << 20) /* bytes */
#define HEX         64

typedef struct kernel {
    char name[48];
    ls_cl_kernel handle;
} kernel;

typedef struct module {
    ls_cl_program program; /* NULL: not needed yet */
    char *source;
    char path[PATH_MAX]; /* of its binary; "": nowhere */
    bool is_new;         /* compiled here, and not on disk */
    kernel *kernels;
    int count;
} module;

struct ls_opencl_programs {
    const ls_opencl_device *device;
    const ls_cl *cl;
    char options[160];
    module modules[LS_GPU_MODULES];
};

ls_opencl_programs *ls_opencl_programs_create(const ls_opencl_device *device)
{
    ls_opencl_programs *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->device = device;
    p->cl = &ls_opencl_get()->cl;
    snprintf(p->options, sizeof(p->options), "-cl-std=CL1.2 -DLS_VECTOR=%d -DLS_ROWS=%d%s", device->tuning->vector,
             device->tuning->rows, device->rounded ? " -DLS_ROUNDED -cl-fp32-correctly-rounded-divide-sqrt" : "");
    return p;
}

void ls_opencl_programs_destroy(ls_opencl_programs *p)
{
    for (int m = 0; p && m < LS_GPU_MODULES; m++) {
        for (int i = 0; i < p->modules[m].count; i++)
            p->cl->ReleaseKernel(p->modules[m].kernels[i].handle);
        if (p->modules[m].program)
            p->cl->ReleaseProgram(p->modules[m].program);
        free(p->modules[m].kernels);
        free(p->modules[m].source);
    }
    free(p);
}

/* ---- On disk ---- */

/* The folder: LOCKSTEP_CACHE, or lockstep in the user's cache. "": nothing is kept. */
static void folder(char out[PATH_MAX])
{
    const char *said = getenv("LOCKSTEP_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    out[0] = '\0';
    if (said)
        snprintf(out, PATH_MAX, "%s", said);
    else if (cache && cache[0] == '/')
        snprintf(out, PATH_MAX, "%s/lockstep", cache);
    else if (home && home[0] == '/')
        snprintf(out, PATH_MAX, "%s/.cache/lockstep", home);
}

/* Where the module's binary is. PoCL keeps its own, for each size of work group. */
static void find_path(const ls_opencl_programs *p, module *m)
{
    char from[PATH_MAX], hex[HEX + 1];
    ls_text key = { 0 };
    folder(from);
    m->path[0] = '\0';
    if (!from[0] || strcmp(p->device->platform, "Portable Computing Language") == 0)
        return;
    ls_text_add(&key, "%s\n%s\n%s\n%s\n%s", p->options, p->device->platform, p->device->name, p->device->driver,
                m->source);
    if (!key.failed && ls_sha256_of(ls_text_get(&key), strlen(ls_text_get(&key)), hex) == LS_OK &&
        strlen(from) + HEX + 32 < PATH_MAX)
        snprintf(m->path, sizeof(m->path), "%.*s/opencl/%s.bin", PATH_MAX - HEX - 32, from, hex);
    ls_text_free(&key);
}

/* The binary that is on disk, if it is whole. */
static ls_cl_program read_program(const ls_opencl_programs *p, const module *m)
{
    char *data = NULL, hex[HEX + 1];
    size_t bytes = 0;
    ls_cl_program program = NULL;
    if (!m->path[0] || ls_file_read(m->path, MOST_BINARY, &data, &bytes) != LS_OK)
        return NULL;
    if (bytes > HEX && ls_sha256_of(data + HEX, bytes - HEX, hex) == LS_OK && memcmp(hex, data, HEX) == 0) {
        const unsigned char *binary = (const unsigned char *)data + HEX;
        size_t length = bytes - HEX;
        int32_t taken = 0, error = 0;
        program =
            p->cl->CreateProgramWithBinary(p->device->context, 1, &p->device->id, &length, &binary, &taken, &error);
        if (program && p->cl->BuildProgram(program, 1, &p->device->id, p->options, NULL, NULL) != LS_CL_SUCCESS) {
            p->cl->ReleaseProgram(program);
            program = NULL;
        }
    }
    free(data);
    return program;
}

static void write_program(const ls_opencl_programs *p, const module *m)
{
    char hex[HEX + 1], from[PATH_MAX];
    size_t bytes = 0;
    if (p->cl->GetProgramInfo(m->program, LS_CL_PROGRAM_BINARY_SIZES, sizeof(bytes), &bytes, NULL) != LS_CL_SUCCESS ||
        bytes == 0 || bytes > MOST_BINARY)
        return;
    unsigned char *binary = malloc(bytes);
    snprintf(from, sizeof(from), "%s", m->path);
    *strrchr(from, '/') = '\0';
    if (binary &&
        p->cl->GetProgramInfo(m->program, LS_CL_PROGRAM_BINARIES, sizeof(binary), &binary, NULL) == LS_CL_SUCCESS &&
        ls_sha256_of(binary, bytes, hex) == LS_OK && ls_make_folders(from) == LS_OK)
        (void)ls_file_write_parts(m->path, (ls_file_part[]){ { hex, HEX }, { binary, bytes } }, 2);
    free(binary);
}

void ls_opencl_programs_keep(ls_opencl_programs *p)
{
    for (int i = 0; i < LS_GPU_MODULES; i++) {
        module *m = &p->modules[i];
        if (m->is_new && m->path[0])
            write_program(p, m);
        m->is_new = false;
    }
}

/* ---- Compiling ---- */

/* What the compiler said first. */
static ls_status compiler_failed(const ls_opencl_programs *p, ls_cl_program program, const char *name, int32_t error)
{
    char said[400] = "", why[64], *log = NULL;
    size_t bytes = 0;
    if (p->cl->GetProgramBuildInfo(program, p->device->id, LS_CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) == LS_CL_SUCCESS &&
        bytes > 0 && bytes < MOST_BINARY && (log = calloc(1, bytes + 1)) &&
        p->cl->GetProgramBuildInfo(program, p->device->id, LS_CL_PROGRAM_BUILD_LOG, bytes, log, NULL) == LS_CL_SUCCESS)
        snprintf(said, sizeof(said), ": %.390s", log);
    free(log);
    return ls_fail(LS_ERR_DEVICE, "%s: the kernels of %s do not compile: %s%s", p->device->name, name,
                   ls_opencl_error(error, why), said);
}

static ls_status compile(ls_opencl_programs *p, module *m, const char *name)
{
    int32_t error = 0;
    char why[64];
    const char *source = m->source;
    ls_cl_program program = p->cl->CreateProgramWithSource(p->device->context, 1, &source, NULL, &error);
    if (!program)
        return ls_fail(LS_ERR_DEVICE, "%s: no program for %s: %s", p->device->name, name, ls_opencl_error(error, why));
    error = p->cl->BuildProgram(program, 1, &p->device->id, p->options, NULL, NULL);
    if (error != LS_CL_SUCCESS) {
        ls_status status = compiler_failed(p, program, name, error);
        p->cl->ReleaseProgram(program);
        return status;
    }
    m->program = program;
    m->is_new = true;
    return LS_OK;
}

static ls_status need_module(ls_opencl_programs *p, ls_gpu_module number)
{
    module *m = &p->modules[number];
    const char *name = ls_gpu_module_name(number);
    if (m->program)
        return LS_OK;
    if (!m->source && !(m->source = ls_gpu_source(number)))
        return ls_fail(LS_ERR_MEMORY, "no memory for the kernels of %s", name);
    find_path(p, m);
    if ((m->program = read_program(p, m)))
        return LS_OK;
    return compile(p, m, name);
}

ls_status ls_opencl_kernel(ls_opencl_programs *p, ls_gpu_module number, const char *name, ls_cl_kernel *out,
                           bool *first)
{
    module *m = &p->modules[number];
    char why[64];
    int32_t error = 0;
    *first = false;
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->kernels[i].name, name) == 0) {
            *out = m->kernels[i].handle;
            return LS_OK;
        }
    LS_TRY(need_module(p, number));
    kernel *grown = realloc(m->kernels, (size_t)(m->count + 1) * sizeof(*grown));
    if (!grown)
        return ls_fail(LS_ERR_MEMORY, "no memory for kernel %s", name);
    m->kernels = grown;
    kernel *k = &m->kernels[m->count];
    k->handle = p->cl->CreateKernel(m->program, name, &error);
    if (!k->handle)
        return ls_fail(LS_ERR_DEVICE, "%s: no kernel %s: %s", p->device->name, name, ls_opencl_error(error, why));
    snprintf(k->name, sizeof(k->name), "%s", name);
    m->count++;
    *out = k->handle;
    *first = true;
    return LS_OK;
}
