/* Terminal output: width, capabilities, and single lines that are built to fit. */
#ifndef LS_BASE_TERMINAL_H
#define LS_BASE_TERMINAL_H

#include "base/text.h"

typedef struct ls_terminal {
    FILE *out;
    bool is_terminal; /* lines can be redrawn; false if TERM is "dumb" */
    bool color;       /* false if NO_COLOR is set */
    bool utf8;        /* from LC_ALL, LC_CTYPE, LANG; otherwise only ASCII is drawn */
} ls_terminal;

ls_terminal ls_terminal_of(FILE *out);

/* Columns for a line: the width less one, so that the cursor stays on the line; SIZE_MAX if `out`
 * is not a terminal. Query it for each drawing, because users resize windows. */
size_t ls_terminal_room(const ls_terminal *terminal);

/* Width of UTF-8 text: an ideograph takes two columns, a combining mark none. */
size_t ls_columns(const char *text);
/* Bytes of the leading characters that fit into `columns` columns. */
size_t ls_bytes_within(const char *text, size_t columns);

/* Replaces control characters, and non-ASCII characters if the terminal does not use UTF-8. */
void ls_terminal_clean(const ls_terminal *terminal, ls_text *text);

/* ---- A line ---- */

typedef struct ls_line {
    const ls_terminal *terminal;
    ls_text text;
    size_t columns, most; /* columns used; text beyond `most` columns is dropped */
    bool full;            /* text was dropped; later text is dropped too */
} ls_line;

typedef enum ls_style { LS_STYLE_PLAIN, LS_STYLE_BOLD } ls_style;

/* The caller frees the line's text. */
ls_line ls_line_of(const ls_terminal *terminal, size_t most);
void ls_line_put(ls_line *line, ls_style style, const char *format, ...) LS_PRINTF(3, 4);

/* Appends a progress bar in the style of Keras 3. */
void ls_line_put_bar(ls_line *line, int cells, double done);

/* Draws over the current line; the cursor stays on it. */
void ls_line_draw(const ls_line *line);
void ls_line_erase(const ls_terminal *terminal);

#endif
