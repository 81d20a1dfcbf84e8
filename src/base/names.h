/* Suggests a name when a user misspells one. */
#ifndef LS_BASE_NAMES_H
#define LS_BASE_NAMES_H

#include <stddef.h>

/* Hint to append to a message about an unknown name. Use .text within the call that formats the
 * message. */
typedef struct ls_name_advice {
    char text[400];
} ls_name_advice;

/* Returns "; did you mean adam?" with the nearest name, the first one of equals, or "" if more than
 * a third of the longer name's letters differ. The distance counts letters to change, add, drop or
 * swap. A change of case counts half; an abbreviation of 3 letters or more counts as one letter.
 * Leading dashes and "LOCKSTEP_" are ignored. */
ls_name_advice ls_suggest_name(const char *wanted, const char *const *names, size_t n);

/* The same, but lists the names when none is near: "; there are sgd, adam, rmsprop". */
ls_name_advice ls_advise_name(const char *wanted, const char *const *names, size_t n);

#endif
