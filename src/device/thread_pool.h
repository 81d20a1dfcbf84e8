/* A crew: worker threads. A job is a function that some of them run, each once, with its own number; the caller sleeps
 * until all have returned. Jobs of several callers are done at the same time where they want different workers. Who
 * does what inside a job is the job's business (src/run/dispatcher.c). */
#ifndef LS_DEVICE_THREAD_POOL_H
#define LS_DEVICE_THREAD_POOL_H

#include "base/status.h"

typedef struct ls_thread_pool ls_thread_pool;

/* cores: an OS core index for each worker (-1: any), or NULL. crowded: there are fewer cores than workers, so waiting
 * must not spin. */
ls_status ls_thread_pool_create(int workers, const int *cores, bool crowded, ls_thread_pool **out);
void ls_thread_pool_destroy(ls_thread_pool *crew);

int ls_thread_pool_workers(const ls_thread_pool *crew);

/* wanted: by worker; one at least is. Jobs that want the same worker come one after the other, in the order of their
 * callers. */
void ls_thread_pool_run(ls_thread_pool *crew, const bool *wanted, void (*job)(void *user, int worker), void *user);

bool ls_thread_pool_is_crowded(const ls_thread_pool *crew);

#endif
