/* Growing string for dumps, help and long messages.
 *
 * Appending never reports an error: when memory runs out, the text ignores later appends, and
 * ls_text_take fails. A dump is a list of appends with one check at its end. */
#ifndef LS_BASE_TEXT_H
#define LS_BASE_TEXT_H

#include <stdarg.h>

#include "lockstep/base.h"

/* Initialize with zeros: ls_text t = { 0 }; */
typedef struct ls_text {
    char *data; /* zero-terminated; NULL: nothing was appended */
    size_t length;
    size_t room; /* capacity of data, in bytes */
    bool failed; /* an append ran out of memory */
} ls_text;

void ls_text_add(ls_text *text, const char *format, ...) LS_PRINTF(2, 3);
void ls_text_add_v(ls_text *text, const char *format, va_list args);
void ls_text_put(ls_text *text, const char *string);
void ls_text_put_bytes(ls_text *text, const char *bytes, size_t count);
void ls_text_pad(ls_text *text, size_t count); /* appends spaces */

/* Appends `string` as a quoted JSON string; bytes that are not UTF-8 become U+FFFD. */
void ls_text_put_json(ls_text *text, const char *string);

bool ls_is_utf8(const char *string);

/* Returns whether `text` is longer than `end` and ends with it. */
bool ls_ends_with(const char *text, const char *end);

/* Makes text safe for a terminal, because names from files may contain escape sequences: control
 * characters and bytes that are not UTF-8 become '?', a newline becomes a space. ls_fail and the
 * log do this; call it before printing a name in another way. */
void ls_make_printable(char *text, size_t bytes);

/* Appends the shortest decimal form that parses back to the same double ("0.1", "1e-07", "inf",
 * "nan") in any locale. */
void ls_text_put_f64(ls_text *text, double value);

/* The text so far, "" if nothing was appended; valid until the next append. */
const char *ls_text_get(const ls_text *text);

/* Moves the string to the caller, who frees it; the text is empty again. Fails if an append
 * failed. */
ls_status ls_text_take(ls_text *text, char **out);
void ls_text_free(ls_text *text); /* the text can be used again */

#endif
