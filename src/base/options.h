/* Options: one row of a table gives a flag, its environment variable, help, validation and printing.
 *
 *     typedef struct { int64_t batch_size; bool nesterov; int optimizer; } train_options;
 *
 *     static const ls_option rows[] = {
 *         LS_OPTION("--batch-size", train_options, batch_size, .value = "32", .range = "[1, inf)",
 *                   .help = "samples in one global batch"),
 *         LS_OPTION("--nesterov", train_options, nesterov, .value = "off", .help = "use Nesterov's momentum"),
 *         LS_OPTION("--optimizer", train_options, optimizer, .value = "sgd", .help = "rule of the update",
 *                   LS_OPTION_CHOICES(optimizer_names)),
 *     };
 *     static const ls_option_table table = LS_OPTION_TABLE("Training", rows);
 *
 * A command adds its tables (each with the struct that its rows fill), then applies the environment, then its
 * arguments; what comes later wins, and the last of a repeated flag wins.
 *
 * On the command line a value follows its flag as the next word or after "=". A switch (bool) alone means on; it takes
 * the next word only when that is exactly "on" or "off". A row may say what a flag without a value means. "--" ends the
 * flags; other words are positional arguments, and so is a word like -5. A word that starts with "--" is never taken
 * for the value of a flag: write --name=--odd. The variable of --batch-size is LOCKSTEP_BATCH_SIZE; an empty variable
 * counts as not set. */
#ifndef LS_BASE_OPTIONS_H
#define LS_BASE_OPTIONS_H

#include "base/arena.h"
#include "base/text.h"
#include "lockstep/base.h"

/* The type follows from the field that the row fills. */
typedef enum ls_option_type {
    LS_OPTION_BOOL,   /* bool: on off, true false, yes no, 1 0 */
    LS_OPTION_I64,    /* int64_t */
    LS_OPTION_F64,    /* double, finite */
    LS_OPTION_STRING, /* const char *, owned by the ls_options */
    LS_OPTION_CHOICE, /* int: the index of the name among the row's choices */
    LS_OPTION_SEED,   /* uint64_t: decimal, or hexadecimal after 0x */
} ls_option_type;

typedef struct ls_option {
    const char *flag; /* "--batch-size": small letters, digits, hyphens */
    ls_option_type type;
    size_t offset;              /* into the struct given to ls_options_add */
    const char *value;          /* the default, as a user would write it; a string may have none */
    const char *help;           /* one or more clauses, no capital, no full stop */
    const char *range;          /* I64, F64: an interval, "[1, 64]", "(0, 1]", "[0, inf)"; NULL: any */
    const char *const *choices; /* CHOICE: the names */
    size_t choice_count;
    char brief;          /* 'o': -o is the same flag; 0: none */
    const char *metavar; /* stands for the value in the help; NULL: a word by type */
    const char *alone;   /* STRING: the value of a flag that stands alone, before another flag or at the end */
} ls_option;

/* A row; the rest are designated initializers of ls_option. A field of another type does not compile. */
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
    const char *title; /* heads its rows in the help; NULL: no heading */
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

typedef struct ls_option_part ls_option_part; /* one table, with the struct that it fills */

/* The tables of one command and what was parsed. Fresh when all zeros: ls_options o = { 0 }; */
typedef struct ls_options {
    ls_option_part *first, *last;
    const char **positional; /* the arguments that are no flags, in order */
    size_t positional_count;
    ls_arena arena; /* owns strings, parts and positional arguments */
} ls_options;

/* Adds a table and sets the defaults of its rows in `values`. Table and values must outlive `options`. A row that
 * cannot be right (no valid default, a flag used twice) is LS_ERR_INTERNAL, so any test that adds a table checks it. */
ls_status ls_options_add(ls_options *options, const ls_option_table *table, void *values);

/* On failure some values may have changed already, and the positional arguments are those before the fault; the message
 * names flag, value and what is allowed. */
ls_status ls_options_environment(ls_options *options);
ls_status ls_options_parse(ls_options *options, int argc, const char *const *argv); /* without the program's name */

/* Where a flag's value came from; a flag that no table has counts as default. */
ls_option_source ls_options_source(const ls_options *options, const char *flag);

/* A flag that was given in `from` gets the same value in `to`, unless a command line said another there. A flag that
 * one of them does not know stays as it is. */
ls_status ls_options_hand_on(ls_options *to, const ls_options *from, const char *flag);

/* The rows, aligned, wrapped to `width` columns (0: 100), under their tables' titles. */
void ls_options_help(const ls_options *options, size_t width, ls_text *out);

/* One line a row: flag, value, source; "*" before a value that is not the default. */
void ls_options_print(const ls_options *options, ls_text *out);

void ls_options_free(ls_options *options); /* also frees the strings that values point to */

/* Fails when a variable LOCKSTEP_... is set that is no row of these tables and none of the `others`, naming the
 * nearest: a misspelt variable must not be ignored. Give the tables of all commands, for one command may not know
 * another's. */
ls_status ls_options_check_environment(const ls_option_table *const *tables, size_t table_count,
                                       const char *const *others, size_t other_count);

#endif
