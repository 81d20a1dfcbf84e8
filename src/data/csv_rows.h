/* Reads the rows of a CSV or TSV file as RFC 4180 defines them: fields in quotes may contain
 * separators, newlines and doubled quotes. Blanks around a field, empty lines and a byte order mark
 * are ignored. */
#ifndef LS_DATA_CSV_ROWS_H
#define LS_DATA_CSV_ROWS_H

#include "lockstep/base.h"

typedef struct ls_csv_field {
    const char *text; /* zero-terminated; in the memory of the reader */
    size_t chars;
} ls_csv_field;

typedef struct ls_csv_rows {
    const char *path; /* owned by the caller */
    char separator;
    char *text; /* contents of the file */
    const char *at, *end;
    int64_t line;     /* line on which the current row begins, from 1 */
    int64_t new_line; /* line of `at` */
    int64_t rows;     /* rows returned so far */
    ls_csv_field *fields;
    size_t count, field_room;
    char *unquoted; /* the fields of the current row, one after another */
} ls_csv_rows;

/* Reads the file; .tsv files are separated by tabs, others by commas. */
ls_status ls_csv_rows_open(const char *path, ls_csv_rows *out);
void ls_csv_rows_close(ls_csv_rows *rows);
/* Starts again with the first row. */
void ls_csv_rows_rewind(ls_csv_rows *rows);
/* Reads the next row into `fields`; *end: there is none. */
ls_status ls_csv_rows_next(ls_csv_rows *rows, bool *end);

/* Whether the field is a finite number. */
bool ls_csv_number(const ls_csv_field *field, double *out);
/* Fails with "'iris.csv', line 7, column 2 (width): 'x' WHY". */
ls_status ls_csv_fail(const ls_csv_rows *rows, size_t column, const char *name, const char *why);

#endif
