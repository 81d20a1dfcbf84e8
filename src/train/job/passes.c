/* Passes over a dataset: as rows of arrays in memory where possible, else as elements of an
 * iterator. */
#include "data/on_demand.h"
#include "device/context.h"
#include "train/job/broadcast_dataset.h"
#include "train/job/job.h"
#include "train/job/passes.h"
#include "train/job/step.h"

static int64_t batch_size(const ls_batching *b)
{
    return b->asked ? b->asked : b->otherwise ? b->otherwise : LS_DEFAULT_BATCH;
}

static ls_dataset *batched(ls_dataset *data, int64_t count, const ls_batching *b)
{
    if (ls_is_from_worker(data)) { /* the worker that has the data forms the batches */
        ls_dataset *own = ls_from_worker_data(data);
        return ls_from_worker_over(data, own ? batched(own, count, b) : NULL);
    }
    ls_dataset *d = ls_dataset_share(data);
    if (b->shuffle && count > 0 && ls_dataset_in_rows(data))
        d = ls_shuffle(d, count, b->seed);
    return ls_batch(d, batch_size(b), false);
}

/* Batches the dataset unless it is batched. */
static ls_status prepare(ls_passes *p, ls_dataset *data, const ls_batching *b)
{
    ls_element_spec spec;
    int64_t count;
    LS_TRY(ls_dataset_spec(data, &spec));
    LS_TRY(ls_dataset_count(data, &count));
    if (spec.batch > 0 && b->asked > 0 && spec.batch != b->asked)
        return ls_fail(LS_ERR_INVALID,
                       "%s is %lld, but the dataset already has batches of %lld; omit %s, or do not batch the dataset",
                       b->option, (long long)b->asked, (long long)spec.batch, b->option);
    ls_dataset *d = spec.batch == 0 ? batched(data, count, b) : ls_dataset_share(data);
    if (spec.batch == 0)
        p->first = count >= 0 && count < batch_size(b) ? count : batch_size(b);
    ls_status status = ls_dataset_status(d);
    if (status != LS_OK) {
        ls_dataset_destroy(d);
        return status;
    }
    p->dataset = d;
    return LS_OK;
}

ls_status ls_passes_open(ls_passes *p, const ls_context *ctx, ls_dataset *data, const ls_batching *batching)
{
    *p = (ls_passes){ .steps = LS_UNKNOWN };
    if (!data)
        return ls_fail(LS_ERR_INVALID, "the dataset is NULL");
    LS_TRY(prepare(p, data, batching));
    ls_status status = ls_dataset_spec(p->dataset, &p->spec);
    if (status == LS_OK)
        status = ls_dataset_count(p->dataset, &p->steps);
    if (status == LS_OK)
        status = ls_dataset_has_rows(p->dataset, &p->in_rows);
    if (status == LS_OK && ((ctx && ctx->cluster) || p->dataset->maker))
        status = ls_on_demand_can(p->dataset, &p->on_demand);
    if (p->first == 0)
        p->first = p->spec.batch;
    if (status == LS_OK && p->steps == 0)
        status = ls_fail(LS_ERR_DATA, "the data has no samples");
    if (status != LS_OK)
        ls_passes_close(p);
    return status;
}

static void end_pass(ls_passes *p)
{
    ls_rows_destroy(p->rows);
    ls_on_demand_destroy(p->makes);
    ls_iterator_destroy(p->iterator);
    p->rows = NULL;
    p->makes = NULL;
    p->iterator = NULL;
}

ls_status ls_passes_begin(ls_passes *p, uint64_t epoch)
{
    end_pass(p);
    if (p->on_demand)
        return ls_on_demand_create(p->dataset, epoch, &p->makes);
    return p->in_rows ? ls_rows_create(p->dataset, epoch, &p->rows)
                      : ls_iterator_create(p->dataset, epoch, &p->iterator);
}

ls_status ls_passes_next(ls_passes *p, ls_batch_view *out, bool *end)
{
    *out = (ls_batch_view){ .samples = 0 };
    if (p->in_rows) {
        LS_TRY(ls_rows_next(p->rows, &out->rows, &out->samples));
        out->element = ls_rows_base(p->rows);
        *end = out->samples == 0;
        return LS_OK;
    }
    LS_TRY(p->on_demand ? ls_on_demand_next(p->makes, &out->element) : ls_iterator_next(p->iterator, &out->element));
    out->on_demand = p->makes;
    out->dataset = p->dataset;
    *end = out->element == NULL;
    if (!*end)
        out->samples = out->element->component[0].shape.dims[0];
    return LS_OK;
}

void ls_passes_close(ls_passes *p)
{
    end_pass(p);
    ls_dataset_destroy(p->dataset);
    p->dataset = NULL;
}
