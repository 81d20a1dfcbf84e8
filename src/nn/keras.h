/* Keras's JSON: layers by Keras's names and keys. */
#ifndef LS_NN_KERAS_H
#define LS_NN_KERAS_H

#include "base/arena.h"
#include "base/json.h"
#include "data/safetensors.h"
#include "lockstep/nn.h"

/* Reads the spec of {"class_name": ..., "config": {...}}; its strings live as long as the JSON, the
 * layers inside it as long as the arena. An unsupported key must have the value that has no
 * effect. */
ls_status ls_keras_layer(const ls_json_at *at, ls_arena *arena, ls_layer *out);

/* Fails with path, layer and class: `PATH: layer "conv2d" (Conv2D): ...`. */
typedef struct ls_keras_label {
    const char *name, *class_name;
} ls_keras_label;
ls_status ls_keras_fail(const ls_json_at *at, const ls_keras_label *label, ls_status status, const char *format, ...)
    LS_PRINTF(4, 5);

/* Fails if a user registered the class of the object. */
ls_status ls_keras_builtin(const ls_json_at *at, const char *class_name);

/* Accepts "float32" or the equivalent DTypePolicy; other types are unsupported. */
ls_status ls_keras_dtype(const ls_json_at *at, const ls_keras_label *label, const char **out);

/* ---- Writing (keras_write.c) ---- */

/* Writes a .keras archive; entries and groups as for ls_hdf5_make. */
ls_status ls_keras_write(const ls_model *model, const char *path, const ls_safetensors_entry *entries,
                         const ls_safetensors_pair *groups, size_t group_count);

#endif
