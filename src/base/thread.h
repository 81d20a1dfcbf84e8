/* Threads of the library, and conditions that they wait for with a deadline. */
#ifndef LS_BASE_THREAD_H
#define LS_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "base/clock.h"

/* pthread_create with all signals blocked in the new thread: they go to the program's own
 * threads. */
static inline int ls_thread_start(pthread_t *thread, void *(*run)(void *), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Initializes a condition for ls_cond_wait_until. */
static inline void ls_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Waits until the condition is signaled or ls_clock_now() reaches `end`. Returns false if the time
 * is over. Like pthread_cond_wait it may return early. */
static inline bool ls_cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, double end)
{
    time_t whole = end > 0 ? (time_t)end : 0;
    long rest = (long)(1e9 * (end - (double)whole));
    struct timespec at = { whole, rest > 0 ? rest : 0 };
    return pthread_cond_timedwait(condition, mutex, &at) == 0;
}

#endif
