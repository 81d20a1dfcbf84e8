/* One connection of the tcp transport. */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/transport/tcp.h"

#define LEAVE_LIMIT 10.0      /* seconds to deliver the last bytes after closing */
#define MOST_WRITE  (1 << 20) /* bytes of one call; others get their turn */

/* ---- Creation and end ---- */

/* Keepalive ends connections to vanished hosts, though long after heartbeats noticed. */
static void set_options(int fd)
{
    static const struct {
        int level, name, value;
    } list[] = { { IPPROTO_TCP, TCP_NODELAY, 1 },
                 { SOL_SOCKET, SO_KEEPALIVE, 1 },
                 { IPPROTO_TCP, TCP_KEEPIDLE, 15 },
                 { IPPROTO_TCP, TCP_KEEPINTVL, 5 },
                 { IPPROTO_TCP, TCP_KEEPCNT, 6 } };
    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
        setsockopt(fd, list[i].level, list[i].name, &list[i].value, sizeof(list[i].value));
}

static ls_status make_connection(ls_tcp *tcp, int fd, bool caller, const ls_address *there, tcp_connection **out)
{
    tcp_connection *connection = calloc(1, sizeof(*connection));
    if (!connection) {
        close(fd);
        return ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    }
    connection->table = &ls_transport_tcp;
    connection->tcp = tcp;
    connection->fd = fd;
    connection->caller = caller;
    connection->state = caller ? TCP_CONNECTING : TCP_HEARING;
    connection->there = *there;
    connection->end = ls_clock_now() + TCP_MEET_LIMIT;
    set_options(fd);
    *out = connection;
    return LS_OK;
}

ls_status ls_tcp_connection_answer(ls_tcp *tcp, int fd, const ls_address *there, tcp_connection **out)
{
    return make_connection(tcp, fd, false, there, out);
}

ls_status ls_tcp_connection_call(ls_tcp *tcp, ls_preamble_kind kind, int rank, const ls_address *there,
                                 tcp_connection **out)
{
    int fd = socket(there->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ls_fail(LS_ERR_PEER, "no socket for worker %d: %s", rank, strerror(errno));
    LS_TRY(make_connection(tcp, fd, true, there, out));
    tcp_connection *connection = *out;
    connection->preamble = tcp->own;
    connection->preamble.kind = (uint16_t)kind;
    connection->preamble.to = (uint32_t)rank;
    ls_preamble_write(&connection->preamble, connection->bytes);
    memcpy(connection->said, connection->bytes, sizeof(connection->said));
    ls_tcp_connection_step(connection);
    return LS_OK;
}

void ls_tcp_connection_free(tcp_connection *connection)
{
    if (!connection)
        return;
    if (connection->state == TCP_OPEN && !connection->goodbye) /* reset: FIN alone means a dead process */
        setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger));
    ls_secured_free(connection->secured);
    close(connection->fd);
    free(connection->buffer);
    free(connection);
}

/* If the connection was never open, the worker's address is stale and queried again. */
static void end_connection(tcp_connection *connection, const char *format, ...) LS_PRINTF(2, 3);
static void end_connection(tcp_connection *connection, const char *format, ...)
{
    char who[LS_ADDRESS_CHARS + 32], address[LS_ADDRESS_CHARS], what[200];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    ls_address_print(&connection->there, address);
    bool known = connection->caller || connection->state >= TCP_OPEN;
    int rank = (int)(connection->caller ? connection->preamble.to : connection->preamble.from);
    if (known)
        snprintf(who, sizeof(who), "worker %d at %s", rank, address);
    else
        snprintf(who, sizeof(who), "a caller from %s", address);
    snprintf(connection->why, sizeof(connection->why), "%s %s", who, what);
    if (connection->caller && connection->state < TCP_OPEN && rank != 0) {
        pthread_mutex_lock(&connection->tcp->mutex);
        connection->tcp->known[rank].stale = true;
        pthread_mutex_unlock(&connection->tcp->mutex);
    }
    connection->state = TCP_ENDED;
}

/* ---- Opening ---- */

static bool go_connecting(tcp_connection *connection)
{
    if (connect(connection->fd, &connection->there.any, connection->there.bytes) == 0 || errno == EISCONN) {
        connection->state = TCP_SAYING;
        return true;
    }
    if (errno != EINPROGRESS && errno != EALREADY && errno != EINTR)
        end_connection(connection, "does not answer: %s", strerror(errno));
    return false;
}

/* The TLS secret is derived from the key and the preamble. */
static void begin_shaking(tcp_connection *connection)
{
    static const char label[] = "lockstep tls 1.3 secret, version 1";
    unsigned char purpose[sizeof(label) + LS_PREAMBLE_BYTES], secret[LS_KEY_BYTES];
    memcpy(purpose, label, sizeof(label));
    memcpy(purpose + sizeof(label), connection->said, LS_PREAMBLE_BYTES);
    connection->buffer = malloc(LS_TLS_RECORD);
    ls_status status = connection->buffer ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    if (status == LS_OK)
        status = ls_key_derive(connection->tcp->key, purpose, sizeof(purpose), secret);
    if (status == LS_OK)
        status =
            ls_secured_open(connection->tcp->tls, connection->fd, connection->caller, secret, &connection->secured);
    OPENSSL_cleanse(secret, sizeof(secret));
    if (status == LS_OK)
        connection->state = TCP_SHAKING;
    else
        end_connection(connection, "was given up: %s", ls_last_error());
}

static bool go_saying(tcp_connection *connection)
{
    size_t size = connection->caller ? LS_PREAMBLE_BYTES : LS_REPLY_BYTES;
    ssize_t sent = send(connection->fd, connection->bytes + connection->done, size - connection->done,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS))
        return false;
    if (sent < 0) {
        end_connection(connection, "hung up: %s", strerror(errno));
        return false;
    }
    connection->done += (size_t)sent;
    if (connection->done < size)
        return true;
    connection->done = 0;
    if (connection->caller)
        connection->state = TCP_HEARING;
    else if (connection->refused)
        connection->state = TCP_ENDED; /* `why` is set already */
    else
        begin_shaking(connection);
    return true;
}

static void read_reply(tcp_connection *connection)
{
    int version;
    switch (ls_reply_read(connection->bytes, &version)) {
    case LS_REPLY_WELCOME:
        begin_shaking(connection);
        return;
    case LS_REPLY_OTHER_VERSION:
        end_connection(connection,
                       "uses version %d of the protocol, this worker version %d: start all workers with the same "
                       "version of Lockstep",
                       version, LS_WIRE_VERSION);
        return;
    case LS_REPLY_OTHER_JOB:
        end_connection(connection, "is of another job than \"%.100s\"", connection->tcp->options.job);
        return;
    case LS_REPLY_OTHER_WORKER:
        end_connection(connection, "is another worker, or in another context");
        return;
    default:
        end_connection(connection, "is not a worker of Lockstep: its first bytes are unknown");
    }
}

static void read_preamble(tcp_connection *connection)
{
    memcpy(connection->said, connection->bytes, LS_PREAMBLE_BYTES);
    ls_reply_code code = ls_preamble_check(connection->bytes, &connection->tcp->own, &connection->preamble);
    if (code == LS_REPLY_NO_PREAMBLE) {
        end_connection(connection, "is not a worker: its first bytes are unknown");
        return;
    }
    connection->refused = code != LS_REPLY_WELCOME;
    if (code == LS_REPLY_OTHER_VERSION)
        end_connection(connection, "uses version %u of the protocol, this worker version %d",
                       connection->preamble.version, LS_WIRE_VERSION);
    else if (code == LS_REPLY_OTHER_JOB)
        end_connection(connection, "is of another job than \"%.100s\"", connection->tcp->options.job);
    else if (code == LS_REPLY_OTHER_WORKER)
        end_connection(connection, "wants worker %u in its context %u, but this is worker %u in context %u",
                       connection->preamble.to, connection->preamble.number, connection->tcp->own.to,
                       connection->tcp->own.number);
    ls_reply_write(code, connection->bytes);
    connection->state = TCP_SAYING;
}

static bool go_hearing(tcp_connection *connection)
{
    size_t size = connection->caller ? LS_REPLY_BYTES : LS_PREAMBLE_BYTES;
    ssize_t got = recv(connection->fd, connection->bytes + connection->done, size - connection->done, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        end_connection(connection,
                       got < 0 ? "closed the connection: %s" : "closed the connection before its first bytes",
                       strerror(errno));
        return false;
    }
    connection->done += (size_t)got;
    if (connection->done < size)
        return true;
    connection->done = 0;
    if (connection->caller)
        read_reply(connection);
    else
        read_preamble(connection);
    return true;
}

static bool go_shaking(tcp_connection *connection)
{
    switch (ls_secured_shake_hands(connection->secured)) {
    case LS_TLS_DONE:
        connection->state = TCP_OPEN;
        return true;
    case LS_TLS_WANTS_READ:
        connection->wants_write = false;
        return false;
    case LS_TLS_WANTS_WRITE:
        connection->wants_write = true;
        return false;
    case LS_TLS_CLOSED:
        end_connection(connection, "ended while keys were compared: %s", ls_secured_why(connection->secured));
        return false;
    default:
        end_connection(connection, "has another key than this worker, or somebody changed bytes on the way (TLS: %s)",
                       ls_secured_why(connection->secured));
        return false;
    }
}

void ls_tcp_connection_step(tcp_connection *connection)
{
    static bool (*const go[])(tcp_connection *) = { go_connecting, go_saying, go_hearing, go_shaking };
    while (connection->state < TCP_OPEN && go[connection->state](connection))
        ;
    if (connection->state < TCP_OPEN && ls_clock_now() > connection->end)
        end_connection(connection, "did not complete the handshake within %g s", TCP_MEET_LIMIT);
}

short ls_tcp_connection_events(const tcp_connection *connection)
{
    bool write = connection->state == TCP_CONNECTING || connection->state == TCP_SAYING ||
                 (connection->state == TCP_SHAKING && connection->wants_write);
    return write ? POLLOUT : POLLIN;
}

/* ---- Writing ---- */

static ls_status report_end(const tcp_connection *connection)
{
    return ls_fail(LS_ERR_PEER, "%s", connection->why);
}

static void be_deaf(tcp_connection *connection, const char *why)
{
    char address[LS_ADDRESS_CHARS];
    snprintf(connection->why, sizeof(connection->why), "worker %u at %s has gone: %s",
             connection->caller ? connection->preamble.to : connection->preamble.from,
             ls_address_print(&connection->there, address), why);
    connection->write_failed = true;
    connection->record = 0;
}

bool ls_tcp_connection_flush(tcp_connection *connection)
{
    size_t moved;
    while (connection->record > 0 && !connection->write_failed) {
        switch (ls_secured_write(connection->secured, connection->buffer, connection->record, &moved)) {
        case LS_TLS_DONE:
            connection->record -= moved;
            memmove(connection->buffer, connection->buffer + moved, connection->record);
            break;
        case LS_TLS_FAILED:
        case LS_TLS_CLOSED:
            be_deaf(connection, ls_secured_why(connection->secured));
            break;
        default:
            return false;
        }
    }
    return !connection->write_failed;
}

/* A position in a list of parts. */
typedef struct cursor {
    const struct iovec *parts;
    int count;
    size_t offset; /* in the first part */
} cursor;

/* Copies up to `bytes`; out NULL: skips them. */
static size_t take(cursor *c, unsigned char *out, size_t bytes)
{
    size_t taken = 0;
    while (c->count > 0 && taken < bytes) {
        size_t n = c->parts->iov_len - c->offset;
        n = n < bytes - taken ? n : bytes - taken;
        if (n > 0 && out)
            memcpy(out + taken, (const char *)c->parts->iov_base + c->offset, n);
        taken += n;
        c->offset += n;
        if (c->offset == c->parts->iov_len) {
            c->parts++;
            c->count--;
            c->offset = 0;
        }
    }
    return taken;
}

/* If the kernel takes only a part of a record, the next call sends the rest. So that there is one,
 * a byte of the record is not reported as moved; it is offered again and skipped. */
ls_status ls_tcp_connection_write(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    tcp_connection *connection = (tcp_connection *)of;
    cursor c = { parts, count, 0 };
    size_t sum = 0;
    ls_tcp_connection_step(connection);
    bool flushed = connection->state == TCP_OPEN && ls_tcp_connection_flush(connection);
    if (connection->state == TCP_ENDED || connection->write_failed)
        return report_end(connection);
    if (flushed && connection->owed) {
        sum = take(&c, NULL, 1);
        connection->owed = sum == 0;
    }
    while (flushed && sum < MOST_WRITE && (connection->record = take(&c, connection->buffer, LS_TLS_RECORD)) > 0) {
        sum += connection->record;
        flushed = ls_tcp_connection_flush(connection);
        if (connection->write_failed)
            return report_end(connection);
        connection->owed = !flushed;
        sum -= connection->owed;
    }
    *moved = sum;
    return LS_OK;
}

/* ---- Reading ---- */

/* false: no more bytes now. */
static bool read_part(tcp_connection *connection, const struct iovec *part, size_t *sum)
{
    size_t moved;
    for (size_t at = 0; at < part->iov_len; at += moved, *sum += moved) {
        switch (ls_secured_read(connection->secured, (char *)part->iov_base + at, part->iov_len - at, &moved)) {
        case LS_TLS_DONE:
            connection->drained = false;
            break;
        case LS_TLS_CLOSED:
        case LS_TLS_FAILED:
            end_connection(connection, "is gone: %s", ls_secured_why(connection->secured));
            return false;
        default:
            connection->drained = true;
            return false;
        }
    }
    return true;
}

ls_status ls_tcp_connection_read(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    tcp_connection *connection = (tcp_connection *)of;
    size_t sum = 0;
    ls_tcp_connection_step(connection);
    if (connection->state == TCP_OPEN && connection->record > 0)
        ls_tcp_connection_flush(connection);
    for (int i = 0; connection->state == TCP_OPEN && i < count; i++)
        if (!read_part(connection, &parts[i], &sum))
            break;
    if (connection->state == TCP_ENDED && sum == 0)
        return report_end(connection);
    *moved = sum;
    return LS_OK;
}

/* ---- Closing ---- */

/* Sends FIN only after close_notify: without it the peer would take this process for dead. */
static void say_goodbye(tcp_connection *connection)
{
    connection->goodbye = ls_secured_say_end(connection->secured);
    if (connection->goodbye)
        shutdown(connection->fd, SHUT_WR);
}

ls_connection_end ls_tcp_connection_how_ended(const ls_connection *of)
{
    const tcp_connection *connection = (const tcp_connection *)of;
    if (connection->secured && ls_secured_was_closed(connection->secured))
        return LS_CONNECTION_CLOSED;
    return connection->secured && ls_secured_died(connection->secured) ? LS_CONNECTION_DIED : LS_CONNECTION_BROKEN;
}

static bool is_sent(int fd)
{
    struct tcp_info info;
    socklen_t bytes = sizeof(info);
    int unsent = 0;
    if (ioctl(fd, SIOCOUTQ, &unsent) < 0 || unsent == 0)
        return true;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0 || info.tcpi_state == TCP_CLOSE;
}

/* Returns whether all bytes are delivered, or never will be. Closing a socket with unread bytes
 * would discard what it has to send. */
static bool has_left(tcp_connection *connection)
{
    if (connection->record > 0 && ls_tcp_connection_flush(connection))
        say_goodbye(connection);
    return connection->write_failed || ls_clock_now() > connection->end ||
           (connection->record == 0 && is_sent(connection->fd));
}

void ls_tcp_leave_some(ls_tcp *tcp)
{
    int kept = 0;
    for (int i = 0; i < tcp->leaving_count; i++) {
        if (has_left(tcp->leaving[i]))
            ls_tcp_connection_free(tcp->leaving[i]);
        else
            tcp->leaving[kept++] = tcp->leaving[i];
    }
    tcp->leaving_count = kept;
}

void ls_tcp_connection_hang_up(ls_connection *of)
{
    tcp_connection *connection = (tcp_connection *)of;
    if (!connection)
        return;
    ls_tcp *tcp = connection->tcp;
    if (connection->state != TCP_OPEN || connection->write_failed) {
        ls_tcp_connection_free(connection);
        return;
    }
    if (ls_tcp_connection_flush(connection))
        say_goodbye(connection);
    connection->end = ls_clock_now() + LEAVE_LIMIT;
    pthread_mutex_lock(&tcp->mutex);
    if (tcp->leaving_count == TCP_MOST_LEAVING) {
        ls_tcp_connection_free(tcp->leaving[0]);
        memmove(tcp->leaving, tcp->leaving + 1, --tcp->leaving_count * sizeof(*tcp->leaving));
    }
    tcp->leaving[tcp->leaving_count++] = connection;
    pthread_mutex_unlock(&tcp->mutex);
    ls_tcp_listener_wake(tcp);
}
