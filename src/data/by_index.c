/* Datasets that make any of their elements on request: a user's function, and two datasets as one.
 * Nodes above them handle row numbers; ls_slot_show makes the element. */
#include <string.h>

#include "data/dataset.h"
#include "data/stream.h"
#include "graph/shape.h"

/* ---- Rows ---- */

int64_t ls_same_index(const ls_dataset *d, int64_t index)
{
    (void)d;
    return index;
}

bool ls_dataset_row_of(const ls_dataset *d, int64_t index, int64_t *row)
{
    for (; d; d = d->source) {
        if (!d->type->index_of)
            return false;
        index = d->type->index_of(d, index);
        if (d->maker == d) /* the row is its own, not one of its source */
            break;
    }
    *row = index;
    return true;
}

ls_status ls_next_row(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    int64_t *row = cursor->state;
    *end = *row >= cursor->dataset->count;
    slot->is_row = true;
    slot->list_count = 0;
    slot->row = *row;
    *row += !*end;
    return LS_OK;
}

/* ---- A function ---- */

static ls_status prepare_function(ls_dataset *d)
{
    d->count = d->u.function.count;
    d->maker = d;
    return ls_element_spec_check(&d->spec, false, d->type->name);
}

static ls_status call_function(const ls_dataset *d, int64_t row, ls_slot *slot)
{
    /* A copy: the function may write to the arrays but not replace them. */
    ls_element given = slot->element;
    given.epoch = 0;
    given.number = row;
    ls_clear_error();
    ls_status status = d->u.function.function(d->u.function.user, &given);
    return ls_fail_within(status, "the function of ls_from_function failed at element %lld", (long long)row);
}

static const ls_dataset_type type_function = { .name = "ls_from_function",
                                               .prepare = prepare_function,
                                               .state_bytes = sizeof(int64_t),
                                               .next = ls_next_row,
                                               .make = call_function,
                                               .index_of = ls_same_index };

ls_dataset *ls_from_function(int64_t count, ls_element_spec spec, ls_element_function function, void *user)
{
    ls_dataset *d = ls_dataset_node(&type_function, NULL);
    if (ls_dataset_is_lost(d))
        return d;
    if (!function)
        return ls_dataset_fail(d, LS_ERR_INVALID, "ls_from_function: the function is NULL");
    if (count < 0)
        return ls_dataset_fail(d, LS_ERR_INVALID,
                               "ls_from_function: the number of elements must be at least 0 (got %lld)",
                               (long long)count);
    spec.batch = 0;
    d->u.function.function = function;
    d->u.function.user = user;
    d->u.function.count = count;
    d->spec = spec;
    return d;
}

/* ---- Two datasets as one ---- */

static ls_dataset *second_of(const ls_dataset *d)
{
    return d->u.concatenation.second;
}

static ls_status check_specs(const ls_element_spec *a, const ls_element_spec *b)
{
    char first[LS_SHAPE_TEXT], second[LS_SHAPE_TEXT];
    if (a->count != b->count || a->features != b->features || a->labels != b->labels || a->batch != b->batch)
        return ls_fail(LS_ERR_SHAPE,
                       "ls_concatenate_datasets: the first dataset has %d components (%d features, %d labels) in "
                       "batches of %lld, the second %d (%d, %d) in batches of %lld",
                       a->count, a->features, a->labels, (long long)a->batch, b->count, b->features, b->labels,
                       (long long)b->batch);
    for (int i = 0; i < a->count; i++) {
        const ls_spec *x = &a->component[i], *y = &b->component[i];
        bool same = x->dtype == y->dtype && x->shape.rank == y->shape.rank;
        for (int k = 0; same && k < x->shape.rank; k++)
            same = x->shape.dims[k] == y->shape.dims[k];
        if (!same)
            return ls_fail(
                LS_ERR_SHAPE,
                "ls_concatenate_datasets: component %d is %s %s in the first dataset and %s %s in the second", i,
                ls_dtype_name(x->dtype), ls_shape_format(&x->shape, first), ls_dtype_name(y->dtype),
                ls_shape_format(&y->shape, second));
    }
    return LS_OK;
}

static bool has_row_of(const ls_dataset *d)
{
    int64_t row;
    return ls_dataset_in_rows(d) && d->count >= 0 && ls_dataset_row_of(d, 0, &row);
}

static ls_status prepare_concatenation(ls_dataset *d)
{
    const ls_dataset *first = d->source, *second = second_of(d);
    LS_TRY(ls_dataset_prepare(second_of(d)));
    LS_TRY(check_specs(&first->spec, &second->spec));
    d->spec = first->spec;
    d->shuffles = first->shuffles > second->shuffles ? first->shuffles : second->shuffles;
    d->together = first->together || second->together;
    d->left_out = first->left_out + second->left_out;
    d->count = first->count < 0 ? first->count : second->count;
    if (first->count >= 0 && second->count > INT64_MAX - first->count)
        return ls_fail(LS_ERR_OVERFLOW, "ls_concatenate_datasets: too many elements to count");
    if (first->count >= 0 && second->count >= 0)
        d->count = first->count + second->count;
    if (!has_row_of(first) || !has_row_of(second))
        return LS_OK;
    d->maker = d;
    for (int i = 0; i < 2; i++) {
        const ls_dataset *maker = i ? second->maker : first->maker;
        if (maker && maker->make_threads > d->make_threads)
            d->make_threads = maker->make_threads;
    }
    return LS_OK;
}

/* Copies rows of arrays, so that the slot owns its element. */
static ls_status make_row(const ls_dataset *d, int64_t row, ls_slot *slot)
{
    const ls_dataset *from = row < d->source->count ? d->source : second_of(d);
    int64_t place = 0;
    ls_dataset_row_of(from, row - (from == d->source ? 0 : d->source->count), &place);
    if (from->maker)
        return from->maker->type->make(from->maker, place, slot);
    ls_slot view = { .is_row = true, .row = place };
    LS_TRY(ls_slot_show(&view, from));
    for (int i = 0; i < d->spec.count; i++) {
        const ls_array *array = &view.element.component[i];
        size_t bytes = 0;
        ls_data_bytes(array->dtype, &array->shape, &bytes); /* cannot overflow: the array exists */
        if (bytes)
            memcpy(slot->element.component[i].data, array->data, bytes);
    }
    return LS_OK;
}

/* When elements are not rows: a pass over one dataset, then over the other. */
typedef struct pass_state {
    int64_t row;
    ls_cursor *second;
} pass_state;

/* Nodes above cannot tell whose row a slot holds: it holds the element instead. */
static ls_status show_element(ls_slot *slot, const ls_dataset *from)
{
    LS_TRY(ls_slot_show(slot, from));
    slot->is_row = false;
    return LS_OK;
}

static ls_status next_of_two(ls_cursor *cursor, ls_slot *slot, bool *end)
{
    pass_state *state = cursor->state;
    const ls_dataset *d = cursor->dataset;
    if (d->maker == d)
        return ls_next_row(cursor, slot, end);
    if (!state->second) {
        LS_TRY(ls_cursor_next(cursor->source, slot, end));
        if (!*end)
            return show_element(slot, d->source);
        LS_TRY(ls_cursor_create(second_of(d), cursor->epoch, cursor->as_rows, &state->second));
    }
    LS_TRY(ls_cursor_next(state->second, slot, end));
    return *end ? LS_OK : show_element(slot, second_of(d));
}

static void end_pass(ls_cursor *cursor)
{
    ls_cursor_destroy(((pass_state *)cursor->state)->second);
}

static void destroy_second(ls_dataset *d)
{
    ls_dataset_destroy(second_of(d));
}

static const ls_dataset_type type_concatenation = { .name = "ls_concatenate_datasets",
                                                    .prepare = prepare_concatenation,
                                                    .destroy = destroy_second,
                                                    .state_bytes = sizeof(pass_state),
                                                    .next = next_of_two,
                                                    .end = end_pass,
                                                    .make = make_row,
                                                    .index_of = ls_same_index };

ls_dataset *ls_concatenate_datasets(ls_dataset *first, ls_dataset *second)
{
    bool built;
    ls_dataset *d = ls_dataset_over(&type_concatenation, first, &built);
    if (!built) {
        ls_dataset_destroy(second);
        return d;
    }
    d->u.concatenation.second = second;
    if (!second)
        ls_dataset_fail(d, LS_ERR_INVALID, "ls_concatenate_datasets: the second dataset is NULL");
    return d;
}
