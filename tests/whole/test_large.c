/* Sizes that few programs have: a model of 5,000 layers, and arrays of more than 2^31 elements. The
 * arrays are zeros that no memory holds until they are written, and what is computed from them is
 * small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/mman.h>

#include "check.h"
#include "lockstep.h"
#include "sanitized.h"
#include "skip.h"

#define LAYERS (SANITIZED ? 300 : 5000)
#define MANY   (((int64_t)1 << 31) + 8)

static void a_model_of_5000_layers(void **state)
{
    (void)state;
    ls_context *ctx;
    ls_model *model, *other;
    float x[8][4] = { { 1 } }, y[8][2] = { { 1 } };
    char before[65], after[65];
    ls_layer *layers = calloc(LAYERS, sizeof(*layers));
    assert_non_null(layers);
    layers[0] = ls_input(4);
    for (int i = 1; i < LAYERS - 1; i++)
        layers[i] = i % 2 ? ls_dense(4) : ls_leaky_relu();
    layers[LAYERS - 1] = ls_dense(2);
    OK(ls_context_open(NULL, &ctx));
    ls_array features = ls_array_of(LS_F32, LS_SHAPE(8, 4), x), targets = ls_array_of(LS_F32, LS_SHAPE(8, 2), y);
    OK(ls_sequential_with(ctx, "deep", layers, LAYERS, &model));
    OK(ls_sequential_with(ctx, "deep", layers, LAYERS, &other));
    OK(ls_compile(model, .optimizer = ls_adam(), .loss = ls_mean_squared_error()));
    OK(ls_compile(other, .optimizer = ls_adam(), .loss = ls_mean_squared_error()));
    OK(ls_fit_arrays(model, features, targets, .batch_size = 4, .verbose = LS_VERBOSE_SILENT));
    OK(ls_fit_arrays(other, features, targets, .batch_size = 4, .verbose = LS_VERBOSE_SILENT));
    OK(ls_model_state_sha256(model, before));
    OK(ls_model_state_sha256(other, after));
    assert_string_equal(after, before);
    ls_model_destroy(other);
    ls_model_destroy(model);
    ls_context_close(ctx);
    free(layers);
}

/* Zeros, but for the last byte and the third from the end; NULL: the system gives no such address
 * space. */
static unsigned char *map_many(void)
{
    unsigned char *data = mmap(NULL, MANY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        return NULL;
    data[MANY - 1] = 7;
    data[MANY - 3] = 5;
    return data;
}

static void indices_beyond_2_31(void **state)
{
    (void)state;
    ls_context *ctx;
    ls_graph *graph;
    unsigned char *data = map_many(), got[4];
    const int64_t indices[] = { MANY - 3, 0, MANY - 1 };
    if (!data)
        SKIP("no address space for 2^31 bytes");
    OK(ls_context_open(NULL, &ctx));
    OK(ls_graph_create(ctx, &graph));
    ls_tensor *x = ls_op_input(graph, "x", LS_U8, LS_SHAPE(MANY));
    ls_tensor *fetches[] = { ls_op_slice(x, LS_AXES(MANY - 4), LS_AXES(4)),
                             ls_op_gather(x, ls_op_constant(graph, LS_I64, LS_SHAPE(3), indices), 0) };
    OK(ls_eval(graph, &(ls_feed){ x, ls_array_of(LS_U8, LS_SHAPE(MANY), data) }, 1, fetches, 2));
    OK(ls_read(fetches[0], got, 4));
    assert_memory_equal(got, ((unsigned char[]){ 0, 5, 0, 7 }), 4);
    OK(ls_read(fetches[1], got, 3));
    assert_memory_equal(got, ((unsigned char[]){ 5, 0, 7 }), 3);
    ls_graph_destroy(graph);
    ls_context_close(ctx);
    munmap(data, MANY);
}

/* Rows of 8 bytes; the last one begins at byte 2^31. */
static void rows_beyond_2_31(void **state)
{
    (void)state;
    ls_context *ctx;
    ls_model *model;
    ls_array sum;
    unsigned char *data = map_many();
    if (!data)
        SKIP("no address space for 2^31 bytes");
    OK(ls_context_open(NULL, &ctx));
    OK(ls_sequential(ctx, "sum", &model, ls_input(8),
                     ls_dense(1, .no_bias = true, .kernel_initializer = { .kind = LS_INIT_ONES })));
    ls_array all = ls_array_of(LS_U8, LS_SHAPE(MANY / 8, 8), data);
    ls_dataset *last = ls_batch(ls_skip(ls_from_tensor_slices(all, .keep = LS_KEEP_BORROWED), MANY / 8 - 2), 2, false);
    OK(ls_predict(model, last, &sum));
    assert_int_equal(sum.shape.dims[0], 2);
    assert_true(((const float *)sum.data)[0] == 0 && ((const float *)sum.data)[1] == 12);
    free(sum.data);
    ls_dataset_destroy(last);
    ls_model_destroy(model);
    ls_context_close(ctx);
    munmap(data, MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_model_of_5000_layers), cmocka_unit_test(indices_beyond_2_31),
                                        cmocka_unit_test(rows_beyond_2_31) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
