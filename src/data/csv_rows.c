/* Rows of CSV and TSV files. */
#include "data/csv_rows.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/grow.h"
#include "base/numbers.h"
#include "base/status.h"
#include "base/text.h"
#include "base/work.h"

#define MOST_BYTES   ((size_t)1 << 36)
#define NUMBER_CHARS 64
#define ROWS_AT_ONCE 1000 /* rows between two progress reports */

ls_status ls_csv_rows_open(const char *path, ls_csv_rows *out)
{
    size_t bytes = 0;
    *out = (ls_csv_rows){ .path = path, .separator = ls_ends_with(path, ".tsv") ? '\t' : ',' };
    LS_TRY(ls_file_read(path, MOST_BYTES, &out->text, &bytes));
    out->end = out->text + bytes;
    /* A field is not longer than its text, and its zero takes the place of the separator. Only as
     * much as the longest row is ever touched. */
    out->unquoted = malloc(bytes + 1);
    const char *zero = memchr(out->text, 0, bytes);
    ls_csv_rows_rewind(out);
    ls_status status = LS_OK;
    if (!out->unquoted)
        status = ls_fail(LS_ERR_MEMORY, "no memory for the rows of '%s' (%zu bytes)", path, bytes);
    else if (zero)
        status =
            ls_fail(LS_ERR_DATA, "'%s' is not a text file: byte %lld is zero", path, (long long)(zero - out->text));
    if (status != LS_OK)
        ls_csv_rows_close(out);
    return status;
}

void ls_csv_rows_close(ls_csv_rows *rows)
{
    free(rows->text);
    free(rows->fields);
    free(rows->unquoted);
    *rows = (ls_csv_rows){ .path = NULL };
}

void ls_csv_rows_rewind(ls_csv_rows *r)
{
    bool marked = r->end - r->text >= 3 && memcmp(r->text, "\xef\xbb\xbf", 3) == 0;
    r->at = r->text + (marked ? 3 : 0);
    r->new_line = 1;
    r->rows = 0;
}

/* ---- Fields ---- */

static bool is_blank(const ls_csv_rows *r, char c)
{
    return (c == ' ' || c == '\t' || c == '\r') && c != r->separator;
}

static bool is_end_of_field(const ls_csv_rows *r, const char *at)
{
    return at == r->end || *at == r->separator || *at == '\n';
}

/* Copies a field in quotes; `at` is after the first quote. */
static ls_status take_quoted(ls_csv_rows *r, char **to)
{
    int64_t begin = r->new_line;
    for (;; r->at++) {
        if (r->at == r->end)
            return ls_fail(LS_ERR_DATA, "'%s', line %lld, column %zu: the quote that begins this field has no end",
                           r->path, (long long)begin, r->count + 1);
        if (*r->at == '"') {
            r->at++;
            if (r->at == r->end || *r->at != '"')
                break;
        }
        r->new_line += *r->at == '\n';
        *(*to)++ = *r->at;
    }
    while (r->at < r->end && is_blank(r, *r->at))
        r->at++;
    if (!is_end_of_field(r, r->at))
        return ls_fail(LS_ERR_DATA,
                       "'%s', line %lld, column %zu: '%c' after the closing quote; write a quote inside a field twice",
                       r->path, (long long)r->new_line, r->count + 1, *r->at);
    return LS_OK;
}

static void take_plain(ls_csv_rows *r, char **to)
{
    const char *begin = r->at;
    while (!is_end_of_field(r, r->at))
        r->at++;
    const char *stop = r->at;
    while (stop > begin && is_blank(r, stop[-1]))
        stop--;
    memcpy(*to, begin, (size_t)(stop - begin));
    *to += stop - begin;
}

static ls_status take_field(ls_csv_rows *r, char **to)
{
    LS_TRY(ls_grow(&r->fields, r->count, &r->field_room, sizeof *r->fields));
    char *text = *to;
    while (r->at < r->end && is_blank(r, *r->at))
        r->at++;
    if (r->at < r->end && *r->at == '"') {
        r->at++;
        LS_TRY(take_quoted(r, to));
    } else {
        take_plain(r, to);
    }
    r->fields[r->count++] = (ls_csv_field){ text, (size_t)(*to - text) };
    *(*to)++ = 0;
    return LS_OK;
}

/* ---- Rows ---- */

static void skip_empty_lines(ls_csv_rows *r)
{
    for (const char *at = r->at; at < r->end && (*at == '\n' || is_blank(r, *at)); at++)
        if (*at == '\n') {
            r->at = at + 1;
            r->new_line++;
        } else if (at + 1 == r->end) {
            r->at = r->end;
        }
}

ls_status ls_csv_rows_next(ls_csv_rows *r, bool *end)
{
    skip_empty_lines(r);
    *end = r->at == r->end;
    if (*end) {
        ls_work_end();
        return LS_OK;
    }
    if (r->rows++ % ROWS_AT_ONCE == 0)
        ls_work_report("reading rows of", r->path, r->at - r->text, r->end - r->text);
    r->line = r->new_line;
    r->count = 0;
    char *to = r->unquoted;
    for (bool more = true; more;) {
        LS_TRY(take_field(r, &to));
        more = r->at < r->end && *r->at == r->separator;
        r->at += more;
    }
    if (r->at < r->end) { /* a newline */
        r->at++;
        r->new_line++;
    }
    return LS_OK;
}

bool ls_csv_number(const ls_csv_field *field, double *out)
{
    return field->chars > 0 && field->chars < NUMBER_CHARS && ls_parse_f64(field->text, out) && isfinite(*out);
}

ls_status ls_csv_fail(const ls_csv_rows *r, size_t column, const char *name, const char *why)
{
    return ls_fail(LS_ERR_DATA, "'%s', line %lld, column %zu (%.60s): '%.40s' %s", r->path, (long long)r->line,
                   column + 1, name, r->fields[column].text, why);
}
