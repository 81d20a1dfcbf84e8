/* Numbers to text and back, the same in every locale. A parser takes the whole string or returns false, and sets its
 * output only when it returns true. */
#ifndef LS_BASE_NUMBERS_H
#define LS_BASE_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool ls_parse_i64(const char *text, int64_t *out);                     /* decimal, one sign allowed */
bool ls_parse_pair(const char *text, int64_t *first, int64_t *second); /* "2:8", two of these */
bool ls_parse_u64(const char *text, uint64_t *out);                    /* decimal, or hexadecimal after 0x; no sign */
bool ls_parse_f64(const char *text, double *out); /* decimal, inf and nan; not a number beyond a double's range */
bool ls_parse_bool(const char *text, bool *out);  /* on off, true false, yes no, 1 0 */

/* Whether the text is a decimal number that ls_parse_f64 refuses for being too large for a double, or too small: it
 * would be read as infinity, or as 0. */
bool ls_is_beyond_f64(const char *text);
#define LS_F64_RANGE "4.9e-324 to 1.8e+308"

/* How often: "500" or "500steps", "2epochs", "90s", "10min", "2h". */
typedef struct ls_period {
    enum { LS_EVERY_STEPS, LS_EVERY_EPOCHS, LS_EVERY_SECONDS } unit;
    double count;
} ls_period;
bool ls_parse_period(const char *text, ls_period *out);
#define LS_PERIODS "a number above 0 and what it counts, as in 500, 500steps, 2epochs, 90s, 10min or 2h"

#define LS_F64_CHARS 32

/* The shortest decimal form that reads back as the same double. Returns `buffer`. */
char *ls_format_f64(double value, char buffer[LS_F64_CHARS]);

/* As printf writes it with that type (one of "fFeEgG"), filled up to `width` with spaces or zeros; precision below 0:
 * printf's own. Returns `buffer`. */
char *ls_format_number(double value, char type, bool zeros, int width, int precision, char *buffer, size_t bytes);

#endif
