/* Memory limits are real: a job that does not fit fails before the first step and reports what
 * would fit, a job that fits trains, and no device ever takes more than its limit, by its own books
 * and by the process's pages. The model is a chain of layers whose activations are kept for the
 * gradients; how much it needs is found by a run without a limit. / */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/context.h"
#include "lockstep.h"
#include "machine.h"

#define LAYERS 4
#define WIDTH  2051 /* values end anywhere in a page */

/* ---- The model ---- */

typedef struct chain {
    ls_graph *graph;
    ls_tensor *x, *wide, *loss, *step;
    ls_tensor *variables[LAYERS];
} chain;

static void make_chain(chain *c, ls_context *ctx)
{
    ls_tensor *gradients[LAYERS], *updates[LAYERS];
    OK(ls_graph_create(ctx, &c->graph));
    c->x = ls_op_input(c->graph, "x", LS_F32, LS_SHAPE(LS_BATCH, WIDTH));
    ls_tensor *y = c->x;
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "layer%d/scale", i);
        c->variables[i] = ls_op_variable(c->graph, name, LS_F32, LS_SHAPE(WIDTH));
        snprintf(name, sizeof(name), "layer%d/tanh", i);
        y = ls_named(ls_op_tanh(ls_op_mul(y, ls_op_shift(c->variables[i], 1))), name);
        c->wide = y;
        y = ls_op_sub(y, ls_op_reduce_mean(y, LS_AXES(0), false)); /* mean of the batch: y is kept until it is known */
    }
    c->loss = ls_op_reduce_mean(ls_op_square(y), LS_ALL_AXES, false);
    OK(ls_gradients(c->loss, c->variables, LAYERS, gradients));
    ls_tensor *rate = ls_op_scalar(c->graph, LS_F32, 0.1);
    for (int i = 0; i < LAYERS; i++)
        updates[i] = ls_op_apply(c->variables[i], gradients[i], LS_APPLY_SGD, .learning_rate = rate);
    c->step = ls_op_group(updates, LAYERS);
    OK(ls_graph_status(c->graph));
    OK(ls_graph_set_lanes(c->graph, 2));
}

static float *samples; /* as many as any test feeds */
#define MOST 2000

static int make_samples(void **state)
{
    (void)state;
    samples = malloc((size_t)MOST * WIDTH * sizeof(*samples));
    for (size_t i = 0; samples && i < (size_t)MOST * WIDTH; i++)
        samples[i] = (float)(i % 13) / 13;
    return samples ? 0 : -1;
}

static int free_samples(void **state)
{
    (void)state;
    free(samples);
    return 0;
}

static ls_status train(chain *c, int64_t batch)
{
    ls_feed feed = { c->x, ls_array_of(LS_F32, LS_SHAPE(batch, WIDTH), samples) };
    return ls_eval(c->graph, &feed, 1, (ls_tensor *[]){ c->loss, c->step }, 2);
}

/* ---- A machine with one limit ---- */

typedef struct limited {
    const char *device;
    size_t limit; /* 0: none */
    bool growth;
    int64_t batch;
} limited;

static void open_limited(machine *m, const limited *l)
{
    bool on_gpu = l->device[0] == 'g';
    machine_create(m, (machine_settings){ .gpu = { .devices = on_gpu, .memory = LS_MIB(512), .delay = -1 },
                                          .options = { .threads = 2 } });
    if (l->limit)
        OK(ls_set_logical_devices(m->ctx, l->device, &(ls_logical_device){ l->limit }, 1));
    if (l->growth || (on_gpu && !l->limit))
        OK(ls_set_memory_growth(m->ctx, l->device, true));
}

/* The most memory that the device had in a step. */
static size_t need_of(const char *device, int64_t batch)
{
    machine m;
    chain c;
    open_limited(&m, &(limited){ .device = device });
    make_chain(&c, m.ctx);
    OK(train(&c, batch));
    size_t peak = machine_memory(m.ctx, device).peak;
    ls_graph_destroy(c.graph);
    machine_close(&m);
    return peak;
}

/* CPUs large enough that the process's own few MiB do not matter; GPUs compute with the reference
 * kernels. */
static const limited devices[] = {
    { .device = "cpu:0", .batch = 1500, .growth = false },
    { .device = "cpu:0", .batch = 1500, .growth = true },
    { .device = "gpu:0", .batch = SANITIZED ? 40 : 150, .growth = false },
    { .device = "gpu:0", .batch = SANITIZED ? 40 : 150, .growth = true },
};

static void must_stay_within(machine *m, const limited *l)
{
    ls_memory_info info = machine_memory(m->ctx, l->device);
    assert_int_equal(info.limit, l->limit);
    assert_true(info.in_use <= info.peak && info.in_use <= info.reserved);
    assert_true(info.peak <= info.limit);
    if (info.reserved > l->limit || (!l->growth && info.reserved < l->limit - 64))
        fail_msg("%s with%s growth reserves %zu of %zu", l->device, l->growth ? "" : "out", info.reserved, l->limit);
}

/* ---- Too much ---- */

/* The batch that a message says would fit. */
static int64_t batch_that_fits(const char *message)
{
    long long fits = 0, not = 0;
    const char *at = strstr(message, "a batch of ");
    if (!at || sscanf(at, "a batch of %lld would fit, %lld does not", &fits, &not ) != 2)
        fail_msg("no batch that would fit in: %s", message);
    return fits;
}

static void read_all(const chain *c, float *to)
{
    for (int i = 0; i < LAYERS; i++)
        OK(ls_variable_get(c->variables[i], to + i * WIDTH, WIDTH * sizeof(*to)));
}

static void what_does_not_fit_fails_before_it_runs(void **state)
{
    (void)state;
    static float before[LAYERS * WIDTH], after[LAYERS * WIDTH];
    for (size_t i = 0; i < LENGTH(devices); i++) {
        machine m;
        chain c;
        limited l = devices[i];
        char need[32], limit[32];
        size_t whole = need_of(l.device, l.batch);
        l.limit = whole * 2 / 3;
        open_limited(&m, &l);
        make_chain(&c, m.ctx);
        read_all(&c, before);
        size_t in_use = machine_memory(m.ctx, l.device).in_use;
        snprintf(need, sizeof(need), "needs %.1f MiB", (double)(whole - in_use) / 1048576);
        snprintf(limit, sizeof(limit), "the limit is %.1f MiB", (double)l.limit / 1048576);
        for (int again = 0; again < 2; again++) {
            FAILS(train(&c, l.batch), LS_ERR_MEMORY, l.device[0] == 'g' ? GPU(0) : CPU(0), "needs ", limit, "/tanh",
                  "MiB", "would fit");
            if (l.device[0] == 'g') /* a CPU also counts fetched values */
                machine_has(ls_last_error(), need);
        }
        if (m.g)
            assert_int_equal(gpu_counted(m.g).calls[GPU_RUN], 0);
        read_all(&c, after);
        assert_memory_equal(after, before, sizeof(before));
        assert_int_equal(machine_memory(m.ctx, l.device).in_use, in_use);
        OK(train(&c, 1)); /* it works on */
        must_stay_within(&m, &l);
        ls_graph_destroy(c.graph);
        machine_close(&m);
    }
}

static void the_largest_batch_that_fits_does(void **state)
{
    (void)state;
    static const size_t parts[] = { 20, 33, 47, 58, 66, 81, 93 };
    for (size_t i = 0; i < LENGTH(devices); i++)
        for (size_t p = SANITIZED ? 5 : 0; p < LENGTH(parts); p++) {
            machine m;
            chain c;
            limited l = devices[i];
            l.batch = l.batch / 4;
            l.limit = need_of(l.device, l.batch) * parts[p] / 100;
            open_limited(&m, &l);
            make_chain(&c, m.ctx);
            assert_int_equal(train(&c, l.batch), LS_ERR_MEMORY);
            int64_t fits = batch_that_fits(ls_last_error());
            assert_true(fits > 0 && fits < l.batch);
            assert_int_equal(train(&c, fits + 1), LS_ERR_MEMORY);
            machine_has(ls_last_error(), "would fit");
            OK(train(&c, fits));
            OK(train(&c, fits));
            must_stay_within(&m, &l);
            assert_int_equal(train(&c, fits + 1), LS_ERR_MEMORY); /* also when there was a plan to give way */
            OK(train(&c, fits));
            must_stay_within(&m, &l);
            ls_graph_destroy(c.graph);
            machine_close(&m);
        }
}

static void not_even_one_sample_may_fit(void **state)
{
    (void)state;
    machine m;
    chain c;
    limited l = { .device = "gpu:0", .limit = 16384 };
    open_limited(&m, &l);
    make_chain(&c, m.ctx);
    FAILS(train(&c, 9), LS_ERR_MEMORY, "not even a batch of 1");
    FAILS(train(&c, 1), LS_ERR_MEMORY, "not even a batch of 1");
    ls_graph_destroy(c.graph);
    machine_close(&m);
}

/* ---- Enough ---- */

static void what_fits_trains_within_the_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(devices); i++) {
        machine m;
        chain c;
        limited l = devices[i];
        l.limit = need_of(l.device, l.batch) * 10 / 9;
        size_t resident = machine_resident();
        open_limited(&m, &l);
        make_chain(&c, m.ctx);
        for (int step = 0; step < 3; step++) {
            OK(train(&c, l.batch));
            must_stay_within(&m, &l);
        }
        size_t grown = machine_resident() - resident;
        if (!SANITIZED && l.device[0] == 'c' && grown > l.limit)
            fail_msg("the process has grown by %zu MiB, the limit is %zu MiB", grown >> 20, l.limit >> 20);
        ls_graph_destroy(c.graph);
        assert_int_equal(machine_memory(m.ctx, l.device).in_use, 0);
        machine_close(&m);
    }
}

static void growth_takes_what_is_needed_and_keeps_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(devices); i++) {
        machine m;
        chain c;
        limited l = devices[i];
        if (!l.growth)
            continue;
        l.limit = need_of(l.device, l.batch) * 3;
        open_limited(&m, &l);
        assert_int_equal(machine_memory(m.ctx, l.device).reserved, 0);
        make_chain(&c, m.ctx);
        size_t last = 0, sizes[] = { (size_t)l.batch / 8, (size_t)l.batch / 3, (size_t)l.batch };
        for (size_t s = 0; s < LENGTH(sizes); s++) {
            OK(train(&c, (int64_t)sizes[s]));
            ls_memory_info info = machine_memory(m.ctx, l.device);
            assert_true(info.reserved > last && info.reserved <= l.limit);
            assert_true(info.reserved >= info.in_use && info.reserved - info.in_use < LS_MIB(2));
            last = info.reserved;
        }
        ls_graph_destroy(c.graph);
        assert_int_equal(machine_memory(m.ctx, l.device).in_use, 0);
        assert_int_equal(machine_memory(m.ctx, l.device).reserved, last); /* kept */
        make_chain(&c, m.ctx);
        OK(train(&c, l.batch));
        assert_int_equal(machine_memory(m.ctx, l.device).reserved, last); /* and used again */
        ls_graph_destroy(c.graph);
        machine_close(&m);
    }
}

static void plans_give_way_to_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(devices); i++) {
        machine m;
        chain c;
        limited l = devices[i];
        l.batch /= 2;
        l.limit = need_of(l.device, l.batch) * 13 / 10;
        open_limited(&m, &l);
        make_chain(&c, m.ctx);
        for (int round = 0; round < 3; round++) {
            OK(train(&c, l.batch));
            OK(train(&c, l.batch - 5 - round));
            for (int part = 9; part > 0; part--) /* and larger ones to smaller ones */
                OK(train(&c, l.batch * (10 - part) / 10 + round));
            must_stay_within(&m, &l);
        }
        ls_graph_destroy(c.graph);
        machine_close(&m);
    }
}

/* Each of several devices has its own limit. */
static void logical_devices_have_limits_of_their_own(void **state)
{
    (void)state;
    static const char *const kinds[] = { "cpu:0", "gpu:0" };
    for (size_t k = 0; k < LENGTH(kinds); k++) {
        machine m;
        chain c;
        ls_logical_device parts[] = { { LS_MIB(40) }, { LS_MIB(1) } };
        machine_create(&m,
                       (machine_settings){ .gpu = { .devices = (int)k, .delay = -1 }, .options = { .threads = 2 } });
        OK(ls_set_logical_devices(m.ctx, kinds[k], parts, 2));
        make_chain(&c, m.ctx);
        FAILS(train(&c, 150), LS_ERR_MEMORY, k ? GPU(1) : CPU(1), "the limit is 1.0 MiB");
        OK(train(&c, 4));
        ls_graph_destroy(c.graph);
        machine_close(&m);
    }
}

static ls_status fetch(chain *c, int64_t batch)
{
    ls_feed feed = { c->x, ls_array_of(LS_F32, LS_SHAPE(batch, WIDTH), samples) };
    return ls_eval(c->graph, &feed, 1, &c->wide, 1);
}

/* A value that is fetched takes memory, too. */
static void what_is_fetched_is_counted(void **state)
{
    (void)state;
    for (int growth = 0; growth < 2; growth++) {
        machine m;
        chain c;
        limited l = { .device = "cpu:0", .limit = LS_MIB(12), .growth = growth != 0 };
        open_limited(&m, &l);
        make_chain(&c, m.ctx);
        assert_int_equal(fetch(&c, 900), LS_ERR_MEMORY);
        int64_t fits = batch_that_fits(ls_last_error());
        OK(fetch(&c, fits));
        OK(fetch(&c, fits));
        must_stay_within(&m, &l);
        assert_int_equal(fetch(&c, fits + 1), LS_ERR_MEMORY);
        OK(fetch(&c, fits));
        ls_graph_destroy(c.graph);
        assert_int_equal(machine_memory(m.ctx, "cpu:0").in_use, 0);
        machine_close(&m);
    }
}

/* The plan is there, but in the meantime something else has taken what the value needs. */
static void a_fetch_that_finds_no_memory_is_named(void **state)
{
    (void)state;
    machine m;
    chain c;
    limited l = { .device = "cpu:0", .limit = LS_MIB(24) };
    open_limited(&m, &l);
    make_chain(&c, m.ctx);
    OK(fetch(&c, 300));
    OK(fetch(&c, 200)); /* gives up the larger value, not the plan */
    ls_graph *greedy = NULL;
    ls_memory_info info;
    OK(ls_graph_create(m.ctx, &greedy));
    while (info = machine_memory(m.ctx, "cpu:0"), l.limit - info.in_use > LS_MIB(1))
        ls_op_variable(greedy, NULL, LS_F32, LS_SHAPE(1 << 16));
    OK(ls_graph_status(greedy));
    FAILS(fetch(&c, 300), LS_ERR_MEMORY, CPU(0), "layer3/tanh (op tanh)", "2.35 MiB");
    assert_int_equal(machine_memory(m.ctx, "cpu:0").in_use, info.in_use);
    OK(fetch(&c, 200));
    ls_graph_destroy(greedy);
    OK(fetch(&c, 300));
    must_stay_within(&m, &l);
    ls_graph_destroy(c.graph);
    machine_close(&m);
}

static void variables_that_find_no_memory_are_named(void **state)
{
    (void)state;
    machine m;
    ls_graph *graph = NULL;
    limited l = { .device = "cpu:0", .limit = LS_MIB(2) };
    open_limited(&m, &l);
    OK(ls_graph_create(m.ctx, &graph));
    ls_op_variable(graph, "embedding/table", LS_F32, LS_SHAPE(1024, 1024));
    FAILS(ls_graph_status(graph), LS_ERR_MEMORY, "embedding/table", "4.00 MiB", "limit 2.00 MiB", CPU(0));
    ls_graph_destroy(graph);
    OK(ls_graph_create(m.ctx, &graph));
    ls_op_variable(graph, "small", LS_F32, LS_SHAPE(1024, 256));
    OK(ls_graph_status(graph));
    assert_int_equal(machine_memory(m.ctx, "cpu:0").in_use, LS_MIB(1));
    ls_graph_destroy(graph);
    machine_close(&m);
}

/* ---- Reports ---- */

static void memory_is_listed_by_name(void **state)
{
    (void)state;
    machine m;
    chain c;
    char *text = NULL;
    open_limited(&m, &(limited){ .device = "gpu:0", .growth = true });
    make_chain(&c, m.ctx);
    OK(train(&c, 20));
    OK(ls_format_memory(m.ctx, "cpu:0", &text));
    for (int i = 0; i < LAYERS; i++) {
        char line[64];
        snprintf(line, sizeof(line), "MiB layer%d/scale\n", i);
        machine_has(text, line);
    }
    free(text);
    OK(ls_format_memory(m.ctx, "gpu:0", &text));
    machine_has(text, "MiB plan\n");
    machine_lacks(text, "scale");
    free(text);
    ls_graph_destroy(c.graph);
    OK(ls_format_memory(m.ctx, "gpu:0", &text));
    assert_string_equal(text, "");
    free(text);
    assert_int_not_equal(ls_format_memory(m.ctx, "gpu:9", &text), LS_OK);
    machine_has(ls_last_error(), "gpu:9");
    machine_close(&m);
}

static void a_run_can_be_explained_first(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(devices); i++) {
        machine m;
        chain c;
        limited l = devices[i];
        char *text = NULL, words[64];
        bool fit = true;
        l.batch /= 4;
        l.limit = need_of(l.device, l.batch) * 2 / 3;
        open_limited(&m, &l);
        make_chain(&c, m.ctx);
        ls_tensor *fetches[] = { c.loss, c.step };
        assert_int_equal(train(&c, l.batch), LS_ERR_MEMORY);
        int64_t fits = batch_that_fits(ls_last_error());
        OK(ls_explain_memory(c.graph, fetches, 2, l.batch, &fit, &text));
        machine_has(text, l.device[0] == 'c' ? CPU(0) ": needs " : GPU(0) ": needs ");
        machine_has(text, "does not fit");
        assert_false(fit);
        snprintf(words, sizeof(words), "a batch of %lld would fit, %lld does not\n", (long long)fits,
                 (long long)l.batch);
        machine_has(text, words);
        free(text);
        OK(ls_explain_memory(c.graph, fetches, 2, fits, &fit, &text));
        machine_has(text, ": fits");
        machine_lacks(text, "does not fit");
        assert_true(fit);
        free(text);
        ls_graph_destroy(c.graph);
        machine_close(&m);
    }
}

/* A control group gives a process less than the machine has: without limits of devices a run is
 * made, with a warning. */
static void the_memory_of_the_process_is_compared(void **state)
{
    (void)state;
    enum { SAMPLES = 300 };
    machine m;
    chain c;
    char *text = NULL;
    bool fit = true;
    open_limited(&m, &(limited){ .device = "cpu:0" });
    make_chain(&c, m.ctx);
    ls_tensor *fetches[] = { c.loss, c.step };
    OK(ls_explain_memory(c.graph, fetches, 2, SAMPLES, &fit, &text));
    assert_true(fit);
    free(text);
    m.ctx->memory = (ls_host_memory){ .bytes = need_of("cpu:0", SAMPLES) * 2 / 3, .reason = "cgroup limit (a file)" };
    OK(ls_explain_memory(c.graph, fetches, 2, SAMPLES, &fit, &text));
    assert_false(fit);
    machine_has(text, "MiB: cgroup limit (a file): does not fit\n");
    machine_has(text, "would fit, 300 does not\n");
    free(text);
    OK(train(&c, SAMPLES));
    OK(train(&c, SAMPLES));
    machine_has(m.log, "MiB: cgroup limit (a file); the system may end it: use a smaller batch");
    assert_int_equal(machine_count(m.log, "cgroup limit"), 1);
    ls_graph_destroy(c.graph);
    machine_close(&m);
}

/* The line of a text about a device; empty where it has none. */
static void line_about(const char *text, const char *device, char *out, size_t room)
{
    const char *at = strstr(text, device);
    snprintf(out, room, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
}

/* A fetched value is held by the device of its tensor, and counted there before a run and after
 * it. */
static void what_is_fetched_is_counted_where_it_is_held(void **state)
{
    (void)state;
    enum { SAMPLES = 300 };
    machine m;
    ls_graph *graph;
    ls_tensor *y = NULL;
    char *text = NULL, line[512];
    bool fits = false;
    machine_create(&m, (machine_settings){ .options = { .cpu_devices = 2 } });
    OK(ls_graph_create(m.ctx, &graph));
    ls_tensor *x = ls_op_input(graph, "x", LS_F32, LS_SHAPE(LS_BATCH, WIDTH));
    LS_WITH_DEVICE(graph, "cpu:1")
    y = ls_named(ls_op_tanh(x), "there");
    OK(ls_explain_memory(graph, &y, 1, SAMPLES, &fits, &text));
    line_about(text, CPU(0), line, sizeof(line));
    machine_lacks(line, "fetched values");
    line_about(text, CPU(1), line, sizeof(line));
    machine_has(line, "fetched values 2.3");
    free(text);
    ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, WIDTH), samples) };
    size_t before = machine_memory(m.ctx, "cpu:0").in_use;
    OK(ls_eval(graph, &feed, 1, &y, 1));
    assert_true(machine_memory(m.ctx, "cpu:1").in_use >= SAMPLES * WIDTH * sizeof(float));
    OK(ls_format_memory(m.ctx, "cpu:1", &text));
    machine_has(text, "there");
    free(text);
    OK(ls_format_memory(m.ctx, "cpu:0", &text));
    machine_lacks(text, "there");
    free(text);
    assert_true(machine_memory(m.ctx, "cpu:0").in_use - before < SAMPLES * WIDTH * sizeof(float));
    ls_graph_destroy(graph);
    machine_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_fails_before_it_runs),
        cmocka_unit_test(the_largest_batch_that_fits_does),
        cmocka_unit_test(not_even_one_sample_may_fit),
        cmocka_unit_test(what_fits_trains_within_the_limit),
        cmocka_unit_test(growth_takes_what_is_needed_and_keeps_it),
        cmocka_unit_test(plans_give_way_to_others),
        cmocka_unit_test(logical_devices_have_limits_of_their_own),
        cmocka_unit_test(what_is_fetched_is_counted),
        cmocka_unit_test(what_is_fetched_is_counted_where_it_is_held),
        cmocka_unit_test(a_fetch_that_finds_no_memory_is_named),
        cmocka_unit_test(variables_that_find_no_memory_are_named),
        cmocka_unit_test(memory_is_listed_by_name),
        cmocka_unit_test(a_run_can_be_explained_first),
        cmocka_unit_test(the_memory_of_the_process_is_compared),
    };
    return cmocka_run_group_tests(tests, make_samples, free_samples);
}
