/* Batches: elements copied together along a new axis 0, or lists of row numbers when iterating
 * rows. */
#include <string.h>

#include "base/size.h"
#include "data/dataset.h"
#include "data/stream.h"
#include "graph/shape.h"

#define FIRST_CAPACITY 1024 /* initial samples if the source's count is unknown */

typedef struct batch_state {
    ls_slot one;
    int64_t capacity; /* capacity in samples of the slot being filled */
    bool drained;
} batch_state;

static ls_status prepare_batch(ls_dataset *d)
{
    char text[LS_SHAPE_TEXT];
    int64_t size = d->u.batch.size;
    const ls_dataset *source = d->source;
    d->spec = source->spec;
    for (int i = 0; i < d->spec.count; i++) {
        ls_shape *shape = &d->spec.component[i].shape;
        if (shape->rank > 0 && shape->dims[0] == LS_BATCH)
            return ls_fail(
                LS_ERR_SHAPE,
                "ls_batch: component %d has shape %s: batches can be batched again only if all have the same size; "
                "set drop_remainder in the first ls_batch",
                i, ls_shape_format(shape, text));
        if (shape->rank == LS_MAX_RANK)
            return ls_fail(LS_ERR_SHAPE, "ls_batch: component %d already has %d axes, the largest number", i,
                           shape->rank);
        memmove(shape->dims + 1, shape->dims, (size_t)shape->rank * sizeof *shape->dims);
        shape->dims[0] = d->u.batch.drop_remainder ? size : LS_BATCH;
        shape->rank++;
    }
    d->count = source->count;
    if (d->count > 0)
        d->count = d->count / size + (!d->u.batch.drop_remainder && d->count % size != 0);
    d->base = source->spec.batch == 0 ? source->base : NULL;
    d->origin = source->spec.batch == 0 ? source->origin : NULL;
    d->maker = source->spec.batch == 0 ? source->maker : NULL;
    d->maps = source->maps;
    d->spec.batch = size;
    return LS_OK;
}

static size_t sample_bytes(const ls_dataset *d, int component)
{
    const ls_spec *spec = &d->source->spec.component[component];
    size_t bytes = 0;
    ls_data_bytes(spec->dtype, &spec->shape, &bytes); /* checked when the source was prepared */
    return bytes;
}

/* Makes room for one more sample after `have` samples. */
static ls_status make_room(ls_cursor *cursor, ls_slot *slot, int64_t have)
{
    batch_state *state = cursor->state;
    const ls_dataset *d = cursor->dataset;
    int64_t capacity = d->u.batch.size, coming = d->source->count >= 0 ? d->source->count : FIRST_CAPACITY;
    if (have < state->capacity)
        return LS_OK;
    if (have > 0)
        coming = have * 2;
    if (capacity > coming && coming > have)
        capacity = coming;
    for (int i = 0; i < d->spec.count; i++) {
        size_t one = sample_bytes(d, i), bytes;
        if (!ls_size_mul((size_t)capacity, one, &bytes))
            return ls_fail(LS_ERR_OVERFLOW, "ls_batch: a batch of %lld samples overflows", (long long)capacity);
        LS_TRY(ls_slot_reserve(slot, i, bytes, (size_t)have * one));
    }
    state->capacity = capacity;
    return LS_OK;
}

static ls_status put(ls_cursor *cursor, ls_slot *slot, int64_t at)
{
    batch_state *state = cursor->state;
    const ls_dataset *d = cursor->dataset;
    if (cursor->as_rows && d->maps > 0)
        LS_TRY(ls_slot_append_keys(slot, state->one.keys));
    if (cursor->as_rows)
        return ls_slot_append_row(slot, state->one.row);
    LS_TRY(make_room(cursor, slot, at));
    LS_TRY(ls_slot_show(&state->one, d->source));
    for (int i = 0; i < d->spec.count; i++) {
        size_t bytes = sample_bytes(d, i);
        if (bytes)
            memcpy((char *)slot->memory[i] + (size_t)at * bytes, state->one.element.component[i].data, bytes);
    }
    return LS_OK;
}

static void finish(const ls_cursor *cursor, ls_slot *slot, int64_t count)
{
    const ls_dataset *d = cursor->dataset;
    slot->element.count = d->spec.count;
    for (int i = 0; i < d->spec.count; i++) {
        const ls_spec *spec = &d->spec.component[i];
        slot->element.component[i] =
            (ls_array){ .data = slot->memory[i], .dtype = spec->dtype, .shape = ls_shape_at(&spec->shape, count) };
    }
}

static ls_status next_batch(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    batch_state *state = cursor->state;
    const ls_dataset *d = cursor->dataset;
    int64_t count = 0;
    slot->is_row = false;
    slot->list_count = 0;
    slot->key_count = 0;
    state->capacity = 0; /* the caller may pass another slot each time */
    while (!state->drained && count < d->u.batch.size) {
        LS_TRY(ls_cursor_next(cursor->source, &state->one, &state->drained));
        if (state->drained)
            break;
        LS_TRY(put(cursor, slot, count));
        count++;
    }
    *end = count == 0 || (d->u.batch.drop_remainder && count < d->u.batch.size);
    if (!*end && !cursor->as_rows)
        finish(cursor, slot, count);
    return LS_OK;
}

static void end_batch(ls_cursor *cursor)
{
    ls_slot_free(&((batch_state *)cursor->state)->one);
}

static const ls_dataset_type type_batch = { .name = "ls_batch",
                                            .prepare = prepare_batch,
                                            .next = next_batch,
                                            .end = end_batch,
                                            .state_bytes = sizeof(batch_state) };

ls_dataset *ls_batch(ls_dataset *source, int64_t size, bool drop_remainder)
{
    bool built;
    ls_dataset *d = ls_dataset_over(&type_batch, source, &built);
    if (!built)
        return d;
    d->u.batch.size = size;
    d->u.batch.drop_remainder = drop_remainder;
    if (size < 1)
        ls_dataset_fail(d, LS_ERR_INVALID, "ls_batch: the batch size must be at least 1 (got %lld)", (long long)size);
    return d;
}
