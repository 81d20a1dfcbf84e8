/* Command-line options. A row of a table defines a flag, its environment variable, help, validation
 * and printing.
 *
 *     typedef struct { int64_t batch_size; int optimizer; } train_options;
 *
 *     static const ls_option rows[] = {
 *         LS_OPTION("--batch-size", train_options, batch_size, .value = "32", .range = "[1, inf)",
 *                   .help = "samples in one global batch"),
 *         LS_OPTION("--optimizer", train_options, optimizer, .value = "sgd", .help = "optimizer",
 *                   LS_OPTION_CHOICES(optimizer_names)),
 *     };
 *     static const ls_option_table table = LS_OPTION_TABLE("Training", rows);
 *
 * A command adds its tables, then applies the environment, then its arguments. Later values
 * override earlier ones.
 *
 * A value is the next word, or follows "=". A switch (bool) consumes the next word only if that is
 * "on" or "off"; alone it means on. "--" ends the flags. Other words, also -5, are positional. A
 * word that starts with "--" is never a value: write --name=--odd. The variable of --batch-size is
 * LOCKSTEP_BATCH_SIZE; an empty one counts as unset. */
#ifndef LS_BASE_OPTIONS_H
#define LS_BASE_OPTIONS_H

#include "base/arena.h"
#include "base/text.h"
#include "lockstep/base.h"

typedef enum ls_option_type {
    LS_OPTION_BOOL,   /* bool: on off, true false, yes no, 1 0 */
    LS_OPTION_I64,    /* int64_t */
    LS_OPTION_F64,    /* double, finite */
    LS_OPTION_STRING, /* const char *, owned by ls_options */
    LS_OPTION_CHOICE, /* int: index into the choices */
    LS_OPTION_SEED,   /* uint64_t: decimal or 0x... */
} ls_option_type;

typedef struct ls_option {
    const char *flag; /* lowercase letters, digits and hyphens */
    ls_option_type type;
    size_t offset;
    const char *value; /* default as text; NULL: none (strings only) */
    const char *help;  /* clauses without a capital or a full stop */
    /* I64 and F64: "[1, 64]", "(0, 1]", "[0, inf)"; NULL: any value */
    const char *range;
    const char *const *choices; /* CHOICE: the allowed names */
    size_t choice_count;
    char brief;          /* 'o' defines -o; 0: none */
    const char *metavar; /* placeholder in the help; NULL: a word for the type */
    /* STRING: value of a flag that stands alone; NULL: it must not */
    const char *alone;
} ls_option;

/* Further arguments are designated initializers of ls_option. Fields of other types do not
 * compile. */
#define LS_OPTION(name, values, field, ...)                                                                            \
    {                                                                                                                  \
        .flag = (name), .type = LS_OPTION_TYPE(((values *)0)->field), .offset = offsetof(values, field), __VA_ARGS__   \
    }
/* clang-format off */
#define LS_OPTION_TYPE(field)                                                                                          \
    _Generic((field), bool: LS_OPTION_BOOL, int64_t: LS_OPTION_I64, double: LS_OPTION_F64,                             \
             const char *: LS_OPTION_STRING, int: LS_OPTION_CHOICE, uint64_t: LS_OPTION_SEED)
/* clang-format on */

#define LS_OPTION_CHOICES(names) .choices = (names), .choice_count = sizeof(names) / sizeof *(names)

typedef struct ls_option_table {
    const char *title; /* heading in the help; NULL: none */
    const ls_option *rows;
    size_t count;
} ls_option_table;

#define LS_OPTION_TABLE(title, rows)                                                                                   \
    {                                                                                                                  \
        (title), (rows), sizeof(rows) / sizeof *(rows)                                                                 \
    }

typedef enum ls_option_source {
    LS_OPTION_FROM_DEFAULT,
    LS_OPTION_FROM_ENVIRONMENT,
    LS_OPTION_FROM_COMMAND_LINE,
} ls_option_source;

typedef struct ls_option_part ls_option_part; /* a table with the struct that it fills */

/* Tables of one command and the parsed values. Initialize with zeros. */
typedef struct ls_options {
    ls_option_part *first, *last;
    const char **positional;
    size_t positional_count;
    ls_arena arena; /* owns all strings and arrays */
} ls_options;

/* Adds a table and sets its defaults in `values`; both must outlive `options`. A faulty row
 * (invalid default, repeated flag) is LS_ERR_INTERNAL. */
ls_status ls_options_add(ls_options *options, const ls_option_table *table, void *values);

/* On failure some values may have changed. */
ls_status ls_options_environment(ls_options *options);
/* `argv` does not contain the program's name. */
ls_status ls_options_parse(ls_options *options, int argc, const char *const *argv);

/* LS_OPTION_FROM_DEFAULT for an unknown flag. */
ls_option_source ls_options_source(const ls_options *options, const char *flag);

/* Copies a value that was set in `from`, unless the command line set it in `to` or one of them does
 * not know the flag. */
ls_status ls_options_copy_value(ls_options *to, const ls_options *from, const char *flag);

/* Writes rows under their tables' titles, wrapped to `width` columns (0: 100). */
void ls_options_help(const ls_options *options, size_t width, ls_text *out);

/* Writes a line per row: flag, value, source; "*" marks values that differ from the default. */
void ls_options_print(const ls_options *options, ls_text *out);

void ls_options_free(ls_options *options);

/* Fails if a variable LOCKSTEP_... is set that is neither a row of these tables nor in `others`: a
 * misspelt one must not be ignored. Pass the tables of all commands. */
ls_status ls_options_check_environment(const ls_option_table *const *tables, size_t table_count,
                                       const char *const *others, size_t other_count);

#endif
