/* A crew: worker threads. A job is a function that some of them run, each once, with its own number; the caller sleeps
 * until all have returned. Jobs of several callers are done at the same time where they want different workers. Who
 * does what inside a job is the job's business (src/run/dispatcher.c). */
#ifndef LS_DEVICE_THREAD_POOL_H
#define LS_DEVICE_THREAD_POOL_H

#include "base/status.h"

typedef struct ls_crew ls_crew;

/* cores: an OS core index for each worker (-1: any), or NULL. crowded: there are fewer cores than workers, so waiting
 * must not spin. */
ls_status ls_crew_create(int workers, const int *cores, bool crowded, ls_crew **out);
void ls_crew_destroy(ls_crew *crew);

int ls_crew_workers(const ls_crew *crew);

/* wanted: by worker; one at least is. Jobs that want the same worker come one after the other, in the order of their
 * callers. */
void ls_crew_run(ls_crew *crew, const bool *wanted, void (*job)(void *user, int worker), void *user);

bool ls_crew_is_crowded(const ls_crew *crew);

#endif
