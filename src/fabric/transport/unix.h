/* Unix sockets between workers of one user on one machine: the door, at which workers meet, serves several transports.
 * Each kind of them has sockets of its own, in a folder that only this user can write to (socket_folder.h). Whatever
 * another user puts in the way counts as nobody there; it is reported once and ends nothing. */
#ifndef LS_FABRIC_TRANSPORT_UNIX_H
#define LS_FABRIC_TRANSPORT_UNIX_H

#include <poll.h>

#include "base/socket_folder.h"
#include "fabric/transport/transport.h"

#define LS_MOST_POLLS (2 * LS_MAX_CLUSTER + 128) /* lines, and guests of the door */

#define LS_UNIX_PATH_CHARS 108 /* of a socket's path, with the zero at its end */

typedef struct ls_unix_door {
    const char *kind; /* the transport's name */
    ls_cluster_options options;
    int number;
    int fd; /* -1: not open */
    char folder[LS_SOCKET_FOLDER_CHARS];
    char path[LS_UNIX_PATH_CHARS]; /* of this worker's socket */
    uint64_t file[2];              /* device and inode of that */
    char foreign[300];             /* what another user has put in the way; "": nothing */
    bool reported;                 /* that */
} ls_unix_door;

ls_status ls_unix_door_open(ls_unix_door *door);
/* Closes the door and removes its socket, and those of workers that were killed. */
void ls_unix_door_close(ls_unix_door *door);
/* Gives a connection to a worker's door, or -1 where no worker of this user listens yet. */
ls_status ls_unix_door_call(ls_unix_door *door, int rank, int *fd);
/* Returns the connection of a caller of this user; -1: there is none. */
int ls_unix_door_answer(ls_unix_door *door);
/* Reports once what another user has put in the way, as ls_transport_table.refused does. */
bool ls_unix_door_refused(ls_unix_door *door, char *why, size_t bytes);

/* What a socket is polled for. A want without a line is one of the door. */
struct pollfd ls_unix_poll_of(const ls_unix_door *door, const ls_want *want, int fd);
/* poll, for so many seconds. */
ls_status ls_unix_poll(struct pollfd *polls, int count, double seconds, int *ready);

/* Makes the path at which worker `rank` of a job listens, if it does so in that folder. */
ls_status ls_unix_path(const char *folder, const char *kind, const ls_cluster_options *options, int number, int rank,
                       char out[LS_UNIX_PATH_CHARS]);

#endif
