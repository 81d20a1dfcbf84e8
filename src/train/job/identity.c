/* A fingerprint that distinguishes datasets of the same shapes. */
#include "train/job/identity.h"

#include "base/sha256.h"
#include "data/on_demand.h"
#include "graph/shape.h"
#include "train/job/broadcast_dataset.h"

#define SAMPLED_MADE 8
#define SAMPLED      64        /* rows whose bytes are hashed, evenly spaced */
#define MOST_ROWS    (1 << 20) /* rows whose order is hashed */

static ls_status hash_rows(ls_sha256 *hash, const ls_element *base)
{
    for (int c = 0; c < base->count; c++) {
        const ls_array *a = &base->component[c];
        int64_t rows = a->shape.dims[0], elements = 0;
        if (rows == 0 || !ls_shape_count(&a->shape, 0, &elements))
            continue;
        size_t bytes = (size_t)(elements / rows) * ls_dtype_bytes(a->dtype);
        int64_t sampled = rows < SAMPLED ? rows : SAMPLED;
        for (int64_t i = 0; i < sampled; i++) {
            int64_t row = sampled > 1 ? i * (rows - 1) / (sampled - 1) : 0;
            LS_TRY(ls_sha256_add(hash, (const char *)a->data + (size_t)row * bytes, bytes));
        }
    }
    return LS_OK;
}

static ls_status hash_element(ls_sha256 *hash, const ls_element *element)
{
    for (int c = 0; c < element->count; c++) {
        const ls_array *a = &element->component[c];
        int64_t elements = 0;
        if (ls_shape_count(&a->shape, 0, &elements))
            LS_TRY(ls_sha256_add(hash, a->data, (size_t)elements * ls_dtype_bytes(a->dtype)));
    }
    return LS_OK;
}

/* Rows that are made on request cost time: a few are hashed. */
static ls_status hash_made(ls_sha256 *hash, const ls_dataset *maker)
{
    int64_t sampled = maker->count < SAMPLED_MADE ? maker->count : SAMPLED_MADE;
    ls_slot slot = { .is_row = false };
    ls_status status = LS_OK;
    for (int64_t i = 0; i < sampled && status == LS_OK; i++) {
        slot.is_row = true;
        slot.row = sampled > 1 ? i * (maker->count - 1) / (sampled - 1) : 0;
        status = ls_slot_show(&slot, maker);
        if (status == LS_OK)
            status = hash_element(hash, &slot.element);
    }
    ls_slot_free(&slot);
    return status;
}

static ls_status hash_order(ls_sha256 *hash, ls_rows *rows, int64_t *samples)
{
    const int64_t *list;
    int64_t count;
    for (*samples = 0; *samples < MOST_ROWS; *samples += count) {
        LS_TRY(ls_rows_next(rows, &list, &count));
        if (count == 0)
            return LS_OK;
        LS_TRY(ls_sha256_add(hash, list, (size_t)count * sizeof(*list)));
    }
    return LS_OK;
}

ls_status ls_identify_data(ls_dataset *dataset, ls_data_identity *out)
{
    ls_rows *rows = NULL;
    ls_sha256 *hash = NULL;
    *out = (ls_data_identity){ .samples = 0 };
    if (ls_is_from_worker(dataset))
        return ls_from_worker_identity(dataset, out);
    if (!dataset->origin && !dataset->maker)
        return LS_OK;
    LS_TRY(ls_rows_of_origin(dataset, 0, &rows));
    ls_status status = ls_sha256_begin(&hash);
    if (status == LS_OK)
        status = dataset->origin ? hash_rows(hash, dataset->origin) : hash_made(hash, dataset->maker);
    if (status == LS_OK)
        status = hash_order(hash, rows, &out->samples);
    ls_rows_destroy(rows);
    if (status == LS_OK)
        return ls_sha256_end(hash, out->sha256);
    ls_sha256_destroy(hash);
    return status;
}
