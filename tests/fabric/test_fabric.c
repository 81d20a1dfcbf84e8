/* The mesh between workers, with real processes, over shared memory and over Unix sockets: pieces
 * of any size pass, and a worker that is lost, stopped, late, strange or does something else is an
 * error that names it, on all others, and never a wait. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fabric/mesh/mesh.h"
#include "sim.h"
#include "fabric/transport/ucx.h"
#include "fabric/transport/unix.h"
#include "lockstep.h"

#define LIMIT 20 /* seconds that a worker of a test may take */

/* ---- Workers ---- */

typedef int (*worker)(int rank, int size, void *user); /* 0: as it should be */

static const char *transport = "shm";

static int use_transport(void **state)
{
    transport = *state;
    return 0;
}

static ls_cluster_options options_of(const char *job, int rank, int size)
{
    ls_cluster_options o = { .rank = rank, .size = size, .join_limit = 20, .silence_limit = 20 };
    snprintf(o.job, sizeof(o.job), "%s-%d", job, (int)getppid());
    snprintf(o.transport, sizeof(o.transport), "%s", transport);
    return o;
}

static pid_t start(worker work, int rank, int size, void *user)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(LIMIT);
        int result = work(rank, size, user);
        fflush(NULL);
        _exit(result);
    }
    return pid;
}

/* Every worker must end with the status of its rank, or 0. */
static void run_workers(worker work, int size, void *user, const int *expected)
{
    pid_t pids[16];
    int wrong = 0;
    for (int r = 0; r < size; r++)
        pids[r] = start(work, r, size, user);
    for (int r = 0; r < size; r++) {
        int how;
        assert_int_equal(waitpid(pids[r], &how, 0), pids[r]);
        int status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
        if (status != (expected ? expected[r] : 0)) {
            fprintf(stderr, "worker %d of %d ended with status %d\n", r, size, status);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

#define WANT(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: worker %d: not so: %s (last error: %s)\n", __FILE__, __LINE__, rank, #condition,   \
                    ls_last_error());                                                                                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static ls_status swap(ls_mesh *mesh, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    LS_TRY(mesh->peers.exchange(&mesh->peers, tag, what, pieces, count));
    return mesh->peers.commit(&mesh->peers, (uint64_t[2]){ tag, 0 }, what);
}

static bool says(const char *part)
{
    return strstr(ls_last_error(), part) != NULL;
}

/* ---- Pieces ---- */

static unsigned char byte_at(int from, size_t piece, size_t at)
{
    return (unsigned char)(at * 31 + at / 4096 + (size_t)from * 7 + piece * 13 + 1);
}

/* Worker r has pieces of these sizes, and each worker other ones. */
static const size_t sizes[] = { 0, 1, 127, 128, 4096, 100003, 1 << 20 };
#define SIZES (sizeof(sizes) / sizeof(*sizes))

static int swap_many(int rank, int size, void *user)
{
    (void)user;
    ls_mesh *mesh = NULL;
    ls_cluster_options o = options_of("many", rank, size);
    ls_piece pieces[8 * SIZES];
    size_t count = 0;
    WANT(ls_mesh_open(&o, 0, "bits", NULL, &mesh) == LS_OK);
    for (size_t s = 0; s < SIZES; s++)
        for (int from = 0; from < size; from++, count++) {
            size_t bytes = sizes[(s + (size_t)from) % SIZES];
            pieces[count] = (ls_piece){ from, LS_ALL_WORKERS, calloc(bytes + 1, 1), bytes };
            for (size_t i = 0; from == rank && i < bytes; i++)
                ((unsigned char *)pieces[count].data)[i] = byte_at(from, count, i);
        }
    for (int round = 0; round < 3; round++)
        WANT(swap(mesh, 7, "many", pieces, count) == LS_OK);
    for (size_t p = 0; p < count; p++) {
        const unsigned char *data = pieces[p].data;
        for (size_t i = 0; i < pieces[p].bytes; i++)
            WANT(data[i] == byte_at(pieces[p].from, p, i));
        WANT(data[pieces[p].bytes] == 0);
        free(pieces[p].data);
    }
    for (uint64_t i = 0; i < 200; i++) /* workers run ahead of each other */
        WANT(swap(mesh, i, "nothing", NULL, 0) == LS_OK);
    ls_mesh_close(mesh);
    return 0;
}

static void pieces_of_all_sizes_pass(void **state)
{
    (void)state;
    run_workers(swap_many, 2, NULL, NULL);
    run_workers(swap_many, 3, NULL, NULL);
    run_workers(swap_many, 8, NULL, NULL);
}

#define LARGE ((size_t)64 << 20)

/* Both send more than any buffer between them holds, at the same time. */
static int swap_large(int rank, int size, void *user)
{
    (void)user;
    ls_mesh *mesh = NULL;
    ls_cluster_options o = options_of("large", rank, size);
    ls_piece pieces[2];
    WANT(ls_mesh_open(&o, 0, "bits", NULL, &mesh) == LS_OK);
    for (int from = 0; from < 2; from++) {
        pieces[from] = (ls_piece){ from, LS_ALL_WORKERS, malloc(LARGE), LARGE };
        memset(pieces[from].data, from == rank ? 'a' + from : 0, LARGE);
    }
    WANT(swap(mesh, 1, "large", pieces, 2) == LS_OK);
    for (int from = 0; from < 2; from++) {
        const char *data = pieces[from].data;
        WANT(data[0] == 'a' + from && memcmp(data, data + 1, LARGE - 1) == 0);
        free(pieces[from].data);
    }
    ls_mesh_close(mesh);
    return 0;
}

static void large_pieces_pass_each_other(void **state)
{
    (void)state;
    run_workers(swap_large, 2, NULL, NULL);
}

/* More pieces than go into one call of the system. */
static int swap_small(int rank, int size, void *user)
{
    (void)user;
    enum { COUNT = 1000 };
    static int64_t values[COUNT];
    static ls_piece pieces[COUNT];
    ls_mesh *mesh = NULL;
    ls_cluster_options o = options_of("small", rank, size);
    WANT(ls_mesh_open(&o, 0, "bits", NULL, &mesh) == LS_OK);
    for (int i = 0; i < COUNT; i++) {
        values[i] = i % size == rank ? i * i : -1;
        pieces[i] = (ls_piece){ i % size, LS_ALL_WORKERS, &values[i], sizeof(*values) };
    }
    WANT(swap(mesh, 1, "small", pieces, COUNT) == LS_OK);
    for (int i = 0; i < COUNT; i++)
        WANT(values[i] == i * i);
    ls_mesh_close(mesh);
    return 0;
}

/* Posted collectives run beside exchanges. Some workers wait for them only after later
 * exchanges. */
static int post_some(int rank, int size, void *user)
{
    (void)user;
    ls_mesh *mesh = NULL;
    ls_cluster_options o = options_of("post", rank, size);
    size_t large = 1000001;
    unsigned char *posted = calloc(2, large), small[2];
    WANT(ls_mesh_open(&o, 0, "bits", NULL, &mesh) == LS_OK);
    ls_peers *peers = &mesh->peers;
    for (int round = 0; round < 4; round++) {
        memset(posted, 0, 2 * large);
        for (size_t i = 0; i < large && rank < 2; i++)
            posted[(size_t)rank * large + i] = byte_at(rank, (size_t)round, i);
        ls_piece late[] = { { 0, LS_ALL_WORKERS, posted, large }, { 1, LS_ALL_WORKERS, posted + large, large } };
        ls_piece now[] = { { 0, LS_ALL_WORKERS, small, 1 }, { 1, LS_ALL_WORKERS, small + 1, 1 } };
        WANT(peers->post(peers, 1, "large", late, 2) == LS_OK);
        for (int i = 0; i < round; i++) {
            memset(small, 10 * rank + i, sizeof(small));
            for (int k = 0; k < 50 * (rank + 1); k++)
                peers->move_on(peers);
            WANT(peers->exchange(peers, 2, "small", now, 2) == LS_OK);
            WANT(small[0] == i && small[1] == 10 + i);
        }
        WANT(peers->settle(peers) == LS_OK && peers->settle(peers) == LS_OK);
        WANT(peers->commit(peers, (uint64_t[2]){ 5, 0 }, "both") == LS_OK);
        for (size_t i = 0; i < 2 * large; i++)
            WANT(posted[i] == byte_at(i >= large, (size_t)round, i % large));
    }
    free(posted);
    ls_mesh_close(mesh);
    return 0;
}

static void what_is_posted_goes_beside_exchanges(void **state)
{
    (void)state;
    run_workers(post_some, 2, NULL, NULL);
    run_workers(post_some, 4, NULL, NULL);
}

static void many_pieces_go_in_one_exchange(void **state)
{
    (void)state;
    run_workers(swap_small, 3, NULL, NULL);
}

/* ---- Workers that are lost ---- */

enum { KILLED, STOPPED, LEAVES };

static bool all_are_ahead(const ls_mesh *mesh)
{
    for (int r = 0; r < mesh->peers.size; r++)
        if (r != mesh->peers.rank && mesh->links[r].reading != LS_HOLDS)
            return false;
    return true;
}

/* Worker 1 is lost in the third exchange, when a piece of it is due: all others have begun it. */
static int lose_one(int rank, int size, void *user)
{
    int how = *(int *)user;
    static char data[4][300000];
    ls_mesh *mesh = NULL;
    ls_cluster_options o = options_of("lost", rank, size);
    o.silence_limit = how == STOPPED ? 0.5 : 20;
    ls_piece pieces[4];
    for (int from = 0; from < size; from++)
        pieces[from] = (ls_piece){ from, LS_ALL_WORKERS, data[from], sizeof(data[from]) };
    WANT(ls_mesh_open(&o, 0, "bits", NULL, &mesh) == LS_OK);
    for (int i = 0; i < 2; i++)
        WANT(swap(mesh, 1, "before", pieces, (size_t)size) == LS_OK);
    for (double end = ls_clock_now() + 10; rank == 1 && !all_are_ahead(mesh) && ls_clock_now() < end;)
        WANT(ls_mesh_turn(mesh, 0.01) == LS_OK);
    if (rank == 1 && how == KILLED)
        raise(SIGKILL);
    if (rank == 1 && how == LEAVES) {
        ls_mesh_close(mesh);
        return 0;
    }
    if (rank == 1) {
        raise(SIGSTOP);
        return 0;
    }
    double begin = ls_clock_now();
    for (int from = 0; from < size; from++)
        memset(data[from], from == rank ? 'a' + rank : '?', sizeof(data[from]));
    WANT(swap(mesh, 2, "the gradient of step 3", pieces, (size_t)size) == LS_ERR_PEER);
    WANT(ls_clock_now() - begin < 10);
    WANT(says("worker 1 of 4") || says("has lost another worker"));
    WANT(ls_peers_again(&mesh->peers) && !ls_peers_again(&mesh->peers));
    WANT(mesh->peers.count == 3 && mesh->peers.members[0] == 0 && mesh->peers.members[1] == 2);
    WANT(swap(mesh, 2, "the gradient of step 3", pieces, (size_t)size) == LS_OK);
    for (int from = 0; from < size; from++)
        WANT(from == 1 || (data[from][0] == 'a' + from && memcmp(data[from], data[from] + 1, sizeof(*data) - 1) == 0));
    WANT(ls_peers_share(&mesh->peers, 3, "later", NULL, 0) == LS_OK);
    ls_mesh_close(mesh);
    return 0;
}

static void the_others_continue_when_one_is_killed(void **state)
{
    (void)state;
    int how = KILLED;
    run_workers(lose_one, 4, &how, (int[]){ 0, 128 + SIGKILL, 0, 0 });
}

static void the_others_continue_when_one_leaves(void **state)
{
    (void)state;
    int how = LEAVES;
    run_workers(lose_one, 4, &how, NULL);
}

/* Its connection is open, and says nothing. */
static void the_others_continue_without_a_stopped_one(void **state)
{
    (void)state;
    int how = STOPPED;
    pid_t pids[4];
    for (int r = 0; r < 4; r++)
        pids[r] = start(lose_one, r, 4, &how);
    int status, wrong = 0;
    for (int r = 0; r < 4; r++) {
        if (r == 1)
            continue;
        waitpid(pids[r], &status, 0);
        wrong += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    kill(pids[1], SIGKILL);
    waitpid(pids[1], &status, 0);
    assert_int_equal(wrong, 0);
}

/* Worker 1 is held up for a while and announces it: it may be silent for longer than the limit. */
static int hold_one_up(int rank, int size, void *user)
{
    ls_mesh *mesh = NULL;
    ls_cluster_options o = options_of("held up", rank, size);
    (void)user;
    WANT(ls_mesh_open(&o, 0, "bits", NULL, &mesh) == LS_OK);
    if (rank == 1)
        raise(SIGSTOP);
    for (double end = ls_clock_now() + 10;
         ls_heartbeat_patience(mesh->heartbeat, 1 - rank) < 1 && ls_clock_now() < end;)
        WANT(ls_mesh_turn(mesh, 0.01) == LS_OK);
    WANT(ls_heartbeat_patience(mesh->heartbeat, 1 - rank) >= 1);
    WANT(ls_peers_share(&mesh->peers, 1, "the end", NULL, 0) == LS_OK);
    ls_mesh_close(mesh);
    return 0;
}

static void one_that_was_held_up_may_be_silent_for_longer(void **state)
{
    (void)state;
    pid_t pids[2];
    int status, wrong = 0;
    for (int r = 0; r < 2; r++)
        pids[r] = start(hold_one_up, r, 2, NULL);
    assert_int_equal(waitpid(pids[1], &status, WUNTRACED), pids[1]);
    assert_true(WIFSTOPPED(status));
    usleep(450000);
    kill(pids[1], SIGCONT);
    for (int r = 0; r < 2; r++) {
        waitpid(pids[r], &status, 0);
        wrong += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    assert_int_equal(wrong, 0);
}

/* ---- Workers that do something else ---- */

enum { OTHER_TAG, OTHER_BYTES, OTHER_MAGIC, GARBAGE, HALF_A_PACKET, BYTES_TOO_MANY };

static int do_other(int rank, int size, void *user)
{
    int how = *(int *)user;
    static char data[2000000];
    ls_mesh *mesh = NULL;
    ls_cluster_options o = options_of("other", rank, size);
    WANT(ls_mesh_open(&o, 0, "bits", NULL, &mesh) == LS_OK);
    WANT(swap(mesh, 1, "before", NULL, 0) == LS_OK);
    bool other = rank == 1;
    ls_piece piece = { 1, LS_ALL_WORKERS, data, other && how == OTHER_BYTES ? 1000 : sizeof(data) };
    if (other && how >= OTHER_MAGIC) {
        ls_packet f = { .magic = LS_PACKET_MAGIC + (how == OTHER_MAGIC),
                        .version = LS_PACKET_VERSION,
                        .kind = LS_PACKET_PIECES,
                        .from = 1,
                        .generation = 1,
                        .tag = 2,
                        .sequence = 2,
                        .bytes = how == BYTES_TOO_MANY ? UINT64_MAX : sizeof(data) };
        memset(f.what, 'x', sizeof(f.what)); /* without an end */
        if (how == GARBAGE)
            memset(&f, 0xa5, sizeof(f));
        size_t moved = 0;
        struct iovec part = { &f, how == HALF_A_PACKET ? 60 : sizeof(f) };
        WANT(mesh->table->write(mesh->links[0].connection, &part, 1, &moved) == LS_OK && moved == part.iov_len);
        ls_mesh_free(mesh);
        return 0;
    }
    double begin = ls_clock_now();
    WANT(swap(mesh, other && how == OTHER_TAG ? 3 : 2, other ? "predict" : "a step", &piece, 1) == LS_ERR_PEER);
    WANT(ls_clock_now() - begin < 10);
    WANT(says("worker 0") || says("worker 1"));
    if (how == OTHER_TAG)
        WANT(says("a step") && says("predict") && says("worker 0") && says("worker 1"));
    if (how == OTHER_BYTES)
        WANT(says("1000") && says("2000000"));
    ls_mesh_close(mesh);
    return 0;
}

static void other_calls_and_wrong_packets_are_errors(void **state)
{
    (void)state;
    for (int how = OTHER_TAG; how <= BYTES_TOO_MANY; how++)
        run_workers(do_other, 2, &how, NULL);
}

/* ---- The handshake ---- */

enum { OTHER_BITS, OTHER_SIZE, MISSING, TWICE };

static int meet_wrongly(int rank, int size, void *user)
{
    int how = *(int *)user;
    ls_mesh *mesh = NULL;
    ls_cluster_options o = options_of("handshake", how == TWICE ? 0 : rank, size);
    o.join_limit = how == MISSING || how == TWICE ? 0.7 : 20;
    if (how == MISSING && rank == 1)
        return 0;
    if (how == OTHER_SIZE && rank == 1)
        o.size = 3;
    ls_status status = ls_mesh_open(&o, 0, how == OTHER_BITS && rank == 1 ? "canary bb" : "canary aa", NULL, &mesh);
    WANT(mesh == NULL);
    WANT(status == LS_ERR_PEER || (how == TWICE && status == LS_ERR_STATE));
    if (how == OTHER_BITS)
        WANT(says("canary aa") && says("canary bb") && says("worker 0") && says("worker 1"));
    if (how == OTHER_SIZE)
        WANT(says("one of 3") && says("one of 2"));
    if (how == MISSING)
        WANT(says("worker 1 of 2 did not connect within 0.7 s"));
    if (how == TWICE)
        WANT(status == LS_ERR_PEER || says("worker 0 of job"));
    return 0;
}

static void both_sides_report_differences_in_the_handshake(void **state)
{
    (void)state;
    for (int how = OTHER_BITS; how <= TWICE; how++)
        run_workers(meet_wrongly, 2, &how, NULL);
}

/* ---- Waiting ---- */

typedef struct waiter {
    int rank;
    int lines; /* lines of the log */
    char first[400], last[400];
    ls_status status;
    char error[400];
} waiter;

static void keep_line(void *user, ls_log_level level, const char *line)
{
    waiter *w = user;
    w->lines += level == LS_LOG_WARNING ? 0 : 100;
    snprintf(w->lines++ == 0 ? w->first : w->last, sizeof(w->last), "%s", line);
}

static void wait_in_vain(void *user)
{
    waiter *w = user;
    ls_logger log;
    ls_mesh *mesh = NULL;
    ls_cluster_options o = { .rank = w->rank, .size = 4, .join_limit = 30 };
    snprintf(o.job, sizeof(o.job), "waiting");
    w->status = ls_log_init(&log, LS_LOG_WARNING, keep_line, w);
    if (w->status != LS_OK)
        return;
    w->status = ls_mesh_open(&o, 0, "bits", &log, &mesh);
    snprintf(w->error, sizeof(w->error), "%s", ls_last_error());
    ls_log_destroy(&log);
}

/* In a simulated world, which waits in no time. */
static void missing_workers_are_named_while_others_wait(void **state)
{
    (void)state;
    waiter all[2] = { { .rank = 0 }, { .rank = 1 } };
    ls_sim *sim;
    assert_int_equal(ls_sim_create(&(ls_sim_settings){ .seed = 1 }, &sim), LS_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ls_sim_add_worker(sim, 0, wait_in_vain, &all[i]), LS_OK);
    if (ls_sim_run(sim) != LS_OK)
        fail_msg("%s", ls_last_error());
    ls_sim_destroy(sim);
    for (int i = 0; i < 2; i++) {
        char wanted[200];
        assert_int_equal(all[i].status, LS_ERR_PEER);
        assert_non_null(strstr(all[i].error, "workers 2, 3 of 4 did not connect within 30 s"));
        assert_non_null(strstr(all[i].error, "LOCKSTEP_JOIN_LIMIT"));
        assert_int_equal(all[i].lines, 3); /* after 3, 13 and 23 seconds */
        snprintf(wanted, sizeof(wanted),
                 "worker %d of job \"waiting\" has waited 3 of 30 s for workers 2, 3 of 4 (LOCKSTEP_JOIN_LIMIT)", i);
        assert_string_equal(all[i].first, wanted);
        assert_non_null(strstr(all[i].last, "has waited 23 of 30 s"));
    }
}

/* Calls on worker 0 with nonsense, with half a greeting and with nothing, 300 times, while the
 * others meet. */
static int be_strange(int rank, int size, void *user)
{
    (void)user;
    ls_cluster_options o = options_of("strange", 0, size - 1);
    ls_unix_listener listener = { .kind = strcmp(transport, "ucx") == 0 ? "unix" : transport, .options = o, .fd = -1 };
    int kept[300], count = 0;
    char nonsense[400];
    memset(nonsense, 'G', sizeof(nonsense));
    double end = ls_clock_now() + 10;
    while (count < 300 && ls_clock_now() < end) {
        int fd;
        WANT(ls_unix_listener_call(&listener, 0, &fd) == LS_OK);
        if (fd < 0) {
            if (count > 0)
                break; /* they have met, and accept no other worker */
            usleep(1000);
            continue;
        }
        if (count % 3 == 0)
            (void)!send(fd, nonsense, sizeof(nonsense), MSG_NOSIGNAL);
        ls_packet f = { .magic = LS_PACKET_MAGIC, .version = 1, .kind = LS_PACKET_HELLO, .from = 1, .bytes = 1 << 30 };
        if (count % 3 == 1)
            (void)!send(fd, &f, count % 2 ? sizeof(f) : 30, MSG_NOSIGNAL);
        kept[count++] = fd;
    }
    WANT(count > 0);
    while (count > 0)
        close(kept[--count]);
    return 0;
}

static int meet_among_strangers(int rank, int size, void *user)
{
    if (rank == size - 1)
        return be_strange(rank, size, user);
    ls_mesh *mesh = NULL;
    ls_cluster_options o = options_of("strange", rank, size - 1);
    if (rank > 0)
        usleep(200000); /* the unknown peer connects first */
    WANT(ls_mesh_open(&o, 0, "bits", NULL, &mesh) == LS_OK);
    WANT(swap(mesh, 1, "after", NULL, 0) == LS_OK);
    ls_mesh_close(mesh);
    return 0;
}

static void unknown_peers_are_dropped_and_the_others_meet(void **state)
{
    (void)state;
    run_workers(meet_among_strangers, 4, NULL, NULL);
}

/* Opens what keeps other users from the socket of worker 0, when that is there. */
static bool let_others_call(const ls_cluster_options *o, struct sockaddr_un *address)
{
    char folders[LS_SOCKET_FOLDERS][LS_SOCKET_FOLDER_CHARS];
    int count = ls_socket_folders(folders);
    for (double end = ls_clock_now() + 10; ls_clock_now() < end; usleep(1000))
        for (int i = 0; i < count; i++) {
            const char *kind = strcmp(transport, "ucx") == 0 ? "unix" : transport;
            if (ls_unix_path(folders[i], kind, o, 0, 0, address->sun_path) == LS_OK &&
                ls_socket_is_live(address->sun_path))
                return chmod(folders[i], 0711) == 0 && chmod(address->sun_path, 0666) == 0;
        }
    return false;
}

/* A process of another user says all the right words. */
static int be_another_user(int rank, int size, void *user)
{
    (void)user;
    ls_cluster_options o = options_of("user", 0, size - 1);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct {
        ls_packet head;
        char about[4];
    } hello = { .head = { .magic = LS_PACKET_MAGIC,
                          .version = LS_PACKET_VERSION,
                          .kind = LS_PACKET_HELLO,
                          .from = 1,
                          .number = (uint32_t)size - 1,
                          .bytes = 4 },
                .about = { 'b', 'i', 't', 's' } };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    double end = ls_clock_now() + 10;
    do { /* other workers close the folder to others when they listen */
        WANT(ls_clock_now() < end && seteuid(0) == 0);
        WANT(let_others_call(&o, &address));
        WANT(seteuid(65534) == 0);
    } while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0);
    (void)!send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
    char answer;
    WANT(recv(fd, &answer, 1, 0) <= 0); /* not a word */
    return 0;
}

static int meet_with_another_user(int rank, int size, void *user)
{
    if (rank == size - 1)
        return be_another_user(rank, size, user);
    ls_mesh *mesh = NULL;
    ls_cluster_options o = options_of("user", rank, size - 1);
    if (rank > 0)
        usleep(300000); /* the other user comes first */
    WANT(ls_mesh_open(&o, 0, "bits", NULL, &mesh) == LS_OK);
    WANT(swap(mesh, 1, "after", NULL, 0) == LS_OK);
    ls_mesh_close(mesh);
    return 0;
}

static void other_users_are_not_let_in(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can become another user */
    run_workers(meet_with_another_user, 3, NULL, NULL);
}

/* ---- Contexts ---- */

static ls_status use_cluster(int rank, int size, void *user)
{
    ls_context *ctx = NULL;
    int64_t mine = 100 + rank, all[3] = { 0 }, given = rank == 2 ? 42 : 0;
    LS_TRY(ls_context_create(&(ls_context_options){ .threads = 1 }, &ctx));
    if (ls_cluster_rank(ctx) != rank || ls_cluster_size(ctx) != size || ls_is_chief(ctx) != (rank == 0))
        return ls_fail(LS_ERR_INTERNAL, "wrong rank");
    LS_TRY(ls_cluster_barrier(ctx, NULL));
    LS_TRY(ls_cluster_gather(ctx, "numbers", &mine, sizeof(mine), all));
    LS_TRY(ls_cluster_broadcast(ctx, NULL, 2, &given, sizeof(given)));
    if (all[0] != 100 || all[1] != 101 || all[2] != 102 || given != 42)
        return ls_fail(LS_ERR_INTERNAL, "wrong values");
    ls_cluster_options alone = { .size = 1 };
    if (ls_cluster_join(ctx, &alone) != LS_ERR_STATE)
        return ls_fail(LS_ERR_INTERNAL, "joined an open context");
    ls_context_close(ctx);
    LS_TRY(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx)); /* and once more */
    LS_TRY(ls_cluster_barrier(ctx, NULL));
    if (user && rank == 1)
        return ls_fail(LS_ERR_DATA, "as the test wants");
    ls_status status = user ? ls_cluster_barrier(ctx, "after") : LS_OK;
    ls_context_close(ctx);
    return status;
}

/* In a process of its own: cmocka's may have opened contexts. */
static int spawn_three(int rank, int size, void *user)
{
    (void)size;
    WANT(ls_spawn(3, use_cluster, NULL) == LS_OK);
    WANT(ls_spawn(3, use_cluster, user) == LS_ERR_DATA || ls_last_error()[0]);
    WANT(says("worker"));
    WANT(ls_spawn(0, use_cluster, NULL) == LS_ERR_INVALID && ls_spawn(2, NULL, NULL) == LS_ERR_INVALID);
    ls_context *ctx = NULL;
    WANT(ls_context_open(NULL, &ctx) == LS_OK);
    WANT(ls_cluster_size(ctx) == 1 && ls_is_chief(ctx) && ls_cluster_barrier(ctx, NULL) == LS_OK);
    ls_context_close(ctx);
    WANT(ls_spawn(2, use_cluster, NULL) == LS_ERR_STATE && says("1 context"));
    WANT(waitpid(-1, NULL, 0) < 0 && errno == ECHILD); /* none is left */
    return 0;
}

static void contexts_of_spawned_workers_meet(void **state)
{
    (void)state;
    run_workers(spawn_three, 1, "fail", NULL);
}

static ls_status fall(int rank, int size, void *user)
{
    (void)user;
    (void)size;
    if (rank == 1)
        raise(SIGKILL);
    for (;;)
        pause();
    return LS_OK;
}

static int spawn_falling(int rank, int size, void *user)
{
    (void)size;
    (void)user;
    double begin = ls_clock_now();
    WANT(ls_spawn(3, fall, NULL) == LS_ERR_PEER);
    WANT(says("worker 1") && says("signal 9"));
    WANT(ls_clock_now() - begin < 8);
    return 0;
}

static void a_spawned_worker_that_dies_ends_the_others(void **state)
{
    (void)state;
    run_workers(spawn_falling, 1, NULL, NULL);
}

/* ---- The environment ---- */

static void forget_environment(void)
{
    static const char *const names[] = { "LOCKSTEP_RANK",
                                         "LOCKSTEP_WORLD_SIZE",
                                         "LOCKSTEP_RENDEZVOUS",
                                         "LOCKSTEP_SERVERS",
                                         "LOCKSTEP_ELASTIC",
                                         "RANK",
                                         "WORLD_SIZE",
                                         "LOCAL_WORLD_SIZE",
                                         "MASTER_ADDR",
                                         "MASTER_PORT",
                                         "TF_CONFIG",
                                         "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "PMIX_NAMESPACE",
                                         "PMIX_RANK",
                                         "PMI_RANK",
                                         "PMI_SIZE",
                                         "PMI_JOBID",
                                         "MPI_LOCALNRANKS",
                                         "JOB_COMPLETION_INDEX",
                                         "SLURM_PROCID",
                                         "SLURM_NTASKS",
                                         "SLURM_JOB_ID",
                                         "SLURM_STEP_ID",
                                         "SLURM_NNODES",
                                         "SLURM_STEP_NUM_TASKS",
                                         "SLURM_STEP_NUM_NODES",
                                         "SLURM_STEP_NODELIST",
                                         "SLURM_JOB_NODELIST",
                                         "LOCKSTEP_KEY_FILE",
                                         "LOCKSTEP_LISTEN",
                                         "LOCKSTEP_TRANSPORT",
                                         "LOCKSTEP_JOIN_LIMIT",
                                         "LOCKSTEP_SILENCE_LIMIT" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        unsetenv(names[i]);
    setenv("LOCKSTEP_SILENCE_LIMIT", "20", 1); /* the machine may be crowded */
}

#define TF(worker, task) "{\"cluster\":{\"chief\":[\"localhost:1\"],\"worker\":" worker "},\"task\":" task "}"
#define TWO              "[\"127.0.0.1:2\",\"localhost:3\"]"
#define PS               ",\"ps\":[\"localhost:4\",\"localhost:5\"]"
#define KEY              "LOCKSTEP_KEY_FILE=/key "
#define SLURM            "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_JOB_ID=12 SLURM_STEP_ID=1 SLURM_NNODES=2 "

static const struct {
    const char *set; /* "A=1 B=2" */
    ls_status status;
    int rank, size;
    const char *says; /* part of the job's name, or of the message */
} environments[] = {
    { "", LS_OK, 0, 1, "" },
    { "LOCKSTEP_RANK=1 LOCKSTEP_WORLD_SIZE=4 LOCKSTEP_RENDEZVOUS=abc RANK=0 WORLD_SIZE=1", LS_OK, 1, 4, "abc" },
    { "LOCKSTEP_RANK=1", LS_ERR_INVALID, 0, 0, "LOCKSTEP_WORLD_SIZE is not" },
    { "LOCKSTEP_RANK=4 LOCKSTEP_WORLD_SIZE=4 LOCKSTEP_RENDEZVOUS=abc", LS_ERR_INVALID, 0, 0, "LOCKSTEP_RANK=4" },
    { "LOCKSTEP_RANK=x LOCKSTEP_WORLD_SIZE=4 LOCKSTEP_RENDEZVOUS=abc", LS_ERR_INVALID, 0, 0, "LOCKSTEP_RANK=x" },
    { "LOCKSTEP_RANK=0 LOCKSTEP_WORLD_SIZE=999999 LOCKSTEP_RENDEZVOUS=a", LS_ERR_INVALID, 0, 0, "LOCKSTEP_WORLD_SIZE" },
    { "LOCKSTEP_SILENCE_LIMIT=-1", LS_ERR_INVALID, 0, 0, "LOCKSTEP_SILENCE_LIMIT=-1" },
    { "RANK=2 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500", LS_OK, 2, 3, "127.0.0.1:29500" },
    { "RANK=2 WORLD_SIZE=3 MASTER_ADDR=localhost", LS_ERR_INVALID, 0, 0, "MASTER_PORT is not" },
    { "RANK=2 WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=99999", LS_ERR_INVALID, 0, 0, "MASTER_PORT=99999" },
    { "RANK=2 WORLD_SIZE=3 MASTER_ADDR=192.0.2.1 MASTER_PORT=1", LS_ERR_UNSUPPORTED, 0, 0,
      "192.0.2.1 is not this machine" },
    { "RANK=2 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=1", LS_ERR_UNSUPPORTED, 0, 0,
      "LOCAL_WORLD_SIZE=2" },
    { "TF_CONFIG=" TF(TWO, "{\"type\":\"worker\",\"index\":1}"), LS_OK, 2, 3, "TF_CONFIG/" },
    { "TF_CONFIG=" TF(TWO, "{\"type\":\"chief\",\"index\":0}"), LS_OK, 0, 3, "TF_CONFIG/" },
    { "TF_CONFIG=" TF(TWO, "{\"type\":\"worker\",\"index\":2}"), LS_ERR_INVALID, 0, 0, "TF_CONFIG.task.index" },
    { "TF_CONFIG=" TF(TWO, "{\"type\":\"worker\"}"), LS_ERR_DATA, 0, 0, "index" },
    { "TF_CONFIG=" TF(TWO, "{\"type\":\"evaluator\",\"index\":0}"), LS_OK, 0, 1, "TF_CONFIG/" },
    { "TF_CONFIG=" TF("[7]", "{\"type\":\"worker\",\"index\":0}"), LS_ERR_DATA, 0, 0, "TF_CONFIG.cluster.worker[0]" },
    { "TF_CONFIG=" TF("[\"localhost\"]", "{\"type\":\"worker\",\"index\":0}"), LS_ERR_INVALID, 0, 0,
      "cluster.worker[0]" },
    { "TF_CONFIG=" TF("[\"192.0.2.1:3\"]", "{\"type\":\"worker\",\"index\":0}"), LS_ERR_UNSUPPORTED, 0, 0,
      "192.0.2.1" },
    { "TF_CONFIG={\"cluster\":{\"chief\":[\"localhost:1\",\"localhost:2\"]},\"task\":{\"type\":\"chief\",\"index\":0}}",
      LS_ERR_INVALID, 0, 0, "2 tasks of type \"chief\": a cluster has one" },
    { "TF_CONFIG={\"clutser\":{}}", LS_ERR_DATA, 0, 0, "clutser" },
    { "TF_CONFIG=nonsense", LS_ERR_DATA, 0, 0, "TF_CONFIG" },
    { "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=77", LS_OK, 1, 2, "77" },
    { "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", LS_ERR_INVALID, 0, 0, "PMIX_NAMESPACE is not" },
    { "LOCKSTEP_TRANSPORT=tcp OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
      "PMIX_NAMESPACE=7",
      LS_ERR_UNSUPPORTED, 0, 0, "OMPI_COMM_WORLD_LOCAL_SIZE=1" },
    { "LOCKSTEP_TRANSPORT=mpi OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
      "PMIX_NAMESPACE=7",
      LS_OK, 1, 2, "7" },
    { "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_JOB_ID=12 SLURM_STEP_ID=1", LS_OK, 3, 4, "srun/12/1" },
    { "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=12", LS_ERR_INVALID, 0, 0, "start the workers with srun" },
    { "PMI_RANK=1 PMI_SIZE=3 PMI_JOBID=7 MPI_LOCALNRANKS=3", LS_OK, 1, 3, "pmi/7/0" },
    { "PMI_RANK=1 PMI_SIZE=3 MPI_LOCALNRANKS=2", LS_ERR_UNSUPPORTED, 0, 0, "MPI_LOCALNRANKS=2" },
    { "PMI_RANK=3 PMI_SIZE=3", LS_ERR_INVALID, 0, 0, "PMI_RANK=3" },
    { "JOB_COMPLETION_INDEX=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=7", LS_OK, 1, 2, "torchrun/localhost:7" },
    { "JOB_COMPLETION_INDEX=1", LS_OK, 0, 1, "" },
    { "JOB_COMPLETION_INDEX=2 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=7", LS_ERR_INVALID, 0, 0,
      "JOB_COMPLETION_INDEX=2" },
    { "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_NNODES=2", LS_ERR_UNSUPPORTED, 0, 0,
      "SLURM_NNODES=2" },
    { "PMIX_RANK=0", LS_ERR_UNSUPPORTED, 0, 0, "PMIX_RANK" },
};

/* Parameter servers: how many of the workers. */
static const struct {
    const char *set;
    ls_status status;
    int rank, size;
    const char *says;
    int servers;
} with_servers[] = {
    { "TF_CONFIG=" TF(TWO PS, "{\"type\":\"ps\",\"index\":1}"), LS_OK, 4, 5, "TF_CONFIG/", 2 },
    { "TF_CONFIG=" TF(TWO PS ",\"evaluator\":[]", "{\"type\":\"worker\",\"index\":1}"), LS_OK, 2, 5, "TF_CONFIG/", 2 },
    { "TF_CONFIG=" TF(TWO PS, "{\"type\":\"ps\",\"index\":2}"), LS_ERR_INVALID, 0, 0, "TF_CONFIG.task.index", 0 },
    { "TF_CONFIG={\"cluster\":{\"ps\":[\"localhost:4\"]},\"task\":{\"type\":\"ps\",\"index\":0}}", LS_ERR_INVALID, 0, 0,
      "neither a chief nor a worker", 0 },
    { "RANK=2 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 LOCKSTEP_SERVERS=1", LS_OK, 2, 3, "127", 1 },
    { "LOCKSTEP_RANK=1 LOCKSTEP_WORLD_SIZE=4 LOCKSTEP_RENDEZVOUS=a LOCKSTEP_SERVERS=3", LS_OK, 1, 4, "a", 3 },
    { "LOCKSTEP_RANK=1 LOCKSTEP_WORLD_SIZE=4 LOCKSTEP_RENDEZVOUS=a LOCKSTEP_SERVERS=4", LS_ERR_INVALID, 0, 0,
      "LOCKSTEP_SERVERS=4", 0 },
    { "LOCKSTEP_RANK=6 LOCKSTEP_WORLD_SIZE=4 LOCKSTEP_RENDEZVOUS=a LOCKSTEP_SERVERS=1 LOCKSTEP_ELASTIC=1:6", LS_OK, 6,
      7, "a", 1 },
    { "LOCKSTEP_RANK=0 LOCKSTEP_WORLD_SIZE=4 LOCKSTEP_RENDEZVOUS=a LOCKSTEP_SERVERS=1 LOCKSTEP_ELASTIC=4:6",
      LS_ERR_INVALID, 0, 0, "3 without the servers", 0 },
};

/* Where workers meet that are on several machines. */
static const struct {
    const char *set;
    ls_status status;
    int rank, size;
    const char *says;
    const char *meets; /* "rendezvous listen"; NULL: over Unix sockets */
} places[] = {
    { "LOCKSTEP_RANK=1 LOCKSTEP_WORLD_SIZE=2 LOCKSTEP_RENDEZVOUS=tcp://a:1 LOCKSTEP_LISTEN=b:2", LS_OK, 1, 2,
      "tcp://a:1", "tcp://a:1 b:2" },
    { "LOCKSTEP_RANK=1 LOCKSTEP_WORLD_SIZE=2 LOCKSTEP_RENDEZVOUS=file:///x", LS_OK, 1, 2, "file:///x", "file:///x " },
    { "LOCKSTEP_RENDEZVOUS=tcp://a:1", LS_OK, 0, 1, "", "tcp://a:1 " },
    { "LOCKSTEP_RENDEZVOUS=a-job", LS_ERR_INVALID, 0, 0, "LOCKSTEP_RANK is not", NULL },
    { KEY "RANK=2 WORLD_SIZE=3 MASTER_ADDR=192.0.2.1 MASTER_PORT=29500", LS_OK, 2, 3, "torchrun",
      "tcp://192.0.2.1:29501 " },
    { KEY "RANK=2 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=2001:db8::1 MASTER_PORT=5", LS_OK, 2, 4, "torchrun",
      "tcp://[2001:db8::1]:6 " },
    { KEY "RANK=2 WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=192.0.2.1 MASTER_PORT=5", LS_OK, 2, 4, "torchrun", NULL },
    { KEY "RANK=2 WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=29500", LS_OK, 2, 3, "torchrun", NULL },
    { KEY "LOCKSTEP_TRANSPORT=tcp RANK=2 WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=29500", LS_OK, 2, 3, "torchrun",
      "tcp://localhost:29501 " },
    { KEY "LOCKSTEP_TRANSPORT=unix RANK=2 WORLD_SIZE=3 MASTER_ADDR=192.0.2.1 MASTER_PORT=29500", LS_ERR_INVALID, 0, 0,
      "LOCKSTEP_TRANSPORT=unix cannot reach", NULL },
    { KEY "LOCKSTEP_RENDEZVOUS=tcp://c:9 RANK=2 WORLD_SIZE=3 MASTER_ADDR=192.0.2.1 MASTER_PORT=29500", LS_OK, 2, 3,
      "torchrun", "tcp://c:9 " },
    { KEY "TF_CONFIG=" TF("[\"192.0.2.1:3\",\"192.0.2.2:4\"]", "{\"type\":\"worker\",\"index\":1}"), LS_OK, 2, 3,
      "TF_CONFIG/", "tcp://localhost:1 192.0.2.2:4" },
    { "TF_CONFIG=" TF("[\"192.0.2.1:3\"]", "{\"type\":\"worker\",\"index\":0}"), LS_ERR_UNSUPPORTED, 0, 0,
      "lockstep key FILE", NULL },
    { KEY "LOCKSTEP_TRANSPORT=tcp OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
          "PMIX_NAMESPACE=7",
      LS_ERR_INVALID, 0, 0, "LOCKSTEP_RENDEZVOUS=tcp://host:port", NULL },
    { KEY "LOCKSTEP_RENDEZVOUS=file:///x OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
          "PMIX_NAMESPACE=7",
      LS_OK, 1, 2, "mpirun/7", "file:///x " },
    { KEY SLURM "SLURM_STEP_NODELIST=gpu[007-9,12],other", LS_OK, 3, 4, "srun/12/1", "tcp://gpu007:17744 " },
    { KEY SLURM "SLURM_JOB_NODELIST=r[1-2]n[3,4]-ib", LS_OK, 3, 4, "srun/12/1", "tcp://r1n3-ib:17744 " },
    { KEY SLURM "SLURM_JOB_NODELIST=alone", LS_OK, 3, 4, "srun/12/1", "tcp://alone:17744 " },
    { KEY SLURM "SLURM_JOB_NODELIST=cut[", LS_OK, 3, 4, "srun/12/1", "tcp://cut:17744 " },
    { KEY SLURM, LS_ERR_INVALID, 0, 0, "LOCKSTEP_RENDEZVOUS=tcp://host:port", NULL },
};

static void set_environment(const char *variables)
{
    char text[600], *rest = text;
    forget_environment();
    snprintf(text, sizeof(text), "%s", variables);
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        if (strchr(word, '=')) {
            char *value = strchr(word, '=');
            *value = '\0';
            setenv(word, value + 1, 1);
        }
}

static void check_environment(const char *set, ls_status wanted, int rank, int size, const char *says,
                              const char *meets, int servers)
{
    ls_cluster_options found = { .rank = -7 };
    char place[600];
    set_environment(set);
    ls_status status = ls_cluster_environment(&found);
    const char *told = status == LS_OK ? found.job : ls_last_error();
    snprintf(place, sizeof(place), "%s %s", found.rendezvous, found.listen);
    bool right =
        status == wanted && strcmp(place, meets ? meets : " ") == 0 && strstr(told, says) &&
        (status == LS_OK ? found.rank == rank && found.size == size && found.servers == servers : found.rank == -7);
    if (!right)
        fail_msg("%s: %s, worker %d of %d, %d servers, meets at \"%s\", %s", set, ls_status_name(status), found.rank,
                 found.size, found.servers, place, told);
}

static void environments_are_read_and_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(environments) / sizeof(*environments); i++)
        check_environment(environments[i].set, environments[i].status, environments[i].rank, environments[i].size,
                          environments[i].says, NULL, 0);
    for (size_t i = 0; i < sizeof(with_servers) / sizeof(*with_servers); i++)
        check_environment(with_servers[i].set, with_servers[i].status, with_servers[i].rank, with_servers[i].size,
                          with_servers[i].says, NULL, with_servers[i].servers);
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        check_environment(places[i].set, places[i].status, places[i].rank, places[i].size, places[i].says,
                          places[i].meets, 0);
    forget_environment();
}

/* Variables of others are not taken without being asked for. */
static void only_our_own_variables_count_by_themselves(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "29500", 1);
    assert_int_equal(ls_context_create(NULL, &ctx), LS_OK);
    assert_int_equal(ls_cluster_size(ctx), 1);
    assert_int_equal(ls_cluster_join(ctx, NULL), LS_OK);
    assert_int_equal(ls_cluster_size(ctx), 2);
    assert_int_equal(ls_cluster_rank(ctx), 1);
    assert_int_equal(ls_cluster_join(ctx, &(ls_cluster_options){ .size = 1 }), LS_OK);
    assert_int_equal(ls_cluster_size(ctx), 1);
    assert_int_equal(ls_cluster_join(ctx, &(ls_cluster_options){ .rank = 2, .size = 2, .job = "a" }), LS_ERR_INVALID);
    assert_int_equal(ls_cluster_join(ctx, &(ls_cluster_options){ .size = 2 }), LS_ERR_INVALID);
    ls_context_close(ctx);
    setenv("LOCKSTEP_RANK", "5", 1);
    ctx = NULL;
    assert_int_equal(ls_context_create(NULL, &ctx), LS_ERR_INVALID);
    assert_null(ctx);
    forget_environment();
}

#define CASE(test, name) cmocka_unit_test_prestate_setup_teardown(test, use_transport, NULL, name)
#define EACH(name)                                                                                                     \
    CASE(pieces_of_all_sizes_pass, name), CASE(large_pieces_pass_each_other, name),                                    \
        CASE(what_is_posted_goes_beside_exchanges, name), CASE(many_pieces_go_in_one_exchange, name),                  \
        CASE(the_others_continue_when_one_is_killed, name), CASE(the_others_continue_when_one_leaves, name),           \
        CASE(the_others_continue_without_a_stopped_one, name), CASE(other_calls_and_wrong_packets_are_errors, name),   \
        CASE(one_that_was_held_up_may_be_silent_for_longer, name),                                                     \
        CASE(other_calls_and_wrong_packets_are_errors, name),                                                          \
        CASE(both_sides_report_differences_in_the_handshake, name),                                                    \
        CASE(unknown_peers_are_dropped_and_the_others_meet, name), CASE(other_users_are_not_let_in, name)

int main(void)
{
    forget_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_workers_are_named_while_others_wait),
        cmocka_unit_test(contexts_of_spawned_workers_meet),
        cmocka_unit_test(a_spawned_worker_that_dies_ends_the_others),
        EACH("shm"),
        EACH("unix"),
        cmocka_unit_test(environments_are_read_and_refused),
        cmocka_unit_test(only_our_own_variables_count_by_themselves),
    };
    const struct CMUnitTest over_ucx[] = { EACH("ucx") };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pid_t pid = fork(); /* a process that has loaded UCX cannot fork workers of its own */
    if (pid == 0) {
        const char *why;
        _exit(ls_ucx_is_there(&why) ? 0 : 1);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    return failed + (status == 0 ? cmocka_run_group_tests(over_ucx, NULL, NULL) : 0);
}
