/* Suggests a name when a user misspells one. */
#ifndef LS_BASE_NAMES_H
#define LS_BASE_NAMES_H

#include <stddef.h>

/* Returns the nearest name, or NULL if more than a third of the longer name's letters differ. A
 * change of case counts half a letter, an abbreviation of 3 letters or more one. Leading dashes and
 * "LOCKSTEP_" are ignored. */
const char *ls_nearest_name(const char *wanted, const char *const *names, size_t n);

/* Hint to append to a message about an unknown name; .text is valid within that call. */
typedef struct ls_name_advice {
    char text[400];
} ls_name_advice;

/* "; did you mean adam?", or "" when no name is near. */
ls_name_advice ls_suggest_name(const char *wanted, const char *const *names, size_t n);

/* The same, but lists the names when none is near: "; there are sgd, adam, rmsprop". */
ls_name_advice ls_advise_name(const char *wanted, const char *const *names, size_t n);

#endif
