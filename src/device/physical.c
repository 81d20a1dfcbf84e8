/* Enumerates and configures the machine's devices before a context is opened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/status.h"
#include "base/text.h"
#include "device/context.h"

#define VISIBLE "LOCKSTEP_VISIBLE_DEVICES"

/* ---- Enumeration ---- */

static ls_physical *add_physical(ls_context *ctx, int kind, int number)
{
    ls_physical *grown = realloc(ctx->physical, (size_t)(ctx->physical_count + 1) * sizeof(*grown));
    if (!grown) {
        ls_fail(LS_ERR_MEMORY, "no memory for a list of devices");
        return NULL;
    }
    ctx->physical = grown;
    ls_physical *p = &grown[ctx->physical_count++];
    *p = (ls_physical){ .kind = kind, .number = number, .visible = true };
    return p;
}

static ls_status copy_cores(const ls_cores *from, ls_cores *to)
{
    int *copy = malloc((size_t)from->total * sizeof(*copy));
    if (!copy)
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %d cores", from->total);
    memcpy(copy, from->os_index, (size_t)from->total * sizeof(*copy));
    ls_cores_free(to);
    *to = *from;
    to->os_index = copy;
    return LS_OK;
}

/* Reasons for the number of cores and for limited memory. */
static void describe_cpu(ls_context *ctx)
{
    ls_physical *p = &ctx->physical[0];
    if (ctx->memory.reason[0])
        snprintf(p->about, sizeof(p->about), "%.132s; %.118s", ctx->cores.reason, ctx->memory.reason);
    else
        snprintf(p->about, sizeof(p->about), "%s", ctx->cores.reason);
}

static ls_status look_at_cpu(ls_context *ctx)
{
    ls_physical *p = add_physical(ctx, LS_CPU, 0);
    if (!p)
        return LS_ERR_MEMORY;
    LS_TRY(ls_cores_find(NULL, &ctx->cores));
    LS_TRY(copy_cores(&ctx->cores, &ctx->allowed));
    LS_TRY(ls_host_memory_find(NULL, &ctx->memory));
    p->memory = ctx->memory.bytes;
    describe_cpu(ctx);
    return LS_OK;
}

static ls_status look_at_backend(ls_context *ctx, int kind)
{
    const ls_backend *backend = &ctx->kinds[kind].backend;
    int count = backend->probe(backend->user);
    for (int i = 0; i < count; i++) {
        ls_backend_device known = { .memory = 0 };
        ls_physical *p = add_physical(ctx, kind, i);
        if (!p)
            return LS_ERR_MEMORY;
        if (backend->query)
            LS_TRY(backend->query(backend->user, i, &known));
        snprintf(p->about, sizeof(p->about), "%s", known.about);
        p->memory = known.memory;
        p->growth = known.growth;
        p->only_named = known.only_named;
        p->gpu = known.gpu;
        p->hidden = ctx->options.reference; /* a reference context uses only the CPU */
        p->visible = !known.only_named && !p->hidden;
    }
    return LS_OK;
}

/* "gpu" also names the kind CUDA. */
bool ls_context_names_kind(const ls_context *ctx, const char *names, int kind)
{
    const char *name = ctx->kinds[kind].name;
    return strcasestr(names, name) || (strcasecmp(name, "CUDA") == 0 && strcasestr(names, "GPU"));
}

/* names NULL: all sleeping kinds. */
static ls_status wake(ls_context *ctx, const char *names)
{
    for (int k = 1; k < ctx->kind_count; k++)
        if (ctx->kinds[k].asleep && (!names || ls_context_names_kind(ctx, names, k))) {
            ctx->kinds[k].asleep = false;
            LS_TRY(look_at_backend(ctx, k));
        }
    return LS_OK;
}

/* `text`: the system's numbers. */
static ls_status choose_cores(ls_cores *cores, const char *text, const char *who)
{
    int *wanted = NULL, count = 0;
    LS_TRY(ls_names_read_cores(text, &wanted, &count));
    for (int i = 0; i < count; i++) {
        bool found = false;
        for (int k = 0; k < cores->total && !found; k++)
            found = cores->os_index[k] == wanted[i];
        if (!found) {
            ls_status status =
                ls_fail(LS_ERR_NOT_FOUND, "%s: this process may not use core %d (%s)", who, wanted[i], cores->reason);
            free(wanted);
            return status;
        }
    }
    free(cores->os_index);
    cores->os_index = wanted;
    cores->total = count;
    /* The quota allows one thread per core. */
    cores->bind = cores->quota == 0 || count <= cores->quota;
    cores->count = cores->bind ? count : cores->quota;
    char before[sizeof(cores->reason)];
    snprintf(before, sizeof(before), "%s", cores->reason);
    snprintf(cores->reason, sizeof(cores->reason), "core%s %s chosen by %s, of %.150s", count == 1 ? "" : "s", text,
             who, before);
    return LS_OK;
}

static int find_physical(const ls_context *ctx, int kind, int number)
{
    for (int i = 0; i < ctx->physical_count; i++)
        if (ctx->physical[i].kind == kind && ctx->physical[i].number == number)
            return i;
    return -1;
}

/* Messages begin with `who`. */
static ls_status read_names(const ls_context *ctx, const char *who, const char *names, ls_named_device **out,
                            int *count)
{
    ls_kind_count kinds[LS_MAX_KINDS];
    int kind_count = ls_context_kinds(ctx, false, kinds);
    return ls_fail_within(ls_names_read(names, kinds, kind_count, ls_context_worker(ctx), out, count), "%s", who);
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t")] == '\0';
}

/* All allowed cores if the list has no brackets. */
static ls_status cores_of_list(const ls_context *ctx, const char *who, const ls_named_device *list, int count,
                               ls_cores *out)
{
    LS_TRY(copy_cores(&ctx->allowed, out));
    ls_status status = LS_OK;
    for (int i = 0; i < count && status == LS_OK; i++)
        if (list[i].kind == LS_CPU && list[i].cores[0])
            status = choose_cores(out, list[i].cores, who);
    if (status != LS_OK)
        ls_cores_free(out);
    return status;
}

static ls_status check_hidden(const ls_context *ctx, const char *who, const ls_named_device *list, int count)
{
    for (int i = 0; i < count; i++) {
        const ls_physical *p = &ctx->physical[find_physical(ctx, list[i].kind, list[i].number)];
        if (p->hidden && ctx->options.reference)
            return ls_fail(LS_ERR_NOT_FOUND,
                           "%s: %s:%d cannot be used in a reference context, which uses only the CPU: open the context "
                           "without .reference",
                           who, ctx->kinds[p->kind].name, p->number);
        if (p->hidden)
            return ls_fail(LS_ERR_NOT_FOUND, "%s: %s:%d is hidden by " VISIBLE "=\"%s\"", who, ctx->kinds[p->kind].name,
                           p->number, getenv(VISIBLE) ? getenv(VISIBLE) : "");
    }
    return LS_OK;
}

/* Makes only the named devices visible, the CPU with the selected cores. */
static ls_status apply_visible(ls_context *ctx, const char *who, const char *names, bool environment)
{
    ls_named_device *list = NULL;
    ls_cores cores = { .count = 0 };
    int count = 0;
    if (!is_blank(names))
        LS_TRY(read_names(ctx, who, names, &list, &count));
    /* The environment applies to all contexts: a reference context ignores its other devices. */
    ls_status status = environment ? LS_OK : check_hidden(ctx, who, list, count);
    if (status == LS_OK)
        status = cores_of_list(ctx, who, list, count, &cores);
    if (status == LS_OK && environment)
        status = copy_cores(&cores, &ctx->allowed);
    for (int k = 0; k < ctx->physical_count && status == LS_OK; k++) {
        ls_physical *p = &ctx->physical[k];
        p->visible = p->kind == LS_CPU;
        for (int i = 0; i < count; i++)
            p->visible |= !p->hidden && find_physical(ctx, list[i].kind, list[i].number) == k;
        if (environment)
            p->hidden = !p->visible;
    }
    if (status == LS_OK) {
        ls_cores_free(&ctx->cores);
        ctx->cores = cores;
        describe_cpu(ctx);
    } else {
        ls_cores_free(&cores);
    }
    free(list);
    return status;
}

static void forget(ls_context *ctx)
{
    free(ctx->physical);
    ctx->physical = NULL;
    ctx->physical_count = 0;
    ls_cores_free(&ctx->cores);
    ls_cores_free(&ctx->allowed);
}

ls_status ls_context_look(ls_context *ctx)
{
    if (ctx->physical)
        return LS_OK;
    ls_status status = look_at_cpu(ctx);
    for (int k = 1; k < ctx->kind_count && status == LS_OK; k++)
        if (!ctx->kinds[k].asleep)
            status = look_at_backend(ctx, k);
    if (status == LS_OK && getenv(VISIBLE))
        status = wake(ctx, getenv(VISIBLE));
    if (status == LS_OK && getenv(VISIBLE))
        status = apply_visible(ctx, VISIBLE, getenv(VISIBLE), true);
    if (status != LS_OK)
        forget(ctx);
    return status;
}

ls_status ls_context_look_for(ls_context *ctx, const char *names)
{
    LS_TRY(ls_context_look(ctx));
    return wake(ctx, names);
}

static void count_kind(const ls_context *ctx, ls_kind_count *k, int kind, int physical)
{
    int at = find_physical(ctx, kind, physical);
    if (at >= 0 && ctx->physical[at].gpu && k->count < 64)
        k->gpus |= (uint64_t)1 << k->count;
    k->count++;
}

int ls_context_kinds(const ls_context *ctx, bool logical, ls_kind_count out[LS_MAX_KINDS])
{
    for (int k = 0; k < ctx->kind_count; k++)
        out[k] = (ls_kind_count){ .kind = ctx->kinds[k].name };
    for (int i = 0; logical && i < ctx->device_count; i++)
        count_kind(ctx, &out[ctx->devices[i].kind], ctx->devices[i].kind, ctx->devices[i].physical);
    for (int i = 0; !logical && i < ctx->physical_count; i++)
        count_kind(ctx, &out[ctx->physical[i].kind], ctx->physical[i].kind, ctx->physical[i].number);
    return ctx->kind_count;
}

/* ---- Configuring ---- */

static ls_status begin_change(ls_context *ctx, const char *call)
{
    LS_TRY(ls_context_check(ctx, call));
    pthread_mutex_lock(&ctx->mutex);
    ls_status status = !ctx->opened_by
                           ? LS_OK
                           : ls_fail(LS_ERR_STATE,
                                     "%s: the context was opened by %s, which fixed its devices: configure a "
                                     "context before it is opened, or create another",
                                     call, ctx->opened_by);
    if (status != LS_OK)
        pthread_mutex_unlock(&ctx->mutex);
    return status;
}

static ls_status end_change(ls_context *ctx, ls_status status)
{
    pthread_mutex_unlock(&ctx->mutex);
    return status;
}

static ls_status check_backend(const ls_context *ctx, const ls_backend *b)
{
    if (!b || b->size != sizeof(*b))
        return ls_fail(LS_ERR_INVALID, "ls_add_backend: the table has %zu bytes, this library's has %zu",
                       b ? b->size : 0, sizeof(*b));
    if (!b->kind || !b->kind[0] || strlen(b->kind) >= sizeof(ctx->kinds[0].name))
        return ls_fail(LS_ERR_INVALID, "ls_add_backend: a kind needs a name of 1 to %zu characters",
                       sizeof(ctx->kinds[0].name) - 1);
    if (!b->probe || !b->open || !b->alloc || !b->free || !b->upload || !b->download || !b->plan_create ||
        !b->plan_run || !b->plan_destroy)
        return ls_fail(LS_ERR_INVALID,
                       "ls_add_backend: %s: probe, open, alloc, free, upload, download, plan_create, plan_run and "
                       "plan_destroy must all be set",
                       b->kind);
    for (int k = 0; k < ctx->kind_count; k++)
        if (strcasecmp(ctx->kinds[k].name, b->kind) == 0)
            return ls_fail(LS_ERR_INVALID, "ls_add_backend: kind %s already exists", ctx->kinds[k].name);
    if (ctx->kind_count == LS_MAX_KINDS)
        return ls_fail(LS_ERR_INVALID, "ls_add_backend: %s: there can be at most %d kinds", b->kind, LS_MAX_KINDS);
    return LS_OK;
}

ls_status ls_add_backend(ls_context *ctx, const ls_backend *backend)
{
    LS_TRY(begin_change(ctx, "ls_add_backend"));
    ls_status status = check_backend(ctx, backend);
    if (status == LS_OK && ctx->physical)
        status = ls_fail(LS_ERR_STATE, "ls_add_backend: %s: add backends before devices are listed or configured",
                         backend->kind);
    if (status == LS_OK) {
        ls_kind *kind = &ctx->kinds[ctx->kind_count++];
        kind->backend = *backend;
        snprintf(kind->name, sizeof(kind->name), "%s", backend->kind);
    }
    return end_change(ctx, status);
}

ls_status ls_backend_fail(ls_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ls_fail_v(status, format ? format : ls_status_name(status), args);
    va_end(args);
    return status;
}

ls_status ls_set_visible_devices(ls_context *ctx, const char *devices)
{
    LS_TRY(begin_change(ctx, "ls_set_visible_devices"));
    ls_status status = devices ? ls_context_look_for(ctx, devices)
                               : ls_fail(LS_ERR_INVALID, "ls_set_visible_devices: devices is NULL");
    if (status == LS_OK)
        status = apply_visible(ctx, "ls_set_visible_devices", devices, false);
    return end_change(ctx, status);
}

ls_status ls_set_memory_growth(ls_context *ctx, const char *devices, bool growth)
{
    ls_named_device *list = NULL;
    int count = 0;
    LS_TRY(begin_change(ctx, "ls_set_memory_growth"));
    ls_status status = ls_context_look_for(ctx, devices ? devices : "");
    if (status == LS_OK)
        status = read_names(ctx, "ls_set_memory_growth", devices, &list, &count);
    for (int i = 0; i < count; i++)
        ctx->physical[find_physical(ctx, list[i].kind, list[i].number)].growth = growth ? 1 : -1;
    free(list);
    return end_change(ctx, status);
}

/* Parts without a limit share what the others leave; the sum must not exceed the device's
 * memory. */
static ls_status resolve_limits(const ls_context *ctx, const ls_physical *p, ls_logical_device *parts, int count)
{
    size_t sum = 0, open = 0;
    for (int i = 0; i < count; i++) {
        open += parts[i].memory_limit == 0;
        if (parts[i].memory_limit > SIZE_MAX - sum)
            return ls_fail(LS_ERR_OVERFLOW, "ls_set_logical_devices: the memory limits overflow");
        sum += parts[i].memory_limit;
    }
    if (p->memory && sum > p->memory)
        return ls_fail(LS_ERR_MEMORY, "ls_set_logical_devices: the limits add up to %zu MiB; %s:%d has %zu MiB (%s)",
                       sum >> 20, ctx->kinds[p->kind].name, p->number, p->memory >> 20, p->about);
    if (p->kind == LS_CPU || p->memory == 0 || open == 0)
        return LS_OK; /* they stay unlimited */
    if (p->memory - sum < open)
        return ls_fail(LS_ERR_MEMORY,
                       "ls_set_logical_devices: none of the %zu MiB of %s:%d are left for %zu parts without a limit",
                       p->memory >> 20, ctx->kinds[p->kind].name, p->number, open);
    for (int i = 0; i < count; i++)
        if (parts[i].memory_limit == 0)
            parts[i].memory_limit = (p->memory - sum) / open;
    return LS_OK;
}

static ls_status split(ls_context *ctx, const char *device, const ls_logical_device *parts, size_t count)
{
    ls_named_device *list = NULL;
    int named = 0;
    if (!parts || count == 0 || count > LS_MAX_THREADS)
        return ls_fail(LS_ERR_INVALID, "ls_set_logical_devices: %zu parts: must be from 1 to %d", parts ? count : 0,
                       LS_MAX_THREADS);
    LS_TRY(read_names(ctx, "ls_set_logical_devices", device, &list, &named));
    int at = find_physical(ctx, list[0].kind, list[0].number);
    free(list);
    if (named != 1)
        return ls_fail(LS_ERR_INVALID, "ls_set_logical_devices: \"%s\" names %d devices; split one at a time", device,
                       named);
    ls_physical *p = &ctx->physical[at];
    ls_logical_device *copy = calloc(count, sizeof(*copy));
    if (!copy)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu logical devices", count);
    memcpy(copy, parts, count * sizeof(*copy));
    ls_status status = resolve_limits(ctx, p, copy, (int)count);
    if (status != LS_OK) {
        free(copy);
        return status;
    }
    free(p->parts);
    p->parts = copy;
    p->part_count = (int)count;
    return LS_OK;
}

ls_status ls_set_logical_devices(ls_context *ctx, const char *device, const ls_logical_device *parts, size_t count)
{
    LS_TRY(begin_change(ctx, "ls_set_logical_devices"));
    ls_status status = ls_context_look_for(ctx, device ? device : "");
    if (status == LS_OK)
        status = split(ctx, device, parts, count);
    return end_change(ctx, status);
}
