/* Options tables: help and current values. */
#include <string.h>

#include "base/options_private.h"

#define DEFAULT_WIDTH  100
#define HELP_COLUMN    28 /* after a longer flag the help starts on the next line */
#define LEAST_WIDTH    20 /* width of the help text, however narrow the terminal */
#define SHORT_CHOICES  24 /* shown instead of a metavar up to this length */
#define LONGEST_COLUMN 40 /* longer values do not widen it */

/* Writes "--optimizer sgd|adam", "--batch-size N", "--nesterov [on|off]". */
static void put_usage(const ls_option *row, bool *choices_shown, ls_text *out)
{
    ls_text_put(out, row->flag);
    size_t choices = 0;
    for (size_t i = 0; i < row->choice_count; i++)
        choices += strlen(row->choices[i]) + 1;
    *choices_shown = row->metavar == NULL && row->type == LS_OPTION_CHOICE && choices <= SHORT_CHOICES;
    if (*choices_shown) {
        for (size_t i = 0; i < row->choice_count; i++)
            ls_text_add(out, "%s%s", i == 0 ? " " : "|", row->choices[i]);
        return;
    }
    static const char *const words[] = {
        [LS_OPTION_BOOL] = "[on|off]", [LS_OPTION_I64] = "N",       [LS_OPTION_F64] = "X",
        [LS_OPTION_STRING] = "TEXT",   [LS_OPTION_CHOICE] = "NAME", [LS_OPTION_SEED] = "N",
    };
    ls_text_add(out, " %s", row->metavar != NULL ? row->metavar : words[row->type]);
}

static void put_description(const ls_option *row, bool choices_shown, ls_text *out)
{
    ls_text_put(out, row->help);
    ls_text_put(out, " (");
    if (row->brief)
        ls_text_add(out, "also -%c; ", row->brief);
    if (row->type == LS_OPTION_CHOICE && !choices_shown) {
        ls_option_put_expected(row, out);
        ls_text_put(out, "; ");
    }
    if (row->range != NULL)
        ls_text_add(out, "within %s; ", row->range);
    if (row->value != NULL && row->value[0] != '\0')
        ls_text_add(out, "default %s; ", row->value);
    char name[LS_OPTION_NAME_BYTES];
    ls_option_variable(row, name);
    ls_text_add(out, "%s)", name);
}

/* The first line is already at column `indent`. */
static void put_wrapped(ls_text *out, const char *text, size_t indent, size_t width)
{
    size_t room = width < indent + LEAST_WIDTH ? LEAST_WIDTH : width - indent, used = 0;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (used > 0 && used + 1 + word > room) {
            ls_text_put(out, "\n");
            ls_text_pad(out, indent);
            used = 0;
        }
        if (used > 0) {
            ls_text_put(out, " ");
            used++;
        }
        ls_text_put_bytes(out, text, word);
        used += word;
        text += word;
        text += strspn(text, " ");
    }
    ls_text_put(out, "\n");
}

static void put_help(const ls_option *row, size_t width, ls_text *out)
{
    ls_text usage = { 0 }, description = { 0 };
    bool choices_shown;
    put_usage(row, &choices_shown, &usage);
    put_description(row, choices_shown, &description);
    ls_text_add(out, "  %s", ls_text_get(&usage));
    size_t column = 2 + usage.length;
    if (column + 2 > HELP_COLUMN) {
        ls_text_put(out, "\n");
        column = 0;
    }
    ls_text_pad(out, HELP_COLUMN - column);
    put_wrapped(out, ls_text_get(&description), HELP_COLUMN, width);
    if (usage.failed || description.failed)
        out->failed = true;
    ls_text_free(&usage);
    ls_text_free(&description);
}

void ls_options_help(const ls_options *options, size_t width, ls_text *out)
{
    if (width == 0)
        width = DEFAULT_WIDTH;
    for (ls_option_part *p = options->first; p != NULL; p = p->next) {
        if (p->table->title != NULL)
            ls_text_add(out, "%s%s:\n", p == options->first ? "" : "\n", p->table->title);
        for (size_t i = 0; i < p->table->count; i++)
            put_help(&p->table->rows[i], width, out);
    }
}

/* ---- Current values ---- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void put_current(const ls_option_part *part, size_t i, size_t flags, size_t column, ls_text *out)
{
    const ls_option *row = &part->table->rows[i];
    ls_text value = { 0 };
    ls_option_put_value(row, part->values, &value);
    char name[LS_OPTION_NAME_BYTES];
    ls_option_variable(row, name);
    ls_text_add(out, "%c %-*s  %-*s  ", strcmp(ls_text_get(&value), part->defaults[i]) == 0 ? ' ' : '*', (int)flags,
                row->flag, (int)column, ls_text_get(&value));
    switch ((ls_option_source)part->sources[i]) {
    case LS_OPTION_FROM_DEFAULT:
        ls_text_put(out, "default\n");
        break;
    case LS_OPTION_FROM_ENVIRONMENT:
        ls_text_add(out, "environment, %s\n", name);
        break;
    case LS_OPTION_FROM_COMMAND_LINE:
        ls_text_put(out, "command line\n");
        break;
    }
    if (value.failed)
        out->failed = true;
    ls_text_free(&value);
}

void ls_options_print(const ls_options *options, ls_text *out)
{
    size_t flags = 0, column = 0;
    for (ls_option_part *p = options->first; p != NULL; p = p->next) {
        for (size_t i = 0; i < p->table->count; i++) {
            ls_text value = { 0 };
            ls_option_put_value(&p->table->rows[i], p->values, &value);
            flags = larger(flags, strlen(p->table->rows[i].flag));
            column = larger(column, value.length > LONGEST_COLUMN ? 0 : value.length);
            ls_text_free(&value);
        }
    }
    for (ls_option_part *p = options->first; p != NULL; p = p->next)
        for (size_t i = 0; i < p->table->count; i++)
            put_current(p, i, flags, column, out);
}
