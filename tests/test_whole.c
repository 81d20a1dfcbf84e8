/* Whole tensors on all workers: reductions, softmax and squared norms in tiles, against plain loops in long double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "lockstep.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != LS_OK)                                                                                           \
            fail_msg("%s", ls_last_error());                                                                           \
    } while (0)

#define MOST 300000

typedef struct bed {
    ls_context *ctx;
    ls_graph *graph;
    float *x;
} bed;

static void open_bed(bed *b, int threads)
{
    OK(ls_context_open(&(ls_context_options){ .threads = threads }, &b->ctx));
    OK(ls_graph_create(b->ctx, &b->graph));
    b->x = calloc(MOST, sizeof(*b->x));
    assert_non_null(b->x);
    ls_philox_key key = ls_random_key(3, LS_RANDOM_TEST, 0, 0);
    for (uint32_t i = 0; i < MOST; i++)
        b->x[i] = ls_random_unit_f32(ls_random_block(key, 0, 0, i / 4).word[i % 4]) - 0.5f;
}

static void close_bed(bed *b)
{
    free(b->x);
    ls_graph_destroy(b->graph);
    ls_context_close(b->ctx);
}

/* Shapes as [outer, gone, inner]; axes of a tensor of that shape. */
static const int64_t shapes[][3] = { { 1, 100000, 1 }, { 700, 333, 1 }, { 1, 333, 700 }, { 5, 7, 3 },
                                     { 1, 1, 1 },      { 3, 1, 20000 }, { 40000, 5, 1 }, { 2, 600, 130 },
                                     { 1, 17, 16411 }, { 9, 4099, 1 },  { 1, 3, 90001 }, { 2, 70000, 2 } };

typedef enum what { SUM, MAX, MIN } what;

static long double expected(const float *x, const int64_t *s, int64_t o, int64_t i, what w)
{
    long double total = 0;
    for (int64_t g = 0; g < s[1]; g++) {
        long double v = x[(o * s[1] + g) * s[2] + i];
        total = w == SUM || g == 0 ? (w == SUM ? total + v : v) : w == MAX ? fmaxl(total, v) : fminl(total, v);
    }
    return total;
}

static void check_reduction(bed *b, const int64_t *s, what w, float *out)
{
    int64_t count = s[0] * s[2];
    LS_SCOPE(b->graph)
    {
        ls_tensor *x = ls_op_constant(b->graph, LS_F32, LS_SHAPE(s[0], s[1], s[2]), b->x);
        ls_tensor *y = w == SUM   ? ls_op_reduce_sum(x, LS_AXES(1), false)
                       : w == MAX ? ls_op_reduce_max(x, LS_AXES(1), false)
                                  : ls_op_reduce_min(x, LS_AXES(1), false);
        OK(ls_read(y, out, (size_t)count * sizeof(*out)));
    }
    for (int64_t q = 0; q < count; q++) {
        long double want = expected(b->x, s, q / s[2], q % s[2], w);
        if (!(fabsl(out[q] - want) <= (w == SUM ? 1e-6L * (fabsl(want) + 1e-3L) : 0)))
            fail_msg("(%ld, %ld, %ld) element %ld: %.9g, not %.9Lg", (long)s[0], (long)s[1], (long)s[2], (long)q,
                     (double)out[q], want);
    }
}

static void reductions_are_right_and_do_not_depend_on_workers(void **state)
{
    (void)state;
    float *first = calloc(MOST, sizeof(*first)), *again = calloc(MOST, sizeof(*again));
    assert_true(first && again);
    for (int threads = 1; threads <= 5; threads += 2) {
        bed b;
        open_bed(&b, threads);
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
            for (what w = SUM; w <= MIN; w++)
                check_reduction(&b, shapes[i], w, threads == 1 && i == 7 && w == SUM ? first : again);
        check_reduction(&b, shapes[7], SUM, again);
        assert_memory_equal(first, again, (size_t)(shapes[7][0] * shapes[7][2]) * sizeof(*first));
        close_bed(&b);
    }
    free(first);
    free(again);
}

static void a_nan_is_the_extreme(void **state)
{
    (void)state;
    bed b;
    float out[130];
    open_bed(&b, 2);
    b.x[1000] = NAN;
    for (int largest = 0; largest < 2; largest++)
        for (int inner = 0; inner < 2; inner++)
            LS_SCOPE(b.graph)
            {
                ls_tensor *x = ls_op_constant(b.graph, LS_F32, inner ? LS_SHAPE(600, 130) : LS_SHAPE(1, 78000), b.x);
                ls_axes axes = LS_AXES(!inner);
                ls_tensor *y = largest ? ls_op_reduce_max(x, axes, false) : ls_op_reduce_min(x, axes, false);
                OK(ls_read(y, out, sizeof(float) * (inner ? 130 : 1)));
                assert_true(isnan(out[inner ? 1000 % 130 : 0]));
            }
    close_bed(&b);
}

/* Cast, square and sum are one kernel; the sum is that of float64. */
static void squared_norms_are_one_kernel(void **state)
{
    (void)state;
    bed b;
    char *text = NULL;
    double norm = 0;
    long double want = 0;
    open_bed(&b, 2);
    ls_tensor *x = ls_op_constant(b.graph, LS_F32, LS_SHAPE(601, 401), b.x);
    ls_tensor *y = ls_op_reduce_sum(ls_op_square(ls_op_cast(x, LS_F64)), LS_ALL_AXES, false);
    OK(ls_explain(b.graph, &y, 1, -1, &text));
    assert_non_null(strstr(text, "squared norm"));
    free(text);
    OK(ls_eval(b.graph, NULL, 0, &y, 1));
    OK(ls_read_scalar(y, &norm));
    for (int i = 0; i < 601 * 401; i++)
        want += (long double)b.x[i] * b.x[i];
    assert_true(fabsl(norm - want) <= 1e-13L * want);
    close_bed(&b);
}

static void softmax_rows_are_whole_in_every_tile(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = { { 3000, 7 }, { 5, 20011 }, { 1, 50000 }, { 129, 1000 } };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        bed b;
        open_bed(&b, 3);
        int64_t rows = sizes[i][0], cols = sizes[i][1];
        float *out = calloc((size_t)(rows * cols), sizeof(*out));
        assert_non_null(out);
        ls_tensor *x = ls_op_constant(b.graph, LS_F32, LS_SHAPE(rows, cols), b.x);
        OK(ls_read(ls_op_softmax(x, -1), out, (size_t)(rows * cols) * sizeof(*out)));
        for (int64_t r = 0; r < rows; r++) {
            long double sum = 0, total = 0;
            for (int64_t c = 0; c < cols; c++)
                sum += expl(b.x[r * cols + c]);
            for (int64_t c = 0; c < cols; c++) {
                long double want = expl(b.x[r * cols + c]) / sum;
                total += out[r * cols + c];
                assert_true(fabsl(out[r * cols + c] - want) <= 1e-5L * want);
            }
            assert_true(fabsl(total - 1) <= 1e-5L);
        }
        free(out);
        close_bed(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_are_right_and_do_not_depend_on_workers),
        cmocka_unit_test(a_nan_is_the_extreme),
        cmocka_unit_test(squared_norms_are_one_kernel),
        cmocka_unit_test(softmax_rows_are_whole_in_every_tile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
