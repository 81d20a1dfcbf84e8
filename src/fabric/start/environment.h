/* Reads the cluster that a launcher described in environment variables. */
#ifndef LS_FABRIC_START_ENVIRONMENT_H
#define LS_FABRIC_START_ENVIRONMENT_H

#include "device/context.h"
#include "lockstep/cluster.h"

/* What LOCKSTEP_RANK and its companions say; size 1 where they are not set. */
ls_status ls_cluster_own_environment(ls_cluster_options *out);

/* Returns the variable of another launcher that describes a cluster, and fills in this process's rank and the size.
 * NULL: none does, or it cannot be read. */
const char *ls_cluster_described(ls_cluster_options *out);

/* The variables that a worker gets from who started it. */
#define LS_RANK_VARIABLE       "LOCKSTEP_RANK"
#define LS_WORLD_SIZE_VARIABLE "LOCKSTEP_WORLD_SIZE"
#define LS_RENDEZVOUS_VARIABLE "LOCKSTEP_RENDEZVOUS"

#endif
