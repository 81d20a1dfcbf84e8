/* Signs of life: a thread that says to every other worker that this process is alive, and hears it of them, over lines
 * of its own. So a worker that computes for long is not taken for dead, and one that is stopped, or whose machine is
 * gone, is. */
#ifndef LS_FABRIC_MESH_HEARTBEAT_H
#define LS_FABRIC_MESH_HEARTBEAT_H

#include "fabric/transport/transport.h"

typedef struct ls_beats ls_beats;

/* lines: by rank, NULL for this worker itself; they are the thread's from now on. limit: seconds of silence that are
 * too many. */
ls_status ls_beats_start(ls_transport *transport, const ls_transport_table *table, ls_line **lines, int size,
                         double limit, ls_beats **out);
void ls_beats_stop(ls_beats *beats);

/* A line to a worker that came, in the place of the one to that rank. */
void ls_beats_add(ls_beats *beats, int rank, ls_line *line);

/* When a worker was last heard of. */
double ls_beats_heard(const ls_beats *beats, int rank);

/* How the line to a worker ended; LS_LINE_OPEN: it has not. */
ls_line_end ls_beats_how_ended(ls_beats *beats, int rank);

/* Seconds beyond the limit that a worker may be silent: its machine or this one has too much to do, and signs of life
 * were late before. */
double ls_beats_patience(const ls_beats *beats, int rank);

/* Whether this process was itself silent for too long since the last question: others may have given it up. */
bool ls_beats_slept(ls_beats *beats);

#endif
