/* The job that a fit is made of: computing gradients writes nothing, everything that must be saved
 * is in one list, and settings go with each run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/sha256.h"
#include "graph/shape.h"
#include "lockstep.h"
#include "machine.h"
#include "nn/model.h"
#include "samples.h"
#include "train/job/job.h"
#include "train/checkpoint/state_list.h"
#include "train/job/passes.h"
#include "train/job/step.h"

#define SAMPLES 120
#define SIDE    6
#define CLASSES 4

static ls_model *make_model(ls_context *ctx, ls_optimizer optimizer)
{
    ls_model *model = NULL;
    OK(samples_full_model(ctx, SIDE, CLASSES, optimizer, &model));
    return model;
}

/* ---- Steps ---- */

static void hashes_of(ls_optimizer optimizer, ls_strategy strategy, char state[65], char weights[65], double *loss)
{
    ls_context *ctx = open_two_cpus();
    ls_model *model = make_model(ctx, optimizer);
    ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
    ls_history *history = NULL;
    OK(ls_fit(model, d, .epochs = 2, .batch_size = 25, .lanes = 5, .seed = 3, .verbose = LS_VERBOSE_SILENT,
              .strategy = strategy, .history = &history));
    OK(ls_model_state_sha256(model, state));
    OK(ls_model_weights_sha256(model, weights));
    OK(ls_history_value(history, "loss", 1, loss));
    ls_history_destroy(history);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void one_device_has_the_bits_of_two_with_every_optimizer(void **state)
{
    (void)state;
    const ls_optimizer optimizers[] = {
        ls_adam(),
        ls_sgd(.momentum = 0.9),
        ls_sgd(.momentum = 0.9, .nesterov = true, .clipvalue = 0.01),
        ls_adam(.clipnorm = 0.1),
        ls_adamw(.global_clipnorm = 0.1),
        ls_adam(.gradient_accumulation_steps = 3),
        ls_sgd(.momentum = 0.5, .global_clipnorm = 0.2, .gradient_accumulation_steps = 2),
        ls_rmsprop(.schedule = ls_exponential_decay(0.01, 2, 0.5, false)),
    };
    for (size_t i = 0; i < sizeof(optimizers) / sizeof(*optimizers); i++) {
        char two[2][65], one[2][65];
        double losses[2];
        hashes_of(optimizers[i], ls_mirrored(), two[0], two[1], &losses[0]);
        hashes_of(optimizers[i], ls_one_device(.devices = "cpu:1"), one[0], one[1], &losses[1]);
        assert_string_equal(two[0], one[0]);
        assert_string_equal(two[1], one[1]);
        assert_true(losses[0] == losses[1]);
    }
}

/* One batch of the data, and what is needed to compute its gradients. */
typedef struct bench {
    ls_context *ctx;
    ls_model *model;
    ls_dataset *data;
    ls_passes passes;
    ls_settings settings;
    ls_function *function;
    ls_batch_view batch;
} bench;

static void open_bench(bench *b, ls_optimizer optimizer)
{
    bool end;
    *b = (bench){ .ctx = open_two_cpus(), .data = samples_of_floats(SAMPLES, SIDE, CLASSES) };
    b->model = make_model(b->ctx, optimizer);
    OK(ls_settings_make(b->model->job, &ls_mirrored(), 0, &b->settings));
    OK(ls_passes_open(&b->passes, NULL, b->data, &(ls_batching){ .otherwise = 25, .shuffle = true, .seed = 1 }));
    OK(ls_passes_begin(&b->passes, 0));
    OK(ls_passes_next(&b->passes, &b->batch, &end));
    b->model->job->batch_size = 25;
    OK(ls_job_function(b->model->job, LS_FUNCTION_TRAIN, &b->passes.spec, (ls_function_choice){ 0 }, &b->function));
}

static void close_bench(bench *b)
{
    ls_settings_free(&b->settings);
    ls_passes_close(&b->passes);
    ls_dataset_destroy(b->data);
    ls_model_destroy(b->model);
    ls_context_close(b->ctx);
}

/* Twice, with the same random numbers; then a whole step, whose loss is the same. */
static void gradients_write_nothing(void **state)
{
    (void)state;
    bench b;
    char before[65], after[65];
    double sums[16] = { 0 };
    open_bench(&b, ls_adam());
    const ls_step_nodes *step = &b.function->step;
    ls_tensor *fetches[16] = { b.function->loss };
    size_t count = 1 + step->count, elements = 0;
    assert_true(count == 1 + 6);
    memcpy(fetches + 1, step->gradients, step->count * sizeof(*fetches));
    OK(ls_model_state_sha256(b.model, before));
    for (int again = 0; again < 2; again++) {
        OK(ls_job_fetch(b.model->job, b.function, &b.settings, &b.batch, NULL, fetches, count));
        for (size_t i = 0; i < count; i++) {
            ls_array a;
            int64_t n;
            OK(ls_value(fetches[i], &a));
            assert_true(ls_shape_count(&a.shape, 0, &n));
            double sum = 0;
            for (int64_t k = 0; k < n; k++)
                sum += (double)(k + 1) * (double)((float *)a.data)[k];
            assert_true(isfinite(sum));
            assert_true(again == 0 || sums[i] == sum);
            sums[i] = sum;
            elements += (size_t)n;
        }
    }
    assert_true(elements > 100);
    OK(ls_model_state_sha256(b.model, after));
    assert_string_equal(before, after);
    assert_true(ls_model_graph(b.model)->step == 0 && ls_model_graph(b.model)->run == 0);
    OK(ls_function_run(b.model->job, b.function, &b.settings, &b.batch, NULL));
    ls_array loss;
    OK(ls_value(b.function->loss, &loss));
    assert_true(*(float *)loss.data == (float)sums[0]);
    OK(ls_model_state_sha256(b.model, after));
    assert_string_not_equal(before, after);
    int64_t steps;
    OK(ls_model_steps(b.model, &steps));
    assert_true(steps == 1 && ls_model_graph(b.model)->step == 1 && ls_model_graph(b.model)->run == 0);
    close_bench(&b);
}

/* ---- The list ---- */

static size_t slots_of(ls_model *model, char *names, size_t room)
{
    ls_state_entry *entries;
    size_t count, slots = 0;
    OK(ls_job_list(model->job, &entries, &count));
    names[0] = 0;
    for (size_t i = 0; i < count; i++)
        if (entries[i].kind == LS_STATE_SLOT) {
            snprintf(names + strlen(names), room - strlen(names), "%s ", entries[i].name);
            slots++;
        }
    free(entries);
    return slots;
}

static void slots_are_made_when_a_model_is_compiled(void **state)
{
    (void)state;
    char at_first[2048], later[2048];
    ls_context *ctx = open_two_cpus();
    ls_model *model = make_model(ctx, ls_adam(.gradient_accumulation_steps = 2));
    ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
    assert_true(slots_of(model, at_first, sizeof(at_first)) == 6 * 3 + 3);
    assert_non_null(strstr(at_first, "adam/conv2d/kernel/momentum "));
    assert_string_equal(strrchr(at_first, '/'), "/iterations ");
    OK(ls_fit(model, d, .batch_size = 40, .verbose = LS_VERBOSE_SILENT));
    slots_of(model, later, sizeof(later));
    assert_string_equal(at_first, later);
    assert_int_equal(ls_compile(model, .optimizer = ls_sgd(.rho = 1), .loss = ls_mean_squared_error()), LS_ERR_INVALID);
    slots_of(model, later, sizeof(later)); /* compiled functions still exist */
    assert_string_equal(at_first, later);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

#define STEPS 64

/* A callback with a memory: it lowers the rate whenever it has seen three steps, and keeps every
 * step's hash. */
typedef struct watcher {
    int64_t seen;
    bool sets_rate;
    int64_t save_at, saved_at; /* steps; -1: never */
    ls_snapshot *saved, *load;
    int64_t begin; /* step that the fit began with */
    char hash[STEPS][65];
    double loss[STEPS];
} watcher;

static ls_status begin(void *user, ls_model *model)
{
    watcher *w = user;
    LS_TRY(w->load ? ls_job_load(model->job, w->load) : LS_OK);
    return ls_model_steps(model, &w->begin);
}

static ls_status watch(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    watcher *w = user;
    double rate;
    (void)stop;
    assert_true(logs->step > 0 && logs->step < STEPS);
    LS_TRY(ls_learning_rate(model, &rate));
    if (w->sets_rate && ++w->seen % 3 == 0)
        LS_TRY(ls_set_learning_rate(model, rate * 0.7));
    w->loss[logs->step] = logs->values[0];
    LS_TRY(ls_model_state_sha256(model, w->hash[logs->step]));
    return logs->step == w->save_at ? ls_job_save(model->job, &w->saved) : LS_OK;
}

static ls_status save_watcher(void *user, void **bytes, size_t *count)
{
    const watcher *w = user;
    *bytes = malloc(sizeof(w->seen));
    memcpy(*bytes, &w->seen, sizeof(w->seen));
    *count = sizeof(w->seen);
    return LS_OK;
}

static ls_status load_watcher(void *user, const void *bytes, size_t count)
{
    watcher *w = user;
    assert_true(count == sizeof(w->seen));
    memcpy(&w->seen, bytes, count);
    return LS_OK;
}

typedef struct way {
    ls_optimizer optimizer;
    bool sets_rate, streamed;
    int64_t steps_per_epoch;
} way;

static void fit_watched(ls_model *model, const way *at, watcher *w)
{
    ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
    const ls_callback callback = {
        .user = w, .on_train_begin = begin, .on_batch_end = watch, .save = save_watcher, .load = load_watcher
    };
    if (at->streamed) /* elements of an iterator, not rows */
        d = ls_batch(ls_prefetch(ls_shuffle(d, 50, 9), 2), 25, false);
    w->sets_rate = at->sets_rate;
    OK(ls_fit(model, d, .epochs = 4, .batch_size = 25, .lanes = 5, .seed = 3, .verbose = LS_VERBOSE_SILENT,
              .steps_per_epoch = at->steps_per_epoch, .callbacks = &callback, .callback_count = 1));
    ls_dataset_destroy(d);
}

/* Trains to the end and keeps a snapshot of step `save_at`; then puts everything back and trains
 * again. */
static void resume(const way *at, int64_t save_at, bool in_a_new_model)
{
    static watcher first, again;
    first = (watcher){ .save_at = save_at };
    again = (watcher){ .save_at = -1 };
    ls_context *ctx = open_two_cpus();
    ls_model *model = make_model(ctx, at->optimizer);
    fit_watched(model, at, &first);
    if (in_a_new_model) {
        ls_model_destroy(model);
        model = make_model(ctx, at->optimizer);
    }
    assert_non_null(first.saved);
    again.load = first.saved;
    fit_watched(model, at, &again);
    assert_true(again.begin == save_at);
    int64_t last = 4 * (at->steps_per_epoch ? at->steps_per_epoch : 5), compared = 0;
    for (int64_t s = save_at + 1; s <= last; s++, compared++) {
        assert_true(first.hash[s][0] != 0);
        assert_string_equal(first.hash[s], again.hash[s]);
        assert_true(first.loss[s] == again.loss[s]); /* the epoch's so far: tallies are saved, too */
    }
    assert_true(compared == last - save_at && again.hash[save_at][0] == 0);
    ls_snapshot_destroy(first.saved);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void what_is_saved_is_all_that_a_job_is(void **state)
{
    (void)state;
    const way ways[] = {
        { .optimizer = ls_adam() },
        { .optimizer = ls_sgd(.momentum = 0.9), .sets_rate = true },
        { .optimizer = ls_adam(.gradient_accumulation_steps = 3, .global_clipnorm = 0.3) },
        { .optimizer = ls_rmsprop(.schedule = ls_exponential_decay(0.01, 4, 0.5, false)), .steps_per_epoch = 7 },
        { .optimizer = ls_adam(), .streamed = true },
    };
    const int64_t at[] = { 1, 5, 8, 14, 19 }; /* 5: the last step of an epoch */
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
        for (size_t k = 0; k < sizeof(at) / sizeof(*at); k++)
            resume(&ways[i], at[k], k % 2);
}

static void another_job_s_snapshot_is_refused(void **state)
{
    (void)state;
    char before[65], after[65];
    ls_snapshot *snapshot = NULL;
    ls_context *ctx = open_two_cpus();
    ls_model *model = make_model(ctx, ls_adam()), *other = make_model(ctx, ls_sgd(.momentum = 0.9));
    OK(ls_job_save(model->job, &snapshot));
    OK(ls_model_state_sha256(other, before));
    assert_int_equal(ls_job_load(other->job, snapshot), LS_ERR_INVALID);
    ls_model_destroy(other);
    other = make_model(ctx, ls_adam());
    other->job->data_seed = 5;
    ls_model_graph(other)->step = 9;
    assert_int_equal(ls_job_load(other->job, snapshot), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "data/seed"));
    assert_true(ls_model_graph(other)->step == 9);
    other->job->data_seed = 0;
    OK(ls_job_load(other->job, snapshot));
    assert_true(ls_model_graph(other)->step == 0);
    OK(ls_model_state_sha256(model, before));
    OK(ls_model_state_sha256(other, after));
    assert_string_equal(before, after);
    ls_snapshot_destroy(snapshot);
    ls_model_destroy(model);
    ls_model_destroy(other);
    ls_context_close(ctx);
}

/* Batch norms by lane are another job than batch norms by batch. */
static void statistics_of_norms_are_the_job_s(void **state)
{
    (void)state;
    ls_snapshot *snapshot = NULL;
    ls_model *models[2] = { NULL, NULL };
    ls_context *ctx = open_two_cpus();
    for (int i = 0; i < 2; i++) {
        OK(ls_sequential(ctx, "normed", &models[i], ls_input(3), ls_batch_normalization(), ls_dense(1)));
        OK(ls_model_set_norm_statistics(models[i], i ? LS_PER_LANE : LS_PER_BATCH));
        OK(ls_compile(models[i], .optimizer = ls_adam(), .loss = ls_mean_squared_error()));
    }
    OK(ls_job_save(models[0]->job, &snapshot));
    OK(ls_job_load(models[0]->job, snapshot));
    assert_int_equal(ls_job_load(models[1]->job, snapshot), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "norms_by_lane"));
    ls_snapshot_destroy(snapshot);
    ls_model_destroy(models[0]);
    ls_model_destroy(models[1]);
    ls_context_close(ctx);
}

/* By hand from the bytes that train.h names. */
static void the_state_s_hash_is_of_bytes(void **state)
{
    (void)state;
    char found[65], expected[65];
    static char bytes[1 << 16];
    size_t used = 0;
    ls_context *ctx = open_two_cpus();
    ls_model *model = make_model(ctx, ls_sgd(.momentum = 0.9));
    ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
    OK(ls_fit(model, d, .batch_size = 40, .verbose = LS_VERBOSE_SILENT));
    for (int trainable = 1; trainable >= 0; trainable--)
        for (size_t i = 0; i < ls_model_variable_count(model); i++)
            if (ls_model_variable_is_trainable(model, i) == (trainable == 1)) {
                ls_array value;
                OK(ls_value(ls_model_variable(model, i), &value));
                int64_t n;
                assert_true(ls_shape_count(&value.shape, 0, &n));
                memcpy(bytes + used, value.data, (size_t)n * 4);
                used += (size_t)n * 4;
            }
    for (size_t i = 0; i < ls_model_variable_count(model); i++)
        if (ls_model_variable_is_trainable(model, i)) {
            char name[128];
            ls_tensor *slot;
            ls_array value;
            int64_t n;
            snprintf(name, sizeof(name), "sgd/%s/momentum", ls_model_variable_name(model, i));
            OK(ls_graph_find(ls_model_graph(model), name, &slot));
            OK(ls_value(slot, &value));
            assert_true(ls_shape_count(&value.shape, 0, &n));
            memcpy(bytes + used, value.data, (size_t)n * 4);
            used += (size_t)n * 4;
        }
    int64_t steps = 3;
    memcpy(bytes + used, &steps, 8);
    used += 8;
    ls_sha256 *hash;
    OK(ls_sha256_begin(&hash));
    OK(ls_sha256_add(hash, bytes, used));
    OK(ls_sha256_end(hash, expected));
    OK(ls_model_state_sha256(model, found));
    assert_string_equal(found, expected);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Settings ---- */

typedef struct plans {
    ls_dataset *data;
    const ls_executor *executor; /* the executor of fit's steps */
    int64_t checked;
} plans;

/* The plan of fit's steps is the same one after an evaluation and a prediction with lanes and
 * devices of their own. */
static ls_status evaluates_otherwise(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    plans *p = user;
    (void)stop, (void)logs;
    ls_job *job = model->job;
    ls_settings settings = { .lists = NULL };
    ls_executor *executor = NULL;
    ls_array out;
    const ls_function *f = &job->functions[0];
    LS_TRY(ls_evaluate(model, p->data, .batch_size = 50, .lanes = 7, .strategy = ls_one_device(.devices = "cpu:1")));
    LS_TRY(ls_predict(model, p->data, &out, .batch_size = 50, .lanes = 3));
    free(out.data);
    LS_TRY(ls_settings_make(job, &ls_mirrored(), 5, &settings));
    assert_true(f->kind == LS_FUNCTION_TRAIN);
    assert_true(ls_runs_has(ls_model_graph(model)->runs, &settings.run, f->fetches, f->fetch_count, 30));
    LS_TRY(ls_runs_get(ls_model_graph(model), &settings.run, f->fetches, f->fetch_count, 30, &executor));
    assert_true(!p->executor || p->executor == executor);
    p->executor = executor;
    p->checked++;
    ls_settings_free(&settings);
    return LS_OK;
}

static void calls_inside_a_fit_leave_its_plans_alone(void **state)
{
    (void)state;
    char hashes[2][65];
    for (int with = 0; with < 2; with++) {
        ls_context *ctx = open_two_cpus();
        ls_model *model = make_model(ctx, ls_adam());
        ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
        plans p = { .data = d };
        const ls_callback callback = { .user = &p, .on_batch_end = evaluates_otherwise };
        OK(ls_fit(model, d, .epochs = 2, .batch_size = 30, .lanes = 5, .strategy = ls_mirrored(),
                  .verbose = LS_VERBOSE_SILENT, .callbacks = &callback, .callback_count = (size_t)with));
        assert_true(p.checked == with * 8);
        OK(ls_model_state_sha256(model, hashes[with]));
        const ls_run_settings *graph = &ls_model_graph(model)->runs->settings;
        assert_true(graph->plan.lanes == 0 && graph->plan.map.count == 0); /* the graph's own are untouched */
        ls_dataset_destroy(d);
        ls_model_destroy(model);
        ls_context_close(ctx);
    }
    assert_string_equal(hashes[0], hashes[1]);
}

static bool has_plan(ls_model *model, int lanes, const char *device)
{
    const ls_function *f = &model->job->functions[0];
    ls_settings settings = { .lists = NULL };
    OK(ls_settings_make(model->job, &ls_one_device(.devices = device), lanes, &settings));
    bool has = ls_runs_has(ls_model_graph(model)->runs, &settings.run, f->fetches, f->fetch_count, 40);
    ls_settings_free(&settings);
    return has;
}

/* Lanes and map are a part of what a plan is found by. */
static void plans_are_kept_by_their_settings(void **state)
{
    (void)state;
    ls_context *ctx = open_two_cpus();
    ls_model *model = make_model(ctx, ls_adam());
    ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
    OK(ls_evaluate(model, d, .batch_size = 40, .lanes = 3, .strategy = ls_one_device(.devices = "cpu:0")));
    assert_true(has_plan(model, 3, "cpu:0"));
    assert_false(has_plan(model, 5, "cpu:0"));
    assert_false(has_plan(model, 3, "cpu:1"));
    OK(ls_evaluate(model, d, .batch_size = 40, .lanes = 5, .strategy = ls_one_device(.devices = "cpu:0")));
    OK(ls_evaluate(model, d, .batch_size = 40, .lanes = 3, .strategy = ls_one_device(.devices = "cpu:1")));
    assert_true(has_plan(model, 3, "cpu:0") && has_plan(model, 5, "cpu:0") && has_plan(model, 3, "cpu:1"));
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static int64_t logged_lanes(int lanes, int64_t batch)
{
    char path[] = "/tmp/lockstep-job-XXXXXX", line[4096];
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    ls_context *ctx = open_two_cpus();
    ls_model *model = make_model(ctx, ls_adam());
    ls_dataset *d = samples_of_floats(SAMPLES, SIDE, CLASSES);
    OK(ls_fit(model, d, .batch_size = batch, .lanes = lanes, .verbose = LS_VERBOSE_SILENT, .log = path));
    FILE *file = fopen(path, "r");
    assert_non_null(fgets(line, sizeof(line), file));
    json_t *json = json_loads(line, 0, NULL);
    assert_non_null(json);
    int64_t found = (int64_t)json_number_value(json_object_get(json, "lanes"));
    json_decref(json);
    fclose(file);
    remove(path);
    ls_dataset_destroy(d);
    ls_model_destroy(model);
    ls_context_close(ctx);
    return found;
}

static void the_log_has_the_lanes_that_are_used(void **state)
{
    (void)state;
    assert_int_equal(logged_lanes(5, 40), 5);
    assert_int_equal(logged_lanes(0, 2), 2);
    assert_in_range(logged_lanes(0, 64), 4, 32);
    assert_in_range(logged_lanes(0, 1000), 4, 32); /* fewer samples than a batch */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_has_the_bits_of_two_with_every_optimizer),
        cmocka_unit_test(gradients_write_nothing),
        cmocka_unit_test(slots_are_made_when_a_model_is_compiled),
        cmocka_unit_test(what_is_saved_is_all_that_a_job_is),
        cmocka_unit_test(another_job_s_snapshot_is_refused),
        cmocka_unit_test(statistics_of_norms_are_the_job_s),
        cmocka_unit_test(the_state_s_hash_is_of_bytes),
        cmocka_unit_test(calls_inside_a_fit_leave_its_plans_alone),
        cmocka_unit_test(plans_are_kept_by_their_settings),
        cmocka_unit_test(the_log_has_the_lanes_that_are_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
