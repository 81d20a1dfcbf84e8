/* The simulated transport, with a toy protocol: a seed gives the same events again, bytes of a
 * connection arrive whole and in order until it ends, and a wait that cannot end is found. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "sim.h"

#define MOST 6
#define T    (&ls_transport_sim)

/* ---- A toy: workers meet, and each sends a stream of bytes to each other ---- */

typedef struct toy {
    int rank, size;
    size_t bytes;    /* bytes that each worker sends to each */
    double patience; /* seconds without any progress after which it gives up; 0: 10 */
    /* outcome */
    ls_status status;
    char message[200];
    bool wrong;             /* a byte differs from the byte sent */
    size_t got[MOST];       /* bytes from each */
    bool ended[MOST];       /* before all came and went */
    double finished, waked; /* when it was done; the longest time between two looks at the clock */
} toy;

typedef struct talk {
    toy *toy;
    ls_transport *t;
    ls_connection *lines[MOST], *guests[MOST];
    size_t sent[MOST];
    double moved, looked; /* when something moved; when the clock was read */
} talk;

static unsigned char byte_at(int from, int to, size_t at)
{
    return (unsigned char)(at * 31 + at / 251 + (size_t)from * 7 + (size_t)to * 3);
}

/* Sends what it can: first its rank, then the stream. */
static ls_status send_some(talk *k, int to)
{
    unsigned char bytes[1000];
    size_t all = k->toy->bytes + 1, n = 0, moved;
    for (size_t at = k->sent[to]; at < all && n < sizeof(bytes); at++, n++)
        bytes[n] = at == 0 ? (unsigned char)k->toy->rank : byte_at(k->toy->rank, to, at - 1);
    if (n == 0)
        return LS_OK;
    struct iovec parts[2] = { { bytes, n / 3 }, { bytes + n / 3, n - n / 3 } };
    LS_TRY(T->write(k->lines[to], parts, 2, &moved));
    k->sent[to] += moved;
    k->moved = moved ? k->looked : k->moved;
    return LS_OK;
}

static ls_status receive_some(talk *k, int from)
{
    toy *toy = k->toy;
    unsigned char bytes[900];
    size_t moved;
    struct iovec parts[2] = { { bytes, 5 }, { bytes + 5, sizeof(bytes) - 5 } };
    LS_TRY(T->read(k->lines[from], parts, 2, &moved));
    for (size_t i = 0; i < moved; i++)
        toy->wrong |=
            toy->got[from] + i == 0 ? bytes[i] != from : bytes[i] != byte_at(from, toy->rank, toy->got[from] + i - 1);
    toy->got[from] += moved;
    k->moved = moved ? k->looked : k->moved;
    return LS_OK;
}

/* Calls lower ranks that were not met. The first byte of a caller is its rank. */
static ls_status meet_some(talk *k)
{
    for (int r = 0; r < k->toy->rank; r++)
        if (!k->lines[r] && !k->toy->ended[r])
            LS_TRY(T->call(k->t, r, &k->lines[r]));
    ls_connection *line = NULL;
    LS_TRY(T->answer(k->t, &line));
    for (int g = 0; g < MOST && line; g++)
        if (!k->guests[g]) {
            k->guests[g] = line;
            line = NULL;
        }
    for (int g = 0; g < MOST; g++) {
        unsigned char who;
        size_t moved = 0;
        struct iovec part = { &who, 1 };
        ls_status status = k->guests[g] ? T->read(k->guests[g], &part, 1, &moved) : LS_OK;
        if (status == LS_OK && moved == 0)
            continue;
        if (status == LS_OK && who > k->toy->rank && who < k->toy->size && !k->lines[who]) {
            k->lines[who] = k->guests[g];
            k->toy->got[who] = 1;
        } else {
            T->hang_up(k->guests[g]);
        }
        k->guests[g] = NULL;
        if (status != LS_OK && status != LS_ERR_PEER)
            return status;
    }
    return LS_OK;
}

static ls_status serve(talk *k, int r)
{
    if (!k->lines[r])
        return LS_OK;
    ls_status status = send_some(k, r);
    if ((status == LS_OK || status == LS_ERR_PEER) && k->toy->got[r] <= k->toy->bytes)
        status = receive_some(k, r); /* bytes that arrived before the end are still read */
    if (status == LS_ERR_PEER) {
        T->hang_up(k->lines[r]);
        k->lines[r] = NULL;
        k->toy->ended[r] = true;
        status = LS_OK;
    }
    return status;
}

static bool is_done(const talk *k)
{
    const toy *toy = k->toy;
    for (int r = 0; r < toy->size; r++)
        if (r != toy->rank && !toy->ended[r] && (k->sent[r] <= toy->bytes || toy->got[r] <= toy->bytes))
            return false;
    return true;
}

static ls_status wait_some(talk *k)
{
    ls_want wants[2 * MOST + 1] = { { .connection = NULL } };
    int count = 1;
    for (int r = 0; r < MOST; r++) {
        if (k->lines[r])
            wants[count++] =
                (ls_want){ k->lines[r], .read = k->toy->got[r] <= k->toy->bytes, .write = k->sent[r] <= k->toy->bytes };
        if (k->guests[r])
            wants[count++] = (ls_want){ k->guests[r], .read = true };
    }
    LS_TRY(T->wait(k->t, wants, count, 0.02));
    double now = T->now(k->t), patience = k->toy->patience > 0 ? k->toy->patience : 10;
    k->toy->waked = now - k->looked > k->toy->waked ? now - k->looked : k->toy->waked;
    k->looked = now;
    if (now - k->moved <= patience)
        return LS_OK;
    for (int r = 0; r < k->toy->size; r++) /* workers that are missing now stay missing */
        if (r != k->toy->rank && !k->lines[r] && !k->toy->ended[r]) {
            k->toy->ended[r] = true;
            k->moved = now;
        }
    return k->moved == now ? LS_OK : ls_fail(LS_ERR_PEER, "silence");
}

static ls_status talk_to_all(talk *k)
{
    k->looked = k->moved = T->now(k->t);
    while (!is_done(k)) {
        LS_TRY(meet_some(k));
        for (int r = 0; r < k->toy->size; r++)
            if (r != k->toy->rank)
                LS_TRY(serve(k, r));
        if (!is_done(k))
            LS_TRY(wait_some(k));
    }
    k->toy->finished = T->now(k->t);
    return LS_OK;
}

static void run_toy(void *user)
{
    toy *toy = user;
    talk k = { .toy = toy };
    ls_cluster_options options = { .rank = toy->rank, .size = toy->size };
    toy->status = T->open(&options, 0, &k.t);
    if (toy->status == LS_OK)
        toy->status = talk_to_all(&k);
    if (toy->status != LS_OK)
        snprintf(toy->message, sizeof(toy->message), "%s", ls_last_error());
    for (int r = 0; r < MOST; r++) {
        if (k.lines[r])
            T->hang_up(k.lines[r]);
        if (k.guests[r])
            T->hang_up(k.guests[r]);
    }
    if (k.t)
        T->close(k.t);
}

/* ---- Worlds of toys ---- */

typedef struct world {
    ls_sim *sim;
    toy toys[MOST];
    int size;
    ls_status status;
    char message[2000];
} world;

static void make(world *w, int size, size_t bytes, ls_sim_settings settings)
{
    *w = (world){ .size = size };
    assert_int_equal(ls_sim_create(&settings, &w->sim), LS_OK);
    for (int r = 0; r < size; r++) {
        w->toys[r] = (toy){ .rank = r, .size = size, .bytes = bytes };
        assert_int_equal(ls_sim_add_worker(w->sim, 0, run_toy, &w->toys[r]), LS_OK);
    }
}

static void befalls(world *w, ls_sim_event event)
{
    assert_int_equal(ls_sim_add_event(w->sim, &event), LS_OK);
}

static void run(world *w)
{
    w->status = ls_sim_run(w->sim);
    snprintf(w->message, sizeof(w->message), "%s", w->status == LS_OK ? "" : ls_last_error());
}

static void must_be_whole(const world *w, int r, unsigned long seed)
{
    const toy *toy = &w->toys[r];
    if (toy->status != LS_OK || toy->wrong)
        fail_msg("seed %lu: worker %d of %d: %s%s", seed, r, w->size, toy->message, toy->wrong ? ", wrong bytes" : "");
    for (int s = 0; s < w->size; s++)
        if (s != r && (toy->ended[s] || toy->got[s] != toy->bytes + 1))
            fail_msg("seed %lu: worker %d has %zu of %zu bytes of worker %d", seed, r, toy->got[s], toy->bytes + 1, s);
}

static uint64_t hash_of(uint64_t seed, bool story, int64_t *calls)
{
    world w;
    make(&w, 2 + (int)(seed % 4), seed * 997 % 3000, (ls_sim_settings){ .seed = seed, .window = 500, .story = story });
    run(&w);
    if (w.status != LS_OK)
        fail_msg("%s", w.message);
    for (int r = 0; r < w.size; r++)
        must_be_whole(&w, r, seed);
    uint64_t hash = ls_sim_hash(w.sim);
    if (calls)
        *calls = ls_sim_calls(w.sim, 0);
    ls_sim_destroy(w.sim);
    return hash;
}

static void a_thousand_seeds_are_whole_and_differ(void **state)
{
    (void)state;
    enum { SEEDS = 1000 };
    static uint64_t hashes[SEEDS];
    for (unsigned s = 0; s < SEEDS; s++) {
        hashes[s] = hash_of(s, false, NULL);
        for (unsigned i = 0; i < s; i++)
            assert_true(hashes[i] != hashes[s]);
    }
    for (unsigned s = 0; s < SEEDS; s += 19)
        assert_true(hash_of(s, s % 2, NULL) == hashes[s]);
}

/* A worker dies at any of its calls: this is reported, and the others receive its earlier bytes and
 * all of each other's. */
static void a_worker_can_die_at_any_call(void **state)
{
    (void)state;
    int64_t calls = 0;
    int cut_short = 0;
    hash_of(2, false, &calls); /* 4 workers, 1994 bytes */
    assert_true(calls > 20);
    for (int64_t call = 1; call <= calls; call += 1 + calls / 150) {
        world w;
        make(&w, 4, 1994, (ls_sim_settings){ .seed = 2, .window = 500 });
        befalls(&w, (ls_sim_event){ .fate = LS_SIM_KILL, .worker = 0, .call = call });
        run(&w);
        if (w.status != LS_OK)
            fail_msg("killed at call %lld: %s", (long long)call, w.message);
        assert_true(ls_sim_was_killed(w.sim, 0) && !ls_sim_was_killed(w.sim, 1));
        if (w.toys[0].status != LS_OK) /* otherwise it hung up already */
            assert_string_equal(w.toys[0].message, "simulated worker 0 was killed");
        for (int r = 1; r < 4; r++) {
            assert_int_equal(w.toys[r].status, LS_OK);
            assert_false(w.toys[r].wrong);
            assert_true(w.toys[r].ended[0] || w.toys[r].got[0] == 1995);
            cut_short += w.toys[r].got[0] > 1 && w.toys[r].got[0] < 1995;
            for (int s = 1; s < 4; s++)
                assert_true(s == r || w.toys[r].got[s] == 1995);
        }
        ls_sim_destroy(w.sim);
    }
    assert_true(cut_short > 10);
}

/* ---- Splits, stops, cuts, vanishing, coming late ---- */

static void after_a_split_all_arrives(void **state)
{
    (void)state;
    world w;
    make(&w, 4, 100000, (ls_sim_settings){ .seed = 5, .window = 5000 });
    befalls(&w, (ls_sim_event){ .fate = LS_SIM_SPLIT, .side = 3, .time = 0.04, .seconds = 2 });
    run(&w);
    assert_string_equal(w.message, "");
    for (int r = 0; r < 4; r++)
        must_be_whole(&w, r, 5);
    assert_true(w.toys[0].finished > 2.004 && w.toys[0].finished < 2.5);
    ls_sim_destroy(w.sim);

    make(&w, 4, 100000,
         (ls_sim_settings){ .seed = 5, .window = 5000 }); /* too long for the patience of the toys: each side ends */
    for (int r = 0; r < 4; r++)
        w.toys[r].patience = 1;
    befalls(&w, (ls_sim_event){ .fate = LS_SIM_SPLIT, .side = 3, .time = 0.04, .seconds = INFINITY });
    run(&w);
    assert_string_equal(w.message, "");
    for (int r = 0; r < 4; r++) {
        assert_string_equal(w.toys[r].message, "silence");
        assert_int_equal(w.toys[r].got[r ^ 1], 100001);
        assert_true(w.toys[r].got[r ^ 2] < 100001 && w.toys[r].got[r ^ 3] < 100001);
    }
    ls_sim_destroy(w.sim);
}

static void a_stopped_worker_wakes_later(void **state)
{
    (void)state;
    world w;
    for (int by_call = 0; by_call < 2; by_call++) {
        make(&w, 3, 3000, (ls_sim_settings){ .seed = 9 });
        befalls(&w, (ls_sim_event){
                        .fate = LS_SIM_STOP, .worker = 1, .call = by_call ? 17 : 0, .time = 0.003, .seconds = 5 });
        run(&w);
        assert_string_equal(w.message, "");
        for (int r = 0; r < 3; r++)
            must_be_whole(&w, r, 9);
        assert_true(w.toys[1].waked > 4.9 && w.toys[0].waked < 0.5 && w.toys[0].finished > 5);
        ls_sim_destroy(w.sim);
    }
}

static void of_a_cut_line_a_part_arrives(void **state)
{
    (void)state;
    int parts = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        world w;
        make(&w, 3, 20000, (ls_sim_settings){ .seed = seed, .window = 2000 });
        befalls(&w, (ls_sim_event){ .fate = LS_SIM_CUT, .worker = 0, .other = 1, .time = 0.005 + 2e-4 * (double)seed });
        run(&w);
        assert_string_equal(w.message, "");
        for (int r = 0; r < 3; r++) {
            assert_int_equal(w.toys[r].status, LS_OK);
            assert_false(w.toys[r].wrong);
            assert_int_equal(w.toys[r].got[r == 2 ? 0 : 2], 20001);
        }
        parts += w.toys[0].ended[1] && w.toys[0].got[1] > 1 && w.toys[0].got[1] < 20001;
        ls_sim_destroy(w.sim);
    }
    assert_true(parts > 20);
}

static void who_vanished_is_only_silent(void **state)
{
    (void)state;
    for (int from_start = 0; from_start < 2; from_start++) { /* then calls are not answered, and are repeated */
        world w;
        make(&w, 3, 200000, (ls_sim_settings){ .seed = 3 });
        befalls(&w, (ls_sim_event){ .fate = LS_SIM_VANISH, .worker = 0, .call = from_start ? 2 : 100 });
        for (int r = 0; r < 3; r++)
            w.toys[r].patience = 10;
        run(&w);
        assert_string_equal(w.message, "");
        for (int r = 1; r < 3; r++) {
            assert_int_equal(w.toys[r].got[3 - r], 200001);
            assert_int_equal(w.toys[r].status, from_start ? LS_OK : LS_ERR_PEER);
            assert_true(w.toys[r].ended[0] == (from_start == 1));
        }
        double time = ls_sim_time(w.sim);
        assert_true(from_start ? time > 3 && time < 4 : time > 10);
        ls_sim_destroy(w.sim);
    }
}

static void workers_wait_for_a_late_one(void **state)
{
    (void)state;
    world w;
    make(&w, 2, 100, (ls_sim_settings){ .seed = 4, .story = true });
    w.toys[2] = (toy){ .rank = 2, .size = 3, .bytes = 100 };
    w.toys[0].size = w.toys[1].size = w.size = 3;
    assert_int_equal(ls_sim_add_worker(w.sim, 7, run_toy, &w.toys[2]), LS_OK);
    run(&w);
    assert_string_equal(w.message, "");
    for (int r = 0; r < 3; r++)
        must_be_whole(&w, r, 4);
    assert_true(w.toys[0].finished > 7);
    assert_non_null(strstr(ls_sim_story(w.sim), "7.000000 worker 2, call 0: begins\n"));
    assert_non_null(strstr(ls_sim_story(w.sim), "(line 0 with worker 1)\n"));
    ls_sim_destroy(w.sim);
}

/* ---- What must not be ---- */

typedef enum mistake {
    WAITS_FOR_EVER,
    ASKS_FOR_EVER,
    LEAVES_LINE,
    LEAVES_DOOR,
    USES_AFTER,
    WAITS_AFTER,
    MISTAKES
} mistake;

typedef struct clumsy {
    int rank;
    mistake what;
} clumsy;

static void do_wrong(void *user)
{
    clumsy *c = user;
    ls_transport *t;
    ls_connection *line = NULL;
    size_t moved;
    if (T->open(&(ls_cluster_options){ .rank = c->rank, .size = 2 }, 0, &t) != LS_OK)
        return;
    while (!line && (c->rank == 0 ? T->answer(t, &line) : T->call(t, 0, &line)) == LS_OK)
        if (T->wait(t, NULL, 0, 0.01) != LS_OK)
            return;
    ls_want want = { line, .read = true };
    switch (c->what) {
    case WAITS_FOR_EVER:
        while (T->wait(t, &want, 1, INFINITY) == LS_OK)
            continue;
        break;
    case ASKS_FOR_EVER:
        while (T->wait(t, &want, 1, 0) == LS_OK)
            continue;
        break;
    case LEAVES_LINE:
        return;
    case USES_AFTER:
        T->hang_up(line);
        assert_int_equal(T->read(line, NULL, 0, &moved), LS_ERR_INTERNAL);
        break;
    case WAITS_AFTER:
        T->hang_up(line);
        assert_int_equal(T->wait(t, &want, 1, 1), LS_ERR_INTERNAL);
        break;
    default:
        break;
    }
    if (c->what < LEAVES_LINE || c->what == LEAVES_DOOR)
        T->hang_up(line);
    if (c->what != LEAVES_DOOR)
        T->close(t);
}

static void mistakes_are_found(void **state)
{
    (void)state;
    static const struct {
        ls_status status;
        const char *first, *second;
    } expected[MISTAKES] = {
        [WAITS_FOR_EVER] = { LS_ERR_STATE, "worker 0 waits for worker 1 (line 0, to read)",
                             "deadlock: all simulated workers wait and nothing can come (seed 11" },
        [ASKS_FOR_EVER] = { LS_ERR_STATE, "the simulated time is over (seed 11", "worker 1" },
        [LEAVES_LINE] = { LS_ERR_INTERNAL, "left line 0 with worker", "seed 11" },
        [LEAVES_DOOR] = { LS_ERR_INTERNAL, "left its transport open", "seed 11" },
        [USES_AFTER] = { LS_ERR_INTERNAL, "it uses line 0, which it has hung up", "seed 11" },
        [WAITS_AFTER] = { LS_ERR_INTERNAL, "it waits for line 0, which it has hung up", "seed 11" },
    };
    for (int m = 0; m < MISTAKES; m++) {
        ls_sim *sim;
        clumsy workers[2] = { { 0, (mistake)m }, { 1, (mistake)m } };
        assert_int_equal(ls_sim_create(&(ls_sim_settings){ .seed = 11, .limit = 0.5 }, &sim), LS_OK);
        for (int r = 0; r < 2; r++)
            assert_int_equal(ls_sim_add_worker(sim, 0, do_wrong, &workers[r]), LS_OK);
        assert_int_equal(ls_sim_run(sim), expected[m].status);
        if (!strstr(ls_last_error(), expected[m].first) || !strstr(ls_last_error(), expected[m].second))
            fail_msg("mistake %d: %s", m, ls_last_error());
        assert_true(ls_sim_time(sim) <= 0.51);
        assert_int_equal(ls_sim_run(sim), LS_ERR_STATE); /* once */
        ls_sim_destroy(sim);
    }
}

static void only_workers_of_a_world_have_it(void **state)
{
    (void)state;
    ls_transport *t;
    ls_sim *sim;
    assert_int_equal(T->open(&(ls_cluster_options){ .size = 2 }, 0, &t), LS_ERR_STATE);
    assert_int_equal(ls_sim_self(), -1);
    assert_int_equal(ls_sim_create(&(ls_sim_settings){ .seed = 1 }, &sim), LS_OK);
    assert_int_equal(ls_sim_add_event(sim, &(ls_sim_event){ .worker = 3 }), LS_ERR_INVALID);
    assert_int_equal(ls_sim_run(sim), LS_OK); /* it has no workers */
    ls_sim_destroy(sim);
    ls_sim_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_seeds_are_whole_and_differ),
        cmocka_unit_test(a_worker_can_die_at_any_call),
        cmocka_unit_test(after_a_split_all_arrives),
        cmocka_unit_test(a_stopped_worker_wakes_later),
        cmocka_unit_test(of_a_cut_line_a_part_arrives),
        cmocka_unit_test(who_vanished_is_only_silent),
        cmocka_unit_test(workers_wait_for_a_late_one),
        cmocka_unit_test(mistakes_are_found),
        cmocka_unit_test(only_workers_of_a_world_have_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
