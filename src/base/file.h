/* Reads and writes whole files. A reader never sees a half-written file. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include <limits.h>
#include <sys/types.h>

#include "lockstep/base.h"

/* Reads a file into *data, which the caller frees; a zero byte, not counted in *bytes, follows the
 * data. Fails if the file has more than `limit` bytes. */
ls_status ls_file_read(const char *path, size_t limit, char **data, size_t *bytes);

/* Writes a temporary file beside `path`, syncs it and renames it, so that a crash or a full disk
 * leaves the old file unchanged. The next write removes a temporary file that a killed process
 * left. Follows symbolic links, also dangling ones, and keeps the mode of an existing file. Writes
 * directly to a pipe or a device. */
ls_status ls_file_write(const char *path, const void *data, size_t bytes);

/* The same for data in several pieces. */
typedef struct ls_file_part {
    const void *data;
    size_t bytes;
} ls_file_part;
ls_status ls_file_write_parts(const char *path, const ls_file_part *parts, size_t count);

/* Checks that ls_file_write can create a file there. */
ls_status ls_file_try(const char *path);

/* Resolves symbolic links. The file need not exist; its folder must. */
ls_status ls_file_target(const char *path, char out[PATH_MAX]);

/* Fails with "cannot WHAT 'path': No such file or directory". */
ls_status ls_file_fail(const char *what, const char *path, int error);

/* open(2) with O_CLOEXEC and EINTR handled. */
int ls_file_open(const char *path, int flags, mode_t mode);

#endif
