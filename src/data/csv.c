/* CSV reader: one sample per line, the label last. A first line without any number is a header.
 * Errors count lines and columns from 1. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/fpmode.h"
#include "base/grow.h"
#include "base/numbers.h"
#include "base/size.h"
#include "base/status.h"
#include "base/work.h"
#include "data/readers.h"
#include "data/stream.h"

#define MOST_BYTES  ((size_t)1 << 36)
#define FIELD_CHARS 64
#define INTEGERS    9007199254740992.0 /* a double represents all smaller integers exactly */

#define LINES_AT_ONCE 1000 /* lines between two progress reports */

typedef struct table {
    const char *path;
    const char *text, *end;
    int64_t lines;   /* lines read so far */
    int64_t columns; /* 0: unknown */
    int64_t rows;
    size_t feature_room, label_room;
    float *features;
    double *labels;
    bool whole_labels; /* all labels are written as integers */
} table;

typedef struct field {
    const char *begin;
    size_t chars;
} field;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Strips blanks and quotes; returns false if there is no field. */
static bool next_field(const char **at, const char *end, field *out)
{
    if (!*at)
        return false;
    const char *comma = memchr(*at, ',', (size_t)(end - *at));
    const char *begin = *at, *stop = comma ? comma : end;
    while (begin < stop && is_blank(*begin))
        begin++;
    while (stop > begin && is_blank(stop[-1]))
        stop--;
    if (stop - begin >= 2 && *begin == '"' && stop[-1] == '"') {
        begin++;
        stop--;
    }
    *out = (field){ begin, (size_t)(stop - begin) };
    *at = comma ? comma + 1 : NULL;
    return true;
}

static bool take_text(const field *f, char text[FIELD_CHARS])
{
    if (f->chars == 0 || f->chars >= FIELD_CHARS || memchr(f->begin, 0, f->chars))
        return false;
    memcpy(text, f->begin, f->chars);
    text[f->chars] = 0;
    return true;
}

static bool parse_number(const field *f, double *out)
{
    char text[FIELD_CHARS];
    return take_text(f, text) && ls_parse_f64(text, out);
}

static const char *why_no_number(const field *f)
{
    char text[FIELD_CHARS];
    if (f->chars == 0)
        return "is empty; expected a number";
    return take_text(f, text) && ls_is_beyond_f64(text) ? "is outside " LS_F64_RANGE : "is not a number";
}

static bool is_integer(const field *f, double value)
{
    for (size_t i = 0; i < f->chars; i++)
        if (!strchr("+-0123456789", f->begin[i]))
            return false;
    return value > -INTEGERS && value < INTEGERS;
}

static ls_status fail_field(const table *t, int64_t column, const field *f, const char *why)
{
    int shown = f->chars > 40 ? 40 : (int)f->chars;
    return ls_fail(LS_ERR_DATA, "'%s', line %lld, column %lld: '%.*s' %s", t->path, (long long)t->lines,
                   (long long)column, shown, f->begin, why);
}

static ls_status make_room(table *t)
{
    ls_status status =
        ls_grow(&t->features, (size_t)t->rows, &t->feature_room, (size_t)(t->columns - 1) * sizeof(float));
    if (status == LS_OK)
        status = ls_grow(&t->labels, (size_t)t->rows, &t->label_room, sizeof(*t->labels));
    return ls_fail_within(status, "'%s', line %lld", t->path, (long long)t->lines);
}

static ls_status read_line(table *t, const char *at, const char *end)
{
    float *row = t->features + t->rows * (t->columns - 1);
    int64_t column = 0;
    double value;
    field f;
    while (next_field(&at, end, &f)) {
        column++;
        if (column > t->columns)
            continue;
        if (!parse_number(&f, &value))
            return fail_field(t, column, &f, why_no_number(&f));
        if (!isfinite((float)value))
            return fail_field(t, column, &f, isfinite(value) ? "is too large for float32" : "is not finite");
        if (column == t->columns) {
            t->labels[t->rows] = value;
            t->whole_labels = t->whole_labels && is_integer(&f, value);
        } else {
            row[column - 1] = (float)value;
        }
    }
    if (column != t->columns)
        return ls_fail(LS_ERR_DATA, "'%s', line %lld: %lld columns; expected %lld, as in the lines before", t->path,
                       (long long)t->lines, (long long)column, (long long)t->columns);
    t->rows++;
    return LS_OK;
}

static ls_status first_line(table *t, const char *at, const char *end, bool *is_header)
{
    const char *again = at;
    int64_t numbers = 0;
    double value;
    field f;
    while (next_field(&at, end, &f)) {
        t->columns++;
        numbers += parse_number(&f, &value);
    }
    if (t->columns < 2)
        return ls_fail(LS_ERR_DATA,
                       "'%s', line %lld: 1 column; expected at least one feature and a label, separated by commas",
                       t->path, (long long)t->lines);
    *is_header = numbers == 0;
    for (int64_t column = 1; numbers > 0 && next_field(&again, end, &f); column++)
        if (!parse_number(&f, &value))
            return fail_field(t, column, &f, "is not a number (a header line would have none at all)");
    return LS_OK;
}

static ls_status read_lines(table *t)
{
    const char *at = t->text;
    while (at < t->end) {
        const char *newline = memchr(at, '\n', (size_t)(t->end - at));
        const char *stop = newline ? newline : t->end, *line = at;
        bool is_header = false, empty = true;
        at = newline ? newline + 1 : t->end;
        if (t->lines++ % LINES_AT_ONCE == 0)
            ls_work_report("reading numbers of", t->path, at - t->text, t->end - t->text);
        for (const char *c = line; empty && c < stop; c++)
            empty = is_blank(*c);
        if (empty)
            continue;
        if (t->columns == 0)
            LS_TRY(first_line(t, line, stop, &is_header));
        if (is_header)
            continue;
        LS_TRY(make_room(t));
        LS_TRY(read_line(t, line, stop));
    }
    if (t->rows == 0)
        return ls_fail(LS_ERR_DATA, "'%s' has %lld lines, but none with numbers", t->path, (long long)t->lines);
    return LS_OK;
}

/* int64 if all labels are integers, else float32. */
static ls_status finish(table *t, ls_array *features, ls_array *labels)
{
    ls_shape rows = LS_SHAPE(t->rows);
    for (int64_t i = 0; t->whole_labels && i < t->rows; i++)
        ((int64_t *)(void *)t->labels)[i] = (int64_t)t->labels[i];
    if (!t->whole_labels) {
        float *narrow = malloc((size_t)t->rows * sizeof *narrow);
        if (!narrow)
            return ls_fail(LS_ERR_MEMORY, "no memory for the %lld labels of '%s'", (long long)t->rows, t->path);
        for (int64_t i = 0; i < t->rows; i++)
            narrow[i] = (float)t->labels[i];
        free(t->labels);
        t->labels = (double *)(void *)narrow;
    }
    *features = ls_array_of(LS_F32, LS_SHAPE(t->rows, t->columns - 1), t->features);
    *labels = ls_array_of(t->whole_labels ? LS_I64 : LS_F32, rows, t->labels);
    return LS_OK;
}

ls_status ls_csv_read(const char *path, ls_array *features, ls_array *labels)
{
    LS_OWN_FP_MODE;
    char *text = NULL;
    size_t bytes = 0;
    if (!path || !features || !labels)
        return ls_fail(LS_ERR_INVALID, "ls_csv_read: path, features or labels is NULL");
    LS_TRY(ls_file_read(path, MOST_BYTES, &text, &bytes));
    table t = { .path = path, .text = text, .end = text + bytes, .whole_labels = true };
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* byte order mark */
        t.text += 3;
    ls_status status = read_lines(&t);
    ls_work_end();
    if (status == LS_OK)
        status = finish(&t, features, labels);
    free(text);
    if (status != LS_OK) {
        free(t.features);
        free(t.labels);
    }
    return status;
}
