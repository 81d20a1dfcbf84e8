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

/* The least recently used; there is one. */
static void drop_oldest(ls_runs *runs)
{
    int oldest = 0;
    for (int i = 1; i < runs->count; i++)
        if (runs->cached[i].used < runs->cached[oldest].used)
            oldest = i;
    drop_cached(&runs->cached[oldest]);
    runs->cached[oldest] = runs->cached[--runs->count];
}

/* Plans of nodes that are gone go, too. */
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
    free(runs);
}

/* The newest value of a variable, from a device that has it. */
static ls_status bring(ls_variable *variable)
{
    const ls_graph *graph = variable->node->graph;
    const ls_runs *runs = graph->runs;
    for (int d = 0; runs->states && d < graph->context->device_count; d++)
        if (runs->states[d] && ls_state_has(runs->states[d], variable))
            return ls_state_download(runs->states[d], variable);
    char label[LS_NODE_TEXT];
    return ls_fail(LS_ERR_INTERNAL, "no device has the newest value of %s", ls_node_label(variable->node, label));
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
        if (node->dtype == LS_F32 && ls_node_is(node, LS_TRAIT_PRODUCT))
            return true;
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
    const ls_run_settings *settings;
    ls_runs *runs;
    ls_crew *crew; /* NULL: the caller does everything */
    ls_plan *plan;
    ls_placement *placement;
    ls_status status;
    char message[1024];
} making;

static ls_status plan_and_place(making *m)
{
    LS_TRY(ls_plan_create(m->graph, m->fetches, m->count, m->stop, m->user, m->options, m->source, &m->plan));
    ls_status status = ls_placement_make(m->plan, m->crew != NULL, &m->placement);
    if (status != LS_OK)
        ls_plan_destroy(m->plan);
    return status;
}

/* On worker 0, where operations may be made. */
static void make_on_worker(void *user, int worker)
{
    making *m = user;
    if (worker != 0)
        return;
    m->status = plan_and_place(m);
    if (m->status != LS_OK)
        snprintf(m->message, sizeof(m->message), "%s", ls_last_error());
}

/* A plan for so many samples, and where its parts go. */
static ls_status make(making *m, int64_t batch)
{
    m->options.batch = batch;
    if (!m->crew)
        return plan_and_place(m);
    ls_crew_run(m->crew, make_on_worker, m);
    return m->status == LS_OK ? LS_OK : ls_fail(m->status, "%s", m->message);
}

static void unmake(making *m)
{
    ls_placement_destroy(m->placement);
    ls_plan_destroy(m->plan);
}

/* The list of states; each is made when a plan first needs it. */
static ls_status make_states(const ls_graph *graph, ls_runs *runs)
{
    if (!runs->states)
        runs->states = calloc((size_t)graph->context->device_count, sizeof(ls_state *));
    return runs->states ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the states of a graph");
}

static ls_status start_making(ls_graph *graph, ls_tensor *const *fetches, size_t count, int64_t batch,
                              bool (*stop)(const ls_tensor *, void *), void *user, making *m)
{
    ls_runs *runs = NULL;
    ls_runtime *runtime = NULL;
    LS_TRY(ls_runs_of(graph, &runs));
    LS_TRY(ls_runtime_of(graph->context, &runtime));
    ls_tensor **order = NULL;
    size_t nodes = 0;
    LS_TRY(ls_graph_order(graph, fetches, count, stop, user, &order, &nodes));
    bool crewed = wants_crew(order, nodes, batch) || graph->context->device_count > graph->context->cpu_count;
    free(order);
    *m = (making){ .graph = graph, .fetches = fetches, .count = count, .stop = stop, .user = user };
    m->options = runs->settings.plan;
    m->options.every_partial |= runs->settings.mutation != LS_MUTATE_NOTHING;
    m->settings = &runs->settings;
    m->runs = runs;
    LS_TRY(make_states(graph, runs));
    m->source = ls_cpu_source(runtime->cpu);
    return crewed ? ls_runtime_crew(graph->context, &m->crew) : LS_OK;
}

/* Workers that have nothing to do are said, not hidden: more lanes would use them, but give other bits. Who chose the
 * lanes knows. */
static void report_idle(ls_context *ctx, const ls_plan *plan, int workers)
{
    bool chosen = plan->options.lanes > 0;
    if (plan->segment_count > 0 && plan->lanes < workers)
        ls_log_write(&ctx->log, plan->update_count > 0 && !chosen ? LS_LOG_WARNING : LS_LOG_INFO,
                     "%d lanes on %d cores: %d idle; --lanes %d would use them (other bits)", plan->lanes, workers,
                     workers - plan->lanes, workers);
}

/* ---- Fitting ---- */

/* What a plan adds to the state of a device. */
static size_t state_bytes(const ls_placement *p, int device)
{
    const ls_place *place = &p->places[device];
    const ls_runs *runs = p->plan->graph->runs;
    size_t bytes = 0;
    if (place->state_count > 0 && runs->states[device])
        return ls_state_growth(runs->states[device], place->state, place->state_count);
    for (int i = 0; i < place->state_count; i++)
        bytes += ls_size_align(place->state[i]->bytes, LS_ALIGN);
    return 2 * ls_block_bytes(bytes);
}

static size_t all_bytes(const ls_placement *p, int device)
{
    return p->places[device].needed_bytes + p->places[device].fetched_bytes + state_bytes(p, device);
}

static bool has_room(const ls_placement *p, int device)
{
    size_t bytes = all_bytes(p, device);
    return bytes == 0 || bytes <= ls_memory_room(p->ctx->devices[device].memory);
}

/* The first device whose memory a placed plan passes; -1: it fits everywhere. */
static int too_small(const ls_placement *p)
{
    for (int d = 0; d < p->ctx->device_count; d++)
        if (!has_room(p, d))
            return d;
    return -1;
}

/* The largest batch, below one that does not fit, that does; 0: not even one sample. */
static int64_t largest_batch(making *m, int64_t batch)
{
    int64_t fits = 0;
    while (batch - fits > 1) {
        int64_t middle = fits + (batch - fits) / 2;
        if (make(m, middle) != LS_OK)
            return fits;
        bool fitting = too_small(m->placement) < 0;
        unmake(m);
        fits = fitting ? middle : fits;
        batch = fitting ? batch : middle;
    }
    return fits;
}

static void print_largest_batch(making *m, int64_t batch, ls_text *text)
{
    int64_t fits = largest_batch(m, batch);
    if (fits > 0)
        ls_text_add(text, "a batch of %lld would fit, %lld do not", (long long)fits, (long long)batch);
    else
        ls_text_put(text, "not even a batch of 1 would fit");
}

#define MIB(bytes) ((double)(bytes) / 1048576)

static void print_parts(const ls_placement *p, int device, ls_text *text)
{
    const ls_place *place = &p->places[device];
    size_t kept = place->kept_bytes + (size_t)place->frames * place->frame_bytes;
    ls_text_add(text, "activations %.1f, workspace %.1f", MIB(kept), MIB(place->needed_bytes - kept));
    if (state_bytes(p, device) > 0)
        ls_text_add(text, ", state %.1f", MIB(state_bytes(p, device)));
    if (place->fetched_bytes > 0)
        ls_text_add(text, ", fetched values %.1f", MIB(place->fetched_bytes));
}

/* What it needs, what there is, what is largest, and what would fit. */
static ls_status refuse(making *m, int device, int64_t batch)
{
    ls_text text = { 0 };
    const ls_device *d = &m->graph->context->devices[device];
    ls_memory_info usage = ls_memory_usage(d->memory);
    ls_text_add(&text, "%s: this run needs %.1f MiB (", d->name, MIB(all_bytes(m->placement, device)));
    print_parts(m->placement, device, &text);
    ls_text_add(&text, ") beside %.1f in use (variables and values); the limit is %.1f MiB;", MIB(usage.in_use),
                MIB(usage.limit));
    ls_plan_print_largest(m->plan, &text, 3);
    unmake(m);
    if (batch > 0) {
        ls_text_put(&text, "; ");
        print_largest_batch(m, batch, &text);
    }
    ls_status status = ls_fail(LS_ERR_MEMORY, "%s", text.failed ? "no memory for a plan" : ls_text_get(&text));
    ls_text_free(&text);
    return status;
}

/* Plans that are kept for later give way to one that is needed now. */
static bool give_way(ls_graph *graph)
{
    ls_runs *runs = graph->runs;
    if (runs->count == 0)
        return false;
    drop_oldest(runs);
    return true;
}

ls_status ls_runs_make(ls_graph *graph, ls_tensor *const *fetches, size_t count, int64_t batch,
                       bool (*stop)(const ls_tensor *, void *), void *user, ls_executor **out)
{
    making m;
    ls_context *ctx = graph->context;
    LS_TRY(start_making(graph, fetches, count, batch, stop, user, &m));
    LS_TRY(make(&m, batch));
    if (m.crew)
        report_idle(ctx, m.plan, ctx->runtime->cpu_workers);
    int device = too_small(m.placement);
    while (device >= 0 && give_way(graph))
        device = too_small(m.placement);
    if (device >= 0)
        return refuse(&m, device, batch);
    ls_placement_mark(m.placement);
    if (ctx->log_placement)
        ls_placement_log(m.placement, &ctx->log);
    LS_TRY(ls_executor_create(m.plan, m.placement, m.crew, ctx->runtime->cpu->simd, m.runs->states, out));
    ls_executor_mutate(*out, m.settings->mutation);
    return LS_OK;
}

static void print_need(const ls_placement *p, int device, ls_text *text)
{
    ls_memory_info usage = ls_memory_usage(p->ctx->devices[device].memory);
    if (all_bytes(p, device) == 0 && usage.in_use == 0)
        return;
    ls_text_add(text, "%s: needs %.1f MiB: variables and values %.1f, ", p->ctx->devices[device].name,
                MIB(usage.in_use + all_bytes(p, device)), MIB(usage.in_use));
    print_parts(p, device, text);
    if (usage.limit)
        ls_text_add(text, "; limit %.1f MiB: %s", MIB(usage.limit), has_room(p, device) ? "fits" : "does not fit");
    ls_text_put(text, "\n");
}

ls_status ls_runs_print_memory(ls_graph *graph, ls_tensor *const *fetches, size_t count, int64_t batch, bool *fits,
                               ls_text *text)
{
    making m;
    LS_TRY(start_making(graph, fetches, count, batch, NULL, NULL, &m));
    LS_TRY(make(&m, batch));
    for (int d = 0; d < graph->context->device_count; d++)
        print_need(m.placement, d, text);
    *fits = too_small(m.placement) < 0;
    ls_status status = ls_plan_print_memory(m.plan, text);
    unmake(&m);
    if (status == LS_OK && !*fits && batch > 0) {
        print_largest_batch(&m, batch, text);
        ls_text_put(text, "\n");
    }
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
        if (runs->count == LS_CACHED_PLANS)
            drop_oldest(runs);
        cached = &runs->cached[runs->count++];
        *cached = made;
    }
    cached->used = ++runs->clock;
    *out = cached->executor;
    return LS_OK;
}
