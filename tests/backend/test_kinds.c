/* Devices of several kinds in one strategy: the CPU, OpenCL's (PoCL) and CUDA's (the stand-in)
 * train together, as replicas and as stages, with the CPU's bits; so do two and three parts of one
 * OpenCL device. "gpu:N" counts CUDA's and then OpenCL's GPUs. A device that fails is named, and
 * training goes on without it. What is not there is left out; the tests' own GPU beside the CPU is
 * in test_strategies.c, workers of several kinds in test_workers.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/opencl.h"
#include "cuda.h"
#include "lockstep.h"
#include "machine.h"
#include "networks.h"
#include "opencl.h"
#include "other_kind.h"
#include "overflow.h"
#include "skip.h"

static bool opencl, cuda; /* are there: three parts of a device, and two devices */
static cuda_controls standin;

static bool is_there(const char *devices)
{
    return (opencl || !strstr(devices, "opencl")) && (cuda || !strstr(devices, "cuda"));
}

static const char *all_devices(void)
{
    return opencl && cuda ? "opencl:0-2,cuda:0-1" : opencl ? "opencl:0-2" : cuda ? "cuda:0-1" : "cpu:0";
}

#define NEED(devices)                                                                                                  \
    if (!is_there(devices))                                                                                            \
    SKIP("no " devices " (tools/deps.sh install opencl; make test builds the stand-in for CUDA)")

/* ---- Bits ---- */

typedef struct job {
    network_kind kind;
    int64_t batch;
    int lanes;
} job;

static void train(const job *j, const char *devices, ls_strategy strategy, char hash[65])
{
    ls_context *ctx;
    network n;
    int64_t copies = 0;
    OK(ls_context_create(&(ls_context_options){ .threads = 1 }, &ctx));
    OK(ls_set_visible_devices(ctx, all_devices()));
    OK(network_create(ctx, j->kind, &n));
    OK(ls_graph_set_lanes(n.graph, j->lanes));
    strategy.devices = devices;
    OK(ls_graph_set_strategy(n.graph, strategy));
    if (network_train(&n, j->batch, 2, hash) != LS_OK)
        fail_msg("%s on %s: %s", network_name(j->kind), devices, ls_last_error());
    OK(ls_strategy_check(n.graph, &copies));
    network_destroy(&n);
    ls_context_close(ctx);
}

static void must_equal(const job *j, const char *devices, ls_strategy strategy, const char *expected)
{
    char hash[65];
    train(j, devices, strategy, hash);
    if (strcmp(hash, expected) != 0)
        fail_msg("%s on %s, strategy %d: %s, on the CPU: %s", network_name(j->kind), devices, (int)strategy.kind, hash,
                 expected);
}

/* On every list of devices that is there; whether any was. Each list has one of the networks, and
 * two strategies. */
static bool trains_on(const char *const *lists, size_t count)
{
    static const job jobs[] = { { NETWORK_RESIDUAL, 10, 5 }, { NETWORK_CNN, 33, 8 }, { NETWORK_MLP, 7, 3 } };
    char expected[LENGTH(jobs)][65];
    bool any = false;
    for (size_t i = 0; i < LENGTH(jobs); i++)
        train(&jobs[i], "cpu:0", ls_mirrored(), expected[i]);
    for (size_t k = 0; k < count; k++)
        if (is_there(lists[k])) {
            size_t i = k % LENGTH(jobs);
            any = true;
            must_equal(&jobs[i], lists[k], ls_mirrored(), expected[i]);
            must_equal(&jobs[(i + 2) % 3], lists[k], k % 2 ? ls_data_parallel() : ls_pipeline(), expected[(i + 2) % 3]);
        }
    return any;
}

static void kinds_train_together(void **state)
{
    (void)state;
    static const char *const lists[] = { "cpu:0,opencl:0",      "opencl:1,cpu:0",  "cpu:0,cuda:0",
                                         "cuda:1,cuda:0,cpu:0", "opencl:0,cuda:1", "cuda:0,cpu:0,opencl:0-1" };
    if (!trains_on(lists, LENGTH(lists)))
        SKIP("neither OpenCL nor the stand-in for CUDA is there");
}

static void parts_of_a_device_train_together(void **state)
{
    (void)state;
    NEED("opencl");
    static const char *const lists[] = { "opencl:0-1", "opencl:2,opencl:0,opencl:1" };
    assert_true(trains_on(lists, LENGTH(lists)));
}

/* ---- "gpu" ---- */

/* PoCL's devices are CPUs; here one calls itself a GPU, and is used as one: with a GPU's shapes of
 * tiles. */
static void gpus_are_those_of_cuda_then_those_of_opencl(void **state)
{
    (void)state;
    NEED("opencl,cuda");
    ls_opencl_device *d = &((ls_opencl *)ls_opencl_get())->devices[1], before = *d;
    d->cpu = false;
    d->gpu = true;
    d->tuning = &ls_gpu_tuning_gpu;
    ls_context *ctx;
    ls_device_name *names;
    ls_device_info *list;
    size_t count;
    OK(ls_context_create(NULL, &ctx));
    OK(ls_list_physical_devices(ctx, NULL, &list, &count)); /* which looks for OpenCL's */
    free(list);
    OK(ls_read_device_names(ctx, "gpu:1-2", &names, &count));
    assert_int_equal(count, 2);
    assert_string_equal(names[0].kind, "CUDA");
    assert_int_equal(names[0].number, 1);
    assert_string_equal(names[1].kind, "OPENCL");
    assert_int_equal(names[1].number, 1);
    free(names);
    OK(ls_set_visible_devices(ctx, "gpu:2"));
    assert_int_equal(machine_devices(ctx, "OPENCL"), 1);
    assert_int_equal(machine_devices(ctx, "CUDA"), 0);
    ls_context_close(ctx);
    char expected[65];
    job j = { NETWORK_CNN, 9, 3 };
    train(&j, "cpu:0", ls_mirrored(), expected);
    must_equal(&j, "opencl:1,cuda:0", ls_mirrored(), expected);
    *d = before;
}

/* ---- A device is lost ---- */

static ls_context *all(void)
{
    ls_context *ctx;
    OK(ls_context_create(&(ls_context_options){ .threads = 1 }, &ctx));
    OK(ls_set_visible_devices(ctx, all_devices()));
    return ctx;
}

/* Beside a CPU, and beside a device of another kind. */
static void training_continues_without_a_lost_device(void **state)
{
    (void)state;
    NEED("cuda");
    static const struct {
        const char *all, *left;
    } lists[] = { { "cpu:0,cuda:0", "cpu:0" }, { "cuda:0,opencl:0", "opencl:0" } };
    char middle[65], end[65], hex[65];
    other_training_hash(all(), "cpu:0", 5, middle);
    other_training_hash(all(), "cpu:0", 0, end);
    for (size_t i = 0; i < LENGTH(lists); i++)
        for (int nth = 1; is_there(lists[i].all) && nth < 60; nth = nth * 3 + 1) {
            other_training t;
            other_training_open(&t, all(), false);
            OK(other_training_fit(&t, lists[i].all, 5, false));
            standin.lose(0, nth, 719);
            FAILS(other_training_fit(&t, lists[i].all, 6, true), LS_ERR_DEVICE, "step 6", "device:CUDA:0",
                  "CUDA_ERROR_LAUNCH_FAILED (719)");
            OK(ls_model_state_sha256(t.model, hex));
            assert_string_equal(hex, middle);
            OK(other_training_fit(&t, lists[i].left, 0, true));
            OK(ls_model_state_sha256(t.model, hex));
            assert_string_equal(hex, end);
            other_training_close(&t);
            standin.lose(0, 0, 0);
        }
}

/* An update that overflows changes nothing, on these devices either. */
static void an_overflow_changes_nothing(void **state)
{
    (void)state;
    static const char *const lists[] = { "opencl:0", "opencl:0-1",     "cuda:0",
                                         "cuda:0-1", "cpu:0,opencl:0", "cpu:0,cuda:0" };
    int tried = 0;
    for (size_t i = 0; i < LENGTH(lists); i++) {
        ls_context *ctx;
        if (!is_there(lists[i]))
            continue;
        OK(ls_context_create(&(ls_context_options){ .threads = 1 }, &ctx));
        OK(ls_set_visible_devices(ctx, all_devices()));
        overflow_changes_nothing(ctx, ls_mirrored(.devices = lists[i]));
        ls_context_close(ctx);
        tried++;
    }
    if (tried == 0)
        SKIP("neither OpenCL nor the stand-in for CUDA (tools/deps.sh install opencl; make test builds the stand-in)");
}

static int nothing_is_left(void **state)
{
    (void)state;
    if (cuda && (standin.held() != 0 || standin.misuses() != 0)) {
        print_error("%d things of CUDA's are still held, %d calls were wrong\n", standin.held(), standin.misuses());
        return -1;
    }
    return 0;
}

int main(void)
{
    ls_context *ctx = NULL;
    cuda = cuda_stand_in();
    if (cuda)
        standin = cuda_control();
    setenv("POCL_MAX_PTHREAD_COUNT", "3", 0); /* PoCL reads the number of its cores here */
    opencl_cut(3);
    opencl = opencl_open(NULL, "opencl:0-2", &ctx);
    ls_context_close(ctx);
#define TEST(name) cmocka_unit_test_teardown(name, nothing_is_left)
    const struct CMUnitTest tests[] = {
        TEST(kinds_train_together),
        TEST(parts_of_a_device_train_together),
        TEST(gpus_are_those_of_cuda_then_those_of_opencl),
        TEST(training_continues_without_a_lost_device),
        TEST(an_overflow_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
