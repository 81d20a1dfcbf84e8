/* Hands out batches (batch_queue.h). */
#include "train/server/batch_queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

typedef struct given {
    int rank;
    int64_t ordinal;
} given;

struct ls_batch_queue {
    pthread_mutex_t mutex;
    ls_batch_queue_give give;
    void *user;
    int processes;
    int64_t next, limit;
    given *out; /* being computed */
    size_t out_count, out_room;
    int64_t *again; /* taken back from lost processes, lowest last */
    size_t again_count, again_room;
    int *asking; /* ranks, in the order of their requests */
    size_t asking_count, asking_room;
    /* By rank: number of the last request received; 0: none since the process connected. */
    int64_t *asked;
};

ls_status ls_batch_queue_make(int processes, int64_t first, ls_batch_queue_give give, void *user, ls_batch_queue **out)
{
    ls_batch_queue *d = calloc(1, sizeof(*d));
    if (!d)
        return ls_fail(LS_ERR_MEMORY, "no memory to deal out batches");
    *d = (ls_batch_queue){ .give = give, .user = user, .processes = processes, .next = first, .limit = first };
    d->asked = calloc((size_t)processes, sizeof(*d->asked));
    if (!d->asked) {
        free(d);
        return ls_fail(LS_ERR_MEMORY, "no memory to deal out batches to %d processes", processes);
    }
    pthread_mutex_init(&d->mutex, NULL);
    *out = d;
    return LS_OK;
}

void ls_batch_queue_free(ls_batch_queue *d)
{
    if (!d)
        return;
    pthread_mutex_destroy(&d->mutex);
    free(d->out);
    free(d->again);
    free(d->asking);
    free(d->asked);
    free(d);
}

/* ---- Helpers, called with the mutex held ---- */

static bool has_batch(const ls_batch_queue *d)
{
    return d->again_count > 0 || d->next < d->limit;
}

/* Needs no memory: make_room reserved it when each process asked. */
static void deal(ls_batch_queue *d)
{
    while (d->asking_count > 0 && has_batch(d)) {
        int rank = d->asking[0];
        int64_t ordinal = d->again_count > 0 ? d->again[--d->again_count] : d->next++;
        memmove(d->asking, d->asking + 1, --d->asking_count * sizeof(*d->asking));
        d->out[d->out_count++] = (given){ rank, ordinal };
        d->give(d->user, rank, ordinal);
    }
}

static ls_status make_room(ls_batch_queue *d)
{
    size_t all = d->asking_count + d->out_count;
    LS_TRY(ls_grow(&d->asking, d->asking_count, &d->asking_room, sizeof(*d->asking)));
    while (d->out_room <= all)
        LS_TRY(ls_grow(&d->out, d->out_room, &d->out_room, sizeof(*d->out)));
    while (d->again_room <= all + d->again_count)
        LS_TRY(ls_grow(&d->again, d->again_room, &d->again_room, sizeof(*d->again)));
    return LS_OK;
}

static void take_back(ls_batch_queue *d, int64_t ordinal)
{
    size_t at = d->again_count++;
    for (; at > 0 && d->again[at - 1] < ordinal; at--)
        d->again[at] = d->again[at - 1];
    d->again[at] = ordinal;
}

/* ---- Interface ---- */

void ls_batch_queue_set_limit(ls_batch_queue *d, int64_t limit)
{
    pthread_mutex_lock(&d->mutex);
    d->limit = limit > d->next ? limit : d->next;
    deal(d);
    pthread_mutex_unlock(&d->mutex);
}

int64_t ls_batch_queue_stop(ls_batch_queue *d)
{
    pthread_mutex_lock(&d->mutex);
    d->limit = d->next;
    int64_t out = d->limit;
    pthread_mutex_unlock(&d->mutex);
    return out;
}

ls_status ls_batch_queue_ask(ls_batch_queue *d, int rank, int64_t number)
{
    if (rank < 0 || rank >= d->processes)
        return ls_fail(LS_ERR_INTERNAL, "process %d of %d asks for a batch", rank, d->processes);
    pthread_mutex_lock(&d->mutex);
    bool heard = number <= d->asked[rank];
    ls_status status = heard ? LS_OK : make_room(d);
    if (status == LS_OK && !heard) {
        d->asked[rank] = number;
        d->asking[d->asking_count++] = rank;
        deal(d);
    }
    pthread_mutex_unlock(&d->mutex);
    return status;
}

bool ls_batch_queue_done(ls_batch_queue *d, int rank, int64_t ordinal)
{
    bool found = false;
    pthread_mutex_lock(&d->mutex);
    for (size_t i = 0; i < d->out_count && !found; i++)
        if (d->out[i].rank == rank && d->out[i].ordinal == ordinal) {
            d->out[i] = d->out[--d->out_count];
            found = true;
        }
    pthread_mutex_unlock(&d->mutex);
    return found;
}

void ls_batch_queue_lose(ls_batch_queue *d, int rank)
{
    pthread_mutex_lock(&d->mutex);
    size_t kept = 0;
    d->asked[rank] = 0;
    for (size_t i = 0; i < d->asking_count; i++)
        if (d->asking[i] != rank)
            d->asking[kept++] = d->asking[i];
    d->asking_count = kept;
    for (size_t i = d->out_count; i-- > 0;)
        if (d->out[i].rank == rank) {
            take_back(d, d->out[i].ordinal);
            d->out[i] = d->out[--d->out_count];
        }
    deal(d);
    pthread_mutex_unlock(&d->mutex);
}

bool ls_batch_queue_is_done(ls_batch_queue *d)
{
    pthread_mutex_lock(&d->mutex);
    bool done = d->out_count == 0 && !has_batch(d);
    pthread_mutex_unlock(&d->mutex);
    return done;
}
