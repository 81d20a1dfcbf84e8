/* One shard of a job's state, with its optimizer, for a parameter server or a replay. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "nn/model.h"
#include "train/server/shards_private.h"
#include "train/job/job.h"
#include "train/server/shards.h"

struct ls_state_shard {
    const ls_state_shards *parts;
    int server;
    bool scale_rate;
    ls_graph *graph;
    ls_optimizer optimizer;
    ls_optimizer_state state; /* for the trainable pieces */
    ls_tensor **variables;    /* by piece; NULL: not trainable, its bytes are in `others` */
    ls_tensor **inputs;       /* by piece: its gradient; NULL: none */
    ls_feed *feeds;
    ls_tensor *rate, *samples, *apply;
    char *others; /* laid out like the weights that workers pull */
};

static size_t piece_count(const ls_state_shard *part)
{
    return part->parts->first[part->server + 1] - part->parts->first[part->server];
}

static const ls_state_shards_piece *piece_at(const ls_state_shard *part, size_t i)
{
    return &part->parts->pieces[part->parts->first[part->server] + i];
}

static const ls_state_shards_entry *entry_of(const ls_state_shard *part, const ls_state_shards_piece *piece)
{
    return &part->parts->entries[piece->entry];
}

/* ---- Graph ---- */

/* Makes a flat variable for each piece. Updates are elementwise, so their bits equal those of the
 * whole variable. */
static ls_status make_variables(ls_state_shard *part, ls_tensor **trainable, size_t *count)
{
    for (size_t i = 0; i < piece_count(part); i++) {
        const ls_state_shards_piece *piece = piece_at(part, i);
        const ls_state_shards_entry *e = entry_of(part, piece);
        if (!e->slot)
            continue;
        ls_dtype dtype = e->variable->node->dtype;
        part->variables[i] = ls_op_variable(part->graph, NULL, dtype, LS_SHAPE(piece->count));
        LS_TRY(ls_tensor_check(part->variables[i]));
        trainable[(*count)++] = part->variables[i];
        if (e->kind == LS_PARTS_TRAINED)
            part->inputs[i] = ls_op_input(part->graph, NULL, dtype, LS_SHAPE(piece->count));
    }
    return LS_OK;
}

static ls_status make_update(ls_state_shard *part, ls_tensor **variables, ls_tensor **gradients)
{
    size_t count = 0;
    LS_TRY(make_variables(part, variables, &count));
    LS_TRY(ls_optimizer_state_make(&part->optimizer, variables, count, &part->state));
    part->optimizer.options.name = part->state.name;
    count = 0;
    for (size_t i = 0; i < piece_count(part); i++)
        if (part->inputs[i]) {
            variables[count] = part->variables[i];
            gradients[count++] = part->inputs[i];
        }
    part->rate = ls_op_input(part->graph, NULL, LS_F32, LS_SCALAR);
    part->samples = ls_op_input(part->graph, NULL, LS_I64, LS_SCALAR);
    part->apply = ls_apply_gradients_of(part->optimizer, gradients, variables, count, part->rate, part->samples);
    return ls_tensor_check(part->apply);
}

static ls_status make(ls_state_shard *part)
{
    const ls_job *job = part->parts->job;
    size_t room = piece_count(part) + 3;
    LS_TRY(ls_graph_create(ls_model_graph(job->model)->context, &part->graph));
    part->optimizer = ls_optimizer_without_clipping(job->optimizer);
    part->optimizer.options.name = NULL;
    part->variables = calloc(room, sizeof(ls_tensor *));
    part->inputs = calloc(room, sizeof(ls_tensor *));
    part->feeds = calloc(room, sizeof(*part->feeds));
    part->others = calloc(1, part->parts->weight_bytes[part->server] + 1);
    ls_tensor **variables = calloc(room, sizeof(*variables)), **gradients = calloc(room, sizeof(*gradients));
    ls_status status = LS_OK;
    if (!part->variables || !part->inputs || !part->feeds || !part->others || !variables || !gradients)
        status = ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes of server %d", part->parts->state_bytes[part->server],
                         part->server);
    if (status == LS_OK)
        status = make_update(part, variables, gradients);
    free(variables);
    free(gradients);
    return status;
}

ls_status ls_state_shard_create(const ls_state_shards *parts, int server, bool scale_rate, ls_state_shard **out)
{
    ls_state_shard *part = calloc(1, sizeof(*part));
    char *bytes = calloc(1, parts->state_bytes[server]);
    ls_status status = part && bytes ? LS_OK
                                     : ls_fail(LS_ERR_MEMORY, "no memory for the %zu bytes of server %d",
                                               parts->state_bytes[server], server);
    if (part)
        *part = (ls_state_shard){ .parts = parts, .server = server, .scale_rate = scale_rate };
    if (status == LS_OK)
        status = make(part);
    if (status == LS_OK)
        status = ls_state_shards_get_state(parts, server, bytes);
    if (status == LS_OK)
        status = ls_state_shard_put_state(part, bytes);
    free(bytes);
    if (status != LS_OK)
        ls_state_shard_destroy(part);
    else
        *out = part;
    return status;
}

void ls_state_shard_destroy(ls_state_shard *part)
{
    if (!part)
        return;
    ls_optimizer_state_free(&part->state);
    ls_graph_destroy(part->graph);
    free(part->variables);
    free(part->inputs);
    free(part->feeds);
    free(part->others);
    free(part);
}

/* ---- Versions and rates ---- */

int64_t ls_state_shard_every(const ls_state_shard *part)
{
    return part->state.every > 0 ? part->state.every : 1;
}

int64_t ls_state_shard_pushes(const ls_state_shard *part)
{
    int64_t out = 0;
    /* Cannot fail: these counters are on the CPU. */
    (void)ls_optimizer_state_step(&part->state, &out);
    return out;
}

int64_t ls_state_shard_version(const ls_state_shard *part)
{
    return ls_state_shard_pushes(part) / ls_state_shard_every(part);
}

ls_status ls_state_shard_rate(const ls_state_shard *part, double set, double *out)
{
    if (isnan(set))
        return ls_optimizer_rate(&part->optimizer, ls_state_shard_pushes(part), part->parts->job->batch_size, out);
    *out = set;
    return LS_OK;
}

/* ---- Applying ---- */

/* Adds the worker's change to the average. If the average has not changed since the worker read it,
 * copies the worker's value. */
static void move_average(void *average, const ls_state_shards_entry *e, const ls_state_shards_piece *piece,
                         const char *push, bool newest)
{
    size_t bytes = (size_t)piece->count * e->element;
    const char *made = push + piece->push;
    const char *read = made + (bytes + LS_PARTS_ALIGN - 1) / LS_PARTS_ALIGN * LS_PARTS_ALIGN;
    ls_dtype dtype = e->variable->node->dtype;
    if (newest || (dtype != LS_F32 && dtype != LS_F64)) {
        memcpy(average, made, bytes);
        return;
    }
    for (int64_t i = 0; i < piece->count && dtype == LS_F32; i++)
        ((float *)average)[i] += ((const float *)made)[i] - ((const float *)read)[i];
    for (int64_t i = 0; i < piece->count && dtype == LS_F64; i++)
        ((double *)average)[i] += ((const double *)made)[i] - ((const double *)read)[i];
}

static float scaled(const ls_state_shard *part, int64_t read, double rate)
{
    int64_t behind = ls_state_shard_version(part) - read;
    return (float)(part->scale_rate && behind > 1 ? rate / (double)behind : rate);
}

ls_status ls_state_shard_apply(ls_state_shard *part, const ls_push *push, double rate)
{
    float used = scaled(part, push->read, rate);
    int64_t samples = push->samples;
    bool newest = ls_state_shard_pushes(part) == push->read * ls_state_shard_every(part);
    size_t count = 0;
    for (size_t i = 0; i < piece_count(part); i++)
        if (part->inputs[i]) {
            const ls_state_shards_piece *piece = piece_at(part, i);
            part->feeds[count++] =
                (ls_feed){ part->inputs[i], ls_array_of(part->inputs[i]->dtype, LS_SHAPE(piece->count),
                                                        (char *)push->bytes + piece->push) };
        }
    part->feeds[count++] = (ls_feed){ part->rate, ls_array_of(LS_F32, LS_SCALAR, &used) };
    part->feeds[count++] = (ls_feed){ part->samples, ls_array_of(LS_I64, LS_SCALAR, &samples) };
    const ls_run_request request = {
        .graph = part->graph, .feeds = part->feeds, .feed_count = count, .fetches = &part->apply, .fetch_count = 1
    };
    LS_TRY(ls_run(&request, NULL));
    for (size_t i = 0; i < piece_count(part); i++) {
        const ls_state_shards_piece *piece = piece_at(part, i);
        const ls_state_shards_entry *e = entry_of(part, piece);
        if (e->kind == LS_PARTS_AVERAGED)
            move_average(part->others + piece->weights, e, piece, push->bytes, newest);
    }
    return LS_OK;
}

/* ---- Copying and hashing ---- */

/* Called for each buffer of a shard. at: its offset in the bytes of the state. */
typedef ls_status (*visit)(void *user, void *data, size_t bytes, size_t at);

static ls_status visit_variable(ls_tensor *node, visit each, void *user, size_t at)
{
    ls_variable *v = node->attr.variable.variable;
    LS_TRY(ls_variable_sync_to_host(v));
    return each(user, v->data, v->bytes, at);
}

static ls_status visit_weights(const ls_state_shard *part, visit each, void *user)
{
    for (size_t i = 0; i < piece_count(part); i++) {
        const ls_state_shards_piece *piece = piece_at(part, i);
        size_t bytes = (size_t)piece->count * entry_of(part, piece)->element;
        LS_TRY(part->variables[i] ? visit_variable(part->variables[i], each, user, piece->weights)
                                  : each(user, part->others + piece->weights, bytes, piece->weights));
    }
    return LS_OK;
}

/* The shard's optimizer stores slots in the order of the trainable pieces, then counters. */
static ls_status visit_slots(const ls_state_shard *part, visit each, void *user)
{
    const ls_state_shards *p = part->parts;
    size_t next = 0, counters = p->state_bytes[part->server] - p->counters * LS_PARTS_ALIGN;
    for (size_t i = 0; i < piece_count(part); i++) {
        const ls_state_shards_piece *piece = piece_at(part, i);
        size_t step = ((size_t)piece->count * entry_of(part, piece)->element + LS_PARTS_ALIGN - 1) / LS_PARTS_ALIGN *
                      LS_PARTS_ALIGN;
        for (size_t k = 0; part->variables[i] && k < p->slots; k++)
            LS_TRY(visit_variable(part->state.all[next++], each, user, piece->state + k * step));
    }
    for (size_t k = 0; k < p->counters; k++)
        LS_TRY(visit_variable(part->state.all[next++], each, user, counters + k * LS_PARTS_ALIGN));
    return LS_OK;
}

static ls_status copy_out(void *user, void *data, size_t bytes, size_t at)
{
    memcpy((char *)user + at, data, bytes);
    return LS_OK;
}

static ls_status copy_in(void *user, void *data, size_t bytes, size_t at)
{
    memcpy(data, (const char *)user + at, bytes);
    return LS_OK;
}

static ls_status add_to_hash(void *user, void *data, size_t bytes, size_t at)
{
    (void)at;
    return ls_sha256_add(user, data, bytes);
}

ls_status ls_state_shard_get_weights(const ls_state_shard *part, void *bytes)
{
    memset(bytes, 0, part->parts->weight_bytes[part->server]);
    return visit_weights(part, copy_out, bytes);
}

ls_status ls_state_shard_get_state(const ls_state_shard *part, void *bytes)
{
    memset(bytes, 0, part->parts->state_bytes[part->server]);
    LS_TRY(visit_weights(part, copy_out, bytes));
    return visit_slots(part, copy_out, bytes);
}

ls_status ls_state_shard_put_state(ls_state_shard *part, const void *bytes)
{
    LS_TRY(visit_weights(part, copy_in, (void *)bytes));
    LS_TRY(visit_slots(part, copy_in, (void *)bytes));
    for (size_t i = 0; i < part->graph->variable_count; i++)
        ls_variable_written(part->graph->variables[i], true);
    return LS_OK;
}

ls_status ls_state_shard_sha256(const ls_state_shard *part, char hex[65])
{
    ls_sha256 *hash = NULL;
    LS_TRY(ls_sha256_begin(&hash));
    ls_status status = visit_weights(part, add_to_hash, hash);
    if (status == LS_OK)
        status = visit_slots(part, add_to_hash, hash);
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}
