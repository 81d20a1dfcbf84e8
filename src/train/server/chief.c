/* The chief of asynchronous parameter servers. The messenger's thread handles the workers' messages
 * and hands out the next batch at once (batch_queue.c); the caller's thread computes batches, too,
 * and handles the servers' messages. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/grow.h"
#include "fabric/start/launcher.h"
#include "nn/model.h"
#include "train/server/batch_queue.h"
#include "train/server/servers.h"
#include "train/job/job.h"
#include "train/job/results.h"
#include "train/job/step.h"
#include "train/server/journal.h"
#include "train/server/record.h"
#include "train/server/shards.h"

#define LATE_LIMIT   2.0 /* seconds to wait at the end for processes not met */
#define RESCUE_LIMIT 5.0 /* seconds to wait for the states after a failure */

typedef struct server_seen {
    bool connected, had_state, has_state;
    double lost_at;
} server_seen;

struct ls_chief {
    ls_server_session *session;
    ls_batch_queue *queue;
    ls_worker *worker;
    char id[LS_RUN_ID];
    int64_t steps; /* batches per epoch */
    ls_position start;
    uint64_t start_run;       /* random counter of the first batch */
    int64_t start_step;       /* gradients applied at the start */
    int64_t first;            /* ordinal of the first batch */
    double rate;              /* last one sent; NAN: none was set */
    bool met[LS_MAX_CLUSTER]; /* by rank */
    bool failed;
    bool watched; /* callbacks may change the model after each batch */
    int64_t asks; /* requests to its own queue */
    server_seen seen[LS_MAX_SERVERS];
    pthread_mutex_t mutex;
    /* The mutex protects these: */
    ls_chief_done *done; /* finished batches, in order of arrival */
    size_t done_count, done_room;
    bool lost_results; /* for lack of memory */
    int64_t finished;  /* batches of this fit that were taken from the list */
    /* Batches that a lost server had applied at least. */
    int64_t acknowledged[LS_MAX_SERVERS];
};

/* ---- Positions of batches ---- */

/* With steps_per_epoch passes follow each other; otherwise each epoch is a pass. */
static ls_ps_take find_batch(const ls_chief *c, int64_t ordinal)
{
    int64_t since = ordinal - c->first, batches = c->session->data->steps;
    ls_ps_take b = { .ordinal = ordinal,
                     .epoch = ordinal / c->steps,
                     .batch = ordinal % c->steps,
                     .run = (int64_t)c->start_run + since };
    if (c->session->options->steps_per_epoch == 0) {
        b.pass = b.epoch;
        b.pass_batch = b.batch;
    } else {
        int64_t taken = c->start.batch + since;
        b.pass = c->start.pass + (batches > 0 ? taken / batches : 0);
        b.pass_batch = batches > 0 ? taken % batches : taken;
    }
    return b;
}

/* Called with the queue's mutex held. The batch of a lost worker returns to the queue. */
static void give(void *user, int rank, int64_t ordinal)
{
    ls_chief *c = user;
    const ls_ps_message message = { .rank = rank, .kind = LS_PS_TAKE, .take = find_batch(c, ordinal) };
    if (rank == c->session->cluster.rank)
        ls_worker_take(c->worker, &message.take);
    else
        (void)ls_server_session_send(c->session, &message);
}

/* ---- Messages of workers ---- */

static void note_done(ls_chief *c, int rank, const ls_ps_done *done, ls_payload *results)
{
    if (!ls_batch_queue_done(c->queue, rank, done->ordinal)) {
        ls_payload_drop(results);
        return;
    }
    pthread_mutex_lock(&c->mutex);
    if (ls_grow(&c->done, c->done_count, &c->done_room, sizeof(*c->done)) == LS_OK)
        c->done[c->done_count++] =
            (ls_chief_done){ .samples = done->samples, .lanes = (int)done->lanes, .results = results };
    else {
        ls_payload_drop(results);
        c->lost_results = true;
    }
    pthread_mutex_unlock(&c->mutex);
    ls_worker_wake(c->worker);
}

static void ask_itself(void *user)
{
    ls_chief *c = user;
    (void)ls_batch_queue_ask(c->queue, c->session->cluster.rank, ++c->asks);
}

static void report_to_itself(void *user, const ls_ps_done *done, ls_payload *results)
{
    ls_chief *c = user;
    note_done(c, c->session->cluster.rank, done, results);
}

static bool handle_worker(ls_chief *c, ls_ps_message *message)
{
    size_t bytes = message->body ? ls_payload_size(message->body) : 0;
    if (message->kind == LS_PS_ASK)
        (void)ls_batch_queue_ask(c->queue, message->rank, message->ask.number);
    else if (message->kind == LS_MESSAGE_LOST)
        ls_batch_queue_lose(c->queue, message->rank);
    else if (message->kind == LS_PS_DONE && bytes == ls_results_count(c->session->job) * sizeof(double)) {
        note_done(c, message->rank, &message->done, message->body);
        message->body = NULL;
    } else
        return message->kind != LS_MESSAGE_MET && message->kind != LS_PS_FAIL;
    return message->kind != LS_MESSAGE_LOST; /* the caller's thread logs the loss */
}

/* A server's connection or loss concerns both the worker and the chief. */
static bool handle(void *user, ls_ps_message *message)
{
    ls_chief *c = user;
    bool taken;
    if (ls_server_session_is_server(c->session, message->rank)) {
        if (message->kind == LS_MESSAGE_LOST) {
            pthread_mutex_lock(&c->mutex);
            c->acknowledged[message->rank - c->session->first_server] = c->finished + (int64_t)c->done_count;
            pthread_mutex_unlock(&c->mutex);
        }
        bool both = message->kind == LS_MESSAGE_MET || message->kind == LS_MESSAGE_LOST;
        taken = ls_worker_handle(c->worker, message) && !both;
    } else {
        taken = handle_worker(c, message);
        if (taken)
            ls_payload_drop(message->body);
    }
    if (!taken)
        ls_worker_wake(c->worker);
    return taken;
}

/* ---- Messages of servers ---- */

static ls_status send_rate(ls_chief *c, int server)
{
    return ls_server_session_send(
        c->session,
        &(ls_ps_message){ .rank = c->session->first_server + server, .kind = LS_PS_RATE, .rate = { c->rate } });
}

static ls_status send_state(ls_chief *c, int server)
{
    ls_server_session *v = c->session;
    ls_ps_message message = { .rank = v->first_server + server, .kind = LS_PS_GIVE, .give = { c->first } };
    LS_TRY(ls_payload_make(ls_state_shards_state_bytes(v->shards, server), &message.body));
    ls_status status = ls_state_shards_get_state(v->shards, server, ls_payload_bytes(message.body));
    if (status == LS_OK)
        status = ls_server_session_send(v, &message);
    ls_payload_drop(message.body);
    return status;
}

static ls_status handle_have(ls_chief *c, int server, const ls_ps_message *message)
{
    server_seen *seen = &c->seen[server];
    seen->has_state = message->have.state == 1;
    LS_TRY(send_rate(c, server));
    pthread_mutex_lock(&c->mutex);
    int64_t known = c->start_step + c->acknowledged[server];
    pthread_mutex_unlock(&c->mutex);
    if (seen->has_state && message->have.pushes < known)
        return ls_fail(LS_ERR_PEER,
                       "server %d restarted with %" PRId64 " gradients applied, but had acknowledged %" PRId64
                       ": its journal is incomplete; start the job again with --resume from its last checkpoint",
                       server, message->have.pushes, known);
    if (seen->has_state) {
        seen->had_state = true;
        return LS_OK;
    }
    if (!seen->had_state)
        return send_state(c, server);
    return ls_fail(LS_ERR_PEER,
                   "server %d restarted without its state: give servers a folder for a journal (--journal or "
                   "LOCKSTEP_JOURNAL), and start the job again with --resume from its last checkpoint",
                   server);
}

static ls_status handle_server(ls_chief *c, const ls_ps_message *message)
{
    int server = message->rank - c->session->first_server;
    server_seen *seen = &c->seen[server];
    if (message->kind == LS_MESSAGE_MET) {
        seen->connected = true;
        return ls_server_session_send_text(c->session, &(ls_ps_message){ .rank = message->rank, .kind = LS_PS_BEGIN },
                                           c->id);
    }
    if (message->kind == LS_MESSAGE_LOST) {
        *seen = (server_seen){ .had_state = seen->had_state, .lost_at = ls_clock_now() };
        ls_log_write(c->session->log, LS_LOG_WARNING, "server %d is lost (%s); the others wait until it restarts",
                     server, message->text);
    }
    return message->kind == LS_PS_HAVE ? handle_have(c, server, message) : LS_OK;
}

static ls_status handle_message(ls_chief *c, const ls_ps_message *message)
{
    c->met[message->rank] |= message->kind == LS_MESSAGE_MET;
    if (message->kind == LS_MESSAGE_REFUSED)
        return ls_fail(LS_ERR_PEER, "process %d refused the chief: %s", message->rank, message->text);
    if (message->kind == LS_PS_FAIL && c->failed)
        return LS_OK;
    if (message->kind == LS_PS_FAIL) {
        ls_status status = ls_server_session_failure(message);
        int server = message->rank - c->session->first_server;
        bool serves = ls_server_session_is_server(c->session, message->rank);
        return ls_fail_within(status, "%s %d", serves ? "server" : "worker", serves ? server : message->rank);
    }
    if (ls_server_session_is_server(c->session, message->rank))
        return handle_server(c, message);
    if (message->kind == LS_MESSAGE_MET)
        ls_log_write(c->session->log, LS_LOG_INFO, "worker %d is connected", message->rank);
    if (message->kind == LS_MESSAGE_LOST)
        ls_log_write(c->session->log, LS_LOG_WARNING, "worker %d is lost (%s); the others continue", message->rank,
                     message->text);
    return LS_OK;
}

static ls_status look_for_servers(const ls_chief *c)
{
    const ls_cluster_options *o = &c->session->cluster;
    double limit = o->join_limit > 0 ? o->join_limit : LS_JOIN_LIMIT;
    char why[LS_MESSENGER_WHY];
    for (int i = 0; i < c->session->servers; i++) {
        if (c->seen[i].connected)
            continue;
        if (ls_launcher_has_seen_end(o, c->session->first_server + i))
            return ls_fail(LS_ERR_PEER, "server %d %s, and will not be restarted", i,
                           c->seen[i].had_state ? "was lost" : "ended before it connected");
        if (ls_clock_now() - c->seen[i].lost_at <= limit) {
            snprintf(why, sizeof(why), "server %d", i);
            ls_server_session_log_missing(c->session, why, c->seen[i].lost_at);
            continue;
        }
        ls_messenger_why(c->session->messenger, why);
        return ls_fail(LS_ERR_PEER, "server %d %s within %.3g s (LOCKSTEP_JOIN_LIMIT)%s", i,
                       c->seen[i].had_state ? "was lost and did not restart" : "did not connect", limit, why);
    }
    return LS_OK;
}

/* Keeps whole states in `states`, if not NULL. */
static ls_status handle_messages(ls_chief *c, double seconds, ls_ps_message *states)
{
    ls_ps_message message;
    bool got = true;
    LS_TRY(ls_server_session_receive(c->session, seconds, &message, &got));
    while (got) {
        int server = message.rank - c->session->first_server;
        bool whole = message.kind == LS_PS_SHARD && message.shard.whole == 1 && message.body && states &&
                     ls_payload_size(message.body) == ls_state_shards_state_bytes(c->session->shards, server);
        ls_status status = LS_OK;
        if (whole) {
            ls_payload_drop(states[server].body);
            states[server] = message;
        } else {
            status = handle_message(c, &message);
            ls_payload_drop(message.body);
        }
        LS_TRY(status);
        LS_TRY(ls_server_session_receive(c->session, 0, &message, &got));
    }
    return look_for_servers(c);
}

/* ---- Opening ---- */

static ls_status make_id(char id[LS_RUN_ID], int64_t *run)
{
    unsigned char random[(LS_RUN_ID - 1) / 2];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return ls_fail(LS_ERR_IO, "cannot get random bytes for the id of this run");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(id + 2 * i, 3, "%02x", random[i]);
    memcpy(run, random, sizeof(*run));
    *run |= 1; /* 0 means unknown */
    return LS_OK;
}

static bool all_have(const ls_chief *c)
{
    bool all = true;
    for (int i = 0; i < c->session->servers; i++)
        all &= c->seen[i].has_state;
    return all;
}

static ls_status open_chief(ls_chief *c)
{
    ls_server_session *v = c->session;
    const ls_batch_source source = { .ask = ask_itself, .done = report_to_itself, .user = c };
    LS_TRY(make_id(c->id, &v->run));
    LS_TRY(ls_worker_make(v, source, &c->worker));
    LS_TRY(ls_batch_queue_make(LS_MAX_CLUSTER, c->first, give, c, &c->queue));
    LS_TRY(ls_server_session_open(v, handle, c));
    while (!all_have(c))
        LS_TRY(handle_messages(c, 0.1, NULL));
    return LS_OK;
}

ls_status ls_chief_open(ls_server_session *session, int64_t steps, ls_chief **out)
{
    ls_chief *c = calloc(1, sizeof(*c));
    const ls_job *job = session->job;
    if (!c)
        return ls_fail(LS_ERR_MEMORY, "no memory for the chief of parameter servers");
    *c = (ls_chief){ .session = session,
                     .steps = steps,
                     .start = job->position,
                     .start_run = ls_model_graph(job->model)->step,
                     .first = job->position.epoch * steps + job->position.step,
                     .rate = job->rate };
    pthread_mutex_init(&c->mutex, NULL);
    for (int i = 0; i < LS_MAX_SERVERS; i++)
        c->seen[i].lost_at = ls_clock_now();
    for (size_t i = 0; i < session->options->callback_count; i++)
        c->watched |= session->options->callbacks[i].on_batch_begin || session->options->callbacks[i].on_batch_end;
    *out = c; /* on failure, too (servers.h) */
    ls_launcher_report_chief(&session->cluster);
    LS_TRY(ls_job_step(job, &c->start_step));
    return open_chief(c);
}

/* ---- Batches ---- */

void ls_chief_allow(ls_chief *c, int64_t batches)
{
    ls_batch_queue_set_limit(c->queue, c->first + batches);
}

int64_t ls_chief_stop(ls_chief *c)
{
    return ls_batch_queue_stop(c->queue) - c->first;
}

static ls_status take_done(ls_chief *c, ls_chief_done *out, bool *got)
{
    pthread_mutex_lock(&c->mutex);
    bool any = c->done_count > 0, lost_results = c->lost_results;
    if (any) {
        *out = c->done[0];
        memmove(c->done, c->done + 1, --c->done_count * sizeof(*c->done));
        c->finished++;
    }
    pthread_mutex_unlock(&c->mutex);
    *got = any;
    return lost_results ? ls_fail(LS_ERR_MEMORY, "no memory for the results of a batch") : LS_OK;
}

static ls_status send_new_rate(ls_chief *c)
{
    double rate = c->session->job->rate;
    if (rate == c->rate || (isnan(rate) && isnan(c->rate)))
        return LS_OK;
    c->rate = rate;
    for (int i = 0; i < c->session->servers; i++)
        LS_TRY(send_rate(c, i));
    return LS_OK;
}

static ls_status next_done(ls_chief *c, ls_chief_done *out)
{
    bool got = false;
    if (c->watched)
        ls_worker_forget(c->worker);
    LS_TRY(send_new_rate(c));
    LS_TRY(take_done(c, out, &got));
    while (!got) {
        LS_TRY(handle_messages(c, 0, NULL));
        LS_TRY(ls_worker_step(c->worker, 0.2));
        LS_TRY(take_done(c, out, &got));
    }
    return LS_OK;
}

ls_status ls_chief_next(ls_chief *c, ls_chief_done *out)
{
    ls_status status = next_done(c, out);
    c->failed |= status != LS_OK;
    return status;
}

/* ---- The whole state ---- */

static ls_status ask_for_states(ls_chief *c, ls_ps_message *states, double limit)
{
    double again = 0, end = ls_clock_now() + limit;
    for (int missing = 1; missing > 0;) {
        double now = ls_clock_now();
        if (now > end)
            return ls_fail(LS_ERR_PEER, "the states of %d servers did not arrive within %.3g s", missing, limit);
        missing = 0;
        for (int i = 0; i < c->session->servers; i++) {
            if (states[i].body)
                continue;
            missing++;
            if (now >= again)
                LS_TRY(ls_server_session_send(c->session,
                                              &(ls_ps_message){ .rank = c->session->first_server + i,
                                                                .kind = LS_PS_PULL,
                                                                .pull = { .ordinal = -1, .held = -1, .whole = 1 } }));
        }
        if (now >= again)
            again = now + 1;
        if (missing > 0)
            LS_TRY(handle_messages(c, 0.2, states));
    }
    return LS_OK;
}

static ls_status put_states(ls_chief *c, const ls_ps_message *states)
{
    /* Averages between two versions belong to neither, and callbacks may run next. */
    ls_worker_forget(c->worker);
    for (int i = 0; i < c->session->servers; i++)
        LS_TRY(ls_state_shards_put_state(c->session->shards, i, ls_payload_bytes(states[i].body)));
    return LS_OK;
}

ls_status ls_chief_collect_state(ls_chief *c, bool anyway)
{
    ls_ps_message states[LS_MAX_SERVERS] = { { .kind = 0 } };
    ls_position *at = &c->session->job->position;
    ls_status status = LS_OK;
    if (anyway ? !all_have(c) : !ls_batch_queue_is_done(c->queue))
        status = ls_fail(LS_ERR_INTERNAL, "not all servers have a state, or batches are still being computed");
    if (status == LS_OK)
        status = ask_for_states(c, states, anyway ? RESCUE_LIMIT : INFINITY);
    if (status == LS_OK)
        status = put_states(c, states);
    for (int i = 0; i < c->session->servers; i++)
        ls_payload_drop(states[i].body);
    LS_TRY(status);
    const ls_ps_take next = find_batch(c, c->first + c->finished);
    ls_model_graph(c->session->job->model)->step = (uint64_t)next.run;
    if (c->session->options->steps_per_epoch > 0) {
        at->pass = next.pass;
        at->batch = next.pass_batch;
    }
    return LS_OK;
}

/* ---- Closing ---- */

static ls_status send_final(ls_chief *c)
{
    ls_server_session *v = c->session;
    for (int i = 0; i < v->servers; i++) {
        ls_ps_message message = { .kind = LS_PS_FINAL, .final = { i } };
        LS_TRY(ls_payload_make(ls_state_shards_state_bytes(v->shards, i), &message.body));
        ls_status status = ls_state_shards_get_state(v->shards, i, ls_payload_bytes(message.body));
        for (int r = 1; r < v->cluster.size && status == LS_OK; r++) {
            message.rank = r;
            status = ls_server_session_send(v, &message);
        }
        ls_payload_drop(message.body);
        LS_TRY(status);
    }
    return LS_OK;
}

/* Late processes must learn that the job is over. */
static void wait_for_late_processes(ls_chief *c)
{
    const ls_cluster_options *o = &c->session->cluster;
    double end = ls_clock_now() + LATE_LIMIT;
    for (int missing = 1; missing > 0 && ls_clock_now() < end;) {
        missing = 0;
        for (int r = 1; r < (o->begin > 0 ? o->begin : o->size); r++)
            missing += !c->met[r];
        if (missing > 0 && handle_messages(c, 0.05, NULL) != LS_OK)
            ls_clear_error();
    }
}

void ls_chief_close(ls_chief *c, ls_status status, const char *why)
{
    if (!c)
        return;
    ls_server_session *v = c->session;
    if (v->messenger)
        wait_for_late_processes(c);
    if (v->messenger && status == LS_OK && send_final(c) != LS_OK)
        ls_clear_error();
    for (int r = 1; v->messenger && r < v->cluster.size; r++)
        if (ls_server_session_send_text(v, &(ls_ps_message){ .rank = r, .kind = LS_PS_OVER, .over = { status } },
                                        why) != LS_OK)
            ls_clear_error();
    ls_server_session_close(v);
    ls_worker_free(c->worker);
    ls_batch_queue_free(c->queue);
    for (size_t i = 0; i < c->done_count; i++)
        ls_payload_drop(c->done[i].results);
    free(c->done);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}
