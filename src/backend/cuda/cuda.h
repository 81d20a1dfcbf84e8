/* CUDA devices. library.c loads the libraries and lists devices; nccl.c transfers joins; compile.c
 * compiles kernels; device.c implements backend/gpu/driver.h; vendor.c uses cuBLAS and cuDNN. */
#ifndef LS_BACKEND_CUDA_CUDA_H
#define LS_BACKEND_CUDA_CUDA_H

#include "backend/cuda/cu.h"
#include "backend/gpu/driver.h"
#include "base/text.h"

typedef struct ls_cuda_device {
    ls_cu_device id;
    int number; /* among the devices that the driver shows (CUDA_VISIBLE_DEVICES) */
    char name[128], bus[32];
    size_t memory;
    int major, minor;    /* compute capability */
    int multiprocessors; /* 0: unknown */
} ls_cuda_device;

/* Found once per process and never freed. */
typedef struct ls_cuda {
    ls_cu cu;
    ls_nvrtc nvrtc;
    ls_nccl nccl;
    int driver;         /* 13000 is 13.0 */
    int compiler[2];    /* version of NVRTC */
    char library[256];  /* path of the driver */
    char compiled[256]; /* path of NVRTC */
    /* 22703 is 2.27.3. 0: not used, because of nccl_problem or because there are fewer than two
     * devices. */
    int nccl_version;
    char nccl_library[256], nccl_problem[256];
    ls_cuda_device *devices;
    int count;
    char problem[400]; /* why there are no devices, or "" */
} ls_cuda;

const ls_cuda *ls_cuda_get(void);

/* Loaded when a context first requests their kernels. */
typedef struct ls_vendor_libraries {
    ls_cublas cublas;
    ls_cudnn cudnn;
    int cublas_version[3], cudnn_version[3];
    char cublas_path[256], cudnn_path[256];
    char problem[700]; /* why they cannot be used, or "" */
} ls_vendor_libraries;
const ls_vendor_libraries *ls_vendor_get(void);

/* Handles of the libraries on one device, and descriptors of convolutions. */
typedef struct ls_vendor ls_vendor;

/* Whether the system has a CUDA driver, worth loading even if no CUDA device was named. Loads
 * nothing. */
bool ls_cuda_is_expected(void);

typedef struct ls_cuda_opened {
    const ls_cuda_device *what;
    const ls_cu *cu;
    ls_cu_context context;
    ls_cu_stream stream;
    /* Bit by device number, up to 64 devices: access to its memory has been requested. */
    uint64_t asked;
    ls_vendor *vendor; /* NULL: use our own kernels */
} ls_cuda_opened;

/* If libraries are missing, the message lists what was searched. */
ls_status ls_vendor_open(ls_cuda_opened *device);
void ls_vendor_close(ls_cuda_opened *device);

/* `ask` and `call` of a driver (backend/gpu/driver.h). */
ls_status ls_vendor_ask(void *device, ls_gpu_call *call, bool *can);
ls_status ls_vendor_call(void *device, const ls_gpu_call *call, const ls_memory_place *at);

/* Describes everything that decides the bits of the vendor's kernels: "cuBLAS 13.0.2 and cuDNN
 * 9.10.2 on sm_90 with 132 multiprocessors". limit: memory limit of the device. */
void ls_vendor_describe(const ls_cuda_device *device, size_t limit, ls_text *text);

/* Calls with the device's context as the thread's current one. */
#define LS_CUDA_WITHIN(d, error, call)                                                                                 \
    do {                                                                                                               \
        error = (d)->cu->CtxPushCurrent((d)->context);                                                                 \
        if (error == LS_CUDA_SUCCESS) {                                                                                \
            error = (call);                                                                                            \
            (d)->cu->CtxPopCurrent(NULL);                                                                              \
        }                                                                                                              \
    } while (0)

/* Does all transfers of a list at once by NCCL. *can false: NCCL is missing or cannot do these, and
 * nothing was done. */
ls_status ls_nccl_transfer(const ls_transfer *list, int count, bool *can);

/* Destroys the communicators of a device before it is closed. */
void ls_nccl_leave(const ls_cuda_opened *device);

void ls_cuda_describe(ls_text *lines);

/* Loads only NVRTC, for version `driver` (0: any). Returns false and sets `why` if it is
 * missing. */
bool ls_cuda_load_compiler(int driver, ls_nvrtc *out, char path[256], char why[256]);

/* Compiles to a cubin for a compute capability, or to PTX if NVRTC does not know that capability.
 * *cubin is malloc'd. name: for messages. */
ls_status ls_cuda_compile(const ls_nvrtc *nvrtc, const char *source, const char *name, int major, int minor,
                          const ls_gpu_tuning *tuning, void **cubin, size_t *bytes);

const char *ls_cuda_error(const ls_cu *cu, int error, char text[96]);

extern const ls_backend ls_cuda_backend, ls_cuda_vendor_backend;

#endif
