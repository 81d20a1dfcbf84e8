/* Shared memory between processes of one user on one machine: two rings of bytes for each
 * connection, one per direction. The Unix socket stays open: the caller passes the memory over it,
 * a byte on it wakes a sleeping peer, and its end is the end of the connection.
 *
 * The peer can write anything into the memory at any time. So each side keeps its own positions in
 * private memory and checks the peer's position against the ring's size each time; all else read
 * from there is payload. The memory is sealed: it cannot shrink.
 *
 * A waiting thread first spins for a while, yielding its core, then sleeps. It spins longer if that
 * paid off before. */
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
    ls_unix_door door;
} shm_transport;

typedef struct shm_line {
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
} shm_line;

static ls_shm_ring *ring_out(const shm_line *line)
{
    return &line->memory->rings[line->caller ? 0 : 1];
}

static ls_shm_ring *ring_in(const shm_line *line)
{
    return &line->memory->rings[line->caller ? 1 : 0];
}

ls_shm_memory *ls_shm_memory_of(const ls_connection *line)
{
    return ((const shm_line *)line)->memory;
}

int ls_shm_descriptor(const ls_connection *line)
{
    return ((const shm_line *)line)->fd;
}

/* ---- Creating connections ---- */

static void shm_hang_up(ls_connection *of)
{
    shm_line *line = (shm_line *)of;
    if (line->memory)
        munmap(line->memory, sizeof(*line->memory));
    close(line->fd);
    free(line);
}

static ls_status make_line(int fd, bool caller, shm_line **out)
{
    shm_line *line = malloc(sizeof(*line));
    if (!line) {
        close(fd);
        return ls_fail(LS_ERR_MEMORY, "no memory for a connection");
    }
    *line = (shm_line){ .table = &ls_transport_shm, .fd = fd, .caller = caller, .spin = MOST_SPIN };
    *out = line;
    return LS_OK;
}

static bool map(shm_line *line, int file)
{
    void *at = mmap(NULL, sizeof(*line->memory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    line->memory = at == MAP_FAILED ? NULL : at;
    return line->memory;
}

/* Sends the descriptor of the memory with one byte; the socket is empty, so it never blocks. */
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
static ls_status share_memory(shm_line *line)
{
    int file = memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0 || ftruncate(file, sizeof(*line->memory)) < 0 || fcntl(file, F_ADD_SEALS, SEALS) < 0 ||
        !map(line, file)) {
        ls_status status =
            ls_fail(LS_ERR_PEER, "no shared memory for the other workers: %s; LOCKSTEP_TRANSPORT=unix does without",
                    strerror(errno));
        if (file >= 0)
            close(file);
        return status;
    }
    line->ended = !hand_over(line->fd, file);
    close(file);
    return LS_OK;
}

static ls_status shm_call(ls_transport *transport, int rank, ls_connection **out)
{
    shm_line *line;
    int fd;
    *out = NULL;
    LS_TRY(ls_unix_door_call(&((shm_transport *)transport)->door, rank, &fd));
    if (fd < 0)
        return LS_OK;
    LS_TRY(make_line(fd, true, &line));
    ls_status status = share_memory(line);
    if (status == LS_OK)
        *out = (ls_connection *)line;
    else
        shm_hang_up((ls_connection *)line);
    return status;
}

static ls_status shm_answer(ls_transport *transport, ls_connection **out)
{
    shm_line *line;
    int fd = ls_unix_door_answer(&((shm_transport *)transport)->door);
    *out = NULL;
    if (fd < 0)
        return LS_OK;
    LS_TRY(make_line(fd, false, &line));
    *out = (ls_connection *)line;
    return LS_OK;
}

/* ---- The socket ---- */

/* Returns the descriptor in a message, or -1. Closes all further ones. */
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

static void receive_memory(shm_line *line)
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
    ssize_t got = recvmsg(line->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    line->ended = got <= 0;
    if (line->ended)
        return;
    int file = file_of(&message);
    if (file < 0 || !is_memory(file) || !map(line, file))
        line->broken = "it handed over no shared memory of ours";
    if (file >= 0)
        close(file);
}

/* Receives the memory, or discards bytes that woke this side; notices the end. */
static void look_at_socket(shm_line *line)
{
    char sink[64];
    if (line->broken || line->ended)
        return;
    if (!line->memory) {
        receive_memory(line);
        return;
    }
    ssize_t got = recv(line->fd, sink, sizeof(sink), MSG_DONTWAIT);
    line->ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* ---- Rings ---- */

static size_t filled(shm_line *line)
{
    uint64_t bytes = line->memory ? atomic_load_explicit(&ring_in(line)->head, memory_order_acquire) - line->got : 0;
    if (bytes <= LS_SHM_RING)
        return (size_t)bytes;
    line->broken = "its shared memory has an impossible number of bytes to read";
    return 0;
}

static size_t space(shm_line *line)
{
    if (!line->memory)
        return 0;
    uint64_t bytes = line->sent - atomic_load_explicit(&ring_out(line)->tail, memory_order_acquire);
    if (bytes <= LS_SHM_RING)
        return LS_SHM_RING - (size_t)bytes;
    line->broken = "its shared memory has an impossible number of bytes that were read";
    return 0;
}

/* Wakes the peer if it sleeps. Thanks to the fence the peer sees the new position before it sleeps,
 * or this side sees its flag. */
static void wake(const shm_line *line, atomic_uint *sleeps)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(sleeps, memory_order_relaxed) || !atomic_exchange(sleeps, 0))
        return;
    if (send(line->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        /* it is awake, or gone */
    }
}

/* Returns the bytes of one copy: limited by the part, a chunk and the end of the ring. */
static size_t one_copy(size_t place, size_t room, size_t bytes)
{
    size_t to_end = LS_SHM_RING - place;
    bytes = bytes < room ? bytes : room;
    bytes = bytes < to_end ? bytes : to_end;
    return bytes < CHUNK ? bytes : CHUNK;
}

static ls_status failed(const shm_line *line)
{
    return ls_fail(LS_ERR_PEER, "%s", line->broken ? line->broken : "its connection ended");
}

static ls_status shm_write(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    shm_line *line = (shm_line *)of;
    size_t room = space(line);
    *moved = 0;
    if (room == 0)
        look_at_socket(line);
    if (line->broken || line->ended)
        return failed(line);
    for (int i = 0; i < count && room > 0; i++)
        for (size_t done = 0; done < parts[i].iov_len && room > 0;) {
            ls_shm_ring *ring = ring_out(line);
            size_t place = line->sent % LS_SHM_RING, bytes = one_copy(place, room, parts[i].iov_len - done);
            memcpy(ring->bytes + place, (const char *)parts[i].iov_base + done, bytes);
            line->sent += bytes;
            atomic_store_explicit(&ring->head, line->sent, memory_order_release);
            wake(line, &ring->reader_sleeps);
            done += bytes;
            room -= bytes;
            *moved += bytes;
        }
    return LS_OK;
}

/* When the socket's end is seen, all that the peer wrote is in the ring. */
static size_t to_read(shm_line *line)
{
    size_t bytes = filled(line);
    if (bytes > 0 || !line->quiet) { /* check the socket only at the second empty read in a row */
        line->quiet = bytes == 0;
        return bytes;
    }
    look_at_socket(line);
    return filled(line);
}

static ls_status shm_read(ls_connection *of, const struct iovec *parts, int count, size_t *moved)
{
    shm_line *line = (shm_line *)of;
    size_t left = to_read(line);
    *moved = 0;
    if (line->broken || (line->ended && left == 0))
        return failed(line);
    for (int i = 0; i < count && left > 0; i++)
        for (size_t done = 0; done < parts[i].iov_len && left > 0;) {
            ls_shm_ring *ring = ring_in(line);
            size_t place = line->got % LS_SHM_RING, bytes = one_copy(place, left, parts[i].iov_len - done);
            memcpy((char *)parts[i].iov_base + done, ring->bytes + place, bytes);
            line->got += bytes;
            atomic_store_explicit(&ring->tail, line->got, memory_order_release);
            done += bytes;
            left -= bytes;
            *moved += bytes;
        }
    /* Wake a writer, which sleeps on a full ring, only when much room is free. */
    if (*moved > 0 && filled(line) <= LS_SHM_RING / 2)
        wake(line, &ring_in(line)->writer_sleeps);
    return LS_OK;
}

/* ---- Waiting ---- */

static bool look(ls_want *wants, int count)
{
    bool any = false;
    for (int i = 0; i < count; i++) {
        shm_line *line = (shm_line *)wants[i].line;
        wants[i].ready =
            line && (wants[i].read || wants[i].write) &&
            ((wants[i].read && filled(line) > 0) || (wants[i].write && space(line) > 0) || line->broken || line->ended);
        any |= wants[i].ready;
    }
    return any;
}

static double spin_of(const ls_want *wants, int count, double seconds)
{
    double spin = 0;
    for (int i = 0; i < count; i++) {
        const shm_line *line = (const shm_line *)wants[i].line;
        spin = line && line->spin > spin ? line->spin : spin;
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
        shm_line *line = (shm_line *)wants[i].line;
        if (line && slept < MOST_SPIN && wants[i].ready)
            line->spin = MOST_SPIN;
        else if (line && slept >= MOST_SPIN)
            line->spin = line->spin > 1e-6 ? line->spin / 2 : 0;
    }
}

static void say_sleeps(const ls_want *wants, int count, unsigned sleeps)
{
    for (int i = 0; i < count; i++) {
        const shm_line *line = (const shm_line *)wants[i].line;
        if (line && line->memory && wants[i].read)
            atomic_store(&ring_in(line)->reader_sleeps, sleeps);
        if (line && line->memory && wants[i].write)
            atomic_store(&ring_out(line)->writer_sleeps, sleeps);
    }
    atomic_thread_fence(memory_order_seq_cst);
}

/* *any: something is ready, or the time is over. */
static ls_status sleep_until(const shm_transport *t, ls_want *wants, int count, double end, bool *any)
{
    struct pollfd polls[LS_MOST_POLLS];
    int ready = 0;
    say_sleeps(wants, count, 1);
    *any = look(wants, count);
    double begun = ls_clock_now();
    for (int i = 0; i < count; i++) {
        const shm_line *line = (const shm_line *)wants[i].line;
        ls_want socket = { .line = wants[i].line, .bell = wants[i].bell, .read = wants[i].read || wants[i].write };
        polls[i] = ls_unix_poll_of(&t->door, &socket, line ? line->fd : -1);
    }
    if (!*any)
        LS_TRY(ls_unix_poll(polls, count, end - begun, &ready));
    say_sleeps(wants, count, 0);
    for (int i = 0; i < count && ready > 0; i++)
        if (wants[i].line && polls[i].revents)
            look_at_socket((shm_line *)wants[i].line);
    *any = look(wants, count);
    double now = ls_clock_now();
    learn_spin(wants, count, now - begun);
    for (int i = 0; i < count && ready > 0; i++)
        if (!wants[i].line)
            *any |= wants[i].ready = polls[i].revents != 0;
    *any |= now >= end;
    return LS_OK;
}

static ls_status shm_wait(ls_transport *transport, ls_want *wants, int count, double seconds)
{
    double end = ls_clock_now() + (seconds > 0 ? seconds : 0);
    bool any = spin(wants, count, spin_of(wants, count, seconds));
    if (count > LS_MOST_POLLS)
        return ls_fail(LS_ERR_INTERNAL, "%d connections are waited for, %d are possible", count, LS_MOST_POLLS);
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
    ls_unix_door_close(&t->door);
    free(t);
}

static ls_status shm_open_door(const ls_cluster_options *options, int number, ls_transport **out)
{
    shm_transport *t = malloc(sizeof(*t));
    if (!t)
        return ls_fail(LS_ERR_MEMORY, "no memory for the connections of a worker");
    *t = (shm_transport){ &ls_transport_shm,
                          { .kind = ls_transport_shm.name, .options = *options, .number = number, .fd = -1 } };
    ls_status status = ls_unix_door_open(&t->door);
    if (status != LS_OK) {
        shm_close((ls_transport *)t);
        return status;
    }
    *out = (ls_transport *)t;
    return LS_OK;
}

static bool shm_refused(ls_transport *transport, char *why, size_t bytes)
{
    return ls_unix_door_refused(&((shm_transport *)transport)->door, why, bytes);
}

const ls_transport_table ls_transport_shm = {
    .name = "shm",
    .elastic = true,
    .beats = true,
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
