/* Optimizers and schedules against Keras (and TensorFlow 1's RMSProp), step by step; accumulation,
 * clipping, state and its names; the same bits on any devices; and what is refused.
 * tests/reference/training_*.json has the cases. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"
#include "check.h"
#include "graph_cases.h"
#include "training.h"

/* Differences that are allowed in float32: twice that of Keras's own float32, and units in the last
 * place. Keras rounds constants such as beta to float32 in its float64 too: this is what float64
 * may differ by, more with 1 - beta^t, which is then off by some 1e-5 of itself after few steps.
 * TensorFlow 1's RMSProp is in float32 only. */
#define TIMES             2.0
#define UNITS             8.0
#define ROUNDED_CONSTANTS 2e-6
#define ROUNDED_POWERS    1e-5

/* ---- Schedules ---- */

static ls_schedule schedule_of(const json_t *spec)
{
    const char *kind = training_string(spec, "kind");
    double rate = training_number(spec, "rate", 0);
    int64_t steps = (int64_t)training_number(spec, "count", 0);
    if (strcmp(kind, "exponential") == 0)
        return ls_exponential_decay(rate, steps, training_number(spec, "decay", 0),
                                    training_number(spec, "staircase", 0) != 0);
    if (strcmp(kind, "cosine") == 0)
        return ls_cosine_decay(rate, steps, training_number(spec, "alpha", 0), training_number(spec, "from", 0),
                               (int64_t)training_number(spec, "warmup", 0));
    if (strcmp(kind, "polynomial") == 0)
        return ls_polynomial_decay(rate, steps, training_number(spec, "end", 0), training_number(spec, "power", 0),
                                   training_number(spec, "cycle", 0) != 0);
    if (strcmp(kind, "inverse_time") == 0)
        return ls_inverse_time_decay(rate, steps, training_number(spec, "decay", 0),
                                     training_number(spec, "staircase", 0) != 0);
    if (strcmp(kind, "restarts") == 0)
        return ls_cosine_decay_restarts(rate, steps, training_number(spec, "t_mul", 0),
                                        training_number(spec, "m_mul", 0), training_number(spec, "alpha", 0));
    if (strcmp(kind, "one_cycle") == 0)
        return ls_one_cycle(rate, steps, training_number(spec, "pct_start", 0), training_number(spec, "div_factor", 0),
                            training_number(spec, "final_div_factor", 0), training_number(spec, "linear", 0) != 0,
                            training_number(spec, "three_phase", 0) != 0);
    assert_string_equal(kind, "piecewise");
    const json_t *boundaries = json_object_get(spec, "boundaries"), *values = json_object_get(spec, "values");
    int64_t at[LS_SCHEDULE_POINTS];
    double value[LS_SCHEDULE_POINTS];
    for (size_t i = 0; i < json_array_size(boundaries); i++)
        at[i] = json_integer_value(json_array_get(boundaries, i));
    for (size_t i = 0; i < json_array_size(values); i++)
        value[i] = json_number_value(json_array_get(values, i));
    return ls_piecewise_decay(at, value, (int)json_array_size(values));
}

static void schedules_are_those_of_keras(void **state)
{
    (void)state;
    json_t *cases = training_read("schedules");
    assert_true(json_array_size(cases) >= 25);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *spec = json_array_get(cases, i), *steps = json_object_get(spec, "steps");
        ls_schedule schedule = schedule_of(spec);
        for (size_t s = 0; s < json_array_size(steps); s++) {
            int64_t step = json_integer_value(json_array_get(steps, s));
            double rate = NAN, expected = json_number_value(json_array_get(json_object_get(spec, "rates"), s));
            if (ls_schedule_rate(&schedule, step, 0, &rate) != LS_OK)
                fail_msg("%s: %s", training_string(spec, "name"), ls_last_error());
            if (!(fabs(rate - expected) <= 1e-5 * fabs(expected) + 3e-9)) /* Keras computes in float32 */
                fail_msg("%s: %.9g at step %lld, %.9g was expected", training_string(spec, "name"), rate,
                         (long long)step, expected);
        }
    }
    json_decref(cases);
}

static void must_say(ls_status status, ls_status expected, const char *part)
{
    assert_int_equal(status, expected);
    if (!strstr(ls_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", ls_last_error(), part);
}

static void rates_by_batch_size(void **state)
{
    (void)state;
    ls_schedule table = ls_rates_by_batch_size((int64_t[]){ 8, 64, 512 }, (double[]){ 0.01, 0.02, 0.05 }, 3);
    double rate = 7;
    assert_int_equal(ls_schedule_rate(&table, 1000, 64, &rate), LS_OK);
    assert_true(rate == 0.02);
    assert_int_equal(ls_schedule_rate(&table, 0, 512, &rate), LS_OK);
    assert_true(rate == 0.05);
    must_say(ls_schedule_rate(&table, 0, 63, &rate), LS_ERR_NOT_FOUND, "batch size 63; there is one for 8, 64, 512");
    assert_true(rate == 0.05);
}

static void wrong_schedules_are_refused(void **state)
{
    (void)state;
    double rate, values[20] = { 1 };
    int64_t falling[] = { 10, 5 }, many[20] = { 0 };
    ls_schedule s = ls_exponential_decay(0.1, 0, 0.5, false);
    must_say(ls_schedule_rate(&s, 0, 0, &rate), LS_ERR_INVALID, "over 0 steps");
    s = ls_cosine_decay(0.1, 10, 0, 0, -1);
    must_say(ls_schedule_rate(&s, 0, 0, &rate), LS_ERR_INVALID, "-1 of warm-up");
    s = ls_piecewise_decay(falling, values, 3);
    must_say(ls_schedule_rate(&s, 0, 0, &rate), LS_ERR_INVALID, "10 is followed by 5");
    s = ls_piecewise_decay(many, values, 20);
    must_say(ls_schedule_rate(&s, 0, 0, &rate), LS_ERR_INVALID, "of 20 rates");
    s = ls_rates_by_batch_size(NULL, NULL, 3);
    must_say(ls_schedule_rate(&s, 0, 0, &rate), LS_ERR_INVALID, "of 0 rates");
    s = ls_exponential_decay(-0.1, 10, 0.5, false);
    must_say(ls_schedule_rate(&s, 0, 0, &rate), LS_ERR_INVALID, "gives the learning rate -0.1");
    s = ls_exponential_decay(0.1, 10, NAN, false);
    must_say(ls_schedule_rate(&s, 5, 0, &rate), LS_ERR_INVALID, "nan");
    s = ls_polynomial_decay(0.1, 0, 0, 1, false);
    must_say(ls_schedule_rate(&s, 0, 0, &rate), LS_ERR_INVALID, "polynomial decay over 0 steps");
    s = ls_inverse_time_decay(0.1, -1, 1, false);
    must_say(ls_schedule_rate(&s, 0, 0, &rate), LS_ERR_INVALID, "inverse time decay over -1 steps");
    s = ls_cosine_decay_restarts(0.1, 10, 0.5, 1, 0);
    must_say(ls_schedule_rate(&s, 0, 0, &rate), LS_ERR_INVALID, "t_mul is 0.5");
    s = ls_one_cycle(0.1, 10, 0.7, 0, 0, false, true);
    must_say(ls_schedule_rate(&s, 0, 0, &rate), LS_ERR_INVALID, "pct_start is 0.7");
    s = ls_exponential_decay(0.1, 10, 0.5, false);
    must_say(ls_schedule_rate(&s, -1, 0, &rate), LS_ERR_INVALID, "step is -1");
    must_say(ls_schedule_rate(NULL, 0, 0, &rate), LS_ERR_INVALID, "the schedule");
    s.kind = 55;
    must_say(ls_schedule_rate(&s, 0, 0, &rate), LS_ERR_INVALID, "no schedule number 55");
}

/* ---- Optimizers step by step ---- */

/* 0.0 in a case was said by its writer: it is LS_ZERO here. */
static double said(const json_t *options, const char *key)
{
    double value = training_number(options, key, 0);
    return json_object_get(options, key) && value == 0 ? LS_ZERO : value;
}

static ls_optimizer optimizer_of(const json_t *spec)
{
    const char *kind = training_string(spec, "kind");
    const json_t *o = json_object_get(spec, "options"), *schedule = json_object_get(spec, "schedule");
    ls_optimizer named = { .kind = LS_OPTIMIZER_SGD }; /* the kind of that name, of all there are */
    while (strcmp(ls_optimizer_name(&named), kind) != 0 && strcmp(ls_optimizer_name(&named), "optimizer") != 0)
        named.kind++;
    ls_optimizer optimizer = { .kind = named.kind,
                               .options = { .learning_rate = said(o, "learning_rate"),
                                            .momentum = said(o, "momentum"),
                                            .nesterov = training_number(o, "nesterov", 0) != 0,
                                            .beta_1 = said(o, "beta_1"),
                                            .beta_2 = said(o, "beta_2"),
                                            .rho = said(o, "rho"),
                                            .epsilon = said(o, "epsilon"),
                                            .weight_decay = said(o, "weight_decay"),
                                            .clipvalue = said(o, "clipvalue"),
                                            .clipnorm = said(o, "clipnorm"),
                                            .global_clipnorm = said(o, "global_clipnorm"),
                                            .initial_accumulator_value = said(o, "initial_accumulator_value"),
                                            .l1_regularization_strength = said(o, "l1_regularization_strength"),
                                            .learning_rate_power = said(o, "learning_rate_power"),
                                            .l2_regularization_strength = said(o, "l2_regularization_strength"),
                                            .l2_shrinkage_regularization_strength =
                                                said(o, "l2_shrinkage_regularization_strength"),
                                            .beta = said(o, "beta"),
                                            .adam_weight_decay = said(o, "adam_weight_decay"),
                                            .adam_lr_ratio = said(o, "adam_lr_ratio"),
                                            .muon_a = said(o, "muon_a"),
                                            .muon_b = said(o, "muon_b"),
                                            .muon_c = said(o, "muon_c"),
                                            .rms_rate = said(o, "rms_rate"),
                                            .use_ema = training_number(o, "use_ema", 0) != 0,
                                            .ema_momentum = said(o, "ema_momentum") } };
    optimizer.options.ema_overwrite_frequency = (int64_t)training_number(o, "ema_overwrite_frequency", 0);
    optimizer.options.ns_steps = (int64_t)training_number(o, "ns_steps", 0);
    optimizer.options.exclude_layers = json_string_value(json_array_get(json_object_get(o, "exclude_layers"), 0));
    if (named.kind == LS_OPTIMIZER_MUON) {
        optimizer.options.no_nesterov = json_is_false(json_object_get(o, "nesterov"));
        optimizer.options.beta_1 = said(o, "adam_beta_1");
        optimizer.options.beta_2 = said(o, "adam_beta_2");
    }
    optimizer.options.gradient_accumulation_steps = (int64_t)training_number(o, "gradient_accumulation_steps", 0);
    if (!json_is_null(schedule))
        optimizer.options.schedule = schedule_of(schedule);
    assert_string_equal(ls_optimizer_name(&optimizer), kind);
    return optimizer;
}

static ls_constraint constraint_of(const json_t *spec)
{
    static const char *const names[] = { "", "MaxNorm", "NonNeg", "UnitNorm", "MinMaxNorm" };
    const json_t *c = json_object_get(spec, "constraint"), *axis = json_object_get(c, "axis");
    ls_constraint constraint = { .kind = LS_CONSTRAINT_NONE };
    if (!c)
        return constraint;
    while (strcmp(names[constraint.kind], training_string(c, "class")) != 0)
        constraint.kind++;
    constraint.max_value = said(c, "max_value");
    constraint.min_value = said(c, "min_value");
    constraint.rate = said(c, "rate");
    constraint.axis.count = axis ? 1 : 0;
    constraint.axis.axis[0] = json_integer_value(json_is_array(axis) ? json_array_get(axis, 0) : axis);
    return constraint;
}

/* "a/b" or "a/b/c" in a place of its own. */
typedef struct path {
    char text[160];
} path;

static path join(const char *a, const char *b, const char *c)
{
    path p;
    snprintf(p.text, sizeof(p.text), "%s/%s%s%s", a, b, c ? "/" : "", c ? c : "");
    return p;
}

#define MOST 4
typedef struct trial {
    ls_graph *graph;
    size_t count;
    training_array start[MOST];
    ls_tensor *variables[MOST], *gradients[MOST], *rate, *step;
    ls_dtype dtype;
} trial;

static void *as_dtype(const void *floats, size_t count, ls_dtype dtype)
{
    float *f = calloc(count + 1, sizeof(*f));
    double *d = calloc(count + 1, sizeof(*d));
    assert_true(f && d);
    for (size_t i = 0; i < count; i++) {
        f[i] = ((const float *)floats)[i];
        d[i] = f[i];
    }
    free(dtype == LS_F32 ? (void *)d : (void *)f);
    return dtype == LS_F32 ? (void *)f : (void *)d;
}

/* The variables of the file, gradients to be fed, and the optimizer over them. */
static void open_trial(trial *t, ls_context *ctx, const json_t *root, ls_optimizer optimizer, ls_constraint constraint,
                       ls_dtype dtype)
{
    const json_t *variables = json_object_get(root, "variables");
    *t = (trial){ .count = json_array_size(variables), .dtype = dtype };
    assert_true(t->count <= MOST);
    assert_int_equal(ls_graph_create(ctx, &t->graph), LS_OK);
    for (size_t i = 0; i < t->count; i++) {
        const json_t *v = json_array_get(variables, i);
        t->start[i] = training_array_of(v);
        void *data = as_dtype(t->start[i].data, t->start[i].count, dtype);
        t->variables[i] = ls_op_variable(t->graph, training_string(v, "name"), dtype, t->start[i].shape, .data = data,
                                         .constraint = constraint);
        t->gradients[i] = ls_op_input(t->graph, NULL, dtype, t->start[i].shape);
        free(data);
    }
    t->step = ls_apply_gradients(optimizer, t->gradients, t->variables, t->count, NULL);
    if (ls_tensor_is_error(t->step))
        fail_msg("%s", t->step->message);
    if (optimizer.options.schedule.kind != LS_SCHEDULE_CONSTANT)
        assert_int_equal(
            ls_graph_find(t->graph, join(ls_optimizer_name(&optimizer), "learning_rate", NULL).text, &t->rate), LS_OK);
}

static void close_trial(trial *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->start[i].data);
    ls_graph_destroy(t->graph);
}

static ls_status take_step(trial *t, const json_t *root, size_t step, double rate)
{
    const json_t *gradients = json_array_get(json_object_get(root, "gradients"), step);
    ls_feed feeds[MOST + 1];
    void *data[MOST];
    size_t count = 0;
    float fed = (float)rate;
    for (size_t i = 0; i < t->count; i++) {
        const json_t *list = json_array_get(gradients, i);
        float *floats = calloc(json_array_size(list) + 1, sizeof(*floats));
        for (size_t k = 0; k < json_array_size(list); k++)
            floats[k] = (float)json_number_value(json_array_get(list, k));
        data[i] = as_dtype(floats, json_array_size(list), t->dtype);
        free(floats);
        feeds[count++] = (ls_feed){ t->gradients[i], ls_array_of(t->dtype, t->start[i].shape, data[i]) };
    }
    if (t->rate)
        feeds[count++] = (ls_feed){ t->rate, ls_array_of(LS_F32, LS_SCALAR, &fed) };
    ls_status status = ls_eval(t->graph, feeds, count, &t->step, 1);
    for (size_t i = 0; i < t->count; i++)
        free(data[i]);
    return status;
}

/* slot: "steps" for the variable itself */
static double tolerance_of(const json_t *spec, const char *slot, ls_dtype dtype)
{
    static const char *const with_powers[] = { "adam", "adamw", "nadam", "lamb", "muon" };
    const json_t *errors = json_object_get(spec, "errors");
    const char *kind = training_string(spec, "kind");
    double rounded = ROUNDED_CONSTANTS;
    for (size_t i = 0; i < LENGTH(with_powers); i++)
        rounded = strcmp(kind, with_powers[i]) == 0 ? ROUNDED_POWERS : rounded;
    if (!errors || dtype == LS_F64)
        return rounded;
    double tolerance = TIMES * training_number(errors, slot, NAN) + UNITS * 0x1p-24;
    return strcmp(kind, "nadam") == 0 ? tolerance + rounded : tolerance; /* it multiplies such constants */
}

static size_t compare_variable(ls_graph *graph, const char *name, const char *where, const json_t *expected,
                               const json_t *spec, const char *slot, bool quiet)
{
    char what[256];
    ls_tensor *variable;
    ls_array value;
    if (ls_graph_find(graph, name, &variable) != LS_OK || ls_value(variable, &value) != LS_OK)
        fail_msg("%s", ls_last_error());
    snprintf(what, sizeof(what), "%s, %s: %s", where, ls_dtype_name(value.dtype), name);
    return training_compare(quiet ? NULL : what, value.data, value.dtype, expected,
                            tolerance_of(spec, slot, value.dtype));
}

/* All steps, then the slots; `skew` times the learning rate must be noticed. */
static size_t run_case(ls_context *ctx, const json_t *root, const json_t *spec, ls_dtype dtype, double skew)
{
    const char *name = training_string(spec, "name"), *slot;
    ls_optimizer optimizer = optimizer_of(spec);
    if (skew != 1) {
        double rate;
        assert_int_equal(ls_optimizer_rate(&optimizer, 0, 0, &rate), LS_OK);
        optimizer.options.learning_rate = rate * skew;
        optimizer.options.schedule = (ls_schedule){ .kind = LS_SCHEDULE_CONSTANT };
    }
    size_t wrong = 0;
    trial t;
    open_trial(&t, ctx, root, optimizer, constraint_of(spec), dtype);
    const json_t *steps = json_object_get(spec, "steps");
    for (size_t s = 0; s < json_array_size(steps) && !wrong; s++) {
        double rate = 0;
        assert_int_equal(ls_optimizer_rate(&optimizer, (int64_t)s, 0, &rate), LS_OK);
        if (take_step(&t, root, s, rate) != LS_OK)
            fail_msg("%s: %s", name, ls_last_error());
        char where[160];
        snprintf(where, sizeof(where), "%s, step %zu", name, s);
        for (size_t i = 0; i < t.count && json_is_array(json_array_get(steps, s)); i++)
            wrong += compare_variable(t.graph, ls_tensor_name(t.variables[i]), where,
                                      json_array_get(json_array_get(steps, s), i), spec, "steps", skew != 1);
    }
    json_t *slots = json_object_get(spec, "slots"), *values;
    json_object_foreach(slots, slot, values) for (size_t i = 0; i < t.count && !wrong; i++) wrong +=
        compare_variable(t.graph, join(ls_optimizer_name(&optimizer), ls_tensor_name(t.variables[i]), slot).text, name,
                         json_array_get(values, i), spec, slot, skew != 1);
    ls_tensor *iterations;
    assert_int_equal(ls_graph_find(t.graph, join(ls_optimizer_name(&optimizer), "iterations", NULL).text, &iterations),
                     LS_OK);
    if (!wrong)
        assert_int_equal(test_scalar(iterations), training_number(spec, "iterations", -1));
    close_trial(&t);
    return wrong;
}

static void optimizers_are_those_of_keras(void **state)
{
    (void)state;
    json_t *root = training_read("optimizers"), *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) >= 126);
    for (int reference = 0; reference < 2; reference++) {
        ls_context *ctx;
        ls_context_options options = { .reference = reference };
        assert_int_equal(ls_context_open(&options, &ctx), LS_OK);
        size_t wrong = 0;
        for (size_t i = 0; i < json_array_size(cases); i++) {
            wrong += run_case(ctx, root, json_array_get(cases, i), LS_F32, 1);
            wrong += run_case(ctx, root, json_array_get(cases, i), LS_F64, 1);
        }
        ls_context_close(ctx);
        assert_int_equal(wrong, 0);
    }
    json_decref(root);
}

/* Each rule of updates, by optimizers: for tests that try them all. */
static const ls_optimizer *rules(size_t *count)
{
    static ls_optimizer list[17];
    list[0] = ls_sgd(.weight_decay = 0.01);
    list[1] = ls_sgd(.momentum = 0.9, .weight_decay = 0.02);
    list[2] = ls_sgd(.momentum = 0.9, .nesterov = true);
    list[3] = ls_adam(.learning_rate = 0.01);
    list[4] = ls_adamw();
    list[5] = ls_rmsprop(.weight_decay = 0.01);
    list[6] = ls_rmsprop(.momentum = 0.7);
    list[7] = ls_rmsprop_tf1(.learning_rate = 0.01, .momentum = 0.7);
    list[8] = ls_adagrad(.learning_rate = 0.1);
    list[9] = ls_adadelta(.learning_rate = 1);
    list[10] = ls_adamax(.weight_decay = 0.01);
    list[11] = ls_nadam();
    list[12] = ls_ftrl(.l1_regularization_strength = 0.1, .weight_decay = 0.01);
    list[13] = ls_lion();
    list[14] = ls_lamb(.weight_decay = 0.01);
    list[15] = ls_muon();
    list[16] = ls_adam(.use_ema = true, .ema_momentum = 0.9, .ema_overwrite_frequency = 3);
    *count = LENGTH(list);
    return list;
}

/* The tables above and below know every kind of optimizer that there is. */
static void every_kind_has_cases(void **state)
{
    (void)state;
    json_t *root = training_read("optimizers"), *cases = json_object_get(root, "cases");
    size_t count;
    const ls_optimizer *accumulated = rules(&count);
    for (ls_optimizer one = { .kind = LS_OPTIMIZER_SGD }; strcmp(ls_optimizer_name(&one), "optimizer") != 0;
         one.kind++) {
        const char *name = ls_optimizer_name(&one);
        size_t seen = 0, listed = 0;
        for (size_t i = 0; i < json_array_size(cases); i++)
            seen += strcmp(training_string(json_array_get(cases, i), "kind"), name) == 0;
        for (size_t i = 0; i < count; i++)
            listed += accumulated[i].kind == one.kind;
        if (!seen || !listed)
            fail_msg("%s: %zu cases with Keras's numbers, %zu in rules()", name, seen, listed);
    }
    json_decref(root);
}

static void another_learning_rate_is_noticed(void **state)
{
    (void)state;
    json_t *root = training_read("optimizers"), *cases = json_object_get(root, "cases");
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    for (size_t i = 0; i < json_array_size(cases); i++)
        if (strcmp(training_string(json_array_get(cases, i), "name"), "adadelta_default") != 0 && /* steps of 1e-6 */
            !run_case(ctx, root, json_array_get(cases, i), LS_F32, 1.01))
            fail_msg("%s: not noticed", training_string(json_array_get(cases, i), "name"));
    ls_context_close(ctx);
    json_decref(root);
}

/* Each option of a case counts: without it the weights are others. */
static void every_option_counts(void **state)
{
    (void)state;
    json_t *root = training_read("optimizers"), *cases = json_object_get(root, "cases");
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *spec = json_deep_copy(json_array_get(cases, i)), *options = json_object_get(spec, "options"), *value;
        const char *key;
        void *next;
        if (strstr(training_string(spec, "name"), "_random_"))
            json_object_clear(options); /* an option that was drawn may change nothing */
        json_t *drawn = json_copy(options);
        json_object_foreach_safe(drawn, next, key, value)
        {
            if (strcmp(key, "learning_rate") == 0 || strstr(key, "ema") ||
                (strcmp(key, "momentum") == 0 && json_object_get(options, "nesterov")))
                continue; /* looked at above; averages are; nesterov needs it */
            json_t *taken = json_incref(json_object_get(options, key));
            json_object_del(options, key);
            size_t wrong = 0;
            ls_optimizer optimizer = optimizer_of(spec);
            trial t;
            open_trial(&t, ctx, root, optimizer, constraint_of(spec), LS_F32);
            const json_t *steps = json_object_get(spec, "steps");
            for (size_t s = 0; s < json_array_size(steps); s++) {
                double rate = 0;
                assert_int_equal(ls_optimizer_rate(&optimizer, (int64_t)s, 0, &rate), LS_OK);
                assert_int_equal(take_step(&t, root, s, rate), LS_OK);
                for (size_t v = 0; v < t.count && json_is_array(json_array_get(steps, s)); v++)
                    wrong += compare_variable(t.graph, ls_tensor_name(t.variables[v]), training_string(spec, "name"),
                                              json_array_get(json_array_get(steps, s), v), spec, "steps", true);
            }
            close_trial(&t);
            if (!wrong)
                fail_msg("%s is the same without %s", training_string(spec, "name"), key);
            json_object_set_new(options, key, taken);
        }
        json_decref(drawn);
        json_decref(spec);
    }
    ls_context_close(ctx);
    json_decref(root);
}

/* ---- Accumulation ---- */

/* Every variable of the one is in the other, byte by byte. */
static void same_state(const ls_graph *a, ls_graph *b)
{
    for (size_t i = 0; i < a->variable_count; i++) {
        ls_tensor *other, *node = a->variables[i]->node;
        assert_int_equal(ls_graph_find(b, node->name, &other), LS_OK);
        if (memcmp(a->variables[i]->data, other->attr.variable.variable->data, a->variables[i]->bytes) != 0)
            fail_msg("%s differs", node->name);
    }
}

/* The same gradient twice is that gradient: an update made of two has the bits of one. */
static void accumulated_updates_have_the_bits_of_plain_ones(void **state)
{
    (void)state;
    json_t *root = training_read("optimizers");
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    size_t count;
    const ls_optimizer *list = rules(&count);
    for (size_t r = 0; r < count; r++)
        for (ls_dtype dtype = LS_F32; dtype <= LS_F64; dtype++) {
            ls_optimizer twice = list[r];
            twice.options.gradient_accumulation_steps = 2;
            trial plain, two;
            const ls_constraint limit = { .kind = r % 2 ? LS_MAX_NORM : LS_CONSTRAINT_NONE };
            open_trial(&plain, ctx, root, list[r], limit, dtype);
            open_trial(&two, ctx, root, twice, limit, dtype);
            for (size_t s = 0; s < 10; s++) {
                assert_int_equal(take_step(&two, root, s, 0), LS_OK);
                if (s)
                    same_state(plain.graph, two.graph); /* nothing has changed yet */
                assert_int_equal(take_step(&two, root, s, 0), LS_OK);
                assert_int_equal(take_step(&plain, root, s, 0), LS_OK);
                same_state(plain.graph, two.graph);
            }
            close_trial(&plain);
            close_trial(&two);
        }
    ls_context_close(ctx);
    json_decref(root);
}

/* ---- A small network: dense, tanh, dense; a batch of samples that can be cut anywhere ---- */

#define SAMPLES 24
typedef struct network {
    ls_graph *graph;
    ls_tensor *x, *y, *loss, *step, *variables[4];
    ls_metric_state metric;
    double xs[SAMPLES * 5], ys[SAMPLES * 2];
} network;

static void open_network(network *n, ls_context *ctx, ls_optimizer optimizer, int lanes)
{
    static const struct {
        const char *name;
        ls_shape shape;
    } shapes[] = { { "a/kernel", { 2, { 5, 7 } } },
                   { "a/bias", { 1, { 7 } } },
                   { "b/kernel", { 2, { 7, 2 } } },
                   { "b/bias", { 1, { 2 } } } };
    assert_int_equal(ls_graph_create(ctx, &n->graph), LS_OK);
    assert_int_equal(ls_graph_set_lanes(n->graph, lanes), LS_OK);
    n->x = ls_op_input(n->graph, "x", LS_F64, LS_SHAPE(LS_BATCH, 5));
    n->y = ls_op_input(n->graph, "y", LS_F64, LS_SHAPE(LS_BATCH, 2));
    for (uint32_t i = 0; i < 4; i++) {
        double data[64];
        test_random(data, 64, i, -1, 1);
        n->variables[i] = ls_op_variable(n->graph, shapes[i].name, LS_F64, shapes[i].shape, .data = data);
    }
    ls_tensor **v = n->variables;
    ls_tensor *hidden = ls_op_tanh(ls_op_add(ls_op_matmul(n->x, v[0]), v[1]));
    ls_tensor *out = ls_op_add(ls_op_matmul(hidden, v[2]), v[3]);
    n->loss = ls_loss_value(ls_mean_squared_error(), n->y, out, NULL);
    n->metric = ls_metric_state_of(ls_metric_of(LS_METRIC_MEAN_ABSOLUTE_ERROR), n->y, out, NULL);
    n->step = ls_minimize(optimizer, n->loss, "train_step");
    if (ls_tensor_is_error(n->step))
        fail_msg("%s", n->step->message);
    test_random(n->xs, LENGTH(n->xs), 11, -1, 1);
    test_random(n->ys, LENGTH(n->ys), 12, -1, 1);
}

static void train(network *n, int64_t from, int64_t to)
{
    ls_feed feeds[] = { { n->x, ls_array_of(LS_F64, LS_SHAPE(to - from, 5), n->xs + from * 5) },
                        { n->y, ls_array_of(LS_F64, LS_SHAPE(to - from, 2), n->ys + from * 2) } };
    ls_tensor *fetches[] = { n->step, n->metric.update };
    if (ls_eval(n->graph, feeds, 2, fetches, 2) != LS_OK)
        fail_msg("%s", ls_last_error());
}

/* Parts of 5, 12, 1 and 6 samples make the update of all 24 at once; the mean of their means would
 * not. */
static void parts_of_any_size_make_one_big_batch(void **state)
{
    (void)state;
    static const int64_t cuts[] = { 0, 5, 17, 18, SAMPLES };
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    size_t count;
    const ls_optimizer *list = rules(&count);
    for (size_t r = 0; r < count; r++) {
        network whole, parts;
        ls_optimizer optimizer = list[r], in_parts = list[r];
        optimizer.options.global_clipnorm = in_parts.options.global_clipnorm = 0.5;
        in_parts.options.gradient_accumulation_steps = LENGTH(cuts) - 1;
        open_network(&whole, ctx, optimizer, 0);
        open_network(&parts, ctx, in_parts, 0);
        for (int step = 0; step < 3; step++) {
            train(&whole, 0, SAMPLES);
            for (size_t c = 0; c + 1 < LENGTH(cuts); c++)
                train(&parts, cuts[c], cuts[c + 1]);
        }
        for (int v = 0; v < 4; v++) {
            size_t n, m;
            double *a = test_values(whole.variables[v], &n), *b = test_values(parts.variables[v], &m);
            assert_int_equal(n, m);
            test_assert_near(ls_tensor_name(whole.variables[v]), b, a, n, 1e-10);
            free(a);
            free(b);
        }
        double all, some;
        assert_int_equal(ls_metric_state_result(&whole.metric, &all), LS_OK);
        assert_int_equal(ls_metric_state_result(&parts.metric, &some), LS_OK);
        assert_true(test_is_near(all, some, 1e-10));
        ls_graph_destroy(whole.graph);
        ls_graph_destroy(parts.graph);
    }
    ls_context_close(ctx);
}

/* ---- The same bits on any devices ---- */

static void hash_state(const ls_graph *graph, char hex[65])
{
    ls_sha256 *hash = NULL;
    assert_int_equal(ls_sha256_begin(&hash), LS_OK);
    for (size_t i = 0; i < graph->variable_count; i++)
        assert_int_equal(ls_sha256_add(hash, graph->variables[i]->data, graph->variables[i]->bytes), LS_OK);
    assert_int_equal(ls_sha256_end(hash, hex), LS_OK);
}

static void train_on(int devices, int lanes, ls_optimizer optimizer, char hex[65])
{
    ls_context *ctx;
    ls_context_options options = { .threads = devices, .cpu_devices = devices };
    assert_int_equal(ls_context_open(&options, &ctx), LS_OK);
    network n;
    open_network(&n, ctx, optimizer, lanes);
    for (int step = 0; step < 4; step++) {
        train(&n, 0, 17);
        train(&n, 17, SAMPLES);
    }
    hash_state(n.graph, hex);
    ls_graph_destroy(n.graph);
    ls_context_close(ctx);
}

static void states_are_equal_on_any_devices(void **state)
{
    (void)state;
    static const int devices[] = { 2, 3, 5, 8 }, lanes[] = { 1, 4, 7 };
    static const struct {
        double clipvalue, clipnorm, global_clipnorm;
        int64_t every;
    } options[] = { { 0 },
                    { .clipvalue = 0.1 },
                    { .clipnorm = 0.1 },
                    { .global_clipnorm = 0.1 },
                    { .global_clipnorm = 0.1, .every = 3 } };
    size_t count;
    const ls_optimizer *list = rules(&count);
    for (size_t r = 0; r < count; r++)
        for (size_t o = 0; o < LENGTH(options); o++) {
            size_t choice = r + o;
            ls_optimizer optimizer = list[r];
            optimizer.options.clipvalue = options[o].clipvalue;
            optimizer.options.clipnorm = options[o].clipnorm;
            optimizer.options.global_clipnorm = options[o].global_clipnorm;
            optimizer.options.gradient_accumulation_steps = options[o].every;
            char alone[65], many[65];
            train_on(1, lanes[choice % 3], optimizer, alone);
            train_on(devices[choice % 4], lanes[choice % 3], optimizer, many);
            assert_string_equal(many, alone);
        }
    char one[65], other[65];
    train_on(1, 4, list[3], one);
    train_on(1, 4, list[4], other);
    assert_string_not_equal(one, other); /* the hash can differ */
}

/* ---- Clipping ---- */

/* The norm is that of all variables before clipping, and fetched by name. */
static void global_norm_can_be_fetched(void **state)
{
    (void)state;
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    ls_graph *graph;
    assert_int_equal(ls_graph_create(ctx, &graph), LS_OK);
    ls_tensor *v[] = { ls_op_variable(graph, "a", LS_F32, LS_SHAPE(2)),
                       ls_op_variable(graph, "b", LS_F64, LS_SHAPE(1)) };
    ls_tensor *g[] = { ls_op_input(graph, NULL, LS_F32, LS_SHAPE(2)), ls_op_input(graph, NULL, LS_F64, LS_SHAPE(1)) };
    ls_tensor *step = ls_apply_gradients(ls_sgd(.learning_rate = 1, .global_clipnorm = 6.5), g, v, 2, NULL), *norm;
    assert_int_equal(ls_graph_find(graph, "sgd/global_norm", &norm), LS_OK);
    float a[] = { 3, 4 };
    double b = 12, value;
    ls_feed feeds[] = { { g[0], ls_array_of(LS_F32, LS_SHAPE(2), a) }, { g[1], ls_array_of(LS_F64, LS_SHAPE(1), &b) } };
    ls_tensor *fetches[] = { step, norm };
    assert_int_equal(ls_eval(graph, feeds, 2, fetches, 2), LS_OK);
    assert_true(test_scalar(norm) == 13);
    assert_int_equal(ls_variable_get(v[1], &value, sizeof(value)), LS_OK);
    assert_true(value == -6);
    assert_int_equal(ls_variable_get(v[0], a, sizeof(a)), LS_OK);
    assert_true(a[0] == -1.5f && a[1] == -2);
    ls_graph_destroy(graph);
    ls_context_close(ctx);
}

/* Whatever clips or accumulates, a gradient that is not finite stops the run; it is named, and
 * nothing is changed. */
static void gradients_that_are_not_finite_stop_the_run(void **state)
{
    (void)state;
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    const ls_optimizer list[] = { ls_adam(),
                                  ls_adam(.clipnorm = 1),
                                  ls_adam(.global_clipnorm = 1),
                                  ls_adam(.clipvalue = 1),
                                  ls_adam(.gradient_accumulation_steps = 2),
                                  ls_sgd(.global_clipnorm = 1, .gradient_accumulation_steps = 3) };
    for (size_t i = 0; i < LENGTH(list); i++)
        for (int batch = 0; batch < 3; batch++) {
            ls_graph *graph;
            assert_int_equal(ls_graph_create(ctx, &graph), LS_OK);
            ls_tensor *v[] = { ls_op_variable(graph, "good", LS_F32, LS_SHAPE(2)),
                               ls_op_variable(graph, "bad", LS_F32, LS_SHAPE(2)) };
            ls_tensor *g[] = { ls_op_input(graph, NULL, LS_F32, LS_SHAPE(2)),
                               ls_op_input(graph, NULL, LS_F32, LS_SHAPE(2)) };
            ls_tensor *step = ls_apply_gradients(list[i], g, v, 2, NULL);
            float good[] = { 1, 2 }, bad[] = { 3, 4 };
            ls_feed feeds[] = { { g[0], ls_array_of(LS_F32, LS_SHAPE(2), good) },
                                { g[1], ls_array_of(LS_F32, LS_SHAPE(2), bad) } };
            for (int b = 0; b < batch; b++)
                assert_int_equal(ls_eval(graph, feeds, 2, &step, 1), LS_OK);
            char before[65], after[65];
            hash_state(graph, before);
            bad[1] =
                list[i].options.clipvalue == 0 && batch % 2 ? INFINITY : NAN; /* an infinity is clipped, as in Keras */
            must_say(ls_eval(graph, feeds, 2, &step, 1), LS_ERR_NOT_FINITE, "the gradient of bad is not finite");
            hash_state(graph, after);
            assert_string_equal(before, after);
            ls_graph_destroy(graph);
        }
    ls_context_close(ctx);
}

/* Gradients whose squares overflow in float32 are clipped all the same. */
static void norms_are_summed_in_double(void **state)
{
    (void)state;
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    static const ls_optimizer_options both[] = { { .learning_rate = 1, .clipnorm = 5 },
                                                 { .learning_rate = 1, .global_clipnorm = 5 } };
    for (size_t i = 0; i < 2; i++) {
        ls_graph *graph;
        assert_int_equal(ls_graph_create(ctx, &graph), LS_OK);
        ls_tensor *v = ls_op_variable(graph, "a", LS_F32, LS_SHAPE(2)),
                  *g = ls_op_input(graph, NULL, LS_F32, LS_SHAPE(2));
        ls_optimizer optimizer = { .kind = LS_OPTIMIZER_SGD, .options = both[i] };
        ls_tensor *step = ls_apply_gradients(optimizer, &g, &v, 1, NULL);
        float a[] = { 3e30f, -4e30f };
        ls_feed feed = { g, ls_array_of(LS_F32, LS_SHAPE(2), a) };
        assert_int_equal(ls_eval(graph, &feed, 1, &step, 1), LS_OK);
        assert_int_equal(ls_variable_get(v, a, sizeof(a)), LS_OK);
        assert_true(test_is_near(a[0], -3, 1e-6) && test_is_near(a[1], 4, 1e-6));
        ls_graph_destroy(graph);
    }
    ls_context_close(ctx);
}

/* ---- State and names ---- */

static void count_warnings(void *user, ls_log_level level, const char *line)
{
    if (level == LS_LOG_WARNING && strstr(line, "alone has no gradient"))
        ++*(int *)user;
}

/* A variable that the loss does not depend on is left alone, has no slots, and is warned of. */
static void variables_without_a_gradient_are_left_alone(void **state)
{
    (void)state;
    int warnings = 0;
    ls_context *ctx;
    ls_context_options options = { .log_sink = count_warnings, .log_user = &warnings };
    assert_int_equal(ls_context_open(&options, &ctx), LS_OK);
    ls_graph *graph;
    assert_int_equal(ls_graph_create(ctx, &graph), LS_OK);
    float ones[] = { 1, 1 };
    ls_tensor *v[] = { ls_op_variable(graph, "used", LS_F32, LS_SHAPE(2), .data = ones),
                       ls_op_variable(graph, "alone", LS_F32, LS_SHAPE(2), .data = ones) };
    ls_tensor *loss = ls_op_reduce_sum(v[0], LS_ALL_AXES, false), *g[2], *none[2] = { NULL, NULL }, *slot;
    assert_int_equal(ls_gradients(loss, v, 2, g), LS_OK);
    assert_null(g[1]);
    ls_tensor *step = ls_apply_gradients(ls_adam(.weight_decay = 0.5), g, v, 2, NULL);
    assert_int_equal(warnings, 1);
    assert_int_equal(ls_eval(graph, NULL, 0, &step, 1), LS_OK);
    assert_int_equal(ls_variable_get(v[1], ones, sizeof(ones)), LS_OK);
    assert_true(ones[0] == 1 && ones[1] == 1);
    assert_int_equal(ls_variable_get(v[0], ones, sizeof(ones)), LS_OK);
    assert_true(ones[0] < 1);
    assert_int_equal(ls_graph_find(graph, "adam/used/velocity", &slot), LS_OK);
    assert_int_equal(ls_graph_find(graph, "adam/alone/velocity", &slot), LS_ERR_NOT_FOUND);
    ls_tensor *nothing = ls_apply_gradients(ls_sgd(), none, v, 2, NULL);
    assert_true(ls_tensor_is_error(nothing));
    assert_non_null(strstr(nothing->message, "none of 2 variables has a gradient"));
    ls_graph_destroy(graph);
    ls_context_close(ctx);
}

/* The fifth seed: RMSPropOptimizer(0.001, 0.9).minimize(cost, name="train_step"), fetched by its
 * name. */
static void minimize_is_fetched_by_name(void **state)
{
    (void)state;
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    ls_graph *graph;
    assert_int_equal(ls_graph_create(ctx, &graph), LS_OK);
    float four = 4, x = 3, frozen = 2;
    ls_tensor *fed = NULL, *train_step, *w = NULL, *fixed = NULL, *slot, *iterations;
    LS_NAME_SCOPE(graph, "g1")
    {
        fed = ls_op_input(graph, "x", LS_F32, LS_SHAPE(LS_BATCH));
        w = ls_op_variable(graph, "w", LS_F32, LS_SCALAR, .data = &four);
        fixed = ls_op_variable(graph, "fixed", LS_F32, LS_SCALAR, .data = &frozen, .frozen = true);
        ls_op_variable(graph, "counter", LS_I64, LS_SCALAR); /* trainable by default, but no float */
        ls_op_variable(graph, "elsewhere", LS_F32, LS_SCALAR);
        ls_tensor *cost = ls_op_reduce_mean(ls_op_square(ls_op_mul(fed, ls_op_mul(w, fixed))), LS_ALL_AXES, false);
        ls_minimize(ls_rmsprop_tf1(.learning_rate = 0.001, .rho = 0.9), cost, "train_step");
    }
    assert_int_equal(ls_graph_find(graph, "g1/train_step", &train_step), LS_OK);
    assert_int_equal(ls_graph_find(graph, "rmsprop_tf1/g1/w/velocity", &slot), LS_OK);
    assert_int_equal(ls_graph_find(graph, "rmsprop_tf1/g1/fixed/velocity", &slot), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_graph_find(graph, "rmsprop_tf1/iterations", &iterations), LS_OK);
    for (int i = 0; i < 3; i++) {
        ls_feed feed = { fed, ls_array_of(LS_F32, LS_SHAPE(1), &x) };
        assert_int_equal(ls_eval(graph, &feed, 1, &train_step, 1), LS_OK);
    }
    /* v = 0.9 v + 0.1 g^2 from 1, w -= 0.001 g / sqrt(v + 1e-10), with g = 2 w (3 * 2)^2 */
    double weight = 4, v = 1;
    for (int i = 0; i < 3; i++) {
        double g = 72 * weight;
        v = 0.9 * v + 0.1 * g * g;
        weight -= 0.001 * g / sqrt(v + 1e-10);
    }
    assert_true(test_is_near(test_scalar(w), weight, 1e-6));
    assert_true(test_scalar(fixed) == 2);
    assert_true(test_scalar(iterations) == 3);
    ls_graph_destroy(graph);
    ls_context_close(ctx);
}

/* Slots of each variable in turn, then the step: what a state's hash goes over. */
static void state_is_made_in_its_order(void **state)
{
    (void)state;
    static const char *const names[] = { "a/kernel",
                                         "a/bias",
                                         "b/kernel",
                                         "b/bias",
                                         "mean_absolute_error/sums",
                                         "adam/a/kernel/momentum",
                                         "adam/a/kernel/velocity",
                                         "adam/a/bias/momentum",
                                         "adam/a/bias/velocity",
                                         "adam/b/kernel/momentum",
                                         "adam/b/kernel/velocity",
                                         "adam/b/bias/momentum",
                                         "adam/b/bias/velocity",
                                         "adam/iterations" };
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    network n;
    open_network(&n, ctx, ls_adam(), 0);
    assert_int_equal(n.graph->variable_count, LENGTH(names));
    for (size_t i = 0; i < LENGTH(names); i++) {
        assert_string_equal(ls_tensor_name(n.graph->variables[i]->node), names[i]);
        assert_int_equal(n.graph->variables[i]->trainable, i < 4);
    }
    /* Another has state of its own, one with a name goes on with what is there. */
    ls_tensor *found, *again;
    size_t before = n.graph->variable_count;
    assert_false(ls_tensor_is_error(ls_minimize(ls_adam(), n.loss, NULL)));
    assert_int_equal(ls_graph_find(n.graph, "adam_1/b/bias/velocity", &found), LS_OK);
    assert_int_equal(n.graph->variable_count, before + 9);
    again = ls_minimize(ls_adam(.name = "adam", .global_clipnorm = 1), n.loss, "again");
    assert_false(ls_tensor_is_error(again));
    assert_int_equal(n.graph->variable_count, before + 9);
    train(&n, 0, 10);
    n.step = again;
    train(&n, 0, 10);
    assert_int_equal(ls_graph_find(n.graph, "adam/iterations", &found), LS_OK);
    assert_true(test_scalar(found) == 2);
    ls_graph_destroy(n.graph);
    ls_context_close(ctx);
}

/* A variable without a name has slots by its number; a fed rate is taken instead of the spec's. */
static void rates_can_be_fed(void **state)
{
    (void)state;
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    ls_graph *graph;
    assert_int_equal(ls_graph_create(ctx, &graph), LS_OK);
    ls_tensor *v = ls_op_variable(graph, NULL, LS_F64, LS_SCALAR), *rate = ls_op_input(graph, NULL, LS_F32, LS_SCALAR);
    ls_tensor *g = ls_op_scalar(graph, LS_F64, 2), *slot;
    ls_tensor *step = ls_apply_gradients(ls_sgd(.momentum = 0.5), &g, &v, 1, rate);
    float fed = 0.25f;
    ls_feed feed = { rate, ls_array_of(LS_F32, LS_SCALAR, &fed) };
    assert_int_equal(ls_eval(graph, &feed, 1, &step, 1), LS_OK);
    assert_true(test_scalar(v) == -0.5);
    assert_int_equal(ls_graph_find(graph, "sgd/variable_0/momentum", &slot), LS_OK);
    assert_true(test_scalar(slot) == -0.5);
    ls_graph_destroy(graph);
    ls_context_close(ctx);
}

/* ---- Refused ---- */

static void wrong_options_are_refused(void **state)
{
    (void)state;
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    ls_graph *graph;
    assert_int_equal(ls_graph_create(ctx, &graph), LS_OK);
    ls_tensor *v = ls_op_variable(graph, "w", LS_F32, LS_SHAPE(2)), *g = ls_op_input(graph, NULL, LS_F32, LS_SHAPE(2));
    const struct {
        ls_optimizer optimizer;
        const char *says;
    } rows[] = {
        { ls_sgd(.clipnorm = 1, .clipvalue = 2), "only one of clipnorm (1), clipvalue (2) and global_clipnorm (0)" },
        { ls_sgd(.clipnorm = 1, .global_clipnorm = 2), "only one of" },
        { ls_sgd(.clipnorm = -1), "clipnorm is -1" },
        { ls_sgd(.clipvalue = NAN), "clipvalue is" },
        { ls_sgd(.learning_rate = -0.1), "learning_rate is -0.1" },
        { ls_sgd(.learning_rate = INFINITY), "learning_rate is inf" },
        { ls_sgd(.momentum = 1.5), "momentum is 1.5" },
        { ls_sgd(.nesterov = true), "nesterov is set without momentum" },
        { ls_sgd(.beta_1 = 0.9), "sgd has no option beta_1" },
        { ls_sgd(.epsilon = 1), "sgd has no option epsilon" },
        { ls_adam(.momentum = 0.9), "adam has no option momentum" },
        { ls_adam(.rho = 0.9), "adam has no option rho" },
        { ls_adam(.beta_2 = 1), "beta_2 is 1" },
        { ls_rmsprop(.momentum = 0.9, .nesterov = true), "rmsprop has no option nesterov" },
        { ls_rmsprop(.initial_accumulator_value = 1), "rmsprop has no option initial_accumulator_value" },
        { ls_rmsprop_tf1(), "rmsprop_tf1: the learning rate is not set" },
        { ls_adagrad(.initial_accumulator_value = -1), "initial_accumulator_value is -1" },
        { ls_adam(.gradient_accumulation_steps = -2), "gradient_accumulation_steps is -2" },
        { ls_adam(.weight_decay = -1), "weight_decay is -1" },
        { ls_adam(.learning_rate = 0.1, .schedule = ls_exponential_decay(0.1, 3, 0.5, false)), "set only one" },
        { ls_adam(.schedule = { .rate = 0.1 }), "set .learning_rate = 0.1" },
        { ls_adam(.name = "a b"), "\"a b/w/momentum\" is not a valid name" },
        { (ls_optimizer){ .kind = 33 }, "no optimizer number 33" },
        { (ls_optimizer){ .kind = LS_OPTIMIZER_NONE }, "no optimizer number 0" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        ls_tensor *step = ls_apply_gradients(rows[i].optimizer, &g, &v, 1, NULL);
        assert_true(ls_tensor_is_error(step));
        if (!strstr(step->message, rows[i].says))
            fail_msg("\"%s\" does not say \"%s\"", step->message, rows[i].says);
    }
    assert_int_equal(graph->variable_count, 1); /* nothing stays behind */
    ls_graph_destroy(graph);
    ls_context_close(ctx);
}

static void wrong_gradients_are_refused(void **state)
{
    (void)state;
    ls_context *ctx;
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    ls_graph *graph, *other;
    assert_int_equal(ls_graph_create(ctx, &graph), LS_OK);
    assert_int_equal(ls_graph_create(ctx, &other), LS_OK);
    ls_tensor *w = ls_op_variable(graph, "w", LS_F32, LS_SHAPE(2)),
              *k = ls_op_variable(graph, "k", LS_I64, LS_SHAPE(2));
    ls_tensor *right = ls_op_input(graph, NULL, LS_F32, LS_SHAPE(2)), *no_scalar = right;
    const struct {
        ls_tensor *gradient, *variable, *rate;
        const char *says;
    } rows[] = {
        { ls_op_input(graph, NULL, LS_F32, LS_SHAPE(3)), w, NULL,
          "w is float32 (2,), but its gradient is float32 (3,)" },
        { ls_op_input(graph, NULL, LS_F32, LS_SHAPE(1)), w, NULL, "its gradient is float32 (1,)" },
        { ls_op_input(graph, NULL, LS_F64, LS_SHAPE(2)), w, NULL, "its gradient is float64 (2,)" },
        { ls_op_input(graph, NULL, LS_F32, LS_SHAPE(LS_BATCH)), w, NULL, "its gradient is float32 (batch,)" },
        { right, right, NULL, "is not a variable of type float32" },
        { right, k, NULL, "k is not a variable of type float32" },
        { ls_op_input(other, NULL, LS_F32, LS_SHAPE(2)), w, NULL, "another graph" },
        { right, w, no_scalar, "the learning rate must be a float scalar" },
        { ls_op_add(w, k), w, NULL, "types differ" },
    };
    for (size_t i = 0; i < LENGTH(rows); i++)
        for (int64_t every = 1; every < 3; every++) {
            ls_tensor *step = ls_apply_gradients(ls_sgd(.gradient_accumulation_steps = every), &rows[i].gradient,
                                                 &rows[i].variable, 1, rows[i].rate);
            assert_true(ls_tensor_is_error(step));
            if (!strstr(step->message, rows[i].says))
                fail_msg("\"%s\" does not say \"%s\"", step->message, rows[i].says);
        }
    ls_tensor *step = ls_minimize(ls_sgd(), ls_op_reduce_sum(right, LS_ALL_AXES, false), "step");
    assert_true(ls_tensor_is_error(step));
    assert_non_null(strstr(step->message, "depends on none of the graph's"));
    assert_null(ls_minimize(ls_sgd(), NULL, NULL));
    assert_null(ls_apply_gradients(ls_sgd(), NULL, NULL, 0, NULL));
    ls_graph_destroy(other);
    ls_graph_destroy(graph);
    ls_context_close(ctx);
}

int main(void)
{
    TEST_SUITE_ADD(schedules_are_those_of_keras);
    TEST_SUITE_ADD(rates_by_batch_size);
    TEST_SUITE_ADD(wrong_schedules_are_refused);
    TEST_SUITE_ADD(optimizers_are_those_of_keras);
    TEST_SUITE_ADD(every_kind_has_cases);
    TEST_SUITE_ADD(another_learning_rate_is_noticed);
    TEST_SUITE_ADD(every_option_counts);
    TEST_SUITE_ADD(accumulated_updates_have_the_bits_of_plain_ones);
    TEST_SUITE_ADD(parts_of_any_size_make_one_big_batch);
    TEST_SUITE_ADD(states_are_equal_on_any_devices);
    TEST_SUITE_ADD(global_norm_can_be_fetched);
    TEST_SUITE_ADD(gradients_that_are_not_finite_stop_the_run);
    TEST_SUITE_ADD(norms_are_summed_in_double);
    TEST_SUITE_ADD(variables_without_a_gradient_are_left_alone);
    TEST_SUITE_ADD(minimize_is_fetched_by_name);
    TEST_SUITE_ADD(state_is_made_in_its_order);
    TEST_SUITE_ADD(rates_can_be_fed);
    TEST_SUITE_ADD(wrong_options_are_refused);
    TEST_SUITE_ADD(wrong_gradients_are_refused);
    return test_suite_run("optimizers");
}
