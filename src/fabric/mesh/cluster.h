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

/* Warns, once in a process, where such a cluster is not used: this process trains alone. */
void ls_cluster_warn_unused(ls_context *ctx);

/* Describes the cluster in one line, for the chief to print; false: there is none, or it was described before. */
bool ls_cluster_introduce(ls_context *ctx, char *out, size_t bytes);

#endif
