/* Shared memory between workers: what the other side may do to it. The rest of the transport is
 * tried in test_transport.c, and with real processes in test_fabric.c. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fabric/transport/shm.h"
#include "fabric/transport/unix.h"

#define LIMIT 10.0 /* seconds that anything here may take */

static const ls_transport_table *const t = &ls_transport_shm;

typedef struct pair {
    ls_transport *worker[2];
    ls_connection *line[2]; /* ends of worker 0, which was called, and of worker 1 */
} pair;

static ls_cluster_options job(int rank)
{
    ls_cluster_options o = { .rank = rank, .size = 2 };
    snprintf(o.job, sizeof(o.job), "shm-%d", (int)getpid());
    return o;
}

static ls_status write_to(ls_connection *line, const void *data, size_t bytes, size_t *moved)
{
    return t->write(line, &(struct iovec){ (void *)data, bytes }, 1, moved);
}

static ls_status read_from(ls_connection *line, void *data, size_t bytes, size_t *moved)
{
    return t->read(line, &(struct iovec){ data, bytes }, 1, moved);
}

/* Waits until something is there, and reads it. */
static ls_status wait_and_read(pair *p, int me, void *data, size_t bytes, size_t *moved)
{
    double end = ls_clock_now() + LIMIT;
    ls_status status;
    do {
        ls_want want = { .connection = p->line[me], .read = true };
        assert_int_equal(t->wait(p->worker[me], &want, 1, 1), LS_OK);
        status = read_from(p->line[me], data, bytes, moved);
    } while (status == LS_OK && *moved == 0 && ls_clock_now() < end);
    return status;
}

static pair open_pair(void)
{
    pair p;
    size_t moved = 0;
    char byte = 0;
    for (int r = 0; r < 2; r++) {
        ls_cluster_options o = job(r);
        assert_int_equal(t->open(&o, 0, &p.worker[r]), LS_OK);
    }
    assert_int_equal(t->call(p.worker[1], 0, &p.line[1]), LS_OK);
    assert_int_equal(t->answer(p.worker[0], &p.line[0]), LS_OK);
    assert_non_null(p.line[0]);
    assert_non_null(p.line[1]);
    assert_int_equal(write_to(p.line[1], "x", 1, &moved), LS_OK);
    assert_int_equal(wait_and_read(&p, 0, &byte, 1, &moved), LS_OK);
    assert_int_equal(byte, 'x');
    return p;
}

static void close_pair(pair *p)
{
    for (int r = 0; r < 2; r++) {
        if (p->line[r])
            t->hang_up(p->line[r]);
        t->close(p->worker[r]);
    }
}

static bool says(const char *part)
{
    return strstr(ls_last_error(), part) != NULL;
}

/* Worker 0 has read one byte, and written none: these positions are before its own, or too far from
 * it. */
static void impossible_places_end_the_line(void **state)
{
    (void)state;
    static const uint64_t wrong[2][5] = { { 1, 1ull << 32, 1ull << 63, LS_SHM_RING, UINT64_MAX - LS_SHM_RING },
                                          { 0, LS_SHM_RING + 2, 1ull << 32, 1ull << 63, UINT64_MAX } };
    static char data[2 * LS_SHM_RING];
    for (int i = 0; i < 5; i++)
        for (int reads = 0; reads < 2; reads++) {
            pair p = open_pair();
            size_t moved = 0;
            ls_shm_ring *rings = ls_shm_memory_of(p.line[1])->rings;
            atomic_store(reads ? &rings[0].head : &rings[1].tail, wrong[reads][i]);
            ls_want want = { .connection = p.line[0], .read = reads, .write = !reads };
            assert_int_equal(t->wait(p.worker[0], &want, 1, LIMIT), LS_OK);
            assert_true(want.ready);
            ls_status status = reads ? read_from(p.line[0], data, sizeof(data), &moved)
                                     : write_to(p.line[0], data, sizeof(data), &moved);
            assert_int_equal(status, LS_ERR_PEER);
            assert_true(says("impossible"));
            assert_int_equal(moved, 0);
            close_pair(&p);
        }
}

/* Positions that are possible but wrong are read as any bytes. */
static void places_that_lie_give_bytes(void **state)
{
    (void)state;
    static char data[2 * LS_SHM_RING];
    pair p = open_pair();
    size_t moved = 0;
    atomic_store(&ls_shm_memory_of(p.line[1])->rings[0].head, LS_SHM_RING + 1);
    assert_int_equal(read_from(p.line[0], data, sizeof(data), &moved), LS_OK);
    assert_int_equal(moved, LS_SHM_RING);
    close_pair(&p);
}

/* A worker that sleeps is woken by what is written, and one that cannot write by what is read. */
static void bytes_on_the_socket_are_no_bytes_of_the_line(void **state)
{
    (void)state;
    pair p = open_pair();
    char noise[1000], byte = 0;
    size_t moved = 1;
    memset(noise, 'G', sizeof(noise));
    assert_true(send(ls_shm_descriptor(p.line[1]), noise, sizeof(noise), MSG_DONTWAIT) > 0);
    ls_want want = { .connection = p.line[0], .read = true };
    double begin = ls_clock_now();
    assert_int_equal(t->wait(p.worker[0], &want, 1, 0.05), LS_OK);
    assert_false(want.ready);
    assert_true(ls_clock_now() - begin >= 0.049);
    assert_int_equal(read_from(p.line[0], &byte, 1, &moved), LS_OK);
    assert_int_equal(moved, 0);
    assert_int_equal(write_to(p.line[1], "y", 1, &moved), LS_OK);
    assert_int_equal(wait_and_read(&p, 0, &byte, 1, &moved), LS_OK);
    assert_int_equal(byte, 'y');
    close_pair(&p);
}

/* ---- Callers that hand over something else ---- */

static void send_files(int fd, const int *files, int count)
{
    char control[CMSG_SPACE(8 * sizeof(int))] = { 0 };
    struct iovec part = { "", 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    if (count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(head), files, (size_t)count * sizeof(int));
    }
    assert_int_equal(sendmsg(fd, &message, 0), 1);
}

static int make_file(size_t bytes, int seals)
{
    int file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)bytes), 0);
    assert_int_equal(fcntl(file, F_ADD_SEALS, seals), 0);
    return file;
}

enum { NO_FILE, TOO_SMALL, CAN_SHRINK, READ_ONLY, A_PIPE, TOO_LARGE, NOTHING_AND_GONE, SIX_FILES, CALLERS };

static void call_wrongly(int how)
{
    ls_cluster_options o = job(0);
    ls_unix_listener listener = { .kind = t->name, .options = job(1), .fd = -1 };
    pair p = { .worker = { NULL } };
    size_t moved = 1;
    char byte;
    assert_int_equal(t->open(&o, 0, &p.worker[0]), LS_OK);
    int fd, size = sizeof(ls_shm_memory), pipes[2];
    assert_int_equal(ls_unix_listener_call(&listener, 0, &fd), LS_OK);
    assert_true(fd >= 0);
    assert_int_equal(t->answer(p.worker[0], &p.line[0]), LS_OK);
    assert_int_equal(read_from(p.line[0], &byte, 1, &moved), LS_OK); /* nothing was said yet */
    assert_int_equal(moved, 0);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    int right = F_SEAL_SHRINK | F_SEAL_GROW;
    int file = make_file((size_t)size - (how == TOO_SMALL) + (how == TOO_LARGE) * 4096ul,
                         how == CAN_SHRINK ? F_SEAL_GROW : right | (how == READ_ONLY ? F_SEAL_WRITE : 0));
    int files[] = { how == A_PIPE ? pipes[0] : file, file, file, file, file, file };
    if (how != NOTHING_AND_GONE)
        send_files(fd, files, how == NO_FILE ? 0 : how == SIX_FILES ? 6 : 1);
    close(fd);
    ls_status status = wait_and_read(&p, 0, &byte, 1, &moved);
    assert_int_equal(status, LS_ERR_PEER);
    assert_true(says(how >= NOTHING_AND_GONE ? "ended" : "did not pass valid shared memory"));
    assert_int_equal(write_to(p.line[0], "x", 1, &moved), LS_ERR_PEER);
    close(file);
    close(pipes[0]);
    close(pipes[1]);
    t->hang_up(p.line[0]);
    t->close(p.worker[0]);
}

static void only_our_own_memory_is_accepted(void **state)
{
    (void)state;
    int before = dup(0);
    for (int how = 0; how < CALLERS; how++)
        call_wrongly(how);
    int after = dup(0);
    assert_int_equal(before + 1, after); /* no descriptor is left */
    close(before);
    close(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_places_end_the_line),
        cmocka_unit_test(places_that_lie_give_bytes),
        cmocka_unit_test(bytes_on_the_socket_are_no_bytes_of_the_line),
        cmocka_unit_test(only_our_own_memory_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
