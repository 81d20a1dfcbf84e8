/* A cursor over rows gives the row numbers of a batch in advance; the caller or threads compute
 * each sample once. There are two batches: the current one, and the next one, of which threads
 * compute the samples that were requested of the current one. */
#include "data/on_demand.h"

#include <string.h>

#include "base/fpmode.h"
#include "base/thread.h"
#include "data/stream.h"
#include "graph/shape.h"

typedef enum sample_state { NOT_MADE, BEING_MADE, MADE } sample_state;

typedef struct demand_batch {
    ls_slot rows, data; /* row numbers and keys of its samples; the computed samples */
    int64_t count;
    bool end;            /* no batch: the pass has ended */
    unsigned char *made; /* a sample_state for each sample */
    size_t made_room;
    int64_t next, wanted_end; /* range of samples for threads to compute; `next` advances */
    int64_t at_work;          /* samples being computed */
    int64_t failed;           /* lowest index of a failed sample; valid unless `status` is LS_OK */
    ls_status status;         /* error of sample `failed`; LS_OK: no failure */
    char *message;
} demand_batch;

struct ls_on_demand {
    ls_dataset *dataset;
    ls_cursor *cursor;
    const ls_dataset *maps[LS_MOST_MAPS]; /* in the order of their calls */
    uint64_t epoch;
    int64_t number; /* index of the current batch; -1 before the first */
    demand_batch two[2];
    int at;                /* index of the current batch in `two` */
    bool ahead;            /* the other batch has its row numbers */
    ls_slot scratch[2];    /* used by the calling thread */
    pthread_mutex_t mutex; /* protects the batches, `at`, `ahead` and `stop` */
    pthread_cond_t work, done;
    bool stop;
    int thread_count;
    pthread_t *threads;
};

ls_status ls_on_demand_can(ls_dataset *dataset, bool *out)
{
    LS_TRY(ls_dataset_prepare(dataset));
    *out = (dataset->origin || dataset->maker) && !dataset->base && dataset->spec.batch > 0;
    return LS_OK;
}

/* ---- One sample ---- */

static size_t sample_bytes(const demand_batch *b, int component)
{
    const ls_array *array = &b->data.element.component[component];
    size_t bytes = 0;
    ls_data_bytes(array->dtype, &array->shape, &bytes); /* cannot overflow: the arrays exist */
    return b->count > 0 ? bytes / (size_t)b->count : 0;
}

static ls_status make_sample(const ls_on_demand *d, demand_batch *b, int64_t sample, ls_slot scratch[2])
{
    const ls_element_key *keys = b->rows.key_list + sample * LS_MOST_MAPS;
    ls_slot *in = &scratch[0], *out = &scratch[1];
    in->is_row = true;
    in->row = b->rows.list[sample];
    if (d->dataset->maps == 0)
        LS_TRY(ls_slot_show(in, d->dataset));
    for (int i = 0; i < d->dataset->maps; i++) {
        LS_TRY(ls_map_call(d->maps[i], keys[i], in, out));
        ls_slot *swap = in;
        in = out;
        out = swap;
    }
    for (int i = 0; i < d->dataset->spec.count; i++) {
        size_t bytes = sample_bytes(b, i);
        if (bytes)
            memcpy((char *)b->data.memory[i] + (size_t)sample * bytes, in->element.component[i].data, bytes);
    }
    return LS_OK;
}

static void note_failure(demand_batch *b, int64_t sample, ls_status status)
{
    if (status == LS_OK || (b->status != LS_OK && b->failed < sample))
        return;
    free(b->message);
    b->message = strdup(ls_last_error());
    b->status = status;
    b->failed = sample;
}

/* ---- Threads ---- */

/* Returns the next requested sample that no thread has started; -1: none. */
static int64_t find_sample(demand_batch *b)
{
    while (b->next < b->wanted_end && b->made[b->next] != NOT_MADE)
        b->next++;
    return b->next < b->wanted_end ? b->next : -1;
}

static demand_batch *find_work(ls_on_demand *d, int64_t *sample)
{
    for (int i = 0; i < 2; i++) {
        demand_batch *b = &d->two[(d->at + i) % 2];
        *sample = find_sample(b);
        if (*sample >= 0)
            return b;
    }
    return NULL;
}

static void *work(void *user)
{
    ls_on_demand *d = user;
    ls_slot scratch[2] = { { .is_row = false }, { .is_row = false } };
    ls_fp_begin_thread();
    pthread_mutex_lock(&d->mutex);
    while (!d->stop) {
        int64_t sample;
        demand_batch *b = find_work(d, &sample);
        if (!b) {
            pthread_cond_wait(&d->work, &d->mutex);
            continue;
        }
        b->made[sample] = BEING_MADE;
        b->at_work++;
        pthread_mutex_unlock(&d->mutex);
        ls_status status = make_sample(d, b, sample, scratch);
        pthread_mutex_lock(&d->mutex);
        note_failure(b, sample, status);
        b->made[sample] = MADE;
        b->at_work--;
        pthread_cond_signal(&d->done);
    }
    pthread_mutex_unlock(&d->mutex);
    ls_slot_free(&scratch[0]);
    ls_slot_free(&scratch[1]);
    return NULL;
}

/* Returns the largest number of threads of the maps and of the node that makes rows, or 1 with a
 * prefetch; 0: the caller computes the samples. */
static int count_threads(const ls_dataset *d)
{
    int threads = d->maker ? d->maker->make_threads : 0;
    for (; d; d = d->source) {
        int some = d->type == &ls_type_prefetch ? 1 : d->type == &ls_type_map ? d->u.map.threads : 0;
        if (d->type == &ls_type_map && some == 1)
            some = 0;
        threads = some > threads ? some : threads;
    }
    return threads;
}

static ls_status start_threads(ls_on_demand *d)
{
    int threads = count_threads(d->dataset);
    if (threads == 0)
        return LS_OK;
    d->threads = calloc((size_t)threads, sizeof(*d->threads));
    if (!d->threads)
        return ls_fail(LS_ERR_MEMORY, "ls_map: no memory for %d threads", threads);
    for (; d->thread_count < threads; d->thread_count++) {
        int error = ls_thread_start(&d->threads[d->thread_count], work, d);
        if (error)
            return ls_fail(LS_ERR_MEMORY, "ls_map: cannot start thread %d of %d: %s", d->thread_count + 1, threads,
                           strerror(error));
    }
    return LS_OK;
}

/* ---- Passes ---- */

ls_status ls_on_demand_create(ls_dataset *dataset, uint64_t epoch, ls_on_demand **out)
{
    bool can;
    LS_TRY(ls_on_demand_can(dataset, &can));
    if (!can)
        return ls_fail(LS_ERR_INTERNAL, "%s: samples of this dataset cannot be computed one by one",
                       dataset->type->name);
    ls_on_demand *d = calloc(1, sizeof(*d));
    if (!d)
        return ls_fail(LS_ERR_MEMORY, "no memory for a pass over data");
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->work, NULL);
    pthread_cond_init(&d->done, NULL);
    d->dataset = ls_dataset_share(dataset);
    d->epoch = epoch;
    d->number = -1;
    for (const ls_dataset *node = dataset; node; node = node->source)
        if (node->type == &ls_type_map)
            d->maps[node->maps - 1] = node;
    ls_status status = ls_cursor_create(dataset, epoch, true, &d->cursor);
    if (status == LS_OK)
        status = start_threads(d);
    if (status == LS_OK)
        *out = d;
    else
        ls_on_demand_destroy(d);
    return status;
}

void ls_on_demand_destroy(ls_on_demand *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->mutex);
    d->stop = true;
    pthread_cond_broadcast(&d->work);
    pthread_mutex_unlock(&d->mutex);
    for (int i = 0; i < d->thread_count; i++)
        pthread_join(d->threads[i], NULL);
    free(d->threads);
    for (int i = 0; i < 2; i++) {
        ls_slot_free(&d->two[i].rows);
        ls_slot_free(&d->two[i].data);
        ls_slot_free(&d->scratch[i]);
        free(d->two[i].made);
        free(d->two[i].message);
    }
    ls_cursor_destroy(d->cursor);
    ls_dataset_destroy(d->dataset);
    pthread_cond_destroy(&d->done);
    pthread_cond_destroy(&d->work);
    pthread_mutex_destroy(&d->mutex);
    free(d);
}

/* No thread works on `b` meanwhile. */
static ls_status read_rows(ls_on_demand *d, demand_batch *b)
{
    free(b->message);
    b->message = NULL;
    b->status = LS_OK;
    b->count = b->next = b->wanted_end = 0;
    if (b->end)
        return LS_OK;
    LS_TRY(ls_cursor_next(d->cursor, &b->rows, &b->end));
    if (b->end)
        return LS_OK;
    b->count = b->rows.list_count;
    if ((size_t)b->count > b->made_room) {
        unsigned char *grown = realloc(b->made, (size_t)b->count);
        if (!grown)
            return ls_fail(LS_ERR_MEMORY, "no memory for the %lld samples of a batch", (long long)b->count);
        b->made = grown;
        b->made_room = (size_t)b->count;
    }
    memset(b->made, NOT_MADE, (size_t)b->count);
    return ls_slot_make(&b->data, &d->dataset->spec, b->count);
}

static ls_status read_ahead(ls_on_demand *d)
{
    demand_batch *b = &d->two[1 - d->at];
    if (d->thread_count == 0 || d->two[d->at].end)
        return LS_OK;
    LS_TRY(read_rows(d, b));
    d->ahead = true;
    return LS_OK;
}

/* Cancels requests and waits for samples being computed. */
static void finish_batch(ls_on_demand *d)
{
    demand_batch *b = &d->two[d->at];
    b->wanted_end = 0;
    while (b->at_work > 0)
        pthread_cond_wait(&d->done, &d->mutex);
}

static ls_status next(ls_on_demand *d)
{
    finish_batch(d);
    if (d->ahead)
        d->at = 1 - d->at;
    else
        LS_TRY(read_rows(d, &d->two[d->at]));
    d->ahead = false;
    return read_ahead(d);
}

ls_status ls_on_demand_next(ls_on_demand *d, const ls_element **out)
{
    LS_OWN_FP_MODE;
    pthread_mutex_lock(&d->mutex);
    ls_status status = next(d);
    pthread_mutex_unlock(&d->mutex);
    LS_TRY(status);
    demand_batch *b = &d->two[d->at];
    d->number++;
    b->data.element.epoch = d->epoch;
    b->data.element.number = d->number;
    *out = b->end ? NULL : &b->data.element;
    return LS_OK;
}

static bool all_made(const demand_batch *b, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++)
        if (b->made[i] != MADE)
            return false;
    return true;
}

static void make_here(ls_on_demand *d, demand_batch *b, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end && b->status == LS_OK; i++) {
        if (b->made[i] == MADE)
            continue;
        note_failure(b, i, make_sample(d, b, i, d->scratch));
        b->made[i] = MADE;
    }
}

static void want(demand_batch *b, int64_t first, int64_t end)
{
    b->next = first;
    b->wanted_end = end;
}

ls_status ls_on_demand_make(ls_on_demand *d, int64_t first, int64_t end)
{
    LS_OWN_FP_MODE;
    demand_batch *b = &d->two[d->at];
    pthread_mutex_lock(&d->mutex);
    if (d->thread_count == 0) {
        make_here(d, b, first, end);
    } else {
        demand_batch *after = &d->two[1 - d->at];
        want(b, first, end);
        if (d->ahead && after->count == b->count)
            want(after, first, end);
        pthread_cond_broadcast(&d->work);
        while (!all_made(b, first, end))
            pthread_cond_wait(&d->done, &d->mutex);
    }
    ls_status status = b->status;
    if (status != LS_OK)
        status = ls_fail(status, "%s", b->message ? b->message : "no memory for an error message");
    pthread_mutex_unlock(&d->mutex);
    return status;
}

bool ls_on_demand_is_made(ls_on_demand *d, int64_t sample)
{
    pthread_mutex_lock(&d->mutex);
    const demand_batch *b = &d->two[d->at];
    bool made = b->status == LS_OK && b->made[sample] == MADE;
    pthread_mutex_unlock(&d->mutex);
    return made;
}
