/* ls_map and ls_prefetch: elements computed ahead by threads. A thread claims the next item of a
 * ring buffer and reads its element from the source, one thread at a time so that items keep the
 * source's order. Then it calls the function, concurrently with others. An end or an error is also
 * an item; nothing is read after it. */
#include <limits.h>
#include <string.h>

#include "base/fpmode.h"
#include "base/thread.h"
#include "data/dataset.h"

#define MOST_THREADS    1024
#define MOST_PREFETCHED 65536

typedef struct item {
    ls_slot in, out;
    int64_t number;
    bool ready; /* the iterating thread may take it */
    bool end;
    ls_status status;
    char *message;
} item;

typedef struct ahead {
    ls_cursor *cursor;
    bool has_locks;
    pthread_mutex_t pulling; /* serializes reads of the source; locked before `mutex` */
    pthread_mutex_t mutex;   /* protects the fields below */
    pthread_cond_t not_full, ready;
    item *ring;
    int64_t ring_count;
    int64_t claimed, taken;
    bool stop, drained;
    pthread_t *threads;
    int thread_count;
    ls_slot in; /* input of a map without threads */
    int64_t number;
} ahead;

/* ---- The function ---- */

static bool is_map(const ls_dataset *d)
{
    return d->type == &ls_type_map;
}

ls_status ls_map_call(const ls_dataset *d, ls_element_key key, ls_slot *in, ls_slot *out)
{
    LS_TRY(ls_slot_show(in, d->source));
    in->element.epoch = key.epoch;
    in->element.number = key.number;
    LS_TRY(ls_slot_make(out, &d->spec, d->source->spec.batch ? in->element.component[0].shape.dims[0] : 0));
    out->element.epoch = key.epoch;
    out->element.number = key.number;
    /* A copy: the function may write to the arrays but not replace them. */
    ls_element given = out->element;
    ls_clear_error();
    ls_status status = d->u.map.function(d->u.map.user, &in->element, &given);
    return ls_fail_within(status, "the function of ls_map failed at element %lld of epoch %llu", (long long)key.number,
                          (unsigned long long)key.epoch);
}

static ls_status process(const ls_cursor *cursor, item *i)
{
    if (is_map(cursor->dataset))
        return ls_map_call(cursor->dataset, (ls_element_key){ cursor->epoch, i->number }, &i->in, &i->out);
    LS_TRY(ls_slot_show(&i->in, cursor->dataset->source));
    ls_slot_swap(&i->in, &i->out);
    return LS_OK;
}

/* ---- Threads ---- */

static void keep_error(item *i, ls_status status)
{
    i->status = status;
    if (status != LS_OK && !i->message)
        i->message = strdup(ls_last_error());
}

/* Returns NULL if there is no more work. */
static item *claim(ahead *a)
{
    item *claimed = NULL;
    pthread_mutex_lock(&a->pulling);
    pthread_mutex_lock(&a->mutex);
    while (!a->stop && !a->drained && a->claimed - a->taken >= a->ring_count)
        pthread_cond_wait(&a->not_full, &a->mutex);
    if (!a->stop && !a->drained) {
        claimed = &a->ring[a->claimed % a->ring_count];
        claimed->number = a->claimed++;
    }
    pthread_mutex_unlock(&a->mutex);
    if (claimed) {
        keep_error(claimed, ls_cursor_next(a->cursor->source, &claimed->in, &claimed->end));
        pthread_mutex_lock(&a->mutex);
        a->drained = claimed->end || claimed->status != LS_OK;
        pthread_mutex_unlock(&a->mutex);
    }
    pthread_mutex_unlock(&a->pulling);
    return claimed;
}

static void *work(void *user)
{
    ahead *a = user;
    ls_fp_begin_thread();
    for (item *i; (i = claim(a)) != NULL;) {
        if (i->status == LS_OK && !i->end)
            keep_error(i, process(a->cursor, i));
        pthread_mutex_lock(&a->mutex);
        i->ready = true;
        pthread_cond_signal(&a->ready);
        pthread_mutex_unlock(&a->mutex);
    }
    return NULL;
}

static ls_status start(ls_cursor *cursor, int threads, int64_t ring_count)
{
    ahead *a = cursor->state;
    a->cursor = cursor;
    a->ring_count = ring_count;
    if (pthread_mutex_init(&a->pulling, NULL) || pthread_mutex_init(&a->mutex, NULL) ||
        pthread_cond_init(&a->not_full, NULL) || pthread_cond_init(&a->ready, NULL))
        return ls_fail(LS_ERR_MEMORY, "%s: no memory for a lock", cursor->dataset->type->name);
    a->has_locks = true;
    a->ring = calloc((size_t)ring_count, sizeof *a->ring);
    a->threads = calloc((size_t)threads, sizeof *a->threads);
    if (!a->ring || !a->threads)
        return ls_fail(LS_ERR_MEMORY, "%s: no memory to prefetch %lld elements", cursor->dataset->type->name,
                       (long long)ring_count);
    for (; a->thread_count < threads; a->thread_count++) {
        int error = ls_thread_start(&a->threads[a->thread_count], work, a);
        if (error)
            return ls_fail(LS_ERR_MEMORY, "%s: cannot start thread %d of %d: %s", cursor->dataset->type->name,
                           a->thread_count + 1, threads, strerror(error));
    }
    return LS_OK;
}

/* ---- The iterating thread ---- */

static ls_status take(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    ahead *a = cursor->state;
    ls_status status = LS_OK;
    pthread_mutex_lock(&a->mutex);
    item *i = &a->ring[a->taken % a->ring_count];
    while (!i->ready)
        pthread_cond_wait(&a->ready, &a->mutex);
    *end = i->end;
    if (i->status != LS_OK)
        status = ls_fail(i->status, "%s", i->message ? i->message : "no memory for an error message");
    else if (!i->end) {
        ls_slot_swap(slot, &i->out);
        i->ready = false;
        a->taken++;
        pthread_cond_signal(&a->not_full);
    }
    pthread_mutex_unlock(&a->mutex);
    return status;
}

static void end_ahead(ls_cursor *cursor)
{
    ahead *a = cursor->state;
    ls_slot_free(&a->in);
    if (!a->has_locks)
        return;
    pthread_mutex_lock(&a->mutex);
    a->stop = true;
    pthread_cond_broadcast(&a->not_full);
    pthread_mutex_unlock(&a->mutex);
    for (int i = 0; i < a->thread_count; i++)
        pthread_join(a->threads[i], NULL);
    for (int64_t i = 0; a->ring && i < a->ring_count; i++) {
        ls_slot_free(&a->ring[i].in);
        ls_slot_free(&a->ring[i].out);
        free(a->ring[i].message);
    }
    free(a->ring);
    free(a->threads);
    pthread_cond_destroy(&a->ready);
    pthread_cond_destroy(&a->not_full);
    pthread_mutex_destroy(&a->mutex);
    pthread_mutex_destroy(&a->pulling);
}

/* ---- Map ---- */

static ls_status prepare_map(ls_dataset *d)
{
    const ls_element_spec *input = &d->source->spec;
    d->count = d->source->count;
    d->maps = d->source->maps + 1;
    bool kept = input->batch == 0 && d->maps <= LS_MOST_MAPS;
    d->origin = kept ? d->source->origin : NULL;
    d->maker = kept ? d->source->maker : NULL;
    d->spec = d->u.map.output.count ? d->u.map.output : *input;
    if (d->spec.batch == 0)
        d->spec.batch = input->batch;
    return ls_element_spec_check(&d->spec, input->batch > 0, "ls_map: the output");
}

static ls_status begin_map(ls_cursor *cursor)
{
    int threads = cursor->dataset->u.map.threads;
    return threads > 1 && !cursor->as_rows && !cursor->dataset->together ? start(cursor, threads, 2 * (int64_t)threads)
                                                                         : LS_OK;
}

static ls_status next_mapped(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    ahead *a = cursor->state;
    if (a->thread_count > 0)
        return take(cursor, slot, end);
    LS_TRY(ls_cursor_next(cursor->source, cursor->as_rows ? slot : &a->in, end));
    if (*end)
        return LS_OK;
    ls_element_key key = { cursor->epoch, a->number++ };
    if (!cursor->as_rows)
        return ls_map_call(cursor->dataset, key, &a->in, slot);
    slot->keys[cursor->dataset->maps - 1] = key;
    return LS_OK;
}

const ls_dataset_type ls_type_map = { .name = "ls_map",
                                      .prepare = prepare_map,
                                      .begin = begin_map,
                                      .next = next_mapped,
                                      .end = end_ahead,
                                      .state_bytes = sizeof(ahead) };

ls_dataset *ls_map_with(ls_dataset *source, ls_map_options options)
{
    bool built;
    ls_dataset *d = ls_dataset_over(&ls_type_map, source, &built);
    if (!built)
        return d;
    d->u.map = options;
    if (!options.function)
        ls_dataset_fail(d, LS_ERR_INVALID, "ls_map: the function is NULL");
    if (options.threads < 0 || options.threads > MOST_THREADS)
        ls_dataset_fail(d, LS_ERR_INVALID, "ls_map: the number of threads must be from 0 to %d (got %d)", MOST_THREADS,
                        options.threads);
    return d;
}

/* ---- Prefetch ---- */

static ls_status prepare_prefetch(ls_dataset *d)
{
    ls_dataset_copy_source(d);
    return LS_OK;
}

static ls_status begin_prefetch(ls_cursor *cursor)
{
    return cursor->dataset->together ? LS_OK : start(cursor, 1, cursor->dataset->u.prefetch.count);
}

static ls_status next_fetched(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    return cursor->dataset->together ? ls_cursor_next(cursor->source, slot, end) : take(cursor, slot, end);
}

const ls_dataset_type ls_type_prefetch = { .name = "ls_prefetch",
                                           .prepare = prepare_prefetch,
                                           .begin = begin_prefetch,
                                           .next = next_fetched,
                                           .index_of = ls_same_index,
                                           .end = end_ahead,
                                           .state_bytes = sizeof(ahead) };

ls_dataset *ls_prefetch(ls_dataset *source, int count)
{
    bool built;
    ls_dataset *d = ls_dataset_over(&ls_type_prefetch, source, &built);
    if (!built)
        return d;
    d->u.prefetch.count = count;
    if (count < 1 || count > MOST_PREFETCHED)
        ls_dataset_fail(d, LS_ERR_INVALID, "ls_prefetch: the count must be from 1 to %d (got %d)", MOST_PREFETCHED,
                        count);
    return d;
}
