/* Opening and closing a context. */
#include "device/context.h"

#include <stdlib.h>

#include "base/status.h"

ls_status ls_context_open(const ls_context_options *options, ls_context **out)
{
    ls_context_options given = options ? *options : (ls_context_options){ .log_sink = NULL };
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_context_open: no place for the context was given");
    if ((unsigned)given.log_level > LS_LOG_DEBUG)
        return ls_fail(LS_ERR_INVALID, "ls_context_open: there is no log level %d", (int)given.log_level);
    if (given.cpu_devices < 0 || given.cpu_devices > LS_MAX_WORKERS || given.threads < 0 ||
        given.threads > LS_MAX_WORKERS)
        return ls_fail(LS_ERR_INVALID, "ls_context_open: %d CPU devices with %d threads: 0 to %d are possible",
                       given.cpu_devices, given.threads, LS_MAX_WORKERS);
    ls_context *ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return ls_fail(LS_ERR_MEMORY, "ls_context_open: no memory for a context");
    ls_log_level level = given.log_level ? given.log_level : LS_LOG_WARNING;
    ls_status status = ls_log_init(&ctx->log, level, given.log_sink, given.log_user);
    if (status != LS_OK) {
        free(ctx);
        return status;
    }
    pthread_mutex_init(&ctx->mutex, NULL);
    ctx->options = given;
    *out = ctx;
    return LS_OK;
}

void ls_context_close(ls_context *ctx)
{
    if (!ctx)
        return;
    if (ctx->runtime)
        ctx->close_runtime(ctx->runtime);
    pthread_mutex_destroy(&ctx->mutex);
    ls_log_destroy(&ctx->log);
    free(ctx);
}
