/* Weight files: detects the format of a file and reads its named arrays. */
#include "data/tensors.h"

#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/grow.h"
#include "base/status.h"
#include "data/hdf5.h"
#include "data/stream.h"
#include "data/zip.h"

#define MOST_IMAGE ((size_t)1 << 40) /* maximum size of an HDF5 file in bytes */

/* ---- Formats ---- */

static const struct {
    const char *ending;
    ls_tensor_format format;
} endings[] = {
    { ".safetensors", LS_TENSORS_SAFETENSORS },
    { ".npz", LS_TENSORS_NPZ },
    { ".npy", LS_TENSORS_NPY },
    { ".h5", LS_TENSORS_HDF5 },
    { ".hdf5", LS_TENSORS_HDF5 },
    { ".keras", LS_TENSORS_KERAS },
};

/* Unsupported formats, with advice for the message. */
#define PICKLE                                                                                                         \
    "a pickle of PyTorch, which can execute code; convert it in PyTorch with "                                         \
    "safetensors.torch.save_file(model.state_dict(), "                                                                 \
    "\"FILE.safetensors\")"
#define OTHER "not a supported format of weights"
static const struct {
    const char *ending, *what;
} foreign[] = {
    { ".pt", PICKLE },  { ".pth", PICKLE }, { ".bin", PICKLE },   { ".ckpt", PICKLE }, { ".pkl", PICKLE },
    { ".onnx", OTHER }, { ".pb", OTHER },   { ".tflite", OTHER }, { ".gguf", OTHER },  { ".csv", OTHER },
    { ".json", OTHER }, { ".zip", OTHER },  { ".gz", OTHER },     { ".txt", OTHER },   { ".mat", OTHER },
};

static bool ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path), chars = strlen(ending);
    return length >= chars && strcasecmp(path + length - chars, ending) == 0;
}

ls_status ls_tensors_format_of(const char *path, ls_tensors_purpose purpose, ls_tensor_format *out)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (ends_in(path, foreign[i].ending) && purpose == LS_TENSORS_WRITE)
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "'%s': weights cannot be written as %s: choose a name that ends in .safetensors (which "
                           "PyTorch reads, too), .npz, .weights.h5 or .keras",
                           path, foreign[i].ending);
        else if (ends_in(path, foreign[i].ending))
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "'%s': a name that ends in %s is %s; weights are .safetensors, .npz, .weights.h5 or .keras",
                           path, foreign[i].ending, foreign[i].what);
    *out = LS_TENSORS_UNKNOWN;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_in(path, endings[i].ending))
            *out = endings[i].format;
    return LS_OK;
}

static const char *format_name(ls_tensor_format format)
{
    static const char *const names[] = { "unknown",       "a safetensors file", "an .npz archive",
                                         "an .npy array", "an HDF5 file",       "a .keras archive" };
    return names[format];
}

static ls_status zip_format(const ls_data_file *file, ls_tensor_format *out)
{
    ls_zip zip;
    ls_zip_member member;
    bool is_keras;
    LS_TRY(ls_zip_open(file, &zip));
    ls_status status = ls_zip_find(&zip, LS_KERAS_CONFIG, &member, &is_keras);
    if (status == LS_OK)
        *out = is_keras ? LS_TENSORS_KERAS : LS_TENSORS_NPZ;
    ls_zip_close(&zip);
    return status;
}

/* UNKNOWN: the reader will report the error. */
static ls_status detect_format(const char *path, ls_tensor_format *out)
{
    unsigned char begin[9] = { 0 };
    ls_data_file file;
    ls_status status = LS_OK;
    LS_TRY(ls_data_file_open(path, &file));
    if (file.bytes >= sizeof begin)
        status = ls_data_file_at(&file, 0, begin, sizeof begin, "its beginning");
    *out = LS_TENSORS_UNKNOWN;
    if (status == LS_OK && memcmp(begin, "PK", 2) == 0 && begin[2] < 10)
        status = zip_format(&file, out);
    else if (memcmp(begin, "\x93NUMPY", 6) == 0)
        *out = LS_TENSORS_NPY;
    else if (memcmp(begin, "\x89HDF\r\n\x1a\n", 8) == 0)
        *out = LS_TENSORS_HDF5;
    else if (begin[8] == '{')
        *out = LS_TENSORS_SAFETENSORS;
    ls_data_file_close(&file);
    return status;
}

ls_status ls_tensors_format_in(const char *path, ls_tensor_format *out)
{
    struct stat about;
    ls_tensor_format named, found = LS_TENSORS_UNKNOWN;
    LS_TRY(ls_tensors_format_of(path, LS_TENSORS_READ, &named));
    if (stat(path, &about) != 0 || S_ISREG(about.st_mode)) /* a pipe can be read only once */
        LS_TRY(detect_format(path, &found));
    if (named != LS_TENSORS_UNKNOWN && found != LS_TENSORS_UNKNOWN && named != found)
        return ls_fail(LS_ERR_DATA, "'%s' contradicts its ending: its content is %s, not %s; rename it", path,
                       format_name(found), format_name(named));
    *out = named != LS_TENSORS_UNKNOWN ? named : found != LS_TENSORS_UNKNOWN ? found : LS_TENSORS_SAFETENSORS;
    return LS_OK;
}

/* ---- Lists ---- */

ls_status ls_tensors_add(ls_tensors *tensors, const char *path, const char *name, size_t chars, ls_array array)
{
    size_t bytes = 0;
    char *copy = NULL;
    ls_status status = ls_grow(&tensors->entries, tensors->count, &tensors->capacity, sizeof *tensors->entries);
    if (status == LS_OK && memchr(name, 0, chars))
        status = ls_fail(LS_ERR_DATA, "'%s': the name of array %zu contains a zero byte", path, tensors->count);
    if (status == LS_OK && (copy = strndup(name, chars)) == NULL)
        status = ls_fail(LS_ERR_MEMORY, "no memory for the names of '%s'", path);
    if (status == LS_OK && ls_tensors_find(tensors, copy))
        status = ls_fail(LS_ERR_DATA, "'%s': two arrays are named \"%s\"", path, copy);
    if (status != LS_OK) {
        free(copy);
        free(array.data);
        return status;
    }
    ls_data_bytes(array.dtype, &array.shape, &bytes);
    tensors->entries[tensors->count++] = (ls_safetensors_entry){
        .name = copy, .dtype = array.dtype, .shape = array.shape, .data = array.data, .bytes = bytes
    };
    return LS_OK;
}

const ls_safetensors_entry *ls_tensors_find(const ls_tensors *tensors, const char *name)
{
    for (size_t i = 0; i < tensors->count; i++)
        if (strcmp(tensors->entries[i].name, name) == 0)
            return &tensors->entries[i];
    return NULL;
}

const char *ls_tensors_text(const ls_tensors *tensors, const char *key)
{
    for (size_t i = 0; i < tensors->pair_count; i++)
        if (strcmp(tensors->pairs[i].key, key) == 0)
            return tensors->pairs[i].value;
    return NULL;
}

void ls_tensors_close(ls_tensors *tensors)
{
    for (size_t i = 0; !tensors->file && i < tensors->count; i++) {
        free((char *)tensors->entries[i].name);
        free((void *)tensors->entries[i].data);
    }
    free(tensors->entries);
    free(tensors->pairs);
    ls_safetensors_close(tensors->file);
    *tensors = (ls_tensors){ 0 };
}

/* ---- Reading ---- */

static ls_status open_safetensors(const char *path, ls_tensors *out)
{
    LS_TRY(ls_safetensors_open(path, &out->file));
    out->count = ls_safetensors_count(out->file);
    out->pair_count = ls_safetensors_metadata_count(out->file);
    out->entries = calloc(out->count + 1, sizeof *out->entries);
    out->pairs = calloc(out->pair_count + 1, sizeof *out->pairs);
    if (!out->entries || !out->pairs)
        return ls_fail(LS_ERR_MEMORY, "no memory for the names of '%s'", path);
    for (size_t i = 0; i < out->count; i++)
        out->entries[i] = *ls_safetensors_at(out->file, i);
    for (size_t i = 0; i < out->pair_count; i++)
        out->pairs[i] = ls_safetensors_metadata_at(out->file, i);
    return LS_OK;
}

static ls_status open_npy(const char *path, ls_tensors *out)
{
    ls_array array;
    LS_TRY(ls_npy_read(path, &array));
    return ls_tensors_add(out, path, "array", 5, array);
}

static ls_status open_hdf5(const char *path, ls_tensors *out)
{
    char *image = NULL;
    size_t bytes = 0;
    LS_TRY(out->format == LS_TENSORS_KERAS ? ls_zip_read_from(path, LS_KERAS_WEIGHTS, MOST_IMAGE, &image, &bytes)
                                           : ls_file_read(path, MOST_IMAGE, &image, &bytes));
    ls_status status = ls_hdf5_read(path, image, bytes, out);
    free(image);
    return status;
}

ls_status ls_tensors_open(const char *path, ls_tensors *out)
{
    ls_tensors tensors = { 0 };
    ls_status status;
    LS_TRY(ls_tensors_format_in(path, &tensors.format));
    switch (tensors.format) {
    case LS_TENSORS_NPZ:
        status = ls_npz_read_all(path, &tensors);
        break;
    case LS_TENSORS_NPY:
        status = open_npy(path, &tensors);
        break;
    case LS_TENSORS_HDF5:
    case LS_TENSORS_KERAS:
        status = open_hdf5(path, &tensors);
        break;
    default:
        status = open_safetensors(path, &tensors);
    }
    if (status == LS_OK)
        *out = tensors;
    else
        ls_tensors_close(&tensors);
    return status;
}

/* ---- Writing ---- */

static ls_status write_npz(const char *path, const ls_safetensors_entry *entries, size_t count)
{
    const char **names = calloc(count + 1, sizeof *names);
    ls_array *arrays = calloc(count + 1, sizeof *arrays);
    ls_status status =
        names && arrays ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to write '%s' (%zu arrays)", path, count);
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        names[i] = entries[i].name;
        arrays[i] = ls_array_of(entries[i].dtype, entries[i].shape, entries[i].data);
    }
    if (status == LS_OK)
        status = ls_npz_write(path, names, arrays, count);
    free(names);
    free(arrays);
    return status;
}

static ls_status write_hdf5(const char *path, const ls_safetensors_entry *entries, size_t count,
                            const ls_safetensors_pair *texts, size_t text_count)
{
    ls_file_part *parts;
    size_t part_count;
    void *memory;
    LS_TRY(ls_hdf5_make(path, entries, count, texts, text_count, &parts, &part_count, &memory));
    ls_status status = ls_file_write_parts(path, parts, part_count);
    free(parts);
    free(memory);
    return status;
}

ls_status ls_tensors_write(const char *path, ls_tensor_format format, const ls_safetensors_entry *entries, size_t count,
                           const ls_safetensors_pair *texts, size_t text_count)
{
    switch (format) {
    case LS_TENSORS_SAFETENSORS:
        return ls_safetensors_write(path, entries, count, texts, text_count);
    case LS_TENSORS_NPZ:
        return write_npz(path, entries, count);
    case LS_TENSORS_HDF5:
        return write_hdf5(path, entries, count, texts, text_count);
    default:
        return ls_fail(LS_ERR_UNSUPPORTED, "cannot write '%s': writing %s is not supported", path, format_name(format));
    }
}
