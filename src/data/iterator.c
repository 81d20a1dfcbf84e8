/* Passes over datasets: cursors, and the public iterators and rows. */
#include <string.h>

#include "base/fpmode.h"
#include "data/on_demand.h"

/* ---- Cursors ---- */

void ls_cursor_destroy(ls_cursor *cursor)
{
    if (!cursor)
        return;
    if (cursor->state && cursor->dataset->type->end)
        /* First, because its threads may use the source. */
        cursor->dataset->type->end(cursor);
    ls_cursor_destroy(cursor->source);
    free(cursor->state);
    free(cursor);
}

ls_status ls_cursor_create(ls_dataset *dataset, uint64_t epoch, bool as_rows, ls_cursor **out)
{
    while (as_rows && dataset->type == &ls_type_prefetch)
        dataset = dataset->source; /* row numbers need no thread */
    ls_cursor *cursor = calloc(1, sizeof *cursor);
    if (cursor)
        cursor->state = calloc(1, dataset->type->state_bytes);
    if (!cursor || !cursor->state) {
        free(cursor);
        return ls_fail(LS_ERR_MEMORY, "%s: no memory to iterate", dataset->type->name);
    }
    cursor->dataset = dataset;
    cursor->epoch = epoch;
    cursor->as_rows = as_rows;
    ls_status status = LS_OK;
    /* Repeat creates a cursor for each pass. */
    if (dataset->source && dataset->type != &ls_type_repeat)
        status = ls_cursor_create(dataset->source, epoch, as_rows, &cursor->source);
    if (status == LS_OK && dataset->type->begin)
        status = dataset->type->begin(cursor);
    if (status != LS_OK) {
        ls_cursor_destroy(cursor);
        return status;
    }
    *out = cursor;
    return LS_OK;
}

/* ---- A pass: dataset reference, slot and end ---- */

struct ls_iterator {
    ls_dataset *dataset;
    ls_cursor *cursor;
    ls_slot slot;
    uint64_t epoch;
    int64_t number;
    bool ended;
    ls_status status;
    char *message;
};

struct ls_rows {
    ls_iterator pass;
};

static ls_status open_pass(ls_iterator *pass, ls_dataset *dataset, uint64_t epoch, bool as_rows)
{
    LS_TRY(ls_cursor_create(dataset, epoch, as_rows, &pass->cursor));
    pass->dataset = ls_dataset_share(dataset);
    pass->epoch = epoch;
    return LS_OK;
}

static void close_pass(ls_iterator *pass)
{
    ls_cursor_destroy(pass->cursor);
    ls_slot_free(&pass->slot);
    ls_dataset_destroy(pass->dataset);
    free(pass->message);
}

static ls_status next_in_pass(ls_iterator *pass)
{
    if (pass->status == LS_OK && !pass->ended) {
        pass->status = ls_cursor_next(pass->cursor, &pass->slot, &pass->ended);
        if (pass->status != LS_OK)
            pass->message = strdup(ls_last_error());
    }
    if (pass->status != LS_OK)
        return ls_fail(pass->status, "%s", pass->message ? pass->message : "no memory for an error message");
    return LS_OK;
}

/* Like an error of the pass, one of making a row stays. */
static ls_status show(ls_iterator *pass)
{
    pass->status = ls_slot_show(&pass->slot, pass->dataset);
    if (pass->status != LS_OK)
        pass->message = strdup(ls_last_error());
    return pass->status;
}

/* ---- Iterators ---- */

ls_status ls_iterator_create(ls_dataset *dataset, uint64_t epoch, ls_iterator **out)
{
    LS_OWN_FP_MODE;
    LS_TRY(ls_dataset_prepare(dataset));
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_iterator_create: out is NULL");
    ls_iterator *iterator = calloc(1, sizeof *iterator);
    if (!iterator)
        return ls_fail(LS_ERR_MEMORY, "no memory for an iterator");
    ls_status status = open_pass(iterator, dataset, epoch, false);
    if (status == LS_OK)
        *out = iterator;
    else
        free(iterator);
    return status;
}

ls_status ls_iterator_next(ls_iterator *iterator, const ls_element **out)
{
    LS_OWN_FP_MODE;
    if (!iterator || !out)
        return ls_fail(LS_ERR_INVALID, "ls_iterator_next: iterator or out is NULL");
    LS_TRY(next_in_pass(iterator));
    if (iterator->ended) {
        *out = NULL;
        return LS_OK;
    }
    LS_TRY(show(iterator));
    iterator->slot.element.epoch = iterator->epoch;
    iterator->slot.element.number = iterator->number++;
    *out = &iterator->slot.element;
    return LS_OK;
}

void ls_iterator_destroy(ls_iterator *iterator)
{
    if (!iterator)
        return;
    close_pass(iterator);
    free(iterator);
}

/* ---- Rows ---- */

ls_status ls_rows_of_origin(ls_dataset *dataset, uint64_t epoch, ls_rows **out)
{
    ls_rows *rows = calloc(1, sizeof *rows);
    if (!rows)
        return ls_fail(LS_ERR_MEMORY, "no memory for rows");
    ls_status status = open_pass(&rows->pass, dataset, epoch, true);
    if (status == LS_OK)
        *out = rows;
    else
        free(rows);
    return status;
}

ls_status ls_rows_create(ls_dataset *dataset, uint64_t epoch, ls_rows **out)
{
    LS_OWN_FP_MODE;
    LS_TRY(ls_dataset_prepare(dataset));
    if (!out)
        return ls_fail(LS_ERR_INVALID, "ls_rows_create: out is NULL");
    if (!dataset->base)
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "the elements are not rows of arrays in memory: the dataset has a map, a generator or a batch of "
            "batches");
    return ls_rows_of_origin(dataset, epoch, out);
}

const ls_element *ls_rows_base(const ls_rows *rows)
{
    return rows ? rows->pass.dataset->origin : NULL;
}

ls_status ls_rows_next(ls_rows *rows, const int64_t **list, int64_t *count)
{
    LS_OWN_FP_MODE;
    if (!rows || !list || !count)
        return ls_fail(LS_ERR_INVALID, "ls_rows_next: rows, list or count is NULL");
    LS_TRY(next_in_pass(&rows->pass));
    const ls_slot *slot = &rows->pass.slot;
    *list = slot->is_row ? &slot->row : slot->list;
    *count = rows->pass.ended ? 0 : slot->is_row ? 1 : slot->list_count;
    return LS_OK;
}

void ls_rows_destroy(ls_rows *rows)
{
    if (!rows)
        return;
    close_pass(&rows->pass);
    free(rows);
}
