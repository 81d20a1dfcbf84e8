/* The connections of a worker to all others: a full mesh of Unix-domain stream sockets between processes of one user on
 * one machine. door.c makes the connections, mesh.c moves pieces over them.
 *
 * What goes over a connection is a sequence of frames: a head of fixed size, then head.bytes bytes. At the door each
 * side sends one HELLO. Then every exchange is one PIECES frame in each direction, also where there is nothing to
 * send: so both sides see at once when they do not do the same. LOST says that a worker was lost and the cluster is
 * over, LEFT that a worker has closed its context; nothing follows them. */
#ifndef LS_FABRIC_MESH_H
#define LS_FABRIC_MESH_H

#include <poll.h>
#include <pthread.h>

#include "base/status.h"
#include "lockstep/cluster.h"
#include "run/peers.h"

#define LS_FRAME_MAGIC   0x6b63304cu /* "L0ck" */
#define LS_FRAME_VERSION 1
#define LS_FRAME_WHAT    80

typedef enum ls_frame_kind { LS_FRAME_HELLO = 1, LS_FRAME_PIECES, LS_FRAME_LOST, LS_FRAME_LEFT } ls_frame_kind;

typedef struct ls_frame {
    uint32_t magic;
    uint16_t version, kind;
    uint32_t from;            /* rank of the sender */
    uint32_t number;          /* HELLO: size of the cluster */
    uint64_t tag;             /* PIECES: what is exchanged, compared; */
    uint64_t sequence;        /* the how manieth exchange this is */
    uint64_t bytes;           /* that follow */
    uint64_t total;           /* PIECES: bytes of all pieces of all workers, compared */
    char what[LS_FRAME_WHAT]; /* PIECES: the same for people, LOST: the reason; ends with a zero */
} ls_frame;

/* How much of a frame went over a connection in one direction. */
typedef struct ls_cursor {
    size_t head;          /* bytes of the head */
    size_t piece, offset; /* the piece under way, and its bytes */
    uint64_t left;        /* bytes of pieces still to go */
} ls_cursor;

typedef struct ls_link {
    int fd; /* -1: this worker itself, or closed */
    bool met;
    bool ended;   /* in this exchange: nothing more comes or goes */
    bool deaf;    /* it closed its side: what it sent before is still read, and says why */
    double heard; /* when the last byte moved */
    ls_cursor in, out;
    ls_frame head; /* that is being received */
} ls_link;

typedef struct ls_mesh {
    ls_peers peers; /* the first member: what runs are given */
    pthread_mutex_t mutex;
    double join_limit, silence_limit;
    uint64_t sequence;
    ls_link *links; /* of each rank */
    struct pollfd *polls;
    ls_error broken; /* status LS_OK: it is whole */
} ls_mesh;

/* Meets the others. about: the text that must be the same on all, library and bit class; number: the how manieth
 * meeting of this process it is, for contexts of one job do not meet each other's. */
ls_status ls_mesh_open(const ls_cluster_options *options, int number, const char *about, ls_mesh **out);
void ls_mesh_close(ls_mesh *mesh); /* tells the others */

/* For door.c and tests: a mesh without connections, and its end without a word. */
ls_status ls_mesh_create(const ls_cluster_options *options, ls_mesh **out);
void ls_mesh_free(ls_mesh *mesh);

/* The address where worker `rank` of a job waits; for tests, too. */
struct sockaddr_un;
ls_status ls_mesh_address(const ls_cluster_options *options, int number, int rank, struct sockaddr_un *out,
                          unsigned *bytes);

#endif
