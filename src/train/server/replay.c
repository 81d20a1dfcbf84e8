/* ls_replay: repeats an asynchronous training from its record, in one process, and compares the
 * hash of each version. Keeps an old version of a shard until all gradients that read it are
 * computed, and a gradient until all its servers have applied it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpmode.h"
#include "graph/claim.h"
#include "lockstep/cluster.h"
#include "nn/model.h"
#include "train/checkpoint/checkpoint.h"
#include "train/server/shards.h"
#include "train/server/replay_schedule.h"
#include "train/server/batch_lookahead.h"
#include "train/job/job.h"
#include "train/job/results.h"
#include "train/job/setup.h"
#include "train/job/step.h"
#include "train/report/progress.h"
#include "train/server/record.h"

typedef struct gradient {
    char *bytes; /* pushes for all servers; NULL: none */
    int64_t samples;
    size_t uses;  /* pushes left */
    size_t batch; /* index in replay.batches */
} gradient;

typedef struct replay {
    const ls_fit_options *options;
    ls_job *job;
    ls_fit_setup setup;
    ls_replay_schedule schedule;
    ls_state_shards *shards;
    ls_state_shard *shard[LS_MAX_SERVERS];
    char *begin[LS_MAX_SERVERS];      /* state of the model at the start */
    char **versions[LS_MAX_SERVERS];  /* [version - first version]: weights; NULL: not needed */
    int64_t in_model[LS_MAX_SERVERS]; /* version of each shard in the model */
    gradient *gradients;
    ls_batch_lookahead_batch *batches;
    size_t batch_count;
    ls_batch_lookahead *lookahead;
    double *results;
    ls_tally tally;
    ls_progress progress;
    ls_replayed report;
    int64_t kept; /* number of versions in memory */
} replay;

static int64_t first_version(const replay *r, int server)
{
    return r->schedule.records[server].head.version;
}

/* ---- Comparing the job ---- */

static ls_status compare_job(replay *r, const char *file)
{
    ls_job *job = r->job;
    ls_record_head here = r->schedule.records[0].head;
    ls_facts facts;
    ls_history *history = NULL;
    const ls_fit_facts fit = { .data = &r->setup.data,
                               .validation = r->setup.validates ? &r->setup.validation : NULL,
                               .options = r->options,
                               .function = r->setup.function,
                               .settings = &r->setup.settings,
                               .history = &history };
    job->data_seed = r->options->seed;
    job->fitted = r->setup.data.spec.batch;
    job->lanes = r->options->lanes;
    job->fit = &fit;
    ls_status status = ls_facts_make(job, &facts);
    job->fit = NULL;
    LS_TRY(status);
    here.job = json_pack("{s:O,s:O,s:O}", "job", facts.job, "fit", facts.fit, "bits", facts.bits);
    ls_facts_free(&facts);
    if (!here.job)
        return ls_fail(LS_ERR_MEMORY, "no memory for the description of this job");
    status = ls_record_compare(&r->schedule.records[0].head, file, &here, "this job", false);
    json_decref(here.job);
    return status;
}

/* ---- Setup ---- */

/* Must agree with find_batch in chief.c. */
static ls_status find_batch(const replay *r, const ls_record_push *push, ls_batch_lookahead_batch *out)
{
    const ls_position *start = &r->job->position;
    const int64_t steps = r->setup.steps, length = r->setup.data.steps;
    *out = (ls_batch_lookahead_batch){
        .epoch = push->epoch, .batch = push->batch, .pass = push->epoch, .index = push->batch
    };
    if (push->epoch < start->epoch || push->epoch >= r->setup.epochs || (steps >= 0 && push->batch >= steps))
        return ls_fail(LS_ERR_DATA,
                       "the record has batch %lld of epoch %lld; this training has epochs %lld to %lld with %lld "
                       "batches each, counted from 0",
                       (long long)push->batch, (long long)push->epoch, (long long)start->epoch,
                       (long long)r->setup.epochs - 1, (long long)steps);
    if (r->options->steps_per_epoch == 0)
        return LS_OK;
    int64_t taken = start->batch + (push->epoch - start->epoch) * steps + push->batch - start->step;
    if (taken < 0)
        return ls_fail(LS_ERR_DATA, "the record has batch %lld of epoch %lld, which is before this training began",
                       (long long)push->batch, (long long)push->epoch);
    out->pass = start->pass + (length > 0 ? taken / length : 0);
    out->index = length > 0 ? taken % length : taken;
    return LS_OK;
}

/* Gradients are sorted by batch. */
static ls_status list_batches(replay *r)
{
    const ls_replay_schedule *s = &r->schedule;
    r->gradients = calloc(s->gradient_count + 1, sizeof(*r->gradients));
    r->batches = calloc(s->gradient_count + 1, sizeof(*r->batches));
    if (!r->gradients || !r->batches)
        return ls_fail(LS_ERR_MEMORY, "no memory for a replay of %zu gradients", s->gradient_count);
    for (size_t i = 0; i < s->gradient_count; i++) {
        ls_batch_lookahead_batch at, *last = &r->batches[r->batch_count];
        LS_TRY(find_batch(r, s->gradients[i].push, &at));
        if (i == 0 || at.epoch != last[-1].epoch || at.batch != last[-1].batch) {
            *last = at;
            r->batch_count++;
        }
        r->batches[r->batch_count - 1].uses++;
        r->gradients[i] = (gradient){ .uses = s->gradients[i].uses, .batch = r->batch_count - 1 };
    }
    return ls_batch_lookahead_make(&r->setup.data, r->batches, r->batch_count, &r->lookahead);
}

static ls_status keep_version(replay *r, int server)
{
    int64_t at = ls_state_shard_version(r->shard[server]) - first_version(r, server);
    if (r->schedule.readers[server][at] == 0)
        return LS_OK;
    size_t bytes = ls_state_shards_weight_bytes(r->shards, server);
    char *copy = malloc(bytes + 1);
    if (!copy)
        return ls_fail(LS_ERR_MEMORY, "no memory for one more version of server %d, %zu bytes", server, bytes);
    r->versions[server][at] = copy;
    r->kept++;
    r->report.most_kept = r->kept > r->report.most_kept ? r->kept : r->report.most_kept;
    return ls_state_shard_get_weights(r->shard[server], copy);
}

static ls_status check_begin(const replay *r, int server)
{
    const ls_record_head *head = &r->schedule.records[server].head;
    char hex[65];
    if (ls_state_shard_version(r->shard[server]) != head->version)
        return ls_fail(LS_ERR_STATE,
                       "server %d began with version %lld, this model is at version %lld: restore the checkpoint that "
                       "training continued from (lockstep replay --from)",
                       server, (long long)head->version, (long long)ls_state_shard_version(r->shard[server]));
    LS_TRY(ls_state_shard_sha256(r->shard[server], hex));
    if (strcmp(hex, head->sha256) != 0)
        return ls_fail(LS_ERR_STATE,
                       "the model does not have the weights that training began with: the shard of server %d has "
                       "SHA-256 %s, but %s in the record",
                       server, hex, head->sha256);
    return LS_OK;
}

static ls_status open_shard(replay *r, int server)
{
    const ls_record *record = &r->schedule.records[server];
    size_t bytes = ls_state_shards_state_bytes(r->shards, server),
           count = (size_t)(record->version - record->head.version) + 1;
    r->begin[server] = malloc(bytes + 1);
    r->versions[server] = calloc(count, sizeof(*r->versions[server]));
    if (!r->begin[server] || !r->versions[server])
        return ls_fail(LS_ERR_MEMORY, "no memory for the %zu bytes of server %d", bytes, server);
    LS_TRY(ls_state_shards_get_state(r->shards, server, r->begin[server]));
    LS_TRY(ls_state_shard_create(r->shards, server, record->head.scale_rate, &r->shard[server]));
    LS_TRY(check_begin(r, server));
    r->in_model[server] = record->head.version;
    return keep_version(r, server);
}

static ls_status check_accumulation(const replay *r)
{
    int64_t every = ls_state_shard_every(r->shard[0]), recorded = r->schedule.records[0].head.accumulate;
    if (every != recorded)
        return ls_fail(LS_ERR_STATE, "%lld gradients make a version here, but %lld in the record", (long long)every,
                       (long long)recorded);
    return LS_OK;
}

static void count_workers(replay *r)
{
    bool seen[LS_MAX_CLUSTER] = { false };
    for (int s = 0; s < r->schedule.servers; s++) {
        const ls_record *record = &r->schedule.records[s];
        r->report.versions += record->version - record->head.version;
        r->report.torn |= record->torn > 0;
        for (size_t i = 0; i < record->count; i++)
            seen[record->pushes[i].worker] = true;
    }
    for (int w = 0; w < LS_MAX_CLUSTER; w++)
        r->report.workers += seen[w];
    r->report.servers = r->schedule.servers;
}

static ls_status open_replay(replay *r, ls_dataset *data, const char *file)
{
    const ls_fit_options *o = r->options;
    LS_TRY(ls_replay_schedule_read(file, &r->schedule));
    LS_TRY(ls_fit_set_up(r->job, data, o, "ls_replay", &r->setup));
    if (!o->continue_last)
        r->job->position = (ls_position){ .epoch = o->initial_epoch, .pass = o->initial_epoch };
    LS_TRY(compare_job(r, file));
    LS_TRY(list_batches(r));
    LS_TRY(ls_state_shards_make(r->job, r->setup.function, r->schedule.servers, &r->shards));
    for (int s = 0; s < r->schedule.servers; s++)
        LS_TRY(open_shard(r, s));
    LS_TRY(check_accumulation(r));
    r->results = calloc(ls_results_count(r->job) + 1, sizeof(*r->results));
    if (!r->results)
        return ls_fail(LS_ERR_MEMORY, "no memory for the results of a batch");
    count_workers(r);
    return ls_tally_begin(&r->tally, r->job);
}

static void close_replay(replay *r)
{
    ls_tally_end(&r->tally);
    for (int s = 0; s < r->schedule.servers; s++) {
        size_t count = (size_t)(r->schedule.records[s].version - first_version(r, s)) + 1;
        for (size_t v = 0; r->versions[s] && v < count; v++)
            free(r->versions[s][v]);
        free(r->versions[s]);
        free(r->begin[s]);
        ls_state_shard_destroy(r->shard[s]);
    }
    for (size_t i = 0; r->gradients && i < r->schedule.gradient_count; i++)
        free(r->gradients[i].bytes);
    free(r->gradients);
    free(r->results);
    ls_batch_lookahead_free(r->lookahead);
    free(r->batches);
    ls_state_shards_free(r->shards);
    ls_fit_setup_free(&r->setup);
    ls_replay_schedule_free(&r->schedule);
}

/* ---- Gradients ---- */

static void release_version(replay *r, int server, int64_t version)
{
    int64_t at = version - first_version(r, server);
    if (--r->schedule.readers[server][at] > 0)
        return;
    free(r->versions[server][at]);
    r->versions[server][at] = NULL;
    r->kept--;
}

static ls_status put_versions(replay *r, const int64_t *read)
{
    for (int s = 0; s < r->schedule.servers; s++) {
        if (r->in_model[s] == read[s])
            continue;
        LS_TRY(ls_state_shards_put_weights(r->shards, s, r->versions[s][read[s] - first_version(r, s)]));
        r->in_model[s] = read[s];
    }
    return LS_OK;
}

static ls_status compute(replay *r, size_t number)
{
    const ls_record_push *push = r->schedule.gradients[number].push;
    gradient *g = &r->gradients[number];
    void *pushes[LS_MAX_SERVERS];
    size_t bytes = 0;
    ls_batch_view batch;
    for (int s = 0; s < r->schedule.servers; s++)
        bytes += ls_state_shards_push_bytes(r->shards, s);
    g->bytes = malloc(bytes + 1);
    if (!g->bytes)
        return ls_fail(LS_ERR_MEMORY, "no memory for a gradient of %zu bytes", bytes);
    char *at = g->bytes;
    for (int s = 0; s < r->schedule.servers; at += ls_state_shards_push_bytes(r->shards, s++))
        pushes[s] = at;
    LS_TRY(ls_batch_lookahead_get(r->lookahead, g->batch, &batch));
    LS_TRY(put_versions(r, push->read));
    const ls_state_shards_step step = { .settings = &r->setup.settings,
                                        .batch = &batch,
                                        .class_weights = r->options->class_weights,
                                        .run = (uint64_t)push->run };
    LS_TRY(ls_state_shards_gradients(r->shards, &step, pushes, r->results));
    g->samples = batch.samples;
    r->report.gradients++;
    for (int s = 0; s < r->schedule.servers; s++)
        release_version(r, s, push->read[s]);
    return ls_tally_add(&r->tally, r->job, r->setup.function, batch.samples);
}

/* ---- Steps ---- */

static ls_status check_version(replay *r, const ls_replay_schedule_step *step)
{
    const ls_record_push *push = &r->schedule.records[step->server].pushes[step->push];
    char hex[65], where[LS_PUSH_TEXT];
    if (!push->sha256[0])
        return LS_OK;
    LS_TRY(ls_state_shard_sha256(r->shard[step->server], hex));
    if (strcmp(hex, push->sha256) != 0)
        return ls_fail(LS_ERR_DATA,
                       "version %lld of server %d differs: SHA-256 %s here, %s in the %s (batch %lld of epoch %lld, by "
                       "worker %d); all earlier versions are equal",
                       (long long)push->version, step->server, hex, push->sha256,
                       ls_replay_schedule_where(&r->schedule, step->server, step->push, where), (long long)push->batch,
                       (long long)push->epoch, push->worker);
    return keep_version(r, step->server);
}

static ls_status make_step(replay *r, const ls_replay_schedule_step *step)
{
    const ls_record_push *push = &r->schedule.records[step->server].pushes[step->push];
    gradient *g = &r->gradients[step->gradient];
    if (!g->bytes)
        LS_TRY(compute(r, step->gradient));
    const char *bytes = g->bytes;
    for (int s = 0; s < step->server; s++)
        bytes += ls_state_shards_push_bytes(r->shards, s);
    const ls_push apply = { .read = push->read[step->server], .samples = g->samples, .bytes = bytes };
    LS_TRY(ls_state_shard_apply(r->shard[step->server], &apply, push->rate));
    if (--g->uses == 0) {
        free(g->bytes);
        g->bytes = NULL;
    }
    return check_version(r, step);
}

static ls_status make_all(replay *r)
{
    const ls_replay_schedule *s = &r->schedule;
    ls_results results = { .count = 0 };
    char where[LS_PUSH_TEXT];
    ls_progress_open(&r->progress, r->options->output, r->options->verbose);
    ls_progress_begin(&r->progress, (int64_t)s->step_count, 0);
    for (size_t i = 0; i < s->step_count; i++) {
        if (r->options->stop && *r->options->stop) {
            r->report.stopped = true;
            break;
        }
        ls_status status = make_step(r, &s->steps[i]);
        if (status != LS_OK && status != LS_ERR_DATA)
            status =
                ls_fail_within(status, "%s", ls_replay_schedule_where(s, s->steps[i].server, s->steps[i].push, where));
        LS_TRY(status);
        ls_tally_results(&r->tally, r->job, &results);
        ls_progress_step(&r->progress, (int64_t)i + 1, &results);
    }
    if (s->step_count > 0 && !r->report.stopped)
        ls_progress_end(&r->progress, &results, NULL);
    return LS_OK;
}

/* After a failure, the model gets the state from before. */
static ls_status put_states(replay *r, bool good)
{
    for (int s = 0; s < r->schedule.servers; s++) {
        if (good)
            LS_TRY(ls_state_shard_get_state(r->shard[s], r->begin[s]));
        LS_TRY(ls_state_shards_put_state(r->shards, s, r->begin[s]));
    }
    return LS_OK;
}

static ls_status check_call(const ls_model *model, const char *record)
{
    const ls_context *ctx = ls_model_graph((ls_model *)model)->context;
    if (!record)
        return ls_fail(LS_ERR_INVALID, "ls_replay: record is NULL");
    if (ls_cluster_size(ctx) > 1)
        return ls_fail(LS_ERR_STATE, "ls_replay: must run in a single process, but this is one of %d",
                       ls_cluster_size(ctx));
    return LS_OK;
}

ls_status ls_replay_with(ls_model *model, ls_dataset *data, const char *record, ls_fit_options options,
                         ls_replayed *out)
{
    LS_CLAIM(ls_model_claimed(model));
    LS_OWN_FP_MODE;
    replay r = { .options = &options };
    ls_use use;
    LS_TRY(ls_use_begin(&use, model, "ls_replay", true));
    r.job = use.job;
    const ls_position before = r.job->position;
    ls_status status = check_call(model, record);
    if (status == LS_OK)
        status = open_replay(&r, data, record);
    bool opened = status == LS_OK;
    if (opened)
        status = make_all(&r);
    ls_error failure;
    ls_error_keep(&failure, status);
    ls_progress_close(&r.progress);
    if (opened && put_states(&r, status == LS_OK) != LS_OK && status == LS_OK)
        ls_error_keep(&failure, LS_ERR_INTERNAL);
    r.job->position = before;
    close_replay(&r);
    ls_use_end(&use);
    if (failure.status == LS_OK && out)
        *out = r.report;
    return ls_error_give(&failure);
}

ls_status ls_record_own(const char *record, char **out)
{
    ls_record read;
    if (!record || !out)
        return ls_fail(LS_ERR_INVALID, "ls_record_own: record or out is NULL");
    LS_TRY(ls_record_read(record, &read));
    char *text = read.head.own ? json_dumps(read.head.own, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    bool none = !read.head.own;
    ls_record_free(&read);
    if (none)
        return ls_fail(LS_ERR_NOT_FOUND,
                       "record '%s' does not say how to set up its job: replay it with the program that wrote it",
                       record);
    if (!text)
        return ls_fail(LS_ERR_MEMORY, "no memory for the text of record '%s'", record);
    *out = text;
    return LS_OK;
}
