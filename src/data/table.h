/* Tables: what is learned from the columns of a CSV or TSV file, and reading files with it. */
#ifndef LS_DATA_TABLE_H
#define LS_DATA_TABLE_H

#include <stdatomic.h>

#include "data/csv_rows.h"
#include "lockstep/data.h"

#define LS_MOST_CATEGORIES 32 /* texts of a column that become one-hot features */

typedef enum ls_column_kind {
    LS_COLUMN_NUMBER,  /* a feature: (x - mean) / deviation */
    LS_COLUMN_TEXT,    /* a one-hot feature for each of `values` */
    LS_COLUMN_CLASS,   /* labels: index in `values` */
    LS_COLUMN_INTEGER, /* labels: an integer as it is */
    LS_COLUMN_REAL,    /* labels: a number as it is */
    LS_COLUMN_KINDS,
} ls_column_kind;

typedef struct ls_column {
    char *name;
    ls_column_kind kind;
    double median, mean, deviation;
    char **values; /* sorted by byte; "" is the category of missing values */
    size_t value_count;
} ls_column;

struct ls_table {
    atomic_int handles;
    bool has_header; /* false: columns are named "1", "2", ... */
    ls_missing missing;
    ls_column *columns; /* features, in the order of the file that was learned from */
    size_t count;
    ls_column label;
};

ls_table *ls_table_share(const ls_table *table);
void ls_column_free(ls_column *column);

/* Number of features of a sample. */
int64_t ls_table_width(const ls_table *table);
/* Index of a text in the values; -1: it is not there. */
int64_t ls_column_find(const ls_column *column, const char *text);

/* Whether a field has no value: empty, NA, N/A, NaN, null, None or ?. */
bool ls_is_missing(const ls_csv_field *field);
/* Whether the row is a header: it has no number. */
bool ls_is_header(const ls_csv_rows *rows);

/* Reads the names of the columns: of the header, or "1", "2", ... if the first row is none; then
 * the reader is at the first row again. The caller frees the list. */
ls_status ls_table_names(ls_csv_rows *rows, bool *has_header, char ***names, size_t *count);
void ls_table_free_names(char **names, size_t count);

#endif
