/* A file that grows by whole records while something longer goes on: a line of CSV, an event.
 *
 * A record that cannot be written (a full disk) is cut off again, and nothing is written after it: the file then ends
 * with a whole record, and ls_append_write says what happened, once. */
#ifndef LS_BASE_APPEND_H
#define LS_BASE_APPEND_H

#include "lockstep/base.h"

typedef struct ls_append {
    int fd;        /* -1: not open */
    int64_t bytes; /* of whole records */
    int error;     /* errno of the write that failed: nothing is written after it; 0: none did */
} ls_append;

#define LS_APPEND_CLOSED                                                                                               \
    {                                                                                                                  \
        .fd = -1                                                                                                       \
    }

/* Opens the file, which is made where there is none; what is in it stays, and records go to its end. */
ls_status ls_append_open(ls_append *file, const char *path);

/* Cuts the file to that many bytes, or fewer if it is shorter: records go there. Pipes and devices have no length. */
void ls_append_cut(ls_append *file, int64_t bytes);

/* One record. Fails at the first write that does; later ones are dropped in silence. */
ls_status ls_append_write(ls_append *file, const void *data, size_t bytes);

/* What was written last may only fail now. */
ls_status ls_append_close(ls_append *file);

/* Folders as `mkdir -p` makes them. */
ls_status ls_make_folders(const char *path);

#endif
