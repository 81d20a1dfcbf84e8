/* CUDA devices. library.c loads the driver, NVRTC and NCCL, and lists devices; nccl.c moves joins between them;
 * compile.c makes kernels of source; device.c has what src/backend/gpu asks of a driver, and vendor.c what it asks of
 * cuBLAS and cuDNN, where a context wants their kernels. What is computed, with which kernels, and what a device does
 * for a context is src/backend/gpu's business. */
#ifndef LS_BACKEND_CUDA_CUDA_H
#define LS_BACKEND_CUDA_CUDA_H

#include "backend/cuda/cu.h"
#include "backend/gpu/driver.h"
#include "base/text.h"

typedef struct ls_cuda_device {
    ls_cu_device id;
    int number; /* among those that the driver shows: it honours CUDA_VISIBLE_DEVICES */
    char name[128], bus[32];
    size_t memory;
    int major, minor;    /* compute capability */
    int multiprocessors; /* 0: not known */
} ls_cuda_device;

/* What was found, once for the process; it stays until the process ends. */
typedef struct ls_cuda {
    ls_cu cu;
    ls_nvrtc nvrtc;
    ls_nccl nccl;
    int driver;         /* version, 13000 for 13.0 */
    int compiler[2];    /* version of NVRTC */
    char library[256];  /* the driver, as it was loaded */
    char compiled[256]; /* NVRTC, as it was loaded */
    int nccl_version;   /* 22703 for 2.27.3; 0: none is used, for this reason or because there are not two devices */
    char nccl_library[256], nccl_problem[256];
    ls_cuda_device *devices;
    int count;
    char problem[400]; /* why there are none; "": nothing went wrong */
} ls_cuda;

const ls_cuda *ls_cuda_get(void);

/* cuBLAS and cuDNN, loaded when a context first asks for their kernels. */
typedef struct ls_vendor_libraries {
    ls_cublas cublas;
    ls_cudnn cudnn;
    int cublas_version[3], cudnn_version[3];
    char cublas_path[256], cudnn_path[256];
    char problem[700]; /* why they cannot be used; "": they can */
} ls_vendor_libraries;
const ls_vendor_libraries *ls_vendor_get(void);

/* They are open on a device: handles, and descriptors of convolutions. */
typedef struct ls_vendor ls_vendor;

/* Whether a driver is worth loading before anybody names a CUDA device: the system has one. It loads nothing. */
bool ls_cuda_is_expected(void);

/* A device that is open. */
typedef struct ls_cuda_opened {
    const ls_cuda_device *what;
    const ls_cu *cu;
    ls_cu_context context;
    ls_cu_stream stream;
    uint64_t asked;    /* by number, of up to 64 devices: whether memory of theirs can be reached was asked */
    ls_vendor *vendor; /* NULL: kernels are our own */
} ls_cuda_opened;

/* For the device's stream. Without the libraries: an error that says what was looked for. */
ls_status ls_vendor_open(ls_cuda_opened *device);
void ls_vendor_close(ls_cuda_opened *device);

/* `ask` and `call` of a driver (backend/gpu/driver.h). */
ls_status ls_vendor_ask(void *device, ls_gpu_call *call, bool *can);
ls_status ls_vendor_call(void *device, const ls_gpu_call *call, const ls_memory_place *at);

/* "cuBLAS 13.0.2 and cuDNN 9.10.2 on sm_90 with 132 multiprocessors": what decides the bits of their kernels. limit: of
 * the device's memory. */
void ls_vendor_describe(const ls_cuda_device *device, size_t limit, ls_text *text);

/* The call, with the device's context as the thread's. */
#define LS_CUDA_WITHIN(d, error, call)                                                                                 \
    do {                                                                                                               \
        error = (d)->cu->CtxPushCurrent((d)->context);                                                                 \
        if (error == LS_CUDA_SUCCESS) {                                                                                \
            error = (call);                                                                                            \
            (d)->cu->CtxPopCurrent(NULL);                                                                              \
        }                                                                                                              \
    } while (0)

/* Everything in a list at once, by sends, receives and all-gathers of NCCL. *can false: NCCL is not there, or cannot do
 * these, and nothing was done. */
ls_status ls_nccl_transfer(const ls_transfer *list, int count, bool *can);

/* A device is about to be closed: communicators that it is in are destroyed. */
void ls_nccl_leave(const ls_cuda_opened *device);

/* What was found, a line, or why nothing was. */
void ls_cuda_describe(ls_text *lines);

/* NVRTC alone, for `driver` (a version; 0: any), without devices. False, and why: it is not there. */
bool ls_cuda_load_compiler(int driver, ls_nvrtc *out, char path[256], char why[256]);

/* Source becomes a cubin for a compute capability, or, where that is newer than NVRTC knows, PTX; malloc'd. name: of
 * the module, for messages. */
ls_status ls_cuda_compile(const ls_nvrtc *nvrtc, const char *source, const char *name, int major, int minor,
                          const ls_gpu_tuning *tuning, void **cubin, size_t *bytes);

/* "CUDA_ERROR_OUT_OF_MEMORY (2)" */
const char *ls_cuda_error(const ls_cu *cu, int error, char text[96]);

extern const ls_backend ls_cuda_backend, ls_cuda_vendor_backend;

#endif
