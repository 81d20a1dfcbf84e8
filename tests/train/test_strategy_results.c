/* Results of fit, evaluate and predict under every strategy are those of one device, to the last
 * bit: losses and metrics of each step and epoch, sample counts, predictions. And training that
 * ends early (by a callback, a signal, a number of steps, or because a loss is not finite) leaves
 * every device at the same step: what is trained on has the bits of one device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep.h"
#include "machine.h"

#define SAMPLES 43 /* batches of 10, and one of 3 */
#define WIDTH   12
#define CLASSES 3
#define EPOCHS  2

static float values[SAMPLES * WIDTH];
static int32_t labels[SAMPLES];

static int make_data(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES * WIDTH; i++)
        values[i] = (float)((uint32_t)i * 2654435761u >> 8) / 16777216 - 0.5f;
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i * 5 % CLASSES;
    return 0;
}

/* ---- Who does it ---- */

typedef struct who {
    const char *name;
    ls_strategy strategy;
    int cpus, gpus;
} who;

#define ONE                                                                                                            \
    {                                                                                                                  \
        "one CPU", { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "cpu:0" }, 1, 0                                        \
    }

/* Kinds of devices have bits of their own: CPUs are compared with one CPU, GPUs with one GPU. */
static const who cpus[] = {
    ONE,
    { "the second of two CPUs", { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "cpu:1" }, 2, 0 },
    { "mirrored", { .kind = LS_STRATEGY_MIRRORED }, 3, 0 },
    { "mirrored by twos", { .kind = LS_STRATEGY_MIRRORED, .all_reduce = LS_ALL_REDUCE_HIERARCHICAL_COPY }, 4, 0 },
    { "mirrored to one",
      { .kind = LS_STRATEGY_MIRRORED, .all_reduce = LS_ALL_REDUCE_TO_ONE, .work_split = "3:1" },
      2,
      0 },
    { "data-parallel", { .kind = LS_STRATEGY_DATA_PARALLEL }, 3, 0 },
    { "model-parallel", { .kind = LS_STRATEGY_MODEL_PARALLEL }, 3, 0 },
    { "pipeline", { .kind = LS_STRATEGY_PIPELINE }, 2, 0 },
    { "two pipelines", { .kind = LS_STRATEGY_PIPELINE, .stages = 2, .order = LS_FILL_DRAIN }, 4, 0 },
};
static const who gpus[] = {
    { "one GPU", { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "gpu:0" }, 1, 1 },
    { "mirrored GPUs", { .kind = LS_STRATEGY_MIRRORED }, 1, 3 },
    { "data-parallel GPUs", { .kind = LS_STRATEGY_DATA_PARALLEL }, 1, 2 },
    { "model-parallel GPUs", { .kind = LS_STRATEGY_MODEL_PARALLEL }, 1, 2 },
    { "a pipeline of GPUs", { .kind = LS_STRATEGY_PIPELINE }, 1, 3 },
};

static const struct {
    const who *list;
    size_t count;
} all[] = { { cpus, LENGTH(cpus) }, { gpus, LENGTH(gpus) } };

/* ---- One training ---- */

typedef struct bed {
    machine m;
    ls_model *model;
    ls_dataset *data;
} bed;

static void open_bed(bed *b, const who *w)
{
    machine_create(&b->m, (machine_settings){ .gpu = { .devices = w->gpus, .memory = LS_MIB(2), .delay = -1 },
                                              .options = { .cpu_devices = w->cpus, .threads = 2 } });
    OK(ls_sequential(b->m.ctx, "net", &b->model, ls_input(WIDTH), ls_dense(16), ls_batch_normalization(), ls_relu(),
                     ls_dropout(0.25), ls_dense(8, .activation = LS_TANH),
                     ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    OK(ls_compile(b->model, .optimizer = ls_adam(), .loss = ls_sparse_categorical_crossentropy(),
                  .metrics = ls_metrics(ls_accuracy(), ls_top_k(2))));
    b->data = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(SAMPLES, WIDTH), values),
                                    ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels), .keep = LS_KEEP_BORROWED);
}

static void close_bed(bed *b)
{
    ls_dataset_destroy(b->data);
    ls_model_destroy(b->model);
    machine_close(&b->m);
}

/* Every event, in order; and the final state. */
#define MOST_TOLD 512
typedef struct told {
    double values[MOST_TOLD];
    size_t count;
    char hash[65];
    int64_t steps;
} told;

static void tell(told *t, double value)
{
    if (t->count < MOST_TOLD)
        t->values[t->count++] = value;
}

static void tell_logs(told *t, const ls_logs *logs)
{
    for (size_t i = 0; i < logs->count; i++)
        tell(t, logs->values[i]);
    tell(t, (double)logs->samples);
    tell(t, (double)logs->step);
}

static ls_status after_batch(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    (void)model;
    (void)stop;
    tell_logs(user, logs);
    return LS_OK;
}

static void tell_state(told *t, bed *b)
{
    OK(ls_strategy_check(ls_model_graph(b->model), NULL)); /* all copies of a variable are equal */
    OK(ls_model_state_sha256(b->model, t->hash));
    OK(ls_model_steps(b->model, &t->steps));
}

static void must_equal(const told *expected, const told *found, const char *name)
{
    if (strcmp(found->hash, expected->hash) != 0)
        fail_msg("%s: state %s instead of %s", name, found->hash, expected->hash);
    if (found->steps != expected->steps || found->count != expected->count)
        fail_msg("%s: %lld steps and %zu values told instead of %lld and %zu", name, (long long)found->steps,
                 found->count, (long long)expected->steps, expected->count);
    for (size_t i = 0; i < found->count; i++)
        if (memcmp(&found->values[i], &expected->values[i], sizeof(double)) != 0 || isnan(found->values[i]))
            fail_msg("%s: value %zu is %.17g instead of %.17g", name, i, found->values[i], expected->values[i]);
}

/* A way to train: it fills `out`. */
typedef void (*training)(bed *b, const who *w, told *out);

static void same_everywhere(training train)
{
    for (size_t k = 0; k < LENGTH(all); k++) {
        told expected = { .count = 0 };
        for (size_t i = 0; i < all[k].count; i++) {
            bed b;
            told found = { .count = 0 };
            open_bed(&b, &all[k].list[i]);
            train(&b, &all[k].list[i], &found);
            tell_state(&found, &b);
            close_bed(&b);
            if (i == 0)
                expected = found;
            must_equal(&expected, &found, all[k].list[i].name);
        }
    }
}

/* ---- Whole trainings ---- */

static void fit_evaluate_predict(bed *b, const who *w, told *out)
{
    const ls_callback callback = { .user = out, .on_batch_end = after_batch, .on_epoch_end = after_batch };
    ls_results results;
    ls_array predicted;
    OK(ls_fit(b->model, b->data, .epochs = EPOCHS, .batch_size = 10, .lanes = 4, .strategy = w->strategy,
              .validation = b->data, .callbacks = &callback, .callback_count = 1, .verbose = LS_VERBOSE_SILENT));
    assert_int_equal(out->count, EPOCHS * (5 * 5 + 8)); /* loss, two metrics, samples, step; and three of validation */
    assert_true(out->values[4 * 5 + 3] == SAMPLES);     /* each sample once */
    OK(ls_evaluate(b->model, b->data, &results, .batch_size = 9, .lanes = 4, .strategy = w->strategy));
    assert_int_equal(results.samples, SAMPLES);
    for (size_t i = 0; i < results.count; i++)
        tell(out, results.values[i]);
    OK(ls_predict(b->model, b->data, &predicted, .batch_size = 9, .lanes = 4, .strategy = w->strategy));
    for (int i = 0; i < SAMPLES * CLASSES; i++)
        tell(out, (double)((const float *)predicted.data)[i]);
    free(predicted.data);
}

static void all_reports_are_the_same(void **state)
{
    (void)state;
    same_everywhere(fit_evaluate_predict);
}

/* ---- Ends that come early, and training that goes on after them ---- */

#define LAST 3 /* the step after which training ends */

typedef struct ending {
    told *told;
    volatile int word;
} ending;

static ls_status stop_by_callback(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    ending *e = user;
    (void)model;
    tell_logs(e->told, logs);
    *stop = logs->step == LAST;
    return LS_OK;
}

static ls_status stop_by_word(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    ending *e = user;
    (void)model;
    (void)stop;
    tell_logs(e->told, logs);
    e->word = logs->step == LAST;
    return LS_OK;
}

static ls_status fail_in_callback(void *user, ls_model *model, const ls_logs *logs, bool *stop)
{
    ending *e = user;
    (void)model;
    (void)stop;
    tell_logs(e->told, logs);
    return logs->step == LAST ? LS_ERR_IO : LS_OK;
}

static ls_status fit(bed *b, const who *w, ending *e, const ls_callback *callback, int64_t steps)
{
    return ls_fit(b->model, b->data, .epochs = EPOCHS, .batch_size = 10, .lanes = 4, .keep_order = true,
                  .strategy = w->strategy, .callbacks = callback, .callback_count = callback ? 1 : 0,
                  .max_steps = steps, .stop = &e->word, .verbose = LS_VERBOSE_SILENT);
}

static void expect_steps(bed *b, int64_t expected)
{
    int64_t steps;
    OK(ls_model_steps(b->model, &steps));
    assert_int_equal(steps, expected);
}

static void stop_early(bed *b, const who *w, told *out, ls_status (*stop)(void *, ls_model *, const ls_logs *, bool *),
                       ls_status expected)
{
    ending e = { .told = out };
    const ls_callback callback = { .user = &e, .on_batch_end = stop };
    char at_the_end[65];
    assert_int_equal(fit(b, w, &e, &callback, 0), expected);
    expect_steps(b, LAST);
    OK(ls_model_state_sha256(b->model, at_the_end));
    e.word = 0;
    OK(fit(b, w, &e, NULL, 0)); /* goes on, whole epochs */
    tell_state(out, b);
    assert_string_not_equal(out->hash, at_the_end);
    expect_steps(b, LAST + 5 * EPOCHS);
}

static void by_callback(bed *b, const who *w, told *out)
{
    stop_early(b, w, out, stop_by_callback, LS_OK);
}

static void by_word(bed *b, const who *w, told *out)
{
    stop_early(b, w, out, stop_by_word, LS_OK);
}

static void by_failure(bed *b, const who *w, told *out)
{
    stop_early(b, w, out, fail_in_callback, LS_ERR_IO);
}

static void by_number(bed *b, const who *w, told *out)
{
    ending e = { .told = out };
    const ls_callback callback = { .user = out, .on_batch_end = after_batch };
    OK(fit(b, w, &e, &callback, LAST));
    expect_steps(b, LAST);
    OK(fit(b, w, &e, NULL, 0));
}

static void an_early_stop_leaves_all_devices_at_one_step(void **state)
{
    (void)state;
    same_everywhere(by_callback);
    same_everywhere(by_word);
    same_everywhere(by_failure);
    same_everywhere(by_number);
}

/* A sample of the fourth batch is not a number; which lane it is in, and so which device meets it,
 * is tried, too. */
static int bad_sample;

static void by_nan(bed *b, const who *w, told *out)
{
    ending e = { .told = out };
    const ls_callback callback = { .user = out, .on_batch_end = after_batch };
    char before[65];
    float *bad = &values[bad_sample * WIDTH], good = *bad;
    OK(fit(b, w, &e, &callback, LAST));
    OK(ls_model_state_sha256(b->model, before));
    close_bed(b);
    open_bed(b, w);
    *bad = NAN;
    ls_status status = fit(b, w, &e, NULL, 0);
    *bad = good;
    assert_int_equal(status, LS_ERR_NOT_FINITE);
    machine_has(ls_last_error(), "step 4");
    expect_steps(b, LAST);
    tell_state(out, b);
    assert_string_equal(out->hash, before); /* from the last good step */
    OK(fit(b, w, &e, NULL, 0));
    expect_steps(b, LAST + 5 * EPOCHS);
}

static void what_is_not_finite_leaves_all_devices_at_one_step(void **state)
{
    (void)state;
    for (bad_sample = 10 * LAST; bad_sample < 10 * LAST + 10; bad_sample += 9) /* in the first lane, in the last */
        same_everywhere(by_nan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reports_are_the_same),
        cmocka_unit_test(an_early_stop_leaves_all_devices_at_one_step),
        cmocka_unit_test(what_is_not_finite_leaves_all_devices_at_one_step),
    };
    return cmocka_run_group_tests(tests, make_data, NULL);
}
