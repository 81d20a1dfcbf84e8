/* Data is decompressed directly into its destination. */
#include "data/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/size.h"
#include "base/status.h"
#include "base/work.h"
#include "graph/shape.h"

#define BUFFER     ((size_t)1 << 16)
#define STEP       ((size_t)1 << 30) /* zlib uses unsigned int for sizes */
#define MOST_RATIO 1032              /* maximum compression ratio of deflate */
#define NAME_CHARS 512

struct ls_stream {
    const ls_data_file *file;
    ls_packing packing;
    uint64_t next, end; /* offsets in the file: next byte to read, end of this part */
    uint64_t produced;  /* bytes returned so far */
    z_stream z;
    bool ended; /* end of the compressed data reached */
    bool has_crc;
    uint32_t crc, expected_crc;
    char name[NAME_CHARS];
    unsigned char buffer[BUFFER];
};

void *ls_data_alloc(size_t bytes)
{
    return bytes > PTRDIFF_MAX - 64 ? NULL : aligned_alloc(64, ls_size_align(bytes ? bytes : 1, 64));
}

bool ls_data_bytes(ls_dtype dtype, const ls_shape *shape, size_t *out)
{
    int64_t count;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] < 0)
            return false;
    return ls_shape_count(shape, 0, &count) && ls_size_mul((size_t)count, ls_dtype_bytes(dtype), out) &&
           *out <= PTRDIFF_MAX / 4;
}

/* ---- Files ---- */

ls_status ls_data_file_open(const char *path, ls_data_file *out)
{
    struct stat info;
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not block on a pipe */
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return ls_file_fail("open", path, errno);
    ls_status status = LS_OK;
    if (fstat(fd, &info) != 0)
        status = ls_file_fail("examine", path, errno);
    else if (!S_ISREG(info.st_mode))
        status = ls_fail(LS_ERR_IO, "cannot read '%s': it is not a regular file", path);
    if (status != LS_OK) {
        close(fd);
        return status;
    }
    *out = (ls_data_file){ .fd = fd, .path = path, .bytes = (uint64_t)info.st_size };
    return LS_OK;
}

void ls_data_file_close(ls_data_file *file)
{
    ls_work_end();
    close(file->fd);
}

/* Reads `bytes` bytes, fewer only at the end of the file. */
static ls_status read_some(const ls_data_file *file, uint64_t offset, void *to, size_t bytes, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        size_t left = bytes - *got < LS_WORK_CHUNK ? bytes - *got : LS_WORK_CHUNK;
        ssize_t n = pread(file->fd, (char *)to + *got, left, (off_t)(offset + *got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ls_file_fail("read", file->path, errno);
        if (n == 0)
            break;
        *got += (size_t)n;
        ls_work_report("reading", file->path, (int64_t)(offset + *got), (int64_t)file->bytes);
    }
    return LS_OK;
}

ls_status ls_data_file_at(const ls_data_file *file, uint64_t offset, void *to, size_t bytes, const char *what)
{
    size_t got = 0;
    if (offset <= file->bytes && bytes <= file->bytes - offset)
        LS_TRY(read_some(file, offset, to, bytes, &got));
    else if (offset <= file->bytes)
        got = (size_t)(file->bytes - offset);
    if (got < bytes)
        return ls_fail(LS_ERR_DATA, "'%s' is truncated: expected %zu bytes of %s at byte %llu, found %zu", file->path,
                       bytes, what, (unsigned long long)offset, got);
    return LS_OK;
}

/* ---- Streams ---- */

ls_status ls_stream_open(const ls_data_file *file, const char *member, ls_packing packing, uint64_t offset,
                         uint64_t bytes, ls_stream **out)
{
    ls_stream *s = malloc(sizeof *s);
    if (!s)
        return ls_fail(LS_ERR_MEMORY, "no memory to read '%s'", file->path);
    memset(s, 0, offsetof(ls_stream, buffer));
    s->file = file;
    s->packing = packing;
    s->next = offset;
    s->end = offset + bytes;
    s->crc = (uint32_t)crc32(0, NULL, 0);
    if (member)
        snprintf(s->name, sizeof s->name, "'%s' (%s)", file->path, member);
    else
        snprintf(s->name, sizeof s->name, "'%s'", file->path);
    if (packing != LS_PACKING_NONE &&
        inflateInit2(&s->z, packing == LS_PACKING_GZIP ? 16 + MAX_WBITS : -MAX_WBITS) != Z_OK) {
        free(s);
        return ls_fail(LS_ERR_MEMORY, "no memory to decompress '%s'", file->path);
    }
    *out = s;
    return LS_OK;
}

void ls_stream_close(ls_stream *stream)
{
    if (!stream)
        return;
    if (stream->packing != LS_PACKING_NONE)
        inflateEnd(&stream->z);
    free(stream);
}

void ls_stream_expect_crc(ls_stream *stream, uint32_t crc)
{
    stream->has_crc = true;
    stream->expected_crc = crc;
}

const char *ls_stream_name(const ls_stream *stream)
{
    return stream->name;
}

uint64_t ls_stream_offset(const ls_stream *stream)
{
    return stream->produced;
}

uint64_t ls_stream_most(const ls_stream *stream)
{
    uint64_t left = stream->end - stream->next + stream->z.avail_in;
    if (stream->packing == LS_PACKING_NONE)
        return left;
    return left > UINT64_MAX / MOST_RATIO - 1 ? UINT64_MAX : (left + 1) * MOST_RATIO;
}

static unsigned long long file_offset(const ls_stream *s)
{
    return (unsigned long long)(s->next - s->z.avail_in);
}

/* Refills an empty buffer. */
static ls_status refill(ls_stream *s)
{
    size_t got, wanted = s->end - s->next < BUFFER ? (size_t)(s->end - s->next) : BUFFER;
    if (s->z.avail_in > 0 || wanted == 0)
        return LS_OK;
    LS_TRY(read_some(s->file, s->next, s->buffer, wanted, &got));
    s->next += got;
    s->z.next_in = s->buffer;
    s->z.avail_in = (uInt)got;
    return LS_OK;
}

/* Only another gzip member may follow. */
static ls_status end_member(ls_stream *s)
{
    LS_TRY(refill(s));
    s->ended = true;
    if (s->z.avail_in == 0)
        return LS_OK;
    if (s->packing == LS_PACKING_GZIP && s->z.next_in[0] == 0x1f) {
        s->ended = false;
        return inflateReset(&s->z) == Z_OK ? LS_OK
                                           : ls_fail(LS_ERR_INTERNAL, "%s: cannot continue to decompress", s->name);
    }
    return ls_fail(LS_ERR_DATA, "%s: the compressed data ends at byte %llu, but %llu bytes follow", s->name,
                   file_offset(s), (unsigned long long)(s->end - file_offset(s)));
}

/* Decompresses `bytes` bytes, fewer only at the end of the data. */
static ls_status unpack(ls_stream *s, unsigned char *to, size_t bytes, size_t *got, const char *what)
{
    *got = 0;
    while (*got < bytes && !s->ended) {
        size_t step = bytes - *got < STEP ? bytes - *got : STEP;
        LS_TRY(refill(s));
        s->z.next_out = to + *got;
        s->z.avail_out = (uInt)step;
        int result = inflate(&s->z, Z_NO_FLUSH);
        *got += step - s->z.avail_out;
        if (result == Z_STREAM_END)
            LS_TRY(end_member(s));
        else if (result == Z_BUF_ERROR)
            return ls_fail(
                LS_ERR_DATA,
                "%s is truncated: the compressed data ends at byte %llu, after %llu decompressed bytes, inside %s",
                s->name, file_offset(s), (unsigned long long)(s->produced + *got), what);
        else if (result == Z_MEM_ERROR)
            return ls_fail(LS_ERR_MEMORY, "no memory to decompress %s", s->name);
        else if (result != Z_OK)
            return ls_fail(LS_ERR_DATA, "%s: the compressed data is damaged near byte %llu (%s), inside %s", s->name,
                           file_offset(s), s->z.msg ? s->z.msg : "no detail", what);
    }
    return LS_OK;
}

static void add_crc(ls_stream *s, const unsigned char *data, size_t bytes)
{
    for (size_t done = 0; s->has_crc && done < bytes;) {
        size_t step = bytes - done < STEP ? bytes - done : STEP;
        s->crc = (uint32_t)crc32(s->crc, data + done, (uInt)step);
        done += step;
    }
}

ls_status ls_stream_read(ls_stream *stream, void *to, size_t bytes, const char *what)
{
    size_t got = 0;
    if (stream->packing == LS_PACKING_NONE) {
        uint64_t left = stream->end - stream->next;
        LS_TRY(read_some(stream->file, stream->next, to, bytes < left ? bytes : (size_t)left, &got));
        stream->next += got;
    } else {
        LS_TRY(unpack(stream, to, bytes, &got, what));
    }
    if (got < bytes)
        return ls_fail(LS_ERR_DATA, "%s is truncated: expected %zu bytes of %s at byte %llu%s, found %zu", stream->name,
                       bytes, what, (unsigned long long)stream->produced,
                       stream->packing == LS_PACKING_NONE ? "" : " (decompressed)", got);
    add_crc(stream, to, bytes);
    stream->produced += bytes;
    return LS_OK;
}

ls_status ls_stream_finish(ls_stream *stream)
{
    unsigned char beyond;
    size_t more = 0;
    if (stream->packing == LS_PACKING_NONE)
        more = stream->next < stream->end;
    else
        LS_TRY(unpack(stream, &beyond, 1, &more, "its end"));
    if (more)
        return ls_fail(LS_ERR_DATA, "%s: the header says that the data ends at byte %llu%s, but there is more",
                       stream->name, (unsigned long long)stream->produced,
                       stream->packing == LS_PACKING_NONE ? "" : " (decompressed)");
    if (stream->has_crc && stream->crc != stream->expected_crc)
        return ls_fail(LS_ERR_DATA, "%s: the data is damaged: its checksum is %08x; expected %08x", stream->name,
                       (unsigned)stream->crc, (unsigned)stream->expected_crc);
    return LS_OK;
}

ls_status ls_stream_read_array(ls_stream *stream, ls_dtype dtype, ls_shape shape, ls_array *out)
{
    char text[LS_SHAPE_TEXT];
    size_t bytes;
    if (!ls_data_bytes(dtype, &shape, &bytes))
        return ls_fail(LS_ERR_DATA, "%s: the header says %s %s, which exceeds any memory", stream->name,
                       ls_dtype_name(dtype), ls_shape_format(&shape, text));
    if (bytes > ls_stream_most(stream))
        return ls_fail(
            LS_ERR_DATA,
            "%s is truncated: the header says %s %s, so %zu bytes are expected at byte %llu%s, but there are %s%llu",
            stream->name, ls_dtype_name(dtype), ls_shape_format(&shape, text), bytes,
            (unsigned long long)stream->produced, stream->packing == LS_PACKING_NONE ? "" : " (decompressed)",
            stream->packing == LS_PACKING_NONE ? "" : "at most ", (unsigned long long)ls_stream_most(stream));
    void *data = ls_data_alloc(bytes);
    if (!data)
        return ls_fail(LS_ERR_MEMORY, "no memory for the %zu bytes of %s", bytes, stream->name);
    ls_status status = ls_stream_read(stream, data, bytes, "data");
    if (status == LS_OK)
        status = ls_stream_finish(stream);
    if (status != LS_OK) {
        free(data);
        return status;
    }
    *out = (ls_array){ .data = data, .dtype = dtype, .shape = shape };
    return LS_OK;
}
