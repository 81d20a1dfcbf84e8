/* An asynchronous fit with parameter servers (staleness above 0): the flow of messages
 * (ps_message.h), and the three roles. docs/parameter-servers.md is for users.
 *
 *   chief (rank 0, also computes)       worker                        server
 *   batch_queue.c: assigns batches  <-  ASK
 *   TAKE (batch, run)               ->
 *                                       PULL (batch, version held) -> staleness.c: may it read?
 *                                                                  <- SHARD (version; weights)
 *                                       PUSH (gradient)            -> journal.c, shard.c, record.c
 *                                                                  <- ACK, or AGAIN: pull again
 *   results, callbacks, logs        <-  DONE (results)
 *   BEGIN, GIVE (a state), RATE     ------------------------------>
 *                                   <------------------------------   HAVE
 *   FINAL (a state), OVER           ->                             ->
 *
 * A server applies each batch exactly once, no matter how many workers push it, or how often. */
#ifndef LS_TRAIN_SERVER_SERVERS_H
#define LS_TRAIN_SERVER_SERVERS_H

#include "train/checkpoint/checkpoint.h"
#include "train/server/journal.h"
#include "train/server/ps_message.h"
#include "train/server/shards.h"
#include "train/job/job.h"
#include "train/job/passes.h"

typedef struct ls_server_session {
    ls_job *job;
    ls_function *function;
    const ls_settings *settings;
    const ls_fit_options *options;
    ls_passes *data;
    ls_cluster_options cluster;
    int number; /* number of the meeting */
    int servers, first_server;
    ls_state_shards *shards;
    size_t reads_bytes; /* bytes of the versions read, before the gradients of a push */
    ls_messenger *messenger;
    ls_logger *log;
    double log_at; /* when to log next which process is missing */
    /* The chief's random number, sent in HELLO; 0: not met yet. */
    int64_t run;
    bool (*handle)(void *user, ls_ps_message *message); /* may be NULL */
    void *user;
} ls_server_session;

/* Returns whether a fit with this strategy is asynchronous. */
bool ls_server_session_is(const ls_context *ctx, const ls_strategy *strategy);

/* handle: gets each message first, in the messenger's thread, and returns true if it took message
 * and payload; may be NULL. */
ls_status ls_server_session_open(ls_server_session *session, bool (*handle)(void *user, ls_ps_message *message),
                                 void *user);
void ls_server_session_close(ls_server_session *session);

static inline bool ls_server_session_is_server(const ls_server_session *s, int rank)
{
    return rank >= s->first_server && rank < s->first_server + s->servers;
}

/* Logs which process this one waits for since `since`, as often as ls_log_wait_is_due allows. */
void ls_server_session_log_missing(ls_server_session *session, const char *who, double since);

/* Fails if the chief restarted: this process does not belong to its new run. */
ls_status ls_server_session_meet_chief(ls_server_session *session, const ls_ps_message *met);

/* As ls_messenger_send and ls_messenger_receive. */
ls_status ls_server_session_send(ls_server_session *session, const ls_ps_message *message);
ls_status ls_server_session_receive(ls_server_session *session, double seconds, ls_ps_message *out, bool *got);
ls_status ls_server_session_send_text(ls_server_session *session, const ls_ps_message *message, const char *text);
/* Puts the state of a FINAL into the model. Ignores a state that does not fit. */
ls_status ls_server_session_take_final(const ls_server_session *session, const ls_ps_message *message);
/* Returns the status of a FAIL or OVER, with its text as the last error. */
ls_status ls_server_session_failure(const ls_ps_message *message);

/* Fails when this process has waited long enough for a chief that is absent since `lost_at`. met:
 * the chief was connected before. */
ls_status ls_server_session_check_chief(ls_server_session *session, bool met, double lost_at);

#define LS_JOIN_LIMIT  30.0 /* seconds, by default */
#define LS_CHIEF_GRACE 3.0  /* seconds to wait for a lost chief */

/* ---- A worker (worker.c) ---- */

/* How a worker, which may be the chief itself, requests batches and reports results. */
typedef struct ls_batch_source {
    void (*ask)(void *user);
    void (*done)(void *user, const ls_ps_done *done, ls_payload *results);
    void *user;
} ls_batch_source;

typedef struct ls_worker ls_worker;

ls_status ls_worker_make(ls_server_session *session, ls_batch_source source, ls_worker **out);
void ls_worker_free(ls_worker *worker);

/* Called in the messenger's thread. Returns false if the message is not for a worker. */
bool ls_worker_handle(ls_worker *worker, ls_ps_message *message);
void ls_worker_take(ls_worker *worker, const ls_ps_take *batch);
/* Makes ls_worker_step return early. */
void ls_worker_wake(ls_worker *worker);
/* Requests batches, waits up to `seconds` for one, and computes it. */
ls_status ls_worker_step(ls_worker *worker, double seconds);
/* Makes the worker pull all weights again: those of the model may have changed. */
void ls_worker_forget(ls_worker *worker);

/* Serve until the chief ends the fit; then the model has the final state. */
ls_status ls_serve_as_worker(ls_server_session *session);
ls_status ls_serve_as_server(ls_server_session *session);

/* ---- The chief (chief.c) ---- */

typedef struct ls_chief ls_chief;

typedef struct ls_chief_done {
    int64_t samples;
    int lanes;
    ls_payload *results; /* ls_results_count doubles; the caller drops the payload */
} ls_chief_done;

/* Waits until every server has its state. Sets *out also on failure: ls_chief_close then informs
 * the others. */
ls_status ls_chief_open(ls_server_session *session, int64_t steps, ls_chief **out);
/* Allows `batches` batches in total in this fit. */
void ls_chief_allow(ls_chief *chief, int64_t batches);
/* Hands out no new batches. Returns how many of this fit were handed out. */
int64_t ls_chief_stop(ls_chief *chief);
/* Returns the next finished batch, and computes batches while it waits. */
ls_status ls_chief_next(ls_chief *chief, ls_chief_done *out);
/* Copies the state of all servers, and the position, into the job. All batches must be done,
 * except with `anyway`, for rescuing the weights after a failure. */
ls_status ls_chief_collect_state(ls_chief *chief, bool anyway);
/* Ends the fit for all processes. If status is LS_OK, they get the state of the model. */
void ls_chief_close(ls_chief *chief, ls_status status, const char *why);

#endif
