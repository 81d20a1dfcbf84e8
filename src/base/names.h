/* Names that users type: finding the one they meant. */
#ifndef LS_BASE_NAMES_H
#define LS_BASE_NAMES_H

#include <stddef.h>

/* The name nearest to `wanted` by the number of letters to change, add, drop or swap (a change of case counts half; an
 * abbreviation counts as one letter); of equals the first. NULL only when n is 0. */
const char *ls_nearest_name(const char *wanted, const char *const *names, size_t n);

#endif
