/* Files of tokens: nanoGPT's and llm.c's .bin, and .npy of integers. */
#include "data/token_file.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "data/readers.h"
#include "graph/shape.h"

/* llm.c's header: 256 int32, of which three are used. */
#define HEADER_BYTES 1024
#define HEADER_MAGIC 20240520
enum { HEADER_U16 = 1, HEADER_U32 = 7 }; /* versions */

bool ls_is_token_file(const char *path)
{
    return ls_ends_with(path, ".bin") || ls_ends_with(path, ".npy");
}

void ls_token_file_close(ls_token_file *file)
{
    if (file->map)
        munmap(file->map, file->map_bytes);
    free(file->owned);
    *file = (ls_token_file){ .map = NULL };
}

/* ---- Mapping ---- */

static ls_status map_file(const ls_data_file *file, ls_token_file *out)
{
    if (file->bytes == 0 || file->bytes > SIZE_MAX)
        return ls_fail(LS_ERR_DATA, "'%s' has %llu bytes, and no tokens", file->path, (unsigned long long)file->bytes);
    void *map = mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_SHARED, file->fd, 0);
    if (map == MAP_FAILED)
        return ls_fail(LS_ERR_IO, "cannot map '%s' into memory: %s", file->path, strerror(errno));
    out->map = map;
    out->map_bytes = (size_t)file->bytes;
    out->data = map;
    out->width = 1;
    out->count = (int64_t)file->bytes;
    return LS_OK;
}

/* Sets the place of the tokens. */
static ls_status lay_out(const ls_data_file *file, uint64_t offset, size_t width, ls_token_file *out)
{
    uint64_t bytes = file->bytes - offset;
    if (bytes % width != 0)
        return ls_fail(LS_ERR_DATA, "'%s' has %llu bytes of tokens, which is not a multiple of %zu", file->path,
                       (unsigned long long)bytes, width);
    out->data = (const unsigned char *)out->map + offset;
    out->width = width;
    out->count = (int64_t)(bytes / width);
    return LS_OK;
}

static ls_status lay_out_npy(const ls_data_file *file, ls_token_file *out)
{
    char text[LS_SHAPE_TEXT];
    ls_npy_integers found;
    LS_TRY(ls_npy_locate_integers(file, &found));
    if (found.shape.rank != 1)
        return ls_fail(LS_ERR_DATA, "'%s' has shape %s; tokens have one axis", file->path,
                       ls_shape_format(&found.shape, text));
    LS_TRY(lay_out(file, found.offset, found.width, out));
    if (out->count != found.shape.dims[0])
        return ls_fail(LS_ERR_DATA, "'%s' has room for %lld tokens after its header; the header says %lld", file->path,
                       (long long)out->count, (long long)found.shape.dims[0]);
    out->is_signed = found.is_signed;
    return LS_OK;
}

static ls_status lay_out_headed(const ls_data_file *file, const int32_t *header, ls_token_file *out)
{
    if (header[1] != HEADER_U16 && header[1] != HEADER_U32)
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "'%s' has the header of llm.c with version %d; supported are %d (u16) and %d (u32)", file->path,
                       header[1], HEADER_U16, HEADER_U32);
    LS_TRY(lay_out(file, HEADER_BYTES, header[1] == HEADER_U16 ? 2 : 4, out));
    if (out->count != header[2])
        return ls_fail(LS_ERR_DATA, "'%s' has %lld tokens after its header; the header says %d", file->path,
                       (long long)out->count, header[2]);
    return LS_OK;
}

static ls_status lay_out_any(const ls_data_file *file, ls_token_format format, ls_token_file *out)
{
    int32_t header[3] = { 0 };
    if (ls_ends_with(file->path, ".npy"))
        return lay_out_npy(file, out);
    if (format == LS_TOKENS_AUTO && file->bytes >= HEADER_BYTES)
        memcpy(header, out->map, sizeof header);
    if (header[0] == HEADER_MAGIC)
        return lay_out_headed(file, header, out);
    return lay_out(file, 0, format == LS_TOKENS_U32 ? 4 : 2, out);
}

static ls_status open_file(const char *path, bool bytes, ls_token_format format, ls_token_file *out)
{
    ls_data_file file;
    ls_token_file made = { .map = NULL };
    LS_TRY(ls_data_file_open(path, &file));
    ls_status status = map_file(&file, &made);
    if (status == LS_OK && !bytes)
        status = lay_out_any(&file, format, &made);
    ls_data_file_close(&file);
    if (status == LS_OK)
        *out = made;
    else
        ls_token_file_close(&made);
    return status;
}

ls_status ls_token_file_map_bytes(const char *path, ls_token_file *out)
{
    return open_file(path, true, LS_TOKENS_AUTO, out);
}

ls_status ls_token_file_open(const char *path, ls_token_format format, ls_token_file *out)
{
    return open_file(path, false, format, out);
}

/* ---- Reading and writing ---- */

static ls_status copy_ids(const char *path, const ls_token_file *file, int32_t *out)
{
    for (int64_t i = 0; i < file->count; i++) {
        int64_t id = ls_token_at(file, i);
        if (id < 0 || id > INT32_MAX)
            return ls_fail(LS_ERR_DATA, "'%s': token %lld is %lld; ids are from 0 to %d", path, (long long)i,
                           (long long)id, INT32_MAX);
        out[i] = (int32_t)id;
    }
    return LS_OK;
}

static ls_status check_format(const char *call, ls_token_format format)
{
    if ((unsigned)format > LS_TOKENS_U32)
        return ls_fail(LS_ERR_INVALID, "%s: the format has the unknown value %d", call, (int)format);
    return LS_OK;
}

ls_status ls_tokens_read(const char *path, ls_token_format format, int32_t **ids, size_t *count)
{
    ls_token_file file;
    if (!path || !ids || !count)
        return ls_fail(LS_ERR_INVALID, "ls_tokens_read: path, ids or count is NULL");
    LS_TRY(check_format("ls_tokens_read", format));
    LS_TRY(ls_token_file_open(path, format, &file));
    int32_t *made = malloc(((size_t)file.count + 1) * sizeof *made);
    ls_status status =
        made ? copy_ids(path, &file, made)
             : ls_fail(LS_ERR_MEMORY, "no memory for the %lld tokens of '%s'", (long long)file.count, path);
    size_t found = (size_t)file.count;
    ls_token_file_close(&file);
    if (status != LS_OK) {
        free(made);
        return status;
    }
    *ids = made;
    *count = found;
    return LS_OK;
}

static ls_status check_ids(const int32_t *ids, size_t count, int64_t vocab)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return ls_fail(LS_ERR_DATA, "token %zu of %zu is %d; the vocabulary has %lld", i, count, ids[i],
                           (long long)vocab);
    return LS_OK;
}

static void put_ids(const int32_t *ids, size_t count, size_t width, unsigned char *out)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t two = (uint16_t)ids[i];
        memcpy(out + i * width, width == 2 ? (const void *)&two : &ids[i], width);
    }
}

ls_status ls_tokens_write(const char *path, const int32_t *ids, size_t count, int64_t vocab, ls_token_format format)
{
    if (!path || (!ids && count > 0))
        return ls_fail(LS_ERR_INVALID, "ls_tokens_write: path or ids is NULL");
    LS_TRY(check_format("ls_tokens_write", format));
    if (vocab < 1 || (format == LS_TOKENS_U16 && vocab > 65536))
        return ls_fail(LS_ERR_INVALID, "ls_tokens_write: a vocabulary of %lld; expected %s", (long long)vocab,
                       format == LS_TOKENS_U16 ? "1 to 65536 for tokens of 16 bits" : "at least 1");
    if (format == LS_TOKENS_AUTO && count > INT32_MAX)
        return ls_fail(LS_ERR_OVERFLOW,
                       "the header of llm.c cannot count %zu tokens; write them without it, as u16 or u32", count);
    LS_TRY(check_ids(ids, count, vocab));
    size_t width = format == LS_TOKENS_U32 || vocab > 65536 ? 4 : 2;
    int32_t header[HEADER_BYTES / 4] = { HEADER_MAGIC, width == 2 ? HEADER_U16 : HEADER_U32, (int32_t)count };
    unsigned char *data = malloc(count * width + 1);
    if (!data)
        return ls_fail(LS_ERR_MEMORY, "no memory to write %zu tokens", count);
    put_ids(ids, count, width, data);
    ls_file_part parts[2] = { { .data = header, .bytes = format == LS_TOKENS_AUTO ? sizeof header : 0 },
                              { .data = data, .bytes = count * width } };
    ls_status status = ls_file_write_parts(path, parts, 2);
    free(data);
    return status;
}
