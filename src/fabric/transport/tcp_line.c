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

static ls_status make_line(ls_tcp *tcp, int fd, bool caller, const ls_address *there, tcp_line **out)
{
    tcp_line *line = calloc(1, sizeof(*line));
    if (!line) {
        close(fd);
        return ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    }
    line->table = &ls_transport_tcp;
    line->tcp = tcp;
    line->fd = fd;
    line->caller = caller;
    line->state = caller ? TCP_CONNECTING : TCP_HEARING;
    line->there = *there;
    line->end = ls_clock_now() + TCP_MEET_LIMIT;
    set_options(fd);
    *out = line;
    return LS_OK;
}

ls_status ls_tcp_line_answer(ls_tcp *tcp, int fd, const ls_address *there, tcp_line **out)
{
    return make_line(tcp, fd, false, there, out);
}

ls_status ls_tcp_line_call(ls_tcp *tcp, ls_preamble_kind kind, int rank, const ls_address *there, tcp_line **out)
{
    int fd = socket(there->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ls_fail(LS_ERR_PEER, "no socket for worker %d: %s", rank, strerror(errno));
    LS_TRY(make_line(tcp, fd, true, there, out));
    tcp_line *line = *out;
    line->opening = tcp->own;
    line->opening.kind = (uint16_t)kind;
    line->opening.to = (uint32_t)rank;
    ls_preamble_write(&line->opening, line->bytes);
    memcpy(line->said, line->bytes, sizeof(line->said));
    ls_tcp_line_step(line);
    return LS_OK;
}

void ls_tcp_line_free(tcp_line *line)
{
    if (!line)
        return;
    if (line->state == TCP_OPEN && !line->goodbye) /* reset: FIN alone means a dead process */
        setsockopt(line->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 }, sizeof(struct linger));
    ls_secured_free(line->secured);
    close(line->fd);
    free(line->buffer);
    free(line);
}

/* If the connection was never open, the worker's address is stale and queried again. */
static void end_line(tcp_line *line, const char *format, ...) LS_PRINTF(2, 3);
static void end_line(tcp_line *line, const char *format, ...)
{
    char who[LS_ADDRESS_CHARS + 32], address[LS_ADDRESS_CHARS], what[200];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    ls_address_print(&line->there, address);
    bool known = line->caller || line->state >= TCP_OPEN;
    int rank = (int)(line->caller ? line->opening.to : line->opening.from);
    if (known)
        snprintf(who, sizeof(who), "worker %d at %s", rank, address);
    else
        snprintf(who, sizeof(who), "a caller from %s", address);
    snprintf(line->why, sizeof(line->why), "%s %s", who, what);
    if (line->caller && line->state < TCP_OPEN && rank != 0) {
        pthread_mutex_lock(&line->tcp->mutex);
        line->tcp->places[rank].stale = true;
        pthread_mutex_unlock(&line->tcp->mutex);
    }
    line->state = TCP_ENDED;
}

/* ---- Opening ---- */

static bool go_connecting(tcp_line *line)
{
    if (connect(line->fd, &line->there.any, line->there.bytes) == 0 || errno == EISCONN) {
        line->state = TCP_SAYING;
        return true;
    }
    if (errno != EINPROGRESS && errno != EALREADY && errno != EINTR)
        end_line(line, "does not answer: %s", strerror(errno));
    return false;
}

/* The TLS secret is derived from the key and the preamble. */
static void begin_shaking(tcp_line *line)
{
    static const char label[] = "lockstep tls 1.3 secret, version 1";
    unsigned char purpose[sizeof(label) + LS_PREAMBLE_BYTES], secret[LS_KEY_BYTES];
    memcpy(purpose, label, sizeof(label));
    memcpy(purpose + sizeof(label), line->said, LS_PREAMBLE_BYTES);
    line->buffer = malloc(LS_TLS_RECORD);
    ls_status status = line->buffer ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    if (status == LS_OK)
        status = ls_key_derive(line->tcp->key, purpose, sizeof(purpose), secret);
    if (status == LS_OK)
        status = ls_secured_open(line->tcp->tls, line->fd, line->caller, secret, &line->secured);
    OPENSSL_cleanse(secret, sizeof(secret));
    if (status == LS_OK)
        line->state = TCP_SHAKING;
    else
        end_line(line, "was given up: %s", ls_last_error());
}

static bool go_saying(tcp_line *line)
{
    size_t size = line->caller ? LS_PREAMBLE_BYTES : LS_REPLY_BYTES;
    ssize_t sent = send(line->fd, line->bytes + line->done, size - line->done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS))
        return false;
    if (sent < 0) {
        end_line(line, "hung up: %s", strerror(errno));
        return false;
    }
    line->done += (size_t)sent;
    if (line->done < size)
        return true;
    line->done = 0;
    if (line->caller)
        line->state = TCP_HEARING;
    else if (line->refused)
        line->state = TCP_ENDED; /* `why` is set already */
    else
        begin_shaking(line);
    return true;
}

static void hear_reply(tcp_line *line)
{
    int version;
    switch (ls_reply_read(line->bytes, &version)) {
    case LS_REPLY_WELCOME:
        begin_shaking(line);
        return;
    case LS_REPLY_OTHER_VERSION:
        end_line(line, "speaks version %d of the protocol, this worker version %d: use one version of Lockstep",
                 version, LS_WIRE_VERSION);
        return;
    case LS_REPLY_OTHER_JOB:
        end_line(line, "is of another job than \"%.100s\"", line->tcp->options.job);
        return;
    case LS_REPLY_OTHER_WORKER:
        end_line(line, "is another worker, or in another context");
        return;
    default:
        end_line(line, "is no worker of Lockstep: its first bytes are not");
    }
}

static void hear_opening(tcp_line *line)
{
    memcpy(line->said, line->bytes, LS_PREAMBLE_BYTES);
    ls_reply_code code = ls_preamble_judge(line->bytes, &line->tcp->own, &line->opening);
    if (code == LS_REPLY_NO_OPENING) {
        end_line(line, "is no worker: its first bytes are not");
        return;
    }
    line->refused = code != LS_REPLY_WELCOME;
    if (code == LS_REPLY_OTHER_VERSION)
        end_line(line, "speaks version %u of the protocol, this worker version %d", line->opening.version,
                 LS_WIRE_VERSION);
    else if (code == LS_REPLY_OTHER_JOB)
        end_line(line, "is of another job than \"%.100s\"", line->tcp->options.job);
    else if (code == LS_REPLY_OTHER_WORKER)
        end_line(line, "wants worker %u in its context %u, and this is worker %u in context %u", line->opening.to,
                 line->opening.number, line->tcp->own.to, line->tcp->own.number);
    ls_reply_write(code, line->bytes);
    line->state = TCP_SAYING;
}

static bool go_hearing(tcp_line *line)
{
    size_t size = line->caller ? LS_REPLY_BYTES : LS_PREAMBLE_BYTES;
    ssize_t got = recv(line->fd, line->bytes + line->done, size - line->done, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        end_line(line, got < 0 ? "hung up: %s" : "hung up without a word", strerror(errno));
        return false;
    }
    line->done += (size_t)got;
    if (line->done < size)
        return true;
    line->done = 0;
    if (line->caller)
        hear_reply(line);
    else
        hear_opening(line);
    return true;
}

static bool go_shaking(tcp_line *line)
{
    switch (ls_secured_shake_hands(line->secured)) {
    case LS_TLS_DONE:
        line->state = TCP_OPEN;
        return true;
    case LS_TLS_WANTS_READ:
        line->wants_write = false;
        return false;
    case LS_TLS_WANTS_WRITE:
        line->wants_write = true;
        return false;
    case LS_TLS_CLOSED:
        end_line(line, "ended while keys were compared: %s", ls_secured_why(line->secured));
        return false;
    default:
        end_line(line, "has another key than this worker, or somebody changed bytes on the way (TLS: %s)",
                 ls_secured_why(line->secured));
        return false;
    }
}

void ls_tcp_line_step(tcp_line *line)
{
    static bool (*const go[])(tcp_line *) = { go_connecting, go_saying, go_hearing, go_shaking };
    while (line->state < TCP_OPEN && go[line->state](line))
        ;
    if (line->state < TCP_OPEN && ls_clock_now() > line->end)
        end_line(line, "took more than %g s to say who it is", TCP_MEET_LIMIT);
}

short ls_tcp_line_events(const tcp_line *line)
{
    bool write =
        line->state == TCP_CONNECTING || line->state == TCP_SAYING || (line->state == TCP_SHAKING && line->wants_write);
    return write ? POLLOUT : POLLIN;
}

/* ---- Writing ---- */

static ls_status tell_end(const tcp_line *line)
{
    return ls_fail(LS_ERR_PEER, "%s", line->why);
}

static void be_deaf(tcp_line *line, const char *why)
{
    char address[LS_ADDRESS_CHARS];
    snprintf(line->why, sizeof(line->why), "worker %u at %s has gone: %s",
             line->caller ? line->opening.to : line->opening.from, ls_address_print(&line->there, address), why);
    line->deaf = true;
    line->record = 0;
}

bool ls_tcp_line_flush(tcp_line *line)
{
    size_t moved;
    while (line->record > 0 && !line->deaf) {
        switch (ls_secured_write(line->secured, line->buffer, line->record, &moved)) {
        case LS_TLS_DONE:
            line->record -= moved;
            memmove(line->buffer, line->buffer + moved, line->record);
            break;
        case LS_TLS_FAILED:
        case LS_TLS_CLOSED:
            be_deaf(line, ls_secured_why(line->secured));
            break;
        default:
            return false;
        }
    }
    return !line->deaf;
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

/* If the kernel takes only a part of a record, the next call sends the rest. To make the user call
 * again, one byte of the record is not reported as moved; the user offers it again, and it is
 * skipped. */
ls_status ls_tcp_line_write(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    tcp_line *line = (tcp_line *)of;
    cursor c = { parts, count, 0 };
    size_t sum = 0;
    ls_tcp_line_step(line);
    bool flushed = line->state == TCP_OPEN && ls_tcp_line_flush(line);
    if (line->state == TCP_ENDED || line->deaf)
        return tell_end(line);
    if (flushed && line->owed) {
        sum = take(&c, NULL, 1);
        line->owed = sum == 0;
    }
    while (flushed && sum < MOST_WRITE && (line->record = take(&c, line->buffer, LS_TLS_RECORD)) > 0) {
        sum += line->record;
        flushed = ls_tcp_line_flush(line);
        if (line->deaf)
            return tell_end(line);
        line->owed = !flushed;
        sum -= line->owed;
    }
    *moved = sum;
    return LS_OK;
}

/* ---- Reading ---- */

/* false: no more bytes now. */
static bool read_part(tcp_line *line, const struct iovec *part, size_t *sum)
{
    size_t moved;
    for (size_t at = 0; at < part->iov_len; at += moved, *sum += moved) {
        switch (ls_secured_read(line->secured, (char *)part->iov_base + at, part->iov_len - at, &moved)) {
        case LS_TLS_DONE:
            line->drained = false;
            break;
        case LS_TLS_CLOSED:
        case LS_TLS_FAILED:
            end_line(line, "is gone: %s", ls_secured_why(line->secured));
            return false;
        default:
            line->drained = true;
            return false;
        }
    }
    return true;
}

ls_status ls_tcp_line_read(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    tcp_line *line = (tcp_line *)of;
    size_t sum = 0;
    ls_tcp_line_step(line);
    if (line->state == TCP_OPEN && line->record > 0)
        ls_tcp_line_flush(line);
    for (int i = 0; line->state == TCP_OPEN && i < count; i++)
        if (!read_part(line, &parts[i], &sum))
            break;
    if (line->state == TCP_ENDED && sum == 0)
        return tell_end(line);
    *moved = sum;
    return LS_OK;
}

/* ---- Closing ---- */

/* Sends FIN only after close_notify: without it the peer would take this process for dead. */
static void say_goodbye(tcp_line *line)
{
    line->goodbye = ls_secured_say_end(line->secured);
    if (line->goodbye)
        shutdown(line->fd, SHUT_WR);
}

ls_connection_end ls_tcp_line_how_ended(const ls_connection *of)
{
    const tcp_line *line = (const tcp_line *)of;
    if (line->secured && ls_secured_was_closed(line->secured))
        return LS_CONNECTION_CLOSED;
    return line->secured && ls_secured_died(line->secured) ? LS_CONNECTION_DIED : LS_CONNECTION_BROKEN;
}

/* Returns whether the peer has acknowledged all bytes, or is gone. */
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
 * would discard what it still has to send. */
static bool has_left(tcp_line *line)
{
    if (line->record > 0 && ls_tcp_line_flush(line))
        say_goodbye(line);
    return line->deaf || ls_clock_now() > line->end || (line->record == 0 && is_sent(line->fd));
}

void ls_tcp_leave_some(ls_tcp *tcp)
{
    int kept = 0;
    for (int i = 0; i < tcp->leaving_count; i++) {
        if (has_left(tcp->leaving[i]))
            ls_tcp_line_free(tcp->leaving[i]);
        else
            tcp->leaving[kept++] = tcp->leaving[i];
    }
    tcp->leaving_count = kept;
}

void ls_tcp_line_hang_up(ls_connection *of)
{
    tcp_line *line = (tcp_line *)of;
    if (!line)
        return;
    ls_tcp *tcp = line->tcp;
    if (line->state != TCP_OPEN || line->deaf) {
        ls_tcp_line_free(line);
        return;
    }
    if (ls_tcp_line_flush(line))
        say_goodbye(line);
    line->end = ls_clock_now() + LEAVE_LIMIT;
    pthread_mutex_lock(&tcp->mutex);
    if (tcp->leaving_count == TCP_MOST_LEAVING) {
        ls_tcp_line_free(tcp->leaving[0]);
        memmove(tcp->leaving, tcp->leaving + 1, --tcp->leaving_count * sizeof(*tcp->leaving));
    }
    tcp->leaving[tcp->leaving_count++] = line;
    pthread_mutex_unlock(&tcp->mutex);
    ls_tcp_door_wake(tcp);
}
