/* A step whose loss and gradients are finite, and whose update is not: it changes nothing, in
 * weights and slots, on any devices, and the message names what would not be finite. OpenCL's and
 * CUDA's devices are in test_kinds.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder.h"
#include "lockstep.h"
#include "machine.h"
#include "overflow.h"

static void on_one_cpu(void **state)
{
    (void)state;
    ls_context *ctx;
    OK(ls_context_open(&(ls_context_options){ .threads = 2 }, &ctx));
    overflow_changes_nothing(ctx, ls_one_device());
    ls_context_close(ctx);
}

static void on_four_cpus(void **state)
{
    (void)state;
    const ls_strategy strategies[] = { ls_mirrored(), ls_data_parallel(), ls_pipeline(.stages = 2) };
    for (size_t i = 0; i < LENGTH(strategies); i++) {
        ls_context *ctx;
        OK(ls_context_create(&(ls_context_options){ .threads = 4 }, &ctx));
        OK(ls_set_logical_devices(ctx, "cpu:0", (ls_logical_device[4]){ { 0 } }, 4));
        overflow_changes_nothing(ctx, strategies[i]);
        ls_context_close(ctx);
    }
}

static void on_another_kind(void **state)
{
    (void)state;
    static const char *const devices[] = { "gpu:0", "gpu:0-1", "cpu:0,gpu:0" };
    for (size_t i = 0; i < LENGTH(devices); i++) {
        machine m;
        machine_create(&m, (machine_settings){ .gpu = { .devices = 2, .memory = LS_MIB(64), .copies = true },
                                               .options = { .threads = 2 } });
        overflow_changes_nothing(m.ctx, ls_mirrored(.devices = devices[i]));
        machine_close(&m);
    }
}

static ls_status work(int rank, int count, void *user)
{
    (void)rank, (void)count, (void)user;
    ls_context *ctx;
    OK(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx));
    overflow_changes_nothing(ctx, ls_multi_worker());
    ls_context_close(ctx);
    return LS_OK;
}

/* Each joins a part of the gradients, and one part overflows. */
static void by_three_workers(void **state)
{
    (void)state;
    OK(ls_spawn(3, work, NULL));
}

static void by_the_reference_kernels(void **state)
{
    (void)state;
    ls_context *ctx;
    OK(ls_context_open(&(ls_context_options){ .threads = 2, .reference = true }, &ctx));
    overflow_changes_nothing(ctx, ls_one_device());
    ls_context_close(ctx);
}

/* One variable, updated by what is fed, with a slot. */
typedef struct one {
    ls_graph *graph;
    ls_tensor *w, *slot, *update, *step, *x, *rate, *when;
} one;

static void one_create(ls_context *ctx, one *o, ls_dtype dtype, ls_apply_op options)
{
    OK(ls_graph_create(ctx, &o->graph));
    o->x = ls_op_input(o->graph, "x", dtype, LS_SHAPE(3));
    o->when = ls_op_input(o->graph, "when", LS_BOOL, LS_SCALAR);
    o->w = ls_op_variable(o->graph, "w", dtype, LS_SHAPE(3));
    o->slot = ls_op_variable(o->graph, "slot", dtype, LS_SHAPE(3));
    o->rate = ls_op_input(o->graph, "rate", dtype, LS_SCALAR);
    options.learning_rate = o->rate;
    options.slots[0] = o->slot;
    options.when = o->when;
    o->update = ls_op_apply_with(o->w, o->x, options);
    o->step = ls_op_group(&o->update, 1);
}

static ls_status one_step_by(one *o, double x, double rate, bool when)
{
    float small[4] = { 1, (float)x, 1, (float)rate };
    double wide[4] = { 1, x, 1, rate };
    ls_dtype dtype = ls_tensor_dtype(o->x);
    char *fed = dtype == LS_F32 ? (char *)small : (char *)wide;
    return ls_eval(o->graph,
                   (ls_feed[]){ { o->x, ls_array_of(dtype, LS_SHAPE(3), fed) },
                                { o->rate, ls_array_of(dtype, LS_SCALAR, fed + 3 * ls_dtype_bytes(dtype)) },
                                { o->when, ls_array_of(LS_BOOL, LS_SCALAR, &when) } },
                   3, &o->step, 1);
}

static ls_status one_step(one *o, double x, bool when)
{
    return one_step_by(o, x, 1, when);
}

/* The fast path relies on this: the state is from this very update. */
static void state_that_others_wrote_is_looked_at(void **state)
{
    (void)state;
    ls_context *ctx;
    one o;
    OK(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx));
    one_create(ctx, &o, LS_F32, (ls_apply_op){ .rule = LS_APPLY_ADAGRAD, .epsilon = 1e-7 });
    OK(one_step(&o, 1, true));
    OK(one_step(&o, 1, true));
    const float negative[3] = { 1, -100, 1 }, huge[3] = { 1, 3e38f, 1 }, good[3] = { 1, 1, 1 };
    OK(ls_variable_set(o.slot, negative, sizeof(negative))); /* the root of a negative number */
    FAILS(one_step(&o, 1, true), LS_ERR_NOT_FINITE, "would leave w ", "no variable was changed");
    OK(one_step(&o, 1, false)); /* left out: nothing is computed of it */
    FAILS(one_step(&o, 1, true), LS_ERR_NOT_FINITE, "would leave w ", "no variable was changed");
    OK(ls_variable_set(o.slot, huge, sizeof(huge)));
    FAILS(one_step(&o, 1e19f, true), LS_ERR_NOT_FINITE, "would leave slot ", "no variable was changed");
    OK(ls_variable_set(o.slot, good, sizeof(good)));
    OK(one_step(&o, 1, true));
    OK(one_step(&o, 1, false));
    FAILS(one_step(&o, 1e30f, true), LS_ERR_NOT_FINITE, "would leave slot ", "no variable was changed");
    OK(one_step(&o, 1, true));
    ls_graph_destroy(o.graph);
    ls_context_close(ctx);
}

static void float64_is_looked_at(void **state)
{
    (void)state;
    ls_context *ctx;
    one o;
    double before[2][3], after[2][3];
    OK(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx));
    one_create(ctx, &o, LS_F64, (ls_apply_op){ .rule = LS_APPLY_ADAGRAD, .epsilon = 1e-7 });
    OK(one_step(&o, 1e100, true));
    OK(ls_variable_get(o.w, before[0], sizeof(before[0])));
    OK(ls_variable_get(o.slot, before[1], sizeof(before[1])));
    FAILS(one_step(&o, 1e200, true), LS_ERR_NOT_FINITE, "would leave slot ", "no variable was changed");
    OK(ls_variable_get(o.w, after[0], sizeof(after[0])));
    OK(ls_variable_get(o.slot, after[1], sizeof(after[1])));
    assert_memory_equal(after, before, sizeof(after));
    ls_graph_destroy(o.graph);
    ls_context_close(ctx);
}

/* An update whose value is read is not made in place. */
static void updates_that_are_read_are_looked_at(void **state)
{
    (void)state;
    ls_context *ctx;
    one o;
    float before[2][3], after[2][3];
    OK(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx));
    one_create(ctx, &o, LS_F32, (ls_apply_op){ .rule = LS_APPLY_ADAGRAD, .epsilon = 1e-7 });
    o.step = ls_op_neg(o.update);
    OK(one_step(&o, 1, true));
    OK(ls_variable_get(o.w, before[0], sizeof(before[0])));
    OK(ls_variable_get(o.slot, before[1], sizeof(before[1])));
    FAILS(one_step(&o, 1e30, true), LS_ERR_NOT_FINITE, "would leave slot ", "no variable was changed");
    OK(ls_variable_get(o.w, after[0], sizeof(after[0])));
    OK(ls_variable_get(o.slot, after[1], sizeof(after[1])));
    assert_memory_equal(after, before, sizeof(after));
    ls_graph_destroy(o.graph);
    ls_context_close(ctx);
}

/* Scalars that make an overflow of small numbers. */
static void scalars_are_looked_at(void **state)
{
    (void)state;
    ls_context *ctx;
    OK(ls_context_open(&(ls_context_options){ .threads = 1 }, &ctx));
    const ls_apply_op rows[] = {
        { .rule = LS_APPLY_ADAGRAD, .epsilon = 0 }, /* 0 / 0, where gradient and slot are 0 */
        { .rule = LS_APPLY_RMSPROP, .rho = 1, .epsilon = 0 },
        { .rule = LS_APPLY_MOMENTUM, .momentum = 1e38 },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        one o;
        float before[3], after[3];
        one_create(ctx, &o, LS_F32, rows[i]);
        ls_status status = LS_OK;
        for (int step = 0; step < 5 && status == LS_OK; step++) {
            OK(ls_variable_get(o.w, before, sizeof(before)));
            status = one_step(&o, 0, true);
        }
        assert_int_equal(status, LS_ERR_NOT_FINITE);
        machine_has(ls_last_error(), "no variable was changed");
        OK(ls_variable_get(o.w, after, sizeof(after)));
        assert_memory_equal(after, before, sizeof(after));
        for (int k = 0; k < 3; k++)
            assert_true(isfinite(after[k]));
        ls_graph_destroy(o.graph);
    }
    one o;
    one_create(ctx, &o, LS_F32, (ls_apply_op){ .rule = LS_APPLY_ADAGRAD, .epsilon = 1e-7 });
    OK(one_step(&o, 1, true));
    OK(one_step(&o, 1, true));
    FAILS(one_step_by(&o, 10, 1e38, true), LS_ERR_NOT_FINITE, "would leave w ", "no variable was changed");
    OK(one_step(&o, 1, true));
    ls_graph_destroy(o.graph);
    ls_context_close(ctx);
}

static ls_model *make_model(ls_context *ctx)
{
    ls_model *model;
    OK(ls_sequential(ctx, "m", &model, ls_input(3), ls_dense(1)));
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_mean_absolute_error()));
    return model;
}

/* Two steps, with inputs of that size. */
static ls_status fit(ls_model *model, float size, bool ends, const char *folder)
{
    float x[8][3], y[8];
    for (int i = 0; i < 8; i++) {
        y[i] = (float)i;
        for (int k = 0; k < 3; k++)
            x[i][k] = (float)(i + k + 1) * size;
    }
    return ls_fit_arrays(model, ls_array_of(LS_F32, LS_SHAPE(8, 3), x), ls_array_of(LS_F32, LS_SHAPE(8, 1), y),
                         .batch_size = 4, .epochs = 1, .verbose = LS_VERBOSE_SILENT, .checkpoint = folder,
                         .callbacks = ls_callbacks(ends ? ls_terminate_on_nan() : (ls_callback){ 0 }));
}

static void keep_lines(void *user, ls_log_level level, const char *line)
{
    char *text = user;
    (void)level;
    strncat(text, line, 4095 - strlen(text));
}

/* A good epoch, then data that only Adam's second moments cannot bear: the error, what is saved,
 * the state and the number of steps are those of the last good step. */
static void fit_keeps_the_state_of_the_last_good_step(void **state)
{
    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        ls_context *ctx;
        char before[65], after[65], lines[4096] = "", folder[] = "/tmp/test_overflow_XXXXXX", saved[64];
        int64_t steps = 0;
        assert_non_null(mkdtemp(folder));
        snprintf(saved, sizeof(saved), "%s/saved", folder);
        OK(ls_context_open(&(ls_context_options){ .threads = 2, .log_sink = keep_lines, .log_user = lines }, &ctx));
        ls_model *model = make_model(ctx), *other = make_model(ctx);
        OK(fit(model, 1, ends, NULL));
        OK(ls_model_state_sha256(model, before));
        ls_status status = fit(model, 1e30f, ends, ends ? saved : NULL);
        if (ends) {
            OK(status);
            machine_has(lines,
                        "step 3: the step would leave adam/dense/kernel/velocity with values that are not finite");
            machine_has(lines, "training ends with the weights of step 2");
            OK(ls_checkpoint_restore(other, saved));
            OK(ls_model_state_sha256(other, after));
            assert_string_equal(after, before);
        } else {
            FAILS(status, LS_ERR_NOT_FINITE, "step 3:", "adam/dense/kernel/velocity", "no variable was changed");
        }
        OK(ls_model_state_sha256(model, after));
        assert_string_equal(after, before);
        OK(ls_model_steps(model, &steps));
        assert_int_equal(steps, 2);
        ls_model_destroy(other);
        ls_model_destroy(model);
        ls_context_close(ctx);
        assert_int_equal(remove_tree(folder), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_three_workers), /* before any context of this process */
        cmocka_unit_test(on_one_cpu),
        cmocka_unit_test(on_four_cpus),
        cmocka_unit_test(on_another_kind),
        cmocka_unit_test(by_the_reference_kernels),
        cmocka_unit_test(state_that_others_wrote_is_looked_at),
        cmocka_unit_test(float64_is_looked_at),
        cmocka_unit_test(updates_that_are_read_are_looked_at),
        cmocka_unit_test(scalars_are_looked_at),
        cmocka_unit_test(fit_keeps_the_state_of_the_last_good_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
