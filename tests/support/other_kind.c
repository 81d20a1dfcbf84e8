/* Devices of any kind: see other_kind.h. */
#include "other_kind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/gpu.h"
#include "lockstep.h"
#include "machine.h"
#include "samples.h"

ls_context *other_open(const other_kind *k, const char *devices)
{
    ls_context *ctx = NULL;
    ls_context_options options = { .threads = 1 };
    if (*devices)
        assert_true(k->open(&options, devices, &ctx));
    else
        OK(ls_context_open(&options, &ctx));
    return ctx;
}

/* ---- Bits ---- */

static const char *place_of(void *user, int layer)
{
    return ((const other_job *)user)->places[layer % 2];
}

void other_train(const other_kind *k, other_job *j, const char *devices, char hash[65])
{
    ls_context *ctx = other_open(k, devices);
    network n;
    OK(network_create_placed(ctx, j->kind, &(network_places){ place_of, j }, &n));
    OK(ls_graph_set_lanes(n.graph, j->lanes));
    if (network_train(&n, j->batch, OTHER_STEPS, hash) != LS_OK)
        fail_msg("%s on \"%s\", batch %d, %d lanes: %s", network_name(j->kind), devices, (int)j->batch, j->lanes,
                 ls_last_error());
    network_destroy(&n);
    ls_context_close(ctx);
}

static void must_equal(const other_kind *k, other_job *j, const char *devices, const char *expected)
{
    char hash[65];
    other_train(k, j, devices, hash);
    if (strcmp(hash, expected) != 0)
        fail_msg("%s on \"%s\", batch %d, %d lanes: %s, on the CPU: %s", network_name(j->kind), devices, (int)j->batch,
                 j->lanes, hash, expected);
}

void other_trains_as_the_cpu(const other_kind *k)
{
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        other_job j = { kind, kind == NETWORK_CNN ? 33 : 7, kind == NETWORK_MLP ? 16 : 3, { NULL, NULL } };
        char expected[65];
        other_train(k, &j, "cpu:0", expected);
        must_equal(k, &j, k->first, expected);
        must_equal(k, &j, k->both, expected);
    }
}

void other_shares_layers_with_the_cpu(const other_kind *k)
{
    const char *const places[][2] = { { "cpu:0", k->first }, { k->second, "cpu:0" } };
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
        other_job alone = { kind, 7, 3, { NULL, NULL } }, mixed = alone;
        char expected[65];
        memcpy(mixed.places, places[kind % 2], sizeof(mixed.places));
        other_train(k, &alone, "cpu:0", expected);
        must_equal(k, &mixed, k->both, expected);
    }
}

/* ---- Copies ---- */

static bool is_weight(const network *n, const char *tensor)
{
    char label[LS_NODE_TEXT];
    for (size_t i = 0; i < n->trained_count; i++)
        if (strcmp(ls_node_label(n->gradients[i], label), tensor) == 0 ||
            strcmp(ls_node_label(n->trained[i], label), tensor) == 0)
            return true;
    return false;
}

/* Bytes of weights and gradients that went to the host or came from it; the CPU is device 0. */
static size_t with_the_host(ls_context *ctx, const network *n)
{
    ls_copy_info *list;
    size_t count, bytes = 0;
    OK(ls_list_copies(ctx, &list, &count));
    for (size_t i = 0; i < count; i++)
        bytes += (list[i].from == 0 || list[i].to == 0) && is_weight(n, list[i].tensor) ? list[i].bytes : 0;
    free(list);
    return bytes;
}

void other_moves_no_weights(const other_kind *k)
{
    const char *const devices[] = { k->first, k->both };
    for (size_t d = 0; d < LENGTH(devices); d++)
        for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
            ls_context *ctx = other_open(k, devices[d]);
            network n;
            OK(network_create(ctx, kind, &n));
            OK(ls_graph_set_lanes(n.graph, 4));
            OK(network_step(&n, 8, 0));
            size_t before = with_the_host(ctx, &n);
            assert_true(before > 0); /* the first brings them */
            OK(network_step(&n, 8, 1));
            OK(network_step(&n, 8, 2));
            assert_int_equal(with_the_host(ctx, &n), before);
            network_destroy(&n);
            ls_context_close(ctx);
        }
}

/* ---- Lanes together ---- */

/* Launches of a step that is not the first. */
static int64_t launches_of(const other_kind *k, const char *devices, network_kind kind, int lanes)
{
    ls_context *ctx = other_open(k, devices);
    network n;
    OK(network_create(ctx, kind, &n));
    OK(ls_graph_set_lanes(n.graph, lanes));
    OK(network_step(&n, 64, 0));
    int64_t before = ls_gpu_launches();
    OK(network_step(&n, 64, 1));
    int64_t count = ls_gpu_launches() - before;
    network_destroy(&n);
    ls_context_close(ctx);
    return count;
}

void other_launches_all_lanes_at_once(const other_kind *k)
{
    static const int lanes[] = { 8, 4, 32 };
    const char *const devices[] = { k->first, k->both };
    for (size_t d = 0; d < LENGTH(devices); d++)
        for (network_kind kind = 0; kind < NETWORK_KINDS; kind++) {
            int64_t first = launches_of(k, devices[d], kind, lanes[0]);
            assert_true(first > 0);
            for (size_t i = 1; i < LENGTH(lanes); i++) {
                int64_t count = launches_of(k, devices[d], kind, lanes[i]);
                if (count != first)
                    fail_msg("%s on \"%s\": %d launches with %d lanes, %d with %d", network_name(kind), devices[d],
                             (int)count, lanes[i], (int)first, lanes[0]);
            }
        }
}

/* Less memory, fewer lanes at once, more launches; the same bits. */
void other_runs_as_many_lanes_as_fit(const other_kind *k)
{
    static const size_t limits[] = { 0, 6 << 20, 3 << 20 };
    other_job j = { NETWORK_CNN, 250, 16, { NULL, NULL } };
    int64_t launches[LENGTH(limits)];
    char expected[65], hash[65];
    other_train(k, &j, "cpu:0", expected);
    for (size_t i = 0; i < LENGTH(limits); i++) {
        ls_context *ctx;
        network n;
        assert_true(k->open(&(ls_context_options){ .threads = 1 }, k->first, &ctx));
        if (limits[i])
            OK(ls_set_logical_devices(ctx, k->first, &(ls_logical_device){ limits[i] }, 1));
        OK(network_create(ctx, j.kind, &n));
        OK(ls_graph_set_lanes(n.graph, j.lanes));
        launches[i] = -ls_gpu_launches();
        OK(network_train(&n, j.batch, OTHER_STEPS, hash));
        launches[i] += ls_gpu_launches();
        assert_string_equal(hash, expected);
        network_destroy(&n);
        ls_context_close(ctx);
        if (i > 0 && launches[i] <= launches[i - 1])
            fail_msg("%zu bytes: %d launches, %d with more", limits[i], (int)launches[i], (int)launches[i - 1]);
    }
}

/* ---- Chains ---- */

#define CHAIN_BATCH  13
#define CHAIN_WIDEST 33
#define CHAIN_MOST   3 /* fetches */

/* The result of a chain, and its number of launches; `which` of five, on x [batch, 2, width]. */
static int64_t run_chain(ls_context *ctx, int which, int64_t width, float *out)
{
    static const float special[] = { 0.0F, -0.0F, 0x1p-140F, -0x1p-149F, INFINITY, -INFINITY, NAN, 1.5F, -700, 90 };
    const ls_shape shape = LS_SHAPE(CHAIN_BATCH, 2, width);
    float x_data[CHAIN_BATCH * 2 * CHAIN_WIDEST], b_data[CHAIN_WIDEST], w_data[CHAIN_WIDEST * CHAIN_WIDEST];
    size_t count = CHAIN_BATCH * 2 * (size_t)width;
    for (size_t i = 0; i < count; i++)
        x_data[i] = i % 7 ? (float)(int32_t)(i * 2654435761u) * 0x1p-29F : special[i / 7 % LENGTH(special)];
    for (int64_t i = 0; i < width; i++)
        b_data[i] = (float)i * 0.25F - 2;
    for (int64_t i = 0; i < width * width; i++)
        w_data[i] = (float)(i * i % 11) * 0.5F - 2.5F;
    ls_graph *graph;
    OK(ls_graph_create(ctx, &graph, .seed = 1));
    OK(ls_graph_set_lanes(graph, 4));
    ls_tensor *x = ls_op_input(graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 2, width));
    ls_tensor *w = ls_op_variable(graph, "w", LS_F32, LS_SHAPE(width, width));
    OK(ls_variable_set(w, w_data, (size_t)(width * width) * sizeof(float)));
    ls_tensor *b = ls_op_variable(graph, "b", LS_F32, LS_SHAPE(width)), *fetches[CHAIN_MOST];
    OK(ls_variable_set(b, b_data, (size_t)width * sizeof(float)));
    int fetched = 1;
    if (which == 0) {
        fetches[0] = ls_op_mul(ls_op_relu(ls_op_add(x, b)), x);
    } else if (which == 1) { /* values on the way are wanted, too */
        fetches[0] = ls_op_sigmoid(ls_op_sub(b, x));
        fetches[1] = ls_op_leaky_relu(ls_op_maximum(fetches[0], b), 0.3);
        fetches[2] = ls_op_minimum(ls_op_neg(fetches[1]), fetches[0]);
        fetched = 3;
    } else if (which == 3) { /* the product's own kernel does what follows */
        fetches[0] = ls_op_relu(ls_op_add(b, ls_op_matmul(x, w)));
    } else if (which == 4) { /* the last of them reads what is stored */
        fetches[0] = ls_op_add(ls_op_matmul(x, w), b);
        fetches[1] = ls_op_relu(fetches[0]);
        fetched = 2;
    } else { /* all the others: three chains of 8 and fewer */
        ls_tensor *y = ls_op_clip(ls_op_square(x), 0.01, 50);
        y = ls_op_softplus(ls_op_rsqrt(ls_op_sqrt(ls_op_log(ls_op_exp(y)))));
        y = ls_op_silu(ls_op_erf(ls_op_gelu(ls_op_gelu(y, true), false)));
        fetches[0] = ls_op_add(ls_op_elu(ls_op_tanh(ls_op_sub(y, x)), 0.7), x);
    }
    OK(ls_graph_status(graph));
    ls_feed feed = { x, ls_array_of(LS_F32, shape, x_data) };
    OK(ls_eval(graph, &feed, 1, fetches, (size_t)fetched)); /* brings the variable */
    int64_t before = ls_gpu_launches();
    OK(ls_eval(graph, &feed, 1, fetches, (size_t)fetched));
    before = ls_gpu_launches() - before;
    for (int i = 0; i < fetched; i++)
        OK(ls_read(fetches[i], out + (size_t)i * count, count * sizeof(float)));
    ls_graph_destroy(graph);
    return before;
}

/* As many launches as there are chains, of as many lanes as there are; and the CPU's bits (of a
 * NaN: that it is one). / */
void other_fuses_chains(const other_kind *k)
{
    static const int64_t widths[] = { 3, 16, 33 };
    static const int launches[] = { 1, 1, 2, 1, 2 };
    ls_context *cpu = other_open(k, "cpu:0"), *ctx = other_open(k, k->first);
    for (size_t w = 0; w < LENGTH(widths); w++)
        for (int which = 0; which < (int)LENGTH(launches); which++) {
            float expected[CHAIN_MOST * CHAIN_BATCH * 2 * CHAIN_WIDEST] = { 0 };
            float got[CHAIN_MOST * CHAIN_BATCH * 2 * CHAIN_WIDEST] = { 0 };
            (void)run_chain(cpu, which, widths[w], expected);
            assert_int_equal(run_chain(ctx, which, widths[w], got), launches[which]);
            for (size_t i = 0; i < LENGTH(got); i++)
                if (memcmp(&got[i], &expected[i], sizeof(float)) != 0 && !(isnan(got[i]) && isnan(expected[i])))
                    fail_msg("chain %d of width %d: element %zu is %a, on the CPU %a", which, (int)widths[w], i,
                             (double)got[i], (double)expected[i]);
        }
    ls_context_close(ctx);
    ls_context_close(cpu);
}

/* ---- What is wrong ---- */

/* ---- Gather's gradient ---- */

#define GATHER_MOST  17500
#define GATHER_WIDTH 2

typedef struct gathering {
    int64_t positions, rows;
    ls_dtype dtype; /* type of the indices */
    int pattern;
} gathering;

/* All the same, all different (from the last row down), a few rows at random, many at random. */
static int64_t row_of(const gathering *g, int64_t i)
{
    uint64_t random = ((uint64_t)i * 0x9e3779b97f4a7c15u) >> 33;
    switch (g->pattern) {
    case 0:
        return g->rows - 1;
    case 1:
        return g->rows - 1 - i;
    case 2:
        return (int64_t)(random % 5) * (g->rows - 1) / 4;
    default:
        return (int64_t)(random % (uint64_t)g->rows);
    }
}

/* The gradient of the table; rows of very different sizes, so that their order matters. */
static void gather_rows(ls_context *ctx, const gathering *g, float *out)
{
    static float dy[GATHER_MOST * GATHER_WIDTH];
    static int64_t wide[GATHER_MOST];
    static int32_t narrow[GATHER_MOST];
    static const float table[GATHER_MOST * GATHER_WIDTH];
    ls_graph *graph;
    ls_tensor *gradient;
    ls_array value;
    for (int64_t i = 0; i < g->positions; i++) {
        wide[i] = narrow[i] = (int32_t)row_of(g, i);
        for (int64_t k = 0; k < GATHER_WIDTH; k++)
            dy[i * GATHER_WIDTH + k] = ldexpf((float)((i * 7919 + k) % 1009) - 500, (int)(i * 31 % 23));
    }
    OK(ls_graph_create(ctx, &graph));
    const void *indices = g->dtype == LS_I64 ? (const void *)wide : narrow;
    ls_tensor *rows = ls_op_constant(graph, g->dtype, LS_SHAPE(g->positions), indices);
    ls_tensor *weights = ls_op_constant(graph, LS_F32, LS_SHAPE(g->positions, GATHER_WIDTH), dy);
    ls_tensor *w = ls_op_variable(graph, "w", LS_F32, LS_SHAPE(g->rows, GATHER_WIDTH), .data = table);
    ls_tensor *loss = ls_op_reduce_sum(ls_op_mul(ls_op_gather(w, rows, 0), weights), LS_ALL_AXES, false);
    OK(ls_gradients(loss, &w, 1, &gradient));
    OK(ls_eval(graph, NULL, 0, &gradient, 1));
    OK(ls_value(gradient, &value));
    memcpy(out, value.data, (size_t)(g->rows * GATHER_WIDTH) * sizeof(float));
    ls_graph_destroy(graph);
}

/* Around the edges of what is sorted, and of the runs that are merged: LS_GPU_SORTED and twice as
 * many, and so on. */
void other_adds_gathered_rows_in_order(const other_kind *k)
{
    static const int64_t positions[] = { 1, 65, 1024, 1025, 1087, 1088, 1089, 2048, 2049, 16384, 16385, 17409 };
    static float expected[GATHER_MOST * GATHER_WIDTH], got[GATHER_MOST * GATHER_WIDTH];
    ls_context *cpu = other_open(k, "cpu:0"), *ctx = other_open(k, k->first);
    for (size_t n = 0; n < LENGTH(positions); n++)
        for (int pattern = 0; pattern < 4; pattern++) {
            gathering g = { .positions = positions[n], .rows = positions[n] + 3, .pattern = pattern };
            g.dtype = (n + (size_t)pattern) % 2 ? LS_I64 : LS_I32;
            gather_rows(cpu, &g, expected);
            int64_t launches = -ls_gpu_launches();
            gather_rows(ctx, &g, got);
            launches += ls_gpu_launches();
            assert_true(launches > 0);
            for (int64_t i = 0; i < g.rows * GATHER_WIDTH; i++)
                if (memcmp(&got[i], &expected[i], sizeof(float)) != 0)
                    fail_msg("%d positions, pattern %d: element %d is %a, on the CPU %a", (int)g.positions, pattern,
                             (int)i, (double)got[i], (double)expected[i]);
        }
    ls_context_close(ctx);
    ls_context_close(cpu);
}

/* ---- Memory that kernels need while they run ---- */

#define GATHERED (1 << 18)
#define SORTING  ((size_t)GATHERED * 4 * sizeof(int64_t)) /* bytes that gather's gradient needs to sort positions */

/* limit: of the device; 0: its own. */
static ls_context *open_limited(const other_kind *k, const char *device, size_t limit)
{
    ls_context *ctx;
    assert_true(k->open(&(ls_context_options){ .threads = 1 }, device, &ctx));
    if (limit)
        OK(ls_set_logical_devices(ctx, device, &(ls_logical_device){ limit }, 1));
    return ctx;
}

/* The sum of gathered rows of w, by row: how often each is there. */
static ls_graph *counting_graph(ls_context *ctx, int64_t positions, ls_tensor **gradient)
{
    int32_t *rows = calloc((size_t)positions, sizeof(*rows));
    ls_graph *graph;
    assert_non_null(rows);
    for (int64_t i = 0; i < positions; i++)
        rows[i] = (int32_t)(i % 3);
    OK(ls_graph_create(ctx, &graph));
    ls_tensor *w = ls_op_variable(graph, "w", LS_F32, LS_SHAPE(3, 1), .data = (float[]){ 1, 2, 3 });
    ls_tensor *taken = ls_op_gather(w, ls_op_constant(graph, LS_I32, LS_SHAPE(positions), rows), 0);
    OK(ls_gradients(ls_op_reduce_sum(taken, LS_ALL_AXES, false), &w, 1, gradient));
    free(rows);
    return graph;
}

/* Gather's gradient with this limit. *peak: of its memory. */
static ls_status gather_within(const other_kind *k, size_t limit, size_t *peak)
{
    ls_tensor *gradient;
    ls_context *ctx = open_limited(k, k->first, limit);
    ls_graph *graph = counting_graph(ctx, GATHERED, &gradient);
    ls_status status = ls_eval(graph, NULL, 0, &gradient, 1);
    *peak = machine_memory(ctx, k->first).peak;
    ls_graph_destroy(graph);
    assert_int_equal(machine_memory(ctx, k->first).in_use, 0); /* scratch memory goes with the last plan */
    ls_context_close(ctx);
    return status;
}

/* It counts like anything else; if the limit has no room for it, the error has the op, the bytes
 * and the limit. / */
void other_counts_scratch_memory(const other_kind *k)
{
    size_t peak, with_limit;
    char words[48];
    OK(gather_within(k, 0, &peak));
    assert_true(peak > SORTING);
    size_t limit = peak - (1 << 20);
    snprintf(words, sizeof(words), "limit %.2f MiB", (double)limit / (1 << 20));
    FAILS(gather_within(k, limit, &with_limit), LS_ERR_MEMORY, "op gather_grad", "scratch memory of kernels, 8.00 MiB",
          words);
    assert_true(with_limit < limit);
    OK(gather_within(k, peak + (1 << 20), &with_limit));
}

/* Gather's gradient of 8 lanes, whose scratch memory is most of what they need. */
static int64_t gather_lanes(const other_kind *k, const char *device, size_t limit, float out[5], size_t *peak)
{
    enum { BATCH = 64, EACH = 2048 };
    int32_t *rows = calloc((size_t)BATCH * EACH, sizeof(*rows));
    ls_context *ctx = open_limited(k, device, limit);
    ls_graph *graph;
    ls_tensor *gradient;
    ls_array value;
    assert_non_null(rows);
    for (int i = 0; i < BATCH * EACH; i++)
        rows[i] = i * 7 % 5;
    OK(ls_graph_create(ctx, &graph));
    OK(ls_graph_set_lanes(graph, 8));
    ls_tensor *x = ls_op_input(graph, "x", LS_I32, LS_SHAPE(LS_BATCH, EACH));
    ls_tensor *w =
        ls_op_variable(graph, "w", LS_F32, LS_SHAPE(5, 1), .data = (float[]){ 0.1F, 0.2F, 0.3F, 0.4F, 0.5F });
    ls_tensor *loss = ls_op_reduce_sum(ls_op_exp(ls_op_gather(w, x, 0)), LS_ALL_AXES, false);
    OK(ls_gradients(loss, &w, 1, &gradient));
    int64_t launches = -ls_gpu_launches();
    OK(ls_eval(graph, &(ls_feed){ x, ls_array_of(LS_I32, LS_SHAPE(BATCH, EACH), rows) }, 1, &gradient, 1));
    launches += ls_gpu_launches();
    OK(ls_value(gradient, &value));
    memcpy(out, value.data, 5 * sizeof(*out));
    *peak = machine_memory(ctx, device).peak;
    ls_graph_destroy(graph);
    ls_context_close(ctx);
    free(rows);
    return launches;
}

/* The rooms of all lanes have room within the limit, but not their scratch memory: half of them are
 * run at once. */
void other_runs_fewer_lanes_for_scratch_memory(const other_kind *k)
{
    float expected[5], all[5], half[5];
    size_t peak, ignored;
    (void)gather_lanes(k, "cpu:0", 0, expected, &ignored);
    int64_t launches = gather_lanes(k, k->first, 0, all, &peak);
    assert_memory_equal(all, expected, sizeof(all));
    assert_true(gather_lanes(k, k->first, peak / 10 * 7, half, &ignored) > launches);
    assert_memory_equal(half, expected, sizeof(half));
    assert_true(ignored <= peak / 10 * 7);
}

static ls_status count_rows(ls_graph *graph, ls_tensor *gradient, int64_t positions)
{
    ls_array value;
    LS_TRY(ls_eval(graph, NULL, 0, &gradient, 1));
    LS_TRY(ls_value(gradient, &value));
    return ((const float *)value.data)[0] == (float)((positions + 2) / 3) ? LS_OK : LS_ERR_INTERNAL;
}

typedef struct counting {
    ls_graph *graph;
    ls_tensor *gradient;
    int64_t positions;
    atomic_bool begun, end;
    ls_status status;
    char said[512];
} counting;

static void *count_until_told(void *user)
{
    counting *c = user;
    while (c->status == LS_OK && !atomic_load(&c->end)) {
        c->status = count_rows(c->graph, c->gradient, c->positions);
        if (c->status != LS_OK)
            snprintf(c->said, sizeof(c->said), "%s", ls_last_error());
        atomic_store(&c->begun, true);
    }
    return NULL;
}

/* One graph is run all the time, and another that needs more scratch memory begins. Its peak. */
#define COUNTED (1 << 14)
static size_t count_beside(const other_kind *k, size_t limit)
{
    int64_t positions = COUNTED;
    counting c = { .positions = COUNTED / 4 * 3 };
    ls_tensor *gradient;
    ls_context *ctx = open_limited(k, k->first, limit);
    pthread_t thread;
    c.graph = counting_graph(ctx, c.positions, &c.gradient);
    ls_graph *graph = counting_graph(ctx, positions, &gradient);
    assert_int_equal(pthread_create(&thread, NULL, count_until_told, &c), 0);
    while (!atomic_load(&c.begun))
        sched_yield();
    ls_status status = count_rows(graph, gradient, positions);
    atomic_store(&c.end, true);
    pthread_join(thread, NULL);
    if (c.status != LS_OK)
        fail_msg("%s", c.said);
    OK(status);
    size_t peak = machine_memory(ctx, k->first).peak;
    ls_graph_destroy(graph);
    ls_graph_destroy(c.graph);
    ls_context_close(ctx);
    return peak;
}

/* Without room for an old and a new block of scratch memory, those that use the old one wait while
 * it is replaced. */
void other_replaces_scratch_memory_in_use(const other_kind *k)
{
    size_t peak = count_beside(k, 0), sorting = COUNTED * 4 * sizeof(int64_t);
    for (int i = 0; i < 20; i++)
        assert_true(count_beside(k, peak - sorting / 4) < peak);
}

void other_tells_a_wrong_label(const other_kind *k)
{
    char said[2][256], hash[2][65];
    for (int i = 0; i < 2; i++) {
        ls_context *ctx = other_open(k, i ? k->first : "cpu:0");
        network n;
        network_batch data;
        OK(network_create(ctx, NETWORK_CNN, &n));
        OK(network_batch_make(&n, 7, 0, &data));
        data.labels[5] = 77;
        ls_tensor *fetches[] = { n.loss, n.step };
        assert_int_equal(ls_eval(n.graph, data.feeds, data.feed_count, fetches, 2), LS_ERR_DATA);
        const char *at = strstr(ls_last_error(), "label ");
        assert_non_null(at);
        snprintf(said[i], sizeof(said[i]), "%s", at);
        network_batch_free(&data);
        OK(network_train(&n, 7, 1, hash[i])); /* nothing was changed, and the device goes on */
        network_destroy(&n);
        ls_context_close(ctx);
    }
    assert_string_equal(said[1], said[0]);
    assert_string_equal(hash[1], hash[0]);
}

ls_status other_two_steps(ls_context *ctx, char hash[65])
{
    network n;
    ls_status status = network_create(ctx, NETWORK_RESIDUAL, &n);
    if (status == LS_OK) {
        OK(ls_graph_set_lanes(n.graph, 4));
        status = network_train(&n, 6, 2, hash);
        network_destroy(&n);
    }
    ls_context_close(ctx);
    return status;
}

/* ---- A training that a device is lost in ---- */

#define SAMPLES 20
#define SIDE    6
#define CLASSES 3

void other_training_open(other_training *t, ls_context *ctx, bool wide)
{
    t->ctx = ctx;
    if (wide)
        OK(ls_sequential(ctx, "wide", &t->model, ls_input(SIDE, SIDE, 1), ls_flatten(),
                         ls_dense(512, .activation = LS_RELU), ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    else
        OK(ls_sequential(ctx, "lost", &t->model, ls_input(SIDE, SIDE, 1), ls_conv2d(4, 3, .activation = LS_RELU),
                         ls_batch_normalization(), ls_flatten(), ls_dropout(0.25), ls_dense(8, .activation = LS_RELU),
                         ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    OK(ls_compile(t->model, .optimizer = wide ? ls_sgd() : ls_adam(), .loss = ls_sparse_categorical_crossentropy()));
    t->data = samples_of_bytes(SAMPLES, SIDE, CLASSES);
}

void other_training_close(other_training *t)
{
    ls_dataset_destroy(t->data);
    ls_model_destroy(t->model);
    ls_context_close(t->ctx);
}

ls_status other_training_fit(other_training *t, const char *devices, int64_t max_steps, bool continue_last)
{
    return ls_fit(t->model, t->data, .epochs = 2, .batch_size = 5, .lanes = 5, .seed = 3, .verbose = LS_VERBOSE_SILENT,
                  .max_steps = max_steps, .continue_last = continue_last, .strategy = ls_mirrored(.devices = devices));
}

void other_training_hash(ls_context *ctx, const char *devices, int64_t steps, char hex[65])
{
    other_training t;
    other_training_open(&t, ctx, false);
    OK(other_training_fit(&t, devices, steps, false));
    OK(ls_model_state_sha256(t.model, hex));
    other_training_close(&t);
}

/* ---- What a backend does later ---- */

/* A device of a backend's table, and memory of it. */
typedef struct bare {
    const ls_backend *b;
    void *device, *memory;
} bare;

static bare bare_open(const ls_backend *b, size_t bytes)
{
    bare x = { .b = b };
    OK(b->open(b->user, 0, &x.device));
    OK(b->alloc(x.device, bytes, &x.memory));
    return x;
}

static void bare_close(bare *x)
{
    x->b->free(x->device, x->memory);
    x->b->close(x->device);
}

static void put(const bare *x, size_t offset, float value)
{
    OK(x->b->upload(x->device, x->memory, offset, &value, sizeof(value)));
}

static void must_have(const bare *x, size_t offset, float expected)
{
    float value = 0;
    OK(x->b->download(x->device, x->memory, offset, &value, sizeof(value)));
    assert_true(value == expected);
}

/* Uploads and joins that wait take effect in the order in which they were asked for. */
void other_keeps_the_order(const ls_backend *b)
{
    bare x = bare_open(b, 4096);
    ls_memory_place lane[] = { { x.memory, 0 }, { x.memory, 64 } };
    ls_join_lanes_call join = { LS_JOIN_SUM, LS_F32, 1, lane, 2, { x.memory, 128 } };
    for (int round = 0; round < 50; round++) {
        put(&x, 0, 1);
        put(&x, 256, 7); /* a third place, so that more than one piece waits */
        put(&x, 0, (float)round);
        put(&x, 64, 2);
        OK(b->join_lanes(x.device, &join)); /* round + 2 */
        put(&x, 64, 3);
        join.to.offset = 192;
        OK(b->join_lanes(x.device, &join)); /* round + 3 */
        lane[0].offset = 192;
        OK(b->join_lanes(x.device, &join)); /* (round + 3) + 3 */
        put(&x, 64, 4);
        must_have(&x, 128, (float)round + 2);
        must_have(&x, 192, (float)round + 6);
        must_have(&x, 0, (float)round);
        must_have(&x, 64, 4);
        must_have(&x, 256, 7);
        lane[0].offset = 0;
        join.to.offset = 128;
    }
    bare_close(&x);
}

/* Joins that wait are one launch, unless one of them reads or writes what the other writes: drivers
 * may run the parts of a launch in any order. */
void other_joins_together(const ls_backend *b)
{
    bare x = bare_open(b, 4096);
    static const struct {
        size_t lane[2], to; /* operands of a join that follows a join of 0 and 64 to 128 */
        int launches;
        float result;
    } rows[] = {
        { { 0, 64 }, 192, 1, 3 },                                /* both read the same */
        { { 256, 320 }, 192, 1, 7 }, { { 128, 64 }, 192, 2, 5 }, /* reads what the first writes */
        { { 256, 320 }, 0, 2, 7 },                               /* writes what it reads */
        { { 256, 320 }, 128, 2, 7 },                             /* and what it writes */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        ls_memory_place first[] = { { x.memory, 0 }, { x.memory, 64 } };
        ls_memory_place second[] = { { x.memory, rows[i].lane[0] }, { x.memory, rows[i].lane[1] } };
        put(&x, 0, 1);
        put(&x, 64, 2);
        put(&x, 256, 3);
        put(&x, 320, 4);
        OK(b->sync(x.device));
        int64_t before = ls_gpu_launches();
        OK(b->join_lanes(x.device, &(ls_join_lanes_call){ LS_JOIN_SUM, LS_F32, 1, first, 2, { x.memory, 128 } }));
        OK(b->join_lanes(x.device,
                         &(ls_join_lanes_call){ LS_JOIN_SUM, LS_F32, 1, second, 2, { x.memory, rows[i].to } }));
        OK(b->sync(x.device));
        assert_int_equal(ls_gpu_launches() - before, rows[i].launches);
        must_have(&x, rows[i].to, rows[i].result);
        if (rows[i].to != 128)
            must_have(&x, 128, 3);
    }
    bare_close(&x);
}

/* A program that is run again as it was is launched from what was kept of the last run: it reads
 * what is in memory now, and random numbers, places, samples and rows of another run are other
 * ones. */
void other_runs_again(const ls_backend *b)
{
    bare x = bare_open(b, 4096);
    ls_context *ctx = NULL;
    ls_graph *graph = NULL;
    OK(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx));
    OK(ls_graph_create(ctx, &graph));
    ls_tensor *a = ls_op_input(graph, "a", LS_F32, LS_SHAPE(LS_BATCH, 1)), *sum = ls_op_add(a, a);
    ls_tensor *noise = ls_op_random_uniform(graph, LS_F32, LS_SHAPE(LS_BATCH, 1), 0, 1);
    ls_program_slot in[] = { { .unit = sizeof(float), .per_sample = true, .kept = true }, { 0 } };
    in[1] = in[0];
    ls_program_slot out = in[0], other = in[0];
    out.offset = 64;
    other.offset = 128;
    ls_program_step steps[] = { { .node = sum, .in = in, .out = out }, { .node = noise, .out = other } };
    ls_program_run run = { .samples = 1, .batch = 8, .seed = 3, .run = 1 };
    void *plan[2];
    float first = 0, second = 0;
    run.room[LS_ROOM_PLAN].memory = x.memory;
    for (int i = 0; i < 2; i++)
        OK(b->plan_create(x.device, &(ls_program){ .steps = &steps[i], .step_count = 1, .samples = 2 }, &plan[i]));
    for (int round = 0; round < 4; round++) {
        put(&x, 0, (float)round);
        OK(b->plan_run(x.device, plan[0], &run));
        must_have(&x, 64, 2 * (float)round);
    }
    put(&x, sizeof(float), 21);
    run.row = 1;
    OK(b->plan_run(x.device, plan[0], &run));
    must_have(&x, 64 + sizeof(float), 42);
    run.row = 0;
    run.samples = 2;
    put(&x, sizeof(float), 5);
    OK(b->plan_run(x.device, plan[0], &run));
    must_have(&x, 64 + sizeof(float), 10);
    run.room[LS_ROOM_PLAN].offset = 1024;
    put(&x, 1024, 50);
    OK(b->plan_run(x.device, plan[0], &run));
    must_have(&x, 1024 + 64, 100);
    for (int i = 0; i < 2; i++) {
        OK(b->plan_run(x.device, plan[1], &run));
        OK(b->download(x.device, x.memory, 1024 + 128, i ? &second : &first, sizeof(float)));
        run.run++;
    }
    assert_true(first != second);
    for (int i = 0; i < 2; i++)
        b->plan_destroy(x.device, plan[i]);
    ls_graph_destroy(graph);
    ls_context_close(ctx);
    bare_close(&x);
}

/* Many values looked at together: more than have room at once, of several types, and of none. */
void other_checks_many_at_once(const ls_backend *b)
{
    enum { MANY = 200, ALL = 1 << 17 };
    bare x = bare_open(b, ALL * sizeof(float));
    float *zeros = calloc(ALL, sizeof(*zeros));
    ls_finite_call list[MANY];
    bool finite[MANY], expected[MANY];
    zeros[ALL - 1] = NAN;
    zeros[16 * 3 + 4] = INFINITY; /* the last of five at place 3 */
    OK(b->upload(x.device, x.memory, 0, zeros, ALL * sizeof(*zeros)));
    for (int i = 0; i < MANY; i++) {
        list[i] = (ls_finite_call){ LS_F32, { x.memory, 4096 }, ALL - 1024 - i % 3 };
        expected[i] = i % 3 != 0;
        if (i % 5 == 4) { /* small ones between */
            list[i] = (ls_finite_call){ i % 2 ? LS_F32 : LS_I32, { x.memory, 192 }, i % 7 };
            expected[i] = list[i].dtype == LS_I32 || i % 7 < 5;
        }
    }
    OK(b->finite_all(x.device, list, MANY, finite));
    for (int i = 0; i < MANY; i++)
        if (finite[i] != expected[i])
            fail_msg("value %d is said to be %sfinite", i, finite[i] ? "" : "not ");
    OK(b->finite_all(x.device, list, 0, finite));
    free(zeros);
    bare_close(&x);
}
