/* A device fails: at any call of its backend, at once or when the work is done. The run names the
 * node and the device, nothing was written, nothing is lost, and the next run is right. The
 * networks are cut in the middle over two GPUs; the failing call is the first, the second, ...
 * until none is left to fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amount.h"
#include "machine.h"
#include "networks.h"

#define BATCH 5
#define LANES 2

static const char *halves(void *user, int layer)
{
    (void)user;
    return layer == 0 ? "gpu:0" : layer == 1 ? "gpu:1" : NULL;
}

static const network_places places = { .device = halves };

typedef struct failing {
    gpu_call call;
    bool late, copies, growth;
    int before; /* steps that succeed first: what is only done once is done */
    network_kind kind;
} failing;

static void open_network(machine *m, network *n, const failing *f)
{
    machine_create(m,
                   (machine_settings){ .gpu = { .devices = 2, .memory = LS_MIB(8), .delay = -1, .copies = f->copies },
                                       .options = { .threads = 2 } });
    if (f->growth)
        OK(ls_set_memory_growth(m->ctx, "gpu:0-1", true));
    OK(network_create_placed(m->ctx, f->kind, &places, n));
    OK(ls_graph_set_lanes(n->graph, LANES));
    for (int i = 0; i < f->before; i++)
        OK(network_step(n, BATCH, (uint64_t)i));
}

static void close_network(machine *m, network *n)
{
    network_destroy(n);
    for (int i = 0; i < 2; i++)
        assert_int_equal(machine_memory(m->ctx, i ? "gpu:1" : "gpu:0").in_use, 0);
    machine_close(m);
}

/* The state after one more step than `before`, without a failure. */
static void state_when_all_is_well(const failing *f, char hex[65])
{
    machine m;
    network n;
    open_network(&m, &n, f);
    OK(network_step(&n, BATCH, (uint64_t)f->before));
    OK(network_state(&n, hex));
    close_network(&m, &n);
}

static void check_message(const failing *f, int nth)
{
    const char *text = ls_last_error();
    bool device = strstr(text, GPU(0)) || strstr(text, GPU(1));
    bool node = strstr(text, "(op ") != NULL;
    if (!device || !node)
        fail_msg("%s %d%s: no %s in \"%s\"", gpu_call_name(f->call), nth, f->late ? ", late" : "",
                 device ? "node" : "device", text);
}

/* False: there was nothing to fail. A variable that one device cannot give may come from another:
 * then all is well. */
static bool fail_once(const failing *f, int nth, const char *expected)
{
    machine m;
    network n;
    char before[65], after[65];
    open_network(&m, &n, f);
    OK(network_state(&n, before));
    int64_t calls = gpu_counted(m.g).calls[f->call];
    (f->late ? gpu_fail_late : gpu_fail_next)(m.g, f->call, nth);
    ls_status status = network_step(&n, BATCH, (uint64_t)f->before);
    bool failed = status != LS_OK, met = gpu_counted(m.g).calls[f->call] >= calls + nth;
    assert_true(met || !failed);
    assert_true(failed || !met || f->call == GPU_COPY);
    gpu_fail_next(m.g, f->call, 0);
    if (failed) {
        assert_int_equal(status, f->call == GPU_ALLOC ? LS_ERR_MEMORY : LS_ERR_DEVICE);
        check_message(f, nth);
        OK(network_state(&n, after));
        assert_string_equal(after, before);
        OK(network_step(&n, BATCH, (uint64_t)f->before));
    }
    OK(network_state(&n, after));
    if (strcmp(after, expected) != 0)
        fail_msg("after %s %d%s of %s the next run gave other bits", gpu_call_name(f->call), nth,
                 f->late ? ", late," : "", network_name(f->kind));
    close_network(&m, &n);
    return met;
}

static void fail_all(failing f, int least)
{
    char expected[65];
    int nth = 1, step = SANITIZED ? 7 : test_is_sample() ? 2 : 1;
    state_when_all_is_well(&f, expected);
    while (fail_once(&f, nth, expected))
        nth += step;
    if (nth <= least) /* else the test says little */
        fail_msg("only %d %ss were failed", nth - 1, gpu_call_name(f.call));
}

/* ---- Tests ---- */

static void memory_that_cannot_be_had(void **state)
{
    (void)state;
    fail_all((failing){ .call = GPU_ALLOC, .growth = true }, 2);
    fail_all((failing){ .call = GPU_ALLOC, .growth = true, .kind = NETWORK_RESIDUAL }, 2);
}

static void plans_that_cannot_be_made(void **state)
{
    (void)state;
    fail_all((failing){ .call = GPU_PLAN }, 8);
}

static void calls_that_fail_at_once(void **state)
{
    (void)state;
    static const gpu_call calls[] = { GPU_UPLOAD, GPU_DOWNLOAD, GPU_RUN, GPU_SYNC };
    for (size_t i = 0; i < LENGTH(calls); i++)
        for (int before = 0; before < 2; before++)
            fail_all((failing){ .call = calls[i], .before = before }, 8);
    for (int before = 0; before < 2; before++)
        fail_all((failing){ .call = GPU_COPY, .before = before, .copies = true }, 3);
}

static void work_that_fails_later(void **state)
{
    (void)state;
    static const gpu_call calls[] = { GPU_UPLOAD, GPU_RUN };
    for (size_t i = 0; i < LENGTH(calls); i++)
        for (int before = 0; before < 2; before++)
            fail_all((failing){ .call = calls[i], .late = true, .before = before }, 8);
    for (int before = 0; before < 2; before++)
        fail_all((failing){ .call = GPU_COPY, .late = true, .before = before, .copies = true }, 3);
}

static void dropout_and_its_constants_survive_failures(void **state)
{
    (void)state;
    fail_all((failing){ .call = GPU_UPLOAD, .late = true, .kind = NETWORK_MLP }, 8);
    fail_all((failing){ .call = GPU_UPLOAD, .kind = NETWORK_MLP, .copies = true, .before = 1 }, 8);
}

/* Work that fails after a call that fails at once: both belong to that run, and the next one
 * reports neither. */
static void two_failures_end_one_run(void **state)
{
    (void)state;
    static const gpu_call later[] = { GPU_RUN, GPU_UPLOAD, GPU_DOWNLOAD };
    failing f = { .copies = true, .before = 1 };
    char expected[65], found[65];
    state_when_all_is_well(&f, expected);
    for (size_t i = 0; i < LENGTH(later); i++)
        for (int nth = 1; nth < (SANITIZED ? 4 : 24); nth++) {
            machine m;
            network n;
            open_network(&m, &n, &f);
            gpu_fail_late(m.g, later[i] == GPU_UPLOAD ? GPU_RUN : GPU_UPLOAD, nth);
            gpu_fail_next(m.g, later[i], nth);
            ls_status status = network_step(&n, BATCH, 1);
            assert_true(status == LS_ERR_DEVICE || nth > 8);
            for (int call = 0; call < GPU_CALLS; call++)
                gpu_fail_next(m.g, (gpu_call)call, 0);
            if (status != LS_OK)
                OK(network_step(&n, BATCH, 1));
            OK(network_state(&n, found));
            assert_string_equal(found, expected);
            close_network(&m, &n);
        }
}

/* (x + constant) * constant on one GPU: two uploads and a run, one and another, a download. */
typedef struct product {
    machine m;
    ls_graph *graph;
    ls_tensor *y;
    ls_feed feed;
    float x[4];
} product;

static const float added[] = { 1, 2, 3, 4 }, factor[] = { 10, 20, 30, 40 };

static void open_product(product *p)
{
    *p = (product){ .x = { 1, 1, 1, 1 } };
    machine_create(&p->m, (machine_settings){ .gpu = { .devices = 1, .memory = LS_MIB(1) } });
    OK(ls_graph_create(p->m.ctx, &p->graph));
    ls_tensor *in = ls_op_input(p->graph, "x", LS_F32, LS_SHAPE(4));
    p->y = ls_op_mul(ls_op_add(in, ls_op_constant(p->graph, LS_F32, LS_SHAPE(4), added)),
                     ls_op_constant(p->graph, LS_F32, LS_SHAPE(4), factor));
    p->feed = (ls_feed){ in, ls_array_of(LS_F32, LS_SHAPE(4), p->x) };
}

static ls_status run_product(product *p)
{
    return ls_eval(p->graph, &p->feed, 1, &p->y, 1);
}

static void close_product(product *p)
{
    float found[4];
    OK(ls_read(p->y, found, sizeof(found)));
    for (int i = 0; i < 4; i++)
        assert_true(found[i] == (1 + added[i]) * factor[i]);
    ls_graph_destroy(p->graph);
    machine_close(&p->m);
}

/* A constant goes to a device once, and again if that failed. */
static void constants_are_brought_again(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++)
        for (int nth = 1; nth <= 3; nth++) {
            product p;
            open_product(&p);
            (late ? gpu_fail_late : gpu_fail_next)(p.m.g, GPU_UPLOAD, nth);
            FAILS(run_product(&p), LS_ERR_DEVICE, GPU(0), "(op ");
            int64_t before = gpu_counted(p.m.g).calls[GPU_UPLOAD];
            OK(run_product(&p));
            assert_int_equal(gpu_counted(p.m.g).calls[GPU_UPLOAD], before + 3);
            OK(run_product(&p));
            assert_int_equal(gpu_counted(p.m.g).calls[GPU_UPLOAD], before + 4); /* x alone */
            close_product(&p);
        }
}

/* Work that fails after a call that fails at once: the next run reports neither. */
static void failures_are_reported_to_their_own_run(void **state)
{
    (void)state;
    static const gpu_call calls[] = { GPU_RUN, GPU_DOWNLOAD };
    for (size_t i = 0; i < LENGTH(calls); i++)
        for (int nth = 1; nth <= 2; nth++) {
            product p;
            open_product(&p);
            gpu_fail_late(p.m.g, GPU_UPLOAD, nth);
            gpu_fail_next(p.m.g, calls[i], 1);
            FAILS(run_product(&p), LS_ERR_DEVICE, GPU(0), gpu_call_name(calls[i]));
            OK(run_product(&p));
            close_product(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_cannot_be_had),
        cmocka_unit_test(plans_that_cannot_be_made),
        cmocka_unit_test(calls_that_fail_at_once),
        cmocka_unit_test(work_that_fails_later),
        cmocka_unit_test(dropout_and_its_constants_survive_failures),
        cmocka_unit_test(two_failures_end_one_run),
        cmocka_unit_test(constants_are_brought_again),
        cmocka_unit_test(failures_are_reported_to_their_own_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
