/* The chief of asynchronous parameter servers. It hands out batches, collects results, computes
 * batches itself, and has the whole state when training halts. The messenger's thread handles the
 * workers' messages and hands out the next batch at once (batch_queue.c); the servers' messages for
 * the chief go to the caller's thread. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/grow.h"
#include "fabric/start/launcher.h"
#include "nn/model.h"
#include "train/server/batch_queue.h"
#include "train/server/servers.h"
#include "train/job/job.h"
#include "train/job/results.h"
#include "train/job/step.h"
#include "train/server/journal.h"
#include "train/server/record.h"
#include "train/server/shards.h"

#define LATE_LIMIT   2.0 /* seconds that a chief waits at its end for processes not met */
#define RESCUE_LIMIT 5.0 /* seconds that a failed job waits for its last state */

typedef struct server_seen {
    bool there, given, has; /* connected; had a state at some time; has one now */
    double lost_at;
} server_seen;

struct ls_chief {
    ls_server_session *served;
    ls_batch_queue *dealer;
    ls_worker *worker;
    char id[LS_RUN_ID];
    int64_t steps; /* batches per epoch */
    ls_position start;
    uint64_t start_run;       /* random counter of the first batch */
    int64_t start_step;       /* gradients that servers had applied at the start */
    int64_t first;            /* ordinal of the first batch */
    double rate;              /* last one sent to the servers; NAN: none was set */
    bool met[LS_MAX_CLUSTER]; /* by rank: connected at some time */
    bool failed;              /* ls_chief_next has failed */
    bool watched;             /* callbacks see the model after each batch, and may change it */
    int64_t asks;             /* batches that the chief has requested from itself */
    server_seen seen[LS_MAX_SERVERS];
    pthread_mutex_t mutex;
    /* The mutex protects these: */
    ls_chief_done *done; /* finished batches, in order of arrival */
    size_t done_count, done_room;
    /* The results of a batch were dropped for lack of memory. */
    bool no_room;
    /* Finished batches of this fit that were taken from the list. */
    int64_t finished;
    /* Batches done when the server was lost; it had applied at least these. */
    int64_t acknowledged[LS_MAX_SERVERS];
};

/* ---- Positions of batches ---- */

/* A pass is an epoch, unless epochs have a length of their own: then passes follow each other. */
static void find_batch(const ls_chief *c, int64_t ordinal, int64_t numbers[LS_MESSAGE_NUMBERS])
{
    int64_t since = ordinal - c->first, batches = c->served->data->steps, taken;
    numbers[0] = ordinal;
    numbers[1] = ordinal / c->steps;
    numbers[2] = ordinal % c->steps;
    if (c->served->options->steps_per_epoch == 0) {
        numbers[3] = numbers[1];
        numbers[4] = numbers[2];
    } else {
        taken = c->start.batch + since;
        numbers[3] = c->start.pass + (batches > 0 ? taken / batches : 0);
        numbers[4] = batches > 0 ? taken % batches : taken;
    }
    numbers[5] = (int64_t)c->start_run + since;
}

/* Called with the queue's mutex held. */
static void give(void *user, int rank, int64_t ordinal)
{
    ls_chief *c = user;
    ls_message letter = { .rank = rank, .kind = LS_PS_TAKE };
    find_batch(c, ordinal, letter.numbers);
    if (rank == c->served->cluster.rank)
        ls_worker_take(c->worker, letter.numbers);
    else
        (void)ls_messenger_send(c->served->post,
                                /* The batch of a lost worker returns to the queue. */
                                &letter);
}

/* ---- Messages of workers ---- */

static void note_done(ls_chief *c, int rank, int64_t ordinal, ls_chief_done done)
{
    if (!ls_batch_queue_done(c->dealer, rank, ordinal)) {
        ls_payload_drop(done.results);
        return;
    }
    pthread_mutex_lock(&c->mutex);
    if (ls_grow(&c->done, c->done_count, &c->done_room, sizeof(*c->done)) == LS_OK)
        c->done[c->done_count++] = done;
    else {
        ls_payload_drop(done.results);
        c->no_room = true;
    }
    pthread_mutex_unlock(&c->mutex);
    ls_worker_wake(c->worker);
}

static void ask_itself(void *user)
{
    ls_chief *c = user;
    (void)ls_batch_queue_ask(c->dealer, c->served->cluster.rank, ++c->asks);
}

static void be_done(void *user, int64_t ordinal, int64_t samples, int lanes, ls_payload *results)
{
    ls_chief *c = user;
    note_done(c, c->served->cluster.rank, ordinal,
              (ls_chief_done){ .samples = samples, .lanes = lanes, .results = results });
}

static bool hear_worker(ls_chief *c, ls_message *letter)
{
    size_t bytes = letter->body ? ls_payload_size(letter->body) : 0;
    if (letter->kind == LS_PS_ASK)
        (void)ls_batch_queue_ask(c->dealer, letter->rank, letter->numbers[0]);
    else if (letter->kind == LS_MESSAGE_LOST)
        ls_batch_queue_lose(c->dealer, letter->rank);
    else if (letter->kind == LS_PS_DONE && bytes == ls_results_count(c->served->job) * sizeof(double)) {
        note_done(c, letter->rank, letter->numbers[0],
                  (ls_chief_done){ letter->numbers[1], (int)letter->numbers[2], letter->body });
        letter->body = NULL;
    } else
        return letter->kind != LS_MESSAGE_MET && letter->kind != LS_PS_FAIL;
    return letter->kind != LS_MESSAGE_LOST; /* the caller's thread logs the loss */
}

/* Called in the messenger's thread. A server's connection or loss concerns both the worker and the
 * chief. */
static bool hear(void *user, ls_message *letter)
{
    ls_chief *c = user;
    bool taken;
    if (ls_server_session_is_server(c->served, letter->rank)) {
        if (letter->kind == LS_MESSAGE_LOST) {
            pthread_mutex_lock(&c->mutex);
            c->acknowledged[letter->rank - c->served->first_server] = c->finished + (int64_t)c->done_count;
            pthread_mutex_unlock(&c->mutex);
        }
        bool both = letter->kind == LS_MESSAGE_MET || letter->kind == LS_MESSAGE_LOST;
        taken = ls_worker_hear(c->worker, letter) && !both;
    } else {
        taken = hear_worker(c, letter);
        if (taken)
            ls_payload_drop(letter->body);
    }
    if (!taken)
        ls_worker_wake(c->worker);
    return taken;
}

/* ---- Messages of servers ---- */

static ls_status tell_rate(ls_chief *c, int server)
{
    int64_t bits;
    memcpy(&bits, &c->rate, sizeof(bits));
    return ls_server_session_say(c->served, c->served->first_server + server, LS_PS_RATE, bits, 0);
}

static ls_status give_state(ls_chief *c, int server)
{
    const ls_server_session *v = c->served;
    ls_message letter = { .rank = v->first_server + server, .kind = LS_PS_GIVE, .numbers = { c->first } };
    LS_TRY(ls_payload_make(ls_state_shards_state_bytes(v->parts, server), &letter.body));
    ls_status status = ls_state_shards_get_state(v->parts, server, ls_payload_bytes(letter.body));
    if (status == LS_OK)
        status = ls_messenger_send(v->post, &letter);
    ls_payload_drop(letter.body);
    return status;
}

static ls_status hear_have(ls_chief *c, int server, const ls_message *letter)
{
    server_seen *seen = &c->seen[server];
    seen->has = letter->numbers[0] == 1;
    LS_TRY(tell_rate(c, server));
    pthread_mutex_lock(&c->mutex);
    int64_t known = c->start_step + c->acknowledged[server];
    pthread_mutex_unlock(&c->mutex);
    if (seen->has && letter->numbers[1] < known)
        return ls_fail(LS_ERR_PEER,
                       "server %d came back with %" PRId64 " gradients applied, but %" PRId64
                       " are known to be: its journal has lost some; begin this job again, with --resume from its last "
                       "checkpoint",
                       server, letter->numbers[1], known);
    if (seen->has) {
        seen->given = true;
        return LS_OK;
    }
    if (!seen->given)
        return give_state(c, server);
    return ls_fail(LS_ERR_PEER,
                   "server %d came back without what it had: give servers a folder for that (--journal, or "
                   "LOCKSTEP_JOURNAL), and begin this job again, with --resume from its last checkpoint",
                   server);
}

static ls_status hear_server(ls_chief *c, const ls_message *letter)
{
    int server = letter->rank - c->served->first_server;
    server_seen *seen = &c->seen[server];
    if (letter->kind == LS_MESSAGE_MET) {
        seen->there = true;
        return ls_server_session_tell(c->served, letter->rank, LS_PS_BEGIN, 0, c->id);
    }
    if (letter->kind == LS_MESSAGE_LOST) {
        *seen = (server_seen){ .given = seen->given, .lost_at = ls_clock_now() };
        ls_log_write(c->served->log, LS_LOG_WARNING, "server %d is lost (%s); the others wait for it to come back",
                     server, letter->text);
    }
    return letter->kind == LS_PS_HAVE ? hear_have(c, server, letter) : LS_OK;
}

/* Handles one message that the messenger's thread did not consume. */
static ls_status hear_letter(ls_chief *c, const ls_message *letter)
{
    c->met[letter->rank] |= letter->kind == LS_MESSAGE_MET;
    if (letter->kind == LS_MESSAGE_REFUSED)
        return ls_fail(LS_ERR_PEER, "process %d does not let the chief in: %s", letter->rank, letter->text);
    if (letter->kind == LS_PS_FAIL && c->failed)
        return LS_OK; /* the first failure is the one reported */
    if (letter->kind == LS_PS_FAIL) {
        ls_status status = ls_server_session_failure(letter);
        int server = letter->rank - c->served->first_server;
        bool serves = ls_server_session_is_server(c->served, letter->rank);
        return ls_fail_within(status, "%s %d", serves ? "server" : "worker", serves ? server : letter->rank);
    }
    if (ls_server_session_is_server(c->served, letter->rank))
        return hear_server(c, letter);
    if (letter->kind == LS_MESSAGE_MET)
        ls_log_write(c->served->log, LS_LOG_INFO, "worker %d is here", letter->rank);
    if (letter->kind == LS_MESSAGE_LOST)
        ls_log_write(c->served->log, LS_LOG_WARNING, "worker %d is lost (%s); the others go on", letter->rank,
                     letter->text);
    return LS_OK;
}

/* Fails if a lost server did not return in time, or never will. */
static ls_status look_for_servers(const ls_chief *c)
{
    const ls_cluster_options *o = &c->served->cluster;
    double limit = o->join_limit > 0 ? o->join_limit : LS_JOIN_LIMIT;
    char why[LS_MESSENGER_WHY];
    for (int i = 0; i < c->served->servers; i++) {
        if (c->seen[i].there)
            continue;
        if (ls_launcher_has_seen_end(o, c->served->first_server + i))
            return ls_fail(LS_ERR_PEER, "server %d %s, and will not be started again", i,
                           c->seen[i].given ? "was lost" : "ended before it was met");
        if (ls_clock_now() - c->seen[i].lost_at <= limit) {
            snprintf(why, sizeof(why), "server %d", i);
            ls_server_session_say_missing(c->served, why, c->seen[i].lost_at);
            continue;
        }
        ls_messenger_why(c->served->post, why);
        return ls_fail(LS_ERR_PEER, "server %d %s within %.3g s (LOCKSTEP_JOIN_LIMIT)%s", i,
                       c->seen[i].given ? "was lost, and did not come back" : "did not come", limit, why);
    }
    return LS_OK;
}

/* Handles the messages that arrive within `seconds`. Keeps whole states in `states`, if not
 * NULL. */
static ls_status hear_letters(ls_chief *c, double seconds, ls_message *states)
{
    ls_message letter;
    bool got = true;
    LS_TRY(ls_messenger_receive(c->served->post, seconds, &letter, &got));
    while (got) {
        int server = letter.rank - c->served->first_server;
        bool whole = letter.kind == LS_PS_PART && letter.numbers[2] == 1 && letter.body && states &&
                     ls_payload_size(letter.body) == ls_state_shards_state_bytes(c->served->parts, server);
        ls_status status = LS_OK;
        if (whole) {
            ls_payload_drop(states[server].body);
            states[server] = letter;
        } else {
            status = hear_letter(c, &letter);
            ls_payload_drop(letter.body);
        }
        LS_TRY(status);
        LS_TRY(ls_messenger_receive(c->served->post, 0, &letter, &got));
    }
    return look_for_servers(c);
}

/* ---- Opening ---- */

static ls_status make_id(char id[LS_RUN_ID], int64_t *run)
{
    unsigned char random[(LS_RUN_ID - 1) / 2];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return ls_fail(LS_ERR_IO, "no random number for the name of this run");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(id + 2 * i, 3, "%02x", random[i]);
    memcpy(run, random, sizeof(*run));
    *run |= 1; /* 0 means unknown */
    return LS_OK;
}

static bool all_have(const ls_chief *c)
{
    bool all = true;
    for (int i = 0; i < c->served->servers; i++)
        all &= c->seen[i].has;
    return all;
}

static ls_status open_chief(ls_chief *c)
{
    ls_server_session *v = c->served;
    const ls_worker_desk desk = { .ask = ask_itself, .done = be_done, .user = c };
    LS_TRY(make_id(c->id, &v->run));
    LS_TRY(ls_worker_make(v, desk, &c->worker));
    LS_TRY(ls_batch_queue_make(LS_MAX_CLUSTER, c->first, give, c, &c->dealer));
    LS_TRY(ls_server_session_open(v, hear, c));
    while (!all_have(c))
        LS_TRY(hear_letters(c, 0.1, NULL));
    return LS_OK;
}

ls_status ls_chief_open(ls_server_session *served, int64_t steps, ls_chief **out)
{
    ls_chief *c = calloc(1, sizeof(*c));
    const ls_job *job = served->job;
    if (!c)
        return ls_fail(LS_ERR_MEMORY, "no memory for the chief of parameter servers");
    *c = (ls_chief){ .served = served,
                     .steps = steps,
                     .start = job->position,
                     .start_run = ls_model_graph(job->model)->step,
                     .first = job->position.epoch * steps + job->position.step,
                     .rate = job->rate };
    pthread_mutex_init(&c->mutex, NULL);
    for (int i = 0; i < LS_MAX_SERVERS; i++)
        c->seen[i].lost_at = ls_clock_now();
    for (size_t i = 0; i < served->options->callback_count; i++)
        c->watched |= served->options->callbacks[i].on_batch_begin || served->options->callbacks[i].on_batch_end;
    *out = c; /* set on failure, too: closing the chief informs the others */
    ls_launcher_report_chief(&served->cluster);
    LS_TRY(ls_job_step(job, &c->start_step));
    return open_chief(c);
}

/* ---- Batches ---- */

void ls_chief_allow(ls_chief *c, int64_t batches)
{
    ls_batch_queue_set_limit(c->dealer, c->first + batches);
}

int64_t ls_chief_stop(ls_chief *c)
{
    return ls_batch_queue_stop(c->dealer) - c->first;
}

static ls_status take_done(ls_chief *c, ls_chief_done *out, bool *got)
{
    pthread_mutex_lock(&c->mutex);
    bool any = c->done_count > 0, no_room = c->no_room;
    if (any) {
        *out = c->done[0];
        memmove(c->done, c->done + 1, --c->done_count * sizeof(*c->done));
        c->finished++;
    }
    pthread_mutex_unlock(&c->mutex);
    *got = any;
    return no_room ? ls_fail(LS_ERR_MEMORY, "no memory for the results of a batch") : LS_OK;
}

/* Sends servers a learning rate that a callback has set. It applies from the next push on. */
static ls_status follow_rate(ls_chief *c)
{
    double rate = c->served->job->rate;
    if (rate == c->rate || (isnan(rate) && isnan(c->rate)))
        return LS_OK;
    c->rate = rate;
    for (int i = 0; i < c->served->servers; i++)
        LS_TRY(tell_rate(c, i));
    return LS_OK;
}

static ls_status next_done(ls_chief *c, ls_chief_done *out)
{
    bool got = false;
    if (c->watched)
        ls_worker_forget(c->worker);
    LS_TRY(follow_rate(c));
    LS_TRY(take_done(c, out, &got));
    while (!got) {
        LS_TRY(hear_letters(c, 0, NULL));
        LS_TRY(ls_worker_step(c->worker, 0.2));
        LS_TRY(take_done(c, out, &got));
    }
    return LS_OK;
}

ls_status ls_chief_next(ls_chief *c, ls_chief_done *out)
{
    ls_status status = next_done(c, out);
    c->failed |= status != LS_OK;
    return status;
}

/* ---- The whole state ---- */

static ls_status ask_for_states(ls_chief *c, ls_message *states, double limit)
{
    double again = 0, end = ls_clock_now() + limit;
    for (int missing = 1; missing > 0;) {
        double now = ls_clock_now();
        if (now > end)
            return ls_fail(LS_ERR_PEER, "the state of %d servers did not come within %.3g s", missing, limit);
        missing = 0;
        for (int i = 0; i < c->served->servers; i++) {
            if (states[i].body)
                continue;
            missing++;
            if (now >= again)
                LS_TRY(ls_messenger_send(c->served->post, &(ls_message){ .rank = c->served->first_server + i,
                                                                         .kind = LS_PS_PULL,
                                                                         .numbers = { -1, -1, 1 } }));
        }
        if (now >= again)
            again = now + 1;
        if (missing > 0)
            LS_TRY(hear_letters(c, 0.2, states));
    }
    return LS_OK;
}

static ls_status put_states(ls_chief *c, const ls_message *states)
{
    /* Averages between two versions belong to neither, and callbacks may run next. */
    ls_worker_forget(c->worker);
    for (int i = 0; i < c->served->servers; i++)
        LS_TRY(ls_state_shards_put_state(c->served->parts, i, ls_payload_bytes(states[i].body)));
    return LS_OK;
}

ls_status ls_chief_settle(ls_chief *c, bool anyway)
{
    ls_message states[LS_MAX_SERVERS] = { { .kind = 0 } };
    int64_t numbers[LS_MESSAGE_NUMBERS];
    ls_position *at = &c->served->job->position;
    ls_status status = LS_OK;
    if (anyway ? !all_have(c) : !ls_batch_queue_is_done(c->dealer))
        status = ls_fail(LS_ERR_INTERNAL, "not all servers have a state, or batches are still being computed");
    if (status == LS_OK)
        status = ask_for_states(c, states, anyway ? RESCUE_LIMIT : INFINITY);
    if (status == LS_OK)
        status = put_states(c, states);
    for (int i = 0; i < c->served->servers; i++)
        ls_payload_drop(states[i].body);
    LS_TRY(status);
    find_batch(c, c->first + c->finished, numbers);
    ls_model_graph(c->served->job->model)->step = (uint64_t)numbers[5];
    if (c->served->options->steps_per_epoch > 0) {
        at->pass = numbers[3];
        at->batch = numbers[4];
    }
    return LS_OK;
}

/* ---- Closing ---- */

static ls_status send_final(ls_chief *c)
{
    ls_server_session *v = c->served;
    for (int i = 0; i < v->servers; i++) {
        ls_message letter = { .kind = LS_PS_FINAL, .numbers = { i } };
        LS_TRY(ls_payload_make(ls_state_shards_state_bytes(v->parts, i), &letter.body));
        ls_status status = ls_state_shards_get_state(v->parts, i, ls_payload_bytes(letter.body));
        for (int r = 1; r < v->cluster.size && status == LS_OK; r++) {
            letter.rank = r;
            status = ls_messenger_send(v->post, &letter);
        }
        ls_payload_drop(letter.body);
        LS_TRY(status);
    }
    return LS_OK;
}

/* Gives processes that have not connected yet a moment to learn that the job is over. */
static void wait_for_late_ones(ls_chief *c)
{
    const ls_cluster_options *o = &c->served->cluster;
    double end = ls_clock_now() + LATE_LIMIT;
    for (int missing = 1; missing > 0 && ls_clock_now() < end;) {
        missing = 0;
        for (int r = 1; r < (o->begin > 0 ? o->begin : o->size); r++)
            missing += !c->met[r];
        if (missing > 0 && hear_letters(c, 0.05, NULL) != LS_OK)
            ls_clear_error();
    }
}

void ls_chief_close(ls_chief *c, ls_status status, const char *why)
{
    if (!c)
        return;
    ls_server_session *v = c->served;
    if (v->post)
        wait_for_late_ones(c);
    if (v->post && status == LS_OK && send_final(c) != LS_OK)
        ls_clear_error();
    for (int r = 1; v->post && r < v->cluster.size; r++)
        if (ls_server_session_tell(v, r, LS_PS_OVER, status, why) != LS_OK)
            ls_clear_error();
    ls_server_session_close(v);
    ls_worker_free(c->worker);
    ls_batch_queue_free(c->dealer);
    for (size_t i = 0; i < c->done_count; i++)
        ls_payload_drop(c->done[i].results);
    free(c->done);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}
