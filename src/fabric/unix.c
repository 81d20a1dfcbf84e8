/* Unix-domain stream sockets: workers that are processes of one user on one machine. Addresses follow from user, job
 * and rank; they are abstract ones, which go with the process: nothing is left behind. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "fabric/unix.h"

#define BACKLOG 512

typedef struct unix_transport {
    const ls_transport_table *table;
    ls_cluster_options options;
    int number;
    int door;
} unix_transport;

struct ls_line {
    const ls_transport_table *table;
    int fd;
};

ls_status ls_unix_address(const ls_cluster_options *options, int number, int rank, struct sockaddr_un *out,
                          unsigned *bytes)
{
    char hex[65];
    LS_TRY(ls_sha256_of(options->job, strlen(options->job), hex));
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int length = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "lockstep-%lu-%.32s-%d-%d",
                          (unsigned long)geteuid(), hex, number, rank);
    *bytes = (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    return LS_OK;
}

int ls_unix_descriptor(const ls_line *line)
{
    return line->fd;
}

static ls_status open_socket(int *out)
{
    *out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return *out >= 0 ? LS_OK : ls_fail(LS_ERR_PEER, "no socket for the other workers: %s", strerror(errno));
}

static ls_status make_line(int fd, ls_line **out)
{
    ls_line *line = malloc(sizeof(*line));
    if (!line) {
        close(fd);
        return ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    }
    *line = (ls_line){ &ls_transport_unix, fd };
    *out = line;
    return LS_OK;
}

/* ---- The door ---- */

static ls_status open_door(unix_transport *t)
{
    struct sockaddr_un address;
    unsigned bytes;
    LS_TRY(ls_unix_address(&t->options, t->number, t->options.rank, &address, &bytes));
    LS_TRY(open_socket(&t->door));
    if (bind(t->door, (struct sockaddr *)&address, bytes) < 0)
        return errno == EADDRINUSE
                   ? ls_fail(LS_ERR_STATE,
                             "another process is worker %d of job \"%s\" already: give each worker a rank of its own, "
                             "and each job another name",
                             t->options.rank, t->options.job)
                   : ls_fail(LS_ERR_PEER, "cannot wait for the other workers: %s", strerror(errno));
    if (listen(t->door, BACKLOG) < 0)
        return ls_fail(LS_ERR_PEER, "cannot wait for the other workers: %s", strerror(errno));
    return LS_OK;
}

static void unix_close(ls_transport *transport)
{
    unix_transport *t = (unix_transport *)transport;
    if (t->door >= 0)
        close(t->door);
    free(t);
}

static ls_status unix_open(const ls_cluster_options *options, int number, ls_transport **out)
{
    unix_transport *t = malloc(sizeof(*t));
    if (!t)
        return ls_fail(LS_ERR_MEMORY, "no memory for the connections of a worker");
    *t = (unix_transport){ &ls_transport_unix, *options, number, -1 };
    ls_status status = open_door(t);
    if (status != LS_OK) {
        unix_close((ls_transport *)t);
        return status;
    }
    *out = (ls_transport *)t;
    return LS_OK;
}

static bool is_same_user(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof(who);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == geteuid();
}

static ls_status unix_call(ls_transport *transport, int rank, ls_line **out)
{
    const unix_transport *t = (const unix_transport *)transport;
    struct sockaddr_un address;
    unsigned bytes;
    int fd;
    *out = NULL;
    LS_TRY(ls_unix_address(&t->options, t->number, rank, &address, &bytes));
    LS_TRY(open_socket(&fd));
    if (connect(fd, (struct sockaddr *)&address, bytes) < 0) {
        close(fd); /* not there yet */
        return LS_OK;
    }
    if (!is_same_user(fd)) {
        close(fd);
        return ls_fail(LS_ERR_PEER, "a process of another user waits at the address of worker %d of job \"%s\"", rank,
                       t->options.job);
    }
    return make_line(fd, out);
}

static ls_status unix_answer(ls_transport *transport, ls_line **out)
{
    const unix_transport *t = (const unix_transport *)transport;
    *out = NULL;
    for (;;) {
        int fd = accept4(t->door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0)
            return LS_OK;
        if (is_same_user(fd))
            return make_line(fd, out);
        close(fd); /* strangers are not answered */
    }
}

/* ---- Lines ---- */

static ls_status ended(void)
{
    return ls_fail(LS_ERR_PEER, "its connection ended");
}

static ls_status unix_write(ls_line *line, const struct iovec *parts, int count, size_t *moved)
{
    struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count };
    ssize_t sent = sendmsg(line->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    *moved = sent > 0 ? (size_t)sent : 0;
    return sent >= 0 || errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? LS_OK : ended();
}

static ls_status unix_read(ls_line *line, const struct iovec *parts, int count, size_t *moved)
{
    struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count };
    ssize_t got = recvmsg(line->fd, &message, MSG_DONTWAIT);
    *moved = got > 0 ? (size_t)got : 0;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)) ? LS_OK : ended();
}

static void unix_hang_up(ls_line *line)
{
    close(line->fd);
    free(line);
}

static ls_status unix_wait(ls_transport *transport, ls_want *wants, int count, double seconds)
{
    const unix_transport *t = (const unix_transport *)transport;
    struct pollfd polls[2 * LS_MAX_CLUSTER + 128];
    if ((size_t)count > sizeof(polls) / sizeof(*polls))
        return ls_fail(LS_ERR_INTERNAL, "%d connections are waited for, %zu are possible", count,
                       sizeof(polls) / sizeof(*polls));
    for (int i = 0; i < count; i++) {
        short events = (short)((wants[i].read || !wants[i].line ? POLLIN : 0) | (wants[i].write ? POLLOUT : 0));
        polls[i] = (struct pollfd){ .fd = wants[i].line ? wants[i].line->fd : t->door, .events = events };
        if (!events)
            polls[i].fd = -1;
    }
    double milliseconds = seconds > 0 ? seconds * 1000 + 1 : 0;
    int ready = poll(polls, (nfds_t)count, milliseconds < 1e6 ? (int)milliseconds : 1000000);
    if (ready < 0 && errno != EINTR)
        return ls_fail(LS_ERR_PEER, "waiting for other workers failed: %s", strerror(errno));
    for (int i = 0; i < count; i++)
        wants[i].ready = ready > 0 && polls[i].revents != 0;
    return LS_OK;
}

static double unix_now(ls_transport *transport)
{
    (void)transport;
    return ls_clock_now();
}

const ls_transport_table ls_transport_unix = {
    .name = "unix",
    .elastic = true,
    .beats = true,
    .open = unix_open,
    .close = unix_close,
    .call = unix_call,
    .answer = unix_answer,
    .write = unix_write,
    .read = unix_read,
    .hang_up = unix_hang_up,
    .wait = unix_wait,
    .now = unix_now,
};
