/* Slots, which hold elements. */
#include <string.h>

#include "base/grow.h"
#include "base/size.h"
#include "data/dataset.h"
#include "data/stream.h"
#include "graph/shape.h"

void ls_slot_free(ls_slot *slot)
{
    for (int i = 0; i < LS_MAX_COMPONENTS; i++)
        free(slot->memory[i]);
    free(slot->list);
    free(slot->key_list);
    *slot = (ls_slot){ .is_row = false };
}

void ls_slot_swap(ls_slot *a, ls_slot *b)
{
    ls_slot other = *a;
    *a = *b;
    *b = other;
}

ls_status ls_slot_reserve(ls_slot *slot, int index, size_t bytes, size_t keep)
{
    if (slot->memory[index] && slot->memory_bytes[index] >= bytes)
        return LS_OK;
    void *memory = ls_data_alloc(bytes);
    if (!memory)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu bytes of an element", bytes);
    if (keep > 0)
        memcpy(memory, slot->memory[index], keep);
    free(slot->memory[index]);
    slot->memory[index] = memory;
    slot->memory_bytes[index] = bytes;
    return LS_OK;
}

ls_status ls_slot_append_row(ls_slot *slot, int64_t row)
{
    LS_TRY(ls_grow(&slot->list, (size_t)slot->list_count, &slot->list_capacity, sizeof(*slot->list)));
    slot->list[slot->list_count++] = row;
    return LS_OK;
}

ls_status ls_slot_append_keys(ls_slot *slot, const ls_element_key keys[LS_MOST_MAPS])
{
    for (int i = 0; i < LS_MOST_MAPS; i++) {
        LS_TRY(ls_grow(&slot->key_list, slot->key_count, &slot->key_capacity, sizeof(*slot->key_list)));
        slot->key_list[slot->key_count++] = keys[i];
    }
    return LS_OK;
}

ls_status ls_slot_make(ls_slot *slot, const ls_element_spec *spec, int64_t batch)
{
    char text[LS_SHAPE_TEXT];
    slot->is_row = false;
    slot->element.count = spec->count;
    for (int i = 0; i < spec->count; i++) {
        ls_array *array = &slot->element.component[i];
        size_t bytes;
        array->dtype = spec->component[i].dtype;
        array->shape = ls_shape_at(&spec->component[i].shape, batch);
        if (!ls_data_bytes(array->dtype, &array->shape, &bytes))
            return ls_fail(LS_ERR_OVERFLOW, "an element of shape %s overflows", ls_shape_format(&array->shape, text));
        LS_TRY(ls_slot_reserve(slot, i, bytes, 0));
        array->data = slot->memory[i];
    }
    return LS_OK;
}

/* The view has one axis less. */
static ls_array row_of(const ls_array *array, int64_t row)
{
    ls_array view = { .dtype = array->dtype, .shape = { .rank = array->shape.rank - 1 } };
    int64_t count = 1;
    for (int i = 0; i < view.shape.rank; i++) {
        view.shape.dims[i] = array->shape.dims[i + 1];
        count *= view.shape.dims[i];
    }
    view.data = (char *)array->data + (size_t)row * (size_t)count * ls_dtype_bytes(array->dtype);
    return view;
}

ls_status ls_slot_show(ls_slot *slot, const ls_dataset *d)
{
    const ls_element *base = d->base;
    if (!slot->is_row)
        return LS_OK;
    if (!base) {
        LS_TRY(ls_slot_make(slot, &d->maker->spec, 0));
        return d->maker->type->make(d->maker, slot->row, slot);
    }
    slot->element.count = base->count;
    for (int i = 0; i < base->count; i++)
        slot->element.component[i] = row_of(&base->component[i], slot->row);
    return LS_OK;
}
