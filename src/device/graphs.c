/* Device scopes of graphs, and reports of memory use, copies and placement. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "device/context.h"
#include "graph/claim.h"
#include "graph/node.h"

/* ---- Memory ---- */

static ls_status find_memory(ls_context *ctx, const char *call, const char *device, ls_memory **out)
{
    int index;
    LS_TRY(ls_context_begin(ctx, call));
    LS_TRY(ls_context_device(ctx, device, &index));
    *out = ctx->devices[index].memory;
    return LS_OK;
}

ls_status ls_get_memory_info(ls_context *ctx, const char *device, ls_memory_info *out)
{
    ls_memory *memory;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_get_memory_info: out is NULL");
    LS_TRY(find_memory(ctx, "ls_get_memory_info", device, &memory));
    *out = ls_memory_usage(memory);
    return LS_OK;
}

ls_status ls_format_memory(ls_context *ctx, const char *device, char **out)
{
    ls_memory *memory;
    ls_text text = { 0 };
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_format_memory: out is NULL");
    LS_TRY(find_memory(ctx, "ls_format_memory", device, &memory));
    ls_status status = ls_memory_print(memory, &text);
    if (status == LS_OK)
        return ls_text_take(&text, out);
    ls_text_free(&text);
    return status;
}

/* ---- Copies ---- */

void ls_context_count_copy(ls_context *ctx, const char *tensor, int from, int to, size_t bytes)
{
    pthread_mutex_lock(&ctx->mutex);
    size_t i = 0;
    while (i < ctx->copy_count && (ctx->copies[i].from != from || ctx->copies[i].to != to ||
                                   strncmp(ctx->copies[i].tensor, tensor, sizeof(ctx->copies[i].tensor) - 1) != 0))
        i++;
    /* If memory runs out, the copy is not counted. */
    if (ls_grow(&ctx->copies, i, &ctx->copy_room, sizeof(*ctx->copies)) == LS_OK) {
        ls_copy_info *copy = &ctx->copies[i];
        if (i == ctx->copy_count) {
            *copy = (ls_copy_info){ .from = from, .to = to };
            snprintf(copy->tensor, sizeof(copy->tensor), "%s", tensor);
            ctx->copy_count++;
        }
        copy->times++;
        copy->bytes += bytes;
    }
    pthread_mutex_unlock(&ctx->mutex);
}

ls_status ls_list_copies(ls_context *ctx, ls_copy_info **out, size_t *count)
{
    if (!ctx || !out || !count)
        return ls_fail(LS_ERR_INVALID, "ls_list_copies: ctx, out or count is NULL");
    LS_TRY(ls_context_check(ctx, "ls_list_copies"));
    pthread_mutex_lock(&ctx->mutex);
    ls_copy_info *list = calloc(ctx->copy_count + 1, sizeof(*list));
    if (list) {
        if (ctx->copy_count)
            memcpy(list, ctx->copies, ctx->copy_count * sizeof(*list));
        *out = list;
        *count = ctx->copy_count;
    }
    pthread_mutex_unlock(&ctx->mutex);
    return list ? LS_OK : ls_fail(LS_ERR_MEMORY, "ls_list_copies: no memory for the list");
}

/* ---- Placement ---- */

ls_device_scope ls_device_scope_open(ls_graph *graph, const char *device)
{
    ls_device_scope scope = { .graph = graph, .outer = LS_ANY_DEVICE };
    LS_CLAIM_OR_REFUSE(graph, scope);
    if (!graph)
        return scope;
    scope.outer = graph->device;
    scope.open = true;
    int index = LS_ANY_DEVICE;
    if (!device || device[0]) {
        ls_status status = ls_context_device(graph->context, device, &index);
        if (status != LS_OK)
            ls_node_error(graph, status, "LS_WITH_DEVICE");
    }
    graph->device = index;
    return scope;
}

void ls_device_scope_close(ls_device_scope *scope)
{
    if (!scope || !scope->open)
        return;
    scope->open = false;
    LS_CLAIM_OR_REFUSE(scope->graph, );
    scope->graph->device = scope->outer;
}

ls_status ls_set_hard_placement(ls_context *ctx, bool hard)
{
    LS_TRY(ls_context_check(ctx, "ls_set_hard_placement"));
    ctx->hard_placement = hard;
    return LS_OK;
}

ls_status ls_set_log_placement(ls_context *ctx, bool on)
{
    LS_TRY(ls_context_check(ctx, "ls_set_log_placement"));
    ctx->log_placement = on;
    return LS_OK;
}
