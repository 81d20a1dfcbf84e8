/* Unix sockets between workers; what tests want of them beside the table. */
#ifndef LS_FABRIC_UNIX_H
#define LS_FABRIC_UNIX_H

#include "fabric/transport.h"

/* The address where worker `rank` of a job waits. */
struct sockaddr_un;
ls_status ls_unix_address(const ls_cluster_options *options, int number, int rank, struct sockaddr_un *out,
                          unsigned *bytes);
int ls_unix_descriptor(const ls_line *line);

#endif
