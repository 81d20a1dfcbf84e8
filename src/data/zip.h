/* Zip archives, as far as .npz files need them: the directory, and members that are stored or deflated. */
#ifndef LS_DATA_ZIP_H
#define LS_DATA_ZIP_H

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

/* `name` must outlive the stream. */
ls_status ls_zip_stream(const ls_zip *zip, const char *name, const ls_zip_member *member, ls_stream **out);

#endif
