/* ls_fit with asynchronous parameter servers, from C: two fits one after the other, a learning rate
 * that a callback sets, a callback that stops training, a step that is not finite, and what is
 * refused. Every process is one of ls_spawn. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "lockstep.h"
#include "base/status.h"
#include "machine.h"

#define SAMPLES   200
#define PROCESSES 4 /* two workers, two servers */

typedef struct seen {
    char hash[2][65];
    int64_t steps[2];
    int epochs, batches;
    double rate;
} seen;

static seen *all; /* by rank, shared by all processes */
static float x[SAMPLES * 3], y[SAMPLES];

static void make_data(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < 3; k++)
            x[3 * i + k] = (float)((i * 7 + k * 5) % 11) / 11;
        y[i] = x[3 * i] - 2 * x[3 * i + 1] + 0.5f * x[3 * i + 2];
    }
}

/* The rate that every epoch but the first has. */
static ls_status slower(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    seen *s = user;
    (void)logs, (void)stop;
    s->epochs++;
    return ls_set_learning_rate(model, 0.01);
}

static ls_status count(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    seen *s = user;
    (void)model, (void)logs;
    *stop = ++s->batches == 30;
    return LS_OK;
}

typedef struct process {
    ls_context *ctx;
    ls_model *model;
    ls_dataset *data;
} process;

static ls_status open_process(process *p, double rate)
{
    *p = (process){ .ctx = NULL };
    LS_TRY(ls_context_open(&(ls_context_options){ .threads = 1 }, &p->ctx));
    LS_TRY(ls_sequential(p->ctx, "m", &p->model, ls_input(3), ls_dense(5, .activation = LS_RELU), ls_dense(1)));
    LS_TRY(ls_compile(p->model, .optimizer = ls_sgd(.learning_rate = rate, .momentum = 0.5),
                      .loss = ls_mean_squared_error()));
    p->data = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 3), x),
                                    ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), y), .keep = LS_KEEP_BORROWED);
    return LS_OK;
}

static void close_process(process *p)
{
    ls_dataset_destroy(p->data);
    ls_model_destroy(p->model);
    ls_context_close(p->ctx);
}

static ls_status end_of_fit(process *p, int rank, int which)
{
    LS_TRY(ls_model_state_sha256(p->model, all[rank].hash[which]));
    return ls_model_steps(p->model, &all[rank].steps[which]);
}

/* Two fits; the second is stopped by a callback of the chief. */
static ls_status fit_twice(int rank, int processes, void *user)
{
    process p;
    seen *s = &all[rank];
    const ls_callback rates = { .user = s, .on_epoch_end = slower }, stops = { .user = s, .on_batch_end = count };
    (void)processes, (void)user;
    LS_TRY(open_process(&p, 0.05));
    ls_status status =
        ls_fit(p.model, p.data, .epochs = 3, .batch_size = 10, .verbose = LS_VERBOSE_SILENT, .seed = 1,
               .callbacks = &rates, .callback_count = 1, .strategy = ls_parameter_server(.staleness = 3));
    if (status == LS_OK)
        status = end_of_fit(&p, rank, 0);
    if (status == LS_OK)
        status = ls_learning_rate(p.model, &s->rate);
    if (status == LS_OK)
        status =
            ls_fit(p.model, p.data, .epochs = 100, .batch_size = 10, .verbose = LS_VERBOSE_SILENT, .callbacks = &stops,
                   .callback_count = 1, .strategy = ls_parameter_server(.staleness = 3, .overlap = true));
    if (status == LS_OK)
        status = end_of_fit(&p, rank, 1);
    close_process(&p);
    return status;
}

static void two_fits_have_one_state_everywhere(void **state)
{
    (void)state;
    memset(all, 0, PROCESSES * sizeof(*all));
    OK(ls_spawn(PROCESSES, fit_twice, NULL));
    for (int r = 0; r < PROCESSES; r++) {
        assert_string_equal(all[r].hash[0], all[0].hash[0]);
        assert_string_equal(all[r].hash[1], all[0].hash[1]);
        assert_int_equal(all[r].steps[0], 60);
        assert_int_equal(all[r].steps[1], all[0].steps[1]);
        assert_int_equal(all[r].epochs, r == 0 ? 3 : 0); /* callbacks are the chief's */
    }
    assert_string_not_equal(all[0].hash[0], all[0].hash[1]);
    assert_true(all[0].rate == 0.01);
    assert_true(all[0].steps[1] >= 90 && all[0].steps[1] < 100); /* the batches in work are finished, and no more */
}

/* Weights that a callback of the chief changes stay there, and nothing is computed from them:
 * servers have the others. But for the last epoch: then everybody gets the chief's. */
static ls_status spoil(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    static const float zeros[64];
    static const size_t counts[] = { 15, 5, 5, 1 };
    (void)logs, (void)stop;
    if (--*(int *)user <= 0)
        return LS_OK;
    for (size_t i = 0; i < LENGTH(counts); i++)
        LS_TRY(ls_variable_set(ls_model_variable(model, i), zeros, counts[i] * sizeof(float)));
    return LS_OK;
}

typedef enum spoiling { NEVER, EPOCHS, BATCHES, SPOILINGS } spoiling;

static ls_status fit_spoiled(int rank, int processes, void *user)
{
    spoiling when = *(spoiling *)user;
    int left = when == EPOCHS ? 3 : 60;
    const ls_callback callback = { .user = &left,
                                   .on_epoch_end = when == EPOCHS ? spoil : NULL,
                                   .on_batch_end = when == BATCHES ? spoil : NULL };
    process p;
    (void)processes;
    LS_TRY(open_process(&p, 0.05));
    ls_status status = ls_fit(p.model, p.data, .epochs = 3, .batch_size = 10, .verbose = LS_VERBOSE_SILENT, .seed = 1,
                              .callbacks = &callback, .callback_count = when == NEVER ? 0 : 1,
                              .strategy = ls_parameter_server(.staleness = 3));
    if (status == LS_OK)
        status = end_of_fit(&p, rank, 0);
    close_process(&p);
    return status;
}

static void what_callbacks_change_stays_in_the_chief(void **state)
{
    (void)state;
    char hash[65] = "";
    for (spoiling when = NEVER; when < SPOILINGS; when++) {
        memset(all, 0, PROCESSES * sizeof(*all));
        OK(ls_spawn(3, fit_spoiled, &when)); /* one worker, two servers */
        if (when == NEVER)
            snprintf(hash, sizeof(hash), "%s", all[0].hash[0]);
        assert_int_equal(all[0].steps[0], 60);
        assert_string_equal(all[0].hash[0], hash);
    }
}

/* The second fit has no step left to make. */
static ls_status fit_to_limit(int rank, int processes, void *user)
{
    process p;
    (void)processes, (void)user;
    LS_TRY(open_process(&p, 0.05));
    ls_status status = LS_OK;
    for (int i = 0; i < 2 && status == LS_OK; i++) {
        status = ls_fit(p.model, p.data, .epochs = 3, .batch_size = 10, .verbose = LS_VERBOSE_SILENT, .max_steps = 7,
                        .strategy = ls_parameter_server(.staleness = 3));
        if (status == LS_OK)
            status = end_of_fit(&p, rank, i);
    }
    close_process(&p);
    return status;
}

static void a_fit_whose_steps_are_made_ends(void **state)
{
    (void)state;
    memset(all, 0, PROCESSES * sizeof(*all));
    OK(ls_spawn(PROCESSES, fit_to_limit, NULL));
    for (int r = 0; r < PROCESSES; r++) {
        assert_int_equal(all[r].steps[0], 7);
        assert_int_equal(all[r].steps[1], 7);
        assert_string_equal(all[r].hash[1], all[0].hash[0]);
    }
}

/* A rate at which the loss is not finite soon: every process fails, for the same reason. */
static ls_status fit_too_fast(int rank, int processes, void *user)
{
    process p;
    (void)processes;
    LS_TRY(open_process(&p, 1e30));
    const ls_callback terminates = ls_terminate_on_nan();
    bool ends = *(bool *)user;
    ls_status status = ls_fit(p.model, p.data, .epochs = 3, .batch_size = 10, .verbose = LS_VERBOSE_SILENT,
                              .callbacks = ends ? &terminates : NULL, .callback_count = ends ? 1 : 0,
                              .strategy = ls_parameter_server(.staleness = 3));
    bool expected = ends ? status == LS_OK : status == LS_ERR_NOT_FINITE && strstr(ls_last_error(), "step ");
    if (expected)
        snprintf(all[rank].hash[0], sizeof(all[rank].hash[0]), "as expected");
    close_process(&p);
    return expected ? LS_OK
                    : ls_fail(LS_ERR_INTERNAL, "process %d ended with %s: %s", rank, ls_status_name(status),
                              ls_last_error());
}

static void what_is_not_finite_ends_all(void **state)
{
    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        bool user = ends == 1;
        memset(all, 0, PROCESSES * sizeof(*all));
        OK(ls_spawn(PROCESSES, fit_too_fast, &user));
        for (int r = 0; r < PROCESSES; r++)
            assert_string_equal(all[r].hash[0], "as expected");
    }
}

/* Impossible settings are refused before any wait. */
static ls_status refused(int rank, int processes, void *user)
{
    process p;
    (void)rank, (void)processes, (void)user;
    LS_TRY(open_process(&p, 0.1));
    ls_status status = LS_OK;
    if (ls_fit(p.model, p.data, .audit = 3, .strategy = ls_parameter_server(.staleness = 3)) != LS_ERR_UNSUPPORTED ||
        ls_fit(p.model, p.data, .strategy = ls_parameter_server(.staleness = -1)) != LS_ERR_INVALID)
        status = ls_fail(LS_ERR_INTERNAL, "it was not refused, but: %s", ls_last_error());
    close_process(&p);
    return status;
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    process p;
    OK(ls_spawn(PROCESSES, refused, NULL));
    OK(open_process(&p, 0.1)); /* in no cluster */
    FAILS(ls_fit(p.model, p.data, .record.path = "x", .strategy = ls_parameter_server(.staleness = 3)), LS_ERR_INVALID,
          "a record ('x')", "in a cluster with servers");
    close_process(&p);
}

int main(void)
{
    setenv("LOCKSTEP_SERVERS", "2", 1);
    setenv("LOCKSTEP_SILENCE_LIMIT", "20", 1);
    all = mmap(NULL, PROCESSES * sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 1;
    make_data();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_fits_have_one_state_everywhere),
        cmocka_unit_test(what_callbacks_change_stays_in_the_chief),
        cmocka_unit_test(a_fit_whose_steps_are_made_ends),
        cmocka_unit_test(what_is_not_finite_ends_all),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
