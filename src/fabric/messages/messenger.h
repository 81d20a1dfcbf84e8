/* Messages between the processes of an asynchronous job with parameter servers. Its processes send
 * requests and replies, each at its own pace, and come and go. A thread of the messenger sends and
 * receives the messages and heartbeats while the process computes.
 *
 * A message is a packet with a kind and some numbers, and optionally a body (a payload). On a new
 * connection both sides first send HELLO (hello.h) with a text that identifies the job and must be
 * equal. Sizes are never trusted: a body larger than options.most ends the connection.
 *
 * clang-format off
 *     worker or chief               server
 *         HELLO    ->           <-  HELLO           options.calls: which side calls
 *                                                   then LS_MESSAGE_MET on both sides
 *         messages <->              messages, BEAT
 *         (connection ends)                         LS_MESSAGE_LOST on both sides;
 *                                                   the caller calls again
 * clang-format on
 */
#ifndef LS_FABRIC_MESSAGES_MESSENGER_H
#define LS_FABRIC_MESSAGES_MESSENGER_H

#include "base/log.h"
#include "fabric/messages/payload.h"
#include "fabric/protocol/hello.h"

/* ---- Messages ---- */

#define LS_MESSAGE_NUMBERS LS_PACKET_NUMBERS

typedef enum ls_message_kind {
    LS_MESSAGE_NONE = 0,
    LS_MESSAGE_MET,     /* a process is connected; `numbers` of its HELLO */
    LS_MESSAGE_LOST,    /* it disconnected or was silent; `text` has the reason */
    LS_MESSAGE_REFUSED, /* it refused this process, which does not call again; `text` */
    LS_MESSAGE_FIRST,   /* first kind of the user's */
} ls_message_kind;

typedef struct ls_message {
    int rank; /* sender, or receiver */
    int kind;
    int64_t numbers[LS_MESSAGE_NUMBERS];
    ls_payload *body; /* NULL: none; the receiver drops it */
    char text[200];   /* why a connection ended */
} ls_message;

/* ---- The messenger ---- */

typedef struct ls_messenger ls_messenger;

typedef struct ls_messenger_options {
    const ls_cluster_options *cluster;
    int number;        /* number of this cluster in the process */
    const char *about; /* must be equal on both sides */
    int64_t hello[LS_MESSAGE_NUMBERS];
    /* By rank: processes that this one calls, and which must not call it. */
    bool calls[LS_MAX_CLUSTER];
    size_t most; /* largest body that may arrive, in bytes */
    /* Gets every message first, in the messenger's thread; true: it took message and body. May be
     * NULL. */
    bool (*hear)(void *user, ls_message *message);
    void *user;
    ls_logger *log; /* may be NULL */
} ls_messenger_options;

ls_status ls_messenger_open(const ls_messenger_options *options, ls_messenger **out);
/* Delivers queued messages first, at most 2 seconds. */
void ls_messenger_close(ls_messenger *messenger);

/* Queues a message and keeps its body until it is sent. Drops it if the process is not connected:
 * send again after LS_MESSAGE_MET. Thread-safe. */
ls_status ls_messenger_send(ls_messenger *messenger, const ls_message *message);

/* Why the last connection failed, such as a wrong key: "" or "; the last failed connection: ...",
 * to append to an error message. */
#define LS_MESSENGER_WHY 400
void ls_messenger_why(ls_messenger *messenger, char text[LS_MESSENGER_WHY]);

ls_status ls_messenger_receive(ls_messenger *messenger, double seconds, ls_message *out, bool *got);

#endif
