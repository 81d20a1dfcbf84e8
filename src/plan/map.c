/* Evaluates a map, with the default rule where the map leaves the choice open. */
#include "plan/map.h"

#include <string.h>

static int device_of_kind(const ls_task_map *map, const ls_context *ctx, int kind, int which)
{
    bool named = false;
    for (int i = 0; i < map->count; i++) {
        bool of_kind = kind == LS_ANY_KIND || ctx->devices[map->devices[i]].kind == kind;
        named = named || of_kind;
        if (of_kind && which-- == 0)
            return map->devices[i];
    }
    for (int d = 0; !named && d < ctx->device_count; d++)
        if (ctx->devices[d].kind == kind && which-- == 0)
            return d;
    return LS_ANY_DEVICE;
}

int ls_task_map_devices(const ls_task_map *map, const ls_context *ctx, int kind, int *out)
{
    int count = 0;
    for (int d; (d = device_of_kind(map, ctx, kind, count)) != LS_ANY_DEVICE; count++)
        if (out)
            out[count] = d;
    return count;
}

bool ls_task_map_takes_part(const ls_task_map *map, const ls_context *ctx, int device)
{
    int kind = ctx->devices[device].kind;
    for (int i = 0, d; (d = device_of_kind(map, ctx, kind, i)) != LS_ANY_DEVICE; i++)
        if (d == device)
            return true;
    return false;
}

unsigned ls_task_map_kinds(const ls_task_map *map, const ls_context *ctx)
{
    unsigned kinds = 0;
    for (int i = 0; i < map->count; i++)
        kinds |= 1u << ctx->devices[map->devices[i]].kind;
    return kinds;
}

bool ls_task_map_is_mixed(const ls_task_map *map, const ls_context *ctx)
{
    unsigned kinds = ls_task_map_kinds(map, ctx);
    return (kinds & (kinds - 1)) != 0;
}

/* Rounds each replica's share of the lanes. */
int ls_task_map_replica(const ls_task_map *map, int replicas, int lane, int lanes)
{
    int64_t all = 0, before = 0;
    if (!map->shares || map->share_count != replicas)
        return (int)((int64_t)lane * replicas / lanes);
    for (int i = 0; i < replicas; i++)
        all += map->shares[i];
    int replica = 0;
    for (int i = 0; i + 1 < replicas; i++) {
        before += map->shares[i];
        if ((2 * before * lanes + all) / (2 * all) <= lane)
            replica = i + 1;
    }
    return replica;
}

/* The default rule for a lane. */
static int shared_out(const ls_task_map *map, const ls_context *ctx, const ls_task_map_point *at)
{
    int count = ls_task_map_devices(map, ctx, at->kind, NULL), stages = map->stages > 1 ? map->stages : 1;
    int replicas = count >= stages ? count / stages : 1;
    int first = ls_task_map_replica(map, replicas, at->lane, at->lanes) * stages;
    return device_of_kind(map, ctx, at->kind, first + (at->stage < count ? at->stage : count - 1));
}

ls_status ls_task_map_device(const ls_task_map *map, const ls_context *ctx, const ls_task_map_point *at, int *out)
{
    int device = map->device ? map->device(map, at) : LS_ANY_DEVICE;
    if (device == LS_ANY_DEVICE)
        device = at->asked;
    if (device == LS_ANY_DEVICE && at->lane >= 0)
        device = shared_out(map, ctx, at);
    if (device < LS_ANY_DEVICE || device >= ctx->device_count)
        return ls_fail(LS_ERR_INVALID, "the map assigns work to device %d, but there are only %d devices", device,
                       ctx->device_count);
    if (device != LS_ANY_DEVICE && at->kind != LS_ANY_KIND && ctx->devices[device].kind != at->kind)
        return ls_fail(LS_ERR_INVALID, "the map assigns work for a %s to %s", ctx->kinds[at->kind].name,
                       ctx->devices[device].name);
    *out = device;
    return LS_OK;
}

int ls_task_map_owner(const ls_task_map *map, const int *makers, int count, int part)
{
    if (map->owner)
        return map->owner(map, makers, count, part);
    return map->owners == LS_OWNERS_ALL ? makers[part % count] : makers[0];
}

static bool same_list(const int *a, int a_count, const int *b, int b_count)
{
    return a_count == b_count && (a_count == 0 || memcmp(a, b, (size_t)a_count * sizeof(*a)) == 0);
}

bool ls_task_map_equal(const ls_task_map *a, const ls_task_map *b)
{
    return a->device == b->device && a->owner == b->owner && a->user == b->user && a->stages == b->stages &&
           a->owners == b->owners && a->first_updates == b->first_updates && a->fills == b->fills &&
           same_list(a->devices, a->count, b->devices, b->count) &&
           same_list(a->shares, a->share_count, b->shares, b->share_count);
}
