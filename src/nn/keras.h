/* Keras's JSON: layers by the names and keys that Keras gives them. */
#ifndef LS_NN_KERAS_H
#define LS_NN_KERAS_H

#include "base/json.h"
#include "data/safetensors.h"
#include "lockstep/nn.h"

/* The spec of {"class_name": ..., "config": {...}}; strings live as long as the JSON. A key that is not honoured must
 * have the value that changes nothing. Messages name layer, class and key. */
ls_status ls_keras_layer(const ls_json_at *at, ls_layer *out);

/* Fails with the place, the layer and its class: `PATH: layer "conv2d" (Conv2D): ...`. */
typedef struct ls_keras_who {
    const char *name, *class_name;
} ls_keras_who;
ls_status ls_keras_fail(const ls_json_at *at, const ls_keras_who *who, ls_status status, const char *format, ...)
    LS_PRINTF(4, 5);

/* Fails where the object at `at` is of a class that a user registered. */
ls_status ls_keras_builtin(const ls_json_at *at, const char *class_name);

/* "float32", or a DTypePolicy that says so; anything else is not computed in. */
ls_status ls_keras_dtype(const ls_json_at *at, const ls_keras_who *who, const char **out);

/* ---- Writing (keras_write.c) ---- */

/* A .keras archive: the model as JSON, and its weights; entries and groups as for ls_hdf5_make. */
ls_status ls_keras_write(const ls_model *model, const char *path, const ls_safetensors_entry *entries,
                         const ls_safetensors_pair *groups, size_t group_count);

#endif
