/* Internals of the tcp transport: tcp_connection.c, tcp_listener.c for incoming calls, rendezvous.c
 * for addresses of workers. The mutex guards what connections share in ls_tcp; a connection that
 * was handed out belongs to its user. */
#ifndef LS_FABRIC_TRANSPORT_TCP_H
#define LS_FABRIC_TRANSPORT_TCP_H

#include <poll.h>
#include <pthread.h>

#include "fabric/transport/preamble.h"
#include "fabric/transport/tls.h"
#include "fabric/transport/transport.h"

#define TCP_MOST_CALLERS 64   /* above it one without a key is dropped */
#define TCP_MOST_LEAVING 64   /* closed, with bytes to send */
#define TCP_QUERY_BYTES  4    /* a rank */
#define TCP_ANSWER_BYTES 22   /* a rank and a packed address */
#define TCP_MEET_LIMIT   10.0 /* seconds until a call is open */

/* ---- Connections ---- */

/* The called side begins with HEARING, then SAYING. SHAKING is the TLS handshake. */
typedef enum tcp_state { TCP_CONNECTING, TCP_SAYING, TCP_HEARING, TCP_SHAKING, TCP_OPEN, TCP_ENDED } tcp_state;

typedef struct ls_tcp ls_tcp;
typedef struct tcp_connection {
    const ls_transport_table *table;
    ls_tcp *tcp;
    int fd;
    tcp_state state;
    bool caller;                            /* this side called */
    bool refused;                           /* close after the reply */
    double end;                             /* deadline to be open; after closing: to be sent */
    ls_address there;                       /* address of the peer */
    ls_preamble preamble;                   /* preamble of the calling side */
    unsigned char bytes[LS_PREAMBLE_BYTES]; /* while sent or received */
    size_t done;
    unsigned char said[LS_PREAMBLE_BYTES]; /* for the TLS secret */
    ls_secured *secured;
    bool wants_write; /* in TCP_SHAKING */
    bool learned;     /* its address was recorded */
    bool goodbye;     /* close_notify was sent */
    /* Bytes that the peer sent before can still be read. */
    bool write_failed;
    bool drained; /* the last read found nothing more */
    /* One byte of an unfinished record is not reported as moved: see ls_tcp_connection_write. */
    bool owed;
    size_t record; /* bytes in the buffer not written yet */
    unsigned char *buffer;
    char why[300]; /* why it ended or cannot be written */
} tcp_connection;

ls_status ls_tcp_connection_call(ls_tcp *tcp, ls_preamble_kind kind, int rank, const ls_address *there,
                                 tcp_connection **out);
/* Takes ownership of fd. */
ls_status ls_tcp_connection_answer(ls_tcp *tcp, int fd, const ls_address *there, tcp_connection **out);
void ls_tcp_connection_free(tcp_connection *connection);
void ls_tcp_connection_step(tcp_connection *connection);
/* Poll events until it is open. */
short ls_tcp_connection_events(const tcp_connection *connection);
bool ls_tcp_connection_flush(tcp_connection *connection);
ls_status ls_tcp_connection_write(ls_connection *connection, const struct iovec *parts, int count, size_t *moved);
ls_status ls_tcp_connection_read(ls_connection *connection, const struct iovec *parts, int count, size_t *moved);
void ls_tcp_connection_hang_up(ls_connection *connection);
ls_connection_end ls_tcp_connection_how_ended(const ls_connection *connection);
/* Frees closed connections that are delivered or out of time. Needs the mutex. */
void ls_tcp_leave_some(ls_tcp *tcp);

/* ---- The transport ---- */

typedef struct tcp_known_address {
    ls_address address; /* bytes 0: unknown */
    bool stale;         /* calling it failed */
    bool asked;         /* worker 0 is being asked */
    double ask_again, call_again;
    int turn; /* address to try next */
} tcp_known_address;

struct ls_tcp {
    const ls_transport_table *table;
    ls_cluster_options options;
    ls_preamble own; /* this worker's rank, number, job, address */
    ls_key *key;
    ls_tls *tls;
    pthread_mutex_t mutex;

    pthread_t thread; /* runs tcp_listener.c */
    bool has_thread, closing;
    int bell, wake; /* eventfds: for callers, for the thread */
    int listener;
    double accept_again;                       /* after descriptors ran out */
    tcp_connection *callers[TCP_MOST_CALLERS]; /* oldest first */
    int caller_count;
    tcp_connection *leaving[TCP_MOST_LEAVING];
    int leaving_count;
    long refused; /* since the last report */
    char refused_why[300];

    /* rendezvous.c */
    ls_address meeting[LS_MOST_ADDRESSES]; /* tcp://: addresses of worker 0 */
    int meeting_count;
    char folder[256]; /* file://: the shared folder; "": none */
    tcp_known_address known[LS_MAX_CLUSTER];
    tcp_connection *query; /* connection to worker 0 for queries */
    double query_again;
    unsigned char answer[TCP_ANSWER_BYTES];
    size_t answer_done;
    bool news;                               /* an address has arrived */
    tcp_connection *queries[LS_MAX_CLUSTER]; /* worker 0: for queries of others */
};

/* ---- Incoming calls (tcp_listener.c) ---- */

/* Starts the thread that authenticates callers, answers queries and delivers the last bytes of
 * closed connections. `bell` becomes readable for an authenticated caller or a new address. */
ls_status ls_tcp_listener_open(ls_tcp *tcp);
void ls_tcp_listener_close(ls_tcp *tcp);
void ls_tcp_listener_wake(ls_tcp *tcp); /* wakes the thread */
/* Return whether `bell` has a reason, clearing it if not; and the next authenticated caller, or
 * NULL. Need the mutex. */
bool ls_tcp_listener_look(ls_tcp *tcp);
tcp_connection *ls_tcp_listener_take(ls_tcp *tcp);

/* ---- Addresses of workers (rendezvous.c); all need the mutex ---- */

ls_status ls_tcp_rendezvous_open(ls_tcp *tcp);
void ls_tcp_rendezvous_close(ls_tcp *tcp);
/* bytes 0: not known yet. */
ls_status ls_tcp_find(ls_tcp *tcp, int rank, ls_address *out);
void ls_tcp_learn(ls_tcp *tcp, const ls_preamble *preamble); /* the caller is authenticated */
/* Answers queries, and reads worker 0's replies. */
void ls_tcp_queries_step(ls_tcp *tcp);

#endif
