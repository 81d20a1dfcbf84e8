/* Suggests a name when a user misspells one. */
#ifndef LS_BASE_NAMES_H
#define LS_BASE_NAMES_H

#include <stddef.h>

/* Returns the name nearest to `wanted`, the first one of equals, or NULL if more than a third of
 * the longer name's letters differ. The distance counts letters to change, add, drop or swap. A
 * change of case counts half; an abbreviation of 3 letters or more counts as one letter. Leading
 * dashes and "LOCKSTEP_" are ignored. */
const char *ls_nearest_name(const char *wanted, const char *const *names, size_t n);

/* Hint to append to a message about an unknown name. Use .text within the call that formats the
 * message. */
typedef struct ls_name_advice {
    char text[400];
} ls_name_advice;

/* "; did you mean adam?", or "" when no name is near. */
ls_name_advice ls_suggest_name(const char *wanted, const char *const *names, size_t n);

/* Same as ls_suggest_name, but when no name is near it lists the names: "; there are sgd, adam,
 * rmsprop". A list that is too long ends in ", ...". */
ls_name_advice ls_advise_name(const char *wanted, const char *const *names, size_t n);

#endif
