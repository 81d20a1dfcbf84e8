/* Caches compiled plans, and keeps the state of devices, with a graph. */
#include "run/runs.h"

#include <stdlib.h>
#include <string.h>

#include "run/compile.h"
#include "run/peers.h"
#include "run/strategy.h"

static void drop_cached(ls_cached *cached)
{
    ls_executor_destroy(cached->executor);
    free(cached->fetches);
    free(cached->lists);
}

void ls_runs_clear(ls_runs *runs)
{
    while (runs->count > 0)
        drop_cached(&runs->cached[--runs->count]);
}

bool ls_runs_drop_oldest(ls_runs *runs)
{
    int oldest = 0;
    if (runs->count == 0)
        return false;
    for (int i = 1; i < runs->count; i++)
        if (runs->cached[i].used < runs->cached[oldest].used)
            oldest = i;
    drop_cached(&runs->cached[oldest]);
    runs->cached[oldest] = runs->cached[--runs->count];
    return true;
}

/* Drops plans that contain deleted nodes. */
static void trim(ls_graph *graph, size_t nodes)
{
    ls_runs *runs = graph->runs;
    for (int d = 0; runs->states && d < graph->context->device_count; d++)
        if (runs->states[d])
            ls_state_trim(runs->states[d], graph->variable_count);
    for (int i = 0; i < runs->count;) {
        if (ls_executor_plan(runs->cached[i].executor)->newest < nodes) {
            i++;
            continue;
        }
        drop_cached(&runs->cached[i]);
        runs->cached[i] = runs->cached[--runs->count];
    }
}

static void drop(ls_graph *graph)
{
    ls_runs *runs = graph->runs;
    ls_runs_clear(runs);
    for (int d = 0; runs->states && d < graph->context->device_count; d++)
        ls_state_destroy(runs->states[d]);
    free(runs->states);
    free(runs->lists);
    free(runs);
}

/* If a device fails, tries others that may have the newest value too. */
static ls_status bring(ls_variable *variable)
{
    const ls_graph *graph = variable->node->graph;
    const ls_runs *runs = graph->runs;
    ls_status status = LS_OK;
    char label[LS_NODE_TEXT];
    for (int d = 0; runs->states && d < graph->context->device_count; d++)
        if (runs->states[d] && ls_state_has(runs->states[d], variable)) {
            status = ls_state_download(runs->states[d], variable);
            if (status == LS_OK)
                return LS_OK;
        }
    if (status == LS_OK)
        return ls_fail(LS_ERR_INTERNAL, "no device has the newest value of %s", ls_node_label(variable->node, label));
    return ls_fail_within(status,
                          "the newest value of %s is on no device that can be read: load weights or a checkpoint to "
                          "continue",
                          ls_node_label(variable->node, label));
}

ls_status ls_runs_of(ls_graph *graph, ls_runs **out)
{
    if (!graph->runs) {
        ls_runs *runs = calloc(1, sizeof(*runs));
        if (!runs)
            return ls_fail(LS_ERR_MEMORY, "no memory for the runs of a graph");
        graph->runs = runs;
        graph->trim_runs = trim;
        graph->drop_runs = drop;
        graph->bring = bring;
    }
    const ls_peers *peers = graph->context->peers;
    if (peers && (graph->runs->generation != peers->generation || graph->runs->split != peers->split)) {
        ls_runs_clear(graph->runs); /* The lanes are divided anew. */
        graph->runs->generation = peers->generation;
        graph->runs->split = peers->split;
    }
    *out = graph->runs;
    return LS_OK;
}

/* Ignores the batch, which each run sets. */
static bool same_settings(const ls_run_settings *a, const ls_run_settings *b)
{
    const ls_plan_options *x = &a->plan, *y = &b->plan;
    return a->mutation == b->mutation && a->by_caller == b->by_caller && x->lanes == y->lanes &&
           x->unfused == y->unfused && x->cut_everywhere == y->cut_everywhere && x->micro == y->micro &&
           x->guards == y->guards && x->every_partial == y->every_partial && x->audits == y->audits &&
           x->keeps_prepared == y->keeps_prepared && ls_task_map_equal(&x->map, &y->map);
}

static ls_cached *find(ls_runs *runs, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                       int64_t batch)
{
    for (int i = 0; i < runs->count; i++) {
        ls_cached *c = &runs->cached[i];
        if (c->batch == batch && c->fetch_count == count &&
            (count == 0 || memcmp(c->fetches, fetches, count * sizeof(*fetches)) == 0) &&
            same_settings(&c->settings, settings ? settings : &runs->settings))
            return c;
    }
    return NULL;
}

bool ls_runs_has(ls_runs *runs, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count, int64_t batch)
{
    return find(runs, settings, fetches, count, batch) != NULL;
}

/* A map's arrays may be freed before the plan. */
static ls_status copy_key(ls_cached *made, const ls_run_settings *settings, ls_tensor *const *fetches)
{
    made->settings = *settings;
    LS_TRY(ls_task_map_copy(&settings->plan.map, &made->lists, &made->settings.plan.map));
    made->fetches = malloc((made->fetch_count + 1) * sizeof(ls_tensor *));
    if (!made->fetches)
        return ls_fail(LS_ERR_MEMORY, "no memory to keep a plan of %zu fetches", made->fetch_count);
    if (made->fetch_count)
        memcpy(made->fetches, fetches, made->fetch_count * sizeof(ls_tensor *));
    return LS_OK;
}

ls_status ls_runs_get(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                      int64_t batch, ls_executor **out)
{
    ls_runs *runs = NULL;
    LS_TRY(ls_runs_of(graph, &runs));
    ls_cached *cached = find(runs, settings, fetches, count, batch);
    if (!cached) {
        ls_cached made = { .fetch_count = count, .batch = batch };
        ls_status status = copy_key(&made, settings ? settings : &runs->settings, fetches);
        if (status == LS_OK)
            status = ls_compile_run(graph, &made.settings, fetches, count, batch, NULL, NULL, &made.executor);
        if (status != LS_OK) {
            drop_cached(&made);
            return status;
        }
        if (runs->count == LS_CACHED_PLANS)
            ls_runs_drop_oldest(runs);
        cached = &runs->cached[runs->count++];
        *cached = made;
    }
    cached->used = ++runs->clock;
    *out = cached->executor;
    return LS_OK;
}
