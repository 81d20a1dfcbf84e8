/* CUDA devices, on a stand-in for the driver and NVRTC (standin_cuda/standin.h): whole trainings
 * have the CPU's bits, on one device, on two, and beside the CPU; errors of the driver are
 * reported; a device that is lost in the middle of a step is named, and training goes on without
 * it, with the bits of an undisturbed run; nothing is kept that was taken. Op by op:
 * test_cuda_bits.c. On a GPU none of this was ever run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "cuda_fixture.h"
#include "lockstep.h"
#include "machine.h"
#include "other_kind.h"

static const other_kind cuda = { "cuda:0", "cuda:1", "cuda:0-1", cuda_open };

/* ---- Bits, copies, messages ---- */

static void trainings_have_the_cpu_s_bits(void **state)
{
    (void)state;
    NEED_STAND_IN;
    long between = standin.count("cuMemcpyPeerAsync");
    other_trains_as_the_cpu(&cuda);
    assert_true(standin.count("cuMemcpyPeerAsync") > between); /* from device to device, not by way of the host */
}

static void layers_on_both_have_the_cpu_s_bits(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_shares_layers_with_the_cpu(&cuda);
}

static void sequences_and_augmented_images_have_the_cpu_s_bits(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_trains_sequences_and_augmented_images(&cuda);
}

static void a_steady_step_moves_no_weights(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_moves_no_weights(&cuda);
}

static void launches_do_not_depend_on_lanes(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_launches_all_lanes_at_once(&cuda);
}

static void as_many_lanes_as_fit_are_run_at_once(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_runs_as_many_lanes_as_fit(&cuda);
}

static void chains_are_one_launch_and_have_the_cpu_s_bits(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_fuses_chains(&cuda);
}

static void gathered_rows_are_added_in_order(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_adds_gathered_rows_in_order(&cuda);
}

static void scratch_memory_counts(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_counts_scratch_memory(&cuda);
}

static void fewer_lanes_run_at_once_for_scratch_memory(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_runs_fewer_lanes_for_scratch_memory(&cuda);
}

static void scratch_memory_in_use_is_replaced(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_replaces_scratch_memory_in_use(&cuda);
}

static void a_wrong_label_is_reported_as_on_the_cpu(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_tells_a_wrong_label(&cuda);
}

static void what_waits_keeps_its_order(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_keeps_the_order(&ls_cuda_backend);
}

static void joins_apart_are_one_launch(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_joins_together(&ls_cuda_backend);
}

static void a_run_again_is_no_run_before(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_runs_again(&ls_cuda_backend);
}

static void many_values_are_looked_at_together(void **state)
{
    (void)state;
    NEED_STAND_IN;
    other_checks_many_at_once(&ls_cuda_backend);
}

/* ---- Kernels on disk ---- */

/* The first file in the cache's folder. */
static void cached_file(const char *folder, char path[400], struct stat *about)
{
    char inner[300];
    snprintf(inner, sizeof(inner), "%s/cuda", folder);
    DIR *list = opendir(inner);
    assert_non_null(list);
    path[0] = '\0';
    for (struct dirent *entry; (entry = readdir(list));) {
        if (entry->d_name[0] == '.')
            continue;
        assert_null(strstr(entry->d_name, "tmp")); /* nothing half-written */
        if (!path[0] || strcmp(entry->d_name, strrchr(path, '/') + 1) < 0)
            snprintf(path, 400, "%s/%.90s", inner, entry->d_name);
    }
    closedir(list);
    assert_true(path[0]);
    assert_int_equal(stat(path, about), 0);
}

static void kernels_are_kept_on_disk(void **state)
{
    (void)state;
    NEED_STAND_IN;
    char folder[] = "/tmp/lockstep-cache-XXXXXX", path[400], command[64], expected[65], hash[65];
    struct stat made, found;
    other_job j = { NETWORK_MLP, 7, 1, { NULL, NULL } };
    assert_non_null(mkdtemp(folder));
    setenv("LOCKSTEP_CACHE", folder, 1);
    other_train(&cuda, &j, "cpu:0", expected);
    for (int i = 0; i < 3; i++) { /* made; read; and made again, for it is damaged */
        other_train(&cuda, &j, "cuda:0", hash);
        assert_string_equal(hash, expected);
        cached_file(folder, path, i == 0 ? &made : &found);
        assert_true(made.st_size > 64);
        if (i == 1) {
            assert_int_equal(found.st_ino, made.st_ino);
            assert_int_equal(truncate(path, made.st_size - 1), 0);
        }
    }
    assert_int_equal(found.st_size, made.st_size);
    setenv("LOCKSTEP_CACHE", "", 1);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- Names ---- */

static void is_used_by_itself_and_called_gpu_too(void **state)
{
    (void)state;
    NEED_STAND_IN;
    static const char *const names[] = { "cuda:1", "gpu:1", "/gpu:1", "/device:CUDA:1" };
    ls_context *ctx;
    ls_device_info *list;
    size_t count;
    OK(ls_context_open(NULL, &ctx));
    OK(ls_list_logical_devices(ctx, "CUDA", &list, &count));
    assert_int_equal(count, 2);
    machine_has(list[1].about, "Stand-in 1; CUDA: sm_80, driver 13.0, bus 0000:01:00.0");
    free(list);
    ls_context_close(ctx);
    for (size_t i = 0; i < LENGTH(names); i++) {
        assert_true(cuda_open(NULL, names[i], &ctx));
        assert_int_equal(machine_devices(ctx, "CUDA"), 1);
        ls_context_close(ctx);
    }
    OK(ls_context_create(NULL, &ctx));
    FAILS(ls_set_visible_devices(ctx, "gpu:2"), LS_ERR_NOT_FOUND, "CUDA:0 to CUDA:1");
    ls_context_close(ctx);
}

static void a_reference_context_has_the_cpu_alone(void **state)
{
    (void)state;
    NEED_STAND_IN;
    const ls_context_options options = { .reference = true };
    ls_context *ctx;
    OK(ls_context_open(&options, &ctx));
    assert_int_equal(machine_devices(ctx, "CUDA"), 0);
    ls_context_close(ctx);
    OK(ls_context_create(&options, &ctx));
    FAILS(ls_set_visible_devices(ctx, "cuda:0"), LS_ERR_NOT_FOUND, "CUDA:0", "reference context", "only the CPU");
    ls_context_close(ctx);
    setenv("LOCKSTEP_VISIBLE_DEVICES", "cuda:0", 1); /* for the other contexts of the program */
    OK(ls_context_open(&options, &ctx));
    assert_int_equal(machine_devices(ctx, "CUDA"), 0);
    ls_context_close(ctx);
    unsetenv("LOCKSTEP_VISIBLE_DEVICES");
}

/* ---- Wrong arithmetic ---- */

#define LOG 1024

/* Appends a message to the text in `user`. */
static void keep_message(void *user, ls_log_level level, const char *message)
{
    size_t used = strlen(user);
    (void)level;
    snprintf((char *)user + used, LOG - used, "%s\n", message);
}

/* The bit class of both devices, and what was logged meanwhile. */
static char *class_of_both(char log[LOG])
{
    char *text = NULL;
    ls_context *ctx;
    ls_context_options options = { .threads = 1, .log_sink = keep_message, .log_user = log };
    log[0] = '\0';
    assert_true(cuda_open(&options, "cuda:0-1", &ctx));
    OK(ls_bit_class(ctx, &text));
    ls_context_close(ctx);
    return text;
}

/* The canary has no subnormals: the self-check alone finds that they are flushed, on any device of
 * a kind. */
static void wrong_arithmetic_has_a_bit_class_of_its_own(void **state)
{
    (void)state;
    NEED_STAND_IN;
    static const struct {
        const char *fault, *check;
    } rows[] = { { "subnormals", "(product)" }, { "fma", "(matrix product)" } };
    char log[LOG], name[16], *right = class_of_both(log);
    assert_null(strstr(right, "self-check"));
    assert_string_equal(log, "");
    for (size_t i = 0; i < LENGTH(rows); i++)
        for (int device = 0; device < 2; device++) {
            if (!standin.break_device(device, rows[i].fault)) {
                print_message("the stand-in cannot have the fault %s on this machine\n", rows[i].fault);
                continue;
            }
            char *wrong = class_of_both(log), *own = strstr(wrong, "; CUDA self-check ");
            assert_true(standin.break_device(device, ""));
            if (!own || !strstr(own, rows[i].check) || (i == 0 && strncmp(wrong, right, strlen(right)) != 0))
                fail_msg("%s on device %d: the bit class is %s", rows[i].fault, device, wrong);
            assert_null(strstr(own + 1, "; CUDA")); /* the other device is right */
            snprintf(name, sizeof name, "cuda:%d: ", device);
            machine_has(log, name);
            machine_has(log, "differ from the CPU's reference kernels");
            free(wrong);
        }
    char *again = class_of_both(log);
    assert_string_equal(again, right);
    free(again);
    free(right);
}

/* ---- What fails ---- */

static ls_context *both(void)
{
    ls_context *ctx;
    if (!cuda_open(&(ls_context_options){ .threads = 1 }, "cuda:0-1", &ctx))
        fail_msg("no stand-in: %s", ls_last_error());
    return ctx;
}

/* Each function of the driver fails once, early and late; the step fails and says of what, and all
 * is given back. */
static void every_call_of_the_driver_may_fail(void **state)
{
    (void)state;
    NEED_STAND_IN;
    static const char *const calls[] = { "cuMemAlloc",          "cuMemHostAlloc",     "cuMemcpyHtoDAsync",
                                         "cuMemcpyDtoHAsync",   "cuMemcpyPeerAsync",  "cuEventCreate",
                                         "cuEventRecord",       "cuEventSynchronize", "cuLaunchKernel",
                                         "cuStreamSynchronize", "cuModuleLoadData",   "cuModuleGetFunction",
                                         "ncclGroupStart",      "ncclSend",           "ncclRecv",
                                         "ncclGroupEnd" };
    char hash[65], expected[65];
    int noticed[LENGTH(calls)] = { 0 };
    OK(other_two_steps(both(), expected));
    for (size_t i = 0; i < LENGTH(calls); i++) {
        for (int nth = 1; nth < 400; nth = nth * 2 + 1) {
            standin.fail_next(calls[i], nth, 719);
            ls_status status = other_two_steps(both(), hash);
            bool came = standin.fail_next(calls[i], 0, 0);
            /* no call asks for the status at the end; a variable that does not come from one device
             * comes from another / */
            bool may_pass = strstr(calls[i], "Synchronize") || strstr(calls[i], "Peer") || strstr(calls[i], "DtoH");
            if (status == LS_OK) {
                assert_string_equal(hash, expected);
                if (came && !may_pass)
                    fail_msg("%s %d failed, and nobody noticed", calls[i], nth);
            } else {
                assert_true(came);
                machine_has(ls_last_error(), "Stand-in ");
                if (status != LS_ERR_DEVICE && status != LS_ERR_MEMORY)
                    fail_msg("%s %d: %s: %s", calls[i], nth, ls_status_name(status), ls_last_error());
            }
            noticed[i] += status != LS_OK;
            if (standin.held() != 0)
                fail_msg("%s %d: %d things of CUDA's are still held", calls[i], nth, standin.held());
        }
        if (noticed[i] == 0)
            fail_msg("%s never failed", calls[i]);
    }
}

static void a_device_that_does_not_open_is_reported(void **state)
{
    (void)state;
    NEED_STAND_IN;
    static const char *const calls[] = { "cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuMemAlloc" };
    for (size_t i = 0; i < LENGTH(calls); i++)
        for (int nth = 1; nth < 3; nth++) {
            ls_context *ctx = NULL;
            ls_device_info *list = NULL;
            size_t count = 0;
            char name[32];
            snprintf(name, sizeof name, "Stand-in %d", nth - 1);
            assert_true(cuda_open(NULL, "cuda:0-1", &ctx));
            standin.fail_next(calls[i], nth, 719);
            FAILS(ls_list_logical_devices(ctx, NULL, &list, &count), LS_ERR_DEVICE, name,
                  "CUDA_ERROR_LAUNCH_FAILED (719)");
            ls_context_close(ctx);
            standin.fail_next(calls[i], 0, 0);
            assert_int_equal(standin.held(), 0);
        }
}

/* Without room for scratch memory half as many lanes run at once, with the same bits; other
 * failures are reported. */
static void missing_memory_is_reported(void **state)
{
    (void)state;
    NEED_STAND_IN;
    char expected[65], hash[65];
    int told = 0, halved = 0;
    OK(other_two_steps(both(), expected));
    for (int nth = 3; nth < 16; nth++) {
        standin.fail_next("cuMemAlloc", nth, LS_CUDA_ERROR_OUT_OF_MEMORY);
        ls_status status = other_two_steps(both(), hash);
        assert_true(standin.fail_next("cuMemAlloc", 0, 0));
        if (status == LS_OK) {
            assert_string_equal(hash, expected);
            halved++;
            continue;
        }
        assert_int_equal(status, LS_ERR_MEMORY);
        machine_has(ls_last_error(), "Stand-in ");
        machine_has(ls_last_error(), "CUDA_ERROR_OUT_OF_MEMORY (2)");
        machine_has(ls_last_error(), " bytes");
        told++;
    }
    assert_true(told >= 11 && halved <= 2);
}

/* ---- A device is lost ---- */

/* At several launches of the sixth step: it fails as a whole and names the device; the weights are
 * those of the fifth; training goes on with the other device, and ends as if nothing had been. */
static void training_continues_without_a_lost_device(void **state)
{
    (void)state;
    NEED_STAND_IN;
    char middle[65], end[65], hex[65], lost[32];
    other_training_hash(both(), "cuda:0-1", 5, middle);
    other_training_hash(both(), "cuda:0-1", 0, end);
    for (int device = 0; device < 2; device++)
        for (int nth = 1; nth < 60; nth = nth * 3 + 1) {
            other_training t;
            other_training_open(&t, both(), false);
            OK(other_training_fit(&t, "cuda:0-1", 5, false));
            standin.lose(device, nth, 719);
            snprintf(lost, sizeof lost, "device:CUDA:%d", device);
            FAILS(other_training_fit(&t, "cuda:0-1", 6, true), LS_ERR_DEVICE, "step 6", lost,
                  "CUDA_ERROR_LAUNCH_FAILED (719)");
            OK(ls_model_state_sha256(t.model, hex));
            assert_string_equal(hex, middle);
            OK(other_training_fit(&t, device ? "cuda:0" : "cuda:1", 0, true));
            OK(ls_model_state_sha256(t.model, hex));
            assert_string_equal(hex, end);
            other_training_close(&t);
            standin.lose(device, 0, 0);
        }
}

/* ---- NCCL ---- */

static ls_status fit_wide(const char *devices, char hex[65])
{
    other_training t;
    other_training_open(&t, both(), true);
    ls_status status = other_training_fit(&t, devices, 3, false);
    if (status == LS_OK)
        OK(ls_model_state_sha256(t.model, hex));
    other_training_close(&t);
    return status;
}

/* Joins go by groups of sends and receives, and by all-gathers where devices have parts of one
 * size; a call that fails is reported; where communicators cannot be made devices copy from each
 * other. The bits are always the CPU's. */
static void joins_go_by_nccl(void **state)
{
    (void)state;
    NEED_STAND_IN;
    char expected[65], hash[65];
    long sends = standin.count("ncclSend"), gathers = standin.count("ncclAllGather");
    OK(fit_wide("cpu:0", expected));
    assert_int_equal(standin.count("ncclSend"), sends);
    OK(fit_wide("cuda:0-1", hash));
    assert_string_equal(hash, expected);
    assert_int_equal(standin.count("ncclAllGather"), gathers + 2 * 3); /* one of each device in each step */
    assert_true(standin.count("ncclSend") > sends);
    OK(fit_wide("cuda:1,cuda:0", hash)); /* parts are not in the order of ranks */
    assert_string_equal(hash, expected);
    assert_int_equal(standin.count("ncclAllGather"), gathers + 2 * 3);
    standin.fail_next("ncclAllGather", 3, 2);
    FAILS(fit_wide("cuda:0-1", hash), LS_ERR_DEVICE, "step 2", "Stand-in 0", "NCCL", "error 2");
    OK(fit_wide("cuda:0-1", hash));
    assert_string_equal(hash, expected);
}

/* The last test: NCCL is not used after it. */
static void without_communicators_devices_copy(void **state)
{
    (void)state;
    NEED_STAND_IN;
    char expected[65], hash[65];
    OK(fit_wide("cpu:0", expected));
    long sends = standin.count("ncclSend"), copies = standin.count("cuMemcpyPeerAsync");
    standin.fail_next("ncclCommInitAll", 1, 2);
    OK(fit_wide("cuda:0-1", hash));
    assert_string_equal(hash, expected);
    assert_int_equal(standin.count("ncclSend"), sends);
    assert_true(standin.count("cuMemcpyPeerAsync") > copies);
}

/* ---- Limits ---- */

static void a_memory_limit_holds(void **state)
{
    (void)state;
    NEED_STAND_IN;
    ls_context *ctx;
    network n;
    char hash[65];
    OK(ls_context_create(&(ls_context_options){ .threads = 1 }, &ctx));
    OK(ls_set_visible_devices(ctx, "cuda:0"));
    ls_logical_device parts[] = { { .memory_limit = 64 << 10 }, { .memory_limit = 64 << 10 } };
    OK(ls_set_logical_devices(ctx, "cuda:0", parts, 2));
    assert_int_equal(machine_devices(ctx, "CUDA"), 2);
    OK(network_create(ctx, NETWORK_RESIDUAL, &n));
    assert_int_equal(network_train(&n, 64, 1, hash), LS_ERR_MEMORY);
    machine_has(ls_last_error(), "CUDA:");
    network_destroy(&n);
    ls_context_close(ctx);
}

/* Programs that use CUDA themselves find their context as it was. */
static void the_thread_s_context_is_left_alone(void **state)
{
    (void)state;
    NEED_STAND_IN;
    char hash[65];
    ls_cu_context left = NULL;
    OK(other_two_steps(both(), hash));
    assert_int_not_equal(ls_cuda_get()->cu.CtxPopCurrent(&left), LS_CUDA_SUCCESS); /* there is none */
}

/* ---- Numbers that cu.h has written down ---- */

#if __has_include(</usr/local/cuda/include/cuda.h>)
#include </usr/local/cuda/include/cuda.h>

static void numbers_are_those_of_the_headers(void **state)
{
    (void)state;
#define SAME(name) assert_int_equal(LS_##name, name)
    SAME(CUDA_SUCCESS);
    SAME(CUDA_ERROR_OUT_OF_MEMORY);
    SAME(CUDA_ERROR_NO_DEVICE);
    SAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    SAME(CU_STREAM_NON_BLOCKING);
    SAME(CU_EVENT_DISABLE_TIMING);
    assert_int_equal(sizeof(CUdeviceptr), sizeof(ls_cu_memory));
    assert_int_equal(sizeof(CUdevice), sizeof(ls_cu_device));
}
#else
static void numbers_are_those_of_the_headers(void **state)
{
    (void)state;
    SKIP("no cuda.h");
}
#endif

int main(void)
{
    there = cuda_stand_in();
    if (there)
        standin = cuda_control();
#define TEST(name) cmocka_unit_test_teardown(name, nothing_is_left)
    const struct CMUnitTest tests[] = {
        TEST(trainings_have_the_cpu_s_bits),
        TEST(layers_on_both_have_the_cpu_s_bits),
        TEST(sequences_and_augmented_images_have_the_cpu_s_bits),
        TEST(a_steady_step_moves_no_weights),
        TEST(a_wrong_label_is_reported_as_on_the_cpu),
        TEST(what_waits_keeps_its_order),
        TEST(joins_apart_are_one_launch),
        TEST(a_run_again_is_no_run_before),
        TEST(many_values_are_looked_at_together),
        TEST(is_used_by_itself_and_called_gpu_too),
        TEST(a_reference_context_has_the_cpu_alone),
        TEST(wrong_arithmetic_has_a_bit_class_of_its_own),
        TEST(every_call_of_the_driver_may_fail),
        TEST(a_device_that_does_not_open_is_reported),
        TEST(missing_memory_is_reported),
        TEST(training_continues_without_a_lost_device),
        TEST(a_memory_limit_holds),
        TEST(the_thread_s_context_is_left_alone),
        TEST(kernels_are_kept_on_disk),
        TEST(numbers_are_those_of_the_headers),
        TEST(launches_do_not_depend_on_lanes),
        TEST(as_many_lanes_as_fit_are_run_at_once),
        TEST(chains_are_one_launch_and_have_the_cpu_s_bits),
        TEST(gathered_rows_are_added_in_order),
        TEST(scratch_memory_counts),
        TEST(fewer_lanes_run_at_once_for_scratch_memory),
        TEST(scratch_memory_in_use_is_replaced),
        TEST(joins_go_by_nccl),
        TEST(without_communicators_devices_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
