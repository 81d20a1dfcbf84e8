/* A server and a worker of asynchronous training, each a process that is in ls_fit, against a chief
 * and others that the test plays: what happens when two workers have one batch, because one of them
 * was held for lost, and when a server sends a worker back to read again. Such moments are too
 * short to be met by killing and stopping processes. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fabric/transport/unix.h"
#include "lockstep.h"
#include "machine.h"
#include "train/server/shards_private.h"
#include "train/server/servers.h"

#define LIMIT 20.0 /* seconds that anything here may take */
#define READS 64   /* bytes of the versions in front of a gradient */

typedef struct play {
    int size, servers, rank; /* rank: of the process that is played with */
    bool overlap;
    pid_t pid;
    char about[4096];
    ls_messenger *messengers[8]; /* by rank: those of the test */
} play;

static ls_cluster_options process_of(const play *p, int rank)
{
    ls_cluster_options o = {
        .rank = rank, .size = p->size, .servers = p->servers, .join_limit = LIMIT, .silence_limit = LIMIT
    };
    snprintf(o.job, sizeof(o.job), "roles-%d-%d", (int)(p->pid ? getpid() : getppid()), p->size);
    snprintf(o.transport, sizeof(o.transport), "unix");
    return o;
}

/* ---- The process: two weights, each trained by itself, and a given number of servers ---- */

static ls_status fit(const play *p)
{
    static float x[8] = { 1, 1, 1, 1, 1, 1, 1, 1 }, y[16];
    ls_cluster_options o = process_of(p, p->rank);
    ls_context *ctx = NULL;
    ls_model *model = NULL;
    LS_TRY(ls_context_create(&(ls_context_options){ .threads = 1 }, &ctx));
    LS_TRY(ls_cluster_join(ctx, &o));
    LS_TRY(ls_sequential(ctx, "m", &model, ls_input(1), ls_dense(2, .no_bias = true)));
    LS_TRY(ls_compile(model, .optimizer = ls_sgd(.learning_rate = 0.5), .loss = ls_mean_squared_error()));
    ls_dataset *data =
        ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(8, 1), x), ls_array_of(LS_F32, LS_SHAPE(8, 2), y));
    ls_status status =
        ls_fit(model, data, .epochs = 1, .batch_size = 1, .verbose = LS_VERBOSE_SILENT,
               .strategy = ls_parameter_server(.staleness = 1, .overlap = p->overlap), .async.journal = "");
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    ls_context_close(ctx);
    return status;
}

/* ---- The test ---- */

/* The job as the process describes it when it calls the chief: all must send the same. */
static void learn(play *p)
{
    ls_unix_listener door = { .kind = "unix", .options = process_of(p, 0), .fd = -1 };
    ls_packet head;
    int fd = -1;
    double end = ls_clock_now() + LIMIT;
    OK(ls_unix_listener_open(&door));
    for (size_t got = 0; ls_clock_now() < end && got < sizeof(head); usleep(1000)) {
        if (fd < 0)
            fd = ls_unix_listener_answer(&door);
        ssize_t more = fd < 0 ? 0 : read(fd, (char *)&head + got, sizeof(head) - got);
        got += more > 0 ? (size_t)more : 0;
    }
    assert_true(fd >= 0 && head.kind == LS_PACKET_HELLO && head.bytes < sizeof(p->about));
    for (size_t got = 0; ls_clock_now() < end && got < head.bytes;) {
        ssize_t more = read(fd, p->about + got, head.bytes - got);
        got += more > 0 ? (size_t)more : 0;
    }
    close(fd);
    ls_unix_listener_close(&door);
}

static void open_post(play *p, int rank)
{
    ls_cluster_options o = process_of(p, rank);
    ls_messenger_options options = { .cluster = &o, .about = p->about, .hello = { 77 }, .most = 65536 };
    options.calls[p->rank] = rank != 0 && p->rank >= p->size - p->servers;
    OK(ls_messenger_open(&options, &p->messengers[rank]));
}

static ls_message receive(const play *p, int rank, int kind, int64_t ordinal)
{
    ls_message message = { .kind = 0 };
    bool got = false;
    OK(ls_messenger_receive(p->messengers[rank], LIMIT, &message, &got));
    if (!got || message.kind != kind || (ordinal >= 0 && message.numbers[0] != ordinal))
        fail_msg("process %d: message %d of batch %lld, not %d of batch %lld: %s", rank, got ? message.kind : 0,
                 (long long)message.numbers[0], kind, (long long)ordinal, message.text);
    return message;
}

/* body: bytes, of which the first are given and the others 0. */
static void send_letter(const play *p, int from, int kind, const int64_t *numbers, const void *bytes, size_t given,
                        size_t body)
{
    ls_message message = { .rank = p->rank, .kind = kind };
    memcpy(message.numbers, numbers, 3 * sizeof(*numbers));
    if (kind == LS_PS_TAKE || kind == LS_PS_PUSH)
        memcpy(message.numbers, numbers, sizeof(message.numbers));
    if (body > 0) {
        OK(ls_payload_make(body, &message.body));
        memset(ls_payload_bytes(message.body), 0, body);
        if (given > 0)
            memcpy(ls_payload_bytes(message.body), bytes, given);
    }
    OK(ls_messenger_send(p->messengers[from], &message));
    ls_payload_drop(message.body);
}

static void say(const play *p, int from, int kind, int64_t first, int64_t second)
{
    send_letter(p, from, kind, (int64_t[]){ first, second, 0 }, NULL, 0, 0);
}

static void begin(play *p)
{
    fflush(NULL);
    p->pid = 0; /* in the child */
    pid_t pid = fork();
    if (pid == 0) {
        ls_status status = fit(p);
        if (status != LS_OK)
            fprintf(stderr, "process %d: %s\n", p->rank, ls_last_error());
        _exit(status == LS_OK ? 0 : 1);
    }
    assert_true(pid > 0);
    p->pid = pid;
    learn(p);
    for (int r = 0; r < p->size; r++)
        if (r != p->rank && (p->rank >= p->size - p->servers || r == 0 || r >= p->size - p->servers)) {
            open_post(p, r);
            receive(p, r, LS_MESSAGE_MET, -1);
        }
}

static void end(play *p)
{
    int status = -1;
    say(p, 0, LS_PS_OVER, LS_OK, 0);
    double until = ls_clock_now() + LIMIT;
    while (waitpid(p->pid, &status, WNOHANG) == 0 && ls_clock_now() < until)
        usleep(1000);
    if (status == -1)
        kill(p->pid, SIGKILL);
    for (int r = 0; r < p->size; r++)
        ls_messenger_close(p->messengers[r]);
    assert_int_equal(status, 0);
}

/* ---- A server ---- */

static void push_zero(const play *p, int from, int64_t ordinal, int64_t read)
{
    send_letter(p, from, LS_PS_PUSH, (int64_t[LS_MESSAGE_NUMBERS]){ ordinal, 0, ordinal, ordinal, 1 }, &read,
                sizeof(read), READS + LS_SHARD_ALIGN);
}

/* The server has heard what that process said before. */
static void settle(const play *p, int rank)
{
    send_letter(p, rank, LS_PS_PULL, (int64_t[]){ -1, -1, 1 }, NULL, 0, 0);
    ls_payload_drop(receive(p, rank, LS_PS_SHARD, -1).body);
}

static void read_part(const play *p, int rank, int64_t ordinal, int64_t version)
{
    ls_message part = receive(p, rank, LS_PS_SHARD, ordinal);
    assert_int_equal(part.numbers[1], version);
    ls_payload_drop(part.body);
}

/* Workers 1 and 3 have batch 2: both are accepted when it is its turn, and each that pushes it gets
 * the answer that it was applied. */
static void a_server_answers_all_that_have_one_batch(void **state)
{
    (void)state;
    play p = { .size = 5, .servers = 1, .rank = 4 };
    begin(&p);
    send_letter(&p, 0, LS_PS_BEGIN, (int64_t[]){ 0, 0, 0 }, "0123456789abcdef0123456789abcdef", 32, 32);
    receive(&p, 0, LS_PS_HAVE, 0);
    send_letter(&p, 0, LS_PS_GIVE, (int64_t[]){ 0, 0, 0 }, NULL, 0, 2 * LS_SHARD_ALIGN); /* weights, and the step */
    receive(&p, 0, LS_PS_HAVE, 1);
    say(&p, 1, LS_PS_PULL, 0, -1);
    read_part(&p, 1, 0, 0);
    say(&p, 2, LS_PS_PULL, 1, -1);
    read_part(&p, 2, 1, 0);
    say(&p, 3, LS_PS_PULL, 2, -1); /* the third: it has to wait */
    say(&p, 3, LS_PS_PULL, 2, -1); /* asked again, answered once */
    settle(&p, 3);
    say(&p, 1, LS_PS_PULL, 2, -1);
    push_zero(&p, 1, 0, 0);
    receive(&p, 1, LS_PS_ACK, 0);
    read_part(&p, 1, 2, 1);
    read_part(&p, 3, 2, 1);

    push_zero(&p, 3, 2, 1); /* waits for batch 1, which could not follow it */
    settle(&p, 3);
    push_zero(&p, 1, 2, 1);
    settle(&p, 1);
    push_zero(&p, 0, 2, 1);
    settle(&p, 0);
    push_zero(&p, 2, 1, 0);
    receive(&p, 2, LS_PS_ACK, 1);
    for (int r = 3; r >= 0; r -= r == 3 ? 2 : 1)
        receive(&p, r, LS_PS_ACK, 2);
    end(&p);
}

/* ---- A worker ---- */

/* A server's answer: weights only where the worker has another version. */
static void give_part(const play *p, int server, int64_t ordinal, int64_t version, float weight)
{
    ls_message pull = receive(p, server, LS_PS_PULL, ordinal);
    bool same = pull.numbers[1] == version;
    send_letter(p, server, LS_PS_SHARD, (int64_t[]){ ordinal, version, 0 }, &weight, sizeof(weight),
                same ? 0 : LS_SHARD_ALIGN);
}

static float gradient(const play *p, int server, int64_t ordinal, int64_t first, int64_t second)
{
    ls_message push = receive(p, server, LS_PS_PUSH, ordinal);
    const char *bytes = ls_payload_bytes(push.body);
    int64_t read[2];
    float out;
    assert_int_equal(ls_payload_size(push.body), READS + LS_SHARD_ALIGN);
    memcpy(read, bytes, sizeof(read));
    memcpy(&out, bytes + READS, sizeof(out));
    assert_true(read[0] == first && read[1] == second);
    ls_payload_drop(push.body);
    return out;
}

static void take(const play *p, int64_t number, int64_t ordinal)
{
    receive(p, 0, LS_PS_ASK, number);
    send_letter(p, 0, LS_PS_TAKE, (int64_t[LS_MESSAGE_NUMBERS]){ ordinal, 0, ordinal, 0, ordinal, ordinal }, NULL, 0,
                0);
}

/* With overlap a worker that has to read batch 0 again is reading batch 1 meanwhile: it computes
 * from the versions that it reports, in either order. A gradient here is a weight times a
 * constant. */
static void a_worker_computes_from_the_versions_it_reports(void **state)
{
    (void)state;
    play p = { .size = 4, .servers = 2, .rank = 1, .overlap = true };
    begin(&p);
    take(&p, 1, 0);
    give_part(&p, 2, 0, 0, 1);
    give_part(&p, 3, 0, 0, 1);
    float unit = gradient(&p, 2, 0, 0, 0);
    assert_true(unit != 0 && gradient(&p, 3, 0, 0, 0) == unit);
    take(&p, 2, 1);
    give_part(&p, 2, 1, 1, 2); /* and server 1 lets it wait */
    ls_message waits = receive(&p, 3, LS_PS_PULL, 1);
    say(&p, 3, LS_PS_AGAIN, 0, 0);
    give_part(&p, 2, 0, 1, 2);
    give_part(&p, 3, 0, 0, 1);
    assert_true(gradient(&p, 2, 0, 1, 0) == 2 * unit);
    assert_true(gradient(&p, 3, 0, 1, 0) == unit);

    /* Batch 1 has no weights of server 1: the model has them. Then batch 0, read again, brings
     * others. */
    say(&p, 2, LS_PS_AGAIN, 0, 0);
    give_part(&p, 2, 0, 2, 4);
    give_part(&p, 3, 0, 1, 8);
    assert_true(gradient(&p, 2, 0, 2, 1) == 4 * unit);
    assert_true(gradient(&p, 3, 0, 2, 1) == 8 * unit);
    send_letter(&p, 3, LS_PS_SHARD, (int64_t[]){ 1, waits.numbers[1], 0 }, NULL, 0, 0);
    give_part(&p, 2, 1, 2, 4);
    give_part(&p, 3, 1, 1, 8);
    assert_true(gradient(&p, 2, 1, 2, 1) == 4 * unit);
    assert_true(gradient(&p, 3, 1, 2, 1) == 8 * unit);
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_answers_all_that_have_one_batch),
        cmocka_unit_test(a_worker_computes_from_the_versions_it_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
