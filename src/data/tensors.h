/* Named arrays in weight files. The file name's extension gives the format; the first bytes must
 * agree with it. Formats: safetensors.h, npy.c (.npz, .npy), hdf5.h (.weights.h5, also inside a
 * .keras). */
#ifndef LS_DATA_TENSORS_H
#define LS_DATA_TENSORS_H

#include "data/safetensors.h"
#include "lockstep/data.h"

typedef enum ls_tensor_format {
    LS_TENSORS_UNKNOWN,
    LS_TENSORS_SAFETENSORS,
    LS_TENSORS_NPZ,
    LS_TENSORS_NPY, /* one unnamed array, which is called "array" */
    LS_TENSORS_HDF5,
    LS_TENSORS_KERAS, /* zip archive of config.json, metadata.json and model.weights.h5 */
} ls_tensor_format;

/* Returns UNKNOWN for unknown extensions. Extensions of unsupported formats (.pt, .onnx) are errors
 * with advice, which depends on the purpose. */
typedef enum ls_tensors_purpose { LS_TENSORS_READ, LS_TENSORS_WRITE } ls_tensors_purpose;
ls_status ls_tensors_format_of(const char *path, ls_tensors_purpose purpose, ls_tensor_format *out);

ls_status ls_tensors_format_in(const char *path, ls_tensor_format *out);

/* ---- Reading ---- */

typedef struct ls_tensors {
    ls_tensor_format format;
    ls_safetensors_entry *entries;
    size_t count, capacity;
    ls_safetensors_pair *pairs; /* metadata of a safetensors file */
    size_t pair_count;
    /* Owner of names and data; NULL: each name and array is freed separately. */
    ls_safetensors *file;
} ls_tensors;

/* Checks all sizes against the file's before it allocates memory. */
ls_status ls_tensors_open(const char *path, ls_tensors *out);
void ls_tensors_close(ls_tensors *tensors);

const ls_safetensors_entry *ls_tensors_find(const ls_tensors *tensors, const char *name);
const char *ls_tensors_text(const ls_tensors *tensors, const char *key);

/* For readers: takes ownership of the array, also on failure. */
ls_status ls_tensors_add(ls_tensors *tensors, const char *path, const char *name, size_t chars, ls_array array);

/* Reads all arrays of an .npz (npy.c). */
ls_status ls_npz_read_all(const char *path, ls_tensors *out);

/* ---- Writing ---- */

/* Replaces the file atomically (ls_file_write). `texts` are the metadata of a safetensors file, or
 * the groups of an HDF5 file (ls_hdf5_make). */
ls_status ls_tensors_write(const char *path, ls_tensor_format format, const ls_safetensors_entry *entries, size_t count,
                           const ls_safetensors_pair *texts, size_t text_count);

/* Members of a .keras archive. */
#define LS_KERAS_METADATA "metadata.json"
#define LS_KERAS_CONFIG   "config.json"
#define LS_KERAS_WEIGHTS  "model.weights.h5"

#endif
