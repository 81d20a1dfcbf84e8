/* Incoming calls. Anyone can call, so callers are limited in number and time (TCP_MEET_LIMIT) and
 * cost little until they are authenticated. Above the limit the oldest without a preamble is
 * dropped, then the oldest without the key. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "fabric/transport/tcp.h"

#define MOST_ACCEPTED 256   /* in one step; other work gets its turn */
#define NO_MORE_FILES 0.1   /* seconds until accept is tried again without descriptors */
#define LEAVING       0.002 /* seconds between looks at closing connections */
#define LONGEST_SLEEP 10.0
#define MOST_POLLS    (3 + TCP_MOST_CALLERS + LS_MAX_CLUSTER)

/* Keeps the reason of the last refused caller that was a worker, else of the first. */
static void note_refused(ls_tcp *tcp, const char *why, bool worker)
{
    if (tcp->refused++ == 0 || worker)
        snprintf(tcp->refused_why, sizeof(tcp->refused_why), "%s", why);
}

static tcp_connection *remove_caller(ls_tcp *tcp, int i)
{
    tcp_connection *connection = tcp->callers[i];
    tcp->caller_count--;
    memmove(tcp->callers + i, tcp->callers + i + 1, (size_t)(tcp->caller_count - i) * sizeof(*tcp->callers));
    return connection;
}

/* false: all callers are authenticated. */
static bool send_one_away(ls_tcp *tcp)
{
    for (int shaking = 0; shaking < 2; shaking++)
        for (int i = 0; i < tcp->caller_count; i++)
            if (tcp->callers[i]->state == TCP_HEARING || (shaking && tcp->callers[i]->state < TCP_OPEN)) {
                char why[200], address[LS_ADDRESS_CHARS];
                snprintf(why, sizeof(why),
                         "a caller from %s was dropped for newer ones: it had not completed the handshake",
                         ls_address_print(&tcp->callers[i]->there, address));
                note_refused(tcp, why, false);
                ls_tcp_connection_free(remove_caller(tcp, i));
                return true;
            }
    return false;
}

static void accept_some(ls_tcp *tcp)
{
    if (ls_clock_now() < tcp->accept_again)
        return;
    for (int i = 0; i < MOST_ACCEPTED; i++) {
        tcp_connection *connection;
        ls_address there = { .bytes = sizeof(there.v6) };
        if (tcp->caller_count == TCP_MOST_CALLERS && !send_one_away(tcp))
            return;
        int fd = accept4(tcp->listener, &there.any, &there.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            if (!send_one_away(tcp))
                tcp->accept_again = ls_clock_now() + NO_MORE_FILES;
            return;
        }
        if (fd < 0 && errno == EAGAIN)
            return;
        if (fd >= 0 && ls_tcp_connection_answer(tcp, fd, &there, &connection) == LS_OK) {
            tcp->callers[tcp->caller_count++] = connection;
            ls_tcp_connection_step(connection); /* reads its preamble: silent callers are dropped first */
        }
    }
}

/* Replaces an earlier connection of the worker. */
static void seat_at_query(ls_tcp *tcp, tcp_connection *connection)
{
    tcp_connection **seat = &tcp->queries[connection->preamble.from];
    ls_tcp_connection_free(*seat);
    *seat = connection;
}

static void ring(int bell)
{
    uint64_t one = 1;
    if (write(bell, &one, sizeof(one)) < 0) {
        /* it is readable already */
    }
}

static void silence(int bell)
{
    uint64_t count;
    if (read(bell, &count, sizeof(count)) < 0) {
        /* it was not readable */
    }
}

static bool has_caller(const ls_tcp *tcp)
{
    for (int i = 0; i < tcp->caller_count; i++)
        if (tcp->callers[i]->state == TCP_OPEN)
            return true;
    return false;
}

/* ---- The thread ---- */

static void look_after_callers(ls_tcp *tcp)
{
    for (int i = 0; i < tcp->caller_count;) {
        tcp_connection *connection = tcp->callers[i];
        ls_tcp_connection_step(connection);
        if (connection->state == TCP_OPEN && !connection->learned) {
            ls_tcp_learn(tcp, &connection->preamble);
            connection->learned = true;
        }
        if (connection->state == TCP_ENDED) {
            note_refused(tcp, connection->why, connection->preamble.version > 0);
            ls_tcp_connection_free(remove_caller(tcp, i));
        } else if (connection->state == TCP_OPEN && connection->preamble.kind == LS_PREAMBLE_ASK) {
            seat_at_query(tcp, remove_caller(tcp, i));
        } else {
            i++;
        }
    }
}

/* *end: until when to poll. */
static int list_polls(const ls_tcp *tcp, struct pollfd *out, double *end)
{
    int count = 0;
    bool full = tcp->caller_count == TCP_MOST_CALLERS; /* with authenticated callers */
    for (int i = 0; i < tcp->caller_count; i++) {
        const tcp_connection *connection = tcp->callers[i];
        if (connection->state == TCP_OPEN)
            continue;
        full = false;
        out[count++] = (struct pollfd){ .fd = connection->fd, .events = ls_tcp_connection_events(connection) };
        *end = connection->end < *end ? connection->end : *end;
    }
    out[count++] = (struct pollfd){ .fd = tcp->wake, .events = POLLIN };
    if (ls_clock_now() >= tcp->accept_again && !full)
        out[count++] = (struct pollfd){ .fd = tcp->listener, .events = POLLIN };
    else if (tcp->accept_again < *end && !full)
        *end = tcp->accept_again;
    if (tcp->query)
        out[count++] = (struct pollfd){ .fd = tcp->query->fd, .events = ls_tcp_connection_events(tcp->query) };
    for (int r = 0; r < LS_MAX_CLUSTER; r++)
        if (tcp->queries[r])
            out[count++] = (struct pollfd){ .fd = tcp->queries[r]->fd, .events = POLLIN };
    return count;
}

static void *keep_door(void *user)
{
    ls_tcp *tcp = user;
    struct pollfd polls[MOST_POLLS];
    pthread_mutex_lock(&tcp->mutex);
    while (!tcp->closing) {
        accept_some(tcp);
        look_after_callers(tcp);
        ls_tcp_queries_step(tcp);
        ls_tcp_leave_some(tcp);
        if (has_caller(tcp) || tcp->news)
            ring(tcp->bell);
        double end = ls_clock_now() + (tcp->leaving_count > 0 ? LEAVING : LONGEST_SLEEP);
        int count = list_polls(tcp, polls, &end);
        pthread_mutex_unlock(&tcp->mutex);
        double left = end - ls_clock_now();
        poll(polls, (nfds_t)count, left > 0 ? (int)(1000 * left) + 1 : 0);
        silence(tcp->wake);
        pthread_mutex_lock(&tcp->mutex);
    }
    pthread_mutex_unlock(&tcp->mutex);
    return NULL;
}

ls_status ls_tcp_listener_open(ls_tcp *tcp)
{
    tcp->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tcp->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (tcp->bell < 0 || tcp->wake < 0)
        return ls_fail(LS_ERR_PEER, "no descriptor for this worker's listener: %s", strerror(errno));
    int error = ls_thread_start(&tcp->thread, keep_door, tcp);
    tcp->has_thread = error == 0;
    return error == 0 ? LS_OK : ls_fail(LS_ERR_MEMORY, "no thread for this worker's listener: %s", strerror(error));
}

void ls_tcp_listener_wake(ls_tcp *tcp)
{
    ring(tcp->wake);
}

/* ---- Called by other threads ---- */

bool ls_tcp_listener_look(ls_tcp *tcp)
{
    bool ready = has_caller(tcp) || tcp->news;
    tcp->news = false;
    if (!ready)
        silence(tcp->bell);
    return ready;
}

tcp_connection *ls_tcp_listener_take(ls_tcp *tcp)
{
    for (int i = 0; i < tcp->caller_count; i++)
        if (tcp->callers[i]->state == TCP_OPEN) {
            if (tcp->caller_count == TCP_MOST_CALLERS)
                ls_tcp_listener_wake(tcp); /* there is room again */
            return remove_caller(tcp, i);
        }
    return NULL;
}

void ls_tcp_listener_close(ls_tcp *tcp)
{
    if (tcp->has_thread) {
        pthread_mutex_lock(&tcp->mutex);
        tcp->closing = true;
        pthread_mutex_unlock(&tcp->mutex);
        ls_tcp_listener_wake(tcp);
        pthread_join(tcp->thread, NULL);
    }
    while (tcp->caller_count > 0)
        ls_tcp_connection_free(remove_caller(tcp, tcp->caller_count - 1));
    for (int r = 0; r < LS_MAX_CLUSTER; r++)
        ls_tcp_connection_free(tcp->queries[r]);
    ls_tcp_connection_free(tcp->query);
    int *files[] = { &tcp->listener, &tcp->bell, &tcp->wake };
    for (int i = 0; i < 3; i++)
        if (*files[i] >= 0)
            close(*files[i]);
}
