/* Terminals and lines drawn on them. */
#include "base/terminal.h"

#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define USUAL_COLUMNS 80 /* columns of a terminal that does not report its size */

/* ---- Capabilities ---- */

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && value[0] != '\0';
}

/* nl_langinfo needs setlocale, which programs may not call. */
static bool locale_is_utf8(void)
{
    static const char *const variables[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (is_set(variables[i])) {
            const char *value = getenv(variables[i]);
            return strcasestr(value, "UTF-8") || strcasestr(value, "UTF8");
        }
    return false;
}

ls_terminal ls_terminal_of(FILE *out)
{
    const char *term = getenv("TERM");
    bool is_terminal = isatty(fileno(out)) == 1 && !(term && strcmp(term, "dumb") == 0);
    return (ls_terminal){
        .out = out, .is_terminal = is_terminal, .color = is_terminal && !is_set("NO_COLOR"), .utf8 = locale_is_utf8()
    };
}

size_t ls_terminal_room(const ls_terminal *terminal)
{
    struct winsize size;
    if (!terminal->is_terminal)
        return SIZE_MAX;
    if (ioctl(fileno(terminal->out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return USUAL_COLUMNS - 1;
    return size.ws_col > 1 ? size.ws_col - 1U : 1;
}

/* ---- Columns ---- */

typedef struct range {
    unsigned first, last;
} range;

/* Combining marks and characters without a width. */
static const range narrow[] = { { 0x0300, 0x036f }, { 0x0483, 0x0489 }, { 0x0591, 0x05bd }, { 0x0610, 0x061a },
                                { 0x064b, 0x065f }, { 0x06d6, 0x06dc }, { 0x0900, 0x0902 }, { 0x093a, 0x093a },
                                { 0x093c, 0x093c }, { 0x0941, 0x0948 }, { 0x094d, 0x094d }, { 0x0e31, 0x0e31 },
                                { 0x0e34, 0x0e3a }, { 0x0e47, 0x0e4e }, { 0x1ab0, 0x1aff }, { 0x1dc0, 0x1dff },
                                { 0x200b, 0x200f }, { 0x202a, 0x202e }, { 0x2060, 0x2064 }, { 0x20d0, 0x20ff },
                                { 0xfe00, 0xfe0f }, { 0xfe20, 0xfe2f }, { 0xfeff, 0xfeff }, { 0xe0100, 0xe01ef } };

/* East Asian scripts and emoji. */
static const range wide[] = { { 0x1100, 0x115f },   { 0x231a, 0x231b },   { 0x2329, 0x232a },   { 0x23e9, 0x23f3 },
                              { 0x2614, 0x2615 },   { 0x2648, 0x2653 },   { 0x26a1, 0x26a1 },   { 0x2705, 0x2705 },
                              { 0x270a, 0x270b },   { 0x2728, 0x2728 },   { 0x274c, 0x274c },   { 0x2753, 0x2757 },
                              { 0x2b1b, 0x2b1c },   { 0x2b50, 0x2b50 },   { 0x2e80, 0x303e },   { 0x3041, 0xa4cf },
                              { 0xa960, 0xa97c },   { 0xac00, 0xd7a3 },   { 0xf900, 0xfaff },   { 0xfe30, 0xfe6f },
                              { 0xff00, 0xff60 },   { 0xffe0, 0xffe6 },   { 0x16fe0, 0x18dff }, { 0x1b000, 0x1b2ff },
                              { 0x1f004, 0x1f004 }, { 0x1f0cf, 0x1f0cf }, { 0x1f18e, 0x1f19a }, { 0x1f1e6, 0x1f265 },
                              { 0x1f300, 0x1f64f }, { 0x1f680, 0x1f6ff }, { 0x1f7e0, 0x1f7eb }, { 0x1f900, 0x1f9ff },
                              { 0x1fa70, 0x1faff }, { 0x20000, 0x3fffd } };

static bool is_in(const range *ranges, size_t count, unsigned c)
{
    for (size_t i = 0; i < count; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

static size_t width_of(unsigned c)
{
    if (c < 0x300)
        return 1;
    if (is_in(narrow, sizeof narrow / sizeof *narrow, c))
        return 0;
    return is_in(wide, sizeof wide / sizeof *wide, c) ? 2 : 1;
}

/* An invalid byte is a character of its own. */
static unsigned decode(const char *text, size_t *bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t more = at[0] >= 0xf0 ? 3 : at[0] >= 0xe0 ? 2 : at[0] >= 0xc0 ? 1 : 0;
    unsigned c = more == 3 ? at[0] & 7u : more == 2 ? at[0] & 15u : more == 1 ? at[0] & 31u : at[0];
    for (size_t i = 1; i <= more; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            *bytes = 1;
            return at[0];
        }
        c = c << 6 | (at[i] & 63u);
    }
    *bytes = more + 1;
    return c;
}

size_t ls_bytes_within(const char *text, size_t columns)
{
    size_t used = 0, at = 0;
    for (size_t bytes; text[at]; at += bytes) {
        size_t width = width_of(decode(text + at, &bytes));
        if (used + width > columns)
            break;
        used += width;
    }
    return at;
}

size_t ls_columns(const char *text)
{
    size_t used = 0;
    for (size_t at = 0, bytes; text[at]; at += bytes)
        used += width_of(decode(text + at, &bytes));
    return used;
}

void ls_terminal_clean(const ls_terminal *terminal, ls_text *text)
{
    if (!text->data)
        return;
    ls_make_printable(text->data, text->length);
    size_t to = 0;
    for (size_t at = 0, bytes; !terminal->utf8 && text->data[at]; at += bytes)
        text->data[to++] = decode(text->data + at, &bytes) < 0x80 ? text->data[at] : '?';
    if (!terminal->utf8)
        text->data[text->length = to] = '\0';
}

/* ---- Lines ---- */

#define BOLD   "\033[1m"
#define GREEN  "\033[32m"
#define WHITE  "\033[37m"
#define NORMAL "\033[0m"

ls_line ls_line_of(const ls_terminal *terminal, size_t most)
{
    return (ls_line){ .terminal = terminal, .most = most };
}

static void put(ls_line *line, const char *escape, const char *text)
{
    size_t left = line->most - line->columns, bytes = line->full ? 0 : ls_bytes_within(text, left);
    line->full = line->full || text[bytes] != '\0';
    if (bytes == 0)
        return;
    size_t before = line->text.length;
    ls_text_put(&line->text, line->terminal->color ? escape : "");
    size_t begin = line->text.length;
    ls_text_put_bytes(&line->text, text, bytes);
    if (line->text.failed)
        return;
    line->columns += ls_columns(line->text.data + begin);
    ls_text_put(&line->text, line->terminal->color && begin > before ? NORMAL : "");
}

void ls_line_put(ls_line *line, ls_style style, const char *format, ...)
{
    ls_text made = { 0 };
    va_list args;
    va_start(args, format);
    ls_text_add_v(&made, format, args);
    va_end(args);
    ls_terminal_clean(line->terminal, &made);
    put(line, style == LS_STYLE_BOLD ? BOLD : "", ls_text_get(&made));
    ls_text_free(&made);
}

static void put_cells(ls_line *line, const char *escape, const char *cell, int count)
{
    ls_text cells = { 0 };
    for (int i = 0; i < count; i++)
        ls_text_put(&cells, cell);
    put(line, escape, ls_text_get(&cells));
    ls_text_free(&cells);
}

/* Without colors, different characters distinguish finished cells. */
void ls_line_put_bar(ls_line *line, int cells, double done)
{
    const ls_terminal *t = line->terminal;
    int finished = done >= 1 ? cells : done > 0 ? (int)(done * cells) : 0;
    put_cells(line, GREEN, t->utf8 ? "\u2501" : "=", finished);
    put_cells(line, WHITE, !t->utf8 ? "." : t->color ? "\u2501" : "\u2500", cells - finished);
}

void ls_line_draw(const ls_line *line)
{
    fprintf(line->terminal->out, "\r%s%s", ls_text_get(&line->text), line->terminal->is_terminal ? "\033[K" : "");
    fflush(line->terminal->out);
}

void ls_line_erase(const ls_terminal *terminal)
{
    fputs("\r\033[K", terminal->out);
    fflush(terminal->out);
}
