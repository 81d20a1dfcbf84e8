/* How workers connect. At the start each worker calls all lower ranks. Both sides send HELLO and
 * compare.
 *
 * Two processes may have the same rank for a moment, after a restart or by mistake. So each process
 * draws a random number for each attempt to meet: its mark. A worker that has met all others sends
 * MET, with a hash of all marks, to the first worker. When all remaining workers have met the same
 * processes, the first sends BEGIN, and each worker forwards it before anything else. A worker lost
 * between MET and BEGIN counts as lost by a job that has begun; if it is the first, the others send
 * MET to the next one. If a worker is lost before MET, or marks differ, all disconnect, draw new
 * marks and meet again, until the join limit is over. So each mark belongs to one set of processes
 * (the company), and one company begins one job.
 *
 * A worker that comes later, or comes back, learns the members from a HELLO. It calls all of them;
 * they answer between two collectives. Then it may ask to join (late_join.c).
 *
 * When a connection between two members breaks, the higher rank calls the lower one while the
 * members regroup. Mark and generation must be unchanged. So only the same process can reconnect,
 * and only while neither side has continued without the other. */
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "fabric/start/launcher.h"
#include "fabric/mesh/mesh.h"

#define CALL_AGAIN   0.01 /* seconds until missing workers are called again */
#define ASK_HIGHER   0.2  /* seconds between calls that ask higher ranks whether the job runs */
#define TELL_REFUSED 10.0 /* seconds between two log lines about refused callers */
#define MEET_AGAIN   0.5  /* seconds for the others to send MET after a loss before BEGIN */
#define SAY_MISSING  3.0  /* seconds until the log names the missing workers */
#define SAY_AGAIN    10.0 /* seconds between two such log lines */
#define LOOK_AGAIN   2.0  /* seconds after which a joining worker asks for the members again */

struct ls_handshake {
    ls_mesh *mesh;
    ls_cluster_options copy;
    const ls_cluster_options *options;
    double end;       /* deadline for the workers that begin the job */
    double say_at;    /* when the log next names the missing workers */
    double asked;     /* when higher ranks were last called */
    double tell_at;   /* when refused callers may be logged again */
    ls_hellos hellos; /* calls: data connections by rank, then heartbeat connections by rank */
    int lines;        /* connections to each worker: 2 with heartbeats, else 1 */
    ls_want *wants;
    char why[300]; /* why the last call failed or was refused */
    ls_process_id process;
    uint64_t mark;                      /* changes with each attempt to meet */
    uint64_t *marks;                    /* by rank: marks of workers met */
    uint64_t seen[LS_MAX_CLUSTER / 64]; /* bit set: workers met at least once */
    bool met;                           /* all workers are met */
    uint64_t company[2];                /* hash of the ranks and marks of all */
    int told;                           /* rank that MET was sent to; own rank: none */
    double lost_at;                     /* when a worker was lost after MET; 0: none */
    ls_frame begin;                     /* kind 0: not received */

    bool chief;                           /* the launcher knows that this worker is chief */
    int launcher;                         /* descriptor with the ranks that ended; -1: none */
    double gone_at;                       /* when the launcher first reported an end; 0: not yet */
    uint64_t begins[LS_MAX_CLUSTER / 64]; /* bit set: workers that begin the job */
    bool joins;                           /* the job has begun without this worker */
    uint64_t members[LS_MAX_CLUSTER / 64];
    uint32_t generation;
    double since; /* when `members` was learnt */
};

/* ---- Calling and answering ---- */

static bool begins(const ls_handshake *d, int rank)
{
    return ls_has_bit(d->begins, rank);
}

/* Returns the worker that sends BEGIN: the first that is not lost. */
static int first_of(const ls_handshake *d)
{
    const ls_peers *p = &d->mesh->peers;
    int i = 0;
    while (i < p->count - 1 && d->mesh->lost[p->members[i]])
        i++;
    return p->members[i];
}

static bool has_line(const ls_handshake *d, int rank, int line)
{
    return line ? d->mesh->links[rank].lives : d->mesh->links[rank].line != NULL;
}

static ls_hello *call_to(const ls_handshake *d, int rank, int line)
{
    return &d->hellos.calls[line * d->options->size + rank];
}

static void say(const ls_handshake *d, ls_hello *h, int line)
{
    const ls_mesh *mesh = d->mesh;
    ls_hello_say(&d->hellos, h);
    h->out.generation = mesh->peers.generation;
    h->out.sequence = (uint64_t)line;
    h->out.hash[0] = d->mark;
    h->out.hash[1] = mesh->begun ? mesh->peers.job : 0;
    h->out.requests = d->joins ? LS_HELLO_JOINS : 0;
    h->out.process = d->process;
    if (!mesh->begun)
        return;
    h->out.tag = mesh->since[mesh->peers.rank];
    ls_mesh_put_members(mesh, &h->out);
}

/* Returns whether to reconnect to a member of lower rank: first for data, then for heartbeats. */
static bool should_reconnect(const ls_handshake *d, int rank, int line)
{
    const ls_mesh *mesh = d->mesh;
    return rank < d->options->rank && ls_peers_has(&mesh->peers, rank) &&
           mesh->lost[rank] == (line ? LS_NOT_LOST : LS_LOST_BROKEN);
}

/* Lower ranks are always called. Higher ranks call themselves; this worker calls them now and then
 * (asks) to learn whether the job has begun. */
static bool should_call(const ls_handshake *d, int rank, int line, bool asks)
{
    if (d->mesh->begun)
        return should_reconnect(d, rank, line);
    if (rank == d->options->rank || d->met)
        return false;
    if (d->joins)
        return ls_has_bit(d->members, rank);
    return asks || (rank < d->options->rank && begins(d, rank));
}

/* Calls for heartbeats only after the data connection exists, so that both end together. */
static ls_status call_on_all(ls_handshake *d)
{
    double now = d->mesh->table->now(d->mesh->transport);
    bool asks = !d->mesh->begun && now - d->asked >= ASK_HIGHER;
    if (asks)
        d->asked = now;
    for (int line = 0; line < d->lines; line++)
        for (int r = 0; r < d->options->size; r++) {
            ls_hello *h = call_to(d, r, line);
            if (h->at || has_line(d, r, line) || (line > 0 && !has_line(d, r, 0)) || !should_call(d, r, line, asks))
                continue;
            LS_TRY(ls_hello_call(&d->hellos, h, r));
            if (!h->at)
                continue;
            say(d, h, line);
            if (d->mesh->begun)
                h->out.requests = LS_HELLO_RECONNECTS;
        }
    return LS_OK;
}

void ls_handshake_learn(ls_handshake *d, const ls_frame *in)
{
    bool first = !d->joins; /* earlier connections are not to members */
    d->joins = true;
    d->met = false;
    d->generation = in->generation;
    d->since = d->mesh->table->now(d->mesh->transport);
    memcpy(d->members, in->members, sizeof(d->members));
    for (int r = 0; r < d->options->size; r++)
        if (first || !ls_has_bit(d->members, r))
            ls_mesh_hang_up(d->mesh, r);
}

/* Learns about the running job from a member's HELLO. */
static void learn(ls_handshake *d, const ls_frame *in)
{
    if (in->tag == 0 || in->tag > UINT32_MAX)
        return;
    d->mesh->since[in->from] = (uint32_t)in->tag;
    d->mesh->peers.job = in->hash[1];
    if (!d->joins || in->generation > d->generation)
        ls_handshake_learn(d, in);
}

static void meet(ls_handshake *d, ls_hello *h)
{
    int rank = (int)h->in.from;
    if (h->out.sequence == 0) {
        ls_mesh_meet(d->mesh, rank, h->at);
        d->marks[rank] = h->in.hash[0];
        d->mesh->processes[rank] = h->in.process;
        ls_set_bit(d->seen, rank);
    } else {
        ls_mesh_hear_life(d->mesh, rank, h->at);
    }
    *h = (ls_hello){ 0 };
}

/* Returns whether a heartbeat connection is from the same process as the data connection. */
static bool fits(const ls_handshake *d, const ls_hello *h, int rank, int line)
{
    return line == 0 || (has_line(d, rank, 0) && d->marks[rank] == h->in.hash[0]);
}

/* Returns whether a HELLO comes from the process that this worker had met, in the same
 * generation. */
static bool is_same_member(const ls_handshake *d, const ls_hello *h)
{
    int rank = (int)h->in.from;
    return ls_peers_has(&d->mesh->peers, rank) && h->in.generation == d->mesh->peers.generation && h->in.tag > 0 &&
           h->in.hash[0] == d->marks[rank];
}

/* Handles a member's answer to a reconnecting call. */
static void hear_reconnected(ls_handshake *d, ls_hello *h, int rank, int line)
{
    bool refused = (h->in.requests & LS_HELLO_REFUSES) != 0;
    if (!refused && is_same_member(d, h) && should_reconnect(d, rank, line) && !has_line(d, rank, line))
        meet(d, h);
    else
        ls_hello_forget(&d->hellos, h);
}

/* Handles an outgoing call. A failed one is repeated, as is one to a higher rank that has not
 * begun. */
static ls_status hear_called(ls_handshake *d, int rank, int line)
{
    ls_hello *h = call_to(d, rank, line);
    bool heard, spoken = ls_hello_speak(&d->hellos, h);
    if (ls_hello_listen(&d->hellos, h, &heard) != LS_OK) {
        snprintf(d->why, sizeof(d->why), "%s", ls_last_error());
        ls_hello_forget(&d->hellos, h);
    } else if (heard && h->in.from != (uint32_t)rank) {
        ls_hello_forget(&d->hellos, h);
    } else if (heard && spoken && d->mesh->begun) {
        hear_reconnected(d, h, rank, line);
    } else if (heard && spoken) {
        LS_TRY(ls_hello_compare(&d->hellos, h));
        learn(d, &h->in);
        bool wanted = d->joins ? h->in.tag > 0 && ls_has_bit(d->members, rank)
                               : rank < d->options->rank && begins(d, d->options->rank);
        bool refused = (h->in.requests & LS_HELLO_REFUSES) != 0;
        if (wanted && refused && line == 0)
            snprintf(d->why, sizeof(d->why), "worker %d has met a worker %d already", rank, d->options->rank);
        if (wanted && !refused && !has_line(d, rank, line) && fits(d, h, rank, line))
            meet(d, h);
        else
            ls_hello_forget(&d->hellos, h);
    }
    return LS_OK;
}

/* Returns whether the connection to a member may be replaced: not if it left or is dead. */
static bool may_return(const ls_handshake *d, int rank)
{
    ls_absence how = d->mesh->lost[rank];
    return how != LS_LOST_LEFT && how != LS_LOST_DEAD;
}

/* The peer has lost this connection, whether or not this side has noticed. */
static void drop_broken(ls_handshake *d, int rank)
{
    ls_mesh_lose(d->mesh, rank, LS_LOST_BROKEN, "its connection broke");
    ls_mesh_hang_up(d->mesh, rank);
}

/* Whether to accept a caller: now, later or not at all. */
typedef enum welcome { WELCOME, LATER, NEVER } welcome;

static welcome judge_caller(const ls_handshake *d, const ls_hello *h)
{
    int from = (int)h->in.from, line = h->in.sequence == 1;
    if (from == d->options->rank || from >= d->options->size)
        return NEVER;
    if (h->in.requests & LS_HELLO_RECONNECTS)
        return d->mesh->begun && is_same_member(d, h) && (line ? !d->mesh->lost[from] : may_return(d, from)) ? WELCOME
                                                                                                             : NEVER;
    if (d->mesh->begun && (ls_peers_has(&d->mesh->peers, from) || has_line(d, from, line)))
        return LATER;
    if (d->mesh->begun)
        return fits(d, h, from, line) ? WELCOME : NEVER;
    return from > d->options->rank && begins(d, from) && !d->joins && !d->met && !has_line(d, from, line) &&
                   fits(d, h, from, line) && !(h->in.requests & LS_HELLO_JOINS)
               ? WELCOME
               : NEVER;
}

/* Records that two processes have the same rank, for the message if the workers do not meet in
 * time. */
static void note_refused(ls_handshake *d, const ls_hello *h)
{
    int from = (int)h->in.from;
    if (!d->mesh->begun && from < d->options->size && has_line(d, from, 0) && d->marks[from] != h->in.hash[0])
        snprintf(d->why, sizeof(d->why), "two processes call themselves worker %d", from);
}

/* Handles a caller. Sends HELLO before comparing, so that the other side sees the difference, too.
 * A mismatch ends only this connection if the job runs, but fails the start of a job. */
static ls_status hear_caller(ls_handshake *d, int index, bool *gone)
{
    ls_hello *h = &d->hellos.callers[index];
    bool heard = false;
    *gone = ls_hello_listen(&d->hellos, h, &heard) != LS_OK;
    ls_status status = LS_OK;
    if (heard && h->speaks && d->mesh->begun != (h->out.tag > 0)) {
        *gone = true; /* the job has begun since: the HELLO sent is outdated */
    } else if (heard) {
        welcome how = judge_caller(d, h);
        if (how == LATER)
            return LS_OK;
        if (!h->speaks) {
            say(d, h, h->in.sequence == 1);
            h->out.requests = how == NEVER ? LS_HELLO_REFUSES : 0;
            if (how == NEVER)
                note_refused(d, h);
        }
        *gone = ls_hello_speak(&d->hellos, h);
        if (*gone)
            status = ls_hello_compare(&d->hellos, h);
        if (*gone && status == LS_OK && how == WELCOME && h->out.requests == 0) {
            if (h->in.requests & LS_HELLO_RECONNECTS && h->in.sequence == 0)
                drop_broken(d, (int)h->in.from);
            meet(d, h);
        }
    }
    if (*gone)
        ls_hello_drop_caller(&d->hellos, index);
    if (status == LS_OK || !d->mesh->begun)
        return status;
    if (d->mesh->log)
        ls_log_write(d->mesh->log, LS_LOG_WARNING, "a worker that came later was sent away: %s", ls_last_error());
    return LS_OK;
}

static ls_status hear_all(ls_handshake *d)
{
    LS_TRY(ls_hello_answer(&d->hellos));
    for (int line = 0; line < d->lines; line++)
        for (int r = 0; r < d->options->size; r++) {
            if (d->mesh->begun && !should_call(d, r, line, false))
                ls_hello_forget(&d->hellos, call_to(d, r, line)); /* its answer is not needed any more */
            else if (call_to(d, r, line)->at)
                LS_TRY(hear_called(d, r, line));
        }
    for (int i = 0; i < d->hellos.caller_count;) {
        bool gone = false;
        LS_TRY(hear_caller(d, i, &gone));
        i += !gone;
    }
    return LS_OK;
}

/* Logs refused callers of a running job: the first at once, later ones together. The callers
 * themselves know the reason. */
static void tell_refused(ls_handshake *d)
{
    char why[400];
    double now = d->mesh->table->now(d->mesh->transport);
    if (!d->mesh->table->refused || !d->mesh->log || now < d->tell_at ||
        !d->mesh->table->refused(d->mesh->transport, why, sizeof(why)))
        return;
    d->tell_at = now + TELL_REFUSED;
    ls_log_write(d->mesh->log, LS_LOG_WARNING, "at the door of worker %d: %s", d->options->rank, why);
}

ls_status ls_handshake_visit(ls_handshake *d)
{
    if (!d)
        return LS_OK;
    tell_refused(d);
    LS_TRY(call_on_all(d));
    return hear_all(d);
}

/* ---- Completeness ---- */

bool ls_handshake_has_met(const ls_handshake *d, const uint64_t *members)
{
    for (int line = 0; line < d->lines; line++)
        for (int r = 0; r < d->options->size; r++)
            if (r != d->options->rank && ls_has_bit(members, r) && !has_line(d, r, line))
                return false;
    return true;
}

static bool is_complete(const ls_handshake *d)
{
    return d->joins ? ls_handshake_has_met(d, d->members)
                    : begins(d, d->options->rank) && ls_handshake_has_met(d, d->begins);
}

/* Adds workers that are not connected to `names`. never: only those never met; others may have left
 * after waiting too long for these. */
static int list_missing(const ls_handshake *d, bool never, ls_text *names)
{
    int missing = 0;
    for (int r = 0; r < d->options->size; r++) {
        bool needed = d->joins ? ls_has_bit(d->members, r) : begins(d, r);
        if (r != d->options->rank && needed && !has_line(d, r, 0) && !(never && ls_has_bit(d->seen, r)))
            ls_text_add(names, "%s%d", missing++ ? ", " : "", r);
    }
    return missing;
}

/* Lists workers never met or, if all were met once, those not connected now. */
static int find_missing(const ls_handshake *d, ls_text *names)
{
    int missing = list_missing(d, true, names);
    return missing > 0 ? missing : list_missing(d, false, names);
}

static void say_missing(ls_handshake *d)
{
    ls_text names = { 0 }, whom = { 0 };
    double now = d->mesh->table->now(d->mesh->transport);
    if (now < d->say_at || !d->mesh->log)
        return;
    d->say_at = now + SAY_AGAIN;
    int missing = find_missing(d, &names), size = d->options->size;
    if (missing > 0)
        ls_text_add(&whom, "worker%s %s of %d", missing == 1 ? "" : "s", ls_text_get(&names), size);
    else /* others miss a worker, or have met another process of a rank */
        ls_text_add(&whom, "all %d workers to meet", size);
    ls_log_write(d->mesh->log, LS_LOG_WARNING,
                 "worker %d of job \"%s\" has waited %.0f of %g s for %s (LOCKSTEP_JOIN_LIMIT)", d->options->rank,
                 d->options->job, d->mesh->join_limit - (d->end - now), d->mesh->join_limit, ls_text_get(&whom));
    ls_text_free(&whom);
    ls_text_free(&names);
}

static ls_status name_missing(const ls_handshake *d)
{
    ls_text names = { 0 };
    char strangers[400] = "";
    int missing = find_missing(d, &names);
    if (d->mesh->table->refused)
        d->mesh->table->refused(d->mesh->transport, strangers, sizeof(strangers));
    /* With none missing here, another worker misses one, or has met another process of a rank. */
    const char *who = missing == 0 ? "all workers" : missing == 1 ? "worker " : "workers ";
    ls_status status = ls_fail(
        LS_ERR_PEER,
        "%s%s of %d did not %s within %g s (this is worker %d of job \"%s\"%s%s; LOCKSTEP_JOIN_LIMIT sets these "
        "seconds)%s%s%s%s",
        who, ls_text_get(&names), d->options->size, missing ? "come" : "meet", d->mesh->join_limit, d->options->rank,
        d->options->job, d->options->rendezvous[0] ? ", which meets at " : "", d->options->rendezvous,
        d->why[0] ? "; the last call: " : "", d->why, strangers[0] ? "; at this worker's door: " : "", strangers);
    ls_text_free(&names);
    return status;
}

/* Waits until a caller or bytes arrive; only a moment if workers must be called again. */
static ls_status wait_for_callers(ls_handshake *d)
{
    int n = 0;
    bool complete = true;
    double now = d->mesh->table->now(d->mesh->transport), left = d->end - now;
    if (left <= 0)
        return name_missing(d);
    say_missing(d);
    d->wants[n++] = (ls_want){ .line = NULL, .read = true };
    n = ls_hellos_list(&d->hellos, d->wants, n);
    for (int line = 0; line < d->lines; line++)
        for (int r = 0; r < d->options->size; r++)
            complete &= call_to(d, r, line)->at || has_line(d, r, line) || !should_call(d, r, line, false);
    for (int r = 0; r < d->options->size; r++)
        if (d->mesh->links[r].line && !d->joins)
            d->wants[n++] = (ls_want){ .line = d->mesh->links[r].line,
                                       .read = true,
                                       .write = !ls_mesh_is_sent(&d->mesh->links[r]) };
    double limit = complete ? LS_BEAT_EVERY : CALL_AGAIN;
    LS_TRY(ls_mesh_beat(d->mesh)); /* workers that have met all count silence already */
    return d->mesh->table->wait(d->mesh->transport, d->wants, n, left < limit ? left : limit);
}

/* Asks again for the members, which may have changed. */
static void look_again(ls_handshake *d)
{
    double now = d->mesh->table->now(d->mesh->transport);
    if (!d->joins || now - d->since < LOOK_AGAIN)
        return;
    d->joins = false;
    d->generation = 0;
    for (int r = 0; r < d->options->size; r++)
        ls_mesh_hang_up(d->mesh, r);
}

/* ---- Agreeing on the workers that begin ---- */

static uint64_t draw_mark(void)
{
    uint64_t mark = 0;
    if (getrandom(&mark, sizeof(mark), GRND_NONBLOCK) != (ssize_t)sizeof(mark))
        mark = (uint64_t)(1e9 * ls_clock_now()) ^ (uint64_t)getpid() << 32;
    return mark;
}

static void hash_company(const ls_handshake *d, uint64_t out[2])
{
    const ls_peers *p = &d->mesh->peers;
    ls_hash hash;
    ls_hash_begin(&hash);
    for (int i = 0; i < p->count; i++) {
        int r = p->members[i];
        uint64_t parts[2] = { (uint64_t)r, r == p->rank ? d->mark : d->marks[r] };
        ls_hash_add(&hash, parts, sizeof(parts));
    }
    ls_hash_end(&hash, out);
}

static bool is_of_company(const ls_handshake *d, const ls_frame *frame)
{
    return memcmp(frame->hash, d->company, sizeof(d->company)) == 0;
}

/* Makes a MET or BEGIN frame. */
static ls_frame frame_of_company(const ls_handshake *d, ls_frame_kind kind)
{
    ls_frame frame = ls_mesh_frame(d->mesh, kind, "");
    memcpy(frame.hash, d->company, sizeof(d->company));
    return frame;
}

/* Starts over with a new mark. Workers that have met this one receive LEFT and do the same. */
static void meet_again(ls_handshake *d)
{
    ls_mesh *mesh = d->mesh;
    ls_frame leaves = ls_mesh_frame(mesh, LS_FRAME_LEFT, "it meets the others again");
    for (int r = 0; r < d->options->size; r++) {
        (void)ls_mesh_send(mesh, r, &leaves); /* on failure the peer sees the connection end */
        ls_mesh_hang_up(mesh, r);
        mesh->lost[r] = begins(d, r) || r == d->options->rank ? LS_NOT_LOST : LS_LOST_LEFT;
        mesh->readies[r] = mesh->states[r] = (ls_frame){ 0 };
    }
    for (int i = 0; i < d->hellos.call_count; i++)
        ls_hello_forget(&d->hellos, &d->hellos.calls[i]);
    while (d->hellos.caller_count > 0)
        ls_hello_drop_caller(&d->hellos, 0);
    mesh->regroup = false;
    d->met = false;
    d->lost_at = 0;
    d->mark = draw_mark();
}

void ls_handshake_say_chief(ls_handshake *d)
{
    if (!d || d->chief || d->mesh->peers.members[0] != d->options->rank)
        return;
    d->chief = true;
    ls_launcher_say_chief(d->options);
}

static ls_status begin(ls_handshake *d, ls_frame frame)
{
    ls_mesh *mesh = d->mesh;
    mesh->begun = true;
    mesh->peers.job = frame.hash[0];
    ls_mesh_confirm_members(mesh);
    ls_handshake_say_chief(d);
    for (int r = 0; r < mesh->peers.size; r++)
        if (mesh->readies[r].kind == LS_FRAME_MET)
            mesh->readies[r] = (ls_frame){ 0 };
    for (int i = 0; i < mesh->peers.count; i++)
        if (mesh->peers.members[i] != mesh->peers.rank)
            LS_TRY(ls_mesh_pass_on(mesh, mesh->peers.members[i], frame));
    ls_mesh_push(mesh);
    return LS_OK;
}

void ls_handshake_hear(ls_handshake *d, int rank, const ls_frame *frame)
{
    if (!d || d->mesh->begun || d->joins)
        return;
    if (frame->kind == LS_FRAME_MET)
        d->mesh->readies[rank] = *frame;
    else if (d->met && is_of_company(d, frame) && d->begin.kind == 0)
        d->begin = *frame;
}

/* Returns whether all remaining workers have sent MET; *same: they met the same processes. */
static bool all_have_met(const ls_handshake *d, bool *same)
{
    const ls_peers *p = &d->mesh->peers;
    bool all = true;
    *same = true;
    for (int i = 0; i < p->count; i++) {
        int r = p->members[i];
        const ls_frame *met = &d->mesh->readies[r];
        all &= met->kind != 0 || r == p->rank || d->mesh->lost[r];
        *same &= met->kind == 0 || is_of_company(d, met);
    }
    return all;
}

/* Sends MET to the first worker that is not lost. */
static ls_status say_met(ls_handshake *d)
{
    if (!d->met) {
        d->met = true;
        hash_company(d, d->company);
        d->told = d->options->rank;
    }
    if (d->told == first_of(d) || first_of(d) == d->options->rank)
        return LS_OK;
    ls_frame frame = frame_of_company(d, LS_FRAME_MET);
    d->told = first_of(d);
    LS_TRY(ls_mesh_send(d->mesh, d->told, &frame));
    ls_mesh_push(d->mesh);
    return LS_OK;
}

/* Returns whether to start over: a worker was lost that not all have met, or has started over
 * itself. */
static bool is_broken(ls_handshake *d)
{
    const ls_mesh *mesh = d->mesh;
    if (!mesh->regroup)
        return false;
    for (int i = 0; i < mesh->peers.count; i++)
        if (mesh->lost[mesh->peers.members[i]] == LS_LOST_LEFT)
            return true;
    double now = mesh->table->now(mesh->transport);
    d->lost_at = d->lost_at > 0 ? d->lost_at : now;
    return !d->met || (first_of(d) == d->options->rank && now - d->lost_at > MEET_AGAIN);
}

static ls_status agree(ls_handshake *d)
{
    bool same;
    if (d->joins)
        return LS_OK;
    LS_TRY(ls_mesh_turn(d->mesh, 0));
    if (d->begin.kind)
        return begin(d, d->begin);
    if (is_broken(d))
        meet_again(d);
    if (d->met || is_complete(d))
        LS_TRY(say_met(d));
    if (!d->met || first_of(d) != d->options->rank)
        return LS_OK;
    bool all = all_have_met(d, &same);
    if (!same) {
        snprintf(d->why, sizeof(d->why), "workers have met different processes of the same rank");
        meet_again(d);
    } else if (all) {
        return begin(d, frame_of_company(d, LS_FRAME_BEGIN));
    }
    return LS_OK;
}

/* ---- Reports of the launcher ---- */

/* Returns how many beginning workers ended; *left: workers that remain, without servers. */
static int count_gone(const ls_handshake *d, const uint64_t *gone, int *left, ls_text *names)
{
    int count = 0;
    *left = 0;
    for (int r = 0; r < d->options->size; r++)
        if (begins(d, r) && (r == d->options->rank || !ls_has_bit(gone, r)))
            *left += !ls_peers_is_server(&d->mesh->peers, r);
        else if (begins(d, r))
            ls_text_add(names, "%s%d", count++ ? ", " : "", r);
    return count;
}

static void do_without(ls_handshake *d, const uint64_t *gone)
{
    for (int r = 0; r < d->options->size; r++)
        if (r != d->options->rank && ls_has_bit(gone, r))
            ls_clear_bit(d->begins, r);
    ls_mesh_set_members(d->mesh, d->begins);
    d->gone_at = 0;
    meet_again(d);
}

/* Begins the job with the remaining workers if they are enough (options->least), else fails.
 * Between MET and BEGIN it waits MEET_AGAIN seconds first, as the others may begin nevertheless. */
static ls_status heed_launcher(ls_handshake *d)
{
    ls_text names = { 0 };
    ls_status status = LS_OK;
    uint64_t gone[LS_MAX_CLUSTER / 64];
    double now = d->mesh->table->now(d->mesh->transport);
    if (d->launcher < 0 || d->mesh->begun || d->joins)
        return LS_OK;
    ls_launcher_read(d->launcher, gone);
    int left, count = count_gone(d, gone, &left, &names);
    d->gone_at = count == 0 ? 0 : d->gone_at > 0 ? d->gone_at : now;
    if (count == 0 || (d->met && now - d->gone_at < MEET_AGAIN)) {
        /* nothing to do, or not yet */
    } else if (d->options->least > 0 && left >= d->options->least) {
        do_without(d, gone);
    } else {
        status =
            ls_fail(LS_ERR_PEER,
                    "worker%s %s of %d ended before all workers had met, and will not be started again (this is "
                    "worker %d of job \"%s\")",
                    count == 1 ? "" : "s", ls_text_get(&names), d->options->size, d->options->rank, d->options->job);
    }
    ls_text_free(&names);
    return status;
}

bool ls_handshake_launcher_saw_end(const ls_handshake *d, int rank)
{
    return d && ls_launcher_has_seen_end(d->options, rank);
}

/* ---- Until the job begins ---- */

/* Sends BEGIN completely before the program does anything else. */
static ls_status send_begin(ls_handshake *d)
{
    ls_mesh *mesh = d->mesh;
    double end = mesh->table->now(mesh->transport) + mesh->silence_limit;
    for (int r = 0; r < d->options->size && mesh->begun; r++)
        while (!ls_mesh_is_sent(&mesh->links[r]) && mesh->table->now(mesh->transport) < end)
            LS_TRY(ls_mesh_turn(mesh, LS_BEAT_EVERY));
    return LS_OK;
}

static ls_status meet_all(ls_handshake *d)
{
    d->mark = draw_mark();
    LS_TRY(agree(d)); /* a single worker is done here */
    while (!d->mesh->begun && !(d->joins && is_complete(d))) {
        LS_TRY(call_on_all(d));
        LS_TRY(wait_for_callers(d));
        LS_TRY(hear_all(d));
        LS_TRY(agree(d));
        LS_TRY(heed_launcher(d));
        look_again(d);
    }
    return send_begin(d);
}

/* Sends LEFT, so that workers which have met this one do not begin without it. */
static void give_up(ls_handshake *d)
{
    ls_error why;
    ls_error_keep(&why, LS_ERR_PEER);
    if (!d->mesh->begun && !d->joins)
        meet_again(d);
    (void)ls_error_give(&why);
}

static ls_status open_door(ls_handshake *d, int number, const char *about)
{
    ls_mesh *mesh = d->mesh;
    int size = d->options->size;
    d->lines = mesh->table->beats ? 2 : 1;
    LS_TRY(ls_hellos_open(&d->hellos, mesh->table, d->options, d->lines * size, about,
                          "workers would not compute the same bits"));
    d->wants = calloc((size_t)(d->lines + 1) * (size_t)size + LS_MOST_CALLERS + 1, sizeof(*d->wants));
    d->marks = calloc((size_t)d->options->size, sizeof(*d->marks));
    if (!d->wants || !d->marks)
        return ls_fail(LS_ERR_MEMORY, "no memory to meet %d workers", d->options->size);
    for (int i = 0; i < mesh->peers.count; i++)
        ls_set_bit(d->begins, mesh->peers.members[i]);
    d->process = ls_process_self();
    LS_TRY(mesh->table->open(d->options, number, &mesh->transport));
    d->hellos.transport = mesh->transport;
    d->launcher = ls_launcher_open(d->options);
    d->asked = mesh->table->now(mesh->transport);
    d->end = d->asked + mesh->join_limit;
    d->say_at = d->asked + SAY_MISSING;
    ls_status status = meet_all(d);
    if (status != LS_OK)
        give_up(d);
    if (d->launcher >= 0)
        close(d->launcher);
    d->launcher = -1;
    return status;
}

void ls_handshake_close(ls_handshake *d)
{
    if (!d)
        return;
    ls_hellos_close(&d->hellos);
    free(d->wants);
    free(d->marks);
    free(d);
}

ls_status ls_mesh_open(const ls_cluster_options *options, int number, const char *about, ls_logger *log, ls_mesh **out)
{
    ls_mesh *mesh;
    LS_TRY(ls_mesh_create(options, &mesh));
    mesh->log = log;
    ls_handshake *d = mesh->door = calloc(1, sizeof(*d));
    ls_status status = d ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to meet %d workers", options->size);
    if (d)
        *d = (ls_handshake){ .mesh = mesh, .copy = *options, .options = &d->copy, .launcher = -1 };
    if (status == LS_OK)
        status = ls_transport_choose(options, &mesh->table);
    if (status == LS_OK)
        status = open_door(d, number, about);
    if (status == LS_OK && mesh->table->beats)
        status = ls_heartbeat_start(mesh->transport, mesh->table, mesh->alive, options->size, mesh->silence_limit,
                                    &mesh->beats);
    if (status != LS_OK) {
        ls_mesh_free(mesh);
        return status;
    }
    mesh->peers.slice = mesh->table->slice;
    if (d->joins)
        ls_mesh_come_later(mesh, d->members, d->generation);
    *out = mesh;
    return LS_OK;
}
