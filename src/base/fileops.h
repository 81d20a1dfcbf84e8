/* Table of the system calls that change files. Tests replace it to record calls, to make one fail,
 * or to simulate a power failure. */
#ifndef LS_BASE_FILEOPS_H
#define LS_BASE_FILEOPS_H

#include <sys/types.h>

#include "base/file.h"

typedef struct ls_file_ops {
    void *user;
    int (*open)(void *user, const char *path, int flags, mode_t mode); /* adds O_CLOEXEC */
    ssize_t (*write)(void *user, int fd, const void *data, size_t bytes);
    int (*fsync)(void *user, int fd);
    int (*close)(void *user, int fd);
    int (*mkdir)(void *user, const char *path, mode_t mode);
    int (*rename)(void *user, const char *from, const char *to);
    int (*symlink)(void *user, const char *target, const char *path);
    int (*unlink)(void *user, const char *path);
    int (*rmdir)(void *user, const char *path);
} ls_file_ops;

extern const ls_file_ops ls_system_file_ops;

/* Creates and syncs a file; returns its SHA-256 and size. */
ls_status ls_ops_write_file(const ls_file_ops *ops, const char *path, const ls_file_part *parts, size_t count,
                            char hex[65], size_t *bytes);

/* Makes created, renamed and removed entries durable. Succeeds on file systems that cannot sync
 * folders. */
ls_status ls_ops_sync_folder(const ls_file_ops *ops, const char *path);

/* Records the errno of a failed call for ls_ops_disk_is_full, and returns it. The two functions
 * above call it themselves. */
int ls_ops_note(int error);
/* Whether the last failure recorded in this thread was a full disk or an exhausted quota. */
bool ls_ops_disk_is_full(void);

ls_status ls_file_sha256(const char *path, char hex[65], size_t *bytes);

#endif
