/* Joining a cluster, and the collective calls of lockstep/cluster.h. */
#include "fabric/mesh/cluster.h"

#include <stdatomic.h>
#include <string.h>

#include "backend/kinds.h"
#include "base/fpmode.h"
#include "base/text.h"
#include "fabric/start/environment.h"
#include "lockstep/run.h"

/* ---- Joining ---- */

static ls_status check_options(const ls_cluster_options *o, const char *call)
{
    if (o->size < 1 || o->size > LS_MAX_CLUSTER || o->rank < 0 || o->rank >= o->size)
        return ls_fail(LS_ERR_INVALID, "%s: rank %d of %d workers: size must be 1 to %d, and rank 0 to size - 1", call,
                       o->rank, o->size, LS_MAX_CLUSTER);
    if (o->begin < 0 || o->begin > o->size || o->least < 0 || o->least > o->size)
        return ls_fail(LS_ERR_INVALID, "%s: begin is %d and least is %d: both must be 0 to the size, %d", call,
                       o->begin, o->least, o->size);
    int begin = o->begin > 0 ? o->begin : o->size;
    if (o->servers < 0 || o->servers >= begin)
        return ls_fail(LS_ERR_INVALID,
                       "%s: %d parameter servers among the %d that begin: at least one must be a worker", call,
                       o->servers, begin);
    if (!memchr(o->job, '\0', sizeof(o->job)))
        return ls_fail(LS_ERR_INVALID, "%s: the job's name has more than %zu characters", call, sizeof(o->job) - 1);
    if (o->size > 1 && o->job[0] == '\0')
        return ls_fail(LS_ERR_INVALID,
                       "%s: .job is empty: give all %d workers the same name, which no other running job uses", call,
                       o->size);
    if (o->evaluator && o->size > 1)
        return ls_fail(LS_ERR_INVALID, "%s: an evaluator belongs to no cluster: size must be 1 (got %d)", call,
                       o->size);
    if (!(o->join_limit >= 0) || !(o->silence_limit >= 0))
        return ls_fail(LS_ERR_INVALID,
                       "%s: join_limit and silence_limit must be 0 (the default) or more (got %g and %g s)", call,
                       o->join_limit, o->silence_limit);
    return LS_OK;
}

static void leave(ls_context *ctx)
{
    ls_cluster *cluster = ctx->cluster;
    if (!cluster)
        return;
    /* Keeps the last error: a program may print it after closing its context. */
    ls_error before;
    ls_error_keep(&before, LS_ERR_PEER);
    ls_mesh_close(cluster->mesh);
    (void)ls_error_give(&before);
    pthread_mutex_destroy(&cluster->mutex);
    free(cluster);
    ctx->cluster = NULL;
    ctx->peers = NULL;
}

static ls_status set_cluster(ls_context *ctx, const ls_cluster_options *options, const char *call)
{
    LS_TRY(check_options(options, call));
    ls_cluster *cluster = NULL;
    if (options->size > 1) {
        cluster = calloc(1, sizeof(*cluster));
        if (!cluster)
            return ls_fail(LS_ERR_MEMORY, "%s: no memory for a cluster", call);
        cluster->options = *options;
        pthread_mutexattr_t again;
        pthread_mutexattr_init(&again);
        pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
        pthread_mutex_init(&cluster->mutex, &again);
        pthread_mutexattr_destroy(&again);
    }
    leave(ctx);
    ctx->cluster = cluster;
    ctx->evaluator = options->evaluator;
    ctx->worker = options->rank;
    ctx->worker_count = options->size;
    return LS_OK;
}

static ls_status look_for_cluster(ls_context *ctx, const char *call)
{
    ls_cluster_options options;
    LS_TRY(ls_fail_within(ls_cluster_own_environment(&options), "%s", call));
    ctx->joined = options.size > 1;
    return set_cluster(ctx, &options, call);
}

ls_status ls_cluster_join(ls_context *ctx, const ls_cluster_options *options)
{
    ls_cluster_options found;
    LS_TRY(ls_context_check(ctx, "ls_cluster_join"));
    if (!options)
        LS_TRY(ls_cluster_environment(&found));
    pthread_mutex_lock(&ctx->mutex);
    ls_status status;
    if (ctx->opened_by)
        status = ls_fail(LS_ERR_STATE, "ls_cluster_join: the context was opened by %s; join a cluster before that",
                         ctx->opened_by);
    else
        status = set_cluster(ctx, options ? options : &found, "ls_cluster_join");
    if (status == LS_OK)
        ctx->joined = true;
    pthread_mutex_unlock(&ctx->mutex);
    return status;
}

/* ---- Meeting, when the context is opened ---- */

/* Contexts meet those of other processes in the order of opening. */
static atomic_int meetings;

/* Finding the bit class runs kernels in this process only, as ctx->peers is not set yet. */
static ls_status meet(ls_context *ctx, ls_cluster *cluster)
{
    char *about = NULL, *bits = NULL;
    ls_text text = { 0 };
    LS_TRY(ls_bit_class(ctx, &bits));
    ls_text_add(&text, "library %s; %s", LS_VERSION, bits);
    free(bits);
    if (cluster->options.servers > 0)
        ls_text_add(&text, "; parameter servers: %d", cluster->options.servers);
    LS_TRY(ls_text_take(&text, &about));
    ls_status status =
        ls_mesh_open(&cluster->options, atomic_fetch_add(&meetings, 1), about, &ctx->log, &cluster->mesh);
    free(about);
    if (status == LS_OK)
        ctx->peers = &cluster->mesh->peers;
    return status;
}

/* A job with parameter servers forms a mesh only if it trains without staleness. */
static bool meets_later(const ls_context *ctx)
{
    return ctx->cluster->options.servers > 0;
}

ls_status ls_cluster_go_apart(ls_context *ctx, ls_cluster_options *out, int *number)
{
    ls_cluster *cluster = ctx->cluster;
    ls_status status = LS_OK;
    pthread_mutex_lock(&cluster->mutex);
    if (cluster->mesh || cluster->meeting)
        status = ls_fail(LS_ERR_STATE, "an earlier call connected this context to its cluster for synchronous runs; "
                                       "asynchronous training needs a context of its own");
    if (status == LS_OK) {
        cluster->apart = true;
        *out = cluster->options;
        *number = atomic_fetch_add(&meetings, 1);
    }
    pthread_mutex_unlock(&cluster->mutex);
    return status;
}

static ls_status meet_once(ls_context *ctx)
{
    ls_cluster *cluster = ctx->cluster;
    ls_status status = LS_OK;
    pthread_mutex_lock(&cluster->mutex);
    if (cluster->failed.status != LS_OK) {
        status = ls_error_give(&cluster->failed);
    } else if (!cluster->mesh && !cluster->meeting && !cluster->apart) {
        cluster->meeting = true;
        status = meet(ctx, cluster);
        if (status != LS_OK)
            ls_error_keep(&cluster->failed, status);
        cluster->meeting = false;
    }
    pthread_mutex_unlock(&cluster->mutex);
    return status;
}

const ls_context_hooks ls_library_hooks = {
    .add_own_kinds = ls_context_add_own_kinds,
    .check_vendor = ls_context_check_vendor,
    .look_for_cluster = look_for_cluster,
    .meets_later = meets_later,
    .meet_cluster = meet_once,
    .leave_cluster = leave,
};

/* ---- Roles ---- */

int ls_cluster_rank(const ls_context *ctx)
{
    return ctx && ctx->cluster ? ctx->cluster->options.rank : 0;
}

int ls_cluster_size(const ls_context *ctx)
{
    return ctx && ctx->cluster ? ctx->cluster->options.size : 1;
}

int ls_cluster_servers(const ls_context *ctx)
{
    return ctx && ctx->cluster ? ctx->cluster->options.servers : 0;
}

bool ls_is_server(const ls_context *ctx)
{
    if (!ctx || !ctx->cluster)
        return false;
    const ls_cluster_options *o = &ctx->cluster->options;
    int end = o->begin > 0 ? o->begin : o->size;
    return o->rank < end && o->rank >= end - o->servers;
}

bool ls_is_evaluator(const ls_context *ctx)
{
    return ctx && ctx->evaluator;
}

bool ls_is_chief(const ls_context *ctx)
{
    if (!ctx || !ctx->peers)
        return ls_cluster_rank(ctx) == 0;
    return ctx->peers->members[0] == ctx->peers->rank && !ls_peers_is_deposed(ctx->peers);
}

/* ---- Messages ---- */

void ls_cluster_warn_unused(ls_context *ctx)
{
    static atomic_bool warned;
    ls_cluster_options found;
    char who[64];
    const char *by = ctx->joined ? NULL : ls_cluster_described(&found);
    if (!by || atomic_exchange(&warned, true))
        return;
    if (found.evaluator)
        snprintf(who, sizeof(who), "evaluator");
    else
        snprintf(who, sizeof(who), "worker %d of %d", found.rank, found.size);
    ls_log_write(&ctx->log, LS_LOG_WARNING,
                 "%s describes a cluster in which this is %s, but this process trains alone; to use the cluster, give "
                 "--strategy multi-worker or parameter-server, or call ls_cluster_join(ctx, NULL)",
                 by, who);
}

bool ls_cluster_introduce(ls_context *ctx, char *out, size_t bytes)
{
    ls_cluster *cluster = ctx->cluster;
    const ls_transport_table *table;
    if (!cluster || cluster->introduced || ls_transport_choose(&cluster->options, &table) != LS_OK)
        return false;
    const ls_cluster_options *o = &cluster->options;
    int begin = o->begin > 0 ? o->begin : o->size, members = cluster->mesh ? cluster->mesh->peers.count : begin;
    char servers[48] = "", most[48] = "", place[300] = "";
    if (o->servers > 0)
        snprintf(servers, sizeof(servers),
                 o->servers == 1 ? ", %d of them a parameter server" : ", %d of them parameter servers", o->servers);
    if (begin < o->size)
        snprintf(most, sizeof(most), ", up to %d", o->size);
    if (o->rendezvous[0])
        snprintf(place, sizeof(place), " at %s", o->rendezvous);
    snprintf(out, bytes, "cluster: %d processes%s%s, over %s%s; this is worker %d of job \"%s\"", members, servers,
             most, table->name, place, o->rank, o->job);
    cluster->introduced = true;
    return true;
}

/* ---- Collective calls ---- */

#define TAG(number) (0x636c757374657200u + (number)) /* "cluster", then the number of the call */

static ls_status begin_together(ls_context *ctx, const char *call)
{
    LS_TRY(ls_context_begin(ctx, call));
    return ctx->cluster ? meet_once(ctx) : LS_OK;
}

ls_status ls_cluster_barrier(ls_context *ctx, const char *what)
{
    LS_TRY(begin_together(ctx, "ls_cluster_barrier"));
    if (!ctx->peers)
        return LS_OK;
    return ls_peers_share(ctx->peers, TAG(1), what ? what : "ls_cluster_barrier", NULL, 0);
}

ls_status ls_cluster_broadcast(ls_context *ctx, const char *what, int from, void *data, size_t bytes)
{
    LS_TRY(begin_together(ctx, "ls_cluster_broadcast"));
    if (!data && bytes > 0)
        return ls_fail(LS_ERR_INVALID, "ls_cluster_broadcast: data is NULL, but bytes is %zu", bytes);
    if (from < 0 || from >= ls_cluster_size(ctx))
        return ls_fail(LS_ERR_INVALID, "ls_cluster_broadcast: worker %d is unknown; the cluster has %d", from,
                       ls_cluster_size(ctx));
    if (!ctx->peers)
        return LS_OK;
    ls_piece piece = { from, LS_ALL_WORKERS, data, bytes };
    LS_TRY(ls_peers_share(ctx->peers, TAG(2), what ? what : "ls_cluster_broadcast", &piece, 1));
    if (!ls_peers_has(ctx->peers, from))
        return ls_fail(LS_ERR_PEER, "worker %d, which has %s, is lost", from, what ? what : "what was to be broadcast");
    return LS_OK;
}

ls_status ls_cluster_gather(ls_context *ctx, const char *what, const void *data, size_t bytes, void *out)
{
    ls_piece pieces[LS_MAX_CLUSTER];
    LS_TRY(begin_together(ctx, "ls_cluster_gather"));
    int size = ls_cluster_size(ctx), rank = ls_cluster_rank(ctx);
    if ((!data || !out) && bytes > 0)
        return ls_fail(LS_ERR_INVALID,
                       "ls_cluster_gather: data or out is NULL, but bytes is %zu for each of %d workers", bytes, size);
    if (bytes > SIZE_MAX / LS_MAX_CLUSTER)
        return ls_fail(LS_ERR_OVERFLOW, "ls_cluster_gather: %zu bytes from each worker are too many", bytes);
    for (int r = 0; r < size; r++)
        pieces[r] = (ls_piece){ r, LS_ALL_WORKERS, bytes ? (char *)out + (size_t)r * bytes : NULL, bytes };
    if (bytes > 0)
        memmove(pieces[rank].data, data, bytes);
    if (!ctx->peers)
        return LS_OK;
    LS_TRY(ls_peers_share(ctx->peers, TAG(3), what ? what : "ls_cluster_gather", pieces, (size_t)size));
    for (int r = 0; r < size && bytes > 0; r++)
        if (!ls_peers_has(ctx->peers, r)) /* some of its bytes may have arrived */
            memset(pieces[r].data, 0, bytes);
    return LS_OK;
}
