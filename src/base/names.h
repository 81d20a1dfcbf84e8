/* Names that users type: finding the one they meant. */
#ifndef LS_BASE_NAMES_H
#define LS_BASE_NAMES_H

#include <stddef.h>

/* The name nearest to `wanted` by the number of letters to change, add, drop or swap (a change of case counts half; an
 * abbreviation of 3 letters or more counts as one letter); the first of equals. NULL when no name is near: more than a
 * third of the longer name's letters differ. Leading dashes and "LOCKSTEP_" are no letters of a name. */
const char *ls_nearest_name(const char *wanted, const char *const *names, size_t n);

/* Advice for a message about an unknown name. Use .text within the call that formats the message. */
typedef struct ls_name_advice {
    char text[400];
} ls_name_advice;

/* "; did you mean adam?", or "" when no name is near. */
ls_name_advice ls_suggest_name(const char *wanted, const char *const *names, size_t n);

/* The same; when no name is near, "; there are sgd, adam, rmsprop", which ends in ", ..." where names are left out. */
ls_name_advice ls_advise_name(const char *wanted, const char *const *names, size_t n);

#endif
