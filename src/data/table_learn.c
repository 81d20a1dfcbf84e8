/* Learns a table from a CSV or TSV file: kinds of columns, vocabularies, medians, means and
 * standard deviations. Sums are taken in double, row by row (docs/bits.md). */
#include <math.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/grow.h"
#include "base/names.h"
#include "base/numbers.h"
#include "base/text.h"
#include "data/table.h"

/* What was seen in a column. */
typedef struct seen {
    const char *name;
    bool dropped, as_text, is_label;
    bool has_missing, whole;        /* whole: every number is written as an integer */
    int64_t number_line, text_line; /* line of the first number and text; 0: none */
    char number[48], text[48];
    double *numbers;
    size_t number_count, number_room;
    ls_column texts;
    size_t text_room;
} seen;

typedef struct learning {
    const ls_table_options *options;
    ls_csv_rows rows;
    bool has_header;
    char **names;
    seen *columns;
    size_t count;
    int64_t used; /* number of rows to learn from */
} learning;

/* ---- Options ---- */

/* Calls `mark` for each name of a comma-separated list. */
static ls_status mark_columns(learning *l, const char *option, const char *list, void (*mark)(seen *))
{
    for (const char *at = list; at && *at;) {
        char name[256];
        size_t length = strcspn(at, ","), found = 0;
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), at);
        while (found < l->count && strcmp(l->names[found], name) != 0)
            found++;
        if (found == l->count)
            return ls_fail(LS_ERR_INVALID, "%s: '%s' has no column '%s'%s", option, l->rows.path, name,
                           ls_advise_name(name, (const char *const *)l->names, l->count).text);
        mark(&l->columns[found]);
        at += length + (at[length] == ',');
    }
    return LS_OK;
}

static void mark_dropped(seen *s)
{
    s->dropped = true;
}

static void mark_text(seen *s)
{
    s->as_text = true;
}

static void mark_label(seen *s)
{
    s->is_label = true;
}

static ls_status mark_all(learning *l)
{
    const ls_table_options *o = l->options;
    size_t features = 0;
    LS_TRY(mark_columns(l, "drop", o->drop, mark_dropped));
    LS_TRY(mark_columns(l, "text", o->text, mark_text));
    if (o->label && strchr(o->label, ','))
        return ls_fail(LS_ERR_INVALID, "label: '%.60s' is more than one column", o->label);
    LS_TRY(mark_columns(l, "label", o->label ? o->label : l->names[l->count - 1], mark_label));
    for (size_t i = 0; i < l->count; i++) {
        if (l->columns[i].is_label && l->columns[i].dropped)
            return ls_fail(LS_ERR_INVALID, "column '%.60s' is the label and cannot be left out; choose another label",
                           l->names[i]);
        features += !l->columns[i].is_label && !l->columns[i].dropped;
    }
    return features > 0 ? LS_OK
                        : ls_fail(LS_ERR_DATA,
                                  "'%s', line 1: %zu column%s, none of them a feature; expected features and a label, "
                                  "separated by %s",
                                  l->rows.path, l->count, l->count == 1 ? "" : "s",
                                  l->rows.separator == ',' ? "commas" : "tabs");
}

/* ---- Values ---- */

/* Inserts a text into the sorted list, unless it is there or the list is full. */
static ls_status add_text(seen *s, const char *text)
{
    ls_column *c = &s->texts;
    size_t place = 0;
    if (ls_column_find(c, text) >= 0 || (!s->is_label && c->value_count > LS_MOST_CATEGORIES))
        return LS_OK;
    LS_TRY(ls_grow(&c->values, c->value_count, &s->text_room, sizeof *c->values));
    char *copy = strdup(text);
    if (!copy)
        return ls_fail(LS_ERR_MEMORY, "no memory for the texts of a column");
    for (size_t high = c->value_count; place < high;) {
        size_t middle = place + (high - place) / 2;
        if (strcmp(text, c->values[middle]) < 0)
            high = middle;
        else
            place = middle + 1;
    }
    memmove(c->values + place + 1, c->values + place, (c->value_count - place) * sizeof *c->values);
    c->values[place] = copy;
    c->value_count++;
    return LS_OK;
}

static bool is_integer(const char *text)
{
    int64_t number;
    return ls_parse_i64(text, &number);
}

static ls_status see_field(learning *l, seen *s, size_t column)
{
    const ls_csv_field *field = &l->rows.fields[column];
    double number;
    if (s->dropped)
        return LS_OK;
    if (ls_is_missing(field)) {
        if (s->is_label)
            return ls_csv_fail(&l->rows, column, s->name, "is a missing label; remove the line, or write its label");
        if (l->options->missing == LS_MISSING_ERROR)
            return ls_csv_fail(&l->rows, column, s->name, "is a missing value");
        s->has_missing = true;
        return LS_OK;
    }
    if (!ls_is_utf8(field->text))
        return ls_csv_fail(&l->rows, column, s->name, "is not UTF-8");
    if (!s->as_text && ls_csv_number(field, &number)) {
        if (s->number_line == 0)
            snprintf(s->number, sizeof s->number, "%.40s", field->text);
        s->number_line = s->number_line ? s->number_line : l->rows.line;
        s->whole = s->whole && is_integer(field->text);
        LS_TRY(ls_grow(&s->numbers, s->number_count, &s->number_room, sizeof *s->numbers));
        s->numbers[s->number_count++] = number;
        return LS_OK;
    }
    if (s->text_line == 0)
        snprintf(s->text, sizeof s->text, "%.40s", field->text);
    s->text_line = s->text_line ? s->text_line : l->rows.line;
    return add_text(s, field->text);
}

static ls_status see_rows(learning *l)
{
    bool end = false;
    for (int64_t row = 0; row < l->used && !end; row++) {
        LS_TRY(ls_csv_rows_next(&l->rows, &end));
        if (end)
            break;
        if (l->rows.count != l->count)
            return ls_fail(LS_ERR_DATA, "'%s', line %lld: %zu columns; expected %zu, as in the first line",
                           l->rows.path, (long long)l->rows.line, l->rows.count, l->count);
        for (size_t i = 0; i < l->count; i++)
            LS_TRY(see_field(l, &l->columns[i], i));
    }
    return LS_OK;
}

/* Counts the rows of the training part, as ls_dataset_split does. */
static ls_status count_rows(learning *l)
{
    const ls_table_options *o = l->options;
    int64_t rows = 0;
    l->used = o->take > 0 ? o->take : INT64_MAX;
    if (!(o->validation_split > 0))
        return LS_OK;
    for (bool end = false; !end; rows += !end)
        LS_TRY(ls_csv_rows_next(&l->rows, &end));
    rows = rows < l->used ? rows : l->used;
    l->used = (int64_t)((double)rows * (1.0 - o->validation_split));
    ls_csv_rows_rewind(&l->rows);
    bool end;
    return l->has_header ? ls_csv_rows_next(&l->rows, &end) : LS_OK;
}

/* ---- Statistics ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sums in the order of the rows; sorts the numbers afterwards. */
static ls_status measure(const learning *l, seen *s, ls_column *out)
{
    size_t n = s->number_count;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += s->numbers[i];
    out->mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (s->numbers[i] - out->mean) * (s->numbers[i] - out->mean);
    out->deviation = sqrt(squares / (double)n);
    if (!isfinite(out->mean) || !isfinite(out->deviation))
        return ls_fail(LS_ERR_DATA, "'%s', column '%.60s': the numbers are too large to be standardised", l->rows.path,
                       s->name);
    if (out->deviation == 0)
        out->deviation = 1; /* a constant column becomes 0 */
    qsort(s->numbers, n, sizeof *s->numbers, by_value);
    out->median = n % 2 ? s->numbers[n / 2] : (s->numbers[n / 2 - 1] + s->numbers[n / 2]) / 2;
    return LS_OK;
}

static ls_status fail_mixed(const learning *l, const seen *s)
{
    return ls_fail(LS_ERR_DATA,
                   "'%s', column '%.60s': line %lld has the number '%s', but line %lld has the text '%s'; correct the "
                   "line, or list the column as text if its numbers are names",
                   l->rows.path, s->name, (long long)s->number_line, s->number, (long long)s->text_line, s->text);
}

static ls_status fail_many(const learning *l, const seen *s)
{
    return ls_fail(LS_ERR_DATA,
                   "'%s', column '%.60s': more than %d different texts (the first is '%s', in line %lld); at most %d "
                   "become one-hot features, and an index of texts is not a number to compute with: drop the column",
                   l->rows.path, s->name, LS_MOST_CATEGORIES, s->text, (long long)s->text_line, LS_MOST_CATEGORIES);
}

/* Moves what was seen into a column of the table. */
static ls_status decide(const learning *l, seen *s, ls_column *out)
{
    *out = (ls_column){ .name = strdup(s->name), .deviation = 1 };
    if (!out->name)
        return ls_fail(LS_ERR_MEMORY, "no memory for the name of a column");
    if (s->number_line && s->text_line)
        return fail_mixed(l, s);
    if (!s->number_line && !s->text_line)
        return ls_fail(LS_ERR_DATA, "'%s', column '%.60s' has no value in %lld rows; drop the column", l->rows.path,
                       s->name, (long long)(l->rows.rows - l->has_header));
    if (s->number_line) {
        out->kind = !s->is_label ? LS_COLUMN_NUMBER : s->whole ? LS_COLUMN_INTEGER : LS_COLUMN_REAL;
        return s->is_label ? LS_OK : measure(l, s, out);
    }
    out->kind = s->is_label ? LS_COLUMN_CLASS : LS_COLUMN_TEXT;
    if (s->has_missing)
        LS_TRY(add_text(s, ""));
    out->values = s->texts.values;
    out->value_count = s->texts.value_count;
    s->texts = (ls_column){ .name = NULL };
    return s->is_label || out->value_count <= LS_MOST_CATEGORIES ? LS_OK : fail_many(l, s);
}

static ls_status build(learning *l, ls_table *table)
{
    table->columns = calloc(l->count, sizeof *table->columns);
    if (!table->columns)
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %zu columns", l->count);
    table->has_header = l->has_header;
    table->missing = l->options->missing;
    for (size_t i = 0; i < l->count; i++) {
        seen *s = &l->columns[i];
        if (!s->dropped)
            LS_TRY(decide(l, s, s->is_label ? &table->label : &table->columns[table->count++]));
    }
    return LS_OK;
}

/* ---- The whole ---- */

static ls_status learn(learning *l, ls_table *table)
{
    LS_TRY(ls_table_names(&l->rows, &l->has_header, &l->names, &l->count));
    l->columns = calloc(l->count, sizeof *l->columns);
    if (!l->columns)
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %zu columns", l->count);
    for (size_t i = 0; i < l->count; i++) {
        l->columns[i].name = l->names[i];
        l->columns[i].whole = true;
    }
    LS_TRY(mark_all(l));
    LS_TRY(count_rows(l));
    LS_TRY(see_rows(l));
    if (l->rows.rows == l->has_header)
        return ls_fail(LS_ERR_DATA, "'%s' has no rows to learn from%s", l->rows.path,
                       l->has_header ? " after the names of columns" : "");
    return build(l, table);
}

static void free_learning(learning *l)
{
    for (size_t i = 0; l->columns && i < l->count; i++) {
        free(l->columns[i].numbers);
        ls_column_free(&l->columns[i].texts);
    }
    free(l->columns);
    ls_table_free_names(l->names, l->count);
    ls_csv_rows_close(&l->rows);
}

static ls_status check_options(const char *path, const ls_table_options *o, ls_table *const *out)
{
    if (!path || !out)
        return ls_fail(LS_ERR_INVALID, "ls_table_create: path or out is NULL");
    if ((unsigned)o->missing > LS_MISSING_ERROR)
        return ls_fail(LS_ERR_INVALID, "ls_table_create: missing has the unknown value %d", (int)o->missing);
    if (o->take < 0)
        return ls_fail(LS_ERR_INVALID, "ls_table_create: take must be at least 0 (got %lld)", (long long)o->take);
    if (!(o->validation_split >= 0 && o->validation_split < 1))
        return ls_fail(LS_ERR_INVALID, "ls_table_create: the validation split must be at least 0 and below 1 (got %g)",
                       o->validation_split);
    return LS_OK;
}

ls_status ls_table_create_with(const char *path, ls_table_options options, ls_table **out)
{
    LS_OWN_FP_MODE;
    LS_TRY(check_options(path, &options, out));
    learning l = { .options = &options };
    ls_table *table = calloc(1, sizeof *table);
    if (!table)
        return ls_fail(LS_ERR_MEMORY, "no memory for a table");
    atomic_init(&table->handles, 1);
    ls_status status = ls_csv_rows_open(path, &l.rows);
    if (status == LS_OK)
        status = learn(&l, table);
    free_learning(&l);
    if (status == LS_OK)
        *out = table;
    else
        ls_table_destroy(table);
    return status;
}
