/* What `lockstep launch` says to the workers that it has started: whom it has seen end, and does not start again. Who
 * has met a worker sees its end by itself; those that still wait for it would wait for the whole join limit.
 *
 * It is a file in the launcher's memory with a byte for each rank, which workers read: 1, it is gone. The variable has
 * a path to it by way of the launcher's descriptor, so nothing of it is on disk. */
#ifndef LS_FABRIC_LAUNCHER_H
#define LS_FABRIC_LAUNCHER_H

#include "lockstep/cluster.h"

#define LS_LAUNCHER_VARIABLE "LOCKSTEP_LAUNCHER"

/* A descriptor of that file; -1: these are no workers of a launcher, or it is not to be read. */
int ls_launcher_open(const ls_cluster_options *options);

/* The ranks that are gone, as bits. */
void ls_launcher_read(int fd, uint64_t gone[LS_MAX_CLUSTER / 64]);

/* Whether one of them is; for those who look now and then. */
bool ls_launcher_has_seen_end(const ls_cluster_options *options, int rank);

#endif
