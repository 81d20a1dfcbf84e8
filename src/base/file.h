/* Reads and writes whole files. A reader never sees a half-written file. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include <limits.h>
#include <sys/types.h>

#include "lockstep/base.h"

/* Reads a file into *data, which the caller frees. A zero byte follows the data; *bytes does not
 * count it. Fails if the file has more than `limit` bytes, with LS_ERR_NOT_FOUND if it does not
 * exist. */
ls_status ls_file_read(const char *path, size_t limit, char **data, size_t *bytes);

/* Writes a temporary file beside `path`, syncs it and renames it to `path`. A crash or a full disk
 * leaves the old file unchanged. Removes the temporary file on failure; the next write of the same
 * file removes one that a killed process left. Follows symbolic links, also dangling ones, and
 * keeps the mode of an existing file. Writes directly to anything that is not a regular file (a
 * pipe, /dev/null). */
ls_status ls_file_write(const char *path, const void *data, size_t bytes);

/* Same as ls_file_write for data in several pieces. */
typedef struct ls_file_part {
    const void *data;
    size_t bytes;
} ls_file_part;
ls_status ls_file_write_parts(const char *path, const ls_file_part *parts, size_t count);

/* Checks that ls_file_write can create a file there: creates and removes a temporary file. */
ls_status ls_file_try(const char *path);

/* Resolves `path` to an absolute path without symbolic links. The file need not exist; its folder
 * must. */
ls_status ls_file_target(const char *path, char out[PATH_MAX]);

/* Fails with the system's message for `error`: "cannot open 'x': No such file or directory". */
ls_status ls_file_fail(const char *what, const char *path, int error);

/* open(2) with O_CLOEXEC; retries if a signal interrupts it. */
int ls_file_open(const char *path, int flags, mode_t mode);

#endif
