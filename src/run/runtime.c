/* Creates the runtime of a context: the CPU backend, and later the thread pool. */
#include "run/runtime.h"

#include <stdlib.h>

static void close_runtime(ls_runtime *runtime)
{
    ls_thread_pool_destroy(runtime->thread_pool);
    if (runtime->host.close)
        runtime->host.close(runtime->host.backend);
    if (runtime->reference.close)
        runtime->reference.close(runtime->reference.backend);
    free(runtime->cores);
    free(runtime);
}

static ls_status bind_threads(ls_runtime *runtime, const ls_context *ctx)
{
    if (!ls_context_binds_threads(ctx))
        return LS_OK;
    runtime->cores = calloc((size_t)runtime->threads, sizeof(*runtime->cores));
    if (!runtime->cores)
        return ls_fail(LS_ERR_MEMORY, "no memory for %d threads", runtime->threads);
    for (int w = 0; w < runtime->threads; w++)
        runtime->cores[w] = w < runtime->cpu_threads ? ctx->cores.os_index[w] : -1;
    return LS_OK;
}

static ls_status make_runtime(ls_context *ctx, ls_runtime **out)
{
    ls_runtime *runtime = calloc(1, sizeof(*runtime));
    if (!runtime)
        return ls_fail(LS_ERR_MEMORY, "no memory for a runtime");
    runtime->cpu_threads = ls_context_cpu_threads(ctx);
    runtime->threads = runtime->cpu_threads + ctx->device_count - ctx->cpu_count;
    ls_status status = bind_threads(runtime, ctx);
    if (status == LS_OK) {
        ls_log_write(&ctx->log, LS_LOG_INFO, "CPU: %s; %d devices with %d threads", ctx->cores.reason, ctx->cpu_count,
                     runtime->cpu_threads);
        status = ls_host_open(runtime->cpu_threads, &ctx->log, ctx->options.reference, &runtime->host);
    }
    if (status == LS_OK)
        status = ls_host_open(runtime->cpu_threads, &ctx->log, true, &runtime->reference);
    if (status != LS_OK) {
        close_runtime(runtime);
        return status;
    }
    *out = runtime;
    return LS_OK;
}

ls_status ls_runtime_of(ls_context *ctx, ls_runtime **out)
{
    LS_TRY(ls_context_begin(ctx, "a run"));
    ls_status status = LS_OK;
    pthread_mutex_lock(&ctx->mutex);
    if (!ctx->runtime) {
        ctx->close_runtime = close_runtime;
        status = make_runtime(ctx, &ctx->runtime);
    }
    pthread_mutex_unlock(&ctx->mutex);
    if (status == LS_OK)
        *out = ctx->runtime;
    return status;
}

ls_status ls_runtime_thread_pool(ls_context *ctx, ls_thread_pool **out)
{
    ls_runtime *runtime = NULL;
    LS_TRY(ls_runtime_of(ctx, &runtime));
    ls_status status = LS_OK;
    pthread_mutex_lock(&ctx->mutex);
    if (!runtime->thread_pool)
        status = ls_thread_pool_create(runtime->threads, runtime->cores, ctx->crowded, &runtime->thread_pool);
    pthread_mutex_unlock(&ctx->mutex);
    if (status == LS_OK)
        *out = runtime->thread_pool;
    return status;
}
