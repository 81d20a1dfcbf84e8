/* Making the runtime of a context: how many workers, which device each belongs to, when they start. */
#include "run/runtime.h"

#include <stdlib.h>

#include "device/cores.h"

static void close_runtime(ls_runtime *runtime)
{
    ls_crew_destroy(runtime->crew);
    ls_cpu_close(runtime->cpu);
    free(runtime->device_of_worker);
    free(runtime->cores);
    free(runtime);
}

/* Workers share the cores out: device d has workers floor(d W / D) up to floor((d+1) W / D) - 1, and each at least one.
 */
static ls_status share_out(ls_runtime *runtime, const ls_cores *cores, const ls_context_options *options)
{
    int devices = options->cpu_devices ? options->cpu_devices : 1;
    int workers = options->threads ? options->threads : cores->count;
    workers = workers < devices ? devices : workers;
    runtime->devices = devices;
    runtime->workers = workers;
    runtime->crowded = workers > cores->count;
    runtime->device_of_worker = calloc((size_t)workers, sizeof(*runtime->device_of_worker));
    bool bind = cores->bind && workers <= cores->count;
    runtime->cores = bind ? calloc((size_t)workers, sizeof(*runtime->cores)) : NULL;
    if (!runtime->device_of_worker || (bind && !runtime->cores))
        return ls_fail(LS_ERR_MEMORY, "no memory for %d workers", workers);
    for (int d = 0; d < devices; d++)
        for (int w = (int)((int64_t)d * workers / devices); w < (int)((int64_t)(d + 1) * workers / devices); w++)
            runtime->device_of_worker[w] = d;
    for (int w = 0; bind && w < workers; w++)
        runtime->cores[w] = cores->os_index[w];
    return LS_OK;
}

static ls_status make_runtime(ls_context *ctx, ls_runtime **out)
{
    ls_cores cores;
    LS_TRY(ls_cores_find(NULL, &cores));
    ls_runtime *runtime = calloc(1, sizeof(*runtime));
    ls_status status =
        runtime ? share_out(runtime, &cores, &ctx->options) : ls_fail(LS_ERR_MEMORY, "no memory for a runtime");
    if (status == LS_OK) {
        ls_log_write(&ctx->log, LS_LOG_INFO, "CPU: %s; %d devices with %d workers", cores.reason, runtime->devices,
                     runtime->workers);
        status = ls_cpu_open(runtime->workers, &ctx->log, ctx->options.reference, &runtime->cpu);
    }
    ls_cores_free(&cores);
    if (status != LS_OK) {
        if (runtime)
            close_runtime(runtime);
        return status;
    }
    *out = runtime;
    return LS_OK;
}

ls_status ls_runtime_of(ls_context *ctx, ls_runtime **out)
{
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

ls_status ls_runtime_crew(ls_context *ctx, ls_crew **out)
{
    ls_runtime *runtime = NULL;
    LS_TRY(ls_runtime_of(ctx, &runtime));
    ls_status status = LS_OK;
    pthread_mutex_lock(&ctx->mutex);
    if (!runtime->crew)
        status =
            ls_crew_create(runtime->workers, runtime->cores, runtime->crowded, ls_dnn_enter_thread, &runtime->crew);
    pthread_mutex_unlock(&ctx->mutex);
    if (status == LS_OK)
        *out = runtime->crew;
    return status;
}
