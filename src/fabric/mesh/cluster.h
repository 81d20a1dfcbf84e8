/* The cluster of a context: ls_cluster_join sets its options; the workers connect when the context
 * is opened. */
#ifndef LS_FABRIC_MESH_CLUSTER_H
#define LS_FABRIC_MESH_CLUSTER_H

#include "device/context.h"
#include "fabric/mesh/mesh.h"

typedef struct ls_cluster {
    ls_cluster_options options;
    /* Held while the workers meet. Recursive: the meeting thread opens the context and comes back
     * here. */
    pthread_mutex_t mutex;
    bool meeting;
    ls_error failed; /* why meeting failed; status LS_OK: it did not */
    ls_mesh *mesh;   /* NULL: not met yet */
    bool introduced; /* ls_cluster_introduce has described it */
    bool apart;      /* asynchronous training: processes never meet as a mesh */
} ls_cluster;

/* Marks the processes of this context as asynchronous: they send each other messages and never meet
 * as a mesh. Fails with LS_ERR_STATE if they have met already. Gives the cluster's options, and the
 * number of this cluster in this process. */
ls_status ls_cluster_go_apart(ls_context *ctx, ls_cluster_options *out, int *number);

/* Reads LOCKSTEP_RANK and the variables that belong to it; size 1 if they are not set. */
ls_status ls_cluster_own_environment(ls_cluster_options *out);

/* Returns the environment variable of another launcher that describes a cluster, and fills in this
 * process's rank and the size. NULL: there is none, or it cannot be read. */
const char *ls_cluster_described(ls_cluster_options *out);

/* Warns, once in a process, if such a cluster is not used and this process trains alone. */
void ls_cluster_warn_unused(ls_context *ctx);

/* Describes the cluster in one line, for the chief to print; false: there is no cluster, or it was
 * described already. */
bool ls_cluster_introduce(ls_context *ctx, char *out, size_t bytes);

/* Environment variables that a launcher sets for a worker. */
#define LS_RANK_VARIABLE       "LOCKSTEP_RANK"
#define LS_WORLD_SIZE_VARIABLE "LOCKSTEP_WORLD_SIZE"
#define LS_RENDEZVOUS_VARIABLE "LOCKSTEP_RENDEZVOUS"

#endif
