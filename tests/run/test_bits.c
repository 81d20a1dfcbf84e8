/* The promise: the same bits on any devices. SHA-256 of the loss of every step and of all variables
 * after training is equal for equal (network, batch, lanes), whatever runs the tasks.
 *
 * What is covered, for each of the three networks (tests/support/networks.h), always against one
 * worker alone:
 * - batches of 1, 7, 32, 33, 100 with 1, 2, 3, 5, 8, 32 lanes: 6 choices of (threads, devices, map, cut or not,
 *   fed as rows of a set or not) for each pair, taken in turn so that neighbours differ;
 * - a few of these pairs: 1 to 8 threads with 1 to 8 devices, maps in turn;
 * - the same: every map with 2, 3, 5 and 8 devices, segments as they are and cut as finely as they can be;
 * - the list (node, kernel, layout, micro-batch) of each of these runs.
 * Then mutations of the tree, which must be noticed; any instruction set; and several contexts and
 * graphs at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/simd.h"
#include "base/philox.h"
#include "check.h"
#include "networks.h"
#include "run_self.h"
#include "sanitized.h"

#define STEPS (SANITIZED ? 2 : 3)

static const int64_t batches[] = { 1, 7, 32, 33, 100 };
static const int lane_counts[] = { 1, 2, 3, 5, 8, 32 };

/* Fewer combinations where each takes long: under a sanitizer, and without vector instructions. */
static bool is_slow(void)
{
    return SANITIZED || strcmp(ls_simd_choose()->name, "base") == 0;
}

/* ---- Maps: who runs a task (segment, lane) ---- */

typedef struct mapping {
    int devices, lanes;
    uint32_t stream; /* random stream of random maps */
    bool fine;       /* the map may cut between any two groups; otherwise between natural segments */
    int (*device)(void *user, int segment, int lane);
} mapping;

/* A mapping of lanes as a map; whole values may be on any device. */
static int mapped(const ls_task_map *map, const ls_task_map_point *at)
{
    mapping *m = map->user;
    return at->lane < 0 ? LS_ANY_DEVICE : m->device(m, m->fine ? at->group : at->segment, at->lane);
}

static int contiguous(void *user, int segment, int lane)
{
    const mapping *m = user;
    (void)segment;
    return lane * m->devices / m->lanes;
}

static int all_on_the_last(void *user, int segment, int lane)
{
    const mapping *m = user;
    (void)segment, (void)lane;
    return m->devices - 1;
}

static int alternating(void *user, int segment, int lane)
{
    const mapping *m = user;
    (void)segment;
    return lane % m->devices;
}

static int first_lane_alone(void *user, int segment, int lane)
{
    const mapping *m = user;
    (void)segment;
    return lane == 0 || m->devices == 1 ? 0 : 1 + (lane - 1) % (m->devices - 1);
}

static int backwards(void *user, int segment, int lane)
{
    const mapping *m = user;
    (void)segment;
    return (m->lanes - 1 - lane) * m->devices / m->lanes;
}

static uint32_t draw(const mapping *m, int a, int b)
{
    ls_philox_key key = ls_random_key(3, LS_RANDOM_TEST, m->stream, 0);
    return ls_random_block(key, 0, (uint32_t)a, (uint32_t)b).word[0] % (uint32_t)m->devices;
}

static int random_by_lane(void *user, int segment, int lane)
{
    (void)segment;
    return (int)draw(user, 0, lane);
}

static int pipeline(void *user, int segment, int lane)
{
    const mapping *m = user;
    (void)lane;
    return segment % m->devices;
}

static int random_by_segment(void *user, int segment, int lane)
{
    (void)lane;
    return (int)draw(user, segment + 1, 0);
}

static int both(void *user, int segment, int lane)
{
    const mapping *m = user;
    return (segment + lane) % m->devices;
}

static int random_by_both(void *user, int segment, int lane)
{
    return (int)draw(user, segment + 1, lane);
}

static const struct {
    const char *name;
    int (*device)(void *user, int segment, int lane);
} maps[] = {
    { "the default", NULL },
    { "contiguous", contiguous },
    { "all on the last", all_on_the_last },
    { "alternating", alternating },
    { "first lane alone", first_lane_alone },
    { "backwards", backwards },
    { "random by lane", random_by_lane },
    { "pipeline", pipeline },
    { "random by segment", random_by_segment },
    { "both", both },
    { "random by both", random_by_both },
};

/* ---- One training ---- */

typedef struct job {
    network_kind kind;
    int64_t batch;
    int lanes;
    int threads, devices;
    size_t map;
    bool cut, picked;
    uint32_t stream;
    ls_mutation mutation;
} job;

typedef struct result {
    char hash[65];
    char *list; /* NULL when not asked for */
} result;

static const char *describe(const job *j)
{
    static char text[256];
    snprintf(text, sizeof(text), "%s, batch %lld, %d lanes on %d threads and %d devices, map \"%s\"%s%s",
             network_name(j->kind), (long long)j->batch, j->lanes, j->threads, j->devices, maps[j->map].name,
             j->cut ? ", cut everywhere" : "", j->picked ? ", picked rows" : "");
    return text;
}

/* In a context of its own, or in `ctx`. */
static ls_status run_in(ls_context *ctx, const job *j, result *out, bool list)
{
    network n;
    mapping m = { .devices = j->devices, .lanes = j->lanes, .stream = j->stream, .fine = j->stream % 2 };
    ls_run_settings settings = { .plan = { .lanes = j->lanes, .cut_everywhere = j->cut }, .mutation = j->mutation };
    m.device = maps[j->map].device;
    if (m.device)
        settings.plan.map = (ls_task_map){ .device = mapped, .user = &m };
    LS_TRY(network_create(ctx, j->kind, &n));
    n.picked = j->picked;
    ls_status status = network_set(&n, &settings);
    if (status == LS_OK)
        status = network_train(&n, j->batch, STEPS, out->hash);
    if (status == LS_OK && list)
        status = network_list(&n, j->batch, &out->list);
    network_destroy(&n);
    return status;
}

static ls_status run_job(const job *j, result *out, bool list)
{
    ls_context *ctx = NULL;
    *out = (result){ .list = NULL };
    LS_TRY(ls_context_open(&(ls_context_options){ .threads = j->threads, .cpu_devices = j->devices }, &ctx));
    ls_status status = run_in(ctx, j, out, list);
    ls_context_close(ctx);
    return status;
}

static result must_run(const job *j, bool list)
{
    result r;
    if (run_job(j, &r, list) != LS_OK)
        fail_msg("%s: %s", describe(j), ls_last_error());
    return r;
}

/* One worker, one device, segments as they are. */
static result alone(network_kind kind, int64_t batch, int lanes)
{
    return must_run(&(job){ .kind = kind, .batch = batch, .lanes = lanes, .threads = 1, .devices = 1 }, true);
}

/* The question of every test below. */
static void must_equal(const result *expected, const job *j)
{
    result r = must_run(j, true);
    if (strcmp(r.hash, expected->hash) != 0)
        fail_msg("%s: %s, one worker alone: %s", describe(j), r.hash, expected->hash);
    if (strcmp(r.list, expected->list) != 0)
        fail_msg("%s: the list is\n%s\nof one worker alone:\n%s", describe(j), r.list, expected->list);
    free(r.list);
}

/* Choice c of all: threads, devices, map and cut change at paces that have no common factor. */
static job choose(network_kind kind, int64_t batch, int lanes, size_t c)
{
    return (job){ .kind = kind,
                  .batch = batch,
                  .lanes = lanes,
                  .threads = 1 + (int)(c * 5 % 8),
                  .devices = 1 + (int)((c / 8 + c * 3) % 8),
                  .map = c % LENGTH(maps),
                  .cut = c / 2 % 3 != 0,
                  .picked = c % 5 == 0,
                  .stream = (uint32_t)c };
}

/* ---- Tests ---- */

static void bits_are_equal_for_every_batch_and_lanes(void **state)
{
    (void)state;
    size_t choice = 0;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
        for (size_t b = 0; b < LENGTH(batches); b++)
            for (size_t v = is_slow() ? b % 2 : 0; v < LENGTH(lane_counts); v += is_slow() ? 2 : 1) {
                result expected = alone(kind, batches[b], lane_counts[v]);
                for (size_t i = 0; i < (is_slow() ? 1 : 6); i++) {
                    job j = choose(kind, batches[b], lane_counts[v], ++choice);
                    must_equal(&expected, &j);
                }
                free(expected.list);
            }
}

typedef struct spot {
    network_kind kind;
    int64_t batch;
    int lanes;
} spot;

static const spot spots[] = {
    { NETWORK_CNN, 33, 8 },      { NETWORK_MLP, 100, 5 },     { NETWORK_RESIDUAL, 33, 5 },
    { NETWORK_RESIDUAL, 7, 32 }, { NETWORK_RESIDUAL, 32, 2 },
};

static void bits_are_equal_for_any_threads_and_devices(void **state)
{
    (void)state;
    size_t choice = 0;
    for (size_t s = 0; s < (is_slow() ? 1 : LENGTH(spots)); s++) {
        result expected = alone(spots[s].kind, spots[s].batch, spots[s].lanes);
        for (int threads = 1; threads <= 8; threads++)
            for (int devices = 1; devices <= 8; devices += is_slow() ? 4 : 1) {
                job j = choose(spots[s].kind, spots[s].batch, spots[s].lanes, ++choice);
                j.threads = threads;
                j.devices = devices;
                must_equal(&expected, &j);
            }
        free(expected.list);
    }
}

static void bits_are_equal_for_any_map(void **state)
{
    (void)state;
    static const int devices[] = { 2, 3, 5, 8 };
    for (size_t s = 0; s < LENGTH(spots); s += is_slow() ? 2 : 1) {
        result expected = alone(spots[s].kind, spots[s].batch, spots[s].lanes);
        for (size_t d = SANITIZED; d < LENGTH(devices); d += SANITIZED ? 4 : is_slow() ? 2 : 1)
            for (size_t map = 0; map < LENGTH(maps); map++)
                for (int cut = 0; cut < 2; cut++)
                    must_equal(&expected, &(job){ .kind = spots[s].kind,
                                                  .batch = spots[s].batch,
                                                  .lanes = spots[s].lanes,
                                                  .threads = devices[d] / 2 + 1,
                                                  .devices = devices[d],
                                                  .map = map,
                                                  .cut = cut != 0,
                                                  .stream = (uint32_t)(s * 100 + d) });
        free(expected.list);
    }
}

/* The maps are obeyed: what is given to a device is done by it. */
static void work_goes_where_the_map_says(void **state)
{
    (void)state;
    ls_context *ctx;
    network n;
    ls_executor *executor = NULL;
    mapping m = { .devices = 3, .lanes = 8, .fine = true };
    ls_run_settings settings = { .plan = {
                                     .lanes = 8, .cut_everywhere = true, .map = { .device = mapped, .user = &m } } };
    assert_int_equal(ls_context_open(&(ls_context_options){ .threads = 3, .cpu_devices = 3 }, &ctx), LS_OK);
    assert_int_equal(network_create(ctx, NETWORK_RESIDUAL, &n), LS_OK);
    for (int i = 0; i < 2; i++) {
        m.device = i == 0 ? all_on_the_last : both;
        assert_int_equal(network_set(&n, &settings), LS_OK);
        assert_int_equal(network_step(&n, 33, 0), LS_OK);
        assert_int_equal(network_executor(&n, 33, &executor), LS_OK);
        int64_t tasks = (int64_t)ls_executor_plan(executor)->segment_count * 8;
        ls_device_seconds seconds[3] = { { .busy = 0 } };
        ls_executor_add_seconds(executor, seconds);
        for (int d = 0; d < 3; d++) /* all on the last one: the others compute no lane */
            assert_true((seconds[d].lanes > 0) == (i == 1 || d == 2));
        assert_true(tasks > 8 * 20);
    }
    /* A device without a worker would wait for ever: refused. */
    m.devices = 4;
    m.device = all_on_the_last;
    assert_int_equal(network_set(&n, &settings), LS_OK);
    assert_int_equal(network_step(&n, 33, 0), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "device 3"));
    network_destroy(&n);
    ls_context_close(ctx);
}

/* The hash sees the order of sums: other lanes, other bits. Without this, equal hashes would say
 * little. */
static void the_hash_sees_the_lanes(void **state)
{
    (void)state;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        result a = alone(kind, 33, 5), b = alone(kind, 33, 8);
        if (strcmp(a.hash, b.hash) == 0)
            fail_msg("%s has equal bits with 5 and 8 lanes", network_name(kind));
        free(a.list);
        free(b.list);
    }
}

static void a_mutated_tree_is_noticed(void **state)
{
    (void)state;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
        for (size_t b = 0; b < LENGTH(batches); b += is_slow() ? 3 : 1)
            for (size_t v = 0; v < LENGTH(lane_counts); v++) {
                int64_t batch = batches[b];
                int lanes = lane_counts[v];
                if (lanes < 3 || batch < 3)
                    continue;
                result expected = alone(kind, batch, lanes);
                for (ls_mutation m = LS_MUTATE_SWAP; m <= LS_MUTATE_ARRIVAL; m++) {
                    if (m == LS_MUTATE_SWAP && batch < lanes)
                        continue; /* it swaps lanes 1 and 2, which may both be empty */
                    job j = { .kind = kind, .batch = batch, .lanes = lanes, .threads = 2, .devices = 1, .mutation = m };
                    result r = must_run(&j, false);
                    if (strcmp(r.hash, expected.hash) == 0)
                        fail_msg("%s: mutation %d of the tree was not noticed", describe(&j), (int)m);
                }
                free(expected.list);
            }
}

/* ---- Instruction sets ---- */

#define HASHES (3 * 2 * 65 + 1)

/* The hashes of all networks, each with two batches. */
static ls_status hash_all(char text[HASHES])
{
    text[0] = '\0';
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
        for (int i = 0; i < 2; i++) {
            job j = { .kind = kind, .batch = i ? 33 : 100, .lanes = i ? 8 : 3, .threads = 2, .devices = 2 };
            result r;
            LS_TRY(run_job(&j, &r, false));
            strcat(strcat(text, r.hash), "\n");
        }
    return LS_OK;
}

static void bits_do_not_depend_on_the_instruction_set(void **state)
{
    (void)state;
    static const char *const settings[] = { NULL, "base", "avx2", "avx512" };
    char expected[HASHES];
    assert_int_equal(hash_all(expected), LS_OK);
    assert_int_equal(strlen(expected), HASHES - 1);
    for (size_t i = 0; i < LENGTH(settings); i++) {
        if (settings[i] && !ls_simd_named(settings[i]))
            continue; /* this CPU cannot */
        char *text = run_self("--hash", settings[i], false);
        if (strcmp(text, expected) != 0)
            fail_msg("LOCKSTEP_ISA=%s:\n%s\nhere:\n%s", settings[i] ? settings[i] : "(unset)", text, expected);
        free(text);
    }
}

/* ---- Several at once ---- */

#define CALLERS 3
typedef struct caller {
    ls_context *ctx; /* shared; NULL: one of its own */
    char text[HASHES];
    char error[256];
} caller;

static ls_status hash_in(ls_context *ctx, char text[HASHES])
{
    text[0] = '\0';
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
        for (int i = 0; i < 2; i++) {
            job j = { .kind = kind, .batch = i ? 33 : 100, .lanes = i ? 8 : 3, .devices = 1 };
            result r = { .list = NULL };
            LS_TRY(run_in(ctx, &j, &r, false));
            strcat(strcat(text, r.hash), "\n");
        }
    return LS_OK;
}

static void *call(void *data)
{
    caller *c = data;
    ls_status status = c->ctx ? hash_in(c->ctx, c->text) : hash_all(c->text);
    if (status != LS_OK)
        snprintf(c->error, sizeof(c->error), "%s", ls_last_error());
    return NULL;
}

static void callers_at_the_same_time_have_the_same_bits(void **state)
{
    (void)state;
    char expected[HASHES];
    ls_context *ctx;
    assert_int_equal(hash_all(expected), LS_OK);
    assert_int_equal(ls_context_open(&(ls_context_options){ .threads = 3 }, &ctx), LS_OK);
    for (int shared = 0; shared < 2; shared++) {
        pthread_t threads[CALLERS];
        caller callers[CALLERS];
        for (int i = 0; i < CALLERS; i++) {
            callers[i] = (caller){ .ctx = shared ? ctx : NULL };
            assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
        }
        for (int i = 0; i < CALLERS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < CALLERS; i++) {
            assert_string_equal(callers[i].error, "");
            assert_string_equal(callers[i].text, expected);
        }
    }
    ls_context_close(ctx);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--hash") == 0) {
        char text[HASHES];
        if (hash_all(text) != LS_OK) {
            printf("%s", ls_last_error());
            return 1;
        }
        printf("%s", text);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_equal_for_every_batch_and_lanes),
        cmocka_unit_test(bits_are_equal_for_any_threads_and_devices),
        cmocka_unit_test(bits_are_equal_for_any_map),
        cmocka_unit_test(work_goes_where_the_map_says),
        cmocka_unit_test(the_hash_sees_the_lanes),
        cmocka_unit_test(a_mutated_tree_is_noticed),
        cmocka_unit_test(bits_do_not_depend_on_the_instruction_set),
        cmocka_unit_test(callers_at_the_same_time_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
