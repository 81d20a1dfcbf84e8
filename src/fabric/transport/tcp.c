/* The tcp transport: workers on any machines, with TLS 1.3 and the job's key. */
#include "fabric/transport/tcp.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define MOST_WANTS  (2 * LS_MAX_CLUSTER + 128) /* wants in one wait */
#define CALL_AGAIN  0.02                       /* seconds between calls to one worker */
#define CLOSE_LIMIT 2.0                        /* seconds in which closing waits for delivery */
#define LONG_WAIT   1e6                        /* seconds; the longest wait */

/* ---- Opening and closing ---- */

static ls_status check_options(const ls_cluster_options *o)
{
    if (!memchr(o->rendezvous, '\0', sizeof(o->rendezvous)) || !memchr(o->listen, '\0', sizeof(o->listen)) ||
        !memchr(o->key_file, '\0', sizeof(o->key_file)))
        return ls_fail(LS_ERR_INVALID, "rendezvous, listen or key_file is not terminated within its %zu characters",
                       sizeof(o->listen));
    if (!o->rendezvous[0])
        return ls_fail(LS_ERR_INVALID,
                       "the transport tcp needs a rendezvous: \"tcp://host:2222\", where worker 0 listens, or "
                       "\"file:///folder\" (LOCKSTEP_RENDEZVOUS)");
    if (!o->key_file[0])
        return ls_fail(LS_ERR_UNSUPPORTED, LS_NEEDS_KEY);
    return LS_OK;
}

static void tcp_close(ls_transport *transport)
{
    ls_tcp *tcp = (ls_tcp *)transport;
    double end = ls_clock_now() + CLOSE_LIMIT;
    if (!tcp)
        return;
    ls_tcp_rendezvous_close(tcp);
    ls_tcp_listener_close(tcp);
    for (ls_tcp_leave_some(tcp); tcp->leaving_count > 0 && ls_clock_now() < end; ls_tcp_leave_some(tcp))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    while (tcp->leaving_count > 0)
        ls_tcp_connection_free(tcp->leaving[--tcp->leaving_count]);
    ls_tls_close(tcp->tls);
    ls_key_free(tcp->key);
    pthread_mutex_destroy(&tcp->mutex);
    free(tcp);
}

static ls_status tcp_open(const ls_cluster_options *options, int number, ls_transport **out)
{
    LS_TRY(check_options(options));
    ls_tcp *tcp = calloc(1, sizeof(*tcp));
    if (!tcp)
        return ls_fail(LS_ERR_MEMORY, "no memory for the connections of %d workers", options->size);
    tcp->table = &ls_transport_tcp;
    tcp->options = *options;
    tcp->own = (ls_preamble){ .version = LS_WIRE_VERSION,
                              .kind = LS_PREAMBLE_CALL,
                              .number = (uint32_t)number,
                              .from = (uint32_t)options->rank,
                              .to = (uint32_t)options->rank };
    tcp->listener = tcp->bell = tcp->wake = -1;
    pthread_mutex_init(&tcp->mutex, NULL);
    ls_status status = ls_preamble_set_job(&tcp->own, options->job);
    if (status == LS_OK)
        status = ls_key_read(options->key_file, &tcp->key);
    if (status == LS_OK)
        status = ls_tls_open(&tcp->tls);
    if (status == LS_OK)
        status = ls_tcp_rendezvous_open(tcp);
    if (status == LS_OK)
        status = ls_tcp_listener_open(tcp);
    if (status != LS_OK) {
        ls_error why;
        ls_error_keep(&why, status);
        tcp_close((ls_transport *)tcp);
        return ls_error_give(&why);
    }
    *out = (ls_transport *)tcp;
    return LS_OK;
}

/* ---- Calling and answering ---- */

static ls_status tcp_call(ls_transport *transport, int rank, ls_connection **out)
{
    ls_tcp *tcp = (ls_tcp *)transport;
    ls_address there = { .bytes = 0 };
    ls_status status = LS_OK;
    tcp_connection *connection = NULL;
    double now = ls_clock_now();
    if (rank < 0 || rank >= LS_MAX_CLUSTER || rank == tcp->options.rank)
        return ls_fail(LS_ERR_INTERNAL, "worker %d calls worker %d", tcp->options.rank, rank);
    pthread_mutex_lock(&tcp->mutex);
    if (now >= tcp->known[rank].call_again)
        status = ls_tcp_find(tcp, rank, &there);
    if (there.bytes > 0)
        tcp->known[rank].call_again = now + CALL_AGAIN;
    pthread_mutex_unlock(&tcp->mutex);
    if (status == LS_OK && there.bytes > 0)
        status = ls_tcp_connection_call(tcp, LS_PREAMBLE_CALL, rank, &there, &connection);
    if (status == LS_OK)
        *out = (ls_connection *)connection;
    return status;
}

static ls_status tcp_answer(ls_transport *transport, ls_connection **out)
{
    ls_tcp *tcp = (ls_tcp *)transport;
    pthread_mutex_lock(&tcp->mutex);
    *out = (ls_connection *)ls_tcp_listener_take(tcp);
    pthread_mutex_unlock(&tcp->mutex);
    return LS_OK;
}

static bool tcp_refused(ls_transport *transport, char *why, size_t bytes)
{
    ls_tcp *tcp = (ls_tcp *)transport;
    pthread_mutex_lock(&tcp->mutex);
    long count = tcp->refused;
    if (count == 1)
        snprintf(why, bytes, "%s", tcp->refused_why);
    else if (count > 1)
        snprintf(why, bytes, "%ld callers were refused, among them: %s", count, tcp->refused_why);
    tcp->refused = 0;
    pthread_mutex_unlock(&tcp->mutex);
    return count > 0;
}

/* ---- Waiting ---- */

/* Returns whether a connection is ready without waiting. */
static bool list_line(ls_want *want, struct pollfd *out, double *end)
{
    tcp_connection *connection = (tcp_connection *)want->connection;
    ls_tcp_connection_step(connection);
    if (connection->state < TCP_OPEN) {
        *out = (struct pollfd){ .fd = connection->fd, .events = ls_tcp_connection_events(connection) };
        *end = connection->end < *end ? connection->end : *end;
        return false;
    }
    if (connection->state == TCP_ENDED || (connection->write_failed && want->write))
        return want->read || want->write;
    ls_tcp_connection_flush(connection);
    bool write = !connection->write_failed && (want->write || connection->record > 0);
    if (want->read || write)
        *out = (struct pollfd){ .fd = connection->fd,
                                .events = (short)((want->read ? POLLIN : 0) | (write ? POLLOUT : 0)) };
    return want->read && !connection->drained && ls_secured_has_bytes(connection->secured);
}

static bool list_door(ls_tcp *tcp, const ls_want *want, struct pollfd *out)
{
    if (want->bell > 0) {
        *out = (struct pollfd){ .fd = want->bell, .events = POLLIN };
        return false;
    }
    pthread_mutex_lock(&tcp->mutex);
    bool ready = ls_tcp_listener_look(tcp);
    pthread_mutex_unlock(&tcp->mutex);
    *out = (struct pollfd){ .fd = tcp->bell, .events = POLLIN };
    return ready;
}

/* For connections that are not open, and incoming calls, the next round finds out. */
static bool look(const ls_want *want, const struct pollfd *polled)
{
    const tcp_connection *connection = (const tcp_connection *)want->connection;
    short events = (short)((want->read ? POLLIN : 0) | (want->write ? POLLOUT : 0));
    bool ended = polled->revents & (POLLHUP | POLLERR) && events;
    return connection->state == TCP_OPEN && (polled->revents & events || ended);
}

static bool wait_once(ls_tcp *tcp, ls_want *wants, int count, double end)
{
    struct pollfd polls[MOST_WANTS];
    bool any = false;
    for (int i = 0; i < count; i++) {
        ls_want *w = &wants[i];
        polls[i] = (struct pollfd){ .fd = -1 };
        w->ready = w->connection ? list_line(w, &polls[i], &end) : list_door(tcp, w, &polls[i]);
        any |= w->ready;
    }
    double left = end - ls_clock_now();
    left = any || left < 0 ? 0 : left < LONG_WAIT ? left : LONG_WAIT;
    struct timespec limit = { (time_t)left, (long)(1e9 * (left - (double)(time_t)left)) };
    if (ppoll(polls, (nfds_t)count, &limit, NULL) <= 0)
        return any;
    for (int i = 0; i < count; i++)
        if (wants[i].connection ? look(&wants[i], &polls[i]) : wants[i].bell > 0 && polls[i].revents)
            any = wants[i].ready = true;
    return any;
}

static ls_status tcp_wait(ls_transport *transport, ls_want *wants, int count, double seconds)
{
    ls_tcp *tcp = (ls_tcp *)transport;
    double end = ls_clock_now() + (seconds > 0 ? seconds : 0);
    if (count < 0 || count > MOST_WANTS)
        return ls_fail(LS_ERR_INTERNAL, "waiting for %d connections; the limit is %d", count, MOST_WANTS);
    while (!wait_once(tcp, wants, count, end) && ls_clock_now() < end)
        ;
    return LS_OK;
}

static double tcp_now(ls_transport *transport)
{
    (void)transport;
    return ls_clock_now();
}

const ls_transport_table ls_transport_tcp = {
    .name = "tcp",
    .elastic = true,
    .heartbeats = true,
    .slice = 1 << 20,
    .open = tcp_open,
    .close = tcp_close,
    .call = tcp_call,
    .answer = tcp_answer,
    .write = ls_tcp_connection_write,
    .read = ls_tcp_connection_read,
    .hang_up = ls_tcp_connection_hang_up,
    .how_ended = ls_tcp_connection_how_ended,
    .wait = tcp_wait,
    .now = tcp_now,
    .refused = tcp_refused,
};
