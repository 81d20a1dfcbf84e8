/* Loads the driver (libcuda) and NVRTC at run time and lists the devices; a machine without them
 * has none. Loads NCCL for two or more devices, and cuBLAS and cuDNN if a context requests their
 * kernels.
 *
 * LOCKSTEP_CUDA_PATH: colon-separated folders that are searched first. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"

#define MOST_DEVICES 64
#define PATH         "LOCKSTEP_CUDA_PATH"

static ls_cuda found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const char *ls_cuda_error(const ls_cu *cu, int error, char text[96])
{
    const char *name = NULL;
    if (cu->GetErrorName(error, &name) != LS_CUDA_SUCCESS || !name)
        name = "error";
    snprintf(text, 96, "%.80s (%d)", name, error);
    return text;
}

/* Loads one of these files from the first folder that has one: those of LOCKSTEP_CUDA_PATH, the
 * system's, the toolkit's default. Drivers do not support unloading well. why: the system's error
 * for the first file if none is found. */
static void *load_library(const char *const *files, int count, char path[256], char why[256])
{
    char folders[1024];
    void *library = NULL;
    why[0] = '\0';
    snprintf(folders, sizeof(folders), "%.900s::/usr/local/cuda/lib64", getenv(PATH) ? getenv(PATH) : "");
    for (char *folder = folders, *next = folders; next && !library; folder = next) {
        next = strchr(folder, ':');
        if (next)
            *next++ = '\0';
        for (int i = 0; i < count && !library; i++) {
            snprintf(path, 256, "%.200s%s%s", folder, folder[0] ? "/" : "", files[i]);
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            const char *error = library ? NULL : dlerror();
            if (!library && !folder[0] && !why[0])
                snprintf(why, 256, "%s", error ? error : path);
        }
    }
    return library;
}

#define FIND(name, symbol, arguments)                                                                                  \
    *(void **)&out->name = dlsym(library, symbol);                                                                     \
    missing = out->name ? missing : symbol;

static bool load_driver(ls_cu *out)
{
    char why[256];
    const char *missing = NULL;
    void *library = load_library((const char *[]){ "libcuda.so.1" }, 1, found.library, why);
    if (!library) {
        snprintf(found.problem, sizeof(found.problem), "%s", why);
        return false;
    }
    LS_CU_FUNCTIONS(FIND)
    if (missing)
        snprintf(found.problem, sizeof(found.problem), "%s has no %s: a newer driver is needed", found.library,
                 missing);
    return !missing;
}

/* Prefers the driver's own version, because an older driver may reject a newer NVRTC's output. */
bool ls_cuda_load_compiler(int driver, ls_nvrtc *out, char path[256], char why[256])
{
    char own[32];
    const char *const files[] = { own, "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2" };
    snprintf(own, sizeof(own), "libnvrtc.so.%d", driver > 0 ? driver / 1000 : 13);
    void *library = load_library(files, (int)(sizeof(files) / sizeof(*files)), path, why);
    if (!library)
        return false;
    const char *missing = NULL;
    LS_NVRTC_FUNCTIONS(FIND)
    if (missing)
        snprintf(why, 256, "%.200s has no %s", path, missing);
    return !missing;
}

/* Without it, devices copy from each other. */
static void load_nccl(void)
{
    ls_nccl *out = &found.nccl;
    const char *missing = NULL;
    void *library = load_library((const char *[]){ "libnccl.so.2" }, 1, found.nccl_library, found.nccl_problem);
    if (!library)
        return;
    LS_NCCL_FUNCTIONS(FIND)
    if (missing)
        snprintf(found.nccl_problem, sizeof(found.nccl_problem), "%.180s has no %s", found.nccl_library, missing);
    else if (found.nccl.GetVersion(&found.nccl_version) != LS_NCCL_SUCCESS)
        found.nccl_version = 0;
}

static ls_vendor_libraries vendor;
static pthread_once_t vendor_once = PTHREAD_ONCE_INIT;

#define FIND_NAMED(name, symbol, arguments) FIND(name, #symbol, arguments)

static int read_version(int (*property)(ls_cu_enum, int *), int out[3])
{
    int error = 0;
    for (int i = LS_MAJOR_VERSION; i <= LS_PATCH_LEVEL && !error; i++)
        error = property(i, &out[i]);
    return error;
}

/* The driver's version or an older one; the driver would reject a newer one. */
static void load_cublas(void)
{
    ls_cublas *out = &vendor.cublas;
    char names[3][32], why[256];
    const char *const files[] = { names[0], names[1], names[2] };
    const char *missing = NULL;
    int newest = ls_cuda_get()->driver > 0 ? ls_cuda_get()->driver / 1000 : 13;
    for (int i = 0; i < 3; i++)
        snprintf(names[i], sizeof(names[i]), "libcublas.so.%d", newest - i);
    void *library = load_library(files, 3, vendor.cublas_path, why);
    if (!library) {
        snprintf(vendor.problem, sizeof(vendor.problem), "there is no cuBLAS: looked for %s, %s and %s (%s)", names[0],
                 names[1], names[2], why);
        return;
    }
    LS_CUBLAS_FUNCTIONS(FIND_NAMED)
    if (missing)
        snprintf(vendor.problem, sizeof(vendor.problem), "%s has no %s: a newer cuBLAS is needed", vendor.cublas_path,
                 missing);
    else if (read_version(out->GetProperty, vendor.cublas_version) != LS_CUBLAS_STATUS_SUCCESS)
        snprintf(vendor.problem, sizeof(vendor.problem), "%s does not report its version", vendor.cublas_path);
}

static void load_cudnn(void)
{
    ls_cudnn *out = &vendor.cudnn;
    const char *const files[] = { "libcudnn.so.9", "libcudnn.so.8", "libcudnn.so" };
    const char *missing = NULL;
    char why[256];
    void *library = load_library(files, 3, vendor.cudnn_path, why);
    if (!library) {
        snprintf(vendor.problem, sizeof(vendor.problem), "there is no cuDNN: looked for %s, %s and %s (%s)", files[0],
                 files[1], files[2], why);
        return;
    }
    LS_CUDNN_FUNCTIONS(FIND_NAMED)
    if (missing)
        snprintf(vendor.problem, sizeof(vendor.problem), "%s has no %s: a newer cuDNN is needed", vendor.cudnn_path,
                 missing);
    else if (read_version(out->GetProperty, vendor.cudnn_version) != LS_CUDNN_STATUS_SUCCESS)
        snprintf(vendor.problem, sizeof(vendor.problem), "%s does not report its version", vendor.cudnn_path);
}

static atomic_bool vendor_asked;

static void load_vendor(void)
{
    load_cublas();
    if (!vendor.problem[0])
        load_cudnn();
    atomic_store(&vendor_asked, true);
}

const ls_vendor_libraries *ls_vendor_get(void)
{
    pthread_once(&vendor_once, load_vendor);
    return &vendor;
}

static void describe_vendor(ls_text *lines)
{
    const int *b = vendor.cublas_version, *d = vendor.cudnn_version;
    if (!atomic_load(&vendor_asked))
        ls_text_add(
            lines, "cuBLAS, cuDNN: not loaded; the library's own kernels are used unless the vendor's are requested\n");
    else if (vendor.problem[0])
        ls_text_add(lines, "cuBLAS, cuDNN: not used (%s)\n", vendor.problem);
    else
        ls_text_add(lines, "cuBLAS: %d.%d.%d (%s)\ncuDNN: %d.%d.%d (%s)\n", b[0], b[1], b[2], vendor.cublas_path, d[0],
                    d[1], d[2], vendor.cudnn_path);
}

static bool describe(ls_cuda_device *d, int number)
{
    const ls_cu *cu = &found.cu;
    d->number = number;
    if (cu->DeviceGet(&d->id, number) != LS_CUDA_SUCCESS ||
        cu->DeviceGetName(d->name, sizeof(d->name), d->id) != LS_CUDA_SUCCESS ||
        cu->DeviceTotalMem(&d->memory, d->id) != LS_CUDA_SUCCESS ||
        cu->DeviceGetAttribute(&d->major, LS_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d->id) != LS_CUDA_SUCCESS ||
        cu->DeviceGetAttribute(&d->minor, LS_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d->id) != LS_CUDA_SUCCESS)
        return false;
    if (cu->DeviceGetAttribute(&d->multiprocessors, LS_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->id) !=
        LS_CUDA_SUCCESS)
        d->multiprocessors = 0;
    if (cu->DeviceGetPCIBusId(d->bus, sizeof(d->bus), d->id) != LS_CUDA_SUCCESS)
        d->bus[0] = '\0';
    return true;
}

static const char *not_visible(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible ? "; CUDA_VISIBLE_DEVICES is set" : "";
}

static void look(void)
{
    char why[256], text[96];
    int count = 0, error;
    if (!load_driver(&found.cu))
        return;
    error = found.cu.Init(0);
    if (error == LS_CUDA_SUCCESS)
        error = found.cu.DeviceGetCount(&count);
    if (error != LS_CUDA_SUCCESS || count == 0) {
        snprintf(found.problem, sizeof(found.problem), "%s: %s%s", found.library,
                 error ? ls_cuda_error(&found.cu, error, text) : "no device", not_visible());
        return;
    }
    if (found.cu.DriverGetVersion(&found.driver) != LS_CUDA_SUCCESS)
        found.driver = 0;
    if (!ls_cuda_load_compiler(found.driver, &found.nvrtc, found.compiled, why)) {
        snprintf(found.problem, sizeof(found.problem),
                 "%d device%s, but no NVRTC to compile kernels: %s; " PATH " may name its folder", count,
                 count == 1 ? "" : "s", why);
        return;
    }
    found.nvrtc.Version(&found.compiler[0], &found.compiler[1]);
    count = count < MOST_DEVICES ? count : MOST_DEVICES;
    found.devices = calloc((size_t)count, sizeof(*found.devices));
    for (int i = 0; found.devices && i < count && describe(&found.devices[i], i); i++)
        found.count++; /* numbers are the driver's, so stop at the first failure */
    if (found.count > 1)
        load_nccl();
    if (found.count == 0)
        snprintf(found.problem, sizeof(found.problem), "%s: device 0 does not respond", found.library);
}

bool ls_cuda_is_expected(void)
{
    return getenv(PATH) || access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

const ls_cuda *ls_cuda_get(void)
{
    pthread_once(&once, look);
    return &found;
}

void ls_cuda_describe(ls_text *lines)
{
    const ls_cuda *all = ls_cuda_get();
    if (all->count == 0)
        ls_text_add(lines, "CUDA: none (%s)\n", all->problem);
    else
        ls_text_add(lines, "CUDA: %d device%s, driver %d.%d (%s), NVRTC %d.%d (%s)\n", all->count,
                    all->count == 1 ? "" : "s", all->driver / 1000, all->driver % 1000 / 10, all->library,
                    all->compiler[0], all->compiler[1], all->compiled);
    if (all->count > 1 && all->nccl_version)
        ls_text_add(lines, "NCCL: %d.%d.%d (%s)\n", all->nccl_version / 10000, all->nccl_version / 100 % 100,
                    all->nccl_version % 100, all->nccl_library);
    else if (all->count > 1)
        ls_text_add(lines, "NCCL: none (%s): devices copy from each other\n", all->nccl_problem);
    if (all->count > 0)
        describe_vendor(lines);
}
