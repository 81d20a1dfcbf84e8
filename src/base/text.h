/* Growing string for dumps, help and long messages. Appending never reports an error: when memory
 * runs out, the text ignores later appends, and ls_text_take fails. */
#ifndef LS_BASE_TEXT_H
#define LS_BASE_TEXT_H

#include <stdarg.h>

#include "lockstep/base.h"

/* Initialize with zeros. */
typedef struct ls_text {
    char *data; /* zero-terminated; NULL: empty */
    size_t length;
    size_t room; /* capacity in bytes */
    bool failed;
} ls_text;

void ls_text_add(ls_text *text, const char *format, ...) LS_PRINTF(2, 3);
void ls_text_add_v(ls_text *text, const char *format, va_list args);
void ls_text_put(ls_text *text, const char *string);
void ls_text_put_bytes(ls_text *text, const char *bytes, size_t count);
void ls_text_pad(ls_text *text, size_t count); /* appends spaces */

/* Appends a quoted JSON string; bytes that are not UTF-8 become U+FFFD. */
void ls_text_put_json(ls_text *text, const char *string);

bool ls_is_utf8(const char *string);

/* Returns whether `text` is longer than `end` and ends with it. */
bool ls_ends_with(const char *text, const char *end);

/* Makes text safe for a terminal, because names from files may contain escape sequences: control
 * characters and invalid bytes become '?', a newline becomes a space. ls_fail and the log do this
 * themselves. */
void ls_make_printable(char *text, size_t bytes);

/* Appends the shortest decimal form that parses back to the same double. */
void ls_text_put_f64(ls_text *text, double value);

/* Valid until the next append; never NULL. */
const char *ls_text_get(const ls_text *text);

/* Moves the string to the caller, who frees it. Fails if an append failed. */
ls_status ls_text_take(ls_text *text, char **out);
void ls_text_free(ls_text *text); /* the text can be used again */

#endif
