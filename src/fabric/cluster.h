/* A context's place in a cluster: kept from joining on, met when the context is opened. */
#ifndef LS_FABRIC_CLUSTER_H
#define LS_FABRIC_CLUSTER_H

#include "device/context.h"
#include "fabric/mesh.h"

typedef struct ls_cluster {
    ls_cluster_options options;
    pthread_mutex_t mutex; /* of meeting; the thread that meets opens the context and comes here again */
    bool meeting;
    ls_error failed; /* status LS_OK: it did not */
    ls_mesh *mesh;   /* NULL: not met yet */
    bool apart;      /* they never meet: processes train each at its own pace (train/servers.h) */
} ls_cluster;

/* A fit whose processes ask and answer, and do not run in lockstep, begins: those of this context never meet as a mesh.
 * LS_ERR_STATE where they have. Gives the cluster's options, and the number of the meeting. */
ls_status ls_cluster_go_apart(ls_context *ctx, ls_cluster_options *out, int *number);

/* What LOCKSTEP_RANK and its companions say; size 1 where they are not set. */
ls_status ls_cluster_own_environment(ls_cluster_options *out);

/* The variables that a worker gets from who started it. */
#define LS_RANK_VARIABLE       "LOCKSTEP_RANK"
#define LS_WORLD_SIZE_VARIABLE "LOCKSTEP_WORLD_SIZE"
#define LS_RENDEZVOUS_VARIABLE "LOCKSTEP_RENDEZVOUS"

#endif
