/* Compiles fetches to an executor, via a plan and its placement. */
#include "run/compile.h"

#include <stdlib.h>

#include "base/hash.h"
#include "device/scratch.h"
#include "run/exchange.h"
#include "run/memory_check.h"
#include "run/peers.h"

/* Work above this uses the thread pool; float32 products always do. */
#define SMALL_FLOPS 1e6

static bool wants_threads(ls_tensor *const *order, size_t count, int64_t batch)
{
    double flops = 0;
    for (size_t i = 0; i < count; i++) {
        const ls_tensor *node = order[i];
        if (node->dtype == LS_F32 && ls_node_is(node, LS_TRAIT_PRODUCT))
            return true;
        flops += ls_node_flops(node) * (node->use == LS_USE_WHOLE || batch < 1 ? 1 : (double)batch);
    }
    return flops > SMALL_FLOPS;
}

/* Includes memory for what other workers send. */
static ls_status place_together(ls_compilation *m, int together)
{
    size_t bytes;
    LS_TRY(ls_exchange_bytes(m->plan, m->graph->context->peers, &bytes));
    LS_TRY(ls_placement_make(m->plan, m->thread_pool != NULL, together, &m->placement));
    ls_place *home = &m->placement->places[m->placement->home];
    home->sent_bytes = bytes > 0 ? ls_block_bytes(bytes) : 0;
    home->needed_bytes += home->sent_bytes;
    return LS_OK;
}

/* As many lanes together as fit in memory. */
static ls_status place(ls_compilation *m)
{
    int together = m->together ? m->together : m->plan->lanes, device;
    LS_TRY(place_together(m, together));
    while ((device = ls_memory_check_too_small(m->placement)) >= 0 && m->placement->places[device].together > 1) {
        together = m->placement->places[device].together / 2;
        ls_placement_destroy(m->placement);
        LS_TRY(place_together(m, together));
    }
    return LS_OK;
}

ls_status ls_compilation_make(ls_compilation *m, int64_t batch)
{
    m->options.batch = batch;
    LS_TRY(ls_plan_create(m->graph, m->fetches, m->count, m->stop, m->user, m->options, m->source, &m->plan));
    ls_status status = place(m);
    if (status != LS_OK)
        ls_plan_destroy(m->plan);
    return status;
}

void ls_compilation_drop(ls_compilation *m)
{
    ls_placement_destroy(m->placement);
    ls_plan_destroy(m->plan);
}

static ls_status make_states(const ls_graph *graph, ls_runs *runs)
{
    if (!runs->states)
        runs->states = calloc((size_t)graph->context->device_count, sizeof(ls_state *));
    return runs->states ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the states of a graph");
}

ls_status ls_compilation_start(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches,
                               size_t count, int64_t batch, bool (*stop)(const ls_tensor *, void *), void *user,
                               ls_compilation *m)
{
    ls_runs *runs = NULL;
    ls_runtime *runtime = NULL;
    LS_TRY(ls_runs_of(graph, &runs));
    LS_TRY(ls_runtime_of(graph->context, &runtime));
    ls_tensor **order = NULL;
    size_t nodes = 0;
    LS_TRY(ls_graph_order(graph, fetches, count, stop, user, &order, &nodes));
    *m = (ls_compilation){ .graph = graph, .fetches = fetches, .count = count, .stop = stop, .user = user };
    m->settings = settings ? settings : &runs->settings;
    bool others = graph->context->device_count > graph->context->cpu_count;
    bool threaded = !m->settings->by_caller && (others || wants_threads(order, nodes, batch));
    free(order);
    m->options = m->settings->plan;
    m->options.every_partial |= m->settings->mutation != LS_MUTATE_NOTHING;
    if (graph->context->peers && !m->settings->by_caller) {
        m->options.worker = ls_peers_place(graph->context->peers);
        /* As it will be after joining. */
        m->options.workers = graph->context->peers->count + graph->context->peers->joins;
        m->options.weights = ls_peers_weights(graph->context->peers, m->weights);
    }
    m->runs = runs;
    LS_TRY(make_states(graph, runs));
    m->source = graph->reference ? runtime->reference : runtime->host;
    return threaded ? ls_runtime_thread_pool(graph->context, &m->thread_pool) : LS_OK;
}

/* Only information if the user chose the lanes. */
static void report_idle(ls_context *ctx, const ls_plan *plan, int threads)
{
    bool chosen = plan->options.lanes > 0;
    if (plan->segment_count > 0 && plan->lanes < threads)
        ls_log_write(&ctx->log, plan->update_count > 0 && !chosen ? LS_LOG_WARNING : LS_LOG_INFO,
                     "%d lanes on %d cores leave %d idle: --lanes %d would use them, with other bits", plan->lanes,
                     threads, threads - plan->lanes, threads);
}

/* Stages work at the same time, on different lanes, only between joins. */
static void report_waits(ls_context *ctx, const ls_plan *plan)
{
    int waits = -1;
    for (int i = 0; i < plan->phase_count; i++)
        waits += plan->phases[i].kind == LS_PHASE_LANES;
    if (plan->options.map.stages > 1 && waits > 0 && plan->update_count > 0)
        ls_log_write(
            &ctx->log, LS_LOG_WARNING,
            "all lanes wait for each other %d times within a step, so stages cannot work at the same time: batch "
            "norms with statistics per lane (--norm-statistics lane) avoid that, with other bits",
            waits);
}

/* Once for all plans of the graph (other batch sizes). Frees the text; an empty one is no
 * warning. */
static void warn_once(ls_context *ctx, ls_runs *runs, ls_text *text)
{
    uint64_t hash[2];
    ls_hash h;
    bool said = text->length == 0;
    ls_hash_begin(&h);
    ls_hash_add(&h, ls_text_get(text), text->length);
    ls_hash_end(&h, hash);
    for (int i = 0; i < LS_WARNED; i++)
        said = said || runs->warned[i] == hash[0];
    if (!said) {
        runs->warned[runs->warned_count++ % LS_WARNED] = hash[0];
        ls_log_write(&ctx->log, LS_LOG_WARNING, "%s", ls_text_get(text));
    }
    ls_text_free(text);
}

static void report_slow(ls_context *ctx, ls_runs *runs, const ls_plan *plan)
{
    ls_text text = { 0 };
    ls_plan_describe_slow(plan, &text);
    warn_once(ctx, runs, &text);
}

/* The system ends a process that takes more, without a message. */
static void report_host_memory(ls_context *ctx, ls_runs *runs, const ls_placement *placement)
{
    ls_text text = { 0 };
    ls_memory_check_describe_host(placement, &text);
    if (text.length > 0)
        ls_text_put(&text, "; the system may end it: use a smaller batch or fewer workers on this machine");
    warn_once(ctx, runs, &text);
}

/* The size of scratch is known only after kernels are created. */
static bool lacks_scratch(const ls_context *ctx)
{
    for (int d = ctx->cpu_count; d < ctx->device_count; d++)
        if (ls_device_lacks_scratch(&ctx->devices[d]))
            return true;
    return false;
}

static int most_together(const ls_placement *p)
{
    int most = 1;
    for (int d = p->ctx->cpu_count; d < p->ctx->device_count; d++)
        most = p->places[d].together > most ? p->places[d].together : most;
    return most;
}

/* Half as many lanes together; with one lane, drops a cached plan instead. */
static bool make_smaller(ls_compilation *m, int64_t batch, int together)
{
    m->together = together > 1 ? together / 2 : 1;
    if (together == 1 && !ls_runs_drop_oldest(m->runs))
        return false;
    if (ls_compilation_make(m, batch) != LS_OK)
        return false;
    if (ls_memory_check_too_small(m->placement) < 0)
        return true;
    ls_compilation_drop(m);
    return false;
}

static ls_status make_executor(ls_compilation *m, int64_t batch, ls_executor **out)
{
    for (;;) {
        ls_error failure;
        int together = most_together(m->placement);
        ls_status status = ls_executor_create(m->plan, m->placement, m->thread_pool, m->runs->states, out);
        if (status != LS_ERR_MEMORY || !lacks_scratch(m->graph->context))
            return status;
        ls_error_keep(&failure, status);
        if (!make_smaller(m, batch, together))
            return ls_error_give(&failure);
    }
}

ls_status ls_compile_run(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                         int64_t batch, bool (*stop)(const ls_tensor *, void *), void *user, ls_executor **out)
{
    ls_compilation m;
    ls_context *ctx = graph->context;
    LS_TRY(ls_compilation_start(graph, settings, fetches, count, batch, stop, user, &m));
    LS_TRY(ls_compilation_make(&m, batch));
    if (m.thread_pool)
        report_idle(ctx, m.plan, ctx->runtime->cpu_threads);
    report_waits(ctx, m.plan);
    report_slow(ctx, m.runs, m.plan);
    int device = ls_memory_check_too_small(m.placement);
    while (device >= 0 && ls_runs_drop_oldest(m.runs))
        device = ls_memory_check_too_small(m.placement);
    if (device >= 0)
        return ls_memory_check_refuse(&m, device, batch);
    report_host_memory(ctx, m.runs, m.placement);
    ls_placement_mark(m.placement);
    if (ctx->log_placement)
        ls_placement_log(m.placement, &ctx->log);
    LS_TRY(make_executor(&m, batch, out));
    ls_executor_mutate(*out, m.settings->mutation);
    return LS_OK;
}
