/* Command-line options. One table row defines a flag, its environment variable, help, validation
 * and printing.
 *
 *     typedef struct { int64_t batch_size; bool nesterov; int optimizer; } train_options;
 *
 *     static const ls_option rows[] = {
 *         LS_OPTION("--batch-size", train_options, batch_size, .value = "32", .range = "[1, inf)",
 *                   .help = "samples in one global batch"),
 *         LS_OPTION("--nesterov", train_options, nesterov, .value = "off",
 *                   .help = "use Nesterov's momentum"),
 *         LS_OPTION("--optimizer", train_options, optimizer, .value = "sgd", .help = "optimizer",
 *                   LS_OPTION_CHOICES(optimizer_names)),
 *     };
 *     static const ls_option_table table = LS_OPTION_TABLE("Training", rows);
 *
 * A command adds its tables (each with the struct that its rows fill), then applies the
 * environment, then its arguments. Later values override earlier ones; the last of a repeated flag
 * wins.
 *
 * A value is the word after its flag, or follows "=". A switch (bool) without a value means on; it
 * consumes the next word only if that is exactly "on" or "off". A row can define what a flag
 * without a value means (.alone). "--" ends the flags. Other words, also words like -5, are
 * positional arguments. A word that starts with "--" is never a value: write --name=--odd. The
 * variable of --batch-size is LOCKSTEP_BATCH_SIZE; an empty variable counts as unset. */
#ifndef LS_BASE_OPTIONS_H
#define LS_BASE_OPTIONS_H

#include "base/arena.h"
#include "base/text.h"
#include "lockstep/base.h"

/* Type of a row, derived from the field that it fills. */
typedef enum ls_option_type {
    LS_OPTION_BOOL,   /* bool: on off, true false, yes no, 1 0 */
    LS_OPTION_I64,    /* int64_t */
    LS_OPTION_F64,    /* double, finite */
    LS_OPTION_STRING, /* const char *, owned by the ls_options */
    LS_OPTION_CHOICE, /* int: index of the name in the row's choices */
    LS_OPTION_SEED,   /* uint64_t: decimal, or hexadecimal after 0x */
} ls_option_type;

typedef struct ls_option {
    const char *flag; /* "--batch-size": lowercase letters, digits and hyphens */
    ls_option_type type;
    size_t offset;     /* offset of the field in the struct given to ls_options_add */
    const char *value; /* default, written as a user would; a string may have none (NULL) */
    const char *help;  /* one or more clauses without a capital or a full stop */
    /* I64 and F64: an interval, "[1, 64]", "(0, 1]", "[0, inf)"; NULL: any value */
    const char *range;
    const char *const *choices; /* CHOICE: the allowed names */
    size_t choice_count;
    char brief;          /* short form: 'o' defines -o; 0: none */
    const char *metavar; /* placeholder of the value in the help; NULL: a word for the type */
    /* STRING: value of a flag that has none because another flag or the end follows; NULL:
     * required */
    const char *alone;
} ls_option;

/* Defines a row; further arguments are designated initializers of ls_option. Fields of other types
 * do not compile. */
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
    const char *title; /* heading of its rows in the help; NULL: no heading */
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

/* Tables of one command and the parsed values. Initialize with zeros: ls_options o = { 0 }; */
typedef struct ls_options {
    ls_option_part *first, *last;
    const char **positional; /* positional arguments, in order */
    size_t positional_count;
    ls_arena arena; /* owns strings, parts and the array of positional arguments */
} ls_options;

/* Adds a table and sets its defaults in `values`. Table and values must outlive `options`. A faulty
 * row (invalid default, flag used twice) is LS_ERR_INTERNAL, so any test that adds the table
 * detects it. */
ls_status ls_options_add(ls_options *options, const ls_option_table *table, void *values);

/* Apply the environment and the arguments. Messages name the flag, the value and what is allowed.
 * On failure some values may have changed, and `positional` holds only the arguments before the
 * faulty one. */
ls_status ls_options_environment(ls_options *options);
/* `argv` does not contain the program's name. */
ls_status ls_options_parse(ls_options *options, int argc, const char *const *argv);

/* Source of a flag's value; LS_OPTION_FROM_DEFAULT for an unknown flag. */
ls_option_source ls_options_source(const ls_options *options, const char *flag);

/* Copies the value of a flag that was set in `from` to `to`, unless the command line set it in
 * `to`. Does nothing if either does not know the flag. */
ls_status ls_options_copy_value(ls_options *to, const ls_options *from, const char *flag);

/* Writes the help: rows under their tables' titles, aligned and wrapped to `width` columns (0:
 * 100). */
void ls_options_help(const ls_options *options, size_t width, ls_text *out);

/* Writes one line per row: flag, value, source; "*" marks values that are not the default. */
void ls_options_print(const ls_options *options, ls_text *out);

void ls_options_free(ls_options *options); /* also frees the strings that values point to */

/* Fails if a variable LOCKSTEP_... is set that is neither a row of these tables nor in `others`,
 * and suggests the nearest name: a misspelt variable must not be ignored. Pass the tables of all
 * commands, because a variable may be meant for another command. */
ls_status ls_options_check_environment(const ls_option_table *const *tables, size_t table_count,
                                       const char *const *others, size_t other_count);

#endif
