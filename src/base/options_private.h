/* What the files of the options table share. Nobody else includes this. */
#ifndef LS_BASE_OPTIONS_PRIVATE_H
#define LS_BASE_OPTIONS_PRIVATE_H

#include "base/options.h"

#define LS_OPTION_NAME_BYTES 80 /* of a flag or variable, with the final zero */

struct ls_option_part {
    ls_option_part *next;
    const ls_option_table *table;
    void *values;
    unsigned char *sources; /* one ls_option_source a row */
    const char **defaults;  /* as ls_option_put_value writes them: 1e-3 is 0.001 */
};

/* LOCKSTEP_BATCH_SIZE for --batch-size. */
void ls_option_variable(const ls_option *row, char name[LS_OPTION_NAME_BYTES]);

/* Reads `text` as the row's value into its place in `values`. `name` and `joint` say in messages where the text came
 * from: "--batch-size" " " or "LOCKSTEP_BATCH_SIZE" "=". */
ls_status ls_option_assign(const ls_option *row, const char *text, const char *name, const char *joint, void *values,
                           ls_arena *arena);

/* "a whole number within [1, 64]", "one of sgd, adam", ... */
void ls_option_put_expected(const ls_option *row, ls_text *out);

/* The row's value in `values`, as a user would write it; a NULL string as (none). */
void ls_option_put_value(const ls_option *row, const void *values, ls_text *out);

#endif
