/* JSON helpers over jansson. Callers use jansson directly for everything else. */
#include "base/json.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/names.h"
#include "base/numbers.h"
#include "base/size.h"
#include "base/status.h"
#include "base/text.h"

/* ---- Files ---- */

/* jansson rejects numbers that are too large but reads those that are too small as 0. `data` is
 * valid JSON. */
static ls_status check_small_numbers(const char *name, const char *data, size_t bytes)
{
    int line = 1;
    size_t line_begin = 0;
    for (size_t i = 0, end; i < bytes; i = end) {
        end = i + 1;
        if (data[i] == '\n') {
            line++;
            line_begin = end;
        } else if (data[i] == '"') {
            while (end < bytes && data[end] != '"')
                end += data[end] == '\\' ? 2 : 1;
            end++;
        } else if (data[i] == '-' || (data[i] >= '0' && data[i] <= '9')) {
            char number[64];
            while (end < bytes && strchr("+-.0123456789eE", data[end]) && data[end] != '\0')
                end++;
            snprintf(number, sizeof number, "%.*s", (int)(end - i < sizeof number ? end - i : sizeof number - 1),
                     data + i);
            if (ls_is_beyond_f64(number))
                return ls_fail(LS_ERR_DATA, "%s:%d:%zu: the number %s is out of range; a double can hold " LS_F64_RANGE,
                               name, line, i - line_begin + 1, number);
        }
    }
    return LS_OK;
}

/* Checks that there is memory to parse the text: when the buffer of a long word cannot grow,
 * jansson reads past the end of its text. Counts the buffer while it grows, the strings, and the
 * values by their separators. */
static bool has_room(const char *data, size_t bytes)
{
    size_t values = 1, words, room;
    for (size_t i = 0; i < bytes; i++)
        values += data[i] == ',' || data[i] == ':' || data[i] == '[' || data[i] == '{';
    if (!ls_size_mul(bytes, 4, &words) || !ls_size_mul(values, 64, &room) || !ls_size_add(room, words, &room))
        return false;
    void *volatile all = malloc(room); /* volatile, or the compiler removes both calls */
    free(all);
    return all != NULL;
}

ls_status ls_json_read_buffer(const char *name, const char *data, size_t bytes, json_t **out)
{
    json_error_t error;
    bool room = has_room(data, bytes);
    json_t *value = room ? json_loadb(data, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error) : NULL;
    if (!room || (value == NULL && json_error_code(&error) == json_error_out_of_memory))
        return ls_fail(LS_ERR_MEMORY, "no memory to read the JSON of %s (%zu bytes)", name, bytes);
    if (value == NULL)
        return ls_fail(LS_ERR_DATA, "%s:%d:%d: %s", name, error.line, error.column, error.text);
    ls_status status = check_small_numbers(name, data, bytes);
    if (status != LS_OK) {
        json_decref(value);
        return status;
    }
    *out = value;
    return LS_OK;
}

ls_status ls_json_read_file(const char *path, json_t **out)
{
    char *data = NULL;
    size_t bytes = 0;
    LS_TRY(ls_file_read(path, LS_JSON_FILE_LIMIT, &data, &bytes));
    ls_status status = ls_json_read_buffer(path, data, bytes, out);
    free(data);
    return status;
}

/* ---- Messages ---- */

static bool is_plain_key(const char *key)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return key[0] != '\0' && strspn(key, letters) == strlen(key);
}

/* config.layers[3]["odd key"].units */
static void put_path(ls_text *text, const ls_json_at *at)
{
    if (at->parent == NULL) {
        ls_text_put(text, at->key);
        return;
    }
    put_path(text, at->parent);
    if (at->key == NULL) {
        ls_text_add(text, "[%zu]", at->index);
    } else if (is_plain_key(at->key)) {
        ls_text_add(text, ".%s", at->key);
    } else {
        ls_text_put(text, "[");
        ls_text_put_json(text, at->key);
        ls_text_put(text, "]");
    }
}

ls_status ls_json_fail(const ls_json_at *at, ls_status status, const char *format, ...)
{
    ls_text text = { 0 };
    put_path(&text, at);
    ls_text_put(&text, ": ");
    va_list args;
    va_start(args, format);
    ls_text_add_v(&text, format, args);
    va_end(args);
    ls_fail(status, "%s", ls_text_get(&text));
    ls_text_free(&text);
    return status;
}

#define SHOWN 60 /* characters of a string to show in a message */

static void put_value(ls_text *text, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        ls_text_add(text, "an object of %zu keys", json_object_size(value));
        break;
    case JSON_ARRAY:
        ls_text_add(text, "an array of %zu", json_array_size(value));
        break;
    case JSON_STRING: {
        char start[SHOWN + 1];
        snprintf(start, sizeof start, "%s", json_string_value(value));
        ls_text_put(text, "the string ");
        ls_text_put_json(text, start);
        ls_text_put(text, json_string_length(value) > SHOWN ? "..." : "");
        break;
    }
    case JSON_INTEGER:
        ls_text_add(text, "the integer %" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        ls_text_put(text, "the number ");
        ls_text_put_f64(text, json_real_value(value));
        break;
    case JSON_TRUE:
        ls_text_put(text, "true");
        break;
    case JSON_FALSE:
        ls_text_put(text, "false");
        break;
    case JSON_NULL:
        ls_text_put(text, "null");
        break;
    }
}

static ls_status fail_type(const ls_json_at *at, const char *expected)
{
    ls_text found = { 0 };
    put_value(&found, at->value);
    ls_json_fail(at, LS_ERR_DATA, "expected %s, found %s", expected, ls_text_get(&found));
    ls_text_free(&found);
    return LS_ERR_DATA;
}

/* ---- Values ---- */

ls_json_at ls_json_root(const json_t *value, const char *name)
{
    return (ls_json_at){ .value = value, .key = name };
}

ls_status ls_json_i64(const ls_json_at *at, int64_t *out)
{
    if (!json_is_integer(at->value))
        return fail_type(at, "an integer");
    *out = json_integer_value(at->value);
    return LS_OK;
}

ls_status ls_json_f64(const ls_json_at *at, double *out)
{
    if (!json_is_number(at->value))
        return fail_type(at, "a number");
    *out = json_number_value(at->value);
    return LS_OK;
}

ls_status ls_json_bool(const ls_json_at *at, bool *out)
{
    if (!json_is_boolean(at->value))
        return fail_type(at, "true or false");
    *out = json_is_true(at->value);
    return LS_OK;
}

ls_status ls_json_string(const ls_json_at *at, const char **out)
{
    if (!json_is_string(at->value))
        return fail_type(at, "a string");
    *out = json_string_value(at->value);
    return LS_OK;
}

ls_status ls_json_is_object(const ls_json_at *at)
{
    return json_is_object(at->value) ? LS_OK : fail_type(at, "an object");
}

ls_status ls_json_is_array(const ls_json_at *at)
{
    return json_is_array(at->value) ? LS_OK : fail_type(at, "an array");
}

/* ---- Members and elements ---- */

bool ls_json_find(const ls_json_at *object, const char *key, ls_json_at *out)
{
    const json_t *value = json_object_get(object->value, key);
    if (value == NULL)
        return false;
    *out = (ls_json_at){ .value = value, .parent = object, .key = key };
    return true;
}

ls_status ls_json_get(const ls_json_at *object, const char *key, ls_json_at *out)
{
    LS_TRY(ls_json_is_object(object));
    if (!ls_json_find(object, key, out)) {
        ls_json_at missing = { .parent = object, .key = key };
        ls_json_fail(&missing, LS_ERR_DATA, "missing");
        return LS_ERR_DATA; /* lets compilers see that `out` is set otherwise */
    }
    return LS_OK;
}

#define DEFINE_GET(name, type)                                                                                         \
    ls_status ls_json_get_##name(const ls_json_at *object, const char *key, type *out)                                 \
    {                                                                                                                  \
        ls_json_at at;                                                                                                 \
        LS_TRY(ls_json_get(object, key, &at));                                                                         \
        return ls_json_##name(&at, out);                                                                               \
    }                                                                                                                  \
                                                                                                                       \
    ls_status ls_json_opt_##name(const ls_json_at *object, const char *key, type *out)                                 \
    {                                                                                                                  \
        ls_json_at at;                                                                                                 \
        LS_TRY(ls_json_is_object(object));                                                                             \
        if (!ls_json_find(object, key, &at) || json_is_null(at.value))                                                 \
            return LS_OK;                                                                                              \
        return ls_json_##name(&at, out);                                                                               \
    }

DEFINE_GET(i64, int64_t)
DEFINE_GET(f64, double)
DEFINE_GET(bool, bool)
DEFINE_GET(string, const char *)

ls_status ls_json_get_object(const ls_json_at *object, const char *key, ls_json_at *out)
{
    ls_json_at at;
    LS_TRY(ls_json_get(object, key, &at));
    LS_TRY(ls_json_is_object(&at));
    *out = at;
    return LS_OK;
}

ls_status ls_json_get_array(const ls_json_at *object, const char *key, ls_json_at *out)
{
    ls_json_at at;
    LS_TRY(ls_json_get(object, key, &at));
    LS_TRY(ls_json_is_array(&at));
    *out = at;
    return LS_OK;
}

size_t ls_json_count(const ls_json_at *array)
{
    return json_array_size(array->value);
}

ls_status ls_json_element(const ls_json_at *array, size_t index, ls_json_at *out)
{
    LS_TRY(ls_json_is_array(array));
    const json_t *value = json_array_get(array->value, index);
    if (value == NULL)
        return ls_json_fail(array, LS_ERR_DATA, "there is no element %zu: the array has %zu elements", index,
                            ls_json_count(array));
    *out = (ls_json_at){ .value = value, .parent = array, .index = index };
    return LS_OK;
}

ls_status ls_json_known_keys(const ls_json_at *object, const char *const *known, size_t n)
{
    LS_TRY(ls_json_is_object(object));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object->value, key, value)
    {
        bool found = false;
        for (size_t i = 0; i < n && !found; i++)
            found = strcmp(key, known[i]) == 0;
        if (found)
            continue;
        ls_json_at unknown = { .value = value, .parent = object, .key = key };
        return ls_json_fail(&unknown, LS_ERR_DATA, "unknown key%s",
                            n ? ls_advise_name(key, known, n).text : "; this object must be empty");
    }
    return LS_OK;
}

/* ---- Comparison ---- */

typedef struct comparison {
    ls_json_differs differs;
    void *user;
} comparison;

static void compare(const comparison *c, const char *within, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    char path[160];
    json_object_foreach((json_t *)a, key, value)
    {
        const json_t *other = json_object_get(b, key);
        bool both = json_is_object(value) && json_is_object(other);
        snprintf(path, sizeof(path), "%s%s%s", within, key, both ? "/" : "");
        if (both)
            compare(c, path, value, other);
        else if (!other || !json_equal(value, other))
            c->differs(c->user, path, value, other);
    }
    json_object_foreach((json_t *)b, key, value)
    {
        snprintf(path, sizeof(path), "%s%s", within, key);
        if (!json_object_get(a, key))
            c->differs(c->user, path, NULL, value);
    }
}

void ls_json_compare(const json_t *a, const json_t *b, ls_json_differs differs, void *user)
{
    compare(&(comparison){ differs, user }, "", a, b);
}

const char *ls_json_show(const json_t *value, char text[LS_JSON_SHORT])
{
    if (json_is_real(value))
        return ls_format_f64(json_real_value(value), text);
    char *whole = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    snprintf(text, LS_JSON_SHORT, "%.40s%s", whole ? whole : "nothing", whole && strlen(whole) > 40 ? "..." : "");
    free(whole);
    return text;
}
