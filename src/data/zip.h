/* Zip archives for .npz and .keras files. Writes stored members; also reads deflated ones. */
#ifndef LS_DATA_ZIP_H
#define LS_DATA_ZIP_H

#include "base/file.h"
#include "base/text.h"
#include "data/stream.h"

typedef struct ls_zip {
    const ls_data_file *file;
    unsigned char *directory; /* central directory, as in the file */
    size_t directory_bytes;
    uint64_t directory_offset;
    uint64_t count;
} ls_zip;

typedef struct ls_zip_member {
    unsigned method, flags;
    uint32_t crc;
    uint64_t packed, unpacked; /* sizes in bytes */
    uint64_t offset;           /* position of its local header */
} ls_zip_member;

ls_status ls_zip_open(const ls_data_file *file, ls_zip *out);
void ls_zip_close(ls_zip *zip);

ls_status ls_zip_find(const ls_zip *zip, const char *name, ls_zip_member *out, bool *found);

/* Lists the names of all members, printable, separated by spaces. */
ls_status ls_zip_names(const ls_zip *zip, ls_text *out);

/* Start with *position = 0. Names are not zero-terminated. */
ls_status ls_zip_next(const ls_zip *zip, size_t *position, const char **name, size_t *chars);

/* `name` must outlive the stream. */
ls_status ls_zip_stream(const ls_zip *zip, const char *name, const ls_zip_member *member, ls_stream **out);

/* Reads a whole member of at most `limit` bytes and appends a zero byte; the caller frees *data. */
ls_status ls_zip_read_from(const char *path, const char *name, size_t limit, char **data, size_t *bytes);

/* ---- Writing ---- */

typedef struct ls_zip_new {
    const char *name;
    const ls_file_part *parts; /* contents, in consecutive pieces */
    size_t part_count;
} ls_zip_new;

/* Replaces the file atomically (ls_file_write_parts). Equal members give equal bytes. */
ls_status ls_zip_write(const char *path, const ls_zip_new *members, size_t count);

#endif
