/* Code that all roles of parameter servers share (servers.h). */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "base/text.h"
#include "fabric/mesh/cluster.h"
#include "fabric/start/launcher.h"
#include "lockstep/run.h"
#include "nn/model.h"
#include "train/server/servers.h"
#include "train/checkpoint/compare_workers.h"
#include "train/job/results.h"
#include "train/server/shards.h"

bool ls_server_session_is(const ls_context *ctx, const ls_strategy *strategy)
{
    return strategy->kind == LS_STRATEGY_PARAMETER_SERVER && strategy->staleness > 0 && ls_cluster_servers(ctx) > 0;
}

/* Describes everything that must be equal in all processes. */
static ls_status describe(const ls_server_session *s, char **out)
{
    ls_context *ctx = ls_model_graph(s->job->model)->context;
    const ls_strategy *strategy = &s->options->strategy;
    ls_text text = { 0 };
    char *job = NULL, *bits = NULL, hex[65];
    LS_TRY(ls_workers_describe(s->job, &job));
    ls_status status = ls_sha256_of(job, strlen(job), hex);
    free(job);
    LS_TRY(status);
    LS_TRY(ls_bit_class(ctx, &bits));
    ls_text_add(&text, "library %s; %s; servers %d; staleness %lld%s; job and data %.16s", LS_VERSION, bits, s->servers,
                (long long)strategy->staleness, strategy->scale_by_staleness ? "; rates scaled by staleness" : "", hex);
    free(bits);
    return ls_text_take(&text, out);
}

static size_t largest_body(const ls_server_session *s)
{
    size_t most = 65536 + sizeof(double) * ls_results_count(s->job);
    for (int i = 0; i < s->servers; i++) {
        size_t push = ls_state_shards_push_bytes(s->shards, i) + s->reads_bytes,
               state = ls_state_shards_state_bytes(s->shards, i);
        most = push > most ? push : most;
        most = state > most ? state : most;
    }
    return most;
}

static bool handle(void *user, ls_message *received)
{
    ls_server_session *s = user;
    ls_ps_message message = ls_ps_read(received);
    return s->handle(s->user, &message);
}

ls_status ls_server_session_open(ls_server_session *s, bool (*handler)(void *user, ls_ps_message *message), void *user)
{
    ls_context *ctx = ls_model_graph(s->job->model)->context;
    char *about = NULL;
    LS_TRY(ls_cluster_go_apart(ctx, &s->cluster, &s->number));
    s->log = &ctx->log;
    s->servers = s->cluster.servers;
    s->first_server = (s->cluster.begin > 0 ? s->cluster.begin : s->cluster.size) - s->servers;
    s->reads_bytes = ((size_t)s->servers * sizeof(int64_t) + 63) / 64 * 64;
    LS_TRY(ls_state_shards_make(s->job, s->function, s->servers, &s->shards));
    LS_TRY(describe(s, &about));
    ls_messenger_options o = { .cluster = &s->cluster,
                               .number = s->number,
                               .about = about,
                               .most = largest_body(s),
                               .hear = handler ? handle : NULL,
                               .user = s,
                               .log = s->log };
    s->handle = handler;
    s->user = user;
    const ls_message hello = ls_ps_write(&(ls_ps_message){ .kind = LS_MESSAGE_MET, .met = { s->run } });
    memcpy(o.hello, hello.numbers, sizeof(o.hello));
    /* Two simultaneous connections of a pair would close each other. */
    bool chief = s->cluster.rank == 0, server = ls_server_session_is_server(s, s->cluster.rank);
    o.calls[0] = !chief;
    for (int i = 0; i < s->servers && !chief && !server; i++)
        o.calls[s->first_server + i] = true;
    ls_status status = ls_messenger_open(&o, &s->messenger);
    free(about);
    return status;
}

void ls_server_session_close(ls_server_session *s)
{
    ls_messenger_close(s->messenger);
    ls_state_shards_free(s->shards);
    s->messenger = NULL;
    s->shards = NULL;
}

ls_status ls_server_session_meet_chief(ls_server_session *s, const ls_ps_message *met)
{
    if (s->run != 0 && s->run != met->met.run)
        return ls_fail(LS_ERR_PEER, "the chief (worker 0) restarted and began another run, without this process: start "
                                    "this process again, too");
    s->run = met->met.run;
    return LS_OK;
}

void ls_server_session_log_missing(ls_server_session *s, const char *who, double since)
{
    double now = ls_clock_now(), limit = s->cluster.join_limit > 0 ? s->cluster.join_limit : LS_JOIN_LIMIT;
    if (!ls_log_wait_is_due(&s->log_at, since, now))
        return;
    ls_log_write(s->log, LS_LOG_WARNING,
                 "process %d of job \"%s\" has waited %.0f of %g s for %s (LOCKSTEP_JOIN_LIMIT)", s->cluster.rank,
                 s->cluster.job, now - since, limit, who);
}

ls_status ls_server_session_check_chief(ls_server_session *s, bool met, double lost_at)
{
    double join = s->cluster.join_limit > 0 ? s->cluster.join_limit : LS_JOIN_LIMIT;
    double limit = met ? LS_CHIEF_GRACE : join;
    char why[LS_MESSENGER_WHY];
    bool gone = ls_launcher_has_seen_end(&s->cluster, 0);
    if (!gone && ls_clock_now() - lost_at <= limit) {
        ls_server_session_log_missing(s, "the chief (worker 0)", lost_at);
        return LS_OK;
    }
    if (met)
        return ls_fail(
            LS_ERR_PEER,
            "the chief (worker 0) was lost, which ends the job: start it again with --resume from its last checkpoint");
    if (gone)
        return ls_fail(LS_ERR_PEER,
                       "the chief (worker 0) of job \"%s\" ended before it connected, and will not be restarted",
                       s->cluster.job);
    ls_messenger_why(s->messenger, why);
    return ls_fail(LS_ERR_PEER,
                   "the chief (worker 0) of job \"%s\" did not connect within %.3g s (LOCKSTEP_JOIN_LIMIT)%s",
                   s->cluster.job, limit, why);
}

ls_status ls_server_session_send(ls_server_session *s, const ls_ps_message *message)
{
    const ls_message out = ls_ps_write(message);
    return ls_messenger_send(s->messenger, &out);
}

ls_status ls_server_session_receive(ls_server_session *s, double seconds, ls_ps_message *out, bool *got)
{
    ls_message received;
    LS_TRY(ls_messenger_receive(s->messenger, seconds, &received, got));
    if (*got)
        *out = ls_ps_read(&received);
    return LS_OK;
}

ls_status ls_server_session_send_text(ls_server_session *s, const ls_ps_message *message, const char *text)
{
    ls_ps_message full = *message;
    LS_TRY(ls_payload_make(strlen(text), &full.body));
    memcpy(ls_payload_bytes(full.body), text, strlen(text));
    ls_status status = ls_server_session_send(s, &full);
    ls_payload_drop(full.body);
    return status;
}

ls_status ls_server_session_take_final(const ls_server_session *s, const ls_ps_message *message)
{
    int64_t server = message->final.server;
    if (!message->body || server < 0 || server >= s->servers ||
        ls_payload_size(message->body) != ls_state_shards_state_bytes(s->shards, (int)server))
        return LS_OK;
    return ls_state_shards_put_state(s->shards, (int)server, ls_payload_bytes(message->body));
}

/* FAIL and OVER have the same fields. */
ls_status ls_server_session_failure(const ls_ps_message *message)
{
    char text[1024];
    int64_t status = message->fail.status;
    size_t bytes = message->body ? ls_payload_size(message->body) : 0;
    if (status == LS_OK)
        return LS_OK;
    snprintf(text, sizeof(text), "%.*s", (int)(bytes < 1000 ? bytes : 1000),
             message->body ? (const char *)ls_payload_bytes(message->body) : "");
    ls_make_printable(text, strlen(text));
    bool known = status > 0 && status <= LS_ERR_INTERNAL;
    return ls_fail(known ? (ls_status)status : LS_ERR_PEER, "%s", text);
}
