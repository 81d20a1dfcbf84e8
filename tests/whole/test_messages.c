/* Messages for mistakes: each names what failed, where, the numbers, and what to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "check.h"
#include "lockstep.h"

/* The call fails with this status, and its message has this text. */
#define SAYS(call, status, text)                                                                                       \
    do {                                                                                                               \
        ls_status found_ = (call);                                                                                     \
        if (found_ != (status) || strstr(ls_last_error(), (text)) == NULL)                                             \
            fail_msg("%s, '%s' is not in: %s", ls_status_name(found_), (text), ls_last_error());                       \
    } while (0)

#define QUIET .verbose = LS_VERBOSE_SILENT

enum { SAMPLES = 12, CLASSES = 10, BAD = 7 };

typedef struct fixture {
    ls_context *ctx;
    ls_model *model;
    float x[SAMPLES][2];
    int32_t y[SAMPLES];
    ls_array features, labels;
} fixture;

static void open_fixture(fixture *f, ls_loss loss, double rate)
{
    OK(ls_context_open(NULL, &f->ctx));
    OK(ls_sequential(f->ctx, "m", &f->model, ls_input(2), ls_dense(CLASSES)));
    OK(ls_compile(f->model, .optimizer = ls_sgd(.learning_rate = rate), .loss = loss));
    for (int i = 0; i < SAMPLES; i++) {
        f->x[i][0] = f->x[i][1] = (float)i;
        f->y[i] = i % CLASSES;
    }
    f->features = ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 2), f->x);
    f->labels = ls_array_of(LS_I32, LS_SHAPE(SAMPLES), f->y);
}

static void close_fixture(fixture *f)
{
    ls_model_destroy(f->model);
    ls_context_close(f->ctx);
}

#define SPARSE ls_sparse_categorical_crossentropy(.from_logits = true)

static ls_status copy_sample(void *user, const ls_element *in, ls_element *out)
{
    (void)user;
    memcpy((float *)out->component[0].data, in->component[0].data, 2 * sizeof(float));
    memcpy((int32_t *)out->component[1].data, in->component[1].data, sizeof(int32_t));
    return LS_OK;
}

/* The row is that of the source, whatever shuffling and maps are between. */
static void a_bad_label_names_the_row_of_the_data(void **state)
{
    (void)state;
    const char *text = "label 42 of row 7 is not a class: there are 10 classes, 0 to 9";
    fixture f;
    open_fixture(&f, SPARSE, 0.1);
    f.y[BAD] = 42;
    SAYS(ls_fit_arrays(f.model, f.features, f.labels, .batch_size = 4, .seed = 3, QUIET), LS_ERR_DATA, text);
    ls_dataset *rows = ls_from_tensor_slices(f.features, f.labels, .keep = LS_KEEP_BORROWED);
    SAYS(ls_evaluate(f.model, rows, .batch_size = 5), LS_ERR_DATA, text);
    SAYS(ls_fit(f.model, rows, .batch_size = 3, .validation_split = 0.5, .keep_order = true, QUIET), LS_ERR_DATA, text);
    ls_dataset *mapped =
        ls_batch(ls_map(ls_shuffle(ls_from_tensor_slices(f.features, f.labels), SAMPLES, 5), copy_sample), 3, false);
    SAYS(ls_fit(f.model, mapped, QUIET), LS_ERR_DATA, text);
    ls_dataset_destroy(mapped);
    ls_dataset_destroy(rows);
    f.y[BAD] = -1;
    SAYS(ls_train_on_batch(f.model, f.features, f.labels), LS_ERR_DATA, "label -1 of row 7 is not a class");
    close_fixture(&f);
}

static ls_status generate(void *user, ls_element *out, bool *end)
{
    fixture *f = user;
    *end = out->number == SAMPLES;
    if (!*end) {
        memcpy((float *)out->component[0].data, f->x[out->number], 2 * sizeof(float));
        memcpy((int32_t *)out->component[1].data, &f->y[out->number], sizeof(int32_t));
    }
    return LS_OK;
}

/* A generator has no rows. */
static void a_bad_label_without_a_row_names_batch_and_sample(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, SPARSE, 0.1);
    f.y[BAD] = 42;
    ls_element_spec spec;
    ls_dataset *rows = ls_from_tensor_slices(f.features, f.labels, .keep = LS_KEEP_BORROWED);
    OK(ls_dataset_spec(rows, &spec));
    ls_dataset *d = ls_batch(ls_from_generator(generate, &f, spec), 4, false);
    SAYS(ls_fit(f.model, d, QUIET), LS_ERR_DATA,
         "label 42 of sample 3 of batch 1 is not a class: there are 10 classes");
    ls_dataset_destroy(d);
    ls_dataset_destroy(rows);
    close_fixture(&f);
}

static void the_other_loss_is_named(void **state)
{
    (void)state;
    fixture f;
    static float one_hot[SAMPLES][CLASSES];
    open_fixture(&f, SPARSE, 0.1);
    SAYS(ls_fit_arrays(f.model, f.features, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, CLASSES), one_hot), QUIET),
         LS_ERR_SHAPE,
         "sparse_categorical_crossentropy takes class numbers: for one-hot targets use categorical_crossentropy");
    close_fixture(&f);
    open_fixture(&f, ls_categorical_crossentropy(.from_logits = true), 0.1);
    SAYS(ls_fit_arrays(f.model, f.features, f.labels, QUIET), LS_ERR_SHAPE,
         "categorical_crossentropy takes one-hot targets: for class numbers use sparse_categorical_crossentropy");
    ls_array column = ls_array_of(LS_I32, LS_SHAPE(SAMPLES, 1), f.y);
    SAYS(ls_fit_arrays(f.model, f.features, column, QUIET), LS_ERR_SHAPE, "use sparse_categorical_crossentropy");
    close_fixture(&f);
}

static void class_weights_are_counted(void **state)
{
    (void)state;
    const double weights[] = { 1, 2 };
    fixture f;
    open_fixture(&f, SPARSE, 0.1);
    SAYS(ls_fit_arrays(f.model, f.features, f.labels, .class_weights = weights, .class_count = 2, QUIET),
         LS_ERR_INVALID, "2 class weights for 10 classes; give one weight for each class");
    close_fixture(&f);
}

/* Labels of another loss are looked up in the weights, too. */
static void a_label_without_a_class_weight_is_named(void **state)
{
    (void)state;
    const double weights[] = { 1, 2 };
    float y[SAMPLES] = { 0 };
    fixture f;
    OK(ls_context_open(NULL, &f.ctx));
    OK(ls_sequential(f.ctx, "m", &f.model, ls_input(2), ls_dense(1)));
    OK(ls_compile(f.model, .optimizer = ls_adam(), .loss = ls_binary_crossentropy(.from_logits = true)));
    memset(f.x, 0, sizeof f.x);
    y[BAD] = 3;
    SAYS(ls_fit_arrays(f.model, ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 2), f.x),
                       ls_array_of(LS_F32, LS_SHAPE(SAMPLES, 1), y), .class_weights = weights, .class_count = 2, QUIET),
         LS_ERR_DATA, "label 3 of row 7 is not a class: there are 2 classes, 0 to 1");
    close_fixture(&f);
}

static void a_loss_that_is_not_finite_points_at_the_data(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, SPARSE, 0.125);
    f.x[BAD][1] = NAN;
    SAYS(ls_fit_arrays(f.model, f.features, f.labels, .batch_size = 4, .seed = 3, QUIET), LS_ERR_NOT_FINITE,
         "the data contains NaN: features, row 7, column 1; remove or replace such values");
    f.x[BAD][1] = -INFINITY;
    SAYS(ls_train_on_batch(f.model, f.features, f.labels), LS_ERR_NOT_FINITE,
         "the data contains -inf: features, row 7, column 1");
    f.x[BAD][1] = 3e38f;
    f.x[BAD][0] = 3e38f;
    SAYS(ls_fit_arrays(f.model, f.features, f.labels, .batch_size = 4, .epochs = 9, QUIET), LS_ERR_NOT_FINITE,
         "the data of this step is finite: try a smaller learning rate than 0.125");
    close_fixture(&f);
}

static void images_and_labels_that_are_not_finite(void **state)
{
    (void)state;
    static float x[4][2][3][1], y[4];
    ls_context *ctx;
    ls_model *model;
    OK(ls_context_open(NULL, &ctx));
    OK(ls_sequential(ctx, "m", &model, ls_input(2, 3, 1), ls_flatten(), ls_dense(1)));
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_mean_squared_error()));
    ls_array features = ls_array_of(LS_F32, LS_SHAPE(4, 2, 3, 1), x), labels = ls_array_of(LS_F32, LS_SHAPE(4), y);
    y[2] = INFINITY;
    SAYS(ls_fit_arrays(model, features, labels, QUIET), LS_ERR_NOT_FINITE, "the data contains inf: labels, row 2;");
    x[3][1][2][0] = NAN;
    SAYS(ls_fit_arrays(model, features, labels, QUIET), LS_ERR_NOT_FINITE,
         "the data contains NaN: features, row 3, element [1, 2, 0]");
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* A call after the context is closed names itself, not the call that it is made of. */
static void a_call_after_close_names_itself(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, SPARSE, 0.1);
    /* The model keeps the context's memory; a warning reports it. */
    ls_context_close(f.ctx);
    ls_array out;
    ls_model *model = NULL;
    char *text = NULL;
    SAYS(ls_fit_arrays(f.model, f.features, f.labels, QUIET), LS_ERR_STATE, "ls_fit_arrays: the context was closed");
    SAYS(ls_evaluate_arrays(f.model, f.features, f.labels), LS_ERR_STATE, "ls_evaluate_arrays: the context was closed");
    SAYS(ls_predict_array(f.model, f.features, &out), LS_ERR_STATE, "ls_predict_array: the context was closed");
    SAYS(ls_model_builtin(f.ctx, "mlp", &model), LS_ERR_STATE, "ls_model_builtin: the context was closed");
    SAYS(ls_model_from_keras(f.ctx, "m.keras", &model), LS_ERR_STATE, "ls_model_from_keras: the context was closed");
    SAYS(ls_model_from_keras_json(f.ctx, "m.json", &model), LS_ERR_STATE,
         "ls_model_from_keras_json: the context was closed");
    SAYS(ls_bit_class(f.ctx, &text), LS_ERR_STATE, "ls_bit_class: the context was closed");
    ls_model_destroy(f.model);
}

static void a_join_without_a_job_names_the_field(void **state)
{
    (void)state;
    ls_context *ctx;
    OK(ls_context_create(NULL, &ctx));
    const ls_cluster_options options = { .rank = 0, .size = 2, .transport = "tcp" };
    SAYS(ls_cluster_join(ctx, &options), LS_ERR_INVALID,
         "ls_cluster_join: .job is empty: give all 2 workers the same name");
    ls_context_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_label_names_the_row_of_the_data),
        cmocka_unit_test(a_bad_label_without_a_row_names_batch_and_sample),
        cmocka_unit_test(the_other_loss_is_named),
        cmocka_unit_test(class_weights_are_counted),
        cmocka_unit_test(a_label_without_a_class_weight_is_named),
        cmocka_unit_test(a_loss_that_is_not_finite_points_at_the_data),
        cmocka_unit_test(images_and_labels_that_are_not_finite),
        cmocka_unit_test(a_call_after_close_names_itself),
        cmocka_unit_test(a_join_without_a_job_names_the_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
