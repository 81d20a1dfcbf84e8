/* A backend for tests: simulated devices of the kind GPU, as difficult as real ones may be.
 *   - Calls enter a queue. A thread of the device executes them later, in order, after small random
 *     delays. The device's next download, finite or sync reports an error of such work, once.
 *   - Buffers are handles: reading or writing through one crashes. The bytes are elsewhere; new
 *     ones are NaNs.
 *   - The destination device executes a copy, and reads its source only then.
 *   - It lacks some ops, and has little memory, which logical devices of one number share.
 *   - Tests can make calls fail, and can hold the queue.
 * It computes with the reference kernels. It counts calls and objects that were not freed, and
 * detects misuse by the library: an unknown handle, bytes outside a buffer, a program that uses a
 * room without memory, output that overlaps its inputs or the state that the run reads, an op that
 * it does not support, two threads at once. */
#ifndef TESTS_GPU_H
#define TESTS_GPU_H

#include "lockstep/backend.h"

typedef struct gpu gpu;

#define GPU_DENY       "cast,assign,assign_add,group,gather_batch,scatter_batch"
#define GPU_DENY_STATE GPU_DENY ",apply" /* the host updates variables */

typedef struct gpu_settings {
    int devices;
    size_t memory;    /* bytes of each device; 0: 64 MiB */
    const char *deny; /* ops without kernels, copied: GPU_DENY ",relu" (NULL: GPU_DENY) */
    bool copies;      /* has copy, plan_run_lanes and join_lanes */
    int queue;        /* length of the queue; callers wait while it is full (0: 16) */
    int delay;        /* maximum microseconds before a command (0: 100; -1: none) */
    uint32_t seed;    /* seed of the delays */
} gpu_settings;

typedef enum gpu_call {
    GPU_OPEN,
    GPU_ALLOC,
    GPU_UPLOAD,
    GPU_DOWNLOAD,
    GPU_COPY,
    GPU_JOIN,
    GPU_FINITE,
    GPU_PLAN, /* plan_create */
    GPU_RUN,  /* plan_run */
    GPU_SYNC,
    GPU_CALLS,
} gpu_call;

/* Counts of all devices together. */
typedef struct gpu_counts {
    int64_t calls[GPU_CALLS];    /* including failed calls */
    size_t bytes[GPU_CALLS];     /* bytes that these calls moved or allocated */
    int devices, buffers, plans; /* not closed or freed; closing a device frees none of them */
    size_t memory;               /* bytes of these buffers */
    int misuses;                 /* such calls return LS_ERR_INTERNAL, if they have a status */
} gpu_counts;

/* Returns NULL without memory. The backend must outlive the contexts that it is added to. */
gpu *gpu_create(gpu_settings settings);
void gpu_destroy(gpu *g);
const ls_backend *gpu_backend(gpu *g);

gpu_counts gpu_counted(gpu *g);
const char *gpu_call_name(gpu_call call); /* "upload" */

/* gpu_fail_next makes the nth call of this kind from now on fail, on any device (1: the next; 0:
 * none): an alloc with LS_ERR_MEMORY, others with LS_ERR_DEVICE. gpu_fail_late makes an upload,
 * copy, join or run return LS_OK without doing its work; the next download, finite or sync of its
 * device (of a copy: the destination) fails. Other calls fail as by gpu_fail_next. Any thread may
 * call these functions, gpu_counted and gpu_call_name. */
void gpu_fail_next(gpu *g, gpu_call call, int nth);
void gpu_fail_late(gpu *g, gpu_call call, int nth);

/* Loses a device: the nth call of this kind on it (1: the next) and all calls after it, also copies
 * from it, fail with LS_ERR_DEVICE. Calls that free memory still work. */
void gpu_lose(gpu *g, int device, gpu_call call, int nth);

/* While held, no device executes its queue. Calls that wait for the queue (download, finite, sync,
 * free, plan_destroy, close, and any call when the queue is full) return only after its release. */
void gpu_hold(gpu *g, bool held);

#endif
