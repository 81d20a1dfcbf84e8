/* The caller's floating-point mode does not leak in: with flush-to-zero, every rounding mode or
 * traps enabled, in the main thread or another, everything from opening a context to predictions
 * has the bits of the plain mode, nothing traps, and the mode is the caller's again afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fenv.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/sha256.h"
#include "base/status.h"
#include "lockstep.h"
#include "lockstep/backend.h"

#define SAMPLES  24
#define FEATURES 5

/* ---- Modes ---- */

typedef struct mode {
    const char *name;
    int rounding;
    bool flush, traps;
    bool single; /* x87 rounds to 24 bits, as some graphics libraries leave it */
} mode;

static const mode modes[] = {
    { "plain", FE_TONEAREST, false, false, false },        { "flush to zero", FE_TONEAREST, true, false, false },
    { "downward", FE_DOWNWARD, false, false, false },      { "upward", FE_UPWARD, false, false, false },
    { "towards zero", FE_TOWARDZERO, true, false, false }, { "traps", FE_TONEAREST, false, true, false },
    { "traps, upward", FE_UPWARD, true, true, false },     { "x87 single", FE_DOWNWARD, true, false, true },
};

#define MODES (sizeof modes / sizeof *modes)
#define TRAPS (FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW | FE_UNDERFLOW)

#if defined(__x86_64__)
#define X87_PRECISION 0x300u

static uint16_t x87_control(void)
{
    uint16_t control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    return control;
}
#endif

static void set_mode(const mode *m)
{
    fesetround(m->rounding);
#if defined(__x86_64__)
    if (m->flush)
        _mm_setcsr(_mm_getcsr() | 0x8040); /* FTZ, DAZ */
    uint16_t control = x87_control();
    if (m->single) {
        control &= (uint16_t)~X87_PRECISION;
        __asm__ volatile("fldcw %0" : : "m"(control));
    }
#endif
    feclearexcept(FE_ALL_EXCEPT);
    if (m->traps)
        feenableexcept(TRAPS);
}

static bool is_mode(const mode *m)
{
#if defined(__x86_64__)
    if (((_mm_getcsr() & 0x8040) != 0) != m->flush || ((x87_control() & X87_PRECISION) == 0) != m->single)
        return false;
#endif
    return fegetround() == m->rounding && fegetexcept() == (m->traps ? TRAPS : 0);
}

/* ---- What is computed ---- */

static ls_status tenth(void *user, const ls_element *in, ls_element *out)
{
    (void)user;
    for (int i = 0; i < FEATURES; i++)
        ((float *)out->component[0].data)[i] = ((const float *)in->component[0].data)[i] * 0.1f;
    memcpy(out->component[1].data, in->component[1].data, sizeof(int32_t));
    return LS_OK;
}

static ls_status add_text(ls_sha256 *hash, char *text)
{
    ls_status status = ls_sha256_add(hash, text, strlen(text));
    free(text);
    return status;
}

/* Weights that start at 0 and learn from subnormal numbers stay subnormal. Once by a product on the
 * workers, once elementwise, in this thread. */
static ls_status train_subnormals(ls_context *ctx, ls_sha256 *hash, bool product)
{
    static const float x[4][3] = { { 1e-39f, 2e-40f, 3e-41f }, { 4e-39f, 1e-38f }, { 5e-42f }, { 7e-39f, 1e-44f } };
    static const float t[4] = { 1, -2, 0.3f, 0.7f };
    ls_graph *graph = NULL;
    float w[3] = { 0 };
    LS_TRY(ls_graph_create(ctx, &graph));
    ls_tensor *in = ls_op_input(graph, "x", LS_F32, LS_SHAPE(LS_BATCH, 3)), *g = NULL;
    ls_tensor *target = ls_op_input(graph, "t", LS_F32, LS_SHAPE(LS_BATCH, 1));
    ls_tensor *v = ls_op_variable(graph, "w", LS_F32, LS_SHAPE(3, 1));
    ls_tensor *row = product ? ls_op_matmul(in, v) : ls_op_mul(in, ls_op_reshape(v, LS_SHAPE(3)));
    ls_tensor *loss = ls_op_reduce_mean(ls_op_square(ls_op_sub(row, target)), LS_ALL_AXES, false);
    ls_status status = ls_gradients(loss, &v, 1, &g);
    ls_tensor *step = ls_op_apply(v, g, LS_APPLY_SGD, ls_op_scalar(graph, LS_F32, 0.3));
    const ls_feed feeds[] = { { in, ls_array_of(LS_F32, LS_SHAPE(4, 3), x) },
                              { target, ls_array_of(LS_F32, LS_SHAPE(4, 1), t) } };
    for (int i = 0; i < 3 && status == LS_OK; i++)
        status = ls_eval(graph, feeds, 2, &step, 1);
    if (status == LS_OK)
        status = ls_read(v, w, sizeof w);
    if (status == LS_OK)
        status = ls_sha256_add(hash, w, sizeof w);
    ls_graph_destroy(graph);
    return status;
}

static float features[SAMPLES][FEATURES];
static int32_t labels[SAMPLES];

/* In the plain mode, before all tests. One column is subnormal. */
static void fill_data(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < FEATURES; k++)
            features[i][k] = k == 3 ? 0x1p-140f * (float)(i % 5) : (float)((i * 7 + k * 5) % 16 - 8) * 0.25f;
        labels[i] = i % 3;
    }
}

static ls_dataset *make_data(void)
{
    ls_dataset *d = ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(SAMPLES, FEATURES), features),
                                          ls_array_of(LS_I32, LS_SHAPE(SAMPLES), labels));
    return ls_batch(ls_map(d, tenth, .threads = 2), 8, false);
}

static ls_status train_model(ls_context *ctx, ls_sha256 *hash)
{
    ls_model *model = NULL;
    ls_dataset *data = make_data();
    ls_array out = { 0 };
    char hex[65];
    LS_TRY(ls_sequential(ctx, "m", &model, ls_input(FEATURES), ls_dense(16, .activation = LS_RELU),
                         ls_batch_normalization(), ls_dropout(0.3), ls_dense(3, .activation = LS_SOFTMAX)));
    ls_status status = ls_compile(
        model, .optimizer = ls_adam(.schedule = ls_cosine_decay(0.1, 20, 0.03, 0.007, 3), .weight_decay = 0.01),
        .loss = ls_sparse_categorical_crossentropy(), .metrics = ls_metrics(ls_accuracy()));
    if (status == LS_OK)
        status = ls_fit(model, data, .epochs = 2, .verbose = LS_VERBOSE_SILENT);
    if (status == LS_OK)
        status = ls_model_weights_sha256(model, hex);
    if (status == LS_OK)
        status = ls_sha256_add(hash, hex, 64);
    if (status == LS_OK)
        status = ls_predict(model, data, &out, .batch_size = 8);
    if (status == LS_OK)
        status = ls_sha256_add(hash, out.data, SAMPLES * 3 * sizeof(float));
    free(out.data);
    ls_dataset_destroy(data);
    ls_model_destroy(model);
    return status;
}

/* Numbers from text, and numbers as text. */
static ls_status read_numbers(ls_sha256 *hash)
{
    char path[] = "/tmp/lockstep-fp-XXXXXX";
    static const char text[] = "0.1,0.7,1\n1e-39,3.3,0\n";
    int file = mkstemp(path);
    if (file < 0 || write(file, text, sizeof text - 1) != (ssize_t)(sizeof text - 1))
        return LS_ERR_DATA;
    close(file);
    ls_array x = { 0 }, y = { 0 };
    ls_status status = ls_csv_read(path, &x, &y);
    unlink(path);
    if (status == LS_OK)
        status = ls_sha256_add(hash, x.data, 4 * sizeof(float));
    free(x.data);
    free(y.data);
    return status;
}

/* Calls that compute without a run: a split, a loss's constant, a join. */
static ls_status compute_at_once(ls_context *ctx, ls_sha256 *hash)
{
    ls_dataset *data = ls_take(ls_from_tensor_slices(ls_array_of(LS_F32, LS_SHAPE(SAMPLES, FEATURES), features)), 10);
    ls_dataset *train = NULL, *validation = NULL;
    ls_status status = ls_dataset_split(data, 0.2, &train, &validation); /* 8 and 2; rounded down it would be 7 */
    int64_t count = 0;
    if (status == LS_OK)
        status = ls_dataset_count(train, &count);
    if (status == LS_OK)
        status = ls_sha256_add(hash, &count, sizeof count);
    ls_dataset_destroy(train);
    ls_dataset_destroy(validation);
    ls_dataset_destroy(data);
    LS_TRY(status);

    float sum = 0;
    ls_reference_join(LS_JOIN_SUM, LS_F32, (float[]){ 1 }, (float[]){ 0x1.8p-25f }, 1, &sum);
    LS_TRY(ls_sha256_add(hash, &sum, sizeof sum));

    ls_graph *graph = NULL;
    LS_TRY(ls_graph_create(ctx, &graph));
    ls_tensor *far = ls_op_fill(graph, LS_F64, LS_SHAPE(1), 3), *near = ls_op_fill(graph, LS_F64, LS_SHAPE(1), 0);
    double loss = 0;
    status = ls_read_scalar(ls_op_huber(far, near, 0.3), &loss);
    if (status == LS_OK)
        status = ls_sha256_add(hash, &loss, sizeof loss);
    ls_graph_destroy(graph);
    return status;
}

static ls_status compute(char hex[65])
{
    ls_context *ctx = NULL;
    ls_sha256 *hash = NULL;
    char *text = NULL;
    LS_TRY(ls_sha256_begin(&hash));
    ls_status status = ls_context_open(&(ls_context_options){ .threads = 2 }, &ctx);
    if (status == LS_OK && (status = ls_bit_class(ctx, &text)) == LS_OK)
        status = add_text(hash, text);
    for (int i = 0; i < 2 && status == LS_OK; i++)
        status = train_subnormals(ctx, hash, i);
    if (status == LS_OK)
        status = train_model(ctx, hash);
    if (status == LS_OK)
        status = read_numbers(hash);
    if (status == LS_OK)
        status = compute_at_once(ctx, hash);
    if (ctx)
        ls_context_close(ctx);
    if (status == LS_OK)
        return ls_sha256_end(hash, hex);
    ls_sha256_destroy(hash);
    return status;
}

/* ---- In each mode ---- */

typedef struct trial {
    const mode *mode;
    ls_status status;
    bool kept;
    char hex[65], message[512];
} trial;

static void *try_mode(void *argument)
{
    trial *t = argument;
    fenv_t before;
    fegetenv(&before);
    set_mode(t->mode);
    t->status = compute(t->hex);
    t->kept = is_mode(t->mode);
    fesetenv(&before);
    snprintf(t->message, sizeof t->message, "%s", t->status == LS_OK ? "" : ls_last_error());
    return NULL;
}

static char plain[65];

static void check_trial(const trial *t, const char *where)
{
    if (t->status != LS_OK)
        fail_msg("%s, %s: %s", t->mode->name, where, t->message);
    if (!t->kept)
        fail_msg("%s, %s: the caller's mode is another afterwards", t->mode->name, where);
    if (plain[0] == '\0')
        memcpy(plain, t->hex, sizeof plain);
    else if (strcmp(plain, t->hex) != 0)
        fail_msg("%s, %s: other bits than in the plain mode", t->mode->name, where);
}

static void same_bits_in_any_mode(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODES; i++) {
        trial t = { .mode = &modes[i] };
        try_mode(&t);
        check_trial(&t, "main thread");
    }
}

static void same_bits_in_another_thread(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODES; i++) {
        trial t = { .mode = &modes[i] };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, try_mode, &t), 0);
        pthread_join(thread, NULL);
        check_trial(&t, "another thread");
    }
}

/* A call that fails puts the mode back, too. */
static void failures_keep_the_mode(void **state)
{
    (void)state;
    const mode *m = &modes[MODES - 1];
    fenv_t before;
    ls_context *ctx = NULL;
    ls_array x, y;
    fegetenv(&before);
    set_mode(m);
    ls_status status[] = { ls_csv_read("/nonexistent", &x, &y),
                           ls_context_open(&(ls_context_options){ .threads = -7 }, &ctx), ls_read(NULL, NULL, 0),
                           ls_model_builtin(NULL, "nonsense", NULL) };
    bool kept = is_mode(m);
    fesetenv(&before);
    for (size_t i = 0; i < sizeof status / sizeof *status; i++)
        assert_int_not_equal(status[i], LS_OK);
    assert_true(kept);
}

int main(void)
{
    fill_data();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_in_any_mode),
        cmocka_unit_test(same_bits_in_another_thread),
        cmocka_unit_test(failures_keep_the_mode),
    };
    return cmocka_run_group_tests_name("floating-point mode", tests, NULL, NULL);
}
