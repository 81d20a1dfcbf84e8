/* TLS 1.3 over a non-blocking socket with a pre-shared secret and no certificates, by OpenSSL. */
#ifndef LS_FABRIC_TRANSPORT_TLS_H
#define LS_FABRIC_TRANSPORT_TLS_H

#include "base/status.h"
#include "fabric/transport/key.h"

typedef struct ls_tls ls_tls;         /* shared by all connections */
typedef struct ls_secured ls_secured; /* one connection */

typedef enum ls_tls_result {
    LS_TLS_DONE,
    LS_TLS_WANTS_READ, /* nothing moved: retry when bytes have arrived */
    LS_TLS_WANTS_WRITE,
    LS_TLS_CLOSED, /* the connection ended; ls_secured_why has the reason */
    LS_TLS_FAILED, /* invalid data, or another secret; ls_secured_why */
} ls_tls_result;

ls_status ls_tls_open(ls_tls **out);
void ls_tls_close(ls_tls *tls);

/* The socket stays the caller's and must outlive the connection. caller: this side called. */
ls_status ls_secured_open(ls_tls *tls, int fd, bool caller, const unsigned char secret[LS_KEY_BYTES], ls_secured **out);
void ls_secured_free(ls_secured *s);

ls_tls_result ls_secured_shake_hands(ls_secured *s);
/* After the handshake. Repeat an unfinished write with the same bytes: some may be sent. */
ls_tls_result ls_secured_write(ls_secured *s, const void *data, size_t bytes, size_t *moved);
ls_tls_result ls_secured_read(ls_secured *s, void *data, size_t bytes, size_t *moved);
bool ls_secured_has_bytes(const ls_secured *s); /* received bytes that are not read yet */
/* Sends close_notify; false: too early, or a record is half sent. */
bool ls_secured_say_end(ls_secured *s);
/* was_closed: by the peer's close_notify. died: by FIN without it, which only the kernel of an
 * ended process sends. Neither: by a reset or another failure. */
bool ls_secured_was_closed(const ls_secured *s);
bool ls_secured_died(const ls_secured *s);
const char *ls_secured_why(const ls_secured *s);

#define LS_TLS_RECORD 16384 /* most bytes of a write that become one record */

/* Each side changes its keys after this number of bytes. Tests lower it. */
extern uint64_t ls_tls_rekey_bytes;

#endif
