/* Letters between the processes of a job with parameter servers. Such a job is no mesh of exchanges: processes ask and
 * answer, each at its own pace, and come and go. A thread of its own writes and reads them, and gives signs of life, so
 * that all of it goes on while the process computes.
 *
 * A letter is a head of fixed size with a kind and some numbers, and maybe a body (a parcel). Over a new line both
 * sides first say HELLO, with a text that must be the same: it says what job they are of. Sizes are never trusted: a
 * body that is larger than the process expects at all ends the line.
 *
 *     worker or chief              server              who calls whom: options.calls
 *         HELLO   ->           <-  HELLO               then LS_MESSAGE_MET on both sides
 *         letters <->              letters, BEAT
 *         (line ends)                                  LS_MESSAGE_LOST on both sides; the caller calls again
 */
#ifndef LS_FABRIC_MESSAGES_MESSENGER_H
#define LS_FABRIC_MESSAGES_MESSENGER_H

#include "base/log.h"
#include "fabric/transport/transport.h"

/* ---- Parcels ---- */

/* Bytes that several letters may share: whoever has one keeps it until it drops it. */
typedef struct ls_payload ls_payload;
ls_status ls_payload_make(size_t bytes, ls_payload **out); /* 64-byte aligned */
ls_payload *ls_payload_keep(ls_payload *parcel);
void ls_payload_drop(ls_payload *parcel); /* NULL: nothing */
void *ls_payload_bytes(ls_payload *parcel);
size_t ls_payload_size(const ls_payload *parcel);

/* ---- Letters ---- */

#define LS_MESSAGE_NUMBERS 8

typedef enum ls_message_kind {
    LS_MESSAGE_NONE = 0,
    LS_MESSAGE_MET,     /* a process is there: its HELLO's numbers */
    LS_MESSAGE_LOST,    /* its line has ended, or it was silent: text */
    LS_MESSAGE_REFUSED, /* it does not let this process in: text. It is not called again */
    LS_MESSAGE_FIRST,   /* the user's own kinds begin here */
} ls_message_kind;

typedef struct ls_message {
    int rank; /* from, or to */
    int kind;
    int64_t numbers[LS_MESSAGE_NUMBERS];
    ls_payload *body; /* NULL: none. Of a letter that was received the receiver drops it */
    char text[200];   /* of what happened to a line */
} ls_message;

/* ---- The post ---- */

typedef struct ls_messenger ls_messenger;

typedef struct ls_messenger_options {
    const ls_cluster_options *cluster;
    int number;        /* as a transport's */
    const char *about; /* must be the same on both sides */
    int64_t hello[LS_MESSAGE_NUMBERS];
    bool calls[LS_MAX_CLUSTER]; /* whom this process calls, again and again until it is there; who must not call it */
    size_t most;                /* bytes of a body that can come */
    /* Sees every letter first, in the post's thread; true: it has taken it, with its body. NULL: nobody. */
    bool (*hear)(void *user, ls_message *letter);
    void *user;
    ls_logger *log; /* NULL: nobody reads what happens */
} ls_messenger_options;

ls_status ls_messenger_open(const ls_messenger_options *options, ls_messenger **out);
/* What was sent still goes out, where somebody takes it. */
void ls_messenger_close(ls_messenger *post);

/* Puts a letter behind others for that process; its body is kept for as long as it takes. Where there is no line it is
 * dropped: whoever needs an answer sends again when the process is met. Any thread may send. */
ls_status ls_messenger_send(ls_messenger *post, const ls_message *letter);

/* Why lines came to nothing so far, before anybody was met: a wrong key, say. "" or "; the last that called, or was
 * called: ...", for the message about who did not come. */
#define LS_MESSENGER_WHY 400
void ls_messenger_why(ls_messenger *post, char text[LS_MESSENGER_WHY]);

/* The next letter; *got is false when none came within so many seconds. */
ls_status ls_messenger_receive(ls_messenger *post, double seconds, ls_message *out, bool *got);

#endif
