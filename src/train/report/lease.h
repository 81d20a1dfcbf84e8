/* Leases: which worker of a cluster writes a log or a folder of checkpoints.
 *
 * A lease is a small file beside what it protects. It names the job, the generation of its membership and the worker
 * that writes. A worker claims a generation by creating a second file, `LEASE.JOB.GENERATION`, exclusively: of two
 * sides that have lost each other in the same generation, one succeeds. A higher generation of the same job takes the
 * lease from a lower one, and another job's lease is replaced. A worker that has lost the lease writes nothing more. */
#ifndef LS_TRAIN_REPORT_LEASE_H
#define LS_TRAIN_REPORT_LEASE_H

#include <limits.h>

#include "device/context.h"
#include "run/peers.h"

typedef struct ls_lease {
    char path[PATH_MAX]; /* "": there is no lease, and everything may be written */
    uint64_t job;
    unsigned generation;
    bool claimed; /* the file of the claim is this worker's, to be removed */
    const ls_peers *peers;
} ls_lease;

/* Claims the lease for the present generation, again where it was claimed for an older one. A process without a cluster
 * needs no lease. LS_ERR_PEER: another worker has it. LS_ERR_IO: it could not be written. */
ls_status ls_lease_claim(ls_lease *lease, const ls_context *ctx, const char *path);

/* Whether this worker still has the lease. A worker that was deposed has none, nor has one whose lease was removed. */
bool ls_lease_holds(const ls_lease *lease);

/* Removes the files of the lease if it is this worker's. */
void ls_lease_end(ls_lease *lease);

#endif
