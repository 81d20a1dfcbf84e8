/* Threads and the queue of jobs that share them. */
#include "device/thread_pool.h"

#include <stdlib.h>

#include "base/fpmode.h"
#include "base/thread.h"
#include "device/cores.h"

/* A job and its threads; lives on the caller's stack. */
typedef struct call {
    const bool *wanted;
    void (*job)(void *user, int thread);
    void *user;
    int busy;
    bool started;
    pthread_cond_t moved; /* signaled when the job may be able to start, and when it is done */
    struct call *next;    /* next in order of arrival */
} call;

struct ls_thread_pool {
    pthread_mutex_t mutex;
    call *calls; /* running and waiting, in order of arrival */
    bool closing, crowded;
    int count;
    int *cores; /* NULL: not bound */
    pthread_t *handles;
    struct member {
        ls_thread_pool *pool;
        int thread;
        call *call; /* NULL: idle */
        pthread_cond_t start;
    } * members;
};

/* No earlier call, running or waiting, may request one of the same threads. */
static bool can_start(const ls_thread_pool *pool, const call *c)
{
    for (const call *before = pool->calls; before != c; before = before->next)
        for (int w = 0; w < pool->count; w++)
            if (before->wanted[w] && c->wanted[w])
                return false;
    return true;
}

static void remove_call(ls_thread_pool *pool, const call *c)
{
    call **at = &pool->calls;
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
    ls_thread_pool *pool = member->pool;
    if (pool->cores && pool->cores[member->thread] >= 0)
        ls_cores_bind(pool->cores[member->thread]); /* an unbound thread is only slower */
    ls_fp_begin_thread();
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        while (!member->call && !pool->closing)
            pthread_cond_wait(&member->start, &pool->mutex);
        if (pool->closing)
            break;
        call *c = member->call;
        pthread_mutex_unlock(&pool->mutex);
        c->job(c->user, member->thread);
        pthread_mutex_lock(&pool->mutex);
        member->call = NULL;
        if (--c->busy == 0)
            pthread_cond_signal(&c->moved);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

static void stop(ls_thread_pool *pool, int started)
{
    pthread_mutex_lock(&pool->mutex);
    pool->closing = true;
    for (int i = 0; i < started; i++)
        pthread_cond_signal(&pool->members[i].start);
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < started; i++)
        pthread_join(pool->handles[i], NULL);
    for (int i = 0; pool->members && i < pool->count; i++)
        pthread_cond_destroy(&pool->members[i].start);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->members);
    free(pool->handles);
    free(pool->cores);
    free(pool);
}

ls_status ls_thread_pool_create(int count, const int *cores, bool crowded, ls_thread_pool **out)
{
    ls_thread_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return ls_fail(LS_ERR_MEMORY, "no memory for %d threads", count);
    pthread_mutex_init(&pool->mutex, NULL);
    pool->count = count;
    pool->crowded = crowded;
    pool->handles = calloc((size_t)count, sizeof(*pool->handles));
    pool->members = calloc((size_t)count, sizeof(*pool->members));
    pool->cores = cores ? calloc((size_t)count, sizeof(*pool->cores)) : NULL;
    int started = 0, failed = !pool->handles || !pool->members || (cores && !pool->cores);
    for (int i = 0; pool->members && i < count; i++) {
        pool->members[i] = (struct member){ .pool = pool, .thread = i };
        pthread_cond_init(&pool->members[i].start, NULL);
    }
    for (int i = 0; !failed && cores && i < count; i++)
        pool->cores[i] = cores[i];
    for (; !failed && started < count; started += !failed)
        failed = ls_thread_start(&pool->handles[started], work, &pool->members[started]);
    if (failed) {
        stop(pool, started);
        return ls_fail(LS_ERR_MEMORY, "only %d of %d threads could be started", started, count);
    }
    *out = pool;
    return LS_OK;
}

void ls_thread_pool_destroy(ls_thread_pool *pool)
{
    if (pool)
        stop(pool, pool->count);
}

int ls_thread_pool_count(const ls_thread_pool *pool)
{
    return pool->count;
}

bool ls_thread_pool_is_crowded(const ls_thread_pool *pool)
{
    return pool->crowded;
}

void ls_thread_pool_run(ls_thread_pool *pool, const bool *wanted, void (*job)(void *user, int thread), void *user)
{
    call c = { .wanted = wanted, .job = job, .user = user };
    pthread_cond_init(&c.moved, NULL);
    pthread_mutex_lock(&pool->mutex);
    call **last = &pool->calls;
    while (*last)
        last = &(*last)->next;
    *last = &c;
    while (!can_start(pool, &c))
        pthread_cond_wait(&c.moved, &pool->mutex);
    c.started = true;
    for (int w = 0; w < pool->count; w++) {
        if (!wanted[w])
            continue;
        c.busy++;
        pool->members[w].call = &c;
        pthread_cond_signal(&pool->members[w].start);
    }
    while (c.busy > 0)
        pthread_cond_wait(&c.moved, &pool->mutex);
    remove_call(pool, &c);
    pthread_mutex_unlock(&pool->mutex);
    pthread_cond_destroy(&c.moved);
}
