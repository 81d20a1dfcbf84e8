/* Devices of a context: what is listed, what may be configured and until when, several contexts at
 * once, and that closed ones leave nothing behind. The GPUs are the tests' own (gpu.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"
#include "machine.h"
#include "networks.h"

#define VISIBLE "LOCKSTEP_VISIBLE_DEVICES"

static ls_device_info *physical(ls_context *ctx, const char *kind, size_t *count)
{
    ls_device_info *list = NULL;
    OK(ls_list_physical_devices(ctx, kind, &list, count));
    return list;
}

static ls_device_info *logical(ls_context *ctx, const char *kind, size_t *count)
{
    ls_device_info *list = NULL;
    OK(ls_list_logical_devices(ctx, kind, &list, count));
    return list;
}

/* The names of a list, with commas. */
static const char *names(ls_device_info *list, size_t count)
{
    static char text[1024];
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? "," : "", list[i].name);
    free(list);
    return text;
}

/* ---- Listing ---- */

static void physical_devices_are_listed_by_kind(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *names;
    } rows[] = {
        { NULL, "/physical_device:CPU:0,/physical_device:GPU:0,/physical_device:GPU:1,/physical_device:GPU:2" },
        { "GPU", "/physical_device:GPU:0,/physical_device:GPU:1,/physical_device:GPU:2" },
        { "gpu", "/physical_device:GPU:0,/physical_device:GPU:1,/physical_device:GPU:2" },
        { "CPU", "/physical_device:CPU:0" },
        { "TPU", "" },
    };
    machine m;
    machine_create(&m, (machine_settings){ .gpu = { .devices = 3 } });
    for (size_t i = 0; i < LENGTH(rows); i++) {
        size_t count = 0;
        ls_device_info *list = physical(m.ctx, rows[i].kind, &count);
        assert_string_equal(names(list, count), rows[i].names);
    }
    assert_int_equal(gpu_counted(m.g).calls[GPU_OPEN], 0); /* listing opens nothing */
    machine_close(&m);
}

static void logical_devices_are_listed_by_kind(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *names;
    } rows[] = {
        { NULL, CPU(0) "," CPU(1) "," GPU(0) "," GPU(1) },
        { "GPU", GPU(0) "," GPU(1) },
        { "cpu", CPU(0) "," CPU(1) },
        { "TPU", "" },
        { "", "" },
    };
    machine m;
    machine_create(&m, (machine_settings){ .gpu = { .devices = 2 }, .options = { .cpu_devices = 2 } });
    for (size_t i = 0; i < LENGTH(rows); i++) {
        size_t count = 0;
        ls_device_info *list = logical(m.ctx, rows[i].kind, &count);
        assert_string_equal(names(list, count), rows[i].names);
    }
    machine_close(&m);
}

static void names_are_read_before_cpu_devices_are_made(void **state)
{
    (void)state;
    machine m;
    ls_device_name *list = NULL;
    size_t count = 0;
    machine_create(&m, (machine_settings){ .gpu = { .devices = 2 } });
    OK(ls_read_device_names(m.ctx, "gpu:1, cpu:5-6", &list, &count));
    assert_int_equal(count, 3);
    assert_string_equal(list[0].kind, "GPU");
    assert_string_equal(list[2].kind, "CPU");
    assert_true(list[0].number == 1 && list[1].number == 5 && list[2].number == 6);
    free(list);
    list = NULL;
    FAILS(ls_read_device_names(m.ctx, "gpu:7", &list, &count), LS_ERR_NOT_FOUND, "gpu:7",
          "CPU:0 (and up to CPU:1023, which share its cores)");
    FAILS(ls_read_device_names(m.ctx, "cpu:0[0]", &list, &count), LS_ERR_INVALID, "cpu:0[0]", "cores", VISIBLE);
    assert_null(list);
    assert_int_equal(gpu_counted(m.g).calls[GPU_OPEN], 0); /* nor does reading open anything */
    machine_close(&m);
}

static void workers_and_their_cores_are_reported(void **state)
{
    (void)state;
    machine m;
    ls_cpu_info cpu = { .cores = 0 };
    int *first = NULL, *second = NULL;
    size_t count = 0, others = 0;
    machine_create(&m, (machine_settings){ .gpu = { .devices = 1 }, .options = { .cpu_devices = 2, .threads = 2 } });
    OK(ls_get_cpu_info(m.ctx, &cpu));
    assert_true(cpu.cores >= 1 && cpu.threads == 2 && cpu.quota >= 0);
    machine_has(cpu.reason, "core");
    OK(ls_list_device_cores(m.ctx, "cpu:0", &first, &count));
    OK(ls_list_device_cores(m.ctx, "cpu:1", &second, &others));
    assert_true(count == others && count <= 1);
    if (count > 0)
        assert_int_not_equal(first[0], second[0]);
    if (cpu.threads > cpu.cores)
        assert_int_equal(count, 0);
    free(first);
    free(second);
    OK(ls_list_device_cores(m.ctx, "gpu:0", &first, &count));
    assert_int_equal(count, 0);
    free(first);
    FAILS(ls_list_device_cores(m.ctx, "cpu:2", &second, &others), LS_ERR_NOT_FOUND, "cpu:2");
    machine_close(&m);
}

static void lists_have_all_known_names(void **state)
{
    (void)state;
    machine m;
    size_t count = 0;
    machine_create(&m,
                   (machine_settings){ .gpu = { .devices = 2, .memory = LS_MIB(24) }, .options = { .threads = 3 } });
    OK(ls_set_memory_growth(m.ctx, "gpu:1", true));
    ls_device_info *list = physical(m.ctx, NULL, &count);
    assert_int_equal(count, 3);
    assert_string_equal(list[0].kind, "CPU");
    assert_true(list[0].cores >= 1 && list[0].memory > LS_MIB(64) && list[0].visible);
    machine_has(list[0].about, "core");
    assert_string_equal(list[2].kind, "GPU");
    assert_int_equal(list[2].number, 1);
    assert_int_equal(list[2].cores, 0);
    assert_int_equal(list[2].memory, LS_MIB(24));
    assert_true(list[2].growth && !list[1].growth && list[1].visible);
    assert_string_equal(list[2].about, "test device 1");
    free(list);
    list = logical(m.ctx, NULL, &count);
    assert_int_equal(count, 3);
    assert_int_equal(list[0].cores, 3);
    assert_int_equal(list[0].memory, 0); /* no limit */
    assert_true(list[0].growth);
    assert_int_equal(list[1].memory, LS_MIB(24));
    assert_true(!list[1].growth && list[2].growth);
    assert_int_equal(list[2].physical, 1);
    free(list);
    machine_close(&m);
}

/* ---- Visible devices ---- */

static void only_visible_devices_are_used(void **state)
{
    (void)state;
    static const struct {
        const char *visible;
        int first; /* physical number of the first GPU */
        size_t gpus;
    } rows[] = {
        { "gpu:0", 0, 1 },       { "/physical_device:GPU:2", 2, 1 },
        { "gpu:2,gpu:0", 0, 2 }, /* numbered as the machine has them */
        { "gpu:1-2", 1, 2 },     { "cpu:0,gpu:1", 1, 1 },
        { "cpu:0", 0, 0 },       { "", 0, 0 },
        { " ", 0, 0 },           { "cuda:1", 1, 1 },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        machine m;
        size_t count = 0;
        machine_create(&m, (machine_settings){ .gpu = { .devices = 3 } });
        OK(ls_set_visible_devices(m.ctx, rows[i].visible));
        ls_device_info *list = logical(m.ctx, "GPU", &count);
        assert_int_equal(count, rows[i].gpus);
        assert_int_equal(machine_devices(m.ctx, NULL), rows[i].gpus + 1);
        if (count > 0) {
            assert_int_equal(list[0].physical, rows[i].first);
            assert_int_equal(list[0].number, 0);
        }
        assert_int_equal(gpu_counted(m.g).calls[GPU_OPEN], (int64_t)rows[i].gpus); /* others are left alone */
        free(list);
        machine_close(&m);
    }
}

static void the_last_word_on_visibility_counts(void **state)
{
    (void)state;
    machine m;
    size_t count = 0;
    machine_create(&m, (machine_settings){ .gpu = { .devices = 3 } });
    OK(ls_set_visible_devices(m.ctx, ""));
    OK(ls_set_visible_devices(m.ctx, "gpu:1"));
    FAILS(ls_set_visible_devices(m.ctx, "gpu:0,gpu:7"), LS_ERR_NOT_FOUND, "ls_set_visible_devices", "gpu:7",
          "GPU:0 to GPU:2"); /* and changes nothing */
    ls_device_info *list = physical(m.ctx, "GPU", &count);
    assert_true(!list[0].visible && list[1].visible && !list[2].visible);
    free(list);
    assert_int_equal(machine_devices(m.ctx, "GPU"), 1);
    machine_close(&m);
}

static void errors_of_bad_names_have_the_reason(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "gpu:3", "tpu:0", "gpu:x", "gpu:1-", "gpu:0,,gpu:1", "gpu:0,gpu:0", ",", "gpu:-1"
    };
    machine m;
    machine_create(&m, (machine_settings){ .gpu = { .devices = 3 } });
    for (size_t i = 0; i < LENGTH(bad); i++) {
        ls_logical_device part = { .memory_limit = LS_MIB(1) };
        assert_int_not_equal(ls_set_visible_devices(m.ctx, bad[i]), LS_OK);
        machine_has(ls_last_error(), "ls_set_visible_devices");
        machine_has(ls_last_error(), bad[i]);
        assert_int_not_equal(ls_set_memory_growth(m.ctx, bad[i], true), LS_OK);
        machine_has(ls_last_error(), "ls_set_memory_growth");
        assert_int_not_equal(ls_set_logical_devices(m.ctx, bad[i], &part, 1), LS_OK);
        machine_has(ls_last_error(), "ls_set_logical_devices");
    }
    assert_int_not_equal(ls_set_visible_devices(m.ctx, NULL), LS_OK);
    assert_int_not_equal(ls_set_memory_growth(m.ctx, NULL, true), LS_OK);
    assert_int_not_equal(ls_set_logical_devices(m.ctx, NULL, &(ls_logical_device){ 0 }, 1), LS_OK);
    assert_int_equal(machine_devices(m.ctx, "GPU"), 3);
    machine_close(&m);
}

static void the_environment_hides_devices(void **state)
{
    (void)state;
    static const struct {
        const char *variable;
        size_t gpus;
    } rows[] = { { "gpu:1", 1 }, { "", 0 }, { "gpu:0-1", 2 }, { "cpu:0", 0 } };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        machine m;
        setenv(VISIBLE, rows[i].variable, 1);
        machine_create(&m, (machine_settings){ .gpu = { .devices = 3 } });
        assert_int_equal(machine_devices(m.ctx, "GPU"), rows[i].gpus);
        machine_close(&m);
    }
    unsetenv(VISIBLE);
}

static void what_the_environment_hides_stays_hidden(void **state)
{
    (void)state;
    machine m;
    size_t count = 0;
    setenv(VISIBLE, "gpu:1-2", 1);
    machine_create(&m, (machine_settings){ .gpu = { .devices = 3 } });
    FAILS(ls_set_visible_devices(m.ctx, "gpu:0"), LS_ERR_NOT_FOUND, "GPU:0 is hidden", VISIBLE, "gpu:1-2");
    OK(ls_set_visible_devices(m.ctx, "gpu:2"));
    ls_device_info *list = physical(m.ctx, "GPU", &count);
    assert_int_equal(count, 3);
    assert_true(!list[0].visible && !list[1].visible && list[2].visible);
    free(list);
    assert_int_equal(machine_devices(m.ctx, "GPU"), 1);
    unsetenv(VISIBLE);
    machine_close(&m);
}

static void a_bad_environment_is_reported(void **state)
{
    (void)state;
    static const char *const bad[] = { "gpu:3", "gpu", "0", "gpu:0;gpu:1", "cpu:0[99999]" };
    for (size_t i = 0; i < LENGTH(bad); i++) {
        machine m;
        ls_device_info *list = NULL;
        ls_graph *graph = NULL;
        size_t count;
        setenv(VISIBLE, bad[i], 1);
        machine_create(&m, (machine_settings){ .gpu = { .devices = 3 } });
        if (strcmp(bad[i], "gpu") == 0) { /* means gpu:0 */
            assert_int_equal(machine_devices(m.ctx, "GPU"), 1);
        } else {
            assert_int_not_equal(ls_list_physical_devices(m.ctx, NULL, &list, &count), LS_OK);
            machine_has(ls_last_error(), VISIBLE);
            assert_int_not_equal(ls_graph_create(m.ctx, &graph), LS_OK);
            machine_has(ls_last_error(), VISIBLE);
            assert_null(graph);
            unsetenv(VISIBLE); /* and then it can be opened */
            assert_int_equal(machine_devices(m.ctx, "GPU"), 3);
        }
        machine_close(&m);
    }
    unsetenv(VISIBLE);
}

/* ---- Cores ---- */

static int first_core(void)
{
    cpu_set_t mask;
    assert_int_equal(sched_getaffinity(0, sizeof(mask), &mask), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &mask))
            return i;
    return 0;
}

static void cores_of_the_cpu_may_be_chosen(void **state)
{
    (void)state;
    machine m;
    size_t count = 0;
    char name[32];
    snprintf(name, sizeof(name), "cpu:0[%d]", first_core());
    machine_create(&m, (machine_settings){ .gpu = { .devices = 1 } });
    OK(ls_set_visible_devices(m.ctx, name));
    ls_device_info *list = logical(m.ctx, NULL, &count);
    assert_int_equal(count, 1);
    assert_int_equal(list[0].cores, 1);
    machine_has(list[0].about, "chosen by ls_set_visible_devices");
    free(list);
    machine_close(&m);

    setenv(VISIBLE, name, 1);
    machine_create(&m, (machine_settings){ .gpu = { .devices = 1 } });
    list = logical(m.ctx, "CPU", &count);
    assert_int_equal(list[0].cores, 1);
    machine_has(list[0].about, "chosen by " VISIBLE);
    free(list);
    unsetenv(VISIBLE);
    machine_close(&m);
}

static void cores_are_chosen_anew_or_not_at_all(void **state)
{
    (void)state;
    machine m;
    size_t count = 0;
    char one[64], wrong[64];
    machine_create(&m, (machine_settings){ .gpu = { .devices = 1 } });
    ls_device_info *list = physical(m.ctx, "CPU", &count);
    int cores = list[0].cores;
    free(list);
    snprintf(one, sizeof(one), "cpu:0[%d]", first_core());
    snprintf(wrong, sizeof(wrong), "cpu:0[%d],gpu:5", first_core());
    assert_int_not_equal(ls_set_visible_devices(m.ctx, wrong), LS_OK);
    FAILS(ls_set_visible_devices(m.ctx, "cpu:0[8000]"), LS_ERR_NOT_FOUND, "core 8000", "may not use");
    list = physical(m.ctx, "CPU", &count);
    assert_int_equal(list[0].cores, cores);
    free(list);
    OK(ls_set_visible_devices(m.ctx, one));
    OK(ls_set_visible_devices(m.ctx, "gpu:0")); /* the last word: no cores are chosen any more */
    list = physical(m.ctx, "CPU", &count);
    assert_int_equal(list[0].cores, cores);
    machine_lacks(list[0].about, "chosen");
    free(list);
    machine_close(&m);
}

static void cores_that_the_environment_hides_stay_hidden(void **state)
{
    (void)state;
    machine m;
    size_t count = 0;
    char one[64];
    snprintf(one, sizeof(one), "cpu:0[%d]", first_core());
    setenv(VISIBLE, one, 1);
    machine_create(&m, (machine_settings){ .gpu = { .devices = 1 } });
    OK(ls_set_visible_devices(m.ctx, "")); /* the CPU alone: still with that core */
    ls_device_info *list = logical(m.ctx, "CPU", &count);
    assert_int_equal(list[0].cores, 1);
    free(list);
    unsetenv(VISIBLE);
    machine_close(&m);
}

static void logical_cpus_share_the_cores(void **state)
{
    (void)state;
    static const struct {
        int devices, threads, cores[4];
    } rows[] = { { 2, 5, { 2, 3 } }, { 3, 2, { 1, 1, 1 } }, { 1, 4, { 4 } }, { 4, 8, { 2, 2, 2, 2 } } };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        machine m;
        size_t count = 0;
        ls_logical_device parts[4] = { { 0 } };
        machine_create(&m, (machine_settings){ .options = { .threads = rows[i].threads } });
        OK(ls_set_logical_devices(m.ctx, "cpu:0", parts, (size_t)rows[i].devices));
        ls_device_info *list = logical(m.ctx, "CPU", &count);
        assert_int_equal(count, rows[i].devices);
        for (size_t d = 0; d < count; d++)
            assert_int_equal(list[d].cores, rows[i].cores[d]);
        free(list);
        machine_close(&m);
    }
}

/* ---- Memory and parts, as they are set ---- */

static void one_device_becomes_several(void **state)
{
    (void)state;
    machine m;
    size_t count = 0;
    const ls_logical_device parts[] = { { .memory_limit = LS_MIB(10) }, { 0 }, { 0 } };
    machine_create(&m, (machine_settings){ .gpu = { .devices = 2, .memory = LS_MIB(30) } });
    OK(ls_set_logical_devices(m.ctx, "gpu:0", parts, 3));
    ls_device_info *list = logical(m.ctx, "GPU", &count);
    assert_int_equal(count, 4);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(list[i].memory, LS_MIB(10)); /* those left out share the rest */
        assert_int_equal(list[i].physical, 0);
        assert_int_equal(machine_memory(m.ctx, list[i].name).reserved, LS_MIB(10));
    }
    assert_int_equal(list[3].physical, 1);
    assert_int_equal(list[3].memory, LS_MIB(30));
    free(list);
    assert_int_equal(gpu_counted(m.g).memory, LS_MIB(60));
    machine_close(&m);
}

static void limits_that_cannot_be_are_refused(void **state)
{
    (void)state;
    machine m;
    const ls_logical_device much[] = { { .memory_limit = LS_MIB(20) }, { .memory_limit = LS_MIB(11) } };
    const ls_logical_device huge[] = { { .memory_limit = SIZE_MAX }, { .memory_limit = SIZE_MAX } };
    const ls_logical_device full[] = { { .memory_limit = LS_MIB(30) }, { 0 } };
    machine_create(&m, (machine_settings){ .gpu = { .devices = 2, .memory = LS_MIB(30) } });
    FAILS(ls_set_logical_devices(m.ctx, "gpu:0", much, 2), LS_ERR_MEMORY, "31 MiB", "GPU:0 has 30 MiB");
    FAILS(ls_set_logical_devices(m.ctx, "gpu:0", huge, 2), LS_ERR_OVERFLOW, "overflow");
    FAILS(ls_set_logical_devices(m.ctx, "gpu:0", much, 0), LS_ERR_INVALID, "0 parts");
    FAILS(ls_set_logical_devices(m.ctx, "gpu:0", NULL, 2), LS_ERR_INVALID, "parts");
    FAILS(ls_set_logical_devices(m.ctx, "gpu:0", much, 100000), LS_ERR_INVALID, "100000 parts");
    FAILS(ls_set_logical_devices(m.ctx, "gpu:0-1", much, 1), LS_ERR_INVALID, "2 devices");
    FAILS(ls_set_logical_devices(m.ctx, "gpu:0", full, 2), LS_ERR_MEMORY, "GPU:0", "none of the");
    assert_int_equal(machine_devices(m.ctx, "GPU"), 2); /* nothing was changed */
    machine_close(&m);
}

/* A backend that does not know how much memory there is: parts without a limit have none. */
static void parts_of_unknown_memory_have_no_limit(void **state)
{
    (void)state;
    gpu *g = gpu_create((gpu_settings){ .devices = 1 });
    ls_backend backend = *gpu_backend(g);
    ls_context *ctx = NULL;
    ls_device_info *list;
    size_t count = 0;
    const ls_logical_device parts[] = { { .memory_limit = LS_MIB(2) }, { 0 } };
    backend.query = NULL;
    OK(ls_context_create(NULL, &ctx));
    OK(ls_add_backend(ctx, &backend));
    OK(ls_set_logical_devices(ctx, "gpu:0", parts, 2));
    OK(ls_list_logical_devices(ctx, "GPU", &list, &count));
    assert_int_equal(count, 2);
    assert_int_equal(list[0].memory, LS_MIB(2));
    assert_int_equal(list[1].memory, 0);
    assert_true(list[1].growth);
    free(list);
    ls_context_close(ctx);
    assert_int_equal(gpu_counted(g).memory, 0);
    gpu_destroy(g);
}

static void growth_and_limits_may_be_combined(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        int growth; /* 0: not said */
        size_t limit, reserved;
        bool grows;
    } rows[] = {
        { "gpu:0", 0, 0, LS_MIB(16), false },
        { "gpu:0", 1, 0, 0, true },
        { "gpu:0", 0, LS_MIB(4), LS_MIB(4), false },
        { "gpu:0", 1, LS_MIB(4), 0, true },
        { "gpu:0", -1, LS_MIB(4), LS_MIB(4), false },
        { "cpu:0", 0, 0, 0, true },
        { "cpu:0", -1, 0, 0, true },
        { "cpu:0", 0, LS_MIB(4), LS_MIB(4), false },
        { "cpu:0", 1, LS_MIB(4), 0, true },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        machine m;
        size_t count = 0;
        machine_create(&m, (machine_settings){ .gpu = { .devices = 1, .memory = LS_MIB(16) } });
        if (rows[i].growth)
            OK(ls_set_memory_growth(m.ctx, rows[i].device, rows[i].growth > 0));
        if (rows[i].limit)
            OK(ls_set_logical_devices(m.ctx, rows[i].device, &(ls_logical_device){ rows[i].limit }, 1));
        ls_memory_info info = machine_memory(m.ctx, rows[i].device);
        bool cpu = rows[i].device[0] == 'c';
        assert_int_equal(info.limit, rows[i].limit ? rows[i].limit : cpu ? 0 : LS_MIB(16));
        assert_int_equal(info.reserved, rows[i].reserved);
        assert_int_equal(info.in_use, 0);
        ls_device_info *list = logical(m.ctx, cpu ? "CPU" : "GPU", &count);
        assert_int_equal(list[0].growth, rows[i].grows);
        free(list);
        machine_close(&m);
    }
}

/* ---- After opening nothing changes ---- */

static void open_by_graph(ls_context *ctx)
{
    ls_graph *graph = NULL;
    OK(ls_graph_create(ctx, &graph));
    ls_graph_destroy(graph);
}

static void open_by_model(ls_context *ctx)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(2), ls_dense(1)));
    ls_model_destroy(model);
}

static void open_by_listing(ls_context *ctx)
{
    machine_devices(ctx, NULL);
}

static void open_by_memory(ls_context *ctx)
{
    machine_memory(ctx, "cpu:0");
}

static const struct {
    void (*open)(ls_context *ctx); /* NULL: ls_context_open itself */
    const char *name;
} openers[] = {
    { NULL, "ls_context_open" },
    { open_by_graph, "ls_graph_create" },
    { open_by_listing, "ls_list_logical_devices" },
    { open_by_memory, "ls_get_memory_info" },
    { open_by_model, "ls_sequential" },
};

static ls_status change_visible(ls_context *ctx)
{
    return ls_set_visible_devices(ctx, "");
}

static ls_status change_growth(ls_context *ctx)
{
    return ls_set_memory_growth(ctx, "cpu:0", true);
}

static ls_status change_parts(ls_context *ctx)
{
    return ls_set_logical_devices(ctx, "cpu:0", &(ls_logical_device){ 0 }, 1);
}

static ls_status change_backends(ls_context *ctx)
{
    gpu *g = gpu_create((gpu_settings){ .devices = 1 });
    ls_status status = ls_add_backend(ctx, gpu_backend(g));
    gpu_destroy(g);
    return status;
}

static const struct {
    ls_status (*change)(ls_context *ctx);
    const char *name;
} changes[] = {
    { change_visible, "ls_set_visible_devices" },
    { change_growth, "ls_set_memory_growth" },
    { change_parts, "ls_set_logical_devices" },
    { change_backends, "ls_add_backend" },
};

static void an_open_context_is_not_configured(void **state)
{
    (void)state;
    for (size_t o = 0; o < LENGTH(openers); o++) {
        ls_context *ctx = NULL;
        if (openers[o].open) {
            OK(ls_context_create(NULL, &ctx));
            openers[o].open(ctx);
        } else {
            OK(ls_context_open(NULL, &ctx));
        }
        for (size_t c = 0; c < LENGTH(changes); c++)
            FAILS(changes[c].change(ctx), LS_ERR_STATE, changes[c].name, openers[o].name, "opened by");
        ls_context_close(ctx);
    }
}

static void a_second_context_has_its_own_settings(void **state)
{
    (void)state;
    machine m;
    ls_context *other = NULL;
    machine_create(&m, (machine_settings){ .gpu = { .devices = 2, .memory = LS_MIB(16) } });
    OK(ls_set_visible_devices(m.ctx, "gpu:0"));
    OK(ls_set_memory_growth(m.ctx, "gpu:0", true)); /* or the other would find nothing left */
    assert_int_equal(machine_devices(m.ctx, "GPU"), 1);
    OK(ls_context_create(NULL, &other));
    OK(ls_add_backend(other, gpu_backend(m.g)));
    OK(ls_set_logical_devices(other, "gpu:0", (ls_logical_device[]){ { LS_MIB(4) }, { LS_MIB(4) } }, 2));
    assert_int_equal(machine_devices(other, "GPU"), 3);
    assert_int_equal(machine_devices(m.ctx, "GPU"), 1);
    assert_int_equal(machine_memory(other, "gpu:1").limit, LS_MIB(4));
    assert_int_equal(machine_memory(m.ctx, "gpu:0").limit, LS_MIB(16));
    ls_context_close(other);
    machine_close(&m);
}

static void backends_are_checked(void **state)
{
    (void)state;
    gpu *g = gpu_create((gpu_settings){ .devices = 1 });
    ls_backend good = *gpu_backend(g), bad = good;
    ls_context *ctx = NULL;
    ls_device_info *list;
    size_t count;
    OK(ls_context_create(NULL, &ctx));
    FAILS(ls_add_backend(ctx, NULL), LS_ERR_INVALID, "ls_add_backend");
    bad.size = 8;
    FAILS(ls_add_backend(ctx, &bad), LS_ERR_INVALID, "8 bytes");
    bad = good;
    bad.kind = "a kind with too long a name";
    FAILS(ls_add_backend(ctx, &bad), LS_ERR_INVALID, "name");
    bad.kind = "cpu";
    FAILS(ls_add_backend(ctx, &bad), LS_ERR_INVALID, "kind CPU already");
    bad = good;
    bad.plan_run = NULL;
    FAILS(ls_add_backend(ctx, &bad), LS_ERR_INVALID, "plan_run");
    OK(ls_list_physical_devices(ctx, NULL, &list, &count));
    free(list);
    FAILS(ls_add_backend(ctx, &good), LS_ERR_STATE, "before devices are listed");
    ls_context_close(ctx);
    gpu_destroy(g);
}

/* ---- Several contexts ---- */

typedef struct user {
    ls_context *ctx;
    network_kind kind;
    int64_t batch;
    int rounds;
    char hash[65], error[256];
} user;

/* Trains the same again and again: every time the same bits. */
static ls_status use(user *u)
{
    for (int i = 0; i < u->rounds; i++) {
        network n;
        char hash[65];
        LS_TRY(network_create(u->ctx, u->kind, &n));
        ls_status status = ls_graph_set_lanes(n.graph, 3);
        if (status == LS_OK)
            status = network_train(&n, u->batch, 2, hash);
        network_destroy(&n);
        LS_TRY(status);
        if (i > 0 && strcmp(hash, u->hash) != 0)
            return ls_backend_fail(LS_ERR_INTERNAL, "round %d has %s, the first %s", i, hash, u->hash);
        memcpy(u->hash, hash, sizeof(hash));
    }
    return LS_OK;
}

static void *use_in_thread(void *data)
{
    user *u = data;
    if (use(u) != LS_OK)
        snprintf(u->error, sizeof(u->error), "%s", ls_last_error());
    return NULL;
}

/* Both at the same time, then each alone: the same. */
static void use_both(user *a, user *b)
{
    pthread_t threads[2];
    user alone[2] = { *a, *b };
    assert_int_equal(pthread_create(&threads[0], NULL, use_in_thread, a), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, use_in_thread, b), 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_string_equal(a->error, "");
    assert_string_equal(b->error, "");
    for (int i = 0; i < 2; i++) {
        alone[i].rounds = 1;
        OK(use(&alone[i]));
        assert_string_equal(alone[i].hash, i ? b->hash : a->hash);
    }
}

static void two_contexts_do_not_disturb_each_other(void **state)
{
    (void)state;
    machine m;
    ls_context *other = NULL;
    machine_create(&m, (machine_settings){ .gpu = { .devices = 2, .delay = 20 }, .options = { .threads = 2 } });
    OK(ls_set_visible_devices(m.ctx, "gpu:0"));
    OK(ls_set_logical_devices(m.ctx, "gpu:0", (ls_logical_device[]){ { LS_MIB(20) }, { LS_MIB(20) } }, 2));
    OK(ls_context_create(&(ls_context_options){ .cpu_devices = 2 }, &other));
    OK(ls_add_backend(other, gpu_backend(m.g)));
    OK(ls_set_visible_devices(other, "gpu:1"));
    OK(ls_set_logical_devices(other, "gpu:1", &(ls_logical_device){ LS_MIB(10) }, 1));
    user a = { .ctx = m.ctx, .kind = NETWORK_CNN, .batch = 7, .rounds = SANITIZED ? 2 : 6 };
    user b = { .ctx = other, .kind = NETWORK_MLP, .batch = 9, .rounds = SANITIZED ? 2 : 6 };
    use_both(&a, &b);
    assert_int_equal(machine_memory(m.ctx, "gpu:0").in_use, 0);
    assert_int_equal(machine_memory(other, "gpu:0").in_use, 0);
    assert_int_equal(machine_memory(m.ctx, "gpu:1").limit, LS_MIB(20));
    assert_int_equal(machine_memory(other, "gpu:0").limit, LS_MIB(10));
    ls_context_close(other);
    machine_close(&m);
}

static void two_graphs_of_one_context_may_run_at_once(void **state)
{
    (void)state;
    for (int copies = 0; copies < 2; copies++) {
        machine m;
        machine_create(&m, (machine_settings){ .gpu = { .devices = 2, .delay = 20, .copies = copies != 0 },
                                               .options = { .threads = 2 } });
        user a = { .ctx = m.ctx, .kind = NETWORK_RESIDUAL, .batch = 5, .rounds = SANITIZED ? 1 : 3 };
        user b = { .ctx = m.ctx, .kind = NETWORK_MLP, .batch = 9, .rounds = SANITIZED ? 2 : 8 };
        use_both(&a, &b);
        assert_int_equal(machine_memory(m.ctx, "gpu:1").in_use, 0);
        machine_close(&m);
    }
}

/* One context from opening to closing, with a run on the GPUs. */
static void live_once(gpu *g, int64_t batch)
{
    ls_context *ctx = NULL;
    user u = { .kind = NETWORK_CNN, .batch = batch, .rounds = 1 };
    OK(ls_context_create(&(ls_context_options){ .threads = 2 }, &ctx));
    OK(ls_add_backend(ctx, gpu_backend(g)));
    OK(ls_set_logical_devices(ctx, "gpu:0", (ls_logical_device[]){ { LS_MIB(4) }, { LS_MIB(4) } }, 2));
    u.ctx = ctx;
    OK(use(&u));
    ls_context_close(ctx);
}

static void closed_contexts_leave_nothing(void **state)
{
    (void)state;
    gpu *g = gpu_create((gpu_settings){ .devices = 2, .delay = -1, .memory = LS_MIB(8) });
    const int contexts = SANITIZED ? 10 : 200;
    size_t before = 0;
    for (int i = 0; i < contexts; i++) {
        live_once(g, 1 + i % 3);
        gpu_counts counts = gpu_counted(g);
        assert_int_equal(counts.devices + counts.buffers + counts.plans + counts.misuses, 0);
        if (i == contexts / 4) /* by then the allocator has what it keeps */
            before = machine_resident();
    }
    size_t after = machine_resident();
    if (!SANITIZED && after > before + LS_MIB(2))
        fail_msg("%zu KiB were resident, then %zu KiB", before >> 10, after >> 10);
    gpu_destroy(g);
}

/* ---- Opening fails ---- */

static void what_fails_to_open_may_be_opened_later(void **state)
{
    (void)state;
    for (int call = GPU_OPEN; call <= GPU_ALLOC; call++)
        for (int nth = 1; nth <= 3; nth++) {
            machine m;
            ls_graph *graph = NULL;
            machine_create(&m, (machine_settings){ .gpu = { .devices = 3 } });
            gpu_fail_next(m.g, (gpu_call)call, nth);
            FAILS(ls_graph_create(m.ctx, &graph), call == GPU_OPEN ? LS_ERR_DEVICE : LS_ERR_MEMORY,
                  nth == 1   ? GPU(0)
                  : nth == 2 ? GPU(1)
                             : GPU(2));
            gpu_counts counts = gpu_counted(m.g);
            assert_int_equal(counts.devices + counts.buffers, 0);
            OK(ls_set_visible_devices(m.ctx, "gpu:0-1")); /* it is not open yet */
            OK(ls_graph_create(m.ctx, &graph));
            ls_graph_destroy(graph);
            assert_int_equal(machine_devices(m.ctx, "GPU"), 2);
            machine_close(&m);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(physical_devices_are_listed_by_kind),
        cmocka_unit_test(logical_devices_are_listed_by_kind),
        cmocka_unit_test(names_are_read_before_cpu_devices_are_made),
        cmocka_unit_test(workers_and_their_cores_are_reported),
        cmocka_unit_test(lists_have_all_known_names),
        cmocka_unit_test(only_visible_devices_are_used),
        cmocka_unit_test(the_last_word_on_visibility_counts),
        cmocka_unit_test(errors_of_bad_names_have_the_reason),
        cmocka_unit_test(the_environment_hides_devices),
        cmocka_unit_test(what_the_environment_hides_stays_hidden),
        cmocka_unit_test(a_bad_environment_is_reported),
        cmocka_unit_test(cores_of_the_cpu_may_be_chosen),
        cmocka_unit_test(cores_are_chosen_anew_or_not_at_all),
        cmocka_unit_test(cores_that_the_environment_hides_stay_hidden),
        cmocka_unit_test(logical_cpus_share_the_cores),
        cmocka_unit_test(one_device_becomes_several),
        cmocka_unit_test(limits_that_cannot_be_are_refused),
        cmocka_unit_test(parts_of_unknown_memory_have_no_limit),
        cmocka_unit_test(growth_and_limits_may_be_combined),
        cmocka_unit_test(an_open_context_is_not_configured),
        cmocka_unit_test(a_second_context_has_its_own_settings),
        cmocka_unit_test(backends_are_checked),
        cmocka_unit_test(two_contexts_do_not_disturb_each_other),
        cmocka_unit_test(two_graphs_of_one_context_may_run_at_once),
        cmocka_unit_test(closed_contexts_leave_nothing),
        cmocka_unit_test(what_fails_to_open_may_be_opened_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
