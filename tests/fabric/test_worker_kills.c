/* Workers are real processes, and one or two of them are killed (SIGKILL) or stopped (SIGSTOP) at a
 * named point of a step. The others go on and end with the bits of one undisturbed process; no step
 * is left out or made twice, and the log says the same.
 *
 * A worker that is to be struck has its own copy of the transport's table, and of two functions of
 * its peers, in which it waits for the point: nothing of this is in the library. `make test` runs a
 * sample, LS_WORKER_KILLS=all (`make soak-workers`) every point of every rank, at every exchange of
 * resnet18. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fileops.h"
#include "device/context.h"
#include "fabric/mesh/mesh.h"
#include "lockstep.h"
#include "nn/model.h"
#include "samples.h"
#include "sanitized.h"
#include "train/job/job.h"

#define MOST     5 /* workers */
#define STEPS    6 /* in two epochs */
#define BATCH    6
#define SAMPLES  (BATCH * STEPS / 2)
#define CLASSES  4
#define LIMIT    (SANITIZED ? 600 : 240) /* seconds that a job may take */
#define SILENCE  2.0                     /* seconds until a stopped worker is given up */
#define PATIENCE 60.0                    /* the same in trials without a stop: a slow machine must not fail them */

/* ---- What happens to a worker ---- */

typedef enum point {
    BEFORE_SEND,   /* nothing of the exchange has gone out */
    HALF_SENT,     /* half of what goes to the first of the others has */
    BETWEEN_SENDS, /* one of the others has all of its part, the next one has not */
    AFTER_SEND,    /* all have theirs */
    BEFORE_READY,  /* it has everything, and has not confirmed it */
    AFTER_READY,   /* it has said so (the coordinator: all have, and it has not said COMMIT) */
    HALF_COMMIT,   /* the coordinator has said COMMIT to one of the others */
    AFTER_COMMIT,  /* it has heard or said COMMIT, and has not made the update */
    IN_CHECKPOINT, /* the second file of a checkpoint is being synced (only the chief writes) */
    IN_JOINING,    /* a new member gets the state: see joining_names; `exchange` is the point, from 1 */
    POINTS
} point;

static const char *const names[] = { "before send", "half sent",   "between sends", "after send",      "before READY",
                                     "after READY", "half COMMIT", "after COMMIT",  "in a checkpoint", "in joining" };
static const char *const joining_names[] = { "before its size is known", "before it is sent", "when half of it is sent",
                                             "before READY", "after COMMIT" };
enum { JOIN_SIZE = 1, JOIN_STATE, JOIN_HALF, JOIN_READY, JOIN_COMMITTED, JOIN_POINTS = JOIN_COMMITTED };

static bool is_of_exchange(point p)
{
    return p <= AFTER_SEND;
}

typedef struct strike {
    point point;
    int rank, exchange; /* number of the exchange in its step, from 1 */
    int signal;         /* SIGKILL or SIGSTOP; 0: none */
} strike;

typedef enum net { SMALL, RESNET18 } net;
static const char *const net_names[] = { "a small net with batch norm", "resnet18" };

typedef struct trial {
    net net;
    int size;
    strike strikes[2];
    bool new_member;       /* one more worker comes while the job runs */
    int servers;           /* number of servers: the last of the initial ranks */
    const char *transport; /* NULL: as workers of one machine choose, shared memory */
} trial;

#define STRUCK_STEP 3 /* counted from 1 */

/* ---- What is known of it ---- */

typedef struct outcome {
    ls_status status;
    char message[300], hash[65];
    int64_t steps;
    bool disordered;
    double ends[STEPS + 1]; /* when steps ended */
    double struck;          /* 0: this worker was not */
    int exchanges;          /* number of exchanges in a step */
} outcome;

static outcome *outcomes; /* by rank; shared with the workers */
static char root[64];

/* ---- In a worker ---- */

static struct {
    const trial *trial;
    const strike *_Atomic strike; /* NULL: none is to come */
    outcome *out;
    ls_mesh *mesh;
    ls_transport_table table;
    const ls_transport_table *given;
    ls_file_ops files;
    ls_status (*exchange)(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);
    ls_status (*post)(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);
    ls_status (*commit)(ls_peers *peers, const uint64_t hash[2], const char *what);
    atomic_int step;     /* read by the thread that saves, too */
    bool joining;        /* in the exchange of a new member's state */
    atomic_int at, sent; /* at: which exchange of the step, waited for or posted; sent: packets of it, or COMMITs */
    int synced;
} me;

static void suffer(void)
{
    const strike *now = me.strike;
    int number = now->signal;
    me.strike = NULL;
    me.out->struck = ls_clock_now();
    kill(getpid(), number);
    usleep(200000); /* another thread may be the first to hear of it */
}

static bool is_at(point p)
{
    const strike *next = me.strike;
    if (!next || next->point != p)
        return false;
    if (p == IN_CHECKPOINT) /* which is written while steps go on */
        return me.step >= STRUCK_STEP;
    return me.step == STRUCK_STEP && (!is_of_exchange(p) || me.at == next->exchange);
}

static bool joins_at(int where)
{
    const strike *next = me.strike;
    return next && next->point == IN_JOINING && next->exchange == where;
}

static const ls_link *link_of(const ls_connection *line)
{
    for (int r = 0; r < me.mesh->peers.size; r++)
        if (me.mesh->links[r].connection == line)
            return &me.mesh->links[r];
    return NULL;
}

/* The first half of what is to go, and then the end. */
static ls_status send_half(ls_connection *line, const struct iovec *parts, int count, size_t *moved)
{
    struct iovec some[64];
    memcpy(some, parts, (size_t)count * sizeof(*some));
    some[count - 1].iov_len = (some[count - 1].iov_len + 1) / 2;
    ls_status status = me.given->write(line, some, count, moved);
    suffer();
    return status;
}

/* Where another one is lost at the same time, the coordinator announces what is committed in place
 * of COMMIT. */
static bool commits(ls_packet_kind kind)
{
    return kind == LS_PACKET_COMMIT || kind == LS_PACKET_ANNOUNCE;
}

static void before_packet(ls_packet_kind kind)
{
    if ((kind == LS_PACKET_PIECES && me.sent == 0 && is_at(BEFORE_SEND)) ||
        (commits(kind) && me.sent == 0 && is_at(AFTER_READY)))
        suffer();
}

static void after_packet(ls_packet_kind kind)
{
    bool pieces = kind == LS_PACKET_PIECES;
    me.sent += pieces || commits(kind);
    if ((pieces && me.sent == 1 && is_at(BETWEEN_SENDS)) ||
        (pieces && me.sent == me.mesh->peers.count - 1 && is_at(AFTER_SEND)) ||
        (commits(kind) && me.sent == 1 && is_at(HALF_COMMIT)) || (kind == LS_PACKET_READY && is_at(AFTER_READY)))
        suffer();
}

static ls_status write_line(ls_connection *line, const struct iovec *parts, int count, size_t *moved)
{
    const ls_link *link = link_of(line);
    if (!link || link->out_count == 0)
        return me.given->write(line, parts, count, moved);
    ls_packet_kind kind = (ls_packet_kind)link->out[0].kind;
    uint64_t left = sizeof(ls_packet) - link->out_head + link->out_left;
    if (link->out_head == 0)
        before_packet(kind);
    if (link->out_head == 0 && kind == LS_PACKET_PIECES &&
        (is_at(HALF_SENT) || (me.joining && link->out_left > 0 && joins_at(JOIN_HALF))))
        return send_half(line, parts, count, moved);
    LS_TRY(me.given->write(line, parts, count, moved));
    if (*moved == left)
        after_packet(kind);
    return LS_OK;
}

static void look_at_joining(const char *what)
{
    me.joining = strcmp(what, "the state") == 0;
    if ((me.joining && joins_at(JOIN_STATE)) || (strcmp(what, "the size of the state") == 0 && joins_at(JOIN_SIZE)))
        suffer();
}

static ls_status exchange(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    me.at++;
    me.sent = 0;
    look_at_joining(what);
    return me.exchange(peers, tag, what, pieces, count);
}

static ls_status post(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count)
{
    me.at++;
    me.sent = 0;
    return me.post(peers, tag, what, pieces, count);
}

static ls_status commit(ls_peers *peers, const uint64_t hash[2], const char *what)
{
    bool of_new_member = strcmp(what, "the state for a new member") == 0;
    me.sent = 0;
    if (of_new_member && joins_at(JOIN_READY))
        suffer();
    if (me.step == STRUCK_STEP && me.at > 0 && !me.trial->new_member)
        me.out->exchanges = me.at;
    if (is_at(BEFORE_READY))
        suffer();
    ls_status status = me.commit(peers, hash, what);
    if (status == LS_OK && (is_at(AFTER_COMMIT) || (of_new_member && joins_at(JOIN_COMMITTED))))
        suffer();
    me.at = 0;
    return status;
}

static int sync_file(void *user, int fd)
{
    if (is_at(IN_CHECKPOINT) && ++me.synced == 2)
        suffer();
    return ls_system_file_ops.fsync(user, fd);
}

static void watch(ls_context *ctx, ls_model *model)
{
    if (!ctx->peers)
        return;
    me.mesh = (ls_mesh *)ctx->peers;
    me.given = me.mesh->table;
    me.table = *me.given;
    me.table.write = write_line;
    me.mesh->table = &me.table;
    me.exchange = ctx->peers->exchange;
    me.post = ctx->peers->post;
    me.commit = ctx->peers->commit;
    ctx->peers->exchange = exchange;
    ctx->peers->post = post;
    ctx->peers->commit = commit;
    me.files = ls_system_file_ops;
    me.files.fsync = sync_file;
    model->job->file_ops = &me.files;
}

static ls_status begin_step(void *user, ls_model *model, const ls_logs *logs)
{
    (void)user, (void)model, (void)logs;
    me.step++;
    me.at = 0;
    return LS_OK;
}

/* Members check for joining workers when they commit, and all accept one at the same commit.
 */
static ls_status wait_for_new_member(ls_context *ctx)
{
    for (int i = 0; i < 20000 && me.mesh->peers.generation == 1 && !(me.mesh->peers.granted & LS_REQUEST_WELCOME);
         i++) {
        usleep(1000);
        LS_TRY(ls_cluster_barrier(ctx, "until somebody comes"));
    }
    return LS_OK;
}

static ls_status end_step(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    outcome *out = user;
    (void)stop;
    if (out->steps == 0 && me.trial->new_member && out == &outcomes[me.trial->size])
        out->steps = logs->step - 1; /* it came in the middle */
    out->disordered |= logs->step != ++out->steps;
    if (out->steps <= STEPS)
        out->ends[out->steps] = ls_clock_now();
    return me.trial->new_member && logs->step == 2 ? wait_for_new_member(ls_model_graph(model)->context) : LS_OK;
}

static ls_status make_model(ls_context *ctx, net kind, ls_model **model)
{
    ls_status status =
        kind == RESNET18
            ? ls_model_builtin(ctx, "resnet18", model, .input = LS_SHAPE(32, 32, 3), .classes = CLASSES)
            : ls_sequential(ctx, "small", model, ls_input(8, 8, 3), ls_conv2d(8, 3), ls_batch_normalization(),
                            ls_relu(), ls_flatten(), ls_dropout(0.25), ls_dense(64, .activation = LS_RELU),
                            ls_dense(CLASSES, .activation = LS_SOFTMAX));
    if (status == LS_OK)
        status = ls_compile(*model, .optimizer = ls_sgd(.momentum = 0.9), .loss = ls_sparse_categorical_crossentropy());
    return status;
}

static ls_status train(ls_model *model, const trial *t, outcome *out)
{
    int64_t side = t->net == RESNET18 ? 32 : 8;
    static uint8_t pixels[SAMPLES * 32 * 32 * 3];
    static int32_t labels[SAMPLES];
    char log[96], folder[96];
    samples_fill_bytes(pixels, labels, SAMPLES, 32 * 32 * 3, CLASSES);
    snprintf(log, sizeof(log), "%s/log", root);
    snprintf(folder, sizeof(folder), "%s/checkpoints", root);
    ls_callback counter = { .user = out, .on_batch_begin = begin_step, .on_batch_end = end_step };
    ls_dataset *set = ls_from_tensor_slices(ls_array_of(LS_U8, LS_SHAPE(SAMPLES, side, side, 3), pixels),
                                            ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels), .keep = LS_KEEP_BORROWED);
    ls_status status = ls_fit(model, set, .epochs = 2, .batch_size = BATCH, .lanes = 6, .verbose = LS_VERBOSE_SILENT,
                              .callbacks = ls_callbacks(counter), .log = log, .log_hash = true,
                              .checkpoint = t->net == SMALL ? folder : NULL, .save_every = "1");
    if (status == LS_OK)
        status = ls_model_state_sha256(model, out->hash);
    ls_dataset_destroy(set);
    return status;
}

static void tell_story(void *user, ls_log_level level, const char *line)
{
    (void)user, (void)level;
    if (getenv("LS_TEST_STORY"))
        fprintf(stderr, "    %s\n", line);
}

static bool is_tcp(const trial *t)
{
    return t->transport && strcmp(t->transport, "tcp") == 0;
}

static void be_worker(const trial *t, int rank)
{
    ls_context *ctx = NULL;
    ls_model *model = NULL;
    outcome *out = me.out = &outcomes[rank];
    me.trial = t;
    bool stops = false;
    for (int i = 0; i < 2; i++) {
        stops |= t->strikes[i].signal == SIGSTOP;
        if (t->strikes[i].signal && t->strikes[i].rank == rank)
            me.strike = &t->strikes[i];
    }
    ls_cluster_options cluster = { .rank = rank,
                                   .size = t->size + t->new_member,
                                   .begin = t->size,
                                   .servers = t->servers,
                                   .join_limit = LIMIT,
                                   .silence_limit = stops ? SILENCE : PATIENCE };
    snprintf(cluster.job, sizeof(cluster.job), "kills-%d", (int)getppid());
    snprintf(cluster.transport, sizeof(cluster.transport), "%s", t->transport ? t->transport : "auto");
    if (is_tcp(t)) {
        snprintf(cluster.rendezvous, sizeof(cluster.rendezvous), "file://%s/meeting", root);
        snprintf(cluster.key_file, sizeof(cluster.key_file), "%s/key", root);
    }
    ls_context_options options = { .threads = 1, .log_sink = tell_story };
    ls_status status = ls_context_create(&options, &ctx);
    if (status == LS_OK)
        status = ls_cluster_join(ctx, &cluster);
    if (status == LS_OK)
        status = make_model(ctx, t->net, &model);
    if (status == LS_OK && ctx->cluster) /* with servers they would not before the strategy is known */
        status = ls_library_hooks.meet_cluster(ctx);
    if (status == LS_OK) {
        watch(ctx, model);
        status = train(model, t, out);
    }
    if (status != LS_OK)
        snprintf(out->message, sizeof(out->message), "%s: %s", ls_status_name(status), ls_last_error());
    out->status = status;
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- In the test ---- */

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

static void make_root(bool tcp)
{
    char path[96];
    snprintf(root, sizeof(root), "%s/lockstep-kills-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof(path), "%s/meeting", root);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/key", root);
    if (tcp)
        assert_int_equal(ls_cluster_make_key(path), LS_OK);
}

static void wait_for(pid_t *pids, int size, const char *what)
{
    double begin = ls_clock_now();
    for (int left = size; left > 0;) {
        int stopped = 0;
        left = 0;
        for (int r = 0; r < size; r++) {
            if (pids[r] > 0 && waitpid(pids[r], NULL, WNOHANG) == pids[r])
                pids[r] = 0;
            left += pids[r] > 0;
            stopped += pids[r] > 0 && outcomes[r].struck > 0;
        }
        for (int r = 0; left == stopped && r < size; r++) /* the others have ended: it may wake */
            if (pids[r] > 0)
                kill(pids[r], SIGCONT);
        if (ls_clock_now() - begin > LIMIT) {
            for (int r = 0; r < size; r++)
                if (pids[r] > 0)
                    kill(pids[r], SIGKILL);
            for (int r = 0; r < size; r++)
                if (pids[r] > 0)
                    waitpid(pids[r], NULL, 0);
            fail_msg("%s: %d workers were there after %d s", what, left, LIMIT);
        }
        usleep(5000);
    }
}

static void run_workers(const trial *t, const char *what)
{
    pid_t pids[MOST];
    memset(outcomes, 0, MOST * sizeof(*outcomes));
    make_root(is_tcp(t));
    int size = t->size + t->new_member;
    for (int r = 0; r < size; r++) {
        outcomes[r].status = LS_ERR_PEER;
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            alarm(LIMIT);
            be_worker(t, r);
            _exit(0);
        }
    }
    wait_for(pids, size, what);
}

/* The hash of each step that is in the log, one after the other: each step once, in order. */
static void read_log(char (*hashes)[65], const char *what)
{
    char path[96], line[4096];
    int64_t steps = 0;
    snprintf(path, sizeof(path), "%s/log", root);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        const char *step = strstr(line, "\"step\":"), *hash = strstr(line, "\"hash\":\"");
        if (!strstr(line, "\"event\":\"step\""))
            continue;
        if (!step || !hash || strtoll(step + 7, NULL, 10) != ++steps || steps > STEPS)
            fail_msg("%s: behind step %lld the log has: %s", what, (long long)steps - 1, line);
        snprintf(hashes[steps - 1], sizeof(hashes[0]), "%.64s", hash + 8);
    }
    fclose(file);
    if (steps != STEPS)
        fail_msg("%s: the log has %lld steps of %d", what, (long long)steps, STEPS);
}

static struct {
    bool known;
    char hash[65], log[STEPS][65];
    int exchanges;
    double step; /* seconds */
} undisturbed[2];

static double slowest_kill, slowest_stop; /* until the next step was done */

static void remove_root(void)
{
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* One process, and then three undisturbed ones: how many exchanges a step has. */
static void learn(net kind)
{
    if (undisturbed[kind].known)
        return;
    for (int size = 1; size <= 3; size += 2) {
        trial t = { .net = kind, .size = size };
        run_workers(&t, "undisturbed");
        for (int r = 0; r < size; r++)
            if (outcomes[r].status != LS_OK)
                fail_msg("undisturbed, worker %d of %d: %s", r, size, outcomes[r].message);
        if (size == 1) {
            memcpy(undisturbed[kind].hash, outcomes[0].hash, 65);
            read_log(undisturbed[kind].log, "undisturbed");
        }
        remove_root();
    }
    assert_string_equal(outcomes[0].hash, undisturbed[kind].hash);
    undisturbed[kind].exchanges = outcomes[0].exchanges;
    undisturbed[kind].step = (outcomes[0].ends[STEPS] - outcomes[0].ends[1]) / (STEPS - 1);
    undisturbed[kind].known = true;
    assert_true(undisturbed[kind].exchanges > 0);
    print_message("%s: a step of 3 workers has %d exchanges\n", net_names[kind], undisturbed[kind].exchanges);
}

/* From the strike until the others have made the next step. */
static double time_lost(const outcome *out, double struck)
{
    for (int s = 1; s <= STEPS; s++)
        if (out->ends[s] > struck)
            return out->ends[s] - struck;
    return 0;
}

static void check_survivor(const trial *t, int rank, double struck, double *lost, const char *what)
{
    const outcome *out = &outcomes[rank];
    if (out->status != LS_OK)
        fail_msg("%s: worker %d: %s", what, rank, out->message);
    if (out->disordered || out->steps != STEPS)
        fail_msg("%s: worker %d made %lld steps of %d%s", what, rank, (long long)out->steps, STEPS,
                 out->disordered ? ", in disorder" : "");
    if (strcmp(out->hash, undisturbed[t->net].hash) != 0)
        fail_msg("%s: worker %d has %s, undisturbed %s", what, rank, out->hash, undisturbed[t->net].hash);
    double time = time_lost(out, struck);
    *lost = time > *lost ? time : *lost;
}

static void run_trial(const trial *t)
{
    char what[160], log[STEPS][65];
    double struck = 0, lost = 0;
    int strikes = t->strikes[1].signal ? 2 : 1;
    bool stops = t->strikes[0].signal == SIGSTOP;
    learn(t->net);
    snprintf(what, sizeof(what), "%s, worker %d%s of %d, %d servers, over %s, exchange %d of %d: %s%s",
             net_names[t->net], t->strikes[0].rank, strikes == 2 ? " and another" : "", t->size, t->servers,
             t->transport ? t->transport : "shm", t->strikes[0].exchange, undisturbed[t->net].exchanges,
             stops ? "stopped " : "",
             t->strikes[0].point == IN_JOINING ? joining_names[t->strikes[0].exchange - 1]
                                               : names[t->strikes[0].point]);
    run_workers(t, what);
    for (int i = 0; i < strikes; i++) {
        const outcome *out = &outcomes[t->strikes[i].rank];
        if (!(out->struck > 0))
            fail_msg("%s: worker %d was never there", what, t->strikes[i].rank);
        if (out->status == LS_OK)
            fail_msg("%s: worker %d was struck, and ended well", what, t->strikes[i].rank);
        struck = out->struck > struck ? out->struck : struck;
    }
    for (int r = 0; r < t->size + t->new_member; r++)
        if (r != t->strikes[0].rank && (strikes < 2 || r != t->strikes[1].rank))
            check_survivor(t, r, struck, &lost, what);
    read_log(log, what);
    for (int s = 0; s < STEPS; s++)
        if (strcmp(log[s], undisturbed[t->net].log[s]) != 0)
            fail_msg("%s: the log has %s for step %d, undisturbed %s", what, log[s], s + 1, undisturbed[t->net].log[s]);
    remove_root();
    double *slowest = stops ? &slowest_stop : &slowest_kill;
    *slowest = lost > *slowest ? lost : *slowest;
    print_message("%s: the next step was done %.3f s later\n", what, lost);
}

/* ---- Trials ---- */

static bool all;

/* Whether there is such a point for a rank. */
static bool has_point(point p, int rank)
{
    return p != IN_JOINING && (rank == 0 || (p != HALF_COMMIT && p != IN_CHECKPOINT));
}

static void the_others_continue_without_a_killed_worker(void **state)
{
    static const char *const transports[] = { NULL, "unix", "tcp" };
    (void)state;
    learn(SMALL);
    for (int rank = 0; rank < 3; rank++)
        for (point p = 0; p < POINTS; p++) {
            int last = all && is_of_exchange(p) ? undisturbed[SMALL].exchanges : 1;
            for (int k = 1; has_point(p, rank) && k <= last; k++) {
                int exchange = last > 1 ? k : 1 + (rank + (int)p) % undisturbed[SMALL].exchanges;
                run_trial(&(trial){ .net = SMALL,
                                    .size = 3,
                                    .strikes = { { p, rank, exchange, SIGKILL } },
                                    .transport = transports[(rank + (int)p + k) % 3] });
            }
        }
}

static void two_at_once(void **state)
{
    (void)state;
    static const int pairs[][2] = { { 0, 1 }, { 3, 1 }, { 0, 3 }, { 2, 3 } };
    learn(SMALL);
    for (size_t i = 0; i < (all ? 4 : 2); i++)
        for (point p = 0; p < IN_CHECKPOINT; p++) {
            point q = (point)((p + i) % 4); /* not both at the same */
            int exchange = 1 + (int)(p + i) % undisturbed[SMALL].exchanges;
            bool taken = all || ((int)p + (int)i) % 2 == 0;
            if (taken && has_point(p, pairs[i][0]))
                run_trial(&(trial){
                    .net = SMALL,
                    .size = 4,
                    .strikes = { { p, pairs[i][0], exchange, SIGKILL }, { q, pairs[i][1], exchange, SIGKILL } } });
        }
}

/* Two workers and a server, and two workers and two servers: the joins of a lost server go to the
 * other one, or to all; the lanes of lost workers to the other, or to the servers. */
static void with_parameter_servers(void **state)
{
    (void)state;
    learn(SMALL);
    for (int rank = 0; rank < 3; rank++)
        for (point p = 0; p < IN_CHECKPOINT; p++)
            if (has_point(p, rank) && (all || ((int)p + rank) % 3 == 0))
                run_trial(&(trial){ .net = SMALL,
                                    .size = 3,
                                    .servers = 1,
                                    .strikes = { { p, rank, 1 + (int)p % undisturbed[SMALL].exchanges, SIGKILL } } });
    static const int pairs[][2] = { { 2, 3 }, { 0, 1 }, { 1, 2 } };
    for (size_t i = 0; i < 3; i++)
        run_trial(&(trial){
            .net = SMALL,
            .size = 4,
            .servers = 2,
            .strikes = { { BEFORE_SEND, pairs[i][0], 2, SIGKILL }, { BETWEEN_SENDS, pairs[i][1], 1, SIGKILL } } });
}

static void the_others_continue_without_a_stopped_worker(void **state)
{
    (void)state;
    learn(SMALL);
    for (int rank = 0; rank < 3; rank++)
        for (point p = 0; p < POINTS; p++)
            if (has_point(p, rank) && (all || (rank == 0 && p == HALF_COMMIT) || (rank == 2 && p == HALF_SENT)))
                run_trial(&(trial){ .net = SMALL, .size = 3, .strikes = { { p, rank, 2, SIGSTOP } } });
}

/* Every level, forward and backward, has one or two exchanges: subtrees to owners, and what owners
 * joined to all. */
static void at_every_level_of_resnet18(void **state)
{
    (void)state;
    learn(RESNET18);
    int exchanges = undisturbed[RESNET18].exchanges;
    for (int rank = 0; rank < 3; rank++)
        for (int k = 1; k <= exchanges; k++) {
            point p = (point)((k + rank) % 4);
            bool taken = all || k == 1 + (exchanges - 1) * rank / 2; /* the first, a middle one, the last */
            if (taken)
                run_trial(&(trial){ .net = RESNET18, .size = 3, .strikes = { { p, rank, k, SIGKILL } } });
        }
}

/* The sender of the state, another member and the new member itself are struck while it gets the
 * state; another member sends it then. */
static void while_a_worker_joins(void **state)
{
    (void)state;
    learn(SMALL);
    for (int rank = 0; rank < 4; rank++)
        for (int where = 1; where <= JOIN_POINTS; where++)
            if ((rank == 0 || where != JOIN_HALF) && (all || rank == 0 || where == JOIN_STATE + rank % 2 * 2))
                run_trial(&(trial){
                    .net = SMALL, .size = 3, .new_member = true, .strikes = { { IN_JOINING, rank, where, SIGKILL } } });
}

static int finish(void **state)
{
    (void)state;
    print_message(
        "undisturbed steps of 3 workers take %.3f s (small) and %.3f s (resnet18); from the strike to the "
        "end of the next step it took %.3f s at most after SIGKILL, %.3f s after SIGSTOP (silence limit %g s)\n",
        undisturbed[SMALL].step, undisturbed[RESNET18].step, slowest_kill, slowest_stop, SILENCE);
    return 0;
}

int main(void)
{
    const char *text = getenv("LS_WORKER_KILLS");
    all = text && strcmp(text, "all") == 0;
    outcomes = mmap(NULL, MOST * sizeof(*outcomes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_continue_without_a_killed_worker),
        cmocka_unit_test(two_at_once),
        cmocka_unit_test(with_parameter_servers),
        cmocka_unit_test(the_others_continue_without_a_stopped_worker),
        cmocka_unit_test(while_a_worker_joins),
        cmocka_unit_test(at_every_level_of_resnet18),
    };
    return cmocka_run_group_tests(tests, NULL, finish);
}
