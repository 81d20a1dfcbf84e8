/* A worker of asynchronous parameter servers. The messenger's thread handles answers
 * (ls_worker_handle) and sends the next messages at once; the caller's thread computes
 * (ls_worker_step). Each batch in progress has a *slot*: one, or two with overlap, so that one
 * batch is computed while another is pulled or pushed.
 *
 * A batch pulls from one server at a time, in order, to avoid deadlocks: a worker that has read
 * server 0 may wait for server 1, but the workers it waits for never wait for server 0. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "nn/model.h"
#include "train/server/servers.h"
#include "train/job/passes.h"
#include "train/job/results.h"
#include "train/job/step.h"
#include "train/server/record.h"
#include "train/server/shards.h"

#define MOST_SLOTS 2

typedef enum slot_state { FREE, ASKED, READING, READY, COMPUTING, PUSHING } slot_state;

typedef struct slot {
    slot_state state;
    ls_ps_take batch;
    int server; /* being pulled from */
    int64_t versions[LS_MAX_SERVERS];
    ls_payload *weights[LS_MAX_SERVERS]; /* weights of these versions; NULL: held already */
    ls_payload *push[LS_MAX_SERVERS];
    bool acked[LS_MAX_SERVERS];
    ls_payload *results;
    int64_t samples;
    int lanes;
} slot;

struct ls_worker {
    ls_server_session *session;
    ls_batch_source source;
    pthread_mutex_t mutex;
    pthread_cond_t change;
    bool woken;
    slot slots[MOST_SLOTS];
    int slot_count;
    /* Versions that the model has, or gets before the next computation; -1: none. */
    int64_t held[LS_MAX_SERVERS];
    /* Position in the data. */
    bool in_pass;
    int64_t pass, next;
};

/* ---- Slots ---- */

static void clear_push(ls_worker *w, slot *s)
{
    for (int i = 0; i < w->session->servers; i++) {
        ls_payload_drop(s->weights[i]);
        ls_payload_drop(s->push[i]);
        s->weights[i] = s->push[i] = NULL;
        s->acked[i] = false;
    }
    ls_payload_drop(s->results);
    s->results = NULL;
}

static slot *find(ls_worker *w, slot_state state)
{
    for (int i = 0; i < w->slot_count; i++)
        if (w->slots[i].state == state)
            return &w->slots[i];
    return NULL;
}

static slot *find_batch(ls_worker *w, slot_state state, int64_t ordinal)
{
    for (int i = 0; i < w->slot_count; i++)
        if (w->slots[i].state == state && w->slots[i].batch.ordinal == ordinal)
            return &w->slots[i];
    return NULL;
}

static ls_status send_pull(ls_worker *w, const slot *s)
{
    return ls_server_session_send(
        w->session, &(ls_ps_message){ .rank = w->session->first_server + s->server,
                                      .kind = LS_PS_PULL,
                                      .pull = { .ordinal = s->batch.ordinal, .held = w->held[s->server] } });
}

static ls_status send_push(ls_worker *w, const slot *s, int server)
{
    const ls_ps_take *b = &s->batch;
    return ls_server_session_send(w->session, &(ls_ps_message){ .rank = w->session->first_server + server,
                                                                .kind = LS_PS_PUSH,
                                                                .push = { .ordinal = b->ordinal,
                                                                          .epoch = b->epoch,
                                                                          .batch = b->batch,
                                                                          .run = b->run,
                                                                          .samples = s->samples },
                                                                .body = s->push[server] });
}

static void begin_reading(ls_worker *w, slot *s)
{
    clear_push(w, s);
    s->state = READING;
    s->server = 0;
    (void)send_pull(w, s); /* repeated when the server reconnects */
}

/* ---- Messages, in the messenger's thread ---- */

static void handle_shard(ls_worker *w, ls_ps_message *message)
{
    int server = message->rank - w->session->first_server;
    slot *s = find_batch(w, READING, message->shard.ordinal);
    size_t bytes = message->body ? ls_payload_size(message->body) : 0;
    if (!s || s->server != server || (bytes != 0 && bytes != ls_state_shards_weight_bytes(w->session->shards, server)))
        return;
    s->versions[server] = message->shard.version;
    s->weights[server] = message->body;
    message->body = NULL;
    if (++s->server < w->session->servers) {
        (void)send_pull(w, s);
        return;
    }
    s->state = READY;
    pthread_cond_broadcast(&w->change);
}

/* Returns true when all servers have acknowledged; *done then owns the results. */
static bool handle_ack(ls_worker *w, const ls_ps_message *message, slot *done)
{
    slot *s = find_batch(w, PUSHING, message->ack.ordinal);
    bool all = s != NULL;
    if (s)
        s->acked[message->rank - w->session->first_server] = true;
    for (int i = 0; s && i < w->session->servers; i++)
        all &= s->acked[i];
    if (!all)
        return false;
    *done = *s;
    s->results = NULL;
    clear_push(w, s);
    s->state = FREE;
    pthread_cond_broadcast(&w->change);
    return true;
}

/* A server that reconnects has forgotten pulls, and may have lost pushes. */
static void repeat_messages(ls_worker *w, int server)
{
    for (int i = 0; i < w->slot_count; i++) {
        const slot *s = &w->slots[i];
        if (s->state == READING && s->server == server)
            (void)send_pull(w, s);
        if (s->state == PUSHING && !s->acked[server])
            (void)send_push(w, s, server);
    }
}

bool ls_worker_handle(ls_worker *w, ls_ps_message *message)
{
    slot done = { .state = FREE };
    bool all = false, taken = true;
    pthread_mutex_lock(&w->mutex);
    bool server = ls_server_session_is_server(w->session, message->rank);
    slot *again = message->kind == LS_PS_AGAIN ? find_batch(w, PUSHING, message->again.ordinal) : NULL;
    if (server && message->kind == LS_PS_SHARD && message->shard.whole == 0)
        handle_shard(w, message);
    else if (server && message->kind == LS_PS_ACK)
        all = handle_ack(w, message, &done);
    else if (server && message->kind == LS_PS_AGAIN && again)
        begin_reading(w, again);
    else if (server && message->kind == LS_MESSAGE_MET)
        repeat_messages(w, message->rank - w->session->first_server);
    else
        taken = message->kind == LS_PS_AGAIN;
    pthread_mutex_unlock(&w->mutex);
    if (all)
        w->source.done(w->source.user, &(ls_ps_done){ done.batch.ordinal, done.samples, done.lanes }, done.results);
    if (taken)
        ls_payload_drop(message->body);
    return taken;
}

void ls_worker_take(ls_worker *w, const ls_ps_take *batch)
{
    pthread_mutex_lock(&w->mutex);
    slot *s = find(w, ASKED);
    if (s) {
        s->batch = *batch;
        begin_reading(w, s);
    }
    pthread_mutex_unlock(&w->mutex);
}

void ls_worker_wake(ls_worker *w)
{
    pthread_mutex_lock(&w->mutex);
    w->woken = true;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->mutex);
}

static void hold_nothing(ls_worker *w)
{
    for (int i = 0; i < LS_MAX_SERVERS; i++)
        w->held[i] = -1;
}

void ls_worker_forget(ls_worker *w)
{
    pthread_mutex_lock(&w->mutex);
    hold_nothing(w);
    pthread_mutex_unlock(&w->mutex);
}

/* ---- Computing ---- */

static ls_status find_rows(ls_worker *w, const slot *s, ls_batch_view *batch)
{
    int64_t pass = s->batch.pass, at = s->batch.pass_batch;
    bool end = false;
    if (!w->in_pass || w->pass != pass || at < w->next) {
        LS_TRY(ls_passes_begin(w->session->data, (uint64_t)pass));
        w->in_pass = true;
        w->pass = pass;
        w->next = 0;
    }
    for (; w->next <= at && !end; w->next++)
        LS_TRY(ls_passes_next(w->session->data, batch, &end));
    if (!end)
        return LS_OK;
    w->in_pass = false;
    return ls_fail(LS_ERR_DATA, "there is no batch %" PRId64 " in pass %" PRId64 " over the data", at, pass);
}

static ls_status make_payloads(ls_worker *w, slot *s, void **pushes)
{
    const ls_server_session *v = w->session;
    LS_TRY(ls_payload_make(sizeof(double) * ls_results_count(v->job), &s->results));
    for (int i = 0; i < v->servers; i++) {
        LS_TRY(ls_payload_make(v->reads_bytes + ls_state_shards_push_bytes(v->shards, i), &s->push[i]));
        char *bytes = ls_payload_bytes(s->push[i]);
        memset(bytes, 0, v->reads_bytes);
        memcpy(bytes, s->versions, (size_t)v->servers * sizeof(int64_t));
        pushes[i] = bytes + v->reads_bytes;
    }
    return LS_OK;
}

static ls_status compute(ls_worker *w, slot *s)
{
    const ls_server_session *v = w->session;
    void *pushes[LS_MAX_SERVERS];
    ls_batch_view batch = { .samples = 0 };
    for (int i = 0; i < v->servers; i++)
        if (s->weights[i])
            LS_TRY(ls_state_shards_put_weights(v->shards, i, ls_payload_bytes(s->weights[i])));
    double start = ls_clock_now();
    LS_TRY(find_rows(w, s, &batch));
    double found = ls_clock_now();
    LS_TRY(make_payloads(w, s, pushes));
    const ls_state_shards_step step = { .settings = v->settings,
                                        .batch = &batch,
                                        .class_weights = v->options->class_weights,
                                        .run = (uint64_t)s->batch.run };
    LS_TRY(ls_state_shards_gradients(v->shards, &step, pushes, ls_payload_bytes(s->results)));
    v->job->times.data += found - start;
    v->job->times.compute += ls_clock_now() - found;
    s->samples = batch.samples;
    s->lanes = v->job->used_lanes;
    return LS_OK;
}

static ls_status compute_and_push(ls_worker *w, slot *s)
{
    ls_status status = compute(w, s);
    if (status == LS_ERR_NOT_FINITE || status == LS_ERR_DEVICE)
        status = ls_fail_within(status, "batch %" PRId64 " of epoch %" PRId64, s->batch.batch + 1, s->batch.epoch + 1);
    LS_TRY(status);
    pthread_mutex_lock(&w->mutex);
    s->state = PUSHING;
    for (int i = 0; i < w->session->servers && status == LS_OK; i++)
        status = send_push(w, s, i);
    pthread_mutex_unlock(&w->mutex);
    return status;
}

/* At most one batch is requested or pulled at a time. */
static bool may_ask(ls_worker *w)
{
    return find(w, FREE) && !find(w, ASKED) && !find(w, READING) && !find(w, READY);
}

/* Pulls again if a server sent no weights for a version that the model has lost since. */
static slot *find_ready(ls_worker *w)
{
    for (slot *s; (s = find(w, READY)) != NULL; begin_reading(w, s)) {
        bool complete = true;
        for (int i = 0; i < w->session->servers; i++)
            complete &= s->weights[i] || s->versions[i] == w->held[i];
        if (complete)
            return s;
    }
    return NULL;
}

/* Called with the mutex held; releases it during the request. */
static void ask(ls_worker *w)
{
    find(w, FREE)->state = ASKED;
    pthread_mutex_unlock(&w->mutex);
    w->source.ask(w->source.user);
    pthread_mutex_lock(&w->mutex);
}

ls_status ls_worker_step(ls_worker *w, double seconds)
{
    double end = ls_clock_now() + seconds;
    slot *s = NULL;
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        if (may_ask(w))
            ask(w);
        s = find_ready(w);
        if (s || w->woken || ls_clock_now() >= end)
            break;
        (void)ls_cond_wait_until(&w->change, &w->mutex, end);
    }
    w->woken = false;
    if (s) {
        s->state = COMPUTING;
        memcpy(w->held, s->versions, (size_t)w->session->servers * sizeof(*w->held));
        if (may_ask(w))
            ask(w);
    }
    pthread_mutex_unlock(&w->mutex);
    return s ? compute_and_push(w, s) : LS_OK;
}

/* ---- Creation ---- */

ls_status ls_worker_make(ls_server_session *session, ls_batch_source source, ls_worker **out)
{
    ls_worker *w = calloc(1, sizeof(*w));
    if (!w)
        return ls_fail(LS_ERR_MEMORY, "no memory for a worker");
    w->session = session;
    w->source = source;
    w->slot_count = session->options->strategy.overlap ? 2 : 1;
    hold_nothing(w);
    ls_cond_init(&w->change);
    pthread_mutex_init(&w->mutex, NULL);
    *out = w;
    return LS_OK;
}

void ls_worker_free(ls_worker *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->slot_count; i++)
        clear_push(w, &w->slots[i]);
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

/* ---- A worker process (not the chief) ---- */

typedef struct process {
    ls_server_session *session;
    ls_worker *worker;
    pthread_mutex_t mutex;
    /* The mutex protects these: */
    bool chief_connected, asking, over;
    int64_t asks;
    double lost_at;
    ls_error end;
    bool ended_by_chief; /* by OVER; used only in the caller's thread */
} process;

static void send_ask(process *p, int64_t number)
{
    (void)ls_server_session_send(p->session, &(ls_ps_message){ .rank = 0, .kind = LS_PS_ASK, .ask = { number } });
}

static void ask_chief(void *user)
{
    process *p = user;
    pthread_mutex_lock(&p->mutex);
    p->asking = true;
    int64_t number = ++p->asks;
    pthread_mutex_unlock(&p->mutex);
    send_ask(p, number);
}

/* If the message is lost, the chief hands the batch to another worker. */
static void report_to_chief(void *user, const ls_ps_done *done, ls_payload *results)
{
    const process *p = user;
    (void)ls_server_session_send(p->session,
                                 &(ls_ps_message){ .rank = 0, .kind = LS_PS_DONE, .done = *done, .body = results });
    ls_payload_drop(results);
}

static void end_process(process *p, ls_status status)
{
    pthread_mutex_lock(&p->mutex);
    if (!p->over)
        ls_error_keep(&p->end, status);
    p->over = true;
    pthread_mutex_unlock(&p->mutex);
    ls_clear_error();
}

static void handle_chief(process *p, const ls_ps_message *message)
{
    pthread_mutex_lock(&p->mutex);
    ls_status status = message->kind == LS_MESSAGE_MET ? ls_server_session_meet_chief(p->session, message) : LS_OK;
    pthread_mutex_unlock(&p->mutex);
    if (status != LS_OK) {
        end_process(p, status);
        ls_worker_wake(p->worker);
        return;
    }
    if (message->kind == LS_PS_TAKE) {
        pthread_mutex_lock(&p->mutex);
        p->asking = false;
        pthread_mutex_unlock(&p->mutex);
        ls_worker_take(p->worker, &message->take);
        return;
    }
    pthread_mutex_lock(&p->mutex);
    p->chief_connected = message->kind != LS_MESSAGE_LOST;
    p->lost_at = ls_clock_now();
    bool again = message->kind == LS_MESSAGE_MET && p->asking;
    int64_t number = p->asks;
    pthread_mutex_unlock(&p->mutex);
    if (again) /* may be a duplicate: the batch queue checks its number */
        send_ask(p, number);
}

/* Leaves FINAL and OVER in the messenger's queue, in their order. */
static bool handle(void *user, ls_ps_message *message)
{
    process *p = user;
    if (message->kind == LS_MESSAGE_REFUSED) {
        end_process(p, ls_fail(LS_ERR_PEER, "process %d refused this worker: %s", message->rank, message->text));
        ls_worker_wake(p->worker);
        return true;
    }
    bool chief = message->rank == 0;
    if (chief && (message->kind == LS_MESSAGE_MET || message->kind == LS_MESSAGE_LOST || message->kind == LS_PS_TAKE)) {
        handle_chief(p, message);
        ls_payload_drop(message->body);
        return true;
    }
    if (chief && (message->kind == LS_PS_OVER || message->kind == LS_PS_FINAL)) {
        ls_worker_wake(p->worker);
        return false;
    }
    if (!ls_worker_handle(p->worker, message))
        ls_payload_drop(message->body);
    return true;
}

static void handle_end(process *p)
{
    ls_ps_message message;
    bool got = true;
    while (ls_server_session_receive(p->session, 0, &message, &got) == LS_OK && got) {
        bool over = message.kind == LS_PS_OVER;
        ls_status status = message.kind == LS_PS_FINAL ? ls_server_session_take_final(p->session, &message) : LS_OK;
        p->ended_by_chief |= over;
        if (over || status != LS_OK)
            end_process(p, status != LS_OK ? status : ls_server_session_failure(&message));
        ls_payload_drop(message.body);
    }
}

/* Handles the messages of a lost chief first. */
static bool is_over(process *p)
{
    pthread_mutex_lock(&p->mutex);
    bool misses = !p->over && !p->chief_connected, met = p->session->run != 0;
    double lost_at = p->lost_at;
    pthread_mutex_unlock(&p->mutex);
    if (misses)
        handle_end(p);
    ls_status status = misses ? ls_server_session_check_chief(p->session, met, lost_at) : LS_OK;
    if (status != LS_OK)
        end_process(p, status);
    pthread_mutex_lock(&p->mutex);
    bool over = p->over;
    pthread_mutex_unlock(&p->mutex);
    return over;
}

/* The chief then ends the job for all. If it does not answer, the worker ends by itself. */
static void report_failure(process *p, ls_status status)
{
    ls_error own;
    ls_error_keep(&own, status);
    (void)ls_server_session_send_text(p->session, &(ls_ps_message){ .rank = 0, .kind = LS_PS_FAIL, .fail = { status } },
                                      own.message);
    double end = ls_clock_now() + LS_JOIN_LIMIT;
    while (!is_over(p) && ls_clock_now() < end) {
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
        handle_end(p);
    }
    if (!p->ended_by_chief)
        p->end = own;
}

ls_status ls_serve_as_worker(ls_server_session *session)
{
    process p = { .session = session, .lost_at = ls_clock_now() };
    pthread_mutex_init(&p.mutex, NULL);
    const ls_batch_source source = { .ask = ask_chief, .done = report_to_chief, .user = &p };
    ls_status status = ls_worker_make(session, source, &p.worker);
    if (status == LS_OK)
        status = ls_server_session_open(session, handle, &p);
    while (status == LS_OK && !is_over(&p)) {
        ls_status computed = ls_worker_step(p.worker, 0.2);
        if (computed != LS_OK) {
            report_failure(&p, computed);
            break;
        }
        handle_end(&p);
    }
    ls_error why;
    ls_error_keep(&why, status);
    ls_server_session_close(session);
    ls_worker_free(p.worker);
    pthread_mutex_destroy(&p.mutex);
    return why.status != LS_OK ? ls_error_give(&why) : ls_error_give(&p.end);
}
