/* A thread for heartbeats over connections of its own: a worker that computes for long is not taken
 * for dead, but a stopped process or a dead machine is noticed. */
#ifndef LS_FABRIC_MESH_HEARTBEAT_H
#define LS_FABRIC_MESH_HEARTBEAT_H

#include "fabric/transport/transport.h"

typedef struct ls_heartbeat ls_heartbeat;

/* connections: by rank, NULL for this worker; the thread owns them. limit: seconds of silence. */
ls_status ls_heartbeat_start(ls_transport *transport, const ls_transport_table *table, ls_connection **connections,
                             int size, double limit, ls_heartbeat **out);
void ls_heartbeat_stop(ls_heartbeat *heartbeat);

void ls_heartbeat_add(ls_heartbeat *heartbeat, int rank, ls_connection *connection);

double ls_heartbeat_heard(const ls_heartbeat *heartbeat, int rank);

/* LS_CONNECTION_OPEN: it has not ended. */
ls_connection_end ls_heartbeat_how_ended(ls_heartbeat *heartbeat, int rank);

/* Seconds beyond the limit that a worker may be silent, as heartbeats were late recently. */
double ls_heartbeat_patience(const ls_heartbeat *heartbeat, int rank);

/* Returns whether this process was silent beyond the limit since the last call: others may have
 * lost it. */
bool ls_heartbeat_slept(ls_heartbeat *heartbeat);

#endif
