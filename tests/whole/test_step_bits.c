/* Whole training steps have the bits that are written down here: on any processor, with any
 * instruction set, compiler and optimization, in any floating-point mode of the caller. Each row is
 * two steps of a model and its predictions.
 *
 * With --check [ROW...] the program only compares these rows, prints them and ends with 0 when all
 * are right: test_bits_matrix.sh does so for other builds and under valgrind.
 *
 * If a row differs, the bits have changed. If that is intended: describe the change in
 * docs/bits.md, increase DEFINITION by one here and in src/run/canary.c, and copy the hashes that
 * --check prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "backend/cpu/simd.h"
#include "base/philox.h"
#include "base/sha256.h"
#include "base/status.h"
#include "check.h"
#include "lockstep.h"
#include "sanitized.h"
#include "skip.h"

#define LANES   3 /* lanes are part of a job */
#define CLASSES 10
#define WORDS   50
#define HEX     65

/* ---- Models ---- */

static ls_status seed_cnn(ls_context *ctx, ls_optimizer *optimizer, ls_model **out)
{
    *optimizer = ls_adam();
    return ls_model_builtin(ctx, "mnist-cnn", out);
}

static ls_status wide_cnn(ls_context *ctx, ls_optimizer *optimizer, ls_model **out)
{
    *optimizer = ls_rmsprop();
    return ls_model_builtin(ctx, "mnist-cnn-wide", out);
}

static ls_status resnet18(ls_context *ctx, ls_optimizer *optimizer, ls_model **out)
{
    *optimizer = ls_sgd(.learning_rate = 0.1, .momentum = 0.9);
    return ls_model_builtin(ctx, "resnet18", out, .input = LS_SHAPE(32, 32, 3), .classes = CLASSES);
}

/* Gather and its gradient, and the elementary functions. */
static ls_status embedding(ls_context *ctx, ls_optimizer *optimizer, ls_model **out)
{
    *optimizer = ls_adam(.global_clipnorm = 1);
    return ls_sequential(ctx, "embedding", out, ls_input(12, .dtype = LS_I32), ls_embedding(WORDS, 24),
                         ls_dense(32, .activation = LS_GELU), ls_layer_normalization(), ls_flatten(), ls_dropout(0.2),
                         ls_dense(40, .activation = LS_TANH), ls_dense(24, .activation = LS_SIGMOID),
                         ls_dense(CLASSES, .activation = LS_SOFTMAX));
}

/* ---- Expected hashes ---- */

#define DEFINITION 5

typedef struct row {
    const char *name;
    ls_status (*make)(ls_context *ctx, ls_optimizer *optimizer,
                      ls_model **out); /* NULL: the canary, a part of the bit class */
    ls_shape sample;                   /* one axis: a sequence of words */
    int64_t batch;
    const char *hash; /* the first 16 digits of its SHA-256 */
} row;

/* clang-format off */
static const row rows[] = {
    { "canary", .hash = "b1b5e6239edc1a25" },
    { "seed-cnn-4", seed_cnn, { 3, { 28, 28, 1 } }, 4, "d37814414f691492" },
    { "seed-cnn", seed_cnn, { 3, { 28, 28, 1 } }, 8, "6cad87e252c1af5d" },
    { "wide-cnn", wide_cnn, { 3, { 28, 28, 1 } }, 8, "0326d9f3d79e38a5" },
    { "resnet18", resnet18, { 3, { 32, 32, 3 } }, 8, "2b9cbe3d2ee9f958" },
    { "embedding", embedding, { 1, { 12 } }, 8, "d34b8f92a77a30b4" },
};
/* clang-format on */

/* ---- Two steps ---- */

/* Numbers from 0 to 1, or words. */
static void fill(const row *r, float *x, int32_t *words, int32_t *labels, size_t count)
{
    ls_philox_key key = ls_random_key(1, LS_RANDOM_TEST, (uint32_t)r->batch, 0);
    for (size_t i = 0; i < count; i++) {
        uint32_t word = ls_random_block(key, 0, 0, (uint32_t)(i / 4)).word[i % 4];
        x[i] = ls_random_unit_f32(word);
        words[i] = (int32_t)(word % WORDS);
    }
    for (int64_t i = 0; i < r->batch; i++)
        labels[i] = (int32_t)(i * 7 % CLASSES);
}

static ls_status hash_value(ls_sha256 *hash, const ls_history *history, const char *name)
{
    double values[2];
    for (size_t epoch = 0; epoch < 2; epoch++)
        LS_TRY(ls_history_value(history, name, epoch, &values[epoch]));
    return ls_sha256_add(hash, values, sizeof values);
}

/* Results of the steps, then weights and optimizer state, and the model's predictions. */
static ls_status train(const row *r, ls_model *model, ls_optimizer optimizer, ls_array x, ls_array y, ls_sha256 *hash)
{
    ls_history *history = NULL;
    ls_array out = { 0 };
    char hex[HEX];
    LS_TRY(ls_compile(model, .optimizer = optimizer, .loss = ls_sparse_categorical_crossentropy(),
                      .metrics = ls_metrics(ls_accuracy())));
    LS_TRY(ls_fit_arrays(model, x, y, .epochs = 2, .batch_size = r->batch, .lanes = LANES, .keep_order = true,
                         .verbose = LS_VERBOSE_SILENT, .history = &history));
    ls_status status = hash_value(hash, history, "loss");
    if (status == LS_OK)
        status = hash_value(hash, history, "accuracy");
    ls_history_destroy(history);
    LS_TRY(status);
    LS_TRY(ls_model_state_sha256(model, hex));
    LS_TRY(ls_sha256_add(hash, hex, HEX - 1));
    LS_TRY(ls_predict_array(model, x, &out, .batch_size = r->batch));
    status = ls_sha256_add(hash, out.data, (size_t)r->batch * CLASSES * sizeof(float));
    free(out.data);
    return status;
}

static ls_status train_row(const row *r, ls_context *ctx, ls_sha256 *hash)
{
    int64_t count = r->batch;
    for (int i = 0; i < r->sample.rank; i++)
        count *= r->sample.dims[i];
    float *numbers = malloc((size_t)count * sizeof *numbers);
    int32_t *words = malloc((size_t)count * sizeof *words), labels[8];
    ls_model *model = NULL;
    ls_optimizer optimizer;
    ls_status status = numbers && words ? r->make(ctx, &optimizer, &model) : LS_ERR_MEMORY;
    if (status == LS_OK) {
        ls_shape shape = { .rank = r->sample.rank + 1, .dims = { r->batch } };
        memcpy(shape.dims + 1, r->sample.dims, (size_t)r->sample.rank * sizeof *shape.dims);
        fill(r, numbers, words, labels, (size_t)count);
        ls_array x = shape.rank == 2 ? ls_array_of(LS_I32, shape, words) : ls_array_of(LS_F32, shape, numbers);
        status = train(r, model, optimizer, x, ls_array_of(LS_I32, LS_SHAPE(r->batch), labels), hash);
        ls_model_destroy(model);
    }
    free(numbers);
    free(words);
    return status;
}

/* The canary's digits are those at the end of the bit class. */
static ls_status canary(ls_context *ctx, char hex[HEX])
{
    char *text = NULL;
    LS_TRY(ls_bit_class(ctx, &text));
    const char *found = strstr(text, "canary ");
    snprintf(hex, HEX, "%.16s", found ? found + strlen("canary ") : "none");
    free(text);
    return LS_OK;
}

static ls_status hash_in(const row *r, ls_context *ctx, char hex[HEX])
{
    ls_sha256 *hash = NULL;
    if (!r->make)
        return canary(ctx, hex);
    LS_TRY(ls_sha256_begin(&hash));
    ls_status status = train_row(r, ctx, hash);
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}

static bool reference; /* use the plain C kernels */

/* Writes the expected and the computed hash to `message`. */
static bool is_right(const row *r, char message[512])
{
    ls_context *ctx = NULL;
    char hex[HEX] = "";
    ls_status status =
        ls_context_open(&(ls_context_options){ .threads = 2, .cpu_devices = 2, .reference = reference }, &ctx);
    if (status == LS_OK)
        status = hash_in(r, ctx, hex);
    if (status != LS_OK)
        snprintf(message, 512, "%s: %s", r->name, ls_last_error());
    else
        snprintf(message, 512, "%s: \"%.16s\", written down: \"%s\"", r->name, hex, r->hash);
    if (ctx)
        ls_context_close(ctx);
    return status == LS_OK && strncmp(hex, r->hash, 16) == 0 && strlen(r->hash) == 16;
}

/* ---- Tests ---- */

/* Where all rows take long, the small ones are enough; `make bits` (LS_BITS=all) runs all
 * everywhere. */
static bool is_left_out(const row *r, bool slow)
{
    const char *asked = getenv("LS_BITS");
    return (slow || SANITIZED) && !(asked && strcmp(asked, "all") == 0) && (r->make == wide_cnn || r->make == resnet18);
}

static void check_rows(const char *how, bool slow)
{
    char message[512];
    for (size_t i = 0; i < LENGTH(rows); i++)
        if (!is_left_out(&rows[i], slow) && !is_right(&rows[i], message))
            fail_msg("%s: %s", how, message);
}

static void steps_have_the_bits_written_down(void **state)
{
    (void)state;
    check_rows("here", false);
}

static void the_bit_class_names_the_definition(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    char *text = NULL, expected[64];
    snprintf(expected, sizeof expected, "definition %d;", DEFINITION);
    assert_int_equal(ls_context_open(NULL, &ctx), LS_OK);
    assert_int_equal(ls_bit_class(ctx, &text), LS_OK);
    if (strncmp(text, expected, strlen(expected)) != 0)
        fail_msg("the bit class is \"%s\", and not of definition %d", text, DEFINITION);
    free(text);
    ls_context_close(ctx);
}

/* Each context asks for the limit when it is opened. */
static void under_limit(const char *isa)
{
    const char *before = getenv("LOCKSTEP_ISA");
    char *kept = before ? strdup(before) : NULL;
    assert_true(!before || kept);
    setenv("LOCKSTEP_ISA", isa, 1);
    check_rows(isa, strcmp(isa, "base") == 0);
    if (kept)
        setenv("LOCKSTEP_ISA", kept, 1);
    else
        unsetenv("LOCKSTEP_ISA");
    free(kept);
}

static void the_same_without_vector_instructions(void **state)
{
    (void)state;
    if (SANITIZED)
        SKIP("slow in a sanitized build; the plain one has shown it");
    under_limit("base");
}

static void the_same_with_avx2(void **state)
{
    (void)state;
    if (!ls_simd_named("avx2"))
        SKIP("this processor has no AVX2");
    under_limit("avx2");
}

static void the_same_with_avx512(void **state)
{
    (void)state;
    if (!ls_simd_named("avx512"))
        SKIP("this processor has no AVX-512");
    under_limit("avx512");
}

static void the_same_by_the_reference_kernels(void **state)
{
    (void)state;
    reference = true;
    check_rows("reference kernels", true);
    reference = false;
}

/* Flush-to-zero, denormals-are-zero and another rounding, as a program with -ffast-math or interval
 * arithmetic has. */
static void the_same_in_any_mode_of_the_caller(void **state)
{
    (void)state;
    static const int roundings[] = { FE_UPWARD, FE_TONEAREST, FE_TOWARDZERO };
    for (size_t i = 0; i < LENGTH(roundings); i++) {
        fenv_t before;
        char message[512] = "";
        bool right = true, kept = true;
        fegetenv(&before);
        fesetround(roundings[i]);
#if defined(__x86_64__)
        _mm_setcsr(_mm_getcsr() | 0x8040);
        unsigned control = _mm_getcsr() & 0xffc0; /* without the flags of what happened */
#endif
        for (size_t k = 0; k < LENGTH(rows) && right && kept; k++) {
            if (is_left_out(&rows[k], i > 0))
                continue;
            right = is_right(&rows[k], message);
            kept = fegetround() == roundings[i];
#if defined(__x86_64__)
            kept = kept && (_mm_getcsr() & 0xffc0) == control;
#endif
        }
        fesetenv(&before);
        if (!right)
            fail_msg("flush to zero, rounding %d: %s", roundings[i], message);
        if (!kept)
            fail_msg("flush to zero, rounding %d: the mode of the caller was changed", roundings[i]);
    }
}

/* ---- --check ---- */

static int check(int count, char **names)
{
    char message[512];
    int wrong = 0, found = 0;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        bool asked = count == 0;
        for (int k = 0; k < count; k++)
            asked = asked || strcmp(names[k], rows[i].name) == 0;
        if (!asked)
            continue;
        found++;
        wrong += !is_right(&rows[i], message);
        puts(message);
    }
    return wrong > 0 || found == 0 || found < count;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--check") == 0)
        return check(argc - 2, argv + 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_the_bits_written_down),
        cmocka_unit_test(the_bit_class_names_the_definition),
        cmocka_unit_test(the_same_without_vector_instructions),
        cmocka_unit_test(the_same_with_avx2),
        cmocka_unit_test(the_same_with_avx512),
        cmocka_unit_test(the_same_by_the_reference_kernels),
        cmocka_unit_test(the_same_in_any_mode_of_the_caller),
    };
    return cmocka_run_group_tests_name("bits of whole steps", tests, NULL, NULL);
}
