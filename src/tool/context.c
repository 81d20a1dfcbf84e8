/* Opens a context as the flags specify. */
#include "tool/tool.h"

#include <string.h>
#include <unistd.h>

#define MOST_MIB ((int64_t)1 << 40)

static void write_log(void *user, ls_log_level level, const char *line)
{
    const tool_session *session = user;
    tool_update_mute(session->ctx);
    if (level >= LS_LOG_INFO)
        printf("%s\n", line);
    else
        /* The escape sequence erases a progress bar. */
        fprintf(stderr, "%slockstep: %s%s\n", isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "",
                level == LS_LOG_WARNING ? "warning: " : "", line);
}

/* ---- Choosing devices ---- */

static bool is_last_of_kind(const ls_device_name *list, size_t count, size_t i)
{
    for (size_t k = 0; k < count; k++)
        if (strcmp(list[k].kind, list[i].kind) == 0 && list[k].number > list[i].number)
            return false;
    return true;
}

/* Makes named devices other than CPUs visible. Device numbers must not change, so lower numbers of
 * the same kind become visible, too. */
static ls_status show_named(ls_context *ctx, const ls_device_name *list, size_t count)
{
    ls_text names = { 0 };
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].kind, "CPU") != 0 && is_last_of_kind(list, count, i))
            ls_text_add(&names, "%s%s:0-%d", *ls_text_get(&names) ? "," : "", list[i].kind, list[i].number);
    ls_status status = names.failed ? ls_fail(LS_ERR_MEMORY, "no memory for the names of devices")
                       : *ls_text_get(&names)
                           ? ls_fail_within(ls_set_visible_devices(ctx, ls_text_get(&names)), "--devices")
                           : LS_OK;
    ls_text_free(&names);
    return status;
}

/* Parses "300" (for each device) or "300,200" (one for each). */
static ls_status read_limits(const char *text, ls_logical_device *parts, int count)
{
    int64_t mib[LS_MAX_THREADS];
    int found = (int)tool_read_numbers(text, ',', 0, MOST_MIB, mib, LS_MAX_THREADS);
    if (found == 0)
        return ls_fail(LS_ERR_INVALID, "--memory-limit %s: expected MiB, as in 300, or in 300,200 for two devices",
                       text);
    if (found != 1 && found != count)
        return ls_fail(LS_ERR_INVALID, "--memory-limit %s: %d limits for %d CPU device%s", text, found, count,
                       count == 1 ? "" : "s");
    for (int i = 0; i < count; i++)
        parts[i].memory_limit = LS_MIB(mib[found == 1 ? 0 : i]);
    return LS_OK;
}

/* A list of limits is only for CPU devices. */
static ls_status limit_named(const tool_settings *settings, ls_context *ctx, const ls_device_name *list, size_t count)
{
    ls_logical_device limit = { .memory_limit = 0 };
    char name[48];
    for (size_t i = 0; settings->memory_limit && i < count; i++) {
        if (strcmp(list[i].kind, "CPU") == 0)
            continue;
        if (strchr(settings->memory_limit, ','))
            return ls_fail(
                LS_ERR_INVALID,
                "--memory-limit %s: a list is for CPU devices only; with %s:%d give one limit, for all devices",
                settings->memory_limit, list[i].kind, list[i].number);
        LS_TRY(read_limits(settings->memory_limit, &limit, 1));
        snprintf(name, sizeof(name), "%s:%d", list[i].kind, list[i].number);
        if (limit.memory_limit > 0)
            LS_TRY(ls_fail_within(ls_set_logical_devices(ctx, name, &limit, 1), "--memory-limit"));
    }
    return LS_OK;
}

/* CPU devices are created as named; others must exist. *open: number of CPU devices to create. */
static ls_status read_names(const tool_settings *settings, ls_context *ctx, const char *names, int *open, int *used)
{
    ls_device_name *list;
    size_t count;
    LS_TRY(ls_fail_within(ls_read_device_names(ctx, names, &list, &count), "--devices"));
    *used = (int)count;
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].kind, "CPU") == 0 && list[i].number >= *open)
            *open = list[i].number + 1;
    ls_status status = show_named(ctx, list, count);
    if (status == LS_OK)
        status = limit_named(settings, ctx, list, count);
    free(list);
    return status;
}

/* Parses --devices; NULL: uses the devices of --place. */
static ls_status choose_devices(const tool_settings *settings, tool_session *session, int *open)
{
    int64_t number;
    const char *named = settings->devices;
    *open = 1;
    if (named == NULL) {
        LS_TRY(tool_place_devices(settings, session->ctx, &session->names));
        if (session->names.failed)
            return ls_fail(LS_ERR_MEMORY, "no memory for the names of devices");
        named = ls_text_get(&session->names);
    }
    if (!ls_parse_i64(named, &number)) {
        session->strategy.devices = named;
        return read_names(settings, session->ctx, named, open, &session->devices);
    }
    if (number < 1 || number > LS_MAX_THREADS)
        return ls_fail(LS_ERR_INVALID,
                       "--devices %s: expected a number of CPU devices from 1 to %d, or names as in cpu:0,cpu:1 or "
                       "cpu:0-3",
                       settings->devices, LS_MAX_THREADS);
    *open = session->devices = (int)number;
    ls_text_add(&session->names, "cpu:0-%d", *open - 1);
    session->strategy.devices = ls_text_get(&session->names);
    return session->names.failed ? ls_fail(LS_ERR_MEMORY, "no memory for the names of devices") : LS_OK;
}

/* checks.c and the library check the strategy. */
static void choose_strategy(const tool_settings *settings, tool_session *session)
{
    ls_strategy *s = &session->strategy;
    s->kind = (ls_strategy_kind)settings->strategy;
    if (s->kind == LS_STRATEGY_DEFAULT)
        s->kind = settings->place ? LS_STRATEGY_MODEL_PARALLEL : LS_STRATEGY_MIRRORED;
    s->all_reduce = (ls_all_reduce)settings->all_reduce;
    s->order = (ls_pipeline_order)settings->pipeline;
    s->work_split = settings->work_split;
    s->staleness = settings->staleness;
    s->scale_by_staleness = settings->scale_by_staleness;
    s->overlap = settings->overlap;
    session->replicas = s->kind == LS_STRATEGY_ONE_DEVICE ? 1 : session->devices;
    if (tool_has_stages(s->kind)) {
        s->stages = (int)(settings->stages     ? settings->stages
                          : settings->replicas ? session->devices / settings->replicas
                                               : session->devices);
        session->replicas = s->stages > 0 ? session->devices / s->stages : 1;
    }
}

/* ---- Memory ---- */

static ls_status split_cpu(const tool_settings *settings, ls_context *ctx, int count)
{
    ls_logical_device parts[LS_MAX_THREADS] = { { .memory_limit = 0 } };
    if (settings->memory_limit)
        LS_TRY(read_limits(settings->memory_limit, parts, count));
    LS_TRY(ls_fail_within(ls_set_logical_devices(ctx, "cpu:0", parts, (size_t)count), "--memory-limit"));
    return settings->memory_growth ? ls_set_memory_growth(ctx, "cpu:0", true) : LS_OK;
}

/* ---- The context ---- */

/* Reports errors in LOCKSTEP_VISIBLE_DEVICES. */
static ls_status check_visible_devices(ls_context *ctx)
{
    ls_device_info *list;
    size_t count;
    LS_TRY(ls_list_physical_devices(ctx, NULL, &list, &count));
    free(list);
    return LS_OK;
}

ls_status tool_open_context(const tool_settings *settings, tool_session *session)
{
    const ls_context_options options = { .log_level = (ls_log_level)settings->log_level,
                                         .log_sink = write_log,
                                         .log_user = session,
                                         .kernels = (ls_kernels)(LS_KERNELS_OWN + settings->kernels) };
    int open = 0;
    LS_TRY(ls_context_create(&options, &session->ctx));
    if (settings->multi_worker)
        LS_TRY(
            ls_fail_within(ls_cluster_join(session->ctx, NULL), "--strategy %s",
                           settings->strategy == LS_STRATEGY_PARAMETER_SERVER ? "parameter-server" : "multi-worker"));
    if (settings->alone)
        LS_TRY(ls_cluster_join(session->ctx, &(ls_cluster_options){ .size = 1 }));
    LS_TRY(check_visible_devices(session->ctx));
    LS_TRY(choose_devices(settings, session, &open));
    choose_strategy(settings, session);
    LS_TRY(split_cpu(settings, session->ctx, open));
    return ls_set_log_placement(session->ctx, settings->log_placement);
}
