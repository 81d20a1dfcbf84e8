/* Leases: which worker of a cluster may write a log or a folder of checkpoints.
 *
 * A lease is a file that names the job, the generation of the membership and the worker. A worker
 * claims a generation by exclusively creating a second file, `LEASE.JOB.GENERATION`: if a cluster
 * splits, only one part succeeds. A higher generation of the same job takes the lease from a lower
 * one; another job's lease is replaced. A worker that lost its lease writes nothing more. */
#ifndef LS_TRAIN_REPORT_LEASE_H
#define LS_TRAIN_REPORT_LEASE_H

#include <limits.h>

#include "device/context.h"
#include "run/peers.h"

typedef struct ls_lease {
    char path[PATH_MAX]; /* "": writing is always allowed */
    uint64_t job;
    unsigned generation;
    bool claimed; /* the claim file is this worker's, to be removed */
    const ls_peers *peers;
} ls_lease;

/* Claims the lease for the current generation; call it again when that changes. Does nothing
 * without a cluster. LS_ERR_PEER: another worker holds it; LS_ERR_IO: it could not be written. */
ls_status ls_lease_claim(ls_lease *lease, const ls_context *ctx, const char *path);

/* False if the worker was deposed or the lease was removed. */
bool ls_lease_holds(const ls_lease *lease);

void ls_lease_end(ls_lease *lease);

#endif
