/* Runs a graph: checks feeds, finds or compiles a plan, runs it, and stores fetched values. Eager
 * runs use single-use plans and store all values that they compute. */
#include "run/eval.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fpmode.h"
#include "base/size.h"
#include "base/text.h"
#include "device/context.h"
#include "graph/claim.h"
#include "graph/context.h"
#include "run/memory_check.h"
#include "run/peers.h"

#define NO_BATCH (-1)

typedef struct run {
    ls_graph *graph;
    const ls_run_settings *settings; /* NULL: the graph's own. */
    bool of_step, audit;             /* See ls_run_request. */
    bool eager;
    int64_t batch; /* NO_BATCH: unknown (yet). */
    const ls_tensor *batch_from;
    const ls_feed *feeds;
    size_t feed_count;
    const int64_t *rows; /* Rows of the fed data; NULL: all, in order. */
    int64_t row_count;
    ls_tensor *const *fetches;
    size_t fetch_count;
    ls_executor *executor;
} run;

/* ---- Batch size and feeds ---- */

static ls_status learn_batch(run *r, const ls_tensor *from, int64_t batch)
{
    char a[LS_NODE_TEXT], b[LS_NODE_TEXT];
    if (r->batch == NO_BATCH) {
        r->batch = batch;
        r->batch_from = from;
    } else if (r->batch != batch) {
        return ls_fail(LS_ERR_SHAPE, "the batch has %lld samples in %s but %lld in %s", (long long)r->batch,
                       ls_node_label(r->batch_from, a), (long long)batch, ls_node_label(from, b));
    }
    return LS_OK;
}

static ls_status check_rows(run *r, const ls_feed *feed, size_t number)
{
    char label[LS_NODE_TEXT];
    for (int64_t i = 0; i < r->row_count; i++)
        if (r->rows[i] < 0 || r->rows[i] >= feed->value.shape.dims[0])
            return ls_fail(LS_ERR_DATA, "feed %zu: sample %lld of %s is row %lld, but the data has %lld rows", number,
                           (long long)i, ls_node_label(feed->input, label), (long long)r->rows[i],
                           (long long)feed->value.shape.dims[0]);
    return learn_batch(r, feed->input, r->row_count);
}

static ls_status check_feed(run *r, const ls_feed *feed, size_t number)
{
    char label[LS_NODE_TEXT], given[LS_SHAPE_TEXT], wanted[LS_SHAPE_TEXT];
    const ls_tensor *input = feed->input;
    if (!input)
        return ls_fail(LS_ERR_INVALID, "feed %zu: the input is NULL", number);
    if (input->op == LS_OP_ERROR)
        return ls_fail(input->status, "%s", input->message);
    if (input->graph != r->graph)
        return ls_fail(LS_ERR_INVALID, "feed %zu: %s belongs to another graph", number, ls_node_label(input, label));
    if (input->op != LS_OP_input)
        return ls_fail(LS_ERR_INVALID, "feed %zu: %s is not an input and cannot be fed", number,
                       ls_node_label(input, label));
    if (feed->value.dtype != input->dtype)
        return ls_fail(LS_ERR_DTYPE, "feed %zu: %s is %s, but the value is %s", number, ls_node_label(input, label),
                       ls_dtype_name(input->dtype), ls_dtype_name(feed->value.dtype));
    const ls_shape *shape = &feed->value.shape;
    bool fits = shape->rank == input->shape.rank;
    for (int i = 0; fits && i < shape->rank; i++)
        fits = shape->dims[i] >= 0 && (shape->dims[i] == input->shape.dims[i] || input->shape.dims[i] == LS_BATCH);
    if (!fits)
        return ls_fail(LS_ERR_SHAPE, "feed %zu: %s has shape %s, but the value has %s", number,
                       ls_node_label(input, label), ls_shape_format(&input->shape, wanted),
                       ls_shape_format(shape, given));
    int64_t count;
    if (!ls_shape_count(shape, 0, &count))
        return ls_fail(LS_ERR_OVERFLOW, "feed %zu: shape %s overflows", number, ls_shape_format(shape, given));
    if (!feed->value.data && count > 0)
        return ls_fail(LS_ERR_INVALID, "feed %zu: the data for %s is NULL", number, ls_node_label(input, label));
    if (r->rows && input->per_sample)
        return check_rows(r, feed, number);
    return input->per_sample ? learn_batch(r, input, shape->dims[0]) : LS_OK;
}

/* ---- Values that a plan reads from outside ---- */

/* Whether an eager run uses the value that the tensor already holds. */
static bool is_held(const ls_tensor *node, void *user)
{
    const run *r = user;
    /* The tensor holds the joined value, not a lane's partial. */
    bool by_lane = node->use == LS_USE_REDUCES && ls_node_is_by_lane(node);
    return r->eager && node->held.valid && !by_lane;
}

static bool has_batch_axis(const ls_tensor *node)
{
    for (int i = 0; i < node->shape.rank; i++)
        if (node->shape.dims[i] == LS_BATCH)
            return true;
    return false;
}

/* Two feeds of one input are an error. */
static ls_status find_feed(const run *r, const ls_tensor *input, ls_external *out)
{
    static const char nothing; /* Address for data of zero bytes. */
    char label[LS_NODE_TEXT];
    *out = (ls_external){ .data = NULL };
    for (size_t i = 0; i < r->feed_count; i++) {
        if (r->feeds[i].input != input)
            continue;
        if (out->data)
            return ls_fail(LS_ERR_INVALID, "%s is fed twice", ls_node_label(input, label));
        out->data = r->feeds[i].value.data ? r->feeds[i].value.data : &nothing;
        out->rows = input->per_sample ? r->rows : NULL;
    }
    if (!out->data)
        return ls_fail(LS_ERR_INVALID, "%s is needed but was not fed", ls_node_label(input, label));
    return LS_OK;
}

/* Done once for each plan. */
static ls_status check_node(const ls_tensor *node, int64_t batch)
{
    char label[LS_NODE_TEXT], text[LS_SHAPE_TEXT];
    int64_t elements;
    size_t bytes;
    if (has_batch_axis(node) && batch == NO_BATCH)
        return ls_fail(LS_ERR_SHAPE, "%s has a batch axis, but no input with one was fed: the batch size is not known",
                       ls_node_label(node, label));
    if (node->op == LS_OP_count && batch == NO_BATCH)
        return ls_fail(LS_ERR_STATE, "%s counts samples, but no input with a batch axis was fed",
                       ls_node_label(node, label));
    if (!ls_shape_count(&node->shape, batch, &elements) ||
        !ls_size_mul((size_t)elements, ls_dtype_bytes(node->dtype), &bytes) || bytes > PTRDIFF_MAX / 4)
        return ls_fail(LS_ERR_OVERFLOW, "%s of shape %s overflows with %lld samples", ls_node_label(node, label),
                       ls_shape_format(&node->shape, text), (long long)batch);
    return LS_OK;
}

static ls_status check_nodes(const run *r, ls_tensor *const *order, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ls_external data;
        if (is_held(order[i], (void *)r))
            continue;
        if (order[i]->op == LS_OP_input)
            LS_TRY(find_feed(r, order[i], &data));
        LS_TRY(check_node(order[i], r->batch));
    }
    return LS_OK;
}

/* Eager programs feed nothing: the batch size is that of held values. Values with a batch axis must
 * agree; whole values may come from different runs and count only if all agree. */
static ls_status find_held_batch(run *r, ls_tensor *const *order, size_t count)
{
    int64_t whole = NO_BATCH;
    bool agree = true;
    for (size_t i = 0; i < count; i++) {
        const ls_tensor *node = order[i];
        if (!is_held(node, r) || node->held.batch == NO_BATCH)
            continue;
        if (has_batch_axis(node))
            LS_TRY(learn_batch(r, node, node->held.batch));
        agree = agree && (whole == NO_BATCH || whole == node->held.batch);
        whole = node->held.batch;
    }
    if (r->batch == NO_BATCH && agree)
        r->batch = whole;
    return LS_OK;
}

/* Those that CPUs read or write. */
static ls_status bring_state(const run *r)
{
    const ls_plan *plan = ls_executor_plan(r->executor);
    const ls_placement *p = ls_executor_placement(r->executor);
    for (int i = 0; i < plan->node_count; i++) {
        const ls_tensor *node = plan->nodes[i].node;
        ls_variable *written[LS_MAX_WRITES];
        int group = plan->nodes[i].group;
        if (node->op == LS_OP_variable && (ls_is_read_on(p, i, p->home) || plan->nodes[i].fetched))
            LS_TRY(ls_variable_sync_to_host(node->attr.variable.variable));
        int count = group >= 0 && plan->groups[group].kind == LS_CPU ? ls_node_writes(node, written) : 0;
        for (int k = 0; k < count; k++)
            LS_TRY(ls_variable_sync_to_host(written[k]));
    }
    return LS_OK;
}

static ls_status set_external(run *r)
{
    const ls_plan *plan = ls_executor_plan(r->executor);
    ls_external *external = ls_executor_external(r->executor);
    for (int i = 0; i < plan->node_count; i++) {
        const ls_tensor *node = plan->nodes[i].node;
        if (plan->nodes[i].group >= 0 || plan->nodes[i].in)
            continue;
        if (is_held(node, r))
            external[i] = (ls_external){ .data = node->held.data };
        else if (node->op == LS_OP_constant)
            external[i] = (ls_external){ .data = node->attr.data.data.bytes };
        else if (node->op == LS_OP_variable)
            external[i] = (ls_external){ .data = node->attr.variable.variable->data };
        else
            LS_TRY(find_feed(r, node, &external[i]));
    }
    return LS_OK;
}

/* ---- End of a run ---- */

static void free_blocks(const run *r, ls_block **blocks)
{
    for (size_t i = 0; i < r->fetch_count; i++)
        ls_context_give(r->graph->context, r->fetches[i]->device, blocks[i]);
    free(blocks);
}

/* Before anything is written, so that a run fails completely or not at all. */
static ls_status take_blocks(const run *r, ls_block ***blocks)
{
    const ls_plan *plan = ls_executor_plan(r->executor);
    *blocks = calloc(r->fetch_count ? r->fetch_count : 1, sizeof(**blocks));
    if (!*blocks)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu fetched values", r->fetch_count);
    for (size_t i = 0; i < r->fetch_count; i++) {
        const ls_tensor *fetch = r->fetches[i];
        size_t bytes = ls_plan_unit(plan, fetch) * (fetch->per_sample ? (size_t)r->batch : 1);
        if (fetch->op == LS_OP_variable || is_held(fetch, (void *)r))
            continue;
        if (fetch->held.data && fetch->held.bytes == bytes)
            continue; /* Reuses the memory of the old value. */
        char label[LS_NODE_TEXT], what[LS_NODE_TEXT + 32];
        snprintf(what, sizeof(what), "%s (op %s)", ls_node_label(fetch, label), ls_tensor_op(fetch));
        ls_status status = ls_context_take(r->graph->context, fetch->device, bytes, what, &(*blocks)[i]);
        if (status != LS_OK) {
            free_blocks(r, *blocks);
            return status;
        }
    }
    return LS_OK;
}

/* Copies sample by sample if rows were fed. */
static void copy_input(run *r, ls_tensor *fetch)
{
    const ls_plan *plan = ls_executor_plan(r->executor);
    const ls_external *from = &ls_executor_external(r->executor)[fetch->position];
    size_t unit = ls_plan_unit(plan, fetch);
    int64_t count = fetch->per_sample ? r->batch : 1;
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)fetch->held.data + unit * (size_t)i,
               (const char *)from->data + unit * (size_t)(from->rows ? from->rows[i] : i), unit);
}

static void hold(run *r, ls_tensor *fetch, ls_block *block)
{
    const ls_plan *plan = ls_executor_plan(r->executor);
    size_t bytes = ls_plan_unit(plan, fetch) * (fetch->per_sample ? (size_t)r->batch : 1);
    const ls_plan_node *node = &plan->nodes[fetch->position];
    bool in_place = node->group >= 0 && plan->groups[node->group].in_place;
    if (block) {
        ls_context_give(r->graph->context, fetch->device, fetch->held.block);
        fetch->held.block = block;
        fetch->held.data = ls_context_data(r->graph->context, block);
    }
    if (bytes && fetch->op == LS_OP_input)
        copy_input(r, fetch);
    else if (bytes && in_place)
        memcpy(fetch->held.data, fetch->attr.apply.variable->data, bytes);
    else if (bytes)
        ls_executor_copy_value(r->executor, fetch->position, fetch->held.data);
    fetch->held.bytes = bytes;
    fetch->held.batch = r->batch;
    fetch->held.valid = true;
}

static bool writes_trainable(const run *r)
{
    const ls_plan *plan = ls_executor_plan(r->executor);
    for (int i = 0; i < plan->node_count; i++) {
        ls_variable *written[LS_MAX_WRITES];
        for (int k = ls_node_writes(plan->nodes[i].node, written); k-- > 0;)
            if (written[k]->trainable)
                return true;
    }
    return false;
}

/* Keys the random numbers of this run. */
static uint64_t counter_of(const run *r)
{
    return r->of_step || writes_trainable(r) ? r->graph->step : r->graph->run;
}

/* A part of a step counts nothing. */
static void count_run(const run *r)
{
    if (writes_trainable(r))
        r->graph->step++;
    else if (!r->of_step)
        r->graph->run++;
}

static void commit(run *r, ls_block **blocks)
{
    const ls_plan *plan = ls_executor_plan(r->executor);
    for (int i = 0; i < plan->node_count; i++)
        ((ls_tensor *)plan->nodes[i].node)->position = i;
    ls_executor_commit(r->executor);
    for (size_t i = 0; i < r->fetch_count; i++)
        if (r->fetches[i]->op != LS_OP_variable && !is_held(r->fetches[i], r))
            hold(r, r->fetches[i], blocks[i]);
    count_run(r);
}

/* Copies weights that only other devices have to host memory, where predictors read them. */
static ls_status publish_weights(const ls_graph *graph)
{
    for (size_t i = 0; graph->shared_weights && i < graph->variable_count; i++)
        if (graph->variables[i]->is_viewed)
            LS_TRY(ls_variable_sync_to_host(graph->variables[i]));
    return LS_OK;
}

static ls_status execute(run *r)
{
    ls_block **blocks;
    if (ls_context_has_others(r->graph->context))
        LS_TRY(bring_state(r));
    LS_TRY(set_external(r));
    LS_TRY(take_blocks(r, &blocks));
    if (r->audit)
        ls_executor_audit(r->executor);
    ls_status status = ls_executor_run(r->executor, r->graph->seed, counter_of(r));
    if (status != LS_OK) {
        free_blocks(r, blocks);
        return status;
    }
    commit(r, blocks);
    free(blocks);
    return publish_weights(r->graph);
}

static ls_status check_fetch(const ls_graph *graph, const ls_tensor *fetch, size_t number)
{
    char label[LS_NODE_TEXT];
    if (!fetch)
        return ls_fail(LS_ERR_INVALID, "fetch %zu is NULL", number);
    if (fetch->op == LS_OP_ERROR)
        return ls_fail(fetch->status, "%s", fetch->message);
    if (fetch->graph != graph)
        return ls_fail(LS_ERR_INVALID, "fetch %zu: %s belongs to another graph", number, ls_node_label(fetch, label));
    return LS_OK;
}

/* The nodes of an existing plan were checked before. */
static ls_status prepare(run *r)
{
    ls_runs *runs = NULL;
    ls_tensor **order = NULL;
    size_t count = 0;
    LS_TRY(ls_runs_of(r->graph, &runs));
    if (ls_runs_has(runs, r->settings, r->fetches, r->fetch_count, r->batch))
        return LS_OK;
    LS_TRY(ls_graph_order(r->graph, r->fetches, r->fetch_count, NULL, NULL, &order, &count));
    ls_status status = check_nodes(r, order, count);
    free(order);
    return status;
}

/* Workers that have not met yet do so now. */
static ls_status meet(const ls_graph *graph)
{
    ls_context *ctx = graph->context;
    return ctx->cluster && !ctx->peers && !graph->alone ? ls_library_hooks.meet_cluster(ctx) : LS_OK;
}

static ls_status begin(run *r)
{
    if (!r->graph)
        return ls_fail(LS_ERR_INVALID, "ls_eval: the graph is NULL");
    LS_TRY(ls_context_check(r->graph->context, "ls_eval"));
    LS_TRY(meet(r->graph));
    LS_TRY(ls_graph_fill(r->graph));
    if (r->feed_count > 0 && !r->feeds)
        return ls_fail(LS_ERR_INVALID, "ls_eval: feeds is NULL but feed_count is %zu", r->feed_count);
    if (r->fetch_count > 0 && !r->fetches)
        return ls_fail(LS_ERR_INVALID, "ls_eval: fetches is NULL but fetch_count is %zu", r->fetch_count);
    for (size_t i = 0; i < r->fetch_count; i++)
        LS_TRY(check_fetch(r->graph, r->fetches[i], i));
    for (size_t i = 0; i < r->feed_count; i++)
        LS_TRY(check_feed(r, &r->feeds[i], i));
    LS_TRY(prepare(r));
    return ls_runs_get(r->graph, r->settings, r->fetches, r->fetch_count, r->batch, &r->executor);
}

static bool is_again(const run *r)
{
    return r->graph && r->graph->context && ls_peers_again(r->graph->context->peers);
}

static ls_status eval(run *r)
{
    ls_status status;
    do {
        LS_TRY(begin(r));
        status = execute(r);
    } while (status != LS_OK && is_again(r));
    return status;
}

ls_status ls_eval(ls_graph *graph, const ls_feed *feeds, size_t feed_count, ls_tensor *const *fetches,
                  size_t fetch_count)
{
    LS_CLAIM(graph);
    LS_OWN_FP_MODE;
    run r = { .graph = graph, .batch = NO_BATCH, .feeds = feeds, .feed_count = feed_count };
    r.fetches = fetches;
    r.fetch_count = fetch_count;
    return eval(&r);
}

ls_status ls_eval_rows(ls_graph *graph, const ls_feed *feeds, size_t feed_count, const int64_t *rows, int64_t row_count,
                       ls_tensor *const *fetches, size_t fetch_count)
{
    LS_CLAIM(graph);
    LS_OWN_FP_MODE;
    if (!rows)
        return ls_fail(LS_ERR_INVALID, "ls_eval_rows: rows is NULL but row_count is %lld", (long long)row_count);
    if (row_count < 0)
        return ls_fail(LS_ERR_INVALID, "ls_eval_rows: row_count must not be negative (got %lld)", (long long)row_count);
    run r = { .graph = graph, .batch = NO_BATCH, .feeds = feeds, .feed_count = feed_count, .rows = rows };
    r.row_count = row_count;
    r.fetches = fetches;
    r.fetch_count = fetch_count;
    return eval(&r);
}

static bool fetches_input(const run *r)
{
    for (size_t i = 0; i < r->fetch_count; i++)
        if (r->fetches[i]->op == LS_OP_input)
            return true;
    return false;
}

/* Those of this process's lanes; all in an audited run, where the lane may be another worker's. */
static ls_status make_samples(const ls_run_request *q, const run *r)
{
    const ls_plan *plan = ls_executor_plan(r->executor);
    ls_peers *peers = r->graph->context->peers;
    int64_t first = 0, end = r->batch;
    if (!q->make || r->batch <= 0)
        return LS_OK;
    if (plan->options.workers > 1 && !q->audit && !fetches_input(r)) {
        int lane = ls_plan_worker_first(plan, plan->options.worker);
        first = ls_lane_first(plan->batch, plan->lanes, lane);
        end = ls_lane_first(plan->batch, plan->lanes, ls_plan_worker_first(plan, plan->options.worker + 1));
    }
    ls_status status = first < end ? q->make(q->make_user, first, end) : LS_OK;
    if (status != LS_OK && plan->options.workers > 0 && peers)
        peers->give_up(peers); /* The others need not wait because of a local failure. */
    return status;
}

/* Makes one attempt. */
static ls_status run_once(const ls_run_request *q, run *r, ls_run_report *report)
{
    double start = ls_clock_now();
    LS_TRY(begin(r));
    LS_TRY(make_samples(q, r));
    if (ls_timeline_run(q->timeline, r->executor))
        ls_timeline_call(q->timeline, LS_CALL_PLAN, start, ls_clock_now());
    if (q->profile)
        LS_TRY(ls_executor_profile(r->executor));
    double before = ls_executor_join_seconds(r->executor);
    ls_status status = execute(r);
    ls_timeline_run(NULL, r->executor);
    if (q->seconds)
        ls_executor_add_seconds(r->executor, q->seconds);
    if (q->profile && status == LS_OK)
        LS_TRY(ls_profile_add(q->profile, r->executor));
    if (status == LS_OK && report)
        *report = (ls_run_report){ .lanes = ls_executor_plan(r->executor)->lanes,
                                   .join_seconds = ls_executor_join_seconds(r->executor) - before,
                                   .moved_bytes = ls_executor_placement(r->executor)->moved_bytes };
    return status;
}

ls_status ls_run(const ls_run_request *q, ls_run_report *report)
{
    run r = { .graph = q->graph, .settings = q->settings, .of_step = q->of_step, .audit = q->audit, .batch = NO_BATCH };
    r.feeds = q->feeds;
    r.feed_count = q->feed_count;
    r.rows = q->rows;
    r.row_count = q->row_count;
    r.fetches = q->fetches;
    r.fetch_count = q->fetch_count;
    ls_status status;
    do
        status = run_once(q, &r, report);
    while (status != LS_OK && is_again(&r));
    return status;
}

ls_status ls_run_placement(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches, size_t count,
                           int64_t batch, const ls_placement **out)
{
    ls_tensor **order = NULL;
    size_t nodes = 0;
    ls_executor *executor = NULL;
    LS_TRY(ls_graph_fill(graph));
    LS_TRY(ls_graph_order(graph, fetches, count, NULL, NULL, &order, &nodes));
    ls_status status = LS_OK;
    for (size_t i = 0; i < nodes && status == LS_OK; i++)
        status = check_node(order[i], batch);
    free(order);
    if (status == LS_OK)
        status = ls_runs_get(graph, settings, fetches, count, batch, &executor);
    if (status == LS_OK)
        *out = ls_executor_placement(executor);
    return status;
}

/* All computed nodes, so that values read together come from the same run. */
static size_t keep_computed(const run *r, ls_tensor **order, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!ls_plan_is_leaf(order[i]) && !is_held(order[i], (void *)r))
            order[kept++] = order[i];
    return kept;
}

static ls_status run_eagerly(run *r, ls_tensor *tensor)
{
    ls_tensor **order = NULL;
    size_t count = 0;
    LS_TRY(ls_graph_order(r->graph, &tensor, 1, is_held, r, &order, &count));
    ls_status status = find_held_batch(r, order, count);
    if (status == LS_OK)
        status = check_nodes(r, order, count);
    if (status == LS_OK) {
        r->fetches = order;
        r->fetch_count = ls_plan_is_leaf(tensor) ? 0 : keep_computed(r, order, count);
        if (r->fetch_count == 0) { /* A constant: its own value. */
            r->fetches = &tensor;
            r->fetch_count = 1;
        }
        status = ls_compile_run(r->graph, NULL, r->fetches, r->fetch_count, r->batch, is_held, r, &r->executor);
    }
    if (status == LS_OK)
        status = execute(r);
    ls_executor_destroy(r->executor);
    free(order);
    return status;
}

ls_status ls_run_eagerly(ls_tensor *tensor)
{
    if (tensor->held.valid)
        return LS_OK;
    LS_TRY(ls_context_check(tensor->graph->context, "reading a tensor"));
    LS_TRY(meet(tensor->graph));
    LS_TRY(ls_graph_fill(tensor->graph));
    run r;
    ls_status status;
    do {
        r = (run){ .graph = tensor->graph, .batch = NO_BATCH, .eager = true };
        status = run_eagerly(&r, tensor);
    } while (status != LS_OK && is_again(&r));
    return status;
}

/* ---- Settings and explanations ---- */

ls_status ls_graph_set_lanes(ls_graph *graph, int lanes)
{
    LS_CLAIM(graph);
    ls_runs *runs = NULL;
    if (!graph)
        return ls_fail(LS_ERR_INVALID, "ls_graph_set_lanes: the graph is NULL");
    if (lanes < 0 || lanes > LS_MAX_LANES)
        return ls_fail(LS_ERR_INVALID, "ls_graph_set_lanes: lanes must be 0 to %d (got %d)", LS_MAX_LANES, lanes);
    LS_TRY(ls_context_check(graph->context, "ls_graph_set_lanes"));
    LS_TRY(ls_runs_of(graph, &runs));
    ls_runs_clear(runs);
    runs->settings.plan.lanes = lanes;
    return LS_OK;
}

static ls_status check_explain(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count, int64_t batch,
                               char **out)
{
    if (!graph || !out || (fetch_count > 0 && !fetches))
        return ls_fail(LS_ERR_INVALID, "ls_explain: the graph, the fetches or the output pointer is NULL");
    LS_TRY(ls_context_check(graph->context, "ls_explain"));
    LS_TRY(ls_graph_fill(graph));
    if (batch < NO_BATCH)
        return ls_fail(LS_ERR_INVALID, "ls_explain: batch must be at least -1 (no batch axis), got %lld",
                       (long long)batch);
    for (size_t i = 0; i < fetch_count; i++)
        LS_TRY(check_fetch(graph, fetches[i], i));
    return LS_OK;
}

static ls_status explain_with(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count, int64_t batch,
                              ls_status (*print)(ls_executor *, ls_text *), char **out)
{
    ls_executor *executor = NULL;
    ls_text text = { 0 };
    LS_TRY(check_explain(graph, fetches, fetch_count, batch, out));
    LS_TRY(ls_compile_run(graph, NULL, fetches, fetch_count, batch, NULL, NULL, &executor));
    ls_status status = print(executor, &text);
    ls_executor_destroy(executor);
    if (status == LS_OK)
        return ls_text_take(&text, out);
    ls_text_free(&text);
    return status;
}

static ls_status print_plan(ls_executor *executor, ls_text *text)
{
    LS_TRY(ls_plan_print(ls_executor_plan(executor), text));
    return ls_plan_print_memory(ls_executor_plan(executor), text);
}

static ls_status print_placement(ls_executor *executor, ls_text *text)
{
    return ls_placement_print(ls_executor_placement(executor), text);
}

/* A map that cuts nothing: everything of a kind is on its first device. */
static int uncut(const ls_task_map *map, const ls_task_map_point *at)
{
    const ls_context *ctx = map->user;
    int device = 0;
    while (at->kind != LS_ANY_KIND && ctx->devices[device].kind != at->kind)
        device++;
    return at->lane < 0 ? LS_ANY_DEVICE : device;
}

/* Before any map is applied, so independent of the devices. */
ls_status ls_explain(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count, int64_t batch, char **out)
{
    LS_CLAIM(graph);
    LS_OWN_FP_MODE;
    ls_runs *runs = NULL;
    LS_TRY(check_explain(graph, fetches, fetch_count, batch, out));
    LS_TRY(ls_runs_of(graph, &runs));
    ls_task_map map = runs->settings.plan.map;
    runs->settings.plan.map.device = uncut;
    runs->settings.plan.map.user = graph->context;
    ls_status status = explain_with(graph, fetches, fetch_count, batch, print_plan, out);
    runs->settings.plan.map = map;
    return status;
}

ls_status ls_explain_placement(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count, int64_t batch,
                               char **out)
{
    LS_CLAIM(graph);
    LS_OWN_FP_MODE;
    return explain_with(graph, fetches, fetch_count, batch, print_placement, out);
}

ls_status ls_run_explain_memory(ls_graph *graph, const ls_run_settings *settings, ls_tensor *const *fetches,
                                size_t count, int64_t batch, bool *fits, char **out)
{
    ls_text text = { 0 };
    bool all;
    LS_TRY(check_explain(graph, fetches, count, batch, out));
    ls_status status = ls_memory_check_print(graph, settings, fetches, count, batch, fits ? fits : &all, &text);
    if (status == LS_OK)
        return ls_text_take(&text, out);
    ls_text_free(&text);
    return status;
}

ls_status ls_explain_memory(ls_graph *graph, ls_tensor *const *fetches, size_t fetch_count, int64_t batch, bool *fits,
                            char **out)
{
    LS_CLAIM(graph);
    LS_OWN_FP_MODE;
    return ls_run_explain_memory(graph, NULL, fetches, fetch_count, batch, fits, out);
}
