/* Time: what a run reads, when its writes appear, what eager tensors keep, what a scope ends, and
 * random numbers from run to run. (docs/design.md, "Time".) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "lockstep.h"
#include "sanitized.h"
#include "with_graph.h"

#define RUN(...)              ls_eval(g, NULL, 0, (ls_tensor *[]){ __VA_ARGS__ }, LS_COUNT_TENSORS(__VA_ARGS__))
#define LS_COUNT_TENSORS(...) (sizeof((ls_tensor *[]){ __VA_ARGS__ }) / sizeof(ls_tensor *))

static ls_tensor *number(double value)
{
    return ls_op_scalar(g, LS_F32, value);
}

static ls_tensor *variable(const char *name, float value)
{
    return ls_op_variable(g, name, LS_F32, LS_SCALAR, .data = &value);
}

static double value_of(ls_tensor *tensor)
{
    double value = NAN;
    OK(ls_read_scalar(tensor, &value));
    return value;
}

static void set(ls_tensor *tensor, float value)
{
    OK(ls_variable_set(tensor, &value, sizeof(value)));
}

/* Exactly; NaN equals nothing. */
#define IS(tensor, expected) is(value_of(tensor), expected, __LINE__)

static void is(double value, double expected, int line)
{
    if (!(value == expected))
        fail_msg("line %d: %.17g, expected %.17g", line, value, expected);
}

/* A run that always fails, by its data: a label out of range. */
static ls_tensor *failing(void)
{
    float logits[] = { 0, 0, 0 };
    int32_t label = 3;
    return ls_op_sparse_cross_entropy(ls_op_constant(g, LS_I32, LS_SHAPE(1), &label),
                                      ls_op_constant(g, LS_F32, LS_SHAPE(1, 3), logits), LS_LOGITS);
}

/* ---- Reads and writes of one run ---- */

static void a_run_reads_variables_as_they_were_at_its_start(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 3);
    ls_tensor *before = ls_op_scale(v, 10);
    ls_tensor *write = ls_op_assign(v, ls_op_shift(v, 1));
    ls_tensor *after = ls_op_scale(v, 100); /* made, and fetched, after the write: that changes nothing */
    OK(RUN(write, before, after));
    IS(write, 4); /* a write's value is the new value */
    IS(before, 30);
    IS(after, 300);
    IS(v, 4);
    OK(RUN(after, write));
    IS(after, 400);
    IS(v, 5);
}

static void what_depends_on_a_write_sees_the_new_value(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 3);
    ls_tensor *write = ls_op_assign_add(v, number(2));
    ls_tensor *of_new = ls_op_scale(write, 10), *of_old = ls_op_scale(v, 10);
    OK(RUN(of_new, of_old));
    IS(of_new, 50);
    IS(of_old, 30);
    IS(v, 5);
}

static void variables_swap_in_one_run(void **state)
{
    (void)state;
    float a_data[] = { 1, 2 }, b_data[] = { 3, 4 }, got[2];
    ls_tensor *a = ls_op_variable(g, "a", LS_F32, LS_SHAPE(2), .data = a_data);
    ls_tensor *b = ls_op_variable(g, "b", LS_F32, LS_SHAPE(2), .data = b_data);
    OK(RUN(ls_op_assign(a, b), ls_op_assign(b, a)));
    OK(ls_variable_get(a, got, sizeof(got)));
    assert_memory_equal(got, b_data, sizeof(got));
    OK(ls_variable_get(b, got, sizeof(got)));
    assert_memory_equal(got, a_data, sizeof(got));
}

static void only_what_is_needed_is_written(void **state)
{
    (void)state;
    ls_tensor *a = variable("a", 1), *b = variable("b", 1);
    ls_tensor *write_a = ls_op_assign(a, number(2));
    ls_op_assign(b, number(2)); /* it is not fetched */
    OK(RUN(write_a));
    IS(a, 2);
    IS(b, 1);
}

static void an_update_writes_variable_and_slots_together(void **state)
{
    (void)state;
    ls_tensor *w = variable("w", 1), *m = variable("m", 10), *grad = number(3), *rate = number(0.5);
    ls_tensor *step =
        ls_op_apply(w, grad, .rule = LS_APPLY_MOMENTUM, .learning_rate = rate, .slots = { m }, .momentum = 0.5);
    ls_tensor *old_slot = ls_op_scale(m, 1);
    OK(RUN(step, old_slot));
    IS(m, 0.5 * 10 - 0.5 * 3);
    IS(w, 1 + 3.5);
    IS(step, 4.5);
    IS(old_slot, 10);
    assert_int_equal(RUN(step, failing()), LS_ERR_DATA);
    IS(m, 3.5);
    IS(w, 4.5);
}

static void two_writes_of_a_variable_in_one_run_are_refused(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 3), *m = variable("m", 0);
    ls_tensor *first = ls_named(ls_op_assign(v, number(4)), "first");
    ls_tensor *second = ls_named(ls_op_assign_add(v, number(1)), "second");
    assert_int_equal(RUN(first, second), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "v is written twice in one run, by first and by second"));
    IS(v, 3);
    ls_tensor *slot = ls_op_apply(v, number(1), .rule = LS_APPLY_MOMENTUM, .learning_rate = number(1), .slots = { m });
    assert_int_equal(RUN(slot, ls_op_assign(m, number(9))), LS_ERR_INVALID); /* slots are variables too */
    IS(m, 0);
    OK(RUN(first));
    OK(RUN(second));
    IS(v, 5);
    OK(RUN(first, first)); /* one node fetched twice is one write */
    IS(v, 4);
}

static void running_again_computes_again(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 0), *write = ls_op_assign_add(v, number(1)), *twice = ls_op_scale(v, 2);
    for (int i = 1; i <= 5; i++) {
        OK(RUN(write));
        IS(v, i);
        OK(RUN(twice));
        IS(twice, 2 * i);
    }
}

/* ---- Failed runs ---- */

static void a_failed_run_writes_nothing(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 3), *write = ls_op_assign(v, number(4)), *kept = ls_op_scale(v, 2), *bad = failing();
    OK(RUN(kept));
    set(v, 5);
    assert_int_equal(RUN(write, kept, bad), LS_ERR_DATA);
    assert_non_null(strstr(ls_last_error(), "label 3"));
    IS(v, 5);
    IS(kept, 6); /* also what was held stays */
    assert_int_equal(RUN(bad, write), LS_ERR_DATA);
    IS(v, 5);
    double untouched = -1;
    assert_int_equal(ls_read_scalar(bad, &untouched), LS_ERR_DATA); /* nothing is held of it */
    assert_true(untouched == -1);
    OK(RUN(write));
    IS(v, 4);
}

static void a_failed_eager_read_writes_nothing(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 3), *write = ls_op_assign(v, number(4));
    ls_tensor *both = ls_op_add(write, ls_op_reduce_sum(failing(), LS_ALL_AXES, false));
    double value;
    assert_int_equal(ls_read_scalar(both, &value), LS_ERR_DATA);
    IS(v, 3);
    IS(write, 4); /* it was not held: this runs it */
    IS(v, 4);
}

static void a_failed_run_draws_no_random_numbers(void **state)
{
    (void)state;
    ls_graph *other;
    OK(ls_graph_create(ctx, &other, .seed = 7));
    ls_tensor *here = ls_op_random_uniform(g, LS_F32, LS_SHAPE(5), 0, 1);
    ls_tensor *there = ls_op_random_uniform(other, LS_F32, LS_SHAPE(5), 0, 1);
    ls_tensor *bad = failing();
    for (int i = 0; i < 3; i++) {
        float a[5], b[5];
        OK(RUN(here));
        assert_int_equal(RUN(here, bad), LS_ERR_DATA);
        OK(ls_eval(other, NULL, 0, &there, 1));
        OK(ls_read(here, a, sizeof(a)));
        OK(ls_read(there, b, sizeof(b)));
        assert_memory_equal(a, b, sizeof(a)); /* the counter of runs went on by one in both */
    }
    ls_graph_destroy(other);
}

/* ---- Eager tensors ---- */

static void an_eager_tensor_keeps_its_value(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 3), *twice = ls_op_scale(v, 2);
    IS(twice, 6);
    set(v, 10);
    IS(twice, 6);
    IS(v, 10); /* a variable holds nothing: it is read now */
    IS(ls_op_scale(v, 2), 20);
    OK(RUN(twice));
    IS(twice, 20);
}

static void what_was_read_together_stays_together(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 3), *twice = ls_op_scale(v, 2), *sum = ls_op_shift(twice, 1);
    IS(sum, 7); /* computes twice on the way */
    set(v, 10);
    IS(twice, 6);
    IS(ls_op_add(twice, sum), 13);
    IS(ls_op_add(twice, v), 16); /* the held one, and the variable as it is now */
}

static void an_eager_write_happens_once(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 0), *write = ls_op_assign_add(v, number(1));
    IS(write, 1);
    IS(write, 1);
    IS(ls_op_scale(write, 10), 10);
    IS(v, 1);
    OK(RUN(write)); /* a run is a run */
    IS(v, 2);
    IS(write, 2);
}

static void a_fetched_variable_is_not_held(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 3);
    OK(RUN(v));
    set(v, 4);
    IS(v, 4);
    IS(ls_op_scale(v, 10), 40); /* and not the 3 of that run */
    ls_tensor *write = ls_op_assign(v, number(5));
    OK(RUN(v, write));
    IS(v, 5);
    IS(ls_op_scale(v, 10), 50);
}

static void held_values_of_a_fed_run_serve_later_reads(void **state)
{
    (void)state;
    float data[] = { 1, 2, 3, 4, 5 }, got[5];
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH)), *square = ls_op_square(x);
    ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(5), data) };
    OK(ls_eval(g, &feed, 1, &square, 1));
    ls_tensor *sum = ls_op_reduce_sum(square, LS_ALL_AXES, false),
              *mean = ls_op_reduce_mean(square, LS_ALL_AXES, false);
    IS(sum, 55);
    IS(mean, 11); /* the batch of that run is known, too */
    OK(ls_read(ls_op_neg(square), got, sizeof(got)));
    assert_true(got[4] == -25);
    double value;
    assert_int_equal(ls_read_scalar(ls_op_reduce_sum(x, LS_ALL_AXES, false), &value), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "x is needed but was not fed")); /* x itself was not fetched */
    ls_array view;
    OK(ls_value(square, &view));
    assert_true(view.dtype == LS_F32 && view.shape.rank == 1 && view.shape.dims[0] == 5);
    assert_true(((float *)view.data)[2] == 9);
}

static void whole_values_of_different_batches_go_together(void **state)
{
    (void)state;
    float data[] = { 1, 2, 3, 4, 5 };
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH));
    ls_tensor *train = ls_op_reduce_mean(x, LS_ALL_AXES, false),
              *test = ls_op_reduce_mean(ls_op_neg(x), LS_ALL_AXES, false);
    OK(ls_eval(g, &(ls_feed){ x, ls_array_of(LS_F32, LS_SHAPE(5), data) }, 1, &train, 1));
    OK(ls_eval(g, &(ls_feed){ x, ls_array_of(LS_F32, LS_SHAPE(3), data) }, 1, &test, 1));
    IS(ls_op_add(train, test), 1); /* 3 - 2: two losses, of 5 samples and of 3 */
    ls_tensor *five = ls_op_scale(x, 1), *three = ls_op_scale(x, 1);
    OK(ls_eval(g, &(ls_feed){ x, ls_array_of(LS_F32, LS_SHAPE(5), data) }, 1, &five, 1));
    OK(ls_eval(g, &(ls_feed){ x, ls_array_of(LS_F32, LS_SHAPE(3), data) }, 1, &three, 1));
    double value;
    assert_int_equal(ls_read_scalar(ls_op_reduce_sum(ls_op_add(five, three), LS_ALL_AXES, false), &value),
                     LS_ERR_SHAPE);
    assert_non_null(strstr(ls_last_error(), "5 samples"));
    assert_non_null(strstr(ls_last_error(), "3 in"));
}

static void unused_inputs_need_no_feed(void **state)
{
    (void)state;
    float data[] = { 1, 2, 3 };
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH)),
              *y = ls_op_input(g, "y", LS_F32, LS_SHAPE(LS_BATCH));
    ls_tensor *sum = ls_op_reduce_sum(x, LS_ALL_AXES, false),
              *both = ls_op_reduce_sum(ls_op_add(x, y), LS_ALL_AXES, false);
    ls_feed feeds[] = { { x, ls_array_of(LS_F32, LS_SHAPE(3), data) }, { y, ls_array_of(LS_F32, LS_SHAPE(3), data) } };
    OK(ls_eval(g, feeds, 1, &sum, 1));
    IS(sum, 6);
    OK(ls_eval(g, feeds, 2, &sum, 1)); /* and one fed too many does no harm */
    assert_int_equal(ls_eval(g, feeds, 1, &both, 1), LS_ERR_INVALID);
    OK(ls_eval(g, feeds, 2, &both, 1));
    IS(both, 12);
}

static void an_empty_batch_runs(void **state)
{
    (void)state;
    ls_tensor *x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, 2));
    ls_tensor *sum = ls_op_reduce_sum(x, LS_ALL_AXES, false), *twice = ls_op_scale(x, 2),
              *count = ls_op_count(g, LS_I64);
    ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(0, 2), NULL) };
    OK(ls_eval(g, &feed, 1, (ls_tensor *[]){ sum, twice, count, x }, 4));
    IS(sum, 0);
    IS(count, 0);
    OK(ls_read(twice, NULL, 0));
}

/* ---- Scopes ---- */

static void a_scope_ends_what_was_made_inside(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 3), *found;
    size_t nodes = ls_graph_node_count(g);
    ls_memory_info before, after;
    OK(ls_get_memory_info(ctx, "cpu:0", &before));
    LS_SCOPE(g)
    {
        ls_tensor *w = variable("w", 1);
        ls_tensor *sum = ls_named(ls_op_add(v, w), "sum");
        IS(sum, 4);
        OK(ls_graph_find(g, "w", &found));
        IS(ls_op_assign(v, sum), 4);
    }
    assert_int_equal(ls_graph_node_count(g), nodes);
    OK(ls_get_memory_info(ctx, "cpu:0", &after));
    assert_int_equal(after.in_use, before.in_use);
    IS(v, 4); /* a value written to an outer variable stays */
    assert_int_equal(ls_graph_find(g, "w", &found), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_graph_find(g, "sum", &found), LS_ERR_NOT_FOUND);
    ls_tensor *w = variable("w", 2); /* the names are free again */
    IS(w, 2);
    OK(ls_graph_find(g, "w", &found));
    assert_ptr_equal(found, w);
}

static void scopes_nest(void **state)
{
    (void)state;
    ls_tensor *found;
    LS_SCOPE(g)
    {
        ls_tensor *outer = variable("outer", 1);
        for (int i = 0; i < 3; i++) {
            LS_SCOPE(g)
            {
                ls_tensor *inner = variable("inner", (float)i);
                LS_NAME_SCOPE(g, "deep")
                {
                    LS_SCOPE(g) IS(ls_named(ls_op_add(inner, outer), "sum"), i + 1);
                    assert_int_equal(ls_graph_find(g, "deep/sum", &found), LS_ERR_NOT_FOUND);
                }
                OK(ls_graph_find(g, "inner", &found));
            }
            assert_int_equal(ls_graph_find(g, "inner", &found), LS_ERR_NOT_FOUND);
            IS(outer, 1);
        }
    }
    assert_int_equal(ls_graph_node_count(g), 0);
}

/* Leaves its scopes in the middle. */
static double leave_by_return(ls_tensor *v)
{
    LS_SCOPE(g)
    {
        LS_NAME_SCOPE(g, "left")
        {
            ls_tensor *inside = variable("inside", 5);
            return value_of(ls_op_add(v, inside));
        }
    }
    return NAN;
}

static void break_and_return_close_scopes(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 3), *found;
    size_t nodes = ls_graph_node_count(g);
    assert_true(leave_by_return(v) == 8);
    assert_int_equal(ls_graph_node_count(g), nodes);
    assert_int_equal(ls_graph_find(g, "left/inside", &found), LS_ERR_NOT_FOUND);
    LS_SCOPE(g)
    {
        variable("inside", 1);
        if (v)
            break;
        fail();
    }
    assert_int_equal(ls_graph_node_count(g), nodes);
    for (int i = 0; i < 3; i++) {
        LS_SCOPE(g)
        {
            variable("inside", 1);
            if (i == 1)
                continue; /* continue leaves the scope, and the loop goes on */
        }
        assert_int_equal(ls_graph_node_count(g), nodes);
    }
    ls_named(variable(NULL, 0), "name"); /* without a prefix: the name scope ended, too */
    OK(ls_graph_find(g, "name", &found));
}

static void names_given_inside_end_with_the_scope(void **state)
{
    (void)state;
    ls_tensor *outer = number(1), *found = NULL;
    LS_SCOPE(g)
    {
        assert_ptr_equal(ls_named(outer, "guest"), outer);
        OK(ls_graph_find(g, "guest", &found));
        assert_ptr_equal(found, outer);
        LS_SCOPE(g) number(2);
        assert_string_equal(ls_tensor_name(outer), "guest");
    }
    assert_string_equal(ls_tensor_name(outer), "");
    assert_int_equal(ls_graph_find(g, "guest", &found), LS_ERR_NOT_FOUND);
    assert_ptr_equal(ls_named(outer, "at_home"), outer);
    assert_string_equal(ls_tensor_name(outer), "at_home");
}

static void an_error_inside_ends_with_the_scope(void **state)
{
    (void)state;
    LS_SCOPE(g)
    {
        ls_op_add(number(1), ls_op_scalar(g, LS_I32, 1));
        assert_int_equal(ls_graph_status(g), LS_ERR_DTYPE);
    }
    OK(ls_graph_status(g));
}

static void closing_twice_does_nothing(void **state)
{
    (void)state;
    number(1);
    ls_scope scope = ls_scope_open(g), copy = scope;
    number(2);
    ls_scope_close(&scope);
    ls_scope_close(&scope);
    ls_scope_close(&copy); /* not the graph's scope any more */
    assert_int_equal(ls_graph_node_count(g), 1);
}

/* ---- Random numbers ---- */

#define SAMPLES 9
#define EACH    7

/* Numbers of a per-sample node in a run with `batch` samples. */
static void draw(ls_graph *graph, ls_tensor *x, ls_tensor *random, int64_t batch, float out[][EACH])
{
    float zeros[SAMPLES] = { 0 };
    ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(batch), zeros) };
    OK(ls_eval(graph, &feed, 1, (ls_tensor *[]){ random, x }, 2));
    OK(ls_read(random, out, (size_t)batch * EACH * sizeof(float)));
}

static void random_numbers_do_not_depend_on_the_batch_size(void **state)
{
    (void)state;
    for (int normal = 0; normal < 2; normal++) {
        ls_graph *graphs[2];
        float got[2][SAMPLES][EACH] = { { { 0 } } };
        for (int i = 0; i < 2; i++) {
            OK(ls_graph_create(ctx, &graphs[i], .seed = 3));
            ls_tensor *x = ls_op_input(graphs[i], "x", LS_F32, LS_SHAPE(LS_BATCH));
            ls_shape shape = LS_SHAPE(LS_BATCH, EACH);
            ls_tensor *r = normal ? ls_op_random_normal(graphs[i], LS_F32, shape, 0, 1)
                                  : ls_op_random_uniform(graphs[i], LS_F32, shape, 0, 1);
            draw(graphs[i], x, r, i ? 9 : 5, got[i]);
        }
        assert_memory_equal(got[0], got[1], 5 * EACH * sizeof(float));
        for (int s = 1; s < 9; s++)
            assert_memory_not_equal(got[1][0], got[1][s], EACH * sizeof(float)); /* but rows differ */
        ls_graph_destroy(graphs[0]);
        ls_graph_destroy(graphs[1]);
    }
}

static void same_seed_same_numbers(void **state)
{
    (void)state;
    float got[3][2][EACH];
    uint64_t seeds[] = { 5, 5, 6 };
    for (int i = 0; i < 3; i++) {
        ls_graph *graph;
        OK(ls_graph_create(ctx, &graph, .seed = seeds[i]));
        ls_tensor *r[2];
        for (int k = 0; k < 2; k++)
            r[k] = ls_op_random_uniform(graph, LS_F32, LS_SHAPE(EACH), 0, 1);
        OK(ls_eval(graph, NULL, 0, r, 2));
        for (int k = 0; k < 2; k++)
            OK(ls_read(r[k], got[i][k], sizeof(got[i][k])));
        ls_graph_destroy(graph);
    }
    assert_memory_equal(got[0], got[1], sizeof(got[0]));
    assert_memory_not_equal(got[0][0], got[2][0], sizeof(got[0][0])); /* another seed */
    assert_memory_not_equal(got[0][0], got[0][1], sizeof(got[0][0])); /* another node */
}

static void random_numbers_are_new_in_every_run(void **state)
{
    (void)state;
    ls_tensor *r = ls_op_random_normal(g, LS_F64, LS_SHAPE(EACH), 0, 1);
    ls_tensor *same = ls_op_scale(r, 1);
    double before[EACH] = { 0 }, now[EACH], copy[EACH];
    for (int i = 0; i < 4; i++) {
        OK(RUN(r, same));
        OK(ls_read(r, now, sizeof(now)));
        OK(ls_read(same, copy, sizeof(copy)));
        assert_memory_equal(now, copy, sizeof(now)); /* one run, one value */
        assert_memory_not_equal(now, before, sizeof(now));
        memcpy(before, now, sizeof(now));
    }
    OK(ls_read(r, now, sizeof(now)));
    assert_memory_equal(now, before, sizeof(now)); /* reading is no run */
}

#define MANY 100000

/* Mean and deviation, and the mean of the product of neighbours, of MANY numbers. */
static void check_moments(ls_tensor *r, double mean, double deviation, double low, double high)
{
    double sum = 0, squares = 0, neighbours = 0, before = 0;
    ls_array value;
    OK(ls_value(r, &value));
    for (int i = 0; i < MANY; i++) {
        double x = value.dtype == LS_F32 ? ((float *)value.data)[i] : ((double *)value.data)[i];
        assert_true(x >= low && x < high);
        sum += x;
        squares += (x - mean) * (x - mean);
        neighbours += i ? (x - mean) * (before - mean) : 0;
        before = x;
    }
    double tolerance = 5 * deviation / sqrt(MANY); /* five standard errors: the numbers are fixed by the seed */
    assert_true(fabs(sum / MANY - mean) <= tolerance);
    assert_true(fabs(sqrt(squares / MANY) - deviation) <= tolerance);
    assert_true(fabs(neighbours / MANY) <= deviation * tolerance);
}

static void moments_of_random_numbers(void **state)
{
    (void)state;
    for (ls_dtype dtype = LS_F32; dtype <= LS_F64; dtype++) {
        check_moments(ls_op_random_uniform(g, dtype, LS_SHAPE(MANY), -1, 3), 1, 4 / sqrt(12), -1, 3);
        check_moments(ls_op_random_normal(g, dtype, LS_SHAPE(MANY), 2, 0.5), 2, 0.5, -8, 12);
    }
}

/* ---- Dropout ---- */

typedef struct drop {
    ls_tensor *x, *rate, *y, *dx;
} drop;

static drop make_drop(void)
{
    drop d;
    d.x = ls_op_input(g, "x", LS_F32, LS_SHAPE(LS_BATCH, EACH));
    d.rate = ls_op_input(g, "rate", LS_F32, LS_SCALAR);
    d.y = ls_op_dropout(d.x, d.rate);
    OK(ls_gradients(d.y, &d.x, 1, &d.dx));
    return d;
}

static ls_status run_drop(const drop *d, const float *x, int64_t batch, float rate)
{
    ls_feed feeds[] = { { d->x, ls_array_of(LS_F32, LS_SHAPE(batch, EACH), x) },
                        { d->rate, ls_array_of(LS_F32, LS_SCALAR, &rate) } };
    return ls_eval(g, feeds, 2, (ls_tensor *[]){ d->y, d->dx }, 2);
}

static void dropout_of_a_fed_rate(void **state)
{
    (void)state;
    enum { BATCH = 2000 };
    static float x[BATCH * EACH], y[BATCH * EACH], dx[BATCH * EACH];
    drop d = make_drop();
    for (int i = 0; i < BATCH * EACH; i++)
        x[i] = 1 + (float)(i % 5);
    OK(run_drop(&d, x, BATCH, 0));
    OK(ls_read(d.y, y, sizeof(y)));
    assert_memory_equal(x, y, sizeof(x)); /* rate 0: the identity */
    OK(run_drop(&d, x, BATCH, 0.5F));
    OK(ls_read(d.y, y, sizeof(y)));
    OK(ls_read(d.dx, dx, sizeof(dx)));
    double sum = 0, kept = 0, total = 0;
    for (int i = 0; i < BATCH * EACH; i++) {
        bool keep = y[i] != 0;
        assert_true(!keep || y[i] == 2 * x[i]);
        assert_true(dx[i] == (keep ? 2.0F : 0.0F)); /* backward makes the same mask again */
        kept += keep;
        sum += y[i];
        total += x[i];
    }
    assert_true(fabs(kept / (BATCH * EACH) - 0.5) <= 5 * 0.5 / sqrt(BATCH * EACH));
    assert_true(fabs(sum / total - 1) <= 0.05);
    float rates[] = { -0.1F, 1, 1.5F, NAN };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(run_drop(&d, x, BATCH, rates[i]), LS_ERR_DATA);
        assert_non_null(strstr(ls_last_error(), "dropout"));
    }
}

static void masks_differ_from_run_to_run_and_not_by_batch_size(void **state)
{
    (void)state;
    float x[SAMPLES * EACH], first[SAMPLES][EACH], second[SAMPLES][EACH], small[5][EACH];
    for (int i = 0; i < SAMPLES * EACH; i++)
        x[i] = 1;
    drop d = make_drop();
    OK(run_drop(&d, x, SAMPLES, 0.5F));
    OK(ls_read(d.y, first, sizeof(first)));
    OK(run_drop(&d, x, SAMPLES, 0.5F));
    OK(ls_read(d.y, second, sizeof(second)));
    assert_memory_not_equal(first, second, sizeof(first));
    ls_graph *here = g;
    OK(ls_graph_create(ctx, &g, .seed = 7));
    d = make_drop();
    OK(run_drop(&d, x, 5, 0.5F));
    OK(ls_read(d.y, small, sizeof(small)));
    assert_memory_equal(first, small, sizeof(small));
    ls_graph_destroy(g);
    g = here;
}

/* ---- A million eager operations ---- */

static long resident_bytes(void)
{
    long pages = -1;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*s %ld", &pages) != 1)
        pages = -1;
    if (file)
        fclose(file);
    return pages < 0 ? -1 : pages * sysconf(_SC_PAGESIZE);
}

#if SANITIZED
#define EAGER_OPS 30000
#else
#define EAGER_OPS 1000000
#endif

/* Ten eager operations a step, one of them a write: v goes round 0, 1, ... 6, 0, ... */
static void eager_step(ls_tensor *v, int step)
{
    LS_SCOPE(g)
    {
        ls_tensor *now = ls_op_scale(v, 1);
        IS(now, step % 7);
        ls_tensor *next = ls_op_shift(now, 1);
        ls_tensor *wraps = ls_op_compare(next, LS_GREATER_EQUAL, number(7));
        ls_tensor *write = ls_op_assign(v, ls_op_select(wraps, number(0), next));
        IS(write, (step + 1) % 7);
        IS(now, step % 7); /* keeps its value, whatever was assigned */
        IS(ls_named(ls_op_sub(now, v), "change"), step % 7 - (step + 1) % 7);
        set(v, (float)((step + 1) % 7));
    }
}

static void a_million_eager_operations_keep_memory_flat(void **state)
{
    (void)state;
    ls_tensor *v = variable("v", 0);
    size_t nodes = ls_graph_node_count(g);
    long early = 0;
    for (int step = 0; step < EAGER_OPS / 10; step++) {
        eager_step(v, step);
        if (step == 10000 / 10)
            early = resident_bytes();
    }
    assert_int_equal(ls_graph_node_count(g), nodes);
    IS(v, EAGER_OPS / 10 % 7);
#if SANITIZED
    (void)early; /* the sanitizer's own memory grows */
#else
    assert_true(early > 0);
    assert_true(labs(resident_bytes() - early) <= 1 << 20);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_GRAPH(a_run_reads_variables_as_they_were_at_its_start),
        WITH_GRAPH(what_depends_on_a_write_sees_the_new_value),
        WITH_GRAPH(variables_swap_in_one_run),
        WITH_GRAPH(only_what_is_needed_is_written),
        WITH_GRAPH(an_update_writes_variable_and_slots_together),
        WITH_GRAPH(two_writes_of_a_variable_in_one_run_are_refused),
        WITH_GRAPH(running_again_computes_again),
        WITH_GRAPH(a_failed_run_writes_nothing),
        WITH_GRAPH(a_failed_eager_read_writes_nothing),
        WITH_GRAPH(a_failed_run_draws_no_random_numbers),
        WITH_GRAPH(an_eager_tensor_keeps_its_value),
        WITH_GRAPH(what_was_read_together_stays_together),
        WITH_GRAPH(an_eager_write_happens_once),
        WITH_GRAPH(a_fetched_variable_is_not_held),
        WITH_GRAPH(held_values_of_a_fed_run_serve_later_reads),
        WITH_GRAPH(whole_values_of_different_batches_go_together),
        WITH_GRAPH(unused_inputs_need_no_feed),
        WITH_GRAPH(an_empty_batch_runs),
        WITH_GRAPH(a_scope_ends_what_was_made_inside),
        WITH_GRAPH(scopes_nest),
        WITH_GRAPH(break_and_return_close_scopes),
        WITH_GRAPH(names_given_inside_end_with_the_scope),
        WITH_GRAPH(an_error_inside_ends_with_the_scope),
        WITH_GRAPH(closing_twice_does_nothing),
        WITH_GRAPH(random_numbers_do_not_depend_on_the_batch_size),
        WITH_GRAPH(same_seed_same_numbers),
        WITH_GRAPH(random_numbers_are_new_in_every_run),
        WITH_GRAPH(moments_of_random_numbers),
        WITH_GRAPH(dropout_of_a_fed_rate),
        WITH_GRAPH(masks_differ_from_run_to_run_and_not_by_batch_size),
        WITH_GRAPH(a_million_eager_operations_keep_memory_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
