/* Moves joins between CUDA devices by NCCL: sends, receives and all-gathers of bytes in one group.
 * NCCL does no additions, so the order of sums stays ours. One thread calls for all devices of a
 * group, which belong to this process.
 *
 * If a device fails, the others hang inside NCCL. So the wait polls every stream and communicator
 * and aborts all if one has failed. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

#define MOST 64 /* devices of a group */

/* One communicator per device, by device number, which is the order of ranks. */
typedef struct clique {
    struct clique *next;
    int count;
    int numbers[MOST];
    ls_nccl_comm comms[MOST];
} clique;

typedef struct group {
    int count;
    const ls_cuda_opened *devices[MOST];
    clique *clique;
} group;

/* One thread at a time may use a communicator. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static clique *cliques;
static bool refused; /* communicators failed: do not try again */

static ls_status failed(const ls_cuda_opened *d, const char *what, int error)
{
    return ls_fail(LS_ERR_DEVICE, "%s: NCCL: %s: error %d", d->what->name, what, error);
}

static int rank_of(const group *g, const ls_cuda_opened *d)
{
    int rank = 0;
    while (g->devices[rank] != d)
        rank++;
    return rank;
}

/* By number. Returns false if there are too many, or for a second handle of the same GPU, which
 * NCCL does not support. */
static bool add_device(group *g, const ls_cuda_opened *d)
{
    int at = 0;
    while (at < g->count && g->devices[at]->what->number < d->what->number)
        at++;
    if (at < g->count && g->devices[at]->what->number == d->what->number)
        return g->devices[at] == d;
    if (g->count == MOST)
        return false;
    memmove(&g->devices[at + 1], &g->devices[at], (size_t)(g->count - at) * sizeof(*g->devices));
    g->devices[at] = d;
    g->count++;
    return true;
}

static bool is_of(const clique *c, const group *g)
{
    bool same = c->count == g->count;
    for (int i = 0; same && i < g->count; i++)
        same = c->numbers[i] == g->devices[i]->what->number;
    return same;
}

/* Created on first use. NULL: not available. */
static clique *find_clique(const group *g)
{
    const ls_nccl *nccl = &ls_cuda_get()->nccl;
    for (clique *c = cliques; c; c = c->next)
        if (is_of(c, g))
            return c;
    clique *made = refused ? NULL : calloc(1, sizeof(*made));
    if (!made)
        return NULL;
    made->count = g->count;
    for (int i = 0; i < g->count; i++)
        made->numbers[i] = g->devices[i]->what->number;
    if (nccl->CommInitAll(made->comms, made->count, made->numbers) != LS_NCCL_SUCCESS) {
        refused = true;
        free(made);
        return NULL;
    }
    made->next = cliques;
    cliques = made;
    return made;
}

/* aborts: work may still wait in the communicators. */
static void drop(clique **at, bool aborts)
{
    const ls_nccl *nccl = &ls_cuda_get()->nccl;
    clique *c = *at;
    for (int i = 0; i < c->count; i++)
        (aborts ? nccl->CommAbort : nccl->CommDestroy)(c->comms[i]);
    *at = c->next;
    free(c);
}

void ls_nccl_leave(const ls_cuda_opened *d)
{
    pthread_mutex_lock(&lock);
    for (clique **at = &cliques; *at;) {
        bool in = false;
        for (int i = 0; i < (*at)->count; i++)
            in = in || (*at)->numbers[i] == d->what->number;
        if (in)
            drop(at, false);
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&lock);
}

static char *at(ls_memory_place place)
{
    return (char *)place.memory + place.offset;
}

/* How many transfers from here on form an all-gather, or 0: each device sends a part of the same
 * size to all others; everywhere the parts are consecutive in the order of ranks, and each device's
 * own part is in place. */
static int count_gathered(const group *g, const ls_transfer *list, int count)
{
    int parts = g->count * (g->count - 1);
    char *base[MOST];
    if (count < parts)
        return 0;
    for (int i = 0; i < g->count; i++)
        base[i] = at(list[i * (g->count - 1)].from) - (size_t)i * list[0].bytes;
    for (int i = 0; i < parts; i++) {
        int from = i / (g->count - 1), to = i % (g->count - 1);
        to += to >= from;
        const ls_transfer *t = &list[i];
        if (t->bytes != list[0].bytes || t->from_device != g->devices[from] || t->to_device != g->devices[to] ||
            at(t->from) != base[from] + (size_t)from * t->bytes || at(t->to) != base[to] + (size_t)from * t->bytes)
            return 0;
    }
    return parts;
}

static int gather(const group *g, const ls_transfer *list)
{
    const ls_nccl *nccl = &ls_cuda_get()->nccl;
    int error = LS_NCCL_SUCCESS;
    for (int i = 0; i < g->count && error == LS_NCCL_SUCCESS; i++) {
        char *own = at(list[i * (g->count - 1)].from);
        error = nccl->AllGather(own, own - (size_t)i * list[0].bytes, list[0].bytes, LS_NCCL_INT8, g->clique->comms[i],
                                g->devices[i]->stream);
    }
    return error;
}

static int send(const group *g, const ls_transfer *t)
{
    const ls_nccl *nccl = &ls_cuda_get()->nccl;
    int from = rank_of(g, t->from_device), to = rank_of(g, t->to_device);
    int error = nccl->Send(at(t->from), t->bytes, LS_NCCL_INT8, to, g->clique->comms[from], g->devices[from]->stream);
    if (error == LS_NCCL_SUCCESS)
        error = nccl->Recv(at(t->to), t->bytes, LS_NCCL_INT8, from, g->clique->comms[to], g->devices[to]->stream);
    return error;
}

/* Ends the group even after an error. */
static int call_all(const group *g, const ls_transfer *list, int count)
{
    const ls_nccl *nccl = &ls_cuda_get()->nccl;
    int error = nccl->GroupStart();
    if (error != LS_NCCL_SUCCESS)
        return error;
    for (int i = 0; i < count && error == LS_NCCL_SUCCESS;) {
        int gathered = count_gathered(g, list + i, count - i);
        error = gathered ? gather(g, list + i) : send(g, list + i);
        i += gathered ? gathered : 1;
    }
    int ended = nccl->GroupEnd();
    return error != LS_NCCL_SUCCESS ? error : ended;
}

static int ask_stream(const ls_cuda_opened *d)
{
    int error = d->cu->CtxPushCurrent(d->context);
    if (error != LS_CUDA_SUCCESS)
        return error;
    error = d->cu->StreamQuery(d->stream);
    d->cu->CtxPopCurrent(NULL);
    return error;
}

static ls_status wait_for(const group *g)
{
    const ls_nccl *nccl = &ls_cuda_get()->nccl;
    for (int i = 0; i < g->count;) {
        int error = ask_stream(g->devices[i]), state = LS_NCCL_SUCCESS;
        char why[96];
        if (error == LS_CUDA_SUCCESS) {
            i++;
            continue;
        }
        if (error != LS_CUDA_ERROR_NOT_READY)
            return ls_fail(LS_ERR_DEVICE, "%s: moving joins: %s", g->devices[i]->what->name,
                           ls_cuda_error(g->devices[i]->cu, error, why));
        for (int k = 0; k < g->count; k++) {
            error = ask_stream(g->devices[k]);
            if (error != LS_CUDA_SUCCESS && error != LS_CUDA_ERROR_NOT_READY)
                return ls_fail(LS_ERR_DEVICE, "%s: moving joins: %s", g->devices[k]->what->name,
                               ls_cuda_error(g->devices[k]->cu, error, why));
            if (nccl->CommGetAsyncError(g->clique->comms[k], &state) != LS_NCCL_SUCCESS ||
                (state != LS_NCCL_SUCCESS && state != LS_NCCL_IN_PROGRESS))
                return failed(g->devices[k], "moving joins", state);
        }
        sched_yield();
    }
    return LS_OK;
}

static ls_status transfer(group *g, const ls_transfer *list, int count, bool *can)
{
    g->clique = find_clique(g);
    if (!g->clique)
        return LS_OK;
    *can = true;
    int error = call_all(g, list, count);
    ls_status status = error == LS_NCCL_SUCCESS ? wait_for(g) : failed(g->devices[0], "moving joins", error);
    if (status != LS_OK) {
        ls_error failure;
        ls_error_keep(&failure, status);
        clique **link = &cliques;
        while (*link != g->clique)
            link = &(*link)->next;
        drop(link, true);
        return ls_error_give(&failure);
    }
    return LS_OK;
}

ls_status ls_nccl_transfer(const ls_transfer *list, int count, bool *can)
{
    group g = { .count = 0 };
    *can = false;
    if (ls_cuda_get()->nccl_version == 0)
        return LS_OK;
    for (int i = 0; i < count; i++)
        if (!add_device(&g, list[i].from_device) || !add_device(&g, list[i].to_device))
            return LS_OK;
    pthread_mutex_lock(&lock);
    ls_status status = transfer(&g, list, count, can);
    pthread_mutex_unlock(&lock);
    return status;
}
