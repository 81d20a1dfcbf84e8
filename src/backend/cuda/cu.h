/* What this library uses of CUDA's driver, of NVRTC and of NCCL, written down: neither headers nor libraries of CUDA
 * are needed to build. They are loaded at run time (library.c). tests/test_cuda.c compares the numbers with the
 * toolkit's headers, where they are installed. */
#ifndef LS_BACKEND_CUDA_CU_H
#define LS_BACKEND_CUDA_CU_H

#include <stddef.h>
#include <stdint.h>

typedef int ls_cu_device; /* a handle, not a number */
typedef uint64_t ls_cu_memory;
typedef struct ls_cu_context_ *ls_cu_context;
typedef struct ls_cu_stream_ *ls_cu_stream;
typedef struct ls_cu_event_ *ls_cu_event;
typedef struct ls_cu_module_ *ls_cu_module;
typedef struct ls_cu_function_ *ls_cu_function;
typedef struct ls_nvrtc_program_ *ls_nvrtc_program;
typedef struct ls_nccl_comm_ *ls_nccl_comm;

enum {
    LS_CUDA_SUCCESS = 0,
    LS_CUDA_ERROR_OUT_OF_MEMORY = 2,
    LS_CUDA_ERROR_NO_DEVICE = 100,
    LS_CUDA_ERROR_NOT_READY = 600,
    LS_CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    LS_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    LS_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    LS_CU_STREAM_NON_BLOCKING = 1,
    LS_CU_EVENT_DISABLE_TIMING = 2,
    LS_NVRTC_SUCCESS = 0,
    LS_NCCL_SUCCESS = 0,
    LS_NCCL_IN_PROGRESS = 7,
    LS_NCCL_INT8 = 0,
};

/* Name, what the library calls it, arguments: one row for each function that is used. All return an int, 0: success. */
#define LS_CU_FUNCTIONS(F)                                                                                             \
    F(Init, "cuInit", (unsigned))                                                                                      \
    F(DriverGetVersion, "cuDriverGetVersion", (int *))                                                                 \
    F(GetErrorName, "cuGetErrorName", (int, const char **))                                                            \
    F(DeviceGetCount, "cuDeviceGetCount", (int *))                                                                     \
    F(DeviceGet, "cuDeviceGet", (ls_cu_device *, int))                                                                 \
    F(DeviceGetName, "cuDeviceGetName", (char *, int, ls_cu_device))                                                   \
    F(DeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char *, int, ls_cu_device))                                           \
    F(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *, ls_cu_device))                                                 \
    F(DeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, ls_cu_device))                                          \
    F(DeviceCanAccessPeer, "cuDeviceCanAccessPeer", (int *, ls_cu_device, ls_cu_device))                               \
    F(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (ls_cu_context *, ls_cu_device))                             \
    F(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (ls_cu_device))                                         \
    F(CtxPushCurrent, "cuCtxPushCurrent_v2", (ls_cu_context))                                                          \
    F(CtxPopCurrent, "cuCtxPopCurrent_v2", (ls_cu_context *))                                                          \
    F(CtxEnablePeerAccess, "cuCtxEnablePeerAccess", (ls_cu_context, unsigned))                                         \
    F(MemAlloc, "cuMemAlloc_v2", (ls_cu_memory *, size_t))                                                             \
    F(MemFree, "cuMemFree_v2", (ls_cu_memory))                                                                         \
    F(MemHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned))                                                     \
    F(MemFreeHost, "cuMemFreeHost", (void *))                                                                          \
    F(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (ls_cu_memory, const void *, size_t, ls_cu_stream))                     \
    F(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *, ls_cu_memory, size_t, ls_cu_stream))                           \
    F(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (ls_cu_memory, ls_cu_memory, size_t, ls_cu_stream))                     \
    F(MemcpyPeerAsync, "cuMemcpyPeerAsync",                                                                            \
      (ls_cu_memory, ls_cu_context, ls_cu_memory, ls_cu_context, size_t, ls_cu_stream))                                \
    F(StreamCreate, "cuStreamCreate", (ls_cu_stream *, unsigned))                                                      \
    F(StreamDestroy, "cuStreamDestroy_v2", (ls_cu_stream))                                                             \
    F(StreamQuery, "cuStreamQuery", (ls_cu_stream))                                                                    \
    F(StreamSynchronize, "cuStreamSynchronize", (ls_cu_stream))                                                        \
    F(EventCreate, "cuEventCreate", (ls_cu_event *, unsigned))                                                         \
    F(EventRecord, "cuEventRecord", (ls_cu_event, ls_cu_stream))                                                       \
    F(EventSynchronize, "cuEventSynchronize", (ls_cu_event))                                                           \
    F(EventDestroy, "cuEventDestroy_v2", (ls_cu_event))                                                                \
    F(ModuleLoadData, "cuModuleLoadData", (ls_cu_module *, const void *))                                              \
    F(ModuleUnload, "cuModuleUnload", (ls_cu_module))                                                                  \
    F(ModuleGetFunction, "cuModuleGetFunction", (ls_cu_function *, ls_cu_module, const char *))                        \
    F(LaunchKernel, "cuLaunchKernel",                                                                                  \
      (ls_cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, ls_cu_stream, void **,    \
       void **))

#define LS_NVRTC_FUNCTIONS(F)                                                                                          \
    F(Version, "nvrtcVersion", (int *, int *))                                                                         \
    F(CreateProgram, "nvrtcCreateProgram",                                                                             \
      (ls_nvrtc_program *, const char *, const char *, int, const char *const *, const char *const *))                 \
    F(DestroyProgram, "nvrtcDestroyProgram", (ls_nvrtc_program *))                                                     \
    F(CompileProgram, "nvrtcCompileProgram", (ls_nvrtc_program, int, const char *const *))                             \
    F(GetCUBINSize, "nvrtcGetCUBINSize", (ls_nvrtc_program, size_t *))                                                 \
    F(GetCUBIN, "nvrtcGetCUBIN", (ls_nvrtc_program, char *))                                                           \
    F(GetProgramLogSize, "nvrtcGetProgramLogSize", (ls_nvrtc_program, size_t *))                                       \
    F(GetProgramLog, "nvrtcGetProgramLog", (ls_nvrtc_program, char *))

#define LS_NCCL_FUNCTIONS(F)                                                                                           \
    F(GetVersion, "ncclGetVersion", (int *))                                                                           \
    F(CommInitAll, "ncclCommInitAll", (ls_nccl_comm *, int, const int *))                                              \
    F(CommDestroy, "ncclCommDestroy", (ls_nccl_comm))                                                                  \
    F(CommAbort, "ncclCommAbort", (ls_nccl_comm))                                                                      \
    F(CommGetAsyncError, "ncclCommGetAsyncError", (ls_nccl_comm, int *))                                               \
    F(GroupStart, "ncclGroupStart", (void))                                                                            \
    F(GroupEnd, "ncclGroupEnd", (void))                                                                                \
    F(Send, "ncclSend", (const void *, size_t, int, int, ls_nccl_comm, ls_cu_stream))                                  \
    F(Recv, "ncclRecv", (void *, size_t, int, int, ls_nccl_comm, ls_cu_stream))                                        \
    F(AllGather, "ncclAllGather", (const void *, void *, size_t, int, ls_nccl_comm, ls_cu_stream))

/* cu.Init(0), nvrtc.Version(&major, &minor), nccl.GroupStart() */
#define LS_CU_POINTER(name, symbol, arguments) int(*name) arguments;
typedef struct ls_cu {
    LS_CU_FUNCTIONS(LS_CU_POINTER)
} ls_cu;
typedef struct ls_nvrtc {
    LS_NVRTC_FUNCTIONS(LS_CU_POINTER)
} ls_nvrtc;
typedef struct ls_nccl {
    LS_NCCL_FUNCTIONS(LS_CU_POINTER)
} ls_nccl;
#undef LS_CU_POINTER

#endif
