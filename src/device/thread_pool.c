/* Threads and the queue of jobs that share them. */
#include "device/thread_pool.h"

#include <stdlib.h>

#include "base/fpmode.h"
#include "base/thread.h"
#include "device/cores.h"

/* A job and the threads it requests; lives on the caller's stack. */
typedef struct call {
    const bool *wanted;
    void (*job)(void *user, int worker);
    void *user;
    int busy;
    bool started;
    pthread_cond_t moved; /* signaled when the job may be able to start, and when it is done */
    struct call *next;    /* next call in order of arrival */
} call;

struct ls_thread_pool {
    pthread_mutex_t mutex;
    call *calls; /* running and waiting calls in order of arrival */
    bool closing, crowded;
    int workers;
    int *cores; /* NULL: threads are not bound to cores */
    pthread_t *threads;
    struct member {
        ls_thread_pool *crew;
        int worker;
        call *call; /* current call; NULL: idle */
        pthread_cond_t start;
    } * members;
};

/* Returns whether no earlier call, running or waiting, requests one of the same threads. */
static bool can_start(const ls_thread_pool *crew, const call *c)
{
    for (const call *before = crew->calls; before != c; before = before->next)
        for (int w = 0; w < crew->workers; w++)
            if (before->wanted[w] && c->wanted[w])
                return false;
    return true;
}

static void remove_call(ls_thread_pool *crew, const call *c)
{
    call **at = &crew->calls;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    for (call *later = c->next; later; later = later->next)
        if (!later->started)
            pthread_cond_signal(&later->moved);
}

static void *work(void *argument)
{
    struct member *member = argument;
    ls_thread_pool *crew = member->crew;
    if (crew->cores && crew->cores[member->worker] >= 0)
        ls_cores_bind(crew->cores[member->worker]); /* optional: an unbound thread is only slower */
    ls_fp_begin_thread();
    pthread_mutex_lock(&crew->mutex);
    for (;;) {
        while (!member->call && !crew->closing)
            pthread_cond_wait(&member->start, &crew->mutex);
        if (crew->closing)
            break;
        call *c = member->call;
        pthread_mutex_unlock(&crew->mutex);
        c->job(c->user, member->worker);
        pthread_mutex_lock(&crew->mutex);
        member->call = NULL;
        if (--c->busy == 0)
            pthread_cond_signal(&c->moved);
    }
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

static void stop(ls_thread_pool *crew, int started)
{
    pthread_mutex_lock(&crew->mutex);
    crew->closing = true;
    for (int i = 0; i < started; i++)
        pthread_cond_signal(&crew->members[i].start);
    pthread_mutex_unlock(&crew->mutex);
    for (int i = 0; i < started; i++)
        pthread_join(crew->threads[i], NULL);
    for (int i = 0; crew->members && i < crew->workers; i++)
        pthread_cond_destroy(&crew->members[i].start);
    pthread_mutex_destroy(&crew->mutex);
    free(crew->members);
    free(crew->threads);
    free(crew->cores);
    free(crew);
}

ls_status ls_thread_pool_create(int workers, const int *cores, bool crowded, ls_thread_pool **out)
{
    ls_thread_pool *crew = calloc(1, sizeof(*crew));
    if (!crew)
        return ls_fail(LS_ERR_MEMORY, "no memory for %d workers", workers);
    pthread_mutex_init(&crew->mutex, NULL);
    crew->workers = workers;
    crew->crowded = crowded;
    crew->threads = calloc((size_t)workers, sizeof(*crew->threads));
    crew->members = calloc((size_t)workers, sizeof(*crew->members));
    crew->cores = cores ? calloc((size_t)workers, sizeof(*crew->cores)) : NULL;
    int started = 0, failed = !crew->threads || !crew->members || (cores && !crew->cores);
    for (int i = 0; crew->members && i < workers; i++) {
        crew->members[i] = (struct member){ .crew = crew, .worker = i };
        pthread_cond_init(&crew->members[i].start, NULL);
    }
    for (int i = 0; !failed && cores && i < workers; i++)
        crew->cores[i] = cores[i];
    for (; !failed && started < workers; started += !failed)
        failed = ls_thread_start(&crew->threads[started], work, &crew->members[started]);
    if (failed) {
        stop(crew, started);
        return ls_fail(LS_ERR_MEMORY, "%d of %d worker threads could be started", started, workers);
    }
    *out = crew;
    return LS_OK;
}

void ls_thread_pool_destroy(ls_thread_pool *crew)
{
    if (crew)
        stop(crew, crew->workers);
}

int ls_thread_pool_workers(const ls_thread_pool *crew)
{
    return crew->workers;
}

bool ls_thread_pool_is_crowded(const ls_thread_pool *crew)
{
    return crew->crowded;
}

void ls_thread_pool_run(ls_thread_pool *crew, const bool *wanted, void (*job)(void *user, int worker), void *user)
{
    call c = { .wanted = wanted, .job = job, .user = user };
    pthread_cond_init(&c.moved, NULL);
    pthread_mutex_lock(&crew->mutex);
    call **last = &crew->calls;
    while (*last)
        last = &(*last)->next;
    *last = &c;
    while (!can_start(crew, &c))
        pthread_cond_wait(&c.moved, &crew->mutex);
    c.started = true;
    for (int w = 0; w < crew->workers; w++) {
        if (!wanted[w])
            continue;
        c.busy++;
        crew->members[w].call = &c;
        pthread_cond_signal(&crew->members[w].start);
    }
    while (c.busy > 0)
        pthread_cond_wait(&c.moved, &crew->mutex);
    remove_call(crew, &c);
    pthread_mutex_unlock(&crew->mutex);
    pthread_cond_destroy(&c.moved);
}
