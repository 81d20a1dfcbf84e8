/* The messenger's thread. Only it uses connections; others fill queues under the mutex and wake it
 * by `bell`. */
#include "fabric/messages/messenger.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"

#define HELLO_LIMIT  10.0 /* seconds for a HELLO */
#define CALL_AGAIN   0.05 /* seconds until a process is called again */
#define BEAT_EVERY   0.1  /* seconds between heartbeats */
#define FLUSH_LIMIT  2.0  /* seconds to send the queues when closing */
#define MOST_WAITING 64   /* unreceived messages of a process; above it stops reading */
#define SILENCE      1.0  /* seconds, by default */

/* ---- Connections ---- */

typedef struct item {
    struct item *next;
    ls_packet packet;   /* to send */
    ls_message message; /* to send: its body only */
} item;

typedef struct queue {
    item *first, **last;
} queue;

/* A connection after its handshake. */
typedef struct peer {
    ls_connection *at;  /* NULL: none */
    double heard, said; /* when bytes last moved */
    ls_packet in;
    size_t in_done;
    ls_payload *body;
    item *out; /* being sent */
    size_t out_done;
} peer;

struct ls_messenger {
    const ls_transport_table *table;
    ls_transport *transport;
    ls_cluster_options cluster;
    ls_messenger_options options;
    ls_hellos hellos;   /* calls by rank */
    double limit, beat; /* seconds: limit of silence, heartbeat interval */
    int bell;
    pthread_t thread;
    bool started;
    atomic_bool ends;
    ls_error failed; /* why the thread ended */

    peer peers[LS_MAX_CLUSTER]; /* by rank */
    bool never[LS_MAX_CLUSTER]; /* it refused this process */
    double call_again[LS_MAX_CLUSTER];
    double awake;
    ls_want wants[2 * LS_MAX_CLUSTER + LS_MOST_CALLERS + 2];
    queue arrived; /* in this turn of the thread */

    pthread_mutex_t mutex;
    pthread_cond_t come;
    /* Guarded by the mutex, as all that follows: */
    queue out[LS_MAX_CLUSTER], in;
    bool reachable[LS_MAX_CLUSTER];
    int waiting[LS_MAX_CLUSTER]; /* by rank: messages in `in` and `arrived` */
    bool over;                   /* the thread has ended */
    char why[300];               /* why the last connection failed */
};

static void put(queue *q, item *i)
{
    i->next = NULL;
    if (!q->first)
        q->last = &q->first;
    *q->last = i;
    q->last = &i->next;
}

static item *take(queue *q)
{
    item *i = q->first;
    if (i)
        q->first = i->next;
    return i;
}

static void free_item(item *i)
{
    if (i)
        ls_payload_drop(i->message.body);
    free(i);
}

static void clear(queue *q)
{
    for (item *i; (i = take(q)) != NULL;)
        free_item(i);
}

static void ring(const ls_messenger *m)
{
    uint64_t one = 1;
    while (write(m->bell, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

static double now(const ls_messenger *m)
{
    return m->table->now(m->transport);
}

/* ---- Sending ---- */

static ls_status make_item(const ls_messenger *m, ls_packet_kind kind, ls_payload *body, item **out)
{
    item *i = calloc(1, sizeof(*i));
    if (!i)
        return ls_fail(LS_ERR_MEMORY, "no memory for a message");
    i->packet = (ls_packet){ .magic = LS_PACKET_MAGIC,
                             .version = LS_PACKET_VERSION,
                             .kind = (uint16_t)kind,
                             .from = (uint32_t)m->cluster.rank,
                             .bytes = body ? ls_payload_size(body) : 0 };
    i->message.body = ls_payload_keep(body);
    *out = i;
    return LS_OK;
}

ls_status ls_messenger_send(ls_messenger *m, const ls_message *message)
{
    item *i = NULL;
    if (message->rank < 0 || message->rank >= m->cluster.size)
        return ls_fail(LS_ERR_INTERNAL, "a message to process %d of %d, which does not exist", message->rank,
                       m->cluster.size);
    LS_TRY(make_item(m, LS_PACKET_MESSAGE, message->body, &i));
    i->packet.tag = (uint64_t)message->kind;
    memcpy(i->packet.numbers, message->numbers, sizeof(i->packet.numbers));
    pthread_mutex_lock(&m->mutex);
    bool reachable = m->reachable[message->rank];
    if (reachable)
        put(&m->out[message->rank], i);
    pthread_mutex_unlock(&m->mutex);
    if (reachable)
        ring(m);
    else
        free_item(i);
    return LS_OK;
}

static item *next_out(ls_messenger *m, const peer *p, int rank)
{
    pthread_mutex_lock(&m->mutex);
    item *i = take(&m->out[rank]);
    pthread_mutex_unlock(&m->mutex);
    if (!i && now(m) - p->said > m->beat && make_item(m, LS_PACKET_BEAT, NULL, &i) != LS_OK)
        ls_clear_error();
    return i;
}

static ls_status push(ls_messenger *m, int rank)
{
    peer *p = &m->peers[rank];
    for (;;) {
        if (!p->out)
            p->out = next_out(m, p, rank);
        if (!p->out)
            return LS_OK;
        size_t before = p->out_done;
        const void *body = p->out->message.body ? ls_payload_bytes(p->out->message.body) : NULL;
        LS_TRY(ls_packet_write(m->table, p->at, &p->out->packet, body, &p->out_done));
        if (p->out_done == before)
            return LS_OK;
        p->said = now(m);
        if (p->out_done == sizeof(ls_packet) + p->out->packet.bytes) {
            free_item(p->out);
            p->out = NULL;
            p->out_done = 0;
        }
    }
}

/* ---- The end of a connection ---- */

static void deliver(ls_messenger *m, int rank, int kind, const int64_t *numbers, ls_payload *body, const char *text)
{
    item *i = calloc(1, sizeof(*i));
    if (!i) {
        ls_payload_drop(body);
        return; /* a waiting caller has a time limit */
    }
    i->message = (ls_message){ .rank = rank, .kind = kind, .body = body };
    if (numbers)
        memcpy(i->message.numbers, numbers, sizeof(i->message.numbers));
    if (text)
        snprintf(i->message.text, sizeof(i->message.text), "%s", text);
    put(&m->arrived, i);
}

static void end_peer(ls_messenger *m, int rank)
{
    peer *p = &m->peers[rank];
    if (p->at)
        m->table->hang_up(p->at);
    free_item(p->out);
    ls_payload_drop(p->body);
    *p = (peer){ .at = NULL };
}

static void lose(ls_messenger *m, int rank, const char *why)
{
    if (!m->peers[rank].at)
        return;
    end_peer(m, rank);
    pthread_mutex_lock(&m->mutex);
    m->reachable[rank] = false;
    clear(&m->out[rank]);
    pthread_mutex_unlock(&m->mutex);
    deliver(m, rank, LS_MESSAGE_LOST, NULL, NULL, why);
}

/* ---- Receiving ---- */

static ls_status pull(ls_messenger *m, int rank, bool *whole)
{
    peer *p = &m->peers[rank];
    *whole = false;
    while (!*whole) {
        size_t before = p->in_done;
        LS_TRY(ls_packet_read(m->table, p->at, &p->in, p->body ? ls_payload_bytes(p->body) : NULL, &p->in_done));
        if (p->in_done == before)
            return LS_OK;
        p->heard = now(m);
        if (p->in_done == sizeof(ls_packet)) {
            bool beat = p->in.kind == LS_PACKET_BEAT;
            LS_TRY(ls_packet_check(&p->in, rank, 1u << LS_PACKET_BEAT | 1u << LS_PACKET_MESSAGE,
                                   beat ? 0 : m->options.most));
            if (p->in.bytes > 0)
                LS_TRY(ls_payload_make((size_t)p->in.bytes, &p->body));
        }
        *whole = p->in_done >= sizeof(ls_packet) && p->in_done == sizeof(ls_packet) + p->in.bytes;
    }
    return LS_OK;
}

static void handle_packet(ls_messenger *m, int rank)
{
    peer *p = &m->peers[rank];
    p->in_done = 0;
    if (p->in.kind == LS_PACKET_MESSAGE && p->in.tag >= LS_MESSAGE_FIRST && p->in.tag <= INT_MAX) {
        deliver(m, rank, (int)p->in.tag, p->in.numbers, p->body, NULL);
        pthread_mutex_lock(&m->mutex);
        m->waiting[rank]++;
        pthread_mutex_unlock(&m->mutex);
    } else {
        ls_payload_drop(p->body);
    }
    p->body = NULL;
}

static bool is_heard(ls_messenger *m, int rank)
{
    pthread_mutex_lock(&m->mutex);
    bool out = m->waiting[rank] < MOST_WAITING;
    pthread_mutex_unlock(&m->mutex);
    return out;
}

/* After a failed write the last message may have the reason: reads before it ends the connection.
 * */
static void move_peer(ls_messenger *m, int rank)
{
    ls_error ended;
    ls_error_keep(&ended, push(m, rank));
    ls_status status = LS_OK;
    for (bool whole = true; status == LS_OK && whole && is_heard(m, rank);) {
        status = pull(m, rank, &whole);
        if (status == LS_OK && whole)
            handle_packet(m, rank);
    }
    if (status == LS_OK)
        status = ls_error_give(&ended);
    if (status != LS_OK)
        lose(m, rank, ls_last_error());
    ls_clear_error();
}

/* ---- Handshakes ---- */

static void note_why(ls_messenger *m, int rank, const char *why)
{
    pthread_mutex_lock(&m->mutex);
    snprintf(m->why, sizeof(m->why), "process %d: %s", rank, why);
    pthread_mutex_unlock(&m->mutex);
}

/* A new connection replaces an older one of the same rank. */
static void meet(ls_messenger *m, ls_hello *h)
{
    int rank = (int)h->in.from;
    lose(m, rank, "it connected again");
    m->peers[rank] = (peer){ .at = h->at, .heard = now(m), .said = now(m) };
    pthread_mutex_lock(&m->mutex);
    m->reachable[rank] = true;
    pthread_mutex_unlock(&m->mutex);
    deliver(m, rank, LS_MESSAGE_MET, h->in.numbers, NULL, NULL);
    *h = (ls_hello){ 0 };
}

static void call_others(ls_messenger *m)
{
    for (int r = 0; r < m->cluster.size; r++) {
        ls_hello *h = &m->hellos.calls[r];
        if (!m->options.calls[r] || m->never[r] || m->peers[r].at || h->at || now(m) < m->call_again[r])
            continue;
        m->call_again[r] = now(m) + CALL_AGAIN;
        if (ls_hello_call(&m->hellos, h, r) != LS_OK)
            note_why(m, r, ls_last_error()); /* it may appear later */
        ls_clear_error();
    }
}

static bool is_late(const ls_messenger *m, const ls_hello *h)
{
    return now(m) - h->since > HELLO_LIMIT;
}

/* A process of another job is not called again. */
static void move_call(ls_messenger *m, int rank)
{
    ls_hello *h = &m->hellos.calls[rank];
    bool done;
    ls_status status = ls_hello_continue(&m->hellos, h, rank, &done);
    if (status == LS_OK && is_late(m, h))
        status = ls_fail(LS_ERR_PEER, "no reply for %g s", HELLO_LIMIT);
    if (status == LS_OK && done) {
        status = ls_hello_compare(&m->hellos, h);
        if (status == LS_OK) {
            meet(m, h);
        } else {
            m->never[rank] = true;
            deliver(m, rank, LS_MESSAGE_REFUSED, NULL, NULL, ls_last_error());
        }
    }
    if (status != LS_OK) {
        note_why(m, rank, ls_last_error());
        ls_hello_forget(&m->hellos, h);
        ls_clear_error();
    }
}

static void log_refused(const ls_messenger *m, const char *why)
{
    if (m->options.log)
        ls_log_write(m->options.log, LS_LOG_WARNING, "refused a connection: %s", why);
}

/* Replies before comparing; *gone: the handshake is over. */
static void move_caller(ls_messenger *m, int index, bool *gone)
{
    ls_hello *h = &m->hellos.callers[index];
    bool heard;
    *gone = ls_hello_hear(&m->hellos, h, &heard) != LS_OK || is_late(m, h);
    if (!*gone && heard) {
        if (!h->speaks)
            ls_hello_say(&m->hellos, h);
        *gone = ls_hello_send(&m->hellos, h);
        if (*gone && ls_hello_compare(&m->hellos, h) != LS_OK)
            log_refused(m, ls_last_error());
        else if (*gone && h->in.from < h->in.number && h->in.from != h->out.from)
            meet(m, h);
    }
    if (*gone)
        ls_hello_drop_caller(&m->hellos, index);
    ls_clear_error();
}

static ls_status move_handshakes(ls_messenger *m)
{
    for (int r = 0; r < m->cluster.size; r++)
        if (m->hellos.calls[r].at)
            move_call(m, r);
    LS_TRY(ls_hello_answer(&m->hellos));
    for (int i = 0; i < m->hellos.caller_count;) {
        bool gone;
        move_caller(m, i, &gone);
        i += !gone;
    }
    return LS_OK;
}

/* ---- The thread ---- */

/* Silence counts only if this process itself was not stopped. */
static void look_for_silence(ls_messenger *m)
{
    double at = now(m);
    bool slept = at - m->awake > m->limit / 2;
    m->awake = at;
    char text[96];
    for (int r = 0; r < m->cluster.size; r++) {
        peer *p = &m->peers[r];
        if (!p->at)
            continue;
        if (slept)
            p->heard = at;
        if (at - p->heard <= m->limit || !is_heard(m, r))
            continue;
        snprintf(text, sizeof(text), "no heartbeat for %.3g s", at - p->heard);
        lose(m, r, text);
    }
}

static void note_refused(ls_messenger *m)
{
    char why[300];
    if (!m->table->refused || !m->table->refused(m->transport, why, sizeof(why)))
        return;
    ls_make_printable(why, strlen(why));
    pthread_mutex_lock(&m->mutex);
    bool again = strcmp(m->why, why) == 0;
    if (!strstr(m->why, "another key")) /* the root cause; keep it */
        snprintf(m->why, sizeof(m->why), "%s", why);
    pthread_mutex_unlock(&m->mutex);
    if (m->options.log && !again)
        ls_log_write(m->options.log, LS_LOG_INFO, "refused a connection: %s", why);
}

/* Offers the messages to options.hear first. */
static void hand_over(ls_messenger *m)
{
    for (item *i; (i = take(&m->arrived)) != NULL;) {
        int rank = i->message.rank;
        bool counted = i->message.kind >= LS_MESSAGE_FIRST;
        bool taken = m->options.hear && m->options.hear(m->options.user, &i->message);
        pthread_mutex_lock(&m->mutex);
        if (taken && counted)
            m->waiting[rank]--;
        if (!taken) {
            put(&m->in, i);
            pthread_cond_broadcast(&m->come);
        }
        pthread_mutex_unlock(&m->mutex);
        if (taken)
            free(i);
    }
}

static bool has_more(ls_messenger *m, int rank)
{
    pthread_mutex_lock(&m->mutex);
    bool more = m->peers[rank].out || m->out[rank].first;
    pthread_mutex_unlock(&m->mutex);
    return more;
}

static int list_wants(ls_messenger *m)
{
    int count = 0;
    m->wants[count++] = (ls_want){ .bell = m->bell, .read = true };
    m->wants[count++] = (ls_want){ .connection = NULL };
    for (int r = 0; r < m->cluster.size; r++)
        if (m->peers[r].at)
            m->wants[count++] =
                (ls_want){ .connection = m->peers[r].at, .read = is_heard(m, r), .write = has_more(m, r) };
    return ls_hellos_list(&m->hellos, m->wants, count);
}

static ls_status turn(ls_messenger *m, double seconds)
{
    uint64_t rings;
    call_others(m);
    int count = list_wants(m);
    LS_TRY(m->table->wait(m->transport, m->wants, count, seconds));
    while (read(m->bell, &rings, sizeof(rings)) < 0 && errno == EINTR)
        ;
    LS_TRY(move_handshakes(m));
    for (int r = 0; r < m->cluster.size; r++)
        if (m->peers[r].at)
            move_peer(m, r);
    look_for_silence(m);
    note_refused(m);
    hand_over(m);
    return LS_OK;
}

static bool is_flushed(ls_messenger *m)
{
    for (int r = 0; r < m->cluster.size; r++)
        if (m->peers[r].at && has_more(m, r))
            return false;
    return true;
}

static void *run(void *user)
{
    ls_messenger *m = user;
    ls_status status = LS_OK;
    m->awake = now(m);
    while (status == LS_OK && !atomic_load(&m->ends))
        status = turn(m, m->beat / 2);
    double end = now(m) + FLUSH_LIMIT;
    while (status == LS_OK && !is_flushed(m) && now(m) < end)
        status = turn(m, 0.01);
    ls_error_keep(&m->failed, status);
    for (int r = 0; r < m->cluster.size; r++)
        end_peer(m, r);
    ls_hellos_close(&m->hellos);
    pthread_mutex_lock(&m->mutex);
    m->over = true;
    memset(m->reachable, 0, sizeof(m->reachable));
    pthread_cond_broadcast(&m->come);
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

/* ---- Opening, receiving, closing ---- */

static ls_status start(ls_messenger *m)
{
    LS_TRY(ls_transport_choose(&m->cluster, &m->table));
    if (m->table != &ls_transport_shm && m->table != &ls_transport_unix && m->table != &ls_transport_tcp)
        return ls_fail(LS_ERR_UNSUPPORTED, "parameter servers need the transport shm, unix or tcp, not %s",
                       m->table->name);
    m->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->bell < 0)
        return ls_fail(LS_ERR_MEMORY, "cannot make an eventfd to send messages: %s", strerror(errno));
    LS_TRY(ls_hellos_open(&m->hellos, m->table, &m->cluster, m->cluster.size, m->options.about,
                          "the processes belong to different jobs"));
    LS_TRY(m->table->open(&m->cluster, m->options.number, &m->transport));
    m->hellos.transport = m->transport;
    memcpy(m->hellos.packet.numbers, m->options.hello, sizeof(m->options.hello));
    if (ls_thread_start(&m->thread, run, m) != 0)
        return ls_fail(LS_ERR_MEMORY, "cannot start a thread to send messages");
    m->started = true;
    return LS_OK;
}

ls_status ls_messenger_open(const ls_messenger_options *options, ls_messenger **out)
{
    ls_messenger *m = calloc(1, sizeof(*m));
    if (!m)
        return ls_fail(LS_ERR_MEMORY, "no memory to send messages");
    m->options = *options;
    m->cluster = *options->cluster;
    m->limit = m->cluster.silence_limit > 0 ? m->cluster.silence_limit : SILENCE;
    m->beat = m->limit / 5 < BEAT_EVERY ? m->limit / 5 : BEAT_EVERY;
    m->bell = -1;
    ls_cond_init(&m->come);
    pthread_mutex_init(&m->mutex, NULL);
    *out = m; /* options.hear may send */
    ls_status status = start(m);
    if (status == LS_OK)
        return LS_OK;
    ls_error why;
    ls_error_keep(&why, status);
    *out = NULL;
    ls_messenger_close(m);
    return ls_error_give(&why);
}

void ls_messenger_close(ls_messenger *m)
{
    if (!m)
        return;
    atomic_store(&m->ends, true);
    if (m->started) {
        ring(m);
        pthread_join(m->thread, NULL);
    }
    ls_hellos_close(&m->hellos);
    if (m->transport)
        m->table->close(m->transport);
    for (int r = 0; r < LS_MAX_CLUSTER; r++)
        clear(&m->out[r]);
    clear(&m->in);
    clear(&m->arrived);
    if (m->bell >= 0)
        close(m->bell);
    pthread_cond_destroy(&m->come);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

void ls_messenger_why(ls_messenger *m, char text[LS_MESSENGER_WHY])
{
    pthread_mutex_lock(&m->mutex);
    snprintf(text, LS_MESSENGER_WHY, "%s%s", m->why[0] ? "; the last failed connection: " : "", m->why);
    pthread_mutex_unlock(&m->mutex);
}

ls_status ls_messenger_receive(ls_messenger *m, double seconds, ls_message *out, bool *got)
{
    double end = ls_clock_now() + seconds;
    bool in_time = true;
    *got = false;
    pthread_mutex_lock(&m->mutex);
    while (!m->in.first && !m->over && in_time)
        in_time = ls_cond_wait_until(&m->come, &m->mutex, end);
    item *i = take(&m->in);
    bool full = i && i->message.kind >= LS_MESSAGE_FIRST && m->waiting[i->message.rank]-- == MOST_WAITING;
    bool over = m->over;
    pthread_mutex_unlock(&m->mutex);
    if (full)
        ring(m); /* the thread reads its connection again */
    if (i) {
        *out = i->message;
        *got = true;
        free(i);
        return LS_OK;
    }
    if (over)
        return m->failed.status != LS_OK ? ls_error_give(&m->failed)
                                         : ls_fail(LS_ERR_PEER, "the connections to other processes have ended");
    return LS_OK;
}
