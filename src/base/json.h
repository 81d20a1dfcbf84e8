/* JSON through jansson: reading with clear errors, values taken with the path of their key in every message, writing.
 *
 * A place (ls_json_at) is a value together with the way to it. Places live on the caller's stack; a place points to the
 * one it was taken from, and the values are borrowed from the root, which the caller owns (json_decref).
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

/* An error names the file (or `name`), line and column. A key given twice is an error. */
ls_status ls_json_read_file(const char *path, json_t **out);
ls_status ls_json_read_buffer(const char *name, const char *data, size_t bytes, json_t **out);

/* Indented by 2, keys in the order they were set, a newline at the end; replaces the file as ls_file_write does. */
ls_status ls_json_write_file(const char *path, const json_t *value);

typedef struct ls_json_at {
    const json_t *value;
    const struct ls_json_at *parent; /* NULL at the root */
    const char *key;                 /* the root's name, or this value's key; NULL for an element of an array */
    size_t index;                    /* of an element */
} ls_json_at;

ls_json_at ls_json_root(const json_t *value, const char *name);

/* Fails with "PATH: message". */
ls_status ls_json_fail(const ls_json_at *at, ls_status status, const char *format, ...) LS_PRINTF(3, 4);

/* The value at a place, when it has the type. A real number may be written as an integer, but not the other way. */
ls_status ls_json_i64(const ls_json_at *at, int64_t *out);
ls_status ls_json_f64(const ls_json_at *at, double *out);
ls_status ls_json_bool(const ls_json_at *at, bool *out);
ls_status ls_json_string(const ls_json_at *at, const char **out); /* lives as long as the root */
ls_status ls_json_is_object(const ls_json_at *at);
ls_status ls_json_is_array(const ls_json_at *at);

/* A member that must be there. */
ls_status ls_json_get(const ls_json_at *object, const char *key, ls_json_at *out);
ls_status ls_json_get_i64(const ls_json_at *object, const char *key, int64_t *out);
ls_status ls_json_get_f64(const ls_json_at *object, const char *key, double *out);
ls_status ls_json_get_bool(const ls_json_at *object, const char *key, bool *out);
ls_status ls_json_get_string(const ls_json_at *object, const char *key, const char **out);
ls_status ls_json_get_object(const ls_json_at *object, const char *key, ls_json_at *out);
ls_status ls_json_get_array(const ls_json_at *object, const char *key, ls_json_at *out);

/* A member that may be absent or null: *out then stays as it is, so set the default first. */
ls_status ls_json_opt_i64(const ls_json_at *object, const char *key, int64_t *out);
ls_status ls_json_opt_f64(const ls_json_at *object, const char *key, double *out);
ls_status ls_json_opt_bool(const ls_json_at *object, const char *key, bool *out);
ls_status ls_json_opt_string(const ls_json_at *object, const char *key, const char **out);
/* False when it is no object, or has no such member; true also for a null. */
bool ls_json_find(const ls_json_at *object, const char *key, ls_json_at *out);

/* Elements of an array: 0 for anything else. */
size_t ls_json_count(const ls_json_at *array);
ls_status ls_json_element(const ls_json_at *array, size_t index, ls_json_at *out);

/* Fails when the object has a key that is not among the known ones, naming the nearest. */
ls_status ls_json_known_keys(const ls_json_at *object, const char *const *known, size_t n);

/* What differs between two objects, those inside of them included: the path ("data/batches"), and both values; one that
 * is missing is NULL. */
typedef void (*ls_json_differs)(void *user, const char *path, const json_t *a, const json_t *b);
void ls_json_compare(const json_t *a, const json_t *b, ls_json_differs differs, void *user);

/* A value as a short text; NULL is "nothing". */
#define LS_JSON_SHORT 64
const char *ls_json_show(const json_t *value, char text[LS_JSON_SHORT]);

#endif
