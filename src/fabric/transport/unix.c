/* Unix-domain stream sockets between processes of one user on one machine. A socket's path follows
 * from user, job and rank. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "base/text.h"
#include "fabric/transport/unix.h"

#define BACKLOG 512

typedef struct unix_transport {
    const ls_transport_table *table;
    ls_unix_listener listener;
} unix_transport;

struct ls_connection {
    const ls_transport_table *table;
    int fd;
};

ls_status ls_unix_path(const char *folder, const char *kind, const ls_cluster_options *options, int number, int rank,
                       char out[LS_UNIX_PATH_CHARS])
{
    char hex[65];
    LS_TRY(ls_sha256_of(options->job, strlen(options->job), hex));
    int length = snprintf(out, LS_UNIX_PATH_CHARS, "%s/%s-%.20s-%d-%d", folder, kind, hex, number, rank);
    return length < LS_UNIX_PATH_CHARS ? LS_OK
                                       : ls_fail(LS_ERR_INTERNAL, "a socket's path has %d characters; the limit is %d",
                                                 length, LS_UNIX_PATH_CHARS - 1);
}

/* ---- The listener ---- */

static ls_status open_socket(int *out)
{
    *out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return *out >= 0 ? LS_OK : ls_fail(LS_ERR_PEER, "cannot make a socket for the other workers: %s", strerror(errno));
}

static struct sockaddr_un address_of(const char path[LS_UNIX_PATH_CHARS])
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    memcpy(address.sun_path, path, LS_UNIX_PATH_CHARS);
    return address;
}

static void note_foreign(ls_unix_listener *listener, const char *format, ...) LS_PRINTF(2, 3);
static void note_foreign(ls_unix_listener *listener, const char *format, ...)
{
    va_list args;
    if (listener->foreign[0])
        return;
    va_start(args, format);
    vsnprintf(listener->foreign, sizeof(listener->foreign), format, args);
    va_end(args);
}

bool ls_unix_listener_refused(ls_unix_listener *listener, char *why, size_t bytes)
{
    if (!listener->foreign[0] || listener->reported)
        return false;
    listener->reported = true;
    snprintf(why, bytes, "%s", listener->foreign);
    return true;
}

static ls_status taken(const ls_unix_listener *listener)
{
    return ls_fail(
        LS_ERR_STATE,
        "another process is worker %d of job \"%s\" already: give each worker its own rank, and each job its own name",
        listener->options.rank, listener->options.job);
}

/* Replaces a file that is not the socket of a live process. *why: errno; 0: none. */
static ls_status bind_in(ls_unix_listener *listener, int *why)
{
    struct sockaddr_un address = address_of(listener->path);
    struct stat about;
    *why = 0;
    int bound = bind(listener->fd, (struct sockaddr *)&address, sizeof(address));
    if (bound < 0 && errno == EADDRINUSE) {
        if (ls_socket_is_live(listener->path))
            return taken(listener);
        if (unlink(listener->path) < 0)
            rmdir(listener->path);
        bound = bind(listener->fd, (struct sockaddr *)&address, sizeof(address));
    }
    if (bound < 0 || chmod(listener->path, 0600) < 0 || listen(listener->fd, BACKLOG) < 0 ||
        lstat(listener->path, &about) < 0) {
        *why = errno;
        return LS_OK;
    }
    listener->file[0] = about.st_dev;
    listener->file[1] = about.st_ino;
    return LS_OK;
}

/* *why: why the folder cannot be used; "": the listener is open. */
static ls_status open_in(ls_unix_listener *listener, const char folder[LS_SOCKET_FOLDER_CHARS], char *why, size_t bytes)
{
    int lock, error;
    bool foreign;
    LS_TRY(ls_unix_path(folder, listener->kind, &listener->options, listener->number, listener->options.rank,
                        listener->path));
    if (!ls_socket_folder_lock(folder, &lock, &foreign, why, bytes)) {
        if (foreign)
            note_foreign(listener, "%s: not used", why);
        return LS_OK;
    }
    ls_status status = open_socket(&listener->fd);
    if (status == LS_OK)
        status = bind_in(listener, &error);
    why[0] = '\0';
    if (status == LS_OK && error != 0)
        snprintf(why, bytes, "no socket can be made in %.63s: %s", folder, strerror(error));
    if (status != LS_OK || error != 0) {
        close(listener->fd);
        listener->fd = -1;
    } else {
        memcpy(listener->folder, folder, sizeof(listener->folder));
    }
    ls_socket_folder_clean_and_unlock(folder, lock);
    return status;
}

ls_status ls_unix_listener_open(ls_unix_listener *listener)
{
    char folders[LS_SOCKET_FOLDERS][LS_SOCKET_FOLDER_CHARS], why[200];
    ls_text reasons = { 0 };
    int count = ls_socket_folders(folders);
    ls_status status = LS_OK;
    for (int i = 0; i < count && status == LS_OK && listener->fd < 0; i++) {
        status = open_in(listener, folders[i], why, sizeof(why));
        if (status == LS_OK && listener->fd < 0)
            ls_text_add(&reasons, "; %s", why);
    }
    if (status == LS_OK && listener->fd < 0)
        status = ls_fail(LS_ERR_PEER,
                         "no folder for the sockets of workers%s; set XDG_RUNTIME_DIR to a folder that you own, with a "
                         "path of at most %d characters",
                         ls_text_get(&reasons), LS_SOCKET_FOLDER_CHARS - 10);
    ls_text_free(&reasons);
    return status;
}

/* Removes this worker's socket only: another process of this rank may have put its own there. */
static void remove_socket(const ls_unix_listener *listener)
{
    char why[200];
    struct stat about;
    int lock;
    bool foreign;
    if (!ls_socket_folder_is_own(listener->folder) ||
        !ls_socket_folder_lock(listener->folder, &lock, &foreign, why, sizeof(why)))
        return;
    if (lstat(listener->path, &about) == 0 && about.st_dev == listener->file[0] && about.st_ino == listener->file[1])
        unlink(listener->path);
    ls_socket_folder_clean_and_unlock(listener->folder, lock);
}

void ls_unix_listener_close(ls_unix_listener *listener)
{
    if (listener->fd < 0)
        return;
    remove_socket(listener);
    close(listener->fd);
    listener->fd = -1;
}

static bool is_same_user(int fd, unsigned long *user)
{
    struct ucred who;
    socklen_t bytes = sizeof(who);
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0;
    *user = known ? who.uid : 0;
    return known && who.uid == geteuid();
}

/* Checks the folder before and after connecting: in another user's folder a link could lead to a
 * worker of another job. */
static ls_status call_in(ls_unix_listener *listener, const char *folder, int rank, int *fd)
{
    char path[LS_UNIX_PATH_CHARS];
    unsigned long user;
    if (!ls_socket_folder_is_own(folder))
        return LS_OK;
    LS_TRY(ls_unix_path(folder, listener->kind, &listener->options, listener->number, rank, path));
    struct sockaddr_un address = address_of(path);
    LS_TRY(open_socket(fd));
    bool there = connect(*fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    if (there && is_same_user(*fd, &user) && ls_socket_folder_is_own(folder))
        return LS_OK;
    if (there)
        note_foreign(listener, "a process of user %lu listens in place of worker %d of job \"%s\": ignored", user, rank,
                     listener->options.job);
    close(*fd);
    *fd = -1;
    return LS_OK;
}

ls_status ls_unix_listener_call(ls_unix_listener *listener, int rank, int *fd)
{
    char folders[LS_SOCKET_FOLDERS][LS_SOCKET_FOLDER_CHARS];
    int count = ls_socket_folders(folders);
    *fd = -1;
    for (int i = 0; i < count && *fd < 0; i++)
        LS_TRY(call_in(listener, folders[i], rank, fd));
    return LS_OK;
}

int ls_unix_listener_answer(ls_unix_listener *listener)
{
    for (;;) {
        unsigned long user;
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0 || is_same_user(fd, &user))
            return fd;
        close(fd);
        note_foreign(listener, "a process of user %lu called: refused", user);
    }
}

struct pollfd ls_unix_poll_of(const ls_unix_listener *listener, const ls_want *want, int fd)
{
    short events = (short)((want->read || !want->connection ? POLLIN : 0) | (want->write ? POLLOUT : 0));
    int other = want->bell > 0 ? want->bell : listener->fd;
    return (struct pollfd){ .fd = !events ? -1 : want->connection ? fd : other, .events = events };
}

ls_status ls_unix_poll(struct pollfd *polls, int count, double seconds, int *ready)
{
    double milliseconds = seconds > 0 ? seconds * 1000 + 1 : 0;
    *ready = poll(polls, (nfds_t)count, milliseconds < 1e6 ? (int)milliseconds : 1000000);
    if (*ready < 0 && errno != EINTR)
        return ls_fail(LS_ERR_PEER, "waiting for other workers failed: %s", strerror(errno));
    return LS_OK;
}

static ls_status make_connection(int fd, ls_connection **out)
{
    ls_connection *connection = malloc(sizeof(*connection));
    if (!connection) {
        close(fd);
        return ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    }
    *connection = (ls_connection){ &ls_transport_unix, fd };
    *out = connection;
    return LS_OK;
}

static void unix_close(ls_transport *transport)
{
    unix_transport *t = (unix_transport *)transport;
    ls_unix_listener_close(&t->listener);
    free(t);
}

static ls_status unix_open(const ls_cluster_options *options, int number, ls_transport **out)
{
    unix_transport *t = malloc(sizeof(*t));
    if (!t)
        return ls_fail(LS_ERR_MEMORY, "no memory for the connections of a worker");
    *t = (unix_transport){ &ls_transport_unix,
                           { .kind = ls_transport_unix.name, .options = *options, .number = number, .fd = -1 } };
    ls_status status = ls_unix_listener_open(&t->listener);
    if (status != LS_OK) {
        unix_close((ls_transport *)t);
        return status;
    }
    *out = (ls_transport *)t;
    return LS_OK;
}

static ls_status unix_call(ls_transport *transport, int rank, ls_connection **out)
{
    int fd;
    *out = NULL;
    LS_TRY(ls_unix_listener_call(&((unix_transport *)transport)->listener, rank, &fd));
    return fd >= 0 ? make_connection(fd, out) : LS_OK;
}

static ls_status unix_answer(ls_transport *transport, ls_connection **out)
{
    int fd = ls_unix_listener_answer(&((unix_transport *)transport)->listener);
    *out = NULL;
    return fd >= 0 ? make_connection(fd, out) : LS_OK;
}

/* ---- Connections ---- */

static ls_status ended(void)
{
    return ls_fail(LS_ERR_PEER, "its connection ended");
}

static ls_status unix_write(ls_connection *connection, const struct iovec *parts, int count, size_t *moved)
{
    struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count };
    ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    *moved = sent > 0 ? (size_t)sent : 0;
    return sent >= 0 || errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? LS_OK : ended();
}

static ls_status unix_read(ls_connection *connection, const struct iovec *parts, int count, size_t *moved)
{
    struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count };
    ssize_t got = recvmsg(connection->fd, &message, MSG_DONTWAIT);
    *moved = got > 0 ? (size_t)got : 0;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)) ? LS_OK : ended();
}

static void unix_hang_up(ls_connection *connection)
{
    close(connection->fd);
    free(connection);
}

static ls_status unix_wait(ls_transport *transport, ls_want *wants, int count, double seconds)
{
    const unix_transport *t = (const unix_transport *)transport;
    struct pollfd polls[LS_MOST_POLLS];
    int ready;
    if (count > LS_MOST_POLLS)
        return ls_fail(LS_ERR_INTERNAL, "waiting for %d connections; the limit is %d", count, LS_MOST_POLLS);
    for (int i = 0; i < count; i++)
        polls[i] = ls_unix_poll_of(&t->listener, &wants[i], wants[i].connection ? wants[i].connection->fd : -1);
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

static bool unix_refused(ls_transport *transport, char *why, size_t bytes)
{
    return ls_unix_listener_refused(&((unix_transport *)transport)->listener, why, bytes);
}

const ls_transport_table ls_transport_unix = {
    .name = "unix",
    .elastic = true,
    .heartbeats = true,
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
    .refused = unix_refused,
};
