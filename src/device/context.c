/* Creates, opens, checks and closes contexts. */
#include "device/context.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fpmode.h"
#include "base/status.h"

static ls_status check_options(const ls_context_options *given, const char *call, ls_context **out)
{
    if (!out)
        return ls_fail(LS_ERR_INVALID, "%s: out is NULL", call);
    if ((unsigned)given->log_level > LS_LOG_DEBUG)
        return ls_fail(LS_ERR_INVALID, "%s: unknown log level %d", call, (int)given->log_level);
    if (given->cpu_devices < 0 || given->cpu_devices > LS_MAX_THREADS || given->threads < 0 ||
        given->threads > LS_MAX_THREADS)
        return ls_fail(LS_ERR_INVALID, "%s: %d CPU devices with %d threads: each must be from 0 to %d", call,
                       given->cpu_devices, given->threads, LS_MAX_THREADS);
    if ((unsigned)given->kernels > LS_KERNELS_VENDOR)
        return ls_fail(LS_ERR_INVALID, "%s: unknown set of kernels %d", call, (int)given->kernels);
    return LS_OK;
}

/* LOCKSTEP_KERNELS applies if the program does not choose. */
static ls_status choose_kernels(ls_context_options *given, const char *call)
{
    const char *chosen = getenv("LOCKSTEP_KERNELS");
    if (given->kernels != LS_KERNELS_DEFAULT)
        return LS_OK;
    if (chosen && chosen[0] && strcmp(chosen, "own") != 0 && strcmp(chosen, "vendor") != 0)
        return ls_fail(LS_ERR_INVALID, "%s: LOCKSTEP_KERNELS=%s: expected own or vendor", call, chosen);
    given->kernels = chosen && strcmp(chosen, "vendor") == 0 ? LS_KERNELS_VENDOR : LS_KERNELS_OWN;
    return LS_OK;
}

static void free_context(ls_context *ctx)
{
    ls_library_hooks.leave_cluster(ctx);
    if (ctx->runtime)
        ctx->close_runtime(ctx->runtime);
    ls_context_close_devices(ctx);
    for (int i = 0; i < ctx->physical_count; i++)
        free(ctx->physical[i].parts);
    free(ctx->physical);
    free(ctx->copies);
    free(ctx->bit_class);
    ls_cores_free(&ctx->cores);
    ls_cores_free(&ctx->allowed);
    pthread_mutex_destroy(&ctx->mutex);
    pthread_mutex_destroy(&ctx->devices_mutex);
    ls_log_destroy(&ctx->log);
    free(ctx);
}

/* ---- Calls of graphs (graph/context.h) ---- */

static bool is_inherited(const ls_context *ctx)
{
    return ctx->process != getpid();
}

static ls_status add_graph(ls_context *ctx, const char *call)
{
    LS_TRY(ls_context_begin(ctx, call));
    pthread_mutex_lock(&ctx->mutex);
    ctx->graph_count++;
    pthread_mutex_unlock(&ctx->mutex);
    return LS_OK;
}

static void drop_graph(ls_context *ctx)
{
    pthread_mutex_lock(&ctx->mutex);
    bool last = --ctx->graph_count == 0 && ctx->closed;
    pthread_mutex_unlock(&ctx->mutex);
    if (last)
        free_context(ctx);
}

LS_PRINTF(2, 3) static void refuse(ls_context *ctx, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ls_fail_v(LS_ERR_STATE, format, args);
    va_end(args);
    ls_log_write(&ctx->log, LS_LOG_ERROR, "%s", ls_last_error());
}

static ls_memory *cpu_memory(const ls_context *ctx, int device)
{
    return ctx->devices[device > 0 && device < ctx->cpu_count ? device : 0].memory;
}

static ls_status take(ls_context *ctx, int device, size_t bytes, const char *what, ls_block **out)
{
    LS_TRY(ls_context_check(ctx, what));
    return ls_memory_take(cpu_memory(ctx, device), bytes, what, out);
}

static void give(ls_context *ctx, int device, ls_block *block)
{
    if (!is_inherited(ctx))
        ls_memory_give(cpu_memory(ctx, device), block);
}

static void *data(const ls_block *block)
{
    return (char *)block->region + block->offset;
}

static const ls_context_calls calls = {
    .is_inherited = is_inherited,
    .add_graph = add_graph,
    .drop_graph = drop_graph,
    .refuse = refuse,
    .take = take,
    .give = give,
    .data = data,
};

/* ---- Creating and closing ---- */

static ls_status create(const ls_context_options *options, const char *call, ls_context **out)
{
    ls_context_options given = options ? *options : (ls_context_options){ .log_sink = NULL };
    LS_TRY(check_options(&given, call, out));
    LS_TRY(choose_kernels(&given, call));
    ls_context *ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return ls_fail(LS_ERR_MEMORY, "%s: no memory for a context", call);
    ls_log_level level = given.log_level ? given.log_level : LS_LOG_WARNING;
    ls_status status = ls_log_init(&ctx->log, level, given.log_sink, given.log_user);
    if (status != LS_OK) {
        free(ctx);
        return status;
    }
    pthread_mutex_init(&ctx->mutex, NULL);
    pthread_mutexattr_t again;
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&ctx->devices_mutex, &again);
    pthread_mutexattr_destroy(&again);
    ctx->calls = &calls;
    ctx->options = given;
    ctx->process = getpid();
    ctx->kinds[LS_CPU] = (ls_kind){ .name = "CPU" };
    ctx->kind_count = 1;
    ls_library_hooks.add_own_kinds(ctx);
    status = ls_library_hooks.look_for_cluster(ctx, call);
    if (status != LS_OK)
        free_context(ctx);
    else
        *out = ctx;
    return status;
}

ls_status ls_context_create(const ls_context_options *options, ls_context **out)
{
    return create(options, "ls_context_create", out);
}

ls_status ls_context_open(const ls_context_options *options, ls_context **out)
{
    LS_OWN_FP_MODE;
    ls_context *ctx;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_context_open: out is NULL");
    LS_TRY(create(options, "ls_context_open", &ctx));
    ls_status status = ls_context_begin(ctx, "ls_context_open");
    if (status != LS_OK) {
        ls_context_close(ctx);
        return status;
    }
    *out = ctx;
    return LS_OK;
}

void ls_context_close(ls_context *ctx)
{
    if (!ctx || ls_context_is_inherited(ctx))
        return;
    pthread_mutex_lock(&ctx->mutex);
    const char *running = ctx->running_calls > 0 ? ctx->last_call : NULL;
    int graphs = ctx->graph_count;
    bool again = ctx->closed;
    ctx->closed = ctx->closed || !running;
    pthread_mutex_unlock(&ctx->mutex);
    if (running)
        ls_context_refuse(ctx, "ls_context_close: %s is using the context; close it after that call has returned",
                          running);
    else if (again)
        ls_context_refuse(ctx, "ls_context_close: the context is already closed");
    else if (graphs > 0)
        ls_log_write(
            &ctx->log, LS_LOG_WARNING,
            "ls_context_close: the context still has %d graphs (a model has one); it is freed with the last of them",
            graphs);
    else
        free_context(ctx);
}

/* ---- Permission to use a context ---- */

ls_status ls_context_check(const ls_context *ctx, const char *call)
{
    if (!ctx)
        return ls_fail(LS_ERR_INVALID, "%s: the context is NULL", call);
    if (ls_context_is_inherited(ctx))
        return ls_fail(LS_ERR_STATE,
                       "%s: the context was created by process %ld; its threads do not exist in process %ld, which was "
                       "forked from it: open a context in each process",
                       call, (long)ctx->process, (long)getpid());
    if (ctx->closed)
        return ls_fail(LS_ERR_STATE, "%s: the context was closed", call);
    return LS_OK;
}

void ls_context_enter(ls_context *ctx, const char *call)
{
    pthread_mutex_lock(&ctx->mutex);
    ctx->running_calls++;
    ctx->last_call = call;
    pthread_mutex_unlock(&ctx->mutex);
}

void ls_context_leave(ls_context *ctx, const char *outer)
{
    pthread_mutex_lock(&ctx->mutex);
    ctx->running_calls--;
    ctx->last_call = outer ? outer : ctx->last_call;
    pthread_mutex_unlock(&ctx->mutex);
}
