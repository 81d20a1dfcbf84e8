/* Zip archives, as far as .npz and .keras files need them: the directory, and members that are stored or deflated; and
 * archives of stored members, written. */
#ifndef LS_DATA_ZIP_H
#define LS_DATA_ZIP_H

#include "base/file.h"
#include "base/text.h"
#include "data/stream.h"

typedef struct ls_zip {
    const ls_data_file *file;
    unsigned char *directory; /* the central directory, as it is in the file */
    size_t directory_bytes;
    uint64_t directory_offset;
    uint64_t count;
} ls_zip;

typedef struct ls_zip_member {
    unsigned method, flags;
    uint32_t crc;
    uint64_t packed, unpacked; /* bytes */
    uint64_t offset;           /* of its local header */
} ls_zip_member;

ls_status ls_zip_open(const ls_data_file *file, ls_zip *out);
void ls_zip_close(ls_zip *zip);

/* *found is false when there is none of that name. */
ls_status ls_zip_find(const ls_zip *zip, const char *name, ls_zip_member *out, bool *found);

/* The names of all members, printable, separated by blanks. */
ls_status ls_zip_names(const ls_zip *zip, ls_text *out);

/* The name of each member in turn, from *place 0 on, as it stands in the directory: not zero-terminated. */
ls_status ls_zip_next(const ls_zip *zip, size_t *place, const char **name, size_t *chars);

/* `name` must outlive the stream. */
ls_status ls_zip_stream(const ls_zip *zip, const char *name, const ls_zip_member *member, ls_stream **out);

/* All of a member, at most `limit` bytes, with a zero behind it; free() it. */
ls_status ls_zip_read(const ls_zip *zip, const char *name, size_t limit, char **data, size_t *bytes);

/* The same from a file that is not open. */
ls_status ls_zip_read_from(const char *path, const char *name, size_t limit, char **data, size_t *bytes);

/* ---- Writing ---- */

typedef struct ls_zip_new {
    const char *name;
    const ls_file_part *parts; /* its bytes, one piece behind the other */
    size_t part_count;
} ls_zip_new;

/* Replaces the file as ls_file_write_parts does. Equal members give equal bytes: nothing is dated. */
ls_status ls_zip_write(const char *path, const ls_zip_new *members, size_t count);

#endif
