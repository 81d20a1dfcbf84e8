/* A backend for tests. It calls itself GPU and is as unkind as a real one may be:
 *   - what it is asked for waits in a queue and is done later, in order, by a thread of the device, after small random
 *     delays; an error of such work is reported by the device's next download, finite or sync, and then forgotten;
 *   - its buffers are handles: reading or writing one crashes, always. The bytes are elsewhere, and new ones are NaNs;
 *   - a copy reads its source when its turn comes on the device that it goes to;
 *   - it has some ops only, and little memory, which logical devices of one number share;
 *   - tests can make it fail, and wait.
 * It computes with the reference kernels. It counts what it is asked for and what is not given back, and notices what
 * no backend need bear: a handle it never gave, places outside a buffer, a room that is used and has no memory, new
 * values over what they are made from or over the state that the run reads, an op it denies, two threads at once. */
#ifndef TESTS_GPU_H
#define TESTS_GPU_H

#include "lockstep/backend.h"

typedef struct gpu gpu;

#define GPU_DENY       "cast,assign,assign_add,group,gather_batch,scatter_batch"
#define GPU_DENY_STATE GPU_DENY ",apply" /* variables are updated by the host */

typedef struct gpu_settings {
    int devices;
    size_t memory;    /* bytes of each device; 0: 64 MiB */
    const char *deny; /* ops that it has no kernels for, copied: GPU_DENY ",relu"; NULL: GPU_DENY */
    bool copies;   /* it copies between its devices, and within one, itself; and runs and joins several lanes at once */
    int queue;     /* calls that may wait; then callers do. 0: 16 */
    int delay;     /* most microseconds before a command; 0: 100; -1: none */
    uint32_t seed; /* seed of the delays */
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
    int64_t calls[GPU_CALLS];    /* failed ones included */
    size_t bytes[GPU_CALLS];     /* bytes that they moved or allocated */
    int devices, buffers, plans; /* still open or not given back; a device that is closed leaves them counted */
    size_t memory;               /* bytes of these buffers */
    int misuses;                 /* each was answered by LS_ERR_INTERNAL, where a call has an answer */
} gpu_counts;

/* NULL: no memory. It must outlive the contexts that it is added to. */
gpu *gpu_create(gpu_settings settings);
void gpu_destroy(gpu *g);
const ls_backend *gpu_backend(gpu *g);

gpu_counts gpu_counted(gpu *g);
const char *gpu_call_name(gpu_call call); /* "upload" */

/* The nth call of this kind from now fails (1: the next; 0: none will), on any device: an alloc with
 * LS_ERR_MEMORY, others with LS_ERR_DEVICE. Late: an upload, copy, join or run succeeds, is not done, and the next
 * download, finite or sync of its device (of a copy: the one it goes to) fails; other calls fail as by gpu_fail_next.
 * May be called by any thread, as may those above. */
void gpu_fail_next(gpu *g, gpu_call call, int nth);
void gpu_fail_late(gpu *g, gpu_call call, int nth);

/* From the nth call of this kind on this device (1: the next) that call and all others on it fail with LS_ERR_DEVICE,
 * copies from it as well, for good: the device is lost. What frees still frees. */
void gpu_lose(gpu *g, int device, gpu_call call, int nth);

/* While held, no device begins anything: calls that wait (download, finite, sync, free, plan_destroy, close, and any
 * when the queue is full) wait until it is let go. */
void gpu_hold(gpu *g, bool held);

#endif
