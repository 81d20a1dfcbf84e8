/* Reader of NumPy arrays: .npy and .npz. */
#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "base/numbers.h"
#include "base/status.h"
#include "data/readers.h"
#include "data/stream.h"
#include "data/tensors.h"
#include "data/zip.h"

#define MOST_HEADER 65536
#define MOST_NAME   256

/* ---- The header, a Python dictionary ---- */

typedef struct header {
    const char *at;
    char descr[32];
    bool fortran, has_descr, has_fortran, has_shape;
    ls_shape shape;
} header;

static bool skip(header *h, char c)
{
    while (*h->at == ' ' || *h->at == '\t' || *h->at == '\n')
        h->at++;
    if (*h->at != c)
        return false;
    h->at++;
    return true;
}

/* Parses a string in single or double quotes, without escapes. */
static bool take_string(header *h, char *out, size_t size)
{
    char quote = skip(h, '\'') ? '\'' : skip(h, '"') ? '"' : 0;
    size_t length = 0;
    if (!quote)
        return false;
    while (h->at[length] && h->at[length] != quote)
        length++;
    if (!h->at[length] || length >= size)
        return false;
    memcpy(out, h->at, length);
    out[length] = 0;
    h->at += length + 1;
    return true;
}

static bool take_word(header *h, const char *word)
{
    skip(h, ' ');
    size_t length = strlen(word);
    if (strncmp(h->at, word, length) != 0)
        return false;
    h->at += length;
    return true;
}

static bool take_size(header *h, int64_t *out)
{
    char digits[24];
    size_t length = 0;
    skip(h, ' ');
    while (length < sizeof digits - 1 && isdigit((unsigned char)h->at[length])) {
        digits[length] = h->at[length];
        length++;
    }
    digits[length] = 0;
    if (!ls_parse_i64(digits, out))
        return false;
    h->at += length;
    return true;
}

static bool take_shape(header *h)
{
    if (!skip(h, '('))
        return false;
    while (!skip(h, ')')) {
        if (h->shape.rank == LS_MAX_RANK || !take_size(h, &h->shape.dims[h->shape.rank]))
            return false;
        h->shape.rank++;
        if (!skip(h, ',')) /* "(3)" is a number in Python; accepted as a shape here */
            return skip(h, ')');
    }
    return true;
}

static bool take_entry(header *h)
{
    char key[32];
    if (!take_string(h, key, sizeof key) || !skip(h, ':'))
        return false;
    if (strcmp(key, "descr") == 0)
        return h->has_descr = take_string(h, h->descr, sizeof h->descr);
    if (strcmp(key, "shape") == 0)
        return h->has_shape = !h->has_shape && take_shape(h);
    if (strcmp(key, "fortran_order") == 0)
        return h->has_fortran = (h->fortran = take_word(h, "True")) || take_word(h, "False");
    return false;
}

static bool parse_header(header *h)
{
    if (!skip(h, '{'))
        return false;
    while (!skip(h, '}')) {
        if (!take_entry(h))
            return false;
        if (!skip(h, ','))
            return skip(h, '}') && h->has_descr && h->has_shape && h->has_fortran;
    }
    return h->has_descr && h->has_shape && h->has_fortran;
}

static ls_status element_type(const char *name, const char *descr, ls_dtype *out)
{
    static const struct {
        const char *descr;
        ls_dtype dtype;
    } types[] = { { "u1", LS_U8 },  { "b1", LS_BOOL }, { "i4", LS_I32 },
                  { "i8", LS_I64 }, { "f4", LS_F32 },  { "f8", LS_F64 } };
    const char *kind = strchr("<>|=", descr[0]) && descr[0] ? descr + 1 : descr;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(kind, types[i].descr) != 0)
            continue;
        if (descr[0] == '>' && ls_dtype_bytes(types[i].dtype) > 1)
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "%s: elements '%s' are big-endian, which is not supported; save them as '<%s'", name, descr,
                           kind);
        *out = types[i].dtype;
        return LS_OK;
    }
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "%s: elements of type '%s' are not supported; supported are u1, b1, i4, i8, f4 and f8", name, descr);
}

/* ---- Arrays ---- */

static ls_status header_bytes(ls_stream *stream, size_t *out)
{
    unsigned char begin[8], length[4] = { 0 };
    const char *name = ls_stream_name(stream);
    LS_TRY(ls_stream_read(stream, begin, sizeof begin, "the magic number"));
    if (memcmp(begin, "\x93NUMPY", 6) != 0)
        return ls_fail(LS_ERR_DATA,
                       "%s is not a .npy file: byte 0 is 0x%02x%02x%02x%02x%02x%02x, expected 0x934e554d5059 (NUMPY)",
                       name, begin[0], begin[1], begin[2], begin[3], begin[4], begin[5]);
    if (begin[6] < 1 || begin[6] > 3)
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: format version %d.%d at byte 6; 1, 2 and 3 are supported", name,
                       begin[6], begin[7]);
    LS_TRY(ls_stream_read(stream, length, begin[6] == 1 ? 2 : 4, "the header's length"));
    *out = length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
    if (*out > MOST_HEADER)
        return ls_fail(LS_ERR_DATA, "%s: the header's length at byte 8 is %zu; at most %d is accepted", name, *out,
                       MOST_HEADER);
    return LS_OK;
}

static ls_status check_bools(const char *name, uint64_t offset, const ls_array *array)
{
    const unsigned char *data = array->data;
    size_t bytes = 0;
    ls_data_bytes(array->dtype, &array->shape, &bytes);
    for (size_t i = 0; array->dtype == LS_BOOL && i < bytes; i++)
        if (data[i] > 1)
            return ls_fail(LS_ERR_DATA, "%s: the bool at byte %llu is %d, expected 0 or 1", name,
                           (unsigned long long)(offset + i), data[i]);
    return LS_OK;
}

/* `text` has room for `bytes` and a zero. */
static ls_status read_header(ls_stream *stream, char *text, size_t bytes, header *h)
{
    const char *name = ls_stream_name(stream);
    *h = (header){ .at = text };
    LS_TRY(ls_stream_read(stream, text, bytes, "the header"));
    text[bytes] = 0;
    if (strlen(text) != bytes || !parse_header(h)) {
        return ls_fail(
            LS_ERR_DATA,
            "%s: the header is not a dictionary of descr (one plain type), fortran_order and shape (at most %d "
            "axes): %.200s",
            name, LS_MAX_RANK, text);
    }
    h->at = NULL; /* the caller frees the text */
    if (h->fortran && h->shape.rank > 1)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s is in Fortran order, which is not supported; save numpy.ascontiguousarray of it", name);
    return LS_OK;
}

static ls_status read_any_header(ls_stream *stream, header *h)
{
    size_t bytes = 0;
    LS_TRY(header_bytes(stream, &bytes));
    char *text = malloc(bytes + 1);
    if (!text)
        return ls_fail(LS_ERR_MEMORY, "no memory for the header of %s", ls_stream_name(stream));
    ls_status status = read_header(stream, text, bytes, h);
    free(text);
    return status;
}

static ls_status read_stream(ls_stream *stream, ls_array *out)
{
    const char *name = ls_stream_name(stream);
    ls_dtype dtype = LS_F32;
    ls_array array = { 0 };
    header h;
    LS_TRY(read_any_header(stream, &h));
    LS_TRY(element_type(name, h.descr, &dtype));
    uint64_t offset = ls_stream_offset(stream);
    LS_TRY(ls_stream_read_array(stream, dtype, h.shape, &array));
    ls_status status = check_bools(name, offset, &array);
    if (status == LS_OK)
        *out = array;
    else
        free(array.data);
    return status;
}

static ls_status locate(const ls_data_file *file, header *h, uint64_t *offset)
{
    ls_stream *stream = NULL;
    LS_TRY(ls_stream_open(file, NULL, LS_PACKING_NONE, 0, file->bytes, &stream));
    ls_status status = read_any_header(stream, h);
    *offset = ls_stream_offset(stream);
    ls_stream_close(stream);
    return status;
}

ls_status ls_npy_locate(const ls_data_file *file, ls_array *out, uint64_t *offset)
{
    char name[PATH_MAX + 2];
    header h;
    LS_TRY(locate(file, &h, offset));
    snprintf(name, sizeof name, "'%s'", file->path);
    LS_TRY(element_type(name, h.descr, &out->dtype));
    out->shape = h.shape;
    return LS_OK;
}

ls_status ls_npy_locate_integers(const ls_data_file *file, ls_npy_integers *out)
{
    header h;
    LS_TRY(locate(file, &h, &out->offset));
    const char *type = h.descr[0] && strchr("<|=", h.descr[0]) ? h.descr + 1 : h.descr;
    bool known = (type[0] == 'u' || type[0] == 'i') && type[1] && strchr("1248", type[1]) && !type[2];
    if (!known)
        return ls_fail(LS_ERR_UNSUPPORTED, "'%s': elements of type '%s'; tokens are integers: u1, u2, u4, i4 or i8",
                       file->path, h.descr);
    out->is_signed = type[0] == 'i';
    out->width = (size_t)(type[1] - '0');
    out->shape = h.shape;
    return LS_OK;
}

ls_status ls_npy_read(const char *path, ls_array *out)
{
    ls_data_file file;
    ls_stream *stream = NULL;
    if (!path || !out)
        return ls_fail(LS_ERR_INVALID, "ls_npy_read: path or out is NULL");
    LS_TRY(ls_data_file_open(path, &file));
    ls_status status = ls_stream_open(&file, NULL, LS_PACKING_NONE, 0, file.bytes, &stream);
    if (status == LS_OK)
        status = read_stream(stream, out);
    ls_stream_close(stream);
    ls_data_file_close(&file);
    return status;
}

/* ---- Archives ---- */

static ls_status fail_missing(const ls_zip *zip, const char *name)
{
    ls_text names = { 0 };
    ls_status status = ls_zip_names(zip, &names);
    if (status == LS_OK)
        status = ls_fail(LS_ERR_NOT_FOUND, "'%s' has no array %s; it has: %.500s", zip->file->path, name,
                         names.length ? ls_text_get(&names) : "none");
    ls_text_free(&names);
    return status;
}

static ls_status find_array(const ls_zip *zip, const char *name, char member_name[MOST_NAME], ls_zip_member *member,
                            bool *found)
{
    *found = false;
    if (snprintf(member_name, MOST_NAME, "%s.npy", name) >= MOST_NAME)
        return LS_OK;
    LS_TRY(ls_zip_find(zip, member_name, member, found));
    return LS_OK;
}

static ls_status read_member(const ls_zip *zip, const char *name, ls_array *out)
{
    char member_name[MOST_NAME];
    ls_zip_member member;
    ls_stream *stream = NULL;
    bool found;
    LS_TRY(find_array(zip, name, member_name, &member, &found));
    if (!found)
        return fail_missing(zip, name);
    LS_TRY(ls_zip_stream(zip, member_name, &member, &stream));
    ls_status status = read_stream(stream, out);
    ls_stream_close(stream);
    return status;
}

/* Reads an array; out NULL: only checks whether it exists. */
static ls_status look_up(const char *path, const char *name, ls_array *out, bool *found)
{
    char member_name[MOST_NAME];
    ls_zip_member member;
    ls_data_file file;
    ls_zip zip;
    LS_TRY(ls_data_file_open(path, &file));
    ls_status status = ls_zip_open(&file, &zip);
    if (status == LS_OK) {
        status = out ? read_member(&zip, name, out) : find_array(&zip, name, member_name, &member, found);
        ls_zip_close(&zip);
    }
    ls_data_file_close(&file);
    return status;
}

ls_status ls_npz_read(const char *path, const char *name, ls_array *out)
{
    if (!path || !name || !out)
        return ls_fail(LS_ERR_INVALID, "ls_npz_read: path, name or out is NULL");
    return look_up(path, name, out, NULL);
}

/* Adds the array of member `name`, without its ".npy". *left is the part of the file that other
 * members have not used, so that overlapping members cannot request more memory than the file could
 * hold. */
static ls_status add_member(const ls_zip *zip, const char *name, uint64_t *left, ls_tensors *out)
{
    const char *path = zip->file->path;
    size_t chars = strlen(name);
    ls_zip_member member = { 0 };
    ls_stream *stream = NULL;
    ls_array array;
    bool found;
    if (chars < 5 || strcmp(name + chars - 4, ".npy") != 0)
        return ls_fail(LS_ERR_DATA, "'%s' is not an .npz archive: its member \"%s\" is not a .npy file", path, name);
    LS_TRY(ls_zip_find(zip, name, &member, &found));
    if (!found || member.packed > *left)
        return ls_fail(LS_ERR_DATA, "'%s' is damaged: members overlap at \"%s\"", path, name);
    *left -= member.packed;
    LS_TRY(ls_zip_stream(zip, name, &member, &stream));
    ls_status status = read_stream(stream, &array);
    ls_stream_close(stream);
    return status == LS_OK ? ls_tensors_add(out, path, name, chars - 4, array) : status;
}

static ls_status add_members(const ls_zip *zip, ls_tensors *out)
{
    uint64_t left = zip->file->bytes;
    size_t place = 0, chars;
    const char *name;
    for (uint64_t i = 0; i < zip->count; i++) {
        LS_TRY(ls_zip_next(zip, &place, &name, &chars));
        char *copy = strndup(name, chars);
        ls_status status = !copy ? ls_fail(LS_ERR_MEMORY, "no memory for the names of '%s'", zip->file->path)
                                 : add_member(zip, copy, &left, out);
        free(copy);
        LS_TRY(status);
    }
    return LS_OK;
}

ls_status ls_npz_read_all(const char *path, ls_tensors *out)
{
    ls_data_file file;
    ls_zip zip;
    LS_TRY(ls_data_file_open(path, &file));
    ls_status status = ls_zip_open(&file, &zip);
    if (status == LS_OK) {
        status = add_members(&zip, out);
        ls_zip_close(&zip);
    }
    ls_data_file_close(&file);
    return status;
}

ls_status ls_npz_has(const char *path, const char *name, bool *out)
{
    return look_up(path, name, NULL, out);
}
