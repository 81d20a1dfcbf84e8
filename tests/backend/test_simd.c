/* The vectorised kernels: each table against plain computations in double, odd sizes, guard zones
 * around every output, infinities and NaN; the same bits from every table. Where the bits are the
 * reference kernels': test_simd_reference. / */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/sha256.h"
#include "simd_arrays.h"

/* ---- Elementwise: one input ---- */

static double ref_sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double ref_silu(double x)
{
    return x * ref_sigmoid(x);
}

static double ref_softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static double ref_gelu(double x)
{
    return x * (0.5 * erfc(-x * sqrt(0.5)));
}

static double ref_gelu_tanh(double x)
{
    return x * ref_sigmoid(2 * sqrt(0x1.45f306dc9c883p-1) * (x + 0.044715 * x * x * x)); /* 2/pi */
}

static double ref_relu(double x)
{
    return x <= 0 ? 0 : x;
}

static double ref_square(double x)
{
    return x * x;
}

static double ref_neg(double x)
{
    return -x;
}

static double ref_rsqrt(double x)
{
    return 1 / sqrt(x);
}

static const struct unary {
    const char *name;
    size_t member;
    double (*want)(double);
    double low, high, tolerance;
} unaries[] = {
#define UNARY(id, function, from, to, units)                                                                           \
    {                                                                                                                  \
        .name = #id, .member = offsetof(ls_simd, id), .want = function, .low = from, .high = to, .tolerance = units    \
    }
    UNARY(relu, ref_relu, -9, 9, 0),
    UNARY(neg, ref_neg, -9, 9, 0),
    UNARY(abs, fabs, -9, 9, 0),
    UNARY(square, ref_square, -9, 9, 0.5),
    UNARY(sqrt, sqrt, -1, 9, 0.5),
    UNARY(rsqrt, ref_rsqrt, -1, 9, 0.5001),
    UNARY(exp, exp, -110, 90, 0.5001),
    UNARY(log, log, -1, 20, 0.5001),
    UNARY(tanh, tanh, -12, 12, 0.5001),
    UNARY(erf, erf, -5, 5, 0.501),
    UNARY(sigmoid, ref_sigmoid, -110, 30, 0.501),
    UNARY(silu, ref_silu, -110, 30, 0.501),
    UNARY(softplus, ref_softplus, -110, 30, 0.501),
    UNARY(gelu, ref_gelu, -15, 9, 0.51),
    UNARY(gelu_tanh, ref_gelu_tanh, -12, 9, 0.501),
};

static ls_simd_unary *unary_of(const ls_simd *table, size_t member)
{
    ls_simd_unary *kernel;
    memcpy(&kernel, (const char *)table + member, sizeof kernel);
    return kernel;
}

static void try_unary(const struct unary *u, const float *x, size_t n)
{
    output outs[3];
    for (int t = 0; t < table_count; t++) {
        outs[t] = output_of(n * sizeof(float));
        unary_of(tables[t], u->member)(outs[t].f32, x, n);
        for (size_t i = 0; i < n; i++)
            expect_near(outs[t].f32[i], u->want(x[i]), u->tolerance, u->name, tables[t]->name, (double)x[i]);
        float *in_place = floats(n);
        memcpy(in_place, x, n * sizeof *x);
        unary_of(tables[t], u->member)(in_place, in_place, n);
        expect_same(in_place, outs[t].f32, n, u->name, "in place");
        free(in_place);
    }
    outputs_done(outs, u->name, false);
}

static void functions_of_one_input(void **state)
{
    (void)state;
    for (size_t f = 0; f < LENGTH(unaries); f++) {
        const struct unary *u = &unaries[f];
        for (size_t s = 0; s < LENGTH(sizes); s++) {
            float *x = wild_floats(sizes[s], u->low, u->high);
            try_unary(u, x, sizes[s]);
            free(x);
        }
        enum { MANY = 100000 };
        float *x = random_floats(MANY, u->low, u->high);
        for (size_t i = 0; i < MANY; i += 2) /* close to 0 and 1, where cancellation is */
            x[i] = i % 4 == 0 ? ldexpf(x[i], -(int)(word() % 60)) : 1 + ldexpf(within(-1, 1), -(int)(word() % 24));
        try_unary(u, x, MANY);
        free(x);
    }
}

/* Zeros keep their sign where the reference kernels keep it. */
static void signs_of_zero(void **state)
{
    (void)state;
    for (int t = 0; t < table_count; t++) {
        float x[2] = { -0.0f, 0.0f }, y[2];
        tables[t]->relu(y, x, 2);
        assert_true(!signbit(y[0]) && !signbit(y[1]));
        tables[t]->tanh(y, x, 2);
        assert_true(signbit(y[0]) && !signbit(y[1]));
        tables[t]->erf(y, x, 2);
        assert_true(signbit(y[0]) && !signbit(y[1]));
        tables[t]->elu(y, x, 0.3f, 2);
        assert_true(signbit(y[0]) && !signbit(y[1]));
        tables[t]->maximum(y, x, (float[]){ 0.0f, -0.0f }, 2); /* the first of equals */
        assert_true(signbit(y[0]) && !signbit(y[1]));
        tables[t]->minimum(y, x, (float[]){ 0.0f, -0.0f }, 2);
        assert_true(signbit(y[0]) && !signbit(y[1]));
    }
}

/* ---- Elementwise: two inputs, a scalar, a row ---- */

static float ref_max(float a, float b)
{
    return a >= b || a != a ? a : b;
}

static float ref_min(float a, float b)
{
    return a <= b || a != a ? a : b;
}

static float binary_want(int which, float a, float b)
{
    switch (which) {
    case 0:
        return a + b;
    case 1:
        return a - b;
    case 2:
        return a * b;
    case 3:
        return a / b;
    case 4:
        return ref_max(a, b);
    default:
        return ref_min(a, b);
    }
}

static ls_simd_binary *binary_of(const ls_simd *table, int which)
{
    ls_simd_binary *const kernels[] = {
        table->add, table->sub, table->mul, table->div, table->maximum, table->minimum
    };
    return kernels[which];
}

static void functions_of_two_inputs(void **state)
{
    (void)state;
    for (int which = 0; which < 6; which++) {
        for (size_t s = 0; s < LENGTH(sizes); s++) {
            size_t n = sizes[s];
            float *a = wild_floats(n, -9, 9), *b = wild_floats(n, -9, 9);
            output outs[3];
            for (int t = 0; t < table_count; t++) {
                outs[t] = output_of(n * sizeof(float));
                binary_of(tables[t], which)(outs[t].f32, a, b, n);
                for (size_t i = 0; i < n; i++)
                    assert_true(same_f32(outs[t].f32[i], binary_want(which, a[i], b[i])));
            }
            outputs_done(outs, "a function of two inputs", false);
            free(a);
            free(b);
        }
    }
}

static float scalar_want(int which, float x, float s)
{
    switch (which) {
    case 0:
        return x * s;
    case 1:
        return x + s;
    case 2:
        return x > 0 ? x : s * x;
    case 3:
        return x / s;
    default:
        return x > 0 ? x : (float)(s * expm1(x));
    }
}

static void functions_with_a_scalar(void **state)
{
    (void)state;
    for (int which = 0; which < 5; which++) {
        for (size_t s = 0; s < LENGTH(sizes); s++) {
            size_t n = sizes[s];
            float *x = wild_floats(n, -9, 9), scalar = 0.3f;
            output outs[3];
            for (int t = 0; t < table_count; t++) {
                const ls_simd *v = tables[t];
                ls_simd_with_scalar *const kernels[] = { v->scale, v->add_scalar, v->leaky_relu, v->div_scalar,
                                                         v->elu };
                outs[t] = output_of(n * sizeof(float));
                kernels[which](outs[t].f32, x, scalar, n);
                for (size_t i = 0; i < n; i++) /* elu: in double, and rounded once */
                    expect_near(outs[t].f32[i], (double)scalar_want(which, x[i], scalar), which == 4 ? 1 : 0, "scalar",
                                v->name, (double)x[i]);
            }
            outputs_done(outs, "a function with a scalar", false);
            free(x);
        }
    }
}

static void clip_and_gradient_of_relu(void **state)
{
    (void)state;
    for (size_t s = 0; s < LENGTH(sizes); s++) {
        size_t n = sizes[s];
        float *x = wild_floats(n, -9, 9), *dy = wild_floats(n, -9, 9);
        for (int which = 0; which < 6; which++) {
            float slope = which == 0 ? 0.3f : 0;
            output outs[3];
            for (int t = 0; t < table_count; t++) {
                outs[t] = output_of(n * sizeof(float));
                if (which == 2)
                    tables[t]->clip(outs[t].f32, x, -1.5f, 2.5f, n);
                else if (which == 3)
                    tables[t]->relu_grad_add(outs[t].f32, dy, x, x, n);
                else if (which == 4)
                    tables[t]->capped_relu(outs[t].f32, x, 2.5f, n);
                else if (which == 5)
                    tables[t]->capped_relu_grad(outs[t].f32, dy, x, 2.5f, n);
                else
                    tables[t]->relu_grad(outs[t].f32, dy, x, slope, n);
                for (size_t i = 0; i < n; i++) {
                    float clipped = x[i] < -1.5f ? -1.5f : x[i] > 2.5f ? 2.5f : x[i];
                    float grad = x[i] > 0 ? dy[i] : slope == 0 ? 0 : slope * dy[i];
                    float capped = x[i] <= 0 ? 0 : x[i] > 2.5f ? 2.5f : x[i];
                    float want = which == 2   ? clipped
                                 : which == 3 ? grad + x[i]
                                 : which == 4 ? capped
                                 : which == 5 ? (x[i] <= 2.5f ? grad : 0)
                                              : grad;
                    assert_true(same_f32(outs[t].f32[i], want));
                }
            }
            outputs_done(outs, "clip or relu_grad", false);
        }
        free(x);
        free(dy);
    }
}

static void rows_added_and_multiplied(void **state)
{
    (void)state;
    const size_t rows = 5;
    for (size_t s = 0; s < LENGTH(sizes); s++) {
        size_t cols = sizes[s];
        float *x = wild_floats(rows * cols, -9, 9), *row = random_floats(cols, -9, 9);
        for (int which = 0; which < 2; which++) {
            output outs[3];
            for (int t = 0; t < table_count; t++) {
                ls_simd_with_row *const kernels[] = { tables[t]->add_row, tables[t]->mul_row };
                outs[t] = output_of(rows * cols * sizeof(float));
                kernels[which](outs[t].f32, x, row, rows, cols);
                for (size_t i = 0; i < rows * cols; i++) {
                    float r = row[i % cols];
                    assert_true(same_f32(outs[t].f32[i], which == 0 ? x[i] + r : x[i] * r));
                }
            }
            outputs_done(outs, "a function with a row", false);
        }
        free(x);
        free(row);
    }
}

/* ---- Casts, accumulating, finite, sum of squares ---- */

static void casts(void **state)
{
    (void)state;
    for (size_t s = 0; s < LENGTH(sizes); s++) {
        size_t n = sizes[s];
        uint8_t *u8 = array(n, 1);
        int32_t *i32 = array(n, sizeof *i32);
        double *f64 = array(n, sizeof *f64);
        float *f32 = wild_floats(n, -9, 9);
        for (size_t i = 0; i < n; i++) {
            u8[i] = (uint8_t)word();
            i32[i] = (int32_t)word();
            f64[i] = i % 5 == 0 ? 1e300 : i % 5 == 1 ? 1e-42 : (double)within(-1, 1) / 3;
        }
        output a[3], b[3], c[3], d[3];
        for (int t = 0; t < table_count; t++) {
            a[t] = output_of(n * sizeof(float));
            b[t] = output_of(n * sizeof(float));
            c[t] = output_of(n * sizeof(double));
            d[t] = output_of(n * sizeof(float));
            tables[t]->u8_to_f32(a[t].f32, u8, 1.0f / 255, n);
            tables[t]->i32_to_f32(b[t].f32, i32, n);
            tables[t]->f32_to_f64(c[t].f64, f32, n);
            tables[t]->f64_to_f32(d[t].f32, f64, n);
            for (size_t i = 0; i < n; i++) {
                assert_true(a[t].f32[i] == (float)u8[i] * (1.0f / 255));
                assert_true(b[t].f32[i] == (float)i32[i]);
                assert_true(same_f64(c[t].f64[i], (double)f32[i]));
                assert_true(same_f32(d[t].f32[i], (float)f64[i]));
            }
        }
        outputs_done(a, "u8_to_f32", false);
        outputs_done(b, "i32_to_f32", false);
        outputs_done(c, "f32_to_f64", true);
        outputs_done(d, "f64_to_f32", false);
        free(u8);
        free(i32);
        free(f64);
        free(f32);
    }
}

static void accumulating(void **state)
{
    (void)state;
    for (size_t s = 0; s < LENGTH(sizes); s++) {
        size_t n = sizes[s];
        float *f32 = wild_floats(n, -9, 9);
        double *f64 = array(n, sizeof *f64);
        for (size_t i = 0; i < n; i++)
            f64[i] = (double)within(-1, 1) / 3;
        for (int t = 0; t < table_count; t++) {
            output a = output_of(n * sizeof(float)), b = output_of(n * sizeof(double));
            for (size_t i = 0; i < n; i++) {
                a.f32[i] = 0.7f;
                b.f64[i] = 0.7;
            }
            tables[t]->accumulate_f32(a.f32, f32, n);
            tables[t]->accumulate_f64(b.f64, f64, n);
            for (size_t i = 0; i < n; i++) {
                assert_true(same_f32(a.f32[i], 0.7f + f32[i]));
                assert_true(b.f64[i] == 0.7 + f64[i]);
            }
            output_check(&a, "accumulate_f32");
            output_check(&b, "accumulate_f64");
            free(a.block);
            free(b.block);
        }
        free(f32);
        free(f64);
    }
}

static void range_and_largest_see_every_place(void **state)
{
    (void)state;
    const float bad[] = { INFINITY, -INFINITY, NAN };
    for (int t = 0; t < table_count; t++) {
        assert_int_equal(tables[t]->range(NULL, 0), LS_RANGE_SAFE);
        assert_true(tables[t]->largest(NULL, 0) == 0);
        for (size_t s = 0; s < LENGTH(sizes); s++) {
            size_t n = sizes[s];
            float *x = random_floats(n, -9, 9);
            for (size_t i = 0; i < n; i++) {
                float old = x[i];
                x[i] = i % 2 ? LS_SAFE_LIMIT : -LS_SAFE_LIMIT;
                assert_int_equal(tables[t]->range(x, n), LS_RANGE_LARGE);
                x[i] = nextafterf(x[i], 0);
                assert_int_equal(tables[t]->range(x, n), LS_RANGE_SAFE);
                x[i] = old;
            }
            x[0] = FLT_MAX;
            x[n - 1] = -FLT_MAX;
            assert_int_equal(tables[t]->range(x, n), LS_RANGE_LARGE);
            for (size_t i = 0; i < n; i++) {
                float old = x[i];
                x[i] = bad[i % 3];
                assert_int_equal(tables[t]->range(x, n), LS_RANGE_INFINITE);
                float largest = tables[t]->largest(x, n);
                assert_true(i % 3 < 2 ? largest == INFINITY : largest != largest);
                x[i] = i % 3 ? 1e6f : -1e6f;
                assert_true(n > 2 && i > 0 && i < n - 1 ? tables[t]->largest(x + 1, n - 2) == 1e6f : true);
                x[i] = old;
            }
            free(x);
        }
    }
}

/* The sum of x or of its squares, equal for every table, also when it is cut at a multiple of
 * 4,096. */
static void check_wide_sum(const float *x, size_t n, bool squares)
{
    long double want = 0, scale = 0;
    for (size_t i = 0; i < n; i++) {
        want += squares ? (long double)x[i] * x[i] : x[i];
        scale += fabsl((long double)x[i]) * (squares ? fabsl((long double)x[i]) : 1);
    }
    double first = (squares ? tables[0]->sum_squares : tables[0]->sum_wide)(x, n);
    assert_true(fabsl(first - want) <= scale * 1e-14L);
    for (int t = 0; t < table_count; t++) {
        double (*sum)(const float *, size_t) = squares ? tables[t]->sum_squares : tables[t]->sum_wide;
        double parts = 0;
        assert_true(same_f64(sum(x, n), first));
        for (size_t i = 0; i < n; i += 4096)
            parts += sum(x + i, n - i < 4096 ? n - i : 4096);
        assert_true(same_f64(parts, first));
    }
}

static void wide_sums(void **state)
{
    (void)state;
    static const size_t more[] = { 0, 1, 5, 16, 17, 100, 4095, 4096, 4097, 8192, 10000 };
    for (size_t s = 0; s < LENGTH(more); s++) {
        size_t n = more[s];
        float *x = random_floats(n, -9, 9);
        check_wide_sum(x, n, true);
        check_wide_sum(x, n, false);
        free(x);
    }
}

/* ---- The tree of lanes ---- */

typedef struct maybe {
    bool there;
    float value;
} maybe;

/* DESIGN's definition, word for word. mutated: the smaller part stands left, as if operands were
 * swapped. */
static maybe naive_tree(const float *const *lane, int a, int b, size_t i, bool mutated)
{
    if (b - a == 1)
        return lane[a] ? (maybe){ true, lane[a][i] } : (maybe){ false, 0 };
    int k = 1;
    while (2 * k < b - a)
        k *= 2;
    if (mutated)
        k = b - a - k;
    maybe left = naive_tree(lane, a, a + k, i, mutated), right = naive_tree(lane, a + k, b, i, mutated);
    if (!left.there || !right.there)
        return left.there ? left : right;
    return (maybe){ true, left.value + right.value };
}

/* As a chain from the left: arrival order. */
static maybe chain(const float *const *lane, int lanes, size_t i)
{
    maybe sum = { false, 0 };
    for (int l = 0; l < lanes; l++)
        if (lane[l])
            sum = (maybe){ true, sum.there ? sum.value + lane[l][i] : lane[l][i] };
    return sum;
}

static const int lane_counts[] = { 1, 2, 3, 5, 7, 8, 32 }; /* 7: a part that is no power of two */

static void try_join(int lanes, size_t n, bool holes, size_t *chained_equal, size_t *mutated_equal)
{
    float *data[32];
    const float *lane[32];
    size_t from = n / 3, to = n - n / 7;
    for (int l = 0; l < lanes; l++) {
        data[l] = random_floats(n, -1, 1);
        for (size_t i = 0; i < n; i++)
            data[l][i] = ldexpf(data[l][i], (int)(word() % 20));
        lane[l] = holes && word() % 3 == 0 ? NULL : data[l];
    }
    output outs[3];
    for (int t = 0; t < table_count; t++) {
        outs[t] = output_of(n * sizeof(float));
        float before = outs[t].f32[0], after = outs[t].f32[n - 1];
        assert_int_equal(tables[t]->join_f32(outs[t].f32, lane, lanes, from, to), LS_RANGE_SAFE);
        assert_true(from == 0 || same_f32(outs[t].f32[0], before));
        assert_true(to == n || same_f32(outs[t].f32[n - 1], after));
        for (size_t i = from; i < to; i++) {
            maybe want = naive_tree(lane, 0, lanes, i, false), late = chain(lane, lanes, i);
            maybe other = naive_tree(lane, 0, lanes, i, true);
            assert_true(same_f32(outs[t].f32[i], want.there ? want.value : 0));
            *chained_equal += t == 0 && same_f32(want.value, late.value);
            *mutated_equal += t == 0 && same_f32(want.value, other.value);
        }
    }
    outputs_done(outs, "join_f32", false);
    if (lane[lanes - 1]) { /* into a lane itself */
        output again = output_of(n * sizeof(float));
        tables[0]->join_f32(again.f32, lane, lanes, from, to);
        tables[table_count - 1]->join_f32(data[lanes - 1], lane, lanes, from, to);
        expect_same(data[lanes - 1] + from, again.f32 + from, to - from, "join_f32", "in place");
        free(again.block);
    }
    for (int l = 0; l < lanes; l++)
        free(data[l]);
}

static void lanes_join_by_the_tree(void **state)
{
    (void)state;
    const size_t n = 2500;
    for (size_t c = 0; c < LENGTH(lane_counts); c++) {
        size_t chained = 0, mutated = 0, total = (n - n / 7) - n / 3;
        try_join(lane_counts[c], n, false, &chained, &mutated);
        if (lane_counts[c] > 3) /* another order has other bits: the comparison above can fail */
            assert_true(chained < total);
        if (lane_counts[c] == 5 || lane_counts[c] == 3)
            assert_true(mutated < total);
        for (size_t s = 0; s < LENGTH(sizes); s++)
            try_join(lane_counts[c], sizes[s], true, &chained, &mutated);
    }
}

static void joins_of_nothing_and_of_infinity(void **state)
{
    (void)state;
    for (int t = 0; t < table_count; t++) {
        const float *none[3] = { NULL, NULL, NULL };
        float out[3] = { 1, 1, 1 };
        assert_int_equal(tables[t]->join_f32(out, none, 3, 0, 3), LS_RANGE_SAFE);
        assert_true(out[0] == 0 && out[1] == 0 && out[2] == 0);
        assert_int_equal(tables[t]->join_f32(out, none, 0, 0, 3), LS_RANGE_SAFE);
        float a[3] = { 1, FLT_MAX, -0.0f }, b[3] = { 2, FLT_MAX, -0.0f };
        const float *lane[3] = { a, NULL, b };
        assert_int_equal(tables[t]->join_f32(out, lane, 3, 0, 3), LS_RANGE_INFINITE); /* overflow */
        assert_true(out[0] == 3 && out[1] == INFINITY && signbit(out[2]));
        assert_int_equal(tables[t]->join_f32(out, lane, 3, 0, 1), LS_RANGE_SAFE);
        const float *one[3] = { NULL, a, NULL };
        assert_int_equal(tables[t]->join_f32(out, one, 3, 0, 3), LS_RANGE_LARGE);
        assert_memory_equal(out, a, sizeof out);
    }
}

static void joins_of_other_types(void **state)
{
    (void)state;
    enum { N = 700 };
    static double f64[5][N];
    static int64_t i64[5][N];
    static float f32[5][N];
    const double *dl[5];
    const int64_t *il[5];
    const float *fl[5];
    for (int l = 0; l < 5; l++) {
        for (size_t i = 0; i < N; i++) {
            f64[l][i] = (double)within(-1, 1) / 3;
            i64[l][i] = (int64_t)((uint64_t)word() << 32);
            f32[l][i] = word() % 50 == 0 ? NAN : within(-9, 9);
        }
        dl[l] = f64[l];
        il[l] = i64[l];
        fl[l] = l == 1 ? NULL : f32[l];
    }
    for (int t = 0; t < table_count; t++) {
        static double d[N];
        static int64_t q[N];
        static float hi[N], lo[N];
        assert_int_equal(tables[t]->join_f64(d, dl, 5, 0, N), LS_RANGE_LARGE);
        assert_int_equal(tables[t]->join_i64(q, il, 5, 0, N), LS_RANGE_SAFE);
        assert_int_equal(tables[t]->join_max_f32(hi, fl, 5, 0, N), LS_RANGE_INFINITE);
        assert_int_equal(tables[t]->join_min_f32(lo, fl, 5, 0, N), LS_RANGE_INFINITE);
        for (size_t i = 0; i < N; i++) {
            assert_true(d[i] == (f64[0][i] + f64[1][i] + (f64[2][i] + f64[3][i])) + f64[4][i]);
            uint64_t sum = 0;
            for (int l = 0; l < 5; l++)
                sum += (uint64_t)i64[l][i];
            assert_true((uint64_t)q[i] == sum);
            assert_true(same_f32(hi[i], ref_max(ref_max(ref_max(f32[0][i], f32[2][i]), f32[3][i]), f32[4][i])));
            assert_true(same_f32(lo[i], ref_min(ref_min(ref_min(f32[0][i], f32[2][i]), f32[3][i]), f32[4][i])));
        }
        f64[3][N - 1] = INFINITY;
        assert_int_equal(tables[t]->join_f64(d, dl, 5, 0, N), LS_RANGE_INFINITE);
        f64[3][N - 1] = 0;
    }
}

/* ---- Sums over pixels ---- */

#define ROWS    6
#define ROW_LEN 5

static void sums_over_pixels(void **state)
{
    (void)state;
    for (size_t s = 0; s < LENGTH(channel_counts); s++) {
        size_t c = channel_counts[s], n = 2, per = ROWS / 2 * ROW_LEN;
        float *x = random_floats(ROWS * ROW_LEN * c, -9, 9);
        output sum[3], mom[3], spatial[3], spread[3];
        for (int t = 0; t < table_count; t++) {
            sum[t] = output_of(c * sizeof(float));
            mom[t] = output_of(2 * c * sizeof(double));
            spatial[t] = output_of(n * c * sizeof(float));
            spread[t] = output_of(n * per * c * sizeof(float));
            memset(sum[t].f32, 0, c * sizeof(float));
            memset(mom[t].f64, 0, 2 * c * sizeof(double));
            tables[t]->channel_sum(sum[t].f32, x, &(size_t){ ROWS * ROW_LEN }, 1, c);
            tables[t]->moments(mom[t].f64, x, ROWS * ROW_LEN, c);
            tables[t]->spatial_sum(spatial[t].f32, x, n, per, c);
            tables[t]->spread(spread[t].f32, x, n, per, c);
            for (size_t j = 0; j < c; j++) {
                double total = 0, squares = 0, image[2] = { 0, 0 };
                float narrow = 0;
                for (size_t p = 0; p < ROWS * ROW_LEN; p++) {
                    double v = x[p * c + j];
                    narrow += x[p * c + j];
                    total += v;
                    squares += v * v;
                    image[p / per] += v;
                }
                assert_true(same_f32(sum[t].f32[j], narrow));
                assert_true(fabs(sum[t].f32[j] - total) <= 1e-4);
                assert_true(mom[t].f64[j] == total); /* the reference kernel's order and bits */
                assert_true(mom[t].f64[c + j] == squares);
                for (size_t i = 0; i < n; i++)
                    assert_true(c > 1 ? spatial[t].f32[i * c + j] == (float)image[i]
                                      : fabs(spatial[t].f32[i] - image[i]) <= 1e-5);
                for (size_t p = 0; p < n * per; p++)
                    assert_true(spread[t].f32[p * c + j] == x[p / per * c + j]);
            }
        }
        outputs_done(sum, "channel_sum", false);
        outputs_done(mom, "moments", true);
        outputs_done(spatial, "spatial_sum", false);
        outputs_done(spread, "spread", false);
        free(x);
    }
}

/* A chain that is cut anywhere goes on exactly, and so do those of blocks that are summed
 * together. */
static void chains_continue(void **state)
{
    (void)state;
    enum { POSITIONS = 300 };
    for (size_t s = 0; s < LENGTH(channel_counts); s++) {
        size_t c = channel_counts[s];
        float *x = random_floats(POSITIONS * c, -9, 9), *before = random_floats(4 * c, -9, 9);
        for (size_t cut = 0; cut <= 100; cut += 33)
            for (size_t blocks = 1; blocks <= 4; blocks++) {
                const size_t positions[] = { POSITIONS - cut - 3 * (cut / 2), cut / 2, cut, cut / 2 };
                output sum[3], mom[3];
                for (int t = 0; t < table_count; t++) {
                    sum[t] = output_of(blocks * c * sizeof(float));
                    mom[t] = output_of(2 * c * sizeof(double));
                    memcpy(sum[t].f32, before, blocks * c * sizeof(float));
                    for (size_t j = 0; j < 2 * c; j++)
                        mom[t].f64[j] = before[j];
                    tables[t]->channel_sum(sum[t].f32, x, positions, blocks, c);
                    tables[t]->moments(mom[t].f64, x, positions[0], c);
                    size_t at = 0;
                    for (size_t i = 0; i < blocks; at += positions[i++])
                        for (size_t j = 0; j < c; j++) {
                            float total = before[i * c + j];
                            double wide = before[j], squares = before[c + j];
                            for (size_t p = at; p < at + positions[i]; p++) {
                                double v = x[p * c + j];
                                total += x[p * c + j];
                                wide += v;
                                squares += v * v;
                            }
                            assert_true(same_f32(sum[t].f32[i * c + j], total));
                            assert_true(i > 0 || mom[t].f64[j] == wide);
                            assert_true(i > 0 || mom[t].f64[c + j] == squares);
                        }
                }
                outputs_done(sum, "channel_sum", false);
                outputs_done(mom, "moments", true);
            }
        free(x);
        free(before);
    }
}

static void variance_of_data_far_from_zero(void **state)
{
    (void)state;
    for (size_t side = 7; side <= 56; side *= 2) {
        const size_t images = 4, c = 16;
        size_t pixels = images * side * side;
        float *x = floats(pixels * c);
        double dst[32] = { 0 };
        for (size_t i = 0; i < pixels * c; i++) {
            double sum = 0;
            for (int k = 0; k < 12; k++)
                sum += (double)within(0, 1);
            x[i] = (float)(1000 + (sum - 6));
        }
        tables[table_count - 1]->moments(dst, x, pixels, c);
        for (size_t j = 0; j < c; j++) {
            long double mean = 0, variance = 0;
            for (size_t p = 0; p < pixels; p++)
                mean += x[p * c + j];
            mean /= (long double)pixels;
            for (size_t p = 0; p < pixels; p++)
                variance += (x[p * c + j] - mean) * (x[p * c + j] - mean);
            variance /= (long double)pixels;
            double m = dst[j] / (double)pixels, got = dst[c + j] / (double)pixels - m * m;
            assert_true(fabsl(got - variance) <= 1e-6L * variance);
        }
        free(x);
    }
}

/* ---- Batch norm ---- */

typedef struct norm_case {
    size_t c, pixels;
    float *x, *dy, *residual, *mean, *inv, *scale, *beta, *g0, *g1;
} norm_case;

static norm_case norm_case_of(size_t c)
{
    size_t pixels = ROWS * ROW_LEN, n = pixels * c;
    return (norm_case){ .c = c,
                        .pixels = pixels,
                        .x = random_floats(n, -3, 3),
                        .dy = random_floats(n, -3, 3),
                        .residual = random_floats(n, -3, 3),
                        .mean = random_floats(c, -1, 1),
                        .inv = random_floats(c, 0.5, 2),
                        .scale = random_floats(c, -2, 2),
                        .beta = random_floats(c, -1, 1),
                        .g0 = random_floats(c, -1, 1),
                        .g1 = random_floats(c, -1, 1) };
}

static void norm_case_free(norm_case *v)
{
    float *all[] = { v->x, v->dy, v->residual, v->mean, v->inv, v->scale, v->beta, v->g0, v->g1 };
    for (size_t i = 0; i < LENGTH(all); i++)
        free(all[i]);
}

static void batch_norm_forward(void **state)
{
    (void)state;
    for (size_t s = 0; s < LENGTH(channel_counts); s++) {
        norm_case v = norm_case_of(channel_counts[s]);
        size_t n = v.pixels * v.c;
        v.x[0] = NAN;
        for (int which = 0; which < 7; which++) {
            bool relu = which == 1 || which == 3, residual = which == 2 || which == 3;
            output outs[3];
            for (int t = 0; t < table_count; t++) {
                outs[t] = output_of(n * sizeof(float));
                if (residual)
                    tables[t]->batch_norm_add(outs[t].f32, v.x, v.mean, v.scale, v.beta, v.residual, v.pixels, v.c,
                                              relu);
                else if (which == 4)
                    tables[t]->batch_norm_capped(outs[t].f32, v.x, v.mean, v.scale, v.beta, 0.7f, v.pixels, v.c);
                else if (which == 5)
                    tables[t]->batch_norm_silu(outs[t].f32, v.x, v.mean, v.scale, v.beta, v.pixels, v.c);
                else if (which == 6)
                    tables[t]->batch_norm_silu_grad(outs[t].f32, v.dy, v.x, v.mean, v.scale, v.beta, v.pixels, v.c);
                else
                    tables[t]->batch_norm(outs[t].f32, v.x, v.mean, v.scale, v.beta, v.pixels, v.c, relu);
                for (size_t i = 0; i < n; i++) {
                    size_t j = i % v.c;
                    float y = (v.x[i] - v.mean[j]) * v.scale[j] + v.beta[j];
                    y = residual ? y + v.residual[i] : y;
                    float want = relu && y <= 0 ? 0 : y;
                    if (which == 4)
                        tables[t]->capped_relu(&want, &y, 0.7f, 1);
                    else if (which == 5)
                        tables[t]->silu(&want, &y, 1);
                    else if (which == 6)
                        tables[t]->silu_grad(&want, &v.dy[i], &y, 1);
                    assert_true(same_f32(outs[t].f32[i], want));
                }
            }
            outputs_done(outs, "batch_norm", false);
        }
        norm_case_free(&v);
    }
}

#define LIMIT 0.4f

/* mask 0: no ReLU; 1: one after the norm; 2: one whose output is y (any array: here the
 * residual); 3: one with a limit after the norm */
static float passed(const norm_case *v, size_t i, int mask)
{
    size_t j = i % v->c;
    float norm = (v->x[i] - v->mean[j]) * v->scale[j] + v->beta[j];
    bool on = mask == 0 || (mask == 2 ? v->residual[i] : norm) > 0;
    return on && !(mask == 3 && norm > LIMIT) ? v->dy[i] : 0;
}

static void batch_norm_backward(void **state)
{
    (void)state;
    for (size_t s = 0; s < LENGTH(channel_counts); s++) {
        norm_case v = norm_case_of(channel_counts[s]);
        size_t n = v.pixels * v.c;
        for (int mask = 0; mask < 4; mask++) {
            output sums[3], outs[3];
            for (int t = 0; t < table_count; t++) {
                const float *beta = mask % 2 == 1 ? v.beta : NULL, *scale = mask % 2 == 1 ? v.scale : NULL;
                float limit = mask == 3 ? LIMIT : NAN;
                const float *y = mask == 2 ? v.residual : NULL;
                sums[t] = output_of(2 * v.c * sizeof(float));
                memset(sums[t].f32, 0, 2 * v.c * sizeof(float));
                outs[t] = output_of(n * sizeof(float));
                tables[t]->batch_norm_grad_moments(sums[t].f32, v.dy, v.x, v.mean, v.inv, scale, beta, limit, y,
                                                   v.pixels, v.c);
                tables[t]->batch_norm_grad_input(outs[t].f32, v.dy, v.x, v.mean, v.inv, v.scale, beta, limit, y, v.g0,
                                                 v.g1, v.pixels, v.c);
                for (size_t j = 0; j < v.c; j++) {
                    double total = 0, products = 0;
                    float chain[2] = { 0, 0 };
                    for (size_t i = j; i < n; i += v.c) {
                        double g = passed(&v, i, mask), normal = ((double)v.x[i] - v.mean[j]) * v.inv[j];
                        total += g;
                        products += g * normal;
                        float own = passed(&v, i, mask), hat = (v.x[i] - v.mean[j]) * v.inv[j];
                        chain[0] += own;
                        chain[1] += own * hat;
                        float want = v.scale[j] * (own - (v.g0[j] + hat * v.g1[j]));
                        assert_true(same_f32(outs[t].f32[i], want));
                        double exact = v.scale[j] * (g - (v.g0[j] + normal * v.g1[j]));
                        assert_true(fabs(want - exact) <= 1e-5);
                    }
                    assert_true(same_f32(sums[t].f32[j], chain[0]) && same_f32(sums[t].f32[v.c + j], chain[1]));
                    assert_true(fabs(sums[t].f32[j] - total) <= 1e-4);
                    assert_true(fabs(sums[t].f32[v.c + j] - products) <= 1e-3);
                }
            }
            outputs_done(sums, "batch_norm_grad_moments", false);
            outputs_done(outs, "batch_norm_grad_input", false);
        }
        norm_case_free(&v);
    }
}

/* ---- Softmax and cross-entropy ---- */

static void softmax(void **state)
{
    (void)state;
    const size_t rows = 3;
    for (size_t s = 0; s < LENGTH(sizes); s++) {
        size_t cols = sizes[s], n = rows * cols;
        float *x = random_floats(n, -20, 20);
        x[n - 1] = cols > 1 ? -INFINITY : 0;
        output outs[3], logs[3];
        for (int t = 0; t < table_count; t++) {
            outs[t] = output_of(n * sizeof(float));
            logs[t] = output_of(n * sizeof(float));
            tables[t]->softmax_rows(outs[t].f32, x, rows, cols);
            tables[t]->log_softmax_rows(logs[t].f32, x, rows, cols);
            for (size_t r = 0; r < rows; r++) {
                double largest = -INFINITY, sum = 0;
                for (size_t j = 0; j < cols; j++)
                    largest = fmax(largest, (double)x[r * cols + j]);
                for (size_t j = 0; j < cols; j++)
                    sum += exp(x[r * cols + j] - largest);
                for (size_t j = 0; j < cols; j++) {
                    double shifted = x[r * cols + j] - largest;
                    expect_near(outs[t].f32[r * cols + j], exp(shifted) / sum, 0.501, "softmax", tables[t]->name,
                                shifted);
                    double want = shifted - log(sum); /* close to 0 the sum's own rounding shows */
                    assert_true(fabs(logs[t].f32[r * cols + j] - want) <= 0x1.01p-24 * fabs(want) + 1e-14 ||
                                want == -INFINITY);
                }
            }
        }
        outputs_done(outs, "softmax_rows", false);
        outputs_done(logs, "log_softmax_rows", false);
        free(x);
    }
    float bad[4] = { 1, NAN, INFINITY, 2 }, y[4];
    for (int t = 0; t < table_count; t++) {
        tables[t]->softmax_rows(y, bad, 1, 2); /* NaN in a row makes the row NaN */
        assert_true(y[0] != y[0] && y[1] != y[1]);
        tables[t]->softmax_rows(y, bad + 2, 1, 2);
        assert_true(y[0] != y[0]);
    }
}

static void try_cross_entropy(const float *x, const void *labels, ls_dtype kind, const int64_t *label,
                              const float *weight, size_t rows, size_t cols)
{
    output losses[3], grads[3];
    for (int t = 0; t < table_count; t++) {
        losses[t] = output_of(rows * sizeof(float));
        grads[t] = output_of(rows * cols * sizeof(float));
        int64_t bad = tables[t]->sparse_cross_entropy(losses[t].f32, grads[t].f32, x, labels, kind, weight, rows, cols);
        assert_int_equal(bad, -1);
        for (size_t r = 0; r < rows; r++) {
            const float *row = x + r * cols;
            double sum = 0, w = weight ? weight[r] : 1;
            for (size_t j = 0; j < cols; j++)
                sum += exp(row[j] - 20.0);
            double loss = log(sum) - (row[label[r]] - 20.0);
            assert_true(fabs(losses[t].f32[r] - loss) <= 1e-7 * fabs(loss) + 1e-13);
            for (size_t j = 0; j < cols; j++) {
                double want = (exp(row[j] - 20.0) / sum - (j == (size_t)label[r])) * w;
                assert_true(fabs(grads[t].f32[r * cols + j] - want) <= 1e-7 * fabs(want) + 1e-13);
            }
        }
        float *apart = floats(rows * cols);
        assert_int_equal(tables[t]->sparse_cross_entropy(NULL, apart, x, labels, kind, weight, rows, cols), -1);
        expect_same(apart, grads[t].f32, rows * cols, "gradient alone", tables[t]->name);
        assert_int_equal(tables[t]->sparse_cross_entropy(apart, NULL, x, labels, kind, weight, rows, cols), -1);
        expect_same(apart, losses[t].f32, rows, "loss alone", tables[t]->name);
        free(apart);
    }
    outputs_done(losses, "sparse_cross_entropy (loss)", false);
    outputs_done(grads, "sparse_cross_entropy (gradient)", false);
}

static void cross_entropy(void **state)
{
    (void)state;
    enum { MOST_ROWS = 9 };
    for (size_t s = 0; s < 7; s++) {
        size_t cols = sizes[s], rows = MOST_ROWS;
        float *x = random_floats(rows * cols, -20, 20), *weight = random_floats(rows, -1, 1);
        int64_t i64[MOST_ROWS];
        int32_t i32[MOST_ROWS];
        uint8_t u8[MOST_ROWS];
        for (size_t r = 0; r < rows; r++) {
            i64[r] = (int64_t)(word() % cols);
            i32[r] = (int32_t)i64[r];
            u8[r] = (uint8_t)i64[r];
        }
        try_cross_entropy(x, i64, LS_I64, i64, weight, rows, cols);
        try_cross_entropy(x, i32, LS_I32, i64, NULL, rows, cols);
        try_cross_entropy(x, u8, LS_U8, i64, weight, rows, cols);
        for (int t = 0; t < table_count; t++) {
            i64[4] = (int64_t)cols;
            i64[6] = -1;
            assert_int_equal(tables[t]->sparse_cross_entropy(NULL, NULL, x, i64, LS_I64, NULL, rows, cols), 4);
            i64[4] = 0;
            assert_int_equal(tables[t]->sparse_cross_entropy(NULL, NULL, x, i64, LS_I64, NULL, rows, cols), 6);
        }
        free(x);
        free(weight);
    }
}

/* ---- Bits ---- */

static void hash_floats(ls_sha256 *hash, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        unsigned char bytes[4]; /* little-endian whatever the machine */
        memcpy(&bits, &x[i], sizeof bits);
        for (int b = 0; b < 4; b++)
            bytes[b] = (unsigned char)(bits >> 8 * b);
        assert_int_equal(ls_sha256_add(hash, bytes, sizeof bytes), LS_OK);
    }
}

static void hash_doubles(ls_sha256 *hash, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) { /* in three floats, exactly */
        float high = (float)x[i], middle = (float)(x[i] - high), low = (float)(x[i] - high - middle);
        hash_floats(hash, (float[]){ high, middle, low }, 3);
    }
}

/* Everything that sums or approximates; what is one operation an element is the same by nature. */
static void hash_of(const ls_simd *t, char hex[65])
{
    enum { C = 37, N = ROWS * ROW_LEN * C };
    static float out[N];
    double sums[2 * C];
    uint8_t labels[ROWS * ROW_LEN] = { 3, 1, 36 };
    ls_sha256 *hash;
    assert_int_equal(ls_sha256_begin(&hash), LS_OK);
    counter = 1u << 30;
    for (size_t f = 0; f < LENGTH(unaries); f++) {
        float *x = random_floats(N, unaries[f].low < -1 ? unaries[f].low : 0.01, unaries[f].high);
        unary_of(t, unaries[f].member)(out, x, N);
        hash_floats(hash, out, N);
        free(x);
    }
    norm_case v = norm_case_of(C);
    t->elu(out, v.x, 0.3f, N);
    hash_floats(hash, out, N);
    t->softmax_rows(out, v.x, ROWS * ROW_LEN, C);
    hash_floats(hash, out, N);
    t->log_softmax_rows(out, v.x, ROWS * ROW_LEN, C);
    hash_floats(hash, out, N);
    assert_int_equal(t->sparse_cross_entropy(out, NULL, v.x, labels, LS_U8, NULL, ROWS * ROW_LEN, C), -1);
    hash_floats(hash, out, ROWS * ROW_LEN);
    assert_int_equal(t->sparse_cross_entropy(NULL, out, v.x, labels, LS_U8, v.dy, ROWS * ROW_LEN, C), -1);
    hash_floats(hash, out, N);
    memset(out, 0, 4 * C * sizeof(*out));
    t->channel_sum(out, v.x, (size_t[]){ 8, 8, 7, 7 }, 4, C);
    hash_floats(hash, out, 4 * C);
    t->spatial_sum(out, v.x, 2, ROWS / 2 * ROW_LEN, C);
    hash_floats(hash, out, 2 * C);
    memset(sums, 0, 2 * C * sizeof(*sums));
    t->moments(sums, v.x, ROWS * ROW_LEN, C);
    hash_doubles(hash, sums, 2 * C);
    memset(out, 0, 2 * C * sizeof(*out));
    t->batch_norm_grad_moments(out, v.dy, v.x, v.mean, v.inv, v.scale, v.beta, NAN, NULL, ROWS * ROW_LEN, C);
    hash_floats(hash, out, 2 * C);
    t->batch_norm_grad_input(out, v.dy, v.x, v.mean, v.inv, v.scale, v.beta, NAN, NULL, v.g0, v.g1, v.pixels, C);
    hash_floats(hash, out, N);
    sums[0] = t->sum_squares(v.x, N);
    hash_doubles(hash, sums, 1);
    norm_case_free(&v);
    assert_int_equal(ls_sha256_end(hash, hex), LS_OK);
}

/* A compiler or a flag that changes one bit is noticed here. The hash changes only with the
 * kernel-set version. */
static void the_bits_are_those_of_every_build(void **state)
{
    (void)state;
    for (int t = 0; t < table_count; t++) {
        char hex[65];
        hash_of(tables[t], hex);
        if (strcmp(hex, "b9042b4749a37cdba719870eaa9180067bde2b240e175d2ef51c3825dfa6b2d7") != 0)
            fail_msg("%s has other bits: %s", tables[t]->name, hex);
    }
}

/* ---- Choosing ---- */

static void tables_by_name(void **state)
{
    (void)state;
    assert_null(ls_simd_named(NULL));
    assert_null(ls_simd_named("avx9"));
    const char *const names[] = { "base", "avx2", "avx512" };
    for (size_t i = 0; i < LENGTH(names); i++)
        if (ls_simd_named(names[i]))
            assert_string_equal(ls_simd_named(names[i])->name, names[i]);
    const char *old = getenv("LOCKSTEP_ISA");
    char *kept = old ? strdup(old) : NULL;
    unsetenv("LOCKSTEP_ISA");
    const ls_simd *best = ls_simd_choose();
    assert_string_equal(best->name, tables[table_count - 1]->name);
    setenv("LOCKSTEP_ISA", "base", 1);
    assert_string_equal(ls_simd_choose()->name, "base");
    setenv("LOCKSTEP_ISA", "sse9", 1); /* ignored */
    assert_ptr_equal(ls_simd_choose(), best);
    if (kept)
        setenv("LOCKSTEP_ISA", kept, 1);
    else
        unsetenv("LOCKSTEP_ISA");
    free(kept);
}

static void every_table_is_full(void **state)
{
    (void)state;
    for (int t = 0; t < table_count; t++) {
        const unsigned char *bytes = (const unsigned char *)tables[t];
        for (size_t at = 0; at < sizeof(ls_simd); at += sizeof(void *)) {
            const void *member;
            memcpy(&member, bytes + at, sizeof member);
            assert_non_null(member);
        }
    }
}

int main(void)
{
    find_tables();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_by_name),
        cmocka_unit_test(every_table_is_full),
        cmocka_unit_test(functions_of_one_input),
        cmocka_unit_test(signs_of_zero),
        cmocka_unit_test(functions_of_two_inputs),
        cmocka_unit_test(functions_with_a_scalar),
        cmocka_unit_test(clip_and_gradient_of_relu),
        cmocka_unit_test(rows_added_and_multiplied),
        cmocka_unit_test(casts),
        cmocka_unit_test(accumulating),
        cmocka_unit_test(range_and_largest_see_every_place),
        cmocka_unit_test(wide_sums),
        cmocka_unit_test(lanes_join_by_the_tree),
        cmocka_unit_test(joins_of_nothing_and_of_infinity),
        cmocka_unit_test(joins_of_other_types),
        cmocka_unit_test(sums_over_pixels),
        cmocka_unit_test(chains_continue),
        cmocka_unit_test(variance_of_data_far_from_zero),
        cmocka_unit_test(batch_norm_forward),
        cmocka_unit_test(batch_norm_backward),
        cmocka_unit_test(softmax),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(the_bits_are_those_of_every_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
