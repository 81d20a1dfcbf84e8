/* Compiling plans for a graph, and keeping them. */
#include "run/runs.h"

#include <stdlib.h>
#include <string.h>

static void drop_cached(ls_cached *cached)
{
    ls_executor_destroy(cached->executor);
    free(cached->fetches);
}

void ls_runs_clear(ls_runs *runs)
{
    while (runs->count > 0)
        drop_cached(&runs->cached[--runs->count]);
}

/* Plans of nodes that are gone go, too. */
static void trim(ls_graph *graph, size_t nodes)
{
    ls_runs *runs = graph->runs;
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
    ls_runs_clear(graph->runs);
    free(graph->runs);
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
    }
    *out = graph->runs;
    return LS_OK;
}

/* ---- Making ---- */

/* oneDNN wants its operations made and run on our threads; and large work wants all of them. */
#define SMALL_FLOPS 1e6

static bool wants_crew(ls_tensor *const *order, size_t count, int64_t batch)
{
    double flops = 0;
    for (size_t i = 0; i < count; i++) {
        const ls_tensor *node = order[i];
        switch (node->op) {
        case LS_OP_matmul:
        case LS_OP_conv2d:
        case LS_OP_conv2d_grad_input:
        case LS_OP_conv2d_grad_kernel:
            if (node->dtype == LS_F32)
                return true;
            break;
        default:
            break;
        }
        flops += ls_node_flops(node) * (node->use == LS_USE_WHOLE || batch < 1 ? 1 : (double)batch);
    }
    return flops > SMALL_FLOPS;
}

typedef struct making {
    ls_graph *graph;
    ls_tensor *const *fetches;
    size_t count;
    bool (*stop)(const ls_tensor *, void *);
    void *user;
    ls_plan_options options;
    ls_kernel_source source;
    ls_plan *plan;
    ls_status status;
    char message[1024];
} making;

/* On worker 0, where operations may be made. */
static void make_plan(void *user, int worker)
{
    making *m = user;
    if (worker != 0)
        return;
    m->status = ls_plan_create(m->graph, m->fetches, m->count, m->stop, m->user, m->options, m->source, &m->plan);
    if (m->status != LS_OK)
        snprintf(m->message, sizeof(m->message), "%s", ls_last_error());
}

/* Cores that have nothing to do are said, not hidden: more lanes would use them, but give other bits. */
static void report_idle(ls_context *ctx, const ls_plan *plan, int workers)
{
    if (plan->segment_count > 0 && plan->lanes < workers)
        ls_log_write(&ctx->log, plan->update_count > 0 ? LS_LOG_WARNING : LS_LOG_INFO,
                     "%d lanes on %d cores: %d idle; --lanes %d would use them (other bits)", plan->lanes, workers,
                     workers - plan->lanes, workers);
}

ls_status ls_runs_make(ls_graph *graph, ls_tensor *const *fetches, size_t count, int64_t batch,
                       bool (*stop)(const ls_tensor *, void *), void *user, ls_executor **out)
{
    ls_runs *runs = NULL;
    ls_runtime *runtime = NULL;
    LS_TRY(ls_runs_of(graph, &runs));
    LS_TRY(ls_runtime_of(graph->context, &runtime));
    ls_tensor **order = NULL;
    size_t nodes = 0;
    LS_TRY(ls_graph_order(graph, fetches, count, stop, user, &order, &nodes));
    bool crewed = wants_crew(order, nodes, batch);
    free(order);
    making m = { .graph = graph, .fetches = fetches, .count = count, .stop = stop, .user = user };
    m.options = runs->settings.plan;
    m.options.batch = batch;
    m.source = ls_cpu_source(runtime->cpu);
    ls_crew *crew = NULL;
    if (crewed) {
        LS_TRY(ls_runtime_crew(graph->context, &crew));
        ls_crew_run(crew, make_plan, &m);
        if (m.status != LS_OK)
            return ls_fail(m.status, "%s", m.message);
    } else {
        LS_TRY(ls_plan_create(graph, fetches, count, stop, user, m.options, m.source, &m.plan));
    }
    if (crewed)
        report_idle(graph->context, m.plan, runtime->workers);
    const ls_run_settings *settings = &runs->settings;
    ls_even_share share = { .lanes = m.plan->lanes,
                            .devices = settings->device_count ? settings->device_count : runtime->devices,
                            .list = settings->device_count ? settings->devices : NULL,
                            .available = runtime->devices };
    ls_map map = runs->settings.map.devices > 0 ? runs->settings.map : ls_map_evenly(&share);
    ls_status status = ls_executor_create(m.plan, crew, runtime->device_of_worker, &map, runtime->cpu->simd, out);
    if (status != LS_OK)
        ls_plan_destroy(m.plan);
    else
        ls_executor_mutate(*out, runs->settings.mutation);
    return status;
}

/* ---- Keeping ---- */

static ls_cached *find(ls_runs *runs, ls_tensor *const *fetches, size_t count, int64_t batch)
{
    for (int i = 0; i < runs->count; i++) {
        ls_cached *c = &runs->cached[i];
        if (c->batch == batch && c->fetch_count == count &&
            (count == 0 || memcmp(c->fetches, fetches, count * sizeof(*fetches)) == 0))
            return c;
    }
    return NULL;
}

bool ls_runs_has(ls_runs *runs, ls_tensor *const *fetches, size_t count, int64_t batch)
{
    return find(runs, fetches, count, batch) != NULL;
}

static void make_room(ls_runs *runs)
{
    if (runs->count < LS_CACHED_PLANS)
        return;
    int oldest = 0;
    for (int i = 1; i < runs->count; i++)
        if (runs->cached[i].used < runs->cached[oldest].used)
            oldest = i;
    drop_cached(&runs->cached[oldest]);
    runs->cached[oldest] = runs->cached[--runs->count];
}

ls_status ls_runs_get(ls_graph *graph, ls_tensor *const *fetches, size_t count, int64_t batch, ls_executor **out)
{
    ls_runs *runs = NULL;
    LS_TRY(ls_runs_of(graph, &runs));
    ls_cached *cached = find(runs, fetches, count, batch);
    if (!cached) {
        ls_cached made = { .fetch_count = count, .batch = batch };
        made.fetches = malloc((count ? count : 1) * sizeof(*made.fetches));
        if (!made.fetches)
            return ls_fail(LS_ERR_MEMORY, "no memory to keep a plan of %zu fetches", count);
        if (count)
            memcpy(made.fetches, fetches, count * sizeof(*fetches));
        ls_status status = ls_runs_make(graph, fetches, count, batch, NULL, NULL, &made.executor);
        if (status != LS_OK) {
            free(made.fetches);
            return status;
        }
        make_room(runs);
        cached = &runs->cached[runs->count++];
        *cached = made;
    }
    cached->used = ++runs->clock;
    *out = cached->executor;
    return LS_OK;
}
