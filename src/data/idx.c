/* Reader of IDX files, the format of MNIST: two zero bytes, element type, rank, the size of each
 * axis, the elements. All numbers are big-endian. */
#include <string.h>

#include "base/status.h"
#include "data/readers.h"
#include "data/stream.h"

static uint32_t big_endian(const unsigned char *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static ls_status element_type(const char *name, unsigned code, ls_dtype *out)
{
    switch (code) {
    case 0x08:
        *out = LS_U8;
        return LS_OK;
    case 0x0C:
        *out = LS_I32;
        return LS_OK;
    case 0x0D:
        *out = LS_F32;
        return LS_OK;
    case 0x0E:
        *out = LS_F64;
        return LS_OK;
    case 0x09:
    case 0x0B:
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: elements of type %s are not supported", name,
                       code == 9 ? "int8" : "int16");
    }
    return ls_fail(LS_ERR_DATA, "%s is not an IDX file: the element type at byte 2 is 0x%02x, expected 0x08 to 0x0e",
                   name, code);
}

static ls_status read_header(ls_stream *stream, ls_dtype *dtype, ls_shape *shape)
{
    unsigned char magic[4], sizes[4 * LS_MAX_RANK];
    const char *name = ls_stream_name(stream);
    LS_TRY(ls_stream_read(stream, magic, sizeof magic, "the magic number"));
    if (magic[0] || magic[1])
        return ls_fail(LS_ERR_DATA,
                       "%s is not an IDX file: the magic number at byte 0 is 0x%02x%02x%02x%02x, expected 0x0000....",
                       name, magic[0], magic[1], magic[2], magic[3]);
    LS_TRY(element_type(name, magic[2], dtype));
    if (magic[3] < 1 || magic[3] > LS_MAX_RANK)
        return ls_fail(LS_ERR_DATA, "%s: the number of axes at byte 3 is %d, expected 1 to %d", name, magic[3],
                       LS_MAX_RANK);
    *shape = (ls_shape){ .rank = magic[3] };
    LS_TRY(ls_stream_read(stream, sizes, 4 * (size_t)shape->rank, "sizes"));
    for (int i = 0; i < shape->rank; i++)
        shape->dims[i] = big_endian(sizes + 4 * i);
    return LS_OK;
}

static void swap_bytes(ls_array *array)
{
    size_t width = ls_dtype_bytes(array->dtype), bytes = 0;
    unsigned char *data = array->data;
    ls_data_bytes(array->dtype, &array->shape, &bytes);
    for (size_t i = 0; width > 1 && i < bytes; i += width)
        for (size_t k = 0; k < width / 2; k++) {
            unsigned char other = data[i + k];
            data[i + k] = data[i + width - 1 - k];
            data[i + width - 1 - k] = other;
        }
}

ls_status ls_idx_locate(const ls_data_file *file, ls_array *out, uint64_t *offset)
{
    ls_stream *stream = NULL;
    LS_TRY(ls_stream_open(file, NULL, LS_PACKING_NONE, 0, file->bytes, &stream));
    ls_status status = read_header(stream, &out->dtype, &out->shape);
    if (status == LS_OK && out->dtype != LS_U8)
        status = ls_fail(LS_ERR_UNSUPPORTED,
                         "%s has %s elements, which are big-endian and cannot be mapped into memory; only bytes can",
                         ls_stream_name(stream), ls_dtype_name(out->dtype));
    *offset = ls_stream_offset(stream);
    ls_stream_close(stream);
    return status;
}

static ls_status read_stream(const ls_data_file *file, ls_array *out)
{
    unsigned char first[2] = { 0 };
    ls_stream *stream = NULL;
    ls_dtype dtype = LS_U8;
    ls_shape shape = { 0 };
    if (file->bytes >= sizeof first)
        LS_TRY(ls_data_file_at(file, 0, first, sizeof first, "the magic number"));
    ls_packing packing = first[0] == 0x1f && first[1] == 0x8b ? LS_PACKING_GZIP : LS_PACKING_NONE;
    LS_TRY(ls_stream_open(file, NULL, packing, 0, file->bytes, &stream));
    ls_status status = read_header(stream, &dtype, &shape);
    if (status == LS_OK)
        status = ls_stream_read_array(stream, dtype, shape, out);
    if (status == LS_OK)
        swap_bytes(out);
    ls_stream_close(stream);
    return status;
}

ls_status ls_idx_read(const char *path, ls_array *out)
{
    ls_data_file file;
    if (!path || !out)
        return ls_fail(LS_ERR_INVALID, "ls_idx_read: path or out is NULL");
    LS_TRY(ls_data_file_open(path, &file));
    ls_status status = read_stream(&file, out);
    ls_data_file_close(&file);
    return status;
}
