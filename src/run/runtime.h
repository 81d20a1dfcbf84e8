/* Shared by all runs of a context: the thread pool and the CPU backend. */
#ifndef LS_RUN_RUNTIME_H
#define LS_RUN_RUNTIME_H

#include "backend/host.h"
#include "device/context.h"
#include "device/thread_pool.h"

typedef struct ls_runtime {
    ls_kernel_source host;       /* The CPU backend. */
    ls_kernel_source reference;  /* The CPU backend with only the reference kernels. */
    ls_thread_pool *thread_pool; /* NULL until a run needs it. */
    int cpu_threads;             /* Other threads drive one device each. */
    int threads;
    int *cores; /* By thread: core; -1: not bound. NULL: no thread is bound. */
} ls_runtime;

/* Created on the first call; so is the thread pool. */
ls_status ls_runtime_of(ls_context *ctx, ls_runtime **out);

ls_status ls_runtime_thread_pool(ls_context *ctx, ls_thread_pool **out);

#endif
