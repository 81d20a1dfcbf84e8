/* The connections of a worker to all others, and what is said over them:
 *   door.c     workers meet
 *   mesh.c     frames go over the lines of a transport
 *   pieces.c   an exchange of pieces
 *   members.c  commits, and what happens when a worker is lost
 *   joining.c  workers that come while the job runs
 *
 * What goes over a line is a sequence of frames: a head of fixed size, then head.bytes bytes. At the door each side
 * sends one HELLO. An exchange is one PIECES frame from each worker to each other one, also where there is nothing to
 * send: so both sides see at once when they do not do the same. Frames of an older epoch are dropped. */
#ifndef LS_FABRIC_MESH_MESH_H
#define LS_FABRIC_MESH_MESH_H

#include <pthread.h>

#include "base/bitset.h"
#include "base/log.h"
#include "base/process.h"
#include "fabric/mesh/heartbeat.h"
#include "fabric/transport/transport.h"
#include "run/peers.h"

#define LS_FRAME_MAGIC   0x6b63304cu /* "L0ck" */
#define LS_FRAME_VERSION 5
#define LS_FRAME_WHAT    80

typedef enum ls_frame_kind {
    LS_FRAME_HELLO = 1,
    LS_FRAME_PIECES,
    LS_FRAME_READY,    /* to the coordinator: all of collective `number` is here */
    LS_FRAME_COMMIT,   /* from the coordinator: all were ready */
    LS_FRAME_STATE,    /* when somebody was lost: how far this worker is, and whom it has lost */
    LS_FRAME_ANNOUNCE, /* from the coordinator: who is there, and what was committed last */
    LS_FRAME_OVER,     /* the cluster is over, for the reason given */
    LS_FRAME_BEAT,     /* the sender waits, and is alive */
    LS_FRAME_LEFT,     /* the sender goes, the others go on; nothing follows */
    LS_FRAME_JOIN,     /* from a newcomer: it has met `members` of the epoch, and waits in fit number `tag` */
    LS_FRAME_MEMBERS,  /* to a newcomer: who they are now, and that they are in fit number `tag` */
    LS_FRAME_MET,      /* at the door, to the first of those that are left: all are met; hash[0]: which processes */
    LS_FRAME_BEGIN,    /* from the first, passed on by everyone: all have met the same processes, hash[0] */
    LS_FRAME_KINDS
} ls_frame_kind;

typedef struct ls_frame {
    uint32_t magic;
    uint16_t version, kind;
    uint32_t from; /* rank of the sender */
    uint32_t epoch;
    uint64_t number;   /* of the collective; HELLO: size of the cluster */
    uint64_t sequence; /* HELLO: 0, or 1 for a line with signs of life; PIECES: the how manieth exchange of the epoch;
                          STATE: 1 if READY for `number` */
    uint64_t tag;      /* PIECES: what is exchanged, compared; READY: nanoseconds of the sender's own work; HELLO: since
                          which epoch the sender is a member, 0: it is none */
    uint64_t bytes;    /* that follow */
    uint64_t hash[2];  /* READY, STATE: of what the sender has; HELLO: [0] tells the sender's process, and which of its
                          meetings it is, from others that have its rank, [1] is the job, once it has begun; MET, BEGIN:
                          [0] of  all these */
    uint64_t wishes;   /* READY, STATE: the sender's; COMMIT, ANNOUNCE: what was decided; HELLO: an ls_hello_wish */
    union {
        char what[LS_FRAME_WHAT]; /* PIECES, READY: the same for people; OVER, LEFT: the reason; ends with a zero */
        struct {
            uint64_t members[LS_MAX_CLUSTER / 64]; /* a bit for each rank; STATE: lost; others: a member */
            ls_process_id process;                 /* HELLO: the sender's */
        };
    };
} ls_frame;

/* What a HELLO says beside who the sender is. */
typedef enum ls_hello_wish {
    LS_HELLO_REFUSES = 1,   /* this line is none from now on; the caller may call again */
    LS_HELLO_JOINS = 2,     /* the caller wants to join a job that runs, and not to begin one */
    LS_HELLO_RECONNECTS = 4 /* the caller is a member whose connection broke */
} ls_hello_wish;

#define LS_BEAT_EVERY 0.1 /* seconds between signs of life of a worker that waits */

#define LS_MOST_QUEUED 8 /* frames to one worker */

typedef enum ls_reading { LS_READS_HEAD, LS_HOLDS, LS_TAKES, LS_SKIPS } ls_reading;

/* How a worker was lost. All but LEFT and DEAD are doubtful: the worker may run, and see this one lost. */
typedef enum ls_absence {
    LS_NOT_LOST,
    LS_LOST_LEFT,   /* it said goodbye */
    LS_LOST_DEAD,   /* its process has ended */
    LS_LOST_ENDED,  /* it ended, or closed the connection because this worker had been silent for too long */
    LS_LOST_BROKEN, /* the connection broke, or was closed without a goodbye; members try to reconnect */
    LS_LOST_SILENT, /* it sent nothing for too long */
} ls_absence;

/* What is under way to and from one worker. */
typedef struct ls_link {
    ls_connection *line; /* NULL: this worker itself, or it is not there */
    bool lives;          /* there is a line for signs of life, too */
    double heard;        /* when the last byte came */
    bool deaf;           /* it does not listen any more: what it sent before is still read, and says why */

    ls_reading reading; /* a frame's head; a body that has to wait; that goes to pieces; that nobody wants */
    ls_frame in;
    size_t in_head;           /* bytes of it that are there */
    uint64_t in_left;         /* bytes of the body that are not */
    size_t in_piece, in_from; /* where the next go */
    uint64_t taken;           /* the last exchange of the epoch whose frame is here */

    ls_frame out[LS_MOST_QUEUED]; /* the first is under way */
    int out_count;
    size_t out_head;
    uint64_t out_left;
    size_t out_piece, out_from;
    bool padding; /* what is left of its body is of no use: zeros go out */
} ls_link;

typedef struct ls_exchange_at {
    const ls_piece *pieces; /* NULL and 0 between exchanges */
    size_t count;
    bool going;
    ls_frame head;
} ls_exchange_at;

/* Exchanges under way: the one that is waited for, and one that was posted before it. Frames of both go in order. */
typedef enum ls_under_way { LS_WAITED_FOR, LS_POSTED, LS_MOST_UNDER_WAY } ls_under_way;

typedef struct ls_handshake ls_handshake;

typedef struct ls_mesh {
    ls_peers peers; /* the first member: what runs are given */
    pthread_mutex_t mutex;
    const ls_transport_table *table;
    ls_transport *transport;
    ls_logger *log; /* NULL: nobody reads what happens */
    double join_limit, silence_limit;
    ls_link *links; /* of each rank */
    ls_want *wants;
    ls_connection **alive; /* by rank: lines for signs of life */
    ls_heartbeat *beats;   /* NULL: workers give them while they wait */
    ls_handshake *door;    /* for those that come later */
    bool begun;            /* this worker is a member */
    int *members;          /* who is longer there comes first, then the lower rank */
    uint32_t *since;       /* by rank: the epoch in which it became a member */
    double *seconds;       /* by rank: what peers.seconds shows */
    uint32_t *weights;     /* what peers.weights shows */
    double outside;        /* seconds between calls of this collective: this worker's own work */
    double left;           /* when the last call ended; 0: there was none */
    atomic_int waits_for;  /* what peers.waits_for shows */
    ls_exchange_at at[LS_MOST_UNDER_WAY];
    uint64_t sequence;

    uint64_t number; /* of the collective at hand */
    bool ready;      /* all of it is here */
    bool committed;  /* and it is known that all have it */
    uint64_t hash[2];
    ls_frame *readies;        /* by rank: what it said last; kind 0: nothing */
    ls_frame *states;         /* likewise */
    ls_frame announced;       /* kind 0: nothing */
    ls_absence *lost;         /* by rank */
    unsigned changes;         /* counts changes of `lost` */
    ls_process_id *processes; /* by rank: from its HELLO */
    /* Members of the last generation in which a commit was made. Until one is made in the present generation, a side
     * that goes on needs a quorum of both: the announcement may have reached this side alone. */
    uint64_t confirmed[LS_MAX_CLUSTER / 64];
    bool quorum;                              /* this side may go on */
    bool reconnects;                          /* a connection is broken and may come back */
    double regroups_since;                    /* broken connections have the silence limit from then on to come back */
    ls_frame *joins;                          /* by rank: a newcomer's; kind 0: nothing */
    double waits_until;                       /* for newcomers; 0: not at all */
    bool asked;                               /* as a newcomer: to be let in, */
    double told;                              /* when it last asked, or was told who the members are, */
    uint64_t their_fit;                       /* and in which fit they are, if that is known */
    uint64_t heard_from[LS_MAX_CLUSTER / 64]; /* as a newcomer: the announcement */
    bool slept;    /* so long that the others may have lost this worker, since the last commit */
    double beat;   /* when the others last heard that this one waits */
    char why[160]; /* the first of the members was lost */
    bool regroup;  /* somebody of the members is lost, or another one says so */
    bool leaves;   /* the failure at hand is this worker's alone: the others go on */
    ls_error over; /* status LS_OK: it is not */
} ls_mesh;

/* Meets the others. about: the text that must be the same on all, library and bit class; number: the how manieth
 * meeting of this process it is, for contexts of one job do not meet each other's. */
ls_status ls_mesh_open(const ls_cluster_options *options, int number, const char *about, ls_logger *log, ls_mesh **out);
void ls_mesh_close(ls_mesh *mesh); /* tells the others */

/* ---- door.c ---- */

/* Moves on what is said at the door, without waiting. */
ls_status ls_handshake_visit(ls_handshake *door);
/* As a newcomer: the members are now these. Lines to others are ended. */
void ls_handshake_learn(ls_handshake *door, const ls_frame *members);
bool ls_handshake_has_met(const ls_handshake *door, const uint64_t *members);
/* Whether this worker's launcher has seen a worker end for good. */
bool ls_handshake_launcher_saw_end(const ls_handshake *door, int rank);
/* MET or BEGIN has come of a worker that this one has met. */
void ls_handshake_hear(ls_handshake *door, int rank, const ls_frame *frame);
/* Tells the launcher when this worker has become the chief. */
void ls_handshake_say_chief(ls_handshake *door);
void ls_handshake_close(ls_handshake *door);

/* ---- mesh.c ---- */

/* A mesh without connections, and its end without a word. */
ls_status ls_mesh_create(const ls_cluster_options *options, ls_mesh **out);
void ls_mesh_free(ls_mesh *mesh);

ls_frame ls_mesh_frame(const ls_mesh *mesh, ls_frame_kind kind, const char *what);
void ls_mesh_put_members(const ls_mesh *mesh, ls_frame *frame);

/* A line to a worker; a line for signs of life. */
void ls_mesh_meet(ls_mesh *mesh, int rank, ls_connection *line);
void ls_mesh_hear_life(ls_mesh *mesh, int rank, ls_connection *line);

/* What another worker's frame says, fit to be printed. */
const char *ls_frame_says(const ls_frame *frame, char text[LS_FRAME_WHAT]);

/* Puts a frame behind those that are under way to a worker. */
ls_status ls_mesh_send(ls_mesh *mesh, int rank, const ls_frame *frame);

/* Moves what can go out at once. */
void ls_mesh_push(ls_mesh *mesh);

/* Waits for at most so many seconds until something can be moved, and moves it. The line of a worker that is lost stays
 * open until ls_mesh_hang_up. */
ls_status ls_mesh_turn(ls_mesh *mesh, double seconds);

/* No more of these exchanges: frames that are under way end with zeros, and those that come are skipped. */
void ls_mesh_abandon(ls_mesh *mesh);

/* Frames that wait for this exchange are taken now. */
ls_status ls_mesh_look_again(ls_mesh *mesh);

void ls_mesh_hang_up(ls_mesh *mesh, int rank);

/* Whether everything that was to go to a worker went. */
bool ls_mesh_is_sent(const ls_link *link);

/* The exchange under way that a frame of pieces belongs to; NULL: none of them. */
const ls_exchange_at *ls_mesh_exchange_of(const ls_mesh *mesh, const ls_frame *frame);

/* A call of a run begins and ends. A failure is the end of the cluster, unless what failed is begun again: every worker
 * is told, and each later call fails with this status. */
ls_status ls_mesh_enter(ls_mesh *mesh);
ls_status ls_mesh_exit(ls_mesh *mesh, ls_status status);

/* This worker goes; the others go on. */
void ls_mesh_leave(ls_mesh *mesh, const char *why);
/* Nobody goes on. */
void ls_mesh_end(ls_mesh *mesh, const char *why);

/* ---- pieces.c ---- */

ls_status ls_mesh_exchange(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);
ls_status ls_mesh_post(ls_peers *peers, uint64_t tag, const char *what, const ls_piece *pieces, size_t count);
ls_status ls_mesh_settle(ls_peers *peers);
void ls_mesh_move_on(ls_peers *peers);

/* Whether a piece goes to, or comes from, a worker. */
static inline bool ls_piece_goes(const ls_piece *piece, int from, int to)
{
    return piece->from == from && (piece->to == LS_ALL_WORKERS || piece->to == to);
}

/* What to do with a body whose head is there. */
ls_status ls_mesh_classify_frame(ls_mesh *mesh, int rank, ls_reading *out);

/* ---- members.c ---- */

ls_status ls_mesh_commit(ls_peers *peers, const uint64_t hash[2], const char *what);
void ls_mesh_give_up(ls_peers *peers);
void ls_mesh_end_all(ls_peers *peers);

void ls_mesh_set_members(ls_mesh *mesh, const uint64_t *bits);
/* A commit was made in this generation: all its members have adopted it, and none acts by an older one any more. */
void ls_mesh_confirm_members(ls_mesh *mesh);

/* All members say how far they are; the coordinator waits until each has. */
ls_status ls_mesh_commit_or_welcome(ls_mesh *mesh, const uint64_t hash[2], const char *what);

/* A frame of another worker goes on, to this one. */
ls_status ls_mesh_pass_on(ls_mesh *mesh, int rank, ls_frame frame);

/* What was announced counts from now on, and goes to all members from everyone who has it. *newcomer: the one that was
 * no member before; -1: there is none. */
ls_status ls_mesh_begin_epoch(ls_mesh *mesh, const ls_frame *announcement, int *newcomer);

/* A frame without a body has come. */
ls_status ls_mesh_hear(ls_mesh *mesh, int rank, const ls_frame *frame);

/* The line to a worker has ended, or it was silent for too long. */
void ls_mesh_lose(ls_mesh *mesh, int rank, ls_absence how, const char *why);

/* Waiting for something that the caller looks for: who is silent meanwhile is lost. */
void ls_mesh_wait_begins(ls_mesh *mesh);
ls_status ls_mesh_wait(ls_mesh *mesh);

/* When something last came of a worker, on any of its lines. */
double ls_mesh_heard(const ls_mesh *mesh, int rank);

/* A sign of life to all, where it is due. */
ls_status ls_mesh_beat(ls_mesh *mesh);

/* Agrees with those that are left on who they are. With LS_OK either what was at hand is committed (mesh->committed),
 * or it is begun again. */
ls_status ls_mesh_regroup(ls_mesh *mesh);

/* ---- joining.c ---- */

/* This worker is a newcomer to a job of these members. */
void ls_mesh_come_later(ls_mesh *mesh, const uint64_t *members, uint32_t epoch);

ls_status ls_mesh_join(ls_peers *peers, ls_answer *answer);
ls_status ls_mesh_welcome(ls_peers *peers);

/* A newcomer that can be let in now; -1: none. Those that know too little are told. For the coordinator. */
int ls_mesh_find_newcomer(ls_mesh *mesh);

/* A frame of or to a newcomer has come. */
void ls_mesh_hear_newcomer(ls_mesh *mesh, int rank, const ls_frame *frame);
void ls_mesh_hear_as_newcomer(ls_mesh *mesh, int rank, const ls_frame *frame);

#endif
