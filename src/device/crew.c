/* Worker threads and the one job they share. */
#include "device/crew.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/fpmode.h"
#include "device/cores.h"

struct ls_crew {
    pthread_mutex_t callers; /* one job at a time */
    pthread_mutex_t mutex;
    pthread_cond_t start, end;
    void (*job)(void *user, int worker);
    void *user;
    void (*begin)(void);
    uint64_t number; /* of the job: workers wait for it to change */
    int busy;
    bool closing, crowded;
    int workers;
    int *cores; /* NULL: not bound */
    pthread_t *threads;
    struct member {
        ls_crew *crew;
        int worker;
    } * members;
};

static void *work(void *argument)
{
    struct member *member = argument;
    ls_crew *crew = member->crew;
    uint64_t seen = 0;
    if (crew->cores && crew->cores[member->worker] >= 0)
        ls_cores_bind(crew->cores[member->worker]); /* a wish: an unbound worker is only slower */
    ls_fp_begin_thread();
    if (crew->begin)
        crew->begin();
    pthread_mutex_lock(&crew->mutex);
    for (;;) {
        while (crew->number == seen && !crew->closing)
            pthread_cond_wait(&crew->start, &crew->mutex);
        if (crew->closing)
            break;
        seen = crew->number;
        pthread_mutex_unlock(&crew->mutex);
        crew->job(crew->user, member->worker);
        pthread_mutex_lock(&crew->mutex);
        if (--crew->busy == 0)
            pthread_cond_signal(&crew->end);
    }
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

/* Signals belong to the program's own threads. */
static int start_quietly(pthread_t *thread, struct member *member)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, work, member);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static void stop(ls_crew *crew, int started)
{
    pthread_mutex_lock(&crew->mutex);
    crew->closing = true;
    pthread_cond_broadcast(&crew->start);
    pthread_mutex_unlock(&crew->mutex);
    for (int i = 0; i < started; i++)
        pthread_join(crew->threads[i], NULL);
    pthread_cond_destroy(&crew->start);
    pthread_cond_destroy(&crew->end);
    pthread_mutex_destroy(&crew->mutex);
    pthread_mutex_destroy(&crew->callers);
    free(crew->members);
    free(crew->threads);
    free(crew->cores);
    free(crew);
}

ls_status ls_crew_create(int workers, const int *cores, bool crowded, void (*begin)(void), ls_crew **out)
{
    ls_crew *crew = calloc(1, sizeof(*crew));
    if (!crew)
        return ls_fail(LS_ERR_MEMORY, "no memory for %d workers", workers);
    pthread_mutex_init(&crew->callers, NULL);
    pthread_mutex_init(&crew->mutex, NULL);
    pthread_cond_init(&crew->start, NULL);
    pthread_cond_init(&crew->end, NULL);
    crew->begin = begin;
    crew->workers = workers;
    crew->crowded = crowded;
    crew->threads = calloc((size_t)workers, sizeof(*crew->threads));
    crew->members = calloc((size_t)workers, sizeof(*crew->members));
    crew->cores = cores ? calloc((size_t)workers, sizeof(*crew->cores)) : NULL;
    int started = 0, failed = !crew->threads || !crew->members || (cores && !crew->cores);
    for (int i = 0; !failed && i < workers; i++) {
        crew->members[i] = (struct member){ crew, i };
        if (cores)
            crew->cores[i] = cores[i];
    }
    for (; !failed && started < workers; started += !failed)
        failed = start_quietly(&crew->threads[started], &crew->members[started]);
    if (failed) {
        stop(crew, started);
        return ls_fail(LS_ERR_MEMORY, "%d of %d worker threads could be started", started, workers);
    }
    *out = crew;
    return LS_OK;
}

void ls_crew_destroy(ls_crew *crew)
{
    if (crew)
        stop(crew, crew->workers);
}

int ls_crew_workers(const ls_crew *crew)
{
    return crew->workers;
}

bool ls_crew_is_crowded(const ls_crew *crew)
{
    return crew->crowded;
}

void ls_crew_run(ls_crew *crew, void (*job)(void *user, int worker), void *user)
{
    pthread_mutex_lock(&crew->callers);
    pthread_mutex_lock(&crew->mutex);
    crew->job = job;
    crew->user = user;
    crew->busy = crew->workers;
    crew->number++;
    pthread_cond_broadcast(&crew->start);
    while (crew->busy > 0)
        pthread_cond_wait(&crew->end, &crew->mutex);
    pthread_mutex_unlock(&crew->mutex);
    pthread_mutex_unlock(&crew->callers);
}
