/* The messenger's thread (messenger.h). Only this thread uses connections; others put messages into
 * queues, under the mutex, and wake it by `bell`. */
#include "fabric/messages/messenger.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"

#define MAGIC        0x74733070u /* "p0st" */
#define VERSION      1
#define MOST_ABOUT   4096 /* bytes of the text in a HELLO */
#define MOST_GUESTS  64   /* callers without a HELLO yet; above it the oldest is dropped */
#define GUEST_LIMIT  10.0 /* seconds for a HELLO */
#define CALL_AGAIN   0.05 /* seconds until a missing process is called again */
#define BEAT_EVERY   0.1  /* seconds between heartbeats */
#define FLUSH_LIMIT  2.0  /* seconds to send the queues when closing */
#define MOST_WAITING 64   /* messages of one process not received yet; above it stops reading */
#define SILENCE      1.0  /* seconds, by default */

/* Kinds on the wire, below the user's kinds. */
enum { HELLO = 1, REFUSE, BEAT };

/* ---- Payloads ---- */

struct ls_payload {
    atomic_int users;
    size_t size;
    void *bytes;
};

ls_status ls_payload_make(size_t bytes, ls_payload **out)
{
    ls_payload *p = malloc(sizeof(*p));
    void *data = bytes <= SIZE_MAX - 64 ? aligned_alloc(64, (bytes + 64) / 64 * 64) : NULL;
    if (!p || !data) {
        free(p);
        free(data);
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes to send or receive", bytes);
    }
    p->size = bytes;
    p->bytes = data;
    atomic_init(&p->users, 1);
    *out = p;
    return LS_OK;
}

ls_payload *ls_payload_keep(ls_payload *p)
{
    if (p)
        atomic_fetch_add(&p->users, 1);
    return p;
}

void ls_payload_drop(ls_payload *p)
{
    if (!p || atomic_fetch_sub(&p->users, 1) > 1)
        return;
    free(p->bytes);
    free(p);
}

void *ls_payload_bytes(ls_payload *p)
{
    return p->bytes;
}

size_t ls_payload_size(const ls_payload *p)
{
    return p->size;
}

/* ---- Connections ---- */

typedef struct head {
    uint32_t magic;
    uint16_t version, kind;
    uint32_t from, to;
    int64_t numbers[LS_MESSAGE_NUMBERS];
    uint64_t bytes; /* size of the body that follows */
} head;

typedef struct item {
    struct item *next;
    head head;
    ls_message letter; /* received: all of it; to send: its body only */
} item;

typedef struct queue {
    item *first, **last;
} queue;

/* A connection to a process with a known rank, or to a caller without a HELLO. */
typedef struct connection {
    ls_connection *line;
    bool met;    /* both sides have sent HELLO */
    bool caller; /* this side called */
    double began, heard, said;
    head in;
    size_t in_done; /* bytes of head and body received */
    ls_payload *body;
    item *out; /* being sent */
    size_t out_done;
    /* Sent next, before the queue of the rank: HELLO and REFUSE. */
    queue ready;
} connection;

struct ls_messenger {
    const ls_transport_table *table;
    ls_transport *transport;
    ls_cluster_options cluster;
    ls_messenger_options options;
    char *about;
    double limit, beat; /* seconds: limit of silence, heartbeat interval */
    int bell;
    pthread_t thread;
    bool started;
    atomic_bool ends;
    ls_error failed; /* why the thread ended */

    connection links[LS_MAX_CLUSTER]; /* by rank */
    connection guests[MOST_GUESTS];
    int guest_count;
    bool never[LS_MAX_CLUSTER]; /* it refused this process */
    double call_again[LS_MAX_CLUSTER];
    double awake;
    ls_want wants[LS_MAX_CLUSTER + MOST_GUESTS + 2];
    queue arrived; /* in this turn of the thread */

    pthread_mutex_t mutex;
    pthread_cond_t come;
    /* Guarded by the mutex, with all fields that follow: */
    queue out[LS_MAX_CLUSTER], in;
    bool reachable[LS_MAX_CLUSTER];
    int waiting[LS_MAX_CLUSTER]; /* by rank: messages in `in` and `arrived` */
    bool over;                   /* the thread has ended */
    char why[300];               /* why the last failed connection failed; "": none */
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
        ls_payload_drop(i->letter.body);
    free(i);
}

static void clear(queue *q)
{
    for (item *i; (i = take(q)) != NULL;)
        free_item(i);
}

static void ring(const ls_messenger *post)
{
    uint64_t one = 1;
    while (write(post->bell, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

static double now(const ls_messenger *post)
{
    return post->table->now(post->transport);
}

/* ---- Sending ---- */

static ls_status make_item(const ls_messenger *post, int kind, int to, const int64_t *numbers, ls_payload *body,
                           item **out)
{
    item *i = calloc(1, sizeof(*i));
    if (!i)
        return ls_fail(LS_ERR_MEMORY, "no memory for a letter");
    i->head = (head){ .magic = MAGIC,
                      .version = VERSION,
                      .kind = (uint16_t)kind,
                      .from = (uint32_t)post->cluster.rank,
                      .to = (uint32_t)to,
                      .bytes = body ? body->size : 0 };
    if (numbers)
        memcpy(i->head.numbers, numbers, sizeof(i->head.numbers));
    i->letter.body = ls_payload_keep(body);
    *out = i;
    return LS_OK;
}

/* Queues a HELLO, or a refusal with its reason. */
static ls_status say(ls_messenger *post, connection *l, int kind, int to, const char *text)
{
    ls_payload *body = NULL;
    item *i = NULL;
    LS_TRY(ls_payload_make(strlen(text), &body));
    memcpy(body->bytes, text, body->size);
    ls_status status = make_item(post, kind, to, post->options.hello, body, &i);
    ls_payload_drop(body);
    if (status == LS_OK)
        put(&l->ready, i);
    return status;
}

ls_status ls_messenger_send(ls_messenger *post, const ls_message *letter)
{
    item *i = NULL;
    if (letter->rank < 0 || letter->rank >= post->cluster.size)
        return ls_fail(LS_ERR_INTERNAL, "a letter to process %d of %d", letter->rank, post->cluster.size);
    LS_TRY(make_item(post, letter->kind, letter->rank, letter->numbers, letter->body, &i));
    pthread_mutex_lock(&post->mutex);
    bool reachable = post->reachable[letter->rank];
    if (reachable)
        put(&post->out[letter->rank], i);
    pthread_mutex_unlock(&post->mutex);
    if (reachable)
        ring(post);
    else
        free_item(i);
    return LS_OK;
}

static item *next_out(ls_messenger *post, connection *l, int rank)
{
    item *i = take(&l->ready);
    if (i || !l->met || rank < 0)
        return i;
    pthread_mutex_lock(&post->mutex);
    i = take(&post->out[rank]);
    pthread_mutex_unlock(&post->mutex);
    if (!i && now(post) - l->said > post->beat && make_item(post, BEAT, rank, NULL, NULL, &i) != LS_OK)
        ls_clear_error();
    return i;
}

static ls_status push(ls_messenger *post, connection *l, int rank)
{
    for (;;) {
        if (!l->out)
            l->out = next_out(post, l, rank);
        if (!l->out)
            return LS_OK;
        size_t total = sizeof(head) + l->out->head.bytes, moved = 0;
        struct iovec parts[2];
        int count = 0;
        if (l->out_done < sizeof(head))
            parts[count++] = (struct iovec){ (char *)&l->out->head + l->out_done, sizeof(head) - l->out_done };
        size_t from = l->out_done > sizeof(head) ? l->out_done - sizeof(head) : 0;
        if (l->out->head.bytes > from)
            parts[count++] = (struct iovec){ (char *)l->out->letter.body->bytes + from, l->out->head.bytes - from };
        LS_TRY(post->table->write(l->line, parts, count, &moved));
        l->out_done += moved;
        if (moved > 0)
            l->said = now(post);
        if (l->out_done < total && moved == 0)
            return LS_OK;
        if (l->out_done == total) {
            free_item(l->out);
            l->out = NULL;
            l->out_done = 0;
        }
    }
}

/* ---- The end of a connection ---- */

static void tell(ls_messenger *post, int rank, int kind, const head *h, ls_payload *body, const char *text)
{
    item *i = calloc(1, sizeof(*i));
    if (!i) {
        ls_payload_drop(body);
        return; /* a waiting caller has a time limit */
    }
    i->letter = (ls_message){ .rank = rank, .kind = kind, .body = body };
    if (h)
        memcpy(i->letter.numbers, h->numbers, sizeof(h->numbers));
    if (text)
        snprintf(i->letter.text, sizeof(i->letter.text), "%s", text);
    put(&post->arrived, i);
}

static void end_link(ls_messenger *post, connection *l)
{
    if (l->line)
        post->table->hang_up(l->line);
    free_item(l->out);
    clear(&l->ready);
    ls_payload_drop(l->body);
    *l = (connection){ .line = NULL };
}

static void note_why(ls_messenger *post, int rank, const char *why)
{
    pthread_mutex_lock(&post->mutex);
    snprintf(post->why, sizeof(post->why), "process %d: %s", rank, why);
    pthread_mutex_unlock(&post->mutex);
}

static void lose(ls_messenger *post, int rank, const char *why)
{
    bool met = post->links[rank].met, called = post->links[rank].caller;
    end_link(post, &post->links[rank]);
    if (!met && called)
        note_why(post, rank, why);
    pthread_mutex_lock(&post->mutex);
    post->reachable[rank] = false;
    clear(&post->out[rank]);
    pthread_mutex_unlock(&post->mutex);
    if (met)
        tell(post, rank, LS_MESSAGE_LOST, NULL, NULL, why);
}

/* ---- Receiving ---- */

static ls_status check_head(const ls_messenger *post, const connection *l, int rank)
{
    const head *h = &l->in;
    uint64_t most = h->kind == HELLO || h->kind == REFUSE ? MOST_ABOUT : post->options.most;
    if (h->magic != MAGIC || h->version != VERSION)
        return ls_fail(LS_ERR_PEER, "it is no process of this version of the library");
    if (h->from >= (uint32_t)post->cluster.size || (rank >= 0 && h->from != (uint32_t)rank) ||
        h->to != (uint32_t)post->cluster.rank || h->from == (uint32_t)post->cluster.rank)
        return ls_fail(LS_ERR_PEER, "it says that it is process %u, and that this one is %u", h->from, h->to);
    if (!l->met && h->kind != HELLO && h->kind != REFUSE)
        return ls_fail(LS_ERR_PEER, "it did not say who it is first");
    if (h->bytes > most || (h->kind == BEAT && h->bytes > 0))
        return ls_fail(LS_ERR_PEER, "it sends %llu bytes, at most %llu can be", (unsigned long long)h->bytes,
                       (unsigned long long)most);
    return LS_OK;
}

/* Reads one message as far as possible; *whole: it is complete. */
static ls_status pull(ls_messenger *post, connection *l, int rank, bool *whole)
{
    *whole = false;
    for (;;) {
        size_t moved = 0;
        struct iovec part;
        if (l->in_done < sizeof(head))
            part = (struct iovec){ (char *)&l->in + l->in_done, sizeof(head) - l->in_done };
        else
            part = (struct iovec){ (char *)l->body->bytes + (l->in_done - sizeof(head)),
                                   l->in.bytes - (l->in_done - sizeof(head)) };
        LS_TRY(post->table->read(l->line, &part, 1, &moved));
        if (moved == 0)
            return LS_OK;
        l->heard = now(post);
        l->in_done += moved;
        if (l->in_done < sizeof(head))
            continue;
        if (l->in_done == sizeof(head)) {
            LS_TRY(check_head(post, l, rank));
            if (l->in.bytes > 0)
                LS_TRY(ls_payload_make((size_t)l->in.bytes, &l->body));
        }
        *whole = l->in_done == sizeof(head) + l->in.bytes;
        if (*whole)
            return LS_OK;
    }
}

static void text_of(const connection *l, char *text, size_t room)
{
    snprintf(text, room, "%.*s", l->body ? (int)l->body->size : 0, l->body ? (const char *)l->body->bytes : "");
    ls_make_printable(text, strlen(text));
}

static void forget_letter(connection *l)
{
    ls_payload_drop(l->body);
    l->body = NULL;
    l->in_done = 0;
}

static void meet(ls_messenger *post, connection *l, int rank)
{
    l->met = true;
    pthread_mutex_lock(&post->mutex);
    post->reachable[rank] = true;
    pthread_mutex_unlock(&post->mutex);
    tell(post, rank, LS_MESSAGE_MET, &l->in, NULL, NULL);
}

static bool says_the_same(const ls_messenger *post, const connection *l)
{
    size_t bytes = strlen(post->about);
    return l->body ? l->body->size == bytes && memcmp(l->body->bytes, post->about, bytes) == 0 : bytes == 0;
}

/* Handles the answer to a call of this process. */
static void hear_answer(ls_messenger *post, connection *l, int rank)
{
    char text[200];
    if (l->in.kind == HELLO && says_the_same(post, l)) {
        meet(post, l, rank);
        forget_letter(l);
        return;
    }
    text_of(l, text, sizeof(text));
    post->never[rank] = true;
    tell(post, rank, LS_MESSAGE_REFUSED, NULL, NULL, text);
    lose(post, rank, text);
}

static void hear(ls_messenger *post, int rank)
{
    connection *l = &post->links[rank];
    if (!l->met) {
        hear_answer(post, l, rank);
        return;
    }
    if (l->in.kind >= LS_MESSAGE_FIRST) {
        tell(post, rank, l->in.kind, &l->in, l->body, NULL);
        l->body = NULL;
        pthread_mutex_lock(&post->mutex);
        post->waiting[rank]++;
        pthread_mutex_unlock(&post->mutex);
    }
    forget_letter(l);
}

static bool is_heard(ls_messenger *post, int rank)
{
    pthread_mutex_lock(&post->mutex);
    bool out = post->waiting[rank] < MOST_WAITING;
    pthread_mutex_unlock(&post->mutex);
    return out;
}

/* After a failed write, reads before it ends the connection: the last message may have the
 * reason. */
static void move_link(ls_messenger *post, int rank)
{
    connection *l = &post->links[rank];
    ls_error ended;
    ls_error_keep(&ended, push(post, l, rank));
    ls_status status = LS_OK;
    for (bool whole = true; status == LS_OK && whole && l->line && is_heard(post, rank);) {
        status = pull(post, l, rank, &whole);
        if (status == LS_OK && whole)
            hear(post, rank);
    }
    if (status == LS_OK)
        status = ls_error_give(&ended);
    if (status != LS_OK && l->line)
        lose(post, rank, ls_last_error());
    ls_clear_error();
}

/* ---- Callers ---- */

/* Keeps the order: the oldest caller is the first. */
static void remove_guest(ls_messenger *post, int g)
{
    memmove(&post->guests[g], &post->guests[g + 1], (size_t)(post->guest_count - g - 1) * sizeof(connection));
    post->guests[--post->guest_count] = (connection){ .line = NULL };
}

static void end_guest(ls_messenger *post, int g)
{
    end_link(post, &post->guests[g]);
    remove_guest(post, g);
}

static ls_status let_in(ls_messenger *post)
{
    ls_connection *line = NULL;
    for (;;) {
        LS_TRY(post->table->answer(post->transport, &line));
        if (!line)
            return LS_OK;
        if (post->guest_count == MOST_GUESTS)
            end_guest(post, 0);
        post->guests[post->guest_count++] = (connection){ .line = line, .began = now(post), .heard = now(post) };
    }
}

/* A new connection replaces an older one of the same rank. Processes of another job are refused. */
static void hear_guest(ls_messenger *post, int g)
{
    connection *guest = &post->guests[g];
    int rank = (int)guest->in.from;
    char other[160], text[512];
    if (guest->in.kind == HELLO && says_the_same(post, guest)) {
        connection l = *guest;
        remove_guest(post, g);
        lose(post, rank, "it came again");
        post->links[rank] = l;
        if (say(post, &post->links[rank], HELLO, rank, post->about) == LS_OK)
            meet(post, &post->links[rank], rank);
        else
            lose(post, rank, ls_last_error());
        forget_letter(&post->links[rank]);
        return;
    }
    text_of(guest, other, sizeof(other));
    snprintf(text, sizeof(text), "process %d is of another job: \"%.150s\", and process %d has \"%.150s\"", rank, other,
             post->cluster.rank, post->about);
    if (say(post, guest, REFUSE, rank, text) == LS_OK)
        (void)push(post, guest, -1);
    if (post->options.log)
        ls_log_write(post->options.log, LS_LOG_WARNING, "%s; it was not let in", text);
    ls_clear_error();
    end_guest(post, g);
}

static void move_guests(ls_messenger *post)
{
    for (int g = post->guest_count - 1; g >= 0; g--) {
        bool whole = false;
        ls_status status = pull(post, &post->guests[g], -1, &whole);
        if (status == LS_OK && whole)
            hear_guest(post, g);
        else if (status != LS_OK || now(post) - post->guests[g].began > GUEST_LIMIT)
            end_guest(post, g);
        if (status != LS_OK)
            ls_clear_error();
    }
}

/* ---- The thread ---- */

static void call_others(ls_messenger *post)
{
    for (int r = 0; r < post->cluster.size; r++) {
        connection *l = &post->links[r];
        if (!post->options.calls[r] || post->never[r] || l->line || now(post) < post->call_again[r])
            continue;
        post->call_again[r] = now(post) + CALL_AGAIN;
        ls_connection *line = NULL;
        if (post->table->call(post->transport, r, &line) != LS_OK)
            note_why(post, r, ls_last_error()); /* it may appear later */
        ls_clear_error();
        if (!line)
            continue;
        *l = (connection){ .line = line, .caller = true, .began = now(post), .heard = now(post), .said = now(post) };
        if (say(post, l, HELLO, r, post->about) != LS_OK)
            lose(post, r, ls_last_error());
    }
}

/* Silence counts only if this process itself was not stopped. */
static void look_for_silence(ls_messenger *post)
{
    double at = now(post);
    bool slept = at - post->awake > post->limit / 2;
    post->awake = at;
    char text[96];
    for (int r = 0; r < post->cluster.size; r++) {
        connection *l = &post->links[r];
        if (!l->line)
            continue;
        if (slept)
            l->heard = at;
        if (at - l->heard <= (l->met ? post->limit : GUEST_LIMIT) || !is_heard(post, r))
            continue;
        snprintf(text, sizeof(text), "no sign of life for %.3g s", at - l->heard);
        lose(post, r, text);
    }
}

/* Records and logs callers that the transport refused. */
static void look_for_strangers(ls_messenger *post)
{
    char why[300];
    if (!post->table->refused || !post->table->refused(post->transport, why, sizeof(why)))
        return;
    ls_make_printable(why, strlen(why));
    pthread_mutex_lock(&post->mutex);
    bool again = strcmp(post->why, why) == 0;
    if (!strstr(post->why, "another key")) /* the root cause; keep it */
        snprintf(post->why, sizeof(post->why), "%s", why);
    pthread_mutex_unlock(&post->mutex);
    if (post->options.log && !again)
        ls_log_write(post->options.log, LS_LOG_INFO, "not let in: %s", why);
}

/* Passes the messages of this turn to options.hear first, else to the queue `in`. */
static void hand_over(ls_messenger *post)
{
    for (item *i; (i = take(&post->arrived)) != NULL;) {
        int rank = i->letter.rank;
        bool counted = i->letter.kind >= LS_MESSAGE_FIRST;
        bool taken = post->options.hear && post->options.hear(post->options.user, &i->letter);
        pthread_mutex_lock(&post->mutex);
        if (taken && counted)
            post->waiting[rank]--;
        if (!taken) {
            put(&post->in, i);
            pthread_cond_broadcast(&post->come);
        }
        pthread_mutex_unlock(&post->mutex);
        if (taken)
            free(i);
    }
}

static bool has_more(ls_messenger *post, int rank)
{
    const connection *l = &post->links[rank];
    pthread_mutex_lock(&post->mutex);
    bool more = l->out || l->ready.first || (l->met && post->out[rank].first);
    pthread_mutex_unlock(&post->mutex);
    return more;
}

static int list_wants(ls_messenger *post)
{
    int count = 0;
    post->wants[count++] = (ls_want){ .bell = post->bell, .read = true };
    post->wants[count++] = (ls_want){ .line = NULL };
    for (int r = 0; r < post->cluster.size; r++)
        if (post->links[r].line)
            post->wants[count++] =
                (ls_want){ .line = post->links[r].line, .read = is_heard(post, r), .write = has_more(post, r) };
    for (int g = 0; g < post->guest_count; g++)
        post->wants[count++] = (ls_want){ .line = post->guests[g].line, .read = true };
    return count;
}

static ls_status turn(ls_messenger *post, double seconds)
{
    uint64_t rings;
    call_others(post);
    int count = list_wants(post);
    LS_TRY(post->table->wait(post->transport, post->wants, count, seconds));
    while (read(post->bell, &rings, sizeof(rings)) < 0 && errno == EINTR)
        ;
    LS_TRY(let_in(post));
    move_guests(post);
    for (int r = 0; r < post->cluster.size; r++)
        if (post->links[r].line)
            move_link(post, r);
    look_for_silence(post);
    look_for_strangers(post);
    hand_over(post);
    return LS_OK;
}

static bool is_flushed(ls_messenger *post)
{
    for (int r = 0; r < post->cluster.size; r++)
        if (post->links[r].line && post->links[r].met && has_more(post, r))
            return false;
    return true;
}

static void *run(void *user)
{
    ls_messenger *post = user;
    ls_status status = LS_OK;
    post->awake = now(post);
    while (status == LS_OK && !atomic_load(&post->ends))
        status = turn(post, post->beat / 2);
    double end = now(post) + FLUSH_LIMIT;
    while (status == LS_OK && !is_flushed(post) && now(post) < end)
        status = turn(post, 0.01);
    ls_error_keep(&post->failed, status);
    for (int r = 0; r < post->cluster.size; r++)
        end_link(post, &post->links[r]);
    while (post->guest_count > 0)
        end_guest(post, post->guest_count - 1);
    pthread_mutex_lock(&post->mutex);
    post->over = true;
    memset(post->reachable, 0, sizeof(post->reachable));
    pthread_cond_broadcast(&post->come);
    pthread_mutex_unlock(&post->mutex);
    return NULL;
}

/* ---- Opening, receiving, closing ---- */

static ls_status start(ls_messenger *post)
{
    LS_TRY(ls_transport_choose(&post->cluster, &post->table));
    if (post->table != &ls_transport_shm && post->table != &ls_transport_unix && post->table != &ls_transport_tcp)
        return ls_fail(LS_ERR_UNSUPPORTED, "parameter servers meet over shm, unix or tcp, not over %s",
                       post->table->name);
    post->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    post->about = strdup(post->options.about);
    if (post->bell < 0 || !post->about || strlen(post->about) > MOST_ABOUT)
        return ls_fail(LS_ERR_MEMORY, "no descriptor or memory for letters to other processes");
    LS_TRY(post->table->open(&post->cluster, post->options.number, &post->transport));
    if (ls_thread_start(&post->thread, run, post) != 0)
        return ls_fail(LS_ERR_MEMORY, "no thread for letters to other processes");
    post->started = true;
    return LS_OK;
}

ls_status ls_messenger_open(const ls_messenger_options *options, ls_messenger **out)
{
    ls_messenger *post = calloc(1, sizeof(*post));
    if (!post)
        return ls_fail(LS_ERR_MEMORY, "no memory for letters to other processes");
    post->options = *options;
    post->cluster = *options->cluster;
    post->limit = post->cluster.silence_limit > 0 ? post->cluster.silence_limit : SILENCE;
    post->beat = post->limit / 5 < BEAT_EVERY ? post->limit / 5 : BEAT_EVERY;
    post->bell = -1;
    ls_cond_init(&post->come);
    pthread_mutex_init(&post->mutex, NULL);
    *out = post; /* before the thread starts, as options.hear may send */
    ls_status status = start(post);
    if (status == LS_OK)
        return LS_OK;
    ls_error why;
    ls_error_keep(&why, status);
    *out = NULL;
    ls_messenger_close(post);
    return ls_error_give(&why);
}

void ls_messenger_close(ls_messenger *post)
{
    if (!post)
        return;
    atomic_store(&post->ends, true);
    if (post->started) {
        ring(post);
        pthread_join(post->thread, NULL);
    }
    if (post->transport)
        post->table->close(post->transport);
    for (int r = 0; r < LS_MAX_CLUSTER; r++)
        clear(&post->out[r]);
    clear(&post->in);
    clear(&post->arrived);
    if (post->bell >= 0)
        close(post->bell);
    pthread_cond_destroy(&post->come);
    pthread_mutex_destroy(&post->mutex);
    free(post->about);
    free(post);
}

void ls_messenger_why(ls_messenger *post, char text[LS_MESSENGER_WHY])
{
    pthread_mutex_lock(&post->mutex);
    snprintf(text, LS_MESSENGER_WHY, "%s%s", post->why[0] ? "; the last that called, or was called: " : "", post->why);
    pthread_mutex_unlock(&post->mutex);
}

ls_status ls_messenger_receive(ls_messenger *post, double seconds, ls_message *out, bool *got)
{
    double end = ls_clock_now() + seconds;
    bool in_time = true;
    *got = false;
    pthread_mutex_lock(&post->mutex);
    while (!post->in.first && !post->over && in_time)
        in_time = ls_cond_wait_until(&post->come, &post->mutex, end);
    item *i = take(&post->in);
    bool full = i && i->letter.kind >= LS_MESSAGE_FIRST && post->waiting[i->letter.rank]-- == MOST_WAITING;
    bool over = post->over;
    pthread_mutex_unlock(&post->mutex);
    if (full)
        ring(post); /* the thread reads its connection again */
    if (i) {
        *out = i->letter;
        *got = true;
        free(i);
        return LS_OK;
    }
    if (over)
        return post->failed.status != LS_OK ? ls_error_give(&post->failed)
                                            : ls_fail(LS_ERR_PEER, "the connections to other processes have ended");
    return LS_OK;
}
