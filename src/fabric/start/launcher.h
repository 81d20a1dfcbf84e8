/* A file that `lockstep launch` shares with its workers. The launcher writes which workers have
 * ended for good: a worker that still waits for them would wait for the whole join limit. The chief
 * writes that it is the chief: the launcher returns its exit status.
 *
 * clang-format off
 *       bytes of the file
 *         0 256  by rank: 1 if the worker has ended
 *       256   2  rank of the chief plus 1; 0: no worker is chief yet
 *       258   2  the chief's LOCKSTEP_RESTART
 * clang-format on
 *
 * The file is in the launcher's memory, never on disk: the variable has a path by way of the
 * launcher's descriptor. */
#ifndef LS_FABRIC_START_LAUNCHER_H
#define LS_FABRIC_START_LAUNCHER_H

#include "lockstep/cluster.h"

#define LS_LAUNCHER_VARIABLE "LOCKSTEP_LAUNCHER"

/* -1: there is no launcher or file. */
int ls_launcher_open(const ls_cluster_options *options);

void ls_launcher_read(int fd, uint64_t gone[LS_MAX_CLUSTER / 64]);

void ls_launcher_report_chief(const ls_cluster_options *options);

/* Opens and closes the file. */
bool ls_launcher_has_seen_end(const ls_cluster_options *options, int rank);

#endif
