/* Keeps batches that were read before they are needed: as row numbers if the data is in memory,
 * otherwise as copies. */
#include "train/server/batch_lookahead.h"

#include <stdlib.h>
#include <string.h>

#include "graph/shape.h"
#include "train/job/passes.h"
#include "train/job/step.h"

typedef struct kept {
    size_t uses; /* remaining requests; 0: the batch is not kept */
    int64_t *rows;
    const ls_element *base;
    ls_element element; /* copy of the arrays, if rows is NULL */
    int64_t samples;
} kept;

struct ls_batch_lookahead {
    ls_passes *data;
    const ls_batch_lookahead_batch *list;
    size_t count, read; /* read: batches of the list read so far */
    bool in_pass;
    int64_t pass, next; /* position in the data */
    kept *kept;         /* one for each batch of the list */
    size_t shown;       /* index of the batch to free at the next call; `count`: none */
};

ls_status ls_batch_lookahead_make(ls_passes *data, const ls_batch_lookahead_batch *list, size_t count,
                                  ls_batch_lookahead **out)
{
    ls_batch_lookahead *u = calloc(1, sizeof(*u));
    kept *all = calloc(count + 1, sizeof(*all));
    if (!u || !all) {
        free(u);
        free(all);
        return ls_fail(LS_ERR_MEMORY, "no memory for a list of %zu batches", count);
    }
    *u = (ls_batch_lookahead){ .data = data, .list = list, .count = count, .kept = all, .shown = count };
    *out = u;
    return LS_OK;
}

static void drop(kept *k)
{
    free(k->rows);
    for (int i = 0; i < k->element.count; i++)
        free(k->element.component[i].data);
    *k = (kept){ .uses = 0 };
}

void ls_batch_lookahead_free(ls_batch_lookahead *u)
{
    if (!u)
        return;
    for (size_t i = 0; i < u->count; i++)
        drop(&u->kept[i]);
    free(u->kept);
    free(u);
}

static ls_status copy_array(const ls_array *from, ls_array *to)
{
    int64_t count = 0;
    if (!ls_shape_count(&from->shape, 0, &count))
        return ls_fail(LS_ERR_OVERFLOW, "a batch has too many elements");
    size_t bytes = (size_t)count * ls_dtype_bytes(from->dtype);
    *to = *from;
    to->data = malloc(bytes + 1);
    if (!to->data)
        return ls_fail(LS_ERR_MEMORY, "no memory for a batch of %zu bytes", bytes);
    memcpy(to->data, from->data, bytes);
    return LS_OK;
}

static ls_status keep(kept *k, const ls_batch_view *batch, size_t uses)
{
    k->uses = uses;
    k->samples = batch->samples;
    k->base = batch->element;
    if (batch->rows) {
        size_t bytes = (size_t)batch->samples * sizeof(*k->rows);
        k->rows = malloc(bytes + 1);
        if (!k->rows)
            return ls_fail(LS_ERR_MEMORY, "no memory for the %lld rows of a batch", (long long)batch->samples);
        memcpy(k->rows, batch->rows, bytes);
        return LS_OK;
    }
    k->element = *batch->element;
    k->element.count = 0;
    for (int i = 0; i < batch->element->count; i++) {
        LS_TRY(copy_array(&batch->element->component[i], &k->element.component[i]));
        k->element.count++;
    }
    return LS_OK;
}

static ls_status read_next(ls_batch_lookahead *u)
{
    const ls_batch_lookahead_batch *wanted = &u->list[u->read];
    ls_batch_view batch;
    bool end = false;
    if (!u->in_pass || u->pass != wanted->pass) {
        u->in_pass = false;
        LS_TRY(ls_passes_begin(u->data, (uint64_t)wanted->pass));
        u->in_pass = true;
        u->pass = wanted->pass;
        u->next = 0;
    }
    for (; u->next <= wanted->index && !end; u->next++)
        LS_TRY(ls_passes_next(u->data, &batch, &end));
    if (end)
        return ls_fail(LS_ERR_DATA, "batch %lld of epoch %lld is not in the data: a pass over it has %lld batches",
                       (long long)wanted->batch, (long long)wanted->epoch, (long long)u->next - 1);
    return keep(&u->kept[u->read++], &batch, wanted->uses);
}

ls_status ls_batch_lookahead_get(ls_batch_lookahead *u, size_t number, ls_batch_view *out)
{
    if (u->shown < u->count)
        drop(&u->kept[u->shown]);
    u->shown = u->count;
    while (u->read <= number)
        LS_TRY(read_next(u));
    kept *k = &u->kept[number];
    if (k->uses == 0)
        return ls_fail(LS_ERR_INTERNAL, "a batch was requested more often than its readers announced");
    *out = (ls_batch_view){ .element = k->rows ? k->base : &k->element, .rows = k->rows, .samples = k->samples };
    if (--k->uses == 0)
        u->shown = number;
    return LS_OK;
}
