/* Conversion between numbers and text, independent of the locale. Parsers accept only the whole
 * string; otherwise they return false and leave *out unchanged. */
#ifndef LS_BASE_NUMBERS_H
#define LS_BASE_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool ls_parse_i64(const char *text, int64_t *out); /* decimal with an optional sign */
/* "2:8", two integers */
bool ls_parse_pair(const char *text, int64_t *first, int64_t *second);
bool ls_parse_u64(const char *text, uint64_t *out); /* decimal, or hexadecimal with 0x; no sign */
/* decimal, inf or nan */
bool ls_parse_f64(const char *text, double *out);
bool ls_parse_bool(const char *text, bool *out); /* on off, true false, yes no, 1 0 */

/* Whether the text is a decimal number that overflows a double or underflows to 0. */
bool ls_is_beyond_f64(const char *text);
#define LS_F64_RANGE "4.9e-324 to 1.8e+308"

/* "500" or "500steps", "2epochs", "90s", "10min", "2h". */
typedef struct ls_period {
    enum { LS_EVERY_STEPS, LS_EVERY_EPOCHS, LS_EVERY_SECONDS } unit;
    double count;
} ls_period;
bool ls_parse_period(const char *text, ls_period *out);
#define LS_PERIODS "a number above 0 and what it counts, as in 500, 500steps, 2epochs, 90s, 10min or 2h"

#define LS_F64_CHARS 32

/* Shortest decimal form that parses back to the same double. */
char *ls_format_f64(double value, char buffer[LS_F64_CHARS]);

/* Formats like printf with conversion `type` (one of "fFeEgG"), padded with spaces or zeros; a
 * negative precision means the default. */
char *ls_format_number(double value, char type, bool zeros, int width, int precision, char *buffer, size_t bytes);

#endif
