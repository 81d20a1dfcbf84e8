/* The first bytes of a connection, which anybody may have sent: 64 from the caller, 16 in answer, each of fixed size.
 * They only say whether the two can mean each other: what is behind them is TLS, whose secret is made from the job's
 * key and from these 64 bytes, so a byte that somebody changed on the way ends the connection there. */
#ifndef LS_FABRIC_TRANSPORT_PREAMBLE_H
#define LS_FABRIC_TRANSPORT_PREAMBLE_H

#include "base/status.h"
#include "fabric/transport/address.h"

#define LS_PREAMBLE_BYTES 64
#define LS_REPLY_BYTES    16
#define LS_WIRE_VERSION   1
#define LS_JOB_HASH_BYTES 20

typedef enum ls_preamble_kind {
    LS_PREAMBLE_CALL = 1, /* a line for the workers themselves */
    LS_PREAMBLE_ASK,      /* where do others wait? (rendezvous.h) */
} ls_preamble_kind;

typedef struct ls_preamble {
    uint16_t version;
    uint16_t kind;
    uint32_t number;    /* of the cluster in its process */
    uint32_t from, to;  /* ranks */
    ls_address address; /* of the caller's own door; none: nobody can call it back */
    unsigned char job[LS_JOB_HASH_BYTES];
} ls_preamble;

typedef enum ls_reply_code {
    LS_REPLY_WELCOME,
    LS_REPLY_NO_OPENING, /* not said: strangers get no answer */
    LS_REPLY_OTHER_VERSION,
    LS_REPLY_OTHER_JOB,
    LS_REPLY_OTHER_WORKER, /* or another cluster of the same process */
    LS_REPLY_CODES
} ls_reply_code;

/* Hash of a job's name. */
ls_status ls_preamble_set_job(ls_preamble *opening, const char *job);

void ls_preamble_write(const ls_preamble *opening, unsigned char out[LS_PREAMBLE_BYTES]);
/* What a door of `own` (its to, number and job count) answers to these bytes; *out is what they say, as far as it can
 * be read. */
ls_reply_code ls_preamble_judge(const unsigned char in[LS_PREAMBLE_BYTES], const ls_preamble *own, ls_preamble *out);

void ls_reply_write(ls_reply_code code, unsigned char out[LS_REPLY_BYTES]);
/* LS_REPLY_NO_OPENING: these bytes are not a door's. *version: what the door speaks. */
ls_reply_code ls_reply_read(const unsigned char in[LS_REPLY_BYTES], int *version);

#endif
