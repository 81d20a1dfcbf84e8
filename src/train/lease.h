/* Who writes a log or a folder of checkpoints, of the workers of a cluster: a small file beside it that names the
 * worker and the epoch of the cluster's members. Whoever goes on in place of a lost chief writes its own name there
 * first. So a chief that was only stopped, and wakes, finds another name before it writes anything. */
#ifndef LS_TRAIN_LEASE_H
#define LS_TRAIN_LEASE_H

#include <limits.h>

#include "device/context.h"

typedef struct ls_lease {
    char path[PATH_MAX]; /* "": there is none, and everything may be written */
    char text[128];      /* that this worker wrote there */
} ls_lease;

/* Writes this worker's name. A process that is in no cluster needs no lease. */
ls_status ls_lease_take(ls_lease *lease, const ls_context *ctx, const char *path);

/* Whether it is still this worker that writes. */
bool ls_lease_holds(const ls_lease *lease);

/* The end: the file is removed, if it is this worker's. */
void ls_lease_end(ls_lease *lease);

#endif
