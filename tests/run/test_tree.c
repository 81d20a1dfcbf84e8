/* The tree and its leaves, exactly: joins against the definition, lanes without samples, where
 * lanes begin and end, and that a lane's leaf is its blocks, whatever the micro-batches. Everything
 * is compared byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "check.h"
#include "lockstep/device.h"
#include "lockstep/run.h"
#include "backend/cpu/cpu.h"
#include "run/runs.h"

static uint32_t draw(uint32_t stream, uint32_t i)
{
    return ls_random_block(ls_random_key(2, LS_RANDOM_TEST, stream, 0), 0, 0, i).word[0];
}

/* Numbers of very different sizes and both signs, so that any other order of a sum shows; some are
 * zeros of either sign. */
static double any_real(uint32_t stream, uint32_t i)
{
    uint32_t word = draw(stream, i);
    if (word % 11 == 0)
        return word & 64 ? -0.0 : 0.0;
    double size = ldexp(1 + (word >> 8) * 0x1p-24, (int)(word % 40) - 20);
    return word & 128 ? -size : size;
}

/* ---- The definition ---- */

/* T[a,b) of one element: the lane's own value if b-a is 1, else T[a,a+k) + T[a+k,b), k the largest
 * power of two below b-a; nothing and x is x. Returns whether there is a value. */
#define DEFINE_TREE(type, suffix, sum)                                                                                 \
    static bool tree_##suffix(const type *const *lane, int a, int b, size_t i, ls_join_kind kind, type *out)           \
    {                                                                                                                  \
        type x = 0, y = 0;                                                                                             \
        if (b - a == 1) {                                                                                              \
            if (lane[a])                                                                                               \
                *out = lane[a][i];                                                                                     \
            return lane[a] != NULL;                                                                                    \
        }                                                                                                              \
        int k = 1;                                                                                                     \
        while (2 * k < b - a)                                                                                          \
            k *= 2;                                                                                                    \
        bool left = tree_##suffix(lane, a, a + k, i, kind, &x), right = tree_##suffix(lane, a + k, b, i, kind, &y);    \
        if (left && right)                                                                                             \
            *out = kind == LS_JOIN_SUM ? (sum) : kind == LS_JOIN_MAX ? (y > x ? y : x) : (y < x ? y : x);              \
        else                                                                                                           \
            *out = left ? x : y;                                                                                       \
        return left || right;                                                                                          \
    }

DEFINE_TREE(float, f32, x + y)
DEFINE_TREE(double, f64, x + y)
DEFINE_TREE(int32_t, i32, (int32_t)((uint32_t)x + (uint32_t)y))
DEFINE_TREE(int64_t, i64, (int64_t)((uint64_t)x + (uint64_t)y))

static void expect(ls_dtype dtype, ls_join_kind kind, const void *const *lane, int lanes, size_t i, void *out)
{
    switch (dtype) {
    case LS_F32:
        tree_f32((const float *const *)lane, 0, lanes, i, kind, (float *)out + i);
        break;
    case LS_F64:
        tree_f64((const double *const *)lane, 0, lanes, i, kind, (double *)out + i);
        break;
    case LS_I32:
        tree_i32((const int32_t *const *)lane, 0, lanes, i, kind, (int32_t *)out + i);
        break;
    default:
        tree_i64((const int64_t *const *)lane, 0, lanes, i, kind, (int64_t *)out + i);
        break;
    }
}

/* ---- Joins ---- */

#define ELEMENTS   75
#define MOST_LANES 40

static void fill(ls_dtype dtype, void *data, size_t count, uint32_t stream)
{
    for (size_t i = 0; i < count; i++) {
        double real = any_real(stream, (uint32_t)i);
        int64_t integer = (int64_t)((uint64_t)draw(stream, (uint32_t)i) << 33 ^ draw(stream + 1, (uint32_t)i));
        if (dtype == LS_F32)
            ((float *)data)[i] = (float)real;
        else if (dtype == LS_F64)
            ((double *)data)[i] = real;
        else if (dtype == LS_I32)
            ((int32_t *)data)[i] = (int32_t)integer;
        else
            ((int64_t *)data)[i] = integer;
    }
}

static void check_join(const ls_simd *simd, ls_dtype dtype, ls_join_kind kind, int lanes, uint32_t stream, bool holes)
{
    static double data[LS_MAX_LANES][ELEMENTS], got[ELEMENTS], wanted[ELEMENTS];
    static const void *lane[LS_MAX_LANES];
    size_t from = draw(stream, 1) % 20, to = ELEMENTS - draw(stream, 2) % 20, bytes = ls_dtype_bytes(dtype);
    bool any = false;
    for (int v = 0; v < lanes; v++) {
        fill(dtype, data[v], ELEMENTS, stream * 64 + (uint32_t)v);
        lane[v] = holes && draw(stream * 64 + (uint32_t)v, 99) % 2 ? NULL : data[v];
        any = any || lane[v];
    }
    if (!any)
        lane[lanes - 1] = data[lanes - 1];
    memset(got, 0x77, sizeof(got));
    memset(wanted, 0x77, sizeof(wanted));
    ls_cpu_join_lanes(simd, kind, dtype, got, lane, lanes, from, to);
    for (size_t i = from; i < to; i++)
        expect(dtype, kind, lane, lanes, i, wanted);
    for (size_t i = 0; i < sizeof(got) / bytes; i++)
        if (memcmp((char *)got + i * bytes, (char *)wanted + i * bytes, bytes) != 0)
            fail_msg("%s, %s, join %d of %d lanes%s, element %zu of %zu to %zu differs", simd->name,
                     ls_dtype_name(dtype), (int)kind, lanes, holes ? " with empty ones" : "", i, from, to);
}

static void joins_are_the_tree(void **state)
{
    (void)state;
    static const ls_dtype types[] = { LS_F32, LS_F64, LS_I32, LS_I64 };
    static const char *const sets[] = { "base", "avx2", "avx512" };
    int checked = 0;
    for (size_t s = 0; s < LENGTH(sets); s++) {
        const ls_simd *simd = ls_simd_named(sets[s]);
        for (size_t t = 0; simd && t < LENGTH(types); t += 3) { /* the deepest tree */
            check_join(simd, types[t], LS_JOIN_SUM, LS_MAX_LANES, 1, false);
            check_join(simd, types[t], LS_JOIN_SUM, LS_MAX_LANES - 1, 2, true);
        }
        for (size_t t = 0; simd && t < LENGTH(types); t++)
            for (ls_join_kind kind = LS_JOIN_SUM; kind <= LS_JOIN_MIN; kind++)
                for (int lanes = 1; lanes <= MOST_LANES; lanes++)
                    for (int holes = 0; holes < 2; holes++, checked++)
                        check_join(simd, types[t], kind, lanes, (uint32_t)checked + 1, holes != 0);
    }
    assert_true(checked >= 12 * MOST_LANES * 2);
}

/* The definition itself, for three lanes by hand: (a + b) + c. */
static void three_lanes_by_hand(void **state)
{
    (void)state;
    float a = 1, b = 0x1p-24f, c = 0x1p-24f, sum;
    const void *lanes[] = { &a, &b, &c };
    ls_cpu_join_lanes(ls_simd_choose(), LS_JOIN_SUM, LS_F32, &sum, lanes, 3, 0, 1);
    assert_true(sum == 1); /* 1 + (b + c) would be 1 + 2^-23 */
    const void *turned[] = { &b, &c, &a };
    ls_cpu_join_lanes(ls_simd_choose(), LS_JOIN_SUM, LS_F32, &sum, turned, 3, 0, 1);
    assert_true(sum == 1 + 0x1p-23f);
}

static void a_nan_stays(void **state)
{
    (void)state;
    for (ls_join_kind kind = LS_JOIN_SUM; kind <= LS_JOIN_MIN; kind++)
        for (int at = 0; at < 5; at++) {
            float data[5] = { 1, -2, 3, -4, 5 }, out;
            double wide[5] = { 1, -2, 3, -4, 5 }, wide_out;
            const void *lanes[5], *wide_lanes[5];
            data[at] = NAN;
            wide[at] = NAN;
            for (int v = 0; v < 5; v++) {
                lanes[v] = &data[v];
                wide_lanes[v] = &wide[v];
            }
            ls_cpu_join_lanes(ls_simd_choose(), kind, LS_F32, &out, lanes, 5, 0, 1);
            ls_cpu_join_lanes(ls_simd_choose(), kind, LS_F64, &wide_out, wide_lanes, 5, 0, 1);
            assert_true(isnan(out) && isnan(wide_out));
        }
}

static void what_is_joined_next_is_the_right_operand(void **state)
{
    (void)state;
    static const ls_dtype types[] = { LS_F32, LS_F64, LS_I32, LS_I64 };
    for (size_t t = 0; t < LENGTH(types); t++)
        for (ls_join_kind kind = LS_JOIN_SUM; kind <= LS_JOIN_MIN; kind++) {
            double a[ELEMENTS], b[ELEMENTS], wanted[ELEMENTS];
            const void *lanes[] = { a, b };
            fill(types[t], a, ELEMENTS, 5);
            fill(types[t], b, ELEMENTS, 6);
            for (size_t i = 0; i < ELEMENTS; i++)
                expect(types[t], kind, lanes, 2, i, wanted);
            ls_cpu_join_next(ls_simd_choose(), kind, types[t], a, b, ELEMENTS);
            assert_memory_equal(a, wanted, ELEMENTS * ls_dtype_bytes(types[t]));
        }
}

/* ---- Graphs ---- */

typedef struct bed {
    ls_context *ctx;
    ls_graph *graph;
    ls_runs *runs;
    ls_tensor *x;
} bed;

static void open_bed(bed *b, ls_dtype dtype, int64_t row)
{
    assert_int_equal(ls_context_open(&(ls_context_options){ .threads = 2 }, &b->ctx), LS_OK);
    assert_int_equal(ls_graph_create(b->ctx, &b->graph, .seed = 4), LS_OK);
    assert_int_equal(ls_runs_of(b->graph, &b->runs), LS_OK);
    b->x = ls_op_input(b->graph, "x", dtype, row ? LS_SHAPE(LS_BATCH, row) : LS_SHAPE(LS_BATCH));
}

static void close_bed(bed *b)
{
    ls_graph_destroy(b->graph);
    ls_context_close(b->ctx);
}

static void set(bed *b, int lanes, int64_t micro)
{
    ls_runs_clear(b->runs);
    b->runs->settings.plan.lanes = lanes;
    b->runs->settings.plan.micro = micro;
}

static void run(bed *b, const void *data, int64_t n, ls_tensor *const *fetches, size_t count)
{
    ls_shape shape = ls_tensor_shape(b->x);
    shape.dims[0] = n;
    ls_feed feed = { b->x, ls_array_of(ls_tensor_dtype(b->x), shape, data) };
    b->graph->run = b->graph->step = 0;
    if (ls_eval(b->graph, &feed, 1, fetches, count) != LS_OK)
        fail_msg("%lld samples: %s", (long long)n, ls_last_error());
}

static void lanes_begin_where_they_should(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 0, 1, 7, 33, 4096, 60001, ((int64_t)1 << 40) + 12345 };
    for (size_t s = 0; s < LENGTH(sizes); s++)
        for (int lanes = 1; lanes <= 1024; lanes++)
            for (int v = 0; v <= lanes; v += lanes > 64 ? 13 : 1)
                if (ls_lane_first(sizes[s], lanes, v) != v * sizes[s] / lanes)
                    fail_msg("lane %d of %d begins at %lld of %lld", v, lanes,
                             (long long)ls_lane_first(sizes[s], lanes, v), (long long)sizes[s]);
}

/* Sample numbers go in; they must come out, each once, and in order. Random rows belong to samples,
 * not to lanes. */
static void every_sample_is_used_once(void **state)
{
    (void)state;
    enum { MOST = 40, ROW = 5 };
    bed b;
    int64_t numbers[MOST + 1], squares = 0;
    float rows[MOST * ROW];
    open_bed(&b, LS_I64, 0);
    ls_tensor *random = ls_op_random_uniform(b.graph, LS_F32, LS_SHAPE(LS_BATCH, ROW), -1, 1);
    ls_tensor *seen = ls_op_reduce_sum(ls_op_fill(b.graph, LS_I64, LS_SHAPE(LS_BATCH), 1), LS_ALL_AXES, false);
    ls_tensor *fetches[] = { ls_op_reduce_sum(b.x, LS_ALL_AXES, false),
                             ls_op_reduce_sum(ls_op_square(b.x), LS_ALL_AXES, false),
                             ls_op_gather_batch(b.x),
                             ls_op_shift(b.x, 3), /* per-sample, fetched */
                             random,
                             ls_op_gather_batch(random),
                             ls_op_count(b.graph, LS_I64),
                             seen };
    for (int64_t n = 0; n <= MOST; n++) {
        numbers[n] = n;
        squares += n > 0 ? (n - 1) * (n - 1) : 0;
        for (int lanes = 1; lanes <= 33; lanes++) {
            int64_t sum, square, all[MOST + 1], shifted[MOST + 1], count, ones;
            float here[MOST * ROW], gathered[MOST * ROW];
            set(&b, lanes, lanes % 4); /* micro-batches of all, 1, 2, 3 */
            run(&b, numbers, n, fetches, LENGTH(fetches));
            assert_int_equal(ls_read(fetches[0], &sum, sizeof(sum)), LS_OK);
            assert_int_equal(ls_read(fetches[1], &square, sizeof(square)), LS_OK);
            assert_int_equal(ls_read(fetches[2], all, (size_t)n * sizeof(*all)), LS_OK);
            assert_int_equal(ls_read(fetches[3], shifted, (size_t)n * sizeof(*all)), LS_OK);
            assert_int_equal(ls_read(fetches[4], here, (size_t)n * ROW * sizeof(*here)), LS_OK);
            assert_int_equal(ls_read(fetches[5], gathered, (size_t)n * ROW * sizeof(*here)), LS_OK);
            assert_int_equal(ls_read(fetches[6], &count, sizeof(count)), LS_OK);
            assert_int_equal(ls_read(fetches[7], &ones, sizeof(ones)), LS_OK);
            assert_int_equal(sum, n * (n - 1) / 2);
            assert_int_equal(square, squares);
            assert_int_equal(count, n);
            assert_int_equal(ones, n);
            for (int64_t i = 0; i < n; i++) {
                assert_int_equal(all[i], i);
                assert_int_equal(shifted[i], i + 3);
            }
            if (lanes == 1)
                memcpy(rows, here, sizeof(rows));
            assert_memory_equal(here, rows, (size_t)n * ROW * sizeof(*here));
            assert_memory_equal(gathered, rows, (size_t)n * ROW * sizeof(*here));
        }
    }
    close_bed(&b);
}

/* Rows picked from a set: the batch is these rows, in this order, however it is cut, also in views
 * of the input. / */
static void picked_rows_are_the_batch(void **state)
{
    (void)state;
    enum { SET = 50, N = 23, EACH = 3 };
    bed b;
    int64_t set_data[SET][EACH], rows[N];
    for (int64_t i = 0; i < SET * EACH; i++)
        set_data[i / EACH][i % EACH] = i;
    for (uint32_t i = 0; i < N; i++)
        rows[i] = draw(50, i) % SET; /* one may come twice */
    open_bed(&b, LS_I64, EACH);
    ls_tensor *views[] = { b.x,
                           ls_op_shift(b.x, 0),
                           ls_op_gather_batch(b.x),
                           ls_op_reshape(b.x, LS_SHAPE(LS_BATCH, EACH, 1)),
                           ls_op_stop_gradient(b.x),
                           ls_op_gather_batch(ls_op_reshape(b.x, LS_SHAPE(LS_BATCH, 1, EACH))),
                           ls_op_add(b.x, ls_op_fill(b.graph, LS_I64, LS_SHAPE(EACH), 0)) };
    ls_feed feed = { b.x, ls_array_of(LS_I64, LS_SHAPE(SET, EACH), set_data) };
    for (int lanes = 1; lanes <= 33; lanes++)
        for (size_t i = 0; i <= LENGTH(views); i++) { /* each alone, then all */
            size_t first = i < LENGTH(views) ? i : 0, count = i < LENGTH(views) ? 1 : LENGTH(views);
            set(&b, lanes, lanes % 4);
            if (ls_eval_rows(b.graph, &feed, 1, rows, N, views + first, count) != LS_OK)
                fail_msg("%s", ls_last_error());
            for (size_t v = first; v < first + count; v++) {
                int64_t got[N][EACH];
                assert_int_equal(ls_read(views[v], got, sizeof(got)), LS_OK);
                for (int k = 0; k < N; k++)
                    if (memcmp(got[k], set_data[rows[k]], sizeof(*got)) != 0)
                        fail_msg("%d lanes: sample %d of %s (view %zu) is not row %d", lanes, k, ls_tensor_op(views[v]),
                                 v, (int)rows[k]);
            }
        }
    close_bed(&b);
}

/* Nothing joined to x is x, however many lanes have nothing: -0 stays -0. (Sums have no -0 to show
 * it with: a chain begins with +0; joins_are_the_tree has them.) */
static void an_empty_lane_adds_nothing(void **state)
{
    (void)state;
    bed b;
    open_bed(&b, LS_F32, 3);
    ls_tensor *sum = ls_op_reduce_sum(b.x, LS_AXES(0), false);
    ls_tensor *most = ls_op_reduce_max(b.x, LS_AXES(0), false), *least = ls_op_reduce_min(b.x, LS_AXES(0), false);
    const float rows[6] = { -0.0f, -5, 0x1p-149f, -0.0f, -6, 0x1p-149f }, both[3] = { 0, -11, 0x1p-148f };
    for (int lanes = 1; lanes <= 33; lanes++)
        for (int64_t n = 1; n <= 2; n++) {
            float got[3];
            set(&b, lanes, 1);
            run(&b, rows, n, (ls_tensor *[]){ sum, most, least }, 3);
            assert_int_equal(ls_read(sum, got, sizeof(got)), LS_OK);
            for (int i = 0; i < 3; i++)
                if (got[i] != (n == 1 ? rows : both)[i])
                    fail_msg("%d lanes: sum %d of %lld rows is %g", lanes, i, (long long)n, (double)got[i]);
            assert_int_equal(ls_read(most, got, sizeof(got)), LS_OK);
            assert_memory_equal(got, rows, sizeof(got));
            assert_int_equal(ls_read(least, got, sizeof(got)), LS_OK);
            assert_memory_equal(got, n == 1 ? rows : rows + 3, sizeof(got));
        }
    close_bed(&b);
}

#define ROW  37
#define MOST 33

/* The tree over n samples of one position each: a lane of so few is one block, a chain from +0. */
static void join_chains(const float (*rows)[ROW], int64_t n, int lanes, float *out)
{
    static float leaf[MOST][ROW];
    const float *lane[MOST] = { NULL };
    for (int v = 0; v < lanes; v++) {
        int64_t first = v * n / lanes, end = (v + 1) * n / lanes;
        for (int i = 0; i < ROW; i++) {
            leaf[v][i] = 0;
            for (int64_t at = first; at < end; at++)
                leaf[v][i] += rows[at][i];
        }
        lane[v] = end > first ? leaf[v] : NULL;
    }
    for (size_t i = 0; i < ROW; i++)
        tree_f32(lane, 0, lanes, i, LS_JOIN_SUM, out + i);
}

static int64_t micro_of(bed *b, ls_tensor *fetch, int64_t n)
{
    ls_executor *executor = NULL;
    assert_int_equal(ls_runs_get(b->graph, NULL, &fetch, 1, n, &executor), LS_OK);
    const ls_plan *plan = ls_executor_plan(executor);
    assert_int_equal(plan->segment_count, 1);
    return plan->segments[0].micro;
}

static void check_leaves(bed *b, ls_tensor *fetch, const float (*rows)[ROW])
{
    static const int lane_counts[] = { 1, 2, 3, 5, 8, 32, 33 };
    static const int64_t sizes[] = { 1, 2, 7, 16, 32, 33 };
    for (size_t s = 0; s < LENGTH(sizes); s++)
        for (size_t l = 0; l < LENGTH(lane_counts); l++)
            for (int64_t asked = 1; asked <= 3; asked++) {
                float got[ROW], wanted[ROW];
                set(b, lane_counts[l], asked);
                run(b, rows, sizes[s], &fetch, 1);
                assert_int_equal(ls_read(fetch, got, sizeof(got)), LS_OK);
                int64_t micro = micro_of(b, fetch, sizes[s]);
                assert_true(micro >= 1 && micro <= asked);
                join_chains(rows, sizes[s], lane_counts[l], wanted);
                if (memcmp(got, wanted, sizeof(got)) != 0)
                    fail_msg("%s of %lld samples in %d lanes, micro-batches of %lld: not the tree", ls_tensor_op(fetch),
                             (long long)sizes[s], lane_counts[l], (long long)micro);
            }
}

static void leaves_are_chains_over_micro_batches(void **state)
{
    (void)state;
    static float rows[MOST][ROW];
    for (uint32_t i = 0; i < MOST; i++)
        for (uint32_t k = 0; k < ROW; k++)
            rows[i][k] = (float)any_real(70 + i, k);
    bed b;
    open_bed(&b, LS_F32, ROW);
    check_leaves(&b, ls_op_reduce_sum(b.x, LS_AXES(0), false), (const float(*)[ROW])rows);
    /* A weight's gradient: [ROW,1] = x^T [N,ROW] times ones [N,1]. */
    ls_tensor *ones = ls_op_fill(b.graph, LS_F32, LS_SHAPE(LS_BATCH, 1), 1);
    check_leaves(&b, ls_op_matmul(b.x, ones, .transpose_a = true), (const float(*)[ROW])rows);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_are_the_tree),
        cmocka_unit_test(three_lanes_by_hand),
        cmocka_unit_test(a_nan_stays),
        cmocka_unit_test(what_is_joined_next_is_the_right_operand),
        cmocka_unit_test(lanes_begin_where_they_should),
        cmocka_unit_test(every_sample_is_used_once),
        cmocka_unit_test(picked_rows_are_the_batch),
        cmocka_unit_test(an_empty_lane_adds_nothing),
        cmocka_unit_test(leaves_are_chains_over_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
