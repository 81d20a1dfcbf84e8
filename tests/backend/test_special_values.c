/* NaN, infinities, subnormals, -0 and huge numbers on the fast CPU against the reference: every
 * expression of the tables of expressions, planned and fused, forward and backward, with one such
 * number put into one of its inputs or into the cotangent. A NaN must be NaN on both sides,
 * anything else the same bits: what a kernel hides (a ReLU that turns NaN into 0) or spreads
 * (padding multiplied by an infinite weight) is seen here. Once for each instruction set. Rows:
 * graph_cases.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amount.h"
#include "backend/cpu/simd.h"
#include "expressions.h"
#include "run/runs.h"
#include "run/runtime.h"

#define LANES 3
static const float specials[] = { NAN, INFINITY, -INFINITY, 1e-40f, -1e-44f, -0.0f, 1e30f, -1e30f };
#define SPECIALS (sizeof specials / sizeof *specials)

static const char *const instruction_sets[] = { "base", "avx2", "avx512" };
#define SETS (sizeof instruction_sets / sizeof *instruction_sets)

static ls_context *reference, *fast[SETS]; /* fast: NULL where this CPU cannot run it */
static size_t open_count;                  /* of fast */

/* ---- One graph on one device ---- */

typedef struct side {
    test_graph t;
    size_t count;
    ls_tensor *fetch[TEST_LEAVES];
} side;

static void set_plan(ls_graph *graph, bool unfused)
{
    ls_runs *runs = NULL;
    assert_int_equal(ls_runs_of(graph, &runs), LS_OK);
    ls_runs_clear(runs);
    runs->settings.plan = (ls_plan_options){ .lanes = LANES, .unfused = unfused, .guards = true };
}

/* The row's value and the gradients of its inputs; false: it has no real value. */
static bool side_open(side *s, const test_case *c, ls_context *ctx, int64_t batch)
{
    ls_tensor *x[TEST_INPUTS] = { NULL }, *real[TEST_INPUTS], *g[TEST_INPUTS] = { NULL };
    size_t reals = 0;
    *s = (side){ .count = 1 };
    test_graph_open_in(&s->t, ctx, batch, LS_F32);
    set_plan(s->t.graph, ctx == reference);
    for (int i = 0; i < TEST_INPUTS && c->in[i]; i++) {
        test_leaf *leaf = test_add(&s->t, c->in[i], TEST_FED);
        x[i] = leaf->tensor;
        if (leaf->dtype == LS_F32 && !(c->fixed >> i & 1))
            real[reals++] = leaf->source;
    }
    ls_tensor *y = s->fetch[0] = test_build(c, x);
    if (ls_tensor_is_error(y))
        fail_msg("%s (%s): %s", c->op, c->variant, y ? y->message : ls_last_error());
    if (y->dtype != LS_F32)
        return true;
    bool gathered = y->shape.rank > 1 && y->shape.dims[1] == LS_BATCH; /* no leaf has such a shape */
    ls_gradients_options options = { .cotangent = gathered ? NULL : test_add_like(&s->t, y)->tensor };
    ls_status status = ls_gradients_with(gathered ? ls_op_square(y) : y, real, reals, options, g);
    if (status != LS_OK && status != LS_ERR_UNSUPPORTED)
        fail_msg("%s (%s): %s", c->op, c->variant, ls_last_error());
    for (size_t i = 0; i < reals; i++)
        if (g[i])
            s->fetch[s->count++] = g[i];
    return true;
}

/* ---- Comparing ---- */

/* How many fetches differ; the first place of each is printed. */
static int compare(const char *where, const side *got, const side *wanted)
{
    int wrong = 0;
    for (size_t i = 0; i < got->count; i++) {
        size_t n, m;
        double *a = test_values(got->fetch[i], &n), *b = test_values(wanted->fetch[i], &m); /* exact */
        bool same = n == m;
        for (size_t k = 0; same && k < n; k++) {
            same = (isnan(a[k]) && isnan(b[k])) || memcmp(&a[k], &b[k], sizeof *a) == 0;
            if (!same)
                print_error("%s: fetch %zu (op %s), element %zu of %zu is %a, the reference has %a\n", where, i,
                            ls_tensor_op(got->fetch[i]), k, n, a[k], b[k]);
        }
        wrong += !same;
        free(a);
        free(b);
    }
    return wrong;
}

static ls_status run(side *s)
{
    return test_run(&s->t, s->fetch, s->count);
}

/* The same number in the same place on both sides, and back. */
static int check_place(const test_case *c, side *ours, side *theirs, int leaf, size_t at, float special)
{
    char where[256];
    float *a = (float *)ours->t.leaf[leaf].data + at, *b = (float *)theirs->t.leaf[leaf].data + at, before = *a;
    *a = *b = special;
    snprintf(where, sizeof where, "%s (%s), %g in element %zu of leaf %d", c->op, c->variant, (double)special, at,
             leaf);
    ls_status mine = run(ours), other = run(theirs);
    int wrong = mine != other;
    if (wrong)
        print_error("%s: status %d (%s), the reference has %d\n", where, mine, ls_last_error(), other);
    else if (mine == LS_OK)
        wrong = compare(where, ours, theirs);
    *a = *b = before;
    return wrong;
}

/* First, last and an element between, in turn; NaN in all of them. */
static int check_leaf(const test_case *c, side *ours, side *theirs, int leaf)
{
    size_t n = ours->t.leaf[leaf].count, place[] = { 0, n - 1, n * 5 / 8 };
    int wrong = 0;
    for (size_t s = 0; n > 0 && s < SPECIALS; s++)
        for (size_t k = 0; k < 3; k++)
            if (isnan(specials[s]) || k == s % 3)
                wrong += check_place(c, ours, theirs, leaf, place[k], specials[s]);
    return wrong;
}

static int check_row(const test_case *c, ls_context *ctx, int64_t batch)
{
    side ours, theirs;
    int wrong = 0;
    side_open(&ours, c, ctx, batch);
    side_open(&theirs, c, reference, batch);
    for (int i = 0; i < ours.t.count; i++)
        if (ours.t.leaf[i].dtype == LS_F32)
            wrong += check_leaf(c, &ours, &theirs, i);
    test_graph_close(&ours.t);
    test_graph_close(&theirs.t);
    return wrong;
}

/* Large dense layers are ours from 8 samples of a lane on. */
static void right_with_special_values(void **state)
{
    static size_t row;
    const test_case *c = *state;
    size_t chosen = row++ % open_count, number = 0; /* a sample: each row on one instruction set, in turn */
    int wrong = 0;
    for (size_t i = 0; i < SETS; i++)
        if (fast[i] && (!test_is_sample() || number++ == chosen))
            wrong += check_row(c, fast[i], strstr(c->variant, "large weight") ? 25 : c->batch ? c->batch : 5);
    if (wrong)
        fail_msg("%s (%s): %d fetches differ", c->op, c->variant, wrong);
}

/* ---- Edges of single ops ---- */

#define ROWS     301 /* sums of fewer squares of floats are exact in double */
#define CHANNELS 9

/* The variance of a constant channel is 0, and what rounding leaves of it in sums as large as these
 * may be below 0: what comes out is beta, and gradients are finite. */
static void check_constant_channels(ls_context *ctx, float first)
{
    float x[ROWS][CHANNELS], beta[CHANNELS];
    ls_tensor *g[2], *of[2];
    test_graph t;
    size_t n;
    for (int i = 0; i < ROWS * CHANNELS; i++)
        x[i / CHANNELS][i % CHANNELS] = first + 8 * (float)(i % CHANNELS);
    for (int c = 0; c < CHANNELS; c++)
        beta[c] = (float)c - 4;
    test_graph_open_in(&t, ctx, ROWS, LS_F32);
    ls_tensor *in = of[0] = ls_op_input(t.graph, NULL, LS_F32, LS_SHAPE(LS_BATCH, CHANNELS));
    ls_tensor *b = of[1] = ls_op_variable(t.graph, NULL, LS_F32, LS_SHAPE(CHANNELS), .data = beta);
    ls_tensor *y = ls_op_batch_norm(in, .gamma = ls_op_fill(t.graph, LS_F32, LS_SHAPE(CHANNELS), 3), .beta = b,
                                    .training = true, .epsilon = 1e-3);
    assert_int_equal(ls_gradients(ls_op_square(y), of, 2, g), LS_OK);
    ls_tensor *fetch[] = { y, g[0], g[1] };
    ls_feed feed = { in, ls_array_of(LS_F32, LS_SHAPE(ROWS, CHANNELS), x) };
    assert_int_equal(ls_eval(t.graph, &feed, 1, fetch, 3), LS_OK);
    for (int f = 0; f < 3; f++) {
        double *value = test_values(fetch[f], &n);
        for (size_t i = 0; i < n; i++)
            if (!(f == 0 ? value[i] == beta[i % CHANNELS] : isfinite(value[i])))
                fail_msg("channels of %g and more: fetch %d, element %zu is %g", (double)first, f, i, value[i]);
        free(value);
    }
    test_graph_close(&t);
}

static void constant_channels_become_beta(void **state)
{
    (void)state;
    for (size_t c = 0; c <= SETS; c++)
        for (int i = 0; i < 8; i++)
            if (c == SETS || fast[c])
                check_constant_channels(c < SETS ? fast[c] : reference, 1e8f + 5555552 * (float)i);
}

/* Rounding must not make the upper end of what is half open: between two neighbours there is the
 * lower one alone. */
static void uniform_numbers_stay_below_their_upper_end(void **state)
{
    (void)state;
    for (size_t c = 0; c < SETS + 2; c++) {
        ls_context *ctx = c < SETS ? fast[c] : reference;
        ls_dtype dtype = c > SETS ? LS_F64 : LS_F32;
        double high = dtype == LS_F64 ? nextafter(3, 4) : nextafterf(3, 4);
        test_graph t;
        size_t n;
        if (!ctx)
            continue;
        test_graph_open_in(&t, ctx, 1, dtype);
        ls_tensor *x = ls_op_random_uniform(t.graph, dtype, LS_SHAPE(1000), 3, high);
        double *value = test_values(x, &n);
        for (size_t i = 0; i < n; i++)
            if (value[i] != 3)
                fail_msg("element %zu is %.17g, and must be below %.17g", i, value[i], high);
        free(value);
        test_graph_close(&t);
    }
}

/* ---- Updates ---- */

/* Whether an update by momentum of one element would leave a weight or slot that is not finite. */
static bool is_reported(ls_context *ctx, ls_dtype dtype, float w, float m, float g)
{
    test_graph t;
    ls_runtime *runtime = NULL;
    double wide[] = { w, m, g, 0.5 };
    float narrow[] = { w, m, g, 0.5f };
    const void *numbers[4];
    for (int i = 0; i < 4; i++)
        numbers[i] = dtype == LS_F64 ? (void *)&wide[i] : &narrow[i];
    test_graph_open_in(&t, ctx, 1, dtype);
    ls_tensor *weight = ls_op_variable(t.graph, NULL, dtype, LS_SHAPE(1)),
              *slot = ls_op_variable(t.graph, NULL, dtype, LS_SHAPE(1)),
              *gradient = ls_op_fill(t.graph, dtype, LS_SHAPE(1), 0), *rate = ls_op_scalar(t.graph, dtype, 0.5);
    ls_tensor *step = ls_op_apply(weight, gradient, LS_APPLY_MOMENTUM, rate, .slots = { slot }, .momentum = 1);
    assert_int_equal(ls_eval(t.graph, NULL, 0, &step, 1), LS_OK);
    assert_int_equal(ls_variable_set(weight, numbers[0], ls_dtype_bytes(dtype)), LS_OK);
    assert_int_equal(ls_variable_set(slot, numbers[1], ls_dtype_bytes(dtype)), LS_OK);
    assert_int_equal(ls_runtime_of(ctx, &runtime), LS_OK);
    int broken = runtime->host.try_update(runtime->host.backend, step, numbers + 2, 0, 1);
    test_graph_close(&t);
    return broken >= 0;
}

static void updates_that_break_are_reported(void **state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (size_t c = 0; c < SETS + 2; c++) {
        ls_context *ctx = c < SETS ? fast[c] : reference;
        ls_dtype dtype = c > SETS ? LS_F64 : LS_F32;
        if (!ctx)
            continue;
        assert_false(is_reported(ctx, dtype, 1, 2, 3));
        assert_false(is_reported(ctx, dtype, 1e-40f, -0.0f, 1e30f));
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            assert_true(is_reported(ctx, dtype, bad[i], 2, 3));
            assert_true(is_reported(ctx, dtype, 1, bad[i], 3));
            assert_true(is_reported(ctx, dtype, 1, 2, bad[i]));
        }
        if (dtype == LS_F32)
            assert_true(is_reported(ctx, dtype, FLT_MAX, FLT_MAX, 0)); /* finite before, not after */
    }
}

/* ---- All together ---- */

int main(void)
{
    ls_context_options plain = { .reference = true, .threads = 1 }, ours = { .threads = 2 };
    LS_CHECK(ls_context_open(&plain, &reference));
    for (size_t i = 0; i < SETS; i++) {
        if (!ls_simd_named(instruction_sets[i]) || (SANITIZED && i > 0))
            continue;
        setenv("LOCKSTEP_ISA", instruction_sets[i], 1);
        LS_CHECK(ls_context_open(&ours, &fast[i]));
        open_count++;
    }
    unsetenv("LOCKSTEP_ISA");
    test_expressions_add();
    test_kernel_expressions_add();
    test_suite_add_cases(right_with_special_values);
    TEST_SUITE_ADD(constant_channels_become_beta);
    TEST_SUITE_ADD(uniform_numbers_stay_below_their_upper_end);
    TEST_SUITE_ADD(updates_that_break_are_reported);
    int failed = test_suite_run("special values");
    for (size_t i = 0; i < SETS; i++)
        if (fast[i])
            ls_context_close(fast[i]);
    ls_context_close(reference);
    return failed;
}
