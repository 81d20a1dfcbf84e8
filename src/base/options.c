/* Options tables: environment and arguments. */
#include "base/options.h"

#include <string.h>

#include "base/names.h"
#include "base/options_private.h"
#include "base/status.h"

extern char **environ;

#define MOST_NAMES 512 /* flags searched for the nearest name */

/* ---- Lookup ---- */

static size_t flag_length(const char *word)
{
    return strcspn(word, "=");
}

/* The flag is the first `length` characters of `word`. */
static const ls_option *find(const ls_options *options, const char *word, size_t length, ls_option_part **part)
{
    for (ls_option_part *p = options->first; p != NULL; p = p->next) {
        for (size_t i = 0; i < p->table->count; i++) {
            const ls_option *row = &p->table->rows[i];
            bool brief = row->brief && length == 2 && word[0] == '-' && word[1] == row->brief;
            if (brief || (strlen(row->flag) == length && memcmp(row->flag, word, length) == 0)) {
                *part = p;
                return row;
            }
        }
    }
    return NULL;
}

static ls_status fail_unknown(const ls_options *options, const char *word, size_t length)
{
    const char *names[MOST_NAMES];
    size_t n = 0;
    for (ls_option_part *p = options->first; p != NULL; p = p->next)
        for (size_t i = 0; i < p->table->count && n < MOST_NAMES; i++)
            names[n++] = p->table->rows[i].flag;
    char wanted[LS_OPTION_NAME_BYTES];
    snprintf(wanted, sizeof wanted, "%.*s", (int)(length < sizeof wanted ? length : sizeof wanted - 1), word);
    if (n == 0)
        return ls_fail(LS_ERR_INVALID, "unknown option %s; this command has no options", wanted);
    ls_name_advice advice = ls_suggest_name(wanted, names, n);
    return ls_fail(LS_ERR_INVALID, "unknown option %s%s", wanted,
                   advice.text[0] ? advice.text : "; --help lists the options");
}

void ls_option_variable(const ls_option *row, char name[LS_OPTION_NAME_BYTES])
{
    snprintf(name, LS_OPTION_NAME_BYTES, "LOCKSTEP_%s", row->flag + 2);
    for (char *c = name; *c != '\0'; c++)
        *c = (char)(*c == '-' ? '_' : *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
}

/* ---- Adding tables ---- */

static ls_status check_flag(ls_options *options, const ls_option *row)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    const char *flag = row->flag;
    if (strncmp(flag, "--", 2) != 0 || flag[2] == '\0' || strspn(flag, allowed) != strlen(flag) ||
        strlen(flag) + sizeof "LOCKSTEP_" > LS_OPTION_NAME_BYTES)
        return ls_fail(LS_ERR_INTERNAL, "options table: invalid flag '%s'", flag);
    ls_option_part *part;
    if (find(options, flag, strlen(flag), &part) != NULL)
        return ls_fail(LS_ERR_INTERNAL, "options table: %s has two rows", flag);
    if (row->help == NULL || (row->type == LS_OPTION_CHOICE && row->choice_count == 0))
        return ls_fail(LS_ERR_INTERNAL, "options table: %s has no help or no choices", flag);
    return LS_OK;
}

static ls_status assign_default(ls_options *options, ls_option_part *part, const ls_option *row)
{
    if (row->value == NULL && row->type == LS_OPTION_STRING) {
        const char *none = NULL;
        memcpy((char *)part->values + row->offset, &none, sizeof none);
        return LS_OK;
    }
    if (row->value == NULL)
        return ls_fail(LS_ERR_INTERNAL, "options table: %s has no default", row->flag);
    if (ls_option_assign(row, row->value, row->flag, " ", part->values, &options->arena) != LS_OK)
        return ls_fail(LS_ERR_INTERNAL, "options table: invalid default: %s", ls_last_error());
    return LS_OK;
}

/* Stores the default's text, so that ls_options_print can mark values that differ. */
static ls_status set_default(ls_options *options, ls_option_part *part, size_t i)
{
    const ls_option *row = &part->table->rows[i];
    LS_TRY(assign_default(options, part, row));
    ls_text text = { 0 };
    ls_option_put_value(row, part->values, &text);
    part->defaults[i] = text.failed ? NULL : ls_arena_strdup(&options->arena, ls_text_get(&text));
    ls_text_free(&text);
    if (part->defaults[i] == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for the default of %s", row->flag);
    return LS_OK;
}

static ls_status make_part(ls_options *options, const ls_option_table *table, void *values, ls_option_part **out)
{
    ls_option_part *part = ls_arena_alloc(&options->arena, sizeof *part);
    unsigned char *sources = ls_arena_alloc(&options->arena, table->count);
    const char **defaults = ls_arena_alloc(&options->arena, table->count * sizeof *defaults);
    if (part == NULL || sources == NULL || defaults == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for an options table of %zu rows", table->count);
    *part = (ls_option_part){ .table = table, .values = values, .sources = sources, .defaults = defaults };
    *out = part;
    return LS_OK;
}

ls_status ls_options_add(ls_options *options, const ls_option_table *table, void *values)
{
    ls_option_part *part = NULL;
    LS_TRY(make_part(options, table, values, &part));
    for (size_t i = 0; i < table->count; i++) {
        LS_TRY(check_flag(options, &table->rows[i]));
        for (size_t j = 0; j < i; j++)
            if (strcmp(table->rows[i].flag, table->rows[j].flag) == 0)
                return ls_fail(LS_ERR_INTERNAL, "options table: %s has two rows", table->rows[i].flag);
        LS_TRY(set_default(options, part, i));
    }
    if (options->last == NULL)
        options->first = part;
    else
        options->last->next = part;
    options->last = part;
    return LS_OK;
}

void ls_options_free(ls_options *options)
{
    ls_arena_free(&options->arena);
    *options = (ls_options){ 0 };
}

/* ---- Environment ---- */

static ls_status apply_variable(ls_options *options, ls_option_part *part, size_t i)
{
    const ls_option *row = &part->table->rows[i];
    char name[LS_OPTION_NAME_BYTES];
    ls_option_variable(row, name);
    const char *text = getenv(name);
    if (text == NULL || text[0] == '\0' || part->sources[i] == LS_OPTION_FROM_COMMAND_LINE)
        return LS_OK;
    LS_TRY(ls_option_assign(row, text, name, "=", part->values, &options->arena));
    part->sources[i] = LS_OPTION_FROM_ENVIRONMENT;
    return LS_OK;
}

ls_status ls_options_environment(ls_options *options)
{
    for (ls_option_part *p = options->first; p != NULL; p = p->next)
        for (size_t i = 0; i < p->table->count; i++)
            LS_TRY(apply_variable(options, p, i));
    return LS_OK;
}

static bool is_known(const char *name, size_t length, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
            return true;
    return false;
}

static ls_status check_names(const char *const *names, size_t n)
{
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        size_t length = flag_length(*entry);
        if (strncmp(*entry, "LOCKSTEP_", 9) != 0 || is_known(*entry, length, names, n))
            continue;
        char wanted[LS_OPTION_NAME_BYTES];
        snprintf(wanted, sizeof wanted, "%.*s", (int)(length < sizeof wanted ? length : sizeof wanted - 1), *entry);
        return ls_fail(LS_ERR_INVALID, "unknown environment variable %s%s", wanted,
                       ls_suggest_name(wanted, names, n).text);
    }
    return LS_OK;
}

ls_status ls_options_check_environment(const ls_option_table *const *tables, size_t table_count,
                                       const char *const *others, size_t other_count)
{
    size_t most = other_count;
    for (size_t t = 0; t < table_count; t++)
        most += tables[t]->count;
    ls_arena arena = { 0 };
    const char **names = ls_arena_alloc(&arena, most * sizeof *names);
    ls_status status = LS_OK;
    size_t n = 0;
    if (names == NULL)
        status = ls_fail(LS_ERR_MEMORY, "no memory for %zu names of variables", most);
    for (size_t t = 0; t < table_count && status == LS_OK; t++) {
        for (size_t i = 0; i < tables[t]->count && status == LS_OK; i++) {
            char name[LS_OPTION_NAME_BYTES];
            ls_option_variable(&tables[t]->rows[i], name);
            names[n] = ls_arena_strdup(&arena, name);
            if (names[n++] == NULL)
                status = ls_fail(LS_ERR_MEMORY, "no memory for %zu names of variables", most);
        }
    }
    for (size_t i = 0; i < other_count && status == LS_OK; i++)
        names[n++] = others[i];
    if (status == LS_OK)
        status = check_names(names, n);
    ls_arena_free(&arena);
    return status;
}

/* ---- Arguments ---- */

static bool is_flag(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && !(word[1] >= '0' && word[1] <= '9') && word[1] != '.';
}

/* Finds the value: after "=", the next word (*used), or none for a switch. */
static ls_status value_of(const ls_option *row, const char *word, const char *next, const char **value, bool *used)
{
    const char *equals = strchr(word, '=');
    *used = false;
    if (equals != NULL) {
        *value = equals + 1;
        return LS_OK;
    }
    if (row->type == LS_OPTION_BOOL) {
        *used = next != NULL && (strcmp(next, "on") == 0 || strcmp(next, "off") == 0);
        *value = *used ? next : "on";
        return LS_OK;
    }
    if (row->alone != NULL && (next == NULL || is_flag(next))) {
        *value = row->alone;
        return LS_OK;
    }
    if (next == NULL || strncmp(next, "--", 2) == 0) {
        ls_text expected = { 0 };
        ls_option_put_expected(row, &expected);
        ls_fail(LS_ERR_INVALID, "%s needs a value: expected %s%s%s", row->flag, ls_text_get(&expected),
                next == NULL ? "" : ", but the next word is ", next == NULL ? "" : next);
        ls_text_free(&expected);
        return LS_ERR_INVALID;
    }
    *value = next;
    *used = true;
    return LS_OK;
}

static ls_status parse_flag(ls_options *options, const char *word, const char *next, bool *used)
{
    ls_option_part *part = NULL;
    const ls_option *row = find(options, word, flag_length(word), &part);
    if (row == NULL)
        return fail_unknown(options, word, flag_length(word));
    const char *value = NULL;
    LS_TRY(value_of(row, word, next, &value, used));
    LS_TRY(ls_option_assign(row, value, row->flag, " ", part->values, &options->arena));
    part->sources[row - part->table->rows] = LS_OPTION_FROM_COMMAND_LINE;
    return LS_OK;
}

ls_status ls_options_parse(ls_options *options, int argc, const char *const *argv)
{
    const char **positional = ls_arena_alloc(&options->arena, (size_t)(argc > 0 ? argc : 0) * sizeof *positional);
    if (positional == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for %d arguments", argc);
    options->positional = positional;
    options->positional_count = 0;
    bool flags_ended = false;
    for (int i = 0; i < argc; i++) {
        if (!flags_ended && strcmp(argv[i], "--") == 0) {
            flags_ended = true;
        } else if (!flags_ended && is_flag(argv[i])) {
            bool used = false;
            LS_TRY(parse_flag(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used));
            i += used;
        } else {
            const char *word = ls_arena_strdup(&options->arena, argv[i]);
            if (word == NULL)
                return ls_fail(LS_ERR_MEMORY, "no memory for %d arguments", argc);
            positional[options->positional_count++] = word;
        }
    }
    return LS_OK;
}

ls_option_source ls_options_source(const ls_options *options, const char *flag)
{
    ls_option_part *part = NULL;
    const ls_option *row = find(options, flag, strlen(flag), &part);
    return row == NULL ? LS_OPTION_FROM_DEFAULT : (ls_option_source)part->sources[row - part->table->rows];
}

ls_status ls_options_copy_value(ls_options *to, const ls_options *from, const char *flag)
{
    ls_option_part *theirs = NULL, *own = NULL;
    const ls_option *given = find(from, flag, strlen(flag), &theirs), *row = find(to, flag, strlen(flag), &own);
    if (!given || !row || ls_options_source(from, flag) == LS_OPTION_FROM_DEFAULT ||
        ls_options_source(to, flag) == LS_OPTION_FROM_COMMAND_LINE)
        return LS_OK;
    ls_text text = { 0 };
    char *value = NULL;
    ls_option_put_value(given, theirs->values, &text);
    LS_TRY(ls_text_take(&text, &value));
    ls_status status = ls_option_assign(row, value, row->flag, " ", own->values, &to->arena);
    free(value);
    if (status == LS_OK)
        own->sources[row - own->table->rows] = LS_OPTION_FROM_COMMAND_LINE;
    return status;
}
