/* Thread pool. A job is a function that each requested thread runs once with its own number; the
 * caller blocks until all have returned. Jobs that request different threads run concurrently. How
 * the threads divide the work is up to the job (src/run/dispatcher.c). */
#ifndef LS_DEVICE_THREAD_POOL_H
#define LS_DEVICE_THREAD_POOL_H

#include "base/status.h"

typedef struct ls_thread_pool ls_thread_pool;

/* `cores`: core number for each thread (-1: any), or NULL. `crowded`: there are fewer cores than
 * threads, so waiting threads must not spin. */
ls_status ls_thread_pool_create(int workers, const int *cores, bool crowded, ls_thread_pool **out);
void ls_thread_pool_destroy(ls_thread_pool *pool);

int ls_thread_pool_workers(const ls_thread_pool *pool);

/* Runs a job on the threads that `wanted` marks, at least one. Jobs that request the same thread
 * run in the order of their calls. */
void ls_thread_pool_run(ls_thread_pool *pool, const bool *wanted, void (*job)(void *user, int worker), void *user);

bool ls_thread_pool_is_crowded(const ls_thread_pool *pool);

#endif
