/* A context's place in a cluster: kept from joining on, met when the context is opened. */
#ifndef LS_FABRIC_MESH_CLUSTER_H
#define LS_FABRIC_MESH_CLUSTER_H

#include "device/context.h"
#include "fabric/mesh/mesh.h"

typedef struct ls_cluster {
    ls_cluster_options options;
    pthread_mutex_t mutex; /* of meeting; the thread that meets opens the context and comes here again */
    bool meeting;
    ls_error failed; /* status LS_OK: it did not */
    ls_mesh *mesh;   /* NULL: not met yet */
    bool introduced; /* ls_cluster_introduce has described it */
    bool apart;      /* they never meet: processes train each at its own pace (train/servers.h) */
} ls_cluster;

/* A fit whose processes ask and answer, and do not run in lockstep, begins: those of this context never meet as a mesh.
 * LS_ERR_STATE where they have. Gives the cluster's options, and the number of the meeting. */
ls_status ls_cluster_go_apart(ls_context *ctx, ls_cluster_options *out, int *number);

/* What LOCKSTEP_RANK and its companions say; size 1 where they are not set. */
ls_status ls_cluster_own_environment(ls_cluster_options *out);

/* Returns the variable of another launcher that describes a cluster, and fills in this process's rank and the size.
 * NULL: none does, or it cannot be read. */
const char *ls_cluster_described(ls_cluster_options *out);

/* Warns, once in a process, where such a cluster is not used: this process trains alone. */
void ls_cluster_warn_unused(ls_context *ctx);

/* Describes the cluster in one line, for the chief to print; false: there is none, or it was described before. */
bool ls_cluster_introduce(ls_context *ctx, char *out, size_t bytes);

/* The variables that a worker gets from who started it. */
#define LS_RANK_VARIABLE       "LOCKSTEP_RANK"
#define LS_WORLD_SIZE_VARIABLE "LOCKSTEP_WORLD_SIZE"
#define LS_RENDEZVOUS_VARIABLE "LOCKSTEP_RENDEZVOUS"

#endif
