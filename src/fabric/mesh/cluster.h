/* The cluster of a context: set by ls_cluster_join, connected when the context is opened. */
#ifndef LS_FABRIC_MESH_CLUSTER_H
#define LS_FABRIC_MESH_CLUSTER_H

#include "device/context.h"
#include "fabric/mesh/mesh.h"

typedef struct ls_cluster {
    ls_cluster_options options;
    /* Held while workers meet. Recursive: the thread that meets opens the context and comes
     * back. */
    pthread_mutex_t mutex;
    bool meeting;
    ls_error failed; /* why meeting failed; status LS_OK: it did not */
    ls_mesh *mesh;   /* NULL: not met yet */
    bool introduced;
    bool apart; /* asynchronous: processes never meet as a mesh */
} ls_cluster;

/* Makes the processes of this context asynchronous: they exchange messages and never meet as a
 * mesh. Fails with LS_ERR_STATE if they have met. Gives the options, and the number of this cluster
 * in the process. */
ls_status ls_cluster_go_apart(ls_context *ctx, ls_cluster_options *out, int *number);

/* Warns, once in a process, if such a cluster is not used. */
void ls_cluster_warn_unused(ls_context *ctx);

/* Describes the cluster in one line, for the chief to print; false: there is none, or it was
 * described. */
bool ls_cluster_introduce(ls_context *ctx, char *out, size_t bytes);

#endif
