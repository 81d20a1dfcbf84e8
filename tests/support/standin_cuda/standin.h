/* A stand-in for CUDA's driver and NVRTC, so that the whole way of the CUDA backend is run where
 * there is no GPU: two shared libraries, libcuda.so.1 (driver.c, and the kernels of src/backend/gpu
 * compiled as C++, kernel.h) and libnvrtc.so (nvrtc.c), with the functions that
 * src/backend/cuda/cu.h names. It is as unkind as the real one may be:
 *   - what is asked of a stream is done later, in order, by a thread of the stream;
 *   - calls without a current context, or with another's stream, memory or event fail;
 *   - new memory is full of NaNs; there is little of it (STANDIN_CUDA_MEMORY bytes a device);
 *   - a kernel that is given memory of another device, or none, breaks its context for good, as on a GPU;
 *   - NVRTC takes only the source that was compiled in, and only with the options that the bits need.
 * libnccl.so.2 (nccl.c), libcublas.so.13 (cublas.c) and libcudnn.so.9 (cudnn.c) stand beside them.
 * The last two compute with plain loops that add up in another order than ours, so that their bits
 * are others. STANDIN_CUDA_DEVICES: how many devices, 2 if not set. CUDA_VISIBLE_DEVICES is
 * honoured. STANDIN_CUDA_ARCH: their compute capability, 80 if not set; NVRTC knows 75 to 90.
 * STANDIN_CUDA_ODD: one that has a multiprocessor less. STANDIN_CUDA_DRIVER: the driver's version,
 * 13000 if not set. STANDIN_CUDNN_REFUSES: a number of samples that cuDNN does not take.
 * STANDIN_CUDNN_WORKSPACE: bytes of workspace that its convolutions need beside a few.
 * STANDIN_CUDA_BROKEN: the fault that all devices begin with (standin_break).
 *
 * Tests steer it by the functions below, which they find in the library by dlsym. */
#ifndef STANDIN_CUDA_STANDIN_H
#define STANDIN_CUDA_STANDIN_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The nth call of this function from now ("cuMemAlloc"; 1: the next; 0: none will) fails with this
 * error. Whether the one that was to fail before has come. */
bool standin_fail(const char *call, int nth, int error);

/* From the nth launch that this device begins (1: the next) its context is broken, for good: every
 * call that needs it fails with this error. 0: none, and what was broken is whole again. Devices by
 * their numbers in the machine. */
void standin_lose(int device, int nth, int error);

/* Gives a device wrong arithmetic, to test that it is noticed: "fma" rounds fused products twice,
 * "subnormals" reads and writes subnormals as zeros, "" mends it. False: no such fault, or this
 * machine cannot have it. */
bool standin_break(int device, const char *fault);

/* How often this function was called and did not fail. */
long standin_count(const char *call);

/* Contexts, memory, streams, events and modules that were not given back. */
int standin_held(void);

/* Calls that no program may make: memory, events or streams that are not there, or another
 * context's. */
int standin_misuses(void);

/* ---- Between driver.c and the other libraries ---- */

void standin_hold(int count);
void standin_misuse(void);
int standin_call(const char *call);
void *standin_context_of(const void *stream);
void *standin_context(int number);
void *standin_current(void);

typedef struct standin_area {
    const void *at;
    size_t bytes;
} standin_area;
int standin_enqueue(void *stream, void (*function)(const void *), void *packed, const standin_area *areas, int count);

/* ---- Between driver.c and kernels ---- */

typedef struct standin_grid {
    unsigned grid[3], block[3];
    bool rounds_twice; /* fused products do, by a fault of the device */
} standin_grid;

typedef struct standin_kernel {
    const char *name;
    void *(*pack)(void **arguments); /* a copy of a launch's arguments; free() it */
    int (*places)(const void *packed, const void **out);
    void (*run)(const void *packed, const standin_grid *grid);
} standin_kernel;

typedef struct standin_module {
    const char *name;
    const standin_kernel *kernels;
    int count;
} standin_module;

/* FNV-1a, of a module's source. */
static inline unsigned long long standin_hash(const char *text)
{
    unsigned long long hash = 14695981039346656037ull;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return hash;
}

#ifdef __cplusplus
}
#endif
#endif
