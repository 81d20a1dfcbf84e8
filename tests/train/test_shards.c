/* The state of a job in parts: a step computed by a worker and applied by one, two, three or seven
 * servers has the bits of fit's; parts hold every element once; a push that is late is applied
 * where the part is now. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "lockstep.h"
#include "machine.h"
#include "nn/model.h"
#include "samples.h"
#include "train/server/shards_private.h"
#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/results.h"
#include "train/job/step.h"
#include "train/server/record.h"
#include "train/server/shards.h"

#define SAMPLES 110
#define SIDE    6
#define CLASSES 4
#define BATCH   25
#define EPOCHS  2
#define MOST    7

/* One process that is worker and servers at once. */
typedef struct bench {
    ls_context *ctx;
    ls_model *model;
    ls_dataset *data;
    ls_passes passes;
    ls_settings settings;
    ls_function *function;
    ls_state_shards *parts;
    ls_state_shard *part[MOST];
    void *pushes[MOST], *weights[MOST];
    double results[64];
} bench;

static ls_model *make_model(ls_context *ctx, ls_optimizer optimizer)
{
    ls_model *model = NULL;
    OK(samples_full_model(ctx, SIDE, CLASSES, optimizer, &model));
    return model;
}

static void open_bench(bench *b, ls_optimizer optimizer, int servers, bool scale)
{
    *b = (bench){ .data = samples_of_floats(SAMPLES, SIDE, CLASSES) };
    OK(ls_context_open(&(ls_context_options){ .threads = 2 }, &b->ctx));
    b->model = make_model(b->ctx, optimizer);
    OK(ls_settings_make(b->model->job, &ls_mirrored(), 5, &b->settings));
    OK(ls_passes_open(&b->passes, NULL, b->data, &(ls_batching){ .otherwise = BATCH, .shuffle = true, .seed = 3 }));
    b->model->job->batch_size = BATCH;
    OK(ls_job_function(b->model->job, LS_FUNCTION_TRAIN, &b->passes.spec, (ls_function_choice){ 0 }, &b->function));
    OK(ls_state_shards_make(b->model->job, b->function, servers, &b->parts));
    assert_true(ls_results_count(b->model->job) <= 64);
    for (int s = 0; s < servers; s++) {
        OK(ls_state_shard_create(b->parts, s, scale, &b->part[s]));
        b->pushes[s] = malloc(ls_state_shards_push_bytes(b->parts, s));
        b->weights[s] = malloc(ls_state_shards_weight_bytes(b->parts, s));
    }
}

static void close_bench(bench *b)
{
    for (int s = 0; s < MOST; s++) {
        ls_state_shard_destroy(b->part[s]);
        free(b->pushes[s]);
        free(b->weights[s]);
    }
    ls_state_shards_free(b->parts);
    ls_settings_free(&b->settings);
    ls_passes_close(&b->passes);
    ls_dataset_destroy(b->data);
    ls_model_destroy(b->model);
    ls_context_close(b->ctx);
}

/* The state of all servers in the model, hashed. */
static void hash_of(bench *b, char hex[65])
{
    for (int s = 0; s < ls_state_shards_count(b->parts); s++) {
        char *bytes = malloc(ls_state_shards_state_bytes(b->parts, s));
        OK(ls_state_shard_get_state(b->part[s], bytes));
        OK(ls_state_shards_put_state(b->parts, s, bytes));
        free(bytes);
    }
    OK(ls_model_state_sha256(b->model, hex));
}

static void step(bench *b, const ls_batch_view *batch, uint64_t run)
{
    const ls_state_shards_step at = { .settings = &b->settings, .batch = batch, .run = run };
    for (int s = 0; s < ls_state_shards_count(b->parts); s++) {
        OK(ls_state_shard_get_weights(b->part[s], b->weights[s]));
        OK(ls_state_shards_put_weights(b->parts, s, b->weights[s]));
    }
    OK(ls_state_shards_gradients(b->parts, &at, b->pushes, b->results));
    for (int s = 0; s < ls_state_shards_count(b->parts); s++) {
        double rate;
        const ls_push push = { .read = ls_state_shard_version(b->part[s]),
                               .samples = batch->samples,
                               .bytes = b->pushes[s] };
        OK(ls_state_shard_rate(b->part[s], NAN, &rate));
        OK(ls_state_shard_apply(b->part[s], &push, rate));
    }
}

static void hash_in_parts(ls_optimizer optimizer, int servers, char hex[65])
{
    bench b;
    uint64_t run = 0;
    char own[65];
    open_bench(&b, optimizer, servers, true);
    for (uint64_t e = 0; e < EPOCHS; e++) {
        ls_batch_view batch;
        bool end = false;
        OK(ls_passes_begin(&b.passes, e));
        for (OK(ls_passes_next(&b.passes, &batch, &end)); !end; OK(ls_passes_next(&b.passes, &batch, &end)))
            step(&b, &batch, run++);
    }
    hash_of(&b, hex);
    if (servers == 1) {
        OK(ls_state_shard_sha256(b.part[0], own));
        assert_string_equal(own, hex);
    }
    assert_int_equal(ls_state_shard_pushes(b.part[0]), run);
    close_bench(&b);
}

static void hash_of_fit(ls_optimizer optimizer, char hex[65])
{
    ls_context *ctx = NULL;
    OK(ls_context_open(&(ls_context_options){ .threads = 2 }, &ctx));
    ls_model *model = make_model(ctx, optimizer);
    ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
    OK(ls_fit(model, d, .epochs = EPOCHS, .batch_size = BATCH, .lanes = 5, .seed = 3, .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_state_sha256(model, hex));
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void any_number_of_servers_has_the_bits_of_fit(void **state)
{
    (void)state;
    const ls_optimizer optimizers[] = {
        ls_adam(),
        ls_sgd(.momentum = 0.9, .nesterov = true, .clipvalue = 0.01),
        ls_adamw(.global_clipnorm = 0.1),
        ls_sgd(.momentum = 0.9, .clipnorm = 0.1),
        ls_rmsprop(.schedule = ls_exponential_decay(0.01, 2, 0.5, false)),
    };
    for (size_t i = 0; i < sizeof(optimizers) / sizeof(*optimizers); i++) {
        char fit[65], parts[65];
        hash_of_fit(optimizers[i], fit);
        for (int servers = 1; servers <= MOST; servers += servers < 3 ? 1 : 4) {
            hash_in_parts(optimizers[i], servers, parts);
            assert_string_equal(fit, parts);
        }
    }
}

/* Several pushes make a version, and only then weights change. */
static void pushes_are_accumulated(void **state)
{
    (void)state;
    bench b;
    ls_batch_view batch;
    bool end;
    char one[65], two[65], before[65];
    open_bench(&b, ls_sgd(.learning_rate = 0.1, .gradient_accumulation_steps = 3), 2, false);
    OK(ls_passes_begin(&b.passes, 0));
    OK(ls_passes_next(&b.passes, &batch, &end));
    OK(ls_state_shard_sha256(b.part[1], before));
    for (int i = 0; i < 3; i++) {
        char *weights = malloc(ls_state_shards_weight_bytes(b.parts, 0));
        OK(ls_state_shard_get_weights(b.part[0], weights));
        step(&b, &batch, 0);
        OK(ls_state_shard_get_weights(b.part[0], b.weights[0]));
        /* the first piece is a trained one */
        bool same = memcmp(weights, b.weights[0], (size_t)b.parts->pieces[0].count * sizeof(float)) == 0;
        assert_true(same == (i < 2));
        assert_int_equal(ls_state_shard_version(b.part[0]), i / 2);
        assert_int_equal(ls_state_shard_pushes(b.part[0]), i + 1);
        free(weights);
    }
    OK(ls_state_shard_sha256(b.part[1], one));
    assert_string_not_equal(one, before);
    char *bytes = malloc(ls_state_shards_state_bytes(b.parts, 1));
    OK(ls_state_shard_get_state(b.part[1], bytes));
    step(&b, &batch, 1);
    OK(ls_state_shard_put_state(b.part[1], bytes));
    OK(ls_state_shard_sha256(b.part[1], two));
    assert_string_equal(one, two);
    free(bytes);
    close_bench(&b);
}

/* With scale_rate a push that is n versions late counts as one at a rate of 1 / n. */
static void late_pushes_are_scaled_where_asked(void **state)
{
    (void)state;
    char hex[2][65];
    for (int scaled = 0; scaled < 2; scaled++) {
        bench b;
        ls_batch_view batch;
        bool end;
        open_bench(&b, ls_sgd(.learning_rate = 0.5), 1, scaled);
        OK(ls_passes_begin(&b.passes, 0));
        OK(ls_passes_next(&b.passes, &batch, &end));
        for (uint64_t i = 0; i < 4; i++)
            step(&b, &batch, i);
        const ls_push late = { .read = 2, .samples = batch.samples, .bytes = b.pushes[0] };
        OK(ls_state_shard_apply(b.part[0], &late, scaled ? 0.5 : 0.25));
        OK(ls_state_shard_sha256(b.part[0], hex[scaled]));
        close_bench(&b);
    }
    assert_string_equal(hex[0], hex[1]);
}

/* A push that is not finite is refused by the worker, and by a part, which stays as it is. */
static void what_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    bench b;
    ls_batch_view batch;
    bool end;
    char before[65], after[65];
    open_bench(&b, ls_adam(), 1, false);
    OK(ls_passes_begin(&b.passes, 0));
    OK(ls_passes_next(&b.passes, &batch, &end));
    step(&b, &batch, 0);
    OK(ls_state_shard_sha256(b.part[0], before));
    ((float *)b.pushes[0])[3] = NAN;
    const ls_push bad = { .read = 1, .samples = batch.samples, .bytes = b.pushes[0] };
    assert_int_equal(ls_state_shard_apply(b.part[0], &bad, 0.1), LS_ERR_NOT_FINITE);
    OK(ls_state_shard_sha256(b.part[0], after));
    assert_string_equal(before, after);
    ((float *)ls_model_variable(b.model, 0)->attr.variable.variable->data)[0] = NAN;
    ls_variable_written(ls_model_variable(b.model, 0)->attr.variable.variable, true);
    const ls_state_shards_step at = { .settings = &b.settings, .batch = &batch };
    assert_int_equal(ls_state_shards_gradients(b.parts, &at, b.pushes, b.results), LS_ERR_NOT_FINITE);
    close_bench(&b);
}

static void too_many_servers_are_refused(void **state)
{
    (void)state;
    bench b;
    ls_state_shards *parts = NULL;
    ls_context *ctx = NULL;
    ls_model *tiny = NULL;
    open_bench(&b, ls_sgd(), 1, false);
    assert_int_equal(ls_state_shards_make(b.model->job, b.function, 0, &parts), LS_ERR_INVALID);
    assert_int_equal(ls_state_shards_make(b.model->job, b.function, LS_MAX_SERVERS + 1, &parts), LS_ERR_INVALID);
    close_bench(&b);
    float x[4] = { 1, 2, 3, 4 };
    ls_function *f = NULL;
    ls_passes passes;
    OK(ls_context_open(NULL, &ctx));
    OK(ls_sequential(ctx, "tiny", &tiny, ls_input(1), ls_dense(1)));
    OK(ls_compile(tiny, .optimizer = ls_sgd(), .loss = ls_mean_squared_error()));
    ls_dataset *d =
        ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(4, 1), x), ls_array_of(LS_F32, LS_SHAPE(4, 1), x));
    OK(ls_passes_open(&passes, NULL, d, &(ls_batching){ .otherwise = 4 }));
    OK(ls_job_function(tiny->job, LS_FUNCTION_TRAIN, &passes.spec, (ls_function_choice){ 0 }, &f));
    assert_int_equal(ls_state_shards_make(tiny->job, f, 3, &parts), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "too many"));
    OK(ls_state_shards_make(tiny->job, f, 2, &parts));
    ls_state_shards_free(parts);
    ls_passes_close(&passes);
    ls_dataset_destroy(d);
    ls_model_destroy(tiny);
    ls_context_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_servers_has_the_bits_of_fit),
        cmocka_unit_test(pushes_are_accumulated),
        cmocka_unit_test(late_pushes_are_scaled_where_asked),
        cmocka_unit_test(what_is_not_finite_changes_nothing),
        cmocka_unit_test(too_many_servers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
