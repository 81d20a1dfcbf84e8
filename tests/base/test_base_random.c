/* Philox 4x32-10 against its published known answers, the streams made from it, and the numbers
 * made from those. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/philox.h"

/* The vectors that the generator's authors publish for philox4x32 with 10 rounds. */
static void published_known_answers(void **state)
{
    (void)state;
    static const struct {
        ls_philox_block counter;
        ls_philox_key key;
        ls_philox_block answer;
    } known[] = {
        { { { 0, 0, 0, 0 } }, { { 0, 0 } }, { { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } } },
        { { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff } },
          { { 0xffffffff, 0xffffffff } },
          { { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } } },
        { { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 } },
          { { 0xa4093822, 0x299f31d0 } },
          { { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } } },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ls_philox_block got = ls_philox(known[i].counter, known[i].key);
        assert_memory_equal(&got, &known[i].answer, sizeof got);
    }
}

/* A key is two words of a block whose counter is the purpose of the stream. */
static void a_key_is_as_the_header_defines_it(void **state)
{
    (void)state;
    ls_philox_key seed = { { 0x9abcdef0, 0x12345678 } };
    ls_philox_block mixed = ls_philox((ls_philox_block){ { LS_RANDOM_DROPOUT, 7, 3, 0x4c53 } }, seed);
    ls_philox_key key = ls_random_key(0x123456789abcdef0, LS_RANDOM_DROPOUT, 7, 3);
    assert_int_equal(key.word[0], mixed.word[0]);
    assert_int_equal(key.word[1], mixed.word[1]);
}

static void every_part_of_a_stream_s_name_matters(void **state)
{
    (void)state;
    ls_philox_key keys[] = {
        ls_random_key(1, LS_RANDOM_OP, 2, 3),      ls_random_key(1 + (UINT64_C(1) << 32), LS_RANDOM_OP, 2, 3),
        ls_random_key(2, LS_RANDOM_OP, 2, 3),      ls_random_key(1, LS_RANDOM_DROPOUT, 2, 3),
        ls_random_key(1, LS_RANDOM_OP, 3, 3),      ls_random_key(1, LS_RANDOM_OP, 2, 4),
        ls_random_key(1, LS_RANDOM_SHUFFLE, 2, 3),
    };
    ls_philox_block blocks[] = {
        ls_random_block(keys[0], 5, 6, 7), ls_random_block(keys[0], 5 + (UINT64_C(1) << 32), 6, 7),
        ls_random_block(keys[0], 6, 6, 7), ls_random_block(keys[0], 5, 7, 7),
        ls_random_block(keys[0], 5, 6, 8), ls_random_block(keys[1], 5, 6, 7),
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(&keys[i], &keys[j], sizeof keys[0]);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(&blocks[i], &blocks[j], sizeof blocks[0]);
}

static void unit_numbers_stay_below_one(void **state)
{
    (void)state;
    assert_true(ls_random_unit_f32(0) == 0.0f);
    assert_true(ls_random_unit_f32(UINT32_MAX) == 1.0f - 0x1p-24f);
    assert_true(ls_random_unit_f64(0, 0) == 0.0);
    assert_true(ls_random_unit_f64(UINT32_MAX, UINT32_MAX) == 1.0 - 0x1p-53);
    assert_true(ls_random_unit_f64(0x80000000, 0) == 0.5);
}

static void normal_numbers_at_the_ends(void **state)
{
    (void)state;
    double pair[2];
    ls_random_normal_pair(UINT32_MAX, 12345, pair); /* u1 = 1: radius 0 */
    assert_true(pair[0] == 0.0 && pair[1] == 0.0);
    ls_random_normal_pair(0, 0, pair); /* u1 = 2^-32: the largest radius, angle 0 */
    assert_true(fabs(pair[0] - sqrt(64 * log(2))) <= 1e-14);
    assert_true(pair[1] == 0.0);
    ls_random_normal_pair(0, 0x40000000, pair); /* a quarter turn */
    assert_true(fabs(pair[0]) <= 1e-14 && fabs(pair[1] - sqrt(64 * log(2))) <= 1e-14);
    ls_random_normal_pair(0, 0xffffffff, pair);
    assert_true(isfinite(pair[0]) && isfinite(pair[1]));
}

/* Moments and correlation of a million numbers, each within five standard errors of what it should
 * be. */
static void normal_moments(void **state)
{
    (void)state;
    enum { PAIRS = 500000 };
    ls_philox_key key = ls_random_key(42, LS_RANDOM_TEST, 0, 0);
    double sum[5] = { 0 }, cross = 0;
    int beyond = 0;
    for (uint32_t i = 0; i < PAIRS; i++) {
        ls_philox_block block = ls_random_block(key, 0, 0, i);
        double pair[2];
        ls_random_normal_pair(block.word[0], block.word[1], pair);
        cross += pair[0] * pair[1];
        for (int k = 0; k < 2; k++) {
            double power = 1;
            for (int m = 1; m <= 4; m++)
                sum[m] += power *= pair[k];
            beyond += fabs(pair[k]) > 2;
        }
    }
    double n = 2.0 * PAIRS;
    assert_true(fabs(sum[1] / n) <= 5 * sqrt(1 / n));
    assert_true(fabs(sum[2] / n - 1) <= 5 * sqrt(2 / n));
    assert_true(fabs(sum[3] / n) <= 5 * sqrt(15 / n));
    assert_true(fabs(sum[4] / n - 3) <= 5 * sqrt(96 / n));
    assert_true(fabs(cross / PAIRS) <= 5 * sqrt(1.0 / PAIRS));
    assert_true(fabs(beyond / n - 0.0455002638963584) <= 5 * sqrt(0.0455 / n));
}

static void uniform_numbers_fill_their_bins(void **state)
{
    (void)state;
    enum { BLOCKS = 250000, BINS = 64 };
    ls_philox_key key = ls_random_key(43, LS_RANDOM_TEST, 0, 0);
    int bin[BINS] = { 0 };
    for (uint32_t i = 0; i < BLOCKS; i++) {
        ls_philox_block block = ls_random_block(key, 1, 2, i);
        for (int k = 0; k < 4; k++)
            bin[(int)(ls_random_unit_f32(block.word[k]) * BINS)]++;
    }
    double expected = 4.0 * BLOCKS / BINS, square = 0;
    for (int i = 0; i < BINS; i++)
        square += (bin[i] - expected) * (bin[i] - expected) / expected;
    assert_true(square > 24 && square < 125); /* chi-squared of 63 degrees: outside once in 10,000 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_known_answers),
        cmocka_unit_test(a_key_is_as_the_header_defines_it),
        cmocka_unit_test(every_part_of_a_stream_s_name_matters),
        cmocka_unit_test(unit_numbers_stay_below_one),
        cmocka_unit_test(normal_numbers_at_the_ends),
        cmocka_unit_test(normal_moments),
        cmocka_unit_test(uniform_numbers_fill_their_bins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
