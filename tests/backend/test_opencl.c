/* OpenCL devices: whole trainings have the CPU's bits, on one device, on two that are halves of
 * one, and beside the CPU; a steady step moves neither weight nor gradient to the host; a device of
 * CPU type is used only where it is named; errors in data are reported as on the CPU. Op by op:
 * test_opencl_bits.c. Skipped where there is no OpenCL. / */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/cl.h"
#include "backend/opencl/opencl.h"
#include "lockstep.h"
#include "machine.h"
#include "networks.h"
#include "opencl.h"
#include "other_kind.h"
#include "skip.h"

static bool there; /* two parts of a CPU of OpenCL's */

#define NEED_OPENCL                                                                                                    \
    if (!there)                                                                                                        \
    SKIP("no OpenCL device with two cores (tools/deps.sh install opencl)")

/* ---- Bits, copies, messages ---- */

static const other_kind opencl = { "opencl:0", "opencl:1", "opencl:0-1", opencl_open };

static void trainings_have_the_cpu_s_bits(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_trains_as_the_cpu(&opencl);
}

static void layers_on_both_have_the_cpu_s_bits(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_shares_layers_with_the_cpu(&opencl);
}

static void sequences_and_augmented_images_have_the_cpu_s_bits(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_trains_sequences_and_augmented_images(&opencl);
}

static void a_steady_step_moves_no_weights(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_moves_no_weights(&opencl);
}

static void launches_do_not_depend_on_lanes(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_launches_all_lanes_at_once(&opencl);
}

static void as_many_lanes_as_fit_are_run_at_once(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_runs_as_many_lanes_as_fit(&opencl);
}

static void chains_are_one_launch_and_have_the_cpu_s_bits(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_fuses_chains(&opencl);
}

static void gathered_rows_are_added_in_order(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_adds_gathered_rows_in_order(&opencl);
}

static void scratch_memory_counts(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_counts_scratch_memory(&opencl);
}

static void fewer_lanes_run_at_once_for_scratch_memory(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_runs_fewer_lanes_for_scratch_memory(&opencl);
}

static void scratch_memory_in_use_is_replaced(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_replaces_scratch_memory_in_use(&opencl);
}

static void a_wrong_label_is_reported_as_on_the_cpu(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_tells_a_wrong_label(&opencl);
}

static void what_waits_keeps_its_order(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_keeps_the_order(&ls_opencl_backend);
}

static void joins_apart_are_one_launch(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_joins_together(&ls_opencl_backend);
}

static void a_run_again_is_no_run_before(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_runs_again(&ls_opencl_backend);
}

static void many_values_are_looked_at_together(void **state)
{
    (void)state;
    NEED_OPENCL;
    other_checks_many_at_once(&ls_opencl_backend);
}

/* A driver that fails once, after this number of launches. */
static int launches_left;
static int32_t (*real_launch)(ls_cl_queue, ls_cl_kernel, uint32_t, const size_t *, const size_t *, const size_t *,
                              uint32_t, const ls_cl_event *, ls_cl_event *);

static int32_t failing_launch(ls_cl_queue queue, ls_cl_kernel kernel, uint32_t axes, const size_t *offset,
                              const size_t *global, const size_t *local, uint32_t waits, const ls_cl_event *events,
                              ls_cl_event *event)
{
    if (launches_left > 0 && --launches_left == 0)
        return LS_CL_OUT_OF_RESOURCES;
    return real_launch(queue, kernel, axes, offset, global, local, waits, events, event);
}

static void a_launch_that_fails_changes_nothing(void **state)
{
    (void)state;
    NEED_OPENCL;
    ls_cl *cl = (ls_cl *)&ls_opencl_get()->cl;
    char before[65], after[65], expected[65], hash[65];
    other_job j = { NETWORK_CNN, 7, 3, { NULL, NULL } };
    other_train(&opencl, &j, "cpu:0", expected);
    ls_context *ctx = other_open(&opencl, "opencl:0");
    network n;
    OK(network_create(ctx, NETWORK_CNN, &n));
    OK(ls_graph_set_lanes(n.graph, j.lanes));
    OK(network_state(&n, before));
    real_launch = cl->EnqueueNDRangeKernel;
    cl->EnqueueNDRangeKernel = failing_launch;
    for (int at = 10; at < 70; at += 20) { /* the first while kernels are warmed up */
        launches_left = at;
        ls_status status = network_step(&n, j.batch, 0);
        if (status == LS_OK)
            fail_msg("%d launches were not enough to fail", at);
        machine_failed(status, LS_ERR_DEVICE, (const char *const[]){ "CL_OUT_OF_RESOURCES", NULL });
        OK(network_state(&n, after));
        assert_string_equal(after, before);
    }
    cl->EnqueueNDRangeKernel = real_launch;
    OK(network_train(&n, j.batch, OTHER_STEPS, hash));
    assert_string_equal(hash, expected);
    network_destroy(&n);
    ls_context_close(ctx);
}

/* ---- Devices ---- */

static void a_cpu_of_opencl_s_is_used_only_where_it_is_named(void **state)
{
    (void)state;
    NEED_OPENCL;
    ls_context *ctx;
    ls_device_info *list;
    size_t count;
    OK(ls_context_create(NULL, &ctx));
    OK(ls_list_physical_devices(ctx, "OPENCL", &list, &count));
    assert_true(count >= 2);
    for (size_t i = 0; i < count; i++) {
        const ls_opencl_device *d = &ls_opencl_get()->devices[i];
        assert_int_equal(list[i].number, (int)i);
        assert_int_equal(list[i].visible, !d->cpu);
        assert_true(list[i].memory > 0);
        machine_has(list[i].about, d->name);
    }
    free(list);
    assert_int_equal(machine_devices(ctx, "OPENCL"), 0);
    ls_context_close(ctx);
    ctx = other_open(&opencl, "opencl:1");
    assert_int_equal(machine_devices(ctx, "OPENCL"), 1);
    ls_context_close(ctx);
}

/* In a context that is open, and knew nothing of it, until something ran. */
static void a_strategy_may_name_it(void **state)
{
    (void)state;
    NEED_OPENCL;
    char expected[65], hash[65];
    other_job j = { NETWORK_CNN, 33, 3, { NULL, NULL } };
    other_train(&opencl, &j, "cpu:0", expected);
    ls_context *ctx = other_open(&opencl, "");
    network n, other;
    OK(network_create(ctx, NETWORK_CNN, &n));
    OK(network_create(ctx, NETWORK_CNN, &other));
    OK(ls_graph_set_lanes(n.graph, j.lanes));
    assert_int_equal(machine_devices(ctx, "OPENCL"), 0);
    OK(ls_graph_set_strategy(n.graph, ls_mirrored(.devices = "opencl:0-1")));
    assert_int_equal(machine_devices(ctx, "OPENCL"), 2);
    OK(network_train(&n, j.batch, OTHER_STEPS, hash));
    assert_string_equal(hash, expected);
    ls_copy_info *list;
    size_t count, after;
    OK(ls_list_copies(ctx, &list, &count));
    free(list);
    assert_true(count > 0); /* it was there */
    OK(network_step(&other, 7, 0));
    OK(ls_list_copies(ctx, &list, &after));
    free(list);
    assert_int_equal(after, count); /* without a name it is not visible */
    network_destroy(&n);
    network_destroy(&other);
    ls_context_close(ctx);
    ctx = other_open(&opencl, "");
    OK(network_create(ctx, NETWORK_CNN, &n));
    OK(network_step(&n, 7, 0));
    FAILS(ls_graph_set_strategy(n.graph, ls_mirrored(.devices = "opencl:0")), LS_ERR_STATE, "first run");
    network_destroy(&n);
    ls_context_close(ctx);
}

/* ---- Numbers that cl.h has written down ---- */

#if __has_include(<CL/cl.h>)
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

static void numbers_are_those_of_the_headers(void **state)
{
    (void)state;
#define SAME(name) assert_int_equal(LS_##name, name)
    SAME(CL_SUCCESS);
    SAME(CL_DEVICE_NOT_FOUND);
    SAME(CL_MEM_OBJECT_ALLOCATION_FAILURE);
    SAME(CL_OUT_OF_RESOURCES);
    SAME(CL_OUT_OF_HOST_MEMORY);
    SAME(CL_BUILD_PROGRAM_FAILURE);
    SAME(CL_PLATFORM_NAME);
    SAME(CL_DEVICE_TYPE);
    SAME(CL_DEVICE_MAX_COMPUTE_UNITS);
    SAME(CL_DEVICE_SINGLE_FP_CONFIG);
    SAME(CL_DEVICE_GLOBAL_MEM_SIZE);
    SAME(CL_DEVICE_AVAILABLE);
    SAME(CL_DEVICE_COMPILER_AVAILABLE);
    SAME(CL_DEVICE_NAME);
    SAME(CL_DRIVER_VERSION);
    SAME(CL_DEVICE_DOUBLE_FP_CONFIG);
    SAME(CL_DEVICE_PARTITION_BY_COUNTS);
    SAME(CL_PROGRAM_BINARY_SIZES);
    SAME(CL_PROGRAM_BINARIES);
    SAME(CL_PROGRAM_BUILD_LOG);
    SAME(CL_DEVICE_TYPE_CPU);
    SAME(CL_DEVICE_TYPE_GPU);
    SAME(CL_DEVICE_TYPE_ALL);
    SAME(CL_FP_DENORM);
    SAME(CL_MEM_READ_WRITE);
    assert_int_equal(LS_CL_FP_CORRECT_DIVIDE, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT);
    /* and the functions are those of the headers, up to the names of pointers */
    assert_int_equal(sizeof(cl_bool), sizeof(uint32_t));
    assert_int_equal(sizeof(cl_device_type), sizeof(uint64_t));
    assert_int_equal(sizeof(cl_mem_flags), sizeof(uint64_t));
    assert_int_equal(sizeof(cl_device_partition_property), sizeof(intptr_t));
}
#else
static void numbers_are_those_of_the_headers(void **state)
{
    (void)state;
    SKIP("no CL/cl.h (tools/deps.sh install opencl)");
}
#endif

int main(void)
{
    ls_context *ctx = NULL;
    opencl_cut(2);
    there = opencl_open(NULL, "opencl:0-1", &ctx);
    ls_context_close(ctx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trainings_have_the_cpu_s_bits),
        cmocka_unit_test(layers_on_both_have_the_cpu_s_bits),
        cmocka_unit_test(sequences_and_augmented_images_have_the_cpu_s_bits),
        cmocka_unit_test(a_steady_step_moves_no_weights),
        cmocka_unit_test(launches_do_not_depend_on_lanes),
        cmocka_unit_test(as_many_lanes_as_fit_are_run_at_once),
        cmocka_unit_test(chains_are_one_launch_and_have_the_cpu_s_bits),
        cmocka_unit_test(gathered_rows_are_added_in_order),
        cmocka_unit_test(scratch_memory_counts),
        cmocka_unit_test(fewer_lanes_run_at_once_for_scratch_memory),
        cmocka_unit_test(scratch_memory_in_use_is_replaced),
        cmocka_unit_test(a_wrong_label_is_reported_as_on_the_cpu),
        cmocka_unit_test(what_waits_keeps_its_order),
        cmocka_unit_test(joins_apart_are_one_launch),
        cmocka_unit_test(a_run_again_is_no_run_before),
        cmocka_unit_test(many_values_are_looked_at_together),
        cmocka_unit_test(a_launch_that_fails_changes_nothing),
        cmocka_unit_test(a_cpu_of_opencl_s_is_used_only_where_it_is_named),
        cmocka_unit_test(a_strategy_may_name_it),
        cmocka_unit_test(numbers_are_those_of_the_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
