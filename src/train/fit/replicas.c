/* Views of the samples of each replica, for inspection. */
#include <stdlib.h>

#include "base/fpmode.h"
#include "base/text.h"
#include "device/context.h"
#include "graph/claim.h"
#include "graph/node.h"
#include "run/read.h"
#include "train/fit/custom_loop.h"

static int count_replicas(const ls_task_map *map, const ls_context *ctx)
{
    /* Without a strategy: all devices of the fastest kind. */
    int first = map->count > 0 ? map->devices[0] : ctx->device_count - 1;
    int devices = ls_task_map_devices(map, ctx, ctx->devices[first].kind, NULL);
    return map->stages > 1 && devices >= map->stages ? devices / map->stages : map->stages > 1 ? 1 : devices;
}

typedef struct sharing {
    const ls_task_map *map;
    int replicas, lanes;
    int64_t samples;
} sharing;

/* Finds the samples [from, from + count) of a replica: its lanes are consecutive. */
static ls_status find_samples(const sharing *s, int replica, int64_t *from, int64_t *count)
{
    int begin = 0, end;
    if (replica < 0 || replica >= s->replicas)
        return ls_fail(LS_ERR_INVALID, "replica %d does not exist: there are %d, counted from 0", replica, s->replicas);
    while (begin < s->lanes && ls_task_map_replica(s->map, s->replicas, begin, s->lanes) < replica)
        begin++;
    for (end = begin; end < s->lanes && ls_task_map_replica(s->map, s->replicas, end, s->lanes) == replica;)
        end++;
    *from = ls_lane_first(s->samples, s->lanes, begin);
    *count = ls_lane_first(s->samples, s->lanes, end) - *from;
    return LS_OK;
}

static ls_status find_sharing(const ls_loop_step *step, int lanes, int64_t samples, sharing *out)
{
    ls_runs *runs = NULL;
    LS_TRY(ls_runs_of(step->graph, &runs));
    const ls_task_map *map = &runs->settings.plan.map;
    *out = (sharing){ map, count_replicas(map, step->graph->context), lanes > 0 ? lanes : 1, samples };
    return LS_OK;
}

static ls_array rows_of(ls_array array, int64_t from, int64_t count)
{
    int64_t elements = 1;
    for (int i = 1; i < array.shape.rank; i++)
        elements *= array.shape.dims[i];
    if (array.data)
        array.data = (char *)array.data + (size_t)(from * elements) * ls_dtype_bytes(array.dtype);
    array.shape.dims[0] = count;
    return array;
}

ls_status ls_replica_element(ls_loop_step *step, const ls_element *batch, int replica, ls_element *out)
{
    LS_CLAIM(step ? step->graph : NULL);
    LS_OWN_FP_MODE;
    ls_traced *t = NULL;
    const ls_placement *placement = NULL;
    int64_t samples = -1, from = 0, count = 0;
    sharing s;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_replica_element: out is NULL");
    LS_TRY(ls_loop_step_trace(step, batch, "ls_replica_element", &t));
    for (int i = 0; i < batch->count && samples < 0; i++)
        if (batch->component[i].shape.rank > 0)
            samples = batch->component[i].shape.dims[0];
    LS_TRY(ls_run_placement(step->graph, NULL, t->fetches, t->fetch_count, samples, &placement));
    LS_TRY(find_sharing(step, placement->plan->lanes, samples, &s));
    LS_TRY(find_samples(&s, replica, &from, &count));
    ls_element part = *batch;
    for (int i = 0; i < part.count; i++)
        if (part.component[i].shape.rank > 0)
            part.component[i] = rows_of(part.component[i], from, count);
    *out = part;
    return LS_OK;
}

ls_status ls_replica_value(ls_loop_step *step, size_t output, int replica, ls_array *out)
{
    LS_CLAIM(step ? step->graph : NULL);
    LS_OWN_FP_MODE;
    ls_array value;
    int64_t from = 0, count = 0;
    sharing s;
    if (!step || !out)
        return ls_fail(LS_ERR_INVALID, "ls_replica_value: step or out is NULL");
    if (output >= step->output_count)
        return ls_fail(LS_ERR_INVALID, "ls_replica_value: output %zu does not exist: the step has %zu, counted from 0",
                       output, step->output_count);
    if (!step->last || !ls_scope_is_open(step->graph, step->scope))
        return ls_fail(LS_ERR_STATE, "ls_replica_value: the step has not run: call ls_strategy_run first");
    ls_tensor *tensor = step->last->fetches[output];
    LS_TRY(ls_value(tensor, &value));
    LS_TRY(find_sharing(step, step->lanes, tensor->held.batch, &s));
    LS_TRY(find_samples(&s, replica, &from, &count));
    *out = tensor->per_sample ? rows_of(value, from, count) : value;
    return LS_OK;
}

ls_status ls_format_replicas(ls_loop_step *step, size_t output, char **out)
{
    LS_CLAIM(step ? step->graph : NULL);
    LS_OWN_FP_MODE;
    ls_text text = { 0 };
    ls_array value;
    sharing s;
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_format_replicas: out is NULL");
    LS_TRY(ls_replica_value(step, output, 0, &value));
    LS_TRY(find_sharing(step, step->lanes, 0, &s));
    ls_text_put(&text, "PerReplica:{\n");
    for (int r = 0; r < s.replicas; r++) {
        ls_status status = ls_replica_value(step, output, r, &value);
        if (status != LS_OK) {
            ls_text_free(&text);
            return status;
        }
        ls_text_add(&text, "  %d: ", r);
        ls_put_tensor(&text, &value);
        ls_text_put(&text, r + 1 < s.replicas ? ",\n" : "\n}");
    }
    return ls_text_take(&text, out);
}
