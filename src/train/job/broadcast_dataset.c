/* One worker iterates and broadcasts each element: a head that says if there is an element, then
 * the arrays. If it fails, all workers fail with its message. */
#include "train/job/broadcast_dataset.h"

#include <string.h>

#include "graph/shape.h"
#include "lockstep/cluster.h"
#include "lockstep/train.h"
#include "train/job/identity.h"

#define MESSAGE 1000

/* ---- Broadcasts ---- */

/* Sent before the data itself. */
typedef struct head {
    ls_status status;
    char message[MESSAGE];
    /* description of the dataset */
    ls_element_spec spec;
    int64_t count;
    int shuffles;
    ls_data_identity identity;
    /* the next element */
    bool end;
    int64_t samples; /* in the batch */
} head;

static bool has_data(const ls_dataset *d)
{
    return d->u.worker.rank == ls_cluster_rank(d->u.worker.ctx);
}

static ls_status give(const ls_dataset *d, void *data, size_t bytes)
{
    return ls_cluster_broadcast(d->u.worker.ctx, "the data", d->u.worker.rank, data, bytes);
}

/* `status`: of the worker that reads the data; other workers pass LS_OK. */
static ls_status give_head(const ls_dataset *d, ls_status status, head *h)
{
    if (status != LS_OK) {
        *h = (head){ .status = status };
        snprintf(h->message, MESSAGE, "%s", ls_last_error());
    }
    LS_TRY(give(d, h, sizeof(*h)));
    if (h->status != LS_OK)
        return ls_fail(h->status, "worker %d, which reads the data, failed: %.*s", d->u.worker.rank, MESSAGE,
                       h->message);
    return LS_OK;
}

/* ---- The dataset node ---- */

static ls_status describe(ls_dataset *data, head *h)
{
    LS_TRY(ls_dataset_spec(data, &h->spec));
    h->shuffles = data->shuffles;
    LS_TRY(ls_identify_data(data, &h->identity));
    return ls_dataset_count(data, &h->count);
}

static ls_status prepare(ls_dataset *d)
{
    head h = { .status = LS_OK };
    int rank = d->u.worker.rank, size = ls_cluster_size(d->u.worker.ctx);
    if (rank < 0 || rank >= size)
        return ls_fail(LS_ERR_INVALID, "ls_from_worker: rank is %d, but the cluster has %d workers", rank, size);
    ls_status status = LS_OK;
    if (has_data(d))
        status = d->u.worker.data ? describe(d->u.worker.data, &h)
                                  : ls_fail(LS_ERR_INVALID, "ls_from_worker: the dataset is NULL");
    LS_TRY(give_head(d, status, &h));
    if (h.spec.count == 0)
        return ls_fail(LS_ERR_STATE,
                       "ls_from_worker: worker %d reads the data, but this process is not in its cluster; call "
                       "ls_cluster_join first",
                       rank);
    d->spec = h.spec;
    d->count = h.count;
    d->shuffles = h.shuffles;
    d->u.worker.samples = h.identity.samples;
    memcpy(d->u.worker.sha256, h.identity.sha256, sizeof(d->u.worker.sha256));
    d->together = ls_cluster_size(d->u.worker.ctx) > 1;
    return LS_OK;
}

static void destroy(ls_dataset *d)
{
    ls_dataset_destroy(d->u.worker.data);
}

/* ---- A pass ---- */

typedef struct pass {
    /* created with the first element; NULL on other workers */
    ls_iterator *iterator;
    int64_t number;
} pass;

static void end_pass(ls_cursor *cursor)
{
    pass *p = cursor->state;
    ls_iterator_destroy(p->iterator);
}

static ls_status take_own(const ls_cursor *cursor, head *h, const ls_element **element)
{
    pass *p = cursor->state;
    if (!p->iterator)
        LS_TRY(ls_iterator_create(cursor->dataset->u.worker.data, cursor->epoch, &p->iterator));
    LS_TRY(ls_iterator_next(p->iterator, element));
    h->end = *element == NULL;
    if (*element && (*element)->component[0].shape.rank > 0)
        h->samples = (*element)->component[0].shape.dims[0];
    return LS_OK;
}

static ls_status next(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    const ls_dataset *d = cursor->dataset;
    pass *p = cursor->state;
    head h = { .status = LS_OK };
    const ls_element *own = NULL;
    LS_TRY(give_head(d, has_data(d) ? take_own(cursor, &h, &own) : LS_OK, &h));
    *end = h.end;
    if (h.end)
        return LS_OK;
    LS_TRY(ls_slot_make(slot, &d->spec, d->spec.batch ? h.samples : 0));
    slot->element.epoch = cursor->epoch;
    slot->element.number = p->number++;
    for (int i = 0; i < d->spec.count; i++) {
        const ls_array *array = &slot->element.component[i];
        int64_t elements = 0;
        ls_shape_count(&array->shape, 0, &elements); /* cannot overflow: the array is allocated */
        size_t bytes = (size_t)elements * ls_dtype_bytes(array->dtype);
        if (own)
            memcpy(array->data, own->component[i].data, bytes);
        LS_TRY(give(d, array->data, bytes));
    }
    return LS_OK;
}

static const ls_dataset_type type = { .name = "ls_from_worker",
                                      .prepare = prepare,
                                      .destroy = destroy,
                                      .state_bytes = sizeof(pass),
                                      .next = next,
                                      .end = end_pass };

ls_dataset *ls_from_worker(ls_context *ctx, int rank, ls_dataset *data)
{
    ls_dataset *d = ls_dataset_node(&type, NULL);
    if (ls_dataset_is_lost(d)) {
        ls_dataset_destroy(data);
        return d;
    }
    d->u.worker.ctx = ctx;
    d->u.worker.rank = rank;
    d->u.worker.data = data;
    return ctx ? d : ls_dataset_fail(d, LS_ERR_INVALID, "ls_from_worker: the context is NULL");
}

bool ls_is_from_worker(const ls_dataset *dataset)
{
    return dataset->type == &type;
}

bool ls_comes_from_worker(const ls_dataset *dataset)
{
    while (dataset && !ls_is_from_worker(dataset))
        dataset = dataset->source;
    return dataset != NULL;
}

ls_dataset *ls_from_worker_data(const ls_dataset *dataset)
{
    return has_data(dataset) ? dataset->u.worker.data : NULL;
}

ls_status ls_from_worker_identity(ls_dataset *dataset, ls_data_identity *out)
{
    LS_TRY(ls_dataset_prepare(dataset));
    out->samples = dataset->u.worker.samples;
    memcpy(out->sha256, dataset->u.worker.sha256, sizeof(out->sha256));
    return LS_OK;
}

ls_dataset *ls_from_worker_over(const ls_dataset *dataset, ls_dataset *data)
{
    return ls_from_worker(dataset->u.worker.ctx, dataset->u.worker.rank, data);
}
