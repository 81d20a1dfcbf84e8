/* Packets on a connection: a head of fixed size (ls_packet), then head.bytes bytes of body. Each
 * side first sends one HELLO (hello.h), then the kinds of the mesh or of the messenger. */
#ifndef LS_FABRIC_PROTOCOL_PACKET_H
#define LS_FABRIC_PROTOCOL_PACKET_H

#include "base/process.h"
#include "fabric/transport/transport.h"

#define LS_PACKET_MAGIC   0x6b63304cu /* "L0ck" */
#define LS_PACKET_VERSION 6
#define LS_PACKET_WHAT    80
#define LS_PACKET_NUMBERS 8

typedef enum ls_packet_kind {
    LS_PACKET_HELLO = 1,
    LS_PACKET_PIECES,
    LS_PACKET_READY,    /* to the coordinator: the sender has all data */
    LS_PACKET_COMMIT,   /* from the coordinator: all were READY */
    LS_PACKET_STATE,    /* after a loss: the sender's progress and losses */
    LS_PACKET_ANNOUNCE, /* from the coordinator: members, next collective */
    LS_PACKET_OVER,     /* the job ends for all */
    LS_PACKET_BEAT,     /* the sender is alive */
    LS_PACKET_LEFT,     /* the last packet: the others continue */
    LS_PACKET_JOIN,     /* from a joining worker: members it has met */
    LS_PACKET_MEMBERS,  /* to a joining worker: the members */
    LS_PACKET_MET,      /* to the first worker: the sender has met all */
    LS_PACKET_BEGIN,    /* forwarded by all: the job begins */
    LS_PACKET_MESSAGE,  /* a message of the messenger; `tag` is its kind */
    LS_PACKET_KINDS
} ls_packet_kind;

typedef struct ls_packet {
    uint32_t magic;
    uint16_t version, kind;
    uint32_t from; /* rank */
    uint32_t generation;
    uint64_t number; /* number of the collective; HELLO: size of the cluster */
    /* HELLO: 1 for a heartbeat connection, else 0. PIECES, READY: number of exchanges in this
     * generation so far. STATE: 1 if the sender is READY for `number`. */
    uint64_t sequence;
    /* PIECES: identifies the exchange; a difference is an error. READY: nanoseconds of the sender's
     * own work. STATE: its peers.granted. HELLO: generation in which it joined, 0: not yet.
     * JOIN, MEMBERS: number of the fit. */
    uint64_t tag;
    uint64_t bytes; /* size of the body */
    /* READY, STATE: hash of the result. HELLO: [0] the sender's mark (handshake.h), [1] id of the
     * job, 0 until it begins. MET, BEGIN: hash of all ranks and marks. */
    uint64_t hash[2];
    /* COMMIT, ANNOUNCE: granted ones. HELLO: bits of ls_hello_flag. */
    uint64_t requests;
    union {
        /* PIECES, READY: what is done, for errors. OVER, LEFT: the reason. Ends with a zero. */
        char what[LS_PACKET_WHAT];
        struct {
            /* Ranks. STATE: lost workers. Otherwise: members. */
            uint64_t members[LS_MAX_CLUSTER / 64];
            ls_process_id process; /* HELLO of a mesh */
        };
        int64_t numbers[LS_PACKET_NUMBERS]; /* MESSAGE; HELLO of a messenger */
    };
} ls_packet;

/* Checks the sender, the kind (a bit 1 << kind in `kinds`) and the size of the body. */
ls_status ls_packet_check(const ls_packet *packet, int from, unsigned kinds, uint64_t most);

/* Writes head and body from byte *done on, without waiting. */
ls_status ls_packet_write(const ls_transport_table *table, ls_connection *to, const ls_packet *packet, const void *body,
                          size_t *done);
/* Reads the head or, once that is complete, the body, from byte *done on, without waiting. The
 * caller checks the head before it provides `body`. */
ls_status ls_packet_read(const ls_transport_table *table, ls_connection *from, ls_packet *packet, void *body,
                         size_t *done);

#endif
