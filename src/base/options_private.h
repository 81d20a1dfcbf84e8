/* Shared by options*.c and option_value.c only. */
#ifndef LS_BASE_OPTIONS_PRIVATE_H
#define LS_BASE_OPTIONS_PRIVATE_H

#include "base/options.h"

#define LS_OPTION_NAME_BYTES 80 /* for a flag or a variable */

struct ls_option_part {
    ls_option_part *next;
    const ls_option_table *table;
    void *values;
    unsigned char *sources; /* one ls_option_source per row */
    const char **defaults;  /* defaults as ls_option_put_value writes them: 1e-3 is 0.001 */
};

/* LOCKSTEP_BATCH_SIZE for --batch-size. */
void ls_option_variable(const ls_option *row, char name[LS_OPTION_NAME_BYTES]);

/* Parses `text` into the row's field of `values`. `name` and `joint` show its origin in messages:
 * "--batch-size" " " or "LOCKSTEP_BATCH_SIZE" "=". */
ls_status ls_option_assign(const ls_option *row, const char *text, const char *name, const char *joint, void *values,
                           ls_arena *arena);

/* Writes what the row accepts: "a whole number within [1, 64]", "one of sgd, adam", ... */
void ls_option_put_expected(const ls_option *row, ls_text *out);

/* Writes the value as a user would; "(none)" for a NULL string. */
void ls_option_put_value(const ls_option *row, const void *values, ls_text *out);

#endif
