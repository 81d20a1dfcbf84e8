/* One value of an options table. */
#include <math.h>
#include <string.h>

#include "base/names.h"
#include "base/numbers.h"
#include "base/options_private.h"
#include "base/status.h"

/* ---- Ranges: "[1, 64]", "(0, 1]", "[0, inf)" ---- */

/* Returns false if the range is malformed. */
static bool split_range(const char *range, char low[32], char high[32], bool *low_open, bool *high_open)
{
    char first, last;
    int end = 0;
    if (sscanf(range, "%c%31[^, ], %31[^]) ]%c%n", &first, low, high, &last, &end) != 4 || range[end] != '\0')
        return false;
    *low_open = first == '(';
    *high_open = last == ')';
    return (first == '(' || first == '[') && (last == ')' || last == ']');
}

static ls_status fail_table(const ls_option *row)
{
    return ls_fail(LS_ERR_INTERNAL, "options table: the range '%s' of %s is not an interval", row->range, row->flag);
}

/* A double cannot distinguish 2^53 from 2^53 + 1. */
static ls_status check_i64(const ls_option *row, int64_t value, bool *within)
{
    char low[32], high[32];
    bool low_open, high_open;
    int64_t least = INT64_MIN, most = INT64_MAX;
    if (!split_range(row->range, low, high, &low_open, &high_open) ||
        (strcmp(low, "-inf") != 0 && !ls_parse_i64(low, &least)) ||
        (strcmp(high, "inf") != 0 && !ls_parse_i64(high, &most)))
        return fail_table(row);
    bool above = low_open && strcmp(low, "-inf") != 0 ? value > least : value >= least;
    bool below = high_open && strcmp(high, "inf") != 0 ? value < most : value <= most;
    *within = above && below;
    return LS_OK;
}

static ls_status check_f64(const ls_option *row, double value, bool *within)
{
    char low[32], high[32];
    bool low_open, high_open;
    double least, most;
    if (!split_range(row->range, low, high, &low_open, &high_open) || !ls_parse_f64(low, &least) ||
        !ls_parse_f64(high, &most))
        return fail_table(row);
    *within = (low_open ? value > least : value >= least) && (high_open ? value < most : value <= most);
    return LS_OK;
}

/* ---- Parsing ---- */

/* Fails with "--batch-size 0: expected a whole number within [1, 64]". */
static ls_status fail_value(const ls_option *row, const char *text, const char *name, const char *joint)
{
    ls_text expected = { 0 };
    ls_option_put_expected(row, &expected);
    if (row->type == LS_OPTION_F64 && ls_is_beyond_f64(text))
        ls_text_put(&expected, ", with a magnitude from " LS_F64_RANGE);
    if (row->type == LS_OPTION_CHOICE)
        ls_text_put(&expected, ls_suggest_name(text, row->choices, row->choice_count).text);
    if (strcmp(name, row->flag) == 0)
        ls_fail(LS_ERR_INVALID, "%s%s%s: expected %s", name, joint, text, ls_text_get(&expected));
    else
        ls_fail(LS_ERR_INVALID, "%s%s%s (environment variable of %s): expected %s", name, joint, text, row->flag,
                ls_text_get(&expected));
    ls_text_free(&expected);
    return LS_ERR_INVALID;
}

static bool find_choice(const ls_option *row, const char *text, int *out)
{
    for (size_t i = 0; i < row->choice_count; i++) {
        if (strcmp(text, row->choices[i]) == 0) {
            *out = (int)i;
            return true;
        }
    }
    return false;
}

typedef union any_value {
    bool flag;
    int64_t integer;
    double real;
    const char *string;
    int choice;
    uint64_t seed;
} any_value;

/* *good: the text has the type and is within the range. */
static ls_status read_value(const ls_option *row, const char *text, any_value *out, size_t *bytes, bool *good)
{
    switch (row->type) {
    case LS_OPTION_BOOL:
        *bytes = sizeof out->flag;
        *good = ls_parse_bool(text, &out->flag);
        break;
    case LS_OPTION_I64:
        *bytes = sizeof out->integer;
        *good = ls_parse_i64(text, &out->integer);
        if (*good && row->range != NULL)
            return check_i64(row, out->integer, good);
        break;
    case LS_OPTION_F64:
        *bytes = sizeof out->real;
        *good = ls_parse_f64(text, &out->real) && isfinite(out->real);
        if (*good && row->range != NULL)
            return check_f64(row, out->real, good);
        break;
    case LS_OPTION_STRING:
        *bytes = sizeof out->string;
        out->string = text;
        *good = true;
        break;
    case LS_OPTION_CHOICE:
        *bytes = sizeof out->choice;
        *good = find_choice(row, text, &out->choice);
        break;
    case LS_OPTION_SEED:
        *bytes = sizeof out->seed;
        *good = ls_parse_u64(text, &out->seed);
        break;
    }
    return LS_OK;
}

ls_status ls_option_assign(const ls_option *row, const char *text, const char *name, const char *joint, void *values,
                           ls_arena *arena)
{
    any_value value = { 0 };
    size_t bytes = 0;
    bool good = false;
    LS_TRY(read_value(row, text, &value, &bytes, &good));
    if (!good)
        return fail_value(row, text, name, joint);
    if (row->type == LS_OPTION_STRING) {
        value.string = ls_arena_strdup(arena, text);
        if (value.string == NULL)
            return ls_fail(LS_ERR_MEMORY, "no memory for the value of %s", name);
    }
    memcpy((char *)values + row->offset, &value, bytes);
    return LS_OK;
}

/* ---- Formatting ---- */

void ls_option_put_expected(const ls_option *row, ls_text *out)
{
    switch (row->type) {
    case LS_OPTION_BOOL:
        ls_text_put(out, "on or off");
        return;
    case LS_OPTION_I64:
        ls_text_put(out, "a whole number");
        break;
    case LS_OPTION_F64:
        ls_text_put(out, "a finite number");
        break;
    case LS_OPTION_STRING:
        ls_text_put(out, "a text");
        return;
    case LS_OPTION_CHOICE:
        ls_text_put(out, "one of ");
        for (size_t i = 0; i < row->choice_count; i++)
            ls_text_add(out, "%s%s", i == 0 ? "" : ", ", row->choices[i]);
        return;
    case LS_OPTION_SEED:
        ls_text_put(out, "a whole number from 0 to 18446744073709551615, or 0x and hexadecimal digits");
        return;
    }
    if (row->range != NULL)
        ls_text_add(out, " within %s", row->range);
}

void ls_option_put_value(const ls_option *row, const void *values, ls_text *out)
{
    const char *place = (const char *)values + row->offset;
    any_value value = { 0 };
    switch (row->type) {
    case LS_OPTION_BOOL:
        memcpy(&value.flag, place, sizeof value.flag);
        ls_text_put(out, value.flag ? "on" : "off");
        break;
    case LS_OPTION_I64:
        memcpy(&value.integer, place, sizeof value.integer);
        ls_text_add(out, "%lld", (long long)value.integer);
        break;
    case LS_OPTION_F64:
        memcpy(&value.real, place, sizeof value.real);
        ls_text_put_f64(out, value.real);
        break;
    case LS_OPTION_STRING:
        memcpy(&value.string, place, sizeof value.string);
        ls_text_put(out, value.string == NULL ? "(none)" : value.string);
        break;
    case LS_OPTION_CHOICE:
        memcpy(&value.choice, place, sizeof value.choice);
        if (value.choice >= 0 && (size_t)value.choice < row->choice_count)
            ls_text_put(out, row->choices[value.choice]);
        else /* set by the program, not by the parser */
            ls_text_add(out, "(%d)", value.choice);
        break;
    case LS_OPTION_SEED:
        memcpy(&value.seed, place, sizeof value.seed);
        ls_text_add(out, "%llu", (unsigned long long)value.seed);
        break;
    }
}
