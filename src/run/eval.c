/* Running a graph on the reference device: feeds are checked, nodes computed each after its inputs, values kept for the
 * fetched ones, and writes committed together at the end. One slice holds the whole batch. */
#include <stdlib.h>
#include <string.h>

#include "backend/ref/ref.h"
#include "base/size.h"
#include "device/context.h"
#include "lockstep/run.h"
#include "run/run.h"

#define NO_BATCH (-1)

/* Where a node's value is during a run. */
typedef struct place {
    void *data;
    size_t bytes;
    int uses; /* still to come; the buffer goes back at 0 */
    bool owned;
} place;

/* A variable's next value, until the run has succeeded. */
typedef struct shadow {
    ls_variable *variable;
    void *data;
    const ls_tensor *writer;
} shadow;

typedef struct run {
    ls_graph *graph;
    bool eager;
    int64_t batch; /* NO_BATCH: not known (yet) */
    const ls_tensor *batch_from;
    ls_tensor **order;
    size_t count;
    place *places;
    shadow *shadows;
    size_t shadow_count, shadow_room;
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
        return ls_fail(LS_ERR_INVALID, "feed %zu: %s is no input and cannot be fed", number, ls_node_label(input, label));
    if (feed->value.dtype != input->dtype)
        return ls_fail(LS_ERR_DTYPE, "feed %zu: %s is %s, the value is %s", number, ls_node_label(input, label),
                       ls_dtype_name(input->dtype), ls_dtype_name(feed->value.dtype));
    const ls_shape *shape = &feed->value.shape;
    bool fits = shape->rank == input->shape.rank;
    for (int i = 0; fits && i < shape->rank; i++)
        fits = shape->dims[i] >= 0 && (shape->dims[i] == input->shape.dims[i] || input->shape.dims[i] == LS_BATCH);
    if (!fits)
        return ls_fail(LS_ERR_SHAPE, "feed %zu: %s has shape %s, the value %s", number, ls_node_label(input, label),
                       ls_shape_format(&input->shape, wanted), ls_shape_format(shape, given));
    int64_t count;
    if (!ls_shape_count(shape, 0, &count))
        return ls_fail(LS_ERR_OVERFLOW, "feed %zu: shape %s overflows", number, ls_shape_format(shape, given));
    if (!feed->value.data && count > 0)
        return ls_fail(LS_ERR_INVALID, "feed %zu: %s is fed with no data", number, ls_node_label(input, label));
    return input->per_sample ? learn_batch(r, input, shape->dims[0]) : LS_OK;
}

/* Which data an input was fed with; the first of two feeds of one input would be lost, so two are refused. */
static ls_status take_feeds(run *r, const ls_feed *feeds, size_t count)
{
    char label[LS_NODE_TEXT];
    for (size_t i = 0; i < count; i++) {
        ls_tensor *input = feeds[i].input;
        if (input->mark != r->graph->mark)
            continue; /* fed, but not needed by this run */
        place *p = &r->places[input->place];
        if (p->data)
            return ls_fail(LS_ERR_INVALID, "%s is fed twice", ls_node_label(input, label));
        static char nothing; /* an address for data of no bytes */
        p->data = feeds[i].value.data ? feeds[i].value.data : &nothing;
    }
    return LS_OK;
}

/* ---- Setting up ---- */

/* An eager run takes held values as they are. */
static bool is_held(const ls_tensor *node, void *user)
{
    const run *r = user;
    return r->eager && node->held.valid;
}

static bool has_batch_axis(const ls_tensor *node)
{
    for (int i = 0; i < node->shape.rank; i++)
        if (node->shape.dims[i] == LS_BATCH)
            return true;
    return false;
}

static ls_status node_bytes(const run *r, const ls_tensor *node, size_t *bytes)
{
    char label[LS_NODE_TEXT], text[LS_SHAPE_TEXT];
    int64_t count;
    if (has_batch_axis(node) && r->batch == NO_BATCH)
        return ls_fail(LS_ERR_SHAPE, "%s has a batch axis, but no input with one was fed: the batch size is not known",
                       ls_node_label(node, label));
    if (!ls_shape_count(&node->shape, r->batch, &count) ||
        !ls_size_mul((size_t)count, ls_dtype_bytes(node->dtype), bytes) || *bytes > PTRDIFF_MAX - 64)
        return ls_fail(LS_ERR_OVERFLOW, "%s of shape %s overflows with %lld samples", ls_node_label(node, label),
                       ls_shape_format(&node->shape, text), (long long)r->batch);
    return LS_OK;
}

/* Gives every node of the order a place; leaves find their data. */
static ls_status lay_out(run *r)
{
    char label[LS_NODE_TEXT];
    for (size_t i = 0; i < r->count; i++) {
        const ls_tensor *node = r->order[i];
        place *p = &r->places[i];
        if (node->op == LS_OP_input && !p->data && !is_held(node, r))
            return ls_fail(LS_ERR_INVALID, "%s is needed but was not fed", ls_node_label(node, label));
        LS_TRY(node_bytes(r, node, &p->bytes));
        if (is_held(node, r)) {
            p->data = node->held.data;
            continue;
        }
        for (int k = 0; k < node->input_count; k++)
            r->places[node->in[k]->place].uses++;
        if (node->op == LS_OP_constant)
            p->data = (void *)node->attr.data.data.bytes; /* only read */
        else if (node->op == LS_OP_variable)
            p->data = node->attr.variable.variable->data;
        else if (node->op == LS_OP_count && r->batch == NO_BATCH)
            return ls_fail(LS_ERR_STATE, "%s counts samples, but no input with a batch axis was fed",
                           ls_node_label(node, label));
    }
    return LS_OK;
}

/* Learns the batch from held values, too: an eager program feeds nothing. Those with a batch axis must agree. Of whole ones
 * (two losses, say) each may come from a run of its own; only where all agree, their batch is the one to count. */
static ls_status find_held_batch(run *r)
{
    int64_t whole = NO_BATCH;
    bool agree = true;
    for (size_t i = 0; i < r->count; i++) {
        const ls_tensor *node = r->order[i];
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

static ls_status prepare(run *r, const ls_feed *feeds, size_t feed_count, ls_tensor *const *fetches, size_t fetch_count)
{
    for (size_t i = 0; i < feed_count; i++)
        LS_TRY(check_feed(r, &feeds[i], i));
    LS_TRY(ls_graph_order(r->graph, fetches, fetch_count, is_held, r, &r->order, &r->count));
    for (size_t i = 0; i < r->count; i++)
        r->order[i]->place = (int32_t)i;
    r->places = calloc(r->count ? r->count : 1, sizeof(*r->places));
    if (!r->places)
        return ls_fail(LS_ERR_MEMORY, "no memory for a run of %zu nodes", r->count);
    LS_TRY(take_feeds(r, feeds, feed_count));
    LS_TRY(find_held_batch(r));
    LS_TRY(lay_out(r));
    for (size_t i = 0; i < fetch_count; i++)
        r->places[fetches[i]->place].uses++;
    return LS_OK;
}

/* ---- Computing ---- */

static void *allocate(size_t bytes)
{
    return aligned_alloc(64, ls_size_align(bytes ? bytes : 1, 64));
}

static ls_status no_memory(const ls_tensor *node, size_t bytes)
{
    char label[LS_NODE_TEXT];
    return ls_fail(LS_ERR_MEMORY, "no memory for the %zu bytes of %s (op %s)", bytes, ls_node_label(node, label),
                   ls_tensor_op(node));
}

/* A buffer for the new value of each variable the node writes. The value of the node itself is a copy of the first. */
static ls_status add_shadows(run *r, const ls_tensor *node, void *slots[2])
{
    ls_variable *written[LS_MAX_WRITES];
    int writes = ls_node_writes(node, written);
    char a[LS_NODE_TEXT], b[LS_NODE_TEXT], c[LS_NODE_TEXT];
    for (int i = 0; i < writes; i++) {
        for (size_t k = 0; k < r->shadow_count && written[i]->mark == r->graph->mark; k++)
            if (r->shadows[k].variable == written[i])
                return ls_fail(LS_ERR_INVALID, "%s is written twice in one run, by %s and by %s",
                               ls_node_label(written[i]->node, a), ls_node_label(r->shadows[k].writer, b),
                               ls_node_label(node, c));
        if (r->shadow_count == r->shadow_room) {
            size_t room = r->shadow_room ? r->shadow_room * 2 : 16;
            shadow *grown = realloc(r->shadows, room * sizeof(*grown));
            if (!grown)
                return no_memory(node, room * sizeof(*grown));
            r->shadows = grown;
            r->shadow_room = room;
        }
        void *data = allocate(written[i]->bytes);
        if (!data)
            return no_memory(node, written[i]->bytes);
        r->shadows[r->shadow_count++] = (shadow){ written[i], data, node };
        written[i]->mark = r->graph->mark;
        if (i > 0)
            slots[i - 1] = data;
    }
    return LS_OK;
}

static ls_ref_array array_at(const run *r, const ls_tensor *node)
{
    return (ls_ref_array){ r->places[node->place].data, node->dtype, ls_shape_at(&node->shape, r->batch) };
}

/* Releases what this node was the last to use. */
static void release_inputs(run *r, const ls_tensor *node)
{
    for (int k = 0; k < node->input_count; k++) {
        place *p = &r->places[node->in[k]->place];
        if (--p->uses == 0 && p->owned) {
            free(p->data);
            p->data = NULL;
            p->owned = false;
        }
    }
}

static ls_status compute(run *r, const ls_tensor *node)
{
    place *p = &r->places[node->place];
    if (p->data)
        return LS_OK; /* a leaf, or held */
    size_t first_shadow = r->shadow_count;
    ls_ref_array few[8], *in = few;
    ls_ref_call call = { .node = node,
                         .batch = r->batch == NO_BATCH ? 1 : r->batch,
                         .seed = r->graph->seed,
                         .run = r->graph->run };
    LS_TRY(add_shadows(r, node, call.slots));
    p->data = allocate(p->bytes);
    if (!p->data)
        return no_memory(node, p->bytes);
    p->owned = true;
    if (node->input_count > 8 && !(in = malloc((size_t)node->input_count * sizeof(*in))))
        return no_memory(node, (size_t)node->input_count * sizeof(*in));
    for (int k = 0; k < node->input_count; k++)
        in[k] = array_at(r, node->in[k]);
    call.in = in;
    call.out = array_at(r, node);
    ls_status status = ls_ref_run(&call);
    if (in != few)
        free(in);
    if (status != LS_OK) {
        char label[LS_NODE_TEXT], message[512];
        snprintf(message, sizeof(message), "%s", ls_last_error());
        return ls_fail(status, "%s (op %s): %s", ls_node_label(node, label), ls_tensor_op(node), message);
    }
    if (r->shadow_count > first_shadow && p->bytes)
        memcpy(r->shadows[first_shadow].data, p->data, p->bytes);
    release_inputs(r, node);
    return LS_OK;
}

/* ---- Ending ---- */

static void hold(run *r, ls_tensor *node)
{
    place *p = &r->places[node->place];
    free(node->held.data);
    node->held = (ls_held){ .data = p->data, .bytes = p->bytes, .batch = r->batch, .valid = true };
    p->owned = false;
}

/* A constant or input is fetched: its value is copied, since it belongs to another. A variable holds nothing. */
static ls_status own_fetches(run *r, ls_tensor *const *fetches, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        place *p = &r->places[fetches[i]->place];
        if (p->owned || is_held(fetches[i], r) || fetches[i]->op == LS_OP_variable)
            continue;
        void *copy = allocate(p->bytes);
        if (!copy)
            return no_memory(fetches[i], p->bytes);
        if (p->bytes)
            memcpy(copy, p->data, p->bytes);
        p->data = copy;
        p->owned = true;
    }
    return LS_OK;
}

static void commit(run *r, ls_tensor *const *fetches, size_t count)
{
    for (size_t i = 0; i < r->shadow_count; i++) {
        void *old = r->shadows[i].variable->data;
        r->shadows[i].variable->data = r->shadows[i].data;
        r->shadows[i].data = old;
    }
    for (size_t i = 0; i < count; i++)
        if (r->places[fetches[i]->place].owned)
            hold(r, fetches[i]);
    for (size_t i = 0; r->eager && i < r->count; i++)
        if (r->places[i].owned)
            hold(r, r->order[i]);
    r->graph->run++;
}

static void clean_up(run *r)
{
    for (size_t i = 0; r->places && i < r->count; i++)
        if (r->places[i].owned)
            free(r->places[i].data);
    for (size_t i = 0; i < r->shadow_count; i++)
        free(r->shadows[i].data);
    free(r->shadows);
    free(r->places);
    free(r->order);
}

/* Eager runs keep every value they compute, so that all that was read together stays together. */
static ls_status run_graph(run *r, const ls_feed *feeds, size_t feed_count, ls_tensor *const *fetches, size_t fetch_count)
{
    ls_status status = prepare(r, feeds, feed_count, fetches, fetch_count);
    for (size_t i = 0; i < r->count && status == LS_OK && r->eager; i++)
        r->places[i].uses++;
    for (size_t i = 0; i < r->count && status == LS_OK; i++)
        status = compute(r, r->order[i]);
    if (status == LS_OK)
        status = own_fetches(r, fetches, fetch_count);
    if (status == LS_OK)
        commit(r, fetches, fetch_count);
    clean_up(r);
    return status;
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

ls_status ls_eval(ls_graph *graph, const ls_feed *feeds, size_t feed_count, ls_tensor *const *fetches, size_t fetch_count)
{
    if (!graph)
        return ls_fail(LS_ERR_INVALID, "ls_eval: the graph is NULL");
    if ((feed_count > 0 && !feeds) || (fetch_count > 0 && !fetches))
        return ls_fail(LS_ERR_INVALID, "ls_eval: %zu feeds and %zu fetches were announced, but not given", feed_count,
                       fetch_count);
    for (size_t i = 0; i < fetch_count; i++)
        LS_TRY(check_fetch(graph, fetches[i], i));
    run r = { .graph = graph, .batch = NO_BATCH };
    return run_graph(&r, feeds, feed_count, fetches, fetch_count);
}

ls_status ls_run_eagerly(ls_tensor *tensor)
{
    if (tensor->held.valid)
        return LS_OK;
    run r = { .graph = tensor->graph, .batch = NO_BATCH, .eager = true };
    return run_graph(&r, NULL, 0, &tensor, 1);
}
