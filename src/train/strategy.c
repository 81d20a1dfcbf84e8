/* Which devices a strategy names: "cpu:0,cpu:1", "gpu:0-3"; without names all devices of the fastest kind. */
#include <stdlib.h>

#include "device/context.h"
#include "train/job.h"

/* Kinds that were added come behind the CPU, and are preferred. */
static ls_status fastest_devices(const ls_context *ctx, int **list, int *count)
{
    int kind = ctx->devices[ctx->device_count - 1].kind, *made = calloc((size_t)ctx->device_count, sizeof(*made));
    if (!made)
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %d devices", ctx->device_count);
    for (int d = 0; d < ctx->device_count; d++)
        if (ctx->devices[d].kind == kind)
            made[(*count)++] = d;
    *list = made;
    return LS_OK;
}

ls_status ls_device_list(const ls_strategy *strategy, ls_context *ctx, int **list, int *count)
{
    int *made = NULL, found = 0;
    bool one = strategy->kind == LS_STRATEGY_ONE_DEVICE;
    LS_TRY(strategy->devices ? ls_context_device_list(ctx, strategy->devices, &made, &found)
                             : fastest_devices(ctx, &made, &found));
    if (one && strategy->devices && found != 1) {
        free(made);
        return ls_fail(LS_ERR_INVALID, "the strategy one-device was given %d devices", found);
    }
    *list = made;
    *count = one ? 1 : found;
    return LS_OK;
}
