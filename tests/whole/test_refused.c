/* Arguments that must not be accepted silently: class numbers of NaN, infinity, a fraction or below
 * 0, names that no file of weights could hold, unknown instruction sets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "check.h"
#include "lockstep.h"

enum { SAMPLES = 8, CLASSES = 3 };

typedef struct fixture {
    ls_context *ctx;
    ls_model *model;
    float x[SAMPLES][2], y[SAMPLES];
} fixture;

static void open_fixture(fixture *f)
{
    OK(ls_context_open(NULL, &f->ctx));
    OK(ls_sequential(f->ctx, "m", &f->model, ls_input(2), ls_dense(CLASSES)));
    OK(ls_compile(f->model, .optimizer = ls_sgd(.learning_rate = 0.1),
                  .loss = ls_sparse_categorical_crossentropy(.from_logits = true),
                  .metrics = ls_metrics(ls_accuracy())));
    for (int i = 0; i < SAMPLES; i++) {
        f->x[i][0] = f->x[i][1] = (float)i;
        f->y[i] = (float)(i % CLASSES);
    }
}

static void close_fixture(fixture *f)
{
    ls_model_destroy(f->model);
    ls_context_close(f->ctx);
}

static ls_array features_of(fixture *f)
{
    return ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 2), f->x);
}

static const struct {
    float value;
    const char *text;
} bad[] = { { NAN, "label nan of row 5" },  { -NAN, "nan of row 5" },    { INFINITY, "label inf of row 5" },
            { 1.5f, "label 1.5 of row 5" }, { -1, "label -1 of row 5" }, { 1e30f, "label 1e+30 of row 5 " } };

static void fit_and_evaluate_name_row_and_value(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    ls_array x = features_of(&f), y = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), f.y);
    OK(ls_fit_arrays(f.model, x, y, .batch_size = SAMPLES, .verbose = LS_VERBOSE_SILENT));
    for (size_t i = 0; i < sizeof bad / sizeof *bad - 1; i++) {
        char before[65], after[65];
        f.y[5] = bad[i].value;
        OK(ls_model_weights_sha256(f.model, before));
        assert_int_equal(ls_fit_arrays(f.model, x, y, .batch_size = SAMPLES, .verbose = LS_VERBOSE_SILENT),
                         LS_ERR_DATA);
        if (strstr(ls_last_error(), bad[i].text) == NULL)
            fail_msg("'%s' is not in: %s", bad[i].text, ls_last_error());
        OK(ls_model_weights_sha256(f.model, after));
        assert_string_equal(before, after);
        ls_dataset *d = ls_from_tensor_slices(x, y);
        assert_int_equal(ls_evaluate(f.model, d, .batch_size = 3), LS_ERR_DATA);
        assert_non_null(strstr(ls_last_error(), "of row 5"));
        ls_dataset_destroy(d);
    }
    close_fixture(&f);
}

static void weights_of_classes_are_not_taken_by_nan(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    const double weights[CLASSES] = { 1, 2, 3 };
    f.y[5] = NAN;
    assert_int_equal(ls_fit_arrays(f.model, features_of(&f), ls_array_of(LS_F32, LS_SHAPE(SAMPLES), f.y),
                                   .batch_size = SAMPLES, .verbose = LS_VERBOSE_SILENT, .class_weights = weights,
                                   .class_count = CLASSES),
                     LS_ERR_DATA);
    assert_non_null(strstr(ls_last_error(), "label nan of row 5"));
    close_fixture(&f);
}

/* A loop by hand: the loss casts the labels itself. */
static void a_loss_by_hand_refuses_them(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    ls_graph *graph = ls_model_graph(f.model);
    LS_SCOPE(graph)
    {
        ls_tensor *scores = ls_op_input(graph, NULL, LS_F32, LS_SHAPE(LS_BATCH, CLASSES));
        ls_tensor *labels = ls_op_input(graph, NULL, LS_F32, LS_SHAPE(LS_BATCH));
        ls_loss spec = ls_sparse_categorical_crossentropy(.from_logits = true);
        ls_tensor *loss = ls_loss_value(spec, labels, scores, NULL);
        float values[SAMPLES][CLASSES] = { { 0 } };
        const ls_feed feeds[] = { { scores, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, CLASSES), values) },
                                  { labels, ls_array_of(LS_F32, LS_SHAPE(SAMPLES), f.y) } };
        double found = 0;
        OK(ls_eval(graph, feeds, 2, &loss, 1));
        OK(ls_read_scalar(loss, &found));
        assert_true(fabs(found - log(3)) < 1e-6);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            f.y[5] = bad[i].value;
            assert_int_equal(ls_eval(graph, feeds, 2, &loss, 1), LS_ERR_DATA);
            assert_non_null(strstr(ls_last_error(), "of sample 5"));
        }
    }
    close_fixture(&f);
}

/* They go into files of weights: found now, not when hours of training are to be saved. */
static void names_that_no_file_could_hold_are_refused(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    ls_model *model = NULL;
    OK(ls_context_open(NULL, &ctx));
    assert_int_equal(ls_sequential(ctx, "caf\xe9", &model, ls_input(2), ls_dense(1)), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "not UTF-8"));
    assert_int_equal(ls_sequential(ctx, "m", &model, ls_input(2), ls_dense(1, .name = "caf\xe9")), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "is not a valid name of a layer; it must be UTF-8"));
    assert_null(model);
    OK(ls_sequential(ctx, "caf\xc3\xa9", &model, ls_input(2), ls_dense(1, .name = "caf\xc3\xa9")));
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void an_instruction_set_that_is_none_is_refused(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    const char *old = getenv("LOCKSTEP_ISA");
    char *kept = old ? strdup(old) : NULL;
    setenv("LOCKSTEP_ISA", "nonsense", 1);
    ls_status status = ls_context_open(NULL, &ctx);
    if (status == LS_OK) { /* backends are opened with the first run */
        char *bits = NULL;
        status = ls_bit_class(ctx, &bits);
        free(bits);
    }
    assert_int_equal(status, LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "LOCKSTEP_ISA=nonsense: no such instruction set; there are base, avx2"));
    ls_context_close(ctx);
    if (kept)
        setenv("LOCKSTEP_ISA", kept, 1);
    else
        unsetenv("LOCKSTEP_ISA");
    free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit_and_evaluate_name_row_and_value),
        cmocka_unit_test(weights_of_classes_are_not_taken_by_nan),
        cmocka_unit_test(a_loss_by_hand_refuses_them),
        cmocka_unit_test(names_that_no_file_could_hold_are_refused),
        cmocka_unit_test(an_instruction_set_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
