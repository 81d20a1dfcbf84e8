/* Audits between real processes: a worker whose partials have a wrong bit is named, with the worker
 * that computed its lane again, and every worker ends with that error. Without a wrong bit no
 * worker is named. */
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
#include "run/runs.h"
#include "samples.h"

#define SAMPLES  24
#define FEATURES 6

typedef struct fault {
    int rank; /* rank of the worker with the fault; -1: none */
    ls_mutation mutation;
} fault;

static ls_status fit(ls_context *ctx, const fault *f)
{
    static uint8_t features[SAMPLES * FEATURES];
    static int32_t labels[SAMPLES];
    ls_model *model = NULL;
    ls_runs *runs = NULL;
    samples_fill_bytes(features, labels, SAMPLES, FEATURES, 3);
    ls_status status = ls_sequential(ctx, "net", &model, ls_input(FEATURES), ls_dense(8), ls_batch_normalization(),
                                     ls_relu(), ls_dense(3, .activation = LS_SOFTMAX));
    if (status == LS_OK)
        status = ls_compile(model, .optimizer = ls_sgd(), .loss = ls_sparse_categorical_crossentropy());
    if (status == LS_OK && f->rank == ls_cluster_rank(ctx))
        status = ls_runs_of(ls_model_graph(model), &runs);
    if (runs)
        runs->settings.mutation = f->mutation;
    ls_dataset *set = ls_from_tensor_slices(ls_array_of(LS_U8, LS_SHAPE(SAMPLES, FEATURES), features),
                                            ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels), .keep = LS_KEEP_BORROWED);
    if (status == LS_OK)
        status = ls_fit(model, set, .epochs = 8, .batch_size = 8, .lanes = 6, .audit = 2, .verbose = LS_VERBOSE_SILENT);
    ls_dataset_destroy(set);
    ls_model_destroy(model);
    return status;
}

static void quiet(void *user, ls_log_level level, const char *line)
{
    (void)user, (void)level, (void)line;
}

/* LS_OK: it went as it should. */
static ls_status work(int rank, int count, void *user)
{
    const fault *f = user;
    int broken = f->rank;
    char name[16];
    ls_context *ctx = NULL;
    (void)count;
    alarm(60);
    ls_status status = ls_context_open(&(ls_context_options){ .threads = 1, .log_sink = quiet }, &ctx);
    if (status == LS_OK)
        status = fit(ctx, f);
    snprintf(name, sizeof(name), "worker %d ", broken);
    const char *message = strstr(ls_last_error(), "audit: ");
    bool named = status == LS_ERR_PEER && message && strstr(message, name) && strstr(message, "disagree on lane ");
    if (broken >= 0 && named)
        status = LS_OK;
    else if (broken >= 0)
        status = ls_backend_fail(LS_ERR_INTERNAL, "worker %d, %d is broken: %s", rank, broken, ls_last_error());
    ls_context_close(ctx);
    return status;
}

static void a_worker_with_a_wrong_bit_is_named(void **state)
{
    (void)state;
    for (int count = 2; count <= 3; count++)
        for (int broken = -1; broken < count; broken++)
            for (ls_mutation m = LS_MUTATE_BIT; m <= LS_MUTATE_LAST_BIT; m++)
                if (ls_spawn(count, work, &(fault){ broken, m }) != LS_OK)
                    fail_msg("%d workers, mutation %d: %s", count, (int)m, ls_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_with_a_wrong_bit_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
