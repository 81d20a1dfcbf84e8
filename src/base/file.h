/* Whole files: read into memory, or written so that a reader never sees half of one. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include <limits.h>
#include <sys/types.h>

#include "lockstep/base.h"

/* The whole file at *data, which the caller frees, with a zero after its last byte (not counted in *bytes). A file of
 * more than `limit` bytes is refused. A file that is not there is LS_ERR_NOT_FOUND. */
ls_status ls_file_read(const char *path, size_t limit, char **data, size_t *bytes);

/* Writes a temporary file beside `path`, syncs it and renames it over `path`: a crash or a full disk leaves the old
 * file as it was, and on failure the temporary is removed; that of a process that was killed, by the next one to write
 * the same file. Links are followed, also to a file that is not there yet, the mode of an old file is kept, and
 * something that is not a plain file (a pipe, /dev/null) is written as it is. */
ls_status ls_file_write(const char *path, const void *data, size_t bytes);

/* The same for a file made of several pieces of memory. */
typedef struct ls_file_part {
    const void *data;
    size_t bytes;
} ls_file_part;
ls_status ls_file_write_parts(const char *path, const ls_file_part *parts, size_t count);

/* Whether ls_file_write could write a plain file there: makes and removes a temporary beside it. */
ls_status ls_file_try(const char *path);

/* The file that `path` leads to, through links, as an absolute path. It need not exist, its folder must. */
ls_status ls_file_target(const char *path, char out[PATH_MAX]);

/* What the system says of a file: "cannot open 'x': No such file or directory". */
ls_status ls_file_fail(const char *what, const char *path, int error);

/* open(2), again where a signal came in between; closed in programs that this one starts. */
int ls_file_open(const char *path, int flags, mode_t mode);

#endif
