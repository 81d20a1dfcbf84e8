/* Weights in files of the safetensors format: the size of a header (u64, little-endian), the header (JSON: name, dtype,
 * shape and place of every tensor, and a map of strings), then the tensors' bytes without a gap.
 *
 * Reading trusts nothing: a file that is cut short or too long, tensors that overlap or leave a gap, sizes that do not
 * fit their shape, names given twice, keys that are not the format's are errors that name the file and the place. */
#ifndef LS_DATA_SAFETENSORS_H
#define LS_DATA_SAFETENSORS_H

#include "base/file.h"
#include "lockstep/graph.h"

#define LS_SAFETENSORS_HEADER_LIMIT ((size_t)100 << 20)

/* One tensor. Its dtype in a file is F32, F64, I32, I64, U8 or BOOL; F16 and BF16 are read as F32, which has all their
 * values; the format's others are LS_ERR_UNSUPPORTED. */
typedef struct ls_safetensors_entry {
    const char *name;
    ls_dtype dtype;
    ls_shape shape;   /* every size known, 0 included */
    const void *data; /* row-major; NULL only when there are no elements */
    size_t bytes;     /* set by reading; writing takes it from dtype and shape */
} ls_safetensors_entry;

typedef struct ls_safetensors_pair {
    const char *key, *value;
} ls_safetensors_pair;

/* ---- Reading ---- */

typedef struct ls_safetensors ls_safetensors;

/* Reads the whole file, the data only after the header was found good. */
ls_status ls_safetensors_open(const char *path, ls_safetensors **out);
void ls_safetensors_close(ls_safetensors *file);

/* Entries in the order of their bytes in the file. What is returned lives until the file is closed; data is aligned for
 * its type. NULL: no such entry. */
size_t ls_safetensors_count(const ls_safetensors *file);
const ls_safetensors_entry *ls_safetensors_at(const ls_safetensors *file, size_t index);
const ls_safetensors_entry *ls_safetensors_find(const ls_safetensors *file, const char *name);

/* The map of strings ("__metadata__"), in the file's order; empty when the file has none. NULL: no such key. */
size_t ls_safetensors_metadata_count(const ls_safetensors *file);
ls_safetensors_pair ls_safetensors_metadata_at(const ls_safetensors *file, size_t index);
const char *ls_safetensors_metadata_find(const ls_safetensors *file, const char *key);

/* ---- Writing ---- */

/* Replaces the file as ls_file_write does (a reader sees the old one or the new one), entries in the given order, each
 * written from where it is: no second copy of the data is made. */
ls_status ls_safetensors_write(const char *path, const ls_safetensors_entry *entries, size_t count,
                               const ls_safetensors_pair *metadata, size_t metadata_count);

/* The same file as its parts, for whoever writes it in another way: the header, then each entry's data where it is.
 * There are count + 1. Canonical: the bytes follow from the arguments alone. `path` is for messages. */
ls_status ls_safetensors_make(const char *path, const ls_safetensors_entry *entries, size_t count,
                              const ls_safetensors_pair *metadata, size_t metadata_count, ls_file_part **out);
void ls_safetensors_free_parts(ls_file_part *parts);

#endif
