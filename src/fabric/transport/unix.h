/* Unix sockets between workers of one user on one machine. The listener serves several transports,
 * in a folder that only this user can write to (socket_folder.h). What another user puts there is
 * reported once and ignored. */
#ifndef LS_FABRIC_TRANSPORT_UNIX_H
#define LS_FABRIC_TRANSPORT_UNIX_H

#include <poll.h>

#include "base/socket_folder.h"
#include "fabric/transport/transport.h"

#define LS_MOST_POLLS (2 * LS_MAX_CLUSTER + 128) /* connections and pending callers */

#define LS_UNIX_PATH_CHARS 108 /* a socket's path with its zero */

typedef struct ls_unix_listener {
    const char *kind; /* the transport's name */
    ls_cluster_options options;
    int number;
    int fd; /* -1: not open */
    char folder[LS_SOCKET_FOLDER_CHARS];
    char path[LS_UNIX_PATH_CHARS]; /* path of this worker's socket */
    uint64_t file[2];              /* its device and inode */
    char foreign[300];             /* what another user has put in the way; "": nothing */
    bool reported;                 /* `foreign` was reported */
} ls_unix_listener;

ls_status ls_unix_listener_open(ls_unix_listener *listener);
/* Also removes the sockets of workers that were killed. */
void ls_unix_listener_close(ls_unix_listener *listener);
/* -1: no worker of this user listens there yet. */
ls_status ls_unix_listener_call(ls_unix_listener *listener, int rank, int *fd);
/* -1: no caller of this user. */
int ls_unix_listener_answer(ls_unix_listener *listener);
/* See ls_transport_table.refused. */
bool ls_unix_listener_refused(ls_unix_listener *listener, char *why, size_t bytes);

/* A want without a connection is for a caller, or for its `bell`. */
struct pollfd ls_unix_poll_of(const ls_unix_listener *listener, const ls_want *want, int fd);
ls_status ls_unix_poll(struct pollfd *polls, int count, double seconds, int *ready);

ls_status ls_unix_path(const char *folder, const char *kind, const ls_cluster_options *options, int number, int rank,
                       char out[LS_UNIX_PATH_CHARS]);

#endif
