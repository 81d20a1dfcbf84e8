/* Steps that must fail on all workers of a cluster, real processes, when something is wrong with
 * one of them: a part of a gradient that is not finite, random numbers of another run, a weight
 * with another bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "lockstep.h"
#include "lockstep/backend.h"
#include "nn/model.h"

#define WORKERS  3
#define SAMPLES  24
#define FEATURES 64
#define CLASSES  3

typedef struct trouble {
    bool overflow;  /* one row of a gradient, which one worker joins, is infinite; the loss is finite */
    bool other_run; /* worker 1 counts one more run than the others, from the third step on */
    bool other_bit; /* worker 1 changes a bit of a weight after the second step */
    int64_t units;  /* units of the first layer: with many, workers divide its joins */
    ls_status status;
    const char *words; /* text of every worker's message */
} trouble;

static ls_status cause(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    const trouble *t = user;
    (void)stop;
    if (logs->step == 2 && t->other_bit)
        ((uint8_t *)ls_model_variable(model, 0)->attr.variable.variable->data)[0] ^= 1;
    if (logs->step == 2 && t->other_run)
        ls_model_graph(model)->step++;
    return LS_OK;
}

/* The kernel is zero: what its gradient overflows by is not in the loss. */
static ls_status make_model(ls_context *ctx, const trouble *t, ls_model **model)
{
    ls_output output = { .loss = ls_sparse_categorical_crossentropy(), .weight = t->overflow ? 1e10 : 1 };
    ls_status status = ls_sequential(ctx, "net", model, ls_input(FEATURES),
                                     ls_dense(t->units, .kernel_initializer = { .kind = LS_INIT_ZEROS }),
                                     ls_dropout(0.5), ls_dense(CLASSES, .activation = LS_SOFTMAX));
    if (status == LS_OK)
        status = ls_compile(*model, .optimizer = ls_adam(), .outputs = &output, .output_count = 1);
    return status;
}

static ls_status fit(ls_context *ctx, const trouble *t)
{
    static float features[SAMPLES * FEATURES];
    static int32_t labels[SAMPLES];
    ls_model *model = NULL;
    const ls_callback callback = { .user = (void *)t, .on_batch_end = cause };
    for (int i = 0; i < SAMPLES * FEATURES; i++)
        features[i] = (float)(i * 7 % 13) / 13;
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i % CLASSES;
    if (t->overflow)
        features[5 * FEATURES] = 3e38f;
    ls_status status = make_model(ctx, t, &model);
    if (status == LS_OK)
        status = ls_fit_arrays(model, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, FEATURES), features),
                               ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels), .epochs = 2, .batch_size = 8, .lanes = 6,
                               .verbose = LS_VERBOSE_SILENT, .callbacks = &callback,
                               .callback_count = ls_cluster_rank(ctx) == 1);
    ls_model_destroy(model);
    return status;
}

static void quiet(void *user, ls_log_level level, const char *line)
{
    (void)user, (void)level, (void)line;
}

/* LS_OK: it failed as it should. */
static ls_status work(int rank, int count, void *user)
{
    const trouble *t = user;
    ls_context *ctx = NULL;
    (void)count;
    alarm(120);
    ls_status status = ls_context_open(&(ls_context_options){ .threads = 1, .log_sink = quiet }, &ctx);
    if (status == LS_OK)
        status = fit(ctx, t);
    char message[512];
    snprintf(message, sizeof(message), "%s", status == LS_OK ? "it trained" : ls_last_error());
    bool right = status == t->status && strstr(message, t->words);
    ls_context_close(ctx);
    return right ? LS_OK : ls_backend_fail(LS_ERR_INTERNAL, "worker %d: %s: %s", rank, ls_status_name(status), message);
}

static void all_fail(trouble t)
{
    if (ls_spawn(WORKERS, work, &t) != LS_OK)
        fail_msg("%s", ls_last_error());
}

static void all_workers_get_the_error_of_a_gradient_that_is_not_finite(void **state)
{
    (void)state;
    all_fail(
        (trouble){ .overflow = true, .units = 8, .status = LS_ERR_NOT_FINITE, .words = "gradient of dense/kernel" });
    all_fail(
        (trouble){ .overflow = true, .units = 600, .status = LS_ERR_NOT_FINITE, .words = "gradient of dense/kernel" });
}

static void random_numbers_of_another_run_are_noticed(void **state)
{
    (void)state;
    all_fail((trouble){ .other_run = true, .units = 8, .status = LS_ERR_PEER, .words = "worker" });
}

static void a_weight_with_another_bit_is_noticed(void **state)
{
    (void)state;
    all_fail((trouble){ .other_bit = true, .units = 8, .status = LS_ERR_PEER, .words = "worker" });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workers_get_the_error_of_a_gradient_that_is_not_finite),
        cmocka_unit_test(random_numbers_of_another_run_are_noticed),
        cmocka_unit_test(a_weight_with_another_bit_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
