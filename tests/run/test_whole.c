/* Whole tensors on all workers: reductions, softmax and squared norms in tiles, against plain loops
 * in long double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/simd.h"
#include "base/philox.h"
#include "check.h"
#include "lockstep.h"
#include "run/compile.h"

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

/* Tiles leave sums of 4,096 squares, which are added in order: the bits of one sweep, with any
 * workers, in every run. / */
static void squared_norms_in_tiles_have_the_bits_of_one_sweep(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 4096, 16384, 16385, 20480, 100003, MOST };
    const ls_simd *simd = ls_simd_choose();
    for (int threads = 1; threads <= 5; threads += 2) {
        bed b;
        open_bed(&b, threads);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            ls_tensor *x = ls_op_input(b.graph, NULL, LS_F32, LS_SHAPE(sizes[i]));
            ls_tensor *y = ls_op_reduce_sum(ls_op_square(ls_op_cast(x, LS_F64)), LS_ALL_AXES, false);
            ls_feed feed = { x, ls_array_of(LS_F32, LS_SHAPE(sizes[i]), b.x) };
            for (int run = 0; run < 2; run++) {
                double norm = NAN, want = simd->sum_squares(b.x, (size_t)sizes[i]);
                OK(ls_eval(b.graph, &feed, 1, &y, 1));
                OK(ls_read_scalar(y, &norm));
                if (memcmp(&norm, &want, sizeof(norm)) != 0)
                    fail_msg("%ld elements, %d threads: %.17g, not %.17g", (long)sizes[i], threads, norm, want);
                b.x[0] += 1;
            }
        }
        close_bed(&b);
    }
}

/* ---- Clipping and accumulation ---- */

/* Everything that looks at more than a tile of a gradient does so in tiles, by vector kernels. */
static void check_tiles(const ls_plan *plan, size_t which)
{
    int large = 0;
    for (int i = 0; i < plan->whole_count + plan->update_count; i++) {
        const ls_group *group =
            i < plan->whole_count ? plan->whole_steps[i].group : plan->updates[i - plan->whole_count].group;
        size_t most = ls_plan_unit(plan, group->root);
        for (int k = 0; k < group->in_count; k++) {
            size_t bytes = ls_plan_unit(plan, plan->nodes[group->in[k]].node);
            most = bytes > most ? bytes : most;
        }
        if (most <= LS_TILE * sizeof(float))
            continue;
        char label[LS_NODE_TEXT];
        if (!group->kernel->tiled || strcmp(group->kernel->name, "reference") == 0)
            fail_msg("optimizer %zu: %s: %s, %s", which, ls_node_label(group->root, label), group->kernel->name,
                     group->kernel->tiled ? "in tiles" : "not in tiles");
        large++;
    }
    assert_true(large >= 1);
}

static void large_gradients_are_clipped_and_accumulated_in_tiles(void **state)
{
    (void)state;
    const ls_optimizer list[] = { ls_sgd(),
                                  ls_adam(.clipnorm = 1),
                                  ls_adam(.global_clipnorm = 1),
                                  ls_rmsprop(.clipvalue = 1),
                                  ls_adagrad(.gradient_accumulation_steps = 3),
                                  ls_adamw(.gradient_accumulation_steps = 3, .clipnorm = 1),
                                  ls_sgd(.momentum = 0.9, .gradient_accumulation_steps = 2, .global_clipnorm = 1) };
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        bed b;
        open_bed(&b, 2);
        ls_tensor *w = ls_op_variable(b.graph, "w", LS_F32, LS_SHAPE(300, 400));
        ls_tensor *g = ls_op_input(b.graph, NULL, LS_F32, LS_SHAPE(300, 400));
        ls_tensor *step = ls_apply_gradients(list[i], &g, &w, 1, NULL);
        ls_executor *executor = NULL;
        OK(ls_compile_run(b.graph, NULL, &step, 1, -1, NULL, NULL, &executor));
        check_tiles(ls_executor_plan(executor), i);
        ls_executor_destroy(executor);
        close_bed(&b);
    }
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
        cmocka_unit_test(squared_norms_in_tiles_have_the_bits_of_one_sweep),
        cmocka_unit_test(large_gradients_are_clipped_and_accumulated_in_tiles),
        cmocka_unit_test(softmax_rows_are_whole_in_every_tile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
