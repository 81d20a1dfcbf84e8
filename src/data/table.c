/* Reads a file with a table: [N,features] and labels. */
#include "data/table.h"

#include <math.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/grow.h"
#include "base/names.h"
#include "base/numbers.h"
#include "base/size.h"
#include "base/text.h"
#include "data/dataset.h"

/* ---- Tables ---- */

ls_table *ls_table_share(const ls_table *table)
{
    ls_table *shared = (ls_table *)table; /* only the number of handles changes */
    atomic_fetch_add(&shared->handles, 1);
    return shared;
}

void ls_column_free(ls_column *column)
{
    for (size_t i = 0; i < column->value_count; i++)
        free(column->values[i]);
    free(column->values);
    free(column->name);
    *column = (ls_column){ .name = NULL };
}

void ls_table_destroy(ls_table *table)
{
    if (!table || atomic_fetch_sub(&table->handles, 1) != 1)
        return;
    for (size_t i = 0; i < table->count; i++)
        ls_column_free(&table->columns[i]);
    ls_column_free(&table->label);
    free(table->columns);
    free(table);
}

int64_t ls_table_width(const ls_table *table)
{
    int64_t width = 0;
    for (size_t i = 0; i < table->count; i++)
        width += table->columns[i].kind == LS_COLUMN_TEXT ? (int64_t)table->columns[i].value_count : 1;
    return width;
}

int64_t ls_column_find(const ls_column *column, const char *text)
{
    size_t low = 0, high = column->value_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(text, column->values[middle]);
        if (order == 0)
            return (int64_t)middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

bool ls_is_missing(const ls_csv_field *field)
{
    static const char *const words[] = { "", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(field->text, words[i]) == 0)
            return true;
    return false;
}

bool ls_is_header(const ls_csv_rows *rows)
{
    double number;
    for (size_t i = 0; i < rows->count; i++)
        if (ls_csv_number(&rows->fields[i], &number))
            return false;
    return true;
}

/* ---- Names of columns ---- */

void ls_table_free_names(char **names, size_t count)
{
    for (size_t i = 0; names && i < count; i++)
        free(names[i]);
    free(names);
}

static ls_status check_names(const ls_csv_rows *rows, char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!ls_is_utf8(names[i]))
            return ls_fail(LS_ERR_DATA, "'%s', line %lld, column %zu: the name '%.60s' is not UTF-8", rows->path,
                           (long long)rows->line, i + 1, names[i]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(names[k], names[i]) == 0)
                return ls_fail(LS_ERR_DATA, "'%s', line %lld: columns %zu and %zu have the same name, '%.60s'",
                               rows->path, (long long)rows->line, k + 1, i + 1, names[i]);
    }
    return LS_OK;
}

ls_status ls_table_names(ls_csv_rows *rows, bool *has_header, char ***names, size_t *count)
{
    bool end;
    LS_TRY(ls_csv_rows_next(rows, &end));
    if (end)
        return ls_fail(LS_ERR_DATA, "'%s' has no rows; expected a line with the names of the columns, then samples",
                       rows->path);
    *has_header = ls_is_header(rows);
    *count = rows->count;
    *names = calloc(rows->count, sizeof **names);
    ls_status status = *names ? LS_OK : ls_fail(LS_ERR_MEMORY, "'%s': no memory for names of columns", rows->path);
    for (size_t i = 0; i < rows->count && status == LS_OK; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i + 1);
        /* A column without a name, such as an index that pandas wrote, is called by its number. */
        (*names)[i] = strdup(*has_header && rows->fields[i].chars ? rows->fields[i].text : number);
        if (!(*names)[i])
            status = ls_fail(LS_ERR_MEMORY, "'%s': no memory for names of columns", rows->path);
    }
    if (status == LS_OK)
        status = check_names(rows, *names, *count);
    if (status != LS_OK) {
        ls_table_free_names(*names, *count);
        *names = NULL;
    }
    if (!*has_header)
        ls_csv_rows_rewind(rows);
    return status;
}

/* ---- Reading samples ---- */

typedef struct reading {
    const ls_table *table;
    ls_csv_rows rows;
    size_t file_columns;
    size_t *places; /* column of the file for each feature, then for the label */
    bool has_label;
    int64_t width, count;
    size_t feature_room, label_room;
    float *features;
    int64_t *labels; /* bits of a double for LS_COLUMN_REAL */
} reading;

static ls_status find_column(const reading *r, const ls_column *column, char *const *names, size_t count, bool needed,
                             size_t *out)
{
    *out = SIZE_MAX;
    for (size_t i = 0; i < count && *out == SIZE_MAX; i++)
        if (strcmp(names[i], column->name) == 0)
            *out = i;
    if (*out == SIZE_MAX && needed)
        return ls_fail(LS_ERR_DATA, "'%s' has no column '%.60s', which the table needs%s", r->rows.path, column->name,
                       ls_advise_name(column->name, (const char *const *)names, count).text);
    return LS_OK;
}

static ls_status find_columns(reading *r)
{
    const ls_table *t = r->table;
    char **names = NULL;
    bool has_header;
    LS_TRY(ls_table_names(&r->rows, &has_header, &names, &r->file_columns));
    r->places = calloc(t->count + 1, sizeof *r->places);
    ls_status status =
        r->places ? LS_OK : ls_fail(LS_ERR_MEMORY, "'%s': no memory for %zu columns", r->rows.path, t->count);
    if (status == LS_OK && has_header != t->has_header)
        status = ls_fail(LS_ERR_DATA, "'%s', line 1: %s names of columns, but the table was learned from a file %s",
                         r->rows.path, has_header ? "has" : "has no", t->has_header ? "with them" : "without");
    for (size_t i = 0; i < t->count && status == LS_OK; i++)
        status = find_column(r, &t->columns[i], names, r->file_columns, true, &r->places[i]);
    if (status == LS_OK)
        status = find_column(r, &t->label, names, r->file_columns, false, &r->places[t->count]);
    r->has_label = status == LS_OK && r->places[t->count] != SIZE_MAX;
    ls_table_free_names(names, r->file_columns);
    return status;
}

/* Fails for a value that the table cannot take. */
static ls_status read_feature(const reading *r, const ls_column *c, size_t place, float **to)
{
    const ls_csv_field *field = &r->rows.fields[place];
    bool missing = ls_is_missing(field);
    if (missing && r->table->missing == LS_MISSING_ERROR)
        return ls_csv_fail(&r->rows, place, c->name, "is a missing value");
    if (c->kind == LS_COLUMN_TEXT) {
        int64_t at = ls_column_find(c, missing ? "" : field->text);
        if (at < 0 && r->table->missing == LS_MISSING_ERROR)
            return ls_csv_fail(&r->rows, place, c->name, "is not a category of this column");
        memset(*to, 0, c->value_count * sizeof(float));
        if (at >= 0)
            (*to)[at] = 1;
        *to += c->value_count;
        return LS_OK;
    }
    double value = c->median;
    if (!missing && !ls_csv_number(field, &value))
        return ls_csv_fail(&r->rows, place, c->name, "is not a number");
    float scaled = (float)((value - c->mean) / c->deviation);
    if (!isfinite(scaled))
        return ls_csv_fail(&r->rows, place, c->name, "is too large for float32");
    *(*to)++ = scaled;
    return LS_OK;
}

static ls_status read_label(reading *r)
{
    const ls_column *c = &r->table->label;
    size_t place = r->places[r->table->count];
    const ls_csv_field *field = &r->rows.fields[place];
    int64_t *to = &r->labels[r->count];
    double value = 0;
    if (ls_is_missing(field))
        return ls_csv_fail(&r->rows, place, c->name, "is a missing label; remove the line, or write its label");
    if (c->kind == LS_COLUMN_CLASS) {
        *to = ls_column_find(c, field->text);
        return *to >= 0 ? LS_OK : ls_csv_fail(&r->rows, place, c->name, "is not a class of the training part");
    }
    if (c->kind == LS_COLUMN_INTEGER)
        return ls_parse_i64(field->text, to) ? LS_OK
                                             : ls_csv_fail(&r->rows, place, c->name, "is not an integer, as a label");
    if (!ls_csv_number(field, &value) || !isfinite((float)value))
        return ls_csv_fail(&r->rows, place, c->name, "is not a number of float32, as a label");
    ((float *)(void *)r->labels)[r->count] = (float)value;
    return LS_OK;
}

static ls_status read_row(reading *r)
{
    const ls_table *t = r->table;
    if (r->rows.count != r->file_columns)
        return ls_fail(LS_ERR_DATA, "'%s', line %lld: %zu columns; expected %zu, as in the first line", r->rows.path,
                       (long long)r->rows.line, r->rows.count, r->file_columns);
    LS_TRY(ls_grow(&r->features, (size_t)r->count, &r->feature_room, (size_t)r->width * sizeof(float)));
    LS_TRY(ls_grow(&r->labels, (size_t)r->count, &r->label_room, sizeof *r->labels));
    float *to = r->features + r->count * r->width;
    for (size_t i = 0; i < t->count; i++)
        LS_TRY(read_feature(r, &t->columns[i], r->places[i], &to));
    if (r->has_label)
        LS_TRY(read_label(r));
    r->count++;
    return LS_OK;
}

static ls_status read_rows(reading *r)
{
    LS_TRY(find_columns(r));
    for (bool end = false; !end;) {
        LS_TRY(ls_csv_rows_next(&r->rows, &end));
        if (!end)
            LS_TRY(read_row(r));
    }
    return r->count > 0 ? LS_OK : ls_fail(LS_ERR_DATA, "'%s' has no rows after the names of columns", r->rows.path);
}

/* ---- Datasets ---- */

typedef struct table_source {
    ls_table *table;
    char *path;
} table_source;

static ls_status load(void *state, ls_element *out)
{
    const table_source *s = state;
    LS_OWN_FP_MODE;
    reading r = { .table = s->table, .width = ls_table_width(s->table) };
    LS_TRY(ls_csv_rows_open(s->path, &r.rows));
    ls_status status = read_rows(&r);
    ls_csv_rows_close(&r.rows);
    free(r.places);
    if (status != LS_OK || !r.has_label) {
        free(r.labels);
        r.labels = NULL;
    }
    if (status != LS_OK) {
        free(r.features);
        return status;
    }
    out->component[0] = ls_array_of(LS_F32, LS_SHAPE(r.count, r.width), r.features);
    out->component[1] =
        ls_array_of(s->table->label.kind == LS_COLUMN_REAL ? LS_F32 : LS_I64, LS_SHAPE(r.count), r.labels);
    out->count = r.has_label ? 2 : 1;
    return LS_OK;
}

static void free_source(void *state)
{
    table_source *s = state;
    ls_table_destroy(s->table);
    free(s->path);
    free(s);
}

ls_dataset *ls_from_table(const ls_table *table, const char *path)
{
    table_source *state = calloc(1, sizeof *state);
    char *copy = path ? strdup(path) : NULL;
    if (!table || !path || !state || !copy) {
        free(state);
        free(copy);
        ls_dataset *d = ls_dataset_from_loader(NULL, NULL, NULL);
        if (!ls_dataset_is_lost(d))
            ls_dataset_fail(d, table && path ? LS_ERR_MEMORY : LS_ERR_INVALID, "ls_from_table: %s",
                            table && path ? "no memory" : "table or path is NULL");
        return d;
    }
    *state = (table_source){ ls_table_share(table), copy };
    ls_dataset *d = ls_dataset_from_loader(load, state, free_source);
    if (!ls_dataset_is_lost(d) && table->label.kind == LS_COLUMN_CLASS) {
        d->classes = (const char *const *)table->label.values;
        d->class_count = (int64_t)table->label.value_count;
    }
    return d;
}
