/* Which connections a worker makes and accepts (handshake.h). */
#include "fabric/mesh/handshake.h"

#include <string.h>

#include "base/text.h"

#define CALL_AGAIN  0.01 /* seconds until missing workers are called again */
#define ASK_HIGHER  0.2  /* seconds between calls that ask higher ranks whether the job runs */
#define LOG_REFUSED 10.0 /* seconds between log lines about refused callers */
#define LOOK_AGAIN  2.0  /* seconds until a joining worker asks for the members again */

/* ---- Calling and answering ---- */

static bool is_connected(const ls_handshake *hs, int rank, int channel)
{
    return channel ? hs->mesh->links[rank].has_heartbeat : hs->mesh->links[rank].connection != NULL;
}

static ls_hello *call_to(const ls_handshake *hs, int rank, int channel)
{
    return &hs->hellos.calls[channel * hs->options->size + rank];
}

static void make_hello(const ls_handshake *hs, ls_hello *h, int channel)
{
    const ls_mesh *mesh = hs->mesh;
    ls_hello_say(&hs->hellos, h);
    h->out.generation = mesh->peers.generation;
    h->out.sequence = (uint64_t)channel;
    h->out.hash[0] = hs->mark;
    h->out.hash[1] = mesh->begun ? mesh->peers.job : 0;
    h->out.requests = hs->joins ? LS_HELLO_JOINS : 0;
    h->out.process = hs->process;
    if (!mesh->begun)
        return;
    h->out.tag = mesh->since[mesh->peers.rank];
    ls_mesh_put_members(mesh, &h->out);
}

/* Reconnects to lower ranks, first for data, then for heartbeats. */
static bool should_reconnect(const ls_handshake *hs, int rank, int channel)
{
    const ls_mesh *mesh = hs->mesh;
    return rank < hs->options->rank && ls_peers_has(&mesh->peers, rank) &&
           mesh->lost[rank] == (channel ? LS_NOT_LOST : LS_LOST_BROKEN);
}

/* Higher ranks call themselves; this worker calls them now and then (asks) to learn whether the job
 * has begun. */
static bool should_call(const ls_handshake *hs, int rank, int channel, bool asks)
{
    if (hs->mesh->begun)
        return should_reconnect(hs, rank, channel);
    if (rank == hs->options->rank || hs->met)
        return false;
    if (hs->joins)
        return ls_has_bit(hs->members, rank);
    return asks || (rank < hs->options->rank && ls_handshake_begins(hs, rank));
}

/* Heartbeats come after the data, so that both end together. */
static ls_status call_on_all(ls_handshake *hs)
{
    double now = hs->mesh->table->now(hs->mesh->transport);
    bool asks = !hs->mesh->begun && now - hs->asked >= ASK_HIGHER;
    if (asks)
        hs->asked = now;
    for (int channel = 0; channel < hs->channels; channel++)
        for (int r = 0; r < hs->options->size; r++) {
            ls_hello *h = call_to(hs, r, channel);
            if (h->at || is_connected(hs, r, channel) || (channel > 0 && !is_connected(hs, r, 0)) ||
                !should_call(hs, r, channel, asks))
                continue;
            LS_TRY(ls_hello_call(&hs->hellos, h, r));
            if (!h->at)
                continue;
            make_hello(hs, h, channel);
            if (hs->mesh->begun)
                h->out.requests = LS_HELLO_RECONNECTS;
        }
    return LS_OK;
}

void ls_handshake_learn(ls_handshake *hs, const ls_packet *in)
{
    bool first = !hs->joins; /* earlier connections are not to members */
    hs->joins = true;
    hs->met = false;
    hs->generation = in->generation;
    hs->since = hs->mesh->table->now(hs->mesh->transport);
    memcpy(hs->members, in->members, sizeof(hs->members));
    for (int r = 0; r < hs->options->size; r++)
        if (first || !ls_has_bit(hs->members, r))
            ls_mesh_hang_up(hs->mesh, r);
}

static void learn(ls_handshake *hs, const ls_packet *in)
{
    if (in->tag == 0 || in->tag > UINT32_MAX)
        return;
    hs->mesh->since[in->from] = (uint32_t)in->tag;
    hs->mesh->peers.job = in->hash[1];
    if (!hs->joins || in->generation > hs->generation)
        ls_handshake_learn(hs, in);
}

static void meet(ls_handshake *hs, ls_hello *h)
{
    int rank = (int)h->in.from;
    if (h->out.sequence == 0) {
        ls_mesh_meet(hs->mesh, rank, h->at);
        hs->marks[rank] = h->in.hash[0];
        hs->mesh->processes[rank] = h->in.process;
        ls_set_bit(hs->seen, rank);
    } else {
        ls_mesh_add_heartbeat(hs->mesh, rank, h->at);
    }
    *h = (ls_hello){ 0 };
}

/* Heartbeats must come from the process that sends the data. */
static bool fits(const ls_handshake *hs, const ls_hello *h, int rank, int channel)
{
    return channel == 0 || (is_connected(hs, rank, 0) && hs->marks[rank] == h->in.hash[0]);
}

/* Returns whether this is the process met before, in the same generation. */
static bool is_same_member(const ls_handshake *hs, const ls_hello *h)
{
    int rank = (int)h->in.from;
    return ls_peers_has(&hs->mesh->peers, rank) && h->in.generation == hs->mesh->peers.generation && h->in.tag > 0 &&
           h->in.hash[0] == hs->marks[rank];
}

static void handle_reconnected(ls_handshake *hs, ls_hello *h, int rank, int channel)
{
    bool refused = (h->in.requests & LS_HELLO_REFUSES) != 0;
    if (!refused && is_same_member(hs, h) && should_reconnect(hs, rank, channel) && !is_connected(hs, rank, channel))
        meet(hs, h);
    else
        ls_hello_forget(&hs->hellos, h);
}

/* A failed call is repeated, as is one to a higher rank that has not begun. */
static ls_status continue_call(ls_handshake *hs, int rank, int channel)
{
    ls_hello *h = call_to(hs, rank, channel);
    bool done;
    if (ls_hello_continue(&hs->hellos, h, rank, &done) != LS_OK) {
        snprintf(hs->why, sizeof(hs->why), "%s", ls_last_error());
        ls_hello_forget(&hs->hellos, h);
    } else if (done && hs->mesh->begun) {
        handle_reconnected(hs, h, rank, channel);
    } else if (done) {
        LS_TRY(ls_hello_compare(&hs->hellos, h));
        learn(hs, &h->in);
        bool wanted = hs->joins ? h->in.tag > 0 && ls_has_bit(hs->members, rank)
                                : rank < hs->options->rank && ls_handshake_begins(hs, hs->options->rank);
        bool refused = (h->in.requests & LS_HELLO_REFUSES) != 0;
        if (wanted && refused && channel == 0)
            snprintf(hs->why, sizeof(hs->why), "worker %d is already connected to another worker %d", rank,
                     hs->options->rank);
        if (wanted && !refused && !is_connected(hs, rank, channel) && fits(hs, h, rank, channel))
            meet(hs, h);
        else
            ls_hello_forget(&hs->hellos, h);
    }
    return LS_OK;
}

/* A member that left or is dead cannot reconnect. */
static bool may_return(const ls_handshake *hs, int rank)
{
    ls_absence how = hs->mesh->lost[rank];
    return how != LS_LOST_LEFT && how != LS_LOST_DEAD;
}

/* The peer has lost this connection, even if this side has not noticed. */
static void drop_broken(ls_handshake *hs, int rank)
{
    ls_mesh_lose(hs->mesh, rank, LS_LOST_BROKEN, "its connection broke");
    ls_mesh_hang_up(hs->mesh, rank);
}

typedef enum decision { ACCEPT, WAIT, REFUSE } decision;

static decision classify_caller(const ls_handshake *hs, const ls_hello *h)
{
    int from = (int)h->in.from, channel = h->in.sequence == 1;
    if (from == hs->options->rank || from >= hs->options->size)
        return REFUSE;
    if (h->in.requests & LS_HELLO_RECONNECTS)
        return hs->mesh->begun && is_same_member(hs, h) && (channel ? !hs->mesh->lost[from] : may_return(hs, from))
                   ? ACCEPT
                   : REFUSE;
    if (hs->mesh->begun && (ls_peers_has(&hs->mesh->peers, from) || is_connected(hs, from, channel)))
        return WAIT;
    if (hs->mesh->begun)
        return fits(hs, h, from, channel) ? ACCEPT : REFUSE;
    return from > hs->options->rank && ls_handshake_begins(hs, from) && !hs->joins && !hs->met &&
                   !is_connected(hs, from, channel) && fits(hs, h, from, channel) && !(h->in.requests & LS_HELLO_JOINS)
               ? ACCEPT
               : REFUSE;
}

/* Records that two processes have one rank, in case the workers do not meet in time. */
static void note_refused(ls_handshake *hs, const ls_hello *h)
{
    int from = (int)h->in.from;
    if (!hs->mesh->begun && from < hs->options->size && is_connected(hs, from, 0) && hs->marks[from] != h->in.hash[0])
        snprintf(hs->why, sizeof(hs->why), "two processes have the rank %d", from);
}

/* Sends HELLO before comparing, so that the other side sees the difference, too. A mismatch ends
 * only the connection if the job runs, else the start of the job. */
static ls_status continue_caller(ls_handshake *hs, int index, bool *gone)
{
    ls_hello *h = &hs->hellos.callers[index];
    bool heard = false;
    *gone = ls_hello_hear(&hs->hellos, h, &heard) != LS_OK;
    ls_status status = LS_OK;
    if (heard && h->speaks && hs->mesh->begun != (h->out.tag > 0)) {
        *gone = true; /* the job has begun: the HELLO is outdated */
    } else if (heard) {
        decision how = classify_caller(hs, h);
        if (how == WAIT)
            return LS_OK;
        if (!h->speaks) {
            make_hello(hs, h, h->in.sequence == 1);
            h->out.requests = how == REFUSE ? LS_HELLO_REFUSES : 0;
            if (how == REFUSE)
                note_refused(hs, h);
        }
        *gone = ls_hello_send(&hs->hellos, h);
        if (*gone)
            status = ls_hello_compare(&hs->hellos, h);
        if (*gone && status == LS_OK && how == ACCEPT && h->out.requests == 0) {
            if (h->in.requests & LS_HELLO_RECONNECTS && h->in.sequence == 0)
                drop_broken(hs, (int)h->in.from);
            meet(hs, h);
        }
    }
    if (*gone)
        ls_hello_drop_caller(&hs->hellos, index);
    if (status == LS_OK || !hs->mesh->begun)
        return status;
    if (hs->mesh->log)
        ls_log_write(hs->mesh->log, LS_LOG_WARNING, "refused a worker that wanted to join: %s", ls_last_error());
    return LS_OK;
}

static ls_status continue_all(ls_handshake *hs)
{
    LS_TRY(ls_hello_answer(&hs->hellos));
    for (int channel = 0; channel < hs->channels; channel++)
        for (int r = 0; r < hs->options->size; r++) {
            if (hs->mesh->begun && !should_call(hs, r, channel, false))
                ls_hello_forget(&hs->hellos, call_to(hs, r, channel)); /* no longer needed */
            else if (call_to(hs, r, channel)->at)
                LS_TRY(continue_call(hs, r, channel));
        }
    for (int i = 0; i < hs->hellos.caller_count;) {
        bool gone = false;
        LS_TRY(continue_caller(hs, i, &gone));
        i += !gone;
    }
    return LS_OK;
}

/* Logs refused callers of a running job, which know the reason themselves. */
static void log_refused(ls_handshake *hs)
{
    char why[400];
    double now = hs->mesh->table->now(hs->mesh->transport);
    if (!hs->mesh->table->refused || !hs->mesh->log || now < hs->log_refused_at ||
        !hs->mesh->table->refused(hs->mesh->transport, why, sizeof(why)))
        return;
    hs->log_refused_at = now + LOG_REFUSED;
    ls_log_write(hs->mesh->log, LS_LOG_WARNING, "refused connections to worker %d: %s", hs->options->rank, why);
}

ls_status ls_handshake_visit(ls_handshake *hs)
{
    if (!hs)
        return LS_OK;
    log_refused(hs);
    LS_TRY(call_on_all(hs));
    return continue_all(hs);
}

/* ---- Completeness ---- */

bool ls_handshake_has_met(const ls_handshake *hs, const uint64_t *members)
{
    for (int channel = 0; channel < hs->channels; channel++)
        for (int r = 0; r < hs->options->size; r++)
            if (r != hs->options->rank && ls_has_bit(members, r) && !is_connected(hs, r, channel))
                return false;
    return true;
}

bool ls_handshake_is_complete(const ls_handshake *hs)
{
    return hs->joins ? ls_handshake_has_met(hs, hs->members)
                     : ls_handshake_begins(hs, hs->options->rank) && ls_handshake_has_met(hs, hs->begins);
}

/* never: lists only workers never met; others may have left after waiting too long for these. */
static int list_missing(const ls_handshake *hs, bool never, ls_text *names)
{
    int missing = 0;
    for (int r = 0; r < hs->options->size; r++) {
        bool needed = hs->joins ? ls_has_bit(hs->members, r) : ls_handshake_begins(hs, r);
        if (r != hs->options->rank && needed && !is_connected(hs, r, 0) && !(never && ls_has_bit(hs->seen, r)))
            ls_text_add(names, "%s%d", missing++ ? ", " : "", r);
    }
    return missing;
}

static int find_missing(const ls_handshake *hs, ls_text *names)
{
    int missing = list_missing(hs, true, names);
    return missing > 0 ? missing : list_missing(hs, false, names);
}

static void log_missing(ls_handshake *hs)
{
    ls_text names = { 0 }, whom = { 0 };
    double now = hs->mesh->table->now(hs->mesh->transport), since = hs->end - hs->mesh->join_limit;
    if (!hs->mesh->log || !ls_log_wait_is_due(&hs->log_at, since, now))
        return;
    int missing = find_missing(hs, &names), size = hs->options->size;
    if (missing > 0)
        ls_text_add(&whom, "worker%s %s of %d", missing == 1 ? "" : "s", ls_text_get(&names), size);
    else /* others miss a worker, or met another process */
        ls_text_add(&whom, "all %d workers to connect", size);
    ls_log_write(hs->mesh->log, LS_LOG_WARNING,
                 "worker %d of job \"%s\" has waited %.0f of %g s for %s (LOCKSTEP_JOIN_LIMIT)", hs->options->rank,
                 hs->options->job, now - since, hs->mesh->join_limit, ls_text_get(&whom));
    ls_text_free(&whom);
    ls_text_free(&names);
}

static ls_status fail_missing(const ls_handshake *hs)
{
    ls_text names = { 0 };
    char refused[400] = "";
    int missing = find_missing(hs, &names);
    if (hs->mesh->table->refused)
        hs->mesh->table->refused(hs->mesh->transport, refused, sizeof(refused));
    /* With none missing here, another worker misses one, or met another process of a rank. */
    const char *who = missing == 0 ? "all workers" : missing == 1 ? "worker " : "workers ";
    ls_status status =
        ls_fail(LS_ERR_PEER,
                "%s%s of %d did not %s within %g s (this is worker %d of job \"%s\"%s%s; LOCKSTEP_JOIN_LIMIT sets this "
                "limit)%s%s%s%s",
                who, ls_text_get(&names), hs->options->size, missing ? "connect" : "connect to each other",
                hs->mesh->join_limit, hs->options->rank, hs->options->job,
                hs->options->rendezvous[0] ? ", rendezvous " : "", hs->options->rendezvous,
                hs->why[0] ? "; the last call: " : "", hs->why, refused[0] ? "; refused connections: " : "", refused);
    ls_text_free(&names);
    return status;
}

/* Waits only a moment if workers must be called again. */
static ls_status wait_for_callers(ls_handshake *hs)
{
    int n = 0;
    bool complete = true;
    double now = hs->mesh->table->now(hs->mesh->transport), left = hs->end - now;
    if (left <= 0)
        return fail_missing(hs);
    log_missing(hs);
    hs->wants[n++] = (ls_want){ .connection = NULL, .read = true };
    n = ls_hellos_list(&hs->hellos, hs->wants, n);
    for (int channel = 0; channel < hs->channels; channel++)
        for (int r = 0; r < hs->options->size; r++)
            complete &=
                call_to(hs, r, channel)->at || is_connected(hs, r, channel) || !should_call(hs, r, channel, false);
    for (int r = 0; r < hs->options->size; r++)
        if (hs->mesh->links[r].connection && !hs->joins)
            hs->wants[n++] = (ls_want){ .connection = hs->mesh->links[r].connection,
                                        .read = true,
                                        .write = !ls_mesh_is_sent(&hs->mesh->links[r]) };
    double limit = complete ? LS_BEAT_EVERY : CALL_AGAIN;
    LS_TRY(ls_mesh_beat(hs->mesh)); /* workers that have met all count silence already */
    return hs->mesh->table->wait(hs->mesh->transport, hs->wants, n, left < limit ? left : limit);
}

void ls_handshake_look_again(ls_handshake *hs)
{
    double now = hs->mesh->table->now(hs->mesh->transport);
    if (!hs->joins || now - hs->since < LOOK_AGAIN)
        return;
    hs->joins = false;
    hs->generation = 0;
    for (int r = 0; r < hs->options->size; r++)
        ls_mesh_hang_up(hs->mesh, r);
}

ls_status ls_handshake_turn(ls_handshake *hs)
{
    LS_TRY(call_on_all(hs));
    LS_TRY(wait_for_callers(hs));
    return continue_all(hs);
}
