/* Loads libOpenCL at run time and lists its devices; a machine without it has none. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/opencl/opencl.h"
#include "base/numbers.h"

#define MOST_PLATFORMS 16
#define MOST_DEVICES   64
#define MOST_PARTS     64

static ls_opencl found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const char *ls_opencl_error(int32_t error, char text[64])
{
    static const struct {
        int32_t error;
        const char *name;
    } names[] = {
        { LS_CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND" },
        { LS_CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE" },
        { LS_CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES" },
        { LS_CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY" },
        { LS_CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE" },
    };
    const char *name = "error";
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        name = names[i].error == error ? names[i].name : name;
    snprintf(text, 64, "%s (%d)", name, (int)error);
    return text;
}

/* Never unloaded, because drivers do not support that well. */
static bool load(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(found.problem, sizeof(found.problem), "%s", why ? why : "libOpenCL.so.1 cannot be loaded");
        return false;
    }
    const char *missing = NULL;
#define LS_CL_FIND(name, result, arguments)                                                                            \
    *(void **)&found.cl.name = dlsym(library, "cl" #name);                                                             \
    missing = found.cl.name ? missing : "cl" #name;
    LS_CL_FUNCTIONS(LS_CL_FIND)
#undef LS_CL_FIND
    if (missing)
        snprintf(found.problem, sizeof(found.problem), "libOpenCL.so.1 has no %s: OpenCL 1.2 is needed", missing);
    return !missing;
}

static uint64_t number(ls_cl_device id, uint32_t what)
{
    uint64_t value = 0; /* smaller types fill the first bytes */
    return found.cl.GetDeviceInfo(id, what, sizeof(value), &value, NULL) == LS_CL_SUCCESS ? value : 0;
}

static void text(ls_cl_device id, uint32_t what, char out[128])
{
    char all[1024] = "";
    if (found.cl.GetDeviceInfo(id, what, sizeof(all) - 1, all, NULL) != LS_CL_SUCCESS)
        all[0] = '\0';
    snprintf(out, 128, "%.127s", all + strspn(all, " "));
}

static void describe(ls_opencl_device *d, const char *platform)
{
    uint64_t floats = number(d->id, LS_CL_DEVICE_SINGLE_FP_CONFIG);
    text(d->id, LS_CL_DEVICE_NAME, d->name);
    text(d->id, LS_CL_DRIVER_VERSION, d->driver);
    snprintf(d->platform, sizeof(d->platform), "%.127s", platform);
    d->memory = (size_t)number(d->id, LS_CL_DEVICE_GLOBAL_MEM_SIZE);
    d->cpu = number(d->id, LS_CL_DEVICE_TYPE) & LS_CL_DEVICE_TYPE_CPU;
    d->gpu = number(d->id, LS_CL_DEVICE_TYPE) & LS_CL_DEVICE_TYPE_GPU;
    d->rounded = floats & LS_CL_FP_CORRECT_DIVIDE;
    d->subnormals = floats & LS_CL_FP_DENORM;
    d->wide = number(d->id, LS_CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
    uint64_t vector = number(d->id, LS_CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
    d->tuning = !d->cpu ? &ls_gpu_tuning_gpu : vector >= 16 ? &ls_gpu_tuning_cpu_512 : &ls_gpu_tuning_cpu;
}

/* Parts of each CPU, from LOCKSTEP_OPENCL_PARTS (default 1). 0, also for an invalid value: OpenCL
 * is not used. */
static uint32_t wanted_parts(void)
{
    const char *value = getenv("LOCKSTEP_OPENCL_PARTS");
    int64_t parts = 1;
    if (value && value[0] && (!ls_parse_i64(value, &parts) || parts < 0 || parts > MOST_PARTS))
        return 0;
    return (uint32_t)parts;
}

/* Splits a CPU into parts of nearly equal numbers of cores, at most one per core. Other devices are
 * not split. */
static uint32_t cut(ls_cl_device id, ls_cl_device out[MOST_PARTS])
{
    uint32_t parts = wanted_parts(), cores = (uint32_t)number(id, LS_CL_DEVICE_MAX_COMPUTE_UNITS), made = 0;
    intptr_t counts[MOST_PARTS + 3] = { LS_CL_DEVICE_PARTITION_BY_COUNTS };
    out[0] = id;
    parts = parts > cores ? cores : parts;
    if (parts < 2 || !(number(id, LS_CL_DEVICE_TYPE) & LS_CL_DEVICE_TYPE_CPU))
        return 1;
    for (uint32_t i = 0; i < parts; i++)
        counts[1 + i] = (intptr_t)((i + 1) * cores / parts - i * cores / parts);
    if (found.cl.CreateSubDevices(id, counts, parts, out, &made) != LS_CL_SUCCESS || made != parts) {
        out[0] = id;
        return 1;
    }
    return made;
}

static void look_at_platform(ls_cl_platform platform)
{
    ls_cl_device ids[MOST_DEVICES], all[MOST_DEVICES];
    char name[128] = "";
    uint32_t count = 0, total = 0;
    int32_t error;
    if (found.cl.GetPlatformInfo(platform, LS_CL_PLATFORM_NAME, sizeof(name) - 1, name, NULL) != LS_CL_SUCCESS)
        name[0] = '\0';
    if (found.cl.GetDeviceIDs(platform, LS_CL_DEVICE_TYPE_ALL, MOST_DEVICES, ids, &count) != LS_CL_SUCCESS)
        return;
    for (uint32_t i = 0; i < count && i < MOST_DEVICES; i++) {
        ls_cl_device parts[MOST_PARTS];
        uint32_t made = number(ids[i], LS_CL_DEVICE_AVAILABLE) && number(ids[i], LS_CL_DEVICE_COMPILER_AVAILABLE)
                            ? cut(ids[i], parts)
                            : 0;
        for (uint32_t k = 0; k < made && total < MOST_DEVICES; k++)
            all[total++] = parts[k];
    }
    ls_cl_context context = total > 0 ? found.cl.CreateContext(NULL, total, all, NULL, NULL, &error) : NULL;
    ls_opencl_device *grown = context ? realloc(found.devices, ((size_t)found.count + total) * sizeof(*grown)) : NULL;
    if (!grown)
        return;
    found.devices = grown;
    for (uint32_t i = 0; i < total; i++) {
        ls_opencl_device *d = &found.devices[found.count++];
        *d = (ls_opencl_device){ .id = all[i], .context = context };
        describe(d, name);
    }
}

#define CPUS "/sys/devices/system/cpu"

static void look(void)
{
    ls_cl_platform platforms[MOST_PLATFORMS];
    uint32_t count = 0;
    const char *value = getenv("LOCKSTEP_OPENCL_PARTS");
    if (wanted_parts() == 0) {
        snprintf(found.problem, sizeof(found.problem), "not used: LOCKSTEP_OPENCL_PARTS is %.40s%s", value,
                 strcmp(value, "0") == 0 ? "" : "; expected a number from 0 to 64");
        return;
    }
    if (access(CPUS, F_OK) != 0) { /* PoCL would abort this process */
        snprintf(found.problem, sizeof(found.problem), "not used: there is no " CPUS ", and PoCL aborts without it");
        return;
    }
    if (!load())
        return;
    if (found.cl.GetPlatformIDs(MOST_PLATFORMS, platforms, &count) != LS_CL_SUCCESS)
        count = 0;
    for (uint32_t i = 0; i < count && i < MOST_PLATFORMS; i++)
        look_at_platform(platforms[i]);
    if (found.count == 0)
        snprintf(found.problem, sizeof(found.problem), "OpenCL has no device that compiles kernels");
}

/* ---- Is it worth a look? ---- */

static bool names_pocl(const char *folder, const char *file)
{
    char path[512], line[256] = "";
    snprintf(path, sizeof(path), "%.255s/%.255s", folder, file);
    FILE *text = fopen(path, "r");
    bool pocl = text && fgets(line, sizeof(line), text) && strstr(line, "pocl");
    if (text)
        fclose(text);
    return pocl;
}

bool ls_opencl_is_expected(void)
{
    const char *value = getenv("OCL_ICD_VENDORS"), *folder = value && value[0] ? value : "/etc/OpenCL/vendors";
    bool expected = false;
    DIR *list = opendir(folder);
    for (struct dirent *entry; list && !expected && (entry = readdir(list));) {
        const char *end = strrchr(entry->d_name, '.');
        expected = end && strcmp(end, ".icd") == 0 && !names_pocl(folder, entry->d_name);
    }
    if (list)
        closedir(list);
    return expected;
}

void ls_opencl_describe(ls_text *lines)
{
    const ls_opencl *all = ls_opencl_get();
    if (all->count == 0)
        ls_text_add(lines, "OpenCL: none (%s)\n", all->problem);
    for (int i = 0, next; i < all->count; i = next) { /* devices of a platform are adjacent */
        for (next = i + 1; next < all->count && all->devices[next].context == all->devices[i].context;)
            next++;
        ls_text_add(lines, "OpenCL: %d device%s of %s, driver %s\n", next - i, next - i == 1 ? "" : "s",
                    all->devices[i].platform, all->devices[i].driver);
    }
}

const ls_opencl *ls_opencl_get(void)
{
    pthread_once(&once, look);
    return &found;
}
