/* Runs the test program again in another process. Linked into every test program. */
#ifndef TESTS_RUN_SELF_H
#define TESTS_RUN_SELF_H

#include <stdbool.h>

/* Runs this program with one argument, with LOCKSTEP_ISA set, or unset if isa is NULL, and returns
 * its standard output; free() it. quiet: its standard error is dropped. Fails the running test if
 * the program does not end with 0. */
char *run_self(const char *argument, const char *isa, bool quiet);

#endif
