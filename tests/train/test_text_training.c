/* A small language model on windows of text: one hash on 1, 2 and 3 devices, after resuming inside
 * an epoch, and with the same windows as arrays; accuracy over positions counted by hand. */
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

#define TEXT    "Everyone is permitted to copy and distribute verbatim copies of this license document. "
#define REPEATS 3
#define CONTEXT 9
#define STRIDE  7

static char text[sizeof TEXT * REPEATS];
static size_t bytes;

static ls_dataset *windows(void)
{
    return ls_from_text(in_folder("text.txt"), .context = CONTEXT, .stride = STRIDE, .tokenizer = "chars");
}

static ls_model *make_model(ls_context *ctx, int64_t vocab)
{
    ls_model *model;
    OK(ls_sequential(ctx, "lm", &model, ls_input(CONTEXT, .dtype = LS_I32), ls_embedding(vocab, 6),
                     ls_lstm(8, .return_sequences = true), ls_dense(vocab)));
    OK(ls_compile(model, .optimizer = ls_adam(0.02), .loss = ls_sparse_categorical_crossentropy(.from_logits = true),
                  .metrics = ls_metrics(ls_accuracy())));
    return model;
}

/* Number of different characters, by hand. */
static int64_t count_characters(void)
{
    bool seen[256] = { false };
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += !seen[(unsigned char)text[i]];
        seen[(unsigned char)text[i]] = true;
    }
    return count;
}

/* The windows by hand: ids are ranks of characters. */
static int64_t fill_arrays(int32_t x[][CONTEXT], int32_t y[][CONTEXT])
{
    int64_t n = 0;
    for (size_t first = 0; first + CONTEXT + 1 <= bytes; first += STRIDE, n++)
        for (size_t i = 0; i <= CONTEXT; i++) {
            bool below[256] = { false };
            int32_t rank = 0;
            for (size_t k = 0; k < bytes; k++) {
                unsigned char c = (unsigned char)text[k];
                rank += c < (unsigned char)text[first + i] && !below[c];
                below[c] = true;
            }
            if (i < CONTEXT)
                x[n][i] = rank;
            if (i > 0)
                y[n][i - 1] = rank;
        }
    return n;
}

typedef struct way {
    int devices;
    int64_t stop_after; /* steps; then another model resumes */
    bool arrays;
} way;

static void fit(const way *w, ls_model *model, int64_t steps, const char *folder)
{
    static int32_t x[64][CONTEXT], y[64][CONTEXT];
    ls_strategy strategy = { .kind = w->devices > 1 ? LS_STRATEGY_MIRRORED : LS_STRATEGY_ONE_DEVICE };
    ls_dataset *data = windows();
    if (w->arrays) {
        int64_t n = fill_arrays(x, y);
        ls_dataset_destroy(data);
        data = ls_from_tensor_slices(ls_array_of(LS_I32, LS_SHAPE(n, CONTEXT), x),
                                     ls_array_of(LS_I32, LS_SHAPE(n, CONTEXT), y));
    }
    OK(ls_fit(model, data, .epochs = 3, .batch_size = 8, .lanes = 4, .max_steps = steps, .strategy = strategy,
              .checkpoint = folder, .resume = folder ? "auto" : NULL, .verbose = LS_VERBOSE_SILENT));
    ls_dataset_destroy(data);
}

static void train(const way *w, char hash[65])
{
    machine m;
    int64_t vocab = count_characters();
    const char *saved = w->stop_after ? in_folder("saved") : NULL;
    machine_create(&m, (machine_settings){ .options = { .cpu_devices = w->devices, .threads = 2 } });
    ls_model *model = make_model(m.ctx, vocab);
    if (w->stop_after) {
        fit(w, model, w->stop_after, saved);
        ls_model_destroy(model);
        model = make_model(m.ctx, vocab);
    }
    fit(w, model, 0, saved);
    OK(ls_model_state_sha256(model, hash));
    ls_model_destroy(model);
    machine_close(&m);
    if (saved)
        assert_int_equal(remove_tree(saved), 0);
}

static void one_hash(void **state)
{
    (void)state;
    /* 36 windows are 5 steps of an epoch. */
    static const way all[] = { { 1, 0, false }, { 2, 0, false }, { 3, 0, false },
                               { 1, 7, false }, { 2, 3, false }, { 1, 0, true } };
    char first[65], other[65];
    train(&all[0], first);
    for (size_t i = 1; i < LENGTH(all); i++) {
        train(&all[i], other);
        if (strcmp(first, other) != 0)
            fail_msg("way %zu: %s instead of %s", i, other, first);
    }
}

static void accuracy_over_positions(void **state)
{
    (void)state;
    static int32_t x[64][CONTEXT], y[64][CONTEXT];
    int64_t n = fill_arrays(x, y), vocab = count_characters(), right = 0;
    double sum = 0;
    machine m;
    machine_create(&m, (machine_settings){ .options = { .cpu_devices = 1, .threads = 2 } });
    ls_model *model = make_model(m.ctx, vocab);
    fit(&(way){ .devices = 1 }, model, 0, NULL);
    ls_results results;
    ls_array logits;
    ls_dataset *data = windows();
    OK(ls_evaluate(model, data, &results, .batch_size = 5));
    OK(ls_predict(model, data, &logits, .batch_size = 5));
    assert_int_equal(logits.shape.rank, 3);
    for (int64_t i = 0; i < n * CONTEXT; i++) {
        const float *row = (const float *)logits.data + i * vocab;
        int64_t best = 0;
        double total = 0;
        for (int64_t k = 0; k < vocab; k++) {
            best = row[k] > row[best] ? k : best;
            total += exp((double)row[k]);
        }
        int32_t label = y[i / CONTEXT][i % CONTEXT];
        right += best == label;
        sum += log(total) - (double)row[label];
    }
    assert_true(fabs(results.values[0] - sum / (double)(n * CONTEXT)) <= 1e-5);
    assert_true(fabs(results.values[1] - (double)right / (double)(n * CONTEXT)) <= 1e-6);
    assert_true(results.values[1] > 0.1); /* it has learned something */
    free(logits.data);
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    machine_close(&m);
}

/* An id beyond the vocabulary stops training with its place. */
static void an_id_beyond_the_vocabulary(void **state)
{
    (void)state;
    machine m;
    machine_create(&m, (machine_settings){ .options = { .cpu_devices = 1 } });
    ls_model *model = make_model(m.ctx, 30);
    ls_dataset *data = ls_from_text(in_folder("text.txt"), .context = CONTEXT, .vocab = 30);
    FAILS(ls_fit(model, data, .epochs = 1, .verbose = LS_VERBOSE_SILENT), LS_ERR_DATA, "text.txt",
          "the vocabulary has 30");
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    machine_close(&m);
}

static int set_up(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    for (int i = 0; i < REPEATS; i++)
        strcat(text, TEXT);
    bytes = strlen(text);
    FILE *f = fopen(in_folder("text.txt"), "wb");
    return !f || fwrite(text, 1, bytes, f) != bytes || fclose(f) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_hash),
        cmocka_unit_test(accuracy_over_positions),
        cmocka_unit_test(an_id_beyond_the_vocabulary),
    };
    return cmocka_run_group_tests_name("text training", tests, set_up, remove_folder);
}
