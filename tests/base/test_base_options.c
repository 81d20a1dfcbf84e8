/* The options table: defaults, environment, arguments, messages, help and printing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/options.h"

typedef struct values {
    char before[8]; /* offsets that are not 0 */
    int64_t batch_size;
    double rate;
    bool nesterov, shuffle;
    int optimizer;
    uint64_t seed;
    const char *data, *name;
} values;

static const char *const optimizers[] = { "sgd", "adam", "rmsprop" };

static const ls_option rows[] = {
    LS_OPTION("--batch-size", values, batch_size, .value = "32", .range = "[1, 65536]",
              .help = "samples in one global batch"),
    LS_OPTION("--learning-rate", values, rate, .value = "1e-3", .range = "(0, 10]", .metavar = "RATE",
              .help = "step of the optimizer"),
    LS_OPTION("--nesterov", values, nesterov, .value = "off", .help = "look ahead"),
    LS_OPTION("--shuffle", values, shuffle, .value = "on", .help = "another order in each epoch"),
    LS_OPTION("--optimizer", values, optimizer, .value = "adam", .help = "rule of the update",
              LS_OPTION_CHOICES(optimizers)),
    LS_OPTION("--seed", values, seed, .value = "0x10", .help = "start of all random numbers"),
    LS_OPTION("--data", values, data, .brief = 'd', .help = "where the samples are"),
    LS_OPTION("--name", values, name, .value = "run", .help = "name of the run"),
};
static const ls_option_table table = LS_OPTION_TABLE("Training", rows);

typedef struct common {
    int64_t threads;
    int64_t anything;
} common;

static const ls_option common_rows[] = {
    LS_OPTION("--threads", common, threads, .value = "0", .range = "[0, inf)",
              .help = "worker threads, 0 for one a core"),
    LS_OPTION("--anything", common, anything, .value = "-5",
              .help = "a number without a range, whose help is long enough that it must go on in a second line, "
                      "and then in a third"),
};
static const ls_option_table common_table = LS_OPTION_TABLE("Common", common_rows);

/* The state of one test. */
static values v;
static common c;
static ls_options options;

static int start(void **state)
{
    (void)state;
    memset(&v, 0xa5, sizeof v);
    memset(&c, 0xa5, sizeof c);
    options = (ls_options){ 0 };
    if (ls_options_add(&options, &common_table, &c) != LS_OK || ls_options_add(&options, &table, &v) != LS_OK)
        fail_msg("%s", ls_last_error());
    return 0;
}

static int end(void **state)
{
    (void)state;
    static const char *const used[] = { "BATCH_SIZE", "LEARNING_RATE", "NESTEROV", "SHUFFLE", "OPTIMIZER",
                                        "SEED",       "DATA",          "NAME",     "THREADS", "BATCHSIZE" };
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
        char name[64];
        snprintf(name, sizeof name, "LOCKSTEP_%s", used[i]);
        unsetenv(name);
    }
    ls_options_free(&options);
    return 0;
}

#define PARSE(...)                                                                                                     \
    parse((const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static ls_status parse(const char *const *argv, size_t argc)
{
    return ls_options_parse(&options, (int)argc, argv);
}

static void assert_message(ls_status got, const char *message)
{
    assert_int_equal(got, LS_ERR_INVALID);
    assert_string_equal(ls_last_error(), message);
}

static void defaults(void **state)
{
    (void)state;
    assert_int_equal(v.batch_size, 32);
    assert_true(v.rate == 1e-3);
    assert_false(v.nesterov);
    assert_true(v.shuffle);
    assert_int_equal(v.optimizer, 1);
    assert_int_equal(v.seed, 16);
    assert_null(v.data);
    assert_string_equal(v.name, "run");
    assert_int_equal(c.threads, 0);
    assert_int_equal(c.anything, -5);
    for (size_t i = 0; i < sizeof v.before; i++)
        assert_int_equal((unsigned char)v.before[i], 0xa5); /* and nothing beside the rows */
    assert_int_equal(ls_options_source(&options, "--seed"), LS_OPTION_FROM_DEFAULT);
}

static void arguments_in_every_form(void **state)
{
    (void)state;
    char data[] = "fashion-mnist";
    assert_int_equal(PARSE("train", "--batch-size", "64", "--learning-rate=0.5", "--nesterov", "model.json",
                           "--shuffle", "off", "--optimizer", "rmsprop", "--seed", "18446744073709551615", "--data",
                           data, "--name=--odd", "--anything", "-7", "-5", "-", "--threads", "3", "--", "--batch-size",
                           "x"),
                     LS_OK);
    memset(data, 'x', sizeof data - 1); /* strings are copies */
    assert_int_equal(v.batch_size, 64);
    assert_true(v.rate == 0.5);
    assert_true(v.nesterov);
    assert_false(v.shuffle);
    assert_int_equal(v.optimizer, 2);
    assert_true(v.seed == UINT64_MAX);
    assert_string_equal(v.data, "fashion-mnist");
    assert_string_equal(v.name, "--odd");
    assert_int_equal(c.anything, -7);
    assert_int_equal(c.threads, 3);
    static const char *const positional[] = { "train", "model.json", "-5", "-", "--batch-size", "x" };
    assert_int_equal(options.positional_count, 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(options.positional[i], positional[i]);
    assert_int_equal(ls_options_source(&options, "--seed"), LS_OPTION_FROM_COMMAND_LINE);
    assert_int_equal(ls_options_source(&options, "--no-such"), LS_OPTION_FROM_DEFAULT);
}

static void a_switch_takes_only_on_and_off(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--nesterov", "on", "--shuffle", "no"), LS_OK);
    assert_true(v.nesterov && v.shuffle);
    assert_int_equal(options.positional_count, 1); /* "no" is an argument */
    assert_int_equal(PARSE("--nesterov=no", "--shuffle=1"), LS_OK);
    assert_true(!v.nesterov && v.shuffle);
    assert_message(PARSE("--nesterov=maybe"), "--nesterov maybe: expected on or off");
    assert_int_equal(PARSE("--nesterov"), LS_OK); /* at the end */
    assert_true(v.nesterov);
}

static void the_last_of_a_repeated_flag_wins(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--batch-size", "1", "--batch-size=2", "--name", "a", "--name", "b"), LS_OK);
    assert_int_equal(v.batch_size, 2);
    assert_string_equal(v.name, "b");
}

static void a_brief_flag_is_the_same_flag(void **state)
{
    (void)state;
    assert_int_equal(PARSE("-d", "here", "there"), LS_OK);
    assert_string_equal(v.data, "here");
    assert_int_equal(options.positional_count, 1);
    assert_int_equal(PARSE("-d=x"), LS_OK);
    assert_string_equal(v.data, "x");
    assert_message(PARSE("-e", "here"), "unknown option -e; --help lists the options");
}

static void no_arguments_at_all(void **state)
{
    (void)state;
    assert_int_equal(ls_options_parse(&options, 0, NULL), LS_OK);
    assert_int_equal(options.positional_count, 0);
    assert_int_equal(PARSE("--data="), LS_OK);
    assert_string_equal(v.data, "");
}

static void bad_values_name_flag_value_and_range(void **state)
{
    (void)state;
    assert_message(PARSE("--batch-size", "0"), "--batch-size 0: expected a whole number within [1, 65536]");
    assert_message(PARSE("--batch-size", "65537"), "--batch-size 65537: expected a whole number within [1, 65536]");
    assert_message(PARSE("--batch-size=abc"), "--batch-size abc: expected a whole number within [1, 65536]");
    assert_message(PARSE("--batch-size=1.5"), "--batch-size 1.5: expected a whole number within [1, 65536]");
    assert_message(PARSE("--batch-size="), "--batch-size : expected a whole number within [1, 65536]");
    assert_message(PARSE("--learning-rate", "0"), "--learning-rate 0: expected a finite number within (0, 10]");
    assert_message(PARSE("--learning-rate", "1e-400"), "--learning-rate 1e-400: expected a finite number within (0, "
                                                       "10], with a magnitude from 4.9e-324 to 1.8e+308");
    assert_message(PARSE("--learning-rate", "0x1"), "--learning-rate 0x1: expected a finite number within (0, 10]");
    assert_message(PARSE("--learning-rate", "nan"), "--learning-rate nan: expected a finite number within (0, 10]");
    assert_message(PARSE("--learning-rate", "10.1"), "--learning-rate 10.1: expected a finite number within (0, 10]");
    assert_message(PARSE("--learning-rate", "-1"), "--learning-rate -1: expected a finite number within (0, 10]");
    assert_message(PARSE("--threads", "-1"), "--threads -1: expected a whole number within [0, inf)");
    assert_message(PARSE("--anything", "9223372036854775808"),
                   "--anything 9223372036854775808: expected a whole number");
    assert_message(PARSE("--seed", "-1"), "--seed -1: expected a whole number from 0 to 18446744073709551615, "
                                          "or 0x and hexadecimal digits");
    assert_message(PARSE("--optimizer", "adma"),
                   "--optimizer adma: expected one of sgd, adam, rmsprop; did you mean adam?");
    assert_int_equal(PARSE("--batch-size", "1", "--learning-rate", "10"), LS_OK); /* the ends belong to it */
    assert_int_equal(PARSE("--batch-size", "65536", "--learning-rate", "1e-300"), LS_OK);
    assert_int_equal(PARSE("--threads", "9223372036854775807"), LS_OK);
}

static void a_flag_without_its_value(void **state)
{
    (void)state;
    assert_message(PARSE("--batch-size"), "--batch-size needs a value: expected a whole number within [1, 65536]");
    assert_message(PARSE("--data", "--seed", "1"),
                   "--data needs a value: expected a text, but the next word is --seed");
}

static void unknown_flags_name_the_nearest(void **state)
{
    (void)state;
    assert_message(PARSE("--bacth-size", "3"), "unknown option --bacth-size; did you mean --batch-size?");
    assert_message(PARSE("--opt=adam"), "unknown option --opt; did you mean --optimizer?");
    assert_message(PARSE("--weight-decay", "1"), "unknown option --weight-decay; --help lists the options");
    assert_message(PARSE("-seed"), "unknown option -seed; did you mean --seed?");
    assert_message(PARSE("--batch"), "unknown option --batch; did you mean --batch-size?"); /* no abbreviations */
    ls_options none = { 0 };
    assert_int_equal(ls_options_parse(&none, 1, (const char *const[]){ "--x" }), LS_ERR_INVALID);
    ls_options_free(&none);
}

static void the_environment_comes_before_arguments(void **state)
{
    (void)state;
    setenv("LOCKSTEP_BATCH_SIZE", "128", 1);
    setenv("LOCKSTEP_NESTEROV", "1", 1);
    setenv("LOCKSTEP_DATA", "/data", 1);
    setenv("LOCKSTEP_SEED", "", 1); /* empty: not set */
    setenv("LOCKSTEP_OPTIMIZER", "sgd", 1);
    assert_int_equal(ls_options_environment(&options), LS_OK);
    setenv("LOCKSTEP_DATA", "changed", 1);
    assert_int_equal(v.batch_size, 128);
    assert_true(v.nesterov);
    assert_string_equal(v.data, "/data");
    assert_int_equal(v.seed, 16);
    assert_int_equal(v.optimizer, 0);
    assert_int_equal(ls_options_source(&options, "--batch-size"), LS_OPTION_FROM_ENVIRONMENT);
    assert_int_equal(ls_options_source(&options, "--seed"), LS_OPTION_FROM_DEFAULT);
    assert_int_equal(PARSE("--batch-size", "256"), LS_OK);
    assert_int_equal(v.batch_size, 256);
    assert_int_equal(ls_options_environment(&options), LS_OK); /* does not take it back */
    assert_int_equal(v.batch_size, 256);
}

static void bad_variables_are_named(void **state)
{
    (void)state;
    setenv("LOCKSTEP_BATCH_SIZE", "many", 1);
    assert_message(ls_options_environment(&options), "LOCKSTEP_BATCH_SIZE=many (environment variable of --batch-size): "
                                                     "expected a whole number within [1, 65536]");
    assert_int_equal(v.batch_size, 32);
}

static void unknown_variables_are_refused(void **state)
{
    (void)state;
    const ls_option_table *tables[] = { &common_table, &table };
    static const char *const others[] = { "LOCKSTEP_HOME" };
    unsetenv("LOCKSTEP_SILENCE_LIMIT"); /* tests/run.sh has set it */
    assert_int_equal(ls_options_check_environment(tables, 2, others, 1), LS_OK);
    setenv("LOCKSTEP_SEED", "1", 1);
    setenv("LOCKSTEP_HOME", "x", 1);
    setenv("LOCKSTEPPER", "not ours", 1);
    assert_int_equal(ls_options_check_environment(tables, 2, others, 1), LS_OK);
    ls_status without = ls_options_check_environment(tables, 2, NULL, 0);
    unsetenv("LOCKSTEP_HOME");
    unsetenv("LOCKSTEPPER");
    assert_int_equal(without, LS_ERR_INVALID);
    setenv("LOCKSTEP_BATCHSIZE", "1", 1);
    assert_message(ls_options_check_environment(tables, 2, NULL, 0),
                   "unknown environment variable LOCKSTEP_BATCHSIZE; did you mean LOCKSTEP_BATCH_SIZE?");
    assert_int_equal(ls_options_check_environment(tables, 0, NULL, 0), LS_ERR_INVALID);
}

static void the_help_is_aligned_and_wrapped(void **state)
{
    (void)state;
    ls_text text = { 0 };
    ls_options_help(&options, 80, &text);
    assert_string_equal(ls_text_get(&text),
                        "Common:\n"
                        "  --threads N               worker threads, 0 for one a core (within [0, inf);\n"
                        "                            default 0; LOCKSTEP_THREADS)\n"
                        "  --anything N              a number without a range, whose help is long enough\n"
                        "                            that it must go on in a second line, and then in a\n"
                        "                            third (default -5; LOCKSTEP_ANYTHING)\n"
                        "\n"
                        "Training:\n"
                        "  --batch-size N            samples in one global batch (within [1, 65536];\n"
                        "                            default 32; LOCKSTEP_BATCH_SIZE)\n"
                        "  --learning-rate RATE      step of the optimizer (within (0, 10]; default 1e-3;\n"
                        "                            LOCKSTEP_LEARNING_RATE)\n"
                        "  --nesterov [on|off]       look ahead (default off; LOCKSTEP_NESTEROV)\n"
                        "  --shuffle [on|off]        another order in each epoch (default on;\n"
                        "                            LOCKSTEP_SHUFFLE)\n"
                        "  --optimizer sgd|adam|rmsprop\n"
                        "                            rule of the update (default adam;\n"
                        "                            LOCKSTEP_OPTIMIZER)\n"
                        "  --seed N                  start of all random numbers (default 0x10;\n"
                        "                            LOCKSTEP_SEED)\n"
                        "  --data TEXT               where the samples are (also -d; LOCKSTEP_DATA)\n"
                        "  --name TEXT               name of the run (default run; LOCKSTEP_NAME)\n");
    ls_text_free(&text);
    ls_options_help(&options, 1, &text); /* narrower than anything fits: it still ends, and says everything */
    assert_non_null(strstr(ls_text_get(&text), "LOCKSTEP_NAME)\n"));
    ls_text_free(&text);
}

static void many_choices_go_into_the_help(void **state)
{
    (void)state;
    static const char *const names[] = { "first-long-name", "second-long-name", "third-long-name" };
    typedef struct {
        int picked;
    } pick;
    static const ls_option row[] = { LS_OPTION("--pick", pick, picked, .value = "third-long-name", .help = "which",
                                               LS_OPTION_CHOICES(names)) };
    static const ls_option_table one = LS_OPTION_TABLE(NULL, row);
    ls_options o = { 0 };
    ls_text text = { 0 };
    pick got = { -1 };
    assert_int_equal(ls_options_add(&o, &one, &got), LS_OK);
    assert_int_equal(got.picked, 2);
    ls_options_help(&o, 0, &text);
    assert_string_equal(
        ls_text_get(&text),
        "  --pick NAME               which (one of first-long-name, second-long-name, third-long-name;\n"
        "                            default third-long-name; LOCKSTEP_PICK)\n");
    ls_text_free(&text);
    ls_options_free(&o);
}

static void current_values_have_their_sources(void **state)
{
    (void)state;
    setenv("LOCKSTEP_BATCH_SIZE", "128", 1);
    setenv("LOCKSTEP_LEARNING_RATE", "0.001", 1); /* the default in other words */
    assert_int_equal(ls_options_environment(&options), LS_OK);
    assert_int_equal(PARSE("--data", "a", "--shuffle=off", "--name", "run"), LS_OK);
    ls_text text = { 0 };
    ls_options_print(&options, &text);
    assert_string_equal(ls_text_get(&text), "  --threads        0      default\n"
                                            "  --anything       -5     default\n"
                                            "* --batch-size     128    environment, LOCKSTEP_BATCH_SIZE\n"
                                            "  --learning-rate  0.001  environment, LOCKSTEP_LEARNING_RATE\n"
                                            "  --nesterov       off    default\n"
                                            "* --shuffle        off    command line\n"
                                            "  --optimizer      adam   default\n"
                                            "  --seed           16     default\n"
                                            "* --data           a      command line\n"
                                            "  --name           run    command line\n");
    ls_text_free(&text);
}

static void assert_bad_row(ls_option row, const char *part)
{
    ls_option_table one = { "bad", &row, 1 };
    ls_options o = { 0 };
    values unused;
    assert_int_equal(ls_options_add(&o, &one, &unused), LS_ERR_INTERNAL);
    if (strstr(ls_last_error(), part) == NULL)
        fail_msg("'%s' does not name '%s'", ls_last_error(), part);
    ls_options_free(&o);
}

static void bad_tables_are_found_when_added(void **state)
{
    (void)state;
    assert_bad_row((ls_option)LS_OPTION("batch", values, seed, .value = "1", .help = "h"), "invalid flag 'batch'");
    assert_bad_row((ls_option)LS_OPTION("--Batch", values, seed, .value = "1", .help = "h"), "invalid flag");
    assert_bad_row((ls_option)LS_OPTION("--", values, seed, .value = "1", .help = "h"), "invalid flag");
    assert_bad_row((ls_option)LS_OPTION("--n", values, batch_size, .value = "x", .help = "h"), "--n x: expected");
    assert_bad_row((ls_option)LS_OPTION("--n", values, batch_size, .value = "0", .help = "h", .range = "[1, 2]"),
                   "--n 0: expected");
    assert_bad_row((ls_option)LS_OPTION("--n", values, batch_size, .help = "h"), "no default");
    assert_bad_row((ls_option)LS_OPTION("--n", values, batch_size, .value = "1"), "no help");
    assert_bad_row((ls_option)LS_OPTION("--n", values, optimizer, .value = "a", .help = "h"), "no choices");
    static const char *const ranges[] = { "1..2",   "[1, 2",   "{1, 2}", "[1; 2]", "[a, 2]",
                                          "[1, b]", "[1, 2] ", "",       "[1, 2]]" };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        assert_bad_row((ls_option)LS_OPTION("--n", values, batch_size, .value = "1", .help = "h", .range = ranges[i]),
                       "not an interval");
        assert_bad_row((ls_option)LS_OPTION("--x", values, rate, .value = "1", .help = "h", .range = ranges[i]),
                       "not an interval");
    }
    values again;
    assert_int_equal(ls_options_add(&options, &table, &again), LS_ERR_INTERNAL); /* the same flags twice */
    assert_non_null(strstr(ls_last_error(), "--batch-size has two rows"));
    static const ls_option twice[] = { LS_OPTION("--n", values, nesterov, .value = "on", .help = "h"),
                                       LS_OPTION("--n", values, shuffle, .value = "on", .help = "h") };
    static const ls_option_table twice_table = LS_OPTION_TABLE("", twice);
    assert_int_equal(ls_options_add(&options, &twice_table, &again), LS_ERR_INTERNAL);
}

/* Open and closed ends, and integers that are the same as a double. */
static void ranges_of_whole_numbers_are_exact(void **state)
{
    (void)state;
    typedef struct {
        int64_t open, any;
        double real, free;
    } ends;
    static const ls_option row[] = {
        LS_OPTION("--open", ends, open, .value = "5", .help = "h", .range = "(4, 9007199254740993)"),
        LS_OPTION("--any", ends, any, .value = "0", .help = "h", .range = "(-inf, inf)"),
        LS_OPTION("--real", ends, real, .value = "0", .help = "h", .range = "[-1, 1)"),
        LS_OPTION("--free", ends, free, .value = "0", .help = "h"),
    };
    static const ls_option_table one = LS_OPTION_TABLE(NULL, row);
    ls_options o = { 0 };
    ends got;
    assert_int_equal(ls_options_add(&o, &one, &got), LS_OK);
#define ONE(word) ls_options_parse(&o, 1, (const char *const[]){ word })
    assert_int_equal(ONE("--open=9007199254740992"), LS_OK);
    assert_int_equal(ONE("--open=9007199254740993"), LS_ERR_INVALID);
    assert_int_equal(ONE("--open=4"), LS_ERR_INVALID);
    assert_int_equal(ONE("--any=-9223372036854775808"), LS_OK);
    assert_int_equal(ONE("--any=9223372036854775807"), LS_OK);
    assert_int_equal(ONE("--real=-1"), LS_OK);
    assert_int_equal(ONE("--real=1"), LS_ERR_INVALID);
    assert_int_equal(ONE("--real=-inf"), LS_ERR_INVALID);
    assert_int_equal(ONE("--free=-1e308"), LS_OK);
    assert_int_equal(ONE("--free=inf"), LS_ERR_INVALID);
    assert_int_equal(ONE("--free=nan"), LS_ERR_INVALID);
    ls_options_free(&o);
}

/* Options that were given elsewhere count as given here, except those of this command line. */
static void given_flags_are_handed_on(void **state)
{
    (void)state;
    static const char *const flags[] = { "--batch-size", "--learning-rate", "--nesterov", "--optimizer", "--seed",
                                         "--data",       "--name",          "--threads",  "--unknown" };
    values then;
    ls_options from = { 0 };
    assert_int_equal(ls_options_add(&from, &table, &then), LS_OK);
    assert_int_equal(ls_options_parse(&from, 5,
                                      (const char *const[]){ "--batch-size=64", "--learning-rate=0.1", "--nesterov",
                                                             "--data=a b", "--optimizer=sgd" }),
                     LS_OK);
    setenv("LOCKSTEP_LEARNING_RATE", "0.5", 1);
    assert_int_equal(ls_options_environment(&options), LS_OK);
    assert_int_equal(PARSE("--batch-size=16", "--name=mine"), LS_OK);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        assert_int_equal(ls_options_copy_value(&options, &from, flags[i]), LS_OK);
    ls_options_free(&from);
    assert_int_equal(v.batch_size, 16);
    assert_true(v.rate == 0.1);
    assert_true(v.nesterov);
    assert_int_equal(v.optimizer, 0);
    assert_int_equal(v.seed, 16);
    assert_string_equal(v.data, "a b");
    assert_string_equal(v.name, "mine");
    assert_int_equal(ls_options_source(&options, "--data"), LS_OPTION_FROM_COMMAND_LINE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults),
        TEST(arguments_in_every_form),
        TEST(a_switch_takes_only_on_and_off),
        TEST(the_last_of_a_repeated_flag_wins),
        TEST(a_brief_flag_is_the_same_flag),
        TEST(no_arguments_at_all),
        TEST(bad_values_name_flag_value_and_range),
        TEST(a_flag_without_its_value),
        TEST(unknown_flags_name_the_nearest),
        TEST(the_environment_comes_before_arguments),
        TEST(bad_variables_are_named),
        TEST(unknown_variables_are_refused),
        TEST(the_help_is_aligned_and_wrapped),
        TEST(many_choices_go_into_the_help),
        TEST(current_values_have_their_sources),
        TEST(bad_tables_are_found_when_added),
        TEST(ranges_of_whole_numbers_are_exact),
        TEST(given_flags_are_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
