/* A thread that sends and receives heartbeats over connections of its own. So a worker that
 * computes for long is not taken for dead, while a stopped process or a dead machine is noticed. */
#ifndef LS_FABRIC_MESH_HEARTBEAT_H
#define LS_FABRIC_MESH_HEARTBEAT_H

#include "fabric/transport/transport.h"

typedef struct ls_heartbeat ls_heartbeat;

/* connections: heartbeat connections by rank, NULL for this worker; the thread owns them from now on.
 * limit: seconds of silence after which a worker is lost. */
ls_status ls_heartbeat_start(ls_transport *transport, const ls_transport_table *table, ls_connection **connections,
                             int size, double limit, ls_heartbeat **out);
void ls_heartbeat_stop(ls_heartbeat *beats);

/* Replaces the connection to a worker. */
void ls_heartbeat_add(ls_heartbeat *beats, int rank, ls_connection *connection);

/* Returns when the last heartbeat of a worker arrived. */
double ls_heartbeat_heard(const ls_heartbeat *beats, int rank);

/* Returns how the connection to a worker ended; LS_CONNECTION_OPEN: it has not. */
ls_connection_end ls_heartbeat_how_ended(ls_heartbeat *beats, int rank);

/* Returns the seconds beyond the limit that a worker may be silent: its machine or this one is
 * overloaded, and heartbeats were late recently. */
double ls_heartbeat_patience(const ls_heartbeat *beats, int rank);

/* Returns whether this process was silent for longer than the limit since the last call: others may
 * have lost it. */
bool ls_heartbeat_slept(ls_heartbeat *beats);

#endif
