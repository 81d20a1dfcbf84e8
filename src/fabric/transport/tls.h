/* TLS 1.3 over a socket that does not block, with a secret that both sides have: OpenSSL behind a few calls. There are
 * no certificates: whoever has the secret is let in, and nobody else. */
#ifndef LS_FABRIC_TRANSPORT_TLS_H
#define LS_FABRIC_TRANSPORT_TLS_H

#include "base/status.h"
#include "fabric/transport/key.h"

typedef struct ls_tls ls_tls;         /* what all connections share */
typedef struct ls_secured ls_secured; /* one connection */

/* How far a call got. */
typedef enum ls_tls_result {
    LS_TLS_DONE,
    LS_TLS_WANTS_READ, /* nothing moved: again when bytes have come */
    LS_TLS_WANTS_WRITE,
    LS_TLS_CLOSED, /* the connection ended: ls_secured_why says how */
    LS_TLS_FAILED, /* what came is not what the other side of this secret says: likewise */
} ls_tls_result;

ls_status ls_tls_open(ls_tls **out);
void ls_tls_close(ls_tls *tls);

/* The socket stays the caller's, and must outlive the connection. caller: of the two sides, the one that called. */
ls_status ls_secured_open(ls_tls *tls, int fd, bool caller, const unsigned char secret[LS_KEY_BYTES], ls_secured **out);
void ls_secured_free(ls_secured *s);

ls_tls_result ls_secured_shake_hands(ls_secured *s);
/* Until the handshake is done these must not be called. A write that wants something is made again with the same bytes:
 * a part of them may be on its way. */
ls_tls_result ls_secured_write(ls_secured *s, const void *data, size_t bytes, size_t *moved);
ls_tls_result ls_secured_read(ls_secured *s, void *data, size_t bytes, size_t *moved);
bool ls_secured_has_bytes(const ls_secured *s); /* that came and were not read */
/* Sends close_notify. Returns false where that is impossible: the handshake is not done, or a record is half sent. */
bool ls_secured_say_end(ls_secured *s);
/* How the connection ended: by the peer's close_notify; by FIN without it, which only the kernel of a process that has
 * ended sends, since a live one says close_notify or resets the connection. Neither: by a reset or another failure. */
bool ls_secured_was_closed(const ls_secured *s);
bool ls_secured_died(const ls_secured *s);
const char *ls_secured_why(const ls_secured *s);

#define LS_TLS_RECORD 16384 /* bytes of a write that become one record, at most */

/* Each side changes its keys after so many bytes, long before a key has seen too many; tests have it do so sooner. */
extern uint64_t ls_tls_rekey_bytes;

#endif
