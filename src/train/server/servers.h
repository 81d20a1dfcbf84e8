/* An asynchronous fit with parameter servers (staleness above 0): the flow of messages
 * (ps_message.h), and the three roles. docs/parameter-servers.md is for users.
 *
 *   chief (rank 0, also computes)       worker                        server
 *   batch_queue.c: assigns batches  <-  ASK
 *   TAKE (batch, run)               ->
 *                                       PULL (batch, version held) -> staleness.c: may it read?
 *                                                                  <- SHARD (version; newer weights)
 *                                       PUSH (gradient)            -> journal.c, shard.c, record.c
 *                                                                  <- ACK, or AGAIN: pull again
 *   results, callbacks, logs        <-  DONE (results)
 *   BEGIN, GIVE (a state), RATE     ------------------------------>
 *                                   <------------------------------   HAVE
 *   FINAL (a state), OVER           ->                             ->
 *
 * A batch is identified by its ordinal: its number among all batches of the job. Each server
 * applies each batch exactly once, no matter how many workers push it, or how often. */
#ifndef LS_TRAIN_SERVER_SERVERS_H
#define LS_TRAIN_SERVER_SERVERS_H

#include "train/checkpoint/checkpoint.h"
#include "train/server/journal.h"
#include "train/server/ps_message.h"
#include "train/server/shards.h"
#include "train/job/job.h"
#include "train/job/passes.h"

/* State that all roles share. */
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
    size_t reads_bytes; /* size of the versions read, which precede the gradients of a push */
    ls_messenger *messenger;
    ls_logger *log;
    double log_at; /* when the log names the missing process next */
    /* Identifies the run. Chief: its own number, sent in HELLO. Others: their chief's; 0: not met
     * yet. */
    int64_t run;
    bool (*handle)(void *user, ls_ps_message *message); /* may be NULL */
    void *user;
} ls_server_session;

/* Returns whether a fit with this strategy in this context is an asynchronous one. */
bool ls_server_session_is(const ls_context *ctx, const ls_strategy *strategy);

/* Connects to the other processes; the rank decides which ones this process calls. handle: gets
 * each message first, in the messenger's thread, and returns true if it took message and payload;
 * may be NULL. */
ls_status ls_server_session_open(ls_server_session *session, bool (*handle)(void *user, ls_ps_message *message),
                                 void *user);
void ls_server_session_close(ls_server_session *session);

static inline bool ls_server_session_is_server(const ls_server_session *s, int rank)
{
    return rank >= s->first_server && rank < s->first_server + s->servers;
}

/* Logs which process this one waits for, since a moment of the clock: after 3 s, then every 10 s. */
void ls_server_session_log_missing(ls_server_session *session, const char *who, double since);

/* Checks the chief's HELLO. Fails if the chief restarted: it began another run, which this process
 * does not belong to. */
ls_status ls_server_session_meet_chief(ls_server_session *session, const ls_ps_message *met);

/* As ls_messenger_send and ls_messenger_receive. */
ls_status ls_server_session_send(ls_server_session *session, const ls_ps_message *message);
ls_status ls_server_session_receive(ls_server_session *session, double seconds, ls_ps_message *out, bool *got);
/* Sends a message with a text as payload. */
ls_status ls_server_session_send_text(ls_server_session *session, const ls_ps_message *message, const char *text);
/* Puts the state of a FINAL into the model. Ignores a state that does not fit. */
ls_status ls_server_session_take_final(const ls_server_session *session, const ls_ps_message *message);
/* Sets the last error to the status and text of a FAIL or OVER. Returns LS_OK if that status is
 * LS_OK. */
ls_status ls_server_session_failure(const ls_ps_message *message);

/* Returns LS_OK while this process may still wait for a chief that is absent since `lost_at`, then
 * an error. met: the chief was connected before. */
ls_status ls_server_session_check_chief(ls_server_session *session, bool met, double lost_at);

#define LS_JOIN_LIMIT  30.0 /* seconds, by default */
#define LS_CHIEF_GRACE 3.0  /* seconds that others wait for a lost chief */

/* ---- A worker (worker.c) ---- */

/* How a worker, which may be the chief itself, requests batches and reports results. Called without
 * the worker's mutex. */
typedef struct ls_batch_source {
    void (*ask)(void *user);
    void (*done)(void *user, const ls_ps_done *done, ls_payload *results);
    void *user;
} ls_batch_source;

typedef struct ls_worker ls_worker;

ls_status ls_worker_make(ls_server_session *session, ls_batch_source source, ls_worker **out);
void ls_worker_free(ls_worker *worker);

/* Handles a message, in the messenger's thread. Returns false if it is not for a worker. */
bool ls_worker_handle(ls_worker *worker, ls_ps_message *message);
/* Assigns a batch to the worker. */
void ls_worker_take(ls_worker *worker, const ls_ps_take *batch);
/* Makes ls_worker_step return early, so that its caller can look at what happened. */
void ls_worker_wake(ls_worker *worker);
/* Waits up to `seconds` for a batch, and computes it. Requests batches by itself. */
ls_status ls_worker_step(ls_worker *worker, double seconds);
/* Makes the worker pull the weights again before it computes: the model's may have changed. */
void ls_worker_forget(ls_worker *worker);

/* Serve a fit as a worker, or as a server (server.c), until the chief ends it. Then the model has
 * the final state. */
ls_status ls_serve_as_worker(ls_server_session *session);
ls_status ls_serve_as_server(ls_server_session *session);

/* ---- The chief (chief.c) ---- */

typedef struct ls_chief ls_chief;

/* Results of a batch that some worker has computed. */
typedef struct ls_chief_done {
    int64_t samples;
    int lanes;
    ls_payload *results; /* ls_results_count doubles; the caller drops the payload */
} ls_chief_done;

/* Starts from the job's position and state. Waits until every server has its state. Sets *out
 * also on failure: ls_chief_close then informs the others. */
ls_status ls_chief_open(ls_server_session *session, int64_t steps, ls_chief **out);
/* Allows `batches` batches in total, counted from the beginning of this fit. */
void ls_chief_allow(ls_chief *chief, int64_t batches);
/* Hands out no new batches. Returns the total number of batches of this fit. */
int64_t ls_chief_stop(ls_chief *chief);
/* Returns the results of the next finished batch. The calling thread computes batches while it
 * waits. */
ls_status ls_chief_next(ls_chief *chief, ls_chief_done *out);
/* Copies the state of all servers, and the position, into the job. All batches handed out must be
 * done. anyway: they need not be; for rescuing the weights after a failure. */
ls_status ls_chief_collect_state(ls_chief *chief, bool anyway);
/* Ends the fit for all processes. If status is LS_OK, sends them the state that the model has
 * now. */
void ls_chief_close(ls_chief *chief, ls_status status, const char *why);

#endif
