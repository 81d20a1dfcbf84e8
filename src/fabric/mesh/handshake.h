/* How workers connect and agree to begin. At the start each worker calls all lower ranks, and both
 * sides send HELLO and compare.
 *
 * Two processes may have the same rank for a moment, after a restart or by mistake. So each process
 * draws a random mark for each attempt. A worker that has met all others sends MET, with a hash of
 * all marks, to the first worker. When all remaining workers have met the same processes (a group),
 * the first sends BEGIN, and each worker forwards it before anything else. A worker lost between
 * MET and BEGIN is lost by a job that has begun; if it is the first, the others send MET to the
 * next. If a worker is lost before MET, or marks differ, all disconnect, draw new marks and start
 * over, until the join limit. So a mark belongs to one group, and a group begins one job.
 *
 * A worker that comes later or returns learns the members from a HELLO and calls them all; they
 * answer between two collectives. Then it may ask to join (late_join.c).
 *
 * When a connection between two members breaks, the higher rank calls the lower one while the
 * members regroup. Mark and generation must be unchanged: so only the same process can reconnect,
 * and only while neither side has continued without the other. */
#ifndef LS_FABRIC_MESH_HANDSHAKE_H
#define LS_FABRIC_MESH_HANDSHAKE_H

#include "fabric/mesh/mesh.h"

struct ls_handshake {
    ls_mesh *mesh;
    ls_cluster_options copy;
    const ls_cluster_options *options;
    double end;            /* deadline to begin */
    double log_at;         /* when to log missing workers */
    double asked;          /* when higher ranks were last called */
    double log_refused_at; /* when to log refused callers */
    ls_hellos hellos;      /* calls: data connections by rank, then heartbeat connections by rank */
    int channels;          /* connections to each worker: 2 with heartbeats, else 1 */
    ls_want *wants;
    char why[300]; /* why the last call failed */
    ls_process_id process;
    uint64_t mark;                      /* new for each attempt */
    uint64_t *marks;                    /* by rank */
    uint64_t seen[LS_MAX_CLUSTER / 64]; /* workers met at least once */
    bool met;                           /* all workers are met */
    uint64_t group[2];                  /* hash of all ranks and marks */
    int met_sent_to;                    /* own rank: not sent */
    double lost_at;                     /* when a worker was lost after MET; 0: none */
    ls_packet begin;                    /* kind 0: not received */

    bool chief;                           /* the launcher knows that this is the chief */
    int launcher;                         /* descriptor with ranks that ended; -1: none */
    double gone_at;                       /* when the launcher reported an end; 0: not yet */
    uint64_t begins[LS_MAX_CLUSTER / 64]; /* workers that begin the job */
    bool joins;                           /* the job has begun without this one */
    uint64_t members[LS_MAX_CLUSTER / 64];
    uint32_t generation;
    double since; /* when `members` was learnt */
};

/* Calls missing workers, waits and handles what arrives. Fails at the join limit. */
ls_status ls_handshake_turn(ls_handshake *hs);
/* Returns whether all are met: workers that begin or, if this one joins, members. */
bool ls_handshake_is_complete(const ls_handshake *hs);
/* Lets a joining worker ask for the members again, which may have changed. */
void ls_handshake_look_again(ls_handshake *hs);

static inline bool ls_handshake_begins(const ls_handshake *hs, int rank)
{
    return ls_has_bit(hs->begins, rank);
}

#endif
