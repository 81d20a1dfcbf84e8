/* Shared by the tests of vectorised kernels: the tables; outputs with guard zones around them;
 * numbers. Inputs are allocated to the byte, so the address sanitizer sees a read beyond them.
 * Start reading at `output`. */
#ifndef LS_TESTS_SIMD_ARRAYS_H
#define LS_TESTS_SIMD_ARRAYS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/simd.h"
#include "base/philox.h"
#include "check.h"

static const ls_simd *tables[3];
static int table_count;

static const size_t sizes[] = { 1, 7, 15, 16, 17, 33, 100, 1000 };
static const size_t channel_counts[] = { 1, 3, 16, 20, 64, 150 };

/* All tables that this processor can run. */
static inline void find_tables(void)
{
    const char *const names[] = { "base", "avx2", "avx512" };
    for (size_t i = 0; i < LENGTH(names); i++)
        if (ls_simd_named(names[i]))
            tables[table_count++] = ls_simd_named(names[i]);
}

/* ---- Arrays ---- */

static inline void *array(size_t count, size_t each)
{
    void *data = malloc(count > 0 ? count * each : 1);
    assert_non_null(data);
    return data;
}

static inline float *floats(size_t count)
{
    return array(count, sizeof(float));
}

#define GUARD 72 /* bytes before and after an output; leaves doubles aligned, vectors not */

typedef struct output {
    unsigned char *block;
    float *f32; /* the same place, by type */
    double *f64;
    int64_t *i64;
    size_t bytes;
} output;

static inline output output_of(size_t bytes)
{
    output o = { .block = array(bytes + 2 * GUARD, 1), .bytes = bytes };
    memset(o.block, 0xA5, bytes + 2 * GUARD);
    void *data = o.block + GUARD;
    o.f32 = data;
    o.f64 = data;
    o.i64 = data;
    return o;
}

static inline void output_check(const output *o, const char *what)
{
    for (size_t i = 0; i < GUARD; i++)
        if (o->block[i] != 0xA5 || o->block[GUARD + o->bytes + i] != 0xA5)
            fail_msg("%s wrote outside its output (guard byte %zu)", what, i);
}

/* Equal bits, or both NaN. */
static inline bool same_f32(float a, float b)
{
    return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0;
}

static inline bool same_f64(double a, double b)
{
    return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0;
}

static inline void expect_same(const float *got, const float *want, size_t n, const char *what, const char *table)
{
    for (size_t i = 0; i < n; i++)
        if (!same_f32(got[i], want[i]))
            fail_msg("%s of %s: element %zu is %a, not %a", what, table, i, (double)got[i], (double)want[i]);
}

static inline void expect_same_f64(const double *got, const double *want, size_t n, const char *what, const char *table)
{
    for (size_t i = 0; i < n; i++)
        if (!same_f64(got[i], want[i]))
            fail_msg("%s of %s: element %zu is %a, not %a", what, table, i, got[i], want[i]);
}

/* One output per table: the guards are checked, the others compared with the first, all freed. */
static inline void outputs_done(output *outs, const char *what, bool doubles)
{
    for (int t = 0; t < table_count; t++)
        output_check(&outs[t], what);
    for (int t = 1; t < table_count; t++) {
        if (doubles)
            expect_same_f64(outs[t].f64, outs[0].f64, outs[0].bytes / sizeof(double), what, tables[t]->name);
        else
            expect_same(outs[t].f32, outs[0].f32, outs[0].bytes / sizeof(float), what, tables[t]->name);
    }
    for (int t = 0; t < table_count; t++)
        free(outs[t].block);
}

/* ---- Numbers ---- */

static uint32_t counter;

static uint32_t word(void)
{
    return ls_philox((ls_philox_block){ { counter++, 0, 0, 0 } }, (ls_philox_key){ { 1, 2 } }).word[0];
}

static inline float within(double low, double high)
{
    return (float)(low + (high - low) * ls_random_unit_f32(word()));
}

static inline float *random_floats(size_t n, double low, double high)
{
    float *x = floats(n);
    for (size_t i = 0; i < n; i++)
        x[i] = within(low, high);
    return x;
}

/* With infinities, NaN, zeros of both signs, subnormals and limits among them. */
static inline float *wild_floats(size_t n, double low, double high)
{
    static const float special[] = { 0.0f,    -0.0f,     INFINITY,   -INFINITY, NAN,      1e-40f,
                                     -1e-40f, 0x1p-149f, -0x1p-149f, FLT_MAX,   -FLT_MAX, FLT_MIN };
    float *x = random_floats(n, low, high);
    for (size_t i = 0; i < n; i++)
        if (word() % 4 == 0)
            x[i] = special[word() % LENGTH(special)];
    return x;
}

/* |got - want| in units of the last place of want as a float. */
static inline double ulps(float got, double want)
{
    if (want != want || got != got)
        return want != want && got != got ? 0 : INFINITY;
    if (fabs(want) >= 0x1.ffffffp127) /* rounds to infinity */
        return (double)got == copysign(INFINITY, want) ? 0 : INFINITY;
    int e;
    frexp(want, &e);
    e = e - 24 < -149 || want == 0 ? -149 : e - 24;
    return fabs(got - want) / ldexp(1, e);
}

static inline void expect_near(float got, double want, double tolerance, const char *what, const char *table, double x)
{
    if (!(ulps(got, want) <= tolerance))
        fail_msg("%s of %s: f(%a = %g) is %.9g, not %.12g: %.3g units", what, table, x, x, (double)got, want,
                 ulps(got, want));
}

#endif
