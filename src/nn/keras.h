/* Keras's JSON: layers by Keras's names and keys. */
#ifndef LS_NN_KERAS_H
#define LS_NN_KERAS_H

#include "base/json.h"
#include "data/safetensors.h"
#include "lockstep/nn.h"

/* Reads the spec of {"class_name": ..., "config": {...}}; its strings live as long as the JSON. An
 * unsupported key must have the value that has no effect. Error messages name layer, class and
 * key. */
ls_status ls_keras_layer(const ls_json_at *at, ls_layer *out);

/* Fails if the object at `at` has a class that a user registered. */
ls_status ls_keras_builtin(const ls_json_at *at, const char *class_name);

/* ---- Writing (keras_write.c) ---- */

/* Writes a .keras archive: the model as JSON, and its weights. `entries` and groups as for
 * ls_hdf5_make. */
ls_status ls_keras_write(const ls_model *model, const char *path, const ls_safetensors_entry *entries,
                         const ls_safetensors_pair *groups, size_t group_count);

#endif
