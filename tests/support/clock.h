/* A time limit for a test that looks for hangs: cmocka_unit_test_setup_teardown(test, clock_start,
 * clock_stop). */
#ifndef TESTS_CLOCK_H
#define TESTS_CLOCK_H

#include <unistd.h>

#include "sanitized.h"

static inline int clock_start(void **state)
{
    (void)state;
    alarm(SANITIZED ? 600 : 120); /* a hang ends the program by SIGALRM, and tests/run.sh tells in which test */
    return 0;
}

static inline int clock_stop(void **state)
{
    (void)state;
    alarm(0);
    return 0;
}

#endif
