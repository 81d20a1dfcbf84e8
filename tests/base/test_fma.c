/* ls_fmaf against the C library's fmaf, bit for bit: ten million cases, ties, subnormals,
 * cancellation and special values among them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/fma.h"
#include "sanitized.h"

#define CASES (SANITIZED ? 1000000 : 10000000)

static uint64_t state = 1;

static uint32_t next(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void compare(float a, float b, float c)
{
    float ours = ls_fmaf(a, b, c), right = fmaf(a, b, c);
    if (to_bits(ours) != to_bits(right) && !(ours != ours && right != right))
        fail_msg("%a * %a + %a: %a, not %a", (double)a, (double)b, (double)c, (double)ours, (double)right);
}

static void any_numbers(void **unused)
{
    (void)unused;
    for (int i = 0; i < CASES / 2; i++)
        compare(from_bits(next()), from_bits(next()), from_bits(next()));
}

/* Few bits set, and exponents near each other: ties, and sums that cancel. */
static void near_numbers(void **unused)
{
    (void)unused;
    for (int i = 0; i < CASES / 2; i++) {
        float x[3];
        uint32_t middle = 20 + next() % 200;
        for (int k = 0; k < 3; k++) {
            uint32_t e = k < 2 ? 64 + middle / 2 + next() % 4 : middle + next() % 50;
            uint32_t m = next() % 2 ? next() & 0x7fffff : (next() % 4) << (next() % 22);
            x[k] = from_bits((next() & 1) << 31 | (e & 0xff) << 23 | (m & 0x7fffff));
        }
        compare(x[0], x[1], x[2]);
    }
}

/* Products around the smallest numbers. */
static void subnormal_numbers(void **unused)
{
    (void)unused;
    for (int i = 0; i < CASES / 10; i++) {
        float a = from_bits((next() & 1) << 31 | (40 + next() % 40) << 23 | (next() & 0x7fffff));
        float b = from_bits((next() & 1) << 31 | (1 + next() % 70) << 23 | (next() & 0x7fffff));
        compare(a, b, from_bits((next() & 0x80ffffff)));
    }
}

static void special_numbers(void **unused)
{
    (void)unused;
    const float x[] = { 0,
                        -0.f,
                        1,
                        -1,
                        INFINITY,
                        -INFINITY,
                        NAN,
                        1e-45f,
                        -1e-45f,
                        3.4028235e38f,
                        1.17549435e-38f,
                        0x1.fffffep-1f,
                        0x1p-126f,
                        -0x1p-149f };
    const int count = (int)(sizeof x / sizeof *x);
    for (int i = 0; i < count * count * count; i++)
        compare(x[i / count / count], x[i / count % count], x[i % count]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_numbers),
        cmocka_unit_test(near_numbers),
        cmocka_unit_test(subnormal_numbers),
        cmocka_unit_test(special_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
