/* Micro-batches do not change the bits (docs/bits.md): everything that adds up samples gives one
 * hash with micro-batches of 1, 2, 3, 5 and the whole lane, fused or not, in one piece or cut into
 * segments everywhere; and the hash is the same with every instruction set and with the reference
 * kernels. First every op that reduces the batch, at shapes whose blocks are samples, rows and
 * parts of rows; then whole training steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/simd.h"
#include "base/sha256.h"
#include "check.h"
#include "expressions.h"
#include "graph/rules.h"
#include "networks.h"
#include "run_self.h"
#include "sanitized.h"

/* ---- Ways to cut a lane ---- */

static const int64_t micros[] = { 1, 2, 3, 5 };
static const int lane_counts[] = { 1, 3 };

#define WAYS (LENGTH(micros) + 3)
static size_t stride = 1;      /* every n-th way is tried for rows; 3: a few of them */
static size_t step_stride = 1; /* the same for whole steps; WAYS: only the first */

/* The first way is the whole lane at once; the last two have micro-batches of 3. */
static ls_plan_options way(size_t i, int lanes, int64_t batch)
{
    ls_plan_options options = { .lanes = lanes, .guards = true, .micro = i == 0 ? batch : 3 };
    if (i > 0 && i <= LENGTH(micros))
        options.micro = micros[i - 1];
    options.unfused = i == LENGTH(micros) + 1;
    options.cut_everywhere = i == LENGTH(micros) + 2;
    return options;
}

static const char *way_name(size_t i)
{
    const ls_plan_options o = way(i, 1, 0);
    return i == 0 ? "the whole lane"
                  : test_text("micro-batches of %d%s%s", (int)o.micro, o.unfused ? ", unfused" : "",
                              o.cut_everywhere ? ", cut everywhere" : "");
}

/* ---- Hashes ---- */

/* Any NaN is one NaN. */
static ls_status hash_array(ls_sha256 *hash, const ls_array *array)
{
    int64_t count = 0;
    ls_shape_count(&array->shape, 0, &count);
    for (int64_t i = 0; i < count && array->dtype == LS_F32; i++) {
        float x = ((const float *)array->data)[i];
        x = x == x ? x : 1e38f;
        LS_TRY(ls_sha256_add(hash, &x, sizeof(x)));
    }
    return array->dtype == LS_F32 ? LS_OK
                                  : ls_sha256_add(hash, array->data, (size_t)count * ls_dtype_bytes(array->dtype));
}

static ls_status hash_values(ls_tensor *const *tensors, size_t count, char hex[65])
{
    ls_sha256 *hash = NULL;
    LS_TRY(ls_sha256_begin(&hash));
    ls_status status = LS_OK;
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        ls_array value;
        status = ls_value(tensors[i], &value);
        status = status == LS_OK ? hash_array(hash, &value) : status;
    }
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}

/* All hashes of this process, as a text that other processes must have, too; those of reductions
 * come first. */
static char *said;
static size_t said_length, said_of_reductions;

static void say(const char *what, int lanes, const char *hex)
{
    char *line = test_text("%s, %d lanes: %s\n", what, lanes, hex);
    said = realloc(said, said_length + strlen(line) + 1);
    assert_non_null(said);
    strcpy(said + said_length, line);
    said_length += strlen(line);
    free(line);
}

/* ---- Reductions ---- */

static ls_context *ctx;
static bool reduced[LS_OP_COUNT]; /* by op: seen to reduce the batch in several micro-batches */

/* number: the axes as bits; real: 0 sum, 1 maximum, 2 minimum */
static ls_tensor *reduce(const test_case *c, ls_tensor *const *x)
{
    ls_axes axes = { .count = 0 };
    for (int i = 0; i < LS_MAX_RANK; i++)
        if (c->number >> i & 1)
            axes.axis[axes.count++] = i;
    return c->real == 0   ? ls_op_reduce_sum(x[0], axes, false)
           : c->real == 1 ? ls_op_reduce_max(x[0], axes, false)
                          : ls_op_reduce_min(x[0], axes, false);
}

/* A norm followed by a ReLU, so that the gradient is fused with the ReLU's. */
static ls_tensor *norm_relu(const test_case *c, ls_tensor *const *x)
{
    return ls_op_relu(test_batch_norm_training(c, x));
}

/* clang-format off */
static const test_case rows[] = {
    { "reduce_sum", "samples", { "N" }, .build = reduce, .number = 1, .batch = 700 },
    { "reduce_sum", "channels", { "N,37" }, .build = reduce, .number = 1 },
    { "reduce_sum", "many channels", { "N,3,1030" }, .build = reduce, .number = 3 },
    { "reduce_sum", "blocks of samples", { "N,5,9,16" }, .build = reduce, .number = 7 },
    { "reduce_sum", "blocks of rows", { "N,20,21,33" }, .build = reduce, .number = 7, .batch = 17 },
    { "reduce_sum", "blocks of parts of rows", { "N,2,300,5" }, .build = reduce, .number = 7 },
    { "reduce_sum", "everything", { "N,31,17" }, .build = reduce, .number = 7 },
    { "reduce_sum", "axes between others", { "N,5,26,3,12" }, .build = reduce, .number = 1 + 4 + 16 },
    { "reduce_sum", "nothing", { "N,0,3" }, .build = reduce, .number = 3 },
    { "reduce_sum", "int32", { "j5:N,3" }, .build = reduce, .number = 1 },
    { "reduce_sum", "int64", { "i5:N,3" }, .build = reduce, .number = 3 },
    { "reduce_max", "", { "N,4,5" }, .build = reduce, .number = 3, .real = 1 },
    { "reduce_max", "int64", { "i5:N,3" }, .build = reduce, .number = 1, .real = 1 },
    { "reduce_min", "", { "N,4,5" }, .build = reduce, .number = 5, .real = 2 },
    { "add", "a bias of rows", { "N,30,11", "11" }, .two = ls_op_add },
    { "mul", "a scalar", { "N,30,11", "" }, .two = ls_op_mul },
    { "matmul", "dense", { "N,19", "19,23" }, .build = test_matmul, .batch = 300 },
    { "matmul", "leading axes", { "N,7,19", "19,5" }, .build = test_matmul },
    { "conv2d", "blocks of samples", { "N,9,8,3", "3,3,3,17" }, .build = test_conv2d, .options = CONV(.padding = LS_VALID), .batch = 17 },
    { "conv2d", "blocks of rows", { "N,22,23,4", "3,3,4,6" }, .build = test_conv2d, .options = CONV(.padding = LS_VALID), .batch = 17 },
    { "batch_norm", "rows", { "N,33", "+33", "33" }, .build = test_batch_norm_training, .real = 0.01, .batch = 600 },
    { "batch_norm", "blocks of samples", { "N,5,9,3", "+3", "3" }, .build = norm_relu, .real = 0.01 },
    { "batch_norm", "blocks of rows", { "N,20,21,35", "+35", "35" }, .build = norm_relu, .real = 0.01, .batch = 17 },
    { "batch_norm", "blocks of parts of rows", { "N,1,280,18", "+18", "18" }, .build = norm_relu, .real = 0.01, .batch = 17 },
    { "batch_norm", "residual", { "N,18,17,8", "3,3,8,8", "+8", "8" }, .build = test_residual_blocks, .real = 0.1, .batch = 17 },
    { "layer_norm", "its scale", { "N,7,40", "40", "40" }, .build = test_layer_norm, .number = 1, .real = 0.01 },
    { "gather", "a table", { "13,21", "i13:N,40" }, .build = test_gather },
    { "gather", "one index", { "13,21", "j13:N" }, .build = test_gather, .batch = 300 },
    { "sparse_cross_entropy", "", { "N,10", "i10:N" }, .build = test_sparse_cross_entropy },
};
/* clang-format on */

typedef struct bed {
    test_graph t;
    ls_tensor *fetch[TEST_INPUTS + 2];
    size_t count;
} bed;

/* The row's value, the gradients of what is real, and both summed up over all there is. */
static void bed_open(bed *b, const test_case *c, ls_dtype real)
{
    ls_tensor *x[TEST_INPUTS] = { NULL }, *wanted[TEST_INPUTS], *g[TEST_INPUTS] = { NULL };
    size_t reals = 0;
    b->count = 1;
    test_graph_open_in(&b->t, ctx, c->batch ? c->batch : 37, real);
    for (int i = 0; i < TEST_INPUTS && c->in[i]; i++) {
        x[i] = test_add(&b->t, c->in[i], TEST_FED)->tensor;
        if (test_spec_is_real(c->in[i]))
            wanted[reals++] = x[i];
    }
    ls_tensor *y = b->fetch[0] = test_build(c, x);
    if (ls_tensor_is_error(y))
        fail_msg("%s (%s): %s", c->op, c->variant, ls_last_error());
    if (ls_tensor_dtype(y) == LS_F32 || ls_tensor_dtype(y) == LS_F64)
        assert_int_equal(ls_gradients_with(y, wanted, reals,
                                           (ls_gradients_options){ .cotangent = test_add_like(&b->t, y)->tensor }, g),
                         LS_OK);
    for (size_t i = 0; i < reals; i++)
        if (g[i])
            b->fetch[b->count++] = g[i];
}

/* Which ops of a plan add up samples over several micro-batches; those that this test does not know
 * are a mistake. */
static void note_reductions(const ls_plan *plan)
{
    for (int s = 0; s < plan->segment_count; s++)
        for (int i = 0; i < plan->segments[s].step_count; i++) {
            const ls_tensor *root = plan->segments[s].steps[i].group->root;
            if (root->use == LS_USE_REDUCES && plan->segments[s].micro * plan->lanes < plan->batch)
                reduced[root->op] = true;
        }
}

static void check_row(const test_case *c, ls_dtype real, int lanes)
{
    char first[65], hex[65];
    char *name = test_text("%s (%s) in %s", c->op, c->variant, ls_dtype_name(real));
    ls_runs *runs = NULL;
    bed b;
    bed_open(&b, c, real);
    assert_int_equal(ls_runs_of(b.t.graph, &runs), LS_OK);
    for (size_t i = 0; i < WAYS; i += stride) {
        ls_runs_clear(runs);
        runs->settings.plan = way(i, lanes, b.t.batch);
        if (test_run(&b.t, b.fetch, b.count) != LS_OK || hash_values(b.fetch, b.count, hex) != LS_OK)
            fail_msg("%s: %s", name, ls_last_error());
        note_reductions(ls_executor_plan(runs->cached[0].executor));
        if (i == 0)
            strcpy(first, hex);
        if (strcmp(hex, first) != 0)
            fail_msg("%s, %d lanes, %s: %s, the whole lane at once: %s", name, lanes, way_name(i), hex, first);
    }
    if (real == LS_F32)
        say(name, lanes, first);
    free(name);
    test_graph_close(&b.t);
}

static void every_reduction_has_one_hash(void **state)
{
    (void)state;
    for (size_t r = 0; r < LENGTH(rows); r++)
        for (size_t l = 0; l < LENGTH(lane_counts); l++) {
            check_row(&rows[r], LS_F32, lane_counts[l]);
            if (stride == 1)
                check_row(&rows[r], LS_F64, lane_counts[l]);
        }
    said_of_reductions = said_length;
}

/* After the rows: every op that can reduce the batch was seen to. Gathering a batch adds nothing
 * up. */
static void no_reduction_is_forgotten(void **state)
{
    (void)state;
    static const ls_op known[] = { LS_OP_matmul,
                                   LS_OP_reduce_sum,
                                   LS_OP_reduce_max,
                                   LS_OP_reduce_min,
                                   LS_OP_conv2d_grad_kernel,
                                   LS_OP_gather_grad,
                                   LS_OP_moments,
                                   LS_OP_batch_norm_grad_moments };
    for (int op = 0; op < LS_OP_COUNT; op++) {
        bool expected = false;
        for (size_t i = 0; i < LENGTH(known); i++)
            expected = expected || known[i] == (ls_op)op;
        if (expected && !reduced[op])
            fail_msg("no row has a %s that adds up micro-batches", ls_ops[op].name);
        if (!expected && op != LS_OP_gather_batch && (reduced[op] || ls_ops[op].batch == LS_BATCH_REDUCES))
            fail_msg("%s reduces the batch: it wants rows, and a place in the list", ls_ops[op].name);
    }
}

/* ---- Whole training steps ---- */

#define STEPS 2
#define BATCH 41

static void networks_have_one_hash(void **state)
{
    (void)state;
    for (network_kind kind = 0; kind < NETWORK_KINDS; kind++)
        for (size_t l = 0; l < LENGTH(lane_counts); l++) {
            char first[65], hex[65];
            for (size_t i = 0; i < WAYS; i += step_stride) {
                network n;
                ls_run_settings settings = { .plan = way(i, lane_counts[l], BATCH) };
                if (network_create(ctx, kind, &n) != LS_OK || network_set(&n, &settings) != LS_OK ||
                    network_train(&n, BATCH, STEPS, hex) != LS_OK)
                    fail_msg("%s: %s", network_name(kind), ls_last_error());
                network_destroy(&n);
                if (i == 0)
                    strcpy(first, hex);
                if (strcmp(hex, first) != 0)
                    fail_msg("%s, %d lanes, %s: %s, the whole lane at once: %s", network_name(kind), lane_counts[l],
                             way_name(i), hex, first);
            }
            say(network_name(kind), lane_counts[l], first);
        }
}

/* An embedding whose words are added up, dropout, a norm, a dense layer; cross-entropy, two
 * metrics; momentum. */
#define WORDS   23
#define LENGTHS 9
#define WIDTH   18
#define CLASSES 5

typedef struct words {
    ls_graph *graph;
    ls_tensor *ids, *labels, *variable[5], *fetch[4]; /* step, loss, metrics */
} words;

static void words_make(words *w)
{
    const ls_shape shapes[] = { LS_SHAPE(WORDS, WIDTH), LS_SHAPE(WIDTH), LS_SHAPE(WIDTH), LS_SHAPE(WIDTH, CLASSES),
                                LS_SHAPE(CLASSES) };
    ls_tensor *g[LENGTH(shapes)] = { NULL }, *updates[LENGTH(shapes)];
    double start[WORDS * WIDTH];
    assert_int_equal(ls_graph_create(ctx, &w->graph, .seed = 3), LS_OK);
    w->ids = ls_op_input(w->graph, "ids", LS_I32, LS_SHAPE(LS_BATCH, LENGTHS));
    w->labels = ls_op_input(w->graph, "labels", LS_I32, LS_SHAPE(LS_BATCH));
    for (size_t i = 0; i < LENGTH(shapes); i++) {
        float data[WORDS * WIDTH];
        test_random(start, LENGTH(start), (uint32_t)i, i == 1 ? 0.5 : -0.5, i == 1 ? 1.5 : 0.5);
        for (size_t k = 0; k < LENGTH(start); k++)
            data[k] = (float)start[k];
        w->variable[i] = ls_op_variable(w->graph, NULL, LS_F32, shapes[i], .data = data);
    }
    ls_tensor *x = ls_op_reduce_sum(ls_op_gather(w->variable[0], w->ids, 0), LS_AXES(1), false);
    x = ls_op_batch_norm(ls_op_dropout(x, ls_op_scalar(w->graph, LS_F32, 0.25)), .gamma = w->variable[1],
                         .beta = w->variable[2], .training = true, .epsilon = 1e-3);
    ls_tensor *logits = ls_op_add(ls_op_matmul(ls_op_relu(x), w->variable[3]), w->variable[4]);
    ls_tensor *loss = ls_op_reduce_mean(ls_op_sparse_cross_entropy(w->labels, logits, LS_LOGITS), LS_ALL_AXES, false);
    ls_tensor *right = ls_op_compare(ls_op_argmax(logits, 1), LS_EQUAL, ls_op_cast(w->labels, LS_I64));
    assert_int_equal(ls_gradients(loss, w->variable, LENGTH(shapes), g), LS_OK);
    for (size_t i = 0; i < LENGTH(shapes); i++)
        updates[i] = ls_op_apply(w->variable[i], g[i], LS_APPLY_MOMENTUM,
                                 .learning_rate = ls_op_scalar(w->graph, LS_F32, 0.1), .momentum = 0.9,
                                 .slots = { ls_op_variable(w->graph, NULL, LS_F32, shapes[i], .frozen = true) });
    w->fetch[0] = ls_op_group(updates, LENGTH(updates));
    w->fetch[1] = loss;
    w->fetch[2] = ls_op_reduce_mean(ls_op_cast(right, LS_F32), LS_ALL_AXES, false);
    w->fetch[3] = ls_op_reduce_mean(ls_op_square(logits), LS_ALL_AXES, false);
    if (ls_graph_status(w->graph) != LS_OK)
        fail_msg("%s", ls_last_error());
}

/* Some steps; the hash is over loss and metrics of the last and over the variables. */
static void words_train(words *w, const ls_plan_options *plan, int64_t batch, char hex[65])
{
    ls_runs *runs = NULL;
    int32_t *ids = calloc((size_t)batch * LENGTHS, sizeof(*ids)), *labels = calloc((size_t)batch, sizeof(*labels));
    ls_tensor *seen[8];
    assert_true(ids && labels);
    assert_int_equal(ls_runs_of(w->graph, &runs), LS_OK);
    runs->settings.plan = *plan;
    for (int64_t i = 0; i < batch * LENGTHS; i++)
        ids[i] = (int32_t)(i * i % 31 % WORDS); /* some words are frequent */
    for (int64_t i = 0; i < batch; i++)
        labels[i] = (int32_t)(i * 7 % CLASSES);
    const ls_feed feeds[] = { { w->ids, ls_array_of(LS_I32, LS_SHAPE(batch, LENGTHS), ids) },
                              { w->labels, ls_array_of(LS_I32, LS_SHAPE(batch), labels) } };
    for (int i = 0; i < STEPS; i++)
        if (ls_eval(w->graph, feeds, 2, w->fetch, LENGTH(w->fetch)) != LS_OK)
            fail_msg("%s", ls_last_error());
    memcpy(seen, w->fetch + 1, 3 * sizeof(*seen));
    memcpy(seen + 3, w->variable, 5 * sizeof(*seen));
    assert_int_equal(hash_values(seen, LENGTH(seen), hex), LS_OK);
    free(ids);
    free(labels);
}

static void embedding_and_metrics_have_one_hash(void **state)
{
    (void)state;
    static const int64_t batches[] = { 41, 600 };
    for (size_t n = 0; n < LENGTH(batches); n++)
        for (size_t l = 0; l < LENGTH(lane_counts); l++) {
            char first[65], hex[65];
            for (size_t i = 0; i < WAYS; i += step_stride) {
                ls_plan_options options = way(i, lane_counts[l], batches[n]);
                words w;
                words_make(&w);
                words_train(&w, &options, batches[n], hex);
                ls_graph_destroy(w.graph);
                if (i == 0)
                    strcpy(first, hex);
                if (strcmp(hex, first) != 0)
                    fail_msg("an embedding, batch %d, %d lanes, %s: %s, the whole lane at once: %s", (int)batches[n],
                             lane_counts[l], way_name(i), hex, first);
            }
            char *name = test_text("an embedding, batch %d", (int)batches[n]);
            say(name, lane_counts[l], first);
            free(name);
        }
}

/* ---- Instruction sets, and the reference kernels ---- */

/* This program again, with LOCKSTEP_ISA set or (NULL) with the reference kernels; it must print the
 * beginning of what was said here. */
static void must_say_the_same(const char *isa, size_t wanted)
{
    char *text = run_self(isa ? "--say" : "--say-reference", isa, true);
    size_t length = strlen(text);
    const char *who = isa ? isa : "the reference kernels";
    for (size_t at = 0; at < wanted;) {
        size_t line = strcspn(said + at, "\n") + 1;
        if (length < at + line || memcmp(said + at, text + at, line) != 0)
            fail_msg("%s: %.*s, here: %.*s", who, length > at ? (int)strcspn(text + at, "\n") : 0,
                     length > at ? text + at : "", (int)line - 1, said + at);
        at += line;
    }
    assert_int_equal(length, wanted);
    free(text);
}

static void every_instruction_set_has_the_same_hashes(void **state)
{
    (void)state;
    static const char *const sets[] = { "base", "avx2", "avx512" };
    assert_true(said_length > 1000);
    for (size_t i = 0; i < LENGTH(sets); i++)
        if (ls_simd_named(sets[i]) && ls_simd_named(sets[i]) != ls_simd_choose())
            must_say_the_same(sets[i], said_length);
}

/* (Of whole steps test_reference_bits and `make bits` have them.) */
static void reference_kernels_say_the_same(void **state)
{
    (void)state;
    must_say_the_same(NULL, said_of_reductions);
}

int main(int argc, char **argv)
{
    bool says = argc == 2 && strncmp(argv[1], "--say", 5) == 0, reference = says && argv[1][5] == '-';
    stride = says || SANITIZED ? 3 : 1;
    step_stride = says ? WAYS : stride;
    LS_CHECK(ls_context_open(&(ls_context_options){ .threads = 2, .reference = reference }, &ctx));
    TEST_SUITE_ADD(every_reduction_has_one_hash);
    TEST_SUITE_ADD(no_reduction_is_forgotten);
    if (!reference) {
        TEST_SUITE_ADD(networks_have_one_hash);
        TEST_SUITE_ADD(embedding_and_metrics_have_one_hash);
    }
    if (!says && !SANITIZED) { /* which is slow enough already */
        TEST_SUITE_ADD(every_instruction_set_has_the_same_hashes);
        TEST_SUITE_ADD(reference_kernels_say_the_same);
    }
    int out = dup(1);
    if (says && !freopen("/dev/null", "w", stdout)) /* output of tests does not go to the pipe */
        return 1;
    int failed = test_suite_run("micro batches");
    for (size_t at = 0; says && at < said_length;) {
        ssize_t put = write(out, said + at, said_length - at);
        at = put > 0 ? at + (size_t)put : said_length;
    }
    free(said);
    close(out);
    ls_context_close(ctx);
    return failed;
}
