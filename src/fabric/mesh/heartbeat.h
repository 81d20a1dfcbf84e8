/* Signs of life: a thread that says to every other worker that this process is alive, and hears it of them, over lines
 * of its own. So a worker that computes for long is not taken for dead, and one that is stopped, or whose machine is
 * gone, is. */
#ifndef LS_FABRIC_MESH_HEARTBEAT_H
#define LS_FABRIC_MESH_HEARTBEAT_H

#include "fabric/transport/transport.h"

typedef struct ls_heartbeat ls_heartbeat;

/* lines: by rank, NULL for this worker itself; they are the thread's from now on. limit: seconds of silence that are
 * too many. */
ls_status ls_heartbeat_start(ls_transport *transport, const ls_transport_table *table, ls_connection **lines, int size,
                             double limit, ls_heartbeat **out);
void ls_heartbeat_stop(ls_heartbeat *beats);

/* A line to a worker that came, in the place of the one to that rank. */
void ls_heartbeat_add(ls_heartbeat *beats, int rank, ls_connection *line);

/* When a worker was last heard of. */
double ls_heartbeat_heard(const ls_heartbeat *beats, int rank);

/* How the line to a worker ended; LS_CONNECTION_OPEN: it has not. */
ls_connection_end ls_heartbeat_how_ended(ls_heartbeat *beats, int rank);

/* Seconds beyond the limit that a worker may be silent: its machine or this one has too much to do, and signs of life
 * were late before. */
double ls_heartbeat_patience(const ls_heartbeat *beats, int rank);

/* Whether this process was itself silent for too long since the last question: others may have given it up. */
bool ls_heartbeat_slept(ls_heartbeat *beats);

#endif
