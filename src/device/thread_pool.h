/* A job is a function that each requested thread runs once with its own number; the caller blocks
 * until all have returned. Jobs that request different threads run concurrently. The job divides
 * the work among its threads (src/run/dispatcher.c). */
#ifndef LS_DEVICE_THREAD_POOL_H
#define LS_DEVICE_THREAD_POOL_H

#include "base/status.h"

typedef struct ls_thread_pool ls_thread_pool;

/* `cores`: core of each thread (-1: any), or NULL. `crowded`: fewer cores than threads, so waiting
 * threads must not spin. */
ls_status ls_thread_pool_create(int count, const int *cores, bool crowded, ls_thread_pool **out);
void ls_thread_pool_destroy(ls_thread_pool *pool);

int ls_thread_pool_count(const ls_thread_pool *pool);

/* Runs a job on the threads that `wanted` marks, at least one. Jobs for the same thread run in the
 * order of their calls. */
void ls_thread_pool_run(ls_thread_pool *pool, const bool *wanted, void (*job)(void *user, int thread), void *user);

bool ls_thread_pool_is_crowded(const ls_thread_pool *pool);

#endif
