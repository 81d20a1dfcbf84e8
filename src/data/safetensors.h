/* Files in the safetensors format: size of the header (u64, little-endian), the header (JSON: name,
 * dtype, shape and offsets of every tensor, and a map of strings), then the tensors' bytes without
 * gaps. The reader does not trust the file. */
#ifndef LS_DATA_SAFETENSORS_H
#define LS_DATA_SAFETENSORS_H

#include "base/file.h"
#include "lockstep/graph.h"
#include "lockstep/run.h"

#define LS_SAFETENSORS_HEADER_LIMIT ((size_t)100 << 20)

/* Dtypes in a file are F32, F64, I32, I64, U8 or BOOL. F16 and BF16 become F32; others are
 * LS_ERR_UNSUPPORTED. */
typedef struct ls_safetensors_entry {
    const char *name;
    ls_dtype dtype;
    ls_shape shape;   /* all dimensions known; they may be 0 */
    const void *data; /* row-major; NULL only if there are no elements */
    size_t bytes;     /* set by the reader; the writer derives it from dtype and shape */
} ls_safetensors_entry;

typedef struct ls_safetensors_pair {
    const char *key, *value;
} ls_safetensors_pair;

/* ---- Reading ---- */

typedef struct ls_safetensors ls_safetensors;

/* Validates the header before it reads the data. */
ls_status ls_safetensors_open(const char *path, ls_safetensors **out);
void ls_safetensors_close(ls_safetensors *file);

/* Finds a tensor without reading its data: sets dtype, shape and the offset of its first byte. */
ls_status ls_safetensors_locate(const char *path, const char *name, ls_array *out, uint64_t *offset);

/* Entries in file order. Returned pointers are valid until the file is closed; data is aligned.
 * ls_safetensors_find returns NULL if there is no such entry. */
size_t ls_safetensors_count(const ls_safetensors *file);
const ls_safetensors_entry *ls_safetensors_at(const ls_safetensors *file, size_t index);
const ls_safetensors_entry *ls_safetensors_find(const ls_safetensors *file, const char *name);

/* Map of strings ("__metadata__") in file order. */
size_t ls_safetensors_metadata_count(const ls_safetensors *file);
ls_safetensors_pair ls_safetensors_metadata_at(const ls_safetensors *file, size_t index);

/* ---- Writing ---- */

/* Replaces the file atomically (ls_file_write), without a copy of the data. */
ls_status ls_safetensors_write(const char *path, const ls_safetensors_entry *entries, size_t count,
                               const ls_safetensors_pair *metadata, size_t metadata_count);

/* Returns the count + 1 parts of the same file: the header, then each entry's data in place. `path`
 * is used in messages. */
ls_status ls_safetensors_make(const char *path, const ls_safetensors_entry *entries, size_t count,
                              const ls_safetensors_pair *metadata, size_t metadata_count, ls_file_part **out);
void ls_safetensors_free_parts(ls_file_part *parts);

#endif
