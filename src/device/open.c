/* Opens a context: logical devices, their memory and threads. Also lists devices. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/status.h"
#include "device/calls.h"
#include "device/context.h"

#define SPARE 64 /* devices that may be opened later, when first named */

static ls_status take_region(void *user, size_t bytes, void **region)
{
    return ls_device_alloc(user, bytes, region);
}

static void give_region(void *user, void *region, size_t bytes)
{
    (void)bytes;
    ls_device_free(user, region);
}

/* CPUs without a limit and devices of unknown size always grow; others if configured. */
static ls_status open_memory(ls_device *device, const ls_physical *p, size_t limit)
{
    bool cpu = device->kind == LS_CPU;
    ls_region_source backend = { .device = device, .take = take_region, .give = give_region };
    device->limit = limit || cpu ? limit : p->memory;
    device->growth = p->growth > 0 || device->limit == 0;
    return ls_memory_open(device->name, cpu ? ls_region_host() : backend, device->limit, device->growth,
                          &device->memory);
}

static ls_status open_device(ls_context *ctx, const ls_physical *p, int number, size_t limit)
{
    ls_device *device = &ctx->devices[ctx->device_count];
    *device = (ls_device){ .index = ctx->device_count, .kind = p->kind, .number = number, .physical = p->number };
    int worker = ls_context_worker(ctx);
    snprintf(device->name, sizeof(device->name), "/job:%s/replica:0/task:%d/device:%s:%d",
             worker == LS_NO_WORKER ? "localhost" : "worker", worker == LS_NO_WORKER ? 0 : worker,
             ctx->kinds[p->kind].name, number);
    if (p->kind != LS_CPU) {
        const ls_backend *backend = &ctx->kinds[p->kind].backend;
        void *handle = NULL;
        ls_status status = backend->open(backend->user, p->number, &handle);
        if (status != LS_OK)
            return ls_fail_within(status, "opening %s", device->name);
        device->backend = backend;
        device->handle = handle;
    }
    pthread_mutex_init(&device->mutex, NULL);
    pthread_cond_init(&device->moved, NULL);
    pthread_mutex_init(&device->scratch_mutex, NULL);
    ctx->device_count++; /* closed by ls_context_close_devices from here on */
    return open_memory(device, p, limit);
}

static int parts_of(const ls_context *ctx, const ls_physical *p)
{
    if (p->parts)
        return p->part_count;
    return p->kind == LS_CPU && ctx->options.cpu_devices ? ctx->options.cpu_devices : 1;
}

/* Device d of D CPU devices gets threads floor(d W / D) to floor((d+1) W / D) - 1 of W, at least
 * one. Every other device has one, which drives it. */
static void share_threads(ls_context *ctx)
{
    int devices = ctx->cpu_count, threads = ctx->options.threads ? ctx->options.threads : ctx->cores.count;
    threads = threads < devices ? devices : threads;
    ctx->crowded = threads > ctx->cores.count;
    for (int d = 0; d < ctx->device_count; d++) {
        ls_device *device = &ctx->devices[d];
        bool cpu = device->kind == LS_CPU;
        device->first_thread = cpu ? (int)((int64_t)d * threads / devices) : threads + d - devices;
        device->thread_count = cpu ? (int)((int64_t)(d + 1) * threads / devices) - device->first_thread : 1;
    }
}

static ls_status open_devices(ls_context *ctx)
{
    int count = 0, number[LS_MAX_KINDS] = { 0 };
    for (int i = 0; i < ctx->physical_count; i++)
        count += ctx->physical[i].visible ? parts_of(ctx, &ctx->physical[i]) : 0;
    /* Never reallocated: allocators point to their device. */
    ctx->devices = calloc((size_t)count + SPARE, sizeof(*ctx->devices));
    ctx->device_room = count + SPARE;
    if (!ctx->devices)
        return ls_fail(LS_ERR_MEMORY, "no memory for %d devices", count);
    for (int i = 0; i < ctx->physical_count; i++) { /* the CPU comes first */
        const ls_physical *p = &ctx->physical[i];
        for (int part = 0; p->visible && part < parts_of(ctx, p); part++)
            LS_TRY(open_device(ctx, p, number[p->kind]++, p->parts ? p->parts[part].memory_limit : 0));
    }
    ctx->cpu_count = number[LS_CPU];
    share_threads(ctx);
    return LS_OK;
}

void ls_context_close_devices(ls_context *ctx)
{
    for (int d = 0; d < ctx->device_count; d++) {
        ls_device *device = &ctx->devices[d];
        ls_memory_close(device->memory);
        if (device->backend && device->backend->close)
            device->backend->close(device->handle);
        pthread_mutex_destroy(&device->mutex);
        pthread_cond_destroy(&device->moved);
        pthread_mutex_destroy(&device->scratch_mutex);
    }
    free(ctx->devices);
    ctx->devices = NULL;
    ctx->device_count = 0;
}

int ls_context_vendor_kind(const ls_context *ctx)
{
    for (int k = 1; k < ctx->kind_count; k++)
        if (ctx->kinds[k].vendor)
            return k;
    return 0;
}

static atomic_int opened;

int ls_contexts_opened(void)
{
    return opened;
}

ls_status ls_context_begin(ls_context *ctx, const char *call)
{
    LS_TRY(ls_context_check(ctx, call));
    pthread_mutex_lock(&ctx->mutex);
    ls_status status = LS_OK;
    if (!ctx->opened_by) {
        status = ls_context_look(ctx);
        if (status == LS_OK)
            status = open_devices(ctx);
        if (status == LS_OK && ls_context_vendor_kind(ctx))
            status = ls_library_hooks.check_vendor(ctx);
        if (status == LS_OK)
            ctx->opened_by = call;
        else
            ls_context_close_devices(ctx);
        opened += status == LS_OK;
    }
    pthread_mutex_unlock(&ctx->mutex);
    return status == LS_OK && ctx->cluster && !ls_library_hooks.meets_later(ctx) ? ls_library_hooks.meet_cluster(ctx)
                                                                                 : status;
}

/* ---- Names ---- */

/* Opens all devices of a kind that is used only when named, so that numbers are the machine's; none
 * if some are already visible. */
static ls_status open_kind(ls_context *ctx, int kind)
{
    int number = 0;
    for (int d = 0; d < ctx->device_count; d++)
        number += ctx->devices[d].kind == kind;
    for (int i = 0; i < ctx->physical_count; i++)
        if (ctx->physical[i].kind == kind && ctx->physical[i].only_named && ctx->physical[i].visible)
            return LS_OK;
    for (int i = 0; i < ctx->physical_count; i++) {
        ls_physical *p = &ctx->physical[i];
        if (p->kind != kind || !p->only_named || p->visible || p->hidden)
            continue;
        if (ctx->runtime || ctx->device_count == ctx->device_room)
            return ls_fail(LS_ERR_STATE,
                           "%s:%d was not named before the context's first run: make it visible by "
                           "ls_set_visible_devices, or by LOCKSTEP_VISIBLE_DEVICES",
                           ctx->kinds[kind].name, p->number);
        LS_TRY(open_device(ctx, p, number++, 0));
        ctx->kinds[kind].only_named = number == 1 || ctx->kinds[kind].only_named;
        p->visible = true;
    }
    share_threads(ctx);
    return LS_OK;
}

static ls_status open_named(ls_context *ctx, const char *names)
{
    pthread_mutex_lock(&ctx->mutex);
    ls_status status = names ? ls_context_look_for(ctx, names) : LS_OK;
    for (int k = 1; names && k < ctx->kind_count && status == LS_OK; k++)
        if (ls_context_names_kind(ctx, names, k))
            status = open_kind(ctx, k);
    pthread_mutex_unlock(&ctx->mutex);
    return status;
}

static int find_device(const ls_context *ctx, int kind, int number)
{
    for (int d = 0; d < ctx->device_count; d++)
        if (ctx->devices[d].kind == kind && ctx->devices[d].number == number)
            return d;
    return 0;
}

ls_status ls_context_device(ls_context *ctx, const char *name, int *out)
{
    ls_kind_count kinds[LS_MAX_KINDS];
    ls_named_device found;
    LS_TRY(open_named(ctx, name));
    int kind_count = ls_context_kinds(ctx, true, kinds);
    LS_TRY(ls_names_read_one(name, kinds, kind_count, ls_context_worker(ctx), &found));
    LS_TRY(ls_names_refuse_cores(name, &found));
    *out = find_device(ctx, found.kind, found.number);
    return LS_OK;
}

ls_status ls_context_device_list(ls_context *ctx, const char *names, int **out, int *count)
{
    ls_kind_count kinds[LS_MAX_KINDS];
    ls_named_device *found = NULL;
    LS_TRY(open_named(ctx, names));
    int kind_count = ls_context_kinds(ctx, true, kinds), named = 0;
    LS_TRY(ls_names_read(names, kinds, kind_count, ls_context_worker(ctx), &found, &named));
    int *list = calloc((size_t)named, sizeof(*list));
    ls_status status = list ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a list of %d devices", named);
    for (int i = 0; i < named && status == LS_OK; i++) {
        list[i] = find_device(ctx, found[i].kind, found[i].number);
        status = ls_names_refuse_cores(names, &found[i]);
    }
    free(found);
    if (status != LS_OK) {
        free(list);
        return status;
    }
    *out = list;
    *count = named;
    return LS_OK;
}

/* ---- Lists ---- */

static bool is_kind(const ls_context *ctx, int kind, const char *wanted)
{
    return !wanted || strcasecmp(ctx->kinds[kind].name, wanted) == 0;
}

static void describe_physical(const ls_context *ctx, const ls_physical *p, ls_device_info *info)
{
    *info = (ls_device_info){ .number = p->number, .physical = p->number, .memory = p->memory, .visible = p->visible };
    info->growth = p->growth > 0;
    info->cores = p->kind == LS_CPU ? ctx->cores.count : 0;
    snprintf(info->name, sizeof(info->name), "/physical_device:%s:%d", ctx->kinds[p->kind].name, p->number);
    snprintf(info->kind, sizeof(info->kind), "%s", ctx->kinds[p->kind].name);
    snprintf(info->about, sizeof(info->about), "%s", p->about);
}

static void describe_logical(const ls_context *ctx, const ls_device *d, ls_device_info *info)
{
    *info = (ls_device_info){ .number = d->number, .physical = d->physical, .memory = d->limit, .visible = true };
    info->growth = d->growth;
    info->cores = d->kind == LS_CPU ? d->thread_count : 0;
    snprintf(info->name, sizeof(info->name), "%s", d->name);
    snprintf(info->kind, sizeof(info->kind), "%s", ctx->kinds[d->kind].name);
    for (int i = 0; i < ctx->physical_count; i++)
        if (ctx->physical[i].kind == d->kind && ctx->physical[i].number == d->physical)
            snprintf(info->about, sizeof(info->about), "%s", ctx->physical[i].about);
}

static ls_status list_devices(ls_context *ctx, const char *kind, bool logical, ls_device_info **out, size_t *count)
{
    int most = logical ? ctx->device_count : ctx->physical_count;
    ls_device_info *list = calloc((size_t)most + 1, sizeof(*list));
    if (!list)
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %d devices", most);
    *count = 0;
    for (int i = 0; i < most; i++)
        if (is_kind(ctx, logical ? ctx->devices[i].kind : ctx->physical[i].kind, kind)) {
            if (logical)
                describe_logical(ctx, &ctx->devices[i], &list[(*count)++]);
            else
                describe_physical(ctx, &ctx->physical[i], &list[(*count)++]);
        }
    *out = list;
    return LS_OK;
}

ls_status ls_list_physical_devices(ls_context *ctx, const char *kind, ls_device_info **out, size_t *count)
{
    if (!ctx || !out || !count)
        return ls_fail(LS_ERR_INVALID, "ls_list_physical_devices: ctx, out or count is NULL");
    LS_TRY(ls_context_check(ctx, "ls_list_physical_devices"));
    pthread_mutex_lock(&ctx->mutex);
    ls_status status = ls_context_look_for(ctx, kind);
    if (status == LS_OK)
        status = list_devices(ctx, kind, false, out, count);
    pthread_mutex_unlock(&ctx->mutex);
    return status;
}

ls_status ls_list_logical_devices(ls_context *ctx, const char *kind, ls_device_info **out, size_t *count)
{
    if (!out || !count)
        return ls_fail(LS_ERR_INVALID, "ls_list_logical_devices: out or count is NULL");
    LS_TRY(ls_context_begin(ctx, "ls_list_logical_devices"));
    pthread_mutex_lock(&ctx->mutex);
    ls_status status = list_devices(ctx, kind, true, out, count);
    pthread_mutex_unlock(&ctx->mutex);
    return status;
}
