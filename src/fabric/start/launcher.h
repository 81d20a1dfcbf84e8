/* A file that `lockstep launch` shares with the workers that it has started. The launcher writes which workers have
 * ended and are not started again: a worker that has met another one sees its end by itself, but one that still waits
 * for it would wait for the whole join limit. The chief writes that it is the chief: the launcher's exit status is that
 * of the chief.
 *
 * clang-format off
 *     bytes of the file
 *       0 256  by rank: 1, this worker is gone
 *     256   2  rank of the chief plus 1; 0: no worker is chief yet
 *     258   2  the chief's LOCKSTEP_RESTART
 * clang-format on
 *
 * The file is in the launcher's memory. The variable has a path to it by way of the launcher's descriptor, so nothing
 * of it is on disk. */
#ifndef LS_FABRIC_START_LAUNCHER_H
#define LS_FABRIC_START_LAUNCHER_H

#include "lockstep/cluster.h"

#define LS_LAUNCHER_VARIABLE "LOCKSTEP_LAUNCHER"

/* A descriptor of that file; -1: these are no workers of a launcher, or it is not to be read. */
int ls_launcher_open(const ls_cluster_options *options);

/* The ranks that are gone, as bits. */
void ls_launcher_read(int fd, uint64_t gone[LS_MAX_CLUSTER / 64]);

/* This process is the chief from now on. */
void ls_launcher_say_chief(const ls_cluster_options *options);

/* Whether one of them is; for those who look now and then. */
bool ls_launcher_has_seen_end(const ls_cluster_options *options, int rank);

#endif
