/* Growable text, numbers to text and back, and the nearest of some names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <locale.h>
#include <math.h>
#include <string.h>

#include "base/names.h"
#include "base/numbers.h"
#include "base/philox.h"
#include "base/status.h"
#include "base/text.h"
#include "skip.h"

/* ---- text ---- */

static void text_grows(void **state)
{
    (void)state;
    ls_text text = { 0 };
    assert_string_equal(ls_text_get(&text), "");
    for (int i = 0; i < 10000; i++)
        ls_text_add(&text, "%d,", i % 10);
    assert_int_equal(text.length, 20000);
    ls_text_put(&text, "end");
    ls_text_pad(&text, 2);
    ls_text_put_bytes(&text, "xyz", 1);
    assert_string_equal(ls_text_get(&text) + 19996, "8,9,end  x");
    char *taken = NULL;
    assert_int_equal(ls_text_take(&text, &taken), LS_OK);
    assert_int_equal(strlen(taken), 20006);
    free(taken);
    assert_string_equal(ls_text_get(&text), "");
    ls_text_free(&text);
}

static void an_empty_text_can_be_taken(void **state)
{
    (void)state;
    ls_text text = { 0 };
    char *taken = NULL;
    assert_int_equal(ls_text_take(&text, &taken), LS_OK);
    assert_string_equal(taken, "");
    free(taken);
}

static void a_text_without_memory_fails_at_the_end(void **state)
{
    (void)state;
    ls_text text = { 0 };
    char *taken = NULL;
    ls_text_put(&text, "start");
    ls_text_pad(&text, SIZE_MAX - 3); /* the length overflows: no allocation is tried */
    ls_text_put(&text, "ignored");
    assert_string_equal(ls_text_get(&text), "start");
    assert_int_equal(ls_text_take(&text, &taken), LS_ERR_MEMORY);
    assert_null(taken);
    ls_text_put(&text, "fresh again");
    assert_string_equal(ls_text_get(&text), "fresh again");
    ls_text_free(&text);
}

static void json_strings_are_escaped(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "", "\"\"" },
        { "plain", "\"plain\"" },
        { "a\"b\\c", "\"a\\\"b\\\\c\"" },
        { "line\nand\ttab\x01\x7f", "\"line\\nand\\ttab\\u0001\\u007f\"" },
        { "gr\xc3\xb6\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "\"gr\xc3\xb6\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\"" },
        { "bad \xff end", "\"bad \xef\xbf\xbd end\"" },
        { "cut \xe2\x82", "\"cut \xef\xbf\xbd\xef\xbf\xbd\"" },
        { "long form \xc0\xaf", "\"long form \xef\xbf\xbd\xef\xbf\xbd\"" },
        { "longer \xe0\x80\xaf", "\"longer \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
        { "longest \xf0\x80\x80\xaf", "\"longest \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
        { "surrogate \xed\xa0\x80", "\"surrogate \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
        { "beyond \xf4\x90\x80\x80", "\"beyond \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_text text = { 0 };
        ls_text_put_json(&text, cases[i][0]);
        assert_string_equal(ls_text_get(&text), cases[i][1]);
        ls_text_free(&text);
    }
}

/* ---- numbers ---- */

static void whole_numbers(void **state)
{
    (void)state;
    int64_t i = 77;
    assert_true(ls_parse_i64("9223372036854775807", &i) && i == INT64_MAX);
    assert_true(ls_parse_i64("-9223372036854775808", &i) && i == INT64_MIN);
    assert_true(ls_parse_i64("+5", &i) && i == 5);
    assert_true(ls_parse_i64("007", &i) && i == 7);
    static const char *const bad[] = { "", " 5", "5 ", "5x", "-", "+-5", "5.0", "9223372036854775808", "0x10", "1e3" };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_false(ls_parse_i64(bad[k], &i));
    assert_int_equal(i, 7); /* untouched by failures */

    uint64_t u = 77;
    assert_true(ls_parse_u64("18446744073709551615", &u) && u == UINT64_MAX);
    assert_true(ls_parse_u64("0xffffffffffffffff", &u) && u == UINT64_MAX);
    assert_true(ls_parse_u64("0X10", &u) && u == 16);
    assert_true(ls_parse_u64("010", &u) && u == 10);
    static const char *const worse[] = { "", "-1", "+1", "18446744073709551616", "0x", "0xg", "ff", " 1", "0x-1" };
    for (size_t k = 0; k < sizeof worse / sizeof *worse; k++)
        assert_false(ls_parse_u64(worse[k], &u));
    assert_int_equal(u, 10);
}

static void real_numbers(void **state)
{
    (void)state;
    double x = 77;
    assert_true(ls_parse_f64("1e-3", &x) && x == 1e-3);
    assert_true(ls_parse_f64("-.5", &x) && x == -0.5);
    assert_true(ls_parse_f64("inf", &x) && isinf(x));
    assert_true(ls_parse_f64("-inf", &x) && x == -INFINITY);
    assert_true(ls_parse_f64("nan", &x) && isnan(x));
    assert_true(ls_parse_f64("4.9e-324", &x) && x == 4.9e-324);
    assert_true(ls_parse_f64("0e-400", &x) && x == 0);
    static const char *const bad[] = { "", " 1", "1 ", "1e", "abc", "1,5", "1.5x", "0x10", "0X1p-3", "nan(1)" };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        assert_false(ls_parse_f64(bad[k], &x));
        assert_false(ls_is_beyond_f64(bad[k]));
    }
    static const char *const beyond[] = { "1e400", "-1e400", "1e-400", "-0.1e-399", "10e-1000" };
    for (size_t k = 0; k < sizeof beyond / sizeof *beyond; k++) {
        assert_false(ls_parse_f64(beyond[k], &x));
        assert_true(ls_is_beyond_f64(beyond[k]));
    }
    assert_true(x == 0);
    assert_false(ls_is_beyond_f64("1e-320") || ls_is_beyond_f64("inf") || ls_is_beyond_f64("-0.000"));
}

static void what_is_printed_commands_no_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
        bool utf8;
    } rows[] = {
        { "plain", "plain", true },
        { "caf\xc3\xa9 \xe2\x94\x81 \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x94\x81 \xf0\x9f\x98\x80", true },
        { "\33[2Jx\r\b\x7f", "?[2Jx???", true },
        { "a\nb\tc", "a b?c", true },
        { "\xc2\x9b"
          "2J",
          "??2J", true },
        { "caf\xe9 \xff", "caf? ?", false },
        { "cut \xe2\x94", "cut ??", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[64];
        strcpy(text, rows[i].text);
        ls_make_printable(text, strlen(text));
        assert_string_equal(text, rows[i].wanted);
        assert_int_equal(ls_is_utf8(rows[i].text), rows[i].utf8);
    }
    char zero[] = "a\0b";
    ls_make_printable(zero, 3);
    assert_string_equal(zero, "a?b");
    ls_fail(LS_ERR_DATA, "layer %s", "\33[31m");
    assert_string_equal(ls_last_error(), "layer ?[31m");
}

static void switches(void **state)
{
    (void)state;
    bool b = false;
    assert_true(ls_parse_bool("on", &b) && b);
    assert_true(ls_parse_bool("off", &b) && !b);
    assert_true(ls_parse_bool("true", &b) && b);
    assert_true(ls_parse_bool("0", &b) && !b);
    assert_true(ls_parse_bool("yes", &b) && b);
    assert_false(ls_parse_bool("", &b));
    assert_false(ls_parse_bool("ON", &b));
    assert_false(ls_parse_bool("2", &b));
    assert_true(b);
}

static void shortest_form_reads_back(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } known[] = { { 0.1, "0.1" },
                  { 0, "0" },
                  { -0.0, "-0" },
                  { 1e-7, "1e-07" },
                  { 100, "100" },
                  { 1e15, "1000000000000000" },
                  { 1e16, "1e+16" },
                  { 1e300, "1e+300" },
                  { DBL_MAX, "1.7976931348623157e+308" },
                  { -1234.5, "-1234.5" },
                  { 9007199254740993e3, "9.007199254740993e+18" },
                  { 32, "32" },
                  { 1.0 / 3, "0.3333333333333333" },
                  { INFINITY, "inf" },
                  { -NAN, "nan" },
                  { -INFINITY, "-inf" },
                  { 0.30000000000000004, "0.30000000000000004" } };
    char buffer[LS_F64_CHARS];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_string_equal(ls_format_f64(known[i].value, buffer), known[i].text);
    ls_philox_key key = ls_random_key(5, LS_RANDOM_TEST, 1, 1);
    for (uint32_t i = 0; i < 20000; i++) {
        ls_philox_block block = ls_random_block(key, 0, 0, i);
        double value, back;
        memcpy(&value, block.word, sizeof value);
        if (isnan(value))
            continue;
        assert_true(ls_parse_f64(ls_format_f64(value, buffer), &back));
        assert_memory_equal(&value, &back, sizeof value);
    }
}

/* Some locales write a comma in numbers; ours must not. */
static void the_locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                         "fr_FR.utf8",  "de_DE",      "ru_RU.UTF-8" };
    const char *found = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && found == NULL; i++)
        found = setlocale(LC_ALL, names[i]);
    if (found == NULL)
        SKIP("no locale with a decimal comma is installed");
    char buffer[LS_F64_CHARS];
    double x = 0;
    assert_string_equal(ls_format_f64(1.5, buffer), "1.5");
    bool read = ls_parse_f64("2.5", &x);
    const char *point = localeconv()->decimal_point; /* and the program's own locale is as before */
    assert_string_equal(point, ",");
    setlocale(LC_ALL, "C");
    assert_true(read && x == 2.5);
}

/* ---- names ---- */

static void assert_nearest(const char *wanted, const char *const *names, size_t count, const char *nearest)
{
    char text[600] = "";
    if (nearest)
        snprintf(text, sizeof text, "; did you mean %.300s?", nearest);
    assert_string_equal(ls_suggest_name(wanted, names, count).text, text);
}

static void the_nearest_name(void **state)
{
    (void)state;
    static const char *const names[] = { "--batch-size", "--epochs", "--learning-rate", "--lanes", "--data", "--seed" };
    enum { COUNT = sizeof names / sizeof *names };
    static const char *const cases[][2] = {
        { "--bacth-size", "--batch-size" },
        { "--batchsize", "--batch-size" },
        { "--batch", "--batch-size" },
        { "--epoch", "--epochs" },
        { "--lane", "--lanes" },
        { "--learning_rate", "--learning-rate" },
        { "--LANES", "--lanes" },
        { "--dat", "--data" },
        { "--sede", "--seed" },
        { "--lanes", "--lanes" },
        { "--learn", "--learning-rate" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_nearest(cases[i][0], names, COUNT, cases[i][1]);
    assert_nearest("x", names, 0, NULL);
}

static void no_name_is_suggested_that_is_far(void **state)
{
    (void)state;
    static const struct {
        const char *wanted, *name;
    } far[] = {
        { "", "adam" },        { "LSTM", "ReLU" },
        { "0.jpg", "mnist" },  { "f1", "acc" },
        { "--lr", "--lanes" }, { "--weight-decay", "--weights" },
        { "-e", "--ef" },      { "LOCKSTEP_FOO", "LOCKSTEP_KEY" },
    };
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        assert_nearest(far[i].wanted, &far[i].name, 1, NULL);
}

static void advice_for_unknown_names(void **state)
{
    (void)state;
    static const char *const names[] = { "sgd", "adam", "rmsprop" };
    assert_string_equal(ls_suggest_name("adma", names, 3).text, "; did you mean adam?");
    assert_string_equal(ls_suggest_name("lion", names, 3).text, "");
    assert_string_equal(ls_advise_name("adma", names, 3).text, "; did you mean adam?");
    assert_string_equal(ls_advise_name("lion", names, 3).text, "; there are sgd, adam, rmsprop");
    assert_string_equal(ls_advise_name("lion", names, 0).text, "");
    const char *many[500];
    for (size_t i = 0; i < 500; i++)
        many[i] = "convolution";
    ls_name_advice advice = ls_advise_name("lion", many, 500);
    size_t length = strlen(advice.text);
    assert_in_range(length, 300, sizeof advice.text - 1);
    assert_string_equal(advice.text + length - strlen("convolution, ..."), "convolution, ...");
}

static void ties_and_transpositions(void **state)
{
    (void)state;
    static const char *const tie[] = { "cat", "bat", "hat" };
    assert_nearest("rat", tie, 3, "cat"); /* the first of equals */
    static const char *const swap[] = { "Abdcx", "abcd" };
    assert_nearest("abdc", swap, 2, "abcd"); /* two swapped letters are one change */
    static const char *const letter_case[] = { "axam", "ADAm" };
    assert_nearest("adam", letter_case, 2, "axam");
    static const char *const one_case[] = { "axam", "Adam" };
    assert_nearest("adam", one_case, 2, "Adam"); /* a change of case is half a change */
}

static void long_names_are_compared_by_their_start(void **state)
{
    (void)state;
    char wanted[500], first[500], second[500];
    memset(wanted, 'a', sizeof wanted);
    memset(first, 'b', sizeof first);
    memset(second, 'a', sizeof second);
    wanted[499] = first[499] = second[300] = '\0';
    const char *names[] = { first, second };
    assert_nearest(wanted, names, 2, second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_grows),
        cmocka_unit_test(an_empty_text_can_be_taken),
        cmocka_unit_test(a_text_without_memory_fails_at_the_end),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(real_numbers),
        cmocka_unit_test(what_is_printed_commands_no_terminal),
        cmocka_unit_test(switches),
        cmocka_unit_test(shortest_form_reads_back),
        cmocka_unit_test(the_locale_does_not_matter),
        cmocka_unit_test(the_nearest_name),
        cmocka_unit_test(no_name_is_suggested_that_is_far),
        cmocka_unit_test(advice_for_unknown_names),
        cmocka_unit_test(ties_and_transpositions),
        cmocka_unit_test(long_names_are_compared_by_their_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
