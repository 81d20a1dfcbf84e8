/* Converts a strategy to its task map: devices ("cpu:0,cpu:1", "gpu:0-3"; default: all of the
 * fastest kind), stages, and shares of lanes. */
#include "run/strategy.h"

#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "graph/claim.h"
#include "run/peers.h"
#include "run/runs.h"

static const char *name_of(ls_strategy_kind kind)
{
    static const char *const names[] = { "mirrored",       "one-device", "mirrored",     "data-parallel",
                                         "model-parallel", "pipeline",   "multi-worker", "parameter-server" };
    return names[kind];
}

static bool has_stages(const ls_strategy *s)
{
    return s->kind == LS_STRATEGY_MODEL_PARALLEL || s->kind == LS_STRATEGY_PIPELINE;
}

static ls_status check(const ls_strategy *s)
{
    if ((unsigned)s->kind > LS_STRATEGY_PARAMETER_SERVER)
        return ls_fail(LS_ERR_INVALID, "unknown strategy %d", (int)s->kind);
    if ((unsigned)s->all_reduce > LS_ALL_REDUCE_TO_ONE || (unsigned)s->order > LS_FILL_DRAIN)
        return ls_fail(LS_ERR_INVALID, "strategy %s: unknown all_reduce %d or order %d", name_of(s->kind),
                       (int)s->all_reduce, (int)s->order);
    if (s->devices && s->list)
        return ls_fail(LS_ERR_INVALID, "strategy %s: devices and list are both set; set one of them", name_of(s->kind));
    if (s->stages < 0 || (s->stages > 0 && !has_stages(s)))
        return ls_fail(LS_ERR_INVALID,
                       "strategy %s cannot have %d stages: only model-parallel and pipeline have stages, 0 or more",
                       name_of(s->kind), s->stages);
    if (s->order != LS_ONE_FORWARD_ONE_BACKWARD && s->kind != LS_STRATEGY_PIPELINE)
        return ls_fail(LS_ERR_INVALID, "strategy %s: order needs the strategy pipeline", name_of(s->kind));
    if (s->staleness < 0 || s->staleness > LS_MAX_STALENESS ||
        (s->staleness > 0 && s->kind != LS_STRATEGY_PARAMETER_SERVER))
        return ls_fail(LS_ERR_INVALID,
                       "strategy %s cannot have staleness %lld: only parameter-server has a staleness, 0 to %d",
                       name_of(s->kind), (long long)s->staleness, LS_MAX_STALENESS);
    return LS_OK;
}

/* ---- Devices ---- */

/* Kinds added after the CPU are preferred, except those that must be named. */
static ls_status fastest_devices(const ls_context *ctx, int **list, int *count)
{
    int last = ctx->device_count - 1, *made = calloc((size_t)ctx->device_count, sizeof(*made));
    while (ctx->kinds[ctx->devices[last].kind].only_named)
        last--;
    int kind = ctx->devices[last].kind;
    if (!made)
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %d devices", ctx->device_count);
    for (int d = 0; d < ctx->device_count; d++)
        if (ctx->devices[d].kind == kind)
            made[(*count)++] = d;
    *list = made;
    return LS_OK;
}

static ls_status listed_devices(ls_context *ctx, const ls_strategy *s, int **list, int *count)
{
    int *made = calloc(s->list_count + 1, sizeof(*made));
    if (!made)
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %zu devices", s->list_count);
    for (size_t i = 0; i < s->list_count; i++) {
        ls_status status = ls_context_device(ctx, s->list[i].name, &made[i]);
        for (size_t k = 0; k < i && status == LS_OK; k++)
            if (made[k] == made[i])
                status = ls_fail(LS_ERR_INVALID, "strategy: %s is in the list of devices twice", s->list[i].name);
        if (status != LS_OK) {
            free(made);
            return status;
        }
    }
    *list = made;
    *count = (int)s->list_count;
    return LS_OK;
}

static ls_status find_devices(ls_context *ctx, const ls_strategy *s, int **list, int *count)
{
    if (s->devices)
        return ls_context_device_list(ctx, s->devices, list, count);
    return s->list ? listed_devices(ctx, s, list, count) : fastest_devices(ctx, list, count);
}

static ls_status check_devices(const ls_strategy *s, int *count)
{
    if (*count == 0)
        return ls_fail(LS_ERR_INVALID, "strategy %s: no device was given", name_of(s->kind));
    if (s->kind == LS_STRATEGY_ONE_DEVICE) {
        if ((s->devices || s->list) && *count != 1)
            return ls_fail(LS_ERR_INVALID, "strategy one-device needs exactly 1 device, but was given %d devices",
                           *count);
        *count = 1;
    }
    if (s->stages > *count || (s->stages > 0 && *count % s->stages != 0))
        return ls_fail(LS_ERR_INVALID,
                       "%d devices cannot be divided into replicas of %d stages: use a multiple of the stages", *count,
                       s->stages);
    return LS_OK;
}

/* Mixing the vendor's kernels with ours would give bits of no class. */
static ls_status check_kernels(const ls_context *ctx, const int *list, int count)
{
    char name[LS_SHORT_NAME];
    int kind = ls_context_vendor_kind(ctx);
    for (int i = 0; kind && i < count; i++)
        if (ctx->devices[list[i]].kind != kind)
            return ls_fail(
                LS_ERR_UNSUPPORTED,
                "the vendor's kernels run only on %s, not on %s: name %s devices alone, or use the library's own "
                "kernels",
                ctx->kinds[kind].name, ls_device_short_name(ctx, list[i], name), ctx->kinds[kind].name);
    return LS_OK;
}

/* ---- Shares ---- */

static int replicas_of(const ls_strategy *s, int devices)
{
    int stages = has_stages(s) ? s->stages > 0 ? s->stages : devices : 1;
    return devices / stages;
}

/* Parses "3:1". */
static ls_status read_shares(const char *text, int *shares, int replicas)
{
    const char *at = text;
    int count = 0;
    for (;;) {
        char *end;
        long share = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (share < 1 || share > 1000000 || count == replicas || (*end && *end != ':'))
            return ls_fail(LS_ERR_INVALID, "work split \"%s\": expected %d numbers of at least 1, as in \"3:1\"", text,
                           replicas);
        shares[count++] = (int)share;
        if (!*end)
            break;
        at = end + 1;
    }
    return count == replicas ? LS_OK
                             : ls_fail(LS_ERR_INVALID, "work split \"%s\" has %d numbers, but there are %d replicas",
                                       text, count, replicas);
}

/* As fast as its slowest stage; 0: not known yet. */
static double speed_of(ls_context *ctx, const int *devices, int stages)
{
    double least = 0;
    for (int i = 0; i < stages; i++) {
        double speed = ls_device_speed(&ctx->devices[devices[i]]);
        if (i == 0 || speed < least)
            least = speed;
    }
    return least;
}

/* Even shares until all speeds are known. */
static void measure_shares(ls_context *ctx, const int *devices, int count, int *shares, int replicas)
{
    double most = 0;
    bool known = true;
    for (int r = 0; r < replicas; r++) {
        double speed = speed_of(ctx, devices + r * (count / replicas), count / replicas);
        known = known && speed > 0;
        most = speed > most ? speed : most;
    }
    for (int r = 0; r < replicas; r++) {
        double part = known ? speed_of(ctx, devices + r * (count / replicas), count / replicas) / most : 1;
        shares[r] = part * 16 < 1 ? 1 : (int)(part * 16 + 0.5);
    }
}

/* ---- The map ---- */

static ls_status fill_map(ls_context *ctx, const ls_strategy *s, int *lists, int count, ls_task_map *map)
{
    static const ls_owners owners[] = { LS_OWNERS_ALL, LS_OWNERS_PAIRS, LS_OWNERS_FIRST };
    int replicas = replicas_of(s, count);
    bool gathers = s->kind == LS_STRATEGY_DATA_PARALLEL;
    *map = (ls_task_map){ .devices = lists, .count = count };
    map->stages = has_stages(s) ? count / replicas : 0;
    map->owners = gathers ? LS_OWNERS_FIRST : owners[s->all_reduce];
    map->first_updates = gathers;
    map->fills = s->order == LS_FILL_DRAIN;
    if (!s->work_split)
        return LS_OK;
    map->shares = lists + count;
    map->share_count = replicas;
    if (strcmp(s->work_split, "auto") != 0)
        return read_shares(s->work_split, lists + count, replicas);
    measure_shares(ctx, lists, count, lists + count, replicas);
    return LS_OK;
}

ls_status ls_strategy_map(ls_context *ctx, const ls_strategy *s, int **lists, ls_task_map *out)
{
    int *found = NULL, count = 0;
    LS_TRY(check(s));
    if (ctx->cluster && s->staleness == 0) /* Workers that have not met yet do so now. */
        LS_TRY(ls_library_hooks.meet_cluster(ctx));
    LS_TRY(find_devices(ctx, s, &found, &count));
    ls_status status = check_devices(s, &count);
    if (status == LS_OK)
        status = check_kernels(ctx, found, count);
    int *both = status == LS_OK ? calloc((size_t)count * 2, sizeof(*both)) : NULL;
    if (status == LS_OK && !both)
        status = ls_fail(LS_ERR_MEMORY, "no memory for a list of %d devices", count);
    if (status == LS_OK) {
        memcpy(both, found, (size_t)count * sizeof(*both));
        status = fill_map(ctx, s, both, count, out);
    }
    free(found);
    if (status != LS_OK) {
        free(both);
        return status;
    }
    *lists = both;
    return LS_OK;
}

ls_status ls_task_map_copy(const ls_task_map *map, int **lists, ls_task_map *out)
{
    size_t devices = (size_t)map->count, shares = (size_t)map->share_count;
    int *made = malloc((devices + shares + 1) * sizeof(*made));
    if (!made)
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %zu devices", devices);
    if (devices)
        memcpy(made, map->devices, devices * sizeof(*made));
    if (shares)
        memcpy(made + devices, map->shares, shares * sizeof(*made));
    *out = *map;
    out->devices = made;
    out->shares = map->shares ? made + devices : NULL;
    *lists = made;
    return LS_OK;
}

/* ---- Public functions ---- */

ls_status ls_graph_set_strategy(ls_graph *graph, ls_strategy strategy)
{
    LS_CLAIM(graph);
    ls_runs *runs = NULL;
    if (!graph)
        return ls_fail(LS_ERR_INVALID, "ls_graph_set_strategy: the graph is NULL");
    LS_TRY(ls_runs_of(graph, &runs));
    int *lists = NULL;
    ls_task_map map;
    LS_TRY(ls_strategy_map(graph->context, &strategy, &lists, &map));
    free(runs->lists);
    runs->lists = lists;
    runs->settings.plan.map = map;
    return LS_OK;
}

ls_status ls_strategy_replicas(ls_context *ctx, ls_strategy strategy, int *out)
{
    int *lists = NULL;
    ls_task_map map;
    if (!ctx || !out)
        return ls_fail(LS_ERR_INVALID, "ls_strategy_replicas: the context or the output pointer is NULL");
    LS_TRY(ls_context_begin(ctx, "ls_strategy_replicas"));
    LS_TRY(ls_strategy_map(ctx, &strategy, &lists, &map));
    *out = replicas_of(&strategy, map.count);
    if (strategy.kind >= LS_STRATEGY_MULTI_WORKER && ctx->peers)
        *out *= ctx->worker_count - ctx->peers->servers;
    free(lists);
    return LS_OK;
}
