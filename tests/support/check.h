/* Checks of calls. Linked into every test program. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include "lockstep/base.h"

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* Fails the running test, with the last error, unless the call succeeds. For the main thread. */
#define OK(call) check_ok(call, #call)
void check_ok(ls_status status, const char *call);

#endif
