/* Leases: which worker of a cluster may write a log or a folder of checkpoints.
 *
 * A lease is a small file beside what it protects. It names the job, the generation of the
 * membership and the worker that writes. A worker claims a generation by exclusively creating a
 * second file, `LEASE.JOB.GENERATION`. If a cluster splits and both parts claim the same
 * generation, only one succeeds. A higher generation of the same job takes the lease from a lower
 * one; another job's lease is replaced. A worker that lost its lease writes nothing more. */
#ifndef LS_TRAIN_REPORT_LEASE_H
#define LS_TRAIN_REPORT_LEASE_H

#include <limits.h>

#include "device/context.h"
#include "run/peers.h"

typedef struct ls_lease {
    char path[PATH_MAX]; /* "": no lease, writing is always allowed */
    uint64_t job;
    unsigned generation;
    bool claimed; /* this worker created the claim file and must remove it */
    const ls_peers *peers;
} ls_lease;

/* Claims the lease for the current generation; call it again when the generation changes. Does
 * nothing without a cluster. LS_ERR_PEER: another worker holds it. LS_ERR_IO: it could not be
 * written. */
ls_status ls_lease_claim(ls_lease *lease, const ls_context *ctx, const char *path);

/* Whether this worker still holds the lease: false if the worker was deposed or the lease was
 * removed. */
bool ls_lease_holds(const ls_lease *lease);

/* Removes the files of the lease if this worker holds it. */
void ls_lease_end(ls_lease *lease);

#endif
