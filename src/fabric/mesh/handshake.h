/* How workers connect. At the start each worker calls all lower ranks. Both sides send HELLO and
 * compare.
 *
 * Two processes may have the same rank for a moment, after a restart or by mistake. So each process
 * draws a random number for each attempt to meet: its mark. A worker that has met all others sends
 * MET, with a hash of all marks, to the first worker. When all remaining workers have met the same
 * processes, the first sends BEGIN, and each worker forwards it before anything else. A worker lost
 * between MET and BEGIN counts as lost by a job that has begun; if it is the first, the others send
 * MET to the next one. If a worker is lost before MET, or marks differ, all disconnect, draw new
 * marks and meet again, until the join limit is over. So each mark belongs to one set of processes
 * (the group), and one group begins one job.
 *
 * A worker that comes later, or comes back, learns the members from a HELLO. It calls all of them;
 * they answer between two collectives. Then it may ask to join (late_join.c).
 *
 * When a connection between two members breaks, the higher rank calls the lower one while the
 * members regroup. Mark and generation must be unchanged. So only the same process can reconnect,
 * and only while neither side has continued without the other. */
#ifndef LS_FABRIC_MESH_HANDSHAKE_H
#define LS_FABRIC_MESH_HANDSHAKE_H

#include "fabric/mesh/mesh.h"

struct ls_handshake {
    ls_mesh *mesh;
    ls_cluster_options copy;
    const ls_cluster_options *options;
    double end;            /* deadline for the workers that begin the job */
    double log_at;         /* when the log next names the missing workers */
    double asked;          /* when higher ranks were last called */
    double log_refused_at; /* when refused callers may be logged again */
    ls_hellos hellos;      /* calls: data connections by rank, then heartbeat connections by rank */
    int channels;          /* connections to each worker: 2 with heartbeats, else 1 */
    ls_want *wants;
    char why[300]; /* why the last call failed or was refused */
    ls_process_id process;
    uint64_t mark;                      /* changes with each attempt to meet */
    uint64_t *marks;                    /* by rank: marks of workers met */
    uint64_t seen[LS_MAX_CLUSTER / 64]; /* bit set: workers met at least once */
    bool met;                           /* all workers are met */
    uint64_t group[2];                  /* hash of the ranks and marks of all */
    int met_sent_to;                    /* rank that MET was sent to; own rank: none */
    double lost_at;                     /* when a worker was lost after MET; 0: none */
    ls_frame begin;                     /* kind 0: not received */

    bool chief;                           /* the launcher knows that this worker is chief */
    int launcher;                         /* descriptor with the ranks that ended; -1: none */
    double gone_at;                       /* when the launcher first reported an end; 0: not yet */
    uint64_t begins[LS_MAX_CLUSTER / 64]; /* bit set: workers that begin the job */
    bool joins;                           /* the job has begun without this worker */
    uint64_t members[LS_MAX_CLUSTER / 64];
    uint32_t generation;
    double since; /* when `members` was learnt */
};

/* Calls missing workers, waits for callers and replies, and handles them. Fails when the time to
 * meet is over. */
ls_status ls_handshake_turn(ls_handshake *hs);
/* Returns whether this worker has met all workers that begin or, if it joins, all members. */
bool ls_handshake_is_complete(const ls_handshake *hs);
/* Asks again for the members, which may have changed, if this worker joins. */
void ls_handshake_look_again(ls_handshake *hs);

/* Returns whether a worker begins the job. */
static inline bool ls_handshake_begins(const ls_handshake *hs, int rank)
{
    return ls_has_bit(hs->begins, rank);
}

#endif
