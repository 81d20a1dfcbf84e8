/* Predictors (ls_model_share): the bits of ls_predict in the calling thread, without allocations,
 * while the model is trained by another thread, and after the model is gone. */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "lockstep.h"
#include "machine.h"
#include "nn/model.h"
#include "samples.h"
#include "sanitized.h"

#define SAMPLES 48
#define SIDE    8
#define CLASSES 4
#define EACH    (SIDE * SIDE)

static float pixels[SAMPLES * EACH];
static int32_t labels[SAMPLES];

/* ---- Allocations of the process ---- */

static atomic_long allocations;

#if !SANITIZED
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, bytes);
}
#endif

static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *e; tasks && (e = readdir(tasks));)
        count += e->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return count;
}

/* ---- Models ---- */

static ls_model *cnn(ls_context *ctx)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(SIDE, SIDE, 1), ls_conv2d(6, 3, .activation = LS_RELU),
                     ls_batch_normalization(), ls_max_pool2d(2), ls_flatten(), ls_dropout(0.5), ls_dense(CLASSES)));
    OK(ls_compile(model, .optimizer = ls_adam(.learning_rate = 0.01),
                  .loss = ls_sparse_categorical_crossentropy(.from_logits = true)));
    return model;
}

static ls_model *recurrent(ls_context *ctx)
{
    ls_model *model = NULL;
    OK(ls_sequential(ctx, "m", &model, ls_input(SIDE, SIDE, 1), ls_reshape(SIDE, SIDE), ls_masking(0),
                     ls_lstm(5, .return_sequences = true), ls_gru(4), ls_layer_normalization(), ls_dense(CLASSES)));
    return model;
}

static ls_model *with_two_outputs(ls_context *ctx)
{
    ls_model *model = NULL;
    OK(ls_functional_begin(ctx, "m", &model));
    ls_symbol x = ls_symbol_input(model, ls_input(SIDE, SIDE, 1));
    ls_symbol a = ls_symbol_call(model, ls_separable_conv2d(5, 3, .padding = LS_SAME, .activation = LS_GELU), x);
    ls_symbol b = ls_symbol_call(model, ls_conv2d(5, 3, 2, .padding = LS_SAME, .activation = LS_SILU), a);
    ls_symbol c = ls_symbol_call(model, ls_up_sampling2d(2, .interpolation = LS_BILINEAR), b);
    ls_symbol d = ls_symbol_call(model, ls_add(), a, c);
    ls_symbol e = ls_symbol_call(model, ls_dense(CLASSES, .activation = LS_SOFTMAX),
                                 ls_symbol_call(model, ls_global_average_pool2d(), d));
    OK(ls_functional_end(model, d, e));
    return model;
}

/* ---- The bits of ls_predict ---- */

typedef struct outputs {
    ls_array array[2];
    size_t count;
} outputs;

static outputs make_outputs(const ls_model *model, int64_t batch)
{
    outputs o = { .count = ls_model_output_count(model) };
    for (size_t i = 0; i < o.count; i++) {
        ls_shape shape = ls_model_output_shape(model, i);
        int64_t count = batch;
        shape.dims[0] = batch;
        for (int k = 1; k < shape.rank; k++)
            count *= shape.dims[k];
        o.array[i] = ls_array_of(LS_F32, shape, calloc((size_t)count, sizeof(float)));
    }
    return o;
}

static size_t bytes_of(const ls_array *array)
{
    size_t count = sizeof(float);
    for (int i = 0; i < array->shape.rank; i++)
        count *= (size_t)array->shape.dims[i];
    return count;
}

static void free_outputs(outputs *o)
{
    for (size_t i = 0; i < o->count; i++)
        free(o->array[i].data);
}

static ls_array images(int64_t batch)
{
    return ls_array_of(LS_F32, LS_SHAPE(batch, SIDE, SIDE, 1), pixels);
}

static void compare(ls_model *model, ls_predictor *predictor, int64_t batch)
{
    outputs found = make_outputs(model, batch);
    ls_array x = images(batch);
    OK(ls_predictor_run(predictor, &x, 1, found.array, found.count));
    for (size_t i = 0; i < found.count; i++) {
        ls_array expected;
        OK(ls_predict_array(model, x, &expected, .index = (int)i));
        assert_memory_equal(found.array[i].data, expected.data, bytes_of(&expected));
        free(expected.data);
    }
    free_outputs(&found);
}

static void a_predictor_has_the_bits_of_predict(void **state)
{
    (void)state;
    ls_model *(*const models[])(ls_context *) = { cnn, recurrent, with_two_outputs };
    for (size_t m = 0; m < LENGTH(models); m++) {
        ls_context *ctx = NULL;
        ls_predictor *predictor = NULL;
        OK(ls_context_open(NULL, &ctx));
        ls_model *model = models[m](ctx);
        OK(ls_model_share(model, &predictor));
        static const int64_t batches[] = { 1, 5, 33, 1, 48, 7, 2, 1 };
        for (size_t i = 0; i < LENGTH(batches); i++)
            compare(model, predictor, batches[i]);
        OK(ls_model_initialize(model, 3));
        compare(model, predictor, 5);
        ls_predictor_destroy(predictor);
        ls_model_destroy(model);
        ls_context_close(ctx);
    }
}

static void a_predictor_takes_bytes_as_fit_does(void **state)
{
    (void)state;
    static uint8_t bytes[SAMPLES * EACH];
    ls_context *ctx = NULL;
    ls_predictor *predictor = NULL, *floats = NULL;
    ls_array expected, x = ls_array_of(LS_U8, LS_SHAPE(6, SIDE, SIDE, 1), bytes);
    samples_fill_bytes(bytes, labels, SAMPLES, EACH, CLASSES);
    OK(ls_context_open(NULL, &ctx));
    ls_model *model = cnn(ctx);
    OK(ls_model_share(model, &predictor, .uint8 = true));
    OK(ls_model_share(model, &floats));
    outputs found = make_outputs(model, 6);
    OK(ls_predictor_run(predictor, &x, 1, found.array, 1));
    OK(ls_predict_array(model, x, &expected));
    assert_memory_equal(found.array[0].data, expected.data, bytes_of(&expected));
    FAILS(ls_predictor_run(floats, &x, 1, found.array, 1), LS_ERR_DTYPE, "input 0", "uint8", "float32",
          ".uint8 = true");
    free(expected.data);
    free_outputs(&found);
    ls_predictor_destroy(floats);
    ls_predictor_destroy(predictor);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- No allocations, no threads ---- */

static void a_second_prediction_allocates_nothing_and_needs_no_thread(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    ls_predictor *predictor = NULL;
    OK(ls_context_open(NULL, &ctx));
    ls_model *model = cnn(ctx);
    OK(ls_model_share(model, &predictor));
    outputs one = make_outputs(model, 1), three = make_outputs(model, 3);
    ls_array x = images(1), y = images(3);
    OK(ls_predictor_run(predictor, &x, 1, one.array, 1));
    OK(ls_predictor_run(predictor, &y, 1, three.array, 1));
    int threads = count_threads();
    long before = atomic_load(&allocations);
    for (int i = 0; i < 10; i++) {
        OK(ls_predictor_run(predictor, &x, 1, one.array, 1));
        OK(ls_predictor_run(predictor, &y, 1, three.array, 1));
    }
    assert_int_equal(atomic_load(&allocations), before);
    assert_int_equal(count_threads(), threads);
    assert_int_equal(threads, SANITIZED ? threads : 1);
    free_outputs(&one);
    free_outputs(&three);
    ls_predictor_destroy(predictor);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* ---- While the model is trained ---- */

#define STEPS   (SANITIZED ? 12 : 40)
#define READERS 3
#define BATCH   16

static float expected[64][CLASSES]; /* predictions of sample 0 after each step */

static void train_step(ls_model *model, int step)
{
    int first = step * BATCH % SAMPLES;
    OK(ls_train_on_batch(model, ls_array_of(LS_F32, LS_SHAPE(BATCH, SIDE, SIDE, 1), pixels + first * EACH),
                         ls_array_of(LS_I32, LS_SHAPE(BATCH), labels + first)));
}

typedef struct reader {
    pthread_t thread;
    ls_predictor *predictor;
    atomic_int *end;
    int runs, bad, last; /* last: the step whose weights the last prediction had */
} reader;

/* Asserts nothing: cmocka may not be called from other threads. */
static void *read_predictions(void *user)
{
    reader *r = user;
    float y[CLASSES];
    ls_array x = images(1), out = ls_array_of(LS_F32, LS_SHAPE(1, CLASSES), y);
    for (bool end = false; !end; r->runs++) {
        end = atomic_load(r->end);
        if (ls_predictor_run(r->predictor, &x, 1, &out, 1) != LS_OK) {
            r->bad++;
            break;
        }
        int step = r->last;
        while (step <= STEPS && memcmp(y, expected[step], sizeof(y)) != 0)
            step++;
        r->bad += step > STEPS;
        r->last = step > STEPS ? r->last : step;
    }
    return NULL;
}

static void predict_one(ls_predictor *predictor, float *y)
{
    ls_array x = images(1), out = ls_array_of(LS_F32, LS_SHAPE(1, CLASSES), y);
    OK(ls_predictor_run(predictor, &x, 1, &out, 1));
}

static void predictions_during_training_have_the_weights_of_a_finished_step(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    ls_predictor *predictor = NULL;
    OK(ls_context_open(NULL, &ctx));
    ls_model *model = cnn(ctx);
    OK(ls_model_share(model, &predictor));
    for (int i = 0; i <= STEPS; i++) {
        predict_one(predictor, expected[i]);
        if (i < STEPS)
            train_step(model, i);
    }
    ls_predictor_destroy(predictor);
    ls_model_destroy(model);

    reader readers[READERS];
    atomic_int end = 0;
    model = cnn(ctx);
    for (int i = 0; i < READERS; i++) {
        readers[i] = (reader){ .end = &end };
        OK(ls_model_share(model, &readers[i].predictor));
    }
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_predictions, &readers[i]), 0);
    for (int i = 0; i < STEPS; i++)
        train_step(model, i);
    atomic_store(&end, 1);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].bad, 0);
        assert_int_equal(readers[i].last, STEPS);
        ls_predictor_destroy(readers[i].predictor);
    }
    ls_model_destroy(model);
    ls_context_close(ctx);
}

/* Weights that only another device has are copied to the host after each step. */
static void a_predictor_follows_weights_on_other_devices(void **state)
{
    (void)state;
    machine m;
    ls_predictor *predictor = NULL;
    float y[CLASSES];
    machine_create(&m, (machine_settings){ .gpu = { .devices = 1, .memory = LS_MIB(2), .delay = -1 } });
    ls_model *model = cnn(m.ctx);
    OK(ls_model_share(model, &predictor));
    for (int i = 0; i < 5; i++) {
        predict_one(predictor, y);
        assert_memory_equal(y, expected[i], sizeof(y));
        train_step(model, i);
    }
    ls_predictor_destroy(predictor);
    ls_model_destroy(model);
    machine_close(&m);
}

/* ---- Memory of the weights ---- */

static void weights_are_copied_only_when_the_model_writes_them_while_shared(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    ls_predictor *a = NULL, *b = NULL;
    float y[CLASSES], z[CLASSES];
    OK(ls_context_open(NULL, &ctx));
    ls_model *model = cnn(ctx);
    train_step(model, 0);
    const ls_variable *kernel = ls_model_variable(model, 0)->attr.variable.variable;
    const void *before = kernel->data;
    train_step(model, 1);
    assert_ptr_equal(kernel->data, before); /* nobody reads it */
    OK(ls_model_share(model, &a));
    OK(ls_model_share(model, &b));
    assert_ptr_equal(kernel->data, before);
    train_step(model, 2);
    assert_ptr_not_equal(kernel->data, before);
    const void *after = kernel->data;
    train_step(model, 3);
    assert_ptr_equal(kernel->data, after); /* the predictors still have the old memory */
    predict_one(a, y);
    predict_one(b, z);
    assert_memory_equal(y, z, sizeof(y));
    ls_predictor_destroy(a);
    ls_predictor_destroy(b);
    train_step(model, 4);
    assert_ptr_equal(kernel->data, after);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

static void a_predictor_outlives_its_model_and_context(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    ls_predictor *predictor = NULL;
    float y[CLASSES], z[CLASSES];
    OK(ls_context_open(NULL, &ctx));
    ls_model *model = cnn(ctx);
    OK(ls_model_share(model, &predictor));
    train_step(model, 0);
    predict_one(predictor, y);
    train_step(model, 1);
    ls_model_destroy(model);
    ls_context_close(ctx);
    predict_one(predictor, z);
    assert_memory_equal(z, y, sizeof(y));
    ls_predictor_destroy(predictor);
}

/* ---- Wrong calls ---- */

static void wrong_arrays_are_named(void **state)
{
    (void)state;
    ls_context *ctx = NULL;
    ls_predictor *predictor = NULL;
    float y[3 * CLASSES];
    ls_array x = images(3), out = ls_array_of(LS_F32, LS_SHAPE(3, CLASSES), y);
    ls_array few = ls_array_of(LS_F32, LS_SHAPE(2, CLASSES), y), none = images(0);
    ls_array flat = ls_array_of(LS_F32, LS_SHAPE(3, EACH), pixels), empty = x;
    empty.data = NULL;
    OK(ls_context_open(NULL, &ctx));
    ls_model *model = cnn(ctx);
    OK(ls_model_share(model, &predictor));
    FAILS(ls_predictor_run(NULL, &x, 1, &out, 1), LS_ERR_INVALID, "NULL");
    FAILS(ls_predictor_run(predictor, NULL, 1, &out, 1), LS_ERR_INVALID, "inputs is NULL");
    FAILS(ls_predictor_run(predictor, &x, 1, NULL, 1), LS_ERR_INVALID, "outputs is NULL");
    FAILS(ls_predictor_run(predictor, &x, 1, &out, 2), LS_ERR_INVALID, "1 inputs and 1 outputs", "1 and 2");
    FAILS(ls_predictor_run(predictor, &x, 1, &few, 1), LS_ERR_SHAPE, "output 0", "(2, 4)", "batch size of the first");
    FAILS(ls_predictor_run(predictor, &flat, 1, &out, 1), LS_ERR_SHAPE, "input 0", "(3, 64)");
    FAILS(ls_predictor_run(predictor, &empty, 1, &out, 1), LS_ERR_INVALID, "data of input 0 is NULL");
    out.shape.dims[0] = 0;
    FAILS(ls_predictor_run(predictor, &none, 1, &out, 1), LS_ERR_SHAPE, "no samples");
    ls_predictor_destroy(predictor);
    ls_predictor_destroy(NULL);
    ls_model_destroy(model);
    ls_context_close(ctx);
}

int main(void)
{
    samples_fill_floats(pixels, labels, SAMPLES, EACH, CLASSES);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_prediction_allocates_nothing_and_needs_no_thread),
        cmocka_unit_test(a_predictor_has_the_bits_of_predict),
        cmocka_unit_test(a_predictor_takes_bytes_as_fit_does),
        cmocka_unit_test(predictions_during_training_have_the_weights_of_a_finished_step),
        cmocka_unit_test(a_predictor_follows_weights_on_other_devices),
        cmocka_unit_test(weights_are_copied_only_when_the_model_writes_them_while_shared),
        cmocka_unit_test(a_predictor_outlives_its_model_and_context),
        cmocka_unit_test(wrong_arrays_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
