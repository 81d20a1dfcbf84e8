/* One shard of a job's state, with its optimizer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "nn/model.h"
#include "train/server/shards_private.h"
#include "train/job/job.h"
#include "train/server/shards.h"

struct ls_state_shard {
    const ls_state_shards *shards;
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

static size_t piece_count(const ls_state_shard *shard)
{
    return shard->shards->first[shard->server + 1] - shard->shards->first[shard->server];
}

static const ls_state_shards_piece *piece_at(const ls_state_shard *shard, size_t i)
{
    return &shard->shards->pieces[shard->shards->first[shard->server] + i];
}

static const ls_state_shards_entry *entry_of(const ls_state_shard *shard, const ls_state_shards_piece *piece)
{
    return &shard->shards->entries[piece->entry];
}

/* ---- Graph ---- */

/* Updates are elementwise, so flat pieces have the bits of the whole variable. */
static ls_status make_variables(ls_state_shard *shard, ls_tensor **trainable, size_t *count)
{
    for (size_t i = 0; i < piece_count(shard); i++) {
        const ls_state_shards_piece *piece = piece_at(shard, i);
        const ls_state_shards_entry *e = entry_of(shard, piece);
        if (!e->slot)
            continue;
        ls_dtype dtype = e->variable->node->dtype;
        shard->variables[i] = ls_op_variable(shard->graph, NULL, dtype, LS_SHAPE(piece->count));
        LS_TRY(ls_tensor_check(shard->variables[i]));
        trainable[(*count)++] = shard->variables[i];
        if (e->kind == LS_SHARD_TRAINED)
            shard->inputs[i] = ls_op_input(shard->graph, NULL, dtype, LS_SHAPE(piece->count));
    }
    return LS_OK;
}

static ls_status make_update(ls_state_shard *shard, ls_tensor **variables, ls_tensor **gradients)
{
    size_t count = 0;
    LS_TRY(make_variables(shard, variables, &count));
    LS_TRY(ls_optimizer_state_make(&shard->optimizer, variables, count, &shard->state));
    shard->optimizer.options.name = shard->state.name;
    count = 0;
    for (size_t i = 0; i < piece_count(shard); i++)
        if (shard->inputs[i]) {
            variables[count] = shard->variables[i];
            gradients[count++] = shard->inputs[i];
        }
    shard->rate = ls_op_input(shard->graph, NULL, LS_F32, LS_SCALAR);
    shard->samples = ls_op_input(shard->graph, NULL, LS_I64, LS_SCALAR);
    shard->apply = ls_apply_gradients_of(shard->optimizer, gradients, variables, count, shard->rate, shard->samples);
    return ls_tensor_check(shard->apply);
}

static ls_status make(ls_state_shard *shard)
{
    const ls_job *job = shard->shards->job;
    size_t room = piece_count(shard) + 3;
    LS_TRY(ls_graph_create(ls_model_graph(job->model)->context, &shard->graph));
    shard->optimizer = ls_optimizer_without_clipping(job->optimizer);
    shard->optimizer.options.name = NULL;
    shard->variables = calloc(room, sizeof(ls_tensor *));
    shard->inputs = calloc(room, sizeof(ls_tensor *));
    shard->feeds = calloc(room, sizeof(*shard->feeds));
    shard->others = calloc(1, shard->shards->weight_bytes[shard->server] + 1);
    ls_tensor **variables = calloc(room, sizeof(*variables)), **gradients = calloc(room, sizeof(*gradients));
    ls_status status = LS_OK;
    if (!shard->variables || !shard->inputs || !shard->feeds || !shard->others || !variables || !gradients)
        status = ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes of server %d",
                         shard->shards->state_bytes[shard->server], shard->server);
    if (status == LS_OK)
        status = make_update(shard, variables, gradients);
    free(variables);
    free(gradients);
    return status;
}

ls_status ls_state_shard_create(const ls_state_shards *shards, int server, bool scale_rate, ls_state_shard **out)
{
    ls_state_shard *shard = calloc(1, sizeof(*shard));
    char *bytes = calloc(1, shards->state_bytes[server]);
    ls_status status = shard && bytes ? LS_OK
                                      : ls_fail(LS_ERR_MEMORY, "no memory for the %zu bytes of server %d",
                                                shards->state_bytes[server], server);
    if (shard)
        *shard = (ls_state_shard){ .shards = shards, .server = server, .scale_rate = scale_rate };
    if (status == LS_OK)
        status = make(shard);
    if (status == LS_OK)
        status = ls_state_shards_get_state(shards, server, bytes);
    if (status == LS_OK)
        status = ls_state_shard_put_state(shard, bytes);
    free(bytes);
    if (status != LS_OK)
        ls_state_shard_destroy(shard);
    else
        *out = shard;
    return status;
}

void ls_state_shard_destroy(ls_state_shard *shard)
{
    if (!shard)
        return;
    ls_optimizer_state_free(&shard->state);
    ls_graph_destroy(shard->graph);
    free(shard->variables);
    free(shard->inputs);
    free(shard->feeds);
    free(shard->others);
    free(shard);
}

/* ---- Versions and rates ---- */

int64_t ls_state_shard_every(const ls_state_shard *shard)
{
    return shard->state.every > 0 ? shard->state.every : 1;
}

int64_t ls_state_shard_pushes(const ls_state_shard *shard)
{
    int64_t out = 0;
    /* Cannot fail: these counters are on the CPU. */
    (void)ls_optimizer_state_step(&shard->state, &out);
    return out;
}

int64_t ls_state_shard_version(const ls_state_shard *shard)
{
    return ls_state_shard_pushes(shard) / ls_state_shard_every(shard);
}

ls_status ls_state_shard_rate(const ls_state_shard *shard, double set, double *out)
{
    if (isnan(set))
        return ls_optimizer_rate(&shard->optimizer, ls_state_shard_pushes(shard), shard->shards->job->batch_size, out);
    *out = set;
    return LS_OK;
}

/* ---- Applying ---- */

/* Adds the worker's change to the average, or copies its value if the average has not changed. */
static void move_average(void *average, const ls_state_shards_entry *e, const ls_state_shards_piece *piece,
                         const char *push, bool newest)
{
    size_t bytes = (size_t)piece->count * e->element;
    const char *made = push + piece->push;
    const char *read = made + (bytes + LS_SHARD_ALIGN - 1) / LS_SHARD_ALIGN * LS_SHARD_ALIGN;
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

static float scaled(const ls_state_shard *shard, int64_t read, double rate)
{
    int64_t behind = ls_state_shard_version(shard) - read;
    return (float)(shard->scale_rate && behind > 1 ? rate / (double)behind : rate);
}

ls_status ls_state_shard_apply(ls_state_shard *shard, const ls_push *push, double rate)
{
    float used = scaled(shard, push->read, rate);
    int64_t samples = push->samples;
    bool newest = ls_state_shard_pushes(shard) == push->read * ls_state_shard_every(shard);
    size_t count = 0;
    for (size_t i = 0; i < piece_count(shard); i++)
        if (shard->inputs[i]) {
            const ls_state_shards_piece *piece = piece_at(shard, i);
            shard->feeds[count++] =
                (ls_feed){ shard->inputs[i], ls_array_of(shard->inputs[i]->dtype, LS_SHAPE(piece->count),
                                                         (char *)push->bytes + piece->push) };
        }
    shard->feeds[count++] = (ls_feed){ shard->rate, ls_array_of(LS_F32, LS_SCALAR, &used) };
    shard->feeds[count++] = (ls_feed){ shard->samples, ls_array_of(LS_I64, LS_SCALAR, &samples) };
    const ls_run_request request = {
        .graph = shard->graph, .feeds = shard->feeds, .feed_count = count, .fetches = &shard->apply, .fetch_count = 1
    };
    LS_TRY(ls_run(&request, NULL));
    for (size_t i = 0; i < piece_count(shard); i++) {
        const ls_state_shards_piece *piece = piece_at(shard, i);
        const ls_state_shards_entry *e = entry_of(shard, piece);
        if (e->kind == LS_SHARD_AVERAGED)
            move_average(shard->others + piece->weights, e, piece, push->bytes, newest);
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

static ls_status visit_weights(const ls_state_shard *shard, visit each, void *user)
{
    for (size_t i = 0; i < piece_count(shard); i++) {
        const ls_state_shards_piece *piece = piece_at(shard, i);
        size_t bytes = (size_t)piece->count * entry_of(shard, piece)->element;
        LS_TRY(shard->variables[i] ? visit_variable(shard->variables[i], each, user, piece->weights)
                                   : each(user, shard->others + piece->weights, bytes, piece->weights));
    }
    return LS_OK;
}

/* The shard's optimizer stores slots in the order of the trainable pieces, then counters. */
static ls_status visit_slots(const ls_state_shard *shard, visit each, void *user)
{
    const ls_state_shards *p = shard->shards;
    size_t next = 0, counters = p->state_bytes[shard->server] - p->counters * LS_SHARD_ALIGN;
    for (size_t i = 0; i < piece_count(shard); i++) {
        const ls_state_shards_piece *piece = piece_at(shard, i);
        size_t step = ((size_t)piece->count * entry_of(shard, piece)->element + LS_SHARD_ALIGN - 1) / LS_SHARD_ALIGN *
                      LS_SHARD_ALIGN;
        for (size_t k = 0; shard->variables[i] && k < p->slots; k++)
            LS_TRY(visit_variable(shard->state.all[next++], each, user, piece->state + k * step));
    }
    for (size_t k = 0; k < p->counters; k++)
        LS_TRY(visit_variable(shard->state.all[next++], each, user, counters + k * LS_SHARD_ALIGN));
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

ls_status ls_state_shard_get_weights(const ls_state_shard *shard, void *bytes)
{
    memset(bytes, 0, shard->shards->weight_bytes[shard->server]);
    return visit_weights(shard, copy_out, bytes);
}

ls_status ls_state_shard_get_state(const ls_state_shard *shard, void *bytes)
{
    memset(bytes, 0, shard->shards->state_bytes[shard->server]);
    LS_TRY(visit_weights(shard, copy_out, bytes));
    return visit_slots(shard, copy_out, bytes);
}

ls_status ls_state_shard_put_state(ls_state_shard *shard, const void *bytes)
{
    LS_TRY(visit_weights(shard, copy_in, (void *)bytes));
    LS_TRY(visit_slots(shard, copy_in, (void *)bytes));
    for (size_t i = 0; i < shard->graph->variable_count; i++)
        ls_variable_written(shard->graph->variables[i], true);
    return LS_OK;
}

ls_status ls_state_shard_sha256(const ls_state_shard *shard, char hex[65])
{
    ls_sha256 *hash = NULL;
    LS_TRY(ls_sha256_begin(&hash));
    ls_status status = visit_weights(shard, add_to_hash, hash);
    if (status == LS_OK)
        status = visit_slots(shard, add_to_hash, hash);
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}
