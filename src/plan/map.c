/* What a map says, and the rule where it says nothing. */
#include "plan/map.h"

int ls_map_devices(const ls_map *map, const ls_context *ctx, int kind, int *out)
{
    int count = 0;
    for (int i = 0; i < map->count; i++)
        if (ctx->devices[map->devices[i]].kind == kind)
            out[count++] = map->devices[i];
    bool named = count > 0;
    for (int d = 0; !named && d < ctx->device_count; d++)
        if (ctx->devices[d].kind == kind)
            out[count++] = d;
    return count;
}

unsigned ls_map_kinds(const ls_map *map, const ls_context *ctx)
{
    unsigned kinds = 0;
    for (int i = 0; i < map->count; i++)
        kinds |= 1u << ctx->devices[map->devices[i]].kind;
    return kinds;
}

/* Device number `which` of a kind, among those that take part. */
static int device_of_kind(const ls_map *map, const ls_context *ctx, int kind, int which)
{
    for (int i = 0; i < map->count; i++)
        if (ctx->devices[map->devices[i]].kind == kind && which-- == 0)
            return map->devices[i];
    for (int d = 0; d < ctx->device_count; d++)
        if (ctx->devices[d].kind == kind && which-- == 0)
            return d;
    return LS_ANY_DEVICE;
}

static int count_of_kind(const ls_map *map, const ls_context *ctx, int kind)
{
    int named = 0, all = 0;
    for (int i = 0; i < map->count; i++)
        named += ctx->devices[map->devices[i]].kind == kind;
    for (int d = 0; d < ctx->device_count; d++)
        all += ctx->devices[d].kind == kind;
    return named ? named : all;
}

ls_status ls_map_device(const ls_map *map, const ls_context *ctx, const ls_map_point *at, int *out)
{
    int device = map->device ? map->device(map, at) : LS_ANY_DEVICE;
    if (device == LS_ANY_DEVICE)
        device = at->asked;
    if (device == LS_ANY_DEVICE && at->lane >= 0) {
        int count = count_of_kind(map, ctx, at->kind);
        device = device_of_kind(map, ctx, at->kind, (int)((int64_t)at->lane * count / at->lanes));
    }
    if (device < LS_ANY_DEVICE || device >= ctx->device_count)
        return ls_fail(LS_ERR_INVALID, "the map gives work to device %d; there are %d", device, ctx->device_count);
    if (device != LS_ANY_DEVICE && ctx->devices[device].kind != at->kind)
        return ls_fail(LS_ERR_INVALID, "the map gives work for a %s to %s", ctx->kinds[at->kind].name,
                       ctx->devices[device].name);
    *out = device;
    return LS_OK;
}

int ls_map_owner(const ls_map *map, const int *makers, int count, int part)
{
    return map->owner ? map->owner(map, makers, count, part) : makers[part % count];
}
