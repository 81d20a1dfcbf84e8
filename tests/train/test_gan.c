/* Two models in one graph (ls_model_join, ls_model_minimize): a generator and a discriminator, each
 * with its optimizer, its names and its files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "folder.h"
#include "lockstep.h"
#include "machine.h"

#define BATCH  6
#define NOISE  2
#define HIDDEN 3
#define DATA   2
#define STEPS  4

/* As in tests/reference/make_gan.py. */
static void numbers(float *out, int count, int step)
{
    for (int i = 0; i < count; i++)
        out[i] = (float)((double)(i * step % 41) / 20.5 - 1);
}

typedef struct gan {
    ls_model *generator, *discriminator;
    bool of_generator, of_discriminator; /* which of them a step trains */
} gan;

static ls_tensor *entropy(ls_tensor *said, double answer)
{
    ls_tensor *targets = ls_op_fill(ls_tensor_graph(said), LS_F32, LS_SHAPE(LS_BATCH, 1), answer);
    return ls_loss_value(ls_binary_crossentropy(.from_logits = true), targets, said, NULL);
}

/* inputs: real data, noise */
static void train_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    const gan *t = user;
    ls_tensor *fake = ls_model_apply(t->generator, inputs[1], true);
    ls_tensor *of_real = ls_model_apply(t->discriminator, inputs[0], true);
    ls_tensor *of_fake = ls_model_apply(t->discriminator, fake, true);
    outputs[0] = ls_op_add(entropy(of_real, 1), entropy(of_fake, 0));
    outputs[1] = entropy(of_fake, 1);
    if (t->of_discriminator)
        ls_model_minimize(t->discriminator, ls_sgd(0.1), outputs[0]);
    if (t->of_generator)
        ls_model_minimize(t->generator, ls_sgd(0.05, .momentum = 0.9), outputs[1]);
}

static void set_weights(ls_model *model, const int steps[2])
{
    float data[16];
    for (size_t v = 0; v < 4; v++) {
        ls_tensor *variable = ls_model_variable(model, v);
        ls_shape shape = ls_tensor_shape(variable);
        int count = (int)(shape.rank == 2 ? shape.dims[0] * shape.dims[1] : shape.dims[0]);
        numbers(data, count, steps[v / 2] + (v % 2 ? 2 : 0));
        OK(ls_variable_set(variable, data, (size_t)count * sizeof(float)));
    }
}

static void open_gan(ls_context *ctx, gan *t)
{
    OK(ls_sequential(ctx, "generator", &t->generator, ls_input(NOISE), ls_dense(HIDDEN, .activation = LS_TANH),
                     ls_dense(DATA)));
    OK(ls_sequential(ctx, "discriminator", &t->discriminator, ls_input(DATA), ls_dense(HIDDEN, .activation = LS_TANH),
                     ls_dense(1)));
    set_weights(t->generator, (const int[]){ 7, 11 });
    set_weights(t->discriminator, (const int[]){ 13, 17 });
    OK(ls_model_join(t->discriminator, t->generator));
    t->of_generator = t->of_discriminator = true;
}

static void close_gan(gan *t)
{
    ls_model_destroy(t->generator); /* the graph's first owner goes first */
    ls_model_destroy(t->discriminator);
}

static void run(ls_loop_step *step, int number, double losses[2])
{
    float real[BATCH * DATA], noise[BATCH * NOISE];
    ls_tensor *out[2];
    numbers(real, BATCH * DATA, 5 + number);
    numbers(noise, BATCH * NOISE, 19 + number);
    ls_element batch = { .count = 2,
                         .component = { ls_array_of(LS_F32, LS_SHAPE(BATCH, DATA), real),
                                        ls_array_of(LS_F32, LS_SHAPE(BATCH, NOISE), noise) } };
    OK(ls_strategy_run(step, &batch, out));
    for (int i = 0; i < 2; i++)
        OK(ls_read_scalar(out[i], &losses[i]));
}

static ls_context *open_one(void)
{
    ls_context *ctx = NULL;
    OK(ls_context_open(&(ls_context_options){ .cpu_devices = 1, .threads = 1 }, &ctx));
    return ctx;
}

/* ---- PyTorch ---- */

static void near(const char *what, double found, double expected)
{
    if (!(fabs(found - expected) <= 2e-5 * fmax(1, fabs(expected))))
        fail_msg("%s: %.9g, but PyTorch has %.9g", what, found, expected);
}

static void compare(ls_model *model, const json_t *expected)
{
    float data[16];
    for (size_t v = 0; v < 4; v++) {
        const json_t *list = json_array_get(expected, v);
        size_t count = json_array_size(list);
        assert_true(count > 0 && count <= 16);
        OK(ls_variable_get(ls_model_variable(model, v), data, count * sizeof(float)));
        for (size_t i = 0; i < count; i++)
            near(ls_model_variable_name(model, v), data[i], json_real_value(json_array_get(list, i)));
    }
}

static void steps_are_those_of_pytorch(void **state)
{
    (void)state;
    json_error_t error;
    json_t *file = json_load_file("tests/reference/gan.json", 0, &error);
    if (!file)
        fail_msg("gan.json: %s", error.text);
    for (int both = 0; both < 2; both++) {
        const json_t *expected = json_object_get(file, both ? "one_step" : "two_steps");
        ls_context *ctx = open_one();
        ls_loop_step *step[2] = { NULL, NULL };
        gan t, first;
        double losses[2], ignored[2];
        open_gan(ctx, &t);
        first = t;
        if (!both) {
            first.of_generator = t.of_discriminator = false;
            OK(ls_loop_step_create(ls_model_graph(t.generator), train_step, &first, 2, &step[0]));
        }
        OK(ls_loop_step_create(ls_model_graph(t.generator), train_step, &t, 2, &step[1]));
        for (int i = 0; i < STEPS; i++) {
            const json_t *pair = json_array_get(json_object_get(expected, "losses"), (size_t)i);
            if (!both)
                run(step[0], i, losses);
            run(step[1], i, both ? losses : ignored);
            near("the loss of the discriminator", losses[0], json_real_value(json_array_get(pair, 0)));
            near("the loss of the generator", (both ? losses : ignored)[1], json_real_value(json_array_get(pair, 1)));
        }
        compare(t.generator, json_object_get(expected, "generator"));
        compare(t.discriminator, json_object_get(expected, "discriminator"));
        ls_loop_step_destroy(step[0]);
        ls_loop_step_destroy(step[1]);
        close_gan(&t);
        ls_context_close(ctx);
    }
    json_decref(file);
}

/* ---- Gradients ---- */

static void a_step_changes_only_its_model(void **state)
{
    (void)state;
    ls_context *ctx = open_one();
    for (int which = 0; which < 2; which++) {
        gan t;
        ls_loop_step *step = NULL;
        double losses[2];
        char before[2][65], after[2][65];
        open_gan(ctx, &t);
        t.of_generator = which == 0;
        t.of_discriminator = which == 1;
        OK(ls_model_weights_sha256(t.generator, before[0]));
        OK(ls_model_weights_sha256(t.discriminator, before[1]));
        OK(ls_loop_step_create(ls_model_graph(t.discriminator), train_step, &t, 2, &step));
        run(step, 0, losses);
        OK(ls_model_weights_sha256(t.generator, after[0]));
        OK(ls_model_weights_sha256(t.discriminator, after[1]));
        assert_string_not_equal(before[which], after[which]);
        assert_string_equal(before[1 - which], after[1 - which]);
        ls_loop_step_destroy(step);
        close_gan(&t);
    }
    ls_context_close(ctx);
}

/* Frozen layers stay as they are, also of a model that has joined. */
static void frozen_layers_do_not_learn(void **state)
{
    (void)state;
    ls_context *ctx = open_one();
    gan t;
    ls_loop_step *step = NULL;
    double losses[2];
    float before[2][DATA * HIDDEN], after[2][DATA * HIDDEN];
    open_gan(ctx, &t);
    OK(ls_model_set_trainable(t.discriminator, "dense", false));
    OK(ls_loop_step_create(ls_model_graph(t.generator), train_step, &t, 2, &step));
    for (size_t k = 0; k < 2; k++)
        OK(ls_variable_get(ls_model_variable(t.discriminator, 2 * k), before[k], (k ? HIDDEN : DATA * HIDDEN) * 4));
    run(step, 0, losses);
    for (size_t k = 0; k < 2; k++)
        OK(ls_variable_get(ls_model_variable(t.discriminator, 2 * k), after[k], (k ? HIDDEN : DATA * HIDDEN) * 4));
    assert_memory_equal(before[0], after[0], DATA * HIDDEN * 4);
    assert_memory_not_equal(before[1], after[1], HIDDEN * 4);
    ls_loop_step_destroy(step);
    close_gan(&t);
    ls_context_close(ctx);
}

/* ---- One result ---- */

#define SIDE 8

/* Convolutions, batch norm and dropout in both models; noise from the graph. */
static void large_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    ls_tensor *noise = ls_op_random_normal(ls_tensor_graph(inputs[0]), LS_F32, LS_SHAPE(LS_BATCH, 4), 0, 1);
    ls_tensor *both[] = { inputs[0], noise };
    train_step(both, outputs, user);
}

static void train_large(int cpus, int gpus, ls_strategy strategy, char hash[2][65])
{
    machine m;
    gan t = { .of_generator = true, .of_discriminator = true };
    ls_loop_step *step = NULL;
    static float images[11 * SIDE * SIDE];
    ls_tensor *out[2];
    machine_create(&m, (machine_settings){ .gpu = { .devices = gpus, .memory = LS_MIB(4), .delay = -1 },
                                           .options = { .cpu_devices = cpus, .threads = cpus > 2 ? cpus : 2 } });
    OK(ls_sequential(m.ctx, "generator", &t.generator, ls_input(4), ls_dense(4 * SIDE * SIDE / 4),
                     ls_batch_normalization(), ls_relu(), ls_reshape(SIDE / 2, SIDE / 2, 4),
                     ls_conv2d_transpose(1, 3, 2, .padding = LS_SAME, .activation = LS_TANH)));
    OK(ls_sequential(m.ctx, "discriminator", &t.discriminator, ls_input(SIDE, SIDE, 1),
                     ls_conv2d(4, 3, 2, .padding = LS_SAME), ls_batch_normalization(), ls_dropout(0.3), ls_flatten(),
                     ls_dense(1)));
    OK(ls_model_join(t.discriminator, t.generator));
    OK(ls_graph_set_strategy(ls_model_graph(t.generator), strategy));
    OK(ls_graph_set_lanes(ls_model_graph(t.generator), 5));
    OK(ls_loop_step_create(ls_model_graph(t.generator), large_step, &t, 2, &step));
    for (int i = 0; i < 3; i++) {
        numbers(images, 11 * SIDE * SIDE, 3 + i);
        ls_element batch = { .count = 1,
                             .component = { ls_array_of(LS_F32, LS_SHAPE(11 - i, SIDE, SIDE, 1), images) } };
        OK(ls_strategy_run(step, &batch, out));
    }
    OK(ls_model_weights_sha256(t.generator, hash[0]));
    OK(ls_model_weights_sha256(t.discriminator, hash[1]));
    ls_loop_step_destroy(step);
    ls_model_destroy(t.discriminator);
    ls_model_destroy(t.generator);
    machine_close(&m);
}

static void one_hash_on_any_devices(void **state)
{
    (void)state;
    const struct {
        int cpus, gpus;
        ls_strategy strategy;
    } ways[] = { { 2, 0, ls_mirrored() },
                 { 3, 0, ls_data_parallel() },
                 { 2, 0, ls_model_parallel() },
                 { 3, 0, ls_pipeline() },
                 { 1, 2, ls_mirrored() },
                 { 3, 0, ls_mirrored() },
                 { 2, 0, ls_pipeline(.order = LS_FILL_DRAIN) } };
    char expected[2][65], found[2][65];
    train_large(1, 0, ls_one_device(), expected);
    assert_string_not_equal(expected[0], expected[1]);
    for (size_t i = 0; i < LENGTH(ways); i++) {
        train_large(ways[i].cpus, ways[i].gpus, ways[i].strategy, found);
        for (int k = 0; k < 2; k++)
            if (strcmp(found[k], expected[k]) != 0)
                fail_msg("way %zu: the %s is %s instead of %s", i, k ? "discriminator" : "generator", found[k],
                         expected[k]);
    }
}

/* ---- Statistics of a batch norm that a step applies twice ---- */

static void norm_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    ls_model *model = user;
    ls_tensor *first = ls_model_apply(model, inputs[0], true), *second = ls_model_apply(model, inputs[1], true);
    outputs[0] = ls_op_reduce_mean(ls_op_add(first, second), LS_ALL_AXES, false);
}

static void both_calls_of_a_norm_move_its_statistics(void **state)
{
    (void)state;
    ls_context *ctx = open_one();
    ls_model *model = NULL;
    ls_loop_step *step = NULL;
    ls_tensor *out;
    float a[4] = { 1, 2, 3, 6 }, b[4] = { -1, 0, 0, -3 }, mean;
    OK(ls_sequential(ctx, "norm", &model, ls_input(1), ls_batch_normalization(.momentum = 0.75)));
    OK(ls_loop_step_create(ls_model_graph(model), norm_step, model, 1, &step));
    ls_element batch = {
        .count = 2, .component = { ls_array_of(LS_F32, LS_SHAPE(4, 1), a), ls_array_of(LS_F32, LS_SHAPE(4, 1), b) }
    };
    double expected = 0;
    for (int i = 0; i < 2; i++) {
        OK(ls_strategy_run(step, &batch, &out));
        expected = (expected * 0.75 + 3 * 0.25) * 0.75 - 1 * 0.25;
        OK(ls_variable_get(ls_model_variable(model, 2), &mean, sizeof(mean)));
        if (!(fabs(mean - expected) <= 1e-6))
            fail_msg("step %d: the moving mean is %.9g instead of %.9g", i, mean, expected);
    }
    ls_loop_step_destroy(step);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- Random numbers ---- */

static void drop_step(ls_tensor *const *inputs, ls_tensor **outputs, void *user)
{
    ls_model **models = user;
    for (int i = 0; i < 2; i++)
        outputs[i] = ls_model_apply(models[i], inputs[0], true);
}

static void the_models_draw_their_own_numbers(void **state)
{
    (void)state;
    ls_context *ctx = open_one();
    ls_model *models[2];
    ls_loop_step *step = NULL;
    ls_tensor *out[2];
    float ones[64], a[64], b[64];
    for (int i = 0; i < 64; i++)
        ones[i] = 1;
    OK(ls_sequential(ctx, "a", &models[0], ls_input(64), ls_dropout(0.5)));
    OK(ls_sequential(ctx, "b", &models[1], ls_input(64), ls_dropout(0.5)));
    OK(ls_model_join(models[1], models[0]));
    OK(ls_loop_step_create(ls_model_graph(models[0]), drop_step, models, 2, &step));
    ls_element batch = { .count = 1, .component = { ls_array_of(LS_F32, LS_SHAPE(1, 64), ones) } };
    OK(ls_strategy_run(step, &batch, out));
    OK(ls_read(out[0], a, sizeof(a)));
    OK(ls_read(out[1], b, sizeof(b)));
    assert_memory_not_equal(a, b, sizeof(a));
    ls_loop_step_destroy(step);
    ls_model_destroy(models[1]);
    ls_model_destroy(models[0]);
    ls_context_close(ctx);
}

/* ---- Names and files ---- */

static void each_model_has_its_names_and_files(void **state)
{
    (void)state;
    ls_context *ctx = open_one();
    char alone[65], joined[65], loaded[65];
    ls_model *plain = NULL;
    ls_tensor *found = NULL;
    ls_array predicted = { .data = NULL };
    float noise[BATCH * NOISE];
    gan t;
    open_gan(ctx, &t);
    OK(ls_sequential(ctx, "discriminator", &plain, ls_input(DATA), ls_dense(HIDDEN, .activation = LS_TANH),
                     ls_dense(1)));
    set_weights(plain, (const int[]){ 13, 17 });
    OK(ls_model_weights_sha256(plain, alone));
    OK(ls_model_weights_sha256(t.discriminator, joined));
    assert_string_equal(alone, joined); /* names and values */
    assert_string_equal(ls_model_variable_name(t.discriminator, 0), "dense/kernel");
    assert_string_equal(ls_model_variable_name(t.generator, 0), "dense/kernel");
    OK(ls_graph_find(ls_model_graph(t.generator), "discriminator/dense/kernel", &found));
    assert_ptr_equal(found, ls_model_variable(t.discriminator, 0));

    const char *path = in_folder("d.safetensors");
    OK(ls_model_save_weights(t.discriminator, path));
    OK(ls_model_initialize(plain, 3));
    OK(ls_model_load_weights(plain, path));
    OK(ls_model_weights_sha256(plain, loaded));
    assert_string_equal(loaded, alone);
    OK(ls_model_initialize(t.discriminator, 3));
    OK(ls_model_load_weights(t.discriminator, path));
    OK(ls_model_weights_sha256(t.discriminator, loaded));
    assert_string_equal(loaded, alone);
    OK(ls_model_weights_sha256(t.generator, joined));
    assert_string_not_equal(joined, alone);

    numbers(noise, BATCH * NOISE, 3);
    for (int i = 0; i < 4; i++) {
        OK(ls_predict_array(i % 2 ? t.discriminator : t.generator, ls_array_of(LS_F32, LS_SHAPE(BATCH, NOISE), noise),
                            &predicted));
        free(predicted.data);
    }
    OK(ls_compile(t.generator, .optimizer = ls_sgd(0.1), .loss = ls_mean_squared_error()));
    FAILS(ls_predict_array(t.discriminator, ls_array_of(LS_F32, LS_SHAPE(BATCH, DATA), noise), &predicted),
          LS_ERR_STATE, "discriminator", "ls_nested");
    ls_model_destroy(plain);
    close_gan(&t);
    ls_context_close(ctx);
}

/* ---- Wrong calls ---- */

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    ls_context *ctx = open_one(), *other = open_one();
    ls_model *a = NULL, *b = NULL, *c = NULL, *far = NULL, *spaced = NULL, *outer = NULL;
    float value;
    OK(ls_sequential(ctx, "a", &a, ls_input(2), ls_dense(1)));
    OK(ls_sequential(ctx, "b", &b, ls_input(2), ls_dense(1)));
    OK(ls_sequential(ctx, "b", &c, ls_input(2), ls_dense(1)));
    OK(ls_sequential(ctx, "my model", &spaced, ls_input(2), ls_dense(1)));
    OK(ls_sequential(ctx, "outer", &outer, ls_input(2), ls_nested(b)));
    OK(ls_sequential(other, "far", &far, ls_input(2), ls_dense(1)));
    FAILS(ls_model_join(a, a), LS_ERR_INVALID, "\"a\"", "already");
    FAILS(ls_model_join(far, a), LS_ERR_INVALID, "\"far\"", "another context");
    FAILS(ls_model_join(spaced, a), LS_ERR_INVALID, "my model", "without spaces");
    FAILS(ls_model_join(b, outer), LS_ERR_INVALID, "b/dense/kernel", "another name");
    ls_tensor *x = ls_op_fill(ls_model_graph(a), LS_F32, LS_SHAPE(3, 2), 1);
    ls_tensor *loss = ls_op_reduce_mean(ls_model_apply(a, x, true), LS_ALL_AXES, false);
    FAILS(ls_model_join(a, c), LS_ERR_STATE, "\"a\"", "before the model is compiled or traced");
    FAILS(ls_read(ls_model_minimize(b, ls_sgd(0.1), loss), &value, sizeof(value)), LS_ERR_INVALID, "another graph",
          "ls_model_join");
    OK(ls_model_join(b, a));
    FAILS(ls_read(ls_model_minimize(b, ls_sgd(0.1), loss), &value, sizeof(value)), LS_ERR_INVALID, "none of the 2",
          "\"b\"");
    FAILS(ls_model_join(c, a), LS_ERR_INVALID, "b/dense", "another name");
    FAILS(ls_model_join(b, c), LS_ERR_STATE, "\"b\"", "shares its graph");
    OK(ls_compile(outer, .optimizer = ls_sgd(0.1), .loss = ls_mean_squared_error()));
    FAILS(ls_model_join(c, outer), LS_ERR_STATE, "scope", "\"outer\"");
    FAILS(ls_model_join(outer, c), LS_ERR_STATE, "outer", "compiled");
    ls_model *all[] = { a, c, b, spaced, outer, far };
    for (size_t i = 0; i < LENGTH(all); i++)
        ls_model_destroy(all[i]);
    ls_context_close(other);
    ls_context_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_pytorch),
        cmocka_unit_test(a_step_changes_only_its_model),
        cmocka_unit_test(frozen_layers_do_not_learn),
        cmocka_unit_test(one_hash_on_any_devices),
        cmocka_unit_test(both_calls_of_a_norm_move_its_statistics),
        cmocka_unit_test(the_models_draw_their_own_numbers),
        cmocka_unit_test(each_model_has_its_names_and_files),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
