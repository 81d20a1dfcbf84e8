/* The elementary functions against the C library's long double ones, their special cases, and their
 * exact bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/math.h"
#include "base/philox.h"
#include "base/sha256.h"
#include "skip.h"

/* ---- arguments ---- */

typedef struct source {
    ls_philox_key key;
    uint32_t index;
} source;

static source source_of(uint32_t purpose)
{
    return (source){ ls_random_key(2024, LS_RANDOM_TEST, purpose, 0), 0 };
}

static uint64_t next_bits(source *s)
{
    ls_philox_block block = ls_random_block(s->key, 0, 0, s->index++);
    return (uint64_t)block.word[0] << 32 | block.word[1];
}

static double within(source *s, double low, double high)
{
    return low + (high - low) * ((double)(next_bits(s) >> 11) * 0x1p-53);
}

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Numbers of either sign, with every exponent from 2^low to 2^high equally often. */
static double any_exponent(source *s, int low, int high)
{
    int exponent = low + (int)(next_bits(s) % (uint64_t)(high - low + 1));
    double x = ldexp(within(s, 1, 2), exponent);
    return next_bits(s) & 1 ? -x : x;
}

/* ---- errors ---- */

/* |got - want| in units in the last place of `want` as a double; infinite when one is NaN or
 * infinite and not both. */
static double ulps(double got, long double want)
{
    double near = (double)want;
    if (isnan(near) || isnan(got))
        return isnan(near) && isnan(got) ? 0 : INFINITY;
    if (isinf(near) || isinf(got))
        return near == got ? 0 : INFINITY;
    double unit = nextafter(fabs(near), INFINITY) - fabs(near);
    return (double)(fabsl((long double)got - want) / (long double)unit);
}

typedef double (*function)(double);
typedef long double (*reference)(long double);

typedef struct checked {
    const char *name;
    function own;
    reference other;
    double bound;
    struct {
        double low, high;
    } ranges[4];      /* uniform arguments; unused ones are 0, 0 */
    int exponents[2]; /* arguments of every size, 2^low to 2^high, both signs */
} checked;

/* Bounds are what was measured over millions of arguments, with some air; subnormal results are
 * rounded twice. */
static const checked functions[] = {
    { "exp", ls_exp, expl, 0.76, { { -746, 710 }, { -1, 1 }, { -746, -700 } }, { -60, 9 } },
    { "expm1", ls_expm1, expm1l, 0.70, { { -50, 100 }, { -1, 1 }, { -0.26, -0.24 }, { 0.24, 0.26 } }, { -1074, 9 } },
    { "log", ls_log, logl, 0.51, { { 0.5, 2 }, { 0.99, 1.01 }, { 0, 1e-3 }, { 1, 1e6 } }, { -1074, 1023 } },
    { "log1p",
      ls_log1p,
      log1pl,
      0.51,
      { { -0.9999, 2 }, { -0.01, 0.01 }, { -1, -0.99 }, { 0, 1e3 } },
      { -1074, 1023 } },
    { "tanh", ls_tanh, tanhl, 0.70, { { -1, 1 }, { -22, 22 }, { 0.24, 0.26 } }, { -1074, 5 } },
    { "erf", ls_erf, erfl, 0.90, { { -1, 1 }, { -6.5, 6.5 }, { 0.49, 0.51 } }, { -1074, 3 } },
    { "sin", ls_sin, sinl, 0.85, { { -1e5, 1e5 }, { -7, 7 }, { 3.14, 3.142 } }, { -1074, 15 } },
    { "cos", ls_cos, cosl, 0.85, { { -1e5, 1e5 }, { -7, 7 }, { 1.57, 1.571 } }, { -1074, 15 } },
};

#define FUNCTIONS (sizeof functions / sizeof *functions)

static void check_at(const checked *f, double x)
{
    double error = ulps(f->own(x), f->other(x));
    if (!(error <= f->bound))
        fail_msg("%s(%a) is %a, %.3f units from %La", f->name, x, f->own(x), error, f->other(x));
}

static void close_to_long_double(void **state)
{
    (void)state;
    if (LDBL_MANT_DIG < 64) /* nothing better to compare with here */
        SKIP("long double is no better than double here");
    for (size_t i = 0; i < FUNCTIONS; i++) {
        const checked *f = &functions[i];
        source s = source_of((uint32_t)i);
        for (int n = 0; n < 100000; n++) {
            for (int r = 0; r < 4 && f->ranges[r].low < f->ranges[r].high; r++)
                check_at(f, within(&s, f->ranges[r].low, f->ranges[r].high));
            check_at(f, any_exponent(&s, f->exponents[0], f->exponents[1]));
        }
    }
}

/* Where a function changes its method, a table its row, or an argument its exponent. */
static void close_at_the_seams(void **state)
{
    (void)state;
    if (LDBL_MANT_DIG < 64)
        SKIP("long double is no better than double here");
    for (size_t i = 0; i < FUNCTIONS; i++) {
        for (int j = -8 * 128; j <= 8 * 128; j++) {
            double x = j / 128.0;
            check_at(&functions[i], x);
            check_at(&functions[i], nextafter(x, INFINITY));
            check_at(&functions[i], nextafter(x, -INFINITY));
        }
        for (int e = -1074; e < 16; e++) {
            check_at(&functions[i], ldexp(1, e));
            check_at(&functions[i], -ldexp(1, e));
            check_at(&functions[i], nextafter(ldexp(1, e), 0));
        }
    }
    for (int k = -60000; k <= 60000; k++) { /* next to the zeros of sine and cosine */
        check_at(&functions[6], k * M_PI_2);
        check_at(&functions[7], k * M_PI_2);
    }
}

/* ---- powers ---- */

static void power_close_to_long_double(void **state)
{
    (void)state;
    if (LDBL_MANT_DIG < 64)
        SKIP("long double is no better than double here");
    source s = source_of(100);
    for (int n = 0; n < 400000; n++) {
        double x, y;
        switch (n % 4) {
        case 0:
            x = fabs(any_exponent(&s, -30, 30)), y = within(&s, -30, 30);
            break;
        case 1:
            x = within(&s, 0.5, 2), y = within(&s, -1000, 1000);
            break;
        case 2:
            x = within(&s, 0.999, 1.001), y = within(&s, -700000, 700000);
            break;
        default:
            x = fabs(any_exponent(&s, -1074, 1023)), y = any_exponent(&s, -80, 2);
            break;
        }
        long double want = powl(x, y);
        double bound = want < (long double)DBL_MIN ? 0.77 : 0.52;
        double error = ulps(ls_pow(x, y), want);
        if (!(error <= bound))
            fail_msg("pow(%a, %a) is %a, %.3f units from %La", x, y, ls_pow(x, y), error, want);
    }
}

static void powers_of_integers_are_exact(void **state)
{
    (void)state;
    for (int base = 2; base <= 1000; base++) {
        double value = 1;
        for (int n = 0; value <= 0x1p53; n++, value *= base) {
            assert_true(ls_pow(base, n) == value);
            assert_true(ls_pow(-base, n) == (n % 2 ? -value : value));
            if ((base & (base - 1)) == 0)
                assert_true(ls_pow(base, -n) == 1 / value);
        }
        assert_true(ls_pow((double)base * base, 0.5) == base);
    }
    for (int e = -1074; e <= 1023; e++)
        assert_true(ls_pow(2, e) == ldexp(1, e));
}

/* Bits equal, NaN to any NaN. */
static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0;
}

/* C99 F.9.4.4 lists them; the C library follows it, so each pair of special arguments is compared
 * with it. */
static void power_special_cases(void **state)
{
    (void)state;
    static const double special[] = { 0,
                                      1,
                                      2,
                                      3,
                                      0.5,
                                      1.5,
                                      1e300,
                                      1e-300,
                                      5e-324,
                                      DBL_MAX,
                                      4,
                                      0.1,
                                      1023,
                                      1074,
                                      0x1p52,
                                      0x1p53,
                                      0x1p53,
                                      0x1p54,
                                      INFINITY,
                                      NAN,
                                      DBL_MIN,
                                      7,
                                      1e10,
                                      100,
                                      0x1p-70,
                                      0x1p100,
                                      0x1p1000,
                                      0x1p-60,
                                      9007199254740991.0 };
    enum { COUNT = sizeof special / sizeof *special };
    for (int i = 0; i < 2 * COUNT; i++) {
        for (int j = 0; j < 2 * COUNT; j++) {
            double x = i < COUNT ? special[i] : -special[i - COUNT];
            double y = j < COUNT ? special[j] : -special[j - COUNT];
            double got = ls_pow(x, y), want = pow(x, y);
            bool ordinary = isfinite(want) && want != 0 && fabs(want) != 1;
            if (ordinary ? !(fabs(got - want) <= fabs(want) * 0x1p-51) : !same(got, want))
                fail_msg("pow(%a, %a) is %a, not %a", x, y, got, want);
        }
    }
}

/* ---- special cases of the others ---- */

static void special_cases(void **state)
{
    (void)state;
    static const struct {
        function own;
        double x, want;
    } cases[] = {
        { ls_exp, 0.0, 1 },
        { ls_exp, -0.0, 1 },
        { ls_exp, INFINITY, INFINITY },
        { ls_exp, -INFINITY, 0.0 },
        { ls_exp, 709.782712893384, 0x1.fffffffffff2ap+1023 },
        { ls_exp, 709.7827128933841, INFINITY },
        { ls_exp, -745.1332191019411, 5e-324 },
        { ls_exp, -745.1332191019412, 0.0 },
        { ls_exp, 1e308, INFINITY },
        { ls_exp, -1e308, 0.0 },
        { ls_expm1, 0.0, 0.0 },
        { ls_expm1, -0.0, -0.0 },
        { ls_expm1, 5e-324, 5e-324 },
        { ls_expm1, INFINITY, INFINITY },
        { ls_expm1, -INFINITY, -1 },
        { ls_expm1, 1000, INFINITY },
        { ls_log, 1, 0.0 },
        { ls_log, 0.0, -INFINITY },
        { ls_log, -0.0, -INFINITY },
        { ls_log, INFINITY, INFINITY },
        { ls_log, -1, NAN },
        { ls_log, -INFINITY, NAN },
        { ls_log1p, 0.0, 0.0 },
        { ls_log1p, -0.0, -0.0 },
        { ls_log1p, -1, -INFINITY },
        { ls_log1p, -1.5, NAN },
        { ls_log1p, INFINITY, INFINITY },
        { ls_log1p, -5e-324, -5e-324 },
        { ls_tanh, 0.0, 0.0 },
        { ls_tanh, -0.0, -0.0 },
        { ls_tanh, 5e-324, 5e-324 },
        { ls_tanh, INFINITY, 1 },
        { ls_tanh, -INFINITY, -1 },
        { ls_tanh, 30, 1 },
        { ls_erf, 0.0, 0.0 },
        { ls_erf, -0.0, -0.0 },
        { ls_erf, INFINITY, 1 },
        { ls_erf, -INFINITY, -1 },
        { ls_sin, 0.0, 0.0 },
        { ls_sin, -0.0, -0.0 },
        { ls_sin, INFINITY, NAN },
        { ls_sin, 100001, NAN },
        { ls_cos, 0.0, 1 },
        { ls_cos, -INFINITY, NAN },
        { ls_cos, -100001, NAN },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!same(cases[i].own(cases[i].x), cases[i].want))
            fail_msg("case %zu: f(%a) is %a, not %a", i, cases[i].x, cases[i].own(cases[i].x), cases[i].want);
    for (size_t i = 0; i < FUNCTIONS; i++) {
        double out = functions[i].own(-NAN);
        uint64_t bits;
        memcpy(&bits, &out, sizeof bits);
        assert_true(bits == 0x7ff8000000000000u); /* the same NaN always: it is hashed with the rest */
    }
}

static void signs_and_order(void **state)
{
    (void)state;
    source s = source_of(200);
    for (int n = 0; n < 200000; n++) {
        double x = any_exponent(&s, -40, 4);
        assert_true(same(ls_tanh(-x), -ls_tanh(x)));
        assert_true(same(ls_erf(-x), -ls_erf(x)));
        assert_true(same(ls_sin(-x), -ls_sin(x)));
        assert_true(same(ls_cos(-x), ls_cos(x)));
        assert_true(fabs(ls_tanh(x)) <= 1 && fabs(ls_erf(x)) <= 1);
        assert_true(fabs(ls_sin(x)) <= 1 && fabs(ls_cos(x)) <= 1);
        assert_true(ls_exp(nextafter(x, INFINITY)) >= ls_exp(x));
        assert_true(ls_log(nextafter(fabs(x), INFINITY)) >= ls_log(fabs(x)));
    }
}

static void floats_are_rounded_once(void **state)
{
    (void)state;
    source s = source_of(300);
    for (int n = 0; n < 100000; n++) {
        float x = (float)within(&s, -10, 10);
        assert_true(ls_powf(fabsf(x), 1.5f) == (float)pow(fabs((double)x), 1.5));
    }
}

/* ---- bits ---- */

static void add_bits(ls_sha256 *hash, double value)
{
    unsigned char bytes[8]; /* little-endian whatever the machine */
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(bits >> 8 * i);
    assert_int_equal(ls_sha256_add(hash, bytes, sizeof bytes), LS_OK);
}

/* Arguments of every kind: any bits at all (NaN and infinity among them), and the ranges where
 * functions work. */
static double any_argument(source *s, int n)
{
    switch (n % 4) {
    case 0:
        return from_bits(next_bits(s));
    case 1:
        return within(s, -2, 2);
    case 2:
        return within(s, -800, 800);
    default:
        return any_exponent(s, -60, 10);
    }
}

static void hash_of(size_t which, char hex[65])
{
    source s = source_of(400 + (uint32_t)which);
    ls_sha256 *hash;
    assert_int_equal(ls_sha256_begin(&hash), LS_OK);
    for (int n = 0; n < 40000; n++) {
        double x = any_argument(&s, n);
        if (which < FUNCTIONS)
            add_bits(hash, functions[which].own(x));
        else
            add_bits(hash, ls_pow(n & 4 ? fabs(x) : x, n & 8 ? any_argument(&s, n) : within(&s, -9, 9)));
    }
    assert_int_equal(ls_sha256_end(hash, hex), LS_OK);
}

/* A compiler or a flag that changes one bit of one result is noticed here. The hashes change only
 * together with the library's kernel-set version. */
static void the_bits_are_those_of_every_build(void **state)
{
    (void)state;
    static const char *const golden[FUNCTIONS + 1] = {
        /* in the order of the table above, then pow */
        "ad24018578cc40ed85d29de1586cb33f059a1195c9f71c707bf638aafc2b51a3",
        "0c9590aba45b4e54faee2755eb887983d8acf8d8cf190c54ae1b45201f0c6a64",
        "8140096686962b0513e0fde095402527e556d2e3483139f0c38ed2017021cd00",
        "d8f97ae9996fd0d954b76b02aaf5cbbc48189eab8da2419bc0fd4e57616ac89b",
        "9ded03f55653a8c34f58284fc7241f97659517a91c4aa85696ba9e624203203e",
        "025d59c73fbaad730b4e8dae8dd76da6c6704e7029f6a4cbcc0902b2022b4c5f",
        "7f910f3601a7a5bdd031ea4ebf4bd8dd9e155db5d80919921769c139a6853f24",
        "dbb9a5095d577995cf79b256457833f2c17f8f96cf09cb7fd7b98005499c03f8",
        "34d9164b5582b5315ae7dba7306755f51641bc91162d74c7e560f4eabd673593",
    };
    int changed = 0;
    for (size_t i = 0; i <= FUNCTIONS; i++) {
        char hex[65];
        hash_of(i, hex);
        if (strcmp(hex, golden[i]) == 0)
            continue;
        print_error("%s has other bits: %s\n", i < FUNCTIONS ? functions[i].name : "pow", hex);
        changed++;
    }
    assert_int_equal(changed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_long_double),
        cmocka_unit_test(close_at_the_seams),
        cmocka_unit_test(power_close_to_long_double),
        cmocka_unit_test(powers_of_integers_are_exact),
        cmocka_unit_test(power_special_cases),
        cmocka_unit_test(special_cases),
        cmocka_unit_test(signs_and_order),
        cmocka_unit_test(floats_are_rounded_once),
        cmocka_unit_test(the_bits_are_those_of_every_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
