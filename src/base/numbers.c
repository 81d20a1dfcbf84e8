/* strtod and printf depend on the program's locale; these functions always use "C". */
#include "base/numbers.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The "C" locale and this thread's previous one. The C library has a static "C" locale, so creating
 * it needs no memory. */
typedef struct locale_pair {
    locale_t c, before;
} locale_pair;

static locale_pair enter_c_locale(void)
{
    locale_pair pair = { newlocale(LC_ALL_MASK, "C", (locale_t)0), (locale_t)0 };
    if (pair.c != (locale_t)0)
        pair.before = uselocale(pair.c);
    return pair;
}

static void leave_c_locale(locale_pair pair)
{
    if (pair.c == (locale_t)0)
        return;
    uselocale(pair.before);
    freelocale(pair.c);
}

static bool starts_number(const char *text)
{
    return isdigit((unsigned char)text[0]);
}

bool ls_parse_i64(const char *text, int64_t *out)
{
    bool sign = text[0] == '-' || text[0] == '+';
    if (!starts_number(text + sign)) /* strtoll would skip spaces */
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < INT64_MIN || value > INT64_MAX)
        return false;
    *out = value;
    return true;
}

bool ls_parse_pair(const char *text, int64_t *first, int64_t *second)
{
    char before[24];
    const char *colon = strchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof(before))
        return false;
    snprintf(before, sizeof(before), "%.*s", (int)(colon - text), text);
    return ls_parse_i64(before, first) && ls_parse_i64(colon + 1, second);
}

bool ls_parse_u64(const char *text, uint64_t *out)
{
    if (!starts_number(text)) /* strtoull would accept -1 as 2^64 - 1 */
        return false;
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    if (hex && !isxdigit((unsigned char)text[2]))
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, hex ? 16 : 10);
    if (errno != 0 || *end != '\0' || value > UINT64_MAX)
        return false;
    *out = value;
    return true;
}

/* Whether a digit other than 0 is before the exponent; if such text parses as 0, it underflowed. */
static bool is_written_nonzero(const char *text)
{
    return strcspn(text, "123456789") < strcspn(text, "eE");
}

typedef enum reading { NO_NUMBER, OUT_OF_RANGE, READ } reading;

/* Decimal only; strtod also accepts hexadecimal. */
static reading read_f64(const char *text, double *out)
{
    if (text[0] == '\0' || isspace((unsigned char)text[0]) || strpbrk(text, "xX(") != NULL)
        return NO_NUMBER;
    char *end;
    locale_pair pair = enter_c_locale();
    double value = strtod(text, &end);
    leave_c_locale(pair);
    if (*end != '\0' || end == text)
        return NO_NUMBER;
    bool has_digits = strpbrk(text, "0123456789") != NULL; /* false for the words inf and nan */
    if (has_digits && (isinf(value) || (value == 0 && is_written_nonzero(text))))
        return OUT_OF_RANGE;
    *out = value;
    return READ;
}

bool ls_parse_f64(const char *text, double *out)
{
    return read_f64(text, out) == READ;
}

bool ls_is_beyond_f64(const char *text)
{
    double value;
    return read_f64(text, &value) == OUT_OF_RANGE;
}

bool ls_parse_bool(const char *text, bool *out)
{
    static const char *const words[] = { "off", "on", "false", "true", "no", "yes", "0", "1" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2 != 0;
            return true;
        }
    }
    return false;
}

char *ls_format_f64(double value, char buffer[LS_F64_CHARS])
{
    if (isnan(value)) /* printf would also print its meaningless sign */
        return strcpy(buffer, "nan");
    locale_pair pair = enter_c_locale();
    int digits = 0;
    do
        snprintf(buffer, LS_F64_CHARS, "%.*e", digits++, value);
    while (digits < 17 && strtod(buffer, NULL) != value);
    /* With too few digits %g writes 100 as 1e+02. */
    const char *exponent = strchr(buffer, 'e');
    int before_point = exponent == NULL ? 0 : atoi(exponent + 1) + 1;
    if (before_point > digits && before_point <= 16)
        digits = before_point;
    snprintf(buffer, LS_F64_CHARS, "%.*g", digits, value);
    leave_c_locale(pair);
    return buffer;
}

char *ls_format_number(double value, char type, bool zeros, int width, int precision, char *buffer, size_t bytes)
{
    char format[16] = { '%', '0', '*', '.', '*', type, '\0' };
    if (!zeros)
        memmove(format + 1, format + 2, sizeof(format) - 2);
    locale_pair pair = enter_c_locale();
    snprintf(buffer, bytes, format, width, precision, value);
    leave_c_locale(pair);
    return buffer;
}

bool ls_parse_period(const char *text, ls_period *out)
{
    static const struct {
        const char *name;
        int unit;
        double count;
    } units[] = { { "", LS_EVERY_STEPS, 1 },       { "step", LS_EVERY_STEPS, 1 },    { "steps", LS_EVERY_STEPS, 1 },
                  { "epoch", LS_EVERY_EPOCHS, 1 }, { "epochs", LS_EVERY_EPOCHS, 1 }, { "s", LS_EVERY_SECONDS, 1 },
                  { "sec", LS_EVERY_SECONDS, 1 },  { "min", LS_EVERY_SECONDS, 60 },  { "h", LS_EVERY_SECONDS, 3600 } };
    char digits[16];
    int64_t count;
    size_t length = strspn(text, "0123456789");
    if (length == 0 || length >= sizeof digits)
        return false;
    snprintf(digits, sizeof digits, "%.*s", (int)length, text);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(text + length, units[i].name) == 0 && ls_parse_i64(digits, &count) && count > 0) {
            out->unit = units[i].unit;
            out->count = (double)count * units[i].count;
            return true;
        }
    return false;
}
