/* Datasets of arrays in files that are mapped into memory: .npy, IDX files of bytes without
 * compression, and tensors of safetensors files. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/text.h"
#include "data/dataset.h"
#include "data/readers.h"
#include "data/safetensors.h"
#include "data/stream.h"
#include "graph/shape.h"

#define MOST_FILES 2 /* features, labels */

typedef struct mapped_files {
    char *names[MOST_FILES]; /* NULL: not given */
    void *maps[MOST_FILES];
    size_t bytes[MOST_FILES];
} mapped_files;

static void free_files(void *state)
{
    mapped_files *m = state;
    for (int i = 0; i < MOST_FILES; i++) {
        if (m->maps[i])
            munmap(m->maps[i], m->bytes[i]);
        free(m->names[i]);
    }
    free(m);
}

/* Finds the array in the file, whose format the first bytes or the name tell. */
static ls_status locate(const ls_data_file *file, const char *member, ls_array *out, uint64_t *offset)
{
    unsigned char begin[6] = { 0 };
    if (member)
        return ls_safetensors_locate(file->path, member, out, offset);
    if (file->bytes >= sizeof begin)
        LS_TRY(ls_data_file_at(file, 0, begin, sizeof begin, "its beginning"));
    if (begin[0] == 0x1f && begin[1] == 0x8b)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "'%s' is compressed and cannot be mapped into memory; decompress it with gunzip", file->path);
    if (memcmp(begin, "\x93NUMPY", 6) == 0 || ls_ends_with(file->path, ".npy"))
        return ls_npy_locate(file, out, offset);
    return ls_idx_locate(file, out, offset);
}

static ls_status map_array(mapped_files *m, int index, const ls_data_file *file, const char *member, ls_array *out)
{
    char text[LS_SHAPE_TEXT];
    uint64_t offset = 0;
    size_t bytes = 0;
    LS_TRY(locate(file, member, out, &offset));
    if (!ls_data_bytes(out->dtype, &out->shape, &bytes) || offset > file->bytes || bytes > file->bytes - offset)
        return ls_fail(LS_ERR_DATA, "'%s' has %llu bytes; an array of shape %s from byte %llu on needs %s", file->path,
                       (unsigned long long)file->bytes, ls_shape_format(&out->shape, text), (unsigned long long)offset,
                       "more");
    if (!member && bytes != file->bytes - offset)
        return ls_fail(LS_ERR_DATA, "'%s' has %llu bytes more than its array of shape %s", file->path,
                       (unsigned long long)(file->bytes - offset - bytes), ls_shape_format(&out->shape, text));
    if (offset % ls_dtype_bytes(out->dtype) != 0)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "'%s': the array begins at byte %llu, which is not a multiple of %zu; save it "
                       "again with NumPy",
                       file->path, (unsigned long long)offset, ls_dtype_bytes(out->dtype));
    if (file->bytes == 0 || file->bytes > SIZE_MAX)
        return ls_fail(LS_ERR_DATA, "'%s' cannot be mapped into memory: it has %llu bytes", file->path,
                       (unsigned long long)file->bytes);
    void *map = mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_SHARED, file->fd, 0);
    if (map == MAP_FAILED)
        return ls_fail(LS_ERR_IO, "cannot map '%s' into memory: %s", file->path, strerror(errno));
    m->maps[index] = map;
    m->bytes[index] = (size_t)file->bytes;
    out->data = (char *)map + offset;
    return LS_OK;
}

/* "weights.safetensors:name" names a tensor of a file. */
static ls_status map_file(mapped_files *m, int index, ls_array *out)
{
    static const char ending[] = ".safetensors:";
    char *colon = strstr(m->names[index], ending), *member = NULL;
    ls_data_file file;
    if (colon) {
        colon += strlen(ending) - 1;
        *colon = '\0';
        member = colon + 1;
    }
    LS_TRY(ls_data_file_open(m->names[index], &file));
    ls_status status = map_array(m, index, &file, member, out);
    ls_data_file_close(&file);
    return status;
}

static ls_status load(void *state, ls_element *out)
{
    mapped_files *m = state;
    char text[LS_SHAPE_TEXT];
    for (int i = 0; i < MOST_FILES && m->names[i]; i++) {
        ls_array *array = &out->component[i];
        LS_TRY(map_file(m, i, array));
        if (array->shape.rank < (i == 0 ? 2 : 1))
            return ls_fail(LS_ERR_DATA, "'%s' has shape %s: expected an axis of samples%s", m->names[i],
                           ls_shape_format(&array->shape, text), i == 0 ? " and one of features" : "");
        if (array->shape.dims[0] != out->component[0].shape.dims[0])
            return ls_fail(LS_ERR_DATA, "'%s' has %lld samples, but '%s' has %lld labels", m->names[0],
                           (long long)out->component[0].shape.dims[0], m->names[i], (long long)array->shape.dims[0]);
        out->count = i + 1;
    }
    ls_shape *images = &out->component[0].shape;
    if (out->component[0].dtype == LS_U8 && images->rank == 3) /* images without a channel axis */
        images->dims[images->rank++] = 1;
    return LS_OK;
}

ls_dataset *ls_from_array_files(const char *features, const char *labels)
{
    mapped_files *state = calloc(1, sizeof *state);
    if (state && features) {
        state->names[0] = strdup(features);
        state->names[1] = labels ? strdup(labels) : NULL;
    }
    bool failed = !state || (features && !state->names[0]) || (features && labels && !state->names[1]);
    ls_dataset *d = ls_dataset_from_loader(load, state, state ? free_files : NULL);
    if (ls_dataset_is_lost(d))
        return d;
    d->u.arrays.keep = LS_KEEP_BORROWED; /* the files own the arrays */
    if (failed)
        return ls_dataset_fail(d, LS_ERR_MEMORY, "no memory for a dataset");
    if (!features)
        return ls_dataset_fail(d, LS_ERR_INVALID, "ls_from_array_files: features is NULL");
    return d;
}
