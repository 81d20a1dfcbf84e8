/* Monotonic clock in seconds, the only clock of the library. */
#ifndef LS_BASE_CLOCK_H
#define LS_BASE_CLOCK_H

#include <time.h>

static inline double ls_clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
