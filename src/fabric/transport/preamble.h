/* The first bytes of a connection, in clear text: 64 from the caller, 16 in reply, which show
 * whether the processes belong together. TLS follows, with a secret derived from the job's key and
 * these 64 bytes: so it fails if one was changed. */
#ifndef LS_FABRIC_TRANSPORT_PREAMBLE_H
#define LS_FABRIC_TRANSPORT_PREAMBLE_H

#include "base/status.h"
#include "fabric/transport/address.h"

#define LS_PREAMBLE_BYTES 64
#define LS_REPLY_BYTES    16
#define LS_WIRE_VERSION   1
#define LS_JOB_HASH_BYTES 20

typedef enum ls_preamble_kind {
    LS_PREAMBLE_CALL = 1, /* a connection between two workers */
    LS_PREAMBLE_ASK,      /* a query for addresses of others (rendezvous.c) */
} ls_preamble_kind;

typedef struct ls_preamble {
    uint16_t version;
    uint16_t kind;
    uint32_t number;    /* number of the cluster in its process */
    uint32_t from, to;  /* ranks */
    ls_address address; /* where the caller listens; none: it cannot be called */
    unsigned char job[LS_JOB_HASH_BYTES];
} ls_preamble;

typedef enum ls_reply_code {
    LS_REPLY_WELCOME,
    LS_REPLY_NO_PREAMBLE, /* never sent: other programs get no reply */
    LS_REPLY_OTHER_VERSION,
    LS_REPLY_OTHER_JOB,
    LS_REPLY_OTHER_WORKER, /* or another cluster of the same process */
    LS_REPLY_CODES
} ls_reply_code;

ls_status ls_preamble_set_job(ls_preamble *preamble, const char *job);

void ls_preamble_write(const ls_preamble *preamble, unsigned char out[LS_PREAMBLE_BYTES]);
/* Returns the reply of `own` (its to, number and job) to a preamble. *out: what of it can be read.
 * */
ls_reply_code ls_preamble_check(const unsigned char in[LS_PREAMBLE_BYTES], const ls_preamble *own, ls_preamble *out);

void ls_reply_write(ls_reply_code code, unsigned char out[LS_REPLY_BYTES]);
/* LS_REPLY_NO_PREAMBLE: these bytes are not a reply. *version: the peer's. */
ls_reply_code ls_reply_read(const unsigned char in[LS_REPLY_BYTES], int *version);

#endif
