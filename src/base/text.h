/* A string that grows: for dumps, help and messages made of many pieces.
 *
 * Appending never fails at the call: when memory runs out the text remembers it, ignores what follows, and
 * ls_text_take reports it. So a dump is a list of appends with one check at its end. */
#ifndef LS_BASE_TEXT_H
#define LS_BASE_TEXT_H

#include <stdarg.h>

#include "lockstep/base.h"

/* A fresh text is all zeros: ls_text t = { 0 }; */
typedef struct ls_text {
    char *data; /* zero-terminated; NULL as long as nothing was appended */
    size_t length;
    size_t room; /* bytes at data */
    bool failed; /* an append found no memory */
} ls_text;

void ls_text_add(ls_text *text, const char *format, ...) LS_PRINTF(2, 3);
void ls_text_add_v(ls_text *text, const char *format, va_list args);
void ls_text_put(ls_text *text, const char *string);
void ls_text_put_bytes(ls_text *text, const char *bytes, size_t count);
void ls_text_pad(ls_text *text, size_t count); /* spaces */

/* `string` as a JSON string, quotes included; bytes that are not UTF-8 become U+FFFD. */
void ls_text_put_json(ls_text *text, const char *string);

bool ls_is_utf8(const char *string);

/* Names from files must not command a terminal: control characters, and bytes that are not UTF-8, become '?', a newline
 * a space. Messages of ls_fail and lines of the log are made so; whoever prints a name by other ways calls this. */
void ls_make_printable(char *text, size_t bytes);

/* The shortest decimal form that reads back as the same double ("0.1", "1e-07", "inf", "nan"), in any locale. */
void ls_text_put_f64(ls_text *text, double value);

/* What was appended so far; "" for a fresh text. Valid until the next append. */
const char *ls_text_get(const ls_text *text);

/* Hands the string to the caller, who frees it; the text is fresh again. Fails when an append did. */
ls_status ls_text_take(ls_text *text, char **out);
void ls_text_free(ls_text *text); /* the text is fresh again */

#endif
