/* JSON through jansson. Every error message contains the path of the value.
 *
 * An ls_json_at is a value with its path: it lives on the stack and points to its parent. Values
 * are borrowed from the root, which the caller owns (json_decref).
 *
 *     ls_json_at config = ls_json_root(root, "config"), layer;
 *     LS_TRY(ls_json_get_object(&config, "layer", &layer));
 *     LS_TRY(ls_json_get_i64(&layer, "units", &units));
 *     -> config.layer.units: expected an integer, found the string "x" */
#ifndef LS_BASE_JSON_H
#define LS_BASE_JSON_H

#include <jansson.h>

#include "lockstep/base.h"

#define LS_JSON_FILE_LIMIT ((size_t)256 << 20)

/* Errors name the file (or `name`), line and column. A repeated key is an error. */
ls_status ls_json_read_file(const char *path, json_t **out);
ls_status ls_json_read_buffer(const char *name, const char *data, size_t bytes, json_t **out);

typedef struct ls_json_at {
    const json_t *value;
    const struct ls_json_at *parent; /* NULL: this is the root */
    const char *key;                 /* name of the root or key; NULL: array element */
    size_t index;                    /* position in the array, for elements */
} ls_json_at;

ls_json_at ls_json_root(const json_t *value, const char *name);

/* Fails with "PATH: message". */
ls_status ls_json_fail(const ls_json_at *at, ls_status status, const char *format, ...) LS_PRINTF(3, 4);

/* Reals accept integers; integers do not accept reals. */
ls_status ls_json_i64(const ls_json_at *at, int64_t *out);
ls_status ls_json_f64(const ls_json_at *at, double *out);
ls_status ls_json_bool(const ls_json_at *at, bool *out);
ls_status ls_json_string(const ls_json_at *at, const char **out); /* valid as long as the root */
ls_status ls_json_is_object(const ls_json_at *at);
ls_status ls_json_is_array(const ls_json_at *at);

/* Required members. */
ls_status ls_json_get(const ls_json_at *object, const char *key, ls_json_at *out);
ls_status ls_json_get_i64(const ls_json_at *object, const char *key, int64_t *out);
ls_status ls_json_get_f64(const ls_json_at *object, const char *key, double *out);
ls_status ls_json_get_bool(const ls_json_at *object, const char *key, bool *out);
ls_status ls_json_get_string(const ls_json_at *object, const char *key, const char **out);
ls_status ls_json_get_object(const ls_json_at *object, const char *key, ls_json_at *out);
ls_status ls_json_get_array(const ls_json_at *object, const char *key, ls_json_at *out);

/* If the key is absent or null, *out is unchanged. */
ls_status ls_json_opt_i64(const ls_json_at *object, const char *key, int64_t *out);
ls_status ls_json_opt_f64(const ls_json_at *object, const char *key, double *out);
ls_status ls_json_opt_bool(const ls_json_at *object, const char *key, bool *out);
ls_status ls_json_opt_string(const ls_json_at *object, const char *key, const char **out);
/* Whether `object` is an object that has the key; true for a null value. */
bool ls_json_find(const ls_json_at *object, const char *key, ls_json_at *out);

/* 0 if the value is not an array. */
size_t ls_json_count(const ls_json_at *array);
ls_status ls_json_element(const ls_json_at *array, size_t index, ls_json_at *out);

/* Fails for a key that is not in `known`, and suggests the nearest one. */
ls_status ls_json_known_keys(const ls_json_at *object, const char *const *known, size_t n);

/* Calls `differs` for each difference between two objects, recursively, with its path
 * ("data/batches"). A missing value is NULL. */
typedef void (*ls_json_differs)(void *user, const char *path, const json_t *a, const json_t *b);
void ls_json_compare(const json_t *a, const json_t *b, ls_json_differs differs, void *user);

/* Short text of a value; NULL becomes "nothing". */
#define LS_JSON_SHORT 64
const char *ls_json_show(const json_t *value, char text[LS_JSON_SHORT]);

#endif
