/* Writer of NumPy files. The .npy format: a magic number, the length of the header (u16), the
 * header (a Python dictionary, padded with spaces to a multiple of 64), the elements. */
#include "lockstep/data.h"

#include <string.h>

#include "base/file.h"
#include "base/size.h"
#include "base/status.h"
#include "data/zip.h"
#include "graph/shape.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the descriptions below say so");

#define PREFIX      10 /* magic number, version, length */
#define HEADER      512
#define ALIGNMENT   64
#define MOST_DIGITS 21 /* space for the size of axis 0: numpy lets files grow in place */

static const char *const descriptions[LS_DTYPE_COUNT] = {
    [LS_F32] = "<f4", [LS_F64] = "<f8", [LS_I32] = "<i4", [LS_I64] = "<i8", [LS_U8] = "|u1", [LS_BOOL] = "|b1",
};

static size_t put(char *header, size_t length, const char *text)
{
    memcpy(header + length, text, strlen(text));
    return length + strlen(text);
}

/* Returns the header's length. Any shape fits into HEADER bytes. */
static size_t make_header(ls_dtype dtype, const ls_shape *shape, char header[HEADER])
{
    char number[32];
    memset(header, ' ', HEADER);
    size_t length = put(header, PREFIX, "{'descr': '");
    length = put(header, length, descriptions[dtype]);
    length = put(header, length, "', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < shape->rank; i++) {
        snprintf(number, sizeof number, "%s%lld", i == 0 ? "" : ", ", (long long)shape->dims[i]);
        length = put(header, length, number);
    }
    length = put(header, length, shape->rank == 1 ? ",), }" : "), }");
    if (shape->rank > 0)
        length += MOST_DIGITS - (size_t)snprintf(number, sizeof number, "%lld", (long long)shape->dims[0]);
    length = ls_size_align(length + 1, ALIGNMENT);
    header[length - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", PREFIX - 2);
    header[PREFIX - 2] = (char)((length - PREFIX) & 255);
    header[PREFIX - 1] = (char)((length - PREFIX) >> 8);
    return length;
}

static ls_status describe(const char *path, const ls_array *array, char header[HEADER], ls_file_part parts[2])
{
    char text[LS_SHAPE_TEXT];
    int64_t count = 0;
    size_t bytes = 0;
    const ls_shape *shape = &array->shape;
    if ((unsigned)array->dtype >= LS_DTYPE_COUNT)
        return ls_fail(LS_ERR_INVALID, "cannot write '%s': unknown dtype %d", path, (int)array->dtype);
    bool good = shape->rank >= 0 && shape->rank <= LS_MAX_RANK;
    for (int i = 0; good && i < shape->rank; i++)
        good = shape->dims[i] >= 0; /* LS_BATCH is negative */
    if (!good || !ls_shape_count(shape, 0, &count) || !ls_size_mul((size_t)count, ls_dtype_bytes(array->dtype), &bytes))
        return ls_fail(LS_ERR_SHAPE, "cannot write '%s': an array cannot have the shape %s", path,
                       ls_shape_format(shape, text));
    if (bytes != 0 && array->data == NULL)
        return ls_fail(LS_ERR_INVALID, "cannot write '%s': no data", path);
    parts[0] = (ls_file_part){ header, make_header(array->dtype, shape, header) };
    parts[1] = (ls_file_part){ array->data, bytes };
    return LS_OK;
}

ls_status ls_npy_write(const char *path, ls_array array)
{
    char header[HEADER];
    ls_file_part parts[2];
    if (!path)
        return ls_fail(LS_ERR_INVALID, "ls_npy_write: the path is NULL");
    LS_TRY(describe(path, &array, header, parts));
    return ls_file_write_parts(path, parts, 2);
}

/* ---- Archives ---- */

/* One array while the archive is written. */
typedef struct piece {
    char header[HEADER];
    ls_file_part parts[2];
} piece;

static ls_status make_member(const char *path, const char *name, const ls_array *array, piece *piece, ls_zip_new *out)
{
    if (!name)
        return ls_fail(LS_ERR_INVALID, "cannot write '%s': an array has no name", path);
    LS_TRY(ls_fail_within(describe(path, array, piece->header, piece->parts), "\"%s\"", name));
    size_t bytes = strlen(name) + sizeof ".npy";
    char *member = malloc(bytes);
    if (!member)
        return ls_fail(LS_ERR_MEMORY, "no memory to write '%s'", path);
    snprintf(member, bytes, "%s.npy", name);
    *out = (ls_zip_new){ .name = member, .parts = piece->parts, .part_count = 2 };
    return LS_OK;
}

ls_status ls_npz_write(const char *path, const char *const *names, const ls_array *arrays, size_t count)
{
    if (!path || (count > 0 && (!names || !arrays)))
        return ls_fail(LS_ERR_INVALID, "ls_npz_write: path, names or arrays is NULL");
    piece *pieces = calloc(count + 1, sizeof *pieces);
    ls_zip_new *members = calloc(count + 1, sizeof *members);
    ls_status status =
        pieces && members ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to write '%s' (%zu arrays)", path, count);
    for (size_t i = 0; i < count && status == LS_OK; i++)
        status = make_member(path, names[i], &arrays[i], &pieces[i], &members[i]);
    if (status == LS_OK)
        status = ls_zip_write(path, members, count);
    for (size_t i = 0; members && i < count; i++)
        free((char *)members[i].name);
    free(members);
    free(pieces);
    return status;
}
