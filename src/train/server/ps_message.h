/* Messages of asynchronous parameter servers (servers.h). On the wire the fields of a message are
 * the numbers of an ls_message, in the order of their declaration here; so each has 8 bytes. Only
 * ls_ps_write and ls_ps_read convert between the two. */
#ifndef LS_TRAIN_SERVER_PS_MESSAGE_H
#define LS_TRAIN_SERVER_PS_MESSAGE_H

#include "fabric/messages/messenger.h"

typedef enum ls_ps_kind {
    LS_PS_ASK = LS_MESSAGE_FIRST,
    LS_PS_TAKE,
    LS_PS_DONE,  /* payload: results */
    LS_PS_FAIL,  /* payload: text */
    LS_PS_OVER,  /* payload: text */
    LS_PS_FINAL, /* payload: a state */
    LS_PS_BEGIN, /* no fields; payload: run id */
    LS_PS_HAVE,
    LS_PS_GIVE, /* payload: a state */
    LS_PS_RATE,
    LS_PS_PULL,
    LS_PS_SHARD, /* payload: weights or a state; none if the worker holds this version */
    LS_PS_PUSH,  /* payload: versions read, gradients */
    LS_PS_ACK,
    LS_PS_AGAIN,
} ls_ps_kind;

typedef struct ls_ps_take {
    int64_t ordinal;          /* number among all batches of the job */
    int64_t epoch, batch;     /* batch: index in the epoch */
    int64_t pass, pass_batch; /* pass over the data, and index in it */
    int64_t run;              /* counter of random numbers */
} ls_ps_take;

typedef struct ls_ps_done {
    int64_t ordinal, samples, lanes;
} ls_ps_done;

typedef struct ls_ps_pull {
    int64_t ordinal;
    int64_t held;  /* version that the worker has; -1: none */
    int64_t whole; /* 1: the chief pulls the state with slots, at once */
} ls_ps_pull;

typedef struct ls_ps_shard {
    int64_t ordinal, version;
    int64_t whole, pushes; /* pushes: applied so far, if whole */
} ls_ps_shard;

typedef struct ls_ps_push {
    int64_t ordinal, epoch, batch, run, samples;
} ls_ps_push;

typedef struct ls_ps_message {
    int rank; /* sender, or receiver */
    int kind; /* ls_ps_kind, or LS_MESSAGE_MET, _LOST or _REFUSED */
    union {
        int64_t numbers[LS_MESSAGE_NUMBERS]; /* for ps_message.c alone */
        struct {
            int64_t run; /* the chief's run; 0: unknown */
        } met;
        struct {
            int64_t number; /* number of this request, from 1 */
        } ask;
        ls_ps_take take;
        ls_ps_done done;
        struct {
            int64_t status;
        } fail, over;
        struct {
            int64_t server;
        } final;
        struct {
            int64_t state, pushes; /* state: 1 if it has one */
        } have;
        struct {
            int64_t first; /* ordinal of the first batch */
        } give;
        struct {
            double value; /* that a callback set; NAN: none */
        } rate;
        ls_ps_pull pull;
        ls_ps_shard shard;
        ls_ps_push push;
        struct {
            int64_t ordinal, version;
        } ack;
        struct {
            int64_t ordinal;
        } again;
    };
    ls_payload *body; /* NULL: none; the receiver drops it */
    char text[200];   /* LOST, REFUSED: why */
} ls_ps_message;

/* Neither adds a reference to the payload. */
ls_message ls_ps_write(const ls_ps_message *message);
ls_ps_message ls_ps_read(const ls_message *message);

#endif
