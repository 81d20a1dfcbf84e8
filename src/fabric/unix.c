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
    ls_unix_door door;
} unix_transport;

struct ls_line {
    const ls_transport_table *table;
    int fd;
};

ls_status ls_unix_address(const char *kind, const ls_cluster_options *options, int number, int rank,
                          struct sockaddr_un *out, unsigned *bytes)
{
    char hex[65];
    LS_TRY(ls_sha256_of(options->job, strlen(options->job), hex));
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int length = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "lockstep-%s-%lu-%.32s-%d-%d", kind,
                          (unsigned long)geteuid(), hex, number, rank);
    *bytes = (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    return LS_OK;
}

/* ---- The door ---- */

static ls_status open_socket(int *out)
{
    *out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return *out >= 0 ? LS_OK : ls_fail(LS_ERR_PEER, "no socket for the other workers: %s", strerror(errno));
}

ls_status ls_unix_door_open(ls_unix_door *door)
{
    struct sockaddr_un address;
    unsigned bytes;
    LS_TRY(ls_unix_address(door->kind, &door->options, door->number, door->options.rank, &address, &bytes));
    LS_TRY(open_socket(&door->fd));
    if (bind(door->fd, (struct sockaddr *)&address, bytes) < 0)
        return errno == EADDRINUSE
                   ? ls_fail(LS_ERR_STATE,
                             "another process is worker %d of job \"%s\" already: give each worker a rank of its own, "
                             "and each job another name",
                             door->options.rank, door->options.job)
                   : ls_fail(LS_ERR_PEER, "cannot wait for the other workers: %s", strerror(errno));
    if (listen(door->fd, BACKLOG) < 0)
        return ls_fail(LS_ERR_PEER, "cannot wait for the other workers: %s", strerror(errno));
    return LS_OK;
}

static bool is_same_user(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof(who);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == geteuid();
}

ls_status ls_unix_door_call(const ls_unix_door *door, int rank, int *fd)
{
    struct sockaddr_un address;
    unsigned bytes;
    *fd = -1;
    LS_TRY(ls_unix_address(door->kind, &door->options, door->number, rank, &address, &bytes));
    LS_TRY(open_socket(fd));
    bool there = connect(*fd, (struct sockaddr *)&address, bytes) == 0;
    if (there && is_same_user(*fd))
        return LS_OK;
    close(*fd);
    *fd = -1;
    return there ? ls_fail(LS_ERR_PEER, "a process of another user waits at the address of worker %d of job \"%s\"",
                           rank, door->options.job)
                 : LS_OK;
}

int ls_unix_door_answer(const ls_unix_door *door)
{
    for (;;) {
        int fd = accept4(door->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0 || is_same_user(fd))
            return fd;
        close(fd); /* strangers are not answered */
    }
}

struct pollfd ls_unix_poll_of(const ls_unix_door *door, const ls_want *want, int fd)
{
    short events = (short)((want->read || !want->line ? POLLIN : 0) | (want->write ? POLLOUT : 0));
    int other = want->bell > 0 ? want->bell : door->fd;
    return (struct pollfd){ .fd = !events ? -1 : want->line ? fd : other, .events = events };
}

ls_status ls_unix_poll(struct pollfd *polls, int count, double seconds, int *ready)
{
    double milliseconds = seconds > 0 ? seconds * 1000 + 1 : 0;
    *ready = poll(polls, (nfds_t)count, milliseconds < 1e6 ? (int)milliseconds : 1000000);
    if (*ready < 0 && errno != EINTR)
        return ls_fail(LS_ERR_PEER, "waiting for other workers failed: %s", strerror(errno));
    return LS_OK;
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

static void unix_close(ls_transport *transport)
{
    unix_transport *t = (unix_transport *)transport;
    if (t->door.fd >= 0)
        close(t->door.fd);
    free(t);
}

static ls_status unix_open(const ls_cluster_options *options, int number, ls_transport **out)
{
    unix_transport *t = malloc(sizeof(*t));
    if (!t)
        return ls_fail(LS_ERR_MEMORY, "no memory for the connections of a worker");
    *t = (unix_transport){ &ls_transport_unix, { ls_transport_unix.name, *options, number, -1 } };
    ls_status status = ls_unix_door_open(&t->door);
    if (status != LS_OK) {
        unix_close((ls_transport *)t);
        return status;
    }
    *out = (ls_transport *)t;
    return LS_OK;
}

static ls_status unix_call(ls_transport *transport, int rank, ls_line **out)
{
    int fd;
    *out = NULL;
    LS_TRY(ls_unix_door_call(&((unix_transport *)transport)->door, rank, &fd));
    return fd >= 0 ? make_line(fd, out) : LS_OK;
}

static ls_status unix_answer(ls_transport *transport, ls_line **out)
{
    int fd = ls_unix_door_answer(&((unix_transport *)transport)->door);
    *out = NULL;
    return fd >= 0 ? make_line(fd, out) : LS_OK;
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
    struct pollfd polls[LS_MOST_POLLS];
    int ready;
    if (count > LS_MOST_POLLS)
        return ls_fail(LS_ERR_INTERNAL, "%d connections are waited for, %d are possible", count, LS_MOST_POLLS);
    for (int i = 0; i < count; i++)
        polls[i] = ls_unix_poll_of(&t->door, &wants[i], wants[i].line ? wants[i].line->fd : -1);
    LS_TRY(ls_unix_poll(polls, count, seconds, &ready));
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
    .slice = 256 << 10,
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
