/* Options: a word a line, as on a command line. What is accepted is within its row's range, and can
 * be printed. */
#include "base/options.h"
#include "fuzz.h"

#define WORDS 64

typedef struct values {
    bool flag;
    int64_t count;
    double rate;
    const char *name;
    int choice;
    uint64_t seed;
} values;

static const char *const choices[] = { "adam", "sgd", "rmsprop" };
static const ls_option rows[] = {
    LS_OPTION("--nesterov", values, flag, .value = "off", .help = "a switch"),
    LS_OPTION("--batch-size", values, count, .value = "32", .range = "[1, 1000000000]", .help = "a whole number"),
    LS_OPTION("--lr", values, rate, .value = "0.5", .range = "(0, 1]", .help = "a number"),
    LS_OPTION("--save", values, name, .help = "a text"),
    LS_OPTION("--optimizer", values, choice, .value = "sgd", .help = "a name", LS_OPTION_CHOICES(choices)),
    LS_OPTION("--seed", values, seed, .value = "0", .help = "a seed"),
};
static const ls_option_table table = LS_OPTION_TABLE("Rows", rows);

static void check_values(const ls_options *o, const values *v)
{
    ls_text text = { 0 };
    FUZZ_CHECK(v->count >= 1 && v->count <= 1000000000, "count %lld", (long long)v->count);
    FUZZ_CHECK(v->rate > 0 && v->rate <= 1, "rate %g", v->rate);
    FUZZ_CHECK(v->choice >= 0 && v->choice < 3, "choice %d", v->choice);
    ls_options_print(o, &text);
    ls_options_help(o, 60, &text);
    FUZZ_CHECK(text.length > 0, "nothing is printed");
    ls_text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    const char *words[WORDS];
    int count = 0;
    FUZZ_CHECK(text, "no memory");
    memcpy(text, data, size);
    text[size] = 0;
    for (char *at = text; at && count < WORDS;) {
        words[count++] = at;
        at = strchr(at, '\n');
        if (at)
            *at++ = 0;
    }
    ls_options o = { 0 };
    values v = { 0 };
    FUZZ_CHECK(ls_options_add(&o, &table, &v) == LS_OK, "%s", ls_last_error());
    if (fuzz_status(ls_options_parse(&o, count, words)))
        check_values(&o, &v);
    ls_options_free(&o);
    free(text);
    return 0;
}
