/* A fit with parameter servers, asynchronous (staleness above 0): what its processes say to each other, and the three
 * roles. docs/parameter-servers.md is for users.
 *
 *     chief (rank 0, which computes, too)      worker                        server
 *     dealer.c: which batch is whose       <-  ASK
 *     TAKE (batch, run)                    ->
 *                                              PULL (batch, version held)  ->  reads.c: may it read now?
 *                                                                          <-  PART (version; weights, if newer)
 *                                              PUSH (gradient)             ->  journal.c, part.c, record.c
 *                                                                          <-  ACK, or AGAIN: read once more
 *     results, callbacks, logs             <-  DONE (results)
 *     BEGIN, GIVE (a state), RATE          ------------------------------->
 *                                          <-------------------------------    HAVE
 *     FINAL (a state), OVER                ->                              ->
 *
 * A batch is known by its ordinal: its number among all batches of the job. Each server applies each batch once,
 * however often and by whomever it is pushed. */
#ifndef LS_TRAIN_SERVER_SERVERS_H
#define LS_TRAIN_SERVER_SERVERS_H

#include "fabric/messages/messenger.h"
#include "train/checkpoint/checkpoint.h"
#include "train/server/journal.h"
#include "train/server/shards.h"
#include "train/job/job.h"
#include "train/job/passes.h"

typedef enum ls_ps_kind {
    /* number of this ask, from 1 on */
    LS_PS_ASK = LS_MESSAGE_FIRST,
    LS_PS_TAKE,  /* ordinal, epoch, batch of it, pass, batch of it, run */
    LS_PS_DONE,  /* ordinal, samples, lanes; results */
    LS_PS_FAIL,  /* status; text */
    LS_PS_OVER,  /* status; text */
    LS_PS_FINAL, /* server; its state */
    LS_PS_BEGIN, /* ; id of the run */
    LS_PS_HAVE,  /* whether it has a state, pushes applied */
    LS_PS_GIVE,  /* first ordinal; a state */
    LS_PS_RATE,  /* bits of the learning rate that was set */
    LS_PS_PULL,  /* ordinal, version held (-1: none), whole: with slots, for the chief, who is not bound */
    LS_PS_PART,  /* ordinal, version, whole; weights or state (none: the version that is held) */
    LS_PS_PUSH,  /* ordinal, epoch, batch, run, samples; versions read, gradients */
    LS_PS_ACK,   /* ordinal */
    LS_PS_AGAIN, /* ordinal */
} ls_ps_kind;

/* What all roles share. */
typedef struct ls_server_session {
    ls_job *job;
    ls_function *function;
    const ls_settings *settings;
    const ls_fit_options *options;
    ls_passes *data;
    ls_cluster_options cluster;
    int number; /* of the meeting */
    int servers, first_server;
    ls_state_shards *parts;
    size_t reads_bytes; /* of the versions in front of a push */
    ls_messenger *post;
    ls_logger *log;
    double say_at; /* when the log says next which process is missing; 0: this process does not wait */
    int64_t
        run; /* of the chief: a number that its HELLO has, and that of no other run; of others: their chief's, or 0 */
} ls_server_session;

/* Whether a fit with this strategy in this context is one. */
bool ls_server_session_is(const ls_context *ctx, const ls_strategy *strategy);

/* hear: sees letters first, in the post's thread; may be NULL. Whom this process calls follows from its rank. */
ls_status ls_server_session_open(ls_server_session *served, bool (*hear)(void *user, ls_message *letter), void *user);
void ls_server_session_close(ls_server_session *served);

static inline bool ls_server_session_is_server(const ls_server_session *s, int rank)
{
    return rank >= s->first_server && rank < s->first_server + s->servers;
}

/* Logs which process this one waits for, since a moment of the clock: after 3 s, then every 10 s. */
void ls_server_session_say_missing(ls_server_session *served, const char *who, double since);

/* The chief is met. Another one than before was begun again, with another run: this process has no part in it. */
ls_status ls_server_session_meet_chief(ls_server_session *served, const ls_message *met);

/* A letter without a body, or with a text for one. */
ls_status ls_server_session_say(ls_server_session *served, int rank, ls_ps_kind kind, int64_t first, int64_t second);
ls_status ls_server_session_tell(ls_server_session *served, int rank, ls_ps_kind kind, int64_t number,
                                 const char *text);
/* The status and text of a FAIL or OVER, as the last error. LS_OK is no failure. */
ls_status ls_server_session_failure(const ls_message *letter);

/* The chief is not there, since `lost_at`: LS_OK as long as that may be. met: it was there before. */
ls_status ls_server_session_miss_chief(ls_server_session *served, bool met, double lost_at);

#define LS_JOIN_LIMIT  30.0 /* seconds, where the options do not say */
#define LS_CHIEF_GRACE 3.0  /* seconds that others wait for a chief that is gone */

/* ---- A worker (worker.c) ---- */

/* Where a worker, which may be the chief itself, gets its batches and says what came out. Called without its mutex. */
typedef struct ls_worker_desk {
    void (*ask)(void *user);
    void (*done)(void *user, int64_t ordinal, int64_t samples, int lanes, ls_payload *results);
    void *user;
} ls_worker_desk;

typedef struct ls_worker ls_worker;

ls_status ls_worker_make(ls_server_session *served, ls_worker_desk desk, ls_worker **out);
void ls_worker_free(ls_worker *worker);

/* A letter of the post, in its thread; false: it is not for a worker. */
bool ls_worker_hear(ls_worker *worker, ls_message *letter);
/* It may compute this batch: the numbers of TAKE. */
void ls_worker_take(ls_worker *worker, const int64_t numbers[LS_MESSAGE_NUMBERS]);
/* Something happened that whoever is in ls_worker_step should look at. */
void ls_worker_wake(ls_worker *worker);
/* Waits for up to so many seconds until there is a batch to compute, and computes it. Asks for batches by itself. */
ls_status ls_worker_step(ls_worker *worker, double seconds);
/* Somebody else may have changed the model's weights: they are read again before anything is computed. */
void ls_worker_forget(ls_worker *worker);

/* Serves a fit as a worker, or as a server (server.c), until the chief says that it is over; the model then has the
 * final state. */
ls_status ls_serve_as_worker(ls_server_session *served);
ls_status ls_serve_as_server(ls_server_session *served);

/* ---- The chief (chief.c) ---- */

typedef struct ls_chief ls_chief;

/* A batch that is done, by whomever. */
typedef struct ls_chief_done {
    int64_t samples;
    int lanes;
    ls_payload *results; /* doubles, ls_results_count of them; to be dropped */
} ls_chief_done;

/* The job is at its position, with the state to begin with. Waits until every server has it. */
ls_status ls_chief_open(ls_server_session *served, int64_t steps, ls_chief **out);
/* So many batches may be dealt out in all, counted from the beginning of this fit. */
void ls_chief_allow(ls_chief *chief, int64_t batches);
/* Deals out nothing more; returns the number of batches that this makes in all. */
int64_t ls_chief_stop(ls_chief *chief);
/* The next batch that is done; computes, too, while it waits. */
ls_status ls_chief_next(ls_chief *chief, ls_chief_done *out);
/* All that were dealt out are done: puts the state of all servers into the job, with its position. anyway: they need
 * not be, for training has failed, and only weights are wanted. */
ls_status ls_chief_settle(ls_chief *chief, bool anyway);
/* Everybody is told that it is over; where status is LS_OK, with the state that the model has now. */
void ls_chief_close(ls_chief *chief, ls_status status, const char *why);

#endif
