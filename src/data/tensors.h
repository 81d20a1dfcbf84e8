/* Named arrays in a file of any format that weights come in: the ending of the name says which, and the first bytes
 * must not contradict it. Formats: safetensors.h, npy.c (.npz, .npy), hdf5.c (.weights.h5 and what is in a .keras). */
#ifndef LS_DATA_TENSORS_H
#define LS_DATA_TENSORS_H

#include "data/safetensors.h"
#include "lockstep/data.h"

typedef enum ls_tensor_format {
    LS_TENSORS_UNKNOWN,
    LS_TENSORS_SAFETENSORS,
    LS_TENSORS_NPZ,
    LS_TENSORS_NPY, /* one array; it has no name of its own and is called "array" */
    LS_TENSORS_HDF5,
    LS_TENSORS_KERAS, /* a zip archive of config.json and model.weights.h5 */
} ls_tensor_format;

/* Format by the ending of a name; UNKNOWN for other endings. Endings of formats that are not supported (.pt, .onnx) are
 * an error that says what to do, for a file to read or to write. */
typedef enum ls_tensors_purpose { LS_TENSORS_READ, LS_TENSORS_WRITE } ls_tensors_purpose;
ls_status ls_tensors_format_of(const char *path, ls_tensors_purpose purpose, ls_tensor_format *out);

/* Name and first bytes of a file that is there; fails where they contradict each other. */
ls_status ls_tensors_format_in(const char *path, ls_tensor_format *out);

/* ---- Reading ---- */

typedef struct ls_tensors {
    ls_tensor_format format;
    ls_safetensors_entry *entries;
    size_t count, room;
    ls_safetensors_pair *pairs; /* a safetensors file's metadata */
    size_t pair_count;
    ls_safetensors *file; /* owns all of it but the lists; NULL: each name and array is to be freed */
} ls_tensors;

/* *out is closed by ls_tensors_close. All sizes are checked against the file's before memory is taken for them. */
ls_status ls_tensors_open(const char *path, ls_tensors *out);
void ls_tensors_close(ls_tensors *tensors);

/* NULL: there is none. */
const ls_safetensors_entry *ls_tensors_find(const ls_tensors *tensors, const char *name);
const char *ls_tensors_text(const ls_tensors *tensors, const char *key);

/* For readers: a name and an array, which is taken over in any case. */
ls_status ls_tensors_add(ls_tensors *tensors, const char *path, const char *name, size_t chars, ls_array array);

/* Every array of an .npz (npy.c). */
ls_status ls_npz_read_all(const char *path, ls_tensors *out);

/* ---- Writing ---- */

/* Replaces the file as ls_file_write does, entries in the order given. Texts are a safetensors file's metadata, or an
 * HDF5 file's groups, as ls_hdf5_make takes them; an .npz has none. */
ls_status ls_tensors_write(const char *path, ls_tensor_format format, const ls_safetensors_entry *entries, size_t count,
                           const ls_safetensors_pair *texts, size_t text_count);

/* Members of a .keras archive. */
#define LS_KERAS_METADATA "metadata.json"
#define LS_KERAS_CONFIG   "config.json"
#define LS_KERAS_WEIGHTS  "model.weights.h5"

#endif
