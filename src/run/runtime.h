/* What runs of one context share: the crew of worker threads and the CPU backend. */
#ifndef LS_RUN_RUNTIME_H
#define LS_RUN_RUNTIME_H

#include "backend/host.h"
#include "device/context.h"
#include "device/thread_pool.h"

typedef struct ls_runtime {
    ls_kernel_source host;      /* the CPU backend */
    ls_kernel_source reference; /* the same with the reference kernels alone */
    ls_thread_pool *crew;       /* NULL until a run needs it */
    int cpu_workers;            /* of CPU devices; the crew's others drive a device each */
    int workers;
    int *cores; /* by worker; -1: not bound. NULL: none is */
} ls_runtime;

/* The context's runtime, made at the first call. */
ls_status ls_runtime_of(ls_context *ctx, ls_runtime **out);

/* Its crew, started at the first call. */
ls_status ls_runtime_crew(ls_context *ctx, ls_thread_pool **out);

#endif
