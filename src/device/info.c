/* Queries about CPU, cores and device names, also before devices are open. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "device/context.h"

const char *ls_device_short_name(const ls_context *ctx, int device, char out[LS_SHORT_NAME])
{
    const ls_device *d = &ctx->devices[device];
    snprintf(out, LS_SHORT_NAME, "%s:%d", ctx->kinds[d->kind].name, d->number);
    for (char *at = out; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    return out;
}

ls_status ls_get_cpu_info(ls_context *ctx, ls_cpu_info *out)
{
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_get_cpu_info: out is NULL");
    LS_TRY(ls_context_begin(ctx, "ls_get_cpu_info"));
    *out = (ls_cpu_info){ .cores = ctx->cores.count,
                          .quota = ctx->cores.quota,
                          .threads = ls_context_cpu_threads(ctx),
                          .l2 = ls_cores_l2_bytes() };
    snprintf(out->reason, sizeof(out->reason), "%s", ctx->cores.reason);
    return LS_OK;
}

ls_status ls_list_device_cores(ls_context *ctx, const char *device, int **out, size_t *count)
{
    int index;
    if (!device || !out || !count)
        return ls_fail(LS_ERR_INVALID, "ls_list_device_cores: the device, out or count is NULL");
    LS_TRY(ls_context_begin(ctx, "ls_list_device_cores"));
    LS_TRY(ls_context_device(ctx, device, &index));
    const ls_device *d = &ctx->devices[index];
    size_t bound = d->kind == LS_CPU && ls_context_binds_threads(ctx) ? (size_t)d->thread_count : 0;
    int *list = calloc(bound + 1, sizeof(*list));
    if (!list)
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %zu cores", bound);
    for (size_t i = 0; i < bound; i++)
        list[i] = ctx->cores.os_index[(size_t)d->first_thread + i];
    *out = list;
    *count = bound;
    return LS_OK;
}

ls_status ls_read_device_names(ls_context *ctx, const char *names, ls_device_name **out, size_t *count)
{
    ls_kind_count kinds[LS_MAX_KINDS];
    ls_named_device *found = NULL;
    int named = 0;
    if (!ctx || !names || !out || !count)
        return ls_fail(LS_ERR_INVALID, "ls_read_device_names: ctx, names, out or count is NULL");
    LS_TRY(ls_context_check(ctx, "ls_read_device_names"));
    pthread_mutex_lock(&ctx->mutex);
    ls_status status = ls_context_look_for(ctx, names);
    pthread_mutex_unlock(&ctx->mutex);
    LS_TRY(status);
    int kind_count = ls_context_kinds(ctx, false, kinds);
    kinds[LS_CPU].count = LS_MAX_THREADS;
    kinds[LS_CPU].made_as_named = true;
    LS_TRY(ls_names_read(names, kinds, kind_count, ls_context_worker(ctx), &found, &named));
    ls_device_name *list = calloc((size_t)named + 1, sizeof(*list));
    if (!list)
        status = ls_fail(LS_ERR_MEMORY, "no memory for a list of %d devices", named);
    for (int i = 0; i < named && status == LS_OK; i++) {
        status = ls_names_refuse_cores(names, &found[i]);
        snprintf(list[i].kind, sizeof(list[i].kind), "%s", kinds[found[i].kind].kind);
        list[i].number = found[i].number;
    }
    free(found);
    if (status != LS_OK) {
        free(list);
        return status;
    }
    *out = list;
    *count = (size_t)named;
    return LS_OK;
}

double ls_device_speed(ls_device *device)
{
    pthread_mutex_lock(&device->mutex);
    double speed = device->seconds > 0 ? device->flops / device->seconds * device->thread_count : 0;
    pthread_mutex_unlock(&device->mutex);
    return speed;
}
