/* Reads and writes lists in the configs of Keras's layers: axes, numbers and sizes. */
#include <stdlib.h>

#include "base/grow.h"
#include "base/status.h"
#include "nn/keras_keys.h"

/* ---- Axes ---- */

ls_status ls_keras_read_axes(const ls_json_at *at, ls_axes *out)
{
    ls_json_at element = *at;
    bool list = json_is_array(at->value);
    size_t count = list ? ls_json_count(at) : json_is_null(at->value) ? 0 : 1;
    if (count > LS_MAX_RANK)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "%zu axes; at most %d are supported", count, LS_MAX_RANK);
    *out = (ls_axes){ .count = (int)count };
    for (size_t i = 0; i < count; i++) {
        if (list)
            LS_TRY(ls_json_element(at, i, &element));
        LS_TRY(ls_json_i64(&element, &out->axis[i]));
        if (out->axis[i] == 0)
            return ls_json_fail(at, LS_ERR_UNSUPPORTED, "axis 0 is the batch axis; use another");
    }
    return LS_OK;
}

json_t *ls_keras_write_axes(const ls_axes *axes)
{
    json_t *list = axes->count > 0 ? json_array() : json_null();
    for (int i = 0; i < axes->count; i++)
        json_array_append_new(list, json_integer(axes->axis[i]));
    return list;
}

/* Reads 1, or [1, 2] for an axis of each input. */
ls_status ls_keras_read_dot_axes(const ls_json_at *at, ls_layer_options *out)
{
    ls_axes axes;
    LS_TRY(ls_keras_read_axes(at, &axes));
    if (axes.count < 1 || axes.count > 2)
        return ls_json_fail(at, LS_ERR_DATA, "expected one axis or two, found %d", axes.count);
    out->first = axes.axis[0];
    out->second = axes.count == 2 ? axes.axis[1] : 0;
    return LS_OK;
}

json_t *ls_keras_write_dot_axes(const ls_layer_options *options)
{
    return options->second ? json_pack("[I, I]", (json_int_t)options->first, (json_int_t)options->second)
                           : json_integer(options->first);
}

/* ---- Numbers ---- */

typedef struct number_list {
    double *values;
    size_t count, room;
} number_list;

/* A size of 1 in a nested list would be broadcast, which a flat list cannot express. */
static ls_status add_numbers(const ls_json_at *at, bool nested, number_list *list)
{
    ls_json_at element;
    double number;
    if (!json_is_array(at->value)) {
        LS_TRY(ls_json_f64(at, &number));
        LS_TRY(ls_grow(&list->values, list->count, &list->room, sizeof(*list->values)));
        list->values[list->count++] = number;
        return LS_OK;
    }
    size_t count = ls_json_count(at);
    LS_TRY(count > 0 ? ls_json_element(at, 0, &element) : ls_json_fail(at, LS_ERR_DATA, "the list is empty"));
    if (count == 1 && (nested || json_is_array(element.value)))
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "a nested list with one element is not supported; repeat it");
    for (size_t i = 0; i < count; i++) {
        LS_TRY(ls_json_element(at, i, &element));
        LS_TRY(add_numbers(&element, true, list));
    }
    return LS_OK;
}

/* The JSON tree keeps the values in a string beside the list, since a spec does not own memory. */
static ls_status keep_in_tree(const ls_json_at *at, const number_list *list, ls_numbers *out)
{
    char key[64];
    snprintf(key, sizeof(key), "values of %.40s", at->key);
    json_t *bytes = json_stringn_nocheck((const char *)list->values, list->count * sizeof(double));
    if (!bytes || json_object_set_new_nocheck((json_t *)at->parent->value, key, bytes) != 0)
        return ls_fail(LS_ERR_MEMORY, "no memory for %zu numbers", list->count);
    *out = (ls_numbers){ (int64_t)list->count, (const double *)(const void *)json_string_value(bytes) };
    return LS_OK;
}

ls_status ls_keras_read_numbers(const ls_json_at *at, ls_numbers *out)
{
    number_list list = { 0 };
    if (json_is_null(at->value))
        return LS_OK;
    ls_status status = add_numbers(at, false, &list);
    if (status == LS_OK)
        status = keep_in_tree(at, &list, out);
    free(list.values);
    return status;
}

/* Writes a list; Keras reads 1 number as a list, too, if there is an axis. */
json_t *ls_keras_write_numbers(const ls_numbers *numbers)
{
    if (numbers->count <= 1)
        return numbers->count == 0 ? json_null() : json_real(numbers->values[0]);
    json_t *list = json_array();
    for (int64_t i = 0; i < numbers->count; i++)
        json_array_append_new(list, json_real(numbers->values[i]));
    return list;
}

/* ---- The shape of dropout's mask ---- */

ls_status ls_keras_read_noise_shape(const ls_json_at *at, ls_shape *out)
{
    ls_json_at element;
    if (json_is_null(at->value))
        return LS_OK;
    LS_TRY(ls_json_is_array(at));
    size_t count = ls_json_count(at);
    if (count < 2 || count > LS_MAX_RANK)
        return ls_json_fail(at, LS_ERR_UNSUPPORTED, "%zu sizes; 2 to %d are supported", count, LS_MAX_RANK);
    LS_TRY(ls_json_element(at, 0, &element));
    if (!json_is_null(element.value))
        return ls_json_fail(&element, LS_ERR_UNSUPPORTED,
                            "one mask for several samples is not supported; must be null");
    *out = (ls_shape){ .rank = (int)count - 1 };
    for (int i = 0; i < out->rank; i++) {
        LS_TRY(ls_json_element(at, (size_t)i + 1, &element));
        out->dims[i] = -1;
        if (!json_is_null(element.value))
            LS_TRY(ls_json_i64(&element, &out->dims[i]));
    }
    return LS_OK;
}

json_t *ls_keras_write_noise_shape(const ls_shape *shape)
{
    json_t *list = shape->rank > 0 ? json_pack("[n]") : json_null();
    for (int i = 0; i < shape->rank; i++)
        json_array_append_new(list, shape->dims[i] < 0 ? json_null() : json_integer(shape->dims[i]));
    return list;
}
