/* The system's calls that change files, behind one table: a test can put another in its place, to write down what was
 * done, to make a call fail, or to see what a power cut leaves. Each is as the system's call of that name. */
#ifndef LS_BASE_FILEOPS_H
#define LS_BASE_FILEOPS_H

#include <sys/types.h>

#include "base/file.h"

typedef struct ls_file_ops {
    void *user;
    int (*open)(void *user, const char *path, int flags, mode_t mode); /* close-on-exec */
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

/* A new file with these parts, synced; its SHA-256 and its size. */
ls_status ls_ops_write_file(const ls_file_ops *ops, const char *path, const ls_file_part *parts, size_t count,
                            char hex[65], size_t *bytes);

/* Makes what was created, renamed and removed in a folder last. A file system that cannot sync a folder is no failure.
 */
ls_status ls_ops_sync_folder(const ls_file_ops *ops, const char *path);

/* Notes the errno of a call of the table that failed, and returns it. The calls above do this by themselves. */
int ls_ops_note(int error);
/* Whether the last failure noted in this thread was a full disk, or a quota that is used up. */
bool ls_ops_disk_is_full(void);

/* The SHA-256 and the size of a file that is there. */
ls_status ls_file_sha256(const char *path, char hex[65], size_t *bytes);

#endif
