/* Parts of asynchronous parameter servers, each by itself: the staleness bound, the queue of
 * batches, the journal of a server, and the messages between processes. */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fabric/messages/messenger.h"
#include "fabric/transport/unix.h"
#include "folder.h"
#include "lockstep.h"
#include "machine.h"
#include "train/server/batch_queue.h"
#include "train/server/journal.h"
#include "train/server/staleness.h"

#define LIMIT 10.0 /* seconds that anything here may take */

/* ---- The staleness bound ---- */

/* Any number of workers that read and push in any order: no worker is ever too late, and one can
 * always continue. */
static void bound_holds(int64_t bound, int64_t every, int workers, unsigned seed)
{
    ls_staleness r = { .bound = bound, .every = every };
    int64_t pushes = 0, next = 0, worst = 0, mine[16];
    enum { IDLE, COMPUTES, WAITS } state[16] = { IDLE };
    for (int turn = 0; turn < 4000; turn++) {
        seed = seed * 1664525u + 1013904223u;
        int w = (int)((seed >> 16) % (unsigned)workers);
        if (state[w] == IDLE && ls_staleness_may_pull(&r, next, pushes)) {
            mine[w] = next++;
            OK(ls_staleness_add(&r, (ls_read_entry){ .rank = w, .ordinal = mine[w], .version = pushes / every }));
            state[w] = COMPUTES;
        } else if (state[w] == COMPUTES && (seed >> 8) % 3 == 0) {
            ls_staleness_find(&r, mine[w])->arrived = true;
            state[w] = WAITS;
        }
        bool computes = false, applied = false, waits = false;
        for (int i = 0; i < workers; i++) {
            computes |= state[i] == COMPUTES;
            waits |= state[i] == WAITS;
            if (state[i] != WAITS || !ls_staleness_may_apply(&r, mine[i], pushes))
                continue;
            int64_t behind = pushes / every - ls_staleness_find(&r, mine[i])->version;
            worst = behind > worst ? behind : worst;
            ls_staleness_remove(&r, mine[i]);
            pushes++;
            state[i] = IDLE;
            applied = true;
        }
        assert_true(computes || applied || !waits); /* else all would wait for each other */
    }
    assert_true(pushes > 50);
    assert_true(worst <= bound);
    if (workers > bound + 1)
        assert_int_equal(worst, bound); /* it is used */
    ls_staleness_free(&r);
}

static void no_gradient_is_too_late(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 5; seed++)
        for (int64_t bound = 0; bound <= 4; bound++)
            for (int64_t every = 1; every <= 3; every++)
                for (int workers = 1; workers <= 7; workers += 2)
                    bound_holds(bound, every, workers, seed);
}

static void lost_workers_are_not_waited_for(void **state)
{
    (void)state;
    ls_staleness r = { .bound = 1, .every = 1 };
    OK(ls_staleness_add(&r, (ls_read_entry){ .rank = 1, .ordinal = 10, .version = 0 }));
    OK(ls_staleness_add(&r, (ls_read_entry){ .rank = 2, .ordinal = 11, .version = 0, .arrived = true }));
    assert_false(ls_staleness_may_pull(&r, 12, 0)); /* it would be the third */
    assert_true(ls_staleness_may_pull(&r, 10, 0));  /* a worker that reads again does not wait for itself */
    assert_true(ls_staleness_may_apply(&r, 11, 0));
    assert_false(ls_staleness_may_apply(&r, 11, 1)); /* 10 could not follow */
    ls_staleness_lose(&r, 1);
    assert_null(ls_staleness_find(&r, 10));
    assert_true(ls_staleness_may_apply(&r, 11, 1));
    ls_staleness_lose(&r, 2);
    assert_non_null(ls_staleness_find(&r, 11)); /* its gradient is here */
    assert_false(ls_staleness_may_add(&r, 12, 0, 2));
    assert_true(ls_staleness_may_add(&r, 12, 2, 1));
    assert_false(ls_staleness_may_add(&r, 12, 0, 1)); /* beside 11 */
    assert_true(ls_staleness_may_add(&r, 11, 0, 1));  /* in its place */
    ls_staleness_free(&r);
}

/* ---- Dealing out ---- */

typedef struct hand {
    int count, rank[64];
    int64_t ordinal[64];
} hand;

static void give(void *user, int rank, int64_t ordinal)
{
    hand *h = user;
    h->rank[h->count] = rank;
    h->ordinal[h->count++] = ordinal;
}

static void each_batch_is_dealt_once(void **state)
{
    (void)state;
    hand h = { .count = 0 };
    ls_batch_queue *d = NULL;
    OK(ls_batch_queue_make(8, 5, give, &h, &d));
    OK(ls_batch_queue_ask(d, 3, 1));
    assert_int_equal(h.count, 0); /* nothing is allowed yet */
    assert_true(ls_batch_queue_is_done(d));
    ls_batch_queue_set_limit(d, 8);
    OK(ls_batch_queue_ask(d, 1, 1));
    OK(ls_batch_queue_ask(d, 2, 1));
    OK(ls_batch_queue_ask(d, 4, 1));
    OK(ls_batch_queue_ask(d, 2, 1)); /* repeated, because it was not acknowledged: not one more */
    assert_int_equal(h.count, 3);
    assert_int_equal(h.ordinal[0], 5);
    assert_int_equal(h.rank[0], 3);
    assert_true(ls_batch_queue_done(d, 3, 5));
    assert_false(ls_batch_queue_done(d, 3, 5));
    assert_false(ls_batch_queue_done(d, 3, 6)); /* another one's */
    ls_batch_queue_lose(d, 1);
    assert_int_equal(h.count, 4); /* to the worker that still asks */
    assert_int_equal(h.rank[3], 4);
    assert_int_equal(h.ordinal[3], 6);
    assert_false(ls_batch_queue_done(d, 1, 6)); /* it comes too late */
    assert_true(ls_batch_queue_done(d, 4, 6));
    assert_false(ls_batch_queue_is_done(d));
    ls_batch_queue_lose(d, 2);
    assert_false(ls_batch_queue_is_done(d)); /* no worker has it, and it remains to be done */
    OK(ls_batch_queue_ask(d, 2, 1));         /* it is there again, or another in its place */
    assert_int_equal(h.count, 5);
    assert_int_equal(h.ordinal[4], 7);
    assert_true(ls_batch_queue_done(d, 2, 7));
    assert_true(ls_batch_queue_is_done(d));
    assert_int_equal(ls_batch_queue_stop(d), 8);
    assert_int_equal(ls_batch_queue_ask(d, 8, 1), LS_ERR_INTERNAL);
    ls_batch_queue_free(d);
}

/* ---- The journal ---- */

typedef struct memory {
    int begun, pushes;
    int64_t last, below;
    float state[8];
} memory;

static ls_status begin(void *user, const ls_journal_state *state)
{
    memory *m = user;
    m->begun++;
    m->below = state->applied.below;
    memcpy(m->state, state->bytes, sizeof(m->state));
    return LS_OK;
}

static ls_status apply(void *user, const ls_journal_push *push)
{
    memory *m = user;
    m->pushes++;
    m->last = push->ordinal;
    m->state[0] += ((const float *)push->bytes)[0];
    return LS_OK;
}

static void come_back(const char *id, memory *m, bool found)
{
    ls_journal j;
    bool there;
    const ls_journal_reader reader = { begin, apply, m };
    *m = (memory){ .begun = 0 };
    OK(ls_journal_make(folder, id, 1, sizeof(m->state), 64, &j));
    OK(ls_journal_restore(&j, &reader, &there));
    assert_true(there == found);
    ls_journal_close(&j);
}

static void write_pushes(ls_journal *j, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        float bytes[16] = { (float)(i + 1) };
        OK(ls_journal_add(j, &(ls_journal_push){ .ordinal = i, .samples = 1, .rate = NAN, .bytes = bytes }));
    }
}

static void a_server_returns(void **state)
{
    (void)state;
    const char *id = "0123456789abcdef0123456789abcdef";
    float start[8] = { 100 };
    ls_journal j;
    memory m;
    char path[PATH_MAX];
    struct stat about;
    OK(ls_journal_make(folder, id, 1, sizeof(start), 64, &j));
    come_back(id, &m, false);
    ls_journal_state s = { .applied = { .below = 3 }, .rate = NAN, .bytes = start };
    OK(ls_journal_begin(&j, &s));
    write_pushes(&j, 3, 7);
    ls_journal_close(&j);
    come_back(id, &m, true);
    assert_int_equal(m.pushes, 4);
    assert_int_equal(m.below, 3);
    assert_true(m.state[0] == 100 + 4 + 5 + 6 + 7);
    come_back("ffffffffffffffffffffffffffffffff", &m, false); /* from another run */

    /* A push that was torn is left out, at any byte, and the next one follows the last whole
     * one. */
    snprintf(path, sizeof(path), "%s/server-1.pushes-1", folder);
    assert_int_equal(stat(path, &about), 0);
    for (off_t cut = about.st_size - 1; cut > about.st_size * 3 / 4; cut -= 13) {
        assert_int_equal(truncate(path, cut), 0);
        come_back(id, &m, true);
        assert_int_equal(m.pushes, 3);
    }
    const ls_journal_reader reader = { begin, apply, &m };
    bool found;
    OK(ls_journal_make(folder, id, 1, sizeof(start), 64, &j));
    OK(ls_journal_restore(&j, &reader, &found));
    write_pushes(&j, 9, 10);
    come_back(id, &m, true);
    assert_int_equal(m.pushes, 4);
    assert_int_equal(m.last, 9);

    /* A new state, and what follows it. */
    start[0] = 7;
    s.applied = (ls_applied){ .below = 6, .list = (int64_t[]){ 9 }, .count = 1 };
    OK(ls_journal_begin(&j, &s));
    write_pushes(&j, 6, 7);
    come_back(id, &m, true);
    assert_int_equal(m.pushes, 1);
    assert_true(m.state[0] == 7 + 7);
    assert_int_equal(stat(path, &about), -1);

    /* Damage is reported, and never used. */
    snprintf(path, sizeof(path), "%s/server-1.state", folder);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "x", 1, 180), 1);
    close(fd);
    ls_journal other;
    OK(ls_journal_make(folder, id, 1, sizeof(start), 64, &other));
    assert_int_equal(ls_journal_restore(&other, &reader, &found), LS_ERR_DATA);
    OK(ls_journal_make(folder, id, 1, sizeof(start) + 8, 64, &other));
    assert_int_equal(ls_journal_restore(&other, &reader, &found), LS_ERR_DATA);
    ls_journal_remove(&j);
    assert_int_equal(stat(path, &about), -1);
}

static void batches_are_applied_once(void **state)
{
    (void)state;
    ls_applied a = { .below = 2 };
    const int64_t order[] = { 5, 3, 7, 2, 4, 6 };
    for (size_t i = 0; i < 6; i++) {
        assert_false(ls_applied_has(&a, order[i]));
        OK(ls_applied_add(&a, order[i]));
        for (size_t k = 0; k < 6; k++)
            assert_true(ls_applied_has(&a, order[k]) == (k <= i));
    }
    assert_int_equal(a.below, 8);
    assert_int_equal(a.count, 0);
    assert_true(ls_applied_has(&a, 0));
    assert_false(ls_applied_has(&a, 8));
    ls_applied_free(&a);
}

/* ---- Messages ---- */

static ls_cluster_options process_of(int rank, const char *transport)
{
    ls_cluster_options o = { .rank = rank, .size = 3 };
    snprintf(o.job, sizeof(o.job), "post-%d-%s", (int)getpid(), transport);
    snprintf(o.transport, sizeof(o.transport), "%s", transport);
    return o;
}

static ls_messenger *open_post(const ls_cluster_options *o, const char *about, int calls, size_t most)
{
    ls_messenger *post = NULL;
    ls_messenger_options p = { .cluster = o, .about = about, .hello = { 40 + o->rank }, .most = most };
    if (calls >= 0)
        p.calls[calls] = true;
    OK(ls_messenger_open(&p, &post));
    return post;
}

static ls_message receive(ls_messenger *post, int kind)
{
    ls_message message = { .kind = 0 };
    bool got = false;
    OK(ls_messenger_receive(post, LIMIT, &message, &got));
    assert_true(got);
    if (message.kind != kind)
        fail_msg("message %d, not %d: %s", message.kind, kind, message.text);
    return message;
}

static void messages_arrive_whole(void **state)
{
    const char *transport = *state;
    ls_cluster_options a = process_of(0, transport), b = process_of(1, transport);
    ls_messenger *one = open_post(&a, "the job", -1, 1 << 22), *two = open_post(&b, "the job", 0, 1 << 22);
    assert_int_equal(receive(one, LS_MESSAGE_MET).numbers[0], 41);
    assert_int_equal(receive(two, LS_MESSAGE_MET).numbers[0], 40);
    ls_payload *payload;
    OK(ls_payload_make((1 << 22) - 3, &payload));
    for (size_t i = 0; i < ls_payload_size(payload); i++)
        ((unsigned char *)ls_payload_bytes(payload))[i] = (unsigned char)(i * 7 + i / 251);
    for (int i = 0; i < 4; i++) {
        OK(ls_messenger_send(two, &(ls_message){ .rank = 0, .kind = 9, .numbers = { i, -i }, .body = payload }));
        OK(ls_messenger_send(one, &(ls_message){ .rank = 1, .kind = 10, .numbers = { i } }));
    }
    for (int i = 0; i < 4; i++) {
        ls_message message = receive(one, 9);
        assert_true(message.rank == 1 && message.numbers[0] == i && message.numbers[1] == -i);
        assert_int_equal(ls_payload_size(message.body), ls_payload_size(payload));
        assert_memory_equal(ls_payload_bytes(message.body), ls_payload_bytes(payload), ls_payload_size(payload));
        ls_payload_drop(message.body);
        message = receive(two, 10);
        assert_true(message.rank == 0 && message.numbers[0] == i && !message.body);
    }
    /* A process that returns replaces its predecessor, and messages without a receiver are
     * dropped. */
    OK(ls_messenger_send(one, &(ls_message){ .rank = 2, .kind = 9 }));
    ls_messenger_close(two);
    receive(one, LS_MESSAGE_LOST);
    two = open_post(&b, "the job", 0, 100);
    receive(one, LS_MESSAGE_MET);
    receive(two, LS_MESSAGE_MET);
    /* More bytes than it expects: it hangs up, and takes no memory for them. */
    OK(ls_messenger_send(one, &(ls_message){ .rank = 1, .kind = 9, .body = payload }));
    assert_non_null(strstr(receive(two, LS_MESSAGE_LOST).text, "the limit is 100"));
    ls_payload_drop(payload);
    ls_messenger_close(two);
    ls_messenger_close(one);
}

static void another_job_is_refused(void **state)
{
    const char *transport = *state;
    ls_cluster_options a = process_of(0, transport), b = process_of(2, transport);
    ls_messenger *one = open_post(&a, "a job", -1, 100), *two = open_post(&b, "another job", 0, 100);
    assert_non_null(strstr(receive(two, LS_MESSAGE_REFUSED).text, "different jobs: worker 0 has a job"));
    ls_message message;
    bool got = true;
    OK(ls_messenger_receive(one, 0.05, &message, &got));
    assert_false(got);
    ls_messenger_close(two);
    ls_messenger_close(one);
}

/* Bytes that mean nothing at the door, of any length, and the job goes on. */
static void silent_unknown_peers_are_dropped(void **state)
{
    (void)state;
    ls_cluster_options a = process_of(0, "unix"), b = process_of(1, "unix");
    ls_messenger *one = open_post(&a, "the job", -1, 100);
    ls_unix_listener door = { .kind = "unix", .options = b, .fd = -1 };
    unsigned char bytes[512];
    for (int i = 0; i < 100; i++) {
        int fd;
        OK(ls_unix_listener_call(&door, 0, &fd));
        assert_true(fd >= 0);
        memset(bytes, i * 37, sizeof(bytes));
        if (i % 2) /* a head that begins well */
            memcpy(bytes, "L0ck\6\0\1\0\1\0\0\0\0\0\0\0", 16);
        (void)!send(fd, bytes, (size_t)(i * 5), MSG_NOSIGNAL);
        close(fd);
    }
    ls_messenger *two = open_post(&b, "the job", 0, 100);
    receive(two, LS_MESSAGE_MET);
    receive(one, LS_MESSAGE_MET);
    OK(ls_messenger_send(two, &(ls_message){ .rank = 0, .kind = 9 }));
    receive(one, 9);
    ls_messenger_close(two);
    ls_messenger_close(one);
}

/* A process that was stopped is lost, and met again when it wakes; nothing of a body it had begun
 * is heard. */
static bool swallow(void *user, ls_message *message)
{
    (void)message;
    while (atomic_load((atomic_int *)user))
        usleep(1000);
    return false;
}

static void the_silent_are_lost(void **state)
{
    (void)state;
    atomic_int stopped = 1;
    ls_cluster_options a = process_of(0, "unix"), b = process_of(1, "unix");
    a.silence_limit = 0.2;
    b.silence_limit = 0.2;
    ls_messenger *one = open_post(&a, "the job", -1, 100), *two = NULL;
    ls_messenger_options p = { .cluster = &b, .about = "the job", .hear = swallow, .user = &stopped, .most = 100 };
    p.calls[0] = true;
    OK(ls_messenger_open(&p, &two));
    receive(one, LS_MESSAGE_MET);
    assert_non_null(strstr(receive(one, LS_MESSAGE_LOST).text, "no heartbeat"));
    atomic_store(&stopped, 0);
    receive(one, LS_MESSAGE_MET);
    ls_messenger_close(two);
    ls_messenger_close(one);
}

/* The last message of a process that leaves is received, even while the receiver itself sends
 * something that is not read. */
typedef struct held {
    atomic_bool entered, stays;
} held;

static bool hold(void *user, ls_message *message)
{
    held *h = user;
    (void)message;
    atomic_store(&h->entered, true);
    while (atomic_load(&h->stays))
        usleep(1000);
    return false;
}

static void the_last_letter_is_read(void **state)
{
    const char *transport = *state;
    held h = { .stays = true };
    ls_cluster_options a = process_of(0, transport), b = process_of(1, transport);
    ls_messenger *one = open_post(&a, "the job", -1, 100), *two = NULL;
    ls_messenger_options p = { .cluster = &b, .about = "the job", .hear = hold, .user = &h, .most = 100 };
    p.calls[0] = true;
    OK(ls_messenger_open(&p, &two));
    receive(one, LS_MESSAGE_MET);
    for (int i = 0; i < 1000 * LIMIT && !atomic_load(&h.entered); i++)
        usleep(1000);
    OK(ls_messenger_send(one, &(ls_message){ .rank = 1, .kind = 9 }));
    ls_messenger_close(one);
    OK(ls_messenger_send(two, &(ls_message){ .rank = 0, .kind = 10 }));
    atomic_store(&h.stays, false);
    receive(two, LS_MESSAGE_MET);
    receive(two, 9);
    receive(two, LS_MESSAGE_LOST);
    ls_messenger_close(two);
}

/* Nothing is left in it. */
static int remove_empty_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_gradient_is_too_late),
        cmocka_unit_test(lost_workers_are_not_waited_for),
        cmocka_unit_test(each_batch_is_dealt_once),
        cmocka_unit_test(a_server_returns),
        cmocka_unit_test(batches_are_applied_once),
        { "messages come whole over unix", messages_arrive_whole, NULL, NULL, "unix" },
        { "messages come whole over shm", messages_arrive_whole, NULL, NULL, "shm" },
        { "another job is refused over unix", another_job_is_refused, NULL, NULL, "unix" },
        { "another job is refused over shm", another_job_is_refused, NULL, NULL, "shm" },
        cmocka_unit_test(silent_unknown_peers_are_dropped),
        cmocka_unit_test(the_silent_are_lost),
        { "the last message is read over unix", the_last_letter_is_read, NULL, NULL, "unix" },
        { "the last message is read over shm", the_last_letter_is_read, NULL, NULL, "shm" },
    };
    return cmocka_run_group_tests(tests, make_folder, remove_empty_folder);
}
