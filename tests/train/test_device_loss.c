/* A device is lost in the middle of a step: its calls fail, from one of them on, for good. The step
 * ends with a status that names device, op and lane; the weights are those of the last whole step;
 * training goes on without the device, in the same process, and ends with the bits of an
 * undisturbed run. The device is lost at every call of a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"
#include "machine.h"
#include "samples.h"

#define SAMPLES 20
#define BATCH   5
#define STEPS   4 /* in an epoch */
#define SIDE    6
#define CLASSES 3
#define LANES   5

/* ---- One training ---- */

typedef struct trained {
    machine m;
    ls_model *model;
    ls_dataset *data;
} trained;

/* second: the device of the later layers, or NULL. */
static void open_trained(trained *t, int gpus, bool copies, const char *second)
{
    machine_create(&t->m, (machine_settings){ .gpu = { .devices = gpus, .copies = copies, .delay = -1 },
                                              .options = { .threads = 2 } });
    OK(ls_sequential(t->m.ctx, "lost", &t->model, ls_input(SIDE, SIDE, 1), ls_conv2d(4, 3, .activation = LS_RELU),
                     ls_batch_normalization(), ls_flatten(), ls_dropout(0.25, .device = second),
                     ls_dense(8, .activation = LS_RELU, .device = second),
                     ls_dense(CLASSES, .activation = LS_SOFTMAX, .device = second)));
    OK(ls_compile(t->model, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy(),
                  .metrics = ls_metrics(ls_accuracy())));
    t->data = samples_of_bytes(SAMPLES, SIDE, CLASSES);
}

static void close_trained(trained *t)
{
    ls_dataset_destroy(t->data);
    ls_model_destroy(t->model);
    machine_close(&t->m);
}

/* A fit to the end of the second epoch, or up to a step. */
static ls_status fit_with(trained *t, ls_strategy strategy, int64_t max_steps, bool continue_last)
{
    return ls_fit(t->model, t->data, .epochs = 2, .batch_size = BATCH, .lanes = LANES, .seed = 3,
                  .verbose = LS_VERBOSE_SILENT, .max_steps = max_steps, .continue_last = continue_last,
                  .strategy = strategy);
}

static ls_status fit(trained *t, const char *devices, int64_t max_steps, bool continue_last)
{
    return fit_with(t, ls_mirrored(.devices = devices), max_steps, continue_last);
}

static void hash_of(trained *t, char hex[65])
{
    OK(ls_model_state_sha256(t->model, hex));
}

/* After this number of steps of an undisturbed run on one device. */
static void expect_hash(int64_t steps, char hex[65])
{
    trained t;
    open_trained(&t, 1, true, NULL);
    OK(fit(&t, "gpu:0", steps, false));
    hash_of(&t, hex);
    close_trained(&t);
}

static void must_equal(trained *t, const char *expected, const char *when)
{
    char found[65];
    hash_of(t, found);
    if (strcmp(found, expected) != 0)
        fail_msg("%s: other bits", when);
}

/* ---- One loss ---- */

typedef struct losing {
    int gpus;
    bool copies;
    int device; /* the lost device */
    gpu_call call;
    int before; /* whole steps before it */
    const char *all, *others;
} losing;

static char middle[65], end[65]; /* hashes of the undisturbed run */
static int told_lanes, told_joins, told_updates;

/* A step, a lane's task or those of several, device and op; a join, an update and a value of the
 * whole batch have no lane. */
static void check_message(const losing *l, int nth)
{
    char lost[32];
    const char *text = ls_last_error();
    snprintf(lost, sizeof lost, "device:GPU:%d", l->device);
    bool named = strstr(text, "step 6: ") && strstr(text, lost) && strstr(text, "(op ");
    if (!named || (strstr(text, "conv2d/add") && !strstr(text, "step 6: lane")))
        fail_msg("%s %d: step, device, op or lane is missing in \"%s\"", gpu_call_name(l->call), nth, text);
    told_lanes += strstr(text, "step 6: lane") != NULL;
    told_joins += strstr(text, "): joining on") != NULL;
    told_updates += strstr(text, "(op apply): updating on") != NULL;
}

/* False: the step has fewer calls of that kind. */
static bool lose_once(const losing *l, int nth)
{
    trained t;
    char when[96];
    snprintf(when, sizeof when, "GPU:%d of %d lost at %s %d", l->device, l->gpus, gpu_call_name(l->call), nth);
    open_trained(&t, l->gpus, l->copies, NULL);
    OK(fit(&t, l->all, l->before, false));
    gpu_lose(t.m.g, l->device, l->call, nth);
    ls_status status = fit(&t, l->all, l->before + 1, true);
    gpu_lose(t.m.g, l->device, l->call, 0);
    if (status != LS_OK) {
        gpu_lose(t.m.g, l->device, GPU_SYNC, 1);
        assert_int_equal(status, LS_ERR_DEVICE);
        check_message(l, nth);
        must_equal(&t, middle, when);
        OK(fit(&t, l->others, 0, true));
        must_equal(&t, end, when);
    }
    close_trained(&t);
    return status != LS_OK;
}

static void lose_at_all(losing l, int stride)
{
    for (int nth = 1; lose_once(&l, nth); nth += SANITIZED ? 11 : stride)
        ;
}

/* ---- Tests ---- */

static void a_mirrored_device_of_two(void **state)
{
    (void)state;
    static const gpu_call calls[] = { GPU_RUN, GPU_SYNC, GPU_UPLOAD, GPU_JOIN, GPU_FINITE, GPU_DOWNLOAD, GPU_COPY };
    expect_hash(5, middle);
    expect_hash(0, end);
    for (size_t i = 0; i < LENGTH(calls); i++)
        for (int device = 0; device < 2; device++)
            lose_at_all((losing){ .gpus = 2,
                                  .copies = true,
                                  .device = device,
                                  .call = calls[i],
                                  .before = 5,
                                  .all = "gpu:0-1",
                                  .others = device ? "gpu:0" : "gpu:1" },
                        calls[i] == GPU_RUN ? 2 : 5);
    assert_true(SANITIZED || (told_lanes >= 10 && told_joins >= 3 && told_updates >= 1)); /* else it says little */
}

static void a_mirrored_device_of_three(void **state)
{
    (void)state;
    static const gpu_call calls[] = { GPU_RUN, GPU_SYNC };
    static const char *const others[] = { "gpu:1-2", "gpu:0,gpu:2", "gpu:0-1" };
    expect_hash(5, middle);
    expect_hash(0, end);
    for (size_t i = 0; i < LENGTH(calls); i++)
        for (int device = 0; device < 3; device++)
            for (int nth = 1; nth <= 13; nth += SANITIZED ? 12 : 3)
                (void)lose_once(&(losing){ .gpus = 3,
                                           .copies = i == 0,
                                           .device = device,
                                           .call = calls[i],
                                           .before = 5,
                                           .all = "gpu:0-2",
                                           .others = others[device] },
                                nth);
}

/* Training continues on an unused device: the values come from the remaining device, not from the
 * lost one. */
static void another_device_takes_over(void **state)
{
    (void)state;
    expect_hash(5, middle);
    expect_hash(0, end);
    for (int copies = 0; copies < 2; copies++)
        for (int device = 0; device < 2; device++)
            assert_true(lose_once(&(losing){ .gpus = 3,
                                             .copies = copies,
                                             .device = device,
                                             .call = GPU_RUN,
                                             .before = 5,
                                             .all = "gpu:0-1",
                                             .others = "gpu:2" },
                                  2));
}

/* One is lost, and then a second one when the same step is made again. */
static void two_devices_one_after_the_other(void **state)
{
    (void)state;
    expect_hash(5, middle);
    expect_hash(0, end);
    for (int nth = 1; nth < 12; nth += SANITIZED ? 5 : 2) {
        trained t;
        open_trained(&t, 3, true, NULL);
        OK(fit(&t, "gpu:0-2", 5, false));
        gpu_lose(t.m.g, 0, GPU_RUN, nth % 4 + 1);
        FAILS(fit(&t, "gpu:0-2", 0, true), LS_ERR_DEVICE, "step 6", GPU(0));
        must_equal(&t, middle, "after the first");
        gpu_lose(t.m.g, 2, GPU_SYNC, nth);
        FAILS(fit(&t, "gpu:1-2", 0, true), LS_ERR_DEVICE, "GPU:2");
        gpu_lose(t.m.g, 2, GPU_SYNC, 1);
        must_equal(&t, middle, "after the second");
        OK(fit(&t, "gpu:1", 0, true));
        must_equal(&t, end, "at the end");
        close_trained(&t);
    }
}

/* The first device alone has the optimizer's slots: another one can be lost, and training goes on
 * under another strategy; without the first there is nothing to go on with, and that is said. */
static void data_parallel_lives_on_its_first_device(void **state)
{
    (void)state;
    expect_hash(5, middle);
    expect_hash(0, end);
    for (int device = 0; device < 3; device++) {
        trained t;
        char hex[65];
        open_trained(&t, 3, true, NULL);
        OK(fit_with(&t, ls_data_parallel(.devices = "gpu:0-2"), 5, false));
        gpu_lose(t.m.g, device, GPU_RUN, 3);
        ls_status status = fit_with(&t, ls_data_parallel(.devices = "gpu:0-2"), 0, true);
        assert_int_equal(status, LS_ERR_DEVICE);
        if (device == 0) {
            FAILS(ls_model_state_sha256(t.model, hex), LS_ERR_DEVICE, "load weights or a checkpoint", GPU(0));
        } else {
            must_equal(&t, middle, "after the loss");
            OK(fit_with(&t, ls_pipeline(.devices = device == 1 ? "gpu:0,gpu:2" : "gpu:0-1"), 0, true));
            must_equal(&t, end, "as a pipeline");
        }
        close_trained(&t);
    }
}

/* Values that only the lost device had are lost: the error reports this, and how to continue. */
static void what_one_device_had_alone_is_lost(void **state)
{
    (void)state;
    trained t;
    char file[] = "/tmp/lockstep-lost-XXXXXX";
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    open_trained(&t, 2, true, "gpu:1");
    OK(fit(&t, "gpu:0-1", 5, false));
    OK(ls_model_save_weights(t.model, file)); /* brings all to the host */
    OK(fit(&t, "gpu:0-1", 6, true));
    gpu_lose(t.m.g, 1, GPU_RUN, 1);
    FAILS(fit(&t, "gpu:0-1", 0, true), LS_ERR_DEVICE, "step 7", GPU(1));
    char hex[65];
    FAILS(ls_model_state_sha256(t.model, hex), LS_ERR_DEVICE, "dense", "load weights or a checkpoint", GPU(1));
    OK(ls_model_load_weights(t.model, file));
    OK(ls_model_weights_sha256(t.model, hex));
    close_trained(&t);
    remove(file);
}

/* Values of the last whole step that are on the host are not lost. */
static void what_the_host_has_is_not_lost(void **state)
{
    (void)state;
    trained t;
    char before[65], after[65];
    open_trained(&t, 2, false, "gpu:1");
    OK(fit(&t, "gpu:0-1", 5, false));
    hash_of(&t, before);
    gpu_lose(t.m.g, 1, GPU_RUN, 1);
    FAILS(fit(&t, "gpu:0-1", 0, true), LS_ERR_DEVICE, GPU(1));
    hash_of(&t, after);
    assert_string_equal(after, before);
    close_trained(&t);
}

/* Where a fit goes on: it must be the same data, and it may be at the end of an epoch. */
static void going_on_is_checked(void **state)
{
    (void)state;
    trained t;
    expect_hash(0, end);
    open_trained(&t, 1, true, NULL);
    OK(fit(&t, "gpu:0", 3, false));
    FAILS(ls_fit(t.model, t.data, .epochs = 2, .batch_size = 4, .lanes = LANES, .seed = 3, .continue_last = true),
          LS_ERR_INVALID, "after step 3 of epoch 1", "batches of 5", "batches of 4");
    FAILS(ls_fit(t.model, t.data, .epochs = 2, .batch_size = BATCH, .lanes = LANES, .continue_last = true),
          LS_ERR_INVALID, "seed 3", "seed 0");
    FAILS(
        ls_fit(t.model, t.data, .epochs = 2, .batch_size = BATCH, .lanes = LANES + 1, .seed = 3, .continue_last = true),
        LS_ERR_INVALID, "another number of lanes changes the results");
    FAILS(
        ls_fit(t.model, t.data, .epochs = 2, .batch_size = BATCH, .seed = 3, .continue_last = true, .initial_epoch = 1),
        LS_ERR_INVALID, "initial_epoch");
    OK(fit(&t, "gpu:0", STEPS, true));
    OK(fit(&t, "gpu:0", 0, true));
    must_equal(&t, end, "in three parts");
    OK(fit(&t, "gpu:0", 0, true)); /* nothing is left */
    must_equal(&t, end, "at the end");
    close_trained(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mirrored_device_of_two),
        cmocka_unit_test(a_mirrored_device_of_three),
        cmocka_unit_test(another_device_takes_over),
        cmocka_unit_test(two_devices_one_after_the_other),
        cmocka_unit_test(data_parallel_lives_on_its_first_device),
        cmocka_unit_test(what_one_device_had_alone_is_lost),
        cmocka_unit_test(what_the_host_has_is_not_lost),
        cmocka_unit_test(going_on_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
