/* HELLOs, by which two processes identify each other. Each side sends one packet with its rank, the
 * version of the protocol and the size of the cluster, then a text that must be equal on both. The
 * side that was called replies even when it refuses, so that both can report the difference. The
 * user of these functions decides whom to call and whom to accept. */
#ifndef LS_FABRIC_PROTOCOL_HELLO_H
#define LS_FABRIC_PROTOCOL_HELLO_H

#include "fabric/protocol/packet.h"

#define LS_HELLO_TEXT   4096 /* most bytes of the text */
#define LS_MOST_CALLERS 64   /* callers; above it the oldest is dropped */

/* Flags in `requests` of a HELLO. */
typedef enum ls_hello_flag {
    LS_HELLO_REFUSES = 1,   /* the connection closes; call again later */
    LS_HELLO_JOINS = 2,     /* wants to join a running job */
    LS_HELLO_RECONNECTS = 4 /* a member whose connection broke */
} ls_hello_flag;

typedef struct ls_hello {
    ls_connection *at; /* NULL: none */
    double since;      /* when it was made */
    bool speaks;       /* `out` is set and is being sent */
    ls_packet out, in;
    size_t sent, got;
    char text[LS_HELLO_TEXT + 1]; /* text that the other side sent */
} ls_hello;

/* All handshakes of a process. */
typedef struct ls_hellos {
    const ls_transport_table *table;
    ls_transport *transport;
    /* Explains a different text in messages. */
    const char *difference;
    ls_packet packet; /* HELLO of this process; its user may add to it */
    char text[LS_HELLO_TEXT + 1];
    ls_hello *calls; /* outgoing, in an order of the user's */
    int call_count;
    ls_hello *callers; /* incoming, oldest first */
    int caller_count;
} ls_hellos;

ls_status ls_hellos_open(ls_hellos *all, const ls_transport_table *table, const ls_cluster_options *options,
                         int call_count, const char *text, const char *difference);
/* Works on zeroed memory. */
void ls_hellos_close(ls_hellos *all);

/* Calls a worker and says HELLO; call->at stays NULL if it does not listen yet. */
ls_status ls_hello_call(const ls_hellos *all, ls_hello *call, int rank);
ls_status ls_hello_answer(ls_hellos *all);
/* Close a connection. */
void ls_hello_forget(const ls_hellos *all, ls_hello *hello);
void ls_hello_drop_caller(ls_hellos *all, int index);

/* Begins to send all->packet; hello->out may still be changed. */
void ls_hello_say(const ls_hellos *all, ls_hello *hello);
/* Continue without waiting. ls_hello_send returns whether all is sent. ls_hello_hear fails if the
 * connection has ended or the bytes are not a HELLO (of any version); *heard: it is complete.
 * ls_hello_continue does both for a call to `rank`. */
bool ls_hello_send(const ls_hellos *all, ls_hello *hello);
ls_status ls_hello_hear(const ls_hellos *all, ls_hello *hello, bool *heard);
ls_status ls_hello_continue(const ls_hellos *all, ls_hello *call, int rank, bool *done);
/* Compares version, size and text. */
ls_status ls_hello_compare(const ls_hellos *all, const ls_hello *hello);

/* Adds up to call_count + LS_MOST_CALLERS wants; returns the new count. */
int ls_hellos_list(const ls_hellos *all, ls_want *wants, int count);

#endif
