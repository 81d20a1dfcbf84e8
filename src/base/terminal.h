/* What is drawn on a terminal: how wide it is, what it can show, and one line that is built to fit. */
#ifndef LS_BASE_TERMINAL_H
#define LS_BASE_TERMINAL_H

#include "base/text.h"

typedef struct ls_terminal {
    FILE *out;
    bool is_terminal; /* a real one: lines can be drawn again. Not so where TERM is "dumb" */
    bool color;       /* off where NO_COLOR is set */
    bool utf8;        /* the locale's encoding, by LC_ALL, LC_CTYPE and LANG; otherwise ASCII alone is drawn */
} ls_terminal;

ls_terminal ls_terminal_of(FILE *out);

/* Columns that a line may take, now: one less than there are, so that the cursor stays on it; at least 1. SIZE_MAX
 * where `out` is no terminal. Asked for at each drawing: people change the size. */
size_t ls_terminal_room(const ls_terminal *terminal);

/* Columns that UTF-8 text takes: an ideograph takes two, a combining mark none. */
size_t ls_columns(const char *text);
/* Bytes of the first characters that fit into so many columns. */
size_t ls_bytes_within(const char *text, size_t columns);

/* Makes what people named fit to be drawn there: no control characters, nothing that is not ASCII where the terminal
 * shows no UTF-8. */
void ls_terminal_clean(const ls_terminal *terminal, ls_text *text);

/* ---- A line ---- */

typedef struct ls_line {
    const ls_terminal *terminal;
    ls_text text;
    size_t columns, most; /* used; what does not fit is left out */
    bool full;            /* something was left out: so is what follows */
} ls_line;

typedef enum ls_style { LS_STYLE_PLAIN, LS_STYLE_BOLD } ls_style;

/* A line of `most` columns; its text is to be freed. */
ls_line ls_line_of(const ls_terminal *terminal, size_t most);
void ls_line_put(ls_line *line, ls_style style, const char *format, ...) LS_PRINTF(3, 4);

/* Cells of a bar, the part `done` (0 to 1) of them finished, as Keras 3 draws it. */
void ls_line_put_bar(ls_line *line, int cells, double done);

/* Draws the line over the one that the cursor is on; the cursor stays on it. */
void ls_line_draw(const ls_line *line);
/* Nothing is left of the line that the cursor is on. */
void ls_line_erase(const ls_terminal *terminal);

#endif
