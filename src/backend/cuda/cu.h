/* Declares the functions of the CUDA driver, NVRTC, NCCL, cuBLAS and cuDNN that this library calls,
 * so that building needs nothing of CUDA; library.c loads them at run time.
 * tests/backend/test_cuda.c and tests/backend/test_cuda_headers.c compare with the toolkit's
 * headers. */
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
#ifndef LS_CU_VENDOR_TYPES /* test_cuda_headers.c uses the headers' types */
typedef struct ls_cublas_handle_ *ls_cublas_handle;
typedef struct ls_cudnn_handle_ *ls_cudnn_handle;
typedef struct ls_cudnn_tensor_ *ls_cudnn_tensor;
typedef struct ls_cudnn_filter_ *ls_cudnn_filter;
typedef struct ls_cudnn_convolution_ *ls_cudnn_convolution;
typedef ls_cu_stream ls_cuda_stream;
typedef int ls_cu_enum;
#endif

enum {
    LS_CUDA_SUCCESS = 0,
    LS_CUDA_ERROR_OUT_OF_MEMORY = 2,
    LS_CUDA_ERROR_NO_DEVICE = 100,
    LS_CUDA_ERROR_NOT_READY = 600,
    LS_CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    LS_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    LS_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    LS_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    LS_CU_STREAM_NON_BLOCKING = 1,
    LS_CU_EVENT_DISABLE_TIMING = 2,
    LS_NVRTC_SUCCESS = 0,
    LS_NCCL_SUCCESS = 0,
    LS_NCCL_IN_PROGRESS = 7,
    LS_NCCL_INT8 = 0,
    LS_MAJOR_VERSION = 0, /* properties of a library */
    LS_MINOR_VERSION = 1,
    LS_PATCH_LEVEL = 2,
    LS_CUBLAS_STATUS_SUCCESS = 0,
    LS_CUBLAS_STATUS_ALLOC_FAILED = 3,
    LS_CUBLAS_OP_N = 0,
    LS_CUBLAS_OP_T = 1,
    LS_CUBLAS_ATOMICS_NOT_ALLOWED = 0,
    LS_CUBLAS_PEDANTIC_MATH = 2, /* neither TF32 nor emulation */
    LS_CUDNN_STATUS_SUCCESS = 0,
    LS_CUDNN_STATUS_NOT_SUPPORTED = 3000, /* up to 3999; 9 before cuDNN 9 */
    LS_CUDNN_DATA_FLOAT = 0,
    LS_CUDNN_TENSOR_NHWC = 1,
    LS_CUDNN_CROSS_CORRELATION = 1,
    LS_CUDNN_FMA_MATH = 3, /* no TF32 */
    LS_CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM = 0,
    LS_CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1,
    /* _0 adds in an unspecified order, as do _0 and _3 for filters */
    LS_CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1,
    LS_CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 = 1,
};

/* One row per function: name, symbol, arguments. All return an int, 0 on success. */
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
    F(GetNumSupportedArchs, "nvrtcGetNumSupportedArchs", (int *))                                                      \
    F(GetSupportedArchs, "nvrtcGetSupportedArchs", (int *))                                                            \
    F(GetPTXSize, "nvrtcGetPTXSize", (ls_nvrtc_program, size_t *))                                                     \
    F(GetPTX, "nvrtcGetPTX", (ls_nvrtc_program, char *))                                                               \
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

/* clang-format off */
#define LS_CUBLAS_FUNCTIONS(F)                                                                                         \
    F(GetProperty, cublasGetProperty, (ls_cu_enum, int *))                                                             \
    F(Create, cublasCreate_v2, (ls_cublas_handle *))                                                                   \
    F(Destroy, cublasDestroy_v2, (ls_cublas_handle))                                                                   \
    F(SetStream, cublasSetStream_v2, (ls_cublas_handle, ls_cuda_stream))                                               \
    F(SetWorkspace, cublasSetWorkspace_v2, (ls_cublas_handle, void *, size_t))                                         \
    F(SetMathMode, cublasSetMathMode, (ls_cublas_handle, ls_cu_enum))                                                  \
    F(SetAtomicsMode, cublasSetAtomicsMode, (ls_cublas_handle, ls_cu_enum))                                            \
    F(Sgemm, cublasSgemm_v2,                                                                                           \
      (ls_cublas_handle, ls_cu_enum, ls_cu_enum, int, int, int, const float *, const float *, int, const float *, int, \
       const float *, float *, int))                                                                                   \
    F(SgemmStridedBatched, cublasSgemmStridedBatched,                                                                  \
      (ls_cublas_handle, ls_cu_enum, ls_cu_enum, int, int, int, const float *, const float *, int, long long,          \
       const float *, int, long long, const float *, float *, int, long long, int))

#define LS_CUDNN_FUNCTIONS(F)                                                                                          \
    F(GetProperty, cudnnGetProperty, (ls_cu_enum, int *))                                                              \
    F(Create, cudnnCreate, (ls_cudnn_handle *))                                                                        \
    F(Destroy, cudnnDestroy, (ls_cudnn_handle))                                                                        \
    F(SetStream, cudnnSetStream, (ls_cudnn_handle, ls_cuda_stream))                                                    \
    F(CreateTensor, cudnnCreateTensorDescriptor, (ls_cudnn_tensor *))                                                  \
    F(SetTensor, cudnnSetTensor4dDescriptor, (ls_cudnn_tensor, ls_cu_enum, ls_cu_enum, int, int, int, int))            \
    F(DestroyTensor, cudnnDestroyTensorDescriptor, (ls_cudnn_tensor))                                                  \
    F(CreateFilter, cudnnCreateFilterDescriptor, (ls_cudnn_filter *))                                                  \
    F(SetFilter, cudnnSetFilter4dDescriptor, (ls_cudnn_filter, ls_cu_enum, ls_cu_enum, int, int, int, int))            \
    F(DestroyFilter, cudnnDestroyFilterDescriptor, (ls_cudnn_filter))                                                  \
    F(CreateConvolution, cudnnCreateConvolutionDescriptor, (ls_cudnn_convolution *))                                   \
    F(SetConvolution, cudnnSetConvolution2dDescriptor,                                                                 \
      (ls_cudnn_convolution, int, int, int, int, int, int, ls_cu_enum, ls_cu_enum))                                    \
    F(SetGroups, cudnnSetConvolutionGroupCount, (ls_cudnn_convolution, int))                                           \
    F(SetMath, cudnnSetConvolutionMathType, (ls_cudnn_convolution, ls_cu_enum))                                        \
    F(DestroyConvolution, cudnnDestroyConvolutionDescriptor, (ls_cudnn_convolution))                                   \
    F(ForwardWorkspace, cudnnGetConvolutionForwardWorkspaceSize,                                                       \
      (ls_cudnn_handle, ls_cudnn_tensor, ls_cudnn_filter, ls_cudnn_convolution, ls_cudnn_tensor, ls_cu_enum,           \
       size_t *))                                                                                                      \
    F(DataWorkspace, cudnnGetConvolutionBackwardDataWorkspaceSize,                                                     \
      (ls_cudnn_handle, ls_cudnn_filter, ls_cudnn_tensor, ls_cudnn_convolution, ls_cudnn_tensor, ls_cu_enum,           \
       size_t *))                                                                                                      \
    F(FilterWorkspace, cudnnGetConvolutionBackwardFilterWorkspaceSize,                                                 \
      (ls_cudnn_handle, ls_cudnn_tensor, ls_cudnn_tensor, ls_cudnn_convolution, ls_cudnn_filter, ls_cu_enum,           \
       size_t *))                                                                                                      \
    F(Forward, cudnnConvolutionForward,                                                                                \
      (ls_cudnn_handle, const void *, ls_cudnn_tensor, const void *, ls_cudnn_filter, const void *,                    \
       ls_cudnn_convolution, ls_cu_enum, void *, size_t, const void *, ls_cudnn_tensor, void *))                       \
    F(BackwardData, cudnnConvolutionBackwardData,                                                                      \
      (ls_cudnn_handle, const void *, ls_cudnn_filter, const void *, ls_cudnn_tensor, const void *,                    \
       ls_cudnn_convolution, ls_cu_enum, void *, size_t, const void *, ls_cudnn_tensor, void *))                       \
    F(BackwardFilter, cudnnConvolutionBackwardFilter,                                                                  \
      (ls_cudnn_handle, const void *, ls_cudnn_tensor, const void *, ls_cudnn_tensor, const void *,                    \
       ls_cudnn_convolution, ls_cu_enum, void *, size_t, const void *, ls_cudnn_filter, void *))
/* clang-format on */

/* Called as cu.Init(0), nvrtc.Version(&major, &minor), nccl.GroupStart(). */
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
typedef struct ls_cublas {
    LS_CUBLAS_FUNCTIONS(LS_CU_POINTER)
} ls_cublas;
typedef struct ls_cudnn {
    LS_CUDNN_FUNCTIONS(LS_CU_POINTER)
} ls_cudnn;
#undef LS_CU_POINTER

#endif
