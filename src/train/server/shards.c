/* Splits the state of a job into shards, computes pushes, and copies shards into and out of the
 * model. */
#include "train/server/shards_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/shared_weights.h"
#include "nn/model.h"
#include "train/job/job.h"
#include "train/job/results.h"
#include "train/job/step.h"
#include "train/server/record.h"
#include "train/server/shards.h"

/* ---- Entries ---- */

static ls_state_shards_entry *add_entry(ls_state_shards *p, ls_tensor *node, ls_state_shards_kind kind)
{
    ls_state_shards_entry *e = &p->entries[p->entry_count++];
    ls_variable *v = node->attr.variable.variable;
    size_t element = ls_dtype_bytes(node->dtype);
    *e = (ls_state_shards_entry){
        .variable = v, .kind = kind, .element = element, .count = (int64_t)(v->bytes / element)
    };
    return e;
}

/* The optimizer's state has the slots of each variable together, and the counters last. */
static void add_trained(ls_state_shards *p)
{
    const ls_step_nodes *s = &p->function->step;
    const ls_optimizer_state *state = &p->job->state;
    p->counters = state->position ? 3 : 1;
    p->slots = (state->count - p->counters) / s->count;
    for (size_t i = 0; i < s->count; i++) {
        ls_state_shards_entry *e = add_entry(p, s->variables[i], s->gradients[i] ? LS_SHARD_TRAINED : LS_SHARD_FIXED);
        e->slot = state->all + i * p->slots;
        e->gradient = s->gradients[i];
    }
    p->trained = p->entry_count;
}

static void add_others(ls_state_shards *p)
{
    const ls_step_nodes *s = &p->function->step;
    ls_model *model = p->job->model;
    for (size_t i = 0; i < ls_model_variable_count(model); i++) {
        if (ls_model_variable_is_trainable(model, i))
            continue;
        ls_state_shards_entry *e = add_entry(p, ls_model_variable(model, i), LS_SHARD_FIXED);
        for (size_t u = 0; u < s->update_count; u++)
            if (s->updates[u]->attr.variable.variable == e->variable) {
                e->kind = LS_SHARD_AVERAGED;
                e->gradient = s->updates[u]->in[0]; /* the assigned value */
            }
    }
}

static ls_status check_updates(const ls_state_shards *p)
{
    const ls_step_nodes *s = &p->function->step;
    if (s->count == 0)
        return ls_fail(LS_ERR_INVALID, "parameter servers: the model has nothing to train");
    for (size_t u = 0; u < s->update_count; u++)
        if (s->updates[u]->op != LS_OP_assign)
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "parameter servers: each step changes a variable by %s; only assigned values can be pushed",
                           ls_ops[s->updates[u]->op].name);
    return LS_OK;
}

/* ---- Splitting ---- */

/* Returns the elements of an entry before the cut at share / servers of the total cost. */
static int64_t cut_at(const ls_state_shards_entry *e, uint64_t before, uint64_t cost, uint64_t all, int share,
                      int servers)
{
    uint64_t n = (uint64_t)servers, target = all / n * (uint64_t)share + all % n * (uint64_t)share / n;
    if (share == servers || target >= before + cost * (uint64_t)e->count)
        return e->count;
    return target <= before ? 0 : (int64_t)((target - before) / cost);
}

static uint64_t cost_of(const ls_state_shards *p, const ls_state_shards_entry *e)
{
    return e->element * (1 + (e->slot ? p->slots : 0));
}

/* Gives a server its share of the entries [from, to), balanced by bytes. */
static void cut_range(ls_state_shards *p, int server, size_t from, size_t to)
{
    uint64_t all = 0, before = 0;
    for (size_t i = from; i < to; i++)
        all += cost_of(p, &p->entries[i]) * (uint64_t)p->entries[i].count;
    for (size_t i = from; i < to; i++) {
        const ls_state_shards_entry *e = &p->entries[i];
        uint64_t cost = cost_of(p, e);
        int64_t first = cut_at(e, before, cost, all, server, p->servers);
        int64_t last = cut_at(e, before, cost, all, server + 1, p->servers);
        if (last > first)
            p->pieces[p->first[server + 1]++] =
                (ls_state_shards_piece){ .entry = i, .first = first, .count = last - first };
        before += cost * (uint64_t)e->count;
    }
}

static size_t round_up(size_t bytes)
{
    return (bytes + LS_SHARD_ALIGN - 1) / LS_SHARD_ALIGN * LS_SHARD_ALIGN;
}

/* Offsets are aligned, because kernels read in place. */
static void lay_out(ls_state_shards *p, int server)
{
    size_t weights = 0, push = 0, state;
    for (size_t i = p->first[server]; i < p->first[server + 1]; i++) {
        ls_state_shards_piece *piece = &p->pieces[i];
        const ls_state_shards_entry *e = &p->entries[piece->entry];
        size_t bytes = round_up((size_t)piece->count * e->element);
        piece->weights = weights;
        piece->push = push;
        weights += bytes;
        push += e->kind == LS_SHARD_TRAINED ? bytes : e->kind == LS_SHARD_AVERAGED ? 2 * bytes : 0;
    }
    state = weights;
    for (size_t i = p->first[server]; i < p->first[server + 1]; i++) {
        ls_state_shards_piece *piece = &p->pieces[i];
        const ls_state_shards_entry *e = &p->entries[piece->entry];
        piece->state = state;
        state += e->slot ? p->slots * round_up((size_t)piece->count * e->element) : 0;
    }
    p->weight_bytes[server] = weights;
    p->push_bytes[server] = push;
    p->state_bytes[server] = state + p->counters * LS_SHARD_ALIGN;
}

static ls_status cut(ls_state_shards *p)
{
    for (int s = 0; s < p->servers; s++) {
        bool trains = false;
        p->first[s + 1] = p->first[s];
        cut_range(p, s, 0, p->trained);
        cut_range(p, s, p->trained, p->entry_count);
        lay_out(p, s);
        for (size_t i = p->first[s]; i < p->first[s + 1]; i++)
            trains |= p->entries[p->pieces[i].entry].kind == LS_SHARD_TRAINED;
        if (!trains)
            return ls_fail(LS_ERR_INVALID,
                           "parameter servers: %d are too many for this model: server %d would have "
                           "nothing to train",
                           p->servers, s);
    }
    return LS_OK;
}

/* ---- Fetches of a worker ---- */

static ls_status choose_fetches(ls_state_shards *p)
{
    ls_function *f = p->function;
    ls_tensor **gradients = calloc(p->trained + 1, sizeof(*gradients));
    if (!gradients)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu gradients", p->trained);
    for (size_t i = 0; i < p->trained; i++)
        gradients[i] = p->entries[i].gradient;
    ls_status status = ls_optimizer_clip(&p->job->optimizer, gradients, p->trained);
    for (size_t i = 0; i < f->fetch_count - 1; i++) /* the last is the step */
        p->fetches[p->fetch_count++] = f->fetches[i];
    for (size_t i = 0; i < p->entry_count && status == LS_OK; i++) {
        ls_state_shards_entry *e = &p->entries[i];
        if (i < p->trained)
            e->gradient = gradients[i];
        if (e->gradient && ls_tensor_is_error(e->gradient))
            status = ls_fail(e->gradient->status, "%s", e->gradient->message);
        if (e->gradient)
            p->fetches[p->fetch_count++] = e->gradient;
    }
    free(gradients);
    return status;
}

static ls_status make(ls_state_shards *p)
{
    size_t variables = ls_model_variable_count(p->job->model);
    LS_TRY(check_updates(p));
    p->entries = calloc(variables + 1, sizeof(*p->entries));
    p->pieces = calloc(2 * (variables + 1) + 4 * (size_t)p->servers, sizeof(*p->pieces));
    p->fetches = calloc(variables + p->function->fetch_count + 1, sizeof(ls_tensor *));
    if (!p->entries || !p->pieces || !p->fetches)
        return ls_fail(LS_ERR_MEMORY, "no memory for the shards of %zu variables", variables);
    add_trained(p);
    add_others(p);
    LS_TRY(cut(p));
    return choose_fetches(p);
}

ls_status ls_state_shards_make(ls_job *job, ls_function *function, int servers, ls_state_shards **out)
{
    if (servers < 1 || servers > LS_MAX_SERVERS)
        return ls_fail(LS_ERR_INVALID, "%d parameter servers: there must be 1 to %d", servers, LS_MAX_SERVERS);
    if (ls_model_graph(job->model)->scope != job->scope_entry)
        return ls_fail(LS_ERR_STATE, "a scope is open in the graph of model \"%s\": close it first",
                       ls_model_name(job->model));
    ls_state_shards *p = calloc(1, sizeof(*p));
    if (!p)
        return ls_fail(LS_ERR_MEMORY, "no memory for %d shards", servers);
    p->job = job;
    p->function = function;
    p->servers = servers;
    ls_status status = make(p);
    if (status != LS_OK)
        ls_state_shards_free(p);
    else
        *out = p;
    return status;
}

void ls_state_shards_free(ls_state_shards *p)
{
    if (!p)
        return;
    free(p->entries);
    free(p->pieces);
    free(p->fetches);
    free(p);
}

int ls_state_shards_count(const ls_state_shards *p)
{
    return p->servers;
}

size_t ls_state_shards_weight_bytes(const ls_state_shards *p, int server)
{
    return p->weight_bytes[server];
}

size_t ls_state_shards_state_bytes(const ls_state_shards *p, int server)
{
    return p->state_bytes[server];
}

size_t ls_state_shards_push_bytes(const ls_state_shards *p, int server)
{
    return p->push_bytes[server];
}

/* ---- Copying between model and shards ---- */

static ls_status move_piece(ls_variable *v, const ls_state_shards_entry *e, const ls_state_shards_piece *piece,
                            char *bytes, bool put)
{
    size_t from = (size_t)piece->first * e->element, count = (size_t)piece->count * e->element;
    LS_TRY(ls_variable_sync_to_host(v));
    if (!put) {
        memcpy(bytes, (const char *)v->data + from, count);
        return LS_OK;
    }
    LS_TRY(ls_writes_begin(v->node->graph, &v, 1));
    memcpy((char *)v->data + from, bytes, count);
    ls_variable_written(v, true);
    ls_writes_end(v->node->graph);
    return LS_OK;
}

static ls_status move_weights(const ls_state_shards *p, int server, char *bytes, bool put)
{
    for (size_t i = p->first[server]; i < p->first[server + 1]; i++) {
        const ls_state_shards_piece *piece = &p->pieces[i];
        const ls_state_shards_entry *e = &p->entries[piece->entry];
        LS_TRY(move_piece(e->variable, e, piece, bytes + piece->weights, put));
    }
    return LS_OK;
}

static ls_status move_slots(const ls_state_shards *p, int server, char *bytes, bool put)
{
    for (size_t i = p->first[server]; i < p->first[server + 1]; i++) {
        const ls_state_shards_piece *piece = &p->pieces[i];
        const ls_state_shards_entry *e = &p->entries[piece->entry];
        size_t step = round_up((size_t)piece->count * e->element);
        for (size_t k = 0; e->slot && k < p->slots; k++)
            LS_TRY(move_piece(e->slot[k]->attr.variable.variable, e, piece, bytes + piece->state + k * step, put));
    }
    char *at = bytes + p->state_bytes[server] - p->counters * LS_SHARD_ALIGN;
    const ls_optimizer_state *state = &p->job->state;
    const ls_state_shards_entry counter = { .element = sizeof(int64_t) };
    const ls_state_shards_piece one = { .count = 1 };
    for (size_t k = 0; k < p->counters; k++)
        LS_TRY(move_piece(state->all[state->count - p->counters + k]->attr.variable.variable, &counter, &one,
                          at + k * LS_SHARD_ALIGN, put));
    return LS_OK;
}

ls_status ls_state_shards_put_weights(const ls_state_shards *p, int server, const void *bytes)
{
    ls_graph *graph = ls_model_graph(p->job->model);
    LS_TRY(ls_writes_begin(graph, NULL, 0)); /* one write for views, not one for each variable */
    ls_status status = move_weights(p, server, (char *)bytes, true);
    ls_writes_end(graph);
    return status;
}

ls_status ls_state_shards_put_state(const ls_state_shards *p, int server, const void *bytes)
{
    LS_TRY(move_weights(p, server, (char *)bytes, true));
    return move_slots(p, server, (char *)bytes, true);
}

ls_status ls_state_shards_get_state(const ls_state_shards *p, int server, void *bytes)
{
    memset(bytes, 0, p->state_bytes[server]);
    LS_TRY(move_weights(p, server, bytes, false));
    return move_slots(p, server, bytes, false);
}

/* ---- Pushes ---- */

static bool is_finite(const void *data, ls_dtype dtype, int64_t count)
{
    bool finite = true;
    for (int64_t i = 0; i < count && dtype == LS_F32; i++)
        finite &= isfinite(((const float *)data)[i]) != 0;
    for (int64_t i = 0; i < count && dtype == LS_F64; i++)
        finite &= isfinite(((const double *)data)[i]) != 0;
    return finite;
}

static ls_status check_finite(const ls_state_shards *p, double loss)
{
    char label[LS_NODE_TEXT];
    if (!isfinite(loss))
        return ls_fail(LS_ERR_NOT_FINITE, "the loss is %g; no weight was changed", loss);
    for (size_t i = 0; i < p->trained; i++) {
        const ls_state_shards_entry *e = &p->entries[i];
        ls_array value;
        if (!e->gradient)
            continue;
        LS_TRY(ls_value(e->gradient, &value));
        if (!is_finite(value.data, value.dtype, e->count))
            return ls_fail(LS_ERR_NOT_FINITE, "the gradient of %s is not finite; no weight was changed",
                           ls_node_label(e->variable->node, label));
    }
    return LS_OK;
}

/* For a moving average, pushes its new value and the value that it was computed from. */
static ls_status fill_push(const ls_state_shards *p, int server, char *bytes)
{
    memset(bytes, 0, p->push_bytes[server]);
    for (size_t i = p->first[server]; i < p->first[server + 1]; i++) {
        const ls_state_shards_piece *piece = &p->pieces[i];
        const ls_state_shards_entry *e = &p->entries[piece->entry];
        size_t from = (size_t)piece->first * e->element, count = (size_t)piece->count * e->element;
        ls_array value;
        if (e->kind == LS_SHARD_FIXED)
            continue;
        LS_TRY(ls_value(e->gradient, &value));
        memcpy(bytes + piece->push, (const char *)value.data + from, count);
        if (e->kind == LS_SHARD_AVERAGED)
            LS_TRY(move_piece(e->variable, e, piece, bytes + piece->push + round_up(count), false));
    }
    return LS_OK;
}

ls_status ls_state_shards_gradients(ls_state_shards *p, const ls_state_shards_step *step, void *const *pushes,
                                    double *results)
{
    ls_graph *graph = ls_model_graph(p->job->model);
    uint64_t before = graph->step;
    graph->step = step->run;
    ls_status status =
        ls_job_fetch(p->job, p->function, step->settings, step->batch, step->class_weights, p->fetches, p->fetch_count);
    graph->step = before;
    if (status == LS_OK)
        status = ls_results_read(p->job, p->function, results);
    if (status == LS_OK)
        status = check_finite(p, results[0]);
    LS_TRY(ls_explain_failure(p->job, p->function, step->batch, status));
    for (int s = 0; s < p->servers; s++)
        LS_TRY(fill_push(p, s, pushes[s]));
    return LS_OK;
}
