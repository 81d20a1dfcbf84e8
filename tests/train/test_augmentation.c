/* Layers that change images randomly: what is random about them, and one hash of a training with
 * all of them under every strategy and after resuming. test_keras_layers compares the rest with
 * Keras. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder.h"
#include "lockstep.h"
#include "machine.h"
#include "samples.h"

#define BATCH 400
#define SIDE  6

static ls_context *ctx;
static float images[BATCH][SIDE][SIDE], changed[BATCH][SIDE][SIDE]; /* a smaller result is dense */

/* Different numbers in every image, from 1 to 100. */
static void fill_images(void)
{
    for (int s = 0; s < BATCH; s++)
        for (int i = 0; i < SIDE * SIDE; i++)
            images[s][i / SIDE][i % SIDE] = 1 + (float)((i * 29 + s * 7) % 100);
}

/* Writes what the layer makes of the images to `changed`. */
static void apply(ls_layer layer, bool training)
{
    ls_model *model = NULL;
    ls_trace extra;
    ls_tensor *y;
    ls_array value;
    OK(ls_sequential(ctx, "one", &model, ls_input(SIDE, SIDE, 1), layer));
    ls_tensor *x = ls_op_input(ls_model_graph(model), NULL, LS_F32, LS_SHAPE(LS_BATCH, SIDE, SIDE, 1));
    OK(ls_model_trace(model, &x, training, &y, &extra));
    free(extra.updates);
    ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(BATCH, SIDE, SIDE, 1), images) };
    OK(ls_eval(ls_model_graph(model), &feed, 1, &y, 1));
    OK(ls_value(y, &value));
    size_t bytes = sizeof(float) * BATCH * (size_t)(value.shape.dims[1] * value.shape.dims[2]);
    assert_true(bytes <= sizeof changed);
    memcpy(changed, value.data, bytes);
    ls_model_destroy(model);
}

/* ---- What is random ---- */

static void inference_changes_nothing(void **state)
{
    (void)state;
    const ls_layer layers[] = { ls_random_flip(),
                                ls_random_translation(.height_factor = { 0.5 }, .width_factor = { 0.5 }),
                                ls_random_zoom(.height_factor = { 0.5 }),
                                ls_random_rotation(.factor = { 0.5 }),
                                ls_random_contrast(.factor = { 0.5 }),
                                ls_random_brightness(.factor = { 0.5 }),
                                ls_random_erasing() };
    for (size_t i = 0; i < LENGTH(layers); i++) {
        apply(layers[i], false);
        assert_memory_equal(changed, images, sizeof images);
        apply(layers[i], true);
        assert_memory_not_equal(changed, images, sizeof images);
    }
}

static void half_of_the_images_are_flipped(void **state)
{
    (void)state;
    for (int mode = LS_HORIZONTAL; mode <= LS_HORIZONTAL_AND_VERTICAL; mode++) {
        int flipped = 0;
        apply(ls_random_flip((ls_flip_mode)mode), true);
        for (int s = 0; s < BATCH; s++) {
            bool flip = memcmp(images[s], changed[s], sizeof images[s]) != 0;
            flipped += flip;
            for (int y = 0; y < SIDE; y++)
                for (int x = 0; x < SIDE; x++)
                    assert_true(changed[s][y][x] == images[s][flip && mode != LS_HORIZONTAL ? SIDE - 1 - y : y]
                                                          [flip && mode != LS_VERTICAL ? SIDE - 1 - x : x]);
        }
        assert_in_range(flipped, BATCH / 2 - 40, BATCH / 2 + 40); /* 4 deviations */
    }
}

static void crops_are_windows_of_any_place(void **state)
{
    (void)state;
    enum { H = 4, W = 3 };
    int found[SIDE - H + 1][SIDE - W + 1] = { { 0 } };
    apply(ls_random_crop(H, W), true);
    const float *window = &changed[0][0][0];
    for (int s = 0; s < BATCH; s++, window += H * W) {
        int hits = 0;
        for (int top = 0; top <= SIDE - H; top++)
            for (int left = 0; left <= SIDE - W; left++) {
                bool same = true;
                for (int i = 0; i < H * W; i++)
                    same = same && window[i] == images[s][top + i / W][left + i % W];
                hits += same;
                found[top][left] += same;
            }
        assert_int_equal(hits, 1);
    }
    for (int i = 0; i < 12; i++)
        assert_in_range(found[i / 4][i % 4], 10, 60); /* 33 expected */
}

/* The largest centered window of the aspect ratio, resized. */
static void crops_in_inference_are_resized(void **state)
{
    (void)state;
    static float expected[BATCH * SIDE * SIDE];
    for (int training = 0; training < 2; training++) { /* images that are not larger: also in training */
        int64_t height = training ? 6 : 4, width = 3;
        apply(ls_resizing(height, width, .crop_to_aspect_ratio = true), false);
        memcpy(expected, changed, sizeof expected);
        apply(ls_random_crop(height, width), training);
        assert_memory_equal(changed, expected, sizeof(float) * (size_t)(BATCH * height * width));
    }
}

/* Each image has one factor, from 1 - 0.25 to 1 + 0.5. */
static void contrast_is_a_factor_of_each_image(void **state)
{
    (void)state;
    double least = 9, most = 0, sum = 0;
    apply(ls_random_contrast(.factor = { 0.25, 0.5 }, .value_range = { -1000, 1000 }), true);
    for (int s = 0; s < BATCH; s++) {
        double mean = 0, factor;
        for (int i = 0; i < SIDE * SIDE; i++)
            mean += images[s][i / SIDE][i % SIDE] / (SIDE * SIDE);
        factor = (changed[s][0][0] - changed[s][0][1]) / (images[s][0][0] - images[s][0][1]);
        for (int i = 0; i < SIDE * SIDE; i++)
            assert_true(fabs((images[s][i / SIDE][i % SIDE] - mean) * factor + mean - changed[s][i / SIDE][i % SIDE]) <
                        1e-3);
        least = fmin(least, factor);
        most = fmax(most, factor);
        sum += factor;
    }
    assert_true(least > 0.7499 && least < 0.77 && most > 1.48 && most < 1.5001);
    assert_true(fabs(sum / BATCH - 1.125) < 0.05);
}

static void erased_boxes_have_the_asked_size(void **state)
{
    (void)state;
    int erased = 0;
    double area = 0;
    apply(ls_random_erasing(.factor = { 0.5, 0.5 }, .scale = { 0.25, 0.25 }, .fill_value = { LS_ZERO }), true);
    for (int s = 0; s < BATCH; s++) {
        int zeros = 0;
        for (int i = 0; i < SIDE * SIDE; i++) {
            bool zero = changed[s][i / SIDE][i % SIDE] == 0;
            zeros += zero;
            assert_true(zero || changed[s][i / SIDE][i % SIDE] == images[s][i / SIDE][i % SIDE]);
        }
        assert_true(zeros == 0 || zeros == 9); /* 3 x 3 pixels */
        erased += zeros > 0;
        area += zeros;
    }
    assert_in_range(erased, BATCH / 2 - 40, BATCH / 2 + 40);
    assert_true(area > 0);
}

/* Keras: normal numbers, clipped to the range of values. */
static void erased_boxes_are_noise_by_default(void **state)
{
    (void)state;
    int low = 0, high = 0, between = 0;
    apply(ls_random_erasing(.factor = { 1, 1 }, .scale = { 1, 1 }), true);
    for (int i = 0; i < BATCH * SIDE * SIDE; i++) {
        float value = (&changed[0][0][0])[i];
        assert_true(value >= 0 && value <= 255);
        low += value == 0;
        high += value == 255;
        between += value > 0 && value < 255;
    }
    assert_in_range(low, 7000, 7400);  /* 1/2 of 14,400 */
    assert_in_range(high, 2100, 2480); /* 0.159 */
    assert_in_range(between, 4700, 5120);
}

/* Equal seeds: equal numbers in any layer; others differ. */
static void layers_of_one_seed_draw_the_same(void **state)
{
    (void)state;
    static float first[BATCH][SIDE][SIDE];
    apply(ls_random_brightness(.factor = { 0.5 }, .seed = 5), true);
    memcpy(first, changed, sizeof first);
    apply(ls_random_brightness(.factor = { 0.5 }, .seed = 5, .name = "other"), true);
    assert_memory_equal(first, changed, sizeof first);
    apply(ls_random_brightness(.factor = { 0.5 }, .seed = 6), true);
    assert_memory_not_equal(first, changed, sizeof first);
    apply(ls_random_brightness(.factor = { 0.5 }), true);
    assert_memory_not_equal(first, changed, sizeof first);
}

/* ---- One hash ---- */

#define SAMPLES 21
#define PIXELS  9

typedef struct who {
    ls_strategy strategy;
    int cpus, gpus;
    bool resumes; /* after the first of two epochs, in another model */
} who;

static ls_model *make_network(ls_context *in)
{
    ls_model *model;
    OK(ls_sequential(in, "net", &model, ls_input(PIXELS, PIXELS, 1), ls_random_flip(),
                     ls_random_translation(.height_factor = { 0.2 }, .width_factor = { 0.2 }),
                     ls_random_rotation(.factor = { 0.5 }, .fill_mode = LS_FILL_WRAP),
                     ls_random_zoom(.height_factor = { 0.3 }, .fill_mode = LS_FILL_CONSTANT), ls_random_crop(8, 7),
                     ls_random_contrast(.factor = { 0.5 }, .value_range = { 0, 2 }),
                     ls_random_brightness(.factor = { 0.2 }, .value_range = { 0, 2 }),
                     ls_conv2d(4, 3, .activation = LS_RELU), ls_random_rotation(.factor = { 0.1 }), /* has a gradient */
                     ls_random_erasing(.value_range = { 0, 2 }), ls_flatten(), ls_dense(3, .activation = LS_SOFTMAX)));
    OK(ls_compile(model, .optimizer = ls_adam(0.01), .loss = ls_sparse_categorical_crossentropy()));
    return model;
}

static void train(const who *w, char hash[65])
{
    static float pixels[SAMPLES * PIXELS * PIXELS];
    static int32_t labels[SAMPLES];
    machine m;
    samples_fill_floats(pixels, labels, SAMPLES, PIXELS * PIXELS, 3);
    ls_array x = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, PIXELS, PIXELS, 1), pixels);
    ls_array y = ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels);
    machine_create(&m, (machine_settings){ .gpu = { .devices = w->gpus, .memory = LS_MIB(4), .delay = -1 },
                                           .options = { .cpu_devices = w->cpus, .threads = 2 } });
    ls_model *model = make_network(m.ctx);
    if (w->resumes) {
        OK(ls_fit_arrays(model, x, y, .epochs = 1, .batch_size = 8, .lanes = 4, .strategy = w->strategy,
                         .verbose = LS_VERBOSE_SILENT));
        OK(ls_checkpoint_save(model, in_folder("saved")));
        ls_model_destroy(model);
        model = make_network(m.ctx);
        OK(ls_checkpoint_restore(model, in_folder("saved")));
    }
    OK(ls_fit_arrays(model, x, y, .epochs = 2, .initial_epoch = w->resumes, .batch_size = 8, .lanes = 4,
                     .strategy = w->strategy, .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_state_sha256(model, hash));
    ls_model_destroy(model);
    machine_close(&m);
}

static void one_hash_under_every_strategy_and_after_resuming(void **state)
{
    (void)state;
    static const who all[] = {
        { { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "cpu:0" }, 1, 0, false },
        { { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "cpu:0" }, 1, 0, true },
        { { .kind = LS_STRATEGY_MIRRORED }, 2, 0, false },
        { { .kind = LS_STRATEGY_MIRRORED }, 3, 0, false },
        { { .kind = LS_STRATEGY_DATA_PARALLEL }, 2, 0, true },
        { { .kind = LS_STRATEGY_MODEL_PARALLEL }, 2, 0, false },
        { { .kind = LS_STRATEGY_PIPELINE }, 2, 0, false },
        { { .kind = LS_STRATEGY_ONE_DEVICE, .devices = "gpu:0" }, 1, 1, false },
        { { .kind = LS_STRATEGY_MIRRORED }, 1, 2, true },
        { { .kind = LS_STRATEGY_PIPELINE }, 1, 2, false },
    };
    char first[65], other[65];
    train(&all[0], first);
    for (size_t i = 1; i < LENGTH(all); i++) {
        train(&all[i], other);
        if (strcmp(first, other) != 0)
            fail_msg("strategy %zu: %s instead of %s", i, other, first);
    }
}

static int set_up(void **state)
{
    fill_images();
    return make_folder(state) != 0 || ls_context_open(NULL, &ctx) != LS_OK;
}

static int tear_down(void **state)
{
    ls_context_close(ctx);
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inference_changes_nothing),
        cmocka_unit_test(half_of_the_images_are_flipped),
        cmocka_unit_test(crops_are_windows_of_any_place),
        cmocka_unit_test(crops_in_inference_are_resized),
        cmocka_unit_test(contrast_is_a_factor_of_each_image),
        cmocka_unit_test(erased_boxes_have_the_asked_size),
        cmocka_unit_test(erased_boxes_are_noise_by_default),
        cmocka_unit_test(layers_of_one_seed_draw_the_same),
        cmocka_unit_test(one_hash_under_every_strategy_and_after_resuming),
    };
    return cmocka_run_group_tests_name("augmentation", tests, set_up, tear_down);
}
