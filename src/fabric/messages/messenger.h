/* Letters between the processes of a job with parameter servers. Such a job is no mesh of exchanges: processes ask and
 * answer, each at its own pace, and come and go. A thread of its own writes and reads them, and gives signs of life, so
 * that all of it goes on while the process computes.
 *
 * A letter is a head of fixed size with a kind and some numbers, and maybe a body (a parcel). Over a new line both
 * sides first say HELLO, with a text that must be the same: it says what job they are of. Sizes are never trusted: a
 * body that is larger than the process expects at all ends the line.
 *
 *     worker or chief              server              who calls whom: options.calls
 *         HELLO   ->           <-  HELLO               then LS_LETTER_MET on both sides
 *         letters <->              letters, BEAT
 *         (line ends)                                  LS_LETTER_LOST on both sides; the caller calls again
 */
#ifndef LS_FABRIC_MESSAGES_MESSENGER_H
#define LS_FABRIC_MESSAGES_MESSENGER_H

#include "base/log.h"
#include "fabric/transport/transport.h"

/* ---- Parcels ---- */

/* Bytes that several letters may share: whoever has one keeps it until it drops it. */
typedef struct ls_parcel ls_parcel;
ls_status ls_parcel_make(size_t bytes, ls_parcel **out); /* 64-byte aligned */
ls_parcel *ls_parcel_keep(ls_parcel *parcel);
void ls_parcel_drop(ls_parcel *parcel); /* NULL: nothing */
void *ls_parcel_bytes(ls_parcel *parcel);
size_t ls_parcel_size(const ls_parcel *parcel);

/* ---- Letters ---- */

#define LS_LETTER_NUMBERS 8

typedef enum ls_letter_kind {
    LS_LETTER_NONE = 0,
    LS_LETTER_MET,     /* a process is there: its HELLO's numbers */
    LS_LETTER_LOST,    /* its line has ended, or it was silent: text */
    LS_LETTER_REFUSED, /* it does not let this process in: text. It is not called again */
    LS_LETTER_FIRST,   /* the user's own kinds begin here */
} ls_letter_kind;

typedef struct ls_letter {
    int rank; /* from, or to */
    int kind;
    int64_t numbers[LS_LETTER_NUMBERS];
    ls_parcel *body; /* NULL: none. Of a letter that was received the receiver drops it */
    char text[200];  /* of what happened to a line */
} ls_letter;

/* ---- The post ---- */

typedef struct ls_post ls_post;

typedef struct ls_post_options {
    const ls_cluster_options *cluster;
    int number;        /* as a transport's */
    const char *about; /* must be the same on both sides */
    int64_t hello[LS_LETTER_NUMBERS];
    bool calls[LS_MAX_CLUSTER]; /* whom this process calls, again and again until it is there; who must not call it */
    size_t most;                /* bytes of a body that can come */
    /* Sees every letter first, in the post's thread; true: it has taken it, with its body. NULL: nobody. */
    bool (*hear)(void *user, ls_letter *letter);
    void *user;
    ls_logger *log; /* NULL: nobody reads what happens */
} ls_post_options;

ls_status ls_post_open(const ls_post_options *options, ls_post **out);
/* What was sent still goes out, where somebody takes it. */
void ls_post_close(ls_post *post);

/* Puts a letter behind others for that process; its body is kept for as long as it takes. Where there is no line it is
 * dropped: whoever needs an answer sends again when the process is met. Any thread may send. */
ls_status ls_post_send(ls_post *post, const ls_letter *letter);

/* Why lines came to nothing so far, before anybody was met: a wrong key, say. "" or "; the last that called, or was
 * called: ...", for the message about who did not come. */
#define LS_POST_WHY 400
void ls_post_why(ls_post *post, char text[LS_POST_WHY]);

/* The next letter; *got is false when none came within so many seconds. */
ls_status ls_post_receive(ls_post *post, double seconds, ls_letter *out, bool *got);

#endif
