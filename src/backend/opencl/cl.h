/* Declares the part of OpenCL 1.2 that this library uses, so that building needs neither headers
 * nor a library; library.c loads libOpenCL at run time. tests/backend/test_opencl.c compares the
 * constants with the official headers. */
#ifndef LS_BACKEND_OPENCL_CL_H
#define LS_BACKEND_OPENCL_CL_H

#include <stddef.h>
#include <stdint.h>

typedef struct ls_cl_platform_ *ls_cl_platform;
typedef struct ls_cl_device_ *ls_cl_device;
typedef struct ls_cl_context_ *ls_cl_context;
typedef struct ls_cl_queue_ *ls_cl_queue;
typedef struct ls_cl_mem_ *ls_cl_mem;
typedef struct ls_cl_program_ *ls_cl_program;
typedef struct ls_cl_kernel_ *ls_cl_kernel;
typedef struct ls_cl_event_ *ls_cl_event;

enum {
    LS_CL_SUCCESS = 0,
    LS_CL_DEVICE_NOT_FOUND = -1,
    LS_CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    LS_CL_OUT_OF_RESOURCES = -5,
    LS_CL_OUT_OF_HOST_MEMORY = -6,
    LS_CL_BUILD_PROGRAM_FAILURE = -11,
    LS_CL_PLATFORM_NAME = 0x0902,
    LS_CL_PLATFORM_VERSION = 0x0901,
    LS_CL_DEVICE_TYPE = 0x1000,
    LS_CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    LS_CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    LS_CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    LS_CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    LS_CL_DEVICE_AVAILABLE = 0x1027,
    LS_CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
    LS_CL_DEVICE_NAME = 0x102B,
    LS_CL_DRIVER_VERSION = 0x102D,
    LS_CL_DEVICE_VERSION = 0x102F,
    LS_CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    LS_CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT = 0x103A,
    LS_CL_DEVICE_PARTITION_BY_COUNTS = 0x1087,
    LS_CL_PROGRAM_BINARY_SIZES = 0x1165,
    LS_CL_PROGRAM_BINARIES = 0x1166,
    LS_CL_PROGRAM_BUILD_LOG = 0x1183,
};
#define LS_CL_DEVICE_TYPE_CPU   ((uint64_t)1 << 1)
#define LS_CL_DEVICE_TYPE_GPU   ((uint64_t)1 << 2)
#define LS_CL_DEVICE_TYPE_ALL   ((uint64_t)0xFFFFFFFF)
#define LS_CL_FP_DENORM         ((uint64_t)1 << 0)
#define LS_CL_FP_CORRECT_DIVIDE ((uint64_t)1 << 7)
#define LS_CL_MEM_READ_WRITE    ((uint64_t)1 << 0)

/* One row per function: name, result, arguments. */
#define LS_CL_FUNCTIONS(F)                                                                                             \
    F(GetPlatformIDs, int32_t, (uint32_t, ls_cl_platform *, uint32_t *))                                               \
    F(GetPlatformInfo, int32_t, (ls_cl_platform, uint32_t, size_t, void *, size_t *))                                  \
    F(GetDeviceIDs, int32_t, (ls_cl_platform, uint64_t, uint32_t, ls_cl_device *, uint32_t *))                         \
    F(GetDeviceInfo, int32_t, (ls_cl_device, uint32_t, size_t, void *, size_t *))                                      \
    F(CreateSubDevices, int32_t, (ls_cl_device, const intptr_t *, uint32_t, ls_cl_device *, uint32_t *))               \
    F(ReleaseDevice, int32_t, (ls_cl_device))                                                                          \
    F(CreateContext, ls_cl_context,                                                                                    \
      (const intptr_t *, uint32_t, const ls_cl_device *, void (*)(const char *, const void *, size_t, void *), void *, \
       int32_t *))                                                                                                     \
    F(ReleaseContext, int32_t, (ls_cl_context))                                                                        \
    F(CreateCommandQueue, ls_cl_queue, (ls_cl_context, ls_cl_device, uint64_t, int32_t *))                             \
    F(ReleaseCommandQueue, int32_t, (ls_cl_queue))                                                                     \
    F(CreateBuffer, ls_cl_mem, (ls_cl_context, uint64_t, size_t, void *, int32_t *))                                   \
    F(ReleaseMemObject, int32_t, (ls_cl_mem))                                                                          \
    F(CreateProgramWithSource, ls_cl_program, (ls_cl_context, uint32_t, const char **, const size_t *, int32_t *))     \
    F(CreateProgramWithBinary, ls_cl_program,                                                                          \
      (ls_cl_context, uint32_t, const ls_cl_device *, const size_t *, const unsigned char **, int32_t *, int32_t *))   \
    F(BuildProgram, int32_t,                                                                                           \
      (ls_cl_program, uint32_t, const ls_cl_device *, const char *, void (*)(ls_cl_program, void *), void *))          \
    F(GetProgramInfo, int32_t, (ls_cl_program, uint32_t, size_t, void *, size_t *))                                    \
    F(GetProgramBuildInfo, int32_t, (ls_cl_program, ls_cl_device, uint32_t, size_t, void *, size_t *))                 \
    F(ReleaseProgram, int32_t, (ls_cl_program))                                                                        \
    F(CreateKernel, ls_cl_kernel, (ls_cl_program, const char *, int32_t *))                                            \
    F(ReleaseKernel, int32_t, (ls_cl_kernel))                                                                          \
    F(SetKernelArg, int32_t, (ls_cl_kernel, uint32_t, size_t, const void *))                                           \
    F(EnqueueNDRangeKernel, int32_t,                                                                                   \
      (ls_cl_queue, ls_cl_kernel, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,                  \
       const ls_cl_event *, ls_cl_event *))                                                                            \
    F(EnqueueReadBuffer, int32_t,                                                                                      \
      (ls_cl_queue, ls_cl_mem, uint32_t, size_t, size_t, void *, uint32_t, const ls_cl_event *, ls_cl_event *))        \
    F(EnqueueWriteBuffer, int32_t,                                                                                     \
      (ls_cl_queue, ls_cl_mem, uint32_t, size_t, size_t, const void *, uint32_t, const ls_cl_event *, ls_cl_event *))  \
    F(EnqueueCopyBuffer, int32_t,                                                                                      \
      (ls_cl_queue, ls_cl_mem, ls_cl_mem, size_t, size_t, size_t, uint32_t, const ls_cl_event *, ls_cl_event *))       \
    F(WaitForEvents, int32_t, (uint32_t, const ls_cl_event *))                                                         \
    F(ReleaseEvent, int32_t, (ls_cl_event))                                                                            \
    F(Flush, int32_t, (ls_cl_queue))                                                                                   \
    F(Finish, int32_t, (ls_cl_queue))

/* Called as cl.GetPlatformIDs(...). */
typedef struct ls_cl {
#define LS_CL_POINTER(name, result, arguments) result(*name) arguments;
    LS_CL_FUNCTIONS(LS_CL_POINTER)
#undef LS_CL_POINTER
} ls_cl;

#endif
