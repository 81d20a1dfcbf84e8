/* Reads the cluster that a launcher described in environment variables. */
#ifndef LS_FABRIC_START_ENVIRONMENT_H
#define LS_FABRIC_START_ENVIRONMENT_H

#include "device/context.h"
#include "lockstep/cluster.h"

/* Reads Lockstep's own variables; size 1 if they are not set. */
ls_status ls_cluster_own_environment(ls_cluster_options *out);

/* Returns the variable of another launcher that describes a cluster, and fills in rank and size; or
 * NULL. */
const char *ls_cluster_described(ls_cluster_options *out);

/* Environment variables that a launcher sets for a worker. */
#define LS_RANK_VARIABLE       "LOCKSTEP_RANK"
#define LS_WORLD_SIZE_VARIABLE "LOCKSTEP_WORLD_SIZE"
#define LS_RENDEZVOUS_VARIABLE "LOCKSTEP_RENDEZVOUS"

#endif
