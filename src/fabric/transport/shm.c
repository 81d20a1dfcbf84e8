/* Shared memory between processes of one user on one machine: two rings of bytes for each
 * connection. The Unix socket stays open: the caller passes the memory over it, a byte on it wakes
 * a sleeping peer, and its end is the end of the connection.
 *
 * The peer can write anything into the memory at any time. So each side keeps its own positions in
 * private memory and checks the peer's position each time; all else read from there is payload. The
 * memory is sealed: it cannot shrink.
 *
 * A waiting thread spins for a while, yielding its core, then sleeps. It spins longer if that paid
 * off before. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/transport/shm.h"
#include "fabric/transport/unix.h"

#define CHUNK     (64 << 10) /* bytes published at once, so that both sides copy at the same time */
#define MOST_SPIN 100e-6     /* seconds of spinning */
#define SEALS     (F_SEAL_SHRINK | F_SEAL_GROW)

typedef struct shm_transport {
    const ls_transport_table *table;
    ls_unix_listener listener;
} shm_transport;

typedef struct shm_connection {
    const ls_transport_table *table;
    int fd;
    ls_shm_memory *memory; /* NULL: the caller has not passed it yet */
    bool caller;
    /* The socket has ended; bytes in the ring can still be read. */
    bool ended;
    bool quiet; /* the last read found nothing */
    /* Why nothing more can be read or written; NULL: it can. */
    const char *broken;
    uint64_t sent, got; /* own positions in the rings */
    double spin;        /* seconds to spin */
} shm_connection;

static ls_shm_ring *ring_out(const shm_connection *connection)
{
    return &connection->memory->rings[connection->caller ? 0 : 1];
}

static ls_shm_ring *ring_in(const shm_connection *connection)
{
    return &connection->memory->rings[connection->caller ? 1 : 0];
}

ls_shm_memory *ls_shm_memory_of(const ls_connection *connection)
{
    return ((const shm_connection *)connection)->memory;
}

int ls_shm_descriptor(const ls_connection *connection)
{
    return ((const shm_connection *)connection)->fd;
}

/* ---- Creating connections ---- */

static void shm_hang_up(ls_connection *of)
{
    shm_connection *connection = (shm_connection *)of;
    if (connection->memory)
        munmap(connection->memory, sizeof(*connection->memory));
    close(connection->fd);
    free(connection);
}

static ls_status make_connection(int fd, bool caller, shm_connection **out)
{
    shm_connection *connection = malloc(sizeof(*connection));
    if (!connection) {
        close(fd);
        return ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    }
    *connection = (shm_connection){ .table = &ls_transport_shm, .fd = fd, .caller = caller, .spin = MOST_SPIN };
    *out = connection;
    return LS_OK;
}

static bool map(shm_connection *connection, int file)
{
    void *at = mmap(NULL, sizeof(*connection->memory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    connection->memory = at == MAP_FAILED ? NULL : at;
    return connection->memory;
}

/* The socket is empty, so sending one byte never blocks. */
static bool hand_over(int fd, int file)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { .bytes = { 0 } };
    struct iovec part = { "", 1 };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
    };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &file, sizeof(file));
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

/* Pages are allocated when they are first used. */
static ls_status share_memory(shm_connection *connection)
{
    int file = memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0 || ftruncate(file, sizeof(*connection->memory)) < 0 || fcntl(file, F_ADD_SEALS, SEALS) < 0 ||
        !map(connection, file)) {
        ls_status status =
            ls_fail(LS_ERR_PEER, "no shared memory for the other workers: %s; LOCKSTEP_TRANSPORT=unix does not need it",
                    strerror(errno));
        if (file >= 0)
            close(file);
        return status;
    }
    connection->ended = !hand_over(connection->fd, file);
    close(file);
    return LS_OK;
}

static ls_status shm_call(ls_transport *transport, int rank, ls_connection **out)
{
    shm_connection *connection;
    int fd;
    *out = NULL;
    LS_TRY(ls_unix_listener_call(&((shm_transport *)transport)->listener, rank, &fd));
    if (fd < 0)
        return LS_OK;
    LS_TRY(make_connection(fd, true, &connection));
    ls_status status = share_memory(connection);
    if (status == LS_OK)
        *out = (ls_connection *)connection;
    else
        shm_hang_up((ls_connection *)connection);
    return status;
}

static ls_status shm_answer(ls_transport *transport, ls_connection **out)
{
    shm_connection *connection;
    int fd = ls_unix_listener_answer(&((shm_transport *)transport)->listener);
    *out = NULL;
    if (fd < 0)
        return LS_OK;
    LS_TRY(make_connection(fd, false, &connection));
    *out = (ls_connection *)connection;
    return LS_OK;
}

/* ---- The socket ---- */

/* Closes all further descriptors; -1: none. */
static int file_of(struct msghdr *message)
{
    int file = -1;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; (i + 1) * sizeof(int) <= head->cmsg_len - CMSG_LEN(0); i++) {
            int one;
            memcpy(&one, CMSG_DATA(head) + i * sizeof(int), sizeof(one));
            if (file >= 0)
                close(one);
            else
                file = one;
        }
    }
    return file;
}

static bool is_memory(int file)
{
    struct stat about;
    int seals = fcntl(file, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS && !(seals & F_SEAL_WRITE) && fstat(file, &about) == 0 &&
           about.st_size == (off_t)sizeof(ls_shm_memory);
}

static void receive_memory(shm_connection *connection)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    char byte;
    struct iovec part = { &byte, 1 };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
    };
    ssize_t got = recvmsg(connection->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    connection->ended = got <= 0;
    if (connection->ended)
        return;
    int file = file_of(&message);
    if (file < 0 || !is_memory(file) || !map(connection, file))
        connection->broken = "it did not pass valid shared memory";
    if (file >= 0)
        close(file);
}

/* Receives the memory, or discards bytes that woke this side. */
static void look_at_socket(shm_connection *connection)
{
    char sink[64];
    if (connection->broken || connection->ended)
        return;
    if (!connection->memory) {
        receive_memory(connection);
        return;
    }
    ssize_t got = recv(connection->fd, sink, sizeof(sink), MSG_DONTWAIT);
    connection->ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* ---- Rings ---- */

static size_t filled(shm_connection *connection)
{
    uint64_t bytes = connection->memory
                         ? atomic_load_explicit(&ring_in(connection)->head, memory_order_acquire) - connection->got
                         : 0;
    if (bytes <= LS_SHM_RING)
        return (size_t)bytes;
    connection->broken = "its shared memory has an impossible number of bytes to read";
    return 0;
}

static size_t space(shm_connection *connection)
{
    if (!connection->memory)
        return 0;
    uint64_t bytes = connection->sent - atomic_load_explicit(&ring_out(connection)->tail, memory_order_acquire);
    if (bytes <= LS_SHM_RING)
        return LS_SHM_RING - (size_t)bytes;
    connection->broken = "its shared memory has an impossible number of bytes that were read";
    return 0;
}

/* Thanks to the fence the peer sees the new position before it sleeps, or this side sees its flag.
 * */
static void wake(const shm_connection *connection, atomic_uint *sleeps)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(sleeps, memory_order_relaxed) || !atomic_exchange(sleeps, 0))
        return;
    if (send(connection->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        /* it is awake, or gone */
    }
}

/* A copy is limited by the part, a chunk and the end of the ring. */
static size_t one_copy(size_t place, size_t room, size_t bytes)
{
    size_t to_end = LS_SHM_RING - place;
    bytes = bytes < room ? bytes : room;
    bytes = bytes < to_end ? bytes : to_end;
    return bytes < CHUNK ? bytes : CHUNK;
}

static ls_status failed(const shm_connection *connection)
{
    return ls_fail(LS_ERR_PEER, "%s", connection->broken ? connection->broken : "its connection ended");
}

static ls_status shm_write(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    shm_connection *connection = (shm_connection *)of;
    size_t room = space(connection);
    *moved = 0;
    if (room == 0)
        look_at_socket(connection);
    if (connection->broken || connection->ended)
        return failed(connection);
    for (int i = 0; i < count && room > 0; i++)
        for (size_t done = 0; done < parts[i].iov_len && room > 0;) {
            ls_shm_ring *ring = ring_out(connection);
            size_t place = connection->sent % LS_SHM_RING, bytes = one_copy(place, room, parts[i].iov_len - done);
            memcpy(ring->bytes + place, (const char *)parts[i].iov_base + done, bytes);
            connection->sent += bytes;
            atomic_store_explicit(&ring->head, connection->sent, memory_order_release);
            wake(connection, &ring->reader_sleeps);
            done += bytes;
            room -= bytes;
            *moved += bytes;
        }
    return LS_OK;
}

/* When the socket's end is seen, all that the peer wrote is in the ring. */
static size_t to_read(shm_connection *connection)
{
    size_t bytes = filled(connection);
    if (bytes > 0 || !connection->quiet) { /* check the socket only at the second empty read in a row */
        connection->quiet = bytes == 0;
        return bytes;
    }
    look_at_socket(connection);
    return filled(connection);
}

static ls_status shm_read(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    shm_connection *connection = (shm_connection *)of;
    size_t left = to_read(connection);
    *moved = 0;
    if (connection->broken || (connection->ended && left == 0))
        return failed(connection);
    for (int i = 0; i < count && left > 0; i++)
        for (size_t done = 0; done < parts[i].iov_len && left > 0;) {
            ls_shm_ring *ring = ring_in(connection);
            size_t place = connection->got % LS_SHM_RING, bytes = one_copy(place, left, parts[i].iov_len - done);
            memcpy((char *)parts[i].iov_base + done, ring->bytes + place, bytes);
            connection->got += bytes;
            atomic_store_explicit(&ring->tail, connection->got, memory_order_release);
            done += bytes;
            left -= bytes;
            *moved += bytes;
        }
    /* Wake a writer, which sleeps on a full ring, only when much room is free. */
    if (*moved > 0 && filled(connection) <= LS_SHM_RING / 2)
        wake(connection, &ring_in(connection)->writer_sleeps);
    return LS_OK;
}

/* ---- Waiting ---- */

static bool look(ls_want *wants, int count)
{
    bool any = false;
    for (int i = 0; i < count; i++) {
        shm_connection *connection = (shm_connection *)wants[i].connection;
        wants[i].ready = connection && (wants[i].read || wants[i].write) &&
                         ((wants[i].read && filled(connection) > 0) || (wants[i].write && space(connection) > 0) ||
                          connection->broken || connection->ended);
        any |= wants[i].ready;
    }
    return any;
}

static double spin_of(const ls_want *wants, int count, double seconds)
{
    double spin = 0;
    for (int i = 0; i < count; i++) {
        const shm_connection *connection = (const shm_connection *)wants[i].connection;
        spin = connection && connection->spin > spin ? connection->spin : spin;
    }
    return spin < seconds ? spin : seconds;
}

static bool spin(ls_want *wants, int count, double seconds)
{
    double end = seconds > 0 ? ls_clock_now() + seconds : 0;
    if (look(wants, count))
        return true;
    while (seconds > 0 && ls_clock_now() < end) {
        for (int i = 0; i < 16; i++)
            if (look(wants, count))
                return true;
        sched_yield(); /* the peer may need this core */
    }
    return false;
}

/* Restores the full spin after a short sleep; halves it after each long one. */
static void learn_spin(ls_want *wants, int count, double slept)
{
    for (int i = 0; i < count; i++) {
        shm_connection *connection = (shm_connection *)wants[i].connection;
        if (connection && slept < MOST_SPIN && wants[i].ready)
            connection->spin = MOST_SPIN;
        else if (connection && slept >= MOST_SPIN)
            connection->spin = connection->spin > 1e-6 ? connection->spin / 2 : 0;
    }
}

static void set_sleeps(const ls_want *wants, int count, unsigned sleeps)
{
    for (int i = 0; i < count; i++) {
        const shm_connection *connection = (const shm_connection *)wants[i].connection;
        if (connection && connection->memory && wants[i].read)
            atomic_store(&ring_in(connection)->reader_sleeps, sleeps);
        if (connection && connection->memory && wants[i].write)
            atomic_store(&ring_out(connection)->writer_sleeps, sleeps);
    }
    atomic_thread_fence(memory_order_seq_cst);
}

/* *any: something is ready, or the time is over. */
static ls_status sleep_until(const shm_transport *t, ls_want *wants, int count, double end, bool *any)
{
    struct pollfd polls[LS_MOST_POLLS];
    int ready = 0;
    set_sleeps(wants, count, 1);
    *any = look(wants, count);
    double begun = ls_clock_now();
    for (int i = 0; i < count; i++) {
        const shm_connection *connection = (const shm_connection *)wants[i].connection;
        ls_want socket = { .connection = wants[i].connection,
                           .bell = wants[i].bell,
                           .read = wants[i].read || wants[i].write };
        polls[i] = ls_unix_poll_of(&t->listener, &socket, connection ? connection->fd : -1);
    }
    if (!*any)
        LS_TRY(ls_unix_poll(polls, count, end - begun, &ready));
    set_sleeps(wants, count, 0);
    for (int i = 0; i < count && ready > 0; i++)
        if (wants[i].connection && polls[i].revents)
            look_at_socket((shm_connection *)wants[i].connection);
    *any = look(wants, count);
    double now = ls_clock_now();
    learn_spin(wants, count, now - begun);
    for (int i = 0; i < count && ready > 0; i++)
        if (!wants[i].connection)
            *any |= wants[i].ready = polls[i].revents != 0;
    *any |= now >= end;
    return LS_OK;
}

static ls_status shm_wait(ls_transport *transport, ls_want *wants, int count, double seconds)
{
    double end = ls_clock_now() + (seconds > 0 ? seconds : 0);
    bool any = spin(wants, count, spin_of(wants, count, seconds));
    if (count > LS_MOST_POLLS)
        return ls_fail(LS_ERR_INTERNAL, "waiting for %d connections; the limit is %d", count, LS_MOST_POLLS);
    while (!any)
        LS_TRY(sleep_until((shm_transport *)transport, wants, count, end, &any));
    return LS_OK;
}

static double shm_now(ls_transport *transport)
{
    (void)transport;
    return ls_clock_now();
}

/* ---- Opening and closing ---- */

static void shm_close(ls_transport *transport)
{
    shm_transport *t = (shm_transport *)transport;
    ls_unix_listener_close(&t->listener);
    free(t);
}

static ls_status shm_open_door(const ls_cluster_options *options, int number, ls_transport **out)
{
    shm_transport *t = malloc(sizeof(*t));
    if (!t)
        return ls_fail(LS_ERR_MEMORY, "no memory for the connections of a worker");
    *t = (shm_transport){ &ls_transport_shm,
                          { .kind = ls_transport_shm.name, .options = *options, .number = number, .fd = -1 } };
    ls_status status = ls_unix_listener_open(&t->listener);
    if (status != LS_OK) {
        shm_close((ls_transport *)t);
        return status;
    }
    *out = (ls_transport *)t;
    return LS_OK;
}

static bool shm_refused(ls_transport *transport, char *why, size_t bytes)
{
    return ls_unix_listener_refused(&((shm_transport *)transport)->listener, why, bytes);
}

const ls_transport_table ls_transport_shm = {
    .name = "shm",
    .elastic = true,
    .heartbeats = true,
    .slice = 128 << 10,
    .open = shm_open_door,
    .close = shm_close,
    .call = shm_call,
    .answer = shm_answer,
    .write = shm_write,
    .read = shm_read,
    .hang_up = shm_hang_up,
    .wait = shm_wait,
    .now = shm_now,
    .refused = shm_refused,
};
