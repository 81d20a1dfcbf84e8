/* Files that grow by whole records while a job runs, such as a CSV log. If a record cannot be
 * written (the disk is full), the file is truncated to its last whole record. */
#ifndef LS_BASE_APPEND_H
#define LS_BASE_APPEND_H

#include "lockstep/base.h"

typedef struct ls_append {
    int fd;        /* -1: closed */
    int64_t bytes; /* size of the whole records */
    int error;     /* errno of the first failed write; 0: none */
} ls_append;

#define LS_APPEND_CLOSED                                                                                               \
    {                                                                                                                  \
        .fd = -1                                                                                                       \
    }

ls_status ls_append_open(ls_append *file, const char *path);

/* Truncates the file if it is longer; the next record is written there. Does nothing to pipes and
 * devices. */
void ls_append_truncate(ls_append *file, int64_t bytes);

/* Appends one record. After a failure, which is reported once, ignores all records. */
ls_status ls_append_write(ls_append *file, const void *data, size_t bytes);

/* Some file systems report a failed write only here. */
ls_status ls_append_close(ls_append *file);

/* Does what `mkdir -p` does. */
ls_status ls_make_folders(const char *path);

#endif
