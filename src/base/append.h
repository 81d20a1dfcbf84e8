/* Files that grow by whole records while a longer job runs, such as a CSV log or an event file.
 *
 * If a record cannot be written (the disk is full), ls_append_write truncates the file to its last
 * whole record, reports the error once and ignores all later records. */
#ifndef LS_BASE_APPEND_H
#define LS_BASE_APPEND_H

#include "lockstep/base.h"

typedef struct ls_append {
    int fd;        /* -1: closed */
    int64_t bytes; /* total size of the whole records */
    int error;     /* errno of the failed write, after which records are ignored; 0: none */
} ls_append;

#define LS_APPEND_CLOSED                                                                                               \
    {                                                                                                                  \
        .fd = -1                                                                                                       \
    }

/* Opens a file for appending; creates it if it does not exist. */
ls_status ls_append_open(ls_append *file, const char *path);

/* Truncates the file to `bytes` bytes if it is longer; the next record is written there. Does
 * nothing to pipes and devices, which have no length. */
void ls_append_cut(ls_append *file, int64_t bytes);

/* Appends one record. Reports only the first failure; later records are silently ignored. */
ls_status ls_append_write(ls_append *file, const void *data, size_t bytes);

/* Closes the file. Some file systems report a failed write only here. */
ls_status ls_append_close(ls_append *file);

/* Creates a folder and its parents, as `mkdir -p` does. */
ls_status ls_make_folders(const char *path);

#endif
