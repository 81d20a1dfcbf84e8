/* Reader and writer of the safetensors format. */
#include "data/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/size.h"
#include "base/status.h"
#include "base/text.h"
#include "base/work.h"
#include "data/float16.h"
#include "graph/shape.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the bytes of a file are taken as they are");

#define PREFIX    8 /* size in bytes of the header's length field */
#define ALIGNMENT 8 /* alignment of the header in a file and of tensors in memory */
#define METADATA  "__metadata__"

static const char *const dtype_names[LS_DTYPE_COUNT] = {
    [LS_F32] = "F32", [LS_F64] = "F64", [LS_I32] = "I32", [LS_I64] = "I64", [LS_U8] = "U8", [LS_BOOL] = "BOOL",
};

/* Dtypes that the library does not support. */
static const char *const other_dtypes[] = { "F8_E4M3", "F8_E5M2", "F8_E8M0",     "F6_E2M3",    "F6_E3M2",
                                            "F4",      "I8",      "I16",         "U16",        "U32",
                                            "U64",     "C64",     "F8_E4M3FNUZ", "F8_E5M2FNUZ" };

/* ---- The header of an open file ---- */

/* A tensor and its position after the header. */
typedef struct record {
    ls_safetensors_entry entry;
    ls_float16 half; /* type in the file if it is converted to F32 */
    size_t begin, end;
    size_t order; /* index in the header */
} record;

struct ls_safetensors {
    json_t *header; /* owns the names and the metadata */
    record *records;
    size_t count;
    ls_safetensors_pair *pairs;
    size_t pair_count;
    char *data;
};

static ls_status read_dtype(const ls_json_at *tensor, ls_dtype *out, ls_float16 *half)
{
    ls_json_at at;
    const char *name = NULL;
    LS_TRY(ls_json_get(tensor, "dtype", &at));
    LS_TRY(ls_json_string(&at, &name));
    for (int i = 0; i < LS_DTYPE_COUNT; i++)
        if (strcmp(name, dtype_names[i]) == 0) {
            *out = (ls_dtype)i;
            return LS_OK;
        }
    *half = strcmp(name, "F16") == 0 ? LS_HALF_F16 : strcmp(name, "BF16") == 0 ? LS_HALF_BF16 : LS_HALF_NONE;
    if (*half != LS_HALF_NONE) {
        *out = LS_F32;
        return LS_OK;
    }
    for (size_t i = 0; i < sizeof other_dtypes / sizeof *other_dtypes; i++)
        if (strcmp(name, other_dtypes[i]) == 0)
            return ls_json_fail(&at, LS_ERR_UNSUPPORTED,
                                "%s is not supported, only F32, F64, F16, BF16, I32, I64, U8 and BOOL", name);
    return ls_json_fail(&at, LS_ERR_DATA, "no dtype is named \"%.40s\"", name);
}

static ls_status read_shape(const ls_json_at *tensor, ls_shape *out)
{
    ls_json_at at, size;
    ls_shape shape = { .rank = 0 };
    LS_TRY(ls_json_get_array(tensor, "shape", &at));
    size_t rank = ls_json_count(&at);
    if (rank > LS_MAX_RANK)
        return ls_json_fail(&at, LS_ERR_UNSUPPORTED, "%zu axes, but at most %d are supported", rank, LS_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        LS_TRY(ls_json_element(&at, i, &size));
        LS_TRY(ls_json_i64(&size, &shape.dims[i]));
        if (shape.dims[i] < 0)
            return ls_json_fail(&size, LS_ERR_DATA, "the size %lld is negative", (long long)shape.dims[i]);
    }
    shape.rank = (int)rank;
    *out = shape;
    return LS_OK;
}

static ls_status read_offset(const ls_json_at *offsets, size_t index, size_t *out)
{
    ls_json_at at;
    int64_t value = 0;
    LS_TRY(ls_json_element(offsets, index, &at));
    LS_TRY(ls_json_i64(&at, &value));
    if (value < 0 || (uint64_t)value > SIZE_MAX)
        return ls_json_fail(&at, LS_ERR_DATA, "the offset %lld is negative", (long long)value);
    *out = (size_t)value;
    return LS_OK;
}

/* Returns false on overflow. */
static bool count_bytes(ls_dtype dtype, const ls_shape *shape, size_t *out)
{
    int64_t count;
    return ls_shape_count(shape, 0, &count) && (uint64_t)count <= SIZE_MAX &&
           ls_size_mul((size_t)count, ls_dtype_bytes(dtype), out);
}

static ls_status read_tensor(const ls_json_at *at, record *out)
{
    static const char *const known[] = { "dtype", "shape", "data_offsets" };
    ls_json_at offsets;
    char text[LS_SHAPE_TEXT];
    LS_TRY(ls_json_known_keys(at, known, sizeof known / sizeof *known));
    LS_TRY(read_dtype(at, &out->entry.dtype, &out->half));
    LS_TRY(read_shape(at, &out->entry.shape));
    LS_TRY(ls_json_get_array(at, "data_offsets", &offsets));
    if (ls_json_count(&offsets) != 2)
        return ls_json_fail(&offsets, LS_ERR_DATA, "%zu numbers; expected begin and end", ls_json_count(&offsets));
    LS_TRY(read_offset(&offsets, 0, &out->begin));
    LS_TRY(read_offset(&offsets, 1, &out->end));
    if (out->end < out->begin)
        return ls_json_fail(&offsets, LS_ERR_DATA, "the end %zu is before the beginning %zu", out->end, out->begin);
    ls_shape_format(&out->entry.shape, text);
    if (!count_bytes(out->entry.dtype, &out->entry.shape, &out->entry.bytes))
        return ls_json_fail(at, LS_ERR_DATA, "the shape %s is too large", text);
    size_t bytes = out->half == LS_HALF_NONE ? out->entry.bytes : out->entry.bytes / 2;
    if (bytes != out->end - out->begin)
        return ls_json_fail(&offsets, LS_ERR_DATA, "%zu bytes, but shape %s of %s takes %zu", out->end - out->begin,
                            text, out->half == LS_HALF_NONE ? dtype_names[out->entry.dtype] : "F16 or BF16", bytes);
    return LS_OK;
}

static ls_status read_metadata(const ls_json_at *at, ls_safetensors *file)
{
    LS_TRY(ls_json_is_object(at));
    size_t count = json_object_size(at->value);
    file->pairs = malloc((count + 1) * sizeof *file->pairs);
    if (file->pairs == NULL)
        return ls_json_fail(at, LS_ERR_MEMORY, "no memory for %zu strings", count);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)at->value, key, value)
    {
        ls_json_at string = { .value = value, .parent = at, .key = key };
        ls_safetensors_pair *pair = &file->pairs[file->pair_count];
        pair->key = key;
        LS_TRY(ls_json_string(&string, &pair->value));
        file->pair_count++;
    }
    return LS_OK;
}

static int compare_records(const void *left, const void *right)
{
    const record *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    /* An empty tensor comes before the tensor that begins at the same position. */
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Sorts the tensors by position and checks that they cover all bytes exactly once. */
static ls_status order_records(const ls_json_at *root, ls_safetensors *file, size_t *total)
{
    size_t place = 0;
    qsort(file->records, file->count, sizeof *file->records, compare_records);
    for (size_t i = 0; i < file->count; i++) {
        const record *r = &file->records[i];
        ls_json_at at = { .parent = root, .key = r->entry.name };
        if (r->begin < place)
            return ls_json_fail(&at, LS_ERR_DATA, "begins at byte %zu, inside \"%s\", which ends at %zu", r->begin,
                                r[-1].entry.name, place);
        if (r->begin > place)
            return ls_json_fail(&at, LS_ERR_DATA, "begins at byte %zu, but bytes %zu to %zu belong to no tensor",
                                r->begin, place, r->begin - 1);
        place = r->end;
    }
    *total = place;
    return LS_OK;
}

static ls_status read_header(const char *path, ls_safetensors *file, size_t *total)
{
    ls_json_at root = ls_json_root(file->header, path);
    LS_TRY(ls_json_is_object(&root));
    size_t count = json_object_size(file->header);
    file->records = calloc(count + 1, sizeof *file->records);
    if (file->records == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for the %zu tensors of '%s'", count, path);
    const char *key;
    json_t *value;
    json_object_foreach(file->header, key, value)
    {
        ls_json_at at = { .value = value, .parent = &root, .key = key };
        if (strcmp(key, METADATA) == 0) {
            LS_TRY(read_metadata(&at, file));
            continue;
        }
        record *r = &file->records[file->count];
        r->entry.name = key;
        r->order = file->count;
        LS_TRY(read_tensor(&at, r));
        file->count++;
    }
    return order_records(&root, file, total);
}

/* ---- The data of an open file ---- */

typedef struct source {
    const char *path;
    int fd;
    bool sized; /* a regular file, whose size is known in advance */
    uint64_t bytes;
} source;

static ls_status open_source(const char *path, source *out)
{
    struct stat info;
    int fd = ls_file_open(path, O_RDONLY, 0);
    if (fd < 0)
        return ls_file_fail("open", path, errno);
    int error = fstat(fd, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? EISDIR : 0;
    if (error != 0) {
        close(fd);
        return ls_file_fail("read", path, error);
    }
    *out = (source){ .path = path, .fd = fd, .sized = S_ISREG(info.st_mode), .bytes = (uint64_t)info.st_size };
    return LS_OK;
}

/* Reads `bytes` bytes, fewer only at the end of the file. */
static ls_status read_up_to(const source *source, void *data, size_t bytes, size_t *out)
{
    size_t used = 0;
    while (used < bytes) {
        ssize_t got =
            read(source->fd, (char *)data + used, bytes - used < LS_WORK_CHUNK ? bytes - used : LS_WORK_CHUNK);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ls_file_fail("read", source->path, errno);
        if (got == 0)
            break;
        used += (size_t)got;
        ls_work_report("reading", source->path, (int64_t)used, (int64_t)bytes);
    }
    *out = used;
    return LS_OK;
}

static ls_status read_exactly(const source *source, const char *what, void *data, size_t bytes)
{
    size_t got = 0;
    LS_TRY(read_up_to(source, data, bytes, &got));
    if (got != bytes)
        return ls_fail(LS_ERR_DATA, "'%s' is truncated in %s: %zu bytes of %zu", source->path, what, got, bytes);
    return LS_OK;
}

static ls_status parse_header(const source *source, size_t bytes, json_t **out)
{
    char *text = malloc(bytes);
    if (text == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for the header of '%s' (%zu bytes)", source->path, bytes);
    ls_status status = read_exactly(source, "its header", text, bytes);
    if (status == LS_OK && text[0] != '{')
        status = ls_fail(LS_ERR_DATA, "'%s' is not a safetensors file: its header does not begin with {", source->path);
    if (status == LS_OK)
        status = ls_json_read_buffer(source->path, text, bytes, out);
    free(text);
    return status;
}

static ls_status read_header_size(const source *source, size_t *out)
{
    uint64_t bytes = 0;
    LS_TRY(read_exactly(source, "the size of its header", &bytes, PREFIX));
    if (bytes > LS_SAFETENSORS_HEADER_LIMIT)
        return ls_fail(LS_ERR_DATA, "'%s' is not a safetensors file: a header of %llu bytes; at most %zu are accepted",
                       source->path, (unsigned long long)bytes, LS_SAFETENSORS_HEADER_LIMIT);
    if (bytes < 2)
        return ls_fail(LS_ERR_DATA, "'%s' is not a safetensors file: a header of %llu bytes", source->path,
                       (unsigned long long)bytes);
    if (source->sized && bytes > source->bytes - PREFIX)
        return ls_fail(LS_ERR_DATA, "'%s' is truncated: a header of %llu bytes in a file of %llu", source->path,
                       (unsigned long long)bytes, (unsigned long long)source->bytes);
    *out = (size_t)bytes;
    return LS_OK;
}

static ls_status check_bools(const source *source, const ls_safetensors_entry *entry)
{
    const unsigned char *data = entry->data;
    for (size_t i = 0; i < entry->bytes; i++)
        if (data[i] > 1)
            return ls_fail(LS_ERR_DATA, "'%s': element %zu of \"%s\" is %d, but a BOOL is 0 or 1", source->path, i,
                           entry->name, data[i]);
    return LS_OK;
}

static ls_status read_record(const source *source, record *r, char *to)
{
    size_t bytes = r->end - r->begin;
    r->entry.data = to;
    LS_TRY(read_exactly(source, "a tensor", to + r->entry.bytes - bytes, bytes));
    if (r->half != LS_HALF_NONE)
        ls_float16_widen(r->half, to, bytes / sizeof(uint16_t));
    return r->entry.dtype == LS_BOOL ? check_bools(source, &r->entry) : LS_OK;
}

/* Tensors are aligned in one block of memory. */
static ls_status read_data(const source *source, size_t header_bytes, size_t total, ls_safetensors *file)
{
    size_t needed, position = 0;
    char byte;
    uint64_t there = source->bytes - PREFIX - header_bytes;
    if (source->sized && there != total)
        return ls_fail(LS_ERR_DATA, "'%s' %s: %llu bytes of data, but its header describes %zu", source->path,
                       there < total ? "is truncated" : "is too long", (unsigned long long)there, total);
    bool fits = ls_size_mul(file->count, ALIGNMENT, &needed);
    for (size_t i = 0; i < file->count; i++) /* at most twice the size of the file */
        fits = fits && ls_size_add(needed, file->records[i].entry.bytes, &needed);
    if (!fits || (file->data = malloc(needed + 1)) == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for the tensors of '%s' (%zu bytes)", source->path, total);
    for (size_t i = 0; i < file->count; i++) {
        LS_TRY(read_record(source, &file->records[i], file->data + position));
        position += ls_size_align(file->records[i].entry.bytes, ALIGNMENT);
    }
    size_t more = 0;
    LS_TRY(read_up_to(source, &byte, 1, &more));
    if (more != 0)
        return ls_fail(LS_ERR_DATA, "'%s' is too long: more than the %zu bytes of data that its header describes",
                       source->path, total);
    return LS_OK;
}

static ls_status read_file(const source *source, ls_safetensors *file)
{
    size_t header_bytes = 0, total = 0;
    LS_TRY(read_header_size(source, &header_bytes));
    LS_TRY(parse_header(source, header_bytes, &file->header));
    LS_TRY(read_header(source->path, file, &total));
    return read_data(source, header_bytes, total, file);
}

ls_status ls_safetensors_open(const char *path, ls_safetensors **out)
{
    source source;
    LS_TRY(open_source(path, &source));
    ls_safetensors *file = calloc(1, sizeof *file);
    ls_status status = file == NULL ? ls_fail(LS_ERR_MEMORY, "no memory to open '%s'", path) : read_file(&source, file);
    ls_work_end();
    close(source.fd);
    if (status == LS_OK)
        *out = file;
    else
        ls_safetensors_close(file);
    return status;
}

static ls_status locate(const source *source, const char *name, ls_safetensors *file, ls_array *out, uint64_t *offset)
{
    size_t header_bytes = 0, total = 0;
    ls_text names = { 0 };
    LS_TRY(read_header_size(source, &header_bytes));
    LS_TRY(parse_header(source, header_bytes, &file->header));
    LS_TRY(read_header(source->path, file, &total));
    for (size_t i = 0; i < file->count; i++) {
        const record *r = &file->records[i];
        ls_text_add(&names, "%s%s", i ? ", " : "", r->entry.name);
        if (strcmp(r->entry.name, name) != 0)
            continue;
        ls_text_free(&names);
        if (r->half)
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "'%s', tensor \"%s\": 16-bit floats cannot be mapped into memory; save "
                           "it as F32",
                           source->path, name);
        *offset = PREFIX + header_bytes + r->begin;
        out->dtype = r->entry.dtype;
        out->shape = r->entry.shape;
        return LS_OK;
    }
    ls_status status = ls_fail(LS_ERR_NOT_FOUND, "'%s' has no tensor \"%s\"; it has: %.500s", source->path, name,
                               names.length ? ls_text_get(&names) : "none");
    ls_text_free(&names);
    return status;
}

ls_status ls_safetensors_locate(const char *path, const char *name, ls_array *out, uint64_t *offset)
{
    source source;
    LS_TRY(open_source(path, &source));
    ls_safetensors *file = calloc(1, sizeof *file);
    ls_status status =
        file ? locate(&source, name, file, out, offset) : ls_fail(LS_ERR_MEMORY, "no memory to open '%s'", path);
    close(source.fd);
    ls_safetensors_close(file);
    return status;
}

void ls_safetensors_close(ls_safetensors *file)
{
    if (file == NULL)
        return;
    json_decref(file->header);
    free(file->records);
    free(file->pairs);
    free(file->data);
    free(file);
}

size_t ls_safetensors_count(const ls_safetensors *file)
{
    return file->count;
}

const ls_safetensors_entry *ls_safetensors_at(const ls_safetensors *file, size_t index)
{
    return index < file->count ? &file->records[index].entry : NULL;
}

const ls_safetensors_entry *ls_safetensors_find(const ls_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->records[i].entry.name, name) == 0)
            return &file->records[i].entry;
    return NULL;
}

size_t ls_safetensors_metadata_count(const ls_safetensors *file)
{
    return file->pair_count;
}

ls_safetensors_pair ls_safetensors_metadata_at(const ls_safetensors *file, size_t index)
{
    return index < file->pair_count ? file->pairs[index] : (ls_safetensors_pair){ NULL, NULL };
}

/* ---- Writing ---- */

/* The key must be new. Takes ownership of the value. */
static ls_status add_key(const char *path, json_t *object, const char *what, const char *key, json_t *value)
{
    ls_status status = LS_OK;
    if (json_object_get(object, key) != NULL)
        status = ls_fail(LS_ERR_INVALID, "cannot write '%s': two %s are named \"%s\"", path, what, key);
    else if (!ls_is_utf8(key))
        status = ls_fail(LS_ERR_INVALID, "cannot write '%s': the name \"%s\" is not UTF-8 text", path, key);
    else if (value == NULL || json_object_set(object, key, value) != 0)
        status = ls_fail(LS_ERR_MEMORY, "no memory for the header of '%s'", path);
    json_decref(value);
    return status;
}

static ls_status add_metadata(const char *path, json_t *header, const ls_safetensors_pair *pairs, size_t count)
{
    if (count == 0)
        return LS_OK;
    json_t *map = json_object();
    LS_TRY(add_key(path, header, "tensors", METADATA, map)); /* the header owns it now */
    for (size_t i = 0; i < count; i++) {
        if (pairs[i].key == NULL || pairs[i].value == NULL)
            return ls_fail(LS_ERR_INVALID, "cannot write '%s': pair %zu of the metadata has no %s", path, i,
                           pairs[i].key == NULL ? "key" : "value");
        if (!ls_is_utf8(pairs[i].value))
            return ls_fail(LS_ERR_INVALID, "cannot write '%s': the value of \"%s\", \"%s\", is not UTF-8 text", path,
                           pairs[i].key, pairs[i].value);
        LS_TRY(add_key(path, map, "strings of the metadata", pairs[i].key, json_string(pairs[i].value)));
    }
    return LS_OK;
}

static ls_status check_entry(const char *path, const ls_safetensors_entry *entry, size_t index, size_t *bytes)
{
    char text[LS_SHAPE_TEXT];
    if (entry->name == NULL)
        return ls_fail(LS_ERR_INVALID, "cannot write '%s': tensor %zu has no name", path, index);
    if (strcmp(entry->name, METADATA) == 0)
        return ls_fail(LS_ERR_INVALID, "cannot write '%s': no tensor may be named " METADATA, path);
    if ((unsigned)entry->dtype >= LS_DTYPE_COUNT)
        return ls_fail(LS_ERR_INVALID, "cannot write '%s': \"%s\" has no dtype", path, entry->name);
    bool good = entry->shape.rank >= 0 && entry->shape.rank <= LS_MAX_RANK;
    for (int i = 0; good && i < entry->shape.rank; i++)
        good = entry->shape.dims[i] >= 0; /* LS_BATCH is negative */
    if (!good || !count_bytes(entry->dtype, &entry->shape, bytes))
        return ls_fail(LS_ERR_SHAPE, "cannot write '%s': \"%s\" cannot have the shape %s", path, entry->name,
                       ls_shape_format(&entry->shape, text));
    if (*bytes != 0 && entry->data == NULL)
        return ls_fail(LS_ERR_INVALID, "cannot write '%s': \"%s\" has no data", path, entry->name);
    return LS_OK;
}

/* Returns NULL if there is no memory. */
static json_t *describe(const ls_safetensors_entry *entry, size_t begin, size_t end)
{
    json_t *shape = json_array();
    for (int i = 0; i < entry->shape.rank; i++) {
        if (json_array_append_new(shape, json_integer(entry->shape.dims[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_names[entry->dtype], "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

/* Adds the entries to the header, and their data as parts 1 to `count`. */
static ls_status add_entries(const char *path, json_t *header, const ls_safetensors_entry *entries, size_t count,
                             ls_file_part *parts)
{
    size_t begin = 0, end, bytes = 0;
    for (size_t i = 0; i < count; i++, begin = end) {
        LS_TRY(check_entry(path, &entries[i], i, &bytes));
        if (!ls_size_add(begin, bytes, &end) || end > INT64_MAX)
            return ls_fail(LS_ERR_OVERFLOW, "cannot write '%s': more bytes than a file can have", path);
        LS_TRY(add_key(path, header, "tensors", entries[i].name, describe(&entries[i], begin, end)));
        parts[i + 1] = (ls_file_part){ entries[i].data, bytes };
    }
    return LS_OK;
}

/* Makes part 0: the size and the text of the header, padded with spaces to align the data. */
static ls_status make_header_part(const char *path, const json_t *header, ls_file_part *out)
{
    const size_t flags = JSON_COMPACT;
    size_t length = json_dumpb(header, NULL, 0, flags);
    uint64_t padded = ls_size_align(length, ALIGNMENT);
    if (length == 0)
        return ls_fail(LS_ERR_MEMORY, "no memory for the header of '%s'", path);
    if (padded > LS_SAFETENSORS_HEADER_LIMIT)
        return ls_fail(LS_ERR_OVERFLOW, "cannot write '%s': its header would have %llu bytes; at most %zu are allowed",
                       path, (unsigned long long)padded, LS_SAFETENSORS_HEADER_LIMIT);
    char *data = malloc(PREFIX + (size_t)padded);
    if (data == NULL)
        return ls_fail(LS_ERR_MEMORY, "no memory for the header of '%s' (%zu bytes)", path, length);
    memcpy(data, &padded, PREFIX);
    if (json_dumpb(header, data + PREFIX, length, flags) != length) {
        free(data);
        return ls_fail(LS_ERR_MEMORY, "no memory for the header of '%s' (%zu bytes)", path, length);
    }
    memset(data + PREFIX + length, ' ', (size_t)padded - length);
    *out = (ls_file_part){ data, PREFIX + (size_t)padded };
    return LS_OK;
}

ls_status ls_safetensors_make(const char *path, const ls_safetensors_entry *entries, size_t count,
                              const ls_safetensors_pair *metadata, size_t metadata_count, ls_file_part **out)
{
    ls_status status;
    json_t *header = json_object();
    ls_file_part *parts = count < SIZE_MAX / sizeof *parts ? calloc(count + 1, sizeof *parts) : NULL;
    if (header == NULL || parts == NULL) {
        status = ls_fail(LS_ERR_MEMORY, "no memory to write '%s' (%zu tensors)", path, count);
        goto free_header;
    }
    LS_TRY_GOTO(status, add_metadata(path, header, metadata, metadata_count), free_header);
    LS_TRY_GOTO(status, add_entries(path, header, entries, count, parts), free_header);
    status = make_header_part(path, header, &parts[0]);
free_header:
    json_decref(header);
    if (status == LS_OK)
        *out = parts;
    else
        free(parts);
    return status;
}

void ls_safetensors_free_parts(ls_file_part *parts)
{
    if (parts != NULL)
        free((void *)parts[0].data);
    free(parts);
}

ls_status ls_safetensors_write(const char *path, const ls_safetensors_entry *entries, size_t count,
                               const ls_safetensors_pair *metadata, size_t metadata_count)
{
    ls_file_part *parts = NULL;
    LS_TRY(ls_safetensors_make(path, entries, count, metadata, metadata_count, &parts));
    ls_status status = ls_file_write_parts(path, parts, count + 1);
    ls_safetensors_free_parts(parts);
    return status;
}
