/* Frames: what two processes send each other on a connection. A frame is a head of fixed size
 * (ls_frame), then head.bytes bytes of body. Each connection begins with one HELLO from each side
 * (hello.h); then the mesh or the messenger sends its own kinds. */
#ifndef LS_FABRIC_PROTOCOL_FRAME_H
#define LS_FABRIC_PROTOCOL_FRAME_H

#include "base/process.h"
#include "fabric/transport/transport.h"

#define LS_FRAME_MAGIC   0x6b63304cu /* "L0ck" */
#define LS_FRAME_VERSION 6
#define LS_FRAME_WHAT    80
#define LS_FRAME_NUMBERS 8

typedef enum ls_frame_kind {
    LS_FRAME_HELLO = 1,
    LS_FRAME_PIECES,
    LS_FRAME_READY,    /* to the coordinator: the sender has all data of collective `number` */
    LS_FRAME_COMMIT,   /* from the coordinator: all members were READY */
    LS_FRAME_STATE,    /* after a loss: the sender's progress, and the workers it has lost */
    LS_FRAME_ANNOUNCE, /* from the coordinator: the new members, and the next collective */
    LS_FRAME_OVER,     /* the job ends for all; `what` is the reason */
    LS_FRAME_BEAT,     /* the sender is alive */
    LS_FRAME_LEFT,     /* the sender leaves, the others continue; its last frame */
    LS_FRAME_JOIN,     /* from a joining worker: the members it has met; `tag` is its fit */
    LS_FRAME_MEMBERS,  /* to a joining worker: the current members; `tag` is their fit */
    LS_FRAME_MET,      /* to the first worker left: the sender has met all, see `hash` */
    LS_FRAME_BEGIN,    /* from the first worker, forwarded by all: the job begins */
    LS_FRAME_MESSAGE,  /* of the messenger, never in a mesh; `tag` is the kind of the message */
    LS_FRAME_KINDS
} ls_frame_kind;

typedef struct ls_frame {
    uint32_t magic;
    uint16_t version, kind;
    uint32_t from; /* rank */
    uint32_t generation;
    uint64_t number; /* number of the collective; HELLO: size of the cluster */
    /* HELLO: 1 for a heartbeat connection, else 0. PIECES, READY: number of exchanges in this
     * generation so far. STATE: 1 if the sender is READY for `number`. */
    uint64_t sequence;
    /* PIECES: identifies the exchange; a difference is an error. READY: nanoseconds of the sender's
     * own work. STATE: the sender's peers.granted. HELLO: generation in which the sender became a
     * member, 0: it is none. JOIN, MEMBERS: number of the fit. */
    uint64_t tag;
    uint64_t bytes; /* size of the body that follows */
    /* READY, STATE: hash of the sender's result. HELLO: [0] mark of the sender (handshake.c), [1]
     * id of the job, 0 until it begins. MET, BEGIN: hash of all ranks and marks. */
    uint64_t hash[2];
    /* READY, STATE: of the sender. COMMIT, ANNOUNCE: granted ones. HELLO: bits of ls_hello_flag. */
    uint64_t requests;
    union {
        /* PIECES, READY: what is done, for messages. OVER, LEFT: the reason. Ends with a zero. */
        char what[LS_FRAME_WHAT];
        struct {
            /* Bit set of ranks. STATE: lost workers. Otherwise: members. */
            uint64_t members[LS_MAX_CLUSTER / 64];
            ls_process_id process; /* HELLO of a mesh: of the sender */
        };
        int64_t numbers[LS_FRAME_NUMBERS]; /* MESSAGE, and HELLO of a messenger */
    };
} ls_frame;

/* Checks that a head comes from worker `from`, has a kind in `kinds` (bit 1 << kind), and announces
 * at most `most` bytes of body. */
ls_status ls_frame_check(const ls_frame *frame, int from, unsigned kinds, uint64_t most);

/* Writes a frame and its body from byte *done on, as far as possible without waiting. */
ls_status ls_frame_write(const ls_transport_table *table, ls_connection *to, const ls_frame *frame, const void *body,
                         size_t *done);
/* Reads the head or, once it is complete, the body, from byte *done on, without waiting. Stops
 * after the head, so that the caller can check it and provide `body`. */
ls_status ls_frame_read(const ls_transport_table *table, ls_connection *from, ls_frame *frame, void *body,
                        size_t *done);

#endif
