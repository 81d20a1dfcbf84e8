/* Trainings of layers on devices of any kind: recurrent ones and augmentation. See other_kind.h. */
#include "other_kind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "lockstep.h"
#include "machine.h"
#include "samples.h"

#define SAMPLES 11
#define WORDS   5
#define SIDE    7
#define CLASSES 3

static ls_model *make_text_model(ls_context *ctx)
{
    ls_model *model;
    OK(ls_sequential(ctx, "text", &model, ls_input(WORDS, .dtype = LS_I32), ls_embedding(9, 5, .mask_zero = true),
                     ls_bidirectional(ls_lstm(7, .return_sequences = true)), ls_gru(4, .reset_before = true),
                     ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    OK(ls_compile(model, .optimizer = ls_sgd(0.1), .loss = ls_sparse_categorical_crossentropy()));
    return model;
}

/* The second rotation has a gradient. Erased boxes are normal random numbers. */
static ls_model *make_augmented_model(ls_context *ctx)
{
    ls_model *model;
    OK(ls_sequential(ctx, "augmented", &model, ls_input(SIDE, SIDE, 1),
                     ls_random_rotation(.factor = { 0.5 }, .fill_mode = LS_FILL_WRAP),
                     ls_conv2d(4, 3, .activation = LS_RELU), ls_random_rotation(.factor = { 0.1 }),
                     ls_random_erasing(.value_range = { 0, 2 }), ls_flatten(),
                     ls_dense(CLASSES, .activation = LS_SOFTMAX)));
    OK(ls_compile(model, .optimizer = ls_sgd(0.1), .loss = ls_sparse_categorical_crossentropy()));
    return model;
}

/* Ops that have no kernel on a device. */
static void count_missing(void *user, ls_log_level level, const char *line)
{
    (void)level;
    if (strstr(line, "no kernel on")) {
        print_error("%s\n", line);
        ++*(int *)user;
    }
}

static void train(const other_kind *k, bool text, const char *devices, char hash[65])
{
    static float pixels[SAMPLES * SIDE * SIDE];
    static int32_t words[SAMPLES * WORDS], labels[SAMPLES];
    int missing = 0;
    ls_context *ctx = NULL;
    ls_context_options options = {
        .threads = 1, .log_level = LS_LOG_INFO, .log_sink = count_missing, .log_user = &missing
    };
    samples_fill_floats(pixels, labels, SAMPLES, SIDE * SIDE, CLASSES);
    for (int i = 0; i < SAMPLES * WORDS; i++)
        words[i] = i * 7 % 3 == 0 ? 0 : i * 5 % 9;
    assert_true(k->open(&options, devices, &ctx));
    ls_model *model = text ? make_text_model(ctx) : make_augmented_model(ctx);
    ls_array x = text ? ls_array_of(LS_I32, LS_SHAPE(SAMPLES, WORDS), words)
                      : ls_array_of(LS_F32, LS_SHAPE(SAMPLES, SIDE, SIDE, 1), pixels);
    OK(ls_fit_arrays(model, x, ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels), .epochs = 2, .batch_size = 7, .lanes = 3,
                     .strategy = ls_mirrored(.devices = devices), .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_state_sha256(model, hash));
    assert_int_equal(missing, 0);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

void other_trains_sequences_and_augmented_images(const other_kind *k)
{
    for (int text = 0; text < 2; text++) {
        char expected[65], hash[65];
        train(k, text, "cpu:0", expected);
        train(k, text, k->both, hash);
        if (strcmp(hash, expected) != 0)
            fail_msg("%s on \"%s\": %s, on the CPU: %s", text ? "text" : "images", k->both, hash, expected);
    }
}
