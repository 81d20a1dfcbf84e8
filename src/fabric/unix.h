/* Unix sockets between workers of one user on one machine: the door, at which workers meet, serves several transports.
 * Each kind of them has addresses of its own. */
#ifndef LS_FABRIC_UNIX_H
#define LS_FABRIC_UNIX_H

#include <poll.h>

#include "fabric/transport.h"

#define LS_MOST_POLLS (2 * LS_MAX_CLUSTER + 128) /* lines, and guests of the door */

typedef struct ls_unix_door {
    const char *kind; /* the transport's name */
    ls_cluster_options options;
    int number;
    int fd; /* -1: not open */
} ls_unix_door;

ls_status ls_unix_door_open(ls_unix_door *door);
/* A connection to a worker's door, or -1: it is not there yet. Of another user's process it is an error. */
ls_status ls_unix_door_call(const ls_unix_door *door, int rank, int *fd);
/* The connection of somebody who called, of this user; -1: there is nobody. */
int ls_unix_door_answer(const ls_unix_door *door);

/* What a socket is polled for. A want without a line is one of the door. */
struct pollfd ls_unix_poll_of(const ls_unix_door *door, const ls_want *want, int fd);
/* poll, for so many seconds. */
ls_status ls_unix_poll(struct pollfd *polls, int count, double seconds, int *ready);

/* The address where worker `rank` of a job waits. */
struct sockaddr_un;
ls_status ls_unix_address(const char *kind, const ls_cluster_options *options, int number, int rank,
                          struct sockaddr_un *out, unsigned *bytes);

#endif
