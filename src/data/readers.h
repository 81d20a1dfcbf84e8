/* Readers of whole datasets, for src/data/named.c. */
#ifndef LS_DATA_READERS_H
#define LS_DATA_READERS_H

#include "base/text.h"
#include "data/stream.h"
#include "lockstep/data.h"

/* Find an array in a file without reading it: sets dtype, shape and the offset of its first byte.
 * */
ls_status ls_npy_locate(const ls_data_file *file, ls_array *out, uint64_t *offset);
ls_status ls_idx_locate(const ls_data_file *file, ls_array *out, uint64_t *offset);

/* The same for integers of any size, little-endian. */
typedef struct ls_npy_integers {
    bool is_signed;
    size_t width; /* bytes of an element: 1, 2, 4 or 8 */
    ls_shape shape;
    uint64_t offset;
} ls_npy_integers;
ls_status ls_npy_locate_integers(const ls_data_file *file, ls_npy_integers *out);

ls_status ls_npz_has(const char *path, const char *name, bool *out);

/* "synthetic:SIZES[,classes=N][,count=N][,seed=N]" */
typedef struct ls_synthetic {
    ls_shape shape; /* shape of one sample */
    int64_t classes, count;
    uint64_t seed;
} ls_synthetic;

ls_status ls_synthetic_parse(const char *name, ls_synthetic *out);

/* Creates random bytes as features, and labels. `part`: 0 for training, 1 for test. */
ls_status ls_synthetic_make(const ls_synthetic *synthetic, uint32_t part, ls_array *features, ls_array *labels);

#endif
