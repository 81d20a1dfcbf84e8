/* Reading tests/reference/training_*.json. */
#include "training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph_cases.h"

json_t *training_read(const char *name)
{
    char path[512];
    json_error_t error;
    const char *folder = getenv("LS_REFERENCE");
    snprintf(path, sizeof(path), "%s/training_%s.json", folder ? folder : "tests/reference", name);
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    return root;
}

training_array training_array_of(const json_t *described)
{
    const json_t *sizes = json_object_get(described, "shape"), *data = json_object_get(described, "data");
    const char *dtype = json_string_value(json_object_get(described, "dtype"));
    training_array a = { .dtype = dtype ? test_dtype(dtype) : LS_F32, .count = json_array_size(data) };
    a.shape.rank = (int)json_array_size(sizes);
    size_t expected = 1;
    for (int i = 0; i < a.shape.rank; i++) {
        a.shape.dims[i] = json_integer_value(json_array_get(sizes, (size_t)i));
        expected *= (size_t)a.shape.dims[i];
    }
    assert_int_equal(expected, a.count);
    a.bytes = a.count * ls_dtype_bytes(a.dtype);
    a.data = calloc(a.count + 1, ls_dtype_bytes(a.dtype));
    assert_non_null(a.data);
    for (size_t i = 0; i < a.count; i++)
        test_put_number(a.data, a.dtype, i, json_number_value(json_array_get(data, i)));
    return a;
}

double training_number(const json_t *object, const char *key, double absent)
{
    const json_t *value = json_object_get(object, key);
    return !value ? absent : json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
}

const char *training_string(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (!value)
        fail_msg("there is no %s", key);
    return value;
}

ls_tensor *training_input(ls_graph *graph, const training_array *array, bool batch)
{
    ls_shape shape = array->shape;
    if (batch)
        shape.dims[0] = LS_BATCH;
    return ls_op_input(graph, NULL, array->dtype, shape);
}

size_t training_compare(const char *what, const void *found, ls_dtype dtype, const json_t *expected, double tolerance)
{
    size_t wrong = 0, count = json_array_size(expected);
    for (size_t i = 0; i < count; i++) {
        double x = dtype == LS_F32 ? ((const float *)found)[i] : ((const double *)found)[i];
        double y = json_number_value(json_array_get(expected, i));
        if (fabs(x - y) <= tolerance * fmax(1, fabs(y)))
            continue;
        if (wrong++ == 0 && what)
            print_message("%s: element %zu is %.9g, %.9g was expected\n", what, i, x, y);
    }
    return wrong;
}
