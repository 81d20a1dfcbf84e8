/* The cluster of a context: set by ls_cluster_join, connected when the context is opened. */
#ifndef LS_FABRIC_MESH_CLUSTER_H
#define LS_FABRIC_MESH_CLUSTER_H

#include "device/context.h"
#include "fabric/mesh/mesh.h"

typedef struct ls_cluster {
    ls_cluster_options options;
    /* Held while workers meet. Recursive: that thread opens the context and comes back. */
    pthread_mutex_t mutex;
    bool meeting;
    ls_error failed; /* why meeting failed; status LS_OK: it did not */
    ls_mesh *mesh;   /* NULL: not met yet */
    bool introduced;
    bool apart; /* asynchronous: processes never meet as a mesh */
} ls_cluster;

/* Makes the processes asynchronous: they never meet as a mesh. LS_ERR_STATE: they have. Gives the
 * options and the number of this cluster in the process. */
ls_status ls_cluster_go_apart(ls_context *ctx, ls_cluster_options *out, int *number);

/* Warns once if a cluster of the environment is not used. */
void ls_cluster_warn_unused(ls_context *ctx);

/* Describes the cluster in one line; false: there is none, or it was described. */
bool ls_cluster_introduce(ls_context *ctx, char *out, size_t bytes);

#endif
