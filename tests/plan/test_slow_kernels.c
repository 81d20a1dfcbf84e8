/* A plan that leaves much of its work to reference kernels reports it in one line of the log, with
 * the share, the ops and their shapes. float64 has no other kernels for products: it represents
 * everything that falls back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "graph_cases.h"

#define BATCH 8

/* ---- The log ---- */

static char last[1100];
static int warnings;

static void keep_line(void *user, ls_log_level level, const char *line)
{
    (void)user;
    if (level != LS_LOG_WARNING || !strstr(line, "reference kernels"))
        return;
    warnings++;
    snprintf(last, sizeof last, "%s", line);
}

static ls_context *open_context(bool reference)
{
    ls_context *ctx = NULL;
    ls_context_options options = { .threads = 1, .reference = reference, .log_sink = keep_line };
    assert_int_equal(ls_context_open(&options, &ctx), LS_OK);
    warnings = 0;
    last[0] = '\0';
    return ctx;
}

/* ---- Graphs ---- */

/* A product [N,64,128] [128,n]: 0.131 n MFLOP. */
static ls_tensor *product(test_graph *t, ls_dtype dtype, const char *weight)
{
    t->real = dtype;
    ls_tensor *x = test_add(t, "N,64,128", TEST_FED)->tensor;
    return ls_op_matmul(x, test_add(t, weight, TEST_VARIABLE)->tensor);
}

static void run_products(ls_context *ctx, const char *in_f64, const char *in_f32)
{
    test_graph t;
    ls_tensor *y[2];
    size_t count = 0;
    test_graph_open_in(&t, ctx, BATCH, LS_F32);
    if (in_f64)
        y[count++] = product(&t, LS_F64, in_f64);
    if (in_f32)
        y[count++] = product(&t, LS_F32, in_f32);
    assert_int_equal(test_run(&t, y, count), LS_OK);
    test_graph_close(&t);
}

static void expect(const char *words)
{
    if (!strstr(last, words))
        fail_msg("the log has \"%s\", without \"%s\"", last, words);
}

/* ---- Tests ---- */

static void the_line_has_the_share_the_ops_and_their_shapes(void **state)
{
    (void)state;
    ls_context *ctx = open_context(false);
    run_products(ctx, "128,16", NULL);
    assert_int_equal(warnings, 1);
    expect("100 % of this plan's FLOPs");
    expect("matmul 100 % (float64 (batch, 64, 128), (128, 16))");
    expect("float32 has fast kernels");
    ls_context_close(ctx);
}

static void the_share_is_by_flops(void **state)
{
    (void)state;
    ls_context *ctx = open_context(false);
    run_products(ctx, "128,20", "128,180");
    assert_int_equal(warnings, 1);
    expect("10 % of this plan's FLOPs");
    ls_context_close(ctx);
}

static void a_share_of_5_percent_is_not_worth_a_line(void **state)
{
    (void)state;
    ls_context *ctx = open_context(false);
    run_products(ctx, "128,10", "128,190");
    assert_int_equal(warnings, 0);
    run_products(ctx, "128,11", "128,189");
    assert_int_equal(warnings, 1);
    ls_context_close(ctx);
}

static void less_than_a_million_flops_are_not_worth_a_line(void **state)
{
    (void)state;
    ls_context *ctx = open_context(false);
    run_products(ctx, "128,7", NULL);
    assert_int_equal(warnings, 0);
    run_products(ctx, "128,8", NULL);
    assert_int_equal(warnings, 1);
    ls_context_close(ctx);
}

/* Runs again, and plans of another batch size, have nothing new to say. */
static void a_graph_prints_each_line_once(void **state)
{
    (void)state;
    test_graph t;
    ls_context *ctx = open_context(false);
    test_graph_open_in(&t, ctx, BATCH, LS_F32);
    ls_tensor *y = product(&t, LS_F64, "128,32");
    for (int i = 0; i < 2; i++)
        assert_int_equal(test_run(&t, &y, 1), LS_OK);
    t.leaf[0].shape.dims[0] = t.batch = BATCH / 2;
    assert_int_equal(test_run(&t, &y, 1), LS_OK);
    assert_int_equal(warnings, 1);
    ls_tensor *z = product(&t, LS_F64, "128,33");
    assert_int_equal(test_run(&t, &z, 1), LS_OK);
    assert_int_equal(warnings, 2);
    test_graph_close(&t);
    ls_context_close(ctx);
}

static void fast_plans_do_not_warn(void **state)
{
    (void)state;
    ls_context *ctx = open_context(false);
    run_products(ctx, NULL, "128,16");
    assert_int_equal(warnings, 0);
    ls_context_close(ctx);
}

static void a_context_that_asked_for_reference_kernels_does_not_warn(void **state)
{
    (void)state;
    ls_context *ctx = open_context(true);
    run_products(ctx, "128,16", "128,16");
    assert_int_equal(warnings, 0);
    ls_context_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_has_the_share_the_ops_and_their_shapes),
        cmocka_unit_test(the_share_is_by_flops),
        cmocka_unit_test(a_share_of_5_percent_is_not_worth_a_line),
        cmocka_unit_test(less_than_a_million_flops_are_not_worth_a_line),
        cmocka_unit_test(a_graph_prints_each_line_once),
        cmocka_unit_test(fast_plans_do_not_warn),
        cmocka_unit_test(a_context_that_asked_for_reference_kernels_does_not_warn),
    };
    return cmocka_run_group_tests_name("slow kernels", tests, NULL, NULL);
}
