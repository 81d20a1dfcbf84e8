/* Hands out batches (batch_queue.h). */
#include "train/server/batch_queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

typedef struct assignment {
    int rank;
    int64_t ordinal;
} assignment;

struct ls_batch_queue {
    pthread_mutex_t mutex;
    ls_batch_queue_give give;
    void *user;
    int processes;
    int64_t next, limit;
    assignment *out; /* being computed */
    size_t out_count, out_room;
    int64_t *again; /* taken back from lost processes, lowest last */
    size_t again_count, again_room;
    int *asking; /* ranks, in the order of their requests */
    size_t asking_count, asking_room;
    /* By rank: number of the last request; 0: none since the process connected. */
    int64_t *asked;
};

ls_status ls_batch_queue_make(int processes, int64_t first, ls_batch_queue_give give, void *user, ls_batch_queue **out)
{
    ls_batch_queue *q = calloc(1, sizeof(*q));
    if (!q)
        return ls_fail(LS_ERR_MEMORY, "no memory for the queue of batches");
    *q = (ls_batch_queue){ .give = give, .user = user, .processes = processes, .next = first, .limit = first };
    q->asked = calloc((size_t)processes, sizeof(*q->asked));
    if (!q->asked) {
        free(q);
        return ls_fail(LS_ERR_MEMORY, "no memory for the queue of batches of %d processes", processes);
    }
    pthread_mutex_init(&q->mutex, NULL);
    *out = q;
    return LS_OK;
}

void ls_batch_queue_free(ls_batch_queue *q)
{
    if (!q)
        return;
    pthread_mutex_destroy(&q->mutex);
    free(q->out);
    free(q->again);
    free(q->asking);
    free(q->asked);
    free(q);
}

/* ---- Helpers, called with the mutex held ---- */

static bool has_batch(const ls_batch_queue *q)
{
    return q->again_count > 0 || q->next < q->limit;
}

/* Needs no memory: make_room reserved it when each process asked. */
static void hand_out(ls_batch_queue *q)
{
    while (q->asking_count > 0 && has_batch(q)) {
        int rank = q->asking[0];
        int64_t ordinal = q->again_count > 0 ? q->again[--q->again_count] : q->next++;
        memmove(q->asking, q->asking + 1, --q->asking_count * sizeof(*q->asking));
        q->out[q->out_count++] = (assignment){ rank, ordinal };
        q->give(q->user, rank, ordinal);
    }
}

static ls_status make_room(ls_batch_queue *q)
{
    size_t all = q->asking_count + q->out_count;
    LS_TRY(ls_grow(&q->asking, q->asking_count, &q->asking_room, sizeof(*q->asking)));
    while (q->out_room <= all)
        LS_TRY(ls_grow(&q->out, q->out_room, &q->out_room, sizeof(*q->out)));
    while (q->again_room <= all + q->again_count)
        LS_TRY(ls_grow(&q->again, q->again_room, &q->again_room, sizeof(*q->again)));
    return LS_OK;
}

static void take_back(ls_batch_queue *q, int64_t ordinal)
{
    size_t at = q->again_count++;
    for (; at > 0 && q->again[at - 1] < ordinal; at--)
        q->again[at] = q->again[at - 1];
    q->again[at] = ordinal;
}

/* ---- Interface ---- */

void ls_batch_queue_set_limit(ls_batch_queue *q, int64_t limit)
{
    pthread_mutex_lock(&q->mutex);
    q->limit = limit > q->next ? limit : q->next;
    hand_out(q);
    pthread_mutex_unlock(&q->mutex);
}

int64_t ls_batch_queue_stop(ls_batch_queue *q)
{
    pthread_mutex_lock(&q->mutex);
    q->limit = q->next;
    int64_t out = q->limit;
    pthread_mutex_unlock(&q->mutex);
    return out;
}

ls_status ls_batch_queue_ask(ls_batch_queue *q, int rank, int64_t number)
{
    if (rank < 0 || rank >= q->processes)
        return ls_fail(LS_ERR_INTERNAL, "process %d asks for a batch, but there are only %d processes", rank,
                       q->processes);
    pthread_mutex_lock(&q->mutex);
    bool heard = number <= q->asked[rank];
    ls_status status = heard ? LS_OK : make_room(q);
    if (status == LS_OK && !heard) {
        q->asked[rank] = number;
        q->asking[q->asking_count++] = rank;
        hand_out(q);
    }
    pthread_mutex_unlock(&q->mutex);
    return status;
}

bool ls_batch_queue_done(ls_batch_queue *q, int rank, int64_t ordinal)
{
    bool found = false;
    pthread_mutex_lock(&q->mutex);
    for (size_t i = 0; i < q->out_count && !found; i++)
        if (q->out[i].rank == rank && q->out[i].ordinal == ordinal) {
            q->out[i] = q->out[--q->out_count];
            found = true;
        }
    pthread_mutex_unlock(&q->mutex);
    return found;
}

void ls_batch_queue_lose(ls_batch_queue *q, int rank)
{
    pthread_mutex_lock(&q->mutex);
    size_t kept = 0;
    q->asked[rank] = 0;
    for (size_t i = 0; i < q->asking_count; i++)
        if (q->asking[i] != rank)
            q->asking[kept++] = q->asking[i];
    q->asking_count = kept;
    for (size_t i = q->out_count; i-- > 0;)
        if (q->out[i].rank == rank) {
            take_back(q, q->out[i].ordinal);
            q->out[i] = q->out[--q->out_count];
        }
    hand_out(q);
    pthread_mutex_unlock(&q->mutex);
}

bool ls_batch_queue_is_done(ls_batch_queue *q)
{
    pthread_mutex_lock(&q->mutex);
    bool done = q->out_count == 0 && !has_batch(q);
    pthread_mutex_unlock(&q->mutex);
    return done;
}
