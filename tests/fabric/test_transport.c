/* Transports, each through the same cases: bytes of any size pass both ways, connections end with a
 * reason, and bytes sent before still arrive. Then the parts that only tcp has: keys, unknown
 * peers, and how workers find each other. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fabric/transport/address.h"
#include "fabric/transport/key.h"
#include "fabric/transport/preamble.h"
#include "fabric/transport/tls.h"
#include "fabric/transport/transport.h"
#include "fabric/transport/ucx.h"
#include "sanitized.h"
#include "skip.h"

#define LIMIT 20.0 /* seconds that anything here may take */

/* ---- A job ---- */

static char folder[64];
static char key_file[80], other_key[80];

static bool is_free(int port)
{
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0;
    close(fd);
    return bound;
}

/* Two adjacent free ports that the system does not assign by itself. */
static int free_port(void)
{
    static uint32_t random;
    int port;
    do {
        random = (random ? random : (uint32_t)getpid() * 2654435761u) * 1664525u + 1013904223u;
        port = 10000 + 2 * (int)((random >> 8) % 10000);
    } while (!is_free(port) || !is_free(port + 1));
    return port;
}

static ls_cluster_options job(int port, int rank)
{
    ls_cluster_options o = { .rank = rank, .size = 4, .join_limit = 1 };
    snprintf(o.job, sizeof(o.job), "transport-%d-%d", (int)getpid(), port);
    snprintf(o.rendezvous, sizeof(o.rendezvous), "tcp://127.0.0.1:%d", port);
    snprintf(o.key_file, sizeof(o.key_file), "%s", key_file);
    return o;
}

static int set_up(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_DFL); /* it may not be raised */
    snprintf(folder, sizeof(folder), "/tmp/lockstep-transport-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(key_file, sizeof(key_file), "%s/key", folder);
    snprintf(other_key, sizeof(other_key), "%s/other", folder);
    return ls_cluster_make_key(key_file) != LS_OK || ls_cluster_make_key(other_key) != LS_OK;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(key_file);
    unlink(other_key);
    return rmdir(folder); /* nothing else is left */
}

static ls_transport *open_worker(const ls_transport_table *t, const ls_cluster_options *o)
{
    ls_transport *transport = NULL;
    if (t->open(o, 0, &transport) != LS_OK)
        fail_msg("worker %d: %s", o->rank, ls_last_error());
    return transport;
}

static bool says(const char *part)
{
    if (strstr(ls_last_error(), part))
        return true;
    fprintf(stderr, "\"%s\" is not in: %s\n", part, ls_last_error());
    return false;
}

/* ---- Two workers with a line between them ---- */

typedef struct pair {
    const ls_transport_table *t;
    ls_transport *worker[2];
    ls_connection *line[2]; /* from worker 0 to worker 1, and back */
} pair;

/* One byte of each side has passed: the line is open. */
static bool is_through(pair *p)
{
    size_t moved = 0;
    char c = 'x';
    double end = ls_clock_now() + LIMIT;
    for (int from = 0; from < 2; from++)
        for (int step = 0; step < 2;) {
            if (ls_clock_now() > end)
                return false;
            ls_want other = { .connection = p->line[step == 0 ? !from : from],
                              .read = true }; /* it may have to open it */
            if (p->t->wait(p->worker[step == 0 ? !from : from], &other, 1, 0) != LS_OK)
                return false;
            ls_status status = step == 0 ? p->t->write(p->line[from], &(struct iovec){ &c, 1 }, 1, &moved)
                                         : p->t->read(p->line[!from], &(struct iovec){ &c, 1 }, 1, &moved);
            if (status != LS_OK)
                return false;
            step += moved == 1;
        }
    return true;
}

static char last_why[300];

static bool try_call(const ls_transport_table *t, ls_transport *caller, int rank, ls_transport *called,
                     ls_connection **out)
{
    double end = ls_clock_now() + LIMIT;
    out[0] = out[1] = NULL;
    while (ls_clock_now() < end && !out[0]) {
        ls_want listener[] = { { .connection = NULL, .read = true } },
                mine[] = { { .connection = out[1], .read = true } };
        if (!out[1])
            assert_int_equal(t->call(caller, rank, &out[1]), LS_OK);
        assert_int_equal(t->answer(called, &out[0]), LS_OK);
        assert_int_equal(t->wait(called, listener, 1, 0.001), LS_OK);
        mine->connection = out[1];
        assert_int_equal(t->wait(caller, mine, out[1] ? 1 : 0, 0.001), LS_OK);
        if (out[1] && mine->ready) { /* nothing is said yet: it has ended */
            size_t moved;
            char c;
            if (t->read(out[1], &(struct iovec){ &c, 1 }, 1, &moved) != LS_OK) {
                snprintf(last_why, sizeof(last_why), "%s", ls_last_error());
                t->hang_up(out[1]);
                out[1] = NULL;
            }
        }
    }
    if (!out[0])
        fprintf(stderr, "nobody came to worker %d: %s\n", rank, last_why);
    return out[0] && out[1];
}

static pair open_pair(const ls_transport_table *t)
{
    int port = free_port();
    ls_cluster_options o[2] = { job(port, 0), job(port, 1) };
    pair p = { .t = t };
    for (int r = 0; r < 2; r++)
        p.worker[r] = open_worker(t, &o[r]);
    assert_true(try_call(t, p.worker[1], 0, p.worker[0], p.line));
    assert_true(is_through(&p));
    return p;
}

static void close_pair(pair *p)
{
    for (int r = 0; r < 2; r++) {
        if (p->line[r])
            p->t->hang_up(p->line[r]);
        if (p->worker[r])
            p->t->close(p->worker[r]);
    }
}

/* ---- Bytes ---- */

static unsigned char byte_at(int from, size_t at)
{
    return (unsigned char)(at * 31 + at / 4096 + at / 65537 + (size_t)from * 7 + 1);
}

typedef struct pump {
    pair *p;
    int me;
    size_t send, receive; /* bytes in all */
    size_t most;          /* bytes offered in one call */
    atomic_int *running;
    ls_status status;
    char why[256];
} pump;

#define PARTS 5

/* Parts of odd sizes, empty ones, too, that have up to `bytes` together. */
static int cut(unsigned char *data, size_t bytes, uint32_t *random, struct iovec *parts)
{
    size_t at = 0;
    for (int i = 0; i < PARTS; i++) {
        *random = *random * 1664525u + 1013904223u;
        size_t n = i == PARTS - 1 ? bytes - at : (bytes - at) * (*random >> 24) / 512;
        parts[i] = (struct iovec){ data + at, n };
        at += n;
    }
    return PARTS;
}

static bool send_some(pump *x, unsigned char *data, size_t *sent, uint32_t *random)
{
    struct iovec parts[PARTS];
    size_t bytes = x->send - *sent < x->most ? x->send - *sent : x->most, moved = 0;
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_at(x->me, *sent + i);
    x->status = x->p->t->write(x->p->line[x->me], parts, cut(data, bytes, random, parts), &moved);
    *sent += x->status == LS_OK ? moved : 0;
    return x->status == LS_OK && moved <= bytes;
}

static bool receive_some(pump *x, unsigned char *data, size_t *got, uint32_t *random)
{
    struct iovec parts[PARTS];
    size_t bytes = x->receive - *got < x->most ? x->receive - *got : x->most, moved = 0;
    x->status = x->p->t->read(x->p->line[x->me], parts, cut(data, bytes, random, parts), &moved);
    if (x->status != LS_OK)
        return false;
    for (size_t i = 0; i < moved; i++)
        if (data[i] != byte_at(!x->me, *got + i)) {
            x->status = LS_ERR_INTERNAL;
            snprintf(x->why, sizeof(x->why), "byte %zu is wrong", *got + i);
            return false;
        }
    *got += moved;
    return true;
}

/* As workers do it: what can go at once, then waiting for the rest. */
static void *run_pump(void *user)
{
    pump *x = user;
    size_t sent = 0, got = 0;
    uint32_t random = (uint32_t)x->most + (uint32_t)x->me;
    unsigned char *data = malloc(x->most);
    double end = ls_clock_now() + 3 * LIMIT;
    while (sent < x->send || got < x->receive) {
        ls_want want = {
            .connection = x->p->line[x->me], .read = got < x->receive, .write = sent < x->send, .ready = false
        };
        if (ls_clock_now() > end) {
            x->status = LS_ERR_INTERNAL;
            snprintf(x->why, sizeof(x->why), "%zu sent, %zu received, and then nothing", sent, got);
        }
        if (x->status != LS_OK || (x->status = x->p->t->wait(x->p->worker[x->me], &want, 1, 1)) != LS_OK ||
            (sent < x->send && !send_some(x, data, &sent, &random)) ||
            (got < x->receive && !receive_some(x, data, &got, &random)))
            break;
    }
    if (x->status != LS_OK && !x->why[0])
        snprintf(x->why, sizeof(x->why), "%s", ls_last_error());
    free(data);
    atomic_fetch_sub(x->running, 1);
    while (atomic_load(x->running) > 0) /* messages move only while a worker waits, as heartbeats do */
        x->p->t->wait(x->p->worker[x->me], NULL, 0, 0.001);
    return NULL;
}

static void pump_both(pair *p, size_t a, size_t b, size_t most)
{
    atomic_int running = 2;
    pump x[2] = { { .p = p, .me = 0, .send = a, .receive = b, .most = most, .running = &running },
                  { .p = p, .me = 1, .send = b, .receive = a, .most = most, .running = &running } };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_pump, &x[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        if (x[i].status != LS_OK)
            fail_msg("worker %d: %s", i, x[i].why);
}

#define MANY ((size_t)(SANITIZED ? 8 : 32) << 20)

static void bytes_pass_both_ways(void **state)
{
    pair p = open_pair(*state);
    pump_both(&p, 1, 1, 1);
    pump_both(&p, 5000, 3000, 1);
    pump_both(&p, 100000, 1, 128);
    pump_both(&p, 16384, 16385, 16384);
    pump_both(&p, 3000017, 2000003, 100003);
    pump_both(&p, MANY, MANY, 1 << 20); /* more than any buffer between them holds, at the same time */
    pump_both(&p, MANY, 0, 4 << 20);
    close_pair(&p);
}

/* ---- Ends ---- */

/* Reads until the line ends; bytes that came, or SIZE_MAX where one is wrong. */
static size_t read_to_end(pair *p, int me, size_t already)
{
    size_t got = already, moved = 0;
    unsigned char data[4096];
    double end = ls_clock_now() + LIMIT;
    while (ls_clock_now() < end) {
        ls_want want = { .connection = p->line[me], .read = true, .write = false, .ready = false };
        assert_int_equal(p->t->wait(p->worker[me], &want, 1, 0.1), LS_OK);
        ls_status status = p->t->read(p->line[me], &(struct iovec){ data, sizeof(data) }, 1, &moved);
        if (status != LS_OK) {
            assert_int_equal(status, LS_ERR_PEER);
            assert_true(strlen(ls_last_error()) > 0);
            return got;
        }
        for (size_t i = 0; i < moved; i++)
            if (data[i] != byte_at(!me, got + i))
                return SIZE_MAX;
        got += moved;
    }
    return SIZE_MAX;
}

/* Offers bytes until none moves for a while; returns how many did. */
static size_t fill_up(pair *p, int me, size_t from, ls_status *status)
{
    size_t sent = from, moved = 1;
    static unsigned char data[100000];
    for (double last = ls_clock_now(); ls_clock_now() < last + 0.1;) {
        for (size_t i = 0; i < sizeof(data); i++)
            data[i] = byte_at(me, sent + i);
        *status = p->t->write(p->line[me], &(struct iovec){ data, sizeof(data) }, 1, &moved);
        if (*status != LS_OK)
            return sent;
        if (moved > 0)
            last = ls_clock_now();
        sent += moved;
    }
    return sent;
}

/* Bytes written before hanging up arrive, also when the other side's bytes were never read. */
static void bytes_sent_before_hanging_up_arrive(void **state)
{
    ls_status status;
    for (int unread = 0; unread < 2; unread++) {
        pair p = open_pair(*state);
        if (unread)
            assert_true(fill_up(&p, 1, 0, &status) > 0);
        size_t sent = fill_up(&p, 0, 0, &status);
        assert_int_equal(status, LS_OK);
        p.t->hang_up(p.line[0]);
        p.line[0] = NULL;
        size_t got = read_to_end(&p, 1, 0);
        assert_true(got == sent || got == sent + 1); /* one byte may be in flight before it is counted */
        assert_int_equal(ls_connection_how_ended(p.t, p.line[1]),
                         p.t == &ls_transport_tcp ? LS_CONNECTION_CLOSED : LS_CONNECTION_GONE);
        close_pair(&p);
    }
}

/* A process that closes its transport while a write is pending cannot send close_notify. It still
 * runs: its peer must not treat it as dead. */
static void a_pending_write_is_no_proof_of_death(void **state)
{
    ls_status status;
    pair p = open_pair(*state);
    assert_true(fill_up(&p, 0, 0, &status) > 0);
    p.t->hang_up(p.line[0]);
    p.t->close(p.worker[0]);
    p.line[0] = NULL;
    p.worker[0] = NULL;
    (void)read_to_end(&p, 1, 0);
    ls_connection_end end = ls_connection_how_ended(p.t, p.line[1]);
    assert_true(end == LS_CONNECTION_BROKEN || end == LS_CONNECTION_CLOSED); /* closed: the write was done by then */
    close_pair(&p);
}

/* Messages that were accepted whole arrive, although their sender makes no further call. */
static void what_was_taken_arrives_by_itself(void **state)
{
    enum { MESSAGE = 4096 };
    pair p = open_pair(*state);
    unsigned char data[MESSAGE];
    size_t sent = 0, got = 0, moved = 1;
    double end = ls_clock_now() + LIMIT;
    while (moved > 0 && ls_clock_now() < end) { /* until none is taken any more */
        for (size_t i = 0; i < MESSAGE; i++)
            data[i] = byte_at(0, sent + i);
        assert_int_equal(p.t->write(p.line[0], &(struct iovec){ data, MESSAGE }, 1, &moved), LS_OK);
        sent += moved;
    }
    while (got < sent + (MESSAGE - sent % MESSAGE) % MESSAGE && ls_clock_now() < end) {
        size_t at = sent % MESSAGE; /* the rest of a message that was taken in part */
        ls_want want = { .connection = p.line[1], .read = true, .write = false, .ready = false };
        if (at > 0) {
            for (size_t i = at; i < MESSAGE; i++)
                data[i] = byte_at(0, sent - at + i);
            assert_int_equal(p.t->write(p.line[0], &(struct iovec){ data + at, MESSAGE - at }, 1, &moved), LS_OK);
            sent += moved;
        }
        assert_int_equal(p.t->wait(p.worker[1], &want, 1, 0.01), LS_OK);
        unsigned char read[MESSAGE];
        assert_int_equal(p.t->read(p.line[1], &(struct iovec){ read, MESSAGE }, 1, &moved), LS_OK);
        for (size_t i = 0; i < moved; i++)
            assert_int_equal(read[i], byte_at(0, got + i));
        got += moved;
    }
    assert_int_equal(sent % MESSAGE, 0);
    assert_int_equal(got, sent);
    close_pair(&p);
}

/* A connection whose peer is gone accepts no more bytes; the last ones it sent can be read. */
static void last_words_are_heard_by_who_only_writes(void **state)
{
    pair p = open_pair(*state);
    ls_status status = LS_OK;
    size_t moved = 0, sent = 0;
    unsigned char words[1000];
    for (size_t i = 0; i < sizeof(words); i++)
        words[i] = byte_at(0, i);
    assert_int_equal(p.t->write(p.line[0], &(struct iovec){ words, sizeof(words) }, 1, &moved), LS_OK);
    assert_int_equal(moved, sizeof(words));
    p.t->hang_up(p.line[0]);
    p.t->close(p.worker[0]);
    p.line[0] = NULL;
    p.worker[0] = NULL;
    for (double end = ls_clock_now() + LIMIT; status == LS_OK && ls_clock_now() < end;)
        sent += fill_up(&p, 1, sent, &status);
    assert_int_equal(status, LS_ERR_PEER);
    assert_int_equal(read_to_end(&p, 1, 0), sizeof(words));
    close_pair(&p);
}

/* A process that is killed ends its lines, at once. */
static void a_killed_worker_ends_its_lines(void **state)
{
    const ls_transport_table *t = *state;
    int port = free_port();
    ls_cluster_options o = job(port, 0), mine = job(port, 1);
    pid_t pid = fork(); /* before there are threads */
    if (pid == 0) {
        ls_transport *other = NULL;
        ls_connection *to = NULL;
        size_t moved = 0;
        alarm((unsigned)LIMIT);
        if (t->open(&mine, 0, &other) != LS_OK)
            _exit(1);
        while (moved == 0) {
            usleep(1000);
            if (!to && t->call(other, 0, &to) != LS_OK)
                _exit(1);
            if (to && t->write(to, &(struct iovec){ "x", 1 }, 1, &moved) != LS_OK) {
                t->hang_up(to); /* no worker was listening yet */
                to = NULL;
            }
        }
        for (;;)
            t->wait(other, NULL, 0, 1);
    }
    ls_transport *worker = open_worker(t, &o);
    ls_connection *line = NULL;
    char c = 0;
    size_t moved = 0;
    ls_status status = LS_OK;
    double end = ls_clock_now() + LIMIT;
    while (ls_clock_now() < end && status == LS_OK) {
        ls_want want = { .connection = line, .read = true, .write = false, .ready = false };
        t->wait(worker, &want, 1, 0.1);
        if (!line)
            assert_int_equal(t->answer(worker, &line), LS_OK);
        else if ((status = t->read(line, &(struct iovec){ &c, 1 }, 1, &moved)) == LS_OK && moved == 1)
            kill(pid, SIGKILL);
    }
    assert_int_equal(c, 'x');
    assert_int_equal(status, LS_ERR_PEER);
    if (t != &ls_transport_ucx) /* which connects by another transport */
        assert_int_equal(ls_connection_how_ended(t, line),
                         t == &ls_transport_tcp ? LS_CONNECTION_DIED : LS_CONNECTION_GONE);
    waitpid(pid, NULL, 0);
    t->hang_up(line);
    t->close(worker);
}

/* ---- Waiting ---- */

typedef struct waiter {
    const ls_transport_table *t;
    ls_transport *worker;
    ls_connection *line;
    atomic_int rounds;
    bool failed;
} waiter;

/* Echoes bytes until the line ends. */
static void *echo(void *user)
{
    waiter *w = user;
    for (double end = ls_clock_now() + LIMIT; ls_clock_now() < end;) {
        ls_want want = { .connection = w->line, .read = true, .write = false, .ready = false };
        char c;
        size_t moved = 0, back = 0;
        w->t->wait(w->worker, &want, 1, 5);
        if (!want.ready || w->t->read(w->line, &(struct iovec){ &c, 1 }, 1, &moved) != LS_OK)
            break;
        while (moved > 0 && back == 0 && ls_clock_now() < end)
            if (w->t->write(w->line, &(struct iovec){ &c, 1 }, 1, &back) != LS_OK)
                w->failed = true;
        atomic_fetch_add(&w->rounds, (int)moved);
    }
    return NULL;
}

static void threads_wait_for_lines_of_their_own(void **state)
{
    const ls_transport_table *t = *state;
    pair p = open_pair(t);
    ls_connection *more[2];
    assert_true(try_call(t, p.worker[1], 0, p.worker[0], more));
    waiter w[2] = { { .t = t, .worker = p.worker[0], .line = p.line[0] },
                    { .t = t, .worker = p.worker[0], .line = more[0] } };
    ls_connection *mine[2] = { p.line[1], more[1] };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, echo, &w[i]), 0);
    double end = ls_clock_now() + LIMIT;
    for (int round = 0; round < 200 && ls_clock_now() < end; round++) {
        int i = round % 3 == 0;
        size_t moved = 0;
        char c = (char)round, back = 0;
        while (moved == 0 && ls_clock_now() < end)
            assert_int_equal(t->write(mine[i], &(struct iovec){ &c, 1 }, 1, &moved), LS_OK);
        for (moved = 0; moved == 0 && ls_clock_now() < end;) {
            ls_want wants[2] = { { .connection = mine[0], .read = true, .write = false, .ready = false },
                                 { .connection = mine[1], .read = true, .write = false, .ready = false } };
            assert_int_equal(t->wait(p.worker[1], wants, 2, 1), LS_OK);
            assert_int_equal(t->read(mine[i], &(struct iovec){ &back, 1 }, 1, &moved), LS_OK);
        }
        assert_int_equal(back, c);
    }
    for (int i = 0; i < 2; i++)
        t->hang_up(mine[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(w[0].rounds + w[1].rounds, 200);
    assert_false(w[0].failed || w[1].failed);
    t->hang_up(more[0]);
    p.line[1] = NULL;
    close_pair(&p);
}

static void waiting_ends_when_its_time_is_over(void **state)
{
    pair p = open_pair(*state);
    ls_want wants[2] = { { .connection = p.line[0], .read = true, .write = false, .ready = true },
                         { .connection = NULL, .read = true, .ready = true } };
    double begin = p.t->now(p.worker[0]);
    assert_int_equal(p.t->wait(p.worker[0], wants, 2, 0.05), LS_OK);
    assert_false(wants[0].ready || wants[1].ready);
    assert_true(p.t->now(p.worker[0]) - begin >= 0.049);
    wants[0].write = true;
    assert_int_equal(p.t->wait(p.worker[0], wants, 2, LIMIT), LS_OK);
    assert_true(wants[0].ready);
    close_pair(&p);
}

/* ---- Keys ---- */

static void keys_are_made_once_and_for_one_user(void **state)
{
    (void)state;
    struct stat s;
    char path[96];
    ls_key *key = NULL;
    unsigned char a[LS_KEY_BYTES], b[LS_KEY_BYTES];
    snprintf(path, sizeof(path), "%s/made", folder);
    mode_t mask = umask(0);
    assert_int_equal(ls_cluster_make_key(path), LS_OK);
    umask(mask);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0600);
    assert_int_equal(s.st_size, LS_KEY_BYTES);
    assert_int_equal(ls_cluster_make_key(path), LS_ERR_STATE);
    assert_true(says("exists already"));
    assert_int_equal(ls_cluster_make_key("/nowhere/key"), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_cluster_make_key(NULL), LS_ERR_INVALID);
    assert_int_equal(ls_key_read(path, &key), LS_OK);
    assert_int_equal(ls_key_derive(key, "x", 1, a), LS_OK);
    assert_int_equal(ls_key_derive(key, "y", 1, b), LS_OK);
    assert_memory_not_equal(a, b, LS_KEY_BYTES);
    ls_key_free(key);
    key = NULL;
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(ls_key_read(path, &key), LS_ERR_INVALID);
    assert_true(says("mode 0640"));
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(truncate(path, 31), 0);
    assert_int_equal(ls_key_read(path, &key), LS_ERR_INVALID);
    assert_true(says("31 bytes"));
    assert_int_equal(ls_key_read(folder, &key), LS_ERR_INVALID);
    assert_int_equal(ls_key_read("/nowhere/key", &key), LS_ERR_NOT_FOUND);
    if (geteuid() == 0) {
        assert_int_equal(truncate(path, 32), 0);
        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_int_equal(ls_key_read(path, &key), LS_ERR_INVALID);
        assert_true(says("belongs to user 65534"));
    }
    assert_null(key);
    assert_int_equal(unlink(path), 0);
}

static void without_a_key_or_an_address_no_workers_meet(void **state)
{
    const ls_transport_table *t = *state;
    ls_transport *transport = NULL;
    ls_cluster_options o = job(free_port(), 0);
    o.key_file[0] = '\0';
    assert_int_equal(t->open(&o, 0, &transport), LS_ERR_UNSUPPORTED);
    assert_true(says("lockstep key FILE"));
    static const char *const bad[] = { "",          "tcp://",        "tcp://host",      "tcp://host:0", "file://folder",
                                       "udp://a:1", "tcp://h:99999", "tcp://[::1:2222", "tcp://a:65535" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        o = job(free_port(), 0);
        snprintf(o.rendezvous, sizeof(o.rendezvous), "%s", bad[i]);
        assert_int_equal(t->open(&o, 0, &transport), LS_ERR_INVALID);
        assert_true(says("rendezvous"));
    }
    o = job(free_port(), 0);
    snprintf(o.rendezvous, sizeof(o.rendezvous), "tcp://192.0.2.1:2222"); /* the address of no machine */
    assert_int_equal(t->open(&o, 0, &transport), LS_ERR_INVALID);
    assert_true(says("not an address of this machine"));
    o = job(free_port(), 1);
    snprintf(o.rendezvous, sizeof(o.rendezvous), "tcp://no-such-host.invalid:2222");
    o.join_limit = 0.1;
    assert_int_equal(t->open(&o, 0, &transport), LS_ERR_NOT_FOUND);
    assert_true(says("no-such-host.invalid"));
    assert_null(transport);
}

/* Calls until the connection ends, with the reason as the last error; polls the listener too. */
static void call_and_be_refused(const ls_transport_table *t, ls_transport *caller, ls_transport *called)
{
    ls_connection *line = NULL, *in = NULL;
    ls_status status = LS_OK;
    size_t moved;
    char c;
    assert_int_equal(t->call(caller, 0, &line), LS_OK);
    assert_non_null(line);
    for (double end = ls_clock_now() + LIMIT; status == LS_OK && ls_clock_now() < end;) {
        ls_want want = { .connection = line, .read = true, .write = false, .ready = false };
        assert_int_equal(t->wait(caller, &want, 1, 0.001), LS_OK);
        assert_int_equal(t->answer(called, &in), LS_OK);
        assert_null(in);
        status = t->read(line, &(struct iovec){ &c, 1 }, 1, &moved);
    }
    assert_int_equal(status, LS_ERR_PEER);
    assert_int_equal(t->write(line, &(struct iovec){ &c, 1 }, 1, &moved), LS_ERR_PEER);
    t->hang_up(line);
}

static bool refused_with(const ls_transport_table *t, ls_transport *listener, const char *part)
{
    char why[400] = "";
    return t->refused(listener, why, sizeof(why)) && strstr(why, part) && !t->refused(listener, why, sizeof(why));
}

static void other_keys_and_jobs_are_reported_on_both_sides(void **state)
{
    const ls_transport_table *t = *state;
    int port = free_port();
    ls_cluster_options o = job(port, 0);
    ls_transport *listener = open_worker(t, &o), *caller;

    o = job(port, 1);
    snprintf(o.key_file, sizeof(o.key_file), "%s", other_key);
    caller = open_worker(t, &o);
    call_and_be_refused(t, caller, listener);
    assert_true(says("another key"));
    assert_true(refused_with(t, listener, "another key"));
    t->close(caller);

    o = job(port, 1);
    snprintf(o.job, sizeof(o.job), "another");
    caller = open_worker(t, &o);
    call_and_be_refused(t, caller, listener);
    assert_true(says("another job"));
    assert_true(refused_with(t, listener, "another job"));
    t->close(caller);

    o = job(port, 1);
    caller = NULL;
    assert_int_equal(t->open(&o, 16, &caller), LS_OK); /* its port is that of number 0 */
    call_and_be_refused(t, caller, listener);
    assert_true(says("another context"));
    assert_true(refused_with(t, listener, "context 16"));
    t->close(caller);

    o = job(port, 0);
    caller = NULL;
    assert_int_equal(t->open(&o, 0, &caller), LS_ERR_STATE);
    assert_true(says("choose another port"));
    t->close(listener);
}

/* ---- Unknown peers ---- */

static int connect_raw(int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Returns how many bytes the listener sends in reply before it closes; -1: it waits for more. */
static ssize_t say_raw(const ls_transport_table *t, ls_transport *listener, int port, const void *data, size_t bytes,
                       unsigned char *answer, size_t room)
{
    int fd = connect_raw(port);
    ls_connection *in = NULL;
    size_t got = 0;
    ssize_t n = -1;
    assert_true(fd >= 0);
    assert_int_equal(send(fd, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
    for (double end = ls_clock_now() + 0.5; n != 0 && ls_clock_now() < end;) {
        ls_want want = { .connection = NULL, .read = true };
        assert_int_equal(t->wait(listener, &want, 1, 0.001), LS_OK);
        assert_int_equal(t->answer(listener, &in), LS_OK);
        assert_null(in);
        n = recv(fd, answer + got, room - got, MSG_DONTWAIT);
        if (n < 0 && errno == ECONNRESET)
            n = 0;
        got += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return n == 0 ? (ssize_t)got : -1;
}

static void unknown_peers_send_at_most_64_bytes(void **state)
{
    const ls_transport_table *t = *state;
    int port = free_port(), version;
    ls_cluster_options o = job(port, 0);
    ls_transport *listener = open_worker(t, &o);
    ls_preamble opening = { .version = LS_WIRE_VERSION, .kind = LS_PREAMBLE_CALL, .from = 1 };
    unsigned char bytes[4096], answer[256];
    assert_int_equal(ls_preamble_set_job(&opening, o.job), LS_OK);

    memset(bytes, 'x', sizeof(bytes)); /* garbage */
    assert_int_equal(say_raw(t, listener, port, bytes, sizeof(bytes), answer, sizeof(answer)), 0);
    assert_true(refused_with(t, listener, "not a worker"));
    assert_int_equal(say_raw(t, listener, port, "GET / HTTP/1.1\r\n\r\n", 18, answer, sizeof(answer)),
                     -1); /* half-open */
    ls_preamble_write(&opening, bytes);
    assert_int_equal(say_raw(t, listener, port, bytes, 63, answer, sizeof(answer)), -1);
    char why[300];
    t->refused(listener, why, sizeof(why)); /* those two hung up */

    opening.version = LS_WIRE_VERSION + 1;
    ls_preamble_write(&opening, bytes);
    assert_int_equal(say_raw(t, listener, port, bytes, LS_PREAMBLE_BYTES, answer, sizeof(answer)), LS_REPLY_BYTES);
    assert_int_equal(ls_reply_read(answer, &version), LS_REPLY_OTHER_VERSION);
    assert_int_equal(version, LS_WIRE_VERSION);
    assert_true(refused_with(t, listener, "version 2"));

    opening.version = LS_WIRE_VERSION; /* let in so far, and then no TLS */
    ls_preamble_write(&opening, bytes);
    memset(bytes + LS_PREAMBLE_BYTES, 'x', 1000);
    assert_true(say_raw(t, listener, port, bytes, LS_PREAMBLE_BYTES + 1000, answer, sizeof(answer)) >= LS_REPLY_BYTES);
    assert_int_equal(ls_reply_read(answer, &version), LS_REPLY_WELCOME);
    assert_true(t->refused(listener, why, sizeof(why)));
    t->close(listener);
}

/* Listens at a port, reads a preamble, sends `reply`. */
typedef struct impostor {
    int fd;
    unsigned char reply[LS_REPLY_BYTES];
} impostor;

static void *be_impostor(void *user)
{
    impostor *i = user;
    unsigned char bytes[LS_PREAMBLE_BYTES];
    int fd = accept(i->fd, NULL, NULL);
    if (fd >= 0 && recv(fd, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes) &&
        send(fd, i->reply, sizeof(i->reply), MSG_NOSIGNAL) == sizeof(i->reply)) {
        while (recv(fd, bytes, sizeof(bytes), 0) > 0)
            ;
    }
    close(fd);
    return NULL;
}

static void other_versions_and_other_programs_are_reported_by_the_caller(void **state)
{
    static const struct {
        unsigned char version, code;
        const char *says;
    } cases[] = { { 9, LS_REPLY_WELCOME, "version 9" },
                  { 9, LS_REPLY_OTHER_VERSION, "version 9" },
                  { 1, 99, "not a worker of Lockstep" },
                  { 1, LS_REPLY_OTHER_WORKER, "another worker" } };
    const ls_transport_table *t = *state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        int port = free_port();
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        impostor i = { .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
        ls_reply_write((ls_reply_code)cases[c].code, i.reply);
        i.reply[9] = cases[c].version;
        assert_int_equal(bind(i.fd, (struct sockaddr *)&at, sizeof(at)), 0);
        assert_int_equal(listen(i.fd, 5), 0);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, be_impostor, &i), 0);
        ls_cluster_options o = job(port, 1), other = job(free_port(), 0);
        ls_transport *caller = open_worker(t, &o), *idle = open_worker(t, &other);
        call_and_be_refused(t, caller, idle);
        assert_true(says(cases[c].says));
        t->close(caller);
        t->close(idle);
        pthread_join(thread, NULL);
        close(i.fd);
    }
}

/* Passes bytes on, and changes one of the first 64. */
typedef struct meddler {
    int listener, port, byte;
} meddler;

static void *meddle(void *user)
{
    meddler *m = user;
    int in = accept(m->listener, NULL, NULL), out = connect_raw(m->port);
    unsigned char bytes[4096];
    struct pollfd {
        int fd;
        short events, revents;
    };
    size_t seen = 0;
    fcntl(in, F_SETFL, O_NONBLOCK);
    fcntl(out, F_SETFL, O_NONBLOCK);
    for (double end = ls_clock_now() + LIMIT; ls_clock_now() < end;) {
        ssize_t n = recv(in, bytes, sizeof(bytes), 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            break;
        for (ssize_t i = 0; i < n; i++, seen++)
            bytes[i] ^= seen == (size_t)m->byte;
        if (n > 0 && send(out, bytes, (size_t)n, MSG_NOSIGNAL) != n)
            break;
        n = recv(out, bytes, sizeof(bytes), 0);
        if (n == 0 || (n < 0 && errno != EAGAIN) || (n > 0 && send(in, bytes, (size_t)n, MSG_NOSIGNAL) != n))
            break;
        usleep(500);
    }
    close(in);
    close(out);
    return NULL;
}

/* The caller's rank and address are read before there is TLS: TLS proves that they were not
 * changed. */
static void a_changed_opening_is_noticed(void **state)
{
    const ls_transport_table *t = *state;
    static const int changed[] = { 19 /* the caller's rank */, 39, 41 /* its port */, 200 /* the greeting of TLS */ };
    for (size_t c = 0; c < sizeof(changed) / sizeof(*changed); c++) {
        int port = free_port(), between = free_port();
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)between) };
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        meddler m = { socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port, changed[c] };
        assert_int_equal(bind(m.listener, (struct sockaddr *)&at, sizeof(at)), 0);
        assert_int_equal(listen(m.listener, 5), 0);
        ls_cluster_options o = job(port, 0), mine = job(port, 1);
        snprintf(mine.rendezvous, sizeof(mine.rendezvous), "tcp://127.0.0.1:%d", between);
        ls_transport *listener = open_worker(t, &o), *caller = open_worker(t, &mine);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, meddle, &m), 0);
        call_and_be_refused(t, caller, listener);
        pthread_join(thread, NULL);
        close(m.listener);
        t->close(caller);
        t->close(listener);
    }
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

/* Silent connections are closed to make room for others, the oldest first. */
static void silent_callers_make_room(void **state)
{
    enum { SILENT = 600 };
    const ls_transport_table *t = *state;
    int port = free_port(), silent[SILENT], gone = 0;
    ls_cluster_options o = job(port, 0), mine = job(port, 1);
    pair p = { .t = t, .worker = { open_worker(t, &o), open_worker(t, &mine) } };
    char c;
    for (int i = 0; i < SILENT; i++)
        assert_true((silent[i] = connect_raw(port)) >= 0);
    assert_true(try_call(t, p.worker[1], 0, p.worker[0], p.line));
    assert_true(is_through(&p));
    for (int i = 0; i < SILENT; i++) {
        gone += recv(silent[i], &c, 1, MSG_DONTWAIT) == 0;
        close(silent[i]);
    }
    assert_true(gone >= SILENT - 64);
    close_pair(&p);
}

/* Thousands call and say nothing, or half of something: workers meet all the same. */
static void thousands_of_connections_change_nothing(void **state)
{
    enum { ALL = SANITIZED ? 1000 : 10000, HELD = 400 };
    const ls_transport_table *t = *state;
    pair p = open_pair(t);
    int port = free_port(), before = count_descriptors(), most = 0, how, met = 0;
    ls_cluster_options o = job(port, 0), mine = job(port, 1);
    ls_transport *listener = open_worker(t, &o), *caller = open_worker(t, &mine);
    pid_t pid = fork();
    if (pid == 0) {
        static int held[HELD];
        unsigned char bytes[LS_PREAMBLE_BYTES];
        ls_preamble opening = { .version = LS_WIRE_VERSION, .kind = LS_PREAMBLE_CALL, .from = 1 };
        snprintf(o.job, sizeof(o.job), "%s", mine.job);
        alarm(60);
        if (ls_preamble_set_job(&opening, o.job) != LS_OK)
            _exit(2);
        ls_preamble_write(&opening, bytes);
        for (int i = 0; i < ALL; i++) {
            int *fd = &held[i % HELD];
            if (i >= HELD)
                close(*fd);
            *fd = connect_raw(port);
            if (*fd >= 0 && i % 4) /* nothing, a part of an opening, a whole one, garbage */
                send(*fd, i % 4 == 3 ? (unsigned char *)held : bytes, i % 4 == 1 ? 17 : 64, MSG_NOSIGNAL);
        }
        _exit(0);
    }
    for (double end = ls_clock_now() + 60; ls_clock_now() < end && waitpid(pid, &how, WNOHANG) == 0;) {
        pair q = { .t = t, .worker = { listener, caller } };
        assert_true(try_call(t, caller, 0, listener, q.line));
        assert_true(is_through(&q));
        t->hang_up(q.line[0]);
        t->hang_up(q.line[1]);
        met++;
        ls_want want = { .connection = NULL, .read = true };
        assert_int_equal(t->wait(listener, &want, 1, 0.01), LS_OK);
        int now = count_descriptors();
        most = now > most ? now : most;
    }
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_true(met > 0);
    assert_true(most - before < 150);
    char why[300];
    assert_true(t->refused(listener, why, sizeof(why)));
    pump_both(&p, 100000, 100000, 5000); /* a job beside it */
    t->close(caller);
    t->close(listener);
    close_pair(&p);
}

/* ---- Finding each other ---- */

static void pass_a_byte(const ls_transport_table *t, ls_transport *caller, int rank, ls_transport *called)
{
    ls_connection *line[2] = { NULL, NULL };
    double end = ls_clock_now() + LIMIT;
    bool through = false;
    while (!through && ls_clock_now() < end) {
        ls_want want = { .connection = NULL, .read = true };
        size_t moved = 0;
        char c = 'y';
        if (!line[1])
            assert_int_equal(t->call(caller, rank, &line[1]), LS_OK);
        if (!line[0])
            assert_int_equal(t->answer(called, &line[0]), LS_OK);
        assert_int_equal(t->wait(caller, &want, 1, 0.001), LS_OK);
        if (line[1] && t->write(line[1], &(struct iovec){ &c, 1 }, 1, &moved) != LS_OK) {
            t->hang_up(line[1]);
            line[1] = NULL;
        }
        if (line[0] && t->read(line[0], &(struct iovec){ &c, 1 }, 1, &moved) == LS_OK && moved == 1)
            through = c == 'y';
    }
    assert_true(through);
    t->hang_up(line[0]);
    t->hang_up(line[1]);
}

static void workers_find_each_other_by_worker_0(void **state)
{
    const ls_transport_table *t = *state;
    int port = free_port();
    ls_transport *w[4];
    for (int r = 3; r >= 0; r--) { /* worker 0 comes last */
        ls_cluster_options o = job(port, r);
        w[r] = open_worker(t, &o);
    }
    for (int r = 1; r < 4; r++)
        pass_a_byte(t, w[r], 0, w[0]);
    pass_a_byte(t, w[2], 1, w[1]);
    pass_a_byte(t, w[3], 1, w[1]);
    pass_a_byte(t, w[3], 2, w[2]);
    pass_a_byte(t, w[0], 3, w[3]); /* worker 0 knows them all */
    t->close(w[1]);                /* it comes again, at another port */
    ls_cluster_options o = job(port, 1);
    w[1] = open_worker(t, &o);
    pass_a_byte(t, w[1], 0, w[0]);
    pass_a_byte(t, w[3], 1, w[1]);
    t->close(w[0]); /* known addresses stay known */
    pass_a_byte(t, w[3], 2, w[2]);
    for (int r = 1; r < 4; r++)
        t->close(w[r]);
}

static void workers_find_each_other_by_a_folder(void **state)
{
    const ls_transport_table *t = *state;
    ls_transport *w[3];
    ls_cluster_options o;
    for (int r = 0; r < 3; r++) {
        o = job(1, r);
        snprintf(o.rendezvous, sizeof(o.rendezvous), "file://%s", folder);
        if (r == 1)
            snprintf(o.listen, sizeof(o.listen), "127.0.0.1:0");
        w[r] = open_worker(t, &o);
    }
    pass_a_byte(t, w[1], 0, w[0]);
    t->close(w[0]); /* worker 0 is not needed */
    pass_a_byte(t, w[2], 1, w[1]);
    t->close(w[1]);
    o.rank = 1;
    w[1] = open_worker(t, &o); /* it comes again, elsewhere */
    pass_a_byte(t, w[2], 1, w[1]);
    ls_connection *line = NULL;
    assert_int_equal(t->call(w[2], 0, &line), LS_OK);
    assert_null(line); /* it has left */
    t->close(w[1]);
    t->close(w[2]);
    snprintf(o.rendezvous, sizeof(o.rendezvous), "file:///nowhere/at/all");
    w[0] = NULL;
    assert_int_equal(t->open(&o, 0, &w[0]), LS_ERR_NOT_FOUND);
    assert_true(says("file:///nowhere/at/all"));
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
    if (fd >= 0)
        close(fd);
    return has;
}

static void names_contexts_and_ipv6(void **state)
{
    const ls_transport_table *t = *state;
    static const char *const hosts[] = { "localhost", "[::1]" };
    for (int h = 0; h < (has_ipv6() ? 2 : 1); h++)
        for (int number = 0; number < 2; number++) {
            int port = free_port();
            ls_transport *w[3];
            for (int r = 0; r < 3; r++) {
                ls_cluster_options o = job(port, r);
                snprintf(o.rendezvous, sizeof(o.rendezvous), "tcp://%s:%d", hosts[h], port);
                w[r] = NULL;
                if (t->open(&o, number, &w[r]) != LS_OK)
                    fail_msg("%s", ls_last_error());
            }
            pass_a_byte(t, w[1], 0, w[0]);
            pass_a_byte(t, w[2], 1, w[1]);
            for (int r = 0; r < 3; r++)
                t->close(w[r]);
        }
}

static void keys_are_changed_on_the_way(void **state)
{
    uint64_t before = ls_tls_rekey_bytes;
    ls_tls_rekey_bytes = 1 << 20;
    pair p = open_pair(*state);
    pump_both(&p, 8 << 20, 6 << 20, 300007);
    close_pair(&p);
    ls_tls_rekey_bytes = before;
}

#define EACH(t)                                                                                                        \
    cmocka_unit_test_prestate(bytes_pass_both_ways, (void *)(t)),                                                      \
        cmocka_unit_test_prestate(bytes_sent_before_hanging_up_arrive, (void *)(t)),                                   \
        cmocka_unit_test_prestate(what_was_taken_arrives_by_itself, (void *)(t)),                                      \
        cmocka_unit_test_prestate(last_words_are_heard_by_who_only_writes, (void *)(t)),                               \
        cmocka_unit_test_prestate(a_killed_worker_ends_its_lines, (void *)(t)),                                        \
        cmocka_unit_test_prestate(threads_wait_for_lines_of_their_own, (void *)(t)),                                   \
        cmocka_unit_test_prestate(waiting_ends_when_its_time_is_over, (void *)(t))
#define TCP(test) cmocka_unit_test_prestate(test, (void *)&ls_transport_tcp)

static void ucx_is_not_there(void **state)
{
    const char *why;
    (void)state;
    if (!ls_ucx_is_there(&why))
        SKIP(why);
}

int main(void)
{
    const char *why;
    const struct CMUnitTest none[] = { cmocka_unit_test(ucx_is_not_there) };
    /* UCX's threads do not live on in a forked process: that one comes first. */
    const struct CMUnitTest ucx[] = {
        cmocka_unit_test_prestate(a_killed_worker_ends_its_lines, (void *)&ls_transport_ucx),
        cmocka_unit_test_prestate(bytes_pass_both_ways, (void *)&ls_transport_ucx),
        cmocka_unit_test_prestate(last_words_are_heard_by_who_only_writes, (void *)&ls_transport_ucx),
        cmocka_unit_test_prestate(threads_wait_for_lines_of_their_own, (void *)&ls_transport_ucx),
        cmocka_unit_test_prestate(waiting_ends_when_its_time_is_over, (void *)&ls_transport_ucx),
    };
    const struct CMUnitTest tests[] = {
        EACH(&ls_transport_tcp),
        EACH(&ls_transport_shm),
        EACH(&ls_transport_unix),
        cmocka_unit_test(keys_are_made_once_and_for_one_user),
        TCP(a_pending_write_is_no_proof_of_death),
        TCP(without_a_key_or_an_address_no_workers_meet),
        TCP(other_keys_and_jobs_are_reported_on_both_sides),
        TCP(unknown_peers_send_at_most_64_bytes),
        TCP(other_versions_and_other_programs_are_reported_by_the_caller),
        TCP(a_changed_opening_is_noticed),
        TCP(silent_callers_make_room),
        TCP(thousands_of_connections_change_nothing),
        TCP(workers_find_each_other_by_worker_0),
        TCP(workers_find_each_other_by_a_folder),
        TCP(names_contexts_and_ipv6),
        TCP(keys_are_changed_on_the_way),
    };
    int failed = cmocka_run_group_tests(tests, set_up, tear_down);
    if (!ls_ucx_is_there(&why))
        return failed + cmocka_run_group_tests(none, NULL, NULL);
    return failed + cmocka_run_group_tests(ucx, set_up, tear_down);
}
