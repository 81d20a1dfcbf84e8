/* Compares job and data of all workers before a fit; otherwise they would fail later without a
 * reason. */
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "lockstep/cluster.h"
#include "nn/model.h"
#include "run/peers.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/compare_workers.h"
#include "train/job/job.h"

#define NAMED     4         /* differences listed */
#define MOST_TEXT (1 << 24) /* bytes of a job's description */

/* ---- Differences ---- */

typedef struct comparison {
    int a, b; /* ranks of the workers */
    ls_text text;
    size_t count;
    bool data; /* the data differs */
} comparison;

static void differ(void *user, const char *path, const json_t *a, const json_t *b)
{
    comparison *d = user;
    char of_a[LS_JSON_SHORT], of_b[LS_JSON_SHORT];
    d->data |= strncmp(path, "data/", 5) == 0;
    if (d->count++ < NAMED)
        ls_text_add(&d->text, "%s%s is %s on worker %d and %s on worker %d", d->count > 1 ? "; " : "", path,
                    ls_json_show(a, of_a), d->a, ls_json_show(b, of_b), d->b);
}

static ls_status fail_difference(int a, const char *text_a, int b, const char *text_b)
{
    comparison d = { .a = a, .b = b };
    json_t *of_a = json_loads(text_a, 0, NULL), *of_b = json_loads(text_b, 0, NULL);
    static const char *const parts[] = { "job", "fit", "bits" };
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        ls_json_compare(json_object_get(of_a, parts[i]), json_object_get(of_b, parts[i]), differ, &d);
    if (d.count > NAMED)
        ls_text_add(&d.text, "; and %zu more", d.count - NAMED);
    if (d.data)
        ls_text_put(&d.text,
                    "; give every worker the whole data, not a part: each computes its own rows of each batch");
    ls_status status = ls_fail(LS_ERR_PEER, "the workers have different jobs or data: %s",
                               d.count ? ls_text_get(&d.text) : "their descriptions differ, but not in a named value");
    ls_text_free(&d.text);
    json_decref(of_a);
    json_decref(of_b);
    return status;
}

/* ---- Comparing ---- */

ls_status ls_workers_describe(ls_job *job, char **out)
{
    ls_facts facts;
    LS_TRY(ls_facts_make(job, &facts));
    json_t *all = json_pack("{s:O,s:O,s:O}", "job", facts.job, "fit", facts.fit, "bits", facts.bits);
    *out = all ? json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(all);
    ls_facts_free(&facts);
    return *out ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for the description of this job");
}

/* All 0 for a lost worker. */
typedef struct summary {
    uint64_t hash[2], bytes;
} summary;

static ls_status fetch_text(ls_context *ctx, int from, uint64_t bytes, const char *own, char **out)
{
    *out = bytes < MOST_TEXT ? calloc((size_t)bytes + 1, 1) : NULL;
    if (!*out)
        return ls_fail(LS_ERR_MEMORY, "no memory for the description of worker %d's job (%llu bytes)", from,
                       (unsigned long long)bytes);
    if (from == ls_cluster_rank(ctx))
        memcpy(*out, own, (size_t)bytes);
    return ls_cluster_broadcast(ctx, "the description of the job", from, *out, (size_t)bytes);
}

static ls_status explain(ls_context *ctx, const summary *all, int a, int b, const char *own)
{
    char *text_a = NULL, *text_b = NULL;
    ls_status status = fetch_text(ctx, a, all[a].bytes, own, &text_a);
    if (status == LS_OK)
        status = fetch_text(ctx, b, all[b].bytes, own, &text_b);
    if (status == LS_OK)
        status = fail_difference(a, text_a, b, text_b);
    free(text_a);
    free(text_b);
    return status;
}

static ls_status compare_texts(ls_context *ctx, const char *own)
{
    summary mine = { .bytes = strlen(own) }, all[LS_MAX_CLUSTER];
    ls_hash hash;
    int first = -1;
    ls_hash_begin(&hash);
    ls_hash_add(&hash, own, strlen(own));
    ls_hash_end(&hash, mine.hash);
    memset(all, 0, sizeof(all));
    LS_TRY(ls_cluster_gather(ctx, "the description of the job", &mine, sizeof(mine), all));
    for (int r = 0; r < ls_cluster_size(ctx); r++) {
        if (all[r].bytes == 0)
            continue;
        first = first < 0 ? r : first;
        if (memcmp(&all[r], &all[first], sizeof(*all)) != 0)
            return explain(ctx, all, first, r, own);
    }
    return LS_OK;
}

/* ---- Workers without lanes ---- */

static ls_status warn_of_idle(ls_job *job)
{
    const ls_fit_facts *fit = job->fit;
    ls_graph *graph = ls_model_graph(job->model);
    const ls_peers *peers = graph->context->peers;
    const ls_placement *placement = NULL;
    ls_text ranks = { 0 };
    int idle = 0;
    LS_TRY(ls_run_placement(graph, &fit->settings->run, fit->function->fetches, fit->function->fetch_count,
                            fit->data->first, &placement));
    const ls_plan *plan = placement->plan;
    for (int i = 0; i < plan->options.workers && i < peers->count; i++)
        if (ls_plan_worker_first(plan, i) == ls_plan_worker_first(plan, i + 1) &&
            !ls_peers_is_server(peers, peers->members[i]))
            ls_text_add(&ranks, "%s%d", idle++ ? ", " : "", peers->members[i]);
    if (idle > 0 && ls_is_chief(graph->context))
        ls_log_write(&graph->context->log, LS_LOG_WARNING,
                     "a batch of %lld samples has %d lanes for %d workers: %d of them (%s) compute nothing, but "
                     "replace workers that are lost; use more lanes or a larger batch to employ them",
                     (long long)fit->data->first, plan->lanes, ls_peers_workers(peers), idle, ls_text_get(&ranks));
    ls_text_free(&ranks);
    return LS_OK;
}

ls_status ls_workers_compare(ls_job *job)
{
    ls_context *ctx = ls_model_graph(job->model)->context;
    char *own = NULL;
    if (!ctx->peers)
        return LS_OK;
    LS_TRY(ls_workers_describe(job, &own));
    ls_status status = compare_texts(ctx, own);
    free(own);
    return status == LS_OK ? warn_of_idle(job) : status;
}
