/* Connections of one worker to all others, and the protocol on them.
 *
 *   handshake.c   connecting, HELLO, reconnecting
 *   agreement.c   agreement to begin
 *   mesh.c        packets over the connections of a transport
 *   collective.c  exchanges of pieces
 *   membership.c  commits, lost workers, quorum
 *   late_join.c   workers that join while the job runs
 *   heartbeat.h   heartbeats over connections of their own
 *
 * A connection carries packets (packet.h). In an exchange each worker sends one PIECES packet to every
 * other worker, even without data, so both sides notice at once if workers diverged. Packets of an
 * older generation are dropped. */
#ifndef LS_FABRIC_MESH_MESH_H
#define LS_FABRIC_MESH_MESH_H

#include <pthread.h>

#include "base/bitset.h"
#include "base/log.h"
#include "fabric/mesh/heartbeat.h"
#include "fabric/protocol/hello.h"
#include "run/peers.h"

#define LS_BEAT_EVERY 0.1 /* seconds between heartbeats of a waiting worker */

#define LS_MOST_QUEUED 8 /* packets for one worker */

typedef enum ls_reading { LS_READS_HEAD, LS_HOLDS, LS_TAKES, LS_SKIPS } ls_reading;

/* How a worker was lost. With BROKEN and SILENT it may still run and consider this worker lost;
 * with ENDED only after this process was stopped (ls_mesh.slept). */
typedef enum ls_absence {
    LS_NOT_LOST,
    LS_LOST_LEFT, /* it sent LEFT, or is not a member yet */
    LS_LOST_DEAD,
    /* It ended, or closed the connection because this worker was silent. */
    LS_LOST_ENDED,
    /* Its connection ended without LEFT; members try to reconnect. */
    LS_LOST_BROKEN,
    LS_LOST_SILENT, /* for too long, or it has lost this worker */
} ls_absence;

/* Traffic with one worker. */
typedef struct ls_link {
    ls_connection *connection; /* NULL: not connected */
    bool has_heartbeat;
    double heard; /* when the last byte arrived */
    /* Reading continues: the peer may have sent the reason. */
    bool write_failed;

    /* HOLDS: the body of `in` must wait. TAKES: it goes to the pieces. SKIPS: it is dropped. */
    ls_reading reading;
    ls_packet in;
    size_t in_head; /* bytes of `in` received */
    uint64_t in_left;
    size_t in_piece, in_from; /* where the next bytes go */
    uint64_t taken;           /* last exchange of this generation */

    ls_packet out[LS_MOST_QUEUED]; /* the first is being sent */
    int out_count;
    size_t out_head;
    uint64_t out_left;
    size_t out_piece, out_from;
    /* The exchange was abandoned: zeros replace the rest of the body. */
    bool padding;
} ls_link;

typedef struct ls_exchange_at {
    const ls_piece *pieces; /* NULL and count 0 between exchanges */
    size_t count;
    bool going;
    ls_packet head;
} ls_exchange_at;

/* Exchanges in progress: the one that the caller waits for, and a posted one, sent in order. */
typedef enum ls_under_way { LS_WAITED_FOR, LS_POSTED, LS_MOST_UNDER_WAY } ls_under_way;

typedef struct ls_handshake ls_handshake;

typedef struct ls_mesh {
    ls_peers peers; /* first field: runs get a pointer to it */
    pthread_mutex_t mutex;
    const ls_transport_table *table;
    ls_transport *transport;
    ls_logger *log; /* may be NULL */
    double join_limit, silence_limit;
    ls_link *links; /* by rank */
    ls_want *wants;
    ls_connection **heartbeats; /* by rank: heartbeat connections */
    ls_heartbeat *heartbeat;    /* NULL: waiting workers send BEAT packets */
    ls_handshake *handshake;
    bool begun;        /* this worker is a member */
    int *members;      /* earliest first, then lowest rank */
    uint32_t *since;   /* by rank: generation in which it joined */
    double *seconds;   /* by rank; published as peers.seconds */
    uint32_t *weights; /* published as peers.weights */
    /* Seconds of this worker's own work in this collective. */
    double own_work;
    double left;          /* when the last call returned; 0: none */
    atomic_int waits_for; /* published as peers.waits_for */
    ls_exchange_at at[LS_MOST_UNDER_WAY];
    uint64_t sequence;

    uint64_t number; /* number of the current collective */
    bool ready;      /* it has all its data */
    bool committed;  /* all members were READY */
    uint64_t hash[2];
    ls_packet *readies;  /* by rank: last READY or MET; kind 0: none */
    ls_packet *states;   /* by rank: last STATE */
    ls_packet announced; /* kind 0: none */
    ls_absence *lost;    /* by rank */
    unsigned changes;    /* counts changes of `lost` */
    ls_process_id *processes;
    /* Members of the last generation with a commit. Until the present one has one, a side needs a
     * quorum of both: the announcement may have reached this side only. */
    uint64_t confirmed[LS_MAX_CLUSTER / 64];
    bool quorum;     /* this side may continue */
    bool reconnects; /* a broken connection may come back */
    /* When regrouping began. Broken connections have the silence limit to come back. */
    double regroups_since;
    ls_packet *joins;   /* by rank: its JOIN */
    double waits_until; /* deadline for joining workers; 0: none */
    bool asked;         /* joining worker: JOIN is sent */
    /* Joining worker: when it last sent JOIN or received MEMBERS. */
    double asked_at;
    uint64_t their_fit; /* joining worker: fit of the members; 0: unknown */
    /* Joining worker: ranks that sent the announcement. */
    uint64_t heard_from[LS_MAX_CLUSTER / 64];
    /* This process was stopped, so others may have lost it. The commit of the collective in which
     * it woke up may be older: only the next one shows that the others still count on it. */
    bool slept;
    uint64_t slept_in; /* number of that collective */
    double beat;
    char why[160]; /* first loss that made the members regroup */
    bool regroup;  /* members were lost or changed */
    bool leaves;   /* a failure does not end the others */
    ls_error over; /* why the mesh ended */
} ls_mesh;

/* Connects to the other workers. about: library version and bit class, equal on all. number: of
 * this cluster in the process; contexts with different numbers do not meet. */
ls_status ls_mesh_open(const ls_cluster_options *options, int number, const char *about, ls_logger *log, ls_mesh **out);
void ls_mesh_close(ls_mesh *mesh); /* sends LEFT to the others */

/* ---- handshake.c, agreement.c ---- */

/* Advances all handshakes. */
ls_status ls_handshake_visit(ls_handshake *handshake);
/* Sets the members that a joining worker knows; disconnects from others. */
void ls_handshake_learn(ls_handshake *handshake, const ls_packet *members);
bool ls_handshake_has_met(const ls_handshake *handshake, const uint64_t *members);
bool ls_handshake_launcher_saw_end(const ls_handshake *handshake, int rank);
/* Handles MET or BEGIN. */
void ls_handshake_handle(ls_handshake *handshake, int rank, const ls_packet *packet);
/* Tells the launcher once that this worker is the chief. */
void ls_handshake_report_chief(ls_handshake *handshake);
void ls_handshake_close(ls_handshake *handshake);

/* ---- mesh.c ---- */

/* ls_mesh_free sends no LEFT. */
ls_status ls_mesh_create(const ls_cluster_options *options, ls_mesh **out);
void ls_mesh_free(ls_mesh *mesh);

ls_packet ls_mesh_packet(const ls_mesh *mesh, ls_packet_kind kind, const char *what);
void ls_mesh_put_members(const ls_mesh *mesh, ls_packet *packet);

/* Install the data or the heartbeat connection to a worker. */
void ls_mesh_meet(ls_mesh *mesh, int rank, ls_connection *connection);
void ls_mesh_add_heartbeat(ls_mesh *mesh, int rank, ls_connection *connection);

/* Copies packet->what, made printable. */
const char *ls_packet_says(const ls_packet *packet, char text[LS_PACKET_WHAT]);

/* Queues a packet; does nothing if the worker is not connected. */
ls_status ls_mesh_send(ls_mesh *mesh, int rank, const ls_packet *packet);

void ls_mesh_push(ls_mesh *mesh);

/* Moves bytes; waits at most `seconds` until some can be moved. */
ls_status ls_mesh_turn(ls_mesh *mesh, double seconds);

/* Ends the exchanges in progress: pads partly sent packets, skips incoming ones. */
void ls_mesh_abandon(ls_mesh *mesh);

/* Resumes packets held for the exchange that has begun. */
ls_status ls_mesh_resume_held(ls_mesh *mesh);

/* Closes the connection after writing what it accepts at once. */
void ls_mesh_hang_up(ls_mesh *mesh, int rank);

/* Returns whether all packets are sent, or cannot be. */
bool ls_mesh_is_sent(const ls_link *link);

const ls_exchange_at *ls_mesh_exchange_of(const ls_mesh *mesh, const ls_packet *packet);

/* Begin and end every call of a run, with the mutex. A failure without peers.again ends the mesh:
 * ls_mesh_exit sends the reason to all, and later calls fail with it. */
ls_status ls_mesh_enter(ls_mesh *mesh);
ls_status ls_mesh_exit(ls_mesh *mesh, ls_status status);

/* Sends LEFT and disconnects: the others continue. */
void ls_mesh_leave(ls_mesh *mesh, const char *why);
/* Sends OVER and disconnects: no worker continues. */
void ls_mesh_end(ls_mesh *mesh, const char *why);

/* ---- collective.c ---- */

ls_status ls_mesh_exchange(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);
ls_status ls_mesh_post(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);
ls_status ls_mesh_settle(ls_peers *peers);
void ls_mesh_move_on(ls_peers *peers);

static inline bool ls_piece_goes(const ls_piece *piece, int from, int to)
{
    return piece->from == from && (piece->to == LS_ALL_WORKERS || piece->to == to);
}

/* Decides what to do with the body of a PIECES packet. */
ls_status ls_mesh_classify_packet(ls_mesh *mesh, int rank, ls_reading *out);

/* ---- membership.c ---- */

ls_status ls_mesh_commit(ls_peers *peers, const uint64_t hash[2], const char *what);
void ls_mesh_give_up(ls_peers *peers);
void ls_mesh_end_all(ls_peers *peers);

void ls_mesh_set_members(ls_mesh *mesh, const uint64_t *bits);
/* Call after a commit: then no member acts on an older generation. */
void ls_mesh_confirm_members(ls_mesh *mesh);

/* The coordinator waits until all are READY, then commits or admits a joining worker. */
ls_status ls_mesh_commit_or_welcome(ls_mesh *mesh, const uint64_t hash[2], const char *what);

ls_status ls_mesh_forward(ls_mesh *mesh, int rank, ls_packet packet);

/* Puts an announcement into effect and forwards it. *new_member: its rank, or -1. */
ls_status ls_mesh_begin_generation(ls_mesh *mesh, const ls_packet *announcement, int *new_member);

/* Handles a packet without a body. */
ls_status ls_mesh_handle(ls_mesh *mesh, int rank, const ls_packet *packet);

/* Keeps the connection. The loss of a member makes the others regroup. */
void ls_mesh_lose(ls_mesh *mesh, int rank, ls_absence how, const char *why);

/* Wait for a condition that the caller checks, in a loop after ls_mesh_wait_begins. Silent members
 * are lost. */
void ls_mesh_wait_begins(ls_mesh *mesh);
ls_status ls_mesh_wait(ls_mesh *mesh);

double ls_mesh_heard(const ls_mesh *mesh, int rank);

/* Sends BEAT to all if it is due. */
ls_status ls_mesh_beat(ls_mesh *mesh);

/* Agrees with the remaining members. LS_OK: the current collective is committed. Failure with
 * peers.again: all repeat it. */
ls_status ls_mesh_regroup(ls_mesh *mesh);

/* ---- late_join.c ---- */

/* Makes this worker a joining worker of a running job. */
void ls_mesh_start_joining(ls_mesh *mesh, const uint64_t *members, uint32_t generation);

ls_status ls_mesh_join(ls_peers *peers, ls_answer *answer);
ls_status ls_mesh_welcome(ls_peers *peers);

/* Returns a worker that the coordinator can admit, or -1. Sends MEMBERS if a JOIN is outdated. */
int ls_mesh_find_joining(ls_mesh *mesh);

/* Handle a packet of a joining worker; as a joining worker, of a member. */
void ls_mesh_handle_joining(ls_mesh *mesh, int rank, const ls_packet *packet);
void ls_mesh_handle_while_joining(ls_mesh *mesh, int rank, const ls_packet *packet);

#endif
